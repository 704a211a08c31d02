/* gemm.c - whole matrix products: how C is divided into tiles, and the loops over them.
 *
 * C is divided into a grid of tiles; a tile is one task of the pool and runs over K in blocks of
 * kc. B is read in place, packed by each tile separately, or packed once for all tiles in a phase
 * before them. If C has too few tiles, K is divided too: the chunks leave partial products in
 * scratch memory, and a last phase adds them in order. Every division is a function of shape, types
 * and level, never of the number of threads or of time. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/levels.h"

enum {
    ALIGN = 64,
    MAX_KC = 512,          /* longest K block: 64 columns of B by this stay in the L2 cache */
    PRIVATE_N = 64,        /* columns of B that a tile packs at a time */
    MAX_FINISH = 16 << 10, /* elements of C from which on they are handed to the epilogue */
    PACK_SHORT = 64,       /* B in one task of the packing phase: across its rows as stored, */
    PACK_LONG = 512,       /* and along them */
    STREAMED = 256 << 10,  /* elements of C from which on it does not stay in the L2 cache */
    OUTER_TILE = 64 << 10  /* elements */
};

/* One level more than other families have: the one with products of bf16. */
#if defined(__x86_64__)
extern const struct wf_gemm_fns wf_gemm_fns_portable, wf_gemm_fns_avx2, wf_gemm_fns_avx512,
    wf_gemm_fns_avx512bf16;

const struct wf_gemm_fns *wf_gemm_fns_of(weft_simd level)
{
    switch (level) {
    case WEFT_SIMD_AVX512BF16: return &wf_gemm_fns_avx512bf16;
    case WEFT_SIMD_AVX512: return &wf_gemm_fns_avx512;
    case WEFT_SIMD_AVX2: return &wf_gemm_fns_avx2;
    default: return &wf_gemm_fns_portable;
    }
}
#else
WF_LEVELS(wf_gemm_fns, wf_gemm_fns_of);
#endif

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t type_bytes(int type)
{
    return type == WF_GEMM_F32 ? 4 : 2;
}

/* How many of the matrices' elements along K are one of the kernels'. */
static int64_t per_element(const struct wf_gemm *g)
{
    return g->pairs ? 2 : 1;
}

int64_t wf_gemm_packed_b(const struct wf_gemm_fns *fns, int64_t k, int64_t n)
{
    return wf_round_up(n, fns->nr) * k;
}

int64_t wf_gemm_packed_a(const struct wf_gemm_fns *fns, int64_t k, int64_t m)
{
    (void)fns;
    return k * m;
}

/* ---- planning -------------------------------------------------------------------------------- */

/* A plan is the cheapest of a few hundred under a model of the cost in cycles, a cycle being one
 * vector multiply-add. The numbers were measured on Zen 4 (bench/gemm); they only have to rank
 * plans, and they are constants so that a shape has the same plan everywhere. */
#define COST_CALL 40.0 /* one register block, besides its multiply-adds */
#define COST_C 2.0     /* a vector of C, per K block */
#define COST_TILE 300.0
#define COST_DISPATCH 4000.0 /* a phase: waking threads and waiting for the last */
#define COST_COPY_A 0.3      /* packing, per element */
#define COST_PACK_A 0.4
#define COST_FAR_A 0.05 /* A rows that do not stay in the L2 cache, per element and step in N */
#define NEAR_A (64 << 10)
#define COST_PRIVATE_B 0.4
#define COST_SHARED_B 0.8
#define COST_REREAD_B 0.03 /* shared B, per element and tile */
#define COST_TURN_A 0.5    /* packing A like B, per element */
#define COST_FLIP 1.0      /* transposing C^T, per element */
#define COST_FAR_B 0.06    /* B in place but beyond the L2 cache, per element and tile */
#define FAR_B (256 << 10)
#define NEAR_B (256 << 10) /* elements of packed B that stay in the L2 cache */
#define LOW_ROWS 42        /* whole register blocks at each level but the portable one */
#define SHORT_K 32
#define LOW_WORK (1 << 20) /* multiply-adds of a tile that are worth handing out */
#define COST_REDUCE 1.0    /* a chunk's partial sum, per element */
#define COST_OTHERS_B 1.0  /* what a thread reads of a narrow B, per element */
#define PAGE_BYTES 4096
#define NEAR_PAGES 50        /* whose addresses a core keeps in its TLB */
#define COST_FAR_PAGE 0.0006 /* a page beyond those, as a fraction of the tile's cost */
#define MIN_PER_K 5.0        /* a register block's step in K: the latency of its chains */

