/* golden.h - what the golden tests share: the files of numbers, the generator of inputs and
 * weights, the comparison, and the ways to run. tools/golden.py describes the generator and writes
 * the files.
 *
 * A failed comparison names the case, the tensor, the worst element and how far it is off. */
#ifndef WF_TEST_GOLDEN_H
#define WF_TEST_GOLDEN_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "weft/weft.h"

#define SHAPE(...)                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }

/* Fails the test with the library's text. */
#define OK(call)                                     \
    do {                                             \
        if (call)                                    \
            fail_msg("%s: %s", #call, weft_error()); \
    } while (0)

/* ---- ways to run ----------------------------------------------------------------------------- */

struct variant {
    const char *name;
    weft_simd simd;
    weft_kernels kernels;
    unsigned passes_off;
    bool reference;
};

static const struct variant variants[] = {
    {"default", WEFT_SIMD_AUTO, WEFT_KERNELS_BEST, 0, false},
    {"reference kernels", WEFT_SIMD_AUTO, WEFT_KERNELS_BEST, 0, true},
    {"passes off", WEFT_SIMD_AUTO, WEFT_KERNELS_BEST, WEFT_PASS_ALL, false},
    {"portable", WEFT_SIMD_PORTABLE, WEFT_KERNELS_PORTABLE, 0, false},
    {"avx2", WEFT_SIMD_AVX2, WEFT_KERNELS_BEST, 0, false},
    {"avx512", WEFT_SIMD_AVX512, WEFT_KERNELS_BEST, 0, false},
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

/* One test: a case under a variant. */
struct trial {
    int which;
    const struct variant *how;
    char name[80];
};

/* A test for every case of a list and every variant this CPU can run; returns how many. */
static inline int list_trials(int n_cases, const char *const *names, void (*test)(void **),
                              struct trial *trials, struct CMUnitTest *tests)
{
    int n = 0;

    for (int i = 0; i < n_cases; i++)
        for (int j = 0; j < N_VARIANTS; j++) {
            if (variants[j].simd > weft_simd_best())
                continue;
            trials[n] = (struct trial){.which = i, .how = &variants[j]};
            snprintf(trials[n].name, sizeof trials[n].name, "%s, %s", names[i], variants[j].name);
            tests[n] = (struct CMUnitTest){
                .name = trials[n].name, .test_func = test, .initial_state = &trials[n]};
            n++;
        }
    return n;
}

/* ---- files ----------------------------------------------------------------------------------- */

static inline json_t *read_golden(const char *name)
{
    char path[512];
    json_error_t e;
    json_t *j;

    snprintf(path, sizeof path, "%s/golden/%s.json", WF_TEST_DIR, name);
    j = json_load_file(path, 0, &e);
    if (!j)
        fail_msg("%s: line %d: %s", path, e.line, e.text);
    return j;
}

static inline const char *string_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    if (!s)
        fail_msg("the file has no text '%s'", key);
    return s;
}

/* ---- the generator --------------------------------------------------------------------------- */

static inline uint32_t stream_of(const char *scope, const char *name)
{
    uint32_t s = 2166136261u;

    for (; *scope; scope++)
        s = (s ^ (unsigned char)*scope) * 16777619u;
    s = (s ^ '/') * 16777619u;
    for (; *name; name++)
        s = (s ^ (unsigned char)*name) * 16777619u;
    return s;
}

static inline uint32_t next_of(uint32_t *s)
{
    *s = *s * 1664525u + 1013904223u;
    return *s >> 8;
}

/* The tensor that an entry of a file stands for. The caller frees its data. */
static inline weft_tensor make_tensor(const char *scope, const json_t *spec)
{
    const json_t *shape = json_object_get(spec, "shape"), *below = json_object_get(spec, "below");
    double scale = json_number_value(json_object_get(spec, "scale"));
    double offset = json_number_value(json_object_get(spec, "offset"));
    uint32_t s = stream_of(scope, string_of(spec, "name"));
    weft_tensor t = {.rank = (int)json_array_size(shape)};

    assert_true(t.rank <= WEFT_MAX_RANK);
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    OK(weft_dtype_parse(string_of(spec, "dtype"), &t.dtype));
    t.data = malloc((size_t)weft_tensor_bytes(&t));
    assert_non_null(t.data);
    for (int64_t i = 0; i < weft_tensor_count(&t); i++) {
        uint32_t k = next_of(&s);

        if (below)
            k %= (uint32_t)json_integer_value(below);
        if (t.dtype == WEFT_I32)
            ((int32_t *)t.data)[i] = (int32_t)k;
        else if (t.dtype == WEFT_BOOL)
            ((uint8_t *)t.data)[i] = k != 0;
        else
            ((float *)t.data)[i] =
                below ? (float)k : (float)(((double)k - 0x1p23) / 0x1p23 * scale + offset);
    }
    return t;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* The largest difference, relative to the largest element expected, must be within the tolerance.
 * Returns it. */
static inline double compare(const char *scope, const char *name, const weft_tensor *got,
                             const json_t *want, double tolerance)
{
    int64_t n = weft_tensor_count(got), at = 0;
    double largest = 0, worst = 0;

    assert_int_equal(got->dtype, WEFT_F32);
    if ((size_t)n != json_array_size(want))
        fail_msg("%s: %s: %lld elements, the file has %zu", scope, name, (long long)n,
                 json_array_size(want));
    for (int64_t i = 0; i < n; i++) {
        double w = json_number_value(json_array_get(want, (size_t)i));
        double d = fabs((double)((const float *)got->data)[i] - w);

        largest = fabs(w) > largest ? fabs(w) : largest;
        d = isnan(d) ? INFINITY : d;
        if (d > worst) {
            worst = d;
            at = i;
        }
    }
    if (!(worst <= tolerance * largest))
        fail_msg("%s: %s: element %lld is %.9g, expected %.9g: off by %.2g of the largest", scope,
                 name, (long long)at, (double)((const float *)got->data)[at],
                 json_number_value(json_array_get(want, (size_t)at)), worst / largest);
    return largest > 0 ? worst / largest : 0;
}

#endif
