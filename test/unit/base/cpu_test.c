/* cpu_test.c - a SIMD level is chosen only where the CPU has every instruction set it is compiled
 * for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include "base/base.h"

static const char *const names[] = {"avx2",     "fma",      "f16c",     "avx512f",
                                    "avx512bw", "avx512dq", "avx512vl", "avx512bf16"};

static void one_missing_instruction_set_lowers_the_level(void **state)
{
    (void)state;
    assert_int_equal(wf_simd_of(0), WEFT_SIMD_PORTABLE);
    assert_int_equal(wf_simd_of(WF_CPU_ALL), WEFT_SIMD_AVX512BF16);
    assert_int_equal(wf_simd_of(WF_CPU_AVX2 | WF_CPU_FMA), WEFT_SIMD_PORTABLE); /* no F16C */
    for (int i = 0; i < WF_COUNT(names); i++)
        assert_int_equal(wf_simd_of(WF_CPU_ALL & ~(1u << i)), i < 3   ? WEFT_SIMD_PORTABLE
                                                              : i < 7 ? WEFT_SIMD_AVX2
                                                                      : WEFT_SIMD_AVX512);
    assert_int_equal(weft_simd_best(), wf_simd_of(wf_cpu_features()));
}

/* Every -m flag of set(WEFT_FLAGS_<level> …) is among what the level needs, and nothing else is. */
static void levels_need_what_they_are_compiled_for(void **state)
{
    static const struct {
        const char *set;
        weft_simd level;
    } levels[] = {{"set(WEFT_FLAGS_AVX2 ", WEFT_SIMD_AVX2},
                  {"set(WEFT_FLAGS_AVX512 ", WEFT_SIMD_AVX512},
                  {"set(WEFT_FLAGS_AVX512BF16 ", WEFT_SIMD_AVX512BF16}};
    char path[512], text[1 << 16] = "";
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s/../CMakeLists.txt", WF_TEST_DIR);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    for (int l = 0; l < WF_COUNT(levels); l++) {
        const char *p = strstr(text, levels[l].set), *end;
        unsigned told = 0;

        assert_non_null(p);
        end = strchr(p, ')');
        while ((p = strstr(p, " -m")) && p < end) {
            size_t n = strcspn(p += 3, " \n)");
            int i = 0;

            while (i < WF_COUNT(names) && (strlen(names[i]) != n || strncmp(p, names[i], n)))
                i++;
            if (i < WF_COUNT(names))
                told |= 1u << i | (i == 3 ? WF_CPU_AVX2 : 0); /* AVX-512 implies AVX2 */
            else if (strncmp(p, "prefer-vector-width", 19))
                fail_msg("-m%.*s is not checked", (int)n, p);
        }
        assert_int_equal(told, wf_simd_needs(levels[l].level));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_missing_instruction_set_lowers_the_level),
        cmocka_unit_test(levels_need_what_they_are_compiled_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
