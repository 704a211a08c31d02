/* flight_test.c - runs that the host does not wait for (exec/flight.c), on the fake device: whoever
 * looks at variables, runs another function on them or frees one meanwhile finds whole runs; what
 * is read is what was fed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "exec/exec.h"
#include "support/fake.h"
#include "weft/weft.h"

#define D 5
#define ROWS 7

/* w += column sums of x, and of the looked-up rows of a table; fetched: the new w and their sum. */
struct net {
    struct fake fake;
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn, *other; /* other: reads w, and shares it */
    float x[9 * D];
    int64_t id[9];
};

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static void open_net(struct net *n, uint64_t delays, bool no_capture)
{
    const weft_device_driver *driver = &n->fake.driver;
    weft_val feed[2], w, table, sum, update, rows;

    *n = (struct net){.fake = {.delays = delays, .no_capture = no_capture, .words = true}};
    fake_init(&n->fake);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3, .n_drivers = 1,
                              .drivers = &driver, .devices = "fake:0, strict"),
                    &n->ctx));
    ok(weft_graph_new(n->ctx, &n->g));
    feed[0] = weft_placeholder(n->g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, D});
    feed[1] = weft_placeholder(n->g, "ids", WEFT_I64, 1, (int64_t[]){WEFT_ANY});
    w = weft_variable(n->g, "w", 1, (int64_t[]){D},
                      WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT, .a = 1));
    table = weft_variable(n->g, "table", 2, (int64_t[]){ROWS, D},
                          WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT, .a = 0.25));
    rows = weft_add(n->g, feed[0], weft_embedding(n->g, table, feed[1]));
    sum = weft_sum(n->g, rows, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {0}));
    update = weft_assign(n->g, w, weft_add(n->g, w, sum));
    ok(weft_graph_status(n->g));
    ok(weft_fn_new(n->g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = feed, .n_fetches = 2,
                             .fetches = (weft_val[]){update, weft_sum(n->g, update, NULL)},
                             .n_updates = 1, .updates = &update),
                   &n->fn));
    ok(weft_fn_new(n->g,
                   WEFT_OPTS(weft_fn_opts, .n_fetches = 1,
                             .fetches = (weft_val[]){weft_mul(n->g, w, weft_scalar(n->g, 2))},
                             .share = n->fn),
                   &n->other));
}

static void close_net(struct net *n)
{
    weft_fn_free(n->other);
    weft_fn_free(n->fn);
    weft_graph_free(n->g);
    weft_ctx_free(n->ctx);
    assert_int_equal(n->fake.allocated, 0);
    assert_int_equal(n->fake.n_streams, 0);
}

/* Feeds of run k, in memory that the next one overwrites. */
static const weft_tensor *feed(struct net *n, int k, int64_t rows)
{
    static weft_tensor t[2];

    for (int i = 0; i < rows * D; i++)
        n->x[i] = (float)(k + 1) / 4;
    for (int i = 0; i < rows; i++)
        n->id[i] = (i + k) % ROWS;
    t[0] = weft_view(WEFT_F32, n->x, 2, (int64_t[]){rows, D});
    t[1] = weft_view(WEFT_I64, n->id, 1, &rows);
    return t;
}

/* What run k adds. */
static float adds(int k, int64_t rows)
{
    return ((float)(k + 1) / 4 + 0.25f) * (float)rows;
}

/* Runs until a run need not be waited for; w is then this. */
static float warm_up(struct net *n)
{
    float w = 1;

    for (int k = 0; k < 3; k++) {
        weft_tensor out[2] = {{0}};

        ok(weft_fn_run(n->fn, feed(n, k, 4), out));
        w += adds(k, 4);
    }
    return w;
}

static void start(struct net *n, int k, bool expected)
{
    bool started;

    ok(wf_fn_start(n->fn, feed(n, k, 4), true, &started));
    assert_int_equal(started, expected);
    memset(n->x, 0xff, sizeof n->x); /* it was read */
    memset(n->id, 0xff, sizeof n->id);
}

static void land(struct net *n, float w)
{
    weft_tensor out[2] = {{0}};

    ok(wf_fn_land(n->fn, out));
    for (int i = 0; i < D; i++)
        assert_true(((const float *)out[0].data)[i] == w);
    assert_true(*(const float *)out[1].data == w * D);
}

