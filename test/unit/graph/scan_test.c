/* scan_test.c - weft_scan against a loop: values, order, gradients, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "graph/graph.h"
#include "weft/fn.h"
#include "weft/ops_shape.h"
#include "weft/scan.h"

#define BATCH 2
#define WIDTH 3

/* new = state·w + x (matrix product), y = new·x (element-wise) */
static weft_status step(weft_graph *g, void *arg, int t, const weft_val *state, const weft_val *x,
                        weft_val *new_state, weft_val *y)
{
    weft_val w = *(weft_val *)arg;

    (void)t;
    new_state[0] = wf_binary(g, WF_OP_add, weft_matmul(g, state[0], w, NULL), x[0]);
    y[0] = wf_binary(g, WF_OP_mul, new_state[0], x[0]);
    return WEFT_OK;
}

/* The same in plain C over xs [n][BATCH][WIDTH]; returns Σ ys + Σ final. */
static double loop(int n, bool reverse, const double *init, const double *xs, const double *w,
                   double *ys, double *final)
{
    double state[BATCH * WIDTH], next[BATCH * WIDTH], sum = 0;

    memcpy(state, init, sizeof state);
    for (int k = 0; k < n; k++) {
        int t = reverse ? n - 1 - k : k;

        for (int b = 0; b < BATCH; b++)
            for (int j = 0; j < WIDTH; j++) {
                const double *x = &xs[(t * BATCH + b) * WIDTH + j];

                next[b * WIDTH + j] = *x;
                for (int i = 0; i < WIDTH; i++)
                    next[b * WIDTH + j] += state[b * WIDTH + i] * w[i * WIDTH + j];
                ys[(t * BATCH + b) * WIDTH + j] = next[b * WIDTH + j] * *x;
                sum += ys[(t * BATCH + b) * WIDTH + j];
            }
        memcpy(state, next, sizeof state);
    }
    for (int i = 0; i < BATCH * WIDTH; i++)
        sum += state[i];
    memcpy(final, state, sizeof state);
    return sum;
}

static weft_val sum_all(weft_graph *g, weft_val v)
{
    return wf_unary(g, WF_OP_sum, v);
}

static void fill(double *x, int n, int seed)
{
    for (int i = 0; i < n; i++)
        x[i] = (double)((i * 29 + seed * 13) % 41 - 20) / 40;
}

/* xs by central differences, one element at a time. */
static void check_gradient(int n, bool reverse, const double *init, double *xs, const double *w,
                           const double *got)
{
    double ys[600], final[BATCH * WIDTH], h = 1e-5;

    for (int i = 0; i < n * BATCH * WIDTH; i++) {
        double keep = xs[i], up, down;

        xs[i] = keep + h;
        up = loop(n, reverse, init, xs, w, ys, final);
        xs[i] = keep - h;
        down = loop(n, reverse, init, xs, w, ys, final);
        xs[i] = keep;
        if (fabs((up - down) / (2 * h) - got[i]) > 1e-6 * (1 + fabs(got[i])))
            fail_msg("step count %d, element %d: gradient %g, differences say %g", n, i, got[i],
                     (up - down) / (2 * h));
    }
}

static void check_scan(weft_ctx *ctx, int n, bool reverse, bool symbolic)
{
    double init[BATCH * WIDTH], w[WIDTH * WIDTH], xs[600], ys[600], final[BATCH * WIDTH];
    int64_t dim_x[3] = {n, symbolic ? WEFT_ANY : BATCH, WIDTH}, dim_s[2] = {dim_x[1], WIDTH};
    weft_val in[3], last, y, loss, fetches[3];
    weft_tensor feeds[3], out[3] = {{.data = NULL}, {.data = NULL}, {.data = NULL}};
    weft_graph *g;
    weft_fn *fn = NULL;

    fill(init, BATCH * WIDTH, 1);
    fill(w, WIDTH * WIDTH, 2);
    fill(xs, n * BATCH * WIDTH, 3);
    loop(n, reverse, init, xs, w, ys, final);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    in[0] = weft_placeholder(g, "init", WEFT_F64, 2, dim_s);
    in[1] = weft_placeholder(g, "xs", WEFT_F64, 3, dim_x);
    in[2] = weft_placeholder(g, "w", WEFT_F64, 2, (int64_t[]){WIDTH, WIDTH});
    assert_int_equal(weft_scan(g, n, 1, &in[0], 1, &in[1], 1, step, &in[2],
                               WEFT_OPTS(weft_scan_opts, .reverse = reverse), &last, &y),
                     0);
    loss = wf_binary(g, WF_OP_add, sum_all(g, y), sum_all(g, last));
    fetches[0] = y;
    fetches[1] = last;
    assert_int_equal(weft_grad(g, loss, 1, &in[1], &fetches[2]), 0);
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 3, .feeds = in, .n_fetches = 3,
                                           .fetches = fetches),
                                 &fn),
                     0);
    dim_x[1] = dim_s[0] = BATCH;
    feeds[0] = weft_view(WEFT_F64, init, 2, dim_s);
    feeds[1] = weft_view(WEFT_F64, xs, 3, dim_x);
    feeds[2] = weft_view(WEFT_F64, w, 2, (int64_t[]){WIDTH, WIDTH});
    assert_int_equal(weft_fn_run(fn, feeds, out), 0);
    assert_int_equal(out[0].rank, 3);
    assert_int_equal(out[0].dim[0], n);
    for (int i = 0; i < n * BATCH * WIDTH; i++)
        assert_true(fabs(((double *)out[0].data)[i] - ys[i]) < 1e-9);
    for (int i = 0; i < BATCH * WIDTH; i++)
        assert_true(fabs(((double *)out[1].data)[i] - final[i]) < 1e-9);
    check_gradient(n, reverse, init, xs, w, out[2].data);
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void equals_a_loop(void **state)
{
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    check_scan(ctx, 1, false, false);
    check_scan(ctx, 5, false, false);
    check_scan(ctx, 5, true, false);
    check_scan(ctx, 5, false, true);
    check_scan(ctx, 70, true, true); /* more steps than a node has outputs */
    weft_ctx_free(ctx);
}

