/* norm.c - normalisation of whole tensors: tiles for the pool, partial sums added in tile order. */
#include "kernels/cpu/norm.h"

#include <math.h>

extern const struct wf_norm_fns wf_norm_fns_portable;
#if defined(__x86_64__)
extern const struct wf_norm_fns wf_norm_fns_avx2, wf_norm_fns_avx512;
#endif

const struct wf_norm_fns *wf_norm_fns_at(weft_simd level)
{
#if defined(__x86_64__)
    if (level == WEFT_SIMD_AVX512)
        return &wf_norm_fns_avx512;
    if (level == WEFT_SIMD_AVX2)
        return &wf_norm_fns_avx2;
#endif
    (void)level;
    return &wf_norm_fns_portable;
}

static int64_t n_parts(int64_t n, int64_t size)
{
    return (n + size - 1) / size;
}

/* ---- layer and RMS norm ------------------------------------------------------------------ */

enum { TILE_ELEMENTS = 8192, PART_COLUMNS = 256 };

static int64_t layer_rows(int64_t width)
{
    return wf_max_i64(1, TILE_ELEMENTS / wf_max_i64(1, width));
}

/* Tiles of the backward pass leave a part of dgamma and dbeta each: at most 64 of them, 32 rows at
 * least, a multiple of the four rows the kernel takes together. */
static int64_t grad_rows(int64_t n_rows)
{
    return wf_round_up(wf_max_i64(32, n_parts(n_rows, 64)), 4);
}

struct layer_job {
    const struct wf_norm_fns *f;
    const struct wf_layer_norm *p;
    const struct wf_layer_norm_grad *g;
};

static void layer_tile(void *arg, int64_t tile, int thread)
{
    const struct layer_job *j = arg;
    int64_t rows = layer_rows(j->p->width), begin = tile * rows;

    (void)thread;
    j->f->layer(j->p, begin, wf_min_i64(begin + rows, j->p->n_rows));
}

void wf_layer_norm(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_layer_norm *p)
{
    struct layer_job j = {f, p, NULL};

    wf_pool_for(pool, n_parts(p->n_rows, layer_rows(p->width)), layer_tile, &j);
}

int64_t wf_layer_norm_scratch(int64_t n_rows, int64_t width)
{
    return n_parts(n_rows, grad_rows(n_rows)) * 2 * width;
}

static void layer_grad_tile(void *arg, int64_t tile, int thread)
{
    const struct layer_job *j = arg;
    const struct wf_layer_norm_grad *g = j->g;
    int64_t rows = grad_rows(g->n_rows), begin = tile * rows;
    float *part = g->dgamma || g->dbeta ? g->scratch + tile * 2 * g->width : NULL;

    (void)thread;
    j->f->layer_grad(g, begin, wf_min_i64(begin + rows, g->n_rows), part);
}

static void layer_add_tile(void *arg, int64_t tile, int thread)
{
    const struct layer_job *j = arg;
    const struct wf_layer_norm_grad *g = j->g;
    int64_t c = tile * PART_COLUMNS, n_cols = wf_min_i64(PART_COLUMNS, g->width - c);
    int64_t n = n_parts(g->n_rows, grad_rows(g->n_rows));

    (void)thread;
    if (g->dgamma)
        j->f->add_parts(n, 2 * g->width, n_cols, g->scratch + c, g->dgamma + c);
    if (g->dbeta)
        j->f->add_parts(n, 2 * g->width, n_cols, g->scratch + g->width + c, g->dbeta + c);
}

void wf_layer_norm_grad(const struct wf_norm_fns *f, struct wf_pool *pool,
                        const struct wf_layer_norm_grad *p)
{
    struct layer_job j = {f, NULL, p};

    wf_pool_for(pool, n_parts(p->n_rows, grad_rows(p->n_rows)), layer_grad_tile, &j);
    if (p->dgamma || p->dbeta)
        wf_pool_for(pool, n_parts(p->width, PART_COLUMNS), layer_add_tile, &j);
}

/* ---- channels: the grid of tiles --------------------------------------------------------- */

/* Columns are cut at 512 so that a tile of eight rows or more stays in the first cache; the last
 * tile takes the rest as well, for a tile narrower than a vector would have to be contiguous. */
enum { TILE_COLUMNS = 512, MIN_TILE_ROWS = 8, MAX_TILE_ROWS = 512, WIDEST_VECTOR = 16 };

