/* store.c - the store of a simulated job: terms, epochs, manifests, control records. It answers
 * late. */
#include "world.h"

#include <stdlib.h>

uint64_t sim_epoch_hash(const struct wf_epoch *e)
{
    uint64_t h = sim_mix(sim_mix(e->number, e->history), (uint64_t)e->halt);

    for (int i = 0; i < e->n_members; i++)
        h = sim_mix(h, 2 * e->member[i].incarnation + e->member[i].leaves);
    for (int i = 0; i < e->n_pieces; i++)
        h = sim_mix(h, (uint64_t)(e->holders[i].primary * 10000 + e->holders[i].backup * 100 +
                                  e->holders[i].target));
    for (int i = 0; i < e->n_shards; i++)
        h = sim_mix(h, (uint64_t)e->worker[i]);
    return h;
}

/* Now and then it takes much longer than a chief may be silent. */
static int64_t lateness(struct world *w)
{
    if (!w->c->store_late || w->now >= w->calm_at || sim_random(w, 0, 99) >= 15)
        return 0;
    w->result->n.store_late++;
    return sim_random(w, 0, w->c->store_late);
}

static struct event *store_answer(struct world *w, const struct event *r,
                                  const struct wf_store_answer *a, const struct wf_epoch *record)
{
    int64_t at = w->now + sim_random(w, w->c->store_delay / 4 + 1, w->c->store_delay) + lateness(w);
    struct event *e = sim_add_event(w, wf_max_i64(at, w->store_out), E_STORE, r->node);

    e->incarnation = r->incarnation;
    e->answer = *a;
    if (record && wf_epoch_copy(w->ctx, record, &e->record))
        abort();
    return e;
}

static void tell_epoch(struct world *w, const struct wf_epoch *e)
{
    sim_tell(w, "store: epoch %llu of term %llu, history %llu from version %lld, halt %lld",
             (unsigned long long)e->number, (unsigned long long)e->term,
             (unsigned long long)e->history, (long long)e->start, (long long)e->halt);
    for (int i = 0; w->trace && i < e->n_pieces; i++)
        fprintf(w->trace, "            piece %d: primary %d backup %d target %d%s\n", i,
                e->holders[i].primary, e->holders[i].backup, e->holders[i].target,
                e->holders[i].moves ? " moves" : "");
    for (int i = 0; w->trace && i < e->n_members; i++)
        fprintf(w->trace, "            node %d is %llu\n", e->member[i].node,
                (unsigned long long)e->member[i].incarnation);
}

/* Nothing but shards has moved. */
static bool is_balance(const struct wf_epoch *a, const struct wf_epoch *b)
{
    if (!a || a->n_members != b->n_members || a->history != b->history ||
        memcmp(a->holders, b->holders, (size_t)a->n_pieces * sizeof *a->holders) != 0)
        return false;
    for (int i = 0; i < a->n_members; i++)
        if (a->member[i].incarnation != b->member[i].incarnation)
            return false;
    return true;
}

/* The history whose checkpoint of step t is read: the last one that has made it. A chief may go
 * back to where its history began, though a former one has reported a later checkpoint since
 * then. */
static uint64_t source_of(const struct world *w, uint64_t history, int64_t t)
{
    uint64_t h = history % MAX_HISTORIES;

    while (t > 0 && h > 0 && !w->is_made[h][t])
        h--;
    return h;
}

static void create_epoch(struct world *w, struct event *r)
{
    struct wf_store_answer a = {.to = WF_ACT_CREATE_EPOCH, .term = r->record->term};
    uint64_t last = w->epoch ? w->epoch->history : 0;

    a.ok = r->record->number == (w->epoch ? w->epoch->number : 0) + 1;
    if (a.ok) {
        w->result->n.balances += is_balance(w->epoch, r->record);
        sim_check_epoch(w, w->epoch, r->record);
        wf_epoch_free(w->ctx, w->epoch);
        w->epoch = r->record;
        r->record = NULL;
        tell_epoch(w, w->epoch);
        w->epoch_hash[w->epoch->number % MAX_EPOCHS] = sim_epoch_hash(w->epoch);
        w->result->n.restores = (int64_t)w->epoch->history - 1;
        w->result->n.epochs++;
        r->history = source_of(w, r->history, w->epoch->start);
        if (w->c->leased)
            sim_begin_log(w, w->epoch->history, w->epoch->start, r->history);
        if (last != w->epoch->history)
            sim_read_checkpoint(w, r->history, w->epoch->start);
    }
    store_answer(w, r, &a, NULL);
}

/* Whether the term of a request counts is found out first; what it wants is created later, when
 * another chief may have taken the next term. */
