/* serve.h - the members of a job that a process can be: chief, server, worker. */
#ifndef WF_PS_SERVE_H
#define WF_PS_SERVE_H

#include "cluster/chief_store.h"
#include "ps/events.h"
#include "ps/lookup.h"
#include "ps/site.h"
#include "ps/plan.h"
#include "ps/slots.h"
#include "ps/store.h"

/* ---- chiefs and servers ---------------------------------------------------------------------- */

struct wf_ps_chief;
/* store: where terms, epochs and manifests are created; NULL: in memory. n_copies: of each
 * piece besides the primary, 0 or 1. The job begins when all tasks of the spec are there. */
weft_status wf_ps_chief_start(weft_ctx *ctx, const struct wf_spec *spec, int self,
                              const struct wf_chief_store_opts *store, int n_copies,
                              struct wf_ps_chief **out);
/* Until the job has ended, or timeout_ns. */
weft_status wf_ps_chief_wait(struct wf_ps_chief *c, int64_t timeout_ns);
void wf_ps_chief_stop(struct wf_ps_chief *c);
/* fn: called for what happens from now on, with the chief's lock. */
void wf_ps_chief_tell(struct wf_ps_chief *c, wf_event_fn *fn, void *arg);
/* fn: starts n further tasks of a role ("ps", "worker"); with the chief's lock. False: it cannot.
 * Without it nobody can be asked to. */
typedef bool wf_add_fn(void *arg, const char *role, int n);
void wf_ps_chief_adds(struct wf_ps_chief *c, wf_add_fn *fn, void *arg);
/* What a task has moved; the status is that of a failure, if there was one. */
struct wf_ps_counts {
    int64_t sent, received, messages; /* bytes */
    double waited_s;
    double busy_s; /* a server, with what arrived */
    struct wf_queues queues;
    struct wf_staleness stale; /* a worker's */
};
weft_status wf_ps_chief_counts(struct wf_ps_chief *c, struct wf_ps_counts *out);

struct wf_ps_server;
/* Knows nothing of the job: the chief tells it. */
weft_status wf_ps_server_start(weft_ctx *ctx, const struct wf_spec *spec, int self,
                               struct wf_ps_server **out);
/* Serves until the job has ended, the server is lost, or timeout_ns. */
weft_status wf_ps_server_wait(struct wf_ps_server *s, int64_t timeout_ns);
/* It was silent for too long, and its pieces were given to others: it has to be stopped, and
 * started again. */
bool wf_ps_server_lost(struct wf_ps_server *s);
void wf_ps_server_stop(struct wf_ps_server *s);
weft_status wf_ps_server_counts(struct wf_ps_server *s, struct wf_ps_counts *out);

/* ---- workers --------------------------------------------------------------------------------- */

/* What `weft ctl` wants of a worker: it continues, writes a checkpoint, and ends if it is the
 * one that decides (WF_PS_ASK_STOP: all are asked); or it has been drained, and fails with
 * WEFT_EPEER. */
enum wf_ps_asked { WF_PS_ASK_CHECKPOINT = 'c', WF_PS_ASK_STOP = 's', WF_PS_ASK_DRAINED = 'd' };

/* What a worker brings: what is trained, and its memory. Borrowed. */
struct wf_ps_worker_opts {
    const struct wf_ps_job *job;
    const char
        *print;    /* what its numbers depend on: a fingerprint (base/fprint.h); NULL: unknown */
    int64_t start; /* the version that its memory has */
    float *params, *slot[WF_OPTIM_MAX_SLOTS]; /* params: only at the start */
    int n_slots;
    struct wf_ps_slots *slots; /* where contributions may be; NULL: they are sent */
    double *sums;     /* of the last piece at that version (wf_ps_n_kept): state and totals */
    int backup;       /* as in struct wf_client_data */
    bool late;        /* it joins again: the version is not the one that a history begins with */
    uint64_t history; /* that its memory belongs to; 0: none yet */
    /* By piece of tables: the rows that the worker's start has besides initial ones; and where
     * those of a checkpoint go. NULL: there are no tables. */
    struct wf_tables **tables;
    int64_t cache_bytes; /* as in wf_lookup_new */
    /* May be NULL. The chief wants something; with a lock, by a thread of the net. */
    void (*asked)(void *arg, enum wf_ps_asked what);
    /* Whether the caller wants to end: then it is not waited for the job to begin. */
    bool (*interrupted)(void *arg);
    void *asked_arg;
    /* A contribution is no longer needed. By a thread that calls one of the functions below. */
    void (*release)(void *arg, void *given);
    void *arg;
};

