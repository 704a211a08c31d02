/* Fingerprints: what differs is named, what is equal is not; the text form and its reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fprint.h"

static weft_ctx *ctx;
static int64_t bare;

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    bare = weft_ctx_memory(ctx);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(weft_ctx_memory(ctx), bare);
    weft_ctx_free(ctx);
    return 0;
}

static void fill(struct wf_fprint *f, int batch, int n_nodes)
{
    wf_fp_init(f, ctx);
    wf_fp_add(f, WF_FP_TRAINING, "the optimizer", NULL, "adam");
    for (int i = 0; i < n_nodes; i++) {
        char key[32];

        snprintf(key, sizeof key, "node %d", i);
        wf_fp_add(f, WF_FP_GRAPH, key, i % 2 ? "('odd')" : NULL, "op%d(%%%d)", i % 7, i - 1);
    }
    wf_fp_add(f, WF_FP_DATA, "the batch size", NULL, "%d", batch);
    wf_fp_add(f, WF_FP_DATA, "a\tstrange\\key\n", "no\tte", "two\nlines\t\\");
    assert_int_equal(f->st, WEFT_OK);
}

struct told {
    int n;
    char text[4096];
};

static void note(void *arg, const struct wf_fp_diff *d)
{
    struct told *t = arg;
    char line[1024];

    t->n++;
    strcat(strcat(t->text, wf_fp_say(d, "run/ckpt", line, sizeof line)), "\n");
}

static unsigned differs(const struct wf_fprint *a, const struct wf_fprint *b, struct told *t)
{
    unsigned found = 99;

    *t = (struct told){.n = 0};
    assert_int_equal(wf_fp_compare(a, b, ~0u, note, t, &found), WEFT_OK);
    return found;
}

static void equal_ones_have_no_difference(void **state)
{
    struct wf_fprint a, b;
    struct told t;

    (void)state;
    fill(&a, 32, 10);
    fill(&b, 32, 10);
    b.part[WF_FP_GRAPH].item[3].note = "('renamed')";
    assert_int_equal(differs(&a, &b, &t), 0);
    assert_int_equal(t.n, 0);
    wf_fp_free(&a);
    wf_fp_free(&b);
}

static void a_difference_is_named(void **state)
{
    struct wf_fprint a, b;
    struct told t;

    (void)state;
    fill(&a, 32, 10);
    fill(&b, 64, 11);
    assert_int_equal(differs(&a, &b, &t), 1u << WF_FP_DATA | 1u << WF_FP_GRAPH);
    assert_string_equal(t.text, "node 10 is op3(%9) in run/ckpt, but not here\n"
                                "the batch size is 32 here and 64 in run/ckpt\n");
    assert_int_equal(differs(&b, &a, &t), 1u << WF_FP_DATA | 1u << WF_FP_GRAPH);
    assert_string_equal(t.text, "node 10 is op3(%9) here, but not in run/ckpt\n"
                                "the batch size is 64 here and 32 in run/ckpt\n");
    wf_fp_free(&a);
    wf_fp_free(&b);
}

/* A part that is not known, as of a checkpoint of an earlier version, has no differences but those
 * of its items. */
static void unknown_parts_are_not_compared(void **state)
{
    struct wf_fprint a, b;
    struct told t;

    (void)state;
    fill(&a, 32, 10);
    wf_fp_init(&b, ctx);
    wf_fp_add(&b, WF_FP_TRAINING, "the optimizer", NULL, "sgd");
    for (int k = 0; k < WF_N_FP; k++)
        b.part[k].whole = false;
    assert_int_equal(differs(&a, &b, &t), 1u << WF_FP_TRAINING);
    assert_string_equal(t.text, "the optimizer is adam here and sgd in run/ckpt\n");
    wf_fp_free(&a);
    wf_fp_free(&b);
}

static void text_reads_back(void **state)
{
    struct wf_fprint a, b;
    struct told t;
    char *text = NULL, *again = NULL;

    (void)state;
    fill(&a, 32, 10);
    assert_int_equal(wf_fp_text(&a, &text), WEFT_OK);
    assert_int_equal(wf_fp_parse(ctx, text, (int64_t)strlen(text), &b), WEFT_OK);
    assert_int_equal(differs(&a, &b, &t), 0);
    assert_int_equal(wf_fp_text(&b, &again), WEFT_OK);
    assert_string_equal(text, again);
    assert_string_equal(b.part[WF_FP_DATA].item[1].value, "two\nlines\t\\");
    wf_free(ctx, text);
    wf_free(ctx, again);
    wf_fp_free(&a);
    wf_fp_free(&b);
}

/* Only the first items are kept; the hash covers all of them. */
static void large_parts_are_bounded(void **state)
{
    struct wf_fprint a, b;
    struct told t;
    char *text = NULL, longer[2000];

    (void)state;
    fill(&a, 32, 50000);
    fill(&b, 32, 50001);
    assert_true(a.part[WF_FP_GRAPH].n_items < 20000 && a.part[WF_FP_GRAPH].n == 50000);
    assert_int_equal(wf_fp_text(&a, &text), WEFT_OK);
    assert_true(strlen(text) < 200000);
    assert_int_equal(differs(&a, &b, &t), 1u << WF_FP_GRAPH);
    assert_non_null(strstr(t.text, "the graph is another one here than in run/ckpt, past its"));
    wf_free(ctx, text);
    wf_fp_free(&a);
    wf_fp_free(&b);
    /* long values: one character at the end makes a difference */
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = 0;
    wf_fp_init(&a, ctx);
    wf_fp_init(&b, ctx);
    wf_fp_add(&a, WF_FP_DATA, "k", NULL, "%s", longer);
    longer[sizeof longer - 2] = 'y';
    wf_fp_add(&b, WF_FP_DATA, "k", NULL, "%s", longer);
    assert_true(strlen(a.part[WF_FP_DATA].item[0].value) < 500);
    assert_int_equal(differs(&a, &b, &t), 1u << WF_FP_DATA);
    wf_fp_free(&a);
    wf_fp_free(&b);
}

/* Whatever one byte becomes, and wherever the text ends. */
static void damage_is_refused(void **state)
{
    struct wf_fprint a, b;
    char *text = NULL;
    int64_t n;

    (void)state;
    fill(&a, 32, 4);
    assert_int_equal(wf_fp_text(&a, &text), WEFT_OK);
    n = (int64_t)strlen(text);
    for (int64_t i = 0; i < n; i++) {
        char was = text[i];

        text[i] = (char)(was ^ 1);
        assert_int_not_equal(wf_fp_parse(ctx, text, n, &b), WEFT_OK);
        wf_fp_free(&b);
        text[i] = was;
    }
    for (int64_t i = 0; i < n; i++) {
        assert_int_not_equal(wf_fp_parse(ctx, text, i, &b), WEFT_OK);
        wf_fp_free(&b);
    }
    text[17] = '2';
    assert_int_equal(wf_fp_parse(ctx, text, n, &b), WEFT_ENOSUP);
    wf_fp_free(&b);
    wf_free(ctx, text);
    wf_fp_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_ones_have_no_difference),  cmocka_unit_test(a_difference_is_named),
        cmocka_unit_test(unknown_parts_are_not_compared), cmocka_unit_test(text_reads_back),
        cmocka_unit_test(large_parts_are_bounded),        cmocka_unit_test(damage_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
