/* bind.c - a trainer's graph: the model twice (training and inference), losses, metrics, updates,
 * and the functions over them. It is built when the labels' types are known. */
#include <stdio.h>

#include "train/step/bind.h"
#include "train/step/work.h"

void wf_bound_free(struct wf_bound *b)
{
    weft_ctx *ctx;

    if (!b)
        return;
    ctx = b->arena.ctx;
    wf_work_free(b->work);
    weft_fn_free(b->predict);
    weft_fn_free(b->test[0]);
    weft_fn_free(b->test[1]);
    weft_fn_free(b->fit);
    weft_graph_free(b->graph);
    wf_arena_free(&b->arena);
    wf_free(ctx, b);
}

bool wf_output_needs_label(const weft_trainer *t, int out)
{
    for (int i = 0; i < t->n_metrics; i++)
        if (t->metric[i].out == out)
            return true;
    return t->loss[out] != NULL;
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* The mean of an output's loss over the batch; *valid: how many values count if there is a mask,
 * otherwise nil. */
static weft_status output_loss(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                               bool weighted, int out, weft_val *mean, weft_val *valid)
{
    weft_graph *g = b->graph;
    weft_val values = WEFT_NIL, mask = WEFT_NIL, y = wf_bound_label(t, b, out), sum, count, w, none;
    weft_status st = wf_loss_build(t->model, g, t->loss[out], y, m->out[out], &values);

    if (!st)
        st = wf_loss_mask(t->model, g, t->loss[out], y, m->out[out], &mask);
    if (st)
        return wf_err_wrap(st, "output '%s'", wf_output_name(t, out));
    if (m->out_mask[out].id)
        mask = mask.id ? weft_logical_and(g, mask, m->out_mask[out]) : m->out_mask[out];
    w = wf_sample_weights(t, b, m, weighted, out);
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

/* A term of the loss goes to the group with its denominator: samples (group 0) for all without a
 * mask. */
static int add_term(struct wf_bound *b, weft_val mean, weft_val valid)
{
    int at = valid.id ? b->n_groups++ : 0;
    struct wf_group *group = &b->group[at];

    group->loss = group->loss.id ? weft_add(b->graph, group->loss, mean) : mean;
    group->weight = valid;
    return at;
}

/* Losses added by layers count per sample; penalties on weights once per step. Group 0 is removed
 * if it is empty. */
static void finish_groups(struct wf_bound *b)
{
    weft_graph *g = b->graph;
    int n_data = b->train.n_losses - b->train.n_penalties;

    for (int i = 0; i < n_data; i++)
        add_term(b, b->train.loss[i], WEFT_NIL);
    for (int i = n_data; i < b->train.n_losses; i++)
        b->penalty = b->penalty.id ? weft_add(g, b->penalty, b->train.loss[i]) : b->train.loss[i];
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
    b->group[0].samples = true;
}

/* The total of one mode, followed by the outputs' means. */
static weft_status build_losses(weft_trainer *t, struct wf_bound *b, const struct wf_built *m,
                                bool weighted, weft_val *means)
{
    weft_graph *g = b->graph;
    weft_val total = WEFT_NIL, v, valid = WEFT_NIL;
    int n = 1;
    weft_status st = WEFT_OK;

    for (int i = 0; i < t->n_out && !st; i++) {
        int group;

        if (!t->loss[i])
            continue;
        st = output_loss(t, b, m, weighted, i, &v, &valid);
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
    for (int i = 0; i <= b->train.n_losses; i++) { /* regularizers count in evaluation too */
        if (m == &b->train && i == b->train.n_losses - b->train.n_penalties)
            b->data = total;
        if (i < b->train.n_losses)
            total = total.id ? weft_add(g, total, b->train.loss[i]) : b->train.loss[i];
    }
    means[0] = total.id ? total : weft_scalar(g, 0);
    return weft_graph_status(g);
}

/* ---- functions ------------------------------------------------------------------------------- */

static weft_status new_bound(weft_trainer *t, struct wf_bound **out)
{
    struct wf_bound *b = wf_alloc(t->ctx, sizeof *b);
    size_t n = (size_t)t->n_out + 2;
    weft_status st;

    if (!b)
        return wf_err_nomem(t->ctx, sizeof *b, "compile");
    wf_arena_init(&b->arena, t->ctx);
    b->label = wf_arena_alloc(&b->arena, n * sizeof *b->label);
    b->label_type = wf_arena_alloc(&b->arena, n * sizeof *b->label_type);
    b->group = wf_arena_alloc(&b->arena, n * sizeof *b->group);
    b->mean_group = wf_arena_alloc(&b->arena, n * sizeof *b->mean_group);
    st = b->label && b->label_type && b->group && b->mean_group
             ? WEFT_OK
             : wf_err_nomem(t->ctx, 0, "the training step");
    if (!st)
        st = weft_graph_new(t->ctx, &b->graph);
    if (st) {
        wf_bound_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

static void make_weight(struct wf_bound *b)
{
    b->weight = weft_placeholder(b->graph, "sample_weight", WEFT_F32, 1, (int64_t[]){WEFT_ANY});
}

/* Outputs may be calls of one layer: a second label with the same name gets a number. */
static const char *label_name(weft_trainer *t, struct wf_bound *b, int out)
{
    const char *name = wf_output_name(t, out);
    char number[24] = "";
    int before = 0;

    for (int i = 0; i < out; i++)
        before += strcmp(wf_output_name(t, i), name) == 0;
    if (before)
        wf_snprintf(number, sizeof number, ":%d", before);
    name = wf_join(&b->arena, "label:", name);
    return name ? wf_join(&b->arena, name, number) : NULL;
}

static weft_status make_labels(weft_trainer *t, struct wf_bound *b, const struct wf_type *labels)
{
    for (int i = 0; i < t->n_out; i++) {
        const char *name;

        b->label_type[i] = labels[i];
        if (labels[i].dtype == WEFT_NONE)
            continue;
        name = label_name(t, b, i);
        if (!name)
            return wf_err_nomem(t->ctx, 0, "the training step");
        b->label[i] =
            weft_placeholder(b->graph, name, labels[i].dtype, labels[i].rank, labels[i].dim);
    }
    if (b->weighted)
        make_weight(b);
    return weft_graph_status(b->graph);
}

static int list_feeds(weft_trainer *t, struct wf_bound *b, bool weighted, weft_val *feeds)
{
    int n = 0;

    for (int i = 0; i < b->infer.n_in; i++)
        feeds[n++] = b->infer.in[i];
    for (int i = 0; i < t->n_out; i++)
        if (b->label[i].id)
            feeds[n++] = b->label[i];
    if (weighted)
        feeds[n++] = b->weight;
    return n;
}

int wf_list_feeds(weft_trainer *t, struct wf_bound *b, weft_val *feeds, bool rate)
{
    int n = list_feeds(t, b, b->weighted, feeds);

    if (rate && b->rate.id)
        feeds[n++] = b->rate;
    return n;
}

bool wf_weight_dense(const weft_trainer *t, int weight)
{
    return t->dense || wf_model_weight(t->model, weight)->dense;
}

/* The weights that are trained, and the gradients of their mean loss: what reaches them of the
 * data, and their penalty. */
static weft_status find_gradients(weft_trainer *t, struct wf_bound *b)
{
    size_t cap = (size_t)b->train.n_weights + 1;
    weft_val *var = wf_arena_alloc(&b->arena, cap * sizeof *var);
    weft_status st = WEFT_OK;

    b->trained = wf_arena_alloc(&b->arena, cap * sizeof *b->trained);
    b->gradient = wf_arena_alloc(&b->arena, cap * sizeof *b->gradient);
    if (!var || !b->trained || !b->gradient)
        return wf_err_nomem(t->ctx, 0, "the training step");
    for (int i = 0; i < b->train.n_weights; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);

        if (w->state || weft_layer_frozen(t->model, w->layer))
            continue;
        var[b->n_trained] = b->train.weight[i];
        b->trained[b->n_trained++] = i;
    }
    if (b->n_trained && b->data.id)
        st = weft_grad(b->graph, b->data, b->n_trained, var, b->gradient);
    return st;
}

weft_val wf_penalty_gradient(weft_graph *g, weft_val w, const struct wf_penalty *p)
{
    struct wf_set sets[] = {WF_SET_FLOAT("l1", p->l1), WF_SET_FLOAT("l2", p->l2),
                            WF_SET_FLOAT("orthogonal", p->orthogonal),
                            WF_SET_BOOL("columns", p->columns)};

    return wf_build(g, WF_OP_penalty_grad, 1, &w, 4, sets);
}

/* The gradient of trained weight k as an update takes it. */
static weft_status whole_gradient(weft_trainer *t, struct wf_bound *b, int k, weft_val *out)
{
    const struct wf_weight *w = wf_model_weight(t->model, b->trained[k]);
    weft_val grad = b->gradient[k], more;
    struct wf_penalty p;
    weft_status st = WEFT_OK;

    if (w->regularizer) {
        st = wf_regularizer_parse(&b->arena, w->regularizer, &p);
        more = st ? WEFT_NIL : wf_penalty_gradient(b->graph, b->train.weight[b->trained[k]], &p);
        grad = grad.id ? weft_add(b->graph, grad, more) : more;
    }
    if (!st && grad.id && wf_weight_dense(t, b->trained[k]))
        grad = weft_stop_gradient(b->graph, grad); /* hides the rows */
    *out = grad;
    return st;
}

/* Trained parameters, and everything that happens in a step. */
static weft_status make_updates(weft_trainer *t, struct wf_bound *b, int *n_updates,
                                weft_val **updates)
{
    size_t cap = (size_t)(b->n_trained + b->train.n_updates) + 1;
    weft_val *vars = wf_arena_alloc(&b->arena, cap * sizeof *vars);
    weft_val *grads = wf_arena_alloc(&b->arena, cap * sizeof *grads);
    weft_val *up = wf_arena_alloc(&b->arena, cap * sizeof *up);
    weft_optim optim = t->optim;
    int made = 0;
    weft_status st = WEFT_OK;

    if (!vars || !grads || !up)
        return wf_err_nomem(t->ctx, 0, "the training step");
    if (!t->scheduled) {
        b->rate = weft_placeholder(b->graph, "learning_rate", WEFT_F32, 0, NULL);
        optim.learning_rate = b->rate;
    }
    for (int i = 0; i < b->n_trained && !st; i++) {
        vars[i] = b->train.weight[b->trained[i]];
        st = whole_gradient(t, b, i, &grads[i]);
    }
    if (!st)
        st = weft_apply_gradients(b->graph, &optim, b->n_trained, vars, grads, up);
    for (int i = 0; i < b->n_trained && !st; i++)
        if (up[i].id)
            up[made++] = up[i];
    if (!st && b->n_trained && made == 0)
        st = wf_err(WEFT_EINVAL, "the loss does not depend on any trained weight");
    if (st)
        return st;
    for (int i = 0; i < b->train.n_updates; i++)
        up[made++] = b->train.update[i];
    *n_updates = made;
    *updates = up;
    return WEFT_OK;
}

/* Loss and metrics of data with or without weights, in inference. */
static weft_status make_test(weft_trainer *t, struct wf_bound *b, bool weighted)
{
    weft_val *mem =
                 wf_alloc_n(t->ctx, b->infer.n_in + 3 * t->n_out + 8 + b->n_means + 1, sizeof *mem),
             *feeds = mem, *fetch = mem + b->infer.n_in + t->n_out + 2;
    int n_feeds;
    weft_status st = mem ? WEFT_OK : wf_err_nomem(t->ctx, 0, "the training step");

    if (!st && weighted && !b->weight.id)
        make_weight(b);
    if (!st)
        st = build_losses(t, b, &b->infer, weighted, fetch);
    if (!st && b->n_sums > 0)
        st = wf_build_metrics(t, b, &b->infer, weighted, &fetch[b->n_means]);
    if (!st) {
        n_feeds = list_feeds(t, b, weighted, feeds);
        st = weft_fn_new(b->graph,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = n_feeds, .feeds = feeds,
                                   .n_fetches = b->n_means + (b->n_sums > 0), .fetches = fetch,
                                   .n_updates = b->infer.n_carries, .updates = b->infer.carry,
                                   .share = b->fit, .tf32 = t->tf32),
                         &b->test[weighted]);
    }
    wf_free(t->ctx, mem);
    return st;
}

static weft_status make_fit(weft_trainer *t, struct wf_bound *b)
{
    size_t cap = (size_t)(b->infer.n_in + 3 * t->n_out + 8);
    weft_val *feeds = wf_arena_alloc(&b->arena, cap * sizeof *feeds);
    weft_val *fit = wf_arena_alloc(&b->arena, cap * sizeof *fit), *updates = NULL;
    struct wf_remote remote;
    int n_updates = 0;
    weft_status st;

    if (!feeds || !fit)
        return wf_err_nomem(t->ctx, 0, "the training step");
    b->n_groups = 1;
    st = build_losses(t, b, &b->train, b->weighted, fit);
    if (!st && b->n_sums > 0)
        st = wf_build_metrics(t, b, &b->train, b->weighted, &fit[b->n_means]);
    if (st)
        return st;
    b->fetch_fit = fit;
    b->total = fit[0];
    st = find_gradients(t, b);
    if (!st)
        st = make_updates(t, b, &n_updates, &updates);
    if (st)
        return st;
    b->n_feeds_fit = wf_list_feeds(t, b, feeds, true);
    b->n_feeds_test = wf_list_feeds(t, b, feeds, false);
    wf_list_feeds(t, b, feeds, true);
    return wf_fn_new(b->graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = b->n_feeds_fit, .feeds = feeds,
                               .n_fetches = b->n_means + (b->n_sums > 0), .fetches = fit,
                               .n_updates = n_updates, .updates = updates, .trap_numerics = t->trap,
                               .tf32 = t->tf32),
                     wf_trainer_remote(t, &remote), &b->fit);
}

static weft_status make_functions(weft_trainer *t, struct wf_bound *b)
{
    weft_status st;

    b->scaled = wf_scale_needed(t, b->graph);
    st = wf_make_logs(t, b);
    if (!st)
        st = make_fit(t, b);
    if (!st)
        st = make_test(t, b, b->weighted);
    if (!st)
        finish_groups(b);
    return st ? st : weft_graph_status(b->graph);
}

static weft_status make_predict(weft_trainer *t, struct wf_bound *b)
{
    struct wf_remote remote;

    return wf_fn_new(b->graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = b->infer.n_in, .feeds = b->infer.in,
                               .n_fetches = b->infer.n_out, .fetches = b->infer.out,
                               .n_updates = b->infer.n_carries, .updates = b->infer.carry,
                               .share = b->fit, .tf32 = t->tf32),
                     wf_trainer_remote(t, &remote), &b->predict);
}

static bool make_pass(struct wf_bound *b, size_t n, struct wf_sums *p)
{
    *p = (struct wf_sums){
        .mean_sum = wf_arena_alloc(&b->arena, n * sizeof *p->mean_sum),
        .sums = wf_arena_alloc(&b->arena, (size_t)(b->n_sums + 1) * sizeof *p->sums),
        .log_value =
            wf_arena_alloc(&b->arena, (size_t)(b->n_logs + b->n_extra + 1) * sizeof *p->log_value)};
    return p->mean_sum && p->sums && p->log_value;
}

/* Room for the sums of two passes and for a step's fetches. On failure the trainer's own is
 * unchanged. */
static weft_status make_room(weft_trainer *t, struct wf_bound *b)
{
    size_t n = (size_t)(b->n_means + 2 + t->n_out);
    weft_tensor *fetch = wf_arena_alloc(&b->arena, n * sizeof *fetch);
    struct wf_sums pass[2];

    if (!fetch || !make_pass(b, n, &pass[0]) || !make_pass(b, n, &pass[1]))
        return wf_err_nomem(t->ctx, 0, "the training step");
    t->fetch = fetch;
    t->aside = pass[0];
    wf_pass_swap(t);
    t->aside = pass[1];
    return WEFT_OK;
}

static weft_fn *any_fn(const struct wf_bound *b)
{
    return b->fit ? b->fit : b->predict;
}

/* The trainer's previous values. */
static weft_status keep_weights(weft_trainer *t, struct wf_bound *to)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < to->infer.n_weights && !st && t->bound; i++) {
        const char *name = wf_model_weight(t->model, i)->name;
        weft_fn *from = any_fn(t->bound), *fn = any_fn(to);
        const struct wf_segment *a = wf_store_find(from->store, name);
        const struct wf_segment *b = wf_store_find(fn->store, name);
        weft_tensor value;

        if ((a && a->remote) || (b && b->remote))
            continue;
        st = weft_fn_view(from, name, &value);
        if (!st)
            st = weft_fn_set(fn, name, &value);
    }
    return st;
}

