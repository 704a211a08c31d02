/* leased_params_test.c - parameter calls in asynchronous training: a program gets shards one by
 * one, and each is applied once, whoever dies.
 *
 * Increments add up exactly in any order: shard l of step t adds 1 to a cell of its own and to a
 * row of its own, so the values at the end say how often each was applied. Tasks are forked
 * processes of this one, which leave their results in shared memory.
 * ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "weft/weft.h"

enum { STEPS = 120, SHARDS = 3, CELLS = STEPS * SHARDS, WIDTH = 4, MAX_TASKS = 10 };

static char dir[64];

static struct shared {
    atomic_llong applied[MAX_TASKS]; /* shards that were computed */
    atomic_bool is_attacked;         /* shards take longer */
    atomic_bool is_back;
    struct result {
        bool has;
        double least, most, staleness;
        int64_t most_stale;
    } result[MAX_TASKS];
} * shared;

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000}, NULL);
}

static bool is_child;

static void must(weft_status st)
{
    if (st && is_child) {
        fprintf(stderr, "%d: %s\n", (int)getpid(), weft_error());
        _exit(1);
    }
    if (st)
        fail_msg("%s", weft_error());
}

/* ---- a program ------------------------------------------------------------------------------- */

static const weft_param vars[] = {
    {.size = sizeof(weft_param), .name = "cells", .rank = 1, .dim = (const int64_t[]){CELLS}},
    {.size = sizeof(weft_param),
     .name = "rows",
     .rank = 2,
     .dim = (const int64_t[]){CELLS, WIDTH},
     .table = true},
};

struct program {
    int self;
    bool by_hand; /* without a function */
};

/* One in the shard's own cell and row. */
static weft_status push_ones(weft_params *p, int64_t shard)
{
    int64_t at = weft_params_step(p) * SHARDS + shard;
    float *ones = calloc(CELLS, sizeof *ones), row[WIDTH] = {1, 1, 1, 1}, is[WIDTH];
    weft_tensor x = weft_view(WEFT_F32, ones, 1, vars[0].dim),
                id = weft_view(WEFT_I64, &at, 1, (int64_t[]){1}),
                r = weft_view(WEFT_F32, row, 2, (int64_t[]){1, WIDTH});
    weft_status st = weft_params_rows(p, "rows", 1, &at, is);

    ones[at] = 1;
    if (!st)
        st = weft_params_push(p, shard, "cells", &x);
    if (!st)
        st = weft_params_push_rows(p, shard, "rows", &id, &r);
    if (!st)
        st = weft_params_report(p, shard, (double)shard);
    free(ones);
    return st;
}

static weft_status compute(void *arg, weft_params *p, int64_t shard)
{
    struct program *k = arg;

    if (shared->is_attacked)
        pause_ms(60);
    shared->applied[k->self]++;
    return push_ones(p, shard);
}

static void loop_by_hand(weft_params *p, struct program *k)
{
    must(weft_params_pull(p));
    while (weft_params_step(p) < STEPS) {
        int64_t shard, n;

        weft_params_mine(p, &shard, &n);
        if (n != 1)
            fprintf(stderr, "a worker has %lld shards\n", (long long)n);
        must(compute(k, p, shard));
        must(weft_params_wait(p));
        must(weft_params_pull(p));
    }
}

static void look(const float *x, int64_t n, struct result *r)
{
    for (int64_t i = 0; i < n; i++) {
        r->least = x[i] < r->least ? x[i] : r->least;
        r->most = x[i] > r->most ? x[i] : r->most;
    }
}

static void count(weft_params *p, weft_dist *d, struct result *r)
{
    static float rows[CELLS * WIDTH];
    int64_t ids[CELLS];
    weft_tensor cells = {.data = NULL};
    weft_dist_counts c = {.size = sizeof c};

    for (int i = 0; i < CELLS; i++)
        ids[i] = i;
    *r = (struct result){.least = 1e9};
    must(weft_params_get(p, "cells", &cells));
    must(weft_params_rows(p, "rows", CELLS, ids, rows));
    look(cells.data, CELLS, r);
    look(rows, CELLS * WIDTH, r);
    if (d)
        must(weft_dist_count(d, &c));
    r->staleness = c.staleness;
    r->most_stale = c.staleness_most;
    r->has = true;
}

