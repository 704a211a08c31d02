/* saves_test.c - checkpoints that parameter servers write, as processes: to and from other numbers
 * of servers and workers; servers that do not see the folder or cannot write; and processes that
 * are killed while a checkpoint is written. Every run ends with the bits of an undisturbed `local`.
 *
 * The program starts itself as the tasks of a job. ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
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

enum { N = 96, F = 7, T = 3, WORDS = 4000, MAX_TASKS = 10, BATCHES = 4 };

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

static void build(weft_model *m)
{
    weft_sym x = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F}), all[2];
    weft_sym ids = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});

    x = weft_apply(m, "Dense", "units=200 activation=relu", x);
    all[0] = weft_apply(m, "BatchNormalization", NULL, x);
    all[1] =
        weft_apply(m, "Flatten", NULL,
                   weft_apply(m, "Embedding", "input_dim=4000 output_dim=12 evict=unused(3)", ids));
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

/* dir: of checkpoints, or NULL. */
static weft_status train(const weft_ps_opts *ps, const char *dir, int epochs, uint64_t *hash)
{
    static float x[N][F];
    static int32_t y[N], ids[N][T];
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
    weft_model_new(ctx, NULL, &m);
    build(m);
    if (ps)
        st = weft_dist_open_ps(ctx, ps, &dist);
    if (!st && dist)
        st = weft_dist_scope(dist, m);
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.002",
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .shards = 4),
                          &t);
    weft_data_new(ctx, &d);
    s = weft_ds_tensors(
        d, 3, (weft_column[]){{.name = "x"}, {.name = "ids"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                        weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    if (!st)
        st = weft_fit(t, d, s,
                      WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 25, .checkpoint = dir,
                                .checkpoint_steps = 3, .keep_last = 3),
                      &h);
    if (!st)
        st = wf_dist_bring(t);
    if (!st) {
        size_t n;
        char *bytes = trainer_bytes(t, &n);

        *hash = fnv(bytes, n);
        free(bytes);
    } else {
        fprintf(stderr, "failed: %s\n", weft_error()); /* before it is all taken down */
    }
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return st;
}

/* ---- servers whose files misbehave ----------------------------------------------------------- */

static struct wf_fs bad;
static char mark[128]; /* is created when a part is being written */

static int open_blind(void *arg, const char *path, int flags, int mode)
{
    return strstr(path, "/.tmp-ckpt") ? -ENOENT : wf_fs_posix.open(arg, path, flags, mode);
}

static int64_t write_full(void *arg, int fd, const void *buf, int64_t n)
{
    (void)arg;
    (void)fd;
    (void)buf;
    (void)n;
    return -ENOSPC;
}

/* A second for the first part: somebody is killed meanwhile. */
static int64_t write_slow(void *arg, int fd, const void *buf, int64_t n)
{
    static int n_slow;
    int marked = open(mark, O_CREAT | O_WRONLY, 0666);

    if (marked >= 0)
        close(marked);
    if (n_slow++ < 4)
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    return wf_fs_posix.write(arg, fd, buf, n);
}

static void misbehave(weft_ctx *ctx, const char *task, const char *how)
{
    bad = wf_fs_posix;
    if (strcmp(how, "blind") == 0)
        bad.open = open_blind;
    if (strcmp(how, "full") == 0 && strcmp(task, "ps/1") == 0)
        bad.write = write_full;
    if (strcmp(how, "slow") == 0 && strcmp(task, "ps/1") == 0)
        bad.write = write_slow;
    snprintf(mark, sizeof mark, "%s/writing", folder);
    ctx->fs = &bad;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

struct run {
    int servers, workers, replicas, epochs;
    const char *transport, *how;
    char cluster[1024];
    int n_tasks;
    char task[MAX_TASKS][32];
    pid_t pid[MAX_TASKS];
};

/* saves_test --task TASK CLUSTER FOLDER REPLICAS EPOCHS HOW */
static int child(char **arg)
{
    weft_ps_opts o = {.size = sizeof o,
                      .task = arg[0],
                      .cluster = arg[1],
                      .replicas = atoi(arg[3]),
                      .timeout_s = 2,
                      .piece_bytes = 5000};
    char path[128], chief[128], name[64];
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
        if (!o.folder)
            misbehave(ctx, arg[0], arg[5]);
        st = weft_ps_serve(ctx, &o);
        if (st)
            fprintf(stderr, "%s: %s\n", arg[0], weft_error());
        weft_ctx_free(ctx);
        return st != WEFT_OK;
    }
    snprintf(path, sizeof path, "%s/ckpt", folder);
    st = train(&o, path, atoi(arg[4]), &hash);
    snprintf(path, sizeof path, "%s/%s.out", folder, name);
    f = fopen(path, "w");
    fprintf(f, "%d %llx\n", (int)st, (unsigned long long)hash);
    fclose(f);
    return st != WEFT_OK;
}

static void begin(struct run *r)
{
    char command[200], replicas[16], epochs[16];
    static int n_runs;
    size_t n;

    snprintf(command, sizeof command, "cd %s && rm -rf chief *.out *.sock writing", folder);
    assert_int_equal(system(command), 0);
    r->n_tasks = 0;
    n_runs++;
    snprintf(r->task[r->n_tasks++], sizeof r->task[0], "chief/0");
    n = (size_t)snprintf(r->cluster, sizeof r->cluster, "chief=%s:%s/c%d.sock;ps=", r->transport,
                         folder, n_runs);
    for (int i = 0; i < r->servers; i++) {
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "ps/%d", i);
        n += (size_t)snprintf(r->cluster + n, sizeof r->cluster - n, "%s%s:%s/s%d-%d.sock",
                              i ? "," : "", r->transport, folder, n_runs, i);
    }
    snprintf(r->cluster + n, sizeof r->cluster - n, ";worker=%d", r->workers);
    for (int i = 0; i < r->workers; i++)
        snprintf(r->task[r->n_tasks++], sizeof r->task[0], "worker/%d", i);
    snprintf(replicas, sizeof replicas, "%d", r->replicas);
    snprintf(epochs, sizeof epochs, "%d", r->epochs);
    fflush(NULL);
    for (int i = 0; i < r->n_tasks; i++) {
        r->pid[i] = fork();
        assert_true(r->pid[i] >= 0);
        if (r->pid[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "saves_test", "--task", r->task[i], r->cluster, folder, replicas,
              epochs, r->how, (char *)NULL);
        _exit(127);
    }
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

    snprintf(command, sizeof command, "cd %s && tail -n 20 *.log >&2; ls -la ckpt >&2", folder);
    if (system(command))
        return;
}

/* All workers that live end with this hash. */
static void finish(struct run *r, uint64_t want)
{
    for (int i = r->n_tasks - 1; i >= 1 + r->servers; i--) {
        char path[128];
        unsigned long long hash = 0;
        int st = -1, ended = 0;
        FILE *f;

        if (!r->pid[i])
            continue;
        for (int ms = 0; ms < 90000 && !ended; ms += 10) {
            ended = waitpid(r->pid[i], NULL, WNOHANG) == r->pid[i];
            if (!ended)
                pause_ms(10);
        }
        if (ended)
            r->pid[i] = 0;
        snprintf(path, sizeof path, "%s/worker-%s.out", folder, strchr(r->task[i], '/') + 1);
        f = fopen(path, "r");
        if (!f || fscanf(f, "%d %llx", &st, &hash) != 2 || st || hash != want) {
            print_logs();
            fail_msg("%s of %s: status %d, %llx; %llx was expected", r->task[i], r->cluster, st,
                     hash, (unsigned long long)want);
        }
        fclose(f);
    }
    kill_all(r);
}

/* Whether a line of a log has this text. */
static bool logged(const char *task, const char *text)
{
    char path[128], line[2000];
    bool found = false;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s.log", folder, task);
    f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f))
        found = strstr(line, text);
    if (f)
        fclose(f);
    return found;
}

