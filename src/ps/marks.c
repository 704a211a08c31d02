/* marks.c - what the last piece is at a version besides parameters: sums of the step before, where
 * training is, totals. Whoever has the version knows all of it. */
#include "ps/store.h"

/* An epoch begins. */
static void begin_totals(const struct wf_ps_store_opts *o, double *marks)
{
    marks[WF_PS_BATCHES] = marks[WF_PS_SCALE + WF_SCALE_SKIPPED_NOW] = 0;
    memset(marks + WF_PS_TOTALS, 0, (size_t)wf_logs_totals(o->logs) * sizeof *marks);
}

/* The logs of an update. */
static void add_logs(const struct wf_ps_store_opts *o, const double *logs, double *marks)
{
    const struct wf_log_rules *l = o->logs;
    double *totals = marks + WF_PS_TOTALS;

    for (int a = 0; a < l->n_batches && logs; a++, logs += wf_logs_sums(o->rules, l)) {
        if (!(logs[wf_rules_samples(o->rules)] > 0)) /* the last step may have fewer batches */
            continue;
        marks[WF_PS_BATCHES]++;
        wf_logs_add(o->rules, l, logs,
                    &(struct wf_log_totals){totals, totals + l->n_means, totals + l->n_means + 1});
    }
}

/* Batches of validation data, each as what it adds to the totals, in their order. */
static void add_validated(const struct wf_ps_store_opts *o, bool fresh, const double *logs,
                          double *marks)
{
    const struct wf_log_rules *l = o->logs;
    int64_t n = wf_logs_totals(l);
    double *totals = marks + WF_PS_TOTALS + n;
    const double *batch = logs ? logs + l->n_batches * wf_logs_sums(o->rules, l) : NULL;

    if (fresh) {
        marks[WF_PS_ROUNDS] = marks[WF_PS_VALIDATED] = 0;
        memset(totals, 0, (size_t)n * sizeof *totals);
    }
    marks[WF_PS_ROUNDS]++;
    for (int b = 0; b < l->n_slots && batch; b++, batch += n) {
        if (!(batch[l->n_means] > 0))
            continue;
        marks[WF_PS_VALIDATED]++;
        for (int64_t i = 0; i < n; i++)
            totals[i] += batch[i];
    }
}

static void next_marks(const struct wf_ps_store_opts *o, const struct wf_ps_mark *mark,
                       const double *logs, double *marks)
{
    bool updates = mark->kind == WF_PS_UPDATE || mark->kind == WF_PS_MODELS;

    marks[WF_PS_CONTROL] = (double)mark->control;
    marks[WF_PS_STEP] = (double)(mark->step + updates);
    marks[WF_PS_KIND] = mark->kind;
    if (mark->kind == WF_PS_STILL)
        add_validated(o, mark->fresh, logs, marks);
    else if (mark->fresh)
        begin_totals(o, marks);
    if (!updates && mark->kind != WF_PS_SKIPPED)
        return;
    add_logs(o, logs, marks);
    if (marks[WF_PS_GROWTH] > 0 && logs) /* a lease may be of a shard without samples */
        wf_scale_next(marks + WF_PS_SCALE, marks[WF_PS_GROWTH], updates);
}

void wf_ps_next_kept(const struct wf_ps_store_opts *o, const struct wf_ps_mark *mark,
                     const double *sums, const double *before, double *to)
{
    int64_t own = o->rules->n_sums, n = own + o->n_logs;
    int64_t kept = o->logs ? n + WF_PS_TOTALS + 2 * wf_logs_totals(o->logs) : n;
    bool changes =
        mark->kind == WF_PS_UPDATE || wf_ps_replaces(mark->kind) || mark->kind == WF_PS_MODELS;

    memcpy(to, before, (size_t)kept * sizeof *to);
    memset(to + own, 0, (size_t)o->n_logs * sizeof *to);
    if (sums && changes)
        memcpy(to, sums, (size_t)own * sizeof *to);
    if (sums && o->n_logs)
        memcpy(to + own, sums + own, (size_t)o->n_logs * sizeof *to);
    if (o->logs)
        next_marks(o, mark, sums ? sums + own : NULL, to + n);
}
