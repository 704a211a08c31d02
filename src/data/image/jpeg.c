/* jpeg.c - JPEG, through libjpeg (libjpeg-turbo): rows of a box of the image, at full, half,
 * quarter or eighth scale.
 *
 * Whatever libjpeg calls corrupt is an error here, including warnings, unless the caller is
 * lenient: a truncated file would otherwise be trained on as gray. The decompressor is created once
 * per thread and reused. */
#include <setjmp.h>
#include <stdio.h>

#include "data/image/image.h"

#ifdef WF_HAVE_JPEG
#include <jpeglib.h>
#endif

/* ---- the head -------------------------------------------------------------------------------- */

static int64_t be16(const uint8_t *p)
{
    return p[0] << 8 | p[1];
}

/* The orientation in an APP1 segment's EXIF data; 1 if there is none. */
static int exif_orientation(const uint8_t *p, int64_t n)
{
    bool big;
    int64_t ifd, count;

#define U16(q) (big ? (q)[0] << 8 | (q)[1] : (q)[1] << 8 | (q)[0])
    if (n < 14 || memcmp(p, "Exif\0\0", 6))
        return 1;
    p += 6;
    n -= 6;
    big = p[0] == 'M';
    ifd = big ? (int64_t)be16(p + 4) << 16 | be16(p + 6)
              : (int64_t)p[7] << 24 | (int64_t)p[6] << 16 | (int64_t)p[5] << 8 | p[4];
    if (ifd > n - 2)
        return 1;
    count = U16(p + ifd);
    for (int64_t i = 0; i < count && ifd + 2 + 12 * (i + 1) <= n; i++) {
        const uint8_t *entry = p + ifd + 2 + 12 * i;

        if (U16(entry) == 0x0112) {
            int v = U16(entry + 8);

            return v >= 1 && v <= 8 ? v : 1;
        }
    }
#undef U16
    return 1;
}

static bool is_frame(int marker)
{
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

weft_status wf_jpeg_probe(const uint8_t *p, int64_t n, struct wf_image_info *out)
{
    struct wf_image_info info = {.format = WF_JPEG, .orientation = 1};
    int64_t at = 2;

    while (at + 4 <= n) {
        int marker = p[at + 1];
        int64_t len;

        if (p[at] != 0xff)
            return wf_err(WEFT_EPARSE, "corrupt JPEG: no marker at byte %lld", (long long)at);
        if (marker == 0xff) { /* padding */
            at++;
            continue;
        }
        if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7)) {
            at += 2;
            continue;
        }
        if (marker == 0xda || marker == 0xd9)
            break;
        len = be16(p + at + 2);
        if (len < 2 || len > n - at - 2)
            break;
        if (marker == 0xe1 && info.orientation == 1)
            info.orientation = exif_orientation(p + at + 4, len - 2);
        if (is_frame(marker)) {
            if (len < 8)
                break;
            info.h = be16(p + at + 5);
            info.w = be16(p + at + 7);
            info.c = p[at + 9] == 1 ? 1 : 3;
            if (!info.h || !info.w)
                return wf_err(WEFT_EPARSE, "corrupt JPEG: %lld x %lld pixels", (long long)info.w,
                              (long long)info.h);
            *out = info;
            return WEFT_OK;
        }
        at += 2 + len;
    }
    return wf_err(WEFT_EPARSE, "corrupt JPEG: it ends, or its pixels begin, before its size");
}

#ifdef WF_HAVE_JPEG

/* ---- errors ---------------------------------------------------------------------------------- */

/* Progressive files may have any number of scans, each as much work as an image. */
#define MAX_SCANS 100
#define N_ROWS 16 /* requested at a time */

struct jpeg {
    struct jpeg_decompress_struct c; /* first: libjpeg returns its address */
    struct jpeg_error_mgr err;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
    bool lenient;
};

