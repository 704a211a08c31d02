/* csv_parse.h - the parser of one row of a CSV file. */
#ifndef WF_DATA_TABLE_CSV_PARSE_H
#define WF_DATA_TABLE_CSV_PARSE_H

#include "data/table/field.h"

struct wf_csv_out {
    const struct wf_row_layout *layout;
    const struct wf_field_place *place; /* n_fields */
    /* Room for text that is not a view of the file, and how to get more of it. */
    char *text;
    int64_t text_bytes;
    weft_status (*more)(void *arg, int64_t bytes, char **out);
    void *arg;
    weft_status st; /* of the last failure */
};

/* Parses the row at p as row r. Returns the byte after it, or NULL with o->st and its text set
 * (column and offending text, not the file). Reads nothing at or past `end`, which ends the last
 * row like a newline. */
const char *wf_csv_row(struct wf_csv_out *o, const char *p, const char *end, int64_t r);

/* One field of a row, between its delimiters. */
struct wf_csv_span {
    const char *p;
    int64_t n;
    const char *next; /* after its delimiter or newline */
    bool quoted;
    bool doubled; /* p[0..n) contains doubled quotes */
    bool ends_row;
};
/* False: a quote is not closed, or text follows a closing quote; o->st is then set by
 * wf_csv_row. */
bool wf_csv_span(const struct wf_row_format *f, const char *p, const char *end,
                 struct wf_csv_span *out);
/* Copies p[0..n) with doubled quotes made single; returns the length. */
int64_t wf_csv_undouble(const char *p, int64_t n, char quote, char *to);

#endif
