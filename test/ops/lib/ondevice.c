/* ondevice.c - rows on a device with memory of its own, against the reference kernels: one call at
 * a time, every tensor in memory of its own with a guard after it. */
#include <stdio.h>
#include <stdlib.h>

#include "base/device.h"
#include "kernels/kernels.h"
#include "ops/lib/row.h"

#define GUARD 256
#define GUARD_BYTE 0xa5
#define MAX_TENSORS (WF_MAX_IN + WF_MAX_OUT)

/* Device memory of one call. */
struct place {
    void *at;
    int64_t bytes;
};

struct call_on {
    struct wf_device *d;
    void *stream;
    struct place *places;
    int n;
};

static weft_status take(struct call_on *o, int64_t bytes, void **out)
{
    weft_status st = wf_dev_alloc(o->d, bytes + GUARD, "test", out);

    if (!st)
        st = o->d->ops.fill(o->d->dev, o->stream, *out, GUARD_BYTE, (size_t)(bytes + GUARD));
    if (!st)
        o->places[o->n++] = (struct place){*out, bytes};
    return st;
}

static weft_status put_in(struct call_on *o, const void *host, int64_t bytes, void **out)
{
    weft_status st = take(o, bytes, out);

    if (!st && bytes)
        st = o->d->ops.copy(o->d->dev, o->stream, WEFT_COPY_IN, *out, host, (size_t)bytes);
    return st;
}

static weft_status get_out(struct call_on *o, const void *from, void *host, int64_t bytes)
{
    return bytes ? o->d->ops.copy(o->d->dev, o->stream, WEFT_COPY_OUT, host, from, (size_t)bytes)
                 : WEFT_OK;
}

/* Nothing was written past the end of any tensor. */
static weft_status check_guards(struct call_on *o, const char *what)
{
    for (int i = 0; i < o->n; i++) {
        unsigned char guard[GUARD];
        weft_status st = get_out(o, (char *)o->places[i].at + o->places[i].bytes, guard, GUARD);

        if (!st)
            st = o->d->ops.stream_sync(o->d->dev, o->stream);
        if (st)
            return st;
        for (int k = 0; k < GUARD; k++)
            if (guard[k] != GUARD_BYTE)
                return wf_err(WEFT_EBUG, "%s wrote past the end of tensor %d", what, i);
    }
    return WEFT_OK;
}

static weft_status fault(const uint32_t *words, const char *what)
{
    static const weft_status st[] = {WEFT_OK, WEFT_EDATA, WEFT_ENUMERIC, WEFT_EDATA};
    uint32_t code = words[WF_TROUBLE_CODE];

    return code ? wf_err(st[code & 3], "%s: the device found a fault of kind %u", what, code)
                : WEFT_OK;
}

static weft_status run_on(struct call_on *o, const struct wf_kernel *k, const struct wf_kplan *p,
                          struct wf_call *c)
{
    struct wf_step_block block = {
        .seed = c->rng.seed, .step = c->rng.step, .iteration = c->iteration, .shard = c->rng.shard};
    uint32_t words[WF_TROUBLE_WORDS] = {0};
    struct wf_tensor *in = wf_alloc_n(c->ctx, c->n_in + 1, sizeof *in),
                     *out = wf_alloc_n(c->ctx, c->n_out + 1, sizeof *out);
    struct wf_call g = *c;
    char *own = wf_alloc(c->ctx, p->step_bytes + 1);
    void *at = NULL;
    weft_status st = WEFT_OK;

    for (int i = 0; i < c->n_in && !st; i++) {
        in[i] = c->in[i];
        if (c->in[i].type.dtype)
            st = put_in(o, c->in[i].data, wf_type_bytes(&c->in[i].type), &in[i].data);
    }
    for (int i = 0; i < c->n_out && !st; i++) {
        out[i] = c->out[i];
        if (i == 0 && c->n_in && c->in[0].data == c->out[0].data)
            out[0].data = in[0].data;
        else
            st = take(o, wf_type_bytes(&c->out[i].type), &out[i].data);
    }
    if (!st)
        st = take(o, (int64_t)p->scratch_bytes, &g.scratch);
    if (!st)
        st = put_in(o, &block, sizeof block, &at);
    g.step = at;
    if (!st)
        st = put_in(o, words, sizeof words, &at);
    g.trouble = at;
    if (p->step_fill)
        p->step_fill(c, own);
    if (!st)
        st = put_in(o, own, (int64_t)p->step_bytes, &at);
    g.own = at;
    g.in = in;
    g.out = out;
    g.state = p->state;
    g.device = o->d->dev;
    g.stream = o->stream;
    if (!st)
        st = k->run(&g);
    for (int i = 0; i < c->n_in && !st; i++)
        if (c->in[i].type.dtype)
            st = get_out(o, in[i].data, c->in[i].data, wf_type_bytes(&c->in[i].type));
    for (int i = 0; i < c->n_out && !st; i++)
        st = get_out(o, out[i].data, c->out[i].data, wf_type_bytes(&c->out[i].type));
    if (!st)
        st = get_out(o, g.trouble, words, sizeof words);
    if (!st)
        st = o->d->ops.stream_sync(o->d->dev, o->stream);
    if (!st)
        st = fault(words, p->impl);
    if (!st)
        st = check_guards(o, p->impl);
    wf_free(c->ctx, own);
    wf_free(c->ctx, in);
    wf_free(c->ctx, out);
    return st;
}

