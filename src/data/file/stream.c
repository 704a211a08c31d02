/* stream.c - files, one after the other, as windows of contiguous bytes in chunks.
 *
 * Invariants: a byte that was in a window of a chunk kept elsewhere is never written again; damage
 * is reported only after every byte before it was returned; a requested length is not allocated
 * until the file has shown that it has as many bytes. */
#include <stdio.h>

#include "data/file/files.h"

#define MAX_BYTES (1ll << 30)

struct wf_stream_inside {
    struct wf_env *env;
    const struct wf_files *files;
    struct wf_stats *stats;
    int64_t max_bytes;
    int64_t epoch;
    struct wf_permutation order;
    int64_t turn; /* files of this epoch that were opened or skipped */
    struct wf_unpack *u;
    int64_t n_counted; /* bytes of u already counted in stats */
    weft_status st;    /* damage found after the window, reported when it is reached */
    char error[512];
};

weft_status wf_stream_open(struct wf_env *env, const struct wf_files *files, int64_t max_bytes,
                           struct wf_stats *stats, struct wf_stream **out)
{
    struct wf_stream *s = wf_alloc(env->ctx, sizeof *s + sizeof *s->in);

    if (!s)
        return wf_err_nomem(env->ctx, sizeof *s + sizeof *s->in, "stream");
    s->in = (struct wf_stream_inside *)(void *)(s + 1);
    s->in->env = env;
    s->in->files = files;
    s->in->stats = stats;
    s->in->max_bytes = max_bytes > 0 ? max_bytes : MAX_BYTES;
    wf_stream_reset(s, 0);
    *out = s;
    return WEFT_OK;
}

/* No file is open; the chunk, if there is one, can be continued after the window. */
static void close_file(struct wf_stream *s)
{
    wf_unpack_close(s->in->u);
    s->in->u = NULL;
    s->in->st = WEFT_OK;
    if (s->n)
        s->p += s->n;
    s->n = 0;
    s->ended = true;
    s->offset = 0;
    s->path = NULL;
    s->file = -1;
    s->size = -1;
}

void wf_stream_close(struct wf_stream *s)
{
    if (!s)
        return;
    close_file(s);
    wf_chunk_unref(s->chunk);
    wf_free(s->in->env->ctx, s);
}

void wf_stream_reset(struct wf_stream *s, int64_t epoch)
{
    close_file(s);
    s->in->epoch = epoch;
    s->in->turn = 0;
    wf_permutation_init(&s->in->order, s->in->files->n, s->in->files->opts.seed, epoch);
}

weft_status wf_stream_next_file(struct wf_stream *s, bool *more)
{
    struct wf_stream_inside *in = s->in;
    const struct wf_files *f = in->files;
    struct wf_unpack *u;
    int64_t file;
    weft_status st;

    close_file(s);
    *more = in->turn < f->n;
    if (!*more)
        return WEFT_OK;
    file = f->opts.shuffle ? wf_permutation_at(&in->order, in->turn) : in->turn;
    st = wf_unpack_open(in->env->ctx, f->path[file], &f->opts, &u);
    if (st)
        return st;
    in->u = u;
    in->turn++;
    in->n_counted = 0;
    s->ended = false;
    s->file = file;
    s->path = f->path[file];
    s->size = u->how == WEFT_COMPRESSION_NONE ? u->size : -1;
    return WEFT_OK;
}

void wf_stream_pass_file(struct wf_stream *s)
{
    if (!s->in->u && s->in->turn < s->in->files->n)
        s->in->turn++;
    close_file(s);
}

/* ---- the window ------------------------------------------------------------------------------ */

/* Makes room in the chunk for a window of `want` bytes, and for at least one byte more than now. */
static weft_status make_room(struct wf_stream *s, int64_t want)
{
    struct wf_stream_inside *in = s->in;
    struct wf_chunk *chunk = s->chunk;
    int64_t at = chunk ? s->p - chunk->data : 0, bytes;

    if (want > in->max_bytes)
        return wf_err(WEFT_ELIMIT, "%s: byte %lld: a record of more than %lld bytes", s->path,
                      (long long)s->offset, (long long)in->max_bytes);
    if (chunk && at + want <= chunk->bytes)
        return WEFT_OK;
    if (chunk && want <= chunk->bytes && s->n <= chunk->bytes / 2 &&
        atomic_load(&chunk->refs) == 1) {
        memmove(chunk->data, s->p, (size_t)s->n);
        s->p = chunk->data;
        return WEFT_OK;
    }
    bytes = wf_round_up(wf_max_i64(want, 2 * s->n), WF_CHUNK_BYTES);
    chunk = wf_chunk_new(in->env, bytes);
    if (!chunk)
        return wf_env_nomem(in->env, bytes, s->path);
    if (s->n)
        memcpy(chunk->data, s->p, (size_t)s->n);
    wf_chunk_unref(s->chunk);
    s->chunk = chunk;
    s->p = chunk->data;
    return WEFT_OK;
}

