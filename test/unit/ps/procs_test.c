/* procs_test.c - parameter servers as processes: the bits of `local`, over every transport, for any
 * number of workers and servers; and while processes are killed.
 *
 * The program starts itself as the tasks of a job. ctest-timeout: 600 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "net/tls.h"
#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 96, F = 9, T = 3, WORDS = 4000, MAX_TASKS = 16, SHARDS = 4 };

struct job {
    int servers, workers, replicas, epochs;
    const char *transport;
    const char *optimizer;
    const char *how; /* "plain", or what train() knows besides; "eight": shards */
};

/* ---- what a worker does ---------------------------------------------------------------------- */

struct result {
    uint64_t hash;
    double loss;
    long long step;
    long long sent, received; /* bytes */
    char why[400];
};

static uint64_t fnv(const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h;
}

/* A callback of the user that changes the learning rate after each batch, and has state. */
struct rate {
    weft_ctx *ctx;
    double n;
};

static weft_status change_rate(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct rate *r = arg;

    (void)batch;
    r->n += weft_logs_get(logs, "loss");
    return weft_trainer_set_rate(t, 0.001 * (1 + fmod(r->n, 5)));
}

static weft_status save_rate(void *arg, char **state, int64_t *n)
{
    struct rate *r = arg;

    *state = wf_alloc(r->ctx, sizeof r->n);
    memcpy(*state, &r->n, sizeof r->n);
    *n = sizeof r->n;
    return WEFT_OK;
}

static weft_status restore_rate(void *arg, const char *state, int64_t n)
{
    memcpy(&((struct rate *)arg)->n, state, (size_t)n);
    return WEFT_OK;
}

static weft_status forget_rate(void *arg, weft_trainer *t)
{
    (void)t;
    ((struct rate *)arg)->n = 0;
    return WEFT_OK;
}

/* One whose decision no other process can compute. */
static weft_status choose_rate(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)arg;
    (void)epoch;
    (void)logs;
    return weft_trainer_set_rate(t, 0.0001 * (1 + (double)(getpid() % 97)));
}

/* The callbacks of a job. */
static int callbacks_of(weft_ctx *ctx, const struct job *j, const char *folder, struct rate *state,
                        weft_callback *cb)
{
    char spec[300];
    int n = 0;

    if (strcmp(j->how, "plain") == 0 || strcmp(j->how, "accumulate") == 0 ||
        strcmp(j->how, "eight") == 0)
        return 0;
    snprintf(spec, sizeof spec, "CSVLogger filename=%s/log.csv", folder ? folder : "/tmp");
    if (folder)
        assert_int_equal(weft_callback_new(ctx, spec, &cb[n++]), 0);
    if (strcmp(j->how, "batches") == 0)
        cb[n++] = (weft_callback){.size = sizeof *cb,
                                  .arg = state,
                                  .name = "rate",
                                  .train_begin = forget_rate,
                                  .batch_end = change_rate,
                                  .save = save_rate,
                                  .restore = restore_rate};
    else if (strcmp(j->how, "chosen") == 0)
        cb[n++] = (weft_callback){.size = sizeof *cb, .name = "choice", .epoch_end = choose_rate};
    else
        assert_int_equal(weft_callback_new(ctx,
                                           "ReduceLROnPlateau monitor=val_loss patience=2 "
                                           "factor=0.7 min_delta=0.01 cooldown=1",
                                           &cb[n++]),
                         0);
    if (strcmp(j->how, "stops") == 0)
        assert_int_equal(
            weft_callback_new(ctx, "EarlyStopping monitor=val_loss patience=40", &cb[n++]), 0);
    return n;
}

/* Parameters of all kinds, and tables: one of many rows, which two inputs share, and a small
 * one. */
static void build(weft_model *m)
{
    weft_layer shared = weft_layer_new(m, "Embedding", "input_dim=4000 output_dim=16");
    weft_sym ids = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}), v, all[4];

    v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    v = weft_apply(m, "Dense", "units=300 activation=relu kernel_regularizer=l2(0.001)", v);
    v = weft_apply(m, "BatchNormalization", NULL, v);
    v = weft_apply(m, "Dropout", "rate=0.2", v);
    all[0] = weft_apply(m, "Dense", "units=40 activation=tanh", v);
    all[1] = weft_apply(m, "Flatten", NULL, weft_call(m, shared, ids));
    all[2] = weft_apply(m, "Flatten", NULL,
                        weft_call(m, shared, weft_input(m, "few", WEFT_I32, 1, (int64_t[]){1})));
    all[3] = weft_apply(m, "Flatten", NULL,
                        weft_apply(m, "Embedding",
                                   "input_dim=4000 output_dim=5 "
                                   "evict=unused(3,every=2,min_count=4)",
                                   ids));
    v = weft_apply_n(m, "Concatenate", NULL, 4, all);
    weft_model_output(m, weft_apply(m, "Dense", "units=3", v));
}

