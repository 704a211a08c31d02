/* work.c - a trainer's steps as contributions: rules, layout, and the gradient function. */
#include "merge/lane.h"
#include "train/step/dist.h"
#include "train/step/rounds.h"
#include "train/step/there.h"

void wf_work_free(struct wf_work *w)
{
    if (!w)
        return;
    if (w->t->dist && w->t->dist->kind.leave)
        w->t->dist->kind.leave(w->t->dist->self, w);
    for (int i = 0; i < w->n_replicas; i++) {
        weft_fn_free(w->replica[i].fn);
        wf_free(w->ctx, w->replica[i].state);
        wf_free(w->ctx, w->replica[i].fetch);
        wf_free(w->ctx, w->replica[i].feeds);
    }
    wf_remote_free(w);
    wf_round_free(w->round);
    wf_there_free(w);
    wf_tree_free(&w->tree);
    for (int i = 0; i < w->n_replicas; i++)
        wf_lane_free(w->replica[i].lane);
    wf_free(w->ctx, w->replica);
    wf_tree_free(&w->log_tree);
    pthread_mutex_destroy(&w->lock);
    wf_merge_free(w->merge);
    wf_snapshot_free(w->start);
    wf_arena_free(&w->arena);
    wf_free(w->ctx, w);
}

static weft_status err_nomem(const struct wf_work *w)
{
    return wf_err_nomem(w->ctx, 0, "the contributions of a step");
}

static void *get(struct wf_work *w, int64_t n, size_t size)
{
    return wf_arena_alloc(&w->arena, (size_t)(n + 1) * size);
}

