/* callback.h - blocks that a user's function fills or reads, one sample at a time. */
#ifndef WF_DATA_STAGE_CALLBACK_H
#define WF_DATA_STAGE_CALLBACK_H

#include "data/data.h"

/* A block being filled. Only `sample` is for the callback. */
struct wf_filling {
    weft_sample sample;
    struct wf_ds *ds;
    struct wf_block *block;
    int64_t n;  /* samples begun */
    char *text; /* room for text that is not used yet */
    int64_t n_text;
};
weft_status wf_filling_begin(struct wf_filling *f, struct wf_env *env, struct wf_ds *ds, int64_t n);
/* The next sample; what the callback did not set in the previous one is an error. */
weft_status wf_filling_next(struct wf_filling *f, struct wf_at at);
/* The block of f->n samples; frees it if st is a failure, which it returns. */
weft_status wf_filling_end(struct wf_filling *f, weft_status st, struct wf_block **out);

/* A view of element i, for reading; col has room for b->n_cols tensors. */
weft_sample wf_sample_of(const struct wf_block *b, int64_t i, weft_tensor *col);

/* Rows of tensors as elements: a view if the numbers are consecutive, otherwise gathered. */
weft_status wf_rows_get(struct wf_ds *ds, struct wf_worker *w, const weft_tensor *rows,
                        const struct wf_at *at, int64_t n, struct wf_block **out);

#endif
