/* data.h - the door of the data layer, and shared by its files.
 *
 * A pipeline is an array of nodes (struct wf_ds): a kind, inputs, parameters, the columns it
 * yields. Elements move in blocks: n elements, column by column, so that a stage works on many at a
 * time.
 *
 * Work has two parts. What depends on the position (which record comes next) is serial and cheap;
 * what depends on the content (check, parse, decode, stack) is pure and may happen later, on any
 * thread. So there are two ways to get elements:
 *
 *   get   for addressable nodes: the elements with given numbers, as a pure function. No state at
 *         all: the position of an iterator over an addressable node is one number.
 *   pull  for streams: a stage (struct wf_stage, a node running in an iterator) returns a promise
 *         of up to `want` elements; fulfilling the promise (wf_promise_make) is the pure part.
 *
 * A node that only changes content, element by element, has `apply` and gets both for free. Queues
 * (queue.c) pull promises in order under a lock and make them on the iterator's threads. */
#ifndef WF_DATA_H
#define WF_DATA_H

#include <pthread.h>

#include "tensor/tensor.h"
#include "weft/data.h"
#include "weft/data_learned.h"
#include "weft/data_split.h"

struct wf_ds;
struct wf_stage;
struct wf_env;
struct wf_worker;
struct wf_block;
struct wf_promise;

/* ---- memory (block.c) ------------------------------------------------------------------------ */

/* Reference-counted memory of an iterator. Freed chunks are kept for later requests of the same
 * size. */
struct wf_chunk {
    _Atomic int refs;
    int size_class;
    int64_t bytes;
    struct wf_env *env;
    struct wf_chunk *next_free;
    char *data; /* 64-byte aligned, contents undefined */
};
#define WF_CHUNK_CLASSES 320 /* eight sizes an octave, from 256 bytes */
/* NULL if out of memory; wf_env_nomem then returns the status. */
struct wf_chunk *wf_chunk_new(struct wf_env *env, int64_t bytes);
struct wf_chunk *wf_chunk_ref(struct wf_chunk *s);
void wf_chunk_unref(struct wf_chunk *s); /* NULL is fine */

/* Which sample: the pass, and its number in the source. Augmentation depends on it. */
struct wf_at {
    int64_t epoch, id;
};

/* One column of a block. Elements of a fixed shape are contiguous; elements of different shapes
 * have offsets and shapes. Strings are weft_str views of bytes in the block's chunks. */
struct wf_col {
    struct wf_type type; /* of one element; WEFT_ANY only if offset is set */
    void *data;          /* items, in memory of one of the block's chunks or borrowed permanently */
    int64_t *offset;     /* NULL, or n + 1 positions in items; the first need not be 0 */
    int64_t *shape;      /* with offset: rank sizes for each element */
    int64_t cap;         /* with offset: items of room */
};
/* Where an element was read, for error texts. */
struct wf_origin {
    const char *file; /* lives as long as the pipeline */
    int64_t record;   /* counted from 0 within the file */
    int64_t offset;   /* in bytes, of the uncompressed content */
};
struct wf_block {
    struct wf_env *env;
    int64_t n;
    int n_cols;
    struct wf_col *col;
    struct wf_at *at;       /* n */
    struct wf_origin *from; /* n, or NULL if unknown */
    struct wf_at *sample;   /* of a block of one batch: its samples; NULL otherwise */
    int64_t n_samples;
    struct wf_chunk **keep;
    int64_t n_keep, cap_keep;
};

int64_t wf_item_bytes(weft_dtype t); /* as weft_dtype_size, including WEFT_STR */
int64_t wf_col_item_count(const struct wf_col *c, int64_t n); /* items of the first n elements */
/* Gives column c of b memory for its items in another dtype; *from is the column as it was, *items
 * where its *n items are. The offsets of a slice start at 0 again. */
weft_status wf_col_renew(struct wf_block *b, struct wf_col *c, weft_dtype dtype,
                         struct wf_col *from, const void **items, int64_t *n);

