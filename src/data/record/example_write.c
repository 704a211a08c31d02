/* example_write.c - named tensors as the bytes of an Example or a SequenceExample.
 *
 * Sizes are computed from the inside out, then everything is written once, front to back, into room
 * of exactly that size. */
#include <stdio.h>

#include "data/record/example.h"
#include "data/record/write.h"

/* Items [first, first + n) of a tensor, as a Feature. */
struct list {
    const weft_tensor *t;
    enum wf_list kind;
    int64_t first, n;
};

static int64_t varint_size(uint64_t v)
{
    return v < 128 ? 1 : (70 - __builtin_clzll(v)) / 7;
}

/* A field of n bytes: tag (one byte), length, bytes. */
static int64_t field_size(int64_t n)
{
    return 1 + varint_size((uint64_t)n) + n;
}

static const weft_str *text_of(const struct list *l, int64_t i)
{
    return (const weft_str *)l->t->data + l->first + i;
}

static int64_t int_of(const struct list *l, int64_t i)
{
    return l->t->dtype == WEFT_I64 ? ((const int64_t *)l->t->data)[l->first + i]
                                   : wf_get_int(l->t->data, l->t->dtype, l->first + i);
}

/* Bytes of the values: of the packed field, or of all fields of texts. */
static int64_t values_size(const struct list *l)
{
    int64_t bytes = 0;

    if (l->kind == WF_LIST_FLOAT)
        return 4 * l->n;
    for (int64_t i = 0; i < l->n; i++)
        bytes += l->kind == WF_LIST_BYTES ? field_size(text_of(l, i)->n)
                                          : varint_size((uint64_t)int_of(l, i));
    return bytes;
}

static int64_t list_size(const struct list *l)
{
    int64_t n = values_size(l);

    return l->kind == WF_LIST_BYTES || !l->n ? n : field_size(n);
}

static int64_t feature_size(const struct list *l)
{
    return field_size(list_size(l));
}

/* ---- writing --------------------------------------------------------------------------------- */

static char *put_varint(char *p, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        *p++ = (char)(v | 0x80);
    *p++ = (char)v;
    return p;
}

static char *put_head(char *p, int number, int64_t n)
{
    *p++ = (char)(number << 3 | 2);
    return put_varint(p, (uint64_t)n);
}

static char *put_bytes(char *p, int number, const char *bytes, int64_t n)
{
    p = put_head(p, number, n);
    if (n)
        memcpy(p, bytes, (size_t)n);
    return p + n;
}

static char *put_values(char *p, const struct list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        if (l->kind == WF_LIST_BYTES) {
            p = put_bytes(p, 1, text_of(l, i)->data, text_of(l, i)->n);
        } else if (l->kind == WF_LIST_INT64) {
            p = put_varint(p, (uint64_t)int_of(l, i));
        } else {
            float v = l->t->dtype == WEFT_F32
                          ? ((const float *)l->t->data)[l->first + i]
                          : (float)wf_get(l->t->data, l->t->dtype, l->first + i);

            memcpy(p, &v, 4);
            p += 4;
        }
    }
    return p;
}

static char *put_feature(char *p, const struct list *l)
{
    p = put_head(p, (int)l->kind, list_size(l));
    if (l->kind != WF_LIST_BYTES && l->n)
        p = put_head(p, 1, values_size(l));
    return put_values(p, l);
}

/* ---- entries of the maps --------------------------------------------------------------------- */

static enum wf_list kind_of(weft_dtype t)
{
    if (t == WEFT_STR)
        return WF_LIST_BYTES;
    if (wf_is_float(t))
        return WF_LIST_FLOAT;
    return wf_is_int(t) || t == WEFT_BOOL ? WF_LIST_INT64 : WF_LIST_NONE;
}

/* The k-th of n_steps pieces of a value. */
static struct list piece(const weft_example_value *v, int64_t n_steps, int64_t k)
{
    int64_t n = weft_tensor_count(&v->tensor) / (n_steps ? n_steps : 1);

    return (struct list){&v->tensor, kind_of(v->tensor.dtype), k * n, n};
}

