/* early_test.c - the denominators of a shard are known when its first gradients are complete: so
 * that they can be pushed while the others are computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/step/dist.h"
#include "weft/sys/strategy.h"
#include "weft/weft.h"

enum { N = 13, F = 5 };

/* What a strategy was told of one shard. */
struct seen {
    weft_work *w;
    int n_ready, n_known, n_shards;
    double sums[8];
};

static weft_status open_seen(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                             int *first)
{
    (void)ctx;
    *self = arg;
    *replicas = *local = 1;
    *first = 0;
    return WEFT_OK;
}

static weft_status ready(void *self, const weft_range *range, int64_t t, int64_t number,
                         const float *gradients, void *event)
{
    struct seen *s = self;

    (void)range, (void)t, (void)number, (void)gradients, (void)event;
    s->n_ready++;
    s->n_known += wf_work_denominators(s->w, &s->w->replica[0], s->sums);
    return WEFT_OK;
}

static weft_status compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    struct seen *s = self;
    weft_status st = weft_work_replicas(w, 1);

    (void)t;
    s->w = w;
    for (int64_t i = 0; i < n && !st; i++) {
        weft_given given;

        st = weft_work_compute(w, 0, first + i, &given);
        if (st)
            break;
        s->n_shards++;
        for (int k = 0; k <= w->rules.n_groups; k++)
            assert_true(s->sums[k] == given.gradients->sums[k]);
        st = weft_work_put(w, first + i, &given);
    }
    return st;
}

static weft_status apply(void *self, weft_work *w, int64_t t)
{
    (void)self, (void)t;
    return weft_work_update(w);
}

static const weft_strategy strategy = {.size = sizeof strategy,
                                       .name = "seen",
                                       .doc = "for tests",
                                       .open = open_seen,
                                       .compute = compute,
                                       .ready = ready,
                                       .apply = apply};

static struct seen train(int shards, const char *layer)
{
    struct seen s = {NULL};
    float x[N * F] = {0};
    int32_t y[N] = {0};
    weft_tensor in = weft_view(WEFT_F32, x, 2, (int64_t[]){N, F});
    weft_tensor label = weft_view(WEFT_I32, y, 1, (int64_t[]){N});
    weft_ctx *ctx;
    weft_dist *dist;
    weft_model *m;
    weft_trainer *t;
    weft_sym v;

    for (int i = 0; i < N * F; i++)
        x[i] = (float)(i % 7) - 3;
    for (int i = 0; i < N; i++)
        y[i] = i % 3;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(weft_dist_open_with(ctx, &strategy, &s, &dist), 0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    v = weft_apply(m, layer, NULL, weft_apply(m, "Dense", "units=8 activation=relu", v));
    weft_model_output(m, weft_apply(m, "Dense", "units=3", v));
    assert_int_equal(weft_dist_scope(dist, m), 0);
    assert_int_equal(
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "sgd", .shards = shards,
                               .loss = "sparse_categorical_crossentropy from_logits=true"),
                     &t),
        0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weft_train_on_batch(t, &in, &label, NULL, NULL), 0);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return s;
}

static void denominators_are_known_with_the_first_gradient(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 4; shards++)
        for (int norm = 0; norm < 2; norm++) {
            struct seen s = train(shards, norm ? "LayerNormalization" : "Flatten");

            assert_int_equal(s.n_shards, 2 * shards);
            assert_int_equal(s.n_ready, s.n_shards * (norm ? 6 : 4));
            assert_int_equal(s.n_known, s.n_ready);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(denominators_are_known_with_the_first_gradient)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
