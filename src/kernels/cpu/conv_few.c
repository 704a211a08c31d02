/* conv_few.c - convolution of few channels, such as the first layer of a network: forward and
 * filter gradient.
 *
 * What a few rows of output pixels see is small: it is copied once, with its padding, and then read
 * in place, without gathering. Forward keeps a block of pixels by channels in registers over all
 * taps. The filter gradient is, for every row of pixels and every line of taps, a small product
 * whose left side is a line of the copy read with a stride of one pixel. */
#include "kernels/cpu/conv_impl.h"

enum { MAX_CHANNELS = 4, MAX_PRODUCTS = 1024, WANT_PIXELS = 512, WANT_CHUNKS = 16 };

bool wf_few_fits(const struct wf_conv_geom *g)
{
    return g->groups == 1 && g->c_in <= MAX_CHANNELS && g->w.k[0] <= 64 && g->w.k[1] <= 64 &&
           g->w.k[2] <= 64 && wf_volume(g->w.k) * g->c_in <= MAX_PRODUCTS &&
           g->w.dilation[1] <= 64 && g->w.dilation[2] <= 64 && g->w.stride[1] <= 64 &&
           g->w.stride[2] <= 64;
}

weft_status wf_few_plan(struct wf_conv *c, struct wf_arena *arena)
{
    const struct wf_conv_geom *g = &c->d.geom;
    const struct wf_window *w = &g->w;
    struct wf_few *p = &c->few;
    int64_t *offset;

    p->k = wf_volume(w->k) * g->c_in;
    p->rows = wf_min_i64(wf_max_i64(WANT_PIXELS / w->out[2], 1), w->out[1]);
    p->per_plane = wf_ceil_div(w->out[1], p->rows);
    p->n_tasks = g->batch * w->out[0] * p->per_plane;
    p->lines = (p->rows - 1) * w->stride[1] + (w->k[1] - 1) * w->dilation[1] + 1;
    p->width = (w->out[2] - 1) * w->stride[2] + (w->k[2] - 1) * w->dilation[2] + 1;
    p->offset = offset = wf_arena_alloc(arena, (size_t)p->k * sizeof *offset);
    if (!offset)
        return wf_err_nomem(arena->ctx, 0, "convolution");
    for (int64_t i = 0; i < p->k; i++) {
        int64_t tap = i / g->c_in, kw = tap % w->k[2], kh = tap / w->k[2] % w->k[1],
                kd = tap / w->k[2] / w->k[1];
        int64_t line = kd * p->lines + kh * w->dilation[1];

        offset[i] = (line * p->width + kw * w->dilation[2]) * g->c_in + i % g->c_in;
    }
    c->thread_floats = w->k[0] * p->lines * p->width * g->c_in;
    if (c->d.dir == WF_CONV_FORWARD) {
        c->shared_floats = wf_gemm_packed_b(c->gemm, p->k, g->c_out);
    } else {
        p->n_chunks = wf_min_i64(WANT_CHUNKS, p->n_tasks);
        c->shared_floats = wf_conv_chunk_floats(c, p->n_chunks);
    }
    return WEFT_OK;
}

/* A task: rows [row, row + n_rows) of output pixels of plane d of an image. */
struct part {
    int64_t image, d, row, n_rows;
    int64_t pixel; /* the first one, counted over the batch */
};

static struct part part_at(const struct wf_conv_run *r, int64_t task)
{
    const struct wf_few *p = &r->c->few;
    const int64_t *out = r->c->d.geom.w.out;
    struct part t = {.row = task % p->per_plane * p->rows};

    task /= p->per_plane;
    t.d = task % out[0];
    t.image = task / out[0];
    t.n_rows = wf_min_i64(p->rows, out[1] - t.row);
    t.pixel = (task * out[1] + t.row) * out[2];
    return t;
}

