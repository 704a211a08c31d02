/* sys.h - the seam of the network: sockets, shared memory, and entropy.
 *
 * Everything that src/net asks of the system goes through ctx->sys, so that a test can fail each
 * call in turn. Functions return what the call of the same name returns, or a negative errno.
 * Any thread may call them. Time is the context's clock (wf_now); ticks are real. The loop is
 * libuv's. */
#ifndef WF_BASE_SYS_H
#define WF_BASE_SYS_H

#include <netdb.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/base.h"

struct addrinfo;   /* of netdb.h, which not all feature levels declare */
struct itimerspec; /* of time.h, likewise */

struct wf_sys {
    /* sockets */
    int (*socket)(void *arg, int family, int type, int protocol);
    int (*bind)(void *arg, int fd, const struct sockaddr *to, socklen_t n);
    int (*listen)(void *arg, int fd, int backlog);
    int (*accept4)(void *arg, int fd, struct sockaddr *from, socklen_t *n, int flags);
    int (*connect)(void *arg, int fd, const struct sockaddr *to, socklen_t n);
    int (*getsockname)(void *arg, int fd, struct sockaddr *name, socklen_t *n);
    int (*getsockopt)(void *arg, int fd, int level, int name, void *value, socklen_t *n);
    int (*setsockopt)(void *arg, int fd, int level, int name, const void *value, socklen_t n);
    int64_t (*sendmsg)(void *arg, int fd, const struct msghdr *m, int flags);
    int64_t (*recvmsg)(void *arg, int fd, struct msghdr *m, int flags);
    int (*shutdown)(void *arg, int fd, int how);
    int (*unread)(void *arg, int fd); /* bytes that have arrived: FIONREAD */
    int (*poll)(void *arg, struct pollfd *fds, int n, int timeout_ms);
    int (*epoll_create)(void *arg);
    int (*epoll_ctl)(void *arg, int set, int op, int fd, struct epoll_event *e);
    int (*epoll_wait)(void *arg, int set, struct epoll_event *e, int max, int timeout_ms);
    /* 0 or a code of gai_strerror; freed with freeaddrinfo. */
    int (*getaddrinfo)(void *arg, const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
    void (*freeaddrinfo)(void *arg, struct addrinfo *found);
    /* descriptors */
    int (*eventfd)(void *arg, unsigned value, int flags);
    int (*timerfd_create)(void *arg, int clock, int flags);
    int (*timerfd_settime)(void *arg, int fd, const struct itimerspec *when);
    int64_t (*read)(void *arg, int fd, void *buf, int64_t n);
    int64_t (*write)(void *arg, int fd, const void *buf, int64_t n);
    int (*fcntl)(void *arg, int fd, int command, int value);
    int (*close)(void *arg, int fd);
    int (*unlink)(void *arg, const char *path);
    /* memory */
    int (*memfd_create)(void *arg, const char *name, unsigned flags);
    int (*ftruncate)(void *arg, int fd, int64_t bytes);
    int64_t (*size)(void *arg, int fd); /* of fstat */
    int (*mmap)(void *arg, int64_t bytes, int protection, int flags, int fd, void **out);
    int (*munmap)(void *arg, void *p, int64_t bytes);
    /* n bytes that nobody can guess: getrandom. */
    int (*entropy)(void *arg, void *buf, int64_t n);
    void *arg;
};
extern const struct wf_sys wf_sys_posix;

/* Bytes that nobody can guess, for ids, incarnations and serial numbers. */
weft_status wf_entropy(weft_ctx *ctx, void *buf, int64_t n);

#endif
