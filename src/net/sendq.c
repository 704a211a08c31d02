/* sendq.c - what a link sends: a queue of frames, written from where their bytes are. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/link.h"

enum {
    MAX_IOV = 64,
    PROOF = 32 << 20, /* more than the system keeps between two processes: the peer has read some */
    PORTION = 1 << 18 /* bytes of a payload that are summed at once: they are still in the cache
                       * when they are written */
};

void wf_sendq_init(struct wf_link *l)
{
    l->last = &l->first;
    l->done_end = &l->done;
}

/* The link's mutex is held. */
static void set_done(struct wf_link *l, struct wf_outgoing *o, weft_status st)
{
    o->st = st;
    o->next = NULL;
    *l->done_end = o;
    l->done_end = &o->next;
}

/* Calls `sent` of all that are done, in their order, by one thread at a time: one of them may send
 * the next message. */
static void finish(struct wf_link *l)
{
    bool any = false;

    pthread_mutex_lock(&l->out);
    if (l->finishing) {
        pthread_mutex_unlock(&l->out);
        return;
    }
    l->finishing = true;
    while (l->done) {
        struct wf_outgoing *o = l->done;

        l->done = o->next;
        if (!l->done)
            l->done_end = &l->done;
        pthread_mutex_unlock(&l->out);
        if (o->sent)
            o->sent(o->arg, o->st);
        wf_free(l->net->ctx, o);
        any = true;
        pthread_mutex_lock(&l->out);
    }
    l->finishing = false;
    pthread_mutex_unlock(&l->out);
    if (any)
        wf_net_happened(l->net);
}

/* ---- adding ---------------------------------------------------------------------------------- */

static struct wf_outgoing *new_outgoing(struct wf_link *l, const struct wf_frame *f,
                                        const void *head, const struct wf_part *part, int n_parts)
{
    size_t parts = (size_t)n_parts * sizeof *part;
    struct wf_outgoing *o = wf_alloc_raw(l->net->ctx, sizeof *o + parts + (size_t)f->n_head);

    if (!o)
        return NULL;
    *o = (struct wf_outgoing){.frame = *f, .n_parts = n_parts};
    o->part = (struct wf_part *)(void *)(o + 1);
    o->head = (uint8_t *)o->part + parts;
    if (n_parts)
        memcpy(o->part, part, parts);
    if (f->n_head)
        memcpy(o->head, head, (size_t)f->n_head);
    wf_frame_encode(f, head, o->header);
    o->n = WF_FRAME_HEADER + f->n_head + f->n_payload +
           (f->flags & WF_FRAME_SUMMED ? WF_FRAME_TAIL : 0);
    return o;
}

static void append(struct wf_link *l, struct wf_outgoing *o, bool front)
{
    if (!l->first)
        l->moved_ns = wf_now(l->net->ctx);
    if (front) {
        o->next = l->first;
        l->first = o;
        if (!o->next)
            l->last = &o->next;
    } else {
        *l->last = o;
        l->last = &o->next;
    }
    l->n_queued++;
}

/* Why nothing can be sent. */
static weft_status check_open(const struct wf_link *l)
{
    if (l->broken || l->state == WF_LINK_DOWN)
        return wf_err(WEFT_EPEER, "%s: the link is down%s%s", l->name, *l->why ? ": " : "", l->why);
    return l->closing ? wf_err(WEFT_ESTATE, "%s: the link is being closed", l->name) : WEFT_OK;
}

static weft_status measure(const struct wf_link *l, const struct wf_msg *m, int64_t *n)
{
    *n = 0;
    if (m->n_head < 0 || m->n_head > WF_FRAME_MAX_HEAD)
        return wf_err(WEFT_EINVAL, "%s: a head of %d bytes; at most %d are allowed", l->name,
                      m->n_head, WF_FRAME_MAX_HEAD);
    for (int i = 0; i < m->n_parts; i++)
        if (m->part[i].n < 0 || !wf_add_i64(*n, m->part[i].n, n))
            return wf_err(WEFT_EINVAL, "%s: part %d of a payload has %lld bytes", l->name, i,
                          (long long)m->part[i].n);
    return WEFT_OK;
}

