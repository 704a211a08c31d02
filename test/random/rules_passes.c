/* rules_passes.c - graphs that are difficult for a pass, drawn often enough to exercise the guards
 * of passes. */
#include <math.h>
#include <stdlib.h>

#include "random/rules.h"
#include "weft/einsum.h"
#include "weft/scan.h"

/* An element-wise op of two values that were broadcast first, one of them perhaps reshaped. */
bool draw_splat(struct gen *g, const char *op)
{
    weft_val like = gen_any(g, FLOATS, 1, 3), in[2], pair[2];
    struct wf_type t;
    int64_t turned[WEFT_MAX_RANK], ones[] = {1, 1, 1};
    char shape[160], word[32];

    (void)op;
    if (!like.id)
        return false;
    t = *gen_type(g, like);
    for (int i = 0; i < t.rank; i++)
        turned[i] = t.dim[t.rank - 1 - i];
    for (int i = 0; i < 2; i++) {
        pair[0] = gen_spread(g, t.dtype, like);
        if (draw_one_in(&g->d, 3)) { /* one element of the same rank */
            pair[0] = rule_scalar(g, t.dtype, draw_real(&g->d, -2, 2));
            pair[0] = gen_op(g, "reshape", 1, pair, "shape=%s", rule_list(t.rank, ones, shape));
        }
        pair[1] = like;
        in[i] = pair[0].id ? gen_op(g, "broadcast_like", 2, pair, "%s", "") : WEFT_NIL;
        if (!in[i].id)
            return false;
    }
    if (draw_one_in(&g->d, 2) && !(g->batch[0] && t.dim[0] == g->batch[0])) {
        bool flat = draw_one_in(&g->d, 3);
        int64_t all = wf_type_count(&t);

        in[0] = gen_op(g, "reshape", 1, in, "shape=%s",
                       flat ? "[-1]" : rule_list(t.rank, turned, shape));
        in[1] = gen_typed(g, t.dtype, flat ? 1 : t.rank, flat ? &all : turned);
    }
    return in[0].id && in[1].id &&
           gen_op(g, draw_word(&g->d, "add|sub|mul|max|add_n|tanh_grad", word), 2, in, "%s", "").id;
}

/* A long chain of element-wise ops over values of one shape: more ops and operands than a program
 * can hold. */
bool draw_chain(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 0, 2), WEFT_NIL};
    struct wf_type t;
    int n = (int)draw_int(&g->d, 6, 44), n_pool = g->n_pool;
    bool unary = draw_one_in(&g->d, 3);
    char word[32];

    (void)op;
    if (!in[0].id || g->large || wf_type_count(gen_type(g, in[0])) > 200 || !draw_one_in(&g->d, 4))
        return false;
    t = *gen_type(g, in[0]);
    for (int i = 0; i < n && in[0].id; i++) {
        if (unary) {
            in[0] = gen_op(g, draw_word(&g->d, "sin|tanh|neg|relu|abs", word), 1, in, "%s", "");
            continue;
        }
        in[1] =
            i < 20 && wf_is_float(t.dtype) && !(g->batch[0] && t.rank && t.dim[0] == g->batch[0])
                ? gen_variable(g, t.dtype, t.rank, t.dim, t.dtype != WEFT_F32)
                : gen_like(g, in[0]);
        if (!in[1].id || !gen_settle(g))
            break;
        in[0] = gen_op(g, draw_word(&g->d, "add|sub|min|max", word), 2, in, "%s", "");
        if (!draw_one_in(&g->d, 8))
            g->n_pool = g->n_pool < n_pool ? g->n_pool : n_pool; /* nothing else reads it */
    }
    return in[0].id && gen_take(g, in[0]);
}

/* An element-wise result of a narrower type than an operand that has as many bytes, but is read
 * once for each row; long enough for several blocks of a program. */
