/* step.c - one batch: run, accumulate, log. Nothing here allocates. */
#include <math.h>

#include "train/step/dist.h"
#include "train/step/there.h"
#include "train/step/work.h"

void wf_pass_begin(weft_trainer *t)
{
    struct wf_bound *b = t->bound;

    t->mean_weight = 0;
    t->scale.state[WF_SCALE_SKIPPED_NOW] = 0;
    memset(t->mean_sum, 0, (size_t)b->n_means * sizeof *t->mean_sum);
    memset(t->sums, 0, (size_t)b->n_sums * sizeof *t->sums);
}

void wf_pass_swap(weft_trainer *t)
{
    struct wf_sums now = {t->mean_sum, t->mean_weight, t->sums, t->log_value,
                          t->scale.state[WF_SCALE_SKIPPED_NOW]};

    t->mean_sum = t->aside.mean_sum;
    t->mean_weight = t->aside.mean_weight;
    t->sums = t->aside.sums;
    t->log_value = t->aside.log_value;
    t->scale.state[WF_SCALE_SKIPPED_NOW] = t->aside.skipped;
    t->aside = now;
}

/* Adds a step's results to the pass: means are weighted by samples, as in Keras' epoch averages. */
void wf_step_add_up(weft_trainer *t, int64_t n)
{
    const struct wf_bound *b = t->bound;

    for (int i = 0; i < b->n_means; i++)
        t->mean_sum[i] += (double)*(const float *)t->fetch[i].data * (double)n;
    t->mean_weight += (double)n;
    for (int64_t i = 0; i < b->n_sums; i++)
        t->sums[i] += (double)((const float *)t->fetch[b->n_means].data)[i];
}

void wf_step_clear(weft_trainer *t)
{
    for (int i = 0; i < t->bound->n_means + 2; i++)
        t->fetch[i] = (weft_tensor){.data = NULL};
}

/* Whether the trainer's own function computes and updates in one run: nothing else needs the whole
 * gradient. */
static bool is_fused(const weft_trainer *t)
{
    const double *number = t->optim.number;
    const struct wf_work *w = t->bound->work;

    /* on a device the trainer's own function would leave constraints to the host */
    if (w && w->constrained && wf_there_can(w))
        return false;

    for (int i = 0; i < wf_model_n_weights(t->model); i++)
        if (wf_model_weight(t->model, i)->evict) /* whose rows are counted */
            return false;
    return t->dist->kind.fused && !t->rounds && t->shards == 1 && t->accumulate == 1 &&
           !t->bound->scaled && number[WF_OPTIM_ATTR_CLIPNORM] == 0 &&
           number[WF_OPTIM_ATTR_GLOBAL_CLIPNORM] == 0;
}

/* Creates the work where it decides whether steps are fused. */
static weft_status prepare(weft_trainer *t)
{
    struct wf_work *w;

    return t->bound->fit->store->home ? wf_work_get(t, &w) : WEFT_OK;
}

static weft_status step_in_shards(weft_trainer *t, const struct wf_samples *batch)
{
    struct wf_work *w;
    weft_status st = wf_work_get(t, &w);

    if (t->pending == 0)
        t->drawn = 0; /* a step draws the same numbers, whatever gradients were computed before
                       * it */
    if (!st)
        st = wf_dist_batch(t, w, batch, (int64_t)t->pending * t->shards);
    if (st) {
        t->pending = 0;
        return st;
    }
    t->pending++;
    if (t->rounds && t->round_end && weft_trainer_step(t) + t->pending == t->round_end)
        return wf_step_flush(t);
    return t->pending >= t->accumulate ? wf_step_flush(t) : WEFT_OK;
}

weft_status wf_step_flush(weft_trainer *t)
{
    struct wf_work *w;
    weft_status st;

    if (t->pending == 0)
        return WEFT_OK;
    t->pending = 0;
    st = wf_work_get(t, &w);
    return st ? st : wf_dist_apply(t, w);
}

