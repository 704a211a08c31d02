/* spec.h - lists of columns as users write them: "label:i64, n0..n12:f32, *:str". */
#ifndef WF_DATA_SPEC_H
#define WF_DATA_SPEC_H

#include "data/data.h"

/* The next item of a list, without the blanks around it; false behind the last. Empty items are
 * left out. */
bool wf_spec_next(const char **at, char separator, weft_str *item);
/* Cut "name : value" (or any of `marks` between them); without a mark value->data is NULL. */
void wf_spec_cut(weft_str item, const char *marks, weft_str *name, weft_str *value);
bool wf_str_is(weft_str a, const char *b);

/* Names to look up: columns, and groups of them. */
struct wf_spec_group {
    const char *name;
    int n;
    int *member;
};
struct wf_spec_names {
    int n;
    const char **name;
    int n_groups;
    struct wf_spec_group *group;
};
/* A column by name or "#3"; -1 when there is none. */
int wf_spec_find(const struct wf_spec_names *names, weft_str name);
int wf_spec_find_group(const struct wf_spec_names *names, weft_str name);
/* "no column 'x' (did you mean 'y'?)" */
weft_status wf_spec_unknown(const struct wf_spec_names *names, weft_str name);
/* "a" or "a..c": columns *first to *last, the last one included. */
weft_status wf_spec_range(const struct wf_spec_names *names, weft_str item, int *first, int *last);

/* Call fn for each column that the items of "columns:value, …" name: those of "*" first, so that
 * the others override. A group's name stands for its members. */
typedef weft_status wf_spec_fn(void *arg, int column, weft_str value);
weft_status wf_spec_each(const struct wf_spec_names *names, const char *list, wf_spec_fn *fn,
                         void *arg);

#endif
