/* winograd.c - 3 x 3 convolution by Winograd's F(4x4, 3x3), forward and both gradients.
 *
 * The output is divided into tiles of 4 x 4, and these into strips: whole images if they are small,
 * some rows of tiles of one image otherwise. A strip is one task, done in blocks of tiles: for a
 * block and a chunk of channels the tiles are transformed, their 36 elements give 36 small matrix
 * products, and the results are transformed back, all in memory that stays in the thread's cache;
 * meanwhile the pixels of the next block are prefetched. The gradient of the input adds overlapping
 * 6 x 6 patches: strips of an image take turns, the even ones first. The gradient of the filter is
 * summed over chunks of strips, then over the chunks. All divisions depend only on the shape and
 * the level. */
#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/levels.h"

enum {
    PLACES = 36,
    STRIP_TILES = 72, /* per strip, about */
    BLOCK_TILES = 20, /* per block, at most, unless a single row of tiles has more */
    BLOCK_TILES_FILTER = 36,
    CHUNK_C = 64,    /* channels transformed at a time */
    WANT_TASKS = 16, /* for the filter gradient */
    FILTER_K = 32    /* rows of a packed panel that one task transforms */
};

WF_LEVELS(wf_winograd_fns, wf_winograd_fns_of);

bool wf_winograd_fits(const struct wf_conv_geom *g)
{
    const struct wf_window *w = &g->w;
    bool plain = w->in[0] == 1 && w->k[0] == 1 && w->out[0] == 1 && w->lo[0] == 0;

    for (int a = 1; a < 3; a++)
        plain = plain && w->k[a] == 3 && w->stride[a] == 1 && w->dilation[a] == 1;
    return plain && g->groups == 1 && w->out[2] <= 1024;
}

/* ---- planning -------------------------------------------------------------------------------- */

/* An odd number of cache lines, so that the 36 elements of a tile map to different sets. */
static int64_t spread_lines(int64_t n_floats)
{
    return wf_round_up(n_floats, 32) + 16;
}

static void cut_strips(struct wf_winograd *p, const struct wf_conv_desc *d)
{
    const struct wf_conv_geom *g = &d->geom;
    int64_t most = d->dir == WF_CONV_GRAD_FILTER ? BLOCK_TILES_FILTER : BLOCK_TILES, n;

    p->th = wf_ceil_div(g->w.out[1], 4);
    p->tw = wf_ceil_div(g->w.out[2], 4);
    if (p->th * p->tw <= STRIP_TILES) {
        p->per_image = 0;
        p->strip = p->th * wf_min_i64(STRIP_TILES / (p->th * p->tw), g->batch);
        p->n_strips = wf_ceil_div(g->batch * p->th, p->strip);
    } else {
        n = wf_ceil_div(p->th, wf_max_i64(STRIP_TILES / p->tw, 1));
        p->strip = wf_ceil_div(p->th, n);
        p->per_image = wf_ceil_div(p->th, p->strip);
        p->n_strips = p->per_image * g->batch;
    }
    n = wf_ceil_div(p->strip, wf_max_i64(most / p->tw, 1));
    p->block = wf_ceil_div(p->strip, n);
}

/* Channels in chunks of nearly equal size, multiples of a panel of the matrix product. */
static int64_t chunk_of(int64_t channels, int64_t nr)
{
    int64_t n = wf_ceil_div(channels, CHUNK_C);

    return wf_round_up(wf_ceil_div(channels, n), nr);
}

