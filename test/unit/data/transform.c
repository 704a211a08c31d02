/* Transformations: what each promises. That they resume and do not depend on threads is
 * torture.c's business. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/weft.h"

static weft_ctx *ctx;
static char folder[] = "transform-XXXXXX";
static char logged[4096];

static void take_log(void *arg, int level, const char *line)
{
    size_t n = strlen(logged);

    (void)arg;
    (void)level;
    snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

/* ---- sources --------------------------------------------------------------------------------- */

static int n_calls; /* of the callbacks: how often elements were made */

static weft_status list_of(int64_t id, weft_sample *s)
{
    int64_t n = id % 5;

    *(int64_t *)s->col[0].data = id;
    if (weft_sample_shape(s, 1, 1, &n))
        return WEFT_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)s->col[1].data)[i] = (int32_t)(id * 10 + i);
    __atomic_add_fetch(&n_calls, 1, __ATOMIC_RELAXED);
    return WEFT_OK;
}

static weft_status get(void *arg, int64_t id, weft_sample *s)
{
    (void)arg;
    return list_of(id, s);
}

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    *end = id == (intptr_t)arg;
    return *end ? WEFT_OK : list_of(id, s);
}

static const weft_column columns[2] = {{.name = "k", .dtype = WEFT_I64},
                                       {.name = "v", .dtype = WEFT_I32, .rank = 1, .dim = {-1}}};

static weft_ds stream(weft_data *d, int64_t n)
{
    return weft_ds_stream(d, 2, columns, next, (void *)(intptr_t)n);
}

static weft_ds random_access(weft_data *d, int64_t n)
{
    return weft_ds_get(d, 2, columns, n, get, NULL);
}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_data *begin(void)
{
    weft_data *d;

    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    logged[0] = 0;
    return d;
}

static weft_iter *iterate(weft_data *d, weft_ds s, int threads)
{
    weft_iter *it = NULL;

    if (weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO),
                      &it))
        fail_msg("%s", weft_error());
    return it;
}

/* The first column of all elements that are left, flat. */
static int64_t keys(weft_iter *it, int64_t *out)
{
    weft_batch *b;
    int64_t n = 0;

    for (;;) {
        if (weft_iter_next(it, &b))
            fail_msg("%s", weft_error());
        if (!b)
            return n;
        for (int64_t i = 0; i < weft_tensor_count(&b->col[0]); i++)
            out[n++] = ((const int64_t *)b->col[0].data)[i];
        weft_batch_free(b);
    }
}

static int64_t keys_of(weft_data *d, weft_ds s, int64_t *out)
{
    weft_iter *it = iterate(d, s, 2);
    int64_t n = keys(it, out);

    weft_iter_free(it);
    return n;
}

static void expect(weft_data *d, weft_ds s, int64_t n, const int64_t *want)
{
    int64_t got[1000], m = keys_of(d, s, got);

    assert_int_equal(m, n);
    assert_memory_equal(got, want, (size_t)n * 8);
}
#define EXPECT(d, s, ...) \
    expect(d, s, (int64_t)(sizeof(int64_t[]){__VA_ARGS__} / 8), (int64_t[]){__VA_ARGS__})

/* ---- shuffle, samples ------------------------------------------------------------------------ */

static void expect_permutation(const int64_t *k, int64_t n)
{
    bool seen[1000] = {false};

    for (int64_t i = 0; i < n; i++) {
        assert_true(k[i] >= 0 && k[i] < n && !seen[k[i]]);
        seen[k[i]] = true;
    }
}

static void a_shuffle_buffer_loses_nothing_and_moves_elements_forward_by_less_than_it(void **state)
{
    int64_t k[3][500];

    (void)state;
    for (int i = 0; i < 3; i++) {
        weft_data *d = begin();
        weft_ds s = i == 1 ? random_access(d, 500) : stream(d, 500);
        weft_iter *it;

        s = weft_ds_shuffle(d, s, 50, WEFT_OPTS(weft_shuffle_opts, .seed = 3));
        assert_false(weft_ds_addressable(d, s));
        assert_int_equal(weft_ds_count(d, s), i == 1 ? 500 : WEFT_UNKNOWN);
        it = iterate(d, s, 2);
        if (i == 2)
            assert_int_equal(weft_iter_reset(it, 1), WEFT_OK);
        assert_int_equal(keys(it, k[i]), 500);
        expect_permutation(k[i], 500);
        for (int64_t j = 0; j < 500; j++)
            assert_true(k[i][j] < j + 50);
        weft_iter_free(it);
        weft_data_free(d);
    }
    assert_memory_equal(k[0], k[1], sizeof k[0]); /* by number or by element: the same draws */
    assert_true(memcmp(k[0], k[2], sizeof k[0]) != 0);
}

