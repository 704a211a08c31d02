/* weft/data_table.h - tables as datasets: CSV, Criteo and LibSVM files, SQL queries; a CSV writer.
 *
 * Sources of text files take a pattern (or several, see data_file.h), read uncompressed, gzip and
 * zstd files as streams, and parse in the iterator's threads. A row that cannot be read is an error
 * that names file, record (counted from 0 in its file, without the header), byte, column and the
 * text; on_error = WEFT_ON_ERROR_SKIP skips and counts it. */
#ifndef WEFT_DATA_TABLE_H
#define WEFT_DATA_TABLE_H

#include "weft/data_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- CSV ------------------------------------------------------------------------------------- */

/* Rows as in RFC 4180, with any delimiter: a field may be quoted, and then contain delimiters,
 * newlines and doubled quotes. A quote counts only at the beginning of a field. Lines end with \n
 * or \r\n; empty lines and a byte order mark at the beginning of a file are skipped. Spaces around
 * numbers are allowed; spaces in text are kept.
 *
 * Lists of columns are separated by commas; "n0..n12" is every column from n0 to n12 in the order
 * of the file, "*" every column that is not named elsewhere in the list. A column can also be given
 * by its number: "#3", from 0. A comma in the header's name of a column, with blanks after it,
 * becomes an underscore: "income, monthly" is income_monthly.
 *
 * Types. Without `types` a column is i64 if all its values in the first `infer_rows` rows of the
 * first file (those of its first MiB) are integers, f32 if all are numbers (or integers with some
 * missing), otherwise str (WEFT_STR). A later value that does not fit is an error. Declared:
 * "price:f32, n0..n12:f32, *:i64", of f32 f64 i64 i32 i8 u8 bool str hex (hexadecimal digits as
 * i64); a group's name means its members.
 *
 * Numbers are read exactly: as the float or double nearest to the text, in any locale.
 *
 * Missing values: empty, or one of `missing`. They get the column's default: "age:0, city:unknown,
 * n0..n12:-1". Without a default, a missing f32 or f64 is NaN, a missing integer is an error, and
 * missing text stays empty, except in a `label`, where it is an error. Text is missing only if
 * empty.
 *
 * Groups stack columns of one dtype into one: "num = n0..n12; cat = c0..c25" gives num f32[13] and
 * cat i64[26]. If types were inferred and differ, i64 becomes f32. */
typedef struct weft_csv_opts {
    size_t size;
    weft_file_opts files;
    char delimiter;        /* 0: ',' */
    char quote;            /* 0: '"' */
    bool no_quotes;        /* quotes have no special meaning */
    char comment;          /* lines that begin with it are skipped; 0: none */
    bool no_header;        /* the first line is a row; columns are c0, c1, … unless `names` */
    const char *names;     /* names of all columns, instead of the header's */
    const char *select;    /* columns and groups to return, in this order; NULL: all */
    const char *label;     /* columns or groups that become labels */
    const char *weight;    /* … weights */
    const char *types;     /* see above */
    const char *groups;    /* see above */
    const char *missing;   /* "NA, ?"; NULL: NA, N/A, NaN, nan, NULL, null, None */
    const char *defaults;  /* see above */
    int64_t infer_rows;    /* 0: 1000 */
    bool index;            /* find all rows now, so that the dataset is addressable (shuffle_all).
                            * Only for uncompressed files; takes 8 bytes of memory per 16 rows. The
                            * index of a file of 16 MiB or more is saved in "FILE.weftrows" for the
                            * next time */
    const char *index_dir; /* … in this directory; NULL: next to the file */
    weft_on_error on_error;
    int64_t max_row_bytes; /* a longer row is an error; 0: 16 MiB; not below 2 MiB */
} weft_csv_opts;

/* All files must have the same columns, and the same header if there is one. */
WEFT_API weft_ds weft_ds_csv(weft_data *d, const char *files, const weft_csv_opts *opts);

/* Criteo's click logs: lines of label, 13 integers and 26 categories of 8 hexadecimal digits,
 * separated by tabs; also without the label (test sets). Returns label i64, num f32[13], cat
 * i64[26]. */
