/* The dealer: every sample of an epoch once, whoever asks, whatever dies. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/data.h"
#include "weft/weft.h"

#define N 101
#define BATCH 16

static weft_ctx *ctx;

static const weft_column columns[2] = {{.name = "k", .dtype = WEFT_I64},
                                       {.name = "v", .dtype = WEFT_F32, .rank = 1, .dim = {-1}}};

static weft_status fill(int64_t k, weft_sample *s)
{
    int64_t len = k % 4;

    *(int64_t *)s->col[0].data = k;
    if (weft_sample_shape(s, 1, 1, &len))
        return WEFT_ENOMEM;
    for (int64_t i = 0; i < len; i++)
        ((float *)s->col[1].data)[i] = (float)(10 * k + i);
    return WEFT_OK;
}

static weft_status get(void *arg, int64_t id, weft_sample *s)
{
    (void)arg;
    return fill(id, s);
}

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    (void)arg;
    *end = id == N;
    return *end ? WEFT_OK : fill(id, s);
}

static weft_ds shuffled(weft_data *d, uint64_t seed)
{
    return weft_ds_shuffle_all(d, weft_ds_get(d, 2, columns, N, get, NULL),
                               WEFT_OPTS(weft_shuffle_opts, .seed = seed));
}

static weft_ds streamed(weft_data *d, uint64_t seed)
{
    return weft_ds_shuffle(d, weft_ds_stream(d, 2, columns, next, NULL), 20,
                           WEFT_OPTS(weft_shuffle_opts, .seed = seed));
}

typedef weft_ds make_fn(weft_data *d, uint64_t seed);

static weft_dealer *start(weft_data **d, make_fn *make, uint64_t seed, int64_t shards, bool drop)
{
    weft_dealer *a = NULL;

    assert_int_equal(weft_data_new(ctx, d), WEFT_OK);
    if (weft_dealer_new(*d, make(*d, seed),
                        WEFT_OPTS(weft_dealer_opts, .batch = BATCH, .shards = shards,
                                  .drop_remainder = drop, .threads = 2, .max_open = 5),
                        &a))
        fail_msg("%s", weft_error());
    return a;
}

static void stop(weft_data *d, weft_dealer *a)
{
    weft_dealer_free(a);
    weft_data_free(d);
}

/* The samples of shard (t, l) after those of the previous step; checks that both columns
 * belong together. */
static int64_t take(weft_dealer *a, int64_t t, int64_t l, int64_t *k, int64_t n)
{
    weft_batch *b = NULL;
    const int64_t *offsets, *keys;
    const float *v;

    if (weft_dealer_get(a, t, l, &b))
        fail_msg("(%lld, %lld): %s", (long long)t, (long long)l, weft_error());
    keys = weft_batch_find(b, "k")->data;
    v = weft_batch_find(b, "v")->data;
    offsets = weft_batch_find(b, "v:offsets")->data;
    assert_int_equal(weft_batch_find(b, "k")->dim[0], b->n);
    for (int64_t i = 0; i < b->n; i++) {
        assert_int_equal(b->id[i], keys[i]);
        assert_int_equal(offsets[i + 1] - offsets[i], keys[i] % 4);
        for (int64_t j = offsets[i]; j < offsets[i + 1]; j++)
            assert_true(v[j] == (float)(10 * keys[i] + j - offsets[i]));
        k[n++] = keys[i];
    }
    weft_batch_free(b);
    return n;
}

/* All samples of steps [from, to) by `workers` that take shards in turn. */
static int64_t work(weft_dealer *a, int64_t from, int64_t to, int64_t shards, int64_t *k)
{
    int64_t n = 0;

    for (int64_t t = from; t < to; t++) {
        for (int64_t l = 0; l < shards; l++)
            n = take(a, t, l, k, n);
        assert_int_equal(weft_dealer_commit(a, t), WEFT_OK);
    }
    return n;
}

static void expect_each_once(const int64_t *k, int64_t n)
{
    int seen[N] = {0};

    assert_int_equal(n, N);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(seen[k[i]]++, 0);
}

