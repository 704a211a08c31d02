/* net_fault.c - every system call that a node makes fails in turn, with each error it can end with,
 * and every allocation: nothing leaks or hangs, the error names the link, at most one link ends,
 * and the node continues with the others. Reads and writes that are short, interrupted or not ready
 * change nothing at all.
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
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../support/counting.h"
#include "../support/faultsys.h"
#include "net/net.h"

#define SECOND 1000000000ll
#define WAIT (20 * SECOND)
enum { PAYLOAD = 100000, MAX_LINKS = 4 };

/* Most of the time is waiting, so several processes share the loops: this is one of so many. */
enum { SHARES = 8 };
static int share;

/* "tcp-2" and "tls-2" have two connections a pair, and the payloads in stripes over the second. */
static const char *const transports[] = {"tcp", "uds", "tls", "shm", "tcp-2", "tls-2"};

/* ---- credentials ----------------------------------------------------------------------------- */

static weft_ctx *pem_ctx;
static struct wf_pem authority, certificate;

static int make_pems(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &pem_ctx) ||
           wf_cert_authority(pem_ctx, 2, &authority) ||
           wf_cert_issue(pem_ctx, &authority, "test", "task", 1, &certificate);
}

static int free_pems(void **state)
{
    (void)state;
    wf_pem_free(pem_ctx, &certificate);
    wf_pem_free(pem_ctx, &authority);
    weft_ctx_free(pem_ctx);
    return 0;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

struct node {
    weft_ctx *ctx;
    struct wf_net *net;
    struct wf_tls *tls;
    struct counting count;
    struct faultsys sys;
    struct wf_link *down[MAX_LINKS]; /* in the order they went */
    char why[MAX_LINKS][512];
    _Atomic int n_up, n_down, n_replies, n_failed;
    _Atomic int n_bad;     /* links that did not end in order */
    _Atomic int n_without; /* further connections that could not be made */
    uint8_t memory[PAYLOAD];
    struct wf_part part;
    _Atomic int n_wrong; /* messages whose bytes are not those that were sent */
};

static uint8_t sent_bytes[PAYLOAD];

static void on_up(void *arg, struct wf_link *l)
{
    struct node *n = arg;

    (void)l;
    n->n_up++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct node *n = arg;

    n->n_bad += st != WEFT_OK;
    if (n->n_down < MAX_LINKS) {
        n->down[n->n_down] = l;
        snprintf(n->why[n->n_down], sizeof n->why[0], "%s", why);
    }
    n->n_down++;
}

static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    struct node *n = arg;

    (void)l;
    n->part = (struct wf_part){n->memory, m->n_payload};
    *parts = &n->part;
    *n_parts = 1;
    return m->n_payload <= PAYLOAD ? WEFT_OK : wf_err(WEFT_EINVAL, "too much");
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct node *n = arg;
    struct wf_part part = {sent_bytes, PAYLOAD};

    n->n_wrong += m->n_payload != PAYLOAD || memcmp(n->memory, sent_bytes, PAYLOAD) != 0;
    for (int i = 0; m->id && i < 2; i++) /* again if there was no memory */
        if (wf_link_reply(l, m->id, WEFT_OK, &(struct wf_msg){.part = &part, .n_parts = 1}, NULL,
                          NULL) != WEFT_ENOMEM)
            break;
}

static void on_reply(void *arg, weft_status st, const struct wf_msg *m)
{
    struct node *n = arg;

    (void)m;
    if (st)
        n->n_failed++;
    else
        n->n_wrong += memcmp(n->memory, sent_bytes, PAYLOAD) != 0;
    n->n_replies++;
}

/* A further connection that is not used is told in the log alone. */
static void on_log(void *arg, int level, const char *line)
{
    struct node *n = arg;

    (void)level;
    n->n_without += strstr(line, "a further connection is not used") != NULL;
}

static weft_status open_node(struct node *n, const char *transport)
{
    bool tls = strncmp(transport, "tls", 3) == 0;
    struct wf_net_opts opts = {
        .self = {.name = "task", .role = "test"},
        .calls = {n, NULL, on_up, on_down, on_place, on_received},
        .silence_ns = 12 * SECOND / 5, /* what is tried again is tried with the next tick, a 12th */
        .stall_ns = 5 * SECOND,
        .connections = strchr(transport, '-') ? 2 : 1,
        .striped_min = 4096,
        .stripe_bytes = 40000,
    };
    const struct wf_credentials c = {authority.certificate, certificate.certificate,
                                     certificate.key};
    weft_status st = tls ? wf_tls_new(n->ctx, &c, &n->tls) : WEFT_OK;

    opts.tls = n->tls;
    return st ? st : wf_net_new(n->ctx, &opts, &n->net);
}

