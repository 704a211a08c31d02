/* rows.c - pulling rows from text files. Between two pulls, the stream is at the beginning of a
 * line; `record` and `id` count the rows before it. */
#include "data/table/rows.h"

struct state {
    struct wf_stream *stream;
    struct wf_scan scan;
    int64_t record; /* rows of the current file before the window */
    int64_t epoch, id;
};

/* Maximum text of a promise: blocks of long rows have fewer of them. */
#define RANGE_BYTES (8 << 20)

static struct wf_row_source *source_of(const struct wf_stage *s)
{
    return s->ds->param;
}

int64_t wf_rows_bom(const char *p, int64_t n)
{
    return n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
}

int64_t wf_rows_chomp(const char *p, int64_t n)
{
    if (n > 0 && p[n - 1] == '\n')
        n--;
    if (n > 0 && p[n - 1] == '\r')
        n--;
    return n;
}

weft_status wf_rows_open(struct wf_stage *s)
{
    struct wf_row_source *src = source_of(s);
    struct state *t = wf_alloc(s->env->ctx, sizeof *t);

    if (!t)
        return wf_env_nomem(s->env, sizeof *t, s->ds->name);
    s->state = t;
    wf_scan_init(&t->scan, &src->format, s->env->ctx->simd);
    return wf_stream_open(s->env, &src->files, src->max_row_bytes, wf_stats_of(s->env, s->ds),
                          &t->stream);
}

void wf_rows_close(struct wf_stage *s)
{
    struct state *t = s->state;

    if (t)
        wf_stream_close(t->stream);
    wf_free(s->env->ctx, t);
    s->state = NULL;
}

weft_status wf_rows_reset(struct wf_stage *s, int64_t epoch)
{
    struct state *t = s->state;

    wf_stream_reset(t->stream, epoch);
    t->record = t->id = 0;
    t->epoch = epoch;
    return WEFT_OK;
}

/* A window that cannot grow: most often an unclosed quote. */
static weft_status more(struct state *t)
{
    weft_status st = wf_stream_more(t->stream);

    if (st == WEFT_ELIMIT)
        return wf_err_wrap(st, "%s: record %lld (byte %lld): the row is too long%s",
                           t->stream->path, (long long)t->record, (long long)t->stream->offset,
                           t->scan.quoted ? ": is a quote not closed?" : "");
    return st;
}

/* Scans after the first `skip` bytes of the window until `want` rows are complete, the file ends,
 * or, if some rows are complete, the window does. */
static weft_status scan_window(struct state *t, int64_t skip, int64_t want)
{
    wf_scan_begin(&t->scan);
    while (!wf_scan_rows(&t->scan, t->stream->p + skip, t->stream->n - skip, want)) {
        weft_status st;

        if (t->stream->ended || t->scan.n_rows > 0)
            return WEFT_OK;
        st = more(t);
        if (st)
            return st;
    }
    return WEFT_OK;
}

/* The header is where the first row would be. *n is set to the bytes up to its end. */
static weft_status check_header(const struct wf_row_source *src, struct state *t, int64_t *n)
{
    struct wf_stream *s = t->stream;
    weft_status st = scan_window(t, *n, 1);
    const char *p, *end;
    int64_t line;

    if (st)
        return st;
    p = s->p + *n;
    end = t->scan.n_rows ? p + t->scan.end : s->p + s->n;
    while (p < end && wf_scan_no_row(&src->format, p, end))
        p = wf_scan_row_end(&src->format, p, end);
    line = wf_rows_chomp(p, end - p);
    if (line != src->header.n || (line && memcmp(p, src->header.data, (size_t)line) != 0))
        return wf_err(WEFT_EDATA, "%s: the header differs from that of %s: %.*s instead of %.*s",
                      s->path, src->files.path[0], (int)wf_min_i64(line, 80), p,
                      (int)wf_min_i64(src->header.n, 80), src->header.data);
    *n = end - s->p;
    return WEFT_OK;
}

/* Old line ends would make the file one row. The window is extended only if that seems likely. */
static weft_status check_ends(const struct wf_row_source *src, struct state *t)
{
    enum { ENOUGH = 64 << 10 };
    struct wf_stream *s = t->stream;
    weft_status st = wf_text_check_ends(s->path, s->p, s->n, src->format.quote), more;

    while (st && !s->ended && s->n < ENOUGH) {
        more = wf_stream_more(s);
        if (more)
            return more;
        st = wf_text_check_ends(s->path, s->p, s->n, src->format.quote);
    }
    return st;
}

