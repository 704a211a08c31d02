/* table.h - from the options of a table source to its columns: types, groups, defaults, roles.
 * Shared by CSV files and SQL queries. */
#ifndef WF_DATA_TABLE_TABLE_H
#define WF_DATA_TABLE_TABLE_H

#include "data/table/field.h"
#include "data/table/columns.h"

/* The user's options, and the columns of the table. */
struct wf_table {
    weft_data *d;
    struct wf_column_names names; /* all columns, in the order of the file */
    const char *types, *groups, *select, *label, *weight, *defaults;
    /* By column: */
    enum wf_field_kind *kind; /* WF_FIELD_SKIP: not known yet */
    bool *declared;
};

/* The groups and declared types; names must be set. */
weft_status wf_table_begin(struct wf_table *t);
/* With every kind known: the columns of ds, and the fields of its rows. Memory is the
 * pipeline's. */
weft_status wf_table_finish(struct wf_table *t, struct wf_ds *ds, struct wf_row_layout *layout);
/* Memory of a pipeline, with an error text if there is none. */
weft_status wf_table_alloc(weft_data *d, int64_t n, size_t size, void *out);
const char *wf_table_text(weft_data *d, const char *p, int64_t n); /* NULL if out of memory */

/* Where the rows of a block go. */
weft_status wf_table_places(const struct wf_row_layout *layout, struct wf_block *b,
                            struct wf_field_place **out);
/* A block of n rows with the columns of ds, with or without room for origins. */
weft_status wf_table_block(struct wf_ds *ds, struct wf_env *env, int64_t n, bool origins,
                           struct wf_block **out);

#endif