static weft_status read_more(struct wf_stream *s)
{
    struct wf_stream_inside *in = s->in;
    char *to = s->chunk->data + (s->p - s->chunk->data) + s->n;
    int64_t room = s->chunk->data + s->chunk->bytes - to, got;
    weft_status st = wf_unpack_read(in->u, to, room, &got);

    if (in->stats)
        atomic_fetch_add_explicit(&in->stats->n_bytes, in->u->n_in - in->n_counted,
                                  memory_order_relaxed);
    in->n_counted = in->u->n_in;
    s->n += got;
    if (st && !got)
        return st;
    if (st) {
        in->st = st;
        snprintf(in->error, sizeof in->error, "%s", weft_error());
    } else if (got < room) {
        s->ended = true;
    }
    return WEFT_OK;
}

weft_status wf_stream_need_slow(struct wf_stream *s, int64_t n)
{
    struct wf_stream_inside *in = s->in;
    int64_t want, likely;
    weft_status st;

    while (s->n < n && !s->ended) {
        if (in->st)
            return wf_err(in->st, "%s", in->error);
        /* An uncompressed file has as many bytes as its size says; for a compressed one this
         * becomes known gradually. */
        likely = s->size >= 0 ? s->size - s->offset : 2 * s->n + WF_CHUNK_BYTES;
        want = wf_min_i64(n, wf_max_i64(likely, s->n + 1));
        st = make_room(s, want);
        if (!st)
            st = read_more(s);
        if (st)
            return st;
    }
    return WEFT_OK;
}

weft_status wf_stream_more(struct wf_stream *s)
{
    return wf_stream_need(s, s->n + 1);
}

weft_status wf_stream_skip(struct wf_stream *s, int64_t n)
{
    struct wf_stream_inside *in = s->in;
    int64_t step;
    weft_status st;

    if (n > s->n && s->size >= 0) {
        st = wf_unpack_seek(in->u, s->offset + n);
        if (st)
            return st;
        if (s->n)
            s->p += s->n;
        s->n = 0;
        s->offset = in->u->n_out;
        s->ended = false;
        in->st = WEFT_OK;
        return WEFT_OK;
    }
    while (n > 0) {
        st = wf_stream_need(s, 1);
        if (st || !s->n)
            return st;
        step = wf_min_i64(n, s->n);
        wf_stream_take(s, step);
        n -= step;
    }
    return WEFT_OK;
}

weft_status wf_text_check_ends(const char *path, const char *p, int64_t n, char quote)
{
    bool quoted = false;

    if (!n || memchr(p, '\n', (size_t)n) || !memchr(p, '\r', (size_t)n - 1))
        return WEFT_OK;
    for (int64_t i = 0; i + 1 < n; i++) {
        if (quote && p[i] == quote)
            quoted = !quoted;
        if (p[i] == '\r' && !quoted)
            return wf_err(WEFT_EDATA,
                          "%s: byte %lld: lines end in a carriage return alone, as on old Macs: "
                          "convert them to newlines first (tr '\\r' '\\n')",
                          path, (long long)i);
    }
    return WEFT_OK;
}

weft_status wf_stream_err(const struct wf_stream *s, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    wf_errv(WEFT_EDATA, fmt, args);
    va_end(args);
    return wf_err_wrap(WEFT_EDATA, "%s: byte %lld", s->path ? s->path : "?", (long long)s->offset);
}

/* ---- the position ---------------------------------------------------------------------------- */

void wf_stream_save(const struct wf_stream *s, struct wf_buf *out)
{
    bool open = s->in->u && !(s->ended && !s->n);

    wf_put_i64(out, s->in->epoch);
    wf_put_i64(out, s->in->turn - open);
    wf_put_i64(out, open ? s->offset : -1);
}

