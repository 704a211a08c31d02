/* world.h - what the parts of the simulated world know of each other. */
#ifndef WF_SIM_WORLD_H
#define WF_SIM_WORLD_H

#include "cluster/spec.h"
#include "sim.h"

enum event_kind {
    E_MESSAGE,
    E_TICK,
    E_COMPUTED,
    E_READY, /* a part of a contribution, while the rest is computed */
    E_STORE, /* its answer */
    E_SAVED,
    E_DECIDED,
    E_HELD, /* a worker has read its memory */
    E_START,
    E_FAULT,
    E_FAULT_END,
    E_REQUEST /* arrives at the store */
};

enum { MAX_EPOCHS = 1024, MAX_EVENTS = 5000, MAX_HISTORIES = 64 };

struct event {
    struct event *next; /* that is not in use */
    int64_t at;
    uint64_t order;
    enum event_kind kind;
    int node;
    uint64_t incarnation; /* of the process that it is for; 0: any */
    struct wf_message msg;
    int process;             /* that sent it */
    int64_t sent;            /* when */
    struct payload *payload; /* shared with other copies of the message */
    uint64_t bits[MAX_WORDS];
    uint64_t saved[MAX_BLOCKS]; /* E_SAVED: what was to be saved */
    struct wf_epoch *record;    /* owned */
    struct wf_store_answer answer;
    int shard, piece, fault;
    int64_t t;
    uint64_t number, history, value; /* value: of a control record */
    uint64_t pulse;                  /* a sign of life for the store */
    bool confirmed, is_ok;           /* a request: the store has looked whether its term counts */
};

/* What a chief has of a node, as far as the world can see. */
struct heard {
    int64_t at;
    uint64_t incarnation;       /* of the last message */
    uint64_t gone;              /* the last one that has left, or whose connection was closed */
    int cost;                   /* of its bytes, if it is a server */
    int64_t seen_at, seen_sent; /* its last answer to a standby: when it came, and was sent */
    int64_t stalled_at;         /* when the chief found that it makes no progress; 0: it does */
};

/* All tasks, as a process knows them: those that were added come last. */
struct task_list {
    int n; /* 0: only the first ones */
    struct wf_task task[MAX_NODES];
};

struct node {
    enum wf_role role;
    int number;            /* of the process, as its machine knows it */
    struct task_list list; /* only where tasks are added */
    bool alive, left, leaving;
    bool gone;           /* it is not started again */
    bool drained;        /* it has seen that it is to go */
    int64_t drain_until; /* when it is started again, or later if it goes later */
    uint64_t incarnation;
    int64_t paused_until;
    int64_t hung_from, hung_until;     /* a worker's program does nothing in between */
    int64_t before_from, before_until; /* the same process, the time before */
    unsigned cut;                      /* nothing reaches these nodes */
    unsigned deaf;                     /* nothing comes from these */
    int64_t computes;                  /* number of the computation under way */
    bool reads;                        /* a computation waits for rows: of this shard and step */
    int read_shard;
    int64_t read_t;
    union {
        struct wf_chief chief;
        struct wf_server server;
        struct wf_client client;
        struct wf_lessee_worker lessee; /* like client, it begins with its view */
    } m;
    void *values; /* of a server or a worker */
    uint64_t seen_term, seen_epoch, seen_history;
    int64_t seen_t;                   /* a worker's step */
    int64_t seen_version[MAX_PIECES]; /* a server's, of what it holds; -1: it is no holder */
    struct heard heard[MAX_NODES];    /* a chief: of others */
    /* a worker reads these pieces of a version */
    bool holds;
    unsigned held;
    int64_t held_t;
    uint64_t held_history;
    /* a worker's or a chief's control record, and what a worker has decided */
    int64_t record_t;
    uint64_t record, decision;
};

/* With leases: what has become of a piece in a history. Any order is allowed; then all copies have
 * that one. */
struct piece_log {
    int64_t first, n; /* the version that it begins with; one past the last that was seen */
    int64_t lease[MAX_LEASES];                  /* by version: what made the next one of it */
    uint64_t value[MAX_LEASES + 1][MAX_BLOCKS]; /* by version */
    bool is_applied[MAX_LEASES], known[MAX_LEASES + 1][MAX_BLOCKS];
};

struct world {
    weft_ctx *ctx;
    const struct sim_case *c;
    const struct sim_kind *kind;
    void *truth;
    FILE *trace;
    struct sim_result *result;
    int64_t now;
    uint64_t order, random, incarnations;
    struct event **heap;
    int64_t n_heap, cap_heap;
    struct event *spare;
    struct node node[MAX_NODES];
    struct wf_actions acts;
    /* the store */
    uint64_t term, pulse;
    int term_owner;
    struct wf_epoch *epoch; /* the last */
    struct task_list list;
    uint64_t epoch_hash[MAX_EPOCHS];
    bool has_manifest;
    uint64_t manifest_history;
    int64_t manifest;
    bool in_store[MAX_HISTORIES][MAX_STEPS + 1][MAX_PIECES]; /* checkpointed pieces */
    uint64_t control[MAX_HISTORIES][MAX_STEPS + 1];          /* records; 0: none */
    /* checkpoints that were complete; that cannot be read any more */
    bool is_made[MAX_HISTORIES][MAX_STEPS + 1], is_lost[MAX_HISTORIES][MAX_STEPS + 1];
    bool begins_again;
    int64_t store_out; /* until then the store answers nobody */
    /* the highest version that was announced in the present history */
    int64_t announced[MAX_PIECES];
    uint64_t announced_history;
    int64_t calm_at;    /* after the last fault */
    int64_t changed_at; /* when a fault began or ended, or a process began or ended, last */
    /* with leases */
    struct piece_log *log[MAX_HISTORIES]; /* by piece */
    uint64_t saved[MAX_HISTORIES][MAX_STEPS + 1][MAX_PIECES][MAX_BLOCKS];
};

