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

static void fail(struct wf_link *l, const char *what, const char *reason)
{
    char text[256];

    wf_snprintf(text, sizeof text, "%s: %s", what, reason);
    wf_link_down(l, WEFT_EPEER, text);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static ssize_t read_plain(struct wf_link *l, const struct iovec *v, int n)
{
    return readv(l->fd, v, n);
}

static ssize_t write_plain(struct wf_link *l, const struct iovec *v, int n)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};

    return sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

const struct wf_wire wf_wire_plain = {read_plain, write_plain, NULL};

/* ---- the loop -------------------------------------------------------------------------------- */

static void free_handle(uv_handle_t *h)
{
    wf_free(h->loop->data, h);
}

static void on_link(uv_poll_t *h, int status, int events)
{
    /* An error of the socket is found by reading or writing it. */
    wf_link_ready(h->data, status < 0 ? UV_READABLE | UV_WRITABLE : events);
}

static void on_listener(uv_poll_t *h, int status, int events)
{
    (void)events;
    if (status >= 0)
        wf_socket_accept(h->data);
}

static uv_poll_t *new_poll(struct wf_net *net, int fd, void *data)
{
    uv_poll_t *h = wf_alloc(net->ctx, sizeof *h);

    if (h && uv_poll_init(&net->loop, h, fd)) {
        wf_free(net->ctx, h);
        return NULL;
    }
    if (h)
        h->data = data;
    return h;
}

void wf_socket_watch(struct wf_link *l, int events)
{
    if (!l->poll || l->events == events)
        return;
    l->events = events;
    if (events)
        uv_poll_start(l->poll, events, on_link);
    else
        uv_poll_stop(l->poll);
}

void wf_socket_close(struct wf_link *l)
{
    if (l->resolving)
        uv_cancel((uv_req_t *)l->resolving);
    if (l->poll)
        uv_close((uv_handle_t *)l->poll, free_handle);
    if (l->fd >= 0)
        close(l->fd);
    l->poll = NULL;
    l->fd = -1;
}

static weft_status adopt(struct wf_link *l, int fd)
{
    int on = 1;

    if (strncmp(l->address, "uds:", 4) != 0) /* small messages leave at once */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    l->fd = fd;
    l->poll = new_poll(l->net, fd, l);
    return l->poll ? WEFT_OK : wf_err(WEFT_ENOMEM, "the loop takes no more connections");
}

/* ---- connecting ------------------------------------------------------------------------------ */

static void open_socket(struct wf_link *l, const struct sockaddr *to, socklen_t n)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        fail(l, "socket", wf_errno_text(errno));
        return;
    }
    if (adopt(l, fd)) {
        wf_link_down(l, WEFT_ENOMEM, weft_error());
        return;
    }
    if (connect(fd, to, n) == 0)
        wf_link_start(l);
    else if (errno == EINPROGRESS)
        wf_socket_watch(l, UV_WRITABLE);
    else
        fail(l, "connecting", wf_errno_text(errno));
}

void wf_socket_connected(struct wf_link *l)
{
    int error = 0;
    socklen_t n = sizeof error;

    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &n))
        error = errno;
    if (error)
        fail(l, "connecting", wf_errno_text(error));
    else
        wf_link_start(l);
}

static void on_resolved(uv_getaddrinfo_t *r, int status, struct addrinfo *found)
{
    struct wf_link *l = r->data;

    l->resolving = NULL;
    if (l->state == WF_LINK_OPENING && status)
        fail(l, "finding the host", uv_strerror(status));
    else if (l->state == WF_LINK_OPENING)
        open_socket(l, found->ai_addr, found->ai_addrlen);
    if (found)
        uv_freeaddrinfo(found);
    wf_free(l->net->ctx, r);
}

