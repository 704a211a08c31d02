/* weft/scan.h - repeats a part of a graph over time.
 *
 * A graph has no loops: weft_scan builds the body n times, one copy per step, so that gradients and
 * every pass work as on any graph. Whole-sequence ops (LSTM, GRU) are faster if they fit. */
#ifndef WEFT_SCAN_H
#define WEFT_SCAN_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Builds step t: from the state and this step's slices of xs to the new state, of the same types,
 * and this step's ys. Variables are created outside and shared by all steps. Any return value but 0
 * stops the scan. */
typedef weft_status weft_scan_fn(weft_graph *g, void *arg, int t, const weft_val *state,
                                 const weft_val *x, weft_val *new_state, weft_val *y);

typedef struct weft_scan_opts {
    size_t size;
    int axis;     /* the time axis of xs and ys; negative: counted from the end. 0: the first */
    bool reverse; /* from the last step to the first; ys keep the order of xs */
} weft_scan_opts;

/* state = init; for each step t: state, y[t] = body(t, state, x[t]).
 * xs have n_steps slices along the time axis; final[n_state] (may be NULL) gets the state after the
 * last step, ys[n_ys] the steps' y stacked along the time axis. At most 4096 steps. On failure the
 * outputs are WEFT_NIL and the graph keeps the error. */
WEFT_API weft_status weft_scan(weft_graph *g, int n_steps, int n_state, const weft_val *init,
                               int n_xs, const weft_val *xs, int n_ys, weft_scan_fn *body,
                               void *arg, const weft_scan_opts *opts, weft_val *final,
                               weft_val *ys);

#ifdef __cplusplus
}
#endif
#endif
