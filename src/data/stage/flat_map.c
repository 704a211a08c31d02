/* flat_map.c - each element becomes a dataset; their elements come one after the other, or in turn.
 *
 * `cycle` datasets are open at the same time. A turn takes up to `block` elements of one; when it
 * ends, the next element of the input takes its place. The datasets are in pipelines of their own,
 * so what they yield is copied and renumbered. Their threads are the iterator's. */
#include "data/stage/callback.h"
#include "data/data.h"
#include "data/engine/pick.h"

struct flat {
    weft_inner_fn *fn;
    void *arg;
    int64_t cycle, block;
};

/* An inner dataset. Blocks that were taken from it keep its pipeline alive. */
struct inner {
    _Atomic int refs;
    weft_ctx *ctx;
    weft_data *data;
    struct wf_env *env;
    struct wf_stage *stage;
    struct wf_block *element; /* the element of the input that it was made from */
    struct wf_cursor cur;
};

struct flats {
    int64_t epoch, n_out;
    int64_t turn, taken;
    bool ended; /* the input */
    struct wf_cursor in;
    struct inner **slot;
};

/* ---- one inner dataset ----------------------------------------------------------------------- */

static void inner_unref(void *arg)
{
    struct inner *x = arg;

    if (atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) != 1)
        return;
    weft_data_free(x->data);
    wf_free(x->ctx, x);
}

/* Nothing more will be read from it. */
static void inner_close(struct inner *x)
{
    if (!x)
        return;
    wf_cursor_clear(&x->cur);
    wf_stage_close(x->stage);
    wf_env_close(x->env);
    wf_block_free(x->element);
    x->stage = NULL;
    x->env = NULL;
    x->element = NULL;
    inner_unref(x);
}

static weft_status check_columns(const struct wf_ds *ds, const struct wf_ds *in)
{
    if (in->n_cols != ds->n_cols)
        return wf_err(WEFT_EINVAL, "the dataset has %d columns, but %d are declared", in->n_cols,
                      ds->n_cols);
    for (int c = 0; c < ds->n_cols; c++) {
        struct wf_type want = wf_column_type(&ds->col[c]), got = wf_column_type(&in->col[c]);
        bool fits = want.dtype == got.dtype && want.rank == got.rank;
        char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

        for (int k = 0; k < want.rank && fits; k++)
            fits = want.dim[k] < 0 || want.dim[k] == got.dim[k];
        if (!fits)
            return wf_err(WEFT_ESHAPE, "column '%s' of the dataset is %s, but %s is declared",
                          ds->col[c].name, wf_type_text(&got, b), wf_type_text(&want, a));
    }
    return WEFT_OK;
}

static weft_status call(struct wf_stage *s, struct inner *x, weft_ds *out)
{
    const struct flat *o = s->ds->param;
    weft_tensor *col = wf_alloc_n(x->ctx, x->element->n_cols + 1, sizeof *col);
    weft_sample sample;
    weft_status st;

    if (!col)
        return wf_env_nomem(s->env, x->element->n_cols * (int64_t)sizeof *col, "a dataset");
    sample = wf_sample_of(x->element, 0, col);
    st = o->fn(o->arg, &sample, x->data, out);
    wf_free(x->ctx, col);
    if (!st)
        st = weft_data_status(x->data);
    if (!st && !wf_ds_node(x->data, *out))
        st = wf_err(WEFT_EINVAL, "the callback returned no dataset");
    return st;
}

/* The dataset of one element; takes ownership of the element, also on failure. */
static weft_status inner_open(struct wf_stage *s, struct wf_block *element, struct inner **out)
{
    const struct flat *o = s->ds->param;
    weft_ctx *ctx = s->env->ctx;
    struct inner *x = wf_alloc(ctx, sizeof *x);
    weft_ds made = {0};
    weft_status st;

    if (!x) {
        wf_block_free(element);
        return wf_env_nomem(s->env, sizeof *x, "a dataset");
    }
    atomic_store_explicit(&x->refs, 1, memory_order_relaxed);
    x->ctx = ctx;
    x->element = element;
    st = weft_data_new(ctx, &x->data);
    if (!st)
        st = call(s, x, &made);
    if (!st)
        st = check_columns(s->ds, wf_ds_node(x->data, made));
    if (!st)
        st = wf_env_new(x->data, wf_max_i64(s->env->budget / (o->cycle + 1), 1), s->env->crew,
                        &x->env);
    if (!st)
        st = wf_stage_open(x->env, wf_ds_node(x->data, made), WF_IN_MADE, s->want, &x->stage);
    if (st) {
        wf_block_err(element, 0, st);
        inner_close(x);
        return st;
    }
    *out = x;
    return WEFT_OK;
}

/* Makes sure there is an element at x's cursor; *more is false if x has ended. */
static weft_status inner_need(struct inner *x, int64_t want, bool *more)
{
    weft_status st = wf_cursor_need(&x->cur, x->stage, want, more);

    if (!st && *more && !x->cur.held->drop) {
        x->cur.held->block->from = NULL; /* names of files die with the pipeline */
        x->cur.held->drop = inner_unref;
        x->cur.held->drop_arg = x;
        atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    }
    return st;
}

