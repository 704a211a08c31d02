/* checks.c - what must always be true in a simulated job. */
#include "world.h"

/* ---- control records ------------------------------------------------------------------------- */

static bool is_planned(const struct world *w, const struct wf_epoch *e, int64_t t)
{
    return w->c->gate_every && (t % w->c->gate_every == 0 || t == e->start);
}

uint64_t sim_stored_control(const struct world *w, uint64_t history, int64_t t)
{
    return w->control[history % MAX_HISTORIES][t];
}

/* The step of the last one; -1: none. */
int64_t sim_last_control(const struct world *w, uint64_t history)
{
    int64_t t = MAX_STEPS;

    while (t >= 0 && !sim_stored_control(w, history, t))
        t--;
    return t;
}

enum wf_gate sim_gate(struct world *w, int node, int64_t t, bool decides)
{
    bool more = decides && (int)(sim_mix(sim_mix(w->c->seed, (uint64_t)t), (uint64_t)node) % 100) <
                               w->c->surprise;

    if (w->node[node].holds)
        return WF_GATE_HOLD;
    return more || t % w->c->gate_every == 0 ? WF_GATE_RECORD : WF_GATE_OPEN;
}

enum wf_doing sim_doing(const struct world *w, int node)
{
    return w->node[node].holds ? WF_DOES_READ : WF_DOES_WAIT;
}

weft_status sim_control(struct world *w, int node, int64_t t, const void *payload)
{
    struct node *n = &w->node[node];

    n->record_t = t;
    n->record = ((const struct payload *)payload)->v[0];
    if (n->record != sim_stored_control(w, n->m.client.view.epoch->history, t))
        sim_fail(w, "worker %d follows a control record of step %lld that is not in the store",
                 node, (long long)t);
    return WEFT_OK;
}

/* A step that needs a record is computed by those who have it. */
void sim_check_control(struct world *w, int node, int64_t t)
{
    const struct node *n = &w->node[node];
    const struct wf_epoch *e = n->m.client.view.epoch;

    bool more = w->c->gate_every && n->m.client.asked == t && wf_client_decides(&n->m.client);
    int begun = 0;

    for (int l = 0; l < w->c->plan.n_shards; l++)
        begun += n->m.client.shard[l] != WF_SHARD_OPEN;
    more &= begun == 1; /* it may have begun before it was to decide */
    if ((is_planned(w, e, t) || more) && n->record_t != t)
        sim_fail(w, "worker %d computes step %lld without its control record", node, (long long)t);
}

/* ---- versions -------------------------------------------------------------------------------- */

/* A version is announced: it is that of a serial run; nothing that was announced is lost; the
 * backup has it. */
void sim_check_announced(struct world *w, const struct node *n, const struct wf_message *m)
{
    const struct wf_epoch *e = n->m.server.view.epoch;
    const struct wf_holders *h = &e->holders[m->piece];

    if (!w->kind->is_true(n->values, m->piece, m->t, m->t == n->m.server.piece[m->piece].version))
        sim_fail(w,
                 "server %d announces version %lld of piece %d, which is not that of a serial run",
                 m->from, (long long)m->t, m->piece);
    if (m->t > e->start && is_planned(w, e, m->t - 1) &&
        !sim_stored_control(w, e->history, m->t - 1))
        sim_fail(w, "step %lld is complete, and its control record is not in the store",
                 (long long)m->t - 1);
    if (e->history > w->announced_history) {
        w->announced_history = e->history;
        for (int p = 0; p < MAX_PIECES; p++)
            w->announced[p] = e->start;
    }
    if (e->history < w->announced_history)
        return;
    if (e->number == w->epoch->number && m->t < w->announced[m->piece])
        sim_fail(w, "piece %d: version %lld was announced, and the primary is at %lld", m->piece,
                 (long long)w->announced[m->piece], (long long)m->t);
    w->announced[m->piece] = wf_max_i64(w->announced[m->piece], m->t);
    if (h->backup != WF_NOBODY && e->number == w->epoch->number) {
        const struct node *b = sim_at(w, h->backup);

        if (b->alive && wf_epoch_has(e, h->backup, b->incarnation) &&
            b->m.server.piece[m->piece].version < m->t)
            sim_fail(w, "piece %d: version %lld is announced, and the backup is at %lld", m->piece,
                     (long long)m->t, (long long)b->m.server.piece[m->piece].version);
    }
}

