/* Text of files made fit for a terminal: nothing that speaks to it is left, what is printable
 * stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/base.h"

static void printable_text_stays(void **state)
{
    static const char *const texts[] = {"", "plain", "M\xc3\xbcller \\n",
                                        "\xe6\x97\xa5\xf0\x9f\x98\x80", "\xc2\xa0"};
    char out[64];

    (void)state;
    for (int i = 0; i < WF_COUNT(texts); i++)
        assert_string_equal(weft_printable(texts[i], -1, out, sizeof out), texts[i]);
}

static void what_speaks_to_a_terminal_is_escaped(void **state)
{
    static const struct {
        const char *text;
        int64_t n;
        const char *want;
    } cases[] = {
        {"\x1b[31mred", -1, "\\x1b[31mred"},
        {"a\nb\tc\rd", -1, "a\\nb\\tc\\rd"},
        {"a\0b", 3, "a\\x00b"},
        {"\x7f\x08", -1, "\\x7f\\x08"},
        {"\xc2\x9b"
         "31m",
         -1, "\\xc2\\x9b31m"}, /* CSI in one character */
        {"\x9b"
         "31m",
         -1, "\\x9b31m"},
        {"\xc3", -1, "\\xc3"},
        {"\xe6\x97", -1, "\\xe6\\x97"},
        {"\xc0\x9b", -1, "\\xc0\\x9b"}, /* overlong */
        {"\xe0\x82\x9b", -1, "\\xe0\\x82\\x9b"},
        {"\xed\xa0\x80", -1, "\\xed\\xa0\\x80"},
        {"\xff", -1, "\\xff"},
    };
    char out[64];

    (void)state;
    for (int i = 0; i < WF_COUNT(cases); i++)
        assert_string_equal(weft_printable(cases[i].text, cases[i].n, out, sizeof out),
                            cases[i].want);
}

static void what_does_not_fit_is_cut_between_characters(void **state)
{
    char out[8];

    (void)state;
    memset(out, 'x', sizeof out);
    assert_string_equal(weft_printable("ab\x1b"
                                       "c",
                                       -1, out, 6),
                        "ab");
    assert_string_equal(weft_printable("ab\xe6\x97\xa5", -1, out, 5), "ab");
    assert_string_equal(weft_printable("abc", -1, out, 1), "");
}

static void errors_are_one_printable_line(void **state)
{
    (void)state;
    wf_err(WEFT_EDATA, "column '%s'", "a\x1b]0;title\x07\nb");
    assert_string_equal(weft_error(), "column 'a\\x1b]0;title\\x07\\nb'");
    wf_err_wrap(WEFT_EDATA, "%s", "file\x1b[2J.csv");
    assert_string_equal(weft_error(), "file\\x1b[2J.csv: column 'a\\x1b]0;title\\x07\\nb'");
    wf_err_set("x\x1b");
    assert_string_equal(weft_error(), "x\\x1b");
}

static void an_error_may_quote_the_one_before(void **state)
{
    (void)state;
    wf_err(WEFT_EDATA, "the disk is full");
    wf_err(WEFT_EIO, "no checkpoint, and then: %s (%s)", weft_error(), weft_error());
    assert_string_equal(weft_error(),
                        "no checkpoint, and then: the disk is full (the disk is full)");
    wf_err_wrap(WEFT_EIO, "again '%s'", weft_error());
    assert_string_equal(weft_error(),
                        "again 'no checkpoint, and then: the disk is full (the disk is full)': "
                        "no checkpoint, and then: the disk is full (the disk is full)");
    wf_err_set(weft_error() + 6);
    assert_int_equal(weft_error()[0], '\'');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printable_text_stays),
        cmocka_unit_test(what_speaks_to_a_terminal_is_escaped),
        cmocka_unit_test(what_does_not_fit_is_cut_between_characters),
        cmocka_unit_test(errors_are_one_printable_line),
        cmocka_unit_test(an_error_may_quote_the_one_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
