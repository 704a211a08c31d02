/* weft/loop.h - custom training loops: gradients as values, averaged, applied to chosen variables.
 *
 *   weft_grads *g = NULL;
 *   weft_trainer_gradients(t, x, y, NULL, &g, &logs);    forward and backward; no weight changes
 *   weft_trainer_apply(t, g, NULL);                      one step of the optimizer
 *
 * equals weft_train_on_batch, bit for bit. Between the two calls a program may inspect gradients,
 * scale them, average those of several batches, or exclude variables. The state that layers keep
 * besides their weights (moving averages, states of stateful layers) is updated by each call of
 * weft_trainer_gradients whose gradients are finite; random layers draw new numbers in each call,
 * and after each step. If the loss is scaled (f16), gradients are already divided by the scale. */
#ifndef WEFT_LOOP_H
#define WEFT_LOOP_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradient of a loss: one value for each weight that is trained and that the loss depends on.
 * It does not belong to a trainer: any trainer with the same weights may apply it. */
typedef struct weft_grads weft_grads;

/* The gradient of the mean loss of a batch, regularizers included, as weft_train_on_batch would use
 * it (in the trainer's logical shards). *grads: NULL, or gradients of an earlier call, which are
 * overwritten. logs may be NULL; they are borrowed from t until its next call. Batches pending
 * because of `accumulate` are an error: a custom loop accumulates itself. */
WEFT_API weft_status weft_trainer_gradients(weft_trainer *t, const weft_tensor *x,
                                            const weft_tensor *y, const weft_tensor *w,
                                            weft_grads **grads, weft_logs *logs);
WEFT_API void weft_grads_free(weft_grads *g);

/* The number of weights in it, in the model's order. */
WEFT_API int weft_grads_n(const weft_grads *g);
WEFT_API const char *weft_grads_name(const weft_grads *g, int i); /* NULL past the end */
/* The gradient of a weight that is only looked up (an Embedding's table) is sparse. */
WEFT_API bool weft_grads_sparse(const weft_grads *g, const char *name);
/* A view that may be changed; WEFT_ESTATE for a sparse one. */
WEFT_API weft_status weft_grads_view(weft_grads *g, const char *name, weft_tensor *out);
/* ids i64 [n] and rows f32 [n, width]; if an id occurs more than once, its rows are added. Valid
 * until g is changed. */
WEFT_API weft_status weft_grads_rows(weft_grads *g, const char *name, weft_tensor *ids,
                                     weft_tensor *rows);
/* What the mean was divided by: the number of samples; with one masked output, the number of values
 * that count. */
WEFT_API double weft_grads_weight(const weft_grads *g);

/* Whether all values are finite. Only checked if the loss is scaled (f16), otherwise true. For a
 * sum: whether those of all terms are. */
WEFT_API bool weft_grads_finite(const weft_grads *g);

/* g = factor · g; the weight stays. */
WEFT_API weft_status weft_grads_scale(weft_grads *g, double factor);
/* to = to + from; weights are added. On failure `to` is as before. */
WEFT_API weft_status weft_grads_add(weft_grads *to, const weft_grads *from);
/* The mean, weighted by their weights: n parts of a batch give the gradient of the whole batch.
 * Terms are added in the given order. *out: NULL, or gradients that are not among g and are
 * replaced. */
WEFT_API weft_status weft_grads_average(int n, const weft_grads *const *g, weft_grads **out);

typedef struct weft_apply_opts {
    size_t size;
    /* Which weights: names, or prefixes with a star: "head/kernel, decoder*". NULL: all of g. The
     * others, and their optimizer state, do not change. */
    const char *only;
} weft_apply_opts;

/* One step of the trainer's optimizer (clipping, decay, constraints and all) over the chosen
 * weights. The global norm for clipping is that of the chosen weights. The step counts for all
 * weights: schedules and bias corrections use it. Gradients that are not finite
 * (weft_grads_finite), from a loss scale too large for f16, change only the scale, which is halved:
 * call this for them, too. */
WEFT_API weft_status weft_trainer_apply(weft_trainer *t, const weft_grads *g,
                                        const weft_apply_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
