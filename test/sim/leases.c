/* leases.c - the arithmetic of a simulated job whose shards are leased one by one. A value is a
 * hash of the leases that went into it, in their order; any order is allowed, but only one. */
#include "world.h"

#include <stdlib.h>

enum { MAX_HELD = 64 };

/* A push, as far as it has come. */
struct held {
    int64_t lease;
    int node;
    bool has_gradient, is_closed;
    uint64_t gradient, closing;
};

struct piece {
    uint64_t now[MAX_BLOCKS];
    struct held held[MAX_HELD];
    int n_held;
    int64_t lease; /* of the record */
    uint64_t record;
};

struct server {
    struct world *w;
    int node;
    struct piece piece[MAX_PIECES];
    uint64_t asked;
};

struct worker {
    struct world *w;
    int node;
    int64_t lease; /* what `seen` was pulled for */
    uint64_t seen[MAX_PIECES], asked[MAX_PIECES];
    int64_t given_lease[4];
    uint64_t given[4]; /* by push */
    int n_given;
};

static int64_t step_of(const struct world *w, int64_t lease)
{
    return lease / w->c->plan.n_shards;
}

static int shard_of(const struct world *w, int64_t lease)
{
    return (int)(lease % w->c->plan.n_shards);
}

/* Whether the gradient of a lease is not finite, so that nothing is updated. */
static bool is_skipped(const struct world *w, int64_t lease)
{
    return sim_mix(sim_mix(w->c->seed, 0x5c1b), (uint64_t)lease) % 8 == 0;
}

static uint64_t gradient_of(uint64_t given, int piece)
{
    return sim_mix(given, (uint64_t)piece + 100);
}

/* The closing record of a gradient. */
static uint64_t closing_of(uint64_t gradient)
{
    return sim_mix(gradient, 0xc105e);
}

static uint64_t blocks_of(const struct world *w, const uint64_t *v)
{
    uint64_t h = 1;

    for (int b = 0; b < w->c->plan.n_blocks; b++)
        h = sim_mix(h, v[b]);
    return h;
}

static void *new_truth(weft_ctx *ctx, const struct sim_case *c)
{
    (void)ctx;
    (void)c;
    return NULL;
}

/* ---- a server's bytes ------------------------------------------------------------------------ */

static struct held *find(struct piece *p, int64_t lease, int node)
{
    for (int i = 0; i < p->n_held; i++)
        if (p->held[i].lease == lease && p->held[i].node == node)
            return &p->held[i];
    return NULL;
}

static weft_status hold(void *arg, int piece, int64_t lease, int node, const struct wf_message *m)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];
    struct held *h = find(p, lease, node);
    const struct payload *from = m->payload;

    if (!h && p->n_held == MAX_HELD) {
        sim_fail(s->w, "server %d holds %d pushes to piece %d", s->node, MAX_HELD, piece);
        return WEFT_OK;
    }
    if (!h) {
        h = &p->held[p->n_held++];
        *h = (struct held){.lease = lease, .node = node};
    }
    if (m->type == WF_MSG_PUSH || m->whole) {
        h->has_gradient = true;
        h->gradient = from->v[0];
    }
    if (m->type == WF_MSG_CLOSE) {
        h->is_closed = true;
        h->closing = from->v[1];
    }
    return WEFT_OK;
}

static void release(void *arg, int piece, int64_t lease, int node)
{
    struct piece *p = &((struct server *)arg)->piece[piece];
    struct held *h = find(p, lease, node);

    if (h)
        *h = p->held[--p->n_held];
}

static weft_status close_push(void *arg, int piece, int64_t t, int64_t lease, int node)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];
    struct held *h = find(p, lease, node);

    (void)t;
    if (!h || !h->has_gradient || !h->is_closed || h->closing != closing_of(h->gradient)) {
        sim_fail(s->w, "server %d: lease %lld of worker %d is closed, and its gradient is not that",
                 s->node, (long long)lease, node);
        return WEFT_OK;
    }
    p->lease = lease;
    p->record = h->gradient;
    release(s, piece, lease, node);
    return WEFT_OK;
}

static void clear(void *arg, int piece)
{
    ((struct server *)arg)->piece[piece].n_held = 0;
}

