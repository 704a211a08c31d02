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
WEFT_API const char *weft_format_name(weft_format f);     /* "tfrecord" */
WEFT_API weft_format weft_format_parse(const char *name); /* WEFT_FORMAT_UNKNOWN if there is none */

/* The format of a file, from its first bytes (unpacked), and from its name only if those are
 * ambiguous. `path` may be a pattern or a list: the first file decides. A directory of class
 * directories is WEFT_FORMAT_IMAGES. */
WEFT_API weft_status weft_format_of(weft_ctx *ctx, const char *path, weft_format *out);

typedef struct weft_open_opts {
    size_t size;
    weft_format format;    /* WEFT_FORMAT_UNKNOWN: detect */
    const char *columns;   /* keep these; NULL: all */
    const char *label;     /* columns that become labels */
    const char *weight;    /* … weights */
    const char *types;     /* types of CSV and SQL columns, see data_table.h */
    const char *query;     /* for SQLite; NULL: the whole table, if there is only one */
    bool index;            /* random access for formats that need an index (CSV, TFRecord) */
    int64_t height, width; /* images: resize to this */
    int channels; /* images: 1 gray, 3 RGB, 4 RGBA; 0: 3 if they are resized, otherwise as in the
                   * file */
    weft_on_error on_error;
    int n_classes; /* images: the classes in order; 0: those of the directory */
    const char *const *classes;
} weft_open_opts;

/* Element by element, with each format's defaults:
 *   tfrecord  tf.train.Example: features and their types from the first records
 *   csv       header and delimiter detected, types inferred
 *   idx, npy  one file, or several separated by commas: columns are named after the files
 *             ("train-images-idx3-ubyte.gz" becomes image, "…-labels-…" label, otherwise the stem)
 *   npz       several files with the same arrays are concatenated
 *   images    image and label
 *   bytes     byte u8; addressable
 *   sqlite    the only table in the order of its rows, or the query */
WEFT_API weft_ds weft_ds_open(weft_data *d, const char *path, const weft_open_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
