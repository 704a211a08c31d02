/* server_clocks.c - pulls of pieces whose versions come lease by lease, and the bound on clocks.
 *
 * A worker's clock is the number of leases that it has closed; one that joins begins at the minimum
 * of the others. Kept true: with a bound s, a pull at clock c is answered only when all workers of
 * the epoch have said how they count, and all that hold leases are at c - s or beyond. */
#include "ps/server.h"

weft_status wf_server_enter_clocks(struct wf_server *s, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_epoch *e = s->view.epoch;
    weft_status st;

    p->n_clock = 0;
    if (s->plan.stale < 0 || p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    st = wf_grow(s->view.ctx, &p->clock, &p->cap_clock, e->n_members, sizeof *p->clock);
    for (int i = 0; i < e->n_members && !st; i++)
        if (e->member[i].role == WF_ROLE_WORKER)
            p->clock[p->n_clock++] = (struct wf_clock){.node = e->member[i].node};
    return st;
}

static struct wf_clock *clock_of(struct wf_server_piece *p, int node)
{
    for (int64_t i = 0; i < p->n_clock; i++)
        if (p->clock[i].node == node)
            return &p->clock[i];
    return NULL;
}

/* Of those that hold leases, but for one; -1: there is none. */
static int64_t minimum(const struct wf_server_piece *p, int but)
{
    int64_t least = -1;

    for (int64_t i = 0; i < p->n_clock; i++)
        if (p->clock[i].active && p->clock[i].node != but &&
            (least < 0 || p->clock[i].clock < least))
            least = p->clock[i].clock;
    return least;
}

void wf_server_take_clock(struct wf_server *s, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    struct wf_clock *c = clock_of(p, m->from);
    struct wf_message *answer;

    if (p->holding != WF_HOLDS_PRIMARY || !c || m->shard < c->number)
        return;
    if (m->shard > c->number) {
        c->number = m->shard;
        c->active = m->block != WF_CLOCK_PARKED;
        c->clock = wf_max_i64(c->clock, m->t);
        if (m->block == WF_CLOCK_JOINS)
            c->clock = wf_max_i64(c->clock, minimum(p, m->from));
    }
    answer = wf_server_send(s, out, WF_MSG_CLOCKED, m->from, m->piece, c->clock);
    if (answer)
        answer->shard = c->number;
}

/* A worker is known to be at this clock. */
void wf_server_note_clock(struct wf_server *s, int piece, int node, int64_t clock)
{
    struct wf_clock *c = clock_of(&s->piece[piece], node);

    if (c)
        c->clock = wf_max_i64(c->clock, clock);
}

/* Whether a pull at this clock need not wait. */
static bool may_read(const struct wf_server *s, const struct wf_server_piece *p, int64_t clock)
{
    if (s->plan.stale < 0)
        return true;
    for (int64_t i = 0; i < p->n_clock; i++)
        if (p->clock[i].number == 0)
            return false;
    for (int64_t i = 0; i < p->n_clock; i++)
        if (p->clock[i].active && p->clock[i].clock < clock - s->plan.stale)
            return false;
    return true;
}

weft_status wf_server_take_want(struct wf_server *s, const struct wf_message *m)
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
    wf_server_note_clock(s, m->piece, m->from, m->t);
    p->want[i] = (struct wf_want){m->from, m->t, false, m->lease};
    p->n_want = wf_max_i64(p->n_want, i + 1);
    return WEFT_OK;
}

/* Answers pulls, from what the copies have, too. */
void wf_server_serve(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    int64_t kept = 0;

    for (int64_t i = 0; i < p->n_want; i++) {
        struct wf_want w = p->want[i];
        struct wf_message *m;

        if (!p->open || !may_read(s, p, w.t)) {
            p->want[kept++] = w;
            continue;
        }
        m = wf_server_send(s, out, WF_MSG_VERSION, w.node, piece, p->version);
        if (m)
            m->lease = w.lease;
    }
    p->n_want = kept;
}

/* Rows of the present version. Who reads them has pulled the piece for the same lease, and its
 * clock was not too far ahead then. */
weft_status wf_server_take_rows(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    struct wf_message *answer;
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY || !p->open)
        return WEFT_OK;
    st = s->data.read(s->data.arg, m->piece, p->version, m->payload);
    if (st)
        return st;
    answer = wf_server_send(s, out, WF_MSG_ROWS, m->from, m->piece, p->version);
    if (answer)
        answer->block = m->block;
    return WEFT_OK;
}
