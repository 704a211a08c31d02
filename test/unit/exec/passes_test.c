/* passes_test.c - whatever the passes make of a graph, its numbers are those of the plain
 * definitions without any pass.
 *
 * Each case builds a graph; it runs three steps with the reference kernels and without passes, then
 * with every subset of passes, with and without flat gradients. Fetches of each step and the
 * variables afterwards must agree. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "support/gradients.h"
#include "weft/weft.h"

enum { MAX = 8, STEPS = 3, MAX_BYTES = 1 << 16 };

struct net {
    weft_graph *g;
    int n_feeds, n_fetches, n_updates;
    weft_val feed[MAX], fetch[MAX], update[MAX];
    weft_tensor data[MAX];
    double tolerance; /* 0: 1e-5 */
};
typedef void build_fn(struct net *n);

/* What a run left behind. */
struct result {
    int n_fetches;
    weft_tensor fetch[STEPS][MAX];
    char bytes[STEPS][MAX][MAX_BYTES];
    float params[4096];
    int64_t n_params;
};

static weft_val feed(struct net *n, const char *name, weft_dtype dtype, int rank,
                     const int64_t *dim)
{
    weft_tensor *t = &n->data[n->n_feeds];

    *t = weft_view(dtype, NULL, rank, dim);
    t->data = calloc(1, (size_t)weft_tensor_bytes(t) + 1);
    assert_non_null(t->data);
    for (int64_t i = 0; i < weft_tensor_count(t); i++) {
        double v = (double)((i * 7 + n->n_feeds * 5 + 3) % 23) / 11.0 - 1.0;

        switch (dtype) {
        case WEFT_F32: ((float *)t->data)[i] = (float)v; break;
        case WEFT_F64: ((double *)t->data)[i] = v; break;
        case WEFT_I32: ((int32_t *)t->data)[i] = (int32_t)(i % 4); break;
        case WEFT_I64: ((int64_t *)t->data)[i] = i % 4; break;
        case WEFT_BOOL: ((uint8_t *)t->data)[i] = v > 0; break;
        default: fail_msg("no data of this type");
        }
    }
    n->feed[n->n_feeds] = weft_placeholder(n->g, name, dtype, rank, dim);
    return n->feed[n->n_feeds++];
}

static weft_val feed2(struct net *n, const char *name, int64_t a, int64_t b)
{
    return feed(n, name, WEFT_F32, 2, (int64_t[]){a, b});
}

static weft_val variable(struct net *n, const char *name, int64_t a, int64_t b)
{
    return weft_variable(n->g, name, 2, (int64_t[]){a, b},
                         WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_UNIFORM, .a = -1, .b = 1));
}

static void fetch(struct net *n, weft_val v)
{
    n->fetch[n->n_fetches++] = v;
}

static void minimize(struct net *n, weft_val loss)
{
    weft_optim sgd;
    int made = 0;

    assert_int_equal(weft_optim_init(&sgd, "sgd", "learning_rate=0.1"), WEFT_OK);
    if (weft_minimize(n->g, loss, &sgd, 0, NULL, MAX - n->n_updates, n->update + n->n_updates,
                      &made))
        fail_msg("%s", weft_error());
    n->n_updates += made;
}

static weft_val cast(weft_graph *g, weft_val x, weft_dtype t)
{
    return weft_cast(g, x, t);
}

static weft_val sum_all(weft_graph *g, weft_val x)
{
    return weft_sum(g, x, NULL);
}

/* ---- running --------------------------------------------------------------------------------- */

