/* weft/data_record.h - files of records: TFRecord, tf.train.Example, lines of text, fixed lengths.
 *
 * All of them read one file or many (weft/data_file.h), plain or compressed, as streams of any
 * length in bounded memory. A source that cannot read a record says which: "part-0.tfrecord: record
 * 17 (byte 5312): crc of the data does not match". */
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
    weft_on_error
        on_error; /* SKIP: a record whose data is damaged is left out. Behind a damaged length
                               nothing can be found: the rest of that file is given up, counted once */
    bool index;   /* random access: find out where the records of each file lie, once, and keep
                               it in FILE.weftidx, which is made anew when the file has changed. For
                               plain files, without SKIP and files.shuffle */
    const char *index_dir; /* keep the indexes in this folder; NULL: beside the files. An index that
                               cannot be written is made again next time */
    int64_t max_record;    /* bytes; a longer record is an error. 0: 1 GiB */
    const char *column;    /* NULL: "record" */
} weft_tfrecord_opts;

/* One column of bytes, a scalar an element: the records. Both CRCs of each are checked. */
WEFT_API weft_ds weft_ds_tfrecord(weft_data *d, const char *files, const weft_tfrecord_opts *opts);

/* ---- tf.train.Example and SequenceExample ---------------------------------------------------- */

/* A feature to take out of each Example, and the column it becomes.
 *
 * dtype: f32, f64, f16 or bf16 from a float list; i64, i32, i8, u8 or bool (not 0) from an int64
 * list, an error when a value does not fit; WEFT_STR from a bytes list. Another kind of list is an
 * error. Shape: fixed, and then the number of values must be that of the shape; or with a first
 * size of WEFT_ANY, as many rows as there are values. A feature that is absent, or has no list at
 * all, takes the values of `missing`; without them it is an error, but for variable lengths it is
 * empty. */
typedef struct weft_example_feature {
    const char *name; /* the key */
    weft_dtype dtype;
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    bool sequence; /* from the feature lists of a SequenceExample: the first size counts the steps,
                            and each step holds the rest of the shape */
    const void
        *missing; /* n_missing items of dtype: one for every item, or those of the whole shape */
    int64_t n_missing;
    weft_role role;
    const char *column; /* NULL: as name */
} weft_example_feature;

typedef struct weft_example_opts {
    size_t size;
    const char *column; /* that holds the bytes; NULL: the only column of bytes */
    weft_on_error on_error;
} weft_example_opts;

/* Each element's bytes, parsed as an Example (features) or a SequenceExample (context and feature
 * lists), become one column a feature. Other features and unknown fields are passed over; of a key
 * that comes twice the last counts. */
WEFT_API weft_ds weft_ds_example(weft_data *d, weft_ds s, int n,
                                 const weft_example_feature *features,
                                 const weft_example_opts *opts);

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes a TFRecord file. Used by one thread at a time. */
typedef struct weft_record_writer weft_record_writer;

typedef struct weft_record_writer_opts {
    size_t size;
    weft_compression
        compression; /* AUTO: by the name (.gz, .zlib), else none. zstd is not written */
    int level;       /* of compression, 1..9; 0: 6 */
    bool append;     /* go on behind the records of a file that exists (a plain one); a torn
                                     record at its end is cut off first */
} weft_record_writer_opts;

WEFT_API weft_status weft_record_writer_new(weft_ctx *ctx, const char *path,
                                            const weft_record_writer_opts *opts,
                                            weft_record_writer **out);
WEFT_API weft_status weft_record_writer_add(weft_record_writer *w, const void *bytes, int64_t n);
/* Hand everything to the file, whole records only; sync: and to the disk. After an error
 * (WEFT_ENOSPC: the disk is full) a plain file ends with the last record that was written whole,
 * and every further call fails. */
WEFT_API weft_status weft_record_writer_flush(weft_record_writer *w, bool sync);
WEFT_API int64_t weft_record_writer_count(const weft_record_writer *w); /* records added */
/* Flush, close and free; also after an error, which it then returns. NULL is fine. */
WEFT_API weft_status weft_record_writer_close(weft_record_writer *w);

/* A feature of an Example to write. Floating-point tensors become float lists (f64 is rounded to
 * f32), integers and bools int64 lists, WEFT_STR (items are weft_str) bytes lists. sequence: a
 * feature list of dim[0] steps. */
typedef struct weft_example_value {
    const char *name;
    weft_tensor tensor;
    bool sequence;
} weft_example_value;

/* The bytes of an Example, features in the order given; of a SequenceExample when a value is a
 * sequence. Freed with weft_text_free. */
WEFT_API weft_status weft_example_encode(weft_ctx *ctx, int n, const weft_example_value *values,
                                         char **out, int64_t *n_bytes);
/* Encode and add, without memory of its own for each record. */
WEFT_API weft_status weft_record_writer_example(weft_record_writer *w, int n,
                                                const weft_example_value *values);

/* ---- lines of text --------------------------------------------------------------------------- */

typedef struct weft_lines_opts {
    size_t size;
    weft_file_opts files;
    weft_on_error on_error; /* SKIP: a line over max_line is left out */
    bool skip_empty;
    const char *comment; /* leave out lines that begin with this, e.g. "#" */
    int64_t header;      /* leave out so many lines at the beginning of each file */
    int64_t max_line;    /* bytes; a longer line is an error. 0: 16 MiB */
    const char *column;  /* NULL: "line" */
} weft_lines_opts;

/* One column of bytes: the lines of the files, without their ends (LF or CRLF), and without the
 * mark that some editors put at the beginning of UTF-8 files. The last line need not end. */
WEFT_API weft_ds weft_ds_lines(weft_data *d, const char *files, const weft_lines_opts *opts);

/* ---- records of a fixed length --------------------------------------------------------------- */

typedef struct weft_fixed_opts {
    size_t size;
    weft_file_opts files;
    weft_on_error on_error; /* SKIP: a file with a piece of a record at its end ends before it */
    int64_t header,
        footer;       /* bytes at the beginning and at the end of each file that are no records */
    weft_dtype dtype; /* decode: a record is a tensor of this dtype (WEFT_NONE: keep the bytes) */
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    bool big_endian;
    const char *column; /* NULL: "record", decoded "value" */
} weft_fixed_opts;

/* Records of record_bytes bytes (0 with a dtype: what the shape takes). Addressable when every file
 * is plain and files.shuffle is off. */
WEFT_API weft_ds weft_ds_fixed(weft_data *d, const char *files, int64_t record_bytes,
                               const weft_fixed_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