static void a_buffer_that_does_not_fit_is_refused(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_shuffle(d, stream(d, 500000), 100000, NULL);
    weft_iter *it;
    weft_batch *b;

    (void)state;
    assert_int_equal(
        weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO, .memory = 2 << 20),
                      &it),
        WEFT_OK);
    assert_int_equal(weft_iter_next(it, &b), WEFT_ELIMIT);
    assert_non_null(strstr(weft_error(), "buffer of 100000 elements"));
    assert_non_null(strstr(weft_error(), "weft_iter_opts.memory"));
    weft_iter_free(it);
    weft_data_free(d);
}

static void samples_without_replacement_are_different_and_weights_count(void **state)
{
    weft_data *d = begin();
    double weights[10] = {0, 1, 0, 3, 0, 0, 0, 0, 0, 0};
    int64_t k[1000], n, threes = 0;
    weft_ds s;

    (void)state;
    n = keys_of(d, weft_ds_sample(d, random_access(d, 100), 100, NULL), k);
    assert_int_equal(n, 100);
    expect_permutation(k, 100);
    s = weft_ds_sample(d, random_access(d, 10), 1000,
                       WEFT_OPTS(weft_sample_opts, .replacement = true, .weights = weights));
    assert_true(weft_ds_addressable(d, s));
    n = keys_of(d, s, k);
    assert_int_equal(n, 1000);
    for (int64_t i = 0; i < n; i++) {
        assert_true(k[i] == 1 || k[i] == 3);
        threes += k[i] == 3;
    }
    assert_true(threes > 680 && threes < 820);
    weft_ds_sample(d, random_access(d, 10), 11, NULL);
    assert_int_equal(weft_data_status(d), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "without replacement"));
    weft_data_free(d);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void elements_are_kept_by_the_number_in_a_column(void **state)
{
    weft_data *d = begin();
    const double three = 3, five = 5;
    const weft_where_opts few = {.size = sizeof few, .n_values = 3, .values = (double[]){8, 1, 4}};
    weft_ds a = random_access(d, 10), s = stream(d, 10), w;
    int64_t k[2][200];
    weft_iter *it;

    (void)state;
    w = weft_ds_where(d, a, "k", &few);
    assert_true(weft_ds_addressable(d, w));
    assert_int_equal(weft_ds_count(d, w), 3);
    EXPECT(d, w, 1, 4, 8);
    EXPECT(d, weft_ds_where(d, s, "k", &few), 1, 4, 8);
    assert_false(weft_ds_addressable(d, weft_ds_where(d, s, "k", &few)));
    w = weft_ds_where(d, a, "k", WEFT_OPTS(weft_where_opts, .min = &three, .max = &five));
    EXPECT(d, w, 3, 4, 5);
    w = weft_ds_where(d, a, "k",
                      WEFT_OPTS(weft_where_opts, .min = &three, .max = &five, .others = true));
    EXPECT(d, w, 0, 1, 2, 6, 7, 8, 9);
    EXPECT(d, weft_ds_where(d, w, "k", &few), 1, 8);
    w = weft_ds_where(d, a, "k",
                      WEFT_OPTS(weft_where_opts, .n_values = 1, .values = &(double){99}));
    assert_int_equal(weft_ds_count(d, w), 0);

    /* after an order that changes each epoch they are found as they come */
    w = weft_ds_where(d, weft_ds_shuffle_all(d, random_access(d, 100), NULL), "k",
                      WEFT_OPTS(weft_where_opts, .max = &five));
    it = iterate(d, w, 1);
    for (int e = 0; e < 2; e++) {
        assert_int_equal(weft_iter_reset(it, e), WEFT_OK);
        assert_int_equal(keys(it, k[e]), 6);
        expect_permutation(k[e], 6);
    }
    weft_iter_free(it);
    /* and those found before are shuffled whole */
    w = weft_ds_where(d, random_access(d, 400), "k",
                      WEFT_OPTS(weft_where_opts, .max = &(double){99}));
    assert_int_equal(keys_of(d, weft_ds_shuffle_all(d, w, NULL), k[0]), 100);
    expect_permutation(k[0], 100);
    weft_data_free(d);
}

