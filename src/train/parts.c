/* parts.c - a step in several parts: logical shards of a batch, or batches whose gradients are added before an update.
 *
 * Part l computes the gradient of its loss times its weight (its number of samples; with a mask, of valid values). The parts are
 * added along a fixed binary tree over their numbers, divided once by the total weight, and the gradient of the
 * regularizers is added once. So the result does not depend on who computes which part. State that is no parameter (moving
 * averages) starts each part as the step found it, and becomes the weighted mean of what the parts made of it. */
#include "train/train.h"

#define LEVELS 40

struct wf_parts {
    weft_ctx *ctx;
    weft_trainer *t;
    int64_t n_params;
    float *level[LEVELS]; /* level k: the sum of 2^k parts, where `full` has bit k */
    uint64_t full;
    float *carry;  /* of n_params */
    double weight; /* of all parts so far */
    int64_t n_parts;
    int n_states; /* state variables */
    weft_tensor *state;
    float *before;  /* their bits before the step, one after the other; */
    double *merged; /* and the weighted sums of what the parts left */
    int64_t n_state_items;
    weft_tensor *feeds;
};

void wf_parts_free(struct wf_parts *p)
{
    if (!p)
        return;
    for (int i = 0; i < LEVELS; i++)
        wf_free(p->ctx, p->level[i]);
    wf_free(p->ctx, p->carry);
    wf_free(p->ctx, p->state);
    wf_free(p->ctx, p->before);
    wf_free(p->ctx, p->merged);
    wf_free(p->ctx, p->feeds);
    wf_free(p->ctx, p);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* State that is averaged: floating-point, of layers that are trained. */
static weft_status list_states(struct wf_parts *p)
{
    weft_trainer *t = p->t;
    int n = wf_model_n_weights(t->model);

    p->state = wf_alloc_n(p->ctx, n + 1, sizeof *p->state);
    if (!p->state)
        return wf_err_nomem(p->ctx, 0, "the parts of a step");
    for (int i = 0; i < n; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);
        weft_status st;

        if (!w->state || w->dtype != WEFT_F32)
            continue;
        st = weft_fn_view(t->bound->fit, w->name, &p->state[p->n_states]);
        if (st)
            return st;
        p->n_state_items += weft_tensor_count(&p->state[p->n_states++]);
    }
    return WEFT_OK;
}

