/* loop_fault.c - every allocation of a custom loop fails in turn: a strategy, gradients
 * (whole and in shards, dense and as rows), their sums and averages, updates of all and of chosen
 * weights, schedulers of the rate, states, parameter calls. A clear status, nothing leaked, and
 * what was there before is there afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "../support/counting.h"

#define N 6
#define T 3

static const int32_t ids[N][T] = {{1, 2, 0}, {3, 0, 0}, {4, 5, 6}, {1, 1, 0}, {2, 6, 0}, {5, 0, 0}};
static const int32_t label[N][T] = {{1, 0, 2}, {2, 2, 2}, {0, 1, 1},
                                    {1, 2, 0}, {0, 0, 0}, {1, 1, 1}};
static const float value[N] = {1, 0, 2, 1, 0, 3};

struct loop {
    weft_model *m;
    weft_dist *d;
    weft_trainer *t;
    weft_grads *g[2], *mean;
};

static weft_status build(weft_ctx *ctx, struct loop *l)
{
    weft_sym x;
    weft_status st = weft_model_new(ctx, NULL, &l->m);

    if (st)
        return st;
    x = weft_input(l->m, "ids", WEFT_I32, 1, (int64_t[]){T});
    x = weft_apply(l->m, "Embedding", "input_dim=7 output_dim=3 mask_zero=true", x);
    x = weft_apply(l->m, "LSTM", "units=2 return_sequences=true", x);
    weft_model_output(
        l->m, weft_apply(l->m, "Dense", "units=3 name=tokens kernel_constraint=max_norm(1)", x));
    x = weft_apply(l->m, "LSTM", "units=2", x);
    x = weft_apply(l->m, "BatchNormalization", NULL, x);
    weft_model_output(l->m,
                      weft_apply(l->m, "Dense", "units=1 name=value kernel_regularizer=l2", x));
    return weft_model_status(l->m);
}

static weft_status gradients(struct loop *l, int first, int64_t n, weft_grads **g)
{
    weft_tensor x = weft_view(WEFT_I32, (void *)(uintptr_t)ids[first], 2, (int64_t[]){n, T});
    weft_tensor y[2] = {
        weft_view(WEFT_I32, (void *)(uintptr_t)label[first], 2, (int64_t[]){n, T}),
        weft_view(WEFT_F32, (void *)(uintptr_t)(value + first), 2, (int64_t[]){n, 1})};

    return weft_trainer_gradients(l->t, &x, y, NULL, g, NULL);
}

/* A weight and a moving average, to see whether a step that failed has changed them. */
static void look(struct loop *l, float seen[5])
{
    weft_tensor v;

    memset(seen, 0, 5 * sizeof *seen);
    if (!weft_trainer_weight(l->t, "value/kernel", &v))
        memcpy(seen, v.data, 2 * sizeof *seen);
    if (!weft_trainer_weight(l->t, "batch_normalization/moving_mean", &v))
        memcpy(seen + 2, v.data, 2 * sizeof *seen);
    seen[4] = (float)weft_trainer_step(l->t);
}

static weft_status step(struct loop *l)
{
    float before[5], after[5];
    weft_status st = gradients(l, 0, 4, &l->g[0]);

    if (!st)
        st = gradients(l, 4, 2, &l->g[1]);
    if (!st)
        st = weft_grads_average(2, (const weft_grads *const *)l->g, &l->mean);
    if (!st) {
        double weight = weft_grads_weight(l->g[0]);

        st = weft_grads_add(l->g[0], l->g[1]);
        if (st)
            assert_true(weft_grads_weight(l->g[0]) == weight);
    }
    if (!st)
        st = weft_dist_reduce_grads(l->d, WEFT_SUM, (const weft_grads *const *)&l->g[1], &l->mean);
    if (st)
        return st;
    look(l, before);
    st = weft_trainer_apply(l->t, l->mean, WEFT_OPTS(weft_apply_opts, .only = "value*, lstm*"));
    look(l, after);
    if (st)
        assert_memory_equal(before, after, sizeof before);
    return st ? st : weft_trainer_apply(l->t, l->mean, NULL);
}

static weft_status loop_of(weft_ctx *ctx, int shards)
{
    struct loop l = {0};
    weft_status st = build(ctx, &l);

    if (!st)
        st = weft_dist_open(ctx, "local", &l.d);
    if (!st)
        st = weft_dist_scope(l.d, l.m);
    if (!st)
        st = weft_compile(l.m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam global_clipnorm=1",
                                    .loss = "sparse_categorical_crossentropy from_logits=true; mse",
                                    .shards = shards),
                          &l.t);
    if (!st)
        st = step(&l);
    for (int i = 0; i < 2; i++)
        weft_grads_free(l.g[i]);
    weft_grads_free(l.mean);
    weft_trainer_free(l.t);
    weft_model_free(l.m);
    weft_dist_free(l.d);
    return st;
}

