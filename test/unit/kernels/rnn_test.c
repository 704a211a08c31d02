/* rnn_test.c - recurrent nets on the CPU against a plain implementation in double: values element
 * by element, gradients by differences of a weighted sum of all outputs along random directions;
 * every SIMD level, the same bits for any number of threads, and nothing outside the given memory
 * is touched or read unwritten. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/rnn.h"
#include "support/levels.h"

enum { N_POOLS = 4, GUARD = 64, MAX_TENSORS = 32 };
static const int thread_counts[N_POOLS] = {1, 2, 3, 7};
static weft_ctx *ctx;
static struct wf_pool *pools[N_POOLS];

/* ---- cases ----------------------------------------------------------------------------------- */

enum steps { ALL, MASK, LENGTHS, LENGTHS64, NONE_AT_ALL };

struct layer {
    enum wf_rnn_cell cell;
    int64_t n_batch, n_time, n_in, n_units;
    bool bias, states, reverse; /* states: initial ones are given */
    enum steps steps;
    bool last_only; /* gradients arrive at the last state only, dx is not wanted */
};

/* Operands and results of a case. Index of a tensor: */
enum tensor {
    X,
    W,
    R,
    BIAS,
    H0,
    C0,
    Y,
    H,
    C,
    GATES,
    CELLS,
    DY,
    DH,
    DC,
    DX,
    DW,
    DR,
    DB,
    DH0,
    DC0,
    N_TENSORS
};

struct memory {
    float *at[N_TENSORS];
    int64_t n[N_TENSORS];
    uint8_t *mask;
    int32_t *lengths;
    int64_t *lengths64;
};

static int n_gates(const struct layer *l)
{
    return l->cell == WF_CELL_LSTM ? 4 : l->cell >= WF_CELL_TANH ? 1 : 3;
}

static int n_saved(const struct layer *l)
{
    return l->cell <= WF_CELL_GRU_AFTER ? 4 : l->cell == WF_CELL_GRU_BEFORE ? 3 : 0;
}

static uint32_t random_bits = 1;

static double unit(void)
{
    random_bits = random_bits * 1664525u + 1013904223u;
    return (double)(random_bits >> 8) / (1 << 23) - 1;
}

/* Memory with a guard after it, full of NaN. */
static float *guarded(int64_t n)
{
    unsigned char *p = wf_alloc(ctx, (size_t)n * sizeof(float) + GUARD);

    assert_non_null(p);
    memset(p, 0xff, (size_t)n * sizeof(float) + GUARD);
    return (float *)(void *)p;
}

static void check_guard(const void *p, size_t bytes)
{
    const unsigned char *g = (const unsigned char *)p + bytes;

    for (int i = 0; i < GUARD; i++)
        assert_int_equal(g[i], 0xff);
}

static void sizes(const struct layer *l, int64_t *n)
{
    int64_t b = l->n_batch, t = l->n_time, i = l->n_in, u = l->n_units, g = n_gates(l) * u;
    bool lstm = l->cell == WF_CELL_LSTM;
    const int64_t all[N_TENSORS] = {
        [X] = b * t * i,    [W] = i * g,
        [R] = u * g,        [BIAS] = l->cell == WF_CELL_GRU_AFTER ? 2 * g : g,
        [H0] = b * u,       [C0] = b * u,
        [Y] = b * t * u,    [H] = b * u,
        [C] = b * u,        [GATES] = b * t * u * n_saved(l),
        [CELLS] = b * t * u};

    memcpy(n, all, sizeof all);
    for (int k = 0; k < 3; k++)
        n[DY + k] = n[Y + k];
    for (int k = 0; k < 6; k++)
        n[DX + k] = n[X + k];
    if (!l->bias)
        n[BIAS] = n[DB] = -1;
    if (!l->states)
        n[H0] = n[C0] = n[DH0] = n[DC0] = -1;
    if (!lstm)
        n[C0] = n[C] = n[CELLS] = n[DC] = n[DC0] = -1;
    if (!n_saved(l))
        n[GATES] = -1;
    if (l->last_only)
        n[DY] = n[DX] = -1;
}

