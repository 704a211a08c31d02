/* ckpt.h - the door of the checkpoint layer: hashes, files being written, manifests, folders.
 *
 *   xxh64.c        the checksum
 *   file.c         files and folders through the seam
 *   out.c          a file being written, hashed on the way, and read back
 *   json.c         JSON text out, checked values in
 *   safetensors.c  the reader       st_write.c  the writer
 *   manifest.c     manifest.json, both ways
 *   shards.c       tensors into the shards of a checkpoint
 *   save.c         one checkpoint, from memory to its folder
 *   parts.c        one checkpoint, written by several processes
 *   open.c         reading and verifying one, finding the newest valid one
 *   list.c         which are there, the lock, what killed writers left
 *   retain.c       which to keep, deleting the others
 *   writer.c       the thread          diff.c    comparing two */
#ifndef WF_CKPT_H
#define WF_CKPT_H

#include "base/json.h"
#include "tensor/tensor.h"
#include "weft/ckpt.h"

#define WF_CKPT_PATH 4096                  /* bytes of a path, its NUL included */
#define WF_CKPT_CHUNK ((int64_t)256 << 10) /* written, read and hashed at a time: fits in a cache */
#define WF_CKPT_MANIFEST "manifest.json"
#define WF_CKPT_MANIFEST_MAX ((int64_t)256 << 20)
#define WF_CKPT_TMP ".tmp-" /* before the name of a checkpoint that is being written */
#define WF_CKPT_DEL ".del-" /* … that is being deleted */

/* ---- xxh64.c: XXH64, seed 0 ------------------------------------------------------------------ */

struct wf_xxh64 {
    uint64_t v[4], total;
    unsigned char tail[32];
    int n_tail;
};
void wf_xxh64_init(struct wf_xxh64 *h);
void wf_xxh64_add(struct wf_xxh64 *h, const void *bytes, int64_t n);
uint64_t wf_xxh64_end(const struct wf_xxh64 *h); /* of what was added so far; more may be added to
                                                  * h */
uint64_t wf_xxh64(const void *bytes, int64_t n);

/* ---- file.c ---------------------------------------------------------------------------------- */

/* "dir/name"; WEFT_EINVAL if it is too long. */
weft_status wf_ckpt_join(char out[WF_CKPT_PATH], const char *dir, const char *name);
/* A descriptor for reading, or a negative errno. */
int wf_ckpt_open_file(weft_ctx *ctx, const char *path);
/* Reads n bytes at an offset; an early end is an error. */
weft_status wf_ckpt_pread(weft_ctx *ctx, int fd, const char *path, void *to, int64_t n, int64_t at);
weft_status wf_ckpt_sync_dir(weft_ctx *ctx, const char *dir);
weft_status wf_ckpt_sync_parent(weft_ctx *ctx, const char *path);
/* mkdir -p: parents too; new entries are synced. */
weft_status wf_ckpt_make_dir(weft_ctx *ctx, const char *dir);
/* Opens a directory: the last name of `dir` may be a link that the user made. -errno becomes a
 * status. */
weft_status wf_ckpt_open_dir(weft_ctx *ctx, const char *dir, int *out);
/* Syncs a directory that is open as fd. */
weft_status wf_ckpt_sync_fd(weft_ctx *ctx, int fd, const char *dir);

/* ---- out.c ----------------------------------------------------------------------------------- */

/* A file being written, in parts with checksums. */
struct wf_out {
    weft_ctx *ctx;
    const char *path; /* borrowed; for error texts */
    int fd;
    int64_t bytes;
};
struct wf_part {
    int64_t bytes;
    uint64_t hash;
};
/* A new file `name` in the directory that is open as `dir`. */
weft_status wf_out_open(struct wf_out *o, weft_ctx *ctx, int dir, const char *name,
                        const char *path);
/* part: NULL, or is set to describe what was written. */
weft_status wf_out_write(struct wf_out *o, const void *data, int64_t n, struct wf_part *part);
/* Syncs unless there is already an error `st`; always closes. Returns st, or what failed here. */
weft_status wf_out_close(struct wf_out *o, weft_status st);
/* Whether a closed file consists of these parts: WEFT_EIO if its bytes differ. chunk: WF_CKPT_CHUNK
 * of memory. */
weft_status wf_out_check(weft_ctx *ctx, int dir, const char *name, const char *path, char *chunk,
                         int64_t n, const struct wf_part *part);

/* ---- json.c ---------------------------------------------------------------------------------- */

/* The text of s as a JSON string with quotes; if it is not UTF-8, the buffer fails with
 * WEFT_EINVAL. */
void wf_json_text(struct wf_buf *b, const char *s);
/* A number that reads back as itself; NaN and infinities as strings. */
void wf_json_real(struct wf_buf *b, double v);

/* Strict reading: each returns WEFT_EPARSE with a text that names `key`. Texts are borrowed from
 * the JSON. */
