/* faults.c - draws a case from a seed: how many nodes, what they do, and what happens to them. */
#include "sim.h"

struct draw {
    uint64_t state;
};

static uint64_t next(struct draw *d)
{
    d->state = sim_mix(d->state, 0x51ed270b);
    return d->state;
}

/* In [lo, hi]. */
static int64_t between(struct draw *d, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(next(d) % (uint64_t)(hi - lo + 1));
}

static bool chance(struct draw *d, int of_100)
{
    return between(d, 0, 99) < of_100;
}

/* About how long the job takes if nothing happens. */
static int64_t duration(const struct sim_case *c)
{
    int64_t shards = (c->plan.n_shards + c->n_workers - 1) / c->n_workers;

    return 3 * c->store_delay + 100 * MS +
           c->plan.n_steps * (c->compute * shards + (6 + 4 * c->plan.n_rounds) * c->delay);
}

static void draw_fault(struct draw *d, const struct sim_case *c, bool servers, struct fault *f)
{
    f->kind = (enum fault_kind)(chance(d, 50) ? KILL : between(d, 0, N_FAULT_KINDS - 1));
    f->at = between(d, 0, 2 * duration(c) / MS) * MS;
    f->node = (int)between(d, 0, c->n_nodes - 1);
    if (servers)
        f->node = c->n_chiefs + (int)between(d, 0, c->n_servers - 1);
    f->lasts = between(d, 1, 2500) * MS;
    f->told = chance(d, 60);
    f->other = (unsigned)next(d) & ((1u << c->n_nodes) - 1) & ~(1u << f->node);
    if (f->kind == KILL && chance(d, 30))
        f->lasts = between(d, 1, 30) * MS;
    if (f->kind == LEAVE && f->node < c->n_chiefs)
        f->kind = PAUSE;
    /* one node of each kind is started again, whatever happens */
    if (f->kind == KILL && chance(d, 30) && f->node != 0 && f->node != c->n_chiefs &&
        f->node != c->n_chiefs + c->n_servers)
        f->lasts = 0;
}

/* In some cases programs of workers hang. They have a stream of their own, so that other cases stay
 * what they were. The first worker goes on some day. */
static void draw_hangs(struct sim_case *c, uint64_t seed)
{
    struct draw d = {sim_mix(seed, 0x57a11)};
    int n = (int)between(&d, 1, 3);

    if (!chance(&d, 25))
        return;
    c->stall_ns = between(&d, 3000, 6000) * MS;
    while (n--) {
        int worker = (int)between(&d, 0, c->n_workers - 1);
        int64_t lasts = between(&d, 1, 20000) * MS;

        c->fault[c->n_faults++] = (struct fault){.kind = HANG,
                                                 .at = between(&d, 0, 2 * duration(c) / MS) * MS,
                                                 .node = c->n_chiefs + c->n_servers + worker,
                                                 .lasts = worker && chance(&d, 40) ? 0 : lasts};
    }
}

/* In others, nodes are drained. */
static void draw_drains(struct sim_case *c, uint64_t seed)
{
    struct draw d = {sim_mix(seed, 0xd4a1)};
    int n = (int)between(&d, 1, 3);

    if (!chance(&d, 25))
        return;
    while (n--)
        c->fault[c->n_faults++] = (struct fault){
            .kind = DRAIN,
            .at = between(&d, 0, 2 * duration(c) / MS) * MS,
            .node = c->n_chiefs + (int)between(&d, 0, c->n_servers + c->n_workers - 1),
            .lasts = between(&d, 500, 6000) * MS};
}