bool draw_narrowed(struct gen *g, const char *op)
{
    static const struct {
        const char *last, *set;
        int64_t rows;
    } kinds[] = {{"lt", "", 4}, {"ge", "", 4}, {"cast", "dtype=bf16", 2}, {"cast", "dtype=f16", 2}};
    int kind = (int)draw_int(&g->d, 0, WF_COUNT(kinds) - 1), n_pool = g->n_pool;
    int64_t dim[2] = {kinds[kind].rows, draw_int(&g->d, 600, 900)};
    weft_val in[2] = {gen_leaf(g, WEFT_F32, 1, dim + 1), gen_leaf(g, WEFT_F32, 2, dim)}, out;
    char word[32];

    (void)op;
    if (!in[0].id || !in[1].id || g->smooth || !gen_settle(g))
        return false;
    in[0] = gen_op(g, draw_word(&g->d, "cumsum|reverse", word), 1, in, "%s",
                   *word == 'c' ? "axis=0" : "axes=[0]");
    if (!in[0].id)
        return false;
    if (dim[0] == 2)
        in[0] = gen_op(g, draw_word(&g->d, "add|sub|max", word), 2, in, "%s", "");
    out = in[0].id ? gen_op(g, kinds[kind].last, dim[0] == 2 ? 1 : 2, in, "%s", kinds[kind].set)
                   : WEFT_NIL;
    g->n_pool = n_pool; /* nothing else reads them */
    if (out.id && g->c->n_fetches < MAX_FETCHES)
        g->c->fetch[g->c->n_fetches++] = out;
    return out.id;
}

/* A product whose operand is added to it: f(x) w + f(x), w square. */
bool draw_residual(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 2, 3)}, y;
    int64_t k;
    char word[32];

    (void)op;
    if (!in[0].id)
        return false;
    k = gen_type(g, in[0])->dim[gen_type(g, in[0])->rank - 1];
    if (k > 40)
        return false;
    y = gen_op(g, draw_word(&g->d, "relu|tanh|neg|square", word), 1, in, "%s", "");
    in[0] = y;
    in[1] = y.id ? gen_typed(g, gen_type(g, y)->dtype, 2, (int64_t[]){k, k}) : WEFT_NIL;
    if (!in[1].id)
        return false;
    in[0] = gen_op(g, "matmul", 2, in, "%s", "");
    in[1] = y;
    return in[0].id && gen_op(g, draw_word(&g->d, "add|mul|sub", word), 2, in, "%s", "").id;
}

/* x as a matrix: as it is, in other sizes, or with its first axes merged. */
static weft_val as_matrix(struct gen *g, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    bool batch = g->batch[0] && t.dim[0] == g->batch[0];

    if (t.rank == 1)
        return gen_op(g, "reshape", 1, &x, "shape=[%s]", draw_one_in(&g->d, 4) ? "-1,1" : "1,-1");
    if (t.rank == 2 && (batch || !draw_one_in(&g->d, 3)))
        return x;
    return gen_op(g, "reshape", 1, &x, "shape=[-1,%lld]",
                  (long long)t.dim[t.rank == 2 ? 0 : t.rank - 1]);
}

static weft_val some_sum(struct gen *g, weft_val x)
{
    static const char *const axes[] = {"", "", "axes=[0]|axes=[0]|axes=[-2]|axes=[1]|axes=[-1]",
                                       "axes=[0,1]|axes=[1,0]|axes=[-3,-2]|axes=[0]|axes=[0,2]"};
    char word[32], name[32];

    return gen_op(g, draw_word(&g->d, "sum|sum|sum|mean", name), 1, &x, "%s keepdims=%s",
                  draw_word(&g->d, axes[gen_type(g, x)->rank], word),
                  draw_one_in(&g->d, 4) ? "true" : "false");
}

/* A product and sums of its second factor, like the gradients of a weight and its bias, or
 * similar. */
bool draw_column_sums(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 1, 3), in[2], out[3];
    bool ta = !draw_one_in(&g->d, 4), tb = draw_one_in(&g->d, 4);
    int n = draw_one_in(&g->d, 3) ? 3 : 2, product = (int)draw_int(&g->d, 0, n - 1);
    int64_t k = draw_int(&g->d, 1, 4), inner;

    (void)op;
    in[1] = x.id ? as_matrix(g, x) : WEFT_NIL;
    if (!in[1].id)
        return false;
    inner = gen_type(g, in[1])->dim[tb ? 1 : 0];
    in[0] = gen_typed(g, gen_type(g, in[1])->dtype, 2,
                      ta ? (int64_t[]){inner, k} : (int64_t[]){k, inner});
    if (!in[0].id)
        return false;
    for (int i = 0; i < n; i++) {
        out[i] = i == product ? gen_op(g, "matmul", 2, in, "trans_a=%s trans_b=%s",
                                       ta ? "true" : "false", tb ? "true" : "false")
                              : some_sum(g, draw_one_in(&g->d, 2) ? x : in[1]);
        if (!out[i].id)
            return false;
        if (g->c->n_fetches < MAX_FETCHES && !g->smooth)
            g->c->fetch[g->c->n_fetches++] = out[i];
    }
    return true;
}

