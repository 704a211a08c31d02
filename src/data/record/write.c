/* write.c - the writer of TFRecord files.
 *
 * Invariant: an uncompressed file has only complete records whenever a call returns, even after a
 * write failed: an incomplete record is removed again. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

#include "data/record/record.h"
#include "data/record/write.h"

#define BUF_BYTES (256 << 10)

struct weft_record_writer {
    weft_ctx *ctx;
    char *path;
    int fd;
    weft_compression how;
    int64_t n_records;
    char *buf; /* uncompressed: complete records; compressed: output of the compressor */
    int64_t n;
    int64_t n_file; /* bytes of the file that are safe: complete records, or all that was written */
    weft_status st; /* the first failure, with its text */
    char error[512];
    struct wf_buf example; /* scratch for encoding */
#ifdef WF_HAVE_ZLIB
    z_stream z;
    bool z_open;
#endif
};

static weft_status stick(weft_record_writer *w, weft_status st)
{
    if (st && !w->st) {
        w->st = st;
        snprintf(w->error, sizeof w->error, "%s", weft_error());
    }
    return st;
}

static weft_status stuck(const weft_record_writer *w)
{
    return w->st ? wf_err(w->st, "%s", w->error) : WEFT_OK;
}

/* ---- to the file ----------------------------------------------------------------------------- */

static weft_status write_bytes(weft_record_writer *w, const char *p, int64_t n)
{
    const struct wf_fs *fs = w->ctx->fs;
    int64_t put;

    for (; n > 0; p += put, n -= put) {
        put = fs->write(fs->arg, w->fd, p, n);
        if (put <= 0)
            return wf_file_err(put ? put : -ENOSPC, w->path, "cannot write");
    }
    return WEFT_OK;
}

/* Removes what a failed write left after the last complete record. */
static void cut(weft_record_writer *w)
{
    const struct wf_fs *fs = w->ctx->fs;

    if (w->how == WEFT_COMPRESSION_NONE && !fs->truncate(fs->arg, w->fd, w->n_file))
        fs->seek(fs->arg, w->fd, w->n_file);
}

static weft_status write_buf(weft_record_writer *w)
{
    weft_status st = write_bytes(w, w->buf, w->n);

    if (st) {
        stick(w, st);
        cut(w);
        return stuck(w);
    }
    w->n_file += w->n;
    w->n = 0;
    return WEFT_OK;
}

#ifdef WF_HAVE_ZLIB
static void *z_alloc(void *ctx, unsigned n, unsigned size)
{
    return wf_alloc_n(ctx, n, size);
}

static void z_free(void *ctx, void *p)
{
    wf_free(ctx, p);
}