void wf_winograd_plan(struct wf_conv *c)
{
    const struct wf_conv_geom *g = &c->d.geom;
    struct wf_winograd *p = &c->winograd;
    int64_t n_tiles, patch, work;

    p->fns = wf_winograd_fns_of(c->level);
    cut_strips(p, &c->d);
    p->c_in = chunk_of(g->c_in, c->gemm->nr);
    p->c_out = chunk_of(g->c_out, c->gemm->nr);
    n_tiles = p->block * p->tw;
    p->ps_in = spread_lines(n_tiles * p->c_in);
    p->ps_out = spread_lines(n_tiles * p->c_out);
    patch = PLACES * wf_max_i64(p->c_in, p->c_out);
    work = PLACES * (p->ps_in + p->ps_out) + patch;
    if (c->d.dir == WF_CONV_GRAD_FILTER) {
        int64_t cuts = wf_ceil_div(g->c_in, p->c_in) * wf_ceil_div(g->c_out, p->c_out);

        p->n_chunks = wf_max_i64(wf_min_i64(WANT_TASKS / cuts, p->n_strips), 1);
        p->ps_filter = spread_lines(p->c_in * p->c_out);
        work += PLACES * p->ps_filter;
        c->shared_floats = wf_conv_chunk_floats(c, p->n_chunks);
    } else {
        int64_t k = c->d.dir == WF_CONV_FORWARD ? g->c_in : g->c_out;
        int64_t n = c->d.dir == WF_CONV_FORWARD ? g->c_out : g->c_in;

        p->ps_filter = spread_lines(wf_gemm_packed_b(c->gemm, k, n));
        work += 9 * FILTER_K * c->gemm->nr;
        c->shared_floats = PLACES * p->ps_filter;
    }
    c->thread_floats = work;
}

/* ---- running: common parts ------------------------------------------------------------------- */

/* The memory of one thread. */
struct work {
    float *in, *out; /* transformed tiles: [36][tiles][channels] */
    float *patch;    /* one tile at an edge: [36][channels] */
    float *filter;   /* filter gradient: [36][c_in][c_out]; otherwise taps of a piece of the
                      * filter */
};

static struct work work_of(const struct wf_conv_run *r, int thread)
{
    const struct wf_winograd *p = &r->c->winograd;
    float *at = wf_conv_thread(r, thread);
    struct work w = {.in = at, .out = at + PLACES * p->ps_in};

    w.patch = w.out + PLACES * p->ps_out;
    w.filter = w.patch + PLACES * wf_max_i64(p->c_in, p->c_out);
    return w;
}

/* Rows of tiles, counted over all images: a strip or a block of it. */
struct rows {
    int64_t row, n_rows;
};

static struct rows strip_at(const struct wf_conv_run *r, int64_t i)
{
    const struct wf_winograd *p = &r->c->winograd;
    struct rows s;

    if (p->per_image) {
        int64_t first = i % p->per_image * p->strip;

        s.row = i / p->per_image * p->th + first;
        s.n_rows = wf_min_i64(p->strip, p->th - first);
    } else {
        s.row = i * p->strip;
        s.n_rows = wf_min_i64(p->strip, r->c->d.geom.batch * p->th - s.row);
    }
    return s;
}

/* Block i of a strip; beyond the strip the first block of the next one, or no rows if there is
 * none. */
static struct rows block_at(const struct wf_conv_run *r, int64_t strip, int64_t i)
{
    const struct wf_winograd *p = &r->c->winograd;
    struct rows s = strip_at(r, strip);

    if (i * p->block >= s.n_rows) {
        if (++strip >= p->n_strips)
            return (struct rows){0, 0};
        s = strip_at(r, strip);
        i = 0;
    }
    return (struct rows){s.row + i * p->block, wf_min_i64(p->block, s.n_rows - i * p->block)};
}

/* Memory that will soon be needed, prefetched in small parts between the 36 products of a block. */
struct ahead {
    const char *p;
    int64_t bytes;
};

static void fetch_ahead(const struct wf_conv *c, const struct ahead *a, int64_t part,
                        int64_t n_parts)
{
    int64_t from = a->bytes * part / n_parts / 64 * 64;

    c->fns->fetch(a->p + from, a->bytes * (part + 1) / n_parts - from);
}

/* The product of one element in pieces of a few hundred cycles each, before which a part of what
 * comes next is prefetched: the processor drops or stalls on more than a dozen or two at a time. */
