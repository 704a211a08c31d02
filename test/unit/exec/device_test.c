/* device_test.c - device scopes: nodes run on the pool of their device, unknown devices are refused
 * or replaced, and results do not depend on any of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/device.h"
#include "exec/exec.h"
#include "weft/weft.h"

#define N 64
#define D 48

static float x[N][D];
static char log_text[4096];

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < N * D; i++)
        ((float *)x)[i] = (float)(i * 7919 % 1000) / 500 - 1;
    return 0;
}

static void note(void *arg, int level, const char *line)
{
    (void)arg;
    if (level >= WEFT_LOG_WARN)
        strcat(strcat(log_text, line), "\n");
}

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static weft_ctx *open_ctx(const char *devices, int threads, bool soft)
{
    weft_ctx *ctx;

    log_text[0] = 0;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads, .devices = devices, .seed = 3,
                              .soft_placement = soft, .log = note),
                    &ctx));
    return ctx;
}

/* Layer after layer on the devices in turn; NULL: none is named. */
static weft_status build(weft_ctx *ctx, int n, const char *const *device, weft_graph **graph,
                         weft_fn **fn)
{
    weft_val h, in, w, loss, updates[16];
    weft_optim o;
    weft_graph *g;
    int n_updates;

    ok(weft_graph_new(ctx, &g));
    in = h = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, D});
    for (int i = 0; i < 4; i++) {
        char name[8];

        if (n && device[i % n])
            weft_device_push(g, device[i % n]);
        snprintf(name, sizeof name, "w%d", i);
        w = weft_variable(g, name, 2, (int64_t[]){D, D}, NULL);
        h = weft_tanh(g, weft_matmul(g, h, w, NULL));
        h = weft_dropout(g, h, 0.1, NULL);
        h = weft_add(g, h, weft_exp(g, in)); /* exp(in) is computed once */
        h = weft_softmax(g, h, -1);
        if (n && device[i % n])
            weft_device_pop(g);
    }
    h = weft_named(g, h, "out");
    loss = weft_mean(g, weft_square(g, h), NULL);
    ok(weft_optim_init(&o, "adam", NULL));
    ok(weft_minimize(g, loss, &o, 0, NULL, 16, updates, &n_updates));
    *graph = g;
    return weft_fn_new(g,
                       WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &in, .n_fetches = 2,
                                 .fetches = (weft_val[]){loss, h}, .n_updates = n_updates,
                                 .updates = updates),
                       fn);
}

/* Three steps; the loss and the parameters after them. */
static void train(weft_ctx *ctx, int n, const char *const *device, float *out)
{
    weft_tensor feed = weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}), fetch[2] = {{0}};
    weft_graph *g;
    weft_fn *fn;
    int64_t count;
    const float *params;

    ok(build(ctx, n, device, &g, &fn));
    for (int step = 0; step < 3; step++) {
        fetch[0] = fetch[1] = (weft_tensor){0};
        ok(weft_fn_run(fn, &feed, fetch));
    }
    params = weft_fn_params(fn, &count);
    assert_int_equal(count, 4 * D * D);
    memcpy(out, params, (size_t)count * sizeof *out);
    memcpy(out + count, fetch[0].data, sizeof *out);
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void results_do_not_depend_on_placement(void **state)
{
    static const char *const turns[] = {"cpu:0", "/device:CPU:1", NULL};
    static float a[4 * D * D + 1], b[4 * D * D + 1];

    (void)state;
    for (int threads = 1; threads <= 5; threads += 2) {
        weft_ctx *one = open_ctx(NULL, threads, false);
        weft_ctx *two = open_ctx("cpu:0, cpu:1", threads, false);

        train(one, 0, NULL, a);
        train(two, 0, NULL, b);
        assert_memory_equal(a, b, sizeof a);
        train(two, 2, turns, b);
        assert_memory_equal(a, b, sizeof a);
        train(two, 3, turns, b);
        assert_memory_equal(a, b, sizeof a);
        train(one, 1, turns, b); /* cpu:0 is all there is */
        assert_memory_equal(a, b, sizeof a);
        weft_ctx_free(one);
        weft_ctx_free(two);
    }
}

