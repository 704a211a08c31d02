/* standby.c - a chief that does not act, and one that acts and hears few. */
#include "cluster/standby.h"

#define MAX_DOUBT_NS 500000000

/* How long the store must show no sign of life: there is one every half of the timeout. */
static int64_t patience_of(const struct wf_chief *c)
{
    return c->plan.timeout_ns * 3 / 4;
}

void wf_standby_end(struct wf_chief *c)
{
    c->asked_ns = 0;
    c->looked = false;
}

void wf_standby_hear(struct wf_chief *c, int64_t at)
{
    c->heard_chief = true;
    c->chief_ns = wf_max_i64(c->chief_ns, at);
    if (c->now - c->chief_ns <= c->plan.timeout_ns / 4)
        wf_standby_end(c);
}

void wf_standby_take(struct wf_chief *c, const struct wf_message *m)
{
    struct wf_known *k = &c->known[m->from];

    if (k->heard && k->incarnation == m->incarnation)
        k->heard_ns = c->now;
    if (c->state == WF_CHIEF_ACTS || m->incarnation < k->seen)
        return;
    k->seen = m->incarnation;
    k->seen_ns = c->now;
    if (m->t >= 0 && m->shard != c->node && m->term >= c->highest)
        wf_standby_hear(c, c->now - m->t);
}

void wf_standby_shift(struct wf_chief *c, int64_t late)
{
    for (int n = 0; n < c->plan.n_nodes; n++)
        c->known[n].seen_ns += c->known[n].seen ? late : 0;
    c->asked_ns += c->asked_ns ? late : 0;
    c->look_ns += late;
}

/* The node has answered: this process of it, or a later one. */
static bool is_seen(const struct wf_chief *c, int node, uint64_t incarnation)
{
    const struct wf_known *k = &c->known[node];

    return c->asked_ns && k->seen && k->seen >= incarnation && k->seen_ns >= c->asked_ns &&
           c->now - k->seen_ns <= c->plan.timeout_ns;
}

/* It reaches more tasks than there are members that it does not reach. */
static bool is_stronger(const struct wf_chief *c)
{
    int n_seen = 0, n_unseen = 0;

    for (int n = 0; n < c->plan.n_nodes; n++)
        n_seen += is_seen(c, n, 0);
    for (int i = 0; c->epoch && i < c->epoch->n_members; i++)
        n_unseen += !is_seen(c, c->epoch->member[i].node, c->epoch->member[i].incarnation);
    return n_seen > n_unseen;
}

bool wf_standby_tick(struct wf_chief *c, struct wf_actions *out)
{
    int64_t silent = c->now - c->chief_ns;

    if (!c->heard_chief) /* a former process of it may have been the chief */
        return c->highest == 0 || silent > c->plan.timeout_ns;
    if (silent <= c->plan.timeout_ns / 4) {
        wf_standby_end(c);
        return false;
    }
    if (!c->asked_ns) {
        c->asked_ns = c->now;
        c->n_asked = c->plan.n_nodes;
    }
    for (int n = 0; n < c->plan.n_nodes; n++)
        if (n != c->node)
            wf_chief_send(c, out, WF_MSG_SEEK, n);
    if (!c->looked)
        return true;
    return silent > c->plan.timeout_ns && (is_stronger(c) || c->now - c->look_ns >= patience_of(c));
}

/* Notes what the store shows, and when: anew if a chief has left a sign of life meanwhile. */
static void look(struct wf_chief *c, const struct wf_store_answer *a)
{
    uint64_t epoch = a->epoch ? a->epoch->number : 0;

    if (c->looked && a->pulse == c->look_pulse && a->term == c->look_term && epoch == c->look_epoch)
        return;
    c->looked = true;
    c->look_ns = c->now;
    c->look_pulse = a->pulse;
    c->look_term = a->term;
    c->look_epoch = epoch;
}

bool wf_standby_may(struct wf_chief *c, const struct wf_store_answer *a)
{
    if (c->highest == 0)
        return true;
    if (c->asked_ns)
        look(c, a);
    if (c->now - c->chief_ns <= c->plan.timeout_ns)
        return false;
    if (!c->heard_chief || is_stronger(c))
        return true;
    return c->looked && c->now - c->look_ns >= patience_of(c);
}

int64_t wf_standby_heard(const struct wf_chief *c, const struct wf_member *m)
{
    const struct wf_known *k = &c->known[m->node];
    int64_t at = c->asked_ns;

    if (!at || m->node >= c->n_asked)
        return c->now;
    if (k->seen == m->incarnation)
        at = wf_max_i64(at, k->seen_ns);
    return k->heard && k->incarnation == m->incarnation ? wf_max_i64(at, k->heard_ns) : at;
}

bool wf_standby_doubts(struct wf_chief *c)
{
    int n_silent = 0, n_heard = 0;

    for (int i = 0; c->epoch && i < c->epoch->n_members; i++) {
        const struct wf_known *k = &c->known[c->epoch->member[i].node];
        bool silent = c->now - k->heard_ns > c->plan.timeout_ns;

        n_silent += silent && !k->closed;
        n_heard += !silent;
    }
    if (n_silent <= n_heard) {
        c->doubts_ns = 0;
        return false;
    }
    if (!c->doubts_ns)
        c->doubts_ns = c->now;
    return c->now - c->doubts_ns < wf_min_i64(c->plan.timeout_ns / 4, MAX_DOUBT_NS);
}
