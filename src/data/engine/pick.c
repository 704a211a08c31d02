/* pick.c - held blocks, and blocks gathered from them. */
#include <stdlib.h>

#include "data/engine/pick.h"

weft_status wf_hold(struct wf_block *b, struct wf_held **out)
{
    struct wf_held *h = wf_alloc(b->env->ctx, sizeof *h);

    if (!h) {
        weft_status st = wf_env_nomem(b->env, sizeof *h, "a held block");

        wf_block_free(b);
        return st;
    }
    atomic_store_explicit(&h->refs, 1, memory_order_relaxed);
    h->block = b;
    *out = h;
    return WEFT_OK;
}

struct wf_held *wf_held_ref(struct wf_held *h)
{
    atomic_fetch_add_explicit(&h->refs, 1, memory_order_relaxed);
    return h;
}

void wf_held_unref(struct wf_held *h)
{
    weft_ctx *ctx;

    if (!h || atomic_fetch_sub_explicit(&h->refs, 1, memory_order_acq_rel) != 1)
        return;
    ctx = h->block->env->ctx;
    wf_block_free(h->block);
    if (h->drop)
        h->drop(h->drop_arg);
    wf_free(ctx, h);
}

/* ---- gathering ------------------------------------------------------------------------------- */

static int64_t items_of(const struct wf_type *t)
{
    int64_t n = 1;

    for (int k = 0; k < t->rank; k++)
        n *= t->dim[k];
    return n;
}

/* The type of column c over all picks: sizes that differ become WEFT_ANY. */
static weft_status joint_type(const struct wf_pick *pick, int64_t n, int c, struct wf_type *out)
{
    *out = pick[0].held->block->col[c].type;
    for (int64_t i = 1; i < n; i++) {
        const struct wf_type *t = &pick[i].held->block->col[c].type;

        if (pick[i].held == pick[i - 1].held)
            continue;
        if (t->dtype != out->dtype || t->rank != out->rank)
            return wf_err(WEFT_EBUG, "elements of different columns are joined");
        for (int k = 0; k < out->rank; k++)
            if (t->dim[k] != out->dim[k])
                out->dim[k] = WEFT_ANY;
    }
    return WEFT_OK;
}

static bool varies(const struct wf_type *t)
{
    for (int k = 0; k < t->rank; k++)
        if (t->dim[k] < 0)
            return true;
    return false;
}

static void gather_fixed(struct wf_col *dst, int c, const struct wf_pick *pick, int64_t n)
{
    size_t row = (size_t)(items_of(&dst->type) * wf_item_bytes(dst->type.dtype));

    for (int64_t i = 0; i < n && row; i++) {
        const struct wf_col *src = &pick[i].held->block->col[c];

        memcpy((char *)dst->data + (size_t)i * row, (char *)src->data + (size_t)pick[i].i * row,
               row);
    }
}

static void gather_varying(struct wf_col *dst, int c, const struct wf_pick *pick, int64_t n)
{
    int64_t size = wf_item_bytes(dst->type.dtype);
    int rank = dst->type.rank;

    for (int64_t i = 0; i < n; i++) {
        weft_tensor t = wf_col_element(&pick[i].held->block->col[c], pick[i].i);
        int64_t m = weft_tensor_count(&t);

        if (m)
            memcpy((char *)dst->data + dst->offset[i] * size, t.data, (size_t)(m * size));
        dst->offset[i + 1] = dst->offset[i] + m;
        for (int k = 0; k < rank; k++)
            dst->shape[i * rank + k] = t.dim[k];
    }
}

/* Moves the bytes of n items of text into the block's own memory. */
static weft_status own_text(struct wf_block *b, struct wf_col *col, int64_t n)
{
    weft_str *s = col->data;
    int64_t bytes = 0;
    void *p = NULL;
    char *q;
    weft_status st;

    for (int64_t i = 0; i < n; i++)
        bytes += s[i].n;
    st = wf_block_alloc(b, bytes, &p);
    if (st)
        return st;
    q = p;
    for (int64_t i = 0; i < n; i++) {
        if (s[i].n)
            memcpy(q, s[i].data, (size_t)s[i].n);
        s[i].data = q;
        q += s[i].n;
    }
    return WEFT_OK;
}

static weft_status gather_column(struct wf_block *b, int c, const struct wf_pick *pick,
                                 enum wf_pick_text text)
{
    struct wf_type type;
    int64_t items = 0;
    weft_status st = joint_type(pick, b->n, c, &type);

