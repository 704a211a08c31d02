/* rawpeer.c - a peer without a node. */
#define _GNU_SOURCE
#include "support/rawpeer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/netpeer.h"

enum { CELLS = 1024 };

static void die(const char *what)
{
    fprintf(stderr, "a raw peer: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int connect_unix(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        die(path);
    return fd;
}

static int connect_ip(const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char host[128];
    const char *colon = strrchr(address, ':');
    int fd, skip = *address == '[';

    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - 2 * skip, address + skip);
    if (getaddrinfo(host, colon + 1, &hints, &found))
        die(address);
    fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen))
        die(address);
    freeaddrinfo(found);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* no test waits for an ACK */
    return fd;
}

static void start_tls(struct rawpeer *p, weft_ctx *ctx, const char *name)
{
    struct wf_pem pem;
    BIO *cert, *key;
    X509 *x;
    EVP_PKEY *k;

    netpeer_issue(ctx, name, &pem);
    cert = BIO_new_mem_buf(pem.certificate, -1);
    key = BIO_new_mem_buf(pem.key, -1);
    x = PEM_read_bio_X509(cert, NULL, NULL, NULL);
    k = PEM_read_bio_PrivateKey(key, NULL, NULL, NULL);
    p->ssl_ctx = SSL_CTX_new(TLS_client_method());
    if (!SSL_CTX_use_certificate(p->ssl_ctx, x) || !SSL_CTX_use_PrivateKey(p->ssl_ctx, k))
        die("a certificate");
    p->ssl = SSL_new(p->ssl_ctx);
    SSL_set_fd(p->ssl, p->fd);
    if (SSL_connect(p->ssl) != 1)
        die("the handshake");
    X509_free(x);
    EVP_PKEY_free(k);
    BIO_free(cert);
    BIO_free(key);
    wf_pem_free(ctx, &pem);
}

static void send_memory(int to, const uint8_t setup[16], int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c = {.bytes = {0}};
    struct iovec v = {(void *)(uintptr_t)setup, 16};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);

    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(h), &fd, sizeof fd);
    if (sendmsg(to, &m, MSG_NOSIGNAL) != 16)
        die("sharing memory");
}

static void start_shm(struct rawpeer *p)
{
    uint8_t setup[16] = {'w', 'e', 'f', 'r', 1, 0, 0, 0, CELLS & 255, CELLS >> 8};
    uint32_t crc = wf_crc32c(0, setup, 12);
    int fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    for (int i = 0; i < 4; i++)
        setup[12 + i] = (uint8_t)(crc >> 8 * i);
    p->bytes = wf_ring_bytes(CELLS);
    if (fd < 0 || ftruncate(fd, p->bytes) ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        die("memory");
    p->memory = mmap(NULL, (size_t)p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p->memory == MAP_FAILED)
        die("mapping memory");
    wf_ring_open(p->memory, CELLS, 0, &p->in, &p->out);
    send_memory(p->fd, setup, fd);
    close(fd);
}

void rawpeer_open(struct rawpeer *p, weft_ctx *ctx, const char *address, const char *name)
{
    *p = (struct rawpeer){.fd = -1};
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets that may be closed */
    if (strncmp(address, "uds:", 4) == 0 || strncmp(address, "shm:", 4) == 0)
        p->fd = connect_unix(address + 4);
    else
        p->fd = connect_ip(address + 4);
    if (strncmp(address, "tls:", 4) == 0)
        start_tls(p, ctx, name);
    else if (strncmp(address, "shm:", 4) == 0)
        start_shm(p);
}

void rawpeer_close(struct rawpeer *p)
{
    SSL_free(p->ssl);
    SSL_CTX_free(p->ssl_ctx);
    if (p->fd >= 0)
        close(p->fd);
    if (p->memory)
        munmap(p->memory, (size_t)p->bytes);
    *p = (struct rawpeer){.fd = -1};
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int64_t write_some(struct rawpeer *p, const char *from, int64_t n)
{
    struct iovec v = {(void *)(uintptr_t)from, (size_t)n};
    bool wake;
    int64_t k;

    if (p->ssl)
        return SSL_write(p->ssl, from, (int)n);
    if (!p->memory)
        return send(p->fd, from, (size_t)n, MSG_NOSIGNAL);
    k = wf_ring_write(&p->out, &v, 1, &wake);
    if (k > 0 && send(p->fd, "w", 1, MSG_NOSIGNAL) != 1)
        return -1;
    if (k == -EAGAIN)
        usleep(1000);
    return k == -EAGAIN ? 0 : k;
}

bool rawpeer_send(struct rawpeer *p, const void *bytes, int64_t n)
{
    for (int64_t at = 0, tries = 0; at < n;) {
        int64_t k = write_some(p, (const char *)bytes + at, n - at);

        if (k < 0 || (k == 0 && ++tries > 10000))
            return false;
        at += k;
    }
    return true;
}

bool rawpeer_receive(struct rawpeer *p, void *bytes, int64_t n)
{
    for (int64_t at = 0; at < n;) {
        int64_t k = p->ssl ? SSL_read(p->ssl, (char *)bytes + at, (int)(n - at))
                           : recv(p->fd, (char *)bytes + at, (size_t)(n - at), 0);

        if (k <= 0)
            return false;
        at += k;
    }
    return true;
}

void rawpeer_await_end(struct rawpeer *p)
{
    char bytes[4096];

    while (recv(p->fd, bytes, sizeof bytes, 0) > 0)
        ;
}

/* ---- frames ---------------------------------------------------------------------------------- */

int64_t rawpeer_frame(uint8_t *out, const struct wf_frame *f, const void *head, const void *payload)
{
    int64_t n = WF_FRAME_HEADER, k = f->flags & WF_FRAME_STRIPED ? 0 : f->n_payload;
    uint32_t crc = k ? wf_crc32c(0, payload, k) : 0;

    wf_frame_encode(f, head, out);
    if (f->n_head)
        memcpy(out + n, head, (size_t)f->n_head);
    n += f->n_head;
    if (k)
        memcpy(out + n, payload, (size_t)k);
    n += k;
    for (int i = 0; i < WF_FRAME_TAIL && f->flags & WF_FRAME_SUMMED; i++)
        out[n++] = (uint8_t)(crc >> 8 * i);
    return n;
}

int64_t rawpeer_hello(uint8_t *out, const char *name, int connections)
{
    uint8_t head[100] = {RAWPEER_INCARNATION, 0, 0, 0, 0, 0, 0, 0, 4, 't', 'e', 's', 't'};
    struct wf_frame f = {.type = WF_FRAME_HELLO,
                         .kind = (uint32_t)connections,
                         .n_head = 13 + (int32_t)strlen(name)};

    memcpy(head + 13, name, strlen(name));
    return rawpeer_frame(out, &f, head, NULL);
}

bool rawpeer_take(struct rawpeer *p, struct wf_frame *f, uint8_t *head)
{
    uint8_t header[WF_FRAME_HEADER];

    return rawpeer_receive(p, header, sizeof header) && !wf_frame_decode(header, 0, f) &&
           f->n_head <= 256 && rawpeer_receive(p, head, f->n_head);
}