static void set_up_case(const struct layer *l, struct memory *m)
{
    *m = (struct memory){0};
    sizes(l, m->n);
    for (int k = 0; k < N_TENSORS; k++) {
        bool operand = k <= C0 || (k >= DY && k <= DC);
        double scale = k == X || k >= DY  ? 1
                       : k == W || k == R ? 1.2 / sqrt((double)l->n_units + 1)
                                          : 0.5;

        if (m->n[k] >= 0)
            m->at[k] = guarded(m->n[k]);
        for (int64_t i = 0; operand && i < m->n[k]; i++)
            m->at[k][i] = (float)(scale * unit());
    }
    if (l->steps == MASK || l->steps == NONE_AT_ALL)
        m->mask = wf_alloc(ctx, (size_t)(l->n_batch * l->n_time) + 1);
    for (int64_t i = 0; m->mask && i < l->n_batch * l->n_time; i++)
        m->mask[i] = l->steps == MASK && unit() > -0.3;
    m->lengths = wf_alloc_n(ctx, l->n_batch + 1, sizeof *m->lengths);
    m->lengths64 = wf_alloc_n(ctx, l->n_batch + 1, sizeof *m->lengths64);
    for (int64_t i = 0; i < l->n_batch; i++)
        m->lengths64[i] = m->lengths[i] = (int32_t)((i * 7 + 3) % (l->n_time + 1));
}

static void tear_down_case(const struct layer *l, struct memory *m)
{
    (void)l;
    for (int k = 0; k < N_TENSORS; k++) {
        if (m->at[k])
            check_guard(m->at[k], (size_t)m->n[k] * sizeof(float));
        wf_free(ctx, m->at[k]);
    }
    wf_free(ctx, m->mask);
    wf_free(ctx, m->lengths);
    wf_free(ctx, m->lengths64);
}

/* ---- the plain implementation ---------------------------------------------------------------- */

struct plain {
    const struct layer *l;
    const struct memory *m;
    double *in[C0 + 1]; /* operands in double, NULL where absent */
    double *y, *h, *c;  /* results: [b][t][u], last states */
};

static bool step_counts(const struct plain *p, int64_t b, int64_t t)
{
    switch (p->l->steps) {
    case LENGTHS:
    case LENGTHS64: return t < p->m->lengths[b];
    case MASK:
    case NONE_AT_ALL: return p->m->mask[b * p->l->n_time + t];
    default: return true;
    }
}

static double logistic(double x)
{
    return 1 / (1 + exp(-x));
}

/* sums[j] = x_t w + bias, inner[j] = h r + second bias */
static void plain_sums(const struct plain *p, int64_t b, int64_t t, const double *h, double *sums,
                       double *inner)
{
    int64_t n = n_gates(p->l) * p->l->n_units;

    for (int64_t j = 0; j < n; j++) {
        sums[j] = p->in[BIAS] ? p->in[BIAS][j] : 0;
        inner[j] = p->in[BIAS] && p->l->cell == WF_CELL_GRU_AFTER ? p->in[BIAS][n + j] : 0;
    }
    for (int64_t i = 0; i < p->l->n_in; i++)
        for (int64_t j = 0; j < n; j++)
            sums[j] += p->in[X][(b * p->l->n_time + t) * p->l->n_in + i] * p->in[W][i * n + j];
    for (int64_t i = 0; i < p->l->n_units; i++)
        for (int64_t j = 0; j < n; j++)
            inner[j] += h[i] * p->in[R][i * n + j];
}

static void plain_step(const struct plain *p, const double *a, const double *inner, double *h,
                       double *c)
{
    int64_t n = p->l->n_units;

    for (int64_t u = 0; u < n; u++) {
        double z, q;

        switch (p->l->cell) {
        case WF_CELL_LSTM:
            c[u] = logistic(a[n + u] + inner[n + u]) * c[u] +
                   logistic(a[u] + inner[u]) * tanh(a[2 * n + u] + inner[2 * n + u]);
            h[u] = logistic(a[3 * n + u] + inner[3 * n + u]) * tanh(c[u]);
            break;
        case WF_CELL_GRU_AFTER:
            z = logistic(a[u] + inner[u]);
            q = logistic(a[n + u] + inner[n + u]);
            h[u] = z * h[u] + (1 - z) * tanh(a[2 * n + u] + q * inner[2 * n + u]);
            break;
        case WF_CELL_TANH: h[u] = tanh(a[u] + inner[u]); break;
        default: h[u] = fmax(a[u] + inner[u], 0); break;
        }
    }
}

/* n depends on q of every unit. */
static void plain_gru_before(const struct plain *p, const double *a, const double *inner, double *h)
{
    int64_t n = p->l->n_units;
    double *old = malloc((size_t)n * sizeof *old + 1);

    memcpy(old, h, (size_t)n * sizeof *old);
    for (int64_t u = 0; u < n; u++) {
        double z = logistic(a[u] + inner[u]), sum = a[2 * n + u];

        for (int64_t i = 0; i < n; i++)
            sum += logistic(a[n + i] + inner[n + i]) * old[i] * p->in[R][i * 3 * n + 2 * n + u];
        h[u] = z * old[u] + (1 - z) * tanh(sum);
    }
    free(old);
}