/* A copy says that it has a version: then it has, and that of a serial run. */
void sim_check_copy(struct world *w, const struct node *n, const struct wf_message *m)
{
    const struct wf_server_piece *p = &n->m.server.piece[m->piece];

    if (p->version >= 0 && !w->kind->is_true(n->values, m->piece, p->version, true))
        sim_fail(w, "server %d: its copy of piece %d at version %lld is not that of a serial run",
                 m->from, m->piece, (long long)p->version);
}

/* A version that a step which is not complete needs must not be gone. */
void sim_check_pull(struct world *w, const struct wf_server *s, const struct wf_message *m)
{
    const struct wf_server_piece *p = &s->piece[m->piece];

    if (!wf_view_counts(&s->view, m) || p->holding != WF_HOLDS_PRIMARY || !p->open ||
        s->view.epoch->number != w->epoch->number || m->t >= p->version - 1)
        return;
    for (int i = 0; i < w->c->plan.n_pieces; i++) {
        int holder = w->epoch->holders[i].primary;
        const struct node *n = sim_at(w, holder);

        if (n->alive && n->m.server.view.belongs &&
            n->m.server.view.epoch->number == w->epoch->number &&
            n->m.server.piece[i].version <= m->t)
            sim_fail(w, "piece %d: version %lld is gone, and step %lld is not complete", m->piece,
                     (long long)m->t, (long long)m->t);
    }
}

/* What a worker reads stays as it is, and a new history does not count: then it reads no more. */
void sim_check_held(struct world *w, int node)
{
    const struct node *n = &w->node[node];
    const struct wf_client *c = &n->m.client;

    if (!c->view.belongs || c->view.epoch->history != n->held_history)
        return;
    for (int p = 0; p < w->c->plan.n_pieces; p++)
        if (n->held >> p & 1 && !wf_client_has(c, p, n->held_t))
            sim_fail(w, "worker %d: version %lld of piece %d was overwritten while it was read",
                     node, (long long)n->held_t, p);
}

/* Of a worker: its step; of a server: the versions of what it holds. Only a new history goes
 * back. */
static void check_versions(struct world *w, int i, const struct wf_epoch *e)
{
    struct node *n = &w->node[i];
    bool same = e && e->history == n->seen_history;

    if (e && e->history < n->seen_history)
        sim_fail(w, "node %d: history %llu after %llu", i, (unsigned long long)e->history,
                 (unsigned long long)n->seen_history);
    n->seen_history = e ? e->history : n->seen_history;
    if (n->role == WF_ROLE_WORKER && !w->c->leased) {
        if (same && n->m.client.t < n->seen_t)
            sim_fail(w, "worker %d: step %lld after %lld", i, (long long)n->m.client.t,
                     (long long)n->seen_t);
        n->seen_t = n->m.client.t;
    }
    for (int p = 0; n->role == WF_ROLE_SERVER && p < w->c->plan.n_pieces; p++) {
        const struct wf_server_piece *s = &n->m.server.piece[p];
        bool holds = s->holding == WF_HOLDS_PRIMARY || s->holding == WF_HOLDS_BACKUP;

        if (same && holds && s->version < n->seen_version[p])
            sim_fail(w, "server %d: version %lld of piece %d after %lld", i, (long long)s->version,
                     p, (long long)n->seen_version[p]);
        n->seen_version[p] = holds ? s->version : -1;
    }
}

/* ---- members --------------------------------------------------------------------------------- */

