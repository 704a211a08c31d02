/* Features: what each makes of its columns; vocabularies and statistics that do not depend on
 * threads. */
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
#include <unistd.h>

#include "tensor/tensor.h"
#include "weft/weft.h"

#define N 5000

static weft_ctx *ctx;
static char folder[] = "feature-XXXXXX";

/* Sample k: id i64, x f32, vec f32 [3], w text, list i64 [k % 3]. */
static weft_status get(void *arg, int64_t k, weft_sample *s)
{
    int64_t n = k % 3;
    char word[32];

    (void)arg;
    *(int64_t *)s->col[0].data = k;
    *(float *)s->col[1].data = k % 10 == 7 ? NAN : (float)k * 0.5f - 10;
    for (int j = 0; j < 3; j++)
        ((float *)s->col[2].data)[j] = (float)((k * (j + 1)) % 100);
    snprintf(word, sizeof word, "w%lld", (long long)(k % 7 * (k % 3)));
    if (weft_sample_text(s, 3, 0, word, (int64_t)strlen(word)) || weft_sample_shape(s, 4, 1, &n))
        return WEFT_ENOMEM;
    for (int64_t j = 0; j < n; j++)
        ((int64_t *)s->col[4].data)[j] = (k + j) % 4;
    return WEFT_OK;
}

static weft_ds source(weft_data *d, int64_t n)
{
    static const weft_column col[5] = {{.name = "id", .dtype = WEFT_I64},
                                       {.name = "x", .dtype = WEFT_F32},
                                       {.name = "vec", .dtype = WEFT_F32, .rank = 1, .dim = {3}},
                                       {.name = "w", .dtype = WEFT_STR},
                                       {.name = "list", .dtype = WEFT_I64, .rank = 1, .dim = {-1}}};

    return weft_ds_get(d, 5, col, n, get, NULL);
}

static weft_data *begin(void)
{
    weft_data *d;

    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    return d;
}

/* Element i of s. */
static weft_batch *element(weft_data *d, weft_ds s, int64_t i)
{
    weft_iter *it;
    weft_batch *b = NULL;

    if (weft_iter_new(d, weft_ds_skip(d, s, i), WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO),
                      &it) ||
        weft_iter_next(it, &b) || !b)
        fail_msg("element %lld: %s", (long long)i, weft_error());
    weft_iter_free(it);
    return b;
}

static weft_status error_of(weft_data *d, weft_ds s)
{
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_status st = weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);

    while (!st && !(st = weft_iter_next(it, &b)) && b)
        weft_batch_free(b);
    weft_iter_free(it);
    return st;
}

static float f32_at(const weft_batch *b, const char *name, int i)
{
    return ((const float *)weft_batch_find(b, name)->data)[i];
}

static int64_t i64_at(const weft_batch *b, const char *name, int i)
{
    return ((const int64_t *)weft_batch_find(b, name)->data)[i];
}

static void numbers_are_cast_clipped_filled_and_put_into_buckets(void **state)
{
    weft_data *d = begin();
    weft_ds s = source(d, 100);
    double bounds[3] = {0, 5, 20};
    weft_batch *b;

    (void)state;
    s = weft_ds_cast(d, s, "id", WEFT_F32);
    s = weft_ds_fill(d, s, "x", -3);
    s = weft_ds_bucketize(d, weft_ds_clip(d, s, "vec", 2, 50), "x", 3, bounds);
    b = element(d, s, 7);
    assert_true(f32_at(b, "id", 0) == 7);
    assert_int_equal(i64_at(b, "x", 0), 0); /* NaN, then -3 */
    assert_true(f32_at(b, "vec", 0) == 7 && f32_at(b, "vec", 2) == 21);
    weft_batch_free(b);
    b = element(d, s, 60);
    assert_int_equal(i64_at(b, "x", 0), 3); /* 20: the boundary itself is above */
    assert_true(f32_at(b, "vec", 0) == 50 && f32_at(b, "vec", 1) == 20);
    weft_batch_free(b);
    b = element(d, weft_ds_log1p(d, source(d, 100), "vec"), 4);
    assert_true(fabsf(f32_at(b, "vec", 1) - log1pf(8)) < 1e-6f);
    weft_batch_free(b);
    b = element(d, weft_ds_cast(d, weft_ds_cast(d, source(d, 100), "x", WEFT_I32), "x", WEFT_F64),
                5);
    assert_true(*(const double *)weft_batch_find(b, "x")->data == -7); /* -7.5 toward zero */
    weft_batch_free(b);
    weft_data_free(d);
}

