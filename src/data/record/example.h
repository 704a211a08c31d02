/* example.h - the parser of tf.train.Example and SequenceExample: bytes into the columns of a
 * block. */
#ifndef WF_DATA_RECORD_EXAMPLE_H
#define WF_DATA_RECORD_EXAMPLE_H

#include "data/data.h"
#include "weft/data_record.h"

/* Field numbers of the lists in a Feature. */
enum wf_list { WF_LIST_NONE, WF_LIST_BYTES, WF_LIST_FLOAT, WF_LIST_INT64 };

/* How one feature is read. */
struct wf_feature {
    const char *name;
    int64_t name_n;
    enum wf_list list;
    struct wf_type type; /* of the column */
    int64_t item;        /* bytes of an item */
    int64_t count;       /* items of a fixed shape; -1: varies */
    int64_t row;         /* items of a row: the sizes after the one that varies */
    bool sequence;
    bool steps_differ;   /* a sequence whose steps have a length that varies between elements */
    const char *missing; /* n_missing items, or NULL */
    int64_t n_missing;
};

/* Features to read, with a table to find them by name. */
struct wf_example {
    int n, n_sequence;
    struct wf_feature *f;
    int32_t *slot; /* feature + 1 by hash, 0: empty */
    uint64_t slot_mask;
};

/* Creates the plan in `arena`; checks names, dtypes, shapes, missing values. */
weft_status wf_example_plan(struct wf_arena *arena, int n, const weft_example_feature *features,
                            struct wf_example *out);

/* A block being filled, and what the parser remembers from record to record; one per thread. */
#define WF_EXAMPLE_ORDER 256
struct wf_example_run {
    const struct wf_example *plan;
    struct wf_block *b;
    struct wf_example_dest *dest;       /* by feature */
    int16_t order[2][WF_EXAMPLE_ORDER]; /* which feature was there in the last record; -1: none */
    int64_t *wide;                      /* integers before conversion to a narrower type */
    int64_t cap_wide;
    int64_t i, n_seen;          /* the element being filled, and how many features it has */
    const unsigned char *begin; /* of its bytes */
};
weft_status wf_example_run_new(weft_ctx *ctx, const struct wf_example *plan,
                               struct wf_example_run **out);
void wf_example_run_free(weft_ctx *ctx, struct wf_example_run *run);
/* Creates the columns of block b (one per feature), for b->n elements. */
weft_status wf_example_begin(struct wf_example_run *run, struct wf_block *b);
/* Parses one record into element i; called for 0, 1, 2, … . After a failure the element is empty if
 * possible, and the next may be parsed. Strings are views of the given bytes. */
weft_status wf_example_parse(struct wf_example_run *run, int64_t i, const char *bytes, int64_t n);

#define WF_EXAMPLE_FEATURES 10000 /* at most */

/* The features of a file's Examples, from its first records, in the arena of d; *n is 0 if none of
 * them is an Example with features, and the log says so. Records that are damaged, are not Examples
 * while others are, or have another kind of list than most, are an error that names the first; with
 * WEFT_ON_ERROR_SKIP they are skipped. */
weft_status wf_example_infer(weft_data *d, const char *files, weft_on_error on_error, int *n,
                             weft_example_feature **out);
/* The same from given records. */
struct wf_example_sample {
    const char *const *record;
    const int64_t *bytes;
    int64_t n;
};
weft_status wf_example_look(struct wf_arena *arena, const struct wf_example_sample *sample,
                            weft_on_error on_error, int *n, weft_example_feature **out);

#endif
