/* ps.h - the door of the ps layer: parameter servers, and the workers that use them.
 *
 * The parameters are cut once into pieces. A piece lives on its primary and, usually, on one
 * backup; it has a version. Step t takes every piece from version t to version t + 1:
 *
 *   worker    pulls version t of the pieces it needs, computes shards, pushes their contributions
 *   primary   has the contributions of all shards: adds them along the tree; exchanges what norms
 *             over all pieces need; sends the backup a record of what it will do; once the backup
 *             has it, updates the piece and announces version t + 1
 *   backup    does the same to its copy
 *
 * An announcement of version t + 1 (it may be the version itself) acknowledges all contributions to
 * step t: until then a worker keeps what it sent, also because a server may read it where the
 * worker left it. A worker begins step t + 1 when all pieces are at t + 1, and a server keeps one
 * version before the current one; so a shard of a step that is not complete can always be computed
 * again. A contribution that comes twice is dropped.
 *
 * A push is the contribution of one shard, or the sum of a subtree of the tree over shard numbers.
 * It counts completely or not at all: if some of its shards are there already, it is dropped, and
 * the worker is told which are missing; those it sends again, in subtrees of which none is there.
 *
 * That is synchronous training. With leases in place of steps (bounded staleness, asynchronous
 * training) a piece goes from one version to the next with each lease; ps/lease.h has the rest.
 *
 * Server and client are machines as in cluster/cluster.h; what is done with bytes is a table of
 * functions, struct wf_ps_data. */
#ifndef WF_PS_H
#define WF_PS_H

#include "cluster/cluster.h"
#include "cluster/leases.h"

/* What all members of a job agree on. */
struct wf_ps_plan {
    int n_pieces, n_shards;
    int n_rounds;       /* exchanges between servers a step: 0 none, 1 norms, 2 LAMB */
    int n_blocks;       /* in which a piece is sent to a new copy */
    int64_t save_every; /* versions; 0: never */
    int64_t retry_ns;   /* after which what is not answered is asked again */
    int64_t n_steps;    /* the last version */
    /* Leases; window 0: steps. */
    int window;         /* as the chief's ledger has it */
    int stale;          /* by how many leases a worker may be behind another one; -1: any */
    int inflight;       /* pushes of a worker that are not acknowledged, at most */
    int64_t gate_every; /* steps between control records; 0: there are none */
    int64_t gate_first; /* one of the steps that has one, below gate_every */
};

/* What a server does with bytes. Failures are out of memory and the like: the step of the machine
 * fails. */
struct wf_ps_data {
    void *arg;
    /* A contribution to step t of this piece: the sum of the shards [shard, shard + 2^level), those
     * that exist; each shard's once. */
    weft_status (*add)(void *arg, int piece, int64_t t, int level, int shard, const void *payload);
    /* Contributions to the current step are dropped. */
    void (*clear)(void *arg, int piece);
    /* All are here: their mean, and what round 0 of the norms needs. *gone: a worker has taken
     * the memory of its contribution back meanwhile, so that there is none. It may do so once it
     * knows that the step is complete. The record of the last step is overwritten all the same. */
    weft_status (*reduce)(void *arg, int piece, int64_t t, bool *gone);
    /* The norms of step t begin: partials of another step, or of another history, are dropped. */
    void (*begin)(void *arg, int64_t t);
    /* What round `round` needs of another piece, and of this server's own: each once. All of them
     * are here: the decision. half: what comes between rounds 0 and 1, for this server's piece. */
    weft_status (*partial)(void *arg, int piece, int64_t t, int round, const void *payload);
    weft_status (*own_partial)(void *arg, int piece, int64_t t, int round);
    weft_status (*decide)(void *arg, int64_t t, int round);
    weft_status (*half)(void *arg, int piece, int64_t t);
    /* The decision of all rounds, from a server that has it. */
    weft_status (*decision)(void *arg, int64_t t, const void *payload);
    /* At a copy: the mean and the decision of step t. */
    weft_status (*record)(void *arg, int piece, int64_t t, const void *payload);
    /* Version t becomes t + 1; t is kept. block -1: the whole piece. */
    weft_status (*apply)(void *arg, int piece, int block, int64_t t);
    /* At a target: a block at version t. */
    weft_status (*fill)(void *arg, int piece, int block, int64_t t, const void *payload);
    /* Version t as the checkpoint store has it, or as it is initialized for t = 0. */
    weft_status (*load)(void *arg, int piece, int64_t t);
    /* Of a piece of tables: the rows that the payload names, at version t, which is the present one
     * or the previous one. They are sent with the message that the machine sends next. */
    weft_status (*read)(void *arg, int piece, int64_t t, const void *payload);
    void (*drop)(void *arg, int piece);
    /* With leases. A part of a push is kept, its gradient or its closing record or both, until
     * `release`, `close` or `clear`. close: version t becomes t + 1 by this push, whose bytes are
     * the record until the next one. */
    weft_status (*hold)(void *arg, int piece, int64_t lease, int node, const struct wf_message *m);
    void (*release)(void *arg, int piece, int64_t lease, int node);
    weft_status (*close)(void *arg, int piece, int64_t t, int64_t lease, int node);
};

