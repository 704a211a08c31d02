/* cluster.h - the door of the cluster layer: who belongs to a job, who holds what, and the machines
 * that decide it.
 *
 * A machine is pure: step(state, event) → actions. It has no socket, clock, lock or log; whoever
 * drives it carries the actions out, over real links or in a simulation. Events carry the time.
 *
 * Four numbers keep old messages from doing harm. The term rises with every chief, the history with
 * every restore, the epoch with every change of who belongs to the job and holds what, and each
 * start of a process is an incarnation of its node. A message counts only at a node of the same
 * epoch, and only if its sender belongs to that epoch. */
#ifndef WF_CLUSTER_H
#define WF_CLUSTER_H

#include "base/base.h"

enum { WF_NOBODY = -1 };

/* ---- epochs ---------------------------------------------------------------------------------- */

enum wf_role { WF_ROLE_CHIEF, WF_ROLE_SERVER, WF_ROLE_WORKER, WF_ROLE_EVALUATOR };

struct wf_member {
    int node;
    enum wf_role role;
    uint64_t incarnation;
    bool leaves; /* it was asked to go: it gets nothing new, and ends when it holds nothing */
};

/* Who holds a piece of the parameters: nodes, or WF_NOBODY. */
struct wf_holders {
    int primary, backup;
    int target; /* is being filled, to become the backup, or the primary if it moves */
    bool moves;
};

/* The record of an epoch. It is in the store before anybody acts on it. */
struct wf_epoch {
    uint64_t term, history, number;
    int64_t start; /* the version that the history begins with */
    int64_t halt;  /* with leases: a step with a control record that nobody planned; -1: none */
    int chief;
    int n_members, n_pieces, n_shards;
    struct wf_member *member;
    struct wf_holders *holders; /* by piece */
    int *worker;                /* by shard: who computes it; WF_NOBODY: nobody yet */
    char *list;                 /* tasks that were added to the job, as text; NULL: none */
};

weft_status wf_epoch_copy(weft_ctx *ctx, const struct wf_epoch *e, struct wf_epoch **out);
weft_status wf_epoch_new(weft_ctx *ctx, int n_members, int n_pieces, int n_shards,
                         struct wf_epoch **out);
void wf_epoch_free(weft_ctx *ctx, struct wf_epoch *e);
/* NULL: the node does not belong to it. */
const struct wf_member *wf_epoch_member(const struct wf_epoch *e, int node);
bool wf_epoch_has(const struct wf_epoch *e, int node, uint64_t incarnation);
/* The worker that decides for all: of those that stay, the one with the lowest number; WF_NOBODY:
 * there is none. */
int wf_epoch_decider(const struct wf_epoch *e);

/* ---- messages -------------------------------------------------------------------------------- */

