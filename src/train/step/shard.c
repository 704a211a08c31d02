/* shard.c - one shard of a step as a contribution, and what becomes of the sum of all. */
#include "train/step/work.h"

/* ---- one shard ------------------------------------------------------------------------------- */

weft_status wf_work_batch(struct wf_work *w, const weft_tensor *feeds, int64_t n, int64_t first,
                          int64_t key)
{
    weft_status st = wf_work_prepare(w, 1);

    if (st)
        return st;
    if (!w->began)
        wf_snapshot_save(w->start);
    w->began = true;
    w->feeds = feeds;
    w->n = n;
    w->first = first;
    w->key = key;
    return WEFT_OK;
}

void wf_work_drop(struct wf_work *w)
{
    if (w->began)
        wf_snapshot_restore(w->start);
    w->began = false;
    wf_tree_clear(&w->tree);
    wf_tree_clear(&w->log_tree);
}

/* Rows [first, first + n) of the batch. */
static void cut(const struct wf_work *w, struct wf_replica *r, int64_t first, int64_t n)
{
    int n_feeds = w->b->n_feeds_test;

    for (int i = 0; i < n_feeds; i++) {
        weft_tensor *f = &r->feeds[i];
        int64_t row;

        *f = w->feeds[i];
        row = f->dim[0] ? weft_tensor_bytes(f) / f->dim[0] : 0;
        f->dim[0] = n;
        f->data = (char *)f->data + first * row;
    }
    if (!w->scale.id)
        return;
    r->scale = wf_scale_now(w->t);
    r->feeds[n_feeds] = (weft_tensor){.dtype = WEFT_F32, .data = &r->scale};
}

/* State begins each shard with its value from before the step. A replica that works on the
 * trainer's has its copy in the snapshot. */
static void begin_state(struct wf_work *w, struct wf_replica *r)
{
    const struct wf_store *s = w->b->fit->store;

    if (!r->state) {
        for (int i = 0; i < w->n_merged; i++)
            wf_snapshot_load(w->start, w->merged[i].offset);
        return;
    }
    memcpy(r->state, s->state, (size_t)s->n_state);
    memcpy(r->params, s->params, (size_t)s->n_params * sizeof *s->params);
}

static double scalar(const struct wf_replica *r, int fetch)
{
    return (double)*(const float *)r->fetch[fetch].data;
}

/* Denominators, samples and state, as sums. */
static void take_sums(const struct wf_work *w, const struct wf_replica *r, int64_t n, double *sums)
{
    const char *state = r->state ? r->state : w->b->fit->store->state;
    double *to = sums + w->sum_state;

    for (int k = 0; k < w->rules.n_groups; k++)
        sums[k] = scalar(r, w->at_weight + k);
    sums[wf_rules_samples(&w->rules)] = (double)n;
    for (int i = 0; i < w->n_merged; i++) {
        const float *v = (const float *)(const void *)(state + w->merged[i].offset);

        for (int64_t k = 0; k < w->merged[i].count; k++)
            *to++ = (double)n * (double)v[k];
    }
}

/* Losses and metrics, as sums. */
static void take_logs(const struct wf_work *w, const struct wf_replica *r, int64_t n, double *sums)
{
    const struct wf_bound *b = w->b;

    for (int k = 0; k < w->rules.n_groups; k++) {
        sums[k] = scalar(r, w->at_weight + k);
        sums[w->log_losses + k] = sums[k] * scalar(r, w->at_loss + k);
    }
    sums[wf_rules_samples(&w->rules)] = (double)n;
    if (w->rules.whole) {
        for (int i = 0; i < b->n_means; i++)
            sums[w->log_means + i] = scalar(r, i) * (double)n;
    } else {
        sums[w->log_means] = w->at_penalty >= 0 ? scalar(r, w->at_penalty) * (double)n : 0;
        for (int i = 1; i < b->n_means; i++)
            sums[w->log_means + i] = sums[b->mean_group[i]] * scalar(r, i);
    }
    for (int64_t i = 0; i < b->n_sums; i++)
        sums[w->log_metrics + i] = (double)((const float *)r->fetch[w->at_metrics].data)[i];
}

/* Gradients of a scaled loss: divided by the scale, and checked. */
static void unscale(const struct wf_work *w, float scale, struct wf_contribution *c)
{
    const struct wf_rules *r = &w->rules;

    for (int k = 0; k < r->n_groups; k++)
        for (int v = 0; v < r->n_vars; v++) {
            struct wf_rows *rows = &c->rows[k * r->n_vars + v];
            float *g = r->var[v].table ? rows->row : c->dense + k * r->n_dense + r->var[v].offset;
            int64_t n = r->var[v].table ? rows->n * r->var[v].dim[1] : r->var[v].count;

            c->finite &= wf_scale_take(g, g, n, 1 / scale);
        }
}

