/* values.c - the arithmetic of a simulated job. A value is a hash of everything that went into it,
 * in the order it did: if one contribution is missing, comes twice, or was computed from another
 * version, the value is another one. */
#include "sim.h"

#include <stdlib.h>

/* By version, piece and block. */
struct truth {
    const struct sim_case *c;
    uint64_t value[MAX_STEPS + 1][MAX_PIECES][MAX_BLOCKS];
    uint64_t given[MAX_STEPS][MAX_PIECES][MAX_SHARDS];
    uint64_t decision[MAX_STEPS][2];
};

struct piece {
    uint64_t now[MAX_BLOCKS], before[MAX_BLOCKS], given[MAX_SHARDS];
    uint64_t mean, last[2]; /* the record of a step: of this one, or of the last until it is made */
    bool has[MAX_SHARDS];
};

struct server {
    struct world *w;
    const struct sim_case *c;
    const struct truth *truth;
    int node;
    struct piece piece[MAX_PIECES];
    int64_t norm_t;
    uint64_t partial[2][MAX_PIECES], decision[2];
};

struct worker {
    struct world *w;
    const struct sim_case *c;
    const struct truth *truth;
    int node;
    uint64_t seen[MAX_PIECES], given[MAX_SHARDS][MAX_PIECES];
};

uint64_t sim_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x632be59bd9b4e019u + (a << 6) + (a >> 2));

    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 29;
}

bool sim_needs(const struct sim_case *c, int shard, int64_t t, int piece)
{
    return sim_mix(sim_mix(c->seed, (uint64_t)t), (uint64_t)(shard * 64 + piece)) % 4 != 0;
}

static uint64_t contribution(int64_t t, int shard, int piece, uint64_t seen)
{
    return sim_mix(sim_mix((uint64_t)t, (uint64_t)shard), sim_mix((uint64_t)piece, seen));
}

static uint64_t blocks_of(const struct sim_case *c, const uint64_t *v)
{
    uint64_t h = 1;

    for (int b = 0; b < c->plan.n_blocks; b++)
        h = sim_mix(h, v[b]);
    return h;
}

/* Along the tree over shard numbers. */
static uint64_t tree(const uint64_t *v, int first, int n, int count)
{
    int half = n / 2;

    if (first >= count)
        return 0;
    return n == 1 ? v[first]
                  : sim_mix(tree(v, first, half, count), tree(v, first + half, half, count));
}

static uint64_t mean_of(const struct sim_case *c, const uint64_t *given)
{
    int n = 1;

    while (n < c->plan.n_shards)
        n *= 2;
    return tree(given, 0, n, c->plan.n_shards);
}

static uint64_t partial_of(int round, int piece, uint64_t mean, uint64_t first)
{
    return sim_mix(sim_mix((uint64_t)round, (uint64_t)piece), round ? sim_mix(mean, first) : mean);
}

static uint64_t decide(const struct sim_case *c, const uint64_t *partial)
{
    uint64_t h = 2;

    for (int p = 0; p < c->plan.n_pieces; p++)
        h = sim_mix(h, partial[p]);
    return h;
}

static uint64_t updated(const struct sim_case *c, uint64_t v, uint64_t mean, const uint64_t *d)
{
    uint64_t h = sim_mix(v, mean);

    for (int r = 0; r < c->plan.n_rounds; r++)
        h = sim_mix(h, d[r]);
    return h;
}

static uint64_t initial(int piece, int block)
{
    return sim_mix(77, (uint64_t)(piece * 8 + block));
}

/* ---- the truth ------------------------------------------------------------------------------- */

static void *new_truth(weft_ctx *ctx, const struct sim_case *c)
{
    struct truth *out = calloc(1, sizeof *out);
    int n_p = c->plan.n_pieces, n_l = c->plan.n_shards;

    (void)ctx;
    out->c = c;

    for (int p = 0; p < n_p; p++)
        for (int b = 0; b < c->plan.n_blocks; b++)
            out->value[0][p][b] = initial(p, b);
    for (int64_t t = 0; t < c->plan.n_steps; t++) {
        uint64_t mean[MAX_PIECES], partial[MAX_PIECES], d[2] = {0};

        for (int p = 0; p < n_p; p++) {
            uint64_t *given = out->given[t][p];

            for (int l = 0; l < n_l; l++) {
                uint64_t seen = 3;

                for (int q = 0; q < n_p; q++)
                    if (sim_needs(c, l, t, q))
                        seen = sim_mix(seen, blocks_of(c, out->value[t][q]));
                given[l] = contribution(t, l, p, seen);
            }
            mean[p] = mean_of(c, given);
        }
        for (int r = 0; r < c->plan.n_rounds; r++) {
            for (int p = 0; p < n_p; p++)
                partial[p] = partial_of(r, p, mean[p], d[0]);
            out->decision[t][r] = d[r] = decide(c, partial);
        }
        for (int p = 0; p < n_p; p++)
            for (int b = 0; b < c->plan.n_blocks; b++)
                out->value[t + 1][p][b] = updated(c, out->value[t][p][b], mean[p], d);
    }
    return out;
}

