/* number.h - numbers in text: reads them exactly, and writes the shortest text that reads back. The
 * only place where the library does either; wf_snprintf writes the other forms.
 *
 * Independent of the locale. A decimal is read as the nearest float or double (ties to even), as by
 * strtof and strtod; the text decides only how it is computed, never the result.
 *
 * The wf_fast_ functions are for parsers that walk over a buffer: they stop at the first byte that
 * cannot be part of the number, read up to WF_NUMBER_SLACK bytes from the start, and return NULL
 * for unusual input (many digits, nan, an empty field), which the careful wf_parse_ functions then
 * handle. */
#ifndef WF_BASE_NUMBER_H
#define WF_BASE_NUMBER_H

#include "base/base.h"

/* The whole text must be a number: an optional sign, digits. False if it is not, or does not
 * fit. */
bool wf_parse_i64(const char *p, int64_t n, int64_t *out);
/* Hexadecimal digits, at most 16, without sign or prefix; the bits of the value. */
bool wf_parse_hex(const char *p, int64_t n, int64_t *out);
/* [+-] digits with or without a point, an optional exponent; or inf, infinity, nan in any case. Too
 * large becomes infinite, too small zero, as strtod does. */
bool wf_parse_f64(const char *p, int64_t n, double *out);
bool wf_parse_f32(const char *p, int64_t n, float *out);
/* The same for a NUL-terminated text. */
static inline bool wf_text_i64(const char *text, int64_t *out)
{
    return wf_parse_i64(text, (int64_t)strlen(text), out);
}
static inline bool wf_text_f64(const char *text, double *out)
{
    return wf_parse_f64(text, (int64_t)strlen(text), out);
}
/* A number as a JSON value, with 17 digits and a point or exponent; what JSON has no number for is
 * "nan", "inf" or "-inf" in quotes. And such a word back; false for any other. */
void wf_put_json_real(struct wf_buf *b, double v);
bool wf_json_real_word(const char *word, double *out);
/* w * 10^e, rounded once. */
float wf_decimal_f32(uint64_t w, int e);
double wf_decimal_f64(uint64_t w, int e);

/* The shortest text that reads back as v ("0.1", "1e-07", "nan", "-inf"); returns its length. Not
 * NUL-terminated. */
#define WF_NUMBER_TEXT 32
int wf_format_i64(int64_t v, char buf[WF_NUMBER_TEXT]);
int wf_format_f32(float v, char buf[WF_NUMBER_TEXT]);
int wf_format_f64(double v, char buf[WF_NUMBER_TEXT]);
/* printf's %.*g with the fewest digits, 15 to 17, that read back as v; NUL-terminated. Returns
 * buf. */
char *wf_g_text(double v, char buf[WF_NUMBER_TEXT]);

/* ---- walking over a buffer ------------------------------------------------------------------- */

#define WF_NUMBER_SLACK 80

extern const uint64_t wf_pow10_u64[20];
extern const float wf_pow10_f32[11];  /* exact */
extern const double wf_pow10_f64[23]; /* exact */