static void instructions_have_the_pool_of_their_device(void **state)
{
    static const char *const turns[] = {"cpu:0", "cpu:1"};
    weft_ctx *ctx = open_ctx("cpu:0, cpu:1", 4, false);
    weft_tensor feed = weft_view(WEFT_F32, NULL, 2, (int64_t[]){N, D});
    struct wf_pool *pool[2];
    struct wf_plan *p;
    weft_graph *g;
    weft_fn *fn;
    char *text;
    int n[2] = {0}, n_default = 0;

    (void)state;
    ok(build(ctx, 2, turns, &g, &fn));
    ok(wf_fn_plan(fn, &feed, &p));
    for (int i = 0; i < 2; i++) {
        ok(wf_device_pool(ctx, i, &pool[i]));
        assert_int_equal(wf_pool_size(pool[i]), 2);
        assert_true(pool[i] != ctx->pool);
    }
    assert_true(pool[0] != pool[1]);
    for (int64_t i = 0; i < p->n_instr; i++) {
        const struct wf_instr *in = &p->instr[i];

        if (in->device == WF_DEVICE_DEFAULT) {
            n_default++;
            assert_ptr_equal(in->call.pool, ctx->pool);
        } else {
            n[in->device]++;
            assert_ptr_equal(in->call.pool, pool[in->device]);
        }
    }
    assert_true(n[0] >= 2 && n[1] >= 2 && n_default > 0);
    ok(weft_fn_explain(fn, &feed, NULL, &text));
    assert_non_null(strstr(text, "  on cpu:0\n"));
    assert_non_null(strstr(text, "  on cpu:1\n"));
    weft_text_free(ctx, text);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* The plan of one function over the graph's output, without updates. */
static weft_fn *forward(weft_ctx *ctx, int n, const char *const *device, weft_graph **g,
                        struct wf_plan **p)
{
    weft_tensor feed = weft_view(WEFT_F32, NULL, 2, (int64_t[]){N, D});
    weft_fn *all, *fn;
    weft_val in, out;

    ok(build(ctx, n, device, g, &all));
    weft_fn_free(all);
    ok(weft_find(*g, "x", &in));
    ok(weft_find(*g, "out", &out));
    ok(weft_fn_new(
        *g, WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &in, .n_fetches = 1, .fetches = &out),
        &fn));
    ok(wf_fn_plan(fn, &feed, p));
    return fn;
}

/* Passes make the same of the graph whatever its devices, and what they make is placed too. */
static void plans_do_not_depend_on_placement(void **state)
{
    static const char *const turns[] = {"cpu:0", "cpu:1"};
    weft_ctx *ctx = open_ctx("cpu:0, cpu:1", 2, false);
    struct wf_plan *plain, *placed;
    weft_graph *g[2];
    weft_fn *fn[2];
    int n_made = 0;

    (void)state;
    fn[0] = forward(ctx, 0, NULL, &g[0], &plain);
    fn[1] = forward(ctx, 2, turns, &g[1], &placed);
    assert_int_equal(plain->n_instr, placed->n_instr);
    assert_true(plain->fingerprint == placed->fingerprint);
    for (int64_t i = 0; i < placed->n_instr; i++) {
        const struct wf_instr *in = &placed->instr[i];

        n_made += in->call.op->flags & WF_PLANNER ? 1 : 0;
        assert_int_equal(plain->instr[i].device, WF_DEVICE_DEFAULT);
        assert_int_not_equal(in->device, WF_DEVICE_DEFAULT);
    }
    assert_true(n_made >= 4);
    for (int i = 0; i < 2; i++) {
        weft_fn_free(fn[i]);
        weft_graph_free(g[i]);
    }
    weft_ctx_free(ctx);
}

