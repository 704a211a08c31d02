/* columns.h - lists of columns as users write them: "label:i64, n0..n12:f32, *:str". */
#ifndef WF_DATA_TABLE_COLUMNS_H
#define WF_DATA_TABLE_COLUMNS_H

#include "data/data.h"

/* The next item of a list, without the blanks around it; false past the end. Empty items are
 * skipped. */
bool wf_columns_next(const char **at, char separator, weft_str *item);
/* Splits "name : value" (or at any of `marks`); without a mark value->data is NULL. */
void wf_columns_cut(weft_str item, const char *marks, weft_str *name, weft_str *value);
bool wf_str_is(weft_str a, const char *b);

/* Names to look up: columns, and groups of them. */
struct wf_columns_group {
    const char *name;
    int n;
    int *member;
};
struct wf_column_names {
    int n;
    const char **name;
    int n_groups;
    struct wf_columns_group *group;
};
/* A column by name or "#3"; -1 if there is none. */
int wf_columns_find(const struct wf_column_names *names, weft_str name);
int wf_columns_find_group(const struct wf_column_names *names, weft_str name);
/* "no column 'x', did you mean 'y'?" */
weft_status wf_columns_unknown(const struct wf_column_names *names, weft_str name);
/* "a" or "a..c": columns *first to *last, including the last. */
weft_status wf_columns_range(const struct wf_column_names *names, weft_str item, int *first,
                             int *last);

/* Calls fn for each column that the items of "columns:value, …" name: those of "*" first, so that
 * the others override. A group's name means its members. */
typedef weft_status wf_columns_fn(void *arg, int column, weft_str value);
weft_status wf_columns_each(const struct wf_column_names *names, const char *list,
                            wf_columns_fn *fn, void *arg);

#endif
