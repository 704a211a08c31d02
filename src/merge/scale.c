/* scale.c - the loss scale of f16 from step to step. The same code wherever it is kept: in the
 * process that trains, or on a server; so it has the same bits. */
#include <math.h>

#include "merge/merge.h"

void wf_scale_next(double *state, double growth, bool good)
{
    if (good) {
        if (++state[WF_SCALE_GOOD] < growth)
            return;
        state[WF_SCALE_GOOD] = 0;
        state[WF_SCALE] = fmin(2 * state[WF_SCALE], WF_SCALE_MOST);
        return;
    }
    state[WF_SCALE_GOOD] = 0;
    state[WF_SCALE_SKIPPED]++;
    state[WF_SCALE_SKIPPED_NOW]++;
    state[WF_SCALE] /= 2;
}
