/* png.c - PNG, through libpng: rows of 8-bit gray, gray and alpha, RGB or RGBA. 16-bit levels are
 * scaled to 8. */
#include <setjmp.h>
#include <stdio.h>

#include "data/image/image.h"

#ifdef WF_HAVE_PNG
#include <png.h>
#endif

static int64_t be32(const uint8_t *p)
{
    return (int64_t)p[0] << 24 | (int64_t)p[1] << 16 | (int64_t)p[2] << 8 | p[3];
}

weft_status wf_png_probe(const uint8_t *p, int64_t n, struct wf_image_info *out)
{
    static const int channels[7] = {1, 0, 3, 3, 2, 0, 4};
    struct wf_image_info info = {.format = WF_PNG, .orientation = 1};
    int type;

    if (n < 33 || memcmp(p + 12, "IHDR", 4))
        return wf_err(WEFT_EPARSE, "corrupt PNG: it ends before its size");
    info.w = be32(p + 16);
    info.h = be32(p + 20);
    type = p[25];
    if (type > 6 || !channels[type] || !info.w || !info.h || info.w > INT32_MAX ||
        info.h > INT32_MAX)
        return wf_err(WEFT_EPARSE, "corrupt PNG: its header is invalid");
    info.c = channels[type];
    /* A transparent color is an alpha channel in disguise. */
    for (int64_t at = 33; at + 12 <= n && memcmp(p + at + 4, "IDAT", 4); at += 12 + be32(p + at)) {
        if (!memcmp(p + at + 4, "tRNS", 4) && (info.c & 1)) {
            info.c++;
            break;
        }
    }
    *out = info;
    return WEFT_OK;
}

#ifdef WF_HAVE_PNG

struct source {
    const uint8_t *p;
    int64_t n;
    jmp_buf jump;
    char text[160];
    png_structp png;
    png_infop info;
};

static void on_error(png_structp png, png_const_charp text)
{
    struct source *s = png_get_error_ptr(png);

    snprintf(s->text, sizeof s->text, "%s", text);
    longjmp(s->jump, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct source *s = png_get_io_ptr(png);

    if ((int64_t)n > s->n)
        png_error(png, "it ends early");
    memcpy(to, s->p, n);
    s->p += n;
    s->n -= (int64_t)n;
}

/* Asks libpng for c channels of 8 bits; gray of a color image is computed from 3 by us. Returns the
 * number of channels in rows. */
static int set_form(struct source *s, int c)
{
    int colour = png_get_color_type(s->png, s->info);
    bool alpha = (colour & PNG_COLOR_MASK_ALPHA) || png_get_valid(s->png, s->info, PNG_INFO_tRNS);
    bool rgb = colour & PNG_COLOR_MASK_COLOR;

    png_set_expand(s->png);
    png_set_scale_16(s->png);
    if (c == 2 || c == 4) {
        if (!alpha)
            png_set_add_alpha(s->png, 0xff, PNG_FILLER_AFTER);
    } else if (alpha) {
        png_set_strip_alpha(s->png);
    }
    if (c >= 3 && !rgb)
        png_set_gray_to_rgb(s->png);
    return c == 1 && rgb ? 3 : c;
}

static void to_grey(uint8_t *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        row[i] = wf_level(0.299f * (float)row[3 * i] + 0.587f * (float)row[3 * i + 1] +
                          0.114f * (float)row[3 * i + 2]);
}

/* Row y of the image is complete. */
static void give(struct wf_sink *s, int64_t y, uint8_t *row, int64_t w, int got)
{
    if (y < s->box.y || y >= s->box.y + s->box.h)
        return;
    if (got == 3 && s->c == 1)
        to_grey(row, w);
    wf_sink_row(s, y - s->box.y, row + s->box.x * s->c);
}

static weft_status read_rows(struct wf_decoder *d, struct source *f, struct wf_sink *s)
{
    int64_t h, w, stride, end = s->box.y + s->box.h;
    bool interlaced;
    weft_status st;
    int got, passes;

    png_read_info(f->png, f->info);
    h = png_get_image_height(f->png, f->info);
    w = png_get_image_width(f->png, f->info);
    if (s->box.x + s->box.w > w || end > h)
        return wf_err(WEFT_EPARSE, "corrupt PNG: its size changes");
    got = set_form(f, s->c);
    passes = png_set_interlace_handling(f->png);
    interlaced = passes > 1;
    png_read_update_info(f->png, f->info);
    stride = w * got;
    if ((int64_t)png_get_rowbytes(f->png, f->info) != stride)
        return wf_err(WEFT_EBUG, "PNG: rows of %lld bytes, not %lld",
                      (long long)png_get_rowbytes(f->png, f->info), (long long)stride);
    st = wf_grow_bytes(d->ctx, &d->pixels, &d->cap_pixels, (interlaced ? h * stride : stride) + 64,
                       "PNG");
    if (st)
        return st;
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < (interlaced ? h : end); y++) {
            uint8_t *row = d->pixels + (interlaced ? y * stride : 0);

            png_read_row(f->png, row, NULL);
            if (pass == passes - 1)
                give(s, y, row, w, got);
        }
    if (end == h)
        png_read_end(f->png, NULL);
    return WEFT_OK;
}

weft_status wf_png_decode(struct wf_decoder *d, const void *bytes, int64_t n, struct wf_sink *s)
{
    struct source *f = wf_alloc(d->ctx, sizeof *f);
    weft_status st;

    if (!f)
        return wf_err_nomem(d->ctx, sizeof *f, "PNG");
    f->p = bytes;
    f->n = n;
    f->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, f, on_error, on_warning);
    f->info = f->png ? png_create_info_struct(f->png) : NULL;
    if (!f->info) {
        st = wf_err(WEFT_ENOMEM, "PNG: out of memory");
    } else if (setjmp(f->jump)) {
        st = wf_err(WEFT_EPARSE, "corrupt PNG: %s", f->text);
    } else {
        /* Ancillary chunks may be compressed too. */
        png_set_chunk_malloc_max(f->png, 8 << 20);
        png_set_chunk_cache_max(f->png, 100);
        png_set_user_limits(f->png, INT32_MAX, INT32_MAX);
        png_set_read_fn(f->png, f, on_read);
        st = read_rows(d, f, s);
    }
    png_destroy_read_struct(&f->png, &f->info, NULL);
    wf_free(d->ctx, f);
    return st;
}

#else

weft_status wf_png_decode(struct wf_decoder *d, const void *bytes, int64_t n, struct wf_sink *s)
{
    (void)d, (void)bytes, (void)n, (void)s;
    return wf_err(WEFT_ENOSUP, "this build has no PNG (Debian: libpng-dev)");
}

#endif
