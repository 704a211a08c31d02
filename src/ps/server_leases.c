/* server_leases.c - a piece goes from one version to the next with each lease: pushes are held
 * until they are closed, then they are recorded and applied one after the other.
 *
 * Kept true: a lease is applied once on a piece, by the first that closes it; the version of a
 * piece is the number of leases in it; nothing is applied before the backup has its record, and
 * nothing goes to a target before the backup has it: so a copy is never ahead of one that may be
 * promoted before it. A primary that is to be replaced by its target stops when the target has
 * everything. */
#include "ps/server.h"

weft_status wf_server_init_leases(struct wf_server *s)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->plan.n_pieces && !st; i++) {
        s->piece[i].applied_at = -1;
        st = wf_leases_init(&s->piece[i].applied, s->view.ctx, s->plan.window);
    }
    return st;
}

void wf_server_free_leases(struct wf_server *s)
{
    for (int i = 0; s->piece && i < s->plan.n_pieces; i++) {
        struct wf_server_piece *p = &s->piece[i];

        wf_leases_free(&p->applied, s->view.ctx);
        wf_free(s->view.ctx, p->push);
        wf_free(s->view.ctx, p->clock);
        p->push = NULL;
        p->clock = NULL;
    }
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static int64_t find(const struct wf_server_piece *p, int node, int64_t lease)
{
    int64_t i = 0;

    while (i < p->n_push && (p->push[i].node != node || p->push[i].lease != lease))
        i++;
    return i;
}

static void remove_push(struct wf_server_piece *p, int64_t i)
{
    p->push[i] = p->push[--p->n_push];
}

/* Whether one more push of this worker may be held. */
static bool has_room(const struct wf_server *s, const struct wf_server_piece *p, int node)
{
    int n = 0;

    for (int64_t i = 0; i < p->n_push; i++)
        n += p->push[i].node == node;
    return n < s->plan.inflight;
}

static void acknowledge(struct wf_server *s, struct wf_actions *out, int piece, int node,
                        int64_t lease, int64_t t)
{
    struct wf_message *m = wf_server_send(s, out, WF_MSG_APPLIED, node, piece, t);

    if (m)
        m->lease = lease;
}

/* A part of a push, or its closing record. What is applied already is acknowledged: somebody else
 * was first, or the acknowledgment was lost. */
weft_status wf_server_take_lease(struct wf_server *s, const struct wf_message *m,
                                 struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    int64_t i = find(p, m->from, m->lease);
    bool closes = m->type == WF_MSG_CLOSE;
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    if (wf_leases_bit(&p->applied, m->lease, true)) {
        if (closes && p->open) {
            wf_server_note_clock(s, m->piece, m->from, m->t + 1);
            acknowledge(s, out, m->piece, m->from, m->lease, -1);
        }
        return WEFT_OK;
    }
    if (m->lease >= p->applied.base + (int64_t)p->applied.n_words * 64 ||
        (i < p->n_push && p->push[i].closed) || (i == p->n_push && !has_room(s, p, m->from)) ||
        (i == p->n_push && closes && !m->whole)) /* its gradient is lost: it is sent again, whole */
        return WEFT_OK;
    st = wf_grow(s->view.ctx, &p->push, &p->cap_push, i + 1, sizeof *p->push);
    if (!st)
        st = s->data.hold(s->data.arg, m->piece, m->lease, m->from, m);
    if (st)
        return st;
    p->push[i] =
        (struct wf_push){m->from, m->incarnation, m->lease, m->t, closes ? ++p->n_closed : 0};
    p->n_push = wf_max_i64(p->n_push, i + 1);
    return WEFT_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

/* The backup comes first; what is not lockstep gets records when they are applied. */
void wf_server_send_lease(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);

    if (h->backup != WF_NOBODY && !p->backup_has)
        wf_server_send(s, out, WF_MSG_RECORD, h->backup, piece, p->version);
    else if (p->lockstep && !p->target_has)
        wf_server_send(s, out, WF_MSG_RECORD, h->target, piece, p->version);
}

/* All pushes of the lease that was applied are done; others were computed in vain. */
static void finish(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    for (int64_t i = p->n_push - 1; i >= 0; i--) {
        struct wf_push push = p->push[i];

        if (push.lease != p->record_lease)
            continue;
        s->data.release(s->data.arg, piece, push.lease, push.node);
        remove_push(p, i);
        if (!push.closed)
            continue;
        wf_server_note_clock(s, piece, push.node, push.clock + 1);
        acknowledge(s, out, piece, push.node, push.lease, p->version);
    }
}

/* Updates the piece once all copies have the record. */
weft_status wf_server_try_lease(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);
    weft_status st;

    if (p->phase != WF_PHASE_RECORD || (h->backup != WF_NOBODY && !p->backup_has))
        return WEFT_OK;
    if (p->lockstep && !p->target_has) {
        wf_server_send_lease(s, out, piece);
        return WEFT_OK;
    }
    st = s->data.apply(s->data.arg, piece, -1, p->version);
    if (st)
        return st;
    p->version++;
    wf_leases_apply(&p->applied, p->record_lease);
    p->phase = WF_PHASE_COLLECT;
    p->moved_ns = s->now;
    p->open = true;
    finish(s, out, piece);
    wf_server_save(s, out, piece);
    if (h->target != WF_NOBODY && !p->lockstep) {
        wf_server_send(s, out, WF_MSG_RECORD, h->target, piece, p->version - 1);
        wf_server_fill_more(s, out, piece);
    }
    return WEFT_OK;
}

