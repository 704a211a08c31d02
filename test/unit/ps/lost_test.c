/* lost_test.c - servers that die with the only copy of parameters, as processes: the job goes back
 * to the last checkpoint, or to where it began, while its workers live on. It ends with the bits,
 * the rows of CSVLogger and the events of TensorBoard of a run that nothing happened to.
 *
 * The program starts itself as the tasks of a job. ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 96, F = 7, T = 3, WORDS = 4000, MAX_TASKS = 10, BATCHES = 4, EPOCHS = 30 };

static char folder[64];

/* ---- training -------------------------------------------------------------------------------- */

static uint64_t fnv(const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h;
}

static void build(weft_model *m, bool forgets)
{
    weft_sym x = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F}), all[2];
    weft_sym ids = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});

    x = weft_apply(m, "Dense", "units=200 activation=relu", x);
    x = weft_apply(m, "Dropout", "rate=0.2", x);
    all[0] = weft_apply(m, "BatchNormalization", NULL, x);
    all[1] = weft_apply(m, "Flatten", NULL,
                        weft_apply(m, "Embedding",
                                   forgets ? "input_dim=4000 output_dim=12 evict=unused(3)"
                                           : "input_dim=4000 output_dim=12",
                                   ids));
    weft_model_output(
        m, weft_apply(m, "Dense", "units=3", weft_apply_n(m, "Concatenate", NULL, 2, all)));
}

static void print_line(void *arg, int level, const char *line)
{
    (void)arg;
    if (level >= WEFT_LOG_INFO)
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

/* Time for somebody to be killed. The callback has state, as one of a user's may: how many epochs
 * it has seen. It must be called once for each, but for those that did not count. */
struct slow {
    weft_ctx *ctx;
    int64_t n;
    int ms;
};

static weft_status forget_epochs(void *arg, weft_trainer *t)
{
    (void)t;
    ((struct slow *)arg)->n = 0;
    return WEFT_OK;
}

static weft_status end_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct slow *s = arg;

    (void)t;
    (void)logs;
    if (s->n++ != epoch)
        return wf_err(WEFT_EBUG, "epoch %lld is the one with number %lld", (long long)epoch,
                      (long long)s->n - 1);
    nanosleep(&(struct timespec){.tv_nsec = s->ms * 1000000L}, NULL);
    return WEFT_OK;
}

static weft_status save_epochs(void *arg, char **state, int64_t *n)
{
    struct slow *s = arg;

    *state = wf_alloc(s->ctx, sizeof s->n);
    memcpy(*state, &s->n, sizeof s->n);
    *n = sizeof s->n;
    return WEFT_OK;
}

static weft_status restore_epochs(void *arg, const char *state, int64_t n)
{
    memcpy(&((struct slow *)arg)->n, state, (size_t)n);
    return WEFT_OK;
}

/* How a run is made. */
struct how {
    const char *logs;     /* the directory of CSVLogger and TensorBoard */
    const char *dir;      /* of checkpoints, or NULL */
    int checkpoint_steps; /* 0: at the end of epochs */
    const char
        *optimizer; /* after "rounds ": workers update; "best ": the best weights are restored */
};

