/* Pipelines: the same elements for any number of threads, from any saved position. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

static weft_ctx *ctx;

/* ---- a table of pipelines -------------------------------------------------------------------- */

#define N 103

static float rows[N][3];
static int64_t labels[N];

static weft_ds table(weft_data *d)
{
    weft_column col[2] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}};
    weft_tensor t[2] = {weft_view(WEFT_F32, rows, 2, (int64_t[]){N, 3}),
                        weft_view(WEFT_I64, labels, 1, (int64_t[]){N})};

    return weft_ds_tensors(d, 2, col, t);
}

/* A stream of N elements: a number, and that many (mod 5) numbers. */
static weft_status stream_next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    int64_t len = id % 5;

    (void)arg;
    if (id == N) {
        *end = true;
        return WEFT_OK;
    }
    *(int64_t *)s->col[0].data = id * 10;
    if (weft_sample_shape(s, 1, 1, &len))
        return WEFT_EINVAL;
    for (int64_t i = 0; i < len; i++)
        ((float *)s->col[1].data)[i] = (float)(id + i);
    return WEFT_OK;
}

static weft_ds stream(weft_data *d)
{
    weft_column col[2] = {{.name = "k", .dtype = WEFT_I64},
                          {.name = "v", .dtype = WEFT_F32, .rank = 1, .dim = {WEFT_ANY}}};

    return weft_ds_stream(d, 2, col, stream_next, NULL);
}

static weft_status odd(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    *keep = (*(int64_t *)in->col[0].data / 10) % 3 != 0;
    return WEFT_OK;
}

static weft_status negate(void *arg, const weft_sample *in, weft_sample *out)
{
    int64_t n = weft_tensor_count(&in->col[1]);

    (void)arg;
    *(int64_t *)out->col[0].data = -*(int64_t *)in->col[0].data;
    if (weft_sample_shape(out, 1, 1, &n))
        return WEFT_ENOMEM;
    for (int64_t i = 0; i < n; i++)
        ((float *)out->col[1].data)[i] = -((float *)in->col[1].data)[i];
    return WEFT_OK;
}

static weft_ds p_table(weft_data *d)
{
    return table(d);
}
static weft_ds p_shuffled_batches(weft_data *d)
{
    weft_ds s = weft_ds_shuffle_all(d, table(d), WEFT_OPTS(weft_shuffle_opts, .seed = 7));

    return weft_ds_batch(d, weft_ds_repeat(d, s, 3), 10, NULL);
}
static weft_ds p_shard_skip_take(weft_data *d)
{
    return weft_ds_take(d, weft_ds_skip(d, weft_ds_shard(d, table(d), 4, 3), 2), 11);
}
static weft_ds p_concat_zip(weft_data *d)
{
    weft_ds s[2] = {table(d), weft_ds_skip(d, table(d), 50)};
    weft_ds z[2] = {weft_ds_concat(d, 2, s), weft_ds_range(d, 100, 1000, 7)};

    return weft_ds_batch(d, weft_ds_enumerate(d, weft_ds_zip(d, 2, z), 5), 16,
                         WEFT_OPTS(weft_batch_opts, .drop_remainder = true));
}
static weft_ds p_stream(weft_data *d)
{
    return stream(d);
}
static weft_ds p_stream_map(weft_data *d)
{
    return weft_ds_map(d, stream(d), 0, NULL, negate, NULL, NULL);
}
static weft_ds p_stream_serial(weft_data *d)
{
    return weft_ds_map(d, stream(d), 0, NULL, negate, NULL,
                       WEFT_OPTS(weft_map_opts, .serial = true));
}
static weft_ds p_stream_ragged(weft_data *d)
{
    return weft_ds_batch(d, weft_ds_repeat(d, stream(d), 2), 8,
                         WEFT_OPTS(weft_batch_opts, .ragged = true));
}
static weft_ds p_stream_filter(weft_data *d)
{
    weft_ds s = weft_ds_filter(d, stream(d), odd, NULL);

    return weft_ds_batch(d, s, 8, WEFT_OPTS(weft_batch_opts, .ragged = true));
}
static weft_ds p_stream_cut(weft_data *d)
{
    weft_ds s = weft_ds_take(d, weft_ds_skip(d, weft_ds_filter(d, stream(d), odd, NULL), 5), 40);

    return weft_ds_shard(d, weft_ds_enumerate(d, s, 0), 3, 1);
}
static weft_ds p_stream_zip(weft_data *d)
{
    weft_ds z[2] = {weft_ds_select(d, stream(d), "k"), weft_ds_prefetch(d, table(d), 5)};

    return weft_ds_prefetch(d, weft_ds_zip(d, 2, z), 3);
}
static weft_ds p_stream_concat(weft_data *d)
{
    weft_ds z[3] = {stream(d), weft_ds_take(d, stream(d), 3), stream(d)};

    return weft_ds_concat(d, 3, z);
}
static weft_ds p_filter_of_table(weft_data *d)
{
    weft_ds s = weft_ds_select(d, table(d), "y, x");

    return weft_ds_batch(d, weft_ds_repeat(d, weft_ds_filter(d, s, odd, NULL), 2), 6, NULL);
}

