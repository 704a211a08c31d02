/* writer.c - checkpoints written by a thread while training continues.
 *
 * A save copies everything into one staging buffer, which is reused, and hands it over; there is
 * one snapshot at a time. The mutex guards `busy`, `quit`, the counters and the pending failure;
 * the snapshot belongs to the caller while `busy` is false and to the thread while it is true. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "ckpt/ckpt.h"

#define COPY_ALIGN 64
#define COPY_TILE ((int64_t)1 << 20)

struct weft_ckpt_writer {
    weft_ctx *ctx;
    char *dir, *monitor;
    weft_ckpt_writer_opts o;
    int lock_fd;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool has_thread, has_mutex;
    bool busy, quit;
    int64_t held; /* nothing is deleted from this step on; -1: as the options say */
    weft_ckpt_stats stats;
    weft_status failed; /* not reported yet */
    char why[1024];
    char *chunk;           /* for reading back */
    weft_ckpt_list *known; /* the checkpoints there, as the last deletion left them */
    /* the snapshot */
    struct wf_arena mem;
    weft_ckpt_data snap;
    struct wf_ckpt_source source; /* its write NULL: no one else writes a part */
    char *copy;
    int64_t copy_cap;
};

/* ---- writing one ----------------------------------------------------------------------------- */

/* The only checkpoint of its step: if all are kept, there is nothing to search for. */
static bool is_first(const char *path)
{
    int64_t step, attempt;

    return wf_ckpt_name_parse(strrchr(path, '/') + 1, &step, &attempt) && attempt == 1;
}

/* The tensors of a checkpoint in one list. */
static weft_status list_all(weft_ckpt_writer *w, const weft_ckpt_data *d, weft_ckpt_tensor **all)
{
    const struct wf_ckpt_source *s = &w->source;

    *all = wf_alloc_n(w->ctx, d->n_tensors + s->n_tensors + 1, sizeof **all);
    if (!*all)
        return wf_err_nomem(w->ctx, sizeof **all, "checkpoint");
    for (int64_t i = 0; i < d->n_tensors; i++)
        (*all)[i] = d->tensors[i];
    for (int64_t i = 0; i < s->n_tensors; i++)
        (*all)[d->n_tensors + i] = s->tensors[i];
    return WEFT_OK;
}

/* This process's part. */
static weft_status write_own(weft_ckpt_writer *w, const weft_ckpt_data *d, const char *name,
                             char **text)
{
    weft_ckpt_piece *piece = wf_alloc_n(w->ctx, d->n_tensors + 1, sizeof *piece);
    weft_status st = piece ? WEFT_OK : wf_err_nomem(w->ctx, sizeof *piece, "checkpoint");

    for (int64_t i = 0; i < d->n_tensors && !st; i++)
        piece[i] = (weft_ckpt_piece){.name = d->tensors[i].name,
                                     .section = d->tensors[i].section,
                                     .whole = d->tensors[i].tensor,
                                     .count = weft_tensor_count(&d->tensors[i].tensor),
                                     .data = d->tensors[i].tensor.data};
    if (!st)
        st = weft_ckpt_part_write(
            w->ctx, w->dir, name,
            WEFT_OPTS(weft_ckpt_part, .writer = "writer", .n_pieces = d->n_tensors, .pieces = piece,
                      .n_blobs = d->n_blobs, .blobs = d->blobs, .shard_bytes = w->o.shard_bytes,
                      .piece_bytes = w->o.piece_bytes),
            text);
    wf_free(w->ctx, piece);
    return st;
}

