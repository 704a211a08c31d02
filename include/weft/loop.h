/* weft/loop.h - a training loop of one's own: gradients as values, averaged, applied to chosen variables.
 *
 *   weft_grads *g = NULL;
 *   weft_trainer_gradients(t, x, y, NULL, &g, &logs);    forward and backward; no weight changes
 *   weft_trainer_apply(t, g, NULL);                      one step of the optimizer
 *
 * is weft_train_on_batch, bit for bit. Between the two a program may look at gradients, scale them, average those of several
 * batches, or leave variables out. What layers keep beside their weights (moving averages, states of stateful layers) moves
 * with each call of weft_trainer_gradients whose gradients are finite; random layers draw anew with each call, and again after each
 * step. Where the loss is scaled (f16), gradients are divided by the scale already. */
#ifndef WEFT_LOOP_H
#define WEFT_LOOP_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The gradient of a loss: one value for each weight that is trained and that the loss depends on. It belongs to no trainer: one
 * with the same weights may apply it. */
typedef struct weft_grads weft_grads;

/* The gradient of the mean loss of a batch, regularizers included, as weft_train_on_batch would use it (in the trainer's
 * logical shards). *grads: NULL, or gradients of an earlier call, which are overwritten. logs may be NULL; they are borrowed from t
 * until its next call. Batches that `accumulate` holds back are an error: a loop of one's own adds up by itself. */
WEFT_API weft_status weft_trainer_gradients(weft_trainer *t, const weft_tensor *x,
                                            const weft_tensor *y, const weft_tensor *w,
                                            weft_grads **grads, weft_logs *logs);
WEFT_API void weft_grads_free(weft_grads *g);

/* The weights in it, in the order of the model's. */
WEFT_API int weft_grads_n(const weft_grads *g);
WEFT_API const char *weft_grads_name(const weft_grads *g, int i); /* NULL behind the last */
/* Of a weight that is only looked up (an Embedding's table) the gradient is rows. */
WEFT_API bool weft_grads_sparse(const weft_grads *g, const char *name);
/* A view that may be changed; for a sparse one WEFT_ESTATE. */
WEFT_API weft_status weft_grads_view(weft_grads *g, const char *name, weft_tensor *out);
/* ids i64 [n] and rows f32 [n, width]; an id may occur more than once, and its rows are added. Valid until g is changed. */
WEFT_API weft_status weft_grads_rows(weft_grads *g, const char *name, weft_tensor *ids,
                                     weft_tensor *rows);
/* What the mean was divided by: samples; with one output that is masked, its values that count. */
WEFT_API double weft_grads_weight(const weft_grads *g);

/* Are all of its values finite? Only looked at where the loss is scaled (f16); true elsewhere. Of a sum: are those of all terms? */
WEFT_API bool weft_grads_finite(const weft_grads *g);

/* g = factor · g; the weight stays. */
WEFT_API weft_status weft_grads_scale(weft_grads *g, double factor);
/* to = to + from; weights are added. On failure `to` is as before. */
WEFT_API weft_status weft_grads_add(weft_grads *to, const weft_grads *from);
/* The mean, by their weights: n parts of a batch give the gradient of the whole. Sums are made in the order given. *out: NULL, or
 * gradients that are not among g and are replaced. */
WEFT_API weft_status weft_grads_average(int n, const weft_grads *const *g, weft_grads **out);

typedef struct weft_apply_opts {
    size_t size;
    /* Which weights: names, or beginnings with a star: "head/kernel, decoder*". NULL: all of g. The others, and what the optimizer
     * keeps for them, stay as they are. */
    const char *only;
} weft_apply_opts;

/* One step of the trainer's optimizer (clipping, decay, constraints and all) over the chosen weights. Clipping by the global norm
 * looks at those alone. The step counts for all weights: schedules and bias corrections go by it. Gradients that are not finite
 * (weft_grads_finite), from a loss scale too large for f16, change nothing but the scale, which is halved: call this with them, too. */
WEFT_API weft_status weft_trainer_apply(weft_trainer *t, const weft_grads *g,
                                        const weft_apply_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
