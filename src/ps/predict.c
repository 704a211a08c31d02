/* predict.c - how fast a job would be: the machines of its servers and workers in virtual time.
 *
 * A task handles one message at a time; a worker computes besides. A link sends and receives one
 * message at a time in each direction, and a message is received while it is sent. Nothing
 * fails, so there is no chief, and no clock ticks: every wait ends with a message. */
#include "weft/sys/predict.h"

#include "cluster/chief.h"
#include "ps/ps.h"

#include <math.h>

enum { MAX_TASKS = 1024, WORDS = MAX_TASKS / 64, SMALL = 100 /* bytes of a message without any */ };

enum kind {
    E_MESSAGE, /* has arrived */
    E_HANDLE,  /* a task can handle the next one */
    E_PART,    /* a worker can compute the next part of its shard */
    E_PART_END
};

struct event {
    struct event *next; /* that waits for the same task */
    int64_t at;
    uint64_t order;
    enum kind kind;
    int node;
    struct wf_message msg;
    uint64_t bits[WORDS];
};

/* What does one thing at a time. */
struct resource {
    int64_t free_at, busy;
};

struct task {
    union {
        struct wf_server server;
        struct wf_client client;
    } m;
    bool made;
    struct resource handles, computes, out, in;
    struct event *first, **last; /* messages that wait */
    int64_t cost;                /* of the step that the machine takes */
    /* A worker's shard. */
    int part; /* 0: forward; then pieces, from the last to the first */
    int64_t t;
    struct world *w;
};

struct world {
    weft_ctx *ctx;
    weft_ps_costs c;
    int n_tasks, n_pieces; /* tasks: servers, then workers; pieces: the last has no parameters */
    struct task *task;
    struct event **heap;
    int64_t n_heap, cap_heap;
    uint64_t order;
    int64_t now;
    int64_t *core; /* when it is free */
    struct wf_actions acts;
    int64_t begin, end; /* of what is measured, at the first worker */
    int64_t messages, sent;
    int64_t busy_at_begin[3];
};

static int64_t ns(double s)
{
    return (int64_t)llround(s * 1e9);
}

static bool is_server(const struct world *w, int node)
{
    return node < w->c.servers;
}