/* Eight bytes, the first one lowest. */
static inline uint64_t wf_load_le64(const char *p)
{
    uint64_t x;

    memcpy(&x, p, sizeof x);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

#define WF_EVERY_BYTE(b) (0x0101010101010101ull * (b))

/* How many of the first bytes are digits; x is the text with '0' removed from each byte by
 * exclusive or. A byte is a digit if it and itself plus 6 have an empty upper half; a carry comes
 * only from a byte that is not a digit, and only the first such byte matters. */
static inline int wf_count_digits(uint64_t x)
{
    uint64_t other = (x | (x + WF_EVERY_BYTE(0x06))) & WF_EVERY_BYTE(0xf0);

    return other ? __builtin_ctzll(other) >> 3 : 8;
}

/* The number that eight digit values form, the first one lowest: pairs, then fours, then all. */
static inline uint64_t wf_eight_digits(uint64_t x)
{
    x = (x * 10 + (x >> 8)) & 0x00ff00ff00ff00ffull;
    x = (x * 100 + (x >> 16)) & 0x0000ffff0000ffffull;
    return (x * 10000 + (x >> 32)) & 0xffffffffull;
}

/* Appends the digits at p to *w; *n counts them, up to 24. */
static inline const char *wf_take_digits(const char *p, uint64_t *w, int *n)
{
    uint64_t x = wf_load_le64(p) ^ WF_EVERY_BYTE('0');
    int k = wf_count_digits(x);

    *n += k;
    if (__builtin_expect(k < 8, 1)) {
        *w = *w * wf_pow10_u64[k] + wf_eight_digits(x << 1 << (63 - 8 * k));
        return p + k;
    }
    for (int i = 0; i < 2 && k == 8; i++) {
        *w = *w * 100000000u + wf_eight_digits(x);
        p += 8;
        x = wf_load_le64(p) ^ WF_EVERY_BYTE('0');
        k = wf_count_digits(x);
        *n += k;
    }
    *w = *w * wf_pow10_u64[k] + wf_eight_digits(k ? x << (64 - 8 * k) : 0);
    return p + k;
}

static inline const char *wf_fast_i64(const char *p, int64_t *out)
{
    bool negative = *p == '-';
    uint64_t w = 0;
    int n = 0;

    if (negative)
        p++;
    p = wf_take_digits(p, &w, &n);
    if (n == 0 || n > 18)
        return NULL;
    *out = negative ? -(int64_t)w : (int64_t)w;
    return p;
}

struct wf_decimal {
    uint64_t w; /* the digits as an integer, all of them */
    int e;      /* power of ten */
    uint32_t negative;
};

/* "e-05" after the digits; p points to the letter. */
static inline const char *wf_fast_exponent(const char *p, int *e)
{
    bool negative = p[1] == '-';
    uint64_t w = 0;
    int n = 0;

    p = wf_take_digits(p + 1 + (negative || p[1] == '+'), &w, &n);
    if (n == 0 || n > 3)
        return NULL;
    *e += negative ? -(int)w : (int)w;
    return p;
}

static inline const char *wf_fast_decimal(const char *p, struct wf_decimal *d)
{
    int n = 0, n_int;

    d->negative = *p == '-'; /* signs are random in data: no branch */
    p += d->negative;
    d->w = 0;
    d->e = 0;
    p = wf_take_digits(p, &d->w, &n);
    n_int = n;
    if (*p == '.') {
        p = wf_take_digits(p + 1, &d->w, &n);
        d->e = n_int - n;
    }
    if (n == 0 || n > 19)
        return NULL;
    if (__builtin_expect((*p | 0x20) == 'e', 0))
        return wf_fast_exponent(p, &d->e);
    return p;
}

static inline const char *wf_fast_f32(const char *p, float *out)
{
    struct wf_decimal d;
    float v;
    uint32_t bits;

    p = wf_fast_decimal(p, &d);
    if (!p)
        return NULL;
    /* An integer that is exact as a float, divided by a power of ten that is exact as a float: one
     * rounding, hence correct. */
    if (__builtin_expect(d.w <= 1u << 24 && d.e <= 0 && d.e >= -10, 1))
        v = (float)(int32_t)d.w / wf_pow10_f32[-d.e];
    else
        v = wf_decimal_f32(d.w, d.e);
    memcpy(&bits, &v, sizeof bits);
    bits |= d.negative << 31;
    memcpy(out, &bits, sizeof bits);
    return p;
}

static inline const char *wf_fast_f64(const char *p, double *out)
{
    struct wf_decimal d;
    double v;

    p = wf_fast_decimal(p, &d);
    if (!p)
        return NULL;
    if (__builtin_expect(d.w <= 1ull << 53 && d.e <= 0 && d.e >= -22, 1))
        v = (double)(int64_t)d.w / wf_pow10_f64[-d.e];
    else
        v = wf_decimal_f64(d.w, d.e);
    *out = d.negative ? -v : v;
    return p;
}

#endif
