/* deal.h - the batches of fit, which a dealer deals shard by shard. */
#ifndef WF_TRAIN_STEP_DEAL_H
#define WF_TRAIN_STEP_DEAL_H

#include "train/train.h"
#include "weft/data_split.h"

struct wf_deal {
    weft_trainer *t;
    weft_dealer *dealer;
    const struct wf_feeding *f;
    int64_t at, n;      /* the batch under way, as a step of the dealer, and its samples */
    weft_batch *whole;  /* all of it, if it was read so */
    weft_tensor *feeds; /* of `whole`, with room for the rate */
};

struct wf_deal_opts {
    int64_t epoch, steps_per_epoch;
    int threads; /* as in weft_fit_opts */
};
/* f: what is fed, of a dataset of batches. Threads: closed by the thread that opened it. */
weft_status wf_deal_open(struct wf_deal *d, weft_trainer *t, weft_data *data,
                         const struct wf_feeding *f, const struct wf_deal_opts *opts);
void wf_deal_close(struct wf_deal *d);
/* The next batch is the first of this epoch. */
weft_status wf_deal_begin(struct wf_deal *d, int64_t epoch);
/* Goes on to the next batch of the epoch; *any: whether there is one. */
weft_status wf_deal_next(struct wf_deal *d, int64_t epoch, bool *any);
/* The batch is computed, or in flight. It is committed with its step: by this call if no batch is
 * pending or in flight. */
weft_status wf_deal_done(struct wf_deal *d);
weft_status wf_deal_commit(struct wf_deal *d);
/* No more than n batches from here on will be needed. */
void wf_deal_limit(struct wf_deal *d, int64_t n);
/* A position that a checkpoint holds: of a dealer, or of an iterator (as earlier versions wrote
 * them), which was after `batch` batches of the epoch. */
weft_status wf_deal_restore(struct wf_deal *d, const char *state, int64_t n, int64_t epoch,
                            int64_t batch);

/* The next batch is the one with this number in the epoch. */
weft_status wf_deal_seek(struct wf_deal *d, int64_t epoch, int64_t batch);
/* Any batch of the epoch that is not committed, as a step of the dealer; announce: shard l of it
 * will be requested soon. All before step `at` are done. */
weft_status wf_deal_at(const struct wf_deal *d, int64_t epoch, int64_t at, struct wf_deal *out);
weft_status wf_deal_announce(struct wf_deal *d, int64_t at, int64_t l);
weft_status wf_deal_commit_to(struct wf_deal *d, int64_t epoch, int64_t at);
/* Batch `back` before the current one, which belongs to the same step. */
weft_status wf_deal_earlier(const struct wf_deal *d, int64_t back, struct wf_deal *out);

/* All of a batch that is one shard, into d->feeds. */
weft_status wf_deal_whole(struct wf_deal *d);
/* What shard l of the batch feeds; *held is freed afterwards. Any thread. */
weft_status wf_deal_feeds(const struct wf_deal *d, int64_t l, weft_tensor *feeds,
                          weft_batch **held);

double wf_deal_waited_s(const struct wf_deal *d); /* for data, per replica */
int64_t wf_deal_skipped(const struct wf_deal *d); /* records that could not be read */

#endif
