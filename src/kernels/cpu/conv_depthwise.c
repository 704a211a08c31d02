/* conv_depthwise.c - convolution of each channel separately, forward and both gradients.
 *
 * Vectors run over channels. Work is done by rows of pixels: within a row, pixels that see all taps
 * of the row are done in one call; those at its ends one by one, with the taps that exist. Views
 * (see conv_impl.h) make the gradient of the input the same loop. The filter gradient is summed
 * over chunks of rows. */
#include "kernels/cpu/conv_impl.h"

enum { TASK_FLOATS = 16384, WANT_CHUNKS = 16 };

bool wf_depthwise_fits(const struct wf_conv_geom *g)
{
    return g->groups == g->c_in && g->c_in > 0 && g->c_out % g->c_in == 0;
}

/* Floats of int64_t lists in the thread's memory: offsets and taps of a row, and of one pixel. */
static int64_t list_floats(int64_t n_taps)
{
    return 5 * n_taps * (int64_t)(sizeof(int64_t) / sizeof(float));
}

weft_status wf_depthwise_plan(struct wf_conv *c, struct wf_arena *arena)
{
    const struct wf_conv_geom *g = &c->d.geom;
    struct wf_depthwise *p = &c->depthwise;
    bool filter = c->d.dir == WF_CONV_GRAD_FILTER;
    weft_status st;

    c->general.rows = 1;
    c->general.c_src = c->general.c_dst = 1;
    st = wf_conv_make_views(c, arena);
    if (st)
        return st;
    p->mult = g->c_out / g->c_in;
    for (int64_t i = 0; i < c->general.n_views; i++) {
        const struct wf_conv_view *v = &c->general.views[i];

        p->n_rows += g->batch * v->n[0] * v->n[1];
    }
    p->rows = wf_max_i64(TASK_FLOATS / (c->general.views[0].n[2] * g->c_out), 1);
    p->n_tasks = wf_ceil_div(p->n_rows, p->rows);
    p->n_chunks = filter ? wf_min_i64(WANT_CHUNKS, p->n_rows) : 0;
    p->expanded = p->mult > 1 ? wf_round_up(g->batch * wf_volume(g->w.in) * g->c_out, 16) : 0;
    c->shared_floats = p->expanded + wf_conv_chunk_floats(c, p->n_chunks);
    c->thread_floats = list_floats(wf_volume(g->w.k));
    return WEFT_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A row of pixels of a view. */
struct row {
    const struct wf_conv_view *v;
    int64_t image, j[2];
};

static struct row row_at(const struct wf_conv_run *r, int64_t i)
{
    const struct wf_conv_view *v = r->c->general.views;
    int64_t n;

    while (i >= (n = r->c->d.geom.batch * v->n[0] * v->n[1])) {
        i -= n;
        v++;
    }
    return (struct row){v, i / v->n[1] / v->n[0], {i / v->n[1] % v->n[0], i % v->n[1]}};
}

/* The taps of a row that are in the image: where they are, which of the filter's they are, and how
 * far along the row. */
struct taps {
    int64_t n, *offset, *tap, *along, *one_offset, *one_tap;
    int64_t least, most; /* along the row */
};

static struct taps taps_of(const struct wf_conv_run *r, const struct row *row, const int64_t *size,
                           int thread)
{
    const struct wf_conv_view *v = row->v;
    int64_t channels = r->c->d.geom.c_out, n_all = wf_volume(r->c->d.geom.w.k);
    struct taps t = {.offset = (int64_t *)(void *)wf_conv_thread(r, thread)};

    t.tap = t.offset + n_all;
    t.along = t.tap + n_all;
    t.one_offset = t.along + n_all;
    t.one_tap = t.one_offset + n_all;
    for (int64_t i = 0; i < v->taps.n; i++) {
        int64_t d = row->j[0] * v->src_step[0] + v->taps.offset[0][i];
        int64_t h = row->j[1] * v->src_step[1] + v->taps.offset[1][i], w = v->taps.offset[2][i];

        if (d < 0 || d >= size[0] || h < 0 || h >= size[1])
            continue;
        t.offset[t.n] = ((d * size[1] + h) * size[2] + w) * channels;
        t.tap[t.n] = v->filter_tap[i] * channels;
        t.along[t.n] = w;
        t.least = t.n ? wf_min_i64(t.least, w) : w;
        t.most = t.n ? wf_max_i64(t.most, w) : w;
        t.n++;
    }
    return t;
}

/* Pixels from j on that see all taps of the row; 0 if j itself does not. */
static int64_t whole_run(const struct wf_conv_view *v, const struct taps *t, int64_t n_src,
                         int64_t j)
{
    int64_t last;

    if (j * v->src_step[2] + t->least < 0 || j * v->src_step[2] + t->most >= n_src)
        return 0;
    last = (n_src - 1 - t->most) / v->src_step[2];
    return wf_min_i64(v->n[2] - 1, last) - j + 1;
}

/* The taps that exist for pixel j. */
static int64_t taps_of_pixel(const struct wf_conv_view *v, const struct taps *t, int64_t n_src,
                             int64_t j)
{
    int64_t n = 0;

    for (int64_t i = 0; i < t->n; i++) {
        int64_t at = j * v->src_step[2] + t->along[i];

        if (at < 0 || at >= n_src)
            continue;
        t->one_offset[n] = t->offset[i];
        t->one_tap[n++] = t->tap[i];
    }
    return n;
}

/* Does one row: src has the pixels of `size`, dst those of the view; dw is set for the filter
 * gradient. */
static void run_row(const struct wf_conv_run *r, int64_t index, const float *src,
                    const int64_t *src_size, float *dst, const int64_t *dst_size, float *dw,
                    int thread)
{
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct row row = row_at(r, index);
    const struct wf_conv_view *v = row.v;
    const struct taps t = taps_of(r, &row, src_size, thread);
    int64_t to = row.image, run;

    for (int a = 0; a < 2; a++)
        to = to * dst_size[a] + v->first[a] + row.j[a] * v->step[a];
    src += row.image * wf_volume(src_size) * g->c_out;
    dst += (to * dst_size[2] + v->first[2]) * g->c_out;
    for (int64_t j = 0; j < v->n[2]; j += run) {
        struct wf_depth_row d = {.x = src,
                                 .x_step = v->src_step[2] * g->c_out,
                                 .w = r->w,
                                 .y = dst + j * v->step[2] * g->c_out,
                                 .y_step = v->step[2] * g->c_out,
                                 .channels = g->c_out,
                                 .n_taps = t.n,
                                 .offset = t.offset,
                                 .tap = t.tap};

        run = whole_run(v, &t, src_size[2], j);
        if (!run) {
            run = 1;
            d.n_taps = taps_of_pixel(v, &t, src_size[2], j);
            d.offset = t.one_offset;
            d.tap = t.one_tap;
        }
        d.n = run;
        d.x += j * d.x_step;
        if (dw)
            r->c->fns->depth_filter(&d, dw);
        else
            r->c->fns->depth(&d);
    }
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void forward_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_depthwise *p = &r->c->depthwise;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t from = task * p->rows, to = wf_min_i64(from + p->rows, p->n_rows);

    for (int64_t i = from; i < to; i++) {
        run_row(r, i, r->wide, g->w.in, r->y_out, g->w.out, NULL, thread);
        wf_conv_finish(r, thread, i * g->w.out[2], g->w.out[2], 0, g->c_out);
    }
}

static void grad_input_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_depthwise *p = &r->c->depthwise;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t from = task * p->rows, to = wf_min_i64(from + p->rows, p->n_rows);

    for (int64_t i = from; i < to; i++)
        run_row(r, i, r->y, g->w.out, r->wide_out, g->w.in, NULL, thread);
}

