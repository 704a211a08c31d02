/* lease_checks.c - what must always be true in a simulated job whose shards are leased. */
#include "world.h"

#include <stdlib.h>

/* ---- the log of a piece ---------------------------------------------------------------------- */

static uint64_t initial(int piece, int block)
{
    return sim_mix(77, (uint64_t)(piece * 8 + block));
}

/* A history begins with the checkpoint that the chief chose. */
void sim_begin_log(struct world *w, uint64_t history, int64_t start, uint64_t source)
{
    uint64_t from = source % MAX_HISTORIES;
    struct piece_log *all;

    if (w->log[history % MAX_HISTORIES])
        return;
    all = calloc(MAX_PIECES, sizeof *all);
    for (int p = 0; p < w->c->plan.n_pieces; p++) {
        struct piece_log *log = &all[p];

        log->first = log->n = start * w->c->plan.n_shards;
        for (int64_t i = 0; i < log->first; i++)
            log->is_applied[i] = true;
        if (start && !w->in_store[from][start][p])
            sim_fail(w, "history %llu begins with step %lld of history %llu, which was not saved",
                     (unsigned long long)history, (long long)start, (unsigned long long)from);
        for (int b = 0; b < w->c->plan.n_blocks; b++) {
            log->value[log->first][b] = start ? w->saved[from][start][p][b] : initial(p, b);
            log->known[log->first][b] = true;
        }
    }
    w->log[history % MAX_HISTORIES] = all;
    if (w->kind->begin && !w->result->failed)
        w->kind->begin(w, history);
}

struct piece_log *sim_log(struct world *w, uint64_t history, int piece)
{
    return &w->log[history % MAX_HISTORIES][piece];
}

/* Whether version t + 1 of a piece is gone with all that had it, and nobody was told of it. */
static bool is_gone(struct world *w, uint64_t history, int piece, int64_t t)
{
    const struct wf_holders *h = &w->epoch->holders[piece];
    const int holder[] = {h->primary, h->backup, h->target};

    if (w->announced_history == history && w->announced[piece] > t)
        return false;
    for (int k = 0; k < 3; k++) {
        const struct node *n = sim_at(w, holder[k]);

        if (n && n->alive && wf_epoch_has(w->epoch, holder[k], n->incarnation) &&
            n->m.server.view.epoch && n->m.server.view.epoch->history == history &&
            n->m.server.piece[piece].version > t)
            return false;
    }
    return true;
}

static bool holds(const struct world *w, const struct node *n, int piece)
{
    const struct wf_holders *h = &w->epoch->holders[piece];
    int node = n->number;

    return (h->primary == node || h->backup == node || h->target == node) &&
           wf_epoch_has(w->epoch, node, n->incarnation);
}

static void cut_log(struct piece_log *log, int64_t t)
{
    for (; log->n > t; log->n--) {
        log->is_applied[log->lease[log->n - 1]] = false;
        memset(log->known[log->n], 0, sizeof log->known[log->n]);
    }
}

/* Once on each piece, in one order at all that have a copy, and with one result. */
void sim_log_apply(struct world *w, int node, int piece, int block, int64_t t, int64_t lease,
                   uint64_t value)
{
    uint64_t history = w->node[node].m.server.view.epoch->history;
    struct piece_log *log = sim_log(w, history, piece);

    /* it counts no more, and does not know it */
    if (history == w->epoch->history ? !holds(w, &w->node[node], piece)
                                     : t != log->n || lease < 0 || log->is_applied[lease])
        return;
    if (t < log->n && is_gone(w, history, piece, t) &&
        (log->lease[t] != lease || (log->known[t + 1][block] && log->value[t + 1][block] != value)))
        cut_log(log, t);
    if (t >= log->n && (t > log->n || lease < 0 || log->is_applied[lease])) {
        sim_fail(w, "server %d applies lease %lld to piece %d at version %lld: twice, or too early",
                 node, (long long)lease, piece, (long long)t);
        return;
    }
    if (t == log->n) {
        log->is_applied[lease] = true;
        log->lease[t] = lease;
        log->n++;
        w->result->n.leases++;
        if (w->kind->replay) {
            w->kind->replay(w, node, piece, history, t, log->value[t + 1]);
            for (int b = 0; b < w->c->plan.n_blocks; b++)
                log->known[t + 1][b] = true;
        }
    }
    if (log->lease[t] != lease)
        sim_fail(w,
                 "server %d applies lease %lld to piece %d at version %lld, another did lease %lld",
                 node, (long long)lease, piece, (long long)t, (long long)log->lease[t]);
    if (log->known[t + 1][block] && log->value[t + 1][block] != value)
        sim_fail(w, "server %d: version %lld of piece %d is another one than elsewhere", node,
                 (long long)t + 1, piece);
    log->known[t + 1][block] = true;
    log->value[t + 1][block] = value;
}

