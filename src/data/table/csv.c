/* csv.c - the CSV source: from options to a node, and from pieces of text to blocks. */
#include <stdio.h>

#include "data/table/csv.h"

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status more_text(void *arg, int64_t bytes, char **out)
{
    void *p = NULL;
    weft_status st = wf_block_alloc(arg, bytes, &p);

    *out = p;
    return st;
}

weft_status wf_csv_fill_begin(struct wf_csv_fill *f, struct wf_ds *ds, struct wf_env *env,
                              int64_t n)
{
    struct wf_csv_source *src = ds->param;
    struct wf_field_place *place = NULL;
    weft_status st;

    memset(f, 0, sizeof *f);
    f->ds = ds;
    st = wf_table_block(ds, env, n, true, &f->b);
    if (!st)
        st = wf_table_places(&src->layout, f->b, &place);
    if (st) {
        wf_block_free(f->b);
        f->b = NULL;
        return st;
    }
    f->out = (struct wf_csv_out){
        .layout = &src->layout,
        .place = place,
        .more = more_text,
        .arg = f->b,
    };
    return WEFT_OK;
}

weft_status wf_csv_fill_piece(struct wf_csv_fill *f, const struct wf_row_piece *piece)
{
    struct wf_csv_source *src = f->ds->param;
    const struct wf_row_format *format = &src->rows.format;
    const char *p = piece->p, *end = p + piece->bytes;
    weft_status st = src->has_text && piece->chunk ? wf_block_keep(f->b, piece->chunk) : WEFT_OK;

    f->out.text_bytes = 0; /* room for text is allocated piece by piece */
    for (int64_t i = 0; i < piece->n_rows && !st; i++, f->id++) {
        const char *behind;

        while (p < end && wf_scan_no_row(format, p, end))
            p = wf_scan_row_end(format, p, end);
        f->b->at[f->r] = (struct wf_at){f->epoch, f->id};
        f->b->from[f->r] =
            (struct wf_origin){piece->path, piece->record + i, piece->offset + (p - piece->p)};
        behind = wf_csv_row(&f->out, p, end, f->r);
        if (behind) {
            p = behind;
            f->r++;
            continue;
        }
        if (src->rows.on_error == WEFT_ON_ERROR_STOP || f->out.st != WEFT_EDATA)
            return wf_block_err(f->b, f->r, f->out.st);
        atomic_fetch_add_explicit(&wf_stats_of(f->b->env, f->ds)->n_skipped, 1,
                                  memory_order_relaxed);
        p = wf_scan_row_end(format, p, end);
    }
    return st;
}

static weft_status csv_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_row_range *range = p->data;
    struct wf_csv_fill f;
    weft_status st = wf_csv_fill_begin(&f, p->stage->ds, w->env, p->n);

    f.epoch = range->epoch;
    f.id = range->id;
    for (int i = 0; i < range->n && !st; i++)
        st = wf_csv_fill_piece(&f, &range->piece[i]);
    wf_rows_done(w->env->ctx, range);
    if (st) {
        wf_block_free(f.b);
        return st;
    }
    f.b->n = f.r;
    *out = f.b;
    return WEFT_OK;
}

static void csv_free(struct wf_ds *ds)
{
    struct wf_csv_source *src = ds->param;

    wf_csv_index_free(ds->data->ctx, src->index);
}

static void csv_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct wf_csv_source *src = ds->param;
    char type[WF_TYPE_TEXT];

    wf_files_text(&src->rows.files, out);
    for (int c = 0; c < ds->n_cols && c < 64; c++) {
        struct wf_type t = wf_column_type(&ds->col[c]);

        if (t.dtype == WEFT_STR)
            wf_buf_printf(out, "%s%s str", c ? ", " : ": ", ds->col[c].name);
        else
            wf_buf_printf(out, "%s%s %s", c ? ", " : ": ", ds->col[c].name, wf_type_text(&t, type));
    }
    if (ds->n_cols > 64)
        wf_buf_printf(out, ", … (%d columns)", ds->n_cols);
}

static const struct wf_ds_kind csv_kind = {
    .name = "csv",
    .open = wf_rows_open,
    .close = wf_rows_close,
    .reset = wf_rows_reset,
    .pull = wf_rows_pull,
    .make = csv_make,
    .drop = wf_rows_drop,
    .save = wf_rows_save,
    .restore = wf_rows_restore,
    .free = csv_free,
    .text = csv_text,
    .file = wf_files_at,
};

static const struct wf_ds_kind csv_index_kind = {
    .name = "csv",
    .get = wf_csv_get,
    .free = csv_free,
    .text = csv_text,
    .file = wf_files_at,
};

/* ---- building -------------------------------------------------------------------------------- */

