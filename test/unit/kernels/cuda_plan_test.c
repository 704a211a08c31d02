/* cuda_plan_test.c - what plans for GPUs do besides the work of their ops, on the fake libraries
 * (test/support/fake_cuda.c): casts as part of kernels, batch normalization with ReLU, epilogues of
 * products. Each is compared with plans that leave it out, and with the cpu. */
#define _GNU_SOURCE
/* The workloads of the benchmark are the models here; cmocka has a macro of a name they use. */
#include "cli/workloads.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake_cuda.h"

enum { STEPS = 3 };

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

/* Small siblings of the workloads. */
static weft_val small_gpt(struct workload *w)
{
    w->plain_grads = true;
    return gpt(w, &(struct gpt_size){512, 32, 2, 16, 1});
}

/* With rows that a block has, not a warp. */
static weft_val wide_gpt(struct workload *w)
{
    w->plain_grads = true;
    return gpt(w, &(struct gpt_size){64, 272, 2, 3, 1});
}

static weft_val small_resnet(struct workload *w)
{
    w->batch = 12; /* the last images are single points: with few of them, rounding grows */
    return resnet(w, &(struct resnet_size){16, 8, 10, {1, 1, 1, 1}});
}

static weft_val small_mlp(struct workload *w)
{
    return mlp(w, 4, (int64_t[]){16, 24, 32, 8});
}

/* Sizes that are not multiples of 8. */
static weft_val odd_mlp(struct workload *w)
{
    return mlp(w, 4, (int64_t[]){16, 25, 33, 7});
}

struct setup {
    weft_val (*build)(struct workload *w);
    weft_dtype compute;
    const char *without;
    bool cpu;
};

struct result {
    float loss[STEPS];
    char *plan;
    int n_instr;
};

static weft_status build(struct workload *w, weft_ctx *ctx, const struct setup *s)
{
    weft_optim o;
    weft_status st;
    int n = 0;

    *w = (struct workload){.batch = 3, .compute = s->compute};
    ok(weft_graph_new(ctx, &w->graph));
    if (s->compute)
        weft_autocast_push(w->graph, s->compute);
    w->loss = s->build(w);
    if (s->compute && w->plain_grads)
        weft_autocast_pop(w->graph);
    ok(weft_optim_init(&o, "sgd", "learning_rate=0.01 momentum=0.9"));
    st = weft_minimize(w->graph, w->loss, &o, 0, NULL, MAX_UPDATES - w->n_updates,
                       w->updates + w->n_updates, &n);
    w->n_updates += n;
    return st;
}

static void train(const struct setup *s, struct result *r)
{
    const weft_device_driver *driver = fake_cuda_driver();
    weft_tensor out = {.data = NULL};
    weft_plan_info info = {.size = sizeof info};
    struct workload w;
    weft_ctx *ctx;
    weft_fn *fn;
    char *text;

    ok(weft_ctx_new(s->cpu ? WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5)
                           : WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .devices = "gpu:0",
                                       .n_drivers = 1, .drivers = &driver),
                    &ctx));
    ok(build(&w, ctx, s));
    ok(weft_fn_new(w.graph,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = w.n_feeds, .feeds = w.feed, .n_fetches = 1,
                             .fetches = &w.loss, .n_updates = w.n_updates, .updates = w.updates,
                             .without = s->without),
                   &fn));
    for (int i = 0; i < STEPS; i++) {
        ok(weft_fn_run(fn, w.data, &out));
        r->loss[i] = *(const float *)out.data;
    }
    ok(weft_fn_explain(fn, w.data, NULL, &text));
    ok(weft_fn_plan_info(fn, w.data, &info));
    r->n_instr = (int)info.n_instructions;
    free(r->plan);
    r->plan = strdup(text);
    weft_text_free(ctx, text);
    weft_fn_free(fn);
    workload_free(&w);
    weft_ctx_free(ctx);
    assert_int_equal(fake_cuda_allocations(), 0);
}

static void expect_near(const char *what, const struct result *a, const struct result *b, int n,
                        double tolerance)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a->loss[i] - b->loss[i]) <= tolerance * fabs(b->loss[i])))
            fail_msg("%s, step %d: %.9g, expected %.9g", what, i, a->loss[i], b->loss[i]);
}

static void expect_text(const struct result *r, const char *text, bool there)
{
    if ((strstr(r->plan, text) != NULL) != there)
        fail_msg("'%s' is %s the plan:\n%s", text, there ? "not in" : "in", r->plan);
}

