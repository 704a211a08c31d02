/* build.c - graphs and their builders: nodes, names, scopes, leaves. */
#include <stdio.h>

#include "graph/graph.h"

struct wf_scope {
    struct wf_scope *below;
    const char *before; /* the text to restore */
};

weft_status weft_graph_new(weft_ctx *ctx, weft_graph **out)
{
    weft_status st = wf_ops_ensure(ctx);
    weft_graph *g;

    if (st)
        return st;
    g = wf_alloc(ctx, sizeof *g);
    if (!g)
        return wf_err_nomem(ctx, sizeof *g, "graph");
    g->ctx = ctx;
    g->scope = g->device = "";
    wf_arena_init(&g->arena, ctx);
    wf_map_init(&g->names, ctx);
    st = wf_grow(ctx, &g->values, &g->cap_values, 64, sizeof *g->values);
    if (st) {
        weft_graph_free(g);
        return st;
    }
    g->n_values = 1;
    *out = g;
    return WEFT_OK;
}

void weft_graph_free(weft_graph *g)
{
    if (!g)
        return;
    wf_map_free(&g->names);
    wf_arena_free(&g->arena);
    wf_free(g->ctx, g->nodes);
    wf_free(g->ctx, g->values);
    wf_free(g->ctx, g->vars);
    wf_free(g->ctx, g);
}

weft_status weft_graph_status(const weft_graph *g)
{
    if (g->st)
        wf_err_set(g->error);
    return g->st;
}

weft_status wf_graph_fail(weft_graph *g, weft_status st)
{
    if (st && !g->st) {
        g->st = st;
        snprintf(g->error, sizeof g->error, "%s", weft_error());
    }
    return st;
}

static weft_val fail(weft_graph *g, weft_status st)
{
    wf_graph_fail(g, st);
    return WEFT_NIL;
}

static weft_status nomem(weft_graph *g)
{
    return wf_err_nomem(g->ctx, 0, "graph");
}

bool wf_check_val(weft_graph *g, weft_val v, const char *what)
{
    if (g->st)
        return false;
    if (v.id > 0 && v.id < g->n_values)
        return true;
    fail(g, wf_err(WEFT_EINVAL, "%s: value %d does not exist in this graph", what, v.id));
    return false;
}

bool wf_take_opts(weft_graph *g, void *copy, size_t today, const void *opts, const char *name)
{
    if (!g->st)
        wf_graph_fail(g, wf_opts_take(copy, today, opts, name));
    return !g->st;
}

/* ---- names ----------------------------------------------------------------------------------- */

static const char *scoped(weft_graph *g, const char *name)
{
    char *s = wf_arena_alloc(&g->arena, strlen(g->scope) + strlen(name) + 2);

    if (s)
        sprintf(s, "%s%s%s", g->scope, *g->scope ? "/" : "", name);
    return s;
}

/* Gives node `n` the name; made unique by a suffix unless `exact`. */
static weft_status set_name(weft_graph *g, int64_t n, const char *name, bool exact)
{
    const char *full = name;

    if (g->by_number) {
        g->nodes[n].name = name;
        return WEFT_OK;
    }
    if (wf_map_get(&g->names, full, NULL)) {
        char *s = wf_arena_alloc(&g->arena, strlen(full) + 16);

        if (exact)
            return wf_err(WEFT_EEXIST, "the name '%s' is taken", full);
        if (!s)
            return nomem(g);
        /* The node's index usually makes the suffix unique; the loop is for names that users chose
         * alike. */
        for (int64_t i = n;; i++) {
            sprintf(s, "%s_%lld", name, (long long)i);
            if (!wf_map_get(&g->names, s, NULL))
                break;
        }
        full = s;
    }
    g->nodes[n].name = full;
    return wf_map_put(&g->names, full, n);
}

