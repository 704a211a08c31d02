/* weft/data.h - datasets: pipelines that feed a trainer.
 *
 * A pipeline is a recipe, built like a graph: sources and transformations are nodes of a weft_data,
 * referred to by small handles. Builders are sticky: the first error is kept with its text, later
 * builders return the null handle, and making an iterator reports it. Nothing is read ahead until
 * there is an iterator.
 *
 * A dataset yields elements; an element is a fixed list of named columns, each a tensor. Batching
 * stacks elements, so a batch is again an element, with one more axis. Every order is a pure
 * function of seeds, and every iterator can save its position and resume from it with the same
 * elements.
 *
 *   weft_data *d;
 *   weft_iter *it;
 *   weft_batch *b;
 *   weft_data_new(ctx, &d);
 *   weft_ds s = weft_ds_csv(d, "train-*.csv.gz", WEFT_OPTS(weft_csv_opts, .label = "price"));
 *   s = weft_ds_shuffle(d, s, 10000, NULL);
 *   s = weft_ds_batch(d, s, 32, NULL);
 *   st = weft_iter_new(d, s, NULL, &it);
 *   while (!(st = weft_iter_next(it, &b)) && b) {
 *       ... b->col[0] ...
 *       weft_batch_free(b);
 *   }
 *
 * Sources are in data_record.h, data_table.h, data_array.h and data_image.h; data_open.h detects
 * the format of a file. data_feature.h prepares features, data_image.h transforms images,
 * data_split.h divides data among workers. */
#ifndef WEFT_DATA_H
#define WEFT_DATA_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_data weft_data;

/* A dataset of a pipeline. {0} means none. */
typedef struct weft_ds {
    int32_t id;
} weft_ds;

/* The dtype of text and bytes, only in pipelines: an item is a weft_str. It cannot be fed to a
 * graph; look it up in a vocabulary, hash it or decode it first. */
#define WEFT_STR ((weft_dtype)(WEFT_N_DTYPES + 1))
typedef struct weft_str {
    const char *data; /* not NUL-terminated */
    int64_t n;
} weft_str;

/* What a column is for. A trainer finds labels and weights by role. */
typedef enum weft_role { WEFT_FEATURE, WEFT_LABEL, WEFT_WEIGHT } weft_role;

/* What to do with a record that cannot be read: stop with an error that names file, record and
 * byte, or skip and count it (weft_stage_stats.n_skipped). */
typedef enum weft_on_error { WEFT_ON_ERROR_STOP, WEFT_ON_ERROR_SKIP } weft_on_error;

/* A column as a dataset declares it. A size of WEFT_ANY differs between elements. */
typedef struct weft_column {
    const char *name;
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    weft_role role;
} weft_column;

WEFT_API weft_status weft_data_new(weft_ctx *ctx, weft_data **out);
/* Free its iterators first. */
WEFT_API void weft_data_free(weft_data *d);
WEFT_API weft_status weft_data_status(const weft_data *d); /* the sticky error */

/* The columns of a dataset. `columns` is borrowed from d. */
WEFT_API weft_status weft_ds_columns(const weft_data *d, weft_ds s, int *n,
                                     const weft_column **columns);
#define WEFT_UNKNOWN (-1)
#define WEFT_ENDLESS INT64_MAX
/* The number of elements in one pass; WEFT_UNKNOWN if only reading would tell, WEFT_ENDLESS after
 * repeat without a count. */
WEFT_API int64_t weft_ds_count(const weft_data *d, weft_ds s);
/* Whether element i can be read without reading those before it. */
WEFT_API bool weft_ds_addressable(const weft_data *d, weft_ds s);
/* The pipeline as text, one line per stage, sources first; freed with weft_text_free. */
WEFT_API weft_status weft_ds_text(const weft_data *d, weft_ds s, char **out);

/* ---- sources in memory ----------------------------------------------------------------------- */

/* Element i is row i of every tensor; all tensors have the same first size. The memory is borrowed.
 * A batch of consecutive rows is a view of it: nothing is copied. */
