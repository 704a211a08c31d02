/* rowops.c - row-wise functions: tiles of rows for the pool around the SIMD kernels. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/rowops.h"

WF_LEVELS(wf_row_fns, wf_row_fns_at);

enum { TILE_ELEMENTS = 4096 }; /* a few microseconds of exp */

static int64_t tile_rows(int64_t width)
{
    return wf_max_i64(1, TILE_ELEMENTS / wf_max_i64(1, width));
}

static int64_t n_tiles(int64_t n_rows, int64_t width)
{
    int64_t rows = tile_rows(width);

    return (n_rows + rows - 1) / rows;
}

/* ---- functions of rows ------------------------------------------------------------------- */

struct map_job {
    int64_t n_rows, width, out_width; /* out_width: 1 if there is one result per row */
    void (*map)(int64_t, int64_t, const float *, float *);
    void (*map2)(int64_t, int64_t, const float *, const float *, float *);
    const float *x, *x2;
    float *y;
};

static void map_tile(void *arg, int64_t tile, int thread)
{
    const struct map_job *j = arg;
    int64_t begin = tile * tile_rows(j->width),
            n = wf_min_i64(tile_rows(j->width), j->n_rows - begin);

    (void)thread;
    if (j->map2)
        j->map2(n, j->width, j->x + begin * j->width, j->x2 + begin * j->width,
                j->y + begin * j->width);
    else
        j->map(n, j->width, j->x + begin * j->width, j->y + begin * j->out_width);
}

void wf_softmax(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows, int64_t width,
                const float *x, float *y)
{
    struct map_job j = {n_rows, width, width, f->softmax, NULL, x, NULL, y};

    wf_pool_for(pool, n_tiles(n_rows, width), map_tile, &j);
}

void wf_log_softmax(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows, int64_t width,
                    const float *x, float *y)
{
    struct map_job j = {n_rows, width, width, f->log_softmax, NULL, x, NULL, y};

    wf_pool_for(pool, n_tiles(n_rows, width), map_tile, &j);
}

void wf_logsumexp(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows, int64_t width,
                  const float *x, float *out)
{
    struct map_job j = {n_rows, width, 1, f->logsumexp, NULL, x, NULL, out};

    wf_pool_for(pool, n_tiles(n_rows, width), map_tile, &j);
}

void wf_softmax_grad(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows,
                     int64_t width, const float *y, const float *dy, float *dx)
{
    struct map_job j = {n_rows, width, width, NULL, f->softmax_grad, y, dy, dx};

    wf_pool_for(pool, n_tiles(n_rows, width), map_tile, &j);
}

void wf_log_softmax_grad(const struct wf_row_fns *f, struct wf_pool *pool, int64_t n_rows,
                         int64_t width, const float *y, const float *dy, float *dx)
{
    struct map_job j = {n_rows, width, width, NULL, f->log_softmax_grad, y, dy, dx};

    wf_pool_for(pool, n_tiles(n_rows, width), map_tile, &j);
}

/* ---- cross-entropies --------------------------------------------------------------------- */

struct xent_job {
    const struct wf_row_fns *f;
    const struct wf_xent *p;
    _Atomic int64_t bad; /* the smallest bad row so far; n_rows: none */
};

/* Atomic minimum: the result does not depend on the order of tiles. */
static void lower(_Atomic int64_t *to, int64_t value)
{
    int64_t seen = atomic_load(to);

    while (value < seen && !atomic_compare_exchange_weak(to, &seen, value))
        ;
}

static void sparse_tile(void *arg, int64_t tile, int thread)
{
    struct xent_job *j = arg;
    int64_t begin = tile * tile_rows(j->p->width);
    int64_t bad =
        j->f->xent_sparse(j->p, begin, wf_min_i64(begin + tile_rows(j->p->width), j->p->n_rows));

    (void)thread;
    if (bad >= 0)
        lower(&j->bad, bad);
}

int64_t wf_xent_sparse(const struct wf_row_fns *f, struct wf_pool *pool, const struct wf_xent *p)
{
    struct xent_job j = {f, p, p->n_rows};

    wf_pool_for(pool, n_tiles(p->n_rows, p->width), sparse_tile, &j);
    return j.bad < p->n_rows ? j.bad : -1;
}

static void dense_tile(void *arg, int64_t tile, int thread)
{
    const struct xent_job *j = arg;
    int64_t begin = tile * tile_rows(j->p->width);

    (void)thread;
    j->f->xent_dense(j->p, begin, wf_min_i64(begin + tile_rows(j->p->width), j->p->n_rows));
}

void wf_xent_dense(const struct wf_row_fns *f, struct wf_pool *pool, const struct wf_xent *p)
{
    struct xent_job j = {f, p, -1};

    wf_pool_for(pool, n_tiles(p->n_rows, p->width), dense_tile, &j);
}

struct sigmoid_job {
    const struct wf_row_fns *f;
    const struct wf_sigmoid_xent *p;
};

static void sigmoid_tile(void *arg, int64_t tile, int thread)
{
    const struct sigmoid_job *j = arg;
    int64_t begin = tile * TILE_ELEMENTS;

    (void)thread;
    j->f->xent_sigmoid(j->p, begin, wf_min_i64(begin + TILE_ELEMENTS, j->p->n));
}

void wf_xent_sigmoid(const struct wf_row_fns *f, struct wf_pool *pool,
                     const struct wf_sigmoid_xent *p)
{
    struct sigmoid_job j = {f, p};

    wf_pool_for(pool, n_tiles(p->n, 1), sigmoid_tile, &j);
}