static void each_sample_once_an_epoch(make_fn *make)
{
    static const int64_t shards[] = {1, 2, 3, 5, 8, 32};
    int64_t first[2 * N], k[2 * N], n, steps = (N + BATCH - 1) / BATCH;

    for (int i = 0; i < 6; i++) {
        weft_data *d;
        weft_dealer *a = start(&d, make, 11, shards[i], false);

        n = work(a, 0, 2 * steps, shards[i], k);
        assert_int_equal(n, 2 * N);
        expect_each_once(k, N);
        expect_each_once(k + N, N);
        assert_true(memcmp(k, k + N, sizeof k / 2) != 0); /* another order each epoch */
        if (i == 0)
            memcpy(first, k, sizeof k);
        assert_memory_equal(k, first, sizeof k); /* whatever the number of shards */
        stop(d, a);
    }
}

static void each_sample_once_an_epoch_for_any_number_of_shards(void **state)
{
    (void)state;
    each_sample_once_an_epoch(shuffled);
}

static void likewise_from_a_stream(void **state)
{
    (void)state;
    each_sample_once_an_epoch(streamed);
}

static void the_order_repeats_with_the_seed(void **state)
{
    int64_t k[3][N];
    static const uint64_t seeds[] = {5, 5, 6};

    (void)state;
    for (int i = 0; i < 3; i++) {
        weft_data *d;
        weft_dealer *a = start(&d, shuffled, seeds[i], 3, false);

        assert_int_equal(weft_dealer_steps(a), 7);
        assert_int_equal(work(a, 0, 7, 3, k[i]), N);
        stop(d, a);
    }
    assert_memory_equal(k[0], k[1], sizeof k[0]);
    assert_true(memcmp(k[0], k[2], sizeof k[0]) != 0);
}

static void any_order_of_asking_gives_the_same_shards(void **state)
{
    weft_data *d;
    weft_dealer *a = start(&d, shuffled, 3, 4, true);
    int64_t k[64], again[64], n, m;

    (void)state;
    assert_int_equal(weft_dealer_steps(a), N / BATCH);
    for (int64_t i = 0; i < 60; i++) {
        int64_t t = (i * 37) % 23, l = i % 4;

        n = take(a, t, l, k, 0);
        assert_int_equal(n, BATCH / 4);
        assert_int_equal(weft_dealer_ahead(a, t, l), WEFT_OK);
        assert_int_equal(weft_dealer_ahead(a, (t * 5) % 23, (l + 1) % 4), WEFT_OK);
        m = take(a, t, l, again, 0);
        assert_int_equal(n, m);
        assert_memory_equal(k, again, (size_t)n * 8);
    }
    stop(d, a);
}

struct caller {
    weft_dealer *a;
    int64_t first, k[4 * N], n;
};

static void *call(void *arg)
{
    struct caller *c = arg;
    weft_batch *b;

    for (int64_t t = 0; t < 7; t++)
        for (int64_t l = c->first; l < 8; l += 4) {
            weft_dealer_ahead(c->a, t + 1, l);
            if (weft_dealer_get(c->a, t, l, &b))
                return (void *)1;
            for (int64_t i = 0; i < b->n; i++)
                c->k[c->n++] = ((const int64_t *)b->col[0].data)[i];
            weft_batch_free(b);
        }
    return NULL;
}

