/* bench_net.c - weft bench net: how fast bytes go between two processes. The command starts itself
 * as the second one. Nothing is left behind, also after Ctrl-C. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/sys/net.h>

#include "cli.h"

enum { MAX_BLOCKS = 1000 };

struct bench {
    char folder[64]; /* for Unix sockets; removed at the end */
    pid_t peer;
    FILE *to;
    bool json;
    int n_missed;
};

/* ---- the second process ---------------------------------------------------------------------- */

static weft_status start_peer(void *arg, int fd)
{
    struct bench *b = arg;
    pid_t parent = getpid(), pid = fork();
    char text[16];
    sigset_t none;

    if (pid < 0)
        return WEFT_ENOMEM;
    if (pid > 0) {
        b->peer = pid;
        return WEFT_OK;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it has ended already */
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    fcntl(fd, F_SETFD, 0);
    snprintf(text, sizeof text, "%d", fd);
    execl("/proc/self/exe", "weft", "bench", "net", "--peer", text, (char *)NULL);
    _exit(127);
}

static int run_peer(int fd)
{
    weft_ctx *ctx;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);

    if (!st)
        st = weft_net_bench_peer(ctx, fd);
    if (st)
        return fail_status(st, "bench net");
    weft_ctx_free(ctx);
    return EXIT_DONE;
}

/* ---- cleaning up ----------------------------------------------------------------------------- */

static void clean_up(struct bench *b)
{
    DIR *d = opendir(b->folder);
    struct dirent *e;

    if (b->peer > 0) {
        kill(b->peer, SIGKILL);
        waitpid(b->peer, NULL, 0);
    }
    while (d && (e = readdir(d)))
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(b->folder);
}

static void stop_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
}

/* Waits for Ctrl-C, which is blocked everywhere else. */
static void *await_signal(void *arg)
{
    sigset_t set;
    int sig;

    stop_signals(&set);
    sigwait(&set, &sig);
    clean_up(arg);
    _exit(EXIT_STOPPED);
}

/* ---- results --------------------------------------------------------------------------------- */

static bool reached(const weft_net_row *r)
{
    double v = r->ratio > 0 ? r->ratio : r->weft;

    return r->at_most ? v <= r->target : v >= r->target;
}

static const char *key_of(const char *unit)
{
    return !strcmp(unit, "GB/s") ? "gb_s" : !strcmp(unit, "us") ? "us" : "cpu_percent";
}

static void print_json(FILE *to, const weft_net_row *r, bool weft)
{
    fprintf(to,
            "{\"measure\": \"%s\", \"transport\": \"%s\", \"mode\": \"%s\", \"bytes\": %lld, "
            "\"blocks\": %d, \"peer\": \"%s\", \"version\": \"%s\", \"%s\": %.4g",
            r->measure, r->transport, r->mode, (long long)r->bytes, r->blocks,
            weft                              ? "weft"
            : !strcmp(r->measure, "64 peers") ? "weft, one peer"
                                              : "raw",
            weft_version(), key_of(r->unit), weft ? r->weft : r->raw);
    if (weft && r->ratio > 0)
        fprintf(to, ", \"ratio\": %.3f", r->ratio);
    if (weft && r->target > 0)
        fprintf(to, ", \"target\": %.3g, \"reached\": %s", r->target,
                reached(r) ? "true" : "false");
    fprintf(to, "}\n");
}

static void print_text(FILE *to, const weft_net_row *r)
{
    char bytes[32], ratio[64] = "", what[64];

    if (r->bytes >= 1 << 20)
        snprintf(bytes, sizeof bytes, "%lld MB", (long long)r->bytes >> 20);
    else
        snprintf(bytes, sizeof bytes, "%lld B", (long long)r->bytes);
    snprintf(what, sizeof what, "%s%s%s", r->measure, *r->mode ? ", " : "", r->mode);
    if (r->ratio > 0 && r->target > 0)
        snprintf(ratio, sizeof ratio, "%.2f of it, wanted %s %.2f: %s", r->ratio,
                 r->at_most ? "at most" : "at least", r->target, reached(r) ? "yes" : "no");
    else if (r->ratio > 0)
        snprintf(ratio, sizeof ratio, "%.2f of it", r->ratio);
    else if (r->target > 0)
        snprintf(ratio, sizeof ratio, "wanted at most %.3g: %s", r->target,
                 reached(r) ? "yes" : "no");
    fprintf(to, "%-4s %-34s %7s", r->transport, what, bytes);
    if (r->weft >= 0)
        fprintf(to, "  weft %8.3f %-4s", r->weft, r->unit);
    if (r->raw >= 0)
        fprintf(to, "  %s %8.3f %-4s", !strcmp(r->measure, "64 peers") ? "one" : "raw", r->raw,
                r->unit);
    fprintf(to, "  %s\n", ratio);
}

