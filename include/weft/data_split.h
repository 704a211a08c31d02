/* weft/data_split.h - splits a dataset: among workers, into training and validation data, and into
 * the logical shards of training steps.
 *
 * A plan is pure arithmetic over contiguous ranges; nothing is read or copied. Fewer files than
 * workers, a worker without samples and a dataset of length zero are ordinary plans. */
#ifndef WEFT_DATA_SPLIT_H
#define WEFT_DATA_SPLIT_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plans ----------------------------------------------------------------------------------- */

/* The unit that is never split. */
typedef enum weft_split_by {
    WEFT_SPLIT_SAMPLES,
    WEFT_SPLIT_BATCHES,
    WEFT_SPLIT_FILES
} weft_split_by;

typedef struct weft_split_opts {
    size_t size;
    weft_split_by by;
    const double *weights; /* n_workers speeds, not negative and not all zero; NULL: all equal */
    int64_t batch;         /* by batches: samples per batch; the last may be short */
    int64_t n_files;       /* by files: their number */
    const int64_t *file_samples; /* the number of samples in each file; their sum is n_samples */
} weft_split_opts;

/* The part of one worker: samples [first, first + n), which are units (samples, batches or
 * files) [first_unit, first_unit + n_units). An empty part has n = 0 and is where its range
 * would begin. */
typedef struct weft_share {
    int64_t first, n;
    int64_t first_unit, n_units;
} weft_share;

/* n_workers consecutive parts that together cover everything. Worker w gets the share weights[w] /
 * sum of the units, rounded by largest remainders (the first of equal remainders wins), so with
 * equal weights the numbers of units differ by at most one. By files, weighted by their samples: a
 * file goes to the worker whose ideal range contains its middle. */
WEFT_API weft_status weft_split_plan(int64_t n_samples, int n_workers, const weft_split_opts *opts,
                                     weft_share *out);
/* The plan as a table, one line per worker; freed with weft_text_free. */
WEFT_API weft_status weft_split_text(weft_ctx *ctx, int n_workers, const weft_share *plan,
                                     weft_split_by by, char **out);
/* The rows of a part, as a view of the same memory (a mapped file, an array): nothing is copied. */
WEFT_API weft_status weft_share_view(const weft_tensor *whole, const weft_share *share,
                                     weft_tensor *out);
/* The part as a dataset: elements [first, first + n) of s. Addressable if s is. */
WEFT_API weft_ds weft_ds_share(weft_data *d, weft_ds s, const weft_share *share);

/* ---- training and validation ----------------------------------------------------------------- */

typedef struct weft_holdout_opts {
    size_t size;
    bool hashed;   /* choose by a hash of seed and number, instead of the last elements */
    uint64_t seed; /* for the hash */
} weft_holdout_opts;
/* Two disjoint datasets: *rest has floor(count * (1 - fraction)) elements, computed in f64 as
 * Keras does for validation_split, *held has the others. Contiguous: the last ones are held out;
 * the count must be known. Hashed: in an addressable dataset exactly that many are chosen by a
 * seeded permutation, and come in its order; in a stream each element is held out with that
 * probability, and both keep the stream's order. The choice depends only on seed and number, never
 * on the epoch: hold out before a shuffle, because after it a number is a different sample in each
 * epoch. */
WEFT_API weft_status weft_ds_holdout(weft_data *d, weft_ds s, double fraction,
                                     const weft_holdout_opts *opts, weft_ds *rest, weft_ds *held);

/* ---- the dealer: samples of training steps --------------------------------------------------- */

/* Returns the samples of shard (t, l). Step t is the global batch t of n samples, counted from 0
 * over all epochs; logical shard l of L has its samples [floor(l n / L), floor((l + 1) n / L)),
 * stacked (and padded) by themselves. A shard may be empty (n = 0). weft_fit trains on the shards
 * of a dealer.
 *
 * If the samples can be read by number (weft_ds_addressable), a shard is computed from the seeds
 * alone: in any order, any number of times, by any number of threads at the same time, in any
 * process, with the same result; and only its own samples are read. Otherwise one reader deals the
 * steps in order and keeps them until they are committed; any shard of an uncommitted step may be
 * requested again. The same holds if batches are made in another way (buckets by length), or if
 * stages work on whole batches (a map, a shuffle of batches): then a shard is rows of the batch. */