static void run(struct net *n, unsigned off, bool ref, bool flat, struct result *r)
{
    weft_gradient gradients[WF_COUNT(n->update)];
    int n_gradients =
        flat ? gradients_of_updates(n->g, n->n_updates, n->update, WF_COUNT(gradients), gradients)
             : 0;
    weft_fn *fn = NULL;
    float *params;

    if (weft_fn_new(n->g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = n->n_feeds, .feeds = n->feed,
                              .n_fetches = n->n_fetches, .fetches = n->fetch,
                              .n_updates = n->n_updates, .updates = n->update, .passes_off = off,
                              .reference_kernels = ref, .n_gradients = n_gradients,
                              .gradients = gradients),
                    &fn))
        fail_msg("passes off %u, flat %d: %s", off, flat, weft_error());
    for (int s = 0; s < STEPS; s++) {
        memset(r->fetch[s], 0, sizeof r->fetch[s]);
        if (weft_fn_run(fn, n->data, r->fetch[s]))
            fail_msg("passes off %u, flat %d, step %d: %s", off, flat, s, weft_error());
        for (int i = 0; i < n->n_fetches; i++) {
            int64_t bytes = weft_tensor_bytes(&r->fetch[s][i]);

            assert_true(bytes <= MAX_BYTES);
            memcpy(r->bytes[s][i], r->fetch[s][i].data, (size_t)bytes);
            r->fetch[s][i].data = r->bytes[s][i];
        }
    }
    params = weft_fn_params(fn, &r->n_params);
    assert_true(r->n_params <= 4096);
    memcpy(r->params, params, (size_t)r->n_params * sizeof *params);
    weft_fn_free(fn);
}

static double element(const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_F32: return (double)((const float *)t->data)[i];
    case WEFT_F64: return ((const double *)t->data)[i];
    case WEFT_I32: return ((const int32_t *)t->data)[i];
    case WEFT_I64: return (double)((const int64_t *)t->data)[i];
    case WEFT_U8:
    case WEFT_BOOL: return ((const uint8_t *)t->data)[i];
    default: fail_msg("cannot compare this type"); return 0;
    }
}

static void compare(const struct net *n, const struct result *a, const struct result *b,
                    const char *how)
{
    double most = n->tolerance > 0 ? n->tolerance : 1e-5;

    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < n->n_fetches; i++)
            for (int64_t e = 0; e < weft_tensor_count(&a->fetch[s][i]); e++) {
                double x = element(&a->fetch[s][i], e), y = element(&b->fetch[s][i], e);

                if (!(fabs(x - y) <= most * (1 + fabs(y))))
                    fail_msg("%s, step %d, fetch %d, element %lld: %g, should be %g", how, s, i,
                             (long long)e, x, y);
            }
    assert_int_equal(a->n_params, b->n_params);
    for (int64_t e = 0; e < a->n_params; e++)
        if (!(fabsf(a->params[e] - b->params[e]) <= (float)most * (1 + fabsf(b->params[e]))))
            fail_msg("%s: parameter %lld is %g, should be %g", how, (long long)e,
                     (double)a->params[e], (double)b->params[e]);
}

static struct result plain, got;

static void check(build_fn *build)
{
    struct net n = {.n_feeds = 0};
    weft_ctx *ctx = NULL;

    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &n.g), WEFT_OK);
    build(&n);
    if (weft_graph_status(n.g))
        fail_msg("%s", weft_error());
    run(&n, WEFT_PASS_ALL, true, false, &plain);
    for (unsigned off = 0; off <= WEFT_PASS_ALL; off++)
        for (int flat = 0; flat <= (n.n_updates > 0); flat++) {
            char how[64];

            snprintf(how, sizeof how, "passes off %u, flat %d", off, flat);
            run(&n, off, false, flat, &got);
            compare(&n, &got, &plain, how);
        }
    for (int i = 0; i < n.n_feeds; i++)
        free(n.data[i].data);
    weft_graph_free(n.g);
    weft_ctx_free(ctx);
}

/* ---- equal losses ---------------------------------------------------------------------------- */

static weft_val xent(struct net *n, weft_val logits, weft_val labels)
{
    return weft_loss_sparse_softmax_xent(n->g, logits, labels, NULL);
}

static void two_equal_losses(struct net *n)
{
    weft_val x = feed2(n, "x", 6, 5), labels = feed(n, "labels", WEFT_I32, 1, (int64_t[]){6});
    weft_val w = variable(n, "w", 5, 4), logits = weft_matmul(n->g, x, w, NULL);
    weft_val loss = weft_add(n->g, xent(n, logits, labels), xent(n, logits, labels)), dw;

    assert_int_equal(weft_grad(n->g, loss, 1, &w, &dw), WEFT_OK);
    fetch(n, loss);
    fetch(n, dw);
    minimize(n, loss);
}

