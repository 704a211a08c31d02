/* push_pull.c - a training loop of its own on parameter servers: softmax regression whose gradients
 * are computed by hand, pushed, and become parameters on a server; two workers.
 *
 *   push_pull [STEPS]     starts a chief, a server and two workers on this machine
 *
 * Started by Slurm, mpirun, torchrun or with TF_CONFIG, it is the task that these say. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

enum { SAMPLES = 6000, WIDTH = 64, CLASSES = 10, BATCH = 64 };
extern char **environ;

struct data {
    int64_t steps;
    float x[SAMPLES][WIDTH];
    int y[SAMPLES];
};

/* Samples around ten centers, the same in every process. */
static void make_data(struct data *d)
{
    uint32_t r = 1;

    for (int i = 0; i < SAMPLES; i++) {
        d->y[i] = i % CLASSES;
        for (int k = 0; k < WIDTH; k++) {
            r = r * 1664525 + 1013904223;
            d->x[i][k] = (float)(r >> 16) / 32768 - 1 + (k % CLASSES == d->y[i] ? 0.5f : 0);
        }
    }
}

/* The probabilities of a sample's classes. */
static void predict(const float *x, const float *w, const float *b, float *p)
{
    float most = -INFINITY, sum = 0;

    for (int c = 0; c < CLASSES; c++) {
        p[c] = b[c];
        for (int k = 0; k < WIDTH; k++)
            p[c] += x[k] * w[k * CLASSES + c];
        most = p[c] > most ? p[c] : most;
    }
    for (int c = 0; c < CLASSES; c++)
        sum += p[c] = expf(p[c] - most);
    for (int c = 0; c < CLASSES; c++)
        p[c] /= sum;
}

/* Shard `shard` of the batch of this step: which samples it has depends on its number alone, so any
 * worker can compute it. */
static weft_status compute(void *arg, weft_params *p, int64_t shard)
{
    const struct data *d = arg;
    int64_t shards = weft_params_shards(p), step = weft_params_step(p);
    int64_t from = shard * BATCH / shards, to = (shard + 1) * BATCH / shards;
    float gw[WIDTH * CLASSES] = {0}, gb[CLASSES] = {0}, q[CLASSES];
    weft_tensor w = {.data = NULL}, b = {.data = NULL};
    double loss = 0;
    weft_status st = weft_params_get(p, "w", &w);

    if (!st)
        st = weft_params_get(p, "b", &b);
    for (int64_t i = from; i < to && !st; i++) {
        int64_t s = (step * BATCH + i) % SAMPLES;

        predict(d->x[s], w.data, b.data, q);
        loss -= log((double)q[d->y[s]] + 1e-12);
        q[d->y[s]] -= 1; /* the gradient of the cross-entropy */
        for (int c = 0; c < CLASSES; c++) {
            gb[c] += q[c];
            for (int k = 0; k < WIDTH; k++)
                gw[k * CLASSES + c] += q[c] * d->x[s][k];
        }
    }
    if (st || from == to)
        return st;
    w = weft_view(WEFT_F32, gw, 2, (int64_t[]){WIDTH, CLASSES});
    b = weft_view(WEFT_F32, gb, 1, (int64_t[]){CLASSES});
    weft_params_weigh(p, shard, (double)(to - from));
    weft_params_report(p, shard, loss / (double)(to - from));
    st = weft_params_push(p, shard, "w", &w);
    return st ? st : weft_params_push(p, shard, "b", &b);
}

static weft_status show_accuracy(const struct data *d, weft_params *p)
{
    weft_tensor w = {.data = NULL}, b = {.data = NULL};
    float q[CLASSES];
    int right = 0;
    weft_status st = weft_params_get(p, "w", &w);

    if (!st)
        st = weft_params_get(p, "b", &b);
    for (int i = 0; i < SAMPLES && !st; i++) {
        int best = 0;

        predict(d->x[i], w.data, b.data, q);
        for (int c = 1; c < CLASSES; c++)
            best = q[c] > q[best] ? c : best;
        right += best == d->y[i];
    }
    if (!st)
        printf("accuracy %.3f after %lld steps\n", (double)right / SAMPLES,
               (long long)weft_params_step(p));
    return st;
}

static weft_status work(void *arg, weft_worker *worker)
{
    struct data *d = arg;
    const weft_param vars[] = {
        {.size = sizeof vars[0],
         .name = "w",
         .rank = 2,
         .dim = (int64_t[]){WIDTH, CLASSES},
         .initializer = "glorot_uniform"},
        {.size = sizeof vars[0], .name = "b", .rank = 1, .dim = (int64_t[]){CLASSES}},
    };
    weft_params *p = NULL;
    weft_status st;

    make_data(d);
    st = weft_params_open(weft_worker_ctx(worker), weft_worker_dist(worker),
                          WEFT_OPTS(weft_params_opts, .n_vars = 2, .vars = vars,
                                    .optimizer = "adam learning_rate=0.01", .shard = compute,
                                    .shard_arg = d),
                          &p);
    if (!st)
        st = weft_params_pull(p); /* where the job is */
    while (!st && weft_params_step(p) < d->steps && !weft_worker_should_stop(worker)) {
        st = weft_params_wait(p);
        if (!st && weft_worker_index(worker) == 0 && weft_params_step(p) % 100 == 0)
            printf("step %lld: loss %.4f\n", (long long)weft_params_step(p),
                   weft_params_reported(p));
    }
    if (!st && weft_worker_index(worker) == 0)
        st = show_accuracy(d, p);
    fflush(stdout);
    weft_params_free(p);
    return st;
}

int main(int argc, char **argv)
{
    static struct data d;
    weft_ctx *ctx = NULL;
    weft_program *p = NULL;
    weft_status st;

    d.steps = argc > 1 ? atoll(argv[1]) : 400;
    st = weft_ctx_new(NULL, &ctx);
    if (!st)
        st = weft_program_open(
            ctx,
            WEFT_OPTS(weft_program_opts, .workers = 2, .ps = 1, .env = (const char *const *)environ,
                      .argv = (const char *const *)argv, .work = work, .work_arg = &d, .seed = 1),
            &p);
    if (!st)
        st = weft_program_run(p);
    if (st)
        fprintf(stderr, "push_pull: %s\n", weft_error());
    weft_program_free(p);
    weft_ctx_free(ctx);
    return st ? 1 : 0;
}
