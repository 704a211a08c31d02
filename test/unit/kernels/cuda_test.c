/* cuda_test.c - the device "gpu" on the fake libraries (test/support/fake_cuda.c): what the loader
 * says is missing, every call of a library failing in turn, trainings compared with the cpu's. */
#define _GNU_SOURCE
/* The workloads of the benchmark are the models here; cmocka has a macro of a name they use. */
#include "cli/workloads.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/device.h"
#include "kernels/cuda/driver.h"
#include "support/fake_cuda.h"

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static weft_status open_gpu(weft_ctx **out)
{
    const weft_device_driver *driver = fake_cuda_driver();

    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .devices = "gpu:0",
                                  .n_drivers = 1, .drivers = &driver),
                        out);
}

static void needs_kernels(void)
{
    if (!fake_cuda_driver())
        skip();
}

/* ---- what is missing ------------------------------------------------------------------------- */

static void missing_driver_is_named_with_its_package(void **state)
{
    weft_ctx *ctx = NULL;

    (void)state;
    needs_kernels();
    fake_cuda_missing("libcuda");
    assert_int_equal(open_gpu(&ctx), WEFT_ENOENT);
    assert_non_null(strstr(weft_error(), "libcuda.so.1"));
    assert_non_null(strstr(weft_error(), "NVIDIA's driver"));
    fake_cuda_missing(NULL);
}

static void missing_function_is_named(void **state)
{
    weft_ctx *ctx = NULL;

    (void)state;
    needs_kernels();
    fake_cuda_missing("cuStreamEndCapture");
    assert_int_not_equal(open_gpu(&ctx), WEFT_OK);
    assert_non_null(strstr(weft_error(), "cuStreamEndCapture"));
    fake_cuda_missing(NULL);
}

/* The system's driver: where there is none, the error says so; there may be one. */
/* The device asks for every kernel of names.def when it is opened; the library holds what nvcc made
 * of the sources, and a list of it. */
static void every_kernel_that_is_asked_for_is_compiled(void **state)
{
    static const char *const names[] = {
#define K(name) #name,
#define K2(name) #name "_f", #name "_d",
#include "kernels/cuda/names.def"
#undef K
#undef K2
    };
    weft_ctx *ctx = NULL;

    (void)state;
    needs_kernels();
    for (int i = 0; i < WF_COUNT(names); i++)
        if (!fake_cuda_has_kernel(names[i]))
            fail_msg("%s is not among the compiled kernels", names[i]);
    assert_false(fake_cuda_has_kernel("wfc_nothing"));
    assert_false(fake_cuda_has_kernel("wfc_"));
    ok(open_gpu(&ctx));
    weft_ctx_free(ctx);
}

static void system_driver_counts_or_says_why_not(void **state)
{
    int n = -1;
    weft_status st = wf_cuda_count(NULL, NULL, &n);

    (void)state;
    assert_true(st ? strlen(weft_error()) > 20 && n == 0 : n >= 0);
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct run {
    weft_ctx *ctx;
    struct workload w;
    weft_fn *fn;
};

static weft_status begin_in(struct run *r, const char *name, weft_dtype compute)
{
    weft_status st = workload_build_in(r->ctx, name, compute, &r->w);

    return st ? st
              : weft_fn_new(r->w.graph,
                            WEFT_OPTS(weft_fn_opts, .n_feeds = r->w.n_feeds, .feeds = r->w.feed,
                                      .n_fetches = 1, .fetches = &r->w.loss,
                                      .n_updates = r->w.n_updates, .updates = r->w.updates),
                            &r->fn);
}

static weft_status begin(struct run *r, const char *name)
{
    return begin_in(r, name, WEFT_NONE);
}

static weft_status one_step(struct run *r, float *loss)
{
    weft_tensor out = {.data = NULL};
    weft_status st = weft_fn_run(r->fn, r->w.data, &out);

    if (!st)
        *loss = *(const float *)out.data;
    return st;
}

static void finish(struct run *r)
{
    weft_fn_free(r->fn);
    workload_free(&r->w);
    weft_ctx_free(r->ctx);
    *r = (struct run){0};
}

static double farthest(struct run *a, struct run *b)
{
    double most = 0;

    for (int64_t k = 0; k < weft_fn_n_segments(a->fn); k++) {
        weft_segment seg;
        weft_tensor x, y;

        ok(weft_fn_segment(a->fn, k, &seg));
        ok(weft_fn_view(a->fn, seg.name, &x));
        ok(weft_fn_view(b->fn, seg.name, &y));
        for (int64_t i = 0; i < weft_tensor_count(&x); i++) {
            double p = ((const float *)x.data)[i], q = ((const float *)y.data)[i];

            most = fmax(most, fabs(p - q) / (1 + fabs(q)));
        }
    }
    return most;
}

static void same_training(const char *name, int n_steps, double tol)
{
    struct run gpu = {0}, cpu = {0};

    ok(open_gpu(&gpu.ctx));
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &cpu.ctx));
    ok(begin(&gpu, name));
    ok(begin(&cpu, name));
    for (int i = 0; i < n_steps; i++) {
        float a = 0, b = 0;

        ok(one_step(&gpu, &a));
        ok(one_step(&cpu, &b));
        if (fabs(a - b) > tol * (1 + fabs(b)))
            fail_msg("%s, step %d: the loss is %.9g, the cpu's %.9g", name, i, a, b);
    }
    if (farthest(&gpu, &cpu) > tol)
        fail_msg("%s: the parameters differ by %g", name, farthest(&gpu, &cpu));
    finish(&gpu);
    finish(&cpu);
    assert_int_equal(fake_cuda_allocations(), 0);
}