/* ---- a server's bytes ------------------------------------------------------------------------ */

static weft_status add(void *arg, int piece, int64_t t, int shard, const void *payload)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];

    if (p->has[shard])
        sim_fail(s->w, "server %d: shard %d of step %lld was added twice to piece %d", s->node,
                 shard, (long long)t, piece);
    if (((const struct payload *)payload)->v[0] != s->truth->given[t][piece][shard])
        sim_fail(s->w, "server %d: a wrong contribution of shard %d to step %lld of piece %d",
                 s->node, shard, (long long)t, piece);
    p->has[shard] = true;
    p->given[shard] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static void clear(void *arg, int piece)
{
    struct piece *p = &((struct server *)arg)->piece[piece];

    memset(p->has, 0, sizeof p->has);
}

static void begin(void *arg, int64_t t)
{
    struct server *s = arg;

    s->norm_t = t;
    memset(s->partial, 0, sizeof s->partial);
    memset(s->decision, 0, sizeof s->decision);
}

/* The machine says when the norms of a step begin. */
static void at_norms(struct server *s, int64_t t)
{
    if (s->norm_t != t)
        sim_fail(s->w, "server %d: norms of step %lld while those of %lld are under way", s->node,
                 (long long)t, (long long)s->norm_t);
}

static weft_status reduce(void *arg, int piece, int64_t t)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];

    p->mean = mean_of(s->c, p->given);
    if (s->c->plan.n_rounds) {
        at_norms(s, t);
        s->partial[0][piece] = partial_of(0, piece, p->mean, 0);
    }
    return WEFT_OK;
}

static weft_status half(void *arg, int piece, int64_t t)
{
    struct server *s = arg;

    (void)t;
    s->partial[1][piece] = partial_of(1, piece, s->piece[piece].mean, s->decision[0]);
    return WEFT_OK;
}

static weft_status own_partial(void *arg, int piece, int64_t t, int round)
{
    (void)arg;
    (void)piece;
    (void)t;
    (void)round;
    return WEFT_OK;
}

static weft_status partial(void *arg, int piece, int64_t t, int round, const void *payload)
{
    struct server *s = arg;

    at_norms(s, t);
    s->partial[round][piece] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static weft_status decide_round(void *arg, int64_t t, int round)
{
    struct server *s = arg;

    at_norms(s, t);
    s->decision[round] = decide(s->c, s->partial[round]);
    if (s->decision[round] != s->truth->decision[t][round])
        sim_fail(s->w, "server %d: a wrong decision in round %d of step %lld", s->node, round,
                 (long long)t);
    return WEFT_OK;
}

static weft_status decision(void *arg, int64_t t, const void *payload)
{
    struct server *s = arg;
    const struct payload *p = payload;

    at_norms(s, t);
    s->decision[0] = p->v[1];
    s->decision[1] = p->v[2];
    for (int r = 0; r < s->c->plan.n_rounds; r++)
        if (s->decision[r] != s->truth->decision[t][r])
            sim_fail(s->w, "server %d: a wrong decision of step %lld", s->node, (long long)t);
    return WEFT_OK;
}

static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    struct server *s = arg;
    const struct payload *p = payload;

    (void)t;
    s->piece[piece].mean = p->v[0];
    s->piece[piece].last[0] = p->v[1];
    s->piece[piece].last[1] = p->v[2];
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct server *s = arg;
    const struct sim_case *c = s->c;
    struct piece *p = &s->piece[piece];
    /* A primary has decided itself; a copy has the record's decision. */
    bool own = p->has[0];
    const uint64_t *d = own ? s->decision : p->last;

    (void)t;
    for (int b = 0; b < c->plan.n_blocks; b++) {
        if (block >= 0 && b != block)
            continue;
        p->before[b] = p->now[b];
        p->now[b] = updated(c, p->now[b], p->mean, d);
    }
    if (own)
        memcpy(p->last, s->decision, sizeof p->last);
    return WEFT_OK;
}

static weft_status fill(void *arg, int piece, int block, int64_t t, const void *payload)
{
    struct server *s = arg;
    const struct payload *p = payload;

    (void)t;
    s->piece[piece].now[block] = p->v[0];
    s->piece[piece].before[block] = p->v[3];
    return WEFT_OK;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    struct server *s = arg;
    const struct sim_case *c = s->c;

    memset(&s->piece[piece], 0, sizeof s->piece[piece]);
    for (int b = 0; b < c->plan.n_blocks; b++)
        s->piece[piece].now[b] = s->truth->value[t][piece][b];
    return WEFT_OK;
}