/* A block of n elements with n_cols empty columns and `at` zero. */
weft_status wf_block_new(struct wf_env *env, int n_cols, int64_t n, struct wf_block **out);
void wf_block_free(struct wf_block *b);
/* One more owner, who frees it, too; from now on it is only read. false: it cannot be shared. */
bool wf_block_share(struct wf_block *b);
/* Memory that lives as long as the block; contents undefined. */
weft_status wf_block_alloc(struct wf_block *b, int64_t bytes, void **out);
/* Creates column c of a fixed type, or of a type with WEFT_ANY sizes: then with offset and shape
 * arrays (not filled) and room for n_items items in total. */
weft_status wf_block_col(struct wf_block *b, int c, const struct wf_type *type, int64_t n_items);
/* Keeps a chunk alive with the block (takes its own reference). */
weft_status wf_block_keep(struct wf_block *b, struct wf_chunk *s);
/* Keeps alive what n other blocks keep, each chunk once. */
weft_status wf_block_keep_all(struct wf_block *b, int64_t n, struct wf_block *const *in);
/* b keeps what `other` keeps, and other's own memory. */
weft_status wf_block_keep_all_of(struct wf_block *b, const struct wf_block *other);
bool wf_type_fixed(const struct wf_type *t); /* no size is WEFT_ANY */
/* Elements [first, first + n) as a view that keeps b's chunks. */
weft_status wf_block_slice(struct wf_block *b, int64_t first, int64_t n, struct wf_block **out);
/* Joins blocks in order; the inputs are freed, also on failure. A single input is returned
 * unchanged. */
weft_status wf_block_concat(struct wf_env *env, int n, struct wf_block **in, struct wf_block **out);
/* Elements pick[0..n) of b, copied (bytes of strings are shared). */
weft_status wf_block_gather(struct wf_block *b, const int64_t *pick, int64_t n,
                            struct wf_block **out);
/* Puts one element's tensor into a column while a block is being filled in order: for any column.
 * Columns with offsets grow as needed. */
weft_status wf_block_put(struct wf_block *b, int c, int64_t i, const weft_tensor *t);
/* A view of element i of column c. */
weft_tensor wf_col_element(const struct wf_col *c, int64_t i);
int64_t wf_block_bytes(const struct wf_block *b);
/* Room for `from`, zeroed. */
weft_status wf_block_origins(struct wf_block *b);
/* Puts "part-0.tfrecord: record 17 (byte 5312): " before the current error text. Returns st. */
weft_status wf_block_err(const struct wf_block *b, int64_t i, weft_status st);
/* Stacks elements, n_each at a time (the last may have fewer): one more axis. Columns of different
 * shapes: an error that names the column, or with `ragged` values and offsets, each such column
 * followed by its offsets. Consumes b. */
weft_status wf_block_stack(struct wf_block *b, int64_t n_each, bool ragged, struct wf_ds *ds,
                           struct wf_block **out);
/* Only the elements with keep[i]; consumes b, also on failure. */
weft_status wf_block_filter(struct wf_block *b, const bool *keep, struct wf_block **out);

/* ---- state: what is saved (state.c) ---------------------------------------------------------- */

/* Writing goes into a wf_buf, whose first failure sticks; reading checks every length, and its
 * first failure sticks too. */
struct wf_reader {
    const char *p, *end;
    weft_status st;
};
void wf_put_i64(struct wf_buf *b, int64_t v);
void wf_put_bytes(struct wf_buf *b, const void *bytes, int64_t n); /* length, then bytes */
int64_t wf_get_i64(struct wf_reader *r);                           /* 0 after a failure */
/* An i64 that must be in [lo, hi]. */
int64_t wf_get_range(struct wf_reader *r, int64_t lo, int64_t hi, const char *what);
const char *wf_get_bytes(struct wf_reader *r,
                         int64_t *n); /* borrowed from the state; NULL after a failure */
weft_status wf_block_save(const struct wf_block *b, struct wf_buf *out);
/* A block of elements of ds: other columns are refused. */
weft_status wf_block_load(struct wf_env *env, const struct wf_ds *ds, struct wf_reader *r,
                          struct wf_block **out);
