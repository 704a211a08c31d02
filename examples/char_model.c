/* char_model.c - a model of text, character by character: the job of char_model.yaml as a program,
 * which then writes some text of its own.
 *
 *   char_model [FILE [EPOCHS [LETTERS [TEMPERATURE [WINDOWS]]]]]
 *
 * FILE is any text; its last tenth is not trained on, and the end of what is serves as a beginning
 * to continue from. LETTERS are drawn with a TEMPERATURE: below 1 the likely ones more often, above
 * 1 less. WINDOWS trains on the first so many only. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <weft/weft.h>

enum { LENGTH = 100 }; /* characters that the model reads at a time */

static int failed(const char *what)
{
    fprintf(stderr, "char_model: %s: %s\n", what, weft_error());
    return 1;
}

static weft_ds characters(weft_data *d, const char *file)
{
    return weft_ds_fixed(d, file, 0,
                         WEFT_OPTS(weft_fixed_opts, .dtype = WEFT_U8, .column = "byte"));
}

/* Pieces of the text: what is read, and the character after each. */
static weft_ds pieces(weft_data *d, weft_ds s, const weft_vocab *v)
{
    s = weft_ds_lookup(d, s, "byte", v, NULL);
    s = weft_ds_window(d, s, LENGTH + 1,
                       WEFT_OPTS(weft_window_opts, .shift = 20, .drop_remainder = true));
    s = weft_ds_copy(d, s, "byte", "next");
    s = weft_ds_slice(d, s, "byte", 0, LENGTH);
    s = weft_ds_slice(d, s, "next", 1, LENGTH);
    return weft_ds_role(d, s, "next", WEFT_LABEL);
}

static weft_status build(weft_ctx *ctx, int64_t n_ids, weft_model **m)
{
    weft_sym x;
    char attrs[64];
    weft_status st = weft_model_new(ctx, NULL, m);

    if (st)
        return st;
    x = weft_input(*m, "byte", WEFT_I64, 1, (int64_t[]){LENGTH});
    snprintf(attrs, sizeof attrs, "input_dim=%lld output_dim=32", (long long)n_ids);
    x = weft_apply(*m, "Embedding", attrs, x);
    x = weft_apply(*m, "LSTM", "units=128 return_sequences=true", x);
    x = weft_apply(*m, "Dropout", "rate=0.2", x);
    snprintf(attrs, sizeof attrs, "units=%lld", (long long)n_ids);
    x = weft_apply(*m, "Dense", attrs, x);
    weft_model_output(*m, x);
    return weft_model_status(*m);
}

static void print(void *arg, const char *text, bool last)
{
    (void)arg;
    (void)last;
    fputs(text, stdout);
    fflush(stdout);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Uniform in [0, 1): the same letters in every run. */
static double draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* An id with probability proportional to exp(logit / temperature); not 0, which stands for no
 * character. */
static int64_t choose(const float *logit, int64_t n, double temperature, uint64_t *state)
{
    double top = logit[1], sum = 0, at;

    for (int64_t i = 1; i < n; i++)
        top = logit[i] > top ? logit[i] : top;
    for (int64_t i = 1; i < n; i++)
        sum += exp((logit[i] - top) / temperature);
    at = draw(state) * sum;
    for (int64_t i = 1; i < n; i++) {
        at -= exp((logit[i] - top) / temperature);
        if (at < 0)
            return i;
    }
    return n - 1;
}

/* The vocabulary has a byte as the decimal number that it is. */
static int letter(const weft_vocab *v, int64_t id)
{
    return id ? atoi(weft_vocab_word(v, id - 1).data) : '?';
}

/* Goes on from the ids in `read`. */
static weft_status write_text(weft_trainer *t, const weft_vocab *v, int64_t read[LENGTH],
                              int64_t n_letters, double temperature)
{
    int64_t n_ids = weft_vocab_size(v) + 1;
    uint64_t state = 1;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n_letters && !st; i++) {
        weft_tensor x = {.dtype = WEFT_I64, .rank = 2, .dim = {1, LENGTH}, .data = read}, y = {0};

        st = weft_predict_on_batch(t, &x, &y);
        if (st)
            break;
        for (int k = 0; k + 1 < LENGTH; k++)
            read[k] = read[k + 1];
        read[LENGTH - 1] =
            choose((const float *)y.data + (LENGTH - 1) * n_ids, n_ids, temperature, &state);
        putchar(letter(v, read[LENGTH - 1]));
    }
    putchar('\n');
    return st;
}

