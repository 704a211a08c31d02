/* ops.c - operations on the pixels of one image: moving them, changing their colors. Pure: from one
 * memory to another. */
#include "base/fmath.h"
#include "data/image/pixels.h"

static int64_t item_bytes(const struct wf_image *m)
{
    return m->dtype == WEFT_U8 ? 1 : 4;
}

static char *at(const struct wf_image *m, int64_t y, int64_t x)
{
    return (char *)m->data + (y * m->w + x) * m->c * item_bytes(m);
}

/* ---- moving ---------------------------------------------------------------------------------- */

void wf_image_crop(const struct wf_image *from, int64_t y, int64_t x, const struct wf_image *to)
{
    for (int64_t i = 0; i < to->h; i++)
        memcpy(at(to, i, 0), at(from, y + i, x), (size_t)(to->w * to->c * item_bytes(to)));
}

static void fill_items(const struct wf_image *m, int64_t y, int64_t x, int64_t n_pixels,
                       float value)
{
    char *p = at(m, y, x);

    if (m->dtype == WEFT_U8)
        memset(p, wf_level(value), (size_t)(n_pixels * m->c));
    else
        for (int64_t i = 0; i < n_pixels * m->c; i++)
            ((float *)(void *)p)[i] = value;
}

void wf_image_fill(const struct wf_image *to, const struct wf_box *box, float value)
{
    for (int64_t y = box->y; y < box->y + box->h; y++)
        fill_items(to, y, box->x, box->w, value);
}

void wf_image_pad(const struct wf_image *from, int64_t y, int64_t x, float value,
                  const struct wf_image *to)
{
    for (int64_t i = 0; i < to->h; i++) {
        if (i < y || i >= y + from->h) {
            fill_items(to, i, 0, to->w, value);
            continue;
        }
        fill_items(to, i, 0, x, value);
        memcpy(at(to, i, x), at(from, i - y, 0), (size_t)(from->w * from->c * item_bytes(from)));
        fill_items(to, i, x + from->w, to->w - x - from->w, value);
    }
}

/* n pixels of `bytes` each to consecutive positions, from positions `step` apart. */
WF_PIXELS void copy_pixels(char *to, const char *from, int64_t step, int64_t n, int64_t bytes)
{
    for (int64_t i = 0; i < n; i++, to += bytes, from += step)
        memcpy(to, from, (size_t)bytes);
}

static void copy_row(char *to, const char *from, int64_t step, int64_t n, int64_t bytes)
{
    switch (bytes) { /* copies of a known size are instructions, not calls */
    case 1: copy_pixels(to, from, step, n, 1); break;
    case 3: copy_pixels(to, from, step, n, 3); break;
    case 4: copy_pixels(to, from, step, n, 4); break;
    case 12: copy_pixels(to, from, step, n, 12); break;
    default: copy_pixels(to, from, step, n, bytes);
    }
}

void wf_image_orient(const struct wf_image *from, int orientation, const struct wf_image *to)
{
    bool up_down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    bool left_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    int64_t h = from->h, w = from->w, bytes = from->c * item_bytes(from);

    for (int64_t y = 0; y < to->h; y++) {
        if (orientation < 5) /* a row is a row of the source */
            copy_row(at(to, y, 0), at(from, up_down ? h - 1 - y : y, left_right ? w - 1 : 0),
                     left_right ? -bytes : bytes, to->w, bytes);
        else /* a row is a column of the source */
            copy_row(at(to, y, 0), at(from, up_down ? h - 1 : 0, left_right ? w - 1 - y : y),
                     up_down ? -bytes * w : bytes * w, to->w, bytes);
    }
}

void wf_image_flip(const struct wf_image *from, bool left_right, bool up_down,
                   const struct wf_image *to)
{
    static const int as_orientation[2][2] = {{1, 4}, {2, 3}};

    if (!left_right) /* whole rows */
        for (int64_t y = 0; y < to->h; y++)
            memcpy(at(to, y, 0), at(from, up_down ? from->h - 1 - y : y, 0),
                   (size_t)(to->w * to->c * item_bytes(to)));
    else
        wf_image_orient(from, as_orientation[left_right][up_down], to);
}

void wf_image_turn(const struct wf_image *from, int quarters, const struct wf_image *to)
{
    static const int as_orientation[4] = {1, 8, 3, 6};

    wf_image_orient(from, as_orientation[quarters & 3], to);
}

static float value_at(const struct wf_image *m, int64_t y, int64_t x, int k, float fill)
{
    const char *p;

    if (y < 0 || y >= m->h || x < 0 || x >= m->w)
        return fill;
    p = at(m, y, x);
    return m->dtype == WEFT_U8 ? (float)((const uint8_t *)p)[k]
                               : ((const float *)(const void *)p)[k];
}