weft_status wf_json_int(const json_t *o, const char *key, int64_t lo, int64_t hi, int64_t *out);
weft_status wf_json_str(const json_t *o, const char *key, const char **out);
weft_status wf_json_hex(const json_t *o, const char *key, uint64_t *out); /* 16 hex digits */
weft_status wf_json_list(const json_t *o, const char *key, json_t **out);
weft_status wf_json_map(const json_t *o, const char *key, json_t **out);
/* A number, or "nan", "inf", "-inf". */
weft_status wf_json_to_real(const json_t *v, double *out);

/* ---- safetensors ----------------------------------------------------------------------------- */

#define WF_ST_HEADER_MAX 100000000

const char *wf_st_dtype(weft_dtype t); /* "F32"; NULL if safetensors has none */
/* Whether a tensor of this dtype and size (negative: unknown) can be saved. */
weft_status wf_st_check(const char *name, weft_dtype dtype, int64_t bytes);
/* The bytes of tensor i in the file: [begin, end). The whole data begins at the first. */
void wf_st_range(const weft_st *st, int64_t i, int64_t *begin, int64_t *end);
int wf_st_fd(const weft_st *st);
int64_t wf_st_size(const weft_st *st);

/* Writes header and data; items may be in any order. part: NULL, or room for 1 + the items'
 * n_parts, which become the header and the parts of the items in the order of the file; items then
 * point to theirs. */
struct wf_st_item {
    const char *name;
    struct wf_type type;
    const void *data; /* NULL: `read` gives it, as that of weft_ckpt_piece */
    weft_status (*read)(void *arg, int64_t at, int64_t n, void *to);
    void *arg;
    int64_t n_parts, part_bytes; /* hashed in so many parts, all but the last of this size */
    struct wf_part *part;        /* set by wf_st_stream, as is the offset in the file */
    int64_t offset;
};
weft_status wf_st_stream(struct wf_out *o, int64_t n, struct wf_st_item *items, int64_t n_meta,
                         const weft_ckpt_pair *meta, struct wf_part *part);

/* ---- manifest.c ------------------------------------------------------------------------------ */

struct wf_mf_file {
    const char *name;
    int64_t bytes;
    uint64_t hash; /* of its header: what precedes the first tensor's data */
};

/* A run of elements of a tensor or blob: where its bytes are, and their checksum. */
struct wf_mf_piece {
    int64_t first, count;
    int64_t file;
    int64_t
        offset; /* in the file; -1: the piece is a whole tensor of the shard, found by its name */
    uint64_t hash;
};
struct wf_mf_place {
    int64_t first, n; /* pieces, by rising elements */
};

/* Everything is in the arena. data.tensors[i] consists of the pieces of place[i], data.blobs[i] of
 * those of place[n_tensors + i]: to a shard, a blob is a vector of u8. */
struct wf_manifest {
    struct wf_arena mem;
    weft_ckpt_data data;
    const char *library;
    int64_t n_files, bytes;
    struct wf_mf_file *files;
    struct wf_mf_place *place;
    int64_t n_pieces;
    struct wf_mf_piece *piece;
    bool is_part; /* what one of several writers wrote: its pieces need not cover their tensors */
};
/* Whether the pieces are the whole of the tensor, each element once; what is wrong as a status. */
weft_status wf_manifest_covers(const struct wf_manifest *m, int64_t item);
void wf_manifest_init(struct wf_manifest *m, weft_ctx *ctx);
void wf_manifest_free(struct wf_manifest *m);
weft_status wf_manifest_text(const struct wf_manifest *m, struct wf_buf *out);
/* Checks the text's own hash, then all of it. On failure m is empty. */
weft_status wf_manifest_parse(struct wf_manifest *m, const char *text, int64_t n);
/* Appends the closing lines with the hash of what precedes them. */
void wf_manifest_seal(struct wf_buf *text);
/* Item i of tensors and blobs, in this order. */
const char *wf_manifest_item(const weft_ckpt_data *d, int64_t i, struct wf_type *type,
                             const void **data);
/* Whether a manifest may name this file: only plain characters, so that it stays in its
 * directory. */
bool wf_manifest_file_ok(const char *name);

/* ---- folders --------------------------------------------------------------------------------- */

/* "ckpt-000001234" or "ckpt-000001234-2": step and the number of the try (1 if not given). */
#define WF_CKPT_NAME 48
bool wf_ckpt_name_parse(const char *name, int64_t *step, int64_t *attempt);
void wf_ckpt_name_make(char out[WF_CKPT_NAME], int64_t step, int64_t attempt);

/* Names of the checkpoints in a directory, oldest first; freed with wf_free. */
struct wf_ckpt_name {
    int64_t step, attempt;
    char name[WF_CKPT_NAME];
};
weft_status wf_ckpt_scan(weft_ctx *ctx, const char *dir, int64_t *n, struct wf_ckpt_name **out);

/* Whether the checkpoint is of the step that the name of its directory says. The newest is chosen
 * by name, so a renamed one counts as damaged. */
weft_status wf_ckpt_check_step(const weft_ckpt *c, int64_t step);
weft_ctx *wf_ckpt_ctx(const weft_ckpt *c);

