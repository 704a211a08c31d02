/* csv_parse.c - parses one row of a CSV file into its columns.
 *
 * Plain numbers whose field ends right after them are read in one go; everything else (quotes,
 * spaces, missing values, many digits, the last bytes of the text) goes through `careful_field`,
 * which alone decides what is an error. Both give the same values. Pure: no state except the
 * output. */
#include "data/table/csv_parse.h"
#include "base/number.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* ---- fields ---------------------------------------------------------------------------------- */

/* Returns the position after the closing quote of the quoted text at p, or NULL. *doubled: whether
 * it contains doubled quotes. */
static const char *closing_quote(const char *p, const char *end, char quote, bool *doubled)
{
    *doubled = false;
    for (p++;; p += 2) {
        p = memchr(p, quote, (size_t)(end - p));
        if (!p)
            return NULL;
        if (p + 1 == end || p[1] != quote)
            return p + 1;
        *doubled = true;
        if (p + 2 == end)
            return NULL;
    }
}

/* The first delimiter or newline at or after p, or end. */
static const char *text_end(const char *p, const char *end, char delimiter)
{
#if defined(__SSE2__)
    const __m128i a = _mm_set1_epi8(delimiter), b = _mm_set1_epi8('\n');

    for (; end - p >= 16; p += 16) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
        int found = _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(x, a), _mm_cmpeq_epi8(x, b)));

        if (found)
            return p + __builtin_ctz((unsigned)found);
    }
#endif
    while (p < end && *p != delimiter && *p != '\n')
        p++;
    return p;
}

/* p is after the text of a field. False if more text follows. */
static bool field_ends(const struct wf_row_format *f, const char *p, const char *end,
                       struct wf_csv_span *out)
{
    out->ends_row = true;
    if (p < end && *p == '\r' && (p + 1 == end || p[1] == '\n'))
        p++;
    if (p == end || *p == '\n') {
        out->next = p == end ? end : p + 1;
        return true;
    }
    out->ends_row = false;
    out->next = p + 1;
    return *p == f->delimiter;
}

bool wf_csv_span(const struct wf_row_format *f, const char *p, const char *end,
                 struct wf_csv_span *out)
{
    const char *q = p;

    *out = (struct wf_csv_span){.p = p};
    if (f->quote && p < end && *p == f->quote) {
        out->quoted = true;
        q = closing_quote(p, end, f->quote, &out->doubled);
        if (!q)
            return false;
        out->p = p + 1;
        out->n = q - p - 2;
        return field_ends(f, q, end, out);
    }
    q = text_end(p, end, f->delimiter);
    if (q > p && q[-1] == '\r' && (q == end || *q == '\n'))
        q--; /* it is part of the line end */
    out->n = q - p;
    return field_ends(f, q, end, out);
}

int64_t wf_csv_undouble(const char *p, int64_t n, char quote, char *to)
{
    int64_t at = 0;

    for (int64_t i = 0; i < n; i++) {
        to[at++] = p[i];
        if (p[i] == quote)
            i++;
    }
    return at;
}

/* ---- failures: the text of an error, only when there is one ---------------------------------- */

static const char *fail(struct wf_csv_out *o, weft_status st)
{
    o->st = st;
    return NULL;
}

/* Quotes that do not match. */
static const char *fail_quotes(struct wf_csv_out *o, int f, const char *p, const char *end)
{
    const struct wf_row_layout *l = o->layout;
    char shown[WF_FIELD_SHOWN];
    bool doubled;
    const char *text = wf_field_show(p, end - p, shown);

    if (!closing_quote(p, end, l->format.quote, &doubled))
        return fail(o, wf_err(WEFT_EDATA, "column '%s': a quote is never closed: %s",
                              l->field[f].name, text));
    return fail(o, wf_err(WEFT_EDATA, "column '%s': text after a closing quote: %s",
                          l->field[f].name, text));
}

