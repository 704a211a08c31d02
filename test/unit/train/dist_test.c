/* Strategies: the table, the scope of models, one replica that runs and reduces; the wrong ones are
 * named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "train/step/dist.h"
#include "weft/weft.h"

static weft_ctx *ctx;

static weft_model *model(void)
{
    weft_model *m;
    weft_sym x;

    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    x = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){2});
    weft_model_output(m, weft_apply(m, "Dense", "units=1", x));
    return m;
}

static void the_table_names_what_can_be_opened(void **state)
{
    const char *name, *doc;
    weft_dist *d = NULL;
    int n = 0;

    (void)state;
    for (; weft_dist_at(n, &name, &doc); n++) {
        assert_int_equal(weft_dist_open(ctx, name, &d), 0);
        assert_string_equal(weft_dist_name(d), name);
        assert_true(weft_dist_replicas(d) >= weft_dist_local_replicas(d));
        assert_true(strlen(doc) > 10);
        weft_dist_free(d);
    }
    assert_true(n >= 1);
    assert_false(weft_dist_at(-1, &name, &doc));
    assert_int_equal(weft_dist_open(ctx, NULL, &d), 0);
    assert_string_equal(weft_dist_name(d), "local");
    assert_int_equal(weft_dist_replicas(d), 1);
    weft_dist_free(d);
    weft_dist_free(NULL);
}

static void a_name_that_is_wrong_is_answered_with_the_nearest(void **state)
{
    static const char job_text[] = "data: {train: rows.csv}\n"
                                   "model: [{Dense: {units: 1}}]\n"
                                   "train: {loss: mse, strategy: locla}\n";
    weft_model *m = model();
    weft_trainer *t = NULL;
    weft_dist *d = NULL;
    weft_job *job = NULL;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, "loca", &d), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "no strategy 'loca', did you mean 'local'?"));
    assert_null(d);
    assert_int_equal(weft_compile(m, WEFT_OPTS(weft_compile_opts, .strategy = "lokal"), &t),
                     WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "did you mean 'local'?"));
    assert_null(t);
    assert_int_equal(
        weft_job_parse(ctx, "job.yaml", job_text, (int64_t)strlen(job_text), 0, NULL, &job),
        WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "job.yaml:3:30: train.strategy: no strategy 'locla'"));
    weft_model_free(m);
}

/* A model in a scope gives its trainers the strategy; a second scope and another name are
 * errors. */
static void a_model_is_in_one_scope(void **state)
{
    weft_model *m = model(), *other = model();
    weft_trainer *t = NULL;
    weft_dist *d, *e;
    weft_ctx *far;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, "local", &d), 0);
    assert_int_equal(weft_dist_open(ctx, "local", &e), 0);
    assert_int_equal(weft_dist_scope(d, m), 0);
    assert_int_equal(weft_dist_scope(d, m), 0);
    assert_int_equal(weft_dist_scope(e, m), WEFT_ESTATE);
    assert_int_equal(weft_compile(m, WEFT_OPTS(weft_compile_opts, .strategy = "far"), &t),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "'far'"));
    assert_int_equal(
        weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "mse", .strategy = "local"), &t), 0);
    weft_trainer_free(t);
    weft_dist_free(e);
    assert_int_equal(weft_ctx_new(NULL, &far), 0);
    assert_int_equal(weft_dist_open(far, "local", &e), 0);
    assert_int_equal(weft_dist_scope(e, other), WEFT_EINVAL);
    weft_model_free(m);
    weft_model_free(other);
    weft_dist_free(d);
    weft_dist_free(e);
    weft_ctx_free(far);
}

static weft_status count(void *arg, int replica)
{
    int *n = arg;

    assert_int_equal(replica, *n);
    ++*n;
    return *n > 5 ? WEFT_ERANGE : WEFT_OK;
}

static weft_status refuse(void *arg, int replica)
{
    (void)arg;
    (void)replica;
    return WEFT_ECANCEL;
}

