/* enumerate.c - a column that numbers the elements. */
#include "data/stage/counted.h"

struct enumerate {
    int64_t first;
};

/* A column before b's: first, first + 1, … or one number for each `at`. Consumes b. */
static weft_status number(struct wf_ds *ds, struct wf_block *b, int64_t first,
                          const struct wf_at *at, struct wf_block **out)
{
    struct wf_type t = wf_type_of(WEFT_I64, 0, NULL);
    struct wf_block *v = NULL;
    weft_status st = wf_block_new(b->env, ds->n_cols, b->n, &v);

    for (int64_t k = 0; k < b->n_keep && !st; k++)
        st = wf_block_keep(v, b->keep[k]);
    if (!st)
        st = wf_block_col(v, 0, &t, 0);
    if (st) {
        wf_block_free(v);
        wf_block_free(b);
        return st;
    }
    for (int64_t i = 0; i < b->n; i++)
        ((int64_t *)v->col[0].data)[i] = first + (at ? at[i].id : i);
    memcpy(v->col + 1, b->col, (size_t)b->n_cols * sizeof *b->col);
    memcpy(v->at, b->at, (size_t)b->n * sizeof *b->at);
    v->from = b->from;
    v->sample = b->sample;
    v->n_samples = b->n_samples;
    wf_block_free(b);
    *out = v;
    return WEFT_OK;
}

static weft_status enumerate_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                                 int64_t n, struct wf_block **out)
{
    struct wf_block *b = NULL;
    weft_status st = wf_ds_get_block(ds->in[0], w, at, n, &b);

    return st ? st : number(ds, b, ((const struct enumerate *)ds->param)->first, at, out);
}

static weft_status enumerate_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    int64_t *passed = s->state, *data;
    struct wf_promise *in = NULL;
    weft_status st = wf_stage_pull(s->in[0], want, &in);

    *out = NULL;
    if (st || !in)
        return st;
    data = wf_alloc(s->env->ctx, sizeof *data);
    if (!data) {
        wf_promise_drop(in);
        return wf_env_nomem(s->env, sizeof *data, "enumerate");
    }
    *data = *passed;
    *passed += in->n;
    *out = wf_promise_new(s, in->n, 1, &in, data);
    if (!*out)
        wf_free(s->env->ctx, data);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static weft_status enumerate_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    int64_t first = *(int64_t *)p->data + ((const struct enumerate *)p->stage->ds->param)->first;
    struct wf_block *in = NULL;
    weft_status st;

    wf_free(w->env->ctx, p->data);
    st = wf_promise_make_inputs(p, w, &in);
    return st ? st : number(p->stage->ds, in, first, NULL, out);
}

static void enumerate_text(const struct wf_ds *ds, struct wf_buf *out)
{
    wf_buf_printf(out, "first=%lld", (long long)((const struct enumerate *)ds->param)->first);
}

static const struct wf_ds_kind enumerate_kind = {
    .name = "enumerate",
    .get = enumerate_get,
    .open = wf_counted_open,
    .close = wf_state_close,
    .reset = wf_counted_reset,
    .pull = enumerate_pull,
    .make = enumerate_make,
    .drop = wf_data_drop,
    .save = wf_counted_save,
    .restore = wf_counted_restore,
    .text = enumerate_text,
};

weft_ds weft_ds_enumerate(weft_data *d, weft_ds s, int64_t first)
{
    struct wf_ds *ds = wf_ds_new(d, &enumerate_kind, 1, &s, sizeof(struct enumerate));
    weft_column *col;
    weft_status st;

    if (!ds)
        return (weft_ds){0};
    ((struct enumerate *)ds->param)->first = first;
    col = wf_arena_alloc(&d->arena, (size_t)(ds->n_cols + 1) * sizeof *col);
    if (!col)
        return wf_ds_fail(d, "enumerate", wf_err_nomem(d->ctx, 0, "the pipeline"));
    col[0] = wf_column_of("index", WEFT_I64, 0, NULL);
    memcpy(col + 1, ds->col, (size_t)ds->n_cols * sizeof *col);
    st = wf_ds_set_columns(ds, ds->n_cols + 1, col);
    return st ? wf_ds_fail(d, "enumerate", st) : wf_ds_handle(ds);
}
