/* images.c - what does an image cost? CPU microseconds an image on one thread: libjpeg alone (rows
 * thrown away), decoding and resizing straight to f32, and the whole pipeline (folder, shuffle,
 * decode, batch 32). One JSON line each; the three alternate, and the median of five rounds is
 * printed.
 *
 *   bench/images DIR [SIDE]     class folders of JPEGs; resized to SIDE x SIDE, by default 224 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "data/image/image.h"

#ifdef WF_HAVE_JPEG
#include <jpeglib.h>

enum { ROUNDS = 5, BATCH = 32, N_FILES = 500 };

struct files {
    int n;
    char *data[N_FILES];
    int64_t bytes[N_FILES];
};

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* other programs do not count */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void die(void)
{
    fprintf(stderr, "%s\n", weft_error());
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ---- libjpeg alone --------------------------------------------------------------------------- */

static double jpeg_alone(const struct files *f)
{
    static unsigned char rows[16][65536 * 3];
    unsigned char *row[16];
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr err;
    double t = now_us();

    c.err = jpeg_std_error(&err);
    jpeg_create_decompress(&c);
    for (int i = 0; i < 16; i++)
        row[i] = rows[i];
    for (int i = 0; i < f->n; i++) {
        jpeg_mem_src(&c, (const unsigned char *)f->data[i], (unsigned long)f->bytes[i]);
        jpeg_read_header(&c, TRUE);
        c.out_color_space = JCS_RGB;
        jpeg_start_decompress(&c);
        while (c.output_scanline < c.output_height)
            jpeg_read_scanlines(&c, row, 16);
        jpeg_finish_decompress(&c);
    }
    jpeg_destroy_decompress(&c);
    return (now_us() - t) / f->n;
}

/* ---- decoding and resizing ------------------------------------------------------------------- */

static double decode(weft_ctx *ctx, const struct files *f, const weft_image_opts *opts)
{
    struct wf_image_plan p;
    struct wf_image_info info;
    struct wf_image to;
    struct wf_decoder *d;
    float *out = calloc((size_t)(opts->height * opts->width * 3), BATCH * sizeof *out);
    double t;

    if (!out || wf_image_plan(opts, &p) || wf_decoder_new(ctx, &d))
        die();
    t = now_us();
    for (int i = 0; i < f->n; i++) {
        if (wf_image_probe(f->data[i], f->bytes[i], &info) || wf_image_size(&p, &info, &to))
            die();
        to.data = out + i % BATCH * opts->height * opts->width * 3;
        if (wf_image_decode(d, &p, &info, f->data[i], f->bytes[i], (struct wf_at){0, i}, &to))
            die();
    }
    t = now_us() - t;
    wf_decoder_free(d);
    free(out);
    return t / f->n;
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static double pipeline(weft_ctx *ctx, const char *dir, const weft_image_opts *opts)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    int64_t n = 0;
    double t;

    if (weft_data_new(ctx, &d))
        die();
    s = weft_ds_image_folder(d, dir, opts);
    s = weft_ds_shuffle_all(d, s, NULL);
    s = weft_ds_batch(d, s, BATCH, NULL);
    if (weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it))
        die();
    t = now_us();
    for (;;) {
        if (weft_iter_next(it, &b))
            die();
        if (!b)
            break;
        n += b->n;
        weft_batch_free(b);
    }
    t = now_us() - t;
    weft_iter_free(it);
    weft_data_free(d);
    return t / (double)n;
}

/* The first files of the folder, through the pipeline's own list. */
static void load(weft_ctx *ctx, const char *dir, struct files *f)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    if (weft_data_new(ctx, &d))
        die();
    s = weft_ds_image_folder(d, dir,
                             WEFT_OPTS(weft_image_opts, .height = 8, .width = 8, .paths = true));
    if (weft_iter_new(d, s, NULL, &it))
        die();
    while (f->n < N_FILES) {
        const weft_str *path;

        if (weft_iter_next(it, &b))
            die();
        if (!b)
            break;
        path = weft_batch_find(b, "path")->data;
        if (wf_file_read(ctx, path->data, 1 << 30, &f->data[f->n], &f->bytes[f->n]))
            die();
        f->n++;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"libjpeg", "decode_resize_f32", "pipeline"};
    int64_t side = argc > 2 ? atoi(argv[2]) : 224;
    const weft_image_opts *opts =
        WEFT_OPTS(weft_image_opts, .height = side, .width = side, .channels = 3, .dtype = WEFT_F32);
    double took[3][ROUNDS];
    struct files f = {0};
    weft_ctx *ctx;

    if (argc < 2 || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return 1;
    load(ctx, argv[1], &f);
    for (int r = -1; r < ROUNDS; r++) {
        double t[3] = {jpeg_alone(&f), decode(ctx, &f, opts), pipeline(ctx, argv[1], opts)};

        for (int i = 0; i < 3 && r >= 0; i++)
            took[i][r] = t[i];
    }
    for (int i = 0; i < 3; i++) {
        qsort(took[i], ROUNDS, sizeof took[i][0], by_size);
        printf("{\"what\": \"%s\", \"side\": %lld, \"us_per_image\": %.1f}\n", names[i],
               (long long)side, took[i][ROUNDS / 2]);
    }
    for (int i = 0; i < f.n; i++)
        wf_free(ctx, f.data[i]);
    weft_ctx_free(ctx);
    return 0;
}
#else
int main(void)
{
    fprintf(stderr, "built without JPEG\n");
    return 1;
}
#endif