static weft_status train(const struct job *j, const weft_ps_opts *ps, const char *folder,
                         int threads, struct result *r)
{
    static float x[N][F];
    static int32_t y[N], ids[N][T], few[N];
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_trainer *t = NULL;
    weft_data *d;
    weft_history *h = NULL;
    weft_ds s;
    weft_status st = WEFT_OK;
    weft_callback cb[4];
    struct rate state = {.n = 0};
    weft_dist_counts counts = {.size = sizeof counts};
    bool eight = strcmp(j->how, "eight") == 0;
    size_t n;
    char *bytes;
    int n_cb;

    for (int i = 0; i < N; i++) {
        for (int k = 0; k < F; k++)
            x[i][k] = (float)((i * 31 + k * 17) % 23) / 11 - 1;
        y[i] = (i * 31 / 7) % 3;
        few[i] = i % 7;
        for (int k = 0; k < T; k++)
            ids[i][k] = k ? (i * 389 + k * 1013) % WORDS : i % 11;
    }
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads, .seed = 5), &ctx))
        return WEFT_EINVAL;
    weft_model_new(ctx, NULL, &m);
    build(m);
    if (ps)
        st = weft_dist_open_ps(ctx, ps, &dist);
    if (!st && dist)
        st = weft_dist_scope(dist, m);
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = j->optimizer,
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .metrics = "accuracy", .shards = eight ? 8 : SHARDS,
                                    .accumulate = strcmp(j->how, "accumulate") == 0 ? 3 : 1),
                          &t);
    weft_data_new(ctx, &d);
    s = weft_ds_tensors(
        d, 4,
        (weft_column[]){
            {.name = "x"}, {.name = "ids"}, {.name = "few"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                        weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}),
                        weft_view(WEFT_I32, few, 2, (int64_t[]){N, 1}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    state.ctx = ctx;
    n_cb = callbacks_of(ctx, j, folder, &state, cb);
    if (!st)
        st = weft_fit(
            t, d, s,
            WEFT_OPTS(weft_fit_opts, .epochs = j->epochs,
                      .batch = eight ? 31 : 25, /* of eight shards, some are empty in the last */
                      .validation = strcmp(j->how, "stops") == 0 || strcmp(j->how, "plateau") == 0
                                        ? s
                                        : (weft_ds){0},
                      .n_callbacks = n_cb, .callbacks = cb),
            &h);
    if (!st)
        st = wf_dist_bring(t);
    if (!st) {
        bytes = trainer_bytes(t, &n);
        if (dist)
            st = weft_dist_count(dist, &counts);
        *r = (struct result){fnv(bytes, n),
                             h->value[(h->n_epochs - 1) * h->n_names],
                             (long long)weft_trainer_step(t),
                             counts.sent,
                             counts.received,
                             ""};
        free(bytes);
    } else {
        snprintf(r->why, sizeof r->why, "%s", weft_error()); /* before it is all taken down */
    }
    for (int i = 0; i < n_cb; i++)
        weft_callback_free(&cb[i]);
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return st;
}

/* procs_test --task TASK CLUSTER FOLDER REPLICAS EPOCHS OPTIMIZER HOW */
static int child(char **arg)
{
    char authority[300], certificate[300], key[300], out[300];
    weft_ps_opts o = {.size = sizeof o,
                      .task = arg[0],
                      .cluster = arg[1],
                      .replicas = atoi(arg[3]),
                      .timeout_s = 2,
                      .piece_bytes = 5000,
                      .authority = authority,
                      .certificate = certificate,
                      .key = key};
    struct job j = {.epochs = atoi(arg[4]), .optimizer = arg[5], .how = arg[6]};
    struct result r;
    weft_ctx *ctx;
    weft_status st;
    char task[64], *slash;
    FILE *f;

    o.balance_s = strcmp(j.how, "helps") == 0 ? 0.1 : 0;
    o.backup = strcmp(j.how, "helps") == 0 ? 2 : 0;
    snprintf(task, sizeof task, "%s", arg[0]);
    slash = strchr(task, '/');
    *slash = '-';
    snprintf(authority, sizeof authority, "%s/authority.pem", arg[2]);
    snprintf(certificate, sizeof certificate, "%s/%s.pem", arg[2], task);
    snprintf(key, sizeof key, "%s/%s.key", arg[2], task);
    if (strncmp(task, "worker", 6) != 0) {
        snprintf(out, sizeof out, "%s/chief", arg[2]);
        o.folder = strncmp(task, "chief", 5) == 0 ? out : NULL;
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
        st = weft_ps_serve(ctx, &o);
        if (st)
            fprintf(stderr, "%s: %s\n", arg[0], weft_error());
        weft_ctx_free(ctx);
        return st != WEFT_OK;
    }
    st = train(&j, &o, arg[2], 1 + atoi(slash + 1) % 2, &r);
    snprintf(out, sizeof out, "%s/%s.out", arg[2], task);
    f = fopen(out, "w");
    if (st)
        fprintf(f, "error %s\n", r.why);
    else
        fprintf(f, "%llx %a %lld %lld %lld\n", (unsigned long long)r.hash, r.loss, r.step, r.sent,
                r.received);
    fclose(f);
    return st != WEFT_OK;
}

/* ---- starting tasks -------------------------------------------------------------------------- */

struct run {
    struct job job;
    char folder[64], cluster[1024];
    int n_tasks;
    char task[MAX_TASKS][32];
    pid_t pid[MAX_TASKS];
    bool again[MAX_TASKS]; /* started again by the test: perhaps when the job was over */
};

static int any_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* None of the last ones: the system may give the same again. */
static int free_port(void)
{
    static int last[MAX_TASKS];
    static int n;
    int port = any_port();

    for (int i = 0; i < MAX_TASKS; i++)
        if (last[i] == port) {
            port = any_port();
            i = -1;
        }
    return last[n++ % MAX_TASKS] = port;
}

static void address(const struct run *r, const char *task, char *out, size_t size)
{
    const char *t = r->job.transport;

    if (strcmp(t, "tcp") == 0 || strcmp(t, "tls") == 0)
        snprintf(out, size, "%s:127.0.0.1:%d", t, free_port());
    else
        snprintf(out, size, "%s:%s/%s.sock", t, r->folder, task);
}

static void put_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void certificates(struct run *r)
{
    struct wf_pem authority, own;
    weft_ctx *ctx;

    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(wf_cert_authority(ctx, 1, &authority), 0);
    put_file(r->folder, "authority.pem", authority.certificate);
    for (int i = 0; i < r->n_tasks; i++) {
        char role[32], name[64];

        snprintf(role, sizeof role, "%s", r->task[i]);
        *strchr(role, '/') = '\0';
        assert_int_equal(wf_cert_issue(ctx, &authority, role, r->task[i], 1, &own), 0);
        snprintf(name, sizeof name, "%s-%s.pem", role, strchr(r->task[i], '/') + 1);
        put_file(r->folder, name, own.certificate);
        snprintf(name, sizeof name, "%s-%s.key", role, strchr(r->task[i], '/') + 1);
        put_file(r->folder, name, own.key);
        wf_pem_free(ctx, &own);
    }
    wf_pem_free(ctx, &authority);
    weft_ctx_free(ctx);
}

static void start(struct run *r, int i)
{
    char replicas[16], epochs[16];

    snprintf(replicas, sizeof replicas, "%d", r->job.replicas);
    snprintf(epochs, sizeof epochs, "%d", r->job.epochs);
    fflush(NULL);
    r->pid[i] = fork();
    assert_true(r->pid[i] >= 0);
    if (r->pid[i] == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "procs_test", "--task", r->task[i], r->cluster, r->folder, replicas,
              epochs, r->job.optimizer, r->job.how, (char *)NULL);
        _exit(127);
    }
}