weft_status op_call_on(struct wf_device *d, struct wf_kplan *p, struct wf_call *c, bool *fell_back)
{
    struct call_on o = {.d = d, .places = wf_alloc_n(c->ctx, MAX_TENSORS, sizeof *o.places)};
    const struct wf_kernel *k = NULL;
    weft_status st;

    p->device = d->dev;
    st = d->ops.choose(d->dev, p, &k);
    *fell_back = st == WEFT_ENOSUP;
    if (!st)
        st = d->ops.stream_new(d->dev, &o.stream);
    if (!st)
        st = run_on(&o, k, p, c);
    for (int i = 0; i < o.n; i++)
        wf_dev_free(d, o.places[i].at, o.places[i].bytes + GUARD);
    if (o.stream)
        d->ops.stream_free(d->dev, o.stream);
    wf_free(c->ctx, o.places);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const struct op_run_opts ref_opts = {.rng = {.seed = 42, .step = 3, .shard = 1}};

static void run_or_fail(const struct row *r, const struct built *b, const struct wf_tensor *feeds,
                        int n, const weft_val *fetch, const struct op_run_opts *o, const char *what,
                        struct op_run *run)
{
    weft_status st = op_run(r->b->base, b->g, r->c->n_in, b->in, feeds, n, fetch, o, run);

    MUST(r, !st, "%s: %s: %s", what, weft_status_name(st), weft_error());
}

/* The values in `fetch` on the device, against `want`'s. */
static void compare_on(const struct row *r, struct device_run *d, const struct built *b,
                       const struct wf_tensor *feeds, int n, const weft_val *fetch,
                       const struct built *wb, const weft_val *want_fetch,
                       const struct op_run *want, double tol, bool exact, const char *what)
{
    struct op_run_opts o = ref_opts;
    struct op_run run;
    char text[96];

    o.device = d;
    for (int in_place = 0; in_place < 2; in_place++) {
        o.in_place = in_place;
        run_or_fail(r, b, feeds, n, fetch, &o, what, &run);
        for (int i = 0; i < n; i++) {
            snprintf(text, sizeof text, "%s %d%s", what, i, in_place ? ", in place" : "");
            if (!fetch[i].id)
                continue;
            if (exact)
                row_compare_bits(r, text, &run.val[fetch[i].id], &want->val[want_fetch[i].id]);
            else
                row_compare(r, text, &run.val[fetch[i].id], &want->val[want_fetch[i].id], tol);
        }
        for (int i = 0; i < r->c->n_in; i++)
            if (b->in[i].id && want->val[wb->in[i].id].data && !in_place)
                row_compare(r, "an input after the run", &run.val[b->in[i].id],
                            &want->val[wb->in[i].id], tol);
        op_run_free(&run);
    }
}

static void check_failure_on(const struct row *r, struct device_run *d,
                             const struct wf_tensor *feeds)
{
    struct op_run_opts o = ref_opts;
    struct built b;
    struct op_run run;
    weft_status st = row_build(r, r->b->base, WEFT_F32, false, &b);

    o.device = d;
    if (!st) {
        st = op_run(r->b->base, b.g, r->c->n_in, b.in, feeds, b.n_out, b.out, &o, &run);
        op_run_free(&run);
    }
    MUST(r, st == r->c->fails, "status %s (%s), expected %s", weft_status_name(st),
         st ? weft_error() : "", weft_status_name(r->c->fails));
    weft_graph_free(b.g);
}

/* Values in type t, against f64 on the same (rounded) inputs; f32: against f32's reference. */
static void check_type_on(const struct row *r, struct device_run *d, weft_dtype t, double tol)
{
    struct wf_tensor narrow[OP_MAX_IN], wide[OP_MAX_IN];
    weft_dtype reference = t == WEFT_F32 ? WEFT_F32 : WEFT_F64;
    struct built a, b;
    struct op_run want;
    char what[64];

    row_feeds(r, t, narrow);
    row_feeds(r, reference, wide);
    for (int i = 0; i < r->c->n_in; i++)
        for (int64_t k = 0; wf_is_float(narrow[i].type.dtype) && k < r->count[i]; k++)
            wf_set(wide[i].data, wide[i].type.dtype, k,
                   wf_get(narrow[i].data, narrow[i].type.dtype, k));
    MUST(r, !row_build(r, r->b->base, t, false, &a), "build in %s: %s", weft_dtype_name(t),
         weft_error());
    MUST(r, !row_build(r, r->b->base, reference, false, &b), "build: %s", weft_error());
    run_or_fail(r, &b, wide, b.n_out, b.out, &ref_opts, "reference", &want);
    snprintf(what, sizeof what, "%s output", weft_dtype_name(t));
    compare_on(r, d, &a, narrow, a.n_out, a.out, &b, b.out, &want, tol,
               t == WEFT_F32 && (r->c->flags & OP_EXACT), what);
    op_run_free(&want);
    weft_graph_free(a.g);
    weft_graph_free(b.g);
    row_feeds_free(r, narrow);
    row_feeds_free(r, wide);
}

static void check_gradients_on(const struct row *r, struct device_run *d,
                               const struct wf_tensor *feeds, double tol)
{
    struct wf_type types[WF_MAX_OUT];
    struct built b;
    struct op_run run;
    weft_status st = row_build(r, r->b->base, WEFT_F32, false, &b);

    MUST(r, !st, "build: %s", weft_error());
    run_or_fail(r, &b, feeds, b.n_out, b.out, &ref_opts, "reference", &run);
    for (int i = 0; i < b.n_out; i++) {
        types[i] = run.val[b.out[i].id].type;
        types[i].dtype = types[i].dtype == WEFT_F32 ? WEFT_F64 : types[i].dtype;
    }
    op_run_free(&run);
    st = row_differentiate(r, &b, types);
    MUST(r, !st, "gradient: %s", weft_error());
    if (b.loss.id) {
        run_or_fail(r, &b, feeds, r->c->n_in, b.grad, &ref_opts, "reference", &run);
        compare_on(r, d, &b, feeds, r->c->n_in, b.grad, &b, b.grad, &run, tol, false, "gradient");
        op_run_free(&run);
    }
    weft_graph_free(b.g);
}

void row_check_on(struct row *r, struct device_run *d)
{
    double tol = r->c->tol > 0 ? r->c->tol : 1e-5, half = r->c->tol_half > 0 ? r->c->tol_half : 1;
    struct wf_tensor feeds[OP_MAX_IN];
    int64_t used;

    row_data(r);
    row_feeds(r, WEFT_F32, feeds);
    used = weft_ctx_memory(r->b->base);
    if (r->c->fails) {
        check_failure_on(r, d, feeds);
    } else {
        check_type_on(r, d, WEFT_F32, tol);
        if (!(r->c->flags & (OP_NO_GRAD | OP_NO_FAST_GRAD)))
            check_gradients_on(r, d, feeds, tol * 5);
        if (!(r->c->flags & OP_F32_ONLY))
            check_type_on(r, d, WEFT_F64, 1e-12);
        if (!(r->c->flags & (OP_F32_ONLY | OP_NO_HALF))) {
            check_type_on(r, d, WEFT_F16, 2e-3 * half);
            check_type_on(r, d, WEFT_BF16, 1.6e-2 * half);
        }
    }
    row_feeds_free(r, feeds);
    row_data_free(r);
    MUST(r, weft_ctx_memory(r->b->base) == used, "%lld bytes leaked",
         (long long)(weft_ctx_memory(r->b->base) - used));
}

/* ---- what fell back to the host -------------------------------------------------------------- */

void device_run_note(struct device_run *d, const char *op, weft_dtype t, bool fell_back)
{
    char line[80];

    d->calls[fell_back]++;
    if (!fell_back)
        return;
    snprintf(line, sizeof line, "%s %s", op, weft_dtype_name(t));
    for (int i = 0; i < d->n_lines; i++)
        if (!strcmp(d->line[i], line))
            return;
    if (d->n_lines < DEVICE_LINES)
        memcpy(d->line[d->n_lines++], line, sizeof line);
}

void device_run_print(const struct device_run *d, const char *group)
{
    printf(
        "{\"group\": \"%s\", \"device\": \"%s\", \"calls\": %d, \"on_host\": %d, \"host_ops\": [",
        group, d->device->info.model, d->calls[0], d->calls[1]);
    for (int i = 0; i < d->n_lines; i++)
        printf("%s\"%s\"", i ? ", " : "", d->line[i]);
    printf("]}\n");
}
