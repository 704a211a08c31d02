/* ew_test.c - element-wise block functions and conversions: every code at every level against its
 * formula in double precision, nothing touched beyond the block, the same bits in place and for any
 * cut, NaN where it belongs. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/cpu/ew.h"
#include "support/levels.h"

/* ---- the formulas -------------------------------------------------------------------------- */

static const float PARAM[2] = {0.3f, 1.2f};

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static double floored(double a, double b)
{
    double r = fmod(a, b);

    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double relu6(double x)
{
    return fmin(fmax(x, 0), 6);
}

static double gelu_tanh_grad(double x)
{
    double k = sqrt(2 / M_PI), t = tanh(k * (x + 0.044715 * x * x * x));

    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

static double mish_grad(double x)
{
    double t = tanh(log1p(exp(x)));

    return t + x * (1 - t * t) * sigmoid(x);
}

#define SELU_L 1.0507009873554805
#define SELU_A 1.6732632423543772

/* The value, and the size of its largest term, to which the tolerance is relative. */
static double formula(enum wf_ew_code code, double a, double b, double c, double *size)
{
    double p = (double)PARAM[0], q = (double)PARAM[1], v = 0;

    *size = 0;
    switch (code) {
    case WF_EW_fill: v = p; break;
    case WF_EW_copy: v = a; break;
    case WF_EW_neg: v = -a; break;
    case WF_EW_abs: v = fabs(a); break;
    case WF_EW_sign: v = (a > 0) - (a < 0); break;
    case WF_EW_exp: v = exp(a); break;
    case WF_EW_log: v = log(a); break;
    case WF_EW_log1p: v = log1p(a); break;
    case WF_EW_expm1: v = expm1(a); break;
    case WF_EW_sqrt: v = sqrt(a); break;
    case WF_EW_rsqrt: v = 1 / sqrt(a); break;
    case WF_EW_square: v = a * a; break;
    case WF_EW_reciprocal: v = 1 / a; break;
    case WF_EW_sin: v = sin(a); break;
    case WF_EW_cos: v = cos(a); break;
    case WF_EW_tanh: v = tanh(a); break;
    case WF_EW_sigmoid: v = sigmoid(a); break;
    case WF_EW_erf: v = erf(a); break;
    case WF_EW_relu: v = fmax(a, 0); break;
    case WF_EW_relu6: v = relu6(a); break;
    case WF_EW_leaky_relu: v = a > 0 ? a : p * a; break;
    case WF_EW_elu: v = a > 0 ? a : p * expm1(a); break;
    case WF_EW_selu: v = SELU_L * (a > 0 ? a : SELU_A * expm1(a)); break;
    case WF_EW_gelu:
        v = a * cdf(a);
        *size = 30 * fabs(v) + (a < -5 ? -0.01 * a : 0); /* the tail is cut short */
        break;
    case WF_EW_gelu_tanh: {
        double u = sqrt(2 / M_PI) * (a + 0.044715 * a * a * a);

        v = a * sigmoid(2 * u);
        *size = fabs(v) * (1 + 4 * fabs(u)); /* the rounding of u */
        break;
    }
    case WF_EW_silu: v = a * sigmoid(a); break;
    case WF_EW_mish: v = a * tanh(log1p(exp(a))); break;
    case WF_EW_softplus: v = fmax(a, 0) + log1p(exp(-fabs(a))); break;
    case WF_EW_softsign: v = a / (1 + fabs(a)); break;
    case WF_EW_hard_sigmoid:
        v = relu6(a + 3) / 6;
        *size = 1;
        break;
    case WF_EW_hard_swish:
        v = a * relu6(a + 3) / 6;
        *size = fabs(a);
        break;
    case WF_EW_floor: v = floor(a); break;
    case WF_EW_ceil: v = ceil(a); break;
    case WF_EW_round: v = nearbyint(a); break;
    case WF_EW_clip: v = fmin(fmax(a, p), q); break;
    case WF_EW_is_finite: v = isfinite(a); break;
    case WF_EW_logical_not: v = a == 0; break;
    case WF_EW_add: v = a + b; break;
    case WF_EW_sub: v = a - b; break;
    case WF_EW_mul: v = a * b; break;
    case WF_EW_div: v = a / b; break;
    case WF_EW_pow: v = pow(a, b); break;
    case WF_EW_min: v = fmin(a, b); break;
    case WF_EW_max: v = fmax(a, b); break;
    case WF_EW_mod: v = floored(a, b); break;
    case WF_EW_eq: v = a == b; break;
    case WF_EW_ne: v = a != b; break;
    case WF_EW_lt: v = a < b; break;
    case WF_EW_le: v = a <= b; break;
    case WF_EW_gt: v = a > b; break;
    case WF_EW_ge: v = a >= b; break;
    case WF_EW_logical_and: v = a != 0 && b != 0; break;
    case WF_EW_logical_or: v = a != 0 || b != 0; break;
    case WF_EW_logical_xor: v = (a != 0) != (b != 0); break;
    case WF_EW_prelu: v = a > 0 ? a : b * a; break;
    case WF_EW_where: v = a != 0 ? b : c; break;
    case WF_EW_scale: v = p * a; break;
    case WF_EW_axpy:
        v = p * a + b;
        *size = fabs(p * a) + fabs(b);
        break;
    case WF_EW_div_scalar: v = a / p; break;
    case WF_EW_eq_scalar: v = a == p; break;
    case WF_EW_relu_grad: v = b > 0 ? a : 0; break;
    case WF_EW_relu6_grad: v = b > 0 && b < 6 ? a : 0; break;
    case WF_EW_leaky_relu_grad: v = b > 0 ? a : p * a; break;
    case WF_EW_elu_grad: v = b > 0 ? a : a * (b + p); break;
    case WF_EW_selu_grad:
        v = a * (b > 0 ? SELU_L : b + SELU_L * SELU_A);
        *size = 2 * fabs(a);
        break;
    case WF_EW_gelu_grad:
        v = a * (cdf(b) + b * exp(-b * b / 2) / sqrt(2 * M_PI));
        *size =
            fabs(a) * (30 * cdf(b) + fabs(b) * exp(-b * b / 2) * (1 + b * b) + (b < -5 ? 0.01 : 0));
        break;
    case WF_EW_gelu_tanh_grad:
        v = a * gelu_tanh_grad(b);
        *size = fabs(a) * (1 + fabs(b * b * b)) * sigmoid(1.6 * b);
        break;
    case WF_EW_silu_grad:
        v = a * (sigmoid(b) + b * sigmoid(b) * sigmoid(-b));
        *size = fabs(a) * sigmoid(b) * (1 + fabs(b));
        break;
    case WF_EW_mish_grad:
        v = a * mish_grad(b);
        *size = fabs(a) * exp(fmin(b, 0)) * (1 + fabs(b));
        break;
    case WF_EW_softplus_grad: v = a * sigmoid(b); break;
    case WF_EW_softsign_grad: v = a / ((1 + fabs(b)) * (1 + fabs(b))); break;
    case WF_EW_hard_sigmoid_grad: v = fabs(b) < 3 ? a / 6 : 0; break;
    case WF_EW_hard_swish_grad:
        v = b <= -3 ? 0 : b >= 3 ? a : a * (2 * b + 3) / 6;
        *size = fabs(a);
        break;
    case WF_EW_tanh_grad:
        v = a * (1 - b * b);
        *size = fabs(a) * (1 + b * b);
        break;
    case WF_EW_sigmoid_grad: v = a * b * (1 - b); break;
    case WF_EW_clip_grad: v = b >= p && b <= q ? a : 0; break;
    case WF_EW_COUNT: break;
    }
    *size = fmax(*size, fabs(v));
    return v;
}

/* ---- operands ------------------------------------------------------------------------------ */

enum { N = 4096 + 13 };
static float A[N], B[N], C[N];

/* Values of all signs in the range where the functions have their shape, whole and equal ones among
 * them, and some far out. */
static int fill_operands(void **state)
{
    uint32_t s = 11;

    (void)state;
    for (int i = 0; i < N; i++) {
        float *to[] = {&A[i], &B[i], &C[i]};

        for (int k = 0; k < 3; k++) {
            s = s * 1664525u + 1013904223u;
            *to[k] = (float)(int32_t)s / 0x1p31f * (i % 5 == 0 ? 40.0f : 4.0f);
            if (s >> 4 & 1 && i % 3 == 0)
                *to[k] = nearbyintf(*to[k]);
        }
        if (i % 17 == 0)
            B[i] = A[i];
    }
    return 0;
}

static bool same_bits(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], 4) != 0 && (a[i] == a[i] || b[i] == b[i]))
            return false;
    return true;
}