#define WF_MANY ((int64_t)1 << 60) /* more than any number of elements: bounds what is restored */

/* ---- nodes (ds.c) ---------------------------------------------------------------------------- */

struct wf_batching {
    int64_t n;           /* samples; the last batch of a pass may have fewer ... */
    bool drop_remainder; /* ... unless it is dropped */
    bool ragged;         /* samples of different shapes: values end to end, and offsets */
};

struct wf_ds_kind {
    const char *name;
    /* Addressable: a block of the n elements with these numbers (0 <= id < count) in these epochs.
     * Pure, on any thread. The block's `at` says where each sample comes from: a source sets
     * {epoch, its own number}; other nodes pass on their input's. */
    weft_status (*get)(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at, int64_t n,
                       struct wf_block **out);
    /* Content only: consumes `in` (also on failure). The number of elements stays the same, unless
     * the node is `inexact`. */
    weft_status (*apply)(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                         struct wf_block **out);
    /* Streams. open: make s->state; inputs with wf_stage_input. reset: to the beginning of a pass
     * (called before the first pull, and by repeat). pull: a promise of 1..want elements (exactly
     * that many unless inexact), NULL at the end. make: fulfills a promise returned by pull; pure.
     * It frees p->data, and sets p->in[i] to NULL for each input that it made, also on failure.
     * save and restore: the position, exactly. One thread at a time calls everything but make. */
    weft_status (*open)(struct wf_stage *s);
    void (*close)(struct wf_stage *s);
    weft_status (*reset)(struct wf_stage *s, int64_t epoch);
    weft_status (*pull)(struct wf_stage *s, int64_t want, struct wf_promise **out);
    weft_status (*make)(struct wf_promise *p, struct wf_worker *w, struct wf_block **out);
    void (*drop)(struct wf_promise *p); /* frees p->data of a promise that will not be made */
    weft_status (*save)(struct wf_stage *s, struct wf_buf *out);
    weft_status (*restore)(struct wf_stage *s, struct wf_reader *r);
    /* Per-thread scratch of get/apply/make, created on first use: see wf_scratch. */
    void (*scratch_free)(struct wf_ds *ds, void *scratch);
    /* Frees the node's own resources (open files, maps). Parameters are in the pipeline's arena. */
    void (*free)(struct wf_ds *ds);
    /* Kinds that make batches of consecutive samples of in[0]: how many samples each has, and one
     * batch of these samples, however many they are (consumed, also on failure). */
    struct wf_batching (*batching)(const struct wf_ds *ds);
    weft_status (*stack)(struct wf_ds *ds, struct wf_block *samples, struct wf_block **out);
    /* Of a batch, each row is changed by itself: a part of a batch becomes that part of the
     * result. */
    bool row_wise;
    /* How many ids (0 to n - 1) column `col` may hold: 0 when that is not known, WF_IDS_AS_INPUT
     * for as many as column *from of in[0]. NULL: as the column of the same name of its only
     * input. */
    int64_t (*ids)(const struct wf_ds *ds, int col, int *from);
    /* Its parameters as text, for printing and for telling whether a saved state belongs here. */
    void (*text)(const struct wf_ds *ds, struct wf_buf *out);
    /* The i-th of the files that a source reads; NULL past the end. NULL: it reads none, or a whole
     * directory. */
    const char *(*file)(const struct wf_ds *ds, int64_t i);
};

struct wf_ds {
    const struct wf_ds_kind *kind;
    weft_data *data;
    int id;
    const char *name; /* in counters and errors: the kind's, or the user's */
    int n_in;
    struct wf_ds **in;
    void *param; /* of the kind */
    int n_cols;
    weft_column *col;
    int64_t count;    /* or WEFT_UNKNOWN, WEFT_ENDLESS */
    bool addressable; /* get (or apply over an addressable input) works; use wf_ds_addressable */
    bool inexact;     /* this node may yield fewer or more elements than a promise says */
    bool heavy;       /* its saved state contains data: saved only on request, not with every
                       * block */
    bool batched;     /* the first axis of an element counts samples */
    bool reordered;   /* element i is another one in another epoch, here or at an input */
    bool unordered;   /* promises of this node may be fulfilled in any order */
};

