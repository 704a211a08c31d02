/* device_away_test.c - functions on a device with memory of its own (test/support/fake.c): the
 * reference kernels' bits, copies where they are needed, runs as recordings, failed steps; and a
 * copy, a wait or a kernel that is left out is noticed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "exec/exec.h"
#include "support/fake.h"
#include "weft/sys/op.h"
#include "weft/weft.h"

#define N 6
#define D 5
#define ROWS 7
#define STEPS 5

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

/* ---- a model: a table, a dense layer, a moving mean, dropout --------------------------------- */

struct net {
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_tensor feed[2];
    float x[N * D];
    int64_t ids[N];
    const char *scope; /* of the activation */
    weft_user_op *user;
};

static weft_status open_fake(struct fake *f, const char *devices, weft_ctx **out)
{
    const weft_device_driver *driver = &f->driver;

    fake_init(f);
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 3, .devices = devices,
                                  .n_drivers = 1, .drivers = &driver),
                        out);
}

static void fill(struct net *n, int step)
{
    for (int i = 0; i < N * D; i++)
        n->x[i] = (float)((i + 31 * step) * 7919 % 1000) / 500 - 1;
    for (int i = 0; i < N; i++)
        n->ids[i] = (i * 3 + step) % ROWS;
    n->feed[0] = weft_view(WEFT_F32, n->x, 2, (int64_t[]){N, D});
    n->feed[1] = weft_view(WEFT_I64, n->ids, 1, (int64_t[]){N});
}

static weft_status build(struct net *n, bool ref, bool trap)
{
    weft_val feeds[2], w, b, table, mean, h, loss, updates[16];
    weft_optim o;
    weft_graph *g;
    int n_updates = 0;
    weft_status st = weft_graph_new(n->ctx, &n->g);

    if (st)
        return st;
    g = n->g;
    feeds[0] = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, D});
    feeds[1] = weft_placeholder(g, "ids", WEFT_I64, 1, (int64_t[]){WEFT_ANY});
    table = weft_variable(g, "table", 2, (int64_t[]){ROWS, D}, NULL);
    w = weft_variable(g, "w", 2, (int64_t[]){D, D}, NULL);
    b = weft_variable(g, "b", 1, (int64_t[]){D},
                      WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_CONSTANT, .a = 0.25));
    mean = weft_variable(
        g, "mean", 1, (int64_t[]){D},
        WEFT_OPTS(weft_variable_opts, .not_trainable = true, .init = WEFT_INIT_CONSTANT, .a = 0.5));
    h = weft_add(g, feeds[0], weft_embedding(g, table, feeds[1]));
    h = weft_add(g, weft_matmul(g, h, w, NULL), b);
    if (n->scope)
        weft_device_push(g, n->scope);
    h = n->user ? weft_op(g, n->user->name, 1, &h, NULL) : weft_tanh(g, h);
    if (n->scope)
        weft_device_pop(g);
    h = weft_dropout(g, h, 0.2, NULL);
    h = weft_mul(g, h, weft_scalar(g, 1.5));
    loss = weft_mean(g, weft_square(g, h), NULL);
    st = weft_optim_init(&o, "adam", NULL);
    if (!st)
        st = weft_minimize(g, loss, &o, 0, NULL, 15, updates, &n_updates);
    updates[n_updates++] = weft_assign(
        g, mean,
        weft_add(g, weft_mul(g, mean, weft_scalar(g, 0.9)),
                 weft_mean(g, h, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {0}))));
    if (!st)
        st = weft_graph_status(g);
    if (!st)
        st = weft_fn_new(g,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = feeds, .n_fetches = 3,
                                   .fetches = (weft_val[]){loss, h, mean}, .n_updates = n_updates,
                                   .updates = updates, .reference_kernels = ref,
                                   .trap_numerics = trap),
                         &n->fn);
    return st;
}

