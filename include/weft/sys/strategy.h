/* weft/sys/strategy.h - for authors of distribution strategies: how gradients become parameter
 * updates.
 *
 * The run loop sees a strategy as five functions and does not know whether a network exists. A step
 * t is computed in L logical shards; for each the loop runs forward and backward, asking for
 * parameters before their first use and handing over gradients as they are completed, from the end
 * of the flat vector to its beginning. Without a strategy the loop applies the updates itself, as
 * soon as the old value is no longer needed. */
#ifndef WEFT_SYS_STRATEGY_H
#define WEFT_SYS_STRATEGY_H

#include "weft/fn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All are called by the thread that runs the function; any may be NULL. If init, need, ready or
 * apply fails, the call returns that status and the step ends: state written by its shards is
 * restored, and the next weft_fn_compute starts the step again. */
typedef struct weft_strategy {
    size_t size;
    void *arg;
    /* Called once, when the function is created. */
    weft_status (*init)(void *arg, weft_fn *fn);
    /* Segment `segment` (weft_fn_segment) is about to be read for the first time in step t: return
     * when it is at that version. */
    weft_status (*need)(void *arg, weft_fn *fn, int64_t segment, int64_t t);
    /* The gradient of `segment` for shard l of step t is complete in weft_fn_gradients: it may be
     * sent now. */
    weft_status (*ready)(void *arg, weft_fn *fn, int64_t segment, int64_t t, int shard);
    /* All shards of step t are computed: bring the parameters to version t + 1, or promise it. A
     * local strategy calls weft_fn_update here. */
    weft_status (*apply)(void *arg, weft_fn *fn, int64_t t);
    /* Step t is done: its samples and the state besides the parameters are final. The parameters
     * are already at version t + 1, so the step counts even if this fails; the status is passed
     * on. */
    weft_status (*commit)(void *arg, weft_fn *fn, int64_t t);
} weft_strategy;

/* Computes shard `shard` of the current step: everything except the updates of parameters.
 * feeds[i].data is borrowed for the call; what the updates read of them is copied. A failure ends
 * the step and changes nothing. */
WEFT_API weft_status weft_fn_compute(weft_fn *fn, int shard, const weft_tensor *feeds,
                                     weft_tensor *fetches);
/* Runs the optimizer on the contents of weft_fn_gradients, once, on this machine. WEFT_ESTATE if
 * nothing was computed in this step. */
WEFT_API weft_status weft_fn_update(weft_fn *fn);
/* Calls apply and commit, and moves on to the next step. */
WEFT_API weft_status weft_fn_finish(weft_fn *fn);

#ifdef __cplusplus
}
#endif
#endif
