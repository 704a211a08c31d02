/* csv_write.c - tables to CSV files. What is written reads back as the same values; the file
 * appears completely or not at all. */
#include <math.h>

#include "data/array/array.h"
#include "base/number.h"
#include "weft/data_table.h"

#define BUFFER_BYTES (256 << 10)

struct weft_csv_writer {
    weft_ctx *ctx;
    struct wf_output out;
    char *path;
    char delimiter;
    const char *missing;
    char *missing_text; /* ours */
    int n_cols;
    struct wf_type *type;
    int64_t n_fields;
    char *buf;
    int64_t n;  /* bytes in buf */
    bool first; /* field of a row */
};

/* ---- fields ---------------------------------------------------------------------------------- */

static void put(weft_csv_writer *w, const char *p, int64_t n)
{
    if (w->n + n > BUFFER_BYTES) {
        wf_output_put(&w->out, w->buf, w->n);
        w->n = 0;
    }
    if (n > BUFFER_BYTES) {
        wf_output_put(&w->out, p, n);
        return;
    }
    if (n)
        memcpy(w->buf + w->n, p, (size_t)n);
    w->n += n;
}

static bool needs_quotes(const weft_csv_writer *w, const char *p, int64_t n)
{
    if (n == 0)
        return w->n_fields == 1; /* an empty line would not be a row */
    for (int64_t i = 0; i < n; i++)
        if (p[i] == w->delimiter || p[i] == '"' || p[i] == '\n' || p[i] == '\r')
            return true;
    return false;
}

static void put_field(weft_csv_writer *w, const char *p, int64_t n)
{
    const char *end = p + n;

    if (!w->first)
        put(w, &w->delimiter, 1);
    w->first = false;
    if (!needs_quotes(w, p, n)) {
        put(w, p, n);
        return;
    }
    put(w, "\"", 1);
    while (p < end) {
        const char *q = memchr(p, '"', (size_t)(end - p));

        put(w, p, (q ? q + 1 : end) - p);
        if (q)
            put(w, "\"", 1); /* a quote is doubled */
        p = q ? q + 1 : end;
    }
    put(w, "\"", 1);
}

static void end_row(weft_csv_writer *w)
{
    put(w, "\n", 1);
    w->first = true;
}

