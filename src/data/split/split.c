/* split.c - plans that divide samples among workers, and the split into training and validation
 * data.
 *
 * A plan is exact arithmetic on counts: its parts are contiguous, in order, and cover everything
 * once. */
#include <math.h>

#include "data/data.h"
#include "weft/data_split.h"

/* ---- plans ----------------------------------------------------------------------------------- */

static double weight_of(const weft_split_opts *o, int w)
{
    return o->weights ? o->weights[w] : 1.0;
}

static weft_status check_weights(const weft_split_opts *o, int n_workers, double *sum)
{
    *sum = 0;
    for (int w = 0; w < n_workers; w++) {
        double x = weight_of(o, w);

        if (!(x >= 0) || isinf(x))
            return wf_err(WEFT_EINVAL,
                          "split: weight %d is %g; weights must be finite and not negative", w, x);
        *sum += x;
    }
    if (!(*sum > 0) || isinf(*sum))
        return wf_err(WEFT_EINVAL, "split: the weights of %d workers sum to %g", n_workers, *sum);
    return WEFT_OK;
}

/* The ideal part of n for a weight, as a whole number and a remainder in [0, 1). */
static int64_t whole_part(int64_t n, double weight, double sum, double *rest)
{
    double ideal = (double)n * (weight / sum), whole = floor(ideal);

    *rest = ideal - whole;
    return wf_min_i64((int64_t)whole, n);
}

/* out[w].n_units by largest remainders. */
static void share_units(int64_t n, int n_workers, const weft_split_opts *o, double sum,
                        weft_share *out)
{
    int64_t left = n;
    double rest;

    if (!o->weights) {
        for (int w = 0; w < n_workers; w++)
            out[w].n_units = n / n_workers + (w < n % n_workers);
        return;
    }
    for (int w = 0; w < n_workers; w++) {
        out[w].n_units = wf_min_i64(whole_part(n, o->weights[w], sum, &rest), left);
        left -= out[w].n_units;
        out[w].first = 0; /* set to 1 for those that got one more */
    }
    while (left > 0) {
        int best = -1;
        double most = -1;

        for (int w = 0; w < n_workers; w++) {
            whole_part(n, o->weights[w], sum, &rest);
            if (!out[w].first && o->weights[w] > 0 && rest > most) {
                most = rest;
                best = w;
            }
        }
        if (best < 0) { /* rounding left more than one per worker: start again */
            for (int w = 0; w < n_workers; w++)
                out[w].first = 0;
            continue;
        }
        out[best].first = 1;
        out[best].n_units++;
        left--;
    }
}

/* By files: each goes to the worker whose ideal range of samples contains its middle. */
static void share_files(int64_t n_samples, int n_workers, const weft_split_opts *o, double sum,
                        weft_share *out)
{
    int64_t begin = 0, f = 0;
    double upto = 0;

    for (int w = 0; w < n_workers; w++) {
        double end;

        upto += weight_of(o, w);
        end = w == n_workers - 1 ? INFINITY : (double)n_samples * (upto / sum);
        out[w].n_units = 0;
        while (f < o->n_files && (double)begin + (double)o->file_samples[f] / 2 < end) {
            begin += o->file_samples[f++];
            out[w].n_units++;
        }
    }
}

static weft_status check_files(int64_t n_samples, const weft_split_opts *o)
{
    int64_t sum = 0;

    if (o->n_files < 0 || (o->n_files && !o->file_samples))
        return wf_err(WEFT_EINVAL, "split: by files needs n_files and the samples in each");
    for (int64_t f = 0; f < o->n_files; f++)
        if (o->file_samples[f] < 0 || !wf_add_i64(sum, o->file_samples[f], &sum))
            return wf_err(WEFT_EINVAL, "split: file %lld has %lld samples", (long long)f,
                          (long long)o->file_samples[f]);
    if (sum != n_samples)
        return wf_err(WEFT_EINVAL, "split: the files have %lld samples in total, not %lld",
                      (long long)sum, (long long)n_samples);
    return WEFT_OK;
}

