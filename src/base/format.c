/* format.c - printf independent of the locale: the library writes the same bytes in every host
 * program, whatever it passed to setlocale.
 *
 * Supports d i u x X o c s p e f g E F G and %, the flags - + space 0 # (# for x and o only), width
 * and precision as numbers or *, and the lengths hh h l ll j z t. The digits of floating-point
 * numbers come from the C library, which rounds correctly; only its decimal point depends on the
 * locale, and is corrected here. */
#define _GNU_SOURCE /* newlocale, uselocale */
#include <locale.h>
#include <stddef.h>
#include <stdio.h>

#include "base/number.h"

enum { MAX_PRECISION = 1000, FLOAT_TEXT = 320 + MAX_PRECISION };

/* What is between % and the letter. */
struct spec {
    bool left, plus, space, zero, alt;
    int width, precision; /* precision: -1 if there is none */
    char length, letter;  /* length: H for hh, L for ll, 0 for none */
};

/* Where the text goes; counts on when there is no more room. */
struct sink {
    char *to;
    size_t room, n;
};

static void put(struct sink *s, const char *bytes, size_t n)
{
    if (s->n < s->room)
        memcpy(s->to + s->n, bytes, n < s->room - s->n ? n : s->room - s->n);
    s->n += n;
}

static void put_many(struct sink *s, char c, int64_t n)
{
    for (; n > 0; n--)
        put(s, &c, 1);
}

/* Sign or prefix, then the digits, padded to the width. */
static void put_padded(struct sink *s, const struct spec *f, const char *sign, const char *body,
                       int64_t n_body, bool zeros)
{
    int64_t n_sign = (int64_t)strlen(sign), pad = f->width - n_sign - n_body;

    if (!f->left && !zeros)
        put_many(s, ' ', pad);
    put(s, sign, (size_t)n_sign);
    if (!f->left && zeros)
        put_many(s, '0', pad);
    put(s, body, (size_t)n_body);
    if (f->left)
        put_many(s, ' ', pad);
}

/* ---- integers -------------------------------------------------------------------------------- */

static void put_digits(struct sink *s, const struct spec *f, const char *sign, uint64_t v,
                       unsigned base)
{
    const char *letters = f->letter == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char text[80];
    int at = (int)sizeof text, least = f->precision < 0 ? 1 : f->precision;

    for (least = least > 64 ? 64 : least; v || least > 0; v /= base, least--)
        text[--at] = letters[v % base];
    put_padded(s, f, sign, text + at, (int64_t)sizeof text - at, f->zero && f->precision < 0);
}

static int64_t signed_arg(const struct spec *f, va_list *args)
{
    switch (f->length) {
    case 'H': return (signed char)va_arg(*args, int);
    case 'h': return (short)va_arg(*args, int);
    case 'l': return va_arg(*args, long);
    case 'L': return va_arg(*args, long long);
    case 'j': return va_arg(*args, intmax_t);
    case 'z': return (int64_t)va_arg(*args, size_t);
    case 't': return va_arg(*args, ptrdiff_t);
    default: return va_arg(*args, int);
    }
}

static uint64_t unsigned_arg(const struct spec *f, va_list *args)
{
    switch (f->length) {
    case 'H': return (unsigned char)va_arg(*args, unsigned);
    case 'h': return (unsigned short)va_arg(*args, unsigned);
    case 'l': return va_arg(*args, unsigned long);
    case 'L': return va_arg(*args, unsigned long long);
    case 'j': return va_arg(*args, uintmax_t);
    case 'z': return va_arg(*args, size_t);
    case 't': return (uint64_t)va_arg(*args, ptrdiff_t);
    default: return va_arg(*args, unsigned);
    }
}

static const char *sign_of(const struct spec *f, bool negative)
{
    return negative ? "-" : f->plus ? "+" : f->space ? " " : "";
}

static void put_integer(struct sink *s, const struct spec *f, va_list *args)
{
    if (f->letter == 'd' || f->letter == 'i') {
        int64_t v = signed_arg(f, args);

        put_digits(s, f, sign_of(f, v < 0), v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 10);
    } else {
        uint64_t v = unsigned_arg(f, args);
        const char *prefix = !f->alt || !v      ? ""
                             : f->letter == 'x' ? "0x"
                             : f->letter == 'X' ? "0X"
                             : f->letter == 'o' ? "0"
                                                : "";

        put_digits(s, f, prefix, v, f->letter == 'u' ? 10 : f->letter == 'o' ? 8 : 16);
    }
}

/* ---- floating point -------------------------------------------------------------------------- */

/* Anything that is not a sign, digit or letter is the decimal point of some locale: one or more
 * bytes. */
static int with_point(char *text, int n)
{
    int at = 0;

    for (int i = 0; i < n; i++) {
        char c = text[i];

        if (wf_is_digit(c) || wf_is_alpha(c) || c == '-' || c == '+')
            text[at++] = c;
        else if (!at || text[at - 1] != '.')
            text[at++] = '.';
    }
    return at;
}

