/* sink.c - elements into files of arrays: npy and idx have one column, npz has all. They are
 * collected whole. */
#include "data/source/formats.h"
#include "weft/data_array.h"

struct column {
    char *data;
    int64_t bytes, cap;
};

static weft_status array_open(weft_file_writer *w)
{
    for (int c = 0; c < w->n_cols; c++) {
        if (w->col[c].dtype == WEFT_STR)
            return wf_err(WEFT_EINVAL, "column '%s' is text, which %s cannot hold", w->col[c].name,
                          w->path);
        for (int i = 0; i < w->col[c].rank; i++)
            if (w->col[c].dim[i] < 0)
                return wf_err(WEFT_EINVAL, "column '%s' has elements of differing shapes",
                              w->col[c].name);
    }
    w->state = wf_alloc_n(w->ctx, w->n_cols + 1, sizeof(struct column));
    return w->state ? WEFT_OK : wf_err_nomem(w->ctx, 0, "a writer");
}

static weft_status one_open(weft_file_writer *w)
{
    if (w->n_cols != 1)
        return wf_err(WEFT_EINVAL, "%s holds one column, there are %d", w->path, w->n_cols);
    return array_open(w);
}

static weft_status array_add(weft_file_writer *w, const weft_tensor *col)
{
    for (int c = 0; c < w->n_cols; c++) {
        struct column *to = (struct column *)w->state + c;
        int64_t n = weft_tensor_bytes(&col[c]);
        weft_status st = wf_grow(w->ctx, &to->data, &to->cap, to->bytes + n + 1, 1);

        if (st)
            return st;
        if (n)
            memcpy(to->data + to->bytes, col[c].data, (size_t)n);
        to->bytes += n;
    }
    return WEFT_OK;
}

/* Column c of all elements. */
static weft_tensor array_of(const weft_file_writer *w, int c)
{
    const weft_column *col = &w->col[c];
    weft_tensor t = {.dtype = col->dtype,
                     .rank = col->rank + 1,
                     .data = ((const struct column *)w->state)[c].data};

    t.dim[0] = w->n;
    memcpy(t.dim + 1, col->dim, (size_t)col->rank * sizeof t.dim[0]);
    return t;
}

static weft_status npy_close(weft_file_writer *w)
{
    weft_tensor t = array_of(w, 0);

    return weft_npy_write(w->ctx, w->path, &t);
}

static weft_status idx_close(weft_file_writer *w)
{
    weft_tensor t = array_of(w, 0);

    return weft_idx_write(w->ctx, w->path, &t);
}

static weft_status npz_close(weft_file_writer *w)
{
    weft_tensor *t = wf_alloc_n(w->ctx, w->n_cols + 1, sizeof *t);
    const char **names = wf_alloc_n(w->ctx, w->n_cols + 1, sizeof *names);
    weft_status st = t && names ? WEFT_OK : wf_err_nomem(w->ctx, 0, "a writer");

    for (int c = 0; c < w->n_cols && !st; c++) {
        t[c] = array_of(w, c);
        names[c] = w->col[c].name;
    }
    if (!st)
        st = weft_npz_write(w->ctx, w->path, w->n_cols, names, t);
    wf_free(w->ctx, t);
    wf_free(w->ctx, names);
    return st;
}

static void array_free(weft_file_writer *w)
{
    for (int c = 0; c < w->n_cols; c++)
        wf_free(w->ctx, ((struct column *)w->state)[c].data);
    wf_free(w->ctx, w->state);
}

const struct wf_sink_kind wf_sink_npy = {one_open, array_add, npy_close, array_free};
const struct wf_sink_kind wf_sink_idx = {one_open, array_add, idx_close, array_free};
const struct wf_sink_kind wf_sink_npz = {array_open, array_add, npz_close, array_free};