static void what_cannot_be_compared_is_refused_by_where(void **state)
{
    weft_data *d = begin();

    (void)state;
    weft_ds_where(d, random_access(d, 10), "q", WEFT_OPTS(weft_where_opts, .min = &(double){1}));
    assert_int_equal(weft_data_status(d), WEFT_ENOENT);
    weft_data_free(d);
    d = begin();
    weft_ds_where(d, random_access(d, 10), "k", NULL);
    assert_int_equal(weft_data_status(d), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "values, min or max"));
    weft_data_free(d);
    d = begin(); /* lists of 0 to 4 numbers */
    weft_ds_where(d, random_access(d, 10), "v", WEFT_OPTS(weft_where_opts, .min = &(double){1}));
    assert_int_equal(weft_data_status(d), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "holds 0 numbers, not one"));
    weft_data_free(d);
}

static void padded_batches_fill_up_to_the_longest_or_a_length(void **state)
{
    for (int i = 0; i < 2; i++) {
        weft_data *d = begin();
        weft_pad_column pad = {.column = "v", .value = -1};
        weft_ds s = i ? stream(d, 7) : random_access(d, 7);
        weft_iter *it;
        weft_batch *b;
        const int32_t *v;

        (void)state;
        s = weft_ds_padded_batch(
            d, weft_ds_skip(d, s, 1), 3,
            WEFT_OPTS(weft_padded_batch_opts, .n_pads = 1, .pads = &pad, .lengths = true));
        assert_int_equal(weft_ds_addressable(d, s), !i);
        it = iterate(d, s, 1);
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        assert_int_equal(b->n, 3);
        assert_int_equal(b->col[1].dim[0], 3);
        assert_int_equal(b->col[1].dim[1], 3); /* 1, 2, 3 numbers */
        v = b->col[1].data;
        assert_memory_equal(v, ((int32_t[]){10, -1, -1, 20, 21, -1, 30, 31, 32}), 36);
        assert_string_equal(b->column[2].name, "v:length");
        assert_memory_equal(b->col[2].data, ((int64_t[]){1, 2, 3}), 24);
        weft_batch_free(b);
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        assert_memory_equal(b->col[2].data, ((int64_t[]){4, 0, 1}), 24);
        weft_batch_free(b);
        weft_iter_free(it);
        pad.length[0] = 3;
        s = weft_ds_padded_batch(d, random_access(d, 5), 5,
                                 WEFT_OPTS(weft_padded_batch_opts, .n_pads = 1, .pads = &pad));
        it = iterate(d, s, 0);
        assert_int_equal(weft_iter_next(it, &b), WEFT_ESHAPE);
        assert_non_null(strstr(weft_error(),
                               "sample 4: column 'v': axis 0 has size 4, more than the padded 3"));
        weft_iter_free(it);
        weft_data_free(d);
    }
}

static void buckets_hold_elements_of_like_length(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_bucket_by_length(d, stream(d, 23), "v", 2, (int64_t[]){1, 3},
                                         (int64_t[]){2, 4, 3}, NULL);
    weft_iter *it = iterate(d, s, 2);
    weft_batch *b;
    bool seen[23] = {false};
    int n = 0;

    (void)state;
    for (;;) {
        int64_t low = 9, high = -1;

        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        if (!b)
            break;
        for (int64_t i = 0; i < b->n; i++) {
            int64_t k = ((const int64_t *)b->col[0].data)[i], len = k % 5;

            assert_false(seen[k]);
            seen[k] = true;
            n++;
            low = len < low ? len : low;
            high = len > high ? len : high;
        }
        assert_int_equal(b->col[1].dim[1], high);
        assert_true(high == 0 || (low >= 1 && high < 3) || low >= 3);
        assert_true(b->n <= (high == 0 ? 2 : high < 3 ? 4 : 3));
        weft_batch_free(b);
    }
    assert_int_equal(n, 23);
    weft_iter_free(it);
    weft_data_free(d);
}

static void batches_come_apart_again(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_batch(d, weft_ds_range(d, 0, 10, 1), 4, NULL);
    weft_ds t = weft_ds_batch(d, weft_ds_range(d, 0, 10, 1), 3,
                              WEFT_OPTS(weft_batch_opts, .drop_remainder = true));

    (void)state;
    EXPECT(d, weft_ds_unbatch(d, s), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9);
    assert_true(weft_ds_addressable(d, weft_ds_unbatch(d, t)));
    assert_int_equal(weft_ds_count(d, weft_ds_unbatch(d, t)), 9);
    EXPECT(d, weft_ds_skip(d, weft_ds_unbatch(d, t), 2), 2, 3, 4, 5, 6, 7, 8);
    weft_ds_unbatch(d, weft_ds_range(d, 0, 10, 1));
    assert_int_equal(weft_data_status(d), WEFT_ESHAPE);
    weft_data_free(d);
}