static void push_precision(const weft_trainer *t, weft_graph *g)
{
    if (t->precision != WEFT_F32)
        weft_autocast_push(g, t->precision);
}

static void pop_precision(const weft_trainer *t, weft_graph *g)
{
    if (t->precision != WEFT_F32)
        weft_autocast_pop(g);
}

static weft_status bind(weft_trainer *t, const struct wf_type *labels, bool weighted)
{
    struct wf_bound *b = NULL;
    weft_status st = new_bound(t, &b);

    if (st)
        return st;
    b->labelled = labels != NULL;
    b->weighted = weighted;
    push_precision(t, b->graph);
    st = wf_model_build(t->model, b->graph, false, &b->arena, &b->infer);
    if (!st && labels)
        st = wf_model_build(t->model, b->graph, true, &b->arena, &b->train);
    if (!st && labels)
        st = make_labels(t, b, labels);
    if (!st && labels)
        st = make_functions(t, b);
    pop_precision(t, b->graph);
    if (!st)
        st = make_predict(t, b);
    if (!st)
        st = keep_weights(t, b);
    if (!st)
        st = make_room(t, b);
    if (st) {
        wf_bound_free(b);
        return wf_err_wrap(st, "compile");
    }
    wf_bound_free(t->bound);
    t->bound = b;
    return WEFT_OK;
}