typedef struct weft_criteo_opts {
    size_t size;
    weft_file_opts files;
    bool no_label;
    const char *missing_num; /* the value of a missing number; NULL: "nan" */
    const char *missing_cat; /* the value of a missing category; NULL: "-1", which is not a
                              * category */
    bool index;
    weft_on_error on_error;
} weft_criteo_opts;
WEFT_API weft_ds weft_ds_criteo(weft_data *d, const char *files, const weft_criteo_opts *opts);

/* ---- LibSVM ---------------------------------------------------------------------------------- */

/* Lines of "label index:value index:value …"; "#" begins a comment. An index without a value has
 * the value 1. Returns label f32 (a label), with `qid` also qid i64, with `fields` also field
 * i64[?] (lines of "label field:index:value …"), then index i64[?] and value f32[?]; with
 * dense_width, x f32[dense_width] instead of those. */
typedef struct weft_libsvm_opts {
    size_t size;
    weft_file_opts files;
    bool zero_based;     /* indices start at 0; otherwise at 1, and 1 is subtracted */
    bool qid;            /* lines have qid:N after the label */
    bool fields;         /* LibFFM */
    int64_t dense_width; /* 0: sparse. An index outside of it is an error */
    weft_on_error on_error;
} weft_libsvm_opts;
WEFT_API weft_ds weft_ds_libsvm(weft_data *d, const char *files, const weft_libsvm_opts *opts);

/* ---- SQL ------------------------------------------------------------------------------------- */

/* The rows of a query, streamed: the table is never in memory. Every epoch runs the query again,
 * and so does restoring a position, which then skips the rows before it: to be resumable, a query
 * needs an ORDER BY that defines a unique order.
 *
 * Types come from the result: integers i64, floating-point and numeric f32, booleans bool
 * (PostgreSQL), anything else str, including bytes; `types` overrides as for CSV. In SQLite, whose
 * columns have no fixed type, the declared type of the column decides, and for expressions the
 * first row. NULL gets the column's default, like a missing value in a CSV file.
 *
 * The libraries (libsqlite3, libpq) are loaded on first use. Errors never show the password. */
typedef struct weft_sql_opts {
    size_t size;
    const char *name;  /* in counters and errors; NULL: "sqlite", "postgres" */
    const char *label; /* columns that become labels */
    const char *weight;
    const char *types;
    const char *defaults;
    int connect_s; /* PostgreSQL: seconds to wait for the server; 0: 10 */
} weft_sql_opts;
/* The file is opened read-only. */
WEFT_API weft_ds weft_ds_sqlite(weft_data *d, const char *path, const char *query,
                                const weft_sql_opts *opts);
/* conninfo as for libpq: "host=db dbname=train user=me", or a URL. The query is read with a cursor
 * in a read-only transaction. */
WEFT_API weft_ds weft_ds_postgres(weft_data *d, const char *conninfo, const char *query,
                                  const weft_sql_opts *opts);

/* ---- writing CSV ----------------------------------------------------------------------------- */

typedef struct weft_csv_writer weft_csv_writer;

typedef struct weft_csv_writer_opts {
    size_t size;
    char delimiter; /* 0: ',' */
    bool no_header;
    const char *missing; /* what NaN is written as; NULL: an empty field */
} weft_csv_writer_opts;

/* A column of more than one item becomes that many fields, named name0, name1, …; sizes must be
 * known. Fields are quoted if necessary; floats are written as the shortest text that reads back
 * exactly. The file is replaced only when the writer is closed. */
WEFT_API weft_status weft_csv_writer_new(weft_ctx *ctx, const char *path, int n_cols,
                                         const weft_column *columns,
                                         const weft_csv_writer_opts *opts, weft_csv_writer **out);
/* One row: one tensor per column. After an error every further call fails. */
WEFT_API weft_status weft_csv_writer_add(weft_csv_writer *w, const weft_tensor *row);
/* The rows of a batch: every tensor has one more axis in front, of the same size. */
WEFT_API weft_status weft_csv_writer_add_batch(weft_csv_writer *w, const weft_tensor *cols);
/* Puts the file in place and frees the writer; after an error, which it then returns, the file is
 * unchanged. NULL is fine. */
WEFT_API weft_status weft_csv_writer_close(weft_csv_writer *w);
/* Frees the writer and leaves the file unchanged. NULL is fine. */
WEFT_API void weft_csv_writer_free(weft_csv_writer *w);

#ifdef __cplusplus
}
#endif
#endif