/* What column "v", of n numbers, becomes in another dtype: cast, rescaled by 1, joined. */
static void check_kept_in_range(weft_dtype from, const void *data, int64_t n, weft_dtype to)
{
    static const struct {
        weft_dtype t;
        int64_t low, high;
    } ranges[] = {{WEFT_I8, INT8_MIN, INT8_MAX},
                  {WEFT_U8, 0, UINT8_MAX},
                  {WEFT_I32, INT32_MIN, INT32_MAX},
                  {WEFT_I64, INT64_MIN, INT64_MAX}};
    weft_column col = {.name = "v", .dtype = from};
    weft_tensor t = weft_view(from, data, 1, &n);
    int r = 0;

    while (ranges[r].t != to)
        r++;
    for (int way = 0; way < 3; way++) {
        weft_data *d = begin();
        weft_ds s = weft_ds_tensors(d, 1, &col, &t);

        s = way == 0   ? weft_ds_cast(d, s, "v", to)
            : way == 1 ? weft_ds_rescale(d, s, "v", 1, 0, to)
                       : weft_ds_join(d, s, "v", "v", to);
        for (int64_t i = 0; i < n; i++) {
            weft_batch *b = element(d, s, i);
            int64_t v = wf_get_int(data, from, i), got;

            v = v < ranges[r].low ? ranges[r].low : v > ranges[r].high ? ranges[r].high : v;
            got = wf_get_int(weft_batch_find(b, "v")->data, to, 0);
            if (got != v)
                fail_msg("way %d, %s to %s: %lld gives %lld, not %lld", way, weft_dtype_name(from),
                         weft_dtype_name(to), (long long)wf_get_int(data, from, i), (long long)got,
                         (long long)v);
            weft_batch_free(b);
        }
        weft_data_free(d);
    }
}

static void integers_are_kept_in_the_range_of_narrower_ones(void **state)
{
    static const weft_dtype types[] = {WEFT_I8, WEFT_U8, WEFT_I32, WEFT_I64};
    static const int64_t values[] = {0,         -1,  127,  128,       -128,      -129,
                                     255,       256, 300,  INT32_MAX, INT32_MIN, INT64_MAX,
                                     INT64_MIN, 44,  -300, 65536,     1ll << 32, -(1ll << 32) - 5};
    enum { N_VALUES = sizeof values / sizeof *values };
    int64_t mem[N_VALUES];

    (void)state;
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++) {
            for (int i = 0; i < N_VALUES; i++)
                wf_set_int(mem, types[from], i, values[i]);
            check_kept_in_range(types[from], mem, N_VALUES, types[to]);
        }
}

static weft_status get_text(void *arg, int64_t k, weft_sample *s)
{
    (void)arg;
    return weft_sample_text(s, 0, 0, k ? " -300" : "300", k ? 5 : 3);
}

static void numbers_in_text_are_kept_in_range(void **state)
{
    static const weft_column col = {.name = "w", .dtype = WEFT_STR};
    weft_data *d = begin();
    weft_ds s = weft_ds_cast(d, weft_ds_get(d, 1, &col, 2, get_text, NULL), "w", WEFT_U8);

    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_batch *b = element(d, s, i);

        assert_int_equal(*(const uint8_t *)weft_batch_find(b, "w")->data, i ? 0 : 255);
        weft_batch_free(b);
    }
    weft_data_free(d);
}

