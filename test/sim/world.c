/* world.c - a simulated job from its start to its end: what happens next, and whether it is
 * done. */
#include "world.h"

#include <stdarg.h>
#include <stdlib.h>

const struct sim_case *sim_case_of(const struct world *w)
{
    return w->c;
}

const struct wf_holders *sim_holders(const struct world *w, int node, int piece)
{
    return &w->node[node].m.server.view.epoch->holders[piece];
}

void sim_fail(struct world *w, const char *fmt, ...)
{
    va_list args;

    if (w->result->failed)
        return;
    w->result->failed = true;
    va_start(args, fmt);
    vsnprintf(w->result->what, sizeof w->result->what, fmt, args);
    va_end(args);
    if (w->trace)
        fprintf(w->trace, "%9.3f FAILED: %s\n", (double)w->now / 1e6, w->result->what);
}

void sim_tell(struct world *w, const char *fmt, ...)
{
    va_list args;

    if (!w->trace)
        return;
    fprintf(w->trace, "%9.3f ", (double)w->now / 1e6);
    va_start(args, fmt);
    vfprintf(w->trace, fmt, args);
    va_end(args);
    fputc('\n', w->trace);
}

int64_t sim_random(struct world *w, int64_t lo, int64_t hi)
{
    w->random = sim_mix(w->random, 0xabcdef);
    return lo + (int64_t)(w->random % (uint64_t)(hi - lo + 1));
}

/* ---- what happens ---------------------------------------------------------------------------- */

/* The chief keeps the bytes of the control record that it counts as the last. */
static weft_status take_answer(struct world *w, struct node *n, struct event *e)
{
    weft_status st;

    e->answer.epoch = e->record;
    if (!sim_learn(w, e->node, e->record)) { /* it has promised a number to another task: it ends */
        sim_tell(w, "chief %d: %s", e->node, weft_error());
        w->result->n.chief_restarts++;
        sim_stop_node(w, e->node);
        sim_add_event(w, w->now + 300 * MS, E_START, e->node);
        return WEFT_OK;
    }
    if (e->record && sim_extend_chief(w, e->node))
        abort();
    st = wf_chief_answer(&n->m.chief, w->now, &e->answer, &w->acts);
    if (e->value && wf_chief_controls(&n->m.chief, &e->answer)) {
        n->record_t = e->answer.control_t;
        n->record = e->value;
    }
    return st;
}

static weft_status handle(struct world *w, struct event *e)
{
    struct node *n = &w->node[e->node];

    switch (e->kind) {
    case E_MESSAGE: return sim_step_message(w, n, e);
    case E_TICK: return sim_tick(w, e->node);
    case E_COMPUTED:
        /* from what is here when it ends: nothing of it may have changed meanwhile */
        w->kind->compute(n->values, e->t, e->shard);
        if (w->c->leased)
            return wf_lessee_computed(&n->m.lessee, w->now, e->t, &w->acts);
        return wf_client_computed(&n->m.client, w->now, e->t, e->shard, &w->acts);
    case E_STORE: return take_answer(w, n, e);
    case E_DECIDED: /* whoever decides, and whenever, decides something else */
        n->decision = sim_mix(n->incarnation, (uint64_t)sim_random(w, 1, 1 << 30)) | 1;
        if (w->c->leased)
            sim_save_drained(w, e->node, e->t);
        if (w->c->leased)
            return wf_lessee_decided(&n->m.lessee, w->now, e->t, &w->acts);
        return wf_client_decided(&n->m.client, w->now, e->t, &w->acts);
    case E_READY:
        if (w->c->leased) {
            if (n->m.lessee.lease == e->t && n->m.lessee.computing)
                w->kind->compute(n->values, e->t, 0);
            return wf_lessee_ready(&n->m.lessee, w->now, e->t, e->piece, &w->acts);
        }
        if (n->m.client.t == e->t && n->m.client.shard[e->shard] == WF_SHARD_COMPUTING)
            w->kind->compute(n->values, e->t, e->shard);
        return wf_client_ready(&n->m.client, w->now, e->t, e->shard, e->piece, &w->acts);
    case E_SAVED:
        w->in_store[e->history % MAX_HISTORIES][e->t][e->piece] = true;
        memcpy(w->saved[e->history % MAX_HISTORIES][e->t][e->piece], e->saved, sizeof e->saved);
        return wf_server_saved(&n->m.server, w->now, e->piece, e->t, e->history, &w->acts);
    case E_HELD:
        sim_check_held(w, e->node);
        n->holds = false;
        return wf_client_go(&n->m.client, w->now, &w->acts);
    default: return WEFT_OK;
    }
}

