/* lane.h - contributions whose dense gradients are in the memory of a device (lane.c). All calls
 * for the contributions of one tree are made by one thread at a time. */
#ifndef WF_MERGE_LANE_H
#define WF_MERGE_LANE_H

#include "base/device.h"
#include "merge/merge.h"

/* WEFT_ENOSUP: the device cannot add. The rules stay as they are as long as it lives. */
weft_status wf_lane_new(weft_ctx *ctx, struct wf_device *dev, const struct wf_rules *r,
                        struct wf_lane **out);
/* After the contributions of its device are freed. */
void wf_lane_free(struct wf_lane *l);
struct wf_device *wf_lane_device(const struct wf_lane *l);
/* Everything that was enqueued so far is known to be done. */
void wf_lane_quiet(struct wf_lane *l);

/* Memory for a contribution's dense gradients, and back; contribution.c calls them. */
weft_status wf_lane_get(struct wf_lane *l, struct wf_contribution *c);
void wf_lane_give(struct wf_contribution *c);
/* Later work on a stream of its device may overwrite the dense gradients of c. */
weft_status wf_lane_reuse(const struct wf_contribution *c, void *stream);
/* Later work on a stream of device d may read them. */
weft_status wf_lane_ready(const struct wf_contribution *c, struct wf_device *d, void *stream);
/* The dense gradients of `from` are added to those of `to`, or copied. They may be on different
 * devices. */
weft_status wf_lane_add(struct wf_contribution *to, struct wf_contribution *from);
weft_status wf_lane_copy(struct wf_contribution *to, struct wf_contribution *from);
/* Into the host's memory; waits. */
weft_status wf_lane_read(struct wf_contribution *c, float *host);

#endif
