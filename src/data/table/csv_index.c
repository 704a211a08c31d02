/* csv_index.c - rows of CSV files by number.
 *
 * One pass over the files records where every 16th row begins; a row is then found by reading the
 * piece of text that contains it. Files must be uncompressed and must not change while the source
 * is in use: if one became shorter, that is an error. */
#include <fcntl.h>

#include "data/table/csv.h"

#define KEEP_OPEN 256 /* with more files, each read opens its file again */
#define READ_BYTES (1 << 20)

struct wf_csv_index {
    int64_t n_files;
    struct wf_csv_rows *file;
};

/* ---- finding all rows ------------------------------------------------------------------------ */

/* The text of a file from `start` on, read as it is needed. */
struct walk {
    weft_ctx *ctx;
    struct wf_unpack *u;
    char *buf;
    int64_t cap, n;     /* bytes in buf */
    int64_t pos, start; /* of the current range in buf; of buf[0] in the file */
    bool ended;
    struct wf_scan scan;
};

/* Reads more text after buf[n), after moving the range to the front. */
static weft_status walk_more(struct walk *w, int64_t max_row_bytes)
{
    int64_t got;
    weft_status st;

    if (w->pos) {
        memmove(w->buf, w->buf + w->pos, (size_t)(w->n - w->pos));
        w->n -= w->pos;
        w->start += w->pos;
        w->pos = 0;
    }
    if (w->n > max_row_bytes)
        return wf_err(WEFT_ELIMIT, "%s: byte %lld: the row is too long%s", w->u->path,
                      (long long)w->start, w->scan.quoted ? ": is a quote not closed?" : "");
    st = wf_grow(w->ctx, &w->buf, &w->cap, w->n + READ_BYTES, 1);
    if (st)
        return st;
    st = wf_unpack_read(w->u, w->buf + w->n, w->cap - w->n, &got);
    if (st)
        return st;
    w->ended = got < w->cap - w->n;
    w->n += got;
    return WEFT_OK;
}

/* Scans up to `want` rows of the range at pos; they are then in w->scan. */
static weft_status walk_rows(struct walk *w, int64_t want, int64_t max_row_bytes)
{
    weft_status st = WEFT_OK;

    wf_scan_begin(&w->scan);
    while (!st && !wf_scan_rows(&w->scan, w->buf + w->pos, w->n - w->pos, want) && !w->ended)
        st = walk_more(w, max_row_bytes);
    return st;
}

static weft_status skip_header(struct walk *w, const struct wf_row_source *src)
{
    const char *p, *end;
    int64_t line;
    weft_status st = walk_more(w, src->max_row_bytes);

    if (st)
        return st;
    w->pos = wf_rows_bom(w->buf, w->n);
    if (!src->has_header || w->n == w->pos)
        return WEFT_OK;
    st = walk_rows(w, 1, src->max_row_bytes);
    if (st)
        return st;
    p = w->buf + w->pos;
    end = w->scan.n_rows ? p + w->scan.end : w->buf + w->n;
    while (p < end && wf_scan_no_row(&src->format, p, end))
        p = wf_scan_row_end(&src->format, p, end);
    line = wf_rows_chomp(p, end - p);
    if (line != src->header.n || (line && memcmp(p, src->header.data, (size_t)line) != 0))
        return wf_err(WEFT_EDATA, "%s: the header differs from that of %s", w->u->path,
                      src->files.path[0]);
    w->pos = end - w->buf;
    return WEFT_OK;
}

static weft_status note(struct walk *w, struct wf_csv_rows *f)
{
    weft_status st = wf_grow(w->ctx, &f->offset, &f->cap, f->n_offsets + 1, sizeof *f->offset);

    if (!st)
        f->offset[f->n_offsets++] = w->start + w->pos;
    return st;
}

