/* place.c - offsets in one slab for values whose times of life are known.
 *
 * First fit, the largest first: each value gets the lowest offset that is free while it lives. A
 * tree over time says what is free: the node of a stretch of time holds the bytes in use at some
 * moment of it (some) and during all of it (all), as few spans that do not touch. A life is noted
 * in, and a question asked of, a number of nodes that grows with the logarithm of the time. */
#include <stdlib.h>

#include "exec/exec.h"

/* Bytes in use: ascending, with a gap between each and the next. */
struct spans {
    struct span {
        int64_t from, to;
    } * span;
    int64_t n, cap;
};

struct place {
    weft_ctx *ctx;
    int64_t size; /* leaves: a power of two; leaf of time t is node size + t, the parent of node i
                     is i / 2 */
    struct spans *some, *all; /* per node */
};

/* The first span that ends after `at`, or where it would be. */
static int64_t first_after(const struct spans *s, int64_t at)
{
    int64_t low = 0, high = s->n;

    while (low < high) {
        int64_t mid = (low + high) / 2;

        if (s->span[mid].to > at)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static weft_status add(struct place *p, struct spans *s, const struct wf_lifetime *l)
{
    int64_t from = l->offset, to = from + l->bytes;
    int64_t i = first_after(s, from - 1), end = i; /* those that touch it become one with it */
    weft_status st = WEFT_OK;

    while (end < s->n && s->span[end].from <= to)
        end++;
    if (i < end) {
        from = wf_min_i64(from, s->span[i].from);
        to = wf_max_i64(to, s->span[end - 1].to);
    } else {
        st = wf_grow(p->ctx, &s->span, &s->cap, s->n + 1, sizeof *s->span);
    }
    if (st)
        return st;
    if (s->n > end || i == end)
        memmove(s->span + i + 1, s->span + end, (size_t)(s->n - end) * sizeof *s->span);
    s->n += i + 1 - end;
    s->span[i] = (struct span){from, to};
    return WEFT_OK;
}

/* Moves *at up to where `bytes` have room in s; returns whether it moved. */
static bool pass(const struct spans *s, int64_t bytes, int64_t *at)
{
    int64_t i = first_after(s, *at), before = *at;

    while (i < s->n && s->span[i].from < *at + bytes)
        *at = s->span[i++].to;
    return *at > before;
}

/* The nodes that a life's time consists of, and all above its first and its last moment. */
struct nodes {
    int64_t whole[2 * 64], above[2 * 64];
    int n_whole, n_above;
};

static void find_nodes(const struct place *p, const struct wf_lifetime *l, struct nodes *n)
{
    int64_t a = p->size + l->first, b = p->size + l->last;

    *n = (struct nodes){.n_whole = 0};
    for (int64_t i = a, k = b + 1; i < k; i /= 2, k /= 2) {
        if (i % 2)
            n->whole[n->n_whole++] = i++;
        if (k % 2)
            n->whole[n->n_whole++] = --k;
    }
    for (; a; a /= 2, b /= 2) {
        n->above[n->n_above++] = a;
        if (b != a)
            n->above[n->n_above++] = b;
    }
}

static int64_t lowest_gap(const struct place *p, const struct nodes *n, int64_t bytes)
{
    int64_t at = 0;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int i = 0; i < n->n_whole; i++)
            moved |= pass(&p->some[n->whole[i]], bytes, &at);
        for (int i = 0; i < n->n_above; i++)
            moved |= pass(&p->all[n->above[i]], bytes, &at);
    }
    return at;
}

static weft_status note(struct place *p, const struct nodes *n, const struct wf_lifetime *l)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < n->n_whole && !st; i++) {
        st = add(p, &p->all[n->whole[i]], l);
        if (!st)
            st = add(p, &p->some[n->whole[i]], l);
    }
    for (int i = 0; i < n->n_above && !st; i++)
        st = add(p, &p->some[n->above[i]], l);
    return st;
}

static int by_size(const void *a, const void *b)
{
    const struct wf_lifetime *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->value < y->value ? -1 : x->value > y->value;
}

weft_status wf_place(weft_ctx *ctx, struct wf_lifetime *l, int64_t n, int64_t *end)
{
    struct place p = {.ctx = ctx, .size = 1};
    struct nodes nodes;
    weft_status st = WEFT_OK;

    *end = 0;
    qsort(l, (size_t)n, sizeof *l, by_size);
    for (int64_t i = 0; i < n; i++)
        while (p.size <= l[i].last)
            p.size *= 2;
    p.some = wf_alloc_n(ctx, 2 * p.size, sizeof *p.some);
    p.all = wf_alloc_n(ctx, 2 * p.size, sizeof *p.all);
    if (!p.some || !p.all)
        st = wf_err_nomem(ctx, (size_t)p.size * 4 * sizeof *p.some, "plan");
    for (int64_t i = 0; i < n && !st; i++) {
        find_nodes(&p, &l[i], &nodes);
        l[i].offset = lowest_gap(&p, &nodes, l[i].bytes);
        *end = wf_max_i64(*end, l[i].offset + l[i].bytes);
        if (l[i].bytes)
            st = note(&p, &nodes, &l[i]);
    }
    for (int64_t i = 0; i < 2 * p.size; i++) {
        if (p.some)
            wf_free(ctx, p.some[i].span);
        if (p.all)
            wf_free(ctx, p.all[i].span);
    }
    wf_free(ctx, p.some);
    wf_free(ctx, p.all);
    return st;
}
