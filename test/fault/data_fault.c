/* data_fault.c - every allocation of building and running a pipeline fails in turn, and every
 * call of the file system under a snapshot.
 * Whatever fails: a clear status, nothing leaked, and the next try with enough memory works.
 * ctest-timeout: 300 */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "weft/weft.h"

#include "../support/counting.h"

#define N 23

static char folder[] = "data-fault-XXXXXX";

/* ---- sources --------------------------------------------------------------------------------- */

static weft_status fill(int64_t k, weft_sample *s)
{
    int64_t n = k % 4;
    char text[24];
    weft_status st;

    *(int64_t *)s->col[0].data = k;
    st = weft_sample_shape(s, 1, 1, &n);
    if (st)
        return st;
    for (int64_t i = 0; i < n; i++)
        ((float *)s->col[1].data)[i] = (float)(k + i);
    snprintf(text, sizeof text, "t%d", (int)(k % 5));
    return weft_sample_text(s, 2, 0, text, (int64_t)strlen(text));
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

static const weft_column columns[3] = {{.name = "k", .dtype = WEFT_I64},
                                       {.name = "v", .dtype = WEFT_F32, .rank = 1, .dim = {-1}},
                                       {.name = "t", .dtype = WEFT_STR}};

static weft_ds by_number(weft_data *d)
{
    return weft_ds_get(d, 3, columns, N, get, NULL);
}

static weft_ds stream(weft_data *d)
{
    return weft_ds_stream(d, 3, columns, next, NULL);
}

/* ---- pipelines ------------------------------------------------------------------------------- */

static weft_status inner(void *arg, const weft_sample *e, weft_data *d, weft_ds *out)
{
    int64_t k = *(const int64_t *)e->col[0].data;

    (void)arg;
    *out = weft_ds_take(d, k % 2 ? stream(d) : by_number(d), k % 3);
    return weft_data_status(d);
}

static weft_status negate(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    return fill(100 - *(const int64_t *)in->col[0].data, out);
}

static weft_ds p_shuffle(weft_data *d)
{
    weft_ds s = weft_ds_map(d, stream(d), 0, NULL, negate, NULL, NULL);

    return weft_ds_padded_batch(d, weft_ds_shuffle(d, s, 7, NULL), 4, NULL);
}
static weft_ds p_numbers(weft_data *d)
{
    weft_ds s = weft_ds_shuffle(d, by_number(d), 7, NULL);

    return weft_ds_bucket_by_length(d, s, "v", 1, (int64_t[]){2}, (int64_t[]){3, 2}, NULL);
}
static weft_ds p_windows(weft_data *d)
{
    weft_ds s = weft_ds_select(d, stream(d), "k, t");

    s = weft_ds_window(d, s, 3, WEFT_OPTS(weft_window_opts, .shift = 2));
    return weft_ds_batch(d, weft_ds_unbatch(d, s), 5, NULL);
}
static weft_ds p_windows_by_number(weft_data *d)
{
    weft_ds s = weft_ds_window(d, weft_ds_select(d, by_number(d), "k, t"), 2,
                               WEFT_OPTS(weft_window_opts, .drop_remainder = true));

    return weft_ds_shuffle_all(d, weft_ds_unbatch(d, s), NULL);
}
static weft_ds p_mix(weft_data *d)
{
    weft_ds s[3] = {stream(d), by_number(d), weft_ds_sample(d, by_number(d), 10, NULL)};
    weft_ds t[2] = {weft_ds_interleave_n(d, 3, s, 2),
                    weft_ds_sample_from(d, 3, s, (double[]){1, 2, 1}, NULL)};

    return weft_ds_concat(d, 2, t);
}
static weft_ds p_inner(weft_data *d)
{
    return weft_ds_interleave(d, by_number(d), 3, columns, inner, NULL,
                              WEFT_OPTS(weft_interleave_opts, .cycle_length = 2));
}
static weft_ds p_cache(weft_data *d)
{
    return weft_ds_repeat(d, weft_ds_cache(d, stream(d), NULL), 2);
}
static weft_ds p_cache_by_number(weft_data *d)
{
    return weft_ds_repeat(d, weft_ds_cache(d, by_number(d), NULL), 2);
}
static weft_ds p_snapshot(weft_data *d)
{
    char path[64];

    snprintf(path, sizeof path, "%s/stream", folder);
    return weft_ds_repeat(d, weft_ds_snapshot(d, stream(d), path, NULL), 2);
}
static weft_ds p_snapshot_by_number(weft_data *d)
{
    char path[64];

    snprintf(path, sizeof path, "%s/number", folder);
    return weft_ds_repeat(d, weft_ds_snapshot(d, by_number(d), path, NULL), 2);
}
static weft_ds p_features(weft_data *d)
{
    weft_ds s = weft_ds_hash(d, weft_ds_clip(d, by_number(d), "v", 0, 9), "t", 100, 0), a, b;

    s = weft_ds_one_hot(d, weft_ds_bucketize(d, s, "v", 2, (double[]){3, 7}), "v", 3, NULL);
    s = weft_ds_join(d, s, "t, k", "all", WEFT_F32);
    if (weft_ds_holdout(d, s, 0.3, WEFT_OPTS(weft_holdout_opts, .hashed = true), &a, &b))
        return (weft_ds){0};
    return a;
}

static weft_ds p_next(weft_data *d)
{
    weft_ds s = weft_ds_cross(d, weft_ds_select(d, by_number(d), "k, t"), "t, k", 50, 0, "both");

    s = weft_ds_window(d, s, 3,
                       WEFT_OPTS(weft_window_opts, .shift = 1)); /* the last ones are short */
    s = weft_ds_slice(d, weft_ds_copy(d, s, "k", "next"), "next", -1, 0);
    return weft_ds_slice(d, s, "k, t", 0, 1);
}

static weft_ds p_named(weft_data *d)
{
    weft_ds s = weft_ds_stage(d, by_number(d), "hash", "columns=t buckets=9 seed=1", NULL);

    s = weft_ds_stage(d, s, "one_hot", "columns=t", NULL);
    s = weft_ds_stage(d, s, "cache", "in=auto path=named",
                      WEFT_OPTS(weft_stage_opts, .dir = folder));
    return weft_ds_stage(d, s, "padded_batch", "size=4 columns=v value=2 length=[4]", NULL);
}

static weft_ds (*const pipelines[])(weft_data *) = {
    p_shuffle,  p_numbers, p_windows,         p_windows_by_number, p_mix,
    p_inner,    p_cache,   p_cache_by_number, p_snapshot,          p_snapshot_by_number,
    p_features, p_next,    p_named,
};

/* ---- a life ---------------------------------------------------------------------------------- */

static weft_status read_some(weft_iter *it, int64_t n, int64_t *got)
{
    weft_batch *b = NULL;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && !st; i++) {
        st = weft_iter_next(it, &b);
        if (st || !b)
            break;
        weft_batch_free(b);
        ++*got;
    }
    return st;
}

