/* weft/sys/layer.h - for people who write layers: what a layer is made of. weft's own layers are written with it.
 *
 * A kind says its arguments and how one call of it becomes graph nodes. The function runs each time a graph is made of the
 * model: once while the model is built (for shapes), then for training, evaluation and prediction. It asks for weights by
 * name; the first call of a layer makes them, the others get the same ones. */
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
    WEFT_LAYER_TAKES_MASK = 2,  /* reads masks; without one of the two a mask ends here */
    WEFT_LAYER_WRAPS = 4,       /* made around another layer by weft_layer_wrap */
    WEFT_LAYER_TRAINING = 8     /* does something else in training than in inference */
};

typedef struct weft_layer_kind {
    size_t size;
    const char *name;       /* "Dense" */
    int n_in_min, n_in_max; /* inputs of a call; -1: any number */
    const char *
        attrs; /* "units:i activation:s=linear use_bias:b=1": types i integer, f number, b bool, s text, l list of
                                 integers, F list of numbers, t dtype; without "=" it must be given */
    unsigned flags; /* weft_layer_flags */
    weft_status (*build)(weft_layer_call *c);
    const char *doc; /* one line */
} weft_layer_kind;

/* A kind of the user's, for this model alone; copied (its strings are not). A saved model that needs it names it when it is
 * missing. */
WEFT_API weft_status weft_layer_register(weft_model *m, const weft_layer_kind *kind);

/* Reads an architecture (weft_model_json) into a model that is still empty, in which the kinds it needs are registered. */
WEFT_API weft_status weft_model_read(weft_model *m, const char *json, int64_t n);

/* ---- inside build ---------------------------------------------------------------------------- */

WEFT_API weft_graph *weft_lc_graph(weft_layer_call *c);
WEFT_API bool weft_lc_training(const weft_layer_call *c); /* and the layer is not frozen */
WEFT_API const char *weft_lc_name(const weft_layer_call *c);

WEFT_API int64_t weft_lc_int(const weft_layer_call *c, const char *attr);
WEFT_API double weft_lc_float(const weft_layer_call *c, const char *attr);
WEFT_API bool weft_lc_bool(const weft_layer_call *c, const char *attr);
WEFT_API const char *weft_lc_text(const weft_layer_call *c, const char *attr);
WEFT_API int weft_lc_ints(const weft_layer_call *c, const char *attr, const int64_t **out);
WEFT_API int weft_lc_floats(const weft_layer_call *c, const char *attr, const double **out);
/* `n` integers: a single given one stands for all; another number of them is an error. */
WEFT_API weft_status weft_lc_tuple(weft_layer_call *c, const char *attr, int n, int64_t *out);

WEFT_API int weft_lc_n_in(const weft_layer_call *c);
WEFT_API weft_val weft_lc_in(const weft_layer_call *c, int i);
WEFT_API weft_val weft_lc_mask(const weft_layer_call *c,
                               int i); /* bool [batch, time], or WEFT_NIL */
WEFT_API int weft_lc_rank(const weft_layer_call *c, weft_val v);
/* A size that must be known now, such as the number of features; an error that names layer and axis otherwise (0 then). */
WEFT_API int64_t weft_lc_dim(weft_layer_call *c, weft_val v, int axis);

typedef struct weft_weight_opts {
    size_t size;
    const char
        *initializer; /* "glorot_uniform", "random_normal(0,0.05)", …; NULL: glorot_uniform */
    const char
        *regularizer; /* "l2(0.01)", "l1(…)", "l1_l2(a,b)", "orthogonal(…)"; NULL or "": none */
    const char *
        constraint; /* "max_norm(2)", "non_neg", "unit_norm", "min_max_norm(0,1)"; NULL or "": none */
    bool state;     /* not a parameter: moving averages, counters */
    weft_dtype dtype; /* 0: f32 */
    double fan_in,
        fan_out; /* of scaled initializers such as glorot_uniform; 0: by the shape, as for dense and
                               convolution kernels */
    bool dense;  /* a table: a step updates all of its rows, not only those that were looked up */
} weft_weight_opts;
/* The weight "layer/name", made by the first call. Its regularizer counts once, however often it is asked for. */
WEFT_API weft_val weft_lc_weight(weft_layer_call *c, const char *name, int rank, const int64_t *dim,
                                 const weft_weight_opts *opts);

WEFT_API weft_val weft_lc_activation(weft_layer_call *c, const char *activation, weft_val x);

WEFT_API void weft_lc_out(weft_layer_call *c, int i, weft_val v);
WEFT_API void weft_lc_out_mask(weft_layer_call *c, int i, weft_val mask);
/* A scalar that is added to the training loss (activity regularizers). */
WEFT_API void weft_lc_loss(weft_layer_call *c, weft_val scalar);
/* A node that must run with every training step (new moving averages). */
WEFT_API void weft_lc_update(weft_layer_call *c, weft_val update);

/* The wrapped layer (WEFT_LAYER_WRAPS), called on values of this graph: n_out outputs are written. Weights are shared between
 * calls; `copy` > 0 makes and names a second set of weights (the backward layer of Bidirectional). */
WEFT_API weft_status weft_lc_inner(weft_layer_call *c, int copy, int n_in, const weft_val *in,
                                   const weft_val *masks, int n_out, weft_val *out);

/* A cell, to be wrapped by RNN: a kind that is called on one step [x, states…] and gives [y, new states…]. It has an argument
 * "state_size:l", the sizes of its states, or "units:i" when there is one of that size. */

/* Fail with a text that begins with the layer's name. */
WEFT_API weft_status weft_lc_fail(weft_layer_call *c, weft_status st, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
