/* postgres.c - rows of a PostgreSQL query, fetched through a cursor.
 *
 * A connection belongs to its stage. Pulling fetches rows as text, about a megabyte at a time; they
 * are parsed when the promise is made. Waiting for the server ends early if the iterator is being
 * closed. Error texts never contain the password. */
#define _POSIX_C_SOURCE 200809L
#include "base/number.h"
#include "base/library.h"
#include "data/table/sql.h"

#ifdef WF_HAVE_PQ
#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the library ----------------------------------------------------------------------------- */

/* clang-format off */
#define CALLS(_) \
    _(PQconnectdbParams) _(PQfinish) _(PQstatus) _(PQerrorMessage) _(PQpass) _(PQhost) \
    _(PQdb) _(PQsocket) _(PQsendQueryParams) _(PQconsumeInput) _(PQisBusy) _(PQflush) \
    _(PQgetResult) _(PQgetCancel) _(PQcancel) _(PQfreeCancel) _(PQclear) _(PQresultStatus) \
    _(PQresultErrorMessage) _(PQntuples) _(PQnfields) _(PQfname) _(PQftype) _(PQgetvalue) \
    _(PQgetlength) _(PQgetisnull) _(PQcmdTuples) _(PQresultMemorySize) _(PQconninfoParse) \
    _(PQconninfoFree) _(PQfreemem) _(PQsetNoticeProcessor)
/* clang-format on */
#define MEMBER(name) __typeof__(name) *name;
#define ENTRY(name) {#name, offsetof(struct calls, name)},

struct calls {
    CALLS(MEMBER)
};
static const struct wf_dl_call call_list[] = {CALLS(ENTRY)};
static const char *const library[] = {"libpq.so.5", "libpq.so", NULL};

/* ---- a connection ---------------------------------------------------------------------------- */

struct source {
    struct wf_sql sql;
    weft_ctx *ctx;
    struct calls f;
    const char *conninfo;
    const char *declare; /* the command that opens the cursor */
    char timeout[16];
    bool *is_bytes; /* by field: bytea */
};

struct state {
    struct wf_sql_state sql;
    PGconn *conn;
    bool connected; /* once */
    int64_t fetch;  /* rows of the next fetch */
};

#define FIRST_FETCH 256
#define MOST_FETCH 65536
#define FETCH_BYTES (1 << 20)
#define LOOK_MS 100

/* Append text on one line, the password starred should it be in there. */
static void add_text(struct wf_buf *line, const char *text, const char *pass)
{
    size_t n = pass ? strlen(pass) : 0;

    for (const char *p = text; p && *p;) {
        if (n && !strncmp(p, pass, n)) {
            wf_buf_printf(line, "***");
            p += n;
        } else {
            wf_buf_printf(line, "%c", (unsigned char)*p < ' ' ? ' ' : *p);
            p++;
        }
    }
}

/* "database 'train' at db: what: libpq's text" */
static weft_status pq_err(const struct source *src, const struct state *t, weft_status st,
                          const char *what, const char *text)
{
    const char *pass = src->f.PQpass(t->conn);
    struct wf_buf line;

    wf_buf_init(&line, src->ctx, 4096);
    wf_buf_printf(&line, "database '");
    add_text(&line, src->f.PQdb(t->conn), pass);
    wf_buf_printf(&line, "' at ");
    add_text(&line, src->f.PQhost(t->conn), pass);
    if (src->f.PQstatus(t->conn) != CONNECTION_OK && t->connected) {
        wf_buf_printf(&line, ": the connection is lost");
        st = WEFT_EIO;
    }
    wf_buf_printf(&line, ": %s: ", what);
    add_text(&line, text, pass);
    while (line.len > 0 && line.data[line.len - 1] == ' ')
        line.data[--line.len] = 0;
    st = wf_err(st, "%s", line.data ? line.data : what);
    wf_buf_free(&line);
    return st;
}

/* Waits until the whole result of the command is available. */
static weft_status wait_result(const struct source *src, struct state *t, const char *what)
{
    const struct calls *f = &src->f;

    for (;;) {
        struct pollfd p = {.fd = f->PQsocket(t->conn), .events = POLLIN};
        int flush = f->PQflush(t->conn);

        if (flush < 0 || !f->PQconsumeInput(t->conn))
            return pq_err(src, t, WEFT_EIO, what, f->PQerrorMessage(t->conn));
        if (!flush && !f->PQisBusy(t->conn))
            return WEFT_OK;
        if (wf_sql_stopping(&t->sql))
            return wf_err(WEFT_ECANCEL, "%s: the query was interrupted", what);
        if (flush)
            p.events |= POLLOUT;
        if (poll(&p, 1, LOOK_MS) < 0 && errno != EINTR)
            return wf_err(WEFT_EIO, "%s: poll failed", what);
    }
}

