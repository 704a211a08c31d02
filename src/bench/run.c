/* run.c - the process that measures: weft and the raw thing in turns, medians
 * of blocks. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"
#include "weft/sys/net.h"

enum { MAX_BLOCKS = 1000, MIN_ROUNDS = 200, STREAMS = 2, LINE_ROUNDS = 20000 };
#define BLOCK_S 0.05 /* of round trips */
#define IDLE_S 2

/* ---- what is measured ------------------------------------------------------------------------ */

enum kind { ONE_WAY, ROUND_TRIP, PEERS, IDLE, CACHE_LINE };
static const char *const names[] = {"one way", "round trip", "64 peers", "idle", "cache line"};

static const struct measure {
    const char *transport, *mode;
    enum kind kind;
    bool no_checksums, spins;
    double target;
    bool at_most;
} measures[] = {
    /* the target of a round trip over shm comes from the cache line */
    {"shm", "every byte touched", ONE_WAY, .spins = true, .target = 0.9},
    {"shm", "spinning", ROUND_TRIP, .spins = true, .at_most = true},
    {"shm", "sleeping", ROUND_TRIP, .at_most = true},
    {"shm", "", PEERS, .target = 0.8},
    {"shm", "64 peers", IDLE, .target = 1, .at_most = true},
    {"tcp", "no checksums", ONE_WAY, .no_checksums = true, .target = 0.95},
    {"tcp", "checksums", ONE_WAY, .target = 0.85},
    {"uds", "", ONE_WAY, .target = 0},
    {"tls", "", ONE_WAY, .target = 0.95},
    {"tcp", "spinning", ROUND_TRIP, .spins = true, .target = 1.2, .at_most = true},
    {"tcp", "sleeping", ROUND_TRIP, .target = 1.2, .at_most = true},
    {"uds", "spinning", ROUND_TRIP, .spins = true, .at_most = true},
    {"uds", "sleeping", ROUND_TRIP, .at_most = true},
    {"tls", "sleeping", ROUND_TRIP, .at_most = true},
    {"tcp", "", PEERS, .target = 0.8},
    {"uds", "", PEERS, .target = 0.8},
    {"tls", "", PEERS, .target = 0.8},
    {"tcp", "64 peers", IDLE, .target = 1, .at_most = true},
    {"uds", "64 peers", IDLE, .target = 1, .at_most = true},
    {"tls", "64 peers", IDLE, .target = 1, .at_most = true},
};

struct driver {
    weft_ctx *ctx;
    const weft_net_bench_opts *opts;
    int64_t bytes;
    int blocks;
    int fd[WF_BENCH_PEERS], n_peers; /* to the peers: processes that were started */
    int n_open;                      /* peers that have links now */
    struct wf_bench_order open;
    struct wf_bench_pem own; /* the peer's is in `open` */
    struct wf_bench_ours ours;
    struct wf_bench_raw raw;
    struct wf_bench_mapped mapped;
    int n_sockets;   /* for names */
    cpu_set_t cores; /* that this process may use, before it chose some */
    bool has_cores;
};

/* ---- connections ----------------------------------------------------------------------------- */

/* A new process inherits the cores of this one, and chooses the other half of
 * them: so it must see them all. */
static weft_status start_on_all_cores(struct driver *d, int fd)
{
    cpu_set_t own;
    bool moved = d->has_cores && sched_getaffinity(0, sizeof own, &own) == 0 &&
                 sched_setaffinity(0, sizeof d->cores, &d->cores) == 0;
    weft_status st = d->opts->start(d->opts->arg, fd);

    if (moved)
        sched_setaffinity(0, sizeof own, &own);
    return st;
}

static weft_status start_peer(struct driver *d)
{
    int pair[2];
    weft_status st;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
        return wf_err(WEFT_EIO, "a pair of sockets cannot be made: %s", wf_errno_text(errno));
    st = start_on_all_cores(d, pair[1]);
    close(pair[1]);
    if (st) {
        close(pair[0]);
        return wf_err(st, "process %d cannot be started", d->n_peers + 1);
    }
    d->fd[d->n_peers++] = pair[0];
    return WEFT_OK;
}

static weft_status answer_of(struct driver *d, int i)
{
    struct wf_bench_answer a;
    weft_status st = wf_bench_get(d->fd[i], &a, sizeof a);

    return st ? st : a.st ? wf_err(a.st, "the other process: %.200s", a.text) : WEFT_OK;
}