/* The last LENGTH ids of the training text. */
static weft_status last_ids(weft_data *d, weft_ds text, int64_t n, const weft_vocab *v,
                            int64_t read[LENGTH])
{
    weft_ds s = weft_ds_lookup(d, weft_ds_skip(d, text, n - LENGTH), "byte", v, NULL);
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_status st = weft_iter_new(d, weft_ds_batch(d, s, LENGTH, NULL), NULL, &it);

    if (!st)
        st = weft_iter_next(it, &b);
    for (int i = 0; i < LENGTH && b; i++)
        read[i] = ((const int64_t *)b->col[0].data)[i];
    weft_batch_free(b);
    weft_iter_free(it);
    return st;
}

/* ---- the program ----------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : "examples/data/alice.txt";
    int64_t epochs = argc > 2 ? atoll(argv[2]) : 8, letters = argc > 3 ? atoll(argv[3]) : 400;
    double temperature = argc > 4 ? atof(argv[4]) : 0.7;
    int64_t windows = argc > 5 ? atoll(argv[5]) : 0, n, read[LENGTH];
    weft_ctx *ctx = NULL;
    weft_data *d = NULL;
    weft_vocab *v = NULL;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_ds text, head, train, rest;
    weft_logs logs;
    char *summary = NULL;
    int rc = 1;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx) || weft_data_new(ctx, &d))
        return failed("context");
    text = characters(d, file);
    n = weft_ds_count(d, text) * 9 / 10;
    if (weft_data_status(d)) {
        failed("data");
        goto out;
    }
    if (n < 20 * LENGTH) {
        fprintf(stderr, "char_model: %s is too short: %d characters are the least\n", file,
                20 * LENGTH * 10 / 9 + 1);
        goto out;
    }
    head = weft_ds_take(d, text, n);
    if (weft_vocab_count(d, head, "byte", NULL, &v) || last_ids(d, head, n, v, read)) {
        failed("vocabulary");
        goto out;
    }
    train = pieces(d, head, v);
    rest = pieces(d, weft_ds_skip(d, text, n), v);
    if (windows > 0) {
        train = weft_ds_take(d, train, windows);
        rest = weft_ds_take(d, rest, windows);
    }
    if (build(ctx, weft_vocab_size(v) + 1, &m) || weft_model_summary(m, 0, &summary) ||
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts,
                               .optimizer = "adam learning_rate=0.005 clipnorm=1",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .metrics = "perplexity from_logits=true"),
                     &t)) {
        failed("model");
        goto out;
    }
    fputs(summary, stdout);
    if (weft_fit(t, d, train,
                 WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = 64, .seed = 1,
                           .validation = rest, .verbose = 2, .print = print),
                 NULL)) {
        failed("fit");
        goto out;
    }
    if (weft_evaluate(t, d, rest, WEFT_OPTS(weft_eval_opts, .batch = 64), &logs)) {
        failed("evaluate");
        goto out;
    }
    printf("perplexity on the last tenth: %.4f\n\n", weft_logs_get(&logs, "perplexity"));
    for (int i = 0; i < LENGTH; i++)
        putchar(letter(v, read[i]));
    printf("|"); /* up to here it was read */
    rc = write_text(t, v, read, letters, temperature) ? failed("writing") : 0;
out:
    weft_text_free(ctx, summary);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_vocab_free(v);
    weft_ctx_free(ctx);
    return rc;
}