weft_status wf_sendq_add(struct wf_link *l, const struct wf_frame *f, const struct wf_msg *m,
                         wf_sent_fn *sent, void *arg, struct wf_pending *pending)
{
    const struct wf_net_opts *opts = &l->net->opts;
    struct wf_frame frame = *f;
    struct wf_outgoing *o;
    weft_status st = measure(l, m, &frame.n_payload);

    if (st)
        return st;
    frame.kind = m->kind;
    frame.n_head = m->n_head;
    if (frame.n_payload && strncmp(l->address, "tcp:", 4) == 0 && !opts->no_checksums)
        frame.flags |= WF_FRAME_SUMMED;
    o = new_outgoing(l, &frame, m->head, m->part, m->n_parts);
    if (!o)
        return wf_err_nomem(l->net->ctx, sizeof *o, "a message");
    o->sent = sent;
    o->arg = arg;
    pthread_mutex_lock(&l->out);
    st = check_open(l);
    if (!st && l->n_queued >= opts->max_queued)
        st = wf_err(WEFT_ELIMIT, "%s: %lld messages are waiting to be sent", l->name,
                    (long long)l->n_queued);
    if (!st) {
        append(l, o, false);
        if (pending) {
            pending->next = l->pending;
            l->pending = pending;
        }
    }
    pthread_mutex_unlock(&l->out);
    if (st) {
        wf_free(l->net->ctx, o);
        return st;
    }
    st = wf_sendq_write(l);
    return st == WEFT_EPEER ? WEFT_OK : st; /* it was accepted; the link goes down */
}

/* state: that the link is in from here on, if it is not 0. */
static weft_status add_own(struct wf_link *l, const struct wf_frame *f, const void *head,
                           bool front, int state)
{
    struct wf_outgoing *o = new_outgoing(l, f, head, NULL, 0);

    if (!o)
        return wf_err_nomem(l->net->ctx, sizeof *o, "a message");
    pthread_mutex_lock(&l->out);
    append(l, o, front);
    if (state)
        l->state = state;
    pthread_mutex_unlock(&l->out);
    wf_sendq_write(l);
    return WEFT_OK;
}

weft_status wf_sendq_control(struct wf_link *l, const struct wf_frame *f, const void *head)
{
    return add_own(l, f, head, false, 0);
}