/* The second one weighs more: one gradient is scaled twice, by different factors. */
static void equal_losses_weighted(struct net *n)
{
    weft_val x = feed2(n, "x", 6, 5), labels = feed(n, "labels", WEFT_I32, 1, (int64_t[]){6});
    weft_val w = variable(n, "w", 5, 4), logits = weft_matmul(n->g, x, w, NULL);
    weft_val loss =
        weft_add(n->g, xent(n, logits, labels),
                 weft_mul(n->g, weft_scalar(n->g, 3),
                          sum_all(n->g, weft_sparse_softmax_xent(n->g, logits, labels, NULL))));

    fetch(n, loss);
    minimize(n, loss);
}

static void a_loss_that_is_used_twice_keeps_its_gradient(void **state)
{
    (void)state;
    check(two_equal_losses);
    check(equal_losses_weighted);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Leaves that are built after nodes which become programs, products with epilogues, sums and
 * constants. */
static void taken_names(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed2(n, "x", 6, 5), w = variable(n, "w", 5, 4), b = variable(n, "b", 1, 4);
    weft_val a = weft_tanh(g, weft_mul(g, x, x)), y = feed2(n, "fused", 6, 4);
    weft_val p = weft_relu(g, weft_add(g, weft_matmul(g, a, w, NULL), b));
    weft_val q = feed2(n, "matmul_fused", 6, 4), v = variable(n, "fused_1", 6, 4);
    weft_val d = weft_sigmoid(g, weft_mul(g, weft_mul(g, weft_sub(g, p, v), y), q));
    weft_val e = variable(n, "constant", 6, 4),
             c = weft_mul(g, weft_scalar(g, 3), weft_scalar(g, 2));
    weft_val names = weft_mul(g, variable(n, "sum", 6, 4), variable(n, "reshape", 6, 4));

    d = weft_mul(g, weft_mul(g, weft_square(g, d), c), weft_add(g, e, names));
    fetch(n, sum_all(g, d));
    minimize(n, n->fetch[0]);
}

static void names_that_passes_use_belong_to_the_user(void **state)
{
    (void)state;
    check(taken_names);
}

/* ---- activations under plain losses ---------------------------------------------------------- */

static const char *const activations[] = {
    "tanh",      "sigmoid", "relu", "relu6",    "leaky_relu", "elu",          "selu",       "gelu",
    "gelu_tanh", "silu",    "mish", "softplus", "softsign",   "hard_sigmoid", "hard_swish", "clip",
};
static const char *activation;
static bool take_mean;

static void activation_loss(struct net *n)
{
    weft_val x = feed2(n, "x", 6, 5), w = variable(n, "w", 6, 5), z = weft_mul(n->g, x, w);
    weft_val y =
        weft_op(n->g, activation, 1, &z, strcmp(activation, "clip") ? NULL : "min=-0.5 max=0.5");

    fetch(n, take_mean ? weft_mean(n->g, y, NULL) : sum_all(n->g, y));
    minimize(n, n->fetch[0]);
}

static void prelu_loss(struct net *n)
{
    weft_val x = feed2(n, "x", 6, 5), w = variable(n, "w", 6, 5), slope = variable(n, "s", 1, 5);
    weft_val in[] = {weft_mul(n->g, x, w), slope};

    fetch(n, sum_all(n->g, weft_op(n->g, "prelu", 2, in, NULL)));
    minimize(n, n->fetch[0]);
}

static void a_sum_may_follow_any_activation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        for (int m = 0; m < 2; m++) {
            activation = activations[i];
            take_mean = m;
            check(activation_loss);
        }
    check(prelu_loss);
}

/* ---- what epilogues may hold ----------------------------------------------------------------- */

enum anchor { ELEMENTWISE, MATMUL, CONV, DEPTHWISE, N_ANCHORS };
static enum anchor anchor;

