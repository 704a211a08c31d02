/* ledger.h - the chief's ledger of leases: who computes which shard, when steps are leased one by
 * one (bounded staleness, asynchronous training).
 *
 * Lease t · L + l is shard l of step t. Leases are granted in order, several at a time, so that no
 * worker waits for the chief; a worker says what it still holds, and whatever else it was granted
 * is done: applied on all pieces. What a worker held that is gone is granted again. Nothing is
 * stored: a chief that takes over learns from servers what is applied, and from workers what they
 * hold.
 *
 * Steps at which something happens are boundaries: checkpoints, control records, the end. No lease
 * beyond one is granted before all leases up to it are done, and its control record is in the
 * store. So every piece is there with exactly these leases, which is what a checkpoint needs.
 *
 * A worker may ask for a control record at a step that nobody planned (HALT): to stop, or for a
 * checkpoint on request. The chief takes the first step of which it has granted nothing, and writes
 * it into the next epoch (wf_epoch.halt). So it is in the store before its record can be, and a
 * chief that takes over knows it: no chief grants anything before an epoch of its own term is in
 * the store, after which no former chief can create one. */
#ifndef WF_CLUSTER_LEDGER_H
#define WF_CLUSTER_LEDGER_H

#include "cluster/cluster.h"
#include "cluster/leases.h"

struct wf_ledger_plan {
    int window; /* leases from the lowest that is not done on; 0: there is no ledger */
    int n_shards;
    int64_t n_steps;
    int64_t save_every, gate_every; /* steps between checkpoints and control records; 0: none */
    int64_t gate_first;             /* a step with a control record, below gate_every */
    int ahead;                      /* leases that a worker holds at most */
    int64_t ahead_ns;               /* and for about how long; 0: for any */
};

enum wf_lease_state { WF_LEASE_FREE, WF_LEASE_HELD, WF_LEASE_DONE };

struct wf_lease {
    enum wf_lease_state state;
    int node, grant; /* who holds it, since which grant; 0: since before this term */
    uint64_t incarnation;
};

/* What the chief knows of a worker. */
struct wf_lessee {
    uint64_t incarnation;
    int grant, taken; /* the last grant; the last one that it is known to have */
    int n_held;
    bool told;
    struct wf_leases held;  /* as it said */
    struct wf_leases given; /* the last grant, as it is sent */
};

struct wf_applied {
    bool told;
    struct wf_leases set;
};

struct wf_ledger {
    struct wf_ledger_plan plan;
    int n_nodes, n_pieces;
    uint64_t term, history;
    bool learns;            /* not everybody has said what is done and held */
    int64_t wanted;         /* a control record of this step, or of a later one; -1: none */
    int64_t top;            /* no lease from here on is applied or held anywhere */
    int64_t low;            /* all leases below are done */
    int64_t drained;        /* the last step that workers were told of; -1: none */
    struct wf_lease *lease; /* by number modulo the window */
    struct wf_lessee *node;
    struct wf_applied *piece;
};

weft_status wf_ledger_init(struct wf_ledger *l, weft_ctx *ctx, const struct wf_ledger_plan *plan,
                           int n_nodes, int n_pieces);
void wf_ledger_free(struct wf_ledger *l, weft_ctx *ctx);
/* The first step, from `step` on, at which all leases before it must be done. */
int64_t wf_ledger_boundary(const struct wf_ledger_plan *p, int64_t step);

struct wf_chief;

/* A chief begins to act; it has a new epoch; a message; anything may have changed; time passes. */
void wf_ledger_begin(struct wf_chief *c);
void wf_ledger_enter(struct wf_chief *c);
void wf_ledger_take(struct wf_chief *c, const struct wf_message *m);
void wf_ledger_deal(struct wf_chief *c, struct wf_actions *out);
void wf_ledger_tick(struct wf_chief *c, struct wf_actions *out);
/* The halt of the next epoch: that of the present one, or the one that is wanted. */
int64_t wf_ledger_halt(const struct wf_chief *c);

#endif