    if (st)
        return st;
    for (int64_t i = 0; i < b->n && varies(&type); i++) {
        weft_tensor t = wf_col_element(&pick[i].held->block->col[c], pick[i].i);

        items += weft_tensor_count(&t);
    }
    st = wf_block_col(b, c, &type, items);
    if (st)
        return st;
    if (b->col[c].offset)
        gather_varying(&b->col[c], c, pick, b->n);
    else
        gather_fixed(&b->col[c], c, pick, b->n);
    if (type.dtype == WEFT_STR && text == WF_TEXT_COPIED)
        st = own_text(b, &b->col[c], wf_col_item_count(&b->col[c], b->n));
    return st;
}

static int by_address(const void *a, const void *b)
{
    struct wf_block *const *x = a, *const *y = b;

    return (*x > *y) - (*x < *y);
}

/* Text stays where it is: keep the blocks' chunks. */
static weft_status keep_text(struct wf_block *b, const struct wf_pick *pick)
{
    struct wf_block **from;
    int64_t n = 0, m = 0;
    bool any = false;
    weft_status st;

    for (int c = 0; c < b->n_cols; c++)
        any = any || pick[0].held->block->col[c].type.dtype == WEFT_STR;
    if (!any)
        return WEFT_OK;
    from = wf_alloc_n(b->env->ctx, b->n, sizeof *from);
    if (!from)
        return wf_env_nomem(b->env, b->n * 8, "a block of elements");
    for (int64_t i = 0; i < b->n; i++)
        if (!i || pick[i - 1].held != pick[i].held)
            from[n++] = pick[i].held->block;
    qsort(from, (size_t)n, sizeof *from, by_address);
    for (int64_t i = 0; i < n; i++)
        if (!i || from[i] != from[i - 1])
            from[m++] = from[i];
    st = wf_block_keep_all(b, m, from);
    wf_free(b->env->ctx, from);
    return st;
}

static weft_status gather_places(struct wf_block *b, const struct wf_pick *pick)
{
    const struct wf_block *one = pick[0].held->block;
    bool known = true;
    void *p = NULL;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < b->n; i++) {
        b->at[i] = pick[i].held->block->at[pick[i].i];
        known = known && pick[i].held->block->from;
    }
    if (known)
        st = wf_block_origins(b);
    for (int64_t i = 0; i < b->n && known && !st; i++)
        b->from[i] = pick[i].held->block->from[pick[i].i];
    if (!st && b->n == 1 && one->sample) {
        st = wf_block_alloc(b, one->n_samples * (int64_t)sizeof *b->sample, &p);
        if (st)
            return st;
        b->sample = p;
        b->n_samples = one->n_samples;
        if (one->n_samples)
            memcpy(b->sample, one->sample, (size_t)one->n_samples * sizeof *b->sample);
    }
    return st;
}

/* A run of one block's elements as a view, in memory of env: the block may belong to another
 * env. */
static weft_status view_run(struct wf_env *env, const struct wf_block *from, int64_t first,
                            int64_t n, struct wf_block **out)
{
    struct wf_block *b = NULL;
    weft_status st = wf_block_new(env, from->n_cols, n, &b);

    for (int64_t i = 0; i < from->n_keep && !st; i++)
        st = wf_block_keep(b, from->keep[i]);
    if (st) {
        wf_block_free(b);
        return st;
    }
    memcpy(b->at, from->at + first, (size_t)n * sizeof *b->at);
    b->from = from->from ? from->from + first : NULL;
    if (from->n == 1) {
        b->sample = from->sample;
        b->n_samples = from->n_samples;
    }
    for (int c = 0; c < b->n_cols; c++) {
        struct wf_col *col = &b->col[c];

        *col = from->col[c];
        if (col->offset) {
            col->offset += first;
            col->shape += first * col->type.rank;
        } else {
            col->data =
                (char *)col->data + first * items_of(&col->type) * wf_item_bytes(col->type.dtype);
        }
    }
    *out = b;
    return WEFT_OK;
}

static bool one_run(const struct wf_pick *pick, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (pick[i].held != pick[0].held || pick[i].i != pick[0].i + i)
            return false;
    return true;
}

weft_status wf_pick_block(struct wf_env *env, const struct wf_pick *pick, int64_t n,
                          enum wf_pick_text text, struct wf_block **out)
{
    struct wf_block *b = NULL;
    weft_status st;

