/* cols_inl.h - folding the rows of a matrix into one row, and loads that know the end of an array.
 *
 * The order in which rows are joined depends only on the shape and the SIMD level: eight rows as a
 * tree, then onto the result so far. Rows narrower than a vector are joined VF_N at a time as one
 * flat stretch of n_cols vectors, which is then halved until one row is left. */
#ifndef WF_KERNELS_CPU_COLS_INL_H
#define WF_KERNELS_CPU_COLS_INL_H

#include "kernels/cpu/simd.h"

/* Up to VF_N elements, as many as are left. */
WF_SIMD_INLINE vf vf_load_to(const float *p, int64_t left)
{
    return left >= VF_N ? vf_load(p) : vf_loadn(p, left);
}
WF_SIMD_INLINE void vf_store_to(float *p, vf x, int64_t left)
{
    if (left >= VF_N)
        vf_store(p, x);
    else
        vf_storen(p, x, left);
}

/* The vector of terms at element `at` of the matrix, columns c, c+1, ... (modulo n_cols for narrow
 * rows, where c counts through a stretch of n_cols vectors); `left` as in vf_load_to. */
typedef vf wf_term_fn(const void *arg, int64_t at, int64_t c, int64_t left);
typedef vf wf_join_fn(vf a, vf b);

WF_SIMD_INLINE vf wf_join_add(vf a, vf b)
{
    return a + b;
}

WF_SIMD_INLINE void wf_cols_narrow(wf_term_fn *term, wf_join_fn *join, const void *arg,
                                   int64_t n_rows, int64_t n_cols, float *out)
{
    float acc[VF_N * VF_N];
    int64_t at = 0, step = n_cols * VF_N, r = 0;

    for (; r + VF_N <= n_rows; r += VF_N, at += step)
        for (int64_t j = 0; j < step; j += VF_N) {
            vf x = term(arg, at + j, j, VF_N);

            vf_store(acc + j, r ? join(vf_load(acc + j), x) : x);
        }
    if (r) {
        for (int64_t half = step / 2; half >= n_cols; half /= 2)
            for (int64_t i = 0; i < half; i += VF_N)
                vf_store_to(
                    acc + i,
                    join(vf_load_to(acc + i, half - i), vf_load_to(acc + half + i, half - i)),
                    half - i);
        vf_storen(out, vf_loadn(acc, n_cols), n_cols);
    }
    for (; r < n_rows; r++, at += n_cols) {
        vf x = term(arg, at, 0, n_cols);

        vf_storen(out, r ? join(vf_loadn(out, n_cols), x) : x, n_cols);
    }
}

WF_SIMD_INLINE vf wf_term8(wf_term_fn *term, wf_join_fn *join, const void *arg, int64_t at,
                           int64_t ld, int64_t c, int64_t left)
{
    vf a = join(term(arg, at, c, left), term(arg, at + ld, c, left));
    vf b = join(term(arg, at + 2 * ld, c, left), term(arg, at + 3 * ld, c, left));
    vf d = join(term(arg, at + 4 * ld, c, left), term(arg, at + 5 * ld, c, left));
    vf e = join(term(arg, at + 6 * ld, c, left), term(arg, at + 7 * ld, c, left));

    return join(join(a, b), join(d, e));
}

/* out[c] = join over rows r of term(r*ld + c). n_rows >= 1; ld == n_cols if n_cols < VF_N. */
WF_SIMD_INLINE void wf_cols_fold(wf_term_fn *term, wf_join_fn *join, const void *arg,
                                 int64_t n_rows, int64_t n_cols, int64_t ld, float *out)
{
    int64_t r = 0;

    if (n_cols < VF_N) {
        wf_cols_narrow(term, join, arg, n_rows, n_cols, out);
        return;
    }
    for (; r + 8 <= n_rows; r += 8) {
        int64_t c = 0;

        for (; c + VF_N <= n_cols; c += VF_N) {
            vf x = wf_term8(term, join, arg, r * ld + c, ld, c, VF_N);

            vf_store(out + c, r ? join(vf_load(out + c), x) : x);
        }
        if (c < n_cols) {
            vf x = wf_term8(term, join, arg, r * ld + c, ld, c, n_cols - c);

            vf_storen(out + c, r ? join(vf_loadn(out + c, n_cols - c), x) : x, n_cols - c);
        }
    }
    for (; r < n_rows; r++)
        for (int64_t c = 0; c < n_cols; c += VF_N) {
            vf x = term(arg, r * ld + c, c, n_cols - c);

            vf_store_to(out + c, r ? join(vf_load_to(out + c, n_cols - c), x) : x, n_cols - c);
        }
}

#endif
