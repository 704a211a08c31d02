/* bind_logs.c - what a trainer logs: names of losses and metrics, and the metrics' sums. */
#include <stdio.h>

#include "train/step/bind.h"

/* ---- names ----------------------------------------------------------------------------------- */

char *wf_join(struct wf_arena *a, const char *x, const char *y)
{
    size_t n = strlen(x) + strlen(y) + 1;
    char *s = wf_arena_alloc(a, n);

    if (s)
        snprintf(s, n, "%s%s", x, y);
    return s;
}

const char *wf_output_name(const weft_trainer *t, int out)
{
    return weft_sym_name(t->model, weft_model_output_at(t->model, out));
}

/* Names of training and of validation appear together in logs. */
static bool is_taken(const struct wf_bound *b, const char *name, const char *val_name)
{
    for (int i = 0; i < b->n_logs; i++)
        if (!strcmp(b->log_name[i], name) || !strcmp(b->val_name[i], name) ||
            !strcmp(b->log_name[i], val_name))
            return true;
    return false;
}

/* A new row of the logs; with several outputs, metrics and losses have the output's name. As in
 * Keras, duplicate names get a number: auc, auc_1. */
static struct wf_log_slot *add_log(weft_trainer *t, struct wf_bound *b, int out, const char *name)
{
    struct wf_log_slot *slot = &b->log[b->n_logs];
    const char *first = name, *full, *val;
    char number[16];

    if (t->n_out > 1 && out >= 0) {
        const char *prefix = wf_join(&b->arena, wf_output_name(t, out), "_");

        first = prefix ? wf_join(&b->arena, prefix, name) : NULL;
    }
    full = first;
    val = full ? wf_join(&b->arena, "val_", full) : NULL;
    for (int k = 1; val && is_taken(b, full, val); k++) {
        snprintf(number, sizeof number, "_%d", k);
        full = wf_join(&b->arena, first, number);
        val = full ? wf_join(&b->arena, "val_", full) : NULL;
    }
    if (!val)
        return NULL;
    slot->name = b->log_name[b->n_logs] = full;
    b->val_name[b->n_logs++] = val;
    return slot;
}

/* ---- metrics --------------------------------------------------------------------------------- */

static struct wf_type type_of(const weft_graph *g, weft_val v)
{
    weft_tensor t = {.rank = 0};

    weft_val_type(g, v, &t);
    return wf_type_of(t.dtype, t.rank, t.dim);
}

static weft_status init_metrics(weft_trainer *t, struct wf_bound *b, int *n_results)
{
    b->metric = wf_arena_alloc(&b->arena, (size_t)(t->n_metrics + 1) * sizeof *b->metric);
    if (!b->metric)
        return wf_err_nomem(t->ctx, 0, "the training step");
    for (int i = 0; i < t->n_metrics; i++) {
        int out = t->metric[i].out;
        struct wf_type y = type_of(b->graph, wf_bound_label(t, b, out)),
                       pred = type_of(b->graph, b->infer.out[out]);
        weft_status st =
            wf_metric_init(t->model, &b->metric[i], &b->arena, t->metric[i].text, &y, &pred);

        if (st)
            return st;
        *n_results += b->metric[i].n_results;
    }
    return WEFT_OK;
}

static weft_status log_metric(weft_trainer *t, struct wf_bound *b, int i)
{
    const struct wf_metric *m = &b->metric[i];

    for (int k = 0; k < m->n_results; k++) {
        char suffix[WF_METRIC_SUFFIX];
        const char *name;
        struct wf_log_slot *slot;

        wf_metric_suffix(m, k, suffix);
        name = wf_join(&b->arena, m->name, suffix);
        slot = name ? add_log(t, b, t->metric[i].out, name) : NULL;
        if (!slot)
            return wf_err_nomem(t->ctx, 0, "the training step");
        slot->metric = m;
        slot->at = b->n_sums;
        slot->result = k;
    }
    b->n_sums += m->n_state;
    return WEFT_OK;
}

/* After the others, only in training. */
static weft_status log_scale(weft_trainer *t, struct wf_bound *b)
{
    int n = b->n_logs;

    if (!add_log(t, b, -1, "loss_scale") || !add_log(t, b, -1, "skipped_steps"))
        return wf_err_nomem(t->ctx, 0, "the training step");
    b->n_extra = b->n_logs - n;
    b->n_logs = n;
    return WEFT_OK;
}

weft_status wf_make_logs(weft_trainer *t, struct wf_bound *b)
{
    int n_results = 0;
    size_t n;
    weft_status st = init_metrics(t, b, &n_results);

    if (st)
        return st;
    n = (size_t)t->n_out + (size_t)n_results + 4;
    b->log = wf_arena_alloc(&b->arena, n * sizeof *b->log);
    b->log_name = wf_arena_alloc(&b->arena, n * sizeof *b->log_name);
    b->val_name = wf_arena_alloc(&b->arena, n * sizeof *b->val_name);
    if (!b->log || !b->log_name || !b->val_name || !add_log(t, b, -1, "loss"))
        return wf_err_nomem(t->ctx, 0, "the training step");
    b->n_means = 1;
    for (int i = 0; i < t->n_out && t->n_out > 1; i++)
        if (t->loss[i]) {
            struct wf_log_slot *slot = add_log(t, b, i, "loss");

            if (!slot)
                return wf_err_nomem(t->ctx, 0, "the training step");
            slot->at = b->n_means++;
        }
    for (int i = 0; i < t->n_metrics && !st; i++)
        st = log_metric(t, b, i);
    if (!st && b->scaled)
        st = log_scale(t, b);
    return st;
}

weft_status wf_build_metrics(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                             bool weighted, weft_val *out)
{
    weft_graph *g = b->graph;
    weft_val *sums = wf_alloc_n(t->ctx, t->n_metrics, sizeof *sums);
    weft_status st = sums ? WEFT_OK : wf_err_nomem(t->ctx, 0, "the training step");

    for (int i = 0; i < t->n_metrics && !st; i++) {
        const struct wf_metric *metric = &b->metric[i];
        int o = t->metric[i].out;
        weft_val w = WEFT_NIL;

        if (t->metric[i].weighted)
            w = wf_sample_weights(t, b, m, weighted, o);
        w = wf_metric_weight(g, metric, w, m->out_mask[o]);
        st = wf_metric_build(g, metric, wf_bound_label(t, b, o), m->out[o], w, &sums[i]);
    }
    if (!st) {
        *out = t->n_metrics == 1 ? sums[0] : weft_concat(g, t->n_metrics, sums, 0);
        st = weft_graph_status(g);
    }
    wf_free(t->ctx, sums);
    return st;
}
