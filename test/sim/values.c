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
    uint64_t now[MAX_BLOCKS], before[MAX_BLOCKS];
    uint64_t given[MAX_LEVELS][MAX_SHARDS]; /* sums of subtrees, by level and number */
    bool is_given[MAX_LEVELS][MAX_SHARDS];
    struct slot *slot[MAX_SHARDS]; /* of single shards: where a worker has what it gave */
    uint64_t stamp[MAX_SHARDS];
    uint64_t mean, last[2]; /* the record of a step: of this one, or of the last until it is made */
    uint64_t partial[2];    /* by round */
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
    uint64_t asked; /* what the last request for rows was about */
};

struct worker {
    struct world *w;
    const struct sim_case *c;
    const struct truth *truth;
    int node;
    uint64_t seen[2][MAX_PIECES]; /* even and odd versions */
    uint64_t asked[MAX_PIECES];   /* what the last request for rows of a piece was about */
    int64_t asked_t;
    struct slot *given[MAX_SHARDS], *spare[MAX_SHARDS]; /* spare: the last one is used first */
    int n_spare;
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

bool sim_sums(const struct sim_case *c, int node, int piece)
{
    uint64_t draw = sim_mix(sim_mix(c->seed, 0x50f), (uint64_t)node);

    return draw % 8 != 0 && sim_mix(draw, (uint64_t)piece) % 8 != 0;
}

bool sim_follows(const struct sim_case *c, int node)
{
    return sim_mix(sim_mix(c->seed, 0xf0110), (uint64_t)node) % 4 != 0;
}

bool sim_shares(const struct sim_case *c, int node)
{
    return sim_mix(sim_mix(c->seed, 0x54a4e), (uint64_t)node) % 4 != 0;
}

bool sim_early(const struct sim_case *c, int shard, int64_t t, int piece)
{
    return sim_mix(sim_mix(c->seed, (uint64_t)t + 3), (uint64_t)(shard * 64 + piece)) % 3 == 0;
}

bool sim_is_table(const struct sim_case *c, int piece)
{
    return piece >= c->first_table && piece < c->first_table + c->n_table_pieces;
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

static int top_level(const struct sim_case *c)
{
    int level = 0;

    while (1 << level < c->plan.n_shards)
        level++;
    return level;
}

static uint64_t mean_of(const struct sim_case *c, const uint64_t *given)
{
    return tree(given, 0, 1 << top_level(c), c->plan.n_shards);
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

static weft_status add(void *arg, int piece, int64_t t, int level, int shard, const void *payload)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];
    const uint64_t *given = s->truth->given[t][piece];
    struct slot *slot = ((const struct payload *)payload)->slot;
    uint64_t v = ((const struct payload *)payload)->v[0];

    for (int l = shard; l < shard + (1 << level) && l < s->c->plan.n_shards; l++) {
        if (p->has[l])
            sim_fail(s->w, "server %d: shard %d of step %lld was added twice to piece %d", s->node,
                     l, (long long)t, piece);
        p->has[l] = true;
    }
    if (slot) { /* it is read when all are there */
        slot->n_refs++;
        p->slot[shard] = slot;
        p->stamp[shard] = ((const struct payload *)payload)->v[1];
    } else if (v != tree(given, shard, 1 << level, s->c->plan.n_shards))
        sim_fail(s->w, "server %d: a wrong contribution of shard %d to step %lld of piece %d",
                 s->node, shard, (long long)t, piece);
    p->given[level][shard >> level] = v;
    p->is_given[level][shard >> level] = true;
    return WEFT_OK;
}

static void clear(void *arg, int piece)
{
    struct piece *p = &((struct server *)arg)->piece[piece];

    for (int l = 0; l < MAX_SHARDS; l++) {
        sim_slot_drop(p->slot[l]);
        p->slot[l] = NULL;
    }
    memset(p->has, 0, sizeof p->has);
    memset(p->is_given, 0, sizeof p->is_given);
}

/* Along the tree, from the subtrees that were sent. */
static uint64_t sum_of(const struct sim_case *c, const struct piece *p, int level, int number)
{
    if (number << level >= c->plan.n_shards)
        return 0;
    if (p->is_given[level][number])
        return p->given[level][number];
    return level == 0 ? 1 /* it is missing */
                      : sim_mix(sum_of(c, p, level - 1, 2 * number),
                                sum_of(c, p, level - 1, 2 * number + 1));
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

static weft_status reduce(void *arg, int piece, int64_t t, bool *gone)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];

