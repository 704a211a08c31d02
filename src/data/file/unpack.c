/* unpack.c - reads one file from front to back, unpacking it: uncompressed, gzip, zlib or zstd.
 *
 * Invariants: memory does not depend on the file; a truncated stream is an error, never an end;
 * what a file unpacks to is bounded by its size times a ratio. */
#include <fcntl.h>
#include <stdio.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef WF_HAVE_ZSTD
#include <zstd.h>
#endif

#include "data/file/files.h"

#define HEAD_BYTES 4096         /* read to detect the format of a file */
#define RAW_BYTES (256 << 10)   /* read at a time from a compressed file */
#define BOMB_BYTES (64ll << 20) /* less than this is not a bomb, at any ratio */
#define RATIO 2000

struct wf_unpack_inside {
    weft_ctx *ctx;
    int fd;
    int64_t max_ratio;
    char *raw; /* bytes of the file that have not been unpacked yet: raw[at..n) */
    int64_t at, n, cap;
    bool eof;     /* the file has nothing after raw */
    bool between; /* no member or frame has begun since the last one ended */
    bool any;     /* one was seen */
    bool pending; /* the last call filled its output: there may be more without new input */
    bool padding; /* zeros after the last gzip member */
#ifdef WF_HAVE_ZLIB
    z_stream z;
    bool z_open;
#endif
#ifdef WF_HAVE_ZSTD
    ZSTD_DCtx *zstd;
#endif
};

static const char *how_name(weft_compression how)
{
    static const char *const names[] = {"auto", "none", "gzip", "zlib", "zstd"};

    return names[how];
}

static weft_status damaged(const struct wf_unpack *u, const char *what)
{
    const struct wf_unpack_inside *in = u->in;

    return wf_err(WEFT_EDATA, "%s: byte %lld of the %s file: %s", u->path,
                  (long long)(u->n_in - (in->n - in->at)), how_name(u->how), what);
}

static weft_status refill(struct wf_unpack *u)
{
    struct wf_unpack_inside *in = u->in;
    const struct wf_fs *fs = in->ctx->fs;
    int64_t got = fs->read(fs->arg, in->fd, in->raw, in->cap);

    if (got < 0)
        return wf_file_err(got, u->path, "cannot read");
    in->at = 0;
    in->n = got;
    in->eof = !got;
    u->n_in += got;
    return WEFT_OK;
}

/* ---- gzip and zlib --------------------------------------------------------------------------- */

#ifdef WF_HAVE_ZLIB
static void *z_alloc(void *ctx, unsigned n, unsigned size)
{
    return wf_alloc_n(ctx, n, size);
}

static void z_free(void *ctx, void *p)
{
    wf_free(ctx, p);
}

static weft_status z_begin(weft_ctx *ctx, const char *path, z_stream *z, weft_compression how)
{
    *z = (z_stream){.zalloc = z_alloc, .zfree = z_free, .opaque = ctx};
    if (inflateInit2(z, how == WEFT_COMPRESSION_GZIP ? 15 + 16 : 15) != Z_OK)
        return wf_err_nomem(ctx, 40 << 10, path);
    return WEFT_OK;
}

/* Whether these first bytes of a file unpack as zlib. The two bytes of the magic number alone also
 * begin some uncompressed files: a TFRecord of 376 bytes, a text with "x^2". */
static bool looks_zlib(weft_ctx *ctx, const char *p, int64_t n, bool whole)
{
    unsigned char out[1024];
    z_stream z;
    int rc = Z_OK;

    if (n < 3 || (p[0] & 0x0f) != 8 || (((unsigned char)p[0] << 8) + (unsigned char)p[1]) % 31 ||
        z_begin(ctx, "", &z, WEFT_COMPRESSION_ZLIB))
        return false;
    z.next_in = (unsigned char *)p;
    z.avail_in = (unsigned)n;
    do {
        z.next_out = out;
        z.avail_out = sizeof out;
        rc = inflate(&z, Z_NO_FLUSH);
    } while (rc == Z_OK && !z.avail_out);
    inflateEnd(&z);
    return rc == Z_STREAM_END || ((rc == Z_OK || rc == Z_BUF_ERROR) && !whole);
}

