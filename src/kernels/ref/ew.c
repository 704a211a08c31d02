/* ew.c - reference kernels of element-wise ops. */
#include "kernels/ref/ref.h"

typedef double binary_fn(double a, double b);

static weft_status binary(const struct wf_call *c, binary_fn *f)
{
    const struct wf_type *to = &c->out[0].type;
    int64_t n = wf_type_count(to);

    for (int64_t i = 0; i < n; i++)
        ref_set(&c->out[0], i,
                f(ref_get(&c->in[0], ref_broadcast_index(&c->in[0].type, to, i)),
                  ref_get(&c->in[1], ref_broadcast_index(&c->in[1].type, to, i))));
    return WEFT_OK;
}

/* One line per op: the formula is the definition. */
#define BINARY(name, expr)                                                                               \
    static double f_##name(double a, double b)                                                           \
    {                                                                                                    \
        return expr;                                                                                     \
    }                                                                                                    \
    weft_status ref_##name(const struct wf_call *c)                                                      \
    {                                                                                                    \
        return binary(c, f_##name);                                                                      \
    }

BINARY(add, a + b)
BINARY(mul, a *b)
BINARY(relu_grad, b > 0 ? a : 0)

weft_status ref_relu(const struct wf_call *c)
{
    int64_t n = wf_count(&c->in[0]);

    for (int64_t i = 0; i < n; i++) {
        double x = ref_get(&c->in[0], i);

        ref_set(&c->out[0], i, x < 0 ? 0 : x);
    }
    return WEFT_OK;
}
