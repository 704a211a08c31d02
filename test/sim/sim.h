/* sim.h - a whole job in one process: virtual time, seeded faults, invariants after every event.
 *
 * world.c carries out what the machines want; values.c is the arithmetic, with hashes in place of
 * floats; faults.c draws a case from a seed; sim.c runs seeds, shrinks and explains failures. */
#ifndef WF_SIM_H
#define WF_SIM_H

#include <stdio.h>

#include "cluster/chief.h"
#include "ps/ps.h"

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
};

void sim_draw(struct sim_case *c, uint64_t seed);

/* ---- values ---------------------------------------------------------------------------------- */

uint64_t sim_mix(uint64_t a, uint64_t b);
/* What the case gives if nothing ever fails: by version, piece, block. */
struct truth {
    uint64_t value[MAX_STEPS + 1][MAX_PIECES][MAX_BLOCKS];
    uint64_t given[MAX_STEPS][MAX_PIECES][MAX_SHARDS];
    uint64_t decision[MAX_STEPS][2];
};
void sim_truth(const struct sim_case *c, struct truth *out);
bool sim_needs(const struct sim_case *c, int shard, int64_t t, int piece);
uint64_t sim_contribution(const struct sim_case *c, int64_t t, int shard, int piece, uint64_t seen);

struct payload {
    uint64_t v[4];
};

/* The bytes of a server. */
struct sim_piece {
    uint64_t now[MAX_BLOCKS], before[MAX_BLOCKS], given[MAX_SHARDS];
    uint64_t mean, last[2]; /* the record of a step: of this one, or of the last until it is made */
    bool has[MAX_SHARDS];
};

struct sim_server {
    struct world *w;
    int node;
    struct sim_piece piece[MAX_PIECES];
    int64_t norm_t;
    uint64_t partial[2][MAX_PIECES], decision[2];
};

struct sim_worker {
    struct world *w;
    int node;
    uint64_t seen[MAX_PIECES];
    uint64_t given[MAX_SHARDS][MAX_PIECES];
};

struct wf_ps_data sim_server_data(struct sim_server *s);
struct wf_client_data sim_worker_data(struct sim_worker *s);
/* What a message of this server or worker carries. */
void sim_server_payload(const struct sim_server *s, const struct wf_server *m,
                        const struct wf_message *msg, struct payload *out);
uint64_t sim_blocks(const struct sim_case *c, const uint64_t *v);

/* ---- the world ------------------------------------------------------------------------------- */

struct world;

struct sim_result {
    bool failed;
    char what[256];
    int64_t events, messages, faults, kills, epochs, histories, terms, ended;
};

/* trace: NULL, or where every event is written. */
void sim_run(weft_ctx *ctx, const struct sim_case *c, FILE *trace, struct sim_result *out);
void sim_fail(struct world *w, const char *fmt, ...) WEFT_PRINTF(2, 3);
const struct sim_case *sim_case_of(const struct world *w);
const struct truth *sim_truth_of(const struct world *w);

#endif
