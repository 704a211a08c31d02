/* sim.c - runs simulated jobs: `sim --seeds FROM:TO --jobs N`, `sim --seed N --trace`;
 * --real: with parameters and optimizers in place of hashes; --calm: nothing fails; --no-balance,
 * --no-backup: what slow workers have stays theirs; --mode async|stale: leases in place of steps;
 * --found FILE: the seeds of a file, each a line `MODE SEED`.
 * A seed that fails is shrunk: faults and disturbances that are not needed are left out. */
#include "sim.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct total {
    int64_t seeds, failed, ended;
    struct sim_counts n;
};

/* What all seeds of a run have in common. */
struct choice {
    bool real, calm, no_balance, no_backup;
    const char *mode; /* sync, stale or async */
};

struct range {
    uint64_t from, to, jobs;
    bool stop; /* at the first failure */
    struct choice choice;
};

static void draw(weft_ctx *ctx, struct sim_case *c, uint64_t seed, const struct choice *k)
{
    sim_draw(c, seed);
    if (strcmp(k->mode, "sync") != 0)
        sim_lease(c, strcmp(k->mode, "stale") == 0);
    if (k->real)
        sim_adapt(ctx, c);
    if (k->calm) {
        c->n_faults = c->drop = c->twice = c->hold = 0;
        memset(c->starts, 0, sizeof c->starts);
    }
    if (k->no_balance)
        c->balance_ns = 0;
    if (k->no_backup)
        c->backup = 0;
}

static bool fails(weft_ctx *ctx, const struct sim_case *c)
{
    struct sim_result r;

    sim_run(ctx, c, NULL, &r);
    return r.failed;
}

static void try_zero(weft_ctx *ctx, struct sim_case *c, int *field)
{
    int was = *field;

    *field = 0;
    if (was && !fails(ctx, c))
        *field = was;
}

/* Leaves out what is not needed for the failure. */
static void shrink(weft_ctx *ctx, struct sim_case *c)
{
    bool again = true;

    while (again) {
        again = false;
        for (int i = 0; i < c->n_faults; i++) {
            if (c->without >> i & 1)
                continue;
            c->without |= 1u << i;
            if (fails(ctx, c))
                again = true;
            else
                c->without &= ~(1u << i);
        }
    }
    try_zero(ctx, c, &c->drop);
    try_zero(ctx, c, &c->twice);
    try_zero(ctx, c, &c->hold);
    for (int64_t n = 1; n < c->plan.n_steps; n++) {
        int64_t was = c->plan.n_steps;

        c->plan.n_steps = n;
        if (fails(ctx, c))
            break;
        c->plan.n_steps = was;
    }
}

static void explain(weft_ctx *ctx, uint64_t seed, const struct choice *k, const char *program)
{
    struct sim_case c;
    struct sim_result r;

    draw(ctx, &c, seed, k);
    shrink(ctx, &c);
    sim_run(ctx, &c, NULL, &r);
    printf("seed %llu: %s\n", (unsigned long long)seed, r.what);
    printf("  %d chiefs, %d servers, %d workers, %d pieces, %d shards, %lld steps; replay with\n",
           c.n_chiefs, c.n_servers, c.n_workers, c.plan.n_pieces, c.plan.n_shards,
           (long long)c.plan.n_steps);
    printf("  %s --mode %s --seed %llu%s%s%s%s --trace --without %u --drop %d --twice %d --hold %d "
           "--steps "
           "%lld\n",
           program, k->mode, (unsigned long long)seed, k->real ? " --real" : "",
           k->calm ? " --calm" : "", k->no_balance ? " --no-balance" : "",
           k->no_backup ? " --no-backup" : "", c.without, c.drop, c.twice, c.hold,
           (long long)c.plan.n_steps);
}

static void add_total(struct total *all, const struct total *more)
{
    const int64_t *from = &more->seeds;
    int64_t *to = &all->seeds;

    for (size_t i = 0; i < sizeof *all / sizeof *to; i++)
        to[i] += from[i];
}

/* Every `jobs`-th seed from `from` on. */
static void run_some(weft_ctx *ctx, const struct range *r, uint64_t from, const char *program,
                     struct total *all)
{
    for (uint64_t seed = from; seed < r->to && (all->failed == 0 || !r->stop); seed += r->jobs) {
        struct sim_case c;
        struct sim_result s;

        draw(ctx, &c, seed, &r->choice);
        sim_run(ctx, &c, NULL, &s);
        add_total(all, &(struct total){1, s.failed, s.ended, s.n});
        if (s.failed)
            explain(ctx, seed, &r->choice, program);
    }
}

