/* plain.c - the plain definition of a graph: one loop over its nodes, each reference kernel with
 * its own memory.
 *
 * Readers of a variable see its value at the start of the run, whatever the order; an update works
 * on a copy. With `wide` every float is an f64, and `noise` moves the operands and results of ops
 * that round by a random part of the rounding error of the graph's type. */
#include <float.h>
#include <math.h>

#include "random/random.h"

int32_t plain_root(const weft_graph *g, int32_t v)
{
    const struct wf_node *n = &g->nodes[g->values[v].node];

    while ((n->op->flags & WF_VIEW) && n->in[0]) {
        v = n->in[0];
        n = &g->nodes[g->values[v].node];
    }
    return v;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void grow(struct plain *p)
{
    int64_t n = p->g->n_values, m = p->g->n_vars;

    if (n > p->n_values) {
        int64_t room = 2 * n;
        struct wf_tensor *val = wf_arena_alloc(&p->arena, sizeof *val * (size_t)room);

        if (p->n_values)
            memcpy(val, p->val, sizeof *val * (size_t)p->n_values);
        p->val = val;
        p->n_values = room;
    }
    if (m > p->n_vars) {
        int64_t room = 2 * m;
        struct wf_tensor *var = wf_arena_alloc(&p->arena, sizeof *var * (size_t)room);
        float *(*slot)[WF_OPTIM_MAX_SLOTS] = wf_arena_alloc(&p->arena, sizeof *slot * (size_t)room);

        if (p->n_vars) {
            memcpy(var, p->var, sizeof *var * (size_t)p->n_vars);
            memcpy(slot, p->slot, sizeof *slot * (size_t)p->n_vars);
        }
        p->var = var;
        p->slot = slot;
        p->n_vars = room;
    }
}

void plain_init(struct plain *p, weft_ctx *ctx, const weft_graph *g)
{
    *p = (struct plain){.ctx = ctx, .g = g};
    wf_arena_init(&p->arena, ctx);
    grow(p);
}

void plain_free(struct plain *p)
{
    if (p->ctx)
        wf_arena_free(&p->arena);
    *p = (struct plain){.ctx = NULL};
}

static weft_dtype type_here(const struct plain *p, weft_dtype t)
{
    return p->wide && wf_is_float(t) ? WEFT_F64 : t;
}

void *plain_room(struct plain *p, const struct wf_type *t)
{
    char *m = wf_arena_alloc(&p->arena, (size_t)wf_type_bytes(t) + 128);

    p->bytes += wf_type_bytes(t) + 128;
    return m + (64 - (uintptr_t)m % 64) % 64;
}

/* A copy in this run's type. */
static struct wf_tensor adopt(struct plain *p, const struct wf_type *type, const void *data)
{
    struct wf_tensor t = {*type, NULL};
    int64_t n = wf_type_count(type);

    t.type.dtype = type_here(p, type->dtype);
    t.data = plain_room(p, &t.type);
    if (t.type.dtype == type->dtype) {
        if (n)
            memcpy(t.data, data, (size_t)wf_type_bytes(type));
        return t;
    }
    for (int64_t i = 0; i < n; i++)
        ((double *)t.data)[i] = wf_get(data, type->dtype, i);
    return t;
}

weft_status plain_set_var(struct plain *p, int64_t var, const struct wf_tensor *value)
{
    grow(p);
    p->var[var] = adopt(p, &value->type, value->data);
    return WEFT_OK;
}

/* ---- noise ----------------------------------------------------------------------------------- */

static const struct {
    double unit, least, most; /* half an ulp of 1, the smallest step, the largest number */
} float_of[WEFT_N_DTYPES] = {
    [WEFT_F32] = {0x1p-24, 0x1p-149, FLT_MAX},
    [WEFT_F64] = {0x1p-53, 0, DBL_MAX},
    [WEFT_F16] = {0x1p-11, 0x1p-24, 65504},
    [WEFT_BF16] = {0x1p-8, 0x1p-133, 0x1.fep127},
};

/* Ops whose result does not depend on rounding: moves, choices, comparisons. */
static const char *const exact_ops[] = {
    "neg",          "abs",
    "sign",         "floor",
    "ceil",         "round",
    "clip",         "relu",
    "min",          "max",
    "eq",           "ne",
    "lt",           "le",
    "gt",           "ge",
    "where",        "transpose",
    "concat",       "stack",
    "split",        "unstack",
    "slice",        "strided_slice",
    "pad",          "tile",
    "reverse",      "gather",
    "gather_nd",    "take_along",
    "one_hot",      "top_k",
    "sort",         "embedding",
    "reduce_max",   "reduce_min",
    "argmax",       "argmin",
    "zeros_like",   "ones_like",
    "full",         "broadcast_like",
    "broadcast_to", "assign",
    "max_pool",     "max_pool_pick",
    "concat_part",  "print",
    "relu_grad",    "clip_grad",
    "relu6",        "relu6_grad",
    "is_finite",    "check_numerics",
    "slice_grad",   "strided_slice_grad",
    "constant",     "variable",
    "placeholder",  "size_of",
};

/* Sums and products of integers do not round. */
static const char *const whole_ops[] = {
    "add",
    "sub",
    "mul",
    "matmul",
    "sum",
    "add_n",
    "square",
    "cumsum",
    "segment_sum",
    "scatter_add",
    "scatter_nd_add",
    "gather_grad",
    "tile_grad",
    "take_along_grad",
    "embedding_grad",
    "reduce_to_like",
    "max_pool_grad",
    "pad_grad",
    "cast",
    "prod",
    "norm_l1",
    "assign_add",
};

/* Ops that subtract large numbers internally: their error is relative to those, not to the
 * result. */
static const struct {
    const char *op;
    double size;   /* of the numbers subtracted */
    bool operands; /* times the largest element of each operand */
} absolute_ops[] = {
    {"sparse_softmax_xent", 1, false},
    {"softmax_xent", 1, true},
    {"sigmoid_xent", 1, false},
    {"log_softmax", 1, false},
    {"logsumexp", 1, false},
    {"masked_softmax", 1, false},
    {"attention", 1, false},
    {"attention_packed", 1, false},
    {"softplus", 1, false},
    {"lstm", 1, false},
    {"gru", 1, false},
    {"simple_rnn", 1, true},
    {"softmax_grad", 1, true},
    {"log_softmax_grad", 1, true},
    {"attention_grad", 1, true},
    {"attention_packed_grad", 1, true},
    {"lstm_grad", 1, true},
    {"gelu", 1, true},
    {"gelu_grad", 1, true},
    {"gelu_tanh", 1, true},
    {"gelu_tanh_grad", 1, true},
    {"gru_grad", 1, true},
    {"simple_rnn_grad", 1, true},
};

/* Norms subtract sums over rows or columns, so an element's error is that of the largest element it
 * is summed with. Kernels may multiply before they subtract: the first result's error is that of an
 * operand times gamma times the reciprocal deviation. */
static const struct {
    const char *op;
    int n_summed; /* of its first operands */
    enum { ROWS, COLUMNS, WHOLE_TENSOR } along;
    int gamma, beta;  /* operands; 0: none */
    int deviation;    /* operand, or below 0: result -deviation */
    bool is_variance; /* variance instead of reciprocal deviation */
} norm_ops[] = {
    {"batch_norm", 1, COLUMNS, 1, 2, -2, true},
    {"layer_norm", 1, ROWS, 1, 2, -2, false},
    {"group_norm", 1, WHOLE_TENSOR, 1, 2, -2, true},
    {"batch_norm_grad", 2, COLUMNS, 4, 0, 3, true},
    {"layer_norm_grad", 2, ROWS, 4, 0, 3, false},
    {"rms_norm_grad", 2, ROWS, 3, 0, 2, false},
    {"group_norm_grad", 2, WHOLE_TENSOR, 4, 0, 3, true},
};

static int norm_of(const struct wf_op *op)
{
    for (int i = 0; i < WF_COUNT(norm_ops); i++)
        if (!strcmp(op->name, norm_ops[i].op))
            return i;
    return -1;
}

static bool among(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i]))
            return true;
    return false;
}

