/* file.c - the file seam and whole-file reading and writing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

static int posix_open(void *arg, const char *path, int flags, int mode)
{
    int fd = open(path, flags | O_CLOEXEC, (mode_t)mode);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static int64_t posix_read(void *arg, int fd, void *buf, int64_t n)
{
    ssize_t got;

    (void)arg;
    do
        got = read(fd, buf, (size_t)n);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static int64_t posix_write(void *arg, int fd, const void *buf, int64_t n)
{
    ssize_t put;

    (void)arg;
    do
        put = write(fd, buf, (size_t)n);
    while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : put;
}

static int64_t posix_pread(void *arg, int fd, void *buf, int64_t n, int64_t offset)
{
    ssize_t got;

    (void)arg;
    do
        got = pread(fd, buf, (size_t)n, offset);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

static int64_t posix_seek(void *arg, int fd, int64_t offset)
{
    off_t at = lseek(fd, offset, SEEK_SET);

    (void)arg;
    return at < 0 ? -errno : at;
}

static int64_t posix_size(void *arg, int fd)
{
    struct stat s;

    (void)arg;
    if (fstat(fd, &s))
        return -errno;
    return S_ISREG(s.st_mode) ? s.st_size : -ESPIPE;
}

static int posix_truncate(void *arg, int fd, int64_t size)
{
    (void)arg;
    return ftruncate(fd, size) ? -errno : 0;
}

static int posix_sync(void *arg, int fd)
{
    (void)arg;
    return fsync(fd) ? -errno : 0;
}

static int posix_close(void *arg, int fd)
{
    (void)arg;
    return close(fd) ? -errno : 0;
}

static int posix_rename(void *arg, const char *from, const char *to)
{
    (void)arg;
    return rename(from, to) ? -errno : 0;
}

static int posix_unlink(void *arg, const char *path)
{
    (void)arg;
    return unlink(path) ? -errno : 0;
}

static struct wf_file_info info_of(const struct stat *s)
{
    return (struct wf_file_info){
        .size = s->st_size,
        .mtime_ns = (int64_t)s->st_mtim.tv_sec * 1000000000 + s->st_mtim.tv_nsec,
        .plain = S_ISREG(s->st_mode),
        .folder = S_ISDIR(s->st_mode),
    };
}

static int posix_stat(void *arg, const char *path, struct wf_file_info *out)
{
    struct stat s;

    (void)arg;
    if (stat(path, &s))
        return -errno;
    *out = info_of(&s);
    return 0;
}

static int posix_glob(void *arg, const char *pattern, int (*each)(void *, const char *),
                      void *each_arg)
{
    glob_t found = {0};
    int rc;

    (void)arg;
    errno = 0;
    rc = glob(pattern, GLOB_ERR | GLOB_NOSORT, NULL, &found);
    if (rc == GLOB_NOMATCH || (rc == GLOB_ABORTED && errno == ENOENT))
        rc = 0;
    else if (rc)
        rc = rc == GLOB_NOSPACE ? -ENOMEM : errno ? -errno : -EIO;
    for (size_t i = 0; !rc && i < found.gl_pathc; i++)
        rc = each(each_arg, found.gl_pathv[i]);
    globfree(&found);
    return rc;
}

static int posix_mkdir(void *arg, const char *path, int mode)
{
    (void)arg;
    return mkdir(path, (mode_t)mode) ? -errno : 0;
}

static int posix_rmdir(void *arg, const char *path)
{
    (void)arg;
    return rmdir(path) ? -errno : 0;
}

static int list_entries(DIR *dir, int (*each)(void *, const char *), void *each_arg)
{
    const struct dirent *e;
    int rc = 0;

    if (!dir)
        return -errno;
    for (errno = 0; !rc && (e = readdir(dir)) != NULL; errno = 0)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            rc = each(each_arg, e->d_name);
    if (!rc && errno)
        rc = -errno;
    closedir(dir);
    return rc;
}

static int posix_list(void *arg, const char *path, int (*each)(void *, const char *),
                      void *each_arg)
{
    (void)arg;
    return list_entries(opendir(path), each, each_arg);
}

static int posix_lock(void *arg, int fd)
{
    (void)arg;
    return flock(fd, LOCK_EX | LOCK_NB) ? -errno : 0;
}

/* ---- in an open directory -------------------------------------------------------------------- */

