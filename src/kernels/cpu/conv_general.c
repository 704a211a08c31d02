/* conv_general.c - convolution of any shape: gathered pixels times packed filters.
 *
 * What a pixel sees (taps x channels) is gathered into one row of a matrix, a tile of pixels at a
 * time, and that matrix is multiplied with the filters: the sums over K = taps x channels run in
 * blocks of whole taps. The gradient of the input is the same with reversed filters; with a stride,
 * its pixels fall into phases that see different taps, and each phase is a separate convolution.
 * The gradient of the filter multiplies the gathered matrix, transposed, with dy: chunks of tiles
 * are summed separately and then added in order. Tiles, blocks and chunks depend only on the shape
 * and the level. */
#include "kernels/cpu/conv_impl.h"

enum {
    MAX_ROWS = 56, /* pixels per tile */
    MAX_ROWS_FILTER = 96,
    MAX_K = 512, /* products of a block of K */
    MAX_K_FILTER = 256,
    MAX_N_FILTER = 128,
    WANT_TASKS = 16,
    MAX_VIEWS = 4096
};

/* ---- planning -------------------------------------------------------------------------------- */

/* The geometry of one axis of a view. */
struct axis {
    int64_t n, first, step, src_step, n_taps;
};

/* Phase p of axis a. Without lists, only counts the taps. */
static struct axis axis_of(const struct wf_conv *c, int a, int64_t p, int64_t *offset, int64_t *tap)
{
    const struct wf_window *w = &c->d.geom.w;
    struct axis x = {w->out[a], 0, 1, w->stride[a], 0};
    bool back = c->d.dir == WF_CONV_GRAD_INPUT;

    if (back)
        x = (struct axis){wf_ceil_div(w->in[a] - p, w->stride[a]), p, w->stride[a], 1, 0};
    for (int64_t i = 0; i < w->k[a]; i++) {
        int64_t k = back ? w->k[a] - 1 - i : i; /* offsets ascend */
        int64_t at = back ? p + w->lo[a] - k * w->dilation[a] : k * w->dilation[a] - w->lo[a];

        if (back && at % w->stride[a])
            continue;
        if (offset) {
            offset[x.n_taps] = back ? at / w->stride[a] : at;
            tap[x.n_taps] = k;
        }
        x.n_taps++;
    }
    return x;
}

static int64_t n_phases(const struct wf_conv *c, int a)
{
    const struct wf_window *w = &c->d.geom.w;

    return c->d.dir == WF_CONV_GRAD_INPUT ? wf_min_i64(w->stride[a], w->in[a]) : 1;
}

/* All taps of a view, from the lists of its axes. */
static void combine(const struct wf_conv *c, const struct axis x[3], int64_t *const offset[3],
                    int64_t *const tap[3], int64_t *to[3], int64_t *run, int64_t *filter_tap)
{
    const int64_t *k = c->d.geom.w.k;
    int64_t n = x[0].n_taps * x[1].n_taps * x[2].n_taps;

    for (int64_t t = 0; t < n; t++) {
        int64_t i[3] = {t / x[2].n_taps / x[1].n_taps, t / x[2].n_taps % x[1].n_taps,
                        t % x[2].n_taps};

        for (int a = 0; a < 3; a++)
            to[a][t] = offset[a][i[a]];
        filter_tap[t] = (tap[0][i[0]] * k[1] + tap[1][i[1]]) * k[2] + tap[2][i[2]];
    }
    for (int64_t t = n - 1; t >= 0; t--)
        run[t] =
            t % x[2].n_taps < x[2].n_taps - 1 && to[2][t + 1] == to[2][t] + 1 ? run[t + 1] + 1 : 1;
}

