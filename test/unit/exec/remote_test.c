/* remote_test.c - lookups in tables that are not in memory give the bits of those that are: plain
 * lookups and bags, ids of every type, shared tables, fast and reference kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "weft/weft.h"

enum { ROWS = 100, WIDTH = 5, N = 24, BAGS = 7 };

static float table_row(int64_t id, int k)
{
    return (float)(id * 10 + k) / 8;
}

struct owner {
    int64_t n_asked, n_calls;
    bool fails;
};

static bool holds(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "table") == 0;
}

static weft_status need_rows(void *arg, const struct wf_segment *seg, int64_t n, const int64_t *ids,
                             float *rows)
{
    struct owner *o = arg;

    assert_string_equal(seg->name, "table");
    assert_int_equal(seg->type.dim[1], WIDTH);
    o->n_calls++;
    o->n_asked += n;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < WIDTH; k++)
            rows[i * WIDTH + k] = table_row(ids[i], k);
    return o->fails ? wf_err(WEFT_EPEER, "the owner is gone") : WEFT_OK;
}

struct net {
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
};

static void open_net(struct net *n, weft_dtype dtype, bool bag, bool ref, const struct wf_remote *r)
{
    weft_val table, ids, offsets, fetch[2], feeds[2];

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &n->ctx), 0);
    assert_int_equal(weft_graph_new(n->ctx, &n->g), 0);
    table = weft_variable(n->g, "table", 2, (int64_t[]){ROWS, WIDTH}, NULL);
    ids = weft_placeholder(n->g, "ids", dtype, 1, (int64_t[]){N});
    offsets = weft_placeholder(n->g, "offsets", WEFT_I32, 1, (int64_t[]){BAGS + 1});
    fetch[0] = bag ? weft_embedding_bag(n->g, table, ids, offsets, NULL)
                   : weft_embedding(n->g, table, ids);
    fetch[1] = weft_relu(
        n->g, weft_embedding(n->g, table, weft_reshape(n->g, ids, 2, (int64_t[]){4, N / 4})));
    feeds[0] = ids;
    feeds[1] = offsets;
    if (wf_fn_new(n->g,
                  WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = feeds, .n_fetches = 2,
                            .fetches = fetch, .reference_kernels = ref),
                  r, &n->fn))
        fail_msg("%s", weft_error());
    if (!r) {
        float rows[ROWS][WIDTH];
        weft_tensor value = weft_view(WEFT_F32, rows, 2, (int64_t[]){ROWS, WIDTH});

        for (int i = 0; i < ROWS; i++)
            for (int k = 0; k < WIDTH; k++)
                rows[i][k] = table_row(i, k);
        assert_int_equal(weft_fn_set(n->fn, "table", &value), 0);
    }
}

static void close_net(struct net *n)
{
    weft_fn_free(n->fn);
    weft_graph_free(n->g);
    weft_ctx_free(n->ctx);
}

static void fill_ids(weft_dtype dtype, char *ids, int salt)
{
    for (int i = 0; i < N; i++)
        wf_set_int(ids, dtype, i, (i * i + salt * 31) % (salt % 2 ? 97 : 9));
}

static weft_status run(struct net *n, weft_dtype dtype, char *ids, float *a, float *b)
{
    int32_t offsets[BAGS + 1] = {0, 3, 3, 9, 10, 20, 20, N};
    weft_tensor feeds[] = {weft_view(dtype, ids, 1, (int64_t[]){N}),
                           weft_view(WEFT_I32, offsets, 1, (int64_t[]){BAGS + 1})};
    weft_tensor out[2] = {{.data = NULL}, {.data = NULL}};
    weft_status st = weft_fn_run(n->fn, feeds, out);

    if (st)
        return st;
    memcpy(a, out[0].data, (size_t)weft_tensor_bytes(&out[0]));
    memcpy(b, out[1].data, (size_t)weft_tensor_bytes(&out[1]));
    return WEFT_OK;
}

static void one(weft_dtype dtype, bool bag, bool ref)
{
    struct owner owner = {0};
    struct wf_remote remote = {&owner, holds, need_rows};
    struct net here, there;
    char ids[N * 8];

    open_net(&here, dtype, bag, ref, NULL);
    open_net(&there, dtype, bag, ref, &remote);
    assert_null(wf_store_data(there.fn->store, wf_store_find(there.fn->store, "table")));
    for (int salt = 0; salt < 4; salt++) {
        float a[2][N * WIDTH] = {{0}}, b[2][N * WIDTH] = {{0}};

        fill_ids(dtype, ids, salt);
        assert_int_equal(run(&here, dtype, ids, a[0], a[1]), 0);
        owner.n_asked = owner.n_calls = 0;
        assert_int_equal(run(&there, dtype, ids, b[0], b[1]), 0);
        assert_memory_equal(a, b, sizeof a);
        assert_true(owner.n_calls >= 1 && owner.n_calls <= 2);
        assert_true(owner.n_asked <= owner.n_calls * (salt % 2 ? N : 9)); /* each row once */
    }
    wf_set_int(ids, dtype, 5, ROWS);
    {
        float a[N * WIDTH], b[N * WIDTH];

        owner.n_calls = 0;
        assert_int_equal(run(&there, dtype, ids, a, b), WEFT_EDATA);
        assert_int_equal(owner.n_calls, 0);
        fill_ids(dtype, ids, 1);
        owner.fails = true;
        assert_int_equal(run(&there, dtype, ids, a, b), WEFT_EPEER);
        assert_non_null(strstr(weft_error(), "rows of 'table'"));
        owner.fails = false;
        assert_int_equal(run(&there, dtype, ids, a, b), 0);
    }
    close_net(&here);
    close_net(&there);
}