static void filter_task(void *arg, int64_t chunk, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_depthwise *p = &r->c->depthwise;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t from = chunk * p->n_rows / p->n_chunks, to = (chunk + 1) * p->n_rows / p->n_chunks;
    int64_t n = wf_volume(g->w.k) * g->c_out;
    float *dw = wf_conv_chunk(r, chunk, p->n_chunks);

    memset(dw, 0, (size_t)n * sizeof *dw);
    for (int64_t i = from; i < to; i++)
        run_row(r, i, r->wide, g->w.in, (float *)r->y, g->w.out, dw, thread);
}

/* Tasks: the pixels of one row of x or dx, from few channels to many or back. */
static void expand_task(void *arg, int64_t row, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t n = g->w.in[2] * g->c_in;

    (void)thread;
    r->c->fns->expand(r->wide_out + row * n * r->c->depthwise.mult, r->x + row * n, n,
                      r->c->depthwise.mult);
}

static void fold_task(void *arg, int64_t row, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t n = g->w.in[2] * g->c_in;

    (void)thread;
    r->c->fns->fold(r->x_out + row * n, r->wide_out + row * n * r->c->depthwise.mult, n,
                    r->c->depthwise.mult);
}

void wf_depthwise_run(struct wf_conv_run *r)
{
    const struct wf_depthwise *p = &r->c->depthwise;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t n_rows_x = g->batch * g->w.in[0] * g->w.in[1];
    bool widen = p->mult > 1;

    r->wide_out = widen ? r->shared : r->x_out;
    r->shared += p->expanded;
    if (widen && r->c->d.dir != WF_CONV_GRAD_INPUT)
        wf_pool_for(r->pool, n_rows_x, expand_task, r);
    r->wide = widen ? r->wide_out : r->x;
    switch (r->c->d.dir) {
    case WF_CONV_FORWARD: wf_pool_for(r->pool, p->n_tasks, forward_task, r); break;
    case WF_CONV_GRAD_INPUT:
        wf_pool_for(r->pool, p->n_tasks, grad_input_task, r);
        if (widen)
            wf_pool_for(r->pool, n_rows_x, fold_task, r);
        break;
    case WF_CONV_GRAD_FILTER:
        wf_pool_for(r->pool, p->n_chunks, filter_task, r);
        wf_conv_add_chunks(r, p->n_chunks);
        break;
    }
}