static weft_params_opts opts(struct program *k)
{
    return (weft_params_opts){.size = sizeof(weft_params_opts),
                              .n_vars = 2,
                              .vars = vars,
                              .shards = SHARDS,
                              .sum = true,
                              .mode = WEFT_PARAMS_ASYNC,
                              .steps = STEPS,
                              .shard = k->by_hand ? NULL : compute,
                              .shard_arg = k};
}

/* ps: NULL for one process. */
static void train(struct program *k, const weft_params_opts *o, const weft_ps_opts *ps,
                  struct result *out)
{
    weft_ctx *ctx;
    weft_dist *d = NULL;
    weft_params *p;

    must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx));
    if (ps)
        must(weft_dist_open_ps(ctx, ps, &d));
    must(weft_params_open(ctx, d, o, &p));
    if (k->by_hand)
        loop_by_hand(p, k);
    else
        for (must(weft_params_pull(p)); weft_params_step(p) < STEPS;)
            must(weft_params_wait(p));
    count(p, d, out);
    weft_params_free(p);
    weft_dist_free(d);
    weft_ctx_free(ctx);
}

static void expect_once(const struct result *r)
{
    if (r->least != 1 || r->most != 1)
        fail_msg("shards were applied %g to %g times", r->least, r->most);
}

static void a_process_applies_each_shard_once(void **state)
{
    const char *const consistency[] = {NULL, "async", "stale(1)"};

    (void)state;
    for (int by_hand = 0; by_hand < 2; by_hand++)
        for (int i = 0; i < 3; i++) {
            struct program k = {.by_hand = by_hand};
            weft_params_opts o = opts(&k);
            struct result r;

            train(&k, &o,
                  i ? WEFT_OPTS(weft_ps_opts, .servers = 2, .piece_bytes = 256,
                                .consistency = consistency[i])
                    : NULL,
                  &r);
            expect_once(&r);
        }
}

/* ---- the arithmetic -------------------------------------------------------------------------- */

enum { OTHER = 40, OTHER_STEPS = 9 };

/* "Gradients" that depend on the values, the step and the shard; some shards have no samples. */
static weft_status descend(void *arg, weft_params *p, int64_t shard)
{
    int64_t step = weft_params_step(p), ids[3];
    float g[OTHER], rows[3 * WIDTH];
    weft_tensor x = {.data = NULL}, gt = weft_view(WEFT_F32, g, 1, (int64_t[]){OTHER}),
                id = weft_view(WEFT_I64, ids, 1, (int64_t[]){3}),
                rt = weft_view(WEFT_F32, rows, 2, (int64_t[]){3, WIDTH});
    weft_status st = weft_params_get(p, "x", &x);

    (void)arg;
    if (st || (step % 4 == 1 && shard == 1))
        return st;
    for (int i = 0; i < 3; i++)
        ids[i] = (step * 5 + shard * 3 + i * i) % OTHER;
    st = weft_params_rows(p, "e", 3, ids, rows);
    for (int i = 0; i < OTHER; i++)
        g[i] = 0.3f * ((const float *)x.data)[i] + (float)((i * 7 + step * 3 + shard) % 11) - 5;
    for (int i = 0; i < 3 * WIDTH; i++)
        rows[i] = 0.5f * rows[i] + (float)(i % 5) - 2;
    if (!st)
        st = weft_params_weigh(p, shard, 3 + (double)shard);
    if (!st)
        st = weft_params_push(p, shard, "x", &gt);
    return st ? st : weft_params_push_rows(p, shard, "e", &id, &rt);
}

struct values {
    float x[OTHER], e[OTHER * WIDTH];
};