static void close_net(struct net *n)
{
    weft_fn_free(n->fn);
    weft_graph_free(n->g);
    weft_ctx_free(n->ctx);
}

struct result {
    float loss[STEPS], h[STEPS][N * D], mean[STEPS][D];
    float w[D * D], b[D], table[ROWS * D], slot[2][D * D], table_slot[2][ROWS * D];
};

static weft_status get(weft_fn *fn, const char *name, float *to, int rank, const int64_t *dim)
{
    weft_tensor t = weft_view(WEFT_F32, to, rank, dim);

    return weft_fn_get(fn, name, &t);
}

static weft_status get_slot(weft_fn *fn, const char *name, int k, float *to, size_t bytes)
{
    int64_t i = 0;
    weft_segment seg = {0};
    weft_tensor t;
    weft_status st;

    while (!(st = weft_fn_segment(fn, i, &seg)) && strcmp(seg.name, name) != 0)
        i++;
    if (!st)
        st = weft_fn_slot(fn, i, k, &t);
    if (!st)
        memcpy(to, t.data, bytes);
    return st;
}

static weft_status train(struct net *n, struct result *r)
{
    weft_status st = WEFT_OK;

    memset(r, 0, sizeof *r);
    for (int step = 0; step < STEPS && !st; step++) {
        weft_tensor fetch[3] = {{0}};

        fill(n, step);
        st = weft_fn_run(n->fn, n->feed, fetch);
        if (st)
            break;
        memcpy(&r->loss[step], fetch[0].data, sizeof r->loss[step]);
        memcpy(r->h[step], fetch[1].data, sizeof r->h[step]);
        memcpy(r->mean[step], fetch[2].data, sizeof r->mean[step]);
    }
    if (!st)
        st = get(n->fn, "w", r->w, 2, (int64_t[]){D, D});
    if (!st)
        st = get(n->fn, "b", r->b, 1, (int64_t[]){D});
    if (!st)
        st = get(n->fn, "table", r->table, 2, (int64_t[]){ROWS, D});
    for (int k = 0; k < 2 && !st; k++)
        st = get_slot(n->fn, "w", k, r->slot[k], sizeof r->slot[k]);
    for (int k = 0; k < 2 && !st; k++)
        st = get_slot(n->fn, "table", k, r->table_slot[k], sizeof r->table_slot[k]);
    return st;
}

/* The plain definition, in the host's memory. */
static void expect(struct result *r)
{
    struct net n = {0};

    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 3), &n.ctx));
    ok(build(&n, true, false));
    ok(train(&n, r));
    close_net(&n);
}

static weft_status train_on(struct fake *f, const char *devices, const char *scope,
                            struct result *r)
{
    struct net n = {.scope = scope};
    weft_status st = open_fake(f, devices, &n.ctx);