enum rounding { ROUNDS, ROUNDS_UNLESS_WHOLE, EXACT };

static enum rounding rounding_of(const struct wf_op *op)
{
    static signed char known[WF_N_OPS]; /* 0: not looked up yet */

    if (op->id >= WF_N_OPS)
        return ROUNDS;
    if (!known[op->id])
        known[op->id] =
            (signed char)(1 +
                          (op->flags & WF_VIEW || among(op->name, exact_ops, WF_COUNT(exact_ops))
                               ? EXACT
                           : among(op->name, whole_ops, WF_COUNT(whole_ops)) ? ROUNDS_UNLESS_WHOLE
                                                                             : ROUNDS));
    return (enum rounding)(known[op->id] - 1);
}

static bool all_whole(const struct wf_tensor *t, double most)
{
    int64_t n = t->data && wf_is_float(t->type.dtype) ? wf_count(t) : 0;

    for (int64_t i = 0; i < n; i++) {
        double v = wf_get(t->data, t->type.dtype, i);

        if (!(v == rint(v) && fabs(v) <= most))
            return false;
    }
    return true;
}

/* Moves each element by up to `noise` units of type t of its own size and `size`; part of the move
 * is the same for all. Values that t cannot represent become infinite. */
static void shake(struct plain *p, struct wf_tensor *x, weft_dtype t, double size)
{
    double *v = x->data, common = draw_real(&p->draw, -p->noise, p->noise) / 2;
    int64_t n = x->type.dtype == WEFT_F64 ? wf_count(x) : 0;

    for (int64_t i = 0; i < n; i++) {
        double r = common + draw_real(&p->draw, -p->noise, p->noise);

        if (!isfinite(v[i])) /* nothing was rounded */
            continue;
        v[i] += r * ((fabs(v[i]) + size) * float_of[t].unit + float_of[t].least);
        if (fabs(v[i]) > float_of[t].most && !p->unbounded)
            v[i] = copysign(INFINITY, v[i]);
    }
}

