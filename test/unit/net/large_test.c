/* large_test.c - many peers of one node, and one message of more than 4 GB, over every transport.
 * ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/netpeer.h"

#define SECOND 1000000000ll
enum { PEERS = 64, BLOCK = 4096, ROUNDS = 8, WINDOW = 257 * 4096, MARK = 64 << 10 };

/* ---- 64 peers -------------------------------------------------------------------------------- */

/* What a link of the client has: what it sent, and where the answer goes. */
struct exchange {
    struct wf_link *link;
    uint8_t out[BLOCK], in[BLOCK];
    struct wf_part part;
    int n_done, n_wrong;
};

struct many {
    struct exchange of[PEERS];
    struct wf_net *client, *server;
    uint8_t echo[PEERS][BLOCK]; /* of the server, by the number in the first byte */
    struct wf_part echo_part[PEERS];
    _Atomic int n_up, n_down, n_done;
};

static void count_up(void *arg, struct wf_link *l)
{
    struct many *m = arg;

    (void)l;
    m->n_up++;
}

static void count_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct many *m = arg;

    (void)l;
    (void)st;
    (void)why;
    m->n_down++;
}

/* The kind of a message is the number of its link. */
static weft_status place_request(void *arg, struct wf_link *l, const struct wf_msg *msg,
                                 const struct wf_part **parts, int *n_parts)
{
    struct many *m = arg;

    (void)l;
    m->echo_part[msg->kind] = (struct wf_part){m->echo[msg->kind], msg->n_payload};
    *parts = &m->echo_part[msg->kind];
    *n_parts = 1;
    return WEFT_OK;
}

static void echo(void *arg, struct wf_link *l, const struct wf_msg *msg)
{
    struct many *m = arg;
    struct wf_part part = {m->echo[msg->kind], BLOCK};

    if (wf_link_reply(l, msg->id, WEFT_OK,
                      &(struct wf_msg){.kind = msg->kind, .part = &part, .n_parts = 1}, NULL, NULL))
        abort();
}

static weft_status place_answer(void *arg, struct wf_link *l, const struct wf_msg *msg,
                                const struct wf_part **parts, int *n_parts)
{
    struct many *m = arg;

    (void)l;
    m->of[msg->kind].part = (struct wf_part){m->of[msg->kind].in, msg->n_payload};
    *parts = &m->of[msg->kind].part;
    *n_parts = 1;
    return WEFT_OK;
}

static void no_message(void *arg, struct wf_link *l, const struct wf_msg *msg)
{
    (void)arg;
    (void)l;
    (void)msg;
    abort();
}

static void exchange(struct many *m, int i);

static void on_answer(void *arg, weft_status st, const struct wf_msg *msg)
{
    struct many *m = arg;
    struct exchange *x = &m->of[st ? 0 : msg->kind];

    if (st)
        abort();
    x->n_wrong += memcmp(x->in, x->out, BLOCK) != 0;
    if (++x->n_done < ROUNDS)
        exchange(m, (int)msg->kind);
    else
        m->n_done++;
}

static void exchange(struct many *m, int i)
{
    struct exchange *x = &m->of[i];
    struct wf_part part = {x->out, BLOCK};

    for (int k = 0; k < BLOCK; k++)
        x->out[k] = (uint8_t)(k * 7 + i * 13 + x->n_done);
    if (wf_link_call(x->link, &(struct wf_msg){.kind = (uint32_t)i, .part = &part, .n_parts = 1},
                     60 * SECOND, NULL, on_answer, m, NULL))
        abort();
}

static bool all_up(void *arg)
{
    const struct many *m = arg;

    return m->n_up == 2 * PEERS;
}

static bool all_done(void *arg)
{
    const struct many *m = arg;

    return m->n_done == PEERS;
}

