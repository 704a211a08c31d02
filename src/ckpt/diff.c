/* diff.c - compares two checkpoints tensor by tensor. Elements are compared by value: NaN equals
 * NaN, -0 equals 0. */
#include <math.h>

#include "ckpt/ckpt.h"

static void compare(const weft_tensor *a, const weft_tensor *b, weft_ckpt_delta *d)
{
    for (int64_t i = 0; i < d->count; i++) {
        double x = wf_get(a->data, a->dtype, i), y = wf_get(b->data, b->dtype, i), diff;
        bool same = a->dtype == WEFT_I64
                        ? wf_get_int(a->data, WEFT_I64, i) == wf_get_int(b->data, WEFT_I64, i)
                        : x == y || (isnan(x) && isnan(y));

        if (same)
            continue;
        diff = fabs(x - y);
        /* A NaN on one side is worse than any number, and the first one found is named. */
        if (!d->n_diff || (!isnan(d->max_abs) && (isnan(diff) || diff > d->max_abs))) {
            d->max_abs = diff;
            d->at = i;
        }
        d->n_diff++;
    }
}

static weft_status fetch(weft_ckpt *c, weft_ctx *ctx, int64_t i, weft_tensor *t)
{
    int64_t bytes;

    *t = weft_ckpt_info(c)->tensors[i].tensor;
    bytes = weft_tensor_bytes(t);
    t->data = wf_alloc(ctx, (size_t)bytes);
    if (!t->data)
        return wf_err_nomem(ctx, (size_t)bytes, weft_ckpt_info(c)->tensors[i].name);
    return weft_ckpt_read(c, i, t);
}

static weft_status diff_one(weft_ctx *ctx, weft_ckpt *a, int64_t i, weft_ckpt *b, int64_t k,
                            weft_ckpt_delta *d)
{
    const weft_tensor *ta = &weft_ckpt_info(a)->tensors[i].tensor;
    const weft_tensor *tb = &weft_ckpt_info(b)->tensors[k].tensor;
    struct wf_type ya = wf_type_of(ta->dtype, ta->rank, ta->dim);
    struct wf_type yb = wf_type_of(tb->dtype, tb->rank, tb->dim);
    weft_tensor x = {.data = NULL}, y = {.data = NULL};
    const char *file;
    uint64_t ha = 0, hb = 0;
    weft_status st = weft_ckpt_where(a, i, &file, &ha);

    if (!st)
        st = weft_ckpt_where(b, k, &file, &hb);
    if (st)
        return st;
    if (ya.dtype != yb.dtype || !wf_type_same_shape(&ya, &yb)) {
        d->change = WEFT_CKPT_TYPE;
        return WEFT_OK;
    }
    if (ha == hb)
        return WEFT_OK;
    st = fetch(a, ctx, i, &x);
    if (!st)
        st = fetch(b, ctx, k, &y);
    if (!st)
        compare(&x, &y, d);
    d->change = d->n_diff ? WEFT_CKPT_VALUES : WEFT_CKPT_SAME;
    wf_free(ctx, x.data);
    wf_free(ctx, y.data);
    return st;
}

weft_status weft_ckpt_diff(weft_ckpt *a, weft_ckpt *b, int64_t *n, weft_ckpt_delta **out)
{
    weft_ctx *ctx = wf_ckpt_ctx(a);
    const weft_ckpt_data *da = weft_ckpt_info(a), *db = weft_ckpt_info(b);
    weft_ckpt_delta *list = wf_alloc_n(ctx, da->n_tensors + db->n_tensors, sizeof *list);
    int64_t at = 0, k;
    weft_status st = WEFT_OK;

    if (!list)
        return wf_err_nomem(ctx, (size_t)(da->n_tensors + db->n_tensors) * sizeof *list, "diff");
    for (int64_t i = 0; i < da->n_tensors && !st; i++) {
        weft_ckpt_delta *d = &list[at++];

        *d = (weft_ckpt_delta){.name = da->tensors[i].name,
                               .count = weft_tensor_count(&da->tensors[i].tensor)};
        k = weft_ckpt_find(b, d->name);
        if (k < 0)
            d->change = WEFT_CKPT_REMOVED;
        else
            st = diff_one(ctx, a, i, b, k, d);
    }
    for (int64_t i = 0; i < db->n_tensors && !st; i++)
        if (weft_ckpt_find(a, db->tensors[i].name) < 0)
            list[at++] = (weft_ckpt_delta){.name = db->tensors[i].name,
                                           .change = WEFT_CKPT_ADDED,
                                           .count = weft_tensor_count(&db->tensors[i].tensor)};
    if (st) {
        wf_free(ctx, list);
        return st;
    }
    *n = at;
    *out = list;
    return WEFT_OK;
}

void weft_ckpt_diff_free(weft_ctx *ctx, weft_ckpt_delta *delta)
{
    wf_free(ctx, delta);
}