static void run(weft_simd level, int code, float *dst, const float *a, const float *b,
                const float *c, int64_t n)
{
    int n_in = wf_ew_info[code].n_in, n_param = wf_ew_info[code].n_param;

    wf_ew_fns_of(level)->fn[code](dst, n_in > 0 ? a : NULL, n_in > 1 ? b : NULL,
                                  n_in > 2 ? c : NULL, n, n_param ? PARAM : NULL);
}

/* ---- tests --------------------------------------------------------------------------------- */

static void every_code_follows_its_formula_at_every_level(void **state)
{
    static float y[N];

    (void)state;
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int code = 0; code < WF_EW_COUNT; code++) {
            run(level, code, y, A, B, C, N);
            for (int i = 0; i < N; i++) {
                double size, want = formula((enum wf_ew_code)code, A[i], B[i], C[i], &size);
                double err = fabs((double)y[i] - want);
                bool ok = isnan(want) ? isnan(y[i])
                                      : (double)y[i] == want || err <= 4 * 0x1p-24 * size + 1e-36;

                if (!ok && isinf(y[i]))
                    ok = fabs(want) > 0x1.fffffep127;
                if (!ok)
                    print_error("%s %s(%a, %a, %a) = %.9g, expected %.9g\n", weft_simd_name(level),
                                wf_ew_info[code].name, (double)A[i], (double)B[i], (double)C[i],
                                (double)y[i], want);
                assert_true(ok);
            }
        }
    }
}

