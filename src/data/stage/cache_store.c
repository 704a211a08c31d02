/* cache_store.c - elements kept by number, in memory or in a file. See cache_store.h for the file's
 * layout. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "data/stage/cache_row.h"
#include "data/stage/cache_store.h"

#define MAGIC "weftrows"
#define VERSION 1
#define FOOT 40
#define READ_BYTES ((int64_t)1 << 20)

weft_status wf_cache_init(struct wf_cache_store *s, struct wf_ds *ds)
{
    s->ds = ds;
    s->ctx = ds->data->ctx;
    s->fd = s->file.fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    return WEFT_OK;
}

/* ---- letting go ------------------------------------------------------------------------------ */

static void close_fd(struct wf_cache_store *s, int fd)
{
    if (fd >= 0)
        s->ctx->fs->close(s->ctx->fs->arg, fd);
}

static void drop_temporary(struct wf_cache_store *s)
{
    if (s->file.fd >= 0)
        (void)wf_newfile_close(&s->file, WEFT_ESTATE, true); /* failed: remove it */
}

/* A reader may be in the middle of the old file: it stays open until the end. */
static void retire_fd(struct wf_cache_store *s)
{
    if (s->fd < 0)
        return;
    if (!wf_grow(s->ctx, &s->old_fd, &s->cap_old, s->n_old + 1, sizeof *s->old_fd))
        s->old_fd[s->n_old++] = s->fd;
    s->fd = -1;
}

/* The lock is held, or there is no other user. */
static void clear(struct wf_cache_store *s)
{
    for (int64_t i = 0; i < s->cap; i++) {
        wf_held_unref(s->entry[i].held);
        s->entry[i] = (struct wf_cache_entry){0};
    }
    s->n = s->bytes = 0;
    s->complete = false;
    retire_fd(s);
    drop_temporary(s);
}

void wf_cache_clear(struct wf_cache_store *s)
{
    pthread_mutex_lock(&s->lock);
    clear(s);
    pthread_mutex_unlock(&s->lock);
}

void wf_cache_free(struct wf_cache_store *s)
{
    bool remove = s->in == WF_CACHE_FILE && s->complete && !s->stays;

    if (!s->ctx)
        return;
    clear(s);
    for (int64_t i = 0; i < s->n_old; i++)
        close_fd(s, s->old_fd[i]);
    if (remove)
        s->ctx->fs->unlink(s->ctx->fs->arg, s->path);
    wf_free(s->ctx, s->old_fd);
    wf_free(s->ctx, s->entry);
    if (s->env)
        wf_env_close(s->env);
    pthread_mutex_destroy(&s->lock);
}

/* Continues without: drops what is stored, and stores nothing more. */
static void give_up(struct wf_cache_store *s, const char *why)
{
    wf_log(s->ctx, WEFT_LOG_WARN, "data: %s continues without caching: %s", s->ds->name, why);
    clear(s);
    s->in = WF_CACHE_NONE;
}

/* ---- an existing file ------------------------------------------------------------------------ */

static weft_status read_at(struct wf_cache_store *s, void *buf, int64_t n, int64_t offset)
{
    const struct wf_fs *fs = s->ctx->fs;
    int64_t got, at = 0;

    while (at < n) {
        got = fs->pread(fs->arg, s->fd, (char *)buf + at, n - at, offset + at);
        if (got <= 0)
            return got ? wf_file_err(got, s->path, "cannot read")
                       : wf_err(WEFT_EDATA, "%s: byte %lld: truncated", s->path,
                                (long long)(offset + at));
        at += got;
    }
    return WEFT_OK;
}

static weft_status damaged(const struct wf_cache_store *s, const char *what)
{
    return wf_err(WEFT_EDATA, "%s: %s", s->path, what);
}

/* The head must match ours, byte for byte; its checksum is at the end. */
static weft_status check_head(struct wf_cache_store *s, int64_t size)
{
    char *head;
    weft_status st;

    if (size < s->n_head + FOOT)
        return damaged(s, "too short, or from another pipeline");
    head = wf_alloc(s->ctx, (size_t)s->n_head);
    if (!head)
        return wf_err_nomem(s->ctx, (size_t)s->n_head, "a snapshot");
    st = read_at(s, head, s->n_head, 0);
    if (!st && memcmp(head, s->head, (size_t)s->n_head) != 0)
        st = wf_err(WEFT_EINVAL, "%s: from another pipeline, key or version", s->path);
    wf_free(s->ctx, head);
    return st;
}

