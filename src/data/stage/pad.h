/* pad.h - batches of elements of different shapes, padded to a common one. */
#ifndef WF_DATA_STAGE_PAD_H
#define WF_DATA_STAGE_PAD_H

#include "data/data.h"

/* How the columns of a node's input are padded; column c of the input. */
struct wf_padding {
    int n_cols;
    struct wf_pad_col {
        double value;
        weft_str text;
        int64_t length[WEFT_MAX_RANK]; /* 0: the longest of the batch */
        bool lengths;                  /* followed by a column of lengths */
    } * col;
};
/* From the user's options: checks, copies into the arena, and sets the columns of ds: one more axis
 * of n (or WEFT_ANY), sizes that vary become fixed if a length is given, "name:length" columns. */
weft_status wf_padding_init(struct wf_ds *ds, int n_pads, const weft_pad_column *pads, bool lengths,
                            int64_t n, struct wf_padding *out);
void wf_padding_text(const struct wf_padding *p, struct wf_buf *out);
/* All elements of b as one batch; consumes b. */
weft_status wf_block_pad(struct wf_ds *ds, const struct wf_padding *p, struct wf_block *b,
                         struct wf_block **out);

#endif
