/* graph.h - the door of the graph layer: nodes in an array, builders, gradients, passes.
 *
 * Nodes are in topological order: an input's node comes before its user. Value 0 means none. Node
 * and value arrays may move when something is built: keep indices, not pointers, across a builder
 * call. */
#ifndef WF_GRAPH_H
#define WF_GRAPH_H

#include "op/op.h"
#include "weft/graph.h"

struct wf_node {
    const struct wf_op *op;
    int32_t uid; /* kept by passes, copies and save: random numbers depend on it */
    int n_in, n_out, n_ctrl;
    int32_t *in;       /* value ids, 0 if an optional operand is absent */
    int32_t first_out; /* outputs are values first_out .. first_out + n_out - 1 */
    int32_t *ctrl;     /* node indices that must run before */
    struct wf_attr *attr;
    const char *name;   /* never NULL; in a graph made by a pass, only for messages */
    const char *device; /* "" for none */
    const void *data;   /* constant: its bytes, 64-byte aligned */
    int32_t var;  /* variable: its number in the graph it was built in, or in a function's store;
                   * otherwise -1 */
    int32_t feed; /* placeholder of a plan: the number of the feed that fills it; otherwise -1 */
};

struct wf_value {
    struct wf_type type;
    int32_t node;
    int32_t index; /* which output */
};

struct weft_graph {
    weft_ctx *ctx;
    struct wf_arena arena;
    struct wf_node *nodes;
    int64_t n_nodes, cap_nodes;
    struct wf_value *values; /* [0] is none */
    int64_t n_values, cap_values;
    int32_t *vars; /* value ids of the variables, in the order they were built */
    int64_t n_vars, cap_vars;
    int32_t next_uid;
    int64_t n_symbols; /* sizes introduced by placeholders: -2, -3, … */
    struct wf_map names;
    bool by_number; /* made by a pass: names are not in the map, and two nodes may have the same */
    const char *scope, *device;
    struct wf_scope *scopes, *devices; /* stacks */
    weft_dtype autocast,
        autocasts[16]; /* the open policy (NONE or F32: none), and those around it */
    int n_autocast;
    weft_status st; /* sticky */
    char error[512];
};

/* ---- building -------------------------------------------------------------------------------- */

/* Short forms of struct wf_set, one attribute given to a builder. */
#define WF_SET_INT(n, v)             \
    {                                \
        n,                           \
        {                            \
            .kind = WF_INT, .i = (v) \
        }                            \
    }
#define WF_SET_BOOL(n, v)                     \
    {                                         \
        n,                                    \
        {                                     \
            .kind = WF_BOOL, .i = (v) ? 1 : 0 \
        }                                     \
    }
#define WF_SET_FLOAT(n, v)             \
    {                                  \
        n,                             \
        {                              \
            .kind = WF_FLOAT, .f = (v) \
        }                              \
    }
#define WF_SET_STR(n, v)             \
    {                                \
        n,                           \
        {                            \
            .kind = WF_STR, .s = (v) \
        }                            \
    }
#define WF_SET_DTYPE(n, v)             \
    {                                  \
        n,                             \
        {                              \
            .kind = WF_DTYPE, .i = (v) \
        }                              \
    }
#define WF_SET_INTS(n_, len, p)                      \
    {                                                \
        n_,                                          \
        {                                            \
            .kind = WF_INTS, .n = (len), .ints = (p) \
        }                                            \
    }
#define WF_SET_FLOATS(n_, len, p)                        \
    {                                                    \
        n_,                                              \
        {                                                \
            .kind = WF_FLOATS, .n = (len), .floats = (p) \
        }                                                \
    }

/* Builds a node; returns its first value, or WEFT_NIL with the graph's sticky error set. Trailing
 * absent inputs may be omitted. Everything is copied. */
weft_val wf_build(weft_graph *g, int op_id, int n_in, const weft_val *in, int n_sets,
                  const struct wf_set *sets);
weft_val wf_build_row(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in,
                      int n_sets, const struct wf_set *sets);
/* The same under exactly this name, also for leaves (the caller sets a constant's data): for
 * readers of graphs. */
weft_val wf_build_named(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in,
                        int n_sets, const struct wf_set *sets, const char *name);