/* Of the first peer, which is the only one but with "64 peers". */
static weft_status get_answer(struct driver *d)
{
    return answer_of(d, 0);
}

static weft_status order(struct driver *d, int op, int64_t bytes, int64_t rounds)
{
    struct wf_bench_order o = {.op = op, .bytes = bytes, .rounds = rounds};

    return wf_bench_put(d->fd[0], &o, sizeof o);
}

/* Each of the first n peers obeys, and says so: one after the other, so that
 * not all of them are greeted in the same moment. */
static weft_status order_all(struct driver *d, const struct wf_bench_order *o, int n)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < n && !st; i++) {
        st = wf_bench_put(d->fd[i], o, sizeof *o);
        if (!st)
            st = answer_of(d, i);
    }
    return st;
}

static weft_status listen_ours(struct driver *d)
{
    char address[sizeof d->open.address];
    const char *t = d->open.transport;

    if (strcmp(t, "tcp") == 0 || strcmp(t, "tls") == 0)
        wf_snprintf(address, sizeof address, "%s:127.0.0.1:0", t);
    else
        wf_snprintf(address, sizeof address, "%s:%s/%d", t, d->opts->folder, d->n_sockets++);
    return wf_bench_ours_listen(&d->ours, address, d->open.address, sizeof d->open.address);
}

static void close_links(struct driver *d)
{
    wf_bench_ours_close(&d->ours);
    wf_bench_raw_close(&d->raw);
    wf_bench_map_close(&d->mapped);
}

static bool is_shm(const struct driver *d)
{
    return strcmp(d->open.transport, "shm") == 0;
}

/* Each of n_peers processes has a link to this one. */
static weft_status open_peers(struct driver *d, int n_peers)
{
    weft_status st = WEFT_OK;

    while (d->n_peers < n_peers && !st)
        st = start_peer(d);
    d->n_open = n_peers;
    return st ? st : order_all(d, &d->open, n_peers);
}

/* Links between processes, and a raw connection to the first if it is wanted.
 */
static weft_status open_links(struct driver *d, const struct measure *m, int n_peers, bool raw)
{
    bool mapped = raw && is_shm(d), sockets = raw && !mapped;
    int listener = -1;
    weft_status st;

    d->open.op = WF_BENCH_OPEN;
    d->open.spins = m->spins;
    d->open.connections = d->opts->connections;
    d->open.no_checksums = m->no_checksums;
    d->open.raw = raw;
    d->open.trips = m->kind == ROUND_TRIP;
    d->open.bytes = m->kind == ONE_WAY ? d->bytes : WF_BENCH_BLOCK;
    st = wf_bench_ours_open(&d->ours, d->ctx, &d->open, &d->own, true);
    if (!st)
        st = listen_ours(d);
    if (!st && mapped)
        st = wf_bench_map_new(&d->mapped, d->open.bytes, d->open.raw_name, sizeof d->open.raw_name);
    if (!st && sockets)
        st = wf_bench_raw_listen(&d->open, &listener);
    if (!st && sockets) { /* it answers after its raw connection was accepted */
        d->n_open = 1;
        st = wf_bench_put(d->fd[0], &d->open, sizeof d->open);
        if (!st)
            st = wf_bench_raw_accept(&d->raw, listener, &d->open);
        if (!st)
            st = get_answer(d);
    } else if (!st) {
        st = open_peers(d, n_peers);
    }
    if (!st)
        st = wf_bench_ours_await(&d->ours, n_peers);
    if (listener >= 0)
        close(listener);
    return st;
}

static weft_status close_both(struct driver *d)
{
    struct wf_bench_order o = {.op = WF_BENCH_CLOSE};
    weft_status st = order_all(d, &o, d->n_open);

    close_links(d);
    return st;
}

/* ---- one block ------------------------------------------------------------------------------- */

static weft_status raw_stream(struct driver *d, double *out)
{
    uint8_t back[WF_BENCH_SMALL];
    weft_status st = order(d, WF_BENCH_RAW_STREAM, d->bytes, STREAMS);
    int64_t start = wf_now(d->ctx);

    for (int i = 0; i < STREAMS && !st; i++) {
        st = wf_bench_raw_write(&d->raw, d->ours.memory, d->bytes);
        if (!st)
            st = wf_bench_raw_read(&d->raw, back, sizeof back);
    }
    *out = (double)(wf_now(d->ctx) - start) * 1e-9;
    return st;
}