/* Floor, for |v| far below 2^31. */
static int64_t floor_of(float v)
{
    int64_t i = (int64_t)v;

    return (float)i > v ? i - 1 : i;
}

/* One pixel interpolated between four; outside the image there is `fill`. */
static void blend_slow(const struct wf_image *m, int64_t y, int64_t x, float fy, float fx,
                       float fill, float out[4])
{
    memset(out, 0, 4 * sizeof *out);
    for (int k = 0; k < m->c; k++) {
        float a = value_at(m, y, x, k, fill), b = value_at(m, y, x + 1, k, fill);
        float c = value_at(m, y + 1, x, k, fill), d = value_at(m, y + 1, x + 1, k, fill);
        float top = a + (b - a) * fx, bottom = c + (d - c) * fx;

        out[k] = top + (bottom - top) * fy;
    }
}

WF_PIXELS wf_v4 load_pixel(const struct wf_image *m, int64_t y, int64_t x)
{
    const char *p = at(m, y, x);

    return m->dtype == WEFT_U8 ? wf_load_bytes((const uint8_t *)p)
                               : wf_load_floats((const float *)(const void *)p);
}

/* The same if all four are inside, with four values from the last one on. */
WF_PIXELS void blend_fast(const struct wf_image *m, int64_t y, int64_t x, float fy, float fx,
                          float out[4])
{
    const wf_v4 vx = {fx, fx, fx, fx}, vy = {fy, fy, fy, fy};
    wf_v4 a = load_pixel(m, y, x), b = load_pixel(m, y, x + 1);
    wf_v4 c = load_pixel(m, y + 1, x), d = load_pixel(m, y + 1, x + 1);

    a += (b - a) * vx;
    c += (d - c) * vx;
    a += (c - a) * vy;
    memcpy(out, &a, sizeof a);
}

/* What rotation needs at every pixel. */
struct turning {
    const struct wf_image *from;
    float c, s, my, mx, fill;
};

/* n pixels of row y, from column x on; four values are written for the last one too. */
static void rotate_piece(const struct turning *t, int64_t y, int64_t x, int64_t n, float *out)
{
    const struct wf_image *m = t->from;
    float dy = (float)y - t->my, v[4];

    for (int64_t i = 0; i < n; i++, out += m->c) {
        float dx = (float)(x + i) - t->mx;
        float sy = dx * t->s + dy * t->c + t->my, sx = dx * t->c - dy * t->s + t->mx;
        int64_t iy = floor_of(sy), ix = floor_of(sx);

        if (iy >= 0 && ix >= 0 && iy < m->h - 2 && ix < m->w - 2)
            blend_fast(m, iy, ix, sy - (float)iy, sx - (float)ix, v);
        else
            blend_slow(m, iy, ix, sy - (float)iy, sx - (float)ix, t->fill, v);
        memcpy(out, v, sizeof v);
    }
}

void wf_image_rotate(const struct wf_image *from, double degrees, float fill,
                     const struct wf_image *to)
{
    enum { PIECE = 64 };
    float angle = (float)(degrees * (3.14159265358979323846 / 180.0)), piece[4 * PIECE + 4];
    struct turning t = {.from = from,
                        .c = wf_cosf(angle),
                        .s = wf_sinf(angle),
                        .my = (float)(from->h - 1) * 0.5f,
                        .mx = (float)(from->w - 1) * 0.5f,
                        .fill = fill};

    for (int64_t y = 0; y < to->h; y++)
        for (int64_t x = 0; x < to->w; x += PIECE) {
            int64_t n = wf_min_i64(PIECE, to->w - x);

            rotate_piece(&t, y, x, n, piece);
            if (to->dtype == WEFT_U8)
                wf_to_levels(piece, n * to->c, (uint8_t *)at(to, y, x));
            else
                memcpy(at(to, y, x), piece, (size_t)(n * to->c) * sizeof(float));
        }
}

/* ---- colors ---------------------------------------------------------------------------------- */

/* Color channels, without alpha. */
static int colours(int c)
{
    return c == 2 || c == 4 ? c - 1 : c;
}

static void change_contrast(float *p, int64_t n, int c, float factor)
{
    double sum[4] = {0};
    float mean[4] = {0};

    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < c; k++)
            sum[k] += p[i * c + k];
    for (int k = 0; k < c; k++)
        mean[k] = (float)(sum[k] / (double)n);
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < colours(c); k++)
            p[i * c + k] = (p[i * c + k] - mean[k]) * factor + mean[k];
}

static float max3(const float *p)
{
    float m = p[0] > p[1] ? p[0] : p[1];

    return m > p[2] ? m : p[2];
}

