/* flight.c - runs that the host does not wait for.
 *
 * wf_fn_start enqueues a run and returns; wf_fn_land waits for the oldest one and hands out what it
 * fetched. At most WF_FLIGHT runs are in flight. Each has a slot: host memory for its feeds, step
 * block, words of trouble and fetches, and device memory for its feeds. These are copied by a
 * stream of their own while an earlier run computes; the run waits for the event `arrived`, and
 * begins with copies within the device to the places that its plan, or its recording, reads. A slot
 * is used again only after its run has landed, that is, after the event `done`.
 *
 * The words of trouble are cleared only when no run is in flight. So after a run that failed, those
 * in flight change nothing either, whatever the host had already enqueued. */
#include "exec/away.h"

struct slot {
    char *feeds, *host; /* device memory; host memory: feeds, step block, words, fetches */
    int64_t feeds_bytes, host_bytes;
    void *arrived, *done; /* events */
    const struct wf_plan *plan;
    int64_t step; /* of the store, before the run */
};

struct wf_flight {
    void *stream; /* copies feeds */
    struct slot slot[WF_FLIGHT];
    int first, n;
    bool off;       /* there is no memory for it */
    weft_status st; /* somebody else waited, and got this error */
    char text[256];
};

/* Offsets in a slot's host memory. */
struct parts {
    int64_t block, words, fetches, end;
};

static int64_t feed_bytes(const struct wf_plan *p, int64_t i)
{
    return wf_type_bytes(&p->instr[i].call.in[0].type);
}

static struct parts parts_of(const struct wf_plan *p)
{
    struct parts at = {.block = 0};

    for (int64_t i = 0; i < p->n_feeds; i++)
        at.block += wf_round_up(feed_bytes(p, i), 64);
    at.words = at.block + wf_away_block_bytes(p);
    at.fetches = at.words + wf_round_up((int64_t)sizeof(uint32_t) * WF_TROUBLE_WORDS, 64);
    at.end = at.fetches + p->fetch_bytes;
    return at;
}