static bool is_confirmed(struct world *w, const struct event *r)
{
    struct event *e;

    if (r->confirmed)
        return true;
    e = sim_add_event(w, w->now + sim_random(w, 1, w->c->store_delay / 4 + 1), E_REQUEST, r->node);
    e->incarnation = r->incarnation;
    e->answer = r->answer;
    e->number = r->number;
    e->history = r->history;
    e->t = r->t;
    e->value = r->value;
    e->confirmed = true;
    e->is_ok = r->number == w->term;
    return false;
}

static void create_manifest(struct world *w, const struct event *r)
{
    struct wf_store_answer a = {
        .to = WF_ACT_CREATE_MANIFEST, .ok = r->is_ok, .history = r->history, .t = r->t};

    if (!is_confirmed(w, r))
        return;
    for (int p = 0; p < w->c->plan.n_pieces && a.ok; p++)
        if (!w->in_store[r->history % MAX_HISTORIES][r->t][p])
            sim_fail(w, "a manifest names version %lld of piece %d, which was not saved",
                     (long long)r->t, p);
    if (a.ok && (r->history > w->manifest_history ||
                 (r->history == w->manifest_history && r->t > w->manifest))) {
        sim_tell(w, "store: manifest of version %lld", (long long)r->t);
        w->has_manifest = true;
        w->manifest_history = r->history;
        w->manifest = r->t;
        w->is_made[r->history % MAX_HISTORIES][r->t] = true;
    }
    store_answer(w, r, &a, NULL);
}

/* Only one can create it. */
static void create_control(struct world *w, const struct event *r)
{
    struct wf_store_answer a = {
        .to = WF_ACT_CREATE_CONTROL, .ok = r->is_ok, .history = r->history, .control_t = r->t};
    uint64_t *at = &w->control[r->history % MAX_HISTORIES][r->t];

    if (!is_confirmed(w, r))
        return;
    w->result->n.repeated += a.ok && *at;
    if (a.ok && !*at) {
        sim_tell(w, "store: control record of step %lld", (long long)r->t);
        w->result->n.controls++;
        w->result->n.unplanned += w->c->leased && r->t == w->epoch->halt;
        if (w->c->leased)
            sim_check_drained(w, r->history, r->t);
        *at = r->value;
    }
    store_answer(w, r, &a, NULL)->value = *at;
}

/* A request arrives at the store; whoever sent it may be gone by then. */
void sim_use_store(struct world *w, struct event *r)
{
    struct wf_store_answer a = {.to = r->answer.to, .term = r->number, .control_t = -1};

    switch (a.to) {
    case WF_ACT_READ:
        w->pulse = r->pulse ? r->pulse : w->pulse;
        a = (struct wf_store_answer){a.to,
                                     true,
                                     w->term,
                                     NULL,
                                     w->pulse,
                                     w->has_manifest,
                                     w->manifest_history,
                                     w->manifest,
                                     w->epoch ? sim_last_control(w, w->epoch->history) : -1,
                                     NULL,
                                     0};
        store_answer(w, r, &a, w->epoch)->value =
            a.control_t < 0 ? 0 : sim_stored_control(w, w->epoch->history, a.control_t);
        break;
    case WF_ACT_CREATE_TERM:
        a.ok = r->number == w->term + 1;
        if (a.ok) {
            sim_check_term(w, r->node);
            sim_tell(w, "store: node %d takes term %llu", r->node, (unsigned long long)r->number);
            w->term = r->number;
            w->term_owner = r->node;
            w->result->n.takeovers = (int64_t)w->term - 1;
        }
        store_answer(w, r, &a, NULL);
        break;
    case WF_ACT_CREATE_MANIFEST: create_manifest(w, r); break;
    case WF_ACT_CREATE_CONTROL: create_control(w, r); break;
    default: create_epoch(w, r); break;
    }
}

void sim_ask_store(struct world *w, int node, const struct wf_action *act)
{
    const struct wf_chief *c = &w->node[node].m.chief;
    struct event *e = sim_add_event(w, w->now + sim_random(w, 1, w->c->store_delay) + lateness(w),
                                    E_REQUEST, node);

    if (act->type == WF_ACT_CREATE_EPOCH && c->highest > c->term)
        sim_fail(w, "chief %d makes an epoch, and has seen a higher term", node);
    if (act->type == WF_ACT_CREATE_EPOCH)
        sim_check_dropped(w, node, act->record);
    e->incarnation = w->node[node].incarnation;
    e->answer.to = act->type;
    e->number = act->number;
    e->history = act->history;
    e->t = act->t;
    e->pulse = act->pulse;
    if (act->type == WF_ACT_CREATE_EPOCH)
        e->history = c->manifest_history;
    if (act->payload)
        e->value = ((const struct payload *)act->payload)->v[0];
    if (act->record && wf_epoch_copy(w->ctx, act->record, &e->record))
        abort();
}
