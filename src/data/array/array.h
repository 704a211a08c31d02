/* array.h - arrays in files: shared by the readers of IDX, npy and npz.
 *
 * A head says what is where in a file; it is only created by a parser that has checked it against
 * the size of the file. Items are little-endian or big-endian, of weft's dtypes or of small
 * integers that become larger ones. */
#ifndef WF_DATA_ARRAY_ARRAY_H
#define WF_DATA_ARRAY_ARRAY_H

#include "data/file/files.h"
#include "weft/data_array.h"

struct wf_array_head {
    struct wf_type type; /* of the whole array, as a weft type */
    int item;            /* bytes of an item in the file */
    bool is_unsigned;    /* if the dtype is wider than the item */
    bool big;            /* big-endian */
    bool fortran;        /* the first axis varies fastest */
    int64_t at, bytes;   /* of the data in the file */
};

/* Parses the first n bytes of a file of `total` bytes (-1: unknown). */
typedef weft_status wf_head_fn(const char *p, int64_t n, int64_t total, struct wf_array_head *out);
wf_head_fn wf_idx_head, wf_npy_head;
#define WF_HEAD_MAX 10240 /* enough bytes for any head */

/* An npy head for this type; `room` bytes at p, WF_HEAD_MAX suffice. Returns its length, a multiple
 * of 64. */
weft_status wf_npy_head_write(const weft_tensor *t, char *p, int *n);

/* Whether items in the file are already in weft's format. */
bool wf_array_native(const struct wf_array_head *h);
/* Converts n items at src, as in the file, to weft's format. */
void wf_array_convert(const struct wf_array_head *h, const char *src, int64_t n, void *dst);
/* Converts the whole array, of any order, to row-major items in weft's format. */
void wf_array_convert_all(const struct wf_array_head *h, const char *src, void *dst);

/* An open array: in memory, or in a file that is read as rows are requested. */
struct wf_array {
    struct wf_array_head head;
    const char *path;
    const char *data;  /* the first item; NULL: it is in the file */
    int64_t row_items; /* of an element */
    char *owned;       /* memory that data is in; NULL: not owned */
    int64_t at;        /* of the first item in the file */
    int fd;            /* of the file, -1 if the array is in memory */
    bool view;         /* rows can be returned without copying */
};

/* Opens a file with one array. An uncompressed one is read into memory if it fits in *room, which
 * is reduced; otherwise rows are read from it. room NULL: always into memory, or an error.
 * Compressed ones are always unpacked into memory. The path is borrowed; opts may be NULL. */
weft_status wf_array_open(weft_ctx *ctx, const char *path, const weft_file_opts *opts,
                          wf_head_fn *parse, int64_t *room, struct wf_array *out);
/* The same in steps: first only an uncompressed file, and its size; then, with head and `at` set,
 * its items. close is needed after a failure, too. */
weft_status wf_array_open_file(weft_ctx *ctx, const char *path, struct wf_array *a, int64_t *bytes);
weft_status wf_array_load(weft_ctx *ctx, struct wf_array *a, int64_t *room);
/* Whether this many bytes may be read into memory: there is room, and the context's limit allows
 * it. */
bool wf_array_fits(const weft_ctx *ctx, int64_t bytes, int64_t room);
/* n bytes at an offset of the file; WEFT_EIO if it became shorter. From any thread. */
weft_status wf_array_read_at(weft_ctx *ctx, const struct wf_array *a, int64_t at, void *to,
                             int64_t n);
void wf_array_close(weft_ctx *ctx, struct wf_array *a);
/* Prepares for reading rows: those of a Fortran array (of rank 2 at most) are reordered in
 * memory. */
weft_status wf_array_settle(weft_ctx *ctx, struct wf_array *a);
/* A whole file, converted, in memory that weft_array_free frees. */
weft_status wf_array_read(weft_ctx *ctx, const char *path, wf_head_fn *parse, weft_tensor *out);

/* A node over n prepared arrays with the same number of rows, one column each; takes ownership of
 * them, also on failure. */
weft_ds wf_ds_arrays(weft_data *d, const char *builder, int n, const char *const *names,
                     struct wf_array *a);
/* The same from files. */
weft_ds wf_ds_array_files(weft_data *d, const char *builder, int n, const weft_array_file *files,
                          const weft_file_opts *opts, wf_head_fn *parse);

/* ---- zip archives (zip.c) -------------------------------------------------------------------- */

/* A walk over the central directory of an archive, in memory or in a file. */
struct wf_zip {
    weft_ctx *ctx;
    const char *p;               /* the archive; NULL: it is in the file */
    const struct wf_array *file; /* open, borrowed */
    int64_t n;                   /* bytes of the archive */
    char *owned;                 /* its directory, read from the file */
    const char *at;              /* the next entry of the directory */
    int64_t left, n_left;        /* bytes of the directory, and entries still to come */
};
struct wf_zip_entry {
    const struct wf_zip *zip;
    const char *name; /* not terminated; borrowed from the directory */
    int64_t n_name;
    bool deflated;
    uint32_t crc;
    int64_t at; /* of the packed bytes within the archive */
    int64_t packed, bytes;
};
/* In memory: p[0..n). In a file that is open: file, of n bytes. Both are borrowed. */
weft_status wf_zip_open(struct wf_zip *z, weft_ctx *ctx, const char *p, int64_t n);
weft_status wf_zip_open_file(struct wf_zip *z, weft_ctx *ctx, const struct wf_array *file,
                             int64_t n);
void wf_zip_close(struct wf_zip *z); /* zeroed is fine */
weft_status wf_zip_next(struct wf_zip *z, struct wf_zip_entry *e, bool *more);
/* The bytes of an entry, verified. For a stored one in memory: in place; otherwise in memory of its
 * own, *owned, freed with wf_free. */
weft_status wf_zip_read(const struct wf_zip_entry *e, const char **data, char **owned);
/* Verifies a stored entry of a file without returning it, and without memory for it. `head` gets
 * its first bytes, at most n_head. */
weft_status wf_zip_check(const struct wf_zip_entry *e, char *head, int64_t n_head);
uint32_t wf_crc32(uint32_t crc, const void *p, int64_t n);

/* An open entry of an npz archive, in memory. */
weft_status wf_npz_array(const struct wf_zip_entry *e, struct wf_array *a);

/* ---- writing (output.c) ---------------------------------------------------------------------- */

/* A file that appears completely or not at all: written to a temporary name, synced, renamed. The
 * first failure sticks. */
struct wf_output {
    weft_ctx *ctx;
    const char *path;
    struct wf_newfile file; /* unless in place */
    bool in_place;
    int fd;
    int64_t bytes;
    weft_status st;
};
void wf_output_open(struct wf_output *o, weft_ctx *ctx, const char *path);
void wf_output_put(struct wf_output *o, const void *p, int64_t n);
weft_status wf_output_close(
    struct wf_output *o); /* then the file exists, or an error is returned */

#endif
