/* csv_infer.c - inferred from the first rows of the first file: names, number of columns, their
 * types. */
#include <stdio.h>

#include "data/table/csv.h"
#include "base/number.h"

/* What kind of values a column has had so far. */
enum seen { SEEN_NOTHING = 0, SEEN_INT = 1, SEEN_FLOAT = 2, SEEN_TEXT = 4, SEEN_MISSING = 8 };

static bool missing_word(const struct wf_row_layout *l, weft_str s)
{
    for (int i = 0; i < l->n_missing; i++)
        if (l->missing[i].n == s.n && !memcmp(l->missing[i].data, s.data, (size_t)s.n))
            return true;
    return s.n == 0;
}

static unsigned look(const struct wf_row_layout *l, weft_str s)
{
    union wf_field_value v;

    while (s.n > 0 && (*s.data == ' ' || *s.data == '\t')) {
        s.data++;
        s.n--;
    }
    while (s.n > 0 && (s.data[s.n - 1] == ' ' || s.data[s.n - 1] == '\t'))
        s.n--;
    if (missing_word(l, s))
        return SEEN_MISSING;
    if (wf_field_convert(WF_FIELD_I64, s.data, s.n, &v))
        return SEEN_INT;
    return wf_field_convert(WF_FIELD_F64, s.data, s.n, &v) ? SEEN_FLOAT : SEEN_TEXT;
}

static enum wf_field_kind kind_of(unsigned seen)
{
    if (seen & SEEN_TEXT)
        return WF_FIELD_STR;
    return seen == SEEN_INT ? WF_FIELD_I64 : WF_FIELD_F32;
}

/* ---- the head of the first file -------------------------------------------------------------- */

/* Reads until n_rows rows are complete, or enough was read and some are. h->end is past the
 * last. */
static weft_status read_head(struct wf_csv_head *h, const struct wf_csv_source *src, int64_t n_rows)
{
    const struct wf_row_source *rows = &src->rows;
    struct wf_scan scan;
    bool whole = false;
    weft_status st;

    for (int64_t max = 1 << 20;; max *= 4) {
        wf_free(h->ctx, h->data);
        h->data = NULL;
        st = wf_unpack_head(h->ctx, rows->files.path[0], &rows->files.opts, max, &h->data, &h->n,
                            &whole);
        if (st)
            return st;
        st = wf_text_check_ends(rows->files.path[0], h->data, h->n, rows->format.quote);
        if (st)
            return st;
        h->bom = wf_rows_bom(h->data, h->n);
        wf_scan_init(&scan, &rows->format, h->ctx->simd);
        if (wf_scan_rows(&scan, h->data + h->bom, h->n - h->bom, n_rows) ||
            (!whole && scan.n_rows > 1)) {
            h->end = h->data + h->bom + scan.end;
            return WEFT_OK;
        }
        if (whole) {
            h->end = h->data + h->n;
            return WEFT_OK;
        }
        if (max > rows->max_row_bytes)
            return wf_err(WEFT_ELIMIT, "%s: the first rows are longer than %lld bytes%s",
                          rows->files.path[0], (long long)max,
                          scan.quoted ? ": is a quote not closed?" : "");
    }
}

/* The next row in the head, skipping empty lines and comments; NULL past the end. */
static const char *next_row(const struct wf_row_format *f, const char *p, const char *end)
{
    while (p < end && wf_scan_no_row(f, p, end))
        p = wf_scan_row_end(f, p, end);
    return p < end ? p : NULL;
}

static int count_fields(const struct wf_row_format *f, const char *p, const char *end)
{
    struct wf_csv_span s;
    int n = 0;

    do {
        if (!wf_csv_span(f, p, end, &s))
            return n + 1;
        p = s.next;
        n++;
    } while (!s.ends_row);
    return n;
}

/* ---- names ----------------------------------------------------------------------------------- */

static weft_status names_from_list(weft_data *d, const char *list, struct wf_column_names *names)
{
    weft_str item;
    int n = 1;
    weft_status st;

    for (const char *p = list; *p; p++)
        n += *p == ',';
    st = wf_table_alloc(d, n, sizeof *names->name, &names->name);
    for (const char *at = list; !st && wf_columns_next(&at, ',', &item);) {
        names->name[names->n] = wf_table_text(d, item.data, item.n);
        st = names->name[names->n++] ? WEFT_OK : WEFT_ENOMEM;
    }
    return st;
}

static weft_status names_numbered(weft_data *d, int n, struct wf_column_names *names)
{
    char text[24];
    weft_status st = wf_table_alloc(d, n, sizeof *names->name, &names->name);

    for (int i = 0; i < n && !st; i++) {
        snprintf(text, sizeof text, "c%d", i);
        names->name[i] = wf_table_text(d, text, (int64_t)strlen(text));
        st = names->name[i] ? WEFT_OK : WEFT_ENOMEM;
    }
    names->n = n;
    return st;
}

/* Lists of columns are separated by commas, so a name cannot have one: "income, monthly" becomes
 * "income_monthly". */
