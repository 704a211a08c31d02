/* progress_test.c - lines of the progress bar: they fit the terminal, and a bar can be read without
 * colors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "train/loop/progress.h"

struct screen {
    int columns;
    char line[4096];
};

static void keep(void *arg, const char *text, bool last)
{
    struct screen *s = arg;

    (void)last;
    snprintf(s->line, sizeof s->line, "%s", text);
}

static int columns(void *arg)
{
    return ((struct screen *)arg)->columns;
}

/* The line without escape sequences; returns its columns. */
static int plain(const char *text, char *out)
{
    int n = 0;

    for (; *text; text++) {
        if (*text == '\033') {
            text += strcspn(text, "mK");
            continue;
        }
        if (*text == '\r' || *text == '\n')
            continue;
        n += ((unsigned char)*text & 0xc0) != 0x80;
        *out++ = *text;
    }
    *out = 0;
    return n;
}

static int paint(struct screen *s, int width, int64_t done, char out[4096])
{
    static const char *const names[] = {"loss", "accuracy", "mean_absolute_error", "val_loss",
                                        "val_mean_absolute_error"};
    static const double values[] = {0.25, 0.875, 12.5, 0.0004, 13.25};
    weft_logs logs = {5, names, values};
    weft_fit_opts o = {.size = sizeof o,
                       .epochs = 3,
                       .verbose = 1,
                       .print = keep,
                       .print_arg = s,
                       .columns = columns};
    struct wf_progress p;
    weft_ctx *ctx;

    assert_int_equal(weft_ctx_new(NULL, &ctx), WEFT_OK);
    s->columns = width;
    wf_progress_init(&p, ctx, &o, 1000);
    wf_progress_epoch(&p, 0);
    if (done < 1000)
        wf_progress_step(&p, done, &logs);
    else
        wf_progress_epoch_end(&p, done, &logs);
    weft_ctx_free(ctx);
    return plain(s->line, out);
}

static void a_wide_terminal_shows_all(void **state)
{
    struct screen s;
    char text[4096];

    (void)state;
    for (int width = 0; width <= 200; width += 200) { /* 0: unknown */
        paint(&s, width, 500, text);
        assert_non_null(strstr(text, "val_mean_absolute_error: 13.2500"));
        assert_non_null(strstr(text, "accuracy: 0.8750"));
    }
}

static void lines_fit_any_terminal(void **state)
{
    struct screen s;
    char text[4096];

    (void)state;
    for (int width = 40; width < 200; width++)
        for (int64_t done = 500; done <= 1000; done += 500) {
            int n = paint(&s, width, done, text);

            if (n >= width)
                fail_msg("%d columns at a width of %d: %s", n, width, text);
            if (!strstr(text, "loss: 0.25"))
                fail_msg("no loss at a width of %d: %s", width, text);
        }
    paint(&s, 120, 500, text);
    assert_non_null(strstr(text, "acc: 0.8750 - mae: 12.5000"));
    assert_non_null(strstr(text, "val_mae: 13.2500"));
}

static void a_bar_is_full_only_at_the_end_without_colors(void **state)
{
    struct screen s;
    char text[4096];

    (void)state;
    paint(&s, 200, 0, text);
    assert_null(strstr(text, "━"));
    paint(&s, 200, 500, text);
    assert_non_null(strstr(text, "━━━━━━━━━━──────────"));
    paint(&s, 200, 1000, text);
    assert_null(strstr(text, "─"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_terminal_shows_all),
        cmocka_unit_test(lines_fit_any_terminal),
        cmocka_unit_test(a_bar_is_full_only_at_the_end_without_colors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