static weft_status train(const weft_ps_opts *ps, const struct how *how, uint64_t *hash)
{
    static float x[N][F];
    static int32_t y[N], ids[N][T];
    char csv[200], board[200];
    struct slow slow = {.ms = ps ? 25 : 0};
    bool rounds = strncmp(how->optimizer, "rounds ", 7) == 0;
    bool best = strncmp(how->optimizer, "best ", 5) == 0;
    weft_callback cb[5];
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_trainer *t = NULL;
    weft_data *d;
    weft_history *h = NULL;
    weft_ds s;
    weft_status st = WEFT_OK;

    for (int i = 0; i < N; i++) {
        for (int k = 0; k < F; k++)
            x[i][k] = (float)((i * 29 + k * 13) % 19) / 9 - 1;
        y[i] = (i * 31 / 7) % 3;
        for (int k = 0; k < T; k++)
            ids[i][k] = k ? (i * 389 + k * 1013) % WORDS : i % 11;
    }
    if (weft_ctx_new(
            WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .log = ps ? print_line : NULL), &ctx))
        return WEFT_EINVAL;
    slow.ctx = ctx;
    snprintf(csv, sizeof csv, "CSVLogger filename=%s/log.csv", how->logs);
    snprintf(board, sizeof board, "TensorBoard log_dir=%s/board update_freq=batch", how->logs);
    st = weft_callback_new(ctx, csv, &cb[0]);
    if (!st)
        st = weft_callback_new(ctx, board, &cb[1]);
    if (!st)
        st = weft_callback_new(ctx,
                               "ReduceLROnPlateau monitor=val_loss patience=2 factor=0.7 "
                               "min_delta=0.01 cooldown=1",
                               &cb[2]);
    if (!st && best)
        st = weft_callback_new(ctx,
                               "EarlyStopping monitor=val_loss patience=100 min_delta=0.2 "
                               "restore_best_weights=true",
                               &cb[4]);
    cb[3] = (weft_callback){.size = sizeof *cb,
                            .arg = &slow,
                            .name = "slow",
                            .train_begin = forget_epochs,
                            .epoch_end = end_epoch,
                            .save = save_epochs,
                            .restore = restore_epochs};
    weft_model_new(ctx, NULL, &m);
    build(m, !rounds); /* workers that update do not forget rows */
    if (ps && !st)
        st = weft_dist_open_ps(ctx, ps, &dist);
    if (!st && dist)
        st = weft_dist_scope(dist, m);
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts,
                                    .optimizer = how->optimizer + 7 * rounds + 5 * best,
                                    .update = rounds ? "worker" : NULL, .every = 3 * rounds,
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .metrics = "accuracy", .shards = 4),
                          &t);
    weft_data_new(ctx, &d);
    s = weft_ds_tensors(
        d, 3, (weft_column[]){{.name = "x"}, {.name = "ids"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                        weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    if (!st)
        st = weft_fit(t, d, s,
                      WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 25, .validation = s,
                                .checkpoint = how->dir, .checkpoint_steps = how->checkpoint_steps,
                                .keep_last = 2, .n_callbacks = 4 + best, .callbacks = cb),
                      &h);
    if (!st)
        st = wf_dist_bring(t);
    if (!st) {
        size_t n;
        char *bytes = trainer_bytes(t, &n);

        *hash =
            fnv(bytes, n) ^ fnv(h->value, (size_t)(h->n_epochs * h->n_names) * sizeof *h->value);
        free(bytes);
    } else {
        fprintf(stderr, "failed: %s\n", weft_error()); /* before it is all taken down */
    }
    for (int i = 0; i < 4 + best; i++)
        if (i != 3)
            weft_callback_free(&cb[i]);
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return st;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct run {
    int servers, workers, replicas;
    const char *transport, *steps, *optimizer; /* steps: of checkpoints; "none": there are none */
    char cluster[1024];
    int n_tasks;
    char task[MAX_TASKS][32];
    pid_t pid[MAX_TASKS];
};

/* lost_test --task TASK CLUSTER FOLDER REPLICAS STEPS OPTIMIZER */
static int child(char **arg)
{
    weft_ps_opts o = {.size = sizeof o,
                      .task = arg[0],
                      .cluster = arg[1],
                      .replicas = atoi(arg[3]),
                      .timeout_s = 2,
                      .piece_bytes = 5000};
    char path[128], chief[128], name[64], dir[128];
    struct how how = {.logs = arg[2], .optimizer = arg[5]};
    uint64_t hash = 0;
    weft_ctx *ctx;
    weft_status st;
    FILE *f;

    snprintf(folder, sizeof folder, "%s", arg[2]);
    snprintf(name, sizeof name, "%s", arg[0]);
    *strchr(name, '/') = '-';
    snprintf(path, sizeof path, "%s/%s.log", folder, name);
    if (!freopen(path, "a", stderr))
        return 2;
    if (strncmp(name, "worker", 6) != 0) {
        snprintf(chief, sizeof chief, "%s/chief", folder);
        o.folder = strncmp(name, "chief", 5) == 0 ? chief : NULL;
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = print_line), &ctx);
        st = weft_ps_serve(ctx, &o);
        if (st)
            fprintf(stderr, "%s: %s\n", arg[0], weft_error());
        weft_ctx_free(ctx);
        return st != WEFT_OK;
    }
    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    how.dir = strcmp(arg[4], "none") == 0 ? NULL : dir;
    how.checkpoint_steps = atoi(arg[4]);
    st = train(&o, &how, &hash);
    snprintf(path, sizeof path, "%s/%s.out", folder, name);
    f = fopen(path, "w");
    fprintf(f, "%d %llx\n", (int)st, (unsigned long long)hash);
    fclose(f);
    return st != WEFT_OK;
}

