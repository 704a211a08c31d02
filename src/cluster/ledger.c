/* ledger.c - which worker computes which lease, and which are done.
 *
 * Kept true: a lease is done only if it is applied on all pieces and their backups; one that is not
 * done is held by a worker that belongs to the epoch, or free; nothing beyond a boundary is granted
 * before everything up to it is done, and its control record is known to be in the store. */
#include "cluster/chief.h"

weft_status wf_ledger_init(struct wf_ledger *l, weft_ctx *ctx, const struct wf_ledger_plan *plan,
                           int n_nodes, int n_pieces)
{
    weft_status st = WEFT_OK;

    *l = (struct wf_ledger){
        .plan = *plan, .n_nodes = n_nodes, .n_pieces = n_pieces, .drained = -1, .wanted = -1};
    if (!plan->window)
        return WEFT_OK;
    l->lease = wf_alloc_n(ctx, plan->window, sizeof *l->lease);
    l->node = wf_alloc_n(ctx, n_nodes + 1, sizeof *l->node);
    l->piece = wf_alloc_n(ctx, n_pieces + 1, sizeof *l->piece);
    if (!l->lease || !l->node || !l->piece)
        st = wf_err_nomem(ctx, (size_t)plan->window * sizeof *l->lease, "ledger");
    for (int i = 0; i < n_nodes && !st; i++) {
        st = wf_leases_init(&l->node[i].held, ctx, plan->window);
        if (!st)
            st = wf_leases_init(&l->node[i].given, ctx, plan->window);
    }
    for (int i = 0; i < n_pieces && !st; i++)
        st = wf_leases_init(&l->piece[i].set, ctx, plan->window);
    if (st)
        wf_ledger_free(l, ctx);
    return st;
}

void wf_ledger_free(struct wf_ledger *l, weft_ctx *ctx)
{
    for (int i = 0; l->node && i < l->n_nodes; i++) {
        wf_leases_free(&l->node[i].held, ctx);
        wf_leases_free(&l->node[i].given, ctx);
    }
    for (int i = 0; l->piece && i < l->n_pieces; i++)
        wf_leases_free(&l->piece[i].set, ctx);
    wf_free(ctx, l->lease);
    wf_free(ctx, l->node);
    wf_free(ctx, l->piece);
    l->lease = NULL;
    l->node = NULL;
    l->piece = NULL;
}

static struct wf_lease *at(struct wf_ledger *l, int64_t lease)
{
    return &l->lease[lease % l->plan.window];
}

/* ---- boundaries ------------------------------------------------------------------------------ */

/* The first one, from `step` on, of first, first + every, … */
static int64_t one_from(int64_t step, int64_t first, int64_t every)
{
    return step <= first ? first : first + (step - first + every - 1) / every * every;
}

int64_t wf_ledger_boundary(const struct wf_ledger_plan *p, int64_t step)
{
    int64_t b = p->n_steps;

    if (p->save_every)
        b = wf_min_i64(b, one_from(step, 0, p->save_every));
    if (p->gate_every)
        b = wf_min_i64(b, one_from(step, p->gate_first, p->gate_every));
    return b;
}

/* The last step up to this one that has a control record by plan; -1: there is none. */
static int64_t last_planned(const struct wf_ledger_plan *p, int64_t step)
{
    return step < p->gate_first ? -1 : step - (step - p->gate_first) % p->gate_every;
}

/* The last step up to this one that needs a control record; -1: there is none. */
static int64_t last_gate(const struct wf_chief *c, int64_t step)
{
    const struct wf_ledger_plan *p = &c->ledger.plan;
    int64_t start = c->epoch->start, gate = -1;

    if (p->gate_every && step >= start)
        gate = wf_max_i64(last_planned(p, wf_min_i64(step, p->n_steps - 1)), start);
    if (c->epoch->halt <= step)
        gate = wf_max_i64(gate, c->epoch->halt);
    return gate < p->n_steps ? gate : -1;
}

/* Nothing more is granted before the control record of this step is known. */
static bool is_gated(const struct wf_chief *c, int64_t step)
{
    return c->control < last_gate(c, step);
}

/* A step that nobody planned, also one that is still being written into the store, ends what may be
 * granted until its record is there. */
static int64_t min_halt(const struct wf_chief *c, const struct wf_epoch *e, int64_t boundary)
{
    const struct wf_ledger *l = &c->ledger;

    return e && e->halt > c->control && e->halt * l->plan.n_shards >= l->low
               ? wf_min_i64(boundary, e->halt)
               : boundary;
}

/* Leases below this may be granted. */
static int64_t limit_of(const struct wf_chief *c)
{
    const struct wf_ledger *l = &c->ledger;
    int64_t step = l->low / l->plan.n_shards, end;

    if (is_gated(c, step))
        return l->low;
    end = wf_ledger_boundary(&l->plan, step + 1);
    end = min_halt(c, c->next, min_halt(c, c->epoch, end));
    return wf_min_i64(end * l->plan.n_shards, l->low + l->plan.window);
}

