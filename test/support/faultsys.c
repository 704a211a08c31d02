/* faultsys.c - the seam of the network for tests: counts calls, fails the n-th, cuts reads and
 * writes short, and interrupts them. */
#define _GNU_SOURCE
#include "faultsys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

/* What each call can plausibly end with. */
enum { MAX_ERRORS = 6, MAX_CUT = 64 };
struct fate {
    const char *name;
    int error[MAX_ERRORS]; /* up to a 0 */
};
static const struct fate
    socket_fate = {"socket", {EMFILE, ENFILE, ENOBUFS, EAFNOSUPPORT}},
    bind_fate = {"bind", {EADDRINUSE, EACCES, EADDRNOTAVAIL}},
    listen_fate = {"listen", {EADDRINUSE, EOPNOTSUPP}},
    accept_fate = {"accept4", {EMFILE, ENOBUFS, ECONNABORTED, EINTR, EAGAIN, EPERM}},
    connect_fate = {"connect", {ECONNREFUSED, ETIMEDOUT, ENETUNREACH, EINTR, EADDRNOTAVAIL}},
    name_fate = {"getsockname", {ENOBUFS}}, getopt_fate = {"getsockopt", {ENOPROTOOPT, ENOMEM}},
    setopt_fate = {"setsockopt", {ENOPROTOOPT, ENOMEM}},
    send_fate = {"sendmsg", {EPIPE, ECONNRESET, ENOBUFS, EINTR, EAGAIN, ETIMEDOUT}},
    unread_fate = {"ioctl", {EINVAL, EIO}},
    recv_fate = {"recvmsg", {ECONNRESET, ETIMEDOUT, ENOMEM, EINTR, EAGAIN}},
    shutdown_fate = {"shutdown", {ENOTCONN}}, poll_fate = {"poll", {EINTR, ENOMEM}},
    epoll_fate = {"epoll_create", {EMFILE, ENOMEM}}, ctl_fate = {"epoll_ctl", {ENOMEM, ENOSPC}},

    host_fate = {"getaddrinfo", {EAI_NONAME, EAI_AGAIN, EAI_MEMORY}},
    eventfd_fate = {"eventfd", {EMFILE, ENOMEM}}, timer_fate = {"timerfd_create", {EMFILE, ENOMEM}},
    read_fate = {"read", {EINTR, EAGAIN, EIO}}, write_fate = {"write", {EINTR, EAGAIN, EIO}},
    fcntl_fate = {"fcntl", {EPERM, EBUSY}}, close_fate = {"close", {EIO, EINTR}},
    unlink_fate = {"unlink", {EACCES, EROFS}},
    memfd_fate = {"memfd_create", {EMFILE, ENOMEM, ENOSYS}},
    truncate_fate = {"ftruncate", {ENOSPC, EINTR, EPERM}}, size_fate = {"fstat", {EIO}},
    mmap_fate = {"mmap", {ENOMEM, EACCES}}, munmap_fate = {"munmap", {EINVAL}},
    entropy_fate = {"getrandom", {ENOSYS}};

int faultsys_max_errors(void)
{
    return MAX_ERRORS;
}

/* 0, or the negative error that this call shall end with. */
static int fate(struct faultsys *f, const struct fate *of)
{
    int n = 0;

    if (atomic_fetch_add(&f->n_calls, 1) + 1 != f->fail_at)
        return 0;
    while (n < MAX_ERRORS && of->error[n])
        n++;
    if (f->which >= n)
        return 0;
    f->what = of->name;
    f->error = of->error[f->which];
    f->happened = true;
    return -of->error[f->which];
}

/* Interrupted, or not ready. */
static int disturb(struct faultsys *f)
{
    int64_t n = f->every ? atomic_fetch_add(&f->n_io, 1) + 1 : 0;

    if (!n || n % f->every)
        return 0;
    return n / f->every % 2 ? -EINTR : -EAGAIN;
}

/* A socket that has given or taken less than it could is announced again, as a real one would be
 * when the rest becomes possible. */
static void announce(struct faultsys *f, int fd)
{
    if (fd < FAULTSYS_FDS && f->watched[fd].set) {
        struct epoll_event e = f->watched[fd].e;

        wf_sys_posix.epoll_ctl(NULL, f->watched[fd].set, EPOLL_CTL_MOD, fd, &e);
    }
}

