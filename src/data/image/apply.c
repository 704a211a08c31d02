/* apply.c - image transformations as nodes: one kind, a row of a table for each operation. An
 * operation gives the size of its result, and computes it. Random ones draw from (seed, epoch,
 * sample, a salt of their own). */
#include "data/image/image.h"

#define MAX_SIDE 65536

struct op;

struct change {
    const struct op *op;
    int col;
    weft_dtype dtype; /* of the result */
    int64_t y, x, h, w;
    bool left_right, up_down, antialias;
    weft_image_filter filter;
    int count; /* quarters, channels, or numbers in mean */
    double a, b, c, d;
    uint64_t seed;
    float scale[4], shift[4];
    struct wf_image_plan box;
};

/* Memory of a thread. */
struct tools {
    struct wf_resizer resizer;
    uint8_t *floats;
    int64_t cap_floats;
};

struct op {
    const char *name;
    /* The size of the result for an image of this size; an unknown size is WEFT_ANY. `out` comes as
     * a copy of `in` with the result's dtype. NULL: the same. */
    weft_status (*size)(const struct change *p, const struct wf_image *in, struct wf_image *out);
    weft_status (*run)(const struct change *p, struct tools *t, const struct wf_image *in,
                       struct wf_at at, const struct wf_image *out);
    uint32_t salt; /* for random ones; draws are salt, salt + 1, … */
};

static uint64_t draw(const struct change *p, struct wf_at at, uint32_t k)
{
    return wf_random_word(p->seed, at.epoch, at.id, p->op->salt + k);
}

