/* deal.c - the samples of a shard as feeds: from a dealer, or cut out of the caller's tensors. */
#include "ps/serve.h"
#include "train/step/dist.h"

enum { LEASED_OPEN = 2 * WF_LEASE_WINDOW, MAX_OPEN = 1 << 20 }; /* steps that leases may be of */

/* ---- opening --------------------------------------------------------------------------------- */

weft_status wf_deal_open(struct wf_deal *d, weft_trainer *t, weft_data *data,
                         const struct wf_feeding *f, const struct wf_deal_opts *opts)
{
    bool leased = wf_dist_leased(t); /* shards come to any worker, and in any order */
    int64_t open = leased ? (int64_t)LEASED_OPEN * (t->rounds ? t->accumulate : 1) : 0;
    weft_status st;

    *d = (struct wf_deal){.t = t, .f = f};
    d->feeds = wf_alloc_n(t->ctx, t->bound->n_feeds_fit + 2, sizeof *d->feeds);
    if (!d->feeds)
        return wf_err_nomem(t->ctx, 0, "a batch");
    st = weft_dealer_new(data, f->ds,
                         WEFT_OPTS(weft_dealer_opts, .shards = t->shards, .epoch = opts->epoch,
                                   .steps_per_epoch = opts->steps_per_epoch, .follow = !leased,
                                   .max_open = wf_min_i64(t->accumulate + 2 + open, MAX_OPEN),
                                   .threads = wf_feeding_threads(data, f->ds, opts->threads)),
                         &d->dealer);
    if (!st && t->dist->n_local > 1)
        wf_dealer_share(d->dealer);
    return st;
}

void wf_deal_close(struct wf_deal *d)
{
    if (!d->t)
        return;
    weft_batch_free(d->whole);
    weft_dealer_free(d->dealer);
    wf_free(d->t->ctx, d->feeds);
    *d = (struct wf_deal){.t = NULL};
}

/* ---- batch by batch -------------------------------------------------------------------------- */

weft_status wf_deal_begin(struct wf_deal *d, int64_t epoch)
{
    return weft_dealer_begin(d->dealer, epoch);
}

weft_status wf_deal_next(struct wf_deal *d, int64_t epoch, bool *any)
{
    int64_t number;
    weft_status st = weft_dealer_has(d->dealer, epoch, d->at, any);

    return st || !*any ? st : weft_dealer_step(d->dealer, d->at, &epoch, &number, &d->n);
}

weft_status wf_deal_commit(struct wf_deal *d)
{
    return d->at > 0 ? weft_dealer_commit(d->dealer, d->at - 1) : WEFT_OK;
}

weft_status wf_deal_done(struct wf_deal *d)
{
    weft_batch_free(d->whole);
    d->whole = NULL;
    d->at++;
    return d->t->pending || d->t->flying.n ? WEFT_OK : wf_deal_commit(d);
}

void wf_deal_limit(struct wf_deal *d, int64_t n)
{
    wf_dealer_set_end(d->dealer, n < INT64_MAX - d->at ? d->at + n : INT64_MAX);
}

weft_status wf_deal_restore(struct wf_deal *d, const char *state, int64_t n, int64_t epoch,
                            int64_t batch)
{
    struct wf_reader r = {state, state + n, WEFT_OK};
    weft_status st = wf_iter_is_position(&r)
                         ? wf_dealer_restore_iter(d->dealer, state, n, epoch, batch)
                         : weft_dealer_restore(d->dealer, state, n);

    d->at = weft_dealer_committed(d->dealer);
    return st;
}

weft_status wf_deal_seek(struct wf_deal *d, int64_t epoch, int64_t batch)
{
    weft_status st = wf_dealer_seek(d->dealer, epoch, batch);

    weft_batch_free(d->whole);
    d->whole = NULL;
    d->at = weft_dealer_committed(d->dealer);
    return st;
}