/* Whether users may build this op by name with these operands. Not if only passes create it; and an
 * op that changes a variable must get one. For readers and for builders by name; the C builders
 * check this themselves. */
weft_status wf_check_named(const weft_graph *g, const struct wf_op *op, int n_in,
                           const weft_val *in);
/* Short forms for ops without attributes. */
weft_val wf_unary(weft_graph *g, int op_id, weft_val x);
weft_val wf_binary(weft_graph *g, int op_id, weft_val a, weft_val b);

/* The operands of a node, cast as the open autocast policy requires. */
void wf_autocast(weft_graph *g, const struct wf_op *op, int n_in, const weft_val *in,
                 weft_val *out);

/* Keeps the first error of a graph (st and the thread's text); returns st. */
weft_status wf_graph_fail(weft_graph *g, weft_status st);

static inline const struct wf_value *wf_val(const weft_graph *g, weft_val v)
{
    return &g->values[v.id];
}
static inline const struct wf_type *wf_val_type_of(const weft_graph *g, weft_val v)
{
    return &g->values[v.id].type;
}
static inline const struct wf_node *wf_val_node(const weft_graph *g, weft_val v)
{
    return &g->nodes[g->values[v.id].node];
}
static inline int64_t wf_node_int(const struct wf_node *n, const char *name)
{
    return wf_attr_int(n->op, n->attr, name);
}
static inline double wf_node_float(const struct wf_node *n, const char *name)
{
    return wf_attr_float(n->op, n->attr, name);
}
/* x summed (broadcast) to the shape of `like`; x itself if the shapes are known to be the same. */
weft_val wf_reduce_to_like(weft_graph *g, weft_val x, weft_val like);
weft_val wf_broadcast_like(weft_graph *g, weft_val x, weft_val like);
/* x with axes of size 1 inserted at `axes` of a result of `rank` (those removed by a reduction
 * without keepdims). */
weft_val wf_expand_axes(weft_graph *g, weft_val x, int n, const int64_t *axes, int rank);
/* A constant scalar of the dtype of `like` (any float or integer type). */
weft_val wf_const_like(weft_graph *g, double v, weft_val like);
/* Whether v is a valid value of g. If not, sets the sticky error (naming `what`). */
bool wf_check_val(weft_graph *g, weft_val v, const char *what);
/* wf_opts_take with the sticky error. */
bool wf_take_opts(weft_graph *g, void *copy, size_t today, const void *opts, const char *name);

/* ---- gradient rules -------------------------------------------------------------------------- */

/* A rule gets copies of the node's handles and fills din[i] for the inputs that have a gradient
 * (WEFT_NIL otherwise). dout[i] is WEFT_NIL if no gradient reaches that output; at least one does.
 * `need[i]` says whether din[i] is needed: a rule may skip expensive ones that are not. */
struct wf_grad {
    weft_graph *g;
    const struct wf_op *op;
    const struct wf_attr *attr;
    int n_in, n_out;
    const weft_val *in, *out, *dout;
    const bool *need;
    weft_val *din;
    int64_t first_node; /* nodes from here on were built by the rule */
};
typedef weft_status wf_grad_fn(struct wf_grad *);
static inline int64_t wf_grad_int(const struct wf_grad *r, const char *name)
{
    return wf_attr_int(r->op, r->attr, name);
}
static inline double wf_grad_float(const struct wf_grad *r, const char *name)
{
    return wf_attr_float(r->op, r->attr, name);
}

/* For composite ops: differentiates an expansion into primitives instead. The rule rebuilds the
 * outputs from r->in with primitive ops and calls this with them. Only nodes built by the rule are
 * differentiated: an input that depends on another input counts as independent of it, as in any
 * rule. */
weft_status wf_grad_expanded(struct wf_grad *r, const weft_val *expanded_outputs);

/* ---- rewriting ------------------------------------------------------------------------------- */

/* Appends a copy of node n of another graph with the given inputs. Name, device, uid, numbers of
 * variable and feed, and constant data are kept; control dependencies are not. types: of its
 * outputs; NULL: inferred from the inputs. */
weft_status wf_copy_node(weft_graph *to, const struct wf_node *n, const int32_t *in,
                         const struct wf_type *types, int32_t *first_out);