static int64_t blocks_of_k(int64_t k)
{
    return wf_max_i64(ceil_div(k, MAX_KC), 1);
}

/* Whether rows of a matrix, ld floats apart, map to few sets of the L2 cache (assumed: 2048 sets of
 * 64 bytes). n such rows are read repeatedly. */
static bool rows_crowd(int64_t ld, int64_t n)
{
    int64_t apart = 1;

    if (ld % 16)
        return false;
    for (int64_t lines = ld / 16; lines % 2 == 0 && apart < 2048; lines /= 2)
        apart *= 2;
    return n * apart / 2048 > 4;
}

/* The multiply-adds of a tile, including the cost of partial register blocks and of C. */
static double cost_of_sums(const struct wf_gemm *g, double m, double n)
{
    const int64_t nr = g->fns->nr, vec = nr / 2;
    bool few = !g->d.trans_a && g->read_a == WF_GEMM_DIRECT &&
               g->d.lda % (1024 * per_element(g)) == 0 && g->fns->mr > 7;
    double groups = (double)ceil_div((int64_t)m, few ? 7 : g->fns->mr);
    double wide = (double)((int64_t)n / nr), rest = (double)ceil_div((int64_t)n % nr, vec);
    double blocks = (double)ceil_div(g->chunk_k, g->kc), least = MIN_PER_K * groups;
    double step = wide * (m * 2 > least ? m * 2 : least);

    if (rest > 0)
        step += m * rest > least ? m * rest : least;
    return step * (double)g->chunk_k + blocks * groups * (wide + (rest > 0)) * COST_CALL +
           blocks * m * (wide * 2 + rest) * COST_C;
}

/* The extra cost of reading B in place: the farther its rows are apart, the less the hardware
 * prefetches. */
static double cost_in_place(const struct wf_gemm *g)
{
    int64_t ld = g->d.ldb;

    if (rows_crowd(ld, g->kc))
        return g->tile_m > g->fns->mr ? 1.1 : 1.05;
    return ld >= 512 ? 1.04 : ld > 128 ? 1.02 : 1.005;
}

/* The extra cost of reading the transpose of A in place: each step in K is in another row, so a
 * register block walks over as many pages as its K block has rows, or fewer if they are short. */
static double cost_across_a(const struct wf_gemm *g)
{
    int64_t row_bytes = wf_min_i64(g->d.lda * (int64_t)sizeof(float), PAGE_BYTES);
    double n_pages = (double)(g->kc * row_bytes) / PAGE_BYTES;

    if (rows_crowd(g->d.lda, g->kc))
        return 1.3;
    return n_pages > NEAR_PAGES ? 1 + (n_pages - NEAR_PAGES) * COST_FAR_PAGE : 1;
}

/* One tile over one chunk of K. */
static double cost_of_tile(const struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;
    double m = (double)g->tile_m, n = (double)wf_min_i64(g->tile_n, d->n), k = (double)g->chunk_k;
    double cost = g->swap ? cost_of_sums(g, n, m) : cost_of_sums(g, m, n);

    if (g->swap) {
        if (g->read_a == WF_GEMM_PRIVATE)
            cost += m * k * COST_TURN_A;
        else
            cost *= rows_crowd(d->lda, g->kc) ? 1.05 : 1.01;
        return cost + m * n * COST_FLIP + COST_TILE;
    }
    if (g->read_b == WF_GEMM_DIRECT)
        cost *= cost_in_place(g);
    if (g->read_b == WF_GEMM_DIRECT && g->k * d->n > FAR_B)
        cost += k * n * COST_FAR_B;
    if (g->read_a == WF_GEMM_DIRECT && d->trans_a)
        cost *= cost_across_a(g) * (g->fns->mr < 8 ? 1.1 : 1);
    if (g->read_a == WF_GEMM_PRIVATE)
        cost += m * k * (d->trans_a ? COST_PACK_A : COST_COPY_A);
    if (g->tile_m * g->kc > NEAR_A)
        cost += m * k * n / (g->read_b == WF_GEMM_PRIVATE ? PRIVATE_N : WF_GEMM_WHOLE_ROWS) *
                COST_FAR_A;
    if (g->read_b == WF_GEMM_PRIVATE)
        cost += k * n * COST_PRIVATE_B;
    if (g->read_b == WF_GEMM_SHARED)
        cost += k * n * COST_REREAD_B;
    return cost + COST_TILE;
}

static int64_t batches_of_b(const struct wf_gemm_desc *d)
{
    return d->stride_b ? d->batch : wf_min_i64(d->batch, 1);
}

