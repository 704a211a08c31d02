/* append.c - a file that grows by complete pieces. */
#include "base/append.h"

#include <errno.h>
#include <fcntl.h>

weft_status wf_append_open(struct wf_append *f, weft_ctx *ctx, const char *path)
{
    const struct wf_fs *fs = ctx->fs;
    weft_status st = WEFT_OK;
    int64_t rc;

    *f = (struct wf_append){.ctx = ctx, .fd = -1};
    f->path = wf_strdup(ctx, path);
    if (!f->path)
        st = wf_err_nomem(ctx, strlen(path) + 1, path);
    if (!st && (f->fd = wf_file_open_out(ctx, path, O_RDWR | O_CREAT, 0666)) < 0)
        st = wf_file_err(f->fd, path, "cannot write");
    if (st)
        goto out;
    f->size = fs->size(fs->arg, f->fd);
    if (f->size == -ESPIPE) {
        f->size = -1;
        return WEFT_OK;
    }
    rc = f->size < 0 ? f->size : fs->seek(fs->arg, f->fd, f->size);
    if (rc < 0)
        st = wf_file_err(rc, path, "cannot write");
out:
    if (st) {
        if (f->fd >= 0)
            fs->close(fs->arg, f->fd);
        wf_free(ctx, f->path);
        *f = (struct wf_append){0};
    }
    return st;
}

weft_status wf_append_cut(struct wf_append *f, int64_t size)
{
    const struct wf_fs *fs = f->ctx->fs;
    int64_t rc;

    if (f->size < 0)
        return WEFT_OK;
    rc = fs->truncate(fs->arg, f->fd, size);
    if (!rc)
        rc = fs->seek(fs->arg, f->fd, size);
    if (rc < 0)
        return wf_file_err(rc, f->path, "cannot truncate");
    f->size = size;
    return WEFT_OK;
}

weft_status wf_append_add(struct wf_append *f, const void *piece, int64_t n)
{
    const struct wf_fs *fs = f->ctx->fs;
    int64_t put = 0;

    for (int64_t at = 0; at < n; at += put) {
        put = fs->write(fs->arg, f->fd, (const char *)piece + at, n - at);
        if (put > 0)
            continue;
        if (f->size >= 0 && !fs->truncate(fs->arg, f->fd, f->size))
            (void)fs->seek(fs->arg, f->fd, f->size);
        return wf_file_err(put ? put : -ENOSPC, f->path, "cannot write");
    }
    if (f->size >= 0)
        f->size += n;
    return WEFT_OK;
}

weft_status wf_append_close(struct wf_append *f)
{
    weft_status st = WEFT_OK;
    int rc;

    if (!f->ctx)
        return WEFT_OK;
    rc = f->ctx->fs->close(f->ctx->fs->arg, f->fd);
    if (rc)
        st = wf_file_err(rc, f->path, "cannot close");
    wf_free(f->ctx, f->path);
    *f = (struct wf_append){0};
    return st;
}
