/* sql.h - shared by the sources of SQL queries: columns, missing values, text in blocks. */
#ifndef WF_DATA_TABLE_SQL_H
#define WF_DATA_TABLE_SQL_H

#include "data/table/table.h"
#include "weft/data_table.h"

/* Text of a block, copied piece by piece. */
struct wf_sql_text {
    struct wf_block *b;
    char *p;
    int64_t room, n; /* left in p; copied in total */
};
weft_status wf_sql_copy(struct wf_sql_text *t, const char *p, int64_t n, weft_str *out);

/* A field that is NULL, or of another kind than its column. The text names the column. */
weft_status wf_sql_null(const struct wf_field *f);
weft_status wf_sql_mismatch(const struct wf_field *f, const char *p, int64_t n);

/* Columns of ds from the names and kinds of a result (kind WF_FIELD_STR, I64, … by column). */
weft_status wf_sql_columns(struct wf_ds *ds, int n, const char **name,
                           const enum wf_field_kind *kind, const weft_sql_opts *o,
                           struct wf_row_layout *layout);
/* The pipeline's copy of a query, without trailing blanks and semicolons. */
weft_status wf_sql_query(weft_data *d, const char *query, const char **out);

#endif
