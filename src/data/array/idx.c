/* idx.c - IDX files (the format of MNIST): a magic number with type and rank, sizes, items, all
 * big-endian. */
#include "data/array/array.h"
#include "weft/data_array.h"

static uint32_t be32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;

    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static const struct {
    unsigned char code;
    signed char item;
    weft_dtype dtype;
} idx_types[] = {
    {0x08, 1, WEFT_U8},  {0x09, 1, WEFT_I8},  {0x0b, 2, WEFT_I32},
    {0x0c, 4, WEFT_I32}, {0x0d, 4, WEFT_F32}, {0x0e, 8, WEFT_F64},
};

weft_status wf_idx_head(const char *p, int64_t n, int64_t total, struct wf_array_head *out)
{
    struct wf_array_head h = {.big = true};
    int64_t count;
    int rank;

    if (n < 4 || p[0] || p[1])
        return wf_err(WEFT_EPARSE, "not an IDX file: it does not begin with two zero bytes");
    for (int i = 0; i < WF_COUNT(idx_types); i++)
        if ((unsigned char)p[2] == idx_types[i].code) {
            h.type.dtype = idx_types[i].dtype;
            h.item = idx_types[i].item;
        }
    if (!h.item)
        return wf_err(WEFT_EPARSE, "not an IDX file: type 0x%02x (known types: 08 09 0b 0c 0d 0e)",
                      (unsigned char)p[2]);
    rank = (unsigned char)p[3];
    if (rank < 1 || rank > WEFT_MAX_RANK)
        return wf_err(WEFT_EPARSE, "IDX rank %d: 1 to %d are supported", rank, WEFT_MAX_RANK);
    h.at = 4 + 4 * rank;
    if (n < h.at)
        return wf_err(WEFT_EPARSE, "the IDX file ends in its header");
    h.type.rank = rank;
    for (int i = 0; i < rank; i++)
        h.type.dim[i] = be32(p + 4 + 4 * i);
    count = wf_type_count(&h.type);
    if (wf_type_bytes(&h.type) < 0 || count < 0 || !wf_mul_i64(count, h.item, &h.bytes))
        return wf_err(WEFT_EPARSE, "the sizes in the IDX header overflow");
    if (total >= 0 && h.bytes > total - h.at)
        return wf_err(WEFT_EPARSE, "the IDX header says %lld bytes of data, but there are %lld",
                      (long long)h.bytes, (long long)(total - h.at));
    *out = h;
    return WEFT_OK;
}

weft_ds weft_ds_idx(weft_data *d, int n, const weft_array_file *files, const weft_file_opts *opts)
{
    return wf_ds_array_files(d, "idx", n, files, opts, wf_idx_head);
}

weft_status weft_idx_read(weft_ctx *ctx, const char *path, weft_tensor *out)
{
    return wf_array_read(ctx, path, wf_idx_head, out);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_big(struct wf_output *o, const char *p, int64_t n_items, int item)
{
    char swapped[8192];
    const int64_t piece = (int64_t)sizeof swapped / item;

    for (int64_t i = 0; i < n_items; i += piece) {
        int64_t n = wf_min_i64(piece, n_items - i);

        for (int64_t k = 0; k < n; k++)
            for (int b = 0; b < item; b++)
                swapped[k * item + b] = p[(i + k) * item + item - 1 - b];
        wf_output_put(o, swapped, n * item);
    }
}

weft_status weft_idx_write(weft_ctx *ctx, const char *path, const weft_tensor *t)
{
    unsigned char head[4 + 4 * WEFT_MAX_RANK] = {0};
    int64_t count = weft_tensor_count(t), item = weft_dtype_size(t->dtype);
    struct wf_output o;

    for (int i = 0; i < WF_COUNT(idx_types); i++)
        if (idx_types[i].dtype == t->dtype && idx_types[i].item == item)
            head[2] = idx_types[i].code;
    if (!head[2])
        return wf_err(WEFT_EDTYPE, "%s: IDX has no %s: use u8, i8, i32, f32 or f64", path,
                      weft_dtype_name(t->dtype));
    if (t->rank < 1 || count < 0)
        return wf_err(WEFT_ESHAPE, "%s: IDX needs rank 1 or more", path);
    head[3] = (unsigned char)t->rank;
    for (int i = 0; i < t->rank; i++) {
        if (t->dim[i] > UINT32_MAX)
            return wf_err(WEFT_ESHAPE, "%s: a size of %lld is too large for IDX", path,
                          (long long)t->dim[i]);
        for (int b = 0; b < 4; b++)
            head[4 + 4 * i + b] = (unsigned char)(t->dim[i] >> (24 - 8 * b));
    }
    wf_output_open(&o, ctx, path);
    wf_output_put(&o, head, 4 + 4 * t->rank);
    if (item == 1)
        wf_output_put(&o, t->data, count);
    else
        put_big(&o, t->data, count, (int)item);
    return wf_output_close(&o);
}
