/* gemm.h - matrix products on the CPU: C (+)= op(A) op(B), batched, with fused epilogues.
 *
 * Two interfaces: wf_gemm_plan/run do a whole product on a pool. struct wf_gemm_fns has their parts
 * (packing, single-threaded blocks) for kernels with their own loops: convolution, recurrent nets,
 * attention.
 *
 * Invariants:
 * - all matrices are row-major; op(A) is m x k, op(B) is k x n, C is m x n; op is the transpose
 *   if trans_a or trans_b is set, and lda, ldb are the distances between the rows as stored;
 * - sums are f32. Each element of C adds its products in the order of k, in blocks of K, and the
 *   blocks' sums in their order. Where A and B are bf16 and the level multiplies them, that order
 *   is 1 0 3 2 5 4 and so on, and denormals are zeros. How K and C are divided depends only on the
 *   sizes, distances and types in the description and on the SIMD level, and so do the results:
 *   not on the number of threads, the epilogue or the addresses;
 * - nothing is read or written outside the matrices; nothing is allocated or locked;
 * - m, n, k and batch may be 0; an empty sum is 0. */
#ifndef WF_KERNELS_CPU_GEMM_H
#define WF_KERNELS_CPU_GEMM_H

#include "base/base.h"
#include "weft/tensor.h"

enum wf_gemm_type { WF_GEMM_F32, WF_GEMM_BF16, WF_GEMM_F16 };

/* The type of products for a tensor's; -1: there is none. */
static inline int wf_gemm_type_of(weft_dtype t)
{
    return t == WEFT_F32    ? WF_GEMM_F32
           : t == WEFT_BF16 ? WF_GEMM_BF16
           : t == WEFT_F16  ? WF_GEMM_F16
                            : -1;
}

/* ---- the pieces ------------------------------------------------------------------------------ */

/* One block: C[m x n] (+)= A[m x k] B[k x n], in the calling thread, each sum in one accumulator.
 *
 * A: element (i, p) is a[i * a_rs + p * a_cs]; or, with a_packed, what pack_a wrote (strides
 *    unused).
 * B: packed panels as pack_b writes them, b_ps floats apart (k * nr if they were packed with
 *    this k; more if this block is a part of a longer K); or, with b_ld > 0, a plain row-major
 *    matrix.
 * C: row-major. Added to if accumulate is set, otherwise overwritten.
 * soon: what will be read after this block, prefetched meanwhile. Each of the first soon_n
 *    register blocks prefetches k cache lines, soon_bytes apart; each starts soon_next bytes after
 *    the previous one. A hint: NULL is fine, and the lines need not exist. */
struct wf_gemm_block {
    int64_t m, n, k;
    const float *a;
    int64_t a_rs, a_cs;
    bool a_packed;
    bool accumulate;
    const float *b;
    int64_t b_ps, b_ld;
    float *c;
    int64_t ldc;
    const void *soon;
    int64_t soon_n, soon_bytes, soon_next;
};

/* Of levels that multiply bf16: the pieces of products whose A and B are both bf16. An element of a
 * block's A and B is then two bf16 that follow each other along K, in the place of a float: k and
 * the distances count pairs, and the last pair of an odd K has a 0. A need not be aligned. The k of
 * the other functions counts bf16, and their src is of bf16. */
struct wf_gemm_pair_fns {
    void (*block)(const struct wf_gemm_block *b); /* B packed */
    /* As pack_b_part, pack_a and col_sums below. */
    void (*pack_b_part)(float *dst, int64_t ps, const void *src, int64_t ld, bool trans, int64_t k,
                        int64_t n);
    void (*pack_a)(float *dst, const void *src, int64_t ld, int64_t k, int64_t m);
    void (*col_sums)(float *dst, const struct wf_gemm_block *b);
    /* Rows of A [m x k]; those of dst are dst_ld pairs apart. */
    void (*copy_a)(float *dst, int64_t dst_ld, const void *src, int64_t ld, int64_t k, int64_t m);
};

/* The kernels of one SIMD level. src arguments marked void are of the given wf_gemm_type. */
struct wf_gemm_fns {
    const char *name;
    int mr, nr; /* rows and columns of C in registers; nr is also the width of a panel of B */
    void (*block)(const struct wf_gemm_block *b);
    /* Packs op(B) [k x n] into panels: panel j has columns [j * nr, j * nr + nr) as [k][nr] floats,
     * columns beyond n are zero. src is [k][n] with rows ld apart, or with trans [n][k]. dst takes
     * wf_gemm_packed_b(fns, k, n) floats. */
    void (*pack_b)(float *dst, const void *src, int type, int64_t ld, bool trans, int64_t k,
                   int64_t n);
    /* The same for a part of the rows of longer panels: panels are ps floats apart in dst. */
    void (*pack_b_part)(float *dst, int64_t ps, const void *src, int type, int64_t ld, bool trans,
                        int64_t k, int64_t n);
    /* Packs A from its transpose, src [k][m] with rows ld apart, for blocks of exactly m rows and
     * this k: groups of at most mr rows, [k][rows of the group] floats each. dst takes
     * wf_gemm_packed_a(fns, k, m) floats. */
    void (*pack_a)(float *dst, const void *src, int type, int64_t ld, int64_t k, int64_t m);
    /* Rectangles: convert to f32, convert from f32, add f32. */
    void (*load)(float *dst, int64_t dst_ld, const void *src, int type, int64_t ld, int64_t m,
                 int64_t n);
    void (*save)(void *dst, int type, int64_t dst_ld, const float *src, int64_t ld, int64_t m,
                 int64_t n);
    void (*add)(float *dst, int64_t dst_ld, const float *src, int64_t ld, int64_t m, int64_t n);
    /* dst [m x n] (+)= the transpose of src [n x m]; n is at most nr / 2. */
    void (*flip)(float *dst, int64_t dst_ld, const float *src, int64_t ld, int64_t m, int64_t n,
                 bool accumulate);
    /* Sums over the k rows of B, given as in a block: dst[n], added to if accumulate is set. Rows
     * are added in four interleaved chains, which are then added. */
    void (*col_sums)(float *dst, const struct wf_gemm_block *b);
    /* C [m x n] = a b, a column times a row; elements of a are a_rs apart. Rows of C are written
     * past the caches where they begin at whole vectors. */
    void (*outer)(float *c, int64_t ldc, const float *a, int64_t a_rs, const float *b, int64_t m,
                  int64_t n);
    /* A benchmark: n_rounds of independent multiply-adds in registers. Returns the number of
     * floating-point operations; no kernel of this level can do more in the same time, in f32. */
    double (*peak_loop)(int64_t n_rounds);
    const struct wf_gemm_pair_fns *pairs; /* NULL: bf16 is widened */
};

