/* bytes.h - little-endian numbers in bytes: writing them, and reading them with bounds checked. */
#ifndef WF_BASE_BYTES_H
#define WF_BASE_BYTES_H

#include "base/base.h"

/* Written out: compilers make one load or store of each, which a loop does not become. */
static inline void wf_put_le32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static inline void wf_put_le64(uint8_t *p, uint64_t v)
{
    wf_put_le32(p, (uint32_t)v);
    wf_put_le32(p + 4, (uint32_t)(v >> 32));
}

static inline uint32_t wf_get_le32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t wf_get_le64(const uint8_t *p)
{
    return wf_get_le32(p) | (uint64_t)wf_get_le32(p + 4) << 32;
}

/* ---- appending to a buffer; its status says whether all of it fit ---------------------------- */

static inline void wf_buf_u8(struct wf_buf *b, unsigned v)
{
    uint8_t c = (uint8_t)v;

    wf_buf_add(b, &c, 1);
}

static inline void wf_buf_le32(struct wf_buf *b, uint32_t v)
{
    uint8_t c[4];

    wf_put_le32(c, v);
    wf_buf_add(b, c, sizeof c);
}

static inline void wf_buf_le64(struct wf_buf *b, uint64_t v)
{
    uint8_t c[8];

    wf_put_le64(c, v);
    wf_buf_add(b, c, sizeof c);
}

static inline void wf_buf_f64(struct wf_buf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    wf_buf_le64(b, bits);
}

/* ---- taking from bytes that somebody else wrote ---------------------------------------------- */

/* Once something is missing, everything that follows is 0: check `short_of` before the values are
 * used. */
struct wf_bytes {
    const uint8_t *p;
    int64_t n, at;
    bool short_of;
};

/* The next k bytes; NULL if there are fewer. */
static inline const uint8_t *wf_bytes_take(struct wf_bytes *b, int64_t k)
{
    const uint8_t *p = b->p + b->at;

    if (b->short_of || k < 0 || k > b->n - b->at) {
        b->short_of = true;
        return NULL;
    }
    b->at += k;
    return p;
}

static inline unsigned wf_bytes_u8(struct wf_bytes *b)
{
    const uint8_t *p = wf_bytes_take(b, 1);

    return p ? *p : 0;
}

static inline uint32_t wf_bytes_u32(struct wf_bytes *b)
{
    const uint8_t *p = wf_bytes_take(b, 4);

    return p ? wf_get_le32(p) : 0;
}

static inline uint64_t wf_bytes_u64(struct wf_bytes *b)
{
    const uint8_t *p = wf_bytes_take(b, 8);

    return p ? wf_get_le64(p) : 0;
}

static inline int32_t wf_bytes_i32(struct wf_bytes *b)
{
    return (int32_t)wf_bytes_u32(b);
}

static inline int64_t wf_bytes_i64(struct wf_bytes *b)
{
    return (int64_t)wf_bytes_u64(b);
}

static inline double wf_bytes_f64(struct wf_bytes *b)
{
    uint64_t bits = wf_bytes_u64(b);
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

#endif