/* One of some nodes that differ in their op, an attribute of each kind, or the number of operands.
 */
static weft_val one_alike(struct gen *g, int kind, weft_val x)
{
    weft_val many[16];
    char word[32];

    for (int i = 0; i < WF_COUNT(many); i++)
        many[i] = x;

    switch (kind) {
    case 0:
        return gen_op(g, draw_word(&g->d, "sin|cos|neg|relu|abs|tanh|sigmoid|erf", word), 1, &x,
                      "%s", "");
    case 1:
        return gen_op(g, "leaky_relu", 1, &x, "alpha=%g", 0.03125 * (double)draw_int(&g->d, 0, 40));
    case 2: return gen_op(g, "cumsum", 1, &x, "axis=%d", (int)draw_int(&g->d, -3, 2));
    case 3:
        return gen_op(g, "reverse", 1, &x, "axes=[%s]",
                      draw_word(&g->d, "0|1|2|0,1|1,2|0,2|0,1,2|-1|-2", word));
    case 4: return gen_op(g, "add_n", (int)draw_int(&g->d, 1, WF_COUNT(many)), many, "%s", "");
    default:
        return gen_op(g, "avg_pool", 1, &x, "window=[%d] strides=[1] padding=%s",
                      (int)draw_int(&g->d, 2, 5), draw_word(&g->d, "valid|same", word));
    }
}

/* Nodes that differ only in their op, an attribute or an operand. */
bool draw_alike(struct gen *g, const char *op)
{
    int kind = (int)draw_int(&g->d, 0, 5), n = (int)draw_int(&g->d, 2, 16), n_pool = g->n_pool;
    bool same_shape = kind < 5;
    weft_val x = gen_any(g, FLOATS, kind < 2 || kind == 4 ? 0 : 3, 3), in[16];

    (void)op;
    if (!x.id || wf_type_count(gen_type(g, x)) > 1000)
        return false;
    for (int i = 0; i < n; i++) {
        in[i] = one_alike(g, kind, x);
        if (!in[i].id)
            return false;
        if (!same_shape && g->c->n_fetches < MAX_FETCHES && !g->smooth)
            g->c->fetch[g->c->n_fetches++] = in[i];
    }
    if (!same_shape)
        return true;
    g->n_pool = n_pool < g->n_pool ? n_pool : g->n_pool;
    return gen_op(g, "add_n", n, in, "%s", "").id;
}

/* More constants than folding takes. */
bool draw_many_constants(struct gen *g, const char *op)
{
    weft_val in[24];
    int n = (int)draw_int(&g->d, 14, 24);

    (void)op;
    for (int i = 0; i < n; i++) {
        in[i] = rule_scalar(g, g->main_type, 0.25 * (double)draw_int(&g->d, -8, 8));
        if (!in[i].id)
            return false;
    }
    return gen_op(g, draw_one_in(&g->d, 2) ? "add_n" : "stack", n, in, "%s", "").id;
}

/* The same random node twice: two draws, not one. */
bool draw_random_twins(struct gen *g, const char *op)
{
    weft_val in[2];
    char word[32];
    int64_t n = gen_size(g);

    (void)op;
    if (g->smooth)
        return false;
    draw_word(&g->d, "random_uniform|random_normal", word);
    for (int i = 0; i < 2; i++) {
        in[i] = gen_op(g, word, 0, NULL, "shape=[%lld] dtype=%s", (long long)n,
                       weft_dtype_name(g->main_type));
        if (!in[i].id)
            return false;
    }
    return gen_op(g, "sub", 2, in, "%s", "").id;
}

/* A node whose second result a factor may be taken for: the gradient of a cross-entropy, or what
 * attention says about its rows. */
