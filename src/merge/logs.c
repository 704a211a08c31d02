/* logs.c - the logs of a batch, added to the totals of an epoch. The same code wherever totals are
 * kept: in the process that trains, or on a server; so they have the same bits. */
#include "merge/merge.h"

int64_t wf_logs_sums(const struct wf_rules *r, const struct wf_log_rules *l)
{
    return 2 * (int64_t)r->n_groups + 1 + l->n_means + l->n_metrics;
}

int64_t wf_logs_totals(const struct wf_log_rules *l)
{
    return l->n_means + 1 + l->n_metrics;
}

int64_t wf_logs_step(const struct wf_rules *r, const struct wf_log_rules *l)
{
    return l->n_batches * wf_logs_sums(r, l) + l->n_slots * wf_logs_totals(l);
}

void wf_logs_add(const struct wf_rules *r, const struct wf_log_rules *l, const double *sums,
                 struct wf_log_totals *to)
{
    const double *means = sums + r->n_groups + 1, *losses = means + l->n_means;
    const double *metrics = losses + r->n_groups;
    double n = sums[wf_rules_samples(r)], total = 0;

    if (r->whole) {
        for (int i = 0; i < l->n_means; i++)
            to->mean[i] += means[i];
    } else if (l->n_means > 0) {
        total = means[0] / n;
        for (int k = 0; k < r->n_groups; k++)
            total += sums[k] > 0 ? losses[k] / sums[k] : 0;
        to->mean[0] += total * n;
        for (int i = 1; i < l->n_means; i++) {
            double d = sums[l->mean_group[i]];

            to->mean[i] += d > 0 ? means[i] / d * n : 0;
        }
    }
    *to->weight += n;
    for (int64_t i = 0; i < l->n_metrics; i++)
        to->metric[i] += metrics[i];
}
