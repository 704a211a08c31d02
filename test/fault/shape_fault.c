/* shape_fault.c - every allocation fails in turn while ops that move and find elements, einsum and
 * scan are built, differentiated, planned and run: a clear status, nothing leaked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

#include "../support/counting.h"

enum { STEPS = 70, WIDTH = 4 };

static weft_status step(weft_graph *g, void *arg, int t, const weft_val *state, const weft_val *x,
                        weft_val *new_state, weft_val *y)
{
    (void)arg;
    (void)t;
    new_state[0] = weft_add(g, state[0], x[0]);
    y[0] = weft_mul(g, new_state[0], x[0]);
    return WEFT_OK;
}

/* A scalar that depends on the table and xs through most of the ops. */
static weft_val build(weft_graph *g, weft_val table, weft_val ids, weft_val xs)
{
    weft_val rows = weft_embedding(g, table, ids), parts[2], last, ys, joined, places, offsets;
    weft_val w, total;

    weft_split(g, rows, 2, 1, parts);
    joined = weft_concat(g, 3, (weft_val[]){parts[1], rows, parts[0]}, 1);
    joined = weft_pad(g, weft_transpose(g, joined, 0, NULL), 2, (int64_t[]){1, 0, 0, 2}, NULL);
    total = weft_op(g, "sum", 1, &joined, NULL);
    weft_scan(g, STEPS, 1, (weft_val[]){weft_slice_axis(g, table, 0, 1, 2)}, 1, &xs, 1, step, NULL,
              NULL, &last, &ys);
    ys = weft_einsum(g, "tbi,ji->tjb", ys, table);
    total = weft_add(g, total, weft_op(g, "sum", 1, &ys, NULL));
    ys = weft_top_k(g, rows, 2, &places);
    rows = weft_mul(g, ys, weft_take_along(g, rows, places, -1));
    total = weft_add(g, total, weft_op(g, "sum", 1, &rows, NULL));
    offsets = weft_segment_offsets_like(g, ids, table);
    w = weft_reshape(g, weft_slice_axis(g, weft_embedding(g, table, ids), 1, 0, 1), 1,
                     (int64_t[]){-1});
    rows = weft_embedding_bag(g, table, ids, offsets,
                              WEFT_OPTS(weft_embedding_bag_opts, .weights = w));
    return weft_add(g, total, weft_op(g, "sum", 1, &rows, NULL));
}

static weft_status whole_life(const weft_allocator *mem)
{
    float table[3 * WIDTH] = {0}, xs[STEPS * 2 * WIDTH] = {0};
    int32_t ids[3] = {0, 0, 1};
    weft_ctx *ctx = NULL;
    weft_graph *g = NULL;
    weft_fn *fn = NULL;
    weft_val in[3], fetches[3];
    weft_tensor feeds[3] = {weft_view(WEFT_F32, table, 2, (int64_t[]){3, WIDTH}),
                            weft_view(WEFT_I32, ids, 1, (int64_t[]){3}),
                            weft_view(WEFT_F32, xs, 3, (int64_t[]){STEPS, 2, WIDTH})};
    weft_tensor out[3] = {{.data = NULL}, {.data = NULL}, {.data = NULL}};
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .allocator = mem), &ctx);

    for (int i = 0; i < 3 * WIDTH; i++)
        table[i] = (float)(i + 1);
    for (int i = 0; i < STEPS * 2 * WIDTH; i++)
        xs[i] = (float)(i % 7);
    if (!st)
        st = weft_graph_new(ctx, &g);
    if (st)
        goto out;
    in[0] = weft_placeholder(g, "table", WEFT_F32, 2, (int64_t[]){3, WIDTH});
    in[1] = weft_placeholder(g, "ids", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    in[2] = weft_placeholder(g, "xs", WEFT_F32, 3, (int64_t[]){STEPS, 2, WIDTH});
    fetches[0] = build(g, in[0], in[1], in[2]);
    st = weft_graph_status(g);
    if (!st)
        st = weft_grad(g, fetches[0], 2, (weft_val[]){in[0], in[2]}, &fetches[1]);
    if (!st)
        st = weft_fn_new(
            g,
            WEFT_OPTS(weft_fn_opts, .n_feeds = 3, .feeds = in, .n_fetches = 3, .fetches = fetches),
            &fn);
    if (!st)
        st = weft_fn_run(fn, feeds, out);
out:
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
    return st;
}

static void each_allocation_fails_in_turn(void **state)
{
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);
    int64_t total;

    (void)state;
    if (whole_life(&mem))
        fail_msg("%s", weft_error());
    assert_int_equal(c.n_live, 0);
    total = c.n_allocs;
    assert_true(total > 50);
    for (int64_t i = 1; i <= total; i++) {
        weft_status st;

        c = (struct counting){.fail_at = i};
        st = whole_life(&mem);
        if (st != WEFT_ENOMEM || !strstr(weft_error(), "out of memory"))
            fail_msg("allocation %lld of %lld failed: got %s (%s)", (long long)i, (long long)total,
                     weft_status_name(st), weft_error());
        assert_int_equal(c.n_live, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_fails_in_turn)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
