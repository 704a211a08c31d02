/* field.h - the fields of a table's rows: their kinds, their values, and where they go. Shared by
 * CSV files, LibSVM files and SQL queries. */
#ifndef WF_DATA_TABLE_FIELD_H
#define WF_DATA_TABLE_FIELD_H

#include "data/data.h"
#include "data/table/scan.h"

/* How a field becomes items of a column. */
enum wf_field_kind {
    WF_FIELD_SKIP,
    WF_FIELD_F32,
    WF_FIELD_I64,
    WF_FIELD_F64,
    WF_FIELD_I32,
    WF_FIELD_I8,
    WF_FIELD_U8,
    WF_FIELD_BOOL,
    WF_FIELD_HEX,
    WF_FIELD_STR,
    WF_FIELD_N_KINDS
};
extern const char *const wf_field_kind_name[WF_FIELD_N_KINDS];
weft_dtype wf_field_dtype(enum wf_field_kind k);

/* One value, e.g. a default. */
union wf_field_value {
    double f;
    int64_t i;
    weft_str s;
};

struct wf_field {
    const char *name;
    enum wf_field_kind kind;
    int col;      /* that it goes to; -1: none */
    int64_t item; /* its position in the column's element */
    bool has_default;
    bool needed;                  /* text that must not be empty: a label */
    union wf_field_value missing; /* the default */
};

/* Consecutive fields of one kind. */
struct wf_field_run {
    enum wf_field_kind kind;
    int first, last; /* past the last */
};

struct wf_row_layout {
    struct wf_row_format format;
    int n_fields;
    struct wf_field *field;
    int n_runs;
    struct wf_field_run *run;
    int n_missing;
    weft_str *missing; /* words for missing values, besides the empty one */
    bool careful;      /* one of them could be a number: no shortcuts */
};

/* Where the fields of a row go: data + row * stride. */
struct wf_field_place {
    char *data;
    int64_t stride;
    char stop; /* the byte after the field */
};

/* A value of this kind from text (spaces around numbers are dropped). False if it is not one. Text
 * is borrowed. */
bool wf_field_convert(enum wf_field_kind kind, const char *p, int64_t n, union wf_field_value *out);
void wf_field_store(enum wf_field_kind kind, const union wf_field_value *v, char *to);
/* Text for an error message: shortened, unprintable bytes shown as '?'. */
#define WF_FIELD_SHOWN 48
const char *wf_field_show(const char *p, int64_t n, char buf[WF_FIELD_SHOWN]);

#endif
