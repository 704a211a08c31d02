/* bench_ps.c - weft bench ps: training through parameter servers in processes of this machine.
 *
 * The command starts itself as chief, servers and workers; it is worker/0 itself. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <math.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <weft/sys/net.h>

#include "bench_ps.h"

enum { MAX_TASKS = 260, N_SIDES = 3, MAX_BATCH = 1 << 20 };

/* ---- measuring ------------------------------------------------------------------------------- */

/* What is measured: through servers, or what that is compared with. */
struct side {
    struct setting s;
    const weft_ps_opts *ps; /* NULL: local */
    bool local, one;        /* local; one worker */
    struct training t;
    weft_dist_counts before, after;
    double rate[MAX_BLOCKS], total;
};

static weft_status open_side(struct side *d, const struct shape *shape)
{
    weft_status st = open_training(&d->s, shape, d->ps, &d->t);

    d->before.size = d->after.size = sizeof d->before;
    if (!st)
        st = run_steps(&d->t, WARM_UP);
    if (!st && d->ps)
        st = weft_dist_count(d->t.dist, &d->before);
    return st;
}

static weft_status run_block(struct side *d, int steps, int block)
{
    double begin = wall_clock(), took;
    weft_status st = run_steps(&d->t, steps);

    took = wall_clock() - begin;
    d->total += took;
    d->rate[block] = steps / took;
    return st;
}

static struct figures figures_of(const struct side *d, int steps)
{
    double rate[MAX_BLOCKS];
    int blocks = d->s.blocks;

    if (d->s.shards == 1 && d->s.workers > 1) /* of this worker */
        steps = (int)(d->after.shards - d->before.shards) / blocks;
    steps = steps > 0 ? steps : 1;
    memcpy(rate, d->rate, sizeof rate);
    return (struct figures){.steps_s = median_of(rate, blocks),
                            .waited = (d->after.waited_s - d->before.waited_s) / d->total,
                            .bytes_step = (double)(d->after.sent - d->before.sent +
                                                   d->after.received - d->before.received) /
                                          steps / blocks,
                            .staleness = d->after.staleness,
                            .staleness_most = d->after.staleness_most};
}

/* The median of the first side's blocks over another's. */
static double ratio_of(const struct side *a, const struct side *b)
{
    double of[MAX_BLOCKS];

    for (int i = 0; i < a->s.blocks; i++)
        of[i] = a->rate[i] / b->rate[i];
    return median_of(of, a->s.blocks);
}

/* Blocks of all sides in turns: what else the machine does meanwhile slows all of them. ratio: of
 * the first side to each of the others. */
static weft_status measure(struct side *side, int n, const struct shape *shape, struct figures *f,
                           double *ratio)
{
    int steps = side->s.steps ? side->s.steps : shape->steps, blocks = side->s.blocks;
    weft_status st = WEFT_OK;

    for (int k = 0; k < n && !st; k++)
        st = open_side(&side[k], shape);
    for (int i = 0; i < blocks && !st; i++)
        for (int k = 0; k < n && !st; k++)
            st = run_block(&side[k], steps, i);
    for (int k = 0; k < n && !st; k++) {
        if (side[k].ps)
            st = weft_dist_count(side[k].t.dist, &side[k].after);
        f[k] = figures_of(&side[k], steps);
        ratio[k] = ratio_of(&side[0], &side[k]);
    }
    for (int k = 0; k < n; k++)
        close_training(&side[k].t);
    return st;
}

/* ---- asynchronous training ------------------------------------------------------------------- */

static bool is_async(const struct setting *s)
{
    return strcmp(s->consistency, "sync") != 0;
}

/* A block of small steps lasts long enough for its end, at which all workers wait, not to count. */
static int async_steps(const struct setting *s, const struct shape *shape)
{
    return s->steps ? s->steps : shape->steps * (shape->batch * shape->size[0] > 1 << 17 ? 4 : 10);
}

