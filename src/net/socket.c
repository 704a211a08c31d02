/* socket.c - connections: resolving, connecting, listening, and what the loop waits for. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "net/link.h"

enum { AT_ONCE = 64 }; /* connections that are accepted in a turn */

static void fail(struct wf_link *l, const char *what, const char *reason)
{
    char text[256];

    wf_snprintf(text, sizeof text, "%s: %s", what, reason);
    wf_link_down(l, WEFT_EPEER, text);
}

static void fail_connecting(struct wf_link *l, int error)
{
    l->refused = error == ECONNREFUSED || error == ENOENT;
    fail(l, "connecting", wf_errno_text(error));
}

bool wf_link_refused(const struct wf_link *l)
{
    return l->refused;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t read_plain(struct wf_link *l, const struct iovec *v, int n)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};

    return sys->recvmsg(sys->arg, l->fd, &m, MSG_DONTWAIT);
}

static int64_t write_plain(struct wf_link *l, const struct iovec *v, int n)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};

    return sys->sendmsg(sys->arg, l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

const struct wf_wire wf_wire_plain = {.read = read_plain, .write = write_plain, .announces = true};

/* ---- waiting --------------------------------------------------------------------------------- */

void wf_socket_watch(struct wf_link *l, int events, bool again)
{
    if (l->fd >= 0 && wf_watch(l->net, &l->watched, l->fd, events, again))
        wf_link_down(l, WEFT_EIO, weft_error());
}

static void close_connection(struct wf_link *l)
{
    const struct wf_sys *sys = l->net->ctx->sys;

    wf_unwatch(l->net, &l->watched);
    if (l->fd >= 0)
        sys->close(sys->arg, l->fd);
    l->fd = -1;
}

void wf_socket_close(struct wf_link *l)
{
    const struct wf_sys *sys = l->net->ctx->sys;

    if (l->resolving)
        uv_cancel((uv_req_t *)&l->resolving->work);
    close_connection(l);
    if (l->pipe)
        wf_inproc_close(l);
    if (l->found)
        sys->freeaddrinfo(sys->arg, l->found);
    l->found = l->next_found = NULL;
}

static void adopt(struct wf_link *l, int fd)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    int on = 1;

    if (l->kind == WF_ADDRESS_TCP ||
        l->kind == WF_ADDRESS_TLS) /* small messages leave at once; a hint */
        sys->setsockopt(sys->arg, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    l->fd = fd;
    l->watched.link = l;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* One address: 0 if it is connected or will be, otherwise a negative errno. */
static int open_socket(struct wf_link *l, const struct sockaddr *to, socklen_t n)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    int fd = sys->socket(sys->arg, to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int rc;

    if (fd < 0)
        return fd;
    adopt(l, fd);
    memcpy(&l->to, to, n);
    l->n_to = n;
    rc = sys->connect(sys->arg, fd, to, n);
    if (rc == 0)
        wf_link_start(l);
    else if (rc == -EINPROGRESS || rc == -EINTR) /* then it continues by itself */
        wf_socket_watch(l, WF_WRITABLE, false);
    else
        return rc;
    return 0;
}

/* The next address that the host's name has; the error of the last one counts. */
static void try_next(struct wf_link *l, int error)
{
    while (l->next_found) {
        const struct addrinfo *a = l->next_found;

        l->next_found = a->ai_next;
        close_connection(l);
        error = -open_socket(l, a->ai_addr, a->ai_addrlen);
        if (error == 0)
            return;
    }
    fail_connecting(l, error);
}

void wf_socket_connected(struct wf_link *l)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    int error = 0, rc;
    socklen_t n = sizeof error;

    rc = sys->getsockopt(sys->arg, l->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (rc < 0)
        error = -rc;
    if (error)
        try_next(l, error);
    else
        wf_link_start(l);
}

/* A thread of libuv's. */
static void do_resolve(uv_work_t *w)
{
    struct wf_resolving *r = w->data;
    const struct wf_sys *sys = r->link->net->ctx->sys;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

    r->rc = sys->getaddrinfo(sys->arg, r->host, r->port, &hints, &r->found);
}

static void on_resolved(uv_work_t *w, int status)
{
    struct wf_resolving *r = w->data;
    struct wf_link *l = r->link;
    struct wf_net *net = l->net;
    const struct wf_sys *sys = net->ctx->sys;

    l->resolving = NULL;
    if (l->state != WF_LINK_OPENING) {
        if (status == 0 && r->rc == 0)
            sys->freeaddrinfo(sys->arg, r->found);
    } else if (status) {
        fail(l, "finding the host", uv_strerror(status));
    } else if (r->rc) {
        fail(l, "finding the host", gai_strerror(r->rc));
    } else {
        l->found = l->next_found = r->found;
        try_next(l, EADDRNOTAVAIL);
    }
    wf_free(net->ctx, r);
}

static void resolve(struct wf_link *l, const struct wf_address *a)
{
    struct wf_resolving *r = wf_alloc(l->net->ctx, sizeof *r);
    int rc;

    if (!r) {
        wf_link_down(l, WEFT_ENOMEM, "out of memory");
        return;
    }
    r->link = l;
    r->work.data = r;
    wf_snprintf(r->host, sizeof r->host, "%s", a->host);
    wf_snprintf(r->port, sizeof r->port, "%d", a->port);
    rc = uv_queue_work(&l->net->loop, &r->work, do_resolve, on_resolved);
    if (rc) {
        wf_free(l->net->ctx, r);
        fail(l, "finding the host", uv_strerror(rc));
        return;
    }
    l->resolving = r;
}

static void unix_address(const char *path, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    wf_snprintf(out->sun_path, sizeof out->sun_path, "%s", path);
}

void wf_socket_connect(struct wf_link *l)
{
    struct wf_address a;
    struct sockaddr_un un;
    int rc;

    if (wf_address_parse(l->address, &a)) {
        wf_link_down(l, WEFT_EINVAL, weft_error());
    } else if (a.kind == WF_ADDRESS_INPROC) {
        wf_inproc_connect(l);
    } else if (a.kind == WF_ADDRESS_UDS || a.kind == WF_ADDRESS_SHM) {
        unix_address(a.host, &un);
        rc = open_socket(l, (const struct sockaddr *)&un, sizeof un);
        if (rc)
            fail_connecting(l, -rc);
    } else {
        resolve(l, &a);
    }
}

void wf_socket_connect_as(struct wf_link *l, const struct wf_link *other)
{
    struct sockaddr_storage to = other->to;
    int rc = open_socket(l, (const struct sockaddr *)&to, other->n_to);

    if (rc)
        fail(l, "connecting", wf_errno_text(-rc));
}

/* ---- listening ------------------------------------------------------------------------------- */

/* A socket at one address of the host: its descriptor, or a negative errno. */
static int bind_one(const struct wf_sys *sys, const struct addrinfo *at)
{
    int fd = sys->socket(sys->arg, at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int on = 1, rc;

    if (fd < 0)
        return fd;
    rc = sys->setsockopt(sys->arg, fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (rc >= 0)
        rc = sys->bind(sys->arg, fd, at->ai_addr, at->ai_addrlen);
    if (rc < 0)
        sys->close(sys->arg, fd);
    return rc < 0 ? rc : fd;
}

static bool is_elsewhere(int rc)
{
    return rc == -EADDRNOTAVAIL || rc == -EAFNOSUPPORT;
}

/* The first of the host's addresses that this machine has. */
static weft_status bind_tcp(const struct wf_sys *sys, const struct wf_address *a, int *fd)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    char port[8];
    int rc;

    wf_snprintf(port, sizeof port, "%d", a->port);
    rc = sys->getaddrinfo(sys->arg, a->host, port, &hints, &found);
    if (rc)
        return wf_err(WEFT_EINVAL, "'%s': %s", a->host, gai_strerror(rc));
    *fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at && is_elsewhere(*fd); at = at->ai_next)
        *fd = bind_one(sys, at);
    sys->freeaddrinfo(sys->arg, found);
    return *fd < 0 ? wf_err(WEFT_EIO, "cannot be bound: %s", wf_errno_text(-*fd)) : WEFT_OK;
}

static weft_status bind_unix(const struct wf_sys *sys, const struct wf_address *a, int *fd)
{
    struct sockaddr_un un;
    int rc;

    unix_address(a->host, &un);
    rc = *fd = sys->socket(sys->arg, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (rc >= 0)
        rc = sys->bind(sys->arg, *fd, (const struct sockaddr *)&un, sizeof un);
    return rc < 0 ? wf_err(WEFT_EIO, "cannot be bound: %s", wf_errno_text(-rc)) : WEFT_OK;
}

/* The port that was chosen for port 0. */
static weft_status find_port(const struct wf_sys *sys, int fd, struct wf_address *a)
{
    struct sockaddr_storage s;
    socklen_t n = sizeof s;
    int rc = sys->getsockname(sys->arg, fd, (struct sockaddr *)&s, &n);

    if (rc < 0)
        return wf_err(WEFT_EIO, "its port cannot be found: %s", wf_errno_text(-rc));
    if (s.ss_family == AF_INET)
        a->port = ntohs(((const struct sockaddr_in *)(const void *)&s)->sin_port);
    else if (s.ss_family == AF_INET6)
        a->port = ntohs(((const struct sockaddr_in6 *)(const void *)&s)->sin6_port);
    return WEFT_OK;
}

weft_status wf_socket_listen(struct wf_net *net, const struct wf_address *a, char *bound,
                             size_t size, struct wf_listener **out)
{
    const struct wf_sys *sys = net->ctx->sys;
    struct wf_listener *s = wf_alloc(net->ctx, sizeof *s);
    struct wf_address at = *a;
    weft_status st;
    int rc = 0;

    if (!s)
        return wf_err_nomem(net->ctx, sizeof *s, "a listener");
    s->net = net;
    s->kind = a->kind;
    s->fd = -1;
    if (a->kind == WF_ADDRESS_INPROC)
        st = wf_inproc_listen(s, a->host);
    else if (a->kind == WF_ADDRESS_UDS || a->kind == WF_ADDRESS_SHM)
        st = bind_unix(sys, a, &s->fd);
    else
        st = bind_tcp(sys, a, &s->fd);
    if (!st && (a->kind == WF_ADDRESS_UDS || a->kind == WF_ADDRESS_SHM))
        wf_snprintf(s->path, sizeof s->path, "%s", a->host);
    if (!st && s->fd >= 0) {
        rc = sys->listen(sys->arg, s->fd, 512);
        st = rc < 0 ? wf_err(WEFT_EIO, "cannot listen: %s", wf_errno_text(-rc))
                    : find_port(sys, s->fd, &at);
    }
    if (st) {
        wf_socket_close_listener(s);
        return st;
    }
    if (bound)
        wf_address_format(&at, bound, size);
    *out = s;
    return WEFT_OK;
}

/* Who connects, as an address. */
static void name_accepted(struct wf_link *l, const struct wf_listener *s,
                          const struct sockaddr_storage *from, socklen_t n)
{
    struct wf_address a = {.kind = s->kind};
    char port[16];

    if (*s->path)
        wf_snprintf(a.host, sizeof a.host, "%s", s->path);
    else if (getnameinfo((const struct sockaddr *)from, n, a.host, sizeof a.host, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        for (const char *c = port; *c; c++)
            a.port = 10 * a.port + (*c - '0');
    l->kind = s->kind;
    wf_address_format(&a, l->address, sizeof l->address);
}

/* What a connection that could not be accepted says of the listener: wait for another (true), or
 * look again at once. */
static bool wait_after(struct wf_listener *s, int rc)
{
    if (rc == -EINTR || rc == -ECONNABORTED)
        return false;
    if (rc != -EAGAIN && rc != -EWOULDBLOCK) {
        /* Out of descriptors or memory: the connection stays, and the loop would turn for it
         * without a pause. */
        if (!s->failing)
            wf_log(s->net->ctx, WEFT_LOG_WARN, "a connection cannot be accepted: %s",
                   wf_errno_text(-rc));
        s->failing = true;
        wf_watch(s->net, &s->watched, s->fd, 0, false);
        s->resting = true;
        wf_net_soon(s->net);
    }
    return true;
}

/* Those who connect and say nothing cost memory: of too many, the oldest one has to go. */
static void limit_unknown(struct wf_net *net)
{
    struct wf_link *oldest = NULL;

    if (net->n_unknown < WF_MAX_UNKNOWN)
        return;
    for (struct wf_link *l = net->links; l; l = l->next)
        if (l->unknown && (!oldest || l->number < oldest->number))
            oldest = l;
    if (oldest) {
        wf_link_down(oldest, WEFT_ELIMIT, "too many connections that have not said who they are");
        wf_net_wake(net); /* it is freed */
    }
}

void wf_socket_accept(struct wf_listener *s)
{
    const struct wf_sys *sys = s->net->ctx->sys;

    /* The listener is announced again if there are more. */
    for (int i = 0; i < AT_ONCE; i++) {
        struct sockaddr_storage from;
        socklen_t n = sizeof from;
        struct wf_link *l;
        int fd = sys->accept4(sys->arg, s->fd, (struct sockaddr *)&from, &n,
                              SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && !wait_after(s, fd))
            continue;
        if (fd < 0)
            return;
        s->failing = false;
        if (wf_link_new(s->net, &l)) {
            wf_log(s->net->ctx, WEFT_LOG_WARN, "a connection is refused: %s", weft_error());
            sys->close(sys->arg, fd);
            return;
        }
        limit_unknown(s->net);
        l->unknown = true;
        s->net->n_unknown++;
        name_accepted(l, s, &from, n);
        l->next = s->net->links;
        s->net->links = l;
        adopt(l, fd);
        wf_link_start(l);
    }
}

weft_status wf_socket_watch_listener(struct wf_listener *s)
{
    s->resting = false;
    s->watched.listener = s;
    return wf_watch(s->net, &s->watched, s->fd, WF_READABLE, false);
}

void wf_socket_close_listener(struct wf_listener *s)
{
    const struct wf_sys *sys = s->net->ctx->sys;

    wf_unwatch(s->net, &s->watched);
    if (s->fd >= 0)
        sys->close(sys->arg, s->fd);
    wf_inproc_unlisten(s);
    if (*s->path)
        sys->unlink(sys->arg, s->path);
    wf_free(s->net->ctx, s);
}

/* ---- who is at the other end ----------------------------------------------------------------- */

weft_status wf_link_check_user(const struct wf_link *l)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    struct ucred who = {.uid = 0};
    socklen_t n = sizeof who;
    int rc = sys->getsockopt(sys->arg, l->fd, SOL_SOCKET, SO_PEERCRED, &who, &n);

    if (rc < 0)
        return wf_err(WEFT_EPEER, "asking for the peer's user: %s", wf_errno_text(-rc));
    if (who.uid != geteuid())
        return wf_err(WEFT_EPEER, "the peer belongs to user %u, this process to user %u",
                      (unsigned)who.uid, (unsigned)geteuid());
    return WEFT_OK;
}
