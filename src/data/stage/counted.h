/* counted.h - what stages share that choose elements by their numbers. */
#ifndef WF_DATA_STAGE_COUNTED_H
#define WF_DATA_STAGE_COUNTED_H

#include "data/data.h"

/* The numbers of a request, to be changed; in *chunk, which the caller lets go of. NULL when out
 * of memory. */
struct wf_at *wf_at_copy(struct wf_worker *w, const struct wf_at *at, int64_t n,
                         struct wf_chunk **chunk);
/* For stages whose state is one block of memory. */
void wf_state_close(struct wf_stage *s);
/* For stages over one exact input whose state is one number: the elements that have passed. */
weft_status wf_counted_open(struct wf_stage *s);
weft_status wf_counted_reset(struct wf_stage *s, int64_t epoch);
weft_status wf_counted_save(struct wf_stage *s, struct wf_buf *out);
weft_status wf_counted_restore(struct wf_stage *s, struct wf_reader *r);
/* Frees what a promise holds, where that is one block of memory. */
void wf_data_drop(struct wf_promise *p);

#endif
