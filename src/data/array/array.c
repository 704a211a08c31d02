/* array.c - arrays in files as datasets: reading, conversion of items, and the node that returns
 * rows.
 *
 * A row comes from memory that lives as long as the node, or is read from the open file. Nothing is
 * mapped: accessing a page past the end of a truncated file kills the process, while a read only
 * fails. */
#include <fcntl.h>

#include "data/array/array.h"

#define PIECE_BYTES ((int64_t)1 << 20) /* read at a time if items are converted */
#define EMPTY_ROWS (1 << 20)           /* at most, if all columns are empty */

/* ---- items ----------------------------------------------------------------------------------- */

static bool machine_big(void)
{
    const uint16_t one = 1;
    char first;

    memcpy(&first, &one, 1);
    return !first;
}

bool wf_array_native(const struct wf_array_head *h)
{
    return h->item == weft_dtype_size(h->type.dtype) && (h->item == 1 || h->big == machine_big());
}

/* Reverses n items, in a form that compilers turn into byte-swapping instructions. */
#define SWAP_LOOP(T, SWAP)                                 \
    for (int64_t i = 0; i < n; i++) {                      \
        T v;                                               \
        memcpy(&v, src + i * (int64_t)sizeof v, sizeof v); \
        v = SWAP(v);                                       \
        memcpy(dst + i * (int64_t)sizeof v, &v, sizeof v); \
    }

static void swap_items(const char *src, int64_t n, int item, char *dst)
{
    if (item == 2)
        SWAP_LOOP(uint16_t, __builtin_bswap16)
    else if (item == 4)
        SWAP_LOOP(uint32_t, __builtin_bswap32)
    else
        SWAP_LOOP(uint64_t, __builtin_bswap64)
}

static int64_t small_item(const struct wf_array_head *h, const char *src)
{
    const unsigned char *u = (const unsigned char *)src;
    uint64_t v = 0;

    for (int b = 0; b < h->item; b++)
        v |= (uint64_t)u[h->big ? h->item - 1 - b : b] << 8 * b;
    if (!h->is_unsigned && v >> (8 * h->item - 1))
        return (int64_t)v - ((int64_t)1 << 8 * h->item);
    return (int64_t)v;
}

void wf_array_convert(const struct wf_array_head *h, const char *src, int64_t n, void *dst)
{
    if (wf_array_native(h))
        memcpy(dst, src, (size_t)(n * h->item));
    else if (h->item == weft_dtype_size(h->type.dtype))
        swap_items(src, n, h->item, dst);
    else
        for (int64_t i = 0; i < n; i++)
            wf_set_int(dst, h->type.dtype, i, small_item(h, src + i * h->item));
}