static weft_ctx *new_ctx(void)
{
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx)) {
        fprintf(stderr, "sim: %s\n", weft_error());
        exit(2);
    }
    return ctx;
}

static void run_job(const struct range *r, uint64_t from, const char *program, int to)
{
    struct total all = {0};
    weft_ctx *ctx = new_ctx();

    run_some(ctx, r, from, program, &all);
    weft_ctx_free(ctx);
    fflush(stdout);
    _exit(write(to, &all, sizeof all) == sizeof all ? 0 : 2);
}

static void print_total(const struct total *all)
{
    const struct sim_counts *n = &all->n;

    printf(
        "%lld seeds, %lld virtual seconds: %lld events, %lld messages, %lld epochs, %lld restores, "
        "%lld takeovers\n",
        (long long)all->seeds, (long long)(all->ended / (1000 * MS)), (long long)n->events,
        (long long)n->messages, (long long)n->epochs, (long long)n->restores,
        (long long)n->takeovers);
    printf("  %lld machines with a chief were cut off; %lld takeovers while the former chief ran\n",
           (long long)n->parted, (long long)n->displaced);
    printf("  %lld programs of workers hung, %lld times one was left out; %lld times a node was "
           "drained, %lld went\n",
           (long long)n->hangs, (long long)n->evictions, (long long)n->drains,
           (long long)n->drained);
    printf(
        "  %lld times a task was added beyond the list, %lld times a chief did not know one, %lld "
        "times a chief had given its number to another\n",
        (long long)n->added, (long long)n->refused, (long long)n->chief_restarts);
    printf(
        "  %lld jobs began with a checkpoint; %lld checkpoints were damaged, %lld jobs began again "
        "because of that; %lld outages of the store\n",
        (long long)n->resumed, (long long)n->damaged, (long long)n->again_at,
        (long long)n->outages);
    printf("  %lld times a server was found to be overloaded, or not any more\n",
           (long long)n->relieved);
    printf("  faults: %lld kills, %lld pauses, %lld partitions, %lld departures; messages: %lld "
           "lost, %lld cut off, %lld doubled, %lld late; the store: %lld late\n",
           (long long)n->kills, (long long)n->pauses, (long long)n->cuts, (long long)n->leaves,
           (long long)n->lost, (long long)n->cut_off, (long long)n->twice, (long long)n->late,
           (long long)n->store_late);
    printf(
        "  %lld pushes of several shards, %lld more with some that were there already; %lld epochs "
        "only moved shards, %lld shards were computed for others\n",
        (long long)n->sums, (long long)n->overlaps, (long long)n->balances, (long long)n->backups);
    printf("  %lld control records, %lld that somebody else had created; %lld times a worker read "
           "its memory\n",
           (long long)n->controls, (long long)n->repeated, (long long)n->holds);
    if (n->leases)
        printf(
            "  %lld leases applied to pieces, %lld closed once more, %lld pulls that waited; %lld "
            "pieces of which a new chief learned\n"
            "  %lld times a worker wanted a control record, %lld records that nobody planned, %lld "
            "checkpoints before a record\n",
            (long long)n->leases, (long long)n->again, (long long)n->waits, (long long)n->learned,
            (long long)n->halts, (long long)n->unplanned, (long long)n->asked_saves);
    if (n->compared)
        printf("  %lld contents of pieces compared with a replay of their leases\n",
               (long long)n->compared);
    printf("  %lld failed\n", (long long)all->failed);
}

/* All seeds, in `jobs` processes. */
static bool run_seeds(const struct range *r, const char *program)
{
    struct total all = {0};
    int pipes[2], n_lost = 0;

    fflush(stdout);
    if (pipe(pipes))
        return false;
    for (uint64_t i = 0; i < r->jobs; i++)
        if (fork() == 0)
            run_job(r, r->from + i, program, pipes[1]);
    close(pipes[1]);
    for (uint64_t i = 0; i < r->jobs; i++) {
        struct total more;
        int status;

        if (wait(&status) < 0 || status != 0)
            n_lost++;
        else if (read(pipes[0], &more, sizeof more) == sizeof more)
            add_total(&all, &more);
    }
    close(pipes[0]);
    print_total(&all);
    if (n_lost)
        printf("%d of %llu processes crashed\n", n_lost, (unsigned long long)r->jobs);
    return all.failed == 0 && n_lost == 0;
}