static weft_status check_opts(const weft_csv_opts *o, struct wf_row_source *rows)
{
    struct wf_row_format *f = &rows->format;

    f->delimiter = o->delimiter ? o->delimiter : ',';
    f->quote = (char)(o->no_quotes ? 0 : o->quote ? o->quote : '"');
    f->comment = o->comment;
    rows->has_header = !o->no_header;
    rows->max_row_bytes = wf_max_i64(o->max_row_bytes > 0 ? o->max_row_bytes : 16 << 20, 2 << 20);
    rows->on_error = o->on_error;
    if (f->delimiter == f->quote || f->delimiter == f->comment ||
        (f->quote && f->quote == f->comment))
        return wf_err(WEFT_EINVAL, "delimiter, quote and comment must differ");
    for (const char *c = "\n\r0123456789+-."; *c; c++)
        if (f->delimiter == *c || f->quote == *c || f->comment == *c)
            return wf_err(WEFT_EINVAL, "a digit, sign, point or end of line cannot be delimiter, "
                                       "quote or comment");
    return WEFT_OK;
}

static weft_status set_missing(weft_data *d, const char *list, struct wf_row_layout *l)
{
    const char *text, *at;
    weft_str item;
    int n = 1;
    weft_status st;

    if (!list)
        list = "NA, N/A, NaN, nan, NULL, null, None";
    for (at = list; *at; at++)
        n += *at == ',';
    text = wf_table_text(d, list, (int64_t)strlen(list));
    st = text ? wf_table_alloc(d, n, sizeof *l->missing, &l->missing) : WEFT_ENOMEM;
    for (at = text; !st && wf_columns_next(&at, ',', &item);) {
        l->careful = l->careful || strchr("0123456789+-.", item.data[0]);
        l->missing[l->n_missing++] = item;
    }
    return st;
}

static weft_status build(weft_data *d, const char *files, const weft_csv_opts *o, struct wf_ds *ds)
{
    struct wf_csv_source *src = ds->param;
    struct wf_table t = {
        .d = d,
        .types = o->types,
        .groups = o->groups,
        .select = o->select,
        .label = o->label,
        .weight = o->weight,
        .defaults = o->defaults,
    };
    weft_status st = check_opts(o, &src->rows);

    if (!st)
        st = wf_files_find(d, files, &o->files, &src->rows.files);
    if (!st)
        st = set_missing(d, o->missing, &src->layout);
    if (!st)
        st = wf_csv_infer(src, o, &t);
    src->layout.format = src->rows.format;
    if (!st)
        st = wf_table_finish(&t, ds, &src->layout);
    for (int c = 0; c < ds->n_cols && !st; c++)
        src->has_text = src->has_text || ds->col[c].dtype == WEFT_STR;
    return st;
}

weft_ds weft_ds_csv(weft_data *d, const char *files, const weft_csv_opts *opts)
{
    weft_csv_opts o;
    struct wf_csv_source *src;
    struct wf_ds *ds;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_csv_opts");

    if (st)
        return wf_ds_fail(d, "csv", st);
    ds = wf_ds_new(d, o.index ? &csv_index_kind : &csv_kind, 0, NULL, sizeof *src);
    if (!ds)
        return wf_ds_handle(NULL);
    src = ds->param;
    ds->count = WEFT_UNKNOWN;
    ds->reordered = o.files.shuffle;
    ds->inexact = o.on_error == WEFT_ON_ERROR_SKIP;
    if (o.index && ds->inexact)
        st = wf_err(WEFT_EINVAL,
                    "index counts rows before they are read, so bad ones cannot be skipped");
    else
        st = build(d, files, &o, ds);
    if (!st && o.index_dir) {
        src->index_dir = wf_table_text(d, o.index_dir, (int64_t)strlen(o.index_dir));
        st = src->index_dir ? WEFT_OK : WEFT_ENOMEM;
    }
    if (!st && o.index) {
        st = wf_csv_index_new(ds, &src->index, &ds->count);
        ds->addressable = true;
    }
    return st ? wf_ds_fail(d, "csv", st) : wf_ds_handle(ds);
}

weft_ds weft_ds_criteo(weft_data *d, const char *files, const weft_criteo_opts *opts)
{
    weft_criteo_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_criteo_opts");
    static const char *const names =
        "label,i0,i1,i2,i3,i4,i5,i6,i7,i8,i9,i10,i11,i12,h0,h1,h2,h3,h4,h5,h6,h7,h8,h9,h10,h11,h12,"
        "h13,h14,h15,h16,h17,h18,h19,h20,h21,h22,h23,h24,h25";
    char defaults[160];
    const char *num = o.missing_num ? o.missing_num : "nan";
    const char *cat = o.missing_cat ? o.missing_cat : "-1";
    weft_csv_opts csv = {
        .size = sizeof csv,
        .files = o.files,
        .delimiter = '\t',
        .no_quotes = true,
        .no_header = true,
        .names = o.no_label ? strchr(names, ',') + 1 : names,
        .label = o.no_label ? NULL : "label",
        .types = o.no_label ? "num:f32, cat:hex" : "label:i64, num:f32, cat:hex",
        .groups = "num = i0..i12; cat = h0..h25",
        .missing = "",
        .defaults = defaults,
        .index = o.index,
        .on_error = o.on_error,
    };

    if (!st && (strlen(num) > 40 || strlen(cat) > 40))
        st = wf_err(WEFT_EINVAL, "missing_num and missing_cat must be numbers");
    if (st)
        return wf_ds_fail(d, "criteo", st);
    snprintf(defaults, sizeof defaults, "num:%s, cat:%s", num, cat);
    return weft_ds_csv(d, files, &csv);
}
