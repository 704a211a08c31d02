/* map.c - elements changed by a callback. */
#include "data/stage/callback.h"

struct map {
    weft_map_fn *fn;
    void *arg;
    bool serial;
};

static weft_status map_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                             struct wf_block **out)
{
    const struct map *p = ds->param;
    struct wf_filling f;
    weft_tensor *col;
    void *room = NULL;
    weft_status st = wf_block_alloc(in, in->n_cols * (int64_t)sizeof *col, &room);

    f = (struct wf_filling){0};
    if (!st)
        st = wf_filling_begin(&f, w->env, ds, in->n);
    col = room;
    if (!st && in->from) {
        st = wf_block_origins(f.block);
        if (!st)
            memcpy(f.block->from, in->from, (size_t)in->n * sizeof *in->from);
    }
    for (int64_t i = 0; i < in->n && !st; i++) {
        weft_sample sample = wf_sample_of(in, i, col);

        st = wf_filling_next(&f, in->at[i]);
        if (!st)
            st = p->fn(p->arg, &sample, &f.sample);
        if (st)
            wf_block_err(in, i, st);
    }
    st = wf_filling_end(&f, st, out);
    if (!st && in->sample && in->n == 1) { /* a batch stays one: its samples keep their numbers */
        void *sample = NULL;

        st = wf_block_alloc(*out, in->n_samples * (int64_t)sizeof *in->sample, &sample);
        if (st) {
            wf_block_free(*out);
        } else {
            memcpy(sample, in->sample, (size_t)in->n_samples * sizeof *in->sample);
            (*out)->sample = sample;
            (*out)->n_samples = in->n_samples;
        }
    }
    wf_block_free(in);
    return st;
}

static const struct wf_ds_kind map_kind = {
    .name = "map", .apply = map_apply, .ids = wf_ids_unknown};

/* Serial: all calls in order, when promises are pulled. */
static weft_status serial_open(struct wf_stage *s)
{
    return wf_stage_input(s, 0, WF_IN_MADE, s->want);
}

static weft_status serial_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status serial_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct wf_block *in = NULL, *made = NULL;
    struct wf_worker *w;
    weft_status st = wf_stage_next(s->in[0], want, &in);

    *out = NULL;
    if (st || !in)
        return st;
    w = wf_worker_take(s->env);
    if (!w) {
        wf_block_free(in);
        return wf_env_nomem(s->env, sizeof *w, "a worker");
    }
    st = map_apply(s->ds, w, in, &made);
    wf_worker_give(w);
    if (st)
        return st;
    *out = wf_promise_made(s, made);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static const struct wf_ds_kind serial_map_kind = {
    .name = "map",
    .open = serial_open,
    .reset = serial_reset,
    .pull = serial_pull,
    .ids = wf_ids_unknown,
};

weft_ds weft_ds_map(weft_data *d, weft_ds s, int n_columns, const weft_column *columns,
                    weft_map_fn *fn, void *arg, const weft_map_opts *opts)
{
    weft_map_opts o;
    struct wf_ds *ds;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_map_opts");

    if (st)
        return wf_ds_fail(d, "map", st);
    ds = wf_ds_new(d, o.serial ? &serial_map_kind : &map_kind, 1, &s, sizeof(struct map));
    if (!ds)
        return (weft_ds){0};
    if (!fn)
        return wf_ds_fail(d, "map", wf_err(WEFT_EINVAL, "no callback"));
    *(struct map *)ds->param = (struct map){fn, arg, o.serial};
    if (n_columns)
        st = wf_ds_set_columns(ds, n_columns, columns);
    if (o.name && !(ds->name = wf_arena_strdup(&d->arena, o.name)))
        st = wf_err_nomem(d->ctx, 0, "the pipeline");
    if (o.unordered) {
        ds->unordered = true;
        ds->addressable = false;
    }
    return st ? wf_ds_fail(d, "map", st) : wf_ds_handle(ds);
}
