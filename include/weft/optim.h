/* weft/optim.h - optimizers: how gradients become parameters.
 *
 * An optimizer is a row of a table (sgd rmsprop adam adamw adamax nadam adagrad adadelta ftrl lion
 * lamb) with Keras' names and defaults for its arguments, and Keras' order of operations: scale,
 * clip, decoupled weight decay, update. */
#ifndef WEFT_OPTIM_H
#define WEFT_OPTIM_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_OPTIM_NUMBERS 16
#define WEFT_SCHEDULE_NUMBERS 32

typedef struct weft_optim {
    char name[16];
    double number[WEFT_OPTIM_NUMBERS];
    int n_numbers;
    char schedule[24]; /* "" for a constant rate */
    double schedule_number[WEFT_SCHEDULE_NUMBERS];
    int n_schedule;
    weft_val learning_rate; /* a fed f32 scalar that overrides the rate; {0}: none */
} weft_optim;

/* numbers as text: "learning_rate=0.01 momentum=0.9 global_clipnorm=1", or NULL for Keras'
 * defaults. An unknown optimizer or argument is an error that lists the valid ones; so are an
 * argument given twice, one that is NaN, infinite or out of its range, and more than one of
 * clipnorm, global_clipnorm and clipvalue. */
WEFT_API weft_status weft_optim_init(weft_optim *o, const char *name, const char *numbers);

/* A learning-rate schedule in place of the constant rate: "exponential_decay",
 * "piecewise_constant", "polynomial_decay", "inverse_time_decay", "cosine_decay",
 * "cosine_decay_restarts", with its arguments as text, checked in the same way. piecewise_constant
 * takes "boundary=100 boundary=200 value=0.1 value=0.05 value=0.01": increasing boundaries and one
 * value more; boundaries and values may be mixed. */
WEFT_API weft_status weft_optim_schedule(weft_optim *o, const char *schedule, const char *numbers);

/* Builds the updates of n variables from given gradients; a nil gradient leaves its variable
 * unchanged. A gradient that consists only of embedding lookups updates only the rows that were
 * looked up; rows of an id that occurs more than once are added first (given such rows, Keras 3
 * squares each separately for its accumulators). To update all rows, as Keras does with dense
 * gradients, pass weft_stop_gradient of the gradient. updates[i] goes into weft_fn_opts.updates. */
WEFT_API weft_status weft_apply_gradients(weft_graph *g, const weft_optim *o, int n,
                                          const weft_val *vars, const weft_val *grads,
                                          weft_val *updates);

/* Builds the gradients of the loss for all trainable variables (or the n given ones) and their
 * updates. *n_updates values are written to updates, which has room for `cap`. */
WEFT_API weft_status weft_minimize(weft_graph *g, weft_val loss, const weft_optim *o, int n,
                                   const weft_val *vars, int cap, weft_val *updates,
                                   int *n_updates);

/* The graph's trainable variables in order; returns how many there are, writes at most `cap`. */
WEFT_API int weft_trainable(const weft_graph *g, int cap, weft_val *out);

#ifdef __cplusplus
}
#endif
#endif
