/* csv.h - the CSV source: shared by its builder, its reader and its index. */
#ifndef WF_DATA_TABLE_CSV_H
#define WF_DATA_TABLE_CSV_H

#include "data/table/csv_parse.h"
#include "data/table/rows.h"
#include "data/table/table.h"
#include "weft/data_table.h"

struct wf_csv_index;

/* Parameters of the node. */
struct wf_csv_source {
    struct wf_row_source rows; /* first: rows.c expects it there */
    struct wf_row_layout layout;
    bool has_text;
    struct wf_csv_index *index; /* NULL: a stream */
    const char *index_dir;      /* where row indexes are saved; NULL: next to the files */
};

/* The head of the first file. */
struct wf_csv_head {
    weft_ctx *ctx;
    char *data;
    int64_t n, bom;
    const char *end; /* past its last complete row */
};

/* Names, groups and types of the columns, from the options and the first rows of the first file. */
weft_status wf_csv_infer(struct wf_csv_source *src, const weft_csv_opts *o, struct wf_table *t);

/* Parses the rows of a piece of text into a block, from row *r on, which is advanced. */
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

/* The positions of the rows of one file. */
#define WF_CSV_STEP 16 /* rows between two notes */
struct wf_csv_rows {
    int64_t first, n_rows; /* the rows before this file's, and its own */
    int64_t *offset;       /* of rows 0, STEP, 2 STEP, …; then the end of the last row */
    int64_t n_offsets, cap;
    int fd; /* -1: opened when it is read */
};
/* The index of a large file that an earlier pass saved (csv_index_file.c); false if there is none
 * for the current file, read with these rules. info is set for wf_csv_keep. */
bool wf_csv_kept(const struct wf_csv_source *src, weft_ctx *ctx, const char *path,
                 struct wf_file_info *info, struct wf_csv_rows *out);
/* Saves an index, unless the file has changed since `info`. Failing to is not an error. */
void wf_csv_keep(const struct wf_csv_source *src, weft_ctx *ctx, const char *path,
                 const struct wf_file_info *info, const struct wf_csv_rows *rows);

/* Finds all rows of all files. */
weft_status wf_csv_index_new(struct wf_ds *ds, struct wf_csv_index **out, int64_t *n_rows);
void wf_csv_index_free(weft_ctx *ctx, struct wf_csv_index *x);
weft_status wf_csv_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at, int64_t n,
                       struct wf_block **out);

#endif
