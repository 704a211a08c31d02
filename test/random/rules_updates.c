/* rules_updates.c - updates that passes and the order of execution must get right: updates that run
 * only because another node waits for them, and several updates of one variable. */
#include "random/rules.h"
#include "weft/optim.h"

/* A new state variable of this type. */
static weft_val new_state(struct gen *g, const struct wf_type *t)
{
    weft_val v = gen_variable(g, t->dtype, t->rank, t->dim, true);

    return v.id && gen_settle(g) ? v : WEFT_NIL;
}

/* Builds a node that nothing else of the graph will read. */
static weft_val unseen(struct gen *g, const char *op, int n_in, const weft_val *in)
{
    int n_pool = g->n_pool;
    weft_val v = gen_op(g, op, n_in, in, "%s", "");

    g->n_pool = n_pool;
    return v;
}

static void fetch(struct gen *g, weft_val v)
{
    if (v.id && g->c->n_fetches < MAX_FETCHES)
        g->c->fetch[g->c->n_fetches++] = v;
}

/* ---- updates that another node waits for --------------------------------------------------------
 */

/* An update of a variable of its own, or a value computed from it that nothing else reads. */
static weft_val unasked_update(struct gen *g)
{
    int64_t dim[2] = {draw_int(&g->d, 1, 4), draw_int(&g->d, 1, 4)};
    struct wf_type t = wf_type_of(WEFT_F32, 2, dim);
    weft_val in[2] = {new_state(g, &t)}, u;
    char word[32];

    in[1] = in[0].id ? gen_typed(g, WEFT_F32, 2, dim) : WEFT_NIL;
    if (!in[1].id)
        return WEFT_NIL;
    u = unseen(g, draw_word(&g->d, "assign|assign_add", word), 2, in);
    if (!u.id || draw_one_in(&g->d, 2))
        return u;
    in[0] = u;
    if (draw_one_in(&g->d, 4)) {
        in[1] = gen_typed(g, WEFT_F32, 2, (int64_t[]){dim[1], draw_int(&g->d, 1, 4)});
        return in[1].id ? unseen(g, "matmul", 2, in) : WEFT_NIL;
    }
    return unseen(g, draw_word(&g->d, "neg|tanh|sum|identity", word), 1, in);
}

/* What passes replace by another value: a neutral operand, a view, a value that is spread or
 * reduced, constants. */
static weft_val replaced(struct gen *g, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    weft_val in[2] = {x, x};
    char word[32];

    switch (draw_int(&g->d, 0, 7)) {
    case 0: return gen_op(g, draw_word(&g->d, "identity|stop_gradient", word), 1, in, "%s", "");
    case 1: return gen_op(g, "reshape", 1, in, "shape=%s", "[-1]");
    case 2:
        in[draw_int(&g->d, 0, 1)] = rule_scalar(g, t.dtype, 0);
        return gen_op(g, "add", 2, in, "%s", "");
    case 3:
        in[draw_int(&g->d, 0, 1)] = rule_scalar(g, t.dtype, 1);
        return gen_op(g, "mul", 2, in, "%s", "");
    case 4:
        return gen_op(g, draw_word(&g->d, "reduce_to_like|broadcast_like|reshape_like", word), 2,
                      in, "%s", "");
    case 5:
        in[0] = rule_scalar(g, t.dtype, 0.5);
        return gen_op(g, "broadcast_like", 2, in, "%s", "");
    case 6:
        in[0] = rule_scalar(g, t.dtype, 0.5);
        return gen_op(g, draw_word(&g->d, "neg|tanh", word), 1, in, "%s", "");
    default:
        in[1] = gen_spread(g, t.dtype, x);
        return in[1].id ? gen_op(g, "reduce_to_like", 2, in, "%s", "") : WEFT_NIL;
    }
}

/* What passes join with others: element-wise steps, products, sums over all axes but the last,
 * scaled gradients. */
static weft_val joined(struct gen *g, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    weft_val in[2] = {x, x};
    char word[32];

    if (t.rank == 0 || draw_one_in(&g->d, 3))
        return gen_op(g, draw_word(&g->d, "relu|tanh|neg|square", word), 1, in, "%s", "");
    if (draw_one_in(&g->d, 3) && t.dim[t.rank - 1] > 0) {
        in[1] = gen_ids(g, 0, t.dim[t.rank - 1] - 1, t.rank - 1, t.dim);
        in[0] = in[1].id ? unseen(g, "sparse_softmax_xent", 2, in) : WEFT_NIL;
        if (!in[0].id)
            return WEFT_NIL;
        in[0].id++; /* the gradient */
        in[1] = rule_scalar(g, gen_type(g, in[0])->dtype, 0.5);
        return gen_op(g, "mul", 2, in, "%s", "");
    }
    if (t.rank != 2)
        return gen_op(g, "sum", 1, in, "axes=[%d]", 0);
    in[0] = gen_typed(g, t.dtype, 2, (int64_t[]){t.dim[0], draw_int(&g->d, 1, 3)});
    return in[0].id ? gen_op(g, "matmul", 2, in, "trans_a=%s", "true") : WEFT_NIL;
}