static weft_status raw_region(struct driver *d, double *out)
{
    weft_status st = order(d, WF_BENCH_RAW_REGION, d->bytes, STREAMS);
    int64_t start = wf_now(d->ctx);

    for (int i = 0; i < STREAMS && !st; i++)
        st = wf_bench_map_write(&d->mapped);
    *out = (double)(wf_now(d->ctx) - start) * 1e-9;
    return st;
}

static weft_status raw_ping(struct driver *d, int64_t rounds, double *out)
{
    uint8_t *p = d->ours.memory;
    weft_status st = order(d, WF_BENCH_RAW_PING, WF_BENCH_SMALL, rounds);
    int64_t start = wf_now(d->ctx);

    for (int64_t i = 0; i < rounds && !st; i++) {
        st = wf_bench_raw_write(&d->raw, p, WF_BENCH_SMALL);
        if (!st)
            st = wf_bench_raw_read(&d->raw, p, WF_BENCH_SMALL);
    }
    *out = (double)(wf_now(d->ctx) - start) * 1e-9;
    return st;
}

/* ---- one measure ----------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void report(struct driver *d, const struct measure *m, const char *unit, int64_t bytes,
                   double weft, double raw)
{
    weft_net_row row = {.size = sizeof row,
                        .measure = names[m->kind],
                        .transport = d->open.transport,
                        .mode = m->mode,
                        .unit = unit,
                        .bytes = bytes,
                        .blocks = d->blocks,
                        .weft = weft,
                        .raw = raw,
                        .ratio = raw > 0 ? weft / raw : -1,
                        .target = m->target,
                        .at_most = m->at_most,
                        .connections = wf_bench_ours_connections(&d->ours)};

    d->opts->row(d->opts->arg, &row);
}

static weft_status one_way(struct driver *d, const struct measure *m)
{
    double ours[MAX_BLOCKS + 1], raw[MAX_BLOCKS + 1];
    double gb = 1e-9 * (double)d->bytes * STREAMS;
    weft_status st = open_links(d, m, 1, true);

    for (int i = 0; i <= d->blocks && !st; i++) { /* the first is the warm-up */
        st = is_shm(d) ? raw_region(d, &raw[i]) : raw_stream(d, &raw[i]);
        if (!st && is_shm(d))
            st = order(d, WF_BENCH_ATTEND, 0, d->ours.n_pings + STREAMS);
        if (!st && is_shm(d))
            st = get_answer(d);
        if (!st)
            st = is_shm(d) ? wf_bench_ours_region(&d->ours, d->bytes, STREAMS, &ours[i])
                           : wf_bench_ours_stream(&d->ours, d->bytes, STREAMS, &ours[i]);
    }
    if (!st)
        report(d, m, "GB/s", d->bytes, gb / median(ours + 1, d->blocks),
               gb / median(raw + 1, d->blocks));
    return st;
}

static weft_status round_trip(struct driver *d, const struct measure *m)
{
    double ours[MAX_BLOCKS + 1], raw[MAX_BLOCKS + 1];
    int64_t rounds = MIN_ROUNDS;
    weft_status st = open_links(d, m, 1, true);

    for (int i = 0; i <= d->blocks && !st; i++) {
        st = raw_ping(d, rounds, &raw[i]);
        if (!st && m->spins) {
            st = order(d, WF_BENCH_ATTEND, 0, d->ours.n_pings + rounds);
            if (!st)
                st = get_answer(d);
        }
        if (!st)
            st = wf_bench_ours_trips(&d->ours, WF_BENCH_SMALL, rounds, m->spins, &ours[i]);
        if (i == 0 && !st) {
            rounds = (int64_t)(BLOCK_S / raw[0] * MIN_ROUNDS);
            rounds = wf_max_i64(rounds, MIN_ROUNDS);
        }
    }
    if (!st)
        report(d, m, "us", WF_BENCH_SMALL, 1e6 * median(ours + 1, d->blocks) / (double)rounds,
               1e6 * median(raw + 1, d->blocks) / (double)rounds);
    return st;
}

/* The one-way time of a cache line between the same two processes, in us. */
static weft_status line_time(struct driver *d, double *out)
{
    int64_t start;
    weft_status st = order(d, WF_BENCH_RAW_LINE, 0, LINE_ROUNDS);

    if (!st)
        st = wf_bench_line_send(&d->mapped, LINE_ROUNDS / 10); /* the peer has begun */
    start = wf_now(d->ctx);
    if (!st)
        st = wf_bench_line_send(&d->mapped, LINE_ROUNDS - LINE_ROUNDS / 10);
    *out = 1e-3 * (double)(wf_now(d->ctx) - start) / (2 * (LINE_ROUNDS - LINE_ROUNDS / 10));
    return st;
}

