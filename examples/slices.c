/* slices.c - ten workers, each with its own slice of the data, that train by themselves and merge
 * now and then: 1 000 000 samples of 64 numbers in ten slices, one label a slice, batches of 32. A
 * worker takes EVERY steps of its own optimizer on its copy of the parameters and pushes what has
 * changed; the server adds the mean of all ten.
 *
 *   slices [SAMPLES_OF_A_SLICE [EVERY [local]]]
 *
 * With `local` one process computes all slices, one after the other: the result has the same bits.
 * */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

enum { SLICES = 10, WIDTH = 64, BATCH = 32, TEST = 200 };
static const float rate = 0.1f;
extern char **environ;

struct job {
    int64_t samples, every; /* of a slice; steps between merges */
};

struct model {
    float w[WIDTH][SLICES], b[SLICES];
};

static uint32_t mix(uint32_t h)
{
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    return h ^ h >> 16;
}

/* Sample i of a slice: noise around the slice's own direction. Nothing is stored. */
static void sample(int64_t slice, int64_t i, float *x)
{
    uint32_t r = mix((uint32_t)(slice * 0x9e3779b1u) ^ (uint32_t)i);

    for (int k = 0; k < WIDTH; k++) {
        r = r * 1664525 + 1013904223;
        x[k] = (float)(r >> 8) / (1 << 23) - 1 +
               ((mix((uint32_t)(slice * WIDTH + k)) & 1) ? 0.2f : -0.2f);
    }
}

static void predict(const struct model *m, const float *x, float *p)
{
    float most = -INFINITY, sum = 0;

    for (int c = 0; c < SLICES; c++) {
        p[c] = m->b[c];
        for (int k = 0; k < WIDTH; k++)
            p[c] += x[k] * m->w[k][c];
        most = p[c] > most ? p[c] : most;
    }
    for (int c = 0; c < SLICES; c++)
        sum += p[c] = expf(p[c] - most);
    for (int c = 0; c < SLICES; c++)
        p[c] /= sum;
}

/* One step of stochastic gradient descent on a batch of the slice. Returns the mean loss. */
static double train_batch(struct model *m, int64_t slice, int64_t first)
{
    struct model g;
    double loss = 0;

    memset(&g, 0, sizeof g);
    for (int i = 0; i < BATCH; i++) {
        float x[WIDTH], p[SLICES];

        sample(slice, first + i, x);
        predict(m, x, p);
        loss -= log((double)p[slice] + 1e-12);
        p[slice] -= 1;
        for (int c = 0; c < SLICES; c++) {
            g.b[c] += p[c];
            for (int k = 0; k < WIDTH; k++)
                g.w[k][c] += p[c] * x[k];
        }
    }
    for (int c = 0; c < SLICES; c++) {
        m->b[c] -= rate / BATCH * g.b[c];
        for (int k = 0; k < WIDTH; k++)
            m->w[k][c] -= rate / BATCH * g.w[k][c];
    }
    return loss / BATCH;
}

static weft_status pull(weft_params *p, struct model *m)
{
    weft_tensor w = weft_view(WEFT_F32, m->w, 2, (int64_t[]){WIDTH, SLICES});
    weft_tensor b = weft_view(WEFT_F32, m->b, 1, (int64_t[]){SLICES});
    weft_status st = weft_params_get(p, "w", &w);

    return st ? st : weft_params_get(p, "b", &b);
}

/* A round of one slice, by whichever worker: what its parameters have changed by. */
static weft_status train_slice(void *arg, weft_params *p, int64_t slice)
{
    const struct job *j = arg;
    int64_t first = weft_params_step(p) * j->every * BATCH;
    struct model was, m;
    double loss = 0;
    weft_tensor w = weft_view(WEFT_F32, m.w, 2, (int64_t[]){WIDTH, SLICES});
    weft_tensor b = weft_view(WEFT_F32, m.b, 1, (int64_t[]){SLICES});
    weft_status st = pull(p, &was);

    m = was;
    for (int64_t i = 0; i < j->every && !st; i++)
        loss += train_batch(&m, slice, first + i * BATCH);
    for (int c = 0; c < SLICES; c++) {
        m.b[c] -= was.b[c];
        for (int k = 0; k < WIDTH; k++)
            m.w[k][c] -= was.w[k][c];
    }
    if (!st)
        st = weft_params_report(p, slice, loss / (double)j->every);
    if (!st)
        st = weft_params_push(p, slice, "w", &w);
    return st ? st : weft_params_push(p, slice, "b", &b);
}

