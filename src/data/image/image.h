/* image.h - shared by the image files: pixels, decoding row by row, resizing. */
#ifndef WF_DATA_IMAGE_IMAGE_H
#define WF_DATA_IMAGE_IMAGE_H

#include "data/data.h"
#include "weft/data_image.h"

/* Pixels in memory, rows one after the other. */
struct wf_image {
    int64_t h, w;
    int c;
    weft_dtype dtype; /* WEFT_U8 or WEFT_F32 */
    void *data;
};
static inline int64_t wf_image_items(const struct wf_image *m)
{
    return m->h * m->w * m->c;
}
static inline int64_t wf_image_bytes(const struct wf_image *m)
{
    return wf_image_items(m) * (m->dtype == WEFT_U8 ? 1 : 4);
}
/* A level as u8: nearest, clamped; NaN is 0. */
static inline uint8_t wf_level(float v)
{
    return v >= 0.0f ? v >= 255.0f ? 255 : (uint8_t)(v + 0.5f) : 0;
}

struct wf_box {
    int64_t y, x, h, w;
};

/* ---- resizing (resize.c) --------------------------------------------------------------------- */

/* The taps of one axis: result i is the sum of weight[i * n_taps + k] * source[first[i] + k].
 * Bilinear ones without antialias have two taps: the result is a + (b - a) * weight[2i + 1], as
 * TensorFlow computes it. */
struct wf_taps {
    int64_t n_in, n_out, cap, cap_weights;
    int n_taps;
    weft_image_filter filter;
    bool antialias;
    int64_t *first, *second; /* second: of two taps, clamped at the border */
    float *weight;
};

/* A resizer takes rows of the source in order and writes rows of the result as soon as they are
 * complete; it keeps a few rows that were resized along x. Kept in scratch and set up for each
 * image: nothing is allocated unless sizes grow. */
struct wf_resizer {
    weft_ctx *ctx;
    struct wf_taps x, y;
    int c;
    weft_simd simd;
    float *ring; /* n_ring rows of x.n_out * c values */
    int64_t n_ring, row, cap_ring;
    int64_t next_in, next_out; /* rows */
    struct wf_image to;
    float *line; /* one row, if the result is u8 */
    int64_t cap_line;
};
void wf_resizer_init(struct wf_resizer *r, weft_ctx *ctx);
void wf_resizer_free(struct wf_resizer *r);
weft_status wf_resizer_set(struct wf_resizer *r, int64_t h, int64_t w, int c,
                           weft_image_filter filter, bool antialias, const struct wf_image *to);
/* Whether any result needs this row of the source; other rows may be skipped (pass NULL to row). */
bool wf_resizer_wants(const struct wf_resizer *r, int64_t y);
/* The next row. */
void wf_resizer_row(struct wf_resizer *r, const void *row, weft_dtype dtype);
/* A whole image, or a box of it. */
weft_status wf_image_resize(struct wf_resizer *r, const struct wf_image *from,
                            const struct wf_box *box, weft_image_filter filter, bool antialias,
                            const struct wf_image *to);

/* ---- decoding (decode.c, jpeg.c, png.c) ------------------------------------------------------ */

enum wf_image_format { WF_NO_IMAGE, WF_JPEG, WF_PNG };
enum wf_image_format wf_image_format_of(const void *bytes, int64_t n);

struct wf_image_info {
    enum wf_image_format format;
    int64_t h, w;
    int c;           /* channels as in the file */
    int orientation; /* EXIF, 1 to 8 */
};
/* The head of an image, without decoding. */
weft_status wf_image_probe(const void *bytes, int64_t n, struct wf_image_info *out);

/* Options, checked and with defaults applied. */
struct wf_image_plan {
    int channels;
    int64_t height, width;
    weft_image_filter filter;
    bool antialias, full_decode, exif, lenient, skip;
    weft_dtype dtype;
    weft_image_crop crop;
    double share, min_area, max_area, min_ratio, max_ratio;
    uint64_t seed;
    int64_t max_pixels;
};
weft_status wf_image_plan(const weft_image_opts *opts, struct wf_image_plan *out);
/* The column of such images. */
weft_column wf_image_column(const char *name, const struct wf_image_plan *p);

