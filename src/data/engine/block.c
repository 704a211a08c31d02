/* block.c - memory of iterators, and blocks of elements in it. A chunk is written by its creator
 * before anyone else sees it; afterwards it is only read. */
#include <stdio.h>
#include <stdlib.h>

#include "data/data.h"

/* ---- chunks ---------------------------------------------------------------------------------- */

#define FIRST_OCTAVE 8 /* 256 bytes */

/* The smallest class whose size is at least `bytes`, and that size. */
static int size_class(int64_t bytes, int64_t *size)
{
    int octave = FIRST_OCTAVE, step;

    if (bytes <= (int64_t)1 << FIRST_OCTAVE) {
        *size = (int64_t)1 << FIRST_OCTAVE;
        return 0;
    }
    octave = 63 - __builtin_clzll((uint64_t)(bytes - 1));
    step = (int)(((bytes - 1) >> (octave - 3)) & 7) + 1;
    *size = ((int64_t)1 << octave) + ((int64_t)step << (octave - 3));
    return (octave - FIRST_OCTAVE) * 8 + step;
}

weft_status wf_env_nomem(struct wf_env *env, int64_t bytes, const char *what)
{
    return wf_err_nomem(env->ctx, bytes < 0 ? 0 : (size_t)bytes, what);
}

struct wf_chunk *wf_chunk_new(struct wf_env *env, int64_t bytes)
{
    int64_t size;
    struct wf_chunk *s;
    int class;

    if (bytes < 0 || bytes > (int64_t)1 << 46)
        return NULL;
    class = size_class(bytes, &size);
    pthread_mutex_lock(&env->lock);
    s = env->free_chunks[class];
    if (s) {
        env->free_chunks[class] = s->next_free;
        env->free_bytes -= size;
    }
    pthread_mutex_unlock(&env->lock);
    if (!s) {
        s = wf_alloc(env->ctx, sizeof *s);
        if (s)
            s->data = wf_alloc(env->ctx, (size_t)size);
        if (!s || !s->data) {
            wf_free(env->ctx, s);
            return NULL;
        }
        s->env = env;
        s->bytes = size;
        s->size_class = class;
    }
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&env->bytes, size, memory_order_relaxed);
    atomic_fetch_add_explicit(&env->refs, 1, memory_order_relaxed);
    return s;
}

