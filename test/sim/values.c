/* values.c - the arithmetic of a simulated job. A value is a hash of everything that went into it,
 * in the order it did: if one contribution is missing, comes twice, or was computed from another
 * version, the value is another one. */
#include "sim.h"

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

uint64_t sim_contribution(const struct sim_case *c, int64_t t, int shard, int piece, uint64_t seen)
{
    (void)c;
    return sim_mix(sim_mix((uint64_t)t, (uint64_t)shard), sim_mix((uint64_t)piece, seen));
}

uint64_t sim_blocks(const struct sim_case *c, const uint64_t *v)
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

void sim_truth(const struct sim_case *c, struct truth *out)
{
    int n_p = c->plan.n_pieces, n_l = c->plan.n_shards;

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
                        seen = sim_mix(seen, sim_blocks(c, out->value[t][q]));
                given[l] = sim_contribution(c, t, l, p, seen);
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
}

/* ---- a server's bytes ------------------------------------------------------------------------ */

static weft_status add(void *arg, int piece, int64_t t, int shard, const void *payload)
{
    struct sim_server *s = arg;
    struct sim_piece *p = &s->piece[piece];

    if (p->has[shard])
        sim_fail(s->w, "server %d: shard %d of step %lld was added twice to piece %d", s->node,
                 shard, (long long)t, piece);
    if (((const struct payload *)payload)->v[0] != sim_truth_of(s->w)->given[t][piece][shard])
        sim_fail(s->w, "server %d: a wrong contribution of shard %d to step %lld of piece %d",
                 s->node, shard, (long long)t, piece);
    p->has[shard] = true;
    p->given[shard] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static void clear(void *arg, int piece)
{
    struct sim_piece *p = &((struct sim_server *)arg)->piece[piece];

    memset(p->has, 0, sizeof p->has);
}

static void at_norms(struct sim_server *s, int64_t t)
{
    if (s->norm_t == t)
        return;
    s->norm_t = t;
    memset(s->partial, 0, sizeof s->partial);
    memset(s->decision, 0, sizeof s->decision);
}

static weft_status reduce(void *arg, int piece, int64_t t)
{
    struct sim_server *s = arg;
    struct sim_piece *p = &s->piece[piece];

    p->mean = mean_of(sim_case_of(s->w), p->given);
    if (sim_case_of(s->w)->plan.n_rounds) {
        at_norms(s, t);
        s->partial[0][piece] = partial_of(0, piece, p->mean, 0);
    }
    return WEFT_OK;
}

static weft_status half(void *arg, int piece, int64_t t)
{
    struct sim_server *s = arg;

    (void)t;
    s->partial[1][piece] = partial_of(1, piece, s->piece[piece].mean, s->decision[0]);
    return WEFT_OK;
}

static weft_status partial(void *arg, int piece, int64_t t, int round, const void *payload)
{
    struct sim_server *s = arg;

    at_norms(s, t);
    s->partial[round][piece] = ((const struct payload *)payload)->v[0];
    return WEFT_OK;
}

static weft_status decide_round(void *arg, int64_t t, int round)
{
    struct sim_server *s = arg;

    at_norms(s, t);
    s->decision[round] = decide(sim_case_of(s->w), s->partial[round]);
    if (s->decision[round] != sim_truth_of(s->w)->decision[t][round])
        sim_fail(s->w, "server %d: a wrong decision in round %d of step %lld", s->node, round,
                 (long long)t);
    return WEFT_OK;
}

static weft_status decision(void *arg, int64_t t, const void *payload)
{
    struct sim_server *s = arg;
    const struct payload *p = payload;

    at_norms(s, t);
    s->decision[0] = p->v[1];
    s->decision[1] = p->v[2];
    for (int r = 0; r < sim_case_of(s->w)->plan.n_rounds; r++)
        if (s->decision[r] != sim_truth_of(s->w)->decision[t][r])
            sim_fail(s->w, "server %d: a wrong decision of step %lld", s->node, (long long)t);
    return WEFT_OK;
}

static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    struct sim_server *s = arg;
    const struct payload *p = payload;

    (void)t;
    s->piece[piece].mean = p->v[0];
    s->piece[piece].last[0] = p->v[1];
    s->piece[piece].last[1] = p->v[2];
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct sim_server *s = arg;
    const struct sim_case *c = sim_case_of(s->w);
    struct sim_piece *p = &s->piece[piece];
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
    struct sim_server *s = arg;
    const struct payload *p = payload;

    (void)t;
    s->piece[piece].now[block] = p->v[0];
    s->piece[piece].before[block] = p->v[3];
    return WEFT_OK;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    struct sim_server *s = arg;
    const struct sim_case *c = sim_case_of(s->w);

    memset(&s->piece[piece], 0, sizeof s->piece[piece]);
    for (int b = 0; b < c->plan.n_blocks; b++)
        s->piece[piece].now[b] = sim_truth_of(s->w)->value[t][piece][b];
    return WEFT_OK;
}

static void drop(void *arg, int piece)
{
    struct sim_server *s = arg;

    memset(&s->piece[piece], 0x5a, sizeof s->piece[piece]);
    memset(s->piece[piece].has, 0, sizeof s->piece[piece].has);
}

struct wf_ps_data sim_server_data(struct sim_server *s)
{
    return (struct wf_ps_data){.arg = s,
                               .add = add,
                               .clear = clear,
                               .reduce = reduce,
                               .partial = partial,
                               .decide = decide_round,
                               .half = half,
                               .decision = decision,
                               .record = record,
                               .apply = apply,
                               .fill = fill,
                               .load = load,
                               .drop = drop};
}

void sim_server_payload(const struct sim_server *s, const struct wf_server *m,
                        const struct wf_message *msg, struct payload *out)
{
    const struct sim_piece *p = &s->piece[msg->piece];
    int64_t version = m->piece[msg->piece].version;
    /* The record of the present step, or of the last one. */
    const uint64_t *d = msg->t == version ? s->decision : p->last;

    *out = (struct payload){{0}};
    switch (msg->type) {
    case WF_MSG_VERSION:
        out->v[0] = sim_blocks(sim_case_of(s->w), msg->t == version ? p->now : p->before);
        break;
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
    struct sim_worker *s = arg;
    uint64_t v = ((const struct payload *)payload)->v[0];

    if (v != sim_blocks(sim_case_of(s->w), sim_truth_of(s->w)->value[t][piece]))
        sim_fail(s->w, "worker %d: version %lld of piece %d is not that of a serial run", s->node,
                 (long long)t, piece);
    s->seen[piece] = v;
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    return sim_needs(sim_case_of(((struct sim_worker *)arg)->w), shard, t, piece);
}

static void forget(void *arg, int64_t t)
{
    (void)arg;
    (void)t;
}

struct wf_client_data sim_worker_data(struct sim_worker *s)
{
    return (struct wf_client_data){s, take, needs, forget};
}