/* Samples of all slices, beyond those that were trained on. */
static weft_status show(const struct job *j, weft_params *p)
{
    struct model m;
    uint32_t sum = 2166136261u;
    int right = 0;
    weft_status st = pull(p, &m);

    for (int64_t i = 0; i < (int64_t)TEST * SLICES && !st; i++) {
        float x[WIDTH], q[SLICES];
        int best = 0;

        sample(i % SLICES, j->samples + i, x);
        predict(&m, x, q);
        for (int c = 1; c < SLICES; c++)
            best = q[c] > q[best] ? c : best;
        right += best == i % SLICES;
    }
    for (size_t i = 0; i < sizeof m && !st; i++)
        sum = (sum ^ ((const unsigned char *)&m)[i]) * 16777619u;
    if (!st)
        printf("%lld merges: accuracy %.3f, parameters %08x\n", (long long)weft_params_step(p),
               (double)right / (TEST * SLICES), (unsigned)sum);
    return st;
}

/* worker: NULL for one process. */
static weft_status train(struct job *j, weft_ctx *ctx, weft_worker *worker)
{
    const weft_param vars[] = {
        {.size = sizeof vars[0], .name = "w", .rank = 2, .dim = (int64_t[]){WIDTH, SLICES}},
        {.size = sizeof vars[0], .name = "b", .rank = 1, .dim = (int64_t[]){SLICES}},
    };
    int64_t merges = j->samples / BATCH / j->every;
    bool first = !worker || weft_worker_index(worker) == 0;
    weft_params *p = NULL;
    weft_status st =
        weft_params_open(ctx, worker ? weft_worker_dist(worker) : NULL,
                         WEFT_OPTS(weft_params_opts, .n_vars = 2, .vars = vars, .shards = SLICES,
                                   .shard = train_slice, .shard_arg = j),
                         &p);

    if (!st)
        st = weft_params_pull(p);
    while (!st && weft_params_step(p) < merges && !(worker && weft_worker_should_stop(worker))) {
        st = weft_params_wait(p);
        if (!st && first && weft_params_step(p) % 50 == 0)
            printf("merge %lld: loss %.4f\n", (long long)weft_params_step(p),
                   weft_params_reported(p));
    }
    if (!st && first)
        st = show(j, p);
    fflush(stdout);
    weft_params_free(p);
    return st;
}

static weft_status work(void *arg, weft_worker *worker)
{
    return train(arg, weft_worker_ctx(worker), worker);
}

int main(int argc, char **argv)
{
    struct job j = {.samples = argc > 1 ? atoll(argv[1]) : 100000,
                    .every = argc > 2 ? atoll(argv[2]) : 10};
    weft_ctx *ctx = NULL;
    weft_program *p = NULL;
    weft_status st;

    if (j.every < 1 || j.samples < BATCH * j.every) {
        fprintf(stderr, "usage: slices [SAMPLES_OF_A_SLICE [EVERY [local]]]\n");
        return 2;
    }
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    if (!st && argc > 3)
        st = train(&j, ctx, NULL);
    else if (!st)
        st = weft_program_open(
            ctx,
            WEFT_OPTS(weft_program_opts, .workers = SLICES, .ps = 1,
                      .env = (const char *const *)environ, .argv = (const char *const *)argv,
                      .work = work, .work_arg = &j,
                      .devices = "worker: cpu threads=1; worker/9: cpu:0 threads=1 memory=256M"),
            &p);
    if (!st && p)
        st = weft_program_run(p);
    if (st)
        fprintf(stderr, "slices: %s\n", weft_error());
    weft_program_free(p);
    weft_ctx_free(ctx);
    return st ? 1 : 0;
}
