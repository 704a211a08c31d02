/* feature.c - columns changed item by item: casts, ranges, buckets, hashes, lookups,
 * standardization. Whole blocks at a time, no allocation per item. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fmath.h"
#include "base/number.h"
#include "data/feature/feature.h"

/* ---- the node -------------------------------------------------------------------------------- */

/* The element that item i of a column belongs to. */
static int64_t element_of(const struct wf_block *b, const struct wf_col *c, int64_t item)
{
    int64_t i = 0, each = 1;

    for (int k = 0; k < c->type.rank; k++)
        each *= c->type.dim[k];
    if (!c->offset)
        return each > 0 ? item / each : 0;
    while (i + 1 < b->n && c->offset[i + 1] - c->offset[0] <= item)
        i++;
    return i;
}

static weft_status apply_column(struct wf_ds *ds, struct wf_block *b, int k)
{
    const struct wf_feature *f = ds->param;
    struct wf_col *c = &b->col[f->col[k]];
    struct wf_col from;
    const void *items;
    int64_t n, bad = 0;
    weft_status st = wf_col_renew(b, c, f->dtype ? f->dtype : c->type.dtype, &from, &items, &n);

    if (st)
        return st;
    st = f->fn(f, k, items, from.type.dtype, n, c->data, &bad);
    return st ? wf_block_err(b, element_of(b, &from, bad),
                             wf_err_wrap(st, "column '%s'", ds->col[f->col[k]].name))
              : WEFT_OK;
}

static weft_status feature_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                 struct wf_block **out)
{
    const struct wf_feature *f = ds->param;
    weft_status st = WEFT_OK;

    (void)w;
    for (int k = 0; k < f->n && !st; k++)
        st = apply_column(ds, in, k);
    if (st)
        wf_block_free(in);
    else
        *out = in;
    return st;
}

static void feature_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct wf_feature *f = ds->param;

    wf_ds_names_text(ds, f->n, f->col, out);
    if (f->dtype)
        wf_buf_printf(out, " %s", weft_dtype_name(f->dtype));
    if (f->low != 0 || f->high != 0)
        wf_buf_printf(out, " %.17g..%.17g", f->low, f->high);
    if (f->n_buckets)
        wf_buf_printf(out, " n=%lld seed=%llu", (long long)f->n_buckets,
                      (unsigned long long)f->seed);
    for (int i = 0; i < f->n_bounds; i++)
        wf_buf_printf(out, " %.17g", f->bound[i]);
    if (f->vocab)
        wf_buf_printf(out, " words=%lld", (long long)weft_vocab_size(f->vocab));
    for (int k = 0; k < f->n && f->stats; k++)
        for (int64_t i = 0; i < f->stats[k].n; i++)
            wf_buf_printf(out, " %.17g*%.17g", f->stats[k].shift[i], f->stats[k].scale[i]);
}

static int64_t feature_ids(const struct wf_ds *ds, int col, int *from)
{
    const struct wf_feature *f = ds->param;

    for (int k = 0; k < f->n; k++)
        if (f->col[k] == col)
            return f->n_ids;
    *from = col;
    return WF_IDS_AS_INPUT;
}

#define KIND(n)                                                                     \
    {                                                                               \
        .name = n, .apply = feature_apply, .ids = feature_ids, .text = feature_text \
    }
const struct wf_ds_kind wf_feature_kinds[] = {
    [WF_FEATURE_CAST] = KIND("cast"),           [WF_FEATURE_CLIP] = KIND("clip"),
    [WF_FEATURE_LOG1P] = KIND("log1p"),         [WF_FEATURE_FILL] = KIND("fill"),
    [WF_FEATURE_BUCKETIZE] = KIND("bucketize"), [WF_FEATURE_HASH] = KIND("hash"),
    [WF_FEATURE_LOOKUP] = KIND("lookup"),       [WF_FEATURE_STANDARDIZE] = KIND("standardize"),
    [WF_FEATURE_FILL_MEAN] = KIND("fill_mean"),
};

