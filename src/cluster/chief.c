/* chief.c - the chief of a job: terms, epochs, deaths, checkpoints. */
#include "cluster/chief.h"

#include "cluster/standby.h"

weft_status wf_chief_init(struct wf_chief *c, weft_ctx *ctx, const struct wf_chief_plan *plan,
                          int node)
{
    weft_status st;

    *c = (struct wf_chief){
        .ctx = ctx, .plan = *plan, .node = node, .ticked_ns = -1, .deaf_ns = -1, .control = -1};
    c->known =
        wf_alloc_n(ctx, (plan->max_nodes ? plan->max_nodes : plan->n_nodes) + 1, sizeof *c->known);
    c->filled = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->filled);
    c->saved = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->saved);
    st = c->known && c->filled && c->saved ? WEFT_OK : wf_err_nomem(ctx, sizeof *c->known, "chief");
    if (!st)
        st = wf_ledger_init(&c->ledger, ctx, &plan->ledger,
                            plan->max_nodes ? plan->max_nodes : plan->n_nodes, plan->n_pieces);
    if (st)
        wf_chief_free(c);
    return st;
}

void wf_chief_free(struct wf_chief *c)
{
    wf_free(c->ctx, c->known);
    wf_free(c->ctx, c->filled);
    wf_free(c->ctx, c->saved);
    wf_epoch_free(c->ctx, c->epoch);
    wf_epoch_free(c->ctx, c->next);
    wf_ledger_free(&c->ledger, c->ctx);
    c->known = NULL;
    c->filled = NULL;
    c->saved = NULL;
    wf_free(c->ctx, c->list);
    c->epoch = c->next = NULL;
    c->list = NULL;
}

struct wf_message *wf_chief_send(const struct wf_chief *c, struct wf_actions *out,
                                 enum wf_message_type type, int to)
{
    struct wf_action *act = wf_actions_add(out, WF_ACT_SEND);

    if (!act)
        return NULL;
    act->msg = (struct wf_message){.type = type,
                                   .from = c->node,
                                   .to = to,
                                   .role = WF_ROLE_CHIEF,
                                   .term = c->term,
                                   .epoch = c->epoch ? c->epoch->number : 0,
                                   .history = c->epoch ? c->epoch->history : 0,
                                   .t = c->control,
                                   .record = type == WF_MSG_EPOCH ? c->epoch : NULL};
    return &act->msg;
}

static void send(struct wf_chief *c, struct wf_actions *out, enum wf_message_type type, int to)
{
    wf_chief_send(c, out, type, to);
}

/* The time of an event. While this process did not run, it could not hear anybody. */
static void set_now(struct wf_chief *c, int64_t now)
{
    int64_t late = c->ticked_ns < 0 ? 0 : now - c->ticked_ns - 2 * c->plan.tick_ns;

    c->now = now;
    if (late <= 0)
        return;
    for (int n = 0; n < c->plan.n_nodes; n++) {
        c->known[n].heard_ns += late;
        c->known[n].behind_ns += c->known[n].behind_ns ? late : 0;
    }
    c->chief_ns += late;
    wf_standby_shift(c, late);
    c->ticked_ns = now;
    if (late > c->plan.timeout_ns / 2)
        c->deaf_ns = now;
}

/* ---- terms ----------------------------------------------------------------------------------- */

static void stand_by(struct wf_chief *c)
{
    c->state = WF_CHIEF_STANDBY;
    wf_standby_hear(c, c->now);
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
    if (restored)
        c->control = -1;
    for (int i = 0; i < c->plan.n_pieces; i++) {
        c->filled[i] = false;
        if (restored)
            c->saved[i] = -1;
    }
    wf_ledger_enter(c);
}

/* A sign of life for those that read the store, too. */
static void confirm(struct wf_chief *c, struct wf_actions *out)
{
    struct wf_action *act = wf_actions_add(out, WF_ACT_READ);

    c->confirmed_ns = c->now;
    if (act)
        act->pulse = c->pulse = c->term << 32 | (uint32_t)(c->pulse + 1);
}

/* Members of the record get the whole timeout to say that they are alive, from when they were asked
 * on. */
static void begin_to_act(struct wf_chief *c, struct wf_actions *out)
{
    c->state = WF_CHIEF_ACTS;
    c->acts_ns = c->now;
    c->doubts_ns = 0;
    c->controlling = false;
    for (int i = 0; c->epoch && i < c->epoch->n_members; i++) {
        const struct wf_member *m = &c->epoch->member[i];

        c->known[m->node] = (struct wf_known){.heard = true,
                                              .role = m->role,
                                              .incarnation = m->incarnation,
                                              .heard_ns = wf_standby_heard(c, m),
                                              .leaves = m->leaves,
                                              .step = -1};
        send(c, out, WF_MSG_EPOCH, m->node);
    }
    wf_standby_end(c);
    confirm(c, out);
    wf_ledger_begin(c);
}