static void start(struct run *r, int i)
{
    char replicas[16];

    snprintf(replicas, sizeof replicas, "%d", r->replicas);
    fflush(NULL);
    r->pid[i] = fork();
    assert_true(r->pid[i] >= 0);
    if (r->pid[i])
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "lost_test", "--task", r->task[i], r->cluster, folder, replicas,
          r->steps, r->optimizer, (char *)NULL);
    _exit(127);
}

static void begin(struct run *r)
{
    size_t n;

    snprintf(r->task[r->n_tasks++], sizeof r->task[0], "chief/0");
    n = (size_t)snprintf(r->cluster, sizeof r->cluster, "chief=%s:%s/c.sock;ps=", r->transport,
                         folder);
    for (int i = 0; i < r->servers; i++) {
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "ps/%d", i);
        n += (size_t)snprintf(r->cluster + n, sizeof r->cluster - n, "%s%s:%s/s%d.sock",
                              i ? "," : "", r->transport, folder, i);
    }
    snprintf(r->cluster + n, sizeof r->cluster - n, ";worker=%d", r->workers);
    for (int i = 0; i < r->workers; i++)
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "worker/%d", i);
    for (int i = 0; i < r->n_tasks; i++)
        start(r, i);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static int index_of(const struct run *r, const char *task)
{
    int i = 0;

    while (strcmp(r->task[i], task) != 0)
        i++;
    return i;
}

static void kill_task(struct run *r, const char *task)
{
    int i = index_of(r, task);

    kill(r->pid[i], SIGKILL);
    waitpid(r->pid[i], NULL, 0);
    r->pid[i] = 0;
}

static void kill_all(struct run *r)
{
    for (int i = 0; i < r->n_tasks; i++)
        if (r->pid[i])
            kill_task(r, r->task[i]);
}

static void print_logs(void)
{
    char command[160];

    snprintf(command, sizeof command, "cd %s && tail -n 40 *.log >&2; ls -la . ckpt board/* >&2",
             folder);
    if (system(command))
        return;
}

static char *read_file(const char *name, size_t *n)
{
    char path[200], *p = malloc(1 << 20);
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "r");
    *n = f ? fread(p, 1, (1 << 20) - 1, f) : 0;
    if (f)
        fclose(f);
    p[*n] = '\0';
    return p;
}

/* How many epochs the CSV file has. */
static int n_rows(void)
{
    size_t n;
    char *p = read_file("log.csv", &n);
    int rows = -1;

    for (size_t i = 0; i < n; i++)
        rows += p[i] == '\n';
    free(p);
    return rows;
}

static void await_rows(struct run *r, int rows)
{
    for (int ms = 0; n_rows() < rows; ms += 3) {
        if (ms > 60000) {
            print_logs();
            kill_all(r);
            fail_msg("there are %d rows, not %d", n_rows(), rows);
        }
        pause_ms(3);
    }
}

/* Whether a line of a log has this text. */
static bool logged(const char *task, const char *text)
{
    char name[64];
    size_t n;
    char *p;
    bool found;

    snprintf(name, sizeof name, "%s.log", task);
    p = read_file(name, &n);
    found = strstr(p, text) != NULL;
    free(p);
    return found;
}

/* ---- what is compared ------------------------------------------------------------------------ */

/* What `local` gives; its CSV file is local/log.csv. */
static uint64_t local(const struct run *r)
{
    char logs[100];
    uint64_t hash;

    snprintf(logs, sizeof logs, "%s/local", folder);
    assert_int_equal(train(NULL, &(struct how){.logs = logs, .optimizer = r->optimizer}, &hash), 0);
    return hash;
}

/* The steps with a loss in a file of events; list: they are printed. */
static void count_events(const char *path, int *seen, bool list)
{
    FILE *f = fopen(path, "r");
    uint64_t n;
    char head[12], data[65536];

    assert_non_null(f);
    while (fread(head, 1, 12, f) == 12) {
        int64_t step = 0;

        memcpy(&n, head, 8);
        assert_true(n < sizeof data && fread(data, 1, n + 4, f) == n + 4);
        if (n > 11 && data[9] == 0x10) /* after the time: the step */
            for (int i = 0; i < 5; i++) {
                step |= (int64_t)(data[10 + i] & 127) << 7 * i;
                if (!(data[10 + i] & 128))
                    break;
            }
        if (memmem(data, n, "batch_loss", 10) && step <= EPOCHS * BATCHES) {
            if (list)
                fprintf(stderr, "%s: step %lld\n", path, (long long)step);
            seen[step]++;
        }
    }
    fclose(f);
}

