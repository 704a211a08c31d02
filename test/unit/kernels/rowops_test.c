/* rowops_test.c - softmax and cross-entropy on rows against plain f64, at every SIMD level, odd and
 * empty sizes, in place, and bit for bit at every thread count. */
#include "kernels/cpu/rowops.h"
#include "rows_support.h"

static const struct {
    int64_t n_rows, width;
} shapes[] = {{0, 5},  {3, 0},   {1, 1},     {5, 2},    {33, 10},   {17, 16},
              {4, 17}, {9, 100}, {1030, 10}, {130, 64}, {40, 1024}, {2, 50304}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static double plain_lse(const float *x, int64_t n, double *max_out)
{
    double max = -INFINITY, sum = 0;

    for (int64_t c = 0; c < n; c++)
        max = x[c] > max ? x[c] : max;
    for (int64_t c = 0; c < n; c++)
        sum += exp(x[c] - max);
    if (max_out)
        *max_out = max;
    return max + log(sum);
}

/* Compare with the first result, or keep it: the same bits whatever the number of threads. */
static void same_or_keep(int count, float *got, float *kept, int64_t n, const char *what)
{
    if (count)
        check_same(got, kept, (size_t)n * sizeof *got, what);
    else if (n)
        memcpy(kept, got, (size_t)n * sizeof *got);
}

static void softmax_and_logarithm_match_plain_f64(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++) {
        int64_t n_rows = shapes[s].n_rows, width = shapes[s].width, n = n_rows * width;
        float *x = random_floats(n, -9, 9), *y[3], *kept[3];

        for (int i = 0; i < 3; i++) {
            y[i] = zeros(n + n_rows, sizeof(float));
            kept[i] = zeros(n + n_rows, sizeof(float));
        }
        for (EACH_LEVEL(level)) {
            const struct wf_row_fns *f = wf_row_fns_at(level);

            for (int i = 0; i < N_COUNTS; i++) {
                if (n)
                    memcpy(y[1], x, (size_t)n * sizeof *x); /* in place */
                wf_softmax(f, contexts[i]->pool, n_rows, width, x, y[0]);
                wf_log_softmax(f, contexts[i]->pool, n_rows, width, y[1], y[1]);
                wf_logsumexp(f, contexts[i]->pool, n_rows, width, x, y[2]);
                same_or_keep(i, y[0], kept[0], n, "softmax");
                same_or_keep(i, y[1], kept[1], n, "log_softmax");
                same_or_keep(i, y[2], kept[2], n_rows, "logsumexp");
            }
            for (int64_t r = 0; r < n_rows; r++) {
                double lse = width ? plain_lse(x + r * width, width, NULL) : -INFINITY;

                check_near(y[2][r], lse, 1e-6, "logsumexp", r);
                for (int64_t i = r * width; i < (r + 1) * width; i++) {
                    check_near(y[0][i], exp(x[i] - lse), 1e-6, "softmax", i);
                    check_near(y[1][i], x[i] - lse, 1e-6, "log_softmax", i);
                }
            }
        }
        for (int i = 0; i < 3; i++) {
            free(y[i]);
            free(kept[i]);
        }
        free(x);
    }
}

static void gradients_match_plain_f64(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++) {
        int64_t n_rows = shapes[s].n_rows, width = shapes[s].width, n = n_rows * width;
        float *x = random_floats(n, -3, 3), *dy = random_floats(n, -1, 1), *y = zeros(n, 4),
              *ly = zeros(n, 4);
        float *dx = zeros(n, 4), *ldx = zeros(n, 4), *kept = zeros(n, 4), *lkept = zeros(n, 4);

        for (EACH_LEVEL(level)) {
            const struct wf_row_fns *f = wf_row_fns_at(level);

            wf_softmax(f, NULL, n_rows, width, x, y);
            wf_log_softmax(f, NULL, n_rows, width, x, ly);
            for (int i = 0; i < N_COUNTS; i++) {
                if (n)
                    memcpy(dx, dy, (size_t)n * 4);
                wf_softmax_grad(f, contexts[i]->pool, n_rows, width, y, dx, dx);
                wf_log_softmax_grad(f, contexts[i]->pool, n_rows, width, ly, dy, ldx);
                same_or_keep(i, dx, kept, n, "softmax_grad");
                same_or_keep(i, ldx, lkept, n, "log_softmax_grad");
            }
            for (int64_t r = 0; r < n_rows; r++) {
                double dot = 0, sum = 0;

                for (int64_t i = r * width; i < (r + 1) * width; i++) {
                    dot += (double)y[i] * dy[i];
                    sum += dy[i];
                }
                for (int64_t i = r * width; i < (r + 1) * width; i++) {
                    check_near(dx[i], y[i] * (dy[i] - dot), 1e-6, "softmax_grad", i);
                    check_near(ldx[i], dy[i] - exp(ly[i]) * sum, 4e-6, "log_softmax_grad", i);
                }
            }
        }
        free(x);
        free(dy);
        free(y);
        free(ly);
        free(dx);
        free(ldx);
        free(kept);
        free(lkept);
    }
}