    if (!st)
        st = build(&n, false, false);
    if (!st)
        st = train(&n, r);
    close_net(&n);
    return st;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_function_gives_the_bits_of_the_reference(void **state)
{
    struct result want, got;

    (void)state;
    expect(&want);
    for (uint64_t seed = 0; seed < 4; seed++)
        for (int capture = 0; capture < 2; capture++) {
            struct fake f = {.delays = seed, .no_capture = !capture};

            ok(train_on(&f, "fake:0", NULL, &got));
            assert_memory_equal(&want, &got, sizeof want);
            assert_true(f.n_kernels > 10);
            assert_int_equal(f.n_replays, capture ? STEPS - 1 : 0);
            assert_int_equal(f.allocated, 0);
            assert_int_equal(f.n_streams, 0);
        }
}

static void ops_without_a_kernel_run_on_the_host(void **state)
{
    static const char *const missing[] = {
        " tanh ",       " matmul ",
        " embedding ",  " apply ",
        " apply_rows ", " assign ",
        " dropout ",    " tanh matmul add mul apply apply_rows assign embedding "};
    struct result want, got;

    (void)state;
    expect(&want);
    for (size_t i = 0; i < WF_COUNT(missing); i++) {
        struct fake f = {.no_kernel = missing[i]};
        weft_status st = train_on(&f, "fake:0", NULL, &got);

        ok(st);
        /* the host has the fast kernels, whose last bits differ */
        for (int k = 0; k < STEPS; k++)
            assert_float_equal(want.loss[k], got.loss[k], 1e-5);
        for (int k = 0; k < D * D; k++)
            assert_float_equal(want.w[k], got.w[k], 1e-4);
        assert_int_equal(f.n_replays, 0);
        st = train_on(&f, "fake:0, strict", NULL, &got);
        assert_int_equal(st, WEFT_ENOSUP);
        assert_non_null(strstr(weft_error(), "fake:0 has no kernel"));
    }
}

static void scopes_place_nodes_on_the_host(void **state)
{
    struct result want, got;
    struct fake f = {0};

    (void)state;
    expect(&want);
    ok(train_on(&f, "fake:0, strict", "/cpu:0", &got));
    for (int k = 0; k < STEPS; k++)
        assert_float_equal(want.loss[k], got.loss[k], 1e-5);
    assert_int_equal(f.n_replays, 0);
    ok(train_on(&f, "fake:0, strict", "/device:FAKE:0", &got));
    assert_memory_equal(&want, &got, sizeof want);
    assert_int_equal(train_on(&f, "fake:0", "fake:1", &got), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "available: cpu:0, fake:0"));
}

static void explain_shows_copies_and_where_ops_run(void **state)
{
    struct fake f = {.no_kernel = " tanh "};
    struct net n = {0};
    char *text;

    (void)state;
    ok(open_fake(&f, "fake:0", &n.ctx));
    ok(build(&n, false, false));
    fill(&n, 0);
    ok(weft_fn_explain(n.fn, n.feed, NULL, &text));
    assert_non_null(strstr(text, "on fake:0"));
    assert_non_null(strstr(text, "transfer"));
    assert_non_null(strstr(text, "to the host"));
    assert_non_null(strstr(text, "on cpu:0"));
    weft_text_free(n.ctx, text);
    ok(weft_fn_explain(n.fn, n.feed, WEFT_OPTS(weft_explain_opts, .time_runs = 2), &text));
    weft_text_free(n.ctx, text);
    ok(weft_fn_trace(n.fn, n.feed, &text));
    weft_text_free(n.ctx, text);
    assert_int_equal(weft_fn_step(n.fn), 0);
    close_net(&n);
}

static void variables_are_read_and_written(void **state)
{
    struct result want, got;
    struct fake f = {0};
    struct net n = {0}, host = {0};
    float w[D * D];
    weft_tensor t;
    int64_t count;
    float *params;

    (void)state;
    for (int i = 0; i < D * D; i++)
        w[i] = (float)(i % 7) / 7 - 0.4f;
    ok(open_fake(&f, "fake:0", &n.ctx));
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &host.ctx));
    for (int k = 0; k < 2; k++) {
        struct net *x = k ? &n : &host;
        struct result *r = k ? &got : &want;

        ok(build(x, !k, false));
        t = weft_view(WEFT_F32, w, 2, (int64_t[]){D, D});
        ok(weft_fn_set(x->fn, "w", &t));
        ok(train(x, r));
        ok(weft_fn_view(x->fn, "b", &t));
        ((float *)t.data)[1] = 0.25f; /* the next run sees it */
        params = weft_fn_params(x->fn, &count);
        params[0] = 0.5f;
        ok(train(x, r));
        ok(weft_fn_reset(x->fn));
        weft_fn_set_shard(x->fn, 2);
        weft_fn_set_step(x->fn, 40);
        ok(train(x, r));
    }
    assert_memory_equal(&want, &got, sizeof want);
    close_net(&n);
    close_net(&host);
}

