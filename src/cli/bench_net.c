/* bench_net.c - weft bench net: how fast bytes go between processes. The command starts itself
 * as the other ones. Nothing is left behind, also after Ctrl-C. */
#define _GNU_SOURCE
#include <fcntl.h>

#include <weft/sys/net.h>

#include "bench_mpi.h"
#include "cli.h"
#include "procs.h"

enum { MAX_BLOCKS = 1000 };

struct bench {
    struct procs procs;
    FILE *to;
    bool json;
    int n_limits, n_missed;
};

/* ---- the other processes --------------------------------------------------------------------- */

static weft_status start_peer(void *arg, int fd)
{
    struct bench *b = arg;
    char text[16];
    char *argv[] = {"weft", "bench", "net", "--peer", text, NULL};
    int flags = fcntl(fd, F_GETFD);
    bool ok;

    snprintf(text, sizeof text, "%d", fd);
    fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
    ok = procs_start(&b->procs, argv);
    fcntl(fd, F_SETFD, flags);
    return ok ? WEFT_OK : WEFT_ENOMEM;
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
            "\"blocks\": %d, \"connections\": %d, \"peer\": \"%s\", \"version\": \"%s\", "
            "\"%s\": %.4g",
            r->measure, r->transport, r->mode, (long long)r->bytes, r->blocks,
            weft ? r->connections : 1,
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
    if (r->connections > 1)
        snprintf(what + strlen(what), sizeof what - strlen(what), ", %d connections",
                 r->connections);
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

    b->n_limits += r->target > 0;
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

/* ---- beside Open MPI ------------------------------------------------------------------------- */

static void print_mpi(struct bench *b, const char *transport, const char *measure, const char *mode,
                      int64_t bytes, int blocks, const struct mpi_figures *f, double value)
{
    const char *unit = !strcmp(measure, "one way") ? "GB/s" : "us";
    char what[64], size[32];

    if (b->json) {
        fprintf(b->to,
                "{\"measure\": \"%s\", \"transport\": \"%s\", \"mode\": \"%s\", \"bytes\": %lld, "
                "\"blocks\": %d, \"connections\": 1, \"peer\": \"%s\", \"%s\": %.4g}\n",
                measure, transport, mode, (long long)bytes, blocks, f->version, key_of(unit),
                value);
    } else {
        snprintf(what, sizeof what, "%s, %s", measure, mode);
        snprintf(size, sizeof size, bytes >= 1 << 20 ? "%lld MB" : "%lld B",
                 (long long)(bytes >= 1 << 20 ? bytes >> 20 : bytes));
        fprintf(b->to, "%-4s %-34s %7s  %s %8.3f %s\n", transport, what, size, f->version, value,
                unit);
    }
    fflush(b->to);
}

/* The same messages, right after weft's. Whoever has no Open MPI loses these lines alone. */
static void compare_mpi(struct bench *b, const char *transport, const char *measure, int64_t bytes,
                        int blocks)
{
    struct mpi_figures f;
    char why[256];
    bool ways = !measure || !strcmp(measure, "one way"),
         trips = !measure || !strcmp(measure, "round trip");

    if (!mpi_has(transport) || (!ways && !trips))
        return;
    if (!mpi_measure(&b->procs, transport, bytes, blocks, &f, why)) {
        if (!b->json)
            fprintf(b->to, "%-4s not compared: %s\n", transport, why);
        return;
    }
    if (ways)
        print_mpi(b, transport, "one way",
                  !strcmp(transport, "shm") ? "every byte touched" : "no checksums", bytes, blocks,
                  &f, 1e-9 * (double)bytes / f.one_way_s);
    if (trips)
        print_mpi(b, transport, "round trip", "spinning", 64, blocks, &f, 1e6 * f.round_trip_s);
}

/* ---- the command ----------------------------------------------------------------------------- */

static const char *const transports[] = {"shm", "uds", "tcp", "tls"};
#define N_TRANSPORTS ((int)(sizeof transports / sizeof *transports))

static const char *const measures[] = {"one way", "round trip", "64 peers", "idle", "cache line"};
#define N_MEASURES ((int)(sizeof measures / sizeof *measures))

static weft_status run_all(struct bench *b, const char *only, const char *measure, int64_t bytes,
                           int blocks, int connections)
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
                                           .folder = b->procs.folder, .start = start_peer,
                                           .connections = connections, .row = on_row, .arg = b));
        if (!st)
            procs_wait(&b->procs, 10); /* their sockets are closed: they end by themselves */
        if (!st)
            compare_mpi(b, transports[i], measure, bytes, blocks);
    }
    weft_ctx_free(ctx);
    return st;
}