/* The total cost with that many threads. */
static double cost_with_threads(const struct wf_gemm *g, double tile, int64_t n_threads)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t n_tasks = d->batch * g->n_tiles_m * g->n_tiles_n * g->n_chunks;
    double c = (double)(d->batch * d->m * d->n), b = (double)(batches_of_b(d) * g->k * d->n);
    double cost = (double)ceil_div(n_tasks, n_threads) * tile,
           dispatch = n_threads > 1 ? COST_DISPATCH : 0;

    cost += dispatch;
    if (g->read_b == WF_GEMM_SHARED)
        cost += dispatch + b * COST_SHARED_B / (double)n_threads;
    if (g->n_chunks > 1)
        cost += dispatch + c * (double)g->n_chunks * COST_REDUCE / (double)n_threads;
    return cost;
}

/* If B is a weight matrix so narrow that its columns stay together, an optimizer writes it between
 * two such products, with its rows divided among the threads. A thread that reads rows which it
 * does not write gets them from another's cache, and gets its own back to write. So reading B costs
 * a thread more than the read itself, and a few chunks of K, each with its rows of B, may be worth
 * their extra sums. A thread gets consecutive tasks, of which n_tiles_m at a time read the same
 * piece of B. */
static double cost_of_others(const struct wf_gemm *g, int64_t n_threads)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t n_pieces = wf_max_i64(g->n_tiles_n * g->n_chunks, 1);
    int64_t n_read = ceil_div(ceil_div(g->n_tiles_m * n_pieces, n_threads), g->n_tiles_m);

    if (d->batch != 1 || d->trans_a || d->n > WF_GEMM_WHOLE_ROWS)
        return 0;
    return (double)(g->k * d->n) * (double)n_read / (double)n_pieces * COST_OTHERS_B;
}

/* Few threads count most, but many should have work too. */
static double cost_of_plan(const struct wf_gemm *g)
{
    double tile = cost_of_tile(g);

    return 4 * (cost_with_threads(g, tile, 2) + cost_of_others(g, 2)) +
           cost_with_threads(g, tile, 8) + cost_of_others(g, 8);
}

/* Fills in a candidate: C in tiles of about m x n, K in n_chunks. */
static void cut(struct wf_gemm *g, int64_t m, int64_t n, int64_t n_chunks)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t nr = g->fns->nr, n_blocks;

    g->tile_m = ceil_div(d->m, wf_max_i64(ceil_div(d->m, m), 1));
    g->tile_n = wf_max_i64(wf_round_up(ceil_div(d->n, wf_max_i64(ceil_div(d->n, n), 1)), nr), nr);
    g->n_tiles_m = d->m ? ceil_div(d->m, g->tile_m) : 1; /* the column sums need a tile */
    g->n_tiles_n = ceil_div(d->n, g->tile_n);
    g->piece_n = wf_min_i64(g->tile_n, WF_GEMM_WHOLE_ROWS);
    n_blocks = wf_max_i64(blocks_of_k(g->k), n_chunks);
    g->kc = wf_max_i64(ceil_div(g->k, n_blocks), 1);
    n_blocks = wf_max_i64(ceil_div(g->k, g->kc), 1);
    g->chunk_k = ceil_div(n_blocks, n_chunks) * g->kc;
    g->n_chunks = wf_max_i64(ceil_div(g->k, g->chunk_k), 1);
}

/* To be transposed, C has to be as narrow as one vector, and B is read in place. */
static bool can_swap(const struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;

    return d->n <= g->fns->nr / 2 && d->m > d->n && d->type_b == WF_GEMM_F32 &&
           !(d->col_sums && d->trans_b);
}

/* Rows of pairs can be read in place if each begins and ends with a whole one. */
static bool can_read_a(const struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;

    return g->pairs ? !d->trans_a && d->k % 2 == 0 && d->lda % 2 == 0 : d->type_a == WF_GEMM_F32;
}

/* The best way to read A and B for the division in g. */
static double choose_reads(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;
    int best_a = WF_GEMM_PRIVATE, best_b = WF_GEMM_PRIVATE;
    double best = -1, swapped;

    g->swap = false;

    for (int a = can_read_a(g) ? WF_GEMM_DIRECT : WF_GEMM_PRIVATE; a <= WF_GEMM_PRIVATE; a++)
        for (int b = d->type_b == WF_GEMM_F32 && !d->trans_b ? WF_GEMM_DIRECT : WF_GEMM_PRIVATE;
             b <=
             (g->n_tiles_m > 1 || batches_of_b(d) < d->batch ? WF_GEMM_SHARED : WF_GEMM_PRIVATE);
             b++) {
            double cost;

            g->read_a = a;
            g->read_b = b;
            cost = cost_of_plan(g);
            if (best < 0 || cost < best) {
                best = cost;
                best_a = a;
                best_b = b;
            }
        }
    if (can_swap(g)) {
        g->swap = true;
        g->read_a = d->type_a == WF_GEMM_F32 && d->trans_a ? WF_GEMM_DIRECT : WF_GEMM_PRIVATE;
        g->read_b = WF_GEMM_DIRECT;
        swapped = cost_of_plan(g);
        if (swapped < best)
            return swapped;
        g->swap = false;
    }
    g->read_a = best_a;
    g->read_b = best_b;
    return best;
}