static void lookups_give_the_same_bits(void **state)
{
    static const weft_dtype types[] = {WEFT_I32, WEFT_I64, WEFT_U8, WEFT_I8};

    (void)state;
    for (int i = 0; i < WF_COUNT(types); i++)
        for (int k = 0; k < 4; k++)
            one(types[i], k % 2, k / 2);
}

/* A program that reads the table otherwise needs it in memory. */
static void a_table_that_is_read_otherwise_is_in_memory(void **state)
{
    struct owner owner = {0};
    struct wf_remote remote = {&owner, holds, need_rows};
    weft_val table, ids, fetch[2];
    weft_graph *g;
    weft_ctx *ctx;
    weft_fn *fn, *second = NULL;
    int32_t id[3] = {1, 2, 1};
    weft_tensor feed = weft_view(WEFT_I32, id, 1, (int64_t[]){3}), out[2] = {{.data = NULL}};

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_graph_new(ctx, &g), 0);
    table = weft_variable(g, "table", 2, (int64_t[]){ROWS, WIDTH}, NULL);
    ids = weft_placeholder(g, "ids", WEFT_I32, 1, (int64_t[]){3});
    fetch[0] = weft_embedding(g, table, ids);
    assert_int_equal(wf_fn_new(g,
                               WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &ids, .n_fetches = 1,
                                         .fetches = fetch),
                               &remote, &fn),
                     0);
    fetch[1] = weft_sum(g, table, NULL); /* a function of the same store, made later */
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &ids,
                                           .n_fetches = 2, .fetches = fetch, .share = fn),
                                 &second),
                     0);
    assert_int_equal(weft_fn_run(second, &feed, out), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "can only be looked up"));
    weft_fn_free(second);
    weft_fn_free(fn);
    assert_int_equal(wf_fn_new(g,
                               WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &ids, .n_fetches = 2,
                                         .fetches = fetch),
                               &remote, &fn),
                     0); /* here it is known in time */
    assert_int_equal(weft_fn_run(fn, &feed, out), 0);
    assert_int_equal(owner.n_calls, 0);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups_give_the_same_bits),
        cmocka_unit_test(a_table_that_is_read_otherwise_is_in_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
