/* feature.h - columns changed item by item, and passes over a whole dataset. */
#ifndef WF_DATA_FEATURE_FEATURE_H
#define WF_DATA_FEATURE_FEATURE_H

#include "data/data.h"
#include "weft/data_feature.h"

/* Items of column k of the list, one to one. On failure *bad is the item. */
struct wf_feature;
typedef weft_status wf_items_fn(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                                int64_t n, void *to, int64_t *bad);
struct wf_feature {
    int n, *col;      /* which columns */
    weft_dtype dtype; /* of the result; WEFT_NONE: unchanged */
    wf_items_fn *fn;
    double low, high;
    uint64_t seed;
    int64_t n_buckets;
    int64_t n_ids; /* ids that it makes: 0 to n_ids - 1; 0: other numbers than ids */
    int n_bounds;
    double *bound;
    const weft_vocab *vocab;
    const struct wf_feature_stats { /* for each column: */
        int64_t n;                  /* a period of items, and numbers for each position in it */
        double *shift, *scale;
    } * stats;
};
extern const struct wf_ds_kind wf_feature_kinds[];
enum {
    WF_FEATURE_CAST,
    WF_FEATURE_CLIP,
    WF_FEATURE_LOG1P,
    WF_FEATURE_FILL,
    WF_FEATURE_BUCKETIZE,
    WF_FEATURE_HASH,
    WF_FEATURE_LOOKUP,
    WF_FEATURE_STANDARDIZE,
    WF_FEATURE_FILL_MEAN
};
/* Which columns are accepted. */
enum { WF_TAKES_FLOAT = 1, WF_TAKES_INT = 2, WF_TAKES_TEXT = 4 };
/* A node that applies f to the named columns; checks their dtypes. NULL on failure, which the
 * pipeline keeps. */
struct wf_ds *wf_feature_new(weft_data *d, weft_ds s, int kind, const char *columns, int takes,
                             const struct wf_feature *f);

/* All elements of epoch 0 of s, block by block, in order; fn does not keep them. */
typedef weft_status wf_pass_fn(void *arg, const struct wf_block *b);
weft_status wf_pass_over(weft_data *d, weft_ds s, int threads, int64_t memory, wf_pass_fn *fn,
                         void *arg);

/* What a pass collects, in three steps, so that one pass can serve several collectors: begin with
 * the dataset that will be read, one block at a time (a wf_pass_fn), end. */
weft_status wf_stats_begin(weft_data *d, weft_ds s, const weft_stats_opts *o, weft_stats **out);
weft_status wf_stats_block(void *stats, const struct wf_block *b);
void wf_stats_end(weft_stats *s);
struct wf_counting {
    weft_vocab *v; /* freed by the caller of begin, unless end took it */
    int column;
    int64_t max_words;
};
weft_status wf_vocab_begin(weft_data *d, weft_ds s, const char *column, const weft_vocab_opts *o,
                           struct wf_counting *out);
weft_status wf_vocab_block(void *counting, const struct wf_block *b);
weft_status wf_vocab_end(struct wf_counting *k, const weft_vocab_opts *o, weft_vocab **out);

/* The hash of weft_ds_hash; an integer as its eight bytes. */
uint64_t wf_hash_int(int64_t v, uint64_t seed);

#endif
