/* assign.c - who belongs to the next epoch, who holds each piece, who computes each shard.
 *
 * Kept true: a piece's primary is one that was primary, backup, or a target in lockstep; only
 * what no living node holds is restored, and then everything is. Few things change at a time:
 * what a living node has stays there, unless it leaves or has much more than another. */
#include "cluster/chief.h"

static bool is_alive(const struct wf_chief *c, const struct wf_member *m)
{
    const struct wf_known *k = &c->known[m->node];

    return k->heard && k->incarnation == m->incarnation &&
           c->now - k->heard_ns <= c->plan.timeout_ns;
}

static bool stays(const struct wf_chief *c, const struct wf_epoch *e, int node)
{
    return node != WF_NOBODY && wf_epoch_member(e, node) && !c->known[node].leaves;
}

/* ---- members --------------------------------------------------------------------------------- */

/* Living members, then those that have asked to join. */
static weft_status list_members(const struct wf_chief *c, const struct wf_epoch *old,
                                struct wf_epoch **out)
{
    struct wf_epoch *e;
    weft_status st = wf_epoch_new(c->ctx, c->plan.n_nodes, c->plan.n_pieces, c->plan.n_shards, &e);

    if (st)
        return st;
    e->n_members = 0;
    for (int i = 0; old && i < old->n_members; i++)
        if (is_alive(c, &old->member[i]))
            e->member[e->n_members++] = old->member[i];
    for (int n = 0; n < c->plan.n_nodes; n++) {
        struct wf_member m = {n, c->known[n].role, c->known[n].incarnation};

        if (is_alive(c, &m) && m.role != WF_ROLE_CHIEF && !wf_epoch_member(e, n) &&
            !c->known[n].leaves)
            e->member[e->n_members++] = m;
    }
    *out = e;
    return WEFT_OK;
}