static void begin(struct run *r, const struct job *j)
{
    char one[256];
    size_t n = 0;

    *r = (struct run){.job = *j};
    if (!r->job.how)
        r->job.how = "plain";
    snprintf(r->folder, sizeof r->folder, "/tmp/weft-procs-XXXXXX");
    assert_non_null(mkdtemp(r->folder));
    snprintf(r->task[r->n_tasks++], sizeof r->task[0], "chief/0");
    for (int i = 0; i < j->servers; i++)
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "ps/%d", i);
    for (int i = 0; i < j->workers; i++)
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "worker/%d", i);
    address(r, "chief", one, sizeof one);
    n += (size_t)snprintf(r->cluster + n, sizeof r->cluster - n, "chief=%s;ps=", one);
    for (int i = 0; i < j->servers; i++) {
        char name[32];

        snprintf(name, sizeof name, "ps%d", i);
        address(r, name, one, sizeof one);
        n += (size_t)snprintf(r->cluster + n, sizeof r->cluster - n, "%s%s", i ? "," : "", one);
    }
    snprintf(r->cluster + n, sizeof r->cluster - n, ";worker=%d", j->workers);
    if (strcmp(j->transport, "tls") == 0)
        certificates(r);
    for (int i = 0; i < r->n_tasks; i++)
        start(r, i);
}

