/* What a pipeline has learned: items by name, as JSON with the same bits, whatever the locale;
 * damaged and later texts are refused. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../support/counting.h"
#include "data/data.h"
#include "weft/weft.h"

static weft_ctx *ctx;

static int set_up(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx);
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

#define N 5000
static float x[N][3];
static int64_t id[N];

static weft_status learn(weft_ctx *c, weft_data *d, weft_learned **out)
{
    static const char odd[] = {'\0', (char)0xff, 'a'};
    static const weft_str words[] = {
        {"", 0}, {"red", 3}, {"gr\xc3\xbcn", 5}, {"q\"\\\n\x01", 5}, {odd, 3}, {"\xed\xa0\x80", 3}};
    weft_column col[2] = {{.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {3}},
                          {.name = "w\xff", .dtype = WEFT_STR, .role = WEFT_LABEL}};
    const weft_tensor t[2] = {{.dtype = WEFT_F32, .rank = 2, .dim = {N, 3}, .data = x},
                              {.dtype = WEFT_I64, .rank = 1, .dim = {N}, .data = id}};
    const weft_column from[2] = {{.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {3}},
                                 {.name = "id", .dtype = WEFT_I64}};
    weft_ds s;
    weft_vocab *v = NULL;
    weft_stats *stats = NULL;
    weft_learned *l = NULL;
    weft_status st = weft_learned_new(c, &l);

    s = weft_ds_tensors(d, 2, from, t);
    if (!st)
        st = weft_learned_add_columns(l, "data.train", 2, col);
    if (!st)
        st = weft_vocab_new(c, 6, words, &v);
    if (!st)
        st = weft_learned_add_vocab(l, "lookup color", v);
    if (!st)
        st = weft_vocab_count(d, s, "id", NULL, &v);
    if (!st)
        st = weft_learned_add_vocab(l, "ids", v);
    if (!st)
        st = weft_ds_stats(d, s, NULL, &stats);
    if (!st)
        st = weft_learned_add_stats(l, "standardize x", stats);
    if (!st)
        st = weft_learned_add_text(l, "job", "{\"a\": 1}\n\t\xe2\x82\xac");
    if (st)
        weft_learned_free(l);
    else
        *out = l;
    return st;
}

static void fill(void)
{
    srand(3);
    for (int i = 0; i < N; i++) {
        x[i][0] = (float)rand() / 7.0f;
        x[i][1] = i ? (float)i * 1e-30f : INFINITY;
        x[i][2] = i % 2 ? NAN : -0.0f;
        id[i] = rand() % 100;
    }
}

static void same_bits(const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_true(isnan(a[i]) ? isnan(b[i]) : memcmp(&a[i], &b[i], sizeof a[i]) == 0);
}

static void items_read_back_as_the_same_bits(void **state)
{
    weft_data *d;
    weft_learned *l, *m;
    char *a, *b;
    int64_t n_a, n_b;
    int n;

    (void)state;
    fill();
    ok(weft_data_new(ctx, &d));
    ok(learn(ctx, d, &l));
    ok(weft_learned_format(l, &a, &n_a));
    ok(weft_learned_parse(ctx, a, n_a, &m));
    ok(weft_learned_format(m, &b, &n_b));
    assert_int_equal(n_a, n_b);
    assert_memory_equal(a, b, (size_t)n_a);
    for (int k = 0; k < 2; k++) {
        const weft_column_stats *p = weft_stats_column(weft_learned_stats(l, "standardize x"), k);
        const weft_column_stats *q = weft_stats_column(weft_learned_stats(m, "standardize x"), k);

        assert_string_equal(p->name, q->name);
        assert_int_equal(p->n, q->n);
        assert_int_equal(p->n_distinct, q->n_distinct);
        same_bits(p->mean, q->mean, p->n);
        same_bits(p->std, q->std, p->n);
        same_bits(p->min, q->min, p->n);
        same_bits(p->max, q->max, p->n);
        assert_memory_equal(p->count, q->count, (size_t)p->n * 8);
        assert_memory_equal(p->n_missing, q->n_missing, (size_t)p->n * 8);
    }
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "ids" : "lookup color";
        const weft_vocab *v = weft_learned_vocab(l, name), *w = weft_learned_vocab(m, name);

        assert_int_equal(weft_vocab_size(v), weft_vocab_size(w));
        for (int64_t i = 0; i < weft_vocab_size(v); i++) {
            weft_str word = weft_vocab_word(v, i);

            assert_int_equal(weft_vocab_find(w, word.data, word.n), i);
        }
    }
    assert_string_equal(weft_learned_columns(m, "data.train", &n)[1].name, "w\xff");
    assert_int_equal(n, 2);
    assert_int_equal(weft_learned_columns(m, "data.train", &n)[1].role, WEFT_LABEL);
    assert_string_equal(weft_learned_text(m, "job"), "{\"a\": 1}\n\t\xe2\x82\xac");
    assert_null(weft_learned_vocab(m, "job"));
    assert_null(weft_learned_text(m, "nothing"));
    weft_text_free(ctx, a);
    weft_text_free(ctx, b);
    weft_learned_free(l);
    weft_learned_free(m);
    weft_data_free(d);
}

static void the_text_does_not_depend_on_the_locale(void **state)
{
    static const char *const locales[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8",
                                          "nl_NL.UTF-8"};
    weft_data *d;
    weft_learned *l, *m;
    char *a, *b;
    bool found = false;

    (void)state;
    fill();
    ok(weft_data_new(ctx, &d));
    ok(learn(ctx, d, &l));
    ok(weft_learned_format(l, &a, NULL));
    for (int i = 0; i < 4 && !found; i++)
        found = setlocale(LC_ALL, locales[i]) != NULL && *localeconv()->decimal_point == ',';
    if (found) {
        ok(weft_learned_format(l, &b, NULL));
        assert_string_equal(a, b);
        weft_text_free(ctx, b);
        ok(weft_learned_parse(ctx, a, (int64_t)strlen(a), &m));
        setlocale(LC_ALL, "C");
        ok(weft_learned_format(m, &b, NULL));
        assert_string_equal(a, b);
        weft_text_free(ctx, b);
        weft_learned_free(m);
    }
    weft_text_free(ctx, a);
    weft_learned_free(l);
    weft_data_free(d);
    if (!found)
        skip(); /* no comma locale on this machine */
}