/* The row ended before column f + 1, or has too many; p is the field after the last good one. */
static const char *fail_count(struct wf_csv_out *o, int f, const char *p, const char *end)
{
    struct wf_csv_span s = {.next = p};
    int n = f + 1;

    while (f + 1 == o->layout->n_fields) { /* too many: count them */
        n++;
        if (!wf_csv_span(&o->layout->format, s.next, end, &s) || s.ends_row)
            break;
    }
    return fail(o, wf_err(WEFT_EDATA, "%d column%s; %d are expected%s%s%s", n, n == 1 ? "" : "s",
                          o->layout->n_fields, n > o->layout->n_fields ? "" : ": no '",
                          n > o->layout->n_fields ? "" : o->layout->field[n].name,
                          n > o->layout->n_fields ? "" : "'"));
}

static const char *fail_value(struct wf_csv_out *o, int f, const char *p, int64_t n, bool missing)
{
    const struct wf_field *field = &o->layout->field[f];
    const char *type = wf_field_kind_name[field->kind];
    char shown[WF_FIELD_SHOWN];
    double number;

    if (missing && field->kind == WF_FIELD_STR)
        return fail(o, wf_err(WEFT_EDATA,
                              "column '%s': the label is missing: give a default, or skip such "
                              "records (on_error)",
                              field->name));
    if (missing)
        return fail(o, wf_err(WEFT_EDATA,
                              "column '%s': the value is missing, and %s cannot represent that: "
                              "give a default, or declare it f32",
                              field->name, type));
    if (field->kind == WF_FIELD_I64 && wf_parse_f64(p, n, &number))
        return fail(o, wf_err(WEFT_EDATA,
                              "column '%s': '%s' is not an i64: declare the column f32, f64 or str",
                              field->name, wf_field_show(p, n, shown)));
    return fail(o, wf_err(WEFT_EDATA, "column '%s': '%s' is not a valid %s", field->name,
                          wf_field_show(p, n, shown), type));
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool is_missing(const struct wf_row_layout *l, const char *p, int64_t n)
{
    while (n > 0 && (*p == ' ' || *p == '\t')) {
        p++;
        n--;
    }
    while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
        n--;
    if (n == 0)
        return true;
    for (int i = 0; i < l->n_missing; i++)
        if (l->missing[i].n == n && !memcmp(l->missing[i].data, p, (size_t)n))
            return true;
    return false;
}

/* Text without its doubled quotes, in memory that lives as long as the block. */
static bool own_text(struct wf_csv_out *o, struct wf_csv_span *s, const char *end)
{
    char *to;

    if (o->text_bytes < s->n) {
        o->st = o->more(o->arg, end - s->p, &o->text); /* enough for the rest of the rows */
        o->text_bytes = o->st ? 0 : end - s->p;
        if (o->st)
            return false;
    }
    to = o->text;
    s->n = wf_csv_undouble(s->p, s->n, o->layout->format.quote, to);
    s->p = to;
    o->text += s->n;
    o->text_bytes -= s->n;
    return true;
}

/* Any field. Returns the position after it. */
static const char *careful_field(struct wf_csv_out *o, int f, const char *p, const char *end,
                                 int64_t r)
{
    const struct wf_row_layout *l = o->layout;
    const struct wf_field *field = &l->field[f];
    struct wf_csv_span s;
    union wf_field_value v;
    bool missing;
    char *to;

    if (!wf_csv_span(&l->format, p, end, &s))
        return fail_quotes(o, f, p, end);
    if (s.ends_row != (f + 1 == l->n_fields))
        return fail_count(o, f, s.next, end);
    if (field->kind == WF_FIELD_SKIP)
        return s.next;
    to = o->place[f].data + r * o->place[f].stride;
    if (s.doubled && !own_text(o, &s, end))
        return NULL;
    missing = field->kind == WF_FIELD_STR ? s.n == 0 : is_missing(l, s.p, s.n);
    if (missing && field->has_default) {
        wf_field_store(field->kind, &field->missing, to);
        return s.next;
    }
    if ((missing && (field->kind != WF_FIELD_STR || field->needed)) ||
        !wf_field_convert(field->kind, s.p, s.n, &v))
        return fail_value(o, f, s.p, s.n, missing);
    wf_field_store(field->kind, &v, to);
    return s.next;
}

static const char *run_careful(struct wf_csv_out *o, const struct wf_field_run *run, const char *p,
                               const char *end, int64_t r)
{
    for (int f = run->first; f < run->last && p; f++)
        p = careful_field(o, f, p, end, r);
    return p;
}

/* A run of fields of one kind: fast where a number is followed by its delimiter, careful
 * otherwise. */
#define RUN(name, type, fast)                                                                    \
    static const char *name(struct wf_csv_out *o, const struct wf_field_run *run, const char *p, \
                            const char *end, int64_t r)                                          \
    {                                                                                            \
        for (int f = run->first; f < run->last; f++) {                                           \
            const struct wf_field_place *to = &o->place[f];                                      \
            const char *q;                                                                       \
            type v;                                                                              \
                                                                                                 \
            if (end - p >= WF_NUMBER_SLACK && (q = fast(p, &v)) && *q == to->stop) {             \
                memcpy(to->data + r * to->stride, &v, sizeof v);                                 \
                p = q + 1;                                                                       \
                continue;                                                                        \
            }                                                                                    \
            p = careful_field(o, f, p, end, r);                                                  \
            if (!p)                                                                              \
                return NULL;                                                                     \
        }                                                                                        \
        return p;                                                                                \
    }

RUN(run_f32, float, wf_fast_f32)
RUN(run_f64, double, wf_fast_f64)
RUN(run_i64, int64_t, wf_fast_i64)

/* Eight hexadecimal digits, as in hashed categories. */
static const char *fast_hex8(const char *p, int64_t *out)
{
    uint64_t x = wf_load_le64(p);
    uint64_t letter = x & WF_EVERY_BYTE(0x40); /* 'a'..'f', 'A'..'F' have it, digits do not */
    uint64_t low = x & WF_EVERY_BYTE(0x0f);
    uint64_t seven = letter >> 6;               /* 1 for each letter */
    uint64_t above = low + WF_EVERY_BYTE(0x06); /* digits: 6..15 if 0..9; letters 1..6: 7..12 */

    /* A digit has 0x30 above its low half, which is at most 9; a letter 0x40 or 0x60, and 1 to
     * 6. */
    if (((x ^ WF_EVERY_BYTE(0x30)) & WF_EVERY_BYTE(0xf0) & ~(seven * 0xff)) ||
        (x & WF_EVERY_BYTE(0x90) & seven * 0xff) ||
        (above & WF_EVERY_BYTE(0x10) & ~(seven * 0xff)) ||
        ((low + seven * 9) & WF_EVERY_BYTE(0x10)) || ((low - seven) & WF_EVERY_BYTE(0x80)))
        return NULL;
    low += seven * 9;
    low = (low << 4 | low >> 8) & 0x00ff00ff00ff00ffull;
    low = (low << 8 | low >> 16) & 0x0000ffff0000ffffull;
    *out = (int64_t)((low << 16 | low >> 32) & 0xffffffffull);
    return p + 8;
}

static const char *run_hex(struct wf_csv_out *o, const struct wf_field_run *run, const char *p,
                           const char *end, int64_t r)
{
    for (int f = run->first; f < run->last; f++) {
        const struct wf_field_place *to = &o->place[f];
        const char *q;
        int64_t v;

        if (end - p >= WF_NUMBER_SLACK && (q = fast_hex8(p, &v)) && *q == to->stop) {
            memcpy(to->data + r * to->stride, &v, sizeof v);
            p = q + 1;
            continue;
        }
        p = careful_field(o, f, p, end, r);
        if (!p)
            return NULL;
    }
    return p;
}

const char *wf_csv_row(struct wf_csv_out *o, const char *p, const char *end, int64_t r)
{
    const struct wf_row_layout *l = o->layout;

    for (int i = 0; i < l->n_runs && p; i++) {
        const struct wf_field_run *run = &l->run[i];

        switch (l->careful ? WF_FIELD_STR : run->kind) {
        case WF_FIELD_F32: p = run_f32(o, run, p, end, r); break;
        case WF_FIELD_I64: p = run_i64(o, run, p, end, r); break;
        case WF_FIELD_F64: p = run_f64(o, run, p, end, r); break;
        case WF_FIELD_HEX: p = run_hex(o, run, p, end, r); break;
        default: p = run_careful(o, run, p, end, r);
        }
    }
    return p;
}