/* Whether an instruction of op `op` has `text` after it on its line. */
static bool line_has(const struct result *r, const char *op, const char *text)
{
    char start[40];

    snprintf(start, sizeof start, "  %s ", op);
    for (const char *p = strstr(r->plan, start); p; p = strstr(p + 1, start)) {
        const char *end = strchr(p, '\n'), *at = strstr(p, text);

        if (at && (!end || at < end))
            return true;
    }
    return false;
}

static void needs_kernels(void)
{
    if (!fake_cuda_driver())
        skip();
}

/* ---- casts ----------------------------------------------------------------------------------- */

static void casts_are_part_of_the_kernels_beside_them(void **state)
{
    struct result mixed = {.plan = NULL}, apart = {.plan = NULL}, cpu = {.plan = NULL};

    (void)state;
    needs_kernels();
    train(&(struct setup){small_gpt, WEFT_BF16, "epilogues", false}, &mixed);
    train(&(struct setup){small_gpt, WEFT_BF16, "mixed, epilogues", false}, &apart);
    train(&(struct setup){small_gpt, WEFT_BF16, NULL, true}, &cpu);
    expect_near("casts in kernels", &mixed, &apart, STEPS, 2e-3);
    expect_near("casts in kernels and the cpu", &mixed, &cpu, STEPS, 1e-2);
    /* normalization writes a half, its gradient reads one, so does the cross-entropy */
    assert_true(line_has(&mixed, "layer_norm", "gpu-layer-norm bf16["));
    assert_true(line_has(&mixed, "layer_norm_grad", "<- bf16["));
    assert_true(line_has(&mixed, "sparse_softmax_xent", "bf16[3,16,512]"));
    assert_true(line_has(&mixed, "matmul", "cublasLt       f32["));
    assert_false(line_has(&apart, "layer_norm", "gpu-layer-norm bf16["));
    assert_false(line_has(&apart, "sparse_softmax_xent", "bf16[3,16,512]"));
    assert_true(mixed.n_instr < apart.n_instr - 10);
    free(mixed.plan);
    free(apart.plan);
    free(cpu.plan);
}

/* Filters of three kinds: few channels, through cuDNN, and a plain product. */
static weft_val three_filters(struct workload *w)
{
    weft_graph *g = w->graph;
    weft_val x = feed(w, "x", WEFT_F32, SHAPE(2, 9, 16, 3), 0);

    w->plain_grads = true;
    x = weft_conv(g, x, weft_variable(g, "a", SHAPE(7, 7, 3, 8), NULL),
                  WEFT_OPTS(weft_conv_opts, .strides = {2, 2}, .padding = WEFT_PAD_SAME));
    x = weft_conv(g, x, weft_variable(g, "b", SHAPE(3, 3, 8, 16), NULL), NULL);
    x = weft_conv(g, x, weft_variable(g, "c", SHAPE(1, 1, 16, 8), NULL), NULL);
    return weft_mean(g, weft_square(g, weft_cast(g, x, WEFT_F32)), NULL);
}

/* Gradients of filters are written as f32, which updates read. */
static void filter_gradients_need_no_cast(void **state)
{
    struct result mixed = {.plan = NULL}, apart = {.plan = NULL}, cpu = {.plan = NULL};
    int n_mixed = 0, n_apart = 0;

    (void)state;
    needs_kernels();
    for (int i = 0; i < 2; i++) {
        struct setup s = {three_filters, i ? WEFT_F16 : WEFT_BF16, NULL, false};

        train(&s, &mixed);
        s.without = "mixed";
        train(&s, &apart);
        s.cpu = true;
        train(&s, &cpu);
        assert_true(mixed.loss[2] < 0.95F * mixed.loss[0]);
        expect_near("gradients of filters", &mixed, &apart, STEPS, 3e-3);
        expect_near("gradients of filters and the cpu", &mixed, &cpu, STEPS, 3e-3);
    }
    train(&(struct setup){small_resnet, WEFT_BF16, NULL, false}, &mixed);
    train(&(struct setup){small_resnet, WEFT_BF16, "mixed", false}, &apart);
    expect_near("gradients of filters", &mixed, &apart, 1, 2e-2);
    for (const char *p = mixed.plan; (p = strstr(p, " conv_grad_filter ")) != NULL; p++)
        n_mixed += strncmp(p + 35, "f32[", 4) == 0;
    for (const char *p = apart.plan; (p = strstr(p, " conv_grad_filter ")) != NULL; p++)
        n_apart += strncmp(p + 35, "bf16[", 5) == 0;
    assert_true(n_apart > 15);
    assert_int_equal(n_mixed, n_apart);
    free(mixed.plan);
    free(apart.plan);
    free(cpu.plan);
}