struct wf_chunk *wf_chunk_ref(struct wf_chunk *s)
{
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void wf_chunk_unref(struct wf_chunk *s)
{
    struct wf_env *env;
    bool keep;

    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    env = s->env;
    atomic_fetch_sub_explicit(&env->bytes, s->bytes, memory_order_relaxed);
    pthread_mutex_lock(&env->lock);
    keep = env->free_bytes + s->bytes <= env->budget / 4;
    if (keep) {
        s->next_free = env->free_chunks[s->size_class];
        env->free_chunks[s->size_class] = s;
        env->free_bytes += s->bytes;
    }
    pthread_mutex_unlock(&env->lock);
    if (!keep) {
        wf_free(env->ctx, s->data);
        wf_free(env->ctx, s);
    }
    wf_env_unref(env);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

int64_t wf_item_bytes(weft_dtype t)
{
    return t == WEFT_STR ? (int64_t)sizeof(weft_str) : weft_dtype_size(t);
}

/* Items of one element of a fixed type. */
static int64_t element_items(const struct wf_type *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->rank; i++)
        if (!wf_mul_i64(n, t->dim[i], &n))
            return -1;
    return n;
}

int64_t wf_col_item_count(const struct wf_col *c, int64_t n)
{
    return c->offset ? c->offset[n] - c->offset[0] : n * element_items(&c->type);
}

#define KEEP_INSIDE 8

weft_status wf_block_new(struct wf_env *env, int n_cols, int64_t n, struct wf_block **out)
{
    size_t head = sizeof(struct wf_block) + (size_t)n_cols * sizeof(struct wf_col) +
                  KEEP_INSIDE * sizeof(struct wf_chunk *);
    int64_t at_bytes, bytes;
    struct wf_chunk *s;
    struct wf_block *b;
    char *p;

    head = (head + 15) / 16 * 16;
    if (!wf_mul_i64(n, sizeof(struct wf_at), &at_bytes) ||
        !wf_add_i64(at_bytes, (int64_t)head, &bytes))
        return wf_err(WEFT_ERANGE, "a block of %lld elements is too large", (long long)n);
    s = wf_chunk_new(env, bytes);
    if (!s)
        return wf_env_nomem(env, bytes, "a block of elements");
    p = s->data;
    memset(p, 0, (size_t)bytes);
    b = (void *)p;
    b->env = env;
    b->n = n;
    b->n_cols = n_cols;
    b->col = (void *)(p + sizeof *b);
    b->keep = (void *)(p + sizeof *b + (size_t)n_cols * sizeof(struct wf_col));
    b->keep[0] = s; /* the block is in its first chunk */
    b->n_keep = 1;
    b->cap_keep = KEEP_INSIDE;
    b->at = (void *)(p + head);
    *out = b;
    return WEFT_OK;
}

void wf_block_free(struct wf_block *b)
{
    struct wf_chunk *self;

    if (!b)
        return;
    self = b->keep[0];
    for (int64_t i = 1; i < b->n_keep; i++)
        wf_chunk_unref(b->keep[i]);
    if (b->cap_keep > KEEP_INSIDE)
        wf_free(b->env->ctx, b->keep);
    wf_chunk_unref(self);
}

/* An owner more is a reference more to each chunk, the block's own included. */
bool wf_block_share(struct wf_block *b)
{
    if (b->cap_keep > KEEP_INSIDE)
        return false;
    for (int64_t i = 0; i < b->n_keep; i++)
        wf_chunk_ref(b->keep[i]);
    return true;
}

/* Room for one more chunk. */
static weft_status keep_room(struct wf_block *b)
{
    struct wf_chunk **more;
    int64_t cap = b->cap_keep * 2;

    if (b->n_keep < b->cap_keep)
        return WEFT_OK;
    more = wf_alloc_n(b->env->ctx, cap, sizeof *more);
    if (!more)
        return wf_env_nomem(b->env, cap * 8, "a block of elements");
    memcpy(more, b->keep, (size_t)b->n_keep * sizeof *more);
    if (b->cap_keep > KEEP_INSIDE)
        wf_free(b->env->ctx, b->keep);
    b->keep = more;
    b->cap_keep = cap;
    return WEFT_OK;
}

weft_status wf_block_keep(struct wf_block *b, struct wf_chunk *s)
{
    weft_status st;

    for (int64_t i = b->n_keep - 1; i >= 0 && i >= b->n_keep - 4; i--)
        if (b->keep[i] == s)
            return WEFT_OK;
    st = keep_room(b);
    if (st)
        return st;
    b->keep[b->n_keep++] = wf_chunk_ref(s);
    return WEFT_OK;
}

/* b keeps what `other` keeps, and other's own memory. */
weft_status wf_block_keep_all_of(struct wf_block *b, const struct wf_block *other)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < other->n_keep && !st; i++)
        st = wf_block_keep(b, other->keep[i]);
    return st;
}

weft_status wf_block_alloc(struct wf_block *b, int64_t bytes, void **out)
{
    struct wf_chunk *s;
    weft_status st = keep_room(b);

    if (st)
        return st;
    s = wf_chunk_new(b->env, bytes);
    if (!s)
        return wf_env_nomem(b->env, bytes, "a block of elements");
    b->keep[b->n_keep++] = s;
    *out = s->data;
    return WEFT_OK;
}

weft_status wf_col_renew(struct wf_block *b, struct wf_col *c, weft_dtype dtype,
                         struct wf_col *from, const void **items, int64_t *n)
{
    int64_t first = c->offset ? c->offset[0] : 0;
    void *to = NULL, *offset = NULL;
    weft_status st;