static void on_error(j_common_ptr c)
{
    struct jpeg *j = (struct jpeg *)c;

    c->err->format_message(c, j->text);
    longjmp(j->jump, 1);
}

static void on_message(j_common_ptr c, int level)
{
    struct jpeg *j = (struct jpeg *)c;

    if (level < 0 && !j->lenient)
        on_error(c);
}

static void on_progress(j_common_ptr c)
{
    struct jpeg *j = (struct jpeg *)c;

    if (j->c.input_scan_number > MAX_SCANS) {
        snprintf(j->text, sizeof j->text, "more than %d scans", MAX_SCANS);
        longjmp(j->jump, 1);
    }
}

static void no_output(j_common_ptr c)
{
    (void)c;
}

/* False if libjpeg could not allocate. */
static bool create(struct jpeg *j)
{
    j->c.err = jpeg_std_error(&j->err);
    j->err.error_exit = on_error;
    j->err.emit_message = on_message;
    j->err.output_message = no_output;
    if (setjmp(j->jump))
        return false;
    jpeg_create_decompress(&j->c);
    j->progress.progress_monitor = on_progress;
    j->c.progress = &j->progress;
    return true;
}

static weft_status jpeg_state(struct wf_decoder *d, struct jpeg **out)
{
    struct jpeg *j = d->jpeg;

    if (!j) {
        j = wf_alloc(d->ctx, sizeof *j);
        if (!j || !create(j)) {
            wf_free(d->ctx, j);
            return wf_err_nomem(d->ctx, sizeof *j, "JPEG");
        }
        d->jpeg = j;
    }
    *out = j;
    return WEFT_OK;
}