#define ROW(f, n) \
    {             \
#f, f, n  \
    }
static const struct {
    const char *name;
    weft_ds (*build)(weft_data *);
    int n; /* elements */
} pipelines[] = {
    ROW(p_table, N),
    ROW(p_shuffled_batches, 31),
    ROW(p_shard_skip_take, 11),
    ROW(p_concat_zip, 8),
    ROW(p_stream, N),
    ROW(p_stream_map, N),
    ROW(p_stream_serial, N),
    ROW(p_stream_ragged, 26),
    ROW(p_stream_filter, 9),
    ROW(p_stream_cut, 13),
    ROW(p_stream_zip, N),
    ROW(p_stream_concat, 2 * N + 3),
    ROW(p_filter_of_table, 23),
};
#define N_PIPELINES ((int)(sizeof pipelines / sizeof pipelines[0]))

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)p)[i]) * 0x100000001b3u;
    return h;
}

static uint64_t element_hash(const weft_batch *b)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];

        h = mix(h, t->dim, (size_t)t->rank * 8);
        h = mix(h, t->data, (size_t)weft_tensor_bytes(t));
    }
    h = mix(h, &b->epoch, 8);
    return b->id ? mix(h, b->id, (size_t)b->n * 8) : h;
}

/* Reads up to max elements; their number. */
static int drain(weft_iter *it, uint64_t *hash, int max)
{
    weft_batch *b;
    int n = 0;

    while (n < max) {
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        if (!b)
            break;
        hash[n++] = element_hash(b);
        weft_batch_free(b);
    }
    return n;
}

static weft_iter *open_iter(weft_data *d, weft_ds s, int threads)
{
    weft_iter *it = NULL;
    weft_status st = weft_iter_new(
        d, s, WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it);

    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
    return it;
}

#define MOST 512

static void same_elements_for_any_number_of_threads(void **state)
{
    static const int threads[] = {0, 1, 3};
    uint64_t first[MOST], hash[MOST];

    (void)state;
    for (int p = 0; p < N_PIPELINES; p++) {
        for (int t = 0; t < 3; t++) {
            weft_data *d;
            weft_iter *it;

            assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
            it = open_iter(d, pipelines[p].build(d), threads[t]);
            for (int pass = 0; pass < 2; pass++) {
                int n = drain(it, t || pass ? hash : first, MOST);

                if (n != pipelines[p].n)
                    print_error("%s, %d threads, pass %d: %d elements\n", pipelines[p].name,
                                threads[t], pass, n);
                assert_int_equal(n, pipelines[p].n);
                if (t || pass)
                    assert_memory_equal(first, hash, (size_t)n * sizeof hash[0]);
                assert_int_equal(weft_iter_reset(it, 0), WEFT_OK);
            }
            weft_iter_free(it);
            weft_data_free(d);
        }
    }
}

