/* fmath_test.c - the elementary functions: within their error bound of the C library's doubles over
 * the whole range of floats, right at special values, and the same bits on every machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fmath.h"
#include "support/ulps.h"

static uint32_t to_bits(float x)
{
    uint32_t b;

    memcpy(&b, &x, sizeof b);
    return x != x ? 0x7fc00000 : b;
}

static double d_normcdf(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static const struct function {
    const char *name;
    float (*f)(float);
    double (*d)(double);
    double bound, from; /* ulp; checked from here up */
    uint32_t checksum;  /* over the sweep: the same on every machine */
} functions[] = {
    {"exp", wf_expf, exp, 1.2, -INFINITY, 0xf027e945},
    {"expm1", wf_expm1f, expm1, 1.6, -INFINITY, 0x50deda58},
    {"log", wf_logf, log, 1.0, -INFINITY, 0x2da1cdc7},
    {"log1p", wf_log1pf, log1p, 1.0, -INFINITY, 0xeca4b289},
    {"tanh", wf_tanhf, tanh, 2.5, -INFINITY, 0xdb814f29},
    {"sigmoid", wf_sigmoidf, d_sigmoid, 2.5, -INFINITY, 0xb9ec67c3},
    {"softplus", wf_softplusf, d_softplus, 2.0, -INFINITY, 0xc18cae58},
    {"erf", wf_erff, erf, 1.5, -INFINITY, 0x4fcfe8ca},
    {"normcdf", wf_normcdff, d_normcdf, 3.5, -1.5, 0x746e7ede},
    {"sin", wf_sinf, sin, 2.5, -INFINITY, 0x1622ef74},
    {"cos", wf_cosf, cos, 2.5, -INFINITY, 0x9d2c70b3},
};
#define N_FUNCTIONS (int)(sizeof functions / sizeof functions[0])

static void every_function_is_within_its_bound_and_gives_the_golden_bits(void **state)
{
    (void)state;
    for (int k = 0; k < N_FUNCTIONS; k++) {
        const struct function *fn = &functions[k];
        uint32_t sum = 2166136261u;
        double worst = 0;
        float at = 0;

        for (uint64_t b = 0; b < (uint64_t)1 << 32; b += 12289) {
            float x = from_bits((uint32_t)b), y = fn->f(x);
            double err = x < fn->from ? 0 : ulps(y, fn->d(x));

            sum = (sum ^ to_bits(y)) * 16777619u;
            if (err > worst) {
                worst = err;
                at = x;
            }
        }
        if (worst > fn->bound || sum != fn->checksum)
            print_error("%s: %.3f ulp at %a, checksum 0x%08x\n", fn->name, worst, (double)at, sum);
        assert_true(worst <= fn->bound);
        assert_int_equal(sum, fn->checksum);
    }
}

static const float special[] = {
    0.0f,
    -0.0f,
    1.0f,
    -1.0f,
    0.5f,
    -0.5f,
    2.0f,
    -2.0f,
    3.0f,
    -3.0f,
    2.5f,
    -2.5f,
    0x1p-149f,
    -0x1p-149f,
    0x1p-126f,
    0x1.fffffep127f,
    -0x1.fffffep127f,
    88.7f,
    88.8f,
    -103.9f,
    -104.1f,
    16777215.0f,
    16777216.0f,
    -16777215.0f,
    1e10f,
    -1e30f,
    INFINITY,
    -INFINITY,
    NAN,
};
#define N_SPECIAL (int)(sizeof special / sizeof special[0])

static void special_values_are_those_of_the_c_library(void **state)
{
    (void)state;
    for (int k = 0; k < N_FUNCTIONS; k++) {
        for (int i = 0; i < N_SPECIAL; i++) {
            float x = special[i], y = functions[k].f(x);
            double want = functions[k].d(x);

            if (x < functions[k].from)
                continue;
            if (ulps(y, want) > 2.5)
                print_error("%s(%a) = %a, expected %a\n", functions[k].name, (double)x, (double)y,
                            want);
            assert_true(ulps(y, want) <= 2.5);
            if (want == 0 && fabsf(x) != INFINITY)
                assert_int_equal(!!signbit(want), !!signbit(y));
        }
    }
}