static void shake_slot(struct plain *p, float *v, int64_t n)
{
    for (int64_t i = 0; i < n && p->noise > 0; i++)
        v[i] *= (float)(1 + draw_real(&p->draw, -p->noise, p->noise) * 0x1p-24);
}

/* Centered rmsprop divides by sqrt(v - a^2 + eps), the mean square less the squared mean: the error
 * of the difference is relative to v. w: the weights before the step, new: after it; m: the
 * momentum before it, or NULL. */
static void shake_rmsprop(struct plain *p, const struct wf_node *n, const struct wf_tensor *w,
                          const float *m, const struct wf_tensor *op, int kept, float *new)
{
    const double *params = wf_attr(n->op, n->attr, "params")->floats;
    const struct wf_tensor *slot = &op[n->op->n_in_max];
    double momentum = params[WF_OPTIM_ATTR_OWN + 1], eps = params[WF_OPTIM_ATTR_OWN + 2];

    for (int64_t i = 0; i < wf_count(w); i++) {
        double v = (double)((float *)slot[0].data)[i],
               a = (double)((float *)slot[kept - 1].data)[i];
        double step = m ? (double)((float *)slot[1].data)[i] - momentum * (double)m[i]
                        : wf_get(w->data, w->type.dtype, i) - (double)new[i];
        double by = draw_real(&p->draw, -p->noise, p->noise) * float_of[WEFT_F32].unit * v / 2 /
                    fmax(v - a * a + eps, eps) * step;

        new[i] -= (float)by;
        if (m)
            ((float *)slot[1].data)[i] += (float)by;
    }
}

/* The slot z of ftrl after a step from weights w: z contains (n^p - n_before^p) w / lr, a
 * difference of powers that may be close to each other, so that its error is relative to n^p w /
 * lr. op: the operands and slots of the step. */
static void shake_ftrl(struct plain *p, const struct wf_node *n, const struct wf_tensor *w,
                       const struct wf_tensor *op)
{
    const double *params = wf_attr(n->op, n->attr, "params")->floats;
    const float *sum = op[n->op->n_in_max].data;
    float *z = op[n->op->n_in_max + 1].data;
    double lr = op[2].data ? wf_get(op[2].data, op[2].type.dtype, 0) : params[WF_OPTIM_ATTR_LR];
    double power = -params[WF_OPTIM_ATTR_OWN];

    for (int64_t i = 0; i < wf_count(w); i++)
        z[i] += (float)(draw_real(&p->draw, -p->noise, p->noise) * float_of[WEFT_F32].unit *
                        pow((double)sum[i], power) * wf_get(w->data, w->type.dtype, i) / lr);
}

