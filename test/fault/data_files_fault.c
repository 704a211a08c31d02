/* data_files_fault.c - every allocation of building and running pipelines over arrays and images
 * fails in turn. Whatever fails: a status that says so, and nothing leaked. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "../support/counting.h"
#include "base/base.h"

static char folder[] = "fault-XXXXXX";
static char npy[64], npz[64], idx[64];

static weft_status run_pipeline(weft_data *d, weft_ds s)
{
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_status st = weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it);

    while (!st && !(st = weft_iter_next(it, &b)) && b)
        weft_batch_free(b);
    weft_iter_free(it);
    return st;
}

static weft_status arrays(weft_data *d)
{
    weft_ds s[3] = {weft_ds_idx(d, 1, &(weft_array_file){"a", idx}, NULL),
                    weft_ds_npy(d, 1, &(weft_array_file){"b", npy}, NULL),
                    weft_ds_npz(d, npz, NULL, NULL)};
    weft_ds z = weft_ds_shuffle_all(d, weft_ds_zip(d, 3, s), NULL);

    return run_pipeline(d, weft_ds_batch(d, weft_ds_rescale(d, z, "a,b", 2, 1, WEFT_F32), 4, NULL));
}

static weft_status images(weft_data *d)
{
    weft_image_opts o = {.size = sizeof o, .channels = 3, .unlabeled = true, .exif = true};
    weft_ds s = weft_ds_image_folder(d, WF_TEST_DIR "/golden/data", &o);

    s = weft_ds_take(d, s, 3);
    s = weft_ds_image_random_colour(d, s, "image",
                                    WEFT_OPTS(weft_jitter_opts, .brightness = 0.1, .hue = 0.1));
    s = weft_ds_image_resize(d, s, "image", 9, 8, NULL);
    return run_pipeline(d, weft_ds_batch(d, s, 2, NULL));
}

static weft_status write_all(weft_ctx *ctx)
{
    static float x[12] = {1, 2, 3};
    weft_tensor t = weft_view(WEFT_F32, x, 2, (int64_t[]){6, 2});
    weft_status st = weft_npy_write(ctx, npy, &t);

    if (!st)
        st = weft_idx_write(ctx, idx, &t);
    return st ? st : weft_npz_write(ctx, npz, 1, (const char *[]){"c"}, &t);
}

static weft_status whole_life(const weft_allocator *mem, weft_status (*use)(weft_data *d))
{
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = mem), &ctx);

    if (!st)
        st = write_all(ctx);
    if (!st)
        st = weft_data_new(ctx, &d);
    if (!st)
        st = use(d);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return st;
}

static void fail_each(weft_status (*use)(weft_data *d), bool sticky)
{
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);
    int64_t total;

    if (whole_life(&mem, use))
        fail_msg("%s", weft_error());
    assert_int_equal(c.n_live, 0);
    total = c.n_allocs;
    assert_true(total > 30);
    for (int64_t i = 1; i <= total; i++) {
        weft_status st;

        c = (struct counting){.fail_at = i, .sticky = sticky};
        st = whole_life(&mem, use);
        if (st != WEFT_ENOMEM)
            fail_msg("allocation %lld of %lld failed: got %s (%s)", (long long)i, (long long)total,
                     weft_status_name(st), weft_error());
        assert_int_equal(c.n_live, 0);
    }
}

static void allocations_of_arrays_may_fail(void **state)
{
    (void)state;
    fail_each(arrays, false);
    fail_each(arrays, true);
}

static void allocations_of_images_may_fail(void **state)
{
    (void)state;
#if !defined(WF_HAVE_JPEG) || !defined(WF_HAVE_PNG)
    skip();
#endif
    fail_each(images, false);
    fail_each(images, true);
}

static int bad_list(void *arg, const char *path, int (*each)(void *, const char *), void *each_arg)
{
    (void)arg;
    (void)path;
    (void)each;
    (void)each_arg;
    return -EIO;
}

static void listing_a_directory_of_images_may_fail(void **state)
{
    struct wf_fs fs = wf_fs_posix;
    weft_ctx *ctx;
    weft_data *d;

    (void)state;
    fs.list = bad_list;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    ctx->fs = &fs;
    assert_int_equal(weft_data_new(ctx, &d), 0);
    assert_int_equal(images(d), WEFT_EIO);
    assert_non_null(strstr(weft_error(), "golden/data: cannot read: Input/output error"));
    weft_data_free(d);
    ctx->fs = &wf_fs_posix;
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listing_a_directory_of_images_may_fail),
        cmocka_unit_test(allocations_of_arrays_may_fail),
        cmocka_unit_test(allocations_of_images_may_fail),
    };
    int failed;

    if (!mkdtemp(folder))
        return 1;
    snprintf(npy, sizeof npy, "%s/a.npy", folder);
    snprintf(npz, sizeof npz, "%s/a.npz", folder);
    snprintf(idx, sizeof idx, "%s/a.idx", folder);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(npy);
    unlink(npz);
    unlink(idx);
    rmdir(folder);
    return failed;
}
