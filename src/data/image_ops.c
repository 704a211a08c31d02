/* image_ops.c - operations on the pixels of one image: moving them, changing their colours. Pure: from one memory to another. */
#include "base/fmath.h"
#include "data/image.h"

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

/* Copies one pixel; sizes that occur are constants, so that no call is made for a few bytes. */
static inline void copy_pixel(char *to, const char *from, int64_t bytes)
{
    switch (bytes) {
    case 1: *to = *from; break;
    case 3: memcpy(to, from, 3); break;
    case 4: memcpy(to, from, 4); break;
    case 12: memcpy(to, from, 12); break;
    default: memcpy(to, from, (size_t)bytes);
    }
}

void wf_image_orient(const struct wf_image *from, int orientation, const struct wf_image *to)
{
    int64_t h = from->h, w = from->w, bytes = from->c * item_bytes(from);

    for (int64_t y = 0; y < to->h; y++)
        for (int64_t x = 0; x < to->w; x++) {
            int64_t sy = orientation >= 5 ? x : y, sx = orientation >= 5 ? y : x;

            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
                sy = h - 1 - sy;
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
                sx = w - 1 - sx;
            copy_pixel(at(to, y, x), at(from, sy, sx), bytes);
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

static void set_value(const struct wf_image *m, int64_t y, int64_t x, int k, float v)
{
    char *p = at(m, y, x);

    if (m->dtype == WEFT_U8)
        ((uint8_t *)p)[k] = wf_level(v);
    else
        ((float *)(void *)p)[k] = v;
}

/* Floor, for |v| far below 2^31. */
static int64_t floor_of(float v)
{
    int64_t i = (int64_t)v;

    return (float)i > v ? i - 1 : i;
}

void wf_image_rotate(const struct wf_image *from, double degrees, float fill,
                     const struct wf_image *to)
{
    float angle = (float)(degrees * (3.14159265358979323846 / 180.0));
    float c = wf_cosf(angle), s = wf_sinf(angle);
    float my = (float)(from->h - 1) * 0.5f, mx = (float)(from->w - 1) * 0.5f;

    for (int64_t y = 0; y < to->h; y++)
        for (int64_t x = 0; x < to->w; x++) {
            float dy = (float)y - my, dx = (float)x - mx;
            float sy = dx * s + dy * c + my, sx = dx * c - dy * s + mx;
            int64_t iy = floor_of(sy), ix = floor_of(sx);
            float fy = sy - (float)iy, fx = sx - (float)ix;

            for (int k = 0; k < from->c; k++) {
                float a = value_at(from, iy, ix, k, fill), b = value_at(from, iy, ix + 1, k, fill);
                float d = value_at(from, iy + 1, ix, k, fill);
                float e = value_at(from, iy + 1, ix + 1, k, fill);
                float top = a + (b - a) * fx, bottom = d + (e - d) * fx;

                set_value(to, y, x, k, top + (bottom - top) * fy);
            }
        }
}

/* ---- colours --------------------------------------------------------------------------------- */

/* Channels that hold colour: not alpha. */
static int colours(int c)
{
    return c == 2 || c == 4 ? c - 1 : c;
}

static float clip(float v)
{
    return v >= 0.0f ? v <= 255.0f ? v : 255.0f : 0.0f;
}

static void change_contrast(float *p, int64_t n, int c, float factor)
{
    for (int k = 0; k < colours(c); k++) {
        double sum = 0.0;
        float mean;

        for (int64_t i = 0; i < n; i++)
            sum += p[i * c + k];
        mean = (float)(sum / (double)n);
        for (int64_t i = 0; i < n; i++)
            p[i * c + k] = (p[i * c + k] - mean) * factor + mean;
    }
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

/* With hue and value kept, the distance of each channel from the largest is proportional to the saturation; which is one at
 * most. */
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

static void clip_all(float *p, int64_t n, bool clipped)
{
    for (int64_t i = 0; i < n && clipped; i++)
        p[i] = clip(p[i]);
}

void wf_image_colour(const struct wf_image *from, const struct wf_colour *c, float *scratch,
                     const struct wf_image *to)
{
    int64_t n = from->h * from->w, items = n * from->c;
    bool u8 = to->dtype == WEFT_U8;
    float *p = u8 ? scratch : to->data;
    float add = c->brightness * (from->dtype == WEFT_U8 ? 255.0f : 1.0f);

    for (int64_t i = 0; i < items; i++)
        p[i] = from->dtype == WEFT_U8 ? (float)((const uint8_t *)from->data)[i]
                                      : ((const float *)from->data)[i];
    for (int k = 0; k < colours(from->c) && add != 0.0f; k++)
        for (int64_t i = 0; i < n; i++)
            p[i * from->c + k] += add;
    clip_all(p, items, u8 && add != 0.0f);
    if (c->do_contrast && n) {
        change_contrast(p, n, from->c, c->contrast);
        clip_all(p, items, u8);
    }
    if (c->do_saturation)
        change_saturation(p, n, from->c, c->saturation);
    if (c->do_hue)
        change_hue(p, n, from->c, c->hue);
    for (int64_t i = 0; i < items && u8; i++)
        ((uint8_t *)to->data)[i] = wf_level(p[i]);
}

void wf_image_grey(const struct wf_image *from, const struct wf_image *to)
{
    for (int64_t y = 0; y < from->h; y++)
        for (int64_t x = 0; x < from->w; x++) {
            float v = 0.2989f * value_at(from, y, x, 0, 0) + 0.587f * value_at(from, y, x, 1, 0);

            v += 0.114f * value_at(from, y, x, 2, 0);
            for (int k = 0; k < to->c; k++)
                set_value(to, y, x, k, v);
        }
}