static void text_that_is_no_number_is_an_error_with_its_sample(void **state)
{
    weft_data *d = begin();

    (void)state;
    assert_int_equal(error_of(d, weft_ds_cast(d, source(d, 10), "w", WEFT_F32)), WEFT_EDATA);
    assert_non_null(strstr(weft_error(), "'w0' is not a number"));
    assert_non_null(strstr(weft_error(), "sample 0"));
    weft_data_free(d);
}

static void hashes_do_not_change(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_hash(d, source(d, 10), "w, id", 1000000007, 0);
    weft_batch *b = element(d, s, 1);
    uint64_t h = 14695981039346656037u;

    (void)state;
    h = (h ^ 'w') * 1099511628211u;
    h = (h ^ '1') * 1099511628211u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    assert_int_equal(i64_at(b, "w", 0), (int64_t)(h % 1000000007));
    h = 14695981039346656037u;
    for (int i = 0; i < 8; i++)
        h = (h ^ (unsigned)(i == 0)) * 1099511628211u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    assert_int_equal(i64_at(b, "id", 0), (int64_t)(h % 1000000007));
    weft_batch_free(b);
    weft_data_free(d);
}

static void rows_are_cut_out_before_and_after_batching(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_copy(d, source(d, 22), "vec", "last"), t;
    const weft_column *col;
    weft_batch *b;
    int n;

    (void)state;
    s = weft_ds_slice(d, s, "vec", 0, 2);
    s = weft_ds_slice(d, s, "last", -1, 0);
    assert_int_equal(weft_ds_columns(d, s, &n, &col), WEFT_OK);
    assert_int_equal(n, 6);
    assert_string_equal(col[5].name, "last");
    assert_int_equal(col[2].dim[0], 2);
    assert_int_equal(col[5].dim[0], 1);
    b = element(d, s, 5);
    assert_int_equal(weft_batch_find(b, "vec")->dim[0], 2);
    assert_true(f32_at(b, "vec", 0) == 5 && f32_at(b, "vec", 1) == 10);
    assert_true(f32_at(b, "last", 0) == 15);
    weft_batch_free(b);

    /* of a sample, in a batch; the last batch has two */
    t = weft_ds_slice(d, weft_ds_batch(d, weft_ds_select(d, source(d, 22), "id, vec"), 4, NULL),
                      "vec", 1, 0);
    b = element(d, t, 5);
    assert_int_equal(weft_batch_find(b, "vec")->dim[0], 2);
    assert_int_equal(weft_batch_find(b, "vec")->dim[1], 2);
    assert_true(f32_at(b, "vec", 0) == 40 && f32_at(b, "vec", 1) == 60);
    assert_true(f32_at(b, "vec", 2) == 42 && f32_at(b, "vec", 3) == 63);
    weft_batch_free(b);

    /* of lists: the last item of those that have one; windows of text */
    t = weft_ds_skip(d, weft_ds_take(d, source(d, 22), 6), 5);
    b = element(d, weft_ds_slice(d, t, "list", -1, 1), 0);
    assert_int_equal(i64_at(b, "list", 0), 6 % 4);
    weft_batch_free(b);
    t = weft_ds_window(d, weft_ds_select(d, source(d, 21), "w"), 3, NULL);
    b = element(d, weft_ds_slice(d, t, "w", 1, 1), 2);
    assert_memory_equal(((const weft_str *)b->col[0].data)->data, "w0", 2);
    weft_batch_free(b);
    t = weft_ds_slice(d, source(d, 22), "list", 0, 1);
    assert_int_equal(error_of(d, t), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "column 'list'"));
    assert_non_null(strstr(weft_error(), "sample 0"));
    weft_data_free(d);
}

