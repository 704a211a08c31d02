/* core.h - shared by the files of the model layer: the parts of a model, a call being built, and
 * words with arguments.
 *
 * A model is four lists: layers, nodes (inputs and calls of layers, in the order they were
 * created), their symbols, and weights in the order of first use. Handles are positions plus one.
 * Everything but the lists is in the model's arena. */
#ifndef WF_MODEL_CORE_H
#define WF_MODEL_CORE_H

#include "model/model.h"

/* ---- kinds (kind.c) -------------------------------------------------------------------------- */

/* A row of the table with its arguments parsed; "name" and "trainable" come before the row's
 * own. */
struct wf_layer_row {
    weft_layer_kind kind;
    int n_specs;
    struct wf_attr_spec spec[WF_MAX_ATTRS];
};
enum { WF_SPEC_NAME, WF_SPEC_TRAINABLE, WF_N_COMMON_SPECS };

/* The row of a layer type, the user's first; ENOENT with the nearest name. Rows are valid as long
 * as the model. */
weft_status wf_kind_find(weft_model *m, const char *name, const struct wf_layer_row **out);

/* Layers, losses and metrics that a user registered, for a model that is a part of it
 * (custom.c). */
weft_status wf_user_kinds_copy(const weft_model *from, weft_model *to);

enum { WF_MAX_LAYER_NAME = 128 };
/* "MaxPooling2D" -> "max_pooling2d" */
void wf_snake_case(const char *kind, char out[WF_MAX_LAYER_NAME]);

/* ---- the parts of a model -------------------------------------------------------------------- */

struct wf_layer {
    const char *name;
    const struct wf_layer_row *row;
    struct wf_attr *attr; /* one per spec */
    weft_layer inner;     /* what it wraps, or none */
    bool frozen;
    const char *device; /* of its variables; NULL: none */
};

struct wf_model_node {
    weft_layer layer; /* none: an input */
    const char *name; /* of an input */
    weft_dtype dtype; /* of an input, with its sizes without the batch */
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    int n_in, n_out;
    weft_sym *in;
    int32_t first; /* its symbols are first .. first + n_out - 1 */
};

struct wf_symbol {
    int32_t node, part;
    weft_val val, mask; /* in the design graph */
};

struct wf_model_weight {
    struct wf_weight is;
    weft_variable_opts init;
};

/* A graph being built from a model, or the design graph. */
struct wf_builder {
    weft_model *m;
    weft_graph *g;
    bool training;
    int n_penalties;
    int64_t n_losses, cap_losses, n_updates, cap_updates, cap_weights;
    weft_val *losses, *updates;
    weft_val *weights; /* by weight; none until it is used */
    int64_t n_carries, cap_carries;
    weft_val *carries;  /* new states of stateful layers, in inference */
    struct wf_rnn *rnn; /* the recurrent call that is being built (rnn.h), or NULL */
};

/* In names: of a removed layer. New layers do not get it automatically. */
#define WF_NAME_GONE (-1)

struct weft_model {
    weft_ctx *ctx;
    const char *name;
    struct wf_arena arena;
    struct wf_layer *layers;
    struct wf_model_node *nodes;
    struct wf_symbol *symbols;
    struct wf_model_weight **weights;
    const struct wf_layer_row **rows; /* layer types in use */
    weft_layer_kind *user_kinds;
    const struct wf_loss_kind **user_losses;
    const struct wf_metric_kind **user_metrics;
    weft_sym *outputs;
    int64_t n_layers, cap_layers, n_nodes, cap_nodes, n_symbols, cap_symbols, n_weights,
        cap_weights, n_rows, cap_rows, n_user, cap_user, n_outputs, cap_outputs, n_user_losses,
        cap_user_losses, n_user_metrics, cap_user_metrics;
    struct wf_map names;        /* of layers and inputs: layer id, or 0, or WF_NAME_GONE */
    struct wf_map numbers;      /* by base: the smallest number that may make a new name of it */
    struct wf_map weight_names; /* position */
    weft_sym last;              /* what weft_model_add continues from */
    struct wf_builder design;
    const char *device; /* of the variables of new layers; NULL: none */
    void *scope;        /* of a strategy; the train layer's */
    weft_status st;     /* sticky */
    char error[512];
};

