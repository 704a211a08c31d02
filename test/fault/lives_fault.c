/* lives_fault.c - a resume in which any allocation or any file call fails: the model has all of the
 * checkpoint's weights, or all of its own, never some of each.
 * ctest-timeout: 120 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/counting.h"
#include "../support/faultfs.h"
#include "weft/weft.h"

enum { N = 24, D = 3, H = 5, WEIGHTS = D * H + H + H + 1 };

static float x[N][D], y[N][1];
static char dir[] = "lives-fault-XXXXXX";

static void copy_weights(weft_trainer *t, float *to)
{
    for (int i = 0; i < weft_trainer_n_weights(t); i++) {
        weft_tensor w;

        assert_int_equal(weft_trainer_weight(t, weft_trainer_weight_name(t, i), &w), 0);
        memcpy(to, w.data, (size_t)weft_tensor_bytes(&w));
        to += weft_tensor_count(&w);
    }
}

/* Fits up to this epoch with a fault; the weights before and after, if there is a trainer. */
static weft_status fit(int epochs, struct counting *c, struct faultfs *f, int64_t alloc_at,
                       int64_t file_at, float *before, float *after, bool *hit)
{
    weft_allocator a = counting_allocator(c);
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor v[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_F32, y, 2, (int64_t[]){N, 1})};
    char spec[96];
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_callback cb[2] = {0};
    weft_ds s;
    weft_sym h;
    weft_status st;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3, .allocator = &a), &ctx), 0);
    ctx->fs = &f->fs;
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    h = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    h = weft_apply(m, "Dense", "units=5 activation=tanh", h);
    h = weft_apply(m, "Dense", "units=1", h);
    weft_model_output(m, h);
    assert_int_equal(
        weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "adam", .loss = "mse"), &t), 0);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    s = weft_ds_tensors(d, 2, col, v);
    snprintf(spec, sizeof spec, "CSVLogger filename=%s/log.csv", dir);
    assert_int_equal(weft_callback_new(ctx, spec, &cb[0]), 0);
    assert_int_equal(
        weft_callback_new(ctx, "EarlyStopping monitor=loss patience=9 restore_best_weights=true",
                          &cb[1]),
        0);
    copy_weights(t, before);
    snprintf(spec, sizeof spec, "%s/ckpt", dir);
    c->fail_at = alloc_at ? c->n_allocs + alloc_at : 0;
    f->fail_at = file_at ? f->n_calls + file_at : 0;
    st = weft_fit(t, d, s,
                  WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 8, .n_callbacks = 2,
                            .callbacks = cb, .checkpoint = spec),
                  NULL);
    *hit = (alloc_at && c->n_allocs >= c->fail_at) || (file_at && f->n_calls >= f->fail_at);
    c->fail_at = f->fail_at = 0;
    copy_weights(t, after);
    weft_callback_free(&cb[0]);
    weft_callback_free(&cb[1]);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return st;
}

/* The run is complete, so that nothing but the resume itself changes weights. */
static void all_or_nothing(bool files)
{
    static struct faultfs f;
    struct counting c = {0};
    float before[WEIGHTS], after[WEIGHTS], trained[WEIGHTS];
    int64_t n_failed = 0, n_left_alone = 0;
    bool hit;

    faultfs_init(&f);
    assert_int_equal(fit(2, &c, &f, 0, 0, before, trained, &hit), 0);
    assert_memory_not_equal(before, trained, sizeof trained);
    hit = true;
    for (int64_t at = 1; hit; at++) {
        weft_status st;

        c = (struct counting){0};
        faultfs_init(&f);
        st = fit(2, &c, &f, files ? 0 : at, files ? at : 0, before, after, &hit);
        assert_int_equal(c.n_live, 0); /* no leak */
        if (memcmp(before, after, sizeof after) != 0)
            assert_memory_equal(trained, after, sizeof after);
        if (!st)
            assert_memory_equal(trained, after, sizeof after);
        n_failed += st < 0;
        n_left_alone += memcmp(before, after, sizeof after) == 0;
    }
    assert_true(n_failed > 5);
    assert_true(n_left_alone > 5);
}

static void a_failed_allocation_leaves_the_model_whole(void **state)
{
    (void)state;
    all_or_nothing(false);
}

static void so_does_a_failed_file_call(void **state)
{
    (void)state;
    all_or_nothing(true);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)((i * 7 + k * 3) % 11) / 11;
        y[i][0] = x[i][0] - 2 * x[i][1];
    }
    strcpy(dir + strlen(dir) - 6, "XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failed_allocation_leaves_the_model_whole, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(so_does_a_failed_file_call, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