weft_status wf_deal_earlier(const struct wf_deal *d, int64_t back, struct wf_deal *out)
{
    int64_t epoch, number;

    *out = *d;
    out->whole = NULL;
    out->at -= back;
    return weft_dealer_step(d->dealer, out->at, &epoch, &number, &out->n);
}

weft_status wf_deal_at(const struct wf_deal *d, int64_t epoch, int64_t at, struct wf_deal *out)
{
    int64_t number;
    bool any;
    weft_status st = weft_dealer_has(d->dealer, epoch, at, &any);

    *out = *d;
    out->whole = NULL;
    out->at = at;
    if (!st && !any)
        st = wf_err(WEFT_EDATA, "the data has no batch %lld of epoch %lld, which others train",
                    (long long)at, (long long)epoch + 1);
    return st ? st : weft_dealer_step(d->dealer, at, &epoch, &number, &out->n);
}

weft_status wf_deal_announce(struct wf_deal *d, int64_t at, int64_t l)
{
    return weft_dealer_ahead(d->dealer, at, l);
}

weft_status wf_deal_commit_to(struct wf_deal *d, int64_t epoch, int64_t at)
{
    bool any;
    weft_status st;

    if (at <= d->at)
        return WEFT_OK;
    st = weft_dealer_has(d->dealer, epoch, at - 1, &any); /* a reader reads up to it */
    d->at = at;
    return st ? st : wf_deal_commit(d);
}

double wf_deal_waited_s(const struct wf_deal *d)
{
    return wf_dealer_waited_s(d->dealer) / d->t->dist->n_local;
}

int64_t wf_deal_skipped(const struct wf_deal *d)
{
    return wf_dealer_skipped(d->dealer);
}

/* ---- feeds ----------------------------------------------------------------------------------- */

/* Stages after the batches may have given columns that have no row for each sample. */
static weft_status check_rows(const struct wf_deal *d, const weft_batch *b,
                              const weft_tensor *feeds)
{
    for (int i = 0; i < d->t->bound->n_feeds_test; i++)
        if (feeds[i].rank < 1 || feeds[i].dim[0] != b->n)
            return wf_err(WEFT_ESHAPE,
                          "a shard of %lld samples, but what is fed as tensor %d has %lld rows: it "
                          "cannot be divided into %d shards",
                          (long long)b->n, i, feeds[i].rank < 1 ? 0LL : (long long)feeds[i].dim[0],
                          d->t->shards);
    return WEFT_OK;
}

weft_status wf_deal_feeds(const struct wf_deal *d, int64_t l, weft_tensor *feeds, weft_batch **held)
{
    weft_batch *b = NULL;
    weft_status st = weft_dealer_get(d->dealer, d->at, l, &b);

    if (!st)
        st = wf_feeding_batch(d->t, d->f, b, feeds);
    if (!st && d->t->shards > 1)
        st = check_rows(d, b, feeds);
    if (st) {
        weft_batch_free(b);
        return st;
    }
    *held = b;
    return WEFT_OK;
}

weft_status wf_deal_whole(struct wf_deal *d)
{
    return d->whole ? WEFT_OK : wf_deal_feeds(d, 0, d->feeds, &d->whole);
}

/* Rows [first, first + n) of the caller's tensors. */
static void cut(const struct wf_work *w, struct wf_replica *r, int64_t first, int64_t n)
{
    for (int i = 0; i < w->b->n_feeds_test; i++) {
        weft_tensor *f = &r->feeds[i];
        int64_t row;

        *f = w->batch.feeds[i];
        row = f->dim[0] ? weft_tensor_bytes(f) / f->dim[0] : 0;
        f->dim[0] = n;
        f->data = (char *)f->data + first * row;
    }
}

weft_status wf_work_feeds(const struct wf_work *w, struct wf_replica *r, int64_t l, int64_t first,
                          int64_t n, weft_batch **held)
{
    *held = NULL;
    if (!w->batch.feeds)
        return wf_deal_feeds(w->batch.deal, l, r->feeds, held);
    cut(w, r, first, n);
    return WEFT_OK;
}
