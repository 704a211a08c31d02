/* libsvm.c - the LibSVM source: blocks of labels and sparse or dense rows. */
#include "data/table/libsvm.h"
#include "data/table/rows.h"
#include "weft/data_table.h"

struct source {
    struct wf_row_source rows; /* first: rows.c expects it there */
    struct wf_libsvm_format format;
    bool qid;
    int qid_col, field_col, index_col, value_col, dense_col; /* -1: none; the label is column 0 */
};

/* ---- reading --------------------------------------------------------------------------------- */

/* A block being filled, and the items of its current line. */
struct fill {
    struct source *src;
    struct wf_ds *ds;
    struct wf_block *b;
    int64_t epoch, id, r;
    int64_t n_items; /* of the rows before */
    struct wf_libsvm_line line;
};

static int64_t range_room(const struct wf_row_range *range)
{
    int64_t n = 0;

    for (int i = 0; i < range->n; i++)
        n += wf_libsvm_room(range->piece[i].p, range->piece[i].bytes);
    return n;
}

static weft_status fill_begin(struct fill *f, struct wf_env *env, int64_t n, int64_t room)
{
    weft_status st = wf_block_new(env, f->ds->n_cols, n, &f->b);
    void *index = NULL, *value = NULL;

    for (int c = 0; c < f->ds->n_cols && !st; c++) {
        struct wf_type type = wf_column_type(&f->ds->col[c]);

        st = wf_block_col(f->b, c, &type, room);
    }
    if (!st)
        st = wf_block_origins(f->b);
    f->line.room = room;
    if (!st && f->src->dense_col >= 0) {
        st = wf_block_alloc(f->b, room * 8, &index);
        if (!st)
            st = wf_block_alloc(f->b, room * 4, &value);
    }
    if (st)
        return st;
    f->line.index = f->src->dense_col >= 0 ? index : f->b->col[f->src->index_col].data;
    f->line.value = f->src->dense_col >= 0 ? value : f->b->col[f->src->value_col].data;
    f->line.field = f->src->field_col >= 0 ? f->b->col[f->src->field_col].data : NULL;
    return WEFT_OK;
}

static void put_sparse(struct fill *f, int c)
{
    struct wf_col *col = &f->b->col[c];

    col->offset[f->r + 1] = f->n_items + f->line.n;
    col->shape[f->r] = f->line.n;
}

/* The line just parsed becomes row r. */
static void put_line(struct fill *f)
{
    struct source *src = f->src;
    struct wf_libsvm_line *line = &f->line;

    memcpy((float *)f->b->col[0].data + f->r, &line->label, sizeof line->label);
    if (src->qid_col >= 0)
        ((int64_t *)f->b->col[src->qid_col].data)[f->r] = line->qid;
    if (src->dense_col >= 0) {
        float *x = (float *)f->b->col[src->dense_col].data + f->r * src->format.dense_width;

        memset(x, 0, (size_t)src->format.dense_width * sizeof *x);
        for (int64_t i = 0; i < line->n; i++)
            x[line->index[i]] = line->value[i];
    } else {
        put_sparse(f, src->index_col);
        put_sparse(f, src->value_col);
        if (src->field_col >= 0)
            put_sparse(f, src->field_col);
        line->index += line->n;
        line->value += line->n;
        line->field += line->field ? line->n : 0;
        line->room -= line->n;
        f->n_items += line->n;
    }
    f->r++;
}

static weft_status fill_piece(struct fill *f, const struct wf_row_piece *piece)
{
    struct source *src = f->src;
    const struct wf_row_format *format = &src->rows.format;
    const char *p = piece->p, *end = p + piece->bytes;

    for (int64_t i = 0; i < piece->n_rows; i++, f->id++) {
        const char *behind;

        while (p < end && wf_scan_no_row(format, p, end))
            p = wf_scan_row_end(format, p, end);
        f->b->at[f->r] = (struct wf_at){f->epoch, f->id};
        f->b->from[f->r] =
            (struct wf_origin){piece->path, piece->record + i, piece->offset + (p - piece->p)};
        behind = wf_libsvm_parse(&src->format, p, end, &f->line);
        if (behind && src->qid && !f->line.has_qid) {
            f->line.st = wf_err(WEFT_EDATA, "no qid:N after the label");
            behind = NULL;
        }
        if (behind) {
            put_line(f);
            p = behind;
            continue;
        }
        if (src->rows.on_error == WEFT_ON_ERROR_STOP)
            return wf_block_err(f->b, f->r, f->line.st);
        atomic_fetch_add_explicit(&wf_stats_of(f->b->env, f->ds)->n_skipped, 1,
                                  memory_order_relaxed);
        p = wf_scan_row_end(format, p, end);
    }
    return WEFT_OK;
}