/* Runs one command; *out, if requested, is its result. */
static weft_status command(const struct source *src, struct state *t, const char *sql,
                           const char *what, PGresult **out)
{
    const struct calls *f = &src->f;
    PGresult *res = NULL, *more;
    ExecStatusType how;
    weft_status st;

    if (!f->PQsendQueryParams(t->conn, sql, 0, NULL, NULL, NULL, NULL, 0))
        return pq_err(src, t, WEFT_EIO, what, f->PQerrorMessage(t->conn));
    st = wait_result(src, t, what);
    if (st)
        return st;
    res = f->PQgetResult(t->conn);
    while ((more = f->PQgetResult(t->conn))) /* the end of the command, or what killed it */
        f->PQclear(more);
    how = res ? f->PQresultStatus(res) : PGRES_FATAL_ERROR;
    if (how != PGRES_TUPLES_OK && how != PGRES_COMMAND_OK)
        st = pq_err(src, t, WEFT_EINVAL, what,
                    res ? f->PQresultErrorMessage(res) : f->PQerrorMessage(t->conn));
    if (st || !out)
        f->PQclear(res);
    else
        *out = res;
    return st;
}

/* A conninfo that cannot be parsed is not shown: it may contain the password. */
static weft_status check_conninfo(const struct source *src)
{
    char *text = NULL;
    PQconninfoOption *parsed = src->f.PQconninfoParse(src->conninfo, &text);

    if (text)
        src->f.PQfreemem(text);
    if (!parsed)
        return wf_err(WEFT_EINVAL, "invalid connection string: write \"key=value key=value\" or "
                                   "postgresql://user@host/database");
    src->f.PQconninfoFree(parsed);
    return WEFT_OK;
}

/* The server's notices go to the context's log, not to stderr. */
static void on_notice(void *arg, const char *text)
{
    wf_log(arg, WEFT_LOG_WARN, "postgres: %.*s", (int)strcspn(text, "\n"), text);
}

/* Connects, and opens the cursor. */
static weft_status start(const struct source *src, struct state *t)
{
    /* The connection string overrides what comes before it. */
    const char *const keys[] = {"connect_timeout", "application_name", "dbname", NULL};
    const char *const values[] = {src->timeout, "weft", src->conninfo, NULL};
    weft_status st;

    t->conn = src->f.PQconnectdbParams(keys, values, 1);
    if (!t->conn)
        return wf_err(WEFT_ENOMEM, "a connection: out of memory");
    if (src->f.PQstatus(t->conn) != CONNECTION_OK)
        return pq_err(src, t, WEFT_EIO, "cannot connect", src->f.PQerrorMessage(t->conn));
    src->f.PQsetNoticeProcessor(t->conn, on_notice, src->ctx);
    t->connected = true;
    t->fetch = FIRST_FETCH;
    st = command(src, t, "SET bytea_output = hex", "SET", NULL);
    if (!st)
        st = command(src, t, "BEGIN READ ONLY", "BEGIN", NULL);
    if (!st)
        st = command(src, t, src->declare, "the query", NULL);
    return st;
}

/* Ends a command that is under way, then the connection. */
static void finish(const struct wf_sql *sql, void *state)
{
    const struct source *src = (const struct source *)sql;
    struct state *t = state;
    char text[256];
    PGcancel *cancel;

    if (!t->conn)
        return;
    if (src->f.PQstatus(t->conn) == CONNECTION_OK && src->f.PQisBusy(t->conn)) {
        cancel = src->f.PQgetCancel(t->conn);
        if (cancel)
            src->f.PQcancel(cancel, text, sizeof text);
        src->f.PQfreeCancel(cancel);
    }
    src->f.PQfinish(t->conn);
    t->conn = NULL;
    t->connected = false;
}

/* ---- the stage ------------------------------------------------------------------------------- */

/* Rows that a promise holds. */
struct fetched {
    PGresult *res;
    int64_t epoch, id;
};

/* The next fetch has as many rows as make about FETCH_BYTES. */
static void adapt(const struct source *src, struct state *t, PGresult *res, int64_t n)
{
    int64_t bytes = (int64_t)src->f.PQresultMemorySize(res) + 1;
    int64_t fit = wf_max_i64(1, n * FETCH_BYTES / bytes);

    t->fetch = wf_min_i64(wf_min_i64(fit, 4 * t->fetch), MOST_FETCH);
}

