/* The page about a run: its curves, its review of a classifier, its text; and histories read
 * back. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "train/report/report.h"
#include "weft/weft.h"

static weft_ctx *ctx;
static char dir[64];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-report-XXXXXX");
    return mkdtemp(dir) ? weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) : -1;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static const char *put(const char *name, const char *text)
{
    static char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Numbers that steps of one do not move, or whose span is over the largest number: a few ticks, and
 * an end. */
static void axes_of_any_numbers_have_an_end(void **state)
{
    static const double spans[][2] = {
        {-1e308, 1e308}, {1.7e308, 1.79e308}, {5e-324, 5e-324}, {1, 1}};
    static const int64_t firsts[] = {0, 1, (int64_t)1 << 53, (int64_t)1 << 60};
    struct wf_buf b;

    (void)state;
    alarm(20);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            struct wf_series s = {"loss", "train", spans[k], 1};

            wf_buf_init(&b, ctx, 1 << 20);
            wf_svg_curves(&b, "loss", firsts[i], 2, 1, &s);
            wf_svg_curves(&b, "loss", firsts[i], 1, 1, &s);
            assert_int_equal(b.st, WEFT_OK);
            wf_buf_free(&b);
        }
    alarm(0);
}

static int occurrences(const char *text, const char *part)
{
    int n = 0;

    for (const char *p = strstr(text, part); p; p = strstr(p + 1, part))
        n++;
    return n;
}

static void curves_leave_gaps_where_values_are_missing(void **state)
{
    const double v[] = {1, 0.5, NAN, 0.25, 0.125}, w[] = {2, INFINITY, 1, 1, 1};
    struct wf_series s[] = {{"training", "train", v, 1}, {"a <b>", "val", w, 1}};
    struct wf_buf b;

    (void)state;
    wf_buf_init(&b, ctx, 1 << 20);
    wf_svg_curves(&b, "loss & more", 1, 5, 2, s);
    ok(b.st);
    assert_int_equal(occurrences(b.data, "<circle"), 8); /* ten values, two of them not finite */
    assert_non_null(strstr(b.data, "loss &amp; more"));
    assert_non_null(strstr(b.data, "a &lt;b&gt;"));
    assert_non_null(strstr(b.data, ">2.0</text>")); /* the top of the axis */
    assert_null(strstr(b.data, "nan"));
    assert_null(strstr(b.data, "inf"));
    wf_buf_free(&b);
}

static void one_value_and_none_can_be_drawn(void **state)
{
    const double v[] = {0.5}, none[] = {NAN};
    struct wf_series s = {"training", "train", v, 1}, t = {"training", "train", none, 1};
    struct wf_buf b;

    (void)state;
    wf_buf_init(&b, ctx, 1 << 20);
    wf_svg_curves(&b, "loss", 1, 1, 1, &s);
    assert_int_equal(occurrences(b.data, "<circle"), 1);
    assert_null(strstr(b.data, "nan"));
    b.len = 0;
    wf_svg_curves(&b, "loss", 1, 1, 1, &t);
    assert_non_null(strstr(b.data, "no finite value"));
    wf_buf_free(&b);
}

/* An axis between them would have steps that no number can take. */
static void values_that_differ_in_rounding_alone_can_be_drawn(void **state)
{
    const double pairs[][2] = {{0.6931471805599453, 0.6931471805599454},
                               {1e6, 1e6 + 2e-10},
                               {0, 5e-324},
                               {5e-324, 5e-324},
                               {-1e300, nextafter(-1e300, 0)}};
    struct wf_buf b;

    (void)state;
    alarm(60);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct wf_series s = {"training", "train", pairs[i], 1};
        const double points[] = {pairs[i][0], pairs[i][1], pairs[i][1], pairs[i][0]};

        wf_buf_init(&b, ctx, 1 << 20);
        wf_svg_curves(&b, "loss", 1, 2, 1, &s);
        wf_svg_scatter(&b, "points", "true", 2, points, 2);
        ok(b.st);
        assert_int_equal(occurrences(b.data, "<circle"), 4);
        assert_null(strstr(b.data, "nan"));
        wf_buf_free(&b);
    }
    alarm(0);
}

