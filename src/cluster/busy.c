/* busy.c - servers that have more to do than others for the same bytes: their machine is slow, or
 * does something else, or their pieces are used more often.
 *
 * Beats of servers say how busy they were. A server that is overloaded, and busier for its bytes
 * than the others, counts its bytes several times (`cost`) when pieces are divided, so that it
 * hands some over, one after the other; when it is as fast as the others again, they count once,
 * and pieces come back.
 *
 * Kept true: without `balance_ns`, and while nobody is overloaded, pieces are divided by bytes
 * alone; a cost changes when nothing is being moved, only by much, and not again for a while, which
 * is twice as long whenever it goes up after it went down. So pieces do not go to and fro. */
#include "cluster/chief.h"

enum {
    NORMAL = 4, /* costs are in quarters */
    MOST = 16,
    PAUSE = 4, /* looks between two changes of a cost, at first; and after a takeover */
    LONGEST = 64 * PAUSE,
    OVERLOADED = 700000000 /* ns of a second */
};

int64_t wf_busy_cost(const struct wf_known *k)
{
    return k->cost ? k->cost : NORMAL;
}

void wf_busy_hear(struct wf_known *k, const struct wf_message *m)
{
    if (m->pace_ns)
        k->busy_ns = k->busy_ns ? (3 * k->busy_ns + m->pace_ns) / 4 : m->pace_ns;
}

bool wf_busy_settles(const struct wf_chief *c)
{
    return c->plan.balance_ns && c->now - c->acts_ns < PAUSE * c->plan.balance_ns;
}

static bool is_moving(const struct wf_epoch *e)
{
    for (int i = 0; i < e->n_pieces; i++)
        if (e->holders[i].target != WF_NOBODY)
            return true;
    return false;
}

static void set_cost(struct wf_chief *c, struct wf_known *k, int cost)
{
    bool up = cost > wf_busy_cost(k);

    if (up && k->was_lowered)
        k->cost_pause = (int)wf_min_i64(2 * (int64_t)k->cost_pause, LONGEST);
    k->was_lowered = !up;
    k->cost = cost;
    k->cost_pause = k->cost_pause ? k->cost_pause : PAUSE;
    k->cost_ns = c->now;
}

/* What it costs this server to hold its bytes, next to the others. */
static void weigh(struct wf_chief *c, int node, double bytes, double others_ns, double others_bytes)
{
    struct wf_known *k = &c->known[node];
    int64_t cost = wf_busy_cost(k), pause = k->cost_pause * c->plan.balance_ns;
    double ratio;

    if (k->cost && c->now - k->cost_ns < pause)
        return;
    if (bytes == 0) { /* it has nothing that shows how fast it is */
        if (cost > NORMAL)
            set_cost(c, k, NORMAL);
        return;
    }
    if (others_ns == 0 || others_bytes == 0 || !k->busy_ns)
        return;
    ratio = (double)k->busy_ns / bytes / (others_ns / others_bytes);
    if (k->busy_ns > OVERLOADED && ratio * NORMAL > 1.5 * (double)cost && cost < MOST)
        set_cost(c, k, ratio * NORMAL < MOST ? (int)(ratio * NORMAL) : MOST);
    else if (cost > NORMAL && ratio < 1.25)
        set_cost(c, k, NORMAL);
}

void wf_busy_look(struct wf_chief *c)
{
    const struct wf_epoch *e = c->epoch;
    double bytes = 0, ns = 0;

    if (!c->plan.balance_ns || !e || c->now - c->busy_looked_ns < c->plan.balance_ns ||
        is_moving(e))
        return;
    c->busy_looked_ns = c->now;
    for (int i = 0; i < e->n_members; i++)
        if (e->member[i].role == WF_ROLE_SERVER && c->known[e->member[i].node].busy_ns) {
            bytes += (double)wf_assign_load(c, e, e->member[i].node);
            ns += (double)c->known[e->member[i].node].busy_ns;
        }
    for (int i = 0; i < e->n_members; i++) {
        int node = e->member[i].node;
        const struct wf_known *k = &c->known[node];
        double own = (double)wf_assign_load(c, e, node);
        bool counts = k->busy_ns > 0;

        if (e->member[i].role == WF_ROLE_SERVER && k->incarnation == e->member[i].incarnation)
            weigh(c, node, own, ns - (double)k->busy_ns, bytes - (counts ? own : 0));
    }
}