static int64_t value_size(const weft_example_value *v)
{
    int64_t n_steps = v->tensor.dim[0], bytes = 0;
    struct list whole = piece(v, 1, 0);

    if (!v->sequence)
        return feature_size(&whole);
    for (int64_t k = 0; k < n_steps; k++) {
        struct list step = piece(v, n_steps, k);

        bytes += field_size(feature_size(&step));
    }
    return bytes;
}

static int64_t entry_size(const weft_example_value *v)
{
    return field_size((int64_t)strlen(v->name)) + field_size(value_size(v));
}

static char *put_entry(char *p, const weft_example_value *v)
{
    struct list whole = piece(v, 1, 0);

    p = put_head(p, 1, entry_size(v));
    p = put_bytes(p, 1, v->name, (int64_t)strlen(v->name));
    p = put_head(p, 2, value_size(v));
    if (!v->sequence)
        return put_feature(p, &whole);
    for (int64_t k = 0; k < v->tensor.dim[0]; k++) {
        struct list step = piece(v, v->tensor.dim[0], k);

        p = put_head(p, 1, feature_size(&step));
        p = put_feature(p, &step);
    }
    return p;
}

static int64_t map_size(int n, const weft_example_value *v, bool sequence)
{
    int64_t bytes = 0;

    for (int i = 0; i < n; i++)
        if (v[i].sequence == sequence)
            bytes += field_size(entry_size(&v[i]));
    return bytes;
}

static weft_status check(int n, const weft_example_value *v)
{
    for (int i = 0; i < n; i++) {
        const weft_tensor *t = &v[i].tensor;
        int64_t count = weft_tensor_count(t);

        if (!v[i].name)
            return wf_err(WEFT_EINVAL, "example: value %d has no name", i);
        if (kind_of(t->dtype) == WF_LIST_NONE)
            return wf_err(WEFT_EDTYPE, "example: '%s': dtype %d cannot be written", v[i].name,
                          (int)t->dtype);
        if (count < 0 || count > INT64_MAX / 64 || (count && !t->data) ||
            (v[i].sequence && t->rank < 1))
            return wf_err(WEFT_ESHAPE, "example: '%s': its shape cannot be written", v[i].name);
        for (int64_t k = 0; k < count && t->dtype == WEFT_STR; k++)
            if (((const weft_str *)t->data)[k].n < 0)
                return wf_err(WEFT_EINVAL, "example: '%s': a string of negative length", v[i].name);
    }
    return WEFT_OK;
}

/* Appends to `out`. */
static weft_status encode(int n, const weft_example_value *v, struct wf_buf *out)
{
    weft_status st = check(n, v);
    int64_t context, lists;
    bool any = false;
    char *p;

    if (st)
        return st;
    for (int i = 0; i < n; i++)
        any = any || v[i].sequence;
    context = map_size(n, v, false);
    lists = map_size(n, v, true);
    st = wf_grow(out->ctx, &out->data, &out->cap,
                 field_size(context) + (any ? field_size(lists) : 0) + 1, 1);
    if (st)
        return st;
    p = put_head(out->data, 1, context);
    for (int i = 0; i < n; i++)
        if (!v[i].sequence)
            p = put_entry(p, &v[i]);
    if (any)
        p = put_head(p, 2, lists);
    for (int i = 0; i < n; i++)
        if (v[i].sequence)
            p = put_entry(p, &v[i]);
    out->len = p - out->data;
    *p = '\0';
    return WEFT_OK;
}

weft_status weft_example_encode(weft_ctx *ctx, int n, const weft_example_value *values, char **out,
                                int64_t *n_bytes)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, ctx, INT64_MAX / 4);
    st = encode(n, values, &b);
    if (st) {
        wf_buf_free(&b);
        return st;
    }
    *out = b.data;
    *n_bytes = b.len;
    return WEFT_OK;
}

weft_status weft_record_writer_example(weft_record_writer *w, int n,
                                       const weft_example_value *values)
{
    struct wf_buf *b = wf_record_writer_room(w);
    weft_status st = encode(n, values, b);

    return st ? st : weft_record_writer_add(w, b->data, b->len);
}
