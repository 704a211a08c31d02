/* client.c - a worker of parameter servers as a machine.
 *
 * Kept true: a step is complete when every piece is at the next version; until then its
 * contributions are kept, and sent again to whoever lacks them; a shard is computed from one
 * version of all pieces. */
#include "ps/ps.h"

weft_status wf_client_init(struct wf_client *c, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_client_data *data, int node, uint64_t incarnation,
                           int chief)
{
    *c = (struct wf_client){.plan = *plan, .data = *data, .t = -1};
    wf_view_init(&c->view, ctx, node, WF_ROLE_WORKER, incarnation, chief);
    c->piece = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->piece);
    c->shard = wf_alloc_n(ctx, plan->n_shards + 1, sizeof *c->shard);
    if (c->piece && c->shard)
        return WEFT_OK;
    wf_client_free(c);
    return wf_err_nomem(ctx, sizeof *c->piece, "worker");
}

void wf_client_free(struct wf_client *c)
{
    wf_free(c->view.ctx, c->piece);
    wf_free(c->view.ctx, c->shard);
    c->piece = NULL;
    c->shard = NULL;
    wf_view_free(&c->view);
}

static struct wf_message *send(struct wf_client *c, struct wf_actions *out,
                               enum wf_message_type type, int piece, int64_t t)
{
    struct wf_message *m = wf_view_send(&c->view, out, type, c->view.epoch->holders[piece].primary);

    if (m) {
        m->piece = piece;
        m->t = t;
    }
    return m;
}

static void push(struct wf_client *c, struct wf_actions *out, int shard, int piece)
{
    struct wf_message *m = send(c, out, WF_MSG_PUSH, piece, c->t);

    if (m)
        m->shard = shard;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static bool is_mine(const struct wf_client *c, int shard)
{
    return c->view.epoch->worker[shard] == c->view.node;
}

static bool is_complete(const struct wf_client *c)
{
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (c->piece[i].at <= c->t)
            return false;
    return true;
}

/* Whether all that the shard needs is here; what is not is pulled. */
static bool fetch(struct wf_client *c, struct wf_actions *out, int shard)
{
    bool here = true;

    for (int i = 0; i < c->plan.n_pieces; i++) {
        struct wf_client_piece *p = &c->piece[i];

        if (p->have == c->t || !c->data.needs(c->data.arg, shard, c->t, i))
            continue;
        here = false;
        if (p->pulled < c->t) {
            p->pulled = c->t;
            p->heard_ns = c->now;
            send(c, out, WF_MSG_PULL, i, c->t);
        }
    }
    return here;
}

static void begin_step(struct wf_client *c, int64_t t)
{
    c->t = t;
    for (int i = 0; i < c->plan.n_shards; i++)
        c->shard[i] = WF_SHARD_OPEN;
    c->data.forget(c->data.arg, t);
}

/* Begins what can be begun. */
static void proceed(struct wf_client *c, struct wf_actions *out)
{
    if (!c->view.belongs)
        return;
    while (c->t < c->plan.n_steps && is_complete(c))
        begin_step(c, c->t + 1);
    for (int l = 0; l < c->plan.n_shards && c->t < c->plan.n_steps && !c->computing; l++) {
        struct wf_action *act;

        if (!is_mine(c, l) || c->shard[l] != WF_SHARD_OPEN || !fetch(c, out, l))
            continue;
        act = wf_actions_add(out, WF_ACT_COMPUTE);
        if (!act)
            return;
        act->t = c->t;
        act->shard = l;
        c->shard[l] = WF_SHARD_COMPUTING;
        c->computing = true;
    }
}

weft_status wf_client_computed(struct wf_client *c, int64_t now, int64_t t, int shard,
                               struct wf_actions *out)
{
    c->now = now;
    c->computing = false;
    if (t == c->t && c->shard[shard] == WF_SHARD_COMPUTING) {
        c->shard[shard] = WF_SHARD_DONE;
        for (int i = 0; i < c->plan.n_pieces && c->view.belongs; i++)
            if (c->piece[i].at <= t)
                push(c, out, shard, i);
    }
    proceed(c, out);
    return out->st;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void take_at(struct wf_client *c, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_client_piece *p = &c->piece[m->piece];

    p->heard_ns = c->now;
    p->at = wf_max_i64(p->at, m->t);
    for (int l = 0; l < c->plan.n_shards && m->t == c->t; l++)
        if (c->shard[l] == WF_SHARD_DONE && l / 64 < m->n_words && !(m->bits[l / 64] >> l % 64 & 1))
            push(c, out, l, m->piece);
    proceed(c, out);
}

static weft_status take_version(struct wf_client *c, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_client_piece *p = &c->piece[m->piece];
    weft_status st;

    if (m->t != c->t || p->have == m->t)
        return WEFT_OK;
    st = c->data.take(c->data.arg, m->piece, m->t, m->payload);
    if (st)
        return st;
    p->have = m->t;
    p->heard_ns = c->now;
    proceed(c, out);
    return WEFT_OK;
}

/* A new epoch: other shards are this worker's, other servers hold the pieces. What was not answered
 * is asked again; contributions are sent when primaries announce what they lack. */
static weft_status take_chief(struct wf_client *c, const struct wf_message *m,
                              struct wf_actions *out)
{
    bool belonged = c->view.belongs, changed;
    uint64_t history = belonged ? c->view.epoch->history : 0;
    weft_status st = wf_view_take(&c->view, m, &changed);

    if (st || !changed)
        return st;
    if (!c->view.belongs) {
        if (belonged)
            wf_actions_add(out, WF_ACT_REJOIN);
        return out->st;
    }
    if (c->view.epoch->history != history) {
        for (int i = 0; i < c->plan.n_pieces; i++)
            c->piece[i] = (struct wf_client_piece){c->view.epoch->start, -1, -1, c->now};
        begin_step(c, c->view.epoch->start);
    }
    for (int i = 0; i < c->plan.n_pieces; i++)
        c->piece[i].pulled = -1;
    proceed(c, out);
    return WEFT_OK;
}

weft_status wf_client_step(struct wf_client *c, int64_t now, const struct wf_message *m,
                           struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    c->now = now;
    if (m->type == WF_MSG_EPOCH || m->type == WF_MSG_TERM)
        st = take_chief(c, m, out);
    else if (!wf_view_counts(&c->view, m) || m->piece < 0 || m->piece >= c->plan.n_pieces)
        return WEFT_OK;
    else if (m->type == WF_MSG_AT)
        take_at(c, m, out);
    else if (m->type == WF_MSG_VERSION)
        st = take_version(c, m, out);
    return st ? st : out->st;
}

weft_status wf_client_tick(struct wf_client *c, int64_t now, struct wf_actions *out)
{
    c->now = now;
    if (now - c->beat_ns >= c->plan.retry_ns) {
        c->beat_ns = now;
        wf_view_send(&c->view, out, c->t >= c->plan.n_steps ? WF_MSG_DONE : WF_MSG_BEAT,
                     c->view.chief);
    }
    for (int i = 0; i < c->plan.n_pieces && c->view.belongs && c->t < c->plan.n_steps; i++) {
        struct wf_client_piece *p = &c->piece[i];

        if (now - p->heard_ns < c->plan.retry_ns)
            continue;
        p->heard_ns = now;
        if (p->at <= c->t)
            send(c, out, WF_MSG_ASK, i, c->t);
        if (p->pulled == c->t && p->have != c->t)
            send(c, out, WF_MSG_PULL, i, c->t);
    }
    return out->st;
}
