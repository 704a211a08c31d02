/* index.c - the positions of the records of a TFRecord file, found once and saved in a file.
 *
 * Invariants: an index that is used matches the current file (size, modification time) and is
 * complete (CRC); one that cannot be saved costs time, but is never a failure.
 *
 * The file: "WEFTIDX\n", u32 version, u32 CRC32C of all that follows, i64 size and i64 modification
 * time (ns) of the indexed file, i64 number of records, u32 length of each. Little-endian. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "data/record/record.h"

#define MAGIC "WEFTIDX\n"
#define VERSION 1
#define HEAD_BYTES 40
#define WALK_BYTES (1 << 20)

void wf_record_index_free(weft_ctx *ctx, struct wf_record_index *x)
{
    wf_free(ctx, x->anchor);
    wf_free(ctx, x->len);
    memset(x, 0, sizeof *x);
}

int64_t wf_record_index_at(const struct wf_record_index *x, int64_t i, int64_t *n)
{
    int64_t first = i - i % WF_RECORD_ANCHOR;
    int64_t at = x->anchor[i / WF_RECORD_ANCHOR] + (i - first) * WF_RECORD_FRAME;

    for (int64_t k = first; k < i; k++)
        at += x->len[k];
    *n = x->len[i];
    return at;
}

/* Fills in what follows from the lengths. */
static weft_status anchors(weft_ctx *ctx, struct wf_record_index *x, const char *path)
{
    x->anchor = wf_alloc_n(ctx, x->n / WF_RECORD_ANCHOR + 1, sizeof *x->anchor);
    if (!x->anchor)
        return wf_err_nomem(ctx, (size_t)x->n / 8, path);
    x->bytes = 0;
    for (int64_t i = 0; i < x->n; i++) {
        if (i % WF_RECORD_ANCHOR == 0)
            x->anchor[i / WF_RECORD_ANCHOR] = x->bytes;
        x->bytes += x->len[i] + WF_RECORD_FRAME;
    }
    return WEFT_OK;
}

/* ---- walking through a file ------------------------------------------------------------------ */

struct walk {
    weft_ctx *ctx;
    const char *path;
    int fd;
    char *buf;
    int64_t at, n; /* buf holds n bytes of the file from `at` */
};

/* The 12 bytes at `offset`, or NULL with *st. */
static const char *head_at(struct walk *w, int64_t offset, int64_t size, weft_status *st)
{
    const struct wf_fs *fs = w->ctx->fs;
    int64_t got, want = wf_min_i64(WALK_BYTES, size - offset);

    if (offset >= w->at && offset + WF_RECORD_HEAD <= w->at + w->n)
        return w->buf + (offset - w->at);
    w->at = offset;
    for (w->n = 0; w->n < want; w->n += got) {
        got = fs->pread(fs->arg, w->fd, w->buf + w->n, want - w->n, offset + w->n);
        if (got <= 0) {
            *st =
                got ? wf_file_err(got, w->path, "cannot read")
                    : wf_err(WEFT_EDATA, "%s: became shorter while it was being indexed", w->path);
            return NULL;
        }
    }
    return w->buf;
}

static weft_status bad_record(const struct walk *w, int64_t record, int64_t offset,
                              enum wf_damage *damage, const char *what)
{
    *damage = strstr(what, "truncated") ? WF_DAMAGE_CUT : WF_DAMAGE_LENGTH;
    return wf_err(WEFT_EDATA, "%s: record %lld (byte %lld): %s", w->path, (long long)record,
                  (long long)offset, what);
}

static weft_status step(struct walk *w, struct wf_record_index *x, int64_t *offset, int64_t size,
                        int64_t max_record, enum wf_damage *damage)
{
    weft_status st = WEFT_OK;
    const char *p;
    int64_t n;

    if (size - *offset < WF_RECORD_HEAD)
        return bad_record(w, x->n, *offset, damage, "truncated");
    p = head_at(w, *offset, size, &st);
    if (!p)
        return st;
    if (!wf_record_head(p, &n))
        return bad_record(w, x->n, *offset, damage, "crc of the length does not match");
    if (n < 0 || n > max_record || n > UINT32_MAX)
        return bad_record(w, x->n, *offset, damage, "longer than max_record");
    if (n > size - *offset - WF_RECORD_FRAME)
        return bad_record(w, x->n, *offset, damage, "truncated");
    x->len[x->n++] = (uint32_t)n;
    *offset += n + WF_RECORD_FRAME;
    return WEFT_OK;
}

static weft_status walk_file(struct walk *w, int64_t max_record, enum wf_damage *damage,
                             struct wf_record_index *x)
{
    const struct wf_fs *fs = w->ctx->fs;
    int64_t size = fs->size(fs->arg, w->fd), offset = 0, cap = 0;
    weft_status st = WEFT_OK;

    if (size < 0)
        return wf_file_err(size, w->path, "not a regular file");
    x->file_size = size;
    w->buf = wf_alloc(w->ctx, WALK_BYTES);
    if (!w->buf)
        return wf_err_nomem(w->ctx, WALK_BYTES, w->path);
    while (!st && offset < size) {
        st = wf_grow(w->ctx, &x->len, &cap, x->n + 1, sizeof *x->len);
        if (!st)
            st = step(w, x, &offset, size, max_record, damage);
    }
    wf_free(w->ctx, w->buf);
    return st;
}