static void windows_step_and_stride(void **state)
{
    weft_data *d = begin();
    weft_ds s[2] = {weft_ds_range(d, 0, 7, 1), weft_ds_select(d, stream(d, 7), "k")};

    (void)state;
    for (int i = 0; i < 2; i++) {
        EXPECT(d, weft_ds_window(d, s[i], 3, NULL), 0, 1, 2, 3, 4, 5, 6);
        EXPECT(d,
               weft_ds_window(d, s[i], 3,
                              WEFT_OPTS(weft_window_opts, .shift = 2, .drop_remainder = true)),
               0, 1, 2, 2, 3, 4, 4, 5, 6);
        EXPECT(d, weft_ds_window(d, s[i], 2, WEFT_OPTS(weft_window_opts, .shift = 1, .stride = 3)),
               0, 3, 1, 4, 2, 5, 3, 6, 4, 5, 6);
        EXPECT(d, weft_ds_window(d, s[i], 2, WEFT_OPTS(weft_window_opts, .shift = 5)), 0, 1, 5, 6);
    }
    assert_int_equal(weft_ds_count(d, weft_ds_window(d, s[0], 3, NULL)), 3);
    weft_data_free(d);
}

/* ---- several datasets ------------------------------------------------------------------------ */

static weft_status count_to(void *arg, const weft_sample *e, weft_data *d, weft_ds *out)
{
    int64_t k = *(const int64_t *)e->col[0].data;

    (void)arg;
    *out = weft_ds_range(d, 10 * k, 10 * k + k, 1);
    return WEFT_OK;
}

static weft_status wrong_columns(void *arg, const weft_sample *e, weft_data *d, weft_ds *out)
{
    (void)arg;
    (void)e;
    *out = weft_ds_cast(d, weft_ds_range(d, 0, 3, 1), "value", WEFT_F32);
    return WEFT_OK;
}

static void datasets_of_datasets_follow_each_other_or_take_turns(void **state)
{
    weft_data *d = begin();
    weft_column col = {.name = "value", .dtype = WEFT_I64};
    weft_ds s = weft_ds_range(d, 0, 5, 1), bad;
    weft_iter *it;
    weft_batch *b;

    (void)state;
    EXPECT(d, weft_ds_flat_map(d, s, 1, &col, count_to, NULL), 10, 20, 21, 30, 31, 32, 40, 41, 42,
           43);
    EXPECT(d,
           weft_ds_interleave(d, s, 1, &col, count_to, NULL,
                              WEFT_OPTS(weft_interleave_opts, .cycle_length = 2)),
           10, 20, 30, 21, 31, 40, 32, 41, 42, 43);
    EXPECT(
        d,
        weft_ds_interleave(d, s, 1, &col, count_to, NULL,
                           WEFT_OPTS(weft_interleave_opts, .cycle_length = 2, .block_length = 2)),
        10, 20, 21, 30, 31, 40, 41, 32, 42, 43);
    bad = weft_ds_flat_map(d, s, 1, &col, wrong_columns, NULL);
    it = iterate(d, bad, 0);
    assert_int_equal(weft_iter_next(it, &b), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "column 'value' of the dataset is f32"));
    weft_iter_free(it);
    weft_data_free(d);
}

static void mixtures_go_round_or_follow_weights(void **state)
{
    weft_data *d = begin();
    weft_ds s[3] = {weft_ds_range(d, 0, 3, 1), weft_ds_range(d, 10, 15, 1),
                    weft_ds_range(d, 20, 21, 1)};
    weft_ds big[2] = {weft_ds_range(d, 0, 100000, 1), weft_ds_range(d, -1000000, 0, 1)};
    int64_t k[1000], n, low = 0;

    (void)state;
    EXPECT(d, weft_ds_interleave_n(d, 3, s, 0), 0, 10, 20, 1, 11, 2, 12, 13, 14);
    EXPECT(d, weft_ds_interleave_n(d, 3, s, 2), 0, 1, 10, 11, 20, 2, 12, 13, 14);
    n = keys_of(d, weft_ds_take(d, weft_ds_sample_from(d, 2, big, (double[]){3, 1}, NULL), 1000),
                k);
    assert_int_equal(n, 1000);
    for (int64_t i = 0; i < n; i++)
        low += k[i] < 0;
    assert_true(low > 190 && low < 310);
    n = keys_of(d, weft_ds_sample_from(d, 3, s, NULL, NULL), k);
    assert_int_equal(n, 9); /* all of all */
    n = keys_of(d,
                weft_ds_sample_from(d, 3, s, (double[]){1, 0, 0},
                                    WEFT_OPTS(weft_sample_from_opts, .stop_at_first_end = true)),
                k);
    assert_int_equal(n, 3);
    weft_data_free(d);
}

