/* open.c - tables whose format was found out: CSV, Criteo, LibSVM, SQLite. */
#include <stdio.h>

#include "base/number.h"
#include "data/file/files.h"
#include "data/source/formats.h"
#include "weft/data_table.h"

/* ---- telling by the first bytes -------------------------------------------------------------- */

/* Of the first line: how often each possible delimiter occurs outside quotes; the most frequent
 * one. */
static char find_delimiter(const char *p, int64_t n)
{
    static const char delimiters[] = ",\t;|";
    int count[4] = {0}, best = 0;
    bool quoted = false;

    for (int64_t i = 0; i < n && (p[i] != '\n' || quoted); i++) {
        const char *d = p[i] ? strchr(delimiters, p[i]) : NULL;

        if (p[i] == '"')
            quoted = !quoted;
        else if (d && !quoted)
            count[d - delimiters]++;
    }
    for (int k = 1; k < 4; k++)
        if (count[k] > count[best])
            best = k;
    return count[best] ? delimiters[best] : 0;
}

int wf_looks_csv(const char *p, int64_t n)
{
    return wf_looks_text(p, n) && find_delimiter(p, n) ? WF_LOOKS_TEXT : 0;
}

/* "-1 3:0.5 7:1": a number, then pairs. */
static bool is_libsvm(const char *p, int64_t n)
{
    int64_t i = 0, pairs = 0;

    while (i < n && (wf_is_digit(p[i]) || strchr("+-.eE", p[i])))
        i++;
    if (i == 0)
        return false;
    while (i < n && p[i] != '\n' && p[i] != '#') {
        int64_t start;

        while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r'))
            i++;
        start = i;
        while (i < n && (wf_is_digit(p[i]) || (i == start && !strncmp(p + i, "qid", 3))))
            i += p[i] == 'q' ? 3 : 1;
        if (i >= n || p[i] == '\n' || p[i] == '#')
            break;
        if (p[i] != ':')
            return false;
        pairs++;
        while (i < n && !wf_is_space(p[i]))
            i++;
    }
    return pairs > 0;
}

int wf_looks_libsvm(const char *p, int64_t n)
{
    return wf_looks_text(p, n) && is_libsvm(p, n) ? WF_LOOKS_LIKELY : 0;
}

/* 40 (or 39) fields with tabs, the last of eight hexadecimal digits or empty. */
static bool is_criteo(const char *p, int64_t n)
{
    const char *end = memchr(p, '\n', (size_t)n), *last = p;
    int tabs = 0;

    end = end ? end : p + n;
    for (const char *q = p; q < end; q++)
        if (*q == '\t') {
            tabs++;
            last = q + 1;
        }
    if (tabs != 39 && tabs != 38)
        return false;
    for (const char *q = last; q < end && *q != '\r'; q++)
        if (!wf_is_xdigit(*q))
            return false;
    return !wf_is_alpha(p[0]);
}

int wf_looks_criteo(const char *p, int64_t n)
{
    return wf_looks_text(p, n) && is_criteo(p, n) ? WF_LOOKS_LIKELY + 1 : 0;
}

