/* rows.c - rows of a table that were updated, found by their numbers. */
#include "ps/rows.h"

#include <string.h>

void wf_rowset_init(struct wf_rowset *s, int64_t width, int n_slots, int n_more)
{
    *s = (struct wf_rowset){.width = width, .n_slots = n_slots, .n_more = n_more};
}

void wf_rowset_free(weft_ctx *ctx, struct wf_rowset *s)
{
    wf_free(ctx, s->id);
    wf_free(ctx, s->changed);
    wf_free(ctx, s->undo);
    wf_free(ctx, s->data);
    wf_free(ctx, s->hash);
    wf_free(ctx, s->was);
    wf_free(ctx, s->was_changed);
    wf_rowset_init(s, s->width, s->n_slots, s->n_more);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* An array of `n` items of which `used` are kept; the rest is not cleared. */
static weft_status resize(weft_ctx *ctx, void *array, int64_t used, int64_t n, size_t size)
{
    void **p = array, *q;
    int64_t bytes;

    if (!wf_mul_i64(n, (int64_t)size, &bytes))
        return wf_err_nomem(ctx, SIZE_MAX, "rows of a table");
    q = wf_alloc_raw(ctx, (size_t)bytes + 1);
    if (!q)
        return wf_err_nomem(ctx, (size_t)bytes, "rows of a table");
    if (used)
        memcpy(q, *p, (size_t)used * size);
    wf_free(ctx, *p);
    *p = q;
    return WEFT_OK;
}

static weft_status rehash(weft_ctx *ctx, struct wf_rowset *s, int64_t n_hash)
{
    weft_status st = resize(ctx, &s->hash, 0, n_hash, sizeof *s->hash);

    if (st)
        return st;
    s->n_hash = n_hash;
    memset(s->hash, 0xff, (size_t)n_hash * sizeof *s->hash);
    for (int64_t i = 0; i < s->n; i++)
        s->hash[wf_rowset_place(s, s->id[i])] = (int32_t)i;
    return WEFT_OK;
}

/* The old arrays stay valid if one of the new ones cannot be had. */
static weft_status set_cap(weft_ctx *ctx, struct wf_rowset *s, int64_t cap)
{
    weft_status st = resize(ctx, &s->id, s->n, cap, sizeof *s->id);

    if (!st)
        st = resize(ctx, &s->changed, s->n, cap, sizeof *s->changed);
    if (!st)
        st = resize(ctx, &s->undo, s->n, cap, sizeof *s->undo);
    if (!st)
        st = resize(ctx, &s->data, s->n, cap, (size_t)wf_rowset_floats(s) * sizeof *s->data);
    if (!st)
        s->cap = cap;
    return st;
}

weft_status wf_rowset_reserve(weft_ctx *ctx, struct wf_rowset *s, int64_t more, int64_t n_undo)
{
    int64_t need = s->n + more, n_hash = wf_max_i64(s->n_hash, 16);
    weft_status st = WEFT_OK;

    if (need >= INT32_MAX / 2)
        return wf_err(WEFT_ELIMIT, "more than %d rows in one block of a table", INT32_MAX / 2);
    if (need > s->cap)
        st = set_cap(ctx, s, need + need / 4 + 8);
    while (n_hash < 2 * need)
        n_hash *= 2;
    if (!st && n_hash > s->n_hash)
        st = rehash(ctx, s, n_hash);
    if (!st && n_undo > s->cap_undo) {
        int64_t cap = n_undo + n_undo / 4 + 8;

        st = resize(ctx, &s->was, s->n_undo, cap, (size_t)s->width * sizeof *s->was);
        if (!st)
            st = resize(ctx, &s->was_changed, s->n_undo, cap, sizeof *s->was_changed);
        if (!st)
            s->cap_undo = cap;
    }
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

int64_t wf_rowset_add(struct wf_rowset *s, int64_t id)
{
    int64_t at = s->n;
    int32_t *slot;

    s->id[at] = id; /* before it is looked for */
    slot = &s->hash[wf_rowset_place(s, id)];
    if (*slot >= 0)
        return *slot;
    *slot = (int32_t)at;
    s->changed[at] = -1;
    s->undo[at] = -1;
    s->n++;
    return at;
}

/* Row `from` becomes row `to`, which is not after it. */
static void move_row(struct wf_rowset *s, int64_t to, int64_t from)
{
    size_t bytes = (size_t)wf_rowset_floats(s) * sizeof *s->data;

    s->id[to] = s->id[from];
    s->changed[to] = s->changed[from];
    s->undo[to] = s->undo[from];
    memcpy(wf_rowset_row(s, to), wf_rowset_row(s, from), bytes);
}

void wf_rowset_remove(weft_ctx *ctx, struct wf_rowset *s, bool (*gone)(void *arg, const float *row),
                      void *arg)
{
    int64_t n = 0, n_hash = 16;

    for (int64_t i = 0; i < s->n; i++) {
        if (gone(arg, wf_rowset_row(s, i)))
            continue;
        if (n < i)
            move_row(s, n, i);
        n++;
    }
    if (n == s->n)
        return;
    s->n = n;
    if (n < s->cap / 4) {
        s->cap = n + n / 4 + 8; /* arrays that cannot be made smaller have room for more */
        (void)set_cap(ctx, s, s->cap);
    }
    while (n_hash < 2 * s->cap)
        n_hash *= 2;
    if (n_hash < s->n_hash && !rehash(ctx, s, n_hash))
        return;
    memset(s->hash, 0xff, (size_t)s->n_hash * sizeof *s->hash);
    for (int64_t i = 0; i < n; i++)
        s->hash[wf_rowset_place(s, s->id[i])] = (int32_t)i;
}

void wf_rowset_begin(struct wf_rowset *s)
{
    s->n_undo = 0;
}
