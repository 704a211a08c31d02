/* fit_test.c - fit under parameter servers has the bits of `local`: validation that is dealt out,
 * callbacks that set parameters, a scaled loss, trapped numerics, stop requests; also while
 * processes are killed in the middle. Tasks are forked processes of this one, which leave their
 * results in shared memory. ctest-timeout: 300 */
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

#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 90, V = 150, F = 6, MAX_TASKS = 8, MAX_LOGS = 128, SHARDS = 4, LIMIT_MS = 60000 };

/* What a fit does. */
enum {
    VALIDATES = 1,    /* 150 batches: several steps of the servers */
    RESTORES = 2,     /* EarlyStopping restores the best weights */
    SETS = 4,         /* a callback changes weights and state at the end of an epoch */
    SETS_BATCHES = 8, /* and after a batch */
    SCALED = 16,      /* f16: steps are skipped */
    TRAPS = 32,       /* numerics are trapped, and the learning rate is absurd */
    LIMITED = 64,     /* validation_steps, every second epoch */
    SAVES = 128,      /* checkpoints */
    FREEZES = 512,    /* a layer is not trained, and a callback changes it */
    PLATEAU = 1024,   /* the learning rate depends on the validation */
    REPORTS = 2048    /* workers say when they have trained a batch */
};

struct setting {
    int servers, workers, epochs;
    unsigned does;
    const char *optimizer, *transport;
};

struct result {
    bool has;
    weft_status st;
    uint64_t hash;
    int64_t step, skipped;
    double scale;
    int n_logs;
    double log[MAX_LOGS];
    bool stopped;
    weft_dist_counts counts;
    char why[400];
};

static struct shared {
    atomic_int reports; /* of all workers: a batch was trained */
    struct result result[MAX_TASKS];
} * shared;

static char folder[64];

/* ---- what a worker does ---------------------------------------------------------------------- */

static uint64_t fnv(const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h;
}

static weft_trainer *signaled;

static void on_signal(int number)
{
    (void)number;
    weft_trainer_interrupt(signaled);
}

struct mine {
    const struct setting *s;
    weft_trainer *t;
    int worker;
};

/* All weights, and the state of normalization. */
static weft_status halve(weft_trainer *t, const char *only)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < weft_trainer_n_weights(t) && !st; i++) {
        const char *name = weft_trainer_weight_name(t, i);
        weft_tensor w;

        if (only && !strstr(name, only))
            continue;
        st = weft_trainer_weight(t, name, &w);
        for (int64_t k = 0; !st && k < weft_tensor_count(&w); k++)
            ((float *)w.data)[k] *= 0.5F;
    }
    return st;
}

static weft_status on_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    const struct mine *m = arg;

    (void)logs;
    return (m->s->does & SETS_BATCHES) && batch == 1 ? halve(t, NULL) : WEFT_OK;
}

static weft_status on_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    const struct mine *m = arg;

    (void)logs;
    if ((m->s->does & FREEZES) && epoch == 1)
        return halve(t, "frozen");
    return (m->s->does & SETS) && epoch % 2 == 1 ? halve(t, NULL) : WEFT_OK;
}

/* Called by every worker after its steps. */
static void on_watch(void *arg, const weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)arg;
    (void)t;
    (void)epoch;
    (void)logs;
    shared->reports++;
}

static void build(weft_model *m, unsigned does)
{
    weft_sym v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});

    if (does & FREEZES)
        v = weft_apply(m, "Dense", "units=7 trainable=false name=frozen", v);
    v = weft_apply(m, "Dense", "units=40 activation=relu", v);
    v = weft_apply(m, "BatchNormalization", NULL, v);
    v = weft_apply(m, "Dropout", "rate=0.2", v);
    v = weft_apply(m, "Dense", "units=17 activation=tanh", v);
    weft_model_output(m, weft_apply(m, "Dense", "units=3", v));
}

