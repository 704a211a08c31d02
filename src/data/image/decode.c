/* decode.c - from encoded bytes to pixels: which part is decoded, at which scale, and what happens
 * to its rows. */
#include <math.h>

#include "base/fmath.h"
#include "data/image/pixels.h"

#define MAX_PIXELS ((int64_t)1 << 26)
#define MAX_SIDE 65536

enum salts { SALT_BOX = 0x1a6e0000 };

/* ---- options --------------------------------------------------------------------------------- */

weft_status wf_random_box_plan(const weft_random_crop_opts *opts, struct wf_image_plan *p)
{
    weft_random_crop_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_random_crop_opts");

    if (st)
        return st;
    p->seed = o.seed;
    p->min_area = o.min_area ? o.min_area : 0.08;
    p->max_area = o.max_area ? o.max_area : 1.0;
    p->min_ratio = o.min_ratio ? o.min_ratio : 3.0 / 4.0;
    p->max_ratio = o.max_ratio ? o.max_ratio : 4.0 / 3.0;
    if (!(p->min_area > 0 && p->min_area <= p->max_area && p->max_area <= 1) ||
        !(p->min_ratio > 0 && p->min_ratio <= p->max_ratio && p->max_ratio < 1e3))
        return wf_err(WEFT_EINVAL, "a random crop of area %g to %g, ratio %g to %g", p->min_area,
                      p->max_area, p->min_ratio, p->max_ratio);
    return WEFT_OK;
}

weft_status wf_image_plan(const weft_image_opts *opts, struct wf_image_plan *out)
{
    weft_image_opts o;
    struct wf_image_plan p = {.dtype = WEFT_U8, .max_pixels = MAX_PIXELS, .share = 1.0};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_image_opts");

    if (st) {
        *out = p;
        return st;
    }
    p.channels = o.channels;
    p.height = o.height;
    p.width = o.width;
    p.filter = o.filter;
    p.antialias = o.antialias;
    p.full_decode = o.full_decode;
    p.exif = o.exif;
    p.lenient = o.lenient;
    p.skip = o.on_error == WEFT_ON_ERROR_SKIP;
    p.crop = o.crop;
    if (o.dtype)
        p.dtype = o.dtype;
    if (o.max_pixels)
        p.max_pixels = o.max_pixels;
    if (o.crop_share)
        p.share = o.crop_share;
    if (p.channels < 0 || p.channels > 4 || p.channels == 2)
        return wf_err(WEFT_EINVAL, "%d channels: must be 0 (as in the file), 1, 3 or 4",
                      p.channels);
    if (p.dtype != WEFT_U8 && p.dtype != WEFT_F32)
        return wf_err(WEFT_EDTYPE, "images are u8 or f32, not %s", weft_dtype_name(p.dtype));
    if (p.height < 0 || p.width < 0 || !p.height != !p.width || p.height > MAX_SIDE ||
        p.width > MAX_SIDE)
        return wf_err(WEFT_EINVAL, "resize to %lld x %lld", (long long)p.height,
                      (long long)p.width);
    if (p.crop && !p.height)
        return wf_err(WEFT_EINVAL, "a crop needs a height and width to resize to");
    if (!(p.share > 0 && p.share <= 1))
        return wf_err(WEFT_EINVAL, "crop_share %g: must be above 0 and at most 1", p.share);
    if (p.crop == WEFT_CROP_RANDOM)
        st = wf_random_box_plan(o.random, &p);
    *out = p;
    return st;
}

weft_column wf_image_column(const char *name, const struct wf_image_plan *p)
{
    int64_t dim[3] = {p->height ? p->height : WEFT_ANY, p->width ? p->width : WEFT_ANY,
                      p->channels ? p->channels : WEFT_ANY};

    return wf_column_of(name, p->dtype, 3, dim);
}

/* ---- what is taken --------------------------------------------------------------------------- */

static struct wf_box center_box(int64_t h, int64_t w, double ratio, double share)
{
    double bh = (double)h, bw = bh * ratio;
    struct wf_box b;

    if (bw > (double)w) {
        bw = (double)w;
        bh = bw / ratio;
    }
    b.h = wf_min_i64(h, wf_max_i64(1, (int64_t)(bh * share + 0.5)));
    b.w = wf_min_i64(w, wf_max_i64(1, (int64_t)(bw * share + 0.5)));
    b.y = (h - b.h) / 2;
    b.x = (w - b.w) / 2;
    return b;
}

struct wf_box wf_random_box(int64_t h, int64_t w, const struct wf_image_plan *p, struct wf_at at)
{
    float lo = wf_logf((float)p->min_ratio), hi = wf_logf((float)p->max_ratio);
    double ratio = (double)w / (double)h;

