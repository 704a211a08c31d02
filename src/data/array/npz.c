/* npz.c - zip archives of npy files: each entry a column. Deflated entries are unpacked into
 * memory; stored ones are read into memory if there is room, otherwise row by row from the
 * archive. */
#include "data/array/array.h"

#define MAX_ARRAYS 64
#define LOCAL_MAX_BYTES 256 /* a header without its name */

/* Length of an entry's name, without ".npy". */
static size_t name_bytes(const struct wf_zip_entry *e)
{
    int64_t n = e->n_name;

    return (size_t)(n > 4 && !memcmp(e->name + n - 4, ".npy", 4) ? n - 4 : n);
}

/* That name in the arena. NULL: out of memory. */
static char *column_name(weft_data *d, const struct wf_zip_entry *e)
{
    size_t n = name_bytes(e);
    char *name = wf_arena_alloc(&d->arena, n + 1);

    if (name)
        memcpy(name, e->name, n);
    return name;
}

/* Whether `name` is in a list separated by commas; a NULL list contains everything. */
static bool listed(const char *list, const char *name, size_t n)
{
    if (!list)
        return true;
    while (*list) {
        size_t len;

        list += strspn(list, " ,");
        len = strcspn(list, ",");
        while (len && list[len - 1] == ' ')
            len--;
        if (len == n && !memcmp(list, name, n))
            return true;
        list += strcspn(list, ",");
    }
    return false;
}

weft_status wf_npz_array(const struct wf_zip_entry *e, struct wf_array *a)
{
    const char *p;
    weft_status st = wf_zip_read(e, &p, &a->owned);

    if (!st)
        st = wf_npy_head(p, e->bytes, e->bytes, &a->head);
    if (!st)
        a->data = p + a->head.at;
    return st;
}

/* An archive while its entries are opened. */
struct archive {
    weft_data *d;
    const char *path;
    struct wf_array file;
    int64_t bytes, max_ratio;
};

/* A stored entry that stays in the file: verified, with a descriptor of its own. */
static weft_status leave_entry(const struct archive *z, const struct wf_zip_entry *e,
                               struct wf_array *a)
{
    weft_ctx *ctx = z->d->ctx;
    char head[WF_HEAD_MAX];
    int64_t bytes = 0;
    struct wf_array_head h = {0};
    weft_status st = wf_zip_check(e, head, sizeof head);

    if (!st)
        st = wf_npy_head(head, wf_min_i64(e->bytes, (int64_t)sizeof head), e->bytes, &h);
    if (!st)
        st = wf_array_open_file(ctx, z->path, a, &bytes);
    if (!st && bytes != z->bytes)
        st = wf_err(WEFT_EIO, "the file changed while it was being opened");
    a->head = h;
    a->at = e->at + h.at;
    return st;
}

static weft_status open_entry(const struct archive *z, const struct wf_zip_entry *e,
                              struct wf_array *out)
{
    weft_ctx *ctx = z->d->ctx;
    struct wf_array a = {.path = z->path, .fd = -1};
    int64_t *room = &z->d->array_room;
    bool fits = e->deflated || wf_array_fits(ctx, e->bytes, *room);
    weft_status st = WEFT_OK;

    if (z->max_ratio && e->bytes > 64 << 20 && e->bytes / z->max_ratio > e->packed)
        return wf_err(WEFT_ELIMIT, "'%.*s': %lld bytes would unpack to %lld: refused",
                      (int)e->n_name, e->name, (long long)e->packed, (long long)e->bytes);
    if (fits)
        st = wf_npz_array(e, &a);
    if (fits && !st && !e->deflated)
        *room -= e->bytes;
    if (!fits)
        st = leave_entry(z, e, &a);
    if (!st)
        st = wf_array_settle(ctx, &a);
    if (st)
        wf_array_close(ctx, &a);
    else
        *out = a;
    return st;
}

/* The entries that are listed; *n of them are open, also on failure. */
static weft_status open_entries(const struct archive *z, const char *columns, const char **names,
                                struct wf_array *a, int *n)
{
    struct wf_zip walk;
    struct wf_zip_entry e = {0};
    bool more = true;
    weft_status st = wf_zip_open_file(&walk, z->d->ctx, &z->file, z->bytes);

    while (!st && !(st = wf_zip_next(&walk, &e, &more)) && more) {
        if (!listed(columns, e.name, name_bytes(&e)))
            continue;
        if (*n == MAX_ARRAYS) {
            st = wf_err(WEFT_ELIMIT, "more than %d arrays: list the columns to read", MAX_ARRAYS);
            break;
        }
        names[*n] = column_name(z->d, &e);
        st = names[*n] ? open_entry(z, &e, &a[*n]) : wf_err_nomem(z->d->ctx, 0, "the pipeline");
        *n += !st;
    }
    wf_zip_close(&walk);
    return st;
}

