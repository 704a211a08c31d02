/* number_test.c - numbers in text: exact, as the C library reads them, by every path; and shortest
 * when written. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/number.h"

static uint64_t state = 12345;
static uint64_t rnd(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int n_cases(int n)
{
    return getenv("WEFT_TEST_QUICK") ? n / 20 : n;
}

static bool same_f32(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static bool same_f64(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* The C library's readers, in the C locale whatever the program runs in. */
static double c_strtod(const char *text)
{
    wf_locale plain = wf_plain_locale_enter();
    double v = strtod(text, NULL);

    wf_plain_locale_leave(plain);
    return v;
}

static float c_strtof(const char *text)
{
    wf_locale plain = wf_plain_locale_enter();
    float v = strtof(text, NULL);

    wf_plain_locale_leave(plain);
    return v;
}

/* Both readers, both types, against the C library. */
static void check(const char *text)
{
    char padded[1200 + WF_NUMBER_SLACK] = {0};
    int64_t n = (int64_t)strlen(text);
    float f = -1, f2 = -1;
    double d = -1, d2 = -1;
    const char *q;

    assert_true(n < 1200);
    memcpy(padded, text, (size_t)n);
    padded[n] = ',';
    if (!wf_parse_f32(text, n, &f) || !wf_parse_f64(text, n, &d))
        fail_msg("%s was not read", text);
    if (!same_f32(f, c_strtof(text)))
        fail_msg("%s: f32 %.9g, strtof %.9g", text, (double)f, (double)c_strtof(text));
    if (!same_f64(d, c_strtod(text)))
        fail_msg("%s: f64 %.17g, strtod %.17g", text, d, c_strtod(text));
    q = wf_fast_f32(padded, &f2);
    if (q && (q != padded + n || !same_f32(f, f2)))
        fail_msg("%s: fast f32 %.9g, not %.9g", text, (double)f2, (double)f);
    q = wf_fast_f64(padded, &d2);
    if (q && (q != padded + n || !same_f64(d, d2)))
        fail_msg("%s: fast f64 %.17g, not %.17g", text, d2, d);
}

static float random_f32(void)
{
    uint32_t bits = (uint32_t)rnd();
    float v;

    memcpy(&v, &bits, sizeof v);
    return isfinite(v) ? v : 1.5f;
}

static double random_f64(void)
{
    uint64_t bits = rnd();
    double v;

    memcpy(&v, &bits, sizeof v);
    return isfinite(v) ? v : 1.5;
}

static void printed_numbers_read_as_strtof_does(void **s)
{
    static const char *const formats[] = {"%.6g", "%.9g", "%.17g", "%.18e", "%.3f", "%.7e", "%.0f"};
    char text[512];

    (void)s;
    for (int i = 0; i < n_cases(600000); i++) {
        const char *f = formats[i % 7];
        double v = i % 3 == 0   ? (double)random_f32()
                   : i % 3 == 1 ? ((double)(int64_t)rnd() / 9.2e18) * 10
                                : random_f64();

        wf_snprintf(text, sizeof text, f, v);
        check(text);
    }
}

/* Digits at random, with points and exponents anywhere. */
static void random_digits_read_as_strtof_does(void **s)
{
    char text[128];

    (void)s;
    for (int i = 0; i < n_cases(300000); i++) {
        int n = 1 + (int)(rnd() % (i % 10 == 0 ? 60 : 20)), at = 0, point = (int)(rnd() % 24) - 4;

        if (rnd() % 2)
            text[at++] = '-';
        for (int k = 0; k < n; k++) {
            if (k == point)
                text[at++] = '.';
            text[at++] = (char)('0' + rnd() % 10);
        }
        text[at] = 0;
        if (rnd() % 3 == 0)
            snprintf(text + at, 16, "e%d", (int)(rnd() % (i % 2 ? 90 : 700)) - (i % 2 ? 45 : 350));
        check(text);
    }
}

/* Midpoints between neighboring floats and doubles, written out in full, and the texts right next
 * to them. */
