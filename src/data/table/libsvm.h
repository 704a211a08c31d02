/* libsvm.h - one line of a LibSVM or LibFFM file: "label [qid:N] index:value …", pure. */
#ifndef WF_DATA_TABLE_LIBSVM_H
#define WF_DATA_TABLE_LIBSVM_H

#include "data/table/scan.h"

struct wf_libsvm_format {
    bool zero_based, fields;
    int64_t dense_width; /* 0: sparse */
};

/* Where the items of a line go. */
struct wf_libsvm_line {
    float label;
    int64_t qid; /* 0 if the line has none */
    bool has_qid;
    int64_t n, room;        /* items, and how many fit */
    int64_t *field, *index; /* field: NULL unless there are fields */
    float *value;
    weft_status st; /* of a failure */
};
/* Parses the line at p. Returns the byte after it, or NULL with line->st and its text set. Reads
 * nothing at or past `end`. */
const char *wf_libsvm_parse(const struct wf_libsvm_format *f, const char *p, const char *end,
                            struct wf_libsvm_line *line);
/* At least as many as there are items in the text. */
int64_t wf_libsvm_room(const char *p, int64_t n);

#endif
