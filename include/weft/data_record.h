/* weft/data_record.h - files of records: TFRecord, tf.train.Example, lines of text, fixed lengths.
 *
 * All of them read one or more files (weft/data_file.h), compressed or not, as streams of any
 * length in bounded memory. An error names the record: "part-0.tfrecord: record 17 (byte 5312): crc
 * of the data does not match". */
#ifndef WEFT_DATA_RECORD_H
#define WEFT_DATA_RECORD_H

#include "weft/data_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- TFRecord -------------------------------------------------------------------------------- */

typedef struct weft_tfrecord_opts {
    size_t size;
    weft_file_opts files;
    weft_on_error on_error; /* SKIP: a record with damaged data is skipped. After a damaged length
                             * no record can be found: the rest of that file is skipped and counted
                             * once */
    bool index; /* random access: find the records of each file once, and save their positions in
                 * FILE.weftidx, which is created again if the file changes. For uncompressed files,
                 * without SKIP and files.shuffle */
    const char *index_dir; /* where to save indexes; NULL: next to the files. An index that cannot
                            * be written is created again next time */
    int64_t max_record;    /* bytes; a longer record is an error. 0: 1 GiB */
    const char *column;    /* NULL: "record" */
} weft_tfrecord_opts;

/* One column of bytes, one scalar per element: the records. Both CRCs of each are checked. */
WEFT_API weft_ds weft_ds_tfrecord(weft_data *d, const char *files, const weft_tfrecord_opts *opts);

/* ---- tf.train.Example and SequenceExample ---------------------------------------------------- */

/* A feature to read from each Example, and the column it becomes.
 *
 * dtype: f32, f64, f16 or bf16 from a float list; i64, i32, i8, u8 or bool (not 0) from an int64
 * list, an error if a value does not fit; WEFT_STR from a bytes list. Any other kind of list is an
 * error. Shape: fixed, with exactly that number of values; or with a first size of WEFT_ANY, for as
 * many rows as there are values. A feature that is absent, or has no list at all, gets the values
 * of `missing`; without them it is an error, or empty if its length is variable. */
typedef struct weft_example_feature {
    const char *name; /* the key */
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    bool sequence; /* from the feature lists of a SequenceExample: the first size is the number of
                    * steps, and each step has the rest of the shape */
    const void *missing; /* n_missing items of dtype: one for all items, or one per item of the
                          * shape */
    int64_t n_missing;
    weft_role role;
    const char *column; /* NULL: the same as name */
} weft_example_feature;

typedef struct weft_example_opts {
    size_t size;
    const char *column; /* the column with the bytes; NULL: the only column of bytes */
    weft_on_error on_error;
} weft_example_opts;

/* Parses each element's bytes as an Example (features) or a SequenceExample (context and feature
 * lists) into one column per feature. Other features and unknown fields are ignored; if a key
 * occurs twice, the last one counts. */
WEFT_API weft_ds weft_ds_example(weft_data *d, weft_ds s, int n,
                                 const weft_example_feature *features,
                                 const weft_example_opts *opts);

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes a TFRecord file. Used by one thread at a time. */
typedef struct weft_record_writer weft_record_writer;

typedef struct weft_record_writer_opts {
    size_t size;
    weft_compression compression; /* AUTO: by the name (.gz, .zlib), otherwise none. zstd is not
                                   * supported */
    int level;                    /* compression level, 1..9; 0: 6 */
    bool append; /* append to an existing file (uncompressed); a torn record at its end is removed
                  * first */
} weft_record_writer_opts;

WEFT_API weft_status weft_record_writer_new(weft_ctx *ctx, const char *path,
                                            const weft_record_writer_opts *opts,
                                            weft_record_writer **out);
WEFT_API weft_status weft_record_writer_add(weft_record_writer *w, const void *bytes, int64_t n);
/* Hands complete records to the file system; sync: and to the disk. After an error (WEFT_ENOSPC:
 * the disk is full) an uncompressed file ends with the last complete record, and every further call
 * fails. */
WEFT_API weft_status weft_record_writer_flush(weft_record_writer *w, bool sync);
WEFT_API int64_t weft_record_writer_count(const weft_record_writer *w); /* records added */
/* Flushes, closes and frees; also after an error, which it then returns. NULL is fine. */
WEFT_API weft_status weft_record_writer_close(weft_record_writer *w);

/* A feature of an Example to write. Floating-point tensors become float lists (f64 is rounded to
 * f32), integers and bools become int64 lists, WEFT_STR (items are weft_str) becomes bytes lists.
 * sequence: a feature list of dim[0] steps. */
typedef struct weft_example_value {
    const char *name;
    weft_tensor tensor;
    bool sequence;
} weft_example_value;

/* The bytes of an Example, features in the given order; of a SequenceExample if a value is a
 * sequence. Freed with weft_text_free. */
WEFT_API weft_status weft_example_encode(weft_ctx *ctx, int n, const weft_example_value *values,
                                         char **out, int64_t *n_bytes);
/* Encodes and adds a record, without allocating for each. */
WEFT_API weft_status weft_record_writer_example(weft_record_writer *w, int n,
                                                const weft_example_value *values);

/* ---- lines of text --------------------------------------------------------------------------- */

typedef struct weft_lines_opts {
    size_t size;
    weft_file_opts files;
    weft_on_error on_error; /* SKIP: a line longer than max_line is skipped */
    bool skip_empty;
    const char *comment; /* skip lines that begin with this, e.g. "#" */
    int64_t header;      /* skip this many lines at the beginning of each file */
    int64_t max_line;    /* bytes; a longer line is an error. 0: 16 MiB */
    const char *column;  /* NULL: "line" */
} weft_lines_opts;

/* One column of bytes: the lines of the files, without line ends (LF or CRLF) and without the byte
 * order mark that some editors write. The last line need not end with a newline. */
WEFT_API weft_ds weft_ds_lines(weft_data *d, const char *files, const weft_lines_opts *opts);

/* ---- records of a fixed length --------------------------------------------------------------- */

typedef struct weft_fixed_opts {
    size_t size;
    weft_file_opts files;
    weft_on_error on_error; /* SKIP: a partial record at the end of a file is ignored */
    int64_t header,
        footer;       /* bytes at the beginning and the end of each file that are not records */
    weft_dtype dtype; /* decode: a record is a tensor of this dtype (WEFT_NONE: keep the bytes) */
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    bool big_endian;
    const char *column; /* NULL: "record", or "value" when decoded */
} weft_fixed_opts;

/* Records of record_bytes bytes (0 with a dtype: the size of the tensor). Addressable if every file
 * is uncompressed and files.shuffle is off. */
WEFT_API weft_ds weft_ds_fixed(weft_data *d, const char *files, int64_t record_bytes,
                               const weft_fixed_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