static bool same_type(const struct wf_type *a, const struct wf_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

static bool same_labels(const weft_trainer *t, const struct wf_type *labels)
{
    bool same = t->bound && t->bound->labelled;

    for (int i = 0; i < t->n_out && same; i++)
        same = same_type(&labels[i], &t->bound->label_type[i]);
    return same;
}

weft_status wf_trainer_bind(weft_trainer *t, const struct wf_type *labels, bool weighted)
{
    weft_status st;

    if (same_labels(t, labels) && t->bound->weighted == weighted)
        return WEFT_OK;
    if (t->bound && t->bound->fit && weft_fn_step(t->bound->fit) > 0)
        return wf_err(WEFT_ESTATE,
                      "labels or weights of another type than this trainer was trained with: "
                      "compile the model again");
    if (t->bound && t->bound->fit && t->pending) /* they hold on to the graph */
        return wf_err(WEFT_ESTATE, "labels or weights of another type, while batches of a step "
                                   "(accumulate) are pending");
    st = t->bound && t->bound->fit ? wf_life_allows(t, WF_CALL_BIND) : WEFT_OK;
    return st ? st : bind(t, labels, weighted);
}

weft_status wf_trainer_bind_test(weft_trainer *t, const struct wf_type *labels, bool weighted)
{
    weft_status st = same_labels(t, labels) ? WEFT_OK : wf_trainer_bind(t, labels, weighted);

    if (st || t->bound->test[weighted])
        return st;
    push_precision(t, t->bound->graph);
    st = make_test(t, t->bound, weighted);
    pop_precision(t, t->bound->graph);
    return st ? wf_err_wrap(st, "compile") : WEFT_OK;
}

weft_status wf_trainer_bind_predict(weft_trainer *t)
{
    return t->bound ? WEFT_OK : bind(t, NULL, false);
}
