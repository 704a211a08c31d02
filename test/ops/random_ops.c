/* random_ops.c - random ops: bits that do not depend on level or threads, moments, dropout and its
 * gradient; print and check_numerics. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ops/harness.h"
#include "weft/ops_misc.h"
#include "weft/ops_random.h"

#define GIVEN(n, ...) DATA(WEFT_F32, ((double[]){__VA_ARGS__}), n)
#define WANT(n, ...) .want = (double[]){__VA_ARGS__}, .n_want = n
#define DRAWN OP_EXACT | OP_NO_GRAD | OP_F32_ONLY

/* A shape from the attribute, from a like operand; odd, empty, scalar, several tiles. */
#define RANDOM(op_, attrs_)                                                                     \
    {.op = op_, .attrs = "shape=[3,5] " attrs_, .n_in = 0, .flags = DRAWN},                     \
        {.op = op_, .attrs = "shape=[0] " attrs_, .n_in = 0, .flags = DRAWN},                   \
        {.op = op_, .attrs = attrs_, .n_in = 0, .flags = DRAWN},                                \
        {.op = op_, .attrs = "shape=[7,9173] " attrs_, .n_in = 0, .flags = DRAWN},              \
        {.op = op_, .attrs = attrs_, .n_in = 1, .in = {F32(0, 1, 4, 7)}, .flags = DRAWN},       \
        {.op = op_, .attrs = attrs_, .n_in = 1, .in = {IDS(I64, 0, 1, 40001)}, .flags = DRAWN}, \
        {.op = op_, .attrs = "shape=[100] dtype=f64 " attrs_, .n_in = 0, .flags = DRAWN},       \
    {                                                                                           \
        .op = op_, .attrs = "shape=[100] dtype=bf16 " attrs_, .n_in = 0, .flags = DRAWN         \
    }

#define DROPOUT(attrs_, ...)                                                          \
    {                                                                                 \
        .op = "dropout", .attrs = attrs_, .n_in = 1, .in = {F32(-2, 2, __VA_ARGS__)}, \
        .flags = OP_EXACT                                                             \
    }

static weft_val build_uniform(weft_graph *g, const weft_val *in)
{
    return weft_random_uniform(g, -1, 3, WEFT_OPTS(weft_random_opts, .like = in[0]));
}

static weft_val build_bernoulli(weft_graph *g, const weft_val *in)
{
    (void)in;
    return weft_random_bernoulli(
        g, 0.25, WEFT_OPTS(weft_random_opts, .rank = 1, .dim = {9}, .dtype = WEFT_BOOL));
}

static weft_val build_dropout(weft_graph *g, const weft_val *in)
{
    return weft_dropout(g, in[0], 0.3,
                        WEFT_OPTS(weft_dropout_opts, .n_shared = 1, .shared_axes = {1}));
}

static weft_val build_fed(weft_graph *g, const weft_val *in)
{
    return weft_dropout(g, in[0], 0, WEFT_OPTS(weft_dropout_opts, .rate = in[1]));
}

static weft_val build_print(weft_graph *g, const weft_val *in)
{
    return weft_print(g, in[0], "x", NULL);
}

static weft_val build_check(weft_graph *g, const weft_val *in)
{
    return weft_check_numerics(g, in[0], "the middle layer");
}