weft_status wf_stream_restore(struct wf_stream *s, struct wf_reader *r)
{
    int64_t epoch = wf_get_i64(r);
    int64_t turn = wf_get_range(r, 0, s->in->files->n, "file");
    int64_t offset = wf_get_range(r, -1, INT64_MAX, "offset");
    weft_status st = r->st;
    bool more;

    if (st)
        return st;
    wf_stream_reset(s, epoch);
    s->in->turn = turn;
    if (offset < 0)
        return WEFT_OK;
    st = wf_stream_next_file(s, &more);
    if (st)
        return st;
    if (!more)
        return wf_err(WEFT_EDATA, "a position past the last file");
    st = wf_stream_skip(s, offset);
    if (!st && s->offset != offset)
        st = wf_err(WEFT_EDATA, "%s: has %lld bytes, but the saved position is at %lld", s->path,
                    (long long)s->offset, (long long)offset);
    return st;
}

/* ---- sources of strings ---------------------------------------------------------------------- */

weft_status wf_stream_strings(struct wf_stage *stage, int64_t want, wf_fill_fn *fill,
                              struct wf_block **out)
{
    struct wf_type type = wf_type_of(WEFT_STR, 0, NULL);
    struct wf_block *b = NULL;
    weft_status st;

    *out = NULL;
    want = wf_min_i64(want, WF_PULL_MAX);
    st = wf_block_new(stage->env, 1, want, &b);
    if (!st)
        st = wf_block_col(b, 0, &type, want);
    if (!st)
        st = wf_block_origins(b);
    if (!st)
        st = fill(stage, b, want);
    if (st || !b->n) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

void wf_stream_give_up(struct wf_stage *stage, struct wf_stream *s)
{
    wf_log(stage->env->ctx, WEFT_LOG_WARN, "%s; the rest of the file is skipped", weft_error());
    atomic_fetch_add_explicit(&wf_stats_of(stage->env, stage->ds)->n_skipped, 1,
                              memory_order_relaxed);
    wf_stream_pass_file(s);
}

/* ---- records in streams ---------------------------------------------------------------------- */

weft_status wf_records_open(struct wf_stage *stage, const struct wf_files *files, int64_t max_bytes)
{
    struct wf_records *t = wf_alloc(stage->env->ctx, sizeof *t);

    if (!t)
        return wf_err_nomem(stage->env->ctx, sizeof *t, stage->ds->name);
    stage->state = t;
    return wf_stream_open(stage->env, files, max_bytes, wf_stats_of(stage->env, stage->ds), &t->s);
}

void wf_records_close(struct wf_stage *stage)
{
    struct wf_records *t = stage->state;

    if (!t)
        return;
    wf_stream_close(t->s);
    wf_free(stage->env->ctx, t);
}

weft_status wf_records_reset(struct wf_stage *stage, int64_t epoch)
{
    struct wf_records *t = stage->state;

    wf_stream_reset(t->s, epoch);
    t->epoch = epoch;
    t->id = t->record = 0;
    return WEFT_OK;
}

weft_status wf_records_pull(struct wf_stage *stage, int64_t want, wf_fill_fn *fill,
                            struct wf_promise **out)
{
    struct wf_block *b;
    weft_status st = wf_stream_strings(stage, want, fill, &b);

    *out = NULL;
    if (st || !b)
        return st;
    *out = wf_promise_new(stage, b->n, 0, NULL, b);
    if (*out)
        return WEFT_OK;
    wf_block_free(b);
    return wf_env_nomem(stage->env, sizeof **out, stage->ds->name);
}

void wf_records_drop(struct wf_promise *promise)
{
    wf_block_free(promise->data);
}

int64_t wf_records_file(const int64_t *first, int64_t n, int64_t id)
{
    int64_t lo = 0, hi = n;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;

        if (first[mid] <= id)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

weft_status wf_records_save(struct wf_stage *stage, struct wf_buf *out)
{
    const struct wf_records *t = stage->state;

    wf_stream_save(t->s, out);
    wf_put_i64(out, t->epoch);
    wf_put_i64(out, t->id);
    wf_put_i64(out, t->record);
    return out->st;
}

weft_status wf_records_restore(struct wf_stage *stage, struct wf_reader *r)
{
    struct wf_records *t = stage->state;
    weft_status st = wf_stream_restore(t->s, r);

    if (st)
        return st;
    t->epoch = wf_get_i64(r);
    t->id = wf_get_range(r, 0, INT64_MAX, "record");
    t->record = wf_get_range(r, 0, INT64_MAX, "record");
    return r->st;
}