    for (uint32_t i = 0; i < 10; i++) {
        uint64_t r[4];
        double area, aspect;
        struct wf_box b;

        for (uint32_t k = 0; k < 4; k++)
            r[k] = wf_random_word(p->seed, at.epoch, at.id, SALT_BOX + 4 * i + k);
        area = (p->min_area + (p->max_area - p->min_area) * wf_unit(r[0])) * (double)h * (double)w;
        aspect = wf_expf(lo + (hi - lo) * (float)wf_unit(r[1]));
        b.w = (int64_t)(sqrt(area * aspect) + 0.5);
        b.h = (int64_t)(sqrt(area / aspect) + 0.5);
        if (b.w > 0 && b.w <= w && b.h > 0 && b.h <= h) {
            b.y = wf_random_index(r[2], h - b.h + 1);
            b.x = wf_random_index(r[3], w - b.w + 1);
            return b;
        }
    }
    ratio = fmin(fmax(ratio, p->min_ratio), p->max_ratio);
    return center_box(h, w, ratio, 1.0);
}

static struct wf_box box_of(const struct wf_image_plan *p, int64_t h, int64_t w, struct wf_at at)
{
    if (p->crop == WEFT_CROP_CENTER)
        return center_box(h, w, (double)p->width / (double)p->height, p->share);
    if (p->crop == WEFT_CROP_RANDOM)
        return wf_random_box(h, w, p, at);
    return (struct wf_box){0, 0, h, w};
}

static bool turned(const struct wf_image_plan *p, const struct wf_image_info *info)
{
    return p->exif && info->orientation > 1;
}

weft_status wf_image_size(const struct wf_image_plan *p, const struct wf_image_info *info,
                          struct wf_image *to)
{
    bool swap = turned(p, info) && info->orientation >= 5;

    if (info->h > p->max_pixels / info->w)
        return wf_err(WEFT_ELIMIT, "%lld x %lld pixels; at most %lld are decoded (max_pixels)",
                      (long long)info->w, (long long)info->h, (long long)p->max_pixels);
    *to = (struct wf_image){.h = p->height ? p->height
                                 : swap    ? info->w
                                           : info->h,
                            .w = p->width ? p->width
                                 : swap   ? info->h
                                          : info->w,
                            .c = p->channels ? p->channels : info->c,
                            .dtype = p->dtype};
    return WEFT_OK;
}

enum wf_image_format wf_image_format_of(const void *bytes, int64_t n)
{
    if (n >= 3 && !memcmp(bytes, "\xff\xd8\xff", 3))
        return WF_JPEG;
    if (n >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8))
        return WF_PNG;
    return WF_NO_IMAGE;
}