struct wf_ps_worker;
weft_status wf_ps_worker_start(weft_ctx *ctx, const struct wf_spec *spec, int self,
                               const struct wf_ps_worker_opts *opts, struct wf_ps_worker **out);
void wf_ps_worker_stop(struct wf_ps_worker *w);

enum wf_ps_next {
    WF_PS_COMPUTE,  /* *shard of step t */
    WF_PS_COMPLETE, /* step t: version t + 1 is here, and the sums below */
    WF_PS_GO,       /* of wf_ps_worker_turn and _decide: step t may be computed */
    WF_PS_ASKED,    /* this worker decides what comes at step t: wf_ps_worker_decide */
    WF_PS_NEWS,     /* there is a control record for step t: wf_ps_worker_record */
    WF_PS_MOVED,    /* the job is at another step: wf_ps_worker_version is here, and its sums, and
                     * the last control record is here */
    WF_PS_REJOIN,   /* the job continues without this worker: stop it, and start it again */
    WF_PS_RESTORE   /* the job goes back: wf_ps_worker_restores */
};
/* The caller is about to begin step t, and waits for its turn. expects: the step needs a control
 * record; wants: this worker would like to make one, if it is the one that decides. Without both it
 * does not wait. */
struct wf_ps_ask {
    int64_t t;
    bool expects, wants;
};
weft_status wf_ps_worker_turn(struct wf_ps_worker *w, const struct wf_ps_ask *ask,
                              enum wf_ps_next *next);
/* What this worker has decided, and waits until it is in the chief's store. WF_PS_NEWS: another
 * record is there, which counts. */
weft_status wf_ps_worker_decide(struct wf_ps_worker *w, int64_t t, const char *p, int64_t n,
                                enum wf_ps_next *next);
/* The last control record, which the caller follows from now on; *p is freed by wf_free. *t -1:
 * there is none. */
weft_status wf_ps_worker_record(struct wf_ps_worker *w, char **p, int64_t *n, int64_t *t);
/* The step of the record that the caller follows; -1: none. */
int64_t wf_ps_worker_taken(struct wf_ps_worker *w);
int64_t wf_ps_worker_version(struct wf_ps_worker *w);
/* Whether this worker decides for all. */
bool wf_ps_worker_decides(struct wf_ps_worker *w);
/* Waits for what is next in step t: WF_PS_COMPUTE, _COMPLETE, _ASKED, _NEWS, _MOVED or _REJOIN. */
weft_status wf_ps_worker_next(struct wf_ps_worker *w, int64_t t, enum wf_ps_next *next, int *shard);
/* Whether shards of [first, first + n) are left for this worker to compute in step t. */
bool wf_ps_worker_left(struct wf_ps_worker *w, int64_t t, int first, int n);
/* Where variable `var` of the rules is in version t, which is here: until a shard of step t + 1 is
 * given. NULL: there is no memory. */
const float *wf_ps_worker_var(struct wf_ps_worker *w, int64_t t, int var);
/* Brings all parameters of version t, which is complete, into a flat vector. */
weft_status wf_ps_worker_read(struct wf_ps_worker *w, int64_t t, float *flat);
/* Whether shards are this worker's: then no server can be two versions ahead of it. */
bool wf_ps_worker_owns(struct wf_ps_worker *w);
/* What a shard gives. */
struct wf_ps_given {
    const float *dense;         /* [n_groups][n_dense]; NULL: no samples */
    const double *sums;         /* those of the rules, then the job's logs; copied */
    const struct wf_rows *rows; /* of tables: [n_groups][n_vars], copied; NULL: there are none */
    double rate;                /* the learning rate; NAN: as the rules say */
    struct wf_ps_mark mark;
    void *given; /* dense stays as it is until this is released; NULL: nothing is */
};
/* Of the shard that is computed: the gradients of a variable in a group are complete, and stay.
 * Which of them will be told is said by `reached`, [n_groups][n_vars]. what: dense as it is so
 * far, only the denominators and the samples of the sums, nothing given. A piece is sent when
 * all of it is there. */
weft_status wf_ps_worker_ready(struct wf_ps_worker *w, int64_t t, int shard, int var,
                               const bool *reached, const struct wf_ps_given *what);
/* The shard could not be computed: the worker ends, if a part of it was sent. */
void wf_ps_worker_failed(struct wf_ps_worker *w, int64_t t, int shard, weft_status st);
/* The shard that was to be computed. */
weft_status wf_ps_worker_give(struct wf_ps_worker *w, int64_t t, int shard,
                              const struct wf_ps_given *what);
