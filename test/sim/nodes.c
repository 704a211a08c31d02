/* nodes.c - processes of a simulated job: they carry out what their machines want, and faults
 * happen to them. */
#include "world.h"

#include <stdlib.h>

#include "cluster/codec.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* A message and a record travel as bytes, as they do between processes. */
static void encode(struct world *w, const struct wf_message *m, struct event *e)
{
    uint8_t head[WF_MESSAGE_HEAD + 8 * MAX_WORDS];
    int32_t n = wf_message_write(m, head, sizeof head);
    struct wf_buf record;

    if (n < 0 || wf_message_read(head, n, &e->msg, e->bits, MAX_WORDS)) {
        sim_fail(w, "node %d: %s", m->from, n < 0 ? "a message is too long" : weft_error());
        return;
    }
    if (!m->record)
        return;
    wf_buf_init(&record, w->ctx, 1 << 20);
    if (wf_epoch_write(m->record, &record) ||
        wf_epoch_read(w->ctx, record.data, record.len, &e->record))
        sim_fail(w, "chief %d: %s", m->from, weft_error());
    wf_buf_free(&record);
}

static void deliver(struct world *w, int from, int to, const struct wf_message *m,
                    struct payload *p)
{
    int64_t delay = sim_random(w, w->c->delay / 2, w->c->delay * 3 / 2);
    bool calm = w->now >= w->calm_at;
    struct event *e;

    if (!calm && sim_random(w, 0, 999) < w->c->hold) {
        w->result->n.late++;
        delay += sim_random(w, 0, w->c->late);
    }
    e = sim_add_event(w, w->now + delay, E_MESSAGE, to);
    e->process = from;
    e->sent = w->now;
    e->payload = p;
    p->n_refs++;
    encode(w, m, e);
}

static void send_message(struct world *w, struct node *n, const struct wf_message *m)
{
    struct payload *p = NULL;
    bool calm = w->now >= w->calm_at;
    int from = (int)(n - w->node), to = m->to < 0 ? WF_NOBODY : sim_process(w, from, m->to);

    w->result->n.messages++;
    if (to == WF_NOBODY || m->from != n->number) {
        sim_fail(w, "node %d sends a message (%s) to node %d", m->from, wf_message_name(m->type),
                 m->to);
        return;
    }
    if (n->role == WF_ROLE_SERVER && w->c->leased)
        sim_check_told(w, n, m);
    else if (n->role == WF_ROLE_SERVER &&
             (m->type == WF_MSG_AT ||
              (m->type == WF_MSG_VERSION && m->t == n->m.server.piece[m->piece].version)))
        sim_check_announced(w, n, m);
    if (m->type == WF_MSG_EPOCH &&
        (!w->epoch || m->record->number > w->epoch->number ||
         w->epoch_hash[m->record->number % MAX_EPOCHS] != sim_epoch_hash(m->record)))
        sim_fail(w, "chief %d announces an epoch %llu that is not in the store", m->from,
                 (unsigned long long)m->record->number);
    if (!w->c->leased && (m->type == WF_MSG_RECORDED || m->type == WF_MSG_SYNCED))
        sim_check_copy(w, n, m);
    if (n->cut >> to & 1 || w->node[to].deaf >> from & 1) {
        w->result->n.cut_off++;
        return;
    }
    if (!calm && sim_random(w, 0, 999) < w->c->drop) {
        w->result->n.lost++;
        return;
    }
    if (n->role == WF_ROLE_SERVER)
        w->kind->server_payload(n->values, &n->m.server, m, &p);
    else if (n->role == WF_ROLE_WORKER)
        w->kind->worker_payload(n->values, m, &p);
    else
        p = sim_payload(0);
    if (m->type == WF_MSG_CONTROL) {
        p->v[0] = n->role == WF_ROLE_CHIEF ? n->record : n->decision;
        if (n->role == WF_ROLE_CHIEF && (n->record_t != m->t || !n->record))
            sim_fail(w, "chief %d announces a control record of step %lld that it does not have",
                     m->from, (long long)m->t);
    }
    deliver(w, from, to, m, p);
    if (!calm && sim_random(w, 0, 999) < w->c->twice) {
        w->result->n.twice++;
        deliver(w, from, to, m, p);
    }
    sim_payload_drop(p);
}

