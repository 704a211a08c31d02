/* sqlite.c - rows of a SQLite query, stepped through one by one.
 * A statement belongs to its stage; stepping happens in pull, by one thread at a time. */
#include "base/library.h"
#include "data/table/sql.h"

#ifdef WF_HAVE_SQLITE
#include <sqlite3.h>
#include <stdio.h>

/* ---- the library ----------------------------------------------------------------------------- */

/* clang-format off */
#define CALLS(_) \
    _(open_v2) _(close) _(prepare_v2) _(step) _(finalize) _(column_count) _(column_name) \
    _(column_decltype) _(column_type) _(column_int64) _(column_double) _(column_text) \
    _(column_blob) _(column_bytes) _(errmsg) _(progress_handler) _(busy_timeout)
/* clang-format on */
#define MEMBER(name) __typeof__(sqlite3_##name) *name;
#define ENTRY(name) {"sqlite3_" #name, offsetof(struct calls, name)},

struct calls {
    CALLS(MEMBER)
};
static const struct wf_dl_call call_list[] = {CALLS(ENTRY)};
static const char *const library[] = {"libsqlite3.so.0", "libsqlite3.so", NULL};

/* ---- a query --------------------------------------------------------------------------------- */

struct source {
    struct wf_sql sql;
    struct calls f;
    const char *path;
};

struct state {
    struct wf_sql_state sql;
    sqlite3 *db;
    sqlite3_stmt *stmt;
};

/* Work between two checks whether the iterator is being closed: well below a millisecond. */
#define PROGRESS_STEPS 10000
#define BUSY_MS 10000
#define MAX_ROWS 4096
#define BLOCK_TEXT (8 << 20)

static int on_progress(void *arg)
{
    return wf_sql_stopping(&((struct state *)arg)->sql);
}

static weft_status lite_err(const struct source *src, struct state *t, weft_status st,
                            const char *what)
{
    return wf_err(st, "%s: %s: %s", src->path, what,
                  t->db ? src->f.errmsg(t->db) : "out of memory");
}

static weft_status start(const struct source *src, struct state *t)
{
    const char *tail = NULL;

    if (src->f.open_v2(src->path, &t->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL))
        return lite_err(src, t, WEFT_ENOENT, "cannot open");
    src->f.busy_timeout(t->db, BUSY_MS);
    src->f.progress_handler(t->db, PROGRESS_STEPS, on_progress, t);
    if (src->f.prepare_v2(t->db, src->sql.query, -1, &t->stmt, &tail))
        return lite_err(src, t, WEFT_EINVAL, "the query");
    if (!t->stmt || (tail && *tail))
        return wf_err(WEFT_EINVAL, "%s: the query must be one statement", src->path);
    return WEFT_OK;
}

static void finish(const struct wf_sql *sql, void *state)
{
    const struct source *src = (const struct source *)sql;
    struct state *t = state;

    if (t->stmt)
        src->f.finalize(t->stmt);
    if (t->db)
        src->f.close(t->db);
    t->stmt = NULL;
    t->db = NULL;
}

static weft_status step(const struct source *src, struct state *t, bool *row)
{
    int rc = src->f.step(t->stmt);
    char what[48];

    *row = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW || rc == SQLITE_DONE)
        return WEFT_OK;
    if (rc == SQLITE_INTERRUPT)
        return wf_err(WEFT_ECANCEL, "%s: the query was interrupted", src->path);
    snprintf(what, sizeof what, "row %lld", (long long)t->sql.id);
    return lite_err(src, t, WEFT_EIO, what);
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool fits(enum wf_field_kind kind, int64_t v)
{
    switch (kind) {
    case WF_FIELD_I32: return v >= INT32_MIN && v <= INT32_MAX;
    case WF_FIELD_I8: return v >= -128 && v <= 127;
    case WF_FIELD_U8: return v >= 0 && v <= 255;
    case WF_FIELD_BOOL: return v == 0 || v == 1;
    default: return true;
    }
}

/* A number that is stored as one. False: treat it as text. */
static bool stored_number(const struct source *src, sqlite3_stmt *stmt, int i, int type,
                          enum wf_field_kind kind, union wf_field_value *v)
{
    bool to_float = kind == WF_FIELD_F32 || kind == WF_FIELD_F64;
    double d;

