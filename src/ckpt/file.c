/* file.c - files and folders of checkpoints, all through the file seam. A directory is synced after
 * its entries. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "ckpt/ckpt.h"

weft_status wf_ckpt_join(char out[WF_CKPT_PATH], const char *dir, const char *name)
{
    size_t n = strlen(dir);
    bool slash = n && dir[n - 1] == '/';

    if (snprintf(out, WF_CKPT_PATH, "%s%s%s", dir, slash ? "" : "/", name) >= WF_CKPT_PATH)
        return wf_err(WEFT_EINVAL, "path too long: %.80s…", dir);
    return WEFT_OK;
}

int wf_ckpt_open_file(weft_ctx *ctx, const char *path)
{
    /* Non-blocking: a pipe in place of a file must not block the job. */
    return ctx->fs->open(ctx->fs->arg, path, O_RDONLY | O_NONBLOCK, 0);
}

weft_status wf_ckpt_pread(weft_ctx *ctx, int fd, const char *path, void *to, int64_t n, int64_t at)
{
    const struct wf_fs *fs = ctx->fs;
    int64_t done = 0, got;

    while (done < n) {
        got = fs->pread(fs->arg, fd, (char *)to + done, n - done, at + done);
        if (got < 0)
            return wf_file_err(got, path, "cannot read");
        if (!got)
            return wf_err(WEFT_EPARSE, "%s: ends at byte %lld, %lld more were expected", path,
                          (long long)(at + done), (long long)(n - done));
        done += got;
    }
    return WEFT_OK;
}

/* ---- folders --------------------------------------------------------------------------------- */

weft_status wf_ckpt_open_dir(weft_ctx *ctx, const char *dir, int *out)
{
    int fd = ctx->fs->open(ctx->fs->arg, dir, O_RDONLY | O_DIRECTORY, 0);

    *out = fd < 0 ? -1 : fd;
    return fd < 0 ? wf_file_err(fd, dir, "cannot open") : WEFT_OK;
}

weft_status wf_ckpt_sync_fd(weft_ctx *ctx, int fd, const char *dir)
{
    int rc = ctx->fs->sync(ctx->fs->arg, fd);

    /* Some file systems cannot sync a directory, and say so; they have nothing to lose. */
    return rc && rc != -EINVAL ? wf_file_err(rc, dir, "cannot sync") : WEFT_OK;
}

weft_status wf_ckpt_sync_dir(weft_ctx *ctx, const char *dir)
{
    int fd;
    weft_status st = wf_ckpt_open_dir(ctx, dir, &fd);

    if (st)
        return st;
    st = wf_ckpt_sync_fd(ctx, fd, dir);
    ctx->fs->close(ctx->fs->arg, fd);
    return st;
}

/* The directory that contains path, "." if it names none. False at the root. */
static bool parent_of(char *out, const char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 1 && path[0] == '/')
        return false;
    while (n && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (!n) {
        memcpy(out, ".", 2);
        return true;
    }
    memcpy(out, path, n);
    out[n] = '\0';
    return true;
}

weft_status wf_ckpt_sync_parent(weft_ctx *ctx, const char *path)
{
    char parent[WF_CKPT_PATH];

    if (strlen(path) >= sizeof parent)
        return wf_err(WEFT_EINVAL, "path too long: %.80s…", path);
    return parent_of(parent, path) ? wf_ckpt_sync_dir(ctx, parent) : WEFT_OK;
}

weft_status wf_ckpt_make_dir(weft_ctx *ctx, const char *dir)
{
    const struct wf_fs *fs = ctx->fs;
    struct wf_file_info info;
    char path[WF_CKPT_PATH];
    size_t n = strlen(dir);
    int rc = fs->stat(fs->arg, dir, &info);

    if (!rc && info.folder)
        return WEFT_OK;
    if (!rc)
        return wf_err(WEFT_EIO, "%s: exists but is not a directory", dir);
    if (rc != -ENOENT)
        return wf_file_err(rc, dir, "cannot stat");
    if (!n || n >= sizeof path)
        return wf_err(WEFT_EINVAL, n ? "path too long: %.80s…" : "no directory given%s", dir);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && dir[i] != '/')
            continue;
        memcpy(path, dir, i);
        path[i] = '\0';
        rc = fs->mkdir(fs->arg, path, 0777);
        if (rc == -EEXIST)
            continue;
        if (rc)
            return wf_file_err(rc, path, "cannot create the directory");
        rc = wf_ckpt_sync_parent(ctx, path);
        if (rc)
            return rc;
    }
    return WEFT_OK;
}