/* Uniform in [lo, hi). */
static double draw_in(const struct change *p, struct wf_at at, uint32_t k, double lo, double hi)
{
    return lo + (hi - lo) * wf_unit(draw(p, at, k));
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static weft_status size_target(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    (void)in;
    out->h = p->h;
    out->w = p->w;
    return WEFT_OK;
}

static weft_status size_within(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    int64_t y = wf_max_i64(p->y, 0), x = wf_max_i64(p->x, 0);

    if ((in->h >= 0 && y + p->h > in->h) || (in->w >= 0 && x + p->w > in->w))
        return wf_err(WEFT_ESHAPE,
                      "a box of %lld x %lld at (%lld, %lld) does not fit an image of %lld x %lld",
                      (long long)p->h, (long long)p->w, (long long)y, (long long)x,
                      (long long)in->h, (long long)in->w);
    return size_target(p, in, out);
}

static weft_status size_around(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    int64_t y = wf_max_i64(p->y, 0), x = wf_max_i64(p->x, 0);

    if (in->h + y > p->h || in->w + x > p->w)
        return wf_err(WEFT_ESHAPE,
                      "an image of %lld x %lld at (%lld, %lld) does not fit %lld x %lld",
                      (long long)in->h, (long long)in->w, (long long)y, (long long)x,
                      (long long)p->h, (long long)p->w);
    return size_target(p, in, out);
}

static weft_status size_turned(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    if (p->count & 1) {
        out->h = in->w;
        out->w = in->h;
    }
    return WEFT_OK;
}

static weft_status size_coloured(const struct change *p, const struct wf_image *in,
                                 struct wf_image *out)
{
    (void)p, (void)out;
    if (in->c >= 0 && in->c < 3)
        return wf_err(WEFT_ESHAPE, "%d channels: RGB is needed", in->c);
    return WEFT_OK;
}

static weft_status size_jitter(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    return p->c > 0.0 || p->d > 0.0 ? size_coloured(p, in, out) : WEFT_OK;
}

static weft_status size_grey(const struct change *p, const struct wf_image *in,
                             struct wf_image *out)
{
    out->c = p->count;
    return size_coloured(p, in, out);
}

static weft_status size_normal(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    (void)out;
    if (p->count > 1 && in->c >= 0 && in->c != p->count)
        return wf_err(WEFT_ESHAPE, "%d means for %d channels", p->count, in->c);
    return WEFT_OK;
}

/* ---- what is done ---------------------------------------------------------------------------- */

static weft_status run_resize(const struct change *p, struct tools *t, const struct wf_image *in,
                              struct wf_at at, const struct wf_image *out)
{
    (void)at;
    return wf_image_resize(&t->resizer, in, NULL, p->filter, p->antialias, out);
}

static weft_status run_crop(const struct change *p, struct tools *t, const struct wf_image *in,
                            struct wf_at at, const struct wf_image *out)
{
    (void)t, (void)at;
    wf_image_crop(in, p->y < 0 ? (in->h - out->h) / 2 : p->y,
                  p->x < 0 ? (in->w - out->w) / 2 : p->x, out);
    return WEFT_OK;
}

static weft_status run_pad(const struct change *p, struct tools *t, const struct wf_image *in,
                           struct wf_at at, const struct wf_image *out)
{
    (void)t, (void)at;
    wf_image_pad(in, p->y < 0 ? (out->h - in->h) / 2 : p->y, p->x < 0 ? (out->w - in->w) / 2 : p->x,
                 (float)p->a, out);
    return WEFT_OK;
}

static weft_status run_flip(const struct change *p, struct tools *t, const struct wf_image *in,
                            struct wf_at at, const struct wf_image *out)
{
    (void)t, (void)at;
    wf_image_flip(in, p->left_right, p->up_down, out);
    return WEFT_OK;
}

static weft_status run_turn(const struct change *p, struct tools *t, const struct wf_image *in,
                            struct wf_at at, const struct wf_image *out)
{
    (void)t, (void)at;
    wf_image_turn(in, p->count, out);
    return WEFT_OK;
}

static weft_status run_rotate(const struct change *p, struct tools *t, const struct wf_image *in,
                              struct wf_at at, const struct wf_image *out)
{
    (void)t, (void)at;
    wf_image_rotate(in, p->a, (float)p->b, out);
    return WEFT_OK;
}

static weft_status colour(struct tools *t, const struct wf_image *in, const struct wf_colour *c,
                          const struct wf_image *out)
{
    int64_t bytes = wf_image_items(in) * 4;
    weft_status st =
        wf_grow_bytes(t->resizer.ctx, &t->floats, &t->cap_floats, bytes + 4, "an image");

    if (!st)
        wf_image_colour(in, c, (float *)(void *)t->floats, out);
    return st;
}

static weft_status run_brightness(const struct change *p, struct tools *t,
                                  const struct wf_image *in, struct wf_at at,
                                  const struct wf_image *out)
{
    (void)at;
    return colour(t, in, &(struct wf_colour){.brightness = (float)p->a}, out);
}

static weft_status run_contrast(const struct change *p, struct tools *t, const struct wf_image *in,
                                struct wf_at at, const struct wf_image *out)
{
    (void)at;
    return colour(t, in, &(struct wf_colour){.contrast = (float)p->a, .do_contrast = true}, out);
}

static weft_status run_saturation(const struct change *p, struct tools *t,
                                  const struct wf_image *in, struct wf_at at,
                                  const struct wf_image *out)
{
    (void)at;
    return colour(t, in, &(struct wf_colour){.saturation = (float)p->a, .do_saturation = true},
                  out);
}

static weft_status run_hue(const struct change *p, struct tools *t, const struct wf_image *in,
                           struct wf_at at, const struct wf_image *out)
{
    (void)at;
    return colour(t, in, &(struct wf_colour){.hue = (float)p->a, .do_hue = true}, out);
}

static weft_status run_grey(const struct change *p, struct tools *t, const struct wf_image *in,
                            struct wf_at at, const struct wf_image *out)
{
    (void)p, (void)t, (void)at;
    wf_image_grey(in, out);
    return WEFT_OK;
}

static weft_status run_normal(const struct change *p, struct tools *t, const struct wf_image *in,
                              struct wf_at at, const struct wf_image *out)
{
    int64_t n = wf_image_items(in);
    int c = in->c;
    float scale[4], shift[4], *to = out->data;

    (void)t, (void)at;
    for (int k = 0; k < c && k < 4; k++) {
        scale[k] = p->scale[p->count > 1 ? k : 0];
        shift[k] = p->shift[p->count > 1 ? k : 0];
    }
    if (in->dtype == WEFT_U8)
        for (int64_t i = 0; i < n; i += c)
            for (int k = 0; k < c; k++)
                to[i + k] = (float)((const uint8_t *)in->data)[i + k] * scale[k] + shift[k];
    else
        for (int64_t i = 0; i < n; i += c)
            for (int k = 0; k < c; k++)
                to[i + k] = ((const float *)in->data)[i + k] * scale[k] + shift[k];
    return WEFT_OK;
}

static weft_status run_random_crop(const struct change *p, struct tools *t,
                                   const struct wf_image *in, struct wf_at at,
                                   const struct wf_image *out)
{
    (void)t;
    wf_image_crop(in, wf_random_index(draw(p, at, 0), in->h - out->h + 1),
                  wf_random_index(draw(p, at, 1), in->w - out->w + 1), out);
    return WEFT_OK;
}

static weft_status run_random_box(const struct change *p, struct tools *t,
                                  const struct wf_image *in, struct wf_at at,
                                  const struct wf_image *out)
{
    struct wf_box box = wf_random_box(in->h, in->w, &p->box, at);

    return wf_image_resize(&t->resizer, in, &box, p->filter, p->antialias, out);
}

static weft_status run_random_flip(const struct change *p, struct tools *t,
                                   const struct wf_image *in, struct wf_at at,
                                   const struct wf_image *out)
{
    (void)t;
    wf_image_flip(in, wf_unit(draw(p, at, 0)) < p->a, wf_unit(draw(p, at, 1)) < p->b, out);
    return WEFT_OK;
}

static weft_status run_random_rotate(const struct change *p, struct tools *t,
                                     const struct wf_image *in, struct wf_at at,
                                     const struct wf_image *out)
{
    (void)t;
    wf_image_rotate(in, draw_in(p, at, 0, -p->a, p->a), (float)p->b, out);
    return WEFT_OK;
}

static weft_status run_random_colour(const struct change *p, struct tools *t,
                                     const struct wf_image *in, struct wf_at at,
                                     const struct wf_image *out)
{
    struct wf_colour c = {.brightness = (float)draw_in(p, at, 0, -p->a, p->a),
                          .contrast = (float)draw_in(p, at, 1, 1.0 - p->b, 1.0 + p->b),
                          .saturation = (float)draw_in(p, at, 2, 1.0 - p->c, 1.0 + p->c),
                          .hue = (float)draw_in(p, at, 3, -p->d, p->d),
                          .do_contrast = p->b > 0.0,
                          .do_saturation = p->c > 0.0,
                          .do_hue = p->d > 0.0};

    return colour(t, in, &c, out);
}

static weft_status run_random_cutout(const struct change *p, struct tools *t,
                                     const struct wf_image *in, struct wf_at at,
                                     const struct wf_image *out)
{
    int64_t y = wf_random_index(draw(p, at, 0), in->h) - p->h / 2;
    int64_t x = wf_random_index(draw(p, at, 1), in->w) - p->w / 2;
    int64_t y1 = wf_min_i64(y + p->h, in->h), x1 = wf_min_i64(x + p->w, in->w);
    struct wf_box box = {.y = wf_max_i64(y, 0), .x = wf_max_i64(x, 0)};

    (void)t;
    box.h = y1 - box.y;
    box.w = x1 - box.x;
    memcpy(out->data, in->data, (size_t)wf_image_bytes(in));
    wf_image_fill(out, &box, (float)p->a);
    return WEFT_OK;
}

static const struct op op_resize = {"image_resize", size_target, run_resize, 0};
static const struct op op_crop = {"image_crop", size_within, run_crop, 0};
static const struct op op_pad = {"image_pad", size_around, run_pad, 0};
static const struct op op_flip = {"image_flip", NULL, run_flip, 0};
static const struct op op_turn = {"image_rotate_quarters", size_turned, run_turn, 0};
static const struct op op_rotate = {"image_rotate", NULL, run_rotate, 0};
static const struct op op_brightness = {"image_brightness", NULL, run_brightness, 0};
static const struct op op_contrast = {"image_contrast", NULL, run_contrast, 0};
static const struct op op_saturation = {"image_saturation", size_coloured, run_saturation, 0};
static const struct op op_hue = {"image_hue", size_coloured, run_hue, 0};
static const struct op op_grey = {"image_grayscale", size_grey, run_grey, 0};
static const struct op op_normal = {"image_normalise", size_normal, run_normal, 0};
static const struct op op_random_crop = {"image_random_crop", size_within, run_random_crop,
                                         0x1a6e0100};
static const struct op op_random_box = {"image_random_resized_crop", size_target, run_random_box,
                                        0x1a6e0200};
static const struct op op_random_flip = {"image_random_flip", NULL, run_random_flip, 0x1a6e0300};
static const struct op op_random_rotate = {"image_random_rotate", NULL, run_random_rotate,
                                           0x1a6e0400};
static const struct op op_random_colour = {"image_random_colour", size_jitter, run_random_colour,
                                           0x1a6e0500};
static const struct op op_random_cutout = {"image_random_cutout", NULL, run_random_cutout,
                                           0x1a6e0600};

/* ---- the kind -------------------------------------------------------------------------------- */

static weft_status tools_of(struct wf_ds *ds, struct wf_worker *w, struct tools **out)
{
    struct tools *t = wf_scratch(w, ds);

    if (!t) {
        t = wf_alloc(w->env->ctx, sizeof *t);
        if (!t)
            return wf_err_nomem(w->env->ctx, sizeof *t, ds->name);
        wf_resizer_init(&t->resizer, w->env->ctx);
        wf_scratch_set(w, ds, t);
    }
    *out = t;
    return WEFT_OK;
}

static void tools_free(struct wf_ds *ds, void *scratch)
{
    struct tools *t = scratch;
    weft_ctx *ctx = ds->data->ctx;

    wf_resizer_free(&t->resizer);
    wf_free(ctx, t->floats);
    wf_free(ctx, t);
}

static struct wf_image image_of(const weft_tensor *t)
{
    return (struct wf_image){
        .h = t->dim[0], .w = t->dim[1], .c = (int)t->dim[2], .dtype = t->dtype, .data = t->data};
}

static weft_status result_size(const struct change *p, const struct wf_image *in,
                               struct wf_image *out)
{
    *out = *in;
    out->dtype = p->dtype;
    if (in->c > 4 || !in->c || !in->h || !in->w)
        return wf_err(WEFT_ESHAPE, "an image of %lld x %lld x %d", (long long)in->h,
                      (long long)in->w, in->c);
    return p->op->size ? p->op->size(p, in, out) : WEFT_OK;
}

/* Room for all results; with their shapes if they differ in size. */
static weft_status make_column(struct wf_ds *ds, struct wf_block *b, const struct wf_col *from)
{
    const struct change *p = ds->param;
    struct wf_type type = wf_column_type(&ds->col[p->col]);
    struct wf_image out;
    struct wf_col *to = &b->col[p->col];
    int64_t items = 0;
    weft_status st = WEFT_OK;

    for (int pass = 0; pass < (wf_type_known(&type) ? 1 : 2) && !st; pass++) {
        items = 0;
        for (int64_t i = 0; i < b->n && !st; i++) {
            weft_tensor t = wf_col_element(from, i);
            struct wf_image in = image_of(&t);

            st = result_size(p, &in, &out);
            if (st)
                return wf_block_err(b, i, st);
            items += wf_image_items(&out);
            if (pass) {
                to->offset[i + 1] = items;
                memcpy(to->shape + 3 * i, (int64_t[]){out.h, out.w, out.c}, 3 * sizeof(int64_t));
            }
        }
        if (!pass && !st)
            st = wf_block_col(b, p->col, &type, items);
    }
    return st;
}

static weft_status change_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                struct wf_block **out)
{
    const struct change *p = ds->param;
    const struct wf_col from = in->col[p->col];
    struct tools *t = NULL;
    weft_status st = tools_of(ds, w, &t);

    if (!st)
        st = make_column(ds, in, &from);
    for (int64_t i = 0; i < in->n && !st; i++) {
        weft_tensor a = wf_col_element(&from, i), b = wf_col_element(&in->col[p->col], i);
        struct wf_image source = image_of(&a), result = image_of(&b);

        st = p->op->run(p, t, &source, in->at[i], &result);
        if (st)
            st = wf_block_err(in, i, st);
    }
    if (st)
        wf_block_free(in);
    else
        *out = in;
    return st;
}

