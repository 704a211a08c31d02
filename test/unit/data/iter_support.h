/* iter_support.h - everything a pipeline yields, as bytes that can be compared. */
#ifndef ITER_SUPPORT_H
#define ITER_SUPPORT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

struct dump {
    char *p;
    size_t n, cap;
    int64_t n_elements;
    weft_status st; /* how it ended */
    char error[512];
    int64_t n_skipped; /* over all stages */
};

static inline void dump_add(struct dump *d, const void *p, size_t n)
{
    if (d->n + n > d->cap) {
        d->cap = 2 * (d->n + n) + 256;
        d->p = realloc(d->p, d->cap);
        if (!d->p)
            abort();
    }
    if (n)
        memcpy(d->p + d->n, p, n);
    d->n += n;
}

static inline void dump_free(struct dump *d)
{
    free(d->p);
    memset(d, 0, sizeof *d);
}

static inline void dump_batch(struct dump *d, const weft_batch *b)
{
    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];
        int64_t count = weft_tensor_count(t);

        dump_add(d, &t->dtype, sizeof t->dtype);
        dump_add(d, &t->rank, sizeof t->rank);
        dump_add(d, t->dim, (size_t)t->rank * sizeof *t->dim);
        if (t->dtype != WEFT_STR)
            dump_add(d, t->data, (size_t)weft_tensor_bytes(t));
        for (int64_t i = 0; i < count && t->dtype == WEFT_STR; i++) {
            const weft_str *s = (const weft_str *)t->data + i;

            dump_add(d, &s->n, sizeof s->n);
            dump_add(d, s->data, (size_t)s->n);
        }
    }
    dump_add(d, b->id, (size_t)b->n * sizeof *b->id);
    d->n_elements++;
}

static inline void dump_end(struct dump *d, weft_iter *it, weft_status st)
{
    d->st = st;
    if (st)
        snprintf(d->error, sizeof d->error, "%s", weft_error());
    for (int i = 0; i < weft_iter_n_stages(it); i++) {
        weft_stage_stats s;

        if (!weft_iter_stage(it, i, &s))
            d->n_skipped += s.n_skipped;
    }
}

/* Elements until the end, an error, or `max` of them. */
static inline void dump_iter(struct dump *d, weft_iter *it, int64_t max)
{
    weft_status st = WEFT_OK;
    weft_batch *b;

    for (int64_t i = 0; i < max; i++) {
        st = weft_iter_next(it, &b);
        if (st || !b)
            break;
        dump_batch(d, b);
        weft_batch_free(b);
    }
    dump_end(d, it, st);
}

/* All elements of a pipeline built by `make`, with this many threads. A builder's error is the
 * dump's. */
typedef weft_ds make_fn(weft_data *d, void *arg);
static inline struct dump dump_of(weft_ctx *ctx, make_fn *make, void *arg, int threads)
{
    struct dump out = {0};
    weft_data *d = NULL;
    weft_iter *it = NULL;
    weft_status st = weft_data_new(ctx, &d);

    if (st)
        abort();
    st = weft_iter_new(d, make(d, arg),
                       WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it);
    if (st) {
        out.st = st;
        snprintf(out.error, sizeof out.error, "%s", weft_error());
    } else {
        dump_iter(&out, it, INT64_MAX);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return out;
}

/* Save after each element, restore in a new iterator, and compare the rest. Returns the number of
 * positions tried, or -1. */
static inline int64_t check_restore(weft_ctx *ctx, make_fn *make, void *arg, int threads)
{
    struct dump all = dump_of(ctx, make, arg, 0);
    const weft_iter_opts *opts =
        WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO);
    int64_t stop;

    for (stop = 0; stop <= all.n_elements && !all.st; stop++) {
        struct dump front = {0}, back = {0};
        weft_data *d, *e;
        weft_iter *a, *b;
        char *state;
        int64_t n;
        bool ok;

        if (weft_data_new(ctx, &d) || weft_data_new(ctx, &e) ||
            weft_iter_new(d, make(d, arg), opts, &a) || weft_iter_new(e, make(e, arg), opts, &b))
            abort();
        dump_iter(&front, a, stop);
        if (weft_iter_save(a, &state, &n) || weft_iter_restore(b, state, n))
            abort();
        weft_text_free(ctx, state);
        dump_iter(&back, b, INT64_MAX);
        ok = !back.st && front.n + back.n == all.n &&
             (!front.n || !memcmp(all.p, front.p, front.n)) &&
             (!back.n || !memcmp(all.p + front.n, back.p, back.n));
        dump_free(&front);
        dump_free(&back);
        weft_iter_free(a);
        weft_iter_free(b);
        weft_data_free(d);
        weft_data_free(e);
        if (!ok)
            break;
    }
    stop = all.st || stop <= all.n_elements ? -1 : stop;
    dump_free(&all);
    return stop;
}

#endif