static void plain_forward(struct plain *p)
{
    const struct layer *l = p->l;
    int64_t n = l->n_units;
    double *sums = malloc((size_t)n * 8 * sizeof *sums + 1), *inner = sums + 4 * n;

    for (int64_t b = 0; b < l->n_batch; b++) {
        double *h = p->h + b * n, *c = p->c + b * n;
        const double *last = NULL;

        for (int64_t u = 0; u < n; u++) {
            h[u] = p->in[H0] ? p->in[H0][b * n + u] : 0;
            c[u] = p->in[C0] ? p->in[C0][b * n + u] : 0;
        }
        for (int64_t k = 0; k < l->n_time; k++) {
            int64_t t = l->reverse ? l->n_time - 1 - k : k;
            double *y = p->y + (b * l->n_time + t) * n;

            if (step_counts(p, b, t)) {
                plain_sums(p, b, t, h, sums, inner);
                if (l->cell == WF_CELL_GRU_BEFORE)
                    plain_gru_before(p, sums, inner, h);
                else
                    plain_step(p, sums, inner, h, c);
                memcpy(y, h, (size_t)n * sizeof *y);
            } else {
                for (int64_t u = 0; u < n; u++)
                    y[u] = last ? last[u] : 0;
            }
            last = step_counts(p, b, t) || last ? y : NULL;
        }
    }
    free(sums);
}

static void plain_new(struct plain *p, const struct layer *l, const struct memory *m)
{
    *p = (struct plain){.l = l, .m = m};
    for (int k = 0; k <= C0; k++) {
        p->in[k] = m->at[k] ? malloc((size_t)m->n[k] * sizeof(double) + 1) : NULL;
        for (int64_t i = 0; i < m->n[k]; i++)
            p->in[k][i] = m->at[k][i];
    }
    p->y = malloc((size_t)m->n[Y] * sizeof(double) + 1);
    p->h = malloc((size_t)m->n[H] * sizeof(double) + 1);
    p->c = malloc((size_t)m->n[H] * sizeof(double) + 1);
}

static void plain_free(struct plain *p)
{
    for (int k = 0; k <= C0; k++)
        free(p->in[k]);
    free(p->y);
    free(p->h);
    free(p->c);
}

/* The sum whose gradients the backward pass gives: every output times what arrives there. */
static double plain_loss(struct plain *p)
{
    const struct memory *m = p->m;
    double sum = 0;

    plain_forward(p);
    for (int64_t i = 0; i < m->n[DY]; i++)
        sum += p->y[i] * m->at[DY][i];
    for (int64_t i = 0; i < m->n[DH]; i++)
        sum += p->h[i] * m->at[DH][i];
    for (int64_t i = 0; i < m->n[DC]; i++)
        sum += p->c[i] * m->at[DC][i];
    return sum;
}

/* ---- running the kernels --------------------------------------------------------------------- */

static void run(const struct layer *l, struct memory *m, weft_simd level, int pool)
{
    struct wf_rnn_desc d = {.cell = l->cell,
                            .reverse = l->reverse,
                            .n_batch = l->n_batch,
                            .n_time = l->n_time,
                            .n_in = l->n_in,
                            .n_units = l->n_units};
    struct wf_rnn_data t = {.x = m->at[X],
                            .w = m->at[W],
                            .r = m->at[R],
                            .bias = m->at[BIAS],
                            .h0 = m->at[H0],
                            .c0 = m->at[C0],
                            .y = m->at[Y],
                            .gates = m->at[GATES],
                            .cells = m->at[CELLS],
                            .h_last = m->at[H],
                            .c_last = m->at[C],
                            .mask = m->mask};

    if (l->steps == LENGTHS || l->steps == LENGTHS64) {
        t.lengths64 = l->steps == LENGTHS64;
        t.lengths = t.lengths64 ? (const void *)m->lengths64 : m->lengths;
    }
    for (int back = 0; back < 2; back++) {
        struct wf_rnn p;
        void *scratch;

        d.need_dx = m->at[DX] != NULL;
        d.need_dw = true;
        d.need_dh0 = m->at[DH0] != NULL;
        assert_true(wf_rnn_plan(&p, &d, level, back, thread_counts[pool]));
        scratch = guarded((int64_t)(p.scratch_bytes / sizeof(float)));
        if (back) {
            t.dy = m->at[DY];
            t.dh_last = m->at[DH];
            t.dc_last = m->at[DC];
            t.dx = m->at[DX];
            t.dw = m->at[DW];
            t.dr = m->at[DR];
            t.dbias = m->at[DB];
            t.dh0 = m->at[DH0];
            t.dc0 = m->at[DC0];
            wf_rnn_backward(&p, pools[pool], &t, scratch);
        } else {
            wf_rnn_forward(&p, pools[pool], &t, scratch);
        }
        check_guard(scratch, p.scratch_bytes);
        wf_free(ctx, scratch);
    }
}

