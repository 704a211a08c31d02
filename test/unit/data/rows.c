/* rows.c - where rows end: the scanner by words against the one by bytes, on text of every kind,
 * however it is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "data/table/scan.h"

static uint64_t state = 99;
static uint64_t rnd(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* All rows by the plain definition: ends[] after each. */
static int plain_rows(const struct wf_row_format *f, const char *p, const char *end, int64_t *ends)
{
    const char *start = p;
    int n = 0;

    while (p < end) {
        const char *behind = wf_scan_row_end(f, p, end);
        bool whole = behind[-1] == '\n', row = !wf_scan_no_row(f, p, end);

        /* A row that never closes its quote has no end in sight. */
        if (whole && row && behind == end) {
            struct wf_scan s;

            wf_scan_init(&s, f, WEFT_SIMD_PORTABLE);
            whole = wf_scan_rows(&s, p, end - p, 1);
        }
        if (row && whole)
            ends[n++] = behind - start;
        p = behind;
    }
    return n;
}

static void check(const struct wf_row_format *f, weft_simd level, const char *p, int64_t n)
{
    static int64_t ends[4096];
    int n_rows = plain_rows(f, p, p + n, ends);
    struct wf_scan s;

    for (int k = 1; k <= n_rows; k++) { /* the k-th row, the text in one piece */
        wf_scan_init(&s, f, level);
        assert_true(wf_scan_rows(&s, p, n, k));
        assert_int_equal(s.n_rows, k);
        assert_int_equal(s.end, ends[k - 1]);
    }
    wf_scan_init(&s, f, level); /* one more than there are */
    assert_false(wf_scan_rows(&s, p, n, n_rows + 1));
    assert_int_equal(s.n_rows, n_rows);
    if (n_rows)
        assert_int_equal(s.end, ends[n_rows - 1]);
    wf_scan_init(&s, f, level); /* the text growing under the scanner */
    for (int64_t at = 0; at < n;) {
        at = wf_min_i64(n, at + (int64_t)(rnd() % 150));
        wf_scan_rows(&s, p, at, n_rows + 1);
    }
    assert_int_equal(s.n_rows, n_rows);
}

static void rows_end_where_the_plain_definition_says(void **s)
{
    static const char letters[] = "ab,,,\"\"\"\n\n\r\n#1x;";
    static const struct wf_row_format formats[] = {
        {',', '"', 0}, {',', 0, 0}, {',', '"', '#'}, {';', '"', 0}};
    char text[2048];
    int n_tries = getenv("WEFT_TEST_QUICK") ? 150 : 1500;

    (void)s;
    for (int i = 0; i < n_tries; i++) {
        int64_t n = (int64_t)(rnd() % 600);
        int dull = (int)(rnd() % 4) * 8; /* mostly letters: long rows */

        for (int64_t k = 0; k < n; k++)
            text[k] = rnd() % 32 < (unsigned)dull ? 'x' : letters[rnd() % (sizeof letters - 1)];
        for (int k = 0; k < 4; k++) {
            check(&formats[k], WEFT_SIMD_PORTABLE, text, n);
            check(&formats[k], weft_simd_best(), text, n);
        }
    }
}

static void a_last_row_needs_no_newline(void **s)
{
    static const struct wf_row_format f = {',', '"', '#'};
    static const struct {
        const char *text;
        bool rest;
    } cases[] = {{"", false},      {"a", true},      {"a\n", false}, {"a\nb", true},
                 {"a\n\r", false}, {"a\n#b", false}, {"\"a\n", true}};

    (void)s;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wf_scan scan;
        int64_t n = (int64_t)strlen(cases[i].text);

        wf_scan_init(&scan, &f, weft_simd_best());
        wf_scan_rows(&scan, cases[i].text, n, 100);
        assert_int_equal(wf_scan_rest(&scan, cases[i].text, n), cases[i].rest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_end_where_the_plain_definition_says),
        cmocka_unit_test(a_last_row_needs_no_newline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