static void a_failed_step_changes_nothing(void **state)
{
    static const char *const missing[] = {"", " embedding ", " apply ", " assign apply_rows "};
    struct result before, after;

    (void)state;
    for (size_t i = 0; i < WF_COUNT(missing); i++)
        for (int how = 0; how < 4; how++) {
            struct fake f = {.no_kernel = missing[i], .no_capture = how % 2, .words = how / 2};
            struct net n = {0};
            weft_tensor fetch[3] = {{0}};

            ok(open_fake(&f, "fake:0", &n.ctx));
            ok(build(&n, false, false));
            ok(train(&n, &before));
            fill(&n, 1);
            n.ids[2] = ROWS;
            assert_int_equal(weft_fn_run(n.fn, n.feed, fetch), WEFT_EDATA);
            assert_non_null(strstr(weft_error(), "embedding"));
            assert_non_null(strstr(weft_error(), "7"));
            assert_int_equal(weft_fn_step(n.fn), STEPS);
            memcpy(&after, &before, sizeof after);
            ok(get(n.fn, "w", after.w, 2, (int64_t[]){D, D}));
            ok(get(n.fn, "b", after.b, 1, (int64_t[]){D}));
            ok(get(n.fn, "table", after.table, 2, (int64_t[]){ROWS, D}));
            ok(get(n.fn, "mean", after.mean[STEPS - 1], 1, (int64_t[]){D}));
            assert_memory_equal(&before, &after, sizeof before);
            n.ids[2] = 0;
            ok(weft_fn_run(n.fn, n.feed, fetch)); /* the device is as good as before */
            close_net(&n);
        }
}

static void numerics_are_trapped(void **state)
{
    struct fake f = {0};
    struct net n = {0};
    struct result before;
    float w[D * D];
    weft_tensor fetch[3] = {{0}};

    (void)state;
    ok(open_fake(&f, "fake:0", &n.ctx));
    ok(build(&n, false, true));
    ok(train(&n, &before));
    fill(&n, 0);
    n.x[3] = INFINITY;
    assert_int_equal(weft_fn_run(n.fn, n.feed, fetch), WEFT_ENUMERIC);
    assert_non_null(strstr(weft_error(), "produced inf"));
    ok(get(n.fn, "w", w, 2, (int64_t[]){D, D}));
    assert_memory_equal(w, before.w, sizeof w);
    close_net(&n);
}

static weft_status infer_half(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    out[0] = in[0];
    return WEFT_OK;
}

static weft_status run_half(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    for (int64_t i = 0; i < weft_tensor_count(&in[0]); i++)
        ((float *)out[0].data)[i] = ((const float *)in[0].data)[i] / 2;
    return WEFT_OK;
}

static weft_status grad_half(weft_graph *g, const weft_val *in, const weft_val *out,
                             const weft_val *dout, weft_val *din)
{
    (void)in;
    (void)out;
    din[0] = weft_mul(g, dout[0], weft_scalar(g, 0.5));
    return WEFT_OK;
}

static void user_ops_run_on_the_host(void **state)
{
    weft_user_op half = {.size = sizeof half,
                         .name = "half",
                         .n_in = 1,
                         .n_out = 1,
                         .infer = infer_half,
                         .run = run_half,
                         .grad = grad_half};
    struct result want, got;
    struct fake f = {0};
    struct net n = {.user = &half}, host = {.user = &half};

    (void)state;
    ok(open_fake(&f, "fake:0", &n.ctx));
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &host.ctx));
    ok(weft_op_register(n.ctx, &half));
    ok(weft_op_register(host.ctx, &half));
    ok(build(&n, false, false));
    ok(build(&host, true, false));
    ok(train(&n, &got));
    ok(train(&host, &want));
    assert_memory_equal(&want, &got, sizeof want);
    close_net(&n);
    close_net(&host);
}

