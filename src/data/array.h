/* array.h - arrays in files: what the readers of IDX, npy and npz share.
 *
 * A head says what lies where in a file; it is only made by a parser that has checked it against the number of bytes
 * there are. Items are little-endian or big-endian, of weft's dtypes or of small integers that become larger ones. */
#ifndef WF_ARRAY_H
#define WF_ARRAY_H

#include "data/files.h"
#include "weft/data_array.h"

struct wf_array_head {
    struct wf_type type; /* of the whole array, as weft gives it */
    int item;            /* bytes of an item in the file */
    bool is_unsigned;    /* where the dtype is wider than the item */
    bool big;            /* big-endian */
    bool fortran;        /* the first axis varies fastest */
    int64_t at, bytes;   /* of the data in the file */
};

/* Parse the first n bytes of a file of `total` bytes (-1: not known). */
typedef weft_status wf_head_fn(const char *p, int64_t n, int64_t total, struct wf_array_head *out);
wf_head_fn wf_idx_head, wf_npy_head;
#define WF_HEAD_MAX 10240 /* bytes that hold any head */

/* An npy head for this type; `room` bytes at p, WF_HEAD_MAX suffice. Returns its length, a multiple of 64. */
weft_status wf_npy_head_write(const weft_tensor *t, char *p, int *n);

/* Whether items lie in memory as weft wants them. */
bool wf_array_native(const struct wf_array_head *h);
/* n items at src, as they are in the file, to weft's. */
void wf_array_convert(const struct wf_array_head *h, const char *src, int64_t n, void *dst);
/* The whole array, of any order, to row-major items of weft's. */
void wf_array_convert_all(const struct wf_array_head *h, const char *src, void *dst);

/* An array that is open: mapped, or unpacked into memory. */
struct wf_array {
    struct wf_array_head head;
    const char *path;
    const char *data;  /* the first item */
    int64_t row_items; /* of an element */
    char *map, *owned; /* what data lies in */
    int64_t map_bytes;
    int fd;                    /* of the mapped file, -1 when there is none */
    _Atomic int64_t unchecked; /* bytes that may be read before its length is asked for again */
    bool view;                 /* rows can be given without copying */
};

/* Open a file that holds one array; compressed ones are unpacked into memory. The path is borrowed; opts may be NULL. */
weft_status wf_array_open(weft_ctx *ctx, const char *path, const weft_file_opts *opts,
                          wf_head_fn *parse, struct wf_array *out);
void wf_array_close(weft_ctx *ctx, struct wf_array *a);
/* Make ready for reading rows: those of a Fortran array (of rank 2 at most) are put in order, in memory. */
weft_status wf_array_settle(weft_ctx *ctx, struct wf_array *a);
/* A whole file, converted, in memory that weft_array_free frees. */
weft_status wf_array_read(weft_ctx *ctx, const char *path, wf_head_fn *parse, weft_tensor *out);
/* Before `bytes` are read: a mapped file must still be as long as it was, since reading beyond its end would kill the
 * process. Asked once for so many bytes, not for every row. */
weft_status wf_array_check(weft_ctx *ctx, struct wf_array *a, int64_t bytes);

/* A node over n settled arrays with the same number of rows, a column each; takes them over, also on failure. */
weft_ds wf_ds_arrays(weft_data *d, const char *builder, int n, const char *const *names,
                     struct wf_array *a);
/* The same from files. */
weft_ds wf_ds_array_files(weft_data *d, const char *builder, int n, const weft_array_file *files,
                          const weft_file_opts *opts, wf_head_fn *parse);

/* ---- mapped files ---------------------------------------------------------------------------- */

/* A plain file, mapped for reading. An empty one has bytes 0 and no memory. */
weft_status wf_map_file(weft_ctx *ctx, const char *path, int *fd, char **map, int64_t *bytes);
void wf_unmap_file(weft_ctx *ctx, int fd, char *map, int64_t bytes);

/* ---- zip archives (zip.c) -------------------------------------------------------------------- */

struct wf_zip_entry {
    const char *name; /* not terminated */
    int64_t n_name;
    bool deflated;
    uint32_t crc;
    const char *data; /* packed bytes within the archive */
    int64_t packed, bytes;
};
/* A walk over the central directory of an archive in memory. */
struct wf_zip {
    const char *p, *at;
    int64_t n, left, n_left; /* bytes of the archive, of the directory, and entries still to come */
};
weft_status wf_zip_open(struct wf_zip *z, const char *p, int64_t n);
weft_status wf_zip_next(struct wf_zip *z, struct wf_zip_entry *e, bool *more);
/* The bytes of an entry, checked. Of a stored one: where they lie; of a deflated one: in memory of its own, *owned,
 * freed with wf_free, else NULL. */
weft_status wf_zip_read(weft_ctx *ctx, const struct wf_zip_entry *e, const char **data,
                        char **owned);
uint32_t wf_crc32(uint32_t crc, const void *p, int64_t n);

/* An open entry of an npz archive. */
weft_status wf_npz_array(weft_ctx *ctx, const struct wf_zip_entry *e, struct wf_array *a);

/* ---- writing (output.c) ---------------------------------------------------------------------- */

/* A file that appears whole or not at all: written beside its place, synced, renamed. The first failure sticks. */
struct wf_output {
    weft_ctx *ctx;
    const char *path;
    char *tmp;
    bool in_place;
    int fd;
    int64_t bytes;
    weft_status st;
};
void wf_output_open(struct wf_output *o, weft_ctx *ctx, const char *path);
void wf_output_put(struct wf_output *o, const void *p, int64_t n);
weft_status wf_output_close(
    struct wf_output *o); /* and the file is there, or an error is returned */

#endif
