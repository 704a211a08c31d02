/* fn_test.c - functions: planning, running, sharing, and what they promise about bits and
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

#include "../../support/counting.h"
#include "exec/exec.h"
#include "support/gradients.h"

enum { IN = 20, HID = 33, OUT = 7 };

struct net {
    weft_ctx *ctx;
    weft_graph *g;
    weft_val x, t, loss, updates[8];
    int n_updates;
};

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static weft_val dense(weft_graph *g, const char *name, weft_val x, int64_t in, int64_t out)
{
    weft_val w, b;

    weft_scope_push(g, name);
    w = weft_variable(g, "w", 2, (int64_t[]){in, out}, NULL);
    b = weft_variable(g, "b", 1, &out, NULL);
    weft_scope_pop(g);
    return weft_add(g, weft_matmul(g, x, w, NULL), b);
}

/* Squared error of a two-layer network, minimised by Adam. */
static struct net make(const weft_ctx_opts *o)
{
    struct net n = {0};
    weft_optim opt;
    weft_val d;

    ok(weft_ctx_new(o, &n.ctx));
    ok(weft_graph_new(n.ctx, &n.g));
    n.x = weft_placeholder(n.g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, IN});
    n.t = weft_placeholder(n.g, "t", WEFT_F32, 2, (int64_t[]){WEFT_ANY, OUT});
    d = weft_sub(n.g, dense(n.g, "b", weft_relu(n.g, dense(n.g, "a", n.x, IN, HID)), HID, OUT),
                 n.t);
    n.loss = weft_op(n.g, "sum", 1, (weft_val[]){weft_mul(n.g, d, d)}, NULL);
    ok(weft_optim_init(&opt, "adam", "learning_rate=0.01"));
    ok(weft_minimize(n.g, n.loss, &opt, 0, NULL, 8, n.updates, &n.n_updates));
    return n;
}

static weft_fn *train_fn(struct net *n, unsigned passes_off, bool ref)
{
    weft_fn *fn = NULL;

    ok(weft_fn_new(n->g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){n->x, n->t},
                             .n_fetches = 1, .fetches = &n->loss, .n_updates = n->n_updates,
                             .updates = n->updates, .passes_off = passes_off,
                             .reference_kernels = ref),
                   &fn));
    return fn;
}

static void drop(struct net *n)
{
    weft_graph_free(n->g);
    weft_ctx_free(n->ctx);
}

static float data[64 * IN], target[64 * OUT];

static void fill_data(void)
{
    for (int i = 0; i < 64 * IN; i++)
        data[i] = (float)((i * 37) % 101) / 50 - 1;
    for (int i = 0; i < 64 * OUT; i++)
        target[i] = (float)((i * 53) % 89) / 44 - 1;
}

static float step(weft_fn *fn, int64_t batch)
{
    weft_tensor feeds[2] = {weft_view(WEFT_F32, data, 2, (int64_t[]){batch, IN}),
                            weft_view(WEFT_F32, target, 2, (int64_t[]){batch, OUT})};
    weft_tensor loss = {.data = NULL};

    ok(weft_fn_run(fn, feeds, &loss));
    return *(const float *)loss.data;
}

/* ---- results --------------------------------------------------------------------------------- */

static void training_lowers_the_loss(void **state)
{
    struct net n = make(WEFT_OPTS(weft_ctx_opts, .threads = 2));
    weft_fn *fn = train_fn(&n, 0, false);
    float first = step(fn, 64), last = 0;

    (void)state;
    for (int i = 0; i < 200; i++)
        last = step(fn, 64);
    if (!(last < first / 2))
        fail_msg("loss %g, then %g", (double)first, (double)last);
    weft_fn_free(fn);
    drop(&n);
}

static void same_bits_for_any_number_of_threads(void **state)
{
    static const int threads[] = {1, 2, 3, 7};
    float want[4 * 1024];
    int64_t n_want = 0;

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct net n = make(WEFT_OPTS(weft_ctx_opts, .threads = threads[i]));
        weft_fn *fn = train_fn(&n, 0, false);
        int64_t count;
        float *p;

        for (int k = 0; k < 10; k++)
            step(fn, 61);
        p = weft_fn_params(fn, &count);
        assert_true(count <= 4 * 1024);
        if (i == 0)
            memcpy(want, p, (size_t)count * sizeof *p);
        n_want = count;
        assert_memory_equal(want, p, (size_t)n_want * sizeof *p);
        weft_fn_free(fn);
        drop(&n);
    }
}

