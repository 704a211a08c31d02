/* bind.c - a trainer's graph: the model twice (training and inference), losses, metrics, updates, and the functions over
 * them. It is made when the labels' types are known. */
#include <stdio.h>

#include "train/halves.h"

static weft_status err_nomem(void)
{
    return wf_err(WEFT_ENOMEM, "out of memory");
}

void wf_bound_free(struct wf_bound *b)
{
    weft_ctx *ctx;

    if (!b)
        return;
    ctx = b->arena.ctx;
    weft_fn_free(b->constrain);
    wf_halves_free(b->halves);
    weft_fn_free(b->predict);
    weft_fn_free(b->test);
    weft_fn_free(b->fit);
    weft_graph_free(b->graph);
    wf_arena_free(&b->arena);
    wf_free(ctx, b);
}

bool wf_output_needs_label(const weft_trainer *t, int out)
{
    return t->loss[out] || t->metrics[0][out] || t->metrics[1][out];
}

/* ---- names ----------------------------------------------------------------------------------- */

static char *join(struct wf_arena *a, const char *x, const char *y)
{
    size_t n = strlen(x) + strlen(y) + 1;
    char *s = wf_arena_alloc(a, n);

    if (s)
        snprintf(s, n, "%s%s", x, y);
    return s;
}

static const char *output_name(const weft_trainer *t, int out)
{
    return weft_sym_name(t->model, weft_model_output_at(t->model, out));
}

/* A new row of the logs; with several outputs metrics and losses carry the output's name. */
static struct wf_log_slot *add_log(weft_trainer *t, struct wf_bound *b, int out, const char *name)
{
    struct wf_log_slot *slot = &b->log[b->n_logs];
    const char *full = name;

