/* updates_test.c - every update that a run needs happens, once, in the order in which updates of a
 * variable were built, and readers see the value they name. Each graph runs with every subset of
 * passes, with fast and reference kernels, with and without flat gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "support/gradients.h"
#include "weft/weft.h"

enum { MAX = 8 };

struct net {
    weft_graph *g;
    weft_val v, w; /* variables of three elements, 1 and 2 at first */
    int n_fetches, n_updates;
    weft_val fetch[MAX], update[MAX];
    float want[MAX]; /* every element of the fetch */
};
typedef void build_fn(struct net *n);

static weft_val filled(weft_graph *g, const char *name, double value)
{
    return weft_variable(g, name, 1, (int64_t[]){3},
                         WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT, .a = value));
}

static weft_val scalar(struct net *n, float value)
{
    return weft_scalar(n->g, (double)value);
}

/* Three times the value. */
static weft_val threes(struct net *n, float value)
{
    float data[3] = {value, value, value};
    weft_tensor t = weft_view(WEFT_F32, data, 1, (int64_t[]){3});

    return weft_constant(n->g, &t);
}

static void fetch(struct net *n, weft_val v, float want)
{
    n->fetch[n->n_fetches] = v;
    n->want[n->n_fetches++] = want;
}

static weft_val update(struct net *n, weft_val u)
{
    return n->update[n->n_updates++] = u;
}

static void run(build_fn *build, unsigned off, bool ref, bool flat)
{
    struct net n = {.g = NULL};
    weft_tensor out[MAX] = {{.data = NULL}};
    weft_ctx *ctx = NULL;
    weft_gradient gradients[WF_COUNT(n.update)];
    int n_gradients;
    weft_fn *fn = NULL;

    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(weft_graph_new(ctx, &n.g), WEFT_OK);
    n.v = filled(n.g, "v", 1);
    n.w = filled(n.g, "w", 2);
    build(&n);
    n_gradients =
        flat ? gradients_of_updates(n.g, n.n_updates, n.update, WF_COUNT(gradients), gradients) : 0;
    if (weft_fn_new(n.g,
                    WEFT_OPTS(weft_fn_opts, .n_fetches = n.n_fetches, .fetches = n.fetch,
                              .n_updates = n.n_updates, .updates = n.update, .passes_off = off,
                              .reference_kernels = ref, .n_gradients = n_gradients,
                              .gradients = gradients),
                    &fn) ||
        weft_fn_run(fn, NULL, out))
        fail_msg("%s", weft_error());
    for (int i = 0; i < n.n_fetches; i++)
        for (int64_t e = 0; e < weft_tensor_count(&out[i]); e++)
            if (((float *)out[i].data)[e] != n.want[i])
                fail_msg("passes off %u, reference %d, flat %d: fetch %d is %g, must be %g", off,
                         ref, flat, i, (double)((float *)out[i].data)[e], (double)n.want[i]);
    weft_fn_free(fn);
    weft_graph_free(n.g);
    weft_ctx_free(ctx);
}

static void check(build_fn *build)
{
    for (unsigned off = 0; off <= WEFT_PASS_ALL; off++)
        for (int i = 0; i < 4; i++)
            run(build, off, i & 1, i & 2);
}

/* ---- updates that run because something needs their node ----------------------------------------
 */

/* A constant expression waits; what reads it is constant, too. */
static void awaited_by_constants(struct net *n)
{
    weft_val u = weft_assign(n->g, n->v, threes(n, 5)), y = weft_neg(n->g, scalar(n, 2));

    weft_control(n->g, y, u);
    fetch(n, weft_mul(n->g, y, scalar(n, 3)), -6);
    fetch(n, n->v, 5);
}

/* A broadcast scalar waits; its reader can broadcast by itself. */
static void awaited_by_a_broadcast(struct net *n)
{
    weft_val u = weft_assign(n->g, n->v, threes(n, 5));
    weft_val y = weft_broadcast_to(n->g, weft_sum(n->g, n->w, NULL), 1, (int64_t[]){3});
    weft_val z = weft_identity(n->g, y);

    weft_control(n->g, z, u);
    fetch(n, weft_add(n->g, z, n->w), 8);
    fetch(n, n->v, 5);
}

