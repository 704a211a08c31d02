/* chief.h - the chief of a job as a machine: who belongs to it, who holds what.
 *
 * Any number of chiefs may run; one of them has the highest term, and acts. A term is taken by
 * creating it in the store, which only one can do; so is an epoch. A chief that sees a higher term
 * stops acting.
 *
 * The chief takes no part in steps: while it is away, training continues until a node dies. */
#ifndef WF_CLUSTER_CHIEF_H
#define WF_CLUSTER_CHIEF_H

#include "cluster/cluster.h"

struct wf_chief_plan {
    int n_nodes; /* numbers of nodes are below this */
    int n_pieces, n_shards;
    int n_copies;             /* of a piece besides the primary: 0 or 1 */
    int n_servers, n_workers; /* that a job waits for before it begins */
    int64_t timeout_ns;       /* of silence */
    int64_t tick_ns;          /* how often wf_chief_tick is called */
    /* bytes of a piece, for an even division; NULL: all are alike */
    const int64_t *piece_bytes;
};

enum wf_chief_state {
    WF_CHIEF_STANDBY, /* watches the one that acts */
    WF_CHIEF_READING, /* waits for the store */
    WF_CHIEF_TAKING,  /* has tried to create a term */
    WF_CHIEF_ACTS
};

/* What a chief knows of a node. */
struct wf_known {
    bool heard;
    enum wf_role role;
    uint64_t incarnation; /* of the last beat */
    int64_t heard_ns;
    uint64_t epoch; /* that it is at */
    bool leaves, done;
};

struct wf_chief {
    weft_ctx *ctx;
    struct wf_chief_plan plan;
    int node;
    enum wf_chief_state state;
    uint64_t term, highest;
    int64_t now, chief_ns, ticked_ns;
    int64_t confirmed_ns;          /* when it last looked whether its term is the highest */
    struct wf_epoch *epoch, *next; /* next: is being created */
    struct wf_known *known;        /* by node */
    bool *filled;                  /* by piece: reported in this epoch */
    int64_t *saved;                /* by piece: versions of this history in the store */
    bool has_manifest;
    int64_t manifest; /* the last version that can be restored */
    uint64_t manifest_history;
    bool saving; /* a manifest is being created */
};

/* What the store answers. */
struct wf_store_answer {
    enum wf_action_type to;       /* the action */
    bool ok;                      /* created; it was not there before */
    uint64_t term;                /* READ: the highest */
    const struct wf_epoch *epoch; /* READ: the last, or NULL */
    bool has_manifest;
    uint64_t history; /* READ, CREATE_MANIFEST: of the last manifest */
    int64_t t;
};

weft_status wf_chief_init(struct wf_chief *c, weft_ctx *ctx, const struct wf_chief_plan *plan,
                          int node);
void wf_chief_free(struct wf_chief *c);
weft_status wf_chief_step(struct wf_chief *c, int64_t now, const struct wf_message *m,
                          struct wf_actions *out);
weft_status wf_chief_tick(struct wf_chief *c, int64_t now, struct wf_actions *out);
weft_status wf_chief_answer(struct wf_chief *c, int64_t now, const struct wf_store_answer *a,
                            struct wf_actions *out);
/* The connection to a node was closed by its end: the process is gone. */
weft_status wf_chief_lost(struct wf_chief *c, int64_t now, int node, uint64_t incarnation,
                          struct wf_actions *out);

/* assign.c: the next epoch. Changes `e`, a copy of the present one, by what is known; *changed:
 * whether it differs. */
weft_status wf_assign(struct wf_chief *c, struct wf_epoch **e, bool *changed);

#endif
