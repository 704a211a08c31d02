/* csv.h - the CSV source: what its builder, its reader and its index share. */
#ifndef WF_DATA_TABLE_CSV_H
#define WF_DATA_TABLE_CSV_H

#include "data/table/csv_parse.h"
#include "data/table/rows.h"
#include "data/table/table.h"
#include "weft/data_table.h"

struct wf_csv_index;

/* Parameters of the node. */
struct wf_csv_source {
    struct wf_row_source rows; /* first: rows.c finds it there */
    struct wf_row_layout layout;
    bool has_text;
    struct wf_csv_index *index; /* NULL: a stream */
    const char *index_dir;      /* where lists of rows are kept; NULL: beside the files */
};

/* The head of the first file. */
struct wf_csv_head {
    weft_ctx *ctx;
    char *data;
    int64_t n, bom;
    const char *end; /* behind its last whole row */
};

/* Names, groups and types of the columns, from the options and the first rows of the first file. */
weft_status wf_csv_infer(struct wf_csv_source *src, const weft_csv_opts *o, struct wf_table *t);

/* Parse the rows of a piece of text into a block, from row *r on, which is counted up. */
struct wf_csv_fill {
    struct wf_ds *ds;
    struct wf_block *b;
    struct wf_csv_out out;
    int64_t epoch, id; /* of the next row in the text */
    int64_t r;         /* of the next row in the block */
};
weft_status wf_csv_fill_begin(struct wf_csv_fill *f, struct wf_ds *ds, struct wf_env *env,
                              int64_t n);
weft_status wf_csv_fill_piece(struct wf_csv_fill *f, const struct wf_row_piece *piece);

/* Where the rows of one file stand. */
#define WF_CSV_STEP 16 /* rows between two notes */
struct wf_csv_rows {
    int64_t first, n_rows; /* the rows before this file's, and its own */
    int64_t *offset;       /* of rows 0, STEP, 2 STEP, …; then the end of the last row */
    int64_t n_offsets, cap;
    int fd; /* -1: opened when it is read */
};
/* The list of a large file that an earlier pass kept (csv_index_file.c); false when there is none for the
 * file as it is now, read with these rules. info is filled in for wf_csv_keep. */
bool wf_csv_kept(const struct wf_csv_source *src, weft_ctx *ctx, const char *path,
                 struct wf_file_info *info, struct wf_csv_rows *out);
/* Keep a list, unless the file has changed since `info`. Not being able to is no error. */
void wf_csv_keep(const struct wf_csv_source *src, weft_ctx *ctx, const char *path,
                 const struct wf_file_info *info, const struct wf_csv_rows *rows);

/* Find all rows of all files. */
weft_status wf_csv_index_new(struct wf_ds *ds, struct wf_csv_index **out, int64_t *n_rows);
void wf_csv_index_free(weft_ctx *ctx, struct wf_csv_index *x);
weft_status wf_csv_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at, int64_t n,
                       struct wf_block **out);

#endif