static int opened(struct faultsys *f, int fd)
{
    f->n_open += fd >= 0;
    return fd;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static int f_socket(void *arg, int family, int type, int protocol)
{
    int rc = fate(arg, &socket_fate);

    return rc ? rc : opened(arg, wf_sys_posix.socket(NULL, family, type, protocol));
}

static int f_bind(void *arg, int fd, const struct sockaddr *to, socklen_t n)
{
    int rc = fate(arg, &bind_fate);

    return rc ? rc : wf_sys_posix.bind(NULL, fd, to, n);
}

static int f_listen(void *arg, int fd, int backlog)
{
    int rc = fate(arg, &listen_fate);

    return rc ? rc : wf_sys_posix.listen(NULL, fd, backlog);
}

static int f_accept4(void *arg, int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    int rc = fate(arg, &accept_fate);

    return rc ? rc : opened(arg, wf_sys_posix.accept4(NULL, fd, from, n, flags));
}

static int f_connect(void *arg, int fd, const struct sockaddr *to, socklen_t n)
{
    int rc = fate(arg, &connect_fate);

    if (rc == -EINTR) /* it continues */
        wf_sys_posix.connect(NULL, fd, to, n);
    return rc ? rc : wf_sys_posix.connect(NULL, fd, to, n);
}

static int f_getsockname(void *arg, int fd, struct sockaddr *name, socklen_t *n)
{
    int rc = fate(arg, &name_fate);

    return rc ? rc : wf_sys_posix.getsockname(NULL, fd, name, n);
}

static int f_getsockopt(void *arg, int fd, int level, int name, void *value, socklen_t *n)
{
    int rc = fate(arg, &getopt_fate);

    return rc ? rc : wf_sys_posix.getsockopt(NULL, fd, level, name, value, n);
}

static int f_setsockopt(void *arg, int fd, int level, int name, const void *value, socklen_t n)
{
    int rc = fate(arg, &setopt_fate);

    return rc ? rc : wf_sys_posix.setsockopt(NULL, fd, level, name, value, n);
}

/* The first max_io bytes of a vector. */
static void cut(const struct faultsys *f, struct msghdr *m, struct iovec v[MAX_CUT])
{
    size_t left = (size_t)f->max_io;
    size_t n = 0;

    if (!f->max_io || m->msg_controllen)
        return;
    for (; n < m->msg_iovlen && n < MAX_CUT && left > 0; n++) {
        v[n] = m->msg_iov[n];
        if (v[n].iov_len > left)
            v[n].iov_len = left;
        left -= v[n].iov_len;
    }
    m->msg_iov = v;
    m->msg_iovlen = n;
}

static int64_t f_sendmsg(void *arg, int fd, const struct msghdr *m, int flags)
{
    struct iovec v[MAX_CUT];
    struct msghdr part = *m;
    int rc = fate(arg, &send_fate);

    if (!rc)
        rc = disturb(arg);
    cut(arg, &part, v);
    if (rc == -EAGAIN)
        announce(arg, fd);
    return rc ? rc : wf_sys_posix.sendmsg(NULL, fd, &part, flags);
}

/* Descriptors that come with a message are open, too. */
static void count_fds(struct faultsys *f, struct msghdr *m)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
            f->n_open += (int64_t)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
}

static int64_t f_recvmsg(void *arg, int fd, struct msghdr *m, int flags)
{
    struct iovec v[MAX_CUT], *whole = m->msg_iov;
    size_t n_whole = m->msg_iovlen;
    int64_t got;
    int rc = fate(arg, &recv_fate);

    if (!rc)
        rc = disturb(arg);
    if (rc == -EAGAIN)
        announce(arg, fd);
    if (rc)
        return rc;
    cut(arg, m, v);
    got = wf_sys_posix.recvmsg(NULL, fd, m, flags);
    m->msg_iov = whole;
    m->msg_iovlen = n_whole;
    if (((struct faultsys *)arg)->max_io)
        announce(arg, fd);
    if (got >= 0)
        count_fds(arg, m);
    return got;
}

static int f_shutdown(void *arg, int fd, int how)
{
    int rc = fate(arg, &shutdown_fate);

    return rc ? rc : wf_sys_posix.shutdown(NULL, fd, how);
}

static int f_unread(void *arg, int fd)
{
    int rc = fate(arg, &unread_fate);

    return rc ? rc : wf_sys_posix.unread(NULL, fd);
}

static int f_poll(void *arg, struct pollfd *fds, int n, int timeout_ms)
{
    int rc = fate(arg, &poll_fate);

    return rc ? rc : wf_sys_posix.poll(NULL, fds, n, timeout_ms);
}

static int f_epoll_create(void *arg)
{
    int rc = fate(arg, &epoll_fate);

    return rc ? rc : opened(arg, wf_sys_posix.epoll_create(NULL));
}

static int f_epoll_ctl(void *arg, int set, int op, int fd, struct epoll_event *e)
{
    struct faultsys *f = arg;
    int rc = op == EPOLL_CTL_DEL ? 0 : fate(arg, &ctl_fate);

    if (!rc && fd < FAULTSYS_FDS && e && e->events & EPOLLET) {
        f->watched[fd].e = *e;
        f->watched[fd].set = set;
    }
    return rc ? rc : wf_sys_posix.epoll_ctl(NULL, set, op, fd, e);
}

static int f_epoll_wait(void *arg, int set, struct epoll_event *e, int max, int timeout_ms)
{
    /* Not counted: how often a node waits is not the same in every run. */
    struct faultsys *f = arg;
    int rc = f->every && atomic_fetch_add(&f->n_waits, 1) % f->every == 0 ? -EINTR : 0;

    return rc ? rc : wf_sys_posix.epoll_wait(NULL, set, e, max, timeout_ms);
}