    for (int l = 0; l < s->c->plan.n_shards; l++)
        if (p->slot[l]) {
            p->given[0][l] = p->slot[l]->v[piece];
            *gone |= p->slot[l]->stamp != p->stamp[l];
        }
    p->mean = sum_of(s->c, p, top_level(s->c), 0);
    if (s->c->plan.n_rounds) {
        at_norms(s, t);
        p->partial[0] = partial_of(0, piece, p->mean, 0);
    }
    return WEFT_OK;
}

static weft_status half(void *arg, int piece, int64_t t)
{
    struct server *s = arg;
    struct piece *p = &s->piece[piece];

    (void)t;
    p->partial[1] = partial_of(1, piece, p->mean, s->decision[0]);
    return WEFT_OK;
}

static weft_status own_partial(void *arg, int piece, int64_t t, int round)
{
    struct server *s = arg;

    at_norms(s, t);
    s->partial[round][piece] = s->piece[piece].partial[round];
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

    clear(s, piece);
    memset(&s->piece[piece], 0, sizeof s->piece[piece]);
    for (int b = 0; b < c->plan.n_blocks; b++)
        s->piece[piece].now[b] = s->truth->value[t][piece][b];
    return WEFT_OK;
}

static void drop(void *arg, int piece)
{
    struct server *s = arg;

    clear(s, piece);
    memset(&s->piece[piece], 0x5a, sizeof s->piece[piece]);
    memset(s->piece[piece].slot, 0, sizeof s->piece[piece].slot);
    clear(s, piece);
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
                                .read = read,
                                .drop = drop};
    return s;
}

static void free_server(void *server)
{
    struct server *s = server;

    for (int p = 0; p < MAX_PIECES; p++)
        clear(s, p);
    free(s);
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
    case WF_MSG_ROWS:
        out->v[0] = sim_mix(blocks_of(s->c, msg->t == version ? p->now : p->before), s->asked);
        break;
    case WF_MSG_PARTIAL: out->v[0] = p->partial[msg->round]; break;
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
    s->seen[t & 1][piece] = v;
    return WEFT_OK;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    const struct sim_case *c = ((struct worker *)arg)->c;

    return sim_needs(c, shard, t, piece) && !sim_is_table(c, piece);
}

/* A request is about rows that this shard alone wants. */
static unsigned reads(void *worker, int64_t t, int shard)
{
    struct worker *s = worker;
    unsigned pieces = 0;

    s->asked_t = t;
    for (int q = 0; q < s->c->plan.n_pieces; q++)
        if (sim_is_table(s->c, q) && sim_needs(s->c, shard, t, q)) {
            s->asked[q] = sim_mix((uint64_t)t, (uint64_t)(shard * 64 + q));
            pieces |= 1u << q;
        }
    return pieces;
}

static weft_status rows(void *arg, int piece, int64_t t, const void *payload)
{
    struct worker *s = arg;
    uint64_t v = blocks_of(s->c, s->truth->value[t][piece]);

    if (t != s->asked_t || ((const struct payload *)payload)->v[0] != sim_mix(v, s->asked[piece]))
        sim_fail(s->w, "worker %d: rows of version %lld of piece %d are not those it asked for",
                 s->node, (long long)t, piece);
    s->seen[t & 1][piece] = v;
    return WEFT_OK;
}

/* Slots of steps that are complete are used again. */
static void forget(void *arg, int64_t t)
{
    struct worker *s = arg;

    for (int l = 0; l < MAX_SHARDS; l++)
        if (s->given[l] && s->given[l]->t < t) {
            s->given[l]->t = -1;
            s->spare[s->n_spare++] = s->given[l];
            s->given[l] = NULL;
        }
}

static struct slot *slot_of(struct worker *s, int64_t t, int shard)
{
    struct slot *slot = s->given[shard];