/* ---- what is done and held ------------------------------------------------------------------- */

static void start_at(struct wf_ledger *l, int64_t low)
{
    l->low = l->top = low;
    l->drained = -1;
    for (int i = 0; i < l->plan.window; i++)
        l->lease[i] = (struct wf_lease){WF_LEASE_FREE, WF_NOBODY, 0, 0};
    for (int i = 0; i < l->n_nodes; i++) {
        l->node[i].n_held = 0;
        l->node[i].taken = l->node[i].grant; /* what is on its way comes from another epoch */
    }
}

static void release(struct wf_ledger *l, struct wf_lease *e, enum wf_lease_state state)
{
    if (e->state == WF_LEASE_HELD)
        l->node[e->node].n_held--;
    *e = (struct wf_lease){state, WF_NOBODY, 0, 0};
}

static void hold(struct wf_ledger *l, struct wf_lease *e, int node, int grant)
{
    *e = (struct wf_lease){WF_LEASE_HELD, node, grant, l->node[node].incarnation};
    l->node[node].n_held++;
}

static void move_low(struct wf_ledger *l)
{
    while (at(l, l->low)->state == WF_LEASE_DONE) {
        *at(l, l->low) = (struct wf_lease){WF_LEASE_FREE, WF_NOBODY, 0, 0};
        l->low++;
    }
}

/* ---- a new chief ----------------------------------------------------------------------------- */

static bool is_everything_told(const struct wf_chief *c)
{
    const struct wf_ledger *l = &c->ledger;
    const struct wf_epoch *e = c->epoch;

    for (int i = 0; i < l->n_pieces; i++)
        if (!l->piece[i].told)
            return false;
    for (int i = 0; i < e->n_members; i++) {
        const struct wf_lessee *w = &l->node[e->member[i].node];

        if (e->member[i].role == WF_ROLE_WORKER &&
            (!w->told || w->incarnation != e->member[i].incarnation))
            return false;
    }
    return true;
}

static bool is_applied(const struct wf_ledger *l, int64_t lease)
{
    for (int i = 0; i < l->n_pieces; i++)
        if (!wf_leases_bit(&l->piece[i].set, lease, true))
            return false;
    return true;
}

/* Everybody has spoken: what all pieces have is done; of the rest, workers hold what they say.
 * Somebody who comes back may hold leases of a former chief. That one knew of none that was done
 * and is not now, because servers of this chief's epochs acknowledge nothing else: so it granted
 * none beyond the window. */
static void conclude(struct wf_chief *c)
{
    struct wf_ledger *l = &c->ledger;
    int64_t low = INT64_MAX;

    if (!l->learns || !is_everything_told(c))
        return;
    l->learns = false;
    for (int i = 0; i < l->n_pieces; i++)
        low = wf_min_i64(low, wf_leases_low(&l->piece[i].set));
    start_at(l, low);
    l->top = low + l->plan.window;
    for (int64_t n = low; n < low + l->plan.window; n++) {
        if (is_applied(l, n)) {
            at(l, n)->state = WF_LEASE_DONE;
            continue;
        }
        for (int i = 0; i < c->epoch->n_members; i++) {
            int node = c->epoch->member[i].node;

            if (c->epoch->member[i].role == WF_ROLE_WORKER &&
                wf_leases_bit(&l->node[node].held, n, false)) {
                hold(l, at(l, n), node, 0);
                break;
            }
        }
    }
    move_low(l);
}

/* Nothing that is said in a former chief's epoch counts: there leases may still become done. */
static bool is_own(const struct wf_chief *c)
{
    return c->epoch->term == c->term;
}

static void ask(struct wf_chief *c, struct wf_actions *out)
{
    struct wf_ledger *l = &c->ledger;
    const struct wf_epoch *e = c->epoch;

    for (int i = 0; i < e->n_members && is_own(c); i++) {
        int node = e->member[i].node;
        bool lacks = e->member[i].role == WF_ROLE_WORKER &&
                     (!l->node[node].told || l->node[node].incarnation != e->member[i].incarnation);

        for (int p = 0; p < l->n_pieces; p++)
            lacks |= !l->piece[p].told && e->holders[p].primary == node;
        if (lacks)
            wf_chief_send(c, out, WF_MSG_REPORT, node);
    }
}

static void forget(struct wf_ledger *l)
{
    for (int i = 0; i < l->n_pieces; i++)
        l->piece[i].told = false;
    for (int i = 0; i < l->n_nodes; i++)
        l->node[i].told = false;
}