static void happen(struct world *w, struct event *e)
{
    struct node *n = &w->node[e->node];

    switch (e->kind) {
    case E_START:
        if (!n->alive)
            sim_start_process(w, e->node);
        return;
    case E_FAULT: sim_begin_fault(w, e->fault); return;
    case E_FAULT_END: sim_end_fault(w, e->fault); return;
    case E_REQUEST: sim_use_store(w, e); return;
    default: break;
    }
    if (!n->alive || (e->incarnation && e->incarnation != n->incarnation))
        return;
    if (handle(w, e)) {
        sim_fail(w, "node %d: %s", e->node, weft_error());
        return;
    }
    if (n->alive) /* or it has ended */
        sim_carry_out(w, e->node);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Every piece has a backup, if there is a server for it: one that is to go gets nothing new. */
static bool is_protected(const struct world *w)
{
    int n_servers = 0;

    for (int i = 0; i < w->c->n_nodes; i++) {
        const struct wf_member *m =
            w->epoch && w->node[i].alive ? wf_epoch_member(w->epoch, w->node[i].number) : NULL;

        n_servers += w->node[i].role == WF_ROLE_SERVER && w->node[i].alive && !(m && m->leaves);
    }
    for (int i = 0; i < w->c->plan.n_pieces && w->c->copies && n_servers > 1; i++)
        if (!w->epoch || w->epoch->holders[i].backup == WF_NOBODY)
            return false;
    return true;
}

/* Every server that lives, and is to stay, belongs to the job. */
static bool is_joined(const struct world *w)
{
    for (int i = w->c->n_chiefs; i < w->c->n_nodes; i++) {
        const struct node *n = &w->node[i];

        if (n->role == WF_ROLE_SERVER && n->alive && !n->leaving && !n->left && !n->drained &&
            (!w->epoch || !wf_epoch_has(w->epoch, n->number, n->incarnation)))
            return false;
    }
    return true;
}

/* Every piece is on the server that it is placed on, if that is there. */
static bool is_home(const struct world *w)
{
    for (int i = 0; i < w->c->plan.n_pieces && w->c->placed; i++) {
        int home = w->c->home[i];
        const struct node *n = &w->node[home == WF_NOBODY ? 0 : home];

        if (home != WF_NOBODY && n->alive && !n->leaving && !n->left && !n->drained &&
            (!w->epoch || w->epoch->holders[i].primary != home))
            return false;
    }
    return true;
}

/* All workers have all steps, nothing is in danger, and pieces are where they belong. */
static bool is_done(const struct world *w)
{
    bool any = false;

    if (!is_protected(w) || !is_home(w) || !is_joined(w))
        return false;

    for (int i = w->c->n_chiefs; i < w->c->n_nodes; i++) {
        const struct node *n = &w->node[i];

        if (n->role == WF_ROLE_WORKER && n->alive) {
            if ((w->c->leased ? n->m.lessee.t : n->m.client.t) < w->c->plan.n_steps)
                return false;
            any = true;
        }
    }
    return any;
}

/* Where everybody is, for somebody who wonders why the job does not end. */
static void tell_state(struct world *w)
{
    for (int i = 0; i < w->c->n_nodes; i++) {
        const struct node *n = &w->node[i];

        if (!n->alive)
            sim_tell(w, "node %d is dead", i);
        else if (n->role == WF_ROLE_CHIEF)
            sim_tell(w, "chief %d: state %d, term %llu of %llu", i, n->m.chief.state,
                     (unsigned long long)n->m.chief.term, (unsigned long long)n->m.chief.highest);
        else if (n->role == WF_ROLE_WORKER)
            sim_tell(w, "worker %d: step %lld", i,
                     (long long)(w->c->leased ? n->m.lessee.t : n->m.client.t));
        for (int p = 0; n->alive && n->role == WF_ROLE_SERVER && p < w->c->plan.n_pieces; p++) {
            const struct wf_server_piece *s = &n->m.server.piece[p];

            sim_tell(
                w, "server %d, piece %d: holding %d, version %lld, phase %d, open %d, lockstep %d",
                i, p, s->holding, (long long)s->version, s->phase, s->open, s->lockstep);
        }
    }
}

/* A minute more than the slowest worker alone would take. */
static int64_t limit_of(const struct world *w)
{
    int slowest = 1;

    for (int i = 0; i < w->c->n_nodes; i++)
        slowest = w->c->slow[i] > slowest ? w->c->slow[i] : slowest;
    return w->calm_at + 60000 * MS + 25 * w->c->stall_ns +
           w->c->plan.n_steps * w->c->plan.n_shards * 2 * w->c->compute * slowest;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void run(struct world *w)
{
    int64_t limit = limit_of(w);

    while (!w->result->failed) {
        struct event *e = sim_next_event(w);
        struct node *n = e ? &w->node[e->node] : NULL;

        if (!e)
            break;
        /* a process that is stopped finds everything that came meanwhile when it continues */
        if (n->alive && n->paused_until > e->at && e->kind < E_START) {
            sim_postpone(w, e, n->paused_until);
            continue;
        }
        if (e->kind == E_REQUEST && w->store_out > e->at) { /* it is tried again, in order */
            sim_postpone(w, e, w->store_out);
            continue;
        }
        /* so does a program that hangs; its process takes part meanwhile */
        if (n->alive && n->hung_until > e->at &&
            (e->kind == E_COMPUTED || e->kind == E_READY || e->kind == E_DECIDED ||
             e->kind == E_HELD)) {
            sim_postpone(w, e, n->hung_until);
            continue;
        }
        w->now = e->at;
        w->result->n.events++;
        happen(w, e);
        sim_free_event(w, e);
        if (w->begins_again) {
            sim_begin_again(w);
            limit = limit_of(w);
        }
        if (w->n_heap > MAX_EVENTS)
            sim_fail(w, "%lld messages are under way: they multiply", (long long)w->n_heap);
        if (w->now >= w->calm_at && is_done(w))
            break;
        if (w->now > limit) {
            sim_fail(w, "the job does not end: %lld ms after the last fault",
                     (long long)((w->now - w->calm_at) / MS));
            tell_state(w);
        }
    }
    w->result->ended = w->now;
}

void sim_run(weft_ctx *ctx, const struct sim_case *c, FILE *trace, struct sim_result *out)
{
    struct world *w = calloc(1, sizeof *w);
    struct event *e;

    *out = (struct sim_result){0};
    *w = (struct world){.ctx = ctx, .c = c, .trace = trace, .result = out, .random = c->seed};
    wf_actions_init(&w->acts, ctx);
    w->kind = c->real && c->leased ? &sim_real_leases
              : c->real            ? &sim_real
              : c->leased          ? &sim_leases
                                   : &sim_hashes;
    w->truth = w->kind->new_truth(ctx, c);
    for (int i = 0; i < c->n_nodes; i++) {
        w->node[i].role = i < c->n_chiefs                  ? WF_ROLE_CHIEF
                          : i < c->n_chiefs + c->n_servers ? WF_ROLE_SERVER
                          : i < c->n_nodes - c->n_added    ? WF_ROLE_WORKER
                                                        : c->added[i - (c->n_nodes - c->n_added)];
        sim_add_event(w, c->starts[i], E_START, i);
        w->calm_at = wf_max_i64(w->calm_at, c->starts[i]);
    }
    for (int i = 0; i < c->n_faults; i++) {
        if (c->without >> i & 1)
            continue;
        sim_add_event(w, c->fault[i].at, E_FAULT, c->fault[i].node)->fault = i;
        w->calm_at = wf_max_i64(w->calm_at, c->fault[i].at + c->fault[i].lasts);
    }
    w->calm_at += 1 * MS;
    if (c->resumes)
        sim_resume(w);
    out->n.resumed = w->has_manifest;
    run(w);
    if (c->leased && !out->failed)
        sim_check_all_applied(w);
    for (int i = 0; i < c->n_nodes; i++)
        sim_stop_node(w, i);
    while ((e = sim_next_event(w)))
        sim_free_event(w, e);
    while ((e = w->spare)) {
        w->spare = e->next;
        free(e);
    }
    w->kind->free_truth(w->truth);
    for (int i = 0; i < MAX_HISTORIES; i++)
        free(w->log[i]);
    wf_epoch_free(ctx, w->epoch);
    wf_actions_free(&w->acts);
    wf_free(ctx, w->heap);
    free(w);
}
