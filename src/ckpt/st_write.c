/* st_write.c - the writer of safetensors files. Tensors are ordered by decreasing element size,
 * then by name, as by other writers; the header is padded so that the data begins at a multiple of
 * 64 bytes and every tensor is aligned to its element. Data is written directly from the tensors'
 * memory. */
#include <stdio.h>
#include <stdlib.h>

#include "ckpt/ckpt.h"

#define DATA_ALIGN 64
#define READ_BYTES ((int64_t)1 << 20)

static int by_size_and_name(const void *a, const void *b)
{
    const struct wf_st_item *x = *(struct wf_st_item *const *)a,
                            *y = *(struct wf_st_item *const *)b;
    int64_t dx = weft_dtype_size(x->type.dtype), dy = weft_dtype_size(y->type.dtype);

    if (dx != dy)
        return dx > dy ? -1 : 1;
    return strcmp(x->name, y->name);
}

static weft_status check_items(int64_t n, struct wf_st_item *const *order)
{
    for (int64_t i = 0; i < n; i++) {
        const struct wf_st_item *t = order[i];
        weft_status st;

        if (!strcmp(t->name, "__metadata__"))
            return wf_err(WEFT_EINVAL, "a tensor cannot be named '__metadata__'");
        st = wf_st_check(t->name, t->type.dtype, wf_type_bytes(&t->type));
        if (st)
            return st;
        if (!t->data && !t->read && wf_type_bytes(&t->type))
            return wf_err(WEFT_EINVAL, "tensor '%.80s' has no data", t->name);
    }
    return WEFT_OK;
}

/* Equal names are adjacent only among tensors of one element size: compare all of them. */
static weft_status check_names(weft_ctx *ctx, int64_t n, struct wf_st_item *const *order)
{
    struct wf_map seen;
    weft_status st = WEFT_OK;

    wf_map_init(&seen, ctx);
    for (int64_t i = 0; i < n && !st; i++)
        st = wf_map_get(&seen, order[i]->name, NULL)
                 ? wf_err(WEFT_EEXIST, "two tensors are named '%.80s'", order[i]->name)
                 : wf_map_put(&seen, order[i]->name, i);
    wf_map_free(&seen);
    return st;
}

static void add_meta(struct wf_buf *b, int64_t n_meta, const weft_ckpt_pair *meta)
{
    wf_buf_printf(b, "\"__metadata__\":{");
    for (int64_t i = 0; i < n_meta; i++) {
        wf_buf_printf(b, "%s", i ? "," : "");
        wf_json_text(b, meta[i].key);
        wf_buf_printf(b, ":");
        wf_json_text(b, meta[i].value);
    }
    wf_buf_printf(b, "}");
}

static void add_item(struct wf_buf *b, const struct wf_st_item *t, int64_t *at)
{
    int64_t end = *at + wf_type_bytes(&t->type);

    wf_json_text(b, t->name);
    wf_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", wf_st_dtype(t->type.dtype));
    for (int k = 0; k < t->type.rank; k++)
        wf_buf_printf(b, "%s%lld", k ? "," : "", (long long)t->type.dim[k]);
    wf_buf_printf(b, "],\"data_offsets\":[%lld,%lld]}", (long long)*at, (long long)end);
    *at = end;
}

static weft_status add_header(struct wf_buf *b, int64_t n, struct wf_st_item *const *order,
                              int64_t n_meta, const weft_ckpt_pair *meta)
{
    int64_t at = 0, length;
    unsigned char le[8] = {0};

    wf_buf_add(b, le, 8);
    wf_buf_printf(b, "{");
    if (n_meta)
        add_meta(b, n_meta, meta);
    for (int64_t i = 0; i < n && !b->st; i++) {
        wf_buf_printf(b, "%s", i || n_meta ? "," : "");
        add_item(b, order[i], &at);
    }
    wf_buf_printf(b, "}");
    while (!b->st && b->len % DATA_ALIGN)
        wf_buf_add(b, " ", 1);
    if (b->st)
        return wf_err_wrap(b->st, "safetensors header");
    length = b->len - 8;
    for (int i = 0; i < 8; i++)
        b->data[i] = (char)((uint64_t)length >> (8 * i));
    return WEFT_OK;
}

