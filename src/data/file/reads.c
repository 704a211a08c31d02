/* reads.c - files read at any offset, by several threads at the same time.
 *
 * Invariants: a file is open at most once if there are few of them, and not for longer than a call
 * if there are many; one whose size has changed since the pipeline was built is refused. */
#include <fcntl.h>

#include "data/file/files.h"

#define OPEN_MAX 256

weft_status wf_reads_init(weft_data *d, const struct wf_files *files, struct wf_reads *out)
{
    struct wf_reads r = {.files = files};

    r.size = wf_arena_alloc(&d->arena, (size_t)files->n * sizeof *r.size);
    if (files->n <= OPEN_MAX)
        r.fd = wf_arena_alloc(&d->arena, (size_t)files->n * sizeof *r.fd);
    if (!r.size || (files->n <= OPEN_MAX && !r.fd))
        return wf_err_nomem(d->ctx, (size_t)files->n * sizeof *r.size, "list of files");
    *out = r;
    return WEFT_OK;
}

void wf_reads_free(weft_ctx *ctx, struct wf_reads *r)
{
    for (int64_t i = 0; r->fd && i < r->files->n; i++)
        if (atomic_load(&r->fd[i]) > 0)
            ctx->fs->close(ctx->fs->arg, atomic_load(&r->fd[i]) - 1);
    r->fd = NULL;
}

static weft_status open_file(weft_ctx *ctx, const struct wf_reads *r, int64_t file, int *fd)
{
    const struct wf_fs *fs = ctx->fs;
    const char *path = r->files->path[file];
    int64_t size;

    *fd = fs->open(fs->arg, path, O_RDONLY, 0);
    if (*fd < 0)
        return wf_file_err(*fd, path, "cannot open");
    size = fs->size(fs->arg, *fd);
    if (size == r->size[file])
        return WEFT_OK;
    fs->close(fs->arg, *fd);
    if (size < 0)
        return wf_file_err(size, path, "cannot get its size");
    return wf_err(WEFT_EDATA, "%s: has %lld bytes, but had %lld when the pipeline was built", path,
                  (long long)size, (long long)r->size[file]);
}

/* An open descriptor; closed by the caller if the table keeps none. */
static weft_status borrow(weft_ctx *ctx, const struct wf_reads *r, int64_t file, int *fd)
{
    int known = r->fd ? atomic_load(&r->fd[file]) : 0, none = 0;
    weft_status st;

    if (known > 0) {
        *fd = known - 1;
        return WEFT_OK;
    }
    st = open_file(ctx, r, file, fd);
    if (st || !r->fd)
        return st;
    if (!atomic_compare_exchange_strong(&r->fd[file], &none, *fd + 1)) {
        ctx->fs->close(ctx->fs->arg, *fd);
        *fd = none - 1;
    }
    return WEFT_OK;
}

weft_status wf_reads_at(weft_ctx *ctx, const struct wf_reads *r, int64_t file, int64_t offset,
                        void *to, int64_t n)
{
    const struct wf_fs *fs = ctx->fs;
    int64_t done = 0, got;
    int fd;
    weft_status st = borrow(ctx, r, file, &fd);

    if (st)
        return st;
    while (!st && done < n) {
        got = fs->pread(fs->arg, fd, (char *)to + done, n - done, offset + done);
        if (got < 0)
            st = wf_file_err(got, r->files->path[file], "cannot read");
        else if (!got)
            st = wf_err(WEFT_EDATA,
                        "%s: ends at byte %lld; it was longer when the pipeline was built",
                        r->files->path[file], (long long)(offset + done));
        else
            done += got;
    }
    if (!r->fd)
        fs->close(fs->arg, fd);
    return st;
}