static void descend_all(const char *optimizer, const weft_ps_opts *ps, struct values *out)
{
    const weft_param v[] = {{.size = sizeof *v,
                             .name = "x",
                             .rank = 1,
                             .dim = (int64_t[]){OTHER},
                             .initializer = "uniform"},
                            {.size = sizeof *v,
                             .name = "e",
                             .rank = 2,
                             .dim = (int64_t[]){OTHER, WIDTH},
                             .table = true,
                             .initializer = "uniform"}};
    const weft_params_opts o = {.size = sizeof o,
                                .n_vars = 2,
                                .vars = v,
                                .optimizer = optimizer,
                                .shards = SHARDS,
                                .mode = WEFT_PARAMS_ASYNC,
                                .steps = OTHER_STEPS,
                                .shard = descend};
    weft_tensor x = weft_view(WEFT_F32, out->x, 1, (int64_t[]){OTHER});
    int64_t ids[OTHER];
    weft_ctx *ctx;
    weft_dist *d = NULL;
    weft_params *p;

    for (int i = 0; i < OTHER; i++)
        ids[i] = i;
    must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx));
    if (ps)
        must(weft_dist_open_ps(ctx, ps, &d));
    must(weft_params_open(ctx, d, &o, &p));
    for (must(weft_params_pull(p)); weft_params_step(p) < OTHER_STEPS;)
        must(weft_params_wait(p));
    must(weft_params_get(p, "x", &x));
    must(weft_params_rows(p, "e", OTHER, ids, out->e));
    weft_params_free(p);
    weft_dist_free(d);
    weft_ctx_free(ctx);
}

/* With a bound a worker reads what it wrote: alone, it has the bits of one process. */
static void one_worker_has_the_bits_of_one_process(void **state)
{
    const char *const optimizer[] = {"sgd learning_rate=0.1",     "adam learning_rate=0.01",
                                     "lamb learning_rate=0.01",   "adagrad clipnorm=0.5",
                                     "sgd global_clipnorm=0.125", NULL};

    (void)state;
    for (size_t i = 0; i < sizeof optimizer / sizeof *optimizer; i++)
        for (int servers = 0; servers < 3; servers++) {
            static struct values want, is;

            descend_all(optimizer[i],
                        servers ? WEFT_OPTS(weft_ps_opts, .servers = servers, .piece_bytes = 64,
                                            .consistency = "stale(1)")
                                : NULL,
                        servers ? &is : &want);
            if (servers && memcmp(&is, &want, sizeof is) != 0)
                fail_msg("%s: %d servers have other bits", optimizer[i] ? optimizer[i] : "sums",
                         servers);
        }
}

/* ---- processes ------------------------------------------------------------------------------- */

struct job {
    const char *consistency, *name;
    int n_servers, n_workers;
    bool by_hand;
    const char *folder; /* of checkpoints; NULL: none */
    char cluster[400], store[96];
    int n;
    struct {
        char task[16];
        pid_t pid;
        bool again;
    } t[MAX_TASKS];
};

static void run_task(const struct job *j, int i)
{
    weft_ps_opts o = {.size = sizeof o,
                      .cluster = j->cluster,
                      .task = j->t[i].task,
                      .timeout_s = 1,
                      .piece_bytes = 256,
                      .consistency = j->consistency};
    weft_ctx *ctx;

    is_child = true;
    alarm(300);
    if (strncmp(o.task, "worker", 6) == 0) {
        struct program k = {.self = i, .by_hand = j->by_hand};
        weft_params_opts p = opts(&k);

        p.checkpoint = j->folder;
        p.checkpoint_steps = 10;
        train(&k, &p, &o, &shared->result[i]);
        _exit(0);
    }
    o.folder = strncmp(o.task, "chief", 5) == 0 ? j->store : NULL;
    must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
    must(weft_ps_serve(ctx, &o));
    weft_ctx_free(ctx);
    _exit(0);
}

