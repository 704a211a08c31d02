/* scan.c - finding the ends of rows, 64 bytes at a time.
 *
 * First one bit is computed for each newline and quote (the part that differs by instruction set),
 * then the bits are walked through. For words without quotes, comments and short lines, which is
 * nearly all of them, the bits are only counted. */
#include "data/table/scan.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define STRETCH 64 /* words */

struct marks {
    uint64_t newline[STRETCH], quote[STRETCH];
};

/* ---- marks ----------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static void mark_base(const char *p, int n_words, char quote, struct marks *m)
{
    const __m128i nl = _mm_set1_epi8('\n'), qt = _mm_set1_epi8(quote);

    for (int w = 0; w < n_words; w++, p += 64) {
        uint64_t a = 0, b = 0;

        for (int i = 0; i < 4; i++) {
            __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));

            a |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, nl)) << (16 * i);
            b |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, qt)) << (16 * i);
        }
        m->newline[w] = a;
        m->quote[w] = b;
    }
}

__attribute__((target("avx2"))) static void mark_avx2(const char *p, int n_words, char quote,
                                                      struct marks *m)
{
    const __m256i nl = _mm256_set1_epi8('\n'), qt = _mm256_set1_epi8(quote);

    for (int w = 0; w < n_words; w++, p += 64) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
        __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));

        m->newline[w] = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, nl)) |
                        (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(y, nl)) << 32;
        m->quote[w] = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(x, qt)) |
                      (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(y, qt)) << 32;
    }
}
#else
/* One bit for each byte of x that is zero, the first byte lowest. */
static uint64_t zero_bytes(uint64_t x)
{
    uint64_t low = 0x7f7f7f7f7f7f7f7full;

    x = ~(((x & low) + low) | x | low);
    return (x >> 7) * 0x0102040810204080ull >> 56;
}