static void change_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct change *p = ds->param;

    wf_buf_printf(out, "%s %s", p->op->name, ds->col[p->col].name);
    if (p->h)
        wf_buf_printf(out, " %lld,%lld %lldx%lld", (long long)p->y, (long long)p->x,
                      (long long)p->h, (long long)p->w);
    wf_buf_printf(out, " %d%d%d%d %d", p->left_right, p->up_down, p->antialias, (int)p->filter,
                  p->count);
    wf_buf_printf(out, " %.17g,%.17g,%.17g,%.17g", p->a, p->b, p->c, p->d);
    for (int i = 0; i < p->count && p->op == &op_normal; i++)
        wf_buf_printf(out, " %.9g,%.9g", (double)p->scale[i], (double)p->shift[i]);
    if (p->op->salt)
        wf_buf_printf(out, " seed=%llu", (unsigned long long)p->seed);
    if (p->op == &op_random_box)
        wf_buf_printf(out, " %g-%g,%g-%g", p->box.min_area, p->box.max_area, p->box.min_ratio,
                      p->box.max_ratio);
}

static const struct wf_ds_kind change_kind = {
    .name = "image",
    .apply = change_apply,
    .scratch_free = tools_free,
    .text = change_text,
};

/* ---- builders -------------------------------------------------------------------------------- */