static weft_status read_table(struct wf_cache_store *s, int64_t size)
{
    int64_t foot[4], n, table, *t = NULL;
    char bytes[FOOT];
    weft_status st = read_at(s, bytes, FOOT, size - FOOT);

    if (st)
        return st;
    memcpy(foot, bytes, sizeof foot);
    n = foot[0];
    table = foot[1];
    if (memcmp(bytes + 32, MAGIC, 8) != 0 || n < 0 || n > size / 16 || table < s->n_head ||
        table != size - FOOT - 16 * n || (uint64_t)foot[3] != wf_row_sum(s->head, s->n_head))
        return damaged(s, "incomplete, or its end is damaged");
    t = wf_alloc_n(s->ctx, n + 1, 16);
    st = t ? wf_grow(s->ctx, &s->entry, &s->cap, n, sizeof *s->entry)
           : wf_err_nomem(s->ctx, (size_t)n * 16, "a snapshot");
    if (!st)
        st = read_at(s, t, 16 * n, table);
    if (!st && wf_row_sum(t, 16 * n) != (uint64_t)foot[2])
        st = damaged(s, "the table of elements is damaged");
    for (int64_t i = 0; i < n && !st; i++) {
        s->entry[i].offset = t[2 * i];
        s->entry[i].bytes = t[2 * i + 1];
        if (t[2 * i] < s->n_head || t[2 * i + 1] < WF_ROW_HEAD || t[2 * i + 1] > table ||
            t[2 * i] > table - t[2 * i + 1])
            st = damaged(s, "the table of elements is invalid");
    }
    wf_free(s->ctx, t);
    s->n = st ? 0 : n;
    return st;
}

/* Uses an existing file, if it is ours and complete. The lock is held. */
static void look_for_file(struct wf_cache_store *s, int64_t count)
{
    const struct wf_fs *fs = s->ctx->fs;
    int64_t size;
    weft_status st;

    s->fd = fs->open(fs->arg, s->path, O_RDONLY, 0);
    if (s->fd == -ENOENT)
        return;
    size = s->fd < 0 ? s->fd : fs->size(fs->arg, s->fd);
    st = size < 0 ? wf_file_err(size, s->path, "cannot open") : check_head(s, size);
    if (!st)
        st = read_table(s, size);
    if (!st && count >= 0 && s->n != count)
        st = damaged(s, "has a different number of elements");
    if (!st) {
        s->complete = true;
        return;
    }
    wf_log(s->ctx, st == WEFT_EINVAL ? WEFT_LOG_INFO : WEFT_LOG_WARN,
           "data: creating the snapshot again: %s", weft_error());
    if (s->fd < 0)
        s->fd = -1;
    clear(s);
}