static weft_status z_begin(weft_record_writer *w, int level)
{
    w->z = (z_stream){.zalloc = z_alloc, .zfree = z_free, .opaque = w->ctx};
    if (deflateInit2(&w->z, level ? level : 6, Z_DEFLATED,
                     w->how == WEFT_COMPRESSION_GZIP ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return wf_err_nomem(w->ctx, 300 << 10, w->path);
    w->z_open = true;
    return WEFT_OK;
}

/* Compresses n bytes; then flushes or finishes, if requested. */
static weft_status z_put(weft_record_writer *w, const char *p, int64_t n, int flush)
{
    weft_status st = WEFT_OK;
    int rc = Z_OK;
    bool full;

    do {
        int64_t step = wf_min_i64(n, 1 << 30);

        w->z.next_in = (unsigned char *)p;
        w->z.avail_in = (unsigned)step;
        w->z.next_out = (unsigned char *)w->buf + w->n;
        w->z.avail_out = (unsigned)(BUF_BYTES - w->n);
        rc = deflate(&w->z, step < n ? Z_NO_FLUSH : flush);
        if (step)
            p += step - w->z.avail_in;
        n -= step - w->z.avail_in;
        full = !w->z.avail_out;
        w->n = BUF_BYTES - w->z.avail_out;
        if (full)
            st = write_buf(w);
    } while (!st && rc != Z_STREAM_END && (n > 0 || full));
    return st;
}
#endif

/* ---- records --------------------------------------------------------------------------------- */

static void put_le(char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (char)(v >> (8 * i));
}

static weft_status add_plain(weft_record_writer *w, const char *head, const void *data, int64_t n,
                             const char *foot)
{
    weft_status st = WEFT_OK;

    if (n + WF_RECORD_FRAME > BUF_BYTES - w->n)
        st = write_buf(w);
    if (st)
        return st;
    if (n + WF_RECORD_FRAME <= BUF_BYTES) {
        memcpy(w->buf + w->n, head, WF_RECORD_HEAD);
        if (n)
            memcpy(w->buf + w->n + WF_RECORD_HEAD, data, (size_t)n);
        memcpy(w->buf + w->n + WF_RECORD_HEAD + n, foot, WF_RECORD_FOOT);
        w->n += n + WF_RECORD_FRAME;
        return WEFT_OK;
    }
    st = write_bytes(w, head, WF_RECORD_HEAD);
    if (!st)
        st = write_bytes(w, data, n);
    if (!st)
        st = write_bytes(w, foot, WF_RECORD_FOOT);
    if (st) {
        stick(w, st);
        cut(w);
        return stuck(w);
    }
    w->n_file += n + WF_RECORD_FRAME;
    return WEFT_OK;
}

weft_status weft_record_writer_add(weft_record_writer *w, const void *bytes, int64_t n)
{
    char head[WF_RECORD_HEAD], foot[WF_RECORD_FOOT];
    weft_status st = stuck(w);

    if (st)
        return st;
    if (n < 0 || (n && !bytes) || n > INT64_MAX / 4)
        return wf_err(WEFT_EINVAL, "%s: a record of %lld bytes", w->path, (long long)n);
    put_le(head, (uint64_t)n, 8);
    put_le(head + 8, wf_crc_mask(wf_crc32c(0, head, 8)), 4);
    put_le(foot, wf_crc_mask(wf_crc32c(0, bytes, n)), 4);
    if (w->how == WEFT_COMPRESSION_NONE)
        st = add_plain(w, head, bytes, n, foot);
#ifdef WF_HAVE_ZLIB
    if (w->how != WEFT_COMPRESSION_NONE) {
        st = z_put(w, head, WF_RECORD_HEAD, Z_NO_FLUSH);
        if (!st && n)
            st = z_put(w, bytes, n, Z_NO_FLUSH);
        if (!st)
            st = z_put(w, foot, WF_RECORD_FOOT, Z_NO_FLUSH);
    }
#endif
    w->n_records += !st;
    return st;
}

weft_status weft_record_writer_flush(weft_record_writer *w, bool sync)
{
    const struct wf_fs *fs = w->ctx->fs;
    weft_status st = stuck(w);
    int rc;

#ifdef WF_HAVE_ZLIB
    if (!st && w->z_open)
        st = z_put(w, NULL, 0, Z_SYNC_FLUSH);
#endif
    if (!st)
        st = write_buf(w);
    if (st || !sync)
        return st;
    rc = fs->sync(fs->arg, w->fd);
    return rc ? stick(w, wf_file_err(rc, w->path, "cannot sync")) : WEFT_OK;
}

int64_t weft_record_writer_count(const weft_record_writer *w)
{
    return w->n_records;
}

struct wf_buf *wf_record_writer_room(weft_record_writer *w)
{
    w->example.len = 0;
    w->example.st = WEFT_OK;
    return &w->example;
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status choose(const char *path, const weft_record_writer_opts *o, weft_compression *how)
{
    size_t n = strlen(path);

    *how = o->compression;
    if (*how == WEFT_COMPRESSION_AUTO) {
        *how = n > 3 && !strcmp(path + n - 3, ".gz")     ? WEFT_COMPRESSION_GZIP
               : n > 5 && !strcmp(path + n - 5, ".zlib") ? WEFT_COMPRESSION_ZLIB
               : n > 4 && !strcmp(path + n - 4, ".zst")  ? WEFT_COMPRESSION_ZSTD
                                                         : WEFT_COMPRESSION_NONE;
    }
    if (*how < WEFT_COMPRESSION_NONE || *how > WEFT_COMPRESSION_ZLIB)
        return wf_err(WEFT_ENOSUP, "%s: TFRecords can be written uncompressed, as gzip or as zlib",
                      path);
    if (o->level < 0 || o->level > 9)
        return wf_err(WEFT_EINVAL, "%s: level %d is not in 1..9", path, o->level);
    if (o->append && *how != WEFT_COMPRESSION_NONE)
        return wf_err(WEFT_ENOSUP, "%s: only an uncompressed file can be appended to", path);
#ifndef WF_HAVE_ZLIB
    if (*how != WEFT_COMPRESSION_NONE)
        return wf_err(WEFT_ENOSUP, "%s: needs zlib, which this build lacks (package zlib1g-dev)",
                      path);
#endif
    return WEFT_OK;
}

/* Moves after the last complete record of an existing file. */
static weft_status go_to_end(weft_record_writer *w)
{
    const struct wf_fs *fs = w->ctx->fs;
    struct wf_record_index x;
    enum wf_damage damage;
    int64_t rc = 0;
    weft_status st = wf_record_walk(w->ctx, w->path, INT64_MAX, &damage, &x);

    if (st)
        return st;
    if (damage == WF_DAMAGE_LENGTH) {
        st = wf_err_wrap(WEFT_EDATA, "cannot append to a damaged file");
    } else {
        if (damage == WF_DAMAGE_CUT) {
            wf_log(w->ctx, WEFT_LOG_WARN, "%s; the damaged end is removed", weft_error());
            rc = fs->truncate(fs->arg, w->fd, x.bytes);
        }
        if (rc >= 0)
            rc = fs->seek(fs->arg, w->fd, x.bytes);
        if (rc < 0)
            st = wf_file_err(rc, w->path, "cannot append");
        w->n_file = x.bytes;
    }
    wf_record_index_free(w->ctx, &x);
    return st;
}

static void writer_free(weft_record_writer *w)
{
    if (!w)
        return;
#ifdef WF_HAVE_ZLIB
    if (w->z_open)
        deflateEnd(&w->z);
#endif
    if (w->fd >= 0)
        w->ctx->fs->close(w->ctx->fs->arg, w->fd);
    wf_buf_free(&w->example);
    wf_free(w->ctx, w->buf);
    wf_free(w->ctx, w->path);
    wf_free(w->ctx, w);
}

static weft_status writer_open(weft_record_writer *w, const char *path,
                               const weft_record_writer_opts *o)
{
    wf_buf_init(&w->example, w->ctx, INT64_MAX / 4);
    w->path = wf_strdup(w->ctx, path);
    w->buf = wf_alloc(w->ctx, BUF_BYTES);
    if (!w->path || !w->buf)
        return wf_err_nomem(w->ctx, BUF_BYTES, path);
    w->fd = wf_file_open_out(w->ctx, path, O_RDWR | O_CREAT | (o->append ? 0 : O_TRUNC), 0666);
    if (w->fd < 0)
        return wf_file_err(w->fd, path, "cannot create");
#ifdef WF_HAVE_ZLIB
    if (w->how != WEFT_COMPRESSION_NONE)
        return z_begin(w, o->level);
#endif
    return o->append ? go_to_end(w) : WEFT_OK;
}

weft_status weft_record_writer_new(weft_ctx *ctx, const char *path,
                                   const weft_record_writer_opts *opts, weft_record_writer **out)
{
    weft_record_writer_opts o;
    weft_record_writer *w;
    weft_compression how;
    weft_status st = path ? wf_opts_take(&o, sizeof o, opts, "weft_record_writer_opts")
                          : wf_err(WEFT_EINVAL, "no file given (NULL)");

    if (!st)
        st = choose(path, &o, &how);
    if (st)
        return st;
    w = wf_alloc(ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(ctx, sizeof *w, path);
    w->ctx = ctx;
    w->fd = -1;
    w->how = how;
    st = writer_open(w, path, &o);
    if (st) {
        writer_free(w);
        return st;
    }
    *out = w;
    return WEFT_OK;
}

weft_status weft_record_writer_close(weft_record_writer *w)
{
    const struct wf_fs *fs;
    weft_status st;
    int rc;

    if (!w)
        return WEFT_OK;
    fs = w->ctx->fs;
    st = stuck(w);
#ifdef WF_HAVE_ZLIB
    if (!st && w->z_open)
        st = z_put(w, NULL, 0, Z_FINISH);
#endif
    if (!st)
        st = write_buf(w);
    rc = fs->close(fs->arg, w->fd);
    w->fd = -1;
    if (!st && rc)
        st = wf_file_err(rc, w->path, "cannot close");
    writer_free(w);
    return st;
}
