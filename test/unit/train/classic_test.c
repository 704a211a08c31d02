/* classic_test.c - replicas_to_aggregate and total_num_replicas: what they mean, when they are
 * refused, and that a step of so many gradients has the bits of so many shards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "train/job/job.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { BATCH = 12, WIDTH = 20 };

static void words_become_shards_and_backup(void **state)
{
    static const struct {
        int64_t aggregate, total, workers, shards;
        bool backup;
    } rows[] = {{0, 0, 3, 0, false}, {4, 0, 4, 4, false}, {4, 6, 6, 4, true},
                {8, 2, 2, 8, false}, {0, 5, 5, 5, false}, {2, 0, 3, 2, true}};
    int64_t shards;
    bool backup;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(
            wf_classic_words(rows[i].aggregate, rows[i].total, rows[i].workers, &shards, &backup),
            WEFT_OK);
        assert_int_equal(shards, rows[i].shards);
        assert_int_equal(backup, rows[i].backup);
    }
    assert_int_equal(wf_classic_words(4, 6, 5, &shards, &backup), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "total_num_replicas is 6, but there are 5 workers"));
    assert_int_equal(wf_classic_words(-1, 0, 5, &shards, &backup), WEFT_EINVAL);
}

static char said[512]; /* the error of the last training */

/* The weights after a few steps. */
static weft_status train(const weft_ps_opts *ps, int shards, float out[WIDTH * 10])
{
    float x[BATCH * WIDTH] = {0};
    int32_t y[BATCH] = {0};
    weft_tensor tx = weft_view(WEFT_F32, x, 2, (int64_t[]){BATCH, WIDTH}), got;
    weft_tensor ty = weft_view(WEFT_I32, y, 1, (int64_t[]){BATCH});
    weft_dist *d = NULL;
    weft_trainer *t = NULL;
    weft_model *m;
    weft_ctx *ctx;
    weft_status st;

    for (int i = 0; i < BATCH * WIDTH; i++)
        x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (int i = 0; i < BATCH; i++)
        y[i] = i % 10;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &ctx),
                     WEFT_OK);
    assert_int_equal(weft_model_new(ctx, NULL, &m), WEFT_OK);
    weft_model_output(m, weft_apply(m, "Dense", "units=10 name=a",
                                    weft_input(m, "x", WEFT_F32, 1, (int64_t[]){WIDTH})));
    st = ps ? weft_dist_open_ps(ctx, ps, &d) : WEFT_OK;
    if (!st && ps)
        st = weft_dist_scope(d, m);
    if (!st)
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = "adam",
                                    .loss = "sparse_categorical_crossentropy from_logits=true",
                                    .shards = shards),
                          &t);
    for (int i = 0; i < 4 && !st; i++)
        st = weft_train_on_batch(t, &tx, &ty, NULL, NULL);
    snprintf(said, sizeof said, "%s", weft_error());
    if (!st) {
        assert_int_equal(weft_trainer_weight(t, "a/kernel", &got), WEFT_OK);
        memcpy(out, got.data, WIDTH * 10 * sizeof *out);
    }
    weft_trainer_free(t);
    weft_model_free(m);
    weft_dist_free(d);
    weft_ctx_free(ctx);
    return st;
}

static void a_step_has_as_many_shards_as_gradients(void **state)
{
    float a[WIDTH * 10], b[WIDTH * 10];

    (void)state;
    assert_int_equal(train(NULL, 4, a), WEFT_OK);
    assert_int_equal(train(WEFT_OPTS(weft_ps_opts, .servers = 2, .replicas_to_aggregate = 4,
                                     .total_num_replicas = 1, .backup = 2),
                           0, b),
                     WEFT_OK);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(train(WEFT_OPTS(weft_ps_opts, .replicas_to_aggregate = 4), 3, b), WEFT_EINVAL);
    assert_non_null(strstr(said, "shards is 3, but replicas_to_aggregate is 4"));
    assert_int_equal(train(WEFT_OPTS(weft_ps_opts, .total_num_replicas = 2), 0, b), WEFT_EINVAL);
    assert_non_null(strstr(said, "total_num_replicas is 2, but there are 1 workers"));
    assert_int_equal(train(WEFT_OPTS(weft_ps_opts, .backup = -1), 0, b), WEFT_EINVAL);
}

static weft_status parse(weft_ctx *ctx, const char *text, weft_job **job)
{
    *job = NULL;
    return weft_job_parse(ctx, "job.yaml", text, (int64_t)strlen(text), 0, NULL, job);
}

#define HEAD "data: {train: x.csv}\nmodel:\n  - Input: {shape: [1]}\n  - Dense: {units: 1}\n"

static void jobs_know_the_words(void **state)
{
    weft_ctx *ctx;
    weft_job *job;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    if (parse(ctx,
              HEAD "train: {loss: mse, strategy: ps, replicas_to_aggregate: 4, "
                   "total_num_replicas: 6}\ncluster: {placement: greedy}\n",
              &job))
        fail_msg("%s", weft_error());
    assert_int_equal(job->shards, 4);
    assert_int_equal(job->cluster_workers, 6);
    assert_int_equal(job->cluster_backup, 1);
    assert_string_equal(job->cluster_placement, "greedy");
    weft_job_free(job);
    assert_int_equal(parse(ctx, HEAD "train: {loss: mse, replicas_to_aggregate: 4}\n", &job),
                     WEFT_EINVAL);
    if (!strstr(weft_error(), "job.yaml:5:"))
        fail_msg("%s", weft_error());
    assert_non_null(strstr(weft_error(), "job.yaml:5:43: replicas_to_aggregate and "
                                         "total_num_replicas need strategy: ps, not local"));
    assert_int_equal(parse(ctx,
                           HEAD "train: {loss: mse, strategy: ps, total_num_replicas: 6}\n"
                                "cluster: {workers: 4}\n",
                           &job),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "total_num_replicas is 6, but there are 4 workers"));
    assert_int_equal(parse(ctx,
                           HEAD "train: {loss: mse, strategy: ps, shards: 3, "
                                "replicas_to_aggregate: 4}\n",
                           &job),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "but train.shards is 3"));
    assert_null(job);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_shards_and_backup),
        cmocka_unit_test(a_step_has_as_many_shards_as_gradients),
        cmocka_unit_test(jobs_know_the_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
