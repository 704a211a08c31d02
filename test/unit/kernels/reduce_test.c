/* reduce_test.c - reductions, indices, running sums and booleans against plain f64, at every SIMD
 * level, odd and empty shapes, bit for bit at every thread count. */
#include "kernels/cpu/reduce.h"
#include "rows_support.h"

static const struct wf_reduce_shape shapes[] = {
    {0, 5, 1},     {4, 0, 1},     {3, 0, 7},     {2, 3, 0},    {1, 1, 1},      {7, 3, 1},
    {1000, 10, 1}, {35, 16, 1},   {33, 17, 1},   {5, 4096, 1}, {3, 5000, 1},   {2, 20000, 1},
    {1, 70001, 1}, {3, 129, 1},   {1, 128, 10},  {1, 9, 3},    {1, 40, 16},    {1, 5, 17},
    {4, 33, 10},   {300, 5, 7},   {1, 700, 100}, {1, 64, 513}, {2, 100, 1030}, {1, 3000, 2},
    {2, 1, 20},    {1, 2049, 15},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static double plain(enum wf_reduce_op op, const float *x, int64_t n, int64_t stride)
{
    double sum = 0, max = -INFINITY, min = INFINITY, product = 1, squares = 0, size = 0, e = 0;

    for (int64_t i = 0; i < n; i++) {
        double v = x[i * stride];

        sum += v;
        max = v > max ? v : max;
        min = v < min ? v : min;
        product *= v;
        squares += v * v;
        size += fabs(v);
    }
    for (int64_t i = 0; i < n; i++)
        e += exp(x[i * stride] - max);
    switch (op) {
    case WF_REDUCE_SUM: return sum;
    case WF_REDUCE_MEAN: return n ? sum / (double)n : NAN;
    case WF_REDUCE_MAX: return max;
    case WF_REDUCE_MIN: return min;
    case WF_REDUCE_PROD: return product;
    case WF_REDUCE_SUMSQ: return squares;
    case WF_REDUCE_L1: return size;
    case WF_REDUCE_L2: return sqrt(squares);
    default: return n ? max + log(e) : -INFINITY;
    }
}

static void reduce_case(const struct wf_reduce_shape *s, enum wf_reduce_op op)
{
    int64_t n = s->n_outer * s->n * s->n_inner, n_out = s->n_outer * s->n_inner;
    double spread = op == WF_REDUCE_PROD ? .5 / sqrt((double)s->n + 1) : 2;
    double middle = op == WF_REDUCE_PROD ? 1 : 0;
    float *x = random_floats(n, middle - spread, middle + spread), *out = zeros(n_out, 4);
    float *kept = zeros(n_out, 4), *scratch = zeros(wf_reduce_scratch(op, s), 4);
    /* Rounding errors of sums of mixed signs, and of products, grow with the length. */
    double tol =
        op <= WF_REDUCE_MEAN || op == WF_REDUCE_PROD ? 3e-7 * sqrt((double)s->n + 10) : 2e-6;

    for (EACH_LEVEL(level)) {
        for (int i = 0; i < N_COUNTS; i++) {
            wf_reduce(wf_reduce_fns_at(level), contexts[i]->pool, op, s, x, out, scratch);
            if (i)
                check_same(out, kept, (size_t)n_out * 4, "reduction");
            else if (n_out)
                memcpy(kept, out, (size_t)n_out * 4);
        }
        for (int64_t i = 0; i < n_out; i++) {
            const float *first = x + i / s->n_inner * s->n * s->n_inner + i % s->n_inner;

            check_near(out[i], plain(op, first, s->n, s->n_inner), tol, "reduction", i);
        }
    }
    free(x);
    free(out);
    free(kept);
    free(scratch);
}

static void every_reduction_matches_plain_f64(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int op = 0; op < WF_REDUCE_N_OPS; op++)
            reduce_case(&shapes[i], (enum wf_reduce_op)op);
}

static void long_sums_keep_their_digits(void **state)
{
    enum { N = 1 << 20 };
    static const struct wf_reduce_shape both[] = {{1, N, 1}, {1, N / 16, 16}};
    float *x = random_floats(N, 0, 1), out[16], *scratch;

    (void)state;
    for (int s = 0; s < 2; s++) {
        scratch = zeros(wf_reduce_scratch(WF_REDUCE_SUM, &both[s]), 4);
        for (EACH_LEVEL(level)) {
            wf_reduce(wf_reduce_fns_at(level), NULL, WF_REDUCE_SUM, &both[s], x, out, scratch);
            for (int c = 0; c < both[s].n_inner; c++)
                check_near(out[c], plain(WF_REDUCE_SUM, x + c, both[s].n, both[s].n_inner), 3e-7,
                           "sum", c);
        }
        free(scratch);
    }
    free(x);
}