static void multiply(const struct wf_conv *c, const struct wf_gemm_block *all, int64_t place,
                     const struct ahead *a, const struct ahead *b)
{
    const struct wf_gemm_fns *gemm = c->gemm;
    int64_t n_cols = wf_ceil_div(all->n, gemm->nr), n_rows = wf_ceil_div(all->m, gemm->mr);
    int64_t part = place * n_cols * n_rows, n_parts = PLACES * n_cols * n_rows;

    for (int64_t i = 0; i < n_cols; i++)
        for (int64_t j = 0; j < n_rows; j++, part++) {
            struct wf_gemm_block blk = *all;
            int64_t row = all->m * j / n_rows, col = i * gemm->nr;

            blk.m = all->m * (j + 1) / n_rows - row;
            blk.n = wf_min_i64(gemm->nr, all->n - col);
            blk.a += row * all->a_rs;
            blk.b += all->b_ld ? col : i * all->b_ps;
            blk.c += row * all->ldc + col;
            fetch_ahead(c, a, part, n_parts);
            fetch_ahead(c, b, part, n_parts);
            gemm->block(&blk);
        }
}

/* The pixel rows [first, first + n) of the images that contain rows of tiles `s`, shifted by `lo`:
 * of an array with n_y rows of row_floats each. */
static struct ahead pixels_of(const struct wf_winograd *p, struct rows s, const float *data,
                              int64_t n_y, int64_t row_floats, int64_t lo, int64_t size)
{
    int64_t last = s.row + s.n_rows - 1, from, to;

    if (!s.n_rows)
        return (struct ahead){(const char *)data, 0};
    from = s.row / p->th * n_y + wf_min_i64(n_y, wf_max_i64(s.row % p->th * 4 - lo, 0));
    to = last / p->th * n_y + wf_min_i64(n_y, wf_max_i64(last % p->th * 4 - lo + size, 0));
    return (struct ahead){(const char *)(data + from * row_floats), (to - from) * row_floats * 4};
}

static struct ahead input_pixels(const struct wf_conv_run *r, struct rows s, const float *x)
{
    const struct wf_conv_geom *g = &r->c->d.geom;

    return pixels_of(&r->c->winograd, s, x, g->w.in[1], g->w.in[2] * g->c_in, g->w.lo[1], 6);
}

static struct ahead output_pixels(const struct wf_conv_run *r, struct rows s, const float *y)
{
    const struct wf_conv_geom *g = &r->c->d.geom;

    return pixels_of(&r->c->winograd, s, y, g->w.out[1], g->w.out[2] * g->c_out, 0, 4);
}

/* A box of pixels of one image, clipped at the image's edges. */
struct box {
    int64_t y, x, h, w;     /* where it is; its size */
    int64_t y0, y1, x0, x1; /* the rows and columns of it that exist */
};

static struct box box_at(int64_t y, int64_t x, int64_t size, int64_t n_y, int64_t n_x)
{
    struct box b = {.y = y, .x = x, .h = size, .w = size};

    b.y0 = wf_max_i64(0, -y);
    b.x0 = wf_max_i64(0, -x);
    b.y1 = wf_max_i64(wf_min_i64(size, n_y - y), b.y0);
    b.x1 = wf_max_i64(wf_min_i64(size, n_x - x), b.x0);
    return b;
}

static bool whole(const struct box *b)
{
    return !b->y0 && !b->x0 && b->y1 == b->h && b->x1 == b->w;
}

/* Pixels that exist, n channels each, between an image and a patch [h][w][n]. */
static void copy_in(float *patch, const struct box *b, const float *image, int64_t rs, int64_t cs,
                    int64_t n)
{
    memset(patch, 0, (size_t)(b->h * b->w * n) * sizeof *patch);
    for (int64_t i = b->y0; i < b->y1; i++)
        for (int64_t j = b->x0; j < b->x1; j++)
            memcpy(patch + (i * b->w + j) * n, image + (b->y + i) * rs + (b->x + j) * cs,
                   (size_t)n * sizeof *patch);
}

static void copy_out(float *image, int64_t rs, int64_t cs, const struct box *b, const float *patch,
                     int64_t n)
{
    for (int64_t i = b->y0; i < b->y1; i++)
        for (int64_t j = b->x0; j < b->x1; j++)
            memcpy(image + (b->y + i) * rs + (b->x + j) * cs, patch + (i * b->w + j) * n,
                   (size_t)n * sizeof *patch);
}