static void refused(const char *text, weft_status want, const char *words)
{
    weft_learned *l = NULL;

    assert_int_equal(weft_learned_parse(ctx, text, (int64_t)strlen(text), &l), want);
    assert_null(l);
    if (!strstr(weft_error(), words))
        fail_msg("'%s' does not say '%s'", weft_error(), words);
}

static void damaged_texts_are_refused_by_name(void **state)
{
#define ITEM(rest) "{\"weft_learned\": 1, \"items\": [{\"name\": \"v\", " rest "}]}"
    (void)state;
    refused("", WEFT_EPARSE, "learned values");
    refused("[]", WEFT_EPARSE, "not a JSON object");
    refused("{\"weft_learned\": 2, \"items\": []}", WEFT_ENOSUP, "later");
    refused("{\"weft_learned\": 1}", WEFT_EPARSE, "list of items is missing");
    refused(ITEM("\"kind\": \"vocabulary\", \"words\": [\"a\", \"a\"]"), WEFT_EPARSE,
            "is a duplicate");
    refused(ITEM("\"kind\": \"vocabulary\", \"words\": [1]"), WEFT_EPARSE, "word 0");
    refused(ITEM("\"kind\": \"vocabulary\", \"words\": [{\"hex\": \"0g\"}]"), WEFT_EPARSE,
            "hexadecimal");
    refused(ITEM("\"kind\": \"magic\""), WEFT_EPARSE, "unknown kind 'magic'");
    refused(ITEM("\"kind\": \"text\""), WEFT_EPARSE, "item 'v'");
    refused(
        ITEM("\"kind\": \"columns\", \"columns\": [{\"name\": \"a\", \"dtype\": \"f32\", \"role\": "
             "\"boss\", \"shape\": []}]"),
        WEFT_EPARSE, "unknown role 'boss'");
    refused(ITEM("\"kind\": \"statistics\", \"columns\": [{\"name\": \"a\", \"dtype\": \"f32\", "
                 "\"mean\": [1], \"std\": [1], \"min\": [1], \"max\": [1, 2], \"count\": [1], "
                 "\"missing\": [0]}]"),
            WEFT_EPARSE, "wrong length");
}