/* Tries divisions; up to WF_GEMM_WHOLE_ROWS columns stay together. */
static void choose_cut(struct wf_gemm *g)
{
    static const int rows[] = {7, 14, 16, 21, 28, 32, 42, 56, 64, 84, 112, 128, 170, 256, 384, 512};
    static const int cols[] = {32, 64, 96, 128, 192, 256, 384, 512, 768, 1024};
    static const int chunks[] = {1, 2, 4, 8, 16};
    const struct wf_gemm_desc *d = &g->d;
    struct wf_gemm best = *g;
    double best_cost = -1;

    for (int i = 0; i < WF_COUNT(rows) && (i == 0 || rows[i - 1] < d->m); i++)
        for (int j = 0; j < WF_COUNT(cols) && (j == 0 || cols[j - 1] < d->n); j++) {
            if (d->n <= WF_GEMM_WHOLE_ROWS && cols[j] < d->n)
                continue;
            for (int c = 0; c < WF_COUNT(chunks); c++) {
                double cost;

                if (chunks[c] > 1 && chunks[c] * 64 > g->k)
                    break;
                cut(g, rows[i], cols[j], chunks[c]);
                cost = choose_reads(g);
                if (best_cost < 0 || cost < best_cost) {
                    best_cost = cost;
                    best = *g;
                }
                if (d->batch * g->n_tiles_m * g->n_tiles_n >= 16)
                    break;
            }
        }
    *g = best;
}

/* Tasks that follow each other have the rows of A in common, or else the columns of B. */
static bool by_rows(const struct wf_gemm *g)
{
    return g->read_b == WF_GEMM_SHARED && !g->d.trans_a;
}

/* Threads do not run equally fast, and each waits for the one with the last tile. Where B is packed
 * and stays in the L2 cache, low tiles cost nothing: cut them so. Bits do not depend on it. */
static void lower_tiles(struct wf_gemm *g)
{
    if (g->swap || g->n_chunks > 1 || g->tile_m <= LOW_ROWS || !by_rows(g) ||
        g->k * g->d.n > NEAR_B || LOW_ROWS * g->tile_n * g->k < LOW_WORK)
        return;
    cut(g, LOW_ROWS, g->tile_n, 1);
}

/* An epilogue has work to do for each row it is handed, which counts where K is short: hand it
 * whole rows. Bits do not depend on it. */
static void widen_tiles(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;

    if (!d->epilogue || g->swap || g->n_chunks > 1 || g->k > SHORT_K || g->tile_n >= d->n ||
        d->n > MAX_FINISH / LOW_ROWS)
        return;
    cut(g, wf_max_i64(g->tile_m * g->tile_n / d->n, LOW_ROWS), d->n, 1);
}

/* With K = 1 all time goes into writing C. What comes from the caches first, to be overwritten, is
 * half of it. */
static void choose_outer(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t rows = wf_max_i64(OUTER_TILE / wf_max_i64(d->n, 1), 1);

    if (d->k != 1 || d->accumulate || d->epilogue || d->trans_b || d->type_a != WF_GEMM_F32 ||
        d->type_b != WF_GEMM_F32 || d->type_c != WF_GEMM_F32 || d->n < PRIVATE_N ||
        d->m * d->n < STREAMED)
        return;
    cut(g, rows, d->n, 1);
    g->outer = true;
    g->swap = false;
    g->read_a = g->read_b = WF_GEMM_DIRECT;
}

/* The distance of rows of a private copy of A: whole cache lines, an odd number of them. */
static int64_t a_copy_ld(const struct wf_gemm *g)
{
    return wf_round_up(g->kc, 32) + 16;
}

/* Floats of each thread: a copy of A, a copy of B, C^T; then C if it is narrower than f32. */
static int64_t a_floats(const struct wf_gemm *g)
{
    if (g->swap || g->read_a == WF_GEMM_DIRECT)
        return 0;
    return wf_round_up(
        g->d.trans_a ? wf_gemm_packed_a(g->fns, g->kc, g->tile_m) : g->tile_m * a_copy_ld(g), 16);
}

