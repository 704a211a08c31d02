/* chief.c - the chief of a job: terms, epochs, deaths, checkpoints. */
#include "cluster/chief.h"

weft_status wf_chief_init(struct wf_chief *c, weft_ctx *ctx, const struct wf_chief_plan *plan,
                          int node)
{
    *c = (struct wf_chief){.ctx = ctx, .plan = *plan, .node = node, .ticked_ns = -1};
    c->known = wf_alloc_n(ctx, plan->n_nodes + 1, sizeof *c->known);
    c->filled = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->filled);
    c->saved = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->saved);
    if (c->known && c->filled && c->saved)
        return WEFT_OK;
    wf_chief_free(c);
    return wf_err_nomem(ctx, sizeof *c->known, "chief");
}

void wf_chief_free(struct wf_chief *c)
{
    wf_free(c->ctx, c->known);
    wf_free(c->ctx, c->filled);
    wf_free(c->ctx, c->saved);
    wf_epoch_free(c->ctx, c->epoch);
    wf_epoch_free(c->ctx, c->next);
    c->known = NULL;
    c->filled = NULL;
    c->saved = NULL;
    c->epoch = c->next = NULL;
}

static void send(struct wf_chief *c, struct wf_actions *out, enum wf_message_type type, int to)
{
    struct wf_action *act = wf_actions_add(out, WF_ACT_SEND);

    if (!act)
        return;
    act->msg = (struct wf_message){.type = type,
                                   .from = c->node,
                                   .to = to,
                                   .role = WF_ROLE_CHIEF,
                                   .term = c->term,
                                   .epoch = c->epoch ? c->epoch->number : 0,
                                   .history = c->epoch ? c->epoch->history : 0,
                                   .record = type == WF_MSG_EPOCH ? c->epoch : NULL};
}

/* The time of an event. While this process did not run, it could not hear anybody. */
static void set_now(struct wf_chief *c, int64_t now)
{
    int64_t late = c->ticked_ns < 0 ? 0 : now - c->ticked_ns - 2 * c->plan.tick_ns;

    c->now = now;
    if (late <= 0)
        return;
    for (int n = 0; n < c->plan.n_nodes; n++)
        c->known[n].heard_ns += late;
    c->chief_ns += late;
    c->ticked_ns = now;
}

/* ---- terms ----------------------------------------------------------------------------------- */

static void stand_by(struct wf_chief *c)
{
    c->state = WF_CHIEF_STANDBY;
    c->chief_ns = c->now;
    wf_epoch_free(c->ctx, c->next);
    c->next = NULL;
}

static void see_term(struct wf_chief *c, uint64_t term)
{
    if (term > c->highest)
        c->highest = term;
    if (c->highest > c->term && c->state == WF_CHIEF_ACTS)
        stand_by(c);
}

static void read_store(struct wf_chief *c, struct wf_actions *out)
{
    c->state = WF_CHIEF_READING;
    wf_actions_add(out, WF_ACT_READ);
}

static void new_epoch(struct wf_chief *c, struct wf_epoch *e)
{
    bool restored = !c->epoch || c->epoch->history != e->history;

    wf_epoch_free(c->ctx, c->epoch);
    c->epoch = e;
    for (int i = 0; i < c->plan.n_pieces; i++) {
        c->filled[i] = false;
        if (restored)
            c->saved[i] = -1;
    }
}

/* Members of the record get the whole timeout to say that they are alive. */
static void begin_to_act(struct wf_chief *c, struct wf_actions *out)
{
    c->state = WF_CHIEF_ACTS;
    for (int i = 0; c->epoch && i < c->epoch->n_members; i++) {
        const struct wf_member *m = &c->epoch->member[i];

        c->known[m->node] =
            (struct wf_known){true, m->role, m->incarnation, c->now, 0, false, false};
        send(c, out, WF_MSG_EPOCH, m->node);
    }
}

