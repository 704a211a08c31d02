/* output.c - files that appear whole or not at all, written in pieces through the file seam. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "data/array.h"

static weft_status output_err(const char *path, int64_t neg_errno, const char *what)
{
    int e = (int)-neg_errno;
    weft_status st = e == ENOSPC || e == EDQUOT ? WEFT_ENOSPC
                     : e == ENOENT              ? WEFT_ENOENT
                                                : WEFT_EIO;

    return wf_err(st, "%s: %s: %s", path, what, strerror(e));
}

void wf_output_open(struct wf_output *o, weft_ctx *ctx, const char *path)
{
    size_t n = strlen(path) + sizeof ".tmp";

    *o = (struct wf_output){.ctx = ctx, .path = path, .fd = -1};
    o->tmp = wf_alloc(ctx, n);
    if (!o->tmp) {
        o->st = wf_err_nomem(ctx, n, path);
        return;
    }
    memcpy(o->tmp, path, n - sizeof ".tmp");
    memcpy(o->tmp + n - sizeof ".tmp", ".tmp", sizeof ".tmp");
    o->fd = ctx->fs->open(ctx->fs->arg, o->tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (o->fd < 0)
        o->st = output_err(o->tmp, o->fd, "cannot create");
}

void wf_output_put(struct wf_output *o, const void *p, int64_t n)
{
    const struct wf_fs *fs = o->ctx->fs;

    for (int64_t at = 0; !o->st && at < n;) {
        int64_t put = fs->write(fs->arg, o->fd, (const char *)p + at, n - at);

        if (put < 0)
            o->st = output_err(o->path, put, "cannot write");
        else
            at += put;
    }
    o->bytes += n;
}

weft_status wf_output_close(struct wf_output *o)
{
    const struct wf_fs *fs = o->ctx->fs;
    int rc;

    if (o->fd >= 0) {
        if (!o->st && (rc = fs->sync(fs->arg, o->fd)))
            o->st = output_err(o->path, rc, "cannot sync");
        rc = fs->close(fs->arg, o->fd);
        if (!o->st && rc)
            o->st = output_err(o->path, rc, "cannot close");
        if (!o->st && (rc = fs->rename(fs->arg, o->tmp, o->path)))
            o->st = output_err(o->path, rc, "cannot rename into place");
        if (o->st)
            fs->unlink(fs->arg, o->tmp);
    }
    wf_free(o->ctx, o->tmp);
    o->tmp = NULL;
    o->fd = -1;
    return o->st;
}