void wf_step_drop(weft_trainer *t)
{
    t->pending = 0;
    if (t->bound && t->bound->work)
        wf_work_drop(t->bound->work);
}

weft_status wf_step_fit(weft_trainer *t, weft_tensor *feeds, int64_t n)
{
    struct wf_bound *b = t->bound;
    struct wf_work *w;
    bool started = false;
    weft_status st = wf_states_check(t, n);

    if (!st)
        st = prepare(t);
    if (st)
        return st;
    t->used_rate = t->rate;
    if (!is_fused(t))
        return step_in_shards(t, &(struct wf_samples){.n = n, .feeds = feeds});
    if (b->rate.id)
        feeds[b->n_feeds_fit - 1] = (weft_tensor){.dtype = WEFT_F32, .data = &t->rate};
    wf_step_clear(t);
    st = wf_work_get(t, &w); /* may fail: before anything changes */
    if (!st && t->flying.on && !w->constrained)
        st = wf_step_start(t, b->fit, feeds, n, true, &started);
    if (!st && !started)
        st = weft_fn_run(b->fit, feeds, t->fetch);
    if (!st && w->constrained)
        st = wf_work_constrain(w);
    if (!st) {
        t->drawn = 0;
        if (!started)
            wf_step_add_up(t, n);
    }
    return st;
}

weft_status wf_step_dealt(weft_trainer *t, struct wf_deal *d)
{
    weft_status st = prepare(t);

    if (st)
        return st;
    if (is_fused(t)) {
        st = wf_deal_whole(d);
        t->flying.at = d->at;
        return st ? st : wf_step_fit(t, d->feeds, d->n);
    }
    st = wf_states_check(t, d->n);
    if (st)
        return st;
    t->used_rate = t->rate;
    return step_in_shards(t, &(struct wf_samples){.n = d->n, .deal = d});
}

weft_status wf_run_aside(weft_fn *fn, const weft_tensor *feeds, weft_tensor *out)
{
    int64_t step = weft_fn_step(fn);
    weft_status st = weft_fn_run(fn, feeds, out);

    weft_fn_set_step(fn, step);
    return st;
}

weft_status wf_step_test(weft_trainer *t, weft_tensor *feeds, int64_t n, bool weighted)
{
    weft_fn *fn = t->bound->test[weighted];
    bool started = false;
    weft_status st = wf_states_check(t, n);

    wf_step_clear(t);
    if (!st && t->flying.on)
        st = wf_step_start(t, fn, feeds, n, false, &started);
    if (!st && !started)
        st = wf_run_aside(fn, feeds, t->fetch);
    if (!st && !started)
        wf_step_add_up(t, n);
    return st;
}

weft_logs wf_pass_logs(weft_trainer *t)
{
    const struct wf_bound *b = t->bound;

    for (int i = 0; i < b->n_logs; i++) {
        const struct wf_log_slot *slot = &b->log[i];

        if (!slot->metric)
            t->log_value[i] = t->mean_weight > 0 ? t->mean_sum[slot->at] / t->mean_weight : 0;
        else if (slot->result == 0) /* all of them; the others' slots follow */
            wf_metric_result(slot->metric, t->sums + slot->at, t->log_value + i);
    }
    return (weft_logs){b->n_logs, b->log_name, t->log_value};
}

weft_logs wf_train_logs(weft_trainer *t)
{
    const struct wf_bound *b = t->bound;
    weft_logs logs = wf_pass_logs(t);

    if (b->n_extra) {
        t->log_value[b->n_logs] = t->scale.state[WF_SCALE];
        t->log_value[b->n_logs + 1] = t->scale.state[WF_SCALE_SKIPPED_NOW];
    }
    logs.n += b->n_extra;
    return logs;
}

double weft_logs_get(const weft_logs *logs, const char *name)
{
    for (int i = 0; i < logs->n; i++)
        if (strcmp(logs->name[i], name) == 0)
            return logs->value[i];
    return NAN;
}