static weft_status take_read(struct wf_chief *c, const struct wf_store_answer *a,
                             struct wf_actions *out)
{
    struct wf_epoch *e;
    struct wf_action *act;
    weft_status st;

    if (c->state != WF_CHIEF_READING && c->state != WF_CHIEF_ACTS)
        return WEFT_OK;
    c->has_manifest = a->has_manifest;
    c->manifest_history = a->history;
    c->manifest = a->t;
    if (a->epoch && (!c->epoch || a->epoch->number > c->epoch->number)) {
        st = wf_epoch_copy(c->ctx, a->epoch, &e);
        if (st)
            return st;
        new_epoch(c, e);
    }
    see_term(c, a->term);
    if (c->state == WF_CHIEF_ACTS || c->state == WF_CHIEF_STANDBY)
        return WEFT_OK;
    if (c->term && c->term == c->highest) { /* somebody created the epoch that this one wanted */
        begin_to_act(c, out);
        return WEFT_OK;
    }
    if (c->highest > 0 && c->now - c->chief_ns <= c->plan.timeout_ns) {
        c->state = WF_CHIEF_STANDBY;
        return WEFT_OK;
    }
    c->state = WF_CHIEF_TAKING;
    act = wf_actions_add(out, WF_ACT_CREATE_TERM);
    if (act)
        act->number = c->highest + 1;
    return WEFT_OK;
}

/* ---- epochs ---------------------------------------------------------------------------------- */

/* Creates the next epoch in the store, if there is anything to change. */
static weft_status propose(struct wf_chief *c, struct wf_actions *out)
{
    struct wf_action *act;
    bool changed;
    weft_status st;

    if (c->state != WF_CHIEF_ACTS || c->next)
        return WEFT_OK;
    st = wf_assign(c, &c->next, &changed);
    if (st || !changed)
        return st;
    act = wf_actions_add(out, WF_ACT_CREATE_EPOCH);
    if (act)
        act->record = c->next;
    return WEFT_OK;
}

static void take_epoch(struct wf_chief *c, const struct wf_store_answer *a, struct wf_actions *out)
{
    if (c->state != WF_CHIEF_ACTS || !c->next)
        return;
    if (!a->ok) { /* a former chief was late: its epoch counts, and this one's must follow it */
        wf_epoch_free(c->ctx, c->next);
        c->next = NULL;
        read_store(c, out);
        return;
    }
    new_epoch(c, c->next);
    c->next = NULL;
    for (int i = 0; i < c->epoch->n_members; i++)
        send(c, out, WF_MSG_EPOCH, c->epoch->member[i].node);
}

weft_status wf_chief_answer(struct wf_chief *c, int64_t now, const struct wf_store_answer *a,
                            struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    set_now(c, now);
    switch (a->to) {
    case WF_ACT_READ: st = take_read(c, a, out); break;
    case WF_ACT_CREATE_TERM:
        if (c->state != WF_CHIEF_TAKING)
            break;
        if (a->ok) {
            c->term = c->highest = a->term;
            begin_to_act(
                c, out); /* the store was read before; an epoch since then makes the next fail */
        } else {
            stand_by(c);
        }
        break;
    case WF_ACT_CREATE_EPOCH: take_epoch(c, a, out); break;
    case WF_ACT_CREATE_MANIFEST:
        c->saving = false;
        if (a->ok && (!c->has_manifest || a->history > c->manifest_history ||
                      (a->history == c->manifest_history && a->t > c->manifest))) {
            c->has_manifest = true;
            c->manifest_history = a->history;
            c->manifest = a->t;
        }
        break;
    default: break;
    }
    if (!st)
        st = propose(c, out);
    return st ? st : out->st;
}

/* ---- members --------------------------------------------------------------------------------- */

static void hear(struct wf_chief *c, const struct wf_message *m)
{
    struct wf_known *k = &c->known[m->from];

    if (k->heard && m->incarnation < k->incarnation) /* of a process that is gone */
        return;
    if (!k->heard || m->incarnation > k->incarnation)
        *k = (struct wf_known){.heard = true, .incarnation = m->incarnation};
    k->role = m->role;
    k->heard_ns = c->now;
    k->epoch = m->epoch;
    k->done |= m->type == WF_MSG_DONE;
    k->leaves |= m->type == WF_MSG_LEAVE;
}

