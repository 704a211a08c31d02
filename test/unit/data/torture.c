/* Random pipelines of all transformations, over addressable datasets and streams: the same
 * elements for any number of threads, and from any saved position on. ctest-timeout: 300 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "weft/data_split.h"
#include "weft/weft.h"

#define N 57
#define MOST 300 /* elements looked at */

static weft_ctx *ctx;
static char folder[] = "torture-XXXXXX";

/* ---- sources: k i64, v f32 [k % 4], t text --------------------------------------------------- */

static weft_status fill(int64_t k, weft_sample *s)
{
    int64_t len = k < 0 ? (-k) % 4 : k % 4;
    char text[64];

    *(int64_t *)s->col[0].data = k;
    if (weft_sample_shape(s, 1, 1, &len))
        return WEFT_ENOMEM;
    for (int64_t i = 0; i < len; i++)
        ((float *)s->col[1].data)[i] = (float)(k * 3 + i);
    snprintf(text, sizeof text, "text %lld", (long long)k);
    return weft_sample_text(s, 2, 0, text, (int64_t)strlen(text));
}

static weft_status get(void *arg, int64_t id, weft_sample *s)
{
    return fill(id + (intptr_t)arg, s);
}

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    *end = id == N;
    return *end ? WEFT_OK : fill(id + (intptr_t)arg, s);
}

static const weft_column columns[3] = {{.name = "k", .dtype = WEFT_I64},
                                       {.name = "v", .dtype = WEFT_F32, .rank = 1, .dim = {-1}},
                                       {.name = "t", .dtype = WEFT_STR}};

static weft_ds source(weft_data *d, uint32_t kind)
{
    return kind % 2 ? weft_ds_get(d, 3, columns, N, get, (void *)(intptr_t)(kind % 7 * 1000))
                    : weft_ds_stream(d, 3, columns, next, (void *)(intptr_t)(kind % 5 * 100));
}

/* ---- transformations that keep the columns --------------------------------------------------- */

struct rng {
    uint64_t x;
};

static uint32_t roll(struct rng *r, uint32_t n)
{
    r->x = r->x * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->x >> 33) % n;
}

static weft_status negate(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    return fill(-*(int64_t *)in->col[0].data - out->id % 3, out);
}

static weft_status some(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    *keep = *(int64_t *)in->col[0].data % 3 != 0;
    return WEFT_OK;
}

static weft_status inner(void *arg, const weft_sample *e, weft_data *d, weft_ds *out)
{
    int64_t k = *(int64_t *)e->col[0].data, n = (k < 0 ? -k : k) % 5;

    (void)arg;
    if (k % 2)
        *out = weft_ds_get(d, 3, columns, n, get, (void *)(intptr_t)(k * 100));
    else
        *out = weft_ds_take(d, weft_ds_stream(d, 3, columns, next, (void *)(intptr_t)(k * 100)), n);
    if (k % 3 == 0)
        *out = weft_ds_shuffle(d, *out, 3, NULL);
    return WEFT_OK;
}

typedef weft_ds op(weft_data *d, weft_ds s, struct rng *r);