static void a_nan_reaches_the_maximum(void **state)
{
    (void)state;
    for (EACH_LEVEL(level))
        for (int s = 0; s < N_SHAPES; s++) {
            int64_t n = shapes[s].n_outer * shapes[s].n * shapes[s].n_inner;
            float *x = random_floats(n, -1, 1), *out = zeros(n + 16, 4);
            float *scratch = zeros(wf_reduce_scratch(WF_REDUCE_MAX, &shapes[s]), 4);

            for (int64_t at = 0; at < n; at += 1 + n / 7) {
                float was = x[at];
                int64_t a_row = shapes[s].n * shapes[s].n_inner;
                int64_t where = at / a_row * shapes[s].n_inner + at % shapes[s].n_inner;

                x[at] = NAN;
                for (int op = WF_REDUCE_MAX; op <= WF_REDUCE_MIN; op++) {
                    wf_reduce(wf_reduce_fns_at(level), NULL, (enum wf_reduce_op)op, &shapes[s], x,
                              out, scratch);
                    assert_true(isnan(out[where]));
                }
                wf_reduce(wf_reduce_fns_at(level), NULL, WF_REDUCE_LOGSUMEXP, &shapes[s], x, out,
                          scratch);
                assert_true(isnan(out[where]));
                x[at] = was;
            }
            free(x);
            free(out);
            free(scratch);
        }
}

static int64_t plain_arg(bool min, const float *x, int64_t n, int64_t stride)
{
    int64_t best = 0;

    for (int64_t i = 0; i < n; i++) {
        float v = x[i * stride], b = x[best * stride];

        if (isnan(v))
            return i;
        if (min ? v < b : v > b)
            best = i;
    }
    return best;
}

static void arg_case(const struct wf_reduce_shape *s, int nans)
{
    int64_t n = s->n_outer * s->n * s->n_inner, n_out = s->n_outer * s->n_inner;
    float *x = random_floats(n, -4, 4);
    int64_t *out64 = zeros(n_out, 8);
    int32_t *out32 = zeros(n_out, 4);

    for (int64_t i = 0; i < n; i++)
        x[i] = nans && random_unit() < .05 ? NAN : floorf(x[i]); /* many equal ones */
    for (EACH_LEVEL(level))
        for (int i = 0; i < N_COUNTS; i++) {
            const struct wf_reduce_fns *f = wf_reduce_fns_at(level);

            wf_argmax(f, contexts[i]->pool, s, x, true, out64);
            wf_argmin(f, contexts[i]->pool, s, x, false, out32);
            for (int64_t k = 0; k < n_out && s->n; k++) {
                const float *first = x + k / s->n_inner * s->n * s->n_inner + k % s->n_inner;

                assert_int_equal(out64[k], plain_arg(false, first, s->n, s->n_inner));
                assert_int_equal(out32[k], plain_arg(true, first, s->n, s->n_inner));
            }
        }
    free(x);
    free(out64);
    free(out32);
}

static void the_first_of_equals_and_the_first_nan_win(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int nans = 0; nans < 2; nans++)
            arg_case(&shapes[s], nans);
}

static void running_sums_match_a_plain_loop(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int mode = 0; mode < 4; mode++) {
            bool exclusive = mode & 1, reverse = mode & 2;
            int64_t n = shapes[s].n, inner = shapes[s].n_inner,
                    total = shapes[s].n_outer * n * inner;
            float *x = random_floats(total, -1, 1), *y = zeros(total, 4), *want = zeros(total, 4);

            for (int64_t k = 0; k < shapes[s].n_outer * inner; k++) {
                int64_t first = k / (inner ? inner : 1) * n * inner + k % (inner ? inner : 1);
                float sum = 0;

                for (int64_t i = 0; i < n; i++) {
                    int64_t at = first + (reverse ? n - 1 - i : i) * inner;

                    want[at] = exclusive ? sum : sum + x[at];
                    sum += x[at];
                }
            }
            for (EACH_LEVEL(level))
                for (int i = 0; i < N_COUNTS; i++) {
                    if (total)
                        memcpy(y, x, (size_t)total * 4); /* in place */
                    wf_cumsum(wf_reduce_fns_at(level), contexts[i]->pool, &shapes[s], exclusive,
                              reverse, y, y);
                    check_same(y, want, (size_t)total * 4, "cumsum");
                }
            free(x);
            free(y);
            free(want);
        }
}

static void any_and_all(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int mode = 0; mode < 3; mode++) {
            int64_t n = shapes[s].n, inner = shapes[s].n_inner, n_out = shapes[s].n_outer * inner;
            uint8_t *x = zeros(n_out * n, 1), *any = zeros(n_out, 1), *all = zeros(n_out, 1);

            for (int64_t i = 0; i < n_out * n; i++)
                x[i] = random_unit() < (mode == 0 ? .02 : .98) ? 1 + (uint8_t)(random_unit() * 254)
                                                               : 0;
            for (EACH_LEVEL(level))
                for (int i = 0; i < N_COUNTS; i++) {
                    const struct wf_reduce_fns *f = wf_reduce_fns_at(level);

                    wf_any(f, contexts[i]->pool, &shapes[s], x, any);
                    wf_all(f, contexts[i]->pool, &shapes[s], x, all);
                    for (int64_t k = 0; k < n_out; k++) {
                        int64_t n_true = 0;

                        for (int64_t j = 0; j < n; j++)
                            n_true += x[k / inner * n * inner + j * inner + k % inner] != 0;
                        assert_int_equal(any[k], n_true > 0);
                        assert_int_equal(all[k], n_true == n);
                    }
                }
            free(x);
            free(any);
            free(all);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reduction_matches_plain_f64),
        cmocka_unit_test(long_sums_keep_their_digits),
        cmocka_unit_test(a_nan_reaches_the_maximum),
        cmocka_unit_test(the_first_of_equals_and_the_first_nan_win),
        cmocka_unit_test(running_sums_match_a_plain_loop),
        cmocka_unit_test(any_and_all),
    };

    return cmocka_run_group_tests(tests, contexts_open, contexts_close);
}
