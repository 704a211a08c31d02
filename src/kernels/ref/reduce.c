/* reduce.c - reference kernels of reductions and of ops that follow another value's shape. */
#include "kernels/ref/ref.h"

/* Sum x into y, where y has 1 at the summed axes: y[index of i broadcast back] += x[i]. */
static void sum_into(const struct wf_call *c, const struct wf_type *kept)
{
    int64_t n = wf_count(&c->in[0]), m = wf_type_count(kept);

    for (int64_t i = 0; i < m; i++)
        ref_set(&c->out[0], i, 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = ref_broadcast_index(kept, &c->in[0].type, i);

        ref_set(&c->out[0], to, ref_get(&c->out[0], to) + ref_get(&c->in[0], i));
    }
}

weft_status ref_sum(const struct wf_call *c)
{
    const struct wf_attr *axes = wf_call_attr(c, "axes");
    struct wf_type kept = c->in[0].type;

    for (int i = 0; i < kept.rank; i++)
        if (axes->n == 0)
            kept.dim[i] = 1;
    for (int i = 0; i < axes->n; i++)
        kept.dim[axes->ints[i] < 0 ? axes->ints[i] + kept.rank : axes->ints[i]] = 1;
    sum_into(c, &kept);
    return WEFT_OK;
}

weft_status ref_reduce_to_like(const struct wf_call *c)
{
    sum_into(c, &c->out[0].type);
    return WEFT_OK;
}

weft_status ref_broadcast_like(const struct wf_call *c)
{
    int64_t n = wf_count(&c->out[0]);

    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i, ref_get(&c->in[0], ref_broadcast_index(&c->in[0].type, &c->out[0].type, i)));
    return WEFT_OK;
}
