/* weft/ckpt.h - safetensors files and checkpoints.
 *
 * A checkpoint is a directory DIR/ckpt-000001234 with safetensors shards of tensors and "blobs"
 * (the position in the data, the model) and manifest.json, which holds the step, metrics and a
 * checksum of every tensor, blob and file. It is created by one rename of a directory that was
 * written, synced and read back before: it exists completely or not at all.
 * docs/formats/checkpoint.md is the specification.
 *
 *   weft_ckpt_writer *w;
 *   weft_ckpt *c;
 *   st = weft_ckpt_open_latest(ctx, "run/ckpt", &c);     resume; WEFT_ENOENT: the first start
 *   if (!st) ... weft_ckpt_info(c)->step, weft_ckpt_load(c, name, &tensor), weft_ckpt_blob_read ...
 *   st = weft_ckpt_writer_new(ctx, "run/ckpt", NULL, &w);
 *   st = weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = 100, .n_tensors = n, .tensors = t));
 *   st = weft_ckpt_writer_close(w); */
#ifndef WEFT_CKPT_H
#define WEFT_CKPT_H

#include "weft/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- safetensors ----------------------------------------------------------------------------- */

/* An open file. Opening reads and checks the header: sizes, holes, overlaps, duplicate names,
 * UTF-8, limits; anything wrong is WEFT_EPARSE with a text that names it. Data is read on demand,
 * so a file that is truncated while open gives a status, never a signal. One thread at a time. */
typedef struct weft_st weft_st;

WEFT_API weft_status weft_st_open(weft_ctx *ctx, const char *path, weft_st **out);
WEFT_API void weft_st_close(weft_st *st);
WEFT_API int64_t weft_st_n(const weft_st *st);
/* The index of a tensor, or -1. */
WEFT_API int64_t weft_st_find(const weft_st *st, const char *name);
/* Name, dtype and shape; type->data is NULL. WEFT_ENOSUP if the file is valid but weft does not
 * have the dtype (U16, F8_E4M3, …) or the rank exceeds WEFT_MAX_RANK; *name is set even then.
 * `name` may be NULL. */
WEFT_API weft_status weft_st_type(const weft_st *st, int64_t i, const char **name,
                                  weft_tensor *type);
/* The same with its data, read by the first call and kept until close: a view. */
WEFT_API weft_status weft_st_tensor(weft_st *st, int64_t i, const char **name, weft_tensor *out);
/* Copies the bytes of a tensor into the caller's memory. All of them must fit in its given size. */
WEFT_API weft_status weft_st_read(const weft_st *st, int64_t i, void *to, int64_t bytes);
/* The value of a key of __metadata__, or NULL. */
WEFT_API const char *weft_st_metadata(const weft_st *st, const char *key);
WEFT_API int64_t weft_st_n_metadata(const weft_st *st);
WEFT_API weft_status weft_st_metadata_at(const weft_st *st, int64_t i, const char **key,
                                         const char **value);

/* Writes a file atomically: a temporary file next to it, sync, rename, sync of the directory. Data
 * goes straight from the tensors to the file. Names must be UTF-8 and distinct, and not
 * "__metadata__". */
WEFT_API weft_status weft_st_write(weft_ctx *ctx, const char *path, int64_t n,
                                   const char *const *names, const weft_tensor *tensors,
                                   int64_t n_meta, const char *const *keys,
                                   const char *const *values);

/* ---- contents of a checkpoint ---------------------------------------------------------------- */

typedef struct weft_ckpt_tensor {
    const char *name;    /* unique in the checkpoint: "dense/kernel", "dense/kernel:m" */
    const char *section; /* what it is: "param", "slot", "state"; NULL: "param" */
    weft_tensor tensor;
} weft_ckpt_tensor;

/* Bytes, which a shard keeps as a vector of u8. Names must differ from those of tensors. */
typedef struct weft_ckpt_blob {
    const char *name;
    const void *data;
    int64_t bytes;
} weft_ckpt_blob;
/* Names in common use. */
#define WEFT_CKPT_POSITION "position.bin" /* in the data: of a dealer (weft/data_split.h) */
#define WEFT_CKPT_GRAPH "graph.txt"
#define WEFT_CKPT_MODEL "model.json"
#define WEFT_CKPT_LEARNED "learned.json" /* vocabularies and statistics: weft/data_learned.h */

typedef struct weft_ckpt_metric {
    const char *name;
    double value; /* NaN and infinities are kept */
} weft_ckpt_metric;

typedef struct weft_ckpt_pair {
    const char *key, *value;
} weft_ckpt_pair;

/* What is saved, and what an open checkpoint contains (with the data pointers of tensors and blobs
 * NULL). The order of tensors is kept. */