static void start(struct job *j, int i)
{
    fflush(NULL);
    j->t[i].pid = fork();
    assert_true(j->t[i].pid >= 0);
    if (j->t[i].pid)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_task(j, i);
}

static void begin_job(struct job *j)
{
    size_t at;

    memset(shared, 0, sizeof *shared);
    snprintf(j->store, sizeof j->store, "%s/%s-store", dir, j->name);
    at =
        (size_t)snprintf(j->cluster, sizeof j->cluster, "chief=uds:%s/%s-chief0;ps=", dir, j->name);
    strcpy(j->t[j->n++].task, "chief/0");
    for (int i = 0; i < j->n_servers; i++) {
        at += (size_t)snprintf(j->cluster + at, sizeof j->cluster - at, "%suds:%s/%s-ps%d",
                               i ? "," : "", dir, j->name, i);
        snprintf(j->t[j->n++].task, sizeof j->t->task, "ps/%d", i);
    }
    snprintf(j->cluster + at, sizeof j->cluster - at, ";worker=%d", j->n_workers);
    for (int i = 0; i < j->n_workers; i++)
        snprintf(j->t[j->n++].task, sizeof j->t->task, "worker/%d", i);
    for (int i = 0; i < j->n; i++)
        start(j, i);
}

static int64_t applied(void)
{
    int64_t n = 0;

    for (int i = 0; i < MAX_TASKS; i++)
        n += shared->applied[i];
    return n;
}

static void await(const struct job *j, int64_t n)
{
    for (int i = 0; i < 3000 && applied() < n; i++)
        pause_ms(10);
    if (applied() < n)
        fail_msg("%s: %lld shards were computed, and no more", j->name, (long long)applied());
}

static void kill_task(struct job *j, const char *task)
{
    char path[128];
    int i = 0;

    while (strcmp(j->t[i].task, task) != 0)
        i++;
    kill(j->t[i].pid, SIGKILL);
    assert_int_equal(waitpid(j->t[i].pid, NULL, 0), j->t[i].pid);
    snprintf(path, sizeof path, "%s/%s-%.*s%s", dir, j->name, (int)(strchr(task, '/') - task), task,
             strchr(task, '/') + 1);
    unlink(path); /* its socket */
    j->t[i].again = true;
    start(j, i);
}

/* The exit status; -1: it does not end. */
static int wait_for(const struct job *j, int i)
{
    for (int waited = 0; waited < 6000; waited++) {
        int status;

        if (waitpid(j->t[i].pid, &status, WNOHANG))
            return status;
        pause_ms(10);
    }
    kill(j->t[i].pid, SIGKILL);
    return -1;
}

/* A task that came back after the job had ended finds nobody: it is ended. */
static void end_job(struct job *j)
{
    int n_workers = 0;

    for (int again = 0; again < 2; again++)
        for (int i = j->n - 1; i >= 0; i--) {
            int status;

            if (j->t[i].again != again)
                continue;
            if (again && !shared->result[i].has)
                kill(j->t[i].pid, SIGKILL);
            status = wait_for(j, i);
            if (status && !again)
                fail_msg("%s: %s ended with %x", j->name, j->t[i].task, (unsigned)status);
        }
    for (int i = 0; i < j->n; i++)
        if (shared->result[i].has) {
            n_workers++;
            expect_once(&shared->result[i]);
        }
    assert_true(n_workers > 0);
}

static void so_do_processes_that_die(void **state)
{
    static const char *const victims[] = {"worker/2", "ps/1", "chief/0", "worker/1"};

    (void)state;
    for (int run = 0; run < 3; run++) {
        struct job j = {.consistency = run % 2 ? "stale(2)" : "async",
                        .name = run == 0   ? "a"
                                : run == 1 ? "s"
                                           : "h",
                        .n_servers = 3,
                        .n_workers = 3,
                        .by_hand = run == 2};

        begin_job(&j);
        shared->is_attacked = true;
        for (size_t k = 0; k < sizeof victims / sizeof *victims; k++) {
            await(&j, 20 + 35 * (int64_t)k);
            kill_task(&j, victims[k]);
            pause_ms(1300);
        }
        shared->is_attacked = false;
        end_job(&j);
    }
}

