/* libsvm_parse.c - lines of LibSVM files. Plain items are read in one go; the rest token by
 * token. */
#include "data/table/field.h"
#include "data/table/libsvm.h"
#include "base/number.h"

static bool ends_token(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '#';
}

int64_t wf_libsvm_room(const char *p, int64_t n)
{
    int64_t blanks = 0;

    for (int64_t i = 0; i < n; i++)
        blanks += p[i] == ' ' || p[i] == '\t';
    return blanks + 1;
}

static const char *fail(struct wf_libsvm_line *line, const char *p, const char *end,
                        const char *what)
{
    char shown[WF_FIELD_SHOWN];
    const char *q = p;

    while (q < end && !ends_token(*q))
        q++;
    line->st = wf_err(WEFT_EDATA, "'%s': %s", wf_field_show(p, q - p, shown), what);
    return NULL;
}

/* Adds one item; the feature's number is as in the file. */
static const char *add(const struct wf_libsvm_format *f, struct wf_libsvm_line *line, int64_t field,
                       int64_t index, float value, const char *p, const char *end, const char *next)
{
    if (!f->zero_based && index-- < 1)
        return fail(line, p, end, "indices start at 1 (set zero_based for 0)");
    if (index < 0 || field < 0)
        return fail(line, p, end, "a negative number");
    if (f->dense_width && index >= f->dense_width)
        return fail(line, p, end, "the index is beyond dense_width");
    if (line->n >= line->room)
        return fail(line, p, end, "too many items");
    if (line->field)
        line->field[line->n] = field;
    line->index[line->n] = index;
    line->value[line->n++] = value;
    return next;
}

/* "7:0.5", "7", "3:7:0.5" by whole tokens. */
static const char *careful_item(const struct wf_libsvm_format *f, const char *p, const char *end,
                                struct wf_libsvm_line *line)
{
    const char *q = p, *part[4];
    int n = 0;
    int64_t field = 0, index;
    float value = 1;

    part[n++] = p;
    for (; q < end && !ends_token(*q); q++) {
        if (*q != ':')
            continue;
        if (n > 2)
            return fail(line, p, end, "too many colons");
        part[n++] = q + 1;
    }
    part[n] = q + 1;
    if (f->fields) {
        if (n < 2 || !wf_parse_i64(part[0], part[1] - part[0] - 1, &field))
            return fail(line, p, end, "expected field:index:value");
    } else if (n > 2) {
        return fail(line, p, end, "expected index:value (set fields for LibFFM)");
    }
    if (!wf_parse_i64(part[f->fields], part[f->fields + 1] - part[f->fields] - 1, &index))
        return fail(line, p, end, "the index is not a number");
    if (n > 1 + f->fields &&
        !wf_parse_f32(part[1 + f->fields], part[2 + f->fields] - part[1 + f->fields] - 1, &value))
        return fail(line, p, end, "the value is not a number");
    return add(f, line, field, index, value, p, end, q);
}

static const char *item(const struct wf_libsvm_format *f, const char *p, const char *end,
                        struct wf_libsvm_line *line)
{
    const char *q = p;
    int64_t field = 0, index;
    float value;

    if (end - p < 3 * WF_NUMBER_SLACK)
        return careful_item(f, p, end, line);
    if (f->fields) {
        q = wf_fast_i64(q, &field);
        if (!q || *q++ != ':')
            return careful_item(f, p, end, line);
    }
    q = wf_fast_i64(q, &index);
    if (!q || *q++ != ':' || !(q = wf_fast_f32(q, &value)) || !ends_token(*q))
        return careful_item(f, p, end, line);
    return add(f, line, field, index, value, p, end, q);
}

static const char *head(const char *p, const char *end, struct wf_libsvm_line *line)
{
    const char *q = p;

    while (q < end && !ends_token(*q))
        q++;
    if (!wf_parse_f32(p, q - p, &line->label))
        return fail(line, p, end, "the label is not a number");
    p = q;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    if (end - p < 4 || memcmp(p, "qid:", 4) != 0)
        return p;
    for (q = p; q < end && !ends_token(*q);)
        q++;
    if (!wf_parse_i64(p + 4, q - p - 4, &line->qid))
        return fail(line, p, end, "the qid is not a number");
    line->has_qid = true;
    return q;
}

const char *wf_libsvm_parse(const struct wf_libsvm_format *f, const char *p, const char *end,
                            struct wf_libsvm_line *line)
{
    line->n = 0;
    line->qid = 0;
    line->has_qid = false;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    p = head(p, end, line);
    while (p) {
        while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
            p++;
        if (p < end && *p == '#') {
            p = memchr(p, '\n', (size_t)(end - p));
            return p ? p + 1 : end;
        }
        if (p == end || *p == '\n')
            return p == end ? end : p + 1;
        p = item(f, p, end, line);
    }
    return NULL;
}