static void mark_base(const char *p, int n_words, char quote, struct marks *m)
{
    const uint64_t every = 0x0101010101010101ull;

    for (int w = 0; w < n_words; w++, p += 64) {
        uint64_t a = 0, b = 0, x;

        for (int i = 0; i < 8; i++) {
            memcpy(&x, p + 8 * i, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            x = __builtin_bswap64(x);
#endif
            a |= zero_bytes(x ^ every * '\n') << (8 * i);
            b |= zero_bytes(x ^ every * (unsigned char)quote) << (8 * i);
        }
        m->newline[w] = a;
        m->quote[w] = b;
    }
}
#endif

/* ---- walking --------------------------------------------------------------------------------- */

static bool line_counts(const struct wf_row_format *f, const char *line, int64_t len)
{
    if (len == 0 || (len == 1 && line[0] == '\r'))
        return false;
    return !f->comment || line[0] != f->comment;
}

/* Handles every newline and quote of a word in turn. True if the last requested row is complete. */
static bool walk_word(struct wf_scan *s, const char *p, int64_t base, uint64_t newline,
                      uint64_t quote, int64_t want)
{
    for (uint64_t rest = newline | quote; rest; rest &= rest - 1) {
        int bit = __builtin_ctzll(rest);
        int64_t pos = base + bit;

        if (newline >> bit & 1) {
            if (s->quoted)
                continue;
            if (line_counts(&s->format, p + s->line, pos - s->line)) {
                s->n_rows++;
                s->end = pos + 1;
            }
            s->line = pos + 1;
            if (s->n_rows == want)
                return true;
        } else if (s->quoted) {
            s->quoted = false;
            s->closed = pos;
        } else if (s->format.comment && p[s->line] == s->format.comment) {
            continue;
        } else if (pos == s->line || p[pos - 1] == s->format.delimiter || s->closed == pos - 1) {
            s->quoted = true;
        }
    }
    return false;
}

/* A word may be counted instead of walked if none of its lines is shorter than two bytes. */
static inline bool has_short_line(const struct wf_scan *s, int64_t base, uint64_t newline)
{
    uint64_t before = s->line == base ? 3 : s->line == base - 1 ? 1 : 0;

    return newline & (newline << 1 | newline << 2 | before);
}

static inline __attribute__((always_inline)) bool walk_marks(struct wf_scan *s, const char *p,
                                                             int64_t base, int n_words,
                                                             const struct marks *m, int64_t want)
{
    bool plain = !s->format.comment, quotes = s->format.quote != 0;

    for (int w = 0; w < n_words; w++, base += 64) {
        uint64_t newline = m->newline[w], quote = quotes ? m->quote[w] : 0;
        int n;

        if (!(newline | quote))
            continue;
        n = __builtin_popcountll(newline);
        if (!plain || quote || s->quoted || s->n_rows + n >= want ||
            has_short_line(s, base, newline)) {
            if (walk_word(s, p, base, newline, quote, want))
                return true;
            continue;
        }
        s->n_rows += n;
        s->line = s->end = base + 64 - __builtin_clzll(newline);
    }
    return false;
}

static bool stretch_base(struct wf_scan *s, const char *p, const char *from, int64_t base, int n,
                         int64_t want)
{
    struct marks m;

    mark_base(from, n, s->format.quote, &m);
    return walk_marks(s, p, base, n, &m, want);
}

#if defined(__x86_64__)
__attribute__((target("avx2,popcnt,bmi,lzcnt"))) static bool stretch_avx2(
    struct wf_scan *s, const char *p, const char *from, int64_t base, int n, int64_t want)
{
    struct marks m;

    mark_avx2(from, n, s->format.quote, &m);
    return walk_marks(s, p, base, n, &m, want);
}
#endif

static bool stretch(struct wf_scan *s, const char *p, const char *from, int64_t base, int n,
                    int64_t want)
{
#if defined(__x86_64__)
    if (s->avx2)
        return stretch_avx2(s, p, from, base, n, want);
#endif
    return stretch_base(s, p, from, base, n, want);
}

/* ---- scanning -------------------------------------------------------------------------------- */

void wf_scan_init(struct wf_scan *s, const struct wf_row_format *format, weft_simd level)
{
    memset(s, 0, sizeof *s);
    s->format = *format;
    s->avx2 = level >= WEFT_SIMD_AVX2;
    wf_scan_begin(s);
}

void wf_scan_begin(struct wf_scan *s)
{
    s->at = s->line = s->n_rows = s->end = 0;
    s->closed = -2;
    s->quoted = false;
}

bool wf_scan_rows(struct wf_scan *s, const char *p, int64_t n, int64_t want)
{
    char last[64] = {0};

    if (s->n_rows >= want)
        return true;
    while (n - s->at >= 64) {
        int words = (int)wf_min_i64((n - s->at) / 64, STRETCH);

        if (stretch(s, p, p + s->at, s->at, words, want)) {
            s->at = s->end;
            return true;
        }
        s->at += 64 * (int64_t)words;
    }
    if (n > s->at) { /* zeros mark nothing: no quote is 0 */
        memcpy(last, p + s->at, (size_t)(n - s->at));
        if (stretch(s, p, last, s->at, 1, want)) {
            s->at = s->end;
            return true;
        }
        s->at = n;
    }
    return false;
}

bool wf_scan_rest(const struct wf_scan *s, const char *p, int64_t n)
{
    return n > s->line && line_counts(&s->format, p + s->line, n - s->line);
}

bool wf_scan_no_row(const struct wf_row_format *f, const char *p, const char *end)
{
    if (f->comment && p < end && *p == f->comment)
        return true;
    if (p < end && *p == '\r')
        p++;
    return p == end || *p == '\n';
}

const char *wf_scan_row_end(const struct wf_row_format *f, const char *p, const char *end)
{
    const char *start = p, *closed = NULL;
    bool quoted = false;

    if (f->comment && p < end && *p == f->comment) {
        p = memchr(p, '\n', (size_t)(end - p));
        return p ? p + 1 : end;
    }
    for (; p < end; p++) {
        if (f->quote && *p == f->quote) {
            if (quoted) {
                quoted = false;
                closed = p;
            } else if (p == start || p[-1] == f->delimiter || (closed && closed == p - 1)) {
                quoted = true;
            }
        } else if (*p == '\n' && !quoted) {
            return p + 1;
        }
    }
    return end;
}
