/* slots.h - memory in which a worker leaves contributions, so that servers on its host read them
 * there.
 *
 * A slot is shared memory that only this worker writes: a stamp, then the gradients. A push names
 * the slot and the stamp. The worker keeps the slot until the step is complete; then it takes it
 * back, with another stamp, and only then writes to it again. A server compares stamps after it has
 * read: what was taken back meanwhile is not a contribution. Slots are shared with one incarnation
 * of a server at a time, and with a new one again. */
#ifndef WF_PS_SLOTS_H
#define WF_PS_SLOTS_H

#include "net/net.h"
#include "ps/store.h"

struct wf_ps_slots;
/* The rules are borrowed. */
weft_status wf_ps_slots_new(weft_ctx *ctx, const struct wf_rules *rules, struct wf_ps_slots **out);
void wf_ps_slots_free(struct wf_ps_slots *s); /* and those that follow it */
/* This incarnation ends: nothing is written any more, and what was handed over stays. */
void wf_ps_slots_abandon(struct wf_ps_slots *s);
void wf_ps_slots_chain(struct wf_ps_slots *s, struct wf_ps_slots *next);
/* Memory of contributions, for a tree. Threads may use it at the same time, as all of this. */
const struct wf_dense_memory *wf_ps_slots_memory(struct wf_ps_slots *s);
/* A contribution is no longer needed by anybody: before its memory is written again. */
void wf_ps_slots_take_back(struct wf_ps_slots *s, const float *dense);
/* The number of the slot that the gradients are in, from 1 on; 0: they are in none. */
int wf_ps_slots_find(struct wf_ps_slots *s, const float *dense, uint64_t *stamp);
/* The memory of the first n slots, in their order. */
struct wf_region *const *wf_ps_slots_regions(struct wf_ps_slots *s);

#endif
