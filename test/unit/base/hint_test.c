/* hint_test.c - the nearest word, as a suggestion in an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/base.h"

static const char *const words[] = {"adam", "adamax", "sgd"};

static void a_near_word_is_suggested(void **state)
{
    (void)state;
    assert_string_equal(wf_did_you_mean("adm", words, 3).text, ", did you mean 'adam'?");
    assert_string_equal(wf_did_you_mean("nothing_like_it", words, 3).text, "");
    assert_string_equal(wf_did_you_mean("adm", words, 0).text, "");
    assert_string_equal(wf_did_you_mean("", NULL, 0).text, "");
    assert_string_equal(wf_hint_of("val_", "loss").text, ", did you mean 'val_loss'?");
    assert_string_equal(wf_hint_of("val_", NULL).text, "");
}

/* Of words of any length: the distance is only found for short ones. */
static void no_word_is_near_to_a_very_long_one(void **state)
{
    char word[400];

    (void)state;
    for (size_t n = 1; n < sizeof word; n++) {
        memset(word, 'x', n);
        word[n] = 0;
        if (weft_nearest(word, words, 3) && n > 4)
            fail_msg("%zu letters x: %s", n, weft_nearest(word, words, 3));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_near_word_is_suggested),
        cmocka_unit_test(no_word_is_near_to_a_very_long_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