static weft_status spinning_trip(struct driver *d, int64_t rounds, double *out)
{
    weft_status st = order(d, WF_BENCH_ATTEND, 0, d->ours.n_pings + rounds);

    if (!st)
        st = get_answer(d);
    return st ? st : wf_bench_ours_poll(&d->ours, WF_BENCH_SMALL, rounds, out);
}

/* Shared memory against what a cache line takes: two go each way, and 0.3 us
 * for the rest. How near the two cores are changes from one moment to the next:
 * each block has its own limit, from the lines before and after it, and the
 * median of the ratios decides. */
static weft_status poll_trip(struct driver *d, const struct measure *m)
{
    struct measure with = *m;
    static const struct measure lines = {.mode = "between the processes", .kind = CACHE_LINE};
    double times[MAX_BLOCKS + 1], ratio[MAX_BLOCKS + 1], mean[MAX_BLOCKS + 1], line[2] = {0, 0};
    int64_t rounds = m->spins ? 20000 : 2000;
    weft_status st = open_links(d, m, 1, true);

    for (int i = 0; i <= d->blocks && !st; i++) {
        if (m->spins)
            st = line_time(d, &line[0]);
        if (!st)
            st = m->spins ? spinning_trip(d, rounds, &times[i])
                          : wf_bench_ours_ping(&d->ours, 1, WF_BENCH_SMALL, 1, rounds, &times[i]);
        if (!st && m->spins)
            st = line_time(d, &line[1]);
        times[i] *= 1e6 / (double)rounds;
        mean[i] = (line[0] + line[1]) / 2;
        ratio[i] = times[i] / (0.3 + 4 * mean[i]);
    }
    if (st)
        return st;
    if (m->spins)
        report(d, &lines, "us", 64, -1, median(mean + 1, d->blocks));
    times[0] = median(times + 1, d->blocks);
    with.target = m->spins ? times[0] / median(ratio + 1, d->blocks) : 0;
    report(d, &with, "us", WF_BENCH_SMALL, times[0], -1);
    return WEFT_OK;
}

/* All peers against one of them, as throughput in sum: what is "raw" in the row
 * is the one peer. Each is a process of its own; those that come after the
 * first start here, when all but "idle" is measured. */
static weft_status peers(struct driver *d, const struct measure *m)
{
    double one[MAX_BLOCKS + 1], all[MAX_BLOCKS + 1];
    int64_t rounds = 20 * WF_BENCH_PEERS * WF_BENCH_WINDOW;
    double gb = 2e-9 * WF_BENCH_BLOCK * (double)rounds;
    weft_status st = open_links(d, m, WF_BENCH_PEERS, false);

    for (int i = 0; i <= d->blocks && !st; i++) {
        st = wf_bench_ours_ping(&d->ours, 1, WF_BENCH_BLOCK, WF_BENCH_WINDOW, rounds, &one[i]);
        if (!st)
            st = wf_bench_ours_ping(&d->ours, WF_BENCH_PEERS, WF_BENCH_BLOCK, WF_BENCH_WINDOW,
                                    rounds, &all[i]);
    }
    if (!st)
        report(d, m, "GB/s", WF_BENCH_BLOCK, gb / median(all + 1, d->blocks),
               gb / median(one + 1, d->blocks));
    return st;
}

static double cpu_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static weft_status idle(struct driver *d, const struct measure *m)
{
    struct timespec nap = {.tv_sec = IDLE_S};
    weft_status st = open_links(d, m, WF_BENCH_PEERS, false);
    double before = cpu_seconds();

    if (st)
        return st;
    nanosleep(&nap, NULL);
    report(d, m, "%", 0, 100 * (cpu_seconds() - before) / IDLE_S, -1);
    return WEFT_OK;
}

static weft_status run_measure(struct driver *d, const struct measure *m)
{
    weft_status st, closed;

    switch (m->kind) {
    case ONE_WAY: st = one_way(d, m); break;
    case ROUND_TRIP: st = is_shm(d) ? poll_trip(d, m) : round_trip(d, m); break;
    case PEERS: st = peers(d, m); break;
    default: st = idle(d, m); break;
    }
    if (st) {
        close_links(d);
        return st;
    }
    closed = close_both(d);
    return st ? st : closed;
}

/* ---- the run --------------------------------------------------------------------------------- */