static const struct op_case cases[] = {
    RANDOM("random_uniform", ""),
    RANDOM("random_uniform", "lo=-3 hi=-1"),
    RANDOM("random_normal", ""),
    RANDOM("random_normal", "mean=2 stddev=0.5"),
    RANDOM("random_truncated_normal", "mean=-1 stddev=2"),
    RANDOM("random_bernoulli", "p=0.3"),
    {.op = "random_bernoulli",
     .attrs = "p=0 shape=[3]",
     .n_in = 0,
     .flags = DRAWN,
     WANT(3, 0, 0, 0)},
    {.op = "random_bernoulli",
     .attrs = "p=1 shape=[3] dtype=i32",
     .n_in = 0,
     .flags = DRAWN,
     WANT(3, 1, 1, 1)},
    {.op = "random_uniform",
     .attrs = "lo=2 hi=2 shape=[2]",
     .n_in = 0,
     .flags = DRAWN,
     WANT(2, 2, 2)},
    {.op = "random_normal",
     .attrs = "mean=2 stddev=0 shape=[2]",
     .n_in = 0,
     .flags = DRAWN,
     WANT(2, 2, 2)},
    {.build = build_uniform,
     .name = "weft_random_uniform",
     .n_in = 1,
     .in = {F32(0, 1, 5, 5)},
     .flags = DRAWN},
    {.build = build_bernoulli, .name = "weft_random_bernoulli", .n_in = 0, .flags = DRAWN},
    {.op = "random_uniform", .attrs = "lo=2 hi=1", .n_in = 0, .fails = WEFT_EINVAL},
    {.op = "random_normal", .attrs = "stddev=-1", .n_in = 0, .fails = WEFT_EINVAL},
    {.op = "random_normal", .attrs = "dtype=i32", .n_in = 0, .fails = WEFT_EDTYPE},
    {.op = "random_bernoulli",
     .attrs = "p=1.5",
     .n_in = 0,
     .fails = WEFT_EINVAL,
     .text = "probability"},
    {.op = "random_uniform", .attrs = "shape=[-1]", .n_in = 0, .fails = WEFT_ESHAPE},
    {.op = "random_uniform",
     .attrs = "shape=[4294967296,4294967296]",
     .n_in = 0,
     .fails = WEFT_ESHAPE},

    DROPOUT("rate=0.5", 4, 9),
    DROPOUT("rate=0.1", 3, 7, 5),
    DROPOUT("rate=0.9", 17),
    DROPOUT("rate=0", 4, 9),
    DROPOUT("rate=1", 4, 9),
    DROPOUT("rate=0.25", 0, 9),
    DROPOUT("rate=0.25"),
    DROPOUT("rate=0.25", 11, 5003),
    DROPOUT("rate=0.3 shared_axes=[1]", 4, 5, 6),
    DROPOUT("rate=0.3 shared_axes=[0,-1]", 4, 5, 6),
    DROPOUT("rate=0.3 shared_axes=[1]", 31, 37, 41),
    {.op = "dropout",
     .n_in = 2,
     .in = {F32(-2, 2, 4, 9), DATA(WEFT_F32, ((double[]){0.4}))},
     .no_grad = 2},
    {.op = "dropout",
     .n_in = 2,
     .in = {F32(-2, 2, 7, 7919), DATA(WEFT_F32, ((double[]){0.4}))},
     .no_grad = 2},
    {.op = "dropout",
     .n_in = 2,
     .in = {F32(-2, 2, 4, 9), DATA(WEFT_F32, ((double[]){0}))},
     .no_grad = 2},
    {.build = build_dropout, .name = "weft_dropout shared", .n_in = 1, .in = {F32(-1, 1, 3, 4, 2)}},
    {.build = build_fed,
     .name = "weft_dropout fed",
     .n_in = 2,
     .in = {GIVEN(3, 1, 2, 3), DATA(WEFT_F32, ((double[]){0}))},
     .no_grad = 2,
     WANT(3, 1, 2, 3)},
    {.build = build_fed,
     .name = "weft_dropout fed",
     .n_in = 2,
     .in = {GIVEN(3, 1, 2, 3), DATA(WEFT_F32, ((double[]){1.5}))},
     .fails = WEFT_EDATA,
     .text = "rate"},
    {.build = build_fed,
     .name = "weft_dropout fed",
     .n_in = 2,
     .in = {GIVEN(3, 1, 2, 3), GIVEN(2, 0, 0)},
     .fails = WEFT_ESHAPE,
     .text = "scalar"},
    {.op = "dropout", .attrs = "rate=-0.1", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_EINVAL},
    {.op = "dropout",
     .attrs = "shared_axes=[2]",
     .n_in = 1,
     .in = {F32(-1, 1, 3)},
     .fails = WEFT_ERANGE},
    {.op = "dropout", .n_in = 1, .in = {IDS(I32, 0, 1, 3)}, .fails = WEFT_EDTYPE},
    {.op = "dropout_grad",
     .attrs = "rate=0.5",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 5), BOOLS(3, 5)},
     .flags = OP_EXACT},
    {.op = "dropout_grad",
     .attrs = "rate=0.5",
     .n_in = 2,
     .in = {F32(-1, 1, 3, 5), BOOLS(3, 1)},
     .flags = OP_EXACT},
    {.op = "dropout_grad", .n_in = 2, .in = {F32(-1, 1, 3, 5), BOOLS(3, 4)}, .fails = WEFT_ESHAPE},

    {.build = build_print,
     .name = "weft_print",
     .n_in = 1,
     .in = {F32(-1, 1, 3, 5)},
     .flags = OP_EXACT},
    {.op = "print", .n_in = 1, .in = {IDS(I64, -1, 1, 30)}, .flags = OP_EXACT},
    {.op = "print", .attrs = "every=0", .n_in = 1, .in = {F32(-1, 1, 3)}, .fails = WEFT_EINVAL},
    {.build = build_check,
     .name = "weft_check_numerics",
     .n_in = 1,
     .in = {F32(-1, 1, 3, 5)},
     .flags = OP_EXACT},
    {.build = build_check,
     .name = "weft_check_numerics",
     .n_in = 1,
     .in = {F32(-1, 1, 3, 20011)},
     .flags = OP_EXACT},
    {.build = build_check,
     .name = "weft_check_numerics",
     .n_in = 1,
     .in = {F32(-1, 1, 0)},
     .flags = OP_EXACT},
    {.build = build_check,
     .name = "weft_check_numerics",
     .n_in = 1,
     .in = {DATA(WEFT_F32, ((double[]){1, 2, 3, INFINITY, 5, NAN}), 2, 3)},
     .fails = WEFT_ENUMERIC,
     .text = "the middle layer: element [1,0] of f32[2,3] is inf"},
    {.op = "check_numerics", .n_in = 1, .in = {IDS(I32, 0, 1, 3)}, .fails = WEFT_EDTYPE},
};