static int posix_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    int fd = openat(dir, name, flags | O_CLOEXEC | O_NOFOLLOW, (mode_t)mode);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static int posix_rename_at(void *arg, int dir, const char *from, const char *to)
{
    (void)arg;
    return renameat(dir, from, dir, to) ? -errno : 0;
}

static int posix_link_at(void *arg, int dir, const char *from, const char *to)
{
    (void)arg;
    return linkat(dir, from, dir, to, 0) ? -errno : 0;
}

static int posix_unlink_at(void *arg, int dir, const char *name, bool folder)
{
    (void)arg;
    return unlinkat(dir, name, folder ? AT_REMOVEDIR : 0) ? -errno : 0;
}

static int posix_stat_at(void *arg, int dir, const char *name, struct wf_file_info *out)
{
    struct stat s;

    (void)arg;
    if (fstatat(dir, name, &s, AT_SYMLINK_NOFOLLOW))
        return -errno;
    *out = info_of(&s);
    return 0;
}

static int posix_mkdir_at(void *arg, int dir, const char *name, int mode)
{
    (void)arg;
    return mkdirat(dir, name, (mode_t)mode) ? -errno : 0;
}

static int posix_list_at(void *arg, int dir, int (*each)(void *, const char *), void *each_arg)
{
    /* A separate open file: the position of `dir` does not change. */
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    (void)arg;
    if (fd >= 0 && !d) {
        int e = errno;

        close(fd);
        errno = e;
    }
    return list_entries(d, each, each_arg);
}

static uint64_t posix_unique(void *arg)
{
    uint64_t v = 0;
    struct timespec t;

    (void)arg;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) == (ssize_t)sizeof v)
        return v;
    clock_gettime(CLOCK_MONOTONIC, &t);
    v = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return wf_hash64(&v, sizeof v, (uint64_t)getpid());
}

const struct wf_fs wf_fs_posix = {
    .open = posix_open,
    .read = posix_read,
    .write = posix_write,
    .pread = posix_pread,
    .seek = posix_seek,
    .size = posix_size,
    .truncate = posix_truncate,
    .sync = posix_sync,
    .close = posix_close,
    .rename = posix_rename,
    .unlink = posix_unlink,
    .stat = posix_stat,
    .glob = posix_glob,
    .mkdir = posix_mkdir,
    .rmdir = posix_rmdir,
    .list = posix_list,
    .lock = posix_lock,
    .open_at = posix_open_at,
    .rename_at = posix_rename_at,
    .link_at = posix_link_at,
    .unlink_at = posix_unlink_at,
    .stat_at = posix_stat_at,
    .mkdir_at = posix_mkdir_at,
    .list_at = posix_list_at,
    .unique = posix_unique,
};

weft_status wf_file_err(int64_t neg_errno, const char *path, const char *what)
{
    int e = (int)-neg_errno;
    weft_status st = e == ENOSPC || e == EDQUOT ? WEFT_ENOSPC
                     : e == ENOENT              ? WEFT_ENOENT
                                                : WEFT_EIO;

    return wf_err(st, "%s: %s: %s", path, what,
                  e == ELOOP ? "it is a symbolic link; links are not followed here"
                             : wf_errno_text(e));
}

weft_status wf_file_read(weft_ctx *ctx, const char *path, int64_t max, char **data, int64_t *n)
{
    const struct wf_fs *fs = ctx->fs;
    int fd = fs->open(fs->arg, path, O_RDONLY, 0);
    int64_t size, got, at = 0;
    char *p = NULL;
    weft_status st = WEFT_OK;

    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    size = fs->size(fs->arg, fd);
    if (size < 0) {
        st = wf_file_err(size, path, "not a regular file");
        goto out;
    }
    if (size > max) {
        st = wf_err(WEFT_ELIMIT, "%s: %lld bytes; at most %lld are read here", path,
                    (long long)size, (long long)max);
        goto out;
    }
    p = wf_alloc(ctx, (size_t)size + 1);
    if (!p) {
        st = wf_err_nomem(ctx, (size_t)size + 1, path);
        goto out;
    }
    while (at < size) {
        got = fs->read(fs->arg, fd, p + at, size - at);
        if (got <= 0) {
            st = got ? wf_file_err(got, path, "cannot read")
                     : wf_err(WEFT_EIO, "%s: ended at byte %lld of %lld while it was being read",
                              path, (long long)at, (long long)size);
            goto out;
        }
        at += got;
    }
    *data = p;
    *n = size;
    p = NULL;
out:
    fs->close(fs->arg, fd);
    wf_free(ctx, p);
    return st;
}