static void slices_that_are_not_there_and_crosses_that_do_not_fit_are_refused(void **state)
{
    static const char *const texts[] = {"rows 2 to 4 do not exist: there are 3",
                                        "one item per sample",
                                        "rows -1 to 0",
                                        "did you mean 'vec'",
                                        "bucketize it first",
                                        "differ in shape",
                                        "hash takes one",
                                        "0 buckets",
                                        "'x'",
                                        "'vec' is named twice"};

    (void)state;
    for (int i = 0; i < 10; i++) {
        weft_data *d = begin();
        weft_ds s = source(d, 10);

        switch (i) {
        case 0: weft_ds_slice(d, s, "vec", 2, 3); break;
        case 1: weft_ds_slice(d, s, "id", 0, 1); break;
        case 2: weft_ds_slice(d, s, "vec", -4, 2); break;
        case 3: weft_ds_slice(d, s, "vecc", 0, 1); break;
        case 4: weft_ds_cross(d, s, "id, x", 10, 0, "c"); break;
        case 5: weft_ds_cross(d, s, "id, list", 10, 0, "c"); break;
        case 6: weft_ds_cross(d, s, "id", 10, 0, "c"); break;
        case 7: weft_ds_cross(d, s, "id, w", 0, 0, "c"); break;
        case 8: weft_ds_copy(d, s, "id", "x"); break;
        default: weft_ds_slice(d, s, "vec, vec", 1, 0); break;
        }
        assert_int_not_equal(weft_data_status(d), WEFT_OK);
        assert_int_equal(error_of(d, s), weft_data_status(d));
        if (!strstr(weft_error(), texts[i]))
            fail_msg("case %d: %s", i, weft_error());
        weft_data_free(d);
    }
}

