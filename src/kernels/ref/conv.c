/* conv.c - reference kernels of convolution and its gradients.
 *
 * The three sums run over the same products x[n,i,ci] w[k,ci,co] dy[n,o,co] with i = o*stride - lo
 * + k*dilation: each kernel sums over the indices that its result does not have. */
#include "kernels/ref/ref.h"
#include "kernels/ref/window.h"

static void forward(const struct wf_conv_geom *g, const struct wf_tensor *x,
                    const struct wf_tensor *w, const struct wf_tensor *y)
{
    int64_t n_out = ref_volume(g->w.out), n_in = ref_volume(g->w.in), n_k = ref_volume(g->w.k);
    int64_t ci_g = g->c_in / g->groups, co_g = g->c_out / g->groups;

    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t o = 0; o < n_out; o++)
            for (int64_t co = 0; co < g->c_out; co++) {
                double sum = 0;

                for (int64_t k = 0; k < n_k; k++) {
                    int64_t i = ref_meets(&g->w, o, k);

                    for (int64_t ci = 0; i >= 0 && ci < ci_g; ci++)
                        sum += ref_get(x, (n * n_in + i) * g->c_in + co / co_g * ci_g + ci) *
                               ref_get(w, (k * ci_g + ci) * g->c_out + co);
                }
                ref_set(y, (n * n_out + o) * g->c_out + co, sum);
            }
}

static void backward_input(const struct wf_conv_geom *g, const struct wf_tensor *dy,
                           const struct wf_tensor *w, const struct wf_tensor *dx)
{
    int64_t n_out = ref_volume(g->w.out), n_in = ref_volume(g->w.in), n_k = ref_volume(g->w.k);
    int64_t ci_g = g->c_in / g->groups, co_g = g->c_out / g->groups;

    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t i = 0; i < n_in; i++)
            for (int64_t ci = 0; ci < g->c_in; ci++) {
                int64_t group = ci / ci_g;
                double sum = 0;

                for (int64_t k = 0; k < n_k; k++) {
                    int64_t o = ref_met_by(&g->w, i, k);

                    for (int64_t co = group * co_g; o >= 0 && co < (group + 1) * co_g; co++)
                        sum += ref_get(dy, (n * n_out + o) * g->c_out + co) *
                               ref_get(w, (k * ci_g + ci % ci_g) * g->c_out + co);
                }
                ref_set(dx, (n * n_in + i) * g->c_in + ci, sum);
            }
}

static void backward_filter(const struct wf_conv_geom *g, const struct wf_tensor *x,
                            const struct wf_tensor *dy, const struct wf_tensor *dw)
{
    int64_t n_out = ref_volume(g->w.out), n_in = ref_volume(g->w.in), n_k = ref_volume(g->w.k);
    int64_t ci_g = g->c_in / g->groups, co_g = g->c_out / g->groups;

    for (int64_t k = 0; k < n_k; k++)
        for (int64_t ci = 0; ci < ci_g; ci++)
            for (int64_t co = 0; co < g->c_out; co++) {
                double sum = 0;

                for (int64_t n = 0; n < g->batch; n++)
                    for (int64_t o = 0; o < n_out; o++) {
                        int64_t i = ref_meets(&g->w, o, k);

                        if (i >= 0)
                            sum += ref_get(x, (n * n_in + i) * g->c_in + co / co_g * ci_g + ci) *
                                   ref_get(dy, (n * n_out + o) * g->c_out + co);
                    }
                ref_set(dw, (k * ci_g + ci) * g->c_out + co, sum);
            }
}

static struct wf_conv_geom geom(const struct wf_call *c, const struct wf_tensor *x,
                                const struct wf_tensor *w, const struct wf_tensor *y)
{
    struct wf_conv_geom g;

    wf_conv_geom_of(c->op, c->attr, &x->type, &w->type, &y->type, &g);
    return g;
}

weft_status wf_ref_conv(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    struct wf_conv_geom g = geom(c, x, w, y);

    forward(&g, x, w, y);
    return WEFT_OK;
}

weft_status wf_ref_conv_grad_input(const struct wf_call *c)
{
    const struct wf_tensor *dy = &c->in[0], *w = &c->in[1], *dx = &c->out[0];
    struct wf_conv_geom g = geom(c, dx, w, dy);

    backward_input(&g, dy, w, dx);
    return WEFT_OK;
}

weft_status wf_ref_conv_grad_filter(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *dy = &c->in[1], *dw = &c->out[0];
    struct wf_conv_geom g = geom(c, x, dw, dy);

    backward_filter(&g, x, dy, dw);
    return WEFT_OK;
}

weft_status wf_ref_conv_transpose(const struct wf_call *c)
{
    const struct wf_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    struct wf_conv_geom g = geom(c, y, w, x);

    backward_input(&g, x, w, y);
    return WEFT_OK;
}
