/* safetensors.c - the reader of safetensors files.
 *
 * Eight bytes of length, a JSON header, the data. Nothing in the file is trusted: once it is open,
 * the tensors cover the data without a hole or an overlap, each has the size of its shape, and
 * names are unique. Data is read with pread on demand, not mapped, so that a file truncated by
 * another process gives an error, not a signal. */
#include <stdlib.h>

#include "ckpt/ckpt.h"

/* Every dtype of the format, so that a file with dtypes that weft lacks can be opened and its other
 * tensors read. */
static const struct dtype {
    const char *name;
    int bits;
    weft_dtype ours;
} dtypes[] = {
    {"F32", 32, WEFT_F32},
    {"F16", 16, WEFT_F16},
    {"BF16", 16, WEFT_BF16},
    {"F64", 64, WEFT_F64},
    {"I64", 64, WEFT_I64},
    {"I32", 32, WEFT_I32},
    {"U8", 8, WEFT_U8},
    {"I8", 8, WEFT_I8},
    {"BOOL", 8, WEFT_BOOL},
    {"U16", 16, WEFT_NONE},
    {"I16", 16, WEFT_NONE},
    {"U32", 32, WEFT_NONE},
    {"U64", 64, WEFT_NONE},
    {"C64", 64, WEFT_NONE},
    {"F8_E5M2", 8, WEFT_NONE},
    {"F8_E4M3", 8, WEFT_NONE},
    {"F8_E8M0", 8, WEFT_NONE},
    {"F8_E4M3FNUZ", 8, WEFT_NONE},
    {"F8_E5M2FNUZ", 8, WEFT_NONE},
    {"F6_E2M3", 6, WEFT_NONE},
    {"F6_E3M2", 6, WEFT_NONE},
    {"F4", 4, WEFT_NONE},
};

struct entry {
    const char *name;
    const struct dtype *dtype;
    int64_t rank, *dim;
    int64_t begin, end; /* in the data */
    void *data;         /* what weft_st_tensor has read; NULL before that */
};

struct weft_st {
    weft_ctx *ctx;
    struct wf_arena mem;
    char *path;
    int fd;
    int64_t size, data_at;
    int64_t n, n_meta;
    struct entry *entry; /* by offset */
    weft_ckpt_pair *meta;
    struct wf_map by_name;
};

const char *wf_st_dtype(weft_dtype t)
{
    for (int i = 0; i < WF_COUNT(dtypes) && t != WEFT_NONE; i++)
        if (dtypes[i].ours == t)
            return dtypes[i].name;
    return NULL;
}

weft_status wf_st_check(const char *name, weft_dtype dtype, int64_t bytes)
{
    if (!wf_st_dtype(dtype))
        return wf_err(WEFT_EDTYPE, "tensor '%.80s': safetensors has no %s", name,
                      weft_dtype_name(dtype));
    if (bytes < 0)
        return wf_err(WEFT_ESHAPE, "tensor '%.80s': its shape is not known or overflows", name);
    return WEFT_OK;
}

static const struct dtype *dtype_of(const char *name)
{
    for (int i = 0; i < WF_COUNT(dtypes); i++)
        if (!strcmp(dtypes[i].name, name))
            return &dtypes[i];
    return NULL;
}

/* ---- the header ------------------------------------------------------------------------------ */

