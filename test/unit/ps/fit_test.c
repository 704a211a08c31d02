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

enum { WORDS = 900, DIM = 8, ROWS = 40 }; /* of the table; rows that are set */

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
    TABLES = 256,     /* a table that forgets rows, and rows of it are set, too */
    FREEZES = 512,    /* a layer is not trained, and a callback changes it */
    PLATEAU = 1024,   /* the learning rate depends on the validation */
    REPORTS = 2048,   /* workers say when they have trained a batch */
    ROUNDS = 4096,    /* workers update; merged every 3 of an epoch's 4 batches */
    MODELS = 8192,    /* whole models are averaged */
    SUMS = 16384,     /* what has changed is added */
    LONG = 32768,     /* a round is longer than an epoch */
    PATIENT = 65536,  /* EarlyStopping does not stop, others come after the best epoch */
    TWICE = 131072    /* two callbacks restore */
};

struct setting {
    int servers, workers, epochs, replicas; /* replicas 0: by default */
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

        if ((only && !strstr(name, only)) || strstr(name, "words"))
            continue;
        st = weft_trainer_weight(t, name, &w);
        for (int64_t k = 0; !st && k < weft_tensor_count(&w); k++)
            ((float *)w.data)[k] *= 0.5F;
    }
    return st;
}

/* Rows that were updated and rows that were not; one of them is set twice. */
static weft_status change_rows(weft_trainer *t, int64_t what)
{
    int64_t id[ROWS];
    float row[ROWS][DIM];
    weft_status st;

    for (int64_t i = 0; i < ROWS; i++)
        id[i] = (i * 37 + what * 11) % WORDS;
    st = weft_trainer_rows(t, "words/embeddings", ROWS, id, row[0]);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < DIM; k++)
            row[i][k] = row[i][k] * 0.5F + (float)(i + k) / 64;
    if (!st)
        st = weft_trainer_set_rows(t, "words/embeddings", ROWS, id, row[0]);
    for (int k = 0; k < DIM; k++)
        row[3][k] = 0.25F;
    return st ? st : weft_trainer_set_rows(t, "words/embeddings", 1, &id[3], row[3]);
}

static weft_status on_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    const struct mine *m = arg;

    (void)logs;
    if ((m->s->does & TABLES) && (m->s->does & SETS_BATCHES) && batch % 2 == 1) {
        weft_status st = change_rows(t, batch + weft_trainer_step(t));

        if (st)
            return st;
    }
    return (m->s->does & SETS_BATCHES) && batch % 2 == 1 ? halve(t, NULL) : WEFT_OK;
}

static weft_status on_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    const struct mine *m = arg;

    (void)logs;
    if ((m->s->does & FREEZES) && epoch == 1)
        return halve(t, "frozen");
    if ((m->s->does & TABLES) && (m->s->does & SETS)) {
        weft_status st = change_rows(t, epoch);

        if (st)
            return st;
    }
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
    if (does & TABLES) {
        weft_sym both[2] = {v, weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){2})};

        both[1] =
            weft_apply(m, "Embedding",
                       "name=words input_dim=900 output_dim=8 evict=unused(3,every=2)", both[1]);
        both[1] = weft_apply(m, "Flatten", NULL, both[1]);
        v = weft_apply_n(m, "Concatenate", NULL, 2, both);
    }
    v = weft_apply(m, "BatchNormalization", NULL, v);
    v = weft_apply(m, "Dropout", "rate=0.2", v);
    v = weft_apply(m, "Dense", "units=17 activation=tanh", v);
    weft_model_output(m, weft_apply(m, "Dense", "units=3", v));
}