/* A checkpoint of which others write parts. */
static weft_status write_parts(weft_ckpt_writer *w, const weft_ckpt_data *d,
                               char path[WF_CKPT_PATH], int64_t *bytes)
{
    const struct wf_ckpt_source *s = &w->source;
    char **text = wf_alloc_n(w->ctx, s->max_parts + 1, sizeof *text);
    weft_ckpt_tensor *all = NULL;
    weft_ckpt_build *b = NULL;
    weft_ckpt_data whole = *d;
    int64_t n = 0;
    weft_status st = text ? list_all(w, d, &all) : wf_err_nomem(w->ctx, sizeof *text, "checkpoint");

    if (!st)
        st = wf_ckpt_begin(w->ctx, w->dir, d->step, true, &b);
    if (!st)
        st = wf_ckpt_join(path, w->dir, weft_ckpt_build_name(b));
    if (!st)
        st = s->write(s->arg, w->dir, weft_ckpt_build_name(b), text + 1, &n);
    if (!st)
        st = write_own(w, d, weft_ckpt_build_name(b), &text[0]);
    whole.tensors = all;
    whole.n_tensors = d->n_tensors + s->n_tensors;
    whole.n_blobs = 0;
    whole.blobs = NULL;
    if (!st)
        st = weft_ckpt_commit(b, n + 1, (const char *const *)text, &whole);
    else
        wf_err_wrap(st, "checkpoint of step %lld", (long long)d->step);
    if (!st)
        *bytes = wf_ckpt_build_bytes(b);
    for (int64_t i = 0; text && i <= s->max_parts; i++)
        weft_text_free(w->ctx, text[i]);
    weft_ckpt_build_free(b);
    wf_free(w->ctx, text);
    wf_free(w->ctx, all);
    return st;
}

static weft_status write_one(weft_ckpt_writer *w, const weft_ckpt_data *d, char path[WF_CKPT_PATH],
                             int64_t *bytes)
{
    if (w->source.write)
        return write_parts(w, d, path, bytes);
    return wf_ckpt_write(w->ctx, w->dir, d,
                         (struct wf_ckpt_sizes){w->o.shard_bytes, w->o.piece_bytes}, w->chunk, path,
                         bytes);
}

static weft_status write_and_prune(weft_ckpt_writer *w, const weft_ckpt_data *d, int64_t *bytes,
                                   bool *written)
{
    const weft_ckpt_prune_opts prune = {
        .size = sizeof prune,
        .keep = {.size = sizeof prune.keep,
                 .keep_last = w->o.keep_last,
                 .keep_best = w->o.keep_best,
                 .keep_highest = w->o.keep_highest,
                 .keep_hours = w->o.keep_hours},
        .monitor = w->monitor,
    };
    char path[WF_CKPT_PATH];
    int64_t held;
    weft_status st = write_one(w, d, path, bytes);

    pthread_mutex_lock(&w->mutex);
    held = w->held;
    pthread_mutex_unlock(&w->mutex);
    *written = !st;
    if (st || (w->o.keep_last == WEFT_CKPT_ALL && is_first(path)))
        return st;
    return wf_err_wrap(wf_ckpt_prune_after(w->ctx, w->dir, &prune, held, path, &w->known),
                       "checkpoint of step %lld was written, but old ones cannot be deleted",
                       (long long)d->step);
}

/* Whoever writes parts need not keep anything. The error's text stays. */
static void end(const struct wf_ckpt_source *s, weft_status st)
{
    char why[1024];

    snprintf(why, sizeof why, "%s", st ? weft_error() : "");
    s->end(s->arg);
    if (st)
        wf_err_set(why);
}

static void end_source(weft_ckpt_writer *w, weft_status st)
{
    if (w->source.write)
        end(&w->source, st);
    w->source = (struct wf_ckpt_source){.write = NULL};
}

/* Writes, and records the result. Called without the mutex. */
static void carry_out(weft_ckpt_writer *w, const weft_ckpt_data *d)
{
    int64_t bytes = 0, begin = wf_now(w->ctx), took;
    bool written = false;
    weft_status st = write_and_prune(w, d, &bytes, &written);

    took = wf_now(w->ctx) - begin;
    end_source(w, st);
    pthread_mutex_lock(&w->mutex);
    w->stats.n_saved += written;
    w->stats.n_failed += !written;
    w->stats.write_ns += took;
    w->stats.last_write_ns = took;
    if (written) {
        w->stats.bytes += bytes;
        w->stats.last_bytes = bytes;
        w->stats.last_step = d->step;
    }
    if (st) {
        w->failed = st;
        snprintf(w->why, sizeof w->why, "%s", weft_error());
    }
    pthread_mutex_unlock(&w->mutex);
}

