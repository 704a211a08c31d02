/* output.c - files that appear completely or not at all, written in pieces through the file seam.
 * What is not a regular file (a pipe, a device) is written in place: it must not be replaced. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "data/array/array.h"

void wf_output_open(struct wf_output *o, weft_ctx *ctx, const char *path)
{
    struct wf_file_info info;

    *o = (struct wf_output){.ctx = ctx, .path = path, .fd = -1};
    o->in_place = !ctx->fs->stat(ctx->fs->arg, path, &info) && !info.plain && !info.folder;
    if (!o->in_place) {
        o->st = wf_newfile_open(&o->file, ctx, path);
        o->fd = o->file.fd;
        return;
    }
    o->fd = wf_file_open_out(ctx, path, O_WRONLY, 0666);
    if (o->fd < 0)
        o->st = wf_file_err(o->fd, path, "cannot open");
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

    if (o->fd >= 0 && !o->in_place) {
        o->st = wf_newfile_close(&o->file, o->st, false);
    } else if (o->fd >= 0) {
        rc = fs->close(fs->arg, o->fd);
        if (!o->st && rc)
            o->st = wf_file_err(rc, o->path, "cannot close");
    }
    o->fd = -1;
    return o->st;
}