static weft_ds o_shuffle(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_shuffle(
        d, s, 1 + roll(r, 40),
        WEFT_OPTS(weft_shuffle_opts, .seed = roll(r, 100), .same_each_epoch = roll(r, 2)));
}
static weft_ds o_shuffle_all(weft_data *d, weft_ds s, struct rng *r)
{
    if (!weft_ds_addressable(d, s))
        return s;
    return weft_ds_shuffle_all(d, s, WEFT_OPTS(weft_shuffle_opts, .seed = roll(r, 100)));
}
static weft_ds o_repeat(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_repeat(d, s, 2 + roll(r, 2));
}
static weft_ds o_take(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_take(d, s, roll(r, 60));
}
static weft_ds o_skip(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_skip(d, s, roll(r, 20));
}
static weft_ds o_shard(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_shard(d, s, 2, roll(r, 2));
}
static weft_ds o_map(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_map(d, s, 0, NULL, negate, NULL,
                       WEFT_OPTS(weft_map_opts, .serial = roll(r, 4) == 0));
}
static weft_ds o_filter(weft_data *d, weft_ds s, struct rng *r)
{
    (void)r;
    return weft_ds_filter(d, s, some, NULL);
}
static weft_ds o_where(weft_data *d, weft_ds s, struct rng *r)
{
    double low = roll(r, 20);

    if (roll(r, 2))
        return weft_ds_where(d, s, "k", WEFT_OPTS(weft_where_opts, .min = &low));
    return weft_ds_where(d, s, "k",
                         WEFT_OPTS(weft_where_opts, .n_values = 3,
                                   .values = (double[]){7, low, 1003}, .others = roll(r, 2)));
}
static weft_ds o_concat(weft_data *d, weft_ds s, struct rng *r)
{
    weft_ds both[2] = {s, source(d, roll(r, 100))};

    return weft_ds_concat(d, 2, both);
}
static weft_ds o_enumerate(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_select(d, weft_ds_enumerate(d, s, roll(r, 10)), "k,v,t");
}
static weft_ds o_zip(weft_data *d, weft_ds s, struct rng *r)
{
    weft_ds both[2] = {s, weft_ds_range(d, 0, 30 + roll(r, 40), 1)};

    return weft_ds_select(d, weft_ds_zip(d, 2, both), "k,v,t");
}
static weft_ds o_prefetch(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_prefetch(d, s, roll(r, 10));
}
static weft_ds o_interleave_n(weft_data *d, weft_ds s, struct rng *r)
{
    weft_ds all[3] = {s, source(d, roll(r, 100)), source(d, roll(r, 100))};

    return weft_ds_interleave_n(d, 1 + (int)roll(r, 3), all, roll(r, 4));
}
static weft_ds o_sample_from(weft_data *d, weft_ds s, struct rng *r)
{
    weft_ds all[3] = {source(d, roll(r, 100)), s, source(d, roll(r, 100))};
    double weights[3] = {roll(r, 5), 1 + roll(r, 5), roll(r, 5)};

    return weft_ds_sample_from(
        d, 3, all, weights,
        WEFT_OPTS(weft_sample_from_opts, .seed = roll(r, 100), .stop_at_first_end = roll(r, 2)));
}
static weft_ds o_sample(weft_data *d, weft_ds s, struct rng *r)
{
    int64_t count = weft_ds_count(d, s);
    bool with = roll(r, 2);

    if (!weft_ds_addressable(d, s) || count == 0 || count > 10000)
        return s;
    return weft_ds_sample(d, s, with ? 40 : count / 2,
                          WEFT_OPTS(weft_sample_opts, .seed = roll(r, 100), .replacement = with));
}
static weft_ds o_flat_map(weft_data *d, weft_ds s, struct rng *r)
{
    (void)r;
    return weft_ds_flat_map(d, s, 3, columns, inner, NULL);
}
static weft_ds o_interleave(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_interleave(d, s, 3, columns, inner, NULL,
                              WEFT_OPTS(weft_interleave_opts, .cycle_length = 1 + roll(r, 4),
                                        .block_length = 1 + roll(r, 3)));
}
static int n_files;
static weft_ds o_cache(weft_data *d, weft_ds s, struct rng *r)
{
    char path[256];

    snprintf(path, sizeof path, "%s/cache-%d", folder, n_files++);
    return weft_ds_cache(d, s,
                         WEFT_OPTS(weft_cache_opts, .in = (weft_cache_in)roll(r, 3), .path = path));
}
static weft_ds o_snapshot(weft_data *d, weft_ds s, struct rng *r)
{
    char path[256];

    snprintf(path, sizeof path, "%s/snapshot-%u", folder, roll(r, 1000000));
    return weft_ds_snapshot(d, s, path, NULL);
}
static weft_ds o_holdout(weft_data *d, weft_ds s, struct rng *r)
{
    weft_ds a = s, b = s;

    if (weft_ds_count(d, s) == WEFT_ENDLESS)
        return s;
    weft_ds_holdout(d, s, 0.3, WEFT_OPTS(weft_holdout_opts, .hashed = true, .seed = roll(r, 100)),
                    &a, &b);
    return roll(r, 2) ? a : b;
}

static weft_ds o_features(weft_data *d, weft_ds s, struct rng *r)
{
    s = weft_ds_clip(d, weft_ds_fill(d, s, "v", 1), "v", -1000, roll(r, 100));
    return weft_ds_rescale(d, s, "v", 0.5, 1, WEFT_F32);
}

