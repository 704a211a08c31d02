/* scan.h - where rows end in text, without reading what they say.
 *
 * A row ends at a newline outside quotes. A quote opens at the beginning of a field only, and two
 * in a row inside quotes are one of the text; elsewhere it is a character like any other. Lines
 * that are empty, or that begin with the comment character, are no rows. The parsers of rows
 * (csv_parse.c, libsvm.c) follow the same rules. */
#ifndef WF_DATA_TABLE_SCAN_H
#define WF_DATA_TABLE_SCAN_H

#include "base/base.h"

/* How rows are written; 0: there is no such character. */
struct wf_row_format {
    char delimiter, quote, comment;
};

struct wf_scan {
    struct wf_row_format format;
    bool avx2;
    /* Offsets from the beginning of the range that is scanned. */
    int64_t at;     /* looked at so far */
    int64_t line;   /* the present line began here */
    int64_t closed; /* the last closing quote */
    bool quoted;    /* inside quotes */
    int64_t n_rows; /* whole rows in the range */
    int64_t end;    /* behind the last of them; empty lines behind it are not counted in */
};

void wf_scan_init(struct wf_scan *s, const struct wf_row_format *format, weft_simd level);
/* Begin with a new range, at the beginning of a line. */
void wf_scan_begin(struct wf_scan *s);
/* Go on over p[s->at .. n) until `want` rows are whole; false when the text ends before. p is the
 * beginning of the range, and may have moved since the last call. */
bool wf_scan_rows(struct wf_scan *s, const char *p, int64_t n, int64_t want);
/* At the end of the text, p[0 .. n) being scanned: whether a last row without a newline stands
 * behind s->end. */
bool wf_scan_rest(const struct wf_scan *s, const char *p, int64_t n);

/* The line at p is empty or a comment: no row. */
bool wf_scan_no_row(const struct wf_row_format *f, const char *p, const char *end);
/* Behind the row that begins at p: the same rules for one row. */
const char *wf_scan_row_end(const struct wf_row_format *f, const char *p, const char *end);

#endif
