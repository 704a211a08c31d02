/* base64.c - bytes as base64. */
#include "base/base64.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void wf_base64(struct wf_buf *b, const void *bytes, int64_t n)
{
    const unsigned char *p = bytes;

    for (int64_t i = 0; i < n; i += 3) {
        unsigned v = (unsigned)p[i] << 16 | (i + 1 < n ? (unsigned)p[i + 1] << 8 : 0) |
                     (i + 2 < n ? p[i + 2] : 0);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63],
                        i + 1 < n ? digits[v >> 6 & 63] : '=', i + 2 < n ? digits[v & 63] : '='};

        wf_buf_add(b, four, 4);
    }
}

/* -1: not a digit. */
static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

weft_status wf_base64_read(struct wf_buf *b, const char *text, int64_t n)
{
    if (n % 4)
        return wf_err(WEFT_EPARSE, "base64: %lld characters are not a multiple of 4", (long long)n);
    for (int64_t i = 0; i < n; i += 4) {
        int pad = i + 4 < n ? 0 : (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=');
        uint32_t v = 0;
        unsigned char three[3];

        for (int k = 0; k < 4 - pad; k++) {
            int d = value_of(text[i + k]);

            if (d < 0)
                return wf_err(WEFT_EPARSE, "base64: character %lld is not a digit",
                              (long long)(i + k + 1));
            v |= (uint32_t)d << (18 - 6 * k);
        }
        if (v & (pad == 2 ? 0xffffu : pad == 1 ? 0xffu : 0)) /* bits that no byte has */
            return wf_err(WEFT_EPARSE, "base64: the last digit has bits that belong to no byte");
        three[0] = (unsigned char)(v >> 16);
        three[1] = (unsigned char)(v >> 8);
        three[2] = (unsigned char)v;
        wf_buf_add(b, three, 3 - pad);
    }
    return b->st;
}