static void midpoints_round_to_even(void **s)
{
    char text[1200];

    (void)s;
    for (int i = 0; i < n_cases(60000); i++) {
        float a = fabsf(random_f32()), b = nextafterf(a, INFINITY);
        int n;

        if (i % 8 == 0)
            a = (float)(rnd() % 1000) * 1.4e-45f, b = nextafterf(a, INFINITY);
        n = wf_snprintf(text, sizeof text, "%.160e", ((double)a + (double)b) / 2);
        check(text);
        for (char *p = text + n; p > text;
             p--) { /* the last digit that is not zero, one up or down */
            if (*p == 'e') {
                while (p[-1] == '0')
                    p--;
                if (p[-1] != '.' && p[-1] != '9')
                    p[-1]++;
                break;
            }
        }
        check(text);
    }
    check("1.00000005960464477539062500000000000000000000000000000000000000000000000001");
    check("1.000000059604644775390625");
    check("1.00000005960464477539062499999999999999999999999999999999999999999999999999");
    check("9007199254740993");
    check("9007199254740993.0000000000000000000000000000000000000000000001");
    check("2.2250738585072011e-308");
    check("2.2250738585072012e-308");
    check("4.9406564584124654e-324");
    check("2.4703282292062327e-324");
    check("2.4703282292062328e-324");
    check("1.7976931348623157e308");
    check("1.7976931348623158e308");
    check("1.7976931348623159e308");
    check("3.4028235e38");
    check("3.4028235677973366e38");
    check("3.4028235677973367e38");
    check("1.1754943508222875e-38");
    check("1.401298464324817e-45");
    check("7.006492321624085e-46");
    check("7.006492321624086e-46");
    check("16777217");
    check("16777219");
    check("8589973000000001");
}

static void odd_numbers(void **s)
{
    static const char *const good[] = {"0",
                                       "-0",
                                       "0.0",
                                       "-0.0e5",
                                       "1",
                                       "1.",
                                       ".5",
                                       "+1.5",
                                       "-.5",
                                       "1e5",
                                       "1E+05",
                                       "1e-5",
                                       "inf",
                                       "-INF",
                                       "nan",
                                       "Infinity",
                                       "1e400",
                                       "1e-400",
                                       "1e99999999999",
                                       "0e99999999999",
                                       "1e-99999999999",
                                       "00000000000000000000000000000001.5",
                                       "123456789012345678901234567890"};
    static const char *const bad[] = {"",      "-",    ".",   "1e",  "1e+",  "e5",
                                      "1.2.3", "1,5",  " 1",  "1 ",  "0x10", "1f",
                                      "in",    "nano", "--1", "+-1", "1e5.0"};
    char text[1100];
    double d;
    float f;

    (void)s;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        check(good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(wf_parse_f64(bad[i], (int64_t)strlen(bad[i]), &d));
        assert_false(wf_parse_f32(bad[i], (int64_t)strlen(bad[i]), &f));
    }
    memset(text, '7', 1000);
    text[1000] = 0;
    text[1] = '.';
    check(text);
    memset(text, '0', 1000);
    text[1] = '.';
    text[999] = '1';
    check(text);
}

/* A thread that flushes denormals to zero reads the same numbers. */
static void flushing_denormals_changes_nothing(void **s)
{
    static const char *const texts[] = {"4.9406564584124654e-324", "1e-310", "1.5e-40",
                                        "1.401298464324817e-45", "2.2250738585072011e-308"};
    uint64_t mode;

    (void)s;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double want = c_strtod(texts[i]), got = 0;
        float want_f = c_strtof(texts[i]), got_f = 0;

        mode = wf_fpmode_enter(true);
        wf_parse_f64(texts[i], (int64_t)strlen(texts[i]), &got);
        wf_parse_f32(texts[i], (int64_t)strlen(texts[i]), &got_f);
        wf_fpmode_leave(mode);
        assert_true(same_f64(want, got));
        assert_true(same_f32(want_f, got_f));
    }
}