typedef struct weft_ckpt_data {
    size_t size;
    int64_t step, epoch;
    uint64_t seed;        /* seed of all randomness, which also depends on the step */
    uint64_t fingerprint; /* of the chosen kernels: if it differs on resume, results differ in the
                           * last bits */
    int64_t time_ns;      /* since 1970; 0 in weft_ckpt_save: now */
    int64_t n_tensors;
    const weft_ckpt_tensor *tensors;
    int64_t n_blobs;
    const weft_ckpt_blob *blobs;
    int64_t n_metrics;
    const weft_ckpt_metric *metrics;
    int64_t n_meta;
    const weft_ckpt_pair *meta;
} weft_ckpt_data;

/* ---- reading --------------------------------------------------------------------------------- */

/* An open checkpoint. One thread at a time. */
typedef struct weft_ckpt weft_ckpt;

/* Opens one checkpoint. The manifest is read and checked; data is checked as it is read. */
WEFT_API weft_status weft_ckpt_open(weft_ctx *ctx, const char *path, weft_ckpt **out);
/* Opens the newest checkpoint in a directory that verifies completely. Damaged ones are skipped,
 * each with a warning in the context's log that says what is wrong. WEFT_ENOENT: there is none.
 * WEFT_EPARSE: all of them are damaged. WEFT_ENOSUP: the newest was written by a newer version.
 * Writes nothing. */
WEFT_API weft_status weft_ckpt_open_latest(weft_ctx *ctx, const char *dir, weft_ckpt **out);
WEFT_API void weft_ckpt_close(weft_ckpt *c);

WEFT_API const char *weft_ckpt_path(const weft_ckpt *c);
WEFT_API const char *weft_ckpt_library(const weft_ckpt *c); /* the version of weft that wrote it */
WEFT_API int64_t weft_ckpt_bytes(const weft_ckpt *c);       /* of all files but the manifest */
WEFT_API const weft_ckpt_data *weft_ckpt_info(const weft_ckpt *c);
/* Where a tensor is: the name of its shard, and its checksum (xxh64). */
WEFT_API weft_status weft_ckpt_where(const weft_ckpt *c, int64_t i, const char **file,
                                     uint64_t *hash);

/* The index of a tensor, or -1. */
WEFT_API int64_t weft_ckpt_find(const weft_ckpt *c, const char *name);
/* Reads tensor i into the caller's memory, whose dtype and shape must match the saved ones
 * (WEFT_EDTYPE, WEFT_ESHAPE). The checksum is compared: on WEFT_EPARSE the memory holds garbage.
 * Without memory (data NULL) only the type is compared. */
WEFT_API weft_status weft_ckpt_read(weft_ckpt *c, int64_t i, const weft_tensor *into);
/* Elements [first, first + count) of tensor i, in row-major order: what one of several processes
 * needs of it. Checksums are compared: of the pieces that hold them, of 64 MiB each. */
WEFT_API weft_status weft_ckpt_read_range(weft_ckpt *c, int64_t i, int64_t first, int64_t count,
                                          void *to);
/* The same by name: WEFT_ENOENT with the nearest name. */
WEFT_API weft_status weft_ckpt_load(weft_ckpt *c, const char *name, const weft_tensor *into);
/* A blob, checked and NUL-terminated; freed with weft_text_free. `n` may be NULL. */
WEFT_API weft_status weft_ckpt_blob_read(weft_ckpt *c, const char *name, char **data, int64_t *n);
/* Gets a metric by name; false if there is none. */
WEFT_API bool weft_ckpt_metric_get(const weft_ckpt *c, const char *name, double *value);

/* Reads everything and checks sizes and checksums of files and tensors, and the headers of shards
 * against the manifest. */
WEFT_API weft_status weft_ckpt_verify(weft_ckpt *c);

/* ---- listing and deleting -------------------------------------------------------------------- */

typedef struct weft_ckpt_entry {
    const char *path;  /* DIR/ckpt-000001234, or …-2 for the second of a step */
    const char *error; /* NULL, or why its manifest cannot be read: then only path and step are
                        * valid */
    int64_t step, epoch, time_ns, bytes, n_tensors;
    double metric; /* the monitored one */
    bool has_metric;
} weft_ckpt_entry;

typedef struct weft_ckpt_list {
    int64_t n;
    weft_ckpt_entry *entry; /* by step, oldest first */
} weft_ckpt_list;

/* Lists the checkpoints in a directory by their manifests. monitor: the metric to note, or NULL. A
 * directory that does not exist is WEFT_ENOENT; one without checkpoints gives an empty list. */
WEFT_API weft_status weft_ckpt_list_new(weft_ctx *ctx, const char *dir, const char *monitor,
                                        weft_ckpt_list **out);
WEFT_API void weft_ckpt_list_free(weft_ctx *ctx, weft_ckpt_list *list);

