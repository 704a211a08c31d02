/* pad.c - padded batches, and batches of elements of similar length. */
#include <stdio.h>

#include "data/stage/pad.h"
#include "data/engine/pick.h"

/* ---- padding --------------------------------------------------------------------------------- */

static bool column_varies(const weft_column *c)
{
    for (int k = 0; k < c->rank; k++)
        if (c->dim[k] < 0)
            return true;
    return false;
}

static weft_status set_pad(struct wf_ds *ds, const weft_pad_column *pad, struct wf_padding *p)
{
    struct wf_ds *in = ds->in[0];
    int c = wf_ds_find(in, pad->column ? pad->column : "");
    struct wf_pad_col *to;

    if (c < 0)
        return wf_ds_err_column(in, pad->column ? pad->column : "");
    to = &p->col[c];
    to->value = pad->value;
    if (pad->text) {
        to->text.data = wf_arena_strdup(&ds->data->arena, pad->text);
        if (!to->text.data)
            return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
        to->text.n = (int64_t)strlen(pad->text);
    }
    for (int k = 0; k < WEFT_MAX_RANK; k++) {
        to->length[k] = pad->length[k];
        if (!pad->length[k])
            continue;
        if (k >= in->col[c].rank || pad->length[k] < 0)
            return wf_err(WEFT_ESHAPE, "column '%s': length %lld for axis %d of %d", pad->column,
                          (long long)pad->length[k], k, in->col[c].rank);
        if (in->col[c].dim[k] > pad->length[k])
            return wf_err(WEFT_ESHAPE,
                          "column '%s': axis %d has size %lld, more than the padded %lld",
                          pad->column, k, (long long)in->col[c].dim[k], (long long)pad->length[k]);
    }
    return WEFT_OK;
}

static weft_status padded_columns(struct wf_ds *ds, struct wf_padding *p, int64_t n)
{
    const struct wf_ds *in = ds->in[0];
    weft_ctx *ctx = ds->data->ctx;
    weft_column *col = wf_alloc_n(ctx, 2 * in->n_cols + 1, sizeof *col);
    char name[256];
    int m = 0;
    weft_status st = WEFT_OK;

    if (!col)
        return wf_err_nomem(ctx, sizeof *col, "columns");
    for (int c = 0; c < in->n_cols && !st; c++) {
        weft_column *to = &col[m++];

        *to = in->col[c];
        if (to->rank == WEFT_MAX_RANK) {
            st = wf_err(WEFT_ESHAPE, "column '%s' has %d axes already", to->name, to->rank);
            break;
        }
        for (int k = in->col[c].rank; k > 0; k--)
            to->dim[k] = p->col[c].length[k - 1] ? p->col[c].length[k - 1] : in->col[c].dim[k - 1];
        to->dim[0] = n;
        to->rank++;
        if (!p->col[c].lengths)
            continue;
        snprintf(name, sizeof name, "%s:length", in->col[c].name);
        col[m] = wf_column_of(wf_arena_strdup(&ds->data->arena, name), WEFT_I64, 1, &n);
        if (!col[m++].name)
            st = wf_err_nomem(ctx, 0, "the pipeline");
    }
    if (!st)
        st = wf_ds_set_columns(ds, m, col);
    wf_free(ctx, col);
    return st;
}

weft_status wf_padding_init(struct wf_ds *ds, int n_pads, const weft_pad_column *pads, bool lengths,
                            int64_t n, struct wf_padding *out)
{
    const struct wf_ds *in = ds->in[0];
    weft_status st = WEFT_OK;

    out->n_cols = in->n_cols;
    out->col = wf_arena_alloc(&ds->data->arena, (size_t)(in->n_cols + 1) * sizeof *out->col);
    if (!out->col)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int i = 0; i < n_pads && !st; i++)
        st = set_pad(ds, &pads[i], out);
    for (int c = 0; c < in->n_cols; c++)
        out->col[c].lengths =
            lengths && in->col[c].rank > 0 && in->col[c].dim[0] < 0 && column_varies(&in->col[c]);
    return st ? st : padded_columns(ds, out, n);
}

void wf_padding_text(const struct wf_padding *p, struct wf_buf *out)
{
    for (int c = 0; c < p->n_cols; c++) {
        const struct wf_pad_col *col = &p->col[c];

        wf_buf_printf(out, " [%g", col->value);
        if (col->text.n)
            wf_buf_printf(out, " '%s'", col->text.data);
        for (int k = 0; k < WEFT_MAX_RANK; k++)
            if (col->length[k])
                wf_buf_printf(out, " %d:%lld", k, (long long)col->length[k]);
        wf_buf_printf(out, "%s]", col->lengths ? " lengths" : "");
    }
}

