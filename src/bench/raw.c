/* raw.c - bytes over plain sockets and plain OpenSSL: what weft is compared with. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/bench.h"

/* ---- the bench's own pair of sockets --------------------------------------------------------- */

weft_status wf_bench_put(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return wf_err(WEFT_EPEER, "the other process: %s", wf_errno_text(errno));
        at += (size_t)k;
    }
    return WEFT_OK;
}

weft_status wf_bench_get(int fd, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = recv(fd, (char *)p + at, n - at, 0);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return wf_err(WEFT_EPEER, "the other process: %s",
                          k ? wf_errno_text(errno) : "it has ended");
        at += (size_t)k;
    }
    return WEFT_OK;
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool is_unix(const struct wf_bench_order *as)
{
    return strcmp(as->transport, "uds") == 0;
}

/* A Unix socket without a file: nothing is left behind. */
static socklen_t unix_name(const struct wf_bench_order *as, struct sockaddr_un *un)
{
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    wf_snprintf(un->sun_path + 1, sizeof un->sun_path - 1, "%s", as->raw_name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(as->raw_name));
}

static void ip_name(const struct wf_bench_order *as, struct sockaddr_in *in)
{
    *in = (struct sockaddr_in){.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)as->raw_port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static weft_status err_raw(const char *what)
{
    return wf_err(WEFT_EIO, "raw socket: %s: %s", what, wf_errno_text(errno));
}

weft_status wf_bench_raw_listen(struct wf_bench_order *as, int *fd)
{
    struct sockaddr_un un;
    struct sockaddr_in in;
    socklen_t n = sizeof in;
    int s = socket(is_unix(as) ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc;

    if (s < 0)
        return err_raw("socket");
    if (is_unix(as)) {
        wf_snprintf(as->raw_name, sizeof as->raw_name, "weft-bench-%d", (int)getpid());
        n = unix_name(as, &un);
        rc = bind(s, (const struct sockaddr *)&un, n);
    } else {
        as->raw_port = 0;
        ip_name(as, &in);
        rc = bind(s, (const struct sockaddr *)&in, n) || getsockname(s, (struct sockaddr *)&in, &n);
        as->raw_port = ntohs(in.sin_port);
    }
    if (rc || listen(s, 1)) {
        weft_status st = err_raw("listening");

        close(s);
        return st;
    }
    *fd = s;
    return WEFT_OK;
}

static SSL_CTX *new_tls(const struct wf_bench_pem *pem)
{
    SSL_CTX *c = SSL_CTX_new(TLS_method());
    BIO *cert = BIO_new_mem_buf(pem->certificate, -1), *key = BIO_new_mem_buf(pem->key, -1);
    X509 *x = cert ? PEM_read_bio_X509(cert, NULL, NULL, NULL) : NULL;
    EVP_PKEY *k = key ? PEM_read_bio_PrivateKey(key, NULL, NULL, NULL) : NULL;
    bool ok = c && x && k && SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) &&
              SSL_CTX_use_certificate(c, x) == 1 && SSL_CTX_use_PrivateKey(c, k) == 1;

    X509_free(x);
    EVP_PKEY_free(k);
    BIO_free(cert);
    BIO_free(key);
    if (ok) {
        wf_tls_tune(c); /* the same options as weft's */
        return c;
    }
    SSL_CTX_free(c);
    return NULL;
}

/* A program that serves more than one socket sleeps at all of them, and then reads the one that is
 * ready: so do round trips here. */
static weft_status open_set(struct wf_bench_raw *r)
{
    struct epoll_event e = {.events = EPOLLIN};

    r->set = epoll_create1(EPOLL_CLOEXEC);
    return r->set < 0 || epoll_ctl(r->set, EPOLL_CTL_ADD, r->fd, &e) ? err_raw("epoll") : WEFT_OK;
}

static weft_status start(struct wf_bench_raw *r, const struct wf_bench_order *as, bool accepts)
{
    int on = 1;

    if (!is_unix(as))
        setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    r->spins = as->spins;
    if (strcmp(as->transport, "tls") != 0)
        return as->trips && !r->spins ? open_set(r) : WEFT_OK;
    r->ssl_ctx = new_tls(&as->pem);
    r->ssl = r->ssl_ctx ? SSL_new(r->ssl_ctx) : NULL;
    if (!r->ssl || !SSL_set_fd(r->ssl, r->fd) ||
        (accepts ? SSL_accept(r->ssl) : SSL_connect(r->ssl)) != 1)
        return wf_err(WEFT_EIO, "raw OpenSSL: the handshake has failed");
    return WEFT_OK;
}

weft_status wf_bench_raw_accept(struct wf_bench_raw *r, int listener,
                                const struct wf_bench_order *as)
{
    r->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    return r->fd < 0 ? err_raw("accepting") : start(r, as, true);
}

weft_status wf_bench_raw_connect(struct wf_bench_raw *r, const struct wf_bench_order *as)
{
    struct sockaddr_un un;
    struct sockaddr_in in;
    int rc;

    r->fd = socket(is_unix(as) ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->fd < 0)
        return err_raw("socket");
    if (is_unix(as)) {
        socklen_t n = unix_name(as, &un);

        rc = connect(r->fd, (const struct sockaddr *)&un, n);
    } else {
        ip_name(as, &in);
        rc = connect(r->fd, (const struct sockaddr *)&in, sizeof in);
    }
    return rc ? err_raw("connecting") : start(r, as, false);
}

void wf_bench_raw_close(struct wf_bench_raw *r)
{
    SSL_free(r->ssl);
    SSL_CTX_free(r->ssl_ctx);
    if (r->fd >= 0)
        close(r->fd);
    if (r->set > 0)
        close(r->set);
    *r = (struct wf_bench_raw){.fd = -1};
}

/* ---- bytes ----------------------------------------------------------------------------------- */

weft_status wf_bench_raw_read(struct wf_bench_raw *r, void *p, int64_t n)
{
    for (int64_t at = 0; at < n;) {
        char *to = (char *)p + at;
        struct epoll_event e;
        int64_t k;

        if (r->set > 0 && epoll_wait(r->set, &e, 1, -1) < 0 && errno != EINTR)
            return err_raw("epoll");
        if (r->ssl)
            k = SSL_read(r->ssl, to, (int)wf_min_i64(n - at, 1 << 30));
        else
            k = recv(r->fd, to, (size_t)(n - at), r->spins ? MSG_DONTWAIT : 0);
        if (k < 0 && !r->ssl && (errno == EINTR || errno == EAGAIN))
            continue;
        if (k <= 0)
            return wf_err(WEFT_EPEER, "raw socket: reading has failed");
        at += k;
    }
    return WEFT_OK;
}

weft_status wf_bench_raw_write(struct wf_bench_raw *r, const void *p, int64_t n)
{
    for (int64_t at = 0; at < n;) {
        const char *from = (const char *)p + at;
        int64_t k;

        if (r->ssl)
            k = SSL_write(r->ssl, from, (int)wf_min_i64(n - at, 1 << 30));
        else
            k = send(r->fd, from, (size_t)(n - at), MSG_NOSIGNAL);
        if (k < 0 && !r->ssl && errno == EINTR)
            continue;
        if (k <= 0)
            return wf_err(WEFT_EPEER, "raw socket: writing has failed");
        at += k;
    }
    return WEFT_OK;
}