static void replace_commas(weft_data *d, char *name)
{
    char *to = name;
    char *old = strchr(name, ',') ? wf_strdup(d->ctx, name) : NULL;

    for (const char *p = name; *p; p++) {
        bool comma = *p == ',';

        *to++ = comma ? '_' : *p;
        if (comma)
            p += strspn(p + 1, " \t");
    }
    *to = 0;
    if (old)
        wf_log(d->ctx, WEFT_LOG_INFO, "csv: column '%s' is named '%s' here, without the comma", old,
               name);
    wf_free(d->ctx, old);
}

/* A field without a name is named after its position, "c3". Blanks around a name are not part of
 * it. */
static const char *name_of(weft_data *d, const struct wf_row_format *f, const struct wf_csv_span *s,
                           int i)
{
    char text[24];
    const char *p = s->p;
    int64_t n = s->n;
    char *copy = NULL;

    for (; n > 0 && (*p == ' ' || *p == '\t'); n--)
        p++;
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    if (n == 0) {
        snprintf(text, sizeof text, "c%d", i);
        return wf_table_text(d, text, (int64_t)strlen(text));
    }
    if (wf_table_alloc(d, n + 1, 1, &copy))
        return NULL;
    if (s->doubled)
        copy[wf_csv_undouble(p, n, f->quote, copy)] = 0;
    else
        memcpy(copy, p, (size_t)n);
    replace_commas(d, copy);
    return copy;
}

static weft_status names_from_header(weft_data *d, const struct wf_row_format *f, const char *p,
                                     const char *end, struct wf_column_names *names)
{
    int n = count_fields(f, p, end);
    struct wf_csv_span s;
    weft_status st = wf_table_alloc(d, n, sizeof *names->name, &names->name);

    for (int i = 0; i < n && !st; i++) {
        if (!wf_csv_span(f, p, end, &s))
            return wf_err(WEFT_EDATA, "header: unmatched quotes in column %d", i);
        names->name[i] = name_of(d, f, &s, i);
        st = names->name[i] ? WEFT_OK : WEFT_ENOMEM;
        p = s.next;
    }
    names->n = n;
    return st;
}

static weft_status find_names(const struct wf_csv_head *h, struct wf_csv_source *src,
                              const weft_csv_opts *o, weft_data *d, struct wf_column_names *names)
{
    const struct wf_row_format *f = &src->rows.format;
    const char *p = next_row(f, h->data + h->bom, h->end);
    weft_status st = WEFT_OK;

    if (!p && (!o->names || src->rows.has_header))
        return wf_err(WEFT_EDATA, "%s has no rows%s", src->rows.files.path[0],
                      src->rows.has_header ? " and no header" : ": give `names`");
    if (src->rows.has_header) {
        const char *behind = wf_scan_row_end(f, p, h->end);
        int64_t n = wf_rows_chomp(p, behind - p);

        src->rows.header = (weft_str){wf_table_text(d, p, n), n};
        if (!src->rows.header.data)
            return WEFT_ENOMEM;
    }
    if (o->names)
        st = names_from_list(d, o->names, names);
    else if (src->rows.has_header)
        st = names_from_header(d, f, p, h->end, names);
    else
        st = names_numbered(d, count_fields(f, p, h->end), names);
    if (!st && p && o->names && names->n != count_fields(f, p, h->end))
        st = wf_err(WEFT_EDATA, "%s: %d columns, but %d names are given", src->rows.files.path[0],
                    count_fields(f, p, h->end), names->n);
    return st;
}

/* ---- types ----------------------------------------------------------------------------------- */

static weft_status look_at_rows(const struct wf_csv_head *h, const struct wf_csv_source *src,
                                struct wf_table *t, int64_t n_rows)
{
    const struct wf_row_format *f = &src->rows.format;
    const char *p = next_row(f, h->data + h->bom, h->end);
    unsigned char *seen = NULL;
    weft_status st = wf_table_alloc(t->d, t->names.n, 1, &seen);

    if (p && src->rows.has_header)
        p = next_row(f, wf_scan_row_end(f, p, h->end), h->end);
    for (int64_t r = 0; r < n_rows && p && !st; r++) {
        const char *behind = wf_scan_row_end(f, p, h->end), *q = p;
        struct wf_csv_span s = {.next = p};

        for (int i = 0; i < t->names.n && !s.ends_row; i++) {
            q = s.next;
            if (!wf_csv_span(f, q, behind, &s))
                break; /* reading the row will report it */
            seen[i] |= (unsigned char)look(&src->layout, (weft_str){s.p, s.n});
        }
        p = next_row(f, behind, h->end);
    }
    for (int i = 0; i < t->names.n && !st; i++)
        if (!t->declared[i])
            t->kind[i] = kind_of(seen[i]);
    return st;
}

weft_status wf_csv_infer(struct wf_csv_source *src, const weft_csv_opts *o, struct wf_table *t)
{
    struct wf_csv_head h = {.ctx = t->d->ctx};
    int64_t n_rows = o->infer_rows > 0 ? o->infer_rows : 1000;
    weft_status st = read_head(&h, src, wf_min_i64(n_rows, INT64_MAX - 1) + 1);

    if (!st)
        st = find_names(&h, src, o, t->d, &t->names);
    if (!st)
        st = wf_table_begin(t);
    if (!st)
        st = look_at_rows(&h, src, t, n_rows);
    wf_free(t->d->ctx, h.data);
    return st;
}
