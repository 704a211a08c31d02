/* scale.c - loss scaling, for models that compute in f16: the loss is multiplied before gradients
 * are computed, so that small ones stay above f16's smallest number, and gradients are divided by
 * the same factor in f32.
 *
 * The scale is a power of 2, so dividing is exact. It adapts like Keras' LossScaleOptimizer: a step
 * with a gradient that is not finite is skipped and halves it, a number of good steps in a row
 * doubles it. */
#include <math.h>

#include "train/train.h"

#define START 0x1p15
#define GROWTH 2000

weft_status wf_scale_init(weft_trainer *t, const weft_compile_opts *o)
{
    double start = o->loss_scale == 0 ? START : o->loss_scale;
    int exponent;

    t->scale.off = o->loss_scale == WEFT_ZERO;
    if (t->scale.off)
        return WEFT_OK;
    if (!(start >= WF_SCALE_LEAST && start <= WF_SCALE_MOST) || frexp(start, &exponent) != 0.5)
        return wf_err(WEFT_EINVAL, "compile: loss_scale %g is not a power of 2 in 2^-24..2^40",
                      start);
    if (o->loss_scale_steps < 0)
        return wf_err(WEFT_EINVAL, "compile: loss_scale_steps is %lld; it must be at least 1",
                      (long long)o->loss_scale_steps);
    t->scale.growth = o->loss_scale_steps ? o->loss_scale_steps : GROWTH;
    t->scale.state[WF_SCALE] = start;
    return WEFT_OK;
}

/* Whether anything but a cast produces an f16. */
bool wf_scale_needed(const weft_trainer *t, const weft_graph *g)
{
    for (int64_t k = 0; k < g->n_nodes && !t->scale.off; k++) {
        const struct wf_node *n = &g->nodes[k];

        if (n->op->id == WF_OP_placeholder || n->op->id == WF_OP_cast)
            continue;
        for (int i = 0; i < n->n_out; i++)
            if (g->values[n->first_out + i].type.dtype == WEFT_F16)
                return true;
    }
    return false;
}

float wf_scale_now(const weft_trainer *t)
{
    return (float)t->scale.state[WF_SCALE];
}

void wf_scale_good(weft_trainer *t)
{
    wf_scale_next(t->scale.state, (double)t->scale.growth, true);
}

weft_status wf_scale_skip(weft_trainer *t)
{
    double *s = t->scale.state;

    wf_scale_next(s, (double)t->scale.growth, false);
    if (s[WF_SCALE] >= WF_SCALE_LEAST)
        return WEFT_OK;
    s[WF_SCALE] = WF_SCALE_LEAST;
    return wf_err(WEFT_ENUMERIC,
                  "step %lld: gradients are not finite at any loss scale, down to 2^-24 (%.0f "
                  "steps were skipped): the model produces a NaN or an infinity; precision bf16 or "
                  "f32 has the range that f16 lacks, and there trap_numerics names the op",
                  (long long)weft_trainer_step(t), s[WF_SCALE_SKIPPED]);
}

bool wf_scale_take(float *to, const float *from, int64_t n, float factor)
{
    uint32_t most = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &from[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
        to[i] = from[i] * factor;
    }
    return most < 0x7f800000;
}

double weft_trainer_loss_scale(const weft_trainer *t)
{
    return t->bound && t->bound->scaled ? t->scale.state[WF_SCALE] : 0;
}

int64_t weft_trainer_skipped(const weft_trainer *t)
{
    return (int64_t)t->scale.state[WF_SCALE_SKIPPED];
}
