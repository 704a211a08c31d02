/* parts.c - a step in several parts: logical shards of a batch, or batches whose gradients are
 * added before an update.
 *
 * Part l computes the gradient of its loss times its weight: its number of samples, or of valid
 * values if an output is masked. Losses with different denominators are groups with separate
 * gradients. The parts of a group are added along a fixed binary tree over their numbers and
 * divided once by the total weight; then the groups are added, and the gradient of the regularizers
 * once. So the result does not depend on where a part is computed. Looked-up rows are in the order
 * of the parts. State that is not a parameter (moving averages) starts each part with its value
 * from before the step, and becomes the mean of the parts' results, weighted by samples; states of
 * recurrent layers carry over from batch to batch. A step that fails, or is skipped because a
 * gradient is not finite, leaves all state unchanged.
 *
 * A trainer whose steps are not split has one part and one group: the mean itself. */
#include "train/step/halves.h"

#define LEVELS 40

/* The sums of one group. */
struct tree {
    weft_grads *level[LEVELS]; /* level k: the sum of 2^k parts, if `full` has bit k */
    uint64_t full;
    double weight; /* of all parts so far */
};

struct wf_parts {
    weft_ctx *ctx;
    weft_trainer *t;
    struct wf_halves *h;
    struct tree *tree; /* by group */
    weft_grads *carry, *mean;
    int64_t n_parts, n_rows;
    int n_states; /* state variables */
    weft_tensor *state;
    float *before;  /* their values before the step, one after the other */
    double *merged; /* and the weighted sums of the parts' results */
    int64_t n_state_items;
    weft_tensor *feeds;
    double *batch; /* sums of the current batch: means, groups' losses, groups' weights */
    double *sums;  /* and of its metrics */
    struct wf_snapshot *start; /* all state that the parts write, from before the step */
    bool began;                /* the step has begun: start is filled */
    float scale;               /* of the loss, while a part runs */
};

void wf_parts_free(struct wf_parts *p)
{
    if (!p)
        return;
    for (int k = 0; k < p->h->n_groups && p->tree; k++)
        for (int i = 0; i < LEVELS; i++)
            weft_grads_free(p->tree[k].level[i]);
    weft_grads_free(p->carry);
    weft_grads_free(p->mean);
    wf_free(p->ctx, p->tree);
    wf_free(p->ctx, p->state);
    wf_free(p->ctx, p->before);
    wf_free(p->ctx, p->merged);
    wf_free(p->ctx, p->feeds);
    wf_free(p->ctx, p->batch);
    wf_free(p->ctx, p->sums);
    wf_snapshot_free(p->start);
    wf_free(p->ctx, p);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* State that is averaged: floating-point, of trained layers. Not the states of recurrent layers:
 * batches follow each other, and shards of a batch are refused. */
static weft_status list_states(struct wf_parts *p)
{
    weft_trainer *t = p->t;
    int n = wf_model_n_weights(t->model);

    p->state = wf_alloc_n(p->ctx, n + 1, sizeof *p->state);
    if (!p->state)
        return wf_err_nomem(p->ctx, 0, "the parts of a step");
    for (int i = 0; i < n && !p->h->whole; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);
        weft_status st;

        if (!w->state || w->dtype != WEFT_F32 || wf_model_next_state(t->model, i) == i)
            continue;
        st = weft_fn_view(t->bound->fit, w->name, &p->state[p->n_states]);
        if (st)
            return st;
        p->n_state_items += weft_tensor_count(&p->state[p->n_states++]);
    }
    return WEFT_OK;
}