/* The kernels of a level; the portable ones if the build has nothing better. */
const struct wf_gemm_fns *wf_gemm_fns_of(weft_simd level);

/* Floats that pack_b and pack_a write. */
int64_t wf_gemm_packed_b(const struct wf_gemm_fns *fns, int64_t k, int64_t n);
int64_t wf_gemm_packed_a(const struct wf_gemm_fns *fns, int64_t k, int64_t m);

/* ---- whole products -------------------------------------------------------------------------- */

/* Called once for each finished piece of C, still in cache: rows [row, row + n_rows) and columns
 * [col, col + n_cols) of batch item b. c points to the piece, rows ldc apart, as f32: C itself, or
 * if C is narrower, a buffer that is rounded into C afterwards. Pieces cover C exactly once; their
 * division depends on shape and level; up to WF_GEMM_WHOLE_ROWS columns a piece has whole rows.
 * Calls with different `thread` (below the pool's size) run at the same time. */
typedef void wf_gemm_epilogue(void *arg, int thread, int64_t b, int64_t row, int64_t n_rows,
                              int64_t col, int64_t n_cols, float *c, int64_t ldc);
enum { WF_GEMM_WHOLE_ROWS = 128 };

struct wf_gemm_desc {
    int64_t m, n, k;
    int64_t batch; /* number of products */
    bool trans_a, trans_b;
    bool accumulate; /* C += */
    bool col_sums;   /* also the sums over k of the columns of op(B), [batch][n]: with B = dY in
                      * dW = X^T dY this is the gradient of a bias */
    int type_a, type_b, type_c;           /* enum wf_gemm_type */
    int64_t lda, ldb, ldc;                /* elements between rows as stored */
    int64_t stride_a, stride_b, stride_c; /* elements between batch items; 0 for A or B: shared */
    wf_gemm_epilogue *epilogue;           /* may be NULL */
    void *epilogue_arg;
};

enum wf_gemm_read {
    WF_GEMM_DIRECT,  /* in place */
    WF_GEMM_PRIVATE, /* packed by each tile separately, a K block at a time */
    WF_GEMM_SHARED   /* packed once by all threads, before the tiles (B only) */
};

/* A plan: how C is divided. Copyable; refers to nothing but fns and the epilogue. */
struct wf_gemm {
    struct wf_gemm_desc d;
    const struct wf_gemm_fns *fns;
    const struct wf_gemm_pair_fns *pairs; /* NULL: elements are f32, or widened */
    int64_t k; /* elements along K: d.k, or pairs; all that is said of K below counts them */
    int read_a, read_b; /* enum wf_gemm_read */
    bool swap;   /* few columns: C^T is computed, with the rows of C as columns, and transposed */
    bool serial; /* too small to be worth waking threads */
    bool outer;  /* K is 1 and C is large: tiles of whole rows, written past the caches */
    int64_t tile_m, tile_n, piece_n; /* of C; all but tile_m are multiples of nr */
    int64_t n_tiles_m, n_tiles_n;
    int64_t kc;                /* K block */
    int64_t chunk_k, n_chunks; /* K is divided into chunks of whole K blocks, summed afterwards */
    int n_threads;             /* that scratch has room for */
    size_t off_parts, off_threads, thread_bytes, scratch_bytes;
};

/* Plans a product. n_threads limits the pool that runs it and determines the size of the scratch
 * memory, nothing else; *scratch_bytes is that size. */
void wf_gemm_plan(struct wf_gemm *g, const struct wf_gemm_desc *d, const struct wf_gemm_fns *fns,
                  int n_threads, size_t *scratch_bytes);

/* Divides a plan by hand instead, for tests and tuning: tiles of about tile_m x tile_n, about
 * n_chunks chunks of K, A and B read as given (which types and transposes must allow). */
void wf_gemm_recut(struct wf_gemm *g, int64_t tile_m, int64_t tile_n, int64_t n_chunks, int read_a,
                   int read_b, size_t *scratch_bytes);

/* Runs it. scratch is 64-byte aligned; col_sums is used only if the plan computes them. C must not
 * overlap A or B. */
void wf_gemm_run(const struct wf_gemm *g, struct wf_pool *pool, const void *a, const void *b,
                 void *c, float *col_sums, void *scratch);

#endif
