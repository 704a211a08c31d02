/* xxh64_test.c - the checksum is the one everybody else computes, however the bytes arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <string.h>

#include "ckpt/ckpt.h"

/* Bytes 0, 1, 2, … (mod 251), so that 8-byte words differ. */
static void fill(unsigned char *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(i % 251);
}

static void known_texts_have_known_sums(void **state)
{
    static const struct {
        const char *text;
        uint64_t sum;
    } rows[] = {
        {"", 0xef46db3751d8e999u},
        {"a", 0xd24ec4f1a98c6e5bu},
        {"abc", 0x44bc2cf5ad770999u},
        {"The quick brown fox jumps over the lazy dog", 0x0b242d361fda71bcu},
    };

    (void)state;
    for (int i = 0; i < WF_COUNT(rows); i++)
        assert_true(wf_xxh64(rows[i].text, (int64_t)strlen(rows[i].text)) == rows[i].sum);
}

/* The sums were made by the reference implementation (Python's xxhash): all branches of tail and
 * stripe. */
static void lengths_around_the_stripe(void **state)
{
    static const struct {
        int n;
        uint64_t sum;
    } rows[] = {
        {1, 0xe934a84adb052768u},    {3, 0xe5c7bb4533bc65ddu},   {4, 0xffced8604453cc1eu},
        {5, 0xdd0274386e26030cu},    {7, 0x14cc643f630c72d2u},   {8, 0x884a173614b81b8du},
        {9, 0x67d85784a7c78c5bu},    {12, 0x424af23f1f08dca5u},  {15, 0xa948f5f0f6abac2du},
        {16, 0x44b6ef2fb84169f7u},   {31, 0xc346d2b59b4d8ee1u},  {32, 0xcbf59c5116ff32b4u},
        {33, 0x0c535d1acafb8eadu},   {36, 0xdde0ef85e3aef05cu},  {40, 0xf5da40f1b11741e9u},
        {63, 0xe26aa9e2a95f8e4fu},   {64, 0xf7c67301db6713f0u},  {65, 0xc31eb63b2ae4465bu},
        {100, 0x6ac1e58032166597u},  {255, 0x566d96b832b967c1u}, {1000, 0xf306f04aa88b54d3u},
        {1001, 0x7ab681661c7ce847u},
    };
    unsigned char bytes[1001];

    (void)state;
    fill(bytes, sizeof bytes);
    for (int i = 0; i < WF_COUNT(rows); i++)
        if (wf_xxh64(bytes, rows[i].n) != rows[i].sum)
            fail_msg("%d bytes: %016llx", rows[i].n,
                     (unsigned long long)wf_xxh64(bytes, rows[i].n));
}

static void pieces_give_the_sum_of_the_whole(void **state)
{
    unsigned char bytes[300];
    uint64_t want;

    (void)state;
    fill(bytes, sizeof bytes);
    want = wf_xxh64(bytes, sizeof bytes);
    for (int a = 0; a <= 100; a++)
        for (int b = a; b <= 300; b += 7) {
            struct wf_xxh64 h;

            wf_xxh64_init(&h);
            wf_xxh64_add(&h, bytes, a);
            wf_xxh64_add(&h, bytes + a, b - a);
            assert_true(wf_xxh64_end(&h) == wf_xxh64(bytes, b)); /* and it may go on */
            wf_xxh64_add(&h, bytes + b, 300 - b);
            assert_true(wf_xxh64_end(&h) == want);
        }
}

static void unaligned_bytes_have_the_same_sum(void **state)
{
    unsigned char bytes[128], moved[136];

    (void)state;
    fill(bytes, sizeof bytes);
    for (int by = 0; by < 8; by++) {
        memcpy(moved + by, bytes, sizeof bytes);
        assert_true(wf_xxh64(moved + by, sizeof bytes) == wf_xxh64(bytes, sizeof bytes));
    }
}

static void every_flipped_bit_changes_it(void **state)
{
    unsigned char bytes[77];
    uint64_t want;

    (void)state;
    fill(bytes, sizeof bytes);
    want = wf_xxh64(bytes, sizeof bytes);
    for (int i = 0; i < 8 * 77; i++) {
        bytes[i / 8] ^= (unsigned char)(1 << (i % 8));
        assert_true(wf_xxh64(bytes, sizeof bytes) != want);
        bytes[i / 8] ^= (unsigned char)(1 << (i % 8));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_known_sums),
        cmocka_unit_test(lengths_around_the_stripe),
        cmocka_unit_test(pieces_give_the_sum_of_the_whole),
        cmocka_unit_test(unaligned_bytes_have_the_same_sum),
        cmocka_unit_test(every_flipped_bit_changes_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
