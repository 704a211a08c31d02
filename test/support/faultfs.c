/* faultfs.c - a file seam for tests: counts calls, fails or kills at the n-th, and loses what
 * was not synced. */
#define _GNU_SOURCE
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_node(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s;
    (void)flag;
    (void)w;
    return remove(path);
}

static void lose_event(const struct faultfs_event *e)
{
    struct stat s;

    if (e->done)
        return;
    switch (e->kind) {
    case FAULTFS_RENAME: (void)!rename(e->to, e->path); break;
    case FAULTFS_CREATE: nftw(e->path, remove_node, 8, FTW_DEPTH | FTW_PHYS); break;
    case FAULTFS_DIRTY:
        if (!stat(e->path, &s))
            (void)!truncate(e->path, s.st_size / 2);
        break;
    }
}

void faultfs_die(struct faultfs *f)
{
    for (int i = f->n_events - 1; i >= 0 && f->lose; i--)
        lose_event(&f->event[i]);
    _exit(FAULTFS_KILLED);
}

/* 0, or the error this call shall end with. */
static int fate(struct faultfs *f, bool writes, bool changes)
{
    f->n_calls++;
    f->n_writes += writes;
    if (f->kill_at && f->n_calls == f->kill_at)
        faultfs_die(f);
    if (changes && f->read_only)
        return -EROFS;
    if (writes && f->full_at && f->n_writes >= f->full_at)
        return -ENOSPC;
    if (f->fail_at && (f->n_calls == f->fail_at || (f->sticky && f->n_calls > f->fail_at)))
        return f->error ? -f->error : -EIO;
    return 0;
}

/* ---- what a power cut may take --------------------------------------------------------------- */

static void note(struct faultfs *f, enum faultfs_kind kind, const char *path, const char *to)
{
    struct faultfs_event *e = &f->event[f->n_events];

    if (f->n_events == FAULTFS_EVENTS || strlen(path) >= FAULTFS_PATH || strlen(to) >= FAULTFS_PATH)
        abort();
    f->n_events++;
    *e = (struct faultfs_event){.kind = kind};
    memcpy(e->path, path, strlen(path) + 1);
    memcpy(e->to, to, strlen(to) + 1);
}

static bool is_in(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    const char *slash = strrchr(path, '/');

    return slash && (size_t)(slash - path) == n && !strncmp(path, dir, n);
}

/* A rename that is on disk: what was noted below the old name lies below the new one. */
static void moved(struct faultfs *f, const char *from, const char *to)
{
    size_t n = strlen(from);

    for (int i = 0; i < f->n_events; i++) {
        char *p = f->event[i].path, rest[FAULTFS_PATH];

        if (f->event[i].kind == FAULTFS_RENAME || strncmp(p, from, n) || (p[n] && p[n] != '/'))
            continue;
        snprintf(rest, sizeof rest, "%s", p + n);
        if (snprintf(p, FAULTFS_PATH, "%s%s", to, rest) >= FAULTFS_PATH)
            abort();
    }
}

static void dir_synced(struct faultfs *f, const char *dir)
{
    for (int i = 0; i < f->n_events; i++) {
        struct faultfs_event *e = &f->event[i];

        if (e->done || e->kind == FAULTFS_DIRTY)
            continue;
        if (e->kind == FAULTFS_CREATE && is_in(e->path, dir))
            e->done = true;
        if (e->kind == FAULTFS_RENAME && is_in(e->to, dir)) {
            e->done = true;
            moved(f, e->path, e->to);
        }
    }
}

