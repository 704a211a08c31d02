/* winograd_kernel.c - the transforms of Winograd convolution at one SIMD level.
 *
 * Each is a one-dimensional transform of 3, 4 or 6 vectors, first along the columns of a tile, then
 * along its rows. The matrices are defined in winograd.h; the one-dimensional functions write them
 * out. */
#include "kernels/cpu/winograd.h"
#include "kernels/cpu/simd.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The points, their squares and cubes. */
#define A1 0.70710678118654752f
#define A2 0.5f
#define A3 0.35355339059327376f
#define B1 1.41421356237309505f
#define B2 2.0f
#define B3 2.82842712474619010f

/* ---- one dimension --------------------------------------------------------------------------- */

/* r = Bᵀ d */
WF_SIMD_INLINE void input_1d(vf r[6], const vf d[6])
{
    const vf two = vf_set1(B2), half = vf_set1(A2), c = vf_set1(A2 + B2);
    const vf a = vf_set1(A1), b = vf_set1(B1);
    vf ea = vf_fnma(two, d[2], d[4]), oa = vf_fnma(two, d[1], d[3]);
    vf eb = vf_fnma(half, d[2], d[4]), ob = vf_fnma(half, d[1], d[3]);

    r[0] = vf_add(vf_fnma(c, d[2], d[4]), d[0]);
    r[1] = vf_fma(a, oa, ea);
    r[2] = vf_fnma(a, oa, ea);
    r[3] = vf_fma(b, ob, eb);
    r[4] = vf_fnma(b, ob, eb);
    r[5] = vf_add(vf_fnma(c, d[3], d[5]), d[1]);
}

/* r = B v */
WF_SIMD_INLINE void grad_input_1d(vf r[6], const vf v[6])
{
    const vf two = vf_set1(B2), half = vf_set1(A2), c = vf_set1(A2 + B2);
    const vf a = vf_set1(A1), b = vf_set1(B1);
    vf sa = vf_add(v[1], v[2]), da = vf_mul(a, vf_sub(v[1], v[2]));
    vf sb = vf_add(v[3], v[4]), db = vf_mul(b, vf_sub(v[3], v[4]));

    r[0] = v[0];
    r[1] = vf_fnma(half, db, vf_fnma(two, da, v[5]));
    r[2] = vf_neg(vf_fma(c, v[0], vf_fma(half, sb, vf_mul(two, sa))));
    r[3] = vf_fnma(c, v[5], vf_add(da, db));
    r[4] = vf_add(v[0], vf_add(sa, sb));
    r[5] = v[5];
}

/* r = Aᵀ m */
WF_SIMD_INLINE void output_1d(vf r[4], const vf m[6])
{
    vf sa = vf_add(m[1], m[2]), da = vf_sub(m[1], m[2]);
    vf sb = vf_add(m[3], m[4]), db = vf_sub(m[3], m[4]);

    r[0] = vf_add(m[0], vf_add(sa, sb));
    r[1] = vf_fma(vf_set1(A1), da, vf_mul(vf_set1(B1), db));
    r[2] = vf_fma(vf_set1(A2), sa, vf_mul(vf_set1(B2), sb));
    r[3] = vf_fma(vf_set1(A3), da, vf_fma(vf_set1(B3), db, m[5]));
}

/* r = A y */
WF_SIMD_INLINE void grad_output_1d(vf r[6], const vf y[4])
{
    vf ea = vf_fma(vf_set1(A2), y[2], y[0]), oa = vf_fma(vf_set1(A2), y[3], y[1]);
    vf eb = vf_fma(vf_set1(B2), y[2], y[0]), ob = vf_fma(vf_set1(B2), y[3], y[1]);

    r[0] = y[0];
    r[1] = vf_fma(vf_set1(A1), oa, ea);
    r[2] = vf_fnma(vf_set1(A1), oa, ea);
    r[3] = vf_fma(vf_set1(B1), ob, eb);
    r[4] = vf_fnma(vf_set1(B1), ob, eb);
    r[5] = y[3];
}