/* Nanoseconds since 1970. */
int64_t wf_ckpt_wall_time(void);

/* What the data of a snapshot must be, whoever writes it. */
weft_status wf_ckpt_check(weft_ctx *ctx, const weft_ckpt_data *d);
/* ---- shards.c: tensors into the shards of a checkpoint --------------------------------------- */

/* A run of elements of item `item` of the manifest, on its way into a shard. */
struct wf_shard_item {
    int64_t item, first;
    struct wf_st_item st; /* name, type and data are the caller's; the rest is set */
    int64_t file;
};
struct wf_shards {
    weft_ctx *ctx;
    struct wf_manifest *m; /* its step is set; it gets files, pieces and places, in its arena */
    const char *dir;       /* the folder, open as fd */
    int fd;
    const char *prefix;               /* of the files' names */
    int64_t shard_bytes, piece_bytes; /* 0: the defaults */
    bool counted;                     /* the number of files is part of their names */
    int64_t n;
    struct wf_shard_item *item; /* in the order of items and elements */
    struct wf_part *part;       /* of all files, each its header and then its items' */
    int64_t *file_part;         /* where the parts of a file begin */
};
/* Plans and writes the files, synced. Then read them back. */
weft_status wf_shards_write(struct wf_shards *s);
weft_status wf_shards_check(const struct wf_shards *s, char *chunk);

/* What the folder of a checkpoint needs besides its shards: manifest.json, and its name. */
weft_status wf_ckpt_write_manifest(weft_ctx *ctx, int fd, const char *dir,
                                   const struct wf_manifest *m, struct wf_part *written);
/* The first name of the step that is not taken. */
weft_status wf_ckpt_choose_name(weft_ctx *ctx, const char *dir, int64_t step,
                                char name[WF_CKPT_NAME]);

/* ---- parts.c --------------------------------------------------------------------------------- */

/* weft_ckpt_begin; locked: the caller has the lock. */
weft_status wf_ckpt_begin(weft_ctx *ctx, const char *dir, int64_t step, bool locked,
                          weft_ckpt_build **out);
/* What was committed: bytes of all files. */
int64_t wf_ckpt_build_bytes(const weft_ckpt_build *b);

/* Others that write parts of a checkpoint. */
struct wf_ckpt_source {
    /* Their tensors; data is not looked at. Copied by a save. */
    int64_t n_tensors;
    const weft_ckpt_tensor *tensors;
    int64_t max_parts;
    /* Has the parts written, by the thread that writes checkpoints: *n texts as those of
     * weft_ckpt_part_write, freed with weft_text_free. dir: as the writer was given it. */
    weft_status (*write)(void *arg, const char *dir, const char *name, char **text, int64_t *n);
    /* The checkpoint is there, or was given up; also after a save that failed or was skipped. */
    void (*end)(void *arg);
    void *arg;
};
/* weft_ckpt_save of a checkpoint of which others write a part: those tensors of data and the blobs
 * are this process's own. */
weft_status wf_ckpt_save_with(weft_ckpt_writer *w, const weft_ckpt_data *data,
                              const struct wf_ckpt_source *source);

struct wf_ckpt_sizes {
    int64_t shard, piece; /* bytes; 0: the defaults */
};
/* Writes, reads back and puts in place one checkpoint. The caller has the lock. */
weft_status wf_ckpt_write(weft_ctx *ctx, const char *dir, const weft_ckpt_data *d,
                          struct wf_ckpt_sizes sizes, char *chunk, char path[WF_CKPT_PATH],
                          int64_t *bytes);

/* Takes the lock of a directory: close *fd to release it. */
weft_status wf_ckpt_lock(weft_ctx *ctx, const char *dir, int *fd);
/* Removes what killed writers left. The caller has the lock. */
weft_status wf_ckpt_sweep(weft_ctx *ctx, const char *dir);
/* weft_ckpt_list_new for a caller that has the lock and knows some of the checkpoints: their
 * manifests are not read again. */
weft_status wf_ckpt_list_again(weft_ctx *ctx, const char *dir, const char *monitor,
                               const weft_ckpt_list *known, weft_ckpt_list **out);
/* weft_ckpt_prune for a caller that has the lock. */
weft_status wf_ckpt_prune(weft_ctx *ctx, const char *dir, const weft_ckpt_prune_opts *o,
                          weft_ckpt_list **deleted);
/* The same after writing `verified`, which need not be read again. *known is the list from the
 * last call, or NULL, and becomes the current one. held: the last checkpoint of each step from
 * this one on is kept, too; -1: none. */
weft_status wf_ckpt_prune_after(weft_ctx *ctx, const char *dir, const weft_ckpt_prune_opts *o,
                                int64_t held, const char *verified, weft_ckpt_list **known);
/* From now on a writer deletes nothing from this step on, but what was written again; -1: as its
 * options say. */
void wf_ckpt_writer_hold(weft_ckpt_writer *w, int64_t step);

#endif