/* The common shape of the elements of a column. */
static weft_status padded_shape(const struct wf_block *b, int c, const struct wf_pad_col *pad,
                                const char *name, struct wf_type *out)
{
    const struct wf_col *col = &b->col[c];

    *out = col->type;
    for (int k = 0; k < out->rank; k++)
        out->dim[k] = wf_max_i64(pad->length[k], b->n ? 0 : col->type.dim[k]);
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t *dim = col->offset ? col->shape + i * out->rank : col->type.dim;

        for (int k = 0; k < out->rank; k++) {
            if (pad->length[k] && dim[k] > pad->length[k])
                return wf_block_err(
                    b, i,
                    wf_err(WEFT_ESHAPE,
                           "column '%s': axis %d has size %lld, more than the padded %lld", name, k,
                           (long long)dim[k], (long long)pad->length[k]));
            if (dim[k] > out->dim[k])
                out->dim[k] = dim[k];
        }
        if (!col->offset)
            break;
    }
    return WEFT_OK;
}

static void fill(void *data, weft_dtype t, int64_t n, const struct wf_pad_col *pad)
{
    size_t size = (size_t)wf_item_bytes(t);
    char *p = data;

    if (n < 1)
        return;
    if (t == WEFT_STR)
        *(weft_str *)data = pad->text;
    else
        wf_set(data, t, 0, pad->value);
    /* Doubling copies: the filled part is copied after itself. */
    for (size_t done = 1; done < (size_t)n;) {
        size_t m = done < (size_t)n - done ? done : (size_t)n - done;

        memcpy(p + done * size, p, m * size);
        done += m;
    }
}

/* An element of shape `dim` into the corner of a larger one. */
static void place(char *to, const int64_t *to_dim, const char *from, const int64_t *dim, int rank,
                  size_t size)
{
    size_t to_step = size, from_step = size;

    if (rank == 0) {
        memcpy(to, from, size);
        return;
    }
    if (rank == 1) {
        if (dim[0])
            memcpy(to, from, (size_t)dim[0] * size);
        return;
    }
    for (int k = 1; k < rank; k++) {
        to_step *= (size_t)to_dim[k];
        from_step *= (size_t)dim[k];
    }
    for (int64_t i = 0; i < dim[0] && from_step; i++)
        place(to + (size_t)i * to_step, to_dim + 1, from + (size_t)i * from_step, dim + 1, rank - 1,
              size);
}

static weft_status pad_column(const struct wf_block *b, int c, const struct wf_pad_col *pad,
                              const char *name, struct wf_block *v, int to)
{
    struct wf_type t, stacked;
    size_t size = (size_t)wf_item_bytes(b->col[c].type.dtype);
    int64_t items = 1;
    char *p;
    weft_status st = padded_shape(b, c, pad, name, &t);

    if (st)
        return st;
    stacked = t;
    stacked.rank++;
    stacked.dim[0] = b->n;
    for (int k = 0; k < t.rank; k++) {
        stacked.dim[k + 1] = t.dim[k];
        if (!wf_mul_i64(items, t.dim[k], &items))
            return wf_err(WEFT_ERANGE, "column '%s': a padded element is too large", name);
    }
    st = wf_block_col(v, to, &stacked, 0);
    if (st)
        return st;
    p = v->col[to].data;
    if (wf_col_item_count(&b->col[c], b->n) < items * b->n)
        fill(p, t.dtype, items * b->n, pad);
    for (int64_t i = 0; i < b->n; i++) {
        weft_tensor e = wf_col_element(&b->col[c], i);

        place(p + (size_t)(i * items) * size, t.dim, e.data, e.dim, t.rank, size);
    }
    return WEFT_OK;
}

static weft_status length_column(const struct wf_block *b, int c, struct wf_block *v, int to)
{
    struct wf_type t = wf_type_of(WEFT_I64, 1, &b->n);
    weft_status st = wf_block_col(v, to, &t, 0);

    for (int64_t i = 0; i < b->n && !st; i++)
        ((int64_t *)v->col[to].data)[i] = wf_col_element(&b->col[c], i).dim[0];
    return st;
}

weft_status wf_block_pad(struct wf_ds *ds, const struct wf_padding *p, struct wf_block *b,
                         struct wf_block **out)
{
    struct wf_block *v = NULL;
    void *samples = NULL;
    int to = 0;
    weft_status st = wf_block_new(b->env, ds->n_cols, 1, &v);

    for (int c = 0; c < b->n_cols && !st; c++) {
        bool text = b->col[c].type.dtype == WEFT_STR;

        for (int64_t i = 0; i < b->n_keep && !st && text; i++)
            st = wf_block_keep(v, b->keep[i]);
        if (!st)
            st = pad_column(b, c, &p->col[c], ds->in[0]->col[c].name, v, to++);
        if (!st && p->col[c].lengths)
            st = length_column(b, c, v, to++);
    }
    if (!st)
        st = wf_block_alloc(v, b->n * (int64_t)sizeof *v->sample, &samples);
    if (!st) {
        if (b->n)
            v->at[0] = b->at[0];
        v->sample = samples;
        v->n_samples = b->n;
        if (b->n)
            memcpy(v->sample, b->at, (size_t)b->n * sizeof *v->sample);
        *out = v;
        v = NULL;
    }
    wf_block_free(v);
    wf_block_free(b);
    return st ? wf_err_wrap(st, "%s", ds->name) : WEFT_OK;
}