static weft_status walk_file(struct walk *w, const struct wf_row_source *src, struct wf_csv_rows *f)
{
    weft_status st = skip_header(w, src);

    while (!st) {
        int64_t n, bytes;

        st = walk_rows(w, WF_CSV_STEP, src->max_row_bytes);
        if (st)
            break;
        n = w->scan.n_rows;
        bytes = w->scan.end;
        if (n < WF_CSV_STEP && wf_scan_rest(&w->scan, w->buf + w->pos, w->n - w->pos)) {
            n++;
            bytes = w->n - w->pos;
        }
        if (n)
            st = note(w, f);
        f->n_rows += n;
        w->pos += bytes;
        if (n < WF_CSV_STEP)
            break;
    }
    return st ? st : note(w, f);
}

static weft_status index_file(struct wf_ds *ds, int64_t i, struct wf_csv_rows *f)
{
    struct wf_csv_source *src = ds->param;
    const struct wf_files *files = &src->rows.files;
    weft_ctx *ctx = ds->data->ctx;
    struct walk w = {.ctx = ctx};
    struct wf_file_info info;
    weft_status st;

    if (wf_csv_kept(src, ctx, files->path[i], &info, f))
        return WEFT_OK;
    st = wf_unpack_open(ctx, files->path[i], &files->opts, &w.u);
    if (st)
        return st;
    wf_scan_init(&w.scan, &src->rows.format, ctx->simd);
    if (w.u->how != WEFT_COMPRESSION_NONE)
        st =
            wf_err(WEFT_ENOSUP, "%s: an index needs uncompressed files, but this one is compressed",
                   files->path[i]);
    else
        st = walk_file(&w, &src->rows, f);
    wf_unpack_close(w.u);
    wf_free(ctx, w.buf);
    if (!st)
        wf_csv_keep(src, ctx, files->path[i], &info, f);
    return st;
}

weft_status wf_csv_index_new(struct wf_ds *ds, struct wf_csv_index **out, int64_t *n_rows)
{
    struct wf_csv_source *src = ds->param;
    weft_ctx *ctx = ds->data->ctx;
    const struct wf_fs *fs = ctx->fs;
    struct wf_csv_index *x = wf_alloc(ctx, sizeof *x);
    weft_status st = x ? WEFT_OK : wf_err_nomem(ctx, sizeof *x, "an index");
    int64_t n = 0;

    if (st)
        return st;
    x->file = wf_alloc_n(ctx, src->rows.files.n, sizeof *x->file);
    if (!x->file) {
        wf_free(ctx, x);
        return wf_err_nomem(ctx, (size_t)src->rows.files.n * sizeof *x->file, "an index");
    }
    for (; x->n_files < src->rows.files.n && !st; x->n_files++) {
        struct wf_csv_rows *f = &x->file[x->n_files];

        f->first = n;
        f->fd = -1;
        st = index_file(ds, x->n_files, f);
        n += f->n_rows;
        if (!st && x->n_files < KEEP_OPEN) {
            f->fd = fs->open(fs->arg, src->rows.files.path[x->n_files], O_RDONLY, 0);
            if (f->fd < 0)
                st = wf_file_err(f->fd, src->rows.files.path[x->n_files], "cannot open");
        }
    }
    if (st) {
        wf_csv_index_free(ctx, x);
        return st;
    }
    *n_rows = n;
    *out = x;
    return WEFT_OK;
}

void wf_csv_index_free(weft_ctx *ctx, struct wf_csv_index *x)
{
    for (int64_t i = 0; x && i < x->n_files; i++) {
        wf_free(ctx, x->file[i].offset);
        if (x->file[i].fd >= 0)
            ctx->fs->close(ctx->fs->arg, x->file[i].fd);
    }
    if (x)
        wf_free(ctx, x->file);
    wf_free(ctx, x);
}

/* ---- reading rows ---------------------------------------------------------------------------- */