/* Rows of a table at version t, the worker's own. *all false: step t is already complete, and
 * the servers have dropped that version; the rows mean nothing, nor does what is computed from
 * them. By one thread at a time. WEFT_ESTATE: the worker has to rejoin, which wf_ps_worker_next
 * says; the shard is not to be given. */
weft_status wf_ps_worker_rows(struct wf_ps_worker *w, int64_t t, int var, int64_t n,
                              const int64_t *ids, float *rows, bool *all);
/* They will be requested soon: they come together with the next rows that are. */
weft_status wf_ps_worker_want(struct wf_ps_worker *w, int64_t t, int var, int64_t n,
                              const int64_t *ids);
/* Brings the optimizer's slots of version t, which is complete, into the worker's memory; with the
 * rows of tables. */
weft_status wf_ps_worker_slots(struct wf_ps_worker *w, int64_t t);
/* The sums of the last step that is complete, and where training is: wf_ps_n_kept numbers. */
double *wf_ps_worker_sums(struct wf_ps_worker *w);
/* With leases: one of them, while others come. */
double wf_ps_lease_sum(struct wf_ps_worker *w, int64_t i);

/* ---- leases (leasing.c): instead of wf_ps_worker_turn, _next, _give and _ready --------------- */

/* Of a plan: leases from the lowest that is not done on, which may be granted; pushes of a worker
 * that are not acknowledged, without a bound. */
enum { WF_LEASE_WINDOW = 256, WF_LEASE_INFLIGHT = 2 };

/* Whether the job has them. Parameters arrive in wf_ps_worker_opts.params, which the caller reads
 * while it computes a lease, and after wf_ps_lease_read. */
bool wf_ps_leases(const struct wf_ps_worker *w);
/* The caller is at a boundary, after step t, and waits for what comes there: WF_PS_ASKED (*t: the
 * step), WF_PS_NEWS, WF_PS_REJOIN, WF_PS_RESTORE. */
weft_status wf_ps_lease_turn(struct wf_ps_worker *w, int64_t *t, enum wf_ps_next *next);
/* Waits for a lease to compute: WF_PS_COMPUTE (*number: the lease; what it needs is here),
 * WF_PS_COMPLETE (*number: the step of the next boundary, which is reached), WF_PS_NEWS (the others
 * are beyond it), WF_PS_REJOIN, WF_PS_RESTORE. */
weft_status wf_ps_lease_next(struct wf_ps_worker *w, enum wf_ps_next *next, int64_t *number);
/* There shall be a boundary as soon as possible, which nobody planned. */
weft_status wf_ps_lease_halt(struct wf_ps_worker *w);
/* Leases that this worker will compute next, rising: at most n. All below *low are done. */
int wf_ps_lease_queue(struct wf_ps_worker *w, int64_t *lease, int n, int64_t *low);
weft_status wf_ps_lease_give(struct wf_ps_worker *w, int64_t lease, const struct wf_ps_given *what,
                             const float *scale);
/* Nothing can be given: the lease was lost meanwhile. */
weft_status wf_ps_lease_cancel(struct wf_ps_worker *w, int64_t lease);
weft_status wf_ps_lease_ready(struct wf_ps_worker *w, int64_t lease, int var, const bool *reached,
                              const struct wf_ps_given *what);
/* All pieces after step t into the caller's vector, and the sums. exact: those of the boundary;
 * otherwise later ones count, too. *next: WF_PS_COMPLETE, or they have not all come: WF_PS_REJOIN,
 * WF_PS_RESTORE, or for a boundary WF_PS_NEWS: another worker has decided. */
weft_status wf_ps_lease_read(struct wf_ps_worker *w, int64_t t, bool exact, enum wf_ps_next *next);

struct wf_ps_counts wf_ps_worker_counts(struct wf_ps_worker *w);

/* Parameters were lost, and a new history begins with an earlier version, which is *t. Nothing is
 * computed, and no server begins, before this worker's memory has that version (or another worker's
 * does): then wf_ps_worker_restored. */
bool wf_ps_worker_restores(struct wf_ps_worker *w, int64_t *t);
/* The memory has version t, as at the start. *again: meanwhile the job went back to another one. */
weft_status wf_ps_worker_restored(struct wf_ps_worker *w, int64_t t, bool *again);
/* A checkpoint that is restored as version t is complete. */
void wf_ps_worker_saved(struct wf_ps_worker *w, int64_t t);
/* The one that the job would go back to now; -1: not known. From it on, checkpoints are kept. */
int64_t wf_ps_worker_kept(struct wf_ps_worker *w);
/* The history that the memory belongs to; 0: none yet. */
uint64_t wf_ps_worker_history(struct wf_ps_worker *w);

#endif
