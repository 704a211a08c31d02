/* again.c - a simulated job that begins at a checkpoint: from its start, or because the checkpoint
 * that it was to go back to cannot be read. Then all processes end, and all are started again, with
 * an empty store, at the newest checkpoint that can be read. */
#include "world.h"

#include <stdlib.h>

/* The store of a job that begins with step t, of a checkpoint that this store does not know. */
static void begin_with(struct world *w, int64_t t, uint64_t value[MAX_PIECES][MAX_BLOCKS])
{
    w->has_manifest = t > 0;
    w->manifest = t;
    w->manifest_history = 0;
    if (!t)
        return;
    w->is_made[0][t] = true;
    for (int p = 0; p < w->c->plan.n_pieces; p++)
        w->in_store[0][t][p] = true;
    memcpy(w->saved[0][t], value, sizeof w->saved[0][t]);
}

void sim_resume(struct world *w)
{
    uint64_t value[MAX_PIECES][MAX_BLOCKS];

    for (int p = 0; p < MAX_PIECES; p++)
        for (int b = 0; b < MAX_BLOCKS; b++)
            value[p][b] = sim_mix(w->c->seed, (uint64_t)(p * MAX_BLOCKS + b));
    begin_with(w, wf_min_i64(w->c->resumes, w->c->plan.n_steps - 1), value);
    if (w->kind->resume && w->has_manifest)
        w->kind->resume(w, w->manifest);
}

/* The files of the last checkpoint are damaged, which is found when they are read. */
void sim_lose_checkpoint(struct world *w)
{
    if (!w->has_manifest || w->manifest == 0)
        return;
    w->result->n.damaged++;
    w->is_lost[w->manifest_history % MAX_HISTORIES][w->manifest] = true;
}

/* A history begins with a checkpoint: of the history `source`, at step t. */
void sim_read_checkpoint(struct world *w, uint64_t source, int64_t t)
{
    w->begins_again |= t > 0 && w->is_lost[source % MAX_HISTORIES][t];
}

/* Only faults are still to come, and tasks that begin later. */
static void drop_events(struct world *w)
{
    struct event *kept = NULL, **last = &kept, *e;

    while ((e = sim_next_event(w))) {
        if (e->kind != E_FAULT && e->kind != E_FAULT_END && e->kind != E_START) {
            sim_free_event(w, e);
            continue;
        }
        e->next = NULL;
        *last = e;
        last = &e->next;
    }
    while ((e = kept)) {
        kept = e->next;
        sim_postpone(w, e, e->at);
    }
}

static void forget_store(struct world *w)
{
    w->term = 0;
    w->term_owner = 0;
    wf_epoch_free(w->ctx, w->epoch);
    w->epoch = NULL;
    memset(w->in_store, 0, sizeof w->in_store);
    memset(w->is_made, 0, sizeof w->is_made);
    memset(w->is_lost, 0, sizeof w->is_lost);
    memset(w->control, 0, sizeof w->control);
    memset(w->announced, 0, sizeof w->announced);
    memset(&w->list, 0, sizeof w->list);
    w->announced_history = 0;
    for (int i = 0; i < MAX_HISTORIES; i++) {
        free(w->log[i]);
        w->log[i] = NULL;
    }
}

void sim_begin_again(struct world *w)
{
    uint64_t value[MAX_PIECES][MAX_BLOCKS];
    int64_t t = 0;

    for (int h = 0; h < MAX_HISTORIES; h++) /* the last history that has one that can be read */
        for (int64_t k = 1, first = 1; k <= w->c->plan.n_steps; k++)
            if (w->is_made[h][k] && !w->is_lost[h][k]) {
                t = first ? k : wf_max_i64(t, k);
                first = 0;
                memcpy(value, w->saved[h][t], sizeof value);
            }
    sim_tell(w, "the checkpoint cannot be read: all begin again at step %lld", (long long)t);
    w->result->n.again_at++;
    for (int i = 0; i < w->c->n_nodes; i++) {
        sim_stop_node(w, i);
        w->node[i].left = w->node[i].leaving = false;
        memset(&w->node[i].list, 0, sizeof w->node[i].list);
    }
    drop_events(w);
    forget_store(w);
    begin_with(w, t, value);
    for (int i = 0; i < w->c->n_nodes; i++)
        if (w->now >= w->c->starts[i])
            sim_add_event(w, w->now + sim_random(w, 1, 1000) * MS, E_START, i);
    w->begins_again = false;
    w->calm_at = wf_max_i64(w->calm_at, w->now + 1000 * MS);
}