static weft_status run(weft_ctx *ctx, weft_data *d, int which, int threads, int64_t *got)
{
    weft_iter *it = NULL;
    char *state = NULL;
    int64_t n = 0;
    weft_ds s = pipelines[which](d);
    weft_status st = weft_iter_new(
        d, s, WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it);

    if (!st)
        st = read_some(it, 5, got);
    if (!st)
        st = weft_iter_save(it, &state, &n);
    if (!st)
        st = read_some(it, 2, got);
    if (!st)
        st = weft_iter_restore(it, state, n);
    if (!st)
        st = read_some(it, 1000, got);
    weft_text_free(ctx, state);
    weft_iter_free(it);
    return st;
}

static weft_status features_of_data(weft_ctx *ctx, weft_data *d)
{
    weft_stats *stats = NULL, *again = NULL;
    weft_vocab *vocab = NULL;
    weft_dealer *dealer = NULL;
    weft_batch *b = NULL;
    char path[64], *state = NULL;
    int64_t n = 0, got = 0;
    weft_iter *it = NULL;
    weft_status st =
        weft_ds_stats(d, by_number(d), WEFT_OPTS(weft_stats_opts, .threads = WEFT_ZERO), &stats);

    snprintf(path, sizeof path, "%s/stats", folder);
    if (!st)
        st = weft_stats_write(stats, path);
    if (!st)
        st = weft_stats_read(ctx, path, &again);
    if (!st)
        st = weft_vocab_count(d, stream(d), "t", WEFT_OPTS(weft_vocab_opts, .threads = WEFT_ZERO),
                              &vocab);
    if (!st)
        st = weft_iter_new(
            d,
            weft_ds_lookup(d, weft_ds_standardize(d, by_number(d), "v", again), "t", vocab, NULL),
            WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
    if (!st)
        st = read_some(it, 100, &got);
    if (!st)
        st = weft_dealer_new(
            d, stream(d),
            WEFT_OPTS(weft_dealer_opts, .batch = 4, .shards = 2, .threads = WEFT_ZERO), &dealer);
    for (int64_t t = 0; t < 8 && !st; t++) {
        st = weft_dealer_get(dealer, t, 1, &b);
        if (!st)
            weft_batch_free(b);
    }
    if (!st)
        st = weft_dealer_save(dealer, &state, &n);
    if (!st)
        st = weft_dealer_restore(dealer, state, n);
    weft_text_free(ctx, state);
    weft_dealer_free(dealer);
    weft_iter_free(it);
    weft_vocab_free(vocab);
    weft_stats_free(stats);
    weft_stats_free(again);
    return st;
}

/* Stages that learn, by name; and their numbers into files. */
static weft_status learned_by_name(weft_ctx *ctx, weft_data *d)
{
    static const char *const names[] = {"out.npz", "out.csv", "out.tfrecord"};
    weft_learned *l = NULL;
    const weft_column *col;
    weft_ds s = {0};
    int n;
    weft_status st = weft_learned_new(ctx, &l);

    if (!st) {
        s = weft_ds_stage(d, by_number(d), "lookup", "columns=t top=3",
                          WEFT_OPTS(weft_stage_opts, .learned = l));
        s = weft_ds_stage(d, weft_ds_select(d, s, "k, t"), "standardize", "columns=k",
                          WEFT_OPTS(weft_stage_opts, .learned = l));
        st = weft_ds_columns(d, s, &n, &col);
    }
    for (int i = 0; i < 3 && !st; i++) {
        weft_file_writer *w = NULL;
        weft_iter *it = NULL;
        weft_batch *b = NULL;
        char path[64];

        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        st = weft_file_writer_new(ctx, path, n, col, &w);
        if (!st)
            st = weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);
        while (!st && !(st = weft_iter_next(it, &b)) && b) {
            st = weft_file_writer_add(w, b->col);
            weft_batch_free(b);
        }
        weft_iter_free(it);
        if (st)
            weft_file_writer_free(w);
        else
            st = weft_file_writer_close(w);
        unlink(path);
    }
    weft_learned_free(l);
    return st;
}