WEFT_API weft_ds weft_ds_tensors(weft_data *d, int n, const weft_column *columns,
                                 const weft_tensor *tensors);
/* i64 scalars "value": first, first + step, … below last (above it for a negative step). */
WEFT_API weft_ds weft_ds_range(weft_data *d, int64_t first, int64_t last, int64_t step);
/* `count` i64 scalars "value", uniform over all 2^63, a function of seed and index. count 0:
 * endless. */
WEFT_API weft_ds weft_ds_random(weft_data *d, uint64_t seed, int64_t count);

/* One element that a callback fills or reads. */
typedef struct weft_sample {
    int n_cols;
    weft_tensor *col;
    int64_t epoch, id; /* the pass, and the number of the sample in its source */
    void *inside;
} weft_sample;
/* For an output column without a fixed shape: sets its shape and allocates memory to write into.
 * The dtype is the declared one. For strings, weft_sample_text copies the bytes. */
WEFT_API weft_status weft_sample_shape(weft_sample *s, int col, int rank, const int64_t *dim);
WEFT_API weft_status weft_sample_text(weft_sample *s, int col, int64_t item, const char *bytes,
                                      int64_t n);

/* Fills s->col[i].data (allocated for fixed shapes). Called by several threads at the same time, in
 * any order; the same id must give the same element. */
typedef weft_status weft_get_fn(void *arg, int64_t id, weft_sample *s);
WEFT_API weft_ds weft_ds_get(weft_data *d, int n, const weft_column *columns, int64_t count,
                             weft_get_fn *get, void *arg);
/* A stream: one call per element, in order, by one thread at a time; set *end to end it. id counts
 * from 0 in each pass. A restored position asks for its id: a stream that cannot seek there returns
 * WEFT_ENOSUP. */
typedef weft_status weft_stream_fn(void *arg, int64_t id, weft_sample *s, bool *end);
WEFT_API weft_ds weft_ds_stream(weft_data *d, int n, const weft_column *columns,
                                weft_stream_fn *next, void *arg);

/* ---- transformations ------------------------------------------------------------------------- */

/* Keeps and orders columns: "image, label". */
WEFT_API weft_ds weft_ds_select(weft_data *d, weft_ds s, const char *columns);
WEFT_API weft_ds weft_ds_rename(weft_data *d, weft_ds s, const char *column, const char *name);
/* A copy of a column under another name, after the others. No data is copied. */
WEFT_API weft_ds weft_ds_copy(weft_data *d, weft_ds s, const char *column, const char *name);
/* Columns (separated by commas) become labels, or weights. */
WEFT_API weft_ds weft_ds_role(weft_data *d, weft_ds s, const char *columns, weft_role role);

/* Maps one element to one element. The callback reads in->col and fills out->col; it is called by
 * several threads at the same time unless serial. */
typedef weft_status weft_map_fn(void *arg, const weft_sample *in, weft_sample *out);
typedef struct weft_map_opts {
    size_t size;
    const char *name; /* in counters and errors; NULL: "map" */
    bool serial;      /* the callback is not thread-safe: one call at a time, in order */
    bool unordered;   /* elements come as soon as they are ready: faster, but not reproducible */
} weft_map_opts;
/* n_columns 0: the same columns. */
WEFT_API weft_ds weft_ds_map(weft_data *d, weft_ds s, int n_columns, const weft_column *columns,
                             weft_map_fn *fn, void *arg, const weft_map_opts *opts);

/* Keeps the elements for which *keep becomes true. */
typedef weft_status weft_filter_fn(void *arg, const weft_sample *in, bool *keep);
WEFT_API weft_ds weft_ds_filter(weft_data *d, weft_ds s, weft_filter_fn *fn, void *arg);

typedef struct weft_where_opts {
    size_t size;
    int n_values;
    const double *values;    /* one of these, */
    const double *min, *max; /* and not below, not above; NULL: any */
    bool others;             /* the other elements instead */
} weft_where_opts;
/* Keeps the elements whose column, one number each, matches the options: for example a few classes
 * of many. Addressable if s is and its order is the same in every epoch: the elements are then
 * found now, in one pass, by the values of epoch 0. */
