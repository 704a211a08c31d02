/* csv_index_file.c - row indexes, saved for the next process.
 *
 * Invariants: an index that is used matches the current file (size, modification time), was made by
 * the same rules (delimiter, quote, comment, header) and is complete (CRC); one that cannot be
 * saved costs time, but is never a failure.
 *
 * The file: "WEFTROWS", u32 version, u32 CRC32C of all that follows; i64 size and i64
 * modification time (ns) of the table; delimiter, quote, comment and whether there is a header,
 * one byte each, and four zeros; i64 rows; then an i64 offset for every 16th row and for the end.
 * Little-endian. */
#include <stdio.h>

#include "data/table/csv.h"
#include "base/number.h"

#define MAGIC "WEFTROWS"
#define VERSION 1
#define HEAD_BYTES 48
#define WORTH_BYTES (16 << 20) /* a smaller file is scanned again quickly */

static bool path_of(const struct wf_csv_source *src, const char *path, char *out, int n)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    int len = src->index_dir ? snprintf(out, (size_t)n, "%s/%s-%016llx.weftrows", src->index_dir,
                                        base, (unsigned long long)wf_hash64(path, strlen(path), 0))
                             : snprintf(out, (size_t)n, "%s.weftrows", path);

    return len > 0 && len < n;
}

static void put(char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (char)(v >> (8 * i));
}

/* What must match for an index to be used, after the CRC. */
static void put_key(const struct wf_csv_source *src, const struct wf_file_info *info, char *p)
{
    const struct wf_row_format *f = &src->rows.format;

    put(p, (uint64_t)info->size, 8);
    put(p + 8, (uint64_t)info->mtime_ns, 8);
    p[16] = f->delimiter;
    p[17] = f->quote;
    p[18] = f->comment;
    p[19] = (char)src->rows.has_header;
    memset(p + 20, 0, 4);
}

static int64_t offsets_for(int64_t n_rows)
{
    return (n_rows + WF_CSV_STEP - 1) / WF_CSV_STEP + 1;
}

static bool read_list(const struct wf_csv_source *src, weft_ctx *ctx, const char *p, int64_t n,
                      const struct wf_file_info *info, struct wf_csv_rows *out)
{
    char key[24];
    int64_t n_rows, n_offsets, last = 0;

    put_key(src, info, key);
    if (n < HEAD_BYTES || memcmp(p, MAGIC, 8) != 0 || (uint32_t)wf_load_le64(p + 8) != VERSION ||
        wf_load_le64(p + 8) >> 32 != wf_crc32c(0, p + 16, n - 16) || memcmp(p + 16, key, 24) != 0)
        return false;
    n_rows = (int64_t)wf_load_le64(p + 40);
    n_offsets = (n - HEAD_BYTES) / 8;
    if (n_rows < 0 || n_rows > info->size || n_offsets != offsets_for(n_rows))
        return false;
    out->offset = wf_alloc_n(ctx, n_offsets, sizeof *out->offset);
    if (!out->offset)
        return false;
    for (int64_t i = 0; i < n_offsets; i++) {
        out->offset[i] = (int64_t)wf_load_le64(p + HEAD_BYTES + 8 * i);
        if (out->offset[i] < last || out->offset[i] > info->size)
            return false;
        last = out->offset[i];
    }
    out->n_rows = n_rows;
    out->n_offsets = out->cap = n_offsets;
    return true;
}

bool wf_csv_kept(const struct wf_csv_source *src, weft_ctx *ctx, const char *path,
                 struct wf_file_info *info, struct wf_csv_rows *out)
{
    char kept[4096];
    char *p = NULL;
    int64_t n;
    bool ok;

    memset(info, 0, sizeof *info);
    if (ctx->fs->stat(ctx->fs->arg, path, info) || !info->plain || info->size < WORTH_BYTES ||
        !path_of(src, path, kept, sizeof kept) || wf_file_read(ctx, kept, INT64_MAX / 2, &p, &n))
        return false;
    ok = read_list(src, ctx, p, n, info, out);
    wf_free(ctx, p);
    if (!ok) {
        wf_free(ctx, out->offset);
        out->offset = NULL;
    }
    return ok;
}

void wf_csv_keep(const struct wf_csv_source *src, weft_ctx *ctx, const char *path,
                 const struct wf_file_info *info, const struct wf_csv_rows *rows)
{
    int64_t n = HEAD_BYTES + 8 * rows->n_offsets;
    struct wf_file_info now;
    char kept[4096];
    char *p;

    if (info->size < WORTH_BYTES || !path_of(src, path, kept, sizeof kept) ||
        ctx->fs->stat(ctx->fs->arg, path, &now) || now.size != info->size ||
        now.mtime_ns != info->mtime_ns || rows->n_offsets != offsets_for(rows->n_rows))
        return;
    p = wf_alloc(ctx, (size_t)n);
    if (!p)
        return;
    memcpy(p, MAGIC, 8);
    put(p + 8, VERSION, 4);
    put_key(src, info, p + 16);
    put(p + 40, (uint64_t)rows->n_rows, 8);
    for (int64_t i = 0; i < rows->n_offsets; i++)
        put(p + HEAD_BYTES + 8 * i, (uint64_t)rows->offset[i], 8);
    put(p + 12, wf_crc32c(0, p + 16, n - 16), 4);
    if (wf_file_write(ctx, kept, p, n))
        wf_log(ctx, WEFT_LOG_INFO, "the row index is not saved: %s", weft_error());
    wf_free(ctx, p);
}