void wf_array_convert_all(const struct wf_array_head *h, const char *src, void *dst)
{
    int64_t index[WEFT_MAX_RANK] = {0}, stride[WEFT_MAX_RANK], at = 0, n = wf_type_count(&h->type);
    int64_t size = weft_dtype_size(h->type.dtype), step = h->item;

    if (n <= 0) /* strides of an axis of 0 may overflow */
        return;
    if (!h->fortran) {
        wf_array_convert(h, src, n, dst);
        return;
    }
    for (int i = 0; i < h->type.rank; i++) {
        stride[i] = step;
        step *= h->type.dim[i];
    }
    /* Row-major order in the result; `at` follows in the file. */
    for (int64_t i = 0; i < n; i++) {
        wf_array_convert(h, src + at, 1, (char *)dst + i * size);
        for (int k = h->type.rank - 1; k >= 0; k--) {
            at += stride[k];
            if (++index[k] < h->type.dim[k])
                break;
            at -= stride[k] * index[k];
            index[k] = 0;
        }
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

weft_status wf_array_read_at(weft_ctx *ctx, const struct wf_array *a, int64_t at, void *to,
                             int64_t n)
{
    const struct wf_fs *fs = ctx->fs;
    int64_t done = 0, got;

    while (done < n) {
        got = fs->pread(fs->arg, a->fd, (char *)to + done, n - done, at + done);
        if (got < 0)
            return wf_file_err(got, a->path, "cannot read");
        if (!got)
            return wf_err(WEFT_EIO, "%s: ends at byte %lld; it was longer when it was opened",
                          a->path, (long long)(at + done));
        done += got;
    }
    return WEFT_OK;
}

weft_status wf_array_open_file(weft_ctx *ctx, const char *path, struct wf_array *a, int64_t *bytes)
{
    const struct wf_fs *fs = ctx->fs;
    struct wf_file_info info;
    int rc = fs->stat(fs->arg, path, &info);
    weft_status st = rc ? wf_file_err(rc, path, "cannot open") : wf_file_check_plain(path, &info);

    *a = (struct wf_array){.path = path, .fd = -1};
    if (st)
        return st;
    a->fd = fs->open(fs->arg, path, O_RDONLY, 0);
    if (a->fd < 0)
        return wf_file_err(a->fd, path, "cannot open");
    *bytes = fs->size(fs->arg, a->fd);
    return *bytes < 0 ? wf_file_err(*bytes, path, "cannot get its size") : WEFT_OK;
}

static void close_fd(weft_ctx *ctx, struct wf_array *a)
{
    if (a->fd >= 0)
        ctx->fs->close(ctx->fs->arg, a->fd);
    a->fd = -1;
}

bool wf_array_fits(const weft_ctx *ctx, int64_t bytes, int64_t room)
{
    return bytes <= room &&
           (!ctx->mem_limit || bytes < ctx->mem_limit - atomic_load(&ctx->mem_used));
}

weft_status wf_array_load(weft_ctx *ctx, struct wf_array *a, int64_t *room)
{
    int64_t bytes = a->head.bytes;
    weft_status st;

    if (room && !wf_array_fits(ctx, bytes, *room))
        return WEFT_OK;
    a->owned = wf_alloc_raw(ctx, (size_t)bytes + 1);
    if (!a->owned)
        return wf_err_nomem(ctx, (size_t)bytes, a->path);
    st = wf_array_read_at(ctx, a, a->at, a->owned, bytes);
    if (st)
        return st;
    if (room)
        *room -= bytes;
    close_fd(ctx, a);
    a->data = a->owned;
    return WEFT_OK;
}

static weft_status open_plain(weft_ctx *ctx, wf_head_fn *parse, int64_t *room, struct wf_array *a)
{
    const char *path = a->path;
    int64_t bytes = 0, n;
    char *head = wf_alloc(ctx, WF_HEAD_MAX);
    weft_status st;

    if (!head)
        return wf_err_nomem(ctx, WF_HEAD_MAX, path);
    st = wf_array_open_file(ctx, path, a, &bytes);
    n = wf_min_i64(bytes, WF_HEAD_MAX);
    if (!st)
        st = wf_array_read_at(ctx, a, 0, head, n);
    if (!st)
        st = wf_err_wrap(parse(head, n, bytes, &a->head), "%s", path);
    wf_free(ctx, head);
    if (st)
        return st;
    a->at = a->head.at;
    return wf_array_load(ctx, a, room);
}

/* The head comes first and says how much there will be: exactly that is allocated, unless it is
 * more than such a file can contain or than the limits allow. */
static weft_status open_packed(weft_ctx *ctx, struct wf_unpack *u, const weft_file_opts *opts,
                               wf_head_fn *parse, struct wf_array *a)
{
    int64_t n, got, ratio = opts && opts->max_ratio ? opts->max_ratio : 2000;
    char *head = wf_alloc(ctx, WF_HEAD_MAX);
    weft_status st = WEFT_OK;

    if (!head)
        return wf_err_nomem(ctx, WF_HEAD_MAX, a->path);
    st = wf_unpack_read(u, head, WF_HEAD_MAX, &n);
    if (!st) {
        st = parse(head, n, -1, &a->head);
        st = wf_err_wrap(st, "%s", a->path);
    }
    if (!st && a->head.bytes > 64 << 20 && u->size >= 0 && a->head.bytes / ratio > u->size)
        st = wf_err(WEFT_ELIMIT,
                    "%s: %lld bytes claim to unpack to %lld: refused as a decompression bomb",
                    a->path, (long long)u->size, (long long)a->head.bytes);
    if (!st && !(a->owned = wf_alloc_raw(ctx, (size_t)a->head.bytes + 1)))
        st = wf_err_nomem(ctx, (size_t)a->head.bytes, a->path);
    if (!st) {
        int64_t have = wf_min_i64(n - a->head.at, a->head.bytes);

        memcpy(a->owned, head + a->head.at, (size_t)have);
        st = wf_unpack_read(u, a->owned + have, a->head.bytes - have, &got);
        if (!st && got < a->head.bytes - have)
            st = wf_err(WEFT_EPARSE, "%s: %lld bytes of data, but its header says %lld", a->path,
                        (long long)(have + got), (long long)a->head.bytes);
        /* Reading to the end makes the unpacker verify its checksum. */
        while (!st && got)
            st = wf_unpack_read(u, head, WF_HEAD_MAX, &got);
        a->data = a->owned;
    }
    wf_free(ctx, head);
    return st;
}

weft_status wf_array_open(weft_ctx *ctx, const char *path, const weft_file_opts *opts,
                          wf_head_fn *parse, int64_t *room, struct wf_array *out)
{
    struct wf_array a = {.path = path, .fd = -1};
    struct wf_unpack *u = NULL;
    weft_status st = wf_unpack_open(ctx, path, opts, &u);

    if (st)
        return st;
    if (u->how == WEFT_COMPRESSION_NONE)
        st = open_plain(ctx, parse, room, &a);
    else
        st = open_packed(ctx, u, opts, parse, &a);
    wf_unpack_close(u);
    if (st)
        wf_array_close(ctx, &a);
    else
        *out = a;
    return st;
}

void wf_array_close(weft_ctx *ctx, struct wf_array *a)
{
    wf_free(ctx, a->owned);
    close_fd(ctx, a);
    *a = (struct wf_array){.fd = -1};
}

/* A Fortran array of rank 2 in row-major order, into `rows`, column by column. */
static weft_status turn_rows(weft_ctx *ctx, const struct wf_array *a, char *rows)
{
    const struct wf_array_head *h = &a->head;
    int64_t n = h->type.dim[0], n_cols = h->type.rank > 1 ? h->type.dim[1] : 1;
    int64_t bytes = n * h->item, size = weft_dtype_size(h->type.dtype);
    char *column = wf_alloc(ctx, (size_t)bytes + 1);
    weft_status st = column ? WEFT_OK : wf_err_nomem(ctx, (size_t)bytes, a->path);

    for (int64_t c = 0; c < n_cols && !st; c++) {
        st = wf_array_read_at(ctx, a, a->at + c * bytes, column, bytes);
        for (int64_t i = 0; i < n && !st; i++)
            wf_array_convert(h, column + i * h->item, 1, rows + (i * n_cols + c) * size);
    }
    wf_free(ctx, column);
    return st;
}

static weft_status settle_fortran(weft_ctx *ctx, struct wf_array *a)
{
    struct wf_array_head *h = &a->head;
    int64_t bytes = wf_type_bytes(&h->type);
    weft_status st = WEFT_OK;
    char *rows;

    if (h->type.rank > 2)
        return wf_err(
            WEFT_ENOSUP,
            "%s: Fortran order with rank %d is not supported: save it with numpy.ascontiguousarray",
            a->path, h->type.rank);
    rows = wf_alloc(ctx, (size_t)bytes + 1);
    if (!rows)
        return wf_err_nomem(ctx, (size_t)bytes, a->path);
    if (a->data)
        wf_array_convert_all(h, a->data, rows);
    else if (bytes)
        st = turn_rows(ctx, a, rows);
    if (st) {
        wf_free(ctx, rows);
        return st;
    }
    wf_free(ctx, a->owned);
    close_fd(ctx, a);
    a->data = a->owned = rows;
    *h = (struct wf_array_head){.type = h->type, .bytes = bytes, .big = machine_big()};
    h->item = (int)weft_dtype_size(h->type.dtype);
    return WEFT_OK;
}

weft_status wf_array_settle(weft_ctx *ctx, struct wf_array *a)
{
    struct wf_array_head *h = &a->head;
    int64_t align = weft_dtype_size(h->type.dtype);

    if (!h->type.rank)
        return wf_err(WEFT_ESHAPE, "%s: a scalar has no rows", a->path);
    a->row_items = 1;
    for (int i = 1; i < h->type.rank; i++)
        if (!wf_mul_i64(a->row_items, h->type.dim[i], &a->row_items) ||
            a->row_items > INT64_MAX / 16)
            return wf_err(WEFT_ESHAPE, "%s: the size of a row overflows", a->path);
    if (h->fortran) {
        weft_status st = settle_fortran(ctx, a);

        if (st)
            return st;
    }
    a->view = a->data && wf_array_native(h) && (uintptr_t)a->data % (uintptr_t)align == 0;
    return WEFT_OK;
}

weft_status wf_array_read(weft_ctx *ctx, const char *path, wf_head_fn *parse, weft_tensor *out)
{
    struct wf_array a = {.fd = -1};
    weft_status st = wf_array_open(ctx, path, NULL, parse, NULL, &a);
    weft_tensor t;
    int64_t bytes;

    if (st)
        return st;
    if (!a.head.fortran && wf_array_native(&a.head)) {
        *out = weft_view(a.head.type.dtype, a.owned, a.head.type.rank, a.head.type.dim);
        a.owned = NULL;
        wf_array_close(ctx, &a);
        return WEFT_OK;
    }
    bytes = wf_type_bytes(&a.head.type);
    t = weft_view(a.head.type.dtype, wf_alloc(ctx, (size_t)bytes + 1), a.head.type.rank,
                  a.head.type.dim);
    if (t.data)
        wf_array_convert_all(&a.head, a.data, t.data);
    else
        st = wf_err_nomem(ctx, (size_t)bytes, path);
    wf_array_close(ctx, &a);
    if (!st)
        *out = t;
    return st;
}

void weft_array_free(weft_ctx *ctx, weft_tensor *t)
{
    if (t && t->data) {
        wf_free(ctx, t->data);
        t->data = NULL;
    }
}

/* ---- the node -------------------------------------------------------------------------------- */

struct arrays {
    int n;
    struct wf_array *a;
};

static bool consecutive(const struct wf_at *at, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (at[i].id != at[0].id + i)
            return false;
    return true;
}

static void convert_row(const void *how, const char *from, char *to)
{
    const struct wf_array *a = how;

    wf_array_convert(&a->head, from, a->row_items, to);
}

static void gather(const struct wf_array *a, const struct wf_at *at, const struct wf_block *b,
                   char *to)
{
    struct wf_gather g = {.base = a->data,
                          .row = a->row_items * a->head.item,
                          .out = a->row_items * weft_dtype_size(a->head.type.dtype),
                          .at = at,
                          .n = b->n,
                          .to = to,
                          .convert = wf_array_native(&a->head) ? NULL : convert_row,
                          .how = a};

    wf_rows_gather(b->env, &g);
}

/* Consecutive rows in the file, from row `first` on, converted. */
static weft_status read_converted(weft_ctx *ctx, const struct wf_array *a, int64_t first, int64_t n,
                                  char *to)
{
    int64_t row = a->row_items * a->head.item, most = wf_max_i64(PIECE_BYTES / row, 1);
    int64_t out = a->row_items * weft_dtype_size(a->head.type.dtype);
    char *raw = wf_alloc(ctx, (size_t)(wf_min_i64(n, most) * row));
    weft_status st = raw ? WEFT_OK : wf_err_nomem(ctx, (size_t)(n * row), a->path);

    for (int64_t done = 0, k; done < n && !st; done += k) {
        k = wf_min_i64(n - done, most);
        st = wf_array_read_at(ctx, a, a->at + (first + done) * row, raw, k * row);
        if (!st)
            wf_array_convert(&a->head, raw, k * a->row_items, to + done * out);
    }
    wf_free(ctx, raw);
    return st;
}

/* Rows at[0..n) of an array that is not in memory. */
static weft_status read_rows(weft_ctx *ctx, const struct wf_array *a, const struct wf_at *at,
                             int64_t n, char *to)
{
    int64_t row = a->row_items * a->head.item;
    int64_t out = a->row_items * weft_dtype_size(a->head.type.dtype);
    weft_status st = WEFT_OK;

    for (int64_t i = 0, k; i < n && !st; i += k, to += k * out) {
        for (k = 1; i + k < n && at[i + k].id == at[i].id + k;)
            k++;
        st = wf_array_native(&a->head)
                 ? wf_array_read_at(ctx, a, a->at + at[i].id * row, to, k * row)
                 : read_converted(ctx, a, at[i].id, k, to);
    }
    return st;
}

static weft_status get_column(struct wf_ds *ds, const struct wf_array *a, bool view,
                              const struct wf_at *at, struct wf_block *b, int c)
{
    struct wf_type type = wf_column_type(&ds->col[c]);
    weft_status st;

    if (view && a->view) {
        b->col[c].type = type;
        /* Blocks are not const, but columns are never written to after they are returned. */
        b->col[c].data =
            (void *)(uintptr_t)(a->data + (b->n ? at[0].id * a->row_items * a->head.item : 0));
        return WEFT_OK;
    }
    st = wf_block_col(b, c, &type, b->n * a->row_items);
    if (!st && a->row_items && !a->data)
        st = read_rows(ds->data->ctx, a, at, b->n, b->col[c].data);
    else if (!st && a->row_items)
        gather(a, at, b, b->col[c].data);
    return st;
}

static weft_status arrays_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct arrays *p = ds->param;
    bool view = consecutive(at, n);
    struct wf_block *b;
    weft_status st = wf_block_new(w->env, p->n, n, &b);

    if (st)
        return st;
    for (int c = 0; c < p->n && !st; c++)
        st = get_column(ds, &p->a[c], view, at, b, c);
    if (n)
        memcpy(b->at, at, (size_t)n * sizeof *at);
    if (st)
        wf_block_free(b);
    else
        *out = b;
    return st;
}

static void arrays_free(struct wf_ds *ds)
{
    struct arrays *p = ds->param;

    for (int i = 0; i < p->n; i++)
        wf_array_close(ds->data->ctx, &p->a[i]);
    wf_free(ds->data->ctx, p->a);
    p->n = 0;
}

static void arrays_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct arrays *p = ds->param;
    char type[WF_TYPE_TEXT];

    for (int i = 0; i < p->n; i++)
        wf_buf_printf(out, "%s%s=%s %s", i ? ", " : "", ds->col[i].name, p->a[i].path,
                      wf_type_text(&p->a[i].head.type, type));
}