static const struct wf_segment *segment(const struct wf_work *w, int var)
{
    const struct wf_store *s = w->b->fit->store;

    return &s->seg[s->by_number[w->segment[var]]];
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* The rows of a gradient are kept as such if nothing else adds to it, and only they are updated. */
static bool is_table(struct wf_work *w, int k)
{
    struct wf_bound *b = w->b;
    const struct wf_weight *weight = wf_model_weight(w->t->model, b->trained[k]);
    weft_val ids, rows;

    return b->gradient[k].id && !weight->regularizer && !wf_weight_dense(w->t, b->trained[k]) &&
           wf_grad_rows(b->graph, b->train.weight[b->trained[k]], b->gradient[k], &ids, &rows);
}

static weft_status set_var(struct wf_work *w, int k, struct wf_var *v)
{
    const struct wf_weight *weight = wf_model_weight(w->t->model, w->b->trained[k]);
    const struct wf_segment *seg = wf_store_find(w->b->fit->store, weight->name);
    weft_status st = WEFT_OK;

    *v = (struct wf_var){.name = weight->name,
                         .rank = weight->rank,
                         .count = seg->count,
                         .table = is_table(w, k),
                         .offset = seg->offset};
    memcpy(v->dim, weight->dim, sizeof v->dim);
    if (v->table)
        v->init = wf_initial_of(w->ctx, seg->node);
    if (v->table)
        v->evict = seg->evict;
    else if (seg->evict.every)
        st = wf_err(WEFT_EINVAL, "evict: the table is updated as a whole (train.sparse: false), or "
                                 "used for more than lookups: remove one of them");
    if (!st && weight->regularizer)
        st = wf_regularizer_parse(&w->arena, weight->regularizer, &v->penalty);
    if (!st && weight->constraint && *weight->constraint)
        st = wf_constraint_parse(&w->arena, weight->constraint, weight->rank, &v->constraint);
    w->constrained |= v->constraint.kind != WF_CONSTRAINT_NONE;
    return st ? wf_err_wrap(st, "weight '%s'", weight->name) : WEFT_OK;
}

/* Variables in the order of their segments. */
static weft_status list_vars(struct wf_work *w)
{
    struct wf_bound *b = w->b;
    const struct wf_store *s = b->fit->store;
    struct wf_rules *r = &w->rules;
    int *trained = get(w, s->n_flat, sizeof *trained);

    r->var = get(w, b->n_trained, sizeof *r->var);
    w->weight = get(w, b->n_trained, sizeof *w->weight);
    w->segment = get(w, b->n_trained, sizeof *w->segment);
    w->var_of = get(w, s->n_flat, sizeof *w->var_of);
    if (!trained || !r->var || !w->weight || !w->segment || !w->var_of)
        return err_nomem(w);
    for (int32_t i = 0; i < s->n_flat; i++)
        trained[i] = w->var_of[i] = -1;
    for (int k = 0; k < b->n_trained; k++) {
        const struct wf_weight *weight = wf_model_weight(w->t->model, b->trained[k]);

        if (b->gradient[k].id || weight->regularizer)
            trained[wf_store_find(s, weight->name)->number] = k;
    }
    for (int32_t i = 0; i < s->n_flat; i++) {
        weft_status st;

        if (trained[i] < 0)
            continue;
        w->weight[r->n_vars] = b->trained[trained[i]];
        w->segment[r->n_vars] = i;
        w->var_of[i] = r->n_vars;
        st = set_var(w, trained[i], &r->var[r->n_vars]);
        if (st)
            return st;
        r->n_vars++;
    }
    return weft_graph_status(b->graph);
}

/* State that is averaged: floating-point, of trained layers. Not the states of recurrent layers:
 * batches follow each other, and shards of a batch are refused. */
static weft_status list_merged(struct wf_work *w)
{
    weft_trainer *t = w->t;
    int n = wf_model_n_weights(t->model);

    w->merged = get(w, n, sizeof *w->merged);
    if (!w->merged)
        return err_nomem(w);
    for (int i = 0; i < n; i++) {
        const struct wf_weight *weight = wf_model_weight(t->model, i);
        const struct wf_segment *seg = wf_store_find(w->b->fit->store, weight->name);

        if (!seg || !weight->state || weight->dtype != WEFT_F32 ||
            wf_model_next_state(t->model, i) == i)
            continue;
        w->merged[w->n_merged++] = (struct wf_merged){seg->offset, seg->count};
        w->rules.n_sums += seg->count;
    }
    return WEFT_OK;
}

static void set_optimizer(struct wf_work *w)
{
    const weft_optim *o = &w->t->optim;
    struct wf_rules *r = &w->rules;

    r->optim = wf_optim_find(o->name);
    memcpy(r->attrs, o->number, sizeof r->attrs);
    r->schedule = w->t->scheduled ? wf_schedule_find(o->schedule) : NULL;
    r->schedule_attrs = o->schedule_number;
    r->n_schedule = o->n_schedule;
}

static weft_status make_rules(struct wf_work *w)
{
    struct wf_bound *b = w->b;
    struct wf_rules *r = &w->rules;
    weft_status st;

    set_optimizer(w);
    r->whole = w->t->rounds || (w->t->shards == 1 && w->t->accumulate == 1);
    r->n_groups = r->whole ? 1 : b->n_groups;
    r->n_dense = b->fit->store->n_params;
    w->sum_state = r->n_sums = w->log_means = r->n_groups + 1;
    w->log_losses = w->log_means + b->n_means;
    w->log_metrics = w->log_losses + r->n_groups;
    w->log_rules = (struct wf_rules){
        .n_groups = r->n_groups, .whole = r->whole, .n_sums = w->log_metrics + b->n_sums};
    w->logged = (struct wf_log_rules){.n_batches = w->t->accumulate,
                                      .n_means = b->n_means,
                                      .mean_group = b->mean_group,
                                      .n_metrics = b->n_sums};
    st = list_vars(w);
    if (!st)
        st = list_merged(w);
    return st;
}

/* The parameters and slots that are updated. */
static weft_status find_version(struct wf_work *w)
{
    struct wf_store *s = w->b->fit->store;
    weft_status st = wf_fn_slots(w->b->fit);

    w->now.table = get(w, w->rules.n_vars, sizeof *w->now.table);
    if (st || !w->now.table)
        return st ? st : err_nomem(w);
    w->now.params = s->params;
    memcpy(w->now.slot, s->slot, sizeof w->now.slot);
    for (int v = 0; v < w->rules.n_vars; v++) {
        const struct wf_segment *seg = segment(w, v);

        w->now.table[v].w = wf_store_data(s, seg);
        for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++)
            w->now.table[v].slot[k] = wf_store_slot(s, seg, k);
    }
    return WEFT_OK;
}