/* Numbers only rise; what waits is bounded. */
void sim_check_node(struct world *w, int i)
{
    struct node *n = &w->node[i];
    const struct wf_view *v = n->role == WF_ROLE_SERVER ? &n->m.server.view : &n->m.client.view;
    uint64_t term = n->role == WF_ROLE_CHIEF ? n->m.chief.term : v->term;
    const struct wf_epoch *e = n->role == WF_ROLE_CHIEF ? n->m.chief.epoch : v->epoch;

    if (term < n->seen_term || (e && e->number < n->seen_epoch))
        sim_fail(w, "node %d: term or epoch went back", i);
    if (n->role != WF_ROLE_CHIEF)
        check_versions(w, i, e);
    for (int k = 0; n->role == WF_ROLE_CHIEF && k < w->c->n_nodes; k++) {
        int cost = (int)wf_busy_cost(&n->m.chief.known[k]);

        w->result->n.relieved += n->heard[k].cost && cost != n->heard[k].cost;
        n->heard[k].cost = cost;
    }
    for (int k = 0; n->role == WF_ROLE_CHIEF && w->c->stall_ns && k < w->c->n_nodes; k++) {
        bool stalled = n->m.chief.known[k].stalled;

        n->heard[k].stalled_at = !stalled                 ? 0
                                 : n->heard[k].stalled_at ? n->heard[k].stalled_at
                                                          : wf_max_i64(w->now, 1);
    }
    n->seen_term = term;
    n->seen_epoch = e ? e->number : n->seen_epoch;
    if (e && (!w->epoch || e->number > w->epoch->number))
        sim_fail(w, "node %d acts on epoch %llu, which is not in the store", i,
                 (unsigned long long)e->number);
    for (int p = 0; n->role == WF_ROLE_SERVER && p < w->c->plan.n_pieces; p++)
        if (n->m.server.piece[p].n_want > w->c->n_workers + w->c->n_added)
            sim_fail(w, "server %d keeps %lld pulls of piece %d", i,
                     (long long)n->m.server.piece[p].n_want, p);
}

/* A worker computes one run of shards; somebody computes each, and the one that decides has one. */
static void check_shards(struct world *w, const struct wf_epoch *e)
{
    int decider = wf_epoch_decider(e);
    bool any = false, decides = decider == WF_NOBODY;

    for (int l = 0; l < e->n_shards; l++) {
        any |= e->worker[l] != WF_NOBODY;
        decides |= e->worker[l] == decider;
    }
    for (int l = 0; l < e->n_shards; l++) {
        const struct wf_member *m = wf_epoch_member(e, e->worker[l]);

        if (any && (!m || m->role != WF_ROLE_WORKER))
            sim_fail(w, "epoch %llu: nobody computes shard %d", (unsigned long long)e->number, l);
        for (int k = 0; k < l - 1; k++)
            if (e->worker[k] == e->worker[l] && e->worker[l - 1] != e->worker[l])
                sim_fail(w, "epoch %llu: worker %d computes shards %d and %d, and not %d",
                         (unsigned long long)e->number, e->worker[l], k, l, l - 1);
    }
    if (any && !decides)
        sim_fail(w, "epoch %llu: worker %d decides, and has no shard",
                 (unsigned long long)e->number, decider);
}

/* The process that held a piece in the last epoch is in this one. */
static bool survives(const struct wf_epoch *old, const struct wf_epoch *e, int node)
{
    const struct wf_member *m = wf_epoch_member(old, node);

    return m && wf_epoch_has(e, node, m->incarnation);
}

/* Whoever is to hold a piece has all of it that was announced. Only one that held it does, or a
 * target that is complete. */
static void check_holder(struct world *w, const struct wf_epoch *old, const struct wf_epoch *e,
                         int piece, int node)
{
    const struct wf_holders *was = &old->holders[piece];
    const struct node *n = sim_at(w, node);
    const struct wf_server *s = n ? &n->m.server : NULL;
    int64_t first = e->start * (w->c->leased ? w->c->plan.n_shards : 1);
    int64_t last = w->announced_history == e->history ? w->announced[piece] : first;

    if (node == was->primary || node == was->backup) {
        if (!survives(old, e, node))
            sim_fail(w, "epoch %llu: piece %d is lost with server %d, which holds it",
                     (unsigned long long)e->number, piece, node);
    } else if (node != was->target || !survives(old, e, node)) {
        sim_fail(w, "epoch %llu: server %d is to hold piece %d, and has nothing of it",
                 (unsigned long long)e->number, node, piece);
    } else if (n->alive && wf_epoch_has(e, node, n->incarnation) &&
               s->view.epoch->number <= e->number && s->piece[piece].version < last) {
        sim_fail(w, "epoch %llu: server %d is to hold piece %d, and is at version %lld of %lld",
                 (unsigned long long)e->number, node, piece, (long long)s->piece[piece].version,
                 (long long)last);
    }
}

