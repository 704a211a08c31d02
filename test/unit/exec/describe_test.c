/* The graph and segment parts of fingerprints: they know what determines the numbers, and nothing
 * else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/fprint.h"
#include "exec/exec.h"
#include "weft/weft.h"

/* A graph, in all that is changed below. */
struct variant {
    int threads;
    const char *scratch; /* the name of a node */
    const char *var;
    int64_t width;
    bool relu, swapped, dead, device, more, bf16;
    double slope;
    float constant;
    weft_init_kind init;
    const char *optimizer;
};

static const struct variant plain = {.threads = 1,
                                     .scratch = "h",
                                     .var = "w",
                                     .width = 4,
                                     .relu = true,
                                     .slope = 0.5,
                                     .constant = 2,
                                     .init = WEFT_INIT_DEFAULT,
                                     .optimizer = "adam"};

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static weft_fn *build(weft_ctx *ctx, const struct variant *v, weft_graph **graph)
{
    weft_graph *g;
    weft_fn *fn;
    weft_val x, w, h, y, c, loss, update;
    weft_optim o;
    int n;

    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 3});
    w = weft_variable(g, v->var, 2, (int64_t[]){3, v->width},
                      WEFT_OPTS(weft_variable_opts, .init = v->init));
    if (v->dead)
        (void)weft_exp(g, x);
    if (v->device)
        weft_device_push(g, "/cpu:0");
    weft_scope_push(g, v->scratch);
    h = v->swapped ? weft_matmul(g, weft_neg(g, x), w, NULL) : weft_matmul(g, x, w, NULL);
    if (v->bf16)
        h = weft_cast(g, weft_cast(g, h, WEFT_BF16), WEFT_F32);
    h = v->relu ? weft_relu(g, h) : weft_tanh(g, h);
    h = weft_leaky_relu(g, h, WEFT_OPTS(weft_leaky_relu_opts, .alpha = v->slope));
    c = weft_constant(g, &(weft_tensor){.dtype = WEFT_F32, .data = (void *)&v->constant});
    y = weft_mul(g, h, c);
    weft_scope_pop(g);
    if (v->device)
        weft_device_pop(g);
    loss = weft_mean(g, weft_mul(g, y, y), NULL);
    ok(weft_optim_init(&o, v->optimizer, NULL));
    ok(weft_minimize(g, loss, &o, 1, &w, 1, &update, &n));
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = v->more ? 2 : 1,
                             .fetches = (weft_val[]){loss, y}, .n_updates = 1, .updates = &update),
                   &fn));
    ok(wf_fn_slots(fn));
    *graph = g;
    return fn;
}

static void note(void *arg, const struct wf_fp_diff *d)
{
    char line[1024];

    strcat(strcat(arg, wf_fp_say(d, "there", line, sizeof line)), "\n");
}

/* What differs between the plain graph and another, in words. */
static unsigned differs(struct variant v, char text[8192])
{
    struct wf_fprint f[2];
    weft_ctx *ctx[2];
    unsigned found;

    for (int i = 0; i < 2; i++) {
        const struct variant *this = i ? &plain : &v;
        weft_graph *g;
        weft_fn *fn;

        ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = this->threads), &ctx[i]));
        fn = build(ctx[i], this, &g);
        wf_fp_init(&f[i], ctx[i]);
        wf_fn_describe(fn, &f[i]);
        weft_fn_free(fn);
        weft_graph_free(g);
    }
    text[0] = 0;
    ok(wf_fp_compare(&f[0], &f[1], ~0u, note, text, &found));
    for (int i = 0; i < 2; i++) {
        wf_fp_free(&f[i]);
        weft_ctx_free(ctx[i]);
    }
    return found;
}

static void expect(struct variant v, unsigned parts, const char *words)
{
    char text[8192];
    unsigned found = differs(v, text);

    if (found != parts || !strstr(text, words))
        print_error("wanted %x: %s\nfound %x: %s\n", parts, words, found, text);
    assert_int_equal(found, parts);
    assert_non_null(strstr(text, words));
}