/* A function in the host's memory shares the variables of one on the device. */
static void the_host_shares_variables_with_the_device(void **state)
{
    struct fake f = {0};
    struct net n = {0};
    struct result r;
    weft_val w, twice;
    weft_fn *host;
    weft_tensor fetch[2] = {{0}};

    (void)state;
    ok(open_fake(&f, "fake:0", &n.ctx));
    ok(build(&n, false, false));
    ok(weft_find(n.g, "w", &w));
    twice = weft_assign(n.g, w, weft_add(n.g, w, w));
    ok(weft_fn_new(n.g,
                   WEFT_OPTS(weft_fn_opts, .n_fetches = 1, .fetches = &w, .n_updates = 1,
                             .updates = &twice, .share = n.fn, .device = "cpu:0"),
                   &host));
    assert_null(host->away);
    ok(train(&n, &r));
    ok(weft_fn_run(host, NULL, fetch));
    for (int i = 0; i < D * D; i++)
        assert_true(((const float *)fetch[0].data)[i] == 2 * r.w[i]);
    weft_fn_free(host);
    ok(get(n.fn, "w", r.slot[0], 2, (int64_t[]){D, D}));
    for (int i = 0; i < D * D; i++)
        assert_true(r.slot[0][i] == 2 * r.w[i]);
    ok(train(&n, &r)); /* continues with them */
    close_net(&n);
}

/* A function on another device reads a copy of the variables there, as new as they are. */
static void another_device_reads_the_variables(void **state)
{
    for (int peers = 0; peers < 2; peers++) {
        struct fake f = {.n_devices = 2, .delays = 3, .no_peers = !peers};
        struct net n = {0};
        struct result r;
        weft_val w, table, twice, mean, ids;
        weft_fn *other, *bad;
        weft_tensor fetch[2] = {{0}}, feed = {0}, t;
        float half[D * D];

        (void)state;
        ok(open_fake(&f, "fake:0, fake:1", &n.ctx));
        ok(build(&n, false, false));
        ok(weft_find(n.g, "w", &w));
        ok(weft_find(n.g, "table", &table));
        ok(weft_find(n.g, "mean", &mean));
        ids = weft_placeholder(n.g, "more_ids", WEFT_I64, 1, (int64_t[]){WEFT_ANY});
        ok(weft_fn_new(
            n.g,
            WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &ids, .n_fetches = 2,
                      .fetches = (weft_val[]){weft_add(n.g, w, w), weft_embedding(n.g, table, ids)},
                      .share = n.fn, .device = "fake:1"),
            &other));
        feed = weft_view(WEFT_I64, n.ids, 1, (int64_t[]){N});
        for (int round = 0; round < 3; round++) {
            ok(train(&n, &r));
            if (round == 2) { /* what the host writes counts, too */
                for (int i = 0; i < D * D; i++)
                    r.w[i] = half[i] = (float)i / 2;
                t = weft_view(WEFT_F32, half, 2, (int64_t[]){D, D});
                ok(weft_fn_set(n.fn, "w", &t));
            }
            memset(fetch, 0, sizeof fetch);
            ok(weft_fn_run(other, &feed, fetch));
            for (int i = 0; i < D * D; i++)
                assert_true(((const float *)fetch[0].data)[i] == 2 * r.w[i]);
            for (int i = 0; i < N; i++)
                assert_memory_equal((const float *)fetch[1].data + i * D, r.table + n.ids[i] * D,
                                    D * sizeof(float));
        }
        twice = weft_assign(n.g, w, weft_add(n.g, w, w));
        assert_int_equal(
            weft_fn_new(n.g,
                        WEFT_OPTS(weft_fn_opts, .n_fetches = 1, .fetches = &w, .n_updates = 1,
                                  .updates = &twice, .share = n.fn, .device = "fake:1"),
                        &bad),
            WEFT_ENOSUP);
        assert_non_null(strstr(weft_error(), "the parameters it updates are on fake:0"));
        twice = weft_assign(n.g, mean, weft_add(n.g, mean, mean));
        ok(weft_fn_new(n.g,
                       WEFT_OPTS(weft_fn_opts, .n_updates = 1, .updates = &twice, .share = n.fn,
                                 .device = "fake:1"),
                       &bad));
        assert_int_equal(weft_fn_run(bad, NULL, NULL), WEFT_ENOSUP);
        assert_non_null(strstr(weft_error(), "changes state, which is on fake:0"));
        weft_fn_free(bad);
        weft_fn_free(other);
        close_net(&n);
        assert_int_equal(f.allocated, 0);
        assert_true(!f.n_peers == !peers);
    }
}

