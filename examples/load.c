/* load.c - a time series, from a week of hours to the day that follows: the job of load.yaml as a
 * program.
 *
 *   load [FILE [EPOCHS [HOURS]]]
 *
 * FILE has a column `load`, of which the first HOURS are read: eight tenths to train on, one to
 * validate on, one to test with. */
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

enum { WEEK = 168, DAY = 24 };

static int failed(const char *what)
{
    fprintf(stderr, "load: %s: %s\n", what, weft_error());
    return 1;
}

/* ---- data ------------------------------------------------------------------------------------ */

enum { TRAIN, VALIDATION, TEST, N_PARTS };

/* Hours of a part. Only what is shuffled needs an index. */
static weft_ds hours(weft_data *d, const char *file, int part, int64_t n)
{
    int64_t first[N_PARTS] = {0, n * 8 / 10, n * 9 / 10},
            end[N_PARTS] = {n * 8 / 10, n * 9 / 10, n};
    weft_ds s =
        weft_ds_csv(d, file, WEFT_OPTS(weft_csv_opts, .select = "load", .index = part == TRAIN));

    return weft_ds_take(d, first[part] ? weft_ds_skip(d, s, first[part]) : s,
                        end[part] - first[part]);
}

/* Eight days from every hour on: seven are read, the eighth is to be told, by three outputs. */
static weft_ds windows(weft_data *d, weft_ds s, const weft_stats *stats)
{
    static const char labels[] = "forecast, yesterday, last_week";

    s = weft_ds_cache(d, weft_ds_standardize(d, s, "load", stats), NULL);
    s = weft_ds_window(d, s, WEEK + DAY,
                       WEFT_OPTS(weft_window_opts, .shift = 1, .drop_remainder = true));
    s = weft_ds_copy(d, s, "load", "forecast");
    s = weft_ds_copy(d, s, "load", "yesterday");
    s = weft_ds_copy(d, s, "load", "last_week");
    s = weft_ds_slice(d, s, "load", 0, WEEK);
    return weft_ds_role(d, weft_ds_slice(d, s, labels, WEEK, DAY), labels, WEFT_LABEL);
}

/* ---- the model ------------------------------------------------------------------------------- */

static weft_status build(weft_ctx *ctx, weft_model **m)
{
    weft_sym week, x, yesterday, last_week;
    weft_status st = weft_model_new(ctx, NULL, m);

    if (st)
        return st;
    week = weft_input(*m, "load", WEFT_F32, 1, (int64_t[]){WEEK});
    week = weft_apply(*m, "Reshape", "target_shape=[168,1]", week);
    yesterday = weft_apply(*m, "Cropping1D", "cropping=[144,0]", week); /* without weights */
    yesterday = weft_apply(*m, "Reshape", "name=yesterday target_shape=[24]", yesterday);
    last_week = weft_apply(*m, "Cropping1D", "cropping=[0,144]", week);
    last_week = weft_apply(*m, "Reshape", "name=last_week target_shape=[24]", last_week);
    x = weft_apply(*m, "Conv1D", "filters=32 kernel_size=6 strides=3 activation=relu", week);
    x = weft_apply(*m, "GRU", "units=48", x);
    x = weft_apply(*m, "Dense", "name=forecast units=24", x);
    weft_model_output(*m, x);
    weft_model_output(*m, yesterday);
    weft_model_output(*m, last_week);
    return weft_model_status(*m);
}

static void print(void *arg, const char *text, bool last)
{
    (void)arg;
    (void)last;
    fputs(text, stdout);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "examples/data/load.csv";
    int64_t epochs = argc > 2 ? atoll(argv[2]) : 8, n = argc > 3 ? atoll(argv[3]) : 17520;
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_stats *stats = NULL;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_ds part[N_PARTS];
    weft_logs logs;
    double mw;
    int rc = 1;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx) || weft_data_new(ctx, &d))
        return failed("context");
    for (int i = 0; i < N_PARTS; i++)
        part[i] = hours(d, file, i, n);
    if (weft_ds_stats(d, part[TRAIN], NULL, &stats)) {
        failed("data");
        goto out;
    }
    mw = weft_stats_column(stats, 0)->std[0];
    for (int i = 0; i < N_PARTS; i++)
        part[i] = windows(d, part[i], stats);
    if (build(ctx, &m) ||
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts,
                               .optimizer = "adam learning_rate=0.003 clipnorm=1",
                               .loss = "mean_squared_error; none; none", .metrics = "mae"),
                     &t)) {
        failed("model");
        goto out;
    }
    if (weft_fit(t, d, part[TRAIN],
                 WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 64, .seed = 1,
                           .validation = part[VALIDATION], .verbose = 2, .print = print),
                 NULL)) {
        failed("fit");
        goto out;
    }
    if (weft_evaluate(t, d, part[TEST], NULL, &logs)) {
        failed("evaluate");
        goto out;
    }
    printf("mean absolute error on the last tenth, in MW:\n");
    printf("  the model             %.3f\n", weft_logs_get(&logs, "forecast_mae") * mw);
    printf("  as yesterday          %.3f\n", weft_logs_get(&logs, "yesterday_mae") * mw);
    printf("  as a week ago         %.3f\n", weft_logs_get(&logs, "last_week_mae") * mw);
    rc = 0;
out:
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_stats_free(stats);
    weft_ctx_free(ctx);
    return rc;
}
