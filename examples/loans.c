/* loans.c - a table with words, numbers and gaps: the job of loans.yaml as a program, with a
 * logistic regression for comparison.
 *
 *   loans [FILE [EPOCHS [ROWS]]]
 *
 * FILE has the columns of examples/data/loans.csv, of which ROWS are read: seven tenths to train
 * on, one to validate on, two to test with. */
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

static int failed(const char *what)
{
    fprintf(stderr, "loans: %s: %s\n", what, weft_error());
    return 1;
}

/* ---- data ------------------------------------------------------------------------------------ */

enum { TRAIN, VALIDATION, TEST, N_PARTS };
static const char *const words[] = {"purpose", "home", "region"};

/* What the training data says about itself, and all parts use. */
struct known {
    weft_stats *means, *numbers;
    weft_vocab *vocab[3];
};

/* Rows of a part. Only what is shuffled needs an index. */
static weft_ds rows(weft_data *d, const char *file, int part, int64_t n)
{
    int64_t first[N_PARTS] = {0, n * 7 / 10, n * 8 / 10},
            end[N_PARTS] = {n * 7 / 10, n * 8 / 10, n};
    weft_ds s = weft_ds_csv(d, file,
                            WEFT_OPTS(weft_csv_opts, .label = "defaulted", .index = part == TRAIN));

    return weft_ds_take(d, first[part] ? weft_ds_skip(d, s, first[part]) : s,
                        end[part] - first[part]);
}

/* Ages in groups; which numbers are missing; large numbers by their logarithm. */
static weft_ds prepare(weft_data *d, weft_ds s)
{
    static const double ages[] = {22, 25, 30, 35, 42, 50, 62}, zero[] = {0};

    s = weft_ds_bucketize(d, weft_ds_copy(d, s, "age", "age_group"), "age_group", 7, ages);
    s = weft_ds_copy(d, s, "income", "has_income");
    s = weft_ds_copy(d, s, "employed", "has_employed");
    s = weft_ds_bucketize(d, s, "has_income, has_employed", 1, zero); /* NaN: 0, else 1 */
    return weft_ds_log1p(d, s, "income, amount");
}

static weft_ds fill(weft_data *d, weft_ds s, const struct known *k)
{
    return weft_ds_fill_mean(d, s, "income, employed", k->means);
}

/* The numbers as one vector, words as ids. */
static weft_ds finish(weft_data *d, weft_ds s, const struct known *k)
{
    s = weft_ds_standardize(d, s, "age, income, amount, months, employed", k->numbers);
    s = weft_ds_join(d, s, "age, income, amount, months, employed, has_income, has_employed",
                     "numbers", WEFT_F32);
    s = weft_ds_cross(d, s, "purpose, home", 64, 0, "purpose_home");
    for (int i = 0; i < 3; i++)
        s = weft_ds_lookup(d, s, words[i], k->vocab[i], NULL);
    return s;
}