struct weft_data {
    weft_ctx *ctx;
    struct wf_arena arena;
    struct wf_ds **ds; /* [1..n] */
    int64_t n, cap;
    int64_t array_room; /* bytes of array files that may still be read into memory */
    bool empty_labels;  /* labels of text may be empty: data for a trained model */
    weft_status st;
    char *error;
};

/* A new node with zeroed parameters of this size; columns, count and batched as in[0], addressable
 * if in[0] is and the kind has get or apply. NULL if the pipeline has failed, an input is the null
 * handle, or out of memory; the pipeline then keeps the error. */
struct wf_ds *wf_ds_new(weft_data *d, const struct wf_ds_kind *kind, int n_in, const weft_ds *in,
                        size_t param_bytes);
static inline bool wf_ds_addressable(const struct wf_ds *ds)
{
    return ds->addressable && !ds->inexact;
}
/* Makes the error that was just set (wf_err) the pipeline's, prefixed by the builder's name;
 * returns the null handle. */
weft_ds wf_ds_fail(weft_data *d, const char *builder, weft_status st);
weft_ds wf_ds_handle(const struct wf_ds *ds);            /* {0} for NULL */
struct wf_ds *wf_ds_node(const weft_data *d, weft_ds s); /* NULL if it is not valid */
#define WF_COLUMNS_MAX (1 << 20)
/* Columns copied into the arena; checks names (not empty, no duplicates, no commas), dtypes and
 * ranks. */
weft_status wf_ds_set_columns(struct wf_ds *ds, int n, const weft_column *col);
int wf_ds_find(const struct wf_ds *ds, const char *name); /* index or -1 */
#define WF_IDS_AS_INPUT (-1)
/* How many ids a column may hold, as lookup, hash, cross, bucketize or the classes of a folder
 * made them; 0: not known. */
int64_t wf_ds_ids(const struct wf_ds *ds, int col);
int64_t wf_ids_unknown(const struct wf_ds *ds, int col,
                       int *from); /* for kinds that change values */
weft_status wf_ds_err_column(const struct wf_ds *ds,
                             const char *name); /* "no column 'x' (there are …; did you mean …)" */
/* Splits a list of names separated by commas, trimming blanks; returns their number, -1 if too many
 * or too long. */
#define WF_NAME_MAX 256
int wf_names_split(const char *list, char names[][WF_NAME_MAX], int max);
/* The numbers of the columns in a list, in the pipeline's arena. */
weft_status wf_ds_columns_named(const struct wf_ds *ds, const char *list, int **out, int *n);
/* And back: their names, separated by commas. */
void wf_ds_names_text(const struct wf_ds *ds, int n, const int *col, struct wf_buf *out);
struct wf_type wf_column_type(const weft_column *c);
weft_column wf_column_of(const char *name, weft_dtype dtype, int rank, const int64_t *dim);

/* ---- learning (learned.c, fingerprint.c) ----------------------------------------------------- */

/* Moves the vocabulary or statistics with this name; *moved: whether there were any. Afterwards
 * `from` may only be freed. */
weft_status wf_learned_move(weft_learned *to, weft_learned *from, const char *name, bool *moved);
/* weft_learned_from; *bad: the item that could not be learned, or -1: the pass failed. */
weft_status wf_learned_from(weft_learned *l, weft_data *d, weft_ds s, int n, const weft_learn *what,
                            int *bad);
/* A number that tells whether files are the same as before: from their names without directories,
 * sizes and content (for large files samples of it). 0 for a directory. */
weft_status wf_files_fingerprint(weft_ctx *ctx, const char *patterns, uint64_t *out);
/* The same of the files that a source reads; 0: none. */
weft_status wf_ds_fingerprint(const struct wf_ds *ds, uint64_t *out);
/* Adds a dataset to the data part of a fingerprint (describe.c): its stages, columns, and the
 * contents of its files. Functions of the user are known by the names of their stages, and data in
 * memory by its shape. */