static uint64_t hash_step(uint64_t seed, const unsigned char *p, int n)
{
    uint64_t h = 14695981039346656037u ^ (seed * 0x9e3779b97f4a7c15u);

    for (int i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    return h ^ (h >> 32);
}

static void crossed_columns_hash_one_after_the_other(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_cross(d, source(d, 40), "w, id", 1000000007, 5, "both");
    weft_batch *b = element(d, s, 1);
    uint64_t h = hash_step(hash_step(5, (const unsigned char *)"w1", 2),
                           (const unsigned char[]){1, 0, 0, 0, 0, 0, 0, 0}, 8);

    (void)state;
    assert_int_equal(i64_at(b, "both", 0), (int64_t)(h % 1000000007));
    assert_int_equal(i64_at(b, "id", 0), 1); /* the others stay */
    weft_batch_free(b);
    /* a cross of lists has their shape, in a batch too */
    s = weft_ds_cross(d, weft_ds_copy(d, source(d, 40), "list", "more"), "list, more", 50, 0, "x2");
    b = element(d, weft_ds_batch(d, s, 7, WEFT_OPTS(weft_batch_opts, .ragged = true)), 1);
    assert_int_equal(weft_batch_find(b, "x2")->dim[0], weft_batch_find(b, "list")->dim[0]);
    weft_batch_free(b);
    weft_data_free(d);
}

static void one_hot_adds_an_axis_also_to_lists(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_one_hot(d, source(d, 20), "list", 4, NULL), t;
    weft_batch *b = element(d, s, 5);
    const weft_tensor *v = weft_batch_find(b, "list");

    (void)state;
    assert_int_equal(v->rank, 2);
    assert_int_equal(v->dim[0], 2);
    assert_int_equal(v->dim[1], 4);
    for (int i = 0; i < 8; i++)
        assert_true(((const float *)v->data)[i] == (i == 1 || i == 6 ? 1.0f : 0.0f));
    weft_batch_free(b);
    t = weft_ds_one_hot(d, source(d, 20), "list", 3, NULL);
    assert_int_equal(error_of(d, t), WEFT_EDATA);
    assert_non_null(strstr(weft_error(), "id 3 is not in 0..2"));
    t = weft_ds_one_hot(
        d, weft_ds_batch(d, source(d, 20), 4, WEFT_OPTS(weft_batch_opts, .ragged = true)), "list",
        3, WEFT_OPTS(weft_ds_one_hot_opts, .dtype = WEFT_U8, .lenient = true));
    b = element(d, t, 0);
    v = weft_batch_find(b, "list"); /* 0: none, 1: {1}, 2: {2, 3}, 3: none */
    assert_int_equal(v->dim[0], 3);
    assert_memory_equal(v->data, ((uint8_t[]){0, 1, 0, 0, 0, 1, 0, 0, 0}), 9);
    weft_batch_free(b);
    weft_data_free(d);
}

static void columns_are_joined_row_by_row_before_and_after_batching(void **state)
{
    weft_data *d = begin();
    weft_ds s = weft_ds_join(d, source(d, 22), "vec, id, x", "all", WEFT_F32), t;
    weft_batch *b = element(d, s, 3), *c;
    int n;
    const weft_column *col;

    (void)state;
    assert_int_equal(weft_ds_columns(d, s, &n, &col), WEFT_OK);
    assert_int_equal(n, 3);
    assert_string_equal(col[0].name, "all");
    assert_string_equal(col[1].name, "w");
    assert_int_equal(col[0].dim[0], 5);
    assert_true(f32_at(b, "all", 0) == 3 && f32_at(b, "all", 2) == 9 && f32_at(b, "all", 3) == 3 &&
                f32_at(b, "all", 4) == -8.5f);
    weft_batch_free(b);
    s = weft_ds_batch(d, weft_ds_select(d, s, "all"), 5, NULL);
    t = weft_ds_select(d, source(d, 22), "id, x, vec");
    t = weft_ds_join(d, weft_ds_batch(d, t, 5, NULL), "vec, id, x", "all", WEFT_F32);
    for (int i = 0; i < 5; i++) { /* the last batch is short */
        b = element(d, s, i);
        c = element(d, t, i);
        assert_int_equal(c->col[0].rank, 2);
        assert_int_equal(c->col[0].dim[0], b->col[0].dim[0]);
        assert_int_equal(c->col[0].dim[1], 5);
        for (int k = 0; k < b->col[0].dim[0] * 5; k++)
            assert_true(f32_at(b, "all", k) == f32_at(c, "all", k) || isnan(f32_at(b, "all", k)));
        weft_batch_free(b);
        weft_batch_free(c);
    }
    weft_data_free(d);
}

static void vocabularies_number_words_and_send_others_to_buckets(void **state)
{
    weft_data *d = begin();
    weft_str words[3] = {{"w0", 2}, {"w12", 3}, {"w5", 2}}, twice[2] = {{"a", 1}, {"a", 1}};
    weft_vocab *v, *again;
    weft_ds s;
    weft_batch *b;
    char path[64];

    (void)state;
    assert_int_equal(weft_vocab_new(ctx, 2, twice, &v), WEFT_EEXIST);
    assert_int_equal(weft_vocab_new(ctx, 3, words, &v), WEFT_OK);
    snprintf(path, sizeof path, "%s/words", folder);
    assert_int_equal(weft_vocab_write(v, path), WEFT_OK);
    assert_int_equal(weft_vocab_read(ctx, path, &again), WEFT_OK);
    assert_int_equal(weft_vocab_size(again), 3);
    assert_int_equal(weft_vocab_find(again, "w12", 3), 1);
    assert_int_equal(weft_vocab_find(again, "w1", 2), -1);
    s = weft_ds_lookup(d, source(d, 30), "w", again, NULL);
    b = element(d, s, 0);
    assert_int_equal(i64_at(b, "w", 0), 1);
    weft_batch_free(b);
    b = element(d, s, 1); /* w1 */
    assert_int_equal(i64_at(b, "w", 0), 0);
    weft_batch_free(b);
    b = element(
        d,
        weft_ds_lookup(d, source(d, 30), "w", again, WEFT_OPTS(weft_lookup_opts, .n_unknown = 10)),
        20); /* 6 * 2 */
    assert_int_equal(i64_at(b, "w", 0), 11);
    weft_batch_free(b);
    s = weft_ds_lookup(d, source(d, 30), "w", again,
                       WEFT_OPTS(weft_lookup_opts, .n_unknown = WEFT_ZERO));
    assert_int_equal(error_of(d, s), WEFT_EDATA);
    assert_non_null(strstr(weft_error(), "'w1' is not in the vocabulary"));
    weft_data_free(d);
    weft_vocab_free(v);
    weft_vocab_free(again);
}

static void a_counted_vocabulary_is_by_frequency_whatever_the_threads(void **state)
{
    int64_t count[13] = {0};

    (void)state;
    for (int64_t k = 0; k < N; k++)
        count[k % 7 * (k % 3)]++;
    for (int threads = 0; threads < 4; threads++) {
        weft_data *d = begin();
        weft_ds s = weft_ds_shuffle(d, source(d, N), 100,
                                    WEFT_OPTS(weft_shuffle_opts, .seed = (uint64_t)threads));
        weft_vocab *v;
        int64_t before = INT64_MAX;

        assert_int_equal(weft_vocab_count(d, s, "w",
                                          WEFT_OPTS(weft_vocab_opts, .top = 6,
                                                    .threads = threads ? threads : WEFT_ZERO),
                                          &v),
                         WEFT_OK);
        assert_int_equal(weft_vocab_size(v), 6);
        assert_string_equal(weft_vocab_word(v, 0).data, "w0");
        for (int64_t i = 0; i < 6; i++) {
            int64_t n = count[atoi(weft_vocab_word(v, i).data + 1)];

            assert_true(n < before || (n == before && strcmp(weft_vocab_word(v, i - 1).data,
                                                             weft_vocab_word(v, i).data) < 0));
            before = n;
        }
        weft_vocab_free(v);
        assert_int_equal(
            weft_vocab_count(d, s, "w", WEFT_OPTS(weft_vocab_opts, .max_words = 3), &v),
            WEFT_ELIMIT);
        weft_data_free(d);
    }
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want))))
        fail_msg("%.17g, should be %.17g", got, want);
}

