/* many_test.c - many workers at one server have the bits of `local`; a server that is not asked for
 * anything takes no time.
 *
 * Workers are threads of this program, each with a context of its own; chief and server are
 * processes. ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { MANY = 64, BATCH = 2 * MANY + 5, FEATURES = 7, STEPS = 4 };

static char folder[32];
static pid_t task[2]; /* chief, server */

/* ---- processes ------------------------------------------------------------------------------- */

static weft_ps_opts options(const char *cluster, const char *name)
{
    return (weft_ps_opts){.size = sizeof(weft_ps_opts),
                          .cluster = cluster,
                          .task = name,
                          .timeout_s = 20,
                          .replicas = 1};
}

static pid_t serve(const char *cluster, const char *name)
{
    weft_ps_opts o = options(cluster, name);
    weft_ctx *ctx;
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) || weft_ps_serve(ctx, &o))
        fprintf(stderr, "%s: %s\n", name, weft_error());
    weft_ctx_free(ctx);
    _exit(0);
}

/* Before this process has threads. */
static void begin(int workers, char *cluster, size_t size)
{
    strcpy(folder, "/tmp/weft-many-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(cluster, size, "chief=uds:%s/c;ps=uds:%s/p;worker=%d", folder, folder, workers);
    task[0] = serve(cluster, "chief/0");
    task[1] = serve(cluster, "ps/0");
    assert_true(task[0] > 0 && task[1] > 0);
}

static int end(void **state)
{
    char command[64];

    (void)state;
    for (int i = 0; i < 2; i++)
        if (task[i] > 0) {
            kill(task[i], SIGKILL);
            waitpid(task[i], NULL, 0);
            task[i] = 0;
        }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* ---- training -------------------------------------------------------------------------------- */

struct work {
    const char *cluster; /* NULL: local */
    int number, shards, steps;
    bool idles; /* stays in the job for 2 s afterwards; idle_s: what the server takes meanwhile */
    double idle_s;
    uint64_t hash;
    weft_status st;
    char why[300];
};

static double server_time(void)
{
    struct timespec t;
    clockid_t clock;

    if (clock_getcpuclockid(task[1], &clock) || clock_gettime(clock, &t))
        return -1;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void idle(struct work *w)
{
    double before = server_time();

    nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    w->idle_s = before < 0 ? -1 : server_time() - before;
}

static float x[BATCH * FEATURES];
static int32_t y[BATCH];

static int make_data(void **state)
{
    (void)state;
    for (int i = 0; i < BATCH * FEATURES; i++)
        x[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < BATCH; i++)
        y[i] = i * 7 % 3;
    return 0;
}

static weft_status run_steps(const struct work *w, weft_trainer *t)
{
    weft_tensor in = weft_view(WEFT_F32, x, 2, (int64_t[]){BATCH, FEATURES});
    weft_tensor label = weft_view(WEFT_I32, y, 1, (int64_t[]){BATCH});
    weft_status st = WEFT_OK;

    for (int i = 0; i < w->steps && !st; i++)
        st = weft_train_on_batch(t, &in, &label, NULL, NULL);
    return st;
}

static uint64_t hash_of(weft_trainer *t)
{
    size_t n;
    char *p = trainer_bytes(t, &n);
    uint64_t h = 1469598103934665603u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)p[i]) * 1099511628211u;
    free(p);
    return h;
}

static weft_status train(struct work *w, weft_ctx *ctx)
{
    char name[16];
    weft_ps_opts o;
    weft_dist *dist = NULL;
    weft_trainer *t = NULL;
    weft_model *m;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (st)
        return st;
    snprintf(name, sizeof name, "worker/%d", w->number);
    o = options(w->cluster, name);
    weft_model_output(
        m, weft_apply(m, "Dense", "units=3",
                      weft_apply(m, "Dense", "units=11 activation=tanh",
                                 weft_input(m, "x", WEFT_F32, 1, (int64_t[]){FEATURES}))));
    if (w->cluster)
        st = weft_dist_open_ps(ctx, &o, &dist);
    if (!st && dist)
        st = weft_dist_scope(dist, m);
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.01",
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .shards = w->shards),
                          &t);
    if (!st)
        st = run_steps(w, t);
    if (!st && w->idles)
        idle(w);
    if (!st)
        st = wf_dist_bring(t);
    if (!st)
        w->hash = hash_of(t);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_dist_free(dist);
    return st;
}

static void *work(void *arg)
{
    struct work *w = arg;
    weft_ctx *ctx;

    w->st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx);
    if (!w->st)
        w->st = train(w, ctx);
    if (w->st)
        snprintf(w->why, sizeof w->why, "%s", weft_error());
    weft_ctx_free(ctx);
    return NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void many_workers_at_one_server_have_the_bits_of_local(void **state)
{
    static struct work w[MANY];
    struct work local = {.shards = MANY, .steps = STEPS}, fewer = {.shards = MANY, .steps = 1};
    pthread_t thread[MANY];
    char cluster[160];

    (void)state;
    begin(MANY, cluster, sizeof cluster);
    for (int i = 0; i < MANY; i++) {
        w[i] = (struct work){.cluster = cluster, .number = i, .shards = MANY, .steps = STEPS};
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < MANY; i++)
        pthread_join(thread[i], NULL);
    work(&local);
    work(&fewer);
    assert_int_equal(local.st, 0);
    assert_true(local.hash != fewer.hash);
    for (int i = 0; i < MANY; i++) {
        if (w[i].st)
            fail_msg("worker %d: %s", i, w[i].why);
        assert_true(w[i].hash == local.hash);
    }
}

static void a_server_that_nobody_asks_takes_less_than_a_hundredth_of_a_core(void **state)
{
    struct work w = {.shards = 1, .steps = STEPS, .idles = true};
    char cluster[160];

    (void)state;
    begin(1, cluster, sizeof cluster);
    w.cluster = cluster;
    work(&w);
    if (w.st)
        fail_msg("%s", w.why);
    if (!(w.idle_s >= 0 && w.idle_s < 0.02))
        fail_msg("the server took %.1f ms of 2 s", w.idle_s * 1e3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_server_that_nobody_asks_takes_less_than_a_hundredth_of_a_core,
                                  end),
        cmocka_unit_test_teardown(many_workers_at_one_server_have_the_bits_of_local, end),
    };

    return cmocka_run_group_tests(tests, make_data, NULL);
}