static weft_status make_room(struct wf_parts *p)
{
    struct wf_halves *h = p->h;
    int64_t n_sums = p->t->bound->n_means + 2 * h->n_groups;
    weft_status st = list_states(p);

    p->before = wf_alloc_n(p->ctx, p->n_state_items + 1, sizeof *p->before);
    p->merged = wf_alloc_n(p->ctx, p->n_state_items + 1, sizeof *p->merged);
    p->feeds = wf_alloc_n(p->ctx, p->t->bound->n_feeds_fit + 1, sizeof *p->feeds);
    p->tree = wf_alloc_n(p->ctx, h->n_groups + 1, sizeof *p->tree);
    p->batch = wf_alloc_n(p->ctx, n_sums + 1, sizeof *p->batch);
    p->sums = wf_alloc_n(p->ctx, p->t->bound->n_sums + 1, sizeof *p->sums);
    if (!st && (!p->before || !p->merged || !p->feeds || !p->tree || !p->batch || !p->sums))
        st = wf_err_nomem(p->ctx, (size_t)p->n_state_items * 12, "the parts of a step");
    if (!st)
        st = wf_snapshot_new(1, &h->half[0].fn, false, &p->start);
    if (!st)
        st = wf_grads_new(p->ctx, h->n, h->entry, &p->carry);
    return st;
}

