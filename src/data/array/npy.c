/* npy.c - NumPy's array files, versions 1 to 3. The header is a Python literal; only what NumPy
 * writes is supported. Object arrays (pickles) are refused. */
#include <stdio.h>

#include "data/array/array.h"
#include "weft/data_array.h"

#define NPY_HEADER_MAX 10000 /* as in NumPy's own reader */

static const struct npy_type {
    char kind;
    signed char item;
    bool is_unsigned, write;
    weft_dtype dtype;
} npy_types[] = {
    {'f', 4, false, true, WEFT_F32},  {'f', 8, false, true, WEFT_F64},
    {'f', 2, false, true, WEFT_F16},  {'i', 1, false, true, WEFT_I8},
    {'u', 1, true, true, WEFT_U8},    {'i', 4, false, true, WEFT_I32},
    {'i', 8, false, true, WEFT_I64},  {'b', 1, true, true, WEFT_BOOL},
    {'i', 2, false, false, WEFT_I32}, {'u', 2, true, false, WEFT_I32},
    {'u', 4, true, false, WEFT_I64},
};

/* ---- the header's text ----------------------------------------------------------------------- */

struct scan {
    const char *p, *end;
};

static void blanks(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take(struct scan *s, char c)
{
    blanks(s);
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

static bool take_word(struct scan *s, const char *word)
{
    int64_t n = (int64_t)strlen(word);

    blanks(s);
    if (s->end - s->p < n || memcmp(s->p, word, (size_t)n))
        return false;
    s->p += n;
    return true;
}

/* A quoted string without escapes, of at most 31 characters. */
static bool take_text(struct scan *s, char text[32])
{
    char quote;
    int n = 0;

    blanks(s);
    if (s->p == s->end || (*s->p != '\'' && *s->p != '"'))
        return false;
    for (quote = *s->p++; s->p < s->end && *s->p != quote; s->p++) {
        if (n == 31 || *s->p == '\\')
            return false;
        text[n++] = *s->p;
    }
    text[n] = '\0';
    return take(s, quote);
}

static weft_status take_shape(struct scan *s, struct wf_type *t)
{
    if (!take(s, '('))
        return wf_err(WEFT_EPARSE, "the npy header's shape is not a tuple");
    while (!take(s, ')')) {
        int64_t v = 0;

        if (t->rank == WEFT_MAX_RANK)
            return wf_err(WEFT_ENOSUP, "the npy array has more than %d axes", WEFT_MAX_RANK);
        if (s->p == s->end || !wf_is_digit(*s->p))
            return wf_err(WEFT_EPARSE, "the npy header's shape is malformed");
        for (; s->p < s->end && wf_is_digit(*s->p); s->p++)
            if (!wf_mul_i64(v, 10, &v) || !wf_add_i64(v, *s->p - '0', &v))
                return wf_err(WEFT_EPARSE, "a size in the npy header overflows");
        take(s, 'L'); /* written by Python 2 */
        t->dim[t->rank++] = v;
        if (!take(s, ',') && s->p < s->end && *s->p != ')')
            return wf_err(WEFT_EPARSE, "the npy header's shape is malformed");
    }
    return WEFT_OK;
}

static weft_status set_type(const char *descr, struct wf_array_head *h)
{
    char order = descr[0];
    const char *rest = descr + 1;

    if (order != '<' && order != '>' && order != '|' && order != '=')
        rest = descr;
    for (int i = 0; i < WF_COUNT(npy_types); i++) {
        const struct npy_type *t = &npy_types[i];

        if (rest[0] == t->kind && rest[1] == '0' + t->item && !rest[2]) {
            h->type.dtype = t->dtype;
            h->item = t->item;
            h->is_unsigned = t->is_unsigned;
            h->big = order == '>' && t->item > 1;
            return WEFT_OK;
        }
    }
    if (rest[0] == 'O')
        return wf_err(WEFT_ENOSUP,
                      "the npy array holds Python objects (a pickle), which are not read");
    return wf_err(WEFT_ENOSUP, "npy dtype '%s': supported are f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 b1",
                  descr);
}

static weft_status parse_header(struct scan *s, struct wf_array_head *h)
{
    bool descr = false, order = false, shape = false;
    char key[32], text[32];
    weft_status st = WEFT_OK;

    if (!take(s, '{'))
        return wf_err(WEFT_EPARSE, "the npy header is not a dictionary");
    while (!st && !take(s, '}')) {
        if (!take_text(s, key) || !take(s, ':'))
            return wf_err(WEFT_EPARSE, "the npy header is malformed");
        if (!strcmp(key, "descr") && !descr) {
            descr = true;
            if (take(s, '['))
                return wf_err(WEFT_ENOSUP,
                              "the npy array has a structured dtype, which is not supported");
            st = take_text(s, text) ? set_type(text, h)
                                    : wf_err(WEFT_EPARSE, "the npy header's descr is malformed");
        } else if (!strcmp(key, "fortran_order") && !order) {
            order = true;
            h->fortran = take_word(s, "True");
            if (!h->fortran && !take_word(s, "False"))
                st = wf_err(WEFT_EPARSE, "the npy header's fortran_order is malformed");
        } else if (!strcmp(key, "shape") && !shape) {
            shape = true;
            st = take_shape(s, &h->type);
        } else {
            st = wf_err(WEFT_EPARSE, "the npy header has an unexpected or repeated key '%s'", key);
        }
        if (!st && !take(s, ',') && s->p < s->end && *s->p != '}')
            st = wf_err(WEFT_EPARSE, "the npy header is malformed");
    }
    if (!st && !(descr && order && shape))
        st = wf_err(WEFT_EPARSE, "the npy header lacks descr, fortran_order or shape");
    return st;
}

weft_status wf_npy_head(const char *p, int64_t n, int64_t total, struct wf_array_head *out)
{
    const unsigned char *u = (const unsigned char *)p;
    struct wf_array_head h = {.at = 10};
    struct scan s;
    int64_t len, count;
    weft_status st;

    if (n < 10 || memcmp(p, "\x93NUMPY", 6))
        return wf_err(WEFT_EPARSE, "not an npy file: it does not begin with \\x93NUMPY");
    if (u[6] < 1 || u[6] > 3)
        return wf_err(WEFT_ENOSUP, "npy version %d.%d: versions 1 to 3 are supported", u[6], u[7]);
    len = u[8] | u[9] << 8;
    if (u[6] >= 2) {
        if (n < 12)
            return wf_err(WEFT_EPARSE, "the npy file ends in its header");
        len |= (int64_t)u[10] << 16 | (int64_t)u[11] << 24;
        h.at = 12;
    }
    if (len > NPY_HEADER_MAX)
        return wf_err(WEFT_EPARSE, "the npy header has %lld bytes; at most %d are read",
                      (long long)len, NPY_HEADER_MAX);
    if (len > n - h.at)
        return wf_err(WEFT_EPARSE, "the npy file ends in its header");
    s = (struct scan){p + h.at, p + h.at + len};
    st = parse_header(&s, &h);
    if (st)
        return st;
    h.at += len;
    count = wf_type_count(&h.type);
    if (count < 0 || wf_type_bytes(&h.type) < 0 || !wf_mul_i64(count, h.item, &h.bytes))
        return wf_err(WEFT_EPARSE, "the shape in the npy header overflows");
    if (total >= 0 && h.bytes > total - h.at)
        return wf_err(WEFT_EPARSE, "the npy header says %lld bytes of data, but there are %lld",
                      (long long)h.bytes, (long long)(total - h.at));
    if (h.type.rank < 2)
        h.fortran = false;
    *out = h;
    return WEFT_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

weft_ds weft_ds_npy(weft_data *d, int n, const weft_array_file *files, const weft_file_opts *opts)
{
    return wf_ds_array_files(d, "npy", n, files, opts, wf_npy_head);
}

weft_status weft_npy_read(weft_ctx *ctx, const char *path, weft_tensor *out)
{
    return wf_array_read(ctx, path, wf_npy_head, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

weft_status wf_npy_head_write(const weft_tensor *t, char *p, int *n)
{
    const struct npy_type *type = NULL;
    int at = 10;

    for (int i = 0; i < WF_COUNT(npy_types); i++)
        if (npy_types[i].write && npy_types[i].dtype == t->dtype)
            type = &npy_types[i];
    if (!type)
        return wf_err(WEFT_EDTYPE, "npy has no %s: cast the value first",
                      t->dtype == WEFT_STR ? "text" : weft_dtype_name(t->dtype));
    memcpy(p, "\x93NUMPY\x01\x00", 8);
    at += sprintf(p + at, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                  type->item == 1 ? '|' : '<', type->kind, type->item);
    for (int i = 0; i < t->rank; i++)
        at += sprintf(p + at, "%lld,%s", (long long)t->dim[i], i + 1 < t->rank ? " " : "");
    at += sprintf(p + at, "), }");
    while ((at + 1) % 64)
        p[at++] = ' ';
    p[at++] = '\n';
    p[8] = (char)((at - 10) & 255);
    p[9] = (char)((at - 10) >> 8);
    *n = at;
    return WEFT_OK;
}

weft_status weft_npy_write(weft_ctx *ctx, const char *path, const weft_tensor *t)
{
    char head[WF_HEAD_MAX];
    struct wf_output o;
    int n;
    weft_status st = wf_npy_head_write(t, head, &n);

    if (!st && weft_tensor_bytes(t) < 0)
        st = wf_err(WEFT_ESHAPE, "the shape overflows");
    if (st)
        return wf_err_wrap(st, "%s", path);
    wf_output_open(&o, ctx, path);
    wf_output_put(&o, head, n);
    wf_output_put(&o, t->data, weft_tensor_bytes(t));
    return wf_output_close(&o);
}
