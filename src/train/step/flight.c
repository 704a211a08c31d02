/* flight.c - batches that are started on a device and not waited for: while one computes, the next
 * is prepared and its feeds are copied. What each gives is added to the pass when it lands, in the
 * order of the batches, so that the sums have the same bits. */
#include "train/train.h"

bool wf_step_flies(const weft_trainer *t)
{
    return t->bound->fit && t->bound->fit->away;
}

void wf_flying_begin(weft_trainer *t, struct wf_flying *outer)
{
    *outer = t->flying;
    t->flying = (struct wf_flying){.failed = -1};
}

void wf_flying_end(weft_trainer *t, const struct wf_flying *outer)
{
    t->flying = *outer;
}

/* The loop has failed with st: what is still in flight counts for nobody. */
static weft_status let_go(weft_trainer *t, weft_status st)
{
    struct wf_flying *s = &t->flying;
    char text[512];

    wf_snprintf(text, sizeof text, "%s", weft_error());
    for (weft_status late = WEFT_OK; s->n && !late; s->n--) {
        wf_step_clear(t);
        late = wf_fn_land(s->fn, t->fetch);
    }
    s->n = 0;
    wf_err_set(text);
    return st;
}

weft_status wf_step_land(weft_trainer *t)
{
    struct wf_flying *s = &t->flying;
    int64_t at = s->batch[0].at, n = s->batch[0].n;
    weft_status st;

    wf_step_clear(t);
    st = wf_fn_land(s->fn, t->fetch);
    if (st) { /* those after it are void */
        s->failed = at;
        s->n = 0;
        return st;
    }
    s->batch[0] = s->batch[1];
    s->n--;
    wf_step_add_up(t, n);
    st = s->landed ? s->landed(s->arg, at) : WEFT_OK;
    return st ? let_go(t, st) : WEFT_OK;
}

weft_status wf_step_settle(weft_trainer *t)
{
    weft_status st = WEFT_OK;

    while (t->flying.n && !st)
        st = wf_step_land(t);
    return st;
}

weft_status wf_step_end(weft_trainer *t, weft_status st)
{
    char text[512];
    weft_status late;

    if (!t->flying.n)
        return st;
    wf_snprintf(text, sizeof text, "%s", st ? weft_error() : "");
    late = wf_step_settle(t);
    if (late)
        return late;
    if (st)
        wf_err_set(text);
    return st;
}

weft_status wf_step_start(weft_trainer *t, weft_fn *fn, const weft_tensor *feeds, int64_t n,
                          bool counts, bool *started)
{
    struct wf_flying *s = &t->flying;
    weft_status st = WEFT_OK;

    *started = false;
    while (!st && (s->n == WF_FLIGHT || (s->n && s->fn != fn)))
        st = wf_step_land(t);
    if (st)
        return st;
    st = wf_fn_start(fn, feeds, counts, started);
    if (st || !*started) {
        st = wf_step_end(t, st);
        wf_step_clear(t);
        return st;
    }
    s->fn = fn;
    s->batch[s->n].at = s->at;
    s->batch[s->n++].n = n;
    return WEFT_OK;
}
