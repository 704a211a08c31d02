/* random.c - reference kernels of random ops: numbers are drawn in f32 (base/random.h) and converted. */
#include "base/random.h"
#include "kernels/ref/ref.h"

static weft_status fill(const struct wf_call *c, enum wf_random_kind kind, const float *params)
{
    int64_t n = wf_count(&c->out[0]);
    float x[WF_RANDOM_GROUP];

    for (int64_t at = 0; at < n; at += WF_RANDOM_GROUP) {
        int64_t m = wf_min_i64(WF_RANDOM_GROUP, n - at);

        wf_random_fill(kind, x, at, m, &c->rng, params);
        for (int64_t i = 0; i < m; i++)
            ref_set(&c->out[0], at + i, x[i]);
    }
    return WEFT_OK;
}

weft_status wf_ref_random_uniform(const struct wf_call *c)
{
    return fill(c, WF_RANDOM_UNIFORM,
                (float[]){(float)wf_call_float(c, "lo"), (float)wf_call_float(c, "hi")});
}

weft_status wf_ref_random_normal(const struct wf_call *c)
{
    return fill(c, WF_RANDOM_NORMAL,
                (float[]){(float)wf_call_float(c, "mean"), (float)wf_call_float(c, "stddev")});
}

weft_status wf_ref_random_truncated_normal(const struct wf_call *c)
{
    return fill(c, WF_RANDOM_TRUNCATED_NORMAL,
                (float[]){(float)wf_call_float(c, "mean"), (float)wf_call_float(c, "stddev")});
}

weft_status wf_ref_random_bernoulli(const struct wf_call *c)
{
    return fill(c, WF_RANDOM_BERNOULLI, (float[]){(float)wf_call_float(c, "p")});
}

/* ---- dropout --------------------------------------------------------------------------------- */

weft_status wf_dropout_rate(const struct wf_call *c, int operand, float *out)
{
    bool fed = c->n_in > operand && c->in[operand].data;
    float rate = (float)(fed ? ref_get(&c->in[operand], 0) : wf_call_float(c, "rate"));

    if (!(rate >= 0 && rate <= 1))
        return wf_err(WEFT_EDATA, "%s: the rate %g is not in 0..1", c->op->name, (double)rate);
    *out = rate;
    return WEFT_OK;
}

/* In f32 as the fast kernels, so that they give the same bits there. */
static double keep(const struct wf_tensor *x, int64_t i, bool kept, float rate)
{
    if (!kept || rate == 1)
        return 0;
    return x->type.dtype == WEFT_F64 ? ref_get(x, i) / (1 - (double)rate)
                                     : (float)ref_get(x, i) / (1 - rate);
}

static void apply(const struct wf_call *c, const struct wf_tensor *kept, float rate)
{
    int64_t n = wf_count(&c->in[0]);

    for (int64_t i = 0; i < n; i++) {
        int64_t k = wf_ref_broadcast_index(&kept->type, &c->in[0].type, i);

        ref_set(&c->out[0], i, keep(&c->in[0], i, ref_get(kept, k) != 0, rate));
    }
}

weft_status wf_ref_dropout(const struct wf_call *c)
{
    const struct wf_tensor *kept = &c->out[1];
    int64_t n = wf_count(kept);
    float rate = 0, x[WF_RANDOM_GROUP];
    weft_status st = wf_dropout_rate(c, 1, &rate);

    if (st)
        return st;
    for (int64_t at = 0; at < n; at += WF_RANDOM_GROUP) {
        int64_t m = wf_min_i64(WF_RANDOM_GROUP, n - at);

        wf_random_fill(WF_RANDOM_BERNOULLI, x, at, m, &c->rng, &rate);
        for (int64_t i = 0; i < m; i++)
            ref_set(kept, at + i, x[i] == 0);
    }
    apply(c, kept, rate);
    return WEFT_OK;
}

weft_status wf_ref_dropout_grad(const struct wf_call *c)
{
    float rate = 0;
    weft_status st = wf_dropout_rate(c, 2, &rate);

    if (!st)
        apply(c, &c->in[1], rate);
    return st;
}
