/* attention.h - scaled dot-product attention on the CPU, f32: y = softmax(scale q k' + mask) v.
 *
 * A task of the pool is a batch item and head, or a part of its queries (in the gradient also of
 * its keys). It walks over blocks of keys and rows of queries and has one block of scores at a
 * time, in its thread's scratch memory; forward keeps the log-sum-exp of each query's scores, from
 * which backward computes the weights again.
 *
 * Invariants:
 * - q, k, v, y and their gradients are strided views: element (b, h, t, i) at b * sb + h * sh +
 *   t * st + i;
 * - a query that may not attend to any key gets y = 0, lse = -inf and no gradient;
 * - the division into tasks depends only on sizes and SIMD level, and so do the results;
 * - nothing is allocated or locked; any size may be 0. */
#ifndef WF_KERNELS_CPU_ATTENTION_H
#define WF_KERNELS_CPU_ATTENTION_H

#include "kernels/cpu/gemm.h"

/* ---- the pieces, one table per SIMD level ---------------------------------------------------- */

/* Rows of a block of scores. Row r has its first clamp(n_valid + r * valid_step, 0, n) columns
 * valid; the others become 0. bias, if not NULL, is added to the scaled scores. */
struct wf_attention_rows {
    int64_t n_rows, n;
    int64_t n_valid, valid_step;
    float scale;
    float *s;          /* scores in, weights out */
    int64_t ld;        /* of s and of ds */
    const float *bias; /* rows bias_ld apart, 0: one for all */
    int64_t bias_ld;
    /* softmax: running maximum and sum of each row; y is scaled when the maximum grows */
    float *max, *sum;
    bool first; /* there were no keys before */
    float *y;
    int64_t y_ld, dv;
    /* gradient */
    const float *lse, *delta; /* of each row */
    float *ds;                /* dp in, ds out */
};

struct wf_attention_fns {
    /* s = exp(scale s + bias - max), and updates max and sum. */
    void (*softmax)(const struct wf_attention_rows *r);
    /* y /= sum, lse = max + log(sum). */
    void (*finish)(const struct wf_attention_rows *r, float *lse);
    /* s = p = exp(scale s + bias - lse), ds = p (ds - delta) scale. */
    void (*grad)(const struct wf_attention_rows *r);
    /* out[r] = sum of a * b over row r. */
    void (*dots)(float *out, int64_t n_rows, int64_t n, const float *a, int64_t a_ld,
                 const float *b, int64_t b_ld);
};

const struct wf_attention_fns *wf_attention_fns_of(weft_simd level);

/* ---- whole calls ----------------------------------------------------------------------------- */

struct wf_attention_strides {
    int64_t sb, sh, st;
};

enum wf_attention_mask { WF_MASK_NONE, WF_MASK_BOOL, WF_MASK_F32 };

struct wf_attention_desc {
    int64_t n_b, n_h, n_q, n_k, d, dv;
    struct wf_attention_strides q, k, v, y; /* gradients have the strides of their values */
    float scale;
    bool causal;          /* query i sees keys 0..i */
    int mask;             /* enum wf_attention_mask */
    int64_t mask_step[4]; /* elements between batch items, heads, queries, keys; 0 if it is
                           * broadcast */
};

struct wf_attention {
    struct wf_attention_desc d;
    const struct wf_gemm_fns *gemm;
    const struct wf_attention_fns *fns;
    int64_t rows, keys; /* of a block of scores */
    int64_t chunk_q;    /* queries of a task */
    int64_t n_chunks_q;
    bool split;  /* gradient: queries and keys in separate passes, if there are few heads */
    bool whole;  /* gradient: all scores of a head are kept at the same time, if they fit */
    bool serial; /* too small to be worth waking threads */
    int64_t ld;  /* of the block of scores */
    int64_t n_pack, n_score, n_row_pack, n_bias; /* floats of the parts of a thread's scratch */
    size_t thread_bytes;
};

/* Plans forward or backward for at most n_threads threads; *scratch_bytes is the scratch memory
 * that run needs. */
void wf_attention_plan(struct wf_attention *a, const struct wf_attention_desc *d, weft_simd level,
                       bool backward, int n_threads, size_t *scratch_bytes);

/* y, and lse [b][h][q]. mask is uint8_t or float as planned. */
void wf_attention_run(const struct wf_attention *a, struct wf_pool *pool, const float *q,
                      const float *k, const float *v, const void *mask, float *y, float *lse,
                      void *scratch);

/* dq, dk, dv from dy and the operands and results of forward. */
struct wf_attention_grad {
    const float *dy, *q, *k, *v, *y, *lse;
    const void *mask;
    float *dq, *dk, *dv;
};
void wf_attention_grad_run(const struct wf_attention *a, struct wf_pool *pool,
                           const struct wf_attention_grad *t, void *scratch);

#endif
