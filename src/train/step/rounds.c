/* rounds.c - updates in the workers.
 *
 * Kept true: what logical worker l gives is a function of the version that the round began with
 * and of l, so that any process can compute it, and compute it again: parameters, slots of the
 * optimizer and state all begin with that version, the step number with that of the round. While
 * one trains, the trainer's own memory is its copy; the version is kept in `base`.
 *
 * With leases (asynchronous training, bounded staleness) a logical worker's round is a lease: it
 * begins with whatever the servers have, and what it gives is added by itself. */
#include "train/step/rounds.h"

#include <math.h>
#include <stdio.h>

#include "train/step/dist.h"

enum { PARTS = WF_PART_PARAMS | WF_PART_SLOTS | WF_PART_TABLES };
enum { AHEAD = 2 }; /* batches that are read while one is trained */

/* ---- rules ----------------------------------------------------------------------------------- */

static weft_status no_memory(const struct wf_round *r)
{
    return wf_err_nomem(r->w->ctx, 0, "updates in the workers");
}

/* Slot k of a variable of the trainer, -1: its values; as a dense variable at `offset`. */
static weft_status add_var(struct wf_round *r, int var, int k, int64_t offset)
{
    struct wf_work *w = r->w;
    const struct wf_var *from = &w->rules.var[var];
    struct wf_var *v = &r->rules.var[r->rules.n_vars];
    size_t room = strlen(from->name) + 32;
    char *name = wf_arena_alloc(&w->arena, room);

    if (!name)
        return no_memory(r);
    *v = *from;
    v->table = false;
    v->init = (struct wf_initial){.kind = NULL};
    v->penalty = (struct wf_penalty){.l1 = 0};
    v->copied = r->leased && k >= 0;
    v->offset = offset;
    r->slot[r->rules.n_vars] = k;
    if (k < 0) {
        v->name = from->name;
        r->at[r->rules.n_vars] = from->table ? w->now.table[var].w : w->now.params + from->offset;
    } else {
        snprintf(name, room, "%s:slot%d", from->name, k);
        v->name = name;
        v->constraint = (struct wf_constraint){.kind = WF_CONSTRAINT_NONE};
        r->at[r->rules.n_vars] =
            from->table ? w->now.table[var].slot[k] : w->now.slot[k] + from->offset;
    }
    r->of[r->rules.n_vars++] = var;
    return WEFT_OK;
}

/* All parameters, then all slots; tables at the end. */
static weft_status list_vars(struct wf_round *r)
{
    const struct wf_work *w = r->w;
    int64_t stride = wf_round_up(w->rules.n_dense, 16), end = (1 + r->n_slots) * stride;
    weft_status st = WEFT_OK;

    for (int tables = 0; tables < 2; tables++)
        for (int k = -1; k < r->n_slots; k++)
            for (int v = 0; v < w->rules.n_vars && !st; v++) {
                const struct wf_var *x = &w->rules.var[v];

                if (x->table != (tables == 1))
                    continue;
                st = add_var(r, v, k, tables ? end : (k + 1) * stride + x->offset);
                end += tables ? wf_round_up(x->count, 16) : 0;
            }
    r->rules.n_dense = end;
    return st;
}

/* Increments are subtracted, as gradients are. */
static weft_status set_rules(struct wf_round *r)
{
    struct wf_work *w = r->w;
    weft_optim add;
    weft_status st = weft_optim_init(&add, "sgd", "learning_rate=1");

    if (st)
        return st;
    r->rules.optim = wf_optim_find(add.name);
    memcpy(r->rules.attrs, add.number, sizeof r->rules.attrs);
    r->rules.n_groups = 1;
    r->rules.whole = r->leased || w->t->shards == 1; /* a lease is a step of its own */
    r->rules.copies = r->leased;
    r->rules.n_sums = w->rules.n_sums;
    st = list_vars(r);
    if (st)
        return st;
    r->job = r->rules;
    r->log_sums = wf_logs_sums(&r->rules, &w->logged);
    r->rules.n_sums += w->t->accumulate * r->log_sums;
    return WEFT_OK;
}

static weft_status check(const struct wf_work *w)
{
    const weft_trainer *t = w->t;

    if (t->dist->n_local > 1)
        return wf_err(WEFT_ENOSUP,
                      "update=worker: strategy '%s' has %d replicas in a process; use local or ps",
                      t->dist->kind.name, t->dist->n_local);
    if (w->b->scaled)
        return wf_err(WEFT_ENOSUP, "update=worker: with f16 the loss is scaled, and each worker "
                                   "would have a scale of its own; use bf16, or loss_scale=0");
    if (t->stateful)
        return wf_err(WEFT_ENOSUP,
                      "update=worker: layer '%s' is stateful, and its states cannot be merged",
                      t->stateful);
    for (int v = 0; v < w->rules.n_vars; v++)
        if (w->rules.var[v].evict.every)
            return wf_err(WEFT_ENOSUP,
                          "update=worker: table '%s' forgets rows (evict), and each worker would "
                          "count its own",
                          w->rules.var[v].name);
    return WEFT_OK;
}