static weft_status check_dtype(const weft_column *c, int takes)
{
    int is = c->dtype == WEFT_STR    ? WF_TAKES_TEXT
             : wf_is_float(c->dtype) ? WF_TAKES_FLOAT
                                     : WF_TAKES_INT;

    if (is & takes)
        return WEFT_OK;
    return wf_err(WEFT_EDTYPE, "column '%s' is %s, but this takes%s%s%s", c->name,
                  is == WF_TAKES_TEXT ? "text" : weft_dtype_name(c->dtype),
                  takes & WF_TAKES_FLOAT ? " floating-point numbers" : "",
                  takes & WF_TAKES_INT ? " integers" : "", takes & WF_TAKES_TEXT ? " text" : "");
}

struct wf_ds *wf_feature_new(weft_data *d, weft_ds s, int kind, const char *columns, int takes,
                             const struct wf_feature *param)
{
    struct wf_ds *ds = wf_ds_new(d, &wf_feature_kinds[kind], 1, &s, sizeof(struct wf_feature));
    struct wf_feature *f;
    weft_status st;

    if (!ds)
        return NULL;
    f = ds->param;
    *f = *param;
    st = wf_ds_columns_named(ds, columns, &f->col, &f->n);
    if (!st)
        st = wf_ds_set_columns(ds, ds->n_cols, ds->col); /* our own copy */
    for (int k = 0; k < f->n && !st; k++) {
        st = check_dtype(&ds->col[f->col[k]], takes);
        if (f->dtype)
            ds->col[f->col[k]].dtype = f->dtype;
    }
    if (st) {
        wf_ds_fail(d, wf_feature_kinds[kind].name, st);
        return NULL;
    }
    return ds;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static weft_status text_number(const weft_str *s, weft_dtype t, void *to, int64_t i)
{
    const char *p = s->data;
    int64_t n = s->n, whole = 0;
    double v = 0;

    for (; n > 0 && wf_is_space(*p); n--)
        p++;
    if (wf_is_int(t) ? !wf_parse_i64(p, n, &whole) : !wf_parse_f64(p, n, &v))
        return wf_err(WEFT_EDATA, "'%.*s' is not a number", (int)wf_min_i64(s->n, 40), s->data);
    if (wf_is_int(t))
        wf_set_clipped(to, t, i, whole);
    else
        wf_set(to, t, i, v);
    return WEFT_OK;
}

static weft_status cast_items(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                              int64_t n, void *to, int64_t *bad)
{
    weft_status st = WEFT_OK;

    (void)k;
    if (t == WEFT_I32 && f->dtype == WEFT_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)((const int32_t *)from)[i];
    } else if (t == WEFT_I64 && f->dtype == WEFT_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)((const int64_t *)from)[i];
    } else if (t == WEFT_F64 && f->dtype == WEFT_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)((const double *)from)[i];
    } else if (t == WEFT_STR) {
        for (int64_t i = 0; i < n && !st; i++) {
            *bad = i;
            st = text_number((const weft_str *)from + i, f->dtype, to, i);
        }
    } else if (!wf_is_float(t) && !wf_is_float(f->dtype)) {
        wf_convert_ints(from, t, n, to, f->dtype);
    } else {
        for (int64_t i = 0; i < n; i++)
            wf_set(to, f->dtype, i, wf_get(from, t, i));
    }
    return st;
}

static weft_status clip_items(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                              int64_t n, void *to, int64_t *bad)
{
    float low = (float)f->low, high = (float)f->high;

    (void)k;
    (void)bad;
    if (t == WEFT_F32) {
        for (int64_t i = 0; i < n; i++) {
            float x = ((const float *)from)[i];

            x = x < low ? low : x;
            ((float *)to)[i] = x > high ? high : x;
        }
        return WEFT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = wf_get(from, t, i);

        if (x < f->low || x > f->high)
            wf_set(to, t, i, x < f->low ? f->low : f->high);
        else if (wf_is_float(t))
            wf_set(to, t, i, x);
        else
            wf_set_int(to, t, i, wf_get_int(from, t, i));
    }
    return WEFT_OK;
}

