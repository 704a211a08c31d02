/* learn.c - many vocabularies and statistics from one pass over a dataset. */
#include "data/feature/feature.h"
#include "data/feature/learned.h"

struct learner {
    weft_stats *stats; /* one of the two */
    struct wf_counting words;
};

struct learning {
    int n;
    struct learner *each;
};

static weft_status learn_block(void *arg, const struct wf_block *b)
{
    const struct learning *all = arg;
    weft_status st = WEFT_OK;

    for (int i = 0; i < all->n && !st; i++) {
        struct learner *l = &all->each[i];

        st = l->stats ? wf_stats_block(l->stats, b) : wf_vocab_block(&l->words, b);
    }
    return st;
}

static weft_status begin(weft_data *d, weft_ds s, const weft_learn *what, struct learner *l)
{
    if (what->kind == WEFT_LEARNED_STATS)
        return wf_stats_begin(d, s, WEFT_OPTS(weft_stats_opts, .columns = what->columns),
                              &l->stats);
    if (what->kind == WEFT_LEARNED_VOCAB)
        return wf_vocab_begin(d, s, what->columns, WEFT_OPTS(weft_vocab_opts), &l->words);
    return wf_err(WEFT_EINVAL, "learned: '%s' is neither a vocabulary nor statistics", what->name);
}

static weft_status end(const weft_learn *what, struct learner *l, weft_vocab **v)
{
    if (!l->stats)
        return wf_vocab_end(&l->words, WEFT_OPTS(weft_vocab_opts, .top = what->top), v);
    wf_stats_end(l->stats);
    return WEFT_OK;
}

/* Adds all of them, or none. */
static weft_status add(weft_learned *l, int n, const weft_learn *what, struct learner *each)
{
    int64_t before = wf_learned_n(l);
    weft_status st = WEFT_OK;

    for (int i = 0; i < n && !st; i++) {
        weft_stats *stats = each[i].stats;
        weft_vocab *v = NULL;

        st = end(&what[i], &each[i], &v);
        each[i].stats = NULL; /* owned by the list now */
        if (st)
            weft_stats_free(stats);
        else
            st = stats ? weft_learned_add_stats(l, what[i].name, stats)
                       : weft_learned_add_vocab(l, what[i].name, v);
    }
    if (st)
        wf_learned_cut(l, before);
    return st;
}

weft_status wf_learned_from(weft_learned *l, weft_data *d, weft_ds s, int n, const weft_learn *what,
                            int *bad)
{
    struct learning all = {.each = wf_alloc_n(d->ctx, n + 1, sizeof *all.each)};
    weft_status st = all.each ? WEFT_OK : wf_err_nomem(d->ctx, 0, "learned values");

    *bad = -1;
    for (; all.n < n && !st; all.n++) {
        st = begin(d, s, &what[all.n], &all.each[all.n]);
        if (st)
            *bad = all.n;
    }
    if (!st && n)
        st = wf_pass_over(d, s, 0, 0, learn_block, &all);
    if (!st)
        st = add(l, n, what, all.each);
    for (int i = 0; i < all.n; i++) {
        weft_stats_free(all.each[i].stats);
        weft_vocab_free(all.each[i].words.v);
    }
    wf_free(d->ctx, all.each);
    return st;
}

weft_status weft_learned_from(weft_learned *l, weft_data *d, weft_ds s, int n,
                              const weft_learn *what)
{
    int bad;
    weft_status st = wf_learned_from(l, d, s, n, what, &bad);

    return st && bad >= 0 ? wf_err_wrap(st, "learned '%s'", what[bad].name) : st;
}
