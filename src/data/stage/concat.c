/* concat.c - several datasets one after the other. */
#include "data/stage/counted.h"

static weft_status concat_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    struct wf_chunk *chunk;
    struct wf_at *to = wf_at_copy(w, at, n, &chunk);
    struct wf_block **parts = NULL;
    int made = 0;
    weft_status st = WEFT_OK;

    if (to)
        parts = wf_alloc_n(w->env->ctx, n, sizeof *parts);
    if (!to || !parts) {
        wf_chunk_unref(chunk);
        return wf_env_nomem(w->env, n * (int64_t)sizeof *at, "concat");
    }
    for (int64_t i = 0; i < n && !st;) { /* runs within one input */
        int64_t base = 0, run = 1;
        int k = 0;

        while (at[i].id >= base + ds->in[k]->count)
            base += ds->in[k++]->count;
        while (i + run < n && at[i + run].id >= base && at[i + run].id < base + ds->in[k]->count)
            run++;
        for (int64_t j = i; j < i + run; j++)
            to[j].id = at[j].id - base;
        st = wf_ds_get_block(ds->in[k], w, to + i, run, &parts[made]);
        made += !st;
        i += run;
    }
    if (!st) {
        st = wf_block_concat(w->env, made, parts, out);
        made = 0;
    }
    while (made > 0)
        wf_block_free(parts[--made]);
    wf_free(w->env->ctx, parts);
    wf_chunk_unref(chunk);
    return st;
}

/* State: the input being read. */
static weft_status concat_open(struct wf_stage *s)
{
    weft_status st = WEFT_OK;

    s->state = wf_alloc(s->env->ctx, sizeof(int64_t));
    if (!s->state)
        return wf_env_nomem(s->env, sizeof(int64_t), "concat");
    for (int i = 0; i < s->n_in && !st; i++)
        st = wf_stage_input(s, i, WF_IN_ANY, s->want);
    return st;
}

static weft_status concat_reset(struct wf_stage *s, int64_t epoch)
{
    weft_status st = WEFT_OK;

    *(int64_t *)s->state = 0;
    for (int i = 0; i < s->n_in && !st; i++)
        st = wf_stage_reset(s->in[i], epoch);
    return st;
}

static weft_status concat_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    int64_t *at = s->state;
    weft_status st = WEFT_OK;

    *out = NULL;
    while (*at < s->n_in && !st && !*out) {
        st = wf_stage_pull(s->in[*at], want, out);
        if (!st && !*out)
            ++*at;
    }
    return st;
}

static weft_status concat_restore(struct wf_stage *s, struct wf_reader *r)
{
    *(int64_t *)s->state = wf_get_range(r, 0, s->n_in, "an input number");
    return r->st;
}

static const struct wf_ds_kind concat_kind = {
    .name = "concat",
    .get = concat_get,
    .open = concat_open,
    .close = wf_state_close,
    .reset = concat_reset,
    .pull = concat_pull,
    .save = wf_counted_save,
    .restore = concat_restore,
};

static bool same_columns(const struct wf_ds *a, const struct wf_ds *b)
{
    if (a->n_cols != b->n_cols)
        return false;
    for (int c = 0; c < a->n_cols; c++)
        if (strcmp(a->col[c].name, b->col[c].name) != 0 || a->col[c].dtype != b->col[c].dtype ||
            a->col[c].rank != b->col[c].rank)
            return false;
    return true;
}

weft_status wf_ds_join_inputs(struct wf_ds *ds)
{
    weft_status st = wf_ds_set_columns(ds, ds->n_cols, ds->col);

    for (int i = 1; i < ds->n_in && !st; i++) {
        if (!same_columns(ds, ds->in[i]))
            return wf_err(WEFT_EINVAL, "the columns of input %d differ from those of input 0", i);
        for (int c = 0; c < ds->n_cols; c++)
            for (int k = 0; k < ds->col[c].rank; k++)
                if (ds->col[c].dim[k] != ds->in[i]->col[c].dim[k])
                    ds->col[c].dim[k] = WEFT_ANY;
        ds->batched = ds->batched && ds->in[i]->batched;
    }
    return st;
}

weft_ds weft_ds_concat(weft_data *d, int n, const weft_ds *s)
{
    struct wf_ds *ds;
    weft_status st;

    if (n <= 0)
        return wf_ds_fail(d, "concat", wf_err(WEFT_EINVAL, "no datasets"));
    ds = wf_ds_new(d, &concat_kind, n, s, 1);
    if (!ds)
        return (weft_ds){0};
    st = wf_ds_join_inputs(ds);
    if (st)
        return wf_ds_fail(d, "concat", st);
    for (int i = 1; i < n; i++) {
        const struct wf_ds *in = ds->in[i];

        ds->addressable = ds->addressable && wf_ds_addressable(in);
        if (in->count == WEFT_UNKNOWN || in->inexact || ds->count == WEFT_UNKNOWN)
            ds->count = WEFT_UNKNOWN;
        else if (!wf_add_i64(ds->count, in->count, &ds->count))
            ds->count = WEFT_ENDLESS;
    }
    return wf_ds_handle(ds);
}
