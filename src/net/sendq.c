/* sendq.c - what a link sends: a queue of frames, written from where their bytes are. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "net/link.h"

enum {
    MAX_IOV = 64,
    PROOF = 32 << 20, /* more than the system keeps between two processes: the peer has read some */
    PULL = 1 << 20,   /* bytes that a peer takes at a time: others want the mutex, too */
    PASSED = 1024,    /* bytes of a frame that need not be queued */
    STAGED = 4096,    /* smaller payloads are read together with what follows */
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
        wf_region_drop(o->region);
        wf_free(l->net->ctx, o);
        any = true;
        pthread_mutex_lock(&l->out);
    }
    l->finishing = false;
    pthread_mutex_unlock(&l->out);
    if (any)
        wf_net_happened(l->net);
}

/* n bytes were taken by the system. */
static void prove(struct wf_link *l, int64_t n)
{
    l->unproved += n;
    if (l->unproved > PROOF) {
        l->unproved = 0;
        l->proved_ns = wf_now(l->net->ctx);
    }
}

static void put_crc(uint8_t out[WF_FRAME_TAIL], uint32_t crc)
{
    for (int i = 0; i < WF_FRAME_TAIL; i++)
        out[i] = (uint8_t)(crc >> 8 * i);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* f->n_head bytes of heads: `head`, and then the n_refs of `refs`. */
static struct wf_outgoing *new_outgoing(struct wf_link *l, const struct wf_frame *f,
                                        const void *head, const uint8_t *refs, int n_refs,
                                        const struct wf_part *part, int n_parts)
{
    size_t parts = (size_t)n_parts * sizeof *part, n_head = (size_t)(f->n_head - n_refs);
    struct wf_outgoing *o = wf_alloc_raw(l->net->ctx, sizeof *o + parts + (size_t)f->n_head);

    if (!o)
        return NULL;
    *o = (struct wf_outgoing){.frame = *f, .n_parts = n_parts};
    o->part = (struct wf_part *)(void *)(o + 1);
    o->head = (uint8_t *)o->part + parts;
    if (n_parts)
        memcpy(o->part, part, parts);
    if (n_head)
        memcpy(o->head, head, n_head);
    if (n_refs)
        memcpy(o->head + n_head, refs, (size_t)n_refs);
    wf_frame_encode(f, o->head, o->header);
    o->striped = f->flags & WF_FRAME_STRIPED;
    o->n = WF_FRAME_HEADER + f->n_head + (o->striped ? 0 : f->n_payload) +
           (f->flags & WF_FRAME_SUMMED ? WF_FRAME_TAIL : 0);
    return o;
}

static void append(struct wf_link *l, struct wf_outgoing *o, bool front)
{
    if (!l->first)
        l->moved_ns = wf_now(l->net->ctx);
    if (l->kind == WF_ADDRESS_INPROC)
        o->queued_ns = wf_now(l->net->ctx);
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

/* The payload as references to regions, if it lies in such. */
static int find_refs(struct wf_link *l, const struct wf_msg *m, uint8_t *refs)
{
    int n = 0;

    if (!l->regions || m->n_parts == 0)
        return 0;
    pthread_mutex_lock(&l->out);
    n = wf_region_refs(l, m, refs);
    pthread_mutex_unlock(&l->out);
    return m->n_head + n <= WF_FRAME_MAX_HEAD ? n : 0;
}

/* ---- without a queue ------------------------------------------------------------------------- */

/* Whether nothing is before a message, and a ring has space for all of it. With the mutex. */
static bool can_pass(const struct wf_link *l, int64_t bytes)
{
    return l->state == WF_LINK_UP && !l->first && !l->done && !l->finishing && !l->blocked &&
           !l->broken && !l->closing && (!l->shm || wf_shm_room(l, bytes));
}

/* The bytes of a frame, one after the other. */
static void flatten(const struct wf_frame *f, const struct wf_msg *m, uint8_t *out)
{
    uint8_t *payload = out + WF_FRAME_HEADER + f->n_head, *p = payload;

    wf_frame_encode(f, m->head, out);
    if (f->n_head)
        memcpy(out + WF_FRAME_HEADER, m->head, (size_t)f->n_head);
    for (int i = 0; i < m->n_parts; p += m->part[i++].n)
        if (m->part[i].n)
            memcpy(p, m->part[i].p, (size_t)m->part[i].n);
    if (f->flags & WF_FRAME_SUMMED)
        put_crc(p, wf_crc32c(0, payload, f->n_payload));
}

/* What was not written of a message is queued. With the mutex. */
static weft_status queue_rest(struct wf_link *l, const struct wf_frame *f, const struct wf_msg *m,
                              wf_sent_fn *sent, void *arg, int64_t at)
{
    struct wf_outgoing *o = new_outgoing(l, f, m->head, NULL, 0, m->part, m->n_parts);

    if (!o) { /* half of it is sent: nothing can follow */
        l->broken = wf_err_nomem(l->net->ctx, sizeof *o, "a message");
        wf_snprintf(l->why, sizeof l->why, "%s", weft_error());
        return l->broken;
    }
    o->sent = sent;
    o->arg = arg;
    append(l, o, false);
    o->at = at;
    return WEFT_OK;
}

/* The end of a message that is in nobody's queue. */
static void passed(struct wf_link *l, wf_sent_fn *sent, void *arg, weft_status st)
{
    if (!sent)
        return;
    sent(arg, st);
    pthread_mutex_lock(&l->out);
    l->finishing = false;
    pthread_mutex_unlock(&l->out);
    finish(l);
    wf_net_happened(l->net);
}

/* A small message is written from where the caller is, with one call of the system at most: that is
 * faster than keeping a copy of its head and a note about it. False: it takes the usual way. */
static bool pass(struct wf_link *l, const struct wf_frame *f, const struct wf_msg *m,
                 wf_sent_fn *sent, void *arg, struct wf_pending *pending)
{
    uint8_t bytes[PASSED];
    int64_t size = WF_FRAME_HEADER + f->n_head + f->n_payload +
                   (f->flags & WF_FRAME_SUMMED ? WF_FRAME_TAIL : 0);
    struct iovec v = {bytes, (size_t)size};
    weft_status st = WEFT_OK;
    int64_t n = -EPIPE;

    if (l->kind == WF_ADDRESS_INPROC || size > PASSED)
        return false;
    flatten(f, m, bytes);
    pthread_mutex_lock(&l->out);
    if (can_pass(l, size)) {
        n = l->wire->write(l, &v, 1);
        n = n == -EAGAIN || n == -EINTR ? 0 : n;
    }
    if (n >= 0 && n < size)
        st = queue_rest(l, f, m, sent, arg, n);
    if (n >= 0 && pending) {
        pending->next = l->pending;
        l->pending = pending;
    }
    if (n >= 0)
        prove(l, n);
    l->finishing |= (n == size || st) && sent;
    pthread_mutex_unlock(&l->out);
    if (n == size || st)
        passed(l, sent, arg, st);
    else if (n >= 0)
        wf_sendq_write(l);
    if (st)
        wf_net_wake(l->net);
    return n >= 0;
}

weft_status wf_sendq_add(struct wf_link *l, const struct wf_frame *f, const struct wf_msg *m,
                         wf_sent_fn *sent, void *arg, struct wf_pending *pending)
{
    const struct wf_net_opts *opts = &l->net->opts;
    struct wf_frame frame = *f;
    struct wf_outgoing *o;
    uint8_t refs[WF_MAX_REFS * 24 + 1];
    bool shares = l->kind == WF_ADDRESS_SHM || l->kind == WF_ADDRESS_INPROC;
    weft_status st = measure(l, m, &frame.n_payload);
    int n_refs;

    if (st)
        return st;
    n_refs = find_refs(l, m, refs);
    frame.kind = m->kind;
    frame.n_head = m->n_head + n_refs;
    if (n_refs)
        frame.flags |= WF_FRAME_REGIONAL;
    if (n_refs && shares)
        frame.n_payload = 0;
    if (wf_sides_carry(l, frame.n_payload)) /* stripes have their own checksums */
        frame.flags |= WF_FRAME_STRIPED;
    else if (frame.n_payload && l->kind == WF_ADDRESS_TCP && !opts->no_checksums)
        frame.flags |= WF_FRAME_SUMMED;
    if (!n_refs && pass(l, &frame, m, sent, arg, pending))
        return WEFT_OK;
    o = new_outgoing(l, &frame, m->head, refs, n_refs, m->part, n_refs && shares ? 0 : m->n_parts);
    if (!o)
        return wf_err_nomem(l->net->ctx, sizeof *o, "a message");
    o->sent = sent;
    o->arg = arg;
    o->lent = n_refs > 0;
    pthread_mutex_lock(&l->out);
    st = check_open(l);
    if (!st && l->n_queued + l->n_lent >= opts->max_queued)
        st = wf_err(WEFT_ELIMIT, "%s: %lld messages are waiting to be sent, %lld to be released",
                    l->name, (long long)l->n_queued, (long long)l->n_lent);
    if (!st) {
        if (o->lent)
            o->slot = ++l->n_slots_out;
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

/* state: that the link is in from here on, if it is not 0. r: a region to be handed over. */
static weft_status add_own(struct wf_link *l, const struct wf_frame *f, const void *head,
                           bool front, int state, struct wf_region *r)
{
    struct wf_outgoing *o = new_outgoing(l, f, head, NULL, 0, NULL, 0);
    weft_status st = WEFT_OK;

    if (!o)
        return wf_err_nomem(l->net->ctx, sizeof *o, "a message");
    pthread_mutex_lock(&l->out);
    if (l->state == WF_LINK_DOWN) { /* what was queued has been given back already */
        st = check_open(l);
    } else {
        if (r)
            wf_region_ref(r);
        o->region = r;
        append(l, o, front);
        if (state)
            l->state = state;
    }
    pthread_mutex_unlock(&l->out);
    if (st)
        wf_free(l->net->ctx, o);
    else
        wf_sendq_write(l);
    return st;
}

weft_status wf_sendq_control(struct wf_link *l, const struct wf_frame *f, const void *head)
{
    return add_own(l, f, head, false, 0, NULL);
}

/* In one step: a thread that sends must not come between the state and the hello. */
weft_status wf_sendq_hello(struct wf_link *l, const struct wf_frame *f, const void *head)
{
    return add_own(l, f, head, true, WF_LINK_HELLO, NULL);
}

weft_status wf_sendq_region(struct wf_link *l, const struct wf_frame *f, const void *head,
                            struct wf_region *r)
{
    weft_status st;

    pthread_mutex_lock(&l->out);
    st = check_open(l);
    pthread_mutex_unlock(&l->out);
    return st ? st : add_own(l, f, head, false, 0, l->kind == WF_ADDRESS_SHM ? r : NULL);
}

/* Stripes arrive before the thread that wrote the last of them has said so: then the message is
 * still the first of its queue. */
static bool release_early(struct wf_link *l, uint64_t slot)
{
    struct wf_outgoing *o = l->first;
    bool early = o && o->striped && o->lent && o->at == o->n && o->slot == slot && !o->released;

    if (early)
        o->released = true;
    return early;
}

weft_status wf_sendq_released(struct wf_link *l, uint64_t slot)
{
    struct wf_outgoing **at, *o;
    bool early;

    pthread_mutex_lock(&l->out);
    for (at = &l->lent; *at && (*at)->slot != slot; at = &(*at)->next)
        ;
    o = *at;
    early = !o && release_early(l, slot);
    if (o) {
        *at = o->next;
        l->n_lent--;
        set_done(l, o, WEFT_OK);
    }
    pthread_mutex_unlock(&l->out);
    finish(l);
    return o || early ? WEFT_OK
                      : wf_err(WEFT_EPEER, "the peer releases slot %llu, which it does not have",
                               (unsigned long long)slot);
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
    put_crc(o->tail, o->crc);
}

/* Adds what can be sent of a frame; false if more of it must be summed first, or there is no more
 * room: nothing may follow it in this call. */
static bool add_frame(struct filling *f, struct wf_outgoing *o)
{
    bool summed = o->frame.flags & WF_FRAME_SUMMED;
    int64_t before = WF_FRAME_HEADER + o->frame.n_head, end = o->frame.n_payload, at = 0;

    if (o->striped)
        end = 0;
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
    prove(l, n);
    while (l->first) {
        struct wf_outgoing *o = l->first;
        int64_t k = wf_min_i64(n, o->n - o->at);

        o->at += k;
        n -= k;
        if (o->at < o->n)
            return;
        if (o->striped && !o->striped_done) {
            wf_sides_begin(l, o);
            return;
        }
        l->said_bye |= o->frame.type == WF_FRAME_BYE;
        l->first = o->next;
        if (!l->first)
            l->last = &l->first;
        l->n_queued--;
        if (o->lent && !o->released) {
            o->next = l->lent;
            l->lent = o;
            l->n_lent++;
        } else {
            set_done(l, o, WEFT_OK);
        }
    }
}

/* The descriptor of a region goes before the frame that tells about it. */
static int64_t give_region(struct wf_link *l)
{
    struct wf_outgoing *o = l->first;
    int64_t rc = 0;

    if (o->region)
        rc = l->wire->give(l, wf_region_fd(o->region));
    if (o->region && rc >= 0) {
        wf_region_drop(o->region);
        o->region = NULL;
    }
    return rc;
}

static weft_status write_some(struct wf_link *l)
{
    while (l->first) {
        struct iovec v[MAX_IOV];
        struct filling f = {v, 0, MAX_IOV, 0};
        int64_t n = give_region(l);

        if (l->first->striped && l->first->at == l->first->n) {
            if (!l->first->striped_done)
                return WEFT_OK; /* its stripes are being written */
            advance(l, 0);
            continue;
        }
        if (n >= 0) {
            /* The descriptor of a later frame is given when that is the first. */
            for (struct wf_outgoing *o = l->first; o && !o->region && add_frame(&f, o); o = o->next)
                ;
            n = l->wire->write(l, v, f.n);
        }
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
    bool wake = false, pulled = false;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&l->out);
    if ((l->state == WF_LINK_HELLO || l->state == WF_LINK_UP) && l->wire->pulled)
        pulled = l->first != NULL;
    else if ((l->state == WF_LINK_HELLO || l->state == WF_LINK_UP) && !l->blocked && !l->broken) {
        st = write_some(l);
        wake = l->blocked || st || l->closing;
        if (st && !l->broken) {
            l->broken = st;
            wf_snprintf(l->why, sizeof l->why, "%s", weft_error());
        }
    }
    pthread_mutex_unlock(&l->out);
    if (pulled)
        wf_inproc_wake_peer(l);
    if (wake)
        wf_net_wake(l->net);
    wf_sides_wake(l);
    finish(l);
    return st;
}

/* ---- being pulled ---------------------------------------------------------------------------- */

/* Room that is being filled. */
struct target {
    const struct iovec *v;
    int n;
    size_t off;
};

/* Up to max bytes, as many as there is room for. */
static int64_t copy_to(struct target *t, const struct iovec *from, int n, int64_t max)
{
    int64_t total = 0;

    for (int i = 0; i < n; i++)
        for (size_t at = 0; at < from[i].iov_len && t->n > 0 && total < max;) {
            size_t k = t->v->iov_len - t->off, left = from[i].iov_len - at;

            k = k < left ? k : left;
            k = (int64_t)k < max - total ? k : (size_t)(max - total);
            if (k)
                memcpy((char *)t->v->iov_base + t->off, (const char *)from[i].iov_base + at, k);
            at += k;
            t->off += k;
            total += (int64_t)k;
            if (t->off == t->v->iov_len) {
                t->v++;
                t->n--;
                t->off = 0;
            }
        }
    return total;
}

/* 0: the first frame may pass; otherwise -EAGAIN or -ECONNRESET. */
static int64_t ask_transit(struct wf_link *l, const struct wf_identity *to)
{
    struct wf_transit t = {.from = &l->net->opts.self,
                           .to = to,
                           .frame = &l->first->frame,
                           .queued_ns = l->first->queued_ns,
                           .now_ns = wf_now(l->net->ctx)};
    int64_t at = l->first->at ? t.now_ns : wf_inproc_transit_ns(l->net->ctx, &t);

    return at == WF_TRANSIT_CUT ? -ECONNRESET : at > t.now_ns ? -EAGAIN : 0;
}

/* A large payload is copied to its place directly: the reader sees its head first. */
static int64_t pull_limit(const struct wf_outgoing *o, int64_t moved)
{
    int64_t before = WF_FRAME_HEADER + o->frame.n_head;

    return o->at < before && o->frame.n_payload >= STAGED ? before - o->at : PULL - moved;
}

int64_t wf_sendq_pull(struct wf_link *l, const struct wf_identity *to, const struct iovec *v, int n,
                      bool *held)
{
    struct target t = {v, n, 0};
    int64_t moved = 0, rc = -EAGAIN;
    bool wake;

    *held = false;
    pthread_mutex_lock(&l->out);
    while (l->first && moved < PULL && (l->state == WF_LINK_HELLO || l->state == WF_LINK_UP)) {
        struct iovec from[MAX_IOV];
        struct filling f = {from, 0, MAX_IOV, 0};
        int64_t max = pull_limit(l->first, moved), k;

        rc = ask_transit(l, to);
        *held = rc == -EAGAIN;
        if (rc)
            break;
        add_frame(&f, l->first);
        k = copy_to(&t, from, f.n, max);
        if (k == 0)
            break;
        moved += k;
        advance(l, k);
        if (k == max)
            break;
    }
    wake = l->closing && !l->first;
    pthread_mutex_unlock(&l->out);
    if (wake)
        wf_net_wake(l->net);
    finish(l);
    return moved ? moved : rc;
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
    while (l->lent) {
        struct wf_outgoing *o = l->lent;

        l->lent = o->next;
        set_done(l, o, st ? st : WEFT_EPEER);
    }
    l->n_lent = 0;
    pthread_mutex_unlock(&l->out);
    finish(l);
}