static void is(struct net *n, float want)
{
    float got[D] = {0};
    weft_tensor t = weft_view(WEFT_F32, got, 1, (int64_t[]){D});

    ok(weft_fn_get(n->fn, "w", &t));
    for (int i = 0; i < D; i++)
        assert_true(got[i] == want);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct {
    uint64_t delays;
    bool no_capture;
} kinds[] = {{0, false}, {1, false}, {0, true}, {9, true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void two_runs_are_in_flight(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        struct net n;
        bool started;
        float w;

        open_net(&n, kinds[i].delays, kinds[i].no_capture);
        start(&n, 0, false); /* it is not planned */
        w = warm_up(&n);
        start(&n, 3, true);
        for (int k = 4; k < 20; k++) {
            start(&n, k, true);
            assert_int_equal(wf_fn_in_flight(n.fn), 2);
            assert_int_equal(weft_fn_step(n.fn), k + 1);
            w += adds(k - 1, 4);
            land(&n, w);
        }
        w += adds(19, 4);
        land(&n, w);
        assert_int_equal(wf_fn_in_flight(n.fn), 0);
        is(&n, w);
        ok(wf_fn_start(n.fn, feed(&n, 20, 4), false, &started)); /* is not a step */
        assert_true(started);
        land(&n, w + adds(20, 4));
        assert_int_equal(weft_fn_step(n.fn), 20);
        wf_fn_trap(n.fn, true);
        start(&n, 21, false);
        close_net(&n);
    }
}

static void variables_are_those_after_all_runs(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        struct net n;
        float w, five[D] = {5, 5, 5, 5, 5};
        weft_tensor out = {0}, t = weft_view(WEFT_F32, five, 1, (int64_t[]){D});

        open_net(&n, kinds[i].delays, kinds[i].no_capture);
        w = warm_up(&n);
        start(&n, 3, true);
        start(&n, 4, true);
        is(&n, w + adds(3, 4) + adds(4, 4));
        land(&n, w + adds(3, 4));
        start(&n, 5, true);
        ok(weft_fn_set(n.fn, "w", &t));
        land(&n, w + adds(3, 4) + adds(4, 4));
        start(&n, 6, true); /* takes what was set */
        land(&n, w + adds(3, 4) + adds(4, 4) + adds(5, 4));
        ok(weft_fn_run(n.other, NULL, &out)); /* another function sees run 6 */
        assert_true(*(const float *)out.data == 2 * (5 + adds(6, 4)));
        land(&n, 5 + adds(6, 4));
        is(&n, 5 + adds(6, 4));
        close_net(&n);
    }
}

/* The first one says it; those after it change nothing, and the next run starts again. */
static void a_failed_run_voids_those_after_it(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++)
        for (int both = 0; both < 2; both++) {
            weft_tensor out[2] = {{0}};
            bool started;
            struct net n;
            float w;

            open_net(&n, kinds[i].delays, kinds[i].no_capture);
            w = warm_up(&n);
            start(&n, 3, true);
            w += adds(3, 4);
            land(&n, w);
            (void)feed(&n, 4, 4);
            n.id[2] = -7;
            ok(wf_fn_start(n.fn,
                           (weft_tensor[]){weft_view(WEFT_F32, n.x, 2, (int64_t[]){4, D}),
                                           weft_view(WEFT_I64, n.id, 1, (int64_t[]){4})},
                           true, &started));
            assert_true(started);
            (void)feed(&n, 5, 4);
            n.id[1] = both ? 99 : 1;
            ok(wf_fn_start(n.fn,
                           (weft_tensor[]){weft_view(WEFT_F32, n.x, 2, (int64_t[]){4, D}),
                                           weft_view(WEFT_I64, n.id, 1, (int64_t[]){4})},
                           true, &started));
            assert_int_equal(wf_fn_land(n.fn, out), WEFT_EDATA);
            assert_non_null(strstr(weft_error(), "id -7 at position 2 is not in [0, 7)"));
            assert_int_equal(wf_fn_in_flight(n.fn), 0);
            assert_int_equal(weft_fn_step(n.fn), 4);
            is(&n, w);
            start(&n, 6, true);
            land(&n, w + adds(6, 4));
            ok(weft_fn_run(n.fn, feed(&n, 7, 4), out));
            is(&n, w + adds(6, 4) + adds(7, 4));
            close_net(&n);
        }
}

static void other_runs_wait_until_all_have_landed(void **state)
{
    weft_tensor out[2] = {{0}};
    bool started;
    struct net n;
    float w;

    (void)state;
    open_net(&n, 0, false);
    w = warm_up(&n);
    start(&n, 3, true);
    assert_int_equal(weft_fn_run(n.fn, feed(&n, 4, 4), out), WEFT_EBUG);
    assert_int_equal(weft_fn_run(n.fn, feed(&n, 4, 9), out), WEFT_EBUG); /* another plan */
    ok(wf_fn_start(n.fn, feed(&n, 4, 9), true, &started));
    assert_false(started);
    w += adds(3, 4);
    land(&n, w);
    for (int k = 4; k < 7; k++)
        ok(weft_fn_run(n.fn, feed(&n, k, 9), out));
    w += adds(4, 9) + adds(5, 9) + adds(6, 9);
    ok(wf_fn_start(n.fn, feed(&n, 7, 9), true, &started)); /* larger feeds */
    assert_true(started);
    start(&n, 8, false); /* the slab has grown: this plan is to be bound and recorded again */
    land(&n, w + adds(7, 9));
    is(&n, w + adds(7, 9));
    close_net(&n);
}

static void a_function_is_freed_with_runs_in_flight(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        struct net n;

        open_net(&n, kinds[i].delays, kinds[i].no_capture);
        warm_up(&n);
        start(&n, 3, true);
        start(&n, 4, true);
        close_net(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_runs_are_in_flight),
        cmocka_unit_test(variables_are_those_after_all_runs),
        cmocka_unit_test(a_failed_run_voids_those_after_it),
        cmocka_unit_test(other_runs_wait_until_all_have_landed),
        cmocka_unit_test(a_function_is_freed_with_runs_in_flight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
