/* select.h - shared by nodes that only choose elements. */
#ifndef WF_DATA_STAGE_SELECT_H
#define WF_DATA_STAGE_SELECT_H

#include "data/data.h"

/* The numbers of a request, to be changed; in *chunk, which the caller releases. NULL if out of
 * memory. */
struct wf_at *wf_at_copy(struct wf_worker *w, const struct wf_at *at, int64_t n,
                         struct wf_chunk **chunk);
/* Stages whose state is one block of memory; and those whose state is one number. */
void wf_state_close(struct wf_stage *s);
weft_status wf_counted_save(struct wf_stage *s, struct wf_buf *out);

#endif