static weft_status take_read(struct wf_chief *c, const struct wf_store_answer *a,
                             struct wf_actions *out)
{
    struct wf_epoch *e;
    struct wf_action *act;
    bool newer = a->epoch && (!c->epoch || a->epoch->number > c->epoch->number);
    weft_status st;

    if (c->state != WF_CHIEF_READING && c->state != WF_CHIEF_ACTS)
        return WEFT_OK;
    c->has_manifest = a->has_manifest;
    c->manifest_history = a->history;
    c->manifest = a->t;
    if (newer) {
        st = wf_epoch_copy(c->ctx, a->epoch, &e);
        if (st)
            return st;
        new_epoch(c, e);
    }
    if (c->epoch && a->epoch && a->epoch->history == c->epoch->history)
        c->control = wf_max_i64(c->control, a->control_t);
    see_term(c, a->term);
    if (c->state == WF_CHIEF_ACTS && newer) /* of a former chief: its members may be unknown here */
        begin_to_act(c, out);
    if (c->state == WF_CHIEF_ACTS || c->state == WF_CHIEF_STANDBY)
        return WEFT_OK;
    if (c->term && c->term == c->highest) { /* somebody created the epoch that this one wanted */
        begin_to_act(c, out);
        return WEFT_OK;
    }
    if (!wf_standby_may(c, a)) {
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

    if (c->state != WF_CHIEF_ACTS || c->next || wf_standby_doubts(c))
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
    if (c->state != WF_CHIEF_ACTS || !c->next ||
        a->term != c->next->term) /* what it wanted in a former term */
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

/* ---- control records ------------------------------------------------------------------------- */

static void send_control(struct wf_chief *c, struct wf_actions *out)
{
    for (int i = 0; i < c->epoch->n_members; i++)
        if (c->epoch->member[i].role == WF_ROLE_WORKER)
            send(c, out, WF_MSG_CONTROL, c->epoch->member[i].node);
}

/* The deciding worker says what comes at step t: it counts once it is in the store. */
static void take_control(struct wf_chief *c, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_action *act;

    if (!c->epoch || m->epoch != c->epoch->number ||
        !wf_epoch_has(c->epoch, m->from, m->incarnation))
        return;
    if (m->type == WF_MSG_CONTROL_ASK || m->t <= c->control) {
        if (c->control >= 0)
            send(c, out, WF_MSG_CONTROL, m->from);
        return;
    }
    if (c->controlling || wf_epoch_decider(c->epoch) != m->from)
        return;
    act = wf_actions_add(out, WF_ACT_CREATE_CONTROL);
    if (act) {
        c->controlling = true;
        act->number = c->term;
        act->history = m->history;
        act->t = m->t;
        act->payload = m->payload;
    }
}

static void control_created(struct wf_chief *c, const struct wf_store_answer *a,
                            struct wf_actions *out)
{
    c->controlling = false;
    if (!a->ok || c->state != WF_CHIEF_ACTS || !c->epoch || a->history != c->epoch->history ||
        a->control_t <= c->control)
        return;
    c->control = a->control_t;
    send_control(c, out);
}

bool wf_chief_controls(const struct wf_chief *c, const struct wf_store_answer *a)
{
    uint64_t history = a->to == WF_ACT_CREATE_CONTROL ? a->history
                       : a->epoch                     ? a->epoch->history
                                                      : 0;

    return a->control_t >= 0 && c->epoch && c->epoch->history == history &&
           c->control == a->control_t;
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
    case WF_ACT_CREATE_CONTROL: control_created(c, a, out); break;
    default: break;
    }
    wf_ledger_deal(c, out);
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
        *k = (struct wf_known){.heard = true, .incarnation = m->incarnation, .step = -1};
    k->role = m->role;
    k->heard_ns = c->now;
    k->closed = false;
    k->epoch = m->epoch;
    if (m->role == WF_ROLE_SERVER)
        wf_busy_hear(k, m);
    else if (m->pace_ns)
        k->pace_ns = m->pace_ns;
    k->done |= m->type == WF_MSG_DONE;
    k->leaves |= m->type == WF_MSG_LEAVE;
    k->knows |= m->type == WF_MSG_LEAVE;
    if (m->role == WF_ROLE_WORKER && (m->type == WF_MSG_BEAT || m->type == WF_MSG_DONE))
        wf_stall_hear(k, m);
}

/* All pieces are in the checkpoint store at one version: it can be restored. */
static void take_saved(struct wf_chief *c, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_action *act;
    bool whole = m->role == WF_ROLE_WORKER;

    if (!c->epoch || m->history != c->epoch->history ||
        (whole && !wf_epoch_has(c->epoch, m->from, m->incarnation)))
        return;
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (whole || i == m->piece)
            c->saved[i] = wf_max_i64(c->saved[i], m->t);
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

weft_status wf_chief_extend(struct wf_chief *c, int n_nodes, const char *list)
{
    char *copy = *list ? wf_strdup(c->ctx, list) : NULL;

    if (*list && !copy)
        return wf_err_nomem(c->ctx, strlen(list), "the list of added tasks");
    wf_free(c->ctx, c->list);
    c->list = copy;
    c->plan.n_nodes = n_nodes;
    return WEFT_OK;
}

weft_status wf_chief_drain(struct wf_chief *c, int64_t now, int node, struct wf_actions *out)
{
    weft_status st;

    set_now(c, now);
    if (c->epoch && wf_epoch_has(c->epoch, node, c->known[node].incarnation))
        c->known[node].leaves = true;
    st = propose(c, out);
    return st ? st : out->st;
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
    if (m->role == WF_ROLE_CHIEF && m->term >= c->highest && m->from != c->node &&
        m->type != WF_MSG_SEEK)
        wf_standby_hear(c, now);
    if (m->type == WF_MSG_SEEN)
        wf_standby_take(c, m);
    if (m->type == WF_MSG_SEEN || m->type == WF_MSG_SEEK)
        return out->st;
    /* somebody takes this one for the chief, as a former process of it was in the store */
    if (c->state == WF_CHIEF_STANDBY && m->role != WF_ROLE_CHIEF)
        read_store(c, out);
    if (m->role != WF_ROLE_CHIEF) /* also while the store is slow: who beats is not silent */
        hear(c, m);
    if (c->state != WF_CHIEF_ACTS || m->role == WF_ROLE_CHIEF)
        return out->st;
    if (m->type == WF_MSG_FILLED && is_piece)
        take_filled(c, m);
    if (m->type == WF_MSG_SAVED && (is_piece || m->role == WF_ROLE_WORKER))
        take_saved(c, m, out);
    if (m->type == WF_MSG_CONTROL || m->type == WF_MSG_CONTROL_ASK)
        take_control(c, m, out);
    if (m->type == WF_MSG_LEASES || m->type == WF_MSG_LEDGER || m->type == WF_MSG_HALT) {
        wf_ledger_take(c, m);
        wf_ledger_deal(c, out);
    }
    st = propose(c, out);
    return st ? st : out->st;
}

weft_status wf_chief_lost(struct wf_chief *c, int64_t now, int node, uint64_t incarnation,
                          struct wf_actions *out)
{
    struct wf_known *k = &c->known[node];
    weft_status st;

    set_now(c, now);
    /* Others close their connections to a chief that does not run: those that live come back. */
    if (c->deaf_ns >= 0 && now - c->deaf_ns < c->plan.timeout_ns)
        return WEFT_OK;
    if (k->heard && k->incarnation == incarnation) {
        k->heard_ns = now - c->plan.timeout_ns - 1;
        k->closed = true;
    }
    st = propose(c, out);
    return st ? st : out->st;
}

/* ---- time ------------------------------------------------------------------------------------ */

weft_status wf_chief_tick(struct wf_chief *c, int64_t now, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    set_now(c, now);
    c->ticked_ns = now;
    if (c->state != WF_CHIEF_ACTS) {
        if (wf_standby_tick(c, out) && c->state == WF_CHIEF_STANDBY)
            read_store(c, out);
    } else {
        for (int n = 0; n < c->plan.n_nodes; n++) {
            const struct wf_known *k = &c->known[n];

            if (n == c->node)
                continue;
            if (c->epoch && k->heard && k->role != WF_ROLE_CHIEF && k->epoch < c->epoch->number)
                send(c, out, WF_MSG_EPOCH, n);
            else
                send(c, out, WF_MSG_TERM, n);
        }
        /* a term that nobody uses, because its chief died at once, must not go unseen */
        if (now - c->confirmed_ns > c->plan.timeout_ns / 2)
            confirm(c, out);
        wf_stall_look(c);
        wf_busy_look(c);
        st = propose(c, out);
        wf_ledger_tick(c, out);
    }
    return st ? st : out->st;
}