/* Where rows of u8 levels go while an image is decoded. */
struct wf_sink {
    struct wf_box box; /* in the source (at its decoded scale) */
    int c;             /* channels that the decoder must provide */
    struct wf_image to;
    struct wf_resizer *resizer; /* NULL: rows go to `to` unchanged */
};
/* Row y of the box is complete: pixels [0, box.w). NULL: a row that is not needed. */
void wf_sink_row(struct wf_sink *s, int64_t y, const uint8_t *row);

/* Per-thread memory of decoding. */
struct wf_decoder {
    weft_ctx *ctx;
    struct wf_resizer resizer;
    /* An encoded file; the output of libpng; some rows; images to rotate; an image of unknown
     * size. */
    uint8_t *file, *pixels, *rows, *turn, *whole;
    int64_t cap_file, cap_pixels, cap_rows, cap_turn, cap_whole;
    void *jpeg; /* libjpeg's state, kept between images */
};
weft_status wf_decoder_new(weft_ctx *ctx, struct wf_decoder **out);
void wf_decoder_free(struct wf_decoder *d);
weft_status wf_grow_bytes(weft_ctx *ctx, uint8_t **p, int64_t *cap, int64_t need, const char *what);

/* Decodes `bytes`; to->data must have the size given by wf_image_size. `at` determines a random
 * crop. */
weft_status wf_image_size(const struct wf_image_plan *p, const struct wf_image_info *info,
                          struct wf_image *to);
weft_status wf_image_decode(struct wf_decoder *d, const struct wf_image_plan *p,
                            const struct wf_image_info *info, const void *bytes, int64_t n,
                            struct wf_at at, const struct wf_image *to);

/* One format's decoder: the box of the image into the sink; target: what it will be resized to, or
 * zero. */
weft_status wf_jpeg_decode(struct wf_decoder *d, const void *bytes, int64_t n, bool lenient,
                           int shrink, struct wf_sink *s);
weft_status wf_png_decode(struct wf_decoder *d, const void *bytes, int64_t n, struct wf_sink *s);
void wf_jpeg_free(struct wf_decoder *d);
weft_status wf_jpeg_probe(const uint8_t *p, int64_t n, struct wf_image_info *out);
weft_status wf_png_probe(const uint8_t *p, int64_t n, struct wf_image_info *out);

/* A node that decodes column `column` of s, which has encoded bytes or NUL-terminated paths. */
weft_ds wf_ds_decode(weft_data *d, const char *builder, weft_ds s, const char *column,
                     const weft_image_opts *opts, bool from_file);

/* The box of a random crop in an image, and the corresponding part of a plan. */
weft_status wf_random_box_plan(const weft_random_crop_opts *opts, struct wf_image_plan *p);
struct wf_box wf_random_box(int64_t h, int64_t w, const struct wf_image_plan *p, struct wf_at at);

/* ---- operations on pixels (ops.c) ------------------------------------------------------------ */

void wf_image_crop(const struct wf_image *from, int64_t y, int64_t x, const struct wf_image *to);
void wf_image_pad(const struct wf_image *from, int64_t y, int64_t x, float value,
                  const struct wf_image *to);
void wf_image_flip(const struct wf_image *from, bool left_right, bool up_down,
                   const struct wf_image *to);
void wf_image_turn(const struct wf_image *from, int quarters, const struct wf_image *to);
void wf_image_rotate(const struct wf_image *from, double degrees, float fill,
                     const struct wf_image *to);
/* Undoes EXIF orientation 1 to 8. */
void wf_image_orient(const struct wf_image *from, int orientation, const struct wf_image *to);

/* Color changes; all may be done in one call, in this order. */
struct wf_colour {
    float brightness; /* 0: none */
    float contrast, saturation;
    float hue;
    bool do_contrast, do_saturation, do_hue;
};
void wf_image_colour(const struct wf_image *from, const struct wf_colour *c, float *scratch,
                     const struct wf_image *to);
void wf_image_grey(const struct wf_image *from, const struct wf_image *to);
void wf_image_fill(const struct wf_image *to, const struct wf_box *box, float value);

/* Uniform in [0, 1) from a random word: 53 bits. */
static inline double wf_unit(uint64_t word)
{
    return (double)(word >> 11) * 0x1p-53;
}

#endif