int wf_fn_in_flight(const weft_fn *fn)
{
    return fn->away && fn->away->flight ? fn->away->flight->n : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void free_memory(struct wf_device *d, struct slot *s)
{
    wf_dev_free(d, s->feeds, s->feeds_bytes);
    wf_dev_host_free(d, s->host, s->host_bytes);
    s->feeds = s->host = NULL;
    s->feeds_bytes = s->host_bytes = 0;
}

static void free_flight(weft_ctx *ctx, struct wf_device *d, struct wf_flight *f)
{
    for (int i = 0; i < WF_FLIGHT; i++) {
        free_memory(d, &f->slot[i]);
        if (f->slot[i].arrived)
            d->ops.event_free(d->dev, f->slot[i].arrived);
        if (f->slot[i].done)
            d->ops.event_free(d->dev, f->slot[i].done);
    }
    if (f->stream)
        d->ops.stream_free(d->dev, f->stream);
    wf_free(ctx, f);
}

static weft_status get_flight(weft_fn *fn)
{
    struct wf_device *d = fn->away->dev;
    struct wf_flight *f = fn->away->flight;
    weft_status st;

    if (f)
        return WEFT_OK;
    f = wf_alloc(fn->ctx, sizeof *f);
    if (!f)
        return wf_err_nomem(fn->ctx, sizeof *f, "runs in flight");
    st = d->ops.stream_new(d->dev, &f->stream);
    for (int i = 0; i < WF_FLIGHT && !st; i++) {
        st = d->ops.event_new(d->dev, &f->slot[i].arrived);
        if (!st)
            st = d->ops.event_new(d->dev, &f->slot[i].done);
    }
    if (st) {
        free_flight(fn->ctx, d, f);
        return wf_err_wrap(st, "%s", d->name);
    }
    fn->away->flight = f;
    return WEFT_OK;
}

static weft_status grow(struct wf_device *d, struct slot *s, const struct parts *at)
{
    weft_status st;

    if (s->host && s->feeds && s->feeds_bytes >= at->block && s->host_bytes >= at->end)
        return WEFT_OK;
    free_memory(d, s);
    st = wf_dev_alloc(d, at->block, "feeds copied ahead", (void **)&s->feeds);
    if (st)
        return st;
    s->feeds_bytes = at->block;
    st = wf_dev_host_alloc(d, at->end, "feeds copied ahead", (void **)&s->host);
    s->host_bytes = st ? 0 : at->end;
    return st;
}

/* The next slot, with memory; NULL: there is none for it, and runs are waited for. */
static weft_status take_slot(weft_fn *fn, const struct parts *at, struct slot **out)
{
    struct wf_away *a = fn->away;
    struct wf_flight *f;
    weft_status st = get_flight(fn);

    *out = NULL;
    if (st)
        return st;
    f = a->flight;
    if (f->off)
        return WEFT_OK;
    *out = &f->slot[(f->first + f->n) % WF_FLIGHT];
    st = grow(a->dev, *out, at);
    if (st != WEFT_ENOMEM && st != WEFT_ELIMIT)
        return st;
    wf_log(fn->ctx, WEFT_LOG_INFO, "%s: no memory to copy feeds ahead: %s", a->dev->name,
           weft_error());
    f->off = true;
    for (int i = f->n; i < WF_FLIGHT; i++)
        free_memory(a->dev, &f->slot[(f->first + i) % WF_FLIGHT]);
    *out = NULL;
    return WEFT_OK;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Nothing is in flight any more. */
static void empty(weft_fn *fn)
{
    fn->away->flight->n = 0;
    wf_home_flies(fn->store, fn, false);
}

static weft_status wait_all(weft_fn *fn)
{
    struct wf_away *a = fn->away;
    weft_status st = a->dev->ops.stream_sync(a->dev->dev, a->stream), copies;

    copies = a->dev->ops.stream_sync(a->dev->dev, a->flight->stream);
    a->pending = false;
    return st ? st : copies;
}

void wf_fn_quiet(weft_fn *fn)
{
    struct wf_flight *f = fn->away->flight;
    weft_status st = wait_all(fn);

    if (st && !f->st) {
        f->st = st;
        wf_snprintf(f->text, sizeof f->text, "%s", weft_error());
    }
}

void wf_flight_free(weft_fn *fn)
{
    if (!fn->away || !fn->away->flight)
        return;
    if (wf_fn_in_flight(fn)) {
        wf_fn_quiet(fn);
        empty(fn);
    }
    free_flight(fn->ctx, fn->away->dev, fn->away->flight);
    fn->away->flight = NULL;
}

/* A run has failed: those after it have changed nothing either. */
static void give_up(weft_fn *fn, int64_t step)
{
    char text[512];

    wf_snprintf(text, sizeof text, "%s", weft_error());
    (void)wait_all(fn);
    empty(fn);
    fn->away->flight->st = WEFT_OK;
    fn->store->step = step;
    wf_err_set(text);
}

/* ---- starting -------------------------------------------------------------------------------- */

/* Recording and binding need the host's attention: an ordinary run does both. */
static bool is_ready(const weft_fn *fn, const struct wf_plan *p)
{
    const struct wf_away *a = fn->away;
    const struct wf_plan *before =
        a->flight && a->flight->n ? a->flight->slot[a->flight->first].plan : NULL;

    return wf_away_is_bound(fn, p) && p->n_same > 0 &&
           (p->recorded || !p->can_capture || !a->dev->ops.capture_begin) &&
           (!before || wf_away_block_bytes(before) == wf_away_block_bytes(p)); /* the same words */
}

/* Into the slot, and from there to the device by the stream for feeds. */
static weft_status send_feeds(weft_fn *fn, const struct wf_plan *p, struct slot *s,
                              const struct parts *at)
{
    const struct wf_away *a = fn->away;
    const weft_device_ops *ops = &a->dev->ops;
    char *to = s->host;
    weft_status st;

    for (int64_t i = 0; i < p->n_feeds; i++) {
        int64_t bytes = feed_bytes(p, i);

        if (bytes)
            memcpy(to, p->instr[i].call.in[0].data, (size_t)bytes);
        to += wf_round_up(bytes, 64);
    }
    if (!at->block)
        return WEFT_OK;
    st = ops->copy(a->dev->dev, a->flight->stream, WEFT_COPY_IN, s->feeds, s->host,
                   (size_t)at->block);
    if (!st)
        st = ops->event_record(a->dev->dev, s->arrived, a->flight->stream);
    return st ? st : ops->stream_wait(a->dev->dev, a->stream, s->arrived);
}

/* The step block, with words of trouble that are clear if no earlier run may still write them; and
 * the feeds to their places. */
static weft_status begin_run(weft_fn *fn, struct wf_plan *p, const struct slot *s,
                             const struct parts *at)
{
    struct wf_away *a = fn->away;
    int64_t bytes = a->flight->n ? at->words - at->block : at->fetches - at->block;
    const char *from = s->feeds;
    weft_status st;

    wf_away_fill_block(fn, p, s->host + at->block);
    memset(s->host + at->words, 0, (size_t)(at->fetches - at->words));
    st = wf_away_enqueue_copy(a, WEFT_COPY_IN, a->block, s->host + at->block, bytes);
    for (int64_t i = 0; i < p->n_feeds && !st; i++) {
        st = wf_away_enqueue_copy(a, WEFT_COPY_WITHIN, p->instr[i].call.out[0].data, from,
                                  feed_bytes(p, i));
        from += wf_round_up(feed_bytes(p, i), 64);
    }
    return st;
}

static weft_status end_run(weft_fn *fn, struct wf_plan *p, const struct slot *s,
                           const struct parts *at)
{
    struct wf_away *a = fn->away;
    char *to = s->host + at->fetches;
    weft_status st = WEFT_OK;

    if (p->may_fail)
        st = wf_away_enqueue_copy(a, WEFT_COPY_OUT, s->host + at->words,
                                  a->block + wf_away_block_bytes(p),
                                  (int64_t)sizeof(uint32_t) * WF_TROUBLE_WORDS);
    for (int i = 0; i < fn->n_fetches && !st; i++) {
        int64_t bytes = wf_type_bytes(&p->graph->values[p->roots[i]].type);

        st = wf_away_enqueue_copy(a, WEFT_COPY_OUT, to, wf_plan_address(p, fn, p->roots[i]), bytes);
        to += wf_round_up(bytes, 64);
    }
    return st ? st : a->dev->ops.event_record(a->dev->dev, s->done, a->stream);
}

static weft_status enqueue(weft_fn *fn, struct wf_plan *p, struct slot *s, const struct parts *at)
{
    struct wf_away *a = fn->away;
    int64_t done;
    weft_status st = send_feeds(fn, p, s, at);

    if (!st)
        st = begin_run(fn, p, s, at);
    if (!st && p->recorded)
        st = a->dev->ops.replay(a->dev->dev, a->stream, p->recorded);
    else if (!st)
        st = wf_away_run_from(fn, p, p->n_feeds, false, true, &done);
    return st ? st : end_run(fn, p, s, at);
}

weft_status wf_fn_start(weft_fn *fn, const weft_tensor *feeds, bool counts, bool *started)
{
    struct wf_plan *p = fn->away ? wf_fn_planned(fn, feeds) : NULL;
    struct parts at;
    struct slot *s = NULL;
    uint64_t mode;
    weft_status st;

    *started = false;
    if (!p || !p->unattended || fn->opts.trap_numerics)
        return WEFT_OK;
    st = wf_away_own_base(fn);
    if (st || !is_ready(fn, p))
        return st;
    at = parts_of(p);
    st = take_slot(fn, &at, &s);
    if (st || !s)
        return st;
    mode = wf_fpmode_enter(fn->ctx->flush_denormals);
    fn->step = s->step = fn->store->step;
    fn->hooks = NULL;
    fn->away->pending = true;
    wf_plan_feed(p, feeds);
    st = enqueue(fn, p, s, &at);
    wf_fpmode_leave(mode);
    if (st) { /* the slot's memory is read no more; earlier runs can still land */
        char text[512];

        wf_snprintf(text, sizeof text, "%s", weft_error());
        wf_fn_quiet(fn);
        if (fn->away->flight->n == 0)
            fn->away->flight->st = WEFT_OK;
        wf_err_set(text);
        return st;
    }
    s->plan = p;
    fn->away->flight->n++;
    fn->store->step += counts && fn->updates;
    wf_home_flies(fn->store, fn, true);
    wf_home_wrote(fn->store, fn->writes);
    *started = true;
    return WEFT_OK;
}

/* ---- landing --------------------------------------------------------------------------------- */

static void hand_out(const weft_fn *fn, const struct slot *s, weft_tensor *fetches)
{
    char *from = s->host + parts_of(s->plan).fetches;

    for (int i = 0; i < fn->n_fetches; i++) {
        const struct wf_type *t = &s->plan->graph->values[s->plan->roots[i]].type;

        if (fetches[i].data)
            memcpy(fetches[i].data, from, (size_t)wf_type_bytes(t));
        else
            fetches[i] = weft_view(t->dtype, from, t->rank, t->dim);
        from += wf_round_up(wf_type_bytes(t), 64);
    }
}

weft_status wf_fn_land(weft_fn *fn, weft_tensor *fetches)
{
    struct wf_away *a = fn->away;
    struct wf_flight *f = a->flight;
    const struct slot *s = &f->slot[f->first];
    weft_status st = a->dev->ops.event_sync(a->dev->dev, s->done);

    if (!st && s->plan->may_fail)
        st = wf_away_trouble(s->plan, (const void *)(s->host + parts_of(s->plan).words));
    if (!st && f->st) {
        st = f->st;
        wf_err_set(f->text);
    }
    if (st) {
        give_up(fn, s->step);
        return st;
    }
    f->first = (f->first + 1) % WF_FLIGHT;
    if (--f->n == 0)
        empty(fn);
    hand_out(fn, s, fetches);
    return WEFT_OK;
}