static void statistics_are_right_and_the_same_for_any_threads(void **state)
{
    double mean = 0, var = 0;
    int64_t n = 0;
    weft_stats *first = NULL;

    (void)state;
    for (int64_t k = 0; k < N; k++)
        if (k % 10 != 7) {
            mean += (double)((float)k * 0.5f - 10);
            n++;
        }
    mean /= (double)n;
    for (int64_t k = 0; k < N; k++)
        if (k % 10 != 7)
            var +=
                ((double)((float)k * 0.5f - 10) - mean) * ((double)((float)k * 0.5f - 10) - mean);
    for (int threads = 0; threads < 4; threads++) {
        weft_data *d = begin();
        weft_stats *s;
        const weft_column_stats *x;

        if (weft_ds_stats(d, source(d, N),
                          WEFT_OPTS(weft_stats_opts, .threads = threads ? threads : WEFT_ZERO), &s))
            fail_msg("%s", weft_error());
        assert_int_equal(weft_stats_columns(s), 5);
        x = weft_stats_find(s, "x");
        assert_int_equal(x->n, 1);
        assert_int_equal(x->count[0], n);
        assert_int_equal(x->n_missing[0], N / 10);
        assert_int_equal(x->n_distinct, -1);
        near(x->mean[0], mean);
        near(x->std[0], sqrt(var / (double)n));
        assert_true(x->min[0] == -10 && x->max[0] == 2489.5);
        assert_int_equal(weft_stats_find(s, "vec")->n, 3);
        near(weft_stats_find(s, "vec")->mean[0], 49.5);
        near(weft_stats_find(s, "vec")->mean[1], 49);
        assert_int_equal(weft_stats_find(s, "id")->n_distinct, N);
        assert_int_equal(weft_stats_find(s, "w")->n_distinct, 10);
        assert_int_equal(weft_stats_find(s, "list")->n_distinct, 4);
        if (first) {
            const weft_column_stats *y = weft_stats_find(first, "x");

            assert_memory_equal(x->mean, y->mean, 8);
            assert_memory_equal(x->std, y->std, 8);
            weft_stats_free(s);
        } else {
            first = s;
        }
        weft_data_free(d);
    }
    weft_stats_free(first);
}

