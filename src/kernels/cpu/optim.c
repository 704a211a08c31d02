/* optim.c - optimizer updates, norms and sparse rows: tiles for the pool around the SIMD kernels.
 * Tiles are fixed by the sizes alone, and sums of tiles are added in order. */
#include "kernels/cpu/levels.h"
#include "kernels/cpu/optim.h"

#include <math.h>

WF_LEVELS(wf_optim_fns, wf_optim_fns_at);

/* ---- dense updates ----------------------------------------------------------------------- */

/* Elements per tile. Small enough to distribute a 100 000-element model, large enough that taking a
 * tile costs nothing. */
enum { UPDATE_TILE = 4 * WF_NORM_BLOCK };

struct update_job {
    const struct wf_optim_fns *f;
    const struct wf_optim_scalars *k;
    int64_t n;
    float *w;
    const float *g;
    float *slot[WF_OPTIM_MAX_SLOTS];
};

static float *offset(float *p, int64_t n)
{
    return p ? p + n : NULL;
}

static void update_tile(void *arg, int64_t tile, int thread)
{
    const struct update_job *j = arg;
    int64_t at = tile * UPDATE_TILE;

    (void)thread;
    j->f->update[j->k->form](j->k, wf_min_i64(UPDATE_TILE, j->n - at), j->w + at, j->g + at,
                             offset(j->slot[0], at), offset(j->slot[1], at),
                             offset(j->slot[2], at));
}

void wf_optim_update(const struct wf_optim_fns *f, struct wf_pool *pool,
                     const struct wf_optim_scalars *k, int64_t n, float *w, const float *g,
                     float *const slot[WF_OPTIM_MAX_SLOTS])
{
    struct update_job j = {f, k, n, w, g, {slot[0], slot[1], slot[2]}};

    wf_pool_for(pool, (n + UPDATE_TILE - 1) / UPDATE_TILE, update_tile, &j);
}

/* ---- LAMB -------------------------------------------------------------------------------- */

struct lamb_job {
    const struct wf_optim_fns *f;
    const struct wf_optim_scalars *k;
    int64_t n;
    float *w, *m, *v;
    const float *g;
    double *sums;
};

struct lamb_apply_job {
    const struct wf_optim_fns *f;
    const struct wf_optim_scalars *k;
    float step;
    int64_t n;
    float *w;
    const float *m, *v;
};

int64_t wf_norm_blocks(int64_t n)
{
    return (n + WF_NORM_BLOCK - 1) / WF_NORM_BLOCK;
}

static void lamb_slots_tile(void *arg, int64_t tile, int thread)
{
    const struct lamb_job *j = arg;
    int64_t at = tile * WF_NORM_BLOCK;

    (void)thread;
    j->f->lamb_slots(j->k, wf_min_i64(WF_NORM_BLOCK, j->n - at), j->w + at, j->g + at, j->m + at,
                     j->v + at, &j->sums[2 * tile], &j->sums[2 * tile + 1]);
}

static void lamb_apply_tile(void *arg, int64_t tile, int thread)
{
    const struct lamb_apply_job *j = arg;
    int64_t at = tile * UPDATE_TILE;

    (void)thread;
    j->f->lamb_apply(j->k, j->step, wf_min_i64(UPDATE_TILE, j->n - at), j->w + at, j->m + at,
                     j->v + at);
}

void wf_lamb_slots(const struct wf_optim_fns *f, struct wf_pool *pool,
                   const struct wf_optim_scalars *k, int64_t n, float *w, const float *g, float *m,
                   float *v, double *sums)
{
    struct lamb_job j = {f, k, n, w, m, v, g, sums};

    wf_pool_for(pool, wf_norm_blocks(n), lamb_slots_tile, &j);
}

double wf_lamb_ratio(const double *sums, int64_t n_blocks)
{
    double w_sq = 0, q_sq = 0;

    for (int64_t i = 0; i < n_blocks; i++) {
        w_sq += sums[2 * i];
        q_sq += sums[2 * i + 1];
    }
    return w_sq > 0 && q_sq > 0 ? sqrt(w_sq / q_sq) : 1.0;
}

