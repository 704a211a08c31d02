/* number.c - decimal text to the nearest float or double and back.
 *
 * Three ways, each exact where it is used: one division by an exact power of ten; 128-bit
 * arithmetic for up to 19 digits and powers up to 10^27; and, for everything else, a guess that is
 * corrected by comparing the text with the midpoints between neighboring floats in long integers.
 * Floats have a fourth: a double whose error is bounded, if no midpoint is near.
 *
 * All of it assumes rounding to nearest, the mode of the context's threads. */
#include <math.h>
#include <stdio.h>

#include "base/number.h"

__extension__ typedef unsigned __int128 u128;

const uint64_t wf_pow10_u64[20] = {1ull,
                                   10ull,
                                   100ull,
                                   1000ull,
                                   10000ull,
                                   100000ull,
                                   1000000ull,
                                   10000000ull,
                                   100000000ull,
                                   1000000000ull,
                                   10000000000ull,
                                   100000000000ull,
                                   1000000000000ull,
                                   10000000000000ull,
                                   100000000000000ull,
                                   1000000000000000ull,
                                   10000000000000000ull,
                                   100000000000000000ull,
                                   1000000000000000000ull,
                                   10000000000000000000ull};
const float wf_pow10_f32[11] = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f, 1e6f, 1e7f, 1e8f, 1e9f, 1e10f};
const double wf_pow10_f64[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* ---- integers -------------------------------------------------------------------------------- */

bool wf_parse_i64(const char *p, int64_t n, int64_t *out)
{
    bool negative = n > 0 && *p == '-';
    uint64_t limit = (uint64_t)INT64_MAX + negative, v = 0;
    const char *end = p + n;

    if (n > 0 && (*p == '-' || *p == '+'))
        p++;
    if (p == end)
        return false;
    for (; p < end; p++) {
        unsigned digit = (unsigned char)*p - (unsigned)'0';

        if (digit > 9 || v > (limit - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = (int64_t)(negative ? 0 - v : v);
    return true;
}

bool wf_parse_hex(const char *p, int64_t n, int64_t *out)
{
    uint64_t v = 0;

    if (n < 1 || n > 16)
        return false;
    for (const char *end = p + n; p < end; p++) {
        unsigned c = (unsigned char)*p, digit = c - '0', letter = (c | 0x20) - 'a';

        if (digit > 9 && letter > 5)
            return false;
        v = v << 4 | (digit <= 9 ? digit : letter + 10);
    }
    *out = (int64_t)v;
    return true;
}

/* ---- binary formats -------------------------------------------------------------------------- */

/* A positive number of a format is handled as its bits: the next bit pattern is the next number. */
struct format {
    int bits; /* of the significand */
    int bias; /* of the exponent field, for a significand that is an integer */
    int min;  /* exponent of the leading bit of the least normal number */
    uint64_t infinite;
};
static const struct format f32_format = {24, 150, -126, 0x7f800000ull};
static const struct format f64_format = {53, 1075, -1022, 0x7ff0000000000000ull};

/* (m + something below one if sticky) * 2^x, where m has its highest bit set. */
static uint64_t round_to(const struct format *f, uint64_t m, bool sticky, int x)
{
    int lead = x + 63, drop = 64 - f->bits;
    uint64_t q, rest, half, bits;

    if (lead < f->min)
        drop += f->min - lead;
    if (drop > 64)
        return 0;
    q = drop < 64 ? m >> drop : 0;
    rest = drop < 64 ? m & ((1ull << drop) - 1) : m;
    half = 1ull << (drop - 1);
    q += rest > half || (rest == half && (sticky || (q & 1)));
    if (lead < f->min) /* q may have become the least normal number: its bits are right */
        return q;
    if (lead > -f->min + 1)
        return f->infinite;
    bits = ((uint64_t)(lead - f->min) << (f->bits - 1)) + q;
    return bits < f->infinite ? bits : f->infinite;
}

/* w * 10^e for w > 0 and |e| <= 27: 5^27 fits in 64 bits, so product and quotient are exact in
 * 128. */
static uint64_t round_128(const struct format *f, uint64_t w, int e)
{
    uint64_t five = 1, m, rest;
    int k = e < 0 ? -e : e, shift;
    u128 v;

    for (int i = 0; i < k; i++)
        five *= 5;
    if (e >= 0) {
        v = (u128)w * five;
        m = (uint64_t)(v >> 64);
        shift = m ? __builtin_clzll(m) : 64 + __builtin_clzll((uint64_t)v);
        v <<= shift;
        return round_to(f, (uint64_t)(v >> 64), (uint64_t)v != 0, 64 - shift + e);
    }
    shift = __builtin_clzll(five) - __builtin_clzll(w);
    w <<= __builtin_clzll(w);
    five <<= __builtin_clzll(five);
    v = (u128)w << 63;
    m = (uint64_t)(v / five);
    rest = (uint64_t)(v - (u128)m * five);
    if (!(m >>
          63)) { /* sticky covers the bit shifted in: a tie needs all bits below it to be zero */
        m <<= 1;
        shift--;
    }
    return round_to(f, m, rest != 0, shift - 63 + e);
}

/* ---- long integers --------------------------------------------------------------------------- */

/* Digits beyond these can only break a tie: a midpoint between doubles has at most 768. */
#define MAX_DIGITS 800
#define N_LIMBS 256

struct big {
    int n;
    uint32_t limb[N_LIMBS]; /* lowest first */
};

static void big_mul_add(struct big *b, uint32_t by, uint32_t plus)
{
    uint64_t carry = plus;

    for (int i = 0; i < b->n; i++) {
        carry += (uint64_t)b->limb[i] * by;
        b->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry && b->n < N_LIMBS)
        b->limb[b->n++] = (uint32_t)carry;
}

static void big_times_pow10(struct big *b, int e)
{
    for (; e >= 9; e -= 9)
        big_mul_add(b, 1000000000u, 0);
    for (; e > 0; e--)
        big_mul_add(b, 10, 0);
}

static void big_shift(struct big *b, int bits)
{
    int words = bits / 32;

    for (int left = bits % 32; left > 0; left -= 16)
        big_mul_add(b, left >= 16 ? 1u << 16 : 1u << left, 0);
    if (!b->n || b->n + words > N_LIMBS)
        return;
    memmove(b->limb + words, b->limb, (size_t)b->n * sizeof b->limb[0]);
    memset(b->limb, 0, (size_t)words * sizeof b->limb[0]);
    b->n += words;
}

static int big_cmp(const struct big *a, const struct big *b)
{
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static void big_set(struct big *b, uint64_t v)
{
    b->limb[0] = (uint32_t)v;
    b->limb[1] = (uint32_t)(v >> 32);
    b->n = v >> 32 ? 2 : v ? 1 : 0;
}

/* The digits of a decimal, without leading zeros: digit[0..n) * 10^e, 1 <= n <= MAX_DIGITS + 1. */
struct digits {
    int n, e;
    char digit[MAX_DIGITS + 1];
};

/* Compares the decimal with the midpoint between the number with these bits and the next one. */
static int cmp_midpoint(const struct format *f, const struct digits *d, uint64_t bits)
{
    struct big left, right;
    int field = (int)(bits >> (f->bits - 1));
    uint64_t m = bits & ((1ull << (f->bits - 1)) - 1);
    int x = (field ? field : 1) - f->bias - 1;

    if (field)
        m |= 1ull << (f->bits - 1);
    left.n = 0;
    for (int i = 0; i < d->n; i++)
        big_mul_add(&left, 10, (uint32_t)(d->digit[i] - '0'));
    big_set(&right, 2 * m + 1);
    big_times_pow10(d->e >= 0 ? &left : &right, d->e >= 0 ? d->e : -d->e);
    big_shift(x >= 0 ? &right : &left, x >= 0 ? x : -x);
    return big_cmp(&left, &right);
}

/* Within a few units in the last place of a double of d. */
static double guess_of(const struct digits *d)
{
    double v = 0;
    int n = d->n < 18 ? d->n : 18, e = d->e + d->n - n;

    for (int i = 0; i < n; i++)
        v = v * 10 + (d->digit[i] - '0');
    for (int k = e; k > 0; k -= 22)
        v *= wf_pow10_f64[k < 22 ? k : 22];
    for (int k = -e; k > 0; k -= 22)
        v /= wf_pow10_f64[k < 22 ? k : 22];
    return v;
}

/* Whether the decimal is at or below the midpoint above these bits, so that it rounds to them or
 * below. */
static bool at_most(const struct format *f, const struct digits *d, uint64_t bits)
{
    int c = cmp_midpoint(f, d, bits);

    return c < 0 || (c == 0 && !(bits & 1));
}

/* The bits of the guess; for subnormal numbers they may be far off (a thread may flush them to
 * zero). */
static bool guess_bits(const struct format *f, const struct digits *d, uint64_t *bits)
{
    double guess = guess_of(d);
    float g;
    uint32_t b;

    if (f == &f64_format) {
        memcpy(bits, &guess, sizeof *bits);
        return guess > 1e-290 && *bits < f->infinite;
    }
    if (!(guess > 1e-37 && guess < 3e38))
        return false;
    g = (float)guess;
    memcpy(&b, &g, sizeof b);
    *bits = b;
    return true;
}

/* The smallest bits that the decimal does not exceed: searched near the guess, and if they are not
 * there, everywhere. */
static uint64_t round_long(const struct format *f, const struct digits *d)
{
    enum { NEAR = 32 };
    uint64_t lo = 0, hi = f->infinite, bits;
    int lead = d->n + d->e; /* the number is below 10^lead, and not below a tenth of that */

    if (lead > 310)
        return f->infinite;
    if (lead < -330)
        return 0;
    if (guess_bits(f, d, &bits) && at_most(f, d, bits + NEAR) && !at_most(f, d, bits - NEAR)) {
        lo = bits - NEAR + 1;
        hi = bits + NEAR;
    }
    while (lo < hi) {
        bits = lo + (hi - lo) / 2;
        if (at_most(f, d, bits))
            hi = bits;
        else
            lo = bits + 1;
    }
    return lo;
}

/* ---- decimals -------------------------------------------------------------------------------- */

static void digits_of(uint64_t w, int e, struct digits *d)
{
    char text[24];
    int n = 0;

    for (; w; w /= 10)
        text[n++] = (char)('0' + w % 10);
    d->n = n;
    d->e = e;
    for (int i = 0; i < n; i++)
        d->digit[i] = text[n - 1 - i];
}

static uint64_t round_decimal(const struct format *f, uint64_t w, int e)
{
    struct digits d;

    if (!w)
        return 0;
    if (e >= -27 && e <= 27)
        return round_128(f, w, e);
    digits_of(w, e, &d);
    return round_long(f, &d);
}

/* A double within 8 units in its last place, for |e| <= 66: at most four roundings, each of half a
 * unit, and the accumulated error stays below that. If none of the doubles that near is the
 * midpoint of two floats, all of them round to the same float. */
static bool near_f32(uint64_t w, int e, float *out)
{
    double d = (double)w;
    uint64_t bits;
    int64_t rest;

    if (e < -66 || e > 66)
        return false;
    for (int k = e; k > 0; k -= 22)
        d *= wf_pow10_f64[k < 22 ? k : 22];
    for (int k = -e; k > 0; k -= 22)
        d /= wf_pow10_f64[k < 22 ? k : 22];
    if (!(d > 1.2e-38 && d < 3.4e38)) /* below: fewer bits; above: infinite */
        return false;
    memcpy(&bits, &d, sizeof bits);
    rest = (int64_t)(bits & 0x1fffffff) - 0x10000000;
    if (rest >= -8 && rest <= 8)
        return false;
    *out = (float)d;
    return true;
}

float wf_decimal_f32(uint64_t w, int e)
{
    float v;
    uint32_t bits;

    if (near_f32(w, e, &v))
        return v;
    bits = (uint32_t)round_decimal(&f32_format, w, e);
    memcpy(&v, &bits, sizeof v);
    return v;
}

double wf_decimal_f64(uint64_t w, int e)
{
    double v;
    uint64_t bits;

    if (w <= 1ull << 53 && e >= -22 && e <= 22)
        return e < 0 ? (double)(int64_t)w / wf_pow10_f64[-e] : (double)(int64_t)w * wf_pow10_f64[e];
    bits = round_decimal(&f64_format, w, e);
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool same_word(const char *p, int64_t n, const char *word)
{
    if ((size_t)n != strlen(word))
        return false;
    for (int64_t i = 0; i < n; i++)
        if ((p[i] | 0x20) != word[i])
            return false;
    return true;
}

/* The meaning of a text, after its sign. */
enum what { NOT_A_NUMBER, FINITE, INFINITE, NAN_WORD };

static bool read_exponent(const char *p, const char *end, int64_t *e)
{
    bool negative = false;
    int64_t v = 0;

    if (p < end && (*p == '-' || *p == '+'))
        negative = *p++ == '-';
    if (p == end)
        return false;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return false;
        if (v < 1000000000)
            v = v * 10 + (*p - '0');
    }
    *e += negative ? -v : v;
    return true;
}

/* Gathers digits without leading zeros. Beyond MAX_DIGITS one more digit represents the rest if
 * that is not zero. */
static enum what read_decimal(const char *p, const char *end, struct digits *d)
{
    bool point = false, any = false, more = false;
    int64_t e = 0;

    d->n = 0;
    for (; p < end; p++) {
        if (*p == '.' && !point) {
            point = true;
            continue;
        }
        if (*p < '0' || *p > '9')
            break;
        any = true;
        e -= point;
        if (d->n == 0 && *p == '0')
            continue;
        if (d->n < MAX_DIGITS) {
            d->digit[d->n++] = *p;
        } else {
            more |= *p != '0';
            e++;
        }
    }
    if (!any || (p < end && ((*p | 0x20) != 'e' || !read_exponent(p + 1, end, &e))))
        return NOT_A_NUMBER;
    if (more) {
        d->digit[d->n++] = '1';
        e--;
    }
    while (d->n > 0 && d->digit[d->n - 1] == '0') {
        d->n--;
        e++;
    }
    d->e = (int)wf_max_i64(wf_min_i64(e, 100000), -100000);
    return FINITE;
}

static enum what read_number(const char *p, int64_t n, bool *negative, struct digits *d)
{
    *negative = n > 0 && *p == '-';
    if (n > 0 && (*p == '-' || *p == '+')) {
        p++;
        n--;
    }
    if (same_word(p, n, "inf") || same_word(p, n, "infinity"))
        return INFINITE;
    if (same_word(p, n, "nan"))
        return NAN_WORD;
    return read_decimal(p, p + n, d);
}

/* The digits as one word, if they fit. */
static bool word_of(const struct digits *d, uint64_t *w)
{
    *w = 0;
    if (d->n > 19)
        return false;
    for (int i = 0; i < d->n; i++)
        *w = *w * 10 + (uint64_t)(d->digit[i] - '0');
    return true;
}

bool wf_parse_f64(const char *p, int64_t n, double *out)
{
    struct digits d;
    bool negative;
    double v = 0;
    uint64_t w, bits;

    switch (read_number(p, n, &negative, &d)) {
    case NOT_A_NUMBER: return false;
    case INFINITE: v = INFINITY; break;
    case NAN_WORD: v = NAN; break;
    case FINITE:
        if (word_of(&d, &w)) {
            v = wf_decimal_f64(w, d.e);
        } else {
            bits = round_long(&f64_format, &d);
            memcpy(&v, &bits, sizeof v);
        }
        break;
    }
    *out = negative ? -v : v;
    return true;
}

bool wf_parse_f32(const char *p, int64_t n, float *out)
{
    struct digits d;
    bool negative;
    float v = 0;
    uint64_t w;
    uint32_t bits;

    switch (read_number(p, n, &negative, &d)) {
    case NOT_A_NUMBER: return false;
    case INFINITE: v = INFINITY; break;
    case NAN_WORD: v = NAN; break;
    case FINITE:
        if (word_of(&d, &w)) {
            v = wf_decimal_f32(w, d.e);
        } else {
            bits = (uint32_t)round_long(&f32_format, &d);
            memcpy(&v, &bits, sizeof v);
        }
        break;
    }
    *out = negative ? -v : v;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

int wf_format_i64(int64_t v, char buf[WF_NUMBER_TEXT])
{
    char text[24];
    int n = 0, at = 0;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

    do
        text[n++] = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        buf[at++] = '-';
    while (n > 0)
        buf[at++] = text[--n];
    return at;
}

/* The first n_digits digits of v > 0, rounded, without zeros at the end; *lead is the power of ten
 * of the first. The C library rounds correctly; its decimal point depends on the locale, so only
 * digits and the exponent are taken. */
static int digits_from(double v, int n_digits, char digit[20], int *lead)
{
    char text[48];
    const char *p = text;
    int n = 0, sign = 1;

    snprintf(text, sizeof text, "%.*e", n_digits - 1, v);
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9' && n < 20)
            digit[n++] = *p;
    *lead = 0;
    for (; *p; p++) {
        if (*p == '-')
            sign = -1;
        else if (*p >= '0' && *p <= '9')
            *lead = *lead * 10 + (*p - '0');
    }
    *lead *= sign;
    while (n > 1 && digit[n - 1] == '0')
        n--;
    return n;
}

/* Plain if that is short ("1234.5", "0.0001"), otherwise with an exponent ("1.5e-07"). */
static int lay_out(const char *digit, int n, int lead, char *buf)
{
    int at = 0;

    if (lead >= -5 && lead < 16) {
        if (lead < 0) {
            buf[at++] = '0';
            buf[at++] = '.';
            for (int i = -1; i > lead; i--)
                buf[at++] = '0';
        }
        for (int i = 0; i < n || i <= lead; i++) {
            if (i == lead + 1 && lead >= 0)
                buf[at++] = '.';
            buf[at++] = i < n ? digit[i] : '0';
        }
        return at;
    }
    buf[at++] = digit[0];
    if (n > 1)
        buf[at++] = '.';
    for (int i = 1; i < n; i++)
        buf[at++] = digit[i];
    buf[at++] = 'e';
    buf[at++] = lead < 0 ? '-' : '+';
    lead = lead < 0 ? -lead : lead;
    if (lead < 10)
        buf[at++] = '0';
    return at + wf_format_i64(lead, buf + at);
}

static int format_special(double v, char buf[WF_NUMBER_TEXT])
{
    const char *word = isnan(v) ? "nan"
                       : v == 0 ? (signbit(v) ? "-0" : "0")
                       : v < 0  ? "-inf"
                                : "inf";

    memcpy(buf, word, strlen(word));
    return (int)strlen(word);
}

int wf_format_f32(float v, char buf[WF_NUMBER_TEXT])
{
    char digit[20];
    int at = 0, n, lead;

    if (isnan(v) || isinf(v) || v == 0)
        return format_special(v, buf);
    if (v < 0)
        buf[at++] = '-';
    for (int k = 6;; k++) {
        float back = 0;
        int len;

        n = digits_from(fabs((double)v), k, digit, &lead);
        len = lay_out(digit, n, lead, buf + at);
        if (k == 9 || (wf_parse_f32(buf + at, len, &back) && back == fabsf(v)))
            return at + len;
    }
}

int wf_format_f64(double v, char buf[WF_NUMBER_TEXT])
{
    char digit[20];
    int at = 0, n, lead;

    if (isnan(v) || isinf(v) || v == 0)
        return format_special(v, buf);
    if (v < 0)
        buf[at++] = '-';
    for (int k = 15;; k++) {
        double back = 0;
        int len;

        n = digits_from(fabs(v), k, digit, &lead);
        len = lay_out(digit, n, lead, buf + at);
        if (k == 17 || (wf_parse_f64(buf + at, len, &back) && back == fabs(v)))
            return at + len;
    }
}

char *wf_g_text(double v, char buf[WF_NUMBER_TEXT])
{
    for (int digits = 15; digits <= 17; digits++) {
        double back = 0;

        wf_snprintf(buf, WF_NUMBER_TEXT, "%.*g", digits, v);
        if (wf_text_f64(buf, &back) && back == v)
            break;
    }
    return buf;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static const struct {
    const char *word;
    double value;
} words[] = {{"nan", NAN}, {"inf", INFINITY}, {"-inf", -INFINITY}};

bool wf_json_real_word(const char *word, double *out)
{
    for (int i = 0; i < WF_COUNT(words); i++)
        if (!strcmp(words[i].word, word)) {
            *out = words[i].value;
            return true;
        }
    return false;
}

void wf_put_json_real(struct wf_buf *b, double v)
{
    char text[64];

    if (!isfinite(v)) {
        wf_buf_printf(b, "\"%s\"", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
        return;
    }
    wf_snprintf(text, sizeof text, "%.17g", v);
    wf_buf_printf(b, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}