static weft_val two_results(struct gen *g)
{
    weft_val in[3] = {gen_any(g, FLOATS, 1, 4)};
    const struct wf_type *t;

    if (!in[0].id)
        return WEFT_NIL;
    t = gen_type(g, in[0]);
    if (t->rank == 4 && draw_one_in(&g->d, 2)) {
        in[1] = in[2] = in[0];
        return gen_op(g, "attention", 3, in, "scale=%s", "1");
    }
    if (t->dim[t->rank - 1] < 1)
        return WEFT_NIL;
    in[1] = gen_ids(g, 0, t->dim[t->rank - 1] - 1, t->rank - 1, t->dim);
    return in[1].id ? gen_op(g, "sparse_softmax_xent", 2, in, "%s",
                             draw_one_in(&g->d, 3) ? "scale=0.5" : "")
                    : WEFT_NIL;
}

/* What it is multiplied by: a scalar, perhaps of a higher rank, or a constant of as many elements.
 */
static weft_val factor_of(struct gen *g, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    weft_val c = rule_scalar(g, t.dtype, draw_one_in(&g->d, 4) ? 0 : draw_real(&g->d, 0.1, 2));
    char shape[160];

    if (!c.id || draw_one_in(&g->d, 2))
        return c;
    if (t.rank == 0 || (g->batch[0] && t.dim[0] == g->batch[0]) || draw_one_in(&g->d, 2))
        return gen_op(g, "reshape", 1, &c, "shape=%s", "[1,1,1,1,1]");
    c = gen_op(g, "broadcast_to", 1, &c, "shape=%s", rule_list(t.rank, t.dim, shape));
    return c.id ? gen_op(g, "cumsum", 1, &c, "axis=-1") : c;
}

/* What a cross-entropy, perhaps a scaled one, gives (loss or gradient), scaled once more. */
bool draw_scaled_backprop(struct gen *g, const char *op)
{
    weft_val x = two_results(g), in[2];

    (void)op;
    if (!x.id)
        return false;
    in[0] = (weft_val){x.id + !draw_one_in(&g->d, 3)};
    in[1] = factor_of(g, in[0]);
    if (!in[1].id)
        return false;
    for (int i = 0; i < g->n_pool; i++) /* usually only the product reads it */
        if (g->pool[i].id == in[0].id && !draw_one_in(&g->d, 4))
            g->pool[i--] = g->pool[--g->n_pool];
    if (draw_one_in(&g->d, 4) && !gen_op(g, "tanh", 1, in, "%s", "").id)
        return false;
    return gen_op(g, "mul", 2, in, "%s", "").id;
}

/* x + 0 or x * 1, where the number may have a higher rank than x. */
bool draw_neutral(struct gen *g, const char *op)
{
    bool product = draw_one_in(&g->d, 2);
    int at = (int)draw_int(&g->d, 0, 1);
    weft_val in[2], x = gen_any(g, FLOATS, 0, 3), one;
    char word[32];

    (void)op;
    one = x.id ? rule_scalar(g, gen_type(g, x)->dtype, product) : x;
    if (one.id && !draw_one_in(&g->d, 3))
        one = gen_op(g, "reshape", 1, &one, "shape=[%s]",
                     draw_word(&g->d, "1|1,1|1,1,1|1,1,1,1", word));
    in[at] = x;
    in[1 - at] = one;
    return one.id && gen_op(g, product ? "mul" : "add", 2, in, "%s", "").id;
}

/* ---- variables that change ----------------------------------------------------------------------
 */

static bool has_update(const struct gen *g, weft_val var)
{
    for (int i = 0; i < g->c->n_updates; i++)
        if (plain_root(g->g, wf_val_node(g->g, g->c->update[i])->in[0]) == var.id)
            return true;
    return false;
}

static bool add_assign(struct gen *g, weft_val var, weft_val value)
{
    weft_val in[2] = {var, value}, u;

    if (g->c->n_updates == MAX_UPDATES || has_update(g, var))
        return false;
    u = gen_op(g, "assign", 2, in, "%s", "");
    if (u.id)
        g->c->update[g->c->n_updates++] = u;
    return u.id;
}

/* The new value of the other variable: the value itself, reshaped, or something computed from
 * it. */
static weft_val handed_over(struct gen *g, weft_val v, const int64_t *dim)
{
    char word[32], shape[160];

    if (draw_one_in(&g->d, 3))
        v = gen_op(g, draw_word(&g->d, "identity|neg|tanh", word), 1, &v, "%s", "");
    if (v.id && gen_type(g, v)->dim[0] != dim[0])
        v = gen_op(g, "reshape", 1, &v, "shape=%s", rule_list(2, dim, shape));
    return v;
}