/* ---- the stage ------------------------------------------------------------------------------- */

static weft_status flat_open(struct wf_stage *s)
{
    const struct flat *o = s->ds->param;
    struct flats *v = wf_alloc(s->env->ctx, sizeof *v);

    if (!v)
        return wf_env_nomem(s->env, sizeof *v, "datasets");
    s->state = v;
    v->slot = wf_alloc_n(s->env->ctx, o->cycle, sizeof *v->slot);
    if (!v->slot)
        return wf_env_nomem(s->env, o->cycle * 8, "datasets");
    return wf_stage_input(s, 0, WF_IN_MADE, 1);
}

static void flat_clear(struct wf_stage *s, struct flats *v)
{
    const struct flat *o = s->ds->param;

    for (int64_t i = 0; i < o->cycle && v->slot; i++) {
        inner_close(v->slot[i]);
        v->slot[i] = NULL;
    }
    wf_cursor_clear(&v->in);
    v->n_out = v->turn = v->taken = 0;
    v->ended = false;
}

static void flat_close(struct wf_stage *s)
{
    struct flats *v = s->state;

    if (!v)
        return;
    flat_clear(s, v);
    wf_free(s->env->ctx, v->slot);
    wf_free(s->env->ctx, v);
}

static weft_status flat_reset(struct wf_stage *s, int64_t epoch)
{
    struct flats *v = s->state;

    flat_clear(s, v);
    v->epoch = epoch;
    return wf_stage_reset(s->in[0], epoch);
}

/* The next element of the input becomes the dataset of slot i, if there is one. */
static weft_status fill_slot(struct wf_stage *s, struct flats *v, int64_t i)
{
    struct wf_block *element = NULL;
    bool more = !v->ended;
    weft_status st = WEFT_OK;

    if (more)
        st = wf_cursor_need(&v->in, s->in[0], 1, &more);
    if (st || !more) {
        v->ended = v->ended || !st;
        return st;
    }
    st = wf_block_slice(v->in.held->block, v->in.i, 1, &element);
    if (!st)
        st = inner_open(s, element, &v->slot[i]);
    if (st)
        return st;
    v->in.i++;
    return wf_stage_reset(v->slot[i]->stage, v->epoch);
}

static void next_turn(const struct flat *o, struct flats *v)
{
    v->turn = (v->turn + 1) % o->cycle;
    v->taken = 0;
}

/* The slot that the next element comes from, or NULL at the end. */
static weft_status find_turn(struct wf_stage *s, struct flats *v, int64_t want, struct inner **out)
{
    const struct flat *o = s->ds->param;
    int64_t empty = 0;
    bool more = false;
    weft_status st;

    *out = NULL;
    if (v->taken >= o->block)
        next_turn(o, v);
    while (empty < o->cycle) {
        struct inner *x;

        if (!v->slot[v->turn]) {
            st = fill_slot(s, v, v->turn);
            if (st)
                return st;
        }
        x = v->slot[v->turn];
        if (!x) {
            empty++;
            next_turn(o, v);
            continue;
        }
        st = inner_need(x, want, &more);
        if (st)
            return st;
        if (more) {
            *out = x;
            return WEFT_OK;
        }
        inner_close(x);
        v->slot[v->turn] = NULL;
        /* One that ended within its turn passes the turn on; one that was empty is replaced. */
        if (v->taken)
            next_turn(o, v);
        empty = 0;
    }
    return WEFT_OK;
}

struct numbered {
    struct wf_picks *picks;
    int64_t epoch, first;
};

static weft_status flat_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct flat *o = s->ds->param;
    struct flats *v = s->state;
    struct numbered *k = wf_alloc(s->env->ctx, sizeof *k);
    struct inner *x = NULL;
    weft_status st = k ? wf_picks_new(s->env->ctx, want, &k->picks)
                       : wf_env_nomem(s->env, sizeof *k, "elements of datasets");

    *out = NULL;
    while (!st && k->picks->n < want) {
        st = find_turn(s, v, wf_max_i64(1, want / o->cycle), &x);
        if (st || !x)
            break;
        wf_picks_add(k->picks, x->cur.held, x->cur.i++);
        v->taken++;
    }
    if (!st && k->picks->n) {
        *k = (struct numbered){k->picks, v->epoch, v->n_out};
        v->n_out += k->picks->n;
        *out = wf_promise_new(s, k->picks->n, 0, NULL, k);
        if (*out)
            return WEFT_OK;
        st = WEFT_ENOMEM;
    }
    if (k)
        wf_picks_free(k->picks);
    wf_free(s->env->ctx, k);
    return st;
}

static weft_status flat_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct numbered *k = p->data;
    weft_status st = wf_pick_block(w->env, k->picks->pick, k->picks->n, WF_TEXT_COPIED, out);

    for (int64_t i = 0; i < k->picks->n && !st; i++)
        (*out)->at[i] = (struct wf_at){k->epoch, k->first + i};
    wf_picks_free(k->picks);
    wf_free(w->env->ctx, k);
    return st;
}

