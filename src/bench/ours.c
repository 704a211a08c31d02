/* ours.c - the same bytes over weft's links. What comes is answered by the node's thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>

#include "bench/bench.h"

enum { STREAM = 1, REGION, TAKEN, PING, PONG }; /* kinds of messages */
#define TIMEOUT_NS 30000000000

/* ---- what happens ---------------------------------------------------------------------------- */

static void send_small(struct wf_bench_ours *o, struct wf_link *l, uint32_t kind, int64_t bytes)
{
    struct wf_part part = {o->memory, bytes};
    struct wf_msg m = {.kind = kind, .part = &part, .n_parts = bytes > 0};

    if (wf_link_send(l, &m, NULL, NULL))
        o->failed = WEFT_EPEER;
}

static void finish(struct wf_bench_ours *o)
{
    o->end_ns = wf_now(o->ctx);
    sem_post(&o->done);
}

static void on_up(void *arg, struct wf_link *l)
{
    struct wf_bench_ours *o = arg;

    if (o->n_links < WF_BENCH_PEERS)
        o->link[o->n_links] = l;
    o->n_links++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct wf_bench_ours *o = arg;

    (void)l;
    if (st && !o->failed) {
        wf_snprintf(o->why, sizeof o->why, "%s", why);
        o->failed = st;
    }
    sem_post(&o->done);
}