/* A node that runs after update u, because of an operand or by control, but reads the old value of
 * v. */
static void read_late(struct gen *g, weft_val u, weft_val v, weft_val other)
{
    bool control = draw_one_in(&g->d, 2);
    weft_val in[2] = {control ? other : u, v}, late;
    char shape[160];

    if (draw_one_in(&g->d, 3)) { /* in other sizes, which matter to who reads them */
        const int64_t *dim = gen_type(g, v)->dim;

        late = gen_op(g, "reshape", 1, &v, "shape=%s",
                      rule_list(2, (int64_t[]){dim[1], dim[0]}, shape));
        late = late.id ? gen_op(g, "sum", 1, &late, "axes=%s", "[0]") : late;
        if (late.id && g->c->n_fetches < MAX_FETCHES) {
            weft_control(g->g, late, u);
            g->c->fetch[g->c->n_fetches++] = late;
        }
        return;
    }
    if (!control && draw_one_in(&g->d, 2))
        in[0] = gen_op(g, "tanh", 1, &u, "%s", "");
    late = in[0].id ? gen_op(g, "sub", 2, in, "%s", "") : WEFT_NIL;
    if (!late.id || g->c->n_fetches == MAX_FETCHES)
        return;
    if (control)
        weft_control(g->g, late, u);
    g->c->fetch[g->c->n_fetches++] = late;
}

/* Two variables exchange their values. */
bool draw_exchange(struct gen *g, const char *op)
{
    int64_t dim[2] = {draw_int(&g->d, 1, 4), draw_int(&g->d, 1, 4)}, turned[2] = {dim[1], dim[0]};
    bool same = draw_one_in(&g->d, 2);
    const int64_t *shape[2] = {dim, same ? dim : turned};
    weft_val v[2], as[2];

    (void)op;
    if (g->smooth || g->c->n_updates + 2 > MAX_UPDATES)
        return false;
    for (int i = 0; i < 2; i++) {
        v[i] = gen_variable(g, WEFT_F32, 2, shape[i], true);
        if (!v[i].id || !gen_settle(g))
            return false;
    }
    for (int i = 0; i < 2; i++)
        as[i] = handed_over(g, v[i], shape[1 - i]);
    if (!as[0].id || !as[1].id || !add_assign(g, v[0], as[1]))
        return false;
    if (draw_one_in(&g->d, 2))
        read_late(g, g->c->update[g->c->n_updates - 1], v[0], as[1]);
    return draw_one_in(&g->d, 3) || add_assign(g, v[1], as[0]);
}

/* A value equal to a variable, with its own memory, fetched while the variable changes. */
bool draw_shown(struct gen *g, const char *op)
{
    int64_t dim[3] = {1, draw_int(&g->d, 1, 3), draw_int(&g->d, 1, 3)};
    weft_val v, in[2], x = WEFT_NIL;
    char word[32];

    (void)op;
    if (g->smooth || g->c->n_fetches == MAX_FETCHES)
        return false;
    v = gen_variable(g, WEFT_F32, 3, dim, true);
    if (!v.id || !gen_settle(g))
        return false;
    in[0] = v;
    switch (draw_int(&g->d, 0, 4)) {
    case 0:
        in[1] = gen_typed(g, WEFT_F32, 2, dim + 1);
        x = in[1].id ? gen_op(g, "reduce_to_like", 2, in, "%s", "") : x;
        break;
    case 1:
        in[1] = rule_scalar(g, WEFT_F32, 0);
        x = gen_op(g, "add", 2, in, "%s", "");
        break;
    case 2:
        in[1] = rule_scalar(g, WEFT_F32, 1);
        x = gen_op(g, "mul", 2, in, "%s", "");
        break;
    case 3:
        in[1] = v;
        x = gen_op(g, draw_word(&g->d, "broadcast_like|reduce_to_like", word), 2, in, "%s", "");
        break;
    default: x = gen_op(g, "reshape", 1, in, "shape=%s", "[-1]");
    }
    if (!x.id)
        return false;
    g->c->fetch[g->c->n_fetches++] = x;
    in[0] = gen_typed(g, WEFT_F32, 3, dim);
    return in[0].id && in[0].id != v.id && add_assign(g, v, in[0]);
}