static void f32_plans_have_nothing_to_mix(void **state)
{
    struct result a = {.plan = NULL}, b = {.plan = NULL};

    (void)state;
    needs_kernels();
    train(&(struct setup){small_gpt, WEFT_NONE, NULL, false}, &a);
    train(&(struct setup){small_gpt, WEFT_NONE, "mixed norms epilogues", false}, &b);
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    assert_int_equal(a.n_instr, b.n_instr);
    free(a.plan);
    free(b.plan);
}

/* ---- epilogues ------------------------------------------------------------------------------- */

static void gelu_is_part_of_the_product(void **state)
{
    struct result with = {.plan = NULL}, plain = {.plan = NULL};

    (void)state;
    needs_kernels();
    for (int half = 0; half < 2; half++) {
        struct setup s = {small_gpt, half ? WEFT_F16 : WEFT_BF16, NULL, false};

        train(&s, &with);
        expect_text(&with, "cublasLt+gelu", true);
        expect_text(&with, "cublasLt+dgelu", true);
        s.without = "epilogues";
        train(&s, &plain);
        expect_text(&plain, "gelu ", false);
        expect_near("GELU as an epilogue", &with, &plain, STEPS, 2e-3);
        /* a library that refuses them: the programs follow the products */
        fake_cuda_plain_products(true);
        s.without = NULL;
        train(&s, &with);
        fake_cuda_plain_products(false);
        expect_text(&with, "cublasLt+gelu", false);
        expect_near("without epilogues", &with, &plain, STEPS, 2e-3);
    }
    free(with.plan);
    free(plain.plan);
}

/* A product that pins.def has a row for takes that algorithm of the library's list, on the GPU of
 * the row only. */
static void measured_products_are_pinned(void **state)
{
    static const char *const models[] = {NULL, "NVIDIA H200"};
    const weft_device_driver *driver = fake_cuda_driver();

    (void)state;
    needs_kernels();
    for (int i = 0; i < 2; i++) {
        weft_ctx *ctx;
        weft_graph *g;
        weft_val x, w, b, y;
        weft_tensor data[2] = {{.dtype = WEFT_BF16, .rank = 2, .dim = {16384, 768}},
                               {.dtype = WEFT_BF16, .rank = 2, .dim = {768, 768}}};
        weft_fn *fn;
        char *text;

        fake_cuda_model(models[i]);
        ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .devices = "gpu:0", .n_drivers = 1,
                                  .drivers = &driver),
                        &ctx));
        ok(weft_graph_new(ctx, &g));
        x = weft_placeholder(g, "x", WEFT_BF16, 2, (int64_t[]){16384, 768});
        w = weft_placeholder(g, "w", WEFT_BF16, 2, (int64_t[]){768, 768});
        b = weft_matmul(g, x, w, WEFT_OPTS(weft_matmul_opts, .trans_b = true));
        y = weft_matmul(g, x, w, NULL);
        ok(weft_fn_new(g,
                       WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, w},
                                 .n_fetches = 2, .fetches = (weft_val[]){b, y}),
                       &fn));
        ok(weft_fn_explain(fn, data, NULL, &text));
        assert_int_equal(strstr(text, "cublasLt-pinned") != NULL, i == 1);
        weft_text_free(ctx, text);
        weft_fn_free(fn);
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
    fake_cuda_model(NULL);
}

/* A convolution that convs.def has a row for takes that engine where the library's list has it at
 * the place of the row, on the GPU of the row only. */
