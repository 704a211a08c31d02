/* sys.c - the seam of the network, as the system does it. */
#define _GNU_SOURCE
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- sockets --------------------------------------------------------------------------------- */

static int sys_socket(void *arg, int family, int type, int protocol)
{
    int fd = socket(family, type, protocol);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static int sys_bind(void *arg, int fd, const struct sockaddr *to, socklen_t n)
{
    (void)arg;
    return bind(fd, to, n) ? -errno : 0;
}

static int sys_listen(void *arg, int fd, int backlog)
{
    (void)arg;
    return listen(fd, backlog) ? -errno : 0;
}

static int sys_accept4(void *arg, int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    int got = accept4(fd, from, n, flags);

    (void)arg;
    return got < 0 ? -errno : got;
}

static int sys_connect(void *arg, int fd, const struct sockaddr *to, socklen_t n)
{
    (void)arg;
    return connect(fd, to, n) ? -errno : 0;
}

static int sys_getsockname(void *arg, int fd, struct sockaddr *name, socklen_t *n)
{
    (void)arg;
    return getsockname(fd, name, n) ? -errno : 0;
}

static int sys_getsockopt(void *arg, int fd, int level, int name, void *value, socklen_t *n)
{
    (void)arg;
    return getsockopt(fd, level, name, value, n) ? -errno : 0;
}

static int sys_setsockopt(void *arg, int fd, int level, int name, const void *value, socklen_t n)
{
    (void)arg;
    return setsockopt(fd, level, name, value, n) ? -errno : 0;
}

static int64_t sys_sendmsg(void *arg, int fd, const struct msghdr *m, int flags)
{
    ssize_t n = sendmsg(fd, m, flags);

    (void)arg;
    return n < 0 ? -errno : n;
}

static int64_t sys_recvmsg(void *arg, int fd, struct msghdr *m, int flags)
{
    ssize_t n = recvmsg(fd, m, flags);

    (void)arg;
    return n < 0 ? -errno : n;
}

static int sys_shutdown(void *arg, int fd, int how)
{
    (void)arg;
    return shutdown(fd, how) ? -errno : 0;
}

static int sys_unread(void *arg, int fd)
{
    int n = 0;

    (void)arg;
    return ioctl(fd, FIONREAD, &n) ? -errno : n;
}

static int sys_poll(void *arg, struct pollfd *fds, int n, int timeout_ms)
{
    int rc = poll(fds, (nfds_t)n, timeout_ms);

    (void)arg;
    return rc < 0 ? -errno : rc;
}

static int sys_epoll_create(void *arg)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static int sys_epoll_ctl(void *arg, int set, int op, int fd, struct epoll_event *e)
{
    (void)arg;
    return epoll_ctl(set, op, fd, e) ? -errno : 0;
}

static int sys_epoll_wait(void *arg, int set, struct epoll_event *e, int max, int timeout_ms)
{
    int n = epoll_wait(set, e, max, timeout_ms);

    (void)arg;
    return n < 0 ? -errno : n;
}

static int sys_getaddrinfo(void *arg, const char *host, const char *port,
                           const struct addrinfo *hints, struct addrinfo **out)
{
    (void)arg;
    return getaddrinfo(host, port, hints, out);
}

static void sys_freeaddrinfo(void *arg, struct addrinfo *found)
{
    (void)arg;
    freeaddrinfo(found);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static int sys_eventfd(void *arg, unsigned value, int flags)
{
    int fd = eventfd(value, flags);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static int sys_timerfd_create(void *arg, int clock, int flags)
{
    int fd = timerfd_create(clock, flags);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

static int sys_timerfd_settime(void *arg, int fd, const struct itimerspec *when)
{
    (void)arg;
    return timerfd_settime(fd, 0, when, NULL) ? -errno : 0;
}

static int64_t sys_read(void *arg, int fd, void *buf, int64_t n)
{
    ssize_t got = read(fd, buf, (size_t)n);

    (void)arg;
    return got < 0 ? -errno : got;
}

static int64_t sys_write(void *arg, int fd, const void *buf, int64_t n)
{
    ssize_t put = write(fd, buf, (size_t)n);

    (void)arg;
    return put < 0 ? -errno : put;
}

static int sys_fcntl(void *arg, int fd, int command, int value)
{
    int rc = fcntl(fd, command, value);

    (void)arg;
    return rc < 0 ? -errno : rc;
}

static int sys_close(void *arg, int fd)
{
    (void)arg;
    return close(fd) ? -errno : 0;
}

static int sys_unlink(void *arg, const char *path)
{
    (void)arg;
    return unlink(path) ? -errno : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int sys_memfd_create(void *arg, const char *name, unsigned flags)
{
    int fd = memfd_create(name, flags);

    (void)arg;
    return fd < 0 ? -errno : fd;
}

/* Beyond the limit on the size of files, which counts for memory, too, the system would end the
 * process with a signal. */
static int sys_ftruncate(void *arg, int fd, int64_t bytes)
{
    struct rlimit most;

    (void)arg;
    if (getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        (uint64_t)bytes > most.rlim_cur)
        return -EFBIG;
    return ftruncate(fd, bytes) ? -errno : 0;
}

static int64_t sys_size(void *arg, int fd)
{
    struct stat s;

    (void)arg;
    return fstat(fd, &s) ? -errno : (int64_t)s.st_size;
}

static int sys_mmap(void *arg, int64_t bytes, int protection, int flags, int fd, void **out)
{
    void *p = mmap(NULL, (size_t)bytes, protection, flags, fd, 0);

    (void)arg;
    if (p == MAP_FAILED)
        return -errno;
    *out = p;
    return 0;
}

static int sys_munmap(void *arg, void *p, int64_t bytes)
{
    (void)arg;
    return munmap(p, (size_t)bytes) ? -errno : 0;
}

/* ---- entropy --------------------------------------------------------------------------------- */

static int sys_entropy(void *arg, void *buf, int64_t n)
{
    (void)arg;
    for (int64_t at = 0; at < n;) {
        ssize_t got = getrandom((char *)buf + at, (size_t)(n - at), 0);

        if (got < 0 && errno != EINTR)
            return -errno;
        at += got > 0 ? got : 0;
    }
    return 0;
}

weft_status wf_entropy(weft_ctx *ctx, void *buf, int64_t n)
{
    int rc = ctx->sys->entropy(ctx->sys->arg, buf, n);

    return rc < 0 ? wf_err(WEFT_EIO, "random bytes of the system: %s", wf_errno_text(-rc))
                  : WEFT_OK;
}

const struct wf_sys wf_sys_posix = {
    .socket = sys_socket,
    .bind = sys_bind,
    .listen = sys_listen,
    .accept4 = sys_accept4,
    .connect = sys_connect,
    .getsockname = sys_getsockname,
    .getsockopt = sys_getsockopt,
    .setsockopt = sys_setsockopt,
    .sendmsg = sys_sendmsg,
    .recvmsg = sys_recvmsg,
    .shutdown = sys_shutdown,
    .unread = sys_unread,
    .poll = sys_poll,
    .epoll_create = sys_epoll_create,
    .epoll_ctl = sys_epoll_ctl,
    .epoll_wait = sys_epoll_wait,
    .getaddrinfo = sys_getaddrinfo,
    .freeaddrinfo = sys_freeaddrinfo,
    .eventfd = sys_eventfd,
    .timerfd_create = sys_timerfd_create,
    .timerfd_settime = sys_timerfd_settime,
    .read = sys_read,
    .write = sys_write,
    .fcntl = sys_fcntl,
    .close = sys_close,
    .unlink = sys_unlink,
    .memfd_create = sys_memfd_create,
    .ftruncate = sys_ftruncate,
    .size = sys_size,
    .mmap = sys_mmap,
    .munmap = sys_munmap,
    .entropy = sys_entropy,
};
