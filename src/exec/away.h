/* away.h - a function on a device with memory of its own (away.c). */
#ifndef WF_EXEC_AWAY_H
#define WF_EXEC_AWAY_H

#include "exec/exec.h"

struct wf_away {
    struct wf_device *dev;
    void *stream;
    uint64_t version; /* rises when one of the function's addresses changes */
    bool pending;     /* work was enqueued since the last wait */
    /* Device memory: the step block, words of trouble and kernels' own bytes; gradients; copies of
     * vectors that a caller gave. */
    char *block;
    void *grads, *params, *state;
    /* Host memory: what the block becomes, the words as read, values of host instructions, fetches,
     * outputs that are checked. */
    char *block_host, *host, *out, *check;
    char *ring; /* step blocks of runs that follow each other without the host */
    uint32_t *words;
    int64_t block_bytes, host_bytes, out_bytes, check_bytes, ring_bytes;
};

/* Whether a value is in the device's memory. */
bool wf_is_away(const struct wf_plan *p, int32_t v);

#endif
