/* place_test.c - places in the slab: the same as by the plain definition, each at the lowest offset
 * that is free while it lives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "exec/exec.h"

enum { MOST = 400 };

static bool at_once(const struct wf_lifetime *a, const struct wf_lifetime *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool is_free(const struct wf_lifetime *l, int64_t i, int64_t at)
{
    for (int64_t k = 0; k < i; k++)
        if (at_once(&l[k], &l[i]) && at < l[k].offset + l[k].bytes && l[k].offset < at + l[i].bytes)
            return false;
    return true;
}

/* The lowest offset that is free is 0 or the end of one that is placed. */
static int64_t lowest(const struct wf_lifetime *l, int64_t i)
{
    int64_t best = is_free(l, i, 0) ? 0 : INT64_MAX;

    for (int64_t k = 0; k < i; k++)
        if (l[k].offset + l[k].bytes < best && is_free(l, i, l[k].offset + l[k].bytes))
            best = l[k].offset + l[k].bytes;
    return best;
}

static void check(struct wf_lifetime *l, int64_t n)
{
    int64_t end, top = 0;
    weft_ctx *ctx;

    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(wf_place(ctx, l, n, &end), WEFT_OK);
    weft_ctx_free(ctx);
    for (int64_t i = 0; i < n; i++) {
        assert_true(i == 0 || l[i - 1].bytes >= l[i].bytes);
        assert_int_equal(l[i].offset, lowest(l, i));
        top = wf_max_i64(top, l[i].offset + l[i].bytes);
    }
    assert_int_equal(end, top);
}

static void random_lives_are_placed_as_defined(void **state)
{
    static struct wf_lifetime l[MOST];

    (void)state;
    srand(3);
    for (int round = 0; round < 60; round++) {
        int64_t n = 1 + rand() % (round % 2 ? MOST : 40), length = 1 + rand() % (2 * n);
        int n_sizes = 1 + rand() % 9;

        for (int32_t i = 0; i < n; i++) {
            int64_t first = rand() % n;

            l[i] = (struct wf_lifetime){.value = i + 1,
                                        .first = first,
                                        .last = first + rand() % length,
                                        .bytes = 64 * (1 + rand() % n_sizes)};
        }
        check(l, n);
    }
}

/* As a chain of layers has them: what is computed forward is needed backward, in the opposite
 * order. */
static void nested_lives_are_placed_as_defined(void **state)
{
    static struct wf_lifetime l[MOST];

    (void)state;
    for (int32_t i = 0; i < MOST; i++) {
        int32_t k = i / 2;

        l[i] = (struct wf_lifetime){.value = i + 1,
                                    .first = i % 2 ? MOST - k : k,
                                    .last = i % 2 ? MOST - k + 1 : MOST - k,
                                    .bytes = 64 * (1 + k % 5)};
    }
    check(l, MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_lives_are_placed_as_defined),
        cmocka_unit_test(nested_lives_are_placed_as_defined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
