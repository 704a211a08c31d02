/* optim.h - optimizer updates, norms and sparse rows on the CPU.
 *
 * The formulas and the scalars of a step are in op/optim.h. An update is one fused pass over
 * contiguous ranges of the flat vectors; it works element by element, so results do not depend on
 * how a vector is divided into ranges or on the number of threads.
 *
 * Convention of this and the other headers of cpu/: `f` is the table of one SIMD level, obtained
 * once from wf_..._fns_at(ctx->simd); functions that take a pool (which may be NULL) do their own
 * wf_pool_for over tiles fixed by the shape, and allocate nothing; the members of f work on one
 * range in the calling thread.
 *
 * Sparse rows. A table [n_rows, width] that is only looked up has a gradient of ids and rows. The
 * update touches those rows only, once each, with the formula of the dense update. Keras differs:
 *   - where a dense gradient of zero would still move a row (momentum, the decay of Adam's or
 *     RMSprop's averages, Ftrl's first step, weight decay), Keras moves every row each step, weft
 * only
 *     those looked up; plain SGD and Adagrad, which do nothing for a zero gradient, give the same
 *     result as Keras;
 *   - the bias corrections count steps, not visits of a row;
 *   - LAMB's ratio is taken for each row by itself. */
#ifndef WF_KERNELS_CPU_OPTIM_H
#define WF_KERNELS_CPU_OPTIM_H

#include "base/base.h"
#include "op/optim.h"

/* Norms are sums over blocks of this many elements from a tensor's start, in f64, in order. */
#define WF_NORM_BLOCK 4096

/* One looked-up table of a step. Distinct rows[i] takes the gradient g + i*g_stride; or, when
 * `first` is given (from wf_dedupe_run), the sum of the sample rows first[i], next[first[i]], ...
 * until a negative one, added in that order. */
struct wf_optim_table {
    float *w;                        /* [n_rows, width] */
    float *slot[WF_OPTIM_MAX_SLOTS]; /* the same, as many as the form keeps */
    int64_t width;
    int64_t stride; /* floats from one row of w, and of the slots, to the next; 0: width */
    const int64_t *rows;
    int64_t n;
    const float *g;
    int64_t g_stride; /* floats from one gradient row to the next */
    const int32_t *first, *next;
};

struct wf_optim_fns {
    /* n elements of w, g and the slots; LAMB has its own two below. */
    void (*update[WF_OPTIM_N_FORMS])(const struct wf_optim_scalars *k, int64_t n, float *w,
                                     const float *g, float *s0, float *s1, float *s2);
    /* The same from w into `to`, which is written past the caches: for vectors that are larger. */
    void (*update_to[WF_OPTIM_N_FORMS])(const struct wf_optim_scalars *k, int64_t n, float *to,
                                        const float *w, const float *g, float *s0, float *s1,
                                        float *s2);
    /* Rows [begin, end) of a table's distinct ones. */
    void (*update_rows[WF_OPTIM_N_FORMS])(const struct wf_optim_scalars *k,
                                          const struct wf_optim_table *t, int64_t begin,
                                          int64_t end);
    /* LAMB on at most one norm block: weight decay and slots, and the sums of squares of w and of
     * the direction q; then w -= step * q, where step = lr * ratio. */
    void (*lamb_slots)(const struct wf_optim_scalars *k, int64_t n, float *w, const float *g,
                       float *m, float *v, double *w_sq, double *q_sq);
    void (*lamb_apply)(const struct wf_optim_scalars *k, float step, int64_t n, float *w,
                       const float *m, const float *v);
    /* Sum of squares in f64; finite exactly if every element is. The same bits at every level. */
    double (*sumsq)(int64_t n, const float *x);
    /* out[width] = the sum of rows g + i*stride for i = first, next[first], ... */
    void (*sum_chain)(int64_t width, const float *g, int64_t stride, int32_t first,
                      const int32_t *next, float *out);
    /* to = a + b; to = from * factor. */
    void (*add_to)(int64_t n, float *to, const float *a, const float *b);
    void (*scale_to)(int64_t n, float *to, const float *from, float factor);
    /* to += from; to *= factor; to += factor * from, the product rounded first. */
    void (*add)(int64_t n, float *to, const float *from);
    void (*scale)(int64_t n, float *to, float factor);
    void (*add_scaled)(int64_t n, float *to, const float *from, float factor);
    /* g += l1 sign(w) + l2 w, the sum rounded first. */
    void (*add_penalty)(int64_t n, float l1, float l2, const float *w, float *g);
    /* out[width] += those rows, one after the other. */
    void (*add_chain)(int64_t width, const float *g, int64_t stride, int32_t first,
                      const int32_t *next, float *out);
};