static long long number(int argc, char **argv, const char *flag, long long missing)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], flag) == 0)
            return strtoll(argv[i + 1], NULL, 10);
    return missing;
}

static bool has(int argc, char **argv, const char *flag)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], flag) == 0)
            return true;
    return false;
}

static bool run_one(weft_ctx *ctx, int argc, char **argv, uint64_t seed, const struct choice *k)
{
    struct sim_case c;
    struct sim_result r;

    draw(ctx, &c, seed, k);
    c.without = (unsigned)number(argc, argv, "--without", 0);
    c.drop = (int)number(argc, argv, "--drop", c.drop);
    c.twice = (int)number(argc, argv, "--twice", c.twice);
    c.hold = (int)number(argc, argv, "--hold", c.hold);
    c.plan.n_steps = number(argc, argv, "--steps", c.plan.n_steps);
    sim_run(ctx, &c, has(argc, argv, "--trace") ? stdout : NULL, &r);
    printf("seed %llu: %s (%lld events, %lld epochs, ended at %lld ms)\n", (unsigned long long)seed,
           r.failed ? r.what : "ok", (long long)r.n.events, (long long)r.n.epochs,
           (long long)(r.ended / MS));
    return !r.failed;
}

/* Seeds that failed once. */
static bool run_found(const char *path)
{
    FILE *f = fopen(path, "r");
    char line[256], mode[8];
    unsigned long long seed;
    weft_ctx *ctx;
    int n = 0, n_failed = 0;

    if (!f) {
        fprintf(stderr, "sim: cannot open %s\n", path);
        return false;
    }
    ctx = new_ctx();
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "%7[a-z] %llu", mode, &seed) == 2) {
            struct choice k = {.mode = mode};
            struct sim_case c;
            struct sim_result r;

            draw(ctx, &c, seed, &k);
            sim_run(ctx, &c, NULL, &r);
            n++;
            n_failed += r.failed;
            if (r.failed)
                printf("%s, seed %llu: %s\n", mode, seed, r.what);
        }
    fclose(f);
    weft_ctx_free(ctx);
    printf("%d seeds that failed once, %d failed\n", n, n_failed);
    return n > 0 && n_failed == 0;
}

/* "1000": the seeds below it; "1000:2000": those in between. */
static bool read_range(const char *text, struct range *r)
{
    char *end;

    r->to = strtoull(text, &end, 10);
    if (*end == ':') {
        r->from = r->to;
        r->to = strtoull(end + 1, &end, 10);
    }
    return end != text && *end == '\0' && r->to > r->from;
}

int main(int argc, char **argv)
{
    struct range r = {.to = 1000, .jobs = (uint64_t)number(argc, argv, "--jobs", 1)};
    bool ok;

    r.stop = has(argc, argv, "--stop");
    r.choice =
        (struct choice){has(argc, argv, "--real"), has(argc, argv, "--calm"),
                        has(argc, argv, "--no-balance"), has(argc, argv, "--no-backup"), "sync"};
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--mode") == 0)
            r.choice.mode = argv[i + 1];
    if (strcmp(r.choice.mode, "sync") != 0 && strcmp(r.choice.mode, "stale") != 0 &&
        strcmp(r.choice.mode, "async") != 0) {
        fprintf(stderr, "sim: --mode: expected sync, stale or async\n");
        return 2;
    }
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seeds") == 0 && !read_range(argv[i + 1], &r)) {
            fprintf(stderr, "sim: --seeds %s: expected N or FROM:TO\n", argv[i + 1]);
            return 2;
        }
    if (r.jobs < 1 || r.jobs > 1024) {
        fprintf(stderr, "sim: --jobs: expected 1 to 1024\n");
        return 2;
    }
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--found") == 0)
            return run_found(argv[i + 1]) ? 0 : 1;
    if (has(argc, argv, "--seed")) {
        weft_ctx *ctx = new_ctx();

        ok = run_one(ctx, argc, argv, (uint64_t)number(argc, argv, "--seed", 0), &r.choice);
        weft_ctx_free(ctx);
    } else {
        ok = run_seeds(&r, argv[0]);
    }
    return ok ? 0 : 1;
}