struct wf_fprint;
weft_status wf_ds_describe(const weft_data *d, weft_ds s, struct wf_fprint *f);

/* ---- running (stage.c, queue.c, iter.c) ------------------------------------------------------ */

struct wf_stats {
    _Atomic int64_t n_elements, n_bytes, n_skipped, busy_ns, wait_ns;
};

/* Shared by the stages of an iterator. Lives as long as its creator and every chunk in it. */
struct wf_env {
    _Atomic int64_t refs;
    weft_ctx *ctx;
    weft_data *data;
    int64_t n_nodes; /* of the pipeline when the iterator was created: more may be built
                      * meanwhile */
    int64_t budget;
    _Atomic int64_t bytes;  /* of live chunks */
    struct wf_stats *stats; /* by node id */
    struct wf_crew *crew;   /* may have no threads: then consumers do all work */
    pthread_mutex_t lock;   /* of the free chunks */
    struct wf_chunk *free_chunks[WF_CHUNK_CLASSES];
    int64_t free_bytes;
    struct wf_worker *workers; /* idle ones */
    _Atomic bool stopping;     /* the iterator is being freed: a waiting pull gives up */
    bool no_pool;              /* threads besides the consumer's get elements: the context's pool
                                * is not for them */
};
/* For the nodes of `data`. An inner iterator (a dataset created by flat_map) shares the crew of the
 * outer one. */
weft_status wf_env_new(weft_data *data, int64_t budget, struct wf_crew *crew, struct wf_env **out);
void wf_env_unref(struct wf_env *env); /* NULL is fine */
/* Called by its creator: frees the scratch of its workers now, the rest with the last chunk. */
void wf_env_close(struct wf_env *env);
/* The element of a block of one as a batch that owns the block. */
weft_status wf_batch_of(struct wf_block *b, const struct wf_ds *ds, weft_batch **out);
weft_status wf_env_nomem(struct wf_env *env, int64_t bytes, const char *what);

/* Row at[i].id of n becomes row i (gather.c); convert: for rows that are not simply copied. */
struct wf_gather {
    const char *base;
    int64_t row, out; /* bytes of a row there, and here */
    const struct wf_at *at;
    int64_t n;
    char *to;
    void (*convert)(const void *how, const char *from, char *to);
    const void *how;
};
void wf_rows_gather(const struct wf_env *env, const struct wf_gather *g);

/* Whether a source of arrays reads none from a file: rows are available without waiting
 * (array.c). */
bool wf_arrays_in_memory(const struct wf_ds *ds);

/* One of the threads that do pure work. */
struct wf_worker {
    struct wf_env *env;
    void **scratch; /* by node id */
    int64_t nested_ns;
    struct wf_worker *next;
};
/* An idle worker, or a new one; NULL if out of memory. */
struct wf_worker *wf_worker_take(struct wf_env *env);
void wf_worker_give(struct wf_worker *w);
/* The node's scratch on this thread; NULL until wf_scratch_set. */
void *wf_scratch(struct wf_worker *w, const struct wf_ds *ds);
void wf_scratch_set(struct wf_worker *w, const struct wf_ds *ds, void *scratch);
static inline struct wf_stats *wf_stats_of(struct wf_env *env, const struct wf_ds *ds)
{
    return &env->stats[ds->id];
}

/* A node running in an iterator. Its memory outlives its closing while it has promises; its state
 * does not, so make may only use ds, env and the promise. */
struct wf_stage {
    _Atomic int refs;
    const struct wf_ds_kind *kind; /* ds->kind, or one of the engine's own */
    struct wf_ds *ds;
    struct wf_env *env;
    int n_in;
    struct wf_stage **in;
    void *state; /* the kind's, freed by close */
    bool inexact, heavy, unordered;
    int64_t want; /* how many elements the consumer will usually request: a hint, 0 if unknown */
};

struct wf_promise {
    struct wf_stage *stage;
    int64_t n; /* elements */
    int n_in;
    struct wf_promise **in;
    void *data; /* the kind's */
};