static void sixty_four_peers_exchange_blocks(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct many *m = calloc(1, sizeof *m);
        bool tls = strncmp(netpeer_members[t], "tls", 3) == 0;
        struct wf_tls *server_tls = NULL, *client_tls = NULL;
        struct wf_net_opts s = {.self = {.name = "server/0", .role = "test"},
                                .silence_ns = 20 * SECOND},
                           c = {.self = {.name = "worker/1", .role = "test"},
                                .silence_ns = 20 * SECOND};
        char address[128], bound[512];
        weft_ctx *ctx;

        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
        if (tls) {
            netpeer_certify(ctx, "server/0", &server_tls);
            netpeer_certify(ctx, "worker/1", &client_tls);
        }
        s.calls = (struct wf_net_calls){
            .arg = m, .up = count_up, .down = count_down, .place = place_request, .received = echo};
        c.calls = (struct wf_net_calls){.arg = m,
                                        .up = count_up,
                                        .down = count_down,
                                        .place = place_answer,
                                        .received = no_message};
        s.tls = server_tls;
        c.tls = client_tls;
        s.connections = c.connections = strchr(netpeer_members[t], '-') ? 3 : 1;
        assert_int_equal(wf_net_new(ctx, &s, &m->server), 0);
        assert_int_equal(wf_net_new(ctx, &c, &m->client), 0);
        assert_int_equal(wf_net_listen(m->server, netpeer_address(netpeer_members[t], address),
                                       bound, sizeof bound),
                         0);
        for (int i = 0; i < PEERS; i++)
            assert_int_equal(wf_net_connect(m->client, bound, 60 * SECOND, &m->of[i].link), 0);
        assert_int_equal(wf_net_wait(m->client, all_up, m, 60 * SECOND, "64 links"), 0);
        for (int i = 0; i < PEERS; i++)
            exchange(m, i);
        assert_int_equal(wf_net_wait(m->client, all_done, m, 60 * SECOND, "all blocks"), 0);
        assert_int_equal(m->n_down, 0);
        for (int i = 0; i < PEERS; i++)
            assert_int_equal(m->of[i].n_wrong, 0);
        wf_net_free(m->client);
        wf_net_free(m->server);
        wf_tls_free(client_tls);
        wf_tls_free(server_tls);
        weft_ctx_free(ctx);
        free(m);
    }
}

/* ---- 4 GB ------------------------------------------------------------------------------------ */

#define LARGE (((int64_t)1 << 32) + ((int64_t)1 << 26) + 3) /* past the limits of 32 bits */
#define SPACE (LARGE + WINDOW)
#define MARK_EVERY ((int64_t)1 << 28)

/* LARGE bytes of address space, and little memory: the same window again and again, whose size no
 * power of two divides, and memory of its own at each multiple of MARK_EVERY (so at 2^31 and 2^32),
 * 32 KB to both sides of it. Bytes that go astray are seen there, or in the window. */
struct view {
    uint8_t *p, *window;
};

struct large {
    uint8_t *to;
    struct wf_part part;
    _Atomic int n_up, n_received, n_sent, n_down;
    int64_t n_payload;
    char why[256];
};

static void large_up(void *arg, struct wf_link *l)
{
    struct large *g = arg;

    (void)l;
    g->n_up++;
}

static void large_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct large *g = arg;

    (void)l;
    (void)st;
    snprintf(g->why, sizeof g->why, "%s", why);
    g->n_down++;
}

static weft_status large_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                               const struct wf_part **parts, int *n_parts)
{
    struct large *g = arg;

    (void)l;
    if (m->n_payload != LARGE)
        return wf_err(WEFT_EPEER, "%lld bytes", (long long)m->n_payload);
    g->part = (struct wf_part){g->to, m->n_payload};
    *parts = &g->part;
    *n_parts = 1;
    return WEFT_OK;
}

static void large_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct large *g = arg;

    (void)l;
    g->n_payload = m->n_payload;
    g->n_received++;
}

static void large_sent(void *arg, weft_status st)
{
    struct large *g = arg;

    g->n_sent += st == WEFT_OK;
}

static bool large_is_up(void *arg)
{
    const struct large *g = arg;

    return g->n_up == 2;
}

static bool large_is_over(void *arg)
{
    const struct large *g = arg;

    return (g->n_received && g->n_sent) || g->n_down;
}