/* Two steps of a dealer in three shards, its position, and another epoch. */
static weft_status deal_steps(weft_ctx *ctx, weft_data *d, weft_ds s, int threads, int64_t *got)
{
    weft_dealer *a = NULL;
    char *state = NULL;
    int64_t n = 0;
    bool has = false;
    weft_status st = weft_dealer_new(d, s,
                                     WEFT_OPTS(weft_dealer_opts, .shards = 3, .follow = true,
                                               .threads = threads ? threads : WEFT_ZERO),
                                     &a);

    for (int64_t t = 0; t < 3 && !st; t++) {
        st = weft_dealer_has(a, t / 2, t, &has);
        for (int64_t l = 0; l < 3 && !st; l++) {
            weft_batch *b;

            st = weft_dealer_get(a, t, l, &b);
            if (!st) {
                *got += b->n;
                weft_batch_free(b);
            }
        }
        if (!st && t < 2)
            st = weft_dealer_commit(a, t);
        if (!st && t == 1)
            st = weft_dealer_begin(a, 1);
    }
    if (!st)
        st = weft_dealer_save(a, &state, &n);
    if (!st)
        st = weft_dealer_restore(a, state, n);
    weft_text_free(ctx, state);
    weft_dealer_free(a);
    return st;
}

/* By number, from a stream, and with a stage over whole batches. */
static weft_status deal_all(weft_ctx *ctx, weft_data *d, int threads, int64_t *got)
{
    weft_ds s = weft_ds_padded_batch(d, by_number(d), 7, NULL);
    weft_status st = deal_steps(ctx, d, weft_ds_select(d, s, "v, k"), threads, got);

    if (!st)
        st = deal_steps(ctx, d, weft_ds_padded_batch(d, stream(d), 7, NULL), threads, got);
    s = weft_ds_batch(d, weft_ds_select(d, by_number(d), "k, t"), 7, NULL);
    if (!st)
        st = deal_steps(ctx, d, weft_ds_shuffle(d, s, 2, NULL), threads, got);
    return st;
}

