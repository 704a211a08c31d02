/* model.h - the door of the model layer: models into graphs, losses, metrics. */
#ifndef WF_MODEL_H
#define WF_MODEL_H

#include "graph/graph.h"
#include "op/weight.h"
#include "weft/model.h"
#include "weft/sys/layer.h"

/* ---- models into graphs (build.c) ------------------------------------------------------------ */

/* A weight of a layer, in the order of first use. */
struct wf_weight {
    const char *name;                             /* "dense/kernel": the variable's */
    const char *regularizer, *constraint, *evict; /* text, or NULL */
    weft_layer layer;
    bool state; /* not a parameter */
    bool dense; /* a table whose rows are all updated, looked up or not */
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    weft_dtype dtype;
};
weft_ctx *wf_model_ctx(const weft_model *m);
/* The owner of its trainers; used only by the train layer. */
void *wf_model_scope(const weft_model *m);
void wf_model_set_scope(weft_model *m, void *scope);
int wf_model_n_weights(const weft_model *m);
const struct wf_weight *wf_model_weight(const weft_model *m, int i);
/* The scope in which its variable was built; "" for none. */
const char *wf_model_weight_device(const weft_model *m, int i);

/* What one graph got from a model. Arrays are in the caller's arena. */
struct wf_built {
    int n_in, n_out;
    weft_val *in;             /* placeholders, with the names of the inputs */
    weft_val *out, *out_mask; /* a mask is WEFT_NIL if there is none */
    int n_losses, n_updates, n_weights;
    weft_val *loss;   /* scalars: what layers added, then the regularizers of weights (each once);
                       * only with training */
    int n_penalties;  /* how many of them are regularizers */
    weft_val *update; /* only with training */
    int n_carries;
    weft_val *carry;  /* only without training: new states of stateful layers, to run with every
                       * batch */
    weft_val *weight; /* the variable of weight i of the model */
};
/* Adds the model's nodes to g. May be called several times for one graph (training and inference):
 * variables and placeholders are shared. */
weft_status wf_model_build(weft_model *m, weft_graph *g, bool training, struct wf_arena *arena,
                           struct wf_built *out);

/* The weights with states of stateful layers, to be set to zero when a new sequence begins: the
 * next position from i on, or -1. */
int wf_model_next_state(const weft_model *m, int i);

/* ---- words with arguments -------------------------------------------------------------------- */

/* "relu", "leaky_relu(0.1)", "softmax(axis=-2)"; NULL, "" and "none" give x itself
 * (activation.c). */
weft_status wf_activation_build(weft_graph *g, const char *activation, weft_val x, weft_val *out);
/* A scalar: the penalty "l2(0.01)", "l1", "l1_l2(0.1,0.2)" or "orthogonal" of a value
 * (regularizer.c). */
weft_status wf_regularizer_build(weft_graph *g, const char *regularizer, weft_val x, weft_val *out);
/* The same as numbers, for whoever updates weights. */
weft_status wf_regularizer_parse(struct wf_arena *arena, const char *regularizer,
                                 struct wf_penalty *out);
/* What holds for a weight of this rank after each update: "max_norm(2)", "non_neg", "unit_norm",
 * "min_max_norm(0,1)" (constraint.c). */
weft_status wf_constraint_parse(struct wf_arena *arena, const char *constraint, int rank,
                                struct wf_constraint *out);

/* When rows of a table are forgotten: "unused(5000,every=1000,min_count=3)" (evict.c). */
weft_status wf_evict_parse(struct wf_arena *arena, const char *evict, struct wf_evict *out);

/* ---- losses (loss.c, losses.def) ------------------------------------------------------------- */

/* m: whose registered losses are found, too; NULL: only those of the table. A loss is named as in
 * Keras, with its arguments after it: "SparseCategoricalCrossentropy from_logits=true", "mse",
 * "huber delta=2". Values per sample (or per sample and leading axes), before weights and
 * reduction: *values has the shape of pred without its last axis. Follows Keras' squeezing,
 * smoothing, clipping. */