/* A value of shape [2, 4, 4, 6] that starts a program. */
static weft_val start(struct net *n)
{
    weft_val x = feed(n, "x", WEFT_F32, 4, (int64_t[]){2, 4, 4, 6}), w;

    switch (anchor) {
    case MATMUL: w = feed2(n, "w", 6, 6); return weft_matmul(n->g, x, w, NULL);
    case CONV:
        w = feed(n, "w", WEFT_F32, 4, (int64_t[]){3, 3, 6, 6});
        return weft_op(n->g, "conv", 2, (weft_val[]){x, w}, "padding=same");
    case DEPTHWISE:
        w = feed(n, "w", WEFT_F32, 4, (int64_t[]){3, 3, 1, 6});
        return weft_op(n->g, "conv", 2, (weft_val[]){x, w}, "padding=same groups=6");
    default: return weft_square(n->g, x);
    }
}

static weft_val half(struct net *n)
{
    return weft_scalar(n->g, 0.51);
}

static void compare_and_cast(struct net *n)
{
    fetch(n, cast(n->g, weft_gt(n->g, start(n), half(n)), WEFT_F32));
}

static void compare_alone(struct net *n)
{
    fetch(n, weft_gt(n->g, start(n), half(n)));
}

static void bools_between(struct net *n)
{
    weft_val y = start(n), a = weft_gt(n->g, y, half(n)),
             b = weft_lt(n->g, y, weft_scalar(n->g, 1.3));
    weft_val both = weft_logical_and(n->g, a, b);

    fetch(n, weft_where(n->g, both, y, weft_neg(n->g, y)));
}

static void bools_beside_floats(struct net *n)
{
    weft_val y = start(n), a = weft_gt(n->g, y, half(n));

    fetch(n, a);
    fetch(n, weft_where(n->g, a, y, weft_neg(n->g, y)));
    fetch(n, y);
    fetch(n, weft_logical_not(n->g, a));
}

static void floats_then_bools(struct net *n)
{
    weft_val y = start(n), a = weft_tanh(n->g, y);

    fetch(n, a);
    fetch(n, weft_ge(n->g, a, half(n)));
    fetch(n, y);
}

/* The offset keeps truncation away from whole numbers. */
static void integers_behind(struct net *n)
{
    weft_val y = start(n), z = weft_add(n->g, y, weft_scalar(n->g, 0.0123));
    weft_val i = cast(n->g, z, WEFT_I32);

    fetch(n, weft_add(n->g, i, i));
    fetch(n, weft_mul(n->g, cast(n->g, weft_gt(n->g, y, half(n)), WEFT_I32), i));
    fetch(n, cast(n->g, cast(n->g, y, WEFT_F64), WEFT_F32));
}

/* Rounded to halves and back; the program keeps the f32 numbers. */
static void halves_behind(struct net *n)
{
    weft_val y = start(n), b = cast(n->g, weft_tanh(n->g, y), WEFT_BF16);
    weft_val f = cast(n->g, weft_tanh(n->g, y), WEFT_F16);

    n->tolerance = 2e-2;
    fetch(n, cast(n->g, weft_add(n->g, b, b), WEFT_F32));
    fetch(n, cast(n->g, sum_all(n->g, f), WEFT_F32));
    fetch(n, cast(n->g, weft_transpose(n->g, b, 0, NULL), WEFT_F32));
}

/* The last output is a half, and nothing else leaves. */
static void a_half_leaves(struct net *n)
{
    weft_val b = cast(n->g, weft_relu(n->g, start(n)), WEFT_BF16);

    n->tolerance = 2e-2;
    fetch(n, cast(n->g, weft_transpose(n->g, b, 0, NULL), WEFT_F32));
}

