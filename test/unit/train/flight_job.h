/* flight_job.h - a training whose batches are in flight on the fake device (test/support/fake.h),
 * or, if a callback looks at each of them, are waited for one by one. */
#ifndef WEFT_TEST_FLIGHT_JOB_H
#define WEFT_TEST_FLIGHT_JOB_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/counting.h"
#include "support/fake.h"
#include "weft/weft.h"

enum { N = 90, D = 4, BATCH = 16, IDS = 11, STEPS = 6, WEIGHTS = 512, LOGS = 16, EPOCHS = 8 };

struct flight_data {
    float x[N][D], w[N];
    int32_t id[N][2], y[N];
};

struct flight_job {
    struct fake fake;
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

/* What a training is; all zero: one with weights of the samples, on a lazy device. */
struct flight_how {
    bool looks;         /* at each batch */
    bool class_weights; /* instead of those of the samples */
    bool trap;
    const weft_device_driver *gpu; /* NULL: the fake device */
    const char *optimizer;         /* NULL: adam */
    const weft_allocator *mem;     /* NULL: the usual one */
    int64_t (*now)(void *arg);     /* NULL: the system's clock */
    void *now_arg;
};

/* What came of it. */
struct flight_result {
    float weights[WEIGHTS];
    double history[EPOCHS * LOGS], logs[LOGS];
    size_t n;
    int64_t n_epochs, n_names, step;
};

static inline struct flight_data flight_data(void)
{
    struct flight_data d = {.y = {0}};

    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            d.x[i][k] = (float)((i * D + k) * 7919 % 1000) / 500 - 1;
        d.w[i] = (float)(i % 5 + 1) / 4;
        d.id[i][0] = i * 7 % IDS;
        d.id[i][1] = i * 3 % 4;
        d.y[i] = d.x[i][0] + d.x[i][1] > 0.4f ? 2 : d.x[i][2] > 0 ? 1 : 0;
    }
    return d;
}

/* Embeddings (whose ids may be refused), dropout, moving averages and metrics besides products. */
static inline weft_status flight_build(struct flight_job *j, struct flight_data *d,
                                       const struct flight_how *how)
{
    static const double class_weights[] = {0.5, 2, 1};
    weft_column col[4] = {{.name = "x"},
                          {.name = "id"},
                          {.name = "y", .role = WEFT_LABEL},
                          {.name = "w", .role = WEFT_WEIGHT}};
    weft_tensor t[4] = {weft_view(WEFT_F32, d->x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, d->id, 2, (int64_t[]){N, 2}),
                        weft_view(WEFT_I32, d->y, 1, (int64_t[]){N}),
                        weft_view(WEFT_F32, d->w, 1, (int64_t[]){N})};
    const weft_device_driver *driver = how->gpu ? how->gpu : &j->fake.driver;
    weft_sym in[2], s;
    weft_status st;

    fake_init(&j->fake);
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .allocator = how->mem,
                                .kernels = WEFT_KERNELS_PORTABLE, .n_drivers = 1,
                                .drivers = &driver, .now_ns = how->now, .now_arg = how->now_arg,
                                .devices = how->gpu ? "gpu:0, strict" : "fake:0, strict"),
                      &j->ctx);
    if (!st)
        st = weft_model_new(j->ctx, NULL, &j->m);
    if (st)
        return st;
    in[0] = weft_input(j->m, "x", WEFT_F32, 1, (int64_t[]){D});
    in[1] = weft_input(j->m, "id", WEFT_I32, 1, (int64_t[]){2});
    in[1] = weft_apply(j->m, "Embedding", "input_dim=11 output_dim=3", in[1]);
    in[1] = weft_apply(j->m, "Flatten", NULL, in[1]);
    s = weft_apply_n(j->m, "Concatenate", NULL, 2, in);
    s = weft_apply(j->m, "Dense", "units=8 activation=tanh", s);
    s = weft_apply(j->m, "BatchNormalization", NULL, s);
    s = weft_apply(j->m, "Dropout", "rate=0.2", s);
    s = weft_apply(j->m, "Dense", "units=3", s);
    weft_model_output(j->m, s);
    st = weft_compile(
        j->m,
        WEFT_OPTS(weft_compile_opts,
                  .optimizer = how->optimizer ? how->optimizer : "adam learning_rate=0.01",
                  .loss = "sparse_categorical_crossentropy from_logits=true", .metrics = "accuracy",
                  .trap_numerics = how->trap, .n_class_weights = how->class_weights ? 3 : 0,
                  .class_weights = how->class_weights ? class_weights : NULL),
        &j->t);
    if (!st)
        st = weft_data_new(j->ctx, &j->d);
    if (!st)
        j->s = weft_ds_tensors(j->d, how->class_weights ? 3 : 4, col, t);
    return st;
}

static inline void flight_close(struct flight_job *j)
{
    weft_trainer_free(j->t);
    weft_model_free(j->m);
    weft_data_free(j->d);
    weft_ctx_free(j->ctx);
}

static inline weft_status flight_look(void *arg, weft_trainer *t, int64_t batch,
                                      const weft_logs *logs)
{
    (void)arg, (void)t, (void)batch, (void)logs;
    return WEFT_OK;
}

static inline weft_status flight_weights(struct flight_job *j, float *to, size_t *n)
{
    weft_status st = WEFT_OK;

    *n = 0;
    for (int i = 0; i < weft_trainer_n_weights(j->t) && !st; i++) {
        weft_tensor w;

        st = weft_trainer_weight(j->t, weft_trainer_weight_name(j->t, i), &w);
        if (st)
            break;
        assert_true(w.dtype == WEFT_F32 && *n + (size_t)weft_tensor_count(&w) <= WEIGHTS);
        memcpy(to + *n, w.data, (size_t)weft_tensor_bytes(&w));
        *n += (size_t)weft_tensor_count(&w);
    }
    return st;
}

/* Trains, and keeps what came of it. */
static inline weft_status flight_fit(struct flight_job *j, const struct flight_how *how,
                                     const weft_fit_opts *given, struct flight_result *r)
{
    weft_callback cb[3] = {{.size = sizeof *cb, .batch_end = flight_look}};
    weft_fit_opts o = *given;
    weft_history *h = NULL;
    weft_status st;

    memset(r, 0, sizeof *r);
    assert_true(o.n_callbacks < 3);
    for (int i = 0; i < o.n_callbacks; i++)
        cb[how->looks + i] = o.callbacks[i];
    o.size = sizeof o;
    o.n_callbacks += how->looks;
    o.callbacks = cb;
    o.batch = o.batch ? o.batch : BATCH;
    st = weft_fit(j->t, j->d, j->s, &o, &h);
    if (!st) {
        assert_true(h->n_names <= LOGS && h->n_epochs <= EPOCHS);
        r->n_epochs = h->n_epochs;
        r->n_names = h->n_names;
        memcpy(r->history, h->value, (size_t)(h->n_epochs * h->n_names) * sizeof *h->value);
        weft_history_free(h);
    }
    return st;
}

/* Weights, the step, and what evaluating gives. */
static inline weft_status flight_finish(struct flight_job *j, struct flight_result *r)
{
    weft_logs logs = {0};
    weft_status st = flight_weights(j, r->weights, &r->n);

    r->step = weft_trainer_step(j->t);
    if (!st)
        st = weft_evaluate(j->t, j->d, j->s, WEFT_OPTS(weft_eval_opts, .batch = BATCH), &logs);
    for (int i = 0; i < logs.n && !st; i++)
        r->logs[i] = logs.value[i];
    return st;
}

#endif