static void check_values(const struct memory *m, int k, const double *want)
{
    for (int64_t i = 0; i < m->n[k]; i++)
        if (!(fabs(m->at[k][i] - want[i]) <= 3e-5 * (1 + fabs(want[i]))))
            fail_msg("tensor %d element %lld: %.9g, expected %.9g", k, (long long)i, m->at[k][i],
                     want[i]);
}

/* <gradient of operand k, d> against the difference of the loss along d; the direction is random,
 * at the end only one element wide. */
static void check_gradient(struct plain *p, int k, int round)
{
    const struct memory *m = p->m;
    const float *grad = m->at[DX + k];
    double *d, got = 0, size = 0, want = 0;
    double h = p->l->cell == WF_CELL_RELU ? 1e-7 : 1e-4; /* relu has corners to stay away from */
    int64_t one = m->n[k] ? (int64_t)((random_bits >> 4) % (uint64_t)m->n[k]) : 0;

    if (!grad)
        return;
    d = malloc((size_t)m->n[k] * sizeof *d + 1);
    for (int64_t i = 0; i < m->n[k]; i++) {
        d[i] = round == 0 ? unit() : i == one;
        got += grad[i] * d[i];
        size += fabs(grad[i] * d[i]);
    }
    for (int side = 1; side >= -1; side -= 2) {
        for (int64_t i = 0; i < m->n[k]; i++)
            p->in[k][i] = m->at[k][i] + side * h * d[i];
        want += side * plain_loss(p) / (2 * h);
    }
    for (int64_t i = 0; i < m->n[k]; i++)
        p->in[k][i] = m->at[k][i];
    free(d);
    if (!(fabs(got - want) <= 2e-5 * (1 + size) + 1e-5 * fabs(want)))
        fail_msg("cell %d, %lldx%lldx%lldx%lld: gradient of operand %d: %.9g, expected %.9g",
                 (int)p->l->cell, (long long)p->l->n_batch, (long long)p->l->n_time,
                 (long long)p->l->n_in, (long long)p->l->n_units, k, got, want);
}

static void check_layer(const struct layer *l, bool gradients)
{
    struct memory m;
    struct plain p;

    set_up_case(l, &m);
    plain_new(&p, l, &m);
    plain_forward(&p);
    for (int level = (int)first_level(); level <= (int)weft_simd_best(); level++) {
        float *bits[N_TENSORS] = {NULL};

        for (int pool = 0; pool < N_POOLS; pool++) {
            for (int k = Y; k < N_TENSORS; k++)
                if (m.at[k] && (k < DY || k > DC))
                    memset(m.at[k], 0xff, (size_t)m.n[k] * sizeof(float));
            run(l, &m, (weft_simd)level, pool);
            for (int k = Y; k < N_TENSORS; k++) {
                if (!m.at[k])
                    continue;
                if (pool)
                    assert_memory_equal(m.at[k], bits[k], (size_t)m.n[k] * sizeof(float));
                else
                    bits[k] = memcpy(malloc((size_t)m.n[k] * sizeof(float) + 1), m.at[k],
                                     (size_t)m.n[k] * sizeof(float));
            }
        }
        plain_forward(&p);
        check_values(&m, Y, p.y);
        check_values(&m, H, p.h);
        check_values(&m, C, p.c);
        for (int k = 0; gradients && k <= C0; k++)
            for (int round = 0; round < 2; round++)
                check_gradient(&p, k, round);
        for (int k = 0; k < N_TENSORS; k++)
            free(bits[k]);
    }
    plain_free(&p);
    tear_down_case(l, &m);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void every_cell_with_every_kind_of_steps(void **state)
{
    (void)state;
    for (int cell = 0; cell < WF_N_CELLS; cell++)
        for (int steps = ALL; steps <= NONE_AT_ALL; steps++)
            for (int how = 0; how < 4; how++)
                check_layer(&(struct layer){.cell = (enum wf_rnn_cell)cell,
                                            .n_batch = 5,
                                            .n_time = 6,
                                            .n_in = 3,
                                            .n_units = 7,
                                            .bias = how != 1,
                                            .states = how & 1,
                                            .reverse = how & 2,
                                            .steps = (enum steps)steps,
                                            .last_only = how == 2},
                            true);
}

static void sizes_beside_vectors_panels_and_tiles(void **state)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1},   {17, 3, 29, 31}, {33, 4, 5, 33},
                                        {4, 3, 40, 16}, {40, 2, 1, 65},  {7, 9, 32, 32}};

    (void)state;
    for (int i = 0; i < WF_COUNT(shapes); i++)
        for (int cell = 0; cell < WF_N_CELLS; cell++)
            check_layer(&(struct layer){.cell = (enum wf_rnn_cell)cell,
                                        .n_batch = shapes[i][0],
                                        .n_time = shapes[i][1],
                                        .n_in = shapes[i][2],
                                        .n_units = shapes[i][3],
                                        .bias = true,
                                        .states = i & 1,
                                        .reverse = i & 2,
                                        .steps = i % 3 == 1   ? LENGTHS
                                                 : i % 3 == 2 ? MASK
                                                              : ALL},
                        true);
}