weft_status wf_cache_prepare(struct wf_cache_store *s, int64_t count)
{
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&s->lock);
    if (!s->ready) {
        s->ready = true;
        s->in = s->asked;
        if (!s->env)
            st = wf_env_new(s->ds->data, 0, NULL, &s->env);
        if (!st && s->stays)
            look_for_file(s, count);
        if (s->fd < 0)
            s->fd = -1;
        if (!st && count > 0 && count != WEFT_ENDLESS)
            st = wf_grow(s->ctx, &s->entry, &s->cap, count, sizeof *s->entry);
        s->ready = !st;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* ---- putting --------------------------------------------------------------------------------- */

static weft_status write_all(struct wf_cache_store *s, const void *data, int64_t n)
{
    const struct wf_fs *fs = s->ctx->fs;
    int64_t at = 0, put;

    while (at < n) {
        put = fs->write(fs->arg, s->fd, (const char *)data + at, n - at);
        if (put < 0)
            return wf_file_err(put, s->path, "cannot write");
        at += put;
    }
    s->end += n;
    return WEFT_OK;
}

static weft_status begin_file(struct wf_cache_store *s)
{
    weft_status st = wf_newfile_open(&s->file, s->ctx, s->path);

    if (st)
        return st;
    s->fd = s->file.fd;
    s->end = 0;
    return write_all(s, s->head, s->n_head);
}

/* Rows of the missing elements, in one write. The lock is held. */
static weft_status put_rows(struct wf_cache_store *s, const struct wf_block *b, const int64_t *id)
{
    struct wf_buf buf;
    weft_status st = WEFT_OK;

    if (s->fd < 0)
        st = begin_file(s);
    wf_buf_init(&buf, s->ctx, (int64_t)1 << 40);
    for (int64_t i = 0; i < b->n && !st; i++) {
        struct wf_cache_entry *e = &s->entry[id ? id[i] : s->n];
        int64_t start = buf.len;

        if (e->offset)
            continue;
        st = wf_row_put(s->ds, b, i, &buf);
        e->offset = s->end + start;
        e->bytes = buf.len - start;
        s->n++;
    }
    if (!st && buf.len)
        st = write_all(s, buf.data, buf.len);
    wf_buf_free(&buf);
    return st;
}

/* A copy of the elements in our own memory. The lock is not held: threads copy in parallel. */
static weft_status copy_block(struct wf_cache_store *s, const struct wf_block *b,
                              struct wf_held **out)
{
    struct wf_held whole = {.refs = 1, .block = (struct wf_block *)b};
    struct wf_pick *pick = wf_alloc_n(s->ctx, b->n, sizeof *pick);
    struct wf_block *copy = NULL;
    weft_status st = pick ? WEFT_OK : wf_err_nomem(s->ctx, (size_t)b->n * sizeof *pick, "a cache");

    for (int64_t i = 0; i < b->n && !st; i++)
        pick[i] = (struct wf_pick){&whole, i};
    if (!st)
        st = wf_pick_block(s->env, pick, b->n, WF_TEXT_COPIED, &copy);
    wf_free(s->ctx, pick);
    if (st)
        return st;
    copy->from = NULL;
    return wf_hold(copy, out);
}

/* The lock is held. */
static void put_block(struct wf_cache_store *s, struct wf_held *h, const int64_t *id)
{
    s->bytes += wf_block_bytes(h->block);
    for (int64_t i = 0; i < h->block->n; i++) {
        struct wf_cache_entry *e = &s->entry[id ? id[i] : s->n];

        if (e->held)
            continue;
        e->held = wf_held_ref(h);
        e->i = i;
        s->n++;
    }
}

/* Decides where to store elements, once their size is known. The lock is held. */
static void decide(struct wf_cache_store *s, struct wf_env *env, int64_t count,
                   const struct wf_block *b)
{
    double all = count == WEFT_ENDLESS
                     ? (double)INT64_MAX
                     : (double)wf_block_content_bytes(b) / (double)b->n * (double)count;

    if (count < 0 || all <= (double)env->budget / 2)
        s->in = WF_CACHE_MEMORY;
    else
        s->in = s->path && count != WEFT_ENDLESS ? WF_CACHE_FILE : WF_CACHE_NONE;
    if (s->in == WF_CACHE_MEMORY) /* what was requested need not be logged */
        wf_log(s->ctx, WEFT_LOG_DEBUG, "data: cache: in memory (of %.3g MB)",
               (double)env->budget * 1e-6);
    else
        wf_log(s->ctx, WEFT_LOG_INFO, "data: cache: about %.3g MB %s (memory: %.3g MB)", all * 1e-6,
               s->in == WF_CACHE_FILE ? "in a file" : "not kept", (double)env->budget * 1e-6);
}

static weft_status over_budget(struct wf_cache_store *s, struct wf_env *env)
{
    if (s->strict)
        return wf_err(WEFT_ELIMIT,
                      "%lld bytes for %lld elements exceed the iterator's memory of %lld: give it "
                      "more (weft_iter_opts.memory) or cache in a file",
                      (long long)s->bytes, (long long)s->n, (long long)env->budget);
    if (s->path) { /* from the next pass on */
        clear(s);
        s->in = WF_CACHE_FILE;
        s->filler = NULL;
        return WEFT_OK;
    }
    give_up(s, "the elements exceed the iterator's memory");
    return WEFT_OK;
}

/* h is a copy of b, for a store in memory. The lock is held. */
static weft_status put(struct wf_cache_store *s, struct wf_env *env, const struct wf_block *b,
                       struct wf_held *h, const int64_t *id)
{
    weft_status st = WEFT_OK;

    if (!id)
        st = wf_grow(s->ctx, &s->entry, &s->cap, s->n + b->n, sizeof *s->entry);
    if (st)
        return st;
    if (h) {
        put_block(s, h, id);
        return s->bytes <= env->budget ? WEFT_OK : over_budget(s, env);
    }
    st = put_rows(s, b, id);
    if (st && st != WEFT_ENOMEM && st != WEFT_ELIMIT) {
        give_up(s, weft_error());
        st = WEFT_OK;
    }
    return st;
}

weft_status wf_cache_put(struct wf_cache_store *s, struct wf_env *env, int64_t count,
                         const struct wf_block *b, const int64_t *id)
{
    struct wf_held *h = NULL;
    enum wf_cache_in in;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&s->lock);
    if (s->in == WF_CACHE_UNDECIDED)
        decide(s, env, count, b);
    in = s->complete ? WF_CACHE_NONE : s->in;
    pthread_mutex_unlock(&s->lock);
    if (in == WF_CACHE_NONE)
        return WEFT_OK;
    if (in == WF_CACHE_MEMORY)
        st = copy_block(s, b, &h);
    if (st)
        return st;
    pthread_mutex_lock(&s->lock);
    if (!s->complete && s->in == in) /* the decision has not changed meanwhile */
        st = put(s, env, b, h, id);
    pthread_mutex_unlock(&s->lock);
    wf_held_unref(h);
    return st;
}