/* r = G w; the rows of ±a are divided by 2a²(a² - b²) = -3/2, those of ±b by 2b²(b² - a²) = 6. */
WF_SIMD_INLINE void filter_1d(vf r[6], const vf w[3])
{
    const vf na = vf_set1(-2.0f / 3.0f), nb = vf_set1(1.0f / 6.0f);
    vf ea = vf_mul(na, vf_fma(vf_set1(A2), w[2], w[0])), oa = vf_mul(na, vf_mul(vf_set1(A1), w[1]));
    vf eb = vf_mul(nb, vf_fma(vf_set1(B2), w[2], w[0])), ob = vf_mul(nb, vf_mul(vf_set1(B1), w[1]));

    r[0] = w[0];
    r[1] = vf_add(ea, oa);
    r[2] = vf_sub(ea, oa);
    r[3] = vf_add(eb, ob);
    r[4] = vf_sub(eb, ob);
    r[5] = w[2];
}

/* r = Gᵀ u */
WF_SIMD_INLINE void grad_filter_1d(vf r[3], const vf u[6])
{
    const vf na = vf_set1(-2.0f / 3.0f), nb = vf_set1(1.0f / 6.0f);
    vf sa = vf_mul(na, vf_add(u[1], u[2])), da = vf_mul(na, vf_sub(u[1], u[2]));
    vf sb = vf_mul(nb, vf_add(u[3], u[4])), db = vf_mul(nb, vf_sub(u[3], u[4]));

    r[0] = vf_add(u[0], vf_add(sa, sb));
    r[1] = vf_fma(vf_set1(A1), da, vf_mul(vf_set1(B1), db));
    r[2] = vf_add(u[5], vf_fma(vf_set1(A2), sa, vf_mul(vf_set1(B2), sb)));
}

/* ---- two dimensions -------------------------------------------------------------------------- */

/* NAME(dst, ..., n) from a body for `w` channels at offset c, with w = VF_N except for the last
 * ones. */
#define OVER_CHANNELS(body)              \
    do {                                 \
        int64_t c = 0;                   \
        for (; c + VF_N <= n; c += VF_N) \
            body(VF_N);                  \
        if (c < n)                       \
            body(n - c);                 \
    } while (0)

WF_SIMD_INLINE vf load(const float *p, int64_t w)
{
    return w == VF_N ? vf_load(p) : vf_loadn(p, w);
}

WF_SIMD_INLINE void store(float *p, vf x, int64_t w)
{
    if (w == VF_N)
        vf_store(p, x);
    else
        vf_storen(p, x, w);
}

