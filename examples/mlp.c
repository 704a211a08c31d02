/* mlp.c - a net with dropout on one parameter server and two workers: a monitored session with
 * hooks, checkpoints and a last step.
 *
 *   mlp [LAST_STEP [FOLDER [CONSISTENCY]]]     starts a chief, a server and two workers on this
 *                                              machine; sync, async, or stale(2)
 *
 * The same folder again resumes from its newest checkpoint, if LAST_STEP is beyond it. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <weft/weft.h>

enum { SAMPLES = 6000, WIDTH = 32, CLASSES = 4 };
extern char **environ;

struct job {
    int64_t last_step;
    const char *folder;
    int64_t shown; /* hundreds of steps */
    float x[SAMPLES][WIDTH];
    int32_t y[SAMPLES];
};

/* Points in four rings around the origin: a linear model cannot tell them apart. */
static void make_data(struct job *j)
{
    uint32_t r = 7;

    for (int i = 0; i < SAMPLES; i++) {
        float length = 0, radius;

        j->y[i] = i % CLASSES;
        radius = 1 + (float)j->y[i];
        for (int k = 0; k < WIDTH; k++) {
            r = r * 1664525 + 1013904223;
            j->x[i][k] = (float)(r >> 16) / 32768 - 1;
            length += j->x[i][k] * j->x[i][k];
        }
        for (int k = 0; k < WIDTH; k++)
            j->x[i][k] *= radius / (length / WIDTH * 3);
    }
}

static weft_status begin(void *arg, weft_trainer *t)
{
    (void)arg;
    (void)t;
    printf("training begins\n");
    fflush(stdout);
    return WEFT_OK;
}

static weft_status show(void *arg, weft_session *s, const weft_logs *logs)
{
    struct job *j = arg;

    /* asynchronous: when this worker looks again, others may have taken several steps */
    if (weft_session_step(s) / 100 > j->shown)
        printf("step %lld: loss %.4f, accuracy %.3f\n", (long long)weft_session_step(s),
               weft_logs_get(logs, "loss"), weft_logs_get(logs, "accuracy"));
    j->shown = weft_session_step(s) / 100;
    fflush(stdout);
    return WEFT_OK;
}

static weft_status compile(weft_worker *w, weft_model **m, weft_trainer **t)
{
    weft_sym v;
    weft_status st = weft_model_new(weft_worker_ctx(w), NULL, m);

    if (st)
        return st;
    v = weft_input(*m, "x", WEFT_F32, 1, (int64_t[]){WIDTH});
    v = weft_apply(*m, "Dense", "units=64 activation=relu", v);
    v = weft_apply(*m, "Dropout", "rate=0.1", v);
    v = weft_apply(*m, "Dense", "units=64 activation=relu", v);
    weft_model_output(*m, weft_apply(*m, "Dense", "units=4", v));
    st = weft_dist_scope(weft_worker_dist(w), *m);
    if (st)
        return st;
    return weft_compile(*m,
                        WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.003",
                                  .loss = "sparse_categorical_crossentropy from_logits=true",
                                  .metrics = "accuracy"),
                        t);
}

static weft_status train(struct job *j, weft_worker *w, weft_trainer *t, weft_data *d)
{
    const weft_hook hook = {
        .size = sizeof hook, .name = "show", .arg = j, .decides_only = true, .after_run = show};
    const weft_hook greeting = {.size = sizeof hook, .name = "greeting", .begin = begin};
    const weft_hook hooks[] = {greeting, hook};
    const weft_ds s =
        weft_ds_tensors(d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_F32, j->x, 2, (int64_t[]){SAMPLES, WIDTH}),
                                        weft_view(WEFT_I32, j->y, 1, (int64_t[]){SAMPLES})});
    char ckpt[512];
    weft_session *session;
    weft_status st;

    snprintf(ckpt, sizeof ckpt, "%s/ckpt", j->folder);
    st = weft_worker_session(w, t, d, s,
                             WEFT_OPTS(weft_session_opts, .batch = 64, .last_step = j->last_step,
                                       .checkpoint = ckpt, .checkpoint_steps = 200, .n_hooks = 2,
                                       .hooks = hooks),
                             &session);
    if (st)
        return st;
    while (!weft_session_should_stop(session))
        if (weft_session_run(session, NULL))
            break;
    return weft_session_close(session);
}

static weft_status work(void *arg, weft_worker *w)
{
    struct job *j = arg;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_status st;

    make_data(j);
    st = compile(w, &m, &t);
    if (!st)
        st = weft_data_new(weft_worker_ctx(w), &d);
    if (!st)
        st = train(j, w, t, d);
    if (st)
        fprintf(stderr, "%s: %s\n", weft_worker_name(w), weft_error());
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    return st;
}

int main(int argc, char **argv)
{
    static struct job j;
    weft_ctx *ctx = NULL;
    weft_program *p = NULL;
    weft_ps_opts servers = {.size = sizeof servers, .consistency = argc > 3 ? argv[3] : NULL};
    weft_status st;

    j.last_step = argc > 1 ? atoll(argv[1]) : 1000;
    j.folder = argc > 2 ? argv[2] : "mlp-run";
    mkdir(j.folder, 0777); /* where that fails, the checkpoint says why */
    st = weft_ctx_new(NULL, &ctx);
    if (!st)
        st = weft_program_open(
            ctx,
            WEFT_OPTS(weft_program_opts, .workers = 2, .ps = 1, .env = (const char *const *)environ,
                      .argv = (const char *const *)argv, .work = work, .work_arg = &j, .seed = 1,
                      .devices = "worker: cpu threads=1", .servers = &servers),
            &p);
    if (!st)
        st = weft_program_run(p);
    if (st)
        fprintf(stderr, "mlp: %s\n", weft_error());
    weft_program_free(p);
    weft_ctx_free(ctx);
    return st ? 1 : 0;
}