static op *const ops[] = {o_shuffle,     o_shuffle_all, o_repeat,  o_take,     o_skip,
                          o_shard,       o_map,         o_filter,  o_concat,   o_enumerate,
                          o_zip,         o_prefetch,    o_cache,   o_snapshot, o_interleave_n,
                          o_sample_from, o_sample,      o_holdout, o_flat_map, o_interleave,
                          o_features,    o_where};

/* ---- transformations at the end -------------------------------------------------------------- */

static weft_ds e_none(weft_data *d, weft_ds s, struct rng *r)
{
    (void)d;
    (void)r;
    return s;
}
static weft_ds e_ragged(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_batch(d, s, 1 + roll(r, 9),
                         WEFT_OPTS(weft_batch_opts, .ragged = true, .drop_remainder = roll(r, 2)));
}
static weft_ds e_padded(weft_data *d, weft_ds s, struct rng *r)
{
    weft_pad_column pad = {.column = "v", .value = -7, .length = {roll(r, 2) ? 5 : 0}};

    return weft_ds_padded_batch(d, s, 1 + roll(r, 9),
                                WEFT_OPTS(weft_padded_batch_opts, .n_pads = 1, .pads = &pad,
                                          .lengths = roll(r, 2), .drop_remainder = roll(r, 2)));
}
static weft_ds e_bucket(weft_data *d, weft_ds s, struct rng *r)
{
    int64_t bounds[2] = {1, 3}, sizes[3] = {1 + roll(r, 5), 1 + roll(r, 5), 1 + roll(r, 5)};

    return weft_ds_bucket_by_length(d, s, "v", 2, bounds, sizes, NULL);
}
static weft_ds e_window(weft_data *d, weft_ds s, struct rng *r)
{
    return weft_ds_window(d, weft_ds_select(d, s, "k, t"), 1 + roll(r, 5),
                          WEFT_OPTS(weft_window_opts, .shift = 1 + roll(r, 6),
                                    .stride = 1 + roll(r, 3), .drop_remainder = roll(r, 2)));
}
/* What was, and what comes next. */
static weft_ds e_next(weft_data *d, weft_ds s, struct rng *r)
{
    int64_t n = 2 + roll(r, 5);

    s = weft_ds_cross(d, weft_ds_select(d, s, "k, t"), "t, k", 1000, roll(r, 100), "both");
    s = weft_ds_window(
        d, s, n, WEFT_OPTS(weft_window_opts, .shift = 1 + roll(r, 6), .drop_remainder = true));
    s = weft_ds_slice(d, weft_ds_copy(d, s, "k", "next"), "next, t", 1, 0);
    return weft_ds_slice(d, s, "k", 0, n - 1);
}
static weft_ds e_unbatch(weft_data *d, weft_ds s, struct rng *r)
{
    bool drop = roll(r, 2);

    s = weft_ds_padded_batch(d, s, 1 + roll(r, 7),
                             WEFT_OPTS(weft_padded_batch_opts, .drop_remainder = drop));
    return weft_ds_unbatch(d, s);
}
static weft_ds e_rebatch(weft_data *d, weft_ds s, struct rng *r)
{
    s = e_padded(d, s, r);
    s = weft_ds_shuffle(d, s, 4, NULL);
    return weft_ds_batch(d, weft_ds_select(d, weft_ds_unbatch(d, s), "t, k"), 1 + roll(r, 6), NULL);
}

static op *const ends[] = {e_none,   e_ragged, e_padded,  e_bucket,
                           e_window, e_next,   e_unbatch, e_rebatch};

/* The same pipeline for the same seed: of samples, and of what is made of them at the end. */
static weft_ds samples(weft_data *d, struct rng *r)
{
    int depth = 1 + (int)roll(r, 4);
    weft_ds s = source(d, roll(r, 100));

    for (int i = 0; i < depth; i++)
        s = ops[roll(r, WF_COUNT(ops))](d, s, r);
    return s;
}

static weft_ds recipe(weft_data *d, uint64_t seed)
{
    struct rng r = {seed * 7919 + 17};
    weft_ds s = samples(d, &r);

    return ends[roll(&r, WF_COUNT(ends))](d, s, &r);
}

/* ---- what comes out -------------------------------------------------------------------------- */

