/* graphs.c - random graphs, many seeds: the program.
 *
 *   graphs                           what the tests run
 *   graphs --seeds FROM:TO --jobs N  many seeds on several processes
 *   graphs --seed N --verbose        one seed: graph as text, configuration, first difference
 *   graphs --seed N --shrink         the smallest part of it that still fails
 *   graphs --faults FROM:TO          which share of known faults the check notices
 *   graphs --all FROM:TO             each graph of these seeds through every configuration
 *   graphs --device NAME ...         on a device with memory of its own: emulated, fake
 * --stop: not past the first seed that fails */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "random/random.h"

struct options {
    int64_t from, to, all_from, all_to, faults_from, faults_to;
    int jobs;
    bool verbose, shrink, cover, stop;
    const char *program, *device;
};

/* The current seed of a worker; the parent reads it if the worker dies. */
struct worker {
    pid_t pid;
    volatile int64_t seed, end;
    volatile int64_t n_failed;
    volatile int config;
};

static enum direction direction_of(struct draw *d)
{
    int64_t pick = draw_int(d, 0, 11);

    return pick < 2 ? GRADIENTS : pick < 3 ? SAME_BITS : AGAINST_PLAIN;
}

/* Returns whether it failed. `config` below 0: the seed chooses it. */
static bool run_seed(const struct options *o, int64_t seed, int config)
{
    struct draw d = draw_from((uint64_t)seed, 2);
    enum direction dir = direction_of(&d);
    struct config f = config_draw(&d);
    struct graph_case c;
    struct report r = {.failed = false};
    char buf[128];
    weft_status st;

    if (config >= 0) {
        dir = AGAINST_PLAIN;
        f = config_at(config);
    }
    if (dir == SAME_BITS)
        f.threads = 1;
    st = case_draw(&c, config_ctx(&f), (uint64_t)seed, dir == GRADIENTS);
    if (o->verbose)
        case_show(&c, &f, dir);
    if (!st && o->shrink)
        case_show_smaller(&c, &f, dir);
    if (st)
        snprintf(r.text, sizeof r.text, "drawing: %s", weft_error());
    else
        st = check_case(&c, &f, dir, &r);
    if (st || r.failed) {
        printf("seed %lld: %s\n  %s; %s\n  replay: %s --seed %lld", (long long)seed, r.text,
               direction_names[dir], config_text(&f, buf), o->program, (long long)seed);
        if (o->device)
            printf(" --device %s", o->device);
        if (config >= 0)
            printf(" --config %d", config);
        printf(" --shrink\n");
        fflush(stdout);
    }
    case_free(&c);
    return st || r.failed;
}

static void work(const struct options *o, struct worker *w)
{
    for (; w->seed < w->end && !(o->stop && w->n_failed); w->seed++) {
        time_limit(60);
        w->n_failed += run_seed(o, w->seed, -1);
    }
    configs_end();
}

static void start(const struct options *o, struct worker *w)
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid > 0)
        w->pid = pid; /* shared memory: the child must not write it */
    if (pid == 0) {
        work(o, w);
        fflush(stdout);
        _exit(0);
    }
}

/* Runs ranges of seeds on `jobs` processes. If one dies, its seed is reported and its range resumes
 * after that seed. */
static int64_t run_seeds(const struct options *o)
{
    struct worker *w = mmap(NULL, sizeof *w * (size_t)o->jobs, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int64_t n = o->to - o->from, n_failed = 0;
    int running = 0;

    for (int i = 0; i < o->jobs; i++) {
        w[i].seed = o->from + n * i / o->jobs;
        w[i].end = o->from + n * (i + 1) / o->jobs;
        w[i].config = -1;
        start(o, &w[i]);
        running++;
    }
    while (running > 0) {
        int status;
        pid_t pid = wait(&status);

        for (int i = 0; i < o->jobs; i++) {
            if (w[i].pid != pid)
                continue;
            running--;
            if (WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status))) {
                printf("seed %lld: killed by signal %d\n  replay: %s --seed %lld --shrink\n",
                       (long long)w[i].seed, WIFSIGNALED(status) ? WTERMSIG(status) : 0, o->program,
                       (long long)w[i].seed);
                w[i].n_failed++;
                w[i].seed++;
                if (o->stop)
                    continue;
                start(o, &w[i]);
                running++;
            }
        }
    }
    for (int i = 0; i < o->jobs; i++)
        n_failed += w[i].n_failed;
    munmap(w, sizeof *w * (size_t)o->jobs);
    return n_failed;
}