weft_status wf_parts_new(weft_trainer *t, struct wf_parts **out)
{
    struct wf_parts *p = wf_alloc(t->ctx, sizeof *p);
    weft_status st;

    if (!p)
        return wf_err_nomem(t->ctx, sizeof *p, "the parts of a step");
    p->ctx = t->ctx;
    p->t = t;
    weft_fn_gradients(t->bound->fit, &p->n_params);
    st = list_states(p);
    p->carry = wf_alloc_n(t->ctx, p->n_params + 1, sizeof *p->carry);
    p->before = wf_alloc_n(t->ctx, p->n_state_items + 1, sizeof *p->before);
    p->merged = wf_alloc_n(t->ctx, p->n_state_items + 1, sizeof *p->merged);
    p->feeds = wf_alloc_n(t->ctx, t->bound->n_feeds_fit + 1, sizeof *p->feeds);
    if (!st && (!p->carry || !p->before || !p->merged || !p->feeds))
        st = wf_err_nomem(t->ctx, (size_t)p->n_params * 4, "the parts of a step");
    if (st) {
        wf_parts_free(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* a = b + a: b holds the parts with lower numbers. */
static void add_to(float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = b[i] + a[i];
}

/* The gradient of one more part goes into the tree. */
static weft_status push(struct wf_parts *p, const float *gradient)
{
    int k = 0;

    memcpy(p->carry, gradient, (size_t)p->n_params * sizeof *gradient);
    for (; p->full >> k & 1; k++) {
        add_to(p->carry, p->level[k], p->n_params);
        p->full &= ~((uint64_t)1 << k);
    }
    if (!p->level[k]) {
        p->level[k] = wf_alloc_n(p->ctx, p->n_params + 1, sizeof(float));
        if (!p->level[k])
            return wf_err_nomem(p->ctx, (size_t)p->n_params * 4, "the parts of a step");
    }
    memcpy(p->level[k], p->carry, (size_t)p->n_params * sizeof *gradient);
    p->full |= (uint64_t)1 << k;
    return WEFT_OK;
}

/* What is left in the tree, from its small end, into `out`. */
static void sum_up(struct wf_parts *p, float *out)
{
    bool first = true;

    for (int k = 0; k < LEVELS; k++) {
        if (!(p->full >> k & 1))
            continue;
        if (first)
            memcpy(out, p->level[k], (size_t)p->n_params * sizeof *out);
        else
            add_to(out, p->level[k], p->n_params);
        first = false;
    }
    if (first)
        memset(out, 0, (size_t)p->n_params * sizeof *out);
    p->full = 0;
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
            v[k] = (float)(*sum++ / p->weight);
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* One part: rows [first, first + n) of the feeds. */
static weft_status one_part(struct wf_parts *p, const weft_tensor *feeds, int64_t first, int64_t n)
{
    weft_trainer *t = p->t;
    struct wf_bound *b = t->bound;
    int rows = b->n_feeds_fit - (b->rate.id != 0);
    double weight;
    weft_status st;

    for (int i = 0; i < rows; i++) {
        weft_tensor *f = &p->feeds[i];
        int64_t row;

        *f = feeds[i];
        row = f->dim[0] ? weft_tensor_bytes(f) / f->dim[0] : 0;
        f->dim[0] = n;
        f->data = (char *)f->data + first * row;
    }
    if (b->rate.id)
        p->feeds[rows] = (weft_tensor){.dtype = WEFT_F32, .data = &t->rate};
    if (p->n_parts == 0) {
        copy_state(p, true);
        memset(p->merged, 0, (size_t)p->n_state_items * sizeof *p->merged);
    } else {
        copy_state(p, false);
    }
    wf_step_clear(t);
    st = weft_fn_compute(b->fit, (int)p->n_parts, p->feeds, t->fetch);
    if (st)
        return st;
    weight = (double)*(const float *)t->fetch[b->weight_fetch].data;
    p->weight += weight;
    merge_state(p, weight);
    wf_step_add_up(t, n);
    p->n_parts++;
    return push(p, weft_fn_gradients(b->fit, &p->n_params));
}

/* The gradient of regularizers, which count once a step. */
static weft_status add_regularizers(struct wf_parts *p, float *sum)
{
    struct wf_bound *b = p->t->bound;
    int64_t n;
    float *g = weft_fn_gradients(b->fit, &n);
    weft_status st;

    if (!b->regularize) {
        memcpy(g, sum, (size_t)n * sizeof *g);
        return WEFT_OK;
    }
    memset(g, 0, (size_t)n * sizeof *g);
    st = weft_fn_compute(b->regularize, 0, b->rate.id ? &p->feeds[b->n_feeds_fit - 1] : NULL, NULL);
    if (!st)
        add_to(g, sum, n);
    return st;
}

weft_status wf_parts_apply(struct wf_parts *p)
{
    weft_trainer *t = p->t;
    float scale = p->weight > 0 ? (float)(1 / p->weight) : 0;
    weft_status st;

    if (p->n_parts == 0)
        return WEFT_OK;
    sum_up(p, p->carry);
    for (int64_t i = 0; i < p->n_params; i++)
        p->carry[i] *= scale;
    st = add_regularizers(p, p->carry);
    if (!st && p->weight > 0)
        finish_state(p);
    if (!st)
        st = weft_fn_finish(t->bound->fit);
    p->n_parts = 0;
    p->weight = 0;
    return st;
}

weft_status wf_parts_step(struct wf_parts *p, const weft_tensor *feeds, int64_t n, bool *updated)
{
    weft_trainer *t = p->t;
    int64_t shards = t->shards;
    weft_status st = WEFT_OK;

    for (int64_t l = 0; l < shards && !st; l++) {
        int64_t first = l * n / shards, end = (l + 1) * n / shards;

        if (end > first)
            st = one_part(p, feeds, first, end - first);
    }
    *updated = !st && ++t->pending >= t->accumulate;
    if (*updated) {
        t->pending = 0;
        st = wf_parts_apply(p);
    }
    return st;
}
