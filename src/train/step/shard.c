/* shard.c - one shard of a step as a contribution, and what becomes of the sum of all. */
#include "merge/lane.h"
#include "train/step/dist.h"
#include "train/step/rounds.h"
#include "train/step/there.h"

/* ---- one shard ------------------------------------------------------------------------------- */

weft_status wf_work_batch(struct wf_work *w, const struct wf_samples *batch, int64_t first,
                          int64_t key)
{
    weft_status st = weft_work_replicas(w, 1);

    if (st)
        return st;
    if (!w->began)
        wf_snapshot_save(w->start);
    w->began = true;
    w->batch = *batch;
    if (batch->deal) { /* the last step of an epoch is applied after the deal has gone on */
        w->dealt = *batch->deal;
        w->batch.deal = &w->dealt;
    }
    w->first = first;
    w->key = key;
    return WEFT_OK;
}

void wf_work_drop(struct wf_work *w)
{
    if (w->began)
        wf_snapshot_restore(w->start);
    w->began = false;
    if (w->round)
        wf_round_drop(w->round);
    wf_tree_clear(&w->tree);
    wf_tree_clear(&w->log_tree);
}

/* The loss scale is fed after the samples. */
static void feed_scale(const struct wf_work *w, struct wf_replica *r)
{
    if (!w->scale.id)
        return;
    r->scale = wf_scale_now(w->t);
    r->feeds[w->b->n_feeds_test] = (weft_tensor){.dtype = WEFT_F32, .data = &r->scale};
    r->unscale = 1 / r->scale;
    if (w->unscales)
        r->feeds[w->b->n_feeds_test + 1] = (weft_tensor){.dtype = WEFT_F32, .data = &r->unscale};
}

/* State begins each shard with its value from before the step. A replica that works on the
 * trainer's has its copy in the snapshot. */