static int bench(const char *only, const char *measure, int64_t bytes, int blocks, int connections,
                 const char *json)
{
    struct bench b = {.to = stdout, .json = json != NULL};
    weft_status st;

    if (json && strcmp(json, "-") && !(b.to = fopen(json, "w")))
        return fail(EXIT_INPUT, "cannot write %s", json);
    if (!procs_open(&b.procs, "bench net")) {
        if (b.to != stdout)
            fclose(b.to);
        return EXIT_FAILED;
    }
    st = run_all(&b, only, measure, bytes, blocks, connections);
    if (st)
        fail_status(st, "bench net");
    else if (!b.json && b.n_limits > 0)
        fprintf(b.to, "%d of %d limits are reached\n", b.n_limits - b.n_missed, b.n_limits);
    procs_close(&b.procs);
    if (b.to != stdout)
        fclose(b.to);
    return st ? EXIT_FAILED : EXIT_DONE;
}

static int run(int argc, char **argv)
{
    const char *transport = "all", *json = NULL, *only = NULL, *mpi = NULL;
    int bytes = 64 << 20, blocks = 9, connections = 0, peer = -1, n;
    const struct flag flags[] = {
        {"transport", FLAG_TEXT, "NAME|all", "shm, uds, tcp or tls; default: all", &transport},
        {"measure", FLAG_TEXT, "NAME", "only this one of those above; default: all", &only},
        {"bytes", FLAG_INT, "N", "bytes of a message one way; default 67108864", &bytes},
        {"blocks", FLAG_INT, "N", "measured blocks; reports the median; default 9", &blocks},
        {"connections", FLAG_INT, "N",
         "connections of a pair over tcp and tls, 1 to 8; default: as many as weft chooses",
         &connections},
        {"json", FLAG_TEXT, "FILE|-", "write JSON, one object per line", &json},
        {"peer", FLAG_INT, "FD", "used by the command itself for the other processes", &peer},
        {"mpi", FLAG_TEXT, "HOW", "used by the command itself under mpirun", &mpi},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };

    n = parse_flags(&command_bench_net, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 0)
        return fail(EXIT_USAGE, "bench net: unexpected argument '%s'", argv[0]);
    if (peer >= 0)
        return run_peer(peer);
    if (mpi)
        return mpi_rank(mpi);
    if (strcmp(transport, "all") &&
        !check_word("bench net", "transport", transport, transports, N_TRANSPORTS))
        return EXIT_USAGE;
    if (only && !check_word("bench net", "measure", only, measures, N_MEASURES))
        return EXIT_USAGE;
    if (blocks < 1 || blocks > MAX_BLOCKS || bytes < 1)
        return fail(EXIT_USAGE, "bench net: --blocks takes 1 to %d, --bytes 1 to 2147483647",
                    MAX_BLOCKS);
    if (connections < 0 || connections > 8)
        return fail(EXIT_USAGE, "bench net: --connections takes 1 to 8");
    return bench(transport, only, bytes, blocks, connections, json);
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
        "  one way      a message of --bytes is sent, and the receiver says when it has all of "
        "it;\n"
        "               over shm one thread writes every byte, and one of the other process reads "
        "it\n"
        "  round trip   a thread sends 64 bytes and waits for them to come back; spinning: "
        "neither\n"
        "               side sleeps while it waits. Raw sockets that sleep do so with epoll, as a\n"
        "               program must that serves more than one of them\n"
        "  64 peers     4 KB each way between one process and 64 others, in sum, against one of "
        "them\n"
        "  idle         the processor time of a process with 64 peers that say nothing\n"
        "  cache line   the time a cache line takes from one thread to another\n\n"
        "Where Open MPI is installed, two of its ranks send the same messages over shm and tcp.\n"
        "Stop other work on the machine first: both processes need a core.\n",
    .run = run,
};