/* Copies what a task sees. */
static void copy_box(const struct wf_conv_run *r, const struct part *t, float *box)
{
    const struct wf_few *p = &r->c->few;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct wf_window *w = &g->w;
    int64_t x0 = wf_min_i64(w->lo[2], p->width),
            x1 = wf_max_i64(x0, wf_min_i64(p->width, w->lo[2] + w->in[2]));
    int64_t line_floats = p->width * g->c_in;

    for (int64_t i = 0; i < w->k[0] * p->lines; i++, box += line_floats) {
        int64_t d = t->d * w->stride[0] - w->lo[0] + i / p->lines * w->dilation[0];
        int64_t h = t->row * w->stride[1] - w->lo[1] + i % p->lines;

        if (d < 0 || d >= w->in[0] || h < 0 || h >= w->in[1]) {
            memset(box, 0, (size_t)line_floats * sizeof *box);
            continue;
        }
        memset(box, 0, (size_t)(x0 * g->c_in) * sizeof *box);
        memcpy(box + x0 * g->c_in,
               r->x + ((t->image * w->in[0] + d) * w->in[1] + h) * w->in[2] * g->c_in,
               (size_t)((x1 - x0) * g->c_in) * sizeof *box);
        memset(box + x1 * g->c_in, 0, (size_t)((p->width - x1) * g->c_in) * sizeof *box);
    }
}

/* ---- forward --------------------------------------------------------------------------------- */

static void pack_task(void *arg, int64_t panel, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_gemm_fns *gemm = r->c->gemm;
    int64_t k = r->c->few.k, n = r->c->d.geom.c_out, col = panel * gemm->nr;

    (void)thread;
    gemm->pack_b(r->shared + col * k, r->w + col, WF_GEMM_F32, n, false, k,
                 wf_min_i64(gemm->nr, n - col));
}

static void forward_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_few *p = &r->c->few;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct part t = part_at(r, task);
    float *box = wf_conv_thread(r, thread);
    struct wf_conv_row row = {.step = g->w.stride[2] * g->c_in,
                              .k = p->k,
                              .offset = p->offset,
                              .w = r->shared,
                              .w_ps = p->k * r->c->gemm->nr,
                              .ldy = g->c_out,
                              .n = g->w.out[2],
                              .n_c = g->c_out};

    copy_box(r, &t, box);
    for (int64_t i = 0; i < t.n_rows; i++) {
        row.x = box + i * g->w.stride[1] * p->width * g->c_in;
        row.y = r->y_out + (t.pixel + i * g->w.out[2]) * g->c_out;
        r->c->fns->row(&row);
        wf_conv_finish(r, thread, t.pixel + i * g->w.out[2], g->w.out[2], 0, g->c_out);
    }
}

/* ---- gradient of the filter ------------------------------------------------------------------ */

/* Adds the products of one task to dw, or starts with them. */
static void filter_part(const struct wf_conv_run *r, const struct part *t, const float *box,
                        float *dw, bool first)
{
    const struct wf_few *p = &r->c->few;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct wf_window *w = &g->w;
    /* Adjacent taps in the box are rows of one product. */
    int64_t together = w->dilation[2] == 1 ? w->k[2] * g->c_in : g->c_in;
    struct wf_gemm_block blk = {.m = together,
                                .n = g->c_out,
                                .k = w->out[2],
                                .a_rs = 1,
                                .a_cs = w->stride[2] * g->c_in,
                                .b_ld = g->c_out,
                                .ldc = g->c_out};

    for (int64_t i = 0; i < t->n_rows; i++)
        for (int64_t k = 0; k < p->k; k += together) {
            blk.a = box + i * w->stride[1] * p->width * g->c_in + p->offset[k];
            blk.b = r->y + (t->pixel + i * w->out[2]) * g->c_out;
            blk.c = dw + k * g->c_out;
            blk.accumulate = !first || i > 0;
            r->c->gemm->block(&blk);
        }
}

static void filter_task(void *arg, int64_t chunk, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_few *p = &r->c->few;
    int64_t from = chunk * p->n_tasks / p->n_chunks, to = (chunk + 1) * p->n_tasks / p->n_chunks;
    float *box = wf_conv_thread(r, thread);

    for (int64_t i = from; i < to; i++) {
        struct part t = part_at(r, i);

        copy_box(r, &t, box);
        filter_part(r, &t, box, wf_conv_chunk(r, chunk, p->n_chunks), i == from);
    }
}

void wf_few_run(struct wf_conv_run *r)
{
    const struct wf_few *p = &r->c->few;
    int64_t n = r->c->d.geom.c_out;

    if (r->c->d.dir == WF_CONV_FORWARD) {
        wf_pool_for(r->pool, wf_ceil_div(n, r->c->gemm->nr), pack_task, r);
        wf_pool_for(r->pool, p->n_tasks, forward_task, r);
    } else {
        wf_pool_for(r->pool, p->n_chunks, filter_task, r);
        wf_conv_add_chunks(r, p->n_chunks);
    }
}
