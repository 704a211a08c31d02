/* format_test.c - wf_snprintf writes what the C library writes in the C locale, in every locale. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/number.h"
#include "support/locale.h"

/* The C library's text, in the C locale whatever the program runs in. */
__attribute__((format(printf, 3, 4))) static int plain(char *to, size_t room, const char *fmt, ...)
{
    wf_locale saved = wf_plain_locale_enter();
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(to, room, fmt, args);
    va_end(args);
    wf_plain_locale_leave(saved);
    return n;
}

#define SAME(...)                                             \
    do {                                                      \
        char want_[2000], got_[2000];                         \
        int n_ = plain(want_, sizeof want_, __VA_ARGS__);     \
        int m_ = wf_snprintf(got_, sizeof got_, __VA_ARGS__); \
                                                              \
        assert_string_equal(got_, want_);                     \
        assert_int_equal(m_, n_);                             \
    } while (0)

static const double values[] = {0.0,     -0.0,     1.0,        -1.5,  0.1,
                                1.0 / 3, 1e-5,     1e21,       1e300, 5e-324,
                                0.5,     2.5,      123456.789, -1e-7, 999999.5,
                                9.9995,  INFINITY, -INFINITY,  NAN,   1.7976931348623157e308};

static void floats_as_the_c_library_writes_them(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(values); i++) {
        double v = values[i];

        SAME("%g %e %f %G %E %F", v, v, v, v, v, v);
        SAME("%.17g|%.9g|%.0f|%.3e|%.0e|%.1g|%.160e", v, v, v, v, v, v, v);
        SAME("%12.4f|%-12.4f|%012.4f|%+.3g|% .3g|%+012.3e", v, v, v, v, v, v);
        SAME("%*.*f|%-*.*e|%0*.*g", 14, 3, v, 16, 2, v, 11, 4, v);
    }
}

static void integers_and_texts_as_the_c_library_writes_them(void **state)
{
    static const int64_t whole[] = {0,         1,         -1,        42,       -99999,
                                    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    int x = 0;

    (void)state;
    for (int i = 0; i < WF_COUNT(whole); i++) {
        long long v = whole[i];

        SAME("%lld|%20lld|%-20lld|%020lld|%+lld|% lld|%.5lld", v, v, v, v, v, v, v);
        SAME("%llu|%llx|%llX|%#llx|%016llx|%llo", v, v, v, v, v, v);
        SAME("%d|%5d|%u|%x|%hd|%hhd|%hhu|%hx", (int)v, (int)v, (unsigned)v, (unsigned)v, (short)v,
             (signed char)v, (unsigned char)v, (unsigned short)v);
        SAME("%zu|%td|%jd|%ld|%" PRId64 "|%" PRIu64 "|%03" PRId64, (size_t)v, (ptrdiff_t)v,
             (intmax_t)v, (long)v, (int64_t)v, (uint64_t)v, (int64_t)v);
    }
    SAME("%s|%10s|%-10s|%.2s|%.*s|%c|%5c|%%|%.0s", "word", "word", "word", "word", 3, "word", 'c',
         'd', "gone");
    SAME("%*d|%-*d|%*d", 6, 7, 6, 7, -6, 7);
    SAME("%.0d|%.3d|%8.3d|%p", 0, 5, -5, (void *)&x);
}

static void a_text_that_does_not_fit_is_cut_and_counted(void **state)
{
    char small[8];

    (void)state;
    memset(small, 'x', sizeof small);
    assert_int_equal(wf_snprintf(small, 4, "%.3f", 3.14159), 5);
    assert_string_equal(small, "3.1");
    assert_int_equal(small[4], 'x');
    assert_int_equal(wf_snprintf(NULL, 0, "%s-%d", "abc", 12), 6);
    assert_int_equal(wf_snprintf(small, 1, "%d", 7), 1);
    assert_string_equal(small, "");
}

static void the_same_in_every_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "ps_AF.UTF-8", "tr_TR.UTF-8"};
    char text[WF_NUMBER_TEXT];
    double back;

    for (int i = 0; i < WF_COUNT(names); i++) {
        const char *why = locale_missing(names[i]);

        if (why) {
            print_message("skipped: %s\n", why);
            skip();
        }
        floats_as_the_c_library_writes_them(state);
        integers_and_texts_as_the_c_library_writes_them(state);
        for (int k = 0; k < WF_COUNT(values); k++) {
            assert_true(wf_text_f64(wf_g_text(values[k], text), &back));
            assert_true(back == values[k] || (isnan(back) && isnan(values[k])));
            assert_null(strchr(text, ','));
            assert_true(wf_parse_f64(text, wf_format_f64(values[k], text), &back));
            assert_true(back == values[k] || (isnan(back) && isnan(values[k])));
        }
        assert_true(wf_same_word("TITLE", "title"));
        assert_true(wf_same_word("", "") && !wf_same_word("I", "") && !wf_same_word("a", "b"));
        assert_int_equal(wf_to_lower('I'), 'i');
        assert_string_equal(wf_errno_text(ENOSPC), "No space left on device");
        assert_false(wf_text_f64("0,5", &back));
    }
    setlocale(LC_ALL, "C");
}

static void the_hosts_locale_is_left_as_it_was(void **state)
{
    const char *why = locale_missing("de_DE.UTF-8");
    char text[16];
    wf_locale saved;

    (void)state;
    if (why)
        skip();
    saved = wf_plain_locale_enter();
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0.5");
    wf_plain_locale_leave(saved);
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5"); /* so this test can fail */
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_as_the_c_library_writes_them),
        cmocka_unit_test(integers_and_texts_as_the_c_library_writes_them),
        cmocka_unit_test(a_text_that_does_not_fit_is_cut_and_counted),
        cmocka_unit_test(the_same_in_every_locale),
        cmocka_unit_test(the_hosts_locale_is_left_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