static void measured_convolutions_are_pinned(void **state)
{
    static const struct {
        const char *model, *want;
        int first;
    } cases[] = {{NULL, "cudnn-e45#2/5", 44},
                 {"NVIDIA H200", "cudnn-pinned-e48#5/5", 44},
                 {"NVIDIA H200", "cudnn-e1#2/5", 0}};
    const weft_device_driver *driver = fake_cuda_driver();

    (void)state;
    needs_kernels();
    for (int i = 0; i < 3; i++) {
        weft_ctx *ctx;
        weft_graph *g;
        weft_val x, w, y;
        weft_tensor data[2] = {{.dtype = WEFT_F32, .rank = 4, .dim = {64, 28, 28, 1}},
                               {.dtype = WEFT_F32, .rank = 4, .dim = {3, 3, 1, 32}}};
        weft_fn *fn;
        char *text;

        fake_cuda_model(cases[i].model);
        fake_cuda_engines(cases[i].first);
        ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .devices = "gpu:0", .n_drivers = 1,
                                  .drivers = &driver),
                        &ctx));
        ok(weft_graph_new(ctx, &g));
        x = weft_placeholder(g, "x", WEFT_F32, 4, (int64_t[]){64, 28, 28, 1});
        w = weft_placeholder(g, "w", WEFT_F32, 4, (int64_t[]){3, 3, 1, 32});
        y = weft_conv(g, x, w, NULL);
        ok(weft_fn_new(g,
                       WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, w},
                                 .n_fetches = 1, .fetches = &y, .tf32 = true),
                       &fn));
        ok(weft_fn_explain(fn, data, NULL, &text));
        if (!strstr(text, cases[i].want))
            fail_msg("engines from %d: no %s in %s", cases[i].first, cases[i].want, text);
        weft_text_free(ctx, text);
        weft_fn_free(fn);
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
    fake_cuda_model(NULL);
    fake_cuda_engines(0);
}

/* Halves stay halves from layer to layer: bias and ReLU are the product's. */
static void dense_layers_stay_halves(void **state)
{
    struct result gpu = {.plan = NULL}, cpu = {.plan = NULL};

    (void)state;
    needs_kernels();
    train(&(struct setup){small_mlp, WEFT_BF16, NULL, false}, &gpu);
    train(&(struct setup){small_mlp, WEFT_BF16, NULL, true}, &cpu);
    assert_true(line_has(&gpu, "matmul_fused", "cublasLt+bias  bf16[3,24]"));
    assert_true(line_has(&gpu, "matmul_fused", "cublasLt+bias  bf16[3,32]"));
    expect_near("a dense net in halves", &gpu, &cpu, STEPS, 1e-2);
    free(gpu.plan);
    free(cpu.plan);
}

/* ---- batch normalization --------------------------------------------------------------------- */

static void batch_norm_does_the_relu_and_the_addition(void **state)
{
    static const weft_dtype types[] = {WEFT_NONE, WEFT_BF16};
    struct result with = {.plan = NULL}, apart = {.plan = NULL}, cpu = {.plan = NULL};

    (void)state;
    needs_kernels();
    for (int i = 0; i < 2; i++) {
        train(&(struct setup){small_resnet, types[i], NULL, false}, &with);
        train(&(struct setup){small_resnet, types[i], "norms", false}, &apart);
        train(&(struct setup){small_resnet, types[i], NULL, true}, &cpu);
        expect_text(&with, " batch_norm_act ", true);
        expect_text(&with, " batch_norm_act_grad ", true);
        expect_text(&apart, " batch_norm_act", false);
        assert_true(with.n_instr < apart.n_instr - 10);
        /* in halves, rounding grows from step to step */
        expect_near("batch normalization with ReLU", &with, &apart, i ? 1 : STEPS, i ? 2e-2 : 1e-5);
        expect_near("batch normalization and the cpu", &with, &cpu, i ? 1 : STEPS, i ? 2e-2 : 2e-3);
    }
    free(with.plan);
    free(apart.plan);
    free(cpu.plan);
}

/* ---- casts of variables ---------------------------------------------------------------------- */

static void count_casts(void *arg, const char *work)
{
    *(int *)arg += strcmp(work, "wfc_casts") == 0;
}

/* Casts of variables in a plan's text; *late: those after something that is no cast and copies no
 * feed. */
static int casts_of_variables(const char *plan, int *late)
{
    bool begun = false;
    int n = 0;

    *late = 0;
    for (const char *end; (end = strchr(plan, '\n')) != NULL; plan = end + 1) {
        char line[512];

        snprintf(line, sizeof line, "%.*s", (int)(end - plan), plan);
        if (line[strspn(line, " ")] < '0' || line[strspn(line, " ")] > '9')
            continue;
        if (strstr(line, " gpu-cast ") && strstr(line, "@param")) {
            n++;
            *late += begun;
        } else {
            begun |= !strstr(line, " transfer ") && !strstr(line, " gpu-cast ");
        }
    }
    return n;
}