/* How a stage consumes its input.
 *   WF_IN_EXACT: promises must have as many elements as they say (an inexact input is made first,
 *     and split).
 *   WF_IN_ANY: promises are passed on.
 *   WF_IN_MADE: the stage reads blocks while it pulls: the input is made ahead by the iterator's
 *     threads. */
enum wf_in { WF_IN_ANY, WF_IN_EXACT, WF_IN_MADE };
/* Opens ds->in[i] for stage s, into s->in[i]; `want` elements will usually be requested. */
weft_status wf_stage_input(struct wf_stage *s, int i, enum wf_in how, int64_t want);
/* Opens any node, as interleave does for inner datasets. */
weft_status wf_stage_open(struct wf_env *env, struct wf_ds *ds, enum wf_in how, int64_t want,
                          struct wf_stage **out);
void wf_stage_close(struct wf_stage *s); /* and its inputs; NULL is fine */
weft_status wf_stage_reset(struct wf_stage *s, int64_t epoch);
weft_status wf_stage_pull(struct wf_stage *s, int64_t want, struct wf_promise **out);
/* Pulls and makes immediately, on the calling thread: for WF_IN_MADE inputs. *out is NULL at the
 * end. */
weft_status wf_stage_next(struct wf_stage *s, int64_t want, struct wf_block **out);
weft_status wf_stage_save(struct wf_stage *s, struct wf_buf *out); /* with its inputs */
weft_status wf_stage_restore(struct wf_stage *s, struct wf_reader *r);

/* A promise of n elements by stage s; takes ownership of the inputs. NULL if out of memory (the
 * inputs are then dropped). */
struct wf_promise *wf_promise_new(struct wf_stage *s, int64_t n, int n_in, struct wf_promise **in,
                                  void *data);
/* A promise that is already fulfilled. Takes ownership of the block, also if it returns NULL. */
struct wf_promise *wf_promise_made(struct wf_stage *s, struct wf_block *b);
extern const struct wf_ds_kind wf_queue_kind; /* queue.c: makes its input ahead */
/* The block promised; consumes p, also on failure. */
weft_status wf_promise_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out);
void wf_promise_drop(struct wf_promise *p);
/* For stages that combine several promises of an exact input. gather: pulls until n elements are
 * promised or the input ends, and promises them by stage s with the parts as inputs (NULL at the
 * end); *got is their number. make_inputs: makes all parts and joins them into one block. */
weft_status wf_promise_gather(struct wf_stage *s, int64_t n, struct wf_promise **out, int64_t *got);
weft_status wf_promise_gather_from(struct wf_stage *s, struct wf_stage *in, int64_t n,
                                   struct wf_promise **out, int64_t *got);
weft_status wf_promise_make_inputs(struct wf_promise *p, struct wf_worker *w,
                                   struct wf_block **out);
/* For nodes over several inputs with the same columns: checks that, and sets sizes that differ to
 * WEFT_ANY. */
weft_status wf_ds_join_inputs(struct wf_ds *ds);

/* The crew of an iterator: threads that serve its queues. */
weft_status wf_crew_new(weft_ctx *ctx, int n_threads, struct wf_crew **out);
void wf_crew_stop(
    struct wf_crew *crew); /* ends its threads; before the stages are closed; NULL is fine */
void wf_crew_free(struct wf_crew *crew);      /* after the stages are closed */
int wf_crew_size(const struct wf_crew *crew); /* threads; 0: consumers do all work */
/* For a queue: how many elements it may work ahead; 0: adaptive. */
void wf_queue_set_ahead(struct wf_stage *s, int64_t n);

/* One element of an iterator as a block, NULL at the end of the pass; of samples up to n. */
weft_status wf_iter_block(weft_iter *it, int64_t n, struct wf_block **out);
/* Over an addressable node: to element `number` of a pass. */
weft_status wf_iter_seek(weft_iter *it, int64_t epoch, int64_t number);
/* And where it is: the pass and the number of the next element. */
weft_status wf_iter_place(const weft_iter *it, int64_t *epoch, int64_t *number);
/* Its position without the description of its pipeline, which the caller saves. */
weft_status wf_iter_save_stages(weft_iter *it, struct wf_buf *out);
weft_status wf_iter_restore_stages(weft_iter *it, struct wf_reader *r);
/* WEFT_EINVAL that names the first line in which a saved pipeline's text (n bytes) differs from
 * that of this one. */
