/* gemm.c - whole matrix products: how C is cut into tiles, and the loops over them.
 *
 * C is cut into a grid of tiles; a tile is one task of the pool and runs down K in blocks of kc. B is read
 * in place, packed by each tile for itself, or packed once for all tiles in a phase before them. Where
 * C has too few tiles, K is cut too: the chunks leave partial products in scratch memory, and a last
 * phase adds them in order.
 * Every cut is a function of shape, types and level, never of the number of threads or of time. */
#include "kernels/cpu/gemm.h"

enum {
    ALIGN = 64,
    MAX_KC = 512,              /* longest K block: a panel of it stays in the L2 cache */
    MAX_TILE_M = 128,
    MAX_TILE_N = 512,
    WANT_TILES = 16,           /* so that several threads find work */
    MIN_TILE_WORK = 64 << 10,  /* multiply-adds below which cutting further costs more than it gives */
    SERIAL_WORK = 128 << 10,   /* multiply-adds that one thread does before another has woken up */
    PACK_K = 256               /* rows of B in one task of the packing phase */
};

extern const struct wf_gemm_fns wf_gemm_fns_portable;
#if defined(__x86_64__)
extern const struct wf_gemm_fns wf_gemm_fns_avx2, wf_gemm_fns_avx512;
#endif

