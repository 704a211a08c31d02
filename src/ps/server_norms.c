/* server_norms.c - norms over all pieces: partial sums that servers exchange, and what they decide.
 *
 * Kept true: a step has one decision, and who holds a piece after it can tell it. */
#include "ps/server.h"

/* Whether the decision of step t is here. It is kept until the norms of the next step begin: then
 * every piece has taken step t. */
bool wf_server_knows(const struct wf_server *s, int64_t t)
{
    return s->decided_t == t && s->norm_t == t;
}

void wf_server_begin_norms(struct wf_server *s, int64_t t)
{
    if (s->norm_t >= t)
        return;
    s->norm_t = t;
    s->n_decided = 0;
    for (int r = 0; r < 2; r++) {
        memset(s->got[r], 0, (size_t)((s->plan.n_pieces + 63) / 64) * sizeof *s->got[r]);
        s->n_got[r] = 0;
    }
    s->data.begin(s->data.arg, t);
}

static bool holds_primary(const struct wf_epoch *e, int node)
{
    for (int i = 0; i < e->n_pieces; i++)
        if (e->holders[i].primary == node)
            return true;
    return false;
}

weft_status wf_server_share_partial(struct wf_server *s, struct wf_actions *out, int piece)
{
    const struct wf_epoch *e = s->view.epoch;
    struct wf_server_piece *p = &s->piece[piece];

    for (int i = 0; i < e->n_members; i++) {
        struct wf_message *m;

        if (e->member[i].node == s->view.node || !holds_primary(e, e->member[i].node))
            continue;
        m = wf_server_send(s, out, WF_MSG_PARTIAL, e->member[i].node, piece, p->version);
        if (m)
            m->round = p->round;
    }
    if (wf_bits_have(s->got[p->round], piece)) /* a former primary has sent it */
        return WEFT_OK;
    wf_bits_set(s->got[p->round], piece);
    s->n_got[p->round]++;
    return s->data.own_partial(s->data.arg, piece, p->version, p->round);
}

/* Pieces whose round is decided proceed: to the next one, or to their record. */
weft_status wf_server_after_decision(struct wf_server *s, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->plan.n_pieces && !st; i++) {
        struct wf_server_piece *p = &s->piece[i];

        if (p->holding != WF_HOLDS_PRIMARY || p->phase != WF_PHASE_NORMS ||
            p->version != s->norm_t || p->round >= s->n_decided)
            continue;
        if (s->n_decided == s->plan.n_rounds) {
            st = wf_server_begin_record(s, out, i);
            continue;
        }
        p->round++;
        st = s->data.half(s->data.arg, i, p->version);
        if (!st)
            st = wf_server_share_partial(s, out, i);
    }
    return st;
}

weft_status wf_server_try_decide(struct wf_server *s, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    while (s->n_decided < s->plan.n_rounds && s->n_got[s->n_decided] == s->plan.n_pieces && !st) {
        st = s->data.decide(s->data.arg, s->norm_t, s->n_decided);
        if (st)
            return st;
        s->n_decided++;
        if (s->n_decided == s->plan.n_rounds)
            s->decided_t = s->norm_t;
        st = wf_server_after_decision(s, out);
    }
    return st;
}

weft_status wf_server_take_partial(struct wf_server *s, const struct wf_message *m,
                                   struct wf_actions *out)
{
    weft_status st;

    if (m->round < 0 || m->round >= s->plan.n_rounds || m->t <= s->decided_t || m->t < s->norm_t)
        return WEFT_OK;
    wf_server_begin_norms(s, m->t);
    if (wf_bits_have(s->got[m->round], m->piece))
        return WEFT_OK;
    st = s->data.partial(s->data.arg, m->piece, m->t, m->round, m->payload);
    if (st)
        return st;
    wf_bits_set(s->got[m->round], m->piece);
    s->n_got[m->round]++;
    return wf_server_try_decide(s, out);
}

/* All rounds of step t are decided, as somebody says who knows. */
weft_status wf_server_take_decision(struct wf_server *s, int64_t t, const void *payload,
                                    struct wf_actions *out)
{
    weft_status st;

    if (t <= s->decided_t || t < s->norm_t)
        return WEFT_OK;
    wf_server_begin_norms(s, t);
    st = s->data.decision(s->data.arg, t, payload);
    if (st)
        return st;
    s->n_decided = s->plan.n_rounds;
    s->decided_t = t;
    return wf_server_after_decision(s, out);
}

void wf_server_answer_want(struct wf_server *s, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    struct wf_message *answer;

    if (wf_server_knows(s, m->t)) {
        wf_server_send(s, out, WF_MSG_DECISION, m->from, m->piece, m->t);
    } else if (p->holding == WF_HOLDS_PRIMARY && p->version == m->t &&
               p->phase != WF_PHASE_COLLECT && p->round >= m->round) {
        answer = wf_server_send(s, out, WF_MSG_PARTIAL, m->from, m->piece, m->t);
        if (answer)
            answer->round = m->round;
    }
}