static void trainings_are_the_cpus(void **state)
{
    (void)state;
    needs_kernels();
    same_training("softmax64", 20, 2e-5);
    same_training("mlp-s", 4, 1e-3);
    same_training("lstm", 3, 1e-3);
    same_training("resnet-s", 2, 2e-3);
}

struct works {
    int n;
    char text[8192];
};

static void note_work(void *arg, const char *work)
{
    struct works *w = arg;

    w->n++;
    strncat(w->text, work, sizeof w->text - strlen(w->text) - 1);
    strncat(w->text, " ", sizeof w->text - strlen(w->text) - 1);
}

/* Generated kernels compute what the interpreter does, to the bit. */
static void compiled_like_interpreted(const char *name, weft_dtype compute)
{
    struct run made = {0}, plain = {0};
    struct works w = {0};

    fake_cuda_compile(true);
    fake_cuda_watch(note_work, &w);
    ok(open_gpu(&made.ctx));
    ok(begin_in(&made, name, compute));
    for (int i = 0; i < 3; i++) {
        float loss = 0;

        ok(one_step(&made, &loss));
    }
    fake_cuda_watch(NULL, NULL);
    fake_cuda_compile(false);
    assert_non_null(strstr(w.text, "generated"));
    assert_null(strstr(w.text, "wfc_prog"));
    ok(open_gpu(&plain.ctx));
    ok(begin_in(&plain, name, compute));
    for (int i = 0; i < 3; i++) {
        float loss = 0;

        ok(one_step(&plain, &loss));
    }
    if (farthest(&made, &plain) != 0)
        fail_msg("%s: compiled programs differ by %g", name, farthest(&made, &plain));
    finish(&made);
    finish(&plain);
}

static void compiled_programs_have_the_bits_of_interpreted_ones(void **state)
{
    (void)state;
    needs_kernels();
    compiled_like_interpreted("mlp-s", WEFT_F32);
    compiled_like_interpreted("mlp-s", WEFT_BF16);
    compiled_like_interpreted("mlp-s", WEFT_F16);
}

/* Kernels are compiled once for a cache directory; a damaged file is compiled again. */
static int compiled_with_cache(const char *folder)
{
    const weft_device_driver *driver = fake_cuda_driver();
    struct run r = {0};
    int before = fake_cuda_compiled();
    float loss = 0;

    fake_cuda_compile(true);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5, .devices = "gpu:0",
                              .n_drivers = 1, .drivers = &driver, .device_cache = folder),
                    &r.ctx));
    ok(begin(&r, "mlp-s"));
    ok(one_step(&r, &loss));
    fake_cuda_compile(false);
    finish(&r);
    return fake_cuda_compiled() - before;
}

static void damage_files(const char *folder)
{
    char command[256];

    snprintf(command, sizeof command, "for f in %s/*.gpu; do printf x >>$f; done", folder);
    assert_int_equal(system(command), 0);
}