static const char *arrays_file(const struct wf_ds *ds, int64_t i)
{
    const struct arrays *p = ds->param;

    return i < p->n ? p->a[i].path : NULL;
}

static const struct wf_ds_kind arrays_kind = {
    .name = "arrays",
    .get = arrays_get,
    .free = arrays_free,
    .text = arrays_text,
    .file = arrays_file,
};

bool wf_arrays_in_memory(const struct wf_ds *ds)
{
    const struct arrays *p = ds->param;

    if (ds->kind != &arrays_kind)
        return false;
    for (int i = 0; i < p->n; i++)
        if (!p->a[i].data)
            return false;
    return true;
}

static weft_status set_columns(struct wf_ds *ds, const char *const *names)
{
    struct arrays *p = ds->param;
    weft_column *col = wf_alloc_n(ds->data->ctx, p->n, sizeof *col);
    weft_status st = WEFT_OK;

    if (!col)
        return wf_err_nomem(ds->data->ctx, (size_t)p->n * sizeof *col, "columns");
    for (int i = 0; i < p->n && !st; i++) {
        const struct wf_type *t = &p->a[i].head.type;

        col[i] = wf_column_of(names[i], t->dtype, t->rank - 1, t->dim + 1);
        if (t->dim[0] != p->a[0].head.type.dim[0])
            st = wf_err(WEFT_ESHAPE, "%s has %lld rows, but %s has %lld", p->a[0].path,
                        (long long)p->a[0].head.type.dim[0], p->a[i].path, (long long)t->dim[0]);
    }
    if (!st)
        st = wf_ds_set_columns(ds, p->n, col);
    wf_free(ds->data->ctx, col);
    return st;
}