/* Before a member: true if one begins here, false at the end or with *st. */
static bool z_member(struct wf_unpack *u, weft_status *st)
{
    struct wf_unpack_inside *in = u->in;

    if (!in->any)
        return true;
    if (u->how == WEFT_COMPRESSION_ZLIB) {
        *st = damaged(u, "bytes after the end of the stream");
        return false;
    }
    for (; in->at < in->n && !in->raw[in->at]; in->at++)
        in->padding = true;
    if (in->at == in->n)
        return false;
    if (in->padding || in->raw[in->at] != 0x1f) {
        *st = damaged(u, "expected the end or another gzip member");
        return false;
    }
    inflateReset(&in->z);
    return true;
}

static weft_status z_step(struct wf_unpack *u, char *out, int64_t room, int64_t *made)
{
    struct wf_unpack_inside *in = u->in;
    weft_status st = WEFT_OK;
    int rc;

    *made = 0;
    if (in->between && !z_member(u, &st))
        return st;
    room = wf_min_i64(room, 1 << 30);
    in->between = false;
    in->any = true;
    in->z.next_in = (unsigned char *)in->raw + in->at;
    in->z.avail_in = (unsigned)(in->n - in->at);
    in->z.next_out = (unsigned char *)out;
    in->z.avail_out = (unsigned)room;
    rc = inflate(&in->z, Z_NO_FLUSH);
    in->at = in->n - in->z.avail_in;
    *made = room - in->z.avail_out;
    in->between = rc == Z_STREAM_END;
    if (rc == Z_MEM_ERROR)
        return wf_err_nomem(in->ctx, 40 << 10, u->path);
    if (rc != Z_OK && rc != Z_BUF_ERROR && rc != Z_STREAM_END)
        return damaged(u, in->z.msg ? in->z.msg : "broken");
    return WEFT_OK;
}
#endif

/* ---- zstd ------------------------------------------------------------------------------------ */

/* A zstd frame, or a skippable one before it. */
static bool begins_zstd(const char *p)
{
    return !memcmp(p, "\x28\xb5\x2f\xfd", 4) ||
           ((p[0] & 0xf0) == 0x50 && !memcmp(p + 1, "\x2a\x4d\x18", 3));
}

#ifdef WF_HAVE_ZSTD
/* Before a frame: the library may also accept frames of its own early versions, whose damage it
 * does not always detect. */
static weft_status zstd_frame(struct wf_unpack *u)
{
    struct wf_unpack_inside *in = u->in;
    const struct wf_fs *fs = in->ctx->fs;

    while (in->n - in->at < 4 && !in->eof) {
        int64_t got;

        memmove(in->raw, in->raw + in->at, (size_t)(in->n - in->at));
        in->n -= in->at;
        in->at = 0;
        got = fs->read(fs->arg, in->fd, in->raw + in->n, in->cap - in->n);
        if (got < 0)
            return wf_file_err(got, u->path, "cannot read");
        in->n += got;
        u->n_in += got;
        in->eof = !got;
    }
    return in->n - in->at < 4 || begins_zstd(in->raw + in->at)
               ? WEFT_OK
               : damaged(u, "expected a frame or the end");
}

static weft_status zstd_step(struct wf_unpack *u, char *out, int64_t room, int64_t *made)
{
    struct wf_unpack_inside *in = u->in;
    ZSTD_outBuffer o = {out, (size_t)room, 0};
    ZSTD_inBuffer i;
    weft_status st = in->between ? zstd_frame(u) : WEFT_OK;
    size_t rc;

    *made = 0;
    if (st)
        return st;
    i = (ZSTD_inBuffer){in->raw + in->at, (size_t)(in->n - in->at), 0};
    rc = ZSTD_decompressStream(in->zstd, &o, &i);
    in->at += (int64_t)i.pos;
    *made = (int64_t)o.pos;
    in->any = true;
    in->between = !rc;
    return ZSTD_isError(rc) ? damaged(u, ZSTD_getErrorName(rc)) : WEFT_OK;
}
#endif