    if (t->n_out > 1 && out >= 0) {
        const char *prefix = join(&b->arena, output_name(t, out), "_");

        full = prefix ? join(&b->arena, prefix, name) : NULL;
    }
    if (!full)
        return NULL;
    slot->name = full;
    b->log_name[b->n_logs] = full;
    b->val_name[b->n_logs] = join(&b->arena, "val_", full);
    if (!b->val_name[b->n_logs])
        return NULL;
    b->n_logs++;
    return slot;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* The weights of all classes: those behind the ones given weigh 1. */
static weft_val class_table(const weft_trainer *t, weft_graph *g, int64_t n_classes)
{
    int64_t given = t->n_class_weights, rest;
    weft_val part[2];

    if (n_classes < 2)
        n_classes = 2; /* one output tells two apart */
    rest = n_classes - given;
    part[0] = weft_constant(
        g, &(weft_tensor){.dtype = WEFT_F32, .rank = 1, .dim = {given}, .data = t->class_weights});
    if (rest <= 0)
        return part[0];
    part[1] = weft_broadcast_to(g, weft_scalar(g, 1), 1, &rest);
    return weft_concat(g, 2, part, 0);
}

/* The weight of each sample: the fed one, and in training the class's as well. As in Keras, classes weigh alike when a model is
 * measured. */
static weft_val sample_weights(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                               int out)
{
    weft_val y = b->label[out], pred = m->out[out];
    weft_graph *g = b->graph;
    weft_val w = b->weighted ? b->weight : WEFT_NIL, c, table;
    weft_tensor type, ptype;
    int64_t n = m == &b->train ? t->n_class_weights : 0;

    if (!n)
        return w;
    if (weft_val_type(g, y, &type) || weft_val_type(g, pred, &ptype))
        return WEFT_NIL;
    table = class_table(t, g, ptype.rank > 1 ? ptype.dim[ptype.rank - 1] : 1);
    if (type.rank == ptype.rank && type.rank > 1 && type.dim[type.rank - 1] != 1)
        y = weft_argmax(g, y, -1, NULL); /* one-hot labels */
    else if (type.rank > 1)
        y = weft_reshape(g, y, 1, (int64_t[]){-1});
    c = weft_gather(g, table, weft_cast(g, y, WEFT_I64), NULL);
    return w.id ? weft_mul(g, w, c) : c;
}

/* The mean of an output's loss over the batch; *valid: how many values count where there is a mask, otherwise nil. */
static weft_status output_loss(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                               int out, weft_val *mean, weft_val *valid)
{
    weft_graph *g = b->graph;
    weft_val values = WEFT_NIL, mask = WEFT_NIL, sum, count, w, none;
    weft_status st = wf_loss_build(g, t->loss[out], b->label[out], m->out[out], &values);

    if (!st)
        st = wf_loss_mask(g, t->loss[out], b->label[out], m->out[out], &mask);
    if (st)
        return wf_err_wrap(st, "output '%s'", output_name(t, out));
    if (m->out_mask[out].id)
        mask = mask.id ? weft_logical_and(g, mask, m->out_mask[out]) : m->out_mask[out];
    w = sample_weights(t, b, m, out);
    *valid = WEFT_NIL;
    if (!w.id && !mask.id) {
        *mean = weft_mean(g, values, NULL);
        return weft_graph_status(g);
    }
    st = wf_loss_reduce(g, values, w, mask, &sum, &count);
    if (st)
        return st;
    if (mask.id)
        *valid = count;
    none = weft_eq(g, count, weft_scalar(g, 0)); /* a batch without valid values has loss 0 */
    *mean = weft_where(g, none, weft_scalar(g, 0),
                       weft_div(g, sum, weft_where(g, none, weft_scalar(g, 1), count)));
    return weft_graph_status(g);
}

/* One item of each sample. */
static weft_val first_of_each(weft_graph *g, weft_val x)
{
    weft_tensor type;

    if (weft_val_type(g, x, &type))
        return WEFT_NIL;
    for (int k = type.rank - 1; k >= 1; k--)
        x = weft_squeeze(g, weft_slice_axis(g, x, k, 0, 1), 1, (int64_t[]){k});
    return x;
}

/* A term of the loss goes to the group with its denominator: samples (group 0) for all that have no mask. */
static int add_term(struct wf_bound *b, weft_val mean, weft_val valid)
{
    int at = valid.id ? b->n_groups++ : 0;
    struct wf_group *group = &b->group[at];

    group->loss = group->loss.id ? weft_add(b->graph, group->loss, mean) : mean;
    group->weight = valid;
    return at;
}

/* Does anything that is fed reach v? */
static bool is_fed(struct wf_bound *b, weft_val v)
{
    const weft_graph *g = b->graph;
    bool *need = v.id && !g->st ? wf_alloc_n(g->ctx, g->n_nodes, sizeof *need) : NULL, fed = true;

    if (!need)
        return true; /* without memory building fails soon */
    need[g->values[v.id].node] = true;
    fed = false;
    for (int64_t k = g->values[v.id].node; k >= 0 && !fed; k--) {
        fed = need[k] && g->nodes[k].op->id == WF_OP_placeholder;
        for (int i = 0; need[k] && i < g->nodes[k].n_in; i++)
            if (g->nodes[k].in[i])
                need[g->values[g->nodes[k].in[i]].node] = true;
    }
    wf_free(g->ctx, need);
    return fed;
}

/* What layers add to the loss: it counts with the samples, or once a step when it depends on weights alone. Group 0 goes when
 * nothing is in it. */
static void finish_groups(struct wf_bound *b)
{
    weft_graph *g = b->graph;

    for (int i = 0; i < b->train.n_losses; i++) {
        weft_val v = b->train.loss[i];

        if (is_fed(b, v))
            add_term(b, v, WEFT_NIL);
        else
            b->fixed = b->fixed.id ? weft_add(g, b->fixed, v) : v;
    }
    if (!b->group[0].loss.id && b->n_groups > 1) {
        memmove(b->group, b->group + 1, (size_t)--b->n_groups * sizeof *b->group);
        for (int i = 0; i < b->n_means; i++)
            b->mean_group[i] -= b->mean_group[i] > 0;
        return;
    }
    if (!b->group[0].loss.id)
        b->group[0].loss = weft_scalar(g, 0);
    b->group[0].weight = weft_sum(
        g, weft_ones_like(g, weft_cast(g, first_of_each(g, b->train.in[0]), WEFT_F32)), NULL);
}

/* The total of one mode, and the outputs' means behind it. */
static weft_status build_losses(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                                weft_val *means)
{
    weft_graph *g = b->graph;
    weft_val total = WEFT_NIL, v, valid = WEFT_NIL;
    int n = 1;
    weft_status st = WEFT_OK;

    for (int i = 0; i < t->n_out && !st; i++) {
        int group;

        if (!t->loss[i])
            continue;
        st = output_loss(t, b, m, i, &v, &valid);
        if (st)
            return st;
        means[n] = v;
        if (t->loss_weight[i] != 1)
            v = weft_mul(g, v, weft_scalar(g, t->loss_weight[i]));
        total = total.id ? weft_add(g, total, v) : v;
        group = m == &b->train ? add_term(b, v, valid) : 0;
        if (t->n_out > 1 && m == &b->train)
            b->mean_group[n] = group;
        n += t->n_out > 1;
    }
    for (int i = 0; i < b->train.n_losses; i++) /* regularizers count in evaluation too */
        total = total.id ? weft_add(g, total, b->train.loss[i]) : b->train.loss[i];
    means[0] = total.id ? total : weft_scalar(g, 0);
    return weft_graph_status(g);
}

/* ---- metrics --------------------------------------------------------------------------------- */

enum { MAX_METRICS = 64 };

static weft_status add_metric(weft_trainer *t, struct wf_bound *b, int out, const char *spec,
                              bool weighted, weft_val *sums_fit, weft_val *sums_test, int *n)
{
    weft_graph *g = b->graph;
    struct wf_metric *metric = wf_arena_alloc(&b->arena, sizeof *metric);
    struct wf_log_slot *slot;
    struct wf_type y, pred;
    weft_tensor ty, tp;
    weft_val fit = WEFT_NIL, test = WEFT_NIL; /* weights */
    weft_status st;

    if (!metric)
        return err_nomem();
    if (*n == MAX_METRICS)
        return wf_err(WEFT_EINVAL, "over %d metrics", MAX_METRICS);
    weft_val_type(g, b->label[out], &ty);
    weft_val_type(g, b->infer.out[out], &tp);
    y = wf_type_of(ty.dtype, ty.rank, ty.dim);
    pred = wf_type_of(tp.dtype, tp.rank, tp.dim);
    st = wf_metric_init(metric, &b->arena, spec, t->loss[out], &y, &pred);
    if (st)
        return st;
    if (weighted) {
        fit = sample_weights(t, b, &b->train, out);
        test = sample_weights(t, b, &b->infer, out);
    }
    st = wf_metric_build(g, metric, b->label[out], b->train.out[out],
                         wf_metric_weight(g, metric, fit, b->train.out_mask[out]), &sums_fit[*n]);
    if (!st)
        st = wf_metric_build(g, metric, b->label[out], b->infer.out[out],
                             wf_metric_weight(g, metric, test, b->infer.out_mask[out]),
                             &sums_test[*n]);
    if (st)
        return st;
    slot = add_log(t, b, out, metric->name);
    if (!slot)
        return err_nomem();
    slot->metric = metric;
    slot->at = b->n_sums;
    b->n_sums += metric->n_state;
    ++*n;
    return WEFT_OK;
}

/* All metrics' sums as one vector for each mode. */
static weft_status build_metrics(weft_trainer *t, struct wf_bound *b, weft_val *fit, weft_val *test)
{
    weft_val sums_fit[MAX_METRICS], sums_test[MAX_METRICS];
    int n = 0;
    weft_status st = WEFT_OK;

    for (int i = 0; i < t->n_out && !st; i++)
        for (int weighted = 0; weighted < 2 && !st; weighted++) {
            const char *text = t->metrics[weighted][i];

            while (text && *text && !st) {
                size_t len = strcspn(text, ","), skip = strspn(text, " ");
                char spec[256];

                if (len - (skip < len ? skip : len) >= sizeof spec)
                    return wf_err(WEFT_EINVAL, "metric '%.40s…' is too long", text);
                snprintf(spec, sizeof spec, "%.*s", (int)(len - (skip < len ? skip : len)),
                         text + (skip < len ? skip : len));
                text += len + (text[len] == ',');
                if (*spec)
                    st = add_metric(t, b, i, spec, weighted, sums_fit, sums_test, &n);
            }
        }
    if (st || n == 0)
        return st;
    *fit = n == 1 ? sums_fit[0] : weft_concat(b->graph, n, sums_fit, 0);
    *test = n == 1 ? sums_test[0] : weft_concat(b->graph, n, sums_test, 0);
    return weft_graph_status(b->graph);
}

/* ---- functions ------------------------------------------------------------------------------- */

static weft_status new_bound(weft_trainer *t, struct wf_bound **out)
{
    struct wf_bound *b = wf_alloc(t->ctx, sizeof *b);
    size_t n = (size_t)t->n_out + MAX_METRICS + 2;
    weft_status st;

    if (!b)
        return wf_err_nomem(t->ctx, sizeof *b, "compile");
    wf_arena_init(&b->arena, t->ctx);
    b->label = wf_arena_alloc(&b->arena, n * sizeof *b->label);
    b->label_type = wf_arena_alloc(&b->arena, n * sizeof *b->label_type);
    b->log = wf_arena_alloc(&b->arena, n * sizeof *b->log);
    b->log_name = wf_arena_alloc(&b->arena, n * sizeof *b->log_name);
    b->val_name = wf_arena_alloc(&b->arena, n * sizeof *b->val_name);
    b->group = wf_arena_alloc(&b->arena, n * sizeof *b->group);
    b->mean_group = wf_arena_alloc(&b->arena, n * sizeof *b->mean_group);
    st = b->label && b->label_type && b->log && b->log_name && b->val_name && b->group &&
                 b->mean_group
             ? WEFT_OK
             : err_nomem();
    if (!st)
        st = weft_graph_new(t->ctx, &b->graph);
    if (st) {
        wf_bound_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

static weft_status make_labels(weft_trainer *t, struct wf_bound *b, const struct wf_type *labels)
{
    for (int i = 0; i < t->n_out; i++) {
        const char *name;

        b->label_type[i] = labels[i];
        if (labels[i].dtype == WEFT_NONE)
            continue;
        name = join(&b->arena, "label:", output_name(t, i));
        if (!name)
            return err_nomem();
        b->label[i] =
            weft_placeholder(b->graph, name, labels[i].dtype, labels[i].rank, labels[i].dim);
    }
    if (b->weighted)
        b->weight = weft_placeholder(b->graph, "sample_weight", WEFT_F32, 1, (int64_t[]){WEFT_ANY});
    return weft_graph_status(b->graph);
}

int wf_list_feeds(weft_trainer *t, struct wf_bound *b, weft_val *feeds, bool rate)
{
    int n = 0;

    for (int i = 0; i < b->infer.n_in; i++)
        feeds[n++] = b->infer.in[i];
    for (int i = 0; i < t->n_out; i++)
        if (b->label[i].id)
            feeds[n++] = b->label[i];
    if (b->weighted)
        feeds[n++] = b->weight;
    if (rate && b->rate.id)
        feeds[n++] = b->rate;
    return n;
}

/* Parameters that are trained, and all that happens in a step. */
static weft_status make_updates(weft_trainer *t, struct wf_bound *b, weft_val loss, int *n_updates,
                                weft_val **updates)
{
    int n_weights = b->train.n_weights, n = 0, made = 0;
    size_t cap = (size_t)(n_weights + b->train.n_updates) * 2 + 8;
    weft_val *vars = wf_arena_alloc(&b->arena, cap * sizeof *vars);
    weft_val *up = wf_arena_alloc(&b->arena, cap * sizeof *up);
    weft_optim optim = t->optim;
    weft_status st = WEFT_OK;

    if (!vars || !up)
        return err_nomem();
    for (int i = 0; i < n_weights; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);

        if (!w->state && !weft_layer_frozen(t->model, w->layer))
            vars[n++] = b->train.weight[i];
    }
    if (!t->scheduled) {
        b->rate = weft_placeholder(b->graph, "learning_rate", WEFT_F32, 0, NULL);
        optim.learning_rate = b->rate;
    }
    if (n)
        st = weft_minimize(b->graph, loss, &optim, n, vars, (int)cap - b->train.n_updates, up,
                           &made);
    if (st)
        return st;
    for (int i = 0; i < b->train.n_updates; i++)
        up[made++] = b->train.update[i];
    *n_updates = made;
    *updates = up;
    return WEFT_OK;
}

weft_status wf_make_constraints(weft_trainer *t, struct wf_bound *b, const bool *weights,
                                weft_fn **out)
{
    weft_val *up = wf_arena_alloc(&b->arena, (size_t)(b->train.n_weights + 1) * sizeof *up);
    int n = 0;
    weft_status st = WEFT_OK;

    if (!up)
        return err_nomem();
    for (int i = 0; i < b->train.n_weights && !st; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);
        weft_val v = b->train.weight[i];

        if (!w->constraint || !*w->constraint || weft_layer_frozen(t->model, w->layer) ||
            (weights && !weights[i]))
            continue;
        st = wf_constraint_build(b->graph, w->constraint, v, &v);
        up[n++] = weft_assign(b->graph, b->train.weight[i], v);
    }
    if (st || n == 0)
        return st;
    return weft_fn_new(
        b->graph, WEFT_OPTS(weft_fn_opts, .n_updates = n, .updates = up, .share = b->fit), out);
}

static weft_status make_functions(weft_trainer *t, struct wf_bound *b)
{
    size_t cap = (size_t)(b->infer.n_in + 3 * t->n_out + 8);
    weft_val *feeds = wf_arena_alloc(&b->arena, cap * sizeof *feeds);
    weft_val *fit = wf_arena_alloc(&b->arena, cap * sizeof *fit);
    weft_val *test = wf_arena_alloc(&b->arena, cap * sizeof *test);
    weft_val *updates = NULL, sums_fit = WEFT_NIL, sums_test = WEFT_NIL;
    int n_updates = 0, n;
    weft_status st = WEFT_OK;

    if (!feeds || !fit || !test)
        return err_nomem();
    if (!add_log(t, b, -1, "loss"))
        return err_nomem();
    b->n_means = 1;
    for (int i = 0; i < t->n_out && t->n_out > 1; i++)
        if (t->loss[i]) {
            struct wf_log_slot *slot = add_log(t, b, i, "loss");

            if (!slot)
                return err_nomem();
            slot->at = b->n_means++;
        }
    b->n_groups = 1;
    st = build_losses(t, b, &b->train, fit);
    if (!st)
        st = build_losses(t, b, &b->infer, test);
    if (!st)
        st = build_metrics(t, b, &sums_fit, &sums_test);
    if (st)
        return st;
    n = b->n_means + (b->n_sums > 0);
    fit[b->n_means] = sums_fit;
    test[b->n_means] = sums_test;
    b->fetch_fit = fit;
    b->total = fit[0];
    st = make_updates(t, b, fit[0], &n_updates, &updates);
    if (st)
        return st;
    b->n_feeds_fit = wf_list_feeds(t, b, feeds, true);
    st = weft_fn_new(b->graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = b->n_feeds_fit, .feeds = feeds,
                               .n_fetches = n, .fetches = fit, .n_updates = n_updates,
                               .updates = updates, .trap_numerics = t->trap),
                     &b->fit);
    b->n_feeds_test = wf_list_feeds(t, b, feeds, false);
    if (!st)
        st = weft_fn_new(b->graph,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = b->n_feeds_test, .feeds = feeds,
                                   .n_fetches = n, .fetches = test, .n_updates = b->infer.n_carries,
                                   .updates = b->infer.carry, .share = b->fit),
                         &b->test);
    if (!st)
        finish_groups(b);
    if (!st)
        st = weft_graph_status(b->graph);
    return st ? st : wf_make_constraints(t, b, NULL, &b->constrain);
}