static weft_status copy_pem(const char *from, char to[WF_BENCH_TEXT])
{
    if (strlen(from) >= WF_BENCH_TEXT)
        return wf_err(WEFT_EBUG, "a certificate of %lld bytes", (long long)strlen(from));
    memcpy(to, from, strlen(from) + 1);
    return WEFT_OK;
}

static weft_status issue(weft_ctx *ctx, const struct wf_pem *by, const char *name,
                         struct wf_bench_pem *out)
{
    struct wf_pem issued;
    weft_status st = wf_cert_issue(ctx, by, "bench", name, 1, &issued);

    if (st)
        return st;
    st = copy_pem(by->certificate, out->authority);
    if (!st)
        st = copy_pem(issued.certificate, out->certificate);
    if (!st)
        st = copy_pem(issued.key, out->key);
    wf_pem_free(ctx, &issued);
    return st;
}

static weft_status make_pems(struct driver *d)
{
    struct wf_pem authority;
    weft_status st = wf_cert_authority(d->ctx, 1, &authority);

    if (st)
        return st;
    st = issue(d->ctx, &authority, "driver", &d->own);
    if (!st)
        st = issue(d->ctx, &authority, "peer", &d->open.pem);
    wf_pem_free(d->ctx, &authority);
    return st;
}

static bool is_wanted(const struct driver *d, enum kind kind)
{
    return !d->opts->measure || strcmp(d->opts->measure, names[kind]) == 0;
}

static weft_status cache_line(struct driver *d)
{
    static const struct measure m = {.mode = "between two threads", .kind = CACHE_LINE};
    double times[MAX_BLOCKS] = {0};
    weft_status st = WEFT_OK;

    for (int i = 0; i < d->blocks && !st; i++)
        st = wf_bench_cache_line(&times[i]);
    if (!st)
        report(d, &m, "us", 64, -1, 1e6 * median(times, d->blocks));
    return st;
}

static weft_status run_all(struct driver *d)
{
    bool known = false;
    weft_status st = strcmp(d->open.transport, "tls") == 0 ? make_pems(d) : WEFT_OK;

    if (!st && is_wanted(d, CACHE_LINE) && (!is_shm(d) || d->opts->measure))
        st = cache_line(d);
    wf_use_group(0, 2); /* the peer has the other cores: both ways are placed in
                         the same way */
    for (int i = 0; i < WF_COUNT(measures) && !st; i++)
        if (strcmp(measures[i].transport, d->open.transport) == 0) {
            known = true;
            st = is_wanted(d, measures[i].kind) ? run_measure(d, &measures[i]) : WEFT_OK;
        }
    return st || known ? st
                       : wf_err(WEFT_EINVAL, "transport '%s': expected shm, uds, tcp or tls",
                                d->open.transport);
}

weft_status weft_net_bench(weft_ctx *ctx, const weft_net_bench_opts *opts)
{
    weft_net_bench_opts o;
    struct driver *d = wf_alloc(ctx, sizeof *d);
    weft_status st = d ? wf_opts_take(&o, sizeof o, opts, "weft_net_bench_opts")
                       : wf_err_nomem(ctx, sizeof *d, "a benchmark");

    if (!st && (!o.transport || !o.start || !o.row || !o.folder || strlen(o.transport) > 3 ||
                o.bytes < 0 || o.blocks < 0 || o.blocks > MAX_BLOCKS || o.connections < 0 ||
                o.connections > WF_MAX_CONNECTIONS))
        st = wf_err(WEFT_EINVAL,
                    "bench of transports: it needs transport, folder, start and row, "
                    "and at most %d blocks and %d connections",
                    MAX_BLOCKS, WF_MAX_CONNECTIONS);
    if (st) {
        wf_free(ctx, d);
        return st;
    }
    *d = (struct driver){.ctx = ctx, .opts = &o, .raw = {.fd = -1}, .mapped = {.fd = -1}};
    d->has_cores = sched_getaffinity(0, sizeof d->cores, &d->cores) == 0;
    d->bytes = o.bytes ? o.bytes : (int64_t)64 << 20;
    d->blocks = o.blocks ? o.blocks : 9;
    wf_snprintf(d->open.transport, sizeof d->open.transport, "%s", o.transport);
    st = start_peer(d);
    if (!st)
        st = run_all(d);
    for (int i = 0; i < d->n_peers; i++)
        close(d->fd[i]);
    if (d->has_cores) /* as they were */
        sched_setaffinity(0, sizeof d->cores, &d->cores);
    wf_free(ctx, d);
    return st;
}
