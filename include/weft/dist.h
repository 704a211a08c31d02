/* weft/dist.h - strategies: how many replicas of a model compute a step, and how their results are
 * combined.
 *
 *   weft_dist *d;
 *   weft_dist_open(ctx, "local", &d);
 *   weft_dist_scope(d, m);                          trainers of m belong to the strategy
 *   weft_compile(m, …, &t);
 *   weft_dist_run(d, replica_step, &state);         each replica of this process computes its share
 *   weft_dist_reduce_grads(d, WEFT_MEAN, grads, &mean);
 *   weft_trainer_apply(t, mean, NULL);
 *
 * weft_fit does this itself. A program that uses only these calls works with any strategy: it asks
 * for the number of replicas and never assumes it. A strategy is chosen by name, here, in
 * weft_compile_opts, or as train.strategy of a job; weft_dist_at lists them. `local`: one replica,
 * in this process; nothing is sent. `mirrored`: one for each of the context's devices. With the
 * same number of shards all of them give the same bits. A handle may be used by one thread at a
 * time. weft/sys/strategy.h is for strategies of your own. */
#ifndef WEFT_DIST_H
#define WEFT_DIST_H

#include "weft/loop.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_dist weft_dist;

/* Row i of the table of strategies: its name and one line of documentation; false past the end. */
WEFT_API bool weft_dist_at(int i, const char **name, const char **doc);

/* strategy: a name, NULL for "local". One that does not exist is WEFT_ENOENT with the nearest name.
 * The handle must outlive the models in its scope and their trainers. */
WEFT_API weft_status weft_dist_open(weft_ctx *ctx, const char *strategy, weft_dist **out);
WEFT_API void weft_dist_free(weft_dist *d);
WEFT_API const char *weft_dist_name(const weft_dist *d);
WEFT_API int weft_dist_replicas(const weft_dist *d);       /* in sync, in all processes */
WEFT_API int weft_dist_local_replicas(const weft_dist *d); /* in this process */

/* Puts a model into the strategy's scope: trainers compiled from it belong to the strategy (one
 * named in weft_compile_opts must be the same), and by default compute a step in as many logical
 * shards as there are replicas. */
WEFT_API weft_status weft_dist_scope(weft_dist *d, weft_model *m);

/* The part of a dataset that this process reads. */
WEFT_API weft_status weft_dist_dataset(weft_dist *d, weft_data *data, weft_ds s, weft_ds *out);

/* Calls fn for each replica of this process, in order; replicas are numbered across all processes.
 * The first failure ends it. A trainer that fn uses computes its shards with all of them. */
typedef weft_status weft_replica_fn(void *arg, int replica);
WEFT_API weft_status weft_dist_run(weft_dist *d, weft_replica_fn *fn, void *arg);

typedef enum weft_reduction { WEFT_SUM, WEFT_MEAN } weft_reduction;

/* The sum or the mean of a value over all replicas, the same in each process. values: one for each
 * replica of this process, all of the same shape, f32, f64, i32 or i64 (for a mean: floats). out:
 * memory of that type and shape, which may be that of the first value. */
WEFT_API weft_status weft_dist_reduce(weft_dist *d, weft_reduction how, const weft_tensor *values,
                                      weft_tensor *out);
/* The same for gradients; a mean is weighted as in weft_grads_average. *out: NULL, or gradients
 * that are not among g and are replaced. */
WEFT_API weft_status weft_dist_reduce_grads(weft_dist *d, weft_reduction how,
                                            const weft_grads *const *g, weft_grads **out);

#ifdef __cplusplus
}
#endif
#endif