static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct wf_bench_ours *o = arg;

    (void)l;
    if (m->n_payload > o->room)
        return wf_err(WEFT_EPEER, "%lld bytes are too many", (long long)m->n_payload);
    o->part = (struct wf_part){o->memory, m->n_payload};
    *parts = &o->part;
    *n_parts = 1;
    return WEFT_OK;
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct wf_bench_ours *o = arg;

    o->n_seen++;
    switch (m->kind) {
    case STREAM: send_small(o, l, TAKEN, 0); break;
    case REGION:
        for (int i = 0; i < m->n_parts; i++)
            o->sum += wf_bench_sum(m->part[i].p, m->part[i].n);
        if (m->slot)
            wf_link_release(l, m->slot);
        send_small(o, l, TAKEN, 0);
        break;
    case PING: send_small(o, l, PONG, m->n_payload); break;
    case PONG:
        if (o->left-- > 0)
            send_small(o, l, PING, m->n_payload);
        /* fall through */
    case TAKEN:
        if (--o->coming == 0)
            finish(o);
        break;
    default: break;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status make_tls(struct wf_bench_ours *o, const struct wf_bench_pem *pem)
{
    return wf_tls_new(o->ctx, &(struct wf_credentials){pem->authority, pem->certificate, pem->key},
                      &o->tls);
}

weft_status wf_bench_ours_open(struct wf_bench_ours *o, weft_ctx *ctx,
                               const struct wf_bench_order *as, const struct wf_bench_pem *pem,
                               bool driver)
{
    struct wf_net_opts opts = {
        .self = {.role = "bench"},
        .calls = {o, NULL, on_up, on_down, on_place, on_received},
        .spin_us = 0, /* who spins attends: a node's thread that spins on after that would take
                       * the core from what is measured next */
        .no_checksums = as->no_checksums,
        .connections = as->connections,
    };
    weft_status st = WEFT_OK;

    memset(o, 0, sizeof *o);
    o->ctx = ctx;
    o->driver = driver;
    o->sockets = strcmp(as->transport, "tcp") == 0 || strcmp(as->transport, "tls") == 0;
    sem_init(&o->done, 0, 0);
    o->room = wf_max_i64(as->bytes, WF_BENCH_BLOCK);
    o->memory = wf_alloc_raw(ctx, (size_t)o->room);
    if (!o->memory)
        return wf_err_nomem(ctx, (size_t)o->room, "the bytes of a message");
    memset(o->memory, 0x5a, (size_t)o->room);
    if (strcmp(as->transport, "tls") == 0)
        st = make_tls(o, pem);
    opts.tls = o->tls;
    wf_snprintf(opts.self.name, sizeof opts.self.name, "%s", driver ? "driver" : "peer");
    return st ? st : wf_net_new(ctx, &opts, &o->net);
}

weft_status wf_bench_ours_listen(struct wf_bench_ours *o, const char *address, char *bound,
                                 size_t size)
{
    return wf_net_listen(o->net, address, bound, size);
}

weft_status wf_bench_ours_connect(struct wf_bench_ours *o, const char *address)
{
    struct wf_link *l;

    return wf_net_connect(o->net, address, TIMEOUT_NS, &l);
}

static bool all_up(void *arg)
{
    const struct wf_bench_ours *o = arg;

    return o->n_links >= o->left || o->failed;
}

static weft_status check(const struct wf_bench_ours *o)
{
    return o->failed ? wf_err(o->failed, "%s", *o->why ? o->why : "a message was refused")
                     : WEFT_OK;
}

static bool all_connected(const struct wf_bench_ours *o, int n_links)
{
    bool all = true;

    for (int i = 0; i < n_links && o->sockets; i++)
        all &= wf_link_connections(o->link[i]) >= wf_net_connections(o->net);
    return all;
}

weft_status wf_bench_ours_await(struct wf_bench_ours *o, int n_links)
{
    weft_status st;

    o->left = n_links;
    st = wf_net_wait(o->net, all_up, o, TIMEOUT_NS, "links to the other process");
    /* The other connections of the pairs come after the links are up; nothing tells when. */
    for (int i = 0; i < 10000 && !st && !o->failed && !all_connected(o, n_links); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return st ? st : check(o);
}

int wf_bench_ours_connections(const struct wf_bench_ours *o)
{
    return o->n_links > 0 && o->link[0] ? wf_link_connections(o->link[0]) : 1;
}

void wf_bench_ours_close(struct wf_bench_ours *o)
{
    if (!o->ctx)
        return;
    if (o->region)
        wf_region_drop(o->region);
    wf_net_free(o->net);
    wf_tls_free(o->tls);
    wf_free(o->ctx, o->memory);
    sem_destroy(&o->done);
    memset(o, 0, sizeof *o);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static weft_status wait_done(struct wf_bench_ours *o)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += TIMEOUT_NS / 1000000000;
    while (sem_timedwait(&o->done, &until))
        if (errno != EINTR)
            return wf_err(WEFT_ETIME, "the other process has not answered for %d s",
                          (int)(TIMEOUT_NS / 1000000000));
    return check(o);
}

weft_status wf_bench_ours_stream(struct wf_bench_ours *o, int64_t bytes, int times, double *out)
{
    struct wf_part part = {o->memory, bytes};
    int64_t start = wf_now(o->ctx);
    weft_status st = WEFT_OK;

    for (int i = 0; i < times && !st; i++) {
        o->coming = 1;
        st = wf_link_send(o->link[0],
                          &(struct wf_msg){.kind = STREAM, .part = &part, .n_parts = bytes > 0},
                          NULL, NULL);
        if (!st)
            st = wait_done(o);
    }
    *out = (double)(o->end_ns - start) * 1e-9;
    return st;
}

weft_status wf_bench_ours_ping(struct wf_bench_ours *o, int n_links, int64_t bytes, int window,
                               int64_t rounds, double *out)
{
    int64_t start = wf_now(o->ctx), first = wf_min_i64(rounds, (int64_t)n_links * window);
    weft_status st;

    o->coming = rounds;
    o->left = rounds - first;
    o->n_pings += rounds;
    for (int64_t i = 0; i < first; i++)
        send_small(o, o->link[i % n_links], PING, bytes);
    st = wait_done(o);
    *out = (double)(o->end_ns - start) * 1e-9;
    return st;
}

/* ---- over shared memory ---------------------------------------------------------------------- */

static bool all_came(void *arg)
{
    const struct wf_bench_ours *o = arg;

    return o->coming == 0 || o->failed;
}

/* As with the raw region, one thread of each process writes or reads, and polls for the other. */
weft_status wf_bench_ours_region(struct wf_bench_ours *o, int64_t bytes, int times, double *out)
{
    struct wf_part part;
    weft_status st = WEFT_OK;
    int64_t start;

    if (!o->region) {
        st = wf_region_new(o->link[0], bytes, false, &o->region);
        if (!st)
            st = wf_region_share(o->link[0], o->region);
        if (st)
            return st;
    }
    part = (struct wf_part){o->region->p, bytes};
    o->n_pings += times;
    wf_net_attend(o->net);
    start = wf_now(o->ctx);
    for (int i = 0; i < times && !st; i++) {
        wf_bench_fill(part.p, bytes, (uint64_t)i);
        o->coming = 1;
        st = wf_link_send(o->link[0], &(struct wf_msg){.kind = REGION, .part = &part, .n_parts = 1},
                          NULL, NULL);
        if (!st)
            st = wf_net_wait(o->net, all_came, o, TIMEOUT_NS, "the reader");
    }
    *out = (double)(wf_now(o->ctx) - start) * 1e-9;
    wf_net_leave(o->net);
    while (sem_trywait(&o->done) == 0)
        ;
    return st ? st : check(o);
}

weft_status wf_bench_ours_poll(struct wf_bench_ours *o, int64_t bytes, int64_t rounds, double *out)
{
    int64_t start;
    weft_status st;

    wf_net_attend(o->net);
    o->coming = rounds;
    o->left = rounds - 1;
    o->n_pings += rounds;
    start = wf_now(o->ctx);
    send_small(o, o->link[0], PING, bytes);
    st = wf_net_wait(o->net, all_came, o, TIMEOUT_NS, "round trips");
    wf_net_leave(o->net);
    *out = (double)(o->end_ns - start) * 1e-9;
    while (sem_trywait(&o->done) == 0)
        ;
    return st ? st : check(o);
}

/* One after the other: a thread sends 64 bytes, and waits for what comes back. */
weft_status wf_bench_ours_trips(struct wf_bench_ours *o, int64_t bytes, int64_t rounds, bool attend,
                                double *out)
{
    weft_status st = WEFT_OK;
    int64_t start;

    if (attend)
        wf_net_attend(o->net);
    o->n_pings += rounds;
    o->left = 0;
    start = wf_now(o->ctx);
    for (int64_t i = 0; i < rounds && !st; i++) {
        o->coming = 1;
        send_small(o, o->link[0], PING, bytes);
        st = wf_net_wait(o->net, all_came, o, TIMEOUT_NS, "a round trip");
    }
    *out = (double)(wf_now(o->ctx) - start) * 1e-9;
    if (attend)
        wf_net_leave(o->net);
    while (sem_trywait(&o->done) == 0)
        ;
    return st ? st : check(o);
}

static bool all_seen(void *arg)
{
    const struct wf_bench_ours *o = arg;

    return o->n_seen >= o->left || o->failed;
}

weft_status wf_bench_ours_attend(struct wf_bench_ours *o, int64_t n_seen)
{
    o->left = n_seen;
    return wf_net_wait(o->net, all_seen, o, TIMEOUT_NS, "round trips");
}
