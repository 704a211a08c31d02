/* cast_test.c - every dtype to every other at the edges of their ranges: the rule of weft_cast, by
 * the plain definition, by the fast kernels at each SIMD level, and inside fused programs. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include <weft/weft.h>

#include "tensor/tensor.h"

/* Floats: around whole numbers, around every integer type's ends, not numbers, and what half
 * precision rounds. Integers: ends, and numbers that a double or a float cannot hold. */
static const double floats[] = {0.0,
                                -0.0,
                                0.5,
                                -0.5,
                                0.999,
                                1.0,
                                -1.0,
                                1.9,
                                -1.9,
                                126.9,
                                127.0,
                                127.5,
                                128.0,
                                -128.0,
                                -128.9,
                                -129.0,
                                254.9,
                                255.0,
                                255.9,
                                256.0,
                                300.0,
                                -300.0,
                                65504.0,
                                65519.0,
                                65520.0,
                                1e5,
                                2147483520.,
                                2147483647.,
                                2147483648.,
                                -2147483648.,
                                -2147483904.,
                                1e18,
                                9.2e18,
                                9223372036854775807.,
                                -9223372036854775808.,
                                1e19,
                                -1e19,
                                1e30,
                                -1e30,
                                1e-30,
                                6e-8,
                                1.0 / 3,
                                16777217.,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                1e300,
                                -1e300};
static const int64_t wholes[] = {0,
                                 1,
                                 -1,
                                 2,
                                 -2,
                                 126,
                                 127,
                                 128,
                                 -127,
                                 -128,
                                 -129,
                                 254,
                                 255,
                                 256,
                                 300,
                                 -300,
                                 65535,
                                 65536,
                                 -65536,
                                 16777217,
                                 INT32_MAX,
                                 INT32_MIN,
                                 INT32_MAX + 1ll,
                                 INT32_MIN - 1ll,
                                 (1ll << 60) + (1ll << 36) + 1,
                                 (1ll << 53) + 1,
                                 INT64_MAX,
                                 INT64_MIN,
                                 INT64_MAX - 1,
                                 INT64_MIN + 1};
enum {
    N_FLOATS = sizeof floats / sizeof *floats,
    N_WHOLES = sizeof wholes / sizeof *wholes,
    MOST = 4096
};

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

/* ---- the rule -------------------------------------------------------------------------------- */

/* As C's conversion wraps around. */
static void put_whole(void *to, weft_dtype t, int64_t i, int64_t v)
{
    switch (t) {
    case WEFT_I8: ((int8_t *)to)[i] = (int8_t)v; break;
    case WEFT_U8: ((uint8_t *)to)[i] = (uint8_t)v; break;
    case WEFT_I32: ((int32_t *)to)[i] = (int32_t)v; break;
    case WEFT_I64: ((int64_t *)to)[i] = v; break;
    case WEFT_BOOL: ((uint8_t *)to)[i] = v != 0; break;
    case WEFT_F64: ((double *)to)[i] = (double)v; break;
    case WEFT_F32: ((float *)to)[i] = (float)v; break;
    case WEFT_F16: ((uint16_t *)to)[i] = wf_f32_to_f16((float)v); break;
    default: ((uint16_t *)to)[i] = wf_f32_to_bf16((float)v); break;
    }
}

static int64_t kept(double v, int64_t low, int64_t high)
{
    return isnan(v) ? 0 : v <= (double)low ? low : v >= (double)high ? high : (int64_t)v;
}

static void put_float(void *to, weft_dtype t, int64_t i, double v)
{
    switch (t) {
    case WEFT_I8: put_whole(to, t, i, kept(v, INT8_MIN, INT8_MAX)); break;
    case WEFT_U8: put_whole(to, t, i, kept(v, 0, UINT8_MAX)); break;
    case WEFT_I32: put_whole(to, t, i, kept(v, INT32_MIN, INT32_MAX)); break;
    case WEFT_I64: put_whole(to, t, i, kept(v, INT64_MIN, INT64_MAX)); break;
    case WEFT_BOOL: ((uint8_t *)to)[i] = v != 0; break;
    case WEFT_F64: ((double *)to)[i] = v; break;
    case WEFT_F32: ((float *)to)[i] = (float)v; break;
    case WEFT_F16: ((uint16_t *)to)[i] = wf_f32_to_f16((float)v); break;
    default: ((uint16_t *)to)[i] = wf_f32_to_bf16((float)v); break;
    }
}

static double float_at(const void *x, weft_dtype t, int64_t i)
{
    switch (t) {
    case WEFT_F64: return ((const double *)x)[i];
    case WEFT_F32: return (double)((const float *)x)[i];
    case WEFT_F16: return (double)wf_f16_to_f32(((const uint16_t *)x)[i]);
    default: return (double)wf_bf16_to_f32(((const uint16_t *)x)[i]);
    }
}