/* Only the shape of the update's result is needed. */
static void needed_for_its_shape(struct net *n)
{
    weft_val u = weft_assign(n->g, n->v, threes(n, 5));
    weft_val y = weft_op(n->g, "reduce_to_like", 2, (weft_val[]){n->w, u}, "");

    fetch(n, y, 2);
    fetch(n, n->v, 5);
}

/* The broadcast to an update's shape is replaced by the element itself. */
static void needed_for_a_broadcast(struct net *n)
{
    weft_val u = weft_assign(n->g, n->v, threes(n, 5));
    weft_val s = weft_sum(n->g, n->w, NULL);
    weft_val y = weft_op(n->g, "broadcast_like", 2, (weft_val[]){s, u}, "");

    fetch(n, weft_add(n->g, y, n->w), 8);
    fetch(n, n->v, 5);
}

/* A product of the new value and the sum of its other factor, whose reader wants the old value. */
static void sum_beside_a_late_product(struct net *n)
{
    weft_val ones = weft_reshape(n->g, n->w, 2, (int64_t[]){1, 3});
    weft_val u = weft_assign(n->g, n->v, threes(n, 5));
    weft_val x = weft_reshape(n->g, u, 2, (int64_t[]){1, 3});
    weft_val sum = weft_op(n->g, "sum", 1, &ones, "axes=[0]");

    fetch(n, weft_matmul(n->g, x, ones, WEFT_OPTS(weft_matmul_opts, .trans_a = true)), 10);
    fetch(n, weft_add(n->g, sum, n->v), 3);
    fetch(n, n->v, 5);
}

static void an_update_that_a_node_needs_or_waits_for_is_never_removed(void **state)
{
    (void)state;
    check(awaited_by_constants);
    check(awaited_by_a_broadcast);
    check(needed_for_its_shape);
    check(needed_for_a_broadcast);
    check(sum_beside_a_late_product);
}

/* ---- several updates of one variable ------------------------------------------------------------
 */

/* The second update reads the variable, that is its value before the run. */
static void back_to_the_old_value(struct net *n)
{
    update(n, weft_assign_add(n->g, n->v, threes(n, 10)));
    update(n, weft_assign(n->g, n->v, weft_identity(n->g, n->v)));
    fetch(n, n->v, 1);
}

/* A reader of the first update's result that is built after the second update. */
static void read_late(struct net *n)
{
    weft_val u = update(n, weft_assign(n->g, n->v, threes(n, 5)));

    update(n, weft_assign(n->g, n->v, threes(n, 7)));
    fetch(n, weft_mul(n->g, u, scalar(n, 3)), 15);
    fetch(n, n->v, 7);
}

/* A reader of the first update's result that nothing else holds back or pushes on. */
static void read_between(struct net *n)
{
    weft_val u = update(n, weft_assign(n->g, n->v, threes(n, 5))), y;
    weft_val uw = update(n, weft_assign(n->g, n->w, threes(n, 3)));

    y = weft_mul(n->g, u, uw); /* waits with uw for the reader of w */
    update(n, weft_assign(n->g, n->v, threes(n, 7)));
    fetch(n, weft_neg(n->g, n->w), -2);
    fetch(n, y, 15);
    fetch(n, n->v, 7);
}

/* The first update has to wait for the reader of w that is built last; the second one would not. */
static void first_waits(struct net *n)
{
    weft_val uw = update(n, weft_assign(n->g, n->w, threes(n, 4)));

    update(n, weft_assign(n->g, n->v, uw));
    update(n, weft_assign_add(n->g, n->v, threes(n, 10)));
    fetch(n, weft_neg(n->g, n->w), -2);
    fetch(n, n->v, 14);
}

/* What equals the first update's result has bytes of its own. */
static void equal_to_the_first(struct net *n)
{
    weft_val u = update(n, weft_assign_add(n->g, n->v, threes(n, 1)));

    fetch(n, weft_add(n->g, u, scalar(n, 0)), 2);
    update(n, weft_assign_add(n->g, n->v, threes(n, 1)));
    fetch(n, weft_mul(n->g, u, scalar(n, 1)), 2);
    fetch(n, n->v, 3);
}