static void truth_values_are_one_or_zero(void **state)
{
    static const int codes[] = {WF_EW_eq,          WF_EW_ne,         WF_EW_lt,
                                WF_EW_le,          WF_EW_gt,         WF_EW_ge,
                                WF_EW_logical_and, WF_EW_logical_or, WF_EW_logical_xor,
                                WF_EW_is_finite,   WF_EW_logical_not};
    float x[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1.0f, 2.0f, NAN};
    float y[] = {NAN, INFINITY, INFINITY, -0.0f, 0.0f, NAN, 2.0f, 0.0f};

    (void)state;
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int k = 0; k < WF_COUNT(codes); k++) {
            float z[8];

            run(level, codes[k], z, x, y, NULL, 8);
            for (int i = 0; i < 8; i++) {
                double size, want = formula((enum wf_ew_code)codes[k], x[i], y[i], 0, &size);

                assert_true((double)z[i] == want);
            }
        }
    }
}

static void nan_goes_through_whatever_computes(void **state)
{
    static const int masks[] = {WF_EW_fill, WF_EW_is_finite, WF_EW_logical_not, WF_EW_where,
                                WF_EW_eq_scalar};

    (void)state;
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int code = 0; code < WF_EW_COUNT; code++) {
            float nan[5] = {NAN, NAN, NAN, NAN, NAN}, one[5] = {1, 1, 1, 1, 1}, y[5];
            bool skip = code >= WF_EW_eq && code <= WF_EW_logical_xor;

            for (int k = 0; k < WF_COUNT(masks); k++)
                skip |= masks[k] == code;
            if (skip)
                continue;
            run(level, code, y, nan, one, one, 5); /* first operand, or the incoming gradient */
            for (int i = 0; i < 5; i++)
                assert_true(isnan(y[i]));
        }
        for (int code = WF_EW_add; code <= WF_EW_max; code++) {
            float nan[1] = {NAN}, two[1] = {2}, y[1];

            run(level, code, y, two, nan, two, 1);
            assert_true(isnan(y[0]));
        }
    }
}

/* The sum does not depend on the order of the codes. */
static void portable_bits_are_the_same_on_every_machine(void **state)
{
    static float y[N];
    uint32_t sum = 0;

    (void)state;
    for (int code = 0; code < WF_EW_COUNT; code++) {
        uint32_t of_code = 2166136261u;

        for (const char *c = wf_ew_info[code].name; *c; c++)
            of_code = (of_code ^ (uint32_t)*c) * 16777619u;
        run(WEFT_SIMD_PORTABLE, code, y, A, B, C, N);
        for (int i = 0; i < N; i++) {
            uint32_t b = 0x7fc00000;

            if (y[i] == y[i])
                memcpy(&b, &y[i], 4);
            of_code = (of_code ^ b) * 16777619u;
        }
        sum += of_code;
    }
    assert_int_equal(sum, 0xb048dda8);
}