    if (n < 1)
        return wf_err(WEFT_EBUG, "a block of no picks");
    if (text == WF_TEXT_SHARED && one_run(pick, n))
        return view_run(env, pick[0].held->block, pick[0].i, n, out);
    st = wf_block_new(env, pick[0].held->block->n_cols, n, &b);
    if (!st)
        st = gather_places(b, pick);
    if (!st && text == WF_TEXT_SHARED)
        st = keep_text(b, pick);
    for (int c = 0; !st && c < b->n_cols; c++)
        st = gather_column(b, c, pick, text);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

int64_t wf_block_content_bytes(const struct wf_block *b)
{
    int64_t bytes = b->n * (int64_t)sizeof *b->at;

    for (int c = 0; c < b->n_cols; c++) {
        const struct wf_col *col = &b->col[c];
        int64_t items = wf_col_item_count(col, b->n), first = col->offset ? col->offset[0] : 0;

        bytes += items * wf_item_bytes(col->type.dtype);
        if (col->offset)
            bytes += b->n * (1 + col->type.rank) * 8;
        for (int64_t i = 0; i < items && col->type.dtype == WEFT_STR; i++)
            bytes += ((const weft_str *)col->data)[first + i].n;
    }
    return bytes;
}

/* ---- promises of picks ----------------------------------------------------------------------- */

weft_status wf_picks_new(weft_ctx *ctx, int64_t cap, struct wf_picks **out)
{
    struct wf_picks *p = NULL;
    int64_t bytes;

    if (wf_mul_i64(cap, sizeof(struct wf_pick), &bytes) && wf_add_i64(bytes, sizeof *p, &bytes))
        p = wf_alloc(ctx, (size_t)bytes);
    if (!p)
        return wf_err_nomem(ctx, (size_t)cap * sizeof(struct wf_pick), "a list of elements");
    p->ctx = ctx;
    p->cap = cap;
    p->pick = (void *)(p + 1);
    *out = p;
    return WEFT_OK;
}

void wf_picks_add(struct wf_picks *p, struct wf_held *h, int64_t i)
{
    p->pick[p->n++] = (struct wf_pick){wf_held_ref(h), i};
}

void wf_picks_free(struct wf_picks *p)
{
    if (!p)
        return;
    for (int64_t i = 0; i < p->n; i++)
        wf_held_unref(p->pick[i].held);
    wf_free(p->ctx, p);
}

weft_status wf_picks_promise(struct wf_stage *s, struct wf_picks *p, int64_t n,
                             struct wf_promise **out)
{
    struct wf_promise *q = wf_promise_new(s, n, 0, NULL, p);

    if (!q) {
        wf_picks_free(p);
        return wf_env_nomem(s->env, sizeof *q, s->ds->name);
    }
    *out = q;
    return WEFT_OK;
}

weft_status wf_picks_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    struct wf_picks *k = p->data;
    weft_status st = wf_pick_block(w->env, k->pick, k->n, k->text, out);

    wf_picks_free(k);
    return st;
}

void wf_picks_drop(struct wf_promise *p)
{
    wf_picks_free(p->data);
    p->data = NULL;
}

/* ---- cursors --------------------------------------------------------------------------------- */

void wf_cursor_clear(struct wf_cursor *c)
{
    wf_held_unref(c->held);
    *c = (struct wf_cursor){0};
}

weft_status wf_cursor_need(struct wf_cursor *c, struct wf_stage *in, int64_t want, bool *more)
{
    struct wf_block *b;
    weft_status st;

    *more = true;
    while (!c->held || c->i >= c->held->block->n) {
        wf_cursor_clear(c);
        st = wf_stage_next(in, want, &b);
        if (st)
            return st;
        if (!b) {
            *more = false;
            return WEFT_OK;
        }
        st = wf_hold(b, &c->held);
        if (st)
            return st;
    }
    return WEFT_OK;
}

weft_status wf_maybe_save(const struct wf_block *b, struct wf_buf *out)
{
    wf_put_i64(out, b != NULL);
    return b ? wf_block_save(b, out) : out->st;
}

weft_status wf_maybe_load(struct wf_env *env, const struct wf_ds *ds, struct wf_reader *r,
                          struct wf_block **out)
{
    bool there = wf_get_range(r, 0, 1, "a flag");

    *out = NULL;
    if (r->st || !there)
        return r->st;
    return wf_block_load(env, ds, r, out);
}

weft_status wf_cursor_save(const struct wf_cursor *c, struct wf_buf *out)
{
    struct wf_block *rest = NULL;
    weft_status st = WEFT_OK;

    if (c->held && c->i < c->held->block->n)
        st = wf_block_slice(c->held->block, c->i, c->held->block->n - c->i, &rest);
    if (!st)
        st = wf_maybe_save(rest, out);
    wf_block_free(rest);
    return st;
}

weft_status wf_cursor_restore(struct wf_cursor *c, struct wf_env *env, const struct wf_ds *ds,
                              struct wf_reader *r)
{
    struct wf_block *b;
    weft_status st;

    wf_cursor_clear(c);
    st = wf_maybe_load(env, ds, r, &b);
    if (st || !b)
        return st;
    return wf_hold(b, &c->held);
}

/* ---- slots ----------------------------------------------------------------------------------- */

#define PIECE 1024 /* elements in a block of copied or saved ones */