static weft_status make_predict(struct wf_bound *b)
{
    return weft_fn_new(b->graph,
                       WEFT_OPTS(weft_fn_opts, .n_feeds = b->infer.n_in, .feeds = b->infer.in,
                                 .n_fetches = b->infer.n_out, .fetches = b->infer.out,
                                 .n_updates = b->infer.n_carries, .updates = b->infer.carry,
                                 .share = b->fit),
                       &b->predict);
}

/* Room for the sums of a pass and for a step's fetches. The trainer's own stays as it is when there is none. */
static weft_status make_room(weft_trainer *t, struct wf_bound *b)
{
    size_t n = (size_t)(b->n_means + 2 + t->n_out);
    double *mean_sum = wf_arena_alloc(&b->arena, n * sizeof *mean_sum);
    double *sums = wf_arena_alloc(&b->arena, (size_t)(b->n_sums + 1) * sizeof *sums);
    double *log_value = wf_arena_alloc(&b->arena, (size_t)(b->n_logs + 1) * sizeof *log_value);
    weft_tensor *fetch = wf_arena_alloc(&b->arena, n * sizeof *fetch);

    if (!mean_sum || !sums || !log_value || !fetch)
        return err_nomem();
    t->mean_sum = mean_sum;
    t->sums = sums;
    t->log_value = log_value;
    t->fetch = fetch;
    return WEFT_OK;
}

