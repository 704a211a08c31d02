/* own_loop.c - a custom training loop: gradients of micro-batches, averaged, clipped by hand
 * and applied to chosen weights.
 *
 *   own_loop [STEPS]
 *
 * Points on three arms of a spiral are told apart by a small net. First the head is trained alone,
 * then everything; each step is the mean of four micro-batches. The strategy decides who computes
 * them: with `local` this process, one after the other. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

enum { SAMPLES = 600, ARMS = 3, MICRO = 32, MICROS = 4 };

static float points[SAMPLES][2];
static int32_t arm[SAMPLES];

static int failed(const char *what)
{
    fprintf(stderr, "own_loop: %s: %s\n", what, weft_error());
    return 1;
}

/* Three arms, a little noise, in an order that mixes them. */
static void make_points(void)
{
    uint32_t seed = 1;

    for (int i = 0; i < SAMPLES; i++) {
        float r = 0.1f + 0.9f * (float)(i / ARMS) / (SAMPLES / ARMS), noise, angle;
        int at = i * 7 % SAMPLES;

        seed = seed * 1664525u + 1013904223u;
        noise = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
        angle = 2.0944f * (float)(i % ARMS) + 3.5f * r + 0.3f * noise;
        points[at][0] = r * cosf(angle);
        points[at][1] = r * sinf(angle);
        arm[at] = i % ARMS;
    }
}

static weft_status build(weft_ctx *ctx, weft_model **m)
{
    weft_sym x;
    weft_status st = weft_model_new(ctx, NULL, m);

    if (st)
        return st;
    x = weft_input(*m, "point", WEFT_F32, 1, (int64_t[]){2});
    x = weft_apply(*m, "Dense", "units=48 activation=tanh name=body", x);
    x = weft_apply(*m, "Dense", "units=24 activation=tanh name=body_2", x);
    weft_model_output(*m, weft_apply(*m, "Dense", "units=3 name=head", x));
    return weft_model_status(*m);
}

/* ---- one step -------------------------------------------------------------------------------- */

struct loop {
    weft_dist *dist;
    weft_trainer *t;
    weft_grads *micro[MICROS], *replica, *mean;
    int64_t step;
    double loss; /* of the replica's last share */
};

/* What a replica does in a step: its micro-batches, averaged. */
static weft_status replica_step(void *arg, int replica)
{
    struct loop *l = arg;
    int64_t first = (l->step * weft_dist_replicas(l->dist) + replica) * MICROS;

    l->loss = 0;
    for (int i = 0; i < MICROS; i++) {
        int64_t at = (first + i) * MICRO % (SAMPLES - MICRO + 1);
        weft_tensor x = weft_view(WEFT_F32, points[at], 2, (int64_t[]){MICRO, 2});
        weft_tensor y = weft_view(WEFT_I32, arm + at, 1, (int64_t[]){MICRO});
        weft_logs logs;
        weft_status st = weft_trainer_gradients(l->t, &x, &y, NULL, &l->micro[i], &logs);

        if (st)
            return st;
        l->loss += weft_logs_get(&logs, "loss") / MICROS;
    }
    return weft_grads_average(MICROS, (const weft_grads *const *)l->micro, &l->replica);
}

/* The length of a gradient, all weights together; each is a tensor that a program may look at and
 * change. */
static double length_of(weft_grads *g)
{
    double sum = 0;

    for (int i = 0; i < weft_grads_n(g); i++) {
        weft_tensor v;

        if (weft_grads_view(g, weft_grads_name(g, i), &v))
            return NAN;
        for (int64_t k = 0; k < weft_tensor_count(&v); k++)
            sum += pow((double)((const float *)v.data)[k], 2);
    }
    return sqrt(sum);
}

static weft_status step(struct loop *l, const char *only, double *loss)
{
    weft_tensor mine = weft_view(WEFT_F64, &l->loss, 0, NULL);
    weft_tensor all = weft_view(WEFT_F64, loss, 0, NULL);
    weft_status st = weft_dist_run(l->dist, replica_step, l);
    double length;

    if (!st)
        st = weft_dist_reduce(l->dist, WEFT_MEAN, &mine, &all);
    if (!st)
        st = weft_dist_reduce_grads(l->dist, WEFT_MEAN, (const weft_grads *const *)&l->replica,
                                    &l->mean);
    if (st)
        return st;
    length = length_of(l->mean);
    if (length > 1)
        st = weft_grads_scale(l->mean, 1 / length);
    if (!st)
        st = weft_trainer_apply(l->t, l->mean, WEFT_OPTS(weft_apply_opts, .only = only));
    l->step++;
    return st;
}

/* ---- two phases ------------------------------------------------------------------------------ */

static weft_status train(struct loop *l, int64_t steps)
{
    double loss = 0;

    for (int64_t i = 0; i < steps; i++) {
        bool head_only = i < steps / 4;
        weft_status st = WEFT_OK;

        if (i == steps / 4) /* from here on everything moves, more slowly */
            st = weft_trainer_set_rate(l->t, 0.005);
        if (!st)
            st = step(l, head_only ? "head*" : NULL, &loss);
        if (st)
            return st;
        if ((i + 1) % (steps >= 8 ? steps / 8 : 1) == 0)
            printf("step %4lld  %-10s loss %.4f\n", (long long)i + 1, head_only ? "head" : "all",
                   loss);
    }
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    int64_t steps = argc > 1 ? atoll(argv[1]) : 600;
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    struct loop l = {0};
    weft_tensor x = weft_view(WEFT_F32, points, 2, (int64_t[]){SAMPLES, 2});
    weft_tensor y = weft_view(WEFT_I32, arm, 1, (int64_t[]){SAMPLES});
    weft_logs logs;
    int rc = 1;

    make_points();
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 1), &ctx) || build(ctx, &m) ||
        weft_dist_open(ctx, "local", &l.dist) || weft_dist_scope(l.dist, m) ||
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.02",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .metrics = "accuracy"),
                     &l.t)) {
        failed("setting up");
        goto out;
    }
    printf("strategy %s, %d replica\n", weft_dist_name(l.dist), weft_dist_replicas(l.dist));
    if (train(&l, steps) || weft_test_on_batch(l.t, &x, &y, NULL, &logs)) {
        failed("training");
        goto out;
    }
    printf("accuracy %.3f\n", weft_logs_get(&logs, "accuracy"));
    rc = steps >= 400 && weft_logs_get(&logs, "accuracy") < 0.95;
out:
    for (int i = 0; i < MICROS; i++)
        weft_grads_free(l.micro[i]);
    weft_grads_free(l.replica);
    weft_grads_free(l.mean);
    weft_trainer_free(l.t);
    weft_model_free(m);
    weft_dist_free(l.dist);
    weft_ctx_free(ctx);
    return rc;
}