    *from = *c;
    *n = wf_col_item_count(c, b->n);
    *items = (const char *)c->data + first * wf_item_bytes(c->type.dtype);
    st = wf_block_alloc(b, *n * wf_item_bytes(dtype), &to);
    if (!st && first)
        st = wf_block_alloc(b, (b->n + 1) * 8, &offset);
    if (st)
        return st;
    c->type.dtype = dtype;
    c->data = to;
    c->cap = *n;
    if (first) {
        c->offset = offset;
        for (int64_t i = 0; i <= b->n; i++)
            c->offset[i] = from->offset[i] - first;
    }
    return WEFT_OK;
}

bool wf_type_fixed(const struct wf_type *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0)
            return false;
    return true;
}

weft_status wf_block_col(struct wf_block *b, int c, const struct wf_type *type, int64_t n_items)
{
    struct wf_col *col = &b->col[c];
    int64_t size = wf_item_bytes(type->dtype), bytes;
    void *p = NULL;
    weft_status st;

    memset(col, 0, sizeof *col);
    col->type = *type;
    if (wf_type_fixed(type) && (!wf_mul_i64(b->n, element_items(type), &n_items)))
        return wf_err(WEFT_ERANGE, "a block of %lld elements is too large", (long long)b->n);
    if (n_items < 0 || !wf_mul_i64(n_items, size, &bytes))
        return wf_err(WEFT_ERANGE, "a block of %lld items is too large", (long long)n_items);
    st = wf_block_alloc(b, bytes, &col->data);
    if (st || wf_type_fixed(type))
        return st;
    st = wf_block_alloc(b, (b->n + 1) * 8, &p);
    if (st)
        return st;
    col->offset = p;
    col->offset[0] = 0;
    st = wf_block_alloc(b, b->n * type->rank * 8 + 8, &p);
    col->shape = p;
    col->cap = n_items;
    return st;
}

weft_status wf_block_origins(struct wf_block *b)
{
    void *p = NULL;
    weft_status st = wf_block_alloc(b, b->n * (int64_t)sizeof *b->from, &p);

    if (st)
        return st;
    memset(p, 0, (size_t)b->n * sizeof *b->from);
    b->from = p;
    return WEFT_OK;
}

weft_status wf_block_err(const struct wf_block *b, int64_t i, weft_status st)
{
    const struct wf_origin *o = b->from ? &b->from[i] : NULL;

    if (o && o->file)
        return wf_err_wrap(st, "%s: record %lld (byte %lld)", o->file, (long long)o->record,
                           (long long)o->offset);
    return wf_err_wrap(st, "sample %lld", (long long)b->at[i].id);
}

weft_tensor wf_col_element(const struct wf_col *c, int64_t i)
{
    int64_t first = c->offset ? c->offset[i] : i * element_items(&c->type);
    const int64_t *dim = c->offset ? c->shape + i * c->type.rank : c->type.dim;
    weft_tensor t = {.dtype = c->type.dtype, .rank = c->type.rank};

    for (int k = 0; k < t.rank; k++)
        t.dim[k] = dim[k];
    t.data = (char *)c->data + first * wf_item_bytes(c->type.dtype);
    return t;
}

int64_t wf_block_bytes(const struct wf_block *b)
{
    int64_t bytes = 0;

    for (int64_t i = 0; i < b->n_keep; i++)
        bytes += b->keep[i]->bytes;
    return bytes;
}

/* ---- cutting and joining --------------------------------------------------------------------- */