static weft_status make_view(const struct wf_conv *c, struct wf_arena *arena,
                             const int64_t phase[3], struct wf_conv_view *v)
{
    const struct wf_window *w = &c->d.geom.w;
    struct axis x[3];
    int64_t *offset[3], *tap[3], *to[3], *run, *filter_tap, n = 1;

    for (int a = 0; a < 3; a++) {
        offset[a] = wf_arena_alloc(arena, (size_t)w->k[a] * 2 * sizeof(int64_t));
        if (!offset[a])
            return wf_err_nomem(arena->ctx, 0, "convolution");
        tap[a] = offset[a] + w->k[a];
        x[a] = axis_of(c, a, phase[a], offset[a], tap[a]);
        v->n[a] = x[a].n;
        v->first[a] = x[a].first;
        v->step[a] = x[a].step;
        v->src_step[a] = x[a].src_step;
        n *= x[a].n_taps;
    }
    run = wf_arena_alloc(arena, (size_t)(n + 1) * 5 * sizeof(int64_t));
    if (!run)
        return wf_err_nomem(arena->ctx, 0, "convolution");
    filter_tap = run + n;
    for (int a = 0; a < 3; a++)
        v->taps.offset[a] = to[a] = filter_tap + (a + 1) * n;
    combine(c, x, offset, tap, to, run, filter_tap);
    v->taps.n = n;
    v->taps.run = run;
    v->filter_tap = filter_tap;
    v->n_pixels = c->d.geom.batch * wf_volume(v->n);
    return WEFT_OK;
}

weft_status wf_conv_make_views(struct wf_conv *c, struct wf_arena *arena)
{
    struct wf_general *p = &c->general;
    int64_t n[3] = {n_phases(c, 0), n_phases(c, 1), n_phases(c, 2)};
    struct wf_conv_view *views;

    if (n[0] > MAX_VIEWS || n[1] > MAX_VIEWS || n[2] > MAX_VIEWS || wf_volume(n) > MAX_VIEWS)
        return wf_err(WEFT_ENOSUP, "convolution: the strides are too large");
    p->n_views = wf_volume(n);
    p->views = views = wf_arena_alloc(arena, (size_t)p->n_views * sizeof *views);
    if (!views)
        return wf_err_nomem(arena->ctx, 0, "convolution");
    for (int64_t i = 0; i < p->n_views; i++) {
        int64_t phase[3] = {i / n[2] / n[1], i / n[2] % n[1], i % n[2]};
        weft_status st = make_view(c, arena, phase, &views[i]);

        if (st)
            return st;
        views[i].packed = p->packed_group;
        p->n_taps += views[i].taps.n;
        p->packed_group += p->narrow
                               ? views[i].taps.n * p->c_src * p->c_dst
                               : wf_gemm_packed_b(c->gemm, views[i].taps.n * p->c_src, p->c_dst);
        views[i].first_tile = p->n_tiles;
        views[i].n_tiles = wf_ceil_div(views[i].n_pixels, p->rows);
        p->n_tiles += views[i].n_tiles;
    }
    return WEFT_OK;
}

