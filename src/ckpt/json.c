/* json.c - writes JSON into capped buffers, and reads values with errors that name the key. Reading
 * refuses duplicate keys, bad UTF-8 and NUL characters (jansson does). */
#define _GNU_SOURCE
#include <stdio.h>

#include "base/number.h"
#include "ckpt/ckpt.h"

void wf_json_text(struct wf_buf *b, const char *s)
{
    wf_buf_add(b, "\"", 1);
    while (*s && !b->st) {
        int n = wf_utf8_length(s, (int64_t)strnlen(s, 4));

        if (!n) {
            b->st = wf_err(WEFT_EINVAL, "'%.80s' is not UTF-8", s);
            return;
        }
        if (*s == '"' || *s == '\\')
            wf_buf_printf(b, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            wf_buf_printf(b, "\\u%04x", (unsigned)*s);
        else
            wf_buf_add(b, s, n);
        s += n;
    }
    wf_buf_add(b, "\"", 1);
}

void wf_json_real(struct wf_buf *b, double v)
{
    wf_put_json_real(b, v);
}

static weft_status complain(const json_t *v, const char *key, const char *what)
{
    return wf_err(WEFT_EPARSE, v ? "\"%s\" is not %s" : "\"%s\" is missing: it should be %s", key,
                  what);
}

weft_status wf_json_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    const json_t *v = json_object_get(o, key);
    int64_t n;

    if (!json_is_integer(v))
        return complain(v, key, "a whole number");
    n = json_integer_value(v);
    if (n < lo || n > hi)
        return wf_err(WEFT_EPARSE, "\"%s\" is %lld, not in %lld..%lld", key, (long long)n,
                      (long long)lo, (long long)hi);
    *out = n;
    return WEFT_OK;
}

weft_status wf_json_str(const json_t *o, const char *key, const char **out)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_string(v))
        return complain(v, key, "a text");
    *out = json_string_value(v);
    return WEFT_OK;
}

weft_status wf_json_hex(const json_t *o, const char *key, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(v);
    uint64_t h = 0;

    if (!s || strlen(s) != 16 || strspn(s, digits) != 16)
        return complain(v, key, "16 hexadecimal digits");
    for (int i = 0; i < 16; i++)
        h = h << 4 | (uint64_t)(strchr(digits, s[i]) - digits);
    *out = h;
    return WEFT_OK;
}

weft_status wf_json_list(const json_t *o, const char *key, json_t **out)
{
    json_t *v = json_object_get(o, key);

    if (!json_is_array(v))
        return complain(v, key, "a list");
    *out = v;
    return WEFT_OK;
}

weft_status wf_json_map(const json_t *o, const char *key, json_t **out)
{
    json_t *v = json_object_get(o, key);

    if (!json_is_object(v))
        return complain(v, key, "an object");
    *out = v;
    return WEFT_OK;
}

weft_status wf_json_to_real(const json_t *v, double *out)
{
    const char *s = json_string_value(v);

    if (json_is_number(v))
        *out = json_number_value(v);
    else if (!s || !wf_json_real_word(s, out))
        return wf_err(WEFT_EPARSE, "is not a number, \"nan\", \"inf\" or \"-inf\"");
    return WEFT_OK;
}