/* Every requested column must exist. */
static weft_status check_listed(const char *columns, int n, const char *const *names)
{
    for (const char *c = columns; c && *c;) {
        size_t len;
        bool found = false;

        c += strspn(c, " ,");
        len = strcspn(c, ",");
        while (len && c[len - 1] == ' ')
            len--;
        for (int i = 0; i < n; i++)
            found |= strlen(names[i]) == len && !memcmp(names[i], c, len);
        if (len && !found)
            return wf_err(WEFT_ENOENT, "no array '%.*s' in the archive", (int)len, c);
        c += strcspn(c, ",");
    }
    return WEFT_OK;
}

weft_ds weft_ds_npz(weft_data *d, const char *path, const char *columns, const weft_file_opts *opts)
{
    struct archive z = {.d = d, .max_ratio = opts ? opts->max_ratio : 0};
    struct wf_array a[MAX_ARRAYS];
    const char *names[MAX_ARRAYS];
    int n = 0;
    weft_status st;

    if (weft_data_status(d))
        return (weft_ds){0};
    z.path = path ? wf_arena_strdup(&d->arena, path) : NULL;
    if (!z.path)
        return wf_ds_fail(d, "npz",
                          path ? wf_err_nomem(d->ctx, 0, "the pipeline")
                               : wf_err(WEFT_EINVAL, "no path given"));
    st = wf_array_open_file(d->ctx, z.path, &z.file, &z.bytes);
    if (st) {
        wf_array_close(d->ctx, &z.file);
        return wf_ds_fail(d, "npz", st);
    }
    st = open_entries(&z, columns, names, a, &n);
    wf_array_close(d->ctx, &z.file);
    if (!st)
        st = check_listed(columns, n, names);
    if (!st && !n)
        st = wf_err(WEFT_EPARSE, "no arrays in the archive");
    if (!st)
        return wf_ds_arrays(d, "npz", n, names, a);
    while (n)
        wf_array_close(d->ctx, &a[--n]);
    return wf_ds_fail(d, "npz", wf_err_wrap(st, "%s", z.path));
}

/* ---- writing --------------------------------------------------------------------------------- */

struct entry_out {
    uint32_t crc;
    int64_t at, bytes; /* of the local header, and of the content */
    char head[WF_HEAD_MAX];
    int n_head;
};

static char *put_le(char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        *p++ = (char)(v >> 8 * i);
    return p;
}

/* What local header and directory have in common, from "version needed" to the length of the name.
 * Sizes are always in the zip64 field, so that there is only one form. */
static char *put_common(char *p, const struct entry_out *e, size_t n_name)
{
    p = put_le(p, 45, 2);         /* version needed: 4.5, zip64 */
    p = put_le(p, 0x0800, 2);     /* names are UTF-8 */
    p = put_le(p, 0, 2);          /* stored */
    p = put_le(p, 0x00210000, 4); /* 1980-01-01: files do not depend on the clock */
    p = put_le(p, e->crc, 4);
    p = put_le(p, UINT32_MAX, 4);
    p = put_le(p, UINT32_MAX, 4);
    return put_le(p, n_name + 4, 2);
}

static void put_local(struct wf_output *o, struct entry_out *e, const char *name)
{
    char buf[LOCAL_MAX_BYTES], *p = buf;
    size_t n_name = strlen(name);
    int64_t pad;

    e->at = o->bytes;
    memcpy(p, "PK\3\4", 4);
    p = put_common(p + 4, e, n_name);
    /* A second extra field pads, so that the array begins at a multiple of 64: others can map
     * it. */
    pad = (64 - (e->at + 30 + (int64_t)n_name + 4 + 20 + 4) % 64) % 64;
    p = put_le(p, 20 + 4 + (uint64_t)pad, 2);
    wf_output_put(o, buf, p - buf);
    wf_output_put(o, name, (int64_t)n_name);
    wf_output_put(o, ".npy", 4);
    p = put_le(buf, 1, 2);
    p = put_le(p, 16, 2);
    p = put_le(p, (uint64_t)e->bytes, 8);
    p = put_le(p, (uint64_t)e->bytes, 8);
    p = put_le(p, 0xd935, 2); /* the number Android's zipalign uses for the same purpose */
    p = put_le(p, (uint64_t)pad, 2);
    memset(p, 0, (size_t)pad);
    wf_output_put(o, buf, p - buf + pad);
}