static weft_ds tensors(weft_data *d, int n, int seed, bool counted)
{
    static float x[2][V][F];
    static int32_t y[2][V];
    weft_ds s;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < F; k++)
            x[counted][i][k] = (float)((i * 31 + k * 17 + seed * 7) % 23) / 11 - 1;
        y[counted][i] = (i * (31 + seed) / 7) % 3;
    }
    s = weft_ds_tensors(d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_F32, x[counted], 2, (int64_t[]){n, F}),
                                        weft_view(WEFT_I32, y[counted], 1, (int64_t[]){n})});
    return s;
}

static int callbacks_of(weft_ctx *ctx, struct mine *m, weft_callback *cb)
{
    unsigned does = m->s->does;
    int n = 0;

    if (does & PLATEAU)
        assert_int_equal(weft_callback_new(ctx,
                                           "ReduceLROnPlateau monitor=val_loss patience=1 "
                                           "factor=0.5 min_delta=0.02",
                                           &cb[n++]),
                         0);
    if (does & RESTORES)
        assert_int_equal(weft_callback_new(ctx,
                                           "EarlyStopping monitor=val_loss patience=1 min_delta=0.2"
                                           " restore_best_weights=true",
                                           &cb[n++]),
                         0);
    cb[n] = (weft_callback){.size = sizeof *cb, .arg = m, .name = "mine", .epoch_end = on_epoch};
    if (does & SETS_BATCHES)
        cb[n].batch_end = on_batch;
    return n + 1;
}

static weft_status compile(weft_model *m, const struct setting *s, weft_trainer **t)
{
    return weft_compile(
        m,
        WEFT_OPTS(weft_compile_opts, .optimizer = s->optimizer,
                  .loss = "sparse_categorical_crossentropy from_logits=true", .metrics = "accuracy",
                  .shards = SHARDS, .precision = s->does & SCALED ? "f16" : NULL,
                  .loss_scale = s->does & SCALED ? 0x1p22 : 0,
                  .loss_scale_steps = s->does & SCALED ? 3 : 0, .trap_numerics = s->does & TRAPS),
        t);
}

static void keep(weft_trainer *t, const weft_history *h, struct result *r)
{
    size_t n;
    char *bytes;

    if (r->st) { /* the servers have the slots */
        for (int i = 0; i < weft_trainer_n_weights(t); i++) {
            weft_tensor w;

            if (!weft_trainer_weight(t, weft_trainer_weight_name(t, i), &w))
                r->hash = r->hash * 31 + fnv(w.data, (size_t)weft_tensor_bytes(&w));
        }
    } else {
        bytes = trainer_bytes(t, &n);
        r->hash = fnv(bytes, n);
        free(bytes);
    }
    r->step = weft_trainer_step(t);
    r->skipped = weft_trainer_skipped(t);
    r->scale = weft_trainer_loss_scale(t);
    r->stopped = weft_trainer_stopped(t);
    for (int64_t i = 0; h && i < h->n_epochs * h->n_names && r->n_logs < MAX_LOGS; i++)
        r->log[r->n_logs++] = h->value[i];
}

