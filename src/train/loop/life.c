/* life.c - the tables of states, moves and calls of life.h. */
#include "train/train.h"

#define BIT(life) (1u << (life))
#define BETWEEN                                                                              \
    (BIT(WF_LIFE_NEW) | BIT(WF_LIFE_COMPLETE) | BIT(WF_LIFE_ENDED) | BIT(WF_LIFE_DIVERGED) | \
     BIT(WF_LIFE_STOPPED) | BIT(WF_LIFE_PAUSED) | BIT(WF_LIFE_UNSAVED) | BIT(WF_LIFE_FAILED))
#define ALWAYS (BIT(WF_N_LIVES) - 1)

/* Each state with those that it may follow. */
static const struct {
    const char *name;
    unsigned after;
} lives[WF_N_LIVES] = {
    [WF_LIFE_NEW] = {"new", 0},
    [WF_LIFE_OPENING] = {"opening", BETWEEN},
    [WF_LIFE_TRAINING] = {"training", BIT(WF_LIFE_OPENING) | BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_CLOSING] = {"closing", BIT(WF_LIFE_TRAINING)},
    [WF_LIFE_COMPLETE] = {"complete", BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_ENDED] = {"ended", BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_DIVERGED] = {"diverged", BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_STOPPED] = {"stopped", BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_PAUSED] = {"paused", BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_UNSAVED] = {"unsaved", BIT(WF_LIFE_CLOSING)},
    [WF_LIFE_FAILED] = {"failed",
                        BIT(WF_LIFE_OPENING) | BIT(WF_LIFE_TRAINING) | BIT(WF_LIFE_CLOSING)},
};

/* Each call with the states that allow it, and what is said in the others. */
static const struct {
    unsigned in;
    const char *why;
} calls[WF_N_CALLS] = {
    [WF_CALL_FIT] = {BETWEEN, "fit: a fit of this trainer is under way (%s); call it again after "
                              "that has returned"},
    [WF_CALL_TRAIN] = {BETWEEN, "train_on_batch: fit is under way (%s); its callbacks may measure "
                                "the model, not train it"},
    [WF_CALL_GRADIENTS] = {BETWEEN, "gradients: fit is under way (%s); its callbacks may measure "
                                    "the model, not train it"},
    [WF_CALL_APPLY] = {BETWEEN, "apply: fit is under way (%s); its callbacks may measure the "
                                "model, not train it"},
    [WF_CALL_BIND] = {BETWEEN | BIT(WF_LIFE_OPENING),
                      "labels or weights of another type, while fit is under way (%s) with those "
                      "it began with"},
    [WF_CALL_EVALUATE] = {ALWAYS, ""},
};

const char *wf_life_name(enum wf_life life)
{
    return lives[life].name;
}

bool wf_life_follows(enum wf_life from, enum wf_life to)
{
    return lives[to].after & BIT(from);
}

weft_status wf_life_move(weft_trainer *t, enum wf_life to)
{
    if (!wf_life_follows(t->life, to))
        return wf_err(WEFT_EBUG, "fit: %s does not follow %s", wf_life_name(to),
                      wf_life_name(t->life));
    t->life = to;
    return WEFT_OK;
}

weft_status wf_life_allows(const weft_trainer *t, enum wf_life_call call)
{
    if (calls[call].in & BIT(t->life))
        return WEFT_OK;
    return wf_err(WEFT_ESTATE, calls[call].why, wf_life_name(t->life));
}

bool wf_life_in_order(const weft_trainer *t)
{
    return t->life == WF_LIFE_COMPLETE || t->life == WF_LIFE_ENDED || t->life == WF_LIFE_UNSAVED;
}

void wf_ask(weft_trainer *t, unsigned what)
{
    unsigned was = atomic_load(&t->asked);

    while (!atomic_compare_exchange_weak(&t->asked, &was, (was & WF_ASK_PAST ? 0 : was) | what))
        ;
}

void wf_ask_begin(weft_trainer *t)
{
    unsigned was = atomic_load(&t->asked);

    while (!atomic_compare_exchange_weak(&t->asked, &was,
                                         was & WF_ASK_PAST ? 0 : was & WF_ASK_INTERRUPT))
        ;
}

void wf_ask_end(weft_trainer *t)
{
    atomic_fetch_or(&t->asked, WF_ASK_PAST);
}

bool wf_asked(const weft_trainer *t, unsigned what)
{
    return t->asked & what;
}

bool wf_interrupted(const weft_trainer *t)
{
    return (t->asked & WF_ASK_STOP) == WF_ASK_INTERRUPT;
}
