/* node.c - decoding as a node: paths or encoded bytes in a text column become pixels. Images of a
 * fixed size are decoded directly into the block. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "data/image/image.h"

struct decode {
    struct wf_image_plan plan;
    int col;
    bool from_file; /* the column holds paths */
};

static weft_status scratch(struct wf_ds *ds, struct wf_worker *w, struct wf_decoder **out)
{
    struct wf_decoder *d = wf_scratch(w, ds);
    weft_status st = WEFT_OK;

    if (!d) {
        st = wf_decoder_new(w->env->ctx, &d);
        if (!st)
            wf_scratch_set(w, ds, d);
    }
    *out = d;
    return st;
}

static void decode_scratch_free(struct wf_ds *ds, void *d)
{
    (void)ds;
    wf_decoder_free(d);
}

/* Reads a whole file into the decoder's memory. `path` is NUL-terminated: folder.c ensures that. */
static weft_status read_file(struct wf_decoder *d, const char *path, weft_str *out)
{
    const int64_t max = (int64_t)1 << 30;
    const struct wf_fs *fs = d->ctx->fs;
    int fd = fs->open(fs->arg, path, O_RDONLY, 0);
    int64_t size, got, at = 0;
    weft_status st = WEFT_OK;

    if (fd < 0)
        return wf_err(fd == -ENOENT ? WEFT_ENOENT : WEFT_EIO, "cannot open: %s",
                      wf_errno_text(-fd));
    size = fs->size(fs->arg, fd);
    if (size < 0 || size > max)
        st = size < 0 ? wf_err(WEFT_EIO, "not a regular file")
                      : wf_err(WEFT_ELIMIT, "%lld bytes", (long long)size);
    if (!st)
        st = wf_grow_bytes(d->ctx, &d->file, &d->cap_file, size + 1, "an image file");
    while (!st && at < size) {
        got = fs->read(fs->arg, fd, d->file + at, size - at);
        if (got <= 0)
            st = wf_err(WEFT_EIO, "cannot read: %s",
                        got ? wf_errno_text((int)-got)
                            : "it became shorter while it was being read");
        at += got;
    }
    fs->close(fs->arg, fd);
    *out = (weft_str){(const char *)d->file, size};
    return st;
}

/* What is done with one image; the column has a WEFT_ANY shape or a fixed one. */
struct one {
    struct wf_ds *ds;
    struct wf_decoder *d;
    struct wf_block *b;
    struct wf_type type;
    int64_t row; /* items per image, if they are all equal */
};

static weft_status decode_one(const struct one *o, const weft_str *s, int64_t i, struct wf_env *env)
{
    const struct decode *p = o->ds->param;
    weft_str bytes = *s;
    struct wf_image_info info;
    struct wf_image to;
    weft_status st = p->from_file ? read_file(o->d, s->data, &bytes) : WEFT_OK;

    if (!st)
        st = wf_image_probe(bytes.data, bytes.n, &info);
    if (!st)
        st = wf_image_size(&p->plan, &info, &to);
    if (st)
        return st;
    if (p->from_file)
        atomic_fetch_add_explicit(&wf_stats_of(env, o->ds)->n_bytes, bytes.n, memory_order_relaxed);
    if (o->row) {
        to.data = (char *)o->b->col[p->col].data + i * o->row * (to.dtype == WEFT_U8 ? 1 : 4);
        return wf_image_decode(o->d, &p->plan, &info, bytes.data, bytes.n, o->b->at[i], &to);
    }
    st = wf_grow_bytes(o->d->ctx, &o->d->whole, &o->d->cap_whole, wf_image_bytes(&to), "an image");
    to.data = o->d->whole;
    if (!st)
        st = wf_image_decode(o->d, &p->plan, &info, bytes.data, bytes.n, o->b->at[i], &to);
    if (!st) {
        weft_tensor t = weft_view(to.dtype, to.data, 3, (int64_t[]){to.h, to.w, to.c});

        st = wf_block_put(o->b, p->col, i, &t);
    }
    return st;
}

/* Errors of the file, not of the machine. */
static bool may_skip(weft_status st)
{
    return st == WEFT_EPARSE || st == WEFT_ENOENT || st == WEFT_EIO || st == WEFT_ELIMIT;
}