/* With normal priority: a thread that waits long for a core delays the next save, and takes no less
 * time in total. */
static void *writer_main(void *arg)
{
    weft_ckpt_writer *w = arg;

    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->busy && !w->quit)
            pthread_cond_wait(&w->changed, &w->mutex);
        if (!w->busy)
            break;
        pthread_mutex_unlock(&w->mutex);
        carry_out(w, &w->snap);
        pthread_mutex_lock(&w->mutex);
        w->busy = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* ---- the snapshot ---------------------------------------------------------------------------- */

/* One piece of the staging buffer: its offset, and the memory it comes from. */
struct piece {
    int64_t at, bytes;
    const char *from;
};

struct copy_job {
    char *to;
    const struct piece *piece;
    int64_t n;
};

/* Tile t is the bytes [t, t + 1) MiB of the staging buffer, whatever pieces they belong to. */
static void copy_tile(void *arg, int64_t tile, int thread)
{
    const struct copy_job *j = arg;
    int64_t begin = tile * COPY_TILE, end = begin + COPY_TILE, lo = 0, hi = j->n;

    (void)thread;
    while (hi - lo > 1) { /* the last piece that begins at or before the tile */
        int64_t mid = lo + (hi - lo) / 2;

        if (j->piece[mid].at <= begin)
            lo = mid;
        else
            hi = mid;
    }
    for (; lo < j->n && j->piece[lo].at < end; lo++) {
        const struct piece *p = &j->piece[lo];
        int64_t a = wf_max_i64(p->at, begin), b = wf_min_i64(p->at + p->bytes, end);

        if (a < b)
            memcpy(j->to + a, p->from + (a - p->at), (size_t)(b - a));
    }
}

/* Lays out the data in the staging buffer; returns its size, or -1 if it overflows. */
static int64_t lay_out(const weft_ckpt_data *d, struct piece *piece)
{
    int64_t at = 0, n = 0;

    for (int64_t i = 0; i < d->n_tensors + d->n_blobs; i++) {
        bool tensor = i < d->n_tensors;
        const weft_tensor *t = tensor ? &d->tensors[i].tensor : NULL;
        const weft_ckpt_blob *b = tensor ? NULL : &d->blobs[i - d->n_tensors];

        piece[n] = (struct piece){.at = at,
                                  .bytes = tensor ? weft_tensor_bytes(t) : b->bytes,
                                  .from = tensor ? t->data : b->data};
        if (!wf_add_i64(at, piece[n].bytes, &at) || at > INT64_MAX - COPY_ALIGN)
            return -1;
        at = wf_round_up(at, COPY_ALIGN);
        n++;
    }
    return at;
}

static weft_status reserve(weft_ckpt_writer *w, int64_t bytes)
{
    char *p;

    if (bytes <= w->copy_cap)
        return WEFT_OK;
    wf_free(w->ctx, w->copy);
    w->copy = NULL;
    w->copy_cap = 0;
    p = wf_alloc(w->ctx, (size_t)bytes);
    if (!p)
        return wf_err_nomem(w->ctx, (size_t)bytes, "copy for a checkpoint");
    w->copy = p;
    w->copy_cap = bytes;
    return WEFT_OK;
}

static const char *copy_text(weft_ckpt_writer *w, const char *s, bool *bad)
{
    const char *p = s ? wf_arena_strdup(&w->mem, s) : NULL;

    *bad = *bad || (s && !p);
    return p;
}