static void init_node(struct node *n)
{
    weft_allocator allocator;

    memset(n, 0, sizeof *n);
    allocator = counting_allocator(&n->count);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator,
                                            .log = on_log, .log_arg = n),
                                  &n->ctx),
                     0);
    faultsys_init(&n->sys);
    n->ctx->sys = &n->sys.sys;
}

/* What is open at the end is a leak. */
static void close_node(struct node *n, const char *when)
{
    wf_net_free(n->net);
    wf_tls_free(n->tls);
    weft_ctx_free(n->ctx);
    if (n->count.n_live || n->sys.n_open)
        fail_msg("%s: %lld blocks and %lld descriptors are left", when, (long long)n->count.n_live,
                 (long long)n->sys.n_open);
    assert_int_equal(n->n_wrong, 0);
}

struct until {
    _Atomic int *value;
    int at_least;
};

static bool reached(void *arg)
{
    const struct until *u = arg;

    return *u->value >= u->at_least;
}

static void await(struct node *n, _Atomic int *value, int at_least, const char *what,
                  const char *when)
{
    struct until u = {value, at_least};

    if (wf_net_wait(n->net, reached, &u, WAIT, what))
        fail_msg("%s: %s (%d of %d); %s", when, weft_error(), *value, at_least, n->why[0]);
}

/* ---- one run --------------------------------------------------------------------------------- */

static void listen_address(const char *transport, char out[128])
{
    static int number;

    if (strncmp(transport, "tcp", 3) == 0 || strncmp(transport, "tls", 3) == 0)
        snprintf(out, 128, "%.3s:127.0.0.1:0", transport);
    else
        snprintf(out, 128, "%s:/tmp/weft-netfault-%d-%d.sock", transport, (int)getpid(), number++);
}

/* A request with a payload over a link, and its answer, or the link's end; true: answered. */
static bool ask(struct node *n, struct wf_link *l, const char *when)
{
    struct wf_part part = {sent_bytes, PAYLOAD};
    int replies = n->n_replies, failed = n->n_failed;
    const struct wf_msg m = {.part = &part, .n_parts = 1};
    weft_status st = wf_link_call(l, &m, 10 * SECOND, NULL, on_reply, n, NULL);

    if (st == WEFT_ENOMEM) { /* this message was refused, and the link is as it was */
        assert_true(*weft_error());
        st = wf_link_call(l, &m, 10 * SECOND, NULL, on_reply, n, NULL);
    }
    if (st) {
        assert_true(*weft_error());
        return false;
    }
    await(n, &n->n_replies, replies + 1, "an answer", when);
    return n->n_failed == failed;
}

/* Until the pair has all its connections, or for a while: a link does without them. The one fault
 * of a run may have been in making them. */
static void await_connections(struct node *server, struct node *client, const struct wf_link *l)
{
    for (int i = 0; i < 1000 && wf_link_connections(l) < wf_net_connections(client->net); i++) {
        if (server->n_down + server->n_without + client->n_down + client->n_without > 0)
            i += 20;
        usleep(100);
    }
}

/* The error of a link names it, and says more than that. */
static void check_reasons(struct node *n, const char *address, const char *when)
{
    for (int i = 0; i < n->n_down && i < MAX_LINKS; i++) {
        const char *colon = strstr(n->why[i], ": ");

        if (!colon || !colon[2] ||
            (strncmp(n->why[i], "task (", 6) != 0 && strncmp(n->why[i], address, 4) != 0))
            fail_msg("%s: the error is '%s'", when, n->why[i]);
    }
}

/* `server` listens, `client` has two links to it; the faults are in one of them. After the fault
 * at most one link has ended, and a new one can be made. Returns false if a node or a listener
 * could not be made. */
static bool run(struct node *server, struct node *client, const char *transport, const char *when)
{
    char address[128], bound[512];
    struct wf_link *l[3] = {NULL, NULL, NULL};
    int answered = 0, made = 0;

    listen_address(transport, address);
    if (open_node(server, transport) || open_node(client, transport) ||
        wf_net_listen(server->net, address, bound, sizeof bound)) {
        assert_true(*weft_error());
        return false;
    }
    for (int i = 0; i < 2; i++)
        if (wf_net_connect(client->net, bound, 10 * SECOND, &l[i]) == WEFT_OK)
            made++;
        else
            assert_true(*weft_error());
    for (int i = 0; i < 2; i++) {
        if (l[i])
            await_connections(server, client, l[i]);
        answered += l[i] && ask(client, l[i], when);
    }
    if (answered < 1)
        fail_msg("%s: both links have ended: %s; %s (server: %s; %s)", when, client->why[0],
                 client->why[1], server->why[0], server->why[1]);
    if (answered < made)
        await(client, &client->n_down, 1, "the end of a link", when);
    if (answered < 2) { /* the node goes on */
        if (wf_net_connect(client->net, bound, 10 * SECOND, &l[2]) || !ask(client, l[2], when))
            fail_msg("%s: no new link: %s; %s", when, weft_error(), client->why[1]);
    }
    check_reasons(client, bound, when);
    check_reasons(server, bound, when);
    if (l[0])
        wf_link_close(l[0]);
    return true;
}

