/* open.c - detects the format of a file, and opens it with that format's defaults. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/number.h"
#include "data/record/example.h"
#include "data/file/files.h"
#include "data/record/record.h"
#include "weft/data_array.h"
#include "weft/data_image.h"
#include "weft/data_open.h"
#include "weft/data_record.h"
#include "weft/data_table.h"

#define HEAD_BYTES (64 << 10)

static const char *const names[WEFT_N_FORMATS] = {
    "unknown", "tfrecord", "csv", "criteo", "libsvm", "lines",
    "idx",     "npy",      "npz", "images", "sqlite", "bytes",
};

const char *weft_format_name(weft_format f)
{
    return f >= 0 && f < WEFT_N_FORMATS ? names[f] : names[0];
}

weft_format weft_format_parse(const char *name)
{
    for (int f = 1; f < WEFT_N_FORMATS; f++)
        if (strcmp(names[f], name) == 0)
            return (weft_format)f;
    return WEFT_FORMAT_UNKNOWN;
}

/* ---- telling by the first bytes -------------------------------------------------------------- */

static bool is_tfrecord(const char *p, int64_t n)
{
    int64_t bytes;

    return n >= WF_RECORD_HEAD && wf_record_head(p, &bytes);
}

static bool is_idx(const char *p, int64_t n)
{
    static const char types[] = {0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e};

    return n >= 8 && p[0] == 0 && p[1] == 0 && memchr(types, p[2], sizeof types) && p[3] >= 1 &&
           p[3] <= WEFT_MAX_RANK;
}

static bool is_text(const char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f')
            return false;
    }
    return n > 0;
}

/* In the first line: counts each possible delimiter outside quotes; the most frequent one. */
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

/* 40 (or 39) fields separated by tabs, the last with eight hexadecimal digits or empty. */
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

static weft_format by_content(const char *p, int64_t n)
{
    if (n >= 16 && memcmp(p, "SQLite format 3", 16) == 0)
        return WEFT_FORMAT_SQLITE;
    if (n >= 6 && memcmp(p, "\x93NUMPY", 6) == 0)
        return WEFT_FORMAT_NPY;
    if (n >= 4 && memcmp(p, "PK\x03\x04", 4) == 0)
        return WEFT_FORMAT_NPZ;
    if (is_tfrecord(p, n))
        return WEFT_FORMAT_TFRECORD;
    if (is_idx(p, n))
        return WEFT_FORMAT_IDX;
    if (!is_text(p, n))
        return WEFT_FORMAT_UNKNOWN;
    if (is_criteo(p, n))
        return WEFT_FORMAT_CRITEO;
    if (is_libsvm(p, n))
        return WEFT_FORMAT_LIBSVM;
    return find_delimiter(p, n) ? WEFT_FORMAT_CSV : WEFT_FORMAT_LINES;
}

/* A path that is not a list, as the system knows it: "\," is a comma here, too. */
static const char *plain_path(struct wf_arena *a, const char *path)
{
    char *plain = path && strstr(path, "\\,") ? wf_arena_strdup(a, path) : NULL, *to = plain;

    for (const char *p = plain; p && *p; p++)
        if (p[0] != '\\' || p[1] != ',')
            *to++ = *p;
    if (plain)
        *to = '\0';
    return plain ? plain : path;
}

static bool is_folder(weft_ctx *ctx, const char *path)
{
    struct wf_arena a;
    struct stat s;
    bool yes;

    wf_arena_init(&a, ctx);
    yes = stat(plain_path(&a, path), &s) == 0 && S_ISDIR(s.st_mode);
    wf_arena_free(&a);
    return yes;
}

/* The first file of a pattern or list, in the arena of a temporary pipeline. */
static weft_status first_file(weft_data *d, const char *path, const char **out)
{
    struct wf_files files;
    weft_status st = wf_files_find(d, path, NULL, &files);

    if (!st)
        *out = files.path[0];
    return st;
}