/* What a layer was given, as text that creates it again: its name, its arguments, and whether it is
 * trainable (json.c). */
void wf_layer_text(struct wf_buf *b, const struct wf_layer *l);
/* Keeps the first error of a model; returns st. */
weft_status wf_model_fail(weft_model *m, weft_status st);
/* A layer under exactly this name (NULL: the attribute's, or one made from the type's). */
weft_layer wf_layer_make(weft_model *m, const char *kind, const char *attrs, weft_layer inner);

static inline struct wf_layer *wf_layer_at(const weft_model *m, weft_layer l)
{
    return &m->layers[l.id - 1];
}
static inline struct wf_symbol *wf_symbol_at(const weft_model *m, weft_sym x)
{
    return &m->symbols[x.id - 1];
}

/* ---- calls (build.c) ------------------------------------------------------------------------- */

struct weft_layer_call {
    struct wf_builder *b;
    weft_layer layer;
    const char *path; /* "" or, in a second set of weights, "/copy_1" */
    int n_in, n_out;
    const weft_val *in, *mask;
    weft_val out[WF_MAX_OUT], out_mask[WF_MAX_OUT];
    weft_status st; /* the first failure of a helper that has no status to return */
};

/* One call of a layer into the builder's graph: c->out, c->out_mask and c->n_out are filled. */
weft_status wf_call_build(struct wf_builder *b, weft_layer l, const char *path, int n_in,
                          const weft_val *in, const weft_val *mask, weft_layer_call *c);
/* The wrapped layer's call, with all its results; see weft_lc_inner. */
weft_status wf_lc_inner_call(weft_layer_call *c, int copy, int n_in, const weft_val *in,
                             const weft_val *masks, weft_layer_call *out);
/* A layer of this model by name, called like an inner layer: for layers that consist of several
 * others. */
weft_status wf_lc_other_call(weft_layer_call *c, weft_layer other, int n_in, const weft_val *in,
                             weft_layer_call *out);
/* A node that must run with every batch, in training and in inference: the new state of a stateful
 * layer. */
void wf_lc_carry(weft_layer_call *c, weft_val update);
/* The current error text becomes the call's, with the layer's name before it; returns st. */
weft_status wf_lc_failed(weft_layer_call *c, weft_status st);
/* A placeholder for an input. */
weft_val wf_input_build(struct wf_builder *b, const struct wf_model_node *n);
void wf_builder_free(struct wf_builder *b);

/* ---- words with arguments (word.c) ----------------------------------------------------------- */

/* "relu", "leaky_relu(0.1)", "random_normal(mean=0,stddev=0.05)". A table's rows begin with a
 * struct wf_word. */
struct wf_word {
    const char *name;
    const char *attrs; /* in the order of positional arguments */
};
struct wf_words {
    const char *what; /* "activation" */
    const void *rows;
    size_t row_size;
    int n_rows;
};
struct wf_word_args {
    const void *row;
    int n_specs;
    struct wf_attr_spec spec[WF_MAX_ATTRS];
    struct wf_attr value[WF_MAX_ATTRS];
};
extern const struct wf_words wf_activations, wf_initializers, wf_regularizers, wf_constraints,
    wf_evictions;
/* Names are compared without regard to case and underscores, so that Keras' class names work
 * too. */
weft_status wf_word_parse(const struct wf_words *t, struct wf_arena *arena, const char *text,
                          struct wf_word_args *out);
static inline const struct wf_attr *wf_word_arg(const struct wf_word_args *a, const char *name)
{
    return wf_attr_find(a->spec, a->n_specs, a->value, name);
}
/* No word, or "none". */
bool wf_word_none(const char *text);

/* ---- weights' words -------------------------------------------------------------------------- */

/* The initializer of a weight of this shape, as graph options. Fans of 0 are derived from the
 * shape. */
weft_status wf_initializer(struct wf_arena *arena, const char *text, int rank, const int64_t *dim,
                           double fan_in, double fan_out, weft_variable_opts *out);
weft_status wf_regularizer_check(struct wf_arena *arena, const char *text);
weft_status wf_evict_check(struct wf_arena *arena, const struct wf_weight *w);
weft_status wf_constraint_check(struct wf_arena *arena, const char *text);

#endif