static void put_float(struct sink *s, const struct spec *f, double v)
{
    int precision = f->precision < 0               ? 6
                    : f->precision > MAX_PRECISION ? MAX_PRECISION
                                                   : f->precision;
    char text[FLOAT_TEXT];
    bool negative, number = v - v == 0.0;
    int n;

    switch (f->letter) {
    case 'e': n = snprintf(text, sizeof text, "%.*e", precision, v); break;
    case 'E': n = snprintf(text, sizeof text, "%.*E", precision, v); break;
    case 'f': n = snprintf(text, sizeof text, "%.*f", precision, v); break;
    case 'F': n = snprintf(text, sizeof text, "%.*F", precision, v); break;
    case 'g': n = snprintf(text, sizeof text, "%.*g", precision, v); break;
    default: n = snprintf(text, sizeof text, "%.*G", precision, v); break;
    }
    n = with_point(text, n < (int)sizeof text ? n : (int)sizeof text - 1);
    negative = n > 0 && text[0] == '-';
    put_padded(s, f, sign_of(f, negative), text + negative, n - negative, f->zero && number);
}

/* ---- the format ------------------------------------------------------------------------------ */

/* A number or *, which takes an argument. */
static const char *read_count(const char *p, va_list *args, int *out)
{
    if (*p == '*') {
        *out = va_arg(*args, int);
        return p + 1;
    }
    for (*out = 0; wf_is_digit(*p); p++)
        if (*out < 100000)
            *out = *out * 10 + (*p - '0');
    return p;
}

/* p is after the %; returns where the letter is. */
static const char *read_spec(const char *p, va_list *args, struct spec *f)
{
    *f = (struct spec){.precision = -1};
    for (; *p && strchr("-+ 0#", *p); p++) {
        f->left |= *p == '-';
        f->plus |= *p == '+';
        f->space |= *p == ' ';
        f->zero |= *p == '0';
        f->alt |= *p == '#';
    }
    p = read_count(p, args, &f->width);
    if (f->width < 0) {
        f->left = true;
        f->width = -f->width;
    }
    if (*p == '.')
        p = read_count(p + 1, args, &f->precision);
    for (; *p && strchr("hljzt", *p); p++)
        f->length = f->length == 'h' && *p == 'h' ? 'H' : f->length == 'l' && *p == 'l' ? 'L' : *p;
    f->letter = *p;
    return p;
}

static void put_text(struct sink *s, const struct spec *f, const char *text)
{
    size_t n = 0;

    text = text ? text : "(null)";
    while ((f->precision < 0 || n < (size_t)f->precision) && text[n])
        n++;
    put_padded(s, f, "", text, (int64_t)n, false);
}

static void put_arg(struct sink *s, const struct spec *f, va_list *args)
{
    char c;

    switch (f->letter) {
    case 's': put_text(s, f, va_arg(*args, const char *)); break;
    case 'c':
        c = (char)va_arg(*args, int);
        put_padded(s, f, "", &c, 1, false);
        break;
    case 'p':
        put_digits(s, &(struct spec){.width = f->width, .left = f->left, .precision = -1}, "0x",
                   (uint64_t)(uintptr_t)va_arg(*args, void *), 16);
        break;
    case '%': put(s, "%", 1); break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': put_float(s, f, va_arg(*args, double)); break;
    default: put_integer(s, f, args); break;
    }
}

int wf_vsnprintf(char *to, size_t room, const char *fmt, va_list given)
{
    struct sink s = {to, room ? room - 1 : 0, 0};
    struct spec f;
    va_list args;

    va_copy(args, given);
    while (*fmt) {
        size_t n = strcspn(fmt, "%");

        put(&s, fmt, n);
        fmt += n;
        if (!*fmt)
            break;
        fmt = read_spec(fmt + 1, &args, &f);
        if (!f.letter)
            break;
        put_arg(&s, &f, &args);
        fmt++;
    }
    va_end(args);
    if (room)
        to[s.n < s.room ? s.n : s.room] = '\0';
    return s.n < INT32_MAX ? (int)s.n : -1;
}

int wf_snprintf(char *to, size_t room, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = wf_vsnprintf(to, room, fmt, args);
    va_end(args);
    return n;
}

/* ---- system errors --------------------------------------------------------------------------- */

const char *wf_errno_text(int e)
{
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 32)
    const char *text = strerrordesc_np(e); /* never translated */

    return text ? text : "unknown error";
#else
    return strerror(e);
#endif
}

/* ---- libraries that use the locale ----------------------------------------------------------- */

wf_locale wf_plain_locale_enter(void)
{
    locale_t plain =
        newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a constant: nothing is allocated */

    return (wf_locale){plain, uselocale(plain)};
}

void wf_plain_locale_leave(wf_locale saved)
{
    uselocale((locale_t)saved.before);
    if (saved.plain)
        freelocale((locale_t)saved.plain);
}
