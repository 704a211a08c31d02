/* Images: folders, damaged files, resizing at every SIMD level, random transformations that follow
 * the sample. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/image/image.h"
#include "drain_support.h"
#include "files_support.h"

#ifdef WF_HAVE_JPEG
#include <jpeglib.h>
#endif

#define GOLDEN WF_TEST_DIR "/golden/data/"

static weft_ctx *ctx;
static weft_data *d;

/* ---- a folder -------------------------------------------------------------------------------- */

static void copy_to(const char *golden, const char *name)
{
    size_t n;
    char path[512], *bytes;

    snprintf(path, sizeof path, GOLDEN "%s", golden);
    bytes = get_file(path, &n);
    put_file(name, bytes, n);
    free(bytes);
}

/* Classes b, a (out of order), an empty one, names that say nothing, files that are no images. */
static void make_folder(void)
{
    mkdir(in_scratch("pets"), 0777);
    mkdir(in_scratch("pets/b"), 0777);
    mkdir(in_scratch("pets/a"), 0777);
    mkdir(in_scratch("pets/a/deep"), 0777);
    mkdir(in_scratch("pets/c"), 0777);
    mkdir(in_scratch("pets/.hidden"), 0777);
    copy_to("rgb420.jpg", "pets/b/2.jpg");
    copy_to("rgb.png", "pets/b/1.jpg"); /* a PNG by another name */
    copy_to("grey.jpg", "pets/a/z");
    copy_to("progressive.jpg", "pets/a/deep/y.JPEG");
    copy_to("rgba.png", "pets/a/x.png");
    copy_to("rgb444.jpg", "pets/.hidden/h.jpg");
    put_file("pets/a/Thumbs.db", "none", 4);
    put_file("pets/README", "none", 4);
}

/* Labels are those of training, also where the folder lacks classes. */
static void labels_follow_the_classes_that_are_given(void **state)
{
    static const char *const given[] = {"c", "z", "b", "a"};
    static const int labels[] = {3, 3, 2, 2};
    const char *const *classes;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    int n;

    (void)state;
    s = weft_ds_image_folder(d, in_scratch("pets"),
                             WEFT_OPTS(weft_image_opts, .n_classes = 4, .classes = given));
    assert_int_equal(weft_data_status(d), 0);
    assert_int_equal(weft_ds_image_classes(d, s, &n, &classes), 0);
    assert_int_equal(n, 4);
    assert_string_equal(classes[1], "z");
    assert_int_equal(weft_iter_new(d, s, NULL, &it), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weft_iter_next(it, &b), 0);
        assert_int_equal(*(int32_t *)b->col[1].data, labels[i]);
        weft_batch_free(b);
    }
    weft_iter_free(it);
}

static void folders_are_classes_in_order_of_their_names(void **state)
{
    static const char *const paths[] = {"pets/a/x.png", "pets/a/z", "pets/b/1.jpg", "pets/b/2.jpg"};
    static const int labels[] = {0, 0, 1, 1}, channels[] = {4, 1, 3, 3};
    const char *const *classes;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    int n;

    (void)state;
    s = weft_ds_image_folder(d, in_scratch("pets"), WEFT_OPTS(weft_image_opts, .paths = true));
    assert_int_equal(weft_data_status(d), 0);
    assert_int_equal(weft_ds_count(d, s), 4);
    assert_true(weft_ds_addressable(d, s));
    assert_int_equal(weft_ds_image_classes(d, weft_ds_take(d, s, 2), &n, &classes), 0);
    assert_int_equal(n, 3);
    assert_string_equal(classes[0], "a");
    assert_string_equal(classes[2], "c");
    assert_int_equal(weft_iter_new(d, s, NULL, &it), 0);
    for (int i = 0; i < 4; i++) {
        const weft_str *path;

        assert_int_equal(weft_iter_next(it, &b), 0);
        assert_int_equal(weft_batch_find(b, "image")->dim[0], 37);
        assert_int_equal(weft_batch_find(b, "image")->dim[1], 45);
        assert_int_equal(weft_batch_find(b, "image")->dim[2], channels[i]);
        assert_int_equal(*(int32_t *)weft_batch_find(b, "label")->data, labels[i]);
        path = weft_batch_find(b, "path")->data;
        assert_string_equal(path->data, in_scratch(paths[i]));
        weft_batch_free(b);
    }
    assert_int_equal(weft_iter_next(it, &b), 0);
    assert_null(b);
    weft_iter_free(it);
    s = weft_ds_image_folder(
        d, in_scratch("pets"),
        WEFT_OPTS(weft_image_opts, .recursive = true, .unlabeled = true, .label = WEFT_I64));
    assert_int_equal(weft_ds_count(d, s), 5);
}

