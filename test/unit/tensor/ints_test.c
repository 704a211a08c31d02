/* ints_test.c - integers of one type as those of another: the same number, or the nearest one that
 * the type has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tensor/tensor.h"

static const weft_dtype types[] = {WEFT_I8, WEFT_U8, WEFT_BOOL, WEFT_I32, WEFT_I64};
static const int64_t lowest[] = {INT8_MIN, 0, 0, INT32_MIN, INT64_MIN};
static const int64_t highest[] = {INT8_MAX, UINT8_MAX, 1, INT32_MAX, INT64_MAX};

static int64_t clipped(int64_t v, int type)
{
    if (types[type] == WEFT_BOOL)
        return v != 0;
    return v < lowest[type] ? lowest[type] : v > highest[type] ? highest[type] : v;
}

static void integers_become_the_nearest_of_the_other_type(void **state)
{
    static const int64_t numbers[] = {
        0,         1,         -1,       2,        9,         127,       128,       -128,
        -129,      255,       256,      65536,    INT32_MAX, INT32_MIN, 1LL << 31, -(1LL << 40),
        INT64_MAX, INT64_MIN, INT8_MIN, UINT8_MAX};
    enum { N = sizeof numbers / sizeof *numbers };

    (void)state;
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            int64_t from[N] = {0}, to[N] = {0};

            for (int i = 0; i < N; i++)
                wf_set_int(from, types[a], i, clipped(numbers[i], a));
            wf_convert_ints(from, types[a], N, to, types[b]);
            for (int i = 0; i < N; i++)
                assert_int_equal(wf_get_int(to, types[b], i), clipped(clipped(numbers[i], a), b));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_become_the_nearest_of_the_other_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