static void sparse_case(int64_t n_rows, int64_t width, bool wide, const int64_t *ignore,
                        bool in_place)
{
    int64_t n = n_rows * width, *labels64 = zeros(n_rows, 8);
    int32_t *labels32 = zeros(n_rows, 4);
    float *x = random_floats(n, -5, 5), *weight = random_floats(n_rows, 0, 1),
          *loss = zeros(n_rows, 4);
    float *dx = zeros(n, 4), *kept_loss = zeros(n_rows, 4), *kept = zeros(n, 4);

    for (int64_t r = 0; r < n_rows; r++)
        labels32[r] = (int32_t)(labels64[r] = ignore && r % 3 == 1
                                                  ? *ignore
                                                  : (int64_t)(random_unit() * (double)width));
    for (EACH_LEVEL(level)) {
        for (int i = 0; i < N_COUNTS; i++) {
            struct wf_xent p = {.n_rows = n_rows,
                                .width = width,
                                .x = in_place ? dx : x,
                                .labels = wide ? (void *)labels64 : (void *)labels32,
                                .wide = wide,
                                .has_ignore = ignore != NULL,
                                .ignore = ignore ? *ignore : 0,
                                .scale = .25f,
                                .row_scale = wide ? weight : NULL,
                                .loss = loss,
                                .dx = dx};

            if (in_place && n)
                memcpy(dx, x, (size_t)n * 4);
            assert_int_equal(wf_xent_sparse(wf_row_fns_at(level), contexts[i]->pool, &p), -1);
            same_or_keep(i, loss, kept_loss, n_rows, "loss");
            same_or_keep(i, dx, kept, n, "dx");
        }
        for (int64_t r = 0; r < n_rows; r++) {
            int skip = ignore && labels64[r] == *ignore;
            double lse = plain_lse(x + r * width, width, NULL), s = .25 * (wide ? weight[r] : 1);

            check_near(loss[r], skip ? 0 : lse - x[r * width + labels64[r]], 1e-6, "loss", r);
            for (int64_t c = 0; c < width; c++)
                check_near(dx[r * width + c],
                           skip ? 0 : s * (exp(x[r * width + c] - lse) - (c == labels64[r])), 1e-6,
                           "dx", r * width + c);
        }
    }
    free(labels64);
    free(labels32);
    free(x);
    free(weight);
    free(loss);
    free(dx);
    free(kept_loss);
    free(kept);
}

static void sparse_cross_entropy_matches_plain_f64(void **state)
{
    static const int64_t ignores[] = {-100, 0, (int64_t)1 << 40}; /* one is a label in range */

    (void)state;
    for (int s = 0; s < N_SHAPES; s++)
        for (int mode = 0; mode < 16 && shapes[s].width; mode++) {
            bool wide = mode & 1, in_place = mode & 2;
            const int64_t *ignore = mode / 4 ? &ignores[mode / 4 - 1] : NULL;

            if (wide || mode / 4 < 3)
                sparse_case(shapes[s].n_rows, shapes[s].width, wide, ignore, in_place);
        }
}

static void labels_out_of_range_are_named(void **state)
{
    enum { ROWS = 3000, WIDTH = 10 };
    static const int32_t wrong[] = {-1, 10, INT32_MAX, INT32_MIN};
    float *x = random_floats(ROWS * WIDTH, -1, 1), *loss = zeros(ROWS, 4);
    int32_t *labels = zeros(ROWS, 4);

    (void)state;
    for (EACH_LEVEL(level))
        for (int w = 0; w < 4; w++)
            for (int i = 0; i < N_COUNTS; i++) {
                struct wf_xent p = {.n_rows = ROWS,
                                    .width = WIDTH,
                                    .x = x,
                                    .labels = labels,
                                    .scale = 1,
                                    .loss = loss};

                labels[2999] = labels[1234] = labels[1235] = wrong[w];
                assert_int_equal(wf_xent_sparse(wf_row_fns_at(level), contexts[i]->pool, &p), 1234);
                labels[1234] = labels[1235] = 0;
                assert_int_equal(wf_xent_sparse(wf_row_fns_at(level), contexts[i]->pool, &p), 2999);
                labels[2999] = 9;
                assert_int_equal(wf_xent_sparse(wf_row_fns_at(level), contexts[i]->pool, &p), -1);
            }
    free(x);
    free(loss);
    free(labels);
}