#define WEFT_CKPT_ALL (-1)

/* A checkpoint is kept if any rule keeps it. The newest is always kept. */
typedef struct weft_ckpt_policy {
    size_t size;
    int keep_last;     /* the newest n; 0: 5, WEFT_CKPT_ALL: all, WEFT_ZERO: only the newest */
    int keep_best;     /* the n best by the monitored metric; the older of equal ones. NaN is never
                        * best */
    bool keep_highest; /* the highest value is best, not the lowest */
    double keep_hours; /* > 0: the first, and each that is this much later than the last one kept by
                        * this rule */
} weft_ckpt_policy;

/* Applies only the rule: sets keep[i] for each of n entries in the order of weft_ckpt_list. Entries
 * with an error are kept and do not count; of two of the same step the earlier entry is deleted.
 * NULL: the defaults. */
WEFT_API weft_status weft_ckpt_retain(const weft_ckpt_policy *policy, int64_t n,
                                      const weft_ckpt_entry *entry, bool *keep);

typedef struct weft_ckpt_prune_opts {
    size_t size;
    weft_ckpt_policy keep; /* its size may be 0 */
    const char *monitor;   /* the metric of keep_best */
    bool damaged;          /* also delete those that do not verify */
    bool dry_run;          /* only list what would be deleted */
} weft_ckpt_prune_opts;

/* Deletes what the policy does not keep, after verifying the newest one that stays; one that does
 * not verify counts as damaged. *deleted lists what was (or would be) deleted; may be NULL.
 * WEFT_ESTATE while a writer holds the directory. */
WEFT_API weft_status weft_ckpt_prune(weft_ctx *ctx, const char *dir,
                                     const weft_ckpt_prune_opts *opts, weft_ckpt_list **deleted);

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes checkpoints into a directory in a background thread. One writer per directory, across all
 * processes. Call it from one thread at a time. */
typedef struct weft_ckpt_writer weft_ckpt_writer;

typedef enum weft_ckpt_busy {
    WEFT_CKPT_WAIT, /* a save waits for the previous one */
    WEFT_CKPT_SKIP  /* a save is skipped (and counted) while the previous one is being written */
} weft_ckpt_busy;

typedef struct weft_ckpt_writer_opts {
    size_t size;
    int keep_last, keep_best; /* as in weft_ckpt_policy */
    bool keep_highest;
    double keep_hours;
    const char *monitor; /* the metric of keep_best */
    weft_ckpt_busy busy;
    bool foreground;       /* no thread, no copy: a save returns when its checkpoint is on disk */
    bool stop_on_error;    /* weft_ckpt_save fails when a checkpoint could not be written */
    int64_t shard_bytes;   /* a shard holds at most so much, or one tensor; 0: 1 GiB */
    int64_t reserve_bytes; /* of the copy, made now instead of at the first save */
    int64_t copy_limit;    /* a larger snapshot is written in the foreground, uncopied; 0: none */
    int64_t piece_bytes;   /* larger tensors have a checksum for each so many bytes; 0: 64 MiB */
} weft_ckpt_writer_opts;

/* Creates the directory if necessary, takes its lock (WEFT_ESTATE: another writer has it), and
 * removes what a killed writer left. */
WEFT_API weft_status weft_ckpt_writer_new(weft_ctx *ctx, const char *dir,
                                          const weft_ckpt_writer_opts *opts,
                                          weft_ckpt_writer **out);

/* Takes a snapshot: copies everything and returns; the thread writes it, reads it back, puts it in
 * place, then deletes what the policy does not keep. Invalid names or shapes fail here,
 * immediately. A failed write is reported by the next call of this writer, once: as a warning in
 * the log, and as a status by flush and close, and by save with stop_on_error (which then takes no
 * snapshot). Existing checkpoints are not affected. */
WEFT_API weft_status weft_ckpt_save(weft_ckpt_writer *w, const weft_ckpt_data *data);
/* Waits until the last snapshot is on disk. */
WEFT_API weft_status weft_ckpt_writer_flush(weft_ckpt_writer *w);
/* Flushes and frees; the status is that of flush. NULL is fine. */
WEFT_API weft_status weft_ckpt_writer_close(weft_ckpt_writer *w);

typedef struct weft_ckpt_stats {
    int64_t n_saved, n_skipped, n_failed;
    int64_t last_step;               /* of the newest one written by this writer; -1 if there is
                                      * none yet */
    int64_t stall_ns, last_stall_ns; /* how long saves blocked the caller, including waiting */
    int64_t wait_ns;                 /* the part spent waiting for an earlier write */
    int64_t write_ns, last_write_ns; /* writing, reading back, deleting */
    int64_t bytes, last_bytes;       /* written */
    int64_t copy_bytes;              /* the size of the staging copy now */
} weft_ckpt_stats;
WEFT_API void weft_ckpt_writer_stats(weft_ckpt_writer *w, weft_ckpt_stats *out);