static void resolve(struct wf_link *l, const struct wf_address *a)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    uv_getaddrinfo_t *r = wf_alloc(l->net->ctx, sizeof *r);
    char port[8];
    int rc;

    wf_snprintf(port, sizeof port, "%d", a->port);
    if (!r) {
        wf_link_down(l, WEFT_ENOMEM, "out of memory");
        return;
    }
    r->data = l;
    rc = uv_getaddrinfo(&l->net->loop, r, on_resolved, a->host, port, &hints);
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

    if (wf_address_parse(l->address, &a)) {
        wf_link_down(l, WEFT_EINVAL, weft_error());
    } else if (a.kind == WF_ADDRESS_UDS) {
        unix_address(a.host, &un);
        open_socket(l, (const struct sockaddr *)&un, sizeof un);
    } else {
        resolve(l, &a);
    }
}

/* ---- listening ------------------------------------------------------------------------------- */

static weft_status bind_tcp(const struct wf_address *a, int *fd)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    char port[8];
    int on = 1, rc;

    wf_snprintf(port, sizeof port, "%d", a->port);
    rc = getaddrinfo(a->host, port, &hints, &found);
    if (rc)
        return wf_err(WEFT_EINVAL, "'%s': %s", a->host, gai_strerror(rc));
    *fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd >= 0)
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    rc = *fd < 0 ? -1 : bind(*fd, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return rc ? wf_err(WEFT_EIO, "cannot be bound: %s", wf_errno_text(errno)) : WEFT_OK;
}

static weft_status bind_unix(const struct wf_address *a, int *fd)
{
    struct sockaddr_un un;

    unix_address(a->host, &un);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (const struct sockaddr *)&un, sizeof un))
        return wf_err(WEFT_EIO, "cannot be bound: %s", wf_errno_text(errno));
    return WEFT_OK;
}

/* The port that was chosen for port 0. */
static void find_port(int fd, struct wf_address *a)
{
    struct sockaddr_storage s;
    socklen_t n = sizeof s;

    if (getsockname(fd, (struct sockaddr *)&s, &n))
        return;
    if (s.ss_family == AF_INET)
        a->port = ntohs(((const struct sockaddr_in *)(const void *)&s)->sin_port);
    else if (s.ss_family == AF_INET6)
        a->port = ntohs(((const struct sockaddr_in6 *)(const void *)&s)->sin6_port);
}

weft_status wf_socket_listen(struct wf_net *net, const struct wf_address *a, char *bound,
                             size_t size, struct wf_listener **out)
{
    struct wf_listener *s = wf_alloc(net->ctx, sizeof *s);
    struct wf_address at = *a;
    weft_status st;

    if (!s)
        return wf_err_nomem(net->ctx, sizeof *s, "a listener");
    s->net = net;
    s->kind = a->kind;
    s->fd = -1;
    st = a->kind == WF_ADDRESS_UDS ? bind_unix(a, &s->fd) : bind_tcp(a, &s->fd);
    if (!st && a->kind == WF_ADDRESS_UDS)
        wf_snprintf(s->path, sizeof s->path, "%s", a->host);
    if (!st && listen(s->fd, 512))
        st = wf_err(WEFT_EIO, "cannot listen: %s", wf_errno_text(errno));
    if (st) {
        if (s->fd >= 0)
            close(s->fd);
        if (*s->path)
            unlink(s->path);
        wf_free(net->ctx, s);
        return st;
    }
    find_port(s->fd, &at);
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
    wf_address_format(&a, l->address, sizeof l->address);
}

void wf_socket_accept(struct wf_listener *s)
{
    for (;;) {
        struct sockaddr_storage from;
        socklen_t n = sizeof from;
        int fd = accept4(s->fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct wf_link *l;

        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0)
            return;
        if (wf_link_new(s->net, &l)) {
            close(fd);
            return;
        }
        name_accepted(l, s, &from, n);
        l->next = s->net->links;
        s->net->links = l;
        if (adopt(l, fd))
            wf_link_down(l, WEFT_ENOMEM, weft_error());
        else
            wf_link_start(l);
    }
}

void wf_socket_watch_listener(struct wf_listener *s)
{
    s->poll = new_poll(s->net, s->fd, s);
    if (s->poll)
        uv_poll_start(s->poll, UV_READABLE, on_listener);
}

void wf_socket_close_listener(struct wf_listener *s)
{
    if (s->poll)
        uv_close((uv_handle_t *)s->poll, free_handle);
    close(s->fd);
    if (*s->path)
        unlink(s->path);
    wf_free(s->net->ctx, s);
}
