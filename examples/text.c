/* text.c - a text classifier on two parameter servers and two workers: are these words about
 * weather or about money? The table of the embedding is on the servers; a worker reads the rows of
 * the words that it sees.
 *
 *   text [LAST_STEP [FOLDER]]     starts a chief, two servers and two workers on this machine */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <weft/weft.h>

enum { SAMPLES = 4000, LENGTH = 12, WORDS = 50000 };
extern char **environ;

struct job {
    int64_t last_step;
    const char *folder;
    int32_t x[SAMPLES][LENGTH];
    int32_t y[SAMPLES];
};

/* The row of a word: a hash, so no vocabulary is needed. */
static int32_t row_of(const char *word, size_t n)
{
    uint32_t h = 2166136261u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)word[i]) * 16777619u;
    return (int32_t)(h % WORDS);
}

static void read_text(const char *text, int32_t *x)
{
    for (int k = 0; k < LENGTH; k++) {
        size_t n;

        text += strspn(text, " ");
        n = strcspn(text, " ");
        x[k] = row_of(text, n);
        text += n;
    }
}

/* Sentences of common words with a few that tell what they are about. */
static void make_data(struct job *j)
{
    static const char *const common[] = {"the", "a",    "today", "was",  "very", "and",
                                         "of",  "this", "week",  "more", "it",   "than"};
    static const char *const about[2][8] = {
        {"rain", "wind", "cloud", "storm", "warm", "snow", "fog", "sunny"},
        {"bank", "loan", "price", "trade", "bond", "cash", "tax", "market"}};
    uint32_t r = 3;

    for (int i = 0; i < SAMPLES; i++) {
        char text[LENGTH * 10] = "";

        j->y[i] = i % 2;
        for (int k = 0; k < LENGTH; k++) {
            const char *word;

            r = r * 1664525 + 1013904223;
            word = (r >> 8) % 6 ? common[(r >> 16) % 12] : about[j->y[i]][(r >> 16) % 8];
            strcat(strcat(text, word), " ");
        }
        read_text(text, j->x[i]);
    }
}

static weft_status show(void *arg, weft_session *s, const weft_logs *logs)
{
    (void)arg;
    if (weft_session_step(s) % 100 == 0)
        printf("step %lld: loss %.4f, accuracy %.3f\n", (long long)weft_session_step(s),
               weft_logs_get(logs, "loss"), weft_logs_get(logs, "accuracy"));
    fflush(stdout);
    return WEFT_OK;
}

static weft_status compile(weft_worker *w, weft_model **m, weft_trainer **t)
{
    weft_sym v;
    weft_status st = weft_model_new(weft_worker_ctx(w), NULL, m);

    if (st)
        return st;
    v = weft_input(*m, "x", WEFT_I32, 1, (int64_t[]){LENGTH});
    v = weft_apply(*m, "Embedding", "input_dim=50000 output_dim=16", v);
    v = weft_apply(*m, "GlobalAveragePooling1D", NULL, v);
    weft_model_output(*m, weft_apply(*m, "Dense", "units=2", v));
    st = weft_dist_scope(weft_worker_dist(w), *m);
    if (st)
        return st;
    return weft_compile(*m,
                        WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.01",
                                  .loss = "sparse_categorical_crossentropy from_logits=true",
                                  .metrics = "accuracy"),
                        t);
}

static weft_status train(struct job *j, weft_worker *w, weft_trainer *t, weft_data *d)
{
    const weft_hook hook = {
        .size = sizeof hook, .name = "show", .decides_only = true, .after_run = show};
    const weft_ds s =
        weft_ds_tensors(d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_I32, j->x, 2, (int64_t[]){SAMPLES, LENGTH}),
                                        weft_view(WEFT_I32, j->y, 1, (int64_t[]){SAMPLES})});
    char ckpt[512];
    weft_session *session;
    weft_status st;

    snprintf(ckpt, sizeof ckpt, "%s/ckpt", j->folder);
    st = weft_worker_session(w, t, d, s,
                             WEFT_OPTS(weft_session_opts, .batch = 64, .last_step = j->last_step,
                                       .checkpoint = ckpt, .checkpoint_steps = 200, .n_hooks = 1,
                                       .hooks = &hook),
                             &session);
    if (st)
        return st;
    while (!weft_session_should_stop(session))
        if (weft_session_run(session, NULL))
            break;
    return weft_session_close(session);
}

static weft_status work(void *arg, weft_worker *w)
{
    struct job *j = arg;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_status st;

    make_data(j);
    st = compile(w, &m, &t);
    if (!st)
        st = weft_data_new(weft_worker_ctx(w), &d);
    if (!st)
        st = train(j, w, t, d);
    if (st)
        fprintf(stderr, "%s: %s\n", weft_worker_name(w), weft_error());
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    return st;
}

int main(int argc, char **argv)
{
    static struct job j;
    weft_ctx *ctx = NULL;
    weft_program *p = NULL;
    weft_status st;

    j.last_step = argc > 1 ? atoll(argv[1]) : 400;
    j.folder = argc > 2 ? argv[2] : "text-run";
    mkdir(j.folder, 0777); /* where that fails, the checkpoint says why */
    st = weft_ctx_new(NULL, &ctx);
    if (!st)
        st = weft_program_open(
            ctx,
            WEFT_OPTS(weft_program_opts, .workers = 2, .ps = 2, .env = (const char *const *)environ,
                      .argv = (const char *const *)argv, .work = work, .work_arg = &j, .seed = 1,
                      .devices = "worker: cpu threads=1"),
            &p);
    if (!st)
        st = weft_program_run(p);
    if (st)
        fprintf(stderr, "text: %s\n", weft_error());
    weft_program_free(p);
    weft_ctx_free(ctx);
    return st ? 1 : 0;
}
