/* stall.c - workers that are alive, and hold up the others without progress.
 *
 * A worker whose process beats, but whose program hangs, would keep a job waiting for ever. Its
 * beats say what the program does, in which step, and how often it has done something. It is behind
 * while it does not do anything new, is not waiting itself, and another worker is ahead: waits in
 * the same step, or is at a later one. If that lasts for too long, its process belongs to no
 * further epoch: others compute its shards. Should it go on, it finds itself outside, and joins as
 * a new one.
 *
 * Kept true: who does something new within the time is not left out, nor who is silent meanwhile;
 * while all are slow alike, nobody is; one worker always stays, also if the others die while it is
 * to be left out. What may take long has more time: ten times as much to decide or to begin, and in
 * any case four times what a shard takes. */
#include "cluster/chief.h"

enum { LONG = 10, SHARDS = 4 };

void wf_stall_hear(struct wf_known *k, const struct wf_message *m)
{
    enum wf_doing doing = m->type == WF_MSG_DONE ? WF_DOES_WAIT : (enum wf_doing)m->round;

    if (k->moves != m->block || k->doing != doing || k->history != m->history) {
        k->behind_ns = 0;
        k->straggles = false;
    }
    k->moves = m->block;
    k->doing = doing;
    k->history = m->history;
    k->step = m->t;
    k->shard = m->shard;
}

int64_t wf_stall_limit(const struct wf_chief *c, const struct wf_known *k)
{
    int64_t pace = k->pace_ns, most = c->plan.stall_ns;

    for (int n = 0; n < c->plan.n_nodes && !k->pace_ns; n++) /* as long as it takes others */
        pace = wf_max_i64(pace, c->known[n].pace_ns);
    if (k->doing == WF_DOES_DECIDE || k->doing == WF_DOES_PREPARE)
        most *= LONG;
    return wf_max_i64(most, SHARDS * pace);
}

/* A worker of the current epoch, of which beats have come. */
static bool is_known(const struct wf_chief *c, const struct wf_member *m)
{
    const struct wf_known *k = &c->known[m->node];

    return m->role == WF_ROLE_WORKER && k->heard && k->incarnation == m->incarnation &&
           k->step >= 0 && k->history == c->epoch->history && !k->stalled;
}

/* One that is silent is not behind, as nothing is known of it. */
static bool is_behind(const struct wf_chief *c, const struct wf_member *m)
{
    const struct wf_known *k = &c->known[m->node];

    if (c->now - k->heard_ns > c->plan.timeout_ns)
        return false;
    for (int i = 0; k->doing != WF_DOES_WAIT && i < c->epoch->n_members; i++) {
        const struct wf_member *other = &c->epoch->member[i];
        const struct wf_known *o = &c->known[other->node];

        if (other != m && is_known(c, other) && c->now - o->heard_ns <= c->plan.timeout_ns &&
            (o->step > k->step || (o->step == k->step && o->doing == WF_DOES_WAIT)))
            return true;
    }
    return false;
}

void wf_stall_look(struct wf_chief *c)
{
    for (int i = 0; c->epoch && c->plan.stall_ns && i < c->epoch->n_members; i++) {
        const struct wf_member *m = &c->epoch->member[i];
        struct wf_known *k = &c->known[m->node];
        int64_t limit;

        if (!is_known(c, m))
            continue;
        if (!is_behind(c, m)) {
            k->behind_ns = 0;
            k->straggles = false;
            continue;
        }
        if (!k->behind_ns)
            k->behind_ns = wf_max_i64(c->now, 1);
        limit = wf_stall_limit(c, k);
        k->straggles = c->now - k->behind_ns > limit / 2;
        k->stalled = c->now - k->behind_ns > limit;
    }
}

void wf_stall_spare(struct wf_chief *c)
{
    for (int n = 0; n < c->plan.n_nodes; n++) {
        const struct wf_known *k = &c->known[n];

        if (k->heard && k->role == WF_ROLE_WORKER && !k->stalled && !k->leaves &&
            c->now - k->heard_ns <= c->plan.timeout_ns)
            return;
    }
    for (int i = 0; c->epoch && i < c->epoch->n_members; i++) {
        struct wf_known *k = &c->known[c->epoch->member[i].node];

        if (k->stalled && k->incarnation == c->epoch->member[i].incarnation) {
            k->stalled = k->straggles = false;
            k->behind_ns = 0;
        }
    }
}