static int64_t b_floats(const struct wf_gemm *g)
{
    if ((g->swap ? g->read_a : g->read_b) != WF_GEMM_PRIVATE)
        return 0;
    return wf_round_up(g->kc * (g->swap ? PRIVATE_N : wf_min_i64(PRIVATE_N, g->tile_n)), 16);
}

static int64_t flip_ld(const struct wf_gemm *g)
{
    return wf_round_up(g->tile_m, 16);
}

static int64_t own_floats(const struct wf_gemm *g)
{
    return a_floats(g) + b_floats(g) + (g->swap ? flip_ld(g) * g->d.n : 0);
}

/* Offsets in the scratch memory: packed B, the chunks' sums, each thread's own. */
static void lay_out(struct wf_gemm *g)
{
    const struct wf_gemm_desc *d = &g->d;
    size_t at = 0, own = (size_t)own_floats(g);

    if (g->read_b == WF_GEMM_SHARED)
        at += (size_t)(batches_of_b(d) * wf_gemm_packed_b(g->fns, g->k, d->n)) * sizeof(float);
    g->off_parts = at = (size_t)wf_round_up((int64_t)at, ALIGN);
    if (g->n_chunks > 1)
        at += (size_t)(g->n_chunks * d->batch * (d->m + d->col_sums) * d->n) * sizeof(float);
    g->off_threads = at = (size_t)wf_round_up((int64_t)at, ALIGN);
    if (d->type_c != WF_GEMM_F32)
        own += (size_t)(g->tile_m * g->tile_n);
    g->thread_bytes = (size_t)wf_round_up((int64_t)(own * sizeof(float)), ALIGN);
    g->scratch_bytes = at + g->thread_bytes * (size_t)g->n_threads;
}

void wf_gemm_plan(struct wf_gemm *g, const struct wf_gemm_desc *d, const struct wf_gemm_fns *fns,
                  int n_threads, size_t *scratch_bytes)
{
    double tile;

    *g = (struct wf_gemm){.d = *d, .fns = fns, .k = d->k, .n_threads = n_threads};
    if (d->type_a == WF_GEMM_BF16 && d->type_b == WF_GEMM_BF16 && fns->pairs) {
        g->pairs = fns->pairs;
        g->k = ceil_div(d->k, 2);
    }
    choose_cut(g);
    lower_tiles(g);
    widen_tiles(g);
    choose_outer(g);
    tile = cost_of_tile(g);
    g->serial = cost_with_threads(g, tile, 1) <= cost_with_threads(g, tile, 2);
    lay_out(g);
    *scratch_bytes = g->scratch_bytes;
}

