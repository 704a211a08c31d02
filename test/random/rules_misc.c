/* rules_misc.c - draws random numbers, print and check_numerics, plain updates, and derivatives in
 * the middle of a graph. */
#include <math.h>

#include "random/rules.h"
#include "weft/optim.h"

bool draw_random(struct gen *g, const char *op)
{
    weft_val like = draw_one_in(&g->d, 2) ? gen_any(g, FLOATS, 0, 3) : WEFT_NIL;
    int64_t dim[2] = {gen_size(g), gen_size(g)};
    char a[160], shape[192] = "", numbers[96];

    if (!like.id)
        snprintf(shape, sizeof shape, "shape=%s", rule_list((int)draw_int(&g->d, 0, 2), dim, a));
    if (!strcmp(op, "random_uniform"))
        snprintf(numbers, sizeof numbers, "lo=%g hi=%g", draw_one_in(&g->d, 2) ? -1.0 : 0.0,
                 draw_one_in(&g->d, 2) ? 1.5 : 1.0);
    else if (!strcmp(op, "random_bernoulli"))
        snprintf(numbers, sizeof numbers, "p=%g", draw_one_in(&g->d, 2) ? 0.25 : 0.5);
    else
        snprintf(numbers, sizeof numbers, "mean=%g stddev=%g", draw_one_in(&g->d, 2) ? 1.0 : 0.0,
                 draw_one_in(&g->d, 2) ? 0.5 : 1.0);
    return gen_op(g, op, like.id ? 1 : 0, &like, "%s %s dtype=%s", shape, numbers,
                  weft_dtype_name(gen_float(g)))
        .id;
}

bool draw_dropout(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 0, 4), WEFT_NIL};
    char a[160];

    if (!in[0].id)
        return false;
    if (draw_one_in(&g->d, 4))
        in[1] = rule_scalar(g, WEFT_F32, 0.25);
    return gen_op(g, op, in[1].id ? 2 : 1, in, "rate=%g shared_axes=%s",
                  draw_one_in(&g->d, 2) ? 0.25 : 0.5,
                  draw_one_in(&g->d, 2) ? "[]" : rule_axes(g, gen_type(g, in[0])->rank, a))
        .id;
}

bool draw_look(struct gen *g, const char *op) /* print, check_numerics */
{
    weft_val x = gen_any(g, strcmp(op, "print") ? FLOATS : ANYTHING, 0, 4);

    if (!x.id || !isfinite(gen_max_abs(g, x)))
        return false;
    if (!strcmp(op, "print"))
        return gen_op(g, op, 1, &x, "message=%s every=%d limit=%d",
                      draw_one_in(&g->d, 2) ? "here" : "there", (int)draw_int(&g->d, 1, 2),
                      (int)draw_int(&g->d, 1, 12))
            .id;
    return gen_op(g, op, 1, &x, "message=%s", draw_one_in(&g->d, 2) ? "here" : "there").id;
}

static bool is_updated(const struct gen *g, weft_val var)
{
    for (int i = 0; i < g->c->n_updates; i++) {
        const struct wf_node *n = wf_val_node(g->g, g->c->update[i]);

        if (plain_root(g->g, n->in[0]) == var.id)
            return true;
    }
    return false;
}

/* A new variable that is assigned. Other nodes read its old value, the new one, or both. */
bool draw_assign(struct gen *g, const char *op)
{
    struct graph_case *c = g->c;
    weft_val in[2] = {WEFT_NIL, gen_any(g, strcmp(op, "assign") ? FLOATS : ANYTHING, 0, 4)}, u;
    struct wf_type t;
    int n_pool, readers;

    if (!in[1].id || c->n_updates == MAX_UPDATES || g->smooth)
        return false;
    t = *gen_type(g, in[1]);
    if (g->batch[0] && t.rank && t.dim[0] == g->batch[0])
        return false;
    in[0] = gen_variable(g, t.dtype, t.rank, t.dim, true);
    if (!in[0].id || is_updated(g, in[0]) || !gen_settle(g))
        return false;
    n_pool = g->n_pool;
    if (!strcmp(op, "assign_ema"))
        u = gen_op(g, op, 2, in, "momentum=%g", draw_one_in(&g->d, 2) ? 0.9 : 0.5);
    else
        u = gen_op(g, op, 2, in, "%s", "");
    if (!u.id)
        return false;
    c->update[c->n_updates++] = u;
    readers = (int)draw_int(&g->d, 0, 2);
    if (readers == 1)
        g->n_pool = n_pool;
    if (readers > 0)
        gen_take(g, in[0]);
    return true;
}

/* d out / d value with a drawn cotangent, as another value of the pool: this leads to gradients of
 * gradients. */
bool draw_derivative(struct gen *g, const char *op)
{
    weft_val out = gen_any(g, FLOATS, 0, 6), with, dout, d = WEFT_NIL;

    (void)op;
    if (!out.id || (wf_val_node(g->g, out)->op->flags & WF_LEAF))
        return false;
    with = wf_val_node(g->g, out)->n_in && draw_one_in(&g->d, 2)
               ? (weft_val){wf_val_node(g->g, out)->in[0]}
               : gen_any(g, FLOATS, 0, 6);
    dout = gen_like(g, out);
    if (!with.id || !dout.id || !wf_is_float(gen_type(g, with)->dtype) ||
        g->g->values[with.id].node >= g->g->values[out.id].node)
        return false;
    if (weft_vjp(g->g, 1, &out, &dout, 1, &with, &d))
        d = WEFT_NIL;
    return gen_take(g, d);
}