/* In some cases tasks are added to the running job. They are killed, drained and cut off, too. */
static void draw_added(struct sim_case *c, uint64_t seed)
{
    struct draw d = {sim_mix(seed, 0xadded)};
    int first = c->n_nodes, n = (int)between(&d, 1, MAX_ADDED), n_faults = (int)between(&d, 0, 3);

    if (!chance(&d, 30))
        return;
    for (int i = 0; i < n; i++) {
        c->added[i] = chance(&d, 50) ? WF_ROLE_SERVER : WF_ROLE_WORKER;
        c->starts[c->n_nodes] = between(&d, 0, 2 * duration(c) / MS) * MS;
        c->slow[c->n_nodes++] = 1;
    }
    c->n_added = n;
    for (int i = 0; i < n_faults; i++) {
        struct fault *f = &c->fault[c->n_faults++];

        draw_fault(&d, c, false, f);
        if (chance(&d, 40))
            f->kind = DRAIN;
        f->node = first + (int)between(&d, 0, n - 1);
        f->other = (unsigned)next(&d) & ((1u << c->n_nodes) - 1) & ~(1u << f->node);
    }
}

/* Checkpoints are damaged, the store cannot be reached, and jobs begin with a checkpoint. */
static void draw_disks(struct sim_case *c, uint64_t seed)
{
    struct draw d = {sim_mix(seed, 0xd15c)};
    int n = chance(&d, 20) ? (int)between(&d, 1, 2) : 0;
    bool out = chance(&d, 20);

    if (chance(&d, 15))
        c->resumes = between(&d, 1, c->plan.n_steps - 1);
    for (int i = 0; i < n + 2 * out; i++)
        c->fault[c->n_faults++] = (struct fault){.kind = i < n ? DAMAGE : OUTAGE,
                                                 .at = between(&d, 0, 2 * duration(c) / MS) * MS,
                                                 .lasts = (i < n ? 1 : between(&d, 1, 5000)) * MS};
}

/* A machine with a chief, and now and then other tasks, is cut off from all others, or from the
 * other chief alone; both sides reach the store. */
static void draw_partition(struct sim_case *c, uint64_t seed)
{
    struct draw d = {sim_mix(seed, 0x9a47)};
    unsigned group, others = (1u << c->n_nodes) - 1;
    int more = (int)between(&d, 0, 2);
    int64_t at = between(&d, 0, 2 * duration(c) / MS) * MS, lasts = between(&d, 500, 6000) * MS;

    if (c->n_chiefs < 2 || !chance(&d, 30))
        return;
    group = 1u << between(&d, 0, c->n_chiefs - 1);
    while (more--)
        group |= 1u << between(&d, c->n_chiefs, c->n_nodes - 1);
    if (chance(&d, 25)) {
        others = (1u << c->n_chiefs) - 1;
        group &= others;
    }
    for (int i = 0; i < c->n_nodes; i++)
        if (group >> i & 1)
            c->fault[c->n_faults++] = (struct fault){.kind = CUT,
                                                     .at = at,
                                                     .lasts = lasts,
                                                     .node = i,
                                                     .other = others & ~group,
                                                     .parts = true};
}

/* With leases, workers want control records that nobody planned. */
static void draw_halts(struct sim_case *c)
{
    struct draw d = {sim_mix(c->seed, 0x4a17)};
    int n = (int)between(&d, 1, 3);

    if (!chance(&d, 40))
        return;
    c->halts = true;
    while (n--) {
        int worker = (int)between(&d, 0, c->n_workers - 1);

        c->fault[c->n_faults++] = (struct fault){.kind = HALT,
                                                 .at = between(&d, 0, 2 * duration(c) / MS) * MS,
                                                 .node = c->n_chiefs + c->n_servers + worker,
                                                 .lasts = MS};
    }
}

