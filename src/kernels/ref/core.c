/* core.c - reference kernels of leaves, copies and matrix products. */
#include "kernels/ref/ref.h"

weft_status wf_ref_none(const struct wf_call *c)
{
    return wf_err(WEFT_EBUG, "%s is not computed", c->op->name);
}

weft_status wf_ref_copy(const struct wf_call *c)
{
    if (c->out[0].data != c->in[0].data && wf_type_bytes(&c->out[0].type))
        memcpy(c->out[0].data, c->in[0].data, (size_t)wf_type_bytes(&c->out[0].type));
    return WEFT_OK;
}

int64_t wf_ref_broadcast_index(const struct wf_type *t, const struct wf_type *to, int64_t i)
{
    int64_t at = 0, stride = 1;

    for (int a = to->rank - 1, b = t->rank - 1; b >= 0; a--, b--) {
        if (t->dim[b] != 1)
            at += i % to->dim[a] * stride;
        stride *= t->dim[b];
        i /= to->dim[a];
    }
    return at;
}

/* The batch part of a matmul operand's type. */
static struct wf_type batch_of(const struct wf_type *t)
{
    struct wf_type b = *t;

    b.rank -= 2;
    return b;
}

weft_status wf_ref_matmul(const struct wf_call *c)
{
    const struct wf_tensor *a = &c->in[0], *b = &c->in[1], *y = &c->out[0];
    bool ta = wf_call_int(c, "trans_a"), tb = wf_call_int(c, "trans_b");
    int64_t m = y->type.dim[y->type.rank - 2], n = y->type.dim[y->type.rank - 1];
    int64_t k = a->type.dim[a->type.rank - (ta ? 2 : 1)];
    struct wf_type ba = batch_of(&a->type), bb = batch_of(&b->type), by = batch_of(&y->type);

    for (int64_t s = 0; s < wf_type_count(&by); s++) {
        int64_t a0 = wf_ref_broadcast_index(&ba, &by, s) * m * k,
                b0 = wf_ref_broadcast_index(&bb, &by, s) * k * n;

        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;

                for (int64_t p = 0; p < k; p++)
                    sum += ref_get(a, a0 + (ta ? p * m + i : i * k + p)) *
                           ref_get(b, b0 + (tb ? j * k + p : p * n + j));
                ref_set(y, (s * m + i) * n + j, sum);
            }
    }
    return WEFT_OK;
}