enum wf_message_type {
    /* to the chief */
    WF_MSG_BEAT = 1, /* I am here, at this epoch; a node that does not belong to it wants to join */
    WF_MSG_LEAVE,    /* I want to go */
    WF_MSG_FILLED,   /* piece: the target has everything, and keeps up */
    WF_MSG_SAVED, /* piece at version t is in the checkpoint store; of a worker: all pieces are, in
                      * a checkpoint that is restored as version t */
    WF_MSG_DONE,  /* the last step is complete */
    /* from the chief */
    WF_MSG_EPOCH, /* the record */
    WF_MSG_TERM,  /* who is chief; also between chiefs */
    WF_MSG_STOP,  /* the job has ended */
    /* between workers and servers, for a piece */
    WF_MSG_PULL,    /* send me version t as soon as there is one; follow: and all that come after it
                     * in this epoch */
    WF_MSG_VERSION, /* here it is; it also says that the piece has come to version t */
    WF_MSG_PUSH,    /* the contribution of a shard to step t */
    WF_MSG_AT,      /* the piece is at version t, and has the contributions `bits` of step t: others
                     * are to be sent again. Contributions to earlier steps are in it */
    WF_MSG_ASK,     /* what version are you at? */
    /* between servers, for a piece */
    WF_MSG_PARTIAL,  /* what a norm over all pieces needs of this one, for step t */
    WF_MSG_DECISION, /* what came out of it */
    WF_MSG_WANT,     /* send me your partial of step t again, or the decision */
    WF_MSG_RECORD,   /* to a copy: what step t does to the piece */
    WF_MSG_RECORDED, /* the copy has it */
    WF_MSG_SYNC,     /* to a copy: what version are you at? */
    WF_MSG_SYNCED,
    WF_MSG_FILL,      /* to a target: block `block` of version t; decided: the last decision, too */
    WF_MSG_FILL_NEXT, /* the target has the blocks before `block` */
    /* between workers and the chief */
    WF_MSG_CONTROL,     /* the control record of step t: as the deciding worker wants it; from the
                     * chief: as it is in the store */
    WF_MSG_CONTROL_ASK, /* send me the last one */
    /* between workers and servers, for a piece of tables */
    WF_MSG_READ, /* send me these rows of version t */
    WF_MSG_ROWS, /* here they are */
    /* with leases in place of steps (cluster/ledger.h); PULL, VERSION, PUSH, RECORD and FILL,
     * too */
    WF_MSG_CLOSE,   /* to a server: what a lease does to the piece; whole: with its gradient */
    WF_MSG_APPLIED, /* the piece has it, and so have its copies; t: its version then, or -1 */
    WF_MSG_CLOCK,   /* to a server: this worker is at clock t; block: enum wf_clock_state */
    WF_MSG_CLOCKED, /* it is known, as t; shard: number of the CLOCK */
    WF_MSG_GRANT,   /* from the chief: compute these; block: number of the grant */
    WF_MSG_LEASES,  /* to the chief: what this worker holds after grant `block`; the others of its
                     * leases are done */
    WF_MSG_LEDGER,  /* to the chief: what is applied on a piece */
    WF_MSG_REPORT,  /* from the chief: send me LEASES, or LEDGER of all your pieces */
    WF_MSG_DRAINED, /* from the chief: all leases of steps before t are done, and no other began */
    WF_MSG_HALT, /* to the chief: let there be a control record after step t, as soon as it can */
    WF_MSG_SEEK, /* from a chief that does not act: what do you hear of the one that does? */
    WF_MSG_SEEN, /* shard: the chief of this task; t: how many ns ago it was heard; -1: never */
    WF_MSG_TYPES
};

/* How a worker counts in the bound on clocks. */
enum wf_clock_state {
    WF_CLOCK_PARKED, /* not: it holds no lease */
    WF_CLOCK_JOINS,  /* from the minimum of the others on */
    WF_CLOCK_GOES_ON /* at the clock that it has */
};

/* What the program of a worker does, as far as steps wait for it. Beats say it. */
enum wf_doing {
    WF_DOES_WAIT,    /* it waits for others */
    WF_DOES_COMPUTE, /* a shard */
    WF_DOES_READ,    /* it is between two steps: reads data, or what it has trained */
    WF_DOES_DECIDE,  /* what comes next: callbacks, validation, checkpoints */
    WF_DOES_PREPARE, /* it begins, or goes back to a checkpoint */
    WF_N_DOINGS
};

struct wf_message {
    enum wf_message_type type;
    int from, to;
    uint64_t incarnation, term, epoch, history; /* of the sender */
    enum wf_role role;
    int piece, shard;
    int round; /* of norms; BEAT of a worker: enum wf_doing, with `shard` and `t` the step */
    int block; /* READ, ROWS: the number of the request; BEAT of a worker: how often its program
                * has done something, modulo 2^31 */
    int level; /* PUSH: the sum of the shards [shard, shard + 2^level), those that exist */
    bool decided, follow;
    bool whole;           /* CLOSE */
    int64_t lease;        /* of messages about one; FILL: the first one of bits; GRANT: these need
                           * the control record of the step before this one, or a later one;
                           * DRAINED: likewise who decides */
    int64_t t;            /* EPOCH, TERM: of the last control record; -1: none in this history */
    int64_t pace_ns;      /* BEAT of a worker, LEASES: what a shard takes it; 0: not known */
    const uint64_t *bits; /* AT: by shard; of sets of leases: from t on */
    int n_words;
    const struct wf_epoch *record; /* EPOCH */
    const void *payload;           /* of one that arrives: as the driver keeps it */
};