static void programs_hold_only_what_their_kernel_can_write(void **state)
{
    build_fn *cases[] = {compare_and_cast,  compare_alone,   bools_between, bools_beside_floats,
                         floats_then_bools, integers_behind, halves_behind, a_half_leaves};

    (void)state;
    for (anchor = 0; anchor < N_ANCHORS; anchor++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check(cases[i]);
}

/* ---- batches of products --------------------------------------------------------------------- */

static void partly_broadcast(struct net *n)
{
    weft_val a = feed(n, "a", WEFT_F32, 4, (int64_t[]){2, 3, 5, 4});
    weft_val b = feed(n, "b", WEFT_F32, 3, (int64_t[]){3, 4, 6});

    fetch(n, weft_relu(n->g, weft_matmul(n->g, a, b, NULL)));
}

static void both_broadcast(struct net *n)
{
    weft_val a = feed(n, "a", WEFT_F32, 4, (int64_t[]){2, 1, 5, 4});
    weft_val b = feed(n, "b", WEFT_F32, 4, (int64_t[]){1, 3, 4, 6});
    weft_val y = weft_matmul(n->g, a, b, NULL);

    fetch(n, weft_mul(n->g, weft_tanh(n->g, y), weft_scalar(n->g, 2)));
    fetch(n, y);
}

static void nothing_to_add_up(struct net *n)
{
    weft_val a = feed2(n, "a", 2, 0), b = feed2(n, "b", 0, 3);

    fetch(n, weft_exp(n->g, weft_matmul(n->g, a, b, NULL)));
}

static void doubles(struct net *n)
{
    weft_val a = feed(n, "a", WEFT_F64, 2, (int64_t[]){4, 4});

    fetch(n, weft_relu(n->g, weft_matmul(n->g, a, a, NULL)));
    fetch(n, cast(n->g, weft_relu(n->g, weft_matmul(n->g, a, a, NULL)), WEFT_F32));
}

static void any_product_may_have_an_epilogue(void **state)
{
    (void)state;
    check(partly_broadcast);
    check(both_broadcast);
    check(nothing_to_add_up);
    check(doubles);
}

/* ---- gradients that leave dead nodes --------------------------------------------------------- */

static void cube(struct net *n)
{
    weft_val w = variable(n, "w", 3, 4);

    minimize(n, sum_all(n->g, weft_mul(n->g, w, weft_mul(n->g, w, w))));
}

static void power(struct net *n)
{
    weft_val w = variable(n, "w", 3, 4);

    minimize(n, sum_all(n->g, weft_pow(n->g, w, weft_scalar(n->g, 3))));
}

static void square_of_square(struct net *n)
{
    weft_val w = variable(n, "w", 3, 4);

    minimize(n, sum_all(n->g, weft_mul(n->g, weft_square(n->g, w), w)));
}

static void dead_nodes_join_no_program(void **state)
{
    (void)state;
    check(cube);
    check(power);
    check(square_of_square);
}

/* ---- updates beside readers ------------------------------------------------------------------ */

/* A value that algebra would call the variable itself is still the one from before the update. */
static void neutral_operands(struct net *n)
{
    weft_graph *g = n->g;
    weft_val w = variable(n, "w", 3, 4), x = feed2(n, "x", 3, 4);

    fetch(n, weft_mul(g, w, weft_scalar(g, 1)));
    fetch(n, weft_add(g, w, weft_scalar(g, 0)));
    fetch(n, weft_op(g, "broadcast_like", 2, (weft_val[]){w, x}, NULL));
    fetch(n, weft_op(g, "reduce_to_like", 2, (weft_val[]){w, x}, NULL));
    minimize(n, sum_all(g, weft_mul(g, weft_square(g, w), x)));
}

/* The gradient of each is the other. */
static void gradients_that_are_variables(struct net *n)
{
    weft_val a = variable(n, "a", 3, 4), b = variable(n, "b", 3, 4), d[2];
    weft_val loss = sum_all(n->g, weft_mul(n->g, a, b));

    assert_int_equal(weft_grad(n->g, loss, 2, (weft_val[]){a, b}, d), WEFT_OK);
    fetch(n, loss);
    fetch(n, d[0]);
    fetch(n, d[1]);
    minimize(n, loss);
}

/* A program would have to run before the update and after it. */
static void old_and_new(struct net *n)
{
    weft_graph *g = n->g;
    weft_val w = variable(n, "w", 3, 4), x = feed2(n, "x", 3, 4);
    weft_val old = weft_tanh(g, w), up = weft_assign(g, w, weft_mul(g, old, x));

    fetch(n, weft_add(g, weft_square(g, old), weft_exp(g, up)));
    n->update[n->n_updates++] = up;
}

/* The same with a product that reads the old value. */
static void old_product_and_new(struct net *n)
{
    weft_graph *g = n->g;
    weft_val w = variable(n, "w", 4, 4), x = feed2(n, "x", 4, 4);
    weft_val old = weft_matmul(g, x, w, NULL), up = weft_assign_add(g, w, x);

    fetch(n, weft_add(g, weft_relu(g, old), weft_exp(g, up)));
    n->update[n->n_updates++] = up;
}

/* Two updates of one variable happen in the order they were built, though the gradient is there
 * before. */
static void assign_then_apply(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed2(n, "x", 6, 5), w = variable(n, "w", 5, 4), v = variable(n, "v", 5, 4), dw;
    weft_val loss = sum_all(g, weft_square(g, weft_matmul(g, x, w, NULL)));
    weft_val up[2];

    assert_int_equal(weft_grad(g, loss, 1, &w, &dw), WEFT_OK);
    up[0] = weft_assign(g, w, weft_mul(g, v, weft_scalar(g, 0.5)));
    up[1] = weft_op(g, "apply", 2, (weft_val[]){w, dw}, "optimizer=sgd params=[0.1,0,0,0,0,0,0]");
    n->update[n->n_updates++] = up[0];
    n->update[n->n_updates++] = up[1];
    fetch(n, loss);
}

/* The second loss is built after the first update and reads the same weights. */
static void minimize_two_losses(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed2(n, "x", 6, 5), v = variable(n, "v", 5, 4), w = variable(n, "w", 4, 3);

    for (int i = 0; i < 2; i++) {
        weft_val h = weft_tanh(g, weft_matmul(g, x, v, NULL)), y = weft_matmul(g, h, w, NULL);
        weft_val loss = sum_all(g, i ? weft_sigmoid(g, y) : weft_square(g, y));

        fetch(n, loss);
        minimize(n, loss);
    }
}

static void minimize_twice(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed2(n, "x", 6, 5), w = variable(n, "w", 5, 4), y = weft_matmul(g, x, w, NULL);

    minimize(n, sum_all(g, weft_tanh(g, y)));
    minimize(n, sum_all(g, weft_sigmoid(g, y)));
    fetch(n, sum_all(g, y));
}

static void what_reads_a_variable_sees_it_before_its_update(void **state)
{
    (void)state;
    check(neutral_operands);
    check(gradients_that_are_variables);
    check(old_and_new);
    check(old_product_and_new);
    check(assign_then_apply);
    check(minimize_two_losses);
    check(minimize_twice);
}

/* ---- control --------------------------------------------------------------------------------- */

/* Nodes that others wait for, and that wait, beside programs. */
static void control(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed2(n, "x", 6, 5), w = variable(n, "w", 5, 4), s = variable(n, "s", 6, 4);
    weft_val y = weft_matmul(g, x, w, NULL), a = weft_tanh(g, y), b = weft_square(g, a);
    weft_val up = weft_assign(g, s, b), after = weft_exp(g, s);

    weft_control(g, up, a);
    weft_control(g, after, up);
    n->update[n->n_updates++] = up;
    fetch(n, weft_mul(g, after, b));
    fetch(n, sum_all(g, a));
    minimize(n, sum_all(g, b));
}

/* What is waited for would vanish inside a program. */
static void waiting_for_a_step(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed2(n, "x", 6, 4), s = variable(n, "s", 6, 4), up = weft_assign(g, s, x);
    weft_val a = weft_tanh(g, up), b = weft_square(g, a), late = weft_exp(g, s);

    weft_control(g, late, a);
    fetch(n, late);
    fetch(n, b);
    n->update[n->n_updates++] = up;
}

static void control_dependencies_outlive_passes(void **state)
{
    (void)state;
    check(control);
    check(waiting_for_a_step);
}

/* ---- shared parameters ----------------------------------------------------------------------- */

/* A function that fetches w, doubled, that shares the parameters of `share`. */
static weft_status doubled(weft_graph *g, weft_val w, weft_fn *share, weft_fn **out)
{
    weft_val y = weft_mul(g, w, weft_scalar(g, 2));

    return weft_fn_new(g, WEFT_OPTS(weft_fn_opts, .n_fetches = 1, .fetches = &y, .share = share),
                       out);
}

static weft_val filled(weft_graph *g, const char *name, int64_t n, double value)
{
    return weft_variable(g, name, 1, &n,
                         WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT, .a = value));
}