static void drop(void *arg, int piece)
{
    struct server *s = arg;

    memset(&s->piece[piece], 0x5a, sizeof s->piece[piece]);
    memset(s->piece[piece].has, 0, sizeof s->piece[piece].has);
}

static void *new_server(struct world *w, const void *truth, int node, struct wf_ps_data *data)
{
    struct server *s = calloc(1, sizeof *s);

    s->w = w;
    s->c = sim_case_of(w);
    s->truth = truth;
    s->node = node;
    s->norm_t = -1;
    *data = (struct wf_ps_data){.arg = s,
                                .add = add,
                                .clear = clear,
                                .reduce = reduce,
                                .begin = begin,
                                .partial = partial,
                                .own_partial = own_partial,
                                .decide = decide_round,
                                .half = half,
                                .decision = decision,
                                .record = record,
                                .apply = apply,
                                .fill = fill,
                                .load = load,
                                .drop = drop};
    return s;
}

static void server_payload(void *server, const struct wf_server *m, const struct wf_message *msg,
                           struct payload **to)
{
    const struct server *s = server;
    struct payload *out = *to = sim_payload(0);
    const struct piece *p = &s->piece[msg->piece];
    int64_t version = m->piece[msg->piece].version;
    /* The record of the current step, or of the last one. */
    const uint64_t *d = msg->t == version ? s->decision : p->last;

    switch (msg->type) {
    case WF_MSG_VERSION: out->v[0] = blocks_of(s->c, msg->t == version ? p->now : p->before); break;
    case WF_MSG_PARTIAL: out->v[0] = s->partial[msg->round][msg->piece]; break;
    case WF_MSG_DECISION:
        out->v[1] = s->decision[0];
        out->v[2] = s->decision[1];
        break;
    case WF_MSG_RECORD:
        out->v[0] = p->mean;
        out->v[1] = d[0];
        out->v[2] = d[1];
        break;
    case WF_MSG_FILL:
        out->v[0] = p->now[msg->block];
        out->v[1] = s->decision[0];
        out->v[2] = s->decision[1];
        out->v[3] = p->before[msg->block];
        break;
    default: break;
    }
}

/* ---- a worker's bytes ------------------------------------------------------------------------ */

static weft_status take(void *arg, int piece, int64_t t, const void *payload)
{
    struct worker *s = arg;
    uint64_t v = ((const struct payload *)payload)->v[0];

    if (v != blocks_of(s->c, s->truth->value[t][piece]))
        sim_fail(s->w, "worker %d: version %lld of piece %d is not that of a serial run", s->node,
                 (long long)t, piece);
    s->seen[piece] = v;
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    return sim_needs(((struct worker *)arg)->c, shard, t, piece);
}

static void forget(void *arg, int64_t t)
{
    (void)arg;
    (void)t;
}

static void *new_worker(struct world *w, const void *truth, int node, struct wf_client_data *data)
{
    struct worker *s = calloc(1, sizeof *s);

    s->w = w;
    s->c = sim_case_of(w);
    s->truth = truth;
    s->node = node;
    *data = (struct wf_client_data){s, take, needs, forget};
    return s;
}

static void worker_payload(void *worker, const struct wf_message *msg, struct payload **out)
{
    const struct worker *s = worker;

    *out = sim_payload(0);
    if (msg->type == WF_MSG_PUSH)
        (*out)->v[0] = s->given[msg->shard][msg->piece];
}

static bool is_true(void *server, int piece, int64_t t, bool present)
{
    const struct server *s = server;
    const uint64_t *v = present ? s->piece[piece].now : s->piece[piece].before;

    return memcmp(v, s->truth->value[t][piece], (size_t)s->c->plan.n_blocks * sizeof *v) == 0;
}

static void compute(void *worker, int64_t t, int shard)
{
    struct worker *s = worker;
    uint64_t seen = 3;

    for (int q = 0; q < s->c->plan.n_pieces; q++)
        if (sim_needs(s->c, shard, t, q))
            seen = sim_mix(seen, s->seen[q]);
    for (int p = 0; p < s->c->plan.n_pieces; p++)
        s->given[shard][p] = contribution(t, shard, p, seen);
}

struct payload *sim_payload(int64_t bytes)
{
    struct payload *p = calloc(1, sizeof *p + (size_t)bytes + 64);

    p->n_refs = 1;
    return p;
}

const struct sim_kind sim_hashes = {new_truth, free,           new_server,     free,    new_worker,
                                    free,      server_payload, worker_payload, is_true, compute};