static void integers(void **s)
{
    static const char *const bad[] = {"",
                                      "-",
                                      "+",
                                      "1.0",
                                      "1e3",
                                      " 1",
                                      "9223372036854775808",
                                      "-9223372036854775809",
                                      "99999999999999999999",
                                      "1a"};
    char text[64], padded[64 + WF_NUMBER_SLACK];
    int64_t v;

    (void)s;
    for (int i = 0; i < n_cases(200000); i++) {
        int64_t want = (int64_t)rnd() >> (rnd() % 64), fast;
        const char *q;
        int n = snprintf(text, sizeof text, "%lld", (long long)want);

        assert_true(wf_parse_i64(text, n, &v) && v == want);
        memset(padded, ',', sizeof padded);
        memcpy(padded, text, (size_t)n);
        q = wf_fast_i64(padded, &fast);
        if (q) {
            assert_ptr_equal(q, padded + n);
            assert_int_equal(fast, want);
        } else {
            assert_true(n > 18);
        }
        assert_int_equal(wf_format_i64(want, padded), n);
        assert_memory_equal(padded, text, n);
    }
    assert_true(wf_parse_i64("9223372036854775807", 19, &v) && v == INT64_MAX);
    assert_true(wf_parse_i64("-9223372036854775808", 20, &v) && v == INT64_MIN);
    assert_true(wf_parse_i64("+7", 2, &v) && v == 7);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(wf_parse_i64(bad[i], (int64_t)strlen(bad[i]), &v));
    assert_true(wf_parse_hex("68fd1e64", 8, &v) && v == 0x68fd1e64);
    assert_true(wf_parse_hex("FFFFFFFFffffffff", 16, &v) && v == -1);
    assert_false(wf_parse_hex("", 0, &v));
    assert_false(wf_parse_hex("12g4", 4, &v));
    assert_false(wf_parse_hex("00000000000000000", 17, &v));
}

static void floats_are_written_short_and_read_back(void **s)
{
    static const struct {
        double v;
        const char *text;
    } shown[] = {{0.1, "0.1"},
                 {1, "1"},
                 {-1.5, "-1.5"},
                 {100, "100"},
                 {1e15, "1000000000000000"},
                 {1e16, "1e+16"},
                 {1e-5, "0.00001"},
                 {1.5e-7, "1.5e-07"},
                 {123456.789, "123456.789"},
                 {0.5, "0.5"},
                 {INFINITY, "inf"},
                 {-INFINITY, "-inf"},
                 {NAN, "nan"},
                 {0, "0"},
                 {-0.0, "-0"}};
    char buf[WF_NUMBER_TEXT];

    (void)s;
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        int n = wf_format_f64(shown[i].v, buf);

        assert_int_equal(n, strlen(shown[i].text));
        assert_memory_equal(buf, shown[i].text, n);
    }
    assert_int_equal(wf_format_f32(0.1f, buf), 3);
    for (int i = 0; i < n_cases(100000); i++) {
        float f = random_f32(), back;
        double d = random_f64(), back_d;
        int n = wf_format_f32(f, buf);

        assert_true(n < WF_NUMBER_TEXT && wf_parse_f32(buf, n, &back) && same_f32(f, back));
        n = wf_format_f64(d, buf);
        assert_true(n < WF_NUMBER_TEXT && wf_parse_f64(buf, n, &back_d) && same_f64(d, back_d));
    }
}

static void reals_of_json_have_words_for_what_json_lacks(void **unused)
{
    static const struct {
        double v;
        const char *text;
    } cases[] = {{1, "1.0"},       {-0.5, "-0.5"},        {1e300, "1.0000000000000001e+300"},
                 {NAN, "\"nan\""}, {INFINITY, "\"inf\""}, {-INFINITY, "\"-inf\""}};
    weft_ctx *ctx;
    double back;

    (void)unused;
    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    for (int i = 0; i < WF_COUNT(cases); i++) {
        struct wf_buf b;
        char word[64];

        wf_buf_init(&b, ctx, 1 << 10);
        wf_put_json_real(&b, cases[i].v);
        assert_string_equal(b.data, cases[i].text);
        snprintf(word, sizeof word, "%.*s", (int)b.len - 2, b.data + 1);
        assert_int_equal(wf_json_real_word(word, &back), !isfinite(cases[i].v));
        assert_true(isfinite(cases[i].v) || same_f64(cases[i].v, back));
        wf_buf_free(&b);
    }
    assert_false(wf_json_real_word("NaN", &back) || wf_json_real_word("", &back));
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_numbers_read_as_strtof_does),
        cmocka_unit_test(random_digits_read_as_strtof_does),
        cmocka_unit_test(midpoints_round_to_even),
        cmocka_unit_test(odd_numbers),
        cmocka_unit_test(flushing_denormals_changes_nothing),
        cmocka_unit_test(integers),
        cmocka_unit_test(floats_are_written_short_and_read_back),
        cmocka_unit_test(reals_of_json_have_words_for_what_json_lacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
