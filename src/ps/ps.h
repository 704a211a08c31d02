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
 * An announcement of version t + 1 acknowledges all contributions to step t: until then a worker
 * keeps what it sent. A worker begins step t + 1 when all pieces are at t + 1, and a server keeps
 * one version before the present one; so a shard of a step that is not complete can always be
 * computed again. A contribution that comes twice is dropped.
 *
 * Server and client are machines as in cluster/cluster.h; what is done with bytes is a table of
 * functions, struct wf_ps_data. */
#ifndef WF_PS_H
#define WF_PS_H

#include "cluster/cluster.h"

/* What all members of a job agree on. */
struct wf_ps_plan {
    int n_pieces, n_shards;
    int n_rounds;       /* exchanges between servers a step: 0 none, 1 norms, 2 LAMB */
    int n_blocks;       /* in which a piece is sent to a new copy */
    int64_t save_every; /* versions; 0: never */
    int64_t retry_ns;   /* after which what is not answered is asked again */
    int64_t n_steps;    /* the last version */
};

/* What a server does with bytes. Failures are out of memory and the like: the step of the machine
 * fails. */
struct wf_ps_data {
    void *arg;
    /* A contribution to step t of this piece; each shard's once. */
    weft_status (*add)(void *arg, int piece, int64_t t, int shard, const void *payload);
    /* Contributions to the current step are dropped. */
    void (*clear)(void *arg, int piece);
    /* All are here: their mean, and what round 0 of the norms needs. */
    weft_status (*reduce)(void *arg, int piece, int64_t t);
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
    void (*drop)(void *arg, int piece);
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
    int64_t saved;    /* the last version in the checkpoint store; -1: none */
    int64_t moved_ns; /* when it last proceeded */
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
};

weft_status wf_server_init(struct wf_server *s, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_ps_data *data, int node, uint64_t incarnation,
                           int chief);
void wf_server_free(struct wf_server *s);
weft_status wf_server_step(struct wf_server *s, int64_t now, const struct wf_message *m,
                           struct wf_actions *out);
/* Time has passed. */
weft_status wf_server_tick(struct wf_server *s, int64_t now, struct wf_actions *out);
weft_status wf_server_saved(struct wf_server *s, int64_t now, int piece, int64_t t,
                            struct wf_actions *out);

/* ---- workers --------------------------------------------------------------------------------- */

struct wf_client_data {
    void *arg;
    /* Version t of a piece has arrived. */
    weft_status (*take)(void *arg, int piece, int64_t t, const void *payload);
    /* Whether a shard of step t needs the piece. */
    bool (*needs)(void *arg, int shard, int64_t t, int piece);
    /* Contributions to steps before t are no longer needed. */
    void (*forget)(void *arg, int64_t t);
};

struct wf_client_piece {
    int64_t at;     /* its version at the primary, as far as it is known */
    int64_t have;   /* the version here; -1: none */
    int64_t pulled; /* the last version that was pulled in this epoch; -1: none */
    int64_t heard_ns;
};

enum wf_shard_state { WF_SHARD_OPEN, WF_SHARD_COMPUTING, WF_SHARD_DONE };

struct wf_client {
    struct wf_view view;
    struct wf_ps_plan plan;
    struct wf_client_data data;
    struct wf_client_piece *piece;
    enum wf_shard_state *shard;
    int64_t t; /* the step that is not complete; -1: none yet */
    bool computing;
    int64_t now, beat_ns;
};

weft_status wf_client_init(struct wf_client *c, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_client_data *data, int node, uint64_t incarnation,
                           int chief);
void wf_client_free(struct wf_client *c);
weft_status wf_client_step(struct wf_client *c, int64_t now, const struct wf_message *m,
                           struct wf_actions *out);
weft_status wf_client_tick(struct wf_client *c, int64_t now, struct wf_actions *out);
/* A contribution that was requested is there. */
weft_status wf_client_computed(struct wf_client *c, int64_t now, int64_t t, int shard,
                               struct wf_actions *out);

#endif