static void count_all_events(const char *below, int *seen, bool list)
{
    char dir[128], path[600];
    struct dirent *e;
    DIR *d;

    snprintf(dir, sizeof dir, "%s%s/board/train", folder, below);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)))
        if (strstr(e->d_name, "tfevents")) {
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
            count_events(path, seen, list);
        }
    closedir(d);
}

/* Each step as often as in one process: once, or where the last batch of a round made it. */
static void check_events(bool rounds)
{
    int seen[EPOCHS * BATCHES + 1] = {0}, want[EPOCHS * BATCHES + 1] = {0};

    count_all_events("", seen, false);
    count_all_events("/local", want, false);
    for (int i = 1; i <= EPOCHS * BATCHES; i++)
        if (seen[i] != want[i] || (!rounds && want[i] != 1)) {
            int n = seen[i];

            print_logs();
            count_all_events("", seen, true);
            fail_msg("TensorBoard has step %d %d times, that of one process %d times", i, n,
                     want[i]);
        }
}

/* All workers end in order, as the processes that they were; and with them the job. */
static void finish(struct run *r)
{
    uint64_t want = local(r);
    size_t n, n_want;
    char *csv, *csv_want;

    for (int i = r->n_tasks - 1; i >= 0; i--) {
        char name[64];
        unsigned long long hash = 0;
        int st = -1, ended = 0, status = -1;
        char *out;

        for (int ms = 0; ms < 60000 && !ended; ms += 10) {
            ended = waitpid(r->pid[i], &status, WNOHANG) == r->pid[i];
            if (!ended)
                pause_ms(10);
        }
        if (ended)
            r->pid[i] = 0;
        if (!ended || status) {
            print_logs();
            kill_all(r);
            fail_msg("%s: status %d", r->task[i], status);
        }
        if (i <= r->servers)
            continue;
        snprintf(name, sizeof name, "worker-%s.out", strchr(r->task[i], '/') + 1);
        out = read_file(name, &n);
        if (sscanf(out, "%d %llx", &st, &hash) != 2 || st || hash != want) {
            print_logs();
            kill_all(r);
            fail_msg("%s: status %d, %llx; %llx was expected", r->task[i], st, hash,
                     (unsigned long long)want);
        }
        free(out);
    }
    csv = read_file("log.csv", &n);
    csv_want = read_file("local/log.csv", &n_want);
    if (n != n_want || memcmp(csv, csv_want, n) != 0)
        fail_msg("the CSV files differ:\n%s\n%s", csv, csv_want);
    free(csv);
    free(csv_want);
    check_events(strncmp(r->optimizer, "rounds", 6) == 0);
}

static int setup(void **state)
{
    char path[100];

    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-lost-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "mkdir %s/local", folder);
    return system(path);
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void start_server(struct run *r, const char *task)
{
    char path[128];

    snprintf(path, sizeof path, "%s/s%s.sock", folder, strchr(task, '/') + 1);
    unlink(path);
    start(r, index_of(r, task));
}

/* Kills a server after so many epochs, and starts it again, as a launcher does. */
static void lose(struct run *r, const char *task, int rows)
{
    await_rows(r, rows);
    kill_task(r, task);
    start_server(r, task);
}