/* ---- servers --------------------------------------------------------------------------------- */

enum wf_holding { WF_HOLDS_NOTHING, WF_HOLDS_PRIMARY, WF_HOLDS_BACKUP, WF_HOLDS_TARGET };
enum wf_phase {
    WF_PHASE_COLLECT, /* contributions are missing */
    WF_PHASE_NORMS,   /* partials of other pieces are missing */
    WF_PHASE_RECORD   /* copies do not have the record yet */
};

struct wf_want {
    int node;
    int64_t t;
    bool follow;   /* and all versions after it */
    int64_t lease; /* with leases: t is the worker's clock */
};

/* A push of a worker, as far as it has come. */
struct wf_push {
    int node;
    uint64_t incarnation;
    int64_t lease, clock;
    uint64_t
        closed; /* its place among those that can be applied; 0: its closing record is missing */
};

/* How a worker counts in the bound on clocks, in this epoch. */
struct wf_clock {
    int node, number; /* of its last CLOCK; 0: none yet */
    bool active;
    int64_t clock;
};

struct wf_server_piece {
    enum wf_holding holding;
    int64_t version; /* -1: a target that is not complete */
    enum wf_phase phase;
    int round;         /* of the norms */
    uint64_t *arrived; /* by shard: contributions to the current step */
    int n_arrived;
    bool open; /* a primary: the backup is known to have this version: it may be announced */
    bool backup_has, target_has; /* the record of the current step */
    bool lockstep;               /* the target is complete: its acknowledgment counts, too */
    int64_t target_at;           /* its version; -1: not complete */
    int sent;                    /* blocks that the target has */
    int64_t *block_at;           /* a target: versions of blocks; -1: not here */
    struct wf_want *want;        /* pulls of a version that is to come */
    int64_t n_want, cap_want;
    int64_t record_t; /* the step whose record is here, complete or not; -1: none */
    int64_t saved;    /* the last version in the checkpoint store; -1: none */
    int64_t moved_ns; /* when it last proceeded */
    /* Leases (server_leases.c, server_clocks.c). */
    struct wf_leases applied; /* in this version; of a target: in version applied_at */
    int64_t applied_at;
    int64_t record_lease; /* of the record that is under way, or was the last */
    struct wf_push *push;
    int64_t n_push, cap_push;
    uint64_t n_closed;
    struct wf_clock *clock;
    int64_t n_clock, cap_clock;
    uint64_t told_step; /* the event in which it was last sent or saved */
};

struct wf_server {
    struct wf_view view;
    struct wf_ps_plan plan;
    struct wf_ps_data data;
    struct wf_server_piece *piece;
    int n_words; /* of bits by shard */
    /* The norms of one step, and the last decision. */
    int64_t norm_t, decided_t;
    int n_decided;    /* rounds of norm_t */
    uint64_t *got[2]; /* by piece: its partial is here */
    int n_got[2];
    int64_t now, beat_ns;
    int64_t busy_ns, told_busy_ns; /* by its driver: how long it has worked; in the last beat */
    uint64_t n_events;
};

weft_status wf_server_init(struct wf_server *s, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_ps_data *data, int node, uint64_t incarnation,
                           int chief);
void wf_server_free(struct wf_server *s);
weft_status wf_server_step(struct wf_server *s, int64_t now, const struct wf_message *m,
                           struct wf_actions *out);
/* Time has passed. */
weft_status wf_server_tick(struct wf_server *s, int64_t now, struct wf_actions *out);
/* Version t of a history is in the checkpoint store, as WF_ACT_SAVE wanted. */
weft_status wf_server_saved(struct wf_server *s, int64_t now, int piece, int64_t t,
                            uint64_t history, struct wf_actions *out);

/* ---- workers --------------------------------------------------------------------------------- */

enum { WF_NO_SHARD = -1 };

/* Whether a worker may compute a step. */
enum wf_gate {
    WF_GATE_OPEN,
    WF_GATE_RECORD, /* after the control record of this step, which the deciding worker makes */
    WF_GATE_IDLE,   /* not now */
    WF_GATE_HOLD    /* not now, and the versions that are here stay */
};

