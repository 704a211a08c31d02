/* sim.h - a whole job in one process: virtual time, seeded faults, invariants after every event.
 *
 * world.c runs a job; nodes.c carries out what the machines want, store.c is the store, checks.c
 * has what must always be true; values.c is the arithmetic, with hashes in place of floats,
 * real.c that of a server; leases.c and real_leases.c are both where shards are leased; faults.c
 * draws a case from a seed; sim.c runs seeds, shrinks and explains failures. */
#ifndef WF_SIM_H
#define WF_SIM_H

#include <stdio.h>

#include "cluster/chief.h"
#include "ps/lease.h"
#include "ps/store.h"

enum {
    MAX_NODES = 16,
    MAX_ADDED = 3,
    MAX_PIECES = 6,
    MAX_SHARDS = 16,
    MAX_LEVELS = 5,
    MAX_BLOCKS = 3,
    MAX_STEPS = 16,
    MAX_LEASES = MAX_STEPS * MAX_SHARDS,
    MAX_WORDS = 4,  /* of bits of a message */
    MAX_FAULTS = 32 /* those that are left out are bits of a number */
};

#define MS ((int64_t)1000000)

/* ---- a case ---------------------------------------------------------------------------------- */

enum fault_kind {
    KILL,
    PAUSE,
    CUT,
    LEAVE,
    N_FAULT_KINDS, /* that are drawn for any node */
    HANG,          /* a worker beats, and does not compute */
    DRAIN,         /* the chief is asked to let a node go */
    HALT,          /* a worker wants a control record that nobody planned; with leases */
    DAMAGE,        /* the last checkpoint cannot be read any more */
    OUTAGE         /* nobody reaches the store */
};

struct fault {
    enum fault_kind kind;
    int64_t at, lasts; /* KILL, HANG: until it is started again, or continues; 0: never */
    int node;
    unsigned other; /* CUT: from these nodes, as bits */
    bool told;      /* KILL: the chief sees the closed connection */
    bool one_way;   /* CUT: what it sends is lost, what others send it is not */
    bool parts;     /* CUT: of a whole machine */
};

struct sim_case {
    uint64_t seed;
    int n_chiefs, n_servers, n_workers, n_nodes;
    int n_added; /* the last nodes: tasks that join the job while it runs */
    enum wf_role added[MAX_ADDED];
    int64_t resumes;           /* the step of the checkpoint that the job begins with; 0: none */
    int64_t starts[MAX_NODES]; /* when a node is started */
    int copies;
    struct wf_ps_plan plan;
    int64_t delay, late;   /* of messages: usually, and now and then */
    int drop, twice, hold; /* of 1000 messages: lost, delivered twice, late */
    int64_t store_delay, compute;
    int64_t store_late;  /* of requests and answers, now and then; 0: never */
    int holds;           /* of 100 ticks: a worker begins to read its memory */
    int slow[MAX_NODES]; /* a worker takes this many times as long; a server until busy_until */
    int64_t busy_until;
    int64_t balance_ns;
    int64_t stall_ns; /* as the chief has it; 0: nobody hangs */
    int backup;
    bool placed;
    int home[MAX_PIECES]; /* the node that a piece is placed on, or WF_NOBODY */
    int n_faults;
    struct fault fault[MAX_FAULTS];
    unsigned without;   /* faults that are left out, as bits */
    bool real;          /* parameters and optimizers, not hashes */
    int64_t gate_every; /* steps between those that need a control record; 0: there are none */
    int surprise;       /* of 100 steps: the deciding worker wants one that others do not expect */
    int first_table, n_table_pieces; /* pieces of which rows are read */
    bool leased;                     /* leases in place of steps */
    bool halts;                      /* workers want control records that nobody planned */
    int ahead;                       /* leases that a worker holds */
    int64_t ahead_ns;
};

/* Leases in place of steps: with a bound on clocks, or without one. */
void sim_lease(struct sim_case *c, bool bound);
void sim_draw(struct sim_case *c, uint64_t seed);

/* ---- values ---------------------------------------------------------------------------------- */

struct world;

/* Memory of a worker in which it leaves a contribution: servers read it there, also after the
 * worker's death. */
struct slot {
    int n_refs;
    int64_t t;      /* of the step; -1: it is free */
    uint64_t stamp; /* another one for each contribution */
    uint64_t v[MAX_PIECES];
};

/* What a message carries. */
struct payload {
    int n_refs;
    uint64_t v[4];             /* of hashes */
    struct slot *slot;         /* of a push: its value is there, and not in v */
    struct wf_ps_payload real; /* of real values, in mem */
    char mem[];
};

