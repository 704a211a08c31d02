/* weft/data_feature.h - turns raw columns into model inputs: scaled numbers, categories as ids,
 * statistics.
 *
 * Each takes columns by name (separated by commas) and replaces them by the results. All work on
 * elements of any shape, before or after batching, and keep the order. */
#ifndef WEFT_DATA_FEATURE_H
#define WEFT_DATA_FEATURE_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns (separated by commas) become x * scale + offset in this dtype. f64 is computed in f64,
 * all others in f32: one multiplication, and one addition if offset is not 0, each rounded.
 * Integers are truncated toward zero and clamped; with scale 1 and offset 0 they are converted
 * exactly. Images to [0, 1]: weft_ds_rescale(d, s, "image", 1.0 / 255, 0, WEFT_F32). */
WEFT_API weft_ds weft_ds_rescale(weft_data *d, weft_ds s, const char *columns, double scale,
                                 double offset, weft_dtype dtype);

/* Numbers in another dtype: floats are truncated toward zero and clamped, integers converted
 * exactly. Text is parsed as a number; if it is not one, the error names the sample. */
WEFT_API weft_ds weft_ds_cast(weft_data *d, weft_ds s, const char *columns, weft_dtype dtype);
/* min(max(x, low), high), in the column's dtype; NaN stays. */
WEFT_API weft_ds weft_ds_clip(weft_data *d, weft_ds s, const char *columns, double low,
                              double high);
/* log(1 + x) of floating-point columns; below -1: NaN. */
WEFT_API weft_ds weft_ds_log1p(weft_data *d, weft_ds s, const char *columns);
/* NaN becomes this value. */
WEFT_API weft_ds weft_ds_fill(weft_data *d, weft_ds s, const char *columns, double value);
/* The number of boundaries (ascending) that are not above x, as i64: 0 to n. NaN gives 0. */
WEFT_API weft_ds weft_ds_bucketize(weft_data *d, weft_ds s, const char *columns, int n,
                                   const double *boundaries);
/* Text and integers become a bucket 0 to n - 1, as i64. The hash h is FNV-1a of 64 bits over the
 * bytes (of an integer: the eight bytes of its i64, lowest first), its offset basis xor seed *
 * 0x9e3779b97f4a7c15, followed by h ^= h >> 32, h *= 0xd6e8feb86659fd93, h ^= h >> 32; the bucket
 * is h mod n. It will not change. */
WEFT_API weft_ds weft_ds_hash(weft_data *d, weft_ds s, const char *columns, int64_t n,
                              uint64_t seed);

/* Crosses columns of text or integers: adds a column `name` i64 after the others, with a bucket 0
 * to n - 1 of their combined values. The hash is that of weft_ds_hash over the columns in order,
 * each with the previous hash as its seed. Their shapes must be equal. */
WEFT_API weft_ds weft_ds_cross(weft_data *d, weft_ds s, const char *columns, int64_t n,
                               uint64_t seed, const char *name);

/* Rows first to first + n - 1 of each column: a part of its first axis (for batched data: of each
 * sample's). first < 0 counts from the end, n 0 takes all that follow. With weft_ds_window and
 * weft_ds_copy this separates past from future. Rows that do not exist are an error. */
WEFT_API weft_ds weft_ds_slice(weft_data *d, weft_ds s, const char *columns, int64_t first,
                               int64_t n);

typedef struct weft_ds_one_hot_opts {
    size_t size;
    weft_dtype dtype; /* WEFT_NONE: f32 */
    bool lenient;     /* ids outside 0..depth-1 give zeros instead of an error */
} weft_ds_one_hot_opts;
/* Integers become vectors of `depth`: an axis more, 1 at the id, 0 elsewhere. depth 0: as many as
 * there are ids, where the pipeline tells: after lookup, hash, cross or bucketize, and for the
 * labels of a folder of images. */
WEFT_API weft_ds weft_ds_one_hot(weft_data *d, weft_ds s, const char *columns, int64_t depth,
                                 const weft_ds_one_hot_opts *opts);
/* Joins columns of fixed shapes end to end into one vector `name`, in place of the first of them;
 * converted as by weft_ds_cast. */
WEFT_API weft_ds weft_ds_join(weft_data *d, weft_ds s, const char *columns, const char *name,
                              weft_dtype dtype);

/* ---- vocabularies ---------------------------------------------------------------------------- */

/* Words numbered 0 to n - 1. May be read by any number of threads at the same time. */
typedef struct weft_vocab weft_vocab;

