/* attr_test.c - attributes as text: what a row takes, what is given to it, and what is said when
 * they do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/attr.h"

static weft_ctx *ctx;
static struct wf_arena arena;
static struct wf_attr_spec spec[WF_MAX_ATTRS];
static struct wf_attr value[WF_MAX_ATTRS];
static int n_specs;
static int64_t memory;

static int setup(void **state)
{
    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    memory = weft_ctx_memory(ctx);
    wf_arena_init(&arena, ctx);
    memset(spec, 0, sizeof spec);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wf_arena_free(&arena);
    assert_int_equal(weft_ctx_memory(ctx), memory);
    weft_ctx_free(ctx);
    return 0;
}

static void takes(const char *text)
{
    assert_int_equal(wf_attr_specs(&arena, "row", text, spec, &n_specs), WEFT_OK);
}

static weft_status give(const char *text)
{
    return wf_attr_values(&arena, "row", spec, n_specs, text, value);
}

static const struct wf_attr *of(const char *name)
{
    return wf_attr_find(spec, n_specs, value, name);
}

static void refuses(const char *text, weft_status st, const char *word)
{
    assert_int_equal(give(text), st);
    if (!strstr(weft_error(), word))
        fail_msg("'%s': '%s' is not in '%s'", text, word, weft_error());
}

static void defaults_of_every_type(void **state)
{
    (void)state;
    takes("i:i=-3 f:f=0.5 b:b=1 s:s=same e:s= l:l= m:l=1 n:l=[2,3] F:F=[0.5,inf] t:t=f16");
    assert_int_equal(give(NULL), WEFT_OK);
    assert_int_equal(of("i")->i, -3);
    assert_true(of("f")->f == 0.5);
    assert_int_equal(of("b")->i, 1);
    assert_string_equal(of("s")->s, "same");
    assert_string_equal(of("e")->s, "");
    assert_int_equal(of("l")->n, 0);
    assert_int_equal(of("m")->n, 1);
    assert_int_equal(of("m")->ints[0], 1);
    assert_int_equal(of("n")->n, 2);
    assert_int_equal(of("n")->ints[1], 3);
    assert_true(of("F")->floats[0] == 0.5 && of("F")->floats[1] > 1e308);
    assert_int_equal(of("t")->i, WEFT_F16);
    for (int i = 0; i < n_specs; i++)
        assert_false(value[i].given);
}

static void given_values_of_every_type(void **state)
{
    (void)state;
    takes("i:i f:f b:b s:s l:l F:F t:t");
    assert_int_equal(give("i=7 f=1e-3  b=True\ts=random_normal(0, 0.05)\nl=(1,2) F=3 t=i64"),
                     WEFT_OK);
    assert_int_equal(of("i")->i, 7);
    assert_true(of("f")->f == 1e-3);
    assert_int_equal(of("b")->i, 1);
    assert_string_equal(of("s")->s, "random_normal(0, 0.05)");
    assert_int_equal(of("l")->n, 2);
    assert_int_equal(of("l")->ints[1], 2);
    assert_int_equal(of("F")->n, 1);
    assert_true(of("F")->floats[0] == 3);
    assert_int_equal(of("t")->i, WEFT_I64);
    for (int i = 0; i < n_specs; i++)
        assert_true(value[i].given);
}

static void lists_in_lists_are_one(void **state)
{
    (void)state;
    takes("l:l=");
    assert_int_equal(give("l=((1,2),(3,4))"), WEFT_OK);
    assert_int_equal(of("l")->n, 4);
    assert_int_equal(of("l")->ints[3], 4);
    assert_int_equal(give("l=[ [1] , 2 ]"), WEFT_OK);
    assert_int_equal(of("l")->n, 2);
    assert_int_equal(give("l=[]"), WEFT_OK);
    assert_int_equal(of("l")->n, 0);
    refuses("l=[1,2", WEFT_EPARSE, "',' or ']'");
    refuses("l=[1)", WEFT_EPARSE, "',' or ']'");
    refuses("l=(1 2)", WEFT_EPARSE, "',' or ')'");
    refuses("l=[1,,2]", WEFT_EPARSE, "an integer");
    refuses("l=[[[[[1]]]]]", WEFT_EPARSE, "fewer brackets");
    refuses("l=1,2", WEFT_EPARSE, "a space");
    refuses("l=", WEFT_EPARSE, "an integer");
}

static void strings_may_be_quoted(void **state)
{
    (void)state;
    takes("s:s=");
    assert_int_equal(give("s=\"two words\""), WEFT_OK);
    assert_string_equal(of("s")->s, "two words");
    assert_int_equal(give("s=\"a\\22b\""), WEFT_OK);
    assert_string_equal(of("s")->s, "a\"b");
    assert_int_equal(give("s=ab,bc->ac"), WEFT_OK);
    assert_string_equal(of("s")->s, "ab,bc->ac");
    refuses("s=\"open", WEFT_EPARSE, "quoted");
    refuses("s=\"a\\0\"", WEFT_EPARSE, "hexadecimal");
}

static void mistakes_are_named(void **state)
{
    (void)state;
    takes("units:i activation:s=linear use_bias:b=1");
    refuses("", WEFT_EINVAL, "'units' must be given");
    refuses("units=3 activation", WEFT_EPARSE, "attribute=value");
    refuses("units=x", WEFT_EPARSE, "an integer");
    refuses("units=3x", WEFT_EPARSE, "an integer");
    refuses("units=3 use_bias=maybe", WEFT_EPARSE, "true or false");
    refuses("units=3 unit=4", WEFT_ENOENT, "did you mean 'units'");
    refuses("units=3 xyzzyplugh=4", WEFT_ENOENT, "has no attribute 'xyzzyplugh'");
    refuses("units=3 units=4", WEFT_EPARSE, "given twice");
}

static void malformed_rows_are_named(void **state)
{
    (void)state;
    assert_int_equal(wf_attr_specs(&arena, "row", "axis", spec, &n_specs), WEFT_EPARSE);
    assert_int_equal(wf_attr_specs(&arena, "row", "axis:q", spec, &n_specs), WEFT_EPARSE);
    assert_int_equal(wf_attr_specs(&arena, "row", "axis:i=x", spec, &n_specs), WEFT_EPARSE);
    assert_int_equal(wf_attr_specs(&arena, "row", "axis:l=1,2", spec, &n_specs), WEFT_EPARSE);
}

static void what_is_written_reads_back(void **state)
{
    struct wf_buf b;
    char *first;

    (void)state;
    takes("i:i f:f g:f b:b s:s u:s e:s l:l F:F t:t");
    wf_buf_init(&b, ctx, 4096);
    assert_int_equal(
        give("i=7 f=0.1 g=0.3333333333333333 b=true s=relu(0.5) u=\"a b\" e=\"\" l=(1,2) "
             "F=[1e-300,2] t=bf16"),
        WEFT_OK);
    for (int i = 0; i < n_specs; i++)
        wf_attr_write(&b, spec[i].name, &value[i], false);
    assert_int_equal(b.st, WEFT_OK);
    assert_string_equal(b.data,
                        " i=7 f=0.1 g=0.3333333333333333 b=true s=relu(0.5) u=\"a b\" e=\"\" "
                        "l=[1,2] F=[1e-300,2] t=bf16");
    first = wf_arena_strdup(&arena, b.data);
    wf_buf_free(&b);
    assert_int_equal(give(first), WEFT_OK);
    for (int i = 0; i < n_specs; i++)
        wf_attr_write(&b, spec[i].name, &value[i], false);
    assert_string_equal(b.data, first);
    wf_buf_free(&b);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults_of_every_type),     TEST(given_values_of_every_type),
        TEST(lists_in_lists_are_one),     TEST(strings_may_be_quoted),
        TEST(mistakes_are_named),         TEST(malformed_rows_are_named),
        TEST(what_is_written_reads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