weft_status wf_work_get(weft_trainer *t, struct wf_work **out)
{
    struct wf_work *w = t->bound->work;
    weft_status st;

    if (w) {
        *out = w;
        return WEFT_OK;
    }
    w = wf_alloc(t->ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(t->ctx, sizeof *w, "the contributions of a step");
    w->ctx = t->ctx;
    w->t = t;
    w->b = t->bound;
    wf_arena_init(&w->arena, t->ctx);
    pthread_mutex_init(&w->lock, NULL);
    wf_tree_init(&w->tree, t->ctx, t->ctx->pool, &w->rules);
    wf_tree_init(&w->log_tree, t->ctx, NULL, &w->log_rules);
    st = wf_evict_open(t);
    if (!st)
        st = make_rules(w);
    if (!st)
        st = find_version(w);
    if (!st)
        st = wf_remote_new(w);
    if (!st)
        st = wf_merge_new(t->ctx, t->ctx->pool, &w->rules, 0, NULL, &w->merge);
    if (!st && t->rounds)
        st = wf_round_new(w);
    if (st) {
        wf_work_free(w);
        return wf_err_wrap(st, "updates");
    }
    *out = t->bound->work = w;
    return WEFT_OK;
}

/* ---- the gradient function ------------------------------------------------------------------- */

static weft_val scaled(const struct wf_work *w, weft_val loss)
{
    return w->scale.id ? weft_mul(w->b->graph, loss, w->scale) : loss;
}

/* The gradients of all variables: of the mean of a whole step, or of the sum of group k. */
static weft_status differentiate(struct wf_work *w, int group, weft_val *grad)
{
    struct wf_bound *b = w->b;
    struct wf_rules *r = &w->rules;
    weft_val *var = wf_alloc_n(w->ctx, r->n_vars + 1, sizeof *var), loss = b->data;
    weft_status st = var ? WEFT_OK : err_nomem(w);

    for (int v = 0; v < r->n_vars && !st; v++)
        var[v] = b->train.weight[w->weight[v]];
    if (!r->whole)
        loss = weft_mul(b->graph, b->group[group].loss,
                        weft_stop_gradient(b->graph, b->group[group].weight));
    if (!st && r->whole && !w->scale.id)
        for (int k = 0; k < b->n_trained; k++) {
            const char *name = wf_model_weight(w->t->model, b->trained[k])->name;
            int v = w->var_of[wf_store_find(b->fit->store, name)->number];

            if (v >= 0)
                grad[v] = b->gradient[k];
        }
    else if (!st && r->n_vars && loss.id)
        st = weft_grad(b->graph, scaled(w, loss), r->n_vars, var, grad);
    wf_free(w->ctx, var);
    return st;
}

/* On a device a scaled gradient is divided there, and checked: it does not come to the host. All
 * of them add up to one fetch. */
static weft_val unscale(struct wf_work *w, weft_val grad)
{
    weft_graph *g = w->b->graph;
    weft_val finite = weft_all(g, weft_is_finite(g, grad), NULL);

    w->finite = w->finite.id ? weft_logical_and(g, w->finite, finite) : finite;
    return weft_mul(g, grad, w->unscale);
}

/* What the gradient of variable v in a group is: an output at its offset, or fetched rows. */
static weft_status add_gradient(struct wf_work *w, int group, int v, weft_val grad)
{
    struct wf_bound *b = w->b;
    int at = group * w->rules.n_vars + v;
    weft_val var = b->train.weight[w->weight[v]];

    w->at_rows[at] = -1;
    if (!grad.id)
        return WEFT_OK;
    if (!w->rules.var[v].table) {
        if (w->unscales)
            grad = unscale(w, grad);
        w->reached[at] = true;
        w->gradient[w->n_gradients++] = (weft_gradient){var, grad, group};
        return WEFT_OK;
    }
    w->at_rows[at] = w->n_fetches;
    if (!wf_grad_rows(b->graph, var, grad, &w->fetch[w->n_fetches], &w->fetch[w->n_fetches + 1]))
        return weft_graph_status(b->graph)
                   ? weft_graph_status(b->graph)
                   : wf_err(WEFT_EBUG, "'%s' is not only looked up", w->rules.var[v].name);
    w->n_fetches += 2;
    return WEFT_OK;
}

static weft_status list_fetches(struct wf_work *w)
{
    struct wf_bound *b = w->b;
    struct wf_rules *r = &w->rules;
    int64_t lists = (int64_t)r->n_groups * r->n_vars;
    weft_val *grad = get(w, r->n_vars, sizeof *grad);
    weft_status st = WEFT_OK;

    w->fetch = get(w, b->n_means + 5 + 2 * r->n_groups + 2 * lists, sizeof *w->fetch);
    w->at_rows = get(w, lists, sizeof *w->at_rows);
    w->reached = get(w, lists, sizeof *w->reached);
    w->gradient = get(w, lists, sizeof *w->gradient);
    if (!grad || !w->fetch || !w->at_rows || !w->reached || !w->gradient)
        return err_nomem(w);
    for (int i = 0; i < b->n_means; i++)
        w->fetch[w->n_fetches++] = b->fetch_fit[i];
    w->at_metrics = b->n_sums > 0 ? w->n_fetches : -1;
    if (b->n_sums > 0)
        w->fetch[w->n_fetches++] = b->fetch_fit[b->n_means];
    w->at_loss = w->n_fetches;
    for (int k = 0; k < r->n_groups; k++)
        w->fetch[w->n_fetches++] = r->whole ? b->total : b->group[k].loss;
    w->at_weight = w->n_fetches;
    for (int k = 0; k < r->n_groups; k++)
        w->fetch[w->n_fetches++] = b->group[k].weight;
    w->at_penalty = b->penalty.id ? w->n_fetches : -1;
    if (b->penalty.id)
        w->fetch[w->n_fetches++] = b->penalty;
    for (int k = 0; k < r->n_groups && !st; k++) {
        memset(grad, 0, (size_t)r->n_vars * sizeof *grad);
        st = differentiate(w, k, grad);
        for (int v = 0; v < r->n_vars && !st; v++)
            st = add_gradient(w, k, v, grad[v]);
    }
    w->at_finite = w->finite.id ? w->n_fetches : -1;
    if (w->finite.id)
        w->fetch[w->n_fetches++] = w->finite;
    return st ? st : weft_graph_status(b->graph);
}

/* Gradients on a device are added there, if no strategy wants to read them before. */
static bool can_add_there(const struct wf_work *w)
{
    return w->b->fit->store->home && w->t->dist->sums_there && !w->t->rounds;
}

static weft_status new_lane(struct wf_work *w, struct wf_replica *r)
{
    struct wf_device *dev = wf_away_device(r->fn);
    weft_status st;

    if (!dev || !can_add_there(w))
        return WEFT_OK;
    st = wf_lane_new(w->ctx, dev, &w->rules, &r->lane);
    return st == WEFT_ENOSUP && !w->ctx->strict_devices ? WEFT_OK : st;
}

static weft_status new_replica(struct wf_work *w, const char *device, struct wf_replica *r)
{
    struct wf_bound *b = w->b;
    weft_val *feeds = get(w, b->n_feeds_fit + 2, sizeof *feeds);
    int n_feeds = b->n_feeds_test + b->scaled + w->unscales;
    weft_status st;

    r->fetch = wf_alloc_n(w->ctx, w->n_fetches + 1, sizeof *r->fetch);
    r->feeds = wf_alloc_n(w->ctx, b->n_feeds_fit + 3, sizeof *r->feeds);
    if (!feeds || !r->fetch || !r->feeds)
        return err_nomem(w);
    feeds[wf_list_feeds(w->t, b, feeds, false)] = w->scale;
    feeds[b->n_feeds_test + 1] = w->unscale;
    st = weft_fn_new(b->graph,
                     WEFT_OPTS(weft_fn_opts, .n_feeds = n_feeds, .feeds = feeds,
                               .n_fetches = w->n_fetches, .fetches = w->fetch,
                               .n_updates = b->train.n_updates, .updates = b->train.update,
                               .share = b->fit, .trap_numerics = w->t->trap && !b->scaled,
                               .n_gradients = w->n_gradients, .gradients = w->gradient,
                               .tf32 = w->t->tf32, .device = device),
                     &r->fn);
    return st ? st : new_lane(w, r);
}

/* Several replicas have state of their own: the trainer's stays as it is while they compute. */
static weft_status own_state(struct wf_work *w)
{
    if (w->t->stateful && w->n_replicas > 1)
        return wf_err(WEFT_EINVAL,
                      "layer '%s' is stateful: its batches follow each other, and %d replicas "
                      "cannot compute them",
                      w->t->stateful, w->n_replicas);
    for (int i = 0; i < w->n_replicas && w->n_replicas > 1; i++) {
        struct wf_replica *r = &w->replica[i];

        if (!r->state)
            r->state = wf_alloc(w->ctx, (size_t)w->b->fit->store->n_state + 1);
        if (!r->state)
            return err_nomem(w);
    }
    return WEFT_OK;
}

static weft_status make_function(struct wf_work *w)
{
    struct wf_bound *b = w->b;
    weft_status st;

    if (w->made)
        return WEFT_OK;
    if (b->scaled)
        w->scale = weft_placeholder(b->graph, "scale:loss", WEFT_F32, 0, NULL);
    w->unscales = b->scaled && can_add_there(w);
    if (w->unscales)
        w->unscale = weft_placeholder(b->graph, "scale:gradients", WEFT_F32, 0, NULL);
    if (w->t->precision != WEFT_F32)
        weft_autocast_push(b->graph, w->t->precision);
    st = list_fetches(w);
    if (w->t->precision != WEFT_F32)
        weft_autocast_pop(b->graph);
    w->made = !st;
    return st;
}

weft_status weft_work_replicas(weft_work *w, int n_replicas)
{
    return wf_work_replicas(w, n_replicas, NULL);
}

weft_status wf_work_replicas(struct wf_work *w, int n_replicas, const char *const *names)
{
    int64_t cap = w->n_replicas;
    weft_status st = make_function(w);

    if (!st && n_replicas > w->n_replicas)
        st = wf_grow(w->ctx, &w->replica, &cap, n_replicas, sizeof *w->replica);
    for (; !st && w->n_replicas < n_replicas; w->n_replicas++)
        st = new_replica(w, names ? names[w->n_replicas] : NULL, &w->replica[w->n_replicas]);
    if (!st)
        st = own_state(w);
    if (!st && !w->start)
        st = wf_snapshot_new(1, &w->replica[0].fn, false, &w->start);
    return st ? wf_err_wrap(st, "gradients") : WEFT_OK;
}