/* Blocks of a fit, and in turns with them those of steps of another job. */
struct turns {
    struct side *side;
    int n, steps, other_steps;
    double begin;
    weft_status st;
};

static weft_status end_turn(void *arg, int block)
{
    struct turns *t = arg;
    struct side *d = &t->side[0];
    double took = wall_clock() - t->begin;
    weft_status st = WEFT_OK;

    if (block >= 0) {
        d->total += took;
        d->rate[block] = t->steps / took;
    } else {
        st = weft_dist_count(d->t.dist, &d->before);
    }
    for (int k = 1; k < t->n && !st && block >= 0; k++)
        st = run_block(&t->side[k], t->other_steps, block);
    if (!st && block + 1 == d->s.blocks)
        st = weft_dist_count(d->t.dist, &d->after);
    t->begin = wall_clock();
    return st;
}

static weft_status measure_async(struct side *side, int n, const struct shape *shape,
                                 struct figures *f, double *ratio)
{
    struct turns t = {side, n, async_steps(&side->s, shape), shape->steps, wall_clock(), WEFT_OK};
    weft_status st;

    side->before.size = side->after.size = sizeof side->before;
    st = open_training(&side->s, shape, side->ps, &side->t);
    for (int k = 1; k < n && !st; k++) {
        struct shape other = shape_of(&side[k].s);

        st = open_side(&side[k], &other);
    }
    if (!st)
        st = run_fit(&side->t, side->s.blocks, t.steps, end_turn, &t);
    for (int k = 0; k < n && !st; k++) {
        if (k > 0)
            st = weft_dist_count(side[k].t.dist, &side[k].after);
        f[k] = figures_of(&side[k], k ? t.other_steps : t.steps);
        ratio[k] = ratio_of(&side[0], &side[k]);
    }
    for (int k = 0; k < n; k++)
        close_training(&side[k].t);
    return st;
}

/* ---- the tasks ------------------------------------------------------------------------------- */

static weft_ps_opts options(const struct setting *s, char path[3][128])
{
    char task[32];
    char *slash;

    snprintf(task, sizeof task, "%s", s->task);
    slash = strchr(task, '/');
    if (slash)
        *slash = '-';
    snprintf(path[0], 128, "%s/authority.pem", s->folder);
    snprintf(path[1], 128, "%s/%s.pem", s->folder, task);
    snprintf(path[2], 128, "%s/%s.key", s->folder, task);
    return (weft_ps_opts){.size = sizeof(weft_ps_opts),
                          .cluster = s->cluster,
                          .task = s->task,
                          .replicas = s->replicas,
                          .timeout_s = 10,
                          .consistency = s->consistency,
                          .authority = path[0],
                          .certificate = path[1],
                          .key = path[2]};
}

/* What this process has had in memory at most. */
static double most_memory(void)
{
    FILE *from = fopen("/proc/self/status", "r");
    char line[256];
    double kb = 0;

    while (from && fgets(line, sizeof line, from))
        if (sscanf(line, "VmHWM: %lf", &kb) == 1)
            break;
    if (from)
        fclose(from);
    return kb * 1024;
}

/* "2G", "500M": bytes; below 0: it is not a size. */
static int64_t size_of(const char *text)
{
    char *end;
    double n = strtod(text, &end);
    const char *unit = "KMG", *at = *end ? strchr(unit, *end) : NULL;

    if (end == text || !(n > 0 && n < 1e15) || (*end && (!at || end[1])))
        return -1;
    return (int64_t)(n * (at ? (double)((int64_t)1 << 10 * (at - unit + 1)) : 1));
}

/* What a server was busy with, for the process that has started it. */
static void on_report(void *arg, const weft_dist_counts *c)
{
    FILE *to = fopen(arg, "w");

    if (!to)
        return;
    fprintf(to, "%.9f %lld %.0f\n", c->busy_s, (long long)c->messages, most_memory());
    fclose(to);
}

static void name_report(const char *folder, int server, char *path, size_t size)
{
    snprintf(path, size, "%s/ps-%d.busy", folder, server);
}