/* ---- several writers ------------------------------------------------------------------------- */

/* A checkpoint that several processes write into one folder, which all of them see. One of them
 * begins it and hands its name to the others; each writes its part and gives back a text; whoever
 * began puts the texts together and commits. Until then there is no checkpoint: a writer that dies
 * leaves nothing but a temporary folder, and its part can be written again under another writer's
 * name.
 *
 *   weft_ckpt_begin(ctx, dir, step, &b);                             the chief
 *   weft_ckpt_part_write(ctx, dir, weft_ckpt_build_name(b), ...)     every process, any time later
 *   weft_ckpt_commit(b, n, texts, data);                             the chief
 *   weft_ckpt_build_free(b);
 *
 * The result is read like any other, by any number of processes. */
typedef struct weft_ckpt_build weft_ckpt_build;

/* Elements of a tensor, in row-major order. */
typedef struct weft_ckpt_piece {
    const char *name;
    const char *section;  /* as in weft_ckpt_tensor */
    weft_tensor whole;    /* dtype and shape of the tensor they are of; its data is not looked at */
    int64_t first, count; /* which elements */
    const void *data;     /* of these alone; NULL: `read` gives them */
    /* The bytes [at, at + n) of the piece; once each, in order, at most 1 MiB at a time. */
    weft_status (*read)(void *arg, int64_t at, int64_t n, void *to);
    void *arg;
} weft_ckpt_piece;

typedef struct weft_ckpt_part {
    size_t size;
    const char
        *writer; /* 1 to 32 letters and digits, in the names of its files: each writer's own */
    int64_t n_pieces;
    const weft_ckpt_piece *pieces;
    int64_t n_blobs;
    const weft_ckpt_blob *blobs;
    int64_t shard_bytes, piece_bytes; /* as in weft_ckpt_writer_opts */
} weft_ckpt_part;

/* Takes the lock of the folder (WEFT_ESTATE: another writer has it) and makes the temporary
 * folder. */
WEFT_API weft_status weft_ckpt_begin(weft_ctx *ctx, const char *dir, int64_t step,
                                     weft_ckpt_build **out);
/* "ckpt-000001234". */
WEFT_API const char *weft_ckpt_build_name(const weft_ckpt_build *b);
/* Writes the files of a part, syncs them and reads them back. *text is what commit wants of it:
 * JSON, freed with weft_text_free. WEFT_ENOENT: the checkpoint was given up, or committed. */
WEFT_API weft_status weft_ckpt_part_write(weft_ctx *ctx, const char *dir, const char *name,
                                          const weft_ckpt_part *part, char **text);
/* Puts the parts together. data: step (that of begin), epoch, seed, metrics and so on, the list of
 * the tensors (their data is not looked at) and no blobs. Every tensor must be in the parts, each
 * element in one piece, and no other; every blob in one part; the files in place, as long as the
 * texts say. Other files of the temporary folder, left by writers that died, are removed. On
 * failure there is no checkpoint, and commit may be called again. */
WEFT_API weft_status weft_ckpt_commit(weft_ckpt_build *b, int64_t n_parts, const char *const *texts,
                                      const weft_ckpt_data *data);
/* Lets the lock go; what was not committed is removed. NULL is fine. */
WEFT_API void weft_ckpt_build_free(weft_ckpt_build *b);

/* ---- comparing ------------------------------------------------------------------------------- */

typedef enum weft_ckpt_change {
    WEFT_CKPT_SAME,
    WEFT_CKPT_VALUES,  /* different values: see max_abs */
    WEFT_CKPT_TYPE,    /* different dtype or shape */
    WEFT_CKPT_REMOVED, /* only in a */
    WEFT_CKPT_ADDED    /* only in b */
} weft_ckpt_change;

typedef struct weft_ckpt_delta {
    const char *name; /* borrowed from a, or from b where added */
    weft_ckpt_change change;
    double max_abs;        /* the largest difference; NaN if only one side is NaN */
    int64_t at;            /* the element of max_abs */
    int64_t n_diff, count; /* elements that differ, of how many */
} weft_ckpt_delta;

/* Compares tensor by tensor: those of a in its order, then those that only b has. Freed with
 * weft_ckpt_diff_free. Tensors with equal checksums are not read. */
WEFT_API weft_status weft_ckpt_diff(weft_ckpt *a, weft_ckpt *b, int64_t *n, weft_ckpt_delta **out);
WEFT_API void weft_ckpt_diff_free(weft_ctx *ctx, weft_ckpt_delta *delta);

#ifdef __cplusplus
}
#endif
#endif