/* Of the finite elements: the log-sum-exp of a row without keys is infinite, and no error comes of
 * it. */
static double largest(const struct wf_tensor *t)
{
    double most = 0;
    int64_t n = t->data && wf_is_float(t->type.dtype) ? wf_count(t) : 0;

    for (int64_t i = 0; i < n; i++) {
        double v = fabs(wf_get(t->data, t->type.dtype, i));

        most = isfinite(v) ? fmax(most, v) : most;
    }
    return most;
}

static double least(const struct wf_tensor *t)
{
    double v = INFINITY;
    int64_t n = wf_count(t);

    for (int64_t i = 0; i < n; i++)
        v = fmin(v, wf_get(t->data, t->type.dtype, i));
    return v;
}

static double norm_size(int norm, const struct wf_node *n, const struct wf_tensor *in,
                        const struct wf_tensor *out)
{
    int d = norm_ops[norm].deviation, gamma = norm_ops[norm].gamma, beta = norm_ops[norm].beta;
    const struct wf_tensor *deviation = d < 0 ? &out[-d] : &in[d];
    double size = largest(&in[0]);

    if (norm_ops[norm].is_variance)
        size /= sqrt(fmax(least(deviation), 0) + wf_node_float(n, "epsilon"));
    else
        size *= largest(deviation);
    if (gamma < n->n_in && n->in[gamma])
        size *= largest(&in[gamma]);
    return size + (beta && beta < n->n_in && n->in[beta] ? largest(&in[beta]) : 0);
}

/* The size of the numbers that the op subtracts internally for result i; 0: none. */
static double inner_size(const struct wf_node *n, const struct wf_tensor *in,
                         const struct wf_tensor *out, int i)
{
    double size = 0;
    int norm = norm_of(n->op);

    if (norm >= 0)
        return i ? 0 : norm_size(norm, n, in, out);
    for (int k = 0; k < WF_COUNT(absolute_ops); k++)
        if (!strcmp(n->op->name, absolute_ops[k].op)) {
            size = absolute_ops[k].size;
            for (int m = 0; m < n->n_in && absolute_ops[k].operands; m++)
                size *= fmax(1, largest(&in[m]));
        }
    return size;
}

/* Moves each element by the error of the largest element in its row of n_axes axes, its column, or
 * all of x. */
static void shake_summed(struct plain *p, struct wf_tensor *x, weft_dtype t, int along,
                         int64_t n_axes)
{
    double *v = x->data, most[4096] = {0};
    int64_t n = wf_count(x), width = 1, groups;
    bool fits;

    for (int i = x->type.rank - 1; i >= 0 && n_axes > 0; i--, n_axes--)
        width *= x->type.dim[i];
    groups = along == ROWS ? n / (width ? width : 1) : along == COLUMNS ? width : 1;
    fits = groups <= WF_COUNT(most);

    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n; i++) {
            int64_t k = !fits || along == WHOLE_TENSOR ? 0 : along == ROWS ? i / width : i % width;

            if (pass == 0)
                most[k] = fmax(most[k], fabs(v[i]));
            else
                v[i] += draw_real(&p->draw, -p->noise, p->noise) * most[k] * float_of[t].unit;
        }
}

/* Copies of the float operands, with noise. */
static void shake_operands(struct plain *p, const struct wf_node *n, struct wf_tensor *in)
{
    int norm = norm_of(n->op);

    for (int i = n->op->flags & WF_STATE_IN0 ? 1 : 0; i < n->n_in; i++)
        if (n->in[i] && in[i].type.dtype == WEFT_F64) {
            weft_dtype t = p->g->values[n->in[i]].type.dtype;

            in[i] = adopt(p, &in[i].type, in[i].data);
            shake(p, &in[i], t, 0);
            if (norm >= 0 && i < norm_ops[norm].n_summed)
                shake_summed(p, &in[i], t, norm_ops[norm].along,
                             norm_ops[norm].along == ROWS ? wf_node_int(n, "n_axes") : 1);
        }
}