static weft_status step(struct wf_unpack *u, char *out, int64_t room, int64_t *made)
{
#ifdef WF_HAVE_ZLIB
    if (u->how == WEFT_COMPRESSION_GZIP || u->how == WEFT_COMPRESSION_ZLIB)
        return z_step(u, out, room, made);
#endif
#ifdef WF_HAVE_ZSTD
    if (u->how == WEFT_COMPRESSION_ZSTD)
        return zstd_step(u, out, room, made);
#endif
    (void)out;
    (void)room;
    *made = 0;
    return wf_err(WEFT_EBUG, "%s: cannot unpack %s", u->path, how_name(u->how));
}

static weft_status unpack(struct wf_unpack *u, char *buf, int64_t n, int64_t *got)
{
    struct wf_unpack_inside *in = u->in;
    weft_status st;
    int64_t made;

    for (*got = 0; *got < n;) {
        if (in->at == in->n && !in->pending && !in->eof) {
            st = refill(u);
            if (st)
                return st;
        }
        if (in->at == in->n && !in->pending) {
            if (in->between && in->any)
                return WEFT_OK;
            return damaged(u, in->any ? "truncated" : "empty");
        }
        st = step(u, buf + *got, n - *got, &made);
        *got += made;
        u->n_out += made;
        if (st)
            return st;
        in->pending = *got == n && !in->between;
        if (u->n_out > BOMB_BYTES && u->n_out / in->max_ratio > u->n_in - (in->n - in->at))
            return wf_err(WEFT_ELIMIT,
                          "%s: unpacks to more than %lld times its size: refused as a "
                          "decompression bomb (max_ratio allows more)",
                          u->path, (long long)in->max_ratio);
    }
    return WEFT_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && !strcmp(s + n - m, end);
}

static weft_compression by_name(const char *path)
{
    if (ends_with(path, ".gz"))
        return WEFT_COMPRESSION_GZIP;
    if (ends_with(path, ".zlib"))
        return WEFT_COMPRESSION_ZLIB;
    if (ends_with(path, ".zst"))
        return WEFT_COMPRESSION_ZSTD;
    return WEFT_COMPRESSION_AUTO;
}

static weft_compression by_content(weft_ctx *ctx, const char *p, int64_t n, bool whole)
{
    if (n >= 4 && begins_zstd(p))
        return WEFT_COMPRESSION_ZSTD;
    if (n >= 3 && !memcmp(p, "\x1f\x8b\x08", 3))
        return WEFT_COMPRESSION_GZIP;
#ifdef WF_HAVE_ZLIB
    if (looks_zlib(ctx, p, n, whole))
        return WEFT_COMPRESSION_ZLIB;
#endif
    (void)ctx;
    (void)whole;
    return WEFT_COMPRESSION_NONE;
}

/* Reads the head of the file into raw and detects the format. */
static weft_status find_out(struct wf_unpack *u)
{
    struct wf_unpack_inside *in = u->in;
    const struct wf_fs *fs = in->ctx->fs;
    weft_compression named = by_name(u->path), found;
    int64_t got = 1;

    while (in->n < HEAD_BYTES && got > 0) {
        got = fs->read(fs->arg, in->fd, in->raw + in->n, HEAD_BYTES - in->n);
        if (got < 0)
            return wf_file_err(got, u->path, "cannot read");
        in->n += got;
        u->n_in += got;
    }
    in->eof = !got;
    found = by_content(in->ctx, in->raw, in->n, in->eof);
    u->how = named != WEFT_COMPRESSION_AUTO ? named : found;
    if (named != WEFT_COMPRESSION_AUTO && found != named && found != WEFT_COMPRESSION_NONE)
        return wf_err(WEFT_EDATA, "%s: contains %s, which does not match its name", u->path,
                      how_name(found));
    return WEFT_OK;
}