static void check_holders(struct world *w, const struct wf_epoch *e, int piece)
{
    const struct wf_holders *h = &e->holders[piece];
    const int node[] = {h->primary, h->backup, h->target};

    for (int k = 0; k < 3; k++) {
        const struct wf_member *m = wf_epoch_member(e, node[k]);

        if ((k == 0 || node[k] != WF_NOBODY) && (!m || m->role != WF_ROLE_SERVER))
            sim_fail(w, "epoch %llu: node %d is to hold piece %d, and is no server that belongs",
                     (unsigned long long)e->number, node[k], piece);
        for (int i = 0; i < k; i++)
            if (node[k] != WF_NOBODY && node[k] == node[i])
                sim_fail(w, "epoch %llu: server %d has two copies of piece %d",
                         (unsigned long long)e->number, node[k], piece);
    }
}

void sim_check_epoch(struct world *w, const struct wf_epoch *old, const struct wf_epoch *e)
{
    bool lost = !old;

    sim_check_list(w, old, e);
    check_shards(w, e);
    for (int i = 0; i < e->n_pieces; i++)
        check_holders(w, e, i);
    for (int i = 0; old && i < old->n_members; i++) {
        const struct wf_member *m = &old->member[i];

        if (m->leaves && wf_epoch_has(e, m->node, m->incarnation) &&
            !wf_epoch_member(e, m->node)->leaves)
            sim_fail(w, "epoch %llu: node %d was asked to go, and that is forgotten",
                     (unsigned long long)e->number, m->node);
    }
    if (old && (e->term < old->term || e->history < old->history))
        sim_fail(w, "epoch %llu: term or history went back", (unsigned long long)e->number);
    for (int i = 0; old && i < e->n_pieces; i++) {
        const struct wf_holders *was = &old->holders[i];

        lost |= !survives(old, e, was->primary) && !survives(old, e, was->backup);
        if (e->history == old->history) {
            check_holder(w, old, e, i, e->holders[i].primary);
            if (e->holders[i].backup != WF_NOBODY)
                check_holder(w, old, e, i, e->holders[i].backup);
        }
    }
    if (old && e->history != old->history && !lost)
        sim_fail(w, "epoch %llu goes back to version %lld, and no piece is lost",
                 (unsigned long long)e->number, (long long)e->start);
}

/* Its program had hung for long, or just before; when that began, it may have been silent already
 * for as long as a shard takes. */
static bool hung(const struct world *w, const struct node *n, int64_t from, int64_t until,
                 int64_t at)
{
    int64_t longest = 2 * w->c->compute * w->c->slow[n - w->node];

    return until && at - from + longest >= w->c->stall_ns / 2 && at - until <= w->c->stall_ns / 2;
}

/* A chief leaves a worker out that it hears of: its program had done nothing for long when the
 * chief found that, and another worker stays. */
static void check_evicted(struct world *w, const struct wf_member *m, const struct wf_epoch *e,
                          int64_t at)
{
    const struct node *n = sim_at(w, m->node);
    bool another = false;

    for (int i = 0; i < e->n_members; i++)
        another |= e->member[i].role == WF_ROLE_WORKER;
    if (n->alive && n->incarnation == m->incarnation &&
        !hung(w, n, n->hung_from, n->hung_until, at) &&
        !hung(w, n, n->before_from, n->before_until, at))
        sim_fail(w, "worker %d is left out, and makes progress", m->node);
    if (!another)
        sim_fail(w, "worker %d is left out, and is the last one", m->node);
    w->result->n.evictions++;
}