weft_status weft_format_of(weft_ctx *ctx, const char *path, weft_format *out)
{
    weft_data *d = NULL;
    const char *file = NULL;
    char *head = NULL;
    int64_t n = 0;
    bool whole;
    weft_status st;

    if (is_folder(ctx, path)) {
        *out = WEFT_FORMAT_IMAGES;
        return WEFT_OK;
    }
    st = weft_data_new(ctx, &d);
    if (!st)
        st = first_file(d, path, &file);
    if (!st)
        st = wf_unpack_head(ctx, file, NULL, HEAD_BYTES, &head, &n, &whole);
    if (!st && n == 0)
        st = wf_err(WEFT_EPARSE, "%s: the file is empty", file);
    if (!st) {
        *out = by_content(head, n);
        if (*out == WEFT_FORMAT_UNKNOWN)
            st = wf_err(WEFT_EPARSE, "%s: not TFRecord, CSV, LibSVM, IDX, npy, npz, SQLite or text",
                        file);
    }
    wf_free(ctx, head);
    weft_data_free(d);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static weft_ds open_tfrecord(weft_data *d, const char *path, const weft_open_opts *o)
{
    weft_ds s = weft_ds_tfrecord(
        d, path, WEFT_OPTS(weft_tfrecord_opts, .index = o->index, .on_error = o->on_error));
    weft_example_feature *features = NULL;
    int n = 0;
    weft_status st = weft_data_status(d);

    if (!st)
        st = wf_example_infer(d, path, o->on_error, &n, &features);
    if (st)
        return wf_ds_fail(d, "open", st);
    if (n == 0)
        return s; /* records that are not Examples: their bytes */
    return weft_ds_example(d, s, n, features,
                           WEFT_OPTS(weft_example_opts, .on_error = o->on_error));
}

/* Whether the first line is a header: if none of its fields is a number. */
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

static weft_ds open_csv(weft_data *d, const char *path, const weft_open_opts *o)
{
    weft_csv_opts c = {
        .size = sizeof c, .types = o->types, .index = o->index, .on_error = o->on_error};
    const char *file = NULL;
    char *head = NULL;
    int64_t n = 0;
    bool whole;
    weft_status st = first_file(d, path, &file);

    if (!st)
        st = wf_unpack_head(d->ctx, file, NULL, HEAD_BYTES, &head, &n, &whole);
    if (st)
        return wf_ds_fail(d, "csv", st);
    c.delimiter = find_delimiter(head, n);
    c.no_header = !has_header(head, n, c.delimiter ? c.delimiter : ',');
    wf_free(d->ctx, head);
    return weft_ds_csv(d, path, &c);
}

/* The column for an array's file. */
static const char *column_of(weft_data *d, const char *path)
{
    const char *base = strrchr(path, '/');
    char *stem = wf_arena_strdup(&d->arena, base ? base + 1 : path), *dot;

    if (!stem)
        return NULL;
    if (strstr(stem, "image"))
        return "image";
    if (strstr(stem, "label"))
        return "label";
    dot = strchr(stem, '.');
    if (dot && dot != stem)
        *dot = 0;
    return stem;
}

static weft_ds open_arrays(weft_data *d, const char *path, bool idx)
{
    struct wf_files files;
    weft_array_file *list;
    weft_status st = wf_files_find(d, path, NULL, &files);

    if (st)
        return wf_ds_fail(d, idx ? "idx" : "npy", st);
    list = wf_arena_alloc(&d->arena, (size_t)files.n * sizeof *list);
    if (!list)
        return wf_ds_fail(d, "open", wf_err(WEFT_ENOMEM, "out of memory"));
    for (int64_t i = 0; i < files.n; i++) {
        list[i] = (weft_array_file){column_of(d, files.path[i]), files.path[i]};
        if (!list[i].column)
            return wf_ds_fail(d, "open", wf_err(WEFT_ENOMEM, "out of memory"));
    }
    return idx ? weft_ds_idx(d, (int)files.n, list, NULL)
               : weft_ds_npy(d, (int)files.n, list, NULL);
}

/* Concatenates npz files. */
static weft_ds open_npz(weft_data *d, const char *path)
{
    struct wf_files files;
    weft_ds *each;
    weft_status st = wf_files_find(d, path, NULL, &files);

    if (st)
        return wf_ds_fail(d, "npz", st);
    each = wf_arena_alloc(&d->arena, (size_t)files.n * sizeof *each);
    if (!each)
        return wf_ds_fail(d, "open", wf_err(WEFT_ENOMEM, "out of memory"));
    for (int64_t i = 0; i < files.n; i++)
        each[i] = weft_ds_npz(d, files.path[i], NULL, NULL);
    return files.n == 1 ? each[0] : weft_ds_concat(d, (int)files.n, each);
}

static weft_ds open_bytes(weft_data *d, const char *path, const weft_open_opts *o)
{
    return weft_ds_fixed(
        d, path, 0,
        WEFT_OPTS(weft_fixed_opts, .dtype = WEFT_U8, .column = "byte", .on_error = o->on_error));
}

/* Tables and the query that reads each: quoted names, with inner quotes doubled; in the order of
 * row ids, or of the primary key if rows have none. A column may have the name of the row id, but
 * hardly all three of its names. */
static const char table_queries[] =
    "SELECT name, 'SELECT * FROM \"' || replace(name, '\"', '\"\"') || '\" ORDER BY ' || coalesce("
    "(SELECT group_concat('\"' || replace(i.name, '\"', '\"\"') || '\"', ', ')"
    " FROM pragma_index_info(m.name) AS i),"
    "(SELECT w.word FROM (SELECT 1 AS k, 'rowid' AS word UNION SELECT 2, '_rowid_' UNION"
    " SELECT 3, 'oid') AS w WHERE w.word NOT IN"
    " (SELECT lower(c.name) FROM pragma_table_info(m.name) AS c) ORDER BY w.k LIMIT 1)) AS query"
    " FROM sqlite_master AS m WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " ORDER BY name";

/* The only table of a database, read by a query for it, in the arena. */
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

static weft_ds open_sqlite(weft_data *d, const char *path, const weft_open_opts *o)
{
    char *query = NULL;
    weft_status st = o->query ? WEFT_OK : only_table(d, path, &query);

    if (st)
        return wf_ds_fail(d, "sqlite", st);
    return weft_ds_sqlite(d, path, o->query ? o->query : query,
                          WEFT_OPTS(weft_sql_opts, .types = o->types));
}

static weft_ds open_format(weft_data *d, const char *path, weft_format f, const weft_open_opts *o)
{
    switch (f) {
    case WEFT_FORMAT_TFRECORD: return open_tfrecord(d, path, o);
    case WEFT_FORMAT_CSV: return open_csv(d, path, o);
    case WEFT_FORMAT_CRITEO:
        return weft_ds_criteo(
            d, path, WEFT_OPTS(weft_criteo_opts, .index = o->index, .on_error = o->on_error));
    case WEFT_FORMAT_LIBSVM:
        return weft_ds_libsvm(d, path, WEFT_OPTS(weft_libsvm_opts, .on_error = o->on_error));
    case WEFT_FORMAT_LINES:
        return weft_ds_lines(d, path, WEFT_OPTS(weft_lines_opts, .on_error = o->on_error));
    case WEFT_FORMAT_IDX: return open_arrays(d, path, true);
    case WEFT_FORMAT_NPY: return open_arrays(d, path, false);
    case WEFT_FORMAT_NPZ: return open_npz(d, path);
    case WEFT_FORMAT_IMAGES:
        return weft_ds_image_folder(
            d, plain_path(&d->arena, path),
            WEFT_OPTS(weft_image_opts, .height = o->height, .width = o->width,
                      .channels = o->channels ? o->channels
                                  : o->height ? 3
                                              : 0,
                      .on_error = o->on_error, .n_classes = o->n_classes, .classes = o->classes));
    case WEFT_FORMAT_SQLITE: return open_sqlite(d, plain_path(&d->arena, path), o);
    case WEFT_FORMAT_BYTES: return open_bytes(d, path, o);
    default: return wf_ds_fail(d, "open", wf_err(WEFT_EINVAL, "format %d does not exist", (int)f));
    }
}

weft_ds weft_ds_open(weft_data *d, const char *path, const weft_open_opts *opts)
{
    static const weft_open_opts defaults = {.size = sizeof defaults};
    const weft_open_opts *o = opts ? opts : &defaults;
    weft_ds s;
    weft_status st = wf_opts_check(opts, sizeof *opts, "weft_open_opts");
    weft_format f = st ? WEFT_FORMAT_UNKNOWN : o->format;

    if (!st && f == WEFT_FORMAT_UNKNOWN)
        st = weft_format_of(d->ctx, path, &f);
    if (st)
        return wf_ds_fail(d, "open", st);
    s = open_format(d, path, f, o);
    if (o->columns)
        s = weft_ds_select(d, s, o->columns);
    if (o->label)
        s = weft_ds_role(d, s, o->label, WEFT_LABEL);
    if (o->weight)
        s = weft_ds_role(d, s, o->weight, WEFT_WEIGHT);
    return s;
}