/* ---- properties that one row cannot say ------------------------------------------------------ */

#define N 20000

struct made {
    weft_ctx *ctx;
    weft_graph *g;
};

static struct made make(weft_log_fn *log, void *arg)
{
    struct made m;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .log = log, .log_arg = arg), &m.ctx),
        0);
    assert_int_equal(weft_graph_new(m.ctx, &m.g), 0);
    return m;
}

static void unmake(struct made *m)
{
    weft_graph_free(m->g);
    weft_ctx_free(m->ctx);
}

/* The values of v in (seed 7, step, shard). */
static void draw(struct made *m, weft_val v, uint64_t step, uint32_t shard, float *out)
{
    struct op_run run;
    struct op_run_opts o = {.fast = true, .rng = {.seed = 7, .step = step, .shard = shard}};

    assert_int_equal(weft_graph_status(m->g), 0);
    assert_int_equal(op_run(m->ctx, m->g, 0, NULL, NULL, 1, &v, &o, &run), 0);
    memcpy(out, run.val[v.id].data, (size_t)wf_type_bytes(&run.val[v.id].type));
    op_run_free(&run);
}

static void moments(const float *x, double *mean, double *var)
{
    double s = 0, q = 0;

    for (int i = 0; i < N; i++)
        s += x[i];
    *mean = s / N;
    for (int i = 0; i < N; i++)
        q += (x[i] - *mean) * (x[i] - *mean);
    *var = q / N;
}