/* From numbers of units to ranges. */
static void place(int64_t n_samples, int n_workers, const weft_split_opts *o, weft_share *out)
{
    int64_t unit = 0, sample = 0;

    for (int w = 0; w < n_workers; w++) {
        int64_t n = out[w].n_units;

        out[w].first_unit = unit;
        out[w].first = sample;
        if (o->by == WEFT_SPLIT_FILES) {
            n = 0;
            for (int64_t f = unit; f < unit + out[w].n_units; f++)
                n += o->file_samples[f];
        } else if (o->by == WEFT_SPLIT_BATCHES) {
            /* Only the last batch is short; the product is not computed beyond it. */
            n = out[w].n_units > (n_samples - sample) / o->batch ? n_samples - sample
                                                                 : out[w].n_units * o->batch;
        }
        out[w].n = n;
        unit += out[w].n_units;
        sample += n;
    }
}

weft_status weft_split_plan(int64_t n_samples, int n_workers, const weft_split_opts *opts,
                            weft_share *out)
{
    weft_split_opts o;
    int64_t n_units = n_samples;
    double sum;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_split_opts");

    if (st)
        return st;
    if (n_samples < 0 || n_workers < 1)
        return wf_err(WEFT_EINVAL, "split: %lld samples over %d workers", (long long)n_samples,
                      n_workers);
    st = check_weights(&o, n_workers, &sum);
    if (st)
        return st;
    switch (o.by) {
    case WEFT_SPLIT_SAMPLES: break;
    case WEFT_SPLIT_BATCHES:
        if (o.batch < 1)
            return wf_err(WEFT_EINVAL, "split: by batches of %lld samples", (long long)o.batch);
        n_units = n_samples / o.batch + (n_samples % o.batch > 0);
        break;
    case WEFT_SPLIT_FILES:
        st = check_files(n_samples, &o);
        if (st)
            return st;
        break;
    default: return wf_err(WEFT_EINVAL, "split: unit %d does not exist", (int)o.by);
    }
    if (o.by == WEFT_SPLIT_FILES && n_samples > 0)
        share_files(n_samples, n_workers, &o, sum, out);
    else
        share_units(o.by == WEFT_SPLIT_FILES ? o.n_files : n_units, n_workers, &o, sum, out);
    place(n_samples, n_workers, &o, out);
    return WEFT_OK;
}

weft_status weft_split_text(weft_ctx *ctx, int n_workers, const weft_share *plan, weft_split_by by,
                            char **out)
{
    static const char *const units[] = {"samples", "batches", "files"};
    struct wf_buf b;
    int64_t total = 0;

    if (by < WEFT_SPLIT_SAMPLES || by > WEFT_SPLIT_FILES)
        return wf_err(WEFT_EINVAL, "split: unit %d does not exist", (int)by);
    for (int w = 0; w < n_workers; w++)
        total += plan[w].n;
    wf_buf_init(&b, ctx, 64 << 20);
    wf_buf_printf(&b, "worker %14s %14s %7s", "first", "samples", "share");
    if (by != WEFT_SPLIT_SAMPLES)
        wf_buf_printf(&b, " %14s", units[by]);
    wf_buf_printf(&b, "\n");
    for (int w = 0; w < n_workers; w++) {
        const weft_share *s = &plan[w];

        wf_buf_printf(&b, "%6d %14lld %14lld %6.2f%%", w, (long long)s->first, (long long)s->n,
                      total ? 100.0 * (double)s->n / (double)total : 0.0);
        if (by != WEFT_SPLIT_SAMPLES && s->n_units)
            wf_buf_printf(&b, " %14lld (%lld..%lld)", (long long)s->n_units,
                          (long long)s->first_unit, (long long)(s->first_unit + s->n_units - 1));
        else if (by != WEFT_SPLIT_SAMPLES)
            wf_buf_printf(&b, " %14d", 0);
        wf_buf_printf(&b, "\n");
    }
    wf_buf_printf(&b, "   all %14s %14lld\n", "", (long long)total);
    if (b.st)
        wf_buf_free(&b);
    else
        *out = b.data;
    return b.st;
}