static void images_are_the_same_everywhere(void **state)
{
    weft_image_opts o = {.size = sizeof o, .height = 20, .width = 24, .channels = 3};
    weft_ds s, any;

    (void)state;
    o.crop = WEFT_CROP_RANDOM;
    o.random = WEFT_OPTS(weft_random_crop_opts, .seed = 3);
    o.recursive = true;
    s = weft_ds_image_folder(d, in_scratch("pets"), &o);
    s = weft_ds_repeat(d, weft_ds_shuffle_all(d, s, NULL), 4);
    assert_int_equal(check_same_everywhere(ctx, d, weft_ds_batch(d, s, 3, NULL)), 7);
    /* Of any size, through a column of bytes, changed on the way. */
    any = weft_ds_image_folder(d, in_scratch("pets"), NULL);
    any = weft_ds_image_flip(d, any, "image", true, true);
    any = weft_ds_image_random_flip(d, any, "image", 0.5, 0.5, 9);
    any = weft_ds_image_random_crop(d, any, "image", 11, 12, 9);
    any = weft_ds_image_rotate_quarters(d, any, "image", 1);
    assert_int_equal(check_same_everywhere(ctx, d, any), 4);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static weft_status decode_bytes(const void *bytes, size_t n, bool lenient)
{
    weft_tensor t;
    weft_status st = weft_image_decode(
        ctx, bytes, (int64_t)n, WEFT_OPTS(weft_image_opts, .channels = 3, .lenient = lenient), &t);

    if (!st)
        weft_array_free(ctx, &t);
    return st;
}

static void a_file_cut_anywhere_is_an_error(void **state)
{
    static const char *const files[] = {"rgb420.jpg",      "grey.jpg",    "cmyk.jpg",
                                        "progressive.jpg", "palette.png", "rgba.png",
                                        "interlaced.png"};

    (void)state;
    for (int i = 0; i < 7; i++) {
        char path[512], *bytes;
        size_t n;

        snprintf(path, sizeof path, GOLDEN "%s", files[i]);
        bytes = get_file(path, &n);
        assert_int_equal(decode_bytes(bytes, n, false), 0);
        for (size_t cut = 0; cut + 1 < n; cut += 1 + cut / 40) {
            char *part = malloc(cut + 1);

            memcpy(part, bytes, cut);
            if (decode_bytes(part, cut, false) != WEFT_EPARSE)
                fail_msg("%s cut at %zu of %zu was read", files[i], cut, n);
            decode_bytes(part, cut, true);
            free(part);
        }
        free(bytes);
    }
}

/* Most changes are noticed; none reads out of bounds (sanitizers check) or leaks. */
static void flipped_bits_do_no_harm(void **state)
{
    static const char *const files[] = {"rgb420.jpg", "progressive.jpg", "la.png",
                                        "interlaced.png"};
    int64_t before = weft_ctx_memory(ctx);

    (void)state;
    for (int i = 0; i < 4; i++) {
        char path[512], *bytes;
        int n_refused = 0, n_tried = 0;
        size_t n;

        snprintf(path, sizeof path, GOLDEN "%s", files[i]);
        bytes = get_file(path, &n);
        for (size_t k = 0; k < n; k += 3) {
            bytes[k] ^= (char)(1 << k % 8);
            n_refused += decode_bytes(bytes, n, false) != 0;
            decode_bytes(bytes, n, true);
            bytes[k] ^= (char)(1 << k % 8);
            n_tried++;
        }
        assert_true(n_refused > n_tried / 10);
        free(bytes);
    }
    assert_int_equal(weft_ctx_memory(ctx), before);
}

static void absurd_sizes_are_refused_before_memory_is_taken(void **state)
{
    char path[512], *bytes;
    int64_t before = weft_ctx_memory_peak(ctx);
    size_t n;

    (void)state;
    snprintf(path, sizeof path, GOLDEN "rgb.png");
    bytes = get_file(path, &n);
    memcpy(bytes + 16, "\x7f\xff\xff\xff\x7f\xff\xff\xff", 8);
    assert_int_equal(decode_bytes(bytes, n, false), WEFT_ELIMIT);
    assert_true(weft_ctx_memory_peak(ctx) - before < 1 << 20);
    free(bytes);
}

static void damaged_files_are_named_or_skipped_and_counted(void **state)
{
    weft_image_opts o = {.size = sizeof o, .height = 8, .width = 8, .channels = 3};
    size_t n;
    char path[512], *bytes;
    weft_stage_stats stats = {0};
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    int n_read = 0;

    (void)state;
    mkdir(in_scratch("bad"), 0777);
    mkdir(in_scratch("bad/k"), 0777);
    snprintf(path, sizeof path, GOLDEN "rgb420.jpg");
    bytes = get_file(path, &n);
    put_file("bad/k/0.jpg", bytes, n);
    put_file("bad/k/1.jpg", bytes, n / 2);
    put_file("bad/k/2.jpg", "text", 4);
    put_file("bad/k/3.jpg", bytes, n);
    free(bytes);
    s = weft_ds_image_folder(d, in_scratch("bad"), &o);
    assert_int_equal(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it), 0);
    while (!weft_iter_next(it, &b))
        weft_batch_free(b);
    assert_int_equal(weft_iter_next(it, &b), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "bad/k/1.jpg"));
    assert_non_null(strstr(weft_error(), "corrupt JPEG"));
    weft_iter_free(it);
    for (int whole = 0; whole < 2; whole++) {
        o.on_error = WEFT_ON_ERROR_SKIP;
        o.shuffle = true;
        o.height = o.width = whole ? 0 : 8;
        s = weft_ds_image_folder(d, in_scratch("bad"), &o);
        assert_int_equal(weft_ds_count(d, s), WEFT_UNKNOWN);
        assert_int_equal(weft_iter_new(d, s, NULL, &it), 0);
        for (n_read = 0; !weft_iter_next(it, &b) && b; n_read++)
            weft_batch_free(b);
        if (n_read != 2)
            fail_msg("%d read, whole %d: %s", n_read, whole, weft_error());
        for (int i = 0; i < weft_iter_n_stages(it) && !stats.n_skipped; i++)
            assert_int_equal(weft_iter_stage(it, i, &stats), 0);
        assert_int_equal(stats.n_skipped, 2);
        stats.n_skipped = 0;
        weft_iter_free(it);
    }
}

