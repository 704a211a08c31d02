/* Images against TensorFlow's numbers (tools/golden_images.py): decoding, resizing, and tf.image's
 * operations. */
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

#include "data/array/array.h"
#include "weft/weft.h"

#define FOLDER WF_TEST_DIR "/golden/data/"

static weft_ctx *ctx;
static char *archive;
static int64_t n_archive;

/* ---- the numbers ----------------------------------------------------------------------------- */

/* An array of images.npz, unpacked; free with wf_free(ctx, data). */
static weft_tensor golden(const char *name)
{
    struct wf_zip z;
    struct wf_zip_entry e;
    bool more = true;
    char entry[128];

    snprintf(entry, sizeof entry, "%s.npy", name);
    assert_int_equal(wf_zip_open(&z, ctx, archive, n_archive), 0);
    while (!wf_zip_next(&z, &e, &more) && more)
        if ((size_t)e.n_name == strlen(entry) && !memcmp(e.name, entry, (size_t)e.n_name)) {
            struct wf_array a = {.fd = -1};
            weft_tensor t;

            assert_int_equal(wf_npz_array(&e, &a), 0);
            t = weft_view(a.head.type.dtype, wf_alloc(ctx, (size_t)wf_type_bytes(&a.head.type)),
                          a.head.type.rank, a.head.type.dim);
            wf_array_convert_all(&a.head, a.data, t.data);
            wf_free(ctx, a.owned);
            return t;
        }
    fail_msg("images.npz has no array %s", name);
    return (weft_tensor){0};
}

static void check_near(const char *name, const weft_tensor *got, double allowed)
{
    weft_tensor want = golden(name);
    double worst = 0;
    int64_t n = weft_tensor_count(&want);

    assert_int_equal(got->dtype, want.dtype);
    assert_int_equal(got->rank, 3);
    for (int i = 0; i < 3; i++)
        if (got->dim[i] != want.dim[i])
            fail_msg("%s: size %d is %lld, not %lld", name, i, (long long)got->dim[i],
                     (long long)want.dim[i]);
    for (int64_t i = 0; i < n; i++)
        worst =
            fmax(worst, fabs(wf_get(got->data, got->dtype, i) - wf_get(want.data, want.dtype, i)));
    if (!(worst <= allowed))
        fail_msg("%s: off by %g, %g is allowed", name, worst, allowed);
    wf_free(ctx, want.data);
}

/* ---- transformations ------------------------------------------------------------------------- */

typedef weft_ds change_fn(weft_data *d, weft_ds s, const char *column);

static void check_change(const char *input, const char *name, change_fn *change, double allowed)
{
    weft_tensor in = golden(input), stacked = in;
    weft_column col = {.name = "image"};
    weft_data *d;
    weft_iter *it;
    weft_batch *b = NULL;

    stacked.rank = 4;
    memmove(stacked.dim + 1, in.dim, 3 * sizeof in.dim[0]);
    stacked.dim[0] = 1;
    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (weft_iter_new(d, change(d, weft_ds_tensors(d, 1, &col, &stacked), "image"), NULL, &it) ||
        weft_iter_next(it, &b))
        fail_msg("%s: %s", name, weft_error());
    check_near(name, &b->col[0], allowed);
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
    wf_free(ctx, in.data);
}

static int64_t height, width;
static weft_image_resize_opts how;

static weft_ds resize(weft_data *d, weft_ds s, const char *c)
{
    return weft_ds_image_resize(d, s, c, height, width, &how);
}

static void resizing_is_tensorflows(void **state)
{
    static const int64_t sizes[][2] = {{7, 9}, {26, 30}, {13, 17}, {5, 40}, {1, 1}};
    char name[64];

    (void)state;
    for (int i = 0; i < 5; i++) {
        height = sizes[i][0];
        width = sizes[i][1];
        how = (weft_image_resize_opts){.size = sizeof how, .dtype = WEFT_F32};
        snprintf(name, sizeof name, "bilinear_%d_%d", (int)height, (int)width);
        check_change("u8", name, resize, 5e-5);
        snprintf(name, sizeof name, "bilinear_f32_%d_%d", (int)height, (int)width);
        check_change("f32", name, resize, 3e-7);
        how.antialias = true;
        snprintf(name, sizeof name, "antialias_%d_%d", (int)height, (int)width);
        check_change("u8", name, resize, 2e-4);
        how = (weft_image_resize_opts){.size = sizeof how, .filter = WEFT_IMAGE_NEAREST};
        snprintf(name, sizeof name, "nearest_%d_%d", (int)height, (int)width);
        check_change("u8", name, resize, 0);
    }
}