/* ---- servers --------------------------------------------------------------------------------- */

/* A checkpoint has exactly the leases of the steps before it. */
void sim_snapshot(struct world *w, int node, const struct wf_action *act, uint64_t *out)
{
    const struct wf_server_piece *p = &w->node[node].m.server.piece[act->piece];
    const struct piece_log *log = sim_log(w, act->history, act->piece);
    int64_t version = act->t * w->c->plan.n_shards;

    if (p->version != version || wf_leases_low(&p->applied) != version)
        sim_fail(w, "server %d saves step %lld of piece %d with %lld leases up to %lld", node,
                 (long long)act->t, act->piece, (long long)p->version,
                 (long long)wf_leases_low(&p->applied));
    memcpy(out, log->value[version], sizeof log->value[version]);
    if (w->kind->keep && !w->result->failed)
        w->kind->keep(w, act->history, act->piece, version);
}

static const struct wf_server_piece *backup_of(struct world *w, const struct wf_epoch *e, int piece)
{
    int node = e->holders[piece].backup;
    const struct node *n = sim_at(w, node);

    if (!n || e->number != w->epoch->number || !n->alive || !wf_epoch_has(e, node, n->incarnation))
        return NULL;
    return &n->m.server.piece[piece];
}

/* What is told to a worker is contained in the piece and in its backup, and is never lost. */
static void check_durable(struct world *w, const struct node *n, int piece, int64_t version)
{
    const struct wf_epoch *e = n->m.server.view.epoch;
    const struct wf_server_piece *b = backup_of(w, e, piece);

    if (e->history > w->announced_history) {
        w->announced_history = e->history;
        for (int p = 0; p < MAX_PIECES; p++)
            w->announced[p] = e->start * w->c->plan.n_shards;
    }
    if (e->history < w->announced_history)
        return;
    if (e->number == w->epoch->number && version < w->announced[piece])
        sim_fail(w, "piece %d: version %lld was told, and the primary is at %lld", piece,
                 (long long)w->announced[piece], (long long)version);
    w->announced[piece] = wf_max_i64(w->announced[piece], version);
    if (b && b->version < version)
        sim_fail(w, "piece %d: version %lld is told, and the backup is at %lld", piece,
                 (long long)version, (long long)b->version);
}

/* How many leases a worker has closed at a piece, with what it began with. */
static int64_t clock_at(struct world *w, const struct wf_lessee_worker *c, int piece)
{
    const struct piece_log *log = sim_log(w, c->view.epoch->history, piece);
    int64_t clock = c->clock;

    for (int i = 0; i < c->n_push; i++)
        clock -= !log->is_applied[c->push[i].lease];
    return clock;
}

/* Nobody who holds a lease is too far behind one that is answered. */
static void check_bound(struct world *w, const struct wf_message *m)
{
    const struct node *to = sim_at(w, m->to);
    const struct wf_lessee_worker *x = &to->m.lessee;

    if (w->c->plan.stale < 0 || !to->alive || x->lease != m->lease || !x->view.belongs ||
        x->view.epoch->number != m->epoch || x->computing)
        return;
    for (int i = 0; i < w->c->n_nodes; i++) {
        const struct wf_lessee_worker *y = &w->node[i].m.lessee;
        const struct node *n = &w->node[i];

        if (n->role != WF_ROLE_WORKER || !n->alive || !y->view.belongs || y->joining ||
            y->state != WF_CLOCK_GOES_ON || y->view.epoch->history != x->view.epoch->history ||
            !wf_epoch_has(x->view.epoch, n->number, n->incarnation))
            continue;
        if (clock_at(w, y, m->piece) < x->clock - w->c->plan.stale)
            sim_fail(w, "worker %d reads piece %d at clock %lld, and worker %d is at %lld", m->to,
                     m->piece, (long long)x->clock, i, (long long)clock_at(w, y, m->piece));
    }
}