void wf_ledger_begin(struct wf_chief *c)
{
    struct wf_ledger *l = &c->ledger;

    if (!l->plan.window || l->term == c->term)
        return;
    l->term = c->term;
    forget(l);
    for (int i = 0; i < l->n_nodes; i++)
        l->node[i].grant = l->node[i].taken = 0;
    if (!c->epoch)
        return;
    l->history = c->epoch->history;
    l->learns = true;
    start_at(l, c->epoch->start * l->plan.n_shards);
}

/* A history that this chief begins has nothing yet; of one that it finds it must learn. */
void wf_ledger_enter(struct wf_chief *c)
{
    struct wf_ledger *l = &c->ledger;

    if (!l->plan.window)
        return;
    if (l->history != c->epoch->history) {
        l->history = c->epoch->history;
        l->learns = c->epoch->term != c->term;
        l->wanted = wf_min_i64(l->wanted, 0); /* the first step has a record, if there are any */
        forget(l);
        start_at(l, c->epoch->start * l->plan.n_shards);
    }
    for (int i = 0; i < c->epoch->n_members; i++) {
        const struct wf_member *m = &c->epoch->member[i];
        struct wf_lessee *w = &l->node[m->node];

        if (w->incarnation == m->incarnation)
            continue;
        w->incarnation = m->incarnation;
        w->told = false;
        w->taken = w->grant; /* the former process will not take it */
    }
    for (int i = 0; i < l->plan.window; i++)
        if (l->lease[i].state == WF_LEASE_HELD &&
            !wf_epoch_has(c->epoch, l->lease[i].node, l->lease[i].incarnation))
            release(l, &l->lease[i], WF_LEASE_FREE);
    conclude(c);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A worker has these leases, after grant m->block: what else it had by then is done. */
static void take_leases(struct wf_chief *c, const struct wf_message *m)
{
    struct wf_ledger *l = &c->ledger;
    struct wf_lessee *w = &l->node[m->from];

    if (!wf_leases_take(&w->held, m->t, m->bits, m->n_words))
        return;
    w->incarnation = m->incarnation;
    w->told = true;
    if (l->learns) {
        conclude(c);
        return;
    }
    if (m->block <= w->grant && m->block > w->taken)
        w->taken = m->block;
    for (int64_t n = l->low; n < l->low + l->plan.window; n++) {
        struct wf_lease *e = at(l, n);

        if (e->state == WF_LEASE_HELD && e->node == m->from && e->grant <= m->block &&
            !wf_leases_bit(&w->held, n, false))
            release(l, e, WF_LEASE_DONE);
    }
    move_low(l);
}

void wf_ledger_take(struct wf_chief *c, const struct wf_message *m)
{
    struct wf_ledger *l = &c->ledger;

    if (!l->plan.window || !c->epoch || !is_own(c) || m->term != c->term ||
        m->epoch != c->epoch->number || !wf_epoch_has(c->epoch, m->from, m->incarnation))
        return;
    if (m->type == WF_MSG_LEASES) {
        take_leases(c, m);
    } else if (m->type == WF_MSG_HALT) {
        l->wanted = wf_max_i64(l->wanted, m->t + 1);
    } else if (m->type == WF_MSG_LEDGER && l->learns && m->piece >= 0 && m->piece < l->n_pieces &&
               c->epoch->holders[m->piece].primary == m->from &&
               wf_leases_take(&l->piece[m->piece].set, m->t, m->bits, m->n_words)) {
        l->piece[m->piece].told = true;
        conclude(c);
    }
}

/* ---- grants ---------------------------------------------------------------------------------- */

/* The last grant, which the worker does not have yet. */
static void send_grant(struct wf_chief *c, struct wf_actions *out, int node)
{
    struct wf_ledger *l = &c->ledger;
    struct wf_lessee *w = &l->node[node];
    struct wf_message *m;

    wf_leases_clear(&w->given, l->low);
    for (int64_t n = l->low; n < l->low + l->plan.window; n++)
        if (at(l, n)->state == WF_LEASE_HELD && at(l, n)->node == node &&
            at(l, n)->grant == w->grant)
            wf_leases_set(&w->given, n);
    m = wf_chief_send(c, out, WF_MSG_GRANT, node);
    if (!m)
        return;
    m->t = w->given.base;
    m->bits = w->given.bits;
    m->n_words = w->given.n_words;
    m->block = w->grant;
    m->lease = c->control + 1;
}

/* How many leases a worker may hold: enough for a while. */
static int room_of(const struct wf_chief *c, int node)
{
    const struct wf_ledger_plan *p = &c->ledger.plan;
    int64_t pace = c->known[node].pace_ns;

    if (!p->ahead_ns)
        return p->ahead;
    return pace ? (int)wf_max_i64(wf_min_i64(p->ahead_ns / pace, p->ahead), wf_min_i64(4, p->ahead))
                : (int)wf_min_i64(4, p->ahead);
}

/* Up to n free leases, the lowest first. */
static void grant(struct wf_chief *c, struct wf_actions *out, int node, int64_t limit, int n)
{
    struct wf_ledger *l = &c->ledger;

    l->node[node].grant++;
    for (int64_t k = l->low; k < limit && n > 0; k++)
        if (at(l, k)->state == WF_LEASE_FREE) {
            hold(l, at(l, k), node, l->node[node].grant);
            l->top = wf_max_i64(l->top, k + 1);
            n--;
        }
    send_grant(c, out, node);
}

/* What is done beyond a gate had its control record, perhaps one that was stored after this chief
 * had read the store: whoever decides must not continue without it. */
static void tell_drained(struct wf_chief *c, struct wf_actions *out)
{
    const struct wf_ledger *l = &c->ledger;
    int64_t step = l->low / l->plan.n_shards;
    int64_t gate = last_gate(c, step - 1);

    for (int i = 0; i < c->epoch->n_members; i++)
        if (c->epoch->member[i].role == WF_ROLE_WORKER) {
            struct wf_message *m = wf_chief_send(c, out, WF_MSG_DRAINED, c->epoch->member[i].node);

            if (m) {
                m->t = step;
                m->lease = wf_max_i64(c->control, gate) + 1;
            }
        }
}

/* All is done up to a step at which workers must do something. */
static bool is_drained(const struct wf_chief *c)
{
    int64_t step = c->ledger.low / c->ledger.plan.n_shards;

    return (is_gated(c, step) && c->ledger.low == last_gate(c, step) * c->ledger.plan.n_shards) ||
           step >= c->ledger.plan.n_steps;
}

static bool acts(const struct wf_chief *c)
{
    return c->ledger.plan.window && c->state == WF_CHIEF_ACTS && c->epoch && !c->ledger.learns &&
           c->ledger.term == c->term && is_own(c);
}

/* The first step, from the wanted one on, of which nothing was granted; but a planned one that
 * comes no later will do, and so does the end. One whose record is missing comes first. */
int64_t wf_ledger_halt(const struct wf_chief *c)
{
    const struct wf_ledger *l = &c->ledger;
    int64_t old = c->epoch ? c->epoch->halt : -1, step;

    if (!acts(c) || l->wanted <= c->control || old > c->control ||
        (is_gated(c, l->low / l->plan.n_shards) &&
         last_gate(c, l->low / l->plan.n_shards) >= l->wanted))
        return old;
    step = wf_max_i64((l->top + l->plan.n_shards - 1) / l->plan.n_shards, l->wanted);
    if (step >= l->plan.n_steps ||
        (l->plan.gate_every && one_from(l->wanted, l->plan.gate_first, l->plan.gate_every) <= step))
        return old;
    return step;
}

/* Gives out what is free. Near a boundary everybody gets little, so that all end together. */
void wf_ledger_deal(struct wf_chief *c, struct wf_actions *out)
{
    struct wf_ledger *l = &c->ledger;
    int n_free = 0, n_workers = 0;
    int64_t limit;

    if (l->wanted <= c->control)
        l->wanted = -1;
    if (!acts(c))
        return;
    if (is_drained(c) && l->drained != l->low / l->plan.n_shards) {
        l->drained = l->low / l->plan.n_shards;
        tell_drained(c, out);
    }
    limit = limit_of(c);
    for (int64_t n = l->low; n < limit; n++)
        n_free += at(l, n)->state == WF_LEASE_FREE;
    for (int i = 0; i < c->epoch->n_members; i++)
        n_workers += c->epoch->member[i].role == WF_ROLE_WORKER;
    for (int i = 0; i < c->epoch->n_members && n_free > 0; i++) {
        int node = c->epoch->member[i].node, room = room_of(c, node);
        const struct wf_lessee *w = &l->node[node];
        int n;

        if (c->epoch->member[i].role != WF_ROLE_WORKER || w->taken < w->grant ||
            w->n_held > room / 2 || c->known[node].leaves)
            continue;
        n = (int)wf_min_i64(room - w->n_held, wf_max_i64(n_free / (2 * n_workers), 1));
        grant(c, out, node, limit, n);
        n_free -= n;
    }
}

void wf_ledger_tick(struct wf_chief *c, struct wf_actions *out)
{
    struct wf_ledger *l = &c->ledger;

    if (l->plan.window && l->learns && c->state == WF_CHIEF_ACTS && c->epoch)
        ask(c, out);
    if (!acts(c))
        return;
    if (is_drained(c))
        tell_drained(c, out);
    for (int i = 0; i < c->epoch->n_members; i++) {
        int node = c->epoch->member[i].node;

        if (l->node[node].taken < l->node[node].grant)
            send_grant(c, out, node);
    }
    wf_ledger_deal(c, out);
}