/* ---- what is decoded ------------------------------------------------------------------------- */

/* At 1/2, 1/4 and 1/8 a pixel is the mean of the pixels it stands for. */
static void decoding_at_a_smaller_scale_averages(void **state)
{
    struct wf_decoder *dec;
    char path[512], *bytes;
    static uint8_t whole[37 * 45 * 3], small[19 * 23 * 3];
    struct wf_sink s = {.box = {0, 0, 37, 45}, .c = 3};
    size_t n;

    (void)state;
    snprintf(path, sizeof path, GOLDEN "rgb444.jpg");
    bytes = get_file(path, &n);
    assert_int_equal(wf_decoder_new(ctx, &dec), 0);
    s.to = (struct wf_image){37, 45, 3, WEFT_U8, whole};
    assert_int_equal(wf_jpeg_decode(dec, bytes, (int64_t)n, false, 1, &s), 0);
    for (int shrink = 2; shrink <= 8; shrink *= 2) {
        int64_t h = (37 + shrink - 1) / shrink, w = (45 + shrink - 1) / shrink;

        s.box = (struct wf_box){0, 0, h, w};
        s.to = (struct wf_image){h, w, 3, WEFT_U8, small};
        assert_int_equal(wf_jpeg_decode(dec, bytes, (int64_t)n, false, shrink, &s), 0);
        for (int64_t i = 0; i < 37 / shrink * (45 / shrink) * 3; i++) {
            int64_t y = i / 3 / (45 / shrink), x = i / 3 % (45 / shrink), k = i % 3;
            double mean = 0;

            for (int64_t j = 0; j < shrink * shrink; j++)
                mean += whole[((y * shrink + j / shrink) * 45 + x * shrink + j % shrink) * 3 + k];
            mean = mean / (shrink * shrink) - small[(y * w + x) * 3 + k];
            assert_true(mean < 4.0 && mean > -4.0);
        }
    }
    wf_decoder_free(dec);
    free(bytes);
}