static void many_callers_at_once_share_an_epoch(void **state)
{
    weft_data *d;
    weft_dealer *a = start(&d, shuffled, 9, 8, false);
    struct caller c[4] = {{0}};
    pthread_t thread[4];
    int64_t all[N], n = 0;
    void *failed;

    (void)state;
    for (int i = 0; i < 4; i++) {
        c[i].a = a;
        c[i].first = i;
        assert_int_equal(pthread_create(&thread[i], NULL, call, &c[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &failed);
        assert_null(failed);
        memcpy(all + n, c[i].k, (size_t)c[i].n * 8);
        n += c[i].n;
    }
    expect_each_once(all, n);
    stop(d, a);
}

/* A dealer that dies anywhere and is restored loses and repeats nothing. */
static void restoring_loses_and_repeats_nothing(make_fn *make)
{
    int64_t want[3 * N], got[4 * N], n, m;
    weft_data *d;
    weft_dealer *a = start(&d, make, 4, 3, false);

    n = work(a, 0, 21, 3, want);
    assert_int_equal(n, 3 * N);
    stop(d, a);
    for (int64_t kill = 0; kill < 18; kill++) {
        char *state = NULL;
        int64_t n_state = 0;

        a = start(&d, make, 4, 3, false);
        m = work(a, 0, kill, 3, got);
        /* Steps beyond the committed ones are under way when it is saved. */
        if (kill % 3)
            take(a, kill, 1, got, m);
        if (kill % 3 == 2)
            take(a, kill + 3, 0, got, m);
        assert_int_equal(weft_dealer_save(a, &state, &n_state), WEFT_OK);
        if (kill % 2) {
            stop(d, a);
            a = start(&d, make, 4, 3, false);
        }
        if (weft_dealer_restore(a, state, n_state))
            fail_msg("%s", weft_error());
        n = work(a, kill, 21, 3, got + m);
        assert_int_equal(n + m, 3 * N);
        assert_memory_equal(got, want, sizeof want);
        weft_text_free(ctx, state);
        stop(d, a);
    }
}

static void a_restored_dealer_loses_and_repeats_nothing(void **state)
{
    (void)state;
    restoring_loses_and_repeats_nothing(shuffled);
}

static void a_restored_reader_of_a_stream_loses_and_repeats_nothing(void **state)
{
    (void)state;
    restoring_loses_and_repeats_nothing(streamed);
}

static void a_stream_gives_uncommitted_steps_again_and_no_others(void **state)
{
    weft_data *d;
    weft_dealer *a = start(&d, streamed, 4, 2, false);
    int64_t k[5][64], again[64], epoch, number, n_samples;
    weft_batch *b;

    (void)state;
    for (int64_t t = 0; t < 5; t++)
        assert_int_equal(take(a, t, 1, k[t], 0), BATCH / 2);
    for (int64_t t = 4; t >= 0; t--) {
        assert_int_equal(take(a, t, 1, again, 0), BATCH / 2);
        assert_memory_equal(again, k[t], BATCH / 2 * 8);
    }
    assert_int_equal(weft_dealer_get(a, 5, 0, &b), WEFT_ESTATE);
    assert_non_null(strstr(weft_error(), "not committed"));
    assert_int_equal(weft_dealer_commit(a, 1), WEFT_OK);
    assert_int_equal(weft_dealer_get(a, 1, 0, &b), WEFT_ESTATE);
    assert_int_equal(take(a, 6, 0, again, 0), 2); /* the last one is short: 101 - 96 = 5 */
    assert_int_equal(weft_dealer_step(a, 6, &epoch, &number, &n_samples), WEFT_OK);
    assert_int_equal(epoch, 0);
    assert_int_equal(number, 6);
    assert_int_equal(n_samples, 5);
    assert_int_equal(weft_dealer_commit(a, 8), WEFT_ESTATE);
    assert_int_equal(weft_dealer_get(a, 2, 7, &b), WEFT_ERANGE);
    stop(d, a);
}

static void a_position_of_another_job_is_refused(void **state)
{
    weft_data *d, *e;
    weft_dealer *a = start(&d, shuffled, 4, 2, false), *c = start(&e, shuffled, 4, 2, true);
    char *text;
    int64_t n;

    (void)state;
    assert_int_equal(weft_dealer_save(a, &text, &n), WEFT_OK);
    assert_int_equal(weft_dealer_restore(c, text, n), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "drop_remainder"));
    for (int64_t i = 0; i < n; i++)
        assert_true(weft_dealer_restore(a, text, i) != WEFT_OK);
    assert_int_equal(weft_dealer_restore(a, text, n), WEFT_OK);
    weft_text_free(ctx, text);
    stop(d, a);
    stop(e, c);
}

/* ---- batches of the dataset ------------------------------------------------------------------ */

static weft_ds padded(weft_data *d, uint64_t seed)
{
    (void)seed;
    return weft_ds_padded_batch(d, weft_ds_get(d, 2, columns, N, get, NULL), BATCH,
                                WEFT_OPTS(weft_padded_batch_opts, .lengths = true));
}

static weft_ds padded_stream(weft_data *d, uint64_t seed)
{
    (void)seed;
    return weft_ds_prefetch(
        d,
        weft_ds_padded_batch(d, weft_ds_stream(d, 2, columns, next, NULL), BATCH,
                             WEFT_OPTS(weft_padded_batch_opts, .lengths = true)),
        1);
}

/* Samples [first, first + b->n), padded to the longest of them. */
static void check_padded(const weft_batch *b, int64_t first)
{
    const int64_t *k = weft_batch_find(b, "k")->data, *length;
    const weft_tensor *v = weft_batch_find(b, "v");
    int64_t longest = 0;

    for (int64_t i = first; i < first + b->n; i++)
        longest = i % 4 > longest ? i % 4 : longest;
    assert_int_equal(v->rank, 2);
    assert_int_equal(v->dim[0], b->n);
    assert_int_equal(v->dim[1], longest);
    length = weft_batch_find(b, "v:length")->data;
    for (int64_t i = 0; i < b->n; i++) {
        assert_int_equal(b->id[i], first + i);
        assert_int_equal(k[i], first + i);
        assert_int_equal(length[i], k[i] % 4);
        for (int64_t j = 0; j < longest; j++)
            assert_true(((const float *)v->data)[i * longest + j] ==
                        (j < k[i] % 4 ? (float)(10 * k[i] + j) : 0));
    }
}

static void a_shard_is_padded_by_itself(void **state)
{
    static make_fn *const make[] = {padded, padded_stream};
    static const int64_t shards[] = {1, 2, 3, 4, 7, 8, 40};

    (void)state;
    for (int i = 0; i < 14; i++) {
        int64_t n_shards = shards[i / 2], seen = 0;
        weft_data *d;
        weft_dealer *a;

        assert_int_equal(weft_data_new(ctx, &d), 0);
        assert_int_equal(
            weft_dealer_new(d, make[i % 2](d, 0),
                            WEFT_OPTS(weft_dealer_opts, .shards = n_shards,
                                      .threads = i % 3 ? i % 3 : WEFT_ZERO, .follow = i % 4 < 2),
                            &a),
            0);
        for (int64_t t = 0; t < 14; t++) {
            int64_t n = t % 7 < 6 ? BATCH : N % BATCH;

            for (int64_t l = 0; l < n_shards; l++) {
                weft_batch *b;

                if (weft_dealer_get(a, t, l, &b))
                    fail_msg("%lld shards: %s", (long long)n_shards, weft_error());
                assert_int_equal(b->n, (l + 1) * n / n_shards - l * n / n_shards);
                if (b->n)
                    check_padded(b, t % 7 * BATCH + l * n / n_shards);
                assert_int_equal(b->epoch, t / 7);
                seen += b->n;
                weft_batch_free(b);
            }
            assert_int_equal(weft_dealer_commit(a, t), 0);
        }
        assert_int_equal(seen, 2 * N);
        stop(d, a);
    }
}

/* An epoch may end before the data does, and may be begun at will. */
static void epochs_end_and_begin(make_fn *make)
{
    weft_data *d;
    weft_dealer *a;
    int64_t epoch, number, n, k[2 * BATCH], again[2 * BATCH];
    bool has;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    assert_int_equal(weft_dealer_new(d, make(d, 7),
                                     WEFT_OPTS(weft_dealer_opts, .batch = BATCH, .threads = 2,
                                               .steps_per_epoch = 3, .epoch = 4, .follow = true),
                                     &a),
                     0);
    for (int64_t t = 0; t < 7; t++) {
        assert_int_equal(weft_dealer_has(a, 4 + t / 3, t, &has), 0);
        if (!has) { /* the reader is still at the epoch before */
            assert_int_equal(weft_dealer_has(a, 3 + t / 3, t, &has), 0);
            assert_false(has);
        }
        take(a, t, 0, k, 0);
        assert_int_equal(weft_dealer_step(a, t, &epoch, &number, &n), 0);
        assert_int_equal(epoch, 4 + t / 3);
        assert_int_equal(number, t % 3);
        assert_int_equal(n, BATCH);
        assert_int_equal(weft_dealer_commit(a, t), 0);
        assert_int_equal(weft_dealer_committed(a), t + 1);
    }
    take(a, 7, 0, k, 0); /* step 1 of epoch 6; begun again, it is step 0 of epoch 9 */
    assert_int_equal(weft_dealer_begin(a, 9), 0);
    assert_int_equal(weft_dealer_has(a, 9, 7, &has), 0);
    assert_true(has);
    assert_int_equal(weft_dealer_step(a, 7, &epoch, &number, &n), 0);
    assert_int_equal(epoch, 9);
    assert_int_equal(number, 0);
    take(a, 7, 0, again, 0);
    assert_true(memcmp(k, again, BATCH * 8) != 0);
    assert_int_equal(weft_dealer_has(a, 9, 9, &has), 0);
    assert_true(has);
    assert_int_equal(weft_dealer_has(a, 9, 10, &has), 0);
    assert_false(has);
    stop(d, a);
}

static void epochs_end_and_begin_as_asked(void **state)
{
    (void)state;
    epochs_end_and_begin(shuffled);
    epochs_end_and_begin(streamed);
}

static weft_ds without_end(weft_data *d, uint64_t seed)
{
    return weft_ds_repeat(d, shuffled(d, seed), 0);
}

/* What an iterator over the same batches saved, a dealer continues, with any number of shards. */
static void a_position_of_an_iterator_is_continued(void **state)
{
    static make_fn *const make[] = {shuffled, streamed, without_end};

    (void)state;
    for (int i = 0; i < 3 * 3 * 4; i++) {
        int64_t done = i / 9 * 2, shards = 1 + i / 3 % 3, want[BATCH], got[BATCH], n = 0, m = 0;
        weft_data *d;
        weft_dealer *a;
        weft_iter *it;
        weft_batch *b;
        weft_ds s;
        char *text;

        assert_int_equal(weft_data_new(ctx, &d), 0);
        s = weft_ds_batch(d, make[i % 3](d, 3), BATCH, WEFT_OPTS(weft_batch_opts, .ragged = true));
        assert_int_equal(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .epoch = 2), &it), 0);
        for (int64_t k = 0; k < done; k++) {
            assert_int_equal(weft_iter_next(it, &b), 0);
            weft_batch_free(b);
        }
        assert_int_equal(weft_iter_save(it, &text, &m), 0);
        assert_int_equal(weft_dealer_new(d, s, WEFT_OPTS(weft_dealer_opts, .shards = shards), &a),
                         0);
        if (wf_dealer_restore_iter(a, text, m, 2, done))
            fail_msg("%s", weft_error());
        assert_int_equal(weft_iter_next(it, &b), 0);
        for (; n < b->n; n++)
            want[n] = ((const int64_t *)weft_batch_find(b, "k")->data)[n];
        weft_batch_free(b);
        for (m = 0; shards; shards--)
            m = take(a, done, (1 + i / 3 % 3) - shards, got, m);
        assert_int_equal(m, n);
        assert_memory_equal(got, want, (size_t)n * 8);
        weft_text_free(ctx, text);
        weft_iter_free(it);
        stop(d, a);
    }
}