static weft_status read_at(weft_ctx *ctx, const struct wf_csv_rows *f, const char *path, char *buf,
                           int64_t n, int64_t offset)
{
    const struct wf_fs *fs = ctx->fs;
    int fd = f->fd >= 0 ? f->fd : fs->open(fs->arg, path, O_RDONLY, 0);
    weft_status st = WEFT_OK;

    if (fd < 0)
        return wf_file_err(fd, path, "cannot open");
    while (n > 0 && !st) {
        int64_t got = fs->pread(fs->arg, fd, buf, n, offset);

        if (got < 0)
            st = wf_file_err(got, path, "cannot read");
        else if (got == 0)
            st = wf_err(WEFT_EDATA, "%s: byte %lld: the file became shorter", path,
                        (long long)offset);
        buf += got;
        n -= got;
        offset += got;
    }
    if (f->fd < 0)
        fs->close(fs->arg, fd);
    return st;
}

/* The file that contains row `id`. */
static const struct wf_csv_rows *file_of(const struct wf_csv_index *x, int64_t id)
{
    int64_t lo = 0, hi = x->n_files - 1;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo + 1) / 2;

        if (x->file[mid].first <= id)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &x->file[lo];
}

/* Rows id to id + n of one file; *chunk is reused if it is not kept elsewhere. */
static weft_status get_run(struct wf_csv_fill *f, const struct wf_csv_rows *file, const char *path,
                           int64_t row, int64_t n, struct wf_chunk **chunk)
{
    struct wf_csv_source *src = f->ds->param;
    struct wf_env *env = f->b->env;
    int64_t first = row / WF_CSV_STEP, last = (row + n - 1) / WF_CSV_STEP + 1,
            skip = row % WF_CSV_STEP;
    int64_t offset = file->offset[first], bytes = file->offset[last] - offset;
    struct wf_row_piece piece = {.path = path, .record = row, .n_rows = n};
    struct wf_scan scan;
    weft_status st;

    if (!*chunk || src->has_text || (*chunk)->bytes < bytes) {
        wf_chunk_unref(*chunk);
        *chunk = wf_chunk_new(env, bytes);
        if (!*chunk)
            return wf_env_nomem(env, bytes, "rows of a file");
    }
    st = read_at(env->ctx, file, path, (*chunk)->data, bytes, offset);
    if (st)
        return st;
    wf_scan_init(&scan, &src->rows.format, env->ctx->simd);
    if (skip && !wf_scan_rows(&scan, (*chunk)->data, bytes, skip))
        return wf_err(WEFT_EDATA, "%s: byte %lld: the file has changed", path, (long long)offset);
    piece.chunk = *chunk;
    piece.p = (*chunk)->data + scan.end;
    piece.bytes = bytes - scan.end;
    piece.offset = offset + scan.end;
    atomic_fetch_add_explicit(&wf_stats_of(env, f->ds)->n_bytes, bytes, memory_order_relaxed);
    return wf_csv_fill_piece(f, &piece);
}

/* How many of at[0..n) are consecutive in one file; limited to a few stores of text. */
static int64_t run_length(const struct wf_csv_rows *file, const struct wf_at *at, int64_t n)
{
    int64_t m = 1;

    while (m < n && m < 64 * WF_CSV_STEP && at[m].epoch == at[0].epoch &&
           at[m].id == at[0].id + m && at[m].id < file->first + file->n_rows)
        m++;
    return m;
}

weft_status wf_csv_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at, int64_t n,
                       struct wf_block **out)
{
    struct wf_csv_source *src = ds->param;
    struct wf_chunk *chunk = NULL;
    struct wf_csv_fill f;
    weft_status st = wf_csv_fill_begin(&f, ds, w->env, n);

    for (int64_t i = 0; i < n && !st;) {
        const struct wf_csv_rows *file = file_of(src->index, at[i].id);
        int64_t m = run_length(file, at + i, n - i);

        f.epoch = at[i].epoch;
        f.id = at[i].id;
        st = get_run(&f, file, src->rows.files.path[file - src->index->file],
                     at[i].id - file->first, m, &chunk);
        i += m;
    }
    wf_chunk_unref(chunk);
    if (st) {
        wf_block_free(f.b);
        return st;
    }
    *out = f.b;
    return WEFT_OK;
}