void wf_jpeg_free(struct wf_decoder *d)
{
    struct jpeg *j = d->jpeg;

    if (j) {
        jpeg_destroy_decompress(&j->c);
        wf_free(d->ctx, j);
        d->jpeg = NULL;
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A row of CMYK, normal or (Adobe) inverted, to RGB or gray in place. */
static void from_cmyk(uint8_t *row, int64_t n, bool inverted, int c)
{
    for (int64_t i = 0; i < n; i++) {
        int rgb[3], k = inverted ? row[4 * i + 3] : 255 - row[4 * i + 3];

        for (int b = 0; b < 3; b++)
            rgb[b] = (inverted ? row[4 * i + b] : 255 - row[4 * i + b]) * k / 255;
        if (c == 1) {
            row[i] =
                wf_level(0.299f * (float)rgb[0] + 0.587f * (float)rgb[1] + 0.114f * (float)rgb[2]);
        } else {
            for (int b = 0; b < 3; b++)
                row[c * i + b] = (uint8_t)rgb[b];
            if (c == 4)
                row[4 * i + 3] = 255;
        }
    }
}

struct rows {
    struct wf_decoder *d;
    struct wf_sink *s;
    const void *bytes;
    int64_t n;
    int shrink;
};

static weft_status begin(struct jpeg *j, const struct rows *r)
{
    struct jpeg_decompress_struct *c = &j->c;
    const struct wf_sink *s = r->s;

    jpeg_mem_src(c, r->bytes, (unsigned long)r->n);
    jpeg_read_header(c, TRUE);
    c->scale_num = 1;
    c->scale_denom = (unsigned)r->shrink;
    c->dct_method = JDCT_ISLOW;
    if (c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK)
        c->out_color_space = JCS_CMYK;
    else
        c->out_color_space = s->c == 1 ? JCS_GRAYSCALE : s->c == 4 ? JCS_EXT_RGBA : JCS_RGB;
    jpeg_start_decompress(c);
    if (s->box.x + s->box.w > (int64_t)c->output_width ||
        s->box.y + s->box.h > (int64_t)c->output_height)
        return wf_err(WEFT_EPARSE, "corrupt JPEG: its size changes");
    return WEFT_OK;
}

/* Skips columns and rows outside the box. Returns the column at which the rows then begin. A few
 * more are decoded than needed: at a border of the decoded part, chroma would be interpolated
 * differently. */
static int64_t crop(struct jpeg_decompress_struct *c, const struct wf_box *box)
{
    const int64_t margin = 8;
    int64_t lo = wf_max_i64(0, box->x - margin);
    int64_t hi = wf_min_i64(c->output_width, box->x + box->w + margin);
    JDIMENSION first = (JDIMENSION)lo, width = (JDIMENSION)(hi - lo);

    if (width < c->output_width)
        jpeg_crop_scanline(c, &first, &width);
    else
        first = 0;
    if (box->y)
        jpeg_skip_scanlines(c, (JDIMENSION)box->y);
    return first;
}

static weft_status read_rows(struct jpeg *j, const struct rows *r)
{
    struct jpeg_decompress_struct *c = &j->c;
    struct wf_sink *s = r->s;
    weft_status st = begin(j, r);
    bool cmyk = c->out_color_space == JCS_CMYK, direct;
    int64_t whole = c->output_height, left, stride, apart, y = 0;
    uint8_t *row[N_ROWS];

    if (st)
        return st;
    left = s->box.x - crop(c, &s->box);
    stride = (int64_t)c->output_width * c->output_components;
    /* Directly into the result, if a row of it has the format of libjpeg's. */
    direct = !s->resizer && s->to.dtype == WEFT_U8 && !cmyk && s->box.w == (int64_t)c->output_width;
    /* libjpeg-turbo writes aligned rows past the cache, but they are read immediately: so use
     * unaligned ones. */
    apart = wf_round_up(stride, 64) + 64;
    if (!direct) {
        st = wf_grow_bytes(r->d->ctx, &r->d->rows, &r->d->cap_rows, N_ROWS * apart + 64, "JPEG");
        if (st)
            return st;
    }
    while (y < s->box.h) {
        int64_t want = wf_min_i64(N_ROWS, s->box.h - y), got;

        for (int64_t i = 0; i < want; i++)
            row[i] = direct ? (uint8_t *)s->to.data + (y + i) * stride : r->d->rows + i * apart + 8;
        got = jpeg_read_scanlines(c, row, (JDIMENSION)want);
        for (int64_t i = 0; i < got && !direct; i++) {
            if (cmyk)
                from_cmyk(row[i], c->output_width, c->saw_Adobe_marker, s->c);
            wf_sink_row(s, y + i, row[i] + left * s->c);
        }
        y += got;
    }
    /* The end of a file is checked only if it was read up to there. */
    if (s->box.y + s->box.h == whole)
        jpeg_finish_decompress(c);
    else
        jpeg_abort_decompress(c);
    return WEFT_OK;
}

/* libjpeg may longjmp back into this function. */
static weft_status guarded(struct jpeg *j, const struct rows *r)
{
    if (setjmp(j->jump))
        return wf_err(WEFT_EPARSE, "corrupt JPEG: %s", j->text);
    return read_rows(j, r);
}

weft_status wf_jpeg_decode(struct wf_decoder *d, const void *bytes, int64_t n, bool lenient,
                           int shrink, struct wf_sink *s)
{
    const struct rows r = {.d = d, .s = s, .bytes = bytes, .n = n, .shrink = shrink};
    struct jpeg *j = NULL;
    weft_status st = jpeg_state(d, &j);

    if (st)
        return st;
    j->lenient = lenient;
    st = guarded(j, &r);
    if (st)
        jpeg_abort_decompress(&j->c);
    return st;
}

#else

weft_status wf_jpeg_decode(struct wf_decoder *d, const void *bytes, int64_t n, bool lenient,
                           int shrink, struct wf_sink *s)
{
    (void)d, (void)bytes, (void)n, (void)lenient, (void)shrink, (void)s;
    return wf_err(WEFT_ENOSUP, "this build has no JPEG (Debian: libjpeg-dev)");
}

void wf_jpeg_free(struct wf_decoder *d)
{
    (void)d;
}

#endif