/* What is added up: hashes (values.c), or real parameters (real.c). */
struct sim_kind {
    /* What the case gives if nothing ever fails. */
    void *(*new_truth)(weft_ctx *ctx, const struct sim_case *c);
    void (*free_truth)(void *truth);
    void *(*new_server)(struct world *w, const void *truth, int node, struct wf_ps_data *data);
    void (*free_server)(void *server);
    void *(*new_worker)(struct world *w, const void *truth, int node, struct wf_client_data *data);
    void (*free_worker)(void *worker);
    void (*server_payload)(void *server, const struct wf_server *m, const struct wf_message *msg,
                           struct payload **out);
    void (*worker_payload)(void *worker, const struct wf_message *msg, struct payload **out);
    /* Whether a server has version t of a piece: the present one, or the previous one. */
    bool (*is_true)(void *server, int piece, int64_t t, bool present);
    /* Pieces of tables that a shard reads rows of, as bits; NULL: none. */
    unsigned (*reads)(void *worker, int64_t t, int shard);
    /* The contribution of a shard, from the versions that are here now. */
    void (*compute)(void *worker, int64_t t, int shard);
    /* With leases, in place of new_worker. */
    void *(*new_lessee)(struct world *w, int node, struct wf_lessee_data *data);
    /* Of leases with real values; otherwise NULL. The log of a history begins, with a checkpoint or
     * with initial values. A server is the first to make version t + 1 of a piece: what its blocks
     * are then, by a replay. A version becomes part of a checkpoint. A job begins with a checkpoint
     * of step t that was written before it. */
    void (*begin)(struct world *w, uint64_t history);
    void (*replay)(struct world *w, int node, int piece, uint64_t history, int64_t t,
                   uint64_t *value);
    void (*keep)(struct world *w, uint64_t history, int piece, int64_t version);
    void (*resume)(struct world *w, int64_t t);
};
extern const struct sim_kind sim_hashes, sim_real, sim_leases, sim_real_leases;

uint64_t sim_mix(uint64_t a, uint64_t b);
bool sim_needs(const struct sim_case *c, int shard, int64_t t, int piece);
bool sim_is_table(const struct sim_case *c, int piece);
/* Whether a worker sends sums of several shards to a piece. */
bool sim_sums(const struct sim_case *c, int node, int piece);
/* Whether a worker follows the versions of pieces; whether its contributions are read where it
 * left them; whether the contribution to a piece is sent before all of the shard is computed. */
bool sim_follows(const struct sim_case *c, int node);
bool sim_shares(const struct sim_case *c, int node);
bool sim_early(const struct sim_case *c, int shard, int64_t t, int piece);
struct payload *sim_payload(int64_t bytes);
void sim_payload_drop(struct payload *p);
void sim_slot_drop(struct slot *s);
/* Real values: as many pieces and rounds as the parameters and the optimizer need. */
void sim_adapt(weft_ctx *ctx, struct sim_case *c);

/* ---- the world ------------------------------------------------------------------------------- */

/* What happened. */
struct sim_counts {
    int64_t events, messages;
    int64_t kills, pauses, cuts, leaves, hangs; /* faults, as they begin */
    int64_t evictions;                          /* of workers that hung */
    int64_t drains, drained;                    /* nodes that were asked to go; that went */
    int64_t lost, cut_off, twice, late;         /* messages: cut_off by a partition */
    int64_t store_late, holds; /* the store was late; workers read their memory for a while */
    int64_t epochs, restores, takeovers;
    int64_t displaced, parted; /* takeovers while the former chief ran; partitions of machines */
    int64_t balances, backups; /* epochs that only move shards; shards computed for others */
    int64_t controls,
        repeated;           /* control records; of which a former chief had created one before */
    int64_t sums, overlaps; /* pushes of more than one shard; of which some were there already */
    int64_t leases, again, waits; /* applied on a piece; closed once more; pulls that had to wait */
    int64_t compared;             /* with leases: contents of pieces compared with a replay */
    int64_t learned;              /* pieces of which a new chief learned what is applied */
    int64_t added, refused;       /* tasks that joined beyond the list; that a chief did not know */
    int64_t chief_restarts;       /* of chiefs that had promised a number to somebody else */
    int64_t damaged, again_at;    /* checkpoints; times that a job began again, as it found one */
    int64_t outages, resumed;     /* of the store; jobs that begin with a checkpoint */
    int64_t relieved;             /* servers that handed pieces over, or may have them back */
    int64_t halts, unplanned; /* workers that wanted a control record; those that nobody planned */
    int64_t asked_saves;      /* checkpoints that whoever decides wrote before its record */
};

struct sim_result {
    bool failed;
    char what[256];
    int64_t ended;
    struct sim_counts n;
};

/* trace: NULL, or where every event is written. */
void sim_run(weft_ctx *ctx, const struct sim_case *c, FILE *trace, struct sim_result *out);
void sim_fail(struct world *w, const char *fmt, ...) WEFT_PRINTF(2, 3);
const struct sim_case *sim_case_of(const struct world *w);
/* Who holds a piece, as a server knows it. */
const struct wf_holders *sim_holders(const struct world *w, int node, int piece);
/* Control records: whether step t needs one; a worker gets one. */
enum wf_gate sim_gate(struct world *w, int node, int64_t t, bool decides);
enum wf_doing sim_doing(const struct world *w, int node);
weft_status sim_control(struct world *w, int node, int64_t t, const void *payload);

#endif
