/* scan.h - finds where rows end in text, without parsing them.
 *
 * A row ends at a newline outside quotes. A quote opens only at the beginning of a field, and two
 * in a row inside quotes are one quote of the text; elsewhere it is an ordinary character. Lines
 * that are empty, or begin with the comment character, are not rows. The parsers of rows
 * (csv_parse.c, libsvm.c) follow the same rules. */
#ifndef WF_DATA_TABLE_SCAN_H
#define WF_DATA_TABLE_SCAN_H

#include "base/base.h"

/* The format of rows; 0: there is no such character. */
struct wf_row_format {
    char delimiter, quote, comment;
};

struct wf_scan {
    struct wf_row_format format;
    bool avx2;
    /* Offsets from the beginning of the scanned range. */
    int64_t at;     /* scanned so far */
    int64_t line;   /* start of the current line */
    int64_t closed; /* the last closing quote */
    bool quoted;    /* inside quotes */
    int64_t n_rows; /* complete rows in the range */
    int64_t end;    /* past the last of them; empty lines after it are not included */
};

void wf_scan_init(struct wf_scan *s, const struct wf_row_format *format, weft_simd level);
/* Starts with a new range, at the beginning of a line. */
void wf_scan_begin(struct wf_scan *s);
/* Continues over p[s->at .. n) until `want` rows are complete; false if the text ends before. p is
 * the beginning of the range, and may have moved since the last call. */
bool wf_scan_rows(struct wf_scan *s, const char *p, int64_t n, int64_t want);
/* At the end of the text, with p[0 .. n) scanned: whether there is a last row without a newline
 * after s->end. */
bool wf_scan_rest(const struct wf_scan *s, const char *p, int64_t n);

/* Whether the line at p is empty or a comment: not a row. */
bool wf_scan_no_row(const struct wf_row_format *f, const char *p, const char *end);
/* The position after the row that begins at p: the same rules for one row. */
const char *wf_scan_row_end(const struct wf_row_format *f, const char *p, const char *end);

#endif