struct grid {
    struct wf_chan_shape s;
    int64_t rows, n_row_tiles, n_col_tiles;
    int64_t pattern; /* floats of one array of per-channel values, repeated where rows are narrow */
};

static struct grid grid_of(const struct wf_chan_shape *s)
{
    int64_t width = wf_max_i64(1, wf_min_i64(s->n_channels, TILE_COLUMNS));
    int64_t rows = wf_max_i64(MIN_TILE_ROWS, wf_min_i64(MAX_TILE_ROWS, TILE_ELEMENTS / width));
    int64_t repeat = s->n_channels < WIDEST_VECTOR ? WIDEST_VECTOR : 1;

    return (struct grid){*s, rows, n_parts(s->n_rows, rows),
                         wf_max_i64(1, s->n_channels / TILE_COLUMNS),
                         wf_round_up(s->n_channels * repeat, WIDEST_VECTOR)};
}

/* Where a tile stands: the part of x it covers. */
struct place {
    int64_t outer, row_tile, at, column;
    struct wf_cols cols;
};

static struct place place_of(const struct grid *g, int64_t tile)
{
    int64_t c = tile % g->n_col_tiles, r = tile / g->n_col_tiles % g->n_row_tiles;
    int64_t outer = tile / (g->n_col_tiles * g->n_row_tiles);
    struct place p = {.outer = outer, .row_tile = r, .column = c * TILE_COLUMNS};

    p.cols.n_rows = wf_min_i64(g->rows, g->s.n_rows - r * g->rows);
    p.cols.n_cols = c + 1 < g->n_col_tiles ? TILE_COLUMNS : g->s.n_channels - p.column;
    p.cols.ld = g->s.n_channels;
    p.at = (outer * g->s.n_rows + r * g->rows) * g->s.n_channels + p.column;
    return p;
}

static int64_t n_grid_tiles(const struct grid *g)
{
    return g->s.n_outer * g->n_row_tiles * g->n_col_tiles;
}

/* Scratch: parts [n_outer, n_row_tiles, 2, n_channels], sums [n_outer, 2, n_channels], then four
 * arrays of per-channel values for each outer. */
enum { N_ARRAYS = 4 };

int64_t wf_chan_scratch(const struct wf_chan_shape *s)
{
    struct grid g = grid_of(s);

    return s->n_outer * (2 * (g.n_row_tiles + 1) * s->n_channels + N_ARRAYS * g.pattern) +
           WIDEST_VECTOR;
}

static float *parts_at(const struct grid *g, float *scratch, int64_t outer, int64_t row_tile)
{
    return scratch + (outer * g->n_row_tiles + row_tile) * 2 * g->s.n_channels;
}

static float *sums_at(const struct grid *g, float *scratch, int64_t outer)
{
    return parts_at(g, scratch, g->s.n_outer, 0) + outer * 2 * g->s.n_channels;
}

static float *array_at(const struct grid *g, float *scratch, int64_t outer, int i)
{
    float *base = scratch + wf_round_up(sums_at(g, scratch, g->s.n_outer) - scratch, WIDEST_VECTOR);

    return base + (outer * N_ARRAYS + i) * g->pattern;
}

/* Repeat narrow per-channel values, so that a vector may begin at any channel. */
static void repeat(const struct grid *g, int vector, float *array)
{
    int64_t n = g->s.n_channels;

    if (n < vector)
        for (int64_t i = n; i < n * vector; i++)
            array[i] = array[i - n];
}

/* ---- channels: statistics ---------------------------------------------------------------- */

struct chan_job {
    const struct wf_norm_fns *f;
    struct grid g;
    const float *x;
    float *mean, *var, *scratch;
    const struct wf_chan_norm *norm;
    const struct wf_chan_grad *grad;
};

static void stats_tile(void *arg, int64_t tile, int thread)
{
    const struct chan_job *j = arg;
    struct place p = place_of(&j->g, tile);
    float *part = parts_at(&j->g, j->scratch, p.outer, p.row_tile) + p.column;

    (void)thread;
    j->f->stats(p.cols, j->x + p.at, part, part + j->g.s.n_channels);
}