weft_status weft_share_view(const weft_tensor *whole, const weft_share *share, weft_tensor *out)
{
    weft_tensor t = *whole;
    int64_t row = wf_item_bytes(t.dtype);

    if (t.rank < 1)
        return wf_err(WEFT_ESHAPE, "share: a scalar has no rows to share out");
    if (share->first < 0 || share->n < 0 || share->first > t.dim[0] ||
        share->n > t.dim[0] - share->first)
        return wf_err(WEFT_ERANGE, "share: rows [%lld, %lld + %lld) of %lld",
                      (long long)share->first, (long long)share->first, (long long)share->n,
                      (long long)t.dim[0]);
    for (int k = 1; k < t.rank; k++)
        if (!wf_mul_i64(row, t.dim[k], &row))
            return wf_err(WEFT_ESHAPE, "share: a row has too many bytes");
    if (t.data)
        t.data = (char *)t.data + share->first * row;
    t.dim[0] = share->n;
    *out = t;
    return WEFT_OK;
}

weft_ds weft_ds_share(weft_data *d, weft_ds s, const weft_share *share)
{
    if (share->first < 0 || share->n < 0)
        return wf_ds_fail(d, "share",
                          wf_err(WEFT_ERANGE, "elements [%lld, + %lld)", (long long)share->first,
                                 (long long)share->n));
    return weft_ds_take(d, weft_ds_skip(d, s, share->first), share->n);
}

/* ---- training and validation ----------------------------------------------------------------- */

struct holdout {
    uint64_t seed;
    uint64_t below; /* streams: held out where the hash is below this */
    int64_t first, n;
    bool held;
    struct wf_permutation order;
};
#define SALT_HOLDOUT 0x686f6c64u

/* Addressable: elements first .. first + n - 1 of a permutation that never changes. */
static weft_status chosen_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct holdout *h = ds->param;
    struct wf_chunk *room = wf_chunk_new(w->env, n * (int64_t)sizeof(struct wf_at));
    struct wf_at *to;
    weft_status st;

    if (!room)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *to, "holdout");
    to = (void *)room->data;
    for (int64_t i = 0; i < n; i++)
        to[i] = (struct wf_at){at[i].epoch, wf_permutation_at(&h->order, h->first + at[i].id)};
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(room);
    return st;
}

static void holdout_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct holdout *h = ds->param;

    wf_buf_printf(out, "%s seed=%llu %lld+%lld/%016llx", h->held ? "held" : "rest",
                  (unsigned long long)h->seed, (long long)h->first, (long long)h->n,
                  (unsigned long long)h->below);
}

static const struct wf_ds_kind chosen_kind = {
    .name = "holdout", .get = chosen_get, .text = holdout_text};

/* Streams: elements are numbered when they are pulled and dropped when they are made. */
static weft_status hashed_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(int64_t));
    if (!s->state)
        return wf_env_nomem(s->env, sizeof(int64_t), "holdout");
    return wf_stage_input(s, 0, WF_IN_EXACT, s->want);
}

static void hashed_close(struct wf_stage *s)
{
    wf_free(s->env->ctx, s->state);
}

static weft_status hashed_reset(struct wf_stage *s, int64_t epoch)
{
    *(int64_t *)s->state = 0;
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status hashed_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    int64_t *number = s->state, *first;
    struct wf_promise *p;
    weft_status st = wf_stage_pull(s->in[0], want, &p);

    if (st)
        return st;
    if (!p) {
        *out = NULL;
        return WEFT_OK;
    }
    first = wf_alloc(s->env->ctx, sizeof *first);
    if (!first) {
        wf_promise_drop(p);
        return wf_env_nomem(s->env, sizeof *first, "holdout");
    }
    *first = *number;
    *number += p->n;
    *out = wf_promise_new(s, p->n, 1, &p, first);
    if (!*out) {
        wf_free(s->env->ctx, first);
        return wf_env_nomem(s->env, sizeof **out, "holdout");
    }
    return WEFT_OK;
}

static weft_status hashed_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out)
{
    const struct holdout *h = p->stage->ds->param;
    struct wf_promise *in = p->in[0];
    int64_t first = *(int64_t *)p->data;
    struct wf_block *b = NULL;
    bool few[1024], *keep = few;
    weft_status st;

    wf_free(w->env->ctx, p->data);
    p->in[0] = NULL;
    st = wf_promise_make(in, w, &b);
    if (st)
        return st;
    if (b->n > WF_COUNT(few) && !(keep = wf_alloc(w->env->ctx, (size_t)b->n))) {
        st = wf_env_nomem(w->env, b->n, "holdout");
        wf_block_free(b);
        return st;
    }
    for (int64_t i = 0; i < b->n; i++)
        keep[i] = (wf_random_word(h->seed, 0, first + i, SALT_HOLDOUT) < h->below) == h->held;
    st = wf_block_filter(b, keep, out);
    if (keep != few)
        wf_free(w->env->ctx, keep);
    return st;
}

