/* proxy.c - a process between two ends of TCP connections, for tests. */
#define _GNU_SOURCE
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 1 << 16, MAX_BLOCKS = 64 };

/* Bytes on their way in one direction, each block with the time when it may leave. */
struct way {
    struct {
        uint8_t bytes[BLOCK];
        int64_t n, at, due_ns;
    } block[MAX_BLOCKS];
    int first, n_blocks;
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

struct proxy *proxy_new(void)
{
    struct proxy *p =
        mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* The block that was read last never was. */
static void lose(struct proxy *p, struct way *w)
{
    w->n_blocks--;
    p->lose_after = 0;
}

/* Whether the connection lasts. */
static bool take(const struct proxy *p, struct way *w, int from, int64_t *n)
{
    int k = (w->first + w->n_blocks) % MAX_BLOCKS;

    *n = 0;
    if (w->n_blocks == MAX_BLOCKS)
        return true;
    *n = recv(from, w->block[k].bytes, BLOCK, MSG_DONTWAIT);
    if (*n < 0 && (errno == EAGAIN || errno == EINTR)) {
        *n = 0;
        return true;
    }
    if (*n <= 0)
        return false;
    w->block[k].n = *n;
    w->block[k].at = 0;
    w->block[k].due_ns = now_ns() + p->delay_ms * 1000000ll;
    w->n_blocks++;
    return true;
}

static bool pass(struct way *w, int to)
{
    while (w->n_blocks && w->block[w->first].due_ns <= now_ns()) {
        int64_t n = send(to, w->block[w->first].bytes + w->block[w->first].at,
                         (size_t)(w->block[w->first].n - w->block[w->first].at),
                         MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        w->block[w->first].at += n;
        if (w->block[w->first].at < w->block[w->first].n)
            return true;
        w->first = (w->first + 1) % MAX_BLOCKS;
        w->n_blocks--;
    }
    return true;
}

static void reset(int fd)
{
    struct linger now = {.l_onoff = 1};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

static void serve(struct proxy *p, int client, int server)
{
    struct way *there = calloc(1, sizeof *there), *back = calloc(1, sizeof *back);
    bool lasts = there && back;
    int64_t total = 0, n;

    while (lasts) {
        struct pollfd fds[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};

        if (p->partitioned || there->n_blocks || back->n_blocks)
            usleep(500); /* blocks wait for their time, or nothing is read */
        else
            poll(fds, 2, 10);
        if (p->partitioned)
            continue;
        lasts = take(p, there, client, &n);
        if (n > 0 && p->lose_after && total >= p->lose_after)
            lose(p, there);
        total += n;
        p->n_forwarded += n;
        if (p->cut_after && total >= p->cut_after)
            break;
        lasts = lasts && take(p, back, server, &n) && pass(there, server) && pass(back, client);
    }
    reset(client);
    reset(server);
    free(there);
    free(back);
}

void proxy_run(struct proxy *p, const char *host, int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t n = sizeof in;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (s < 0 || inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
        bind(s, (struct sockaddr *)&in, n) || listen(s, 8) ||
        getsockname(s, (struct sockaddr *)&in, &n)) {
        perror("proxy");
        _exit(1);
    }
    p->port = ntohs(in.sin_port);
    for (;;) {
        int client = accept(s, NULL, NULL), server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (client < 0 || server < 0)
            _exit(1);
        p->n_accepted++;
        if (connect(server, (struct sockaddr *)&to, sizeof to)) {
            reset(client);
            close(server);
            continue;
        }
        serve(p, client, server);
    }
}
