/* server_steps.c - a piece goes from one version to the next: contributions, record, update.
 *
 * Kept true: a contribution is added once; nothing is applied before all copies have its record. */
#include "ps/server.h"

/* ---- the end of a step ----------------------------------------------------------------------- */

void wf_server_save(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    int64_t leases = s->plan.window ? s->plan.n_shards : 1; /* of a step */
    struct wf_action *act;

    if (s->plan.save_every == 0 || p->version % (s->plan.save_every * leases) != 0 ||
        p->version == 0)
        return;
    p->told_step = s->n_events;
    act = wf_actions_add(out, WF_ACT_SAVE);
    if (act) {
        act->piece = piece;
        act->t = p->version / leases;
        act->history = s->view.epoch->history;
    }
}

void wf_server_next_step(struct wf_server *s, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    p->phase = WF_PHASE_COLLECT;
    p->round = p->n_arrived = 0;
    memset(p->arrived, 0, (size_t)s->n_words * sizeof *p->arrived);
    s->data.clear(s->data.arg, piece);
    p->moved_ns = s->now;
}

/* Updates the piece once all copies have the record. */
weft_status wf_server_try_apply(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);
    weft_status st;

    if (s->plan.window)
        return wf_server_try_lease(s, out, piece);
    if (p->phase != WF_PHASE_RECORD || (h->backup != WF_NOBODY && !p->backup_has) ||
        (p->lockstep && !p->target_has))
        return WEFT_OK;
    st = s->data.apply(s->data.arg, piece, -1, p->version);
    if (st)
        return st;
    p->version++;
    wf_server_next_step(s, piece);
    p->open = true;
    wf_server_announce(s, out, piece, true);
    wf_server_save(s, out, piece);
    wf_server_check_lockstep(s, out, piece);
    wf_server_fill_more(s, out, piece);
    return WEFT_OK;
}

weft_status wf_server_begin_record(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    p->phase = WF_PHASE_RECORD;
    p->backup_has = p->target_has = false;
    p->moved_ns = s->now;
    wf_server_send_records(s, out, piece);
    return wf_server_try_apply(s, out, piece);
}

/* ---- contributions --------------------------------------------------------------------------- */

static weft_status collect(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    bool gone = false;
    weft_status st;

    if (p->phase != WF_PHASE_COLLECT || p->n_arrived < s->plan.n_shards)
        return WEFT_OK;
    p->moved_ns = s->now;
    if (s->plan.n_rounds)
        wf_server_begin_norms(s, p->version);
    p->record_t = p->version;
    st = s->data.reduce(s->data.arg, piece, p->version, &gone);
    if (!st && gone) { /* the step is complete elsewhere, in an epoch that is not known here */
        wf_server_next_step(s, piece);
        if (p->open) /* or that worker has joined again */
            wf_server_announce(s, out, piece, false);
        return WEFT_OK;
    }
    if (st || s->plan.n_rounds == 0)
        return st ? st : wf_server_begin_record(s, out, piece);
    p->phase = WF_PHASE_NORMS;
    p->round = 0;
    if (s->n_decided < s->plan.n_rounds)
        st = wf_server_share_partial(s, out, piece);
    if (!st)
        st = wf_server_after_decision(s, out); /* of rounds in which a former primary took part */
    return st ? st : wf_server_try_decide(s, out);
}

/* One past the last shard of a push; -1: there is no such subtree. */
static int end_of_push(const struct wf_server *s, const struct wf_message *m)
{
    if (m->shard < 0 || m->shard >= s->plan.n_shards || m->level < 0 || m->level > 30 ||
        m->shard & ((1 << m->level) - 1))
        return -1;
    return (int)wf_min_i64(m->shard + ((int64_t)1 << m->level), s->plan.n_shards);
}

/* A push counts completely or not at all: what is partly here is dropped, and the sender told. */
weft_status wf_server_take_push(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    int end = end_of_push(s, m), here = 0;
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY || end < 0)
        return WEFT_OK;
    if (m->t < p->version && p->open)
        wf_server_send_at(s, out, m->from, m->piece);
    if (m->t != p->version || p->phase != WF_PHASE_COLLECT)
        return WEFT_OK;
    for (int l = m->shard; l < end; l++)
        here += wf_bits_have(p->arrived, l);
    if (here > 0) {
        if (here < end - m->shard && p->open)
            wf_server_send_at(s, out, m->from, m->piece);
        return WEFT_OK;
    }
    st = s->data.add(s->data.arg, m->piece, m->t, m->level, m->shard, m->payload);
    if (st)
        return st;
    for (int l = m->shard; l < end; l++)
        wf_bits_set(p->arrived, l);
    p->n_arrived += end - m->shard;
    return collect(s, out, m->piece);
}
