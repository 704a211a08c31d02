/* bind_bag.c - embedding bags: ragged rows of f32, one bag after another within a tile. */
#include <math.h>

#include "kernels/cpu/ew.h"
#include "kernels/cpu/index.h"
#include "op/shape.h"

#define KERNEL(op, impl, plan_fn, run_fn)    \
    weft_status plan_fn(struct wf_kplan *p); \
    wf_kernel_fn run_fn;
#include "kernels/kernels_index.def"
#undef KERNEL

/* Bags of a tile, and rows asked for ahead of their use. */
enum { BAGS = 32, AHEAD = 8 };

struct bag_state {
    const struct wf_ew_fns *f;
    enum wf_combiner combiner;
    int ids, offsets, weights; /* operands; ids -1: element j is row j */
    bool wide_ids, wide_offsets;
    int64_t n, n_bags, n_rows, width;
};

struct bag_job {
    const struct bag_state *s;
    const void *ids, *offsets;
    const float *x, *weights;
    float *y;
    _Atomic int64_t bad;
};

/* x is the operand with rows: a table, all the rows, or (spread) a row for each bag. */
static weft_status plan_bag(struct wf_kplan *p, int ids, int offsets, int weights, int64_t n)
{
    struct bag_state *s;

    if (p->in[0].dtype != WEFT_F32 || (ids >= 0 && !wf_fast_ids(p->in[ids].dtype)))
        return WEFT_ENOSUP;
    s = wf_arena_alloc(p->arena, sizeof *s);
    if (!s)
        return wf_err_nomem(p->ctx, sizeof *s, p->op->name);
    *s = (struct bag_state){
        .f = wf_ew_fns_of(p->ctx->simd),
        .ids = ids,
        .offsets = offsets,
        .weights = weights < p->n_in && p->in[weights].dtype != WEFT_NONE ? weights : -1,
        .wide_ids = ids >= 0 && p->in[ids].dtype == WEFT_I64,
        .wide_offsets = p->in[offsets].dtype == WEFT_I64,
        .n = n,
        .n_bags = p->in[offsets].dim[0] - 1,
        .n_rows = p->in[0].dim[0],
        .width = p->in[0].dim[1],
    };
    wf_combiner_parse(wf_attr_str(p->op, p->attr, "combiner"), &s->combiner);
    p->state = s;
    return WEFT_OK;
}

weft_status wf_plan_embedding_bag(struct wf_kplan *p)
{
    return plan_bag(p, 1, 2, 3, p->in[1].dim[0]);
}

weft_status wf_plan_bag_reduce(struct wf_kplan *p)
{
    return plan_bag(p, -1, 1, 2, p->in[0].dim[0]);
}

weft_status wf_plan_bag_spread(struct wf_kplan *p)
{
    return plan_bag(p, -1, 1, 3, p->out[0].dim[0]);
}

static weft_status check_offsets(const struct wf_call *c, const struct bag_job *j)
{
    const struct bag_state *s = j->s;
    int64_t last = 0;

    for (int64_t i = 0; i <= s->n_bags; i++) {
        int64_t at = wf_id_at(j->offsets, s->wide_offsets, i);

        if (at < last || at > s->n || (i == 0 && at != 0) || (i == s->n_bags && at != s->n))
            return wf_err(WEFT_EDATA,
                          "%s: offset %lld at position %lld: offsets ascend from 0 to %lld",
                          c->op->name, (long long)at, (long long)i, (long long)s->n);
        last = at;
    }
    return WEFT_OK;
}

/* 1 over the bag's denominator, or 0. */
static float inverse(const struct bag_job *j, int64_t from, int64_t to)
{
    enum wf_combiner combiner = j->s->combiner;
    double sum = 0;

    if (combiner == WF_BAG_SUM)
        return 1;
    if (!j->weights)
        sum = (double)(to - from);
    for (int64_t i = from; j->weights && i < to; i++)
        sum += combiner == WF_BAG_MEAN ? (double)j->weights[i]
                                       : (double)j->weights[i] * (double)j->weights[i];
    if (sum == 0)
        return 0;
    return (float)(combiner == WF_BAG_MEAN ? 1 / sum : 1 / sqrt(sum));
}

