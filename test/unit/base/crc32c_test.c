/* CRC32C: the published values, and the instruction against the table for every length and
 * place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"

static void golden_values(void **state)
{
    static const char zeros[32];

    (void)state;
    assert_int_equal(wf_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(wf_crc32c_table(0, "123456789", 9), 0xe3069283);
    assert_int_equal(wf_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(wf_crc32c(0, zeros, 0), 0);
}

static unsigned char bytes[20000];

static void fill(void)
{
    uint32_t x = 1;

    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

static void every_length_and_place_agrees_with_the_table(void **state)
{
    (void)state;
    fill();
    for (int64_t n = 0; n < 400; n++)
        for (int64_t at = 0; at < 9; at++)
            assert_int_equal(wf_crc32c(0, bytes + at, n), wf_crc32c_table(0, bytes + at, n));
    for (int64_t n = 1000; n < 1800; n++)
        assert_int_equal(wf_crc32c(7, bytes + n % 67, n), wf_crc32c_table(7, bytes + n % 67, n));
    for (int64_t n = 3000; n < 19000; n += 517) {
        assert_int_equal(wf_crc32c(5, bytes + 3, n), wf_crc32c_table(5, bytes + 3, n));
        assert_int_equal(wf_crc32c_chains(5, bytes + 3, n), wf_crc32c_table(5, bytes + 3, n));
    }
}

static void pieces_continue_each_other(void **state)
{
    (void)state;
    fill();
    for (int64_t cut = 0; cut <= 100; cut++)
        assert_int_equal(wf_crc32c(wf_crc32c(0, bytes, cut), bytes + cut, 100 - cut),
                         wf_crc32c(0, bytes, 100));
}

static void three_at_once_are_each_their_own(void **state)
{
    (void)state;
    fill();
    for (int64_t n = 0; n < 8000; n += n < 60 ? 1 : 333) {
        const void *p[3] = {bytes, bytes + 100, bytes + 1001};
        const int64_t len[3] = {n, n / 2 + 3, n + 9};
        uint32_t crc[3] = {0, 1, 2};

        wf_crc32c_3(p, len, crc);
        for (int k = 0; k < 3; k++)
            assert_int_equal(crc[k], wf_crc32c_table((uint32_t)k, p[k], len[k]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_values),
        cmocka_unit_test(every_length_and_place_agrees_with_the_table),
        cmocka_unit_test(pieces_continue_each_other),
        cmocka_unit_test(three_at_once_are_each_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
