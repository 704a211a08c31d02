/* assign.c - who belongs to the next epoch, who holds each piece, who computes each shard.
 *
 * Kept true: a piece's primary is one that was primary, backup, or a target in lockstep; only
 * what no living node holds is restored, and then everything is. Few things change at a time:
 * what a living node has stays there, unless it leaves or has much more than another. */
#include "cluster/chief.h"

static bool is_alive(const struct wf_chief *c, const struct wf_member *m)
{
    const struct wf_known *k = &c->known[m->node];

    return k->heard && k->incarnation == m->incarnation && !k->stalled &&
           c->now - k->heard_ns <= c->plan.timeout_ns;
}

/* Then those that should leave hold what there is, until others come. */
static bool every_server_leaves(const struct wf_chief *c, const struct wf_epoch *e)
{
    for (int i = 0; i < e->n_members; i++)
        if (e->member[i].role == WF_ROLE_SERVER && !c->known[e->member[i].node].leaves)
            return false;
    return true;
}

static bool stays(const struct wf_chief *c, const struct wf_epoch *e, int node)
{
    const struct wf_member *m = node == WF_NOBODY ? NULL : wf_epoch_member(e, node);

    return m &&
           (!c->known[node].leaves || (m->role == WF_ROLE_SERVER && every_server_leaves(c, e)));
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
        if (is_alive(c, &old->member[i])) {
            e->member[e->n_members] = old->member[i];
            e->member[e->n_members++].leaves |= c->known[old->member[i].node].leaves;
        }
    for (int n = 0; n < c->plan.n_nodes; n++) {
        const struct wf_known *k = &c->known[n];
        struct wf_member m = {n, k->role, k->incarnation, k->leaves};

        /* One that was lost before it saw that it is to leave reads it now. */
        if (is_alive(c, &m) && m.role != WF_ROLE_CHIEF && !wf_epoch_member(e, n) &&
            !(k->leaves && k->knows))
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

int64_t wf_assign_load(const struct wf_chief *c, const struct wf_epoch *e, int node)
{
    return load_of(c, e, node, true);
}

/* What bytes mean for a server: those of one that is overloaded count several times. */
static int64_t weight_of(const struct wf_chief *c, int node, int64_t bytes)
{
    return bytes * wf_busy_cost(&c->known[node]);
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
        load = weight_of(c, node, load_of(c, e, node, copies));
        if (best == WF_NOBODY || load < least) {
            best = node;
            least = load;
        }
    }
    return best;
}

/* The server that a piece is placed on, if it is there to stay; otherwise WF_NOBODY. */
static int home_of(const struct wf_chief *c, const struct wf_epoch *e, int piece)
{
    int node = c->plan.piece_home ? c->plan.piece_home[piece] : WF_NOBODY;
    const struct wf_member *m = node == WF_NOBODY ? NULL : wf_epoch_member(e, node);

    return m && m->role == WF_ROLE_SERVER && stays(c, e, node) ? node : WF_NOBODY;
}

/* Everything begins with one version: there is nothing anywhere yet. Pieces that are placed come
 * first, so that the others even out what they leave. */
static void deal_pieces(const struct wf_chief *c, struct wf_epoch *e)
{
    for (int i = 0; i < e->n_pieces; i++)
        e->holders[i] = (struct wf_holders){home_of(c, e, i), WF_NOBODY, WF_NOBODY, false};
    for (int i = 0; i < e->n_pieces; i++)
        if (e->holders[i].primary == WF_NOBODY)
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
static void mend_piece(const struct wf_chief *c, const struct wf_epoch *e, int piece,
                       struct wf_holders *h)
{
    int home = home_of(c, e, piece);
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
    h->target = home != h->primary && home != h->backup ? home : WF_NOBODY;
    if (h->target == WF_NOBODY)
        h->target = idlest(c, e, h->primary, h->backup, true);
    h->moves = !primary_stays && h->target != WF_NOBODY;
}

/* Pieces go back to the servers that they are placed on: at once where these have a copy, otherwise
 * one after the other. */
static void go_home(const struct wf_chief *c, struct wf_epoch *e)
{
    bool moving = false;

    for (int i = 0; i < e->n_pieces; i++)
        moving |= e->holders[i].moves;
    for (int i = 0; i < e->n_pieces; i++) {
        struct wf_holders *h = &e->holders[i];
        int home = home_of(c, e, i);

        if (home == WF_NOBODY || home == h->primary || h->target != WF_NOBODY)
            continue;
        if (h->backup == home) {
            h->backup = h->primary;
            h->primary = home;
        } else if (!moving) {
            h->target = home;
            h->moves = moving = true;
        }
    }
}

/* One piece goes from the server that primaries are most of a load for to the one with the least,
 * if that makes the division more even, and nothing else is under way. */
static void balance_pieces(const struct wf_chief *c, struct wf_epoch *e)
{
    int least = idlest(c, e, WF_NOBODY, WF_NOBODY, false);
    int best = -1;
    int64_t gain = 0;

    if (wf_busy_settles(c))
        return;
    for (int i = 0; i < e->n_pieces; i++) {
        struct wf_holders *h = &e->holders[i];
        int64_t diff, bytes = bytes_of(c, i);

        if (h->target != WF_NOBODY || least == WF_NOBODY)
            return;
        diff = weight_of(c, h->primary, load_of(c, e, h->primary, false)) -
               weight_of(c, least, load_of(c, e, least, false) + bytes);
        if (home_of(c, e, i) != WF_NOBODY)
            continue;
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

/* It is in the store that the member leaves, and the member has seen it: it will not join again
 * when it finds itself outside, whoever is chief then. */
static bool knows_that_it_leaves(const struct wf_chief *c, const struct wf_epoch *old,
                                 const struct wf_member *m)
{
    const struct wf_member *was = old ? wf_epoch_member(old, m->node) : NULL;

    return was && was->leaves && c->known[m->node].epoch >= old->number;
}

/* Who leaves and holds nothing any more does not belong to the job. */
static void release(struct wf_chief *c, const struct wf_epoch *old, struct wf_epoch *e)
{
    int kept = 0;

    for (int i = 0; i < e->n_members; i++) {
        const struct wf_member *m = &e->member[i];

        if (!m->leaves || !knows_that_it_leaves(c, old, m) ||
            (m->role == WF_ROLE_SERVER && load_of(c, e, m->node, true) > 0))
            e->member[kept++] = *m;
        else
            c->known[m->node].knows = true;
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

static bool computes(const struct wf_chief *c, const struct wf_epoch *e, int node)
{
    const struct wf_member *m = wf_epoch_member(e, node);

    return m && m->role == WF_ROLE_WORKER && stays(c, e, node);
}

/* A worker, and the run of shards that it gets. */
struct hand {
    int node, n, first; /* first: of its former run */
    int64_t pace;       /* what a shard takes it */
};

static int first_shard(const struct wf_epoch *e, int node)
{
    for (int l = 0; l < e->n_shards; l++)
        if (e->worker[l] == node)
            return l;
    return e->n_shards;
}

/* All that compute, in the order of their former runs, with what they have now. Who has not
 * computed yet counts like the fastest. Returns how many. */
static int list_hands(const struct wf_chief *c, const struct wf_epoch *e, struct hand *h)
{
    int64_t fastest = 0;
    int n = 0;

    for (int i = 0; i < e->n_members; i++) {
        int node = e->member[i].node, k = n;
        struct hand it = {node, shards_of(e, node), first_shard(e, node), c->known[node].pace_ns};

        if (!computes(c, e, node))
            continue;
        if (it.pace && (!fastest || it.pace < fastest))
            fastest = it.pace;
        for (; k > 0 && h[k - 1].first > it.first; k--)
            h[k] = h[k - 1];
        h[k] = it;
        n++;
    }
    for (int i = 0; i < n; i++)
        h[i].pace = h[i].pace && c->plan.balance_ns ? h[i].pace
                    : fastest && c->plan.balance_ns ? fastest
                                                    : 1;
    return n;
}

/* How long a step takes: as long as the last one. */
static double length_of(const struct hand *h, int n)
{
    double longest = 0;

    for (int i = 0; i < n; i++)
        if ((double)h[i].n * (double)h[i].pace > longest)
            longest = (double)h[i].n * (double)h[i].pace;
    return longest;
}

/* The sizes of runs with which a step is shortest: each shard goes to whoever would be done with it
 * first. Everybody gets one, if there are enough; the one that decides in any case. */
static void share(struct hand *h, int n, int n_shards, int decider)
{
    for (int i = 0; i < n; i++)
        h[i].n = n_shards >= n || h[i].node == decider;
    for (int l = n_shards >= n ? n : 1; l < n_shards && n > 0; l++) {
        int best = 0;

        for (int i = 1; i < n; i++)
            if ((double)(h[i].n + 1) * (double)h[i].pace <
                (double)(h[best].n + 1) * (double)h[best].pace)
                best = i;
        h[best].n++;
    }
}

/* Whether shards may stay where they are: every one has a worker, and nobody idles while another
 * has several; without paces, no member has two more than another. */
static bool may_stay(const struct wf_chief *c, const struct wf_epoch *e, const struct hand *h,
                     int n)
{
    int most = 0, least = e->n_shards;

    for (int l = 0; l < e->n_shards; l++)
        if (!computes(c, e, e->worker[l]))
            return false;
    for (int i = 0; i < n; i++) {
        if (h[i].n == 0 && h[i].node == wf_epoch_decider(e))
            return false;
        most = h[i].n > most ? h[i].n : most;
        least = h[i].n < least ? h[i].n : least;
    }
    return least > 0 ? c->plan.balance_ns > 0 || most - least < 2 : most < 2;
}

/* Now and then, when the pace of all that compute is known: a new chief first hears from them. */
static bool is_time_to_balance(struct wf_chief *c, const struct hand *h, int n)
{
    if (!c->plan.balance_ns || c->now - c->balanced_ns < c->plan.balance_ns)
        return false;
    for (int i = 0; i < n; i++)
        if (h[i].n > 0 && !c->known[h[i].node].pace_ns)
            return false;
    c->balanced_ns = c->now;
    return true;
}

/* Each worker gets a run of shards, which it sends as few sums; in the order of the former runs, so
 * that most stay where they are. What is computed already is sent whoever it belongs to. */
static weft_status deal_shards(struct wf_chief *c, struct wf_epoch *e, const struct wf_epoch *old)
{
    struct hand *h;
    double before;
    bool stay;
    int n, l = 0;

    if (e->n_shards == 0) /* they are leased one by one */
        return WEFT_OK;
    h = wf_alloc_n(c->ctx, e->n_members + 1, sizeof *h);
    if (!h)
        return wf_err_nomem(c->ctx, (size_t)e->n_members * sizeof *h, "epoch");
    for (int i = 0; i < e->n_shards; i++)
        e->worker[i] = old ? old->worker[i] : WF_NOBODY;
    n = list_hands(c, e, h);
    stay = may_stay(c, e, h, n);
    if (!stay ||
        is_time_to_balance(c, h, n)) { /* an epoch is worth it if steps get a fifth shorter */
        before = length_of(h, n);
        share(h, n, e->n_shards, wf_epoch_decider(e));
        stay = stay && length_of(h, n) > 0.8 * before;
    }
    for (int i = 0; i < n && !stay; i++)
        for (int k = 0; k < h[i].n; k++)
            e->worker[l++] = h[i].node;
    while (l < e->n_shards && !stay)
        e->worker[l++] = WF_NOBODY;
    wf_free(c->ctx, h);
    return WEFT_OK;
}

/* ---- the next epoch -------------------------------------------------------------------------- */

static bool differs(const struct wf_epoch *a, const struct wf_epoch *b)
{
    if (!a || a->history != b->history || a->n_members != b->n_members)
        return true;
    if (a->halt != b->halt)
        return true;
    for (int i = 0; i < a->n_members; i++)
        if (a->member[i].node != b->member[i].node ||
            a->member[i].incarnation != b->member[i].incarnation ||
            a->member[i].leaves != b->member[i].leaves)
            return true;
    for (int i = 0; i < a->n_pieces; i++) {
        const struct wf_holders *x = &a->holders[i], *y = &b->holders[i];

        if (x->primary != y->primary || x->backup != y->backup || x->target != y->target ||
            x->moves != y->moves)
            return true;
    }
    return memcmp(a->worker, b->worker, (size_t)a->n_shards * sizeof *a->worker) != 0;
}

/* A checkpoint of a former history may have been reported after the present one began with an
 * earlier step. What happened in between was undone, also in the files that workers write. */
int64_t wf_chief_restart(const struct wf_chief *c)
{
    bool former = c->epoch && c->manifest_history < c->epoch->history;

    if (!c->has_manifest)
        return 0;
    return former ? wf_min_i64(c->manifest, c->epoch->start) : c->manifest;
}

static void restore(const struct wf_chief *c, const struct wf_epoch *old, struct wf_epoch *e)
{
    uint64_t last = old ? old->history : 0;

    e->history = wf_max_i64((int64_t)last, (int64_t)c->manifest_history) + 1;
    e->start = wf_chief_restart(c);
    e->halt = -1;
    deal_pieces(c, e);
}

weft_status wf_assign(struct wf_chief *c, struct wf_epoch **out, bool *changed)
{
    const struct wf_epoch *old = c->epoch;
    struct wf_epoch *e;
    weft_status st;
    bool lost = !old;
    int n_servers, n_workers;

    *changed = false;
    wf_stall_spare(c);
    st = list_members(c, old, &e);
    if (st)
        return st;
    e->term = c->term;
    e->chief = c->node;
    e->number = old ? old->number + 1 : 1;
    e->history = old ? old->history : 0;
    e->start = old ? old->start : 0;
    e->halt = wf_ledger_halt(c);
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
        mend_piece(c, e, i, &e->holders[i]);
    go_home(c, e);
    balance_pieces(c, e);
    release(c, old, e);
    e->list = c->list ? wf_strdup(c->ctx, c->list) : NULL;
    st = c->list && !e->list ? wf_err_nomem(c->ctx, strlen(c->list), "epoch record")
                             : deal_shards(c, e, old);
    /* leases are granted in an epoch of the chief's own: then no former chief can create one */
    *changed = !st && (differs(old, e) || (c->plan.ledger.window && old->term != c->term));
    if (*changed)
        *out = e;
    else
        wf_epoch_free(c->ctx, e);
    return st;
}