static void each_replica_of_the_process_runs_once(void **state)
{
    weft_dist *d;
    int n = 0;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, NULL, &d), 0);
    assert_int_equal(weft_dist_run(d, count, &n), 0);
    assert_int_equal(n, weft_dist_local_replicas(d));
    assert_int_equal(weft_dist_run(d, refuse, NULL), WEFT_ECANCEL);
    weft_dist_free(d);
}

static void values_are_reduced_and_types_checked(void **state)
{
    float f[3] = {1, 2, 3.5f}, to[3] = {0};
    double scalar = 7;
    int32_t i[2] = {4, -5}, j[2] = {0};
    uint8_t bytes[2] = {1, 2};
    weft_tensor v = weft_view(WEFT_F32, f, 1, (int64_t[]){3});
    weft_tensor out = weft_view(WEFT_F32, to, 1, (int64_t[]){3}), s;
    weft_dist *d;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, NULL, &d), 0);
    assert_int_equal(weft_dist_reduce(d, WEFT_MEAN, &v, &out), 0);
    assert_memory_equal(f, to, sizeof f);
    s = weft_view(WEFT_F64, &scalar, 0, NULL);
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, &s, &s), 0); /* in its own place */
    assert_true(scalar == 7);
    v = weft_view(WEFT_I32, i, 1, (int64_t[]){2});
    out = weft_view(WEFT_I32, j, 1, (int64_t[]){2});
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, &v, &out), 0);
    assert_memory_equal(i, j, sizeof i);
    assert_int_equal(weft_dist_reduce(d, WEFT_MEAN, &v, &out), WEFT_EDTYPE);
    out.dim[0] = 1;
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, &v, &out), WEFT_ESHAPE);
    v = out = weft_view(WEFT_U8, bytes, 1, (int64_t[]){2});
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, &v, &out), WEFT_EDTYPE);
    v = out = weft_view(WEFT_F32, NULL, 1, (int64_t[]){2});
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, &v, &out), WEFT_ESHAPE);
    v = out = weft_view(WEFT_F32, f, 1, (int64_t[]){2});
    assert_int_equal(weft_dist_reduce(d, (weft_reduction)9, &v, &out), WEFT_EINVAL);
    weft_dist_free(d);
}

/* With one replica the sum and the mean of gradients are copies, which a trainer applies with the
 * same bits. */
static void gradients_are_reduced(void **state)
{
    float x[4][2] = {{1, 2}, {3, -1}, {0, 1}, {-2, 2}}, y[4] = {1, 2, 3, 4}, kernel[2][2];
    weft_tensor in = weft_view(WEFT_F32, x, 2, (int64_t[]){4, 2});
    weft_tensor label = weft_view(WEFT_F32, y, 2, (int64_t[]){4, 1}), v;
    weft_dist *d;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, NULL, &d), 0);
    for (int mean = 0; mean < 2; mean++) {
        weft_model *m = model();
        weft_trainer *t;
        weft_grads *g = NULL, *sum = NULL;

        assert_int_equal(weft_dist_scope(d, m), 0);
        assert_int_equal(weft_compile(m, WEFT_OPTS(weft_compile_opts, .loss = "mse"), &t), 0);
        assert_int_equal(weft_trainer_gradients(t, &in, &label, NULL, &g, NULL), 0);
        assert_int_equal(weft_dist_reduce_grads(d, mean ? WEFT_MEAN : WEFT_SUM,
                                                (const weft_grads *const *)&g, &sum),
                         0);
        assert_float_equal(weft_grads_weight(sum), 4, 0);
        assert_int_equal(weft_dist_reduce_grads(d, mean ? WEFT_MEAN : WEFT_SUM,
                                                (const weft_grads *const *)&g, &g),
                         WEFT_EINVAL);
        assert_int_equal(weft_trainer_apply(t, sum, NULL), 0);
        assert_int_equal(weft_trainer_weight(t, "dense/kernel", &v), 0);
        memcpy(kernel[mean], v.data, sizeof kernel[mean]);
        weft_grads_free(g);
        weft_grads_free(sum);
        weft_trainer_free(t);
        weft_model_free(m);
    }
    assert_memory_equal(kernel[0], kernel[1], sizeof kernel[0]);
    weft_dist_free(d);
}

