/* rows.h - text files as streams of rows: shared by CSV and LibSVM.
 *
 * Pulling finds the end of the n-th row (scan.h); a promise is a list of pieces of text, each with
 * complete rows of one file in one chunk. The rows are parsed when the promise is made, by the
 * kind's own `make`. */
#ifndef WF_DATA_TABLE_ROWS_H
#define WF_DATA_TABLE_ROWS_H

#include "data/file/files.h"
#include "data/table/scan.h"

/* The first member of the parameters of a node that reads rows. */
struct wf_row_source {
    struct wf_files files;
    struct wf_row_format format;
    bool has_header;
    weft_str header; /* of the first file, without its newline: all others must have the same */
    int64_t max_row_bytes;
    weft_on_error on_error;
};

struct wf_row_piece {
    struct wf_chunk *chunk; /* NULL: memory that is not owned */
    const char *p;
    int64_t bytes, n_rows;
    const char *path;
    int64_t record, offset; /* of the first row */
};
#define WF_ROW_PIECES 24
struct wf_row_range {
    int64_t epoch, id; /* of the first row */
    int n;
    struct wf_row_piece piece[WF_ROW_PIECES];
};

/* Functions for a wf_ds_kind whose param begins with a wf_row_source and whose promises are
 * wf_row_ranges. `make` must call wf_rows_done with p->data. */
weft_status wf_rows_open(struct wf_stage *s);
void wf_rows_close(struct wf_stage *s);
weft_status wf_rows_reset(struct wf_stage *s, int64_t epoch);
weft_status wf_rows_pull(struct wf_stage *s, int64_t want, struct wf_promise **out);
void wf_rows_drop(struct wf_promise *p);
weft_status wf_rows_save(struct wf_stage *s, struct wf_buf *out);
weft_status wf_rows_restore(struct wf_stage *s, struct wf_reader *r);
void wf_rows_done(weft_ctx *ctx, struct wf_row_range *range);

/* Bytes of a byte order mark at p. */
int64_t wf_rows_bom(const char *p, int64_t n);
/* p[0..n) without the newline at its end. */
int64_t wf_rows_chomp(const char *p, int64_t n);

#endif