/* The only server dies: all go back, to the beginning or to a checkpoint. Afterwards the job has
 * ended: it is not begun again. */
static void the_only_copy_may_be_lost(void **state)
{
    char folder[96];

    (void)state;
    snprintf(folder, sizeof folder, "%s/ckpt", dir);
    for (int run = 0; run < 2; run++) {
        struct job j = {.consistency = "async",
                        .name = run ? "c" : "b",
                        .n_servers = 1,
                        .n_workers = 2,
                        .folder = run ? folder : NULL};

        begin_job(&j);
        shared->is_attacked = true;
        await(&j, 130);
        kill_task(&j, "ps/0");
        shared->is_attacked = false;
        end_job(&j);
        if (run) /* not from the beginning */
            assert_true(applied() < CELLS + 130);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* The step of the newest; -1: there is none. */
static int64_t newest(weft_ctx *ctx, const char *folder)
{
    weft_ckpt *c;
    int64_t step;

    if (weft_ckpt_open_latest(ctx, folder, &c))
        return -1;
    step = weft_ckpt_info(c)->step;
    weft_ckpt_close(c);
    return step;
}

/* A part of the job, then the rest of it, elsewhere: on servers, in one process, on servers. */
static void checkpoints_continue_anywhere(void **state)
{
    struct program k = {.self = 0};
    weft_params_opts o = opts(&k);
    struct result r;
    int64_t at = 0;
    char folder[96];

    (void)state;
    snprintf(folder, sizeof folder, "%s/there", dir);
    o.checkpoint = folder;
    o.checkpoint_steps = 1000;
    for (int part = 1; part <= 3; part++) {
        weft_ctx *ctx;
        weft_dist *d = NULL;
        weft_params *p;

        must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx));
        if (part != 2)
            must(weft_dist_open_ps(
                ctx, WEFT_OPTS(weft_ps_opts, .servers = part, .consistency = "async"), &d));
        must(weft_params_open(ctx, d, &o, &p));
        must(weft_params_pull(p));
        assert_int_equal(weft_params_step(p), at);
        while (weft_params_step(p) < (part == 3 ? STEPS : at + 20))
            must(weft_params_wait(p));
        if (part == 2) { /* the step is not complete */
            must(weft_params_wait(p));
            assert_int_equal(weft_params_checkpoint(p), WEFT_ESTATE);
            assert_non_null(strstr(weft_error(), "at shard 1 of step"));
            must(weft_params_wait(p));
            must(weft_params_wait(p));
        }
        if (part < 3)
            must(weft_params_checkpoint(p));
        shared->is_attacked = part < 3; /* it does not end before the checkpoint is written */
        while (part < 3 && newest(ctx, folder) <= at) { /* shards that are out come first */
            assert_true(weft_params_step(p) < STEPS);
            must(weft_params_wait(p));
        }
        shared->is_attacked = false;
        if (part == 3)
            count(p, d, &r);
        weft_params_free(p);
        weft_dist_free(d);
        at = newest(ctx, folder);
        weft_ctx_free(ctx);
    }
    assert_int_equal(at, STEPS); /* the last one */
    expect_once(&r);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(const weft_params_opts *o, const char *consistency, weft_status want,
                           const char *says)
{
    weft_ctx *ctx;
    weft_dist *d = NULL;
    weft_params *p = NULL;
    weft_status st;

    must(weft_ctx_new(NULL, &ctx));
    if (consistency)
        must(weft_dist_open_ps(
            ctx, WEFT_OPTS(weft_ps_opts, .servers = 1, .consistency = consistency), &d));
    st = weft_params_open(ctx, d, o, &p);
    if (st != want || !strstr(weft_error(), says))
        fail_msg("%d: '%s' lacks '%s'", (int)st, weft_error(), says);
    assert_null(p);
    weft_dist_free(d);
    weft_ctx_free(ctx);
}

static void wrong_modes_are_refused(void **state)
{
    struct program k = {.self = 0};
    weft_params_opts o = opts(&k);

    (void)state;
    expect_refused(&o, "sync", WEFT_ENOSUP, "needs a strategy that is asynchronous");
    o.steps = 0;
    expect_refused(&o, "async", WEFT_EINVAL, "says how many it has");
    expect_refused(&o, NULL, WEFT_EINVAL, "says how many it has");
    o.mode = WEFT_PARAMS_SYNC;
    expect_refused(&o, "stale(2)", WEFT_ENOSUP, "mode = WEFT_PARAMS_ASYNC");
    o.steps = 3;
    expect_refused(&o, NULL, WEFT_EINVAL, "only asynchronous jobs");
}

static void wrong_pushes_are_refused(void **state)
{
    struct program k = {.by_hand = true};
    weft_params_opts o = opts(&k);
    float *cells = calloc(CELLS, sizeof *cells);
    weft_tensor x = weft_view(WEFT_F32, cells, 1, vars[0].dim);
    const char *name = "cells";

    (void)state;
    for (int ps = 0; ps < 2; ps++) {
        int64_t shard, n;
        weft_ctx *ctx;
        weft_dist *d = NULL;
        weft_params *p;

        must(weft_ctx_new(NULL, &ctx));
        if (ps)
            must(weft_dist_open_ps(
                ctx, WEFT_OPTS(weft_ps_opts, .servers = 1, .consistency = "async"), &d));
        must(weft_params_open(ctx, d, &o, &p));
        assert_int_equal(weft_params_push(p, 0, "cells", &x), WEFT_ESTATE);
        assert_non_null(strstr(weft_error(), "weft_params_pull gets one"));
        must(weft_params_set(p, 1, &name, &x));
        must(weft_params_pull(p));
        weft_params_mine(p, &shard, &n);
        assert_int_equal(n, 1);
        must(weft_params_pull(p)); /* it has one */
        assert_int_equal(weft_params_push(p, (shard + 1) % SHARDS, "cells", &x), WEFT_ERANGE);
        assert_non_null(strstr(weft_error(), "this worker has shard"));
        assert_int_equal(weft_params_set(p, 1, &name, &x), WEFT_ENOSUP);
        assert_non_null(strstr(weft_error(), "push increments"));
        cells[0] = 1;
        must(weft_params_push(p, shard, "cells", &x));
        must(weft_params_report(p, shard, 7));
        must(weft_params_wait(p));
        weft_params_mine(p, &shard, &n);
        assert_int_equal(n, 0);
        must(weft_params_wait(p));  /* one without samples */
        for (int i = 0; i < 4; i++) /* at most two are on their way */
            must(weft_params_wait(p));
        must(weft_params_pull(p));
        assert_int_equal(weft_params_save(p, "/dev/null/x"), ps ? WEFT_ESTATE : WEFT_EIO);
        must(weft_params_get(p, "cells", &x));
        assert_true(cells[0] == 1);
        assert_true(weft_params_reported(p) == 7);
        cells[0] = 0;
        weft_params_free(p);
        weft_dist_free(d);
        weft_ctx_free(ctx);
    }
    free(cells);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_applies_each_shard_once),
        cmocka_unit_test(one_worker_has_the_bits_of_one_process),
        cmocka_unit_test(checkpoints_continue_anywhere),
        cmocka_unit_test(wrong_modes_are_refused),
        cmocka_unit_test(wrong_pushes_are_refused),
        cmocka_unit_test(so_do_processes_that_die),
        cmocka_unit_test(the_only_copy_may_be_lost),
    };

    strcpy(dir, "/tmp/weft-leased-params-XXXXXX");
    if (!mkdtemp(dir))
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? 2 : cmocka_run_group_tests(tests, NULL, NULL);
}
