/* folder.c - a directory for each class: the list of files is made when the dataset is built; their
 * contents are read by the decoding node after it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/image/image.h"

#define MAX_DEPTH 32

struct folder {
    int64_t n;
    const char **path; /* in the arena, like all names */
    int32_t *label;
    int n_classes;
    const char **class;
    const char *dir;
    bool unlabeled, paths;
};

/* A list that grows while directories are read. */
struct list {
    weft_data *d;
    int64_t n, cap, cap_label;
    const char **path;
    int32_t *label;
};

/* ---- folders --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static weft_status add_name(struct list *l, const char *path, int32_t label)
{
    weft_status st = wf_grow(l->d->ctx, &l->path, &l->cap, l->n + 1, sizeof *l->path);

    if (!st)
        st = wf_grow(l->d->ctx, &l->label, &l->cap_label, l->n + 1, sizeof *l->label);
    if (st)
        return wf_err_wrap(st, "%s", path);
    l->path[l->n] = wf_arena_strdup(&l->d->arena, path);
    l->label[l->n] = label;
    if (!l->path[l->n])
        return wf_err_nomem(l->d->ctx, 0, "the pipeline");
    l->n++;
    return WEFT_OK;
}

struct naming {
    struct list *out;
    weft_status st;
};

static int note_name(void *arg, const char *name)
{
    struct naming *n = arg;

    if (name[0] != '.')
        n->st = add_name(n->out, name, 0);
    return n->st != WEFT_OK;
}

/* The names in a directory, sorted, without those that begin with a dot. */
static weft_status names_in(const char *dir, struct list *out)
{
    const struct wf_fs *fs = out->d->ctx->fs;
    struct naming n = {.out = out};
    int rc = fs->list(fs->arg, dir, note_name, &n);

    if (n.st)
        return n.st;
    if (rc)
        return wf_file_err(rc, dir, "cannot read");
    if (out->n)
        qsort(out->path, (size_t)out->n, sizeof *out->path, by_name);
    return WEFT_OK;
}

static void list_free(struct list *l)
{
    wf_free(l->d->ctx, l->path);
    wf_free(l->d->ctx, l->label);
}

/* Names with an image suffix are trusted until the file is read; other files are inspected. */
static bool is_image(weft_ctx *ctx, const char *path)
{
    const char *dot = strrchr(path, '.');
    char head[8];
    int64_t n = 0;
    int fd;

    if (dot &&
        (wf_same_word(dot, ".jpg") || wf_same_word(dot, ".jpeg") || wf_same_word(dot, ".png")))
        return true;
    fd = ctx->fs->open(ctx->fs->arg, path, O_RDONLY, 0);
    if (fd < 0)
        return false;
    n = ctx->fs->read(ctx->fs->arg, fd, head, sizeof head);
    ctx->fs->close(ctx->fs->arg, fd);
    return wf_image_format_of(head, n) != WF_NO_IMAGE;
}

static weft_status find_files(struct list *l, const char *dir, int32_t label, bool recursive,
                              int depth)
{
    const struct wf_fs *fs = l->d->ctx->fs;
    struct list names = {.d = l->d};
    int rc;
    weft_status st = depth < MAX_DEPTH
                         ? names_in(dir, &names)
                         : wf_err(WEFT_ELIMIT, "%s: directories are nested too deep", dir);

    for (int64_t i = 0; i < names.n && !st; i++) {
        char path[4096];
        struct wf_file_info s;

        if (snprintf(path, sizeof path, "%s/%s", dir, names.path[i]) >= (int)sizeof path)
            st = wf_err(WEFT_EINVAL, "path too long: %.80s…", dir);
        else if ((rc = fs->stat(fs->arg, path, &s)))
            st = wf_file_err(rc, path, "cannot stat");
        else if (s.folder && recursive)
            st = find_files(l, path, label, recursive, depth + 1);
        else if (s.plain && is_image(l->d->ctx, path))
            st = add_name(l, path, label);
    }
    list_free(&names);
    return st;
}

/* The label of a class directory: its position among the given classes, or among the directories
 * seen. */
