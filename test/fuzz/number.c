/* number.c - decimals, on anything: both readers agree with each other and with the C library, and
 * what reads is written and read back as itself. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_f64(const char *text, int64_t n, const char *padded)
{
    char buf[WF_NUMBER_TEXT];
    double v, fast, back;
    const char *q = wf_fast_f64(padded, &fast);

    if (!wf_parse_f64(text, n, &v)) {
        if (q == padded + n)
            abort();
        return;
    }
    if (!isnan(v) && strtod(text, NULL) != v)
        abort();
    if (q == padded + n && memcmp(&fast, &v, sizeof v))
        abort();
    if (!wf_parse_f64(buf, wf_format_f64(v, buf), &back) || (back != v && !isnan(v)))
        abort();
}

static void check_f32(const char *text, int64_t n, const char *padded)
{
    char buf[WF_NUMBER_TEXT];
    float v, fast, back;
    const char *q = wf_fast_f32(padded, &fast);

    if (!wf_parse_f32(text, n, &v)) {
        if (q == padded + n)
            abort();
        return;
    }
    if (!isnan(v) && strtof(text, NULL) != v)
        abort();
    if (q == padded + n && memcmp(&fast, &v, sizeof v))
        abort();
    if (!wf_parse_f32(buf, wf_format_f32(v, buf), &back) || (back != v && !isnan(v)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t n = (int64_t)size, i, fast;
    char *text = malloc(size + 1), *padded = malloc(size + WF_NUMBER_SLACK);
    const char *q;

    if (!text || !padded)
        abort();
    memcpy(text, data, size);
    text[size] = 0;
    memcpy(padded, data, size);
    memset(padded + size, ',', WF_NUMBER_SLACK);
    if (!memchr(text, 0, size)) {
        check_f64(text, n, padded);
        check_f32(text, n, padded);
        q = wf_fast_i64(padded, &fast);
        if (q == padded + n && (!wf_parse_i64(text, n, &i) || i != fast))
            abort();
        wf_parse_hex(text, n, &i);
    }
    free(text);
    free(padded);
    return 0;
}
