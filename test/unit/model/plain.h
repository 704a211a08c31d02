/* plain.h - what the tests of metrics and losses against their plain definitions share: random
 * data, and a metric run over it in batches of random sizes. */
#ifndef TEST_MODEL_PLAIN_H
#define TEST_MODEL_PLAIN_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "weft/weft.h"

enum { MAX_ROWS = 40, MAX_ITEMS = 2048, MAX_OUT = 16 };

static weft_ctx *ctx;
static uint64_t seed;

static inline int set_up(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
}

static inline int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

static inline uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static inline int below(int n)
{
    return (int)(draw() % (uint32_t)n);
}

static inline double real(void) /* in [0, 1), exact in f32 */
{
    return (double)(draw() >> 7 & 0xfffff) / (1 << 20);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Labels and predictions [n, …] as numbers, and what a label weighs. */
struct data {
    int64_t n, t, c; /* rows, steps of a row (1: no such axis), columns */
    bool seq;        /* is there an axis of steps? */
    int64_t y_row, p_row;
    int y_rank, p_rank;
    int64_t y_dim[4], p_dim[4];
    weft_dtype y_type;
    double y[MAX_ITEMS], p[MAX_ITEMS];
    int weights;         /* 0 none, 1 one a row, 2 one a step */
    double w[MAX_ITEMS]; /* a step each, whatever is fed */
};

/* Sizes; labels of one number a step (numbers), or of one a column. */
static inline void shape(struct data *d, bool seq, int64_t c, bool numbers)
{
    d->n = 1 + below(MAX_ROWS - 1);
    d->seq = seq;
    d->t = seq ? 1 + below(4) : 1;
    d->c = c;
    d->p_rank = 2 + seq;
    d->y_rank = d->p_rank - numbers;
    d->p_dim[0] = d->y_dim[0] = d->n;
    d->p_dim[1] = d->y_dim[1] = seq ? d->t : c;
    d->p_dim[2] = d->y_dim[2] = c;
    d->y_row = d->t * (numbers ? 1 : c);
    d->p_row = d->t * c;
    d->y_type = WEFT_F32;
    assert_true(d->n * d->p_row <= MAX_ITEMS);
    d->weights = below(seq ? 3 : 2);
    for (int64_t i = 0; i < d->n; i++)
        for (int64_t k = 0; k < d->t; k++) {
            double *at = &d->w[i * d->t + k];

            *at = d->weights == 0            ? 1
                  : d->weights == 1 && k > 0 ? d->w[i * d->t]
                                             : (below(4) ? (double)below(9) / 4 : 0);
        }
}

static inline int64_t n_labels(const struct data *d)
{
    return d->n * d->y_row;
}

static inline int64_t n_scores(const struct data *d)
{
    return d->n * d->p_row;
}

/* ---- running a metric ------------------------------------------------------------------------ */

static inline void *as_type(weft_dtype t, const double *v, int64_t n)
{
    char *out = malloc((size_t)(n * 8 + 8));

    for (int64_t i = 0; i < n; i++)
        wf_set(out, t, i, v[i]);
    return out;
}

/* Adds rows [first, first + n) to the sums. */
static inline void add_rows(const struct wf_metric *m, const struct data *d, int64_t first,
                            int64_t n, double *sums)
{
    int64_t y_dim[4], p_dim[4], w_dim[2] = {n, d->t}, any[4];
    double w[MAX_ITEMS];
    weft_tensor feeds[3], out = {.data = NULL};
    weft_val in[3], v = WEFT_NIL;
    weft_graph *g;
    weft_fn *fn;
    int n_in = 2;

    memcpy(y_dim, d->y_dim, sizeof y_dim);
    memcpy(p_dim, d->p_dim, sizeof p_dim);
    y_dim[0] = p_dim[0] = n;
    for (int64_t i = 0; i < n * (d->weights == 2 ? d->t : 1); i++)
        w[i] = d->weights == 2 ? d->w[first * d->t + i] : d->w[(first + i) * d->t];
    feeds[0] = weft_view(d->y_type, as_type(d->y_type, d->y + first * d->y_row, n * d->y_row),
                         d->y_rank, y_dim);
    feeds[1] = weft_view(WEFT_F32, as_type(WEFT_F32, d->p + first * d->p_row, n * d->p_row),
                         d->p_rank, p_dim);
    assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
    memcpy(any, y_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[0] = weft_placeholder(g, "y", d->y_type, d->y_rank, any);
    memcpy(any, p_dim, sizeof any);
    any[0] = WEFT_ANY;
    in[1] = weft_placeholder(g, "p", WEFT_F32, d->p_rank, any);
    if (d->weights) {
        int64_t dims[2] = {WEFT_ANY, d->t};
        int rank = d->weights == 2 ? 2 : 1;

        feeds[2] =
            weft_view(WEFT_F32, as_type(WEFT_F32, w, n * (rank == 2 ? d->t : 1)), rank, w_dim);
        in[n_in++] = weft_placeholder(g, "w", WEFT_F32, rank, dims);
    }
    if (wf_metric_build(g, m, in[0], in[1], d->weights ? in[2] : WEFT_NIL, &v) ||
        weft_fn_new(
            g, WEFT_OPTS(weft_fn_opts, .n_feeds = n_in, .feeds = in, .n_fetches = 1, .fetches = &v),
            &fn) ||
        weft_fn_run(fn, feeds, &out))
        fail_msg("%s", weft_error());
    for (int64_t i = 0; i < m->n_state; i++)
        sums[i] += (double)((float *)out.data)[i];
    for (int i = 0; i < n_in; i++)
        free(feeds[i].data);
    weft_fn_free(fn);
    weft_graph_free(g);
}

/* The results of the metric over all rows, in batches of random sizes. */
static inline int measure(const char *spec, const struct data *d, double *out)
{
    struct wf_type y = wf_type_of(d->y_type, d->y_rank, d->y_dim),
                   p = wf_type_of(WEFT_F32, d->p_rank, d->p_dim);
    struct wf_arena arena;
    struct wf_metric m;
    double *sums;
    int n_results;

    y.dim[0] = p.dim[0] = WEFT_ANY;
    wf_arena_init(&arena, ctx);
    if (wf_metric_check(ctx, NULL, spec) || wf_metric_init(NULL, &m, &arena, spec, &y, &p))
        fail_msg("%s", weft_error());
    sums = calloc((size_t)m.n_state, sizeof *sums);
    for (int64_t at = 0; at < d->n;) {
        int64_t n = 1 + below((int)(d->n - at));

        add_rows(&m, d, at, n, sums);
        at += n;
    }
    assert_true(m.n_results <= MAX_OUT);
    wf_metric_result(&m, sums, out);
    n_results = m.n_results;
    free(sums);
    wf_arena_free(&arena);
    return n_results;
}

static inline void check(const char *spec, const struct data *d, int n, const double *want)
{
    double got[MAX_OUT];
    uint64_t began = seed;

    if (measure(spec, d, got) != n)
        fail_msg("%s: not %d results", spec, n);
    for (int i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 3e-6 + 3e-6 * fabs(want[i])))
            fail_msg("%s on [%d,%d,%d], weights %d, seed %llu: result %d is %.9g, plainly %.9g",
                     spec, (int)d->n, (int)d->t, (int)d->c, d->weights, (unsigned long long)began,
                     i, got[i], want[i]);
}

static inline double ratio(double a, double b)
{
    return b != 0 ? a / b : 0;
}

static inline int rounds(void)
{
    return getenv("WEFT_TEST_QUICK") ? 12 : 120;
}

/* A test of random cases, each made by a call of `one`. */
#define RANDOM_TEST(name, one)             \
    static void name(void **state)         \
    {                                      \
        (void)state;                       \
        seed = 99;                         \
        for (int i = 0; i < rounds(); i++) \
            one();                         \
    }

#endif