static void flat_drop(struct wf_promise *p)
{
    struct numbered *k = p->data;

    wf_picks_free(k->picks);
    wf_free(p->stage->env->ctx, k);
}

/* ---- position -------------------------------------------------------------------------------- */

static weft_status flat_save(struct wf_stage *s, struct wf_buf *out)
{
    const struct flat *o = s->ds->param;
    struct flats *v = s->state;
    weft_status st = WEFT_OK;

    wf_put_i64(out, v->epoch);
    wf_put_i64(out, v->n_out);
    wf_put_i64(out, v->turn);
    wf_put_i64(out, v->taken);
    wf_put_i64(out, v->ended);
    st = wf_cursor_save(&v->in, out);
    for (int64_t i = 0; i < o->cycle && !st; i++) {
        struct inner *x = v->slot[i];

        st = wf_maybe_save(x ? x->element : NULL, out);
        if (x && !st)
            st = wf_cursor_save(&x->cur, out);
        if (x && !st)
            st = wf_stage_save(x->stage, out);
    }
    return st ? st : out->st;
}

static weft_status restore_slot(struct wf_stage *s, struct flats *v, int64_t i, struct wf_reader *r)
{
    struct wf_block *element = NULL;
    struct inner *x = NULL;
    weft_status st = wf_maybe_load(s->env, s->ds->in[0], r, &element);

    if (st || !element)
        return st;
    if (element->n != 1) {
        wf_block_free(element);
        return wf_err(WEFT_EPARSE, "saved position: a dataset made of %s", "no element");
    }
    st = inner_open(s, element, &x);
    if (st)
        return st;
    v->slot[i] = x;
    st = wf_cursor_restore(&x->cur, x->env, x->stage->ds, r);
    if (!st && x->cur.held) {
        x->cur.held->drop = inner_unref;
        x->cur.held->drop_arg = x;
        atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    }
    return st ? st : wf_stage_restore(x->stage, r);
}

static weft_status flat_restore(struct wf_stage *s, struct wf_reader *r)
{
    const struct flat *o = s->ds->param;
    struct flats *v = s->state;
    weft_status st;

    flat_clear(s, v);
    v->epoch = wf_get_i64(r);
    v->n_out = wf_get_range(r, 0, WF_MANY, "a sample number");
    v->turn = wf_get_range(r, 0, o->cycle - 1, "a turn");
    v->taken = wf_get_range(r, 0, INT64_MAX, "elements of a turn");
    v->ended = wf_get_range(r, 0, 1, "a flag");
    st = r->st ? r->st : wf_cursor_restore(&v->in, s->env, s->ds->in[0], r);
    for (int64_t i = 0; i < o->cycle && !st; i++)
        st = restore_slot(s, v, i, r);
    return st;
}

static void flat_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct flat *o = ds->param;

    wf_buf_printf(out, "cycle=%lld block=%lld", (long long)o->cycle, (long long)o->block);
}

static const struct wf_ds_kind flat_kind = {
    .name = "interleave",
    .open = flat_open,
    .close = flat_close,
    .reset = flat_reset,
    .pull = flat_pull,
    .make = flat_make,
    .drop = flat_drop,
    .save = flat_save,
    .restore = flat_restore,
    .ids = wf_ids_unknown,
    .text = flat_text,
};

weft_ds weft_ds_interleave(weft_data *d, weft_ds s, int n_columns, const weft_column *columns,
                           weft_inner_fn *fn, void *arg, const weft_interleave_opts *opts)
{
    weft_interleave_opts given;
    struct wf_ds *ds;
    struct flat *o;
    weft_status st = wf_opts_take(&given, sizeof given, opts, "weft_interleave_opts");
    int64_t cycle = given.cycle_length ? given.cycle_length : 4;
    int64_t block = given.block_length ? given.block_length : 1;

    if (!st && (cycle < 1 || cycle > 4096 || block < 1 || !fn))
        st = wf_err(WEFT_EINVAL, "%lld datasets at a time, blocks of %lld%s", (long long)cycle,
                    (long long)block, fn ? "" : ", no callback");
    if (st)
        return wf_ds_fail(d, "interleave", st);
    ds = wf_ds_new(d, &flat_kind, 1, &s, sizeof *o);
    if (!ds)
        return (weft_ds){0};
    o = ds->param;
    *o = (struct flat){fn, arg, cycle, block};
    st = wf_ds_set_columns(ds, n_columns, columns);
    if (st)
        return wf_ds_fail(d, "interleave", st);
    ds->addressable = false;
    ds->heavy = true;
    ds->batched = false;
    ds->count = WEFT_UNKNOWN;
    return wf_ds_handle(ds);
}

weft_ds weft_ds_flat_map(weft_data *d, weft_ds s, int n_columns, const weft_column *columns,
                         weft_inner_fn *fn, void *arg)
{
    return weft_ds_interleave(
        d, s, n_columns, columns, fn, arg,
        WEFT_OPTS(weft_interleave_opts, .cycle_length = 1, .block_length = INT64_MAX));
}