static bool rounds(const struct plain *p, const struct wf_node *n, const struct wf_tensor *in)
{
    enum rounding how = rounding_of(n->op);
    double most = 256;

    if (how != ROUNDS_UNLESS_WHOLE)
        return how == ROUNDS;
    for (int i = 0; i < n->n_in; i++)
        if (!all_whole(&in[i], 256))
            return true;
    for (int i = 0; i < n->n_out; i++) {
        weft_dtype t = p->g->values[n->first_out + i].type.dtype;

        if (t == WEFT_F32 || t == WEFT_F64)
            most = 0x1p20;
        if (!all_whole(&p->val[n->first_out + i], most))
            return true;
    }
    return false;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool is_apply(const struct wf_node *n)
{
    return n->op->id == WF_OP_apply || n->op->id == WF_OP_apply_rows;
}

weft_status plain_call(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                       int n_in, struct wf_tensor *in, struct wf_tensor *out)
{
    struct wf_type in_type[WF_MAX_IN + 8], out_type[WF_MAX_OUT];
    struct wf_kplan kp = {.ctx = p->ctx,
                          .arena = &p->arena,
                          .op = n->op,
                          .attr = attr,
                          .n_in = n_in,
                          .n_out = n->n_out,
                          .in = in_type,
                          .out = out_type,
                          .n_threads = 1};
    const struct wf_kernel *kernel;
    weft_status st;

    for (int i = 0; i < n_in; i++)
        in_type[i] = in[i].type;
    for (int i = 0; i < n->n_out; i++)
        out_type[i] = out[i].type;
    st = wf_kernel_choose(&kp, true, &kernel);
    if (st)
        return st;
    struct wf_call c = {
        .ctx = p->ctx,
        .pool = p->ctx->pool,
        .op = n->op,
        .attr = attr,
        .n_in = n_in,
        .n_out = n->n_out,
        .in = in,
        .out = out,
        .rng = {p->ctx->seed, (uint64_t)p->step, (uint32_t)p->shard, (uint32_t)n->uid},
        .iteration = p->step + 1,
        .state = kp.state,
        .scratch = wf_arena_alloc(&p->arena, kp.scratch_bytes + 128)};
    c.scratch = (char *)c.scratch + (64 - (uintptr_t)c.scratch % 64) % 64;
    return kernel->run(&c);
}

/* An optimizer's update: always in f32, with the variable's slots. */
static weft_status run_apply(struct plain *p, const struct wf_node *n, struct wf_tensor *in,
                             int64_t var)
{
    struct wf_tensor op[16] = {{.data = NULL}}, out;
    const struct wf_optim_row *row = wf_optim_find(wf_attr_str(n->op, n->attr, "optimizer"));
    float init[WF_OPTIM_MAX_SLOTS];
    int kept = wf_optim_slots(row, wf_attr(n->op, n->attr, "params")->floats, NULL, init);
    bool wide = p->wide, centered;
    const float *m = NULL;
    weft_status st;

    for (int i = 0; i < n->n_in; i++) {
        op[i] = in[i];
        if (in[i].type.dtype != WEFT_F64)
            continue;
        op[i].type.dtype = WEFT_F32;
        op[i].data = plain_room(p, &op[i].type);
        for (int64_t e = 0; e < wf_count(&op[i]); e++)
            ((float *)op[i].data)[e] = (float)((double *)in[i].data)[e];
    }
    if (!wide)
        op[0] = adopt(p, &in[0].type, in[0].data);
    for (int k = 0; k < kept; k++) {
        struct wf_tensor *s = &op[n->op->n_in_max + k];

        s->type = op[0].type;
        if (!p->slot[var][k]) {
            p->slot[var][k] = plain_room(p, &s->type);
            for (int64_t e = 0; e < wf_count(s); e++)
                p->slot[var][k][e] = init[k];
        }
        s->data = p->slot[var][k];
    }
    out = op[0];
    centered = p->noise > 0 && n->op->id == WF_OP_apply && !strcmp(row->name, "rmsprop") &&
               wf_attr(n->op, n->attr, "params")->floats[WF_OPTIM_ATTR_OWN + 3] != 0;
    if (centered && kept == 3)
        m = memcpy(plain_room(p, &op[0].type), p->slot[var][1], (size_t)wf_type_bytes(&op[0].type));
    st = plain_call(p, n, n->attr, n->op->n_in_max + WF_OPTIM_MAX_SLOTS, op, &out);
    if (!st && centered)
        shake_rmsprop(p, n, &in[0], m, op, kept, out.data);
    if (!st)
        p->val[n->first_out] = p->var[var] = adopt(p, &out.type, out.data);
    for (int k = 0; k < kept; k++)
        shake_slot(p, p->slot[var][k], wf_count(&out));
    if (!st && p->noise > 0 && n->op->id == WF_OP_apply && !strcmp(row->name, "ftrl"))
        shake_ftrl(p, n, &in[0], op);
    return st;
}

/* Whether the step of an optimizer may be large however small the gradient is. Those that divide by
 * a sum of squares which begins with a number do not. */
static bool amplifies(const struct wf_node *n)
{
    const char *name = is_apply(n) ? wf_attr_str(n->op, n->attr, "optimizer") : "sgd";
    const double *params = is_apply(n) ? wf_attr(n->op, n->attr, "params")->floats : NULL;
    float init[WF_OPTIM_MAX_SLOTS] = {0};

    if (!strcmp(name, "sgd"))
        return false;
    wf_optim_slots(wf_optim_find(name), params, NULL, init);
    return (strcmp(name, "ftrl") && strcmp(name, "adagrad")) || init[0] < 1e-3F;
}

static weft_status run_update(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                              struct wf_tensor *in)
{
    const struct wf_node *leaf = &p->g->nodes[p->g->values[plain_root(p->g, n->in[0])].node];
    struct wf_tensor out;
    weft_status st;

    if (leaf->var < 0)
        return wf_err(WEFT_EBUG, "'%s' updates '%s', which is not a variable", n->name, leaf->name);
    in[0] = p->var[leaf->var];
    if (plain_ties(p, n - p->g->nodes, &in[1].type, in) && amplifies(n))
        p->peers->open_var[leaf->var] = true;
    if (n->op->id == WF_OP_apply && !wf_type_same_shape(&in[0].type, &in[1].type)) {
        return wf_err(WEFT_ESHAPE, "'%s': a gradient of another shape", n->name);
    } else if (is_apply(n)) {
        st = run_apply(p, n, in, leaf->var);
    } else {
        struct wf_type in_type[2] = {in[0].type, in[1].type};
        struct wf_infer r = {.op = n->op,
                             .attr = attr,
                             .n_in = n->n_in,
                             .n_out = 1,
                             .in = in_type,
                             .out = &(struct wf_type){.rank = 0}};

        st = n->op->infer(&r);
        if (st)
            return st;
        in[0] = out = adopt(p, &in[0].type, in[0].data);
        st = plain_call(p, n, attr, n->n_in, in, &out);
        p->val[n->first_out] = p->var[leaf->var] = out;
    }
    if (!st && p->noise > 0 && rounding_of(n->op) != EXACT)
        shake(p, &p->val[n->first_out], p->g->values[n->first_out].type.dtype,
              largest(&in[0])); /* the subtraction may leave little */
    return st;
}

/* Before the call: drops one element of an operand. */
static void drop_operand(struct plain *p, const struct fault *f, struct wf_tensor *in)
{
    struct wf_tensor *x = &in[f->at];

    *x = adopt(p, &x->type, x->data);
    wf_set(x->data, x->type.dtype, f->element, 0);
}

/* After the call: makes one element, or all, wrong. */
static void spoil_result(const struct fault *f, struct wf_tensor *out)
{
    struct wf_tensor *x = &out[f->at];
    int64_t from = f->kind == ELEMENT ? f->element : 0;
    int64_t to = f->kind == ELEMENT ? f->element + 1 : wf_count(x);

    for (int64_t e = from; e < to; e++)
        wf_set(x->data, x->type.dtype, e, wf_get(x->data, x->type.dtype, e) * (1 + f->by));
}

static weft_status run_op(struct plain *p, const struct wf_node *n, const struct wf_attr *attr,
                          struct wf_tensor *in)
{
    struct wf_type in_type[WF_MAX_IN], out_type[WF_MAX_OUT];
    struct wf_infer r = {.op = n->op,
                         .attr = attr,
                         .n_in = n->n_in,
                         .n_out = n->n_out,
                         .in = in_type,
                         .out = out_type};
    struct wf_tensor *out = &p->val[n->first_out];
    bool moves, is_faulty = p->fault && n == &p->g->nodes[p->fault->node];
    weft_status st;

    for (int i = 0; i < n->n_in; i++)
        in_type[i] = in[i].type;
    memset(out_type, 0, sizeof *out_type * (size_t)n->n_out);
    st = n->op->infer(&r);
    if (st)
        return st;
    for (int i = 0; i < n->n_out; i++) {
        out[i].type = out_type[i];
        if (wf_type_bytes(&out[i].type) < 0 ||
            wf_type_bytes(&out[i].type) > (p->wide ? 1 << 26 : 1 << 22))
            return wf_err(WEFT_ELIMIT, "too large for a random test");
        out[i].data = plain_room(p, &out[i].type);
    }
    if (is_faulty && p->fault->kind == DROPPED)
        drop_operand(p, p->fault, in);
    if (p->peers && n->op->id == WF_OP_check_numerics) { /* the program did not refuse it */
        out[0] = in[0];
        return WEFT_OK;
    }
    st = plain_call(p, n, attr, n->n_in, in, out);
    if (!st && is_faulty && p->fault->kind != DROPPED)
        spoil_result(p->fault, out);
    if (st || !p->peers)
        return st;
    moves = rounds(p, n, in);
    if (moves)
        shake_operands(p, n, in);
    st = plain_decide(p, n - p->g->nodes, attr, in, out);
    if (!st && p->number % p->peers->n_noisy == 0)
        sums_in_order(p, n, in, out);
    for (int i = 0; i < n->n_out && moves && !st; i++)
        if (out[i].type.dtype == WEFT_F64)
            shake(p, &out[i], p->g->values[n->first_out + i].type.dtype, inner_size(n, in, out, i));
    return st;
}

weft_status plain_node(struct plain *p, int64_t k, const weft_tensor *feed)
{
    const struct wf_node *n = &p->g->nodes[k];
    struct wf_tensor in[WF_MAX_IN];
    struct wf_attr attr[WF_MAX_ATTRS];
    struct wf_type t;

    grow(p);
    if (p->peers)
        p->draw = draw_from(p->seed, (uint64_t)(k + p->n_runs * p->g->n_nodes));
    for (int i = 0; i < n->op->n_attrs; i++) {
        attr[i] = n->attr[i];
        if (attr[i].kind == WF_DTYPE)
            attr[i].i = type_here(p, (weft_dtype)attr[i].i);
    }
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i] ? p->val[n->in[i]] : (struct wf_tensor){.type = {.dtype = WEFT_NONE}};
        if (n->in[i] && !in[i].data)
            return wf_err(WEFT_EBUG, "'%s': operand %d was not computed", n->name, i);
    }
    if (n->op->id == WF_OP_placeholder) {
        t = wf_type_of(feed->dtype, feed->rank, feed->dim);
        p->val[n->first_out] = adopt(p, &t, feed->data);
    } else if (n->op->id == WF_OP_constant) {
        p->val[n->first_out] = adopt(p, &p->g->values[n->first_out].type, n->data);
    } else if (n->op->id == WF_OP_variable) {
        p->val[n->first_out] = adopt(p, &p->var[n->var].type, p->var[n->var].data);
    } else if (n->op->flags & WF_STATE_IN0) {
        return wf_err_wrap(run_update(p, n, attr, in), "'%s' (%s)", n->name, n->op->name);
    } else if (n->op->id == WF_OP_stop_gradient && p->frozen) {
        p->val[n->first_out] = p->frozen[n->first_out];
    } else {
        return wf_err_wrap(run_op(p, n, attr, in), "'%s' (%s)", n->name, n->op->name);
    }
    return WEFT_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void mark_needed(const weft_graph *g, int n_roots, const weft_val *roots, bool *live)
{
    for (int i = 0; i < n_roots; i++)
        if (roots[i].id)
            live[g->values[roots[i].id].node] = true;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const struct wf_node *n = &g->nodes[k];

        for (int i = 0; live[k] && i < n->n_in; i++)
            if (n->in[i])
                live[g->values[n->in[i]].node] = true;
        for (int i = 0; live[k] && i < n->n_ctrl; i++)
            live[n->ctrl[i]] = true;
    }
}