WEFT_API weft_ds weft_ds_where(weft_data *d, weft_ds s, const char *column,
                               const weft_where_opts *opts);

typedef struct weft_batch_opts {
    size_t size;
    bool drop_remainder;
    bool ragged; /* a column of varying lengths becomes its values joined end to end, and a column
                  * "name:offsets" i64 [n + 1] (embedding_bag takes both) */
} weft_batch_opts;
WEFT_API weft_ds weft_ds_batch(weft_data *d, weft_ds s, int64_t n, const weft_batch_opts *opts);

/* A uniform permutation of the whole dataset in O(1) memory; the dataset must be addressable. A new
 * one in each epoch, unless `same`. */
typedef struct weft_shuffle_opts {
    size_t size;
    uint64_t seed;
    bool same_each_epoch;
} weft_shuffle_opts;
WEFT_API weft_ds weft_ds_shuffle_all(weft_data *d, weft_ds s, const weft_shuffle_opts *opts);
/* Draws the next element from a buffer of `n`; for any dataset. */
WEFT_API weft_ds weft_ds_shuffle(weft_data *d, weft_ds s, int64_t n, const weft_shuffle_opts *opts);

WEFT_API weft_ds weft_ds_repeat(weft_data *d, weft_ds s, int64_t times); /* 0: endless */
WEFT_API weft_ds weft_ds_take(weft_data *d, weft_ds s, int64_t n);
WEFT_API weft_ds weft_ds_skip(weft_data *d, weft_ds s, int64_t n);
/* Elements i, i + n, i + 2n, … */
WEFT_API weft_ds weft_ds_shard(weft_data *d, weft_ds s, int64_t n, int64_t i);
/* Elements side by side: the columns of all, until the shortest ends. Duplicate names are an
 * error. */
WEFT_API weft_ds weft_ds_zip(weft_data *d, int n, const weft_ds *s);
/* One after the other; all must have the same columns. */
WEFT_API weft_ds weft_ds_concat(weft_data *d, int n, const weft_ds *s);
/* Adds a column "index" as the first: 0, 1, … from `first`. */
WEFT_API weft_ds weft_ds_enumerate(weft_data *d, weft_ds s, int64_t first);
/* Works ahead by up to n elements at this point; 0: adaptively, within the iterator's memory. An
 * iterator does this at its end anyway; this is for a slow stage in the middle. */
WEFT_API weft_ds weft_ds_prefetch(weft_data *d, weft_ds s, int64_t n);

/* Stacks elements of different shapes into one tensor: shorter ones are padded. */
typedef struct weft_pad_column {
    const char *column;
    double value;     /* the padding; default 0 */
    const char *text; /* for text; NULL: empty */
    /* Sizes to pad to; 0: the largest in the batch. A larger element is an error. */
    int64_t length[WEFT_MAX_RANK];
} weft_pad_column;
typedef struct weft_padded_batch_opts {
    size_t size;
    bool drop_remainder;
    int n_pads; /* columns that are not listed are padded with zeros */
    const weft_pad_column *pads;
    bool lengths; /* a column whose first size varies is followed by "name:length" i64 [n] */
} weft_padded_batch_opts;
WEFT_API weft_ds weft_ds_padded_batch(weft_data *d, weft_ds s, int64_t n,
                                      const weft_padded_batch_opts *opts);
/* Padded batches of elements of similar length: bucket b takes lengths from bounds[b - 1] to below
 * bounds[b] (ascending), in batches of batch_sizes[b] (n_bounds + 1 of them). The length is the
 * first size of the column, the value of an integer scalar, or the bytes of a text. */
WEFT_API weft_ds weft_ds_bucket_by_length(weft_data *d, weft_ds s, const char *column, int n_bounds,
                                          const int64_t *bounds, const int64_t *batch_sizes,
                                          const weft_padded_batch_opts *opts);