static void passes_change_results_only_within_rounding(void **state)
{
    static const unsigned off[] = {
        0, WEFT_PASS_FUSE, WEFT_PASS_CSE, WEFT_PASS_FOLD, WEFT_PASS_ALGEBRA, WEFT_PASS_ALL};
    float want = 0;

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct net n = make(WEFT_OPTS(weft_ctx_opts, .threads = 2));
        weft_fn *fn = train_fn(&n, off[i], false);
        float last = 0;

        for (int k = 0; k < 5; k++)
            last = step(fn, 32);
        if (i == 0)
            want = last;
        assert_float_equal(last, want, 1e-4f * want);
        weft_fn_free(fn);
        drop(&n);
    }
}

static void reference_kernels_agree(void **state)
{
    struct net n = make(WEFT_OPTS(weft_ctx_opts, .threads = 1));
    weft_fn *fast = train_fn(&n, 0, false), *plain = train_fn(&n, 0, true);

    (void)state;
    for (int k = 0; k < 5; k++) {
        float a = step(fast, 17), b = step(plain, 17);

        assert_float_equal(a, b, 1e-4f * b);
    }
    weft_fn_free(fast);
    weft_fn_free(plain);
    drop(&n);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void a_planned_step_allocates_nothing(void **state)
{
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);
    struct net n = make(WEFT_OPTS(weft_ctx_opts, .threads = 2, .allocator = &mem));
    weft_fn *fn = train_fn(&n, 0, false);
    int64_t before;

    (void)state;
    step(fn, 64);
    step(fn, 32); /* a second shape, smaller: the same slab */
    before = c.n_allocs;
    for (int i = 0; i < 20; i++)
        step(fn, i % 2 ? 64 : 32);
    assert_int_equal(c.n_allocs, before);
    weft_fn_free(fn);
    drop(&n);
    assert_int_equal(c.n_live, 0);
}

static void the_plan_cache_is_bounded(void **state)
{
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);
    struct net n = make(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &mem));
    weft_fn *fn = train_fn(&n, 0, false);
    int64_t used;

    (void)state;
    for (int b = 64; b > 48; b--)
        step(fn, b);
    used = weft_ctx_memory(n.ctx);
    for (int b = 48; b > 8; b--)
        step(fn, b);
    assert_true(weft_ctx_memory(n.ctx) <= used + used / 10);
    weft_fn_free(fn);
    drop(&n);
    assert_int_equal(c.n_live, 0);
}

static void a_memory_limit_names_the_tensor(void **state)
{
    struct net n =
        make(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 2 << 20, .devices = "cpu:0"));
    weft_fn *fn = train_fn(&n, 0, false);
    static float big[200000 * IN];
    weft_tensor feeds[2] = {weft_view(WEFT_F32, big, 2, (int64_t[]){200000, IN}),
                            weft_view(WEFT_F32, big, 2, (int64_t[]){200000, OUT})};
    weft_tensor loss = {.data = NULL};

    (void)state;
    assert_int_equal(weft_fn_run(fn, feeds, &loss), WEFT_ELIMIT);
    assert_non_null(strstr(weft_error(), "largest tensor '"));
    step(fn, 8); /* still usable */
    weft_fn_free(fn);
    drop(&n);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void wrong_feeds_are_named(void **state)
{
    struct net n = make(NULL);
    weft_fn *fn = train_fn(&n, 0, false);
    weft_tensor loss = {.data = NULL};
    weft_tensor feeds[2] = {weft_view(WEFT_F32, data, 2, (int64_t[]){4, IN + 1}),
                            weft_view(WEFT_F32, target, 2, (int64_t[]){4, OUT})};

    (void)state;
    assert_int_equal(weft_fn_run(fn, feeds, &loss), WEFT_ESHAPE);
    assert_string_equal(weft_error(), "feed 'x': expected f32[?,20], got f32[4,21]");
    feeds[0] = weft_view(WEFT_I32, data, 2, (int64_t[]){4, IN});
    assert_int_equal(weft_fn_run(fn, feeds, &loss), WEFT_EDTYPE);
    feeds[0] = weft_view(WEFT_F32, data, 2, (int64_t[]){3, IN}); /* batches of 3 and 4 */
    assert_int_equal(weft_fn_run(fn, feeds, &loss), WEFT_ESHAPE);
    assert_non_null(strstr(weft_error(), "sub"));
    weft_fn_free(fn);
    drop(&n);
}

