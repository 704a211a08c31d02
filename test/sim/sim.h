/* sim.h - a whole job in one process: virtual time, seeded faults, invariants after every event.
 *
 * world.c carries out what the machines want; values.c is the arithmetic, with hashes in place of
 * floats, real.c that of a server; faults.c draws a case from a seed; sim.c runs seeds, shrinks
 * and explains failures. */
#ifndef WF_SIM_H
#define WF_SIM_H

#include <stdio.h>

#include "cluster/chief.h"
#include "ps/store.h"

enum {
    MAX_NODES = 16,
    MAX_PIECES = 6,
    MAX_SHARDS = 8,
    MAX_BLOCKS = 3,
    MAX_STEPS = 16,
    MAX_FAULTS = 24
};

#define MS ((int64_t)1000000)

/* ---- a case ---------------------------------------------------------------------------------- */

enum fault_kind { KILL, PAUSE, CUT, LEAVE, N_FAULT_KINDS };

struct fault {
    enum fault_kind kind;
    int64_t at, lasts; /* KILL: until it is started again; 0: never */
    int node;
    unsigned other; /* CUT: from these nodes, as bits */
    bool told;      /* KILL: the chief sees the closed connection */
};

struct sim_case {
    uint64_t seed;
    int n_chiefs, n_servers, n_workers, n_nodes;
    int64_t starts[MAX_NODES]; /* when a node is started */
    int copies;
    struct wf_ps_plan plan;
    int64_t delay, late;   /* of messages: usually, and now and then */
    int drop, twice, hold; /* of 1000 messages: lost, delivered twice, late */
    int64_t store_delay, compute;
    int n_faults;
    struct fault fault[MAX_FAULTS];
    unsigned without; /* faults that are left out, as bits */
    bool real;        /* parameters and optimizers, not hashes */
};

void sim_draw(struct sim_case *c, uint64_t seed);

/* ---- values ---------------------------------------------------------------------------------- */

struct world;

/* What a message carries. */
struct payload {
    int n_refs;
    uint64_t v[4];             /* of hashes */
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
    /* The contribution of a shard, from the versions that are here now. */
    void (*compute)(void *worker, int64_t t, int shard);
};
extern const struct sim_kind sim_hashes, sim_real;

uint64_t sim_mix(uint64_t a, uint64_t b);
bool sim_needs(const struct sim_case *c, int shard, int64_t t, int piece);
struct payload *sim_payload(int64_t bytes);
/* Real values: as many pieces and rounds as the parameters and the optimizer need. */
void sim_adapt(weft_ctx *ctx, struct sim_case *c);

/* ---- the world ------------------------------------------------------------------------------- */

struct sim_result {
    bool failed;
    char what[256];
    int64_t events, messages, faults, kills, epochs, histories, terms, ended;
};

/* trace: NULL, or where every event is written. */
void sim_run(weft_ctx *ctx, const struct sim_case *c, FILE *trace, struct sim_result *out);
void sim_fail(struct world *w, const char *fmt, ...) WEFT_PRINTF(2, 3);
const struct sim_case *sim_case_of(const struct world *w);

#endif
