/* zip.c - several datasets side by side. */
#include "data/data.h"

/* One block with the columns of all; the inputs are freed, also on failure. */
static weft_status side_by_side(struct wf_ds *ds, struct wf_env *env, int64_t n,
                                struct wf_block **in, struct wf_block **out)
{
    struct wf_block *b = NULL;
    int c = 0;
    weft_status st = wf_block_new(env, ds->n_cols, n, &b);

    for (int i = 0; i < ds->n_in && !st; i++) {
        for (int64_t k = 0; k < in[i]->n_keep && !st; k++)
            st = wf_block_keep(b, in[i]->keep[k]);
        for (int k = 0; k < in[i]->n_cols; k++)
            b->col[c++] = in[i]->col[k];
    }
    if (!st) {
        memcpy(b->at, in[0]->at, (size_t)n * sizeof *b->at);
        b->from = in[0]->from;
        b->sample = in[0]->sample;
        b->n_samples = in[0]->n_samples;
        *out = b;
    } else {
        wf_block_free(b);
    }
    for (int i = 0; i < ds->n_in; i++)
        wf_block_free(in[i]);
    return st;
}

#define ZIP_MAX 64

static weft_status zip_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at, int64_t n,
                           struct wf_block **out)
{
    struct wf_block *in[ZIP_MAX];
    int made = 0;
    weft_status st = WEFT_OK;

    while (made < ds->n_in && !st) {
        st = wf_ds_get_block(ds->in[made], w, at, n, &in[made]);
        made += !st;
    }
    if (!st)
        return side_by_side(ds, w->env, n, in, out);
    while (made > 0)
        wf_block_free(in[--made]);
    return st;
}

static weft_status zip_open(struct wf_stage *s)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->n_in && !st; i++)
        st = wf_stage_input(s, i, WF_IN_EXACT, s->want);
    return st;
}

/* Each input of the promise is a gathered promise of one of ours. An input that ends early ends
 * the zip. */
static weft_status zip_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct wf_promise *in[ZIP_MAX];
    int64_t least = want;
    int n = 0;
    weft_status st = WEFT_OK;

    *out = NULL;
    while (n < s->n_in && !st) {
        int64_t got = 0;

        st = wf_promise_gather_from(s, s->in[n], least, &in[n], &got);
        if (st || !in[n])
            break;
        least = wf_min_i64(least, got);
        n++;
    }
    if (st || n < s->n_in) {
        while (n > 0)
            wf_promise_drop(in[--n]);
        return st;
    }
    *out = wf_promise_new(s, least, n, in, s); /* data: not NULL marks the outer promise */
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status zip_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_block *in[ZIP_MAX], *cut;
    int made = 0;
    weft_status st = WEFT_OK;

    if (!p->data) /* the parts of one input */
        return wf_promise_make_inputs(p, w, out);
    while (made < p->n_in && !st) {
        struct wf_promise *one = p->in[made];

        p->in[made] = NULL;
        st = wf_promise_make(one, w, &in[made]);
        if (!st && in[made]->n > p->n) {
            st = wf_block_slice(in[made], 0, p->n, &cut);
            wf_block_free(in[made]);
            in[made] = cut;
        }
        made += !st;
    }
    if (!st)
        return side_by_side(p->stage->ds, w->env, p->n, in, out);
    while (made > 0)
        wf_block_free(in[--made]);
    return st;
}

static weft_status zip_reset(struct wf_stage *s, int64_t epoch)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->n_in && !st; i++)
        st = wf_stage_reset(s->in[i], epoch);
    return st;
}

static const struct wf_ds_kind zip_kind = {
    .name = "zip",
    .get = zip_get,
    .open = zip_open,
    .reset = zip_reset,
    .pull = zip_pull,
    .make = zip_make,
};

weft_ds weft_ds_zip(weft_data *d, int n, const weft_ds *s)
{
    struct wf_ds *ds;
    weft_column *col;
    int n_cols = 0, c = 0;
    weft_status st;

    if (n <= 0 || n > ZIP_MAX)
        return wf_ds_fail(d, "zip", wf_err(WEFT_EINVAL, "%d datasets, not 1..%d", n, ZIP_MAX));
    ds = wf_ds_new(d, &zip_kind, n, s, 1);
    if (!ds)
        return (weft_ds){0};
    for (int i = 0; i < n; i++)
        n_cols += ds->in[i]->n_cols;
    col = wf_arena_alloc(&d->arena, (size_t)(n_cols + 1) * sizeof *col);
    if (!col)
        return wf_ds_fail(d, "zip", wf_err_nomem(d->ctx, 0, "the pipeline"));
    for (int i = 0; i < n; i++) {
        const struct wf_ds *in = ds->in[i];

        for (int k = 0; k < in->n_cols; k++)
            col[c++] = in->col[k];
        ds->addressable = ds->addressable && wf_ds_addressable(in);
        if (in->count == WEFT_UNKNOWN || in->inexact)
            ds->count = WEFT_UNKNOWN;
        else if (ds->count != WEFT_UNKNOWN)
            ds->count = wf_min_i64(ds->count, in->count);
    }
    st = wf_ds_set_columns(ds, n_cols, col);
    return st ? wf_ds_fail(d, "zip", st) : wf_ds_handle(ds);
}
