/* away.h - a function on a device with memory of its own (away.c). */
#ifndef WF_EXEC_AWAY_H
#define WF_EXEC_AWAY_H

#include "exec/exec.h"

struct wf_away {
    struct wf_device *dev;
    struct wf_home *home; /* the copy of the variables there */
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
    struct wf_flight *flight; /* NULL: no run was started without waiting */
};

enum { WF_OWN_AT = 64 }; /* of kernels' own bytes in a step block */

/* Of a step block without the words of trouble. */
static inline int64_t wf_away_block_bytes(const struct wf_plan *p)
{
    return WF_OWN_AT + wf_round_up(p->own_bytes, 64);
}
/* The values that change from run to run, into host memory of so many bytes. */
void wf_away_fill_block(weft_fn *fn, struct wf_plan *p, char *to);
weft_status wf_away_enqueue_copy(struct wf_away *a, weft_copy_way way, void *to, const void *from,
                                 int64_t bytes);
weft_status wf_away_wait(struct wf_away *a);
/* Host memory that grows; *have: its bytes. */
weft_status wf_away_grow_host(struct wf_away *a, char **p, int64_t *have, int64_t bytes);
/* Enqueues instructions from `first` on; *done: how many were begun. Without `last` those are left
 * out that only fetches need. */
weft_status wf_away_run_from(weft_fn *fn, struct wf_plan *p, int64_t first, bool timed, bool last,
                             int64_t *done);
/* Fetches that are there, and trouble; then everything is done. */
weft_status wf_away_finish(weft_fn *fn, struct wf_plan *p);

/* For the next run: bases that are the store's and the function's own, in the device's memory; and
 * whether the plan is bound to them. */
weft_status wf_away_own_base(weft_fn *fn);
bool wf_away_is_bound(const weft_fn *fn, const struct wf_plan *p);
/* What words of trouble say, as an error. */
weft_status wf_away_trouble(const struct wf_plan *p, const uint32_t *words);

/* repeat.c */
void wf_repeat_forget(struct wf_plan *p);

/* Whether a value is in the device's memory. */
bool wf_is_away(const struct wf_plan *p, int32_t v);

#endif
