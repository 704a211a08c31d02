/* Sharing out: plans cover everything once, whatever the numbers; training and validation data
 * do not meet. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

static weft_ctx *ctx;

/* Parts follow each other and are the whole. */
static void expect_whole(const weft_share *p, int n_workers, int64_t n_samples, int64_t n_units)
{
    int64_t sample = 0, unit = 0;

    for (int w = 0; w < n_workers; w++) {
        assert_int_equal(p[w].first, sample);
        assert_int_equal(p[w].first_unit, unit);
        assert_true(p[w].n >= 0 && p[w].n_units >= 0);
        sample += p[w].n;
        unit += p[w].n_units;
    }
    assert_int_equal(sample, n_samples);
    assert_int_equal(unit, n_units);
}

static void equal_parts_differ_by_at_most_one(void **state)
{
    weft_share p[64];

    (void)state;
    for (int64_t n = 0; n < 200; n += n < 70 ? 1 : 13)
        for (int w = 1; w <= 64; w++) {
            int64_t low = INT64_MAX, high = 0;

            assert_int_equal(weft_split_plan(n, w, NULL, p), WEFT_OK);
            expect_whole(p, w, n, n);
            for (int i = 0; i < w; i++) {
                low = p[i].n < low ? p[i].n : low;
                high = p[i].n > high ? p[i].n : high;
            }
            assert_true(high - low <= 1);
        }
}

static void weighted_parts_are_within_one_of_their_share(void **state)
{
    double weights[8] = {1, 2.5, 0, 4, 0.1, 1, 1, 3};
    weft_share p[8];

    (void)state;
    for (int64_t n = 0; n < 1000; n += 7) {
        assert_int_equal(weft_split_plan(n, 8, WEFT_OPTS(weft_split_opts, .weights = weights), p),
                         WEFT_OK);
        expect_whole(p, 8, n, n);
        for (int w = 0; w < 8; w++)
            assert_true(fabs((double)p[w].n - (double)n * weights[w] / 12.6) < 1 + 1e-9);
        assert_int_equal(p[2].n, 0);
    }
    /* Large numbers, and equal weights that are given. */
    assert_int_equal(weft_split_plan((int64_t)1 << 52, 3,
                                     WEFT_OPTS(weft_split_opts, .weights = (double[]){7, 7, 7}), p),
                     WEFT_OK);
    expect_whole(p, 3, (int64_t)1 << 52, (int64_t)1 << 52);
    assert_true(p[0].n - p[2].n <= 1 && p[2].n - p[0].n <= 1);
    weights[0] = -1;
    assert_int_equal(weft_split_plan(5, 8, WEFT_OPTS(weft_split_opts, .weights = weights), p),
                     WEFT_EINVAL);
    assert_int_equal(
        weft_split_plan(5, 2, WEFT_OPTS(weft_split_opts, .weights = (double[]){0, 0}), p),
        WEFT_EINVAL);
}

static void batches_are_never_cut(void **state)
{
    weft_share p[7];

    (void)state;
    for (int64_t n = 0; n < 300; n++) {
        assert_int_equal(
            weft_split_plan(n, 7, WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_BATCHES, .batch = 16),
                            p),
            WEFT_OK);
        expect_whole(p, 7, n, (n + 15) / 16);
        for (int w = 0; w < 7; w++)
            assert_true(p[w].first % 16 == 0 || p[w].n == 0);
    }
}

static void files_go_to_one_worker_each(void **state)
{
    int64_t files[5] = {100, 10, 10, 0, 80}, none[1] = {0};
    weft_share p[8];

    (void)state;
    assert_int_equal(weft_split_plan(200, 2,
                                     WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_FILES,
                                               .n_files = 5, .file_samples = files),
                                     p),
                     WEFT_OK);
    expect_whole(p, 2, 200, 5);
    assert_int_equal(p[0].n, 100);
    assert_int_equal(p[0].n_units, 1);
    /* More workers than files; no files; files without samples. */
    assert_int_equal(weft_split_plan(200, 8,
                                     WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_FILES,
                                               .n_files = 5, .file_samples = files),
                                     p),
                     WEFT_OK);
    expect_whole(p, 8, 200, 5);
    assert_int_equal(weft_split_plan(0, 3, WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_FILES), p),
                     WEFT_OK);
    expect_whole(p, 3, 0, 0);
    assert_int_equal(weft_split_plan(0, 3,
                                     WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_FILES,
                                               .n_files = 1, .file_samples = none),
                                     p),
                     WEFT_OK);
    expect_whole(p, 3, 0, 1);
    assert_int_equal(weft_split_plan(199, 2,
                                     WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_FILES,
                                               .n_files = 5, .file_samples = files),
                                     p),
                     WEFT_EINVAL);
}

static void a_plan_prints_as_a_table_and_points_into_memory(void **state)
{
    int64_t rows[10][2] = {{0}};
    weft_tensor all = weft_view(WEFT_I64, rows, 2, (int64_t[]){10, 2}), part;
    weft_share p[3];
    char *text;

    (void)state;
    assert_int_equal(
        weft_split_plan(10, 3, WEFT_OPTS(weft_split_opts, .by = WEFT_SPLIT_BATCHES, .batch = 4), p),
        WEFT_OK);
    assert_int_equal(weft_split_text(ctx, 3, p, WEFT_SPLIT_BATCHES, &text), WEFT_OK);
    assert_string_equal(text, "worker          first        samples   share        batches\n"
                              "     0              0              4  40.00%              1 (0..0)\n"
                              "     1              4              4  40.00%              1 (1..1)\n"
                              "     2              8              2  20.00%              1 (2..2)\n"
                              "   all                            10\n");
    weft_text_free(ctx, text);
    assert_int_equal(weft_share_view(&all, &p[1], &part), WEFT_OK);
    assert_ptr_equal(part.data, rows[4]);
    assert_int_equal(part.dim[0], 4);
    p[1].n = 7;
    assert_int_equal(weft_share_view(&all, &p[1], &part), WEFT_ERANGE);
}

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    (void)arg;
    *end = id == 1000;
    if (!*end)
        *(int64_t *)s->col[0].data = id;
    return WEFT_OK;
}

