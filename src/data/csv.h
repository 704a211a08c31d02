/* csv.h - what the files of the CSV source share: the layout of a row, and its parser. */
#ifndef WF_DATA_CSV_H
#define WF_DATA_CSV_H

#include "data/data.h"
#include "data/scan.h"

/* How a field becomes items of a column. */
enum wf_csv_kind {
    WF_CSV_SKIP,
    WF_CSV_F32,
    WF_CSV_I64,
    WF_CSV_F64,
    WF_CSV_I32,
    WF_CSV_I8,
    WF_CSV_U8,
    WF_CSV_BOOL,
    WF_CSV_HEX,
    WF_CSV_STR,
    WF_CSV_N_KINDS
};
extern const char *const wf_csv_kind_name[WF_CSV_N_KINDS];
weft_dtype wf_csv_dtype(enum wf_csv_kind k);

/* One value, as a default or on its way. */
union wf_csv_value {
    double f;
    int64_t i;
    weft_str s;
};

struct wf_csv_field {
    const char *name;
    enum wf_csv_kind kind;
    int col;      /* that it goes to; -1: none */
    int64_t item; /* its place in the column's element */
    bool has_default;
    union wf_csv_value missing; /* the default */
};

/* Fields of one kind that follow each other. */
struct wf_csv_run {
    enum wf_csv_kind kind;
    int first, last; /* behind the last */
};

struct wf_csv_layout {
    struct wf_row_format format;
    int n_fields;
    struct wf_csv_field *field;
    int n_runs;
    struct wf_csv_run *run;
    int n_missing;
    weft_str *missing; /* words for missing values, apart from the empty one */
    bool careful;      /* one of them could be a number: no shortcuts */
};

/* Where the fields of a row go: data + row * stride. */
struct wf_csv_place {
    char *data;
    int64_t stride;
    char stop; /* the byte behind the field */
};

struct wf_csv_out {
    const struct wf_csv_layout *layout;
    const struct wf_csv_place *place; /* n_fields */
    /* Room for text that cannot be shown as it lies in the file, and how to get more of it. */
    char *text;
    int64_t text_bytes;
    weft_status (*more)(void *arg, int64_t bytes, char **out);
    void *arg;
    weft_status st; /* of the last failure */
};

/* Parse the row at p as row r. Returns the byte behind it, or NULL with o->st and its text set
 * (column and offending text, not the file). Reads nothing at or behind `end`, which ends the last
 * row like a newline. */
const char *wf_csv_row(struct wf_csv_out *o, const char *p, const char *end, int64_t r);

/* One field of a row, as it stands between its delimiters. */
struct wf_csv_span {
    const char *p;
    int64_t n;
    const char *next; /* behind its delimiter or newline */
    bool quoted;
    bool doubled; /* p[0..n) holds doubled quotes */
    bool ends_row;
};
/* False: a quote never closes, or text follows a closing quote; o->st is set by wf_csv_row then. */
bool wf_csv_span(const struct wf_row_format *f, const char *p, const char *end,
                 struct wf_csv_span *out);
/* Copy p[0..n) with doubled quotes made single; returns the length. */
int64_t wf_csv_undouble(const char *p, int64_t n, char quote, char *to);
/* A value of this kind from text (spaces around numbers are dropped). False when it is none. Text
 * is borrowed. */
bool wf_csv_convert(enum wf_csv_kind kind, const char *p, int64_t n, union wf_csv_value *out);
void wf_csv_store(enum wf_csv_kind kind, const union wf_csv_value *v, char *to);
/* Text for an error message: shortened, unprintable bytes shown as '?'. */
#define WF_CSV_SHOWN 48
const char *wf_csv_show(const char *p, int64_t n, char buf[WF_CSV_SHOWN]);

#endif
