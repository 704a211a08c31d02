/* world.c - nodes, messages, time and faults of a simulated job, and what must always be true. */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>

enum event_kind {
    E_MESSAGE,
    E_TICK,
    E_COMPUTED,
    E_STORE, /* its answer */
    E_SAVED,
    E_START,
    E_FAULT,
    E_FAULT_END,
    E_REQUEST /* arrives at the store */
};

enum { MAX_EPOCHS = 1024 };

struct event {
    struct event *next; /* that is not in use */
    int64_t at;
    uint64_t order;
    enum event_kind kind;
    int node;
    uint64_t incarnation; /* of the process that it is for; 0: any */
    struct wf_message msg;
    struct payload *payload; /* shared with other copies of the message */
    uint64_t bits;
    struct wf_epoch *record; /* owned */
    struct wf_store_answer answer;
    int shard, piece, fault;
    int64_t t;
    uint64_t number, history;
};

struct node {
    enum wf_role role;
    bool alive, left, leaving;
    bool gone; /* it is not started again */
    uint64_t incarnation;
    int64_t paused_until;
    unsigned cut;     /* from these nodes */
    int64_t computes; /* number of the computation under way */
    union {
        struct wf_chief chief;
        struct wf_server server;
        struct wf_client client;
    } m;
    void *values; /* of a server or a worker */
    uint64_t seen_term, seen_epoch;
};

struct world {
    weft_ctx *ctx;
    const struct sim_case *c;
    const struct sim_kind *kind;
    void *truth;
    FILE *trace;
    struct sim_result *result;
    int64_t now;
    uint64_t order, random, incarnations;
    struct event **heap;
    int64_t n_heap, cap_heap;
    struct event *spare;
    struct node node[MAX_NODES];
    struct wf_actions acts;
    /* the store */
    uint64_t term;
    int term_owner;
    struct wf_epoch *epoch; /* the last */
    uint64_t epoch_hash[MAX_EPOCHS];
    bool has_manifest;
    uint64_t manifest_history;
    int64_t manifest;
    bool in_store[MAX_STEPS + 1][MAX_PIECES]; /* checkpointed pieces */
    /* the highest version that was announced in the present history */
    int64_t announced[MAX_PIECES];
    uint64_t announced_history;
    int64_t calm_at; /* after the last fault */
};