static float min3(const float *p)
{
    float m = p[0] < p[1] ? p[0] : p[1];

    return m < p[2] ? m : p[2];
}

/* With hue and value fixed, the distance of each channel from the largest is proportional to the
 * saturation, which is at most one. */
static void change_saturation(float *p, int64_t n, int c, float factor)
{
    for (int64_t i = 0; i < n; i++, p += c) {
        float top = max3(p), range = top - min3(p), most, f = factor;

        if (!(top > 0.0f) || !(range > 0.0f))
            continue;
        most = top / range;
        f = f < 0.0f ? 0.0f : f < most ? f : most;
        for (int k = 0; k < 3; k++)
            p[k] = top - (top - p[k]) * f;
    }
}

/* Hue in turns, [0, 1). */
static float hue_of(const float *p, float top, float range)
{
    float h;

    if (p[0] == top)
        h = (p[1] - p[2]) / range;
    else if (p[1] == top)
        h = (p[2] - p[0]) / range + 2.0f;
    else
        h = (p[0] - p[1]) / range + 4.0f;
    h *= 1.0f / 6.0f;
    return h < 0.0f ? h + 1.0f : h;
}

static float unit(float v)
{
    return v < 0.0f ? 0.0f : v > 1.0f ? 1.0f : v;
}

static void change_hue(float *p, int64_t n, int c, float turns)
{
    for (int64_t i = 0; i < n; i++, p += c) {
        float top = max3(p), range = top - min3(p), low = top - range, h;

        if (!(range > 0.0f))
            continue;
        h = hue_of(p, top, range) + turns;
        h = (h - (float)floor_of(h)) * 6.0f;
        p[0] = low + range * unit((h > 3.0f ? h - 3.0f : 3.0f - h) - 1.0f);
        p[1] = low + range * unit(2.0f - (h > 2.0f ? h - 2.0f : 2.0f - h));
        p[2] = low + range * unit(2.0f - (h > 4.0f ? h - 4.0f : 4.0f - h));
    }
}

static void change_brightness(float *p, int64_t n, int c, float add)
{
    if (colours(c) == c) {
        n *= c;
        c = 1;
    }
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < colours(c); k++)
            p[i * c + k] += add;
}

/* Back to valid levels, as if each change were made separately, but not rounded. */
static void clip_all(float *p, int64_t n)
{
    int64_t i = 0;

#if defined(__x86_64__)
    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(p + i, _mm_min_ps(_mm_max_ps(_mm_loadu_ps(p + i), _mm_setzero_ps()),
                                        _mm_set1_ps(255.0f)));
#endif
    for (; i < n; i++)
        p[i] = p[i] >= 0.0f ? p[i] <= 255.0f ? p[i] : 255.0f : 0.0f;
}

void wf_image_colour(const struct wf_image *from, const struct wf_colour *c, float *scratch,
                     const struct wf_image *to)
{
    int64_t n = from->h * from->w, items = n * from->c;
    bool u8 = to->dtype == WEFT_U8;
    float *p = u8 ? scratch : to->data;
    float add = c->brightness * (from->dtype == WEFT_U8 ? 255.0f : 1.0f);

    if (from->dtype == WEFT_U8)
        wf_from_levels(from->data, items, p);
    else
        memcpy(p, from->data, (size_t)items * sizeof *p);
    if (add != 0.0f) {
        change_brightness(p, n, from->c, add);
        if (u8)
            clip_all(p, items);
    }
    if (c->do_contrast && n) {
        change_contrast(p, n, from->c, c->contrast);
        if (u8)
            clip_all(p, items);
    }
    if (c->do_saturation)
        change_saturation(p, n, from->c, c->saturation);
    if (c->do_hue)
        change_hue(p, n, from->c, c->hue);
    if (u8)
        wf_to_levels(p, items, to->data);
}

/* One pixel's gray value, in every channel of the result. */
static void put_grey(const struct wf_image *to, int64_t i, float r, float g, float b)
{
    float v = 0.2989f * r + 0.587f * g + 0.114f * b;

    for (int k = 0; k < to->c; k++)
        if (to->dtype == WEFT_U8)
            ((uint8_t *)to->data)[i * to->c + k] = wf_level(v);
        else
            ((float *)to->data)[i * to->c + k] = v;
}

void wf_image_grey(const struct wf_image *from, const struct wf_image *to)
{
    const uint8_t *u = from->data;
    const float *f = from->data;

    if (from->dtype == WEFT_U8)
        for (int64_t i = 0; i < from->h * from->w; i++, u += from->c)
            put_grey(to, i, u[0], u[1], u[2]);
    else
        for (int64_t i = 0; i < from->h * from->w; i++, f += from->c)
            put_grey(to, i, f[0], f[1], f[2]);
}
