/* random_test.c - Philox gives its published words; random arrays have the right moments, and the
 * same bits at every level, for any cut, on every machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/philox.h"
#include "kernels/cpu/random.h"

static const struct wf_rng_key KEY = {
    .seed = 0x123456789abcdefull, .step = 7, .shard = 1, .node = 42};
static const float PARAMS[WF_RANDOM_N_KINDS][2] = {
    {-1.5f, 2.5f}, {0.5f, 2.0f}, {-1.0f, 0.1f}, {0.3f, 0}};

static void philox_gives_the_published_words(void **state)
{
    static const struct {
        uint32_t ctr[4], key[2], out[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (int i = 0; i < WF_COUNT(known); i++) {
        uint32_t out[4];

        wf_philox(known[i].ctr, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
}

static void arrays_have_the_golden_bits_at_every_level(void **state)
{
    static const uint32_t golden[WF_RANDOM_N_KINDS] = {0x2f20bbf8, 0xd1175e8b, 0x72897330,
                                                       0x76d70505};
    enum { N = 10000 };
    static float want[N], x[N];

    (void)state;
    for (int kind = 0; kind < WF_RANDOM_N_KINDS; kind++) {
        uint32_t sum = 2166136261u;

        wf_random_fill(kind, want, 0, N, &KEY, PARAMS[kind]);
        for (int i = 0; i < N; i++) {
            uint32_t b;

            memcpy(&b, &want[i], 4);
            sum = (sum ^ b) * 16777619u;
        }
        if (sum != golden[kind])
            print_error("kind %d: 0x%08x\n", kind, sum);
        assert_int_equal(sum, golden[kind]);
        for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
            wf_random_fns_of(level)->fill(kind, x, 0, N, &KEY, PARAMS[kind]);
            assert_memory_equal(x, want, sizeof x);
        }
    }
}

static void any_cut_gives_the_same_bits(void **state)
{
    enum { N = 700 };
    static float want[N], x[N + 2];

    (void)state;
    for (int kind = 0; kind < WF_RANDOM_N_KINDS; kind++) {
        wf_random_fill(kind, want, 1000, N, &KEY, PARAMS[kind]);
        for (weft_simd level = WEFT_SIMD_AUTO; level <= weft_simd_best(); level++) {
            for (int step = 1; step < 200; step += step < 20 ? 1 : 37) {
                x[0] = x[N + 1] = 77.0f;
                for (int i = 0; i < N; i += step) {
                    int n = i + step < N ? step : N - i;

                    if (level == WEFT_SIMD_AUTO)
                        wf_random_fill(kind, x + 1 + i, 1000 + i, n, &KEY, PARAMS[kind]);
                    else
                        wf_random_fns_of(level)->fill(kind, x + 1 + i, 1000 + i, n, &KEY,
                                                      PARAMS[kind]);
                }
                assert_memory_equal(x + 1, want, N * sizeof(float));
                assert_true(x[0] == 77.0f && x[N + 1] == 77.0f);
            }
        }
    }
}

/* The counter's high word: elements beyond 2^34 exist too. */
static void far_elements_agree(void **state)
{
    float want[100], x[100];

    (void)state;
    for (int kind = 0; kind < WF_RANDOM_N_KINDS; kind++) {
        int64_t first = ((int64_t)1 << 34) - 50;

        wf_random_fill(kind, want, first, 100, &KEY, PARAMS[kind]);
        for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
            wf_random_fns_of(level)->fill(kind, x, first, 100, &KEY, PARAMS[kind]);
            assert_memory_equal(x, want, sizeof x);
        }
    }
}

static void every_part_of_the_key_matters(void **state)
{
    struct wf_rng_key keys[] = {KEY, KEY, KEY, KEY, KEY, KEY, KEY};
    float x[7][256];
    const float unit[2] = {0, 1};

    (void)state;
    keys[1].seed++;
    keys[2].seed += (uint64_t)1 << 32;
    keys[3].step++;
    keys[4].step += (uint64_t)1 << 32;
    keys[5].shard++;
    keys[6].node++;
    for (int i = 0; i < 7; i++)
        wf_random_fill(WF_RANDOM_UNIFORM, x[i], 0, 256, &keys[i], unit);
    for (int i = 0; i < 7; i++) {
        for (int j = 0; j < i; j++) {
            double dot = 0;
            int n_same = 0;

            for (int k = 0; k < 256; k++) {
                n_same += x[i][k] == x[j][k];
                dot += (x[i][k] - 0.5) * (x[j][k] - 0.5) * 12;
            }
            assert_true(n_same <= 1);
            assert_true(fabs(dot / 256) < 0.3); /* five standard deviations */
        }
    }
}

/* Mean, variance, skewness, kurtosis, and the correlation of neighbors at several distances. */
static void moments(const float *x, int n, double m[4], double *corr)
{
    double mean = 0;

    m[0] = m[1] = m[2] = m[3] = *corr = 0;
    for (int i = 0; i < n; i++)
        mean += x[i];
    mean /= n;
    for (int i = 0; i < n; i++) {
        double d = x[i] - mean;

        m[1] += d * d;
        m[2] += d * d * d;
        m[3] += d * d * d * d;
    }
    m[0] = mean;
    m[1] /= n;
    m[2] /= n * pow(m[1], 1.5);
    m[3] /= n * m[1] * m[1];
    for (int lag = 1; lag <= 64; lag *= 2) {
        double c = 0;

        for (int i = 0; i + lag < n; i++)
            c += (x[i] - mean) * (x[i + lag] - mean);
        c = fabs(c / n / m[1]);
        *corr = c > *corr ? c : *corr;
    }
}