static uint64_t print_of(const weft_batch *b)
{
    uint64_t h = (uint64_t)b->epoch * 31 + (uint64_t)b->n;

    for (int64_t i = 0; i < b->n && b->id; i++)
        h = h * 1099511628211u + (uint64_t)b->id[i];
    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];
        int64_t n = weft_tensor_count(t);

        h = wf_hash64(t->dim, (size_t)t->rank * 8, h);
        if (t->dtype != WEFT_STR)
            h = wf_hash64(t->data, (size_t)(n * weft_dtype_size(t->dtype)), h);
        for (int64_t i = 0; i < n && t->dtype == WEFT_STR; i++)
            h = wf_hash64(((const weft_str *)t->data)[i].data,
                          (size_t)((const weft_str *)t->data)[i].n, h);
    }
    return h;
}

static weft_ds made;                   /* of the last pipeline */
static const char *phase = "at first"; /* what is being done with it */

static weft_data *make(uint64_t seed, int threads, weft_iter **it)
{
    weft_data *d;
    weft_ds s;
    weft_status st;

    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    n_files = 0;
    s = made = recipe(d, seed);
    st = weft_iter_new(
        d, s,
        WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO, .memory = 8 << 20), it);
    if (st) {
        char *text = NULL;

        weft_ds_text(d, s, &text);
        fail_msg("pipeline %llu: %s\n%s", (unsigned long long)seed, weft_error(), text ? text : "");
    }
    return d;
}

static void fail_at(weft_data *d, uint64_t seed, int64_t i, const char *what)
{
    char *text = NULL, error[512];

    snprintf(error, sizeof error, "%s", weft_error());
    weft_ds_text(d, made, &text);
    fail_msg("pipeline %llu, %s, element %lld: %s (%s)\n%s", (unsigned long long)seed, phase,
             (long long)i, what, error, text ? text : "");
}

/* Two passes, at most MOST elements; the number of elements. Compared with `want` from element
 * `first` on, unless NULL. */
static int64_t drain(weft_data *d, weft_iter *it, uint64_t seed, int64_t first, int64_t until,
                     int *epoch, const uint64_t *want, int64_t n_want, uint64_t *prints)
{
    int64_t i = first;
    weft_batch *b;

    while (i < until) {
        if (weft_iter_next(it, &b))
            fail_at(d, seed, i, "an error");
        if (!b && *epoch == 1)
            break;
        if (!b) {
            *epoch = 1;
            if (weft_iter_reset(it, 1))
                fail_at(d, seed, i, "a reset failed");
            continue;
        }
        if (want && i >= n_want)
            fail_at(d, seed, i, "too many elements");
        if (want && print_of(b) != want[i])
            fail_at(d, seed, i, "another element");
        if (prints)
            prints[i] = print_of(b);
        i++;
        weft_batch_free(b);
    }
    return i;
}

static void one_pipeline(uint64_t seed, int n_restores)
{
    static const int threads[] = {0, 1, 3};
    uint64_t prints[MOST];
    struct rng r = {seed ^ 0x5a5a};
    weft_iter *it;
    int epoch = 0;
    weft_data *d = make(seed, 0, &it);
    int64_t n = drain(d, it, seed, 0, MOST, &epoch, NULL, 0, prints), at, m;

    weft_iter_free(it);
    weft_data_free(d);
    for (int k = 0; k < WF_COUNT(threads); k++) {
        phase = "with threads";
        d = make(seed, threads[k], &it);
        epoch = 0;
        m = drain(d, it, seed, 0, MOST, &epoch, prints, n, NULL);
        if (m != n)
            fail_at(d, seed, m, "too few elements");
        weft_iter_free(it);
        weft_data_free(d);
        for (int i = 0; i < n_restores; i++) {
            char *state = NULL;
            int64_t n_state = 0;
            int epoch2;

            phase = "before saving";
            d = make(seed, threads[k], &it);
            epoch = 0;
            at = drain(d, it, seed, 0, roll(&r, (uint32_t)n + 1), &epoch, prints, n, NULL);
            if (weft_iter_save(it, &state, &n_state))
                fail_at(d, seed, at, "save failed");
            epoch2 = epoch;
            phase = "after saving";
            /* Saving disturbs nothing, and another process continues with the same elements. */
            m = drain(d, it, seed, at, MOST, &epoch, prints, n, NULL);
            if (m != n)
                fail_at(d, seed, m, "too few elements after saving");
            phase = "restored";
            if (roll(&r, 2)) {
                phase = "restored elsewhere";
                weft_iter_free(it);
                weft_data_free(d);
                d = make(seed, threads[(k + i) % 3], &it);
            }
            if (weft_iter_restore(it, state, n_state))
                fail_at(d, seed, at, "restore failed");
            m = drain(d, it, seed, at, MOST, &epoch2, prints, n, NULL);
            if (m != n)
                fail_at(d, seed, m, "too few elements after restoring");
            weft_text_free(ctx, state);
            weft_iter_free(it);
            weft_data_free(d);
        }
    }
}