    if (kind == WF_FIELD_STR || kind == WF_FIELD_HEX)
        return false;
    if (type == SQLITE_INTEGER) {
        int64_t whole = src->f.column_int64(stmt, i);

        if (to_float)
            v->f = (double)whole;
        else
            v->i = whole;
        return to_float || fits(kind, whole);
    }
    if (type != SQLITE_FLOAT)
        return false;
    d = src->f.column_double(stmt, i);
    if (to_float) {
        v->f = d;
        return true;
    }
    if (!(d >= -9e15 && d <= 9e15) || d != (double)(int64_t)d)
        return false;
    v->i = (int64_t)d;
    return fits(kind, v->i);
}

static weft_status put_value(const struct source *src, sqlite3_stmt *stmt, int i,
                             const struct wf_field *f, struct wf_sql_text *text, char *to)
{
    int type = src->f.column_type(stmt, i);
    union wf_field_value v;
    const char *p;
    int64_t n;

    if (type == SQLITE_NULL)
        return wf_sql_null(f, to);
    if (!stored_number(src, stmt, i, type, f->kind, &v)) {
        weft_status st = WEFT_OK;

        p = type == SQLITE_BLOB ? src->f.column_blob(stmt, i)
                                : (const char *)src->f.column_text(stmt, i);
        n = src->f.column_bytes(stmt, i);
        if (f->kind == WF_FIELD_STR)
            st = wf_sql_copy(text, p, n, &v.s);
        else if (!p || type == SQLITE_FLOAT || type == SQLITE_INTEGER ||
                 !wf_field_convert(f->kind, p, n, &v))
            return wf_sql_mismatch(f, p ? p : "", p ? n : 0);
        if (st)
            return st;
    }
    wf_field_store(f->kind, &v, to);
    return WEFT_OK;
}

static weft_status put_row(const struct source *src, struct state *t, struct wf_sql_text *text,
                           const struct wf_field_place *place, int64_t r)
{
    for (int i = 0; i < src->sql.layout.n_fields; i++) {
        weft_status st = put_value(src, t->stmt, i, &src->sql.layout.field[i], text,
                                   place[i].data + r * place[i].stride);

        if (st)
            return wf_err_wrap(st, "%s: row %lld", src->path, (long long)t->sql.id);
    }
    return WEFT_OK;
}

/* ---- the stage ------------------------------------------------------------------------------- */

/* Fill b from the next rows; b->n becomes their number. */
static weft_status fill(struct wf_stage *s, struct wf_block *b)
{
    struct source *src = s->ds->param;
    struct state *t = s->state;
    struct wf_field_place *place = NULL;
    struct wf_sql_text text = {.b = b};
    int64_t r = 0, most = b->n;
    weft_status st = wf_table_places(&src->sql.layout, b, &place);

    while (!st && r < most && text.n < BLOCK_TEXT) {
        bool row;

        st = step(src, t, &row);
        if (st)
            break;
        if (!row) {
            t->sql.ended = true;
            break;
        }
        st = put_row(src, t, &text, place, r);
        b->at[r] = (struct wf_at){t->sql.epoch, t->sql.id};
        r++;
        t->sql.id++;
    }
    b->n = r;
    return st;
}

static weft_status lite_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct state *t = s->state;
    struct wf_block *b = NULL;
    weft_status st = WEFT_OK;

    *out = NULL;
    if (t->sql.ended)
        return WEFT_OK;
    if (!t->stmt)
        st = start(s->ds->param, t);
    if (!st)
        st = wf_table_block(s->ds, s->env, wf_min_i64(want, MAX_ROWS), false, &b);
    if (!st)
        st = fill(s, b);
    if (st || b->n == 0) {
        wf_block_free(b);
        return st;
    }
    *out = wf_promise_made(s, b);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

/* The rows before the position are stepped over. */
static weft_status lite_restore(struct wf_stage *s, struct wf_reader *r)
{
    const struct source *src = s->ds->param;
    struct state *t = s->state;
    int64_t id = 0;
    bool row = true;
    weft_status st = wf_sql_position(s, r, &id);

    if (!st && id > 0)
        st = start(src, t);
    while (!st && t->sql.id < id && row) {
        st = step(src, t, &row);
        t->sql.id += row;
    }
    if (!st && t->sql.id < id)
        st = wf_err_wrap(wf_sql_too_few(t->sql.id, id), "%s", src->path);
    return st;
}

static void lite_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct source *src = ds->param;

    wf_buf_printf(out, "%s: %s", src->path, src->sql.query);
}

static const char *lite_file(const struct wf_ds *ds, int64_t i)
{
    return i ? NULL : ((const struct source *)ds->param)->path;
}

