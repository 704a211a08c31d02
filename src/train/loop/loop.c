/* loop.c - the parts of a step for custom training loops: gradients of a batch, and a step over
 * chosen weights. */
#include "train/step/halves.h"

/* Batches that train_on_batch holds back belong to a step that these would split. */
static weft_status check_life(const weft_trainer *t, enum wf_life_call call, const char *who)
{
    weft_status st = wf_life_allows(t, call);

    return st || t->pending == 0
               ? st
               : wf_err(WEFT_ESTATE, "%s: %d of %d batches of a step (accumulate) are waiting", who,
                        t->pending, t->accumulate);
}

weft_status weft_trainer_gradients(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                                   const weft_tensor *w, weft_grads **grads, weft_logs *logs)
{
    weft_tensor *feeds = NULL;
    weft_status st = check_life(t, WF_CALL_GRADIENTS, "gradients");

    if (!st)
        st = wf_batch_feeds(t, x, y, w, true, &feeds);
    if (!st)
        st = wf_states_check(t, x[0].dim[0]);
    if (st) {
        wf_free(t->ctx, feeds);
        return st;
    }
    wf_pass_begin(t);
    if (!t->parts)
        st = wf_parts_new(t, &t->parts);
    if (!st)
        st = wf_parts_batch(t->parts, feeds, x[0].dim[0]);
    if (!st)
        st = wf_parts_mean(t->parts, grads);
    if (!st && logs)
        *logs = wf_train_logs(t);
    wf_free(t->ctx, feeds);
    return st;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static weft_status no_weight(const struct wf_halves *h, const char *word)
{
    const char **names = wf_alloc_n(h->ctx, h->n + 1, sizeof *names);
    struct wf_hint hint = {""};

    for (int i = 0; i < h->n && names; i++)
        names[i] = h->entry[i].name;
    if (names)
        hint = wf_did_you_mean(word, names, h->n);
    wf_free(h->ctx, names);
    return wf_err(WEFT_ENOENT, "apply: no trained weight '%s'%s", word, hint.text);
}

/* "a/kernel, b*" into the entries that it names. */
static weft_status choose(const struct wf_halves *h, const char *only, bool *chosen)
{
    char word[512];
    int n_words = 0;

    for (;; n_words++) {
        size_t n, from;
        bool star, any = false;

        only += strspn(only, ", \t\n");
        if (!*only)
            break;
        n = strcspn(only, ", \t\n");
        from = n;
        if (n >= sizeof word)
            return wf_err(WEFT_EINVAL, "apply: '%.40s…' is too long for a name", only);
        memcpy(word, only, n);
        word[n] = 0;
        star = word[n - 1] == '*';
        n -= star;
        for (int i = 0; i < h->n; i++) {
            bool fits = strncmp(h->entry[i].name, word, n) == 0 && (star || !h->entry[i].name[n]);

            chosen[i] |= fits;
            any |= fits;
        }
        if (!any)
            return no_weight(h, word);
        only += from;
    }
    return n_words ? WEFT_OK : wf_err(WEFT_EINVAL, "apply: `only` names no weight");
}

weft_status weft_trainer_apply(weft_trainer *t, const weft_grads *g, const weft_apply_opts *opts)
{
    weft_apply_opts o;
    struct wf_halves *h = NULL;
    bool *chosen = NULL;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_apply_opts");

    if (!st)
        st = check_life(t, WF_CALL_APPLY, "apply");
    if (!st && (!t->bound || !t->bound->fit))
        st = wf_err(WEFT_ESTATE, "apply: the trainer has not seen a batch with labels yet");
    if (!st)
        st = wf_halves_get(t, &h);
    if (!st && !wf_grads_fit(g, h->n, h->entry))
        st = wf_err(WEFT_EINVAL,
                    "apply: these gradients belong to other weights than the trainer's");
    if (!st && o.only) {
        chosen = wf_alloc_n(t->ctx, h->n + 1, sizeof *chosen);
        st = chosen ? choose(h, o.only, chosen) : wf_err_nomem(t->ctx, 0, "a choice");
    }
    if (!st)
        st = wf_halves_apply(t, h, g, chosen);
    if (!st)
        t->drawn = 0;
    wf_free(t->ctx, chosen);
    return st;
}
