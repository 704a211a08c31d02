/* norm_test.c - layer, RMS, batch, instance and group norm against plain f64, forward and
 * backward, at every SIMD level, odd and empty shapes, in place, and bit for bit at every thread
 * count. */
#include "kernels/cpu/norm.h"
#include "rows_support.h"

static void same_or_keep(int count, float *got, float *kept, int64_t n, const char *what)
{
    if (count)
        check_same(got, kept, (size_t)n * sizeof *got, what);
    else if (n)
        memcpy(kept, got, (size_t)n * sizeof *got);
}

static void check_all(const float *got, const double *want, int64_t n, double tol, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        check_near(got[i], want[i], tol, what, i);
}

/* ---- layer and RMS norm ------------------------------------------------------------------ */

struct layer_case {
    int64_t n_rows, width;
    bool rms;
    const float *x, *gamma, *beta, *dy, *add; /* gamma, beta, add may be NULL */
    double *y, *mean, *rstd, *dx, *dgamma, *dbeta;
};

static void plain_layer(const struct layer_case *c, double eps)
{
    int64_t n = c->width;

    for (int64_t r = 0; r < c->n_rows; r++) {
        const float *x = c->x + r * n, *dy = c->dy + r * n;
        double mean = 0, var = 0, avg = 0, avg_hat = 0;

        for (int64_t i = 0; i < n && !c->rms; i++)
            mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            var += (x[i] - mean) * (x[i] - mean) / (double)n;
        c->mean[r] = mean;
        c->rstd[r] = 1 / sqrt(var + eps);
        for (int64_t i = 0; i < n; i++) {
            double hat = (x[i] - mean) * c->rstd[r], g = c->gamma ? c->gamma[i] : 1;

            c->y[r * n + i] = hat * g + (c->beta ? c->beta[i] : 0);
            c->dgamma[i] += dy[i] * hat;
            c->dbeta[i] += dy[i];
            avg += c->rms ? 0 : dy[i] * g / (double)n;
            avg_hat += dy[i] * g * hat / (double)n;
        }
        for (int64_t i = 0; i < n; i++) {
            double hat = (x[i] - mean) * c->rstd[r], g = c->gamma ? c->gamma[i] : 1;

            c->dx[r * n + i] =
                c->rstd[r] * (dy[i] * g - avg - hat * avg_hat) + (c->add ? c->add[r * n + i] : 0);
        }
    }
}

static void layer_compare(const struct layer_case *c, weft_simd level)
{
    const struct wf_norm_fns *f = wf_norm_fns_at(level);
    int64_t n = c->n_rows * c->width;
    float *out[6], *kept[6], *scratch = zeros(wf_layer_norm_scratch(c->n_rows, c->width), 4);
    int64_t size[6] = {n, c->n_rows, c->n_rows, n, c->width, c->width};
    const double *want[6] = {c->y, c->mean, c->rstd, c->dx, c->dgamma, c->dbeta};

    for (int i = 0; i < 6; i++) {
        out[i] = zeros(size[i], 4);
        kept[i] = zeros(size[i], 4);
    }
    for (int t = 0; t < N_COUNTS; t++) {
        struct wf_layer_norm p = {c->n_rows, c->width, c->rms, 1e-3f,  out[0],
                                  c->gamma,  c->beta,  out[0], out[1], out[2]};
        struct wf_layer_norm_grad g = {.n_rows = c->n_rows,
                                       .width = c->width,
                                       .rms = c->rms,
                                       .x = c->x,
                                       .dy = out[3],
                                       .mean = c->rms ? NULL : out[1],
                                       .rstd = out[2],
                                       .gamma = c->gamma,
                                       .add = c->add,
                                       .dx = out[3],
                                       .dgamma = out[4],
                                       .dbeta = out[5],
                                       .scratch = scratch};

        if (n) {
            memcpy(out[0], c->x, (size_t)n * 4);
            memcpy(out[3], c->dy, (size_t)n * 4);
        }
        wf_layer_norm(f, contexts[t]->pool, &p);
        wf_layer_norm_grad(f, contexts[t]->pool, &g);
        for (int i = 0; i < 6; i++)
            same_or_keep(t, out[i], kept[i], size[i], "layer norm");
    }
    for (int i = 0; i < 6; i++) {
        if (!c->rms || i != 1)
            check_all(out[i], want[i], size[i], i >= 4 ? 2e-5 : 4e-6, "layer norm");
        free(out[i]);
        free(kept[i]);
    }
    free(scratch);
}