/* ---- the loops ------------------------------------------------------------------------------- */

enum what { CALLS, ALLOCATIONS };

/* The n-th call, or allocation, of one node fails; *any: there was one. Whether it did fail: not
 * every call has so many errors. */
static bool fail_one(const char *transport, bool in_server, enum what what, int64_t n, int which,
                     bool *any)
{
    struct node *server = malloc(sizeof *server), *client = malloc(sizeof *client);
    struct node *bad = in_server ? server : client;
    char when[128];
    bool failed;

    snprintf(when, sizeof when, "%s, %s %lld of the %s fails, error %d", transport,
             what == CALLS ? "call" : "allocation", (long long)n, in_server ? "server" : "client",
             which);
    init_node(server);
    init_node(client);
    if (what == CALLS) {
        bad->sys.fail_at = n;
        bad->sys.which = which;
    } else {
        bad->count.fail_at = bad->count.n_allocs + n;
    }
    if (!run(server, client, transport, when) && !bad->sys.happened &&
        __atomic_load_n(&bad->count.n_allocs, __ATOMIC_RELAXED) < bad->count.fail_at)
        fail_msg("%s: failed without a fault: %s", when, weft_error());
    *any = what == CALLS
               ? bad->sys.n_calls >= n
               : __atomic_load_n(&bad->count.n_allocs, __ATOMIC_RELAXED) >= bad->count.fail_at;
    failed = bad->sys.happened;
    if (failed)
        snprintf(when, sizeof when, "%s, call %lld (%s) of the %s fails with error %d", transport,
                 (long long)n, bad->sys.what, in_server ? "server" : "client", bad->sys.error);
    close_node(client, when);
    close_node(server, when);
    free(client);
    free(server);
    return failed;
}

/* Pairs of several connections make many more calls, and wait when one fails: under sanitizers,
 * which make them slow, one in five is tried. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { EVERY = 5 };
#else
enum { EVERY = 1 };
#endif

static bool is_tried(const char *transport, int64_t n)
{
    return !strchr(transport, '-') || n % EVERY == 0;
}

static void every_call_may_fail(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        for (int side = 0; side < 2; side++) {
            bool any = true;

            for (int64_t n = 1 + share; any; n += SHARES)
                for (int which = 0; which < faultsys_max_errors() && any; which++)
                    if (is_tried(transports[t], n + which) &&
                        !fail_one(transports[t], side, CALLS, n, which, &any))
                        break;
        }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        for (int side = 0; side < 2; side++) {
            bool any = true;

            for (int64_t n = 1 + share; any; n += SHARES)
                if (is_tried(transports[t], n))
                    fail_one(transports[t], side, ALLOCATIONS, n, 0, &any);
        }
}

/* Short, interrupted and unready reads and writes: everything arrives. */
static void disturbed_calls_change_nothing(void **state)
{
    static const struct {
        int64_t max_io;
        int every;
    } how[] = {{0, 2}, {0, 3}, {1000, 0}, {999, 2}, {37, 5}};

    (void)state;
    for (int t = 0; t < WF_COUNT(transports); t++)
        for (int k = 0; k < WF_COUNT(how); k++) {
            struct node *server = malloc(sizeof *server), *client = malloc(sizeof *client);

            init_node(server);
            init_node(client);
            server->sys.max_io = client->sys.max_io = how[k].max_io;
            server->sys.every = client->sys.every = how[k].every;
            assert_true(run(server, client, transports[t], "disturbed"));
            assert_int_equal(client->n_failed, 0);
            /* one link is being closed, in order */
            if (client->n_down > 1 || client->n_bad)
                fail_msg("%s: %s", transports[t], client->why[0]);
            close_node(client, "disturbed");
            close_node(server, "disturbed");
            free(client);
            free(server);
        }
}

/* ---- a clock and randomness of the test's own ------------------------------------------------ */

static _Atomic int64_t the_time;

static int64_t my_clock(void *arg)
{
    (void)arg;
    return the_time;
}

static void on_time(void *arg, weft_status st, const struct wf_msg *m)
{
    _Atomic int *out = arg;

    (void)m;
    *out = st;
}