static void file_synced(struct faultfs *f, const char *path)
{
    for (int i = 0; i < f->n_events; i++)
        if (f->event[i].kind == FAULTFS_DIRTY && !strcmp(f->event[i].path, path))
            f->event[i].done = true;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static int f_open(void *arg, const char *path, int flags, int mode)
{
    struct faultfs *f = arg;
    bool creates = flags & O_CREAT, there = access(path, F_OK) == 0;
    int rc = fate(f, creates, creates || (flags & O_ACCMODE) != O_RDONLY);
    int fd = rc ? rc : wf_fs_posix.open(NULL, path, flags, mode);

    if (fd < 0)
        return fd;
    if (fd >= 256 || strlen(path) >= FAULTFS_PATH)
        abort();
    memcpy(f->fd_path[fd], path, strlen(path) + 1);
    if (creates && !there)
        note(f, FAULTFS_CREATE, path, "");
    if (creates && (flags & O_TRUNC))
        note(f, FAULTFS_DIRTY, path, "");
    return fd;
}

static int64_t part(const struct faultfs *f, int64_t n)
{
    return f->max_io && f->max_io < n ? f->max_io : n;
}

static int64_t f_read(void *arg, int fd, void *buf, int64_t n)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.read(NULL, fd, buf, part(arg, n));
}

static int64_t f_pread(void *arg, int fd, void *buf, int64_t n, int64_t at)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.pread(NULL, fd, buf, part(arg, n), at);
}

static int64_t f_write(void *arg, int fd, const void *buf, int64_t n)
{
    int rc = fate(arg, true, true);

    return rc ? rc : wf_fs_posix.write(NULL, fd, buf, part(arg, n));
}

static int64_t f_seek(void *arg, int fd, int64_t at)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.seek(NULL, fd, at);
}

static int64_t f_size(void *arg, int fd)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.size(NULL, fd);
}

static int f_sync(void *arg, int fd)
{
    struct faultfs *f = arg;
    struct stat s;
    int rc = fate(f, false, false);

    if (!rc && f->real_sync)
        rc = wf_fs_posix.sync(NULL, fd);
    if (rc)
        return rc;
    if (!fstat(fd, &s) && S_ISDIR(s.st_mode))
        dir_synced(f, f->fd_path[fd]);
    else
        file_synced(f, f->fd_path[fd]);
    return 0;
}

/* The descriptor is gone whatever close says. */
static int f_close(void *arg, int fd)
{
    int rc = fate(arg, false, false), real = wf_fs_posix.close(NULL, fd);

    return rc ? rc : real;
}

static int f_rename(void *arg, const char *from, const char *to)
{
    int rc = fate(arg, false, true);

    if (!rc)
        rc = wf_fs_posix.rename(NULL, from, to);
    if (!rc)
        note(arg, FAULTFS_RENAME, from, to);
    return rc;
}

static int f_unlink(void *arg, const char *path)
{
    int rc = fate(arg, false, true);

    return rc ? rc : wf_fs_posix.unlink(NULL, path);
}

static int f_stat(void *arg, const char *path, struct wf_file_info *out)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.stat(NULL, path, out);
}

static int f_glob(void *arg, const char *pattern, int (*each)(void *, const char *), void *each_arg)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.glob(NULL, pattern, each, each_arg);
}

static int f_mkdir(void *arg, const char *path, int mode)
{
    int rc = fate(arg, true, true);

    if (!rc)
        rc = wf_fs_posix.mkdir(NULL, path, mode);
    if (!rc)
        note(arg, FAULTFS_CREATE, path, "");
    return rc;
}

static int f_rmdir(void *arg, const char *path)
{
    int rc = fate(arg, false, true);

    return rc ? rc : wf_fs_posix.rmdir(NULL, path);
}

static int f_list(void *arg, const char *path, int (*each)(void *, const char *), void *each_arg)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.list(NULL, path, each, each_arg);
}

static int f_lock(void *arg, int fd)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.lock(NULL, fd);
}

/* ---- the calls in an open folder ------------------------------------------------------------- */

static void path_at(const struct faultfs *f, int dir, const char *name, char out[FAULTFS_PATH])
{
    if (dir < 0 || dir >= 256 ||
        snprintf(out, FAULTFS_PATH, "%.250s/%s", f->fd_path[dir], name) >= FAULTFS_PATH)
        abort();
}