static weft_status libsvm_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_row_range *range = p->data;
    struct wf_ds *ds = p->stage->ds;
    struct fill f = {.src = ds->param, .ds = ds, .epoch = range->epoch, .id = range->id};
    weft_status st = fill_begin(&f, w->env, p->n, range_room(range));

    for (int i = 0; i < range->n && !st; i++)
        st = fill_piece(&f, &range->piece[i]);
    wf_rows_done(w->env->ctx, range);
    if (st) {
        wf_block_free(f.b);
        return st;
    }
    f.b->n = f.r;
    *out = f.b;
    return WEFT_OK;
}

static void libsvm_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct source *src = ds->param;

    wf_files_text(&src->rows.files, out);
    wf_buf_printf(out, "%s%s%s", src->format.zero_based ? ", zero-based" : "",
                  src->qid ? ", qid" : "", src->format.fields ? ", fields" : "");
    if (src->format.dense_width)
        wf_buf_printf(out, ", dense %lld", (long long)src->format.dense_width);
}

static const struct wf_ds_kind libsvm_kind = {
    .name = "libsvm",
    .open = wf_rows_open,
    .close = wf_rows_close,
    .reset = wf_rows_reset,
    .pull = wf_rows_pull,
    .make = libsvm_make,
    .drop = wf_rows_drop,
    .save = wf_rows_save,
    .restore = wf_rows_restore,
    .text = libsvm_text,
    .file = wf_files_at,
};

/* ---- building -------------------------------------------------------------------------------- */

static weft_status build(weft_data *d, const char *files, const weft_libsvm_opts *o,
                         struct wf_ds *ds)
{
    struct source *src = ds->param;
    int64_t any = WEFT_ANY, width = o->dense_width;
    weft_column col[5];
    int n = 0;
    weft_status st = wf_files_find(d, files, &o->files, &src->rows.files);

    if (st)
        return st;
    if (width < 0 || width > 1 << 28 || (width && o->fields))
        return wf_err(WEFT_EINVAL, "dense_width %lld%s", (long long)width,
                      o->fields ? ": lines with fields are sparse" : "");
    src->rows.format.comment = '#';
    src->rows.max_row_bytes = 64 << 20;
    src->rows.on_error = o->on_error;
    src->format = (struct wf_libsvm_format){o->zero_based, o->fields, width};
    src->qid = o->qid;
    src->qid_col = src->field_col = src->index_col = src->value_col = src->dense_col = -1;
    col[n] = wf_column_of("label", WEFT_F32, 0, NULL);
    col[n++].role = WEFT_LABEL;
    if (o->qid)
        col[src->qid_col = n++] = wf_column_of("qid", WEFT_I64, 0, NULL);
    if (width)
        col[src->dense_col = n++] = wf_column_of("x", WEFT_F32, 1, &width);
    if (o->fields)
        col[src->field_col = n++] = wf_column_of("field", WEFT_I64, 1, &any);
    if (!width) {
        col[src->index_col = n++] = wf_column_of("index", WEFT_I64, 1, &any);
        col[src->value_col = n++] = wf_column_of("value", WEFT_F32, 1, &any);
    }
    return wf_ds_set_columns(ds, n, col);
}

weft_ds weft_ds_libsvm(weft_data *d, const char *files, const weft_libsvm_opts *opts)
{
    weft_libsvm_opts o;
    struct wf_ds *ds;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_libsvm_opts");

    if (st)
        return wf_ds_fail(d, "libsvm", st);
    ds = wf_ds_new(d, &libsvm_kind, 0, NULL, sizeof(struct source));
    if (!ds)
        return wf_ds_handle(NULL);
    ds->inexact = o.on_error == WEFT_ON_ERROR_SKIP;
    ds->reordered = o.files.shuffle;
    st = build(d, files, &o, ds);
    return st ? wf_ds_fail(d, "libsvm", st) : wf_ds_handle(ds);
}