static void layer_norms_match_plain_f64(void **state)
{
    static const int64_t shapes[][2] = {{0, 7},   {3, 0},     {1, 1},    {5, 3},    {33, 16},
                                        {70, 17}, {130, 256}, {9, 1000}, {2100, 24}};

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int mode = 0; mode < 8; mode++) {
            int64_t n_rows = shapes[s][0], width = shapes[s][1], n = n_rows * width;
            float *x = random_floats(n, -1, 4), *gamma = random_floats(width, .5, 2);
            float *beta = random_floats(width, -1, 1), *dy = random_floats(n, -1, 1);
            float *add = random_floats(n, -1, 1);
            struct layer_case c = {n_rows,
                                   width,
                                   mode & 1,
                                   x,
                                   mode & 2 ? gamma : NULL,
                                   mode & 4 ? beta : NULL,
                                   dy,
                                   mode & 4 ? NULL : add,
                                   zeros(n, 8),
                                   zeros(n_rows, 8),
                                   zeros(n_rows, 8),
                                   zeros(n, 8),
                                   zeros(width, 8),
                                   zeros(width, 8)};

            plain_layer(&c, 1e-3);
            for (EACH_LEVEL(level))
                layer_compare(&c, level);
            free(x);
            free(gamma);
            free(beta);
            free(dy);
            free(add);
            free(c.y);
            free(c.mean);
            free(c.rstd);
            free(c.dx);
            free(c.dgamma);
            free(c.dbeta);
        }
}

/* ---- channels ---------------------------------------------------------------------------- */

struct chan_case {
    struct wf_chan_shape s;
    bool relu, frozen;
    float *x, *dy, *gamma, *beta; /* gamma and beta may be NULL */
    double *mean, *var, *y, *dx, *dgamma, *dbeta;
};

static const double chan_eps = 1e-3;

static int64_t group_of(const struct wf_chan_shape *s, int64_t o, int64_t c)
{
    return o * s->n_groups + c / (s->n_channels / s->n_groups);
}

static void plain_stats(struct chan_case *k)
{
    const struct wf_chan_shape *s = &k->s;
    double count = (double)(s->n_rows * s->n_channels) / (double)s->n_groups;

    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < s->n_outer * s->n_rows * s->n_channels; i++) {
            int64_t o = i / (s->n_rows * s->n_channels), g = group_of(s, o, i % s->n_channels);
            double d = k->x[i] - k->mean[g];

            if (pass)
                k->var[g] += d * d / count;
            else
                k->y[g] += k->x[i] / count; /* borrowed until the means are whole */
            if (!pass && i + 1 == s->n_outer * s->n_rows * s->n_channels)
                memcpy(k->mean, k->y, (size_t)(s->n_outer * s->n_groups) * 8);
        }
}

static void plain_chan(struct chan_case *k)
{
    const struct wf_chan_shape *s = &k->s;
    int64_t n = s->n_outer * s->n_rows * s->n_channels;
    double count = (double)(s->n_rows * s->n_channels) / (double)s->n_groups;
    double *avg = zeros(s->n_outer * s->n_groups, 8), *avg_hat = zeros(s->n_outer * s->n_groups, 8);

    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            int64_t c = i % s->n_channels, g = group_of(s, i / (s->n_rows * s->n_channels), c);
            double rstd = 1 / sqrt(k->var[g] + chan_eps), hat = (k->x[i] - k->mean[g]) * rstd;
            double gamma = k->gamma ? k->gamma[c] : 1, y = hat * gamma + (k->beta ? k->beta[c] : 0);
            double dy = k->relu && y <= 0 ? 0 : k->dy[i];

            if (pass) {
                k->dx[i] = rstd * (dy * gamma - (k->frozen ? 0 : avg[g] + hat * avg_hat[g]));
                continue;
            }
            k->y[i] = k->relu && y < 0 ? 0 : y;
            k->dgamma[c] += dy * hat;
            k->dbeta[c] += dy;
            avg[g] += dy * gamma / count;
            avg_hat[g] += dy * gamma * hat / count;
        }
    free(avg);
    free(avg_hat);
}