static int f_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    struct faultfs *f = arg;
    bool creates = flags & O_CREAT;
    char path[FAULTFS_PATH];
    int rc = fate(f, creates, creates || (flags & O_ACCMODE) != O_RDONLY);
    int fd = rc ? rc : wf_fs_posix.open_at(NULL, dir, name, flags, mode);

    if (fd < 0)
        return fd;
    if (fd >= 256)
        abort();
    path_at(f, dir, name, path);
    memcpy(f->fd_path[fd], path, sizeof path);
    if (creates) { /* with O_EXCL always: it is new */
        note(f, FAULTFS_CREATE, path, "");
        note(f, FAULTFS_DIRTY, path, "");
    }
    return fd;
}

static int f_rename_at(void *arg, int dir, const char *from, const char *to)
{
    char a[FAULTFS_PATH], b[FAULTFS_PATH];
    int rc = fate(arg, false, true);

    path_at(arg, dir, from, a);
    path_at(arg, dir, to, b);
    if (!rc)
        rc = wf_fs_posix.rename_at(NULL, dir, from, to);
    if (!rc)
        note(arg, FAULTFS_RENAME, a, b);
    return rc;
}

/* The new name holds what the old one does: also what is not synced. */
static int f_link_at(void *arg, int dir, const char *from, const char *to)
{
    struct faultfs *f = arg;
    char a[FAULTFS_PATH], b[FAULTFS_PATH];
    int rc = fate(f, false, true), n = f->n_events;

    path_at(f, dir, from, a);
    path_at(f, dir, to, b);
    if (!rc)
        rc = wf_fs_posix.link_at(NULL, dir, from, to);
    if (rc)
        return rc;
    note(f, FAULTFS_CREATE, b, "");
    for (int i = 0; i < n; i++)
        if (f->event[i].kind == FAULTFS_DIRTY && !f->event[i].done && !strcmp(f->event[i].path, a))
            note(f, FAULTFS_DIRTY, b, "");
    return 0;
}

static int f_unlink_at(void *arg, int dir, const char *name, bool folder)
{
    int rc = fate(arg, false, true);

    return rc ? rc : wf_fs_posix.unlink_at(NULL, dir, name, folder);
}

static int f_stat_at(void *arg, int dir, const char *name, struct wf_file_info *out)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.stat_at(NULL, dir, name, out);
}

static int f_mkdir_at(void *arg, int dir, const char *name, int mode)
{
    char path[FAULTFS_PATH];
    int rc = fate(arg, true, true);

    path_at(arg, dir, name, path);
    if (!rc)
        rc = wf_fs_posix.mkdir_at(NULL, dir, name, mode);
    if (!rc)
        note(arg, FAULTFS_CREATE, path, "");
    return rc;
}

static int f_list_at(void *arg, int dir, int (*each)(void *, const char *), void *each_arg)
{
    int rc = fate(arg, false, false);

    return rc ? rc : wf_fs_posix.list_at(NULL, dir, each, each_arg);
}

void faultfs_init(struct faultfs *f)
{
    memset(f, 0, sizeof *f);
    f->fs = wf_fs_posix; /* what has no fate of its own here */
    f->fs.open = f_open;
    f->fs.read = f_read;
    f->fs.write = f_write;
    f->fs.pread = f_pread;
    f->fs.seek = f_seek;
    f->fs.size = f_size;
    f->fs.sync = f_sync;
    f->fs.close = f_close;
    f->fs.rename = f_rename;
    f->fs.unlink = f_unlink;
    f->fs.stat = f_stat;
    f->fs.glob = f_glob;
    f->fs.mkdir = f_mkdir;
    f->fs.rmdir = f_rmdir;
    f->fs.list = f_list;
    f->fs.lock = f_lock;
    f->fs.open_at = f_open_at;
    f->fs.rename_at = f_rename_at;
    f->fs.link_at = f_link_at;
    f->fs.unlink_at = f_unlink_at;
    f->fs.stat_at = f_stat_at;
    f->fs.mkdir_at = f_mkdir_at;
    f->fs.list_at = f_list_at;
    f->fs.arg = f;
}