    if (slot && slot->t != t) { /* of an earlier history */
        s->spare[s->n_spare++] = slot;
        slot = NULL;
    }
    if (!slot) {
        slot = s->n_spare ? s->spare[--s->n_spare] : calloc(1, sizeof *slot);
        slot->n_refs += slot->n_refs == 0;
        slot->stamp++;
        s->given[shard] = slot;
    }
    slot->t = t;
    return slot;
}

static void free_worker(void *worker)
{
    struct worker *s = worker;

    for (int l = 0; l < MAX_SHARDS; l++)
        sim_slot_drop(s->given[l]);
    for (int i = 0; i < s->n_spare; i++)
        sim_slot_drop(s->spare[i]);
    free(s);
}

static enum wf_gate gate(void *arg, int64_t t, bool decides)
{
    struct worker *s = arg;

    return sim_gate(s->w, s->node, t, decides);
}

static enum wf_doing doing(void *arg)
{
    const struct worker *s = arg;

    return sim_doing(s->w, s->node);
}

static weft_status control(void *arg, int64_t t, const void *payload)
{
    struct worker *s = arg;

    return sim_control(s->w, s->node, t, payload);
}

static bool sums(void *arg, int piece)
{
    const struct worker *s = arg;

    return sim_sums(s->c, s->node, piece);
}

static void *new_worker(struct world *w, const void *truth, int node, struct wf_client_data *data)
{
    struct worker *s = calloc(1, sizeof *s);

    s->w = w;
    s->c = sim_case_of(w);
    s->truth = truth;
    s->node = node;
    *data = (struct wf_client_data){.arg = s,
                                    .backup = s->c->backup,
                                    .sums = sums,
                                    .follow = sim_follows(s->c, node),
                                    .take = take,
                                    .needs = needs,
                                    .rows = rows,
                                    .forget = forget,
                                    .gate = s->c->gate_every ? gate : NULL,
                                    .control = control,
                                    .doing = doing};
    return s;
}

static void worker_payload(void *worker, const struct wf_message *msg, struct payload **out)
{
    const struct worker *s = worker;
    uint64_t given[MAX_SHARDS] = {0};

    *out = sim_payload(0);
    if (msg->type == WF_MSG_READ)
        (*out)->v[0] = s->asked[msg->piece];
    if (msg->type != WF_MSG_PUSH)
        return;
    for (int l = 0; l < s->c->plan.n_shards; l++)
        given[l] = s->given[l] ? s->given[l]->v[msg->piece] : 0;
    (*out)->v[0] = tree(given, msg->shard, 1 << msg->level, s->c->plan.n_shards);
    if (msg->level == 0 && sim_shares(s->c, s->node)) {
        (*out)->slot = s->given[msg->shard];
        (*out)->slot->n_refs++;
        (*out)->v[1] = (*out)->slot->stamp;
    }
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
    struct slot *slot = slot_of(s, t, shard);
    uint64_t seen = 3;

    for (int q = 0; q < s->c->plan.n_pieces; q++)
        if (sim_needs(s->c, shard, t, q))
            seen = sim_mix(seen, s->seen[t & 1][q]);
    for (int p = 0; p < s->c->plan.n_pieces; p++)
        slot->v[p] = contribution(t, shard, p, seen);
}

void sim_slot_drop(struct slot *s)
{
    if (s && --s->n_refs == 0)
        free(s);
}

void sim_payload_drop(struct payload *p)
{
    if (!p || --p->n_refs > 0)
        return;
    sim_slot_drop(p->slot);
    free(p);
}

struct payload *sim_payload(int64_t bytes)
{
    struct payload *p = calloc(1, sizeof *p + (size_t)bytes + 64);

    p->n_refs = 1;
    return p;
}

const struct sim_kind sim_hashes = {.new_truth = new_truth,
                                    .free_truth = free,
                                    .new_server = new_server,
                                    .free_server = free_server,
                                    .new_worker = new_worker,
                                    .free_worker = free_worker,
                                    .server_payload = server_payload,
                                    .worker_payload = worker_payload,
                                    .is_true = is_true,
                                    .reads = reads,
                                    .compute = compute};