static void add_out(const struct wf_conv *c, float *image, int64_t rs, int64_t cs,
                    const struct box *b, const float *patch, int64_t n)
{
    for (int64_t i = b->y0; i < b->y1; i++)
        c->gemm->add(image + (b->y + i) * rs + (b->x + b->x0) * cs, cs,
                     patch + (i * b->w + b->x0) * n, n, b->x1 - b->x0, n);
}

/* One side of the convolution as its tiles are read: images of rows by columns of channels, of
 * which a tile is `size` by `size` pixels, and where its transform goes. */
struct reading {
    const float *image;
    int64_t rows, columns, channels;
    int64_t size, lo_y, lo_x; /* what is padded before the first pixel */
    void (*fn)(float *to, int64_t to_ps, const float *from, int64_t rs, int64_t cs, int64_t n);
    float *to;
    int64_t to_ps, to_ld;
};

/* Transforms the tiles of a strip: channels [c0, c0 + n). */
static void transform(const struct wf_conv_run *r, const struct work *w, struct rows s, int64_t c0,
                      int64_t n, const struct reading *d)
{
    const struct wf_winograd *p = &r->c->winograd;
    int64_t cs = d->channels, rs = d->columns * cs;

    for (int64_t t = 0; t < s.n_rows * p->tw; t++) {
        int64_t row = s.row + t / p->tw, image = row / p->th;
        const float *x = d->image + image * d->rows * rs + c0;
        struct box b = box_at(row % p->th * 4 - d->lo_y, t % p->tw * 4 - d->lo_x, d->size, d->rows,
                              d->columns);

        if (whole(&b)) {
            d->fn(d->to + t * d->to_ld, d->to_ps, x + b.y * rs + b.x * cs, rs, cs, n);
        } else {
            copy_in(w->patch, &b, x, rs, cs, n);
            d->fn(d->to + t * d->to_ld, d->to_ps, w->patch, d->size * n, n, n);
        }
    }
}

static void transform_input(const struct wf_conv_run *r, const struct work *w, struct rows s,
                            int64_t c0, int64_t n)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;

    transform(r, w, s, c0, n,
              &(struct reading){r->x, g->w.in[1], g->w.in[2], g->c_in, 6, g->w.lo[1], g->w.lo[2],
                                p->fns->input, w->in, p->ps_in, p->c_in});
}

/* The same for the output gradients. */
static void transform_grad(const struct wf_conv_run *r, const struct work *w, struct rows s,
                           int64_t c0, int64_t n)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;

    transform(r, w, s, c0, n,
              &(struct reading){r->y, g->w.out[1], g->w.out[2], g->c_out, 4, 0, 0,
                                p->fns->grad_output, w->out, p->ps_out, p->c_out});
}

/* Task: transform FILTER_K rows of one panel of the packed filter. */
static void filter_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_gemm_fns *gemm = r->c->gemm;
    bool back = r->c->d.dir == WF_CONV_GRAD_INPUT;
    int64_t k = back ? g->c_out : g->c_in, n = back ? g->c_in : g->c_out, nr = gemm->nr;
    int64_t n_cuts = wf_ceil_div(k, FILTER_K), k0 = task % n_cuts * FILTER_K,
            col = task / n_cuts * nr;
    int64_t n_k = wf_min_i64(FILTER_K, k - k0), n_cols = wf_min_i64(nr, n - col);
    float *taps = work_of(r, thread).filter;

    for (int64_t t = 0; t < 9; t++) {
        const float *w = r->w + t * g->c_in * g->c_out;

        gemm->pack_b(taps + t * n_k * nr, w + (back ? col * g->c_out + k0 : k0 * g->c_out + col),
                     WF_GEMM_F32, g->c_out, back, n_k, n_cols);
    }
    p->fns->filter(r->shared + (col / nr * k + k0) * nr, p->ps_filter, taps, n_k * nr, n_k * nr);
}

