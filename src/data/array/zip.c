/* zip.c - zip archives in memory or in a file: the central directory, stored or deflated entries,
 * zip64. Every offset and length is checked against the archive before it is used; contents against
 * their CRC. */
#include "data/array/array.h"

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

/* At best, deflate packs 258 bytes into two bits. */
#define DEFLATE_BEST 1032

static uint64_t le(const char *p, int n)
{
    uint64_t v = 0;

    for (int i = 0; i < n; i++)
        v |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return v;
}

uint32_t wf_crc32(uint32_t crc, const void *p, int64_t n)
{
#ifdef WF_HAVE_ZLIB
    return (uint32_t)crc32_z(crc, p, (size_t)n);
#else
    const unsigned char *u = p;

    crc = ~crc;
    for (int64_t i = 0; i < n; i++) {
        crc ^= u[i];
        for (int b = 0; b < 8; b++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
#endif
}

/* ---- the directory --------------------------------------------------------------------------- */

#define END_BYTES 22
#define LOCATOR_BYTES 20
#define END64_BYTES 56
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define TAIL_BYTES (65535 + END_BYTES + LOCATOR_BYTES) /* where the end record may be */
#define DIRECTORY_MAX (64 << 20)
#define PIECE_BYTES (256 << 10) /* of an entry, read at a time */

/* n bytes at an offset of the archive; the caller has checked that they are there. */
static weft_status read_at(const struct wf_zip *z, uint64_t at, void *to, int64_t n)
{
    if (!z->p)
        return wf_array_read_at(z->ctx, z->file, (int64_t)at, to, n);
    memcpy(to, z->p + at, (size_t)n);
    return WEFT_OK;
}

/* Where the end record is among the last bytes of the archive, or -1. */
static int64_t find_end(const char *p, int64_t n)
{
    for (int64_t i = n - END_BYTES; i >= 0 && i >= n - END_BYTES - 65535; i--)
        if (!memcmp(p + i, "PK\5\6", 4) && i + END_BYTES + (int64_t)le(p + i + 20, 2) <= n)
            return i;
    return -1;
}

struct directory {
    uint64_t at, bytes, count, limit;
};

/* The contents of the end record; `tail` has the last bytes of the archive, from `first` on. */
static weft_status read_end(const struct wf_zip *z, const char *tail, int64_t n_tail,
                            struct directory *d)
{
    int64_t first = z->n - n_tail, i = find_end(tail, n_tail);
    const char *end = tail + i;
    char end64[END64_BYTES];
    uint64_t at;
    weft_status st;

    if (i < 0)
        return wf_err(WEFT_EPARSE, "not a zip archive, or its end is missing");
    *d = (struct directory){le(end + 16, 4), le(end + 12, 4), le(end + 10, 2),
                            (uint64_t)(first + i)};
    if (i < LOCATOR_BYTES || memcmp(end - LOCATOR_BYTES, "PK\6\7", 4))
        return WEFT_OK;
    at = le(end - LOCATOR_BYTES + 8, 8);
    if (at > d->limit || d->limit - at < END64_BYTES)
        return wf_err(WEFT_EPARSE, "the zip64 end of the archive is not where it should be");
    st = read_at(z, at, end64, END64_BYTES);
    if (st)
        return st;
    if (memcmp(end64, "PK\6\6", 4))
        return wf_err(WEFT_EPARSE, "the zip64 end of the archive is not where it should be");
    *d = (struct directory){le(end64 + 48, 8), le(end64 + 40, 8), le(end64 + 32, 8), at};
    return WEFT_OK;
}

static weft_status read_directory(struct wf_zip *z, const struct directory *d)
{
    weft_status st = WEFT_OK;

    if (d->at > d->limit || d->bytes > d->limit - d->at || d->count > d->bytes / ENTRY_BYTES)
        return wf_err(WEFT_EPARSE, "the zip directory is outside the archive");
    z->left = (int64_t)d->bytes;
    z->n_left = (int64_t)d->count;
    if (z->p) {
        z->at = z->p + d->at;
        return WEFT_OK;
    }
    if (d->bytes > DIRECTORY_MAX)
        return wf_err(WEFT_ELIMIT, "the zip directory has %lld bytes; at most %d are read",
                      (long long)d->bytes, DIRECTORY_MAX);
    z->owned = wf_alloc(z->ctx, (size_t)d->bytes + 1);
    st = z->owned ? read_at(z, d->at, z->owned, (int64_t)d->bytes)
                  : wf_err_nomem(z->ctx, (size_t)d->bytes, "a zip directory");
    z->at = z->owned;
    return st;
}

static weft_status open_archive(struct wf_zip *z)
{
    int64_t n_tail = wf_min_i64(z->n, TAIL_BYTES);
    char *tail = wf_alloc(z->ctx, (size_t)n_tail + 1);
    struct directory d = {0};
    weft_status st = tail ? read_at(z, (uint64_t)(z->n - n_tail), tail, n_tail)
                          : wf_err_nomem(z->ctx, (size_t)n_tail, "the end of a zip archive");

    if (!st)
        st = read_end(z, tail, n_tail, &d);
    wf_free(z->ctx, tail);
    if (!st)
        st = read_directory(z, &d);
    if (st)
        wf_zip_close(z);
    return st;
}

weft_status wf_zip_open(struct wf_zip *z, weft_ctx *ctx, const char *p, int64_t n)
{
    *z = (struct wf_zip){.ctx = ctx, .p = p ? p : "", .n = n};
    return open_archive(z);
}

weft_status wf_zip_open_file(struct wf_zip *z, weft_ctx *ctx, const struct wf_array *file,
                             int64_t n)
{
    *z = (struct wf_zip){.ctx = ctx, .file = file, .n = n};
    return open_archive(z);
}

void wf_zip_close(struct wf_zip *z)
{
    if (z->ctx)
        wf_free(z->ctx, z->owned);
    *z = (struct wf_zip){0};
}

/* Sizes that do not fit in 32 bits are in an extra field, in this order. */
static bool zip64_sizes(const char *x, int64_t n, uint64_t *bytes, uint64_t *packed, uint64_t *at)
{
    uint64_t *field[] = {bytes, packed, at};

    while (n >= 4) {
        int64_t len = (int64_t)le(x + 2, 2);

        if (len > n - 4)
            return false;
        if (le(x, 2) == 1) {
            const char *v = x + 4;

            for (int i = 0; i < 3; i++) {
                if (*field[i] != UINT32_MAX)
                    continue;
                if (len < 8)
                    return false;
                *field[i] = le(v, 8);
                v += 8;
                len -= 8;
            }
            return true;
        }
        x += 4 + len;
        n -= 4 + len;
    }
    return *bytes != UINT32_MAX && *packed != UINT32_MAX && *at != UINT32_MAX;
}

/* The data after the entry's local header. */
static weft_status find_data(const struct wf_zip *z, uint64_t at, struct wf_zip_entry *e)
{
    uint64_t n = (uint64_t)z->n, skip;
    char local[LOCAL_BYTES] = {0};
    bool inside = at <= n && n - at >= LOCAL_BYTES;
    weft_status st = inside ? read_at(z, at, local, LOCAL_BYTES) : WEFT_OK;

    if (st)
        return st;
    if (memcmp(local, "PK\3\4", 4))
        return wf_err(WEFT_EPARSE, "'%.*s': no local header where the zip directory points",
                      (int)e->n_name, e->name);
    skip = LOCAL_BYTES + le(local + 26, 2) + le(local + 28, 2);
    if (skip > n - at || (uint64_t)e->packed > n - at - skip)
        return wf_err(WEFT_EPARSE, "'%.*s': %lld bytes do not fit in the archive", (int)e->n_name,
                      e->name, (long long)e->packed);
    e->at = (int64_t)(at + skip);
    return WEFT_OK;
}

weft_status wf_zip_next(struct wf_zip *z, struct wf_zip_entry *e, bool *more)
{
    const char *p = z->at;
    uint64_t bytes, packed, at, method;
    int64_t n_name, n_extra, all;

    *more = z->n_left > 0;
    if (!*more)
        return WEFT_OK;
    if (z->left < ENTRY_BYTES || memcmp(p, "PK\1\2", 4))
        return wf_err(WEFT_EPARSE, "the zip directory is malformed");
    method = le(p + 10, 2);
    packed = le(p + 20, 4);
    bytes = le(p + 24, 4);
    n_name = (int64_t)le(p + 28, 2);
    n_extra = (int64_t)le(p + 30, 2);
    at = le(p + 42, 4);
    all = ENTRY_BYTES + n_name + n_extra + (int64_t)le(p + 32, 2);
    if (all > z->left || !zip64_sizes(p + ENTRY_BYTES + n_name, n_extra, &bytes, &packed, &at) ||
        bytes > INT64_MAX || packed > INT64_MAX)
        return wf_err(WEFT_EPARSE, "the zip directory is malformed");
    *e = (struct wf_zip_entry){.zip = z,
                               .name = p + ENTRY_BYTES,
                               .n_name = n_name,
                               .deflated = method == 8,
                               .crc = (uint32_t)le(p + 16, 4),
                               .packed = (int64_t)packed,
                               .bytes = (int64_t)bytes};
    z->at += all;
    z->left -= all;
    z->n_left--;
    if (le(p + 8, 2) & 1)
        return wf_err(WEFT_ENOSUP, "'%.*s' is encrypted", (int)n_name, e->name);
    if (method && method != 8)
        return wf_err(
            WEFT_ENOSUP,
            "'%.*s': compression method %d: only stored and deflated entries are supported",
            (int)n_name, e->name, (int)method);
    if (!method && bytes != packed)
        return wf_err(WEFT_EPARSE, "'%.*s' is stored, but its two sizes differ", (int)n_name,
                      e->name);
    return find_data(z, at, e);
}

/* ---- contents -------------------------------------------------------------------------------- */

/* The packed bytes from `at` on, a piece at a time: in place if in memory, otherwise in buf. */
static weft_status next_piece(const struct wf_zip_entry *e, int64_t at, char *buf, const char **p,
                              int64_t *n)
{
    *n = wf_min_i64(e->packed - at, e->zip->p ? 1 << 30 : PIECE_BYTES);
    *p = e->zip->p ? e->zip->p + e->at + at : buf;
    return e->zip->p ? WEFT_OK : read_at(e->zip, (uint64_t)(e->at + at), buf, *n);
}

#ifdef WF_HAVE_ZLIB
static weft_status inflate_all(z_stream *z, const struct wf_zip_entry *e, char *buf, char *to)
{
    int64_t in = 0, out = 0, n, room;
    const char *p;
    int rc = Z_OK;

    while (rc == Z_OK) {
        if (!z->avail_in) {
            weft_status st = next_piece(e, in, buf, &p, &n);

            if (st)
                return st;
            /* zlib declares its input as non-const, but does not write to it. */
            z->next_in = (unsigned char *)(uintptr_t)p;
            z->avail_in = (unsigned)n;
            in += n;
        }
        room = wf_min_i64(e->bytes - out, 1 << 30); /* zlib counts in 32 bits */
        z->next_out = (unsigned char *)to + out;
        z->avail_out = (unsigned)room;
        rc = inflate(z, Z_NO_FLUSH);
        out += room - z->avail_out;
    }
    if (rc == Z_MEM_ERROR)
        return wf_err(WEFT_ENOMEM, "inflate: out of memory");
    if (rc != Z_STREAM_END || out != e->bytes)
        return wf_err(WEFT_EPARSE, "the compressed data is corrupt or has a different length");
    return WEFT_OK;
}

static weft_status inflate_entry(const struct wf_zip_entry *e, char **owned)
{
    weft_ctx *ctx = e->zip->ctx;
    z_stream z = {0};
    weft_status st;
    char *to, *buf;

    if (e->bytes / DEFLATE_BEST > e->packed + 16)
        return wf_err(WEFT_ELIMIT,
                      "%lld bytes cannot unpack to %lld: refused as a decompression bomb",
                      (long long)e->packed, (long long)e->bytes);
    to = wf_alloc(ctx, (size_t)e->bytes + 1);
    buf = e->zip->p ? NULL : wf_alloc(ctx, PIECE_BYTES);
    if (!to || (!e->zip->p && !buf))
        st = wf_err_nomem(ctx, (size_t)e->bytes, "unpacking");
    else
        st =
            inflateInit2(&z, -15) == Z_OK ? WEFT_OK : wf_err(WEFT_ENOMEM, "inflate: out of memory");
    if (!st) {
        st = inflate_all(&z, e, buf, to);
        inflateEnd(&z);
    }
    wf_free(ctx, buf);
    if (st)
        wf_free(ctx, to);
    else
        *owned = to;
    return st;
}
#else
static weft_status inflate_entry(const struct wf_zip_entry *e, char **owned)
{
    (void)e, (void)owned;
    return wf_err(WEFT_ENOSUP, "deflated, but this build has no zlib (Debian: zlib1g-dev)");
}
#endif

static weft_status other_crc(void)
{
    return wf_err(WEFT_EPARSE, "the CRC of the contents does not match");
}

/* A stored entry of a file, in memory. */
static weft_status copy_entry(const struct wf_zip_entry *e, char **owned)
{
    char *to = wf_alloc(e->zip->ctx, (size_t)e->bytes + 1);
    weft_status st = to ? read_at(e->zip, (uint64_t)e->at, to, e->bytes)
                        : wf_err_nomem(e->zip->ctx, (size_t)e->bytes, "an entry");

    if (st)
        wf_free(e->zip->ctx, to);
    else
        *owned = to;
    return st;
}

weft_status wf_zip_read(const struct wf_zip_entry *e, const char **data, char **owned)
{
    char *copy = NULL;
    const char *p;
    weft_status st = WEFT_OK;

    if (e->deflated)
        st = inflate_entry(e, &copy);
    else if (!e->zip->p)
        st = copy_entry(e, &copy);
    if (st)
        return wf_err_wrap(st, "'%.*s'", (int)e->n_name, e->name);
    p = copy ? copy : e->zip->p + e->at;
    if (wf_crc32(0, p, e->bytes) != e->crc) {
        wf_free(e->zip->ctx, copy);
        return wf_err_wrap(other_crc(), "'%.*s'", (int)e->n_name, e->name);
    }
    *data = p;
    *owned = copy;
    return WEFT_OK;
}

weft_status wf_zip_check(const struct wf_zip_entry *e, char *head, int64_t n_head)
{
    weft_ctx *ctx = e->zip->ctx;
    char *buf = wf_alloc(ctx, PIECE_BYTES);
    weft_status st = buf ? WEFT_OK : wf_err_nomem(ctx, PIECE_BYTES, "an entry");
    uint32_t crc = 0;
    int64_t n = 0;
    const char *p;

    for (int64_t at = 0; at < e->bytes && !st; at += n) {
        st = next_piece(e, at, buf, &p, &n);
        if (st)
            break;
        crc = wf_crc32(crc, p, n);
        if (at == 0)
            memcpy(head, p, (size_t)wf_min_i64(n, n_head));
    }
    wf_free(ctx, buf);
    if (!st && crc != e->crc)
        st = other_crc();
    return wf_err_wrap(st, "'%.*s'", (int)e->n_name, e->name);
}
