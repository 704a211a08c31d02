/* wire_support.h - Examples as bytes of the protobuf wire, put together by hand. */
#ifndef WIRE_SUPPORT_H
#define WIRE_SUPPORT_H

#include <stdint.h>
#include <string.h>

struct wire {
    unsigned char p[4000];
    int n;
};

static inline void put_varint(struct wire *w, uint64_t v)
{
    for (; v >= 128; v >>= 7)
        w->p[w->n++] = (unsigned char)(v | 128);
    w->p[w->n++] = (unsigned char)v;
}

static inline void put_bytes(struct wire *w, int field, const void *p, int n)
{
    put_varint(w, (uint64_t)field << 3 | 2);
    put_varint(w, (uint64_t)n);
    if (n)
        memcpy(w->p + w->n, p, (size_t)n);
    w->n += n;
}

static inline void put_wire(struct wire *w, int field, const struct wire *in)
{
    put_bytes(w, field, in->p, in->n);
}

static inline struct wire ints(int n, const int64_t *v)
{
    struct wire packed = {.n = 0}, list = {.n = 0}, feature = {.n = 0};

    for (int i = 0; i < n; i++)
        put_varint(&packed, (uint64_t)v[i]);
    put_wire(&list, 1, &packed);
    put_wire(&feature, 3, &list);
    return feature;
}

static inline struct wire floats(int n, const float *v)
{
    struct wire list = {.n = 0}, feature = {.n = 0};

    put_bytes(&list, 1, v, 4 * n);
    put_wire(&feature, 2, &list);
    return feature;
}

static inline struct wire texts(int n, const char *const *v)
{
    struct wire list = {.n = 0}, feature = {.n = 0};

    for (int i = 0; i < n; i++)
        put_bytes(&list, 1, v[i], (int)strlen(v[i]));
    put_wire(&feature, 1, &list);
    return feature;
}

static inline struct wire entry(const char *key, struct wire value)
{
    struct wire e = {.n = 0};

    put_bytes(&e, 1, key, (int)strlen(key));
    put_wire(&e, 2, &value);
    return e;
}

/* An Example of these entries. */
static inline struct wire example(int n, const struct wire *entries)
{
    struct wire map = {.n = 0}, all = {.n = 0};

    for (int i = 0; i < n; i++)
        put_wire(&map, 1, &entries[i]);
    put_wire(&all, 1, &map);
    return all;
}

#endif