static void compiled_kernels_are_kept_in_the_cache(void **state)
{
    char folder[] = "cuda-cache-XXXXXX", command[64];
    int n;

    (void)state;
    needs_kernels();
    assert_non_null(mkdtemp(folder));
    fake_cuda_keep(true);
    n = compiled_with_cache(folder);
    assert_true(n > 0);
    assert_int_equal(compiled_with_cache(folder), 0);
    damage_files(folder);
    assert_int_equal(compiled_with_cache(folder), n);
    assert_int_equal(compiled_with_cache(folder), 0);
    fake_cuda_keep(false);
    assert_int_equal(compiled_with_cache("there/is/none"), n);
    snprintf(command, sizeof command, "rm -r %s generated-*.so", folder);
    assert_int_equal(system(command), 0);
}

/* A repeated run is as many single ones, to the bit. */
static void repeated_runs_are_single_ones(void **state)
{
    struct run a = {0}, b = {0};
    weft_tensor out = {.data = NULL};
    float loss = 0;

    (void)state;
    needs_kernels();
    ok(open_gpu(&a.ctx));
    ok(open_gpu(&b.ctx));
    ok(begin(&a, "mlp-s"));
    ok(begin(&b, "mlp-s"));
    for (int i = 0; i < 7; i++)
        ok(one_step(&a, &loss));
    ok(weft_fn_repeat(b.fn, 3, b.w.data, &out));
    ok(weft_fn_repeat(b.fn, 4, b.w.data, &out));
    assert_true(*(const float *)out.data == loss);
    assert_true(farthest(&a, &b) == 0);
    assert_int_equal(weft_fn_step(a.fn), weft_fn_step(b.fn));
    assert_int_equal(weft_fn_repeat(b.fn, 0, b.w.data, &out), WEFT_EINVAL);
    finish(&a);
    finish(&b);
}

/* So are many runs, which are recorded as one launch. */
static void many_runs_in_one_launch_are_single_ones(void **state)
{
    struct run a = {0}, b = {0};
    weft_tensor out = {.data = NULL};
    float loss = 0;

    (void)state;
    needs_kernels();
    ok(open_gpu(&a.ctx));
    ok(open_gpu(&b.ctx));
    ok(begin(&a, "softmax64"));
    ok(begin(&b, "softmax64"));
    for (int i = 0; i < 151; i++)
        ok(one_step(&a, &loss));
    ok(weft_fn_repeat(b.fn, 3, b.w.data, &out));
    ok(weft_fn_repeat(b.fn, 140, b.w.data, &out));
    ok(weft_fn_repeat(b.fn, 8, b.w.data, &out));
    assert_true(*(const float *)out.data == loss);
    assert_true(farthest(&a, &b) == 0);
    assert_int_equal(weft_fn_step(a.fn), weft_fn_step(b.fn));
    finish(&a);
    finish(&b);
}

/* ---- how much work a step is ----------------------------------------------------------------- */

/* The kernels, copies, fills and products of a step in the middle of a training. */
static void step_is_at_most(const char *name, weft_dtype compute, int most)
{
    struct run r = {0};
    struct works w = {0};
    float loss = 0;

    ok(open_gpu(&r.ctx));
    ok(begin_in(&r, name, compute));
    ok(one_step(&r, &loss));
    fake_cuda_watch(note_work, &w);
    ok(one_step(&r, &loss));
    fake_cuda_watch(NULL, NULL);
    finish(&r);
    print_message("%s: %d: %s\n", name, w.n, w.text);
    if (w.n > most)
        fail_msg("%s: %d pieces of work in a step, not %d: %s", name, w.n, most, w.text);
}

static void steps_are_few_pieces_of_work(void **state)
{
    (void)state;
    needs_kernels();
    step_is_at_most("softmax64", WEFT_F32, 10);
    step_is_at_most("mlp-s", WEFT_F32, 14);
    step_is_at_most("mlp-s", WEFT_BF16, 22);
    step_is_at_most("widedeep", WEFT_F32, 27);
}

/* ---- every call fails once ------------------------------------------------------------------- */