static void every_pipeline_gives_the_same_elements_and_resumes(void **state)
{
    const char *one = getenv("TORTURE_SEED"), *many = getenv("TORTURE_COUNT");
    int count = many ? atoi(many) : getenv("WEFT_TEST_QUICK") ? 60 : 300;

    (void)state;
    if (one) {
        weft_iter *it;
        weft_data *d = make((uint64_t)atoll(one), 0, &it);
        char *text = NULL;

        weft_ds_text(d, made, &text);
        print_message("%s", text);
        weft_text_free(ctx, text);
        weft_iter_free(it);
        weft_data_free(d);
        one_pipeline((uint64_t)atoll(one), 6);
        return;
    }
    for (int seed = 0; seed < count; seed++)
        one_pipeline((uint64_t)seed, 2);
}

/* ---- the dealer ------------------------------------------------------------------------------ */

/* The first column of the samples of two epochs, one by one. */
static int64_t keys_of_iterator(weft_data *d, weft_ds s, int64_t *k, int64_t *n_first)
{
    weft_iter *it;
    weft_batch *b;
    int64_t n = 0;
    int epoch = 0;

    assert_int_equal(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = 2), &it), WEFT_OK);
    while (n < MOST) {
        assert_int_equal(weft_iter_next(it, &b), WEFT_OK);
        if (!b && epoch)
            break;
        if (!b) {
            *n_first = n;
            assert_int_equal(weft_iter_reset(it, ++epoch), WEFT_OK);
            continue;
        }
        k[n++] = *(const int64_t *)b->col[0].data;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    return n;
}

static int64_t keys_of_dealer(weft_dealer *a, int64_t n_shards, int64_t most, int64_t *k)
{
    weft_batch *b;
    int64_t n = 0;

    for (int64_t t = 0; n < most; t++) {
        for (int64_t l = 0; l < n_shards; l++) {
            if (weft_dealer_get(a, t, l, &b))
                fail_msg("step %lld: %s", (long long)t, weft_error());
            for (int64_t i = 0; i < b->n; i++)
                if (n < most)
                    k[n++] = ((const int64_t *)b->col[0].data)[i];
            weft_batch_free(b);
        }
        assert_int_equal(weft_dealer_commit(a, t), WEFT_OK);
    }
    return n;
}

static void a_dealer_deals_what_an_iterator_gives(void **state)
{
    int count = getenv("WEFT_TEST_QUICK") ? 40 : 200;

    (void)state;
    for (int seed = 0; seed < count; seed++) {
        struct rng r = {(uint64_t)seed * 7919 + 17};
        int64_t want[MOST], got[MOST], n, n_first = 0, n_shards = 1 + seed % 5;
        weft_data *d;
        weft_dealer *a;
        weft_ds s;

        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        n_files = 0;
        s = samples(d, &r);
        n = keys_of_iterator(d, s, want, &n_first);
        if (weft_dealer_new(d, s,
                            WEFT_OPTS(weft_dealer_opts, .batch = 1 + seed % 13, .shards = n_shards,
                                      .threads = 1 + seed % 3),
                            &a))
            fail_msg("%s", weft_error());
        /* An epoch without samples ends it: where there is one, look no further. */
        if (n_first == 0 && n < MOST)
            n = 0;
        keys_of_dealer(a, n_shards, n, got);
        assert_memory_equal(got, want, (size_t)n * 8);
        weft_dealer_free(a);
        weft_data_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pipeline_gives_the_same_elements_and_resumes),
        cmocka_unit_test(a_dealer_deals_what_an_iterator_gives),
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