WF_SIMD_INLINE void input_tile(float *v, int64_t ps, const float *x, int64_t rs, int64_t cs,
                               int64_t w)
{
    vf t[6][6];

    UNROLL for (int j = 0; j < 6; j++)
    {
        vf d[6], r[6];

        UNROLL for (int i = 0; i < 6; i++) d[i] = load(x + i * rs + j * cs, w);
        input_1d(r, d);
        UNROLL for (int i = 0; i < 6; i++) t[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 6; i++)
    {
        vf r[6];

        input_1d(r, t[i]);
        UNROLL for (int j = 0; j < 6; j++) store(v + (6 * i + j) * ps, r[j], w);
    }
}

static void input(float *v, int64_t v_ps, const float *x, int64_t rs, int64_t cs, int64_t n)
{
#define BODY(w) input_tile(v + c, v_ps, x + c, rs, cs, w)
    OVER_CHANNELS(BODY);
#undef BODY
}

WF_SIMD_INLINE void grad_input_tile(float *x, int64_t rs, int64_t cs, const float *v, int64_t ps,
                                    int64_t w)
{
    vf t[6][6];

    UNROLL for (int j = 0; j < 6; j++)
    {
        vf d[6], r[6];

        UNROLL for (int i = 0; i < 6; i++) d[i] = load(v + (6 * i + j) * ps, w);
        grad_input_1d(r, d);
        UNROLL for (int i = 0; i < 6; i++) t[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 6; i++)
    {
        vf r[6];

        grad_input_1d(r, t[i]);
        UNROLL for (int j = 0; j < 6; j++)
        {
            float *p = x + i * rs + j * cs;

            store(p, vf_add(load(p, w), r[j]), w);
        }
    }
}

static void grad_input(float *dx, int64_t rs, int64_t cs, const float *v, int64_t v_ps, int64_t n)
{
#define BODY(w) grad_input_tile(dx + c, rs, cs, v + c, v_ps, w)
    OVER_CHANNELS(BODY);
#undef BODY
}

WF_SIMD_INLINE void output_tile(float *y, int64_t rs, int64_t cs, const float *m, int64_t ps,
                                int64_t w)
{
    vf t[4][6];

    UNROLL for (int j = 0; j < 6; j++)
    {
        vf d[6], r[4];

        UNROLL for (int i = 0; i < 6; i++) d[i] = load(m + (6 * i + j) * ps, w);
        output_1d(r, d);
        UNROLL for (int i = 0; i < 4; i++) t[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        vf r[4];

        output_1d(r, t[i]);
        UNROLL for (int j = 0; j < 4; j++) store(y + i * rs + j * cs, r[j], w);
    }
}

static void output(float *y, int64_t rs, int64_t cs, const float *m, int64_t m_ps, int64_t n)
{
#define BODY(w) output_tile(y + c, rs, cs, m + c, m_ps, w)
    OVER_CHANNELS(BODY);
#undef BODY
}

WF_SIMD_INLINE void grad_output_tile(float *m, int64_t ps, const float *y, int64_t rs, int64_t cs,
                                     int64_t w)
{
    vf t[6][4];

    UNROLL for (int j = 0; j < 4; j++)
    {
        vf d[4], r[6];

        UNROLL for (int i = 0; i < 4; i++) d[i] = load(y + i * rs + j * cs, w);
        grad_output_1d(r, d);
        UNROLL for (int i = 0; i < 6; i++) t[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 6; i++)
    {
        vf r[6];

        grad_output_1d(r, t[i]);
        UNROLL for (int j = 0; j < 6; j++) store(m + (6 * i + j) * ps, r[j], w);
    }
}

static void grad_output(float *m, int64_t m_ps, const float *dy, int64_t rs, int64_t cs, int64_t n)
{
#define BODY(w) grad_output_tile(m + c, m_ps, dy + c, rs, cs, w)
    OVER_CHANNELS(BODY);
#undef BODY
}

WF_SIMD_INLINE void filter_tile(float *u, int64_t ps, const float *taps, int64_t ts, int64_t w)
{
    vf t[6][3];

    UNROLL for (int j = 0; j < 3; j++)
    {
        vf d[3], r[6];

        UNROLL for (int i = 0; i < 3; i++) d[i] = load(taps + (3 * i + j) * ts, w);
        filter_1d(r, d);
        UNROLL for (int i = 0; i < 6; i++) t[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 6; i++)
    {
        vf r[6];

        filter_1d(r, t[i]);
        UNROLL for (int j = 0; j < 6; j++) store(u + (6 * i + j) * ps, r[j], w);
    }
}

static void filter(float *u, int64_t u_ps, const float *w, int64_t ts, int64_t n)
{
    const float *taps = w;

#define BODY(width) filter_tile(u + c, u_ps, taps + c, ts, width)
    OVER_CHANNELS(BODY);
#undef BODY
}

WF_SIMD_INLINE void grad_filter_tile(float *dw, int64_t ts, const float *u, int64_t ps, int64_t w)
{
    vf t[3][6];

    UNROLL for (int j = 0; j < 6; j++)
    {
        vf d[6], r[3];

        UNROLL for (int i = 0; i < 6; i++) d[i] = load(u + (6 * i + j) * ps, w);
        grad_filter_1d(r, d);
        UNROLL for (int i = 0; i < 3; i++) t[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 3; i++)
    {
        vf r[3];

        grad_filter_1d(r, t[i]);
        UNROLL for (int j = 0; j < 3; j++) store(dw + (3 * i + j) * ts, r[j], w);
    }
}

static void grad_filter(float *dw, int64_t ts, const float *u, int64_t u_ps, int64_t n)
{
#define BODY(w) grad_filter_tile(dw + c, ts, u + c, u_ps, w)
    OVER_CHANNELS(BODY);
#undef BODY
}

extern const struct wf_winograd_fns WF_LEVELED(wf_winograd_fns);
const struct wf_winograd_fns WF_LEVELED(wf_winograd_fns) = {
    .input = input,
    .output = output,
    .grad_output = grad_output,
    .grad_input = grad_input,
    .filter = filter,
    .grad_filter = grad_filter,
};
