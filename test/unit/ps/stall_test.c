/* stall_test.c - workers whose program hangs, as processes: the job continues without them, with
 * the bits of an undisturbed run; one that goes on joins again.
 *
 * The program starts itself as the tasks of a job. A worker hangs while there is a file that names
 * it. ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

enum { N = 96, F = 7, N_TASKS = 5, FIRST = 2, EPOCHS = 60, AWAITED = 40 };
#define STALL_S 2.0

static char folder[64];
static char self[32]; /* the task of this process; "": none */
static const char *const tasks[N_TASKS] = {"chief/0", "ps/0", "worker/0", "worker/1", "worker/2"};

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void path_of(const char *what, const char *task, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/%s%s", folder, what, task);

    for (char *p = out + n - strlen(task); *p; p++)
        *p = *p == '/' ? '-' : *p;
}

static bool is_there(const char *what, const char *task)
{
    char path[128];

    path_of(what, task, path, sizeof path);
    return access(path, F_OK) == 0;
}

static void set_there(const char *what, const char *task, bool there)
{
    char path[128];
    FILE *f;

    path_of(what, task, path, sizeof path);
    if (!there) {
        unlink(path);
        return;
    }
    f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
}

/* A stuck disk, a debugger, an endless loop: this thread does not return. */
static void hang_while(const char *what)
{
    while (*self && is_there(what, self)) {
        set_there("hangs.", self, true);
        pause_ms(10);
    }
}

/* ---- training -------------------------------------------------------------------------------- */

static weft_status see(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    (void)in;
    hang_while("data.");
    *keep = true;
    return WEFT_OK;
}

/* The deciding worker calls it. Later epochs come when the test has seen what it waits for. */
static weft_status end_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)arg;
    (void)t;
    (void)logs;
    if (!*self)
        return WEFT_OK;
    hang_while("callback.");
    for (int ms = 0; ms < 15000 && epoch >= AWAITED && !is_there("go.on", ""); ms += 10)
        pause_ms(10);
    pause_ms(10);
    return WEFT_OK;
}

static void print_line(void *arg, int level, const char *line)
{
    (void)arg;
    if (level >= WEFT_LOG_INFO)
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

static uint64_t fnv(const void *p, size_t n)
{
    const unsigned char *b = p;
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 1099511628211u;
    return h;
}

static weft_status train(const weft_ps_opts *ps, uint64_t *hash)
{
    static float x[N][F];
    static int32_t y[N];
    weft_callback cb = {.size = sizeof cb, .name = "waits", .epoch_end = end_epoch};
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_trainer *t = NULL;
    weft_data *d;
    weft_ds s;
    weft_sym v;
    weft_status st = WEFT_OK;

    for (int i = 0; i < N; i++) {
        for (int k = 0; k < F; k++)
            x[i][k] = (float)((i * 29 + k * 13) % 19) / 9 - 1;
        y[i] = (i * 31 / 7) % 3;
    }
    if (weft_ctx_new(
            WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .log = ps ? print_line : NULL), &ctx))
        return WEFT_EINVAL;
    weft_model_new(ctx, NULL, &m);
    v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    v = weft_apply(m, "Dense", "units=50 activation=relu", v);
    weft_model_output(m, weft_apply(m, "Dense", "units=3", v));
    if (ps)
        st = weft_dist_open_ps(ctx, ps, &dist);
    if (!st && dist)
        st = weft_dist_scope(dist, m);
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.002",
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .shards = 6),
                          &t);
    weft_data_new(ctx, &d);
    s = weft_ds_tensors(d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    s = weft_ds_filter(d, s, see, NULL);
    if (!st)
        st = weft_fit(t, d, s,
                      WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 25, .n_callbacks = 1,
                                .callbacks = &cb),
                      NULL);
    if (!st)
        st = wf_dist_bring(t);
    if (!st) {
        size_t n;
        char *bytes = trainer_bytes(t, &n);

        *hash = fnv(bytes, n);
        free(bytes);
    } else {
        fprintf(stderr, "failed: %s\n", weft_error());
    }
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return st;
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void print_event(void *arg, const char *task, const char *what)
{
    (void)arg;
    fprintf(stderr, "%s %s\n", task, what);
    fflush(stderr);
}

/* stall_test --task TASK TRANSPORT FOLDER */
static int child(char **arg)
{
    char cluster[256], chief[128], path[128];
    weft_ps_opts o = {.size = sizeof o,
                      .task = arg[0],
                      .cluster = cluster,
                      .timeout_s = 2,
                      .piece_bytes = 500,
                      .event = print_event,
                      .stall_timeout_s = STALL_S};
    uint64_t hash = 0;
    weft_status st;
    weft_ctx *ctx;
    FILE *f;

    snprintf(folder, sizeof folder, "%s", arg[2]);
    snprintf(self, sizeof self, "%s", arg[0]);
    snprintf(cluster, sizeof cluster, "chief=%s:%s/c.sock;ps=%s:%s/s.sock;worker=3", arg[1], folder,
             arg[1], folder);
    path_of("log.", self, path, sizeof path);
    if (!freopen(path, "a", stderr))
        return 2;
    if (strncmp(self, "worker", 6) != 0) {
        snprintf(chief, sizeof chief, "%s/chief", folder);
        o.folder = strcmp(self, "chief/0") == 0 ? chief : NULL;
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = print_line), &ctx);
        st = weft_ps_serve(ctx, &o);
        weft_ctx_free(ctx);
        return st != WEFT_OK;
    }
    st = train(&o, &hash);
    path_of("out.", self, path, sizeof path);
    f = fopen(path, "w");
    fprintf(f, "%d %llx\n", (int)st, (unsigned long long)hash);
    fclose(f);
    return st != WEFT_OK;
}