weft_status wf_general_plan(struct wf_conv *c, struct wf_arena *arena)
{
    const struct wf_conv_geom *g = &c->d.geom;
    struct wf_general *p = &c->general;
    bool back = c->d.dir == WF_CONV_GRAD_INPUT, filter = c->d.dir == WF_CONV_GRAD_FILTER;
    int64_t n_pixels = g->batch * wf_volume(back ? g->w.in : g->w.out),
            max_k = filter ? MAX_K_FILTER : MAX_K;
    int64_t n_blocks, tasks;
    weft_status st;

    p->c_src = (back ? g->c_out : g->c_in) / g->groups;
    p->c_dst = (back ? g->c_in : g->c_out) / g->groups;
    p->narrow = p->c_dst <= c->fns->narrow;
    p->rows =
        filter ? MAX_ROWS_FILTER
               : wf_min_i64(MAX_ROWS, wf_max_i64(c->gemm->mr, wf_ceil_div(n_pixels, WANT_TASKS)));
    p->block_taps = wf_max_i64(max_k / p->c_src, 1);
    p->block_c = wf_ceil_div(p->c_src, wf_ceil_div(p->c_src, max_k));
    st = wf_conv_make_views(c, arena);
    if (st)
        return st;
    p->block_taps = wf_min_i64(p->block_taps, wf_volume(g->w.k));
    p->ld = wf_round_up(p->block_taps * p->block_c, 32) + 16;
    p->n_cuts = filter ? wf_ceil_div(p->c_dst, MAX_N_FILTER) : 1;
    while (!filter && p->n_tiles * g->groups * p->n_cuts < WANT_TASKS &&
           p->c_dst > 2 * c->gemm->nr * p->n_cuts)
        p->n_cuts *= 2;
    p->tile_n = wf_round_up(wf_ceil_div(p->c_dst, p->n_cuts), c->gemm->nr);
    p->n_cuts = wf_ceil_div(p->c_dst, p->tile_n);
    c->thread_floats = p->rows * p->ld;
    if (back)
        c->thread_floats += p->rows * p->tile_n;
    if (filter && p->narrow)
        c->thread_floats += p->c_dst * p->ld;
    if (!filter) {
        c->shared_floats = g->groups * p->packed_group;
        return WEFT_OK;
    }
    n_blocks = wf_ceil_div(wf_volume(g->w.k), p->block_taps) * wf_ceil_div(p->c_src, p->block_c);
    tasks = g->groups * n_blocks * p->n_cuts;
    p->n_chunks = wf_max_i64(wf_min_i64(WANT_TASKS / tasks, p->n_tiles), 1);
    c->shared_floats = wf_conv_chunk_floats(c, p->n_chunks);
    return WEFT_OK;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Task: one panel of one tap of one view of one group. For narrow products, which have one panel,
 * the filter is packed as [c_dst][k]. */
static void pack_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_general *p = &r->c->general;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct wf_gemm_fns *gemm = r->c->gemm;
    bool back = r->c->d.dir == WF_CONV_GRAD_INPUT;
    int64_t n_panels = wf_ceil_div(p->c_dst, gemm->nr);
    int64_t panel = task % n_panels, tap = task / n_panels % p->n_taps,
            group = task / n_panels / p->n_taps;
    const struct wf_conv_view *v = p->views;
    int64_t col = panel * gemm->nr, from;

    (void)thread;
    while (tap >= v->taps.n)
        tap -= v++->taps.n;
    from = v->filter_tap[tap] * (g->c_in / g->groups) * g->c_out + group * (g->c_out / g->groups);
    float *dst = r->shared + group * p->packed_group + v->packed;

    if (!p->narrow) {
        gemm->pack_b(dst + (panel * v->taps.n + tap) * p->c_src * gemm->nr,
                     r->w + from + (back ? col * g->c_out : col), WF_GEMM_F32, g->c_out, back,
                     p->c_src, wf_min_i64(gemm->nr, p->c_dst - col));
        return;
    }
    for (int64_t j = 0; j < p->c_dst; j++)
        for (int64_t k = 0; k < p->c_src; k++)
            dst[(j * v->taps.n + tap) * p->c_src + k] =
                r->w[from + (back ? j * g->c_out + k : k * g->c_out + j)];
}

/* ---- forward, gradient of the input ---------------------------------------------------------- */

/* The position of a pixel of a view. */
struct pixel {
    int64_t image, j[3];
};

static struct pixel pixel_at(const struct wf_conv_view *v, int64_t i)
{
    struct pixel p;

    for (int a = 2; a >= 0; a--) {
        p.j[a] = i % v->n[a];
        i /= v->n[a];
    }
    p.image = i;
    return p;
}

static void next_pixel(const struct wf_conv_view *v, struct pixel *p)
{
    for (int a = 2; a >= 0; a--) {
        if (++p->j[a] < v->n[a])
            return;
        p->j[a] = 0;
    }
    p->image++;
}

/* A block of K: taps [tap, tap + n_taps), channels [c, c + n_c) of each. */
struct block {
    int64_t tap, n_taps, c, n_c;
};

static struct block block_at(const struct wf_general *p, int64_t n_taps, int64_t i)
{
    int64_t n_c = wf_ceil_div(p->c_src, p->block_c);
    struct block b = {.tap = i / n_c * p->block_taps, .c = i % n_c * p->block_c};

    b.n_taps = wf_min_i64(p->block_taps, n_taps - b.tap);
    b.n_c = wf_min_i64(p->block_c, p->c_src - b.c);
    return b;
}