weft_status wf_slots_init(struct wf_slots *s, struct wf_env *env, int64_t cap)
{
    *s = (struct wf_slots){.env = env, .cap = cap};
    s->slot = wf_alloc_n(env->ctx, cap, sizeof *s->slot);
    if (!s->slot) {
        s->cap = 0;
        return wf_env_nomem(env, cap * (int64_t)sizeof *s->slot, "a buffer");
    }
    return WEFT_OK;
}

void wf_slots_set(struct wf_slots *s, int64_t j, struct wf_held *h, int64_t i)
{
    if (h->n_used++ == 0) {
        wf_held_ref(h);
        s->n_held += h->block->n;
    }
    s->slot[j] = (struct wf_pick){h, i};
}

void wf_slots_clear(struct wf_slots *s, int64_t j)
{
    struct wf_held *h = s->slot[j].held;

    if (!h)
        return;
    s->slot[j].held = NULL;
    if (--h->n_used == 0) {
        s->n_held -= h->block->n;
        wf_held_unref(h);
    }
}

void wf_slots_clear_all(struct wf_slots *s)
{
    for (int64_t j = 0; j < s->cap; j++)
        wf_slots_clear(s, j);
}

void wf_slots_free(struct wf_slots *s)
{
    if (!s->slot)
        return;
    wf_slots_clear_all(s);
    wf_free(s->env->ctx, s->slot);
    s->slot = NULL;
}

static bool sparse(const struct wf_held *h)
{
    return h && h->n_used * 3 < h->block->n * 2;
}

/* Copies the elements at slots list[0..n) into a new block. */
static weft_status move_slots(struct wf_slots *s, const int64_t *list, int64_t n)
{
    struct wf_pick pick[PIECE];
    struct wf_block *block = NULL;
    struct wf_held *h = NULL;
    weft_status st;

    for (int64_t i = 0; i < n; i++)
        pick[i] = s->slot[list[i]];
    st = wf_pick_block(s->env, pick, n, WF_TEXT_COPIED, &block);
    if (!st)
        st = wf_hold(block, &h);
    if (st)
        return st;
    for (int64_t i = 0; i < n; i++) {
        wf_slots_clear(s, list[i]);
        wf_slots_set(s, list[i], h, i);
    }
    wf_held_unref(h);
    return WEFT_OK;
}

/* A batch is copied and saved separately: only a block of one knows its samples. */
static int64_t piece(const struct wf_pick *pick)
{
    return pick->held && pick->held->block->sample ? 1 : PIECE;
}

/* Each copied element leaves a block that was less than two thirds in use, so between two calls at
 * least about as many elements leave the buffer as are copied here. */
weft_status wf_slots_tidy(struct wf_slots *s)
{
    int64_t list[PIECE], n = 0;
    weft_status st = WEFT_OK;

    if (s->n_held <= s->cap / 4 * 9 + 4 * PIECE)
        return WEFT_OK;
    for (int64_t j = 0; j < s->cap && !st; j++) {
        if (sparse(s->slot[j].held))
            list[n++] = j;
        if (n == PIECE || (n && (j == s->cap - 1 || piece(&s->slot[list[0]]) == 1))) {
            st = move_slots(s, list, n);
            n = 0;
        }
    }
    return st;
}

weft_status wf_slots_save(const struct wf_slots *s, int64_t first, int64_t n, struct wf_buf *out)
{
    struct wf_block *block = NULL;
    int64_t m;
    weft_status st = WEFT_OK;

    for (int64_t j = 0; j < n && !st; j += m) {
        m = wf_min_i64(piece(&s->slot[first + j]), n - j);
        st = wf_pick_block(s->env, s->slot + first + j, m, WF_TEXT_SHARED, &block);
        if (!st)
            st = wf_block_save(block, out);
        wf_block_free(block);
        block = NULL;
    }
    return st;
}

weft_status wf_slots_restore(struct wf_slots *s, const struct wf_ds *ds, int64_t first, int64_t n,
                             struct wf_reader *r)
{
    struct wf_block *block = NULL;
    struct wf_held *h = NULL;
    int64_t j = 0;
    weft_status st = WEFT_OK;

    while (j < n) {
        st = wf_block_load(s->env, ds, r, &block);
        if (!st)
            st = wf_hold(block, &h);
        if (st)
            return st;
        if (h->block->n < 1 || h->block->n > n - j)
            st = wf_err(WEFT_EPARSE, "saved position: %lld elements of %lld in a buffer",
                        (long long)(j + h->block->n), (long long)n);
        for (int64_t i = 0; i < h->block->n && !st; i++)
            wf_slots_set(s, first + j++, h, i);
        wf_held_unref(h);
        if (st)
            return st;
    }
    return WEFT_OK;
}