/* A pass builds a new graph from an old one, node by node. map[old value] = new value (0: none
 * yet). */
struct wf_rewrite {
    const weft_graph *from;
    weft_graph *to;
    int32_t *map;
    int32_t *in;   /* scratch for the mapped inputs of one node */
    bool *live;    /* per old node: needed by the roots */
    int32_t *root; /* per root: the new value if it is not the mapped one, or 0; NULL: all are */
};
/* Starts a rewrite of what `roots` (value ids) need: data, control dependencies and updates of
 * state. */
weft_status wf_rewrite_begin(struct wf_rewrite *rw, const weft_graph *from, int n_roots,
                             const int32_t *roots);
/* Copies node k with its inputs mapped and its types unchanged. */
weft_status wf_rewrite_copy(struct wf_rewrite *rw, int64_t k);
/* The same for inputs in rw->in, which may have other types if `infer` is set. */
weft_status wf_rewrite_copy_as(struct wf_rewrite *rw, const struct wf_node *n, bool infer);
/* Maps the inputs of node k into rw->in. */
void wf_rewrite_inputs(struct wf_rewrite *rw, int64_t k);
/* Gives a node made by the pass the name, for messages, and the device of the node it replaces. */
void wf_rewrite_name(struct wf_rewrite *rw, int32_t made, const struct wf_node *replaced);
/* Carries over control dependencies and drops what the roots no longer need; on success *out is the
 * new graph and roots[] are mapped. Frees the rest. */
weft_status wf_rewrite_end(struct wf_rewrite *rw, weft_status st, int n_roots, int32_t *roots,
                           weft_graph **out);

/* ---- who reads what (uses.c) ----------------------------------------------------------------- */

/* live[node]: whether the roots need it. In a graph made by a pass that is also every node with an
 * effect: the pass copied it because the roots needed it, perhaps by way of a node that it
 * replaced. */
void wf_live_nodes(const weft_graph *g, int n_roots, const int32_t *roots, bool *live);

/* late[node]: whether it depends on a node that overwrites a variable, or is one. */
void wf_find_late(const weft_graph *g, bool *late);

/* The value whose bytes v shows, following views. */
int32_t wf_view_root(const weft_graph *g, int32_t v);

/* The value whose bytes node n reads as operand i, following views; 0: none, because the operand is
 * absent, because n only shows them in another shape, or because n overwrites them. */
int32_t wf_value_read(const weft_graph *g, const struct wf_node *n, int i);
/* The value whose bytes node n overwrites, following views; 0: none. */
int32_t wf_value_updated(const weft_graph *g, const struct wf_node *n);

/* The uses of every value by live nodes. */
struct wf_uses {
    int32_t *first, *reader; /* reader[first[v] .. first[v + 1]): node numbers, ascending, one for
                              * each operand */
    int32_t *n_fetched;      /* per value: how often it is a root */
    bool *awaited;           /* per node: another one waits for it (control dependency) */
    int32_t *first_update;   /* per value: the first node that overwrites its bytes, or INT32_MAX */
};
weft_status wf_uses_find(struct wf_uses *u, const weft_graph *g, int n_roots, const int32_t *roots);
void wf_uses_free(struct wf_uses *u, weft_ctx *ctx);
static inline int32_t wf_uses_count(const struct wf_uses *u, int32_t v)
{
    return u->first[v + 1] - u->first[v] + u->n_fetched[v];
}

/* Whether the gradient of a table consists only of lookups. If so, their ids and rows, joined in
 * the order of the sum (build_optim.c). */
bool wf_grad_rows(weft_graph *g, weft_val table, weft_val grad, weft_val *ids, weft_val *rows);

/* fails[node] for the nodes of `order` (NULL: all, as built): whether its kernel may refuse the
 * data of a step after those before it in the order have passed. All types must be known. */
weft_status wf_find_fails(const weft_graph *g, int64_t n_order, const int32_t *order, bool *fails);

/* ---- fingerprints (describe.c) --------------------------------------------------------------- */

struct wf_fprint;
/* Adds the nodes of g to the graph part of a fingerprint, and the values that are its feeds,
 * fetches, … (what: "feed"). */