static int64_t whole_at(const void *x, weft_dtype t, int64_t i)
{
    switch (t) {
    case WEFT_I8: return ((const int8_t *)x)[i];
    case WEFT_I32: return ((const int32_t *)x)[i];
    case WEFT_I64: return ((const int64_t *)x)[i];
    default: return ((const uint8_t *)x)[i];
    }
}

static void convert(const void *x, weft_dtype from, int64_t i, void *y, weft_dtype to)
{
    if (wf_is_float(from))
        put_float(y, to, i, float_at(x, from, i));
    else
        put_whole(y, to, i, whole_at(x, from, i));
}

/* The edge values in this dtype, over and over: whole vectors, tails, several blocks. */
static int64_t fill(void *x, weft_dtype t, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (wf_is_float(t))
            put_float(x, t, i, floats[i % N_FLOATS]);
        else
            put_whole(x, t, i, wholes[i % N_WHOLES]);
    return n;
}

/* ---- runs ------------------------------------------------------------------------------------ */

struct trial {
    weft_ctx *ctx;
    bool ref, fused;
    const char *name;
};

static uint64_t x_mem[MOST], want_mem[MOST], mid_mem[MOST];
static float zeros[MOST];

static bool same(const void *a, const void *b, weft_dtype t, int64_t i)
{
    int64_t size = weft_dtype_size(t);

    if (wf_is_float(t) && isnan(float_at(a, t, i)) && isnan(float_at(b, t, i)))
        return true;
    return memcmp((const char *)a + i * size, (const char *)b + i * size, (size_t)size) == 0;
}

/* Fused: cast(cast(x, f32) + 0, to), where the zero is fed. */
static void check(const struct trial *r, weft_dtype from, weft_dtype to, int64_t n)
{
    weft_graph *g = NULL;
    weft_fn *fn = NULL;
    weft_val in[2], y;
    weft_tensor feeds[2], got = {.data = NULL};

    ok(weft_graph_new(r->ctx, &g));
    in[0] = weft_placeholder(g, "x", from, 1, &n);
    in[1] = weft_placeholder(g, "zero", WEFT_F32, 1, &n);
    y = r->fused ? weft_cast(g, weft_add(g, weft_cast(g, in[0], WEFT_F32), in[1]), to)
                 : weft_cast(g, in[0], to);
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = r->fused ? 2 : 1, .feeds = in, .n_fetches = 1,
                             .fetches = &y, .reference_kernels = r->ref,
                             .passes_off = r->ref ? WEFT_PASS_ALL : 0),
                   &fn));
    feeds[0] = weft_view(from, x_mem, 1, &n);
    feeds[1] = weft_view(WEFT_F32, zeros, 1, &n);
    ok(weft_fn_run(fn, feeds, &got));
    for (int64_t i = 0; i < n; i++) {
        if (r->fused) {
            convert(x_mem, from, i, mid_mem, WEFT_F32);
            ((float *)mid_mem)[i] += 0.0f;
            convert(mid_mem, WEFT_F32, i, want_mem, to);
        } else {
            convert(x_mem, from, i, want_mem, to);
        }
        if (!same(want_mem, got.data, to, i))
            fail_msg("%s, %s to %s of element %lld (%.17g): %.17g, not %.17g", r->name,
                     weft_dtype_name(from), weft_dtype_name(to), (long long)i,
                     wf_get(x_mem, from, i), wf_get(got.data, to, i), wf_get(want_mem, to, i));
    }
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void check_all(const struct trial *r)
{
    static const int64_t counts[] = {1, N_FLOATS, 2100};

    for (int from = WEFT_F32; from < WEFT_N_DTYPES; from++)
        for (int to = WEFT_F32; to < WEFT_N_DTYPES; to++)
            for (int k = 0; k < 3; k++)
                check(r, (weft_dtype)from, (weft_dtype)to,
                      fill(x_mem, (weft_dtype)from, counts[k]));
}

static void every_pair_by_the_definition(void **state)
{
    struct trial r = {.ref = true, .name = "reference"};

    (void)state;
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &r.ctx));
    check_all(&r);
    r.fused = true;
    check_all(&r);
    weft_ctx_free(r.ctx);
}

static void every_pair_at_every_level_alone_and_fused(void **state)
{
    (void)state;
    for (int level = WEFT_SIMD_PORTABLE; level <= (int)weft_simd_best(); level++)
        for (int fused = 0; fused < 2; fused++) {
            struct trial r = {.fused = fused, .name = weft_simd_name((weft_simd)level)};

            ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .simd = (weft_simd)level),
                            &r.ctx));
            check_all(&r);
            weft_ctx_free(r.ctx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_by_the_definition),
        cmocka_unit_test(every_pair_at_every_level_alone_and_fused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
