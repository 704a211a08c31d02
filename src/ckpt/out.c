/* out.c - a file being written, and read back.
 *
 * What is written is hashed on the way and synced before it is closed. With a block, data goes past
 * the page cache (O_DIRECT) where the file system can: training needs the cores more than a copy of
 * the checkpoint in the cache, and what is read back comes from the disk. Then all transfers begin
 * and end on pages, but for the last, which is padded and cut to size. A file system that will not
 * have it says EINVAL, at opening or later, and the file goes on in the plain way. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "ckpt/ckpt.h"

#ifndef O_DIRECT
#define O_DIRECT 0
#endif
#define PAGE 4096
#define BLOCK ((int64_t)2 << 20)
#define PIECE ((int64_t)64 << 10) /* copied and hashed at a time: fits a cache */

weft_status wf_out_block_new(struct wf_out_block *b, weft_ctx *ctx)
{
    char *p = wf_alloc(ctx, (size_t)(BLOCK + PAGE));

    if (!p)
        return wf_err_nomem(ctx, (size_t)(BLOCK + PAGE), "checkpoint");
    b->mem = p;
    b->at = p + (PAGE - (uintptr_t)p % PAGE) % PAGE;
    return WEFT_OK;
}

void wf_out_block_free(struct wf_out_block *b, weft_ctx *ctx)
{
    wf_free(ctx, b->mem);
    *b = (struct wf_out_block){NULL, NULL};
}

/* Opens past the page cache, or plainly where that cannot be. */
static int open_direct(weft_ctx *ctx, const char *path, int flags, bool *direct)
{
    const struct wf_fs *fs = ctx->fs;
    int fd = -EINVAL;

    if (*direct)
        fd = fs->open(fs->arg, path, flags | O_DIRECT, 0666);
    if (fd == -EINVAL) {
        *direct = false;
        fd = fs->open(fs->arg, path, flags, 0666);
    }
    return fd;
}

/* ---- writing --------------------------------------------------------------------------------- */

weft_status wf_out_open(struct wf_out *o, weft_ctx *ctx, const char *path,
                        struct wf_out_block *block)
{
    *o = (struct wf_out){
        .ctx = ctx, .path = path, .block = block, .direct = block != NULL && O_DIRECT};
    wf_xxh64_init(&o->hash);
    o->fd = open_direct(ctx, path, O_WRONLY | O_CREAT | O_TRUNC, &o->direct);
    return o->fd < 0 ? wf_file_err(o->fd, path, "cannot create") : WEFT_OK;
}

/* From here on through the page cache. */
static weft_status go_plain(struct wf_out *o)
{
    const struct wf_fs *fs = o->ctx->fs;
    int64_t at;
    int fd = fs->open(fs->arg, o->path, O_WRONLY, 0666);

    if (fd < 0)
        return wf_file_err(fd, o->path, "cannot open again");
    fs->close(fs->arg, o->fd);
    o->fd = fd;
    o->direct = false;
    at = fs->seek(fs->arg, fd, o->put);
    return at < 0 ? wf_file_err(at, o->path, "cannot seek") : WEFT_OK;
}

static weft_status put(struct wf_out *o, const char *p, int64_t n)
{
    const struct wf_fs *fs = o->ctx->fs;
    int64_t at = 0;
    weft_status st = WEFT_OK;

    while (at < n && !st) {
        int64_t done = fs->write(fs->arg, o->fd, p + at, n - at);

        if (o->direct && (done == -EINVAL || (done > 0 && done % PAGE))) {
            at += wf_max_i64(done, 0);
            o->put += wf_max_i64(done, 0);
            st = go_plain(o);
            continue;
        }
        if (done <= 0)
            return wf_file_err(done ? done : -EIO, o->path, "cannot write");
        at += done;
        o->put += done;
    }
    return st;
}