static bool parse(int argc, char **argv, struct options *o, int64_t *seed, int *config)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        long long from, to;

        if (!strcmp(a, "--verbose")) {
            o->verbose = true;
        } else if (!strcmp(a, "--shrink")) {
            o->shrink = true;
        } else if (!strcmp(a, "--stop")) {
            o->stop = true;
        } else if (!strcmp(a, "--seeds") && sscanf(v, "%lld:%lld", &from, &to) == 2) {
            o->from = from;
            o->to = to;
            o->all_to = o->all_from;
            o->cover = false;
            i++;
        } else if (!strcmp(a, "--all") && sscanf(v, "%lld:%lld", &from, &to) == 2) {
            o->all_from = from;
            o->all_to = to;
            o->to = o->from;
            o->cover = false;
            i++;
        } else if (!strcmp(a, "--faults") && sscanf(v, "%lld:%lld", &from, &to) == 2) {
            o->faults_from = from;
            o->faults_to = to;
            i++;
        } else if (!strcmp(a, "--seed") && *v) {
            *seed = atoll(v);
            i++;
        } else if (!strcmp(a, "--config") && *v) {
            *config = atoi(v);
            i++;
        } else if (!strcmp(a, "--jobs") && atoi(v) > 0) {
            o->jobs = atoi(v);
            i++;
        } else if (!strcmp(a, "--device") && configs_on(v)) {
            o->device = v;
            o->cover = o->cover && !strcmp(v, "emulated"); /* the fake one takes nothing over */
            i++;
        } else {
            fprintf(stderr,
                    "usage: %s [--seeds FROM:TO] [--all FROM:TO] [--faults FROM:TO] [--jobs N] "
                    "[--seed N [--config "
                    "K]] [--device emulated|fake] [--verbose] [--shrink] [--stop]\n",
                    argv[0]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL;
    struct options o = {.from = 0,
                        .to = quick ? 300 : 2600,
                        .all_from = 0,
                        .all_to = quick ? 4 : 30,
                        .jobs = 1,
                        .cover = !quick,
                        .program = argv[0]};
    struct timespec a, b;
    int64_t seed = -1, n_failed = 0;
    int config = -1;
    weft_ctx *ctx = NULL;

    cover_begin();
    if (!parse(argc, argv, &o, &seed, &config))
        return 2;
    if (o.faults_to > o.faults_from) {
        bool noticed = faults_noticed(o.faults_from, o.faults_to);

        configs_end();
        return !noticed;
    }
    if (seed >= 0) {
        bool failed = run_seed(&o, seed, config);

        configs_end();
        printf("seed %lld: %s\n", (long long)seed, failed ? "FAILED" : "ok");
        return failed;
    }
    clock_gettime(CLOCK_MONOTONIC, &a);
    n_failed = run_seeds(&o);
    for (int64_t s = o.all_from; s < o.all_to; s++)
        for (int i = 0; i < n_configs(); i++)
            n_failed += run_seed(&o, s, i);
    if (o.cover && !o.device && !faults_noticed(0, 30)) {
        printf("too few faults are detected\n");
        n_failed++;
    }
    configs_end();
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (o.cover && draw_overlaps()) {
        printf("neighboring seeds draw the same numbers\n");
        n_failed++;
    }
    if (o.cover && !weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx)) {
        n_failed += cover_report(ctx, stdout);
        weft_ctx_free(ctx);
    }
    printf("%lld seeds, %lld graphs in all %d configurations: %lld failures, %.1f s\n",
           (long long)(o.to - o.from), (long long)(o.all_to - o.all_from), n_configs(),
           (long long)n_failed,
           (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    return n_failed != 0;
}
