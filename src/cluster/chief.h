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
#include "cluster/ledger.h"

struct wf_chief_plan {
    int n_nodes;   /* numbers of nodes are below this */
    int max_nodes; /* with those that wf_chief_extend may add; 0: none */
    int n_pieces, n_shards;
    int n_copies;             /* of a piece besides the primary: 0 or 1 */
    int n_servers, n_workers; /* that a job waits for before it begins */
    int64_t timeout_ns;       /* of silence */
    int64_t tick_ns;          /* how often wf_chief_tick is called */
    int64_t balance_ns; /* how often shards may move from slow workers to fast ones, and pieces from
                         * servers that are overloaded; 0: never */
    int64_t stall_ns;   /* how long a worker may hold up others without progress; 0: for ever */
    /* bytes of a piece, for an even division; NULL: all are alike */
    const int64_t *piece_bytes;
    /* the server that is to be a piece's primary whenever it can; WF_NOBODY: any; NULL: any for
     * all */
    const int *piece_home;
    /* window 0: steps. Otherwise shards are leased, and n_shards is 0: epochs assign none. */
    struct wf_ledger_plan ledger;
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
    uint64_t epoch;  /* that it is at */
    int64_t pace_ns; /* a worker: what a shard takes it; 0: not known */
    int64_t busy_ns; /* a server: of a second; 0: not known */
    /* A server (busy.c): what its bytes count, since when, and for how many looks at least. */
    int cost, cost_pause;
    int64_t cost_ns;
    bool was_lowered;
    bool leaves, done;
    bool knows; /* that it leaves: it does not want to join again */
    /* A worker, as its last beat says (stall.c). */
    enum wf_doing doing;
    int shard, moves;
    int64_t step; /* -1: not known */
    uint64_t history;
    int64_t behind_ns; /* since when others are ahead, and it has not moved; 0: they are not */
    bool straggles;    /* half of its time is over */
    bool stalled;      /* all of it: this process belongs to no further epoch */
    bool closed;       /* it has ended its connection, and was not heard since then */
    /* By a standby (standby.c): the process that has answered, and when; 0: none has. */
    uint64_t seen;
    int64_t seen_ns;
};

struct wf_chief {
    weft_ctx *ctx;
    struct wf_chief_plan plan;
    int node;
    enum wf_chief_state state;
    uint64_t term, highest;
    int64_t now, chief_ns, ticked_ns;
    bool heard_chief; /* at chief_ns; false: never */
    int64_t asked_ns; /* since when a standby asks others; 0: it does not */
    int n_asked;      /* nodes, then */
    bool looked;      /* into the store since then: what it showed, and when */
    int64_t look_ns;
    uint64_t look_pulse, look_term, look_epoch;
    int64_t doubts_ns; /* since when a chief that acts hears few; 0: it hears most */
    uint64_t pulse;    /* its last sign of life */
    int64_t deaf_ns; /* when it ran again after a pause in which others may have given it up; -1 */
    int64_t balanced_ns;           /* when it last looked whether shards should move */
    int64_t busy_looked_ns;        /* whether servers are overloaded */
    int64_t acts_ns;               /* when it began to act */
    int64_t confirmed_ns;          /* when it last looked whether its term is the highest */
    struct wf_epoch *epoch, *next; /* next: is being created */
    struct wf_known *known;        /* by node */
    bool *filled;                  /* by piece: reported in this epoch */
    int64_t *saved;                /* by piece: versions of this history in the store */
    bool has_manifest;
    int64_t manifest; /* the last version that can be restored */
    uint64_t manifest_history;
    bool saving;      /* a manifest is being created */
    int64_t control;  /* the step of the last control record of this history; -1: none */
    bool controlling; /* one is being created */
    char *list;       /* of added tasks, for the next epoch; NULL: none */
    struct wf_ledger ledger;
};

/* What the store answers. */
struct wf_store_answer {
    enum wf_action_type to; /* the action */
    bool ok;                /* created; it was not there before */
    uint64_t term; /* READ: the highest; CREATE_TERM: that one; CREATE_EPOCH: of the record */
    const struct wf_epoch *epoch; /* READ: the last, or NULL */
    uint64_t pulse;               /* READ: the last sign of life of a chief; 0: none */
    bool has_manifest;
    uint64_t history; /* READ, CREATE_MANIFEST: of the last manifest; CREATE_CONTROL: its own */
    int64_t t;
    /* READ: the last control record, of the history of `epoch`. CREATE_CONTROL, if it is ok: the
     * one that counts, which somebody else may have created before. control_t -1: none. */
    int64_t control_t;
    const char *control;
    int64_t n_control;
};

weft_status wf_chief_init(struct wf_chief *c, weft_ctx *ctx, const struct wf_chief_plan *plan,
                          int node);
void wf_chief_free(struct wf_chief *c);
weft_status wf_chief_step(struct wf_chief *c, int64_t now, const struct wf_message *m,
                          struct wf_actions *out);
weft_status wf_chief_tick(struct wf_chief *c, int64_t now, struct wf_actions *out);
weft_status wf_chief_answer(struct wf_chief *c, int64_t now, const struct wf_store_answer *a,
                            struct wf_actions *out);
/* Whether the control record of an answer, which the machine has taken, is the last one: the driver
 * keeps its bytes. */
bool wf_chief_controls(const struct wf_chief *c, const struct wf_store_answer *a);
/* The connection to a node was closed by its end: the process is gone. */
weft_status wf_chief_lost(struct wf_chief *c, int64_t now, int node, uint64_t incarnation,
                          struct wf_actions *out);

/* Numbers of nodes are below n_nodes from now on (at most plan.max_nodes), and the next epoch has
 * this list of added tasks. Also before an answer of the store whose epoch has such nodes. */
weft_status wf_chief_extend(struct wf_chief *c, int n_nodes, const char *list);
/* A member is to leave: the next epoch says so, its shards and pieces are given to others, and then
 * it belongs to no epoch. A process that is no member yet is not asked. */
weft_status wf_chief_drain(struct wf_chief *c, int64_t now, int node, struct wf_actions *out);

/* A message of the chief, stamped; NULL if there is no memory. */
struct wf_message *wf_chief_send(const struct wf_chief *c, struct wf_actions *out,
                                 enum wf_message_type type, int to);

/* The version that everything would be restored to, if a piece were lost now. */
int64_t wf_chief_restart(const struct wf_chief *c);

/* stall.c: what a beat says of a worker; who holds up the others, looked at with every tick. */
void wf_stall_hear(struct wf_known *k, const struct wf_message *m);
void wf_stall_look(struct wf_chief *c);
/* Before an epoch is made: members that were to be left out stay, and have their time anew, if
 * there is no other worker. */
void wf_stall_spare(struct wf_chief *c);
/* How long a worker may hold up others, as it is now. */
int64_t wf_stall_limit(const struct wf_chief *c, const struct wf_known *k);

/* busy.c: what a beat says of a server; whose bytes count how often, looked at with every tick;
 * whether it is too early to move pieces, because this chief does not know yet who is busy. */
void wf_busy_hear(struct wf_known *k, const struct wf_message *m);
void wf_busy_look(struct wf_chief *c);
int64_t wf_busy_cost(const struct wf_known *k);
bool wf_busy_settles(const struct wf_chief *c);

/* assign.c: bytes of all pieces that a server has. */
int64_t wf_assign_load(const struct wf_chief *c, const struct wf_epoch *e, int node);
/* The next epoch, from the current one and what is known; *changed: whether it differs.
 * Otherwise *e is not set. */
weft_status wf_assign(struct wf_chief *c, struct wf_epoch **e, bool *changed);

#endif