static bool name_ok(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if ((unsigned char)*s <= ' ' || *s == '"' || *s == '\\' || *s == 127)
            return false;
    return true;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static weft_status copy_attr(weft_graph *g, const struct wf_op *op, const char *name,
                             struct wf_attr *to, const struct wf_attr *from)
{
    if (from->kind != to->kind)
        return wf_err(WEFT_EINVAL, "%s: attribute '%s' has a different type", op->name, name);
    *to = *from;
    to->given = true;
    if (to->kind == WF_STR) {
        to->s = wf_arena_strdup(&g->arena, from->s ? from->s : "");
        return to->s ? WEFT_OK : nomem(g);
    }
    if (to->kind == WF_INTS && to->n) {
        int64_t *p = wf_arena_alloc(&g->arena, (size_t)to->n * sizeof *p);

        if (!p)
            return nomem(g);
        memcpy(p, from->ints, (size_t)to->n * sizeof *p);
        to->ints = p;
    }
    if (to->kind == WF_FLOATS && to->n) {
        double *p = wf_arena_alloc(&g->arena, (size_t)to->n * sizeof *p);

        if (!p)
            return nomem(g);
        memcpy(p, from->floats, (size_t)to->n * sizeof *p);
        to->floats = p;
    }
    return WEFT_OK;
}

static weft_status fill_attrs(weft_graph *g, struct wf_node *n, int n_sets,
                              const struct wf_set *sets)
{
    const struct wf_op *op = n->op;

    n->attr = wf_arena_alloc(&g->arena, sizeof *n->attr * (size_t)(op->n_attrs + 1));
    if (!n->attr)
        return nomem(g);
    for (int i = 0; i < op->n_attrs; i++)
        n->attr[i] = op->attr[i].value;
    for (int s = 0; s < n_sets; s++) {
        int i = 0;
        weft_status st;

        while (i < op->n_attrs && strcmp(op->attr[i].name, sets[s].name))
            i++;
        if (i == op->n_attrs)
            return wf_err(WEFT_ENOENT, "%s: has no attribute '%s'", op->name, sets[s].name);
        st = copy_attr(g, op, sets[s].name, &n->attr[i], &sets[s].value);
        if (st)
            return st;
    }
    for (int i = 0; i < op->n_attrs; i++)
        if (!n->attr[i].given)
            return wf_err(WEFT_EINVAL, "%s: attribute '%s' must be given", op->name,
                          op->attr[i].name);
    return WEFT_OK;
}

static weft_status fill_inputs(weft_graph *g, struct wf_node *n, int n_in, const weft_val *in)
{
    const struct wf_op *op = n->op;
    int most = op->n_in_max < 0 ? WF_MAX_IN : op->n_in_max;

    if (n_in < op->n_in_min || n_in > most)
        return wf_err(WEFT_EINVAL, "%s: takes %d to %d inputs, got %d", op->name, op->n_in_min,
                      most, n_in);
    n->in = wf_arena_alloc(&g->arena, sizeof *n->in * (size_t)(n_in + 1));
    if (!n->in)
        return nomem(g);
    n->n_in = n_in;
    for (int i = 0; i < n_in; i++) {
        if (in[i].id < 0 || in[i].id >= g->n_values || (in[i].id == 0 && i < op->n_in_min))
            return wf_err(WEFT_EINVAL, "%s: input %d is not a value of this graph", op->name, i);
        n->in[i] = in[i].id;
    }
    return WEFT_OK;
}

static weft_status infer_node(weft_graph *g, const struct wf_node *n, struct wf_type *out)
{
    struct wf_type few[16], *in = few;
    struct wf_infer r = {n->op, n->attr, n->n_in, n->n_out, NULL, out};
    weft_status st;

    if (n->n_in > WF_COUNT(few)) {
        in = wf_alloc_n(g->ctx, n->n_in, sizeof *in);
        if (!in)
            return nomem(g);
    }
    for (int i = 0; i < n->n_in; i++)
        in[i] = g->values[n->in[i]].type;
    r.in = in;
    st = n->op->infer(&r);
    if (in != few)
        wf_free(g->ctx, in);
    return st;
}

static weft_status check_size(const struct wf_node *n, const struct wf_type *t)
{
    char text[WF_TYPE_TEXT];

    if (t->rank < 0 || t->rank > WEFT_MAX_RANK)
        return wf_err(WEFT_ESHAPE, "%s: the result would have rank %d; at most %d is supported",
                      n->op->name, t->rank, WEFT_MAX_RANK);
    if (!wf_type_fits(t))
        return wf_err(WEFT_ESHAPE, "%s: the size of %s overflows", n->op->name,
                      wf_type_text(t, text));
    return WEFT_OK;
}

/* Appends a node whose inputs and attributes are set, with its outputs; known: their types, or
 * NULL. */
static weft_status append(weft_graph *g, struct wf_node *n, const struct wf_type *known)
{
    struct wf_type inferred[WF_MAX_OUT];
    const struct wf_type *types = known ? known : inferred;
    int64_t n_out = n->op->n_out >= 0 ? n->op->n_out : wf_node_int(n, "n");
    weft_status st = WEFT_OK;

    if (n_out < 1 || n_out > WF_MAX_OUT)
        return wf_err(WEFT_ELIMIT, "%s: %lld outputs; 1 to %d are supported", n->op->name,
                      (long long)n_out, WF_MAX_OUT);
    n->n_out = (int)n_out;
    if (!known) {
        memset(inferred, 0, sizeof inferred);
        st = infer_node(g, n, inferred);
    }
    for (int i = 0; i < n->n_out && !known && !st; i++)
        st = check_size(n, &types[i]);
    if (!st)
        st = wf_grow(g->ctx, &g->nodes, &g->cap_nodes, g->n_nodes + 1, sizeof *g->nodes);
    if (!st)
        st = wf_grow(g->ctx, &g->values, &g->cap_values, g->n_values + n->n_out, sizeof *g->values);
    if (st)
        return st;
    n->first_out = (int32_t)g->n_values;
    n->device = g->device;
    n->uid = g->next_uid;
    n->var = n->feed = -1;
    g->nodes[g->n_nodes] = *n;
    for (int i = 0; i < n->n_out; i++)
        g->values[g->n_values + i] = (struct wf_value){types[i], (int32_t)g->n_nodes, i};
    return WEFT_OK;
}

/* What leaves need besides a node: an entry in the list of variables; a symbol for each unknown
 * size, so that rules can see which sizes are the same. */
static weft_status note_leaf(weft_graph *g, int32_t v)
{
    struct wf_node *n = &g->nodes[g->values[v].node];
    struct wf_type *t = &g->values[v].type;
    weft_status st;

    if (n->op->id == WF_OP_placeholder)
        for (int i = 0; i < t->rank; i++)
            if (t->dim[i] < 0)
                t->dim[i] = -2 - g->n_symbols++;
    if (n->op->id != WF_OP_variable)
        return WEFT_OK;
    st = wf_grow(g->ctx, &g->vars, &g->cap_vars, g->n_vars + 1, sizeof *g->vars);
    if (st)
        return st;
    n->var = (int32_t)g->n_vars;
    g->vars[g->n_vars++] = v;
    return WEFT_OK;
}

static weft_val build(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in,
                      int n_sets, const struct wf_set *sets, const char *name, bool exact)
{
    struct wf_node n = {.op = op};
    weft_status st;

    if (g->st)
        return WEFT_NIL;
    while (n_in > op->n_in_min && in[n_in - 1].id == 0)
        n_in--;
    st = fill_inputs(g, &n, n_in, in);
    if (!st)
        st = fill_attrs(g, &n, n_sets, sets);
    if (!st)
        st = append(g, &n, NULL);
    if (!st)
        st = set_name(g, g->n_nodes, name, exact);
    if (st) {
        if (*g->scope)
            wf_err_wrap(st, "%s", g->scope);
        return fail(g, st);
    }
    g->next_uid++;
    g->n_nodes++;
    g->n_values += n.n_out;
    st = note_leaf(g, n.first_out);
    return st ? fail(g, st) : (weft_val){n.first_out};
}

weft_status wf_check_named(const weft_graph *g, const struct wf_op *op, int n_in,
                           const weft_val *in)
{
    if (op->flags & WF_PLANNER)
        return wf_err(WEFT_EINVAL, "'%s' is created by planning only and cannot be built directly",
                      op->name);
    if (!(op->flags & WF_STATE_IN0) || n_in < 1 || in[0].id <= 0 || in[0].id >= g->n_values ||
        wf_val_node(g, in[0])->op->id == WF_OP_variable)
        return WEFT_OK;
    return wf_err(WEFT_EINVAL, "%s: '%s' is not a variable", op->name, weft_val_name(g, in[0]));
}

weft_val wf_build_named(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in,
                        int n_sets, const struct wf_set *sets, const char *name)
{
    const char *copy;

    if (g->st)
        return WEFT_NIL;
    if (!name_ok(name))
        return fail(
            g, wf_err(WEFT_EINVAL,
                      "'%.64s' is not a valid name: spaces, quotes and backslashes are not allowed",
                      name));
    copy = wf_arena_strdup(&g->arena, name);
    return copy ? build(g, op, n_in, in, n_sets, sets, copy, true) : fail(g, nomem(g));
}

weft_val wf_build_row(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in,
                      int n_sets, const struct wf_set *sets)
{
    const char *name;
    weft_val few[16], *cast = few;

    if (g->st)
        return WEFT_NIL;
    if ((g->autocast == WEFT_BF16 || g->autocast == WEFT_F16) && n_in > 0 && n_in <= WF_MAX_MANY) {
        if (n_in > WF_COUNT(few))
            cast = wf_arena_alloc(&g->arena, sizeof *cast * (size_t)n_in);
        if (!cast)
            return fail(g, nomem(g));
        for (int i = 0; i < n_in; i++)
            if (in[i].id < 0 || in[i].id >= g->n_values)
                return fail(g, wf_err(WEFT_EINVAL, "%s: input %d is not a value of this graph",
                                      op->name, i));
        wf_autocast(g, op, n_in, in, cast);
        in = cast;
        if (g->st)
            return WEFT_NIL;
    }
    name = scoped(g, op->name);
    if (!name)
        return fail(g, nomem(g));
    return build(g, op, n_in, in, n_sets, sets, name, false);
}

weft_val wf_build(weft_graph *g, int op_id, int n_in, const weft_val *in, int n_sets,
                  const struct wf_set *sets)
{
    return wf_build_row(g, wf_op_row(g->ctx, op_id), n_in, in, n_sets, sets);
}

weft_val wf_unary(weft_graph *g, int op_id, weft_val x)
{
    return wf_build(g, op_id, 1, &x, 0, NULL);
}

weft_val wf_binary(weft_graph *g, int op_id, weft_val a, weft_val b)
{
    return wf_build(g, op_id, 2, (weft_val[]){a, b}, 0, NULL);
}

/* The bytes of a constant, 64-byte aligned in the graph's arena. */
static char *copy_data(weft_graph *g, const void *from, int64_t bytes)
{
    char *data = wf_arena_alloc(&g->arena, (size_t)bytes + 64);

    if (!data)
        return NULL;
    data += (64 - (uintptr_t)data % 64) % 64;
    if (bytes)
        memcpy(data, from, (size_t)bytes);
    return data;
}

weft_status wf_copy_node(weft_graph *to, const struct wf_node *n, const int32_t *in,
                         const struct wf_type *types, int32_t *first_out)
{
    struct wf_node copy = {.op = n->op}, *made;
    const char *name, *device;
    weft_status st = fill_inputs(to, &copy, n->n_in, (const weft_val *)in);

    if (st)
        return st;
    copy.attr = wf_arena_alloc(&to->arena, sizeof *copy.attr * (size_t)(n->op->n_attrs + 1));
    if (!copy.attr)
        return nomem(to);
    for (int i = 0; i < n->op->n_attrs && !st; i++) {
        copy.attr[i] = n->attr[i];
        st = copy_attr(to, n->op, n->op->attr[i].name, &copy.attr[i], &n->attr[i]);
    }
    if (!st)
        st = append(to, &copy, types);
    name = wf_arena_strdup(&to->arena, n->name);
    device = *n->device ? wf_arena_strdup(&to->arena, n->device) : "";
    if (!name || !device)
        return nomem(to);
    if (!st)
        st = set_name(to, to->n_nodes, name, false);
    if (st)
        return st;
    made = &to->nodes[to->n_nodes];
    made->uid = n->uid;
    made->device = device;
    made->var = n->var;
    made->feed = n->feed;
    if (n->data) {
        made->data = copy_data(to, n->data, wf_type_bytes(&to->values[copy.first_out].type));
        if (!made->data)
            return nomem(to);
    }
    to->n_nodes++;
    to->n_values += copy.n_out;
    if (to->next_uid <= n->uid)
        to->next_uid = n->uid + 1;
    *first_out = copy.first_out;
    return WEFT_OK;
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static weft_val leaf(weft_graph *g, int op_id, const char *name, int n_sets,
                     const struct wf_set *sets)
{
    const char *full;

    if (g->st)
        return WEFT_NIL;
    if (!name || !name_ok(name))
        return fail(g, wf_err(WEFT_EINVAL, "a %s needs a name without spaces or quotes",
                              wf_op_row(g->ctx, op_id)->name));
    full = scoped(g, name);
    if (!full)
        return fail(g, nomem(g));
    return build(g, wf_op_row(g->ctx, op_id), 0, NULL, n_sets, sets, full, true);
}

static bool shape_ok(weft_graph *g, int rank, const int64_t *dim, const char *what)
{
    struct wf_type t = wf_type_of(WEFT_F64, rank, dim);

    if (rank < 0 || rank > WEFT_MAX_RANK) {
        fail(g, wf_err(WEFT_ESHAPE, "%s: rank %d is not in 0..%d", what, rank, WEFT_MAX_RANK));
        return false;
    }
    if (!wf_type_fits(&t)) {
        fail(g, wf_err(WEFT_ESHAPE, "%s: the shape's size overflows", what));
        return false;
    }
    return true;
}

weft_val weft_placeholder(weft_graph *g, const char *name, weft_dtype dtype, int rank,
                          const int64_t *dim)
{
    int64_t shape[WEFT_MAX_RANK];

    if (g->st || !shape_ok(g, rank, dim, name ? name : "placeholder"))
        return WEFT_NIL;
    if (dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES)
        return fail(
            g, wf_err(WEFT_EDTYPE, "placeholder '%s': dtype %d does not exist", name, (int)dtype));
    for (int i = 0; i < rank; i++)
        shape[i] = dim[i] < 0 ? WEFT_ANY : dim[i];
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", dtype), WF_SET_INTS("shape", rank, shape)};
    return leaf(g, WF_OP_placeholder, name, 2, sets);
}

weft_val weft_constant(weft_graph *g, const weft_tensor *value)
{
    struct wf_type t = wf_type_of(value->dtype, value->rank, value->dim);
    int64_t bytes = wf_type_bytes(&t);
    char *data;
    weft_val v;

    if (g->st)
        return WEFT_NIL;
    if (bytes < 0 || value->dtype <= WEFT_NONE || value->dtype >= WEFT_N_DTYPES)
        return fail(g, wf_err(WEFT_EINVAL, "constant: invalid dtype or shape"));
    struct wf_set sets[] = {WF_SET_DTYPE("dtype", value->dtype),
                            WF_SET_INTS("shape", value->rank, value->dim)};
    data = copy_data(g, value->data, bytes);
    if (!data)
        return fail(g, nomem(g));
    v = wf_build(g, WF_OP_constant, 0, NULL, 2, sets);
    if (v.id)
        g->nodes[g->values[v.id].node].data = data;
    return v;
}

weft_val weft_scalar(weft_graph *g, double value)
{
    float f = (float)value;
    weft_tensor t = weft_view(WEFT_F32, &f, 0, NULL);

    return weft_constant(g, &t);
}

weft_val wf_const_like(weft_graph *g, double v, weft_val like)
{
    int64_t bits = 0;
    weft_tensor t;

    if (!wf_check_val(g, like, "constant"))
        return WEFT_NIL;
    t = weft_view(wf_val_type_of(g, like)->dtype, &bits, 0, NULL);
    wf_set(&bits, t.dtype, 0, v);
    return weft_constant(g, &t);
}

static const char *const init_names[] = {
    [WEFT_INIT_DEFAULT] = "default",
    [WEFT_INIT_ZEROS] = "zeros",
    [WEFT_INIT_ONES] = "ones",
    [WEFT_INIT_CONSTANT] = "constant",
    [WEFT_INIT_UNIFORM] = "uniform",
    [WEFT_INIT_NORMAL] = "normal",
    [WEFT_INIT_TRUNCATED_NORMAL] = "truncated_normal",
    [WEFT_INIT_GLOROT_UNIFORM] = "glorot_uniform",
    [WEFT_INIT_GLOROT_NORMAL] = "glorot_normal",
    [WEFT_INIT_HE_UNIFORM] = "he_uniform",
    [WEFT_INIT_HE_NORMAL] = "he_normal",
    [WEFT_INIT_LECUN_UNIFORM] = "lecun_uniform",
    [WEFT_INIT_LECUN_NORMAL] = "lecun_normal",
    [WEFT_INIT_ORTHOGONAL] = "orthogonal",
    [WEFT_INIT_IDENTITY] = "identity",
    [WEFT_INIT_BAND] = "band",
};

weft_val weft_variable(weft_graph *g, const char *name, int rank, const int64_t *dim,
                       const weft_variable_opts *opts)
{
    weft_variable_opts o;
    weft_init_kind init;

    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_variable_opts") ||
        !shape_ok(g, rank, dim, name ? name : "variable"))
        return WEFT_NIL;
    init = o.init;
    if ((int)init < 0 || init >= WF_COUNT(init_names))
        return fail(g, wf_err(WEFT_EINVAL, "variable '%s': initializer %d does not exist",
                              name ? name : "", (int)init));
    if (init == WEFT_INIT_DEFAULT)
        init = rank >= 2 ? WEFT_INIT_GLOROT_UNIFORM : WEFT_INIT_ZEROS;
    struct wf_set sets[] = {
        WF_SET_DTYPE("dtype", o.dtype ? o.dtype : WEFT_F32),
        WF_SET_INTS("shape", rank, dim),
        WF_SET_BOOL("trainable", !o.not_trainable),
        WF_SET_STR("init", init_names[init]),
        WF_SET_FLOATS("init_params", 2, ((double[]){o.a, o.b})),
    };
    return leaf(g, WF_OP_variable, name, WF_COUNT(sets), sets);
}

/* ---- scopes and devices ---------------------------------------------------------------------- */

void weft_scope_push(weft_graph *g, const char *name)
{
    struct wf_scope *s = wf_arena_alloc(&g->arena, sizeof *s);
    const char *full = name && name_ok(name) ? scoped(g, name) : NULL;

    if (!s || !full) {
        fail(g, s && full == NULL && !(name && name_ok(name))
                    ? wf_err(WEFT_EINVAL, "a scope needs a name without spaces or quotes")
                    : nomem(g));
        return;
    }
    *s = (struct wf_scope){g->scopes, g->scope};
    g->scopes = s;
    g->scope = full;
}

void weft_scope_pop(weft_graph *g)
{
    if (!g->scopes) {
        fail(g, wf_err(WEFT_ESTATE, "weft_scope_pop: no scope is open"));
        return;
    }
    g->scope = g->scopes->before;
    g->scopes = g->scopes->below;
}

/* One part of a device: job:NAME, replica:N, task:N, KIND:N, device:KIND:N. Whether there is such a
 * kind of devices is checked when a function is created. */
static bool device_part_ok(const char *p, size_t n)
{
    static const char job[] = "job:", device[] = "device:";
    bool is_job = n > sizeof job - 1 && strncmp(p, job, sizeof job - 1) == 0;
    size_t at = 0, digits = 0;

    if (n > sizeof device - 1 && strncmp(p, device, sizeof device - 1) == 0)
        at = sizeof device - 1;
    if (is_job) {
        for (at = sizeof job - 1; at < n; at++)
            if (!wf_is_alpha(p[at]) && !wf_is_digit(p[at]) && p[at] != '_')
                return false;
        return true;
    }
    for (digits = at; digits < n && wf_is_alpha(p[digits]);)
        digits++;
    if (digits == at || digits >= n || p[digits] != ':' || n - digits - 1 > 9)
        return false;
    for (size_t k = digits + 1; k < n; k++)
        if (!wf_is_digit(p[k]))
            return false;
    return n > digits + 1;
}

static bool device_ok(const char *d)
{
    for (bool first = true; *d; first = false) {
        size_t n;

        if (*d == '/')
            d++;
        else if (!first)
            return false;
        n = strcspn(d, "/");
        if (!device_part_ok(d, n))
            return false;
        d += n;
    }
    return true;
}

void weft_device_push(weft_graph *g, const char *device)
{
    struct wf_scope *s = wf_arena_alloc(&g->arena, sizeof *s);
    const char *copy = device ? wf_arena_strdup(&g->arena, device) : NULL;

    if (!device || !device_ok(device)) {
        fail(g, wf_err(WEFT_EINVAL,
                       "device '%.64s': expected a name like cpu:0, /device:GPU:0 or "
                       "/job:ps/task:0/cpu:0",
                       device ? device : "(null)"));
        return;
    }
    if (!s || !copy) {
        fail(g, nomem(g));
        return;
    }
    *s = (struct wf_scope){g->devices, g->device};
    g->devices = s;
    g->device = copy;
}

void weft_device_pop(weft_graph *g)
{
    if (!g->devices) {
        fail(g, wf_err(WEFT_ESTATE, "weft_device_pop: no device is open"));
        return;
    }
    g->device = g->devices->before;
    g->devices = g->devices->below;
}

void weft_control(weft_graph *g, weft_val v, weft_val before)
{
    struct wf_node *n;
    int32_t *ctrl;

    if (!wf_check_val(g, v, "weft_control") || !wf_check_val(g, before, "weft_control"))
        return;
    n = &g->nodes[g->values[v.id].node];
    if (g->values[before.id].node >= g->values[v.id].node) {
        fail(g, wf_err(WEFT_EINVAL, "weft_control: '%s' was built after '%s'",
                       weft_val_name(g, before), weft_val_name(g, v)));
        return;
    }
    ctrl = wf_arena_alloc(&g->arena, sizeof *ctrl * (size_t)(n->n_ctrl + 1));
    if (!ctrl) {
        fail(g, nomem(g));
        return;
    }
    if (n->n_ctrl)
        memcpy(ctrl, n->ctrl, sizeof *ctrl * (size_t)n->n_ctrl);
    ctrl[n->n_ctrl++] = g->values[before.id].node;
    n->ctrl = ctrl;
}

weft_val weft_named(weft_graph *g, weft_val v, const char *name)
{
    const char *full;
    weft_status st;

    if (!wf_check_val(g, v, "weft_named"))
        return WEFT_NIL;
    if (!name || !name_ok(name))
        return fail(g, wf_err(WEFT_EINVAL, "weft_named: needs a name without spaces or quotes"));
    full = scoped(g, name);
    st = full ? set_name(g, g->values[v.id].node, full, false) : nomem(g);
    return st ? fail(g, st) : v;
}

weft_status weft_find(const weft_graph *g, const char *name, weft_val *out)
{
    int64_t n;

    if (!wf_map_get(&g->names, name, &n))
        return wf_err(WEFT_ENOENT, "the graph has no node '%s'", name);
    out->id = g->nodes[n].first_out;
    return WEFT_OK;
}

weft_status weft_val_type(const weft_graph *g, weft_val v, weft_tensor *out)
{
    const struct wf_type *t;

    if (v.id <= 0 || v.id >= g->n_values)
        return wf_err(WEFT_EINVAL, "value %d does not exist in this graph", v.id);
    t = &g->values[v.id].type;
    *out = weft_view(t->dtype, NULL, t->rank, t->dim);
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0)
            out->dim[i] = WEFT_ANY;
    return WEFT_OK;
}

const char *weft_val_name(const weft_graph *g, weft_val v)
{
    return v.id > 0 && v.id < g->n_values ? wf_val_node(g, v)->name : "";
}

weft_val weft_output(const weft_graph *g, weft_val v, int index)
{
    const struct wf_node *n;

    if (v.id <= 0 || v.id >= g->n_values)
        return WEFT_NIL;
    n = wf_val_node(g, v);
    return index >= 0 && index < n->n_out ? (weft_val){n->first_out + index} : WEFT_NIL;
}

weft_val weft_identity(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_identity, x);
}

weft_val weft_stop_gradient(weft_graph *g, weft_val x)
{
    return wf_unary(g, WF_OP_stop_gradient, x);
}

weft_val weft_matmul(weft_graph *g, weft_val a, weft_val b, const weft_matmul_opts *opts)
{
    weft_matmul_opts o;
    if (!wf_take_opts(g, &o, sizeof o, opts, "weft_matmul_opts"))
        return WEFT_NIL;
    struct wf_set sets[] = {WF_SET_BOOL("trans_a", o.trans_a), WF_SET_BOOL("trans_b", o.trans_b)};

    return wf_build(g, WF_OP_matmul, 2, (weft_val[]){a, b}, 2, sets);
}