/* A backup has a record that this primary lacks: it was the primary in between, or this one was and
 * has made no version of the record. It counts, since the backup cannot go back. */
weft_status wf_server_take_back(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st;

    if (m->from != wf_server_holders(s, m->piece)->backup || m->t != p->version)
        return WEFT_OK;
    if (p->phase == WF_PHASE_RECORD) { /* the one that is under way */
        p->backup_has |= m->lease == p->record_lease;
        return wf_server_try_lease(s, out, m->piece);
    }
    st = s->data.record(s->data.arg, m->piece, m->t, m->payload);
    if (!st)
        st = s->data.apply(s->data.arg, m->piece, -1, m->t);
    if (st)
        return st;
    p->record_t = p->version++;
    p->record_lease = m->lease;
    wf_leases_apply(&p->applied, m->lease);
    p->moved_ns = s->now;
    wf_server_open(s, out, m->piece);
    finish(s, out, m->piece);
    wf_server_save(s, out, m->piece);
    return WEFT_OK;
}

/* Whether the next lease may be recorded. */
static bool may_begin(const struct wf_server *s, int piece)
{
    const struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);

    if (p->phase != WF_PHASE_COLLECT || !p->open)
        return false;
    if (p->told_step == s->n_events) /* what was sent in this event is still to be read */
        return false;
    if (p->lockstep) /* it is about to be the primary: it has exactly what this one has */
        return !h->moves;
    /* a target that is complete but for the last record comes into lockstep */
    return h->target == WF_NOBODY || p->target_at < 0 || p->target_at == p->version;
}

/* The push that was closed first. */
static int64_t first_closed(const struct wf_server_piece *p)
{
    int64_t first = -1;

    for (int64_t i = 0; i < p->n_push; i++)
        if (p->push[i].closed && (first < 0 || p->push[i].closed < p->push[first].closed))
            first = i;
    return first;
}

/* Records and applies what is closed, as far as it can be, and answers pulls from the result. */
weft_status wf_server_go(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    int64_t i;
    weft_status st = WEFT_OK;

    if (p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    while (!st && may_begin(s, piece) && (i = first_closed(p)) >= 0) {
        st = s->data.close(s->data.arg, piece, p->version, p->push[i].lease, p->push[i].node);
        if (st)
            break;
        p->record_t = p->version;
        p->record_lease = p->push[i].lease;
        st = wf_server_begin_record(s, out, piece);
    }
    if (!st)
        wf_server_serve(s, out, piece);
    return st;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* A copy has applied a record; a target perhaps only on some of its blocks. */
void wf_server_note_record(struct wf_server *s, const struct wf_message *m)
{
    struct wf_server_piece *p = &s->piece[m->piece];

    if (!s->plan.window)
        return;
    if (p->holding == WF_HOLDS_TARGET) {
        if (p->applied_at != m->t)
            return;
        p->applied_at++;
    }
    wf_leases_apply(&p->applied, m->lease);
    p->record_lease = m->lease;
}

/* A block comes with the leases that are in it; those of the newest block count. */
bool wf_server_note_fill(struct wf_server *s, const struct wf_message *m)
{
    struct wf_server_piece *p = &s->piece[m->piece];

    if (!s->plan.window || m->t <= p->applied_at)
        return true;
    if (!wf_leases_take(&p->applied, m->lease, m->bits, m->n_words))
        return false;
    p->applied_at = m->t;
    return true;
}

/* ---- epochs ---------------------------------------------------------------------------------- */

/* What this server holds has changed, or who belongs to the job. A push that was handed over stays
 * with a primary, but not one whose sender is gone; others lose all of them. What is recorded
 * already needs its push no more. */
weft_status wf_server_enter_leases(struct wf_server *s, int piece, bool fresh)
{
    struct wf_server_piece *p = &s->piece[piece];
    bool keeps = p->holding == WF_HOLDS_PRIMARY && !fresh;

    for (int64_t i = p->n_push - 1; i >= 0; i--) {
        if (keeps && wf_epoch_has(s->view.epoch, p->push[i].node, p->push[i].incarnation))
            continue;
        s->data.release(s->data.arg, piece, p->push[i].lease, p->push[i].node);
        remove_push(p, i);
    }
    if (p->holding == WF_HOLDS_NOTHING)
        wf_leases_clear(&p->applied, 0);
    else if (fresh && p->holding != WF_HOLDS_TARGET)
        wf_leases_start(&p->applied, p->version);
    return wf_server_enter_clocks(s, piece);
}

/* A new chief asks what is applied; what a backup may lack does not count yet. */
void wf_server_report(struct wf_server *s, struct wf_actions *out)
{
    for (int i = 0; i < s->plan.n_pieces && s->view.belongs && s->plan.window; i++) {
        const struct wf_server_piece *p = &s->piece[i];
        struct wf_message *m;

        if (p->holding != WF_HOLDS_PRIMARY || !p->open)
            continue;
        m = wf_server_send(s, out, WF_MSG_LEDGER, s->view.chief, i, p->applied.base);
        if (m) {
            m->bits = p->applied.bits;
            m->n_words = p->applied.n_words;
        }
    }
}
