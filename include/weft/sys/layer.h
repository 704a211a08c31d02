/* weft/sys/layer.h - for authors of layers. weft's own layers are written with it.
 *
 * A layer type declares its arguments and a function that turns one call into graph nodes. The
 * function runs each time a graph is built from the model: once while the model is built (for
 * shapes), then for training, evaluation and prediction. It gets weights by name; the first call of
 * a layer creates them, later calls share them. */
#ifndef WEFT_SYS_LAYER_H
#define WEFT_SYS_LAYER_H

#include "weft/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call of a layer being turned into nodes. */
typedef struct weft_layer_call weft_layer_call;

enum weft_layer_flags {
    WEFT_LAYER_PASSES_MASK = 1, /* the output has the (first) input's mask */
    WEFT_LAYER_TAKES_MASK = 2,  /* reads masks; with neither flag, a mask ends here */
    WEFT_LAYER_WRAPS = 4,       /* wraps another layer (weft_layer_wrap) */
    WEFT_LAYER_TRAINING = 8     /* behaves differently in training and inference */
};

typedef struct weft_layer_kind {
    size_t size;
    const char *name;       /* "Dense" */
    int n_in_min, n_in_max; /* number of inputs of a call; -1: any number */
    const char *attrs; /* "units:i activation:s=linear use_bias:b=1": types i integer, f number, b
                        * bool, s text, l list of integers, F list of numbers, t dtype; without "="
                        * it is required */
    unsigned flags;    /* weft_layer_flags */
    weft_status (*build)(weft_layer_call *c);
    const char *doc; /* one line */
} weft_layer_kind;

/* Registers a layer type for this model only; copied (its strings are not). Loading a saved model
 * that needs a type which is not registered fails and names it. */
WEFT_API weft_status weft_layer_register(weft_model *m, const weft_layer_kind *kind);

/* Reads an architecture (weft_model_json) into an empty model in which the layer types it needs are
 * registered. */
WEFT_API weft_status weft_model_read(weft_model *m, const char *json, int64_t n);

/* ---- inside build ---------------------------------------------------------------------------- */

WEFT_API weft_graph *weft_lc_graph(weft_layer_call *c);
WEFT_API bool weft_lc_training(const weft_layer_call *c); /* false if the layer is frozen */
WEFT_API const char *weft_lc_name(const weft_layer_call *c);

WEFT_API int64_t weft_lc_int(const weft_layer_call *c, const char *attr);
WEFT_API double weft_lc_float(const weft_layer_call *c, const char *attr);
WEFT_API bool weft_lc_bool(const weft_layer_call *c, const char *attr);
WEFT_API const char *weft_lc_text(const weft_layer_call *c, const char *attr);
WEFT_API int weft_lc_ints(const weft_layer_call *c, const char *attr, const int64_t **out);
WEFT_API int weft_lc_floats(const weft_layer_call *c, const char *attr, const double **out);
/* Reads `n` integers: a single one applies to all; any other number of them is an error. */
WEFT_API weft_status weft_lc_tuple(weft_layer_call *c, const char *attr, int n, int64_t *out);

WEFT_API int weft_lc_n_in(const weft_layer_call *c);
WEFT_API weft_val weft_lc_in(const weft_layer_call *c, int i);
WEFT_API weft_val weft_lc_mask(const weft_layer_call *c,
                               int i); /* bool [batch, time], or WEFT_NIL */
WEFT_API int weft_lc_rank(const weft_layer_call *c, weft_val v);
/* A size that must be known now, such as the number of features; otherwise an error that names
 * layer and axis (then 0). */
WEFT_API int64_t weft_lc_dim(weft_layer_call *c, weft_val v, int axis);

typedef struct weft_weight_opts {
    size_t size;
    const char *initializer; /* "glorot_uniform", "random_normal(0,0.05)", …; NULL:
                              * glorot_uniform */
    const char *regularizer; /* "l2(0.01)", "l1(…)", "l1_l2(a,b)", "orthogonal(…)"; NULL or "":
                              * none */
    const char *constraint;  /* "max_norm(2)", "non_neg", "unit_norm", "min_max_norm(0,1)"; NULL or
                              * "": none */
    bool state;              /* not a parameter: moving averages, counters */
    weft_dtype dtype;        /* 0: f32 */
    double fan_in,
        fan_out; /* for scaled initializers such as glorot_uniform; 0: from the shape, as for dense
                  * and convolution kernels */
    bool dense;  /* for a table: a step updates all of its rows, not only those that were looked
                  * up */
    const char *evict; /* for a table: "unused(5000)", "unused(5000,every=1000,min_count=3)": which
                        * rows are forgotten (docs/guide/training.md); NULL or "": none */
} weft_weight_opts;
/* The weight "layer/name", created by the first call. Its regularizer counts once, no matter how
 * often this is called. */
WEFT_API weft_val weft_lc_weight(weft_layer_call *c, const char *name, int rank, const int64_t *dim,
                                 const weft_weight_opts *opts);

WEFT_API weft_val weft_lc_activation(weft_layer_call *c, const char *activation, weft_val x);

WEFT_API void weft_lc_out(weft_layer_call *c, int i, weft_val v);
WEFT_API void weft_lc_out_mask(weft_layer_call *c, int i, weft_val mask);
/* Adds a scalar to the training loss (activity regularizers). */
WEFT_API void weft_lc_loss(weft_layer_call *c, weft_val scalar);
/* Registers a node that must run with every training step (new moving averages). */
WEFT_API void weft_lc_update(weft_layer_call *c, weft_val update);

/* Calls the wrapped layer (WEFT_LAYER_WRAPS) on values of this graph and writes n_out outputs.
 * Weights are shared between calls; `copy` > 0 creates and names a second set of weights (the
 * backward layer of Bidirectional). */
WEFT_API weft_status weft_lc_inner(weft_layer_call *c, int copy, int n_in, const weft_val *in,
                                   const weft_val *masks, int n_out, weft_val *out);

/* A cell, to be wrapped by RNN: a layer type that is called on one step [x, states…] and returns
 * [y, new states…]. It has an argument "state_size:l", the sizes of its states, or "units:i" if
 * there is one of that size. */

/* Fails with a text that begins with the layer's name. */
WEFT_API weft_status weft_lc_fail(weft_layer_call *c, weft_status st, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