weft_status wf_block_slice(struct wf_block *b, int64_t first, int64_t n, struct wf_block **out)
{
    struct wf_block *v = NULL;
    weft_status st = wf_block_new(b->env, b->n_cols, n, &v);

    if (st)
        return st;
    st = wf_block_keep_all_of(v, b);
    if (st) {
        wf_block_free(v);
        return st;
    }
    memcpy(v->at, b->at + first, (size_t)n * sizeof *v->at);
    v->from = b->from ? b->from + first : NULL;
    if (b->n == 1 && n == 1) {
        v->sample = b->sample;
        v->n_samples = b->n_samples;
    }
    for (int c = 0; c < b->n_cols; c++) {
        const struct wf_col *s = &b->col[c];
        struct wf_col *t = &v->col[c];

        *t = *s;
        if (s->offset) {
            t->offset = s->offset + first;
            t->shape = s->shape + first * s->type.rank;
        } else {
            t->data =
                (char *)s->data + first * element_items(&s->type) * wf_item_bytes(s->type.dtype);
        }
    }
    *out = v;
    return WEFT_OK;
}

/* The type of column c over all blocks: sizes that differ become WEFT_ANY. */
static weft_status joint_type(int n, struct wf_block **in, int c, struct wf_type *out)
{
    *out = in[0]->col[c].type;
    for (int i = 0; i < n; i++) {
        const struct wf_col *col = &in[i]->col[c];

        if (col->type.dtype != out->dtype || col->type.rank != out->rank)
            return wf_err(WEFT_EBUG, "blocks of different columns are joined");
        for (int k = 0; k < out->rank; k++)
            if (col->type.dim[k] != out->dim[k])
                out->dim[k] = WEFT_ANY;
    }
    return WEFT_OK;
}

/* Appends the element sizes of src to those of dst, which has `at` elements. Items are not
 * moved. */
static void join_shapes(struct wf_col *dst, int64_t at, const struct wf_col *src, int64_t n)
{
    int rank = dst->type.rank;
    int64_t items = element_items(&src->type);

    for (int64_t i = 0; i < n; i++) {
        const int64_t *dim = src->offset ? src->shape + i * rank : src->type.dim;

        if (rank)
            memcpy(dst->shape + (at + i) * rank, dim, (size_t)rank * 8);
        dst->offset[at + i + 1] =
            dst->offset[at + i] + (src->offset ? src->offset[i + 1] - src->offset[i] : items);
    }
}

static weft_status join_column(struct wf_block *b, int c, int n, struct wf_block **in)
{
    struct wf_type type;
    struct wf_col *col = &b->col[c];
    int64_t size, at = 0, items = 0;
    weft_status st = joint_type(n, in, c, &type);

    if (st)
        return st;
    for (int i = 0; i < n; i++)
        items += wf_col_item_count(&in[i]->col[c], in[i]->n);
    st = wf_block_col(b, c, &type, items);
    if (st)
        return st;
    size = wf_item_bytes(type.dtype);
    items = 0;
    for (int i = 0; i < n; i++) {
        const struct wf_col *src = &in[i]->col[c];
        int64_t m = wf_col_item_count(src, in[i]->n), skip = src->offset ? src->offset[0] : 0;

        if (m)
            memcpy((char *)col->data + items * size, (char *)src->data + skip * size,
                   (size_t)(m * size));
        if (col->offset)
            join_shapes(col, at, src, in[i]->n);
        at += in[i]->n;
        items += m;
    }
    return WEFT_OK;
}

static bool has_text(const struct wf_block *b)
{
    for (int c = 0; c < b->n_cols; c++)
        if (b->col[c].type.dtype == WEFT_STR)
            return true;
    return false;
}

static int by_address(const void *a, const void *b)
{
    struct wf_chunk *const *x = a, *const *y = b;

    return (*x > *y) - (*x < *y);
}