static void a_missing_feed_is_named(void **state)
{
    struct net n = make(NULL);
    weft_fn *fn = NULL;

    (void)state;
    assert_int_equal(weft_fn_new(n.g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &n.x,
                                           .n_fetches = 1, .fetches = &n.loss),
                                 &fn),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "placeholder 't'"));
    assert_null(fn);
    drop(&n);
}

static void builders_keep_the_first_error(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_val a, b;
    weft_fn *fn = NULL;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    a = weft_placeholder(g, "a", WEFT_F32, 2, (int64_t[]){32, 784});
    b = weft_variable(g, "b", 2, (int64_t[]){512, 10}, NULL);
    weft_scope_push(g, "h1");
    a = weft_relu(g, weft_matmul(g, a, b, NULL));
    weft_scope_pop(g);
    assert_int_equal(a.id, 0);
    assert_int_equal(weft_graph_status(g), WEFT_ESHAPE);
    assert_string_equal(weft_error(),
                        "h1: matmul: f32[32,784] x f32[512,10]: inner sizes differ (784, 512)");
    assert_int_equal(weft_fn_new(g, WEFT_OPTS(weft_fn_opts, .n_fetches = 1, .fetches = &b), &fn),
                     WEFT_ESHAPE);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

static void nan_is_trapped_where_it_is_made(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_val x, y;
    weft_fn *fn;
    float v[4] = {1, 2, -1, 4};
    weft_tensor feed = weft_view(WEFT_F32, v, 1, (int64_t[]){4}), out = {.data = NULL};

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 1, (int64_t[]){4});
    y = weft_named(g, weft_log(g, x), "culprit");
    y = weft_add(g, weft_op(g, "sum", 1, &y, NULL), weft_scalar(g, 1));
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1, .fetches = &y,
                             .trap_numerics = true),
                   &fn));
    assert_int_equal(weft_fn_run(fn, &feed, &out), WEFT_ENUMERIC);
    assert_non_null(strstr(weft_error(), "culprit"));
    assert_non_null(strstr(weft_error(), "element 2"));
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void functions_share_parameters(void **state)
{
    struct net n = make(NULL);
    weft_fn *fn = train_fn(&n, 0, false), *other = NULL;
    weft_tensor w;
    float want, copy[HID * OUT];

    (void)state;
    ok(weft_fn_new(n.g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){n.x, n.t},
                             .n_fetches = 1, .fetches = &n.loss, .share = fn),
                   &other));
    for (int i = 0; i < 3; i++)
        step(fn, 16);
    want = step(other, 16); /* no update: twice the same */
    assert_true(step(other, 16) == want);
    assert_true(step(fn, 16) == want);
    ok(weft_fn_view(other, "b/w", &w));
    memcpy(copy, w.data, sizeof copy);
    step(fn, 16);
    ok(weft_fn_view(other, "b/w", &w));
    assert_memory_not_equal(copy, w.data, sizeof copy);
    assert_int_equal(weft_fn_step(fn), 5);
    weft_fn_free(fn); /* the store lives on */
    step(other, 16);
    weft_fn_free(other);
    drop(&n);
}

static void variables_are_read_and_written_by_name(void **state)
{
    struct net n = make(NULL);
    weft_fn *fn = train_fn(&n, 0, false);
    float b[OUT] = {1, 2, 3, 4, 5, 6, 7}, back[OUT];
    weft_tensor t = weft_view(WEFT_F32, b, 1, (int64_t[]){OUT}),
                r = weft_view(WEFT_F32, back, 1, (int64_t[]){OUT});
    weft_segment s;

    (void)state;
    ok(weft_fn_set(fn, "b/b", &t));
    ok(weft_fn_get(fn, "b/b", &r));
    assert_memory_equal(b, back, sizeof b);
    t.dim[0] = OUT - 1;
    assert_int_equal(weft_fn_set(fn, "b/b", &t), WEFT_ESHAPE);
    assert_int_equal(weft_fn_get(fn, "b/c", &r), WEFT_ENOENT);
    assert_int_equal(weft_fn_n_segments(fn), 4);
    ok(weft_fn_segment(fn, 1, &s));
    assert_string_equal(s.name, "a/b");
    assert_int_equal(s.offset % 16, 0);
    assert_int_equal(s.count, HID);
    assert_int_equal(weft_fn_segment(fn, 4, &s), WEFT_ERANGE);
    weft_fn_free(fn);
    drop(&n);
}