static void dense_cross_entropy_matches_plain_f64(void **state)
{
    (void)state;
    for (int s = 0; s < N_SHAPES; s++) {
        int64_t n_rows = shapes[s].n_rows, width = shapes[s].width, n = n_rows * width;
        float *x = random_floats(n, -5, 5), *t = random_floats(n, 0, 1), *loss = zeros(n_rows, 4);
        float *dx = zeros(n, 4), *kept_loss = zeros(n_rows, 4), *kept = zeros(n, 4);

        for (int64_t i = 0; i < n; i++)
            t[i] /= (float)width * .5f;
        for (EACH_LEVEL(level)) {
            for (int i = 0; i < N_COUNTS; i++) {
                struct wf_xent p = {.n_rows = n_rows,
                                    .width = width,
                                    .x = dx,
                                    .targets = t,
                                    .scale = 2,
                                    .loss = loss,
                                    .dx = dx};

                if (n)
                    memcpy(dx, x, (size_t)n * 4);
                wf_xent_dense(wf_row_fns_at(level), contexts[i]->pool, &p);
                same_or_keep(i, loss, kept_loss, n_rows, "loss");
                same_or_keep(i, dx, kept, n, "dx");
            }
            for (int64_t r = 0; r < n_rows && width; r++) {
                double lse = plain_lse(x + r * width, width, NULL), sum = 0, want = 0;

                for (int64_t i = r * width; i < (r + 1) * width; i++) {
                    sum += t[i];
                    want += t[i] * (lse - x[i]);
                }
                check_near(loss[r], want, 2e-6, "loss", r);
                for (int64_t i = r * width; i < (r + 1) * width; i++)
                    check_near(dx[i], 2 * (exp(x[i] - lse) * sum - t[i]), 1e-6, "dx", i);
            }
        }
        free(x);
        free(t);
        free(loss);
        free(dx);
        free(kept_loss);
        free(kept);
    }
}

static void sigmoid_cross_entropy_matches_plain_f64(void **state)
{
    static const int64_t sizes[] = {0, 1, 7, 16, 2048, 9001};

    (void)state;
    for (int s = 0; s < 6; s++) {
        int64_t n = sizes[s];
        float *x = random_floats(n, -30, 30), *t = random_floats(n, 0, 1),
              *weight = random_floats(n, 0, 2);
        float *loss = zeros(n, 4), *dx = zeros(n, 4), *kept_loss = zeros(n, 4), *kept = zeros(n, 4);

        for (EACH_LEVEL(level)) {
            for (int i = 0; i < N_COUNTS; i++) {
                struct wf_sigmoid_xent p = {n, dx, t, .5f, weight, loss, dx};

                if (n)
                    memcpy(dx, x, (size_t)n * 4);
                wf_xent_sigmoid(wf_row_fns_at(level), contexts[i]->pool, &p);
                same_or_keep(i, loss, kept_loss, n, "loss");
                same_or_keep(i, dx, kept, n, "dx");
            }
            for (int64_t i = 0; i < n; i++) {
                check_near(loss[i], fmax(x[i], 0) - (double)x[i] * t[i] + log1p(exp(-fabs(x[i]))),
                           1e-6, "loss", i);
                check_near(dx[i], .5 * weight[i] * (1 / (1 + exp(-(double)x[i])) - t[i]), 1e-6,
                           "dx", i);
            }
        }
        free(x);
        free(t);
        free(weight);
        free(loss);
        free(dx);
        free(kept_loss);
        free(kept);
    }
}

static void extremes_stay_where_they_belong(void **state)
{
    (void)state;
    for (EACH_LEVEL(level))
        for (int64_t width = 3; width <= 50; width += 47) {
            const struct wf_row_fns *f = wf_row_fns_at(level);
            float x[4 * 50], y[4 * 50], lse[4];

            for (int64_t c = 0; c < width; c++) {
                x[c] = c == 1 ? 1e30f : -1e30f;            /* far apart */
                x[width + c] = c == 2 ? NAN : 1;           /* one NaN */
                x[2 * width + c] = -INFINITY;              /* nothing allowed */
                x[3 * width + c] = c == 0 ? 0 : -INFINITY; /* one allowed */
            }
            wf_softmax(f, NULL, 4, width, x, y);
            wf_logsumexp(f, NULL, 4, width, x, lse);
            assert_true(y[1] == 1 && y[0] == 0 && lse[0] == 1e30f);
            assert_true(isnan(y[width]) && isnan(y[width + 2]) && isnan(lse[1]));
            assert_true(isnan(y[2 * width]) && lse[2] == -INFINITY);
            assert_true(y[3 * width] == 1 && y[3 * width + 1] == 0 && lse[3] == 0);
            x[0] = INFINITY;
            wf_logsumexp(f, NULL, 1, width, x, lse);
            assert_true(lse[0] == INFINITY);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_and_logarithm_match_plain_f64),
        cmocka_unit_test(gradients_match_plain_f64),
        cmocka_unit_test(sparse_cross_entropy_matches_plain_f64),
        cmocka_unit_test(labels_out_of_range_are_named),
        cmocka_unit_test(dense_cross_entropy_matches_plain_f64),
        cmocka_unit_test(sigmoid_cross_entropy_matches_plain_f64),
        cmocka_unit_test(extremes_stay_where_they_belong),
    };

    return cmocka_run_group_tests(tests, contexts_open, contexts_close);
}