/* ---- computations ---------------------------------------------------------------------------- */

static void compute(struct world *w, int node, int64_t t, int shard)
{
    struct event *e = sim_add_event(
        w, w->now + w->c->slow[node] * sim_random(w, w->c->compute / 2, w->c->compute * 2),
        E_COMPUTED, node);

    e->incarnation = w->node[node].incarnation;
    e->shard = shard;
    e->t = t;
    for (int q = 0; q < w->c->plan.n_pieces; q++)
        if (sim_early(w->c, shard, t, q)) {
            struct event *part = sim_add_event(w, sim_random(w, w->now, e->at), E_READY, node);

            part->incarnation = e->incarnation;
            part->shard = shard;
            part->t = t;
            part->piece = q;
        }
}

/* A computation begins: first it reads rows of tables. */
static void begin_compute(struct world *w, int node, const struct wf_action *act)
{
    struct node *n = &w->node[node];
    int64_t t = act->t;
    int shard = act->shard;
    unsigned reads;

    if (w->c->leased) {
        sim_check_lease(w, node, t);
        reads = w->kind->reads(n->values, t, 0);
        n->read_shard = 0;
        n->read_t = t;
        n->reads = reads != 0;
        for (int q = 0; q < w->c->plan.n_pieces; q++)
            if (reads >> q & 1 && wf_lessee_read(&n->m.lessee, w->now, q, &w->acts))
                abort();
        if (!reads)
            compute(w, node, t, 0);
        return;
    }
    sim_check_control(w, node, t);
    w->result->n.backups += n->m.client.view.epoch->worker[shard] != n->number;
    for (int q = 0; q < w->c->plan.n_pieces; q++)
        if (sim_needs(w->c, shard, t, q) && !sim_is_table(w->c, q) &&
            !wf_client_has(&n->m.client, q, t))
            sim_fail(w, "worker %d computes step %lld without that version of piece %d", node,
                     (long long)t, q);
    reads = w->kind->reads ? w->kind->reads(n->values, t, shard) : 0;
    if (!reads) {
        compute(w, node, t, shard);
        return;
    }
    n->reads = true;
    n->read_t = t;
    n->read_shard = shard;
    for (int q = 0; q < w->c->plan.n_pieces; q++)
        if (reads >> q & 1 && wf_client_read(&n->m.client, w->now, q, t, &w->acts))
            abort();
}

