/* learned.c - what a pipeline has learned goes with the model: a trainer keeps it as text, checkpoints and
 * saved models hold that text, and it is read back from them. */
#include "train/learned.h"
#include "train/saved.h"

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

    if (!st)
        st = wf_saved_learned(&from, &text, &n);
    if (!st)
        st = weft_learned_parse(ctx, text, n, out);
    weft_text_free(ctx, text);
    wf_saved_close(&from);
    return st ? wf_err_wrap(st, "%s", path) : WEFT_OK;
}

bool wf_learned_differ(const weft_trainer *t, weft_ckpt *c)
{
    char *text = NULL;
    int64_t n = 0;
    bool differ = !weft_ckpt_blob_read(c, WEFT_CKPT_LEARNED, &text, &n) &&
                  (n != t->n_learned || (n && memcmp(text, t->learned, (size_t)n) != 0));

    weft_text_free(t->ctx, text);
    return differ;
}