const struct wf_optim_fns *wf_optim_fns_at(weft_simd level);

/* ---- dense updates ----------------------------------------------------------------------- */

/* One fused pass over n elements. slot[i] is NULL if the form keeps fewer. Not for LAMB. */
void wf_optim_update(const struct wf_optim_fns *f, struct wf_pool *pool,
                     const struct wf_optim_scalars *k, int64_t n, float *w, const float *g,
                     float *const slot[WF_OPTIM_MAX_SLOTS]);

/* LAMB on one variable (a range that begins at the variable's start or on a norm block of it).
 * wf_lamb_slots writes 2 sums per block, of w and q, into sums[2 * wf_norm_blocks(n)]; whoever has
 * all blocks of the variable computes the ratio; wf_lamb_apply updates w. */
int64_t wf_norm_blocks(int64_t n);
void wf_lamb_slots(const struct wf_optim_fns *f, struct wf_pool *pool,
                   const struct wf_optim_scalars *k, int64_t n, float *w, const float *g, float *m,
                   float *v, double *sums);
double wf_lamb_ratio(const double *sums, int64_t n_blocks);
void wf_lamb_apply(const struct wf_optim_fns *f, struct wf_pool *pool,
                   const struct wf_optim_scalars *k, double ratio, int64_t n, float *w,
                   const float *m, const float *v);

/* ---- norms and finiteness ---------------------------------------------------------------- */

/* Sum of squares of each block: blocks[wf_norm_blocks(n)]. */
void wf_block_sumsq(const struct wf_optim_fns *f, struct wf_pool *pool, int64_t n, const float *x,
                    double *blocks);
/* Added in order. */
double wf_sum_blocks(const double *blocks, int64_t n_blocks);

/* Tensors of one flat vector, for norms over several of them. */
struct wf_span {
    const float *x;
    int64_t n;
};
int64_t wf_span_blocks(const struct wf_span *spans, int64_t n_spans);
/* The sum of squares of each span, sq[n_spans], with blocks[wf_span_blocks] as scratch. One pass,
 * all blocks in parallel. A sum that is not finite means that an element is not finite. */
void wf_span_sumsq(const struct wf_optim_fns *f, struct wf_pool *pool, const struct wf_span *spans,
                   int64_t n_spans, double *blocks, double *sq);
/* The norm over all spans, from their sums in order. */
double wf_global_norm(const double *sq, int64_t n_spans);

/* ---- sparse rows ------------------------------------------------------------------------- */

/* The ids looked up in one table. Sample i has ids[i * id_stride]. */
struct wf_dedupe {
    const void *ids; /* int64_t if wide, otherwise int32_t */
    bool wide;
    int64_t id_stride; /* elements */
    int64_t n;         /* samples, below 2^30 */
    int64_t n_rows;    /* of the table: ids must be in [0, n_rows) */
    void *scratch;     /* wf_dedupe_scratch(n) bytes */
    /* out */
    int64_t *rows;  /* [n] distinct ids in the order of first appearance */
    int32_t *first; /* [n] the first sample of each */
    int32_t *next;  /* [n] for each sample the next one of the same id, or -1 */
    int64_t n_distinct;
    int64_t bad; /* the first sample with an id out of range (n_distinct is then 0), or -1 */
};

int64_t wf_dedupe_scratch(int64_t n);
/* All tables, in parallel over them. Returns the index of the first table with a bad id, or -1. */
int64_t wf_dedupe_run(struct wf_pool *pool, struct wf_dedupe *d, int64_t n_tables);

/* Summed gradient rows as one block, out[n_distinct, width], duplicates in sample order. */
void wf_dedupe_sum(const struct wf_optim_fns *f, struct wf_pool *pool, const struct wf_dedupe *d,
                   int64_t width, const float *g, int64_t g_stride, float *out);

/* The rows of all tables, in parallel over chunks of rows. */
void wf_optim_update_tables(const struct wf_optim_fns *f, struct wf_pool *pool,
                            const struct wf_optim_scalars *k, const struct wf_optim_table *tables,
                            int64_t n_tables);

#endif