static int64_t count_into(weft_data *d, weft_ds s, int *seen)
{
    weft_iter *it;
    weft_batch *b;
    int64_t n = 0;

    if (weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .epoch = n % 2), &it))
        fail_msg("%s", weft_error());
    while (!weft_iter_next(it, &b) && b) {
        seen[*(const int64_t *)b->col[0].data]++;
        n++;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    return n;
}

static void training_and_validation_data_share_nothing(void **state)
{
    weft_column col = {.name = "value", .dtype = WEFT_I64};

    (void)state;
    for (int i = 0; i < 3; i++) {
        weft_data *d;
        weft_ds s, rest, held;
        int seen[1000] = {0};
        int64_t n, m;

        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        s = i == 2 ? weft_ds_stream(d, 1, &col, next, NULL) : weft_ds_range(d, 0, 1000, 1);
        assert_int_equal(weft_ds_holdout(d, s, 0.2,
                                         WEFT_OPTS(weft_holdout_opts, .hashed = i > 0, .seed = 5),
                                         &rest, &held),
                         WEFT_OK);
        n = count_into(d, rest, seen);
        m = count_into(d, held, seen);
        assert_int_equal(n + m, 1000);
        for (int k = 0; k < 1000; k++)
            assert_int_equal(seen[k], 1);
        if (i < 2)
            assert_int_equal(m, 200);
        else
            assert_true(m > 150 && m < 250);
        assert_int_equal(weft_ds_addressable(d, held), i < 2);
        weft_data_free(d);
    }
}

/* As Keras does: int(math.floor(n * (1.0 - f))) samples are trained on, in Python's arithmetic. */
static void the_training_part_has_as_many_samples_as_in_keras(void **state)
{
    static const struct {
        int64_t n;
        double fraction;
        int64_t n_rest;
    } table[] = {
        {0, 0.2, 0},
        {1, 0.2, 0},
        {2, 0.25, 1},
        {3, 0.15, 2},
        {9, 0.01, 8},
        {9, 0.05, 8},
        {9, 0.45, 4},
        {10, 0.1, 9},
        {10, 0.2, 8},
        {10, 0.3, 7},
        {10, 0.9, 0}, /* 1 - 0.9 is a little below 0.1 */
        {10, 1, 0},
        {13, 0.25, 9},
        {29, 0.05, 27},
        {29, 0.15, 24},
        {29, 0.25, 21},
        {29, 0.8, 5},
        {100, 0.8, 19}, /* … 0.8 below 0.2 */
        {101, 0.15, 85},
        {101, 0.25, 75},
        {150, 0.3, 105},
        {569, 0.15, 483},
        {600, 0, 600},
        {1000, 1.0 / 3, 666},
        {1000, 0.33, 669},
        {60000, 0.1, 54000},
        {1000003, 1.0 / 3, 666668},
        {9007199254740991, 0.33, 6034823500676463},
    };

    (void)state;
    for (int i = 0; i < (int)(sizeof table / sizeof *table); i++) {
        for (int hashed = 0; hashed < 2; hashed++) {
            weft_data *d;
            weft_ds s, rest, held;

            assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
            s = weft_ds_range(d, 0, table[i].n, 1);
            assert_int_equal(weft_ds_holdout(d, s, table[i].fraction,
                                             WEFT_OPTS(weft_holdout_opts, .hashed = hashed), &rest,
                                             &held),
                             WEFT_OK);
            assert_int_equal(weft_ds_count(d, rest), table[i].n_rest);
            assert_int_equal(weft_ds_count(d, held), table[i].n - table[i].n_rest);
            weft_data_free(d);
        }
    }
}

static void workers_read_their_parts(void **state)
{
    weft_data *d;
    weft_ds s;
    weft_share p[4];
    int seen[103] = {0};

    (void)state;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_range(d, 0, 103, 1);
    assert_int_equal(weft_split_plan(103, 4, NULL, p), WEFT_OK);
    for (int w = 0; w < 4; w++)
        assert_int_equal(count_into(d, weft_ds_share(d, s, &p[w]), seen), p[w].n);
    for (int k = 0; k < 103; k++)
        assert_int_equal(seen[k], 1);
    weft_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_parts_differ_by_at_most_one),
        cmocka_unit_test(weighted_parts_are_within_one_of_their_share),
        cmocka_unit_test(batches_are_never_cut),
        cmocka_unit_test(files_go_to_one_worker_each),
        cmocka_unit_test(a_plan_prints_as_a_table_and_points_into_memory),
        cmocka_unit_test(training_and_validation_data_share_nothing),
        cmocka_unit_test(the_training_part_has_as_many_samples_as_in_keras),
        cmocka_unit_test(workers_read_their_parts),
    };
    int failed;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_ctx_free(ctx);
    return failed;
}