static void a_dataset_without_samples_has_no_steps(void **state)
{
    weft_data *d;
    weft_dealer *a;
    weft_batch *b;

    (void)state;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    assert_int_equal(
        weft_dealer_new(d, weft_ds_range(d, 0, 0, 1), WEFT_OPTS(weft_dealer_opts, .batch = 4), &a),
        WEFT_OK);
    assert_int_equal(weft_dealer_steps(a), 0);
    assert_int_equal(weft_dealer_get(a, 0, 0, &b), WEFT_ERANGE);
    stop(d, a);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    assert_int_equal(weft_dealer_new(d, weft_ds_take(d, streamed(d, 1), 0),
                                     WEFT_OPTS(weft_dealer_opts, .batch = 4), &a),
                     WEFT_OK);
    assert_int_equal(weft_dealer_get(a, 0, 0, &b), WEFT_ERANGE);
    stop(d, a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_sample_once_an_epoch_for_any_number_of_shards),
        cmocka_unit_test(likewise_from_a_stream),
        cmocka_unit_test(the_order_repeats_with_the_seed),
        cmocka_unit_test(any_order_of_asking_gives_the_same_shards),
        cmocka_unit_test(many_callers_at_once_share_an_epoch),
        cmocka_unit_test(a_restored_dealer_loses_and_repeats_nothing),
        cmocka_unit_test(a_restored_reader_of_a_stream_loses_and_repeats_nothing),
        cmocka_unit_test(a_stream_gives_uncommitted_steps_again_and_no_others),
        cmocka_unit_test(a_position_of_another_job_is_refused),
        cmocka_unit_test(a_shard_is_padded_by_itself),
        cmocka_unit_test(epochs_end_and_begin_as_asked),
        cmocka_unit_test(a_position_of_an_iterator_is_continued),
        cmocka_unit_test(a_dataset_without_samples_has_no_steps),
    };
    int failed;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_ctx_free(ctx);
    return failed;
}
