/* xxh64.c - XXH64 with seed 0, the same as xxhsum. Four lanes of eight bytes at a time; what does
 * not fill a stripe of 32 bytes waits in the tail. */
#include "ckpt/ckpt.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are little-endian and written exactly as in memory"
#endif

#define P1 0x9e3779b185ebca87u
#define P2 0xc2b2ae3d27d4eb4fu
#define P3 0x165667b19e3779f9u
#define P4 0x85ebca77c2b2ae63u
#define P5 0x27d4eb2f165667c5u
#define STRIPE 32

static inline uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline uint64_t load64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t lane(uint64_t acc, uint64_t input)
{
    return rotate(acc + input * P2, 31) * P1;
}

static inline uint64_t fold(uint64_t h, uint64_t v)
{
    return (h ^ lane(0, v)) * P1 + P4;
}

void wf_xxh64_init(struct wf_xxh64 *h)
{
    *h = (struct wf_xxh64){.v = {P1 + P2, P2, 0, 0 - P1}};
}

static const unsigned char *stripes(uint64_t v[4], const unsigned char *p, int64_t n)
{
    uint64_t a = v[0], b = v[1], c = v[2], d = v[3];

    for (; n >= STRIPE; n -= STRIPE, p += STRIPE) {
        a = lane(a, load64(p));
        b = lane(b, load64(p + 8));
        c = lane(c, load64(p + 16));
        d = lane(d, load64(p + 24));
    }
    v[0] = a;
    v[1] = b;
    v[2] = c;
    v[3] = d;
    return p;
}

void wf_xxh64_add(struct wf_xxh64 *h, const void *bytes, int64_t n)
{
    const unsigned char *p = bytes, *end;

    if (n <= 0)
        return;
    end = p + n;
    h->total += (uint64_t)n;
    if (h->n_tail) {
        int64_t room = wf_min_i64(STRIPE - h->n_tail, n);

        memcpy(h->tail + h->n_tail, p, (size_t)room);
        h->n_tail += (int)room;
        p += room;
        if (h->n_tail < STRIPE)
            return;
        stripes(h->v, h->tail, STRIPE);
        h->n_tail = 0;
    }
    p = stripes(h->v, p, end - p);
    h->n_tail = (int)(end - p);
    memcpy(h->tail, p, (size_t)h->n_tail);
}

uint64_t wf_xxh64_end(const struct wf_xxh64 *s)
{
    const unsigned char *p = s->tail;
    uint64_t h = P5;
    uint32_t half;
    int n = s->n_tail;

    if (s->total >= STRIPE) {
        h = rotate(s->v[0], 1) + rotate(s->v[1], 7) + rotate(s->v[2], 12) + rotate(s->v[3], 18);
        for (int i = 0; i < 4; i++)
            h = fold(h, s->v[i]);
    }
    h += s->total;
    for (; n >= 8; n -= 8, p += 8)
        h = rotate(h ^ lane(0, load64(p)), 27) * P1 + P4;
    if (n >= 4) {
        memcpy(&half, p, sizeof half);
        h = rotate(h ^ half * P1, 23) * P2 + P3;
        n -= 4;
        p += 4;
    }
    for (; n > 0; n--, p++)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t wf_xxh64(const void *bytes, int64_t n)
{
    struct wf_xxh64 h;

    wf_xxh64_init(&h);
    wf_xxh64_add(&h, bytes, n);
    return wf_xxh64_end(&h);
}