void wf_lamb_apply(const struct wf_optim_fns *f, struct wf_pool *pool,
                   const struct wf_optim_scalars *k, double ratio, int64_t n, float *w,
                   const float *m, const float *v)
{
    struct lamb_apply_job j = {f, k, (float)(k->lr * ratio), n, w, m, v};

    wf_pool_for(pool, (n + UPDATE_TILE - 1) / UPDATE_TILE, lamb_apply_tile, &j);
}

/* ---- norms ------------------------------------------------------------------------------- */

struct sumsq_job {
    const struct wf_optim_fns *f;
    const struct wf_span *spans;
    int64_t n_spans;
    double *blocks;
};

enum { SUMSQ_TILE = 4 }; /* blocks per tile */

/* Blocks are numbered across all spans; a tile finds its first span by walking the list. */
static void sumsq_tile(void *arg, int64_t tile, int thread)
{
    const struct sumsq_job *j = arg;
    int64_t block = tile * SUMSQ_TILE, end = block + SUMSQ_TILE, base = 0, s = 0;

    (void)thread;
    for (; block < end && s < j->n_spans; s++) {
        int64_t n_blocks = wf_norm_blocks(j->spans[s].n);

        for (; block < end && block < base + n_blocks; block++) {
            int64_t at = (block - base) * WF_NORM_BLOCK;

            j->blocks[block] =
                j->f->sumsq(wf_min_i64(WF_NORM_BLOCK, j->spans[s].n - at), j->spans[s].x + at);
        }
        base += n_blocks;
    }
}

int64_t wf_span_blocks(const struct wf_span *spans, int64_t n_spans)
{
    int64_t n = 0;

    for (int64_t s = 0; s < n_spans; s++)
        n += wf_norm_blocks(spans[s].n);
    return n;
}

void wf_span_sumsq(const struct wf_optim_fns *f, struct wf_pool *pool, const struct wf_span *spans,
                   int64_t n_spans, double *blocks, double *sq)
{
    struct sumsq_job j = {f, spans, n_spans, blocks};

    wf_pool_for(pool, (wf_span_blocks(spans, n_spans) + SUMSQ_TILE - 1) / SUMSQ_TILE, sumsq_tile,
                &j);
    for (int64_t s = 0; s < n_spans; s++) {
        int64_t n_blocks = wf_norm_blocks(spans[s].n);

        sq[s] = wf_sum_blocks(blocks, n_blocks);
        blocks += n_blocks;
    }
}

void wf_block_sumsq(const struct wf_optim_fns *f, struct wf_pool *pool, int64_t n, const float *x,
                    double *blocks)
{
    struct wf_span span = {x, n};
    struct sumsq_job j = {f, &span, 1, blocks};

    wf_pool_for(pool, (wf_norm_blocks(n) + SUMSQ_TILE - 1) / SUMSQ_TILE, sumsq_tile, &j);
}

double wf_sum_blocks(const double *blocks, int64_t n_blocks)
{
    double sum = 0;

    for (int64_t i = 0; i < n_blocks; i++)
        sum += blocks[i];
    return sum;
}

double wf_global_norm(const double *sq, int64_t n_spans)
{
    return sqrt(wf_sum_blocks(sq, n_spans));
}

/* ---- sparse rows ------------------------------------------------------------------------- */

enum { ROWS_TILE = 512 }; /* distinct rows per tile */

/* A power of two at least four times n: a quarter full, so that nearly every first probe
 * succeeds. */
static int64_t hash_size(int64_t n)
{
    int64_t size = 16;

    while (size < 4 * n)
        size *= 2;
    return size;
}

int64_t wf_dedupe_scratch(int64_t n)
{
    return (hash_size(n) + n) *
           (int64_t)sizeof(int32_t); /* the hash, and the last sample of each id */
}

static int64_t id_at(const struct wf_dedupe *d, int64_t i)
{
    return d->wide ? ((const int64_t *)d->ids)[i * d->id_stride]
                   : ((const int32_t *)d->ids)[i * d->id_stride];
}