/* The whole path takes the smaller scale when the target allows it, and only then. */
static void small_targets_are_decoded_at_a_smaller_scale(void **state)
{
    char path[512], *bytes;
    weft_tensor fast, full;
    size_t n;

    (void)state;
    snprintf(path, sizeof path, GOLDEN "rgb444.jpg");
    bytes = get_file(path, &n);
    for (int64_t side = 10; side <= 20; side += 10) {
        weft_image_opts o = {.size = sizeof o, .height = side, .width = side, .channels = 3};

        assert_int_equal(weft_image_decode(ctx, bytes, (int64_t)n, &o, &fast), 0);
        o.full_decode = true;
        assert_int_equal(weft_image_decode(ctx, bytes, (int64_t)n, &o, &full), 0);
        assert_true((memcmp(fast.data, full.data, (size_t)(side * side * 3)) == 0) == (side == 20));
        weft_array_free(ctx, &fast);
        weft_array_free(ctx, &full);
    }
    free(bytes);
}

#ifdef WF_HAVE_JPEG
/* A JPEG of noise and waves, with chroma at 1/h, 1/v; malloc'd. */
static unsigned char *encode(int64_t height, int64_t width, int h, int v, bool progressive,
                             unsigned long *n)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr err;
    unsigned char *out = NULL, *row = malloc((size_t)width * 3);

    c.err = jpeg_std_error(&err);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, n);
    c.image_height = (JDIMENSION)height;
    c.image_width = (JDIMENSION)width;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    c.comp_info[0].h_samp_factor = h;
    c.comp_info[0].v_samp_factor = v;
    if (progressive)
        jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int64_t y = 0; y < height; y++) {
        for (int64_t i = 0; i < width * 3; i++)
            row[i] =
                (unsigned char)((i * i / 90 + y * (i % 3 + 2) + (i * 2654435761u >> 27)) & 255);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    return out;
}

/* Boxes of an image, each decoded alone, are the same as those boxes of the whole image, at every
 * scale. */
static void check_boxes(struct wf_decoder *dec, const void *bytes, int64_t n, int64_t h, int64_t w,
                        int shrink)
{
    int64_t sh = (h + shrink - 1) / shrink, sw = (w + shrink - 1) / shrink;
    uint8_t *whole = malloc((size_t)(sh * sw * 3)), *part = malloc((size_t)(sh * sw * 3));
    struct wf_sink s = {.box = {0, 0, sh, sw}, .c = 3, .to = {sh, sw, 3, WEFT_U8, whole}};

    assert_int_equal(wf_jpeg_decode(dec, bytes, n, false, shrink, &s), 0);
    for (int64_t i = 0; i < 40; i++) {
        struct wf_box b = {.y = i * 37 % sh, .x = i * 59 % sw};

        b.h = 1 + i * 29 % (sh - b.y);
        b.w = 1 + i * 43 % (sw - b.x);
        s.box = b;
        s.to = (struct wf_image){b.h, b.w, 3, WEFT_U8, part};
        assert_int_equal(wf_jpeg_decode(dec, bytes, n, false, shrink, &s), 0);
        for (int64_t y = 0; y < b.h; y++)
            if (memcmp(part + y * b.w * 3, whole + ((b.y + y) * sw + b.x) * 3, (size_t)b.w * 3))
                fail_msg("1/%d: row %d of the box %dx%d at %d,%d differs", shrink, (int)y, (int)b.h,
                         (int)b.w, (int)b.y, (int)b.x);
    }
    free(whole);
    free(part);
}

static void only_the_box_is_decoded(void **state)
{
    static const int factors[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}};
    struct wf_decoder *dec;

    (void)state;
    assert_int_equal(wf_decoder_new(ctx, &dec), 0);
    for (int i = 0; i < 10; i++) {
        unsigned long n = 0;
        unsigned char *bytes = encode(131, 203, factors[i / 2][0], factors[i / 2][1], i % 2, &n);

        for (int shrink = 1; shrink <= 8; shrink *= 2)
            check_boxes(dec, bytes, (int64_t)n, 131, 203, shrink);
        free(bytes);
    }
    wf_decoder_free(dec);
}
#endif

