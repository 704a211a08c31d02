/* learned.c - what a pipeline has learned is saved with the model: a trainer keeps it as text,
 * which is stored in checkpoints and saved models, and read back from them. */
#include "train/saved/learned.h"

weft_status weft_trainer_set_learned(weft_trainer *t, const weft_learned *l)
{
    char *text = NULL;
    int64_t n = 0;
    weft_status st = l ? weft_learned_format(l, &text, &n) : WEFT_OK;

    if (st)
        return st;
    weft_text_free(t->ctx, t->learned);
    t->learned = text;
    t->n_learned = n;
    return WEFT_OK;
}

weft_status weft_learned_load(weft_ctx *ctx, const char *path, weft_learned **out)
{
    struct wf_saved from = {0};
    char *text = NULL;
    int64_t n = 0;
    weft_status st = wf_saved_open(ctx, path, &from);

    if (st)
        return st;
    st = wf_saved_learned(&from, &text, &n);
    if (!st)
        st = weft_learned_parse(ctx, text, n, out);
    weft_text_free(ctx, text);
    wf_saved_close(&from);
    return st ? wf_err_wrap(st, "%s", path) : WEFT_OK;
}

bool wf_learned_differ(const weft_trainer *t, const struct wf_saved *s)
{
    char *text = NULL;
    int64_t n = 0;
    bool differ = !wf_saved_learned(s, &text, &n) &&
                  (n != t->n_learned || (n && memcmp(text, t->learned, (size_t)n) != 0));

    weft_text_free(t->ctx, text);
    return differ;
}

weft_status wf_learned_check(const weft_trainer *t, const struct wf_saved *s, const char *path)
{
    return wf_learned_differ(t, s)
               ? wf_err(WEFT_ESTATE,
                        "%s was trained with other vocabularies or statistics than this run's: "
                        "open the job with weft_job_open_trained, which uses the model's",
                        path)
               : WEFT_OK;
}