static void hashed_drop(struct wf_promise *p)
{
    wf_free(p->stage->env->ctx, p->data);
}

static weft_status hashed_save(struct wf_stage *s, struct wf_buf *out)
{
    wf_put_i64(out, *(int64_t *)s->state);
    return out->st;
}

static weft_status hashed_restore(struct wf_stage *s, struct wf_reader *r)
{
    *(int64_t *)s->state = wf_get_range(r, 0, WF_MANY, "number of the element");
    return r->st;
}

static const struct wf_ds_kind hashed_kind = {
    .name = "holdout",
    .open = hashed_open,
    .close = hashed_close,
    .reset = hashed_reset,
    .pull = hashed_pull,
    .make = hashed_make,
    .drop = hashed_drop,
    .save = hashed_save,
    .restore = hashed_restore,
    .text = holdout_text,
};

static weft_ds holdout_node(weft_data *d, weft_ds s, const struct wf_ds_kind *kind,
                            const struct holdout *h)
{
    struct wf_ds *ds = wf_ds_new(d, kind, 1, &s, sizeof *h);

    if (!ds)
        return (weft_ds){0};
    *(struct holdout *)ds->param = *h;
    if (kind->get)
        ds->count = h->n;
    else if (ds->count != WEFT_ENDLESS)
        ds->count = WEFT_UNKNOWN;
    if (!kind->get)
        ds->inexact = true;
    return wf_ds_handle(ds);
}

/* The threshold of a 64-bit word for a probability; that of 1 is above practically all words. */
static uint64_t threshold(double p)
{
    return p >= 1 ? UINT64_MAX : (uint64_t)(p * 0x1p64);
}

/* What is left for training, as in Keras: floor(n (1 - fraction)), with the difference and the
 * product rounded as doubles. */
static int64_t count_rest(int64_t n, double fraction)
{
    return wf_min_i64((int64_t)floor((double)n * (1.0 - fraction)), n);
}

weft_status weft_ds_holdout(weft_data *d, weft_ds s, double fraction, const weft_holdout_opts *opts,
                            weft_ds *rest, weft_ds *held)
{
    weft_holdout_opts o = {.size = 0};
    struct holdout h = {0};
    weft_ds a, b;
    int64_t count, n_held;
    weft_status st = weft_data_status(d);

    if (!st)
        st = wf_opts_take(&o, sizeof o, opts, "weft_holdout_opts");
    if (!st)
        h.seed = o.seed;
    if (!st && !(fraction >= 0 && fraction <= 1))
        st = wf_err(WEFT_EINVAL, "fraction %g is not in 0..1", fraction);
    count = weft_ds_count(d, s);
    if (!st && !o.hashed && (count == WEFT_UNKNOWN || count == WEFT_ENDLESS))
        st = wf_err(WEFT_EINVAL,
                    "cannot take the last elements of a dataset of unknown length: use hashed");
    if (st) {
        wf_ds_fail(d, "holdout", st);
        return st;
    }
    n_held = count >= 0 && count != WEFT_ENDLESS ? count - count_rest(count, fraction) : 0;
    if (!o.hashed) {
        a = weft_ds_take(d, s, count - n_held);
        b = weft_ds_skip(d, s, count - n_held);
    } else if (weft_ds_addressable(d, s) && count != WEFT_ENDLESS) {
        wf_permutation_init(&h.order, count, h.seed, 0);
        h.n = count - n_held;
        h.first = n_held;
        a = holdout_node(d, s, &chosen_kind, &h);
        h.n = n_held;
        h.first = 0;
        h.held = true;
        b = holdout_node(d, s, &chosen_kind, &h);
    } else {
        h.below = threshold(fraction);
        a = holdout_node(d, s, &hashed_kind, &h);
        h.held = true;
        b = holdout_node(d, s, &hashed_kind, &h);
    }
    st = weft_data_status(d);
    if (st)
        return st;
    *rest = a;
    *held = b;
    return WEFT_OK;
}