/* Equal updates are not one. The third adds the result of the first. */
static void three_updates(struct net *n)
{
    weft_val one = threes(n, 1), u = update(n, weft_assign_add(n->g, n->v, one));

    update(n, weft_assign_add(n->g, n->v, one));
    update(n, weft_assign_add(n->g, n->v, weft_reshape(n->g, u, 1, (int64_t[]){3})));
    fetch(n, n->v, 5);
}

/* An update that is waited for is not listed; it comes first all the same. */
static void first_is_awaited(struct net *n)
{
    weft_val u = weft_assign_add(n->g, n->v, threes(n, 10)), y = weft_neg(n->g, n->w);

    weft_control(n->g, y, u);
    fetch(n, y, -2);
    update(n, weft_assign_add(n->g, n->v, weft_mul(n->g, u, scalar(n, 2))));
    fetch(n, n->v, 33);
}

static void updates_of_one_variable_run_in_the_order_they_were_built(void **state)
{
    (void)state;
    check(back_to_the_old_value);
    check(read_late);
    check(read_between);
    check(first_waits);
    check(equal_to_the_first);
    check(three_updates);
    check(first_is_awaited);
}

/* ---- updates inside products --------------------------------------------------------------------
 */

/* The product for t reads the old v. As part of an update it would wait for the cross-entropy,
 * which may fail and needs the new v. */
static void product_of_an_old_value(struct net *n)
{
    weft_val row, u, loss, old, product, up,
        t = weft_variable(n->g, "t", 2, (int64_t[]){1, 2},
                          WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT));
    int64_t zero = 0, dims[2] = {3, 2};
    weft_tensor label = weft_view(WEFT_I64, &zero, 1, (int64_t[]){1});
    float six[6] = {1, 1, 1, 1, 1, 1};
    weft_tensor ones = weft_view(WEFT_F32, six, 2, dims);
    weft_optim sgd;

    old = weft_reshape(n->g, n->v, 2, (int64_t[]){3, 1});
    u = update(n, weft_assign(n->g, n->v, threes(n, 5)));
    row = weft_reshape(n->g, u, 2, (int64_t[]){1, 3});
    loss =
        weft_op(n->g, "sparse_softmax_xent", 2, (weft_val[]){row, weft_constant(n->g, &label)}, "");
    fetch(n, weft_mul(n->g, loss, scalar(n, 0)), 0);
    product =
        weft_op(n->g, "matmul", 2, (weft_val[]){old, weft_constant(n->g, &ones)}, "trans_a=true");
    assert_int_equal(weft_optim_init(&sgd, "sgd", "learning_rate=1"), WEFT_OK);
    assert_int_equal(weft_apply_gradients(n->g, &sgd, 1, &t, &product, &up), WEFT_OK);
    update(n, up);
    fetch(n, t, -3);
    fetch(n, n->v, 5);
}

static void an_update_inside_a_product_does_not_change_what_the_product_reads(void **state)
{
    (void)state;
    check(product_of_an_old_value);
}

/* ---- programs that come after an update ---------------------------------------------------------
 */

/* relu_grad and mul become one program, which reads the new v. What reads its first result, and the
 * old v, was built as something that need not wait for the update. */
static void program_beside_an_old_value(struct net *n)
{
    weft_val old, u, early, both[2];

    old = weft_reshape(n->g, n->v, 1, (int64_t[]){3});
    u = update(n, weft_assign(n->g, n->v, threes(n, 5)));
    early = weft_op(n->g, "relu_grad", 2, (weft_val[]){n->w, n->w}, ""); /* 2 */
    fetch(n, weft_mul(n->g, u, early), 10);
    both[0] = early;
    both[1] = old;
    fetch(n, weft_slice_axis(n->g, weft_concat(n->g, 2, both, 0), 0, 3, 3), 1);
}

static void what_a_program_delays_still_reads_old_values(void **state)
{
    (void)state;
    check(program_beside_an_old_value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_update_that_a_node_needs_or_waits_for_is_never_removed),
        cmocka_unit_test(updates_of_one_variable_run_in_the_order_they_were_built),
        cmocka_unit_test(an_update_inside_a_product_does_not_change_what_the_product_reads),
        cmocka_unit_test(what_a_program_delays_still_reads_old_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