static weft_status pg_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct source *src = s->ds->param;
    struct state *t = s->state;
    struct fetched *got;
    PGresult *res = NULL;
    char sql[64], what[48];
    int64_t n;
    weft_status st = WEFT_OK;

    *out = NULL;
    if (t->sql.ended)
        return WEFT_OK;
    if (!t->conn)
        st = start(src, t);
    snprintf(sql, sizeof sql, "FETCH FORWARD %lld FROM weft",
             (long long)wf_min_i64(want, t->fetch ? t->fetch : FIRST_FETCH));
    snprintf(what, sizeof what, "row %lld", (long long)t->sql.id);
    if (!st)
        st = command(src, t, sql, what, &res);
    if (st)
        return st;
    n = src->f.PQntuples(res);
    got = n ? wf_alloc(s->env->ctx, sizeof *got) : NULL;
    if (!got) {
        t->sql.ended = n == 0;
        src->f.PQclear(res);
        return n ? wf_env_nomem(s->env, sizeof *got, s->ds->name) : WEFT_OK;
    }
    adapt(src, t, res, n);
    *got = (struct fetched){res, t->sql.epoch, t->sql.id};
    t->sql.id += n;
    *out = wf_promise_new(s, n, 0, NULL, got);
    if (*out)
        return WEFT_OK;
    src->f.PQclear(res);
    wf_free(s->env->ctx, got);
    return WEFT_ENOMEM;
}

static void pg_drop(struct wf_promise *p)
{
    const struct source *src = p->stage->ds->param;
    struct fetched *got = p->data;

    src->f.PQclear(got->res);
    wf_free(p->stage->env->ctx, got);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* "\x4142" is AB. */
static weft_status copy_bytes(struct wf_sql_text *text, const char *p, int64_t n, weft_str *out)
{
    static const char digits[] = "0123456789abcdef";
    weft_status st = wf_sql_copy(text, p, n, out);
    char *to = (char *)(uintptr_t)out->data;

    if (st || n < 2 || p[0] != '\\' || p[1] != 'x')
        return st;
    for (int64_t i = 2; i + 1 < n; i += 2) {
        const char *a = strchr(digits, p[i]), *b = strchr(digits, p[i + 1]);

        *to++ = (char)((a ? a - digits : 0) << 4 | (b ? b - digits : 0));
    }
    out->n = (n - 2) / 2;
    return WEFT_OK;
}

static weft_status put_value(const struct source *src, const PGresult *res, int row, int i,
                             struct wf_sql_text *text, char *to)
{
    const struct wf_field *f = &src->sql.layout.field[i];
    const char *p = src->f.PQgetvalue(res, row, i);
    int64_t n = src->f.PQgetlength(res, row, i);
    union wf_field_value v = {.s = {"", 0}};
    weft_status st = WEFT_OK;

    if (src->f.PQgetisnull(res, row, i))
        return wf_sql_null(f, to);
    if (f->kind == WF_FIELD_STR) {
        st = src->is_bytes[i] ? copy_bytes(text, p, n, &v.s) : wf_sql_copy(text, p, n, &v.s);
    } else if (!wf_field_convert(f->kind, p, n, &v)) {
        return wf_sql_mismatch(f, p, n);
    }
    if (!st)
        wf_field_store(f->kind, &v, to);
    return st;
}

static weft_status pg_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    const struct source *src = p->stage->ds->param;
    struct fetched *got = p->data;
    struct wf_block *b = NULL;
    struct wf_field_place *place = NULL;
    struct wf_sql_text text;
    weft_status st = wf_table_block(p->stage->ds, w->env, p->n, false, &b);

    if (!st)
        st = wf_table_places(&src->sql.layout, b, &place);
    text = (struct wf_sql_text){.b = b};
    for (int64_t r = 0; r < p->n && !st; r++) {
        b->at[r] = (struct wf_at){got->epoch, got->id + r};
        for (int i = 0; i < src->sql.layout.n_fields && !st; i++)
            st = put_value(src, got->res, (int)r, i, &text, place[i].data + r * place[i].stride);
        if (st)
            wf_err_wrap(st, "row %lld", (long long)(got->id + r));
    }
    pg_drop(p);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

/* ---- position -------------------------------------------------------------------------------- */

/* The server steps over the rows before the position. */
static weft_status pg_restore(struct wf_stage *s, struct wf_reader *r)
{
    const struct source *src = s->ds->param;
    struct state *t = s->state;
    PGresult *res = NULL;
    char sql[64];
    int64_t moved = 0, id = 0;
    weft_status st = wf_sql_position(s, r, &id);

    if (st || id == 0)
        return st;
    st = start(src, t);
    snprintf(sql, sizeof sql, "MOVE FORWARD %lld FROM weft", (long long)id);
    if (!st)
        st = command(src, t, sql, "the saved position", &res);
    if (st)
        return st;
    wf_text_i64(src->f.PQcmdTuples(res), &moved);
    src->f.PQclear(res);
    if (moved != id)
        return wf_sql_too_few(moved, id);
    t->sql.id = id;
    return WEFT_OK;
}

static void pg_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct source *src = ds->param;

    wf_buf_printf(out, "%s", src->sql.query); /* the connection string may hold a password */
}