static void continues_identically_from_every_position(void **state)
{
    static const int threads[] = {0, 2};
    uint64_t all[MOST], rest[MOST];

    (void)state;
    for (int p = 0; p < N_PIPELINES; p++) {
        for (int t = 0; t < 2; t++) {
            weft_data *d, *e;
            weft_iter *it, *again;
            weft_batch *b;
            int n;

            assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
            assert_int_equal(weft_data_new(ctx, &e), WEFT_OK);
            it = open_iter(d, pipelines[p].build(d), threads[t]);
            n = drain(it, all, MOST);
            assert_int_equal(weft_iter_reset(it, 0), WEFT_OK);
            again = open_iter(e, pipelines[p].build(e), threads[t]);
            for (int i = 0; i <= n; i++) {
                char *saved;
                int64_t bytes;

                assert_int_equal(weft_iter_save(it, &saved, &bytes), WEFT_OK);
                assert_int_equal(weft_iter_restore(again, saved, bytes), WEFT_OK);
                if (i % 7 == 3) { /* a restored position can be saved again before it is used */
                    weft_text_free(ctx, saved);
                    assert_int_equal(weft_iter_save(again, &saved, &bytes), WEFT_OK);
                    assert_int_equal(weft_iter_restore(again, saved, bytes), WEFT_OK);
                }
                weft_text_free(ctx, saved);
                assert_int_equal(drain(again, rest, MOST), n - i);
                assert_memory_equal(rest, all + i, (size_t)(n - i) * sizeof all[0]);
                assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
                weft_batch_free(b);
            }
            weft_iter_free(it);
            weft_iter_free(again);
            weft_data_free(d);
            weft_data_free(e);
        }
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void shuffle_all_is_a_permutation_that_changes_with_the_epoch(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 3, 17, 64, 1000};

    (void)state;
    for (int k = 0; k < 7; k++) {
        int64_t n = sizes[k], order[2][1000];
        char seen[1000] = {0};
        weft_data *d;
        weft_iter *it;
        weft_batch *b;

        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        it = open_iter(d, weft_ds_shuffle_all(d, weft_ds_range(d, 0, n, 1), NULL), 2);
        for (int e = 0; e < 2; e++) {
            assert_int_equal(weft_iter_reset(it, e), WEFT_OK);
            for (int64_t i = 0; i < n; i++) {
                assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
                assert_non_null(b);
                order[e][i] = *(int64_t *)b->col[0].data;
                assert_true(order[e][i] >= 0 && order[e][i] < n);
                assert_int_equal(seen[order[e][i]]++, e);
                weft_batch_free(b);
            }
            assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
            assert_null(b);
        }
        if (n > 10)
            assert_memory_not_equal(order[0], order[1], (size_t)n * 8);
        weft_iter_free(it);
        weft_data_free(d);
    }
}

static void consecutive_rows_are_borrowed(void **state)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)state;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    it = open_iter(d, weft_ds_batch(d, table(d), 20, NULL), 1);
    assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
    weft_batch_free(b);
    assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
    assert_ptr_equal(b->col[0].data, rows[20]);
    assert_int_equal(b->n, 20);
    assert_int_equal(b->id[3], 23);
    assert_int_equal(b->column[1].role, WEFT_LABEL);
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static weft_status fails_at_40(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    (void)out;
    return in->id == 40 ? WEFT_EDATA : WEFT_OK;
}

static void an_error_comes_in_its_place_and_stays(void **state)
{
    static const int threads[] = {0, 3};

    (void)state;
    for (int t = 0; t < 2; t++) {
        weft_data *d;
        weft_iter *it;
        weft_batch *b;
        weft_ds s;

        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        s = weft_ds_map(d, table(d), 0, NULL, fails_at_40, NULL,
                        WEFT_OPTS(weft_map_opts, .name = "bad map"));
        it = open_iter(d, weft_ds_batch(d, s, 8, NULL), threads[t]);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
            weft_batch_free(b);
        }
        assert_int_equal(weft_iter_next(it, &b), WEFT_EDATA);
        assert_non_null(strstr(weft_error(), "bad map: sample 40"));
        assert_int_equal(weft_iter_next(it, &b), WEFT_EDATA);
        assert_int_equal(weft_iter_reset(it, 0), WEFT_OK);
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        weft_batch_free(b);
        weft_iter_free(it);
        weft_data_free(d);
    }
}

static void builders_keep_the_first_error(void **state)
{
    weft_data *d;
    weft_iter *it;
    weft_ds s;

    (void)state;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_select(d, table(d), "x, z");
    s = weft_ds_batch(d, s, -4, NULL);
    assert_int_equal(s.id, 0);
    assert_int_equal(weft_iter_new(d, s, NULL, &it), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "no column 'z'"));
    weft_data_free(d);

    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    s = weft_ds_shuffle_all(d, stream(d), NULL);
    assert_int_equal(weft_data_status(d), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "no random access"));
    weft_data_free(d);
}

static void stacking_different_shapes_names_the_column(void **state)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    (void)state;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    it = open_iter(d, weft_ds_batch(d, stream(d), 4, NULL), 1);
    assert_int_equal(weft_iter_next(it, &b), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "column 'v' has elements of different shapes"));
    weft_iter_free(it);
    weft_data_free(d);
}