static weft_status log1p_items(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                               int64_t n, void *to, int64_t *bad)
{
    (void)f;
    (void)k;
    (void)bad;
    for (int64_t i = 0; i < n; i++) {
        double x = wf_get(from, t, i);

        wf_set(to, t, i, t == WEFT_F64 ? log1p(x) : (double)wf_log1pf((float)x));
    }
    return WEFT_OK;
}

static weft_status fill_items(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                              int64_t n, void *to, int64_t *bad)
{
    int64_t period = f->stats ? f->stats[k].n : 1, at = 0;

    (void)bad;
    if (n)
        memcpy(to, from, (size_t)(n * wf_item_bytes(t)));
    for (int64_t i = 0; i < n; i++) {
        if (isnan(wf_get(from, t, i)))
            wf_set(to, t, i, f->stats ? f->stats[k].shift[at] : f->low);
        at = at + 1 == period ? 0 : at + 1;
    }
    return WEFT_OK;
}

static weft_status standardize_items(const struct wf_feature *f, int k, const void *from,
                                     weft_dtype t, int64_t n, void *to, int64_t *bad)
{
    const double *shift = f->stats[k].shift, *scale = f->stats[k].scale;
    int64_t period = f->stats[k].n, at = 0;
    float *y = to;

    (void)bad;
    if (t == WEFT_F32) {
        for (int64_t i = 0; i + period <= n; i += period)
            for (int64_t j = 0; j < period; j++)
                y[i + j] = (float)(((double)((const float *)from)[i + j] - shift[j]) * scale[j]);
        return WEFT_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = (float)((wf_get(from, t, i) - shift[at]) * scale[at]);
        at = at + 1 == period ? 0 : at + 1;
    }
    return WEFT_OK;
}

static weft_status bucketize_items(const struct wf_feature *f, int k, const void *from,
                                   weft_dtype t, int64_t n, void *to, int64_t *bad)
{
    (void)k;
    (void)bad;
    for (int64_t i = 0; i < n; i++) {
        double x = wf_get(from, t, i);
        int lo = 0, hi = f->n_bounds;

        while (lo < hi) {
            int mid = (lo + hi) / 2;

            if (f->bound[mid] <= x)
                lo = mid + 1;
            else
                hi = mid;
        }
        ((int64_t *)to)[i] = lo;
    }
    return WEFT_OK;
}

/* ---- categories ------------------------------------------------------------------------------ */

uint64_t wf_hash_int(int64_t v, uint64_t seed)
{
    unsigned char le[8];

    for (int i = 0; i < 8; i++)
        le[i] = (unsigned char)((uint64_t)v >> (8 * i));
    return wf_hash64(le, 8, seed);
}

static weft_status hash_items(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                              int64_t n, void *to, int64_t *bad)
{
    (void)k;
    (void)bad;
    for (int64_t i = 0; i < n; i++) {
        const weft_str *s = (const weft_str *)from + i;
        uint64_t h = t == WEFT_STR ? wf_hash64(s->data, (size_t)s->n, f->seed)
                                   : wf_hash_int(wf_get_int(from, t, i), f->seed);

        ((int64_t *)to)[i] = (int64_t)(h % (uint64_t)f->n_buckets);
    }
    return WEFT_OK;
}

static weft_status lookup_items(const struct wf_feature *f, int k, const void *from, weft_dtype t,
                                int64_t n, void *to, int64_t *bad)
{
    char number[24];

    (void)k;
    for (int64_t i = 0; i < n; i++) {
        weft_str s;
        int64_t id;

        if (t == WEFT_STR) {
            s = ((const weft_str *)from)[i];
        } else {
            s.n = snprintf(number, sizeof number, "%lld", (long long)wf_get_int(from, t, i));
            s.data = number;
        }
        id = weft_vocab_find(f->vocab, s.data, s.n);
        if (id < 0 && !f->n_buckets) {
            *bad = i;
            return wf_err(WEFT_EDATA, "'%.*s' is not in the vocabulary of %lld words",
                          (int)wf_min_i64(s.n, 40), s.data, (long long)weft_vocab_size(f->vocab));
        }
        ((int64_t *)to)[i] =
            id >= 0 ? f->n_buckets + id
                    : (int64_t)(wf_hash64(s.data, (size_t)s.n, 0) % (uint64_t)f->n_buckets);
    }
    return WEFT_OK;
}