struct wf_client_data {
    void *arg;
    int backup; /* a worker that has waited as long as this many shards take it computes one that is
                 * missing, whoever it belongs to; 0: never */
    /* Whether several shards can be sent to a piece as their sum: messages with a level above 0.
     * NULL: never. It may depend on who is the primary. */
    bool (*sums)(void *arg, int piece);
    bool follow; /* two versions of a piece can be kept, so that servers send the next one as soon
                  * as there is one, without being asked */
    /* Version t of a piece has arrived; with follow perhaps while a shard of step t - 1 is still
     * computed. WEFT_ECANCEL: it is gone again, and only known to have been there. */
    weft_status (*take)(void *arg, int piece, int64_t t, const void *payload);
    /* Whether a shard of step t needs the piece; WF_NO_SHARD: whether the worker itself does,
     * whatever it computes. */
    bool (*needs)(void *arg, int shard, int64_t t, int piece);
    /* Rows that were requested with wf_client_read have arrived. */
    weft_status (*rows)(void *arg, int piece, int64_t t, const void *payload);
    /* May be NULL. A new history: versions may be lower than before. */
    void (*restart)(void *arg);
    /* Contributions to steps before t are no longer needed. Until then each shard's is kept: any
     * subtree of them may have to be sent. */
    void (*forget)(void *arg, int64_t t);
    /* NULL: there are no control records. decides: this worker does, and has not begun the step; it
     * alone may want a record where the others do not expect one. Whenever the answer changes, the
     * driver calls wf_client_go. The first step of a history has a record in any case. */
    enum wf_gate (*gate)(void *arg, int64_t t, bool decides);
    /* The record of step t, which is in the store. */
    weft_status (*control)(void *arg, int64_t t, const void *payload);
    /* May be NULL. What the caller does while it is neither to compute nor to decide: it waits, or
     * steps wait for it. */
    enum wf_doing (*doing)(void *arg);
};

struct wf_client_piece {
    int64_t at;      /* its version at the primary, as far as it is known */
    int64_t have[2]; /* the versions here, the even and the odd one; -1: none */
    int64_t pulled;  /* the last version that was pulled in this epoch; -1: none */
    bool follows;    /* in this epoch: its primary sends versions as they are made */
    int64_t heard_ns;
    int64_t told_ns; /* when it last said what it has of step t; -1: not in this epoch */
    bool reads;      /* rows of version t were requested, and have not arrived */
    int read_number; /* of the last request */
};

enum wf_shard_state { WF_SHARD_OPEN, WF_SHARD_COMPUTING, WF_SHARD_DONE };

struct wf_client {
    struct wf_view view;
    struct wf_ps_plan plan;
    struct wf_client_data data;
    struct wf_client_piece *piece;
    enum wf_shard_state *shard;
    uint64_t *arrived; /* by piece, n_words each: shards of step t that it has, as far as known */
    int n_words;
    uint64_t *ready; /* by piece: of the shard that is computed, what was sent in this epoch */
    int64_t t;       /* the step that is not complete; -1: none yet */
    bool computing;
    int64_t begun_ns, idle_ns; /* when it began to compute, or to wait */
    int64_t begun_t, moves;    /* the step of what it computes; how often the caller did anything */
    int begun_shard;
    int64_t pace_ns; /* what a shard takes; 0: not known */
    /* Steps of control records, -1: none. known: somebody has it. */
    int64_t control, known;
    int64_t asked, decided; /* this worker was asked to decide; has decided */
    bool wants_control;     /* a step waits for one that others make */
    int64_t control_ns;     /* when it was last requested or sent */
    int64_t now, beat_ns;
};

weft_status wf_client_init(struct wf_client *c, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_client_data *data, int node, uint64_t incarnation,
                           int chief);
void wf_client_free(struct wf_client *c);
weft_status wf_client_step(struct wf_client *c, int64_t now, const struct wf_message *m,
                           struct wf_actions *out);
weft_status wf_client_tick(struct wf_client *c, int64_t now, struct wf_actions *out);
/* The gate may be another one than before. */
weft_status wf_client_go(struct wf_client *c, int64_t now, struct wf_actions *out);
/* The control record of step t, which was requested, is there. It counts if it is what comes back
 * from the chief; of a step that was completed meanwhile it does not. */
weft_status wf_client_decided(struct wf_client *c, int64_t now, int64_t t, struct wf_actions *out);
/* Whether this worker decides for all. */
bool wf_client_decides(const struct wf_client *c);
/* Whether version t of a piece is here. */
bool wf_client_has(const struct wf_client *c, int piece, int64_t t);
/* What the shard that is computed gives to a piece is there, before all of it is. */
weft_status wf_client_ready(struct wf_client *c, int64_t now, int64_t t, int shard, int piece,
                            struct wf_actions *out);
/* Requests rows of a piece at version t: the driver knows which, and sends them with the
 * message. At most one request for each piece. It ends with `rows`; or without, once step t is
 * complete: then no one needs what is computed from them. `reads` says whether it has ended. */
weft_status wf_client_read(struct wf_client *c, int64_t now, int piece, int64_t t,
                           struct wf_actions *out);
/* A contribution that was requested is there. */
weft_status wf_client_computed(struct wf_client *c, int64_t now, int64_t t, int shard,
                               struct wf_actions *out);

#endif