static double halve(void *arg, int64_t epoch, double rate)
{
    (void)arg;
    return epoch ? rate / 2 : rate;
}

/* fit over a stateful layer, with all that begins an epoch. */
static weft_status stateful_fit(weft_ctx *ctx)
{
    static float x[4][2][1] = {{{1}, {2}}, {{2}, {3}}, {{3}, {4}}, {{4}, {5}}}, y[4] = {1, 2, 3, 4};
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor rows[2] = {weft_view(WEFT_F32, x, 3, (int64_t[]){4, 2, 1}),
                           weft_view(WEFT_F32, y, 2, (int64_t[]){4, 1})};
    weft_callback cb[3] = {{0}, {0}, {0}};
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (!st) {
        weft_sym s = weft_input(m, "x", WEFT_F32, 2, (int64_t[]){2, 1});

        weft_model_output(m, weft_apply(m, "GRU", "units=1 stateful=true batch_size=2", s));
        st = weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "mse", .accumulate = 2), &t);
    }
    if (!st)
        st = weft_callback_new(ctx, "LearningRateScheduler epochs=[1] rates=[0.1,0.01]", &cb[0]);
    if (!st)
        st = weft_callback_rate(ctx, halve, NULL, &cb[1]);
    if (!st)
        st = weft_callback_new(ctx, "ResetStates", &cb[2]);
    if (!st)
        st = weft_data_new(ctx, &d);
    if (!st)
        st = weft_fit(t, d, weft_ds_tensors(d, 2, col, rows),
                      WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = 2, .n_callbacks = 3,
                                .callbacks = cb, .threads = 1),
                      NULL);
    if (!st)
        st = weft_trainer_reset_states(t, NULL);
    for (int i = 0; i < 3; i++)
        weft_callback_free(&cb[i]);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    return st;
}

/* Parameter calls: a variable and a table, pushed before the wait. A push that fails changes
 * nothing that was pushed before. */
static weft_status params(weft_ctx *ctx)
{
    const weft_param vars[] = {
        {.size = sizeof vars[0], .name = "w", .rank = 1, .dim = (int64_t[]){3}},
        {.size = sizeof vars[0], .name = "e", .rank = 2, .dim = (int64_t[]){5, 2}, .table = true}};
    weft_tensor g = weft_view(WEFT_F32, (float[]){1, 2, 3}, 1, (int64_t[]){3}), w = {.data = NULL};
    weft_tensor id = weft_view(WEFT_I32, (int32_t[]){4, 1, 4}, 1, (int64_t[]){3});
    weft_tensor row = weft_view(WEFT_F32, (float[6]){1}, 2, (int64_t[]){3, 2});
    float rows[4];
    weft_params *p = NULL;
    weft_status st = weft_params_open(
        ctx, NULL,
        WEFT_OPTS(weft_params_opts, .n_vars = 2, .vars = vars, .optimizer = "adam", .shards = 2),
        &p);

    for (int step = 0; step < 2 && !st; step++) {
        for (int shard = 0; shard < 2 && !st; shard++) {
            st = weft_params_push(p, shard, "w", &g);
            if (!st)
                st = weft_params_push_rows(p, shard, "e", &id, &row);
        }
        if (!st)
            st = weft_params_wait(p);
        if (st)
            assert_int_equal(weft_params_step(p), step);
    }
    if (!st)
        st = weft_params_get(p, "w", &w);
    if (!st)
        st = weft_params_rows(p, "e", 2, (int64_t[]){4, 4}, rows);
    weft_params_free(p);
    return st;
}

static weft_status life(weft_ctx *ctx, int which)
{
    return which < 2    ? loop_of(ctx, which == 0 ? 1 : 3)
           : which == 2 ? stateful_fit(ctx)
                        : params(ctx);
}

static void every_allocation_fails_in_turn(void **state)
{
    bool quick = getenv("WEFT_TEST_QUICK") != NULL;

    (void)state;
    for (int which = 0; which < 4; which++) {
        bool done = false;

        for (int64_t n = 1; !done; n += quick ? 7 : 1) {
            struct counting c = {.fail_at = n};
            weft_allocator a = counting_allocator(&c);
            weft_ctx *ctx = NULL;
            weft_status st =
                weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx);

            if (!st)
                st = life(ctx, which);
            weft_ctx_free(ctx);
            done = !st && c.n_allocs < n;
            if (st && st != WEFT_ENOMEM && st != WEFT_ELIMIT)
                fail_msg("life %d, allocation %d: %s %s", which, (int)n, weft_status_name(st),
                         weft_error());
            if (st)
                assert_true(weft_error()[0] != 0);
            if (c.n_live)
                fail_msg("life %d, allocation %d leaks %d", which, (int)n, (int)c.n_live);
            if (done)
                assert_true(n > 200); /* the loop saw all of it */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_in_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