static void unknown_devices_are_refused_by_name(void **state)
{
    static const struct {
        const char *devices, *name, *text;
    } rows[] = {
        {NULL, "/gpu:0", "no device '/gpu:0' here; available: cpu:0"},
        {NULL, "cpu:1", "no device 'cpu:1' here; available: cpu:0"},
        {"cpu:0,cpu:1", "/device:GPU:0", "no device '/device:GPU:0' here; available: cpu:0, cpu:1"},
        {"cpu:0,cpu:1", "/cpu:2", "available: cpu:0, cpu:1"},
        {NULL, "/job:worker/task:0/cpu:0", "no device '/job:worker/task:0/cpu:0' here"},
        {NULL, "/job:ps/cpu:0", "no device '/job:ps/cpu:0' here"},
        {NULL, "/task:1/cpu:0", "no device"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weft_ctx *ctx = open_ctx(rows[i].devices, 1, false);
        weft_graph *g;
        weft_fn *fn = NULL;

        assert_int_equal(build(ctx, 1, &rows[i].name, &g, &fn), WEFT_ENOENT);
        if (!strstr(weft_error(), rows[i].text) || !strstr(weft_error(), "'w0' (variable): "))
            print_error("%s\n", weft_error());
        assert_non_null(strstr(weft_error(), rows[i].text));
        assert_non_null(strstr(weft_error(), "'w0' (variable): "));
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
}

static void names_of_this_process_are_known(void **state)
{
    static const char *const names[] = {
        "cpu:0",         "/job:ps/task:3/cpu:0", /* its variables are there */
        "/cpu:0",        "/device:CPU:0",
        "/device:cpu:0", "/job:localhost/replica:0/task:0/device:CPU:0",
        "/task:0"};
    weft_ctx *ctx = open_ctx(NULL, 1, false);
    int device;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ok(wf_device_find(ctx, names[i], &device));
        assert_int_equal(device, WF_DEVICE_DEFAULT);
    }
    weft_ctx_free(ctx);
}

static void soft_placement_falls_back_and_says_so_once(void **state)
{
    static const char *const turns[] = {"/gpu:0", "cpu:1", "/gpu:1"};
    static float a[4 * D * D + 1], b[4 * D * D + 1];
    weft_ctx *ctx = open_ctx("cpu:0,cpu:1", 2, true);

    (void)state;
    train(ctx, 0, NULL, a);
    assert_string_equal(log_text, "");
    train(ctx, 3, turns, b);
    train(ctx, 3, turns, b);
    assert_memory_equal(a, b, sizeof a);
    assert_string_equal(log_text,
                        "'w0' (variable): no device '/gpu:0' here; available: cpu:0, cpu:1: it "
                        "runs on the default device, and so does whatever else asks for a device "
                        "that does not exist\n");
    weft_ctx_free(ctx);
}

/* resources.soft_placement of a job. */
static void jobs_may_ask_for_soft_placement(void **state)
{
    static const char *const gpu[] = {"/gpu:0"};
    static const char text[] = "data: {train: {path: x.csv, label: y}}\n"
                               "model: [Dense: {units: 1}]\n"
                               "train: {loss: mse}\n";
    static const char *const sets[] = {"resources.soft_placement=true"};

    (void)state;
    for (int soft = 0; soft < 2; soft++) {
        weft_ctx *boot = open_ctx(NULL, 1, false), *ctx;
        weft_job *job;
        weft_graph *g;
        weft_fn *fn = NULL;

        ok(weft_job_parse(boot, "job.yaml", text, sizeof text - 1, soft, sets, &job));
        ok(weft_job_context(job, note, NULL, &ctx));
        assert_int_equal(build(ctx, 1, gpu, &g, &fn), soft ? WEFT_OK : WEFT_ENOENT);
        assert_true(soft == (strstr(log_text, "runs on the default device") != NULL));
        weft_fn_free(fn);
        weft_graph_free(g);
        weft_ctx_free(ctx);
        weft_job_free(job);
        weft_ctx_free(boot);
    }
}

static void devices_are_listed(void **state)
{
    weft_ctx *ctx = open_ctx("cpu:0,cpu:1,cpu:2", 6, false);
    weft_device d = {.size = sizeof d};

    (void)state;
    assert_int_equal(weft_ctx_n_devices(ctx), 3);
    ok(weft_ctx_device(ctx, 2, &d));
    assert_string_equal(d.name, "cpu:2");
    assert_string_equal(d.kind, "cpu");
    assert_true(d.cores >= 1);
    assert_int_equal(d.threads, 2);
    assert_int_equal(weft_ctx_device(ctx, 3, &d), WEFT_ERANGE);
    weft_ctx_free(ctx);
}

static int count(const char *text, const char *word)
{
    int n = 0;

    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

static void gradients_run_where_their_nodes_do(void **state)
{
    weft_ctx *ctx = open_ctx("cpu:0,cpu:1", 4, false);
    weft_val a, b, loss, grads[2];
    weft_graph *g;
    char *before, *after;

    (void)state;
    ok(weft_graph_new(ctx, &g));
    a = weft_variable(g, "a", 2, (int64_t[]){D, D}, NULL);
    b = weft_variable(g, "b", 2, (int64_t[]){D, D}, NULL);
    weft_device_push(g, "cpu:1");
    loss = weft_tanh(g, weft_matmul(g, a, b, NULL));
    weft_device_pop(g);
    loss = weft_sum(g, loss, NULL);
    ok(weft_graph_text(g, &before));
    weft_device_push(g, "cpu:0");
    ok(weft_grad(g, loss, 2, (weft_val[]){a, b}, grads));
    weft_device_pop(g);
    ok(weft_graph_text(g, &after));
    assert_int_equal(count(before, "@cpu:1"), 2);
    assert_int_equal(count(after, "@cpu:1"), 2 + 1 + 2); /* of tanh, and two of the product */
    assert_true(count(after, "@cpu:0") > 0);             /* of the sum, which was not placed */
    weft_text_free(ctx, before);
    weft_text_free(ctx, after);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_placement),
        cmocka_unit_test(instructions_have_the_pool_of_their_device),
        cmocka_unit_test(plans_do_not_depend_on_placement),
        cmocka_unit_test(unknown_devices_are_refused_by_name),
        cmocka_unit_test(names_of_this_process_are_known),
        cmocka_unit_test(soft_placement_falls_back_and_says_so_once),
        cmocka_unit_test(jobs_may_ask_for_soft_placement),
        cmocka_unit_test(devices_are_listed),
        cmocka_unit_test(gradients_run_where_their_nodes_do),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
