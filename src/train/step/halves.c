/* halves.c - a step in two halves: functions that compute gradients, and functions that apply them.
 *
 * The first half fetches the gradient of every weight, dense or as the rows that were looked up, so
 * that it can be added to others before it is used. The second half is the optimizer over
 * placeholders. Both share the trainer's variables. */
#include <stdio.h>

#include "train/step/halves.h"

static weft_status err_nomem(void)
{
    return wf_err(WEFT_ENOMEM, "out of memory for gradients");
}

static void free_update(struct wf_update *u)
{
    weft_fn_free(u->fn);
    weft_fn_free(u->constrain);
    u->fn = u->constrain = NULL;
}

void wf_halves_free(struct wf_halves *h)
{
    if (!h)
        return;
    for (int k = 0; k < h->n_groups; k++)
        weft_fn_free(h->half[k].fn);
    weft_fn_free(h->regularize.fn);
    for (int i = 0; i < WF_MAX_UPDATES; i++)
        free_update(&h->update[i]);
    wf_arena_free(&h->arena);
    wf_free(h->ctx, h);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* While halves are built: all trainable weights, and their gradients by group (followed by the
 * regularizers'). */
struct making {
    weft_trainer *t;
    struct wf_bound *b;
    struct wf_halves *h;
    int n;
    int *weight;
    weft_val *var;
    weft_val **grad; /* [n_groups + 1][n] */
    weft_val *ids, *rows;
};

static weft_status list_vars(struct making *k)
{
    struct wf_bound *b = k->b;
    size_t cap = (size_t)b->train.n_weights + 1;

    k->weight = wf_arena_alloc(&k->h->arena, cap * sizeof *k->weight);
    k->var = wf_arena_alloc(&k->h->arena, cap * sizeof *k->var);
    k->ids = wf_arena_alloc(&k->h->arena, cap * sizeof *k->ids);
    k->rows = wf_arena_alloc(&k->h->arena, cap * sizeof *k->rows);
    k->grad = wf_arena_alloc(&k->h->arena, (size_t)(b->n_groups + 1) * sizeof *k->grad);
    if (!k->weight || !k->var || !k->ids || !k->rows || !k->grad)
        return err_nomem();
    for (int g = 0; g <= b->n_groups; g++) {
        k->grad[g] = wf_arena_alloc(&k->h->arena, cap * sizeof *k->grad[g]);
        if (!k->grad[g])
            return err_nomem();
    }
    for (int i = 0; i < b->train.n_weights; i++) {
        const struct wf_weight *w = wf_model_weight(k->t->model, i);

        if (w->state || weft_layer_frozen(k->t->model, w->layer))
            continue;
        k->weight[k->n] = i;
        k->var[k->n++] = b->train.weight[i];
    }
    return WEFT_OK;
}

static weft_val scaled(const struct making *k, weft_val loss)
{
    return k->h->scale.id ? weft_mul(k->b->graph, loss, k->h->scale) : loss;
}

/* Gradients of all groups: of the mean of a whole step, or of each group's sum. */
static weft_status differentiate(struct making *k)
{
    struct wf_bound *b = k->b;
    weft_graph *g = b->graph;
    weft_status st = WEFT_OK;

    if (b->scaled)
        k->h->scale = weft_placeholder(g, "scale:loss", WEFT_F32, 0, NULL);
    if (k->n == 0)
        return WEFT_OK;
    if (k->h->whole)
        return weft_grad(g, scaled(k, b->total), k->n, k->var, k->grad[0]);
    for (int i = 0; i < b->n_groups && !st; i++) {
        weft_val sum = weft_mul(g, b->group[i].loss, weft_stop_gradient(g, b->group[i].weight));

        st = weft_grad(g, scaled(k, sum), k->n, k->var, k->grad[i]);
    }
    if (!st && b->fixed.id)
        st = weft_grad(g, b->fixed, k->n, k->var, k->grad[b->n_groups]);
    return st;
}

/* Rows are kept as such if nothing else adds to the gradient of that weight, and only those are to
 * be updated. */
static bool all_lookups(struct making *k, int i)
{
    weft_val ids, rows;

    if (wf_weight_dense(k->t, k->weight[i]))
        return false;
    for (int g = 0; g <= k->b->n_groups; g++)
        if (k->grad[g][i].id && !wf_grad_rows(k->b->graph, k->var[i], k->grad[g][i], &ids, &rows))
            return false;
    return true;
}

static weft_status list_entries(struct making *k)
{
    struct wf_halves *h = k->h;
    int64_t offset = 0;

    h->entry = wf_arena_alloc(&h->arena, (size_t)(k->n + 1) * sizeof *h->entry);
    if (!h->entry)
        return err_nomem();
    for (int i = 0; i < k->n; i++) {
        const struct wf_weight *w = wf_model_weight(k->t->model, k->weight[i]);
        struct wf_grad_entry *e = &h->entry[h->n];
        bool any = false;

        for (int g = 0; g <= k->b->n_groups; g++)
            any |= k->grad[g][i].id != 0;
        if (!any)
            continue;
        *e = (struct wf_grad_entry){.name = w->name, .weight = k->weight[i], .rank = w->rank};
        memcpy(e->dim, w->dim, sizeof e->dim);
        e->sparse = all_lookups(k, i);
        e->count = 1;
        for (int d = 0; d < e->rank; d++)
            e->count *= e->dim[d];
        e->offset = e->sparse ? 0 : offset;
        offset += e->sparse ? 0 : wf_round_up(e->count, 16);
        k->var[h->n] = k->var[i];
        for (int g = 0; g <= k->b->n_groups; g++)
            k->grad[g][h->n] = k->grad[g][i];
        h->n++;
    }
    return weft_graph_status(k->b->graph);
}

/* Appends the gradients of group g to n fetches. */
static weft_status list_fetches(struct making *k, int g, struct wf_half *half, weft_val *fetch,
                                int n)
{
    struct wf_halves *h = k->h;

    half->at = wf_arena_alloc(&h->arena, (size_t)(h->n + 1) * sizeof *half->at);
    if (!half->at)
        return err_nomem();
    for (int i = 0; i < h->n; i++) {
        weft_val grad = k->grad[g][i];

        half->at[i] = grad.id ? n : -1;
        if (grad.id && h->entry[i].sparse) {
            wf_grad_rows(k->b->graph, k->var[i], grad, &fetch[n], &fetch[n + 1]);
            n += 2;
        } else if (grad.id) {
            fetch[n++] = grad;
        }
    }
    half->n_fetches = n;
    return weft_graph_status(k->b->graph);
}

static weft_status make_half(struct making *k, int g, weft_val *fetch, weft_val *feeds)
{
    struct wf_bound *b = k->b;
    struct wf_half *half = &k->h->half[g];
    int n = 0, n_updates = g == 0 ? b->train.n_updates : 0;
    weft_status st;

    for (int i = 0; g == 0 && i < b->n_means + (b->n_sums > 0); i++)
        fetch[n++] = b->fetch_fit[i];
    half->loss = n;
    fetch[n++] = k->h->whole ? b->total : b->group[g].loss;
    half->weight = n;
    fetch[n++] = b->group[g].weight;
    st = list_fetches(k, g, half, fetch, n);
    return st ? st
              : weft_fn_new(b->graph,
                            WEFT_OPTS(weft_fn_opts, .n_feeds = b->n_feeds_test + b->scaled,
                                      .feeds = feeds, .n_fetches = half->n_fetches,
                                      .fetches = fetch, .n_updates = n_updates,
                                      .updates = b->train.update, .share = b->fit,
                                      .trap_numerics = k->t->trap && !b->scaled),
                            &half->fn);
}

static weft_status make_regularize(struct making *k, weft_val *fetch)
{
    struct wf_half *half = &k->h->regularize;
    weft_status st = list_fetches(k, k->b->n_groups, half, fetch, 0);

    if (st || half->n_fetches == 0)
        return st;
    return weft_fn_new(
        k->b->graph,
        WEFT_OPTS(weft_fn_opts, .n_fetches = half->n_fetches, .fetches = fetch, .share = k->b->fit),
        &half->fn);
}

/* Placeholders for the inputs of updates. */
static weft_status make_placeholders(struct making *k)
{
    struct wf_halves *h = k->h;
    weft_graph *g = k->b->graph;
    size_t n = (size_t)h->n + 1;
    char name[600];

    h->grad = wf_arena_alloc(&h->arena, n * sizeof *h->grad);
    h->ids = wf_arena_alloc(&h->arena, n * sizeof *h->ids);
    h->rows = wf_arena_alloc(&h->arena, n * sizeof *h->rows);
    h->feeds = wf_arena_alloc(&h->arena, (2 * n + 1) * sizeof *h->feeds);
    h->chosen = wf_arena_alloc(&h->arena, n * sizeof *h->chosen);
    if (!h->grad || !h->ids || !h->rows || !h->feeds || !h->chosen)
        return err_nomem();
    for (int i = 0; i < h->n; i++) {
        const struct wf_grad_entry *e = &h->entry[i];

        snprintf(name, sizeof name, "gradient:%s", e->name);
        if (!e->sparse) {
            h->grad[i] = weft_placeholder(g, name, WEFT_F32, e->rank, e->dim);
            continue;
        }
        h->rows[i] = weft_placeholder(g, name, WEFT_F32, 2, (int64_t[]){WEFT_ANY, e->dim[1]});
        snprintf(name, sizeof name, "ids:%s", e->name);
        h->ids[i] = weft_placeholder(g, name, WEFT_I64, 1, (int64_t[]){WEFT_ANY});
        h->grad[i] =
            weft_op(g, "embedding_grad", 3, (weft_val[]){h->ids[i], h->rows[i], k->var[i]}, NULL);
    }
    return weft_graph_status(g);
}

static weft_status make_all(struct making *k)
{
    struct wf_halves *h = k->h;
    struct wf_bound *b = k->b;
    size_t cap;
    weft_val *fetch, *feeds;
    weft_status st = list_vars(k);

    if (!st)
        st = differentiate(k);
    if (!st)
        st = list_entries(k);
    if (st)
        return st;
    cap = (size_t)(b->n_means + 4 + 2 * h->n);
    fetch = wf_arena_alloc(&h->arena, cap * sizeof *fetch);
    feeds = wf_arena_alloc(&h->arena, (size_t)(b->n_feeds_fit + 1) * sizeof *feeds);
    h->fetch = wf_arena_alloc(&h->arena, cap * sizeof *h->fetch);
    h->half = wf_arena_alloc(&h->arena, (size_t)(b->n_groups + 1) * sizeof *h->half);
    if (!fetch || !feeds || !h->fetch || !h->half)
        return err_nomem();
    feeds[wf_list_feeds(k->t, b, feeds, false)] = h->scale;
    for (; h->n_groups < (h->whole ? 1 : b->n_groups) && !st; h->n_groups++)
        st = make_half(k, h->n_groups, fetch, feeds);
    if (!st && !h->whole)
        st = make_regularize(k, fetch);
    return st;
}

weft_status wf_halves_get(weft_trainer *t, struct wf_halves **out)
{
    struct wf_bound *b = t->bound;
    struct wf_halves *h;
    struct making k = {.t = t, .b = b};
    weft_status st;

    if (b->halves) {
        *out = b->halves;
        return WEFT_OK;
    }
    h = k.h = wf_alloc(t->ctx, sizeof *h);
    if (!h)
        return wf_err_nomem(t->ctx, sizeof *h, "gradients");
    h->ctx = t->ctx;
    wf_arena_init(&h->arena, t->ctx);
    h->whole = !wf_in_parts(t);
    if (t->precision != WEFT_F32)
        weft_autocast_push(b->graph, t->precision);
    st = make_all(&k);
    if (t->precision != WEFT_F32)
        weft_autocast_pop(b->graph);
    if (!st)
        st = make_placeholders(&k);
    if (st) {
        wf_halves_free(h);
        return wf_err_wrap(st, "gradients");
    }
    *out = b->halves = h;
    return WEFT_OK;
}

weft_status wf_half_run(struct wf_halves *h, struct wf_half *half, int shard,
                        const weft_tensor *feeds)
{
    for (int i = 0; i < half->n_fetches; i++)
        h->fetch[i] = (weft_tensor){.data = NULL};
    weft_fn_set_shard(half->fn, shard);
    return wf_run_aside(half->fn, feeds, h->fetch);
}

weft_status wf_half_take(struct wf_halves *h, const struct wf_half *half, float scale,
                         weft_grads *g)
{
    weft_status st = WEFT_OK;

    wf_grads_clear(g);
    for (int i = 0; i < h->n && !st; i++) {
        const weft_tensor *f = half->at[i] >= 0 ? &h->fetch[half->at[i]] : NULL;
        float *to = g->dense + h->entry[i].offset;

        if (f && h->entry[i].sparse) {
            st = wf_grads_append(g, i, &f[0], &f[1]);
            if (!st && scale != 0)
                g->bad |= !wf_scale_take(g->rows[i].row, g->rows[i].row,
                                         g->rows[i].n * h->entry[i].dim[1], 1 / scale);
        } else if (f && scale != 0) {
            g->bad |= !wf_scale_take(to, f->data, h->entry[i].count, 1 / scale);
        } else if (f) {
            memcpy(to, f->data, (size_t)h->entry[i].count * sizeof *to);
        }
    }
    return st;
}

/* ---- updates --------------------------------------------------------------------------------- */

static weft_status make_update(weft_trainer *t, struct wf_halves *h, struct wf_update *u)
{
    struct wf_bound *b = t->bound;
    weft_optim optim = t->optim;
    size_t cap = 2 * (size_t)h->n + (size_t)b->train.n_weights + 2;
    weft_val *mem = wf_alloc_n(t->ctx, (int64_t)(4 * cap), sizeof *mem), *var = mem,
             *grad = mem + cap, *update = mem + 2 * cap, *feeds = mem + 3 * cap;
    bool *weights = wf_alloc_n(t->ctx, b->train.n_weights + 1, sizeof *weights);
    int n = 0, n_feeds = 0;
    weft_status st = mem && weights ? WEFT_OK : err_nomem();

    for (int i = 0; i < h->n && !st; i++) {
        if (!u->chosen[i])
            continue;
        var[n] = b->train.weight[h->entry[i].weight];
        grad[n++] = h->grad[i];
        if (h->entry[i].sparse)
            feeds[n_feeds++] = h->ids[i];
        feeds[n_feeds++] = h->entry[i].sparse ? h->rows[i] : h->grad[i];
        weights[h->entry[i].weight] = true;
    }
    if (!st && b->rate.id)
        feeds[n_feeds++] = optim.learning_rate = b->rate;
    if (!st)
        st = weft_apply_gradients(b->graph, &optim, n, var, grad, update);
    if (!st)
        st = weft_fn_new(b->graph,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = n_feeds, .feeds = feeds, .n_updates = n,
                                   .updates = update, .share = b->fit, .trap_numerics = t->trap),
                         &u->fn);
    if (!st)
        st = wf_make_constraints(t, b, weights, &u->constrain);
    wf_free(t->ctx, mem);
    wf_free(t->ctx, weights);
    return st;
}

/* The update of these entries: a cached one, or a new one in place of the oldest. */
static weft_status find_update(weft_trainer *t, struct wf_halves *h, const bool *chosen,
                               struct wf_update **out)
{
    size_t bytes = (size_t)h->n * sizeof *chosen;
    struct wf_update *u = &h->update[h->next_update];
    weft_status st;

    for (int i = 0; i < WF_MAX_UPDATES; i++)
        if (h->update[i].fn && memcmp(h->update[i].chosen, chosen, bytes) == 0) {
            *out = &h->update[i];
            return WEFT_OK;
        }
    if (!u->chosen)
        u->chosen = wf_arena_alloc(&h->arena, bytes + 1);
    if (!u->chosen)
        return err_nomem();
    free_update(u);
    memcpy(u->chosen, chosen, bytes);
    st = make_update(t, h, u);
    if (st) {
        free_update(u);
        return wf_err_wrap(st, "update");
    }
    h->next_update = (h->next_update + 1) % WF_MAX_UPDATES;
    *out = u;
    return WEFT_OK;
}

weft_status wf_halves_apply(weft_trainer *t, struct wf_halves *h, const weft_grads *g,
                            const bool *chosen)
{
    int64_t step = weft_trainer_step(t);
    struct wf_update *u = NULL;
    int n = 0;
    weft_status st = WEFT_OK;

    if (g->bad)
        return h->scale.id ? wf_scale_skip(t)
                           : wf_err(WEFT_ENUMERIC, "apply: a gradient is not finite");
    for (int i = 0; i < h->n; i++) {
        const struct wf_grad_entry *e = &h->entry[i];
        struct wf_grad_rows *r = &g->rows[i];

        h->chosen[i] = !chosen || chosen[i];
        if (!h->chosen[i])
            continue;
        if (e->sparse)
            h->feeds[n++] = weft_view(WEFT_I64, r->id, 1, &r->n);
        h->feeds[n++] = e->sparse ? weft_view(WEFT_F32, r->row, 2, (int64_t[]){r->n, e->dim[1]})
                                  : weft_view(WEFT_F32, g->dense + e->offset, e->rank, e->dim);
    }
    if (n > 0)
        st = find_update(t, h, h->chosen, &u);
    if (st)
        return st;
    if (u) {
        h->feeds[n] = (weft_tensor){.dtype = WEFT_F32, .data = &t->rate};
        st = weft_fn_run(u->fn, h->feeds, NULL);
        if (!st && u->constrain)
            st = wf_run_aside(u->constrain, NULL, NULL);
    }
    if (st)
        return st;
    weft_fn_set_step(t->bound->fit, step + 1);
    if (h->scale.id)
        wf_scale_good(t);
    return WEFT_OK;
}