static weft_status parse_shape(weft_st *s, const json_t *info, struct entry *e)
{
    json_t *list = NULL;
    int64_t count = 1, bits;
    weft_status st = wf_json_list(info, "shape", &list);

    if (st)
        return st;
    e->rank = (int64_t)json_array_size(list);
    e->dim = wf_arena_alloc(&s->mem, (size_t)e->rank * sizeof *e->dim);
    if (!e->dim)
        return wf_err_nomem(s->ctx, (size_t)e->rank * sizeof *e->dim, "a shape");
    for (int64_t i = 0; i < e->rank; i++) {
        const json_t *v = json_array_get(list, (size_t)i);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return wf_err(WEFT_EPARSE, "\"shape\" holds something other than sizes");
        e->dim[i] = json_integer_value(v);
        if (!wf_mul_i64(count, e->dim[i], &count))
            return wf_err(WEFT_EPARSE, "the product of \"shape\" overflows");
    }
    if (!wf_mul_i64(count, e->dtype->bits, &bits))
        return wf_err(WEFT_EPARSE, "%lld elements of %s overflow", (long long)count,
                      e->dtype->name);
    if (bits % 8 || bits / 8 != e->end - e->begin)
        return wf_err(WEFT_EPARSE, "%lld elements of %s do not fill the %lld bytes of its offsets",
                      (long long)count, e->dtype->name, (long long)(e->end - e->begin));
    return WEFT_OK;
}

static weft_status parse_entry(weft_st *s, const json_t *info, struct entry *e)
{
    const char *dtype = NULL;
    json_t *at = NULL;
    const json_t *b, *end;
    weft_status st;

    if (!json_is_object(info))
        return wf_err(WEFT_EPARSE, "its entry is not an object");
    st = wf_json_str(info, "dtype", &dtype);
    if (!st)
        st = wf_json_list(info, "data_offsets", &at);
    if (st)
        return st;
    e->dtype = dtype_of(dtype);
    if (!e->dtype)
        return wf_err(WEFT_EPARSE, "'%.32s' is not a safetensors dtype", dtype);
    b = json_array_get(at, 0);
    end = json_array_get(at, 1);
    if (json_array_size(at) != 2 || !json_is_integer(b) || !json_is_integer(end))
        return wf_err(WEFT_EPARSE, "\"data_offsets\" is not two whole numbers");
    e->begin = json_integer_value(b);
    e->end = json_integer_value(end);
    if (e->begin < 0 || e->end < e->begin)
        return wf_err(WEFT_EPARSE, "\"data_offsets\" [%lld, %lld] is not a range",
                      (long long)e->begin, (long long)e->end);
    return parse_shape(s, info, e);
}

static weft_status parse_metadata(weft_st *s, json_t *map)
{
    const char *key;
    json_t *v;

    if (!json_is_object(map))
        return wf_err(WEFT_EPARSE, "\"__metadata__\" is not an object");
    s->meta = wf_arena_alloc(&s->mem, json_object_size(map) * sizeof *s->meta);
    if (!s->meta)
        return wf_err_nomem(s->ctx, json_object_size(map) * sizeof *s->meta, "metadata");
    json_object_foreach(map, key, v)
    {
        weft_ckpt_pair *p = &s->meta[s->n_meta++];

        if (!json_is_string(v))
            return wf_err(WEFT_EPARSE, "\"__metadata__\": the value of '%.80s' is not a string",
                          key);
        p->key = wf_arena_strdup(&s->mem, key);
        p->value = wf_arena_strdup(&s->mem, json_string_value(v));
        if (!p->key || !p->value)
            return wf_err_nomem(s->ctx, strlen(key) + json_string_length(v), "metadata");
    }
    return WEFT_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) /* empty ones first */
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static weft_status check_cover(weft_st *s)
{
    int64_t at = 0;

    if (s->n)
        qsort(s->entry, (size_t)s->n, sizeof *s->entry, by_offset);
    for (int64_t i = 0; i < s->n; i++) {
        const struct entry *e = &s->entry[i];
        weft_status st;

        if (e->begin != at)
            return wf_err(WEFT_EPARSE, "tensor '%.80s' begins at byte %lld of the data, %s %lld",
                          e->name, (long long)e->begin,
                          e->begin > at ? "which leaves a hole from" : "inside one that ends at",
                          (long long)at);
        at = e->end;
        st = wf_map_put(&s->by_name, e->name, i);
        if (st)
            return st;
    }
    if (at != s->size - s->data_at)
        return wf_err(WEFT_EPARSE,
                      "the tensors take %lld bytes, but the file has %lld bytes of data",
                      (long long)at, (long long)(s->size - s->data_at));
    return WEFT_OK;
}