static void transform_filter(struct wf_conv_run *r)
{
    const struct wf_conv_geom *g = &r->c->d.geom;
    bool back = r->c->d.dir == WF_CONV_GRAD_INPUT;
    int64_t k = back ? g->c_out : g->c_in, n = back ? g->c_in : g->c_out;

    wf_pool_for(r->pool, wf_ceil_div(k, FILTER_K) * wf_ceil_div(n, r->c->gemm->nr), filter_task, r);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Transforms back one row of tiles, the strip's row i: channels [c0, c0 + n). */
static void transform_output_row(const struct wf_conv_run *r, const struct work *w, struct rows s,
                                 int64_t i, int64_t c0, int64_t n)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t cs = g->c_out, rs = g->w.out[2] * cs, row = s.row + i;
    float *y = r->y_out + row / p->th * g->w.out[1] * rs + c0;

    for (int64_t t = 0; t < p->tw; t++) {
        struct box b = box_at(row % p->th * 4, t * 4, 4, g->w.out[1], g->w.out[2]);
        const float *m = w->out + (i * p->tw + t) * p->c_out;

        if (whole(&b)) {
            p->fns->output(y + b.y * rs + b.x * cs, rs, cs, m, p->ps_out, n);
        } else {
            p->fns->output(w->patch, 4 * n, n, m, p->ps_out, n);
            copy_out(y, rs, cs, &b, w->patch, n);
        }
    }
}

/* The transformed tiles of one side of the filter: of x or of y. */
struct side {
    float *tiles;
    int64_t ps, chunk, n_channels; /* floats between elements, channels of a chunk and in total */
    void (*transform)(const struct wf_conv_run *r, const struct work *w, struct rows s, int64_t c0,
                      int64_t n);
};

static struct side side_of_x(const struct wf_conv_run *r, const struct work *w)
{
    const struct wf_winograd *p = &r->c->winograd;

    return (struct side){w->in, p->ps_in, p->c_in, r->c->d.geom.c_in, transform_input};
}

static struct side side_of_y(const struct wf_conv_run *r, const struct work *w)
{
    const struct wf_winograd *p = &r->c->winograd;

    return (struct side){w->out, p->ps_out, p->c_out, r->c->d.geom.c_out, transform_grad};
}

/* The products of a block for n channels from n0 on: each element of `from` by that element of the
 * filter. `from` is transformed first, unless it still is from the channels before. What is ahead
 * is prefetched meanwhile, once per block. */
static void sum_channels(const struct wf_conv_run *r, const struct work *w, struct rows s,
                         const struct side *from, const struct side *to, int64_t n0, int64_t n,
                         const struct ahead *write, const struct ahead *read)
{
    const struct wf_conv *c = r->c;
    const struct ahead none = {0};
    int64_t nr = c->gemm->nr;

    for (int64_t k0 = 0; k0 < from->n_channels; k0 += from->chunk) {
        struct wf_gemm_block blk = {.m = s.n_rows * c->winograd.tw,
                                    .n = n,
                                    .k = wf_min_i64(from->chunk, from->n_channels - k0),
                                    .a_rs = from->chunk,
                                    .a_cs = 1,
                                    .b_ps = from->n_channels * nr,
                                    .ldc = to->chunk,
                                    .accumulate = k0 > 0};

        if (n0 == 0 || from->chunk < from->n_channels)
            from->transform(r, w, s, k0, blk.k);
        for (int64_t i = 0; i < PLACES; i++) {
            blk.a = from->tiles + i * from->ps;
            blk.b = r->shared + i * c->winograd.ps_filter + (n0 / nr * from->n_channels + k0) * nr;
            blk.c = to->tiles + i * to->ps;
            multiply(c, &blk, i, k0 + n0 ? &none : write, k0 + n0 ? &none : read);
        }
    }
}

static void forward_block(const struct wf_conv_run *r, int thread, struct rows s, struct rows next)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct work w = work_of(r, thread);
    const struct side from = side_of_x(r, &w), to = side_of_y(r, &w);
    const struct ahead write = output_pixels(r, s, r->y_out), read = input_pixels(r, next, r->x);

    for (int64_t n0 = 0; n0 < g->c_out; n0 += p->c_out) {
        int64_t n = wf_min_i64(p->c_out, g->c_out - n0);

        sum_channels(r, &w, s, &from, &to, n0, n, &write, &read);
        for (int64_t i = 0; i < s.n_rows; i++) {
            int64_t y = (s.row + i) % p->th * 4, image = (s.row + i) / p->th;

            transform_output_row(r, &w, s, i, n0, n);
            wf_conv_finish(r, thread, (image * g->w.out[1] + y) * g->w.out[2],
                           wf_min_i64(4, g->w.out[1] - y) * g->w.out[2], n0, n);
        }
    }
}