weft_status wf_loss_build(const weft_model *m, weft_graph *g, const char *loss, weft_val y,
                          weft_val pred, weft_val *values);
/* Which of the values count, bool in their shape: only where the loss leaves some out
 * (ignore_class), otherwise nil. To be combined with the mask of wf_loss_reduce. */
weft_status wf_loss_mask(const weft_model *m, weft_graph *g, const char *loss, weft_val y,
                         weft_val pred, weft_val *mask);
/* Does it exist, are its arguments right? */
weft_status wf_loss_check(weft_ctx *ctx, const weft_model *m, const char *loss);
/* Are its labels classes, not values? */
bool wf_loss_has_classes(const weft_model *m, const char *loss);
bool wf_loss_at(int i, const char **name, const char **attrs, const char **doc);
/* Weighted sum and denominator of values, by Keras' sum_over_batch_size: values [batch, …], weight
 * nil or broadcastable [batch, …], mask nil or [batch, …]: sum = Σ values·weight·mask, count =
 * number of values (with a mask: of valid ones). Both f32 scalars; the mean is divide_no_nan(sum,
 * count). */
weft_status wf_loss_reduce(weft_graph *g, weft_val values, weft_val weight, weft_val mask,
                           weft_val *sum, weft_val *count);
/* w [batch, …] in the shape of x: missing axes are added at its end, one extra axis of size 1 is
 * dropped. */
weft_val wf_weight_like(weft_graph *g, weft_val w, weft_val x);

/* ---- metrics (metric.c, metrics.def) --------------------------------------------------------- */

/* A metric accumulates sums: the graph computes the increments of one batch, the host adds them in
 * f64, and the result is a function of the sums. So metrics of shards and workers can be merged by
 * adding. */
struct wf_metric {
    const struct wf_metric_kind *kind;
    const char *name; /* as it is logged: "accuracy" */
    struct wf_attr attr[WF_MAX_ATTRS];
    int64_t n_state; /* sums */
    int n_results;   /* 1, or one for each class, output or threshold */
};
enum { WF_METRIC_SUFFIX = 32 };
/* Is there such a metric, and are its arguments right, as far as that does not depend on shapes? */
weft_status wf_metric_check(weft_ctx *ctx, const weft_model *m, const char *spec);
/* spec: "accuracy", "AUC num_thresholds=200 curve=PR name=auc_pr". "accuracy" and "acc" become the
 * kind that fits the shapes of labels and predictions, as in Keras 3. Registered metrics of m are
 * found, too; NULL: only those of the table. */
weft_status wf_metric_init(const weft_model *m, struct wf_metric *out, struct wf_arena *arena,
                           const char *spec, const struct wf_type *y, const struct wf_type *pred);
/* The increments of one batch, f32 [n_state]; weight may be nil. */
weft_status wf_metric_build(weft_graph *g, const struct wf_metric *m, weft_val y, weft_val pred,
                            weft_val weight, weft_val *sums);
/* The weight of a batch whose predictions have a mask (either may be nil). As in Keras, a mask is
 * used for means of values per sample, including accuracies and losses, and for no other metric. */
weft_val wf_metric_weight(weft_graph *g, const struct wf_metric *m, weft_val weight, weft_val mask);
/* Its n_results values. */
void wf_metric_result(const struct wf_metric *m, const double *sums, double *out);
/* What is appended to the metric's name for result i: "", "_2" for a class, "_0.3" for a
 * threshold. */
void wf_metric_suffix(const struct wf_metric *m, int i, char out[WF_METRIC_SUFFIX]);
/* 1: larger is better, -1: smaller is better, 0: unknown. */
int wf_metric_direction(const struct wf_metric *m);
bool wf_metric_at(int i, const char **name, const char **attrs, const char **doc);

#endif
