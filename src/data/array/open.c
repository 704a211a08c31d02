/* open.c - arrays of files whose format was found out: IDX, npy, npz. */
#include "data/file/files.h"
#include "data/source/formats.h"
#include "weft/data_array.h"

int wf_looks_idx(const char *p, int64_t n)
{
    static const char types[] = {0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e};

    return n >= 8 && p[0] == 0 && p[1] == 0 && memchr(types, p[2], sizeof types) && p[3] >= 1 &&
                   p[3] <= WEFT_MAX_RANK
               ? WF_LOOKS_SURE
               : 0;
}

int wf_looks_npy(const char *p, int64_t n)
{
    return n >= 6 && memcmp(p, "\x93NUMPY", 6) == 0 ? WF_LOOKS_MAGIC : 0;
}

int wf_looks_npz(const char *p, int64_t n)
{
    return n >= 4 && memcmp(p, "PK\x03\x04", 4) == 0 ? WF_LOOKS_MAGIC : 0;
}

/* The column that an array's file becomes. */
static const char *column_of(weft_data *d, const char *path)
{
    const char *base = strrchr(path, '/');
    char *stem = wf_arena_strdup(&d->arena, base ? base + 1 : path), *dot;

    if (!stem)
        return NULL;
    if (strstr(stem, "image"))
        return "image";
    if (strstr(stem, "label"))
        return "label";
    dot = strchr(stem, '.');
    if (dot && dot != stem)
        *dot = 0;
    return stem;
}

static weft_ds open_arrays(weft_data *d, const char *path, bool idx)
{
    struct wf_files files;
    weft_array_file *list;
    weft_status st = wf_files_find(d, path, NULL, &files);

    if (st)
        return wf_ds_fail(d, idx ? "idx" : "npy", st);
    list = wf_arena_alloc(&d->arena, (size_t)files.n * sizeof *list);
    if (!list)
        return wf_ds_fail(d, "open", wf_err_nomem(d->ctx, 0, "the pipeline"));
    for (int64_t i = 0; i < files.n; i++) {
        list[i] = (weft_array_file){column_of(d, files.path[i]), files.path[i]};
        if (!list[i].column)
            return wf_ds_fail(d, "open", wf_err_nomem(d->ctx, 0, "the pipeline"));
    }
    return idx ? weft_ds_idx(d, (int)files.n, list, NULL)
               : weft_ds_npy(d, (int)files.n, list, NULL);
}

weft_ds wf_open_idx(weft_data *d, const char *path, const weft_open_opts *o)
{
    (void)o;
    return open_arrays(d, path, true);
}

weft_ds wf_open_npy(weft_data *d, const char *path, const weft_open_opts *o)
{
    (void)o;
    return open_arrays(d, path, false);
}

/* One npz file after the other. */
weft_ds wf_open_npz(weft_data *d, const char *path, const weft_open_opts *o)
{
    struct wf_files files;
    weft_ds *each;
    weft_status st = wf_files_find(d, path, NULL, &files);

    (void)o;
    if (st)
        return wf_ds_fail(d, "npz", st);
    each = wf_arena_alloc(&d->arena, (size_t)files.n * sizeof *each);
    if (!each)
        return wf_ds_fail(d, "open", wf_err_nomem(d->ctx, 0, "the pipeline"));
    for (int64_t i = 0; i < files.n; i++)
        each[i] = weft_ds_npz(d, files.path[i], NULL, NULL);
    return files.n == 1 ? each[0] : weft_ds_concat(d, (int)files.n, each);
}