static void base64_is_base64(void **state)
{
    static const char *const want[] = {"", "YQ==", "YWI=", "YWJj", "YWJjZA=="};
    struct wf_buf b;

    (void)state;
    for (int n = 0; n <= 4; n++) {
        wf_buf_init(&b, ctx, 64);
        wf_base64(&b, "abcd", n);
        assert_string_equal(b.data ? b.data : "", want[n]);
        wf_buf_free(&b);
    }
}

static void pixels_keep_their_scale(void **state)
{
    const float unit[4] = {0, 0.5f, 1, 0.25f}, bytes[4] = {0, 128, 255, 64},
                odd[4] = {-1, 0, 1, NAN};
    struct wf_picture p;
    uint8_t out[4];

    (void)state;
    assert_true(wf_picture_of(WEFT_F32, 2, (int64_t[]){2, 2}, &p));
    wf_picture_pixels(&p, WEFT_F32, unit, out);
    assert_memory_equal(out, ((uint8_t[]){0, 128, 255, 64}), 4);
    wf_picture_pixels(&p, WEFT_F32, bytes, out);
    assert_memory_equal(out, ((uint8_t[]){0, 128, 255, 64}), 4);
    wf_picture_pixels(&p, WEFT_F32, odd, out);
    assert_memory_equal(out, ((uint8_t[]){0, 128, 255, 0}), 4);
    assert_false(wf_picture_of(WEFT_F32, 3, (int64_t[]){2, 2, 5}, &p));
    assert_false(wf_picture_of(WEFT_I64, 2, (int64_t[]){2, 2}, &p));
}

static void large_pictures_shrink_to_means(void **state)
{
    uint8_t v[4 * 5 * 3], flat[3 * 20];
    struct wf_picture p = {4, 5, 3}, q = {3, 20, 1};

    (void)state;
    for (int i = 0; i < 4 * 5 * 3; i++) /* channel k of the pixel in row y, column x */
        v[i] = (uint8_t)(i % 3 * 100 + i / 15 * 10 + i / 3 % 5);
    wf_picture_shrink(&p, v, 3); /* blocks of two; the odd column is left out */
    assert_true(p.h == 2 && p.w == 2 && p.c == 3);
    for (int i = 0; i < 12; i++)
        assert_int_equal(v[i], i % 3 * 100 + (i / 6 * 20 + 5) + i / 3 % 2 * 2 + 1);
    memset(flat, 7, sizeof flat);
    wf_picture_shrink(&q, flat, 4); /* lower than its blocks */
    assert_true(q.h == 1 && q.w == 4);
    assert_memory_equal(flat, "\7\7\7\7", 4);
    q = (struct wf_picture){3, 20, 1};
    wf_picture_shrink(&q, flat, 20);
    assert_true(q.h == 3 && q.w == 20);
}

/* ---- the review ------------------------------------------------------------------------------ */

static const char rows[] = "x,kind\n-3,0\n-2,0\n-1,0\n-4,1\n1,1\n2,1\n3,1\n5,0\n";

/* A model that says 1 where x is positive, by weights set by hand; loss: of it. */
static void review(const char *loss, const char *units, struct wf_review *r)
{
    char text[1024], csv[128];
    weft_job *job;
    weft_job_run *run;
    float two[2] = {-1, 1}, one[1] = {1};
    bool single = strcmp(units, "1") == 0;
    weft_tensor w = weft_view(WEFT_F32, single ? one : two, 2, (int64_t[]){1, single ? 1 : 2});

    snprintf(csv, sizeof csv, "%s", put("rows.csv", rows));
    snprintf(
        text, sizeof text,
        "data:\n  train: {path: %s, label: kind, index: true}\n  test: {path: %s, label: kind}\n"
        "  pipeline: [{join: {columns: x, to: v}}]\n"
        "model: [Dense: {units: %s%s}]\ntrain: {loss: %s}\n",
        csv, csv, units, strstr(loss, "logits") ? "" : ", activation: sigmoid", loss);
    ok(weft_job_parse(ctx, "job.yaml", text, (int64_t)strlen(text), 0, NULL, &job));
    ok(weft_job_open(job, ctx, &run));
    ok(weft_trainer_set_weight(run->trainer, "dense/kernel", &w));
    ok(wf_review_make(run, r));
    weft_job_close(run);
    weft_job_free(job);
}

