/* out.c - a file being written, and read back. What is written is hashed on the way, a piece at a
 * time while it is in the cache, and synced before the file is closed. It goes through the page
 * cache: bypassing it (O_DIRECT) costs the kernel less, but if the disk belongs to a virtual
 * machine's host, training waits longer. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "ckpt/ckpt.h"

weft_status wf_out_open(struct wf_out *o, weft_ctx *ctx, int dir, const char *name,
                        const char *path)
{
    const struct wf_fs *fs = ctx->fs;

    *o = (struct wf_out){.ctx = ctx, .path = path};
    o->fd = fs->open_at(fs->arg, dir, name, O_WRONLY | O_CREAT | O_EXCL, 0666);
    return o->fd < 0 ? wf_file_err(o->fd, path, "cannot create") : WEFT_OK;
}

static weft_status write_chunk(struct wf_out *o, const char *p, int64_t n)
{
    const struct wf_fs *fs = o->ctx->fs;
    int64_t at = 0, put;

    while (at < n) {
        put = fs->write(fs->arg, o->fd, p + at, n - at);
        if (put <= 0)
            return wf_file_err(put ? put : -EIO, o->path, "cannot write");
        at += put;
    }
    return WEFT_OK;
}

weft_status wf_out_write(struct wf_out *o, const void *data, int64_t n, struct wf_part *part)
{
    const char *p = data;
    struct wf_xxh64 hash;

    wf_xxh64_init(&hash);
    for (int64_t at = 0; at < n; at += WF_CKPT_CHUNK) {
        int64_t piece = wf_min_i64(WF_CKPT_CHUNK, n - at);
        weft_status st = write_chunk(o, p + at, piece);

        if (st)
            return st;
        if (part)
            wf_xxh64_add(&hash, p + at, piece);
    }
    o->bytes += n;
    if (part)
        *part = (struct wf_part){n, wf_xxh64_end(&hash)};
    return WEFT_OK;
}

weft_status wf_out_close(struct wf_out *o, weft_status st)
{
    const struct wf_fs *fs = o->ctx->fs;
    int rc = st ? 0 : fs->sync(fs->arg, o->fd);

    if (rc)
        st = wf_file_err(rc, o->path, "cannot sync");
    rc = fs->close(fs->arg, o->fd);
    if (!st && rc)
        st = wf_file_err(rc, o->path, "cannot close");
    return st;
}

static weft_status check_part(weft_ctx *ctx, int fd, const char *path, char *chunk, int64_t at,
                              const struct wf_part *part)
{
    struct wf_xxh64 hash;
    int64_t end = at + part->bytes;
    weft_status st = WEFT_OK;

    wf_xxh64_init(&hash);
    for (int64_t n; at < end && !st; at += n) {
        n = wf_min_i64(WF_CKPT_CHUNK, end - at);
        st = wf_ckpt_pread(ctx, fd, path, chunk, n, at);
        if (!st)
            wf_xxh64_add(&hash, chunk, n);
    }
    if (!st && wf_xxh64_end(&hash) != part->hash)
        st = wf_err(WEFT_EIO, "%s: reads back differently from what was written", path);
    return st;
}

weft_status wf_out_check(weft_ctx *ctx, int dir, const char *name, const char *path, char *chunk,
                         int64_t n, const struct wf_part *part)
{
    const struct wf_fs *fs = ctx->fs;
    int fd = fs->open_at(fs->arg, dir, name, O_RDONLY, 0);
    int64_t at = 0;
    weft_status st = WEFT_OK;

    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    for (int64_t i = 0; i < n && !st; at += part[i++].bytes)
        st = check_part(ctx, fd, path, chunk, at, &part[i]);
    if (!st && fs->size(fs->arg, fd) != at)
        st = wf_err(WEFT_EIO, "%s: is longer than what was written", path);
    fs->close(fs->arg, fd);
    return st;
}