void sim_check_told(struct world *w, const struct node *n, const struct wf_message *m)
{
    const struct wf_server *s = &n->m.server;
    const struct piece_log *log;

    if (m->type != WF_MSG_VERSION && m->type != WF_MSG_APPLIED && m->type != WF_MSG_ROWS)
        return;
    if (s->view.epoch->history != w->epoch->history) /* all of its history is void */
        return;
    log = sim_log(w, s->view.epoch->history, m->piece);
    if (m->type == WF_MSG_VERSION)
        check_bound(w, m);
    if (m->type == WF_MSG_APPLIED) {
        const struct wf_server_piece *b = backup_of(w, s->view.epoch, m->piece);

        w->result->n.again += m->t < 0;
        if (!log->is_applied[m->lease] ||
            !wf_leases_bit(&s->piece[m->piece].applied, m->lease, true) ||
            (b && !wf_leases_bit(&b->applied, m->lease, true)))
            sim_fail(w, "server %d acknowledges lease %lld, which piece %d or its backup lacks",
                     m->from, (long long)m->lease, m->piece);
    }
    check_durable(w, n, m->piece, s->piece[m->piece].version);
}

/* The version of a piece is the number of leases in it, and they are those of its log. */
static void check_piece(struct world *w, int node, int piece)
{
    const struct wf_server *s = &w->node[node].m.server;
    const struct wf_server_piece *p = &s->piece[piece];
    const struct piece_log *log;

    if (p->n_push > (int64_t)(w->c->n_workers + w->c->n_added) * w->c->plan.inflight)
        sim_fail(w, "server %d holds %lld pushes to piece %d", node, (long long)p->n_push, piece);
    for (int64_t i = 0; i < p->n_push; i++)
        if (!wf_epoch_has(s->view.epoch, p->push[i].node, p->push[i].incarnation))
            sim_fail(w, "server %d holds a push of worker %d, which is gone", node,
                     p->push[i].node);
    if (p->holding == WF_HOLDS_NOTHING || p->version < 0)
        return;
    if (wf_leases_count(&p->applied) != p->version)
        sim_fail(w, "server %d: version %lld of piece %d has %lld leases", node,
                 (long long)p->version, piece, (long long)wf_leases_count(&p->applied));
    if (s->view.epoch->number != w->epoch->number) /* what it has may not count any more */
        return;
    log = sim_log(w, s->view.epoch->history, piece);
    for (int64_t v = log->first; v < p->version; v++)
        if (!wf_leases_bit(&p->applied, log->lease[v], true))
            sim_fail(w, "server %d: version %lld of piece %d lacks lease %lld", node,
                     (long long)p->version, piece, (long long)log->lease[v]);
}

/* ---- workers and chiefs ---------------------------------------------------------------------- */

void sim_check_lease(struct world *w, int node, int64_t lease)
{
    const struct node *n = &w->node[node];
    const struct wf_lessee_worker *c = &n->m.lessee;
    int64_t step = lease / w->c->plan.n_shards, gate = -1;

    if (c->n_push >= c->plan.inflight)
        sim_fail(w, "worker %d computes with %d pushes that are not acknowledged", node, c->n_push);
    if (w->c->gate_every)
        gate = wf_max_i64(step / w->c->gate_every * w->c->gate_every, c->view.epoch->start);
    for (int64_t t = gate + 1; t <= step; t++) /* what nobody planned counts once it is there */
        if (sim_stored_control(w, c->view.epoch->history, t))
            gate = t;
    if (n->record_t < gate)
        sim_fail(w, "worker %d computes lease %lld without the control record of step %lld", node,
                 (long long)lease, (long long)gate);
}