/* The channels' statistics into those of their groups. */
static void merge_tile(void *arg, int64_t outer, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_shape *s = &j->g.s;
    int64_t size = s->n_channels / s->n_groups;
    float *sums = sums_at(&j->g, j->scratch, outer);
    const float *m2 = sums + s->n_channels;

    (void)thread;
    j->f->merge_stats(s->n_rows, j->g.rows, 2 * s->n_channels, s->n_channels, s->n_channels,
                      parts_at(&j->g, j->scratch, outer, 0), sums, sums + s->n_channels);
    for (int64_t g = 0; g < s->n_groups; g++) {
        double mean = 0, total = 0;

        for (int64_t i = 0; i < size; i++) {
            int64_t c = g * size + i;
            double d = sums[c] - mean;

            mean += d / (double)(i + 1);
            total += m2[c] + d * d * (double)s->n_rows * (double)i / (double)(i + 1);
        }
        j->mean[outer * s->n_groups + g] = (float)mean;
        j->var[outer * s->n_groups + g] =
            s->n_rows ? (float)(total / (double)(s->n_rows * size)) : 0.0f;
    }
}

void wf_chan_stats(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_chan_shape *s,
                   const float *x, float *mean, float *var, float *scratch)
{
    struct chan_job j = {
        .f = f, .g = grid_of(s), .x = x, .mean = mean, .var = var, .scratch = scratch};

    if (!s->n_channels)
        return;
    wf_pool_for(pool, n_grid_tiles(&j.g), stats_tile, &j);
    wf_pool_for(pool, s->n_outer, merge_tile, &j);
}

/* ---- channels: forward ------------------------------------------------------------------- */

static double rstd_of(const float *var, float eps, int64_t i)
{
    return 1.0 / sqrt((double)var[i] + eps);
}

/* The per-channel arrays: forward uses the first three, backward k1, k2, k3 after the mean. */
enum { A_MEAN, A_SCALE, A_SHIFT, A_K2 = A_SHIFT, A_K3 };

static void norm_arrays(void *arg, int64_t outer, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_norm *p = j->norm;
    const struct wf_chan_shape *s = &p->shape;
    float *mean = array_at(&j->g, p->scratch, outer, A_MEAN),
          *scale = array_at(&j->g, p->scratch, outer, A_SCALE);
    float *shift = array_at(&j->g, p->scratch, outer, A_SHIFT);

    (void)thread;
    for (int64_t c = 0; c < s->n_channels; c++) {
        int64_t g = outer * s->n_groups + c / (s->n_channels / s->n_groups);

        mean[c] = p->mean[g];
        scale[c] = (float)(rstd_of(p->var, p->eps, g) * (p->gamma ? p->gamma[c] : 1.0f));
        shift[c] = p->beta ? p->beta[c] : 0.0f;
    }
    repeat(&j->g, j->f->vector, mean);
    repeat(&j->g, j->f->vector, scale);
    repeat(&j->g, j->f->vector, shift);
}

static void norm_tile(void *arg, int64_t tile, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_norm *p = j->norm;
    struct place at = place_of(&j->g, tile);

    (void)thread;
    j->f->affine(at.cols, p->x + at.at, array_at(&j->g, p->scratch, at.outer, A_MEAN) + at.column,
                 array_at(&j->g, p->scratch, at.outer, A_SCALE) + at.column,
                 array_at(&j->g, p->scratch, at.outer, A_SHIFT) + at.column, p->relu, p->y + at.at);
}

void wf_chan_norm(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_chan_norm *p)
{
    struct chan_job j = {.f = f, .g = grid_of(&p->shape), .norm = p};

    if (!p->shape.n_channels)
        return;
    wf_pool_for(pool, p->shape.n_outer, norm_arrays, &j);
    wf_pool_for(pool, n_grid_tiles(&j.g), norm_tile, &j);
}

/* ---- channels: backward ------------------------------------------------------------------ */

static void wf_grad_mean(void *arg, int64_t outer, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_grad *p = j->grad;
    const struct wf_chan_shape *s = &p->shape;
    float *mean = array_at(&j->g, p->scratch, outer, A_MEAN);

    (void)thread;
    for (int64_t c = 0; c < s->n_channels; c++)
        mean[c] = p->mean[outer * s->n_groups + c / (s->n_channels / s->n_groups)];
    repeat(&j->g, j->f->vector, mean);
}