/* ---- builders -------------------------------------------------------------------------------- */

weft_ds weft_ds_cast(weft_data *d, weft_ds s, const char *columns, weft_dtype dtype)
{
    struct wf_feature f = {.fn = cast_items, .dtype = dtype};

    if (dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES)
        return wf_ds_fail(d, "cast", wf_err(WEFT_EDTYPE, "dtype %d is not numeric", (int)dtype));
    return wf_ds_handle(wf_feature_new(d, s, WF_FEATURE_CAST, columns,
                                       WF_TAKES_FLOAT | WF_TAKES_INT | WF_TAKES_TEXT, &f));
}

weft_ds weft_ds_clip(weft_data *d, weft_ds s, const char *columns, double low, double high)
{
    struct wf_feature f = {.fn = clip_items, .low = low, .high = high};

    if (!(low <= high))
        return wf_ds_fail(d, "clip", wf_err(WEFT_EINVAL, "from %g to %g", low, high));
    return wf_ds_handle(
        wf_feature_new(d, s, WF_FEATURE_CLIP, columns, WF_TAKES_FLOAT | WF_TAKES_INT, &f));
}

weft_ds weft_ds_log1p(weft_data *d, weft_ds s, const char *columns)
{
    struct wf_feature f = {.fn = log1p_items};

    return wf_ds_handle(wf_feature_new(d, s, WF_FEATURE_LOG1P, columns, WF_TAKES_FLOAT, &f));
}

weft_ds weft_ds_fill(weft_data *d, weft_ds s, const char *columns, double value)
{
    struct wf_feature f = {.fn = fill_items, .low = value, .high = value};

    return wf_ds_handle(wf_feature_new(d, s, WF_FEATURE_FILL, columns, WF_TAKES_FLOAT, &f));
}

weft_ds weft_ds_bucketize(weft_data *d, weft_ds s, const char *columns, int n,
                          const double *boundaries)
{
    struct wf_feature f = {.fn = bucketize_items, .dtype = WEFT_I64, .n_bounds = n, .n_ids = n + 1};
    weft_status st = n < 0 ? wf_err(WEFT_EINVAL, "%d boundaries", n) : WEFT_OK;

    for (int i = 0; i < n && !st; i++)
        if (isnan(boundaries[i]) || (i && boundaries[i] <= boundaries[i - 1]))
            st = wf_err(WEFT_EINVAL, "boundary %d, %g, is not above the previous one", i,
                        boundaries[i]);
    if (!st) {
        f.bound = wf_arena_alloc(&d->arena, (size_t)(n + 1) * sizeof *f.bound);
        st = f.bound ? WEFT_OK : wf_err_nomem(d->ctx, 0, "the pipeline");
    }
    if (st)
        return wf_ds_fail(d, "bucketize", st);
    for (int i = 0; i < n; i++)
        f.bound[i] = boundaries[i];
    return wf_ds_handle(
        wf_feature_new(d, s, WF_FEATURE_BUCKETIZE, columns, WF_TAKES_FLOAT | WF_TAKES_INT, &f));
}

weft_ds weft_ds_hash(weft_data *d, weft_ds s, const char *columns, int64_t n, uint64_t seed)
{
    struct wf_feature f = {
        .fn = hash_items, .dtype = WEFT_I64, .n_buckets = n, .n_ids = n, .seed = seed};

    if (n < 1)
        return wf_ds_fail(d, "hash", wf_err(WEFT_EINVAL, "%lld buckets", (long long)n));
    return wf_ds_handle(
        wf_feature_new(d, s, WF_FEATURE_HASH, columns, WF_TAKES_TEXT | WF_TAKES_INT, &f));
}