#define CHANGE(name, call)                                      \
    static weft_ds name(weft_data *d, weft_ds s, const char *c) \
    {                                                           \
        return call;                                            \
    }
CHANGE(brightness, weft_ds_image_brightness(d, s, c, 0.2))
CHANGE(darkness, weft_ds_image_brightness(d, s, c, -0.3))
CHANGE(contrast, weft_ds_image_contrast(d, s, c, 1.7))
CHANGE(flatness, weft_ds_image_contrast(d, s, c, 0.4))
CHANGE(saturation, weft_ds_image_saturation(d, s, c, 2.5))
CHANGE(paleness, weft_ds_image_saturation(d, s, c, 0.3))
CHANGE(hue, weft_ds_image_hue(d, s, c, 0.2))
CHANGE(hue_back, weft_ds_image_hue(d, s, c, -0.45))
CHANGE(grey, weft_ds_image_grayscale(d, s, c, 1))
CHANGE(turn1, weft_ds_image_rotate_quarters(d, s, c, 1))
CHANGE(turn2, weft_ds_image_rotate_quarters(d, s, c, -2))
CHANGE(turn3, weft_ds_image_rotate_quarters(d, s, c, 7))
CHANGE(left_right, weft_ds_image_flip(d, s, c, true, false))
CHANGE(up_down, weft_ds_image_flip(d, s, c, false, true))
CHANGE(crop, weft_ds_image_crop(d, s, c, 2, 3, 6, 8))
CHANGE(pad, weft_ds_image_pad(d, s, c, 4, 1, 20, 19, 0))
CHANGE(center, weft_ds_image_center_crop(d, s, c, 8, 9))

/* tf.image cuts u8 off at 255.5 times the value, weft rounds: they differ by a level at most. */
static const struct {
    const char *name;
    change_fn *change;
    double u8, f32; /* what may differ */
} changes[] = {
    {"brightness", brightness, 1, 1e-6},
    {"darkness", darkness, 1, 1e-6},
    {"contrast", contrast, 1, 2e-6},
    {"flatness", flatness, 1, 1e-6},
    {"saturation", saturation, 1, 2e-6},
    {"paleness", paleness, 1, 2e-6},
    {"hue", hue, 1, 5e-6},
    {"hue_back", hue_back, 1, 5e-6},
    {"grey", grey, 1, 1e-6},
    {"turn1", turn1, 0, 0},
    {"turn2", turn2, 0, 0},
    {"turn3", turn3, 0, 0},
    {"left_right", left_right, 0, 0},
    {"up_down", up_down, 0, 0},
    {"crop", crop, 0, 0},
    {"pad", pad, 0, 0},
    {"center", center, 0, 0},
};

static void changes_are_tensorflows(void **state)
{
    char name[64];

    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        snprintf(name, sizeof name, "%s_u8", changes[i].name);
        check_change("u8", name, changes[i].change, changes[i].u8);
        snprintf(name, sizeof name, "%s_f32", changes[i].name);
        check_change("f32", name, changes[i].change, changes[i].f32);
    }
}

/* ---- decoding -------------------------------------------------------------------------------- */

static weft_tensor decode(const char *file, const weft_image_opts *opts)
{
    char path[512], *bytes;
    weft_tensor t;
    int64_t n;

    snprintf(path, sizeof path, FOLDER "%s", file);
    assert_int_equal(wf_file_read(ctx, path, 1 << 20, &bytes, &n), 0);
    if (weft_image_decode(ctx, bytes, n, opts, &t))
        fail_msg("%s: %s", file, weft_error());
    wf_free(ctx, bytes);
    return t;
}

static void check_decoded(const char *file, int channels, double allowed)
{
    weft_tensor t = decode(file, WEFT_OPTS(weft_image_opts, .channels = channels));
    char name[64];

    snprintf(name, sizeof name, "%s_%d", file, channels);
    *strchr(name, '.') = '_';
    check_near(name, &t, allowed);
    weft_array_free(ctx, &t);
}

static void jpegs_decode_as_tensorflow_decodes_them(void **state)
{
    static const char *const files[] = {"rgb420.jpg",      "rgb444.jpg", "rgb422.jpg",
                                        "progressive.jpg", "grey.jpg",   "turned.jpg"};

    (void)state;
#ifndef WF_HAVE_JPEG
    skip();
#endif
    for (int i = 0; i < 6; i++) {
        check_decoded(files[i], 3, 0);
        check_decoded(files[i], 1, 0);
    }
    check_decoded("cmyk.jpg", 3, 0);
}