/* The exit status; -1 after `seconds`. */
static int wait_for(struct run *r, int i, double seconds)
{
    for (double waited = 0; waited < seconds; waited += 0.01) {
        int status;

        if (waitpid(r->pid[i], &status, WNOHANG) == r->pid[i]) {
            r->pid[i] = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        }
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -1;
}

static void kill_one(struct run *r, int i)
{
    kill(r->pid[i], SIGKILL);
    waitpid(r->pid[i], NULL, 0);
    r->pid[i] = 0;
}

static void end(struct run *r)
{
    char command[128];

    for (int i = 0; i < r->n_tasks; i++)
        if (r->pid[i])
            kill_one(r, i);
    snprintf(command, sizeof command, "rm -rf %s", r->folder);
    assert_int_equal(system(command), 0);
}

static void check_worker(struct run *r, int worker, const struct result *want)
{
    char path[128], text[600] = "";
    unsigned long long hash = 0;
    double loss = 0;
    long long step = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/worker-%d.out", r->folder, worker);
    f = fopen(path, "r");
    if (!f || !fgets(text, sizeof text, f))
        fail_msg("worker/%d of %s wrote nothing", worker, r->cluster);
    fclose(f);
    if (sscanf(text, "%llx %la %lld", &hash, &loss, &step) != 3)
        fail_msg("worker/%d: %s", worker, text);
    assert_int_equal(step, want->step);
    if (hash != want->hash || memcmp(&loss, &want->loss, sizeof loss))
        fail_msg("worker/%d of %d, %d servers, %d replicas, %s, %s: not the %s of local (loss "
                 "%.17g, local %.17g)",
                 worker, r->job.workers, r->job.servers, r->job.replicas, r->job.transport,
                 r->job.optimizer, hash != want->hash ? "bits" : "loss", loss, want->loss);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void processes_give_the_bits_of_one(void **state)
{
    const struct job jobs[] = {
        {1, 1, 1, 4, "tcp", "sgd learning_rate=0.1 momentum=0.9", "plain"},
        {2, 2, 2, 4, "uds", "adam learning_rate=0.01 global_clipnorm=0.5", "plain"},
        {2, 3, 1, 4, "shm", "adamw learning_rate=0.01", "plain"},
        {3, 4, 2, 4, "shm", "lamb learning_rate=0.01", "plain"},
        {2, 2, 2, 4, "tls", "rmsprop clipnorm=0.3", "plain"},
        {3, 2, 2, 4, "tcp", "lamb learning_rate=0.01 global_clipnorm=1", "plain"},
    };

    (void)state;
    for (size_t k = 0; k < WF_COUNT(jobs); k++) {
        struct result want;
        struct run r;

        assert_int_equal(train(&jobs[k], NULL, NULL, 2, &want), 0);
        begin(&r, &jobs[k]);
        for (int i = r.n_tasks - 1; i >= 0; i--)
            if (wait_for(&r, i, 60) != 0)
                fail_msg("'%s' of %s failed or did not end", r.task[i], r.cluster);
        for (int i = 0; i < jobs[k].workers; i++)
            check_worker(&r, i, &want);
        end(&r);
    }
}

static bool is_running(struct run *r, int i)
{
    siginfo_t info = {.si_pid = 0};

    return r->pid[i] && waitid(P_PID, (id_t)r->pid[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

static void pause_ms(uint64_t ms)
{
    nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000}, NULL);
}

/* A worker is killed, and servers are, again and again, and started again: until the other workers
 * have done all steps. */
static void kill_processes(const char *transport, uint64_t random)
{
    const struct job j = {
        3, 3, 2, 450, transport, "adam learning_rate=0.001 global_clipnorm=0.5", "plain"};
    struct result want;
    struct run r;
    char socket[128];
    int n_kills = 0;

    assert_int_equal(train(&j, NULL, NULL, 2, &want), 0);
    begin(&r, &j);
    pause_ms(400);
    while (n_kills < 4 && is_running(&r, 4)) {
        int i;

        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        i = n_kills == 1 ? r.n_tasks - 1 : 1 + (int)(random % 3);
        kill_one(&r, i);
        n_kills++;
        pause_ms(20 + random % 150);
        if (i < 4) {
            snprintf(socket, sizeof socket, "%s/ps%d.sock", r.folder, i - 1);
            unlink(socket); /* of the process that was killed */
            start(&r, i);
        }
        pause_ms(800 + random % 300); /* until all pieces have two copies again */
    }
    assert_true(n_kills >= 2);
    for (int i = 0; i < 2; i++) {
        int status = wait_for(&r, 4 + i, 100);

        check_worker(&r, i, &want); /* says why it failed */
        if (status != 0)
            fail_msg("'%s' failed or did not end", r.task[4 + i]);
    }
    end(&r);
}

static void killed_processes_change_nothing(void **state)
{
    (void)state;
    kill_processes("tcp", 88172645463325252u);
}

/* What a worker left in its memory counts after its death; what a server published stays readable
 * after that of the server. */
static void killed_processes_that_share_memory_change_nothing(void **state)
{
    (void)state;
    kill_processes("shm", 1234567891234567u);
}

/* A worker is stopped now and then, for less than what counts as dead: others compute its shards,
 * and get some of them. Over memory that they share, and over sockets. */
static void slow_workers_change_nothing(void **state)
{
    struct job j = {2, 3, 2, 150, "shm", "adam learning_rate=0.001", "helps"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct result want;
        struct run r;

        j.transport = k ? "tcp" : "shm";
        assert_int_equal(train(&j, NULL, NULL, 2, &want), 0);
        begin(&r, &j);
        pause_ms(300);
        for (int i = 0; i < 8 && is_running(&r, 4); i++) {
            kill(r.pid[4], SIGSTOP);
            pause_ms(120);
            kill(r.pid[4], SIGCONT);
            pause_ms(60);
        }
        for (int i = 0; i < 3; i++) {
            int status = wait_for(&r, 3 + i, 100);

            check_worker(&r, i, &want); /* says why it failed */
            assert_int_equal(status, 0);
        }
        end(&r);
    }
}

static uint64_t next_random(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* A worker that was started when all others were ready finds nobody. */
static bool is_too_late(struct run *r, int i)
{
    if (!r->again[i] || wait_for(r, i, 3) == 0)
        return false;
    if (r->pid[i])
        kill_one(r, i);
    return true;
}

/* Everybody has the bits of local. Returns how many workers were started again and took part. */
static int check_all(struct run *r, const struct result *want)
{
    int first = r->n_tasks - r->job.workers, n_back = 0;

    for (int pass = 0; pass < 2; pass++) /* those that were there all the time first */
        for (int i = r->n_tasks - 1; i >= 0; i--) {
            bool worker = i >= first;

            if (r->again[i] != (pass == 1) || !r->pid[i] || is_too_late(r, i))
                continue;
            if (r->pid[i] && wait_for(r, i, 100) != 0) {
                if (worker)
                    check_worker(r, i - first, want); /* it may say why */
                fail_msg("'%s' of %s (%s) failed or did not end", r->task[i], r->cluster,
                         r->job.how);
            }
            if (worker)
                check_worker(r, i - first, want);
            n_back += r->again[i];
        }
    return n_back;
}

static int lines_of(const struct run *r, const char *name)
{
    char path[128];
    int n = 0, c;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    f = fopen(path, "r");
    assert_non_null(f);
    while ((c = fgetc(f)) != EOF)
        n += c == '\n';
    fclose(f);
    return n;
}

/* Workers are killed and started again, also the one that decides: all of them end with the bits of
 * local. */
static void workers_that_come_back_take_part_again(void **state)
{
    const struct job jobs[] = {
        {2, 3, 2, 250, "shm", "adam learning_rate=0.001 global_clipnorm=0.5", "plain"},
        {2, 2, 2, 250, "tcp", "adam learning_rate=0.001", "plateau"},
        {1, 2, 1, 150, "shm", "sgd learning_rate=0.01 momentum=0.9", "accumulate"},
        {1, 2, 1, 100, "tcp", "sgd learning_rate=0.01 momentum=0.9", "batches"},
    };
    uint64_t random = 88172645463325252u;
    int n_back = 0;

    (void)state;
    for (size_t k = 0; k < WF_COUNT(jobs); k++) {
        struct result want;
        struct run r;
        int first = 1 + jobs[k].servers;

        assert_int_equal(train(&jobs[k], NULL, NULL, 2, &want), 0);
        begin(&r, &jobs[k]);
        pause_ms(500);
        for (int n = 0; n < 3 && is_running(&r, first); n++) {
            int i = first + (n == 0 ? 0 : (int)(next_random(&random) % (uint64_t)jobs[k].workers));

            kill_one(&r, i);
            pause_ms(20 + next_random(&random) % 100);
            start(&r, i);
            r.again[i] = true;
            pause_ms(400 + next_random(&random) % 300);
        }
        n_back += check_all(&r, &want);
        if (strcmp(jobs[k].how, "plateau") == 0)
            assert_int_equal(lines_of(&r, "log.csv"), 1 + jobs[k].epochs);
        end(&r);
    }
    assert_true(n_back > 0);
}

/* What a worker has sent for each byte that it has received. */
static double sent_of(const struct run *r, int worker)
{
    char path[128];
    long long sent = 0, received = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/worker-%d.out", r->folder, worker);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*x %*a %*d %lld %lld", &sent, &received), 2);
    fclose(f);
    return (double)sent / (double)received;
}

/* Several shards of a worker travel as their sum: the same bits, and no more bytes than parameters.
 * Over memory that is shared, each is read where it is. */
static void sums_of_shards_change_nothing(void **state)
{
    const struct job jobs[] = {
        {1, 1, 1, 6, "tcp", "adam learning_rate=0.01", "eight"},
        {2, 2, 2, 6, "tcp", "lamb learning_rate=0.01 global_clipnorm=1", "eight"},
        {2, 3, 1, 6, "tls", "sgd learning_rate=0.1 momentum=0.9", "eight"},
        {2, 3, 2, 6, "shm", "adam learning_rate=0.01", "eight"},
    };

    (void)state;
    for (size_t k = 0; k < WF_COUNT(jobs); k++) {
        struct result want;
        struct run r;

        assert_int_equal(train(&jobs[k], NULL, NULL, 2, &want), 0);
        begin(&r, &jobs[k]);
        check_all(&r, &want);
        if (jobs[k].workers == 1 && sent_of(&r, 0) > 2)
            fail_msg("%g bytes are sent for each that is received", sent_of(&r, 0));
        end(&r);
    }
}

/* Workers die in the middle of steps: others compute their shards, and some of a sum are there
 * already. */
static void sums_overlap_when_workers_die(void **state)
{
    const struct job j = {2, 3, 2, 250, "tcp", "adam learning_rate=0.001", "eight"};
    uint64_t random = 362436069u;
    struct result want;
    struct run r;

    (void)state;
    assert_int_equal(train(&j, NULL, NULL, 2, &want), 0);
    begin(&r, &j);
    pause_ms(400);
    for (int n = 0; n < 4 && is_running(&r, 3); n++) {
        int i = 4 + (int)(next_random(&random) % 2);

        kill_one(&r, i);
        pause_ms(next_random(&random) % 100);
        start(&r, i);
        pause_ms(200 + next_random(&random) % 300);
    }
    check_all(&r, &want);
    end(&r);
}

/* A worker or a server is stopped for longer than the timeout, and continues. */
static void paused_tasks_are_taken_back(void **state)
{
    static const struct {
        struct job job;
        int who[2];
    } cases[] = {
        {{2, 2, 2, 350, "tcp", "adam learning_rate=0.001", "plain"}, {3, 0}},
        {{2, 2, 2, 350, "shm", "adam learning_rate=0.001", "plain"}, {1, 4}},
    };
    struct result want;
    struct run r;

    (void)state;
    assert_int_equal(train(&cases[0].job, NULL, NULL, 2, &want), 0);
    for (size_t k = 0; k < WF_COUNT(cases); k++) {
        begin(&r, &cases[k].job);
        pause_ms(500);
        for (int i = 0; i < 2 && is_running(&r, 3); i++) {
            int who = cases[k].who[i];

            if (!is_running(&r, who))
                continue;
            kill(r.pid[who], SIGSTOP);
            pause_ms(2600);
            kill(r.pid[who], SIGCONT);
            r.again[who] = who >= 3; /* the other worker may have ended the job meanwhile */
            pause_ms(300);
        }
        check_all(&r, &want);
        end(&r);
    }
}

static void one_worker_decides_for_all(void **state)
{
    const struct job stops = {2, 3, 2, 400, "tcp", "adam learning_rate=0.01", "stops"};
    const struct job chosen = {1, 3, 1, 30, "shm", "adam learning_rate=0.01", "chosen"};
    struct result want, first;
    struct run r;
    char path[128];
    FILE *f;

    (void)state;
    assert_int_equal(train(&stops, NULL, NULL, 2, &want), 0);
    assert_true(want.step < 400 * 4);
    begin(&r, &stops);
    check_all(&r, &want);
    assert_int_equal(lines_of(&r, "log.csv"), 1 + (int)(want.step / 4));
    end(&r);
    begin(&r, &chosen); /* only one of them knows the rate */
    for (int i = r.n_tasks - 1; i >= 0; i--)
        assert_int_equal(wait_for(&r, i, 60), 0);
    snprintf(path, sizeof path, "%s/worker-0.out", r.folder);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%" SCNx64 " %la %lld", &first.hash, &first.loss, &first.step), 3);
    fclose(f);
    for (int i = 1; i < 3; i++)
        check_worker(&r, i, &first);
    end(&r);
}

static void a_wrong_cluster_is_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"ps=tcp:a:1;worker=1", "no chief"},
        {"chief=tcp:a:1;worker=1", "no ps"},
        {"chief=tcp:a:1;ps=tcp:a:2", "no worker"},
        {"chief=tcp:a:1;ps=tcp:a:2;worker=-1", "0 to 4096"},
        {"chief=tcp:a:1;ps=tcp:a:2,,tcp:a:3;worker=1", "empty"},
        {"chief=tcp:a:1;pss=tcp:a:2;worker=1", "did you mean"},
        {"chief", "is not ROLE=ADDRESSES"},
        {"chief=tcp:a:1;ps=tcp:a:2;worker=99999", "0 to 4096"},
    };
    weft_ps_opts o = {.size = sizeof o, .task = "worker/0"};
    weft_dist *d = NULL;
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (size_t i = 0; i < WF_COUNT(wrong); i++) {
        o.cluster = wrong[i][0];
        assert_int_equal(weft_dist_open_ps(ctx, &o, &d), WEFT_EINVAL);
        if (!strstr(weft_error(), wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], weft_error());
    }
    o.cluster = "chief=tcp:127.0.0.1:1;ps=tcp:127.0.0.1:2;worker=1";
    o.task = "worker/1";
    assert_int_equal(weft_dist_open_ps(ctx, &o, &d), WEFT_ENOENT);
    o.task = "ps/0";
    assert_int_equal(weft_dist_open_ps(ctx, &o, &d), WEFT_EINVAL);
    o.task = "worker/0";
    assert_int_equal(weft_ps_serve(ctx, &o), WEFT_EINVAL);
    o.replicas = 3;
    assert_int_equal(weft_ps_serve(ctx, &o), WEFT_EINVAL);
    assert_null(d);
    weft_ctx_free(ctx);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_give_the_bits_of_one),
        cmocka_unit_test(killed_processes_change_nothing),
        cmocka_unit_test(killed_processes_that_share_memory_change_nothing),
        cmocka_unit_test(slow_workers_change_nothing),
        cmocka_unit_test(workers_that_come_back_take_part_again),
        cmocka_unit_test(sums_of_shards_change_nothing),
        cmocka_unit_test(sums_overlap_when_workers_die),
        cmocka_unit_test(paused_tasks_are_taken_back),
        cmocka_unit_test(one_worker_decides_for_all),
        cmocka_unit_test(a_wrong_cluster_is_refused),
    };

    if (argc == 9 && strcmp(argv[1], "--task") == 0)
        return child(argv + 2);
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
