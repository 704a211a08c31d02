/* device_fit_test.c - fit, evaluate, predict and checkpoints on a device with memory of its own
 * (test/support/fake.c): near the CPU's numbers, and a resumed run has the bits of one that was not
 * interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "support/ckpt_sample.h"
#include "support/fake.h"
#include "weft/weft.h"

#define N 90
#define D 4
#define CLASSES 3
#define WEIGHTS 2048

static float x[N][D];
static int32_t y[N];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)((i * D + k) * 7919 % 1000) / 500 - 1;
        y[i] = x[i][0] + x[i][1] > 0.4f ? 2 : x[i][2] > 0 ? 1 : 0;
    }
    return 0;
}

struct job {
    struct fake fake;
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

struct variant {
    const char *optimizer, *layer; /* the first one's arguments */
    const char *precision;
    int shards;
};

/* Dropout, moving averages and metrics besides products. */
static void open_job(struct job *j, bool device, const struct variant *v)
{
    const weft_device_driver *driver = &j->fake.driver;
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})};
    weft_sym s;

    *j = (struct job){.ctx = NULL};
    fake_init(&j->fake);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5,
                              .kernels = WEFT_KERNELS_PORTABLE, .n_drivers = 1, .drivers = &driver,
                              .devices = device ? "fake:0, strict" : "cpu:0"),
                    &j->ctx));
    ok(weft_model_new(j->ctx, NULL, &j->m));
    s = weft_input(j->m, "x", WEFT_F32, 1, (int64_t[]){D});
    s = weft_apply(j->m, "Dense", v->layer, s);
    s = weft_apply(j->m, "BatchNormalization", "", s);
    s = weft_apply(j->m, "Dropout", "rate=0.2", s);
    s = weft_apply(j->m, "Dense", "units=3", s);
    weft_model_output(j->m, s);
    ok(weft_compile(j->m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = v->optimizer,
                              .loss = "sparse_categorical_crossentropy from_logits=true",
                              .metrics = "accuracy", .precision = v->precision,
                              .shards = v->shards),
                    &j->t));
    ok(weft_data_new(j->ctx, &j->d));
    j->s = weft_ds_tensors(j->d, 2, col, t);
}

static void close_job(struct job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
    weft_ctx_free(j->ctx);
    assert_int_equal(j->fake.allocated, 0);
}

/* Trains to the end of an epoch; checkpoint: NULL for none. */
static double fit(struct job *j, int epochs, const char *checkpoint)
{
    weft_history *h = NULL;
    double loss;

    ok(weft_fit(j->t, j->d, j->s,
                WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 16, .checkpoint = checkpoint,
                          .validation_split = 0.2),
                &h));
    loss = h->value[0];
    weft_history_free(h);
    return loss;
}

static size_t weights(struct job *j, float *to)
{
    size_t n = 0;

    for (int i = 0; i < weft_trainer_n_weights(j->t); i++) {
        weft_tensor w;
        size_t count;

        ok(weft_trainer_weight(j->t, weft_trainer_weight_name(j->t, i), &w));
        count = (size_t)weft_tensor_count(&w);
        assert_true(w.dtype == WEFT_F32 && n + count <= WEIGHTS);
        memcpy(to + n, w.data, count * sizeof *to);
        n += count;
    }
    return n;
}

static const struct variant variants[] = {
    {"adam learning_rate=0.01", "units=16 activation=tanh", "f32", 1},
    {"sgd learning_rate=0.1 momentum=0.9", "units=16 activation=tanh", "f32", 3},
    {"adam clipnorm=0.5", "units=16 kernel_constraint=max_norm(0.9)", "f32", 1},
    {"sgd learning_rate=0.1", "units=16 kernel_constraint=max_norm(0.9)", "f32", 1},
    {"sgd learning_rate=0.05", "units=16 activation=tanh", "f16", 1},
};

static void training_is_near_the_cpus(void **state)
{
    static float cpu[WEIGHTS], device[WEIGHTS];

    (void)state;
    for (int i = 0; i < (int)(sizeof variants / sizeof *variants); i++) {
        struct job a, b;
        weft_logs one, two;
        double tolerance = strcmp(variants[i].precision, "f16") == 0 ? 2e-2 : 2e-3;
        size_t n;

        open_job(&a, false, &variants[i]);
        open_job(&b, true, &variants[i]);
        assert_float_equal(fit(&a, 3, NULL), fit(&b, 3, NULL), tolerance);
        n = weights(&a, cpu);
        assert_int_equal(weights(&b, device), n);
        for (size_t k = 0; k < n; k++)
            assert_float_equal(cpu[k], device[k], tolerance);
        ok(weft_evaluate(a.t, a.d, a.s, NULL, &one));
        ok(weft_evaluate(b.t, b.d, b.s, NULL, &two));
        for (int k = 0; k < one.n; k++)
            assert_true(fabs(one.value[k] - two.value[k]) < 0.03);
        assert_true(b.fake.n_kernels > 100);
        close_job(&a);
        close_job(&b);
    }
}

static void a_resumed_run_has_the_bits_of_one_run(void **state)
{
    static float whole[WEIGHTS], resumed[WEIGHTS];

    (void)state;
    for (int i = 0; i < (int)(sizeof variants / sizeof *variants); i++) {
        struct job j;
        char dir[64];
        size_t n;

        open_job(&j, true, &variants[i]);
        fit(&j, 4, NULL);
        n = weights(&j, whole);
        close_job(&j);

        temp_make(dir);
        for (int epochs = 1; epochs <= 4; epochs++) { /* each in a trainer of its own */
            open_job(&j, true, &variants[i]);
            fit(&j, epochs, dir);
            assert_int_equal(weights(&j, resumed), n);
            close_job(&j);
        }
        assert_memory_equal(whole, resumed, n * sizeof *whole);
        open_job(&j, false, &variants[i]); /* and the cpu resumes from it */
        fit(&j, 5, dir);
        close_job(&j);
        temp_remove(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_is_near_the_cpus),
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_run),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