const struct sim_case *sim_case_of(const struct world *w)
{
    return w->c;
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

static void tell(struct world *w, const char *fmt, ...) WEFT_PRINTF(2, 3);
static void tell(struct world *w, const char *fmt, ...)
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

static int64_t draw(struct world *w, int64_t lo, int64_t hi)
{
    w->random = sim_mix(w->random, 0xabcdef);
    return lo + (int64_t)(w->random % (uint64_t)(hi - lo + 1));
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static struct event *add_event(struct world *w, int64_t at, enum event_kind kind, int node)
{
    struct event *e = w->spare;
    int64_t i;

    if (e)
        w->spare = e->next;
    else
        e = malloc(sizeof *e);
    *e = (struct event){.at = at, .order = w->order++, .kind = kind, .node = node};
    if (wf_grow(w->ctx, &w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap))
        abort();
    for (i = w->n_heap++; i > 0 && earlier(e, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
    return e;
}

static struct event *next_event(struct world *w)
{
    struct event *first, *last;
    int64_t i = 0;

    if (w->n_heap == 0)
        return NULL;
    first = w->heap[0];
    last = w->heap[--w->n_heap];
    for (;;) {
        int64_t k = 2 * i + 1;

        if (k >= w->n_heap)
            break;
        if (k + 1 < w->n_heap && earlier(w->heap[k + 1], w->heap[k]))
            k++;
        if (earlier(last, w->heap[k]))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    if (w->n_heap)
        w->heap[i] = last;
    return first;
}

static void free_event(struct world *w, struct event *e)
{
    wf_epoch_free(w->ctx, e->record);
    if (e->payload && --e->payload->n_refs == 0)
        free(e->payload);
    e->next = w->spare;
    w->spare = e;
}

/* ---- what must always be true ---------------------------------------------------------------- */

/* A version is announced: it is that of a serial run; nothing that was announced is lost; the
 * backup has it. */
static void check_announced(struct world *w, const struct node *n, const struct wf_message *m)
{
    const struct wf_epoch *e = n->m.server.view.epoch;
    const struct wf_holders *h = &e->holders[m->piece];

    if (!w->kind->is_true(n->values, m->piece, m->t, m->t == n->m.server.piece[m->piece].version))
        sim_fail(w,
                 "server %d announces version %lld of piece %d, which is not that of a serial run",
                 m->from, (long long)m->t, m->piece);
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
        const struct node *b = &w->node[h->backup];

        if (b->alive && wf_epoch_has(e, h->backup, b->incarnation) &&
            b->m.server.piece[m->piece].version < m->t)
            sim_fail(w, "piece %d: version %lld is announced, and the backup is at %lld", m->piece,
                     (long long)m->t, (long long)b->m.server.piece[m->piece].version);
    }
}

/* A copy says that it has a version: then it has, and that of a serial run. */
static void check_copy(struct world *w, const struct node *n, const struct wf_message *m)
{
    const struct wf_server_piece *p = &n->m.server.piece[m->piece];

    if (p->version >= 0 && !w->kind->is_true(n->values, m->piece, p->version, true))
        sim_fail(w, "server %d: its copy of piece %d at version %lld is not that of a serial run",
                 m->from, m->piece, (long long)p->version);
}

/* A version that a step which is not complete needs must not be gone. */
static void check_pull(struct world *w, const struct wf_server *s, const struct wf_message *m)
{
    const struct wf_server_piece *p = &s->piece[m->piece];

    if (!wf_view_counts(&s->view, m) || p->holding != WF_HOLDS_PRIMARY || !p->open ||
        s->view.epoch->number != w->epoch->number || m->t >= p->version - 1)
        return;
    for (int i = 0; i < w->c->plan.n_pieces; i++) {
        int holder = w->epoch->holders[i].primary;
        const struct node *n = &w->node[holder];

        if (n->alive && n->m.server.view.belongs &&
            n->m.server.view.epoch->number == w->epoch->number &&
            n->m.server.piece[i].version <= m->t)
            sim_fail(w, "piece %d: version %lld is gone, and step %lld is not complete", m->piece,
                     (long long)m->t, (long long)m->t);
    }
}

/* Numbers only rise; what waits is bounded. */
static void check_node(struct world *w, int i)
{
    struct node *n = &w->node[i];
    const struct wf_view *v = n->role == WF_ROLE_SERVER ? &n->m.server.view : &n->m.client.view;
    uint64_t term = n->role == WF_ROLE_CHIEF ? n->m.chief.term : v->term;
    const struct wf_epoch *e = n->role == WF_ROLE_CHIEF ? n->m.chief.epoch : v->epoch;

    if (term < n->seen_term || (e && e->number < n->seen_epoch))
        sim_fail(w, "node %d: term or epoch went back", i);
    n->seen_term = term;
    n->seen_epoch = e ? e->number : n->seen_epoch;
    if (e && (!w->epoch || e->number > w->epoch->number))
        sim_fail(w, "node %d acts on epoch %llu, which is not in the store", i,
                 (unsigned long long)e->number);
    for (int p = 0; n->role == WF_ROLE_SERVER && p < w->c->plan.n_pieces; p++)
        if (n->m.server.piece[p].n_want > w->c->n_workers)
            sim_fail(w, "server %d keeps %lld pulls of piece %d", i,
                     (long long)n->m.server.piece[p].n_want, p);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

static void deliver(struct world *w, const struct wf_message *m, struct payload *p)
{
    int64_t delay = draw(w, w->c->delay / 2, w->c->delay * 3 / 2);
    bool calm = w->now >= w->calm_at;
    struct event *e;

    if (!calm && draw(w, 0, 999) < w->c->hold)
        delay += draw(w, 0, w->c->late);
    e = add_event(w, w->now + delay, E_MESSAGE, m->to);
    e->msg = *m;
    e->payload = p;
    p->n_refs++;
    e->bits = m->bits ? m->bits[0] : 0;
    if (m->record && wf_epoch_copy(w->ctx, m->record, &e->record))
        abort();
}

static uint64_t epoch_hash(const struct wf_epoch *e)
{
    uint64_t h = sim_mix(e->number, e->history);

    for (int i = 0; i < e->n_members; i++)
        h = sim_mix(h, e->member[i].incarnation);
    for (int i = 0; i < e->n_pieces; i++)
        h = sim_mix(h, (uint64_t)(e->holders[i].primary * 10000 + e->holders[i].backup * 100 +
                                  e->holders[i].target));
    for (int i = 0; i < e->n_shards; i++)
        h = sim_mix(h, (uint64_t)e->worker[i]);
    return h;
}

static void send_message(struct world *w, struct node *n, const struct wf_message *m)
{
    struct payload *p = NULL;
    bool calm = w->now >= w->calm_at;

    w->result->messages++;
    if (m->to < 0 || m->to >= w->c->n_nodes) {
        sim_fail(w, "node %d sends a message (%s) to node %d", m->from, wf_message_name(m->type),
                 m->to);
        return;
    }
    if (n->role == WF_ROLE_SERVER && m->type == WF_MSG_AT)
        check_announced(w, n, m);
    if (m->type == WF_MSG_EPOCH &&
        (!w->epoch || m->record->number > w->epoch->number ||
         w->epoch_hash[m->record->number % MAX_EPOCHS] != epoch_hash(m->record)))
        sim_fail(w, "chief %d announces an epoch %llu that is not in the store", m->from,
                 (unsigned long long)m->record->number);
    if (m->type == WF_MSG_RECORDED || m->type == WF_MSG_SYNCED)
        check_copy(w, n, m);
    if (n->cut >> m->to & 1 || w->node[m->to].cut >> m->from & 1 ||
        (!calm && draw(w, 0, 999) < w->c->drop))
        return;
    if (n->role == WF_ROLE_SERVER)
        w->kind->server_payload(n->values, &n->m.server, m, &p);
    else if (n->role == WF_ROLE_WORKER)
        w->kind->worker_payload(n->values, m, &p);
    else
        p = sim_payload(0);
    deliver(w, m, p);
    if (!calm && draw(w, 0, 999) < w->c->twice)
        deliver(w, m, p);
    if (--p->n_refs == 0)
        free(p);
}

static void store_answer(struct world *w, const struct event *r, const struct wf_store_answer *a,
                         const struct wf_epoch *record)
{
    struct event *e = add_event(w, w->now + draw(w, w->c->store_delay / 4 + 1, w->c->store_delay),
                                E_STORE, r->node);

    e->incarnation = r->incarnation;
    e->answer = *a;
    if (record && wf_epoch_copy(w->ctx, record, &e->record))
        abort();
}

static void tell_epoch(struct world *w, const struct wf_epoch *e)
{
    tell(w, "store: epoch %llu of term %llu, history %llu from version %lld",
         (unsigned long long)e->number, (unsigned long long)e->term, (unsigned long long)e->history,
         (long long)e->start);
    for (int i = 0; w->trace && i < e->n_pieces; i++)
        fprintf(w->trace, "            piece %d: primary %d backup %d target %d%s\n", i,
                e->holders[i].primary, e->holders[i].backup, e->holders[i].target,
                e->holders[i].moves ? " moves" : "");
    for (int i = 0; w->trace && i < e->n_members; i++)
        fprintf(w->trace, "            node %d is %llu\n", e->member[i].node,
                (unsigned long long)e->member[i].incarnation);
}

static void create_epoch(struct world *w, struct event *r)
{
    struct wf_store_answer a = {.to = WF_ACT_CREATE_EPOCH};

    a.ok = r->record->number == (w->epoch ? w->epoch->number : 0) + 1;
    if (a.ok) {
        wf_epoch_free(w->ctx, w->epoch);
        w->epoch = r->record;
        r->record = NULL;
        tell_epoch(w, w->epoch);
        w->epoch_hash[w->epoch->number % MAX_EPOCHS] = epoch_hash(w->epoch);
        w->result->histories = (int64_t)w->epoch->history;
        w->result->epochs++;
    }
    store_answer(w, r, &a, NULL);
}

static void create_manifest(struct world *w, const struct event *r)
{
    struct wf_store_answer a = {
        .to = WF_ACT_CREATE_MANIFEST, .ok = r->number == w->term, .history = r->history, .t = r->t};

    for (int p = 0; p < w->c->plan.n_pieces && a.ok; p++)
        if (!w->in_store[r->t][p])
            sim_fail(w, "a manifest names version %lld of piece %d, which was not saved",
                     (long long)r->t, p);
    if (a.ok && (r->history > w->manifest_history || r->t > w->manifest)) {
        tell(w, "store: manifest of version %lld", (long long)r->t);
        w->has_manifest = true;
        w->manifest_history = r->history;
        w->manifest = r->t;
    }
    store_answer(w, r, &a, NULL);
}

/* A request arrives at the store; whoever sent it may be gone by then. */
static void use_store(struct world *w, struct event *r)
{
    struct wf_store_answer a = {.to = r->answer.to, .term = r->number};

    switch (a.to) {
    case WF_ACT_READ:
        a = (struct wf_store_answer){
            a.to, true, w->term, NULL, w->has_manifest, w->manifest_history, w->manifest};
        store_answer(w, r, &a, w->epoch);
        break;
    case WF_ACT_CREATE_TERM:
        a.ok = r->number == w->term + 1;
        if (a.ok) {
            tell(w, "store: node %d takes term %llu", r->node, (unsigned long long)r->number);
            w->term = r->number;
            w->term_owner = r->node;
            w->result->terms = (int64_t)w->term;
        }
        store_answer(w, r, &a, NULL);
        break;
    case WF_ACT_CREATE_MANIFEST: create_manifest(w, r); break;
    default: create_epoch(w, r); break;
    }
}

static void ask_store(struct world *w, int node, const struct wf_action *act)
{
    const struct wf_chief *c = &w->node[node].m.chief;
    struct event *e = add_event(w, w->now + draw(w, 1, w->c->store_delay), E_REQUEST, node);

    if (act->type == WF_ACT_CREATE_EPOCH && c->highest > c->term)
        sim_fail(w, "chief %d makes an epoch, and has seen a higher term", node);
    e->incarnation = w->node[node].incarnation;
    e->answer.to = act->type;
    e->number = act->number;
    e->history = act->history;
    e->t = act->t;
    if (act->record && wf_epoch_copy(w->ctx, act->record, &e->record))
        abort();
}

static void compute(struct world *w, int node, const struct wf_action *act)
{
    struct node *n = &w->node[node];
    struct event *e =
        add_event(w, w->now + draw(w, w->c->compute / 2, w->c->compute * 2), E_COMPUTED, node);

    for (int q = 0; q < w->c->plan.n_pieces; q++)
        if (sim_needs(w->c, act->shard, act->t, q) && n->m.client.piece[q].have != act->t)
            sim_fail(w, "worker %d computes step %lld from version %lld of piece %d", node,
                     (long long)act->t, (long long)n->m.client.piece[q].have, q);
    e->incarnation = n->incarnation;
    e->shard = act->shard;
    e->t = act->t;
}

static void start_node(struct world *w, int i);

static void carry_out(struct world *w, int node)
{
    struct node *n = &w->node[node];
    bool rejoin = false;

    for (int64_t i = 0; i < w->acts.n; i++) {
        const struct wf_action *act = &w->acts.act[i];
        struct event *e;

        switch (act->type) {
        case WF_ACT_SEND: send_message(w, n, &act->msg); break;
        case WF_ACT_COMPUTE: compute(w, node, act); break;
        case WF_ACT_SAVE:
            e = add_event(w, w->now + draw(w, 1, 200) * MS, E_SAVED, node);
            e->incarnation = n->incarnation;
            e->piece = act->piece;
            e->t = act->t;
            break;
        case WF_ACT_REJOIN: rejoin = true; break;
        case WF_ACT_EXIT: break;
        default: ask_store(w, node, act); break;
        }
    }
    w->acts.n = 0;
    if (rejoin && (n->left || n->leaving)) {
        tell(w, "node %d has left", node);
        n->alive = false;
        n->left = true;
    } else if (rejoin) {
        start_node(w, node);
    } else {
        check_node(w, node);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void stop_node(struct world *w, int i)
{
    struct node *n = &w->node[i];

    if (n->incarnation == 0)
        return;
    if (n->role == WF_ROLE_CHIEF) {
        wf_chief_free(&n->m.chief);
    } else if (n->role == WF_ROLE_SERVER) {
        wf_server_free(&n->m.server);
        w->kind->free_server(n->values);
    } else {
        wf_client_free(&n->m.client);
        w->kind->free_worker(n->values);
    }
    n->alive = false;
    n->incarnation = 0;
}

static void start_node(struct world *w, int i)
{
    const struct sim_case *c = w->c;
    struct node *n = &w->node[i];
    struct wf_chief_plan chief = {.n_nodes = c->n_nodes,
                                  .n_pieces = c->plan.n_pieces,
                                  .n_shards = c->plan.n_shards,
                                  .n_copies = c->copies,
                                  .n_servers = 1,
                                  .n_workers = 1,
                                  .timeout_ns = 500 * MS,
                                  .tick_ns = 50 * MS};
    weft_status st;

    stop_node(w, i);
    if (n->gone)
        return;
    n->incarnation = ++w->incarnations;
    n->alive = true;
    n->seen_term = n->seen_epoch = 0;
    tell(w, "node %d (%s) starts as %llu", i,
         n->role == WF_ROLE_CHIEF    ? "chief"
         : n->role == WF_ROLE_SERVER ? "server"
                                     : "worker",
         (unsigned long long)n->incarnation);
    if (n->role == WF_ROLE_CHIEF) {
        st = wf_chief_init(&n->m.chief, w->ctx, &chief, i);
    } else if (n->role == WF_ROLE_SERVER) {
        struct wf_ps_data d;

        n->values = w->kind->new_server(w, w->truth, i, &d);
        st = wf_server_init(&n->m.server, w->ctx, &c->plan, &d, i, n->incarnation, w->term_owner);
    } else {
        struct wf_client_data d;

        n->values = w->kind->new_worker(w, w->truth, i, &d);
        st = wf_client_init(&n->m.client, w->ctx, &c->plan, &d, i, n->incarnation, w->term_owner);
    }
    if (st)
        abort();
    add_event(w, w->now + draw(w, 1, 50) * MS, E_TICK, i)->incarnation = n->incarnation;
}

static weft_status step_message(struct world *w, struct node *n, struct event *e)
{
    struct wf_message *m = &e->msg;

    m->payload = w->c->real && e->payload ? (const void *)&e->payload->real : e->payload;
    m->bits = m->bits ? &e->bits : NULL;
    m->record = e->record;
    if (w->trace && m->type != WF_MSG_BEAT && m->type != WF_MSG_TERM)
        tell(w, "%d -> %d: %s piece %d t %lld shard %d round %d block %d (epoch %llu)", m->from,
             m->to, wf_message_name(m->type), m->piece, (long long)m->t, m->shard, m->round,
             m->block, (unsigned long long)m->epoch);
    if (n->role == WF_ROLE_CHIEF)
        return wf_chief_step(&n->m.chief, w->now, m, &w->acts);
    if (n->role == WF_ROLE_SERVER) {
        if (m->type == WF_MSG_PULL)
            check_pull(w, &n->m.server, m);
        return wf_server_step(&n->m.server, w->now, m, &w->acts);
    }
    return wf_client_step(&n->m.client, w->now, m, &w->acts);
}

/* Whoever does not belong to the job looks up who is chief. */
static void look_up(struct world *w, struct node *n)
{
    struct wf_view *v = n->role == WF_ROLE_SERVER ? &n->m.server.view : &n->m.client.view;

    if (!v->belongs && w->term)
        v->chief = w->term_owner;
}

static weft_status tick(struct world *w, int i)
{
    struct node *n = &w->node[i];

    add_event(w, w->now + 50 * MS, E_TICK, i)->incarnation = n->incarnation;
    if (n->role == WF_ROLE_CHIEF)
        return wf_chief_tick(&n->m.chief, w->now, &w->acts);
    look_up(w, n);
    if (n->leaving) {
        const struct wf_view *v = n->role == WF_ROLE_SERVER ? &n->m.server.view : &n->m.client.view;

        wf_view_send(v, &w->acts, WF_MSG_LEAVE, v->chief);
    }
    return n->role == WF_ROLE_SERVER ? wf_server_tick(&n->m.server, w->now, &w->acts)
                                     : wf_client_tick(&n->m.client, w->now, &w->acts);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void kill_node(struct world *w, int i, bool told)
{
    uint64_t incarnation = w->node[i].incarnation;

    if (!w->node[i].alive)
        return;
    w->result->kills++;
    stop_node(w, i);
    for (int k = 0; k < w->c->n_chiefs && told; k++)
        if (w->node[k].alive && w->node[k].paused_until <= w->now) {
            if (wf_chief_lost(&w->node[k].m.chief, w->now, i, incarnation, &w->acts))
                abort();
            carry_out(w, k);
        }
}

static void begin_fault(struct world *w, int number)
{
    static const char *const name[] = {"killed", "paused", "cut off", "leaves"};
    const struct fault *f = &w->c->fault[number];
    struct node *n = &w->node[f->node];

    w->result->faults++;
    tell(w, "fault %d: node %d is %s for %lld ms", number, f->node, name[f->kind],
         (long long)(f->lasts / MS));
    if (f->lasts)
        add_event(w, w->now + f->lasts, E_FAULT_END, f->node)->fault = number;
    else
        n->gone = true;
    switch (f->kind) {
    case KILL: kill_node(w, f->node, f->told); break;
    case PAUSE: n->paused_until = wf_max_i64(n->paused_until, w->now + f->lasts); break;
    case CUT: n->cut |= f->other; break;
    default: n->leaving = true; break;
    }
}

static void end_fault(struct world *w, int number)
{
    const struct fault *f = &w->c->fault[number];
    struct node *n = &w->node[f->node];

    if (f->kind == CUT)
        n->cut &= ~f->other;
    if (f->kind == LEAVE) {
        n->leaving = false;
        kill_node(w, f->node, f->told); /* its time to leave in order is over */
    }
    n->left = false;
    if (!n->alive && (f->kind == KILL || f->kind == LEAVE) && w->now >= w->c->starts[f->node])
        start_node(w, f->node);
}

/* ---- the run --------------------------------------------------------------------------------- */

static weft_status handle(struct world *w, struct event *e)
{
    struct node *n = &w->node[e->node];

    switch (e->kind) {
    case E_MESSAGE: return step_message(w, n, e);
    case E_TICK: return tick(w, e->node);
    case E_COMPUTED:
        /* from what is here when it ends: nothing of it may have changed meanwhile */
        w->kind->compute(n->values, e->t, e->shard);
        return wf_client_computed(&n->m.client, w->now, e->t, e->shard, &w->acts);
    case E_STORE:
        e->answer.epoch = e->record;
        return wf_chief_answer(&n->m.chief, w->now, &e->answer, &w->acts);
    case E_SAVED:
        w->in_store[e->t][e->piece] = true;
        return wf_server_saved(&n->m.server, w->now, e->piece, e->t, &w->acts);
    default: return WEFT_OK;
    }
}

static void happen(struct world *w, struct event *e)
{
    struct node *n = &w->node[e->node];

    switch (e->kind) {
    case E_START:
        if (!n->alive)
            start_node(w, e->node);
        return;
    case E_FAULT: begin_fault(w, e->fault); return;
    case E_FAULT_END: end_fault(w, e->fault); return;
    case E_REQUEST: use_store(w, e); return;
    default: break;
    }
    if (!n->alive || (e->incarnation && e->incarnation != n->incarnation))
        return;
    if (handle(w, e)) {
        sim_fail(w, "node %d: %s", e->node, weft_error());
        return;
    }
    carry_out(w, e->node);
}

/* Every piece has a backup, if there is a server for it. */
static bool is_protected(const struct world *w)
{
    int n_servers = 0;

    for (int i = 0; i < w->c->n_nodes; i++)
        n_servers += w->node[i].role == WF_ROLE_SERVER && w->node[i].alive;
    for (int i = 0; i < w->c->plan.n_pieces && w->c->copies && n_servers > 1; i++)
        if (!w->epoch || w->epoch->holders[i].backup == WF_NOBODY)
            return false;
    return true;
}

/* All workers have all steps, and nothing is in danger. */
static bool is_done(const struct world *w)
{
    bool any = false;

    if (!is_protected(w))
        return false;

    for (int i = w->c->n_chiefs; i < w->c->n_nodes; i++) {
        const struct node *n = &w->node[i];

        if (n->role == WF_ROLE_WORKER && n->alive) {
            if (n->m.client.t < w->c->plan.n_steps)
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
            tell(w, "node %d is dead", i);
        else if (n->role == WF_ROLE_CHIEF)
            tell(w, "chief %d: state %d, term %llu of %llu", i, n->m.chief.state,
                 (unsigned long long)n->m.chief.term, (unsigned long long)n->m.chief.highest);
        else if (n->role == WF_ROLE_WORKER)
            tell(w, "worker %d: step %lld", i, (long long)n->m.client.t);
        for (int p = 0; n->alive && n->role == WF_ROLE_SERVER && p < w->c->plan.n_pieces; p++) {
            const struct wf_server_piece *s = &n->m.server.piece[p];

            tell(w, "server %d, piece %d: holding %d, version %lld, phase %d, open %d, lockstep %d",
                 i, p, s->holding, (long long)s->version, s->phase, s->open, s->lockstep);
        }
    }
}

static void run(struct world *w)
{
    int64_t limit = w->calm_at + 60000 * MS;

    while (!w->result->failed) {
        struct event *e = next_event(w);
        struct node *n = e ? &w->node[e->node] : NULL;

        if (!e)
            break;
        /* a process that is stopped finds everything that came meanwhile when it continues */
        if (n->alive && n->paused_until > e->at && e->kind < E_START) {
            e->at = n->paused_until;
            *add_event(w, e->at, e->kind, e->node) = (struct event){.at = e->at,
                                                                    .order = w->order++,
                                                                    .kind = e->kind,
                                                                    .node = e->node,
                                                                    .incarnation = e->incarnation,
                                                                    .msg = e->msg,
                                                                    .payload = e->payload,
                                                                    .bits = e->bits,
                                                                    .record = e->record,
                                                                    .answer = e->answer,
                                                                    .shard = e->shard,
                                                                    .piece = e->piece,
                                                                    .t = e->t};
            e->record = NULL;
            e->payload = NULL;
            free_event(w, e);
            continue;
        }
        w->now = e->at;
        w->result->events++;
        happen(w, e);
        free_event(w, e);
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
    w->kind = c->real ? &sim_real : &sim_hashes;
    w->truth = w->kind->new_truth(ctx, c);
    for (int i = 0; i < c->n_nodes; i++) {
        w->node[i].role = i < c->n_chiefs                  ? WF_ROLE_CHIEF
                          : i < c->n_chiefs + c->n_servers ? WF_ROLE_SERVER
                                                           : WF_ROLE_WORKER;
        add_event(w, c->starts[i], E_START, i);
        w->calm_at = wf_max_i64(w->calm_at, c->starts[i]);
    }
    for (int i = 0; i < c->n_faults; i++) {
        if (c->without >> i & 1)
            continue;
        add_event(w, c->fault[i].at, E_FAULT, c->fault[i].node)->fault = i;
        w->calm_at = wf_max_i64(w->calm_at, c->fault[i].at + c->fault[i].lasts);
    }
    w->calm_at += 1 * MS;
    run(w);
    for (int i = 0; i < c->n_nodes; i++)
        stop_node(w, i);
    while ((e = next_event(w)))
        free_event(w, e);
    while ((e = w->spare)) {
        w->spare = e->next;
        free(e);
    }
    w->kind->free_truth(w->truth);
    wf_epoch_free(ctx, w->epoch);
    wf_actions_free(&w->acts);
    wf_free(ctx, w->heap);
    free(w);
}