/* ---- scan, user ops -------------------------------------------------------------------------- */

struct body {
    struct gen *g;
    weft_val w;
};

static weft_status scan_body(weft_graph *g, void *arg, int t, const weft_val *state,
                             const weft_val *x, weft_val *new_state, weft_val *y)
{
    struct body *b = arg;
    weft_val s;

    (void)t;
    s = weft_op(g, "mul", 2, (weft_val[]){x[0], b->w}, "");
    s = weft_op(g, "add", 2, (weft_val[]){s, state[0]}, "");
    new_state[0] = weft_op(g, "tanh", 1, &s, "");
    y[0] = weft_op(g, "mul", 2, (weft_val[]){new_state[0], x[0]}, "");
    return weft_graph_status(g);
}

bool draw_scan(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 1, 3), init, final, y;
    struct body b = {.g = g};
    struct wf_type t, step;
    int axis;

    (void)op;
    if (!x.id)
        return false;
    t = step = *gen_type(g, x);
    axis = (int)draw_int(&g->d, 0, t.rank - 1);
    if (t.dim[axis] < 1 || t.dim[axis] > 6 || (g->batch[0] && t.dim[0] == g->batch[0] && !axis))
        return false;
    step.rank--;
    for (int i = axis; i < step.rank; i++)
        step.dim[i] = t.dim[i + 1];
    init = gen_typed(g, t.dtype, step.rank, step.dim);
    b.w = gen_typed(g, t.dtype, 0, step.dim);
    if (!init.id || !b.w.id)
        return false;
    weft_scan(g->g, (int)t.dim[axis], 1, &init, 1, &x, 1, scan_body, &b,
              WEFT_OPTS(weft_scan_opts, .axis = draw_one_in(&g->d, 2) ? axis : axis - t.rank,
                        .reverse = draw_one_in(&g->d, 2)),
              &final, &y);
    return gen_take(g, y) && gen_take(g, final);
}

bool draw_user(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 0, 4)};

    (void)op;
    if (!in[0].id)
        return false;
    if (draw_one_in(&g->d, 3))
        in[0] = rule_scalar(g, gen_type(g, in[0])->dtype, 0.75);
    in[1] = draw_one_in(&g->d, 3) ? in[0] : gen_like(g, in[0]);
    return in[1].id && gen_op(g, "random.blend", 2, in, "by=%g", draw_real(&g->d, -1, 1)).id;
}

/* ---- einsum ---------------------------------------------------------------------------------- */

enum { MAX_LETTERS = 6 };

/* Axes of one operand by letter; -1: none. */
struct einsum {
    int64_t size[MAX_LETTERS];
    int n_axes[3], axis[3][MAX_LETTERS]; /* letters of both operands and the result */
};

static void add_letters(struct gen *g, struct einsum *e, int which, unsigned set)
{
    for (int l = 0; l < MAX_LETTERS; l++)
        if (set >> l & 1) {
            int at = (int)draw_int(&g->d, 0, e->n_axes[which]++);

            for (int i = e->n_axes[which] - 1; i > at; i--)
                e->axis[which][i] = e->axis[which][i - 1];
            e->axis[which][at] = l;
        }
}

/* Element of operand `which` at these indices of the letters. */
static int64_t einsum_index(const struct einsum *e, int which, const int64_t *index)
{
    int64_t at = 0;

    for (int i = 0; i < e->n_axes[which]; i++)
        at = at * e->size[e->axis[which][i]] + index[e->axis[which][i]];
    return at;
}

/* The sum written out, to compare with: einsum is not an op, so the plain definition does not know
 * it. */
/* What a sum of a few products may be off by, relative to their size. */
static double unit_of_sum(weft_dtype t)
{
    return t == WEFT_F32 ? 0x1p-20 : t == WEFT_BF16 ? 0x1p-6 : t == WEFT_F16 ? 0x1p-8 : 0x1p-50;
}

/* The same for the narrowest type that nodes from number k on compute in: under a policy the
 * products may be halves and their sum an f32. */
static double coarsest_unit(const weft_graph *g, int64_t k)
{
    double unit = 0;

    for (; k < g->n_nodes; k++)
        unit = fmax(unit, unit_of_sum(g->values[g->nodes[k].first_out].type.dtype));
    return unit;
}

