/* netns_test.c - two network namespaces joined by a veth pair whose rate is limited, a process in
 * each, and a proxy that delays, loses, cuts and partitions. Needs root and `ip netns`; says so
 * where it has neither. The namespaces are removed by a process of its own, whatever happens to the
 * test.
 * ctest-timeout: 180 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/netpeer.h"
#include "support/proxy.h"

#define SECOND 1000000000ll
#define SERVER "10.213.77.2"
enum { PORT = 4713, LARGE = 8 << 20, RATE_MBIT = 400 };

static const char *const transports[] = {"tcp", "tls"};

/* ---- namespaces ------------------------------------------------------------------------------ */

static char space[2][32];

__attribute__((format(printf, 1, 2))) static int sh(const char *format, ...)
{
    char text[512];
    va_list args;
    int rc;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    rc = system(text);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* Removes the namespaces when this program has ended, in whatever way. */
static pid_t start_janitor(int *rope)
{
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        char none;

        setsid();
        close(fds[1]);
        while (read(fds[0], &none, 1) > 0)
            ;
        sh("ip netns del %s 2>/dev/null; ip netns del %s 2>/dev/null", space[0], space[1]);
        _exit(0);
    }
    close(fds[0]);
    *rope = fds[1];
    return pid;
}

static bool make_spaces(void)
{
    const char *a = space[0], *b = space[1];

    return sh("ip netns add %s && ip netns add %s", a, b) == 0 &&
           sh("ip -n %s link add veth0 type veth peer name veth1 netns %s", a, b) == 0 &&
           sh("ip -n %s addr add 10.213.77.1/24 dev veth0 && ip -n %s link set veth0 up && "
              "ip -n %s link set lo up",
              a, a, a) == 0 &&
           sh("ip -n %s addr add " SERVER "/24 dev veth1 && ip -n %s link set veth1 up && "
              "ip -n %s link set lo up",
              b, b, b) == 0 &&
           sh("ip netns exec %s tc qdisc add dev veth0 root tbf rate %dmbit burst 256kb latency "
              "50ms",
              a, RATE_MBIT) == 0;
}

static void enter(const char *name)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET)) {
        perror(path);
        _exit(1);
    }
    close(fd);
}

/* ---- processes ------------------------------------------------------------------------------- */

static struct netpeer peer;
static weft_ctx *ctx;
static const struct wf_net_opts opts = {.silence_ns = SECOND, .stall_ns = SECOND};

static void open_peer(const char *transport, const char *name)
{
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        _exit(1);
    netpeer_open_over(&peer, transport, ctx, name, opts);
}

static void serve(const char *transport, const char *name)
{
    char address[64];

    open_peer(transport, name);
    peer.echoes = true;
    snprintf(address, sizeof address, "%s:" SERVER ":%d", transport, PORT);
    if (wf_net_listen(peer.net, address, NULL, 0)) {
        fprintf(stderr, "%s\n", weft_error());
        _exit(1);
    }
    for (;;)
        pause();
}

static pid_t start(const char *in, void (*fn)(const char *transport, const char *name),
                   const char *transport, const char *name)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        enter(in);
        fn(transport, name);
        _exit(0);
    }
    return pid;
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- the client ------------------------------------------------------------------------------ */

static struct proxy *proxy;
static uint8_t *bytes;