static const struct wf_ds_kind lite_kind = {
    .name = "sqlite",
    .open = wf_sql_open,
    .close = wf_sql_close,
    .reset = wf_sql_reset,
    .pull = lite_pull,
    .save = wf_sql_save,
    .restore = lite_restore,
    .text = lite_text,
    .file = lite_file,
};

/* ---- building -------------------------------------------------------------------------------- */

static bool holds(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (; *text; text++) {
        size_t i = 0;

        while (i < n && text[i] && (text[i] & ~0x20) == word[i])
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* From the declared type, by SQLite's rules; WF_FIELD_SKIP: only a value will tell. */
static enum wf_field_kind declared_kind(const char *type)
{
    if (!type)
        return WF_FIELD_SKIP;
    if (holds(type, "INT") || holds(type, "BOOL"))
        return WF_FIELD_I64;
    if (holds(type, "CHAR") || holds(type, "CLOB") || holds(type, "TEXT") || holds(type, "BLOB"))
        return WF_FIELD_STR;
    if (holds(type, "REAL") || holds(type, "FLOA") || holds(type, "DOUB") || holds(type, "NUM") ||
        holds(type, "DEC"))
        return WF_FIELD_F32;
    return WF_FIELD_SKIP;
}

static weft_status describe(struct wf_ds *ds, const weft_sql_opts *o, struct state *t)
{
    struct source *src = ds->param;
    const char **name = NULL;
    enum wf_field_kind *kind = NULL;
    bool row = false;
    int n;
    weft_status st = start(src, t);

    if (st)
        return st;
    n = src->f.column_count(t->stmt);
    if (n < 1)
        return wf_err(WEFT_EINVAL, "%s: the query returns no columns", src->path);
    st = wf_table_alloc(ds->data, n, sizeof *name, &name);
    if (!st)
        st = wf_table_alloc(ds->data, n, sizeof *kind, &kind);
    if (!st)
        st = step(src, t, &row);
    for (int i = 0; i < n && !st; i++) {
        const char *text = src->f.column_name(t->stmt, i);
        int type = row ? src->f.column_type(t->stmt, i) : SQLITE_TEXT;

        name[i] = text ? wf_table_text(ds->data, text, (int64_t)strlen(text)) : NULL;
        st = name[i] ? WEFT_OK : WEFT_ENOMEM;
        kind[i] = declared_kind(src->f.column_decltype(t->stmt, i));
        if (kind[i] == WF_FIELD_SKIP)
            kind[i] = type == SQLITE_INTEGER                        ? WF_FIELD_I64
                      : type == SQLITE_FLOAT || type == SQLITE_NULL ? WF_FIELD_F32
                                                                    : WF_FIELD_STR;
    }
    return st ? st : wf_sql_columns(ds, n, name, kind, o, &src->sql.layout);
}

/* SQLite opens the file itself, so it does not see one that another task lends. */
static bool is_lent(const weft_ctx *ctx, const char *path)
{
    struct wf_file_info info;

    return ctx->fs->stat(ctx->fs->arg, path, &info) == 0 &&
           wf_fs_posix.stat(wf_fs_posix.arg, path, &info) != 0;
}

static weft_status build(struct wf_ds *ds, const char *path, const weft_sql_opts *o)
{
    struct source *src = ds->param;
    struct state t = {.db = NULL};
    weft_status st = wf_dl_load(library, "libsqlite3-0", call_list, WF_COUNT(call_list), &src->f);

    if (st)
        return st;
    src->path = wf_table_text(ds->data, path, (int64_t)strlen(path));
    if (!src->path)
        return WEFT_ENOMEM;
    st = describe(ds, o, &t);
    finish(&src->sql, &t);
    if (st == WEFT_ENOENT && is_lent(ds->data->ctx, path))
        st = wf_err(WEFT_ENOENT,
                    "%s is not on this machine, and databases are not lent by other tasks, as "
                    "other data files are: copy it here",
                    path);
    return st;
}

weft_ds weft_ds_sqlite(weft_data *d, const char *path, const char *query, const weft_sql_opts *opts)
{
    static const struct wf_sql_calls calls = {sizeof(struct state), finish};

    return wf_sql_new(d, &lite_kind, &calls, sizeof(struct source), path, query, opts, build);
}

#else /* no headers when this was built */

weft_ds weft_ds_sqlite(weft_data *d, const char *path, const char *query, const weft_sql_opts *opts)
{
    (void)path;
    (void)query;
    (void)opts;
    return wf_ds_fail(
        d, "sqlite",
        wf_err(WEFT_ENOSUP, "this build has no SQLite: install libsqlite3-dev and build again"));
}

#endif