static weft_status bad_image(const struct one *o, int64_t i, bool *keep, weft_status st)
{
    const struct decode *p = o->ds->param;
    weft_tensor empty = weft_view(p->plan.dtype, "", 3,
                                  (int64_t[]){p->plan.height, p->plan.width, p->plan.channels});

    if (!p->plan.skip || !may_skip(st))
        return wf_block_err(o->b, i, st);
    keep[i] = false;
    atomic_fetch_add_explicit(&wf_stats_of(o->b->env, o->ds)->n_skipped, 1, memory_order_relaxed);
    return o->row ? WEFT_OK : wf_block_put(o->b, p->col, i, &empty);
}

static weft_status decode_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                struct wf_block **out)
{
    const struct decode *p = ds->param;
    const struct wf_col from = in->col[p->col];
    struct one o = {.ds = ds, .b = in, .type = wf_column_type(&ds->col[p->col])};
    bool *keep = NULL, all = true;
    void *room = NULL;
    weft_status st = scratch(ds, w, &o.d);

    if (p->plan.height && p->plan.channels)
        o.row = p->plan.height * p->plan.width * p->plan.channels;
    if (!st)
        st = wf_block_alloc(in, in->n + 1, &room);
    if (!st)
        st = wf_block_col(in, p->col, &o.type, 0);
    keep = room;
    for (int64_t i = 0; i < in->n && !st; i++) {
        const weft_str *s = (const weft_str *)from.data + (from.offset ? from.offset[i] : i);

        keep[i] = true;
        st = decode_one(&o, s, i, w->env);
        if (st)
            st = bad_image(&o, i, keep, st);
        all = all && keep[i];
    }
    if (st) {
        wf_block_free(in);
        return st;
    }
    if (!all)
        return wf_block_filter(in, keep, out);
    *out = in;
    return WEFT_OK;
}

static void decode_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct decode *p = ds->param;
    const struct wf_image_plan *m = &p->plan;

    wf_buf_printf(out, "%s", ds->col[p->col].name);
    if (m->height)
        wf_buf_printf(out, " %lldx%lld%s%s%s", (long long)m->height, (long long)m->width,
                      m->filter == WEFT_IMAGE_NEAREST ? " nearest" : "",
                      m->antialias ? " antialias" : "", m->full_decode ? " full_decode" : "");
    wf_buf_printf(out, " channels=%d %s%s%s%s", m->channels, weft_dtype_name(m->dtype),
                  m->exif ? " exif" : "", m->lenient ? " lenient" : "", m->skip ? " skip" : "");
    if (m->crop == WEFT_CROP_CENTER)
        wf_buf_printf(out, " center=%g", m->share);
    if (m->crop == WEFT_CROP_RANDOM)
        wf_buf_printf(out, " random=%llu,%g-%g,%g-%g", (unsigned long long)m->seed, m->min_area,
                      m->max_area, m->min_ratio, m->max_ratio);
}

static const struct wf_ds_kind decode_kind = {
    .name = "decode_image",
    .apply = decode_apply,
    .scratch_free = decode_scratch_free,
    .text = decode_text,
};

weft_ds wf_ds_decode(weft_data *d, const char *builder, weft_ds s, const char *column,
                     const weft_image_opts *opts, bool from_file)
{
    struct wf_ds *ds = wf_ds_new(d, &decode_kind, 1, &s, sizeof(struct decode));
    struct decode *p;
    weft_column *col;
    weft_status st;
    weft_role role;

    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    p->from_file = from_file;
    st = wf_image_plan(opts, &p->plan);
    if (st)
        return wf_ds_fail(d, builder, st);
    p->col = wf_ds_find(ds, column);
    if (p->col < 0)
        return wf_ds_fail(d, builder, wf_ds_err_column(ds, column));
    if (ds->col[p->col].dtype != WEFT_STR || ds->col[p->col].rank)
        return wf_ds_fail(
            d, builder,
            wf_err(WEFT_EDTYPE, "column '%s' does not hold bytes, one string per element", column));
    col = wf_arena_alloc(&d->arena, (size_t)ds->n_cols * sizeof *col);
    if (!col)
        return wf_ds_fail(d, builder, wf_err_nomem(d->ctx, 0, "the pipeline"));
    memcpy(col, ds->col, (size_t)ds->n_cols * sizeof *col);
    role = col[p->col].role;
    col[p->col] = wf_image_column(col[p->col].name, &p->plan);
    col[p->col].role = role;
    ds->inexact = p->plan.skip;
    st = wf_ds_set_columns(ds, ds->n_cols, col);
    return st ? wf_ds_fail(d, builder, st) : wf_ds_handle(ds);
}

weft_ds weft_ds_decode_image(weft_data *d, weft_ds s, const char *column,
                             const weft_image_opts *opts)
{
    return wf_ds_decode(d, "decode_image", s, column, opts, false);
}