static void gradients_lie_in_the_flat_vector_when_asked(void **state)
{
    struct net n = make(NULL);
    weft_gradient gradients[8];
    weft_fn *fn = NULL, *plain = train_fn(&n, 0, false);
    int n_gradients = gradients_of_updates(n.g, n.n_updates, n.updates, 8, gradients);
    int64_t count;
    double sum = 0;
    float *g;

    (void)state;
    ok(weft_fn_new(n.g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){n.x, n.t},
                             .n_fetches = 1, .fetches = &n.loss, .n_updates = n.n_updates,
                             .updates = n.updates, .n_gradients = n_gradients,
                             .gradients = gradients),
                   &fn));
    assert_int_equal(n_gradients, 4);
    for (int i = 0; i < 3; i++)
        assert_true(step(fn, 16) == step(plain, 16));
    g = weft_fn_gradients(fn, &count);
    assert_non_null(g);
    for (int64_t i = 0; i < count; i++)
        sum += g[i] * g[i];
    assert_true(sum > 0);
    weft_fn_free(fn);
    weft_fn_free(plain);
    drop(&n);
}

/* ---- shards ---------------------------------------------------------------------------------- */

/* What hooks see of one run. */
struct seen {
    weft_fn *fn;
    const float *grads;
    float copy[4096];
    bool needed[8], ready[8];
    int n_need, n_ready, fail_at;
    int32_t last_ready;
};

static weft_status on_need(void *arg, int32_t segment)
{
    struct seen *s = arg;

    assert_false(s->needed[segment]);
    s->needed[segment] = true;
    return ++s->n_need + s->n_ready == s->fail_at ? WEFT_EPEER : WEFT_OK;
}

static weft_status on_ready(void *arg, int32_t segment, int32_t group)
{
    struct seen *s = arg;
    weft_segment seg;

    assert_int_equal(group, 0);
    assert_false(s->ready[segment]);
    ok(weft_fn_segment(s->fn, segment, &seg));
    assert_true(s->needed[segment] || seg.rank == 1);
    memcpy(s->copy + seg.offset, s->grads + seg.offset, (size_t)seg.count * sizeof(float));
    s->ready[segment] = true;
    s->last_ready = segment;
    return ++s->n_ready + s->n_need == s->fail_at ? WEFT_EPEER : WEFT_OK;
}

/* One run with bases of the caller's. */
static weft_status run_shard(weft_fn *fn, struct seen *s, float *params, float *grads)
{
    struct wf_hooks hooks = {.arg = s, .need = on_need, .ready = on_ready};
    struct wf_run at = {
        .step = 5, .shard = 1, .base = {.params = params, .grads = grads}, .hooks = &hooks};
    weft_tensor feeds[2] = {weft_view(WEFT_F32, data, 2, (int64_t[]){16, IN}),
                            weft_view(WEFT_F32, target, 2, (int64_t[]){16, OUT})};
    weft_tensor loss = {.data = NULL};
    int fail_at = s->fail_at;

    *s = (struct seen){.fn = fn, .grads = grads, .fail_at = fail_at};
    return wf_fn_run_at(fn, &at, feeds, &loss);
}

/* Gradients go to the caller's memory, parameters are read from it, and each range is final when
 * its hook is called. */
