/* proto.h - protobuf messages, written into a growing buffer. Fields are written in the order of
 * the calls; a message inside another is opened and closed. Errors stay in the buffer. */
#ifndef WF_TRAIN_CALLBACK_PROTO_H
#define WF_TRAIN_CALLBACK_PROTO_H

#include "base/base.h"

static inline void wf_pb_raw(struct wf_buf *b, uint64_t v)
{
    unsigned char byte[10];
    int n = 0;

    do {
        byte[n] = (unsigned char)(v & 0x7f);
        v >>= 7;
        byte[n++] |= v ? 0x80 : 0;
    } while (v);
    wf_buf_add(b, byte, n);
}

static inline void wf_pb_int(struct wf_buf *b, int field, int64_t v)
{
    wf_pb_raw(b, (uint64_t)field << 3);
    wf_pb_raw(b, (uint64_t)v);
}

static inline void wf_pb_fixed64(struct wf_buf *b, uint64_t v)
{
    unsigned char byte[8];

    for (int i = 0; i < 8; i++)
        byte[i] = (unsigned char)(v >> 8 * i);
    wf_buf_add(b, byte, 8);
}

static inline void wf_pb_put_double(struct wf_buf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    wf_pb_fixed64(b, bits);
}

static inline void wf_pb_double(struct wf_buf *b, int field, double v)
{
    wf_pb_raw(b, (uint64_t)field << 3 | 1);
    wf_pb_put_double(b, v);
}

static inline void wf_pb_put_float(struct wf_buf *b, float v)
{
    uint32_t bits;
    unsigned char byte[4];

    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 4; i++)
        byte[i] = (unsigned char)(bits >> 8 * i);
    wf_buf_add(b, byte, 4);
}

static inline void wf_pb_bytes(struct wf_buf *b, int field, const void *bytes, int64_t n)
{
    wf_pb_raw(b, (uint64_t)field << 3 | 2);
    wf_pb_raw(b, (uint64_t)n);
    wf_buf_add(b, bytes, n);
}

static inline void wf_pb_text(struct wf_buf *b, int field, const char *text)
{
    wf_pb_bytes(b, field, text, (int64_t)strlen(text));
}

/* Opens a message; pass the result to the call that closes it. */
static inline int64_t wf_pb_open(struct wf_buf *b, int field)
{
    wf_pb_raw(b, (uint64_t)field << 3 | 2);
    return b->len;
}

/* The length comes first: the message moves up by the size of its length. */
static inline void wf_pb_close(struct wf_buf *b, int64_t at)
{
    int64_t n = b->len - at, end;

    if (b->st)
        return;
    wf_pb_raw(b, (uint64_t)n);
    end = b->len;
    if (!b->st && n) {
        char size[10];
        int64_t n_size = end - at - n;

        memcpy(size, b->data + at + n, (size_t)n_size);
        memmove(b->data + at + n_size, b->data + at, (size_t)n);
        memcpy(b->data + at, size, (size_t)n_size);
    }
}

#endif
