/* writer.c - elements into a file of the format that its name tells. */
#include <stdio.h>

#include "data/source/formats.h"

/* The suffix of a list that a path ends with, or 0. */
static size_t suffix_of(const char *path, const char *list)
{
    size_t len = strlen(path), n;

    for (const char *p = list; *p; p += n + (p[n] == ' ')) {
        n = strcspn(p, " ");
        if (n && len > n && memcmp(path + len - n, p, n) == 0)
            return n;
    }
    return 0;
}

weft_format weft_format_written(const char *path)
{
    const struct wf_format *row;

    for (int f = 1; (row = wf_format_row((weft_format)f)); f++)
        if (row->sink && suffix_of(path, row->suffixes))
            return (weft_format)f;
    return WEFT_FORMAT_UNKNOWN;
}

static weft_status no_format(weft_ctx *ctx, const char *path)
{
    const struct wf_format *row;
    struct wf_buf list;
    weft_status st;

    wf_buf_init(&list, ctx, 4096);
    for (int f = 1; (row = wf_format_row((weft_format)f)); f++)
        if (row->sink)
            wf_buf_printf(&list, " %s", row->suffixes);
    st = wf_err(WEFT_EINVAL, "the name '%s' tells no format:%s", path,
                list.data ? list.data : " out of memory");
    wf_buf_free(&list);
    return st;
}

static weft_status copy_columns(weft_file_writer *w, int n, const weft_column *columns)
{
    w->col = wf_alloc_n(w->ctx, n + 1, sizeof *w->col);
    if (!w->col)
        return wf_err_nomem(w->ctx, 0, "a writer");
    for (; w->n_cols < n; w->n_cols++) {
        char *name = wf_strdup(w->ctx, columns[w->n_cols].name);

        if (!name)
            return wf_err_nomem(w->ctx, 0, "a writer");
        w->col[w->n_cols] = columns[w->n_cols];
        w->col[w->n_cols].name = name;
    }
    return WEFT_OK;
}

weft_status weft_file_writer_new(weft_ctx *ctx, const char *path, int n, const weft_column *columns,
                                 weft_file_writer **out)
{
    weft_format f = weft_format_written(path);
    weft_file_writer *w;
    weft_status st;

    if (f == WEFT_FORMAT_UNKNOWN)
        return no_format(ctx, path);
    w = wf_alloc(ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(ctx, sizeof *w, "a writer");
    w->ctx = ctx;
    w->kind = wf_format_row(f)->sink;
    w->path = wf_strdup(ctx, path);
    st = w->path ? copy_columns(w, n, columns) : wf_err_nomem(ctx, 0, "a writer");
    if (!st)
        st = w->kind->open(w);
    if (!st)
        *out = w;
    else
        weft_file_writer_free(w);
    return st;
}

weft_status weft_file_writer_add(weft_file_writer *w, const weft_tensor *col)
{
    weft_status st = w->kind->add(w, col);

    w->n += !st;
    return st;
}

weft_status weft_file_writer_close(weft_file_writer *w)
{
    weft_status st = w->kind->close(w);

    weft_file_writer_free(w);
    return st;
}

void weft_file_writer_free(weft_file_writer *w)
{
    if (!w)
        return;
    if (w->state)
        w->kind->free(w);
    for (int c = 0; c < w->n_cols; c++)
        wf_free(w->ctx, (char *)w->col[c].name);
    wf_free(w->ctx, w->col);
    wf_free(w->ctx, w->path);
    wf_free(w->ctx, w);
}