weft_status wf_image_probe(const void *bytes, int64_t n, struct wf_image_info *out)
{
    switch (wf_image_format_of(bytes, n)) {
    case WF_JPEG: return wf_jpeg_probe(bytes, n, out);
    case WF_PNG: return wf_png_probe(bytes, n, out);
    default: return wf_err(WEFT_EPARSE, "neither JPEG nor PNG");
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

void wf_sink_row(struct wf_sink *s, int64_t y, const uint8_t *row)
{
    int64_t n = s->box.w * s->c;

    if (s->resizer) {
        wf_resizer_row(s->resizer, row, WEFT_U8);
    } else if (s->to.dtype == WEFT_U8) {
        memcpy((uint8_t *)s->to.data + y * n, row, (size_t)n);
    } else {
        wf_from_levels(row, n, (float *)s->to.data + y * n);
    }
}

static weft_status run_format(struct wf_decoder *d, const struct wf_image_plan *p,
                              const struct wf_image_info *info, const void *bytes, int64_t n,
                              int shrink, struct wf_sink *s)
{
    if (info->format == WF_JPEG)
        return wf_jpeg_decode(d, bytes, n, p->lenient, shrink, s);
    return wf_png_decode(d, bytes, n, s);
}

/* How far libjpeg may shrink while decoding: the result must not be smaller than requested. */
static int shrink_of(const struct wf_image_plan *p, const struct wf_image_info *info,
                     const struct wf_box *box)
{
    int shrink = 1;

    if (info->format != WF_JPEG || !p->height || p->full_decode || p->filter != WEFT_IMAGE_BILINEAR)
        return 1;
    while (shrink < 8 && box->h / (2 * shrink) >= p->height && box->w / (2 * shrink) >= p->width)
        shrink *= 2;
    return shrink;
}

static struct wf_box shrunk(const struct wf_image_info *info, struct wf_box b, int shrink)
{
    int64_t h = (info->h + shrink - 1) / shrink, w = (info->w + shrink - 1) / shrink;
    struct wf_box s = {b.y / shrink, b.x / shrink, 0, 0};

    s.h = wf_min_i64(h, (b.y + b.h + shrink - 1) / shrink) - s.y;
    s.w = wf_min_i64(w, (b.x + b.w + shrink - 1) / shrink) - s.x;
    return s;
}

/* An image that must be rotated is decoded completely first. */
static weft_status decode_turned(struct wf_decoder *d, const struct wf_image_plan *p,
                                 const struct wf_image_info *info, const void *bytes, int64_t n,
                                 struct wf_at at, const struct wf_image *to)
{
    int64_t bytes_each = info->h * info->w * to->c;
    bool swap = info->orientation >= 5;
    struct wf_image raw = {.h = info->h, .w = info->w, .c = to->c, .dtype = WEFT_U8}, up = raw;
    struct wf_sink s = {.box = {0, 0, info->h, info->w}, .c = to->c};
    struct wf_box box;
    weft_status st =
        wf_grow_bytes(d->ctx, &d->turn, &d->cap_turn, 2 * bytes_each + 64, "a turned image");

    if (st)
        return st;
    raw.data = d->turn;
    up.data = d->turn + bytes_each;
    up.h = swap ? info->w : info->h;
    up.w = swap ? info->h : info->w;
    s.to = raw;
    st = run_format(d, p, info, bytes, n, 1, &s);
    if (st)
        return st;
    wf_image_orient(&raw, info->orientation, &up);
    box = box_of(p, up.h, up.w, at);
    return wf_image_resize(&d->resizer, &up, &box, p->height ? p->filter : WEFT_IMAGE_NEAREST,
                           p->antialias, to);
}

weft_status wf_image_decode(struct wf_decoder *d, const struct wf_image_plan *p,
                            const struct wf_image_info *info, const void *bytes, int64_t n,
                            struct wf_at at, const struct wf_image *to)
{
    struct wf_sink s = {.c = to->c, .to = *to};
    struct wf_box box = box_of(p, info->h, info->w, at);
    int shrink = shrink_of(p, info, &box);
    weft_status st = WEFT_OK;

    if (turned(p, info))
        return decode_turned(d, p, info, bytes, n, at, to);
    s.box = shrunk(info, box, shrink);
    if (p->height && (s.box.h != p->height || s.box.w != p->width)) {
        s.resizer = &d->resizer;
        st = wf_resizer_set(s.resizer, s.box.h, s.box.w, to->c, p->filter, p->antialias, to);
    }
    return st ? st : run_format(d, p, info, bytes, n, shrink, &s);
}

/* ---- scratch --------------------------------------------------------------------------------- */

weft_status wf_grow_bytes(weft_ctx *ctx, uint8_t **p, int64_t *cap, int64_t need, const char *what)
{
    if (need <= *cap)
        return WEFT_OK;
    wf_free(ctx, *p);
    *cap = 0;
    *p = wf_alloc(ctx, (size_t)need);
    if (!*p)
        return wf_err_nomem(ctx, (size_t)need, what);
    *cap = need;
    return WEFT_OK;
}

weft_status wf_decoder_new(weft_ctx *ctx, struct wf_decoder **out)
{
    struct wf_decoder *d = wf_alloc(ctx, sizeof *d);

    if (!d)
        return wf_err_nomem(ctx, sizeof *d, "image decoder");
    d->ctx = ctx;
    wf_resizer_init(&d->resizer, ctx);
    *out = d;
    return WEFT_OK;
}

void wf_decoder_free(struct wf_decoder *d)
{
    if (!d)
        return;
    wf_jpeg_free(d);
    wf_resizer_free(&d->resizer);
    wf_free(d->ctx, d->file);
    wf_free(d->ctx, d->pixels);
    wf_free(d->ctx, d->rows);
    wf_free(d->ctx, d->turn);
    wf_free(d->ctx, d->whole);
    wf_free(d->ctx, d);
}

weft_status weft_image_decode(weft_ctx *ctx, const void *bytes, int64_t n,
                              const weft_image_opts *opts, weft_tensor *out)
{
    struct wf_decoder *d = NULL;
    struct wf_image_plan p;
    struct wf_image_info info;
    struct wf_image to = {.data = NULL};
    weft_status st = wf_image_plan(opts, &p);

    if (!st)
        st = wf_image_probe(bytes, n, &info);
    if (!st)
        st = wf_image_size(&p, &info, &to);
    if (!st)
        st = wf_decoder_new(ctx, &d);
    if (!st && !(to.data = wf_alloc(ctx, (size_t)wf_image_bytes(&to))))
        st = wf_err_nomem(ctx, (size_t)wf_image_bytes(&to), "an image");
    if (!st)
        st = wf_image_decode(d, &p, &info, bytes, n, (struct wf_at){0, 0}, &to);
    wf_decoder_free(d);
    if (st)
        wf_free(ctx, to.data);
    else
        *out = weft_view(to.dtype, to.data, 3, (int64_t[]){to.h, to.w, to.c});
    return st;
}