/* The three parts, ready for a model. */
static weft_status open_data(weft_data *d, const char *file, int64_t n, struct known *k,
                             weft_ds *part)
{
    weft_status st;

    for (int i = 0; i < N_PARTS; i++)
        part[i] = prepare(d, rows(d, file, i, n));
    st = weft_ds_stats(d, part[TRAIN], WEFT_OPTS(weft_stats_opts, .columns = "income, employed"),
                       &k->means);
    for (int i = 0; i < N_PARTS && !st; i++)
        part[i] = fill(d, part[i], k);
    if (!st)
        st = weft_ds_stats(
            d, part[TRAIN],
            WEFT_OPTS(weft_stats_opts, .columns = "age, income, amount, months, employed"),
            &k->numbers);
    for (int i = 0; i < 3 && !st; i++)
        st = weft_vocab_count(d, part[TRAIN], words[i], NULL, &k->vocab[i]);
    for (int i = 0; i < N_PARTS && !st; i++)
        part[i] = finish(d, part[i], k);
    return st ? st : weft_data_status(d);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Names matter: weights start with random numbers that follow from seed and name. */
static weft_sym embed(weft_model *m, const char *column, const char *name, int n, int width)
{
    weft_sym ids = weft_input(m, column, WEFT_I64, 0, NULL);
    char attrs[96];

    snprintf(attrs, sizeof attrs, "name=%s input_dim=%d output_dim=%d", name, n, width);
    return weft_apply(m, "Embedding", attrs, ids);
}

/* Each number and each word counts by itself. */
static weft_sym logistic(weft_model *m)
{
    weft_sym part[4];

    part[0] = weft_input(m, "numbers", WEFT_F32, 1, (int64_t[]){7});
    part[0] = weft_apply(m, "Dense", "units=1", part[0]);
    part[1] = embed(m, "purpose", "purpose_vector", 7, 1);
    part[2] = embed(m, "home", "home_vector", 5, 1);
    part[3] = embed(m, "region", "region_vector", 17, 1);
    return weft_apply_n(m, "Add", NULL, 4, part);
}

static weft_sym network(weft_model *m)
{
    weft_sym part[6], x;

    part[0] = weft_input(m, "numbers", WEFT_F32, 1, (int64_t[]){7});
    part[1] = embed(m, "purpose", "purpose_vector", 7, 4);
    part[2] = embed(m, "home", "home_vector", 5, 4);
    part[3] = embed(m, "region", "region_vector", 17, 4);
    part[4] = embed(m, "age_group", "age_vector", 8, 4);
    part[5] = embed(m, "purpose_home", "pair_vector", 64, 4);
    x = weft_apply_n(m, "Concatenate", NULL, 6, part);
    x = weft_apply(m, "Dense", "units=64 activation=relu", x);
    x = weft_apply(m, "Dropout", "rate=0.4", x);
    return weft_apply(m, "Dense", "units=1", x);
}

static void print(void *arg, const char *text, bool last)
{
    (void)arg;
    (void)last;
    fputs(text, stdout);
    fflush(stdout);
}

/* Trains a model; *auc is that of the test part. */
static weft_status train(weft_ctx *ctx, weft_data *d, const weft_ds *part,
                         weft_sym (*build)(weft_model *), const char *optimizer, int64_t epochs,
                         int verbose, double *auc)
{
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_logs logs;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (!st) {
        weft_model_output(m, build(m));
        st = weft_compile(m,
                          WEFT_OPTS(weft_compile_opts, .optimizer = optimizer,
                                    .loss = "binary_crossentropy from_logits=true",
                                    .metrics = "AUC from_logits=true", .n_class_weights = 2,
                                    .class_weights = (double[]){1, 3}),
                          &t);
    }
    if (!st)
        st = weft_fit(t, d, part[TRAIN],
                      WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 64, .seed = 1,
                                .validation = part[VALIDATION], .verbose = verbose, .print = print),
                      NULL);
    if (!st)
        st = weft_evaluate(t, d, part[TEST], NULL, &logs);
    if (!st)
        *auc = weft_logs_get(&logs, "auc");
    weft_trainer_free(t);
    weft_model_free(m);
    return st;
}

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "examples/data/loans.csv";
    int64_t epochs = argc > 2 ? atoll(argv[2]) : 15, n = argc > 3 ? atoll(argv[3]) : 6000;
    struct known k = {0};
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_ds part[N_PARTS];
    double plain, deep;
    int rc = 1;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx) || weft_data_new(ctx, &d))
        return failed("context");
    if (open_data(d, file, n, &k, part)) {
        failed("data");
        goto out;
    }
    if (train(ctx, d, part, network, "adam learning_rate=0.002", epochs, 2, &deep) ||
        train(ctx, d, part, logistic, "adam learning_rate=0.01", epochs, 0, &plain)) {
        failed("training");
        goto out;
    }
    printf("test AUC: %.4f\n", deep);
    printf("a logistic regression: %.4f\n", plain);
    rc = 0;
out:
    weft_data_free(d);
    for (int i = 0; i < 3; i++)
        weft_vocab_free(k.vocab[i]);
    weft_stats_free(k.means);
    weft_stats_free(k.numbers);
    weft_ctx_free(ctx);
    return rc;
}