static void moments_are_those_of_the_distribution(void **state)
{
    struct made m = make(NULL, NULL);
    const weft_random_opts *o = WEFT_OPTS(weft_random_opts, .rank = 1, .dim = {N});
    static float x[N];
    double mean, var;

    (void)state;
    draw(&m, weft_random_uniform(m.g, -1, 3, o), 1, 0, x);
    moments(x, &mean, &var);
    assert_true(fabs(mean - 1) < 0.04 && fabs(var - 16. / 12) < 0.04);
    draw(&m, weft_random_normal(m.g, 2, 3, o), 1, 0, x);
    moments(x, &mean, &var);
    assert_true(fabs(mean - 2) < 0.09 && fabs(var - 9) < 0.4);
    draw(&m, weft_random_truncated_normal(m.g, 0, 1, o), 1, 0, x);
    moments(x, &mean, &var);
    assert_true(fabs(mean) < 0.03 &&
                fabs(var - 0.7737) < 0.03); /* of a normal cut at two deviations */
    for (int i = 0; i < N; i++)
        assert_true(fabsf(x[i]) <= 2);
    draw(&m, weft_random_bernoulli(m.g, 0.3, o), 1, 0, x);
    moments(x, &mean, &var);
    assert_true(fabs(mean - 0.3) < 0.015);
    unmake(&m);
}

static void each_step_shard_and_node_draws_its_own(void **state)
{
    struct made m = make(NULL, NULL);
    const weft_random_opts *o = WEFT_OPTS(weft_random_opts, .rank = 1, .dim = {N});
    weft_val a = weft_random_uniform(m.g, 0, 1, o), b = weft_random_uniform(m.g, 0, 1, o);
    static float x[5][N];

    (void)state;
    draw(&m, a, 1, 0, x[0]);
    draw(&m, a, 2, 0, x[1]);
    draw(&m, a, 1, 1, x[2]);
    draw(&m, b, 1, 0, x[3]);
    draw(&m, a, 1, 0, x[4]);
    assert_memory_equal(x[0], x[4], sizeof x[0]);
    for (int k = 1; k < 4; k++) {
        int same = 0;

        for (int i = 0; i < N; i++)
            same += x[0][i] == x[k][i];
        assert_true(same < 10);
    }
    unmake(&m);
}

static void dropout_keeps_the_mean_and_tells_what_it_kept(void **state)
{
    struct made m = make(NULL, NULL);
    const weft_random_opts *o = WEFT_OPTS(weft_random_opts, .rank = 1, .dim = {N});
    weft_val y = weft_dropout(m.g, weft_random_uniform(m.g, 1, 1, o), 0.2, NULL);
    weft_val kept = weft_op(m.g, "cast", 1, (weft_val[]){weft_output(m.g, y, 1)}, "dtype=f32");
    static float x[N], k[N];
    double mean, var;

    (void)state;
    draw(&m, y, 1, 0, x);
    draw(&m, kept, 1, 0, k);
    moments(x, &mean, &var);
    assert_true(fabs(mean - 1) < 0.02);
    for (int i = 0; i < N; i++)
        assert_true(x[i] == (k[i] != 0 ? 1 / 0.8f : 0));
    unmake(&m);
}

static void keep_line(void *arg, int level, const char *line)
{
    (void)level;
    snprintf(arg, 200, "%s", line);
}

static void print_writes_a_line_every_n_steps(void **state)
{
    char line[200] = "";
    struct made m = make(keep_line, line);
    float two[2] = {0.5f, -2};
    weft_tensor t = weft_view(WEFT_F32, two, 1, (int64_t[]){2});
    weft_val p = weft_print(m.g, weft_constant(m.g, &t), "loss",
                            WEFT_OPTS(weft_print_opts, .every = 3, .limit = 1));
    float x[2];

    (void)state;
    draw(&m, p, 4, 0, x);
    assert_string_equal(line, "");
    draw(&m, p, 6, 0, x);
    assert_string_equal(line, "loss: step 6: f32[2] 0.5 …");
    assert_true(x[0] == 0.5f && x[1] == -2);
    unmake(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_those_of_the_distribution),
        cmocka_unit_test(each_step_shard_and_node_draws_its_own),
        cmocka_unit_test(dropout_keeps_the_mean_and_tells_what_it_kept),
        cmocka_unit_test(print_writes_a_line_every_n_steps),
    };
    int failed = op_main(argc, argv, "random ops", cases, OP_COUNT(cases));

    return failed + cmocka_run_group_tests_name("randomness", tests, NULL, NULL);
}
