/* zip.c - zip archives in memory: the central directory, entries that are stored or deflated, zip64.
 * Every offset and length is checked against the archive before it is used; contents against their CRC. */
#include "data/array.h"

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif

/* Deflate packs at best 258 bytes into two bits. */
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

static const char *find_end(const char *p, int64_t n)
{
    int64_t last = n - END_BYTES, first = wf_max_i64(0, last - 65535);

    for (int64_t i = last; i >= first; i--)
        if (!memcmp(p + i, "PK\5\6", 4) && i + END_BYTES + (int64_t)le(p + i + 20, 2) <= n)
            return p + i;
    return NULL;
}

weft_status wf_zip_open(struct wf_zip *z, const char *p, int64_t n)
{
    const char *end = n >= END_BYTES ? find_end(p, n) : NULL;
    uint64_t at, bytes, count, limit;

    if (!end)
        return wf_err(WEFT_EPARSE, "no zip archive, or its end is missing");
    count = le(end + 10, 2);
    bytes = le(end + 12, 4);
    at = le(end + 16, 4);
    limit = (uint64_t)(end - p);
    if (end - p >= LOCATOR_BYTES && !memcmp(end - LOCATOR_BYTES, "PK\6\7", 4)) {
        uint64_t end64 = le(end - LOCATOR_BYTES + 8, 8);

        if (end64 > limit || limit - end64 < END64_BYTES || memcmp(p + end64, "PK\6\6", 4))
            return wf_err(WEFT_EPARSE, "the zip64 end of the archive is not where it should be");
        count = le(p + end64 + 32, 8);
        bytes = le(p + end64 + 40, 8);
        at = le(p + end64 + 48, 8);
        limit = end64;
    }
    if (at > limit || bytes > limit - at || count > bytes / ENTRY_BYTES)
        return wf_err(WEFT_EPARSE, "the zip directory lies outside the archive");
    *z = (struct wf_zip){
        .p = p, .at = p + at, .n = n, .left = (int64_t)bytes, .n_left = (int64_t)count};
    return WEFT_OK;
}

/* Sizes that did not fit in 32 bits stand in an extra field, in this order. */
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

/* The data behind the entry's local header. */
static weft_status find_data(const struct wf_zip *z, uint64_t at, struct wf_zip_entry *e)
{
    uint64_t n = (uint64_t)z->n, skip;

    if (at > n || n - at < LOCAL_BYTES || memcmp(z->p + at, "PK\3\4", 4))
        return wf_err(WEFT_EPARSE, "'%.*s': no local header where the zip directory says",
                      (int)e->n_name, e->name);
    skip = LOCAL_BYTES + le(z->p + at + 26, 2) + le(z->p + at + 28, 2);
    if (skip > n - at || (uint64_t)e->packed > n - at - skip)
        return wf_err(WEFT_EPARSE, "'%.*s': %lld bytes do not fit in the archive", (int)e->n_name,
                      e->name, (long long)e->packed);
    e->data = z->p + at + skip;
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
    *e = (struct wf_zip_entry){.name = p + ENTRY_BYTES,
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
        return wf_err(WEFT_ENOSUP, "'%.*s': compression method %d: stored and deflated are read",
                      (int)n_name, e->name, (int)method);
    if (!method && bytes != packed)
        return wf_err(WEFT_EPARSE, "'%.*s' is stored, but its two sizes differ", (int)n_name,
                      e->name);
    return find_data(z, at, e);
}

/* ---- contents -------------------------------------------------------------------------------- */

#ifdef WF_HAVE_ZLIB
static weft_status inflate_all(z_stream *z, const struct wf_zip_entry *e, char *to)
{
    const int64_t piece = 1 << 30; /* zlib counts in 32 bits */
    int64_t in = 0, out = 0;
    int rc = Z_OK;

    while (rc == Z_OK) {
        int64_t give = wf_min_i64(e->packed - in, piece), room = wf_min_i64(e->bytes - out, piece);

        /* zlib declares its input as not const; it does not write there. */
        z->next_in = (unsigned char *)(uintptr_t)(e->data + in);
        z->avail_in = (unsigned)give;
        z->next_out = (unsigned char *)to + out;
        z->avail_out = (unsigned)room;
        rc = inflate(z, Z_NO_FLUSH);
        in += give - z->avail_in;
        out += room - z->avail_out;
    }
    if (rc == Z_MEM_ERROR)
        return wf_err(WEFT_ENOMEM, "inflate: out of memory");
    if (rc != Z_STREAM_END || out != e->bytes)
        return wf_err(WEFT_EPARSE, "the compressed data is corrupt or of another length");
    return WEFT_OK;
}

static weft_status inflate_entry(weft_ctx *ctx, const struct wf_zip_entry *e, char **owned)
{
    z_stream z = {0};
    weft_status st;
    char *to;

    if (e->bytes / DEFLATE_BEST > e->packed + 16)
        return wf_err(WEFT_ELIMIT, "%lld bytes cannot unpack to %lld: refused as a bomb",
                      (long long)e->packed, (long long)e->bytes);
    to = wf_alloc(ctx, (size_t)e->bytes + 1);
    if (!to)
        return wf_err_nomem(ctx, (size_t)e->bytes, "unpacking");
    if (inflateInit2(&z, -15) != Z_OK) {
        wf_free(ctx, to);
        return wf_err(WEFT_ENOMEM, "inflate: out of memory");
    }
    st = inflate_all(&z, e, to);
    inflateEnd(&z);
    if (st)
        wf_free(ctx, to);
    else
        *owned = to;
    return st;
}
#else
static weft_status inflate_entry(weft_ctx *ctx, const struct wf_zip_entry *e, char **owned)
{
    (void)ctx, (void)e, (void)owned;
    return wf_err(WEFT_ENOSUP, "deflated, and built without zlib (Debian: zlib1g-dev)");
}
#endif

weft_status wf_zip_read(weft_ctx *ctx, const struct wf_zip_entry *e, const char **data,
                        char **owned)
{
    char *unpacked = NULL;
    const char *p = e->data;
    weft_status st = WEFT_OK;

    if (e->deflated) {
        st = inflate_entry(ctx, e, &unpacked);
        p = unpacked;
    }
    if (!st && wf_crc32(0, p, e->bytes) != e->crc) {
        wf_free(ctx, unpacked);
        st = wf_err(WEFT_EPARSE, "the CRC of the contents does not match");
    }
    if (st)
        return wf_err_wrap(st, "'%.*s'", (int)e->n_name, e->name);
    *data = p;
    *owned = unpacked;
    return WEFT_OK;
}