void wf_gemm_recut(struct wf_gemm *g, int64_t tile_m, int64_t tile_n, int64_t n_chunks, int read_a,
                   int read_b, size_t *scratch_bytes)
{
    cut(g, tile_m, wf_max_i64(tile_n, wf_min_i64(g->d.n, WF_GEMM_WHOLE_ROWS)), n_chunks);
    g->swap = g->outer = false;
    g->read_a = read_a;
    g->read_b = read_b;
    lay_out(g);
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

    return (float *)(void *)(r->scratch + r->g->off_parts) +
           (chunk * d->batch + batch) * d->m * d->n;
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

static int64_t n_pack_tasks(const struct wf_gemm_desc *d)
{
    return batches_of_b(d) * ceil_div(d->n, d->trans_b ? PACK_SHORT : PACK_LONG) *
           ceil_div(d->k, d->trans_b ? PACK_LONG : PACK_SHORT);
}

/* Packs a part of op(B) into panels that are longest elements of K long. n_k counts those of B. */
static void pack_b(const struct wf_gemm *g, float *dst, int64_t longest, const char *src,
                   int64_t n_k, int64_t n)
{
    const struct wf_gemm_desc *d = &g->d;
    int64_t apart = longest * g->fns->nr;

    if (g->pairs)
        g->pairs->pack_b_part(dst, apart, src, d->ldb, d->trans_b, n_k, n);
    else
        g->fns->pack_b_part(dst, apart, src, d->type_b, d->ldb, d->trans_b, n_k, n);
}

/* Task of the packing phase. */
static void pack_task(void *arg, int64_t task, int thread)
{
    const struct run *r = arg;
    const struct wf_gemm_desc *d = &r->g->d;
    const struct wf_gemm_fns *fns = r->g->fns;
    int64_t most_n = d->trans_b ? PACK_SHORT : PACK_LONG, n_cols = ceil_div(d->n, most_n);
    int64_t most_k = d->trans_b ? PACK_LONG : PACK_SHORT, n_rows = ceil_div(d->k, most_k);
    int64_t col = task % n_cols * most_n, k = task / n_cols % n_rows * most_k;
    int64_t batch = task / n_cols / n_rows;
    int64_t src = batch * d->stride_b + (d->trans_b ? col * d->ldb + k : k * d->ldb + col);
    float *dst = (float *)(void *)r->scratch + batch * wf_gemm_packed_b(fns, r->g->k, d->n) +
                 col * r->g->k + k / per_element(r->g) * fns->nr;

    (void)thread;
    pack_b(r->g, dst, r->g->k, r->b + src * type_bytes(d->type_b), wf_min_i64(most_k, d->k - k),
           wf_min_i64(most_n, d->n - col));
}

/* The elements of A and B in a block of K elements of the kernels that begins at `first`. */
static int64_t n_along_k(const struct wf_gemm *g, int64_t first, int64_t n)
{
    return wf_min_i64(n * per_element(g), g->d.k - first * per_element(g));
}

/* Points a block at pairs of A. */
static void point_at_pairs(const struct wf_gemm *g, const struct tile *t, const char *src,
                           int64_t n_k, struct wf_gemm_block *blk)
{
    const struct wf_gemm_desc *d = &g->d;

    if (g->read_a == WF_GEMM_DIRECT) {
        blk->a = (const float *)(const void *)src;
        blk->a_rs = d->lda / 2;
    } else if (d->trans_a) {
        g->pairs->pack_a(t->a_buf, src, d->lda, n_k, t->n_rows);
        blk->a = t->a_buf;
        blk->a_packed = true;
    } else {
        g->pairs->copy_a(t->a_buf, a_copy_ld(g), src, d->lda, n_k, t->n_rows);
        blk->a = t->a_buf;
        blk->a_rs = a_copy_ld(g);
    }
    blk->a_cs = 1;
}

/* Points a block at A: rows of the tile, K from k. */
static void point_at_a(const struct run *r, const struct tile *t, int64_t k,
                       struct wf_gemm_block *blk)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    int64_t at = k * per_element(g);
    int64_t from =
        t->batch * d->stride_a + (d->trans_a ? at * d->lda + t->row : t->row * d->lda + at);
    const char *src = r->a + from * type_bytes(d->type_a);

    if (g->pairs) {
        point_at_pairs(g, t, src, n_along_k(g, k, blk->k), blk);
    } else if (g->read_a == WF_GEMM_DIRECT) {
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

/* Points a block at B: blk->n columns from col, K from k. */
static void point_at_b(const struct run *r, const struct tile *t, int64_t k, int64_t col,
                       struct wf_gemm_block *blk)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    int64_t at = k * per_element(g);
    int64_t from = t->batch * d->stride_b + (d->trans_b ? col * d->ldb + at : at * d->ldb + col);
    const char *src = r->b + from * type_bytes(d->type_b);

    if (g->read_b == WF_GEMM_DIRECT) {
        blk->b = (const float *)(const void *)src;
        blk->b_ld = d->ldb;
    } else if (g->read_b == WF_GEMM_SHARED) {
        int64_t batch = d->stride_b ? t->batch : 0;

        blk->b = (const float *)(const void *)r->scratch +
                 batch * wf_gemm_packed_b(g->fns, g->k, d->n) + col * g->k + k * g->fns->nr;
        blk->b_ps = g->k * g->fns->nr;
    } else {
        pack_b(g, t->b_buf, blk->k, src, n_along_k(g, k, blk->k), blk->n);
        blk->b = t->b_buf;
        blk->b_ps = blk->k * g->fns->nr;
    }
}

/* Where private packing will read B after this step: the next columns of the tile, its next K
 * block, or the next tile. Rows of B's transpose are only prefetched if they are contiguous; long
 * ones the hardware prefetches. */
static void hint_soon(const struct run *r, const struct tile *t, int64_t k, int64_t next_col,
                      struct wf_gemm_block *blk)
{
    const struct wf_gemm_desc *d = &r->g->d;
    int64_t col = t->col + next_col;

    blk->soon = NULL;
    if (r->g->read_b != WF_GEMM_PRIVATE || d->type_b != WF_GEMM_F32 ||
        (d->trans_b && d->ldb != blk->k))
        return;
    if (next_col == t->n_cols) {
        bool last = k + blk->k == t->k + t->n_k;

        k = last ? t->k : k + blk->k;
        col = last ? col : t->col;
    }
    if (col >= d->n)
        return;
    blk->soon =
        r->b + (t->batch * d->stride_b + (d->trans_b ? col * d->ldb + k : k * d->ldb + col)) * 4;
    blk->soon_bytes = d->trans_b ? 64 : d->ldb * 4;
    blk->soon_next = d->trans_b ? blk->k * 64 : 64;
    blk->soon_n = ceil_div(blk->n, 16);
}

/* A piece of C is complete: pass it to the epilogue, round it. */
static void finish_piece(const struct run *r, int thread, int64_t batch, int64_t row,
                         int64_t n_rows, int64_t col, int64_t n_cols, float *c, int64_t ldc)
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
    float *dst =
        g->n_chunks > 1 ? part_sums_of(r, t->chunk, t->batch) : r->col_sums + t->batch * g->d.n;
    struct wf_gemm_block b = *blk;

    b.accumulate = !first;
    (g->pairs ? g->pairs->col_sums : g->fns->col_sums)(dst + col, &b);
}