static void train(const struct setting *s, const weft_ps_opts *ps, int worker, struct result *r)
{
    char checkpoints[128];
    struct mine mine = {.s = s, .worker = worker};
    weft_callback cb[4];
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_data *d;
    weft_history *h = NULL;
    weft_ds data, val = {0};
    int n_cb = 0;

    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", folder);
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1 + worker % 2, .seed = 5), &ctx), 0);
    weft_model_new(ctx, NULL, &m);
    build(m, s->does);
    r->st = ps ? weft_dist_open_ps(ctx, ps, &dist) : WEFT_OK;
    if (!r->st && dist)
        r->st = weft_dist_scope(dist, m);
    if (!r->st)
        r->st = compile(m, s, &mine.t);
    weft_data_new(ctx, &d);
    data = tensors(d, N, 0, false);
    if (s->does & (VALIDATES | RESTORES | PLATEAU))
        val = tensors(d, V, 3, true);
    if (!r->st) {
        n_cb = callbacks_of(ctx, &mine, cb);
        signaled = mine.t;
        signal(SIGTERM, on_signal);
        r->st = weft_fit(
            mine.t, d, data,
            WEFT_OPTS(weft_fit_opts, .epochs = s->epochs, .batch = 25, .validation = val,
                      .validation_batch = 1, .validation_steps = s->does & LIMITED ? 70 : 0,
                      .validation_freq = s->does & LIMITED ? 2 : 0, .n_callbacks = n_cb,
                      .callbacks = cb, .watch = s->does & REPORTS ? on_watch : NULL,
                      .watch_arg = &mine, .checkpoint = s->does & SAVES ? checkpoints : NULL),
            &h);
    }
    if (r->st)
        snprintf(r->why, sizeof r->why, "%s", weft_error());
    if (dist) {
        r->counts.size = sizeof r->counts;
        weft_dist_count(dist, &r->counts);
    }
    if (!r->st)
        r->st = wf_dist_bring(mine.t);
    if (mine.t && (!r->st || s->does & TRAPS))
        keep(mine.t, h, r);
    for (int i = 0; i < n_cb; i++)
        weft_callback_free(&cb[i]);
    weft_history_free(h);
    weft_trainer_free(mine.t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    r->has = true;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct run {
    struct setting s;
    char cluster[600];
    int n_tasks;
    char task[MAX_TASKS][16];
    pid_t pid[MAX_TASKS];
};

static void report(void *arg, const weft_dist_counts *c)
{
    struct result *r = arg;

    r->counts = *c;
}

static void serve(const weft_ps_opts *ps, struct result *r)
{
    weft_ps_opts o = *ps;
    weft_ctx *ctx;

    weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    o.report = report;
    o.call_arg = r;
    r->st = weft_ps_serve(ctx, &o);
    if (r->st)
        snprintf(r->why, sizeof r->why, "%s", weft_error());
    weft_ctx_free(ctx);
}

static void start(struct run *r, int i)
{
    fflush(NULL);
    r->pid[i] = fork();
    assert_true(r->pid[i] >= 0);
    if (r->pid[i] == 0) {
        weft_ps_opts o = {.size = sizeof o,
                          .task = r->task[i],
                          .cluster = r->cluster,
                          .timeout_s = 2,
                          .piece_bytes = 1000};

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        shared->result[i] = (struct result){.has = false};
        if (strncmp(r->task[i], "worker", 6) == 0)
            train(&r->s, &o, atoi(r->task[i] + 7), &shared->result[i]);
        else
            serve(&o, &shared->result[i]);
        _exit(0);
    }
}

static void begin(struct run *r, const struct setting *s)
{
    static int serial; /* sockets of an earlier run may still be there */
    size_t n;

    *r = (struct run){.s = *s};
    memset(shared, 0, sizeof *shared);
    snprintf(r->task[r->n_tasks++], sizeof r->task[0], "chief/0");
    serial++;
    n = (size_t)snprintf(r->cluster, sizeof r->cluster, "chief=%s:%s/%d-chief;ps=", s->transport,
                         folder, serial);
    for (int i = 0; i < s->servers; i++) {
        n += (size_t)snprintf(r->cluster + n, sizeof r->cluster - n, "%s%s:%s/%d-ps%d",
                              i ? "," : "", s->transport, folder, serial, i);
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "ps/%d", i);
    }
    snprintf(r->cluster + n, sizeof r->cluster - n, ";worker=%d", s->workers);
    for (int i = 0; i < s->workers; i++)
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "worker/%d", i);
    for (int i = 0; i < r->n_tasks; i++)
        start(r, i);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static void kill_one(struct run *r, int i)
{
    if (!r->pid[i])
        return;
    kill(r->pid[i], SIGKILL);
    waitpid(r->pid[i], NULL, 0);
    r->pid[i] = 0;
}