/* The sums of all servers. */
static void read_reports(const struct setting *s, const struct procs *p, double *busy_s,
                         double *messages, double *memory)
{
    *busy_s = *messages = *memory = 0;
    for (int i = 0; i < s->servers; i++) {
        char path[160];
        double busy = 0, n = 0, most = 0;
        FILE *from;

        name_report(p->folder, i, path, sizeof path);
        from = fopen(path, "r");
        if (from && fscanf(from, "%lf %lf %lf", &busy, &n, &most) == 3) {
            *memory = fmax(*memory, most);
            *busy_s += busy;
            *messages += n;
        }
        if (from)
            fclose(from);
    }
}

/* A process that the command has started. */
static int run_task(const struct setting *s, const struct shape *shape)
{
    char path[3][128];
    weft_ps_opts o = options(s, path);
    struct side side = {.s = *s, .ps = &o};
    struct figures f;
    double ratio;
    char report[160];
    weft_ctx *ctx;
    weft_status st;

    if (strncmp(s->task, "ps/", 3) == 0) {
        name_report(s->folder, atoi(s->task + 3), report, sizeof report);
        o.report = on_report;
        o.call_arg = report;
    }
    if (strncmp(s->task, "worker", 6) == 0) {
        st = is_async(s) ? measure_async(&side, 1, shape, &f, &ratio)
                         : measure(&side, 1, shape, &f, &ratio);
    } else {
        bool limited = s->limit && strncmp(s->task, "ps/", 3) == 0;

        st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = s->threads,
                                    .memory_limit = limited ? size_of(s->limit) : 0),
                          &ctx);
        if (!st)
            st = weft_ps_serve(ctx, &o);
        weft_ctx_free(ctx);
    }
    return st ? fail_status(st, s->task) : EXIT_DONE;
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = 0;

    if (fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) &&
        !getsockname(fd, (struct sockaddr *)&a, &n))
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

static void add_address(const struct setting *s, const struct procs *p, const char *name,
                        char *text, size_t size)
{
    size_t n = strlen(text);

    if (strcmp(s->transport, "tcp") == 0 || strcmp(s->transport, "tls") == 0)
        snprintf(text + n, size - n, "%s:127.0.0.1:%d", s->transport, free_port());
    else
        snprintf(text + n, size - n, "%s:%s/%s%s", s->transport, p->folder, s->prefix, name);
}

static void list_tasks(const struct setting *s, const struct procs *p, char *cluster, size_t size)
{
    char name[16];

    snprintf(cluster, size, "chief=");
    add_address(s, p, "chief", cluster, size);
    for (int i = 0; i < s->servers; i++) {
        size_t n = strlen(cluster);

        snprintf(cluster + n, size - n, i ? "," : ";ps=");
        snprintf(name, sizeof name, "ps%d", i);
        add_address(s, p, name, cluster, size);
    }
    snprintf(cluster + strlen(cluster), size - strlen(cluster), ";worker=%d", s->workers);
}

static bool start_task(const struct setting *s, struct procs *p, const char *role, int k)
{
    const struct {
        const char *flag;
        int value;
    } row[] = {{"--bytes", s->bytes},        {"--servers", s->servers}, {"--workers", s->workers},
               {"--replicas", s->replicas},  {"--threads", s->threads}, {"--blocks", s->blocks},
               {"--steps", s->steps},        {"--batch", s->batch},     {"--rows", s->rows},
               {"--width", s->width_of_row}, {"--tables", s->tables},   {"--forget", s->forget}};
    enum { N = sizeof row / sizeof *row };
    char task[32], number[N][16];
    const char *argv[] = {"weft",
                          "bench",
                          "ps",
                          "--as",
                          task,
                          "--cluster",
                          s->cluster,
                          "--folder",
                          p->folder,
                          "--workload",
                          s->workload ? s->workload : "bytes",
                          "--consistency",
                          s->consistency,
                          [13 + 2 * N + 2] = NULL};
    int n = 13;

    snprintf(task, sizeof task, "%s/%d", role, k);
    for (int i = 0; i < N; i++) {
        snprintf(number[i], sizeof number[i], "%d", row[i].value);
        argv[n++] = row[i].flag;
        argv[n++] = number[i];
    }
    if (s->limit) {
        argv[n++] = "--limit";
        argv[n++] = s->limit;
    }
    return procs_start(p, (char *const *)(uintptr_t)argv);
}