/* Encoded bytes as they come from records: a sample each, the third damaged. */
static weft_status bytes_of(void *arg, int64_t id, weft_sample *s)
{
    size_t n;
    char path[512], *bytes;
    weft_status st;

    (void)arg;
    snprintf(path, sizeof path, GOLDEN "%s", id % 2 ? "rgb.png" : "rgb420.jpg");
    bytes = get_file(path, &n);
    st = weft_sample_text(s, 0, 0, bytes, (int64_t)(id == 2 ? n / 2 : n));
    free(bytes);
    return st;
}

static void columns_of_bytes_are_decoded(void **state)
{
    weft_column col = {.name = "photo", .dtype = WEFT_STR};
    weft_image_opts o = {.size = sizeof o, .channels = 3};
    const weft_column *columns;
    weft_ds s = weft_ds_get(d, 1, &col, 5, bytes_of, NULL);
    weft_iter *it;
    weft_batch *b;
    int n = 0;

    (void)state;
    assert_int_equal(weft_iter_new(d, weft_ds_decode_image(d, s, "photo", &o), NULL, &it), 0);
    while (!weft_iter_next(it, &b))
        weft_batch_free(b);
    assert_non_null(strstr(weft_error(), "corrupt JPEG"));
    weft_iter_free(it);
    o.on_error = WEFT_ON_ERROR_SKIP;
    s = weft_ds_decode_image(d, s, "photo", &o);
    assert_int_equal(weft_ds_columns(d, s, &n, &columns), 0);
    assert_int_equal(columns[0].rank, 3);
    assert_int_equal(columns[0].dtype, WEFT_U8);
    assert_int_equal(check_same_everywhere(ctx, d, s), 4);
}