/* Until no worker runs; then the others are not needed. */
static void wait_all(struct run *r)
{
    for (int i = r->n_tasks - r->s.workers; i < r->n_tasks; i++) {
        int waited = 0;

        while (r->pid[i] && waitpid(r->pid[i], NULL, WNOHANG) == 0) {
            pause_ms(5);
            if ((waited += 5) > LIMIT_MS) {
                for (int k = 0; k < r->n_tasks; k++) {
                    const struct result *got = &shared->result[k];

                    printf("%s: %s %d %s\n", r->task[k], r->pid[k] ? "runs" : "ended", got->st,
                           got->why);
                    kill_one(r, k);
                }
                fail_msg("%s does not end", r->task[i]);
            }
        }
        r->pid[i] = 0;
    }
    for (int i = 0; i < r->n_tasks; i++)
        kill_one(r, i);
}

static struct result local(const struct setting *s)
{
    struct run r = {.s = *s, .n_tasks = 1, .task = {"local"}};

    r.s.workers = 1;
    memset(shared, 0, sizeof *shared);
    fflush(NULL);
    r.pid[0] = fork();
    if (r.pid[0] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        train(s, NULL, 0, &shared->result[0]);
        _exit(0);
    }
    wait_all(&r);
    assert_true(shared->result[0].has);
    if (shared->result[0].st && !(s->does & TRAPS))
        fail_msg("one process: %s", shared->result[0].why);
    return shared->result[0];
}

static void clear_folder(void)
{
    char command[160];

    snprintf(command, sizeof command, "rm -rf %s/*", folder);
    assert_int_equal(system(command), 0);
}

/* Every worker that lived has the bits of one process. */
static void compare(const struct run *r, const struct result *want, bool logs)
{
    int n = 0;

    for (int i = 0; i < r->n_tasks; i++) {
        const struct result *got = &shared->result[i];

        if (strncmp(r->task[i], "worker", 6) != 0 || !got->has)
            continue;
        n++;
        if (got->st != want->st)
            fail_msg("%s, does %u, %d servers: %d %s; one process: %d %s", r->task[i], r->s.does,
                     r->s.servers, got->st, got->why, want->st, want->why);
        assert_int_equal(got->step, want->step);
        assert_int_equal(got->skipped, want->skipped);
        assert_true(got->scale == want->scale);
        if (got->hash != want->hash)
            fail_msg("%s, does %u, %d servers, %d workers: other weights than one process",
                     r->task[i], r->s.does, r->s.servers, r->s.workers);
        if (!logs)
            continue;
        assert_int_equal(got->n_logs, want->n_logs);
        if (memcmp(got->log, want->log, (size_t)got->n_logs * sizeof *got->log))
            fail_msg("%s, does %u, %d servers, %d workers: another history than one process",
                     r->task[i], r->s.does, r->s.servers, r->s.workers);
    }
    assert_true(n > 0);
}

static void same_as_local(unsigned does, const char *optimizer, int epochs)
{
    struct setting s = {.epochs = epochs, .does = does, .optimizer = optimizer, .transport = "uds"};
    struct result want = local(&s);

    clear_folder();
    for (int workers = 1; workers <= 3; workers++)
        for (int servers = 1; servers <= 2; servers++) {
            struct run r;

            s.workers = workers;
            s.servers = servers;
            s.transport = (workers + servers) % 2 ? "uds" : "shm";
            begin(&r, &s);
            wait_all(&r);
            compare(&r, &want, true);
            clear_folder();
        }
}

static void validation_is_dealt_out(void **state)
{
    (void)state;
    same_as_local(VALIDATES, "adam learning_rate=0.003", 3);
    same_as_local(VALIDATES | LIMITED | PLATEAU, "lamb learning_rate=0.003 clipnorm=0.5", 4);
}

static void callbacks_set_parameters(void **state)
{
    (void)state;
    same_as_local(RESTORES | VALIDATES, "adam learning_rate=0.05", 8);
    same_as_local(SETS, "adam learning_rate=0.003", 4);
    same_as_local(SETS | SETS_BATCHES | VALIDATES,
                  "sgd learning_rate=0.05 momentum=0.9 global_clipnorm=1", 3);
}