static void pngs_decode_as_tensorflow_decodes_them(void **state)
{
    static const char *const files[] = {"rgb.png",  "grey.png", "palette.png", "bits.png",
                                        "rgba.png", "la.png",   "grey16.png",  "interlaced.png"};

    (void)state;
#ifndef WF_HAVE_PNG
    skip();
#endif
    for (int i = 0; i < 8; i++) {
        check_decoded(files[i], 0, 0);
        check_decoded(files[i], 3, 0);
        if (strcmp(files[i], "bits.png")) /* TensorFlow fills alpha with 1, of 255, there */
            check_decoded(files[i], 4, 0);
    }
}

/* The one-pass path gives what decoding, then resizing, gives. */
static void resizing_while_decoding_changes_nothing(void **state)
{
    static const char *const files[] = {"rgb420.jpg", "grey.jpg", "cmyk.jpg", "rgba.png",
                                        "interlaced.png"};

    (void)state;
#if !defined(WF_HAVE_JPEG) || !defined(WF_HAVE_PNG)
    skip();
#endif
    for (int i = 0; i < 5; i++) {
        weft_tensor whole = decode(files[i], WEFT_OPTS(weft_image_opts, .channels = 3));
        weft_tensor once = decode(files[i], WEFT_OPTS(weft_image_opts, .channels = 3, .height = 24,
                                                      .width = 31, .dtype = WEFT_F32));
        weft_column col = {.name = "image"};
        weft_tensor stacked = whole;
        weft_data *d;
        weft_iter *it;
        weft_batch *b;

        stacked.rank = 4;
        memmove(stacked.dim + 1, whole.dim, 3 * sizeof whole.dim[0]);
        stacked.dim[0] = 1;
        height = 24;
        width = 31;
        how = (weft_image_resize_opts){.size = sizeof how, .dtype = WEFT_F32};
        assert_int_equal(weft_data_new(ctx, &d), 0);
        assert_int_equal(
            weft_iter_new(d, resize(d, weft_ds_tensors(d, 1, &col, &stacked), "image"), NULL, &it),
            0);
        assert_int_equal(weft_iter_next(it, &b), 0);
        assert_memory_equal(once.data, b->col[0].data, (size_t)weft_tensor_bytes(&once));
        weft_batch_free(b);
        weft_iter_free(it);
        weft_data_free(d);
        weft_array_free(ctx, &whole);
        weft_array_free(ctx, &once);
    }
}

/* Orientation 6 means: turned clockwise by a quarter. */
static void exif_orientation_is_followed_when_asked(void **state)
{
    weft_tensor as_is, turned;

    (void)state;
#ifndef WF_HAVE_JPEG
    skip();
#endif
    as_is = decode("turned.jpg", WEFT_OPTS(weft_image_opts, .channels = 3));
    turned = decode("turned.jpg", WEFT_OPTS(weft_image_opts, .channels = 3, .exif = true));
    assert_int_equal(turned.dim[0], as_is.dim[1]);
    assert_int_equal(turned.dim[1], as_is.dim[0]);
    for (int64_t y = 0; y < turned.dim[0]; y++)
        for (int64_t x = 0; x < turned.dim[1]; x++)
            assert_memory_equal(
                (char *)turned.data + (y * turned.dim[1] + x) * 3,
                (char *)as_is.data + ((as_is.dim[0] - 1 - x) * as_is.dim[1] + y) * 3, 3);
    weft_array_free(ctx, &as_is);
    weft_array_free(ctx, &turned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resizing_is_tensorflows),
        cmocka_unit_test(changes_are_tensorflows),
        cmocka_unit_test(jpegs_decode_as_tensorflow_decodes_them),
        cmocka_unit_test(pngs_decode_as_tensorflow_decodes_them),
        cmocka_unit_test(resizing_while_decoding_changes_nothing),
        cmocka_unit_test(exif_orientation_is_followed_when_asked),
    };
    int failed;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx) ||
        wf_file_read(ctx, FOLDER "images.npz", 1 << 24, &archive, &n_archive)) {
        fprintf(stderr, "%s\n", weft_error());
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    wf_free(ctx, archive);
    weft_ctx_free(ctx);
    return failed;
}
