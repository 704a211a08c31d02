/* rows.h - some rows of a table, with the optimizer's slots: those that were ever updated.
 *
 * A row has a value and slots, the version in which it got them, and for as long as that version is
 * the newest of its piece, the value that it had before. So two versions can be read, and somebody
 * who has a row of an earlier version can be told that it has not changed. */
#ifndef WF_PS_ROWS_H
#define WF_PS_ROWS_H

#include "base/base.h"

struct wf_rowset {
    int64_t width;
    int n_slots;
    int64_t n, cap;
    int64_t *id;
    int64_t *changed; /* the version in which it got its value */
    int32_t *undo;    /* its number among those of the last update of this set */
    float *data;      /* [n][1 + n_slots][width] */
    int32_t *hash;    /* positions by id, -1: free; at most half full */
    int64_t n_hash;
    /* Of the rows that the last update changed: what they were before. */
    int64_t n_undo, cap_undo;
    float *was;
    int64_t *was_changed;
};

void wf_rowset_init(struct wf_rowset *s, int64_t width, int n_slots);
void wf_rowset_free(weft_ctx *ctx, struct wf_rowset *s);
/* -1: it is missing. */
int64_t wf_rowset_find(const struct wf_rowset *s, int64_t id);
/* Room for `more` rows and for an update of n_undo: what follows cannot fail. */
weft_status wf_rowset_reserve(weft_ctx *ctx, struct wf_rowset *s, int64_t more, int64_t n_undo);
/* Its position; a new row has no values yet. Room for it was reserved. */
int64_t wf_rowset_add(struct wf_rowset *s, int64_t id);
float *wf_rowset_row(const struct wf_rowset *s, int64_t at); /* its value, then slots */
/* The value of version t, the newest one or the previous one; *changed: since when it has it. */
const float *wf_rowset_at(const struct wf_rowset *s, int64_t at, int64_t t, int64_t *changed);
/* An update to version t begins: values of the last but one are forgotten. */
void wf_rowset_begin(struct wf_rowset *s);
/* Within an update: what row `at` is now is what it was before version t. */
void wf_rowset_keep(struct wf_rowset *s, int64_t at, const float *was, int64_t was_changed,
                    int64_t t);

#endif
