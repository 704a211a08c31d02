/* output.c - files that appear whole or not at all, written in pieces through the file seam. What is no plain file (a pipe, a
 * device) is written in place: it must not be replaced. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "data/array.h"

void wf_output_open(struct wf_output *o, weft_ctx *ctx, const char *path)
{
    size_t n = strlen(path) + sizeof ".tmp";
    struct wf_file_info info;

    *o = (struct wf_output){.ctx = ctx, .path = path, .fd = -1};
    o->in_place = !ctx->fs->stat(ctx->fs->arg, path, &info) && !info.plain && !info.folder;
    o->tmp = wf_alloc(ctx, n);
    if (!o->tmp) {
        o->st = wf_err_nomem(ctx, n, path);
        return;
    }
    memcpy(o->tmp, path, n - sizeof ".tmp");
    if (!o->in_place)
        memcpy(o->tmp + n - sizeof ".tmp", ".tmp", sizeof ".tmp");
    o->fd = ctx->fs->open(ctx->fs->arg, o->tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (o->fd < 0)
        o->st = wf_file_err(o->fd, o->tmp, "cannot create");
}

void wf_output_put(struct wf_output *o, const void *p, int64_t n)
{
    const struct wf_fs *fs = o->ctx->fs;

    for (int64_t at = 0; !o->st && at < n;) {
        int64_t put = fs->write(fs->arg, o->fd, (const char *)p + at, n - at);

        if (put < 0)
            o->st = wf_file_err(put, o->path, "cannot write");
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
        if (!o->st && !o->in_place && (rc = fs->sync(fs->arg, o->fd)))
            o->st = wf_file_err(rc, o->path, "cannot sync");
        rc = fs->close(fs->arg, o->fd);
        if (!o->st && rc)
            o->st = wf_file_err(rc, o->path, "cannot close");
        if (!o->st && !o->in_place && (rc = fs->rename(fs->arg, o->tmp, o->path)))
            o->st = wf_file_err(rc, o->path, "cannot rename into place");
        if (o->st && !o->in_place)
            fs->unlink(fs->arg, o->tmp);
    }
    wf_free(o->ctx, o->tmp);
    o->tmp = NULL;
    o->fd = -1;
    return o->st;
}