static weft_status open_codec(struct wf_unpack *u)
{
    struct wf_unpack_inside *in = u->in;

    in->between = true;
    switch (u->how) {
    case WEFT_COMPRESSION_GZIP:
    case WEFT_COMPRESSION_ZLIB:
#ifdef WF_HAVE_ZLIB
    {
        weft_status st = z_begin(in->ctx, u->path, &in->z, u->how);

        in->z_open = !st;
        return st;
    }
#else
        return wf_err(WEFT_ENOSUP, "%s: %s needs zlib, which this build lacks (package zlib1g-dev)",
                      u->path, how_name(u->how));
#endif
    case WEFT_COMPRESSION_ZSTD:
#ifdef WF_HAVE_ZSTD
        in->zstd = ZSTD_createDCtx();
        return in->zstd ? WEFT_OK : wf_err_nomem(in->ctx, 160 << 10, u->path);
#else
        return wf_err(WEFT_ENOSUP,
                      "%s: zstd needs libzstd, which this build lacks (package libzstd-dev)",
                      u->path);
#endif
    default: return WEFT_OK;
    }
}

static void close_codec(struct wf_unpack_inside *in)
{
#ifdef WF_HAVE_ZLIB
    if (in->z_open)
        inflateEnd(&in->z);
    in->z_open = false;
#endif
#ifdef WF_HAVE_ZSTD
    ZSTD_freeDCtx(in->zstd);
    in->zstd = NULL;
#endif
    (void)in;
}

/* What follows after opening the descriptor. */
static weft_status open_rest(struct wf_unpack *u, const weft_file_opts *opts)
{
    struct wf_unpack_inside *in = u->in;
    const struct wf_fs *fs = in->ctx->fs;
    int64_t size = fs->size(fs->arg, in->fd);
    weft_status st;

    if (size < 0)
        return wf_file_err(size, u->path, "cannot get its size");
    u->size = size;
    u->how = opts->compression;
    /* An uncompressed file needs room only for its head. */
    in->cap =
        u->how == WEFT_COMPRESSION_AUTO || u->how == WEFT_COMPRESSION_NONE ? HEAD_BYTES : RAW_BYTES;
    in->raw = wf_alloc(in->ctx, (size_t)in->cap);
    if (!in->raw)
        return wf_err_nomem(in->ctx, (size_t)in->cap, u->path);
    if (u->how == WEFT_COMPRESSION_AUTO) {
        st = find_out(u);
        if (st)
            return st;
    }
    if (u->how != WEFT_COMPRESSION_NONE && in->cap < RAW_BYTES) {
        char *raw = wf_alloc(in->ctx, RAW_BYTES);

        if (!raw)
            return wf_err_nomem(in->ctx, RAW_BYTES, u->path);
        memcpy(raw, in->raw, (size_t)in->n);
        wf_free(in->ctx, in->raw);
        in->raw = raw;
        in->cap = RAW_BYTES;
    }
    return open_codec(u);
}

weft_status wf_unpack_open(weft_ctx *ctx, const char *path, const weft_file_opts *opts,
                           struct wf_unpack **out)
{
    static const weft_file_opts defaults;
    const struct wf_fs *fs = ctx->fs;
    struct wf_unpack *u = wf_alloc(ctx, sizeof *u + sizeof *u->in);
    struct wf_file_info info;
    weft_status st;
    int rc;

    if (!u)
        return wf_err_nomem(ctx, sizeof *u + sizeof *u->in, path);
    opts = opts ? opts : &defaults;
    u->path = path;
    u->in = (struct wf_unpack_inside *)(void *)(u + 1);
    u->in->ctx = ctx;
    u->in->max_ratio = opts->max_ratio > 0 ? opts->max_ratio : RATIO;
    u->in->fd = -1;
    rc = fs->stat(fs->arg, path, &info);
    st = rc ? wf_file_err(rc, path, "cannot open") : wf_file_check_plain(path, &info);
    if (st)
        goto out;
    u->in->fd = fs->open(fs->arg, path, O_RDONLY, 0);
    if (u->in->fd < 0) {
        st = wf_file_err(u->in->fd, path, "cannot open");
        goto out;
    }
    st = open_rest(u, opts);
    if (st)
        goto out;
    *out = u;
    u = NULL;
out:
    wf_unpack_close(u);
    return st;
}