static weft_status take_rows(const struct wf_work *w, const struct wf_replica *r,
                             struct wf_contribution *c)
{
    int64_t n = (int64_t)w->rules.n_groups * w->rules.n_vars;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n && !st; i++) {
        const struct wf_var *v = &w->rules.var[i % w->rules.n_vars];
        int at = w->at_rows[i];

        if (at >= 0)
            st = wf_rows_collect(w->ctx, w->ctx->pool, &r->fetch[at], &r->fetch[at + 1], v->dim[0],
                                 &c->rows[i]);
        if (st)
            wf_err_wrap(st, "'%s'", v->name);
    }
    return st;
}

/* Room for what a shard gives. */
static weft_status take_room(struct wf_work *w, struct wf_given *out)
{
    weft_status st;

    pthread_mutex_lock(&w->lock);
    st = wf_tree_take(&w->tree, &out->c);
    if (!st)
        st = wf_tree_take(&w->log_tree, &out->logs);
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* Variables that no loss of a group reaches have no instruction that writes their gradient. */
static void clear_unreached(const struct wf_work *w, struct wf_contribution *c)
{
    const struct wf_rules *r = &w->rules;

    for (int i = 0; i < r->n_groups * r->n_vars; i++) {
        const struct wf_var *v = &r->var[i % r->n_vars];

        if (!w->reached[i] && !v->table)
            memset(c->dense + i / r->n_vars * r->n_dense + v->offset, 0,
                   (size_t)v->count * sizeof *c->dense);
    }
}

static weft_status run(struct wf_work *w, struct wf_replica *r, int64_t l, int64_t n,
                       const struct wf_hooks *hooks, struct wf_given *out)
{
    struct wf_run at = {.step = weft_trainer_step(w->t),
                        .shard = (int)(w->key + l),
                        .base = {r->params, out->c->dense, r->state},
                        .hooks = hooks};
    weft_status st;

    begin_state(w, r);
    clear_unreached(w, out->c);
    for (int i = 0; i < w->n_fetches; i++)
        r->fetch[i] = (weft_tensor){.data = NULL};
    st = wf_fn_run_at(r->fn, &at, r->feeds, r->fetch);
    if (!st)
        st = take_rows(w, r, out->c);
    if (st)
        return st;
    if (w->scale.id)
        unscale(w, r->scale, out->c);
    take_sums(w, r, n, out->c->sums);
    take_logs(w, r, n, out->logs->sums);
    return WEFT_OK;
}

weft_status wf_work_compute(struct wf_work *w, int replica, int64_t number,
                            const struct wf_hooks *hooks, struct wf_given *out)
{
    struct wf_replica *r = &w->replica[replica];
    int64_t l = number - w->first, shards = w->t->shards;
    int64_t from = l * w->n / shards, n = (l + 1) * w->n / shards - from;
    weft_status st;

    *out = (struct wf_given){.c = NULL};
    if (n == 0)
        return WEFT_OK;
    st = take_room(w, out);
    if (!st) {
        cut(w, r, from, n);
        st = run(w, r, l, n, hooks, out);
    }
    if (st)
        wf_work_give(w, out);
    return st;
}

void wf_work_give(struct wf_work *w, struct wf_given *given)
{
    pthread_mutex_lock(&w->lock);
    wf_tree_give(&w->tree, given->c);
    wf_tree_give(&w->log_tree, given->logs);
    pthread_mutex_unlock(&w->lock);
    *given = (struct wf_given){.c = NULL};
}

weft_status wf_work_put(struct wf_work *w, int64_t number, struct wf_given *given)
{
    weft_status st;

    pthread_mutex_lock(&w->lock);
    st = wf_tree_put(&w->tree, 0, number, given->c);
    if (st)
        wf_tree_give(&w->log_tree, given->logs);
    else
        st = wf_tree_put(&w->log_tree, 0, number - w->first, given->logs);
    pthread_mutex_unlock(&w->lock);
    *given = (struct wf_given){.c = NULL};
    return st;
}

/* ---- the sum of all -------------------------------------------------------------------------- */

weft_status wf_work_mean(struct wf_work *w, struct wf_contribution **out)
{
    struct wf_contribution *sum = NULL;
    weft_status st = wf_tree_sum(&w->tree, &sum);

    if (!st && !sum) { /* no samples: the gradient is 0 */
        st = wf_tree_take(&w->tree, &sum);
        if (!st)
            memset(sum->dense, 0, (size_t)(w->rules.n_groups * w->rules.n_dense) * sizeof(float));
    }
    if (!st)
        st = wf_merge_mean(w->merge, sum, w->now.params);
    if (st) {
        wf_tree_give(&w->tree, sum);
        return st;
    }
    *out = sum;
    return WEFT_OK;
}

/* The batch's part in the sums of the pass. */
static void add_logs(struct wf_work *w, const double *sums)
{
    weft_trainer *t = w->t;
    const struct wf_bound *b = w->b;
    const struct wf_rules *r = &w->rules;
    double n = sums[wf_rules_samples(r)], total = 0;

    if (r->whole) {
        for (int i = 0; i < b->n_means; i++)
            t->mean_sum[i] += sums[w->log_means + i];
    } else {
        total = sums[w->log_means] / n;
        for (int k = 0; k < r->n_groups; k++)
            total += sums[k] > 0 ? sums[w->log_losses + k] / sums[k] : 0;
        t->mean_sum[0] += total * n;
        for (int i = 1; i < b->n_means; i++) {
            double d = sums[b->mean_group[i]];

            t->mean_sum[i] += d > 0 ? sums[w->log_means + i] / d * n : 0;
        }
    }
    t->mean_weight += n;
    for (int64_t i = 0; i < b->n_sums; i++)
        t->sums[i] += sums[w->log_metrics + i];
}

weft_status wf_work_end_batch(struct wf_work *w)
{
    struct wf_contribution *sum = NULL;
    weft_status st = wf_tree_sum(&w->log_tree, &sum);

    if (!st && sum)
        add_logs(w, sum->sums);
    wf_tree_give(&w->log_tree, sum);
    return st;
}

void wf_work_take_state(struct wf_work *w, const struct wf_contribution *c)
{
    const double *from = c->sums + w->sum_state;
    double n = c->sums[wf_rules_samples(&w->rules)];

    if (!c->finite) {
        wf_work_drop(w);
        return;
    }
    w->began = false;
    for (int i = 0; i < w->n_merged && n > 0; i++) {
        float *v = (float *)(void *)(w->b->fit->store->state + w->merged[i].offset);

        for (int64_t k = 0; k < w->merged[i].count; k++)
            v[k] = (float)(*from++ / n);
    }
}

/* While numerics are trapped: the first variable with a value that is not finite. */
static weft_status check_finite(const struct wf_work *w, const struct wf_contribution *mean)
{
    for (int v = 0; v < w->rules.n_vars; v++) {
        const struct wf_var *var = &w->rules.var[v];
        const float *x = mean           ? mean->dense + var->offset
                         : var->table   ? w->now.table[v].w
                                        : w->now.params + var->offset;
        int64_t n = var->count;

        if (mean && var->table) {
            x = mean->rows[v].row;
            n = mean->rows[v].n * var->dim[1];
        }
        for (int64_t i = 0; i < n; i++)
            if (!(x[i] - x[i] == 0))
                return wf_err(WEFT_ENUMERIC, "%s '%s' is %g at element %lld",
                              mean ? "the gradient of" : "after the update,", var->name,
                              (double)x[i], (long long)i);
    }
    return WEFT_OK;
}

/* An update of which nothing stays if it gives a value that is not finite. */
static weft_status trapped_step(struct wf_work *w, const struct wf_contribution *mean,
                                const struct wf_step *step)
{
    struct wf_snapshot *before = NULL;
    weft_status st = check_finite(w, mean);

    if (!st)
        st = wf_snapshot_new(1, &w->b->fit, true, &before);
    if (st)
        return st;
    wf_snapshot_save(before);
    st = wf_merge_step(w->merge, mean, step, &w->now);
    if (!st)
        st = check_finite(w, NULL);
    if (st)
        wf_snapshot_restore(before);
    wf_snapshot_free(before);
    return st;
}

weft_status wf_work_update(struct wf_work *w, const struct wf_contribution *mean,
                           const bool *chosen)
{
    weft_trainer *t = w->t;
    int64_t at = weft_trainer_step(t);
    struct wf_step step = {.iteration = at + 1,
                           .has_rate = w->b->rate.id != 0,
                           .rate = t->rate,
                           .chosen = chosen};
    uint64_t mode;
    weft_status st;

    if (!mean->finite)
        return w->b->scaled ? wf_scale_skip(t)
                            : wf_err(WEFT_ENUMERIC, "apply: a gradient is not finite");
    mode = wf_fpmode_enter(t->ctx->flush_denormals);
    st = t->trap ? trapped_step(w, mean, &step) : wf_merge_step(w->merge, mean, &step, &w->now);
    wf_fpmode_leave(mode);
    if (st)
        return st;
    weft_fn_set_step(w->b->fit, at + 1);
    if (w->b->scaled)
        wf_scale_good(t);
    return WEFT_OK;
}

void wf_work_constrain(struct wf_work *w)
{
    struct wf_step all = {.chosen = NULL};

    wf_merge_constrain(w->merge, &all, &w->now);
}