static int64_t piece_bytes(const struct world *w, int piece)
{
    int64_t n = w->n_pieces - 1;

    return piece == n ? 0 : w->c.bytes * (piece + 1) / n - w->c.bytes * piece / n;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

/* Takes the event over. */
static weft_status put_event(struct world *w, struct event *e)
{
    weft_status st = wf_grow(w->ctx, &w->heap, &w->cap_heap, w->n_heap + 1, sizeof *w->heap);
    int64_t i;

    if (st) {
        wf_free(w->ctx, e);
        return st;
    }
    for (i = w->n_heap++; i > 0 && earlier(e, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = e;
    return WEFT_OK;
}

static struct event *next_event(struct world *w)
{
    struct event *first = w->heap[0], *last = w->heap[--w->n_heap];
    int64_t i = 0;

    for (int64_t k = 1; k < w->n_heap; k = 2 * i + 1) {
        k += k + 1 < w->n_heap && earlier(w->heap[k + 1], w->heap[k]);
        if (earlier(last, w->heap[k]))
            break;
        w->heap[i] = w->heap[k];
        i = k;
    }
    if (w->n_heap)
        w->heap[i] = last;
    return first;
}

static weft_status add_event(struct world *w, int64_t at, enum kind kind, int node,
                             const struct wf_message *m)
{
    struct event *e = wf_alloc(w->ctx, sizeof *e);

    if (!e)
        return wf_err_nomem(w->ctx, sizeof *e, "prediction");
    e->at = at;
    e->order = w->order++;
    e->kind = kind;
    e->node = node;
    if (m) {
        e->msg = *m;
        if (m->bits) { /* the machine's own: they change */
            memcpy(e->bits, m->bits, (size_t)m->n_words * sizeof *e->bits);
            e->msg.bits = e->bits;
        }
    }
    return put_event(w, e);
}

/* ---- what is busy ---------------------------------------------------------------------------- */

static int64_t *free_core(struct world *w)
{
    int64_t *best = w->core;

    for (int i = 1; i < w->c.cores; i++)
        if (w->core[i] < *best)
            best = &w->core[i];
    return best;
}

/* When something that takes a core as well can begin. */
static int64_t may_begin(struct world *w, const struct resource *r)
{
    int64_t at = wf_max_i64(w->now, r->free_at);

    return w->c.cores ? wf_max_i64(at, *free_core(w)) : at;
}

static void occupy(struct world *w, struct resource *r, int64_t cost)
{
    if (w->c.cores)
        *free_core(w) = w->now + cost;
    r->free_at = w->now + cost;
    r->busy += cost;
}

/* A message leaves at `at`; it is received as it comes. */
static weft_status carry(struct world *w, const struct wf_message *m, int64_t at)
{
    bool large = m->type == WF_MSG_PUSH || m->type == WF_MSG_VERSION || m->type == WF_MSG_RECORD;
    int64_t bytes = SMALL + (large ? piece_bytes(w, m->piece) : 0);
    int64_t took = ns((double)bytes * w->c.wire_byte_s), latency = ns(w->c.latency_s);
    struct resource *out = &w->task[m->from].out, *in;

    if (m->to < 0 || m->to >= w->n_tasks) /* the chief */
        return WEFT_OK;
    in = &w->task[m->to].in;
    at = wf_max_i64(at, out->free_at);
    out->free_at = at + took;
    out->busy += took;
    at = wf_max_i64(at + latency, in->free_at);
    in->free_at = at + took;
    in->busy += took;
    w->messages++;
    if (m->from == w->c.servers || m->to == w->c.servers)
        w->sent += bytes;
    return add_event(w, at + took, E_MESSAGE, m->to, m);
}

/* Actions are carried out when the step that made them has ended. */
static weft_status carry_out(struct world *w, struct task *task, int64_t at)
{
    weft_status st = w->acts.st;

    for (int64_t i = 0; i < w->acts.n && !st; i++) {
        const struct wf_action *a = &w->acts.act[i];

        if (a->type == WF_ACT_SEND)
            st = carry(w, &a->msg, at);
        if (a->type == WF_ACT_COMPUTE) {
            task->part = 0;
            task->t = a->t;
            st = add_event(w, at, E_PART, (int)(task - w->task), NULL);
        }
    }
    return st;
}

/* ---- what a server does with bytes: it costs time -------------------------------------------- */

static weft_status add(void *arg, int piece, int64_t t, int level, int shard, const void *payload)
{
    struct task *s = arg;

    (void)t, (void)level, (void)shard, (void)payload;
    s->cost += ns((double)piece_bytes(s->w, piece) * s->w->c.add_byte_s);
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct task *s = arg;

    (void)block, (void)t;
    s->cost += ns((double)piece_bytes(s->w, piece) * s->w->c.update_byte_s);
    return WEFT_OK;
}

static weft_status reduce(void *arg, int piece, int64_t t, bool *gone)
{
    (void)arg, (void)piece, (void)t;
    *gone = false;
    return WEFT_OK;
}

static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    (void)arg, (void)piece, (void)t, (void)payload;
    return WEFT_OK;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    (void)arg, (void)piece, (void)t;
    return WEFT_OK;
}

static void clear(void *arg, int piece)
{
    (void)arg, (void)piece;
}

static weft_status take(void *arg, int piece, int64_t t, const void *payload)
{
    (void)arg, (void)piece, (void)t, (void)payload;
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    (void)arg, (void)shard, (void)t, (void)piece;
    return true;
}

static void forget(void *arg, int64_t t)
{
    (void)arg, (void)t;
}

/* ---- the job --------------------------------------------------------------------------------- */

static weft_status make_task(struct world *w, int i)
{
    struct wf_ps_plan plan = {.n_pieces = w->n_pieces,
                              .n_shards = w->c.workers,
                              .n_blocks = 1,
                              .retry_ns = INT64_MAX / 4,
                              .n_steps = w->c.steps};
    struct task *t = &w->task[i];
    struct wf_ps_data server = {.arg = t,
                                .add = add,
                                .clear = clear,
                                .reduce = reduce,
                                .record = record,
                                .apply = apply,
                                .load = load,
                                .drop = clear};
    struct wf_client_data client = {
        .arg = t, .follow = true, .take = take, .needs = needs, .forget = forget};
    weft_status st;

    t->w = w;
    t->last = &t->first;
    st = is_server(w, i) ? wf_server_init(&t->m.server, w->ctx, &plan, &server, i, 1, w->n_tasks)
                         : wf_client_init(&t->m.client, w->ctx, &plan, &client, i, 1, w->n_tasks);
    t->made = !st;
    return st;
}

/* The epoch that a chief makes of these tasks. */
static weft_status first_epoch(struct world *w, struct wf_epoch **out)
{
    struct wf_chief_plan plan = {.n_nodes = w->n_tasks + 1,
                                 .n_pieces = w->n_pieces,
                                 .n_shards = w->c.workers,
                                 .n_copies = w->c.replicas - 1,
                                 .timeout_ns = 1};
    struct wf_chief c = {.ctx = w->ctx};
    bool changed = false;
    int64_t *bytes = wf_alloc_n(w->ctx, w->n_pieces, sizeof *bytes);
    weft_status st;

    if (!bytes)
        return wf_err_nomem(w->ctx, sizeof *bytes, "prediction");
    for (int i = 0; i < w->n_pieces; i++)
        bytes[i] = piece_bytes(w, i) + 1;
    plan.piece_bytes = bytes;
    st = wf_chief_init(&c, w->ctx, &plan, w->n_tasks);
    for (int i = 0; i < w->n_tasks && !st; i++)
        c.known[i] = (struct wf_known){.heard = true,
                                       .incarnation = 1,
                                       .role = is_server(w, i) ? WF_ROLE_SERVER : WF_ROLE_WORKER};
    if (!st)
        st = wf_assign(&c, out, &changed);
    if (!st && !changed)
        st = wf_err(WEFT_EBUG, "prediction: no epoch");
    for (int i = 0; i < w->n_pieces && !st; i++) { /* nothing moves: that would end soon */
        (*out)->holders[i].target = WF_NOBODY;
        (*out)->holders[i].moves = false;
    }
    wf_chief_free(&c);
    wf_free(w->ctx, bytes);
    return st;
}

static weft_status step(struct world *w, int node, const struct wf_message *m)
{
    struct task *t = &w->task[node];
    weft_status st;

    w->acts.n = 0;
    t->cost = ns(w->c.message_s);
    st = is_server(w, node) ? wf_server_step(&t->m.server, w->now, m, &w->acts)
                            : wf_client_step(&t->m.client, w->now, m, &w->acts);
    if (st)
        return st;
    occupy(w, &t->handles, t->cost);
    return carry_out(w, t, w->now + t->cost);
}

static weft_status begin(struct world *w)
{
    struct wf_epoch *e = NULL;
    weft_status st = WEFT_OK;

    for (int i = 0; i < w->n_tasks && !st; i++)
        st = make_task(w, i);
    if (!st)
        st = first_epoch(w, &e);
    for (int i = 0; i < w->n_tasks && !st; i++) {
        struct wf_message m = {.type = WF_MSG_EPOCH,
                               .from = w->n_tasks,
                               .to = i,
                               .term = e->term,
                               .epoch = e->number,
                               .history = e->history,
                               .role = WF_ROLE_CHIEF,
                               .t = -1,
                               .record = e};

        st = step(w, i, &m);
    }
    wf_epoch_free(w->ctx, e);
    return st;
}

/* ---- computing ------------------------------------------------------------------------------- */

static weft_status begin_part(struct world *w, int node)
{
    struct task *t = &w->task[node];
    int64_t cost = t->part ? ns(w->c.backward_s / (w->n_pieces - 1)) : ns(w->c.forward_s);

    occupy(w, &t->computes, cost);
    return add_event(w, w->now + cost, E_PART_END, node, NULL);
}

static weft_status end_part(struct world *w, int node)
{
    struct task *t = &w->task[node];
    int shard = node - w->c.servers, piece = w->n_pieces - 1 - t->part;
    weft_status st = WEFT_OK;

    w->acts.n = 0;
    if (t->part > 0)
        st = wf_client_ready(&t->m.client, w->now, t->t, shard, piece, &w->acts);
    if (!st && piece == 0) /* all of it */
        st = wf_client_computed(&t->m.client, w->now, t->t, shard, &w->acts);
    if (!st)
        st = carry_out(w, t, w->now);
    if (!st && piece > 0) {
        t->part++;
        st = add_event(w, w->now, E_PART, node, NULL);
    }
    return st;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The busiest of the workers, of the servers, and of the links. */
static void find_busiest(const struct world *w, int64_t busy[3])
{
    busy[0] = busy[1] = busy[2] = 0;
    for (int i = 0; i < w->n_tasks; i++) {
        const struct task *t = &w->task[i];

        if (is_server(w, i))
            busy[1] = wf_max_i64(busy[1], t->handles.busy);
        else
            busy[0] = wf_max_i64(busy[0], t->computes.busy);
        busy[2] = wf_max_i64(busy[2], wf_max_i64(t->in.busy, t->out.busy));
    }
}

static void look(struct world *w)
{
    int64_t t = w->task[w->c.servers].m.client.t, first = w->c.steps / 4;

    if (t >= first && w->begin < 0) {
        w->begin = w->now;
        w->sent = 0;
        find_busiest(w, w->busy_at_begin);
    }
    if (t >= w->c.steps)
        w->end = w->now;
}

/* A message waits for those before it; the first one for the task. */
static weft_status enqueue(struct world *w, struct task *t, struct event *e)
{
    bool first = t->first == NULL;

    e->next = NULL;
    *t->last = e;
    t->last = &e->next;
    return first ? add_event(w, may_begin(w, &t->handles), E_HANDLE, e->node, NULL) : WEFT_OK;
}

static weft_status handle(struct world *w, struct task *t)
{
    struct event *e = t->first;
    weft_status st;

    t->first = e->next;
    if (!t->first)
        t->last = &t->first;
    st = step(w, e->node, &e->msg);
    if (!st && t->first)
        st = add_event(w, may_begin(w, &t->handles), E_HANDLE, e->node, NULL);
    wf_free(w->ctx, e);
    return st;
}

/* An event, or later if what it needs is busy. */
static weft_status happen(struct world *w, struct event *e)
{
    struct task *t = &w->task[e->node];
    int64_t at = e->kind == E_HANDLE ? may_begin(w, &t->handles)
                 : e->kind == E_PART ? may_begin(w, &t->computes)
                                     : w->now;
    weft_status st;

    if (e->kind == E_MESSAGE)
        return enqueue(w, t, e);
    if (at > w->now) {
        e->at = at;
        return put_event(w, e);
    }
    st = e->kind == E_HANDLE ? handle(w, t)
         : e->kind == E_PART ? begin_part(w, e->node)
                             : end_part(w, e->node);
    wf_free(w->ctx, e);
    return st;
}

static weft_status simulate(struct world *w, weft_ps_prediction *p)
{
    int64_t busy[3];
    double ran, steps = w->c.steps - w->c.steps / 4;
    weft_status st = begin(w);

    while (!st && w->end < 0) {
        struct event *e = w->n_heap ? next_event(w) : NULL;

        if (!e)
            return wf_err(WEFT_EBUG, "prediction: nothing happens any more at step %lld",
                          (long long)w->task[w->c.servers].m.client.t);
        w->now = e->at;
        st = happen(w, e);
        look(w);
    }
    if (st)
        return st;
    ran = (double)wf_max_i64(w->end - w->begin, 1);
    find_busiest(w, busy);
    p->steps_s = steps / ran * 1e9;
    p->worker_busy = (double)(busy[0] - w->busy_at_begin[0]) / ran;
    p->server_busy = (double)(busy[1] - w->busy_at_begin[1]) / ran;
    p->link_busy = (double)(busy[2] - w->busy_at_begin[2]) / ran;
    p->bytes_step = (double)w->sent / steps;
    p->messages = w->messages;
    return WEFT_OK;
}

static void free_world(struct world *w)
{
    for (int i = 0; w->task && i < w->n_tasks; i++) {
        for (struct event *e = w->task[i].first, *next; e; e = next) {
            next = e->next;
            wf_free(w->ctx, e);
        }
        if (w->task[i].made && is_server(w, i))
            wf_server_free(&w->task[i].m.server);
        else if (w->task[i].made)
            wf_client_free(&w->task[i].m.client);
    }
    for (int64_t i = 0; i < w->n_heap; i++)
        wf_free(w->ctx, w->heap[i]);
    wf_free(w->ctx, w->heap);
    wf_free(w->ctx, w->task);
    wf_free(w->ctx, w->core);
    wf_actions_free(&w->acts);
}

static weft_status check(const weft_ps_costs *c)
{
    const double cost[] = {
        c->forward_s, c->backward_s,        c->add_byte_s * 1e9, c->update_byte_s * 1e9,
        c->message_s, c->wire_byte_s * 1e9, c->latency_s};

    for (int i = 0; i < WF_COUNT(cost); i++)
        if (!(cost[i] >= 0 && cost[i] <= 1e4))
            return wf_err(WEFT_EINVAL, "weft_ps_costs: a cost of %g s is not possible", cost[i]);
    if (c->servers < 1 || c->workers < 1 || c->servers > MAX_TASKS ||
        c->workers > MAX_TASKS - c->servers)
        return wf_err(WEFT_EINVAL, "weft_ps_costs: %d servers and %d workers; 1 to %d in all",
                      c->servers, c->workers, MAX_TASKS);
    if (c->replicas < 1 || c->replicas > 2 || c->replicas > c->servers)
        return wf_err(WEFT_EINVAL, "weft_ps_costs: %d replicas on %d servers", c->replicas,
                      c->servers);
    if (c->bytes < 1 || c->bytes > (int64_t)1 << 50 || c->piece_bytes < 1 ||
        c->bytes / c->piece_bytes > 100000 || c->cores < 0 || c->cores > MAX_TASKS ||
        c->steps < 4 || c->steps > 100000)
        return wf_err(WEFT_EINVAL,
                      "weft_ps_costs: %lld bytes in pieces of %lld, %d cores, %d steps: out of "
                      "range",
                      (long long)c->bytes, (long long)c->piece_bytes, c->cores, c->steps);
    return WEFT_OK;
}

weft_status weft_ps_predict(weft_ctx *ctx, const weft_ps_costs *costs, weft_ps_prediction *out)
{
    struct world w = {.ctx = ctx, .begin = -1, .end = -1};
    weft_ps_prediction p = {.size = sizeof p};
    weft_status st = wf_opts_take(&w.c, sizeof w.c, costs, "weft_ps_costs");

    if (st)
        return st;
    w.c.replicas = w.c.replicas ? w.c.replicas : 1;
    w.c.piece_bytes = w.c.piece_bytes ? w.c.piece_bytes : 4 << 20;
    w.c.steps = w.c.steps ? w.c.steps : 16;
    st = check(&w.c);
    if (st)
        return st;
    w.n_tasks = w.c.servers + w.c.workers;
    w.n_pieces = (int)((w.c.bytes + w.c.piece_bytes - 1) / w.c.piece_bytes) + 1;
    wf_actions_init(&w.acts, ctx);
    w.task = wf_alloc_n(ctx, w.n_tasks, sizeof *w.task);
    w.core = wf_alloc_n(ctx, w.c.cores + 1, sizeof *w.core);
    if (!w.task || !w.core)
        st = wf_err_nomem(ctx, sizeof *w.task, "prediction");
    if (!st)
        st = simulate(&w, &p);
    free_world(&w);
    return st ? st : wf_opts_give(out, out->size, &p, sizeof p, "weft_ps_prediction");
}