static int f_getaddrinfo(void *arg, const char *host, const char *port,
                         const struct addrinfo *hints, struct addrinfo **out)
{
    int rc = fate(arg, &host_fate);

    return rc ? -rc : wf_sys_posix.getaddrinfo(NULL, host, port, hints, out);
}

/* ---- descriptors and memory ------------------------------------------------------------------ */

static int f_eventfd(void *arg, unsigned value, int flags)
{
    int rc = fate(arg, &eventfd_fate);

    return rc ? rc : opened(arg, wf_sys_posix.eventfd(NULL, value, flags));
}

/* Setting a valid timer does not fail. */
static int f_timerfd_create(void *arg, int clock, int flags)
{
    int rc = fate(arg, &timer_fate);

    return rc ? rc : opened(arg, wf_sys_posix.timerfd_create(NULL, clock, flags));
}

static int64_t f_read(void *arg, int fd, void *buf, int64_t n)
{
    int rc = fate(arg, &read_fate);

    return rc ? rc : wf_sys_posix.read(NULL, fd, buf, n);
}

static int64_t f_write(void *arg, int fd, const void *buf, int64_t n)
{
    int rc = fate(arg, &write_fate);

    return rc ? rc : wf_sys_posix.write(NULL, fd, buf, n);
}

static int f_fcntl(void *arg, int fd, int command, int value)
{
    int rc = fate(arg, &fcntl_fate);

    if (rc)
        return rc;
    rc = wf_sys_posix.fcntl(NULL, fd, command, value);
    return command == F_DUPFD_CLOEXEC ? opened(arg, rc) : rc;
}

/* The descriptor is gone whatever close says. */
static int f_close(void *arg, int fd)
{
    struct faultsys *f = arg;
    int rc = fate(f, &close_fate), real;

    if (fd < FAULTSYS_FDS)
        f->watched[fd].set = 0;
    real = wf_sys_posix.close(NULL, fd);

    f->n_open--;
    return rc ? rc : real;
}

static int f_unlink(void *arg, const char *path)
{
    int rc = fate(arg, &unlink_fate);

    return rc ? rc : wf_sys_posix.unlink(NULL, path);
}

static int f_memfd_create(void *arg, const char *name, unsigned flags)
{
    int rc = fate(arg, &memfd_fate);

    return rc ? rc : opened(arg, wf_sys_posix.memfd_create(NULL, name, flags));
}

static int f_ftruncate(void *arg, int fd, int64_t bytes)
{
    int rc = fate(arg, &truncate_fate);

    return rc ? rc : wf_sys_posix.ftruncate(NULL, fd, bytes);
}

static int64_t f_size(void *arg, int fd)
{
    int rc = fate(arg, &size_fate);

    return rc ? rc : wf_sys_posix.size(NULL, fd);
}

static int f_mmap(void *arg, int64_t bytes, int protection, int flags, int fd, void **out)
{
    int rc = fate(arg, &mmap_fate);

    return rc ? rc : wf_sys_posix.mmap(NULL, bytes, protection, flags, fd, out);
}

static int f_munmap(void *arg, void *p, int64_t bytes)
{
    int rc = fate(arg, &munmap_fate), real = wf_sys_posix.munmap(NULL, p, bytes);

    return rc ? rc : real;
}

static int f_entropy(void *arg, void *buf, int64_t n)
{
    int rc = fate(arg, &entropy_fate);

    return rc ? rc : wf_sys_posix.entropy(NULL, buf, n);
}

void faultsys_init(struct faultsys *f)
{
    memset(f, 0, sizeof *f);
    f->sys = wf_sys_posix; /* what has no fate of its own here */
    f->sys.socket = f_socket;
    f->sys.bind = f_bind;
    f->sys.listen = f_listen;
    f->sys.accept4 = f_accept4;
    f->sys.connect = f_connect;
    f->sys.getsockname = f_getsockname;
    f->sys.getsockopt = f_getsockopt;
    f->sys.setsockopt = f_setsockopt;
    f->sys.sendmsg = f_sendmsg;
    f->sys.recvmsg = f_recvmsg;
    f->sys.shutdown = f_shutdown;
    f->sys.unread = f_unread;
    f->sys.poll = f_poll;
    f->sys.epoll_create = f_epoll_create;
    f->sys.epoll_ctl = f_epoll_ctl;
    f->sys.epoll_wait = f_epoll_wait;
    f->sys.getaddrinfo = f_getaddrinfo;
    f->sys.eventfd = f_eventfd;
    f->sys.timerfd_create = f_timerfd_create;
    f->sys.read = f_read;
    f->sys.write = f_write;
    f->sys.fcntl = f_fcntl;
    f->sys.close = f_close;
    f->sys.unlink = f_unlink;
    f->sys.memfd_create = f_memfd_create;
    f->sys.ftruncate = f_ftruncate;
    f->sys.size = f_size;
    f->sys.mmap = f_mmap;
    f->sys.munmap = f_munmap;
    f->sys.entropy = f_entropy;
    f->sys.arg = f;
}