WEFT_API weft_status weft_vocab_new(weft_ctx *ctx, int64_t n, const weft_str *words,
                                    weft_vocab **out);
/* One word per line. */
WEFT_API weft_status weft_vocab_read(weft_ctx *ctx, const char *path, weft_vocab **out);
WEFT_API weft_status weft_vocab_write(const weft_vocab *v, const char *path);
typedef struct weft_vocab_opts {
    size_t size;
    int64_t top;       /* keep only the most frequent; 0: all */
    int64_t min_count; /* drop rarer ones */
    int64_t max_words; /* maximum number of different words to count, otherwise WEFT_ELIMIT; 0:
                        * 2^24 */
    int threads;       /* as in weft_iter_opts */
    int64_t memory;    /* likewise */
} weft_vocab_opts;
/* The words of a text or integer column, counted in one pass over s: the most frequent first,
 * equally frequent ones by their bytes. The result does not depend on order or threads. */
WEFT_API weft_status weft_vocab_count(weft_data *d, weft_ds s, const char *column,
                                      const weft_vocab_opts *opts, weft_vocab **out);
WEFT_API void weft_vocab_free(weft_vocab *v); /* Free the pipelines that use it first. */
WEFT_API int64_t weft_vocab_size(const weft_vocab *v);
WEFT_API weft_str weft_vocab_word(const weft_vocab *v, int64_t id); /* empty if id is out of
                                                                     * range */
WEFT_API int64_t weft_vocab_find(const weft_vocab *v, const char *word, int64_t n); /* -1: none */

typedef struct weft_lookup_opts {
    size_t size;
    /* Buckets for words that are not in it, by hash as weft_ds_hash with seed 0; 0: one. WEFT_ZERO:
     * such a word is an error. */
    int64_t n_unknown;
} weft_lookup_opts;
/* Ids of words as i64: 0 to n_unknown - 1 for unknown words, n_unknown + number for the others.
 * Integers are looked up as decimal text. v is borrowed. */
WEFT_API weft_ds weft_ds_lookup(weft_data *d, weft_ds s, const char *columns, const weft_vocab *v,
                                const weft_lookup_opts *opts);

/* ---- statistics ------------------------------------------------------------------------------ */

/* Of a column: one set of numbers per position of the last axis of an element (for batched data: of
 * a sample) if its size is fixed, otherwise one for all. For text: of the length in bytes. */
typedef struct weft_column_stats {
    const char *name;
    weft_dtype dtype;
    int64_t n;                            /* sets */
    const int64_t *count, *n_missing;     /* items present; items that are NaN or empty text */
    const double *mean, *std, *min, *max; /* of the items present; std divides by count */
    int64_t n_distinct; /* different items in text and integer columns; -1 for others */
    bool at_least;      /* n_distinct is a lower bound */
} weft_column_stats;
typedef struct weft_stats weft_stats;
typedef struct weft_stats_opts {
    size_t size;
    const char *columns;  /* NULL: all */
    int64_t max_distinct; /* count different items up to here; 0: 2^20 */
    int threads;          /* as in weft_iter_opts */
    int64_t memory;       /* likewise */
} weft_stats_opts;
/* One pass over s. Sums are taken over fixed groups of 1024 elements, and groups are merged in
 * order: the result does not depend on threads. */
WEFT_API weft_status weft_ds_stats(weft_data *d, weft_ds s, const weft_stats_opts *opts,
                                   weft_stats **out);
WEFT_API void weft_stats_free(weft_stats *s);
WEFT_API int weft_stats_columns(const weft_stats *s);
WEFT_API const weft_column_stats *weft_stats_column(const weft_stats *s, int i); /* NULL beyond */
WEFT_API const weft_column_stats *weft_stats_find(const weft_stats *s, const char *name);
/* Writes a JSON file, which reads back to the same numbers. */
WEFT_API weft_status weft_stats_write(const weft_stats *s, const char *path);
WEFT_API weft_status weft_stats_read(weft_ctx *ctx, const char *path, weft_stats **out);
/* (x - mean) / std as f32, computed in f64; a std of 0 counts as 1. NaN stays. The numbers are
 * copied. */
WEFT_API weft_ds weft_ds_standardize(weft_data *d, weft_ds s, const char *columns,
                                     const weft_stats *stats);
/* NaN becomes the mean. */
WEFT_API weft_ds weft_ds_fill_mean(weft_data *d, weft_ds s, const char *columns,
                                   const weft_stats *stats);

#ifdef __cplusplus
}
#endif
#endif