static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    struct server *s = arg;

    (void)t;
    s->piece[piece].record = ((const struct payload *)payload)->v[0];
    s->piece[piece].lease = (int64_t)((const struct payload *)payload)->v[1];
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];

    for (int b = 0; b < s->w->c->plan.n_blocks; b++) {
        if (block >= 0 && b != block)
            continue;
        if (!is_skipped(s->w, p->lease))
            p->now[b] = sim_mix(p->now[b], p->record);
        sim_log_apply(s->w, s->node, piece, b, t, p->lease, p->now[b]);
    }
    return WEFT_OK;
}

static weft_status fill(void *arg, int piece, int block, int64_t t, const void *payload)
{
    (void)t;
    ((struct server *)arg)->piece[piece].now[block] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    struct server *s = arg;
    const struct wf_epoch *e = s->w->node[s->node].m.server.view.epoch;
    struct piece_log *log = sim_log(s->w, e->history, piece);

    s->piece[piece] = (struct piece){.lease = -1};
    for (int b = 0; b < s->w->c->plan.n_blocks; b++) {
        s->piece[piece].now[b] = log->value[t * s->w->c->plan.n_shards][b];
    }
    return WEFT_OK;
}

static void drop(void *arg, int piece)
{
    memset(&((struct server *)arg)->piece[piece], 0x5a, sizeof(struct piece));
    clear(arg, piece);
}