static void statistics_are_saved_and_used(void **state)
{
    weft_data *d = begin();
    weft_stats *s, *t;
    char path[64];
    weft_ds z;
    weft_batch *b;
    const weft_column_stats *x;

    (void)state;
    assert_int_equal(weft_ds_stats(d, source(d, 1000), NULL, &s), WEFT_OK);
    snprintf(path, sizeof path, "%s/stats.json", folder);
    assert_int_equal(weft_stats_write(s, path), WEFT_OK);
    if (weft_stats_read(ctx, path, &t))
        fail_msg("%s", weft_error());
    for (int i = 0; i < 5; i++) {
        const weft_column_stats *p = weft_stats_column(s, i), *q = weft_stats_column(t, i);

        assert_string_equal(p->name, q->name);
        assert_int_equal(p->dtype, q->dtype);
        assert_int_equal(p->n, q->n);
        assert_int_equal(p->n_distinct, q->n_distinct);
        assert_memory_equal(p->mean, q->mean, (size_t)p->n * 8);
        assert_memory_equal(p->std, q->std, (size_t)p->n * 8);
        assert_memory_equal(p->max, q->max, (size_t)p->n * 8);
        assert_memory_equal(p->count, q->count, (size_t)p->n * 8);
    }
    x = weft_stats_find(t, "x");
    z = weft_ds_standardize(d, weft_ds_fill_mean(d, source(d, 1000), "x", t), "x, vec", t);
    b = element(d, z, 7);
    assert_true(fabsf(f32_at(b, "x", 0)) < 1e-6f); /* the mean, rounded to f32 */
    weft_batch_free(b);
    b = element(d, z, 10);
    assert_true(f32_at(b, "x", 0) == (float)((-5.0 - x->mean[0]) * (1 / x->std[0])));
    weft_batch_free(b);
    weft_stats_free(s);
    /* The file says what is wrong with it. */
    {
        FILE *f = fopen(path, "w");

        fputs("{\"weft_stats\": 1, \"columns\": [{\"name\": \"x\", \"dtype\": \"f32\", \"mean\": "
              "[1, 2], "
              "\"std\": [1]}]}",
              f);
        fclose(f);
    }
    assert_int_equal(weft_stats_read(ctx, path, &s), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "wrong length"));
    weft_data_free(d);
    weft_stats_free(t);
}

static void wrong_columns_are_refused_by_name(void **state)
{
    weft_data *d = begin();

    (void)state;
    weft_ds_hash(d, source(d, 10), "x", 10, 0);
    assert_int_equal(weft_data_status(d), WEFT_EDTYPE);
    assert_non_null(strstr(weft_error(), "hash: column 'x' is f32"));
    weft_data_free(d);
    d = begin();
    weft_ds_clip(d, source(d, 10), "vex", 0, 1);
    assert_int_equal(weft_data_status(d), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "did you mean 'vec'"));
    weft_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_cast_clipped_filled_and_put_into_buckets),
        cmocka_unit_test(integers_are_kept_in_the_range_of_narrower_ones),
        cmocka_unit_test(numbers_in_text_are_kept_in_range),
        cmocka_unit_test(text_that_is_no_number_is_an_error_with_its_sample),
        cmocka_unit_test(hashes_do_not_change),
        cmocka_unit_test(rows_are_cut_out_before_and_after_batching),
        cmocka_unit_test(slices_that_are_not_there_and_crosses_that_do_not_fit_are_refused),
        cmocka_unit_test(crossed_columns_hash_one_after_the_other),
        cmocka_unit_test(one_hot_adds_an_axis_also_to_lists),
        cmocka_unit_test(columns_are_joined_row_by_row_before_and_after_batching),
        cmocka_unit_test(vocabularies_number_words_and_send_others_to_buckets),
        cmocka_unit_test(a_counted_vocabulary_is_by_frequency_whatever_the_threads),
        cmocka_unit_test(statistics_are_right_and_the_same_for_any_threads),
        cmocka_unit_test(statistics_are_saved_and_used),
        cmocka_unit_test(wrong_columns_are_refused_by_name),
    };
    char command[64];
    int failed;

    if (!mkdtemp(folder) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : failed;
}