static void *map_at(void *at, int64_t n, int fd)
{
    void *p = mmap(at, (size_t)n, PROT_READ | PROT_WRITE,
                   (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED) |
                       (at ? MAP_FIXED : 0),
                   fd, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

static uint8_t *mark_of(const struct view *v, int64_t i)
{
    return v->p + i * MARK_EVERY - (i ? MARK / 2 : 0);
}

static void open_view(struct view *v)
{
    int fd = memfd_create("window", MFD_CLOEXEC);

    assert_true(fd >= 0 && ftruncate(fd, WINDOW) == 0);
    v->p = map_at(NULL, SPACE, -1);
    for (int64_t at = 0; at + WINDOW <= SPACE; at += WINDOW)
        map_at(v->p + at, WINDOW, fd);
    for (int64_t i = 0; i * MARK_EVERY < LARGE; i++)
        map_at(mark_of(v, i), MARK, -1);
    v->window = map_at(NULL, WINDOW, fd);
    close(fd);
}

static void close_view(struct view *v)
{
    munmap(v->window, WINDOW);
    munmap(v->p, (size_t)SPACE);
}

static void fill_view(struct view *v)
{
    for (int64_t i = 0; i < WINDOW; i++)
        v->window[i] = (uint8_t)((uint64_t)i * 0x9e3779b97f4a7c15ull >> 56);
    for (int64_t i = 0; i * MARK_EVERY < LARGE; i++)
        for (int64_t k = 0; k < MARK; k++)
            mark_of(v, i)[k] =
                (uint8_t)((uint64_t)(i * MARK + k + 1) * 0xc2b2ae3d27d4eb4full >> 56);
}

static void clear_view(struct view *v)
{
    memset(v->window, 0, WINDOW);
    for (int64_t i = 0; i * MARK_EVERY < LARGE; i++)
        memset(mark_of(v, i), 0, MARK);
}

static void compare_views(const char *transport, const struct view *from, const struct view *to)
{
    if (memcmp(from->window, to->window, WINDOW) != 0)
        fail_msg("%s: bytes of the window are wrong", transport);
    for (int64_t i = 0; i * MARK_EVERY < LARGE; i++)
        if (memcmp(mark_of(from, i), mark_of(to, i), MARK) != 0)
            fail_msg("%s: bytes around %lld are wrong", transport, (long long)(i * MARK_EVERY));
}

/* One of its parts alone has more than 4 GB. */
static void send_large(const char *transport, const struct view *from, const struct view *to)
{
    struct large g = {.to = to->p};
    struct wf_part part[3] = {{from->p, 5},
                              {from->p + 5, ((int64_t)1 << 32) + 1},
                              {from->p + (((int64_t)1 << 32) + 6), 0}};
    struct wf_tls *tls = NULL;
    struct wf_net_opts opts = {
        .self = {.name = "task/0", .role = "test"},
        .calls = {&g, NULL, large_up, large_down, large_place, large_received},
        .silence_ns = 60 * SECOND,
        .stall_ns = 60 * SECOND};
    struct wf_net *net;
    struct wf_link *l;
    char address[128], bound[512];
    weft_ctx *ctx;

    part[2].n = LARGE - part[0].n - part[1].n;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    if (strncmp(transport, "tls", 3) == 0)
        netpeer_certify(ctx, "task/0", &tls);
    opts.tls = tls;
    opts.connections = strchr(transport, '-') ? 3 : 1;
    assert_int_equal(wf_net_new(ctx, &opts, &net), 0);
    assert_int_equal(wf_net_listen(net, netpeer_address(transport, address), bound, sizeof bound),
                     0);
    assert_int_equal(wf_net_connect(net, bound, 20 * SECOND, &l), 0);
    assert_int_equal(wf_net_wait(net, large_is_up, &g, 20 * SECOND, "a link"), 0);
    for (int i = 0; i < 20000 && wf_link_connections(l) < opts.connections; i++)
        usleep(1000);
    assert_int_equal(wf_link_connections(l), opts.connections);
    assert_int_equal(wf_link_send(l, &(struct wf_msg){.part = part, .n_parts = 3}, large_sent, &g),
                     0);
    assert_int_equal(wf_net_wait(net, large_is_over, &g, 300 * SECOND, "4 GB"), 0);
    if (g.n_down || g.n_payload != LARGE)
        fail_msg("%s: %lld bytes; %s", transport, (long long)g.n_payload, g.why);
    compare_views(transport, from, to);
    wf_net_free(net);
    wf_tls_free(tls);
    weft_ctx_free(ctx);
}

static void one_message_of_more_than_4_gb(void **state)
{
    struct view from, to;

    (void)state;
    open_view(&from);
    open_view(&to);
    fill_view(&from);
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        clear_view(&to);
        send_large(netpeer_members[t], &from, &to);
    }
    close_view(&to);
    close_view(&from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixty_four_peers_exchange_blocks),
        cmocka_unit_test(one_message_of_more_than_4_gb),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
