/* field.c - fields of tables: from text to values, and values into columns. */
#include "data/table/field.h"
#include "base/number.h"

const char *const wf_field_kind_name[WF_FIELD_N_KINDS] = {
    [WF_FIELD_SKIP] = "skip", [WF_FIELD_F32] = "f32",   [WF_FIELD_I64] = "i64",
    [WF_FIELD_F64] = "f64",   [WF_FIELD_I32] = "i32",   [WF_FIELD_I8] = "i8",
    [WF_FIELD_U8] = "u8",     [WF_FIELD_BOOL] = "bool", [WF_FIELD_HEX] = "hex",
    [WF_FIELD_STR] = "str",
};

weft_dtype wf_field_dtype(enum wf_field_kind k)
{
    static const weft_dtype of[WF_FIELD_N_KINDS] = {
        [WF_FIELD_SKIP] = WEFT_NONE, [WF_FIELD_F32] = WEFT_F32,   [WF_FIELD_I64] = WEFT_I64,
        [WF_FIELD_F64] = WEFT_F64,   [WF_FIELD_I32] = WEFT_I32,   [WF_FIELD_I8] = WEFT_I8,
        [WF_FIELD_U8] = WEFT_U8,     [WF_FIELD_BOOL] = WEFT_BOOL, [WF_FIELD_HEX] = WEFT_I64,
        [WF_FIELD_STR] = WEFT_STR,
    };

    return of[k];
}

/* ---- text to values -------------------------------------------------------------------------- */

const char *wf_field_show(const char *p, int64_t n, char buf[WF_FIELD_SHOWN])
{
    int64_t fits = wf_min_i64(n, WF_FIELD_SHOWN - 4), at = 0;

    for (; at < fits; at++)
        buf[at] = (unsigned char)p[at] < 0x20 || p[at] == 0x7f ? '?' : p[at];
    memcpy(buf + at, n > fits ? "..." : "", n > fits ? 4 : 1);
    return buf;
}

static bool is_word(const char *p, int64_t n, const char *word)
{
    if ((size_t)n != strlen(word))
        return false;
    for (int64_t i = 0; i < n; i++)
        if ((p[i] | 0x20) != word[i])
            return false;
    return true;
}

static bool convert_bool(const char *p, int64_t n, int64_t *out)
{
    if ((n == 1 && *p == '1') || is_word(p, n, "true") || is_word(p, n, "t"))
        *out = 1;
    else if ((n == 1 && *p == '0') || is_word(p, n, "false") || is_word(p, n, "f"))
        *out = 0;
    else
        return false;
    return true;
}

bool wf_field_convert(enum wf_field_kind kind, const char *p, int64_t n, union wf_field_value *out)
{
    float f;

    if (kind != WF_FIELD_STR) {
        while (n > 0 && (*p == ' ' || *p == '\t')) {
            p++;
            n--;
        }
        while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
            n--;
    }
    switch (kind) {
    case WF_FIELD_F32:
        if (!wf_parse_f32(p, n, &f))
            return false;
        out->f = (double)f;
        return true;
    case WF_FIELD_F64: return wf_parse_f64(p, n, &out->f);
    case WF_FIELD_I64: return wf_parse_i64(p, n, &out->i);
    case WF_FIELD_I32:
        return wf_parse_i64(p, n, &out->i) && out->i >= INT32_MIN && out->i <= INT32_MAX;
    case WF_FIELD_I8: return wf_parse_i64(p, n, &out->i) && out->i >= -128 && out->i <= 127;
    case WF_FIELD_U8: return wf_parse_i64(p, n, &out->i) && out->i >= 0 && out->i <= 255;
    case WF_FIELD_BOOL: return convert_bool(p, n, &out->i);
    case WF_FIELD_HEX: return wf_parse_hex(p, n, &out->i);
    case WF_FIELD_STR: out->s = (weft_str){p, n}; return true;
    case WF_FIELD_SKIP:
    case WF_FIELD_N_KINDS: break;
    }
    return true;
}

void wf_field_store(enum wf_field_kind kind, const union wf_field_value *v, char *to)
{
    float f;
    int32_t i;

    switch (kind) {
    case WF_FIELD_F32:
        f = (float)v->f;
        memcpy(to, &f, sizeof f);
        break;
    case WF_FIELD_I32:
        i = (int32_t)v->i;
        memcpy(to, &i, sizeof i);
        break;
    case WF_FIELD_F64: memcpy(to, &v->f, sizeof v->f); break;
    case WF_FIELD_I64:
    case WF_FIELD_HEX: memcpy(to, &v->i, sizeof v->i); break;
    case WF_FIELD_I8:
    case WF_FIELD_U8:
    case WF_FIELD_BOOL: *to = (char)v->i; break;
    case WF_FIELD_STR: memcpy(to, &v->s, sizeof v->s); break;
    case WF_FIELD_SKIP:
    case WF_FIELD_N_KINDS: break;
    }
}