static weft_status finish_file(struct wf_cache_store *s)
{
    int64_t table = s->end, foot[4], *t;
    weft_status st = s->fd < 0 ? begin_file(s) : WEFT_OK;

    if (st)
        return st;
    table = s->end;
    t = wf_alloc_n(s->ctx, s->n + 1, 16);
    if (!t)
        return wf_err_nomem(s->ctx, (size_t)s->n * 16, s->path);
    for (int64_t i = 0; i < s->n; i++) {
        t[2 * i] = s->entry[i].offset;
        t[2 * i + 1] = s->entry[i].bytes;
    }
    foot[0] = s->n;
    foot[1] = table;
    foot[2] = (int64_t)wf_row_sum(t, 16 * s->n);
    foot[3] = (int64_t)wf_row_sum(s->head, s->n_head);
    st = write_all(s, t, 16 * s->n);
    wf_free(s->ctx, t);
    if (!st)
        st = write_all(s, foot, sizeof foot);
    if (!st)
        st = write_all(s, MAGIC, 8);
    return wf_newfile_close(&s->file, st, true);
}

void wf_cache_complete(struct wf_cache_store *s)
{
    pthread_mutex_lock(&s->lock);
    if (!s->complete && s->in != WF_CACHE_NONE) {
        if (s->in == WF_CACHE_UNDECIDED)
            s->in = WF_CACHE_MEMORY; /* there were no elements: nothing to decide */
        if (s->in == WF_CACHE_FILE && finish_file(s))
            give_up(s, weft_error());
        s->complete = s->in != WF_CACHE_NONE;
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- getting --------------------------------------------------------------------------------- */

void wf_cache_pick(struct wf_cache_store *s, const int64_t *id, int64_t n, struct wf_pick *pick)
{
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < n; i++) {
        bool there = s->in == WF_CACHE_MEMORY && id[i] < s->cap && s->entry[id[i]].held;

        pick[i] = (struct wf_pick){NULL, 0};
        if (there)
            pick[i] = (struct wf_pick){wf_held_ref(s->entry[id[i]].held), s->entry[id[i]].i};
    }
    pthread_mutex_unlock(&s->lock);
}

/* The position of a run of rows, and its file. */
static int64_t find_run(struct wf_cache_store *s, int64_t id, int64_t n, int64_t *offset,
                        int64_t *bytes)
{
    int64_t m = 0;

    *bytes = 0;
    while (m < n && id + m < s->cap && s->in == WF_CACHE_FILE) {
        const struct wf_cache_entry *e = &s->entry[id + m];

        if (!e->offset || (m && (e->offset != *offset + *bytes || *bytes > READ_BYTES - e->bytes)))
            break;
        if (!m)
            *offset = e->offset;
        *bytes += e->bytes;
        m++;
    }
    return m;
}

weft_status wf_cache_read(struct wf_cache_store *s, struct wf_env *env, int64_t id, int64_t n,
                          struct wf_chunk **chunk, int64_t *bytes, int64_t *got)
{
    const struct wf_fs *fs = s->ctx->fs;
    int64_t offset = 0, m, at = 0, r = 1, rows = -1;
    struct wf_chunk *mem;
    int fd;

    *got = 0;
    pthread_mutex_lock(&s->lock);
    m = find_run(s, id, n, &offset, bytes);
    fd = s->fd;
    pthread_mutex_unlock(&s->lock);
    if (!m)
        return WEFT_OK;
    mem = wf_chunk_new(env, *bytes);
    if (!mem)
        return wf_env_nomem(env, *bytes, s->path);
    while (at < *bytes && r > 0) {
        r = fs->pread(fs->arg, fd, mem->data + at, *bytes - at, offset + at);
        at += r > 0 ? r : 0;
    }
    if (at == *bytes && wf_rows_check(mem->data, *bytes, &rows) && rows == m) {
        *chunk = mem;
        *got = m;
        return WEFT_OK;
    }
    wf_chunk_unref(mem);
    pthread_mutex_lock(&s->lock);
    if (s->fd == fd) {
        wf_log(s->ctx, WEFT_LOG_WARN,
               "data: %s: element %lld (byte %lld) is damaged: creating it again", s->path,
               (long long)id, (long long)offset);
        clear(s);
        fs->unlink(fs->arg, s->path); /* so that the next process does not start with it again */
        s->filler = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    return WEFT_OK;
}