/* A node waits for an update that is not asked for, and is read. */
bool draw_awaited(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 0, 3), u, in[2];
    char word[32];

    (void)op;
    if (!x.id || g->smooth)
        return false;
    u = unasked_update(g);
    in[0] = u.id ? draw_one_in(&g->d, 3) ? joined(g, x) : replaced(g, x) : WEFT_NIL;
    if (!in[0].id || (wf_val_node(g->g, in[0])->op->flags & WF_LEAF))
        return false;
    weft_control(g->g, in[0], u);
    g->c->waits = true;
    if (draw_one_in(&g->d, 2)) {
        if (draw_one_in(&g->d, 3))
            in[0] = gen_op(g, "reshape", 1, in, "shape=%s", "[1,-1]");
        in[1] = in[0].id ? gen_like(g, in[0]) : WEFT_NIL;
        in[0] =
            in[1].id ? gen_op(g, draw_word(&g->d, "add|mul|sub", word), 2, in, "%s", "") : WEFT_NIL;
    }
    fetch(g, in[0]);
    return in[0].id;
}

/* ---- several updates of one variable ------------------------------------------------------------
 */

/* What an update writes: a value of the pool, the variable itself, or something computed from an
 * earlier update. */
static weft_val written(struct gen *g, weft_val v, weft_val before)
{
    int64_t pick = draw_int(&g->d, 0, 5);
    char word[32];

    if (pick == 0)
        return v;
    if (pick == 1)
        return unseen(g, draw_word(&g->d, "neg|tanh|identity", word), 1, &v);
    if (pick <= 3 && before.id)
        return pick == 2 ? before
                         : unseen(g, draw_word(&g->d, "neg|tanh|identity", word), 1, &before);
    return gen_like(g, v);
}

/* A value that equals what an update left, or is computed from it (and from `slow`, which comes
 * late), fetched. */
static void look_at(struct gen *g, weft_val u, weft_val slow)
{
    weft_val in[2] = {u, rule_scalar(g, gen_type(g, u)->dtype, draw_one_in(&g->d, 2))};
    bool one = in[1].id && gen_max_abs(g, in[1]) == 1;
    char word[32];

    switch (draw_int(&g->d, 0, 4)) {
    case 0: fetch(g, unseen(g, draw_word(&g->d, "tanh|neg|identity", word), 1, in)); break;
    case 1: fetch(g, in[1].id ? unseen(g, one ? "mul" : "add", 2, in) : WEFT_NIL); break;
    case 2: fetch(g, u); break;
    case 3:
        in[1] = slow;
        fetch(g, slow.id ? unseen(g, "mul", 2, in) : WEFT_NIL);
        break;
    default: break;
    }
}

/* Two or three updates of one variable, in the order in which they were built. */
bool draw_twice(struct gen *g, const char *op)
{
    int64_t dim[2] = {draw_int(&g->d, 1, 4), draw_int(&g->d, 1, 4)};
    struct wf_type t = wf_type_of(WEFT_F32, 2, dim);
    int n = (int)draw_int(&g->d, 2, 3);
    weft_val in[2], u[3] = {WEFT_NIL}, other = WEFT_NIL, slow = WEFT_NIL;
    char word[32];

    (void)op;
    if (g->smooth || g->c->n_updates + 4 > MAX_UPDATES)
        return false;
    in[0] = draw_one_in(&g->d, 3) ? gen_variable(g, WEFT_F32, 2, dim, false) : new_state(g, &t);
    if (!in[0].id || !gen_settle(g))
        return false;
    if (draw_one_in(&g->d, 2)) { /* an update of another variable that has to wait for a reader */
        other = new_state(g, &t);
        in[1] = other.id ? gen_like(g, other) : WEFT_NIL;
        slow = in[1].id ? unseen(g, "assign", 2, (weft_val[]){other, in[1]}) : WEFT_NIL;
        if (slow.id)
            g->c->update[g->c->n_updates++] = slow;
    }
    in[1] = WEFT_NIL;
    for (int i = 0; i < n; i++) {
        if (!in[1].id || !draw_one_in(&g->d, 3))
            in[1] = written(g, in[0], i ? u[i - 1] : slow); /* else the same once more */
        u[i] = in[1].id ? unseen(g, draw_word(&g->d, "assign|assign_add|assign_add", word), 2, in)
                        : WEFT_NIL;
        if (!u[i].id)
            return false;
        g->c->update[g->c->n_updates++] = u[i];
        look_at(g, u[draw_int(&g->d, 0, i)], slow);
    }
    for (int i = 0; i < 2; i++) { /* readers of the old values, built late */
        weft_val v = i ? other : in[0];

        if (v.id && draw_one_in(&g->d, 2))
            fetch(g, unseen(g, draw_word(&g->d, "tanh|neg", word), 1, &v));
    }
    return true;
}