static weft_status certify(const struct setting *s, const struct procs *p)
{
    static char name[MAX_TASKS][16];
    const char *tasks[MAX_TASKS];
    weft_ctx *ctx;
    weft_status st;
    int n = 0;

    if (strcmp(s->transport, "tls") != 0)
        return WEFT_OK;
    snprintf(name[n++], sizeof *name, "chief/0");
    for (int i = 0; i < s->servers; i++)
        snprintf(name[n++], sizeof *name, "ps/%d", i);
    for (int i = 0; i < s->workers; i++)
        snprintf(name[n++], sizeof *name, "worker/%d", i);
    for (int i = 0; i < n; i++)
        tasks[i] = name[i];
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    if (st)
        return st;
    st = weft_net_certify(ctx, p->folder, n, tasks, 1);
    weft_ctx_free(ctx);
    return st;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* What is to be reached, and what with. */
struct limit {
    const char *what;
    double value, limit; /* 0: there is none for this */
};

static struct limit limit_of(const struct setting *s, const struct figures *f, double ratio)
{
    bool one = s->servers == 1, shm = strcmp(s->transport, "shm") == 0;
    bool large = s->workload && strcmp(s->workload, "mlp-l") == 0;
    bool wide = s->workload && strcmp(s->workload, "widedeep") == 0;

    if (!s->workload && one && s->workers == 1 && shm && s->bytes == 64 << 20)
        return (struct limit){"GB/s, 6 times TensorFlow 2.21's parameter server",
                              2 * (double)s->bytes * f->steps_s * 1e-9, 7.5};
    if (one && s->workers == 2 && (large || wide) && strcmp(s->against, "local") == 0)
        return (struct limit){"of local", ratio, large ? 0.8 : 0.6};
    if (s->servers == 2 && s->workers == 2 && large && shm && s->replicas == 2 &&
        strcmp(s->against, "unreplicated") == 0)
        return (struct limit){"of the same without backups", ratio, 0.8};
    return (struct limit){NULL, 0, 0};
}

static void print_text(const struct setting *s, const struct shape *shape, const struct figures *f,
                       const double *ratio, FILE *to)
{
    struct limit l = limit_of(s, f, ratio[1]);

    fprintf(to, "%s, %d server%s, %d worker%s of %d thread%s, %s\n",
            s->workload ? shape->name : "push and pull", s->servers, s->servers > 1 ? "s" : "",
            s->workers, s->workers > 1 ? "s" : "", s->threads, s->threads > 1 ? "s" : "",
            s->transport);
    fprintf(to,
            "  %.1f steps/s, %.0f samples/s; waiting %.0f %% of the time; %.2f MB a step and "
            "worker\n",
            f->steps_s, f->steps_s * shape->batch, f->waited * 100, f->bytes_step * 1e-6);
    if (is_async(s))
        fprintf(to, "  staleness %.2f, at most %lld\n", f->staleness, (long long)f->staleness_most);
    if (ratio[1] > 0 && is_async(s))
        fprintf(to, "  sync over %s, in samples/s: %.2f\n", s->consistency, s->workers / ratio[1]);
    else if (ratio[1] > 0 && strcmp(s->against, "one") != 0)
        fprintf(to, "  %.2f of %s\n", ratio[1], s->against);
    if (ratio[2] > 0)
        fprintf(to, "  speed-up over one worker: %.2f\n", ratio[2]);
    if (shape->fresh && f->memory > 0)
        fprintf(to, "  the largest server had %.2f GB in memory at most\n", f->memory * 1e-9);
    if (!s->workload)
        fprintf(to, "  %.3f GB/s of parameters, there and back\n",
                2 * (double)s->bytes * f->steps_s * 1e-9);
    if (l.what)
        fprintf(to, "  limit %.2f %s: %s\n", l.limit, l.what,
                l.value >= l.limit ? "reached" : "not reached");
}

static void print(const struct setting *s, const struct shape *shape, const struct figures *f,
                  const double *ratio, FILE *to)
{
    struct limit l = limit_of(s, f, ratio[1]);

    if (!s->json) {
        print_text(s, shape, f, ratio, to);
        return;
    }
    fprintf(to,
            "{\"workload\": \"%s\", \"peer\": \"weft\", \"version\": \"%s\", \"consistency\": "
            "\"%s\", \"transport\": \"%s\", \"ps\": %d, \"servers\": %d, \"workers\": %d, "
            "\"replicas\": %d, \"threads\": %d, \"steps_s\": %.2f, \"samples_s\": %.1f, "
            "\"waiting\": %.3f, \"bytes_step\": %.0f, \"against\": \"%s\"",
            s->workload ? shape->name : "pushpull", weft_version(), s->consistency, s->transport,
            s->servers, s->servers, s->workers, s->replicas, s->threads, f->steps_s,
            f->steps_s * shape->batch, f->waited, f->bytes_step, s->against);
    if (ratio[1] > 0)
        fprintf(to, ", \"against_steps_s\": %.2f", f[1].steps_s);
    if (is_async(s))
        fprintf(to, ", \"staleness\": %.2f, \"staleness_most\": %lld", f->staleness,
                (long long)f->staleness_most);
    if (ratio[1] > 0 && is_async(s))
        fprintf(to, ", \"sync_over_async\": %.3f", s->workers / ratio[1]);
    else if (ratio[1] > 0 && strcmp(s->against, "one") != 0)
        fprintf(to, ", \"%s\": %.3f",
                strcmp(s->against, "local") == 0 ? "of_local" : "of_unreplicated", ratio[1]);
    if (ratio[2] > 0)
        fprintf(to, ", \"speedup\": %.3f", ratio[2]);
    if (shape->fresh)
        fprintf(to, ", \"tables\": %d, \"rows\": %d, \"width\": %d, \"server_bytes\": %.0f",
                shape->n_tables, shape->n_rows, shape->row_width, f->memory);
    if (!s->workload)
        fprintf(to, ", \"bytes\": %d, \"ms\": %.2f, \"gb_s\": %.3f", s->bytes, 1e3 / f->steps_s,
                2 * (double)s->bytes * f->steps_s * 1e-9);
    if (l.what)
        fprintf(to, ", \"limit\": %.2f, \"reached\": %s", l.limit,
                l.value >= l.limit ? "true" : "false");
    fprintf(to, "}\n");
}

/* Starts all processes of a job but worker/0, which is this one. */
static bool start_job(struct setting *s, struct procs *p, char *cluster, size_t size)
{
    bool ok;

    list_tasks(s, p, cluster, size);
    s->cluster = cluster;
    s->folder = p->folder;
    s->task = "worker/0";
    ok = start_task(s, p, "chief", 0);
    for (int i = 0; i < s->servers && ok; i++)
        ok = start_task(s, p, "ps", i);
    for (int i = 1; i < s->workers && ok; i++)
        ok = start_task(s, p, "worker", i);
    return ok;
}

/* The sides of a measurement: the job, what it is compared with, and one worker that computes all
 * shards. Processes of one wait while those of another work. */
static int list_sides(const struct setting *s, struct side *side)
{
    bool none = strcmp(s->against, "none") == 0, one = strcmp(s->against, "one") == 0;
    int n = 1;

    memset(side, 0, N_SIDES * sizeof *side);
    for (int k = 0; k < N_SIDES; k++) {
        static const char *const prefix[N_SIDES] = {"", "other-", "one-"};

        side[k].s = *s;
        if (k > 0)
            side[k].s.prefix = prefix[k];
    }
    if (none)
        return n;
    if (is_async(s)) { /* as many samples of each worker in a step of all */
        side[n].s.consistency = "sync";
        side[n].s.shards = s->workers;
        side[n].s.batch = shape_of(s).batch * s->workers;
        return n + 1;
    }
    if (!one) {
        side[n].local = strcmp(s->against, "local") == 0;
        side[n++].s.replicas = 1;
    }
    if (one || s->workers > 1) {
        side[n].one = true;
        side[n++].s.workers = 1;
    }
    return n;
}

static weft_status bench_sides(const struct setting *s, const struct shape *shape, struct procs *p,
                               struct figures *f, double *ratio)
{
    static char cluster[N_SIDES][1 << 16];
    static struct side side[N_SIDES];
    char path[N_SIDES][3][128];
    weft_ps_opts o[N_SIDES];
    double of[N_SIDES] = {0};
    weft_status st = certify(s, p);
    int n = list_sides(s, side);
    bool ok = true;

    for (int k = 0; k < n && !st && ok; k++) {
        if (side[k].local)
            continue;
        ok = start_job(&side[k].s, p, cluster[k], sizeof cluster[k]);
        o[k] = options(&side[k].s, path[k]);
        side[k].ps = &o[k];
    }
    if (!st && ok)
        st = is_async(s) ? measure_async(side, n, shape, f, of) : measure(side, n, shape, f, of);
    for (int k = 1; k < n; k++) {
        ratio[1] = k == 1 ? of[k] : ratio[1];
        ratio[2] = side[k].one ? of[k] : ratio[2];
    }
    if (!st && (!ok || !procs_wait(p, 10))) {
        fail(EXIT_FAILED, "bench ps: a process of the job failed");
        return WEFT_EPEER;
    }
    if (st)
        fail_status(st, "bench ps");
    return st;
}

weft_status bench_ps_alone(struct setting *s, const struct shape *shape, struct procs *p,
                           struct figures *f)
{
    double ratio[N_SIDES] = {0}, all = WARM_UP + s->blocks * (s->steps ? s->steps : shape->steps);
    struct figures each[N_SIDES];
    weft_status st;

    s->against = "none";
    st = bench_sides(s, shape, p, each, ratio);
    if (st)
        return st;
    *f = each[0];
    read_reports(s, p, &f->busy_s, &f->messages, &f->memory);
    f->busy_s /= all;
    f->messages /= all;
    return WEFT_OK;
}

static int bench(struct setting *s, const struct shape *shape)
{
    struct figures f[N_SIDES] = {{0}};
    double ratio[N_SIDES] = {0};
    struct procs p;
    weft_status st;
    FILE *to = stdout;

    if (s->json && strcmp(s->json, "-") && !(to = fopen(s->json, "w")))
        return fail(EXIT_INPUT, "cannot write %s", s->json);
    if (!procs_open(&p, "bench ps")) {
        if (to != stdout)
            fclose(to);
        return EXIT_FAILED;
    }
    st = bench_sides(s, shape, &p, f, ratio);
    if (!st) {
        double busy_s, messages;

        read_reports(s, &p, &busy_s, &messages, &f->memory);
    }
    procs_close(&p);
    if (!st)
        print(s, shape, f, ratio, to);
    if (to != stdout)
        fclose(to);
    return st ? EXIT_FAILED : EXIT_DONE;
}

static const char *const others[] = {"local", "one", "unreplicated", "sync", "none"};
#define N_OTHERS ((int)(sizeof others / sizeof *others))

static const char *const transports[] = {"shm", "uds", "tcp", "tls"};
#define N_TRANSPORTS ((int)(sizeof transports / sizeof *transports))

/* "stale(2)", to its end. */
static bool is_bound(const char *text)
{
    int n = 0, at = 0;

    return sscanf(text, "stale(%d)%n", &n, &at) == 1 && n > 0 && at > 0 && !text[at];
}

/* A table that is much larger than the memory of one process has nothing to be compared with. */
static int check_tables(const struct setting *s)
{
    bool any = s->rows || s->width_of_row || s->tables || s->forget;
    double bytes = 8.0 * s->rows * (s->width_of_row ? s->width_of_row : 16) *
                   (s->tables ? s->tables : MAX_TABLES);

    if (s->rows < 0 || s->width_of_row < 0 || s->width_of_row > 4096 || s->tables < 0 ||
        s->tables > MAX_TABLES || s->forget < 0 || (s->limit && size_of(s->limit) < 0))
        return fail(EXIT_USAGE,
                    "bench ps: --rows and --forget are 0 or more, --width 0 to 4096, --tables 0 to "
                    "%d, --limit a size as 2G or 500M",
                    MAX_TABLES);
    if (any && (!s->workload || strcmp(s->workload, "widedeep") != 0))
        return fail(EXIT_USAGE,
                    "bench ps: --rows, --width, --tables and --forget are for --workload widedeep");
    if (bytes > 4e9 && !s->task && strcmp(s->against, "local") == 0)
        return fail(EXIT_USAGE,
                    "bench ps: tables of %.1f GB do not fit into one process: add --against none",
                    bytes * 1e-9);
    return EXIT_DONE;
}

static int check(const struct setting *s)
{
    if (!check_word("bench ps", "transport", s->transport, transports, N_TRANSPORTS) ||
        !check_word("bench ps", "against", s->against, others, N_OTHERS))
        return EXIT_USAGE;
    if (is_async(s) && strcmp(s->consistency, "async") && !is_bound(s->consistency))
        return fail(EXIT_USAGE, "bench ps: --consistency '%s'; there are: sync, async and stale(S)",
                    s->consistency);
    if (s->servers < 1 || s->workers < 1 || s->servers + s->workers > MAX_TASKS - 4 ||
        s->threads < 1)
        return fail(EXIT_USAGE,
                    "bench ps: --servers, --workers and --threads are at least 1, and "
                    "at most %d tasks in all",
                    MAX_TASKS - 4);
    if (s->blocks < 1 || s->blocks > MAX_BLOCKS || s->steps < 0 || s->bytes < 1 || s->batch < 0 ||
        s->batch > MAX_BATCH)
        return fail(EXIT_USAGE,
                    "bench ps: --blocks takes 1 to %d, --bytes 1 to 2147483647, --batch 1 to %d",
                    MAX_BLOCKS, MAX_BATCH);
    return check_tables(s);
}

static int run(int argc, char **argv)
{
    struct setting s = {.transport = "shm",
                        .against = "local",
                        .prefix = "",
                        .bytes = 64 << 20,
                        .servers = 1,
                        .workers = 1,
                        .threads = 1,
                        .blocks = 5,
                        .consistency = "sync"};
    const char *svg = NULL, *names[16];
    bool simulate = false;
    struct shape shape;
    int n, n_names = 0;
    const struct flag flags[] = {
        {"workload", FLAG_TEXT, "NAME", "softmax64, mlp-s, mlp-l or widedeep; default: --bytes",
         &s.workload},
        {"bytes", FLAG_INT, "N", "size of a dense model; default 67108864", &s.bytes},
        {"servers", FLAG_INT, "N", "parameter servers; default 1", &s.servers},
        {"workers", FLAG_INT, "N", "workers, this process is one of them; default 1", &s.workers},
        {"replicas", FLAG_INT, "N", "of each piece of the parameters: 1 or 2", &s.replicas},
        {"threads", FLAG_INT, "N", "of each process; default 1", &s.threads},
        {"transport", FLAG_TEXT, "NAME", "shm, uds, tcp or tls; default shm", &s.transport},
        {"consistency", FLAG_TEXT, "sync|async|stale(S)",
         "whether workers wait for each other; default sync", &s.consistency},
        {"blocks", FLAG_INT, "N", "measured blocks; reports the median; default 5", &s.blocks},
        {"steps", FLAG_INT, "N", "of a block; default: by the workload", &s.steps},
        {"against", FLAG_TEXT, "NAME",
         "blocks in turns with: local, one (worker), unreplicated, sync (of --consistency async) "
         "or "
         "none; default local",
         &s.against},
        {"batch", FLAG_INT, "N", "samples of a step; default: by the workload", &s.batch},
        {"rows", FLAG_INT, "N",
         "of each table of widedeep; every step looks up others; default 100000, and always the "
         "same",
         &s.rows},
        {"width", FLAG_INT, "N", "of a row; default 16", &s.width_of_row},
        {"tables", FLAG_INT, "N", "of widedeep; default 26", &s.tables},
        {"forget", FLAG_INT, "STEPS", "rows that this many steps have not updated are forgotten",
         &s.forget},
        {"limit", FLAG_TEXT, "SIZE", "of each server's memory, as 2G; default: none", &s.limit},
        {"simulate", FLAG_BOOL, NULL,
         "predict up to 256 workers and 64 servers from costs that are measured here", &simulate},
        {"svg", FLAG_TEXT, "FILE", "of --simulate: write the curves as a picture", &svg},
        {"json", FLAG_TEXT, "FILE|-", "write JSON, one object per line", &s.json},
        {"as", FLAG_TEXT, "TASK", "used by the command itself for other processes", &s.task},
        {"cluster", FLAG_TEXT, "TASKS", "used by the command itself", &s.cluster},
        {"folder", FLAG_TEXT, "DIR", "used by the command itself", &s.folder},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };

    n = parse_flags(&command_bench_ps, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 0)
        return fail(EXIT_USAGE, "bench ps: unexpected argument '%s'", argv[0]);
    if (check(&s) != EXIT_DONE)
        return EXIT_USAGE;
    if (s.workload && s.task && strcmp(s.workload, "bytes") == 0)
        s.workload = NULL;
    while (shape_name(n_names)) {
        names[n_names] = shape_name(n_names);
        n_names++;
    }
    if (s.workload && !check_word("bench ps", "workload", s.workload, names, n_names))
        return EXIT_USAGE;
    if (simulate && !s.workload)
        s.workload = "mlp-l";
    if (simulate)
        return bench_ps_simulate(&s, svg);
    if (svg)
        return fail(EXIT_USAGE, "bench ps: --svg is for --simulate");
    if (is_async(&s) && (!s.workload || strcmp(s.workload, "widedeep") == 0))
        return fail(EXIT_USAGE,
                    "bench ps: --consistency %s needs --workload softmax64, mlp-s or "
                    "mlp-l",
                    s.consistency);
    if (is_async(&s) && strcmp(s.against, "local") == 0)
        s.against = "none";
    s.shards = is_async(&s) ? 1 : s.workers;
    shape = shape_of(&s);
    return s.task ? run_task(&s, &shape) : bench(&s, &shape);
}

const struct command command_bench_ps = {
    .name = "bench ps",
    .args = "",
    .summary = "measure training through parameter servers",
    .text = "Starts a chief, servers and workers as processes of this machine, and trains "
            "synchronously. Without\n--workload a dense model of --bytes: a step writes a fresh "
            "gradient, which is pushed, added and\napplied, and reads every byte of the parameters "
            "that are pulled.\n\n--against: blocks of both are "
            "measured in turns, and the median of their ratios is reported. local: one\nprocess "
            "with the threads of all workers, the same batch and shards. one: one worker that "
            "computes all\nshards. unreplicated: without backups of pieces. With several workers "
            "the speed-up "
            "over one is measured, too.\n\n--simulate: measures what the parts of a step cost "
            "here, compares predictions from them with real jobs of\n1 to 4 workers, and predicts "
            "larger ones over links of 10 and 100 Gbit. Each worker has a batch of its own.\nThe "
            "machines of servers and workers run in virtual time, as they are in real jobs.\n\n"
            "Stop other work on the machine first.\n",
    .run = run,
};