/* Parts of one block share their chunks, so each is added once. */
weft_status wf_block_keep_all(struct wf_block *b, int64_t n, struct wf_block *const *in)
{
    struct wf_chunk **all;
    int64_t total = 0, m = 0;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n; i++)
        total += in[i]->n_keep;
    all = wf_alloc_n(b->env->ctx, total, sizeof(struct wf_chunk *));
    if (!all)
        return wf_env_nomem(b->env, total * 8, "a block of elements");
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < in[i]->n_keep; k++)
            all[m++] = in[i]->keep[k];
    qsort(all, (size_t)total, sizeof(struct wf_chunk *), by_address);
    for (int64_t k = 0; k < total && !st; k++)
        if (k == 0 || all[k] != all[k - 1])
            st = wf_block_keep(b, all[k]);
    wf_free(b->env->ctx, all);
    return st;
}

static weft_status join(struct wf_block *b, int n, struct wf_block **in)
{
    int64_t at = 0;
    bool text = has_text(in[0]), known = true;
    weft_status st = WEFT_OK;

    for (int i = 0; i < n; i++)
        known = known && in[i]->from;
    if (known)
        st = wf_block_origins(b);
    for (int i = 0; i < n && !st; i++) {
        memcpy(b->at + at, in[i]->at, (size_t)in[i]->n * sizeof *b->at);
        if (known)
            memcpy(b->from + at, in[i]->from, (size_t)in[i]->n * sizeof *b->from);
        at += in[i]->n;
    }
    if (text && !st)
        st = wf_block_keep_all(b, n, in);
    for (int c = 0; c < b->n_cols && !st; c++)
        st = join_column(b, c, n, in);
    return st;
}

weft_status wf_block_concat(struct wf_env *env, int n, struct wf_block **in, struct wf_block **out)
{
    struct wf_block *b = NULL;
    int64_t total = 0;
    weft_status st;

    if (n == 1) {
        *out = in[0];
        return WEFT_OK;
    }
    for (int i = 0; i < n; i++)
        total += in[i]->n;
    st = wf_block_new(env, in[0]->n_cols, total, &b);
    if (!st)
        st = join(b, n, in);
    for (int i = 0; i < n; i++)
        wf_block_free(in[i]);
    if (st) {
        wf_block_free(b);
        return st;
    }
    *out = b;
    return WEFT_OK;
}

static weft_status gather_column(struct wf_block *v, int c, const struct wf_col *src,
                                 const int64_t *pick)
{
    int64_t size = wf_item_bytes(src->type.dtype), items = 0;
    int rank = src->type.rank;
    struct wf_col *dst = &v->col[c];
    weft_status st;

    for (int64_t i = 0; i < v->n && src->offset; i++)
        items += src->offset[pick[i] + 1] - src->offset[pick[i]];
    st = wf_block_col(v, c, &src->type, items);
    if (st)
        return st;
    if (!src->offset) {
        size_t row = (size_t)(element_items(&src->type) * size);

        for (int64_t i = 0; i < v->n && row; i++)
            memcpy((char *)dst->data + (size_t)i * row, (char *)src->data + (size_t)pick[i] * row,
                   row);
        return WEFT_OK;
    }
    for (int64_t i = 0; i < v->n; i++) {
        int64_t from = src->offset[pick[i]], m = src->offset[pick[i] + 1] - from;

        if (m)
            memcpy((char *)dst->data + dst->offset[i] * size, (char *)src->data + from * size,
                   (size_t)(m * size));
        dst->offset[i + 1] = dst->offset[i] + m;
        if (rank)
            memcpy(dst->shape + i * rank, src->shape + pick[i] * rank, (size_t)rank * 8);
    }
    return WEFT_OK;
}

weft_status wf_block_gather(struct wf_block *b, const int64_t *pick, int64_t n,
                            struct wf_block **out)
{
    struct wf_block *v = NULL;
    weft_status st = wf_block_new(b->env, b->n_cols, n, &v);

    if (st)
        return st;
    if (has_text(b))
        st = wf_block_keep_all_of(v, b);
    if (!st && b->from)
        st = wf_block_origins(v);
    for (int64_t i = 0; i < n && !st; i++) {
        v->at[i] = b->at[pick[i]];
        if (b->from)
            v->from[i] = b->from[pick[i]];
    }
    for (int c = 0; c < b->n_cols && !st; c++)
        st = gather_column(v, c, &b->col[c], pick);
    if (st) {
        wf_block_free(v);
        return st;
    }
    *out = v;
    return WEFT_OK;
}