/* All pieces are in the checkpoint store at one version: it can be restored. */
static void take_saved(struct wf_chief *c, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_action *act;

    if (!c->epoch || m->history != c->epoch->history)
        return;
    c->saved[m->piece] = wf_max_i64(c->saved[m->piece], m->t);
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (c->saved[i] != m->t)
            return;
    if (c->saving || (c->has_manifest && c->manifest_history == m->history && c->manifest >= m->t))
        return;
    act = wf_actions_add(out, WF_ACT_CREATE_MANIFEST);
    if (act) {
        c->saving = true;
        act->number = c->term;
        act->history = m->history;
        act->t = m->t;
    }
}

static void take_filled(struct wf_chief *c, const struct wf_message *m)
{
    if (c->epoch && m->epoch == c->epoch->number &&
        c->epoch->holders[m->piece].primary == m->from &&
        wf_epoch_has(c->epoch, m->from, m->incarnation))
        c->filled[m->piece] = true;
}

weft_status wf_chief_step(struct wf_chief *c, int64_t now, const struct wf_message *m,
                          struct wf_actions *out)
{
    bool is_piece = m->piece >= 0 && m->piece < c->plan.n_pieces;
    weft_status st = WEFT_OK;

    set_now(c, now);
    if (m->from < 0 || m->from >= c->plan.n_nodes)
        return WEFT_OK;
    see_term(c, m->term);
    if (m->role == WF_ROLE_CHIEF && m->term >= c->highest && m->from != c->node)
        c->chief_ns = now;
    /* somebody takes this one for the chief, as a former process of it was in the store */
    if (c->state == WF_CHIEF_STANDBY && m->role != WF_ROLE_CHIEF)
        read_store(c, out);
    if (c->state != WF_CHIEF_ACTS || m->role == WF_ROLE_CHIEF)
        return out->st;
    hear(c, m);
    if (m->type == WF_MSG_FILLED && is_piece)
        take_filled(c, m);
    if (m->type == WF_MSG_SAVED && is_piece)
        take_saved(c, m, out);
    st = propose(c, out);
    return st ? st : out->st;
}

weft_status wf_chief_lost(struct wf_chief *c, int64_t now, int node, uint64_t incarnation,
                          struct wf_actions *out)
{
    struct wf_known *k = &c->known[node];
    weft_status st;

    set_now(c, now);
    if (k->heard && k->incarnation == incarnation)
        k->heard_ns = now - c->plan.timeout_ns - 1;
    st = propose(c, out);
    return st ? st : out->st;
}

/* ---- time ------------------------------------------------------------------------------------ */

weft_status wf_chief_tick(struct wf_chief *c, int64_t now, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    set_now(c, now);
    c->ticked_ns = now;
    if (c->state == WF_CHIEF_STANDBY) {
        if (c->highest == 0 || now - c->chief_ns > c->plan.timeout_ns)
            read_store(c, out);
    } else if (c->state == WF_CHIEF_ACTS) {
        for (int n = 0; n < c->plan.n_nodes; n++) {
            const struct wf_known *k = &c->known[n];

            if (n == c->node)
                continue;
            if (c->epoch && k->heard && k->role != WF_ROLE_CHIEF && k->epoch < c->epoch->number)
                send(c, out, WF_MSG_EPOCH, n);
            else
                send(c, out, WF_MSG_TERM, n);
        }
        if (now - c->confirmed_ns > c->plan.timeout_ns) {
            /* a term that nobody uses, because its chief died at once, must not go unseen */
            c->confirmed_ns = now;
            wf_actions_add(out, WF_ACT_READ);
        }
        st = propose(c, out);
    }
    return st ? st : out->st;
}