/* A hash from id to its position among the distinct ones; -1 is free. Samples are visited in order,
 * so each chain of equal ids is in sample order. */
static void dedupe_one(struct wf_dedupe *d)
{
    int64_t size = hash_size(d->n), n_distinct = 0;
    int shift = 64 - __builtin_ctzll((unsigned long long)size);
    uint64_t mask = (uint64_t)size - 1;
    int32_t *hash = d->scratch, *last = hash + size;

    memset(hash, 0xff, (size_t)size * sizeof *hash);
    d->bad = -1;
    d->n_distinct = 0;
    for (int64_t i = 0; i < d->n; i++) {
        int64_t id = id_at(d, i);
        uint64_t h = (uint64_t)id * 0x9e3779b97f4a7c15u >> shift;
        int32_t u;

        if (id < 0 || id >= d->n_rows) {
            d->bad = i;
            return;
        }
        while ((u = hash[h]) >= 0 && d->rows[u] != id)
            h = (h + 1) & mask;
        d->next[i] = -1;
        if (u >= 0) {
            d->next[last[u]] = (int32_t)i;
            last[u] = (int32_t)i;
            continue;
        }
        hash[h] = (int32_t)n_distinct;
        d->rows[n_distinct] = id;
        d->first[n_distinct] = last[n_distinct] = (int32_t)i;
        n_distinct++;
    }
    d->n_distinct = n_distinct;
}

static void dedupe_tile(void *arg, int64_t tile, int thread)
{
    (void)thread;
    dedupe_one((struct wf_dedupe *)arg + tile);
}

int64_t wf_dedupe_run(struct wf_pool *pool, struct wf_dedupe *d, int64_t n_tables)
{
    wf_pool_for(pool, n_tables, dedupe_tile, d);
    for (int64_t t = 0; t < n_tables; t++)
        if (d[t].bad >= 0)
            return t;
    return -1;
}

struct sum_job {
    const struct wf_optim_fns *f;
    const struct wf_dedupe *d;
    int64_t width, g_stride;
    const float *g;
    float *out;
};

static void sum_tile(void *arg, int64_t tile, int thread)
{
    const struct sum_job *j = arg;
    int64_t end = wf_min_i64((tile + 1) * ROWS_TILE, j->d->n_distinct);

    (void)thread;
    for (int64_t u = tile * ROWS_TILE; u < end; u++)
        j->f->sum_chain(j->width, j->g, j->g_stride, j->d->first[u], j->d->next,
                        j->out + u * j->width);
}

void wf_dedupe_sum(const struct wf_optim_fns *f, struct wf_pool *pool, const struct wf_dedupe *d,
                   int64_t width, const float *g, int64_t g_stride, float *out)
{
    struct sum_job j = {f, d, width, g_stride, g, out};

    wf_pool_for(pool, (d->n_distinct + ROWS_TILE - 1) / ROWS_TILE, sum_tile, &j);
}

struct tables_job {
    const struct wf_optim_fns *f;
    const struct wf_optim_scalars *k;
    const struct wf_optim_table *tables;
    int64_t n_tables;
};

static int64_t n_chunks(const struct wf_optim_table *t)
{
    return (t->n + ROWS_TILE - 1) / ROWS_TILE;
}

static void tables_tile(void *arg, int64_t tile, int thread)
{
    const struct tables_job *j = arg;
    const struct wf_optim_table *t = j->tables;
    int64_t begin;

    (void)thread;
    for (; tile >= n_chunks(t); t++)
        tile -= n_chunks(t);
    begin = tile * ROWS_TILE;
    j->f->update_rows[j->k->form](j->k, t, begin, wf_min_i64(begin + ROWS_TILE, t->n));
}

void wf_optim_update_tables(const struct wf_optim_fns *f, struct wf_pool *pool,
                            const struct wf_optim_scalars *k, const struct wf_optim_table *tables,
                            int64_t n_tables)
{
    struct tables_job j = {f, k, tables, n_tables};
    int64_t n = 0;

    for (int64_t t = 0; t < n_tables; t++)
        n += n_chunks(&tables[t]);
    wf_pool_for(pool, n, tables_tile, &j);
}