weft_status wf_block_filter(struct wf_block *b, const bool *keep, struct wf_block **out)
{
    int64_t n = 0, *pick;
    void *p = NULL;
    weft_status st = wf_block_alloc(b, b->n * 8, &p);

    if (st) {
        wf_block_free(b);
        return st;
    }
    pick = p;
    for (int64_t i = 0; i < b->n; i++)
        if (keep[i])
            pick[n++] = i;
    if (n == b->n) {
        *out = b;
        return WEFT_OK;
    }
    st = wf_block_gather(b, pick, n, out);
    wf_block_free(b);
    return st;
}

/* ---- filling --------------------------------------------------------------------------------- */

static weft_status grow_items(struct wf_block *b, struct wf_col *col, int64_t need)
{
    int64_t size = wf_item_bytes(col->type.dtype), cap = wf_max_i64(need, col->cap * 2), bytes;
    void *p = NULL;
    weft_status st;

    if (need <= col->cap)
        return WEFT_OK;
    if (!wf_mul_i64(cap, size, &bytes))
        return wf_err(WEFT_ERANGE, "a column of %lld items is too large", (long long)need);
    st = wf_block_alloc(b, bytes, &p);
    if (st)
        return st;
    if (col->cap)
        memcpy(p, col->data, (size_t)(col->cap * size));
    col->data = p;
    col->cap = cap;
    return WEFT_OK;
}

/* Copies items; for strings, also their bytes into the block. */
static weft_status copy_items(struct wf_block *b, void *dst, const weft_tensor *t, int64_t n)
{
    const weft_str *from = t->data;
    weft_str *to = dst;
    int64_t bytes = 0;
    void *p = NULL;
    char *q;
    weft_status st;

    if (t->dtype != WEFT_STR) {
        if (n)
            memcpy(dst, t->data, (size_t)(n * wf_item_bytes(t->dtype)));
        return WEFT_OK;
    }
    for (int64_t i = 0; i < n; i++)
        bytes += from[i].n;
    st = wf_block_alloc(b, bytes, &p);
    if (st)
        return st;
    q = p;
    for (int64_t i = 0; i < n; i++) {
        if (from[i].n)
            memcpy(q, from[i].data, (size_t)from[i].n);
        to[i] = (weft_str){q, from[i].n};
        q += from[i].n;
    }
    return WEFT_OK;
}

weft_status wf_block_put(struct wf_block *b, int c, int64_t i, const weft_tensor *t)
{
    struct wf_col *col = &b->col[c];
    int64_t n = 1, first, size = wf_item_bytes(col->type.dtype);
    char buf[WF_TYPE_TEXT];
    bool fits = t->dtype == col->type.dtype && t->rank == col->type.rank;
    weft_status st;

    for (int k = 0; k < t->rank && fits; k++)
        fits = t->dim[k] >= 0 && (col->type.dim[k] < 0 || t->dim[k] == col->type.dim[k]) &&
               wf_mul_i64(n, t->dim[k], &n);
    if (!fits) {
        struct wf_type got = wf_type_of(t->dtype, t->rank, t->dim);
        char want[WF_TYPE_TEXT];

        return wf_err(WEFT_ESHAPE, "got %s, but %s is declared", wf_type_text(&got, buf),
                      wf_type_text(&col->type, want));
    }
    first = i * n;
    if (col->offset) {
        first = col->offset[i];
        st = grow_items(b, col, first + n);
        if (st)
            return st;
        col->offset[i + 1] = first + n;
        for (int k = 0; k < t->rank; k++)
            col->shape[i * t->rank + k] = t->dim[k];
    }
    return copy_items(b, (char *)col->data + first * size, t, n);
}