/* NaN or infinite if an element is. */
static double sum_of(const struct wf_tensor *t)
{
    double sum = 0;
    int64_t n = wf_count(t);

    for (int64_t i = 0; i < n; i++)
        sum += 0 * wf_get(t->data, t->type.dtype, i);
    return sum;
}

/* What depends on an undecided step: by operands, and from run to run by variables. */
static void spread_open(const struct plain *p, const struct wf_node *n)
{
    bool *var = p->peers->open_var, *val = p->peers->open_val;
    bool open = n->op->id == WF_OP_variable && var[n->var];

    for (int i = 0; i < n->n_in; i++)
        open |= n->in[i] && val[n->in[i]];
    for (int i = 0; i < n->n_out; i++)
        val[n->first_out + i] = open;
    if (n->op->flags & WF_STATE_IN0)
        var[p->g->nodes[p->g->values[plain_root(p->g, n->in[0])].node].var] |= open;
}

weft_status plain_run_all(struct plain *p, int n, int n_feeds, const weft_val *feed,
                          const weft_tensor *feeds, int n_roots, const weft_val *roots)
{
    const weft_graph *g = p->g;
    bool *live = wf_arena_alloc(&p->arena, (size_t)g->n_nodes + 1), updates = false;
    weft_status st = WEFT_OK;

    mark_needed(g, n_roots, roots, live);
    for (int j = 0; j < n; j++)
        for (int64_t v = 0; v < g->n_values; v++)
            p[j].val[v].data = NULL;
    for (int64_t k = 0; k < g->n_nodes && !st; k++) {
        const weft_tensor *f = NULL;

        for (int i = 0; i < n_feeds; i++)
            if (g->values[feed[i].id].node == k)
                f = &feeds[i];
        for (int j = 0; j < n && live[k] && !st; j++)
            st = plain_node(&p[j], k, f);
        if (p->peers && live[k] && !st)
            spread_open(p, &g->nodes[k]);
        updates |= live[k] && (g->nodes[k].op->flags & WF_STATE_IN0);
    }
    for (int j = 0; j < n && !st; j++) {
        for (int64_t v = 1; v < g->n_values && !p[j].saw_odd; v++)
            p[j].saw_odd = p[j].val[v].data && wf_is_float(p[j].val[v].type.dtype) &&
                           !isfinite(sum_of(&p[j].val[v]));
        p[j].step += updates;
        p[j].n_runs++;
    }
    return st;
}

weft_status plain_run(struct plain *p, int n_feeds, const weft_val *feed, const weft_tensor *feeds,
                      int n_roots, const weft_val *roots)
{
    return plain_run_all(p, 1, n_feeds, feed, feeds, n_roots, roots);
}

struct wf_tensor plain_fetch(const struct plain *p, weft_val v)
{
    struct wf_tensor t = p->val[v.id];
    const struct wf_node *n = &p->g->nodes[p->g->values[plain_root(p->g, v.id)].node];

    while (n->op->flags & WF_STATE_IN0)
        n = &p->g->nodes[p->g->values[plain_root(p->g, n->in[0])].node];
    if (n->var >= 0)
        t.data = p->var[n->var].data;
    return t;
}

bool plain_is_open(const struct plain *p, weft_val v)
{
    const struct wf_node *n = &p->g->nodes[p->g->values[plain_root(p->g, v.id)].node];

    if (!p->peers)
        return false;
    while (n->op->flags & WF_STATE_IN0)
        n = &p->g->nodes[p->g->values[plain_root(p->g, n->in[0])].node];
    return p->peers->open_val[v.id] || (n->var >= 0 && p->peers->open_var[n->var]);
}
