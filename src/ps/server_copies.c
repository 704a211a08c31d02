/* server_copies.c - the copies of a piece: backups, and targets that are filled.
 *
 * Kept true: a copy applies records in order and misses none; a target counts from the moment it is
 * complete. */
#include "ps/server.h"

/* ---- a primary's side ------------------------------------------------------------------------ */

/* With leases, a version that the backup is not known to have may never count: if this primary
 * dies, another one may come in its place. No target gets it before. (With steps a version is the
 * same whoever makes it.) */
static bool may_fill(const struct wf_server *s, int piece)
{
    return !s->plan.window || s->piece[piece].open;
}

/* Opens a primary, or first asks its copies what they have. */
void wf_server_ask_copies(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);

    if (h->target != WF_NOBODY && may_fill(s, piece))
        wf_server_send(s, out, WF_MSG_SYNC, h->target, piece, p->version);
    if (h->backup != WF_NOBODY && !p->open)
        wf_server_send(s, out, WF_MSG_SYNC, h->backup, piece, p->version);
}

void wf_server_fill_more(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_message *m;

    /* a block must not miss a record that is already on its way */
    if (wf_server_holders(s, piece)->target == WF_NOBODY || p->phase == WF_PHASE_RECORD ||
        p->sent >= s->plan.n_blocks || !may_fill(s, piece))
        return;
    m = wf_server_send(s, out, WF_MSG_FILL, wf_server_holders(s, piece)->target, piece, p->version);
    if (m) {
        m->block = p->sent;
        m->decided = wf_server_knows(s, p->version - 1);
        if (s->plan.window) {
            m->lease = p->applied.base;
            m->bits = p->applied.bits;
            m->n_words = p->applied.n_words;
        }
    }
}

/* From now on nothing is announced that the target lacks: it may become the backup at any time, or
 * the primary. A target that was filled has no record of the last step, so the backup must not lack
 * that step any more. */
void wf_server_check_lockstep(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    if (wf_server_holders(s, piece)->target == WF_NOBODY || p->lockstep ||
        p->phase == WF_PHASE_RECORD || !p->open || p->target_at != p->version)
        return;
    p->lockstep = true;
    wf_server_send(s, out, WF_MSG_FILLED, s->view.chief, piece, p->version);
}

void wf_server_send_records(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);

    if (s->plan.window) {
        wf_server_send_lease(s, out, piece);
        return;
    }
    if (h->backup != WF_NOBODY && !p->backup_has)
        wf_server_send(s, out, WF_MSG_RECORD, h->backup, piece, p->version);
    if (h->target != WF_NOBODY && !p->target_has)
        wf_server_send(s, out, WF_MSG_RECORD, h->target, piece, p->version);
}

weft_status wf_server_take_recorded(struct wf_server *s, const struct wf_message *m,
                                    struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    const struct wf_holders *h = wf_server_holders(s, m->piece);

    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    if (m->t == p->version && p->phase == WF_PHASE_RECORD) {
        p->backup_has |= m->from == h->backup;
        p->target_has |= m->from == h->target;
    }
    if (m->from == h->target) {
        p->target_at = wf_max_i64(p->target_at, m->t + 1);
        wf_server_check_lockstep(s, out, m->piece);
    }
    st = wf_server_try_apply(s, out, m->piece);
    if (!st && m->from == h->backup) /* it was sent no record before the last in this epoch */
        wf_server_open(s, out, m->piece);
    return st;
}

/* What a copy lacks that is one step behind: the record of that step. It is kept until the next one
 * is made, and that cannot be before the backup has it. A target may still lack it then; if that
 * next step came to nothing here, the target is filled again. */
static void send_last(struct wf_server *s, struct wf_actions *out, int piece, int to)
{
    struct wf_server_piece *p = &s->piece[piece];

    if (p->record_t == p->version - 1) {
        wf_server_send(s, out, WF_MSG_RECORD, to, piece, p->version - 1);
    } else if (to == wf_server_holders(s, piece)->target) {
        p->sent = 0;
        wf_server_fill_more(s, out, piece);
    }
}

/* A copy says what version it is at. */
void wf_server_take_synced(struct wf_server *s, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    const struct wf_holders *h = wf_server_holders(s, m->piece);

    if (p->holding != WF_HOLDS_PRIMARY || (m->from != h->backup && m->from != h->target))
        return;
    if (m->from == h->target) {
        p->target_at = m->t;
        p->sent = s->plan.n_blocks;
    }
    if (m->t < p->version && p->phase == WF_PHASE_COLLECT &&
        (m->from == h->backup || may_fill(s, m->piece)))
        send_last(s, out, m->piece, m->from);
    if (m->from == h->target) {
        wf_server_check_lockstep(s, out, m->piece);
    } else if (m->t >= p->version) {
        wf_server_open(s, out, m->piece);
    }
}