static int count(const struct wf_epoch *e, enum wf_role role)
{
    int n = 0;

    for (int i = 0; i < e->n_members; i++)
        n += e->member[i].role == role;
    return n;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int64_t bytes_of(const struct wf_chief *c, int piece)
{
    return c->plan.piece_bytes ? c->plan.piece_bytes[piece] : 1;
}

/* What a server has of the primaries, or of everything. */
static int64_t load_of(const struct wf_chief *c, const struct wf_epoch *e, int node, bool copies)
{
    int64_t sum = 0;

    for (int i = 0; i < e->n_pieces; i++) {
        const struct wf_holders *h = &e->holders[i];

        if (h->primary == node || (copies && (h->backup == node || h->target == node)))
            sum += bytes_of(c, i);
    }
    return sum;
}

/* The server with the least to do, but for two; WF_NOBODY: there is none. */
static int idlest(const struct wf_chief *c, const struct wf_epoch *e, int not_a, int not_b,
                  bool copies)
{
    int best = WF_NOBODY;
    int64_t least = 0;

    for (int i = 0; i < e->n_members; i++) {
        int node = e->member[i].node;
        int64_t load;

        if (e->member[i].role != WF_ROLE_SERVER || node == not_a || node == not_b ||
            !stays(c, e, node))
            continue;
        load = load_of(c, e, node, copies);
        if (best == WF_NOBODY || load < least) {
            best = node;
            least = load;
        }
    }
    return best;
}

/* Everything begins with one version: there is nothing anywhere yet. */
static void deal_pieces(const struct wf_chief *c, struct wf_epoch *e)
{
    for (int i = 0; i < e->n_pieces; i++)
        e->holders[i] = (struct wf_holders){WF_NOBODY, WF_NOBODY, WF_NOBODY, false};
    for (int i = 0; i < e->n_pieces; i++)
        e->holders[i].primary = idlest(c, e, WF_NOBODY, WF_NOBODY, false);
    for (int i = 0; i < e->n_pieces && c->plan.n_copies; i++)
        e->holders[i].backup = idlest(c, e, e->holders[i].primary, WF_NOBODY, true);
}

/* The same process, not another one of the same node. */
static bool survives(const struct wf_epoch *old, const struct wf_epoch *e, int node)
{
    const struct wf_member *m = wf_epoch_member(old, node);

    return m && wf_epoch_has(e, node, m->incarnation);
}

/* What became of a piece: deaths, and a target that is complete. False: it is lost. */
static bool keep_piece(const struct wf_epoch *old, const struct wf_epoch *e, int piece, bool filled,
                       struct wf_holders *h)
{
    *h = old->holders[piece];
    if (!survives(old, e, h->target))
        h->target = WF_NOBODY;
    if (!survives(old, e, h->backup))
        h->backup = WF_NOBODY;
    filled = filled && h->target != WF_NOBODY;
    if (!survives(old, e, h->primary)) {
        h->primary = h->backup != WF_NOBODY ? h->backup : filled ? h->target : WF_NOBODY;
        h->backup = WF_NOBODY;
        h->moves = false;
    }
    if (h->primary == WF_NOBODY)
        return false;
    if (filled && h->moves) {
        h->backup = h->backup != WF_NOBODY ? h->backup : h->primary;
        h->primary = h->target;
    } else if (filled && h->primary != h->target) {
        h->backup = h->target;
    }
    if (filled)
        h->target = WF_NOBODY;
    if (h->target == WF_NOBODY)
        h->moves = false;
    return true;
}

/* Copies that are missing or leave; one new target a piece at a time. */
static void mend_piece(const struct wf_chief *c, const struct wf_epoch *e, struct wf_holders *h)
{
    bool primary_stays = stays(c, e, h->primary), backup_stays = stays(c, e, h->backup);

    if (!primary_stays && backup_stays) {
        int node = h->primary;

        h->primary = h->backup;
        h->backup = node;
        primary_stays = true;
        backup_stays = false;
    }
    if (h->target != WF_NOBODY || (primary_stays && (backup_stays || !c->plan.n_copies)))
        return;
    h->target = idlest(c, e, h->primary, h->backup, true);
    h->moves = !primary_stays && h->target != WF_NOBODY;
}

/* One piece goes from the server with the most primaries to the one with the fewest, if that makes
 * the division more even, and nothing else is under way. */
static void balance_pieces(const struct wf_chief *c, struct wf_epoch *e)
{
    int least = idlest(c, e, WF_NOBODY, WF_NOBODY, false);
    int best = -1;
    int64_t gain = 0;

    for (int i = 0; i < e->n_pieces; i++) {
        struct wf_holders *h = &e->holders[i];
        int64_t diff, bytes = bytes_of(c, i);

        if (h->target != WF_NOBODY || least == WF_NOBODY)
            return;
        diff = load_of(c, e, h->primary, false) - load_of(c, e, least, false) - bytes;
        if (h->primary != least && diff > 0 && diff > gain) {
            best = i;
            gain = diff;
        }
    }
    if (best < 0)
        return;
    if (e->holders[best].backup == least) {
        e->holders[best].backup = e->holders[best].primary;
        e->holders[best].primary = least;
    } else {
        e->holders[best].target = least;
        e->holders[best].moves = true;
    }
}

/* A server that leaves and holds nothing any more does not belong to the job. */
static void release(const struct wf_chief *c, struct wf_epoch *e)
{
    int kept = 0;

    for (int i = 0; i < e->n_members; i++) {
        int node = e->member[i].node;

        if (!c->known[node].leaves ||
            (e->member[i].role == WF_ROLE_SERVER && load_of(c, e, node, true) > 0))
            e->member[kept++] = e->member[i];
    }
    e->n_members = kept;
}

/* ---- shards ---------------------------------------------------------------------------------- */

static int shards_of(const struct wf_epoch *e, int node)
{
    int n = 0;

    for (int l = 0; l < e->n_shards; l++)
        n += e->worker[l] == node;
    return n;
}

static int find_worker(const struct wf_chief *c, const struct wf_epoch *e, bool most)
{
    int best = WF_NOBODY, extreme = 0;

    for (int i = 0; i < e->n_members; i++) {
        int n = shards_of(e, e->member[i].node);

        if (e->member[i].role == WF_ROLE_WORKER && stays(c, e, e->member[i].node) &&
            (best == WF_NOBODY || (most ? n > extreme : n < extreme))) {
            best = e->member[i].node;
            extreme = n;
        }
    }
    return best;
}

static void deal_shards(const struct wf_chief *c, struct wf_epoch *e, const struct wf_epoch *old)
{
    for (int l = 0; l < e->n_shards; l++)
        e->worker[l] = old && stays(c, e, old->worker[l]) ? old->worker[l] : WF_NOBODY;
    for (int l = 0; l < e->n_shards; l++)
        if (e->worker[l] == WF_NOBODY)
            e->worker[l] = find_worker(c, e, false);
    for (;;) {
        int most = find_worker(c, e, true), least = find_worker(c, e, false), last = -1;

        if (most == WF_NOBODY || shards_of(e, most) - shards_of(e, least) < 2)
            return;
        for (int l = 0; l < e->n_shards; l++)
            last = e->worker[l] == most ? l : last;
        e->worker[last] = least;
    }
}

/* ---- the next epoch -------------------------------------------------------------------------- */

static bool differs(const struct wf_epoch *a, const struct wf_epoch *b)
{
    if (!a || a->history != b->history || a->n_members != b->n_members)
        return true;
    for (int i = 0; i < a->n_members; i++)
        if (a->member[i].node != b->member[i].node ||
            a->member[i].incarnation != b->member[i].incarnation)
            return true;
    for (int i = 0; i < a->n_pieces; i++) {
        const struct wf_holders *x = &a->holders[i], *y = &b->holders[i];

        if (x->primary != y->primary || x->backup != y->backup || x->target != y->target ||
            x->moves != y->moves)
            return true;
    }
    return memcmp(a->worker, b->worker, (size_t)a->n_shards * sizeof *a->worker) != 0;
}

static void restore(const struct wf_chief *c, const struct wf_epoch *old, struct wf_epoch *e)
{
    uint64_t last = old ? old->history : 0;

    e->history = wf_max_i64((int64_t)last, (int64_t)c->manifest_history) + 1;
    e->start = c->has_manifest ? c->manifest : 0;
    deal_pieces(c, e);
}

weft_status wf_assign(struct wf_chief *c, struct wf_epoch **out, bool *changed)
{
    const struct wf_epoch *old = c->epoch;
    struct wf_epoch *e;
    weft_status st = list_members(c, old, &e);
    bool lost = !old;
    int n_servers, n_workers;

    *changed = false;
    if (st)
        return st;
    e->term = c->term;
    e->chief = c->node;
    e->number = old ? old->number + 1 : 1;
    e->history = old ? old->history : 0;
    e->start = old ? old->start : 0;
    n_servers = count(e, WF_ROLE_SERVER);
    n_workers = count(e, WF_ROLE_WORKER);
    if (n_servers == 0 ||
        (!old && (n_servers < c->plan.n_servers || n_workers < c->plan.n_workers))) {
        wf_epoch_free(c->ctx, e);
        return WEFT_OK;
    }
    for (int i = 0; i < e->n_pieces && !lost; i++)
        lost = !keep_piece(old, e, i, c->filled[i], &e->holders[i]);
    if (lost && idlest(c, e, WF_NOBODY, WF_NOBODY, false) == WF_NOBODY) { /* nobody could hold it */
        wf_epoch_free(c->ctx, e);
        return WEFT_OK;
    }
    if (lost)
        restore(c, old, e);
    for (int i = 0; i < e->n_pieces; i++)
        mend_piece(c, e, &e->holders[i]);
    balance_pieces(c, e);
    release(c, e);
    deal_shards(c, e, old);
    *changed = differs(old, e);
    if (*changed)
        *out = e;
    else
        wf_epoch_free(c->ctx, e);
    return WEFT_OK;
}