static void a_run_reads_and_writes_where_it_is_told(void **state)
{
    struct net n = make(NULL);
    weft_gradient gradients[8];
    int n_gradients = gradients_of_updates(n.g, n.n_updates, n.updates, 8, gradients);
    weft_fn *plain = train_fn(&n, 0, false), *fn = NULL;
    static float params[4096], grads[2][4096];
    static struct seen s;
    float *own;
    int64_t count;

    (void)state;
    ok(weft_fn_new(n.g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){n.x, n.t},
                             .n_fetches = 1, .fetches = &n.loss, .share = plain,
                             .n_gradients = n_gradients, .gradients = gradients),
                   &fn));
    own = weft_fn_params(plain, &count);
    memcpy(params, own, (size_t)count * sizeof *params);
    ok(run_shard(fn, &s, NULL, grads[0]));
    assert_int_equal(s.n_need, 4);
    assert_int_equal(s.n_ready, 4);
    assert_true(s.last_ready <= 1); /* the first layer's gradients come last */
    assert_memory_equal(s.copy, grads[0], (size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++)
        own[i] = 0; /* the store is not read now */
    ok(run_shard(fn, &s, params, grads[1]));
    assert_memory_equal(grads[0], grads[1], (size_t)count * sizeof(float));
    assert_int_equal(weft_fn_step(fn), 0);
    for (int k = 1; k <= 8; k++) {
        s.fail_at = k;
        assert_int_equal(run_shard(fn, &s, params, grads[1]), WEFT_EPEER);
    }
    weft_fn_free(fn);
    weft_fn_free(plain);
    drop(&n);
}

/* One value that is the gradient of two variables, and a constant one: the flat vector has each in
 * its place. */
static void shared_and_constant_gradients_are_in_the_flat_vector(void **state)
{
    static float fixed[IN];
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_optim o;
    weft_val x, v[3], grad[3], updates[3];
    weft_gradient gradients[3];
    weft_tensor feed = weft_view(WEFT_F32, data, 1, (int64_t[]){IN}), out = {.data = NULL};
    weft_tensor value = weft_view(WEFT_F32, fixed, 1, (int64_t[]){IN});
    int64_t count;
    float *flat;

    (void)state;
    for (int i = 0; i < IN; i++) {
        data[i] = (float)(i % 7 + 1);
        fixed[i] = (float)(i % 5 - 9);
    }
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 1, (int64_t[]){IN});
    for (int i = 0; i < 3; i++)
        v[i] = weft_variable(g, (const char *[]){"a", "b", "c"}[i], 1, (int64_t[]){IN}, NULL);
    grad[0] = grad[1] = weft_square(g, x);
    grad[2] = weft_constant(g, &value);
    ok(weft_optim_init(&o, "sgd", "learning_rate=1"));
    ok(weft_apply_gradients(g, &o, 3, v, grad, updates));
    for (int i = 0; i < 3; i++)
        gradients[i] = (weft_gradient){v[i], grad[i], 0};
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                             .fetches = &grad[0], .n_updates = 3, .updates = updates,
                             .n_gradients = 3, .gradients = gradients),
                   &fn));
    ok(weft_fn_run(fn, &feed, &out));
    flat = weft_fn_gradients(fn, &count);
    for (int k = 0; k < 3; k++) {
        weft_segment seg;

        ok(weft_fn_segment(fn, k, &seg));
        for (int64_t i = 0; i < IN; i++) {
            float want = seg.name[0] == 'c' ? fixed[i] : data[i] * data[i];

            assert_true(flat[seg.offset + i] == want);
            assert_true(weft_fn_params(fn, &count)[seg.offset + i] == -want);
        }
    }
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(same_bits_for_any_number_of_threads),
        cmocka_unit_test(passes_change_results_only_within_rounding),
        cmocka_unit_test(reference_kernels_agree),
        cmocka_unit_test(a_planned_step_allocates_nothing),
        cmocka_unit_test(the_plan_cache_is_bounded),
        cmocka_unit_test(a_memory_limit_names_the_tensor),
        cmocka_unit_test(wrong_feeds_are_named),
        cmocka_unit_test(a_missing_feed_is_named),
        cmocka_unit_test(builders_keep_the_first_error),
        cmocka_unit_test(nan_is_trapped_where_it_is_made),
        cmocka_unit_test(functions_share_parameters),
        cmocka_unit_test(variables_are_read_and_written_by_name),
        cmocka_unit_test(gradients_lie_in_the_flat_vector_when_asked),
        cmocka_unit_test(a_run_reads_and_writes_where_it_is_told),
        cmocka_unit_test(shared_and_constant_gradients_are_in_the_flat_vector),
    };

    fill_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