static void resizing_has_the_same_bits_at_every_level(void **state)
{
    static const weft_simd levels[] = {WEFT_SIMD_AVX2, WEFT_SIMD_AVX512};
    static uint8_t pixels[40 * 61 * 4];
    static float floats[40 * 61 * 4];

    (void)state;
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)(i * 131 + i / 17);
        floats[i] = (float)pixels[i] * 0.013f;
    }
    for (int k = 0; k < 4 * 4 * 2 * 2 * 2; k++) {
        static const int64_t sizes[4][2] = {{23, 29}, {64, 90}, {40, 61}, {3, 5}};
        struct wf_resizer a, b;
        struct wf_image from = {.h = 40, .w = 61, .c = 1 + k % 4, .dtype = WEFT_U8, .data = pixels};
        struct wf_image to = {
            .h = sizes[k / 4 % 4][0], .w = sizes[k / 4 % 4][1], .c = from.c, .dtype = WEFT_F32};
        struct wf_image other;

        if (k / 16 % 2) {
            from.dtype = WEFT_F32;
            from.data = floats;
        }
        if (k / 32 % 2)
            to.dtype = WEFT_U8;
        other = to;
        to.data = malloc((size_t)wf_image_bytes(&to));
        other.data = malloc((size_t)wf_image_bytes(&to));
        wf_resizer_init(&a, ctx);
        a.simd = WEFT_SIMD_PORTABLE;
        assert_int_equal(wf_image_resize(&a, &from, NULL, WEFT_IMAGE_BILINEAR, k / 64 % 2, &to), 0);
        for (int l = 0; l < 2; l++) {
            if (levels[l] > weft_simd_best())
                continue;
            wf_resizer_init(&b, ctx);
            b.simd = levels[l];
            assert_int_equal(
                wf_image_resize(&b, &from, NULL, WEFT_IMAGE_BILINEAR, k / 64 % 2, &other), 0);
            assert_memory_equal(to.data, other.data, (size_t)wf_image_bytes(&to));
            wf_resizer_free(&b);
        }
        wf_resizer_free(&a);
        free(to.data);
        free(other.data);
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

#define SIDE 9
#define N_IMAGES 40

static uint8_t many[N_IMAGES][SIDE][SIDE][3];

static weft_ds images(void)
{
    weft_column col = {.name = "image"};
    weft_tensor t = weft_view(WEFT_U8, many, 4, (int64_t[]){N_IMAGES, SIDE, SIDE, 3});

    for (size_t i = 0; i < sizeof many; i++)
        (&many[0][0][0][0])[i] = (uint8_t)(i * 89 + i / 7);
    return weft_ds_tensors(d, 1, &col, &t);
}

static void a_whole_turn_changes_nothing_and_a_half_one_is_two_flips(void **state)
{
    weft_ds s = images(), same = weft_ds_image_rotate(d, s, "image", 360, 7);
    weft_ds half = weft_ds_image_rotate(d, s, "image", 180, 7);
    weft_ds flipped = weft_ds_image_flip(d, s, "image", true, true);
    weft_ds quarter = weft_ds_image_rotate(d, s, "image", 90, 7);
    weft_ds turned = weft_ds_image_rotate_quarters(d, s, "image", 1);
    static struct drained a, b;

    (void)state;
    drain_all(d, s, 1, &a);
    drain_all(d, same, 1, &b);
    assert_memory_equal(a.bytes, b.bytes, a.n_bytes);
    free(a.bytes);
    free(b.bytes);
    drain_all(d, half, 1, &a);
    drain_all(d, flipped, 1, &b);
    assert_memory_equal(a.bytes, b.bytes, a.n_bytes);
    free(a.bytes);
    free(b.bytes);
    drain_all(d, quarter, 1, &a);
    drain_all(d, turned, 1, &b);
    assert_memory_equal(a.bytes, b.bytes, a.n_bytes);
    free(a.bytes);
    free(b.bytes);
}

static void rotating_fills_corners_and_interpolates(void **state)
{
    static float x[3][3] = {{0, 0, 0}, {0, 8, 0}, {0, 0, 0}}, y[3][3];
    struct wf_image from = {.h = 3, .w = 3, .c = 1, .dtype = WEFT_F32, .data = x}, to = from;

    (void)state;
    to.data = y;
    wf_image_rotate(&from, 45, 4, &to);
    assert_true(y[1][1] == 8.0f);
    /* The corner (0,0) looks at (1, 1 - sqrt 2): 0.414 above the image, whose top is 0. */
    assert_true(y[0][0] > 1.65f && y[0][0] < 1.66f);
    /* (0,1) looks at (1 - 0.7071, 1 - 0.7071) from the middle: between 0, 0, 0 and 8. */
    assert_true(y[0][1] > 0.68f && y[0][1] < 0.69f);
}

static void normalise_scales_and_shifts_each_channel(void **state)
{
    static const float mean[3] = {0.5f, 0.25f, 0.125f}, std[3] = {0.5f, 2.0f, 0.25f};
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    const float *y;

    (void)state;
    s = weft_ds_image_normalise(d, images(), "image", 1.0 / 255, 3, mean, std);
    assert_int_equal(weft_iter_new(d, s, NULL, &it), 0);
    assert_int_equal(weft_iter_next(it, &b), 0);
    y = b->col[0].data;
    for (int i = 0; i < SIDE * SIDE * 3; i++) {
        double want = ((&many[0][0][0][0])[i] / 255.0 - (double)mean[i % 3]) / (double)std[i % 3];
        double off = (double)y[i] - want;

        assert_true(off < 1e-6 && off > -1e-6);
    }
    weft_batch_free(b);
    weft_iter_free(it);
}

/* ---- random operations ----------------------------------------------------------------------- */

static weft_ds augmented(weft_ds s)
{
    s = weft_ds_image_random_flip(d, s, "image", 0.5, 0.5, 1);
    s = weft_ds_image_random_rotate(d, s, "image", 30, 0, 2);
    s = weft_ds_image_random_colour(d, s, "image",
                                    WEFT_OPTS(weft_jitter_opts, .seed = 3, .brightness = 0.2,
                                              .contrast = 0.3, .saturation = 0.5, .hue = 0.1));
    s = weft_ds_image_random_cutout(d, s, "image", 4, 3, 17, 4);
    s = weft_ds_image_random_resized_crop(d, s, "image", 6, 5,
                                          WEFT_OPTS(weft_random_crop_opts, .seed = 5));
    return weft_ds_image_random_crop(d, s, "image", 4, 4, 6);
}

/* By sample number, whatever order they came in. */
static void by_sample(weft_ds s, int64_t epoch, uint8_t out[N_IMAGES][48])
{
    weft_iter *it;
    weft_batch *b;

    assert_int_equal(
        weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = 2, .epoch = epoch), &it), 0);
    for (int i = 0; i < N_IMAGES; i++) {
        if (weft_iter_next(it, &b) || !b)
            fail_msg("%s", weft_error());
        memcpy(out[b->id[0]], b->col[0].data, 48);
        weft_batch_free(b);
    }
    weft_iter_free(it);
}