/* ---- padded_batch ---------------------------------------------------------------------------- */

struct padded {
    int64_t n;
    bool drop_remainder;
    struct wf_padding pad;
};

static weft_status padded_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct padded *o = ds->param;
    int64_t count = ds->in[0]->count;
    struct wf_at *id = wf_alloc_n(w->env->ctx, o->n, sizeof *id);
    struct wf_block **part = wf_alloc_n(w->env->ctx, n, sizeof *part), *b;
    int made = 0;
    weft_status st = id && part ? WEFT_OK : wf_env_nomem(w->env, 16 * o->n + 8 * n, "a batch");

    for (int64_t i = 0; i < n && !st; i++) {
        int64_t first = at[i].id * o->n, m = wf_min_i64(o->n, count - first);

        for (int64_t j = 0; j < m; j++)
            id[j] = (struct wf_at){at[i].epoch, first + j};
        st = wf_ds_get_block(ds->in[0], w, id, m, &b);
        if (!st)
            st = wf_block_pad(ds, &o->pad, b, &part[made]);
        made += !st;
    }
    if (!st) {
        st = wf_block_concat(w->env, made, part, out);
        made = 0;
    }
    while (made > 0)
        wf_block_free(part[--made]);
    wf_free(w->env->ctx, part);
    wf_free(w->env->ctx, id);
    return st;
}

static weft_status padded_open(struct wf_stage *s)
{
    const struct padded *o = s->ds->param;

    return wf_stage_input(s, 0, WF_IN_EXACT, o->n);
}

static weft_status padded_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status padded_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct padded *o = s->ds->param;
    struct wf_promise *p = NULL;
    int64_t n = 0;
    weft_status st = wf_promise_gather(s, o->n, &p, &n);

    (void)want;
    *out = NULL;
    if (st || !p)
        return st;
    if (n < o->n && o->drop_remainder) {
        wf_promise_drop(p);
        return WEFT_OK;
    }
    p->n = 1;
    *out = p;
    return WEFT_OK;
}

static weft_status padded_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    const struct padded *o = p->stage->ds->param;
    struct wf_block *b = NULL;
    weft_status st = wf_promise_make_inputs(p, w, &b);

    return st ? st : wf_block_pad(p->stage->ds, &o->pad, b, out);
}

static struct wf_batching padded_batching(const struct wf_ds *ds)
{
    const struct padded *o = ds->param;

    return (struct wf_batching){.n = o->n, .drop_remainder = o->drop_remainder};
}

static weft_status padded_stack(struct wf_ds *ds, struct wf_block *samples, struct wf_block **out)
{
    const struct padded *o = ds->param;

    return wf_block_pad(ds, &o->pad, samples, out);
}

static void padded_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct padded *o = ds->param;

    wf_buf_printf(out, "%lld%s", (long long)o->n, o->drop_remainder ? " drop" : "");
    wf_padding_text(&o->pad, out);
}

static const struct wf_ds_kind padded_kind = {
    .name = "padded_batch",
    .get = padded_get,
    .open = padded_open,
    .reset = padded_reset,
    .pull = padded_pull,
    .make = padded_make,
    .batching = padded_batching,
    .stack = padded_stack,
    .text = padded_text,
};

weft_ds weft_ds_padded_batch(weft_data *d, weft_ds s, int64_t n, const weft_padded_batch_opts *opts)
{
    weft_padded_batch_opts o;
    struct wf_ds *ds;
    struct padded *p;
    int64_t count;
    bool full;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_padded_batch_opts");

    if (!st && n < 1)
        st = wf_err(WEFT_EINVAL, "a batch of %lld", (long long)n);
    if (st)
        return wf_ds_fail(d, "padded_batch", st);
    ds = wf_ds_new(d, &padded_kind, 1, &s, sizeof *p);
    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    p->n = n;
    p->drop_remainder = o.drop_remainder;
    count = ds->count;
    full = o.drop_remainder || count == WEFT_ENDLESS || (count >= 0 && count % n == 0);
    st = wf_padding_init(ds, o.n_pads, o.pads, o.lengths, full ? n : WEFT_ANY, &p->pad);
    if (st)
        return wf_ds_fail(d, "padded_batch", st);
    ds->addressable = wf_ds_addressable(ds->in[0]) && count >= 0;
    if (count >= 0 && count != WEFT_ENDLESS)
        ds->count = count / n + (!o.drop_remainder && count % n > 0);
    ds->batched = true;
    return wf_ds_handle(ds);
}