static void a_position_of_another_pipeline_is_refused(void **state)
{
    weft_data *d;
    weft_iter *a, *b;
    char *saved;
    int64_t n;

    (void)state;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    a = open_iter(d, weft_ds_batch(d, table(d), 4, NULL), 1);
    b = open_iter(d, weft_ds_batch(d, table(d), 5, NULL), 1);
    assert_int_equal(weft_iter_save(a, &saved, &n), WEFT_OK);
    assert_int_equal(weft_iter_restore(b, saved, n), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "batch n=4"));
    for (int64_t cut = 0; cut < n; cut++) /* half a position is an error, never a crash */
        assert_int_not_equal(weft_iter_restore(a, saved, cut), WEFT_OK);
    assert_int_equal(weft_iter_restore(a, saved, n), WEFT_OK);
    weft_text_free(ctx, saved);
    weft_iter_free(a);
    weft_iter_free(b);
    weft_data_free(d);
}

/* ---- unordered, and into a graph ------------------------------------------------------------- */

static weft_ds unordered(weft_data *d)
{
    return weft_ds_map(d, stream(d), 0, NULL, negate, NULL,
                       WEFT_OPTS(weft_map_opts, .unordered = true));
}

/* Marks the elements that the iterator still has; their number. */
static int mark_rest(weft_iter *it, char *seen, int most)
{
    weft_batch *b;
    int n = 0;

    while (n < most) {
        int64_t k;

        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        if (!b)
            break;
        k = -*(const int64_t *)b->col[0].data / 10;
        assert_true(k >= 0 && k < N);
        seen[k]++;
        weft_batch_free(b);
        n++;
    }
    return n;
}

static void an_unordered_map_gives_every_element_once_also_after_a_restore(void **state)
{
    (void)state;
    for (int stop = 0; stop < N; stop += 17) {
        char seen[N] = {0}, *saved;
        weft_data *d, *e;
        weft_iter *it, *again;
        int64_t n;

        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        assert_int_equal(weft_data_new(ctx, &e), WEFT_OK);
        it = open_iter(d, unordered(d), 3);
        again = open_iter(e, unordered(e), 3);
        assert_int_equal(mark_rest(it, seen, stop), stop);
        assert_int_equal(weft_iter_save(it, &saved, &n), WEFT_OK);
        assert_int_equal(weft_iter_restore(again, saved, n), WEFT_OK);
        assert_int_equal(mark_rest(again, seen, N + 1), N - stop);
        for (int k = 0; k < N; k++)
            assert_int_equal(seen[k], 1);
        weft_text_free(ctx, saved);
        weft_iter_free(it);
        weft_iter_free(again);
        weft_data_free(d);
        weft_data_free(e);
    }
}

static void a_batch_feeds_a_graph_by_the_names_of_its_inputs(void **state)
{
    static const char *const names[] = {"y", "x"}, *const wrong[] = {"z"};
    weft_tensor feeds[2], out = {.data = NULL};
    weft_graph *g;
    weft_fn *fn;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_val in[2], sum;

    (void)state;
    assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
    in[0] = weft_placeholder(g, "y", WEFT_I64, 1, (int64_t[]){WEFT_ANY});
    in[1] = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 3});
    sum = weft_add(g, weft_sum(g, in[1], NULL), weft_sum(g, weft_cast(g, in[0], WEFT_F32), NULL));
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in, .n_fetches = 1,
                                           .fetches = &sum),
                                 &fn),
                     WEFT_OK);
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    it = open_iter(d, weft_ds_batch(d, table(d), 4, NULL), 1);
    assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
    assert_int_equal(weft_batch_feeds(b, 2, names, feeds), WEFT_OK);
    assert_int_equal(weft_fn_run(fn, feeds, &out), WEFT_OK);
    assert_true(*(float *)out.data == 66 + 60); /* 0 + … + 11, and 0 + 10 + 20 + 30 */
    assert_int_equal(weft_batch_feeds(b, 1, wrong, feeds), WEFT_ENOENT);
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
    weft_fn_free(fn);
    weft_graph_free(g);
}

/* ---- counters -------------------------------------------------------------------------------- */

/* A clock that runs while it is looked at: a hundredth of a second a look. */
static int64_t slow_clock(void *arg)
{
    return atomic_fetch_add((_Atomic int64_t *)arg, 10000000);
}

static void note_line(void *arg, int level, const char *line)
{
    if (level == WEFT_LOG_WARN)
        snprintf(arg, 256, "%s", line);
}

static weft_status first_of_batch(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    *(int64_t *)out->col[0].data = *(const int64_t *)in->col[0].data;
    return WEFT_OK;
}

/* The memory of what a map reads is used again for what is read ahead; the numbers of its samples
 * are not among it. */