static void run_tile(const struct run *r, const struct tile *t)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    const bool partial = g->n_chunks > 1;
    const int64_t step =
        g->read_b == WF_GEMM_PRIVATE ? wf_min_i64(PRIVATE_N, g->piece_n) : g->piece_n;
    int64_t n_done = 0, n_finished = 0;

    do {
        struct wf_gemm_block blk = {.m = t->n_rows,
                                    .k = wf_min_i64(g->kc, t->n_k - n_done),
                                    .ldc = t->ldc,
                                    .accumulate = n_done || (d->accumulate && !partial)};
        int64_t k = t->k + n_done;
        bool last = n_done + blk.k == t->n_k;

        point_at_a(r, t, k, &blk);
        for (int64_t i = 0, end; i < t->n_cols; i = end) {
            end = wf_min_i64(i + g->piece_n, t->n_cols);
            for (int64_t j = i; j < end; j += step) {
                blk.n = wf_min_i64(step, end - j);
                blk.c = t->c + j;
                point_at_b(r, t, k, t->col + j, &blk);
                hint_soon(r, t, k, j + blk.n, &blk);
                (g->pairs ? g->pairs->block : g->fns->block)(&blk);
                if (d->col_sums && t->row == 0)
                    sum_columns(r, t, t->col + j, &blk, n_done == 0);
            }
            if (last && !partial && t->n_rows &&
                (end == t->n_cols || t->n_rows * (end - n_finished) > MAX_FINISH)) {
                finish_piece(r, t->thread, t->batch, t->row, t->n_rows, t->col + n_finished,
                             end - n_finished, t->c + n_finished, t->ldc);
                n_finished = end;
            }
        }
        n_done += blk.k;
    } while (n_done < t->n_k);
}

static void run_outer(const struct run *r, const struct tile *t)
{
    const struct wf_gemm_desc *d = &r->g->d;
    int64_t a_rs = d->trans_a ? 1 : d->lda;
    const float *a = (const float *)(const void *)r->a + t->batch * d->stride_a + t->row * a_rs,
                *b = (const float *)(const void *)r->b + t->batch * d->stride_b + t->col;

    r->g->fns->outer(t->c, t->ldc, a, a_rs, b, t->n_rows, t->n_cols);
    if (d->col_sums && t->row == 0)
        sum_columns(r, t, t->col,
                    &(struct wf_gemm_block){.n = t->n_cols, .k = 1, .b = b, .b_ld = d->ldb}, true);
}

/* The same with A and B swapped: rows of op(A) become columns. C is narrow, so the tile has whole
 * rows. */
static void run_swapped(const struct run *r, const struct tile *t)
{
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    const bool partial = g->n_chunks > 1, direct = g->read_a == WF_GEMM_DIRECT;
    const int64_t step = direct ? t->n_rows : PRIVATE_N, ld = flip_ld(g);
    float *turned = t->b_buf + b_floats(g);
    int64_t n_done = 0;

    do {
        int64_t k = t->k + n_done;
        struct wf_gemm_block blk = {.m = d->n,
                                    .k = wf_min_i64(g->kc, t->n_k - n_done),
                                    .a_rs = d->trans_b ? d->ldb : 1,
                                    .a_cs = d->trans_b ? 1 : d->ldb,
                                    .ldc = ld,
                                    .accumulate = n_done > 0};

        blk.a = (const float *)(const void *)r->b + t->batch * d->stride_b + k * blk.a_cs;
        for (int64_t i = 0; i < t->n_rows; i += step) {
            int64_t row = t->row + i;
            const char *src = r->a + (t->batch * d->stride_a +
                                      (d->trans_a ? k * d->lda + row : row * d->lda + k)) *
                                         type_bytes(d->type_a);

            blk.n = wf_min_i64(step, t->n_rows - i);
            blk.c = turned + i;
            if (direct) {
                blk.b = (const float *)(const void *)src;
                blk.b_ld = d->lda;
            } else {
                g->fns->pack_b(t->b_buf, src, d->type_a, d->lda, !d->trans_a, blk.k, blk.n);
                blk.b = t->b_buf;
                blk.b_ps = blk.k * g->fns->nr;
            }
            g->fns->block(&blk);
        }
        if (d->col_sums && t->row == 0)
            sum_columns(r, t, 0,
                        &(struct wf_gemm_block){.n = d->n, .k = blk.k, .b = blk.a, .b_ld = d->ldb},
                        n_done == 0);
        n_done += blk.k;
    } while (n_done < t->n_k);
    g->fns->flip(t->c, t->ldc, turned, ld, t->n_rows, d->n, d->accumulate && !partial);
    if (!partial && t->n_rows)
        finish_piece(r, t->thread, t->batch, t->row, t->n_rows, 0, d->n, t->c, t->ldc);
}

