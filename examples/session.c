/* session.c - a custom training program as the tasks of a cluster: softmax regression with
 * Adam on one parameter server and two workers, step by step, with a hook, checkpoints and a last
 * step.
 *
 *   session [LAST_STEP [FOLDER]]           starts all four tasks on this machine
 *   session LAST_STEP FOLDER TASK TASKS    is one of them: "worker/0", and where all are
 *
 * The same folder again resumes from its newest checkpoint, if LAST_STEP is beyond it. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <weft/weft.h>

enum { SAMPLES = 6000, WIDTH = 64, CLASSES = 10 };

static int failed(const char *task, const char *what)
{
    fprintf(stderr, "session: %s: %s: %s\n", task, what, weft_error());
    return 1;
}

/* Samples around ten centers, the same in every process. */
static void make_data(float (*x)[WIDTH], int32_t *y)
{
    uint32_t r = 1;

    for (int i = 0; i < SAMPLES; i++) {
        y[i] = i % CLASSES;
        for (int k = 0; k < WIDTH; k++) {
            r = r * 1664525 + 1013904223;
            x[i][k] = (float)(r >> 16) / 32768 - 1 + (k % CLASSES == y[i] ? 0.5f : 0);
        }
    }
}

/* A hook: a line every hundred steps, by the worker that decides. */
static weft_status show(void *arg, weft_session *s, const weft_logs *logs)
{
    if (weft_session_step(s) % 100 == 0)
        printf("%s: step %lld, loss %.4f, accuracy %.4f\n", (const char *)arg,
               (long long)weft_session_step(s), weft_logs_get(logs, "loss"),
               weft_logs_get(logs, "accuracy"));
    fflush(stdout);
    return WEFT_OK;
}

static weft_status train(weft_trainer *t, weft_data *d, weft_ds s, const char *task,
                         const char *folder, int64_t last_step)
{
    char name[32], ckpt[512];
    const weft_hook hook = {
        .size = sizeof hook, .name = "show", .arg = name, .decides_only = true, .after_run = show};
    weft_session *session;
    weft_status st;

    snprintf(name, sizeof name, "%s", task);
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", folder);
    st = weft_session_open(t, d, s,
                           WEFT_OPTS(weft_session_opts, .batch = 32, .last_step = last_step,
                                     .checkpoint = ckpt, .checkpoint_steps = 200, .n_hooks = 1,
                                     .hooks = &hook),
                           &session);
    if (st)
        return st;
    if (weft_session_restored(session))
        printf("%s: continues after step %lld\n", task, (long long)weft_session_step(session));
    while (!weft_session_should_stop(session))
        if (weft_session_run(session, NULL))
            break;
    return weft_session_close(session);
}

static int work(weft_ctx *ctx, const weft_ps_opts *ps, const char *folder, int64_t last_step)
{
    static float x[SAMPLES][WIDTH];
    static int32_t y[SAMPLES];
    weft_dist *dist = NULL;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_ds s = {0};
    weft_status st = weft_dist_open_ps(ctx, ps, &dist);

    make_data(x, y);
    if (!st)
        st = weft_model_new(ctx, NULL, &m);
    if (!st) {
        weft_model_output(m, weft_apply(m, "Dense", "units=10",
                                        weft_input(m, "x", WEFT_F32, 1, (int64_t[]){WIDTH})));
        st = weft_dist_scope(dist, m);
    }
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.002",
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .metrics = "accuracy"),
                          &t);
    if (!st)
        st = weft_data_new(ctx, &d);
    if (!st) {
        s = weft_ds_tensors(d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                            (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){SAMPLES, WIDTH}),
                                            weft_view(WEFT_I32, y, 1, (int64_t[]){SAMPLES})});
        st = train(t, d, s, ps->task, folder, last_step);
    }
    if (st)
        failed(ps->task, "training");
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    return st != WEFT_OK;
}

/* One task of the job. */
static int run_task(const char *task, const char *tasks, const char *folder, int64_t last_step)
{
    const weft_ps_opts ps = {.size = sizeof ps, .cluster = tasks, .task = task};
    weft_ctx *ctx;
    int rc;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 1), &ctx))
        return failed(task, "context");
    if (strncmp(task, "worker/", 7) == 0)
        rc = work(ctx, &ps, folder, last_step);
    else
        rc = weft_ps_serve(ctx, &ps) ? failed(task, "serving") : 0;
    weft_ctx_free(ctx);
    return rc;
}

/* All of them, as processes. */
static int launch(const char *folder, int64_t last_step)
{
    static const char *const task[] = {"chief/0", "ps/0", "worker/0", "worker/1"};
    char sockets[] = "/tmp/session-XXXXXX", tasks[256], path[64];
    int rc = 0, status;

    mkdir(folder, 0777); /* where that fails, the checkpoint says why */
    if (!mkdtemp(sockets))
        return perror(sockets), 1;
    snprintf(tasks, sizeof tasks, "chief=shm:%s/chief;ps=shm:%s/ps;worker=2", sockets, sockets);
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            _exit(run_task(task[i], tasks, folder, last_step));
    while (wait(&status) > 0)
        rc |= status != 0;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", sockets, i ? "ps" : "chief");
        unlink(path);
    }
    rmdir(sockets);
    return rc;
}

int main(int argc, char **argv)
{
    int64_t last_step = argc > 1 ? atoll(argv[1]) : 1000;
    const char *folder = argc > 2 ? argv[2] : "session-run";

    if (last_step <= 0 || argc == 4 || argc > 5) {
        fprintf(stderr, "usage: session [LAST_STEP [FOLDER [TASK TASKS]]]\n");
        return 2;
    }
    return argc > 3 ? run_task(argv[3], argv[4], folder, last_step) : launch(folder, last_step);
}