static void put_item(weft_csv_writer *w, weft_dtype dtype, const void *data, int64_t i)
{
    char text[WF_NUMBER_TEXT];
    const weft_str *s = data;
    int n;

    if (dtype == WEFT_STR) {
        put_field(w, s[i].data, s[i].n);
    } else if (!wf_is_float(dtype)) {
        n = wf_format_i64(wf_get_int(data, dtype, i), text);
        put_field(w, text, n);
    } else if (isnan(wf_get(data, dtype, i))) {
        put_field(w, w->missing, (int64_t)strlen(w->missing));
    } else {
        double v = wf_get(data, dtype, i);

        n = dtype == WEFT_F64 ? wf_format_f64(v, text) : wf_format_f32((float)v, text);
        put_field(w, text, n);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Checks that a tensor matches its column's declaration, after `skip` axes. */
static weft_status check_tensor(weft_csv_writer *w, int c, const weft_tensor *t, int skip)
{
    const struct wf_type *type = &w->type[c];
    bool same = t->dtype == type->dtype && t->rank == type->rank + skip;

    for (int k = 0; same && k < type->rank; k++)
        same = t->dim[k + skip] == type->dim[k];
    if (same)
        return WEFT_OK;
    return w->out.st =
               wf_err(WEFT_ESHAPE, "%s: column %d differs from its declaration", w->path, c);
}

static int64_t items_of(const struct wf_type *t)
{
    int64_t n = 1;

    for (int k = 0; k < t->rank; k++)
        n *= t->dim[k];
    return n;
}

static void put_row(weft_csv_writer *w, const weft_tensor *cols, int64_t row)
{
    for (int c = 0; c < w->n_cols; c++) {
        int64_t n = items_of(&w->type[c]);

        for (int64_t i = 0; i < n; i++)
            put_item(w, w->type[c].dtype, cols[c].data, row * n + i);
    }
    end_row(w);
}

weft_status weft_csv_writer_add(weft_csv_writer *w, const weft_tensor *row)
{
    if (w->out.st)
        return w->out.st;
    for (int c = 0; c < w->n_cols; c++)
        if (check_tensor(w, c, &row[c], 0))
            return w->out.st;
    put_row(w, row, 0);
    return w->out.st;
}

weft_status weft_csv_writer_add_batch(weft_csv_writer *w, const weft_tensor *cols)
{
    if (w->out.st)
        return w->out.st;
    for (int c = 0; c < w->n_cols; c++) {
        if (check_tensor(w, c, &cols[c], 1))
            return w->out.st;
        if (cols[c].dim[0] != cols[0].dim[0])
            return w->out.st =
                       wf_err(WEFT_ESHAPE, "%s: columns 0 and %d have %lld and %lld rows", w->path,
                              c, (long long)cols[0].dim[0], (long long)cols[c].dim[0]);
    }
    for (int64_t r = 0; r < cols[0].dim[0] && !w->out.st; r++)
        put_row(w, cols, r);
    return w->out.st;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static weft_status set_columns(weft_csv_writer *w, int n, const weft_column *columns)
{
    w->type = wf_alloc_n(w->ctx, n + 1, sizeof *w->type);
    if (!w->type)
        return wf_err_nomem(w->ctx, (size_t)n * sizeof *w->type, w->path);
    for (int c = 0; c < n; c++) {
        int64_t items = 1;

        w->type[c] = wf_column_type(&columns[c]);
        for (int k = 0; k < w->type[c].rank; k++)
            if (w->type[c].dim[k] < 0 || !wf_mul_i64(items, w->type[c].dim[k], &items))
                return wf_err(WEFT_ESHAPE, "%s: column '%s' has no fixed size", w->path,
                              columns[c].name);
        if (!wf_add_i64(w->n_fields, items, &w->n_fields) || w->n_fields > 1 << 24)
            return wf_err(WEFT_ELIMIT, "%s: too many fields in a row", w->path);
    }
    w->n_cols = n;
    return w->n_fields ? WEFT_OK : wf_err(WEFT_EINVAL, "%s: no columns", w->path);
}

static void put_header(weft_csv_writer *w, const weft_column *columns)
{
    struct wf_buf name;

    for (int c = 0; c < w->n_cols; c++) {
        int64_t n = items_of(&w->type[c]);

        for (int64_t i = 0; i < n; i++) {
            wf_buf_init(&name, w->ctx, 1 << 20);
            wf_buf_printf(&name, "%s", columns[c].name);
            if (w->type[c].rank)
                wf_buf_printf(&name, "%lld", (long long)i);
            if (name.st)
                w->out.st = wf_err(name.st, "%s: the header: out of memory", w->path);
            else
                put_field(w, name.data, name.len);
            wf_buf_free(&name);
        }
    }
    end_row(w);
}

weft_status weft_csv_writer_new(weft_ctx *ctx, const char *path, int n_cols,
                                const weft_column *columns, const weft_csv_writer_opts *opts,
                                weft_csv_writer **out)
{
    weft_csv_writer_opts o;
    weft_csv_writer *w;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_csv_writer_opts");

    if (st)
        return st;
    w = wf_alloc(ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(ctx, sizeof *w, path);
    w->ctx = ctx;
    w->out = (struct wf_output){.ctx = ctx, .fd = -1};
    w->first = true;
    w->delimiter = (char)(o.delimiter ? o.delimiter : ',');
    w->missing = "";
    w->path = wf_strdup(ctx, path);
    w->buf = wf_alloc(ctx, BUFFER_BYTES);
    if (o.missing)
        w->missing = w->missing_text = wf_strdup(ctx, o.missing);
    if (!w->path || !w->buf || !w->missing)
        st = wf_err_nomem(ctx, BUFFER_BYTES, path);
    if (!st)
        st = set_columns(w, n_cols, columns);
    if (!st) {
        wf_output_open(&w->out, ctx, w->path);
        if (!w->out.st && !o.no_header)
            put_header(w, columns);
        st = w->out.st;
    }
    if (st) {
        weft_csv_writer_free(w);
        return st;
    }
    *out = w;
    return WEFT_OK;
}

static void release(weft_csv_writer *w)
{
    weft_ctx *ctx = w->ctx;

    wf_free(ctx, w->path);
    wf_free(ctx, w->missing_text);
    wf_free(ctx, w->type);
    wf_free(ctx, w->buf);
    wf_free(ctx, w);
}

weft_status weft_csv_writer_close(weft_csv_writer *w)
{
    weft_status st;

    if (!w)
        return WEFT_OK;
    wf_output_put(&w->out, w->buf, w->n);
    st = wf_output_close(&w->out);
    release(w);
    return st;
}

void weft_csv_writer_free(weft_csv_writer *w)
{
    if (!w)
        return;
    if (!w->out.st)
        w->out.st = WEFT_ECANCEL; /* so that what was written does not replace the file */
    wf_output_close(&w->out);
    release(w);
}