/* The newest checkpoint is valid, and of this step; its tensors and files. */
static int64_t newest(const char *file)
{
    char dir[128], path[600];
    weft_ctx *ctx;
    weft_ckpt *c;
    int64_t step;

    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    if (weft_ckpt_open_latest(ctx, dir, &c)) {
        print_logs();
        fail_msg("%s", weft_error());
    }
    step = weft_ckpt_info(c)->step;
    snprintf(path, sizeof path, "%s/%s", weft_ckpt_path(c), file);
    if (access(path, R_OK))
        fail_msg("there is no %s", path);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    return step;
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-saves-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* What `local` gives. */
static uint64_t local(int epochs)
{
    uint64_t hash;

    assert_int_equal(train(NULL, NULL, epochs, &hash), 0);
    return hash;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void checkpoints_go_to_other_numbers_of_servers(void **state)
{
    struct run runs[] = {
        {.servers = 1, .workers = 2, .replicas = 1, .transport = "uds"},
        {.servers = 3, .workers = 1, .replicas = 2, .transport = "shm"},
        {.servers = 2, .workers = 2, .replicas = 1, .transport = "uds"},
    };
    char dir[128];
    uint64_t hash;

    (void)state;
    for (int i = 0; i < (int)WF_COUNT(runs); i++) {
        runs[i].epochs = 3 * (i + 1);
        runs[i].how = "plain";
        begin(&runs[i]);
        finish(&runs[i], local(runs[i].epochs));
        assert_int_equal(newest("part-ps0-00001.safetensors"), BATCHES * runs[i].epochs);
    }
    snprintf(dir, sizeof dir, "%s/ckpt", folder);
    assert_int_equal(train(NULL, dir, 10, &hash), 0); /* and to none */
    assert_true(hash == local(10));
}

/* The deciding worker reads the copies, and writes them. */
static void servers_elsewhere_send_their_part(void **state)
{
    struct run r = {.servers = 2, .workers = 1, .replicas = 1, .transport = "uds", .how = "blind"};

    (void)state;
    for (r.epochs = 3; r.epochs <= 6; r.epochs += 3) {
        begin(&r);
        finish(&r, local(r.epochs));
        assert_int_equal(newest("part-ps1copied-00001.safetensors"), BATCHES * r.epochs);
    }
}

static void a_full_disk_at_a_server_is_reported(void **state)
{
    struct run r = {.servers = 2, .workers = 1, .replicas = 1, .transport = "uds", .how = "full"};

    (void)state;
    r.epochs = 4;
    begin(&r);
    finish(&r, local(4));
    assert_int_equal(newest("part-ps1copied-00001.safetensors"), BATCHES * 4);
    assert_true(logged("worker-0", "'ps/1' cannot write its part"));
    assert_true(logged("worker-0", "No space left on device"));
}

/* Until a server writes. */
static void await_writing(struct run *r)
{
    char path[128];

    snprintf(path, sizeof path, "%s/writing", folder);
    for (int ms = 0; access(path, F_OK); ms += 5) {
        if (ms > 30000) {
            print_logs();
            kill_all(r);
            fail_msg("no server has written");
        }
        pause_ms(5);
    }
}

static void a_server_that_dies_while_it_writes_changes_nothing(void **state)
{
    struct run r = {.servers = 3, .workers = 2, .replicas = 2, .transport = "uds", .how = "slow"};

    (void)state;
    r.epochs = 24;
    begin(&r);
    await_writing(&r);
    kill_task(&r, "ps/1");
    finish(&r, local(r.epochs));
    assert_int_equal(newest("manifest.json"), BATCHES * r.epochs);
    assert_true(logged("worker-0", "'ps/1' was lost before its part was written"));
}

/* Nothing is left but the checkpoints before; the next worker that decides writes new ones. */
static void a_worker_that_dies_while_servers_write_changes_nothing(void **state)
{
    struct run r = {.servers = 2, .workers = 2, .replicas = 2, .transport = "uds", .how = "slow"};

    (void)state;
    r.epochs = 20;
    begin(&r);
    await_writing(&r);
    kill_task(&r, "worker/0");
    finish(&r, local(r.epochs));
    assert_int_equal(newest("manifest.json"), BATCHES * r.epochs);
}

/* At any moment: the next run continues from the newest checkpoint. */
static void a_job_that_is_killed_resumes(void **state)
{
    struct run r = {.servers = 2, .workers = 2, .replicas = 2, .transport = "uds", .how = "slow"};

    (void)state;
    r.epochs = 20;
    for (int i = 0; i < 3; i++) {
        begin(&r);
        await_writing(&r);
        pause_ms(i * 170);
        kill_all(&r);
    }
    r.how = "plain";
    r.servers = 3;
    begin(&r);
    finish(&r, local(r.epochs));
    assert_int_equal(newest("manifest.json"), BATCHES * r.epochs);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(checkpoints_go_to_other_numbers_of_servers),
        TEST(servers_elsewhere_send_their_part),
        TEST(a_full_disk_at_a_server_is_reported),
        TEST(a_server_that_dies_while_it_writes_changes_nothing),
        TEST(a_worker_that_dies_while_servers_write_changes_nothing),
        TEST(a_job_that_is_killed_resumes),
    };

    if (argc == 8 && strcmp(argv[1], "--task") == 0)
        return child(argv + 2);
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
