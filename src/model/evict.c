/* evict.c - which rows of a looked-up table are forgotten. */
#include "model/core.h"

static const struct wf_word evictions[] = {
    {"unused", "steps:i every:i=0 min_count:i=0"},
};
const struct wf_words wf_evictions = {"evict", evictions, sizeof evictions[0], WF_COUNT(evictions)};

static const int64_t most_steps = (int64_t)1 << 48;

weft_status wf_evict_parse(struct wf_arena *arena, const char *evict, struct wf_evict *out)
{
    struct wf_word_args a;
    weft_status st = wf_word_parse(&wf_evictions, arena, evict, &a);
    struct wf_evict e;

    if (st)
        return st;
    e.unused = wf_word_arg(&a, "steps")->i;
    e.every = wf_word_arg(&a, "every")->i ? wf_word_arg(&a, "every")->i : e.unused;
    e.min_count = wf_word_arg(&a, "min_count")->i;
    if (e.unused < 1 || e.unused > most_steps || e.every < 1 || e.every > most_steps)
        return wf_err(WEFT_EINVAL,
                      "evict: rows unused for %lld steps, looked for every %lld steps: both must "
                      "be 1 or more",
                      (long long)e.unused, (long long)e.every);
    if (e.min_count < 0 || e.min_count > most_steps)
        return wf_err(WEFT_EINVAL, "evict: min_count is %lld: it must be 0 or more",
                      (long long)e.min_count);
    *out = e;
    return WEFT_OK;
}

weft_status wf_evict_check(struct wf_arena *arena, const struct wf_weight *w)
{
    struct wf_evict e;
    weft_status st = wf_evict_parse(arena, w->evict, &e);

    if (!st && (w->dense || w->regularizer || w->constraint))
        st = wf_err(WEFT_EINVAL,
                    "evict: rows are forgotten only in tables of which a step updates the rows "
                    "looked up alone: not with %s",
                    w->dense         ? "sparse=false"
                    : w->regularizer ? "a regularizer"
                                     : "a constraint");
    return st;
}