static void grad_sums_tile(void *arg, int64_t tile, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_grad *p = j->grad;
    struct place at = place_of(&j->g, tile);
    float *part = parts_at(&j->g, p->scratch, at.outer, at.row_tile) + at.column;

    (void)thread;
    j->f->grad_sums(at.cols, p->x + at.at, p->dy + at.at, p->y ? p->y + at.at : NULL,
                    array_at(&j->g, p->scratch, at.outer, A_MEAN) + at.column, part,
                    part + j->g.s.n_channels);
}

/* Sums of an outer from its tiles, then the factors of dx: k1 = gamma rstd, k2 = rstd avg(dy
 * gamma), k3 = rstd^3 avg(dy gamma (x - mean)). */
static void grad_arrays(void *arg, int64_t outer, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_grad *p = j->grad;
    const struct wf_chan_shape *s = &p->shape;
    int64_t n = s->n_channels, size = n / s->n_groups;
    float *sums = sums_at(&j->g, p->scratch, outer),
          *k1 = array_at(&j->g, p->scratch, outer, A_SCALE);
    float *k2 = array_at(&j->g, p->scratch, outer, A_K2),
          *k3 = array_at(&j->g, p->scratch, outer, A_K3);

    (void)thread;
    j->f->add_parts(j->g.n_row_tiles, 2 * n, 2 * n, parts_at(&j->g, p->scratch, outer, 0), sums);
    for (int64_t g = 0; g < s->n_groups; g++) {
        double rstd = rstd_of(p->var, p->eps, outer * s->n_groups + g), avg = 0, avg_x = 0;
        double count = (double)(s->n_rows * size);

        for (int64_t c = g * size; c < (g + 1) * size; c++) {
            double gamma = p->gamma ? p->gamma[c] : 1.0;

            avg += gamma * sums[c];
            avg_x += gamma * sums[n + c];
        }
        for (int64_t c = g * size; c < (g + 1) * size; c++) {
            k1[c] = (float)((p->gamma ? p->gamma[c] : 1.0) * rstd);
            k2[c] = p->frozen ? 0.0f : (float)(rstd * avg / count);
            k3[c] = p->frozen ? 0.0f : (float)(rstd * rstd * rstd * avg_x / count);
        }
    }
    repeat(&j->g, j->f->vector, k1);
    repeat(&j->g, j->f->vector, k2);
    repeat(&j->g, j->f->vector, k3);
}

static void grad_dx_tile(void *arg, int64_t tile, int thread)
{
    const struct chan_job *j = arg;
    const struct wf_chan_grad *p = j->grad;
    struct place at = place_of(&j->g, tile);
    const float *array[N_ARRAYS];

    (void)thread;
    for (int i = 0; i < N_ARRAYS; i++)
        array[i] = array_at(&j->g, p->scratch, at.outer, i) + at.column;
    j->f->grad_dx(at.cols, p->x + at.at, p->dy + at.at, p->y ? p->y + at.at : NULL, array[A_MEAN],
                  array[A_SCALE], array[A_K2], array[A_K3], p->dx + at.at);
}

/* dgamma and dbeta: over outers in order. */
static void grad_params(const struct chan_job *j)
{
    const struct wf_chan_grad *p = j->grad;
    const struct wf_chan_shape *s = &p->shape;

    for (int64_t c = 0; c < s->n_channels; c++) {
        double dgamma = 0, dbeta = 0;

        for (int64_t o = 0; o < s->n_outer; o++) {
            const float *sums = sums_at(&j->g, p->scratch, o);

            dbeta += sums[c];
            dgamma += sums[s->n_channels + c] *
                      rstd_of(p->var, p->eps, o * s->n_groups + c / (s->n_channels / s->n_groups));
        }
        if (p->dgamma)
            p->dgamma[c] = (float)dgamma;
        if (p->dbeta)
            p->dbeta[c] = (float)dbeta;
    }
}

void wf_chan_grad(const struct wf_norm_fns *f, struct wf_pool *pool, const struct wf_chan_grad *p)
{
    struct chan_job j = {.f = f, .g = grid_of(&p->shape), .grad = p};

    if (!p->shape.n_channels)
        return;
    wf_pool_for(pool, p->shape.n_outer, wf_grad_mean, &j);
    wf_pool_for(pool, n_grid_tiles(&j.g), grad_sums_tile, &j);
    wf_pool_for(pool, p->shape.n_outer, grad_arrays, &j);
    if (p->dx)
        wf_pool_for(pool, n_grid_tiles(&j.g), grad_dx_tile, &j);
    if (p->dgamma || p->dbeta)
        grad_params(&j);
}
