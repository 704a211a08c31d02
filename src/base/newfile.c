/* newfile.c - files that appear completely or not at all, and deletion.
 *
 * The directory is opened once, following links in the path that the user gave; everything in it is
 * done relative to that descriptor and follows no link. A temporary file is named .NAME.<16 hex
 * digits>.tmp, is always newly created, and is locked as long as its writer lives: a process that
 * gets the lock of such a file may delete it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/base.h"

enum {
    TRIES = 64,
    HEX = 16,
    SHOWN = 200
}; /* SHOWN: characters of the name in the name of a temporary file */

/* ---- paths ----------------------------------------------------------------------------------- */

weft_status wf_path_split(weft_ctx *ctx, const char *path, char **folder, char **name)
{
    size_t n = strlen(path), cut;
    char *a, *b;

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (cut = n; cut && path[cut - 1] != '/';)
        cut--;
    if (cut == n || (n - cut < 3 && !strncmp(path + cut, "..", n - cut)))
        return wf_err(WEFT_EINVAL, "'%s' does not name a file", path);
    a = wf_alloc(ctx, cut + 2);
    b = wf_alloc(ctx, n - cut + 1);
    if (!a || !b) {
        wf_free(ctx, a);
        wf_free(ctx, b);
        return wf_err_nomem(ctx, n + 1, path);
    }
    memcpy(a, cut ? path : ".", cut ? cut : 1);
    memcpy(b, path + cut, n - cut);
    *folder = a;
    *name = b;
    return WEFT_OK;
}

int wf_file_open_out(weft_ctx *ctx, const char *path, int flags, int mode)
{
    const struct wf_fs *fs = ctx->fs;
    struct wf_file_info info;
    int fd = fs->open(fs->arg, path, flags | O_NOFOLLOW, mode);

    if (fd != -ELOOP || fs->stat(fs->arg, path, &info) || info.plain || info.folder)
        return fd;
    return fs->open(fs->arg, path, flags & ~(O_CREAT | O_TRUNC), mode);
}

/* ---- files left by dead writers -------------------------------------------------------------- */

enum { SWEPT = 16 }; /* at a time: the rest waits for the next writer */

struct sweep {
    const struct wf_newfile *f;
    char found[SWEPT][NAME_MAX + 1];
    int n;
};

/* .NAME.<hex>.tmp of this name? */
static bool is_temporary(const char *entry, const char *name)
{
    size_t n = strnlen(name, SHOWN);

    return entry[0] == '.' && !strncmp(entry + 1, name, n) && entry[n + 1] == '.' &&
           strspn(entry + n + 2, "0123456789abcdef") == HEX && !strcmp(entry + n + 2 + HEX, ".tmp");
}

static int note_temporary(void *arg, const char *entry)
{
    struct sweep *s = arg;

    if (s->n < SWEPT && strlen(entry) <= NAME_MAX && is_temporary(entry, s->f->name))
        strcpy(s->found[s->n++], entry);
    return 0;
}

/* Only regular files whose lock is free. What cannot be inspected or locked is kept: another
 * process may need it. */
static void remove_if_dead(const struct wf_newfile *f, const char *entry)
{
    const struct wf_fs *fs = f->ctx->fs;
    int fd = fs->open_at(fs->arg, f->dir, entry, O_RDONLY | O_NONBLOCK, 0);

    if (fd < 0)
        return;
    if (fs->size(fs->arg, fd) >= 0 && !fs->lock(fs->arg, fd))
        fs->unlink_at(fs->arg, f->dir, entry, false);
    fs->close(fs->arg, fd);
}

