/* varint.h - the numbers of the protobuf wire: lengths and packed lists of integers.
 *
 * A byte without its high bit ends a number. Packed numbers are found by checking the high bits of
 * up to 64 bytes at a time, and each is then extracted from the eight bytes that end with it: no
 * loop over bytes, no branch on the length, and nothing is read past the list. */
#ifndef WF_DATA_RECORD_VARINT_H
#define WF_DATA_RECORD_VARINT_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* One number of at most ten bytes; NULL if it does not end before `end`. Bits above 64 are
 * dropped. */
static inline const unsigned char *wf_varint(const unsigned char *p, const unsigned char *end,
                                             uint64_t *v)
{
    uint64_t x = 0;

    for (int shift = 0; shift < 70 && p < end; shift += 7) {
        unsigned char c = *p++;

        x |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            *v = x;
            return p;
        }
    }
    return NULL;
}

/* Bit k: byte p[k] ends a number. n <= 64; `begin` is the first byte that may be read. */
static inline uint64_t wf_varint_ends(const unsigned char *p, int64_t n, const unsigned char *begin)
{
    uint64_t mask = 0;
    int64_t k = 0;

#if defined(__SSE2__)
    for (; k + 16 <= n; k += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + k));

        mask |= (uint64_t)(~(unsigned)_mm_movemask_epi8(v) & 0xffffu) << k;
    }
    if (k < n && p + n - begin >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + n - 16));
        unsigned ends = ~(unsigned)_mm_movemask_epi8(v) & 0xffffu;

        return mask | (uint64_t)(ends >> (16 - (n - k))) << k;
    }
#endif
    (void)begin;
    for (; k < n; k++)
        mask |= (uint64_t) !(p[k] & 0x80) << k;
    return mask;
}

/* The seven-bit groups of eight bytes, joined. */
static inline uint64_t wf_varint_join(uint64_t w)
{
    w = (w & 0x007f007f007f007full) | ((w & 0x7f007f007f007f00ull) >> 1);
    w = (w & 0x00003fff00003fffull) | ((w & 0x3fff00003fff0000ull) >> 2);
    return (w & 0x0fffffffull) | ((w & 0x0fffffff00000000ull) >> 4);
}

/* All numbers of p[0..n), at most `max`. Returns how many, max + 1 if there are more, -1 if the
 * last does not end or one is too long. There must be at least 7 bytes from `begin` before p. */
static inline int64_t wf_varints(const unsigned char *p, int64_t n, const unsigned char *begin,
                                 int64_t *out, int64_t max)
{
    const unsigned char *start = p, *end = p + n;
    int64_t k = 0;

    if (n && (end[-1] & 0x80))
        return -1;
    while (p < end) {
        int64_t m = end - p < 64 ? end - p : 64;
        uint64_t ends = wf_varint_ends(p, m, begin);

        for (; ends; ends &= ends - 1) {
            const unsigned char *e = p + __builtin_ctzll(ends) + 1;
            int64_t len = e - start;
            uint64_t w;

            if (k == max)
                return max + 1;
            if (__builtin_expect(len <= 8, 1)) {
                memcpy(&w, e - 8, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
                w = __builtin_bswap64(w);
#endif
                w = wf_varint_join(w >> (64 - 8 * len));
            } else if (!wf_varint(start, e, &w)) {
                return -1;
            }
            out[k++] = (int64_t)w;
            start = e;
        }
        p += m;
    }
    return k;
}

#endif