static void a_mapped_batch_keeps_the_numbers_of_its_samples(void **state)
{
    static const weft_column one = {.name = "first", .dtype = WEFT_I64};
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        s = weft_ds_batch(d, weft_ds_range(d, 0, 6000, 1), 7, NULL);
        s = weft_ds_map(d, s, 1, &one, first_of_batch, NULL, NULL);
        assert_int_equal(
            weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = threads, .ahead = 16), &it),
            WEFT_OK);
        for (int64_t at = 0;; at += b->n, weft_batch_free(b)) {
            assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
            if (!b)
                break;
            assert_int_equal(*(const int64_t *)b->col[0].data, at);
            for (int64_t i = 0; i < b->n; i++)
                assert_int_equal(b->id[i], at + i);
        }
        weft_iter_free(it);
        weft_data_free(d);
    }
}

static void a_starving_reader_is_told_which_stage_is_slow(void **state)
{
    _Atomic int64_t clock = 1;
    char said[256] = "";
    double seconds, share;
    weft_stage_stats stats;
    weft_ctx *slow;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .now_ns = slow_clock,
                                            .now_arg = &clock, .log = note_line, .log_arg = said),
                                  &slow),
                     WEFT_OK);
    assert_int_equal(weft_data_new(slow, &d), WEFT_OK);
    s = weft_ds_map(d, stream(d), 0, NULL, negate, NULL,
                    WEFT_OPTS(weft_map_opts, .name = "slow map"));
    it = open_iter(d, weft_ds_repeat(d, s, 0), 0);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        weft_batch_free(b);
    }
    weft_iter_waited(it, &seconds, &share);
    assert_true(seconds > 1 && share > 0.2);
    assert_non_null(strstr(said, "the busiest stage is 'slow map'"));
    assert_int_equal(weft_iter_n_stages(it), 3);
    assert_int_equal(weft_iter_stage(it, 1, &stats), WEFT_OK);
    assert_string_equal(stats.name, "slow map");
    assert_true(stats.n_elements >= 500);
    assert_true(stats.busy_s > 0);
    assert_int_equal(weft_iter_stage(it, 3, &stats), WEFT_ERANGE);
    weft_iter_free(it);
    weft_data_free(d);
    weft_ctx_free(slow);
}

/* ---- threads that do not start --------------------------------------------------------------- */

static void *take_memory(void *arg, size_t bytes, size_t align)
{
    (void)arg;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

/* What was freed says so when it is looked at. */
static void spoil_memory(void *arg, void *p, size_t bytes)
{
    volatile char *c = p;

    (void)arg;
    for (size_t i = 0; i < bytes; i++)
        c[i] = 0x5b;
    free(p);
}

static void a_thread_that_does_not_start_is_named(void **state)
{
    const weft_allocator spoiling = {take_memory, spoil_memory, NULL};
    pthread_attr_t usual, huge;
    weft_ctx *c;
    weft_data *d;
    weft_iter *it = NULL;

    (void)state;
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &spoiling), &c), WEFT_OK);
    assert_int_equal(weft_data_new(c, &d), WEFT_OK);
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 62), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    assert_int_equal(weft_iter_new(d, table(d), WEFT_OPTS(weft_iter_opts, .threads = 3), &it),
                     WEFT_ENOMEM);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_non_null(strstr(weft_error(), "cannot start thread 1 of an iterator's 3 threads"));
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&huge);
    weft_iter_free(it);
    weft_data_free(d);
    weft_ctx_free(c);
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        labels[i] = i * 10;
        for (int k = 0; k < 3; k++)
            rows[i][k] = (float)(i * 3 + k);
    }
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
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
        cmocka_unit_test(same_elements_for_any_number_of_threads),
        cmocka_unit_test(continues_identically_from_every_position),
        cmocka_unit_test(shuffle_all_is_a_permutation_that_changes_with_the_epoch),
        cmocka_unit_test(consecutive_rows_are_borrowed),
        cmocka_unit_test(an_error_comes_in_its_place_and_stays),
        cmocka_unit_test(builders_keep_the_first_error),
        cmocka_unit_test(stacking_different_shapes_names_the_column),
        cmocka_unit_test(a_position_of_another_pipeline_is_refused),
        cmocka_unit_test(an_unordered_map_gives_every_element_once_also_after_a_restore),
        cmocka_unit_test(a_batch_feeds_a_graph_by_the_names_of_its_inputs),
        cmocka_unit_test(a_mapped_batch_keeps_the_numbers_of_its_samples),
        cmocka_unit_test(a_starving_reader_is_told_which_stage_is_slow),
        cmocka_unit_test(a_thread_that_does_not_start_is_named),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