static void sweep(const struct wf_newfile *f)
{
    struct sweep s = {.f = f};

    f->ctx->fs->list_at(f->ctx->fs->arg, f->dir, note_temporary, &s);
    for (int i = 0; i < s.n; i++)
        remove_if_dead(f, s.found[i]);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void forget(struct wf_newfile *f)
{
    wf_free(f->ctx, f->path);
    wf_free(f->ctx, f->name);
    wf_free(f->ctx, f->tmp);
    f->path = f->name = f->tmp = NULL;
    if (f->dir >= 0)
        f->ctx->fs->close(f->ctx->fs->arg, f->dir);
    f->dir = -1;
}

/* One try: created here, locked, and still there. -EEXIST: try another name. */
static int create(struct wf_newfile *f)
{
    const struct wf_fs *fs = f->ctx->fs;
    struct wf_file_info info;
    int rc, fd;

    sprintf(f->tmp, ".%.*s.%016llx.tmp", SHOWN, f->name, (unsigned long long)fs->unique(fs->arg));
    fd = fs->open_at(fs->arg, f->dir, f->tmp, O_RDWR | O_CREAT | O_EXCL, 0666);
    if (fd < 0)
        return fd;
    rc = fs->lock(fs->arg, fd); /* if the file system has no locks, nothing is swept either */
    if (rc == -EWOULDBLOCK || (!rc && fs->stat_at(fs->arg, f->dir, f->tmp, &info) == -ENOENT)) {
        fs->close(fs->arg, fd); /* a sweeper was faster than our lock */
        return -EEXIST;
    }
    return fd;
}

weft_status wf_newfile_open(struct wf_newfile *f, weft_ctx *ctx, const char *path)
{
    const struct wf_fs *fs = ctx->fs;
    char *folder = NULL;
    weft_status st;

    *f = (struct wf_newfile){.ctx = ctx, .dir = -1, .fd = -1};
    st = wf_path_split(ctx, path, &folder, &f->name);
    if (st)
        return st;
    f->path = wf_strdup(ctx, path);
    f->tmp = wf_alloc(ctx, strlen(f->name) + HEX + 8);
    if (!f->path || !f->tmp) {
        st = wf_err_nomem(ctx, strlen(path), path);
        goto out;
    }
    f->dir = fs->open(fs->arg, folder, O_RDONLY | O_DIRECTORY, 0);
    if (f->dir < 0) {
        st = wf_file_err(f->dir, path, "cannot open its directory");
        f->dir = -1;
        goto out;
    }
    sweep(f);
    f->fd = -EEXIST;
    for (int i = 0; i < TRIES && f->fd == -EEXIST; i++)
        f->fd = create(f);
    if (f->fd < 0)
        st = wf_file_err(f->fd, path, "cannot create");
out:
    wf_free(ctx, folder);
    if (st) {
        f->fd = -1;
        forget(f);
    }
    return st;
}

weft_status wf_newfile_close(struct wf_newfile *f, weft_status st, bool keep)
{
    const struct wf_fs *fs = f->ctx->fs;
    int rc;

    if (f->fd < 0)
        return st;
    rc = st ? 0 : fs->sync(fs->arg, f->fd);
    if (rc)
        st = wf_file_err(rc, f->path, "cannot sync");
    if (!st && (rc = fs->rename_at(fs->arg, f->dir, f->tmp, f->name)))
        st = wf_file_err(rc, f->path, "cannot rename into place");
    if (st)
        fs->unlink_at(fs->arg, f->dir, f->tmp, false);
    rc = keep ? 0 : fs->close(fs->arg, f->fd);
    if (!st && rc)
        st = wf_file_err(rc, f->path, "cannot close");
    f->fd = -1;
    forget(f);
    return st;
}

weft_status wf_newfile_link(struct wf_newfile *f, weft_status st, const char *name, bool *created)
{
    const struct wf_fs *fs = f->ctx->fs;
    int rc;

    *created = false;
    if (f->fd < 0)
        return st;
    rc = st ? 0 : fs->sync(fs->arg, f->fd);
    if (rc)
        st = wf_file_err(rc, f->path, "cannot sync");
    rc = st ? 0 : fs->link_at(fs->arg, f->dir, f->tmp, name);
    *created = !st && !rc;
    if (rc == -EPERM || rc == -EOPNOTSUPP || rc == -ENOSYS || rc == -EMLINK)
        st = wf_err(WEFT_ENOSUP, "%s: its file system has no hard links; use another directory",
                    f->path);
    else if (rc && rc != -EEXIST)
        st = wf_file_err(rc, f->path, "cannot link into place");
    fs->unlink_at(fs->arg, f->dir, f->tmp, false);
    rc = st ? 0 : fs->sync(fs->arg, f->dir); /* also if another one's file is there: it stays */
    if (rc)
        st = wf_file_err(rc, f->path, "cannot sync its directory");
    fs->close(fs->arg, f->fd); /* its contents are synced */
    f->fd = -1;
    forget(f);
    return st;
}

weft_status wf_file_write(weft_ctx *ctx, const char *path, const void *data, int64_t n)
{
    const struct wf_fs *fs = ctx->fs;
    struct wf_newfile f;
    int64_t at = 0, put;
    weft_status st = wf_newfile_open(&f, ctx, path);

    while (!st && at < n) {
        put = fs->write(fs->arg, f.fd, (const char *)data + at, n - at);
        if (put < 0)
            st = wf_file_err(put, path, "cannot write");
        else
            at += put;
    }
    return f.fd < 0 ? st : wf_newfile_close(&f, st, false);
}

/* ---- deleting -------------------------------------------------------------------------------- */

struct removal {
    weft_ctx *ctx;
    const char *path;
    int dir;
    weft_status st;
};

static int remove_entry(void *arg, const char *name)
{
    struct removal *r = arg;
    const struct wf_fs *fs = r->ctx->fs;
    int rc = fs->unlink_at(fs->arg, r->dir, name, false);

    if (!rc || rc == -ENOENT)
        return 0;
    r->st = wf_err_wrap(wf_file_err(rc, name, "cannot delete"), "%s", r->path);
    return 1;
}

/* The directory `name` in `dir` with its files. */
static weft_status remove_folder(weft_ctx *ctx, int dir, const char *name, const char *path)
{
    const struct wf_fs *fs = ctx->fs;
    struct removal r = {.ctx = ctx, .path = path};
    int rc;

    r.dir = fs->open_at(fs->arg, dir, name, O_RDONLY | O_DIRECTORY, 0);
    if (r.dir == -ENOTDIR || r.dir == -ELOOP) /* a file or a link: delete it, not its target */
        rc = fs->unlink_at(fs->arg, dir, name, false);
    else if (r.dir < 0)
        rc = r.dir;
    else {
        rc = fs->list_at(fs->arg, r.dir, remove_entry, &r);
        fs->close(fs->arg, r.dir);
        if (r.st)
            return r.st;
        if (!rc)
            rc = fs->unlink_at(fs->arg, dir, name, true);
    }
    return rc && rc != -ENOENT ? wf_file_err(rc, path, "cannot delete") : WEFT_OK;
}

weft_status wf_file_remove(weft_ctx *ctx, const char *path)
{
    const struct wf_fs *fs = ctx->fs;
    char *folder = NULL, *name = NULL;
    int dir;
    weft_status st = wf_path_split(ctx, path, &folder, &name);

    if (st)
        return st;
    dir = fs->open(fs->arg, folder, O_RDONLY | O_DIRECTORY, 0);
    if (dir >= 0) {
        st = remove_folder(ctx, dir, name, path);
        fs->close(fs->arg, dir);
    } else if (dir != -ENOENT) {
        st = wf_file_err(dir, path, "cannot delete");
    }
    wf_free(ctx, folder);
    wf_free(ctx, name);
    return st;
}