void wf_unpack_close(struct wf_unpack *u)
{
    struct wf_unpack_inside *in;

    if (!u)
        return;
    in = u->in;
    close_codec(in);
    if (in->fd >= 0)
        in->ctx->fs->close(in->ctx->fs->arg, in->fd);
    wf_free(in->ctx, in->raw);
    wf_free(in->ctx, u);
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status read_plain(struct wf_unpack *u, char *buf, int64_t n, int64_t *got)
{
    struct wf_unpack_inside *in = u->in;
    const struct wf_fs *fs = in->ctx->fs;
    int64_t k = wf_min_i64(n, in->n - in->at);

    memcpy(buf, in->raw + in->at, (size_t)k);
    in->at += k;
    *got = k;
    while (*got < n && !in->eof) {
        k = fs->read(fs->arg, in->fd, buf + *got, n - *got);
        if (k < 0)
            return wf_file_err(k, u->path, "cannot read");
        in->eof = !k;
        *got += k;
        u->n_in += k;
    }
    u->n_out += *got;
    return WEFT_OK;
}

weft_status wf_unpack_read(struct wf_unpack *u, void *buf, int64_t n, int64_t *got)
{
    *got = 0;
    return u->how == WEFT_COMPRESSION_NONE ? read_plain(u, buf, n, got) : unpack(u, buf, n, got);
}

/* Moves the descriptor; what was read ahead is discarded. */
static weft_status jump(struct wf_unpack *u, int64_t offset)
{
    struct wf_unpack_inside *in = u->in;
    int64_t rc = in->ctx->fs->seek(in->ctx->fs->arg, in->fd, offset);

    if (rc < 0)
        return wf_file_err(rc, u->path, "cannot seek backwards");
    in->at = in->n = 0;
    in->eof = false;
    return WEFT_OK;
}

static weft_status rewind_codec(struct wf_unpack *u)
{
    struct wf_unpack_inside *in = u->in;
    weft_status st = jump(u, 0);

    if (st)
        return st;
    u->n_in = u->n_out = 0;
    in->any = in->pending = in->padding = false;
    close_codec(in);
    return open_codec(u);
}

weft_status wf_unpack_seek(struct wf_unpack *u, int64_t offset)
{
    struct wf_unpack_inside *in = u->in;
    char *drop = NULL;
    int64_t got = 1;
    weft_status st = WEFT_OK;

    if (u->how == WEFT_COMPRESSION_NONE) {
        u->n_out = wf_min_i64(offset, u->size);
        return jump(u, u->n_out);
    }
    if (offset < u->n_out)
        st = rewind_codec(u);
    if (st || offset == u->n_out)
        return st;
    drop = wf_alloc(in->ctx, RAW_BYTES);
    if (!drop)
        return wf_err_nomem(in->ctx, RAW_BYTES, u->path);
    while (!st && u->n_out < offset && got)
        st = wf_unpack_read(u, drop, wf_min_i64(offset - u->n_out, RAW_BYTES), &got);
    wf_free(in->ctx, drop);
    return st;
}

weft_status wf_unpack_head(weft_ctx *ctx, const char *path, const weft_file_opts *opts, int64_t max,
                           char **data, int64_t *n, bool *whole)
{
    struct wf_unpack *u = NULL;
    char *p = NULL;
    int64_t got = 0;
    weft_status st = wf_unpack_open(ctx, path, opts, &u);

    if (st)
        return st;
    /* One more byte tells whether there is more; it becomes the NUL. */
    if (u->how == WEFT_COMPRESSION_NONE)
        max = wf_min_i64(max, u->size);
    p = wf_alloc(ctx, (size_t)max + 1);
    st = p ? wf_unpack_read(u, p, max + 1, &got) : wf_err_nomem(ctx, (size_t)max + 1, path);
    if (st)
        goto out;
    *whole = got <= max;
    *n = wf_min_i64(got, max);
    p[*n] = '\0';
    *data = p;
    p = NULL;
out:
    wf_free(ctx, p);
    wf_unpack_close(u);
    return st;
}