static void devices_are_listed(void **state)
{
    struct fake f = {.n_devices = 2, .memory = 1 << 20};
    weft_device d = {.size = sizeof d};
    weft_ctx *ctx;
    const char *kind = "";
    int n = 0;

    (void)state;
    ok(open_fake(&f, "cpu:0, cpu:1, fake:1", &ctx));
    assert_int_equal(weft_ctx_n_devices(ctx), 3);
    ok(weft_ctx_device(ctx, 2, &d));
    assert_string_equal(d.name, "fake:1");
    assert_string_equal(d.kind, "fake");
    assert_string_equal(d.model, "reference kernels");
    assert_int_equal(d.memory_bytes, 1 << 20);
    ok(weft_ctx_driver(ctx, 0, &kind, &n));
    assert_string_equal(kind, "fake");
    assert_int_equal(n, 2);
    weft_ctx_free(ctx);
    assert_int_equal(open_fake(&f, "fake:2", &ctx), WEFT_ENOENT);
    assert_string_equal(weft_error(), "device 'fake:2': there are 2");
    assert_int_equal(open_fake(&f, "fake:0, fake", &ctx), WEFT_EINVAL);
    assert_int_equal(open_fake(&f, "fakes:0", &ctx), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "available: cpu, fake"));
}

static void the_memory_of_a_device_is_limited(void **state)
{
    struct fake f = {0};
    struct net n = {0};
    const weft_device_driver *driver = &f.driver;
    weft_device d = {.size = sizeof d};
    weft_tensor fetch[3] = {{0}};

    (void)state;
    fake_init(&f);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .devices = "fake:0", .n_drivers = 1,
                              .drivers = &driver, .device_memory = 2048),
                    &n.ctx));
    ok(build(&n, false, false));
    fill(&n, 0);
    assert_int_equal(weft_fn_run(n.fn, n.feed, fetch), WEFT_ELIMIT);
    assert_non_null(strstr(weft_error(), "exceed the memory limit of fake:0"));
    ok(weft_ctx_device(n.ctx, 1, &d));
    assert_true(d.memory_used > 0 && d.memory_used <= 2048);
    close_net(&n);
    assert_int_equal(f.allocated, 0);
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* How many copies, waits and kernels the training takes. */
static void count(struct fake *f)
{
    struct result r;

    *f = (struct fake){.no_capture = true};
    ok(train_on(f, "fake:0", NULL, &r));
}

static void a_copy_or_kernel_that_is_left_out_is_noticed(void **state)
{
    struct result want, got;
    struct fake all;

    (void)state;
    expect(&want);
    count(&all);
    assert_true(all.n_copies > 20 && all.n_kernels > 50);
    for (int n = 1; n <= all.n_copies; n++) {
        struct fake f = {.no_capture = true, .drop_copy = n};

        if (!train_on(&f, "fake:0", NULL, &got) && memcmp(&want, &got, sizeof want) == 0 &&
            f.dropped != sizeof(uint32_t) * WF_TROUBLE_WORDS) /* nothing is wrong: not missed */
            fail_msg("nobody noticed that copy %d of %d was left out", n, all.n_copies);
    }
    /* of the first step: in later ones a value may still be there */
    for (int n = 1; n <= all.n_kernels / STEPS; n++) {
        struct fake f = {.no_capture = true, .drop_kernel = n};

        if (!train_on(&f, "fake:0", NULL, &got) && memcmp(&want, &got, sizeof want) == 0)
            fail_msg("nobody noticed that %s was left out", f.dropped_op);
    }
}