static weft_fn *any_fn(const struct wf_bound *b)
{
    return b->fit ? b->fit : b->predict;
}

/* The values that the trainer had before. */
static weft_status keep_weights(weft_trainer *t, struct wf_bound *to)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < to->infer.n_weights && !st && t->bound; i++) {
        weft_tensor value;

        st = weft_fn_view(any_fn(t->bound), wf_model_weight(t->model, i)->name, &value);
        if (!st)
            st = weft_fn_set(any_fn(to), wf_model_weight(t->model, i)->name, &value);
    }
    return st;
}

static weft_status bind(weft_trainer *t, const struct wf_type *labels, bool weighted)
{
    struct wf_bound *b = NULL;
    weft_status st = new_bound(t, &b);

    if (st)
        return st;
    b->labelled = labels != NULL;
    b->weighted = weighted;
    if (t->precision != WEFT_F32)
        weft_autocast_push(b->graph, t->precision);
    st = wf_model_build(t->model, b->graph, false, &b->arena, &b->infer);
    if (!st && labels)
        st = wf_model_build(t->model, b->graph, true, &b->arena, &b->train);
    if (!st && labels)
        st = make_labels(t, b, labels);
    if (!st && labels)
        st = make_functions(t, b);
    if (t->precision != WEFT_F32)
        weft_autocast_pop(b->graph);
    if (!st)
        st = make_predict(b);
    if (!st)
        st = keep_weights(t, b);
    if (!st)
        st = make_room(t, b);
    if (st) {
        wf_bound_free(b);
        return wf_err_wrap(st, "compile");
    }
    wf_parts_free(t->parts); /* they belong to the graph before */
    t->parts = NULL;
    wf_bound_free(t->bound);
    t->bound = b;
    return WEFT_OK;
}

static bool same_type(const struct wf_type *a, const struct wf_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

weft_status wf_trainer_bind(weft_trainer *t, const struct wf_type *labels, bool weighted)
{
    bool same = t->bound && t->bound->labelled && t->bound->weighted == weighted;

    for (int i = 0; i < t->n_out && same; i++)
        same = same_type(&labels[i], &t->bound->label_type[i]);
    if (same)
        return WEFT_OK;
    if (t->bound && t->bound->fit && weft_fn_step(t->bound->fit) > 0)
        return wf_err(WEFT_ESTATE,
                      "labels or weights of another type than this trainer was trained with: "
                      "compile the model again");
    if (t->bound && t->bound->fit && (t->pending || t->in_callback)) /* they hold on to the graph */
        return wf_err(WEFT_ESTATE, "labels or weights of another type, while %s",
                      t->pending ? "batches of a step (accumulate) are waiting"
                                 : "fit is under way with those it began with");
    return bind(t, labels, weighted);
}

weft_status wf_trainer_bind_predict(weft_trainer *t)
{
    return t->bound ? WEFT_OK : bind(t, NULL, false);
}