/* Whether they compute in f16, whose smallest numbers are far apart: a step of 2^-24. */
static double smallest_step(const weft_graph *g, int64_t k)
{
    for (; k < g->n_nodes; k++)
        if (g->values[g->nodes[k].first_out].type.dtype == WEFT_F16)
            return 0x1p-24;
    return 0;
}

/* Nodes from number `first` on are the einsum's. */
static bool einsum_is_right(const struct gen *g, const struct einsum *e, const weft_val *in,
                            weft_val out, int64_t first)
{
    const struct wf_tensor *t = &g->c->first.val[out.id];
    int64_t n = wf_count(t), index[MAX_LETTERS] = {0}, total = 1;
    double *size = calloc((size_t)n + 1, sizeof *size);
    long double *sum =
        calloc((size_t)n + 1, sizeof *sum); /* more exact than the f64 it is compared with */
    double unit = fmax(coarsest_unit(g->g, first), unit_of_sum(t->type.dtype));
    double step = smallest_step(g->g, first);
    bool ok = true;

    for (int l = 0; l < MAX_LETTERS; l++)
        total *= e->size[l];
    for (int64_t k = 0; k < total; k++) {
        long double x = 1;
        int64_t at = einsum_index(e, 2, index);

        for (int i = 0; i < 2 && in[i].id; i++) {
            const struct wf_tensor *o = &g->c->first.val[in[i].id];

            x *= wf_get(o->data, o->type.dtype, einsum_index(e, i, index));
        }
        sum[at] += x;
        size[at] += fabs((double)x);
        for (int l = MAX_LETTERS - 1; l >= 0 && ++index[l] == e->size[l]; l--)
            index[l] = 0;
    }
    for (int64_t k = 0; k < n; k++) {
        double got = wf_get(t->data, t->type.dtype, k);

        ok &= !isfinite(got) || !isfinite((double)sum[k]) ||
              fabsl(got - sum[k]) <= unit * (size[k] + 1e-6) + step;
    }
    free(sum);
    free(size);
    return ok;
}

bool draw_einsum(struct gen *g, const char *op)
{
    struct einsum e = {.size = {1, 1, 1, 1, 1, 1}};
    unsigned a = (unsigned)draw_int(&g->d, 1, 63), b = (unsigned)draw_int(&g->d, 1, 63), r;
    bool single = draw_one_in(&g->d, 5);
    char text[3][16] = {"", "", ""}, equation[64];
    weft_dtype t = gen_float(g);
    weft_val in[2] = {WEFT_NIL, WEFT_NIL}, out;
    int64_t first;

    (void)op;
    a &= (unsigned)draw_bits(&g->d) | (unsigned)draw_bits(&g->d);
    b = single ? 0 : b & ((unsigned)draw_bits(&g->d) | (unsigned)draw_bits(&g->d));
    r = (a | b) & (unsigned)draw_bits(&g->d) & 63;
    for (int l = 0; l < MAX_LETTERS; l++)
        e.size[l] = (a | b) >> l & 1 ? draw_int(&g->d, 1, 4) : 1;
    add_letters(g, &e, 0, a);
    add_letters(g, &e, 1, b);
    add_letters(g, &e, 2, r);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < e.n_axes[i]; k++)
            text[i][k] = (char)("abXijK"[e.axis[i][k]]);
    for (int i = 0; i < (single ? 1 : 2); i++) {
        int64_t dim[MAX_LETTERS];

        for (int k = 0; k < e.n_axes[i]; k++)
            dim[k] = e.size[e.axis[i][k]];
        if (e.n_axes[i] && dim[0] == g->batch[0])
            return false; /* a symbolic size may change in the next set, the letter's other axis
                           * does not */
        in[i] = gen_typed(g, t, e.n_axes[i], dim);
        if (!in[i].id)
            return false;
    }
    snprintf(equation, sizeof equation, single ? "%s%s->%s" : "%s,%s->%s", text[0], text[1],
             text[2]);
    first = g->g->n_nodes;
    out = weft_einsum(g->g, equation, in[0], in[1]);
    if (!out.id)
        return gen_fail(g, "einsum \"%s\": %s", equation, g->g->error);
    if (!gen_take(g, out))
        return false;
    if (!einsum_is_right(g, &e, in, out, first))
        return gen_fail(g, "einsum \"%s\" differs from its sum written out", equation);
    return true;
}
