/* lessee.c - a worker whose shards are leased one by one, as a machine.
 *
 * Kept true: a lease is held until all pieces have acknowledged it, or its history ends; at most
 * `inflight` pushes are not acknowledged, and what is not acknowledged is kept and sent again; a
 * shard is computed from pieces that were pulled for it, and with the control record of its
 * step. */
#include "ps/lease.h"

static bool has_bit(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

weft_status wf_lessee_init(struct wf_lessee_worker *c, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_lessee_data *data, int node, uint64_t incarnation,
                           int chief)
{
    weft_status st;
    bool ok;

    *c = (struct wf_lessee_worker){.plan = *plan, .data = *data, .lease = WF_NO_LEASE, .t = -1};
    c->control = c->asked = c->decided = c->needs_control = -1;
    wf_view_init(&c->view, ctx, node, WF_ROLE_WORKER, incarnation, chief);
    c->piece = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->piece);
    c->queue = wf_alloc_n(ctx, 64 * (int64_t)wf_leases_words(plan->window), sizeof *c->queue);
    c->push = wf_alloc_n(ctx, plan->inflight + 1, sizeof *c->push);
    ok = c->piece && c->queue && c->push;
    for (int i = 0; ok && i < plan->inflight; i++) {
        c->push[i].applied = wf_alloc_n(ctx, plan->n_pieces / 64 + 1, sizeof *c->push[i].applied);
        c->push[i].version = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->push[i].version);
        ok = c->push[i].applied && c->push[i].version;
    }
    st = ok ? wf_leases_init(&c->held, ctx, plan->window)
            : wf_err_nomem(ctx, sizeof *c->piece, "worker");
    if (st)
        wf_lessee_free(c);
    return st;
}

void wf_lessee_free(struct wf_lessee_worker *c)
{
    weft_ctx *ctx = c->view.ctx;

    for (int i = 0; c->push && i < c->plan.inflight; i++) {
        wf_free(ctx, c->push[i].applied);
        wf_free(ctx, c->push[i].version);
    }
    wf_free(ctx, c->piece);
    wf_free(ctx, c->queue);
    wf_free(ctx, c->push);
    wf_leases_free(&c->held, ctx);
    c->piece = NULL;
    c->queue = NULL;
    c->push = NULL;
    wf_view_free(&c->view);
}

static struct wf_message *send(struct wf_lessee_worker *c, struct wf_actions *out,
                               enum wf_message_type type, int piece, int64_t t, int64_t lease)
{
    struct wf_message *m = wf_view_send(&c->view, out, type, c->view.epoch->holders[piece].primary);

    if (m) {
        m->piece = piece;
        m->t = t;
        m->lease = lease;
    }
    return m;
}

/* ---- what is held ---------------------------------------------------------------------------- */

bool wf_lessee_holds(const struct wf_lessee_worker *c, int64_t lease)
{
    if (lease == c->lease)
        return true;
    for (int i = 0; i < c->n_queue; i++)
        if (c->queue[i] == lease)
            return true;
    for (int i = 0; i < c->n_push; i++)
        if (c->push[i].lease == lease)
            return true;
    return false;
}

static bool holds_any(const struct wf_lessee_worker *c)
{
    return c->n_queue > 0 || c->n_push > 0 || c->lease != WF_NO_LEASE;
}

static int64_t lowest_held(const struct wf_lessee_worker *c)
{
    int64_t low = c->n_queue ? c->queue[0] : INT64_MAX;

    if (c->lease != WF_NO_LEASE)
        low = wf_min_i64(low, c->lease);
    for (int i = 0; i < c->n_push; i++)
        low = wf_min_i64(low, c->push[i].lease);
    return low == INT64_MAX ? 0 : low;
}

/* Grants are numbered in each term. */
static void see_term(struct wf_lessee_worker *c)
{
    if (c->grant_term == c->view.term)
        return;
    c->grant_term = c->view.term;
    c->grant = 0;
}