static void names_threads_devices_and_dead_nodes_do_not_matter(void **state)
{
    struct variant v = plain;

    (void)state;
    expect(v, 0, "");
    v.threads = 3;
    v.scratch = "renamed";
    v.dead = v.device = true;
    expect(v, 0, "");
}

static void what_determines_the_numbers_is_named(void **state)
{
    const unsigned graph = 1u << WF_FP_GRAPH, both = graph | 1u << WF_FP_SEGMENTS;
    struct variant v = plain;

    (void)state;
    v.relu = false;
    expect(v, graph, "is tanh(%2) -> f32[?,4] here and relu(%2) -> f32[?,4] in there");
    v = plain;
    v.slope = 0.25;
    expect(v, graph, "is leaky_relu(%3) alpha=0.25");
    v = plain;
    v.swapped = true;
    expect(v, graph, "is neg(%0)");
    v = plain;
    v.constant = 3;
    expect(v, graph, "is constant()");
    v = plain;
    v.more = true;
    expect(v, graph, "fetch 1");
    v = plain;
    v.init = WEFT_INIT_ZEROS;
    expect(v, graph, "init=");
    v = plain;
    v.width = 5;
    expect(v, both, "variable 'w' is f32[3,5] (parameter at 0, slots from 0,0)");
    v = plain;
    v.var = "u";
    expect(v, both, "variable 'u' is f32[3,4] (parameter at 0, slots from 0,0) here, but not");
    v = plain;
    v.optimizer = "sgd";
    expect(v, both,
           "variable 'w' is f32[3,4] (parameter at 0) here and f32[3,4] (parameter at 0, "
           "slots from 0,0) in there");
}

/* Which parts differ between the kernels of a function in two contexts. */
static unsigned kernels_differ(const struct variant *v, const weft_ctx_opts *a,
                               const weft_ctx_opts *b)
{
    const weft_ctx_opts *opts[] = {a, b};
    struct wf_fprint f[2];
    weft_ctx *ctx[2];
    unsigned found;

    for (int i = 0; i < 2; i++) {
        weft_graph *g;
        weft_fn *fn;

        ok(weft_ctx_new(opts[i], &ctx[i]));
        fn = build(ctx[i], v, &g);
        wf_fp_init(&f[i], ctx[i]);
        wf_kernels_describe(fn, &f[i]);
        weft_fn_free(fn);
        weft_graph_free(g);
    }
    ok(wf_fp_compare(&f[0], &f[1], ~0u, NULL, NULL, &found));
    for (int i = 0; i < 2; i++) {
        wf_fp_free(&f[i]);
        weft_ctx_free(ctx[i]);
    }
    return found;
}

static void kernels_do_not_depend_on_threads(void **state)
{
    weft_ctx_opts one = {.size = sizeof one, .threads = 1, .simd = WEFT_SIMD_PORTABLE}, other = one;

    (void)state;
    other.threads = 2;
    assert_int_equal(kernels_differ(&plain, &one, &other), 0);
    other.flush_denormals = true;
    assert_int_equal(kernels_differ(&plain, &one, &other), 1u << WF_FP_KERNELS);
}

static void products_of_bf16_are_named_where_there_is_bf16(void **state)
{
    weft_ctx_opts widened = {.size = sizeof widened, .threads = 1, .simd = WEFT_SIMD_AVX512},
                  native = widened;
    struct variant v = plain;

    (void)state;
    native.simd = WEFT_SIMD_AVX512BF16;
    if (weft_simd_best() < native.simd)
        skip();
    assert_int_equal(kernels_differ(&v, &widened, &native), 0);
    v.bf16 = true;
    assert_int_equal(kernels_differ(&v, &native, &native), 0);
    assert_int_equal(kernels_differ(&v, &widened, &native), 1u << WF_FP_KERNELS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_threads_devices_and_dead_nodes_do_not_matter),
        cmocka_unit_test(what_determines_the_numbers_is_named),
        cmocka_unit_test(kernels_do_not_depend_on_threads),
        cmocka_unit_test(products_of_bf16_are_named_where_there_is_bf16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