static weft_status check_change(struct wf_ds *ds, const char *column, struct change *p)
{
    struct wf_image in, out;
    weft_column *c;
    weft_status st;

    if (!column)
        return wf_err(WEFT_EINVAL, "no column given");
    p->col = wf_ds_find(ds, column);
    if (p->col < 0)
        return wf_ds_err_column(ds, column);
    st = wf_ds_set_columns(ds, ds->n_cols, ds->col); /* our own copy */
    if (st)
        return st;
    c = &ds->col[p->col];
    if (c->rank != 3 || (c->dtype != WEFT_U8 && c->dtype != WEFT_F32))
        return wf_err(
            WEFT_ESHAPE,
            "column '%s' is not an image: u8 or f32 [height, width, channels], not batched",
            column);
    if (p->h < 0 || p->w < 0 || p->h > MAX_SIDE || p->w > MAX_SIDE ||
        (p->op->size == size_target && (!p->h || !p->w)))
        return wf_err(WEFT_EINVAL, "a size of %lld x %lld", (long long)p->h, (long long)p->w);
    if (!p->dtype)
        p->dtype = c->dtype;
    if (p->dtype != WEFT_U8 && p->dtype != WEFT_F32)
        return wf_err(WEFT_EDTYPE, "images are u8 or f32, not %s", weft_dtype_name(p->dtype));
    in = (struct wf_image){.h = c->dim[0], .w = c->dim[1], .c = (int)c->dim[2], .dtype = c->dtype};
    st = result_size(p, &in, &out);
    if (st)
        return st;
    c->dtype = out.dtype;
    c->dim[0] = out.h;
    c->dim[1] = out.w;
    c->dim[2] = out.c;
    return WEFT_OK;
}