static double first_of(weft_fn *fn)
{
    weft_tensor t = {.data = NULL};

    assert_int_equal(weft_fn_run(fn, NULL, &t), WEFT_OK);
    return (double)((float *)t.data)[0];
}

static void shared_variables_are_matched_and_checked_when_the_function_is_made(void **state)
{
    weft_ctx *ctx = NULL;
    weft_graph *g = NULL, *other = NULL;
    weft_fn *all = NULL, *part = NULL, *strange = NULL;
    weft_val a, b;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &other), WEFT_OK);
    a = filled(g, "a", 3, 1);
    b = filled(g, "b", 3, 2);
    assert_int_equal(doubled(g, a, NULL, &all), WEFT_OK);
    assert_int_equal(doubled(g, b, all, &part), WEFT_OK); /* a is not in it */
    assert_float_equal(first_of(part), 4, 0);
    /* The numbers of another graph say nothing; names do, and shapes must fit. */
    assert_int_equal(doubled(other, filled(other, "b", 3, 7), all, &strange), WEFT_OK);
    assert_float_equal(first_of(strange), 4, 0);
    weft_fn_free(strange);
    strange = NULL;
    assert_int_equal(doubled(other, filled(other, "a", 4, 7), all, &strange), WEFT_ESHAPE);
    assert_int_equal(doubled(other, filled(other, "c", 3, 7), all, &strange), WEFT_ENOENT);
    assert_null(strange);
    weft_fn_free(part);
    weft_fn_free(all);
    weft_graph_free(g);
    weft_graph_free(other);
    weft_ctx_free(ctx);
}

