/* sample.c - elements drawn from an addressable dataset, as pure functions of seed, epoch and
 * number. */
#include <math.h>

#include "data/data.h"

#define SALT_SAMPLE 0x73616d70u

struct sample {
    uint64_t seed;
    bool replacement, same_each_epoch;
    double *upto; /* sums of weights, or NULL */
};

/* The first element whose cumulative weight is above a point of [0, sum). */
static int64_t by_weight(const double *upto, int64_t count, uint64_t word)
{
    double at = (double)(word >> 11) * 0x1p-53 * upto[count - 1];
    int64_t lo = 0, hi = count - 1;

    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;

        if (at < upto[mid])
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void draw(const struct sample *o, int64_t count, const struct wf_at *at, int64_t n,
                 struct wf_at *to)
{
    struct wf_permutation order = {0};
    int64_t epoch = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t e = o->same_each_epoch ? 0 : at[i].epoch;
        uint64_t word;

        if (!o->replacement) {
            if (!order.n || e != epoch)
                wf_permutation_init(&order, count, o->seed, e);
            epoch = e;
            to[i] = (struct wf_at){at[i].epoch, wf_permutation_at(&order, at[i].id)};
            continue;
        }
        word = wf_random_word(o->seed, e, at[i].id, SALT_SAMPLE);
        to[i].epoch = at[i].epoch;
        to[i].id = o->upto ? by_weight(o->upto, count, word) : wf_random_index(word, count);
    }
}

static weft_status sample_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    struct wf_chunk *room = wf_chunk_new(w->env, n * (int64_t)sizeof(struct wf_at));
    struct wf_at *to;
    weft_status st;

    if (!room)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *to, "a sample");
    to = (void *)room->data;
    draw(ds->param, ds->in[0]->count, at, n, to);
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(room);
    return st;
}

static void sample_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct sample *o = ds->param;

    wf_buf_printf(out, "%lld seed=%llu%s%s", (long long)ds->count, (unsigned long long)o->seed,
                  o->replacement ? " replacement" : "", o->same_each_epoch ? " same" : "");
    if (o->upto)
        wf_buf_printf(
            out, " weights=%016llx",
            (unsigned long long)wf_hash64(o->upto, (size_t)ds->in[0]->count * sizeof *o->upto, 0));
}

static void sample_free(struct wf_ds *ds)
{
    wf_free(ds->data->ctx, ((struct sample *)ds->param)->upto);
}

static const struct wf_ds_kind sample_kind = {
    .name = "sample", .get = sample_get, .text = sample_text, .free = sample_free};

static weft_status set_weights(struct wf_ds *ds, const double *weights)
{
    struct sample *o = ds->param;
    int64_t count = ds->in[0]->count;
    double sum = 0;

    o->upto = wf_alloc_n(ds->data->ctx, count, sizeof *o->upto);
    if (!o->upto)
        return wf_err_nomem(ds->data->ctx, (size_t)count * sizeof *o->upto, "weights");
    for (int64_t i = 0; i < count; i++) {
        if (!(weights[i] >= 0) || isinf(weights[i]))
            return wf_err(WEFT_EINVAL, "weight %lld is %g", (long long)i, weights[i]);
        sum += weights[i];
        o->upto[i] = sum;
    }
    if (!(sum > 0) || isinf(sum))
        return wf_err(WEFT_EINVAL, "the weights sum to %g", sum);
    return WEFT_OK;
}

static weft_status check(const struct wf_ds *in, int64_t n, const weft_sample_opts *o)
{
    if (!wf_ds_addressable(in) || in->count == WEFT_ENDLESS)
        return wf_err(WEFT_EINVAL, "the dataset must be addressable and finite: sample before the "
                                   "stage that makes it a stream");
    if (n < 0)
        return wf_err(WEFT_EINVAL, "%lld elements", (long long)n);
    if (!o->replacement && n > in->count)
        return wf_err(WEFT_EINVAL, "%lld elements of %lld without replacement", (long long)n,
                      (long long)in->count);
    if (n > 0 && in->count == 0)
        return wf_err(WEFT_EINVAL, "%lld elements of an empty dataset", (long long)n);
    if (o->weights && !o->replacement)
        return wf_err(WEFT_EINVAL, "weights need replacement");
    return WEFT_OK;
}

weft_ds weft_ds_sample(weft_data *d, weft_ds s, int64_t n, const weft_sample_opts *opts)
{
    weft_sample_opts o;
    struct wf_ds *ds;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_sample_opts");

    if (st)
        return wf_ds_fail(d, "sample", st);
    ds = wf_ds_new(d, &sample_kind, 1, &s, sizeof(struct sample));
    if (!ds)
        return (weft_ds){0};
    *(struct sample *)ds->param = (struct sample){o.seed, o.replacement, o.same_each_epoch, NULL};
    st = check(ds->in[0], n, &o);
    if (!st && o.weights)
        st = set_weights(ds, o.weights);
    if (st)
        return wf_ds_fail(d, "sample", st);
    ds->count = n;
    ds->reordered = ds->reordered || !o.same_each_epoch;
    return wf_ds_handle(ds);
}
