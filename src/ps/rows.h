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
    int n_slots, n_more; /* n_more: elements after a row's slots, which mean something to others */
    int64_t n, cap;
    int64_t *id;
    int64_t *changed; /* the version in which it got its value */
    int32_t *undo;    /* its number among those of the last update of this set */
    float *data;      /* [n]: [1 + n_slots][width], [n_more] */
    int32_t *hash;    /* positions by id, -1: free; at most half full */
    int64_t n_hash;
    /* Of the rows that the last update changed: what they were before. */
    int64_t n_undo, cap_undo;
    float *was;
    int64_t *was_changed;
};

void wf_rowset_init(struct wf_rowset *s, int64_t width, int n_slots, int n_more);
void wf_rowset_free(weft_ctx *ctx, struct wf_rowset *s);
/* Room for `more` rows and for an update of n_undo: what follows cannot fail. */
weft_status wf_rowset_reserve(weft_ctx *ctx, struct wf_rowset *s, int64_t more, int64_t n_undo);
/* Its position; a new row has no values yet. Room for it was reserved. */
int64_t wf_rowset_add(struct wf_rowset *s, int64_t id);
/* Removes the rows for which `gone` is true; positions change. Their memory is given back if most
 * are removed. */
void wf_rowset_remove(weft_ctx *ctx, struct wf_rowset *s, bool (*gone)(void *arg, const float *row),
                      void *arg);
/* An update to version t begins: values of the last but one are forgotten. */
void wf_rowset_begin(struct wf_rowset *s);

/* ---- what runs for every row, here so that it is compiled into the loops ----------------- */

/* Elements of a row with its slots and what comes after them. */
static inline int64_t wf_rowset_floats(const struct wf_rowset *s)
{
    return (1 + s->n_slots) * s->width + s->n_more;
}

/* Its value, then slots and more. */
static inline float *wf_rowset_row(const struct wf_rowset *s, int64_t at)
{
    return s->data + at * wf_rowset_floats(s);
}

/* Rows are short, and most are as wide as some cache lines: no call for each of them. */
static inline void wf_row_copy(float *to, const float *from, int64_t width)
{
    if (width % 16)
        memcpy(to, from, (size_t)width * sizeof *to);
    else
        for (int64_t i = 0; i < width; i += 16)
            memcpy(to + i, from + i, 16 * sizeof *to);
}

/* Where an id is looked for first. */
static inline int64_t wf_rowset_hash(const struct wf_rowset *s, int64_t id)
{
    uint64_t h = (uint64_t)id * 0x9e3779b97f4a7c15u;

    return (int64_t)((h ^ h >> 32) & (uint64_t)(s->n_hash - 1));
}

/* Where an id is, or would be. */
static inline int64_t wf_rowset_place(const struct wf_rowset *s, int64_t id)
{
    int64_t mask = s->n_hash - 1, at = wf_rowset_hash(s, id);

    while (s->hash[at] >= 0 && s->id[s->hash[at]] != id)
        at = (at + 1) & mask;
    return at;
}

/* -1: it is missing. */
static inline int64_t wf_rowset_find(const struct wf_rowset *s, int64_t id)
{
    return s->n ? s->hash[wf_rowset_place(s, id)] : -1;
}

/* The value of version t, the newest one or the previous one; *changed: since when it has it. */
static inline const float *wf_rowset_at(const struct wf_rowset *s, int64_t at, int64_t t,
                                        int64_t *changed)
{
    int32_t undo;

    *changed = s->changed[at];
    if (*changed <= t)
        return wf_rowset_row(s, at);
    undo = s->undo[at];
    if (undo < 0 || undo >= s->n_undo)
        return wf_rowset_row(s, at);
    *changed = s->was_changed[undo];
    return s->was + undo * s->width;
}

/* Within an update: what row `at` is now is what it was before version t. */
static inline void wf_rowset_keep(struct wf_rowset *s, int64_t at, const float *was,
                                  int64_t was_changed, int64_t t)
{
    int64_t k = s->n_undo++;

    wf_row_copy(s->was + k * s->width, was, s->width);
    s->was_changed[k] = was_changed;
    s->undo[at] = (int32_t)k;
    s->changed[at] = t;
}

/* Rows are at random places of memory. Who goes through a list finds all of them first, with
 * prefetches of their places in the hash and then of the ids found; then says this many rows ahead
 * which one will be read. In one loop each row would be waited for. */
enum { WF_ROWS_AHEAD = 32 };

/* Inlined by force: gcc removes calls of a function that only prefetches, because it sees no effect
 * in it. */
#define WF_FETCH static inline __attribute__((always_inline))

WF_FETCH void wf_rowset_soon(const struct wf_rowset *s, int64_t id)
{
    if (s->n)
        __builtin_prefetch(&s->hash[wf_rowset_hash(s, id)]);
}

/* The row that is there is most often the right one. */
WF_FETCH void wf_rowset_next(const struct wf_rowset *s, int64_t id)
{
    int64_t at = s->n ? s->hash[wf_rowset_hash(s, id)] : -1;

    if (at < 0)
        return;
    __builtin_prefetch(&s->id[at]);
    __builtin_prefetch(&s->changed[at]);
}

/* n: floats of it that will be read. */
WF_FETCH void wf_row_soon(const float *row, int64_t n)
{
    for (int64_t i = 0; row && i < wf_min_i64(n, 128); i += 16)
        __builtin_prefetch(row + i);
}

#endif