/* The part of the data that fits the block, hashed there. */
static int64_t fill(struct wf_out *o, const char *p, int64_t n, struct wf_xxh64 *also)
{
    char *to = o->block->at + o->n_block;

    n = wf_min_i64(wf_min_i64(n, PIECE), BLOCK - o->n_block);
    memcpy(to, p, (size_t)n);
    wf_xxh64_add(&o->hash, to, n);
    if (also)
        wf_xxh64_add(also, to, n);
    o->n_block += n;
    return n;
}

weft_status wf_out_write(struct wf_out *o, const void *data, int64_t n, struct wf_xxh64 *also)
{
    const char *p = data;
    int64_t part;
    weft_status st = WEFT_OK;

    for (int64_t at = 0; at < n && !st; at += part) {
        if (o->block) {
            part = fill(o, p + at, n - at, also);
            if (o->n_block == BLOCK) {
                st = put(o, o->block->at, BLOCK);
                o->n_block = 0;
            }
            continue;
        }
        part = wf_min_i64(WF_CKPT_CHUNK, n - at);
        st = put(o, p + at, part);
        wf_xxh64_add(&o->hash, p + at, part);
        if (also)
            wf_xxh64_add(also, p + at, part);
    }
    o->bytes += n;
    return st;
}

/* What is left in the block. */
static weft_status put_rest(struct wf_out *o)
{
    const struct wf_fs *fs = o->ctx->fs;
    int64_t whole = o->direct ? wf_round_up(o->n_block, PAGE) : o->n_block;
    weft_status st;
    int rc;

    if (!o->block || !o->n_block)
        return WEFT_OK;
    memset(o->block->at + o->n_block, 0, (size_t)(whole - o->n_block));
    st = put(o, o->block->at, whole);
    if (st || whole == o->n_block)
        return st;
    rc = fs->truncate(fs->arg, o->fd, o->bytes);
    return rc ? wf_file_err(rc, o->path, "cannot cut to size") : WEFT_OK;
}

weft_status wf_out_close(struct wf_out *o, weft_status st)
{
    const struct wf_fs *fs = o->ctx->fs;
    int rc;

    if (!st)
        st = put_rest(o);
    rc = st ? 0 : fs->sync(fs->arg, o->fd);
    if (rc)
        st = wf_file_err(rc, o->path, "cannot sync");
    rc = fs->close(fs->arg, o->fd);
    if (!st && rc)
        st = wf_file_err(rc, o->path, "cannot close");
    return st;
}

/* ---- reading back ---------------------------------------------------------------------------- */

/* The next bytes into the block; 0 at the end, or a negative errno. */
static int64_t next_bytes(weft_ctx *ctx, const char *path, struct wf_out_block *b, int *fd,
                          bool *direct, int64_t at)
{
    const struct wf_fs *fs = ctx->fs;
    int64_t got = fs->pread(fs->arg, *fd, b->at, BLOCK, at);

    if (got != -EINVAL || !*direct)
        return got;
    fs->close(fs->arg, *fd);
    *direct = false;
    *fd = open_direct(ctx, path, O_RDONLY, direct);
    return *fd < 0 ? *fd : fs->pread(fs->arg, *fd, b->at, BLOCK, at);
}

weft_status wf_out_check(weft_ctx *ctx, const char *path, struct wf_out_block *b, int64_t bytes,
                         uint64_t hash)
{
    const struct wf_fs *fs = ctx->fs;
    bool direct = O_DIRECT && bytes >= BLOCK / 32;
    int fd = open_direct(ctx, path, O_RDONLY, &direct);
    struct wf_xxh64 have;
    int64_t at = 0, got;

    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    wf_xxh64_init(&have);
    while ((got = next_bytes(ctx, path, b, &fd, &direct, at)) > 0) {
        wf_xxh64_add(&have, b->at, got);
        at += got;
    }
    if (fd >= 0)
        fs->close(fs->arg, fd);
    if (got < 0)
        return wf_file_err(got, path, "cannot read");
    if (at != bytes || wf_xxh64_end(&have) != hash)
        return wf_err(WEFT_EIO, "%s: reads back as something else than was written", path);
    return WEFT_OK;
}