/* Bytes that are not in memory: they pass through a buffer. */
static weft_status write_read(struct wf_out *o, const struct wf_st_item *t, int64_t at, int64_t n,
                              struct wf_part *part)
{
    char *buffer = wf_alloc(o->ctx, (size_t)wf_min_i64(n, READ_BYTES) + 1);
    weft_status st =
        buffer ? WEFT_OK : wf_err_nomem(o->ctx, (size_t)READ_BYTES, "tensor of a checkpoint");
    struct wf_xxh64 hash;

    wf_xxh64_init(&hash);
    for (int64_t done = 0, some; done < n && !st; done += some) {
        some = wf_min_i64(n - done, READ_BYTES);
        st = t->read(t->arg, at + done, some, buffer);
        if (!st)
            st = wf_out_write(o, buffer, some, NULL);
        if (!st)
            wf_xxh64_add(&hash, buffer, some);
    }
    wf_free(o->ctx, buffer);
    *part = (struct wf_part){n, wf_xxh64_end(&hash)};
    return st;
}

/* The item's data, in its parts, which follow those at *part. */
static weft_status write_item(struct wf_out *o, struct wf_st_item *t, struct wf_part **part)
{
    int64_t bytes = wf_type_bytes(&t->type);
    weft_status st = WEFT_OK;

    t->offset = o->bytes;
    if (!part)
        return wf_out_write(o, t->data, bytes, NULL);
    t->part = *part + 1;
    for (int64_t k = 0; k < t->n_parts && !st; k++) {
        int64_t at = k * t->part_bytes;
        int64_t n = k < t->n_parts - 1 ? t->part_bytes : bytes - at;

        ++*part;
        st = t->data || n == 0 ? wf_out_write(o, (const char *)t->data + at, n, *part)
                               : write_read(o, t, at, n, *part);
    }
    return st;
}

weft_status wf_st_stream(struct wf_out *o, int64_t n, struct wf_st_item *items, int64_t n_meta,
                         const weft_ckpt_pair *meta, struct wf_part *part)
{
    weft_ctx *ctx = o->ctx;
    struct wf_st_item **order = wf_alloc_n(ctx, n, sizeof *order);
    struct wf_buf head;
    weft_status st;

    if (!order)
        return wf_err_nomem(ctx, (size_t)n * sizeof *order, "tensors of a file");
    wf_buf_init(&head, ctx, WF_ST_HEADER_MAX);
    for (int64_t i = 0; i < n; i++)
        order[i] = &items[i];
    qsort(order, (size_t)n, sizeof *order, by_size_and_name);
    st = check_items(n, order);
    if (!st)
        st = check_names(ctx, n, order);
    if (!st)
        st = add_header(&head, n, order, n_meta, meta);
    if (!st)
        st = wf_out_write(o, head.data, head.len, part);
    for (int64_t i = 0; i < n && !st; i++)
        st = write_item(o, order[i], part ? &part : NULL);
    wf_buf_free(&head);
    wf_free(ctx, order);
    return st;
}

weft_status weft_st_write(weft_ctx *ctx, const char *path, int64_t n, const char *const *names,
                          const weft_tensor *tensors, int64_t n_meta, const char *const *keys,
                          const char *const *values)
{
    struct wf_st_item *items = wf_alloc_n(ctx, n, sizeof *items);
    weft_ckpt_pair *meta = wf_alloc_n(ctx, n_meta, sizeof *meta);
    struct wf_newfile f = {.fd = -1};
    struct wf_out o = {.ctx = ctx, .path = path};
    weft_status st = WEFT_OK;

    if (n < 0 || n_meta < 0)
        st = wf_err(WEFT_EINVAL, "%s: a negative count", path);
    else if (!items || !meta)
        st = wf_err_nomem(ctx, (size_t)n * sizeof *items + (size_t)n_meta * sizeof *meta, path);
    for (int64_t i = 0; i < n && !st; i++)
        items[i] = (struct wf_st_item){
            .name = names[i],
            .type = wf_type_of(tensors[i].dtype, tensors[i].rank, tensors[i].dim),
            .data = tensors[i].data,
        };
    for (int64_t i = 0; i < n_meta && !st; i++)
        meta[i] = (weft_ckpt_pair){keys[i], values[i]};
    if (!st)
        st = wf_newfile_open(&f, ctx, path);
    if (!st) {
        o.fd = f.fd;
        st = wf_newfile_close(&f, wf_st_stream(&o, n, items, n_meta, meta, NULL), false);
        if (!st)
            st = wf_ckpt_sync_parent(ctx, path);
    }
    wf_free(ctx, meta);
    wf_free(ctx, items);
    return st;
}
