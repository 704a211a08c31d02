/* weft/ops_nn.h - softmax, losses, normalizations, attention, and updates of variables.
 *
 * Every builder returns WEFT_NIL once the graph has an error (weft_graph_status says which). Float
 * types are f32, f64, f16 and bf16; statistics are kept in f32 (f64 for f64) whatever the type of
 * the input. Where an op has several outputs, the builder returns the first and weft_output(g, v,
 * i) gives the others. Sizes may be WEFT_ANY. */
#ifndef WEFT_OPS_NN_H
#define WEFT_OPS_NN_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- softmax --------------------------------------------------------------------------------- */

/* exp(x) / sum(exp(x)) along an axis (negative: from the end), computed after subtracting the
 * maximum. */
WEFT_API weft_val weft_softmax(weft_graph *g, weft_val x, int axis);
/* x - log(sum(exp(x))) along an axis. */
WEFT_API weft_val weft_log_softmax(weft_graph *g, weft_val x, int axis);

typedef struct weft_masked_softmax_opts {
    size_t size;
    weft_val mask; /* bool: true may be attended to; float: added to x. Broadcasts to x */
    bool causal;   /* element j of row i only when j <= i */
} weft_masked_softmax_opts;
/* Softmax over the last axis of x […,rows,columns] under a mask. A row that is masked completely is
 * 0. Output 1: log-sum-exp of each row, -inf for such a row. */
WEFT_API weft_val weft_masked_softmax(weft_graph *g, weft_val x,
                                      const weft_masked_softmax_opts *opts);

/* ---- losses ---------------------------------------------------------------------------------- */

typedef struct weft_sparse_softmax_xent_opts {
    size_t size;
    bool ignore;          /* rows whose label is ignore_index get loss 0 and gradient 0 */
    int64_t ignore_index; /* only with ignore */
} weft_sparse_softmax_xent_opts;
/* logits […,C], labels […] of any integer type -> loss […] = -log_softmax(logits)[label].
 * Output 1: backprop […,C] = softmax(logits) - one_hot(label), the loss's gradient.
 * A label outside 0..C-1 that is not ignored fails the run with WEFT_EDATA. */
WEFT_API weft_val weft_sparse_softmax_xent(weft_graph *g, weft_val logits, weft_val labels,
                                           const weft_sparse_softmax_xent_opts *opts);
/* logits […,C], labels […,C] of the same type -> loss […] = -sum(labels * log_softmax(logits)).
 * Output 1: backprop […,C] = softmax(logits) * sum(labels) - labels. */
WEFT_API weft_val weft_softmax_xent(weft_graph *g, weft_val logits, weft_val labels);
/* Element by element, broadcasting: max(x,0) - x*t + log(1 + exp(-|x|)), the cross-entropy of
 * sigmoid(x). */
WEFT_API weft_val weft_sigmoid_xent(weft_graph *g, weft_val logits, weft_val targets);

/* Scalar losses: the mean over all elements of the element-wise loss, as Keras'
 * sum_over_batch_size. With ignore, the mean is over the labels that count, and 0 if there are
 * none. */
WEFT_API weft_val weft_loss_sparse_softmax_xent(weft_graph *g, weft_val logits, weft_val labels,
                                                const weft_sparse_softmax_xent_opts *opts);
WEFT_API weft_val weft_loss_softmax_xent(weft_graph *g, weft_val logits, weft_val labels);
WEFT_API weft_val weft_loss_sigmoid_xent(weft_graph *g, weft_val logits, weft_val targets);
WEFT_API weft_val weft_loss_mse(weft_graph *g, weft_val x, weft_val target); /* mean((x - t)^2) */
WEFT_API weft_val weft_loss_mae(weft_graph *g, weft_val x, weft_val target); /* mean(|x - t|) */
/* With e = |x - t|: mean of e^2/2 where e <= delta, else delta * (e - delta/2). delta 0: 1. */
WEFT_API weft_val weft_loss_huber(weft_graph *g, weft_val x, weft_val target, double delta);
/* sum(x^2) / 2 over all n values: a regularizer. */
WEFT_API weft_val weft_l2_loss(weft_graph *g, int n, const weft_val *values);

/* ---- normalizations -------------------------------------------------------------------------- */

typedef struct weft_batch_norm_opts {
    size_t size;
    bool training;     /* normalize by the batch's statistics, update the moving ones */
    double momentum;   /* 0: 0.99; WEFT_ZERO */
    double epsilon;    /* 0: 1e-3; WEFT_ZERO */
    weft_val *updates; /* [2] or NULL: receives the updates of moving_mean and moving_var */
} weft_batch_norm_opts;
/* x […,C] -> gamma * (x - mean) / sqrt(var + epsilon) + beta, per channel; gamma and beta [C] may
 * be WEFT_NIL.
 * Training: mean and (biased) variance of the batch, which are outputs 1 and 2; and if moving_mean
 * and moving_var [C] are given, nodes
 *   moving = moving * momentum + batch * (1 - momentum)
 * which must be listed in a function's updates.
 * Otherwise mean and variance are moving_mean and moving_var, which must be given. */
