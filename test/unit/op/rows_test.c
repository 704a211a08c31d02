/* rows_test.c - what the flags of a row promise holds for its shape rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "op/op.h"

enum { MAX_IN = 3 };

/* Does the rule take these operands and give the shape [3, 4]? */
static bool takes(const struct wf_op *op, int n_in, const struct wf_type *in)
{
    struct wf_attr values[WF_MAX_ATTRS];
    struct wf_type out = {0}, full = wf_type_of(WEFT_F32, 2, (int64_t[]){3, 4});
    struct wf_infer r = {op, values, n_in, 1, in, &out};

    for (int i = 0; i < op->n_attrs; i++)
        values[i] = op->attr[i].value;
    return !op->infer(&r) && wf_type_same_shape(&out, &full);
}

/* Operands of shape [3, 4] in dtypes that the rule takes; false: there are none. */
static bool full_operands(const struct wf_op *op, int n_in, struct wf_type *in)
{
    static const weft_dtype dtypes[][MAX_IN] = {{WEFT_F32, WEFT_F32, WEFT_F32},
                                                {WEFT_BOOL, WEFT_BOOL, WEFT_BOOL},
                                                {WEFT_BOOL, WEFT_F32, WEFT_F32}};

    for (int d = 0; d < 3; d++) {
        for (int i = 0; i < n_in; i++)
            in[i] = wf_type_of(dtypes[d][i], 2, (int64_t[]){3, 4});
        if (takes(op, n_in, in))
            return true;
    }
    return false;
}

/* A pass reads one element in place of a tensor full of it where, and only where, the row says
 * so. */
static void the_spread_flag_is_what_the_shape_rule_does(void **state)
{
    weft_ctx *ctx = NULL;
    int n_spread = 0, n_others = 0;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    assert_int_equal(wf_ops_ensure(ctx), WEFT_OK);
    for (int id = 0; id < wf_op_count(ctx); id++) {
        const struct wf_op *op = wf_op_row(ctx, id);
        int n_in = op->n_in_max < 0 ? 2 : op->n_in_max;
        struct wf_type in[MAX_IN];
        bool all = true;

        if (!(op->flags & WF_EW)) {
            assert_false(op->flags & WF_SPREAD);
            continue;
        }
        if (n_in < 2)
            continue;
        assert_true(n_in <= MAX_IN);
        assert_true(full_operands(op, n_in, in));
        for (int i = 0; i < n_in; i++)
            for (int rank = 0; rank < 3; rank++) {
                struct wf_type was = in[i];

                in[i] = wf_type_of(was.dtype, rank, (int64_t[]){1, 1});
                all = all && takes(op, n_in, in);
                in[i] = was;
            }
        if (all != ((op->flags & WF_SPREAD) != 0))
            fail_msg("%s: its rule %s every operand", op->name,
                     all ? "broadcasts" : "does not broadcast");
        n_spread += all;
        n_others += !all;
    }
    assert_true(n_spread > 15);
    assert_true(n_others > 15);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_spread_flag_is_what_the_shape_rule_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