/* ---- segments -------------------------------------------------------------------------------- */

static weft_status note_need(void *arg, int32_t segment)
{
    ((int64_t *)arg)[0] = segment;
    return WEFT_OK;
}

static weft_status note_ready(void *arg, int32_t segment, int32_t group)
{
    ((int64_t *)arg)[1] = segment;
    ((int64_t *)arg)[2] = group;
    return WEFT_OK;
}

/* An empty variable starts where the next one does. */
static void hooks_are_told_the_number_of_the_segment(void **state)
{
    int64_t told[3] = {-1, -1, -1};
    struct wf_hooks hooks = {.arg = told, .need = note_need, .ready = note_ready};
    struct wf_run at = {.hooks = &hooks};
    struct net n = {.n_feeds = 0};
    weft_ctx *ctx = NULL;
    weft_fn *fn = NULL;
    weft_val empty, w, grad;
    weft_segment seg;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &n.g), WEFT_OK);
    empty = weft_square(n.g, filled(n.g, "empty", 0, 1));
    w = filled(n.g, "w", 3, 1);
    assert_int_equal(
        weft_grad(n.g, weft_add(n.g, sum_all(n.g, empty), sum_all(n.g, weft_square(n.g, w))), 1, &w,
                  &grad),
        WEFT_OK);
    assert_int_equal(
        weft_fn_new(n.g,
                    WEFT_OPTS(weft_fn_opts, .n_gradients = 1,
                              .gradients = &(weft_gradient){.var = w, .grad = grad, .group = 2}),
                    &fn),
        WEFT_OK);
    assert_int_equal(wf_fn_run_at(fn, &at, NULL, NULL), WEFT_OK);
    assert_int_equal(weft_fn_segment(fn, told[0], &seg), WEFT_OK);
    assert_string_equal(seg.name, "w");
    assert_int_equal(told[1], told[0]);
    assert_int_equal(told[2], 2);
    weft_fn_free(fn);
    weft_graph_free(n.g);
    weft_ctx_free(ctx);
}

/* ---- exchanges ------------------------------------------------------------------------------- */

