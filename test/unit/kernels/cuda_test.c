/* cuda_test.c - the device "gpu" on the fake libraries (test/support/fake_cuda.c): what the loader
 * says is missing, every call of a library failing in turn, and trainings compared with the cpu's. */
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

static weft_status begin(struct run *r, const char *name)
{
    weft_status st = workload_build(r->ctx, name, &r->w);

    return st ? st
              : weft_fn_new(r->w.graph,
                            WEFT_OPTS(weft_fn_opts, .n_feeds = r->w.n_feeds, .feeds = r->w.feed,
                                      .n_fetches = 1, .fetches = &r->w.loss,
                                      .n_updates = r->w.n_updates, .updates = r->w.updates),
                            &r->fn);
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

/* ---- every call fails once ------------------------------------------------------------------- */

/* Two steps; *n: calls that were made. */
static weft_status whole(int fail_at, int *n)
{
    struct run r = {0};
    int before = fake_cuda_calls();
    float loss = 0;
    weft_status st;

    fake_cuda_fail(fail_at);
    st = open_gpu(&r.ctx);
    if (!st)
        st = begin(&r, "softmax64");
    for (int i = 0; i < 3 && !st; i++)
        st = one_step(&r, &loss);
    *n = fake_cuda_calls() - before;
    fake_cuda_fail(0);
    finish(&r);
    return st;
}

static void every_failing_call_is_reported_and_leaks_nothing(void **state)
{
    int n, unused, reported = 0;

    (void)state;
    needs_kernels();
    ok(whole(0, &n));
    for (int i = 1; i <= n; i++) {
        weft_status st = whole(i, &unused);

        reported += st != WEFT_OK;
        if (st)
            assert_true(strlen(weft_error()) > 0);
        if (fake_cuda_allocations())
            fail_msg("call %d of %d: %d allocations are left", i, n, fake_cuda_allocations());
    }
    /* Some failures have another way out: no recording, our own product. */
    assert_true(reported > n / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_driver_is_named_with_its_package),
        cmocka_unit_test(missing_function_is_named),
        cmocka_unit_test(system_driver_counts_or_says_why_not),
        cmocka_unit_test(trainings_are_the_cpus),
        cmocka_unit_test(repeated_runs_are_single_ones),
        cmocka_unit_test(every_failing_call_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