/* The row of element i, or NULL when its id is bad. */
static const float *row_of(struct bag_job *j, int64_t i)
{
    const struct bag_state *s = j->s;
    int64_t id = s->ids < 0 ? i : wf_id_at(j->ids, s->wide_ids, i);

    if (id >= 0 && id < s->n_rows)
        return j->x + id * s->width;
    wf_lower(&j->bad, i);
    return NULL;
}

static void ask_ahead(const struct bag_job *j, int64_t i)
{
    int64_t id = j->s->ids >= 0 && i < j->s->n ? wf_id_at(j->ids, j->s->wide_ids, i) : -1;

    if (id >= 0 && id < j->s->n_rows)
        __builtin_prefetch(j->x + id * j->s->width);
}

static void reduce_bag(struct bag_job *j, int64_t bag)
{
    const struct bag_state *s = j->s;
    int64_t from = wf_id_at(j->offsets, s->wide_offsets, bag);
    int64_t to = wf_id_at(j->offsets, s->wide_offsets, bag + 1);
    float *y = j->y + bag * s->width, scale = inverse(j, from, to);

    memset(y, 0, (size_t)s->width * sizeof *y);
    for (int64_t i = from; i < to; i++) {
        const float *row = row_of(j, i);

        ask_ahead(j, i + AHEAD);
        if (row && j->weights)
            s->f->fn[WF_EW_axpy](y, row, y, NULL, s->width, &j->weights[i]);
        else if (row)
            s->f->fn[WF_EW_add](y, y, row, NULL, s->width, NULL);
    }
    if (s->combiner != WF_BAG_SUM)
        s->f->fn[WF_EW_scale](y, y, NULL, NULL, s->width, &scale);
}

static void reduce_tile(void *arg, int64_t tile, int thread)
{
    struct bag_job *j = arg;
    int64_t end = wf_min_i64((tile + 1) * BAGS, j->s->n_bags);

    (void)thread;
    for (int64_t bag = tile * BAGS; bag < end; bag++)
        reduce_bag(j, bag);
}

static struct bag_job job_of(const struct wf_call *c)
{
    const struct bag_state *s = c->state;

    return (struct bag_job){
        .s = s,
        .ids = s->ids < 0 ? NULL : c->in[s->ids].data,
        .offsets = c->in[s->offsets].data,
        .x = c->in[0].data,
        .weights = s->weights < 0 ? NULL : c->in[s->weights].data,
        .y = c->out[0].data,
        .bad = INT64_MAX,
    };
}

weft_status wf_run_bag(const struct wf_call *c)
{
    const struct bag_state *s = c->state;
    struct bag_job j = job_of(c);
    weft_status st = check_offsets(c, &j);

    if (st)
        return st;
    wf_pool_for(c->pool, (s->n_bags + BAGS - 1) / BAGS, reduce_tile, &j);
    if (j.bad == INT64_MAX)
        return WEFT_OK;
    return wf_err(WEFT_EDATA, "%s: id %lld at position %lld is not in 0..%lld", c->op->name,
                  (long long)wf_id_at(j.ids, s->wide_ids, j.bad), (long long)j.bad,
                  (long long)s->n_rows - 1);
}

/* y[i] = w[i]·inverse·x[bag] for the elements of each bag. */
static void spread_tile(void *arg, int64_t tile, int thread)
{
    struct bag_job *j = arg;
    const struct bag_state *s = j->s;
    int64_t end = wf_min_i64((tile + 1) * BAGS, s->n_bags);

    (void)thread;
    for (int64_t bag = tile * BAGS; bag < end; bag++) {
        int64_t from = wf_id_at(j->offsets, s->wide_offsets, bag);
        int64_t to = wf_id_at(j->offsets, s->wide_offsets, bag + 1);
        float scale = inverse(j, from, to);

        for (int64_t i = from; i < to; i++) {
            float w = j->weights ? j->weights[i] * scale : scale;

            s->f->fn[WF_EW_scale](j->y + i * s->width, j->x + bag * s->width, NULL, NULL, s->width,
                                  &w);
        }
    }
}

weft_status wf_run_bag_spread(const struct wf_call *c)
{
    const struct bag_state *s = c->state;
    struct bag_job j = job_of(c);
    weft_status st = check_offsets(c, &j);

    if (!st)
        wf_pool_for(c->pool, (s->n_bags + BAGS - 1) / BAGS, spread_tile, &j);
    return st;
}