static void distributions_have_their_moments(void **state)
{
    enum { N = 1 << 20 };
    static const float params[WF_RANDOM_N_KINDS][2] = {{0, 1}, {0, 1}, {0, 1}, {0.3f, 0}};
    /* mean, variance, skewness, kurtosis; the truncated normal's by integration over [-2, 2] */
    static const double want[WF_RANDOM_N_KINDS][4] = {
        {0.5, 1.0 / 12, 0, 1.8},
        {0, 1, 0, 3},
        {0, 0.7737413, 0, 2.3655},
        {0.3, 0.21, 0.87287, 1.7619},
    };
    float *x = malloc(N * sizeof(float));

    (void)state;
    assert_non_null(x);
    for (int kind = 0; kind < WF_RANDOM_N_KINDS; kind++) {
        double m[4], corr;

        wf_random_fns_of(weft_simd_best())->fill(kind, x, 0, N, &KEY, params[kind]);
        moments(x, N, m, &corr);
        for (int k = 0; k < 4; k++) {
            double tolerance[] = {0.005, 0.006, 0.015, 0.03};

            if (fabs(m[k] - want[kind][k]) > tolerance[k])
                print_error("kind %d, moment %d: %g, expected %g\n", kind, k + 1, m[k],
                            want[kind][k]);
            assert_true(fabs(m[k] - want[kind][k]) <= tolerance[k]);
        }
        assert_true(corr < 0.006); /* six standard deviations */
    }
    free(x);
}

/* The fraction of normals in each of 16 equally likely cells. */
static void normals_fill_their_cells(void **state)
{
    enum { N = 1 << 20, CELLS = 16 };
    const float unit[2] = {0, 1};
    float *x = malloc(N * sizeof(float));
    int count[CELLS] = {0};
    double chi2 = 0;

    (void)state;
    assert_non_null(x);
    wf_random_fns_of(weft_simd_best())->fill(WF_RANDOM_NORMAL, x, 0, N, &KEY, unit);
    for (int i = 0; i < N; i++) {
        int c = (int)(0.5 * erfc(-x[i] / sqrt(2)) * CELLS);

        count[c < CELLS ? c : CELLS - 1]++;
        assert_true(fabsf(x[i]) < 5.8f);
    }
    for (int c = 0; c < CELLS; c++)
        chi2 += pow(count[c] - (double)N / CELLS, 2) / ((double)N / CELLS);
    assert_true(chi2 < 45); /* 15 degrees of freedom: probability 1e-4 */
    free(x);
}

static void ranges_are_kept(void **state)
{
    enum { N = 1 << 18 };
    static float x[N];
    const float narrow[2] = {1.0f, 1.0000004f}, trunc[2] = {3.0f, 2.0f}, none[2] = {0, 0},
                all[2] = {1, 0};
    const float point[2] = {2.0f, 2.0f};

    (void)state;
    wf_random_fns_of(weft_simd_best())->fill(WF_RANDOM_UNIFORM, x, 0, N, &KEY, narrow);
    for (int i = 0; i < N; i++)
        assert_true(x[i] >= narrow[0] && x[i] < narrow[1]);
    wf_random_fns_of(weft_simd_best())->fill(WF_RANDOM_TRUNCATED_NORMAL, x, 0, N, &KEY, trunc);
    for (int i = 0; i < N; i++)
        assert_true(x[i] >= -1.0f && x[i] <= 7.0f);
    wf_random_fill(WF_RANDOM_BERNOULLI, x, 0, 1000, &KEY, none);
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == 0.0f);
    wf_random_fill(WF_RANDOM_BERNOULLI, x, 0, 1000, &KEY, all);
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == 1.0f);
    wf_random_fill(WF_RANDOM_UNIFORM, x, 0, 1000, &KEY, point);
    for (int i = 0; i < 1000; i++)
        assert_true(x[i] == 2.0f);
}

static void dropout_keeps_what_the_mask_says(void **state)
{
    enum { N = 5000 };
    static float x[N], y[N], u[N], z[N];
    const float unit[2] = {0, 1};
    const float rates[] = {0.0f, 0.1f, 0.5f, 1.0f};

    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (float)(i + 1);
    wf_random_fill(WF_RANDOM_UNIFORM, u, 33, N, &KEY, unit);
    for (weft_simd level = WEFT_SIMD_PORTABLE; level <= weft_simd_best(); level++) {
        for (int r = 0; r < WF_COUNT(rates); r++) {
            float scale = 1.0f / (1.0f - rates[r]);

            wf_random_fns_of(level)->dropout(y, x, 33, N, &KEY, rates[r]);
            for (int i = 0; i < N; i++)
                assert_true(y[i] == (u[i] >= rates[r] ? x[i] * scale : 0.0f));
            memcpy(z, x, sizeof z);
            for (int i = 0; i < N;) { /* in place, in uneven pieces */
                int n = i % 3 == 0 ? 97 : 64;

                n = i + n < N ? n : N - i;
                wf_random_fns_of(level)->dropout(z + i, z + i, 33 + i, n, &KEY, rates[r]);
                i += n;
            }
            assert_memory_equal(z, y, sizeof z);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(arrays_have_the_golden_bits_at_every_level),
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(far_elements_agree),
        cmocka_unit_test(every_part_of_the_key_matters),
        cmocka_unit_test(distributions_have_their_moments),
        cmocka_unit_test(normals_fill_their_cells),
        cmocka_unit_test(ranges_are_kept),
        cmocka_unit_test(dropout_keeps_what_the_mask_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