static void scaled_losses_skip_steps_everywhere(void **state)
{
    struct setting s = {.epochs = 5, .does = SCALED, .optimizer = "adam learning_rate=0.01"};
    struct result want = local(&s);

    (void)state;
    assert_true(want.skipped >= 2 && want.step > 5); /* otherwise this says nothing */
    same_as_local(SCALED | VALIDATES, "adam learning_rate=0.01", 5);
    same_as_local(SCALED | SETS, "lamb learning_rate=0.003 global_clipnorm=0.5", 4);
}

static void trapped_numerics_end_all_workers(void **state)
{
    (void)state;
    same_as_local(TRAPS, "sgd learning_rate=1e39", 2); /* the update is not finite, */
    same_as_local(TRAPS, "sgd learning_rate=1e30", 2); /* or the next step finds out */
    same_as_local(TRAPS | VALIDATES, "adam learning_rate=0.003", 2);
}

static void parameters_that_are_not_trained_stay(void **state)
{
    struct setting s = {.epochs = 4,
                        .does = FREEZES,
                        .optimizer = "adam",
                        .servers = 1,
                        .workers = 2,
                        .transport = "uds"};
    struct run r;

    (void)state;
    begin(&r, &s);
    wait_all(&r);
    assert_int_equal(shared->result[2].st, WEFT_ENOSUP);
    assert_non_null(strstr(shared->result[2].why, "parameters that are not trained"));
    clear_folder();
}

/* How often something is tried at another moment; more in a long run. */
static int n_seeds(void)
{
    const char *n = getenv("WEFT_FIT_SEEDS");

    return n ? atoi(n) : 2;
}

/* ---- processes that are killed --------------------------------------------------------------- */

/* Waits until workers have reported so many times, and some ms more: anywhere in a step, a
 * validation or a boundary. False: the job has ended. */
static bool wait_until(struct run *r, int reports, int ms)
{
    int last = r->n_tasks - 1;

    for (int waited = 0; shared->reports < reports; waited++) {
        if (waited > LIMIT_MS || !r->pid[last] || shared->result[last].has)
            return false;
        pause_ms(1);
    }
    pause_ms(ms);
    return true;
}

/* Who dies: the worker that decides, another one, a server with a copy of its pieces elsewhere. */
static int n_killed, n_stopped;

static void kill_during(unsigned does, const char *optimizer, int epochs, int seed)
{
    struct setting s = {.epochs = epochs,
                        .does = does | REPORTS,
                        .optimizer = optimizer,
                        .servers = 2,
                        .workers = 3,
                        .transport = seed % 2 ? "uds" : "shm"};
    struct result want = local(&s);

    for (int victim = 0; victim < 3; victim++) {
        int task = victim == 0 ? 3 : victim == 1 ? 4 : 1 + seed % 2;
        struct run r;

        clear_folder();
        begin(&r, &s);
        if (wait_until(&r, 2 + (seed * 7 + victim * 5) % (3 * epochs - 6),
                       (seed * 3 + victim) % 7)) {
            kill_one(&r, task);
            shared->result[task].has = false;
            n_killed++;
            if (victim == 2) /* it comes back, empty */
                start(&r, task);
        }
        wait_all(&r);
        compare(&r, &want, true);
    }
    clear_folder();
}

static void who_dies_changes_nothing(void **state)
{
    (void)state;
    n_killed = 0;
    for (int seed = 0; seed < n_seeds(); seed++) {
        kill_during(VALIDATES | PLATEAU, "adam learning_rate=0.003", 6, seed);
        kill_during(VALIDATES | SETS | SCALED, "lamb learning_rate=0.003 global_clipnorm=1", 5,
                    seed + 2);
        kill_during(RESTORES, "adam learning_rate=0.02", 12, seed + 4);
    }
    assert_true(n_killed >= 4 * n_seeds());
}

/* ---- stop requests --------------------------------------------------------------------------- */