static const struct wf_ds_kind pg_kind = {
    .name = "postgres",
    .open = wf_sql_open,
    .close = wf_sql_close,
    .reset = wf_sql_reset,
    .pull = pg_pull,
    .make = pg_make,
    .drop = pg_drop,
    .save = wf_sql_save,
    .restore = pg_restore,
    .text = pg_text,
};

/* ---- building -------------------------------------------------------------------------------- */

/* By the numbers of the built-in types. */
static enum wf_field_kind kind_of(Oid type)
{
    enum { BOOLOID = 16, INT8 = 20, INT2 = 21, INT4 = 23, OIDOID = 26, FLOAT4 = 700, FLOAT8 = 701 };
    enum { NUMERIC = 1700 };

    switch (type) {
    case BOOLOID: return WF_FIELD_BOOL;
    case INT2:
    case INT4:
    case INT8:
    case OIDOID: return WF_FIELD_I64;
    case FLOAT4:
    case FLOAT8:
    case NUMERIC: return WF_FIELD_F32;
    default: return WF_FIELD_STR;
    }
}

static weft_status describe(struct wf_ds *ds, const weft_sql_opts *o, const PGresult *res)
{
    enum { BYTEA = 17 };
    struct source *src = ds->param;
    const char **name = NULL;
    enum wf_field_kind *kind = NULL;
    int n = src->f.PQnfields(res);
    weft_status st = n > 0 ? WEFT_OK : wf_err(WEFT_EINVAL, "the query returns no columns");

    if (!st)
        st = wf_table_alloc(ds->data, n, sizeof *name, &name);
    if (!st)
        st = wf_table_alloc(ds->data, n, sizeof *kind, &kind);
    if (!st)
        st = wf_table_alloc(ds->data, n, sizeof *src->is_bytes, &src->is_bytes);
    for (int i = 0; i < n && !st; i++) {
        const char *text = src->f.PQfname(res, i);

        name[i] = wf_table_text(ds->data, text, (int64_t)strlen(text));
        st = name[i] ? WEFT_OK : WEFT_ENOMEM;
        kind[i] = kind_of(src->f.PQftype(res, i));
        src->is_bytes[i] = src->f.PQftype(res, i) == BYTEA;
    }
    return st ? st : wf_sql_columns(ds, n, name, kind, o, &src->sql.layout);
}

static weft_status declare_cursor(weft_data *d, struct source *src)
{
    static const char before[] = "DECLARE weft NO SCROLL CURSOR FOR ";
    char *text = NULL;
    weft_status st = wf_table_alloc(d, (int64_t)(sizeof before + strlen(src->sql.query)), 1, &text);

    if (st)
        return st;
    memcpy(text, before, sizeof before - 1);
    strcpy(text + sizeof before - 1, src->sql.query);
    src->declare = text;
    return WEFT_OK;
}

static weft_status build(struct wf_ds *ds, const char *conninfo, const weft_sql_opts *o)
{
    struct source *src = ds->param;
    struct state t = {.conn = NULL};
    PGresult *res = NULL;
    weft_status st = wf_dl_load(library, "libpq5", call_list, WF_COUNT(call_list), &src->f);

    if (st)
        return st;
    src->ctx = ds->data->ctx;
    src->conninfo = wf_table_text(ds->data, conninfo, (int64_t)strlen(conninfo));
    if (!src->conninfo)
        return WEFT_ENOMEM;
    snprintf(src->timeout, sizeof src->timeout, "%d", o->connect_s > 0 ? o->connect_s : 10);
    st = check_conninfo(src);
    if (!st)
        st = declare_cursor(ds->data, src);
    if (!st)
        st = start(src, &t);
    if (!st)
        st = command(src, &t, "FETCH 0 FROM weft", "the query", &res);
    if (!st)
        st = describe(ds, o, res);
    if (res)
        src->f.PQclear(res);
    finish(&src->sql, &t);
    return st;
}

weft_ds weft_ds_postgres(weft_data *d, const char *conninfo, const char *query,
                         const weft_sql_opts *opts)
{
    static const struct wf_sql_calls calls = {sizeof(struct state), finish};

    return wf_sql_new(d, &pg_kind, &calls, sizeof(struct source), conninfo, query, opts, build);
}

#else /* no headers when this was built */

weft_ds weft_ds_postgres(weft_data *d, const char *conninfo, const char *query,
                         const weft_sql_opts *opts)
{
    (void)conninfo;
    (void)query;
    (void)opts;
    return wf_ds_fail(
        d, "postgres",
        wf_err(WEFT_ENOSUP, "this build has no PostgreSQL: install libpq-dev and build again"));
}

#endif