static void nothing_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    (void)arg;
    (void)l;
    (void)m;
}

/* A deadline passes when the context's clock says so, and not before. */
static void deadlines_follow_the_clock_of_the_context(void **state)
{
    struct wf_net_opts opts = {.self = {.name = "task", .role = "test"}};
    _Atomic int status = 1;
    struct node n;
    struct wf_net *net;
    struct wf_link *l;
    weft_ctx *ctx;
    char bound[128];

    (void)state;
    memset(&n, 0, sizeof n);
    the_time = 1000 * SECOND;
    opts.calls = (struct wf_net_calls){
        .arg = &n, .up = on_up, .down = on_down, .received = nothing_received};
    opts.silence_ns = opts.stall_ns = 100000 * SECOND;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .now_ns = my_clock), &ctx),
                     0);
    assert_int_equal(wf_net_new(ctx, &opts, &net), 0);
    assert_int_equal(wf_net_listen(net, "tcp:127.0.0.1:0", bound, sizeof bound), 0);
    assert_int_equal(wf_net_connect(net, bound, SECOND, &l), 0);
    for (int i = 0; i < 20000 && n.n_up < 2; i++)
        usleep(1000);
    assert_int_equal(n.n_up, 2);
    assert_int_equal(wf_link_call(l, &(struct wf_msg){.kind = 1}, SECOND / 100, NULL, on_time,
                                  (void *)&status, NULL),
                     0);
    usleep(100000); /* ten times as long, by the wall */
    assert_int_equal(status, 1);
    the_time += SECOND / 100;
    for (int i = 0; i < 20000 && status == 1; i++)
        usleep(1000);
    assert_int_equal(status, WEFT_ETIME);
    wf_net_free(net);
    weft_ctx_free(ctx);
}

static int my_entropy(void *arg, void *buf, int64_t n)
{
    memset(buf, *(const int *)arg, (size_t)n);
    return 0;
}

/* Incarnations and serial numbers are the seam's. */
static void randomness_is_the_context_s(void **state)
{
    struct wf_net_opts opts = {.self = {.name = "task", .role = "test"}};
    struct wf_sys sys = wf_sys_posix;
    struct node n;
    struct wf_net *net;
    struct wf_link *l;
    weft_ctx *ctx;
    char bound[128];
    int byte = 0x5a;

    (void)state;
    memset(&n, 0, sizeof n);
    opts.calls = (struct wf_net_calls){
        .arg = &n, .up = on_up, .down = on_down, .received = nothing_received};
    sys.entropy = my_entropy;
    sys.arg = &byte;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    ctx->sys = &sys;
    assert_int_equal(wf_net_new(ctx, &opts, &net), 0);
    assert_int_equal(wf_net_listen(net, "tcp:127.0.0.1:0", bound, sizeof bound), 0);
    assert_int_equal(wf_net_connect(net, bound, SECOND, &l), 0);
    await(&(struct node){.net = net}, &n.n_up, 2, "two ends", "entropy");
    assert_true(wf_link_peer(l)->incarnation == 0x5a5a5a5a5a5a5a5aull);
    wf_net_free(net);
    weft_ctx_free(ctx);
}

/* The other shares of the loops, each in a process; what goes wrong there is printed there. */
static int begin_shares(pid_t pid[SHARES])
{
    const struct CMUnitTest loops[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(every_allocation_may_fail),
    };

    for (share = 1; share < SHARES; share++) {
        pid[share] = fork();
        if (pid[share] < 0)
            return 1;
        if (pid[share] == 0 && freopen("/dev/null", "w", stdout))
            exit(cmocka_run_group_tests(loops, make_pems, free_pems));
    }
    share = 0;
    return 0;
}

static int end_shares(const pid_t pid[SHARES])
{
    int failed = 0;

    for (int i = 1; i < SHARES; i++) {
        int status = 1;

        if (waitpid(pid[i], &status, 0) != pid[i] || status) {
            fprintf(stderr, "share %d of the loops failed: %d\n", i, status);
            failed++;
        }
    }
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(disturbed_calls_change_nothing),
        cmocka_unit_test(deadlines_follow_the_clock_of_the_context),
        cmocka_unit_test(randomness_is_the_context_s),
    };
    pid_t pid[SHARES];
    int failed;

    for (int i = 0; i < PAYLOAD; i++)
        sent_bytes[i] = (uint8_t)(i * 13 + (i >> 8));
    if (begin_shares(pid)) {
        fprintf(stderr, "no process for a share: %s\n", strerror(errno));
        return 1;
    }
    failed = cmocka_run_group_tests(tests, make_pems, free_pems);
    return failed + end_shares(pid);
}