void wf_graph_describe(const weft_graph *g, struct wf_fprint *f);
void wf_values_describe(const weft_graph *g, const char *what, int64_t n, const int32_t *values,
                        struct wf_fprint *f);

/* ---- passes ---------------------------------------------------------------------------------- */

/* A copy of what the roots need. */
weft_status wf_pass_copy(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out);

/* A copy of what the roots need in which placeholder feeds[i] has the number i and type
 * feed_types[i], and all types are inferred again from those. */
weft_status wf_pass_resolve(const weft_graph *g, int n_feeds, const int32_t *feeds,
                            const struct wf_type *feed_types, int n_roots, int32_t *roots,
                            weft_graph **out);

/* A copy of what the roots need with every float as f64, for gradient checks. */
weft_status wf_pass_as_f64(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out);

/* Computes a node whose inputs are constants: fills out[] (memory is allocated). */
typedef weft_status wf_eval_fn(void *arg, const struct wf_node *n, const struct wf_tensor *in,
                               struct wf_tensor *out);

enum wf_pass {
    WF_PASS_FOLD = 1,    /* constants are computed once */
    WF_PASS_CSE = 2,     /* equal nodes become one, except random ones */
    WF_PASS_ALGEBRA = 4, /* x + 0, x * 1, transposes into products, … */
    WF_PASS_FUSE = 8,    /* products with their epilogues, element-wise chains */
    WF_PASS_ALL = 15,
};
/* Fold, CSE and algebra, according to the mask. Dead nodes are always removed. */
weft_status wf_pass_simplify(const weft_graph *g, unsigned mask, wf_eval_fn *eval, void *arg,
                             int n_roots, int32_t *roots, weft_graph **out);
/* Moves a constant factor of a cross-entropy's gradient into the node that computes the
 * gradient. */
weft_status wf_pass_absorb(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out);
/* Products that do a second job as well: the sums of their operand's columns, or the update of the
 * variable whose gradient they are (with `updates`), if nothing after them may fail (all_fail:
 * everything may). All types must be known. */
weft_status wf_pass_join(const weft_graph *g, bool updates, bool all_fail, int n_roots,
                         int32_t *roots, weft_graph **out);
/* If updates read each other's variables, the later one reads a copy. *out is NULL if none do. */
weft_status wf_pass_uncross(const weft_graph *g, int n_roots, int32_t *roots, weft_graph **out);
/* Roots from `first` on are gradients that go into flat vectors: each gets a value of its own that
 * an instruction computes. */
weft_status wf_pass_own(const weft_graph *g, int n_roots, int32_t *roots, int first,
                        weft_graph **out);
/* What the kernels can run as one program: queried by the pass, answered by the kernels' tables. */
struct wf_fusing {
    /* Whether this op can be a step of a program, with operands and a result of these types. */
    bool (*step)(const struct wf_op *op, int n_in, const struct wf_type *in,
                 const struct wf_type *out);
    /* Whether a program whose last step has dtype `last` can run after this product of two
     * operands. */
    bool (*anchor)(const struct wf_op *op, const struct wf_attr *attr, const struct wf_type *in,
                   const struct wf_type *product, weft_dtype last);
    /* Whether there is a kernel for operands and results of these types, which need not be those of
     * the op's rule: a result rounded as it is written, an operand widened as it is read. NULL:
     * there are only those of the rules. */
    bool (*take)(const struct wf_op *op, const struct wf_attr *attr, int n_in,
                 const struct wf_type *in, int n_out, const struct wf_type *out);
};
/* Casts between halves and f32 become part of the nodes next to them. */
weft_status wf_pass_mixed(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                          int32_t *roots, weft_graph **out);
/* Batch normalization does the addition and the ReLU that follow it, and its gradient the
 * ReLU's. */
weft_status wf_pass_norms(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                          int32_t *roots, weft_graph **out);
/* Gradients of layer normalizations do the addition that follows them: after programs have been
 * fused. */
weft_status wf_pass_residuals(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                              int32_t *roots, weft_graph **out);
/* All types must be known. */
weft_status wf_pass_fuse(const weft_graph *g, const struct wf_fusing *can, int n_roots,
                         int32_t *roots, weft_graph **out);

#endif
