/* winograd_kernel.c - the transforms of Winograd convolution at one SIMD level.
 *
 * Each is a one-dimensional transform of 3, 4 or 6 vectors, first along the columns of a tile, then
 * along its rows. The matrices are defined in winograd.h; the one-dimensional functions write them
 * out. */
#include "kernels/cpu/winograd.h"
#include "kernels/cpu/simd/block_inl.h"

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

typedef void one_d(vf *r, const vf *d);

/* Where element (i, j) of a square of vectors lies: at p + i * rs + j * cs. */
struct square {
    int64_t rs, cs;
};

/* One vector of channels, w of whose lanes count: n_in x n_in from `from` become n_out x n_out at
 * `to`, or are added to the old contents. */
WF_SIMD_INLINE void tile(one_d *transform, const int n_in, const int n_out, const bool add,
                         float *to, struct square t, const float *from, struct square f, int64_t w)
{
    vf half[36];

    UNROLL for (int j = 0; j < n_in; j++)
    {
        vf d[6], r[6];

        UNROLL for (int i = 0; i < n_in; i++) d[i] = vf_load_part(from + i * f.rs + j * f.cs, w);
        transform(r, d);
        UNROLL for (int i = 0; i < n_out; i++) half[i * n_in + j] = r[i];
    }
    UNROLL for (int i = 0; i < n_out; i++)
    {
        vf r[6];

        transform(r, half + i * n_in);
        UNROLL for (int j = 0; j < n_out; j++)
        {
            float *p = to + i * t.rs + j * t.cs;

            vf_store_part(p, add ? vf_add(vf_load_part(p, w), r[j]) : r[j], w);
        }
    }
}

/* The same for n channels. */
WF_SIMD_INLINE void tiles(one_d *transform, const int n_in, const int n_out, const bool add,
                          float *to, struct square t, const float *from, struct square f, int64_t n)
{
    int64_t c = 0;

    for (; c + VF_N <= n; c += VF_N)
        tile(transform, n_in, n_out, add, to + c, t, from + c, f, VF_N);
    if (c < n)
        tile(transform, n_in, n_out, add, to + c, t, from + c, f, n - c);
}

/* 36 places, ps apart; 9 taps, ts apart. */
WF_SIMD_INLINE struct square places(int64_t ps)
{
    return (struct square){6 * ps, ps};
}

WF_SIMD_INLINE struct square taps(int64_t ts)
{
    return (struct square){3 * ts, ts};
}

static void input(float *v, int64_t v_ps, const float *x, int64_t rs, int64_t cs, int64_t n)
{
    tiles(input_1d, 6, 6, false, v, places(v_ps), x, (struct square){rs, cs}, n);
}

static void grad_input(float *dx, int64_t rs, int64_t cs, const float *v, int64_t v_ps, int64_t n)
{
    tiles(grad_input_1d, 6, 6, true, dx, (struct square){rs, cs}, v, places(v_ps), n);
}

static void output(float *y, int64_t rs, int64_t cs, const float *m, int64_t m_ps, int64_t n)
{
    tiles(output_1d, 6, 4, false, y, (struct square){rs, cs}, m, places(m_ps), n);
}

static void grad_output(float *m, int64_t m_ps, const float *dy, int64_t rs, int64_t cs, int64_t n)
{
    tiles(grad_output_1d, 4, 6, false, m, places(m_ps), dy, (struct square){rs, cs}, n);
}

static void filter(float *u, int64_t u_ps, const float *w, int64_t ts, int64_t n)
{
    tiles(filter_1d, 3, 6, false, u, places(u_ps), w, taps(ts), n);
}

static void grad_filter(float *dw, int64_t ts, const float *u, int64_t u_ps, int64_t n)
{
    tiles(grad_filter_1d, 6, 3, false, dw, taps(ts), u, places(u_ps), n);
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
