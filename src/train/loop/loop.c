/* loop.c - the parts of a step for custom training loops: gradients of a batch, and a step over
 * chosen weights. */
#include "train/step/dist.h"
#include "train/step/grads.h"

/* Batches that train_on_batch holds back belong to a step that these would split. */
static weft_status check_life(const weft_trainer *t, enum wf_life_call call, const char *who)
{
    weft_status st = wf_life_allows(t, call);

    if (!st && t->rounds)
        return wf_err(WEFT_ESTATE,
                      "%s: the trainer was compiled with update=worker, whose steps are made "
                      "whole, by fit",
                      who);
    return st || t->pending == 0
               ? st
               : wf_err(WEFT_ESTATE, "%s: %d of %d batches of a step (accumulate) are waiting", who,
                        t->pending, t->accumulate);
}

/* The gradients of a batch, in *grads or in new ones. */
static weft_status compute(weft_trainer *t, const weft_tensor *feeds, int64_t n, weft_grads **grads)
{
    weft_grads *to = *grads;
    struct wf_contribution *mean;
    struct wf_work *w;
    weft_status st = wf_work_get(t, &w);

    if (!st && (!to || !wf_grads_fit(to, &w->rules))) {
        to = NULL;
        st = wf_grads_new(t->ctx, &w->rules, &to);
    }
    if (!st)
        st = wf_dist_batch(t, w, &(struct wf_samples){.n = n, .feeds = feeds}, 0);
    if (st)
        goto out;
    st = wf_work_mean(w, &mean);
    if (!st) {
        st = wf_grads_take(to, mean);
        if (!st)
            wf_work_take_state(w, mean);
        wf_tree_give(&w->tree, mean);
    }
    if (st)
        wf_work_drop(w);
out:
    if (st && to != *grads)
        weft_grads_free(to);
    if (!st && to != *grads) {
        weft_grads_free(*grads);
        *grads = to;
    }
    return st;
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
    st = compute(t, feeds, x[0].dim[0], grads);
    if (!st && logs)
        *logs = wf_train_logs(t);
    wf_free(t->ctx, feeds);
    return st;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static weft_status no_weight(const struct wf_work *w, const char *word)
{
    int n = w->rules.n_vars;
    const char **names = wf_alloc_n(w->ctx, n + 1, sizeof *names);
    struct wf_hint hint = {""};

    for (int i = 0; i < n && names; i++)
        names[i] = w->rules.var[i].name;
    if (names)
        hint = wf_did_you_mean(word, names, n);
    wf_free(w->ctx, names);
    return wf_err(WEFT_ENOENT, "apply: no trained weight '%s'%s", word, hint.text);
}

/* "a/kernel, b*" into the variables that it names. */
static weft_status choose(const struct wf_work *w, const char *only, bool *chosen)
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
        for (int i = 0; i < w->rules.n_vars; i++) {
            const char *name = w->rules.var[i].name;
            bool fits = strncmp(name, word, n) == 0 && (star || !name[n]);

            chosen[i] |= fits;
            any |= fits;
        }
        if (!any)
            return no_weight(w, word);
        only += from;
    }
    return n_words ? WEFT_OK : wf_err(WEFT_EINVAL, "apply: `only` names no weight");
}

weft_status weft_trainer_apply(weft_trainer *t, const weft_grads *g, const weft_apply_opts *opts)
{
    weft_apply_opts o;
    struct wf_work *w = NULL;
    bool *chosen = NULL;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_apply_opts");

    if (!st)
        st = check_life(t, WF_CALL_APPLY, "apply");
    if (!st && (!t->bound || !t->bound->fit))
        st = wf_err(WEFT_ESTATE, "apply: the trainer has not seen a batch with labels yet");
    if (!st)
        st = wf_work_get(t, &w);
    if (!st && !wf_grads_fit(g, &w->rules))
        st = wf_err(WEFT_EINVAL,
                    "apply: these gradients belong to other weights than the trainer's");
    if (!st && o.only) {
        chosen = wf_alloc_n(t->ctx, w->rules.n_vars + 1, sizeof *chosen);
        st = chosen ? choose(w, o.only, chosen) : wf_err_nomem(t->ctx, 0, "a choice");
    }
    if (!st)
        st = wf_work_step(w, g->c, chosen);
    if (!st)
        t->drawn = 0;
    wf_free(t->ctx, chosen);
    return st;
}
