/* main.c - rows as tests of cmocka, or as a benchmark. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/device.h"
#include "ops/lib/row.h"
#include "support/fake_cuda.h"

static const int thread_counts[N_THREAD_COUNTS] = {1, 2, 3, 7};

static void check_row(void **state)
{
    row_check(*state);
}

struct on_device {
    struct row *row;
    struct device_run *run;
};

static void check_row_on(void **state)
{
    struct on_device *s = *state;

    row_check_on(s->row, s->run);
}

static char *row_line(const struct op_case *c)
{
    char text[512], type[WF_TYPE_TEXT];
    int at = snprintf(text, sizeof text, "%s%s%s", c->build ? c->name ? c->name : "(built)" : c->op,
                      c->attrs ? " " : "", c->attrs ? c->attrs : "");

    for (int i = 0; i < c->n_in && at < (int)sizeof text - WF_TYPE_TEXT; i++) {
        struct wf_type t = wf_type_of(c->in[i].dtype, c->in[i].rank, c->in[i].dim);

        at += snprintf(text + at, sizeof text - (size_t)at, " %s", wf_type_text(&t, type));
    }
    return strcpy(malloc(strlen(text) + 1), text);
}

static void contexts_free(struct contexts *b)
{
    for (int s = 0; s <= WEFT_SIMD_AVX512BF16; s++)
        for (int t = 0; t < N_THREAD_COUNTS; t++)
            weft_ctx_free(b->ctx[s][t]);
    weft_ctx_free(b->base);
}

static bool contexts_new(struct contexts *b)
{
    *b = (struct contexts){0};
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .simd = WEFT_SIMD_PORTABLE),
                     &b->base) ||
        wf_ops_ensure(b->base))
        return false;
    for (weft_simd s = WEFT_SIMD_PORTABLE; s <= weft_simd_best(); s++)
        for (int t = 0; t < N_THREAD_COUNTS; t++)
            if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = thread_counts[t], .simd = s),
                             &b->ctx[s][t]) ||
                wf_ops_ensure(b->ctx[s][t]))
                return false;
    return true;
}

/* A context with the device; NULL: there is none, and the test is skipped. */
static weft_ctx *device_context(const char *name)
{
    const weft_device_driver *fake = fake_cuda_driver(), *drivers[] = {fake, NULL};
    bool emulated = !strcmp(name, "emulated");
    weft_ctx *ctx = NULL;

    if (emulated && !fake)
        return NULL;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .simd = WEFT_SIMD_PORTABLE,
                               .devices = emulated ? "gpu:0" : name, .n_drivers = emulated,
                               .drivers = drivers),
                     &ctx))
        print_error("%s: %s\n", name, weft_error());
    return ctx;
}

static int run_on_device(const char *name, const char *group, struct row *rows, int m)
{
    struct device_run *d = calloc(1, sizeof *d);
    struct on_device *states = calloc((size_t)m + 1, sizeof *states);
    struct CMUnitTest *tests = calloc((size_t)m + 1, sizeof *tests);
    weft_ctx *ctx = device_context(name);
    int failed = 77;

    if (ctx) {
        d->device = ctx->home;
        for (int i = 0; i < m; i++) {
            states[i] = (struct on_device){&rows[i], d};
            tests[i] = (struct CMUnitTest){rows[i].line, check_row_on, NULL, NULL, &states[i]};
        }
        failed = _cmocka_run_group_tests(group, tests, (size_t)m, NULL, NULL);
        device_run_print(d, group);
    }
    weft_ctx_free(ctx);
    free(tests);
    free(states);
    free(d);
    return failed;
}

/* Fill rows with those whose line contains `word`; returns how many. */
static int pick(const struct contexts *b, const struct op_case *cases, int n, const char *word,
                char **lines, struct row *rows)
{
    int m = 0;

    for (int i = 0; i < n; i++) {
        lines[i] = row_line(&cases[i]);
        if (!word || strstr(lines[i], word))
            rows[m++] = (struct row){.c = &cases[i], .b = b, .line = lines[i]};
    }
    return m;
}

int op_main(int argc, char **argv, const char *group, const struct op_case *cases, int n)
{
    bool bench = argc > 1 && !strcmp(argv[1], "--bench");
    bool save = argc > 2 && !strcmp(argv[1], "--save");
    const char *device = argc > 2 && !strcmp(argv[1], "--device") ? argv[2] : NULL;
    int word = 1 + bench + 2 * (device != NULL);
    struct contexts b;
    struct row *rows = calloc((size_t)n + 1, sizeof *rows);
    struct CMUnitTest *tests = calloc((size_t)n + 1, sizeof *tests);
    char **lines = calloc((size_t)n + 1, sizeof *lines);
    int m, failed = 0;

    /* Every value of every run is an allocation: keep the pages. */
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    if (!contexts_new(&b)) {
        print_error("%s\n", weft_error());
        failed = 1;
        goto out;
    }
    m = pick(&b, cases, n, !save && argc > word ? argv[word] : NULL, lines, rows);
    if (device) {
        failed = run_on_device(device, group, rows, m);
        goto out;
    }
    for (int i = 0; i < m; i++) {
        tests[i] = (struct CMUnitTest){rows[i].line, check_row, NULL, NULL, &rows[i]};
        if (bench)
            row_bench(&rows[i]);
        if (save)
            row_save(&rows[i], argv[2]);
    }
    if (!bench && !save)
        failed = _cmocka_run_group_tests(group, tests, (size_t)m, NULL, NULL);
out:
    for (int i = 0; i < n; i++)
        free(lines[i]);
    contexts_free(&b);
    free(lines);
    free(tests);
    free(rows);
    return failed;
}