/* Protected pages are on both sides of the block. */
static void nothing_beyond_the_block_is_touched_and_any_cut_gives_the_same_bits(void **state)
{
    int64_t page = sysconf(_SC_PAGESIZE);
    static float want[64];
    float *end[4], *map[4];

    (void)state;
    for (int k = 0; k < 4; k++) {
        char *m = mmap(NULL, 3 * (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);

        assert_true(m != MAP_FAILED);
        assert_int_equal(mprotect(m, (size_t)page, PROT_NONE), 0);
        assert_int_equal(mprotect(m + 2 * page, (size_t)page, PROT_NONE), 0);
        map[k] = (float *)(void *)m;
        end[k] = (float *)(void *)(m + 2 * page);
    }
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int code = 0; code < WF_EW_COUNT; code++) {
            run(level, code, want, A, B, C, 64);
            for (int n = 0; n <= 40; n++) {
                float *a = end[0] - n, *b = end[1] - n, *c = end[2] - n, *y = end[3] - n;

                memcpy(a, A, (size_t)n * 4);
                memcpy(b, B, (size_t)n * 4);
                memcpy(c, C, (size_t)n * 4);
                y[-1] = 77.0f;
                run(level, code, y, a, b, c, n);
                assert_true(same_bits(y, want, n) && y[-1] == 77.0f);
                y = map[3] + page / 4; /* the start of the readable page */
                y[n] = 77.0f;
                run(level, code, y, a, b, c, n);
                assert_true(same_bits(y, want, n) && y[n] == 77.0f);
            }
        }
    }
    for (int k = 0; k < 4; k++)
        munmap(map[k], 3 * (size_t)page);
}

static void in_place_gives_the_same_bits(void **state)
{
    static float want[N], a[N], b[N], c[N];

    (void)state;
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int code = 0; code < WF_EW_COUNT; code++) {
            float *dst[] = {a, b, c};

            run(level, code, want, A, B, C, 1000 + 7);
            for (int k = 0; k < 3; k++) {
                memcpy(a, A, sizeof a);
                memcpy(b, B, sizeof b);
                memcpy(c, C, sizeof c);
                run(level, code, dst[k], a, b, c, 1000 + 7);
                assert_true(same_bits(dst[k], want, 1000 + 7));
            }
        }
    }
}

/* The numbers of an op are the parameters of its block function. */
static void rows_and_block_functions_agree(void **state)
{
    weft_ctx *ctx = NULL;
    int n = 0;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_int_equal(wf_ops_ensure(ctx), 0);
    for (int id = 0; id < WF_N_OPS; id++) {
        const struct wf_op *op = wf_op_row(ctx, id);
        int code = wf_ew_code_of(id), n_floats = 0;

        if (code < 0)
            continue;
        for (int i = 0; i < op->n_attrs; i++)
            n_floats += op->attr[i].value.kind == WF_FLOAT;
        assert_int_equal(n_floats, wf_ew_info[code].n_param);
        assert_int_equal(op->n_in_max, wf_ew_info[code].n_in);
        if (id != WF_OP_identity)
            assert_string_equal(op->name, wf_ew_info[code].name);
        n++;
    }
    assert_true(n > 60);
    assert_int_equal(wf_ew_code_of(-1), -1);
    assert_int_equal(wf_ew_code_of(WF_N_OPS), -1);
    weft_ctx_free(ctx);
}

/* ---- conversions --------------------------------------------------------------------------- */

static void every_half_widens_as_the_scalar_and_comes_back(void **state)
{
    static uint16_t h[65536], back[65536];
    static float f[65536];

    (void)state;
    for (int i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        const struct wf_cvt_fns *cvt = wf_cvt_fns_of(level);

        cvt->to_f32[WEFT_F16](f, h, 65536);
        cvt->from_f32[WEFT_F16](back, f, 65536);
        for (int i = 0; i < 65536; i++) {
            float want = wf_f16_to_f32(h[i]);

            assert_true(same_bits(&f[i], &want, 1));
            assert_true(f[i] == f[i] ? back[i] == h[i] : (back[i] & 0x7fff) > 0x7c00);
        }
        cvt->to_f32[WEFT_BF16](f, h, 65536);
        cvt->from_f32[WEFT_BF16](back, f, 65536);
        for (int i = 0; i < 65536; i++) {
            float want = wf_bf16_to_f32(h[i]);

            assert_true(same_bits(&f[i], &want, 1));
            assert_true(f[i] == f[i] ? back[i] == h[i] : (back[i] & 0x7fff) > 0x7f80);
        }
    }
}

