/* weft/data_split.h - sharing a dataset out: over workers, into training and validation data,
 * and as the logical shards of training steps.
 *
 * A plan is pure arithmetic: contiguous ranges, nothing is read or copied. Fewer files than
 * workers, a worker without samples and a dataset of length zero are ordinary plans. */
#ifndef WEFT_DATA_SPLIT_H
#define WEFT_DATA_SPLIT_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- plans ----------------------------------------------------------------------------------- */

/* What is never cut in two. */
typedef enum weft_split_by {
    WEFT_SPLIT_SAMPLES,
    WEFT_SPLIT_BATCHES,
    WEFT_SPLIT_FILES
} weft_split_by;

typedef struct weft_split_opts {
    size_t size;
    weft_split_by by;
    const double *weights; /* n_workers speeds, not negative and not all zero; NULL: all equal */
    int64_t batch;         /* by batches: samples in one; the last may be short */
    int64_t n_files;       /* by files: how many, */
    const int64_t *file_samples; /* and the samples in each; their sum is n_samples */
} weft_split_opts;

/* The part of one worker: samples [first, first + n), which are units (samples, batches or
 * files) [first_unit, first_unit + n_units). An empty part has n = 0 and stands where its range
 * would begin. */
typedef struct weft_share {
    int64_t first, n;
    int64_t first_unit, n_units;
} weft_share;

/* n_workers parts that follow each other and together are the whole. Worker w gets the share
 * weights[w] / sum of the units, rounded by largest remainders (of equal remainders the first
 * wins), so that with equal weights the numbers of units differ by at most one. By files,
 * weighted by their samples: a file goes to the worker in whose ideal range its middle lies. */
WEFT_API weft_status weft_split_plan(int64_t n_samples, int n_workers, const weft_split_opts *opts,
                                     weft_share *out);
/* The plan as a table, a line a worker; freed with weft_text_free. */
WEFT_API weft_status weft_split_text(weft_ctx *ctx, int n_workers, const weft_share *plan,
                                     weft_split_by by, char **out);
/* The rows of a part, as a view into the same memory (a mapped file, an array): nothing is
 * copied. */
WEFT_API weft_status weft_share_view(const weft_tensor *whole, const weft_share *share,
                                     weft_tensor *out);
/* The part as a dataset: elements [first, first + n) of s. Addressable where s is. */
WEFT_API weft_ds weft_ds_share(weft_data *d, weft_ds s, const weft_share *share);

/* ---- training and validation ----------------------------------------------------------------- */

typedef struct weft_holdout_opts {
    size_t size;
    bool hashed;   /* choose by a hash of seed and number, rather than the last elements */
    uint64_t seed; /* of the hash */
} weft_holdout_opts;
/* Two datasets without a common element: *rest has floor(count * (1 - fraction)) elements, computed
 * in f64 as Keras does for validation_split, *held the others. Contiguous: the last ones are held out; the count must be known. Hashed: of an
 * addressable dataset exactly that many are chosen by a seeded permutation, and come in its
 * order; of a stream each element is held out with that probability, and both keep the stream's
 * order. The choice depends on seed and number alone, never on the epoch: hold out before a
 * shuffle, as after it a number is another sample in each epoch. */
WEFT_API weft_status weft_ds_holdout(weft_data *d, weft_ds s, double fraction,
                                     const weft_holdout_opts *opts, weft_ds *rest, weft_ds *held);

/* ---- the dealer: samples of training steps --------------------------------------------------- */

/* Gives the samples of shard (t, l). Step t is the global batch t of n samples, counted from 0
 * over all epochs; logical shard l of L is its samples [floor(l n / L), floor((l + 1) n / L)). A
 * shard may be empty (n = 0).
 *
 * Over an addressable dataset a shard is computed from the seeds alone: in any order, as often
 * as wanted, by any number of threads at once, in any process, with the same result. Over a
 * stream one reader deals out the steps in order and keeps them until they are committed; any
 * shard of an uncommitted step may be asked for again. */
typedef struct weft_dealer weft_dealer;

typedef struct weft_dealer_opts {
    size_t size;
    int64_t batch;       /* n: samples of a step; required */
    int64_t shards;      /* L; 0: 1 */
    bool drop_remainder; /* an epoch ends with its last full batch; else with a short one */
    int64_t epoch;       /* the pass that step 0 begins */
    int threads;         /* that work ahead; as in weft_iter_opts */
    int64_t memory;      /* likewise */
    int64_t max_open;    /* streams: steps dealt and not committed, at most; 0: 16 */
} weft_dealer_opts;

/* s yields samples (not batches), and must not change its length between epochs if it is
 * addressable. A shard's samples are stacked as weft_ds_batch does with .ragged. */
WEFT_API weft_status weft_dealer_new(weft_data *d, weft_ds s, const weft_dealer_opts *opts,
                                     weft_dealer **out);
WEFT_API void weft_dealer_free(weft_dealer *dealer); /* its batches may outlive it until freed */
/* Steps of an epoch, or WEFT_UNKNOWN (a stream: ask weft_dealer_step), or WEFT_ENDLESS. */
WEFT_API int64_t weft_dealer_steps(const weft_dealer *dealer);
/* Shard (t, l). May be called by several threads at once. Over a stream: WEFT_ESTATE for a
 * committed step, or one more than max_open beyond the committed ones. */
WEFT_API weft_status weft_dealer_get(weft_dealer *dealer, int64_t t, int64_t l, weft_batch **out);
/* The epoch of step t, its number within the epoch and its samples. Over a stream t must have
 * been dealt. */
WEFT_API weft_status weft_dealer_step(weft_dealer *dealer, int64_t t, int64_t *epoch,
                                      int64_t *number, int64_t *n_samples);
/* Shard (t, l) will be asked for soon: begin with it on a thread of the dealer. Never needed,
 * changes no result. */
WEFT_API weft_status weft_dealer_ahead(weft_dealer *dealer, int64_t t, int64_t l);
/* Steps up to and including t are done: their pieces are let go. Steps are committed in order. */
WEFT_API weft_status weft_dealer_commit(weft_dealer *dealer, int64_t t);
/* The position behind the last committed step, with what has been dealt beyond it; freed with
 * weft_text_free. A restored dealer deals every uncommitted step with identical samples. */
WEFT_API weft_status weft_dealer_save(weft_dealer *dealer, char **state, int64_t *n);
WEFT_API weft_status weft_dealer_restore(weft_dealer *dealer, const char *state, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