/* Byte order mark and header are consumed together: a stream at offset 0 has them before it. */
static weft_status begin_file(const struct wf_row_source *src, struct state *t)
{
    int64_t n;
    weft_status st = wf_stream_need(t->stream, 3);

    if (!st)
        st = check_ends(src, t);
    if (st)
        return st;
    n = wf_rows_bom(t->stream->p, t->stream->n);
    if (src->has_header) {
        st = check_header(src, t, &n);
        if (st)
            return st;
    }
    wf_stream_take(t->stream, n);
    return WEFT_OK;
}

/* The window is not empty and at the beginning of a line; or *end. */
static weft_status next_window(const struct wf_row_source *src, struct state *t, bool *end)
{
    struct wf_stream *s = t->stream;
    weft_status st;
    bool again;

    *end = false;
    for (;;) {
        st = wf_stream_need(s, 1);
        if (st)
            return st;
        if (s->n && s->offset == 0) {
            st = begin_file(src, t);
            if (st)
                return st;
        }
        if (s->n)
            return WEFT_OK;
        if (!s->ended) /* the header filled the window */
            continue;
        st = wf_stream_next_file(s, &again);
        if (st)
            return st;
        if (!again) {
            *end = true;
            return WEFT_OK;
        }
        t->record = 0;
    }
}

static void add_piece(struct state *t, struct wf_row_range *r, int64_t bytes, int64_t n_rows)
{
    struct wf_stream *s = t->stream;

    r->piece[r->n++] = (struct wf_row_piece){
        .chunk = wf_chunk_ref(s->chunk),
        .p = s->p,
        .bytes = bytes,
        .n_rows = n_rows,
        .path = s->path,
        .record = t->record,
        .offset = s->offset,
    };
    t->record += n_rows;
    t->id += n_rows;
    wf_stream_take(s, bytes);
}

/* Up to `want` rows into r; *got counts them. */
static weft_status gather(const struct wf_row_source *src, struct state *t, int64_t want,
                          struct wf_row_range *r, int64_t *got)
{
    int64_t bytes = 0;
    bool end;

    while (*got < want && r->n < WF_ROW_PIECES && bytes < RANGE_BYTES) {
        weft_status st = next_window(src, t, &end);

        if (st || end)
            return st;
        st = scan_window(t, 0, want - *got);
        if (st)
            return st;
        if (t->scan.n_rows > 0) {
            bytes += t->scan.end;
            *got += t->scan.n_rows;
            add_piece(t, r, t->scan.end, t->scan.n_rows);
        } else if (wf_scan_rest(&t->scan, t->stream->p, t->stream->n)) {
            bytes += t->stream->n;
            *got += 1;
            add_piece(t, r, t->stream->n, 1);
        } else {
            wf_stream_take(t->stream, t->stream->n); /* empty lines at the end */
        }
    }
    return WEFT_OK;
}

weft_status wf_rows_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct state *t = s->state;
    struct wf_row_range *r = wf_alloc(s->env->ctx, sizeof *r);
    int64_t got = 0;
    weft_status st;

    *out = NULL;
    if (!r)
        return wf_env_nomem(s->env, sizeof *r, s->ds->name);
    r->epoch = t->epoch;
    r->id = t->id;
    st = gather(source_of(s), t, want, r, &got);
    if (got) { /* an error is met again by the next pull */
        *out = wf_promise_new(s, got, 0, NULL, r);
        if (*out)
            return WEFT_OK;
        st = WEFT_ENOMEM;
    }
    wf_rows_done(s->env->ctx, r);
    return st;
}

void wf_rows_done(weft_ctx *ctx, struct wf_row_range *range)
{
    for (int i = 0; range && i < range->n; i++)
        wf_chunk_unref(range->piece[i].chunk);
    wf_free(ctx, range);
}

void wf_rows_drop(struct wf_promise *p)
{
    wf_rows_done(p->stage->env->ctx, p->data);
}

weft_status wf_rows_save(struct wf_stage *s, struct wf_buf *out)
{
    struct state *t = s->state;

    wf_put_i64(out, t->epoch);
    wf_put_i64(out, t->id);
    wf_put_i64(out, t->record);
    wf_stream_save(t->stream, out);
    return out->st;
}

weft_status wf_rows_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct state *t = s->state;

    t->epoch = wf_get_i64(r);
    t->id = wf_get_range(r, 0, INT64_MAX, "a row number");
    t->record = wf_get_range(r, 0, INT64_MAX, "a record number");
    return r->st ? r->st : wf_stream_restore(t->stream, r);
}