/* A file of a few bytes may claim any number of empty rows: reading them would not end. */
static weft_status check_empty_rows(const struct arrays *p)
{
    int64_t rows = p->a[0].head.type.dim[0];

    for (int i = 0; i < p->n; i++)
        if (p->a[i].row_items)
            return WEFT_OK;
    return rows <= EMPTY_ROWS
               ? WEFT_OK
               : wf_err(WEFT_ELIMIT, "%s: %lld rows without items; at most %d are accepted",
                        p->a[0].path, (long long)rows, EMPTY_ROWS);
}

weft_ds wf_ds_arrays(weft_data *d, const char *builder, int n, const char *const *names,
                     struct wf_array *a)
{
    struct wf_ds *ds = wf_ds_new(d, &arrays_kind, 0, NULL, sizeof(struct arrays));
    struct arrays *p = ds ? ds->param : NULL;
    weft_status st;

    if (!ds) {
        for (int i = 0; i < n; i++)
            wf_array_close(d->ctx, &a[i]);
        return (weft_ds){0};
    }
    p->a = wf_alloc_n(d->ctx, n, sizeof *a);
    if (!p->a) {
        for (int i = 0; i < n; i++)
            wf_array_close(d->ctx, &a[i]);
        return wf_ds_fail(d, builder, wf_err_nomem(d->ctx, (size_t)n * sizeof *a, "arrays"));
    }
    memcpy(p->a, a, (size_t)n * sizeof *a);
    p->n = n;
    ds->name = builder;
    ds->count = a[0].head.type.dim[0];
    ds->addressable = true;
    st = set_columns(ds, names);
    if (!st)
        st = check_empty_rows(p);
    return st ? wf_ds_fail(d, builder, st) : wf_ds_handle(ds);
}