weft_ds weft_ds_lookup(weft_data *d, weft_ds s, const char *columns, const weft_vocab *v,
                       const weft_lookup_opts *opts)
{
    weft_lookup_opts o;
    struct wf_feature f = {.fn = lookup_items, .dtype = WEFT_I64, .vocab = v};
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_lookup_opts");
    int64_t n = o.n_unknown;

    f.n_buckets = n == WEFT_ZERO ? 0 : n ? n : 1;
    if (!st && (!v || f.n_buckets < 0))
        st = wf_err(WEFT_EINVAL, v ? "%lld buckets" : "no vocabulary (%lld buckets)",
                    (long long)f.n_buckets);
    if (st)
        return wf_ds_fail(d, "lookup", st);
    f.n_ids = f.n_buckets + weft_vocab_size(v);
    return wf_ds_handle(
        wf_feature_new(d, s, WF_FEATURE_LOOKUP, columns, WF_TAKES_TEXT | WF_TAKES_INT, &f));
}

/* The numbers of a column, if its elements have the right number of items. */
static weft_status copy_stats(struct wf_ds *ds, const weft_stats *stats, bool filling,
                              const struct wf_feature *f, struct wf_feature_stats *to)
{
    for (int k = 0; k < f->n; k++) {
        const weft_column *c = &ds->in[0]->col[f->col[k]];
        const weft_column_stats *s = weft_stats_find(stats, c->name);
        struct wf_arena *a = &ds->data->arena;

        if (!s)
            return wf_err(WEFT_ENOENT, "no statistics of column '%s'", c->name);
        if (s->n != 1 && (c->rank < 1 || c->dim[c->rank - 1] != s->n))
            return wf_err(WEFT_ESHAPE,
                          "column '%s': statistics of %lld elements, but its last axis does not "
                          "have this size",
                          c->name, (long long)s->n);
        to[k].n = s->n;
        to[k].shift = wf_arena_alloc(a, (size_t)s->n * sizeof(double));
        to[k].scale = wf_arena_alloc(a, (size_t)s->n * sizeof(double));
        if (!to[k].shift || !to[k].scale)
            return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
        for (int64_t i = 0; i < s->n; i++) {
            to[k].shift[i] = s->mean[i];
            to[k].scale[i] = filling || !(s->std[i] > 0) ? 1 : 1 / s->std[i];
        }
    }
    return WEFT_OK;
}

static weft_ds with_stats(weft_data *d, weft_ds s, int kind, const char *columns, int takes,
                          const weft_stats *stats, struct wf_feature f)
{
    struct wf_ds *ds;
    struct wf_feature *p;
    struct wf_feature_stats *to;
    weft_status st;

    if (!stats)
        return wf_ds_fail(d, wf_feature_kinds[kind].name, wf_err(WEFT_EINVAL, "no statistics"));
    ds = wf_feature_new(d, s, kind, columns, takes, &f);
    if (!ds)
        return (weft_ds){0};
    p = ds->param;
    to = wf_arena_alloc(&d->arena, (size_t)(p->n + 1) * sizeof *to);
    p->stats = to;
    st = to ? copy_stats(ds, stats, kind == WF_FEATURE_FILL_MEAN, p, to)
            : wf_err_nomem(d->ctx, 0, "the pipeline");
    return st ? wf_ds_fail(d, wf_feature_kinds[kind].name, st) : wf_ds_handle(ds);
}

weft_ds weft_ds_standardize(weft_data *d, weft_ds s, const char *columns, const weft_stats *stats)
{
    return with_stats(d, s, WF_FEATURE_STANDARDIZE, columns, WF_TAKES_FLOAT | WF_TAKES_INT, stats,
                      (struct wf_feature){.fn = standardize_items, .dtype = WEFT_F32});
}

weft_ds weft_ds_fill_mean(weft_data *d, weft_ds s, const char *columns, const weft_stats *stats)
{
    return with_stats(d, s, WF_FEATURE_FILL_MEAN, columns, WF_TAKES_FLOAT, stats,
                      (struct wf_feature){.fn = fill_items});
}