/* A convolution, its gradients, and an update: calls of cuDNN. */
static weft_status begin_conv(struct run *r)
{
    struct workload *w = &r->w;
    weft_optim o;
    weft_val y;
    weft_status st;

    w->batch = 2;
    st = weft_graph_new(r->ctx, &w->graph);
    if (st)
        return st;
    y = feed(w, "x", WEFT_F32, SHAPE(2, 5, 5, 4), 0);
    y = conv(w->graph, "first", y, 4, 8);
    y = conv(w->graph, "second", y, 8, 8);
    w->loss = weft_l2_loss(w->graph, 1, &y);
    st = weft_graph_status(w->graph);
    if (!st)
        st = weft_optim_init(&o, "sgd", "learning_rate=0.01");
    if (!st)
        st = weft_minimize(w->graph, w->loss, &o, 0, NULL, MAX_UPDATES, w->updates, &w->n_updates);
    return st ? st
              : weft_fn_new(w->graph,
                            WEFT_OPTS(weft_fn_opts, .n_feeds = w->n_feeds, .feeds = w->feed,
                                      .n_fetches = 1, .fetches = &w->loss,
                                      .n_updates = w->n_updates, .updates = w->updates),
                            &r->fn);
}

/* Three steps; *n: calls that were made. */
static weft_status whole(bool of_conv, int fail_at, int *n)
{
    struct run r = {0};
    int before = fake_cuda_calls();
    float loss = 0;
    weft_status st;

    fake_cuda_fail(fail_at);
    st = open_gpu(&r.ctx);
    if (!st)
        st = of_conv ? begin_conv(&r) : begin(&r, "softmax64");
    for (int i = 0; i < 3 && !st; i++)
        st = one_step(&r, &loss);
    *n = fake_cuda_calls() - before;
    fake_cuda_fail(0);
    finish(&r);
    return st;
}

static void fail_every_call(bool of_conv, double least)
{
    int n, unused, reported = 0;

    needs_kernels();
    ok(whole(of_conv, 0, &n));
    for (int i = 1; i <= n; i++) {
        weft_status st = whole(of_conv, i, &unused);

        reported += st != WEFT_OK;
        if (st)
            assert_true(strlen(weft_error()) > 0);
        if (fake_cuda_allocations())
            fail_msg("call %d of %d: %d allocations are left", i, n, fake_cuda_allocations());
    }
    /* Some failures have another way out: no recording, our own product. */
    assert_true(reported > least * n);
}

static void every_failing_call_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    fail_every_call(false, 0.5);
}

/* A call that fails while cuDNN's plan is made leads to the next kernel of the list. */
static void every_failing_call_of_cudnn_is_survived_or_reported(void **state)
{
    (void)state;
    fail_every_call(true, 0.2);
}

/* Without cuDNN, the same training; and with it, the plan names the engine. */
static void convolutions_name_their_engine(void **state)
{
    struct run r = {0};

    (void)state;
    needs_kernels();
    for (int with = 1; with >= 0; with--) {
        char *text = NULL;

        fake_cuda_missing(with ? NULL : "libcudnn");
        ok(open_gpu(&r.ctx));
        ok(begin_conv(&r));
        ok(weft_fn_explain(r.fn, r.w.data, NULL, &text));
        /* the fourth of five: the first does not repeat, the second is TF32, the third refuses */
        if (with != (strstr(text, "cudnn-e3#4/5") != NULL) ||
            with == (strstr(text, "cublasLt-conv") != NULL))
            fail_msg("%s cuDNN: %s", with ? "with" : "without", text);
        weft_text_free(r.ctx, text);
        finish(&r);
        fake_cuda_missing(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_driver_is_named_with_its_package),
        cmocka_unit_test(missing_function_is_named),
        cmocka_unit_test(every_kernel_that_is_asked_for_is_compiled),
        cmocka_unit_test(system_driver_counts_or_says_why_not),
        cmocka_unit_test(trainings_are_the_cpus),
        cmocka_unit_test(compiled_programs_have_the_bits_of_interpreted_ones),
        cmocka_unit_test(compiled_kernels_are_kept_in_the_cache),
        cmocka_unit_test(repeated_runs_are_single_ones),
        cmocka_unit_test(many_runs_in_one_launch_are_single_ones),
        cmocka_unit_test(steps_are_few_pieces_of_work),
        cmocka_unit_test(every_failing_call_is_reported_and_leaks_nothing),
        cmocka_unit_test(every_failing_call_of_cudnn_is_survived_or_reported),
        cmocka_unit_test(convolutions_name_their_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