typedef struct weft_dealer weft_dealer;

typedef struct weft_dealer_opts {
    size_t size;
    int64_t batch;       /* n: samples per step; 0: the dataset yields batches */
    int64_t shards;      /* L; 0: 1 */
    bool drop_remainder; /* an epoch ends with its last full batch; otherwise with a short one */
    int64_t epoch;       /* the epoch of step 0 */
    int threads;         /* threads that work ahead; as in weft_iter_opts */
    int64_t memory;      /* likewise */
    int64_t max_open;    /* a reader: maximum number of dealt but uncommitted steps; 0: 16 */
    /* An epoch ends after so many steps, if the data has so many; 0: with the data. Ignored if the
     * data is endless. */
    int64_t steps_per_epoch;
    bool follow; /* a request for shard l of a step also announces shard l of the next steps */
} weft_dealer_opts;

/* With .batch, s yields samples, which are stacked as weft_ds_batch does with .ragged. Without, s
 * yields batches: if its last stage is weft_ds_batch or weft_ds_padded_batch (besides prefetch, and
 * stages that change columns row by row), the shard's samples are stacked and padded as that stage
 * does. If samples are read by number, their count must not change between epochs. */
WEFT_API weft_status weft_dealer_new(weft_data *d, weft_ds s, const weft_dealer_opts *opts,
                                     weft_dealer **out);
WEFT_API void weft_dealer_free(weft_dealer *dealer); /* its batches may outlive it */
/* Steps per epoch, or WEFT_UNKNOWN (a stream: use weft_dealer_has), or WEFT_ENDLESS. */
WEFT_API int64_t weft_dealer_steps(const weft_dealer *dealer);
/* Shard (t, l). May be called by several threads at the same time. With a reader: WEFT_ESTATE for a
 * committed step, or one more than max_open beyond the committed ones. */
WEFT_API weft_status weft_dealer_get(weft_dealer *dealer, int64_t t, int64_t l, weft_batch **out);
/* The epoch of step t, its number within the epoch and its samples. With a reader, t must have been
 * dealt. */
WEFT_API weft_status weft_dealer_step(weft_dealer *dealer, int64_t t, int64_t *epoch,
                                      int64_t *number, int64_t *n_samples);
/* Whether step t belongs to this epoch; if the data is endless, all steps do. A reader reads up to
 * step t to find out, but never begins another epoch for it. */
WEFT_API weft_status weft_dealer_has(weft_dealer *dealer, int64_t epoch, int64_t t, bool *has);
/* The first step that is not committed is the first of this epoch, whichever would come next. Not
 * while other threads request shards. */
WEFT_API weft_status weft_dealer_begin(weft_dealer *dealer, int64_t epoch);
/* Shard (t, l) will be requested soon: start on it in a thread of the dealer. Never required, and
 * changes no result. */
WEFT_API weft_status weft_dealer_ahead(weft_dealer *dealer, int64_t t, int64_t l);
/* Steps up to and including t are done: their data is released. Steps are committed in order. */
WEFT_API weft_status weft_dealer_commit(weft_dealer *dealer, int64_t t);
/* The first step that is not committed. */
WEFT_API int64_t weft_dealer_committed(weft_dealer *dealer);
/* The position: the first step that is not committed, with its epoch and its number there. For a
 * stream also the reader's position and what has been dealt beyond the step. Freed with
 * weft_text_free. A restored dealer, with any number of shards and threads, deals every uncommitted
 * step with identical samples. */
WEFT_API weft_status weft_dealer_save(weft_dealer *dealer, char **state, int64_t *n);
WEFT_API weft_status weft_dealer_restore(weft_dealer *dealer, const char *state, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
