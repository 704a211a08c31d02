/* describe.c - a function's parts of a fingerprint: its graph, the segment table, the kernels. */
#include "base/fprint.h"
#include "exec/exec.h"

static void describe_segment(const struct wf_segment *s, struct wf_fprint *f)
{
    char key[300], slots[160] = "", type[WF_TYPE_TEXT];
    int n = 0;

    for (int k = 0; k < s->n_slots; k++)
        n += wf_snprintf(slots + n, sizeof slots - (size_t)n, "%s%.9g", k ? "," : ", slots from ",
                         (double)s->slot_init[k]);
    wf_snprintf(key, sizeof key, "variable '%.256s'", s->name);
    wf_type_text(&s->type, type);
    if (s->table)
        wf_fp_add(f, WF_FP_SEGMENTS, key, NULL, "%s (table%s)", type, slots);
    else
        wf_fp_add(f, WF_FP_SEGMENTS, key, NULL, "%s (%s at %lld%s)", type,
                  s->flat ? "parameter" : "state", (long long)s->offset, slots);
}

void wf_fn_describe(const weft_fn *fn, struct wf_fprint *f)
{
    const struct wf_store *s = fn->store;
    const int32_t *root = fn->roots;

    wf_graph_describe(fn->graph, f);
    wf_values_describe(fn->graph, "feed", fn->n_feeds, fn->feeds, f);
    wf_values_describe(fn->graph, "fetch", fn->n_fetches, root, f);
    wf_values_describe(fn->graph, "update", fn->n_updates, root + fn->n_fetches, f);
    wf_values_describe(fn->graph, "gradient", fn->n_gradients, root + fn->n_fetches + fn->n_updates,
                       f);
    for (int32_t k = 0; k < s->n_flat; k++)
        describe_segment(&s->seg[s->by_number[k]], f);
    for (int64_t i = 0; i < s->n_seg; i++)
        if (!s->seg[i].flat)
            describe_segment(&s->seg[i], f);
}

static void add_item(void *arg, const char *key, const char *value)
{
    wf_fp_add(arg, WF_FP_KERNELS, key, NULL, "%s", value);
}

/* The device that functions are on, where it is not the CPU. */
static void describe_device(const struct wf_device *d, struct wf_fprint *f)
{
    wf_fp_add(f, WF_FP_KERNELS, "the kind of device", NULL, "%s", d->kind);
    if (d->ops.describe)
        d->ops.describe(d->dev, add_item, f);
}

/* The level with products of bf16 differs from the one below it in nothing else: a function without
 * bf16 has the same results at both. */
static weft_simd level_of(const weft_fn *fn)
{
    if (fn->ctx->simd != WEFT_SIMD_AVX512BF16)
        return fn->ctx->simd;
    for (int64_t i = 1; i < fn->graph->n_values; i++)
        if (fn->graph->values[i].type.dtype == WEFT_BF16)
            return WEFT_SIMD_AVX512BF16;
    return WEFT_SIMD_AVX512;
}

void wf_kernels_describe(const weft_fn *fn, struct wf_fprint *f)
{
    const weft_ctx *ctx = fn->ctx;

    wf_fp_add(f, WF_FP_KERNELS, "the SIMD level", NULL, "%s", weft_simd_name(level_of(fn)));
    wf_fp_add(f, WF_FP_KERNELS, "the choice of kernels", NULL, "%s",
              ctx->kernels == WEFT_KERNELS_PORTABLE ? "portable" : "best");
    wf_fp_add(f, WF_FP_KERNELS, "the treatment of denormals", NULL, "%s",
              ctx->flush_denormals ? "flushed" : "kept");
    wf_fp_add(f, WF_FP_KERNELS, "the version of weft", NULL, "%s", weft_version());
    wf_fp_add(f, WF_FP_KERNELS, "the list of kernels", NULL, "%016llx",
              (unsigned long long)wf_kernels_hash());
    wf_fp_add(f, WF_FP_KERNELS, "the tiling of products", NULL, "%016llx",
              (unsigned long long)wf_tilings_hash());
    if (ctx->home)
        describe_device(ctx->home, f);
}