/* ---- world.c --------------------------------------------------------------------------------- */

void sim_tell(struct world *w, const char *fmt, ...) WEFT_PRINTF(2, 3);
int64_t sim_random(struct world *w, int64_t lo, int64_t hi);

/* ---- events.c -------------------------------------------------------------------------------- */

struct event *sim_add_event(struct world *w, int64_t at, enum event_kind kind, int node);
struct event *sim_next_event(struct world *w);
/* An event that was the next one happens later. */
void sim_postpone(struct world *w, struct event *e, int64_t at);
void sim_free_event(struct world *w, struct event *e);

/* ---- checks.c -------------------------------------------------------------------------------- */

uint64_t sim_stored_control(const struct world *w, uint64_t history, int64_t t);
int64_t sim_last_control(const struct world *w, uint64_t history);
void sim_check_control(struct world *w, int node, int64_t t);
void sim_check_announced(struct world *w, const struct node *n, const struct wf_message *m);
void sim_check_copy(struct world *w, const struct node *n, const struct wf_message *m);
void sim_check_pull(struct world *w, const struct wf_server *s, const struct wf_message *m);
void sim_check_node(struct world *w, int i);
/* An epoch is created: after the last one in the store, or NULL. */
void sim_check_epoch(struct world *w, const struct wf_epoch *old, const struct wf_epoch *e);
/* A chief wants an epoch: it drops those only that it has not heard of. */
void sim_check_dropped(struct world *w, int chief, const struct wf_epoch *e);
/* A chief takes the next term. */
void sim_check_term(struct world *w, int chief);
/* A worker has read the version that it began to read. */
void sim_check_held(struct world *w, int node);

/* ---- leases.c, lease_checks.c ---------------------------------------------------------------- */

/* A history begins, with step `start` of another one. */
void sim_begin_log(struct world *w, uint64_t history, int64_t start, uint64_t source);
struct piece_log *sim_log(struct world *w, uint64_t history, int piece);
/* A server has applied a lease to a block of a piece at version t. */
void sim_log_apply(struct world *w, int node, int piece, int block, int64_t t, int64_t lease,
                   uint64_t value);
void sim_snapshot(struct world *w, int node, const struct wf_action *act, uint64_t *out);
/* A server tells a worker something; a worker is to compute a lease; a chief, a server or a worker
 * has taken an event; a control record is created; the job has ended. */
void sim_check_told(struct world *w, const struct node *n, const struct wf_message *m);
void sim_check_lease(struct world *w, int node, int64_t lease);
void sim_check_leased(struct world *w, int node);
void sim_check_drained(struct world *w, uint64_t history, int64_t t);
void sim_check_all_applied(struct world *w);
void sim_save_drained(struct world *w, int node, int64_t t);

/* ---- store.c --------------------------------------------------------------------------------- */

uint64_t sim_epoch_hash(const struct wf_epoch *e);
void sim_use_store(struct world *w, struct event *r);
void sim_ask_store(struct world *w, int node, const struct wf_action *act);

/* ---- added.c --------------------------------------------------------------------------------- */

int sim_process(const struct world *w, int node, int number);
int sim_number(const struct world *w, int at, int i);
struct node *sim_at(struct world *w, int number);
bool sim_learn(struct world *w, int node, const struct wf_epoch *e);
void sim_check_list(struct world *w, const struct wf_epoch *old, const struct wf_epoch *e);
weft_status sim_extend_chief(struct world *w, int chief);
void sim_enter(struct world *w, int i);
void sim_unlearn(struct world *w, int i);
bool sim_is_known(struct world *w, int node, const struct event *e);

/* ---- again.c --------------------------------------------------------------------------------- */

void sim_resume(struct world *w);
void sim_lose_checkpoint(struct world *w);
void sim_read_checkpoint(struct world *w, uint64_t source, int64_t t);
void sim_begin_again(struct world *w);

/* ---- nodes.c --------------------------------------------------------------------------------- */

void sim_stop_node(struct world *w, int i);
void sim_start_node(struct world *w, int i);
/* A new process of a task: one that is added asks first. */
void sim_start_process(struct world *w, int i);
void sim_carry_out(struct world *w, int node);
weft_status sim_step_message(struct world *w, struct node *n, struct event *e);
weft_status sim_tick(struct world *w, int i);
void sim_begin_fault(struct world *w, int number);
void sim_end_fault(struct world *w, int number);

#endif
