/* server_tell.c - what a server tells workers: announcements, versions and rows. */
#include "ps/server.h"

void wf_server_send_at(struct wf_server *s, struct wf_actions *out, int to, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_message *m = wf_server_send(s, out, WF_MSG_AT, to, piece, p->version);

    if (m) {
        m->bits = p->arrived;
        m->n_words = s->n_words;
    }
}

/* The last version that may be told: a piece that is not open may be at one that its backup
 * lacks. */
static int64_t told_version(const struct wf_server_piece *p)
{
    return p->version - !p->open;
}

/* Answers pulls of versions that are there now. The previous version is there until all
 * contributions to the next one are: no one needs it then. */
static void serve(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    int64_t kept = 0, last = told_version(p);
    int64_t oldest = p->phase == WF_PHASE_COLLECT ? p->version - 1 : p->version;

    for (int64_t i = 0; i < p->n_want; i++) {
        struct wf_want w = p->want[i];
        int64_t end = w.follow ? last : w.t;

        if (w.t < oldest)
            w.t = w.follow ? wf_max_i64(last, oldest) : w.t;
        for (int64_t t = w.t; t <= end && t >= oldest && w.t <= last; t++)
            wf_server_send(s, out, WF_MSG_VERSION, w.node, piece, t);
        if (w.follow)
            w.t = wf_max_i64(w.t, last + 1);
        if (w.t > last)
            p->want[kept++] = w;
    }
    p->n_want = kept;
}

/* Whether the next version goes to this worker by itself. */
static bool follows(const struct wf_server_piece *p, int node)
{
    for (int64_t i = 0; i < p->n_want; i++)
        if (p->want[i].node == node)
            return p->want[i].follow && p->want[i].t <= p->version;
    return false;
}

/* made: a new version is there, which those that follow get. Otherwise all are told what has
 * arrived. */
void wf_server_announce(struct wf_server *s, struct wf_actions *out, int piece, bool made)
{
    const struct wf_epoch *e = s->view.epoch;

    for (int i = 0; i < e->n_members; i++)
        if (e->member[i].role == WF_ROLE_WORKER &&
            !(made && follows(&s->piece[piece], e->member[i].node)))
            wf_server_send_at(s, out, e->member[i].node, piece);
    serve(s, out, piece);
}

/* The backup is known to have this version. */
void wf_server_open(struct wf_server *s, struct wf_actions *out, int piece)
{
    if (s->piece[piece].open)
        return;
    s->piece[piece].open = true;
    if (!s->plan.window)
        wf_server_announce(s, out, piece, false);
    else /* the target may have waited for this */
        wf_server_ask_copies(s, out, piece);
    wf_server_check_lockstep(s, out, piece);
}

weft_status wf_server_take_pull(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    int64_t i = 0;
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    while (i < p->n_want && p->want[i].node != m->from)
        i++;
    st = wf_grow(s->view.ctx, &p->want, &p->cap_want, i + 1, sizeof *p->want);
    if (st)
        return st;
    p->want[i] = (struct wf_want){m->from, m->t, m->follow, 0};
    p->n_want = wf_max_i64(p->n_want, i + 1);
    serve(s, out, m->piece);
    return WEFT_OK;
}

/* Whoever reads rows of version t computes step t, so all pieces were at t: a primary that is
 * beyond t + 1 has heard that step t is complete, and a reader that has not will. */
weft_status wf_server_take_read(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    struct wf_message *answer;
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY || m->t > p->version || m->t < p->version - 1)
        return WEFT_OK;
    st = s->data.read(s->data.arg, m->piece, m->t, m->payload);
    if (st)
        return st;
    answer = wf_server_send(s, out, WF_MSG_ROWS, m->from, m->piece, m->t);
    if (answer)
        answer->block = m->block;
    return WEFT_OK;
}
