/* bag.c - reference kernels of embedding bags: ragged rows given by offsets [bags + 1]. */
#include <math.h>

#include "kernels/ref/ref.h"
#include "op/shape.h"

static int64_t get_int(const struct wf_tensor *t, int64_t i)
{
    return wf_get_int(t->data, t->type.dtype, i);
}

/* The offsets ascend from 0 to n. */
static weft_status check_offsets(const struct wf_call *c, const struct wf_tensor *offsets,
                                 int64_t n)
{
    int64_t count = wf_count(offsets), last = 0;

    for (int64_t i = 0; i < count; i++) {
        int64_t at = get_int(offsets, i);

        if (at < last || at > n || (i == 0 && at != 0) || (i == count - 1 && at != n))
            return wf_err(WEFT_EDATA,
                          "%s: offset %lld at position %lld: offsets ascend from 0 to %lld",
                          c->op->name, (long long)at, (long long)i, (long long)n);
        last = at;
    }
    return WEFT_OK;
}

/* A call's operands, whatever the op. */
struct bags {
    const struct wf_tensor *offsets, *weights; /* weights NULL: 1 */
    enum wf_combiner combiner;
};

static struct bags bags_of(const struct wf_call *c, int offsets, int weights)
{
    struct bags b = {&c->in[offsets], NULL, WF_BAG_SUM};

    if (c->n_in > weights && c->in[weights].type.dtype != WEFT_NONE)
        b.weights = &c->in[weights];
    wf_combiner_parse(wf_attr_str(c->op, c->attr, "combiner"), &b.combiner);
    return b;
}

static double weight(const struct bags *b, int64_t j)
{
    return b->weights ? ref_get(b->weights, j) : 1;
}

/* 1 over the bag's denominator, or 0. */
static double inverse(const struct bags *b, int64_t from, int64_t to)
{
    double sum = 0;

    if (b->combiner == WF_BAG_SUM)
        return 1;
    for (int64_t j = from; j < to; j++)
        sum += b->combiner == WF_BAG_MEAN ? weight(b, j) : weight(b, j) * weight(b, j);
    if (sum == 0)
        return 0;
    return b->combiner == WF_BAG_MEAN ? 1 / sum : 1 / sqrt(sum);
}

/* y[b] = inverse · Σ w[j]·x[row(j)], where row(j) is ids[j], or j without ids. */
static void reduce(const struct bags *b, const struct wf_tensor *x, const struct wf_tensor *ids,
                   const struct wf_tensor *y)
{
    int64_t width = x->type.dim[1];

    for (int64_t k = 0; k < y->type.dim[0]; k++) {
        int64_t from = get_int(b->offsets, k), to = get_int(b->offsets, k + 1);
        double scale = inverse(b, from, to);

        for (int64_t i = 0; i < width; i++) {
            double sum = 0;

            for (int64_t j = from; j < to; j++)
                sum += weight(b, j) * ref_get(x, (ids ? get_int(ids, j) : j) * width + i);
            ref_set(y, k * width + i, sum * scale);
        }
    }
}

weft_status wf_ref_embedding_bag(const struct wf_call *c)
{
    const struct wf_tensor *table = &c->in[0], *ids = &c->in[1];
    struct bags b = bags_of(c, 2, 3);
    int64_t n = wf_count(ids);
    weft_status st = check_offsets(c, b.offsets, n);

    for (int64_t j = 0; j < n && !st; j++)
        if (get_int(ids, j) < 0 || get_int(ids, j) >= table->type.dim[0])
            st =
                wf_err(WEFT_EDATA, "%s: id %lld at position %lld is not in 0..%lld", c->op->name,
                       (long long)get_int(ids, j), (long long)j, (long long)table->type.dim[0] - 1);
    if (!st)
        reduce(&b, table, ids, &c->out[0]);
    return st;
}

weft_status wf_ref_bag_reduce(const struct wf_call *c)
{
    struct bags b = bags_of(c, 1, 2);
    weft_status st = check_offsets(c, b.offsets, c->in[0].type.dim[0]);

    if (!st)
        reduce(&b, &c->in[0], NULL, &c->out[0]);
    return st;
}

weft_status wf_ref_bag_spread(const struct wf_call *c)
{
    const struct wf_tensor *y = &c->in[0], *x = &c->out[0];
    struct bags b = bags_of(c, 1, 3);
    int64_t width = y->type.dim[1];
    weft_status st = check_offsets(c, b.offsets, x->type.dim[0]);

    for (int64_t k = 0; k < y->type.dim[0] && !st; k++) {
        int64_t from = get_int(b.offsets, k), to = get_int(b.offsets, k + 1);
        double scale = inverse(&b, from, to);

        for (int64_t j = from; j < to; j++)
            for (int64_t i = 0; i < width; i++)
                ref_set(x, j * width + i, weight(&b, j) * scale * ref_get(y, k * width + i));
    }
    return st;
}

weft_status wf_ref_bag_inverse(const struct wf_call *c)
{
    struct bags b = bags_of(c, 0, 1);
    weft_status st = check_offsets(c, b.offsets, c->in[1].type.dim[0]);

    for (int64_t k = 0; k < c->out[0].type.dim[0] && !st; k++)
        ref_set(&c->out[0], k, inverse(&b, get_int(b.offsets, k), get_int(b.offsets, k + 1)));
    return st;
}

weft_status wf_ref_bag_segments(const struct wf_call *c)
{
    const struct wf_tensor *offsets = &c->in[0], *y = &c->out[0];
    int64_t bags = offsets->type.dim[0] - 1;
    weft_status st = check_offsets(c, offsets, y->type.dim[0]);

    for (int64_t k = 0; k < bags && !st; k++)
        for (int64_t j = get_int(offsets, k); j < get_int(offsets, k + 1); j++)
            wf_set_int(y->data, y->type.dtype, j, k);
    return st;
}

weft_status wf_ref_segment_offsets(const struct wf_call *c)
{
    const struct wf_tensor *segments = &c->in[0], *y = &c->out[0];
    int64_t n = wf_count(segments), bags = y->type.dim[0] - 1, last = 0;

    for (int64_t i = 0, k = 0; k <= bags; k++) {
        while (i < n && get_int(segments, i) < k)
            i++;
        wf_set_int(y->data, y->type.dtype, k, i);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t at = get_int(segments, i);

        if (at < last || at >= bags)
            return wf_err(WEFT_EDATA,
                          "%s: bag %lld at position %lld: bag numbers ascend within 0..%lld",
                          c->op->name, (long long)at, (long long)i, (long long)bags - 1);
        last = at;
    }
    return WEFT_OK;
}