/* ---- updates by products ------------------------------------------------------------------------
 */

/* A learning rate that is computed here, or none. */
static weft_val new_rate(struct gen *g)
{
    int64_t none = 0;
    weft_val in[2];

    if (!draw_one_in(&g->d, 3))
        return WEFT_NIL;
    in[0] = gen_ids_typed(g, WEFT_F32, 1, 2, false, 0, &none);
    in[1] = rule_scalar(g, WEFT_F32, 0.125);
    return in[0].id && in[1].id ? unseen(g, "mul", 2, in) : WEFT_NIL;
}

/* Reads the variable after its gradient was built: by itself, or with the sums of columns, which
 * the product may compute. */
static void read_weights(struct gen *g, weft_val w, weft_val sums)
{
    weft_val in[2] = {w, sums};
    char word[32];

    if (sums.id && !draw_one_in(&g->d, 3))
        fetch(g, unseen(g, draw_word(&g->d, "sub|mul", word), 2, in));
    else
        fetch(g, unseen(g, draw_word(&g->d, "neg|tanh", word), 1, in));
}

/* Doubles a variable; nil if that could not be built. */
static weft_val doubled(struct gen *g, weft_val v)
{
    weft_val u = unseen(g, "assign_add", 2, (weft_val[]){v, v});

    if (u.id)
        g->c->update[g->c->n_updates++] = u;
    return u;
}

/* The weights of a layer, stepped by a product: with the sums of its columns, readers of the old
 * weights and of the product, updates of what the product reads, another update of the weights. */
bool draw_trained_product(struct gen *g, const char *op)
{
    weft_val dy = gen_any(g, FLOATS, 2, 2), in[2], w, product, sums = WEFT_NIL, up, other;
    weft_val again = WEFT_NIL;
    int64_t dim[2] = {draw_int(&g->d, 1, 4)};
    weft_optim o;

    (void)op;
    if (!dy.id || g->smooth || gen_type(g, dy)->dtype != WEFT_F32 ||
        g->c->n_updates + 4 > MAX_UPDATES)
        return false;
    dim[1] = gen_type(g, dy)->dim[1];
    if (dim[1] <= 8 && draw_one_in(&g->d, 3))
        dim[0] = dim[1];
    w = gen_variable(g, WEFT_F32, 2, dim, false);
    in[0] = w.id && gen_settle(g)
                ? gen_typed(g, WEFT_F32, 2, (int64_t[]){gen_type(g, dy)->dim[0], dim[0]})
                : WEFT_NIL;
    in[1] = dy;
    if (!in[0].id)
        return false;
    if (draw_one_in(&g->d, 3) && !(g->batch[0] && gen_type(g, in[0])->dim[0] == g->batch[0])) {
        struct wf_type t = *gen_type(g, in[0]);

        in[0] = new_state(g, &t);
        if (!in[0].id)
            return false;
        other = doubled(g, in[0]);
        if (other.id && draw_one_in(&g->d, 2)) /* something that may fail waits for it */
            fetch(g, unseen(g, "check_numerics", 1, &other));
        if (other.id &&
            draw_one_in(&g->d, 2)) { /* the product reads the result, which is overwritten */
            again = in[0];
            in[0] = other;
        }
    }
    product = gen_op(g, "matmul", 2, in, "trans_a=%s", "true");
    if (!product.id)
        return false;
    if (again.id && !draw_one_in(&g->d, 3))
        doubled(g, again);
    if (!draw_one_in(&g->d, 4)) /* nothing else reads it */
        g->n_pool -= g->n_pool && g->pool[g->n_pool - 1].id == product.id;
    if (!draw_one_in(&g->d, 3))
        sums = gen_op(g, "sum", 1, &dy, "axes=%s", "[0]");
    if (draw_one_in(&g->d, 3))
        read_weights(g, w, sums);
    if (again.id && dim[0] == dim[1]) /* the old value of what the product waits for */
        read_weights(g, again, sums);
    if (weft_optim_init(&o, "sgd", "learning_rate=0.125"))
        return false;
    o.learning_rate = new_rate(g);
    if (draw_one_in(&g->d, 8))
        doubled(g, w);
    if (weft_apply_gradients(g->g, &o, 1, &w, &product, &up))
        return gen_take(g, WEFT_NIL);
    if (!gen_settle(g))
        return false;
    g->c->update[g->c->n_updates++] = up;
    if (draw_one_in(&g->d, 3))
        read_weights(g, w, sums);
    return true;
}
