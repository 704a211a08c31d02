/* files.c - the files a source reads: patterns become a list once, when the source is built.
 *
 * Invariants: the list depends only on the patterns and the directory's contents, never on the
 * order in which the file system lists its files; no file is in it twice, and none is a
 * directory. */
#include <stdio.h>
#include <stdlib.h>

#include "data/file/files.h"

#define PATTERN_BYTES 4096

struct listing {
    weft_data *d;
    struct wf_map seen;
    const char **path;
    int64_t n, cap;
    int64_t n_matched; /* of the current pattern, including those listed before */
    bool literal;      /* the current pattern is the name of a file */
    weft_status st;
};

weft_status wf_file_check_plain(const char *path, const struct wf_file_info *info)
{
    if (info->folder)
        return wf_err(WEFT_EINVAL, "%s: is a directory; a file is needed", path);
    if (!info->plain)
        return wf_err(WEFT_EIO,
                      "%s: is a pipe or a device, which can be read only once; data is read again "
                      "for its format, its columns and each epoch: write it to a file first",
                      path);
    return WEFT_OK;
}

/* Files that weft keeps next to data files (index.c, csv_index_file.c): not data, unless named
 * explicitly. */
static bool kept_beside(const char *path)
{
    static const char *const ends[] = {".weftidx", ".weftrows"};
    size_t n = strlen(path);

    for (int i = 0; i < WF_COUNT(ends); i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static int add(void *arg, const char *path)
{
    struct listing *l = arg;
    const struct wf_fs *fs = l->d->ctx->fs;
    struct wf_file_info info;
    char *copy;
    int rc;

    if (!l->literal && kept_beside(path))
        return 0;
    l->n_matched++;
    if (wf_map_get(&l->seen, path, NULL))
        return 0;
    rc = fs->stat(fs->arg, path, &info);
    if (rc) {
        l->st = wf_file_err(rc, path, "cannot stat");
        return rc;
    }
    if (info.folder) {
        l->st = wf_err(WEFT_EINVAL, "%s is a directory; files are needed (\"%s/*\"?)", path, path);
        return -1;
    }
    l->st = wf_file_check_plain(path, &info);
    if (l->st)
        return -1;
    copy = wf_arena_strdup(&l->d->arena, path);
    l->st = copy ? wf_grow(l->d->ctx, &l->path, &l->cap, l->n + 1, sizeof *l->path)
                 : wf_err_nomem(l->d->ctx, strlen(path), "list of files");
    if (!l->st)
        l->st = wf_map_put(&l->seen, copy, l->n);
    if (l->st)
        return -1;
    l->path[l->n++] = copy;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

static weft_status match(struct listing *l, const char *pattern)
{
    const struct wf_fs *fs = l->d->ctx->fs;
    struct wf_file_info info;
    int64_t first = l->n;
    bool literal = !fs->stat(fs->arg, pattern, &info);
    int rc;

    l->n_matched = 0;
    l->literal = literal;
    rc = literal ? add(l, pattern) : fs->glob(fs->arg, pattern, add, l);
    if (l->st)
        return l->st;
    if (rc)
        return wf_file_err(rc, pattern, "cannot list");
    if (!l->n_matched)
        return wf_err(WEFT_ENOENT, "no file matches \"%s\"", pattern);
    if (l->n > first)
        qsort(l->path + first, (size_t)(l->n - first), sizeof *l->path, by_path);
    return WEFT_OK;
}

/* The next of the patterns separated by commas; "\," is a comma. */
static weft_status next_pattern(const char **at, char out[PATTERN_BYTES])
{
    const char *p = *at;
    int n = 0;

    while (*p == ' ')
        p++;
    for (; *p && *p != ','; p++) {
        if (p[0] == '\\' && p[1] == ',')
            p++;
        if (n + 1 >= PATTERN_BYTES)
            return wf_err(WEFT_EINVAL, "a file pattern of more than %d bytes", PATTERN_BYTES - 1);
        out[n++] = *p;
    }
    out[n] = '\0';
    *at = *p ? p + 1 : p;
    return n ? WEFT_OK : wf_err(WEFT_EINVAL, "an empty file pattern");
}

weft_status wf_files_find(weft_data *d, const char *patterns, const weft_file_opts *opts,
                          struct wf_files *out)
{
    struct listing l = {.d = d};
    char pattern[PATTERN_BYTES];
    const char **path, *at = patterns;
    weft_status st = WEFT_OK;

    if (!patterns)
        return wf_err(WEFT_EINVAL, "no file given (NULL)");
    if (opts &&
        (opts->compression < WEFT_COMPRESSION_AUTO || opts->compression > WEFT_COMPRESSION_ZSTD))
        return wf_err(WEFT_EINVAL, "compression %d does not exist", (int)opts->compression);
    wf_map_init(&l.seen, d->ctx);
    do {
        st = next_pattern(&at, pattern);
        if (!st)
            st = match(&l, pattern);
    } while (!st && *at);
    if (st)
        goto out;
    path = wf_arena_alloc(&d->arena, (size_t)l.n * sizeof *path);
    if (!path) {
        st = wf_err_nomem(d->ctx, (size_t)l.n * sizeof *path, "list of files");
        goto out;
    }
    memcpy(path, l.path, (size_t)l.n * sizeof *path);
    *out = (struct wf_files){.n = l.n, .path = path};
    if (opts)
        out->opts = *opts;
out:
    wf_map_free(&l.seen);
    wf_free(d->ctx, l.path);
    return st;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

const char *wf_files_at(const struct wf_ds *ds, int64_t i)
{
    const struct wf_files *f = ds->param;

    return i < f->n ? f->path[i] : NULL;
}

void wf_files_text(const struct wf_files *f, struct wf_buf *out)
{
    uint64_t h = 0;

    /* Names without directories: a state may be restored where the files are elsewhere. */
    for (int64_t i = 0; i < f->n; i++)
        h = wf_hash64(base_name(f->path[i]), strlen(base_name(f->path[i])), h);
    wf_buf_printf(out, "%s", f->n ? base_name(f->path[0]) : "");
    if (f->n > 1)
        wf_buf_printf(out, " .. %s (%lld files, %016llx)", base_name(f->path[f->n - 1]),
                      (long long)f->n, (unsigned long long)h);
    if (f->opts.shuffle)
        wf_buf_printf(out, ", files shuffled by %llu", (unsigned long long)f->opts.seed);
}