weft_status wf_round_new(struct wf_work *w)
{
    struct wf_round *r;
    int n_slots =
        wf_optim_slots(w->rules.optim, w->rules.attrs, NULL, (float[WF_OPTIM_MAX_SLOTS]){0});
    int64_t n = (int64_t)w->rules.n_vars * (1 + n_slots) + 1;
    weft_status st = check(w);

    if (st)
        return st;
    r = w->round = wf_arena_alloc(&w->arena, sizeof *r);
    if (!r)
        return wf_err_nomem(w->ctx, sizeof *r, "updates in the workers");
    *r = (struct wf_round){.w = w, .n_slots = n_slots, .leased = wf_dist_leased(w->t)};
    r->rules.var = wf_arena_alloc(&w->arena, (size_t)n * sizeof *r->rules.var);
    r->at = wf_arena_alloc(&w->arena, (size_t)n * sizeof *r->at);
    r->of = wf_arena_alloc(&w->arena, (size_t)n * sizeof *r->of);
    r->slot = wf_arena_alloc(&w->arena, (size_t)n * sizeof *r->slot);
    w->logged.mean_group = wf_arena_alloc(&w->arena, (size_t)(w->logged.n_means + 1) * sizeof(int));
    if (!r->rules.var || !r->at || !r->of || !r->slot || !w->logged.mean_group)
        return no_memory(r);
    memset((int *)(uintptr_t)w->logged.mean_group, 0,
           (size_t)(w->logged.n_means + 1) * sizeof(int));
    st = set_rules(r);
    if (st)
        return st;
    wf_tree_init(&r->tree, w->ctx, w->ctx->pool, &r->rules);
    r->base = wf_alloc_n(w->ctx, r->rules.n_dense + 1, sizeof *r->base);
    if (!r->base)
        return no_memory(r);
    return wf_merge_new(w->ctx, w->ctx->pool, &r->rules, 0, NULL, &r->merge);
}

void wf_round_place(struct wf_round *r)
{
    for (int v = 0; v < r->rules.n_vars; v++)
        r->rules.var[v].server = r->w->rules.var[r->of[v]].server;
}

void wf_round_free(struct wf_round *r)
{
    if (!r)
        return;
    wf_tree_free(&r->tree);
    wf_merge_free(r->merge);
    wf_snapshot_free(r->start);
    wf_free(r->w->ctx, r->base);
}

/* ---- the version ----------------------------------------------------------------------------- */

weft_status wf_round_save(struct wf_round *r)
{
    weft_status st = wf_store_pull(r->w->b->fit->store, PARTS);

    for (int v = 0; v < r->rules.n_vars && !st; v++)
        memcpy(r->base + r->rules.var[v].offset, r->at[v],
               (size_t)r->rules.var[v].count * sizeof(float));
    return st;
}

void wf_round_load(struct wf_round *r)
{
    bool inside = r->inside;

    r->inside = true; /* no caller has changed them */
    wf_store_touch(r->w->b->fit->store, PARTS);
    for (int v = 0; v < r->rules.n_vars; v++)
        memcpy(r->at[v], r->base + r->rules.var[v].offset,
               (size_t)r->rules.var[v].count * sizeof(float));
    r->inside = inside;
}

static weft_status begin(struct wf_round *r)
{
    struct wf_work *w = r->w;
    weft_status st = weft_work_replicas(w, 1);

    if (!st && !r->start)
        st = wf_snapshot_new(1, &w->replica[0].fn, false, &r->start);
    if (st)
        return st;
    wf_snapshot_save(r->start);
    r->step = weft_trainer_step(w->t);
    r->began = true;
    r->filled = false;
    r->n_batches = 0;
    r->samples = 0;
    return WEFT_OK;
}

weft_status wf_round_note(struct wf_work *w, const struct wf_samples *batch)
{
    struct wf_round *r = w->round;
    weft_status st = WEFT_OK;

    if (batch->feeds && w->t->accumulate > 1)
        return wf_err(WEFT_ENOSUP,
                      "update=worker, every=%d: a round needs all of its batches together, and "
                      "batches by hand come one by one; use fit, or every=1",
                      w->t->accumulate);
    if (!r->began)
        st = begin(r);
    if (st)
        return st;
    r->last = *batch;
    if (batch->deal) {
        r->dealt = *batch->deal;
        r->last.deal = &r->dealt;
    }
    r->n_batches++;
    r->samples += batch->n;
    return WEFT_OK;
}