static void augmentation_follows_the_sample_not_the_order(void **state)
{
    static uint8_t plain[N_IMAGES][48], shuffled[N_IMAGES][48], later[N_IMAGES][48];
    weft_ds s = images();
    int n_changed = 0;

    (void)state;
    by_sample(augmented(s), 3, plain);
    by_sample(augmented(weft_ds_shuffle_all(d, s, WEFT_OPTS(weft_shuffle_opts, .seed = 8))), 3,
              shuffled);
    assert_memory_equal(plain, shuffled, sizeof plain);
    by_sample(weft_ds_shuffle_all(d, augmented(s), NULL), 3, shuffled);
    assert_memory_equal(plain, shuffled, sizeof plain);
    by_sample(augmented(s), 4, later);
    for (int i = 0; i < N_IMAGES; i++)
        n_changed += memcmp(plain[i], later[i], 48) != 0;
    assert_true(n_changed > N_IMAGES * 9 / 10);
}

static void random_crops_reach_everywhere_and_stay_inside(void **state)
{
    struct wf_image_plan p;
    int64_t top = 1000, left = 1000, bottom = 0, right = 0;
    double area = 0;

    (void)state;
    memset(&p, 0, sizeof p);
    assert_int_equal(wf_random_box_plan(NULL, &p), 0);
    for (int64_t i = 0; i < 4000; i++) {
        struct wf_box b = wf_random_box(120, 80, &p, (struct wf_at){1, i});

        assert_true(b.y >= 0 && b.x >= 0 && b.h > 0 && b.w > 0 && b.y + b.h <= 120 &&
                    b.x + b.w <= 80);
        top = wf_min_i64(top, b.y);
        left = wf_min_i64(left, b.x);
        bottom = wf_max_i64(bottom, b.y + b.h);
        right = wf_max_i64(right, b.x + b.w);
        area += (double)(b.h * b.w) / (120.0 * 80.0);
    }
    assert_true(top == 0 && left == 0 && bottom == 120 && right == 80);
    /* Evenly from [0.08, 1], but large ones of the wrong shape do not fit. */
    assert_true(area / 4000 > 0.375 && area / 4000 < 0.41); /* 0.392 by simulation */
}