static weft_status read(void *arg, int piece, int64_t t, const void *payload)
{
    (void)piece;
    (void)t;
    ((struct server *)arg)->asked = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static void *new_server(struct world *w, const void *truth, int node, struct wf_ps_data *data)
{
    struct server *s = calloc(1, sizeof *s);

    (void)truth;
    s->w = w;
    s->node = node;
    *data = (struct wf_ps_data){.arg = s,
                                .clear = clear,
                                .record = record,
                                .apply = apply,
                                .fill = fill,
                                .load = load,
                                .read = read,
                                .drop = drop,
                                .hold = hold,
                                .release = release,
                                .close = close_push};
    return s;
}

static void server_payload(void *server, const struct wf_server *m, const struct wf_message *msg,
                           struct payload **to)
{
    const struct server *s = server;
    const struct piece *p = &s->piece[msg->piece];
    struct payload *out = *to = sim_payload(0);

    switch (msg->type) {
    case WF_MSG_VERSION: out->v[0] = blocks_of(s->w, p->now); break;
    case WF_MSG_ROWS: out->v[0] = sim_mix(blocks_of(s->w, p->now), s->asked); break;
    case WF_MSG_RECORD:
        out->v[0] = p->record;
        out->v[1] = (uint64_t)p->lease;
        if (p->lease != msg->lease)
            sim_fail(s->w, "server %d sends the record of lease %lld as that of lease %lld",
                     s->node, (long long)p->lease, (long long)msg->lease);
        break;
    case WF_MSG_FILL: out->v[0] = p->now[msg->block]; break;
    default: break;
    }
    if ((msg->type == WF_MSG_FILL || msg->type == WF_MSG_VERSION) &&
        msg->t != m->piece[msg->piece].version)
        sim_fail(s->w, "server %d sends version %lld of piece %d as version %lld", s->node,
                 (long long)m->piece[msg->piece].version, msg->piece, (long long)msg->t);
}

/* ---- a worker's bytes ------------------------------------------------------------------------ */

static bool needs(void *arg, int64_t lease, int piece)
{
    const struct world *w = ((struct worker *)arg)->w;

    return sim_needs(w->c, shard_of(w, lease), step_of(w, lease), piece) &&
           (w->c->plan.stale >= 0 || !sim_is_table(w->c, piece));
}

static weft_status take(void *arg, int piece, int64_t lease, const void *payload)
{
    struct worker *s = arg;

    if (lease != s->w->node[s->node].m.lessee.lease)
        sim_fail(s->w, "worker %d takes a piece that it pulled for lease %lld", s->node,
                 (long long)lease);
    if (s->lease != lease)
        memset(s->seen, 0, sizeof s->seen);
    s->lease = lease;
    s->seen[piece] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static unsigned reads(void *worker, int64_t lease, int shard)
{
    struct worker *s = worker;
    unsigned pieces = 0;

    (void)shard;
    for (int q = 0; q < s->w->c->plan.n_pieces; q++)
        if (sim_is_table(s->w->c, q) &&
            sim_needs(s->w->c, shard_of(s->w, lease), step_of(s->w, lease), q)) {
            s->asked[q] = sim_mix((uint64_t)lease, (uint64_t)q);
            pieces |= 1u << q;
        }
    return pieces;
}

static weft_status rows(void *arg, int piece, int64_t lease, const void *payload)
{
    struct worker *s = arg;

    (void)lease;
    s->seen[piece] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static uint64_t *given_to(struct worker *s, int64_t lease)
{
    for (int i = 0; i < s->n_given; i++)
        if (s->given_lease[i] == lease)
            return &s->given[i];
    return NULL;
}

static void forget(void *arg, int64_t lease)
{
    struct worker *s = arg;
    uint64_t *v = given_to(s, lease);

    if (!v) {
        sim_fail(s->w, "worker %d forgets lease %lld, which it does not have", s->node,
                 (long long)lease);
        return;
    }
    s->n_given--;
    s->given_lease[v - s->given] = s->given_lease[s->n_given];
    *v = s->given[s->n_given];
}

static void restart(void *arg)
{
    ((struct worker *)arg)->n_given = 0;
    ((struct worker *)arg)->lease = -1;
}

/* From what was pulled; the same when it ends as when a part of it was ready. */
static void compute(void *worker, int64_t lease, int shard)
{
    struct worker *s = worker;
    uint64_t *v = given_to(s, lease), h = sim_mix((uint64_t)lease, (uint64_t)s->node);

    (void)shard;
    if (s->w->node[s->node].m.lessee.lease != lease) /* it was lost meanwhile */
        return;
    for (int q = 0; q < s->w->c->plan.n_pieces; q++)
        if (sim_needs(s->w->c, shard_of(s->w, lease), step_of(s->w, lease), q))
            h = sim_mix(h, s->seen[q]);
    if (!v) {
        if (s->n_given == 3) {
            sim_fail(s->w, "worker %d has four pushes that are not acknowledged", s->node);
            return;
        }
        s->given_lease[s->n_given] = lease;
        v = &s->given[s->n_given++];
    } else if (*v != h) {
        sim_fail(s->w, "worker %d: what it computes lease %lld from has changed", s->node,
                 (long long)lease);
    }
    *v = h;
}

static weft_status control(void *arg, int64_t t, const void *payload)
{
    struct worker *s = arg;

    return sim_control(s->w, s->node, t, payload);
}

static void *new_lessee(struct world *w, int node, struct wf_lessee_data *data)
{
    struct worker *s = calloc(1, sizeof *s);

    s->w = w;
    s->node = node;
    s->lease = -1;
    *data = (struct wf_lessee_data){.arg = s,
                                    .take = take,
                                    .needs = needs,
                                    .rows = rows,
                                    .restart = restart,
                                    .forget = forget,
                                    .control = w->c->gate_every || w->c->halts ? control : NULL};
    return s;
}

static void worker_payload(void *worker, const struct wf_message *msg, struct payload **out)
{
    struct worker *s = worker;
    uint64_t *v;

    *out = sim_payload(0);
    if (msg->type == WF_MSG_READ)
        (*out)->v[0] = s->asked[msg->piece];
    if (msg->type != WF_MSG_PUSH && msg->type != WF_MSG_CLOSE)
        return;
    v = given_to(s, msg->lease);
    if (!v) {
        sim_fail(s->w, "worker %d pushes lease %lld, which it does not have", s->node,
                 (long long)msg->lease);
        return;
    }
    if (msg->type == WF_MSG_PUSH || msg->whole)
        (*out)->v[0] = gradient_of(*v, msg->piece);
    if (msg->type == WF_MSG_CLOSE)
        (*out)->v[1] = closing_of(gradient_of(*v, msg->piece));
}

const struct sim_kind sim_leases = {.new_truth = new_truth,
                                    .free_truth = free,
                                    .new_server = new_server,
                                    .free_server = free,
                                    .new_lessee = new_lessee,
                                    .free_worker = free,
                                    .server_payload = server_payload,
                                    .worker_payload = worker_payload,
                                    .reads = reads,
                                    .compute = compute};