/* which: a pipeline, or -1, -2 or -3. */
static weft_status whole_life(const weft_allocator *mem, int which, int threads, int64_t *got)
{
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = mem), &ctx);

    *got = 0;
    if (!st)
        st = weft_data_new(ctx, &d);
    if (!st)
        st = which == -1   ? features_of_data(ctx, d)
             : which == -2 ? learned_by_name(ctx, d)
             : which == -3 ? deal_all(ctx, d, threads, got)
                           : run(ctx, d, which, threads, got);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return st;
}

static void forget_files(void)
{
    char path[64];

    snprintf(path, sizeof path, "%s/stream", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/number", folder);
    unlink(path);
}

static void fail_each(int which, int threads, bool sticky)
{
    int64_t total, want, got, step;
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);

    forget_files();
    assert_int_equal(whole_life(&mem, which, threads, &want), WEFT_OK);
    assert_int_equal(c.n_live, 0);
    total = c.n_allocs;
    assert_true(total > 30);
    /* With threads the order of allocations changes from run to run: a sample of them will do. */
    step = threads ? total / 60 + 1 : getenv("WEFT_TEST_QUICK") ? 7 : 1;
    for (int64_t i = 1; i <= total; i += step) {
        weft_status st;

        forget_files();
        c = (struct counting){.fail_at = i, .sticky = sticky};
        st = whole_life(&mem, which, threads, &got);
        if (c.n_live)
            fail_msg("pipeline %d: allocation %lld of %lld failed: %lld blocks are left (%s)",
                     which, (long long)i, (long long)total, (long long)c.n_live, weft_error());
        /* A cache may do without what it could not keep; reading ahead may be cut short. */
        if (st == WEFT_OK && (threads || got == want))
            continue;
        if (st != WEFT_ENOMEM || !strstr(weft_error(), "out of memory"))
            fail_msg("pipeline %d: allocation %lld of %lld failed: got %s, %lld elements (%s)",
                     which, (long long)i, (long long)total, weft_status_name(st), (long long)got,
                     weft_error());
    }
    forget_files();
    c = (struct counting){0};
    assert_int_equal(whole_life(&mem, which, threads, &got), WEFT_OK);
    assert_int_equal(got, want);
}

static void each_allocation_may_fail_once(void **state)
{
    (void)state;
    for (int i = -3; i < (int)(sizeof pipelines / sizeof *pipelines); i++)
        fail_each(i, 0, false);
}

static void each_allocation_may_be_the_last(void **state)
{
    (void)state;
    for (int i = -3; i < (int)(sizeof pipelines / sizeof *pipelines); i++)
        fail_each(i, 0, true);
}