static void put_entry(struct wf_output *o, const struct entry_out *e, const char *name)
{
    char buf[LOCAL_MAX_BYTES], *p = buf;

    memcpy(p, "PK\1\2", 4);
    p = put_le(p + 4, 3 << 8 | 45, 2); /* made by: Unix, 4.5 */
    p = put_common(p, e, strlen(name));
    p = put_le(p, 4 + 24, 2);
    p = put_le(p, 0, 2 + 2 + 2);        /* no comment, disk 0, no internal attributes */
    p = put_le(p, 0100644ull << 16, 4); /* a plain file */
    p = put_le(p, UINT32_MAX, 4);
    wf_output_put(o, buf, p - buf);
    wf_output_put(o, name, (int64_t)strlen(name));
    wf_output_put(o, ".npy", 4);
    p = put_le(buf, 1, 2);
    p = put_le(p, 24, 2);
    p = put_le(p, (uint64_t)e->bytes, 8);
    p = put_le(p, (uint64_t)e->bytes, 8);
    p = put_le(p, (uint64_t)e->at, 8);
    wf_output_put(o, buf, p - buf);
}

static void put_end(struct wf_output *o, int64_t n, int64_t at)
{
    char buf[98], *p = buf;
    int64_t end = o->bytes;

    memcpy(p, "PK\6\6", 4);
    p = put_le(p + 4, 44, 8);
    p = put_le(p, 3 << 8 | 45, 2);
    p = put_le(p, 45, 2);
    p = put_le(p, 0, 8);
    p = put_le(p, (uint64_t)n, 8);
    p = put_le(p, (uint64_t)n, 8);
    p = put_le(p, (uint64_t)(end - at), 8);
    p = put_le(p, (uint64_t)at, 8);
    memcpy(p, "PK\6\7", 4);
    p = put_le(p + 4, 0, 4);
    p = put_le(p, (uint64_t)end, 8);
    p = put_le(p, 1, 4);
    memcpy(p, "PK\5\6", 4);
    p = put_le(p + 4, 0, 4);
    p = put_le(p, (uint64_t)n, 2);
    p = put_le(p, (uint64_t)n, 2);
    p = put_le(p, UINT32_MAX, 4);
    p = put_le(p, UINT32_MAX, 4);
    p = put_le(p, 0, 2);
    wf_output_put(o, buf, p - buf);
}

static weft_status plan_entry(const char *name, const weft_tensor *t, struct entry_out *e)
{
    weft_status st = wf_npy_head_write(t, e->head, &e->n_head);
    int64_t bytes = weft_tensor_bytes(t);

    if (!st && bytes < 0)
        st = wf_err(WEFT_ESHAPE, "the shape overflows");
    if (!st && (!name[0] || strlen(name) > 1000 || strpbrk(name, "/\\")))
        st = wf_err(WEFT_EINVAL, "not a valid name for an array");
    if (st)
        return wf_err_wrap(st, "'%.100s'", name);
    e->bytes = e->n_head + bytes;
    e->crc = wf_crc32(wf_crc32(0, e->head, e->n_head), t->data, bytes);
    return WEFT_OK;
}

weft_status weft_npz_write(weft_ctx *ctx, const char *path, int n, const char *const *names,
                           const weft_tensor *t)
{
    struct entry_out *e = wf_alloc_n(ctx, n, sizeof *e);
    struct wf_output o;
    weft_status st = WEFT_OK;
    int64_t at;

    if (n < 1 || n > UINT16_MAX - 1)
        st = wf_err(WEFT_EINVAL, "%s: %d arrays", path, n);
    else if (!e)
        st = wf_err_nomem(ctx, (size_t)n * sizeof *e, path);
    for (int i = 0; i < n && !st; i++)
        st = wf_err_wrap(plan_entry(names[i], &t[i], &e[i]), "%s", path);
    if (st) {
        wf_free(ctx, e);
        return st;
    }
    wf_output_open(&o, ctx, path);
    for (int i = 0; i < n; i++) {
        put_local(&o, &e[i], names[i]);
        wf_output_put(&o, e[i].head, e[i].n_head);
        wf_output_put(&o, t[i].data, weft_tensor_bytes(&t[i]));
    }
    at = o.bytes;
    for (int i = 0; i < n; i++)
        put_entry(&o, &e[i], names[i]);
    put_end(&o, n, at);
    wf_free(ctx, e);
    return wf_output_close(&o);
}