static void layers_as_they_are_trained(void **state)
{
    (void)state;
    check_layer(&(struct layer){WF_CELL_LSTM, 64, 7, 28, 128, .bias = true, .last_only = true},
                true);
    check_layer(&(struct layer){WF_CELL_GRU_AFTER, 48, 5, 28, 96, .bias = true, .steps = LENGTHS},
                true);
    check_layer(
        &(struct layer){WF_CELL_LSTM, 3, 100, 4, 8, .bias = true, .states = true, .steps = MASK},
        true);
}

static void weights_that_leave_the_cache(void **state)
{
    (void)state;
    check_layer(&(struct layer){WF_CELL_LSTM, 35, 2, 160, 192, .bias = true}, false);
}

static void nothing_of_something(void **state)
{
    (void)state;
    for (int cell = 0; cell < WF_N_CELLS; cell++) {
        enum wf_rnn_cell c = (enum wf_rnn_cell)cell;

        check_layer(&(struct layer){c, 0, 4, 3, 5, .bias = true, .states = true}, true);
        check_layer(&(struct layer){c, 3, 0, 3, 5, .bias = true, .states = true}, true);
        check_layer(&(struct layer){c, 3, 0, 3, 5, .bias = true, .steps = LENGTHS}, true);
        check_layer(&(struct layer){c, 3, 4, 0, 5, .bias = true, .states = true, .steps = MASK},
                    true);
        check_layer(&(struct layer){c, 3, 4, 3, 0, .bias = true, .states = true}, true);
    }
}

static void sizes_beyond_memory_are_refused(void **state)
{
    static const int64_t shapes[][4] = {{INT64_MAX / 8, 1, 1, 1},
                                        {1, INT64_MAX / 8, 1, 1},
                                        {1, 1, INT64_MAX / 64, 1},
                                        {1, 1, 1, INT64_C(1) << 32},
                                        {INT64_C(1) << 31, INT64_C(1) << 31, 16, 16}};
    struct wf_rnn p;

    (void)state;
    for (int i = 0; i < WF_COUNT(shapes); i++)
        for (int back = 0; back < 2; back++) {
            struct wf_rnn_desc d = {.n_batch = shapes[i][0],
                                    .n_time = shapes[i][1],
                                    .n_in = shapes[i][2],
                                    .n_units = shapes[i][3],
                                    .need_dx = true,
                                    .need_dw = true};

            assert_false(wf_rnn_plan(&p, &d, WEFT_SIMD_PORTABLE, back, 8));
        }
}

static int set_up(void **state)
{
    (void)state;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return -1;
    for (int i = 0; i < N_POOLS; i++)
        if (wf_pool_new(ctx, thread_counts[i], -1, &pools[i]))
            return -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < N_POOLS; i++)
        wf_pool_free(pools[i]);
    weft_ctx_free(ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell_with_every_kind_of_steps),
        cmocka_unit_test(sizes_beside_vectors_panels_and_tiles),
        cmocka_unit_test(layers_as_they_are_trained),
        cmocka_unit_test(weights_that_leave_the_cache),
        cmocka_unit_test(nothing_of_something),
        cmocka_unit_test(sizes_beyond_memory_are_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