/* Lists and names, with data pointers into the staging buffer. */
static weft_status copy_lists(weft_ckpt_writer *w, const weft_ckpt_data *d,
                              const struct piece *piece)
{
    weft_ckpt_tensor *tensors = wf_arena_alloc(&w->mem, (size_t)d->n_tensors * sizeof *tensors);
    weft_ckpt_blob *blobs = wf_arena_alloc(&w->mem, (size_t)d->n_blobs * sizeof *blobs);
    weft_ckpt_metric *metrics = wf_arena_alloc(&w->mem, (size_t)d->n_metrics * sizeof *metrics);
    weft_ckpt_pair *meta = wf_arena_alloc(&w->mem, (size_t)d->n_meta * sizeof *meta);
    bool bad = !tensors || !blobs || !metrics || !meta;

    for (int64_t i = 0; i < d->n_tensors && !bad; i++) {
        tensors[i] = d->tensors[i];
        tensors[i].name = copy_text(w, d->tensors[i].name, &bad);
        tensors[i].section = copy_text(w, d->tensors[i].section, &bad);
        tensors[i].tensor.data = w->copy + piece[i].at;
    }
    for (int64_t i = 0; i < d->n_blobs && !bad; i++) {
        blobs[i] = d->blobs[i];
        blobs[i].name = copy_text(w, d->blobs[i].name, &bad);
        blobs[i].data = w->copy + piece[d->n_tensors + i].at;
    }
    for (int64_t i = 0; i < d->n_metrics && !bad; i++)
        metrics[i] =
            (weft_ckpt_metric){copy_text(w, d->metrics[i].name, &bad), d->metrics[i].value};
    for (int64_t i = 0; i < d->n_meta && !bad; i++)
        meta[i] = (weft_ckpt_pair){copy_text(w, d->meta[i].key, &bad),
                                   copy_text(w, d->meta[i].value, &bad)};
    if (bad)
        return wf_err_nomem(w->ctx, 0, "names of a checkpoint");
    w->snap = *d;
    w->snap.tensors = tensors;
    w->snap.blobs = blobs;
    w->snap.metrics = metrics;
    w->snap.meta = meta;
    return WEFT_OK;
}

/* Names of what others write. */
static weft_status copy_source(weft_ckpt_writer *w, const struct wf_ckpt_source *s)
{
    weft_ckpt_tensor *list = wf_arena_alloc(&w->mem, (size_t)(s->n_tensors + 1) * sizeof *list);
    bool bad = !list;

    for (int64_t i = 0; i < s->n_tensors && !bad; i++) {
        list[i] = s->tensors[i];
        list[i].name = copy_text(w, s->tensors[i].name, &bad);
        list[i].section = copy_text(w, s->tensors[i].section, &bad);
    }
    if (bad)
        return wf_err_nomem(w->ctx, 0, "names of a checkpoint");
    w->source = *s;
    w->source.tensors = list;
    return WEFT_OK;
}

/* Copies all of d into the writer. ELIMIT: over the limit of copies; the caller writes it without a
 * copy. */
static weft_status take_snapshot(weft_ckpt_writer *w, const weft_ckpt_data *d,
                                 const struct wf_ckpt_source *source)
{
    struct piece *piece;
    int64_t bytes, n = d->n_tensors + d->n_blobs;
    struct copy_job j;
    weft_status st;

    wf_arena_free(&w->mem);
    piece = wf_arena_alloc(&w->mem, (size_t)n * sizeof *piece);
    if (!piece)
        return wf_err_nomem(w->ctx, (size_t)n * sizeof *piece, "checkpoint");
    bytes = lay_out(d, piece);
    if (bytes < 0 || (w->o.copy_limit > 0 && bytes > w->o.copy_limit))
        return wf_err(WEFT_ELIMIT, "a snapshot of %lld bytes exceeds the limit of %lld",
                      (long long)bytes, (long long)w->o.copy_limit);
    st = reserve(w, bytes);
    if (!st)
        st = copy_lists(w, d, piece);
    if (!st && source)
        st = copy_source(w, source);
    if (st)
        return st;
    j = (struct copy_job){.to = w->copy, .piece = piece, .n = n};
    if (bytes)
        wf_pool_for(w->ctx->pool, (bytes + COPY_TILE - 1) / COPY_TILE, copy_tile, &j);
    return WEFT_OK;
}

void wf_ckpt_writer_hold(weft_ckpt_writer *w, int64_t step)
{
    pthread_mutex_lock(&w->mutex);
    w->held = step;
    pthread_mutex_unlock(&w->mutex);
}

/* ---- the public side ------------------------------------------------------------------------- */