/* ---- caches ---------------------------------------------------------------------------------- */

static void two_passes_make_each_element_once(weft_data *d, weft_ds s)
{
    int64_t a[200], b[200];
    weft_iter *it;

    n_calls = 0;
    it = iterate(d, s, 2);
    assert_int_equal(keys(it, a), 200);
    assert_int_equal(weft_iter_reset(it, 1), WEFT_OK);
    assert_int_equal(keys(it, b), 200);
    weft_iter_free(it);
    it = iterate(d, s, 2); /* another iterator of the pipeline finds it too */
    assert_int_equal(keys(it, b), 200);
    weft_iter_free(it);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(n_calls, 200);
}

static void a_cache_makes_each_element_once(void **state)
{
    static const weft_cache_in in[] = {WEFT_CACHE_MEMORY, WEFT_CACHE_FILE, WEFT_CACHE_AUTO};
    char path[64];

    (void)state;
    snprintf(path, sizeof path, "%s/cache", folder);
    for (int i = 0; i < 6; i++) {
        weft_data *d = begin();
        weft_ds s = i < 3 ? random_access(d, 200) : stream(d, 200);
        struct stat there;

        s = weft_ds_cache(d, s, WEFT_OPTS(weft_cache_opts, .in = in[i % 3], .path = path));
        assert_int_equal(weft_ds_addressable(d, s), i < 3);
        two_passes_make_each_element_once(d, s);
        assert_int_equal(stat(path, &there), i % 3 == 1 ? 0 : -1);
        weft_data_free(d);
        assert_int_equal(stat(path, &there), -1); /* it goes with the pipeline */
    }
}

static void a_shuffle_behind_a_cache_changes_each_epoch(void **state)
{
    weft_data *d = begin();
    int64_t a[200], b[200];
    weft_ds s = weft_ds_shuffle_all(d, weft_ds_cache(d, random_access(d, 200), NULL), NULL);
    weft_iter *it;

    (void)state;
    n_calls = 0;
    it = iterate(d, s, 2);
    assert_int_equal(keys(it, a), 200);
    assert_int_equal(weft_iter_reset(it, 1), WEFT_OK);
    assert_int_equal(keys(it, b), 200);
    assert_true(memcmp(a, b, sizeof a) != 0);
    assert_int_equal(n_calls, 200);
    weft_iter_free(it);
    weft_data_free(d);
}

static void a_partial_pass_makes_no_cache(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_cache(d, stream(d, 200), NULL);
    weft_iter *it = iterate(d, s, 0);
    int64_t k[200];
    weft_batch *b;

    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        weft_batch_free(b);
    }
    n_calls = 0;
    assert_int_equal(weft_iter_reset(it, 1), WEFT_OK);
    assert_int_equal(keys(it, k), 200);
    assert_int_equal(n_calls, 200);
    assert_int_equal(weft_iter_reset(it, 2), WEFT_OK);
    assert_int_equal(keys(it, k), 200);
    assert_int_equal(n_calls, 200);
    weft_iter_free(it);
    weft_data_free(d);
}