/* Rows of batches become elements again. Every column needs a first axis, of the same size within a
 * batch. */
WEFT_API weft_ds weft_ds_unbatch(weft_data *d, weft_ds s);

typedef struct weft_window_opts {
    size_t size;
    int64_t shift;  /* distance between the first elements of two windows; 0: the window's size */
    int64_t stride; /* between elements of a window; 0: 1 */
    bool drop_remainder; /* drop windows that would be short; otherwise those at the end are
                          * short */
} weft_window_opts;
/* Stacks of n neighboring elements, which may overlap: window k has elements k * shift + j *
 * stride. */
WEFT_API weft_ds weft_ds_window(weft_data *d, weft_ds s, int64_t n, const weft_window_opts *opts);

/* Creates the dataset of an element, in the fresh pipeline d, which weft frees after it has been
 * read. Called by one thread at a time, in order; the same element must give the same dataset. */
typedef weft_status weft_inner_fn(void *arg, const weft_sample *element, weft_data *d,
                                  weft_ds *out);
typedef struct weft_interleave_opts {
    size_t size;
    int64_t cycle_length; /* datasets open at the same time; 0: 4 */
    int64_t block_length; /* elements of one dataset before the next one's turn; 0: 1 */
} weft_interleave_opts;
/* The elements of the datasets that fn creates from each element; `columns` are theirs. The order
 * is fixed: the open datasets take turns, and one that ends is replaced by that of the next
 * element. Samples are numbered as they come. */
WEFT_API weft_ds weft_ds_interleave(weft_data *d, weft_ds s, int n_columns,
                                    const weft_column *columns, weft_inner_fn *fn, void *arg,
                                    const weft_interleave_opts *opts);
/* Likewise, one dataset after the other. */
WEFT_API weft_ds weft_ds_flat_map(weft_data *d, weft_ds s, int n_columns,
                                  const weft_column *columns, weft_inner_fn *fn, void *arg);
/* n datasets with the same columns take turns, block_length (0: 1) elements each, until all have
 * ended. */
WEFT_API weft_ds weft_ds_interleave_n(weft_data *d, int n, const weft_ds *s, int64_t block_length);

typedef struct weft_sample_from_opts {
    size_t size;
    uint64_t seed;
    bool stop_at_first_end; /* end when the first dataset ends; otherwise when the last one does */
} weft_sample_from_opts;
/* Each element comes from dataset i with probability weights[i] / sum (NULL: all equal). Datasets
 * that have ended are no longer drawn from. */
WEFT_API weft_ds weft_ds_sample_from(weft_data *d, int n, const weft_ds *s, const double *weights,
                                     const weft_sample_from_opts *opts);

typedef struct weft_sample_opts {
    size_t size;
    uint64_t seed;
    bool replacement; /* an element may be drawn several times */
    /* With replacement: the relative frequency of each element; copied. NULL: all equal. */
    const double *weights;
    bool same_each_epoch;
} weft_sample_opts;
/* n elements drawn from an addressable dataset, each at most once, or with replacement.
 * Addressable; element i depends only on seed, epoch and i. */
WEFT_API weft_ds weft_ds_sample(weft_data *d, weft_ds s, int64_t n, const weft_sample_opts *opts);

/* Keeps elements as they were produced the first time, for later epochs and iterators of this
 * pipeline: the stages before the cache run once, as for epoch 0. */
typedef enum weft_cache_in {
    /* In memory if all elements fit half the iterator's memory, otherwise in the file if there is a
     * path, otherwise nothing is kept. */
    WEFT_CACHE_AUTO,
    WEFT_CACHE_MEMORY, /* WEFT_ELIMIT if the elements do not fit the iterator's memory */
    WEFT_CACHE_FILE
} weft_cache_in;
typedef struct weft_cache_opts {
    size_t size;
    weft_cache_in in;
    const char *path; /* of the file, which is removed with the pipeline */
} weft_cache_opts;
WEFT_API weft_ds weft_ds_cache(weft_data *d, weft_ds s, const weft_cache_opts *opts);