WEFT_API weft_val weft_batch_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                                  weft_val moving_mean, weft_val moving_var,
                                  const weft_batch_norm_opts *opts);

typedef struct weft_layer_norm_opts {
    size_t size;
    int n_axes;     /* the last n_axes are normalized together; 0: 1 */
    double epsilon; /* 0: 1e-3; WEFT_ZERO */
} weft_layer_norm_opts;
/* gamma * (x - mean) / sqrt(var + epsilon) + beta over the last axes; gamma and beta have their
 * sizes and may be WEFT_NIL. Outputs 1 and 2: mean and 1/sqrt(var + epsilon), in the shape of
 * the axes before. */
WEFT_API weft_val weft_layer_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                                  const weft_layer_norm_opts *opts);

typedef struct weft_rms_norm_opts {
    size_t size;
    int n_axes;     /* 0: 1 */
    double epsilon; /* 0: 1e-6; WEFT_ZERO */
} weft_rms_norm_opts;
/* gamma * x / sqrt(mean(x^2) + epsilon) over the last axes; gamma may be WEFT_NIL.
 * Output 1: 1/sqrt(mean(x^2) + epsilon). */
WEFT_API weft_val weft_rms_norm(weft_graph *g, weft_val x, weft_val gamma,
                                const weft_rms_norm_opts *opts);

typedef struct weft_group_norm_opts {
    size_t size;
    int64_t groups; /* 0: 32; -1: one per channel */
    double epsilon; /* 0: 1e-3; WEFT_ZERO */
} weft_group_norm_opts;
/* x [N,…,C]: each sample's channels are divided into groups of C/groups, and each group is
 * normalized over its channels and the axes between; gamma and beta [C] may be WEFT_NIL. Outputs 1
 * and 2: mean and biased variance [N,groups]. */
WEFT_API weft_val weft_group_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                                  const weft_group_norm_opts *opts);

typedef struct weft_instance_norm_opts {
    size_t size;
    double epsilon; /* 0: 1e-3; WEFT_ZERO */
} weft_instance_norm_opts;
/* Group norm with one group per channel. */
WEFT_API weft_val weft_instance_norm(weft_graph *g, weft_val x, weft_val gamma, weft_val beta,
                                     const weft_instance_norm_opts *opts);

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct weft_attention_opts {
    size_t size;
    weft_val mask;   /* bool: true may be attended to; float: added to the scores. Broadcasts to
                      * [batch,heads,queries,keys] */
    bool causal;     /* query i sees keys 0..i */
    double scale;    /* of the scores; 0: 1/sqrt(depth) */
    bool time_first; /* values are [batch,time,heads,depth] instead of [batch,heads,time,depth] */
} weft_attention_opts;
/* softmax(scale * q·kᵀ + mask)·v for each batch item and head. q [B,H,T,D], k [B,H,S,D], v
 * [B,H,S,E] -> [B,H,T,E]. The complete scores are never in memory. A query that may not attend to
 * anything gets 0. Output 1: log-sum-exp of each query's scores, [B,H,T]. */
WEFT_API weft_val weft_attention(weft_graph *g, weft_val q, weft_val k, weft_val v,
                                 const weft_attention_opts *opts);
/* The same with q, k and v in one value [B,T,3,H,D], as a product with one weight matrix gives them
 * -> [B,T,H,D]. opts->time_first is ignored. Output 1: [B,H,T]. */
WEFT_API weft_val weft_attention_packed(weft_graph *g, weft_val qkv,
                                        const weft_attention_opts *opts);

/* ---- updates of variables -------------------------------------------------------------------- */

/* Nodes that change a variable when their function runs: list them in its updates. The result is
 * the variable's new value; whatever reads the variable itself reads its value from before the run
 * (so two updates can swap variables). Several updates of one variable run in the order in which
 * they were built, whatever their order in the function's updates; each starts from the value that
 * the previous one left. Types and shapes must be the same. */
WEFT_API weft_val weft_assign(weft_graph *g, weft_val variable, weft_val value);
WEFT_API weft_val weft_assign_add(weft_graph *g, weft_val variable, weft_val value);
/* variable * momentum + value * (1 - momentum), a moving average. */
WEFT_API weft_val weft_assign_ema(weft_graph *g, weft_val variable, weft_val value,
                                  double momentum);

/* ---- norms of many values -------------------------------------------------------------------- */

/* sqrt of the sum of squares of all elements of n float values (1..512), a scalar of f32 (f64
 * with an f64 input). Summed in f64 over blocks of 4096 elements of each value, in order. */
WEFT_API weft_val weft_global_norm(weft_graph *g, int n, const weft_val *values);
/* out[i] = values[i] * clip_norm / max(global norm, clip_norm). Returns the global norm. */
WEFT_API weft_val weft_clip_by_global_norm(weft_graph *g, int n, const weft_val *values,
                                           double clip_norm, weft_val *out);

#ifdef __cplusplus
}
#endif
#endif