const struct wf_gemm_fns *wf_gemm_fns_of(weft_simd level)
{
#if defined(__x86_64__)
    if (level == WEFT_SIMD_AVX512)
        return &wf_gemm_fns_avx512;
    if (level == WEFT_SIMD_AVX2)
        return &wf_gemm_fns_avx2;
#endif
    (void)level;
    return &wf_gemm_fns_portable;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t type_bytes(int type)
{
    return type == WF_GEMM_F32 ? 4 : 2;
}

int64_t wf_gemm_packed_b(const struct wf_gemm_fns *fns, int64_t k, int64_t n)
{
    return wf_round_up(n, fns->nr) * k;
}

int64_t wf_gemm_packed_a(const struct wf_gemm_fns *fns, int64_t k, int64_t m)
{
    return k * m + fns->nr; /* packing stores whole vectors */
}

/* ---- planning -------------------------------------------------------------------------------- */

/* Rows this far apart fall on few sets of the L1 cache and push each other out. */
static bool rows_collide(int64_t ld)
{
    return ld % 512 == 0;
}

/* Cut C into tiles of nearly equal size: enough of them, but none too small. */
static void cut_c(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t nr = g->fns->nr, mr = g->fns->mr;
    int64_t n_m = ceil_div(d->m, MAX_TILE_M), n_n = ceil_div(d->n, MAX_TILE_N);

    n_m = wf_max_i64(n_m, 1);
    n_n = wf_max_i64(n_n, 1);
    for (;;) {
        int64_t tm = ceil_div(d->m, n_m), tn = wf_round_up(ceil_div(d->n, n_n), nr);

        if (d->batch * n_m * n_n >= WANT_TILES || tm * tn * d->k < 2 * MIN_TILE_WORK)
            break;
        if (tn > WF_GEMM_WHOLE_ROWS && tn >= 2 * tm)
            n_n++;
        else if (tm > mr)
            n_m++;
        else if (tn > nr && d->n > WF_GEMM_WHOLE_ROWS)
            n_n++;
        else
            break;
    }
    g->tile_m = ceil_div(d->m, n_m);
    g->tile_n = wf_max_i64(wf_round_up(ceil_div(d->n, n_n), nr), nr);
    g->n_tiles_m = d->m ? ceil_div(d->m, g->tile_m) : 1; /* the column sums need a tile */
    g->n_tiles_n = ceil_div(d->n, g->tile_n);
    g->piece_n = wf_min_i64(g->tile_n, WF_GEMM_WHOLE_ROWS);
}

/* Blocks of K of nearly equal length; chunks of whole blocks when C alone gives too few tasks. */
static void cut_k(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t n_blocks = wf_max_i64(ceil_div(d->k, MAX_KC), 1);
    int64_t n_tiles = d->batch * g->n_tiles_m * g->n_tiles_n, n_chunks = 1;

    g->kc = wf_max_i64(ceil_div(d->k, n_blocks), 1);
    if (n_tiles < WANT_TILES / 4 && n_tiles)
        n_chunks = wf_min_i64(ceil_div(WANT_TILES / 2, n_tiles),
                              g->tile_m * g->tile_n * d->k / (2 * MIN_TILE_WORK));
    n_chunks = wf_max_i64(n_chunks, 1);
    if (n_chunks > n_blocks)
        g->kc = wf_max_i64(ceil_div(d->k, n_chunks), 1);
    n_blocks = wf_max_i64(ceil_div(d->k, g->kc), 1);
    g->chunk_k = ceil_div(n_blocks, n_chunks) * g->kc;
    g->n_chunks = wf_max_i64(ceil_div(d->k, g->chunk_k), 1);
}

static void choose_reads(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;

    if (d->type_a != WF_GEMM_F32 || (d->trans_a ? d->lda > 256 : rows_collide(d->lda)))
        g->read_a = WF_GEMM_PRIVATE;
    else
        g->read_a = WF_GEMM_DIRECT;
    if (d->type_b == WF_GEMM_F32 && !d->trans_b && g->tile_m <= 2 * g->fns->mr && g->n_tiles_m == 1)
        g->read_b = WF_GEMM_DIRECT;
    else if (g->n_tiles_m == 1 || (d->batch > 1 && d->stride_b))
        g->read_b = WF_GEMM_PRIVATE;
    else
        g->read_b = WF_GEMM_SHARED;
}

static int64_t batches_of_b(const struct wf_gemm_desc *d)
{
    return d->stride_b ? d->batch : wf_min_i64(d->batch, 1);
}

/* The distance of rows of a private copy of A: whole cache lines, an odd number of them. */
static int64_t a_copy_ld(const struct wf_gemm *g)
{
    return wf_round_up(g->kc, 32) + 16;
}

static int64_t a_floats(const struct wf_gemm *g)
{
    if (g->read_a == WF_GEMM_DIRECT)
        return 0;
    return wf_round_up(g->d.trans_a ? wf_gemm_packed_a(g->fns, g->kc, g->tile_m) : g->tile_m * a_copy_ld(g),
                       16);
}

static int64_t b_floats(const struct wf_gemm *g)
{
    return g->read_b == WF_GEMM_PRIVATE ? wf_round_up(g->kc * g->piece_n, 16) : 0;
}

void wf_gemm_plan(struct wf_gemm *g, const struct wf_gemm_desc *d, const struct wf_gemm_fns *fns,
                  int n_threads, size_t *scratch_bytes)
{
    size_t at = 0, work;

    *g = (struct wf_gemm){ .d = *d, .fns = fns, .n_threads = n_threads };
    cut_c(g);
    cut_k(g);
    choose_reads(g);
    g->serial = d->batch * d->m * wf_round_up(d->n, fns->nr / 2) * d->k <= SERIAL_WORK;

    if (g->read_b == WF_GEMM_SHARED)
        at += (size_t)(batches_of_b(d) * wf_gemm_packed_b(fns, d->k, d->n)) * sizeof(float);
    g->off_parts = at = (size_t)wf_round_up((int64_t)at, ALIGN);
    if (g->n_chunks > 1)
        at += (size_t)(g->n_chunks * d->batch * (d->m + d->col_sums) * d->n) * sizeof(float);
    g->off_threads = at = (size_t)wf_round_up((int64_t)at, ALIGN);
    work = (size_t)(a_floats(g) + b_floats(g));
    if (d->type_c != WF_GEMM_F32)
        work += (size_t)(g->tile_m * g->tile_n);
    g->thread_bytes = (size_t)wf_round_up((int64_t)(work * sizeof(float)), ALIGN);
    g->scratch_bytes = at + g->thread_bytes * (size_t)n_threads;
    *scratch_bytes = g->scratch_bytes;
}

/* ---- running --------------------------------------------------------------------------------- */

struct run {
    const struct wf_gemm *g;
    const char *a, *b;
    char *c;
    float *col_sums;
    char *scratch;
};

/* One tile of C over one chunk of K. */
struct tile {
    int64_t batch, row, n_rows, col, n_cols, k, n_k; /* k: the chunk's first */
    int64_t chunk;
    int thread;
    float *a_buf, *b_buf; /* the thread's */
    float *c;             /* where the sums go, as f32 */
    int64_t ldc;
};

static float *thread_scratch(const struct run *r, int thread)
{
    return (float *)(void *)(r->scratch + r->g->off_threads + (size_t)thread * r->g->thread_bytes);
}

static float *part_of(const struct run *r, int64_t chunk, int64_t batch)
{
    const struct wf_gemm_desc *d = &r->g->d;

    return (float *)(void *)(r->scratch + r->g->off_parts) + (chunk * d->batch + batch) * d->m * d->n;
}

static float *part_sums_of(const struct run *r, int64_t chunk, int64_t batch)
{
    const struct wf_gemm_desc *d = &r->g->d;

    return part_of(r, r->g->n_chunks, 0) + (chunk * d->batch + batch) * d->n;
}

static char *c_at(const struct run *r, int64_t batch, int64_t row, int64_t col)
{
    const struct wf_gemm_desc *d = &r->g->d;

    return r->c + (batch * d->stride_c + row * d->ldc + col) * type_bytes(d->type_c);
}

/* Task of the packing phase: PACK_K rows of one panel. */
static void pack_task(void *arg, int64_t task, int thread)
{
    const struct run *r = arg;
    const struct wf_gemm_desc *d = &r->g->d;
    const struct wf_gemm_fns *fns = r->g->fns;
    int64_t n_panels = ceil_div(d->n, fns->nr), n_cuts = ceil_div(d->k, PACK_K);
    int64_t panel = task / n_cuts % n_panels, batch = task / n_cuts / n_panels;
    int64_t k = task % n_cuts * PACK_K, n_k = wf_min_i64(PACK_K, d->k - k), col = panel * fns->nr;
    int64_t src = batch * d->stride_b + (d->trans_b ? col * d->ldb + k : k * d->ldb + col);
    float *dst = (float *)(void *)r->scratch + batch * wf_gemm_packed_b(fns, d->k, d->n) +
                 (panel * d->k + k) * fns->nr;

    (void)thread;
    fns->pack_b(dst, r->b + src * type_bytes(d->type_b), d->type_b, d->ldb, d->trans_b, n_k,
                wf_min_i64(fns->nr, d->n - col));
}

/* Say where a block finds A: rows of the tile, K from k. */
static void point_at_a(const struct run *r, const struct tile *t, int64_t k, struct wf_gemm_block *blk)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    int64_t from = t->batch * d->stride_a + (d->trans_a ? k * d->lda + t->row : t->row * d->lda + k);
    const char *src = r->a + from * type_bytes(d->type_a);

    if (g->read_a == WF_GEMM_DIRECT) {
        blk->a = (const float *)(const void *)src;
        blk->a_rs = d->trans_a ? 1 : d->lda;
        blk->a_cs = d->trans_a ? d->lda : 1;
    } else if (d->trans_a) {
        g->fns->pack_a(t->a_buf, src, d->type_a, d->lda, blk->k, t->n_rows);
        blk->a = t->a_buf;
        blk->a_packed = true;
    } else {
        g->fns->load(t->a_buf, a_copy_ld(g), src, d->type_a, d->lda, t->n_rows, blk->k);
        blk->a = t->a_buf;
        blk->a_rs = a_copy_ld(g);
        blk->a_cs = 1;
    }
}