typedef struct weft_snapshot_opts {
    size_t size;
    /* A different key makes a different snapshot: put the version of your callbacks and files
     * here. */
    const char *key;
} weft_snapshot_opts;
/* A cache in a file that is kept. Later processes read it instead of running the stages before it,
 * as long as the pipeline's text (weft_ds_text) and the key are the same. It appears under its name
 * once it is complete. One that is damaged or belongs to another pipeline is reported in the log
 * and created again. */
WEFT_API weft_ds weft_ds_snapshot(weft_data *d, weft_ds s, const char *path,
                                  const weft_snapshot_opts *opts);

/* ---- iterators ------------------------------------------------------------------------------- */

typedef struct weft_iter weft_iter;

typedef struct weft_iter_opts {
    size_t size;
    int threads;    /* threads that work ahead; 0: as many as the context's pool has; WEFT_ZERO:
                     * none, all work is done in weft_iter_next */
    int64_t memory; /* bytes for elements in flight and buffers; 0: 256 MiB */
    int64_t ahead;  /* elements to work ahead; 0: adaptively */
    int64_t epoch;  /* the pass to start with: shuffles and augmentation depend on it */
} weft_iter_opts;

/* An element, usually a batch. Borrowed memory that is valid until weft_batch_free. */
typedef struct weft_batch {
    int n_cols;
    const weft_column *column; /* names, roles; sizes as declared */
    const weft_tensor *col;    /* the data, with actual sizes */
    int64_t n;                 /* samples: the first size of batched data, otherwise 1 */
    int64_t epoch;             /* of its first sample */
    const int64_t *id;         /* the n sample numbers in their source */
    struct wf_batch_inside *inside;
} weft_batch;

/* Used by one thread at a time, together with the pipeline d, which must outlive it. */
WEFT_API weft_status weft_iter_new(weft_data *d, weft_ds s, const weft_iter_opts *opts,
                                   weft_iter **out);
WEFT_API void weft_iter_free(weft_iter *it);
/* The next element, owned by the caller; NULL at the end. An error persists until the iterator is
 * reset or restored. */
WEFT_API weft_status weft_iter_next(weft_iter *it, weft_batch **out);
WEFT_API void weft_batch_free(weft_batch *b);
/* Starts again, with this epoch's order. */
WEFT_API weft_status weft_iter_reset(weft_iter *it, int64_t epoch);

/* The column with this name, or NULL. */
WEFT_API const weft_tensor *weft_batch_find(const weft_batch *b, const char *name);
/* feeds[i] = the column named names[i], ready for weft_fn_run. */
WEFT_API weft_status weft_batch_feeds(const weft_batch *b, int n, const char *const *names,
                                      weft_tensor *feeds);

/* The position after the last element returned, as bytes; freed with weft_text_free. Restoring it
 * in the same pipeline, in this process or another, continues with identical elements. */
WEFT_API weft_status weft_iter_save(weft_iter *it, char **state, int64_t *n);
WEFT_API weft_status weft_iter_restore(weft_iter *it, const char *state, int64_t n);

/* Counters of a stage since the iterator was created. */
typedef struct weft_stage_stats {
    const char *name;   /* as in weft_ds_text */
    int64_t n_elements; /* made */
    int64_t n_bytes;    /* read from files, or produced */
    int64_t n_skipped;  /* bad records skipped */
    double busy_s;      /* over all threads */
    double wait_s;      /* waiting for its input */
} weft_stage_stats;
WEFT_API int weft_iter_n_stages(const weft_iter *it);
WEFT_API weft_status weft_iter_stage(const weft_iter *it, int i, weft_stage_stats *out);
/* How many seconds weft_iter_next had to wait, and which share of the time since the first call
 * that is. A pipeline that starves its reader logs this once, with the name of the busiest
 * stage. */
WEFT_API void weft_iter_waited(const weft_iter *it, double *seconds, double *share);

#ifdef __cplusplus
}
#endif
#endif
