/* math_test.c - the vector functions at every level this CPU has: within their error bound over the
 * whole range of floats, right at special values, and in portable the bits of the scalar ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fmath.h"
#include "kernels/cpu/ew.h"
#include "support/ulps.h"

enum { N = 512 };

static bool same_bits(float a, float b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static double d_rsqrt(double x)
{
    return 1 / sqrt(x);
}

static float s_rsqrt(float x)
{
    return 1 / sqrtf(x);
}

static const struct function {
    enum wf_ew_code code;
    double (*d)(double);
    float (*scalar)(float);
    double bound;
} functions[] = {
    {WF_EW_exp, exp, wf_expf, 1.2},
    {WF_EW_expm1, expm1, wf_expm1f, 1.6},
    {WF_EW_log, log, wf_logf, 0.9},
    {WF_EW_log1p, log1p, wf_log1pf, 0.9},
    {WF_EW_tanh, tanh, wf_tanhf, 2.5},
    {WF_EW_sigmoid, d_sigmoid, wf_sigmoidf, 2.5},
    {WF_EW_softplus, d_softplus, wf_softplusf, 2.0},
    {WF_EW_erf, erf, wf_erff, 1.5},
    {WF_EW_sin, sin, wf_sinf, 2.5},
    {WF_EW_cos, cos, wf_cosf, 2.5},
    {WF_EW_sqrt, sqrt, sqrtf, 0.5},
    {WF_EW_rsqrt, d_rsqrt, s_rsqrt, 1.5},
    {WF_EW_floor, floor, floorf, 0},
    {WF_EW_ceil, ceil, ceilf, 0},
    {WF_EW_round, nearbyint, nearbyintf, 0},
};
#define N_FUNCTIONS (int)(sizeof functions / sizeof functions[0])

static void check(const struct function *fn, weft_simd level, const float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++) {
        double err = ulps(y[i], fn->d(x[i]));
        bool same = level != WEFT_SIMD_PORTABLE || same_bits(y[i], fn->scalar(x[i]));

        if (err > fn->bound || !same)
            print_error("%s %s(%a) = %a: %.3f ulp%s\n", weft_simd_name(level),
                        wf_ew_info[fn->code].name, (double)x[i], (double)y[i], err,
                        same ? "" : ", not the scalar's bits");
        assert_true(err <= fn->bound && same);
    }
}

static void every_float_range_is_within_bounds_at_every_level(void **state)
{
    (void)state;
    for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
        for (int k = 0; k < N_FUNCTIONS; k++) {
            wf_ew_fn *fn = wf_ew_fns_of(level)->fn[functions[k].code];
            float x[N], y[N];

            for (uint64_t b = 0; b < (uint64_t)1 << 32;) {
                for (int i = 0; i < N; i++, b += 12289)
                    x[i] = from_bits((uint32_t)b);
                fn(y, x, NULL, NULL, N, NULL);
                check(&functions[k], level, x, y, N);
            }
        }
    }
}

/* Where the functions live: dense in [-20, 20]. */
static void the_middle_is_within_bounds_at_every_level(void **state)
{
    (void)state;
    for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
        for (int k = 0; k < N_FUNCTIONS; k++) {
            wf_ew_fn *fn = wf_ew_fns_of(level)->fn[functions[k].code];
            float x[N], y[N];

            for (int from = 0; from < 200000; from += N) {
                for (int i = 0; i < N; i++)
                    x[i] = -20.0f + 40.0f / 200000 * (float)(from + i);
                fn(y, x, NULL, NULL, N, NULL);
                check(&functions[k], level, x, y, N);
            }
        }
    }
}

static const float special[] = {
    0.0f,           -0.0f,
    1.0f,           -1.0f,
    0.5f,           -0.5f,
    2.0f,           -2.0f,
    3.0f,           2.5f,
    -2.5f,          1.5f,
    0x1p-149f,      -0x1p-149f,
    0x1p-126f,      0x1.fffffep127f,
    16777215.0f,    -16777215.0f,
    8388607.5f,     88.7f,
    -103.9f,        -0x1.fffffep127f,
    INFINITY,       -INFINITY,
    16777216.0f,    1e10f,
    -1e30f,         NAN,
    -3.0f,          0x1.fffffep-1f,
    0x1.000002p+0f, -104.1f,
};
#define N_SPECIAL (int)(sizeof special / sizeof special[0])

static void special_values_keep_their_signs_at_every_level(void **state)
{
    (void)state;
    for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
        for (int k = 0; k < N_FUNCTIONS; k++) {
            float y[N_SPECIAL];

            wf_ew_fns_of(level)->fn[functions[k].code](y, special, NULL, NULL, N_SPECIAL, NULL);
            check(&functions[k], level, special, y, N_SPECIAL);
            for (int i = 0; i < N_SPECIAL; i++)
                if (functions[k].d(special[i]) == 0 && special[i] == 0)
                    assert_int_equal(!!signbit(functions[k].d(special[i])), !!signbit(y[i]));
        }
    }
}

static void pow_and_mod_give_the_scalar_bits_at_every_level(void **state)
{
    static float x[N_SPECIAL * N_SPECIAL + 65536], y[N_SPECIAL * N_SPECIAL + 65536];
    static float z[N_SPECIAL * N_SPECIAL + 65536];
    uint32_t s = 5;
    int n = 0;

    (void)state;
    for (int i = 0; i < N_SPECIAL; i++) {
        for (int j = 0; j < N_SPECIAL; j++, n++) {
            x[n] = special[i];
            y[n] = special[j];
        }
    }
    for (int i = 0; i < 65536; i++, n++) {
        uint32_t a = s = s * 1664525u + 1013904223u, b = s = s * 1664525u + 1013904223u;

        x[n] = from_bits(a ^ a >> 15);
        y[n] = i & 1 ? from_bits((b & 0x87ffffff) | 0x38000000) : from_bits(b ^ b >> 13);
    }
    for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
        wf_ew_fns_of(level)->fn[WF_EW_pow](z, x, y, NULL, n, NULL);
        for (int i = 0; i < n; i++) {
            assert_true(same_bits(z[i], wf_powf(x[i], y[i])));
            assert_true(ulps(z[i], pow(x[i], y[i])) <= 0.6);
        }
        wf_ew_fns_of(level)->fn[WF_EW_mod](z, x, y, NULL, n, NULL);
        for (int i = 0; i < n; i++)
            assert_true(same_bits(z[i], wf_floormodf(x[i], y[i])));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_float_range_is_within_bounds_at_every_level),
        cmocka_unit_test(the_middle_is_within_bounds_at_every_level),
        cmocka_unit_test(special_values_keep_their_signs_at_every_level),
        cmocka_unit_test(pow_and_mod_give_the_scalar_bits_at_every_level),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