/* Say where a block finds B: blk->n columns from col, K from k. */
static void point_at_b(const struct run *r, const struct tile *t, int64_t k, int64_t col,
                       struct wf_gemm_block *blk)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    int64_t from = t->batch * d->stride_b + (d->trans_b ? col * d->ldb + k : k * d->ldb + col);
    const char *src = r->b + from * type_bytes(d->type_b);

    if (g->read_b == WF_GEMM_DIRECT) {
        blk->b = (const float *)(const void *)src;
        blk->b_ld = d->ldb;
    } else if (g->read_b == WF_GEMM_SHARED) {
        int64_t batch = d->stride_b ? t->batch : 0;

        blk->b = (const float *)(const void *)r->scratch + batch * wf_gemm_packed_b(g->fns, d->k, d->n) +
                 col * d->k + k * g->fns->nr;
        blk->b_ps = d->k * g->fns->nr;
    } else {
        g->fns->pack_b(t->b_buf, src, d->type_b, d->ldb, d->trans_b, blk->k, blk->n);
        blk->b = t->b_buf;
        blk->b_ps = blk->k * g->fns->nr;
    }
}

/* A piece of C has its last sum: hand it to the epilogue, round it. */
static void finish_piece(const struct run *r, int thread, int64_t batch, int64_t row, int64_t n_rows,
                         int64_t col, int64_t n_cols, float *c, int64_t ldc)
{
    const struct wf_gemm_desc *d = &r->g->d;

    if (d->epilogue)
        d->epilogue(d->epilogue_arg, thread, batch, row, n_rows, col, n_cols, c, ldc);
    if (d->type_c != WF_GEMM_F32)
        r->g->fns->save(c_at(r, batch, row, col), d->type_c, d->ldc, c, ldc, n_rows, n_cols);
}