void wf_round_drop(struct wf_round *r)
{
    if (!r->began || r->inside)
        return;
    r->inside = true;
    if (r->filled)
        wf_round_load(r);
    wf_snapshot_restore(r->start);
    weft_fn_set_step(r->w->b->fit, r->step);
    wf_tree_clear(&r->tree);
    r->began = r->filled = r->inside = false;
}

/* ---- a logical worker ------------------------------------------------------------------------ */

/* As the logs of a shard whose loss is a sum: losses and means weighted by samples. */
static void take_logs(const struct wf_round *r, const double *from, double *to)
{
    const struct wf_work *w = r->w;
    int64_t samples = wf_rules_samples(&r->rules);

    memcpy(to, from, (size_t)r->log_sums * sizeof *to);
    if (r->rules.whole)
        return;
    to[0] = from[samples];
    to[w->log_losses] = from[w->log_means];
    to[w->log_means] = 0;
}

/* A step on the samples of batch `number` of the round; *n: how many these are. */
static weft_status train_batch(struct wf_round *r, int number, int64_t l, double *logs, int64_t *n)
{
    struct wf_work *w = r->w;
    struct wf_deal deal;
    struct wf_contribution *mean;
    weft_given given;
    weft_status st = WEFT_OK;

    w->batch = r->last;
    w->first = w->key = 0;
    if (r->last.deal) {
        st = wf_deal_earlier(&r->dealt, r->n_batches - 1 - number, &deal);
        w->batch = (struct wf_samples){.n = deal.n, .deal = &deal};
    }
    *n = (l + 1) * w->batch.n / w->t->shards - l * w->batch.n / w->t->shards;
    if (st || *n == 0)
        return st;
    weft_fn_set_step(w->b->fit, r->step + number);
    wf_snapshot_save(w->start);
    w->began = true;
    st = weft_work_compute(w, 0, l, &given);
    if (st)
        return st;
    take_logs(r, given.logs->sums, logs);
    wf_tree_give(&w->log_tree, given.logs);
    st = wf_tree_put(&w->tree, 0, 0, given.gradients);
    if (!st)
        st = wf_work_mean(w, &mean);
    if (st)
        return st;
    st = wf_work_step(w, mean, NULL);
    if (!st)
        wf_work_take_state(w, mean);
    wf_tree_give(&w->tree, mean);
    return st;
}

/* All batches, from the version on. */
static weft_status train(struct wf_round *r, int64_t l, double *logs, int64_t *samples)
{
    weft_status st = WEFT_OK;

    *samples = 0;
    wf_round_load(r);
    wf_snapshot_restore(r->start);
    for (int a = 0; a < r->n_batches && !st; a++) {
        int64_t n = 0, next = r->dealt.at - (r->n_batches - 1 - a) + AHEAD;

        if (r->leased && next <= r->dealt.at)
            st = wf_deal_announce(&r->dealt, next, l);
        if (!st)
            st = train_batch(r, a, l, logs + a * r->log_sums, &n);
        *samples += n;
    }
    wf_tree_clear(&r->w->tree);
    r->w->began = false;
    weft_fn_set_step(r->w->b->fit, r->step);
    return st ? st : wf_store_pull(r->w->b->fit->store, PARTS | WF_PART_STATE);
}

/* What the copy differs by from the version, or the copy itself; by its share of the samples. A sum
 * has no shares, but slots are always averaged: second moments stay positive. For the same reason
 * servers go to the slots of a lease, which may have begun with an old version: they get the copy,
 * and the share. */
static void put_values(const struct wf_round *r, float share, float *to)
{
    enum wf_merging how = r->w->t->merging;

    for (int v = 0; v < r->rules.n_vars; v++) {
        const struct wf_var *var = &r->rules.var[v];
        const float *x = r->at[v], *was = r->base + var->offset;
        float factor = how == WF_MERGE_SUM && r->slot[v] < 0 ? 1 : share, *p = to + var->offset;

        if (r->leased && (how == WF_MERGE_MODELS || var->copied))
            memcpy(p, x, (size_t)var->count * sizeof *p);
        else if (how == WF_MERGE_MODELS)
            for (int64_t i = 0; i < var->count; i++)
                p[i] = factor * x[i];
        else
            for (int64_t i = 0; i < var->count; i++)
                p[i] = factor * (was[i] - x[i]);
    }
}