static bool is_nan_of(weft_dtype t, uint16_t h)
{
    return (t == WEFT_F16 && (h & 0x7fff) > 0x7c00) || (t == WEFT_BF16 && (h & 0x7fff) > 0x7f80);
}

static void floats_become_each_dtype_as_the_scalar_says(void **state)
{
    enum { M = 1000 };

    (void)state;
    for (uint64_t base = 0; base < (uint64_t)1 << 32; base += (uint64_t)M * 7919) {
        float x[M];

        for (int i = 0; i < M; i++) {
            uint32_t b = (uint32_t)(base + (uint64_t)i * 7919);

            memcpy(&x[i], &b, 4);
            if (i % 4 == 0)
                x[i] = (float)(int32_t)b / 0x1p22f;
        }
        for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
            for (int t = WEFT_F32; t < WEFT_N_DTYPES; t++) {
                int64_t size = weft_dtype_size((weft_dtype)t);
                char got[M * 8], want[M * 8];

                wf_cvt_fns_of(level)->from_f32[t](got, x, M);
                for (int i = 0; i < M; i++)
                    wf_set(want, (weft_dtype)t, i, (double)x[i]);
                for (int i = 0; i < M; i++) {
                    uint16_t h;

                    memcpy(&h, got + i * size, 2);
                    if (x[i] != x[i] && wf_is_float((weft_dtype)t))
                        assert_true(size > 2 ? isnan(wf_get(got, (weft_dtype)t, i))
                                             : is_nan_of((weft_dtype)t, h));
                    else
                        assert_memory_equal(got + i * size, want + i * size, (size_t)size);
                }
            }
        }
    }
}

static void each_dtype_becomes_floats_as_the_scalar_says(void **state)
{
    enum { M = 997 };
    uint64_t raw[M];
    uint32_t s = 9;

    (void)state;
    for (int i = 0; i < M; i++) {
        s = s * 1664525u + 1013904223u;
        raw[i] = (uint64_t)s << 32 | (s * 2654435761u);
    }
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int t = WEFT_F32; t < WEFT_N_DTYPES; t++) {
            float got[M + 1], want;

            for (int n = 0; n <= M; n = n < 70 ? n + 1 : n + 309) {
                got[n] = 77.0f;
                wf_cvt_fns_of(level)->to_f32[t](got, raw, n);
                assert_true(got[n] == 77.0f);
                for (int i = 0; i < n; i++) {
                    want = (float)wf_get(raw, (weft_dtype)t, i);
                    if (t == WEFT_I64)
                        want = (float)wf_get_int(raw, (weft_dtype)t, i);
                    if (t == WEFT_BOOL)
                        want = ((const uint8_t *)raw)[i] != 0;
                    assert_true(same_bits(&got[i], &want, 1));
                }
            }
        }
    }
}

static void conversions_touch_only_their_elements(void **state)
{
    (void)state;
    for (weft_simd level = first_level(); level <= weft_simd_best(); level++) {
        for (int t = WEFT_F32; t < WEFT_N_DTYPES; t++) {
            for (int n = 0; n <= 40; n++) {
                unsigned char got[41 * 8 + 8];
                size_t bytes = (size_t)(n * weft_dtype_size((weft_dtype)t));

                memset(got, 0xa5, sizeof got);
                wf_cvt_fns_of(level)->from_f32[t](got, A, n);
                for (size_t i = bytes; i < sizeof got; i++)
                    assert_int_equal(got[i], 0xa5);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_follows_its_formula_at_every_level),
        cmocka_unit_test(truth_values_are_one_or_zero),
        cmocka_unit_test(nan_goes_through_whatever_computes),
        cmocka_unit_test(portable_bits_are_the_same_on_every_machine),
        cmocka_unit_test(nothing_beyond_the_block_is_touched_and_any_cut_gives_the_same_bits),
        cmocka_unit_test(in_place_gives_the_same_bits),
        cmocka_unit_test(rows_and_block_functions_agree),
        cmocka_unit_test(every_half_widens_as_the_scalar_and_comes_back),
        cmocka_unit_test(floats_become_each_dtype_as_the_scalar_says),
        cmocka_unit_test(each_dtype_becomes_floats_as_the_scalar_says),
        cmocka_unit_test(conversions_touch_only_their_elements),
    };

    return cmocka_run_group_tests(tests, fill_operands, NULL);
}
