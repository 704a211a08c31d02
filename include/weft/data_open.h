/* weft/data_open.h - files whose format weft detects. */
#ifndef WEFT_DATA_OPEN_H
#define WEFT_DATA_OPEN_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_format {
    WEFT_FORMAT_UNKNOWN,
    WEFT_FORMAT_TFRECORD,
    WEFT_FORMAT_CSV, /* any delimiter */
    WEFT_FORMAT_CRITEO,
    WEFT_FORMAT_LIBSVM,
    WEFT_FORMAT_LINES,
    WEFT_FORMAT_IDX,
    WEFT_FORMAT_NPY,
    WEFT_FORMAT_NPZ,
    WEFT_FORMAT_IMAGES, /* a directory with one directory per class */
    WEFT_FORMAT_SQLITE,
    WEFT_FORMAT_BYTES, /* any file, byte by byte: the characters of a text. Never detected */
    WEFT_N_FORMATS
} weft_format;
WEFT_API const char *weft_format_name(weft_format f); /* "tfrecord"; "unknown" when there is none */
WEFT_API weft_format
weft_format_parse(const char *name); /* WEFT_FORMAT_UNKNOWN when there is none */
/* Row i of the table of formats, which is format i + 1; false past the end. suffixes: of names that
 * weft_file_writer_new writes in it, with blanks between them, "" for none. takes: the options of
 * weft_open_opts that it takes besides columns, label and weight. Any may be NULL. */
WEFT_API bool weft_format_at(int i, const char **name, const char **suffixes, const char **takes,
                             const char **doc);
/* The names of all formats with blanks between them, for help texts. */
WEFT_API const char *weft_format_list(void);

/* The format of a file, from its first bytes (unpacked), and from its name only if those are
 * ambiguous. `path` may be a pattern or a list: the first file decides. A directory of class
 * directories is WEFT_FORMAT_IMAGES. */
WEFT_API weft_status weft_format_of(weft_ctx *ctx, const char *path, weft_format *out);

typedef struct weft_open_opts {
    size_t size;
    weft_format format;  /* WEFT_FORMAT_UNKNOWN: find out */
    const char *columns; /* keep these; NULL: all */
    const char *label;   /* columns that become labels */
    const char *weight;  /* … weights */
    const char *types;   /* of CSV and SQL columns, see data_table.h */
    const char *query;   /* SQLite: NULL: all of the only table */
    /* Random access where it takes an index (CSV, TFRecord); what has it anyway takes it, too. */
    bool index;
    int64_t height, width; /* images: resize to this */
    int channels; /* images: 1 gray, 3 RGB, 4 RGBA; 0: 3 if they are resized, otherwise as in the
                   * file */
    weft_on_error on_error;
    int n_classes; /* images: the classes in order; 0: those of the directory */
    const char *const *classes;
} weft_open_opts;

/* An option that the format does not take is WEFT_EINVAL. Element by element, with each format's
 * defaults:
 *   tfrecord  tf.train.Example: features and their types from the first records
 *   csv       header and delimiter detected, types inferred
 *   idx, npy  one file, or several separated by commas: columns are named after the files
 *             ("train-images-idx3-ubyte.gz" becomes image, "…-labels-…" label, otherwise the stem)
 *   npz       several files with the same arrays are concatenated
 *   images    image and label
 *   bytes     byte u8; addressable
 *   sqlite    the only table in the order of its rows, or the query */
WEFT_API weft_ds weft_ds_open(weft_data *d, const char *path, const weft_open_opts *opts);

/* ---- writing --------------------------------------------------------------------------------- */

/* Elements into a file of the format that the end of its name tells: .tfrecord (.gz, .zlib) as
 * tf.train.Example, .csv, .tsv, .npz, and for one column .npy and .idx. Arrays are collected in
 * memory and written by close. */
typedef struct weft_file_writer weft_file_writer;
/* WEFT_FORMAT_UNKNOWN when the name tells none. */
WEFT_API weft_format weft_format_written(const char *path);
/* WEFT_EINVAL when the name tells no format, or the format cannot hold these columns. */
WEFT_API weft_status weft_file_writer_new(weft_ctx *ctx, const char *path, int n,
                                          const weft_column *columns, weft_file_writer **out);
/* One element: a tensor for each column, in their order. */
WEFT_API weft_status weft_file_writer_add(weft_file_writer *w, const weft_tensor *col);
/* Completes the file and frees w, also after a failure. free: without completing it; NULL is
 * fine. */
WEFT_API weft_status weft_file_writer_close(weft_file_writer *w);
WEFT_API void weft_file_writer_free(weft_file_writer *w);

#ifdef __cplusplus
}
#endif
#endif