struct run {
    pid_t pid[N_TASKS];
};

static void begin(struct run *r, const char *transport)
{
    for (int i = 0; i < N_TASKS; i++) {
        fflush(NULL);
        r->pid[i] = fork();
        assert_true(r->pid[i] >= 0);
        if (r->pid[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/proc/self/exe", "stall_test", "--task", tasks[i], transport, folder, (char *)NULL);
        _exit(127);
    }
}

static void fail_run(struct run *r, const char *what)
{
    char command[160];

    snprintf(command, sizeof command, "cd %s && tail -n 30 log.* >&2; ls >&2", folder);
    if (system(command))
        fprintf(stderr, "no logs\n");
    for (int i = 0; i < N_TASKS; i++)
        if (r->pid[i]) {
            kill(r->pid[i], SIGKILL);
            waitpid(r->pid[i], NULL, 0);
        }
    fail_msg("%s", what);
}

/* How often the chief has said this. */
static int n_said(const char *text)
{
    char path[128], line[600];
    int n = 0;
    FILE *f;

    path_of("log.", "chief/0", path, sizeof path);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return n;
}

static void await_said(struct run *r, const char *text, int n)
{
    for (int ms = 0; n_said(text) < n; ms += 10) {
        if (ms > 60000)
            fail_run(r, text);
        pause_ms(10);
    }
}

static void await_there(struct run *r, const char *what, const char *task)
{
    for (int ms = 0; !is_there(what, task); ms += 10) {
        if (ms > 60000)
            fail_run(r, "nobody hangs");
        pause_ms(10);
    }
}

/* Those that do not hang end in order, with the bits of one process. */
static void finish(struct run *r, int but)
{
    uint64_t want;

    assert_int_equal(train(NULL, &want), 0);
    for (int i = N_TASKS - 1; i >= 0; i--) {
        unsigned long long hash = 0;
        int st = -1, ended = 0, status = -1;
        char path[128];
        FILE *f;

        if (i == but)
            continue;
        for (int ms = 0; ms < 60000 && !ended; ms += 10) {
            ended = waitpid(r->pid[i], &status, WNOHANG) == r->pid[i];
            if (!ended)
                pause_ms(10);
        }
        if (ended)
            r->pid[i] = 0;
        if (!ended || status)
            fail_run(r, tasks[i]);
        if (i < FIRST)
            continue;
        path_of("out.", tasks[i], path, sizeof path);
        f = fopen(path, "r");
        if (!f || fscanf(f, "%d %llx", &st, &hash) != 2 || st || hash != want)
            fail_run(r, "other bits");
        fclose(f);
    }
    if (but >= 0) {
        kill(r->pid[but], SIGKILL);
        waitpid(r->pid[but], NULL, 0);
    }
}

static int setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-stall-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_worker_that_hangs_is_left_out_and_joins_again(void **state)
{
    struct run r = {{0}};

    (void)state;
    begin(&r, "uds");
    await_said(&r, "worker/1 joined", 1);
    set_there("data.", "worker/1", true);
    await_there(&r, "hangs.", "worker/1");
    await_said(&r, "worker/1 is alive, but made no progress for", 1);
    await_said(&r, "worker/1 is left out: alive, but without progress for", 1);
    set_there("data.", "worker/1", false);
    await_said(&r, "worker/1 joined", 2);
    set_there("go.on", "", true);
    finish(&r, -1);
    assert_int_equal(n_said("is left out:"), 1); /* those that waited are still there */
    assert_int_equal(n_said("is gone"), 0);
}

static void the_one_that_decides_is_left_out_too(void **state)
{
    struct run r = {{0}};

    (void)state;
    begin(&r, "shm");
    await_said(&r, "worker/0 joined", 1);
    set_there("callback.", "worker/0", true);
    await_there(&r, "hangs.", "worker/0");
    await_said(&r, "worker/0 is left out:", 1);
    assert_int_equal(n_said("while it ran callbacks, validation or checkpoints"), 1);
    set_there("callback.", "worker/0", false);
    await_said(&r, "worker/0 joined", 2);
    set_there("go.on", "", true);
    finish(&r, -1);
    assert_int_equal(n_said("is left out:"), 1);
}

static void a_job_ends_without_one_that_hangs_for_ever(void **state)
{
    struct run r = {{0}};

    (void)state;
    begin(&r, "shm");
    await_said(&r, "worker/2 joined", 1);
    set_there("go.on", "", true);
    set_there("data.", "worker/2", true);
    await_there(&r, "hangs.", "worker/2");
    finish(&r, N_TASKS - 1);
    assert_int_equal(n_said("worker/2 is left out:"), 1);
    assert_int_equal(n_said("is left out:"), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_worker_that_hangs_is_left_out_and_joins_again),
        TEST(the_one_that_decides_is_left_out_too),
        TEST(a_job_ends_without_one_that_hangs_for_ever),
    };

    if (argc == 5 && strcmp(argv[1], "--task") == 0)
        return child(argv + 2);
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