static void flips_happen_as_often_as_asked(void **state)
{
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    int n_flipped = 0;

    (void)state;
    s = weft_ds_image_random_flip(d, weft_ds_repeat(d, images(), 25), "image", 0.25, 0, 11);
    assert_int_equal(weft_iter_new(d, s, NULL, &it), 0);
    while (!weft_iter_next(it, &b) && b) {
        n_flipped += memcmp(b->col[0].data, many[b->id[0]], sizeof many[0]) != 0;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    assert_true(n_flipped > 190 && n_flipped < 310); /* of 1000, expected 250 +- 14 */
}

/* ---- builders -------------------------------------------------------------------------------- */

static void check_refused(weft_ds (*build)(weft_data *e), weft_status st, const char *text)
{
    weft_data *e;

    assert_int_equal(weft_data_new(ctx, &e), 0);
    build(e);
    assert_int_equal(weft_data_status(e), st);
    if (!strstr(weft_error(), text))
        fail_msg("'%s' is not in '%s'", text, weft_error());
    weft_data_free(e);
}

static weft_ds grey_images(weft_data *e)
{
    static uint8_t x[2][4][4][1];
    weft_column col = {.name = "image"};
    weft_tensor t = weft_view(WEFT_U8, x, 4, (int64_t[]){2, 4, 4, 1});

    return weft_ds_tensors(e, 1, &col, &t);
}

static weft_ds no_column(weft_data *e)
{
    return weft_ds_image_hue(e, grey_images(e), "imge", 0.1);
}
static weft_ds hue_of_grey(weft_data *e)
{
    return weft_ds_image_hue(e, grey_images(e), "image", 0.1);
}
static weft_ds jitter_of_grey(weft_data *e)
{
    return weft_ds_image_random_colour(e, grey_images(e), "image",
                                       WEFT_OPTS(weft_jitter_opts, .saturation = 0.5));
}
static weft_ds crop_outside(weft_data *e)
{
    return weft_ds_image_crop(e, grey_images(e), "image", 2, 2, 3, 3);
}
static weft_ds batched(weft_data *e)
{
    return weft_ds_image_flip(e, weft_ds_batch(e, grey_images(e), 2, NULL), "image", true, false);
}
static weft_ds no_folder(weft_data *e)
{
    return weft_ds_image_folder(e, in_scratch("nowhere"), NULL);
}
static weft_ds no_classes(weft_data *e)
{
    return weft_ds_image_folder(e, in_scratch("pets/b"), NULL);
}
static weft_ds not_bytes(weft_data *e)
{
    return weft_ds_decode_image(e, grey_images(e), "image", NULL);
}
static weft_ds two_channels(weft_data *e)
{
    return weft_ds_image_folder(e, in_scratch("pets"), WEFT_OPTS(weft_image_opts, .channels = 2));
}

static weft_ds other_classes(weft_data *e)
{
    static const char *const classes[] = {"z", "b", "c"};

    return weft_ds_image_folder(e, in_scratch("pets"),
                                WEFT_OPTS(weft_image_opts, .n_classes = 3, .classes = classes));
}

static void builders_say_what_is_wrong(void **state)
{
    (void)state;
    check_refused(no_column, WEFT_ENOENT, "did you mean 'image'");
    check_refused(hue_of_grey, WEFT_ESHAPE, "RGB");
    check_refused(jitter_of_grey, WEFT_ESHAPE, "RGB");
    check_refused(crop_outside, WEFT_ESHAPE, "a box of 3 x 3 at (2, 2)");
    check_refused(batched, WEFT_ESHAPE, "not batched");
    check_refused(no_folder, WEFT_ENOENT, "nowhere");
    check_refused(no_classes, WEFT_ENOENT, "no class directories");
    check_refused(not_bytes, WEFT_EDTYPE, "does not hold bytes");
    check_refused(two_channels, WEFT_EINVAL, "2 channels");
    check_refused(other_classes, WEFT_EDATA, "'a' is not one of the 3 classes");
}

/* ---------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
    (void)state;
    return weft_data_new(ctx, &d);
}

static int teardown(void **state)
{
    (void)state;
    weft_data_free(d);
    return 0;
}

#if defined(WF_HAVE_JPEG) && defined(WF_HAVE_PNG)
#define HAVE_CODECS true
#else
#define HAVE_CODECS false
#endif

static void without_codecs(void **state)
{
    (void)state;
    skip();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CODEC(f)                                                    \
    {                                                               \
#f, HAVE_CODECS ? f : without_codecs, setup, teardown, NULL \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        CODEC(folders_are_classes_in_order_of_their_names),
        CODEC(labels_follow_the_classes_that_are_given),
        CODEC(images_are_the_same_everywhere),
        CODEC(a_file_cut_anywhere_is_an_error),
        CODEC(flipped_bits_do_no_harm),
        CODEC(absurd_sizes_are_refused_before_memory_is_taken),
        CODEC(damaged_files_are_named_or_skipped_and_counted),
        CODEC(decoding_at_a_smaller_scale_averages),
        CODEC(small_targets_are_decoded_at_a_smaller_scale),
#ifdef WF_HAVE_JPEG
        CODEC(only_the_box_is_decoded),
#endif
        CODEC(columns_of_bytes_are_decoded),
        TEST(resizing_has_the_same_bits_at_every_level),
        TEST(a_whole_turn_changes_nothing_and_a_half_one_is_two_flips),
        TEST(rotating_fills_corners_and_interpolates),
        TEST(normalise_scales_and_shifts_each_channel),
        TEST(augmentation_follows_the_sample_not_the_order),
        TEST(random_crops_reach_everywhere_and_stay_inside),
        TEST(flips_happen_as_often_as_asked),
        TEST(builders_say_what_is_wrong),
    };
    int64_t before;
    int failed;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return 1;
    before = weft_ctx_memory(ctx);
    scratch_make();
    make_folder();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_drop();
    if (!failed && weft_ctx_memory(ctx) != before) {
        fprintf(stderr, "%lld bytes leaked\n", (long long)(weft_ctx_memory(ctx) - before));
        failed = 1;
    }
    weft_ctx_free(ctx);
    return failed;
}