static weft_status parse_header(weft_st *s, const char *text, int64_t n)
{
    json_t *root = NULL, *info;
    const char *name;
    weft_status st;

    if (!n || text[0] != '{')
        return wf_err(WEFT_EPARSE, "the header does not begin with '{'");
    st = wf_json_parse(text, n, &root);
    if (st)
        return wf_err_wrap(st, "header");
    s->entry = wf_arena_alloc(&s->mem, json_object_size(root) * sizeof *s->entry);
    if (!s->entry)
        st = wf_err_nomem(s->ctx, json_object_size(root) * sizeof *s->entry, "tensors");
    json_object_foreach(root, name, info)
    {
        struct entry *e;

        if (st)
            break;
        if (!strcmp(name, "__metadata__")) {
            st = parse_metadata(s, info);
            continue;
        }
        e = &s->entry[s->n++];
        e->name = wf_arena_strdup(&s->mem, name);
        st = e->name ? parse_entry(s, info, e) : wf_err_nomem(s->ctx, strlen(name), "a name");
        st = wf_err_wrap(st, "tensor '%.80s'", name);
    }
    json_decref(root);
    return st ? st : check_cover(s);
}

static weft_status read_header(weft_st *s)
{
    const struct wf_fs *fs = s->ctx->fs;
    unsigned char le[8];
    uint64_t n = 0;
    char *text;
    weft_status st;

    s->size = fs->size(fs->arg, s->fd);
    if (s->size < 0)
        return wf_file_err(s->size, s->path, "not a regular file");
    if (s->size < 8)
        return wf_err(WEFT_EPARSE, "%s: %lld bytes are too few for a safetensors file", s->path,
                      (long long)s->size);
    st = wf_ckpt_pread(s->ctx, s->fd, s->path, le, 8, 0);
    if (st)
        return st;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)le[i] << (8 * i);
    if (n > WF_ST_HEADER_MAX || (int64_t)n > s->size - 8)
        return wf_err(
            WEFT_EPARSE,
            "%s: its header would take %llu bytes, more than the %s (not a safetensors file?)",
            s->path, (unsigned long long)n,
            n > WF_ST_HEADER_MAX ? "allowed 100000000" : "file has");
    s->data_at = 8 + (int64_t)n;
    text = wf_alloc(s->ctx, (size_t)n + 1);
    if (!text)
        return wf_err_nomem(s->ctx, (size_t)n, s->path);
    st = wf_ckpt_pread(s->ctx, s->fd, s->path, text, (int64_t)n, 8);
    if (!st)
        st = wf_err_wrap(parse_header(s, text, (int64_t)n), "%s", s->path);
    wf_free(s->ctx, text);
    return st;
}

/* ---- the public side ------------------------------------------------------------------------- */

weft_status weft_st_open(weft_ctx *ctx, const char *path, weft_st **out)
{
    weft_st *s = wf_alloc(ctx, sizeof *s);
    weft_status st;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, path);
    s->ctx = ctx;
    s->fd = -1;
    wf_arena_init(&s->mem, ctx);
    wf_map_init(&s->by_name, ctx);
    s->path = wf_arena_strdup(&s->mem, path);
    if (!s->path) {
        st = wf_err_nomem(ctx, strlen(path), path);
        goto out;
    }
    s->fd = wf_ckpt_open_file(ctx, path);
    if (s->fd < 0) {
        st = wf_file_err(s->fd, path, "cannot open");
        goto out;
    }
    st = read_header(s);
    if (st)
        goto out;
    *out = s;
    s = NULL;
out:
    weft_st_close(s);
    return st;
}

void weft_st_close(weft_st *s)
{
    weft_ctx *ctx;

    if (!s)
        return;
    ctx = s->ctx;
    if (s->fd >= 0)
        ctx->fs->close(ctx->fs->arg, s->fd);
    for (int64_t i = 0; i < s->n; i++)
        wf_free(ctx, s->entry[i].data);
    wf_map_free(&s->by_name);
    wf_arena_free(&s->mem);
    wf_free(ctx, s);
}