static void chan_compare(const struct chan_case *k, weft_simd level)
{
    const struct wf_norm_fns *f = wf_norm_fns_at(level);
    const struct wf_chan_shape *s = &k->s;
    int64_t n = s->n_outer * s->n_rows * s->n_channels, n_stats = s->n_outer * s->n_groups;
    int64_t size[6] = {n_stats, n_stats, n, n, s->n_channels, s->n_channels};
    const double *want[6] = {k->mean, k->var, k->y, k->dx, k->dgamma, k->dbeta};
    float *out[6], *kept[6], *scratch = zeros(wf_chan_scratch(s), 4);

    for (int i = 0; i < 6; i++) {
        out[i] = zeros(size[i], 4);
        kept[i] = zeros(size[i], 4);
    }
    for (int t = 0; t < N_COUNTS; t++) {
        struct wf_chan_norm p = {*s,       out[2],  out[0],  out[1], (float)chan_eps,
                                 k->gamma, k->beta, k->relu, out[2], scratch};
        struct wf_chan_grad g = {*s,        k->x,
                                 out[3],    out[0],
                                 out[1],    (float)chan_eps,
                                 k->gamma,  k->relu ? out[2] : NULL,
                                 k->frozen, out[3],
                                 out[4],    out[5],
                                 scratch};

        if (n) {
            memcpy(out[2], k->x, (size_t)n * 4);
            memcpy(out[3], k->dy, (size_t)n * 4);
        }
        wf_chan_stats(f, contexts[t]->pool, s, k->x, out[0], out[1], scratch);
        wf_chan_norm(f, contexts[t]->pool, &p);
        wf_chan_grad(f, contexts[t]->pool, &g);
        for (int i = 0; i < 6; i++)
            same_or_keep(t, out[i], kept[i], size[i], "channel norm");
    }
    for (int i = 0; i < 6; i++) {
        check_all(out[i], want[i], size[i], i >= 4 ? 2e-5 : i >= 2 ? 1e-5 : 2e-6, "channel norm");
        free(out[i]);
        free(kept[i]);
    }
    free(scratch);
}

static void chan_run(struct wf_chan_shape s, int mode)
{
    int64_t n = s.n_outer * s.n_rows * s.n_channels, n_stats = s.n_outer * s.n_groups;
    struct chan_case k = {.s = s,
                          .relu = mode & 1,
                          .frozen = mode & 2,
                          .x = random_floats(n, 2, 4),
                          .dy = random_floats(n, -1, 1),
                          .gamma = mode & 4 ? random_floats(s.n_channels, .5, 2) : NULL,
                          .beta = mode & 4 ? random_floats(s.n_channels, -1, 1) : NULL,
                          .mean = zeros(n_stats, 8),
                          .var = zeros(n_stats, 8),
                          .y = zeros(n + n_stats, 8),
                          .dx = zeros(n, 8),
                          .dgamma = zeros(s.n_channels, 8),
                          .dbeta = zeros(s.n_channels, 8)};

    plain_stats(&k);
    plain_chan(&k);
    for (EACH_LEVEL(level))
        chan_compare(&k, level);
    free(k.x);
    free(k.dy);
    free(k.gamma);
    free(k.beta);
    free(k.mean);
    free(k.var);
    free(k.y);
    free(k.dx);
    free(k.dgamma);
    free(k.dbeta);
}

static void channel_norms_match_plain_f64(void **state)
{
    static const struct wf_chan_shape shapes[] = {
        {1, 0, 4, 4},      {1, 1, 1, 1},       {1, 300, 1, 1},  {1, 1000, 3, 3},
        {1, 900, 10, 10},  {1, 37, 16, 16},    {1, 5, 17, 17},  {1, 3000, 32, 32},
        {1, 20, 513, 513}, {2, 9, 1100, 1100}, {3, 49, 8, 8},   {3, 100, 12, 4},
        {4, 17, 64, 32},   {2, 700, 6, 2},     {2, 30, 600, 1}, {0, 5, 4, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int mode = 0; mode < 8; mode++)
            chan_run(shapes[i], mode);
}

/* Values far from zero: the variance must not drown in the square of the mean. */
static void variance_survives_a_large_mean(void **state)
{
    enum { ROWS = 10000, CHANNELS = 5 };
    struct wf_chan_shape s = {1, ROWS, CHANNELS, CHANNELS};
    float *x = random_floats(ROWS * CHANNELS, -1, 1), mean[CHANNELS], var[CHANNELS];
    float *scratch = zeros(wf_chan_scratch(&s), 4);

    (void)state;
    for (int i = 0; i < ROWS * CHANNELS; i++)
        x[i] += 10000;
    for (EACH_LEVEL(level)) {
        wf_chan_stats(wf_norm_fns_at(level), NULL, &s, x, mean, var, scratch);
        for (int c = 0; c < CHANNELS; c++) {
            double m = 0, v = 0;

            for (int r = 0; r < ROWS; r++)
                m += x[r * CHANNELS + c] / (double)ROWS;
            for (int r = 0; r < ROWS; r++)
                v += (x[r * CHANNELS + c] - m) * (x[r * CHANNELS + c] - m) / ROWS;
            check_near(mean[c], m, 1e-7, "mean", c);
            check_near(var[c] / v, 1, 1e-4, "variance", c);
        }
    }
    free(x);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norms_match_plain_f64),
        cmocka_unit_test(channel_norms_match_plain_f64),
        cmocka_unit_test(variance_survives_a_large_mean),
    };

    return cmocka_run_group_tests(tests, contexts_open, contexts_close);
}