static weft_ds change_new(weft_data *d, weft_ds s, const char *column, const struct change *change,
                          weft_status st)
{
    struct wf_ds *ds = wf_ds_new(d, &change_kind, 1, &s, sizeof(struct change));
    struct change *p;

    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    *p = *change;
    ds->name = p->op->name;
    if (!st)
        st = check_change(ds, column, p);
    return st ? wf_ds_fail(d, p->op->name, st) : wf_ds_handle(ds);
}

weft_ds weft_ds_image_resize(weft_data *d, weft_ds s, const char *column, int64_t height,
                             int64_t width, const weft_image_resize_opts *opts)
{
    weft_image_resize_opts o;
    struct change p = {.op = &op_resize, .h = height, .w = width};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_image_resize_opts");

    if (!st) {
        p.filter = o.filter;
        p.antialias = o.antialias;
        p.dtype = o.dtype;
    }
    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_crop(weft_data *d, weft_ds s, const char *column, int64_t y, int64_t x,
                           int64_t height, int64_t width)
{
    struct change p = {.op = &op_crop, .y = y, .x = x, .h = height, .w = width};
    weft_status st = WEFT_OK;

    if (y < 0 || x < 0 || y > MAX_SIDE || x > MAX_SIDE || height < 1 || width < 1)
        st = wf_err(WEFT_EINVAL, "a box of %lld x %lld at (%lld, %lld)", (long long)height,
                    (long long)width, (long long)y, (long long)x);
    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_center_crop(weft_data *d, weft_ds s, const char *column, int64_t height,
                                  int64_t width)
{
    struct change p = {.op = &op_crop, .y = WEFT_CENTER, .x = WEFT_CENTER, .h = height, .w = width};
    weft_status st = height < 1 || width < 1 ? wf_err(WEFT_EINVAL, "an empty box") : WEFT_OK;

    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_pad(weft_data *d, weft_ds s, const char *column, int64_t y, int64_t x,
                          int64_t height, int64_t width, double value)
{
    struct change p = {.op = &op_pad, .y = y, .x = x, .h = height, .w = width, .a = value};
    weft_status st = WEFT_OK;

    if (y < WEFT_CENTER || x < WEFT_CENTER || y > MAX_SIDE || x > MAX_SIDE)
        st = wf_err(WEFT_EINVAL, "at (%lld, %lld)", (long long)y, (long long)x);
    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_flip(weft_data *d, weft_ds s, const char *column, bool left_right,
                           bool up_down)
{
    struct change p = {.op = &op_flip, .left_right = left_right, .up_down = up_down};

    return change_new(d, s, column, &p, WEFT_OK);
}

weft_ds weft_ds_image_rotate_quarters(weft_data *d, weft_ds s, const char *column, int quarters)
{
    struct change p = {.op = &op_turn, .count = (quarters % 4 + 4) % 4};

    return change_new(d, s, column, &p, WEFT_OK);
}

static weft_status check_finite(double v)
{
    return v - v == 0.0 ? WEFT_OK : wf_err(WEFT_EINVAL, "%g is not a finite number", v);
}

weft_ds weft_ds_image_rotate(weft_data *d, weft_ds s, const char *column, double degrees,
                             double fill)
{
    struct change p = {.op = &op_rotate, .a = degrees, .b = fill};

    return change_new(d, s, column, &p, check_finite(degrees));
}

weft_ds weft_ds_image_brightness(weft_data *d, weft_ds s, const char *column, double delta)
{
    struct change p = {.op = &op_brightness, .a = delta};

    return change_new(d, s, column, &p, check_finite(delta));
}

weft_ds weft_ds_image_contrast(weft_data *d, weft_ds s, const char *column, double factor)
{
    struct change p = {.op = &op_contrast, .a = factor};

    return change_new(d, s, column, &p, check_finite(factor));
}

weft_ds weft_ds_image_saturation(weft_data *d, weft_ds s, const char *column, double factor)
{
    struct change p = {.op = &op_saturation, .a = factor};

    return change_new(d, s, column, &p, check_finite(factor));
}

weft_ds weft_ds_image_hue(weft_data *d, weft_ds s, const char *column, double delta)
{
    struct change p = {.op = &op_hue, .a = delta};

    return change_new(d, s, column, &p, check_finite(delta));
}

weft_ds weft_ds_image_grayscale(weft_data *d, weft_ds s, const char *column, int channels)
{
    struct change p = {.op = &op_grey, .count = channels};
    weft_status st = WEFT_OK;

    if (channels != 1 && channels != 3)
        st = wf_err(WEFT_EINVAL, "%d channels: must be 1 or 3", channels);
    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_normalise(weft_data *d, weft_ds s, const char *column, double scale, int n,
                                const float *mean, const float *std)
{
    struct change p = {.op = &op_normal, .count = n, .dtype = WEFT_F32};
    weft_status st = WEFT_OK;

    if (n < 1 || n > 4)
        st = wf_err(WEFT_EINVAL, "%d means: give one, or one per channel", n);
    for (int i = 0; i < n && !st; i++) {
        if (!(std[i] > 0.0f) || mean[i] - mean[i] != 0.0f)
            st = wf_err(WEFT_EINVAL, "mean %g, deviation %g", (double)mean[i], (double)std[i]);
        p.scale[i] = (float)(scale / (double)std[i]);
        p.shift[i] = (float)(-(double)mean[i] / (double)std[i]);
    }
    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_random_crop(weft_data *d, weft_ds s, const char *column, int64_t height,
                                  int64_t width, uint64_t seed)
{
    struct change p = {.op = &op_random_crop, .h = height, .w = width, .seed = seed};
    weft_status st = height < 1 || width < 1 ? wf_err(WEFT_EINVAL, "an empty box") : WEFT_OK;

    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_random_resized_crop(weft_data *d, weft_ds s, const char *column,
                                          int64_t height, int64_t width,
                                          const weft_random_crop_opts *opts)
{
    weft_random_crop_opts o;
    struct change p = {.op = &op_random_box, .h = height, .w = width};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_random_crop_opts");

    if (!st)
        st = wf_random_box_plan(&o, &p.box);
    p.seed = p.box.seed;
    p.filter = o.filter;
    p.antialias = o.antialias;
    return change_new(d, s, column, &p, st);
}

static weft_status check_share(double v)
{
    return v >= 0.0 && v <= 1.0 ? WEFT_OK : wf_err(WEFT_EINVAL, "%g is not in [0, 1]", v);
}

weft_ds weft_ds_image_random_flip(weft_data *d, weft_ds s, const char *column, double left_right,
                                  double up_down, uint64_t seed)
{
    struct change p = {.op = &op_random_flip, .a = left_right, .b = up_down, .seed = seed};
    weft_status st = check_share(left_right);

    return change_new(d, s, column, &p, st ? st : check_share(up_down));
}

weft_ds weft_ds_image_random_rotate(weft_data *d, weft_ds s, const char *column, double degrees,
                                    double fill, uint64_t seed)
{
    struct change p = {.op = &op_random_rotate, .a = degrees, .b = fill, .seed = seed};

    return change_new(d, s, column, &p, check_finite(degrees));
}

weft_ds weft_ds_image_random_colour(weft_data *d, weft_ds s, const char *column,
                                    const weft_jitter_opts *opts)
{
    weft_jitter_opts o;
    struct change p = {.op = &op_random_colour};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_jitter_opts");

    if (!st) {
        p.seed = o.seed;
        p.a = o.brightness;
        p.b = o.contrast;
        p.c = o.saturation;
        p.d = o.hue;
        if (p.a < 0 || p.d < 0)
            st = wf_err(WEFT_EINVAL, "a negative range");
        else if (!(st = check_finite(p.a + p.d)) && !(st = check_share(p.b)))
            st = check_share(p.c);
    }
    return change_new(d, s, column, &p, st);
}

weft_ds weft_ds_image_random_cutout(weft_data *d, weft_ds s, const char *column, int64_t height,
                                    int64_t width, double value, uint64_t seed)
{
    struct change p = {.op = &op_random_cutout, .h = height, .w = width, .a = value, .seed = seed};
    weft_status st = height < 1 || width < 1 ? wf_err(WEFT_EINVAL, "an empty box") : WEFT_OK;

    return change_new(d, s, column, &p, st);
}