static void sum_columns(const struct run *r, const struct tile *t, int64_t col,
                        const struct wf_gemm_block *blk, bool first)
{
    const struct wf_gemm *g = r->g;
    float *dst = g->n_chunks > 1 ? part_sums_of(r, t->chunk, t->batch) : r->col_sums + t->batch * g->d.n;
    struct wf_gemm_block b = *blk;

    b.accumulate = !first;
    g->fns->col_sums(dst + col, &b);
}

static void run_tile(const struct run *r, const struct tile *t)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    const bool partial = g->n_chunks > 1;
    int64_t n_done = 0;

    do {
        struct wf_gemm_block blk = { .m = t->n_rows, .k = wf_min_i64(g->kc, t->n_k - n_done),
                                     .ldc = t->ldc, .accumulate = n_done || (d->accumulate && !partial) };
        int64_t k = t->k + n_done;
        bool last = n_done + blk.k == t->n_k;

        point_at_a(r, t, k, &blk);
        for (int64_t i = 0; i < t->n_cols; i += g->piece_n) {
            blk.n = wf_min_i64(g->piece_n, t->n_cols - i);
            blk.c = t->c + i;
            point_at_b(r, t, k, t->col + i, &blk);
            g->fns->block(&blk);
            if (d->col_sums && t->row == 0)
                sum_columns(r, t, t->col + i, &blk, n_done == 0);
            if (last && !partial && t->n_rows)
                finish_piece(r, t->thread, t->batch, t->row, t->n_rows, t->col + i, blk.n, blk.c, t->ldc);
        }
        n_done += blk.k;
    } while (n_done < t->n_k);
}