static void forward_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_winograd *p = &r->c->winograd;
    const int64_t n_rows = strip_at(r, task).n_rows;

    for (int64_t i = 0; i * p->block < n_rows; i++)
        forward_block(r, thread, block_at(r, task, i), block_at(r, task, i + 1));
}

/* ---- gradient of the input ------------------------------------------------------------------- */

/* Sets to zero the rows of dx that a row of tiles is the first to add to. Each adds to six rows, of
 * which two were started by the previous row of tiles. At the ends of an odd strip two rows were
 * started by the even strips around it. */
static void clear_rows(const struct wf_conv_run *r, int64_t row)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t n_y = g->w.in[1], row_floats = g->w.in[2] * g->c_in, ty = row % p->th;
    int64_t from = ty * 4 - g->w.lo[1] + 2, to = from + 4;

    if (p->per_image) {
        bool odd = ty / p->strip % 2;

        from -= !odd && ty % p->strip == 0 ? 2 : 0;
        to -= odd && ty % p->strip == p->strip - 1 ? 2 : 0;
    }
    from = ty == 0 ? 0 : wf_min_i64(wf_max_i64(from, 0), n_y);
    to = ty == p->th - 1 ? n_y : wf_min_i64(wf_max_i64(to, from), n_y);
    memset(r->x_out + (row / p->th * n_y + from) * row_floats, 0,
           (size_t)((to - from) * row_floats) * sizeof(float));
}

static void transform_back(const struct wf_conv_run *r, const struct work *w, struct rows s,
                           int64_t c0, int64_t n)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;
    int64_t cs = g->c_in, rs = g->w.in[2] * cs;

    for (int64_t t = 0; t < s.n_rows * p->tw; t++) {
        int64_t row = s.row + t / p->tw, image = row / p->th;
        float *dx = r->x_out + image * g->w.in[1] * rs + c0;

        if (t % p->tw == 0 && c0 == 0)
            clear_rows(r, row);

        struct box b = box_at(row % p->th * 4 - g->w.lo[1], t % p->tw * 4 - g->w.lo[2], 6,
                              g->w.in[1], g->w.in[2]);
        const float *v = w->in + t * p->c_in;

        if (whole(&b)) {
            p->fns->grad_input(dx + b.y * rs + b.x * cs, rs, cs, v, p->ps_in, n);
        } else {
            memset(w->patch, 0, (size_t)(PLACES * n) * sizeof(float));
            p->fns->grad_input(w->patch, 6 * n, n, v, p->ps_in, n);
            add_out(r->c, dx, rs, cs, &b, w->patch, n);
        }
    }
}

static void grad_input_block(const struct wf_conv_run *r, int thread, struct rows s,
                             struct rows next)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct work w = work_of(r, thread);
    const struct side from = side_of_y(r, &w), to = side_of_x(r, &w);
    const struct ahead write = input_pixels(r, s, r->x_out), read = output_pixels(r, next, r->y);

    for (int64_t n0 = 0; n0 < g->c_in; n0 += p->c_in) {
        int64_t n = wf_min_i64(p->c_in, g->c_in - n0);

        sum_channels(r, &w, s, &from, &to, n0, n, &write, &read);
        transform_back(r, &w, s, n0, n);
    }
}

static void grad_input_strip(const struct wf_conv_run *r, int64_t index, int thread)
{
    const struct wf_winograd *p = &r->c->winograd;
    const int64_t n_rows = strip_at(r, index).n_rows;

    for (int64_t i = 0; i * p->block < n_rows; i++)
        grad_input_block(r, thread, block_at(r, index, i), block_at(r, index, i + 1));
}

static void grad_input_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_winograd *p = &r->c->winograd;
    int64_t per_phase;

    if (!p->per_image) {
        grad_input_strip(r, task, thread);
        return;
    }
    per_phase = (p->per_image + 1 - r->phase) / 2;
    grad_input_strip(r, task / per_phase * p->per_image + task % per_phase * 2 + r->phase, thread);
}