static weft_ds tensors(weft_data *d, int n, int seed, bool counted, bool tables)
{
    static float x[2][V][F];
    static int32_t y[2][V], ids[2][V][2];
    weft_ds s;

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < F; k++)
            x[counted][i][k] = (float)((i * 31 + k * 17 + seed * 7) % 23) / 11 - 1;
        y[counted][i] = (i * (31 + seed) / 7) % 3;
        for (int k = 0; k < 2; k++)
            ids[counted][i][k] = (i * 29 + k * 331) % WORDS;
    }
    s = weft_ds_tensors(
        d, tables ? 3 : 2,
        (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}, {.name = "ids"}},
        (weft_tensor[]){weft_view(WEFT_F32, x[counted], 2, (int64_t[]){n, F}),
                        weft_view(WEFT_I32, y[counted], 1, (int64_t[]){n}),
                        weft_view(WEFT_I32, ids[counted], 2, (int64_t[]){n, 2})});
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
    for (unsigned k = 0; (does & RESTORES) && k < (does & TWICE ? 2U : 1U); k++)
        assert_int_equal(weft_callback_new(ctx,
                                           does & PATIENT
                                               ? "EarlyStopping monitor=val_loss patience=100 "
                                                 "min_delta=0.02 restore_best_weights=true"
                                               : "EarlyStopping monitor=val_loss patience=1 "
                                                 "min_delta=0.2 restore_best_weights=true",
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
                  .loss_scale_steps = s->does & SCALED ? 3 : 0, .trap_numerics = s->does & TRAPS,
                  .update = s->does & ROUNDS ? "worker" : NULL,
                  .every = s->does & LONG     ? 7
                           : s->does & ROUNDS ? 3
                                              : 0,
                  .merge = s->does & MODELS ? "models"
                           : s->does & SUMS ? "sum"
                                            : NULL),
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
    weft_callback cb[5];
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
    data = tensors(d, N, 0, false, s->does & TABLES);
    if (s->does & (VALIDATES | RESTORES | PLATEAU))
        val = tensors(d, V, 3, true, s->does & TABLES);
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
    int n_tasks, serial;
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
    if (i <= r->s.servers) {
        char path[96];
        size_t n = (size_t)snprintf(path, sizeof path, "%s/%d-", folder, r->serial);

        if (i)
            snprintf(path + n, sizeof path - n, "ps%d", i - 1);
        else
            snprintf(path + n, sizeof path - n, "chief");
        unlink(path); /* of a process that was killed */
    }
    r->pid[i] = fork();
    assert_true(r->pid[i] >= 0);
    if (r->pid[i] == 0) {
        weft_ps_opts o = {.size = sizeof o,
                          .task = r->task[i],
                          .cluster = r->cluster,
                          .timeout_s = 2,
                          .replicas = r->s.replicas,
                          .piece_bytes = 1000};
        char chief[96];

        snprintf(chief, sizeof chief, "%s/store%d", folder, r->serial);
        o.folder = i == 0 ? chief : NULL;
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
    r->serial = ++serial;
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
            s.replicas = servers == 2 && workers == 3 ? 1 : 0;
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

/* Rows that exist only since the best epoch become initial ones, those that were forgotten come
 * back; a callback after this one sets rows at the end of the best epoch. */
static void best_weights_of_tables_are_restored(void **state)
{
    static const struct {
        unsigned does;
        const char *optimizer;
    } row[] = {
        {RESTORES | TABLES, "adam learning_rate=0.05"},
        {RESTORES | TABLES | PATIENT, "adam learning_rate=0.01"},
        {RESTORES | TABLES | SETS | PATIENT, "sgd learning_rate=0.05 momentum=0.9"},
        {RESTORES | TABLES | SETS | SETS_BATCHES, "lamb learning_rate=0.003 global_clipnorm=1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct setting s = {.epochs = 8, .does = row[i].does, .optimizer = row[i].optimizer};
        uint64_t restored = local(&s).hash;

        s.does &= ~(unsigned)RESTORES;
        assert_true(local(&s).hash != restored); /* otherwise this says nothing */
        same_as_local(row[i].does, row[i].optimizer, 8);
    }
}

static void best_weights_of_tables_are_kept_for_one_callback(void **state)
{
    struct setting s = {.epochs = 4,
                        .does = RESTORES | TABLES | TWICE,
                        .optimizer = "adam",
                        .servers = 1,
                        .workers = 2,
                        .transport = "uds"};
    struct run r;

    (void)state;
    begin(&r, &s);
    wait_all(&r);
    for (int i = 2; i < 4; i++) {
        assert_int_equal(shared->result[i].st, WEFT_ENOSUP);
        assert_non_null(strstr(shared->result[i].why, "for one callback; there are two"));
    }
    clear_folder();
}

static void callbacks_set_rows_of_tables(void **state)
{
    (void)state;
    same_as_local(TABLES | SETS | VALIDATES, "adam learning_rate=0.003", 4);
    same_as_local(TABLES | SETS_BATCHES, "sgd learning_rate=0.05 momentum=0.9 global_clipnorm=1",
                  4);
    same_as_local(TABLES | SETS | SETS_BATCHES, "lamb learning_rate=0.003", 3);
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

static void workers_update(void **state)
{
    (void)state;
    same_as_local(ROUNDS | VALIDATES | PLATEAU, "adam learning_rate=0.003", 4);
    same_as_local(ROUNDS | MODELS | SETS, "sgd learning_rate=0.05 momentum=0.9", 4);
    same_as_local(ROUNDS | SUMS | LONG | RESTORES, "adamw learning_rate=0.003 global_clipnorm=1",
                  5);
    same_as_local(ROUNDS | TRAPS, "sgd learning_rate=1e30", 2);
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

/* After the best epoch, and before its weights are restored: the worker that decides, a server with
 * or without a copy of its pieces elsewhere, or the chief dies. */
static void kill_after_best(unsigned does, int seed)
{
    enum { EPOCHS = 14 };
    struct setting s = {.epochs = EPOCHS,
                        .does = RESTORES | TABLES | PATIENT | REPORTS | does,
                        .optimizer = "adam learning_rate=0.02",
                        .servers = 2,
                        .workers = 2,
                        .transport = seed % 2 ? "uds" : "shm"};
    struct result want = local(&s);

    for (int victim = 0; victim < 4; victim++) {
        static const int task[] = {3, 1, 2, 0};
        struct run r;

        clear_folder();
        s.replicas = victim == 2 && (does & SAVES) ? 1 : 2;
        begin(&r, &s);
        if (wait_until(&r, s.workers * (4 + (seed * 5 + victim * 3) % (EPOCHS - 6)),
                       (seed * 3 + victim) % 7)) {
            kill_one(&r, task[victim]);
            shared->result[task[victim]].has = false;
            n_killed++;
            if (victim > 0)
                start(&r, task[victim]);
        }
        wait_all(&r);
        compare(&r, &want, true);
    }
    clear_folder();
}

static void who_dies_after_the_best_epoch_changes_nothing(void **state)
{
    (void)state;
    n_killed = 0;
    for (int seed = 0; seed < n_seeds(); seed++) {
        kill_after_best(0, seed);
        kill_after_best(SAVES | SETS, seed + 3);
    }
    assert_true(n_killed >= 6 * n_seeds());
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
        kill_during(ROUNDS | VALIDATES, "adam learning_rate=0.003", 7, seed + 1);
        kill_during(ROUNDS | MODELS | SETS, "nadam learning_rate=0.003", 7, seed + 6);
        kill_during(TABLES | SETS | SETS_BATCHES, "adam learning_rate=0.01", 6, seed + 1);
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
            stop_and_resume(ROUNDS | VALIDATES | (seed % 2 ? SETS | MODELS : PLATEAU), who, seed);
            clear_folder();
            stop_and_resume(RESTORES | TABLES | PATIENT | (seed % 2 ? SETS : 0), who, seed);
            clear_folder();
            stop_and_resume(RESTORES | PATIENT | (seed % 2 ? SETS | VALIDATES : 0), who, seed);
            clear_folder();
        }
    assert_true(n_stopped > 2 * n_seeds()); /* usually */
}

/* It ends, with the best weights, and another run with more epochs resumes from its last
 * checkpoint: the best weights of tables are kept on. Checkpoints are written also at the end of
 * epochs in which a callback sets rows. */
static void a_run_that_has_ended_is_trained_further(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 2; servers++) {
        struct setting s = {.epochs = 4,
                            .does = RESTORES | TABLES | PATIENT | SAVES | (servers == 1 ? SETS : 0),
                            .optimizer = "adam learning_rate=0.02",
                            .servers = servers,
                            .workers = 2,
                            .transport = servers == 1 ? "shm" : "uds"};
        struct result first, want;
        weft_ckpt_list *list;
        char path[128];
        weft_ctx *ctx;
        struct run r;

        first = local(&s);
        s.epochs = 7;
        want = local(&s);
        clear_folder();
        s.epochs = 4;
        begin(&r, &s);
        wait_all(&r);
        compare(&r, &first, true);
        snprintf(path, sizeof path, "%s/checkpoints", folder);
        assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
        assert_int_equal(weft_ckpt_list_new(ctx, path, NULL, &list), 0);
        for (int step = 4; step <= 16; step += 4) {
            bool there = false;

            for (int64_t i = 0; i < list->n; i++)
                there |= list->entry[i].step == step && !list->entry[i].error;
            if (!there)
                fail_msg("there is no checkpoint of step %d", step);
        }
        weft_ckpt_list_free(ctx, list);
        weft_ctx_free(ctx);
        s.epochs = 7;
        begin(&r, &s);
        wait_all(&r);
        compare(&r, &want, true);
        clear_folder();
    }
}

/* What servers keep, they alone can give back: another strategy says so, and changes nothing. */
static void best_weights_do_not_change_the_strategy(void **state)
{
    (void)state;
    for (int back = 0; back < 2; back++) {
        struct setting s = {.epochs = 3,
                            .does = RESTORES | TABLES | PATIENT | SAVES,
                            .optimizer = "adam",
                            .servers = 1,
                            .workers = 1,
                            .transport = "uds"};
        struct run r;

        for (int k = 0; k < 2; k++, s.epochs = 5) {
            if (back == k) {
                r = (struct run){.s = s, .n_tasks = 1, .task = {"local"}};
                r.s.workers = 1;
                memset(shared, 0, sizeof *shared);
                fflush(NULL);
                r.pid[0] = fork();
                if (r.pid[0] == 0) {
                    train(&s, NULL, 0, &shared->result[0]);
                    _exit(0);
                }
            } else {
                begin(&r, &s);
            }
            wait_all(&r);
        }
        assert_int_equal(shared->result[r.n_tasks - 1].st, WEFT_EINVAL);
        assert_non_null(strstr(shared->result[r.n_tasks - 1].why, "the servers keep them"));
        clear_folder();
    }
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {TEST(validation_is_dealt_out),
                                       TEST(callbacks_set_parameters),
                                       TEST(callbacks_set_rows_of_tables),
                                       TEST(best_weights_of_tables_are_restored),
                                       TEST(best_weights_of_tables_are_kept_for_one_callback),
                                       TEST(scaled_losses_skip_steps_everywhere),
                                       TEST(trapped_numerics_end_all_workers),
                                       TEST(workers_update),
                                       TEST(parameters_that_are_not_trained_stay),
                                       TEST(who_dies_changes_nothing),
                                       TEST(who_dies_after_the_best_epoch_changes_nothing),
                                       TEST(stop_requests_take_effect_at_one_step),
                                       TEST(a_run_that_has_ended_is_trained_further),
                                       TEST(best_weights_do_not_change_the_strategy),
                                       TEST(servers_wait_for_workers_that_are_stopped)};
    int failed;

    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
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