/* state = state + x, no ys, along the second axis. */
static weft_status add_up(weft_graph *g, void *arg, int t, const weft_val *state, const weft_val *x,
                          weft_val *new_state, weft_val *y)
{
    ((int *)arg)[t]++;
    (void)y;
    new_state[0] = wf_binary(g, WF_OP_add, state[0], x[0]);
    new_state[1] = state[1];
    return WEFT_OK;
}

static void goes_along_another_axis_once_per_step(void **state)
{
    float data[12], zero[3] = {0};
    int calls[4] = {0};
    weft_val in[2], last[2];
    weft_tensor feeds[2], out[1] = {{.data = NULL}};
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn = NULL;

    (void)state;
    for (int i = 0; i < 12; i++)
        data[i] = (float)i;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    in[0] = weft_placeholder(g, "init", WEFT_F32, 1, (int64_t[]){3});
    in[1] = weft_placeholder(g, "xs", WEFT_F32, 2, (int64_t[]){3, 4});
    assert_int_equal(weft_scan(g, 4, 2, (weft_val[]){in[0], in[0]}, 1, &in[1], 0, add_up, calls,
                               WEFT_OPTS(weft_scan_opts, .axis = -1), last, NULL),
                     0);
    for (int t = 0; t < 4; t++)
        assert_int_equal(calls[t], 1);
    assert_int_equal(last[1].id, in[0].id);
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = in, .n_fetches = 1,
                                           .fetches = last),
                                 &fn),
                     0);
    feeds[0] = weft_view(WEFT_F32, zero, 1, (int64_t[]){3});
    feeds[1] = weft_view(WEFT_F32, data, 2, (int64_t[]){3, 4});
    assert_int_equal(weft_fn_run(fn, feeds, out), 0);
    for (int i = 0; i < 3; i++)
        assert_true(((float *)out[0].data)[i] == (float)(16 * i + 6));
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* What the body does wrong. */
enum fault { OTHER_SHAPE, NO_STATE, NO_Y, OWN_ERROR, BAD_NODE };

static weft_status faulty(weft_graph *g, void *arg, int t, const weft_val *state, const weft_val *x,
                          weft_val *new_state, weft_val *y)
{
    enum fault f = *(enum fault *)arg;

    (void)x;
    new_state[0] = state[0];
    y[0] = state[0];
    if (t < 2)
        return WEFT_OK;
    if (f == OTHER_SHAPE)
        new_state[0] = weft_expand_dims(g, state[0], 0);
    else if (f == NO_STATE)
        new_state[0] = WEFT_NIL;
    else if (f == NO_Y)
        y[0] = WEFT_NIL;
    else if (f == OWN_ERROR)
        return wf_err(WEFT_ENOSUP, "not on Tuesdays");
    else
        new_state[0] = weft_matmul(g, state[0], state[0], NULL);
    return WEFT_OK;
}

static void faults_of_the_body_are_reported(void **state)
{
    static const struct {
        weft_status st;
        const char *text;
    } want[] = {
        {WEFT_ESHAPE, "step 2 makes state 0 f32[1,3] instead of f32[3]"},
        {WEFT_EINVAL, "a new state"},
        {WEFT_EINVAL, "a y"},
        {WEFT_ENOSUP, "step 2: not on Tuesdays"},
        {WEFT_ESHAPE, "step 2: matmul"},
    };
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (int f = OTHER_SHAPE; f <= BAD_NODE; f++) {
        enum fault fault = (enum fault)f;
        weft_graph *g;
        weft_val init, last = {7}, y = {7};

        assert_int_equal(weft_graph_new(ctx, &g), 0);
        init = weft_placeholder(g, "init", WEFT_F32, 1, (int64_t[]){3});
        assert_int_equal(weft_scan(g, 4, 1, &init, 0, NULL, 1, faulty, &fault, NULL, &last, &y),
                         want[f].st);
        if (!strstr(weft_error(), want[f].text))
            fail_msg("'%s' does not say '%s'", weft_error(), want[f].text);
        assert_int_equal(last.id, 0);
        assert_int_equal(y.id, 0);
        assert_int_equal(weft_graph_status(g), want[f].st);
        weft_graph_free(g);
    }
    weft_ctx_free(ctx);
}

static void sizes_and_counts_are_checked(void **state)
{
    int calls[8] = {0};
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (int i = 0; i < 4; i++) {
        weft_graph *g;
        weft_val in[2], last[2];
        int n_steps = i == 0 ? 0 : i == 1 ? 5000 : i == 2 ? 5 : 4;
        weft_status want = i == 2 ? WEFT_ESHAPE : WEFT_EINVAL;

        assert_int_equal(weft_graph_new(ctx, &g), 0);
        in[0] = weft_placeholder(g, "init", WEFT_F32, 1, (int64_t[]){3});
        in[1] = weft_placeholder(g, "xs", WEFT_F32, 2, (int64_t[]){4, 3});
        if (i == 3)
            in[1].id = 999;
        assert_int_equal(
            weft_scan(g, n_steps, 1, in, 1, &in[1], 0, add_up, calls, NULL, last, NULL), want);
        weft_graph_free(g);
    }
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_a_loop),
        cmocka_unit_test(goes_along_another_axis_once_per_step),
        cmocka_unit_test(faults_of_the_body_are_reported),
        cmocka_unit_test(sizes_and_counts_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
