/* locale_test.c - a host program that called setlocale: graphs, optimizers, jobs, logs, saved
 * models, checkpoints, statistics and reports are the same bytes as in the C locale. */
#define _GNU_SOURCE
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "support/locale.h"
#include "weft/weft.h"

static const char job_text[] =
    "seed: 3\n"
    "data:\n"
    "  train: {path: data.csv, label: kind, index: true}\n"
    "  pipeline:\n"
    "    - standardize: {columns: \"a, b\"}\n"
    "    - join: {columns: \"a, b\", to: features}\n"
    "  validation_split: 0.25\n"
    "model:\n"
    "  - Dense: {units: 7, activation: \"leaky_relu(0.125)\", kernel_regularizer: \"l2(0.0005)\"}\n"
    "  - LeakyReLU: {negative_slope: 0.3}\n"
    "  - Dropout: {rate: 0.15}\n"
    "  - Dense: {units: 3}\n"
    "train:\n"
    "  optimizer: adam learning_rate=0.0125 beta_1=0.875\n"
    "  loss: sparse_categorical_crossentropy from_logits=true\n"
    "  metrics: accuracy\n"
    "  epochs: 3\n"
    "  callbacks:\n"
    "    - CSVLogger: {filename: log.csv}\n"
    "    - ModelCheckpoint: {filepath: \"w-{epoch}-{val_loss:.3f}.safetensors\"}\n"
    "    - ReduceLROnPlateau: {factor: 0.5, patience: 1, min_lr: 0.0001}\n"
    "checkpoint: {dir: ckpt, steps: 2}\n"
    "save: saved.weft\n"
    "log: {dir: logs}\n";

static char top[64];

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static char *slurp(const char *path, int64_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 22);

    if (!f)
        fail_msg("%s is missing", path);
    assert_non_null(text);
    *n = (int64_t)fread(text, 1, (1 << 22) - 1, f);
    fclose(f);
    return text;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* A graph with numbers among its attributes, through its text. */
static void graph_and_optimizers(weft_ctx *ctx)
{
    weft_graph *g = NULL, *back = NULL;
    weft_optim o;
    char *text = NULL, *again = NULL;
    weft_val x, loss, update[4];
    FILE *f = fopen("graph.txt", "w");
    int n = 0;

    ok(weft_graph_new(ctx, &g));
    x = weft_variable(g, "v", 1, (int64_t[]){4}, NULL);
    loss = weft_op(g, "sum", 1, (weft_val[]){weft_clip(g, weft_mul(g, x, x), -0.25, 1e-7)}, NULL);
    ok(weft_optim_init(&o, "adam", "learning_rate=0.001 global_clipnorm=0.5"));
    assert_true(o.number[0] == 0.001);
    ok(weft_optim_schedule(&o, "exponential_decay", "decay_steps=100 decay_rate=0.96"));
    ok(weft_minimize(g, loss, &o, 0, NULL, 4, update, &n));
    ok(weft_graph_text(g, &text));
    ok(weft_graph_parse(ctx, text, (int64_t)strlen(text), &back));
    ok(weft_graph_text(back, &again));
    assert_string_equal(again, text);
    fputs(text, f);
    fclose(f);
    weft_text_free(ctx, text);
    weft_text_free(ctx, again);
    weft_graph_free(g);
    weft_graph_free(back);
}

static void data_file(void)
{
    FILE *f = fopen("data.csv", "w");

    fputs("a,b,kind\n", f);
    for (int i = 0; i < 48; i++) {
        char line[64];

        wf_snprintf(line, sizeof line, "%.3f,%.2e,%d\n", (i % 7) / 4.0 + i % 3,
                    1e-3 * (i % 5) - i % 3, i % 3);
        fputs(line, f);
    }
    fclose(f);
}

static void statistics(weft_ctx *ctx)
{
    weft_data *d = NULL;
    weft_stats *s = NULL, *back = NULL;

    ok(weft_data_new(ctx, &d));
    ok(weft_ds_stats(d, weft_ds_open(d, "data.csv", NULL), NULL, &s));
    ok(weft_stats_write(s, "stats.json"));
    ok(weft_stats_read(ctx, "stats.json", &back));
    ok(weft_stats_write(back, "stats-again.json"));
    weft_stats_free(s);
    weft_stats_free(back);
    weft_data_free(d);
}

