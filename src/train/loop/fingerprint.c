/* fingerprint.c - what a fit depends on, in the parts of a fingerprint: saved with its checkpoints,
 * and compared when it resumes. */
#include "train/loop/fingerprint.h"

/* What weft_compile was told. The keys are those of the checkpoint's metadata, too, which is all
 * that earlier versions wrote. */
static const struct {
    const char *meta, *key;
} told[] = {
    {"optimizer", "the optimizer"},     {"loss", "the loss"},
    {"shards", "the number of shards"}, {"accumulate", "the number of accumulated batches"},
    {"precision", "the precision"},
};

static void describe_training(const weft_trainer *t, struct wf_fprint *f)
{
    struct wf_buf loss;

    wf_buf_init(&loss, t->ctx, 1 << 20);
    wf_buf_printf(&loss, "%s", "");
    for (int i = 0; i < t->n_out; i++)
        wf_buf_printf(&loss, "%s%s", i ? "; " : "", t->loss[i] ? t->loss[i] : "");
    if (loss.st)
        f->st = wf_err_nomem(t->ctx, 0, "fingerprint");
    if (!f->st) {
        wf_fp_add(f, WF_FP_TRAINING, told[0].key, NULL, "%s", t->optim.name);
        wf_fp_add(f, WF_FP_TRAINING, told[1].key, NULL, "%s", loss.data);
        wf_fp_add(f, WF_FP_TRAINING, told[2].key, NULL, "%d", t->shards);
        wf_fp_add(f, WF_FP_TRAINING, told[3].key, NULL, "%d", t->accumulate);
        wf_fp_add(f, WF_FP_TRAINING, told[4].key, NULL, "%s",
                  t->tf32 ? "tf32" : weft_dtype_name(t->precision));
        if (t->rounds)
            wf_fp_add(f, WF_FP_TRAINING, "how updates of workers are merged", NULL, "%d",
                      (int)t->merging);
        wf_fp_add(f, WF_FP_TRAINING, "the seed", NULL, "%llu", (unsigned long long)t->ctx->seed);
    }
    wf_buf_free(&loss);
}

weft_status wf_fit_fingerprint(const weft_trainer *t, const weft_data *d,
                               const struct wf_feeding *fed, struct wf_fprint *out)
{
    weft_status st;

    wf_fp_init(out, t->ctx);
    describe_training(t, out);
    wf_fn_describe(t->bound->fit, out);
    wf_kernels_describe(t->bound->fit, out);
    if (fed->batch)
        wf_fp_add(out, WF_FP_DATA, "the batch size", NULL, "%lld", (long long)fed->batch);
    st = out->st ? out->st : wf_ds_describe(d, fed->ds, out);
    return st ? wf_err_wrap(st, "fingerprint") : WEFT_OK;
}

void wf_fingerprint_meta(const struct wf_fprint *f, char (*room)[WF_META_TEXT],
                         weft_ckpt_pair *meta)
{
    static const char *const name[WF_N_FP] = {
        [WF_FP_TRAINING] = "fingerprint.training", [WF_FP_GRAPH] = "fingerprint.graph",
        [WF_FP_SEGMENTS] = "fingerprint.segments", [WF_FP_DATA] = "fingerprint.data",
        [WF_FP_KERNELS] = "fingerprint.kernels",
    };
    enum { n = WF_COUNT(told) };

    _Static_assert(n + WF_N_FP == WF_N_META, "as many as the callers have room for");
    for (int i = 0; i < n; i++)
        meta[i] = (weft_ckpt_pair){told[i].meta, f->part[WF_FP_TRAINING].item[i].value};
    for (int k = 0; k < WF_N_FP; k++) {
        wf_snprintf(room[k], sizeof room[k], "%016llx", (unsigned long long)f->part[k].hash);
        meta[n + k] = (weft_ckpt_pair){name[k], room[k]};
    }
}

/* What the metadata of an earlier version's checkpoint says, and nothing about the rest. */
static void from_meta(const weft_ckpt_data *info, struct wf_fprint *f)
{
    for (int64_t i = 0; i < info->n_meta; i++)
        for (int k = 0; k < WF_COUNT(told); k++)
            if (strcmp(info->meta[i].key, told[k].meta) == 0)
                wf_fp_add(f, WF_FP_TRAINING, told[k].key, NULL, "%s", info->meta[i].value);
    for (int k = 0; k < WF_N_FP; k++)
        f->part[k].whole = false;
}

weft_status wf_fingerprint_read(weft_ctx *ctx, weft_ckpt *c, struct wf_fprint *out)
{
    char *text = NULL;
    int64_t n = 0;
    weft_status st = weft_ckpt_blob_read(c, WF_CKPT_FINGERPRINT, &text, &n);

    wf_fp_init(out, ctx);
    if (!st)
        st = wf_fp_parse(ctx, text, n, out);
    weft_text_free(ctx, text);
    if (st != WEFT_ENOENT && st != WEFT_ENOSUP)
        return st ? wf_err_wrap(st, "%s", WF_CKPT_FINGERPRINT) : WEFT_OK;
    from_meta(weft_ckpt_info(c), out);
    return out->st;
}

/* ---- what differs ---------------------------------------------------------------------------- */

struct telling {
    weft_ctx *ctx;
    const char *path;
};

static void warn(void *arg, const struct wf_fp_diff *d)
{
    const struct telling *t = arg;
    char text[768];

    wf_log(t->ctx, WEFT_LOG_WARN, "%s%s", wf_fp_say(d, t->path, text, sizeof text),
           d->kind == WF_FP_KERNELS ? ": the last bits of results may differ" : "");
}

weft_status wf_fingerprint_warn(weft_ctx *ctx, weft_ckpt *c, const struct wf_fprint *here,
                                unsigned parts, unsigned *found)
{
    struct telling t = {ctx, weft_ckpt_path(c)};
    unsigned model = 1u << WF_FP_GRAPH | 1u << WF_FP_SEGMENTS, some;
    struct wf_fprint there;
    weft_status st = wf_fingerprint_read(ctx, c, &there);

    *found = 0;
    if (!st)
        st = wf_fp_compare(here, &there, parts & ~model, warn, &t, found);
    /* another optimizer or loss makes another graph: that was said; and so does another variable */
    if (!st && !(*found >> WF_FP_TRAINING & 1)) {
        st = wf_fp_compare(here, &there, parts & 1u << WF_FP_SEGMENTS, warn, &t, &some);
        *found |= some;
        if (!st && !some)
            st = wf_fp_compare(here, &there, parts & 1u << WF_FP_GRAPH, warn, &t, &some);
        *found |= some;
    }
    wf_fp_free(&there);
    return st;
}