weft_status wf_parts_new(weft_trainer *t, struct wf_parts **out)
{
    struct wf_halves *h;
    struct wf_parts *p;
    weft_status st = wf_halves_get(t, &h);

    if (st)
        return st;
    p = wf_alloc(t->ctx, sizeof *p);
    if (!p)
        return wf_err_nomem(t->ctx, sizeof *p, "the parts of a step");
    p->ctx = t->ctx;
    p->t = t;
    p->h = h;
    st = make_room(p);
    if (st) {
        wf_parts_free(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Adds the gradient in `carry`, that of one more part, to the tree. */
static weft_status push(struct wf_parts *p, struct tree *tree)
{
    weft_grads *other;
    weft_status st;
    int k = 0;

    for (; tree->full >> k & 1; k++) {
        st = wf_grads_add_scaled(tree->level[k], p->carry,
                                 1); /* the parts with lower numbers first */
        if (st)
            return st;
        other = p->carry;
        p->carry = tree->level[k];
        tree->level[k] = other;
        tree->full &= ~((uint64_t)1 << k);
    }
    if (!tree->level[k]) {
        st = wf_grads_new(p->ctx, p->h->n, p->h->entry, &tree->level[k]);
        if (st)
            return st;
    }
    other = tree->level[k];
    tree->level[k] = p->carry;
    p->carry = other;
    tree->full |= (uint64_t)1 << k;
    return WEFT_OK;
}

/* Sums what is left in the tree, from its small end (the parts with the highest numbers), into its
 * last full level, which is returned. */
static weft_status sum_up(struct tree *tree, weft_grads **out)
{
    weft_grads *sum = NULL;
    weft_status st = WEFT_OK;

    for (int k = 0; k < LEVELS && !st; k++) {
        if (!(tree->full >> k & 1))
            continue;
        if (sum)
            st = wf_grads_add_scaled(tree->level[k], sum, 1);
        sum = tree->level[k];
    }
    *out = sum;
    return st;
}

static void copy_state(struct wf_parts *p, bool out)
{
    float *at = p->before;

    for (int i = 0; i < p->n_states; i++) {
        int64_t n = weft_tensor_count(&p->state[i]);

        if (out)
            memcpy(at, p->state[i].data, (size_t)n * sizeof *at);
        else
            memcpy(p->state[i].data, at, (size_t)n * sizeof *at);
        at += n;
    }
}

static void merge_state(struct wf_parts *p, double weight)
{
    double *sum = p->merged;

    for (int i = 0; i < p->n_states; i++) {
        const float *v = p->state[i].data;

        for (int64_t k = 0, n = weft_tensor_count(&p->state[i]); k < n; k++)
            *sum++ += weight * (double)v[k];
    }
}

static void finish_state(struct wf_parts *p)
{
    const double *sum = p->merged;

    for (int i = 0; i < p->n_states; i++) {
        float *v = p->state[i].data;

        for (int64_t k = 0, n = weft_tensor_count(&p->state[i]); k < n; k++)
            v[k] = (float)(*sum++ / (double)p->n_rows);
    }
}

static void forget(struct wf_parts *p)
{
    for (int k = 0; k < p->h->n_groups; k++) {
        p->tree[k].full = 0;
        p->tree[k].weight = 0;
    }
    p->n_parts = p->n_rows = 0;
    p->began = false;
}

/* ---- logs ------------------------------------------------------------------------------------ */

/* Means of the parts, weighted, so that the result is that of the batch. */
static void log_part(struct wf_parts *p, const double *group_loss, const double *group_weight)
{
    const struct wf_bound *b = p->t->bound;
    const struct wf_halves *h = p->h;
    double *loss = p->batch + b->n_means, *weight = loss + h->n_groups, rest;

    rest = (double)*(const float *)h->fetch[0].data; /* the regularizers: the same in each part */
    for (int k = 0; k < h->n_groups; k++) {
        rest -= group_loss[k];
        loss[k] += group_weight[k] * group_loss[k];
        weight[k] += group_weight[k];
    }
    p->batch[0] = rest;
    for (int i = 1; i < b->n_means; i++)
        p->batch[i] += group_weight[h->whole ? 0 : b->mean_group[i]] *
                       (double)*(const float *)h->fetch[i].data;
    for (int64_t i = 0; i < b->n_sums; i++)
        p->sums[i] += (double)((const float *)h->fetch[b->n_means].data)[i];
}

static void log_batch(struct wf_parts *p, int64_t n)
{
    const struct wf_bound *b = p->t->bound;
    int n_groups = p->h->n_groups;
    const double *loss = p->batch + b->n_means, *weight = loss + n_groups;
    double total = p->batch[0];

    for (int k = 0; k < n_groups; k++)
        total += weight[k] > 0 ? loss[k] / weight[k] : 0;
    p->t->mean_sum[0] += total * (double)n;
    for (int i = 1; i < b->n_means; i++) {
        double w = weight[p->h->whole ? 0 : b->mean_group[i]];

        p->t->mean_sum[i] += w > 0 ? p->batch[i] / w * (double)n : 0;
    }
    p->t->mean_weight += (double)n;
    for (int64_t i = 0; i < b->n_sums; i++)
        p->t->sums[i] += p->sums[i];
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Rows [first, first + n) of the feeds. */
static void cut(struct wf_parts *p, const weft_tensor *feeds, int64_t first, int64_t n)
{
    for (int i = 0; i < p->t->bound->n_feeds_test; i++) {
        weft_tensor *f = &p->feeds[i];
        int64_t row;

        *f = feeds[i];
        row = f->dim[0] ? weft_tensor_bytes(f) / f->dim[0] : 0;
        f->dim[0] = n;
        f->data = (char *)f->data + first * row;
    }
}

/* One part of n samples, whose feeds are sliced. The first group comes last: it changes the layers'
 * states. */
static weft_status one_part(struct wf_parts *p, int64_t n)
{
    struct wf_halves *h = p->h;
    double loss[64], weight[64];
    weft_status st = WEFT_OK;

    if (h->n_groups > WF_COUNT(loss))
        return wf_err(WEFT_ELIMIT, "%d outputs with masks; at most %d are supported in parts",
                      h->n_groups, WF_COUNT(loss));
    if (p->n_parts == 0) {
        wf_snapshot_save(p->start);
        p->began = true;
        copy_state(p, true);
        memset(p->merged, 0, (size_t)p->n_state_items * sizeof *p->merged);
    } else {
        copy_state(p, false);
    }
    for (int k = h->n_groups - 1; k >= 0 && !st; k--) {
        struct wf_half *half = &h->half[k];

        st = wf_half_run(h, half, p->t->drawn, p->feeds);
        if (st)
            break;
        loss[k] = (double)*(const float *)h->fetch[half->loss].data;
        weight[k] = (double)*(const float *)h->fetch[half->weight].data;
        p->tree[k].weight += weight[k];
        st = wf_half_take(h, half, h->scale.id ? p->scale : 0, p->carry);
        if (!st)
            st = push(p, &p->tree[k]);
    }
    if (st)
        return st;
    log_part(p, loss, weight);
    merge_state(p, (double)n);
    p->n_rows += n;
    p->n_parts++;
    p->t->drawn++;
    return WEFT_OK;
}

weft_status wf_parts_batch(struct wf_parts *p, const weft_tensor *feeds, int64_t n)
{
    int64_t shards = p->t->shards;
    weft_status st = WEFT_OK;

    memset(p->batch, 0, (size_t)(p->t->bound->n_means + 2 * p->h->n_groups) * sizeof *p->batch);
    memset(p->sums, 0, (size_t)p->t->bound->n_sums * sizeof *p->sums);
    for (int64_t l = 0; l < shards && !st; l++) {
        int64_t first = l * n / shards, end = (l + 1) * n / shards;

        if (end == first)
            continue;
        cut(p, feeds, first, end - first);
        p->scale = wf_scale_now(p->t);
        if (p->h->scale.id)
            p->feeds[p->t->bound->n_feeds_test] =
                (weft_tensor){.dtype = WEFT_F32, .data = &p->scale};
        st = one_part(p, end - first);
    }
    if (!st) {
        log_batch(p, n);
        return WEFT_OK;
    }
    wf_parts_forget(p);
    return st;
}

void wf_parts_forget(struct wf_parts *p)
{
    if (p->began)
        wf_snapshot_restore(p->start);
    forget(p);
}

/* Divides, adds the groups, and the regularizers. */
static weft_status add_groups(struct wf_parts *p, weft_grads *mean)
{
    struct wf_halves *h = p->h;
    weft_status st = WEFT_OK;

    wf_grads_clear(mean);
    for (int k = 0; k < h->n_groups && !st; k++) {
        double weight = p->tree[k].weight;
        weft_grads *sum;

        st = sum_up(&p->tree[k], &sum);
        if (k == 0)
            mean->weight = weight;
        if (!st && sum && (h->whole || weight > 0))
            st = wf_grads_add_scaled(mean, sum, h->whole ? 1 : (float)(1 / weight));
    }
    if (st || !h->regularize.fn)
        return st;
    st = wf_half_run(h, &h->regularize, 0, NULL);
    if (!st)
        st = wf_half_take(h, &h->regularize, 0, p->carry);
    return st ? st : wf_grads_add_scaled(mean, p->carry, 1);
}

weft_status wf_parts_mean(struct wf_parts *p, weft_grads **out)
{
    weft_grads *mean = *out;
    weft_status st = WEFT_OK;

    if (!mean || !wf_grads_fit(mean, p->h->n, p->h->entry)) {
        mean = NULL;
        st = wf_grads_new(p->ctx, p->h->n, p->h->entry, &mean);
    }
    if (!st)
        st = add_groups(p, mean);
    if (!st && p->n_rows > 0 && !mean->bad)
        finish_state(p);
    if (st || mean->bad)
        wf_parts_forget(p);
    forget(p);
    if (st) {
        if (mean != *out)
            weft_grads_free(mean);
        return st;
    }
    if (mean != *out)
        weft_grads_free(*out);
    *out = mean;
    return WEFT_OK;
}

weft_status wf_parts_apply(struct wf_parts *p)
{
    bool began = p->began;
    weft_status st = wf_parts_mean(p, &p->mean); /* for batches without samples: 0 */

    if (st)
        return st;
    st = wf_halves_apply(p->t, p->h, p->mean, NULL);
    if (st && began)
        wf_snapshot_restore(p->start);
    if (!st)
        p->t->drawn = 0;
    return st;
}
