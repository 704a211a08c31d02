/* progress.h - what fit prints while it runs, in Keras' format. */
#ifndef WF_TRAIN_LOOP_PROGRESS_H
#define WF_TRAIN_LOOP_PROGRESS_H

#include "weft/train.h"

struct wf_progress {
    const weft_ctx *ctx;
    int verbose;
    void (*print)(void *arg, const char *text, bool last);
    int (*columns)(void *arg); /* NULL: lines may have any length */
    void *arg;
    int64_t epochs, batches; /* batches: WEFT_UNKNOWN until an epoch has ended */
    int64_t start, second;   /* ns: start of the epoch, and end of its first step */
    int64_t painted, done;
    int width;                    /* of the line on the screen */
    int64_t skipped, val_skipped; /* records skipped in this epoch, shown at its end */
};

void wf_progress_init(struct wf_progress *p, const weft_ctx *ctx, const weft_fit_opts *o,
                      int64_t batches);
/* The same without a line: another worker prints. */
void wf_progress_clock(struct wf_progress *p);
void wf_progress_epoch(struct wf_progress *p, int64_t epoch);
/* Whether it is time to repaint. Cheap. */
bool wf_progress_due(struct wf_progress *p);
/* So many steps are done since the epoch began here, by all workers. */
void wf_progress_count(struct wf_progress *p, int64_t done);
void wf_progress_step(struct wf_progress *p, int64_t done, const weft_logs *logs);
void wf_progress_epoch_end(struct wf_progress *p, int64_t done, const weft_logs *logs);

#endif