static void on_row(void *arg, const weft_net_row *r)
{
    struct bench *b = arg;

    b->n_missed += r->target > 0 && !reached(r);
    if (!b->json) {
        print_text(b->to, r);
    } else {
        if (r->weft >= 0)
            print_json(b->to, r, true);
        if (r->raw >= 0)
            print_json(b->to, r, false);
    }
    fflush(b->to);
}

/* ---- the command ----------------------------------------------------------------------------- */

static const char *const transports[] = {"shm", "uds", "tcp", "tls"};
#define N_TRANSPORTS ((int)(sizeof transports / sizeof *transports))

static const char *const measures[] = {"one way", "round trip", "64 peers", "idle", "cache line"};
#define N_MEASURES ((int)(sizeof measures / sizeof *measures))

static weft_status run_all(struct bench *b, const char *only, const char *measure, int64_t bytes,
                           int blocks)
{
    weft_ctx *ctx;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);

    if (st)
        return st;
    for (int i = 0; i < N_TRANSPORTS && !st; i++) {
        if (strcmp(only, "all") != 0 && strcmp(only, transports[i]) != 0)
            continue;
        st = weft_net_bench(ctx, WEFT_OPTS(weft_net_bench_opts, .transport = transports[i],
                                           .bytes = bytes, .blocks = blocks, .measure = measure,
                                           .folder = b->folder, .start = start_peer, .row = on_row,
                                           .arg = b));
        if (b->peer > 0) { /* its socket is closed: it ends by itself */
            if (st)
                kill(b->peer, SIGKILL);
            waitpid(b->peer, NULL, 0);
            b->peer = 0;
        }
    }
    weft_ctx_free(ctx);
    return st;
}

static int bench(const char *only, const char *measure, int64_t bytes, int blocks, const char *json)
{
    struct bench b = {.folder = "/tmp/weft-bench-XXXXXX", .to = stdout, .json = json != NULL};
    pthread_t thread;
    sigset_t set;
    weft_status st;

    if (json && strcmp(json, "-") && !(b.to = fopen(json, "w")))
        return fail(EXIT_INPUT, "cannot write %s", json);
    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (!mkdtemp(b.folder))
        return fail(EXIT_FAILED, "bench net: cannot make a directory in /tmp: %s", strerror(errno));
    if (pthread_create(&thread, NULL, await_signal, &b)) {
        clean_up(&b);
        return fail(EXIT_FAILED, "bench net: no thread can be started");
    }
    st = run_all(&b, only, measure, bytes, blocks);
    if (st)
        fail_status(st, "bench net");
    clean_up(&b);
    if (b.to != stdout)
        fclose(b.to);
    return st ? EXIT_FAILED : EXIT_DONE;
}

static int run(int argc, char **argv)
{
    const char *transport = "all", *json = NULL, *only = NULL;
    int bytes = 64 << 20, blocks = 9, peer = -1, n;
    const struct flag flags[] = {
        {"transport", FLAG_TEXT, "NAME|all", "shm, uds, tcp or tls; default: all", &transport},
        {"measure", FLAG_TEXT, "NAME", "only this one of those above; default: all", &only},
        {"bytes", FLAG_INT, "N", "bytes of a message one way; default 67108864", &bytes},
        {"blocks", FLAG_INT, "N", "measured blocks; reports the median; default 9", &blocks},
        {"json", FLAG_TEXT, "FILE|-", "write JSON, one object per line", &json},
        {"peer", FLAG_INT, "FD", "used by the command itself for the second process", &peer},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };

    n = parse_flags(&command_bench_net, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 0)
        return fail(EXIT_USAGE, "bench net: unexpected argument '%s'", argv[0]);
    if (peer >= 0)
        return run_peer(peer);
    if (strcmp(transport, "all") &&
        !check_word("bench net", "transport", transport, transports, N_TRANSPORTS))
        return EXIT_USAGE;
    if (only && !check_word("bench net", "measure", only, measures, N_MEASURES))
        return EXIT_USAGE;
    if (blocks < 1 || blocks > MAX_BLOCKS || bytes < 1)
        return fail(EXIT_USAGE, "bench net: --blocks takes 1 to %d, --bytes 1 to 2147483647",
                    MAX_BLOCKS);
    return bench(transport, only, bytes, blocks, json);
}

const struct command command_bench_net = {
    .name = "bench net",
    .args = "",
    .summary = "measure the transports between processes",
    .text =
        "Two processes of this machine exchange bytes, over weft's links and without them (plain "
        "sockets,\nplain OpenSSL with the same options), in turns and in the same run. Each figure "
        "is "
        "the median of\nblocks; the ratio says what weft costs.\n\n"
        "  one way      a message of --bytes is sent, and the receiver says when it has all of it\n"
        "  round trip   64 bytes there and back; spinning: neither side sleeps while it waits\n"
        "  64 peers     4 KB each way over 64 links of one loop, in sum, against one link\n"
        "  idle         the processor time of a process with 64 links that say nothing\n"
        "  cache line   the time a cache line takes from one thread to another\n\n"
        "Stop other work on the machine first: both processes need a core.\n",
    .run = run,
};