static weft_status check_opts(const weft_ckpt_writer_opts *o)
{
    const weft_ckpt_policy keep = {.size = sizeof keep,
                                   .keep_last = o->keep_last,
                                   .keep_best = o->keep_best,
                                   .keep_hours = o->keep_hours};

    if (o->keep_best > 0 && !o->monitor)
        return wf_err(WEFT_EINVAL, "keep_best needs the name of a metric (monitor)");
    if (o->shard_bytes < 0 || o->reserve_bytes < 0 || o->copy_limit < 0)
        return wf_err(WEFT_EINVAL, "checkpoint writer: a size is negative");
    return weft_ckpt_retain(&keep, 0, NULL, NULL);
}

static weft_status make_mutex(weft_ckpt_writer *w)
{
    if (pthread_mutex_init(&w->mutex, NULL))
        return wf_err(WEFT_ENOMEM, "checkpoint writer: cannot create a mutex");
    if (pthread_cond_init(&w->changed, NULL)) {
        pthread_mutex_destroy(&w->mutex);
        return wf_err(WEFT_ENOMEM, "checkpoint writer: cannot create a condition variable");
    }
    w->has_mutex = true;
    return WEFT_OK;
}

static weft_status start_thread(weft_ckpt_writer *w)
{
    sigset_t all, before;
    int rc;

    /* Signals are handled by the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&w->thread, NULL, writer_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc)
        return wf_err(WEFT_ENOMEM, "checkpoint writer: cannot start a thread: %s",
                      wf_errno_text(rc));
    w->has_thread = true;
    return WEFT_OK;
}

weft_status weft_ckpt_writer_new(weft_ctx *ctx, const char *dir, const weft_ckpt_writer_opts *opts,
                                 weft_ckpt_writer **out)
{
    weft_ckpt_writer_opts o;
    weft_ckpt_writer *w;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ckpt_writer_opts");

    if (!st)
        st = check_opts(&o);
    if (st)
        return st;
    w = wf_alloc(ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(ctx, sizeof *w, "checkpoint writer");
    w->ctx = ctx;
    w->o = o;
    w->lock_fd = -1;
    w->stats.last_step = w->held = -1;
    wf_arena_init(&w->mem, ctx);
    w->dir = wf_strdup(ctx, dir);
    w->monitor = o.monitor ? wf_strdup(ctx, o.monitor) : NULL;
    if (!w->dir || (o.monitor && !w->monitor)) {
        st = wf_err_nomem(ctx, strlen(dir), "checkpoint writer");
        goto out;
    }
    st = make_mutex(w);
    if (!st)
        st = wf_ckpt_make_dir(ctx, dir);
    if (!st)
        st = wf_ckpt_lock(ctx, dir, &w->lock_fd);
    if (!st)
        st = wf_ckpt_sweep(ctx, dir);
    if (!st && !(w->chunk = wf_alloc(ctx, (size_t)WF_CKPT_CHUNK)))
        st = wf_err_nomem(ctx, (size_t)WF_CKPT_CHUNK, "checkpoint writer");
    if (!st && !o.foreground)
        st = reserve(w, o.reserve_bytes);
    if (!st && !o.foreground)
        st = start_thread(w);
    if (st)
        goto out;
    *out = w;
    w = NULL;
out:
    weft_ckpt_writer_close(w);
    return st;
}

/* Waits until nothing is being written. The caller has the mutex. */
static void wait_idle(weft_ckpt_writer *w)
{
    while (w->busy)
        pthread_cond_wait(&w->changed, &w->mutex);
}

/* Failures since the last report: logged, and returned with their text. Called without the
 * mutex. */
static weft_status report(weft_ckpt_writer *w)
{
    char why[sizeof w->why];
    weft_status st;

    pthread_mutex_lock(&w->mutex);
    st = w->failed;
    w->failed = WEFT_OK;
    memcpy(why, w->why, sizeof why);
    pthread_mutex_unlock(&w->mutex);
    if (st) {
        wf_log(w->ctx, WEFT_LOG_WARN, "%s", why);
        wf_err_set(why);
    }
    return st;
}

/* Out of memory for a copy, or over its limit, is not a reason to lose a checkpoint: it is written
 * immediately. */
static weft_status save_idle(weft_ckpt_writer *w, const weft_ckpt_data *d,
                             const struct wf_ckpt_source *source)
{
    weft_status st = WEFT_OK;

    if (!w->o.foreground) {
        st = take_snapshot(w, d, source);
        if (!st) {
            pthread_mutex_lock(&w->mutex);
            w->busy = true;
            w->stats.copy_bytes = w->copy_cap;
            pthread_cond_broadcast(&w->changed);
            pthread_mutex_unlock(&w->mutex);
            return WEFT_OK;
        }
        wf_log(w->ctx, WEFT_LOG_WARN,
               "checkpoint of step %lld is written synchronously while training waits: %s",
               (long long)d->step, weft_error());
    }
    if (source)
        w->source = *source;
    carry_out(w, d);
    st = report(w);
    return w->o.stop_on_error ? st : WEFT_OK;
}

/* Nothing is written. The writer's own source may be that of the thread. */
static weft_status drop_source(const struct wf_ckpt_source *source, weft_status st)
{
    if (source)
        end(source, st);
    return st;
}

static weft_status save(weft_ckpt_writer *w, const weft_ckpt_data *data,
                        const struct wf_ckpt_source *source)
{
    int64_t begin = wf_now(w->ctx), waited = 0, took;
    weft_ckpt_data d;
    bool skip;
    weft_status st = wf_opts_take(&d, sizeof d, data, "weft_ckpt_data");

    if (!st)
        st = wf_ckpt_check(w->ctx, &d);
    if (st)
        return drop_source(source, st);
    if (!d.time_ns)
        d.time_ns = wf_ckpt_wall_time();
    pthread_mutex_lock(&w->mutex);
    skip = w->busy && w->o.busy == WEFT_CKPT_SKIP;
    if (skip) {
        w->stats.n_skipped++;
    } else if (w->busy) {
        wait_idle(w);
        waited = wf_now(w->ctx) - begin;
    }
    pthread_mutex_unlock(&w->mutex);
    if (skip)
        return drop_source(source, WEFT_OK);
    st = report(w);
    st = st && w->o.stop_on_error ? drop_source(source, st) : save_idle(w, &d, source);
    took = wf_now(w->ctx) - begin;
    pthread_mutex_lock(&w->mutex);
    w->stats.stall_ns += took;
    w->stats.last_stall_ns = took;
    w->stats.wait_ns += waited;
    pthread_mutex_unlock(&w->mutex);
    return st;
}

weft_status weft_ckpt_save(weft_ckpt_writer *w, const weft_ckpt_data *data)
{
    return save(w, data, NULL);
}

weft_status wf_ckpt_save_with(weft_ckpt_writer *w, const weft_ckpt_data *data,
                              const struct wf_ckpt_source *source)
{
    return save(w, data, source);
}

weft_status weft_ckpt_writer_flush(weft_ckpt_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    wait_idle(w);
    pthread_mutex_unlock(&w->mutex);
    return report(w);
}

void weft_ckpt_writer_stats(weft_ckpt_writer *w, weft_ckpt_stats *out)
{
    pthread_mutex_lock(&w->mutex);
    *out = w->stats;
    pthread_mutex_unlock(&w->mutex);
}

weft_status weft_ckpt_writer_close(weft_ckpt_writer *w)
{
    weft_status st = WEFT_OK;
    weft_ctx *ctx;

    if (!w)
        return WEFT_OK;
    ctx = w->ctx;
    if (w->has_thread) {
        st = weft_ckpt_writer_flush(w);
        pthread_mutex_lock(&w->mutex);
        w->quit = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
    } else if (w->has_mutex) {
        st = report(w);
    }
    if (w->has_mutex) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
    }
    if (w->lock_fd >= 0)
        ctx->fs->close(ctx->fs->arg, w->lock_fd);
    weft_ckpt_list_free(ctx, w->known);
    wf_free(ctx, w->chunk);
    wf_arena_free(&w->mem);
    wf_free(ctx, w->copy);
    wf_free(ctx, w->monitor);
    wf_free(ctx, w->dir);
    wf_free(ctx, w);
    return st;
}