static void a_memory_cache_keeps_to_the_memory_and_auto_does_without(void **state)
{
    static const weft_cache_in in[] = {WEFT_CACHE_MEMORY, WEFT_CACHE_AUTO};

    (void)state;
    for (int i = 0; i < 4; i++) {
        weft_data *d = begin();
        weft_ds s = i < 2 ? random_access(d, 50000) : stream(d, 50000);
        weft_iter *it;
        weft_batch *b;
        weft_status st = WEFT_OK;
        int64_t n = 0;

        s = weft_ds_cache(d, s, WEFT_OPTS(weft_cache_opts, .in = in[i % 2]));
        assert_int_equal(
            weft_iter_new(d, weft_ds_select(d, s, "k"),
                          WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO, .memory = 1 << 20), &it),
            WEFT_OK);
        while (!st && !(st = weft_iter_next(it, &b)) && b) {
            weft_batch_free(b);
            n++;
        }
        if (i % 2) {
            assert_int_equal(st, WEFT_OK);
            assert_int_equal(n, 50000);
        } else {
            assert_int_equal(st, WEFT_ELIMIT);
            assert_non_null(strstr(weft_error(), "cache"));
        }
        weft_iter_free(it);
        weft_data_free(d);
    }
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static weft_ds snapshot(weft_data *d, int i, const char *path, const char *key)
{
    weft_ds s = i ? stream(d, 200) : random_access(d, 200);

    return weft_ds_snapshot(d, s, path, WEFT_OPTS(weft_snapshot_opts, .key = key));
}

/* How many elements were made for one pass. */
static int made(int i, const char *path, const char *key)
{
    weft_data *d = begin();
    int64_t k[200];

    n_calls = 0;
    assert_int_equal(keys_of(d, snapshot(d, i, path, key), k), 200);
    expect_permutation(k, 200);
    weft_data_free(d);
    return n_calls;
}

static void damage(const char *path, int64_t at, bool cut)
{
    struct stat st;
    int fd = open(path, O_RDWR);
    char c;

    assert_true(fd >= 0 && !fstat(fd, &st));
    if (at < 0)
        at += st.st_size;
    if (cut) {
        assert_int_equal(ftruncate(fd, at), 0);
    } else {
        assert_int_equal(pread(fd, &c, 1, at), 1);
        c ^= 0x40;
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
    }
    close(fd);
}

static void a_snapshot_is_read_by_later_pipelines_and_mended_when_damaged(void **state)
{
    char path[64];

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/snapshot-%d", folder, i);
        assert_int_equal(made(i, path, "1"), 200);
        assert_int_equal(made(i, path, "1"), 0);
        assert_int_equal(made(i, path, "2"), 200); /* another key: created again */
        assert_non_null(strstr(logged, "from another pipeline"));
        assert_int_equal(made(i, path, "2"), 0);
        damage(path, -3, false); /* its end */
        assert_int_equal(made(i, path, "2"), 200);
        assert_non_null(strstr(logged, "damaged"));
        damage(path, -41, false); /* the table */
        assert_int_equal(made(i, path, "2"), 200);
        damage(path, -100, true);
        assert_int_equal(made(i, path, "2"), 200);
        damage(path, 0, true);
        assert_int_equal(made(i, path, "2"), 200);
        /* A row in the middle: found when it is read, and the pass goes on. */
        damage(path, 6000, false);
        assert_true(made(i, path, "2") > 0);
        assert_non_null(strstr(logged, "is damaged"));
        /* By number, what was read before the damage was found is not asked for again: one more
         * pass makes it whole. */
        if (i == 0)
            made(i, path, "2");
        assert_int_equal(made(i, path, "2"), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shuffle_buffer_loses_nothing_and_moves_elements_forward_by_less_than_it),
        cmocka_unit_test(a_buffer_that_does_not_fit_is_refused),
        cmocka_unit_test(samples_without_replacement_are_different_and_weights_count),
        cmocka_unit_test(elements_are_kept_by_the_number_in_a_column),
        cmocka_unit_test(what_cannot_be_compared_is_refused_by_where),
        cmocka_unit_test(padded_batches_fill_up_to_the_longest_or_a_length),
        cmocka_unit_test(buckets_hold_elements_of_like_length),
        cmocka_unit_test(batches_come_apart_again),
        cmocka_unit_test(windows_step_and_stride),
        cmocka_unit_test(datasets_of_datasets_follow_each_other_or_take_turns),
        cmocka_unit_test(mixtures_go_round_or_follow_weights),
        cmocka_unit_test(a_cache_makes_each_element_once),
        cmocka_unit_test(a_shuffle_behind_a_cache_changes_each_epoch),
        cmocka_unit_test(a_partial_pass_makes_no_cache),
        cmocka_unit_test(a_memory_cache_keeps_to_the_memory_and_auto_does_without),
        cmocka_unit_test(a_snapshot_is_read_by_later_pipelines_and_mended_when_damaged),
    };
    char command[64];
    int failed;

    if (!mkdtemp(folder) ||
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .log = take_log), &ctx))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : failed;
}