static void check_review(const struct wf_review *r)
{
    const int64_t want[4] = {3, 1, 1, 3};

    assert_string_equal(r->part, "test");
    assert_int_equal(r->n_classes, 2);
    assert_int_equal(r->n, 8);
    assert_int_equal(r->n_right, 6);
    assert_memory_equal(r->confusion, want, sizeof want);
    assert_int_equal(r->n_mistakes, 2);
    assert_int_equal(r->mistake[0].sample, 7); /* x = 5 is surer than x = -4 */
    assert_int_equal(r->mistake[0].truth, 0);
    assert_int_equal(r->mistake[0].guess, 1);
    assert_true(r->mistake[0].p_truth < r->mistake[1].p_truth);
    assert_int_equal(r->mistake[1].sample, 3);
}

static void review_counts_and_ranks_mistakes(void **state)
{
    struct wf_review r;

    (void)state;
    review("sparse_categorical_crossentropy from_logits=true", "2", &r);
    check_review(&r);
    assert_float_equal(r.mistake[0].p_guess, 1 / (1 + exp(-10)), 1e-6);
    wf_review_free(&r);
    review("binary_crossentropy from_logits=true", "1", &r);
    check_review(&r);
    wf_review_free(&r);
    review("binary_crossentropy", "1", &r);
    check_review(&r);
    assert_float_equal(r.mistake[0].p_guess, 1 / (1 + exp(-5)), 1e-6);
    wf_review_free(&r);
}

static void regression_has_no_review(void **state)
{
    struct wf_review r;

    (void)state;
    review("mse", "1", &r);
    assert_null(r.part);
    wf_review_free(&r);
}

/* ---- histories ------------------------------------------------------------------------------- */

static void history_reads_what_the_logger_wrote(void **state)
{
    weft_history *h;

    (void)state;
    ok(weft_history_read(ctx, put("h.csv", "epoch,loss,val_loss\n3,0.5,NA\n4,0.25,1e-3\n"), &h));
    assert_int_equal(h->n_names, 2);
    assert_int_equal(h->n_epochs, 2);
    assert_int_equal(h->first_epoch, 3);
    assert_string_equal(h->name[1], "val_loss");
    assert_true(isnan(h->value[1]));
    assert_true(h->value[3] == 1e-3);
    weft_history_free(h);
    ok(weft_history_read(ctx, put("h.csv", "epoch\n0\n1\n"), &h)); /* nothing but epochs */
    assert_true(h->n_names == 0 && h->n_epochs == 2);
    weft_history_free(h);
    put("history.csv", "epoch\tloss\r\n0\t2\r\n");
    ok(weft_history_read(ctx, dir, &h)); /* the folder */
    assert_true(h->n_names == 1 && h->value[0] == 2);
    weft_history_free(h);
}

static void broken_histories_are_refused_with_a_place(void **state)
{
    weft_history *h = NULL;

    (void)state;
    assert_int_equal(weft_history_read(ctx, put("h.csv", "epoch,loss\n0,1\n1\n"), &h), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "h.csv:3: 0 values of 1"));
    assert_int_equal(weft_history_read(ctx, put("h.csv", "epoch,loss\n0,x\n"), &h), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "'x' is not a number"));
    assert_int_equal(weft_history_read(ctx, put("h.csv", "epoch,loss\none,1\n"), &h), WEFT_EPARSE);
    assert_int_equal(weft_history_read(ctx, put("h.csv", ""), &h), WEFT_EPARSE);
    assert_int_equal(weft_history_read(ctx, "/nowhere/at/all", &h), WEFT_ENOENT);
    assert_null(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_of_any_numbers_have_an_end),
        cmocka_unit_test(curves_leave_gaps_where_values_are_missing),
        cmocka_unit_test(one_value_and_none_can_be_drawn),
        cmocka_unit_test(values_that_differ_in_rounding_alone_can_be_drawn),
        cmocka_unit_test(base64_is_base64),
        cmocka_unit_test(pixels_keep_their_scale),
        cmocka_unit_test(large_pictures_shrink_to_means),
        cmocka_unit_test(review_counts_and_ranks_mistakes),
        cmocka_unit_test(regression_has_no_review),
        cmocka_unit_test(history_reads_what_the_logger_wrote),
        cmocka_unit_test(broken_histories_are_refused_with_a_place),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
