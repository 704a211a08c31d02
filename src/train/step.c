/* step.c - one batch: run, add up, log. Nothing here allocates. */
#include <math.h>

#include "train/train.h"

void wf_pass_begin(weft_trainer *t)
{
    struct wf_bound *b = t->bound;

    t->mean_weight = 0;
    memset(t->mean_sum, 0, (size_t)b->n_means * sizeof *t->mean_sum);
    memset(t->sums, 0, (size_t)b->n_sums * sizeof *t->sums);
}

/* Adds a step's results to the pass: means count by samples, as Keras' epoch averages do. */
static void add_up(weft_trainer *t, int64_t n)
{
    const struct wf_bound *b = t->bound;

    for (int i = 0; i < b->n_means; i++)
        t->mean_sum[i] += (double)*(const float *)t->fetch[i].data * (double)n;
    t->mean_weight += (double)n;
    for (int64_t i = 0; i < b->n_sums; i++)
        t->sums[i] += (double)((const float *)t->fetch[b->n_means].data)[i];
}

static void clear_fetches(weft_trainer *t, int n)
{
    for (int i = 0; i < n; i++)
        t->fetch[i] = (weft_tensor){.data = NULL};
}

weft_status wf_step_fit(weft_trainer *t, weft_tensor *feeds, int64_t n)
{
    struct wf_bound *b = t->bound;
    weft_status st;

    if (b->rate.id)
        feeds[b->n_feeds_fit - 1] = (weft_tensor){.dtype = WEFT_F32, .data = &t->rate};
    clear_fetches(t, b->n_means + (b->n_sums > 0));
    st = weft_fn_run(b->fit, feeds, t->fetch);
    if (!st && b->constrain)
        st = weft_fn_run(b->constrain, NULL, NULL);
    if (!st)
        add_up(t, n);
    return st;
}

weft_status wf_step_test(weft_trainer *t, weft_tensor *feeds, int64_t n)
{
    struct wf_bound *b = t->bound;
    weft_status st;

    clear_fetches(t, b->n_means + (b->n_sums > 0));
    st = weft_fn_run(b->test, feeds, t->fetch);
    if (!st)
        add_up(t, n);
    return st;
}

weft_logs wf_pass_logs(weft_trainer *t)
{
    const struct wf_bound *b = t->bound;

    for (int i = 0; i < b->n_logs; i++) {
        const struct wf_log_slot *slot = &b->log[i];

        t->log_value[i] = slot->metric         ? wf_metric_result(slot->metric, t->sums + slot->at)
                          : t->mean_weight > 0 ? t->mean_sum[slot->at] / t->mean_weight
                                               : 0;
    }
    return (weft_logs){b->n_logs, b->log_name, t->log_value};
}

double weft_logs_get(const weft_logs *logs, const char *name)
{
    for (int i = 0; i < logs->n; i++)
        if (strcmp(logs->name[i], name) == 0)
            return logs->value[i];
    return NAN;
}
