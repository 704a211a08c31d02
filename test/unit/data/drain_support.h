/* drain_support.h - the elements of a pipeline as bytes, and the check that they are the same for
 * any number of threads and from any saved position. */
#ifndef DRAIN_SUPPORT_H
#define DRAIN_SUPPORT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

/* Elements one after the other, and where each begins. */
struct drained {
    char *bytes;
    size_t n_bytes, cap;
    int64_t n;
    size_t at[4096];
};

static inline void drained_add(struct drained *r, const void *p, size_t n)
{
    if (r->n_bytes + n > r->cap) {
        r->cap = (r->n_bytes + n) * 2;
        r->bytes = realloc(r->bytes, r->cap);
        assert_non_null(r->bytes);
    }
    if (n)
        memcpy(r->bytes + r->n_bytes, p, n);
    r->n_bytes += n;
}

static inline void drained_batch(struct drained *r, const weft_batch *b)
{
    assert_true(r->n < 4096);
    r->at[r->n++] = r->n_bytes;
    drained_add(r, b->id, b->id ? (size_t)b->n * sizeof *b->id : 0);
    for (int c = 0; c < b->n_cols; c++) {
        const weft_tensor *t = &b->col[c];
        int64_t n = weft_tensor_count(t);

        drained_add(r, t->dim, (size_t)t->rank * sizeof t->dim[0]);
        if (t->dtype == WEFT_STR)
            for (int64_t i = 0; i < n; i++)
                drained_add(r, ((weft_str *)t->data)[i].data, (size_t)((weft_str *)t->data)[i].n);
        else
            drained_add(r, t->data, (size_t)weft_tensor_bytes(t));
    }
}

/* What is left of an iterator. */
static inline weft_status drain(weft_iter *it, struct drained *r)
{
    weft_batch *b = NULL;
    weft_status st;

    while (!(st = weft_iter_next(it, &b)) && b) {
        drained_batch(r, b);
        weft_batch_free(b);
    }
    return st;
}

static inline void drain_all(weft_data *d, weft_ds s, int threads, struct drained *r)
{
    weft_iter *it = NULL;

    memset(r, 0, sizeof *r);
    assert_int_equal(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = threads), &it), 0);
    if (drain(it, r))
        fail_msg("%s", weft_error());
    weft_iter_free(it);
}

/* After `k` elements the position is saved; another iterator continues from there. */
static inline void check_resumed(weft_ctx *ctx, weft_data *d, weft_ds s, int threads, int64_t k,
                                 const struct drained *whole)
{
    static struct drained rest;
    weft_iter *it = NULL, *other = NULL;
    weft_batch *b = NULL;
    char *state = NULL;
    int64_t n = 0;

    memset(&rest, 0, sizeof rest);
    assert_int_equal(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = threads), &it), 0);
    for (int64_t i = 0; i < k; i++) {
        assert_int_equal(weft_iter_next(it, &b), 0);
        weft_batch_free(b);
    }
    assert_int_equal(weft_iter_save(it, &state, &n), 0);
    weft_iter_free(it);
    assert_int_equal(weft_iter_new(d, s, NULL, &other), 0);
    assert_int_equal(weft_iter_restore(other, state, n), 0);
    assert_int_equal(drain(other, &rest), 0);
    assert_int_equal(rest.n, whole->n - k);
    if (rest.n) {
        assert_int_equal(rest.n_bytes, whole->n_bytes - whole->at[k]);
        assert_memory_equal(rest.bytes, whole->bytes + whole->at[k], rest.n_bytes);
    }
    weft_iter_free(other);
    weft_text_free(ctx, state);
    free(rest.bytes);
}

/* The same elements with 0, 1 and 3 threads, and from positions at the beginning, within and at the
 * end. Returns their number. */
static inline int64_t check_same_everywhere(weft_ctx *ctx, weft_data *d, weft_ds s)
{
    static const int threads[] = {WEFT_ZERO, 1, 3};
    static struct drained first, again;
    int64_t n;

    if (weft_data_status(d))
        fail_msg("%s", weft_error());
    drain_all(d, s, threads[0], &first);
    for (int i = 1; i < 3; i++) {
        drain_all(d, s, threads[i], &again);
        assert_int_equal(again.n, first.n);
        assert_int_equal(again.n_bytes, first.n_bytes);
        assert_memory_equal(again.bytes, first.bytes, first.n_bytes);
        free(again.bytes);
    }
    n = first.n;
    for (int i = 0; i < 3; i++) {
        check_resumed(ctx, d, s, threads[i], 0, &first);
        check_resumed(ctx, d, s, threads[i], n / 2, &first);
        check_resumed(ctx, d, s, threads[i], n, &first);
    }
    free(first.bytes);
    return n;
}

#endif