static void keep_line(void *arg, const char *text, bool last)
{
    if (last)
        fputs(text, arg);
}

static void job(void)
{
    weft_ctx *ctx = NULL;
    weft_job *j = NULL;
    weft_job_run *run = NULL;
    weft_history *h = NULL, *read = NULL;
    weft_model *m = NULL;
    FILE *f = fopen("job.yaml", "w");

    fputs(job_text, f);
    fclose(f);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
    graph_and_optimizers(ctx);
    statistics(ctx);
    ok(weft_job_load(ctx, "job.yaml", 1, (const char *const[]){"data.validation_split=0.25"}, &j));
    f = fopen("progress.txt", "w");
    for (int resumed = 0; resumed < 2;
         resumed++) { /* the second finds the first one's checkpoint */
        ok(weft_job_open(j, ctx, &run));
        ok(weft_job_fit(
            run, WEFT_OPTS(weft_job_fit_opts, .verbose = 2, .print = keep_line, .print_arg = f),
            &h));
        ok(weft_job_report(run, h, "report.html"));
        weft_history_free(h);
        h = NULL;
        weft_job_close(run);
        run = NULL;
    }
    fclose(f);
    ok(weft_history_read(ctx, "logs/history.csv", &read));
    assert_int_equal(read->n_epochs, 3);
    weft_history_free(read);
    ok(weft_model_load(ctx, "saved.weft", &m));
    weft_model_free(m);
    weft_job_free(j);
    weft_ctx_free(ctx);
}

static void run_under(const char *name, const char *folder)
{
    char from[96], to[128];

    if (strcmp(name, "C"))
        assert_null(locale_missing(name));
    snprintf(from, sizeof from, "%s/run", top);
    snprintf(to, sizeof to, "%s/%s", top, folder);
    assert_int_equal(mkdir(from, 0700), 0);
    assert_int_equal(chdir(from), 0);
    data_file();
    job();
    setlocale(LC_ALL, "C");
    assert_int_equal(chdir(top), 0);
    assert_int_equal(rename(from, to), 0);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void same_bytes(const char *folder, const char *name)
{
    char path[2][192];
    int64_t n[2];
    char *text[2];

    snprintf(path[0], sizeof path[0], "%s/C/%s", top, name);
    snprintf(path[1], sizeof path[1], "%s/%s/%s", top, folder, name);
    for (int i = 0; i < 2; i++)
        text[i] = slurp(path[i], &n[i]);
    if (n[0] != n[1] || memcmp(text[0], text[1], (size_t)n[0]) != 0)
        fail_msg("%s is not the same under %s:\n%.2000s\n%.2000s", name, folder, text[0], text[1]);
    free(text[0]);
    free(text[1]);
}

/* Times differ from run to run: numbers become one sign, so that only how they are written
 * counts. */
static void same_but_for_numbers(const char *folder, const char *name)
{
    char command[640];

    snprintf(command, sizeof command,
             "mask() { sed -E 's/[0-9]+(\\.[0-9]+)?(e[-+][0-9]+)?/#/g; s/# (µs|ms|s|us)\\b/# t/g; "
             "s,#(us|ms|s)/step,#t/step,g' \"$1\"; }; mask %s/C/%s >%s/a; mask %s/%s/%s >%s/b; "
             "diff %s/a %s/b",
             top, name, top, top, folder, name, top, top, top);
    if (system(command))
        fail_msg("%s is not written the same under %s", name, folder);
}

static void a_host_program_may_set_any_locale(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "ps_AF.UTF-8", "tr_TR.UTF-8"};
    static const char *const files[] = {"graph.txt", "stats.json",       "stats-again.json",
                                        "log.csv",   "logs/history.csv", "saved.weft"};
    const char *why = locale_missing(names[0]);

    (void)state;
    if (why) {
        print_message("skipped: %s\n", why);
        skip();
    }
    setlocale(LC_ALL, "C");
    run_under("C", "C");
    for (int i = 0; i < WF_COUNT(names); i++) {
        run_under(names[i], names[i]);
        for (int k = 0; k < WF_COUNT(files); k++)
            same_bytes(names[i], files[k]);
        same_but_for_numbers(names[i], "report.html");
        same_but_for_numbers(names[i], "progress.txt");
    }
}

static int set_up(void **state)
{
    (void)state;
    strcpy(top, "/tmp/weft-locale-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", top);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_program_may_set_any_locale),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