weft_ds wf_ds_array_files(weft_data *d, const char *builder, int n, const weft_array_file *files,
                          const weft_file_opts *opts, wf_head_fn *parse)
{
    struct wf_array a[64];
    const char *names[64];
    weft_status st = WEFT_OK;
    int n_open = 0;

    if (weft_data_status(d))
        return (weft_ds){0};
    if (n < 1 || n > WF_COUNT(a))
        return wf_ds_fail(d, builder, wf_err(WEFT_EINVAL, "%d files: 1 to 64 are accepted", n));
    while (!st && n_open < n) {
        char *path = files[n_open].path ? wf_arena_strdup(&d->arena, files[n_open].path) : NULL;

        if (!path) {
            st = files[n_open].path ? wf_err_nomem(d->ctx, 0, "the pipeline")
                                    : wf_err(WEFT_EINVAL, "file %d has no path", n_open);
            break;
        }
        names[n_open] = files[n_open].column;
        st = wf_array_open(d->ctx, path, opts, parse, &d->array_room, &a[n_open]);
        if (!st) {
            st = wf_array_settle(d->ctx, &a[n_open]);
            n_open++;
        }
    }
    if (!st)
        return wf_ds_arrays(d, builder, n, names, a);
    while (n_open)
        wf_array_close(d->ctx, &a[--n_open]);
    return wf_ds_fail(d, builder, st);
}