/* Gathers pixels [row, row + n) of a view for a block of K of one group. */
static void gather_rows(const struct wf_conv_run *r, const struct wf_conv_view *v, int64_t row,
                        int64_t n, int64_t group, const struct block *b, float *dst)
{
    const struct wf_general *p = &r->c->general;
    const struct wf_conv_geom *g = &r->c->d.geom;
    bool back = r->c->d.dir == WF_CONV_GRAD_INPUT;
    const int64_t *size = back ? g->w.out : g->w.in;
    struct wf_conv_image src = {.n = {size[0], size[1], size[2]}, .channels = p->c_src * g->groups};
    int64_t image_floats = wf_volume(size) * src.channels;
    struct pixel at = pixel_at(v, row);

    for (int64_t i = 0; i < n; i++, next_pixel(v, &at)) {
        int64_t from[3] = {at.j[0] * v->src_step[0], at.j[1] * v->src_step[1],
                           at.j[2] * v->src_step[2]};

        src.data = (back ? r->y : r->x) + at.image * image_floats;
        r->c->fns->gather(dst + i * p->ld, &src, &v->taps, b->tap, b->tap + b->n_taps, from,
                          group * p->c_src + b->c, b->n_c);
    }
}

/* Writes rows of a result, whose pixels are not adjacent, to their positions. */
static void scatter_rows(const struct wf_conv_run *r, const struct wf_conv_view *v, int64_t row,
                         int64_t n, const float *src, int64_t ld, int64_t col, int64_t n_cols)
{
    const struct wf_conv_geom *g = &r->c->d.geom;
    struct pixel at = pixel_at(v, row);

    for (int64_t i = 0; i < n; i++, next_pixel(v, &at)) {
        int64_t to = at.image;

        for (int a = 0; a < 3; a++)
            to = to * g->w.in[a] + v->first[a] + at.j[a] * v->step[a];
        memcpy(r->x_out + to * g->c_in + col, src + i * ld, (size_t)n_cols * sizeof *src);
    }
}

/* Task: a tile of pixels, a group, some columns. */
static void tile_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_conv *c = r->c;
    const struct wf_general *p = &c->general;
    const struct wf_conv_geom *g = &c->d.geom;
    int64_t cut = task % p->n_cuts, group = task / p->n_cuts % g->groups,
            tile = task / p->n_cuts / g->groups;
    const struct wf_conv_view *v = p->views;
    float *gathered = wf_conv_thread(r, thread), *result = gathered + p->rows * p->ld;
    bool back = c->d.dir == WF_CONV_GRAD_INPUT, apart;

    while (tile >= v->first_tile + v->n_tiles)
        v++;
    apart = v->step[0] * v->step[1] * v->step[2] > 1;
    int64_t row = (tile - v->first_tile) * p->rows, n0 = cut * p->tile_n, k = v->taps.n * p->c_src;
    int64_t n_blocks = wf_ceil_div(v->taps.n, p->block_taps) * wf_ceil_div(p->c_src, p->block_c);
    int64_t col = group * p->c_dst + n0, channels = p->c_dst * g->groups;
    struct wf_gemm_block blk = {.m = wf_min_i64(p->rows, v->n_pixels - row),
                                .n = wf_min_i64(p->tile_n, p->c_dst - n0),
                                .a = gathered,
                                .a_rs = p->ld,
                                .a_cs = 1,
                                .b_ps = k * c->gemm->nr};

    blk.c = apart ? result : (back ? r->x_out : r->y_out) + row * channels + col;
    blk.ldc = apart ? p->tile_n : channels;
    for (int64_t i = 0; i < wf_max_i64(n_blocks, 1); i++) {
        struct block b = block_at(p, v->taps.n, i);

        gather_rows(r, v, row, blk.m, group, &b, gathered);
        blk.k = b.n_taps * b.n_c;
        blk.b = r->shared + group * p->packed_group + v->packed + n0 * k +
                (b.tap * p->c_src + b.c) * (p->narrow ? 1 : c->gemm->nr);
        blk.accumulate = i > 0;
        if (p->narrow)
            c->fns->dots(blk.c, blk.ldc, gathered, p->ld, blk.m, blk.b, k, blk.n, blk.k, i > 0);
        else
            c->gemm->block(&blk);
    }
    if (apart)
        scatter_rows(r, v, row, blk.m, result, p->tile_n, col, blk.n);
    else if (!back)
        wf_conv_finish(r, thread, row, blk.m, col, blk.n);
}

/* ---- gradient of the filter ------------------------------------------------------------------ */

