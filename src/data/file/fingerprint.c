/* fingerprint.c - whether files have changed, without reading all of them.
 *
 * A file of up to 1 MiB is read completely; of a larger one, 64 evenly spaced pieces are read,
 * including the first and the last bytes. With many files there are fewer pieces per file: at most
 * 1024 in total, and for more files than that only names and sizes. Appended, removed and most
 * changed rows are detected; a change between the pieces that keeps the size is not. */
#include <fcntl.h>

#include "data/feature/feature.h"
#include "data/file/files.h"

#define PIECE (16 << 10)
#define N_PIECES 64     /* per file, at most */
#define ALL_PIECES 1024 /* of all files */

static weft_status hash_piece(weft_ctx *ctx, int fd, const char *path, int64_t at, int64_t n,
                              char *room, uint64_t *h)
{
    int64_t got = 0;

    while (got < n) {
        int64_t k = ctx->fs->pread(ctx->fs->arg, fd, room + got, n - got, at + got);

        if (k < 0)
            return wf_file_err(k, path, "cannot read");
        if (k == 0)
            break; /* it became shorter meanwhile: the fingerprint differs, as it should */
        got += k;
    }
    *h = wf_hash64(room, (size_t)got, *h);
    return WEFT_OK;
}

static weft_status hash_file(weft_ctx *ctx, const char *path, int64_t size, int64_t most,
                             char *room, uint64_t *h)
{
    int64_t all = (size + PIECE - 1) / PIECE, n = wf_min_i64(most, all), last = size - PIECE;
    int fd = n ? ctx->fs->open(ctx->fs->arg, path, O_RDONLY, 0) : 0;
    weft_status st = WEFT_OK;

    if (!n)
        return WEFT_OK;
    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    for (int64_t i = 0; i < n && !st; i++) {
        int64_t at = n == all ? i * PIECE
                     : n == 1 ? last
                              : (int64_t)((double)last * ((double)i / (double)(n - 1)));

        st = hash_piece(ctx, fd, path, at, wf_min_i64(PIECE, size - at), room, h);
    }
    ctx->fs->close(ctx->fs->arg, fd);
    return st;
}

/* Name, size and content of one of n files. */
static weft_status add_file(weft_ctx *ctx, const char *path, int64_t n, char *room, uint64_t *h)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct wf_file_info info;
    int rc = ctx->fs->stat(ctx->fs->arg, path, &info);

    if (rc)
        return wf_file_err(rc, path, "cannot stat");
    *h = wf_hash64(name, strlen(name), *h);
    *h = wf_hash_int(info.size, *h);
    return hash_file(ctx, path, info.size, wf_min_i64(N_PIECES, ALL_PIECES / n), room, h);
}

weft_status wf_files_fingerprint(weft_ctx *ctx, const char *patterns, uint64_t *out)
{
    weft_data *d = NULL;
    struct wf_files files;
    struct wf_file_info info;
    char *room = NULL;
    uint64_t h = 0;
    weft_status st;

    *out = 0;
    if (!ctx->fs->stat(ctx->fs->arg, patterns, &info) && info.folder)
        return WEFT_OK;
    st = weft_data_new(ctx, &d);
    if (!st)
        st = wf_files_find(d, patterns, NULL, &files);
    if (!st && !(room = wf_alloc(ctx, PIECE)))
        st = wf_err_nomem(ctx, PIECE, "fingerprint");
    for (int64_t i = 0; !st && i < files.n; i++)
        st = add_file(ctx, files.path[i], files.n, room, &h);
    wf_free(ctx, room);
    weft_data_free(d);
    if (!st)
        *out = h ? h : 1;
    return st;
}

weft_status wf_ds_fingerprint(const struct wf_ds *ds, uint64_t *out)
{
    weft_ctx *ctx = ds->data->ctx;
    char *room;
    uint64_t h = 0;
    int64_t n = 0;
    weft_status st = WEFT_OK;

    *out = 0;
    while (ds->kind->file && ds->kind->file(ds, n))
        n++;
    if (!n)
        return WEFT_OK;
    room = wf_alloc(ctx, PIECE);
    if (!room)
        return wf_err_nomem(ctx, PIECE, "fingerprint");
    for (int64_t i = 0; !st && i < n; i++)
        st = add_file(ctx, ds->kind->file(ds, i), n, room, &h);
    wf_free(ctx, room);
    if (!st)
        *out = h ? h : 1;
    return st;
}