static void a_job_goes_back_to_its_checkpoint(void **state)
{
    struct run runs[] = {
        {.servers = 2,
         .workers = 2,
         .replicas = 1,
         .transport = "uds",
         .steps = "3",
         .optimizer = "adam learning_rate=0.002"},
        {.servers = 1,
         .workers = 2,
         .replicas = 1,
         .transport = "shm",
         .steps = "0",
         .optimizer = "sgd learning_rate=0.05 momentum=0.9"},
        {.servers = 2,
         .workers = 1,
         .replicas = 1,
         .transport = "shm",
         .steps = "5",
         .optimizer = "adam learning_rate=0.002 global_clipnorm=0.7"},
        {.servers = 2,
         .workers = 2,
         .replicas = 1,
         .transport = "uds",
         .steps = "3",
         .optimizer = "rounds adam learning_rate=0.002"},
        {.servers = 2,
         .workers = 2,
         .replicas = 1,
         .transport = "uds",
         .steps = "0",
         .optimizer = "best adam learning_rate=0.002"},
        {.servers = 1,
         .workers = 1,
         .replicas = 1,
         .transport = "shm",
         .steps = "3",
         .optimizer = "best sgd learning_rate=0.05 momentum=0.9"},
    };

    (void)state;
    for (int i = 0; i < (int)WF_COUNT(runs); i++) {
        teardown(NULL);
        setup(NULL);
        begin(&runs[i]);
        lose(&runs[i], "ps/0", 7);
        finish(&runs[i]);
        assert_true(logged("worker-0", "training goes back to the checkpoint of step"));
    }
}

static void a_job_without_a_checkpoint_begins_again(void **state)
{
    struct run runs[] = {
        {.servers = 2,
         .workers = 2,
         .replicas = 1,
         .transport = "uds",
         .steps = "none",
         .optimizer = "adam learning_rate=0.002"},
        {.servers = 1,
         .workers = 2,
         .replicas = 1,
         .transport = "shm",
         .steps = "1000",
         .optimizer = "sgd learning_rate=0.05 momentum=0.9"},
        {.servers = 1,
         .workers = 2,
         .replicas = 1,
         .transport = "shm",
         .steps = "none",
         .optimizer = "rounds sgd learning_rate=0.05 momentum=0.9"},
        {.servers = 1,
         .workers = 2,
         .replicas = 1,
         .transport = "uds",
         .steps = "none",
         .optimizer = "best adam learning_rate=0.002"},
    };

    (void)state;
    for (int i = 0; i < (int)WF_COUNT(runs); i++) {
        teardown(NULL);
        setup(NULL);
        begin(&runs[i]);
        lose(&runs[i], "ps/0", 5);
        finish(&runs[i]);
        assert_true(logged("worker-0", "training begins again, with step 0"));
    }
}

/* Again and again, another server each time; once a server with a worker. */
static void servers_may_die_again(void **state)
{
    struct run r = {.servers = 2,
                    .workers = 2,
                    .replicas = 1,
                    .transport = "uds",
                    .steps = "3",
                    .optimizer = "adam learning_rate=0.002"};

    (void)state;
    begin(&r);
    lose(&r, "ps/0", 4);
    lose(&r, "ps/1", 8);
    pause_ms(120); /* while they go back */
    lose(&r, "ps/0", 0);
    finish(&r);
}

/* Every copy of a piece is on one of them. */
static void two_servers_die_at_once(void **state)
{
    struct run r = {.servers = 2,
                    .workers = 2,
                    .replicas = 2,
                    .transport = "uds",
                    .steps = "3",
                    .optimizer = "adam learning_rate=0.002"};

    (void)state;
    begin(&r);
    await_rows(&r, 6);
    kill_task(&r, "ps/0");
    kill_task(&r, "ps/1");
    start_server(&r, "ps/0");
    start_server(&r, "ps/1");
    finish(&r);
    assert_true(logged("worker-1", "training goes back to the checkpoint of step"));
}

/* It misses that the job goes back, and then that it was given up: when it has gone back and joins
 * again, it is the only one that can give servers the first version of the history. */
static void the_only_worker_is_stopped_while_the_job_goes_back(void **state)
{
    struct run r = {.servers = 1,
                    .workers = 1,
                    .replicas = 1,
                    .transport = "uds",
                    .steps = "3",
                    .optimizer = "adam learning_rate=0.002"};

    (void)state;
    begin(&r);
    await_rows(&r, 4);
    kill(r.pid[index_of(&r, "worker/0")], SIGSTOP);
    pause_ms(100);
    kill_task(&r, "ps/0");
    start_server(&r, "ps/0");
    pause_ms(2900); /* longer than the timeout */
    kill(r.pid[index_of(&r, "worker/0")], SIGCONT);
    finish(&r);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_job_goes_back_to_its_checkpoint),
        TEST(a_job_without_a_checkpoint_begins_again),
        TEST(servers_may_die_again),
        TEST(two_servers_die_at_once),
        TEST(the_only_worker_is_stopped_while_the_job_goes_back),
    };

    if (argc == 8 && strcmp(argv[1], "--task") == 0)
        return child(argv + 2);
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