int64_t weft_st_n(const weft_st *s)
{
    return s->n;
}

int64_t weft_st_find(const weft_st *s, const char *name)
{
    int64_t i = -1;

    return wf_map_get(&s->by_name, name, &i) ? i : -1;
}

static weft_status check_index(const weft_st *s, int64_t i, int64_t n, const char *what)
{
    if (i < 0 || i >= n)
        return wf_err(WEFT_ERANGE, "%s: no %s %lld; there are %lld", s->path, what, (long long)i,
                      (long long)n);
    return WEFT_OK;
}

weft_status weft_st_type(const weft_st *s, int64_t i, const char **name, weft_tensor *type)
{
    weft_status st = check_index(s, i, s->n, "tensor");
    const struct entry *e;

    if (st)
        return st;
    e = &s->entry[i];
    if (name)
        *name = e->name;
    if (e->dtype->ours == WEFT_NONE)
        return wf_err(WEFT_ENOSUP, "%s: tensor '%.80s' has type %s, which weft does not have",
                      s->path, e->name, e->dtype->name);
    if (e->rank > WEFT_MAX_RANK)
        return wf_err(WEFT_ENOSUP, "%s: tensor '%.80s' has rank %lld; weft supports at most %d",
                      s->path, e->name, (long long)e->rank, WEFT_MAX_RANK);
    *type = weft_view(e->dtype->ours, NULL, (int)e->rank, e->dim);
    return WEFT_OK;
}

weft_status weft_st_tensor(weft_st *s, int64_t i, const char **name, weft_tensor *out)
{
    weft_tensor type = {.data = NULL};
    weft_status st = weft_st_type(s, i, name, &type);
    struct entry *e;
    int64_t bytes;

    if (st)
        return st;
    e = &s->entry[i];
    bytes = e->end - e->begin;
    if (!e->data) {
        void *p = wf_alloc(s->ctx, (size_t)bytes);

        if (!p)
            return wf_err_nomem(s->ctx, (size_t)bytes, e->name);
        st = weft_st_read(s, i, p, bytes);
        if (st) {
            wf_free(s->ctx, p);
            return st;
        }
        e->data = p;
    }
    type.data = e->data;
    *out = type;
    return WEFT_OK;
}

weft_status weft_st_read(const weft_st *s, int64_t i, void *to, int64_t bytes)
{
    weft_status st = check_index(s, i, s->n, "tensor");
    const struct entry *e;

    if (st)
        return st;
    e = &s->entry[i];
    if (bytes != e->end - e->begin)
        return wf_err(WEFT_ESHAPE, "%s: tensor '%.80s' has %lld bytes, not %lld", s->path, e->name,
                      (long long)(e->end - e->begin), (long long)bytes);
    return wf_ckpt_pread(s->ctx, s->fd, s->path, to, bytes, s->data_at + e->begin);
}

int64_t weft_st_n_metadata(const weft_st *s)
{
    return s->n_meta;
}

weft_status weft_st_metadata_at(const weft_st *s, int64_t i, const char **key, const char **value)
{
    weft_status st = check_index(s, i, s->n_meta, "metadata entry");

    if (st)
        return st;
    *key = s->meta[i].key;
    *value = s->meta[i].value;
    return WEFT_OK;
}

const char *weft_st_metadata(const weft_st *s, const char *key)
{
    for (int64_t i = 0; i < s->n_meta; i++)
        if (!strcmp(s->meta[i].key, key))
            return s->meta[i].value;
    return NULL;
}

void wf_st_range(const weft_st *s, int64_t i, int64_t *begin, int64_t *end)
{
    *begin = s->data_at + s->entry[i].begin;
    *end = s->data_at + s->entry[i].end;
}

int wf_st_fd(const weft_st *s)
{
    return s->fd;
}

int64_t wf_st_size(const weft_st *s)
{
    return s->size;
}