int wf_looks_sqlite(const char *p, int64_t n)
{
    return n >= 16 && memcmp(p, "SQLite format 3", 16) == 0 ? WF_LOOKS_MAGIC : 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Is the first line a header? It is when none of its fields is a number. */
static bool has_header(const char *p, int64_t n, char delimiter)
{
    const char *end = memchr(p, '\n', (size_t)n);

    end = end ? end : p + n;
    while (p < end) {
        const char *q = memchr(p, delimiter, (size_t)(end - p));
        const char *last = q ? q : end;
        double v;

        while (p < last && wf_is_space(*p))
            p++;
        if (p < last && last[-1] == '\r')
            last--;
        if (wf_parse_f64(p, last - p, &v))
            return false;
        p = q ? q + 1 : end;
    }
    return true;
}

weft_ds wf_open_csv(weft_data *d, const char *path, const weft_open_opts *o)
{
    weft_csv_opts c = {.size = sizeof c,
                       .types = o->types,
                       .label = o->label,
                       .index = o->index,
                       .on_error = o->on_error};
    const char *file = NULL;
    char *head = NULL;
    int64_t n = 0;
    bool whole;
    weft_status st = wf_first_file(d, path, &file);

    if (!st)
        st = wf_unpack_head(d->ctx, file, NULL, WF_HEAD_BYTES, &head, &n, &whole);
    if (st)
        return wf_ds_fail(d, "csv", st);
    c.delimiter = find_delimiter(head, n);
    c.no_header = !has_header(head, n, c.delimiter ? c.delimiter : ',');
    wf_free(d->ctx, head);
    return weft_ds_csv(d, path, &c);
}

weft_ds wf_open_criteo(weft_data *d, const char *path, const weft_open_opts *o)
{
    return weft_ds_criteo(d, path,
                          WEFT_OPTS(weft_criteo_opts, .index = o->index, .on_error = o->on_error));
}

weft_ds wf_open_libsvm(weft_data *d, const char *path, const weft_open_opts *o)
{
    return weft_ds_libsvm(d, path, WEFT_OPTS(weft_libsvm_opts, .on_error = o->on_error));
}

/* Tables and the query that reads each: names in quotes, those in them doubled; in the order of
 * the rows' numbers, or of the primary key where rows have none. A column may have the name of a
 * row's number, but hardly all three of its names. */
static const char table_queries[] =
    "SELECT name, 'SELECT * FROM \"' || replace(name, '\"', '\"\"') || '\" ORDER BY ' || coalesce("
    "(SELECT group_concat('\"' || replace(i.name, '\"', '\"\"') || '\"', ', ')"
    " FROM pragma_index_info(m.name) AS i),"
    "(SELECT w.word FROM (SELECT 1 AS k, 'rowid' AS word UNION SELECT 2, '_rowid_' UNION"
    " SELECT 3, 'oid') AS w WHERE w.word NOT IN"
    " (SELECT lower(c.name) FROM pragma_table_info(m.name) AS c) ORDER BY w.k LIMIT 1)) AS query"
    " FROM sqlite_master AS m WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " ORDER BY name";

/* The only table of a database, read by a query of its own, in the arena. */
static weft_status only_table(weft_data *d, const char *path, char **query)
{
    weft_data *side = NULL;
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    char list[512] = "";
    int n = 0;
    size_t at = 0;
    weft_status st = weft_data_new(d->ctx, &side);

    if (!st)
        st = weft_iter_new(side, weft_ds_sqlite(side, path, table_queries, NULL),
                           WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        const weft_str *name = b->col[0].data, *text = b->col[1].data;

        if (n++ == 0) {
            *query = wf_arena_alloc(&d->arena, (size_t)text->n + 1);
            if (*query && text->n)
                memcpy(*query, text->data, (size_t)text->n);
            st = *query ? WEFT_OK : wf_err_nomem(d->ctx, (size_t)text->n, "a query");
        }
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%.*s", n > 1 ? ", " : "",
                                   (int)name->n, name->data);
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(side);
    if (st)
        return st;
    if (n == 1)
        return WEFT_OK;
    return n ? wf_err(WEFT_EINVAL, "%s has %d tables (%s): give a query", path, n, list)
             : wf_err(WEFT_EINVAL, "%s has no table", path);
}

weft_ds wf_open_sqlite(weft_data *d, const char *list, const weft_open_opts *o)
{
    const char *path = wf_plain_path(&d->arena, list);
    char *query = NULL;
    weft_status st = o->query ? WEFT_OK : only_table(d, path, &query);

    if (st)
        return wf_ds_fail(d, "sqlite", st);
    return weft_ds_sqlite(d, path, o->query ? o->query : query,
                          WEFT_OPTS(weft_sql_opts, .types = o->types));
}