/* A step begins with the casts of all variables that layers read as halves: one kernel. */
static void variables_are_cast_together(void **state)
{
    static const weft_dtype types[] = {WEFT_BF16, WEFT_F16};
    struct result with = {.plan = NULL}, apart = {.plan = NULL};

    (void)state;
    needs_kernels();
    for (int i = 0; i < 4; i++) {
        struct setup s = {i < 2 ? small_gpt : odd_mlp, types[i % 2], NULL, false};
        int n = 0, n_apart = 0, late;

        fake_cuda_watch(count_casts, &n);
        train(&s, &with);
        s.without = "casts";
        fake_cuda_watch(count_casts, &n_apart);
        train(&s, &apart);
        fake_cuda_watch(NULL, NULL);
        assert_true(n + 2 * STEPS <= n_apart);
        assert_memory_equal(with.loss, apart.loss, sizeof with.loss);
        assert_int_equal(with.n_instr, apart.n_instr);
        assert_true(casts_of_variables(with.plan, &late) > 5);
        assert_int_equal(late, 0);
        assert_true(casts_of_variables(apart.plan, &late) > 5);
        assert_true(late > 0);
    }
    free(with.plan);
    free(apart.plan);
}

/* ---- residuals ------------------------------------------------------------------------------- */

/* Gradients of layer normalizations do the addition after them, with the bits of the two alone. */
static void norm_gradients_do_the_addition(void **state)
{
    static const struct setup setups[] = {{small_gpt, WEFT_BF16, NULL, false},
                                          {small_gpt, WEFT_F16, NULL, false},
                                          {small_gpt, WEFT_NONE, NULL, false},
                                          {wide_gpt, WEFT_BF16, NULL, false},
                                          {wide_gpt, WEFT_NONE, NULL, false}};
    struct result with = {.plan = NULL}, apart = {.plan = NULL};

    (void)state;
    needs_kernels();
    for (int i = 0; i < (int)(sizeof setups / sizeof *setups); i++) {
        struct setup s = setups[i];

        train(&s, &with);
        s.without = "residuals";
        train(&s, &apart);
        expect_text(&with, " layer_norm_grad_add ", true);
        expect_text(&apart, " layer_norm_grad_add ", false);
        assert_int_equal(with.n_instr, apart.n_instr - 2); /* two of a block, none of the last */
        assert_memory_equal(with.loss, apart.loss, sizeof with.loss);
    }
    free(with.plan);
    free(apart.plan);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* The fake driver refuses an early launch after anything but a kernel. */
static void launches_overlap_after_kernels_only(void **state)
{
    struct result with = {.plan = NULL}, apart = {.plan = NULL};
    int before = fake_cuda_overlapped(), n;

    (void)state;
    needs_kernels();
    train(&(struct setup){small_gpt, WEFT_BF16, "overlap", false}, &apart);
    assert_int_equal(fake_cuda_overlapped(), before);
    train(&(struct setup){small_gpt, WEFT_BF16, NULL, false}, &with);
    n = fake_cuda_overlapped() - before;
    assert_true(n > 10);
    assert_memory_equal(with.loss, apart.loss, sizeof with.loss);
    fake_cuda_no_overlap(true); /* recorded in a second attempt, without them */
    before = fake_cuda_launches();
    train(&(struct setup){small_gpt, WEFT_BF16, NULL, false}, &with);
    assert_true(fake_cuda_launches() == before + 2);
    fake_cuda_no_overlap(false);
    assert_memory_equal(with.loss, apart.loss, sizeof with.loss);
    free(with.plan);
    free(apart.plan);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void unknown_word_is_refused(void **state)
{
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn = NULL;
    weft_val x;

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 1, (int64_t[]){2});
    assert_int_equal(weft_fn_new(g,
                                 WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                                           .fetches = &x, .without = "norms, speed"),
                                 &fn),
                     WEFT_EINVAL);
    assert_string_equal(weft_error(),
                        "without: 'speed' is none of mixed, norms, epilogues, overlap, "
                        "attention, casts, residuals");
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(casts_are_part_of_the_kernels_beside_them),
        cmocka_unit_test(filter_gradients_need_no_cast),
        cmocka_unit_test(f32_plans_have_nothing_to_mix),
        cmocka_unit_test(gelu_is_part_of_the_product),
        cmocka_unit_test(measured_products_are_pinned),
        cmocka_unit_test(measured_convolutions_are_pinned),
        cmocka_unit_test(dense_layers_stay_halves),
        cmocka_unit_test(batch_norm_does_the_relu_and_the_addition),
        cmocka_unit_test(variables_are_cast_together),
        cmocka_unit_test(norm_gradients_do_the_addition),
        cmocka_unit_test(launches_overlap_after_kernels_only),
        cmocka_unit_test(unknown_word_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