static void a_wait_that_is_left_out_is_noticed(void **state)
{
    static const char *const missing[] = {NULL, " tanh assign "};
    struct result want, got;

    (void)state;
    for (size_t i = 0; i < WF_COUNT(missing); i++) {
        struct fake all = {.no_capture = true, .no_kernel = missing[i]};

        ok(train_on(&all, "fake:0", NULL, &want));
        /* the first is for constants: the next one waits for the same stream */
        for (int n = 2; n <= all.n_waits; n++) {
            struct fake f = {.no_capture = true, .no_kernel = missing[i], .drop_wait = n};

            if (!train_on(&f, "fake:0", NULL, &got) && memcmp(&want, &got, sizeof want) == 0)
                fail_msg("nobody noticed that wait %d of %d was left out", n, all.n_waits);
        }
    }
}

/* The words of trouble are read, or a failed step looks like a good one. */
static void trouble_that_is_not_read_is_noticed(void **state)
{
    weft_tensor fetch[3] = {{0}};
    int n_copies = 0;

    (void)state;
    for (int drop = 0; drop <= n_copies; drop++) {
        struct fake f = {.no_capture = true, .words = true, .drop_copy = drop};
        struct net n = {0};
        weft_status st;

        ok(open_fake(&f, "fake:0", &n.ctx));
        ok(build(&n, false, false));
        fill(&n, 0);
        n.ids[4] = -2;
        st = weft_fn_run(n.fn, n.feed, fetch);
        if (drop == 0) {
            n_copies = f.n_copies;
            assert_int_equal(st, WEFT_EDATA);
            assert_string_equal(weft_error(), "'embedding' (embedding): id -2 at position 4 is not "
                                              "in [0, 7)");
        } else if (f.dropped == sizeof(uint32_t) * WF_TROUBLE_WORDS) {
            assert_int_equal(st, WEFT_OK);
            n_copies = -1; /* it is among them */
        }
        close_net(&n);
    }
    assert_int_equal(n_copies, -1);
}

/* Every call to the device fails in turn: a clear error, and nothing leaks (closing checks). */
static void failing_calls_are_reported(void **state)
{
    struct fake all;
    struct result r;
    int n_failed = 0;

    (void)state;
    count(&all);
    for (int n = 1; n <= all.n_calls; n++) {
        struct fake f = {.no_capture = n % 2, .fail_call = n};
        weft_status st = train_on(&f, "fake:0", NULL, &r);

        n_failed += st != WEFT_OK;
        if (st && !strstr(weft_error(), "the fake device fails call"))
            fail_msg("call %d: %s", n, weft_error());
        assert_int_equal(f.allocated, 0);
        assert_int_equal(f.n_streams, 0);
    }
    assert_true(n_failed > all.n_calls / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_gives_the_bits_of_the_reference),
        cmocka_unit_test(ops_without_a_kernel_run_on_the_host),
        cmocka_unit_test(scopes_place_nodes_on_the_host),
        cmocka_unit_test(explain_shows_copies_and_where_ops_run),
        cmocka_unit_test(variables_are_read_and_written),
        cmocka_unit_test(a_failed_step_changes_nothing),
        cmocka_unit_test(numerics_are_trapped),
        cmocka_unit_test(user_ops_run_on_the_host),
        cmocka_unit_test(the_host_shares_variables_with_the_device),
        cmocka_unit_test(another_device_reads_the_variables),
        cmocka_unit_test(devices_are_listed),
        cmocka_unit_test(the_memory_of_a_device_is_limited),
        cmocka_unit_test(a_copy_or_kernel_that_is_left_out_is_noticed),
        cmocka_unit_test(a_wait_that_is_left_out_is_noticed),
        cmocka_unit_test(trouble_that_is_not_read_is_noticed),
        cmocka_unit_test(failing_calls_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