weft_status wf_record_walk(weft_ctx *ctx, const char *path, int64_t max_record,
                           enum wf_damage *damage, struct wf_record_index *out)
{
    const struct wf_fs *fs = ctx->fs;
    struct walk w = {.ctx = ctx, .path = path, .fd = fs->open(fs->arg, path, O_RDONLY, 0)};
    struct wf_record_index x = {0};
    enum wf_damage found = WF_DAMAGE_NONE;
    weft_status st;

    if (w.fd < 0)
        return wf_file_err(w.fd, path, "cannot open");
    st = walk_file(&w, max_record, &found, &x);
    fs->close(fs->arg, w.fd);
    if (damage)
        *damage = found;
    if (damage && found != WF_DAMAGE_NONE)
        st = WEFT_OK;
    if (!st)
        st = anchors(ctx, &x, path);
    if (st) {
        wf_record_index_free(ctx, &x);
        return st;
    }
    *out = x;
    return WEFT_OK;
}

/* ---- keeping --------------------------------------------------------------------------------- */

static bool index_path(const char *path, const char *dir, char *out, int n)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    int len = dir ? snprintf(out, (size_t)n, "%s/%s-%016llx.weftidx", dir, base,
                             (unsigned long long)wf_hash64(path, strlen(path), 0))
                  : snprintf(out, (size_t)n, "%s.weftidx", path);

    return len > 0 && len < n;
}

static void put32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (8 * i));
}

static void put64(char *p, int64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)((uint64_t)v >> 32));
}

/* Whether p[0..n) is an index of this file; if so, its lengths are in x. */
static bool read_index(weft_ctx *ctx, const char *p, int64_t n, const struct wf_file_info *info,
                       struct wf_record_index *x)
{
    int64_t count;

    if (n < HEAD_BYTES || memcmp(p, MAGIC, 8) || wf_le32(p + 8) != VERSION ||
        wf_le32(p + 12) != wf_crc32c(0, p + 16, n - 16) || (int64_t)wf_le64(p + 16) != info->size ||
        (int64_t)wf_le64(p + 24) != info->mtime_ns)
        return false;
    count = (int64_t)wf_le64(p + 32);
    if (count < 0 || count != (n - HEAD_BYTES) / 4 || (n - HEAD_BYTES) % 4)
        return false;
    x->len = wf_alloc_n(ctx, count + 1, sizeof *x->len);
    if (!x->len)
        return false;
    x->n = count;
    for (int64_t i = 0; i < count; i++)
        x->len[i] = wf_le32(p + HEAD_BYTES + 4 * i);
    x->file_size = info->size;
    return true;
}

static bool load(weft_ctx *ctx, const char *kept, const char *path, struct wf_file_info *info,
                 struct wf_record_index *x)
{
    char *p = NULL;
    int64_t n;
    bool ok;

    if (ctx->fs->stat(ctx->fs->arg, path, info) || wf_file_read(ctx, kept, INT64_MAX / 2, &p, &n))
        return false;
    ok = read_index(ctx, p, n, info, x) && !anchors(ctx, x, path) && x->bytes == info->size;
    wf_free(ctx, p);
    if (!ok)
        wf_record_index_free(ctx, x);
    return ok;
}

static void keep(weft_ctx *ctx, const char *kept, const struct wf_file_info *info,
                 const struct wf_record_index *x)
{
    int64_t n = HEAD_BYTES + 4 * x->n;
    char *p = wf_alloc(ctx, (size_t)n);

    if (!p)
        return;
    memcpy(p, MAGIC, 8);
    put32(p + 8, VERSION);
    put64(p + 16, info->size);
    put64(p + 24, info->mtime_ns);
    put64(p + 32, x->n);
    for (int64_t i = 0; i < x->n; i++)
        put32(p + HEAD_BYTES + 4 * i, x->len[i]);
    put32(p + 12, wf_crc32c(0, p + 16, n - 16));
    if (wf_file_write(ctx, kept, p, n))
        wf_log(ctx, WEFT_LOG_INFO, "the index is not saved: %s", weft_error());
    wf_free(ctx, p);
}

weft_status wf_record_index_get(weft_ctx *ctx, const char *path, const char *dir,
                                int64_t max_record, struct wf_record_index *out)
{
    struct wf_record_index x = {0};
    struct wf_file_info before = {0}, after = {0};
    char kept[4096];
    bool can_keep = index_path(path, dir, kept, sizeof kept);
    weft_status st;

    if (can_keep && load(ctx, kept, path, &before, &x)) {
        *out = x;
        return WEFT_OK;
    }
    st = wf_record_walk(ctx, path, max_record, NULL, &x);
    if (st)
        return st;
    /* A file that changed meanwhile is indexed again next time. */
    if (can_keep && !ctx->fs->stat(ctx->fs->arg, path, &after) && after.size == before.size &&
        after.mtime_ns == before.mtime_ns && after.size == x.file_size)
        keep(ctx, kept, &after, &x);
    *out = x;
    return WEFT_OK;
}
