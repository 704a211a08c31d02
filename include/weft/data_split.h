/* weft/data_split.h - sharing a dataset out: over workers, and into training and validation data.
 *
 * A plan is pure arithmetic: contiguous ranges, nothing is read or copied. Fewer files than workers, a worker without
 * samples and a dataset of length zero are ordinary plans. */
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

/* The part of one worker: samples [first, first + n), which are units (samples, batches or files)
 * [first_unit, first_unit + n_units). An empty part has n = 0 and stands where its range would begin. */
typedef struct weft_share {
    int64_t first, n;
    int64_t first_unit, n_units;
} weft_share;

/* n_workers parts that follow each other and together are the whole. Worker w gets the share weights[w] / sum of
 * the units, rounded by largest remainders (of equal remainders the first wins), so that with equal weights the numbers
 * of units differ by at most one. By files, weighted by their samples: a file goes to the worker in whose ideal
 * range its middle lies. */
WEFT_API weft_status weft_split_plan(int64_t n_samples, int n_workers, const weft_split_opts *opts,
                                     weft_share *out);
/* The plan as a table, a line a worker; freed with weft_text_free. */
WEFT_API weft_status weft_split_text(weft_ctx *ctx, int n_workers, const weft_share *plan,
                                     weft_split_by by, char **out);
/* The rows of a part, as a view into the same memory (a mapped file, an array): nothing is copied. */
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
/* Two datasets without a common element: *held has round(fraction * count) elements, *rest the others. Contiguous: the
 * last ones are held out; the count must be known. Hashed: of an addressable dataset exactly that many are chosen by a
 * seeded permutation, and come in its order; of a stream each element is held out with that probability, and
 * both keep the stream's order. The choice depends on seed and number alone, never on the epoch. */
WEFT_API weft_status weft_ds_holdout(weft_data *d, weft_ds s, double fraction,
                                     const weft_holdout_opts *opts, weft_ds *rest, weft_ds *held);

#ifdef __cplusplus
}
#endif
#endif