static weft_status begin_state(struct wf_work *w, struct wf_replica *r)
{
    struct wf_store *s = w->b->fit->store;
    weft_status st;

    if (!r->state) {
        for (int i = 0; i < w->n_merged; i++)
            wf_snapshot_load(w->start, w->merged[i].offset);
        return WEFT_OK;
    }
    st = wf_store_pull(s, WF_PART_STATE);
    if (!st)
        memcpy(r->state, s->state, (size_t)s->n_state);
    return st;
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

bool wf_work_denominators(const struct wf_work *w, const struct wf_replica *r, double *sums)
{
    for (int k = 0; k < w->rules.n_groups; k++) {
        const float *x = wf_fn_fetched(r->fn, w->at_weight + k);

        if (!x && !w->b->group[k].samples)
            return false;
        sums[k] = x ? (double)*x : (double)r->n;
    }
    sums[wf_rules_samples(&w->rules)] = (double)r->n;
    return true;
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

/* Rows of a scaled loss: divided by the scale, and checked. */
static void unscale_rows(const struct wf_work *w, float scale, struct wf_contribution *c)
{
    const struct wf_rules *r = &w->rules;

    for (int64_t i = 0; i < (int64_t)r->n_groups * r->n_vars; i++)
        if (c->rows[i].n)
            c->finite &= wf_scale_take(c->rows[i].row, c->rows[i].row,
                                       c->rows[i].n * r->var[i % r->n_vars].dim[1], 1 / scale);
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
            st = wf_rows_collect(w->ctx, &c->scratch, r->fn->pool, &r->fetch[at], &r->fetch[at + 1],
                                 v->dim[0], &c->rows[i]);
        if (st)
            wf_err_wrap(st, "'%s'", v->name);
    }
    return st;
}

/* Room on the device of a replica: its next run may write it. */
static weft_status room_there(struct wf_work *w, const struct wf_replica *r, weft_given *out)
{
    weft_status st = wf_tree_take_away(&w->tree, r->lane, &out->gradients);

    return st ? st : wf_lane_reuse(out->gradients, wf_away_stream(r->fn));
}

weft_status wf_work_room(struct wf_work *w, const struct wf_replica *r, weft_given *out)
{
    weft_status st;

    *out = (weft_given){.gradients = NULL};
    pthread_mutex_lock(&w->lock);
    if (w->round && !w->round->inside) {
        st = wf_tree_take(&w->round->tree, &out->gradients);
        pthread_mutex_unlock(&w->lock);
        return st;
    }
    st = r && r->lane ? room_there(w, r, out) : wf_tree_take(&w->tree, &out->gradients);
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

/* A run tells the strategy. */
struct told {
    struct wf_work *w;
    int64_t step, number;
    float scale;
    struct wf_contribution *to;
};

static weft_range range_of(const struct wf_work *w, int32_t segment, int group)
{
    const struct wf_store *s = w->b->fit->store;
    const struct wf_segment *seg = &s->seg[s->by_number[segment]];

    return (weft_range){seg->name, seg->offset, seg->count, group};
}

static weft_status on_need(void *arg, int32_t segment)
{
    const struct told *t = arg;
    const weft_dist *d = t->w->t->dist;
    weft_range range = range_of(t->w, segment, 0);

    return range.offset < 0 ? WEFT_OK : d->kind.need(d->self, &range, t->step, t->number);
}

static weft_status on_ready(void *arg, int32_t segment, int32_t group)
{
    const struct told *t = arg;
    const weft_dist *d = t->w->t->dist;
    weft_range range = range_of(t->w, segment, group);
    float *g = t->to->dense + group * t->w->rules.n_dense + range.offset;

    if (t->scale != 0 &&
        !t->w->unscales) /* that of a scaled loss: divided by the scale, and checked */
        t->to->finite &= wf_scale_take(g, g, range.count, 1 / t->scale);
    if (!d->kind.ready)
        return WEFT_OK;
    return d->kind.ready(d->self, &range, t->step, t->number, t->to->dense, NULL);
}

static weft_status on_need_rows(void *arg, const struct wf_segment *seg, int64_t n,
                                const int64_t *ids, float *rows)
{
    const struct told *t = arg;
    const weft_dist *d = t->w->t->dist;
    weft_table table = wf_table_of(t->w->ctx, seg);

    return d->kind.need_rows(d->self, &table, t->step, t->number, n, ids, rows);
}

static weft_status on_want_rows(void *arg, const struct wf_segment *seg, int64_t n,
                                const int64_t *ids)
{
    const struct told *t = arg;
    const weft_dist *d = t->w->t->dist;
    weft_table table = wf_table_of(t->w->ctx, seg);

    return d->kind.want_rows(d->self, &table, t->step, t->number, n, ids);
}

/* The rows of all tables are complete. */
static weft_status tell_rows(const struct told *t)
{
    const weft_dist *d = t->w->t->dist;
    const struct wf_store *s = t->w->b->fit->store;
    int n_vars = t->w->rules.n_vars;
    weft_status st = WEFT_OK;

    for (int i = 0; i < t->w->rules.n_groups * n_vars && !st; i++) {
        const struct wf_rows *r = &t->to->rows[i];
        weft_table table;

        if (!r->n)
            continue;
        table = wf_table_of(t->w->ctx, &s->seg[s->by_number[t->w->segment[i % n_vars]]]);
        st = d->kind.ready_rows(d->self, &table, i / n_vars, t->step, t->number, r->n, r->id,
                                r->row, NULL);
    }
    return st;
}

static weft_status run(struct wf_work *w, struct wf_replica *r, int64_t number, int64_t n,
                       weft_given *out)
{
    const weft_strategy *s = &w->t->dist->kind;
    struct told told = {w, weft_trainer_step(w->t), number, w->scale.id ? r->scale : 0,
                        out->gradients};
    struct wf_hooks hooks = {&told, s->need ? on_need : NULL,
                             s->ready || (w->scale.id && !w->unscales) ? on_ready : NULL,
                             s->need_rows ? on_need_rows : NULL,
                             s->want_rows ? on_want_rows : NULL};
    struct wf_run at = {.step = told.step,
                        .shard = (int)(w->key + number - w->first),
                        .base = {.params = r->params,
                                 .at = r->at,
                                 .binding = r->binding,
                                 .grads = out->gradients->dense,
                                 .grads_away = out->gradients->away.dense,
                                 .state = r->state},
                        .hooks = hooks.need || hooks.ready || hooks.need_rows ? &hooks : NULL};
    weft_status st = begin_state(w, r);

    if (st)
        return st;
    r->n = n;
    if (!r->lane) /* there they are zeros from the beginning */
        clear_unreached(w, out->gradients);
    for (int i = 0; i < w->n_fetches; i++)
        r->fetch[i] = (weft_tensor){.data = NULL};
    st = wf_fn_run_at(r->fn, &at, r->feeds, r->fetch);
    if (!st)
        st = take_rows(w, r, out->gradients);
    if (st)
        return st;
    if (w->at_finite >= 0)
        out->gradients->finite &= *(const bool *)r->fetch[w->at_finite].data;
    if (w->scale.id)
        unscale_rows(w, r->scale, out->gradients);
    if (s->ready_rows)
        st = tell_rows(&told);
    if (!st && !r->state)
        st = wf_store_pull(w->b->fit->store, WF_PART_STATE);
    if (st)
        return st;
    take_sums(w, r, n, out->gradients->sums);
    take_logs(w, r, n, out->logs->sums);
    return WEFT_OK;
}

weft_status weft_work_compute(weft_work *w, int replica, int64_t number, weft_given *out)
{
    struct wf_replica *r = &w->replica[replica];
    int64_t l = number - w->first, shards = w->t->shards;
    int64_t from = l * w->batch.n / shards, n = (l + 1) * w->batch.n / shards - from;
    weft_batch *held = NULL;
    weft_status st;

    *out = (weft_given){.gradients = NULL};
    if (w->by_hand.give)
        return w->by_hand.give(w->by_hand.arg, number, out);
    if (w->round && !w->round->inside)
        return wf_round_compute(w->round, number, out);
    if (replica < 0 || replica >= w->n_replicas || l < 0 || l >= shards)
        return wf_err(WEFT_ERANGE, "shard %lld of this batch, replica %d", (long long)l, replica);
    if (n == 0)
        return WEFT_OK;
    st = wf_work_feeds(w, r, l, from, n, &held);
    if (!st)
        st = wf_work_room(w, r, out);
    if (!st) {
        feed_scale(w, r);
        st = run(w, r, number, n, out);
    }
    weft_batch_free(held);
    if (st)
        weft_work_give(w, out);
    return st;
}

void weft_work_give(struct wf_work *w, weft_given *given)
{
    bool round = w->round && given->gradients && given->gradients->rules == &w->round->rules;

    pthread_mutex_lock(&w->lock);
    wf_tree_give(round ? &w->round->tree : &w->tree, given->gradients);
    wf_tree_give(&w->log_tree, given->logs);
    pthread_mutex_unlock(&w->lock);
    *given = (weft_given){.gradients = NULL};
}

weft_status weft_work_put(struct wf_work *w, int64_t number, weft_given *given)
{
    uint64_t mode = wf_fpmode_enter(w->ctx->flush_denormals);
    weft_status st;

    pthread_mutex_lock(&w->lock);
    st = wf_tree_put(w->round ? &w->round->tree : &w->tree, 0, number, given->gradients);
    if (st)
        wf_tree_give(&w->log_tree, given->logs);
    else if (!w->round) /* logs of a round are among its sums */
        st = wf_tree_put(&w->log_tree, 0, number, given->logs);
    pthread_mutex_unlock(&w->lock);
    wf_fpmode_leave(mode);
    *given = (weft_given){.gradients = NULL};
    return st;
}

/* The trainer's vectors are about to be read and written here. */
weft_status wf_work_open(struct wf_work *w, unsigned parts)
{
    struct wf_store *s = w->b->fit->store;
    weft_status st = wf_store_pull(s, parts);

    if (!st)
        wf_store_touch(s, parts);
    return st;
}

/* ---- the sum of all -------------------------------------------------------------------------- */

void wf_work_quiet(struct wf_work *w)
{
    for (int i = 0; i < w->n_replicas; i++)
        if (w->replica[i].lane)
            wf_lane_quiet(w->replica[i].lane);
}

/* The sum of all; NULL: there are no samples. */
static weft_status sum_of(struct wf_work *w, struct wf_contribution **sum)
{
    uint64_t mode = wf_fpmode_enter(w->ctx->flush_denormals);
    weft_status st = wf_tree_sum(&w->tree, sum);

    wf_fpmode_leave(mode);
    return st;
}

/* The mean of a sum, which is given back if this fails. */
static weft_status mean_of(struct wf_work *w, struct wf_contribution *sum,
                           struct wf_contribution **out)
{
    uint64_t mode = wf_fpmode_enter(w->ctx->flush_denormals);
    weft_status st = WEFT_OK;

    if (sum && sum->away.lane) {
        st = wf_tree_bring(&w->tree, NULL, &sum);
        if (!st)
            wf_work_quiet(w);
    }
    if (!st && !sum) { /* no samples: the gradient is 0 */
        st = wf_tree_take(&w->tree, &sum);
        if (!st)
            memset(sum->dense, 0, (size_t)(w->rules.n_groups * w->rules.n_dense) * sizeof(float));
    }
    if (!st)
        st = wf_store_pull(w->b->fit->store, WF_PART_PARAMS);
    if (!st)
        st = wf_merge_mean(w->merge, sum, w->now.params);
    wf_fpmode_leave(mode);
    if (st) {
        wf_tree_give(&w->tree, sum);
        return st;
    }
    *out = sum;
    return WEFT_OK;
}

weft_status wf_work_mean(struct wf_work *w, struct wf_contribution **out)
{
    struct wf_contribution *sum = NULL;
    weft_status st = sum_of(w, &sum);

    return st ? st : mean_of(w, sum, out);
}

/* The batch's part in the sums of the pass. */
static void add_logs(struct wf_work *w, const double *sums)
{
    weft_trainer *t = w->t;

    wf_logs_add(&w->rules, &w->logged, sums,
                &(struct wf_log_totals){t->mean_sum, &t->mean_weight, t->sums});
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
    if (w->n_merged && n > 0)
        wf_work_open(w, WF_PART_STATE);
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
        const float *x = mean         ? mean->dense + var->offset
                         : var->table ? w->now.table[v].w
                                      : w->now.params + var->offset;
        int64_t n = var->count;

        if (!mean && !x) /* the strategy has its rows */
            continue;
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

static weft_status update(struct wf_work *w, const struct wf_contribution *mean,
                          const struct wf_step *step)
{
    return w->remote ? wf_remote_step(w, mean, step) : wf_merge_step(w->merge, mean, step, &w->now);
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
    st = update(w, mean, step);
    if (!st)
        st = check_finite(w, NULL);
    if (!st)
        st = wf_remote_check(w);
    if (st) {
        wf_snapshot_restore(before);
        wf_remote_restore(w);
    }
    wf_snapshot_free(before);
    return st;
}

static weft_status not_finite(struct wf_work *w)
{
    return w->b->scaled ? wf_scale_skip(w->t)
                        : wf_err(WEFT_ENUMERIC, "apply: a gradient is not finite");
}

weft_status wf_work_step(struct wf_work *w, const struct wf_contribution *mean, const bool *chosen)
{
    weft_trainer *t = w->t;
    int64_t at = weft_trainer_step(t);
    struct wf_step step = {
        .iteration = at + 1, .has_rate = w->b->rate.id != 0, .rate = t->rate, .chosen = chosen};
    uint64_t mode;
    weft_status st;

    if (!mean->finite)
        return not_finite(w);
    st = wf_work_open(w, WF_PART_PARAMS | WF_PART_SLOTS | WF_PART_TABLES);
    if (st)
        return st;
    mode = wf_fpmode_enter(t->ctx->flush_denormals);
    st = t->trap ? trapped_step(w, mean, &step) : update(w, mean, &step);
    if (!st)
        st = wf_evict_step(w, mean, &step);
    wf_fpmode_leave(mode);
    if (st)
        return st;
    wf_work_done(w);
    return WEFT_OK;
}

void wf_work_done(struct wf_work *w)
{
    weft_fn_set_step(w->b->fit, weft_trainer_step(w->t) + 1);
    if (w->b->scaled)
        wf_scale_good(w->t);
}

/* The same step in the memory of the trainer's device. */
static weft_status step_there(struct wf_work *w, struct wf_contribution **sum)
{
    weft_status st;

    if (!(*sum)->finite)
        return not_finite(w);
    st = wf_there_step(w, sum);
    if (!st)
        wf_work_done(w);
    return st;
}

weft_status weft_work_update(weft_work *w)
{
    struct wf_contribution *sum = NULL;
    bool there;
    weft_status st;

    if (w->round)
        return wf_round_update(w->round);
    st = sum_of(w, &sum);
    there = !st && sum && wf_there_takes(w, sum);
    if (!st && !there)
        st = mean_of(w, sum, &sum);
    if (st)
        return st;
    st = there ? step_there(w, &sum) : wf_work_step(w, sum, NULL);
    if (!st)
        wf_work_take_state(w, sum);
    wf_tree_give(&w->tree, sum);
    return st;
}

weft_status wf_work_took(struct wf_work *w, double *sums, const double *totals, bool updated)
{
    struct wf_contribution c = {.rules = &w->rules, .finite = updated, .sums = sums};
    weft_trainer *t = w->t;
    int n_means = w->logged.n_means;

    memcpy(t->mean_sum, totals, (size_t)n_means * sizeof *totals);
    t->mean_weight = totals[n_means];
    if (w->logged.n_metrics)
        memcpy(t->sums, totals + n_means + 1, (size_t)w->logged.n_metrics * sizeof *totals);
    wf_work_take_state(w, &c);
    if (!updated)
        return wf_scale_skip(t);
    wf_work_done(w);
    return WEFT_OK;
}

void wf_work_put_sums(const struct wf_work *w, double *sums, double *totals)
{
    const weft_trainer *t = w->t;
    double *to = sums + w->sum_state;
    int n_means = w->logged.n_means;

    memset(sums, 0, (size_t)w->rules.n_sums * sizeof *sums);
    sums[wf_rules_samples(&w->rules)] = 1;
    for (int i = 0; i < w->n_merged; i++) {
        const float *v =
            (const float *)(const void *)(w->b->fit->store->state + w->merged[i].offset);

        for (int64_t k = 0; k < w->merged[i].count; k++)
            *to++ = (double)v[k];
    }
    memcpy(totals, t->mean_sum, (size_t)n_means * sizeof *totals);
    totals[n_means] = t->mean_weight;
    if (w->logged.n_metrics)
        memcpy(totals + n_means + 1, t->sums, (size_t)w->logged.n_metrics * sizeof *totals);
}

weft_status wf_work_constrain(struct wf_work *w)
{
    struct wf_step all = {.chosen = NULL};
    weft_status st = wf_work_open(w, WF_PART_PARAMS | WF_PART_TABLES);

    if (!st)
        wf_merge_constrain(w->merge, &all, &w->now);
    return st;
}