static void tile_task(void *arg, int64_t task, int thread)
{
    const struct run *r = arg;
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    float *scratch = thread_scratch(r, thread);
    struct tile t = { .thread = thread, .a_buf = scratch, .b_buf = scratch + a_floats(g) };

    t.row = task % g->n_tiles_m * g->tile_m;
    task /= g->n_tiles_m;
    t.col = task % g->n_tiles_n * g->tile_n;
    task /= g->n_tiles_n;
    t.chunk = task % g->n_chunks;
    t.batch = task / g->n_chunks;
    t.n_rows = wf_min_i64(g->tile_m, d->m - t.row);
    t.n_cols = wf_min_i64(g->tile_n, d->n - t.col);
    t.k = t.chunk * g->chunk_k;
    t.n_k = wf_min_i64(g->chunk_k, d->k - t.k);
    if (g->n_chunks > 1) {
        t.c = part_of(r, t.chunk, t.batch) + t.row * d->n + t.col;
        t.ldc = d->n;
    } else if (d->type_c != WF_GEMM_F32) {
        t.c = t.b_buf + b_floats(g);
        t.ldc = g->tile_n;
        if (d->accumulate)
            g->fns->load(t.c, t.ldc, c_at(r, t.batch, t.row, t.col), d->type_c, d->ldc, t.n_rows, t.n_cols);
    } else {
        t.c = (float *)(void *)c_at(r, t.batch, t.row, t.col);
        t.ldc = d->ldc;
    }
    run_tile(r, &t);
}

/* Task of the last phase: add the chunks of one piece of a tile, in order. */
static void reduce_task(void *arg, int64_t task, int thread)
{
    const struct run *r = arg;
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    int64_t n_pieces = ceil_div(d->n, g->piece_n);
    int64_t col = task % n_pieces * g->piece_n, n_cols = wf_min_i64(g->piece_n, d->n - col);
    int64_t row = task / n_pieces % g->n_tiles_m * g->tile_m, n_rows = wf_min_i64(g->tile_m, d->m - row);
    int64_t batch = task / n_pieces / g->n_tiles_m, ldc = d->n;
    float *c = part_of(r, 0, batch) + row * d->n + col;
    void *dst = c_at(r, batch, row, col);

    for (int64_t i = 1; i < g->n_chunks; i++)
        g->fns->add(c, ldc, part_of(r, i, batch) + row * d->n + col, d->n, n_rows, n_cols);
    if (d->type_c == WF_GEMM_F32) {
        if (d->accumulate)
            g->fns->add(dst, d->ldc, c, ldc, n_rows, n_cols);
        else
            g->fns->load(dst, d->ldc, c, WF_GEMM_F32, ldc, n_rows, n_cols);
        c = dst;
        ldc = d->ldc;
    } else if (d->accumulate) {
        float *old = thread_scratch(r, thread) + a_floats(g) + b_floats(g);

        g->fns->load(old, g->tile_n, dst, d->type_c, d->ldc, n_rows, n_cols);
        g->fns->add(c, ldc, old, g->tile_n, n_rows, n_cols);
    }
    if (d->col_sums && row == 0) {
        float *sums = r->col_sums + batch * d->n + col;

        g->fns->load(sums, d->n, part_sums_of(r, 0, batch) + col, WF_GEMM_F32, d->n, 1, n_cols);
        for (int64_t i = 1; i < g->n_chunks; i++)
            g->fns->add(sums, d->n, part_sums_of(r, i, batch) + col, d->n, 1, n_cols);
    }
    if (n_rows)
        finish_piece(r, thread, batch, row, n_rows, col, n_cols, c, ldc);
}

void wf_gemm_run(const struct wf_gemm *g, struct wf_pool *pool, const void *a, const void *b, void *c,
                 float *col_sums, void *scratch)
{
    const struct wf_gemm_desc *d = &g->d;
    struct run r = { g, a, b, c, col_sums, scratch };
    int64_t n_tiles = d->batch * g->n_tiles_m * g->n_tiles_n;

    if (g->serial)
        pool = NULL;
    if (g->read_b == WF_GEMM_SHARED)
        wf_pool_for(pool, batches_of_b(d) * ceil_div(d->n, g->fns->nr) * ceil_div(d->k, PACK_K), pack_task, &r);
    wf_pool_for(pool, n_tiles * g->n_chunks, tile_task, &r);
    if (g->n_chunks > 1)
        wf_pool_for(pool, d->batch * g->n_tiles_m * ceil_div(d->n, g->piece_n), reduce_task, &r);
}