/* In one step: a thread that sends must not come between the state and the hello. */
weft_status wf_sendq_hello(struct wf_link *l, const struct wf_frame *f, const void *head)
{
    return add_own(l, f, head, true, WF_LINK_HELLO);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Bytes [o->at, …) of a frame as iovecs; *whole: up to its end. */
struct filling {
    struct iovec *v;
    int n, max;
    int64_t skip; /* bytes that are already sent */
};

static void fill(struct filling *f, void *p, int64_t n)
{
    int64_t from = wf_min_i64(f->skip, n);

    f->skip -= from;
    if (n > from && f->n < f->max)
        f->v[f->n++] = (struct iovec){(char *)p + from, (size_t)(n - from)};
}

/* Payload bytes [o->summed, end) into the checksum. */
static void sum_up_to(struct wf_outgoing *o, int64_t end)
{
    int64_t at = 0;

    for (int i = 0; i < o->n_parts && o->summed < end; i++) {
        int64_t from = wf_max_i64(o->summed, at), to = wf_min_i64(end, at + o->part[i].n);

        if (to > from) {
            o->crc = wf_crc32c(o->crc, (const char *)o->part[i].p + (from - at), to - from);
            o->summed = to;
        }
        at += o->part[i].n;
    }
    for (int i = 0; i < WF_FRAME_TAIL; i++)
        o->tail[i] = (uint8_t)(o->crc >> 8 * i);
}

/* Adds what can be sent of a frame; false if more of it must be summed first, or there is no more
 * room: nothing may follow it in this call. */
static bool add_frame(struct filling *f, struct wf_outgoing *o)
{
    bool summed = o->frame.flags & WF_FRAME_SUMMED;
    int64_t before = WF_FRAME_HEADER + o->frame.n_head, end = o->frame.n_payload, at = 0;

    f->skip = o->at;
    fill(f, o->header, WF_FRAME_HEADER);
    fill(f, o->head, o->frame.n_head);
    if (summed) {
        end = wf_min_i64(end, wf_max_i64(o->at - before, 0) + PORTION);
        sum_up_to(o, end);
    }
    for (int i = 0; i < o->n_parts && at < end && f->n < f->max; i++) {
        fill(f, o->part[i].p, wf_min_i64(o->part[i].n, end - at));
        at += o->part[i].n;
    }
    if (end < o->frame.n_payload || f->n == f->max)
        return false;
    if (summed)
        fill(f, o->tail, WF_FRAME_TAIL);
    return f->n < f->max;
}

/* The socket is full: time to sum what is written next. */
static void sum_ahead(struct wf_outgoing *o)
{
    int64_t before = WF_FRAME_HEADER + o->frame.n_head;

    if (o->frame.flags & WF_FRAME_SUMMED)
        sum_up_to(o, wf_min_i64(o->frame.n_payload, wf_max_i64(o->at - before, 0) + 2 * PORTION));
}

/* n bytes were taken. */
static void advance(struct wf_link *l, int64_t n)
{
    l->moved_ns = wf_now(l->net->ctx);
    l->unproved += n;
    if (l->unproved > PROOF) {
        l->unproved = 0;
        l->proved_ns = l->moved_ns;
    }
    while (l->first) {
        struct wf_outgoing *o = l->first;
        int64_t k = wf_min_i64(n, o->n - o->at);

        o->at += k;
        n -= k;
        if (o->at < o->n)
            return;
        l->said_bye |= o->frame.type == WF_FRAME_BYE;
        l->first = o->next;
        if (!l->first)
            l->last = &l->first;
        l->n_queued--;
        set_done(l, o, WEFT_OK);
    }
}

static weft_status write_some(struct wf_link *l)
{
    while (l->first) {
        struct iovec v[MAX_IOV];
        struct filling f = {v, 0, MAX_IOV, 0};
        int64_t n;

        for (struct wf_outgoing *o = l->first; o && add_frame(&f, o); o = o->next)
            ;
        n = l->wire->write(l, v, f.n);
        if (n == -EINTR)
            continue;
        if (n == -EAGAIN || n == -EWOULDBLOCK) {
            l->blocked = true;
            sum_ahead(l->first);
            return WEFT_OK;
        }
        if (n < 0)
            return wf_err(WEFT_EPEER, "writing: %s",
                          n == -EPROTO ? l->wire_error : wf_errno_text((int)-n));
        advance(l, n);
    }
    return WEFT_OK;
}

weft_status wf_sendq_write(struct wf_link *l)
{
    bool wake = false;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&l->out);
    if ((l->state == WF_LINK_HELLO || l->state == WF_LINK_UP) && !l->blocked && !l->broken) {
        st = write_some(l);
        wake = l->blocked || st || l->closing;
        if (st && !l->broken) {
            l->broken = st;
            wf_snprintf(l->why, sizeof l->why, "%s", weft_error());
        }
    }
    pthread_mutex_unlock(&l->out);
    if (wake)
        wf_net_wake(l->net);
    finish(l);
    return st;
}

void wf_sendq_clear(struct wf_link *l, weft_status st)
{
    pthread_mutex_lock(&l->out);
    while (l->first) {
        struct wf_outgoing *o = l->first;

        l->first = o->next;
        set_done(l, o, st ? st : WEFT_EPEER);
    }
    l->last = &l->first;
    l->n_queued = 0;
    pthread_mutex_unlock(&l->out);
    finish(l);
}