/* Narrow: dw = (dyᵀ · gathered)ᵀ for the tiles [from, to), a group, a block of K. */
static void narrow_filter(const struct wf_conv_run *r, int64_t from, int64_t to, int64_t group,
                          const struct block *b, float *dw, int thread)
{
    const struct wf_general *p = &r->c->general;
    const struct wf_conv_geom *g = &r->c->d.geom;
    float *gathered = wf_conv_thread(r, thread), *sums = gathered + p->rows * p->ld;
    int64_t col = group * p->c_dst;
    struct wf_gemm_block blk = {.m = p->c_dst,
                                .n = b->n_taps * b->n_c,
                                .a_rs = 1,
                                .a_cs = g->c_out,
                                .b = gathered,
                                .b_ld = p->ld,
                                .c = sums,
                                .ldc = p->ld};

    for (int64_t i = from; i < to; i++) {
        int64_t row = i * p->rows;

        blk.k = wf_min_i64(p->rows, p->views->n_pixels - row);
        blk.a = r->y + row * g->c_out + col;
        blk.accumulate = i > from;
        gather_rows(r, p->views, row, blk.k, group, b, gathered);
        r->c->gemm->block(&blk);
    }
    for (int64_t k = 0; k < blk.n; k++)
        for (int64_t j = 0; j < p->c_dst; j++)
            dw[(b->tap * p->c_src + b->c + k) * g->c_out + col + j] = sums[j * p->ld + k];
}

/* Task: a chunk of pixel tiles, a group, a block of K, some columns. */
static void filter_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_conv *c = r->c;
    const struct wf_general *p = &c->general;
    const struct wf_conv_geom *g = &c->d.geom;
    const struct wf_conv_view *v = p->views;
    int64_t n_blocks = wf_ceil_div(v->taps.n, p->block_taps) * wf_ceil_div(p->c_src, p->block_c);
    int64_t cut = task % p->n_cuts, i_block = task / p->n_cuts % n_blocks;
    int64_t group = task / p->n_cuts / n_blocks % g->groups,
            chunk = task / p->n_cuts / n_blocks / g->groups;
    int64_t from = chunk * p->n_tiles / p->n_chunks, to = (chunk + 1) * p->n_tiles / p->n_chunks;
    int64_t col = group * p->c_dst + cut * p->tile_n;
    struct block b = block_at(p, v->taps.n, i_block);
    float *gathered = wf_conv_thread(r, thread);
    float *dw = wf_conv_chunk(r, chunk, p->n_chunks);
    struct wf_gemm_block blk = {.m = b.n_taps * b.n_c,
                                .n = wf_min_i64(p->tile_n, p->c_dst - cut * p->tile_n),
                                .a = gathered,
                                .a_rs = 1,
                                .a_cs = p->ld,
                                .b_ld = g->c_out,
                                .ldc = g->c_out};

    if (p->narrow) {
        narrow_filter(r, from, to, group, &b, dw, thread);
        return;
    }
    blk.c = dw + (b.tap * p->c_src + b.c) * g->c_out + col;
    for (int64_t i = from; i < to; i++) {
        int64_t row = i * p->rows;

        blk.k = wf_min_i64(p->rows, v->n_pixels - row);
        blk.b = r->y + row * g->c_out + col;
        blk.accumulate = i > from;
        gather_rows(r, v, row, blk.k, group, &b, gathered);
        c->gemm->block(&blk);
    }
}

void wf_general_run(struct wf_conv_run *r)
{
    const struct wf_general *p = &r->c->general;
    const struct wf_conv_geom *g = &r->c->d.geom;

    if (r->c->d.dir == WF_CONV_GRAD_FILTER) {
        int64_t n_blocks =
            wf_ceil_div(wf_volume(g->w.k), p->block_taps) * wf_ceil_div(p->c_src, p->block_c);

        wf_pool_for(r->pool, p->n_chunks * g->groups * n_blocks * p->n_cuts, filter_task, r);
        wf_conv_add_chunks(r, p->n_chunks);
        return;
    }
    wf_pool_for(r->pool, wf_ceil_div(p->c_dst, r->c->gemm->nr) * p->n_taps * g->groups, pack_task,
                r);
    wf_pool_for(r->pool, p->n_tiles * g->groups * p->n_cuts, tile_task, r);
}