static void allocations_of_threads_may_fail(void **state)
{
    (void)state;
    fail_each(-3, 2, false);
    fail_each(-3, 2, true);
    for (int i = 0; i < (int)(sizeof pipelines / sizeof *pipelines); i++) {
        fail_each(i, 2, false);
        fail_each(i, 2, true);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

/* The n-th call of the file system fails. Both pipelines of snapshots are read by the caller's
 * thread alone. */
static struct {
    int64_t n_calls, fail_at;
    int error;
} disk;

static bool fails(void)
{
    return ++disk.n_calls == disk.fail_at;
}

static int f_open(void *arg, const char *path, int flags, int mode)
{
    return fails() ? -disk.error : wf_fs_posix.open(arg, path, flags, mode);
}
static int64_t f_write(void *arg, int fd, const void *buf, int64_t n)
{
    return fails() ? -disk.error : wf_fs_posix.write(arg, fd, buf, n);
}
static int64_t f_pread(void *arg, int fd, void *buf, int64_t n, int64_t offset)
{
    return fails() ? -disk.error : wf_fs_posix.pread(arg, fd, buf, n, offset);
}
static int64_t f_size(void *arg, int fd)
{
    return fails() ? -disk.error : wf_fs_posix.size(arg, fd);
}
static int f_sync(void *arg, int fd)
{
    return fails() ? -disk.error : wf_fs_posix.sync(arg, fd);
}
static int f_rename(void *arg, const char *from, const char *to)
{
    return fails() ? -disk.error : wf_fs_posix.rename(arg, from, to);
}
static int f_open_at(void *arg, int dir, const char *name, int flags, int mode)
{
    return fails() ? -disk.error : wf_fs_posix.open_at(arg, dir, name, flags, mode);
}
static int f_rename_at(void *arg, int dir, const char *from, const char *to)
{
    return fails() ? -disk.error : wf_fs_posix.rename_at(arg, dir, from, to);
}

/* Two passes over a snapshot on this disk: the sum of the keys. */
static int64_t passes(weft_ds (*pipeline)(weft_data *))
{
    struct wf_fs fs = wf_fs_posix;
    weft_ctx *ctx;
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    int64_t sum = 0;

    fs.open = f_open;
    fs.write = f_write;
    fs.pread = f_pread;
    fs.size = f_size;
    fs.sync = f_sync;
    fs.rename = f_rename;
    fs.open_at = f_open_at;
    fs.rename_at = f_rename_at;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    ctx->fs = &fs;
    assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
    if (weft_iter_new(d, pipeline(d), WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it))
        fail_msg("%s", weft_error());
    for (;;) {
        if (weft_iter_next(it, &b))
            fail_msg("call %lld: %s", (long long)disk.fail_at, weft_error());
        if (!b)
            break;
        sum = (int64_t)((uint64_t)sum * 31 + *(const uint64_t *)b->col[0].data);
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return sum;
}

static void a_disk_that_fails_costs_the_snapshot_never_an_element(void **state)
{
    static weft_ds (*const both[])(weft_data *) = {p_snapshot, p_snapshot_by_number};
    static const int errors[] = {EIO, ENOSPC};

    (void)state;
    for (int i = 0; i < 4; i++) {
        int64_t want, total;

        disk.fail_at = disk.n_calls = 0;
        disk.error = errors[i / 2];
        forget_files();
        want = passes(both[i % 2]);
        total = disk.n_calls;
        for (int64_t n = 1; n <= total; n++) {
            forget_files();
            disk.n_calls = 0;
            disk.fail_at = n;
            assert_int_equal(passes(both[i % 2]), want); /* while it is made */
            disk.fail_at = 0;
            assert_int_equal(passes(both[i % 2]), want); /* whatever is left of it */
            disk.n_calls = 0;
            disk.fail_at = n;
            assert_int_equal(passes(both[i % 2]), want); /* while it is read */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_may_fail_once),
        cmocka_unit_test(each_allocation_may_be_the_last),
        cmocka_unit_test(allocations_of_threads_may_fail),
        cmocka_unit_test(a_disk_that_fails_costs_the_snapshot_never_an_element),
    };
    char command[64];
    int failed;

    if (!mkdtemp(folder))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) ? 1 : failed;
}