static weft_status label_of(struct folder *f, bool given, const char *name, int *out)
{
    if (!given) {
        f->class[f->n_classes] = name;
        *out = f->n_classes++;
        return WEFT_OK;
    }
    for (int i = 0; i < f->n_classes; i++)
        if (strcmp(f->class[i], name) == 0) {
            *out = i;
            return WEFT_OK;
        }
    return wf_err(WEFT_EDATA, "%s/%s: '%s' is not one of the %d classes of training (%s, …)",
                  f->dir, name, name, f->n_classes, f->class[0]);
}

static weft_status find_classes(struct list *l, struct folder *f, bool recursive, bool given)
{
    const struct wf_fs *fs = l->d->ctx->fs;
    struct list names = {.d = l->d};
    int rc;
    weft_status st = names_in(f->dir, &names);

    if (!given)
        f->class = wf_arena_alloc(&l->d->arena, (size_t)(names.n + 1) * sizeof *f->class);
    if (!st && !f->class)
        st = wf_err_nomem(l->d->ctx, 0, "the pipeline");
    for (int64_t i = 0; i < names.n && !st; i++) {
        char path[4096];
        struct wf_file_info s;
        int label = 0;

        if (snprintf(path, sizeof path, "%s/%s", f->dir, names.path[i]) >= (int)sizeof path)
            st = wf_err(WEFT_EINVAL, "path too long: %.80s…", f->dir);
        else if ((rc = fs->stat(fs->arg, path, &s)))
            st = wf_file_err(rc, path, "cannot stat");
        else if (s.folder) {
            st = label_of(f, given, names.path[i], &label);
            if (!st)
                st = find_files(l, path, label, recursive, 1);
        }
    }
    list_free(&names);
    if (!st && !f->n_classes)
        st = wf_err(WEFT_ENOENT, "%s: has no class directories (unlabeled reads the files in it)",
                    f->dir);
    return st;
}

/* ---- the node -------------------------------------------------------------------------------- */

static weft_status fill_column(struct wf_ds *ds, struct wf_block *b, int c, const struct wf_at *at)
{
    const struct folder *f = ds->param;
    struct wf_type type = wf_column_type(&ds->col[c]);
    weft_status st = wf_block_col(b, c, &type, 0);

    for (int64_t i = 0; i < b->n && !st; i++) {
        void *data = b->col[c].data;

        if (type.dtype == WEFT_STR)
            ((weft_str *)data)[i] =
                (weft_str){f->path[at[i].id], (int64_t)strlen(f->path[at[i].id])};
        else
            wf_set_int(data, type.dtype, i, f->label[at[i].id]);
    }
    return st;
}

static weft_status folder_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct folder *f = ds->param;
    struct wf_block *b = NULL;
    weft_status st = wf_block_new(w->env, ds->n_cols, n, &b);

    if (st)
        return st;
    st = wf_block_origins(b);
    for (int c = 0; c < ds->n_cols && !st; c++)
        st = fill_column(ds, b, c, at);
    if (st) {
        wf_block_free(b);
        return st;
    }
    for (int64_t i = 0; i < n; i++) {
        b->at[i] = at[i];
        b->from[i].file = f->path[at[i].id];
    }
    *out = b;
    return WEFT_OK;
}

static void folder_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct folder *f = ds->param;

    wf_buf_printf(out, "%s: %lld files, %d classes", f->dir, (long long)f->n, f->n_classes);
}

static int64_t folder_ids(const struct wf_ds *ds, int col, int *from)
{
    (void)from;
    return ds->col[col].role == WEFT_LABEL ? ((const struct folder *)ds->param)->n_classes : 0;
}

static const struct wf_ds_kind folder_kind = {
    .name = "image_files",
    .get = folder_get,
    .ids = folder_ids,
    .text = folder_text,
};

