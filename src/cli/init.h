/* init.h - what weft init finds in a data file (init_look.c), and the job it writes (init.c). */
#ifndef WEFT_CLI_INIT_H
#define WEFT_CLI_INIT_H

#include "cli.h"

enum { INIT_MAX_COLUMNS = 4096, INIT_ROWS = 20000, INIT_CLASSES = 1000, INIT_TOP = 100 };

/* What a column is used for, or why it is not used. */
enum use {
    USE_LABEL,
    USE_NUMBER,   /* a number, or a row of them */
    USE_CATEGORY, /* text with few different values */
    USE_IMAGE,
    /* not used */
    OUT_ID,
    OUT_DATE,
    OUT_TEXT,
    OUT_CONSTANT,
    OUT_EMPTY,
    OUT_NAME,  /* the name has a comma, which lists of columns cannot contain */
    OUT_SHAPE, /* sequences and the like */
};

struct column_look {
    enum use use;
    int64_t n, n_missing, n_distinct;
    bool at_least; /* there may be more different values */
    bool whole;    /* integers only */
    double words;  /* words per text, on average */
    char example[48];
};

/* A class of the label. */
struct class_look {
    char *text;
    double value;
    int64_t n;
};

struct look {
    weft_ctx *ctx;
    weft_data *data;
    weft_ds ds;
    weft_format format;
    int n;
    const weft_column *col;
    struct column_look *look;
    int64_t n_rows; /* rows inspected */
    bool all_rows;  /* whether these are all rows */
    /* the label, over all rows */
    int label;
    int64_t n_labels, n_unlabeled;
    double mean, std, min, max;
    bool whole, classes; /* a class, not a quantity */
    bool looked_up;      /* the classes are words, or numbers other than 0, 1, 2, ... */
    int64_t n_classes;
    int n_seen; /* different values; over INIT_CLASSES: too many to count */
    struct class_look *seen;
};

int look_at(struct look *k, const char *path, const char *label, const char *task);
void look_free(struct look *k);
/* Whether the text is a date or a time: 2024-01-31, 31.1.2024, 1/31/24 08:15, 31 Jan 2024,
 * 08:15:00. */
bool is_date(const char *s, int64_t n);

#endif