/* a, b, c = b, c, a, whatever order the updates are built in. */
static void variables_can_be_exchanged(void **state)
{
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};

    (void)state;
    for (int o = 0; o < 3; o++)
        for (unsigned off = 0; off <= WEFT_PASS_ALL; off++) {
            struct net n = {.n_feeds = 0};
            weft_val v[3];
            weft_ctx *ctx = NULL;
            weft_fn *fn = NULL;

            assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
            assert_int_equal(weft_graph_new(ctx, &n.g), WEFT_OK);
            for (int i = 0; i < 3; i++)
                v[i] = filled(n.g, (const char *[]){"a", "b", "c"}[i], 3, i + 1);
            for (int i = 0; i < 3; i++) {
                int to = orders[o][i];

                n.update[i] = weft_assign(n.g, v[to], v[(to + 1) % 3]);
            }
            assert_int_equal(weft_fn_new(n.g,
                                         WEFT_OPTS(weft_fn_opts, .n_updates = 3,
                                                   .updates = n.update, .passes_off = off),
                                         &fn),
                             WEFT_OK);
            assert_int_equal(weft_fn_run(fn, NULL, NULL), WEFT_OK);
            for (int i = 0; i < 3; i++) {
                weft_tensor t;

                assert_int_equal(weft_fn_view(fn, (const char *[]){"a", "b", "c"}[i], &t), WEFT_OK);
                assert_float_equal(((float *)t.data)[2], (float)((i + 1) % 3 + 1), 0);
            }
            weft_fn_free(fn);
            weft_graph_free(n.g);
            weft_ctx_free(ctx);
        }
}

/* ---- new values ------------------------------------------------------------------------------ */

/* A variable is what it was before the updates, also for those who run after them; the new value is
 * the update's output. */
static void waiting_for_an_update_does_not_change_what_is_read(void **state)
{
    (void)state;
    for (unsigned off = 0; off <= WEFT_PASS_ALL; off++) {
        weft_tensor fetched[2] = {{.data = NULL}};
        weft_val a, w, up[2], late, both, fetches[2];
        weft_ctx *ctx = NULL;
        weft_graph *g = NULL;
        weft_fn *fn = NULL;

        assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
        assert_int_equal(weft_graph_new(ctx, &g), WEFT_OK);
        a = filled(g, "a", 3, 1);
        w = filled(g, "w", 3, 2);
        up[0] = weft_assign(g, a, weft_add(g, a, weft_scalar(g, 10)));
        up[1] = weft_assign(g, w, weft_add(g, w, weft_scalar(g, 100)));
        late = weft_mul(g, w, weft_scalar(g, 3));
        weft_control(g, late, up[1]);
        both = weft_add(g, a, late);
        fetches[0] = both;
        fetches[1] = weft_sub(g, up[0], weft_square(g, late));
        assert_int_equal(weft_fn_new(g,
                                     WEFT_OPTS(weft_fn_opts, .n_fetches = 2, .fetches = fetches,
                                               .n_updates = 2, .updates = up, .passes_off = off),
                                     &fn),
                         WEFT_OK);
        assert_int_equal(weft_fn_run(fn, NULL, fetched), WEFT_OK);
        assert_float_equal(((float *)fetched[0].data)[0], 1.0f + 6.0f, 0);
        assert_float_equal(((float *)fetched[1].data)[0], 11.0f - 6.0f * 6.0f, 0);
        weft_fn_free(fn);
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_that_is_used_twice_keeps_its_gradient),
        cmocka_unit_test(names_that_passes_use_belong_to_the_user),
        cmocka_unit_test(a_sum_may_follow_any_activation),
        cmocka_unit_test(programs_hold_only_what_their_kernel_can_write),
        cmocka_unit_test(any_product_may_have_an_epilogue),
        cmocka_unit_test(dead_nodes_join_no_program),
        cmocka_unit_test(what_reads_a_variable_sees_it_before_its_update),
        cmocka_unit_test(control_dependencies_outlive_passes),
        cmocka_unit_test(hooks_are_told_the_number_of_the_segment),
        cmocka_unit_test(variables_can_be_exchanged),
        cmocka_unit_test(waiting_for_an_update_does_not_change_what_is_read),
        cmocka_unit_test(shared_variables_are_matched_and_checked_when_the_function_is_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