weft_status wf_err_other_pipeline(const char *saved, int64_t n, const char *here);
/* Whether a saved position is that of an iterator; *r is then after the first line. */
bool wf_iter_is_position(struct wf_reader *r);
/* A warning, once (*warned), when a reader waits for the pipeline of ds for a large share of the
 * time since first_ns. */
void wf_warn_starved(const struct wf_env *env, const struct wf_ds *ds, int64_t first_ns,
                     int64_t now_ns, int64_t waited_ns, _Atomic bool *warned);
/* Records that the nodes of ds have skipped. */
int64_t wf_env_skipped(const struct wf_env *env, const struct wf_ds *ds);

/* A stage over an addressable node: the pass, and the number of the next element. */
weft_status wf_stage_seek(struct wf_stage *s, int64_t epoch, int64_t number);
bool wf_stage_place(const struct wf_stage *s, int64_t *epoch, int64_t *number);
/* The same for the queue after it: what it holds is dropped. */
weft_status wf_queue_seek(struct wf_stage *s, int64_t epoch, int64_t number);

/* A node that only changes content, applied to a block (consumed, also on failure). */
weft_status wf_ds_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                        struct wf_block **out);
/* The elements of an addressable node. */
weft_status wf_ds_get_block(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                            int64_t n, struct wf_block **out);

/* ---- the dealer, for fit (split/dealer.c) ---------------------------------------------------- */

/* Steps from `end` on will not be requested: they are not prepared. */
void wf_dealer_set_end(weft_dealer *a, int64_t end);
/* Several threads request shards: none of them may use the context's pool. */
void wf_dealer_share(weft_dealer *a);
/* The time that callers have spent in requests. */
double wf_dealer_waited_s(const weft_dealer *a);
int64_t wf_dealer_skipped(const weft_dealer *a); /* records */
/* The next step is batch `number` of the epoch. A stream is read up to there. */
weft_status wf_dealer_seek(weft_dealer *a, int64_t epoch, int64_t number);
/* A position that an iterator over the same batches saved, after `number` batches of the epoch. */
weft_status wf_dealer_restore_iter(weft_dealer *a, const char *state, int64_t n, int64_t epoch,
                                   int64_t number);

/* ---- the plan of a data set (split/plan.c) --------------------------------------------------- */

/* The share of the samples that is held out: the last ones, or chosen at random. */
struct wf_hold {
    double share;
    bool random;
    uint64_t seed;
};
/* *s keeps the rest. WEFT_EINVAL if the order changes from epoch to epoch already. */
weft_status wf_plan_hold_out(weft_data *d, const struct wf_hold *h, weft_ds *s, weft_ds *held);
/* Samples that can be read by number: all of them in a random order. Others are drawn from a
 * buffer; buffer 0: they stay in order. */
weft_status wf_plan_shuffle(weft_data *d, uint64_t seed, int64_t buffer, weft_ds *s);
/* Batches of n samples, unless there are batches already. */
weft_status wf_plan_batch(weft_data *d, int64_t n, weft_ds *s);

/* ---- orders (permute.c) ---------------------------------------------------------------------- */

/* A uniform permutation of 0..n-1 chosen by (seed, epoch): maps position i. O(1) memory. */
struct wf_permutation {
    uint64_t n;
    int half_bits;
    uint32_t key[8];
};
void wf_permutation_init(struct wf_permutation *p, int64_t n, uint64_t seed, int64_t epoch);
int64_t wf_permutation_at(const struct wf_permutation *p, int64_t i);
/* A random word as a function of (seed, epoch, id, salt); for augmentation, sampling, buffers. */
uint64_t wf_random_word(uint64_t seed, int64_t epoch, int64_t id, uint32_t salt);
/* Uniform in [0, n). */
int64_t wf_random_index(uint64_t word, int64_t n);

#endif
