/* nomem_test.c - the error of a failed allocation: the limit or the system, and how many bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base.h"

static void a_limit_is_named_with_the_bytes_that_were_asked_for(void **state)
{
    weft_ctx *ctx = NULL;

    (void)state;
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 1 << 20), &ctx), 0);
    assert_null(wf_alloc(ctx, 5 << 20));
    assert_int_equal(wf_err_nomem(ctx, 0, "a list"), WEFT_ELIMIT);
    assert_non_null(strstr(weft_error(), "a list: 5242880 bytes exceed"));
    assert_null(wf_alloc_n(ctx, INT64_MAX, 16));
    assert_int_equal(wf_err_nomem(ctx, 0, "a list"), WEFT_ELIMIT);
    assert_int_equal(wf_err_nomem(ctx, 16, "a list"), WEFT_ENOMEM); /* these would fit */
    weft_ctx_free(ctx);
}

static void without_a_limit_the_memory_is_out(void **state)
{
    weft_ctx *ctx = NULL;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    assert_null(wf_alloc_n(ctx, INT64_MAX, 16));
    assert_int_equal(wf_err_nomem(ctx, 0, "a list"), WEFT_ENOMEM);
    assert_non_null(strstr(weft_error(), "a list: out of memory ("));
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_is_named_with_the_bytes_that_were_asked_for),
        cmocka_unit_test(without_a_limit_the_memory_is_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