static void run_grad_input(struct wf_conv_run *r)
{
    const struct wf_winograd *p = &r->c->winograd;

    if (!p->per_image) {
        wf_pool_for(r->pool, p->n_strips, grad_input_task, r);
        return;
    }
    for (r->phase = 0; r->phase < 2; r->phase++)
        wf_pool_for(r->pool, (p->per_image + 1 - r->phase) / 2 * r->c->d.geom.batch,
                    grad_input_task, r);
}

/* ---- gradient of the filter ------------------------------------------------------------------ */

/* Adds the products of one block to the thread's filter gradient: channels [m0, m0 + m) and [n0, n0
 * + n). */
static void grad_filter_block(const struct wf_conv_run *r, int thread, struct rows s,
                              struct rows next, struct wf_gemm_block blk, int64_t m0, int64_t n0)
{
    const struct wf_winograd *p = &r->c->winograd;
    const struct work w = work_of(r, thread);
    const struct ahead x = input_pixels(r, next, r->x), dy = output_pixels(r, next, r->y);

    blk.k = s.n_rows * p->tw;
    transform_input(r, &w, s, m0, blk.m);
    transform_grad(r, &w, s, n0, blk.n);
    for (int64_t i = 0; i < PLACES; i++) {
        blk.a = w.in + i * p->ps_in;
        blk.b = w.out + i * p->ps_out;
        blk.c = w.filter + i * p->ps_filter;
        multiply(r->c, &blk, i, &x, &dy);
    }
}

/* One chunk of strips for one pair of channel chunks. */
static void grad_filter_task(void *arg, int64_t task, int thread)
{
    const struct wf_conv_run *r = arg;
    const struct wf_winograd *p = &r->c->winograd;
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct work w = work_of(r, thread);
    int64_t n_n = wf_ceil_div(g->c_out, p->c_out), n_m = wf_ceil_div(g->c_in, p->c_in);
    int64_t n0 = task % n_n * p->c_out, m0 = task / n_n % n_m * p->c_in, chunk = task / n_n / n_m;
    int64_t from = chunk * p->n_strips / p->n_chunks, to = (chunk + 1) * p->n_strips / p->n_chunks;
    struct wf_gemm_block blk = {.m = wf_min_i64(p->c_in, g->c_in - m0),
                                .n = wf_min_i64(p->c_out, g->c_out - n0),
                                .a_rs = 1,
                                .a_cs = p->c_in,
                                .b_ld = p->c_out,
                                .ldc = p->c_out};
    float *dw = wf_conv_chunk(r, chunk, p->n_chunks) + m0 * g->c_out + n0;

    for (int64_t i = from; i < to; i++) {
        int64_t n_rows = strip_at(r, i).n_rows;

        for (int64_t j = 0; j * p->block < n_rows; j++) {
            struct rows s = block_at(r, i, j);

            grad_filter_block(r, thread, s, block_at(r, i, j + 1), blk, m0, n0);
            blk.accumulate = true;
        }
    }
    for (int64_t i = 0; i < blk.m; i++)
        p->fns->grad_filter(dw + i * g->c_out, g->c_in * g->c_out, w.filter + i * p->c_out,
                            p->ps_filter, blk.n);
}

static void run_grad_filter(struct wf_conv_run *r)
{
    const struct wf_conv_geom *g = &r->c->d.geom;
    const struct wf_winograd *p = &r->c->winograd;
    int64_t n_n = wf_ceil_div(g->c_out, p->c_out), n_m = wf_ceil_div(g->c_in, p->c_in);

    wf_pool_for(r->pool, p->n_chunks * n_n * n_m, grad_filter_task, r);
    wf_conv_add_chunks(r, p->n_chunks);
}

void wf_winograd_run(struct wf_conv_run *r)
{
    if (r->c->d.dir == WF_CONV_GRAD_FILTER) {
        run_grad_filter(r);
        return;
    }
    transform_filter(r);
    if (r->c->d.dir == WF_CONV_FORWARD)
        wf_pool_for(r->pool, r->c->winograd.n_strips, forward_task, r);
    else
        run_grad_input(r);
}