/* The files and classes into the arena, which lives as long as the node. */
static weft_status settle(struct list *l, struct folder *f)
{
    f->n = l->n;
    f->path = wf_arena_alloc(&l->d->arena, (size_t)(l->n + 1) * sizeof *f->path);
    f->label = wf_arena_alloc(&l->d->arena, (size_t)(l->n + 1) * sizeof *f->label);
    if (!f->path || !f->label)
        return wf_err_nomem(l->d->ctx, 0, "the pipeline");
    if (l->n) {
        memcpy(f->path, l->path, (size_t)l->n * sizeof *f->path);
        memcpy(f->label, l->label, (size_t)l->n * sizeof *f->label);
    }
    return WEFT_OK;
}

/* The classes that the options give, copied. */
static weft_status copy_classes(weft_data *d, struct folder *f, const weft_image_opts *o)
{
    if (o->n_classes < 0 || (o->n_classes && !o->classes))
        return wf_err(WEFT_EINVAL, "%d classes", o->n_classes);
    f->class = wf_arena_alloc(&d->arena, (size_t)(o->n_classes + 1) * sizeof *f->class);
    for (int i = 0; i < o->n_classes && f->class; i++) {
        f->class[i] = wf_arena_strdup(&d->arena, o->classes[i]);
        if (!f->class[i])
            return wf_err_nomem(d->ctx, 0, "the pipeline");
    }
    f->n_classes = o->n_classes;
    return f->class ? WEFT_OK : wf_err_nomem(d->ctx, 0, "the pipeline");
}

static weft_status open_folder(weft_data *d, struct wf_ds *ds, const char *dir,
                               const weft_image_opts *o)
{
    struct folder *f = ds->param;
    struct list l = {.d = d};
    weft_column col[3];
    int n = 0;
    weft_status st;

    f->dir = dir ? wf_arena_strdup(&d->arena, dir) : NULL;
    if (!f->dir)
        return dir ? wf_err_nomem(d->ctx, 0, "the pipeline")
                   : wf_err(WEFT_EINVAL, "no directory given");
    if (o->label && o->label != WEFT_I32 && o->label != WEFT_I64)
        return wf_err(WEFT_EDTYPE, "labels must be i32 or i64, not %s", weft_dtype_name(o->label));
    f->unlabeled = o->unlabeled;
    st = copy_classes(d, f, o);
    if (!st)
        st = o->unlabeled ? find_files(&l, f->dir, 0, o->recursive, 0)
                          : find_classes(&l, f, o->recursive, o->n_classes > 0);
    if (!st)
        st = settle(&l, f);
    list_free(&l);
    if (st)
        return st;
    col[n++] = wf_column_of("image", WEFT_STR, 0, NULL);
    if (!o->unlabeled) {
        col[n] = wf_column_of("label", o->label ? o->label : WEFT_I32, 0, NULL);
        col[n++].role = WEFT_LABEL;
    }
    if (o->paths)
        col[n++] = wf_column_of("path", WEFT_STR, 0, NULL);
    ds->count = f->n;
    ds->addressable = true;
    return wf_ds_set_columns(ds, n, col);
}

weft_ds weft_ds_image_folder(weft_data *d, const char *dir, const weft_image_opts *opts)
{
    weft_image_opts o;
    struct wf_ds *ds = wf_ds_new(d, &folder_kind, 0, NULL, sizeof(struct folder));
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_image_opts");
    weft_ds s;

    if (!ds)
        return (weft_ds){0};
    if (!st)
        st = open_folder(d, ds, dir, &o);
    if (st)
        return wf_ds_fail(d, "image_folder", st);
    s = wf_ds_handle(ds);
    if (o.shuffle)
        s = weft_ds_shuffle_all(d, s, WEFT_OPTS(weft_shuffle_opts, .seed = o.seed));
    return wf_ds_decode(d, "image_folder", s, "image", &o, true);
}

weft_status weft_ds_image_classes(const weft_data *d, weft_ds s, int *n, const char *const **names)
{
    const struct wf_ds *ds = wf_ds_node(d, s);

    while (ds && ds->kind != &folder_kind)
        ds = ds->n_in ? ds->in[0] : NULL;
    if (!ds)
        return wf_err(WEFT_EINVAL, "image_classes: this dataset is not from image_folder");
    *n = ((const struct folder *)ds->param)->n_classes;
    *names = ((const struct folder *)ds->param)->class;
    return WEFT_OK;
}