void sim_check_dropped(struct world *w, int chief, const struct wf_epoch *e)
{
    const struct node *n = &w->node[chief];
    const struct wf_epoch *old = n->m.chief.epoch;

    for (int i = 0; old && i < old->n_members; i++) {
        const struct wf_member *m = &old->member[i];
        const struct heard *h = &n->heard[m->node];

        if (m->leaves) /* it holds nothing any more */
            continue;
        if (!wf_epoch_has(e, m->node, m->incarnation) && h->incarnation == m->incarnation &&
            h->gone < m->incarnation && w->now - h->at <= n->m.chief.plan.timeout_ns &&
            n->m.chief.known[m->node].stalled)
            check_evicted(w, m, e, h->stalled_at ? h->stalled_at : w->now);
        else if (!wf_epoch_has(e, m->node, m->incarnation) && h->incarnation == m->incarnation &&
                 h->gone < m->incarnation && w->now - h->at <= n->m.chief.plan.timeout_ns)
            sim_fail(w, "chief %d drops node %d, which it heard of %lld ms ago", chief, m->node,
                     (long long)((w->now - h->at) / MS));
    }
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* After a change, until chiefs know of it: a timeout, and some ticks. */
#define SETTLED (520 * MS)

static bool runs(const struct world *w, int i)
{
    return w->node[i].alive && w->node[i].paused_until <= w->now;
}

static bool reaches(const struct world *w, int a, int b)
{
    const struct node *x = &w->node[a], *y = &w->node[b];

    return runs(w, b) && !((x->cut | x->deaf) >> b & 1) && !((y->cut | y->deaf) >> a & 1);
}

/* The chief that has the last term, and acts; WF_NOBODY: there is none that runs. */
static int leader(const struct world *w)
{
    for (int i = 0; i < w->c->n_chiefs; i++)
        if (runs(w, i) && w->node[i].m.chief.state == WF_CHIEF_ACTS &&
            w->node[i].m.chief.term == w->term)
            return i;
    return WF_NOBODY;
}

/* Both have done what they do now for longer than silence takes, and the store was quick. */
static bool is_settled(const struct world *w, int lead, int chief)
{
    int64_t long_ago = w->now - 1500 * MS;
    const struct node *l = &w->node[lead], *n = &w->node[chief];

    return w->c->store_delay <= 40 * MS && !w->c->store_late && w->store_out < long_ago &&
           w->now - l->m.chief.acts_ns > 700 * MS && l->paused_until < long_ago && runs(w, chief) &&
           n->paused_until < long_ago && n->m.chief.heard_chief && w->now - w->changed_at > SETTLED;
}

/* It cannot be reached any more, but its last answer was so late that this is not known yet. */
static bool was_late(const struct world *w, int chief, int i)
{
    int number = sim_number(w, chief, i);
    const struct heard *h = &w->node[chief].heard[number < 0 ? 0 : number];

    return number >= 0 && h->seen_at && w->now - h->seen_sent > SETTLED &&
           w->now - h->seen_at <= w->node[chief].m.chief.plan.timeout_ns;
}

/* While a chief acts, only one takes its place that reaches more tasks than it lacks members, and
 * one that the chief does not reach. */
void sim_check_term(struct world *w, int chief)
{
    int lead = leader(w), n_reached = 0, n_lacking = 0, n_own = 0;

    if (lead == WF_NOBODY || lead == chief)
        return;
    w->result->n.displaced++;
    if (!is_settled(w, lead, chief))
        return;
    for (int i = w->c->n_chiefs; i < w->c->n_nodes; i++) {
        bool member = w->epoch && wf_epoch_member(w->epoch, w->node[i].number);
        bool counts = reaches(w, chief, i) || was_late(w, chief, i);

        n_reached += counts;
        n_lacking += member && !counts;
        n_own += reaches(w, chief, i) && !reaches(w, lead, i);
    }
    if (n_reached <= n_lacking || n_own == 0)
        sim_fail(w,
                 "chief %d takes the term of chief %d, which acts: it reaches %d tasks, %d of them "
                 "alone, and lacks %d members",
                 chief, lead, n_reached, n_own, n_lacking);
}