void sim_draw(struct sim_case *c, uint64_t seed)
{
    struct draw d = {sim_mix(seed, 0xfeed)};
    bool calm, servers;

    *c = (struct sim_case){.seed = seed};
    c->n_chiefs = (int)between(&d, 1, 2);
    c->n_servers = (int)between(&d, 1, 4);
    c->n_workers = (int)between(&d, 1, 4);
    c->n_nodes = c->n_chiefs + c->n_servers + c->n_workers;
    c->copies = chance(&d, 80);
    c->plan =
        (struct wf_ps_plan){.n_pieces = (int)between(&d, 1, MAX_PIECES - 1),
                            .n_shards = (int)between(&d, 1, chance(&d, 30) ? MAX_SHARDS - 2 : 6),
                            .n_rounds = (int)between(&d, 0, 2),
                            .n_blocks = (int)between(&d, 1, MAX_BLOCKS),
                            .save_every = between(&d, 0, 3),
                            .retry_ns = 100 * MS,
                            .n_steps = between(&d, 2, MAX_STEPS - 4)};
    for (int i = 0; i < c->n_nodes; i++)
        c->starts[i] = chance(&d, 25) ? between(&d, 0, 3000) * MS : 0;
    calm = chance(&d, 20);
    c->delay = between(&d, 1, 4) * MS;
    c->late = between(&d, 10, chance(&d, 30) ? 2500 : 600) * MS;
    c->drop = calm ? 0 : (int)between(&d, 0, 60);
    c->twice = calm ? 0 : (int)between(&d, 0, 60);
    c->hold = calm ? 0 : (int)between(&d, 0, 100);
    c->store_delay = between(&d, 1, 300) * MS;
    c->compute = between(&d, 1, 120) * MS;
    c->n_faults = (int)between(&d, 0, 12);
    servers = chance(&d, 40);
    for (int i = 0; i < c->n_faults; i++)
        draw_fault(&d, c, servers, &c->fault[i]);
    for (int i = 0; i < c->n_nodes; i++)
        c->slow[i] = chance(&d, 20) ? (int)between(&d, 2, 8) : 1;
    c->balance_ns = chance(&d, 50) ? between(&d, 100, 1000) * MS : 0;
    c->backup = chance(&d, 50) ? (int)between(&d, 1, 4) : 0;
    c->gate_every = chance(&d, 50) ? between(&d, 1, 5) : 0;
    c->surprise = chance(&d, 50) ? (int)between(&d, 1, 50) : 0;
    /* rows of the last pieces are read while a shard is computed */
    c->n_table_pieces = sim_mix(seed, 0x7ab) % 4 ? 0 : 1 + c->plan.n_pieces / 3;
    c->first_table = c->plan.n_pieces - c->n_table_pieces;
    c->placed = chance(&d, 40);
    for (int i = 0; i < MAX_PIECES; i++)
        c->home[i] =
            chance(&d, 60) ? c->n_chiefs + (int)between(&d, 0, c->n_servers - 1) : WF_NOBODY;
    for (int i = 0; i < c->n_faults; i++)
        c->fault[i].one_way = chance(&d, 30);
    c->store_late = !calm && chance(&d, 25) ? between(&d, 100, 4000) * MS : 0;
    c->holds = c->gate_every && chance(&d, 50) ? (int)between(&d, 1, 30) : 0;
    draw_hangs(c, seed);
    draw_drains(c, seed);
    draw_added(c, seed);
    draw_disks(c, seed);
    draw_partition(c, seed);
    c->busy_until = (int64_t)(sim_mix(seed, 0xb517) % (uint64_t)(4 * duration(c) / MS + 1)) * MS;
}

void sim_lease(struct sim_case *c, bool bound)
{
    struct draw d = {sim_mix(c->seed, bound ? 0x57a1e : 0xa57c)};

    c->leased = true;
    c->plan.n_rounds = 0;
    c->plan.inflight = bound ? 1 : 2;
    c->plan.stale = bound ? (int)between(&d, 1, 3) : -1;
    c->plan.window = (int)between(&d, 1, chance(&d, 30) ? 100 : 3 * c->plan.n_shards + 4);
    c->plan.gate_every = c->gate_every;
    c->ahead = (int)between(&d, 1, chance(&d, 50) ? 4 : 16);
    c->ahead_ns = chance(&d, 50) ? between(&d, 1, 500) * MS : 0;
    c->holds = c->backup = c->surprise = 0;
    draw_halts(c);
}