void wf_server_take_fill_next(struct wf_server *s, const struct wf_message *m,
                              struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];

    if (p->holding != WF_HOLDS_PRIMARY || m->from != wf_server_holders(s, m->piece)->target ||
        p->lockstep)
        return;
    p->sent = m->block;
    p->target_at = -1;
    wf_server_fill_more(s, out, m->piece);
}

/* ---- a copy's side --------------------------------------------------------------------------- */

static bool is_complete(const struct wf_server *s, const struct wf_server_piece *p)
{
    for (int b = 0; b < s->plan.n_blocks; b++)
        if (p->block_at[b] < 0 || p->block_at[b] != p->block_at[0])
            return false;
    return true;
}

void wf_server_ask_next(struct wf_server *s, struct wf_actions *out, int piece, int to)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_message *m;
    int64_t newest = -1;
    int next = 0;

    if (is_complete(s, p)) {
        p->version = p->block_at[0];
        wf_server_send(s, out, WF_MSG_SYNCED, to, piece, p->version);
        return;
    }
    p->version = -1;
    for (int b = 0; b < s->plan.n_blocks; b++)
        newest = wf_max_i64(newest, p->block_at[b]);
    while (p->block_at[next] >= 0 && p->block_at[next] == newest) /* others lack a record */
        next++;
    m = wf_server_send(s, out, WF_MSG_FILL_NEXT, to, piece, 0);
    if (m)
        m->block = next;
}

void wf_server_start_over(struct wf_server *s, int piece)
{
    for (int b = 0; b < s->plan.n_blocks; b++)
        s->piece[piece].block_at[b] = -1;
    s->piece[piece].version = s->piece[piece].applied_at = s->piece[piece].record_t = -1;
}

static weft_status record_at_target(struct wf_server *s, const struct wf_message *m,
                                    struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st = WEFT_OK;
    bool any = false, gap = false;

    for (int b = 0; b < s->plan.n_blocks; b++)
        any |= p->block_at[b] == m->t;
    if (any) {
        st = s->data.record(s->data.arg, m->piece, m->t, m->payload);
        p->record_t = m->t;
    }
    for (int b = 0; b < s->plan.n_blocks && !st; b++) {
        if (p->block_at[b] == m->t) {
            st = s->data.apply(s->data.arg, m->piece, b, m->t);
            p->block_at[b]++;
        } else if (p->block_at[b] >= 0 && p->block_at[b] < m->t) {
            gap = true;
        }
    }
    if (st)
        return st;
    wf_server_note_record(s, m);
    if (gap)
        wf_server_start_over(s, m->piece);
    if (is_complete(s, p) && p->block_at[0] > m->t) {
        p->version = p->block_at[0];
        wf_server_send(s, out, WF_MSG_RECORDED, m->from, m->piece, m->t);
    } else if (gap) {
        wf_server_ask_next(s, out, m->piece, m->from);
    }
    return WEFT_OK;
}

weft_status wf_server_take_record(struct wf_server *s, const struct wf_message *m,
                                  struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st = WEFT_OK;

    if (s->plan.window && p->holding == WF_HOLDS_PRIMARY)
        return wf_server_take_back(s, m, out);
    if (m->from != wf_server_holders(s, m->piece)->primary)
        return WEFT_OK;
    if (p->holding == WF_HOLDS_TARGET) {
        st = record_at_target(s, m, out);
    } else if (p->holding == WF_HOLDS_BACKUP) {
        if (m->t == p->version) {
            st = s->data.record(s->data.arg, m->piece, m->t, m->payload);
            if (!st)
                st = s->data.apply(s->data.arg, m->piece, -1, m->t);
            if (st)
                return st;
            p->record_t = p->version++;
            wf_server_note_record(s, m);
        }
        if (m->t < p->version)
            wf_server_send(s, out, WF_MSG_RECORDED, m->from, m->piece, m->t);
    }
    return st || s->plan.n_rounds == 0 ? st : wf_server_take_decision(s, m->t, m->payload, out);
}

weft_status wf_server_take_fill(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st;

    if (p->holding != WF_HOLDS_TARGET || m->from != wf_server_holders(s, m->piece)->primary ||
        m->block < 0 || m->block >= s->plan.n_blocks || !wf_server_note_fill(s, m))
        return WEFT_OK;
    if (p->block_at[m->block] < m->t) {
        st = s->data.fill(s->data.arg, m->piece, m->block, m->t, m->payload);
        if (st)
            return st;
        p->block_at[m->block] = m->t;
    }
    wf_server_ask_next(s, out, m->piece, m->from);
    /* another piece may still be at that step, and its primary may be this server */
    return m->decided ? wf_server_take_decision(s, m->t - 1, m->payload, out) : WEFT_OK;
}
