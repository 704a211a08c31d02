/* custom_loss_fault.c - custom losses and metrics, registered, compiled, saved and loaded again,
 * with every allocation and every file call failing in turn: a status with a text, no leak, no
 * crash. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <unistd.h>

#include "../support/counting.h"
#include "../support/faultfs.h"
#include "weft/sys/loss.h"
#include "weft/weft.h"

enum { N = 4, D = 2 };

static weft_val build_loss(weft_loss_call *c)
{
    weft_graph *g = weft_loss_graph(c);
    weft_val d = weft_abs(g, weft_sub(g, weft_loss_pred(c), weft_loss_label(c)));

    return weft_mean(g, weft_mul(g, d, weft_scalar(g, weft_loss_float(c, "by"))),
                     WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
}

static weft_val build_metric(weft_loss_call *c)
{
    return weft_lt(weft_loss_graph(c), weft_loss_label(c), weft_loss_pred(c));
}

static const weft_loss_kind loss = {
    .size = sizeof loss, .name = "Mine", .attrs = "by:f=1", .build = build_loss};
static const weft_metric_kind metric = {
    .size = sizeof metric, .name = "too_much", .direction = -1, .build = build_metric};

static weft_status registered(weft_ctx *ctx, weft_model **m)
{
    weft_status st = weft_model_new(ctx, NULL, m);

    if (!st)
        st = weft_loss_register(*m, &loss);
    if (!st)
        st = weft_metric_register(*m, &metric);
    return st;
}

/* Trains a step, saves, loads with the same settings, measures. */
static weft_status work(weft_ctx *ctx, const char *path)
{
    float x[N][D] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, y[N] = {1, 2, 3, 4};
    weft_tensor in = weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                label = weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1});
    weft_model *m = NULL, *again = NULL;
    weft_trainer *t = NULL, *u = NULL;
    weft_logs logs;
    weft_status st = registered(ctx, &m);

    if (!st) {
        weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
        weft_model_add(m, "Dense", "units=1");
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .loss = "mine by=2", .metrics = "too_much",
                                    .loss_weights = (double[]){0.5}),
                          &t);
    }
    if (!st)
        st = weft_train_on_batch(t, &in, &label, NULL, &logs);
    if (!st)
        st = weft_trainer_save(t, path);
    if (!st)
        st = registered(ctx, &again);
    if (!st)
        st = weft_model_load_into(again, path);
    if (!st)
        st = weft_compile(again, WEFT_OPTS(weft_compile_opts, .like = path), &u);
    if (!st)
        st = weft_trainer_load_weights(u, path, NULL, NULL);
    if (!st)
        st = weft_test_on_batch(u, &in, &label, NULL, &logs);
    weft_trainer_free(t);
    weft_trainer_free(u);
    weft_model_free(m);
    weft_model_free(again);
    return st;
}

static void every_call_fails_in_turn(bool files)
{
    static struct faultfs f;
    char path[64];
    int64_t n_failed = 0;
    bool hit = true;

    snprintf(path, sizeof path, "custom-loss-fault-%ld.safetensors", (long)getpid());
    for (int64_t at = 1; hit; at++) {
        struct counting c = {0};
        weft_allocator a = counting_allocator(&c);
        weft_ctx *ctx = NULL;
        weft_status st;

        faultfs_init(&f);
        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &ctx), 0);
        ctx->fs = &f.fs;
        c.fail_at = files ? 0 : c.n_allocs + at;
        f.fail_at = files ? f.n_calls + at : 0;
        st = work(ctx, path);
        hit = files ? f.n_calls >= f.fail_at : c.n_allocs >= c.fail_at;
        if (st) {
            assert_true(hit);
            assert_true(*weft_error());
            n_failed++;
        }
        weft_ctx_free(ctx);
        assert_int_equal(c.n_live, 0);
    }
    assert_true(n_failed > (files ? 3 : 20));
    unlink(path);
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    every_call_fails_in_turn(false);
}

static void every_file_call_fails_in_turn(void **state)
{
    (void)state;
    every_call_fails_in_turn(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_in_turn),
        cmocka_unit_test(every_file_call_fails_in_turn),
    };

    return cmocka_run_group_tests_name("custom loss fault", tests, NULL, NULL);
}
