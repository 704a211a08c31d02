/* sql.h - shared by the sources of SQL queries: columns, missing values, text in blocks. */
#ifndef WF_DATA_TABLE_SQL_H
#define WF_DATA_TABLE_SQL_H

#include "data/table/table.h"
#include "weft/data_table.h"

/* ---- the skeleton ---------------------------------------------------------------------------- */

/* What the parameters of a source begin with. */
struct wf_sql {
    const struct wf_sql_calls *calls;
    const char *query;
    struct wf_row_layout layout;
};
struct wf_sql_calls {
    size_t state_bytes;
    void (*finish)(const struct wf_sql *src, void *state); /* the connection ends; twice is fine */
};
/* What the state of its stage begins with. */
struct wf_sql_state {
    struct wf_env *env; /* NULL while the source is built */
    int64_t epoch, id;  /* of the next row */
    bool ended;
};
/* Is the iterator being closed? */
bool wf_sql_stopping(const struct wf_sql_state *t);

/* Of a kind: the state, and a position, which is an epoch and a row. */
weft_status wf_sql_open(struct wf_stage *s);
void wf_sql_close(struct wf_stage *s);
weft_status wf_sql_reset(struct wf_stage *s, int64_t epoch);
weft_status wf_sql_save(struct wf_stage *s, struct wf_buf *out);
/* The position as it was saved, and the stage at the beginning of that epoch: the caller steps
 * over the rows before *id. */
weft_status wf_sql_position(struct wf_stage *s, struct wf_reader *r, int64_t *id);
weft_status wf_sql_too_few(int64_t n, int64_t id); /* rows for the position */

/* A node with the query and name of the options, and then what `build` makes of it. */
typedef weft_status wf_sql_build_fn(struct wf_ds *ds, const char *where, const weft_sql_opts *o);
weft_ds wf_sql_new(weft_data *d, const struct wf_ds_kind *kind, const struct wf_sql_calls *calls,
                   size_t bytes, const char *where, const char *query, const weft_sql_opts *opts,
                   wf_sql_build_fn *build);

/* ---- values ---------------------------------------------------------------------------------- */

/* Text of a block, copied piece by piece. */
struct wf_sql_text {
    struct wf_block *b;
    char *p;
    int64_t room, n; /* left in p; copied in total */
};
weft_status wf_sql_copy(struct wf_sql_text *t, const char *p, int64_t n, weft_str *out);

/* The value of a field that is NULL, stored. An error where its kind has none. */
weft_status wf_sql_null(const struct wf_field *f, char *to);
/* A field of another kind than its column. The text names the column. */
weft_status wf_sql_mismatch(const struct wf_field *f, const char *p, int64_t n);

/* Columns of ds from the names and kinds of a result (kind WF_FIELD_STR, I64, … by column). */
weft_status wf_sql_columns(struct wf_ds *ds, int n, const char **name,
                           const enum wf_field_kind *kind, const weft_sql_opts *o,
                           struct wf_row_layout *layout);

#endif