/* Tells the chief what is held; the rest of what was granted is done. */
static void report(struct wf_lessee_worker *c, struct wf_actions *out)
{
    struct wf_message *m;

    if (!c->view.belongs)
        return;
    see_term(c);
    m = wf_view_send(&c->view, out, WF_MSG_LEASES, c->view.chief);
    wf_leases_clear(&c->held, lowest_held(c));
    for (int i = 0; i < c->n_queue; i++)
        wf_leases_set(&c->held, c->queue[i]);
    for (int i = 0; i < c->n_push; i++)
        wf_leases_set(&c->held, c->push[i].lease);
    if (c->lease != WF_NO_LEASE)
        wf_leases_set(&c->held, c->lease);
    if (!m)
        return;
    m->t = c->held.base;
    m->bits = c->held.bits;
    m->n_words = c->held.n_words;
    m->block = c->grant;
    m->pace_ns = c->pace_ns;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* What is not acknowledged may be nowhere. */
static void send_clock(struct wf_lessee_worker *c, struct wf_actions *out, int piece)
{
    struct wf_message *m = send(c, out, WF_MSG_CLOCK, piece, c->clock - c->n_push, 0);

    c->piece[piece].heard_ns = c->now;
    if (m) {
        m->block = (int)c->state;
        m->shard = c->clock_number;
    }
}

static void tell_clock(struct wf_lessee_worker *c, struct wf_actions *out)
{
    c->clock_number++;
    for (int i = 0; i < c->plan.n_pieces; i++) {
        c->piece[i].clocked = false;
        send_clock(c, out, i);
    }
}

/* Who holds no lease is not waited for; who gets one begins where the others are. */
static void park_or_join(struct wf_lessee_worker *c, struct wf_actions *out)
{
    bool parked = c->state == WF_CLOCK_PARKED, any = holds_any(c);

    if (c->plan.stale < 0 || parked != any)
        return;
    c->state = any ? WF_CLOCK_JOINS : WF_CLOCK_PARKED;
    c->joining = any;
    tell_clock(c, out);
}

static void take_clocked(struct wf_lessee_worker *c, const struct wf_message *m,
                         struct wf_actions *out)
{
    if (m->shard != c->clock_number)
        return;
    c->piece[m->piece].clocked = true;
    if (!c->joining)
        return;
    c->clock = wf_max_i64(c->clock, m->t);
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (!c->piece[i].clocked)
            return;
    c->joining = false;
    c->state = WF_CLOCK_GOES_ON;
    tell_clock(c, out); /* where others were further, it begins further */
}

/* ---- control records ------------------------------------------------------------------------- */

bool wf_lessee_decides(const struct wf_lessee_worker *c)
{
    return c->view.belongs && wf_epoch_decider(c->view.epoch) == c->view.node;
}

static void request(struct wf_lessee_worker *c, struct wf_actions *out, enum wf_message_type type,
                    int64_t t)
{
    struct wf_message *m = wf_view_send(&c->view, out, type, c->view.chief);

    c->control_ns = c->now;
    if (m)
        m->t = t;
}

/* Whether the record that a lease needs is here: that of the last step before it that has one, as
 * planned, or as the chief said when it granted leases. */
static bool has_control(struct wf_lessee_worker *c, struct wf_actions *out, int64_t lease)
{
    int64_t step = lease / c->plan.n_shards, gate = c->needs_control;

    if (!c->data.control)
        return true;
    if (c->plan.gate_every && step >= c->plan.gate_first)
        gate = wf_max_i64(gate, step - (step - c->plan.gate_first) % c->plan.gate_every);
    if (c->plan.gate_every)
        gate = wf_max_i64(gate, c->view.epoch->start);
    if (c->control >= gate)
        return true;
    if (!c->wants_control) {
        c->wants_control = true;
        request(c, out, WF_MSG_CONTROL_ASK, gate);
    }
    return false;
}

/* All is done up to step t; whoever decides makes its control record. */
static void take_drained(struct wf_lessee_worker *c, const struct wf_message *m,
                         struct wf_actions *out)
{
    struct wf_action *act;

    c->t = wf_max_i64(c->t, m->t);
    if (!c->data.control || m->t >= c->plan.n_steps || !wf_lessee_decides(c) ||
        c->control >= m->t || c->asked >= m->t)
        return;
    if (c->control < m->lease - 1) { /* it does not know yet where the job is: it is asked again */
        if (!c->wants_control)
            request(c, out, WF_MSG_CONTROL_ASK, m->lease - 1);
        c->wants_control = true;
        return;
    }
    c->asked = m->t;
    act = wf_actions_add(out, WF_ACT_DECIDE);
    if (act)
        act->t = m->t;
}

static weft_status take_control(struct wf_lessee_worker *c, const struct wf_message *m)
{
    weft_status st;

    if (!c->data.control || m->history != c->view.epoch->history || m->t <= c->control)
        return WEFT_OK;
    st = c->data.control(c->data.arg, m->t, m->payload);
    if (st)
        return st;
    c->control = m->t;
    c->wants_control = false;
    c->halts &= m->t <= c->halt_after;
    return WEFT_OK;
}

static void ask_to_halt(struct wf_lessee_worker *c, struct wf_actions *out)
{
    struct wf_message *m = wf_view_send(&c->view, out, WF_MSG_HALT, c->view.chief);

    c->halt_ns = c->now;
    if (m)
        m->t = c->halt_after;
}

weft_status wf_lessee_halt(struct wf_lessee_worker *c, int64_t now, struct wf_actions *out)
{
    c->now = now;
    if (!c->data.control)
        return wf_err(WEFT_EINVAL, "this job has no control records, and so nothing to wait for");
    if (c->halts && c->halt_after >= c->asked)
        return out->st;
    c->halts = true;
    c->halt_after = wf_max_i64(c->control, c->asked);
    if (c->view.belongs)
        ask_to_halt(c, out);
    return out->st;
}

/* ---- a lease --------------------------------------------------------------------------------- */

static void pull(struct wf_lessee_worker *c, struct wf_actions *out, int piece)
{
    c->piece[piece].heard_ns = c->now;
    send(c, out, WF_MSG_PULL, piece, c->clock, c->lease);
}

static void compute_if_here(struct wf_lessee_worker *c, struct wf_actions *out)
{
    struct wf_action *act;

    for (int i = 0; i < c->plan.n_pieces; i++)
        if (!c->piece[i].here)
            return;
    act = wf_actions_add(out, WF_ACT_COMPUTE);
    if (act)
        act->t = c->lease;
    c->computing = true;
    c->begun = c->lease;
    c->begun_ns = c->now;
}

static void begin_lease(struct wf_lessee_worker *c, struct wf_actions *out)
{
    c->lease = c->queue[0];
    c->n_queue--;
    memmove(c->queue, c->queue + 1, (size_t)c->n_queue * sizeof *c->queue);
    for (int i = 0; i < c->plan.n_pieces; i++) {
        struct wf_lessee_piece *p = &c->piece[i];

        p->here = !c->data.needs(c->data.arg, c->lease, i);
        p->sent = p->reads = false;
        p->version = -1;
        if (!p->here)
            pull(c, out, i);
    }
    if (c->n_queue == c->n_granted / 2) /* there should be more before these are done */
        report(c, out);
    compute_if_here(c, out);
}

/* Begins what can be begun. */
static void proceed(struct wf_lessee_worker *c, struct wf_actions *out)
{
    if (!c->view.belongs)
        return;
    park_or_join(c, out);
    if (c->computing || c->lease != WF_NO_LEASE || c->n_queue == 0 || c->joining ||
        c->n_push >= c->plan.inflight || !has_control(c, out, c->queue[0]) ||
        (c->data.may && !c->data.may(c->data.arg)))
        return;
    begin_lease(c, out);
}

weft_status wf_lessee_go(struct wf_lessee_worker *c, int64_t now, struct wf_actions *out)
{
    c->now = now;
    proceed(c, out);
    return out->st;
}

static void close_piece(struct wf_lessee_worker *c, struct wf_actions *out,
                        const struct wf_lessee_push *p, int piece, bool whole)
{
    struct wf_message *m = send(c, out, WF_MSG_CLOSE, piece, p->clock, p->lease);

    if (m)
        m->whole = whole;
}

/* What is not acknowledged goes to the servers that hold the pieces now, whole. */
static void send_again(struct wf_lessee_worker *c, struct wf_actions *out, struct wf_lessee_push *p)
{
    p->sent_ns = c->now;
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (!has_bit(p->applied, i))
            close_piece(c, out, p, i, true);
}

weft_status wf_lessee_ready(struct wf_lessee_worker *c, int64_t now, int64_t lease, int piece,
                            struct wf_actions *out)
{
    c->now = now;
    c->moves++;
    if (lease != c->lease || !c->computing || !c->view.belongs || c->piece[piece].sent)
        return out->st;
    c->piece[piece].sent = true;
    send(c, out, WF_MSG_PUSH, piece, c->clock, lease);
    return out->st;
}

weft_status wf_lessee_computed(struct wf_lessee_worker *c, int64_t now, int64_t lease,
                               struct wf_actions *out)
{
    int64_t took = wf_max_i64(now - c->begun_ns, 1);

    c->now = now;
    c->moves++;
    c->computing = false;
    c->pace_ns = c->pace_ns ? (3 * c->pace_ns + took) / 4 : took;
    if (lease == c->lease) {
        struct wf_lessee_push *p = &c->push[c->n_push++];

        p->lease = lease;
        p->clock = c->clock++;
        p->sent_ns = now;
        p->n_left = c->plan.n_pieces;
        memset(p->applied, 0, (size_t)(c->plan.n_pieces / 64 + 1) * sizeof *p->applied);
        c->lease = WF_NO_LEASE;
        for (int i = 0; i < c->plan.n_pieces; i++) {
            p->version[i] = c->piece[i].version;
            if (c->view.belongs)
                close_piece(c, out, p, i, !c->piece[i].sent);
        }
    }
    proceed(c, out);
    return out->st;
}

static void measure(struct wf_lessee_worker *c, int64_t read, int64_t written)
{
    if (read < 0 || written <= read)
        return;
    c->n_measured++;
    c->sum_behind += written - 1 - read;
    c->most_behind = wf_max_i64(c->most_behind, written - 1 - read);
}

static void take_applied(struct wf_lessee_worker *c, const struct wf_message *m,
                         struct wf_actions *out)
{
    struct wf_lessee_push done;
    int i = 0;

    while (i < c->n_push && c->push[i].lease != m->lease)
        i++;
    if (i == c->n_push || has_bit(c->push[i].applied, m->piece))
        return;
    c->push[i].applied[m->piece / 64] |= (uint64_t)1 << m->piece % 64;
    measure(c, c->push[i].version[m->piece], m->t);
    if (--c->push[i].n_left > 0)
        return;
    done = c->push[i];
    c->push[i] = c->push[--c->n_push];
    c->push[c->n_push] = done;
    c->data.forget(c->data.arg, done.lease);
    if (c->n_queue == 0) /* others may wait for this one, or there is more */
        report(c, out);
}

/* ---- rows of tables -------------------------------------------------------------------------- */

static void send_read(struct wf_lessee_worker *c, struct wf_actions *out, int piece)
{
    struct wf_message *m = send(c, out, WF_MSG_READ, piece, 0, 0);

    c->piece[piece].heard_ns = c->now;
    if (m)
        m->block = c->piece[piece].read_number;
}

weft_status wf_lessee_read(struct wf_lessee_worker *c, int64_t now, int piece,
                           struct wf_actions *out)
{
    struct wf_lessee_piece *p = &c->piece[piece];

    c->now = now;
    c->moves++;
    p->reads = true;
    p->read_number = (p->read_number + 1) & INT32_MAX;
    if (c->view.belongs)
        send_read(c, out, piece);
    return out->st;
}

static weft_status take_rows(struct wf_lessee_worker *c, const struct wf_message *m)
{
    struct wf_lessee_piece *p = &c->piece[m->piece];

    if (!p->reads || m->block != p->read_number)
        return WEFT_OK;
    p->reads = false;
    p->version = p->version < 0 ? m->t : p->version;
    return c->data.rows(c->data.arg, m->piece, c->lease, m->payload);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void insert(struct wf_lessee_worker *c, int64_t lease)
{
    int i = c->n_queue;

    if (wf_lessee_holds(c, lease))
        return;
    for (; i > 0 && c->queue[i - 1] > lease; i--)
        c->queue[i] = c->queue[i - 1];
    c->queue[i] = lease;
    c->n_queue++;
}

/* Whether all that would be held can be told to the chief as one set: what cannot would be taken
 * for done. A chief that took over may know that leases are done which this worker still has. */
static bool fits(const struct wf_lessee_worker *c, const struct wf_message *m)
{
    int64_t low = holds_any(c) ? lowest_held(c) : INT64_MAX, high = -1;

    for (int64_t i = 0; i < (int64_t)m->n_words * 64; i++)
        if (has_bit(m->bits, (int)i)) {
            low = wf_min_i64(low, m->t + i);
            high = m->t + i;
        }
    return high < 0 || high - (low & ~(int64_t)63) < 64 * (int64_t)c->held.n_words;
}

/* A grant counts in its term and epoch, and once. One that is too much is not taken: it comes
 * again. */
static void take_grant(struct wf_lessee_worker *c, const struct wf_message *m,
                       struct wf_actions *out)
{
    int64_t end = (int64_t)c->plan.n_shards * c->plan.n_steps;

    see_term(c);
    if (m->t < 0 || m->t & 63 || m->n_words > c->held.n_words || !fits(c, m))
        return;
    if (m->block <= c->grant) {
        report(c, out); /* what it said before was lost */
        return;
    }
    c->grant = m->block;
    c->low = wf_max_i64(c->low, m->t);
    for (int64_t i = 0; i < (int64_t)m->n_words * 64; i++)
        if (has_bit(m->bits, (int)i) && m->t + i < end)
            insert(c, m->t + i);
    c->n_granted = c->n_queue;
    c->needs_control = wf_max_i64(c->needs_control, m->lease - 1);
    report(c, out);
}

static weft_status take_version(struct wf_lessee_worker *c, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_lessee_piece *p = &c->piece[m->piece];
    weft_status st;

    if (m->lease != c->lease || c->computing || p->here)
        return WEFT_OK;
    st = c->data.take(c->data.arg, m->piece, m->lease, m->payload);
    if (st == WEFT_ECANCEL) {
        pull(c, out, m->piece);
        return WEFT_OK;
    }
    if (st)
        return st;
    p->here = true;
    p->version = m->t;
    compute_if_here(c, out);
    return WEFT_OK;
}

/* Nothing of another history counts. What is being computed is dropped when it is there. */
static void start_over(struct wf_lessee_worker *c)
{
    c->n_queue = c->n_granted = c->n_push = 0;
    c->lease = WF_NO_LEASE;
    c->control = c->asked = c->decided = c->needs_control = c->halt_after = -1;
    c->wants_control = false;
    c->t = c->view.epoch->start;
    c->low = c->t * c->plan.n_shards;
    for (int i = 0; i < c->plan.n_pieces; i++)
        c->piece[i].reads = false;
    if (c->data.restart)
        c->data.restart(c->data.arg);
}

/* A new epoch: others hold the pieces, or have lost what was on its way. */
static void enter(struct wf_lessee_worker *c, struct wf_actions *out)
{
    for (int i = 0; i < c->plan.n_pieces; i++) {
        c->piece[i].sent = false;
        if (c->piece[i].reads)
            send_read(c, out, i);
        if (c->lease != WF_NO_LEASE && !c->computing && !c->piece[i].here)
            pull(c, out, i);
    }
    for (int i = 0; i < c->n_push; i++)
        send_again(c, out, &c->push[i]);
    if (c->plan.stale >= 0)
        tell_clock(c, out);
    report(c, out);
}

static weft_status take_chief(struct wf_lessee_worker *c, const struct wf_message *m,
                              struct wf_actions *out)
{
    bool belonged = c->view.belongs, changed;
    uint64_t history = belonged ? c->view.epoch->history : 0;
    weft_status st = wf_view_take(&c->view, c->now, m, &changed);

    if (st || m->term != c->view.term || (!changed && !c->view.belongs))
        return st;
    if (changed && !c->view.belongs) {
        if (belonged)
            wf_actions_add(out, WF_ACT_REJOIN);
        return out->st;
    }
    if (changed && c->view.epoch->history != history)
        start_over(c);
    if (changed)
        enter(c, out);
    if (m->epoch != c->view.epoch->number)
        return WEFT_OK;
    if (m->type == WF_MSG_GRANT)
        take_grant(c, m, out);
    else if (m->type == WF_MSG_REPORT)
        report(c, out);
    else if (m->type == WF_MSG_DRAINED)
        take_drained(c, m, out);
    return WEFT_OK;
}

weft_status wf_lessee_step(struct wf_lessee_worker *c, int64_t now, const struct wf_message *m,
                           struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    c->now = now;
    switch (m->type) {
    case WF_MSG_EPOCH:
    case WF_MSG_TERM:
    case WF_MSG_GRANT:
    case WF_MSG_REPORT:
    case WF_MSG_DRAINED: st = take_chief(c, m, out); break;
    case WF_MSG_SEEK: wf_view_seen(&c->view, now, m->from, out); break;
    case WF_MSG_CONTROL:
        if (c->view.belongs && m->role == WF_ROLE_CHIEF)
            st = take_control(c, m);
        break;
    default:
        if (!wf_view_counts(&c->view, m) || m->piece < 0 || m->piece >= c->plan.n_pieces)
            return WEFT_OK;
        c->piece[m->piece].heard_ns = now;
        if (m->type == WF_MSG_VERSION)
            st = take_version(c, m, out);
        else if (m->type == WF_MSG_APPLIED)
            take_applied(c, m, out);
        else if (m->type == WF_MSG_CLOCKED)
            take_clocked(c, m, out);
        else if (m->type == WF_MSG_ROWS)
            st = take_rows(c, m);
    }
    if (!st)
        proceed(c, out);
    return st ? st : out->st;
}

weft_status wf_lessee_decided(struct wf_lessee_worker *c, int64_t now, int64_t t,
                              struct wf_actions *out)
{
    c->now = now;
    c->moves++;
    if (c->asked == t && c->control < t && wf_lessee_decides(c)) {
        c->decided = t;
        request(c, out, WF_MSG_CONTROL, t);
    } else if (c->asked == t) { /* another one decides; this one may have to again */
        c->asked = -1;
    }
    return out->st;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void ask_again(struct wf_lessee_worker *c, struct wf_actions *out, int piece)
{
    struct wf_lessee_piece *p = &c->piece[piece];

    if (c->now - p->heard_ns < c->plan.retry_ns)
        return;
    p->heard_ns = c->now;
    if (c->plan.stale >= 0 && !p->clocked)
        send_clock(c, out, piece);
    if (c->lease != WF_NO_LEASE && !c->computing && !p->here)
        pull(c, out, piece);
    if (p->reads)
        send_read(c, out, piece);
}

/* What its caller does, for the chief: who does nothing new for too long, while others have nothing
 * to do or are at later steps, is left out, and its leases are free. */
static void say_doing(const struct wf_lessee_worker *c, struct wf_message *m)
{
    bool works = c->view.belongs && c->t < c->plan.n_steps;
    enum wf_doing doing = WF_DOES_WAIT;

    if (works && c->computing)
        doing = WF_DOES_COMPUTE;
    else if (works && c->asked > wf_max_i64(c->control, c->decided))
        doing = WF_DOES_DECIDE;
    else if (works && c->data.doing)
        doing = c->data.doing(c->data.arg);
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (c->piece[i].reads) /* rows have not come */
            doing = WF_DOES_WAIT;
    m->round = (int)doing;
    m->t = c->view.belongs ? c->plan.n_steps : -1;
    m->shard = WF_NO_SHARD;
    if (doing == WF_DOES_COMPUTE) {
        m->t = c->begun / c->plan.n_shards;
        m->shard = (int)(c->begun % c->plan.n_shards);
    } else if (doing != WF_DOES_WAIT) {
        m->t = c->t;
    }
    m->block = (int)(c->moves & INT32_MAX);
    m->pace_ns = c->pace_ns;
}

weft_status wf_lessee_tick(struct wf_lessee_worker *c, int64_t now, struct wf_actions *out)
{
    c->now = now;
    if (now - c->beat_ns >= c->plan.retry_ns) {
        struct wf_message *m = wf_view_send(
            &c->view, out, c->t >= c->plan.n_steps ? WF_MSG_DONE : WF_MSG_BEAT, c->view.chief);

        c->beat_ns = now;
        if (m)
            say_doing(c, m);
        report(c, out);
    }
    if (!c->view.belongs)
        return out->st;
    if (now - c->control_ns >= c->plan.retry_ns) {
        if (c->wants_control)
            request(c, out, WF_MSG_CONTROL_ASK, 0);
        else if (c->decided > c->control && wf_lessee_decides(c))
            request(c, out, WF_MSG_CONTROL, c->decided);
    }
    if (c->halts && now - c->halt_ns >= c->plan.retry_ns)
        ask_to_halt(c, out);
    for (int i = 0; i < c->n_push; i++)
        if (now - c->push[i].sent_ns >= c->plan.retry_ns)
            send_again(c, out, &c->push[i]);
    for (int i = 0; i < c->plan.n_pieces; i++)
        ask_again(c, out, i);
    return out->st;
}