static void put_sums(const struct wf_round *r, double share, int64_t n, double *sums)
{
    const struct wf_work *w = r->w;
    const char *state = w->b->fit->store->state;
    double *to = sums + w->sum_state;

    sums[0] = share;
    sums[wf_rules_samples(&r->rules)] = (double)n;
    for (int i = 0; i < w->n_merged; i++) {
        const float *v = (const float *)(const void *)(state + w->merged[i].offset);

        for (int64_t k = 0; k < w->merged[i].count; k++)
            *to++ = (double)n * (double)v[k];
    }
}

weft_status wf_round_compute(struct wf_round *r, int64_t l, weft_given *out)
{
    struct wf_contribution *c = NULL;
    double share;
    int64_t n = 0;
    uint64_t mode;
    weft_status st = WEFT_OK;

    *out = (weft_given){.gradients = NULL};
    if (!r->began)
        return wf_err(WEFT_ENOSUP,
                      "update=worker: strategy '%s' asks for shard %lld outside of a round; "
                      "synchronous training alone has rounds",
                      r->w->t->dist->kind.name, (long long)l);
    if (!r->filled)
        st = wf_round_save(r);
    r->filled |= !st;
    if (!st)
        st = wf_tree_take(&r->tree, &c);
    if (st)
        return st;
    r->inside = true;
    mode = wf_fpmode_enter(r->w->ctx->flush_denormals);
    st = train(r, l, c->sums + r->job.n_sums, &n);
    if (!st && n > 0) {
        share = (double)n / (double)r->samples;
        put_values(r, (float)share, c->dense);
        put_sums(r, share, n, c->sums);
    }
    wf_fpmode_leave(mode);
    r->inside = false;
    if (st || n == 0) {
        wf_tree_give(&r->tree, c);
        return st ? wf_err_wrap(st, "logical worker %lld", (long long)l) : WEFT_OK;
    }
    out->gradients = c;
    return WEFT_OK;
}

weft_status wf_round_lease(struct wf_work *w, const struct wf_deal *last, int n_batches, int64_t l,
                           weft_given *out)
{
    struct wf_round *r = w->round;
    weft_status st = WEFT_OK;

    for (int a = 0; a < n_batches && !st; a++) {
        struct wf_deal deal;

        st = wf_deal_earlier(last, n_batches - 1 - a, &deal);
        if (!st)
            st = wf_round_note(w, &(struct wf_samples){.n = deal.n, .deal = &deal});
    }
    r->filled = true;
    if (!st)
        st = wf_round_compute(r, l, out);
    if (st) {
        wf_round_drop(r);
        return st;
    }
    wf_snapshot_restore(r->start);
    r->began = r->filled = false;
    return WEFT_OK;
}

/* ---- merging --------------------------------------------------------------------------------- */

static weft_status merge(struct wf_round *r, struct wf_contribution *sum)
{
    struct wf_version v = {.params = r->base};
    struct wf_step step = {.iteration = r->step + 1};
    weft_status st = wf_merge_mean(r->merge, sum, r->base);

    if (st || r->w->t->merging != WF_MERGE_MODELS)
        return st ? st : wf_merge_step(r->merge, sum, &step, &v);
    for (int i = 0; i < r->rules.n_vars; i++) {
        const struct wf_var *var = &r->rules.var[i];

        memcpy(r->base + var->offset, sum->dense + var->offset, (size_t)var->count * sizeof(float));
    }
    wf_merge_constrain(r->merge, &step, &v);
    return WEFT_OK;
}

weft_status wf_round_update(struct wf_round *r)
{
    struct wf_work *w = r->w;
    weft_trainer *t = w->t;
    struct wf_contribution *sum = NULL;
    uint64_t mode = wf_fpmode_enter(w->ctx->flush_denormals);
    weft_status st = wf_tree_sum(&r->tree, &sum);

    if (!st && sum)
        st = merge(r, sum);
    wf_fpmode_leave(mode);
    if (!st) {
        wf_snapshot_restore(r->start);
        wf_round_load(r);
        r->began = r->filled = false;
        if (sum)
            wf_work_take_state(w, sum);
        weft_fn_set_step(w->b->fit, r->step + r->n_batches);
    }
    for (int a = 0; a < r->n_batches && !st && sum; a++) {
        const double *logs = sum->sums + r->job.n_sums + a * r->log_sums;

        if (logs[wf_rules_samples(&r->rules)] > 0)
            wf_logs_add(&r->rules, &w->logged, logs,
                        &(struct wf_log_totals){t->mean_sum, &t->mean_weight, t->sums});
    }
    wf_tree_give(&r->tree, sum);
    return st;
}

weft_status wf_round_took(struct wf_round *r, double *sums, const double *totals, int64_t step)
{
    weft_status st;

    if (r->began)
        wf_snapshot_restore(r->start);
    r->began = r->filled = false;
    st = wf_work_took(r->w, sums, totals, true);
    weft_fn_set_step(r->w->b->fit, step);
    return st;
}
