/* fingerprint.h - what a fit depends on: saved with its checkpoints, and compared when it
 * resumes. */
#ifndef WF_TRAIN_LOOP_FINGERPRINT_H
#define WF_TRAIN_LOOP_FINGERPRINT_H

#include "base/fprint.h"
#include "train/train.h"
#include "weft/ckpt.h"

#define WF_CKPT_FINGERPRINT "fingerprint.txt"

/* Of a trainer that is bound and has its slots, and the data of its fit. *out is to be freed also
 * after a failure. */
weft_status wf_fit_fingerprint(const weft_trainer *t, const weft_data *d,
                               const struct wf_feeding *fed, struct wf_fprint *out);

/* The metadata of its checkpoints: what the trainer was told in words, and the hashes of all parts.
 * room and f must outlive meta. */
#define WF_META_TEXT 24
#define WF_N_META (5 + WF_N_FP)
void wf_fingerprint_meta(const struct wf_fprint *f, char (*room)[WF_META_TEXT],
                         weft_ckpt_pair *meta);

/* The fingerprint of a checkpoint. One that was written by an earlier version has a few items in
 * its metadata, and nothing else to compare. *out is to be freed also after a failure. */
weft_status wf_fingerprint_read(weft_ctx *ctx, weft_ckpt *c, struct wf_fprint *out);
/* Warns about differences in these parts (bits 1 << enum wf_fp_kind); *found: in which. A damaged
 * fingerprint is an error. */
weft_status wf_fingerprint_warn(weft_ctx *ctx, weft_ckpt *c, const struct wf_fprint *here,
                                unsigned parts, unsigned *found);

#endif