static void names_are_given_once(void **state)
{
    weft_learned *l;
    const char *name;
    weft_learned_kind kind;

    (void)state;
    ok(weft_learned_new(ctx, &l));
    ok(weft_learned_add_text(l, "a", "1"));
    assert_int_equal(weft_learned_add_text(l, "a", "2"), WEFT_EEXIST);
    assert_int_equal(weft_learned_add_text(l, "", "2"), WEFT_EINVAL);
    assert_int_equal(weft_learned_add_text(l, "\xff", "2"), WEFT_EINVAL);
    assert_string_equal(weft_learned_text(l, "a"), "1");
    assert_true(weft_learned_at(l, 0, &name, &kind));
    assert_string_equal(name, "a");
    assert_int_equal(kind, WEFT_LEARNED_TEXT);
    assert_false(weft_learned_at(l, 1, &name, &kind));
    weft_learned_free(l);
    weft_learned_free(NULL);
}

/* Every allocation fails in turn: a status, nothing lost. */
static void memory_may_run_out_anywhere(void **state)
{
    struct counting c = {0};
    weft_allocator a = counting_allocator(&c);
    weft_status st = WEFT_ENOMEM;
    int64_t at;

    (void)state;
    fill();
    for (at = 1; st && at < 20000; at++) {
        weft_ctx *own;
        weft_data *d = NULL;
        weft_learned *l = NULL, *m = NULL;
        char *text = NULL;
        int64_t n;

        c = (struct counting){0};
        ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &a), &own));
        c.fail_at = c.n_allocs + at;
        st = weft_data_new(own, &d);
        if (!st)
            st = learn(own, d, &l);
        if (!st)
            st = weft_learned_format(l, &text, &n);
        if (!st)
            st = weft_learned_parse(own, text, n, &m);
        assert_true(!st || st == WEFT_ENOMEM);
        weft_text_free(own, text);
        weft_learned_free(l);
        weft_learned_free(m);
        weft_data_free(d);
        weft_ctx_free(own);
        assert_int_equal(c.n_live, 0);
    }
    assert_int_equal(st, WEFT_OK);
    assert_true(at > 50);
}

static uint64_t print_of(const char *patterns)
{
    uint64_t f;

    ok(wf_files_fingerprint(ctx, patterns, &f));
    return f;
}

/* A file of n bytes, one of which is another where at >= 0. */
static void put(const char *path, int64_t n, int64_t at)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    for (int64_t i = 0; i < n; i++)
        fputc(i == at ? '!' : 'a' + (int)(i % 7), f);
    fclose(f);
}

static void a_fingerprint_tells_files_apart(void **state)
{
    static const int64_t sizes[] = {1, 5000, 1 << 20, (1 << 20) + 1, 3000001};
    char dir[] = "/tmp/weft-print-XXXXXX", a[64], b[64], both[140], command[96];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(a, sizeof a, "%s/rows.csv", dir);
    snprintf(b, sizeof b, "%s/elsewhere", dir);
    mkdir(b, 0777);
    snprintf(b, sizeof b, "%s/elsewhere/rows.csv", dir);
    for (int i = 0; i < 5; i++) {
        uint64_t f;

        put(a, sizes[i], -1);
        put(b, sizes[i], -1);
        f = print_of(a);
        assert_true(f != 0);
        assert_true(print_of(b) == f); /* the folder does not count */
        put(b, sizes[i] + 1, -1);
        assert_true(print_of(b) != f);
        put(b, sizes[i], 0);
        assert_true(print_of(b) != f);
        put(b, sizes[i], sizes[i] - 1);
        assert_true(print_of(b) != f);
        snprintf(both, sizeof both, "%s,%s", a, b);
        assert_true(print_of(both) != f);
    }
    assert_true(print_of(dir) == 0);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_read_back_as_the_same_bits),
        cmocka_unit_test(the_text_does_not_depend_on_the_locale),
        cmocka_unit_test(damaged_texts_are_refused_by_name),
        cmocka_unit_test(names_are_given_once),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(a_fingerprint_tells_files_apart),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