/* All rows are here, or they need not come any more. */
static void end_reads(struct world *w, int node)
{
    struct node *n = &w->node[node];

    if (!n->reads)
        return;
    for (int q = 0; q < w->c->plan.n_pieces; q++)
        if (w->c->leased ? n->m.lessee.piece[q].reads : n->m.client.piece[q].reads)
            return;
    n->reads = false;
    compute(w, node, n->read_t, n->read_shard);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

/* Who decides continues from the last decision. */
static void check_knowledge(struct world *w, int node, int64_t step)
{
    const struct node *n = &w->node[node];

    for (int64_t t = n->record_t + 1; w->c->leased && t < step; t++)
        if (t >= 0 && sim_stored_control(w, n->m.client.view.epoch->history, t))
            sim_fail(w, "worker %d decides about step %lld without the control record of step %lld",
                     node, (long long)step, (long long)t);
}

void sim_carry_out(struct world *w, int node)
{
    struct node *n = &w->node[node];
    bool rejoin = false;

    for (int64_t i = 0; i < w->acts.n; i++) {
        const struct wf_action *act = &w->acts.act[i];
        struct event *e;

        switch (act->type) {
        case WF_ACT_SEND: send_message(w, n, &act->msg); break;
        case WF_ACT_COMPUTE: begin_compute(w, node, act); break;
        case WF_ACT_SAVE:
            e = sim_add_event(w, w->now + sim_random(w, 1, 200) * MS, E_SAVED, node);
            e->incarnation = n->incarnation;
            e->piece = act->piece;
            e->t = act->t;
            e->history = act->history;
            if (w->c->leased)
                sim_snapshot(w, node, act, e->saved);
            break;
        case WF_ACT_DECIDE:
            if (wf_epoch_decider(n->m.client.view.epoch) != n->number)
                sim_fail(w, "worker %d decides, and is not the one that does", node);
            check_knowledge(w, node, act->t);
            e = sim_add_event(w, w->now + sim_random(w, 1, w->c->compute / MS + 5) * MS, E_DECIDED,
                              node);
            e->incarnation = n->incarnation;
            e->t = act->t;
            break;
        case WF_ACT_REJOIN: rejoin = true; break;
        case WF_ACT_EXIT: break;
        default: sim_ask_store(w, node, act); break;
        }
    }
    w->acts.n = 0;
    if (rejoin && n->hung_until > w->now) { /* no one is there to join again, until it continues */
        sim_tell(w, "worker %d is left out", node);
        sim_add_event(w, n->hung_until, E_START, node);
        sim_stop_node(w, node);
    } else if (rejoin && (n->left || n->leaving || n->drained)) {
        w->result->n.drained += n->drained;
        sim_tell(w, "node %d has left", node);
        if (n->drained && !n->gone && w->now >= n->drain_until) /* no other fault starts it again */
            sim_add_event(w, w->now + 1000 * MS, E_START, node);
        n->alive = false;
        n->left = true;
        w->changed_at = w->now;
    } else if (rejoin) {
        sim_start_node(w, node);
    } else {
        end_reads(w, node);
        sim_check_node(w, node);
        if (w->c->leased)
            sim_check_leased(w, node);
    }
}

/* ---- their lives ----------------------------------------------------------------------------- */

void sim_stop_node(struct world *w, int i)
{
    struct node *n = &w->node[i];

    w->changed_at = w->now;
    if (n->incarnation == 0)
        return;
    if (n->role == WF_ROLE_CHIEF) {
        wf_chief_free(&n->m.chief);
    } else if (n->role == WF_ROLE_SERVER) {
        wf_server_free(&n->m.server);
        w->kind->free_server(n->values);
    } else {
        if (w->c->leased)
            wf_lessee_free(&n->m.lessee);
        else
            wf_client_free(&n->m.client);
        w->kind->free_worker(n->values);
    }
    n->alive = n->reads = n->drained = false;
    n->hung_from = n->hung_until = n->before_from = n->before_until = 0;
    n->incarnation = 0;
}

void sim_start_node(struct world *w, int i)
{
    const struct sim_case *c = w->c;
    struct node *n = &w->node[i];
    struct wf_chief_plan chief = {.n_nodes = c->n_nodes - c->n_added,
                                  .max_nodes = c->n_nodes,
                                  .n_pieces = c->plan.n_pieces,
                                  .n_shards = c->leased ? 0 : c->plan.n_shards,
                                  .n_copies = c->copies,
                                  .n_servers = 1,
                                  .n_workers = 1,
                                  .timeout_ns = 500 * MS,
                                  .tick_ns = 50 * MS,
                                  .balance_ns = c->balance_ns,
                                  .stall_ns = c->stall_ns,
                                  .piece_home = c->placed ? c->home : NULL,
                                  .ledger = {.window = c->plan.window,
                                             .n_shards = c->plan.n_shards,
                                             .n_steps = c->plan.n_steps,
                                             .save_every = c->plan.save_every,
                                             .gate_every = c->plan.gate_every,
                                             .ahead = c->ahead,
                                             .ahead_ns = c->ahead_ns}};
    weft_status st;

    sim_stop_node(w, i);
    if (n->gone)
        return;
    n->number = sim_number(w, i, i);
    n->incarnation = ++w->incarnations;
    n->alive = true;
    n->seen_term = n->seen_epoch = n->seen_history = 0;
    n->seen_t = -1;
    n->holds = false;
    memset(n->seen_version, 0xff, sizeof n->seen_version);
    memset(n->heard, 0, sizeof n->heard);
    n->record_t = -1;
    n->record = n->decision = 0;
    sim_tell(w, "node %d (%s) starts as %llu", i,
             n->role == WF_ROLE_CHIEF    ? "chief"
             : n->role == WF_ROLE_SERVER ? "server"
                                         : "worker",
             (unsigned long long)n->incarnation);
    if (n->role == WF_ROLE_CHIEF) {
        memset(&n->list, 0, sizeof n->list);
        st = wf_chief_init(&n->m.chief, w->ctx, &chief, i);
    } else if (n->role == WF_ROLE_SERVER) {
        struct wf_ps_data d;

        n->values = w->kind->new_server(w, w->truth, i, &d);
        st = wf_server_init(&n->m.server, w->ctx, &c->plan, &d, n->number, n->incarnation,
                            w->term_owner);
    } else if (c->leased) {
        struct wf_lessee_data d;

        n->values = w->kind->new_lessee(w, i, &d);
        st = wf_lessee_init(&n->m.lessee, w->ctx, &c->plan, &d, n->number, n->incarnation,
                            w->term_owner);
    } else {
        struct wf_client_data d;

        n->values = w->kind->new_worker(w, w->truth, i, &d);
        st = wf_client_init(&n->m.client, w->ctx, &c->plan, &d, n->number, n->incarnation,
                            w->term_owner);
    }
    if (st)
        abort();
    sim_add_event(w, w->now + sim_random(w, 1, 50) * MS, E_TICK, i)->incarnation = n->incarnation;
}

void sim_start_process(struct world *w, int i)
{
    if (i < w->c->n_nodes - w->c->n_added)
        sim_start_node(w, i);
    else if (!w->node[i].gone)
        sim_enter(w, i);
}

/* ---- what comes in --------------------------------------------------------------------------- */

/* How often several shards come together, and only a part of them is welcome. */
static void count_push(struct world *w, const struct wf_server *s, const struct wf_message *m)
{
    const struct wf_server_piece *p = &s->piece[m->piece];
    int here = 0, n = 0;

    if (m->level == 0 || !wf_view_counts(&s->view, m) || p->holding != WF_HOLDS_PRIMARY ||
        m->t != p->version || p->phase != WF_PHASE_COLLECT)
        return;
    for (int l = m->shard; l < m->shard + (1 << m->level) && l < w->c->plan.n_shards; l++, n++)
        here += (int)(p->arrived[0] >> l & 1);
    w->result->n.sums += here == 0;
    w->result->n.overlaps += here > 0 && here < n;
}

/* How often a worker is too far ahead of another one. */
static void count_wait(struct world *w, const struct wf_server *s, const struct wf_message *m)
{
    const struct wf_server_piece *p = &s->piece[m->piece];

    for (int64_t i = 0; i < p->n_clock && wf_view_counts(&s->view, m); i++)
        if (p->clock[i].active && p->clock[i].clock < m->t - w->c->plan.stale) {
            w->result->n.waits++;
            return;
        }
}

/* Notes what a chief hears of others. */
static void hear(struct world *w, struct node *chief, const struct event *e)
{
    const struct wf_message *m = &e->msg;
    struct heard *h = &chief->heard[m->from];

    if (m->incarnation < h->incarnation || m->role == WF_ROLE_CHIEF)
        return;
    h->incarnation = m->incarnation;
    h->at = w->now;
    if (m->type == WF_MSG_LEAVE)
        h->gone = m->incarnation;
    if (m->type == WF_MSG_SEEN) {
        h->seen_at = w->now;
        h->seen_sent = e->sent;
    }
}

weft_status sim_step_message(struct world *w, struct node *n, struct event *e)
{
    struct wf_message *m = &e->msg;

    m->payload = w->c->real && e->payload && m->type != WF_MSG_CONTROL
                     ? (const void *)&e->payload->real
                     : e->payload;
    m->bits = m->bits ? e->bits : NULL;
    m->record = e->record;
    if (w->trace && m->type != WF_MSG_BEAT && m->type != WF_MSG_TERM)
        sim_tell(w,
                 "%d -> %d: %s piece %d t %lld shard %d level %d round %d block %d lease %lld "
                 "(epoch %llu)",
                 m->from, m->to, wf_message_name(m->type), m->piece, (long long)m->t, m->shard,
                 m->level, m->round, m->block, (long long)m->lease, (unsigned long long)m->epoch);
    if (!sim_is_known(w, e->node, e))
        return WEFT_OK;
    if (n->role == WF_ROLE_CHIEF) {
        hear(w, n, e);
        w->result->n.learned += m->type == WF_MSG_LEDGER;
        return wf_chief_step(&n->m.chief, w->now, m, &w->acts);
    }
    if (!sim_learn(w, e->node, e->record)) {
        sim_unlearn(w, e->node);
        return WEFT_OK;
    }
    if (m->type == WF_MSG_EPOCH && wf_epoch_has(e->record, n->number, n->incarnation))
        n->drained |= wf_epoch_member(e->record, n->number)->leaves;
    if (n->role == WF_ROLE_SERVER) {
        n->m.server.busy_ns += MS * (w->now < w->c->busy_until ? w->c->slow[e->node] : 1);
        if (m->type == WF_MSG_PULL && w->c->leased)
            count_wait(w, &n->m.server, m);
        if (m->type == WF_MSG_PULL && !w->c->leased)
            sim_check_pull(w, &n->m.server, m);
        if (m->type == WF_MSG_PUSH && !w->c->leased)
            count_push(w, &n->m.server, m);
        return wf_server_step(&n->m.server, w->now, m, &w->acts);
    }
    return w->c->leased ? wf_lessee_step(&n->m.lessee, w->now, m, &w->acts)
                        : wf_client_step(&n->m.client, w->now, m, &w->acts);
}

/* Whoever does not belong to the job looks up who is chief. */
static void look_up(struct world *w, struct node *n)
{
    struct wf_view *v = n->role == WF_ROLE_SERVER ? &n->m.server.view : &n->m.client.view;

    if (!v->belongs && w->term)
        v->chief = w->term_owner;
}

/* A worker begins to read its memory: versions that are here stay. */
static void begin_hold(struct world *w, int i)
{
    struct node *n = &w->node[i];
    const struct wf_client *c = &n->m.client;

    if (n->holds || n->reads || c->computing || !c->view.belongs || c->t < 0 ||
        w->now >= w->calm_at || sim_random(w, 0, 99) >= w->c->holds)
        return;
    n->holds = true;
    n->held_t = c->t;
    n->held_history = c->view.epoch->history;
    n->held = 0;
    for (int p = 0; p < w->c->plan.n_pieces; p++)
        n->held |= (unsigned)wf_client_has(c, p, c->t) << p;
    w->result->n.holds++;
    sim_tell(w, "worker %d reads version %lld", i, (long long)n->held_t);
    sim_add_event(w, w->now + sim_random(w, 1, 400) * MS, E_HELD, i)->incarnation = n->incarnation;
}

weft_status sim_tick(struct world *w, int i)
{
    struct node *n = &w->node[i];

    sim_add_event(w, w->now + 50 * MS, E_TICK, i)->incarnation = n->incarnation;
    if (n->role == WF_ROLE_CHIEF)
        return wf_chief_tick(&n->m.chief, w->now, &w->acts);
    look_up(w, n);
    if (n->role == WF_ROLE_WORKER && w->c->holds)
        begin_hold(w, i);
    if (n->leaving) {
        const struct wf_view *v = n->role == WF_ROLE_SERVER ? &n->m.server.view : &n->m.client.view;

        wf_view_send(v, &w->acts, WF_MSG_LEAVE, v->chief);
    }
    return n->role == WF_ROLE_SERVER ? wf_server_tick(&n->m.server, w->now, &w->acts)
           : w->c->leased            ? wf_lessee_tick(&n->m.lessee, w->now, &w->acts)
                                     : wf_client_tick(&n->m.client, w->now, &w->acts);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void kill_node(struct world *w, int i, bool told)
{
    uint64_t incarnation = w->node[i].incarnation;

    if (!w->node[i].alive)
        return;
    w->result->n.kills++;
    sim_stop_node(w, i);
    for (int k = 0; k < w->c->n_chiefs && told; k++)
        if (w->node[k].alive && w->node[k].paused_until <= w->now) {
            int number = sim_number(w, k, i);

            if (number == WF_NOBODY)
                continue;
            w->node[k].heard[number].gone = incarnation;
            if (wf_chief_lost(&w->node[k].m.chief, w->now, number, incarnation, &w->acts))
                abort();
            sim_carry_out(w, k);
        }
}

/* Whether another node of its role stays in the epoch, with all copies. */
static bool may_go(const struct world *w, const struct wf_epoch *e, int node)
{
    const struct wf_member *m = e ? wf_epoch_member(e, node) : NULL;
    int n = 0;

    for (int i = 0; m && i < e->n_members; i++)
        n += e->member[i].role == m->role && !e->member[i].leaves;
    return m && n > 1 + (m->role == WF_ROLE_SERVER ? w->c->copies : 0);
}

/* Whoever leads the job is asked to drain it. */
static void drain(struct world *w, int node)
{
    for (int k = 0; k < w->c->n_chiefs; k++) {
        struct node *n = &w->node[k];
        int number = sim_number(w, k, node);

        if (!n->alive || n->paused_until > w->now || n->m.chief.state != WF_CHIEF_ACTS ||
            number == WF_NOBODY || !may_go(w, n->m.chief.epoch, number))
            continue;
        w->result->n.drains++;
        if (wf_chief_drain(&n->m.chief, w->now, number, &w->acts))
            abort();
        sim_carry_out(w, k);
    }
}

void sim_begin_fault(struct world *w, int number)
{
    static const char *const name[] = {"killed",
                                       "paused",
                                       "cut off",
                                       "leaves",
                                       "",
                                       "hung",
                                       "drained",
                                       "to halt",
                                       "where a checkpoint is damaged",
                                       "where the store is not reached"};
    const struct fault *f = &w->c->fault[number];
    struct node *n = &w->node[f->node];

    w->changed_at = w->now;
    sim_tell(w, "fault %d: node %d is %s for %lld ms", number, f->node, name[f->kind],
             (long long)(f->lasts / MS));
    if (f->lasts)
        sim_add_event(w, w->now + f->lasts, E_FAULT_END, f->node)->fault = number;
    else
        n->gone = true;
    switch (f->kind) {
    case KILL: kill_node(w, f->node, f->told); break;
    case PAUSE:
        w->result->n.pauses++;
        n->paused_until = wf_max_i64(n->paused_until, w->now + f->lasts);
        break;
    case CUT:
        w->result->n.cuts++;
        w->result->n.parted += f->parts && f->node < w->c->n_chiefs;
        n->cut |= f->other;
        n->deaf |= f->one_way ? 0 : f->other;
        break;
    case DRAIN:
        n->drain_until = wf_max_i64(n->drain_until, w->now + f->lasts);
        drain(w, f->node);
        break;
    case HANG:
        if (!n->alive || n->hung_until > w->now)
            break;
        w->result->n.hangs++;
        n->before_from = n->hung_from;
        n->before_until = n->hung_until;
        n->hung_from = w->now;
        n->hung_until = f->lasts ? w->now + f->lasts : INT64_MAX / 2;
        break;
    case HALT:
        if (!n->alive || n->paused_until > w->now)
            break;
        w->result->n.halts++;
        if (wf_lessee_halt(&n->m.lessee, w->now, &w->acts))
            abort();
        sim_carry_out(w, f->node);
        break;
    case DAMAGE: sim_lose_checkpoint(w); break;
    case OUTAGE:
        w->result->n.outages++;
        w->store_out = wf_max_i64(w->store_out, w->now + f->lasts);
        break;
    default:
        w->result->n.leaves++;
        n->leaving = true;
        break;
    }
}

void sim_end_fault(struct world *w, int number)
{
    const struct fault *f = &w->c->fault[number];
    struct node *n = &w->node[f->node];

    w->changed_at = w->now;
    if (f->kind == CUT) {
        n->cut &= ~f->other;
        n->deaf &= ~f->other;
    }
    if (f->kind == LEAVE) {
        n->leaving = false;
        kill_node(w, f->node, f->told); /* its time to leave in order is over */
    }
    if (f->kind == DRAIN && n->drained)
        kill_node(w, f->node, true); /* likewise */
    if (f->kind == DAMAGE || f->kind == OUTAGE)
        return;
    n->left = false;
    if (!n->alive && (f->kind == KILL || f->kind == LEAVE || f->kind == DRAIN) &&
        w->now >= w->c->starts[f->node])
        sim_start_process(w, f->node);
}