/* What a chief takes for done is. */
static void check_ledger(struct world *w, int node)
{
    const struct wf_chief *c = &w->node[node].m.chief;
    const struct wf_ledger *l = &c->ledger;

    if (c->state != WF_CHIEF_ACTS || !c->epoch || l->learns || l->term != c->term)
        return;
    for (int p = 0; p < w->c->plan.n_pieces; p++) {
        const struct piece_log *log = sim_log(w, c->epoch->history, p);

        for (int64_t i = 0; i < l->low + l->plan.window && i < MAX_LEASES; i++)
            if (!log->is_applied[i] &&
                (i < l->low || l->lease[i % l->plan.window].state == WF_LEASE_DONE))
                sim_fail(w, "chief %d takes lease %lld for done, and piece %d lacks it", node,
                         (long long)i, p);
    }
    for (int i = 0; i < l->plan.window; i++)
        if (l->lease[i].state == WF_LEASE_HELD &&
            !wf_epoch_has(c->epoch, l->lease[i].node, l->lease[i].incarnation))
            sim_fail(w, "chief %d has leased to worker %d, which is gone", node, l->lease[i].node);
}

void sim_check_leased(struct world *w, int node)
{
    struct node *n = &w->node[node];

    if (n->role == WF_ROLE_CHIEF)
        check_ledger(w, node);
    for (int p = 0;
         n->role == WF_ROLE_SERVER && n->m.server.view.belongs && p < w->c->plan.n_pieces; p++)
        check_piece(w, node, p);
    if (n->role == WF_ROLE_WORKER && n->m.lessee.n_push > n->m.lessee.plan.inflight)
        sim_fail(w, "worker %d has %d pushes that are not acknowledged", node, n->m.lessee.n_push);
}

/* A control record is made when all before it is done, and nothing after it has begun. */
void sim_check_drained(struct world *w, uint64_t history, int64_t t)
{
    for (int p = 0; p < w->c->plan.n_pieces && w->log[history % MAX_HISTORIES]; p++)
        if (sim_log(w, history, p)->n != t * w->c->plan.n_shards)
            sim_fail(w, "the control record of step %lld is made, and piece %d has %lld leases",
                     (long long)t, p, (long long)sim_log(w, history, p)->n);
}

/* Whoever decides may write a checkpoint first: everything is as it is when all leases before the
 * step are done, and no other one. If another one has decided, it is too late. */
void sim_save_drained(struct world *w, int node, int64_t t)
{
    const struct wf_lessee_worker *c = &w->node[node].m.lessee;
    const struct wf_view *v = &c->view;
    uint64_t h = v->epoch->history % MAX_HISTORIES;
    struct wf_message *m;

    if (c->asked != t || !wf_lessee_decides(c) || v->epoch->history != w->epoch->history ||
        sim_random(w, 0, 1) || sim_stored_control(w, v->epoch->history, t))
        return;
    sim_check_drained(w, v->epoch->history, t);
    for (int p = 0; p < w->c->plan.n_pieces && !w->result->failed; p++) {
        const struct piece_log *log = sim_log(w, v->epoch->history, p);

        if (w->in_store[h][t][p])
            continue;
        w->in_store[h][t][p] = true;
        memcpy(w->saved[h][t][p], log->value[log->n], sizeof log->value[log->n]);
        if (w->kind->keep)
            w->kind->keep(w, v->epoch->history, p, log->n);
    }
    w->result->n.asked_saves++;
    m = wf_view_send(v, &w->acts, WF_MSG_SAVED, v->chief);
    if (m)
        m->t = t;
}

/* Whoever takes all for done has that of its history. */
void sim_check_all_applied(struct world *w)
{
    int64_t n = w->c->plan.n_steps * w->c->plan.n_shards;

    for (int i = 0; i < w->c->n_nodes; i++)
        for (int p = 0; p < w->c->plan.n_pieces; p++) {
            const struct wf_view *v = &w->node[i].m.lessee.view;

            if (w->node[i].role == WF_ROLE_WORKER && w->node[i].alive && v->belongs &&
                sim_log(w, v->epoch->history, p)->n != n)
                sim_fail(w, "the job has ended, and piece %d has %lld of %lld leases", p,
                         (long long)sim_log(w, v->epoch->history, p)->n, (long long)n);
        }
    for (int i = 0; i < w->c->n_nodes && w->kind->is_true; i++)
        for (int p = 0; p < w->c->plan.n_pieces; p++) {
            const struct node *s = &w->node[i];

            if (s->role == WF_ROLE_SERVER && s->alive && holds(w, s, p) &&
                s->m.server.piece[p].version >= 0 &&
                !w->kind->is_true(s->values, p, s->m.server.piece[p].version, true))
                sim_fail(w, "the job has ended, and server %d does not have what piece %d is", i,
                         p);
        }
}