static void normal_tail_falls_to_zero_and_keeps_its_precision(void **state)
{
    float last = wf_normcdff(-1.0f);

    (void)state;
    for (float x = -1.0f; x > -16.0f; x -= 0.001f) {
        float y = wf_normcdff(x);
        double want = d_normcdf(x);

        if (x > -5.0f)
            assert_true(fabs(y - want) <= 8e-6 * want);
        else
            assert_true(y <= 3e-7f);
        assert_true(y <= last * (1 + 4e-6f));
        last = y;
    }
    assert_true(last == 0.0f);
    assert_true(wf_normcdff(-INFINITY) == 0.0f && wf_normcdff(INFINITY) == 1.0f);
}

static void pow_is_right_to_an_ulp_and_at_every_special_pair(void **state)
{
    uint32_t s = 1, sum = 2166136261u;
    double worst = 0;

    (void)state;
    for (int i = 0; i < N_SPECIAL; i++) {
        for (int j = 0; j < N_SPECIAL; j++) {
            float x = special[i], y = special[j], z = wf_powf(x, y);
            double want = pow(x, y);
            float w = (float)want;

            if (ulps(z, want) > 1)
                print_error("pow(%a, %a) = %a, expected %a\n", (double)x, (double)y, (double)z,
                            want);
            assert_true(ulps(z, want) <= 1);
            assert_true(isnan(w) || !signbit(w) == !signbit(z));
        }
    }
    for (int i = 0; i < 400000; i++) {
        uint32_t a = s = s * 1664525u + 1013904223u, b = s = s * 1664525u + 1013904223u;
        float x = from_bits(a >> 1), y = from_bits((b & 0x87ffffff) | 0x38000000), z;

        if (i % 4 == 0) {
            x = 1 + (float)(int)(a >> 20) * 1e-6f;
            y = (float)((int)(b >> 16) - 32768);
        }
        z = wf_powf(x, y);
        sum = (sum ^ to_bits(z)) * 16777619u;
        worst = fmax(worst, ulps(z, pow(x, y)));
    }
    if (worst > 0.6 || sum != 0x46df4ec5)
        print_error("pow: %.3f ulp, checksum 0x%08x\n", worst, sum);
    assert_true(worst <= 0.6);
    assert_int_equal(sum, 0x46df4ec5);
}

static void trig_keeps_its_precision_for_huge_arguments(void **state)
{
    uint32_t s = 7;

    (void)state;
    for (int i = 0; i < 200000; i++) {
        float x;
        double r;
        int32_t q;

        s = s * 1664525u + 1013904223u;
        x = from_bits((s & 0x80ffffff) + (0x45000000 + (s >> 26 << 24)));
        if (!isfinite(x))
            continue;
        assert_true(ulps(wf_sinf(x), sin(x)) <= 2.5);
        assert_true(ulps(wf_cosf(x), cos(x)) <= 2.5);
        r = wf_rem_pio2f(x, &q);
        assert_true(fabs(r) <= 0.7853983 && q >= 0 && q <= 3);
        assert_true(fabs(sin(r + q * 1.5707963267948966) - sin(x)) < 1e-7);
    }
}

static void remainders_are_exact(void **state)
{
    uint32_t s = 3;

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        uint32_t a = s = s * 1664525u + 1013904223u, b = s = s * 1664525u + 1013904223u;
        float x = from_bits(a ^ a >> 15), y = from_bits(b ^ b >> 13), want, floored;

        if (i % 5 == 0) { /* denormals */
            x = from_bits(a & 0x80ffffff);
            y = from_bits(b & 0x807fffff);
        }
        if (i % 7 == 0) {
            x = (float)((int)(a >> 24) - 128);
            y = (float)((int)(b >> 28) - 8);
        }
        want = fmodf(x, y);
        floored = want == 0 ? copysignf(0, y) : (want < 0) != (y < 0) ? want + y : want;
        assert_int_equal(to_bits(wf_fmodf(x, y)), to_bits(want));
        assert_int_equal(to_bits(wf_floormodf(x, y)), to_bits(floored));
    }
    assert_true(wf_floormodf(-1.0f, INFINITY) == INFINITY);
    assert_true(isnan(wf_floormodf(1.0f, 0.0f)) && isnan(wf_floormodf(INFINITY, 1.0f)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_function_is_within_its_bound_and_gives_the_golden_bits),
        cmocka_unit_test(special_values_are_those_of_the_c_library),
        cmocka_unit_test(normal_tail_falls_to_zero_and_keeps_its_precision),
        cmocka_unit_test(pow_is_right_to_an_ulp_and_at_every_special_pair),
        cmocka_unit_test(trig_keeps_its_precision_for_huge_arguments),
        cmocka_unit_test(remainders_are_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
