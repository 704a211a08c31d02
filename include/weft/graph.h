/* weft/graph.h - models as dataflow graphs, and their gradients.
 *
 * A graph is an array of nodes in the order they were built; values are small handles. Builders are
 * sticky: the first error is kept with its text, later builders return the null value, and
 * weft_graph_status (or compiling a function) reports it once. A graph may be used by one thread at
 * a time. */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_graph weft_graph;

/* A value of a graph. {0} is not a value: it means "absent" for optional operands, and failed
 * builders return it. */
typedef struct weft_val {
    int32_t id;
} weft_val;
#define WEFT_NIL ((weft_val){0})

WEFT_API weft_status weft_graph_new(weft_ctx *ctx, weft_graph **out);
WEFT_API void weft_graph_free(weft_graph *g);
WEFT_API weft_status
weft_graph_status(const weft_graph *g); /* the sticky error, with its text in weft_error() */

/* ---- leaves ---------------------------------------------------------------------------------- */

/* A value fed at run time. A size of WEFT_ANY is resolved when a plan is made. */
WEFT_API weft_val weft_placeholder(weft_graph *g, const char *name, weft_dtype dtype, int rank,
                                   const int64_t *dim);
/* The data is copied. */
WEFT_API weft_val weft_constant(weft_graph *g, const weft_tensor *value);
WEFT_API weft_val weft_scalar(weft_graph *g, double value); /* f32 */

typedef enum weft_init_kind {
    WEFT_INIT_DEFAULT, /* glorot_uniform for rank 2 and above, zeros otherwise */
    WEFT_INIT_ZEROS,
    WEFT_INIT_ONES,
    WEFT_INIT_CONSTANT,         /* a */
    WEFT_INIT_UNIFORM,          /* [a, b) */
    WEFT_INIT_NORMAL,           /* mean a, standard deviation b */
    WEFT_INIT_TRUNCATED_NORMAL, /* the same, truncated at two standard deviations */
    WEFT_INIT_GLOROT_UNIFORM,
    WEFT_INIT_GLOROT_NORMAL,
    WEFT_INIT_HE_UNIFORM,
    WEFT_INIT_HE_NORMAL,
    WEFT_INIT_LECUN_UNIFORM,
    WEFT_INIT_LECUN_NORMAL,
    WEFT_INIT_ORTHOGONAL, /* gain a (0: 1) */
    WEFT_INIT_IDENTITY,   /* gain a (0: 1) */
    WEFT_INIT_BAND /* 1 from a to b (fractions of the last axis), 0 elsewhere: an LSTM's forget bias
                    * is 1/4 to 1/2 */
} weft_init_kind;

typedef struct weft_variable_opts {
    size_t size;
    weft_init_kind init;
    double a, b;        /* parameters of the initializer */
    bool not_trainable; /* state: moving averages, counters */
    weft_dtype dtype;   /* 0: f32 */
} weft_variable_opts;

/* A value that is kept between runs. Its initial value depends only on the context's seed and its
 * name. */
WEFT_API weft_val weft_variable(weft_graph *g, const char *name, int rank, const int64_t *dim,
                                const weft_variable_opts *opts);

/* ---- names, scopes, devices ------------------------------------------------------------------ */

/* Names given while a scope is open become "scope/name". A name is made unique by a suffix "_1", …
 * except for placeholders and variables, where a second one is an error. */
WEFT_API void weft_scope_push(weft_graph *g, const char *name);
WEFT_API void weft_scope_pop(weft_graph *g);
/* The nodes built while a device is open run there: "cpu:1", "/cpu:1", "/device:CPU:1",
 * "/job:localhost/task:0/cpu:1". Variables built in "/job:ps/task:1" are kept by that parameter
 * server, if there are servers; their ops run here. Here the name's form is checked; weft_fn_new
 * refuses a device that the context does not have (weft_ctx_device lists them;
 * weft_ctx_opts.soft_placement). A node that planning makes of several runs where the last of
 * them should, the gradient of a placed node where the node does; results do not depend on
 * placement. */
WEFT_API void weft_device_push(weft_graph *g, const char *device);
WEFT_API void weft_device_pop(weft_graph *g);
/* `v`'s node runs after `before`'s node. It still reads the same values: a variable has its value
 * from before the updates of a run; the new value is the update's output. */
WEFT_API void weft_control(weft_graph *g, weft_val v, weft_val before);
/* Names the value's node. Returns v. */
WEFT_API weft_val weft_named(weft_graph *g, weft_val v, const char *name);
WEFT_API weft_status weft_find(const weft_graph *g, const char *name, weft_val *out);
/* dtype, rank and sizes (WEFT_ANY where unknown) in a tensor without data. */
WEFT_API weft_status weft_val_type(const weft_graph *g, weft_val v, weft_tensor *out);
WEFT_API const char *weft_val_name(const weft_graph *g, weft_val v);

/* ---- any op ---------------------------------------------------------------------------------- */

/* Builds any op of the table by name. attrs as text: "axis=-1 keepdims=true perm=[1,0] dtype=f32",
 * or NULL. Returns the first output; the others are weft_output(g, v, i). The functions in
 * weft/ops.h are easier to read; this one is for user ops and programs that read graphs from
 * elsewhere. */
WEFT_API weft_val weft_op(weft_graph *g, const char *op, int n_in, const weft_val *in,
                          const char *attrs);
WEFT_API weft_val weft_output(const weft_graph *g, weft_val v, int index);

WEFT_API weft_val weft_identity(weft_graph *g, weft_val x);
WEFT_API weft_val weft_stop_gradient(weft_graph *g, weft_val x);

typedef struct weft_matmul_opts {
    size_t size;
    bool trans_a, trans_b; /* transpose the last two axes first */
} weft_matmul_opts;
/* op(a)[…,m,k] · op(b)[…,k,n] -> […,m,n]; leading axes broadcast. */
WEFT_API weft_val weft_matmul(weft_graph *g, weft_val a, weft_val b, const weft_matmul_opts *opts);

/* ---- gradients ------------------------------------------------------------------------------- */

/* out[i] = d loss / d values[i], as nodes of the same graph; loss must be a scalar. A value that
 * the loss does not depend on gets WEFT_NIL. May be called again on its own results. */
WEFT_API weft_status weft_grad(weft_graph *g, weft_val loss, int n, const weft_val *values,
                               weft_val *out);
/* The same with a given cotangent: out[i] = sum over outputs of d outputs/d values[i] ·
 * cotangents. */
WEFT_API weft_status weft_vjp(weft_graph *g, int n_out, const weft_val *outputs,
                              const weft_val *cotangents, int n, const weft_val *values,
                              weft_val *out);

/* ---- files ----------------------------------------------------------------------------------- */

/* The graph as text that reads back (constants included); freed with weft_text_free. */
WEFT_API weft_status weft_graph_text(const weft_graph *g, char **out);
WEFT_API weft_status weft_graph_dot(const weft_graph *g, char **out);
WEFT_API weft_status weft_graph_parse(weft_ctx *ctx, const char *text, int64_t n, weft_graph **out);
WEFT_API weft_status weft_graph_save(const weft_graph *g, const char *path);
WEFT_API weft_status weft_graph_load(weft_ctx *ctx, const char *path, weft_graph **out);

#ifdef __cplusplus
}
#endif
#endif
