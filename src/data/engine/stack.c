/* stack.c - elements of a block stacked into batches: one more axis, without copying if shapes are
 * equal. */
#include "data/data.h"

/* Element sizes are equal after all: drop the offsets. */
static bool now_fixed(struct wf_col *col, int64_t n)
{
    int rank = col->type.rank;

    for (int64_t i = 1; i < n; i++)
        if (rank && memcmp(col->shape, col->shape + i * rank, (size_t)rank * 8) != 0)
            return false;
    for (int k = 0; k < rank; k++)
        col->type.dim[k] = n ? col->shape[k] : wf_max_i64(col->type.dim[k], 0);
    if (n)
        col->data = (char *)col->data + col->offset[0] * wf_item_bytes(col->type.dtype);
    col->offset = col->shape = NULL;
    return true;
}

static weft_status add_axis(struct wf_type *t, int64_t n, const char *name)
{
    if (t->rank == WEFT_MAX_RANK)
        return wf_err(WEFT_ESHAPE, "column '%s' has %d axes already", name, t->rank);
    memmove(t->dim + 1, t->dim, (size_t)t->rank * sizeof t->dim[0]);
    t->dim[0] = n;
    t->rank++;
    return WEFT_OK;
}

static weft_status err_shapes(const struct wf_block *b, const struct wf_col *col, const char *name)
{
    char first[WF_TYPE_TEXT], other[WF_TYPE_TEXT];

    for (int64_t i = 1; i < b->n; i++) {
        weft_tensor x = wf_col_element(col, 0), y = wf_col_element(col, i);
        struct wf_type tx = wf_type_of(x.dtype, x.rank, x.dim);
        struct wf_type ty = wf_type_of(y.dtype, y.rank, y.dim);

        if (!wf_type_same_shape(&tx, &ty))
            return wf_err(WEFT_ESHAPE,
                          "column '%s' has elements of different shapes, %s and %s: use "
                          "padded_batch, or batch "
                          "with ragged",
                          name, wf_type_text(&tx, first), wf_type_text(&ty, other));
    }
    return wf_err(WEFT_EBUG, "column '%s' is not stacked", name);
}

/* Values end to end, and their offsets as a separate column. Only leading sizes may differ. */
static weft_status make_ragged(struct wf_block *v, int64_t n, struct wf_col *col,
                               struct wf_col *offsets, const char *name)
{
    int64_t row = 1, *o;
    void *p = NULL;
    weft_status st;

    for (int k = 1; k < col->type.rank; k++) {
        if (col->type.dim[k] < 0)
            return wf_err(WEFT_ESHAPE,
                          "column '%s': only the first axis may differ in a ragged batch", name);
        row *= col->type.dim[k];
    }
    st = wf_block_alloc(v, (n + 1) * 8, &p);
    if (st)
        return st;
    o = p;
    for (int64_t i = 0; i <= n; i++)
        o[i] = !col->offset ? i * col->type.dim[0]
               : row        ? (col->offset[i] - col->offset[0]) / row
                            : 0;
    *offsets = (struct wf_col){.type = wf_type_of(WEFT_I64, 1, (int64_t[]){n + 1}), .data = p};
    if (col->offset)
        col->data = (char *)col->data + col->offset[0] * wf_item_bytes(col->type.dtype);
    col->type.dim[0] = o[n];
    col->offset = col->shape = NULL;
    return WEFT_OK;
}

/* One stack of all elements of b: `out` has one element. */
static weft_status stack_all(struct wf_block *b, bool ragged, struct wf_ds *ds,
                             struct wf_block **out)
{
    struct wf_block *v = NULL;
    const weft_column *name = ds->col;
    int c_out = 0;
    weft_status st = wf_block_new(b->env, ds->n_cols, 1, &v);

    if (st)
        return st;
    st = wf_block_keep_all_of(v, b);
    for (int c = 0; c < b->n_cols && !st; c++) {
        struct wf_col col = b->col[c];
        struct wf_col *to = &v->col[c_out++];
        struct wf_type declared = wf_column_type(&ds->in[0]->col[c]);

        if (ragged && col.type.rank > 0 && !wf_type_fixed(&declared)) {
            st = make_ragged(v, b->n, &col, &v->col[c_out], name[c_out - 1].name);
            c_out++;
            *to = col;
            continue;
        }
        if (col.offset && !now_fixed(&col, b->n))
            st = err_shapes(b, &col, name[c_out - 1].name);
        if (!st)
            st = add_axis(&col.type, b->n, name[c_out - 1].name);
        *to = col;
    }
    if (st) {
        wf_block_free(v);
        return st;
    }
    v->at[0] = b->n ? b->at[0] : (struct wf_at){0, 0};
    v->sample = b->at;
    v->n_samples = b->n;
    *out = v;
    return WEFT_OK;
}

static bool all_fixed(const struct wf_block *b)
{
    for (int c = 0; c < b->n_cols; c++)
        if (b->col[c].offset)
            return false;
    return true;
}

/* Several full stacks of elements of fixed shapes: they are already in the right order. */
static weft_status stack_even(struct wf_block *b, int64_t n_each, struct wf_ds *ds,
                              struct wf_block **out)
{
    struct wf_block *v = NULL;
    weft_status st = wf_block_new(b->env, b->n_cols, b->n / n_each, &v);

    if (!st)
        st = wf_block_keep_all_of(v, b);
    for (int c = 0; c < b->n_cols && !st; c++) {
        v->col[c] = b->col[c];
        st = add_axis(&v->col[c].type, n_each, ds->col[c].name);
    }
    if (st) {
        wf_block_free(v);
        return st;
    }
    for (int64_t i = 0; i < v->n; i++)
        v->at[i] = b->at[i * n_each];
    *out = v;
    return WEFT_OK;
}

weft_status wf_block_stack(struct wf_block *b, int64_t n_each, bool ragged, struct wf_ds *ds,
                           struct wf_block **out)
{
    int64_t n = (b->n + n_each - 1) / n_each;
    struct wf_block **parts, *slice;
    int made = 0;
    weft_status st = WEFT_OK;

    if (n > 1 && !ragged && b->n % n_each == 0 && all_fixed(b)) {
        st = stack_even(b, n_each, ds, out);
        wf_block_free(b);
        return st;
    }

    if (n <= 1) {
        st = stack_all(b, ragged, ds, out);
        wf_block_free(b);
        return st;
    }
    parts = wf_alloc_n(b->env->ctx, n, sizeof *parts);
    if (!parts)
        st = wf_env_nomem(b->env, n * 8, "a block of batches");
    for (int64_t i = 0; i < n && !st; i++) {
        st = wf_block_slice(b, i * n_each, wf_min_i64(n_each, b->n - i * n_each), &slice);
        if (st)
            break;
        st = stack_all(slice, ragged, ds, &parts[made]);
        wf_block_free(slice);
        made += !st;
    }
    if (!st) {
        st = wf_block_concat(b->env, made, parts, out);
        made = 0;
    }
    while (made > 0)
        wf_block_free(parts[--made]);
    wf_free(b->env->ctx, parts);
    wf_block_free(b);
    return st;
}