/* SIGTERM, to the worker that decides (0), to another one (1), to all (2); then it resumes. */
static void stop_and_resume(unsigned does, int who, int seed)
{
    struct setting s = {.epochs = 6,
                        .does = does | REPORTS | SAVES,
                        .optimizer = "adam learning_rate=0.01",
                        .servers = 1 + seed % 2,
                        .workers = 3,
                        .transport = seed % 2 ? "uds" : "shm"};
    int first = 1 + s.servers;
    struct result want = local(&s);
    struct run r;
    bool running;

    clear_folder();
    begin(&r, &s);
    running = wait_until(&r, 2 + (seed * 5 + who * 3) % 9, (seed + who) % 5);
    for (int i = 0; i < s.workers; i++)
        if (running && (who == 2 || i == who))
            kill(r.pid[first + i], SIGTERM);
    wait_all(&r);
    for (int i = 0; i < s.workers; i++) {
        const struct result *got = &shared->result[first + i];

        if (!got->has || got->st)
            fail_msg("worker/%d: %s", i, got->why);
        n_stopped += got->step < want.step;
    }
    if (who == 1) { /* the others have gone on */
        assert_int_equal(shared->result[first].step, want.step);
        assert_true(shared->result[first].hash == want.hash);
        assert_true(shared->result[first + 2].hash == want.hash);
        return;
    }
    for (int i = 1; i < s.workers && who == 0; i++) /* all stop at one step */
        assert_int_equal(shared->result[first + i].step, shared->result[first].step);
    begin(&r, &s);
    wait_all(&r);
    compare(&r, &want, true);
}

static void stop_requests_take_effect_at_one_step(void **state)
{
    (void)state;
    n_stopped = 0;
    for (int seed = 0; seed < n_seeds(); seed++)
        for (int who = 0; who < 3; who++) {
            stop_and_resume(VALIDATES | (seed % 2 ? SETS | SCALED : PLATEAU), who, seed);
            clear_folder();
        }
    assert_true(n_stopped > 2 * n_seeds()); /* usually */
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Time of a server is spent on messages or on waiting for them; without a worker only on
 * waiting. */
static void servers_wait_for_workers_that_are_stopped(void **state)
{
    for (int k = 0; k < 2; k++) {
        const struct setting s = {.servers = 1,
                                  .workers = 1,
                                  .epochs = 1000000,
                                  .does = REPORTS,
                                  .optimizer = "adam learning_rate=0.003",
                                  .transport = k ? "shm" : "uds"};
        weft_dist_counts before, now = {.size = 0};
        const weft_dist_counts *server = &shared->result[1].counts;
        double begun = seconds();
        struct run r;

        (void)state;
        begin(&r, &s);
        for (int ms = 0; ms < 60000 && (shared->reports < 50 || server->busy_s <= 0); ms += 10)
            pause_ms(10);
        assert_true(shared->reports >= 50 && server->busy_s > 0);
        kill(r.pid[2], SIGSTOP);
        pause_ms(500); /* what was under way arrives */
        before = *server;
        for (int ms = 0; ms < 60000 && now.waited_s < before.waited_s + 1; ms += 10) {
            pause_ms(10);
            now = *server;
        }
        if (now.waited_s < before.waited_s + 1 || now.busy_s > before.busy_s + 0.5)
            fail_msg("of a server without workers: %g s waited, %g s busy",
                     now.waited_s - before.waited_s, now.busy_s - before.busy_s);
        assert_true(now.waited_s + now.busy_s <= seconds() - begun);
        assert_int_equal(now.receive_queue_bytes, 0);
        for (int i = 0; i < r.n_tasks; i++)
            kill_one(&r, i);
        clear_folder();
    }
}

#define TEST(name) cmocka_unit_test(name)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(validation_is_dealt_out),
                                       TEST(callbacks_set_parameters),
                                       TEST(scaled_losses_skip_steps_everywhere),
                                       TEST(trapped_numerics_end_all_workers),
                                       TEST(parameters_that_are_not_trained_stay),
                                       TEST(who_dies_changes_nothing),
                                       TEST(stop_requests_take_effect_at_one_step),
                                       TEST(servers_wait_for_workers_that_are_stopped)};
    int failed;

    snprintf(folder, sizeof folder, "/tmp/weft-fit-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    clear_folder();
    rmdir(folder);
    return failed;
}