/* Which tile a task is. A thread gets consecutive tasks, and should find in its cache what it wrote
 * before: if B was packed for all, the rows of A and C that others of its tasks use; otherwise the
 * columns of B, or in a weight's gradient those of C. */
static void place_tile(const struct wf_gemm *g, int64_t task, struct tile *t)
{
    const bool rows = by_rows(g);
    int64_t n_grid = g->n_tiles_m * g->n_tiles_n, at = task % n_grid;

    t->row = (rows ? at / g->n_tiles_n : at % g->n_tiles_m) * g->tile_m;
    t->col = (rows ? at % g->n_tiles_n : at / g->n_tiles_m) * g->tile_n;
    t->chunk = task / n_grid % g->n_chunks;
    t->batch = task / n_grid / g->n_chunks;
}

static void tile_task(void *arg, int64_t task, int thread)
{
    const struct run *r = arg;
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    float *scratch = thread_scratch(r, thread);
    struct tile t = {.thread = thread, .a_buf = scratch, .b_buf = scratch + a_floats(g)};

    place_tile(g, task, &t);
    t.n_rows = wf_min_i64(g->tile_m, d->m - t.row);
    t.n_cols = wf_min_i64(g->tile_n, d->n - t.col);
    t.k = t.chunk * g->chunk_k;
    t.n_k = wf_min_i64(g->chunk_k, g->k - t.k);
    if (g->n_chunks > 1) {
        t.c = part_of(r, t.chunk, t.batch) + t.row * d->n + t.col;
        t.ldc = d->n;
    } else if (d->type_c != WF_GEMM_F32) {
        t.c = scratch + own_floats(g);
        t.ldc = g->tile_n;
        if (d->accumulate)
            g->fns->load(t.c, t.ldc, c_at(r, t.batch, t.row, t.col), d->type_c, d->ldc, t.n_rows,
                         t.n_cols);
    } else {
        t.c = (float *)(void *)c_at(r, t.batch, t.row, t.col);
        t.ldc = d->ldc;
    }
    if (g->outer)
        run_outer(r, &t);
    else if (g->swap)
        run_swapped(r, &t);
    else
        run_tile(r, &t);
}

/* Task of the last phase: adds the chunks of one piece of a tile, in order. */
static void reduce_task(void *arg, int64_t task, int thread)
{
    const struct run *r = arg;
    const struct wf_gemm *g = r->g;
    const struct wf_gemm_desc *d = &g->d;
    int64_t n_pieces = ceil_div(d->n, g->piece_n);
    int64_t col = task % n_pieces * g->piece_n, n_cols = wf_min_i64(g->piece_n, d->n - col);
    int64_t row = task / n_pieces % g->n_tiles_m * g->tile_m,
            n_rows = wf_min_i64(g->tile_m, d->m - row);
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
        float *old = thread_scratch(r, thread) + own_floats(g);

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

void wf_gemm_run(const struct wf_gemm *g, struct wf_pool *pool, const void *a, const void *b,
                 void *c, float *col_sums, void *scratch)
{
    const struct wf_gemm_desc *d = &g->d;
    struct run r = {g, a, b, c, col_sums, scratch};
    int64_t n_tiles = d->batch * g->n_tiles_m * g->n_tiles_n;

    if (g->serial)
        pool = NULL;
    if (g->read_b == WF_GEMM_SHARED)
        wf_pool_for(pool, n_pack_tasks(d), pack_task, &r);
    wf_pool_for(pool, n_tiles * g->n_chunks, tile_task, &r);
    if (g->n_chunks > 1)
        wf_pool_for(pool, d->batch * g->n_tiles_m * ceil_div(d->n, g->piece_n), reduce_task, &r);
}
