/* weft/data_array.h - arrays in files: IDX, npy and npz, read as datasets and written.
 *
 * Element i of such a dataset is row i: the array is cut along its first axis. All are addressable.
 * Uncompressed files are read into memory when the dataset is built, up to 512 MiB per pipeline
 * (weft_data): consecutive rows are then views of that memory, without a copy; rows in any other
 * order are copied once, and later changes to the file have no effect. Rows of files that are
 * larger, or exceed the context's memory limit, are read from the file on demand. Compressed files
 * (gzip, zstd, zlib; deflated entries of an npz) are unpacked into memory when the dataset is
 * built, within the context's memory limit. Big-endian items are converted, and i16, u16 (to i32)
 * and u32 (to i64) widened, row by row as they are read.
 *
 * Sizes in a file are checked against the file before anything is allocated, also while it is being
 * read: a file that became shorter is an error, WEFT_EIO. Complex, text, 64-bit unsigned and Python
 * object items are refused. */
#ifndef WEFT_DATA_ARRAY_H
#define WEFT_DATA_ARRAY_H

#include "weft/data_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A file, and the column that its rows become. */
typedef struct weft_array_file {
    const char *column;
    const char *path;
} weft_array_file;

/* n files side by side, such as the images and labels of MNIST; all must have the same number of
 * rows.
 *
 *   weft_array_file f[] = {{"image", "train-images.gz"}, {"label", "train-labels.gz"}};
 *   s = weft_ds_idx(d, 2, f, NULL);
 *
 * IDX: u8, i8, i16 (as i32), i32, f32 and f64 of rank 1 to 8. opts: compression; NULL: the
 * defaults. */
WEFT_API weft_ds weft_ds_idx(weft_data *d, int n, const weft_array_file *files,
                             const weft_file_opts *opts);
/* NumPy's files, versions 1 to 3, rank 1 to 8. An array in Fortran order must have rank 1 or 2, and
 * is copied into memory. */
WEFT_API weft_ds weft_ds_npy(weft_data *d, int n, const weft_array_file *files,
                             const weft_file_opts *opts);
/* The arrays of an npz file as columns: those listed in `columns` (separated by commas), or all.
 * Only max_ratio of opts is used. */
WEFT_API weft_ds weft_ds_npz(weft_data *d, const char *path, const char *columns,
                             const weft_file_opts *opts);

/* Reads a whole array, of any rank and order, into memory that weft_array_free frees. */
WEFT_API weft_status weft_idx_read(weft_ctx *ctx, const char *path, weft_tensor *out);
WEFT_API weft_status weft_npy_read(weft_ctx *ctx, const char *path, weft_tensor *out);
WEFT_API void weft_array_free(weft_ctx *ctx, weft_tensor *t);

/* Writers. A file appears completely or not at all. IDX takes u8 i8 i32 f32 f64; npy and npz take
 * all dtypes except bf16. Entries of an npz are stored uncompressed and aligned so that other
 * programs can map them. */
WEFT_API weft_status weft_idx_write(weft_ctx *ctx, const char *path, const weft_tensor *t);
WEFT_API weft_status weft_npy_write(weft_ctx *ctx, const char *path, const weft_tensor *t);
WEFT_API weft_status weft_npz_write(weft_ctx *ctx, const char *path, int n,
                                    const char *const *names, const weft_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