/* What a strategy with several replicas in a process is given: values are added in order, a mean is
 * over all replicas. */
static void values_of_several_replicas_are_added(void **state)
{
    float f[3][2] = {{1, 2}, {3, 4}, {5, 9}}, to[2] = {0};
    double a[3] = {1, 2, 6}, b = 0;
    int32_t i[3] = {1, -2, 3}, j = 0;
    int64_t k[3] = {1, 2, 3}, l = 0;
    weft_tensor v[3], out = weft_view(WEFT_F32, to, 1, (int64_t[]){2});
    weft_dist *d;
    int n = 0;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, NULL, &d), 0);
    d->n_local = d->n_replicas = 3;
    for (int r = 0; r < 3; r++)
        v[r] = weft_view(WEFT_F32, f[r], 1, (int64_t[]){2});
    assert_int_equal(weft_dist_reduce(d, WEFT_MEAN, v, &out), 0);
    assert_true(to[0] == 3 && to[1] == 5);
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, v, &v[0]), 0);
    assert_true(f[0][0] == 9 && f[0][1] == 15);
    for (int r = 0; r < 3; r++)
        v[r] = weft_view(WEFT_F64, &a[r], 0, NULL);
    out = weft_view(WEFT_F64, &b, 0, NULL);
    assert_int_equal(weft_dist_reduce(d, WEFT_MEAN, v, &out), 0);
    assert_true(b == 3);
    for (int r = 0; r < 3; r++)
        v[r] = weft_view(WEFT_I32, &i[r], 0, NULL);
    out = weft_view(WEFT_I32, &j, 0, NULL);
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, v, &out), 0);
    assert_int_equal(j, 2);
    for (int r = 0; r < 3; r++)
        v[r] = weft_view(WEFT_I64, &k[r], 0, NULL);
    out = weft_view(WEFT_I64, &l, 0, NULL);
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, v, &out), 0);
    assert_int_equal(l, 6);
    v[2].rank = 1;
    v[2].dim[0] = 1;
    assert_int_equal(weft_dist_reduce(d, WEFT_SUM, v, &out), WEFT_ESHAPE);
    assert_int_equal(weft_dist_run(d, count, &n), 0);
    assert_int_equal(n, 3);
    weft_dist_free(d);
}

/* All samples are this process's. */
static void a_dataset_is_shared_out(void **state)
{
    float x[4][2] = {{1, 2}, {3, -1}, {0, 1}, {-2, 2}};
    weft_column col = {.name = "x"};
    weft_tensor rows = weft_view(WEFT_F32, x, 2, (int64_t[]){4, 2});
    weft_data *data;
    weft_ds s, mine = {0};
    weft_iter *it;
    weft_batch *b;
    weft_dist *d;
    int n = 0;

    (void)state;
    assert_int_equal(weft_dist_open(ctx, NULL, &d), 0);
    assert_int_equal(weft_data_new(ctx, &data), 0);
    s = weft_ds_tensors(data, 1, &col, &rows);
    assert_int_equal(weft_dist_dataset(d, data, s, &mine), 0);
    assert_int_equal(weft_iter_new(data, mine, NULL, &it), 0);
    while (assert_int_equal(weft_iter_next(it, &b), 0), b) {
        n++;
        weft_batch_free(b);
    }
    assert_int_equal(n, 4);
    weft_iter_free(it);
    weft_data_free(data);
    weft_dist_free(d);
}

static int set_up(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 1), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_names_what_can_be_opened),
        cmocka_unit_test(a_name_that_is_wrong_is_answered_with_the_nearest),
        cmocka_unit_test(a_model_is_in_one_scope),
        cmocka_unit_test(each_replica_of_the_process_runs_once),
        cmocka_unit_test(values_are_reduced_and_types_checked),
        cmocka_unit_test(values_of_several_replicas_are_added),
        cmocka_unit_test(gradients_are_reduced),
        cmocka_unit_test(a_dataset_is_shared_out),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