#define CHECK(c)                                                                            \
    do                                                                                      \
        if (!(c)) {                                                                         \
            fprintf(stderr, "line %d: %s; %s; %s\n", __LINE__, #c, peer.why, weft_error()); \
            _exit(3);                                                                       \
        }                                                                                   \
    while (0)

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void ask(struct wf_link *l, int64_t n)
{
    struct wf_part part = {bytes, n};

    CHECK(wf_link_call(l, &(struct wf_msg){.kind = 1, .part = &part, .n_parts = 1}, 60 * SECOND,
                       NULL, netpeer_replied, &peer, NULL) == 0);
}

static void ask_and_wait(struct wf_link *l, int64_t n)
{
    int before = peer.n_replies;

    ask(l, n);
    NETPEER_AWAIT(&peer, n_replies, before + 1);
    CHECK(peer.reply_status == 0 && peer.reply.n_payload == n);
    CHECK(memcmp(peer.memory, bytes, (size_t)n) == 0);
}

/* The server may not listen yet. */
static struct wf_link *connect_to(const char *transport, const char *host, int port)
{
    char address[64];
    struct wf_link *l;

    snprintf(address, sizeof address, "%s:%s:%d", transport, host, port);
    for (int i = 0; i < 100; i++) {
        int up = peer.n_up, down = peer.n_down;

        CHECK(wf_net_connect(peer.net, address, 10 * SECOND, &l) == 0);
        while (peer.n_up == up && peer.n_down == down)
            usleep(1000);
        if (peer.n_up > up)
            return l;
        usleep(50000);
    }
    CHECK(!"connected");
    return NULL;
}

/* A request is on its way when something happens; its link goes down (st 0: with whatever status),
 * and a new one works. */
static void survive(const char *transport, struct wf_link *l, int64_t n, weft_status st, int port,
                    void (*heal)(void))
{
    int replies = peer.n_replies, down = peer.n_down;

    ask(l, n);
    NETPEER_AWAIT(&peer, n_replies, replies + 1);
    NETPEER_AWAIT(&peer, n_down, down + 1);
    CHECK(peer.reply_status != 0 && (st ? peer.down_status == (int)st : peer.down_status < 0));
    CHECK(strstr(peer.why, "server/0 ("));
    heal();
    ask_and_wait(connect_to(transport, port == PORT ? SERVER : "127.0.0.1", port), 1000);
}

static void heal_proxy(void)
{
    proxy->partitioned = false;
    proxy->cut_after = proxy->lose_after = 0;
    proxy->delay_ms = 0;
}

static void heal_veth(void)
{
    CHECK(sh("ip link set veth0 up") == 0);
}

/* A short queue before the cable: it loses packets, which the system sends again. */
static void lose_packets(struct wf_link *l)
{
    CHECK(sh("tc qdisc replace dev veth0 root tbf rate %dmbit burst 32kb limit 40kb", RATE_MBIT) ==
          0);
    for (int i = 0; i < 4; i++)
        ask_and_wait(l, LARGE / 4);
    CHECK(sh("tc -s qdisc show dev veth0 | grep -q 'dropped [1-9]'") == 0);
}

static void client(const char *transport, const char *name)
{
    struct wf_link *l;
    double start;

    open_peer(transport, name);
    /* directly, as fast as the bucket lets it */
    l = connect_to(transport, SERVER, PORT);
    start = seconds();
    ask_and_wait(l, LARGE);
    CHECK(seconds() - start > 0.7 * 8e-6 * LARGE / RATE_MBIT);
    lose_packets(l);
    /* the cable is pulled: nobody is told */
    CHECK(sh("ip link set veth0 down") == 0);
    survive(transport, l, 1000, WEFT_ETIME, PORT, heal_veth);
    /* far away */
    while (!proxy->port)
        usleep(1000);
    proxy->delay_ms = 30;
    l = connect_to(transport, "127.0.0.1", proxy->port);
    start = seconds();
    for (int i = 0; i < 5; i++)
        ask_and_wait(l, 100);
    CHECK(seconds() - start > 5 * 0.06);
    proxy->delay_ms = 0;
    /* a partition: both ends think that the other is there */
    proxy->partitioned = true;
    survive(transport, l, 1000, WEFT_ETIME, proxy->port, heal_proxy);
    /* bytes are lost, which the system does not notice */
    proxy->lose_after = LARGE / 2;
    survive(transport, peer.link, LARGE, WEFT_OK, proxy->port, heal_proxy);
    /* within a message */
    proxy->cut_after = LARGE / 2;
    survive(transport, peer.link, LARGE, WEFT_EPEER, proxy->port, heal_proxy);
    netpeer_close(&peer);
    weft_ctx_free(ctx);
}

static void run_proxy(const char *transport, const char *name)
{
    (void)transport;
    (void)name;
    proxy_run(proxy, SERVER, PORT);
}

/* ---- the test -------------------------------------------------------------------------------- */

static void links_survive_slow_far_cut_and_partitioned_networks(void **state)
{
    int rope;
    pid_t janitor;

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: network namespaces need root\n");
        skip();
    }
    snprintf(space[0], sizeof space[0], "weft-a-%d", (int)getpid());
    snprintf(space[1], sizeof space[1], "weft-b-%d", (int)getpid());
    janitor = start_janitor(&rope);
    if (!make_spaces()) {
        close(rope);
        waitpid(janitor, NULL, 0);
        print_message("skipped: `ip netns add`, veth or tbf do not work here\n");
        skip();
    }
    bytes = malloc(LARGE);
    for (int64_t i = 0; i < LARGE; i++)
        bytes[i] = (uint8_t)((uint64_t)i * 0x9e3779b97f4a7c15ull >> 56);
    for (int t = 0; t < WF_COUNT(transports); t++) {
        struct wf_tls *tls;
        weft_ctx *own;
        pid_t pid[3];
        int status = 0;

        /* the authority is made here, so that all processes have the same */
        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &own), 0);
        netpeer_certify(own, "test", &tls);
        wf_tls_free(tls);
        weft_ctx_free(own);
        proxy = proxy_new();
        assert_non_null(proxy);
        pid[0] = start(space[1], serve, transports[t], "server/0");
        pid[1] = start(space[0], run_proxy, transports[t], "proxy");
        pid[2] = start(space[0], client, transports[t], "worker/1");
        assert_int_equal(waitpid(pid[2], &status, 0), pid[2]);
        stop(pid[1]);
        stop(pid[0]);
        if (status)
            fail_msg("%s: the client ended with status 0x%x", transports[t], (unsigned)status);
    }
    free(bytes);
    close(rope);
    waitpid(janitor, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_survive_slow_far_cut_and_partitioned_networks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
