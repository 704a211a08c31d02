/* picture.c - tensors as images. */
#include <math.h>

#include "train/report/picture.h"

#ifdef WF_HAVE_PNG
#include <png.h>
#endif

#define MAX_SIDE 4096

bool wf_picture_of(weft_dtype dtype, int rank, const int64_t *dim, struct wf_picture *out)
{
    if ((dtype != WEFT_F32 && dtype != WEFT_U8) || rank < 2 || rank > 3)
        return false;
    *out = (struct wf_picture){dim[0], dim[1], rank == 3 ? dim[2] : 1};
    return out->h > 1 && out->w > 1 && out->h <= MAX_SIDE && out->w <= MAX_SIDE &&
           (out->c == 1 || out->c == 3 || out->c == 4);
}

void wf_picture_pixels(const struct wf_picture *p, weft_dtype dtype, const void *values,
                       uint8_t *out)
{
    int64_t n = p->h * p->w * p->c;
    const float *v = values;
    float lo = INFINITY, hi = -INFINITY, scale;

    if (dtype == WEFT_U8) {
        memcpy(out, values, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        lo = isfinite(v[i]) && v[i] < lo ? v[i] : lo;
        hi = isfinite(v[i]) && v[i] > hi ? v[i] : hi;
    }
    if (lo >= 0 && hi <= 1) {
        lo = 0;
        hi = 1;
    } else if (lo >= 0 && hi <= 255) {
        lo = 0;
        hi = 255;
    }
    scale = hi > lo ? 255 / (hi - lo) : 0;
    for (int64_t i = 0; i < n; i++) {
        float x = (v[i] - lo) * scale;

        out[i] = x > 0 ? x < 255 ? (uint8_t)(x + 0.5f) : 255 : 0; /* NaN is black */
    }
}

/* A block is written at or before the position of its first pixel, so it does not overwrite pixels
 * that are still to be read. */
void wf_picture_shrink(struct wf_picture *p, uint8_t *pixels, int64_t max)
{
    int64_t by = (wf_max_i64(p->h, p->w) + max - 1) / max, h = p->h, w = p->w, c = p->c;

    if (by <= 1)
        return;
    p->h = wf_max_i64(p->h / by, 1);
    p->w = wf_max_i64(p->w / by, 1);
    for (int64_t i = 0; i < p->h * p->w * c; i++) {
        int64_t y = i / c / p->w * by, x = i / c % p->w * by, sum = 0, n = 0;

        for (int64_t k = 0; k < by * by; k++) {
            if (y + k / by >= h || x + k % by >= w)
                continue; /* a side is shorter than a block */
            sum += pixels[((y + k / by) * w + x + k % by) * c + i % c];
            n++;
        }
        pixels[i] = (uint8_t)((sum + n / 2) / n);
    }
}

#ifdef WF_HAVE_PNG
bool wf_png_there(void)
{
    return true;
}

weft_status wf_png_encode(const struct wf_picture *p, const uint8_t *pixels, struct wf_buf *b)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)p->w,
                       .height = (png_uint_32)p->h,
                       .format = p->c == 1   ? PNG_FORMAT_GRAY
                                 : p->c == 3 ? PNG_FORMAT_RGB
                                             : PNG_FORMAT_RGBA};
    png_alloc_size_t n = PNG_IMAGE_PNG_SIZE_MAX(image);
    char *room = wf_alloc(b->ctx, n);
    weft_status st = WEFT_OK;

    if (!room)
        return wf_err_nomem(b->ctx, n, "an image");
    if (png_image_write_to_memory(&image, room, &n, 0, pixels, 0, NULL))
        wf_buf_add(b, room, (int64_t)n);
    else
        st = wf_err(WEFT_EINVAL, "cannot encode PNG: %s", image.message);
    png_image_free(&image);
    wf_free(b->ctx, room);
    return st ? st : b->st;
}
#else
bool wf_png_there(void)
{
    return false;
}

weft_status wf_png_encode(const struct wf_picture *p, const uint8_t *pixels, struct wf_buf *b)
{
    (void)p;
    (void)pixels;
    (void)b;
    return wf_err(WEFT_ENOSUP, "images need libpng, which this build does not have");
}
#endif