const char *wf_message_name(enum wf_message_type type);
/* Whether a task of one role sends such a message to one of another. */
bool wf_message_may(enum wf_message_type type, enum wf_role from, enum wf_role to);

/* ---- actions --------------------------------------------------------------------------------- */

enum wf_action_type {
    WF_ACT_SEND,
    /* a chief's, answered by an event of the store */
    WF_ACT_CREATE_TERM,     /* number */
    WF_ACT_CREATE_EPOCH,    /* record */
    WF_ACT_READ,            /* the highest term, the last epoch, the last manifest */
    WF_ACT_CREATE_MANIFEST, /* history, t */
    WF_ACT_CREATE_CONTROL,  /* history, t, payload */
    WF_ACT_EXIT,            /* another one is chief, or the job has ended */
    /* a worker's */
    WF_ACT_COMPUTE, /* shard, t: answered by wf_client_computed */
    WF_ACT_DECIDE,  /* t: answered by wf_client_decided */
    WF_ACT_REJOIN,  /* forget everything, and start again with a new incarnation */
    /* a server's */
    WF_ACT_SAVE, /* piece, t, history: answered by wf_server_saved */
};

struct wf_action {
    enum wf_action_type type;
    struct wf_message msg; /* SEND */
    uint64_t number, history;
    int piece, shard;
    int64_t t;
    uint64_t pulse;                /* READ: the sign of life that a chief leaves; 0: none */
    const struct wf_epoch *record; /* borrowed until the next step of the machine */
    const void *payload;           /* CREATE_CONTROL: of the message that brought it */
};

struct wf_actions {
    weft_ctx *ctx;
    struct wf_action *act;
    int64_t n, cap;
    weft_status st; /* the first failure: memory */
};

void wf_actions_init(struct wf_actions *a, weft_ctx *ctx);
void wf_actions_free(struct wf_actions *a);
/* NULL if there is no memory: then the whole step of the machine has failed. */
struct wf_action *wf_actions_add(struct wf_actions *a, enum wf_action_type type);

/* ---- what every member of a job has ---------------------------------------------------------- */

/* A node's view of the job. */
struct wf_view {
    weft_ctx *ctx;
    int node;
    enum wf_role role;
    uint64_t incarnation, term;
    int chief;              /* to whom beats go */
    int64_t chief_ns;       /* when it was heard; -1: never */
    struct wf_epoch *epoch; /* NULL: none yet */
    bool belongs;           /* to the epoch */
};

void wf_view_init(struct wf_view *v, weft_ctx *ctx, int node, enum wf_role role,
                  uint64_t incarnation, int chief);
void wf_view_free(struct wf_view *v);
/* Takes a message of a chief. *changed: a new epoch has begun. */
weft_status wf_view_take(struct wf_view *v, int64_t now, const struct wf_message *m, bool *changed);
/* Tells a chief that does not act what this node hears of the one that does. */
void wf_view_seen(const struct wf_view *v, int64_t now, int to, struct wf_actions *a);
/* Whether a message between members counts. */
bool wf_view_counts(const struct wf_view *v, const struct wf_message *m);
/* A message of this node, stamped; to be completed. NULL if there is no memory. */
struct wf_message *wf_view_send(const struct wf_view *v, struct wf_actions *a,
                                enum wf_message_type type, int to);

#endif
