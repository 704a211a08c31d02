/* worker.h - a worker of parameter servers, for the files that make it: join.c (its machine over
 * links, its memory), given.c (contributions), sums.c (several of them as one), images.c (slots,
 * first versions), back.c (another history), steps.c (what the training loop asks for),
 * control.c (whose turn it is, control records). */
#ifndef WF_PS_WORKER_H
#define WF_PS_WORKER_H

#include "ps/lookup.h"
#include "ps/serve.h"

#define WF_PS_GIVE_UP 20 /* timeouts of silence without any progress */
#define WF_PS_ALONE 3    /* … after which one that joins again, and finds nobody, gives up */

/* A contribution, until every server has it. */
struct kept {
    struct kept *next;
    int64_t t;
    int shard;
    const float *dense;
    double *sums;            /* NULL: the shard has no samples */
    struct wf_payload *rows; /* of tables: as they are pushed, by piece of them; NULL: none */
    double rate;
    struct wf_ps_mark mark;
    void *given;
    atomic_int pins; /* sends under way */
    bool forgotten;
    bool early;  /* it is not complete: only what is ready is sent */
    char *scale; /* with leases, when it is closed: factors of clipping; NULL: there are none */
};

struct wf_leasing;

struct wf_ps_worker {
    struct wf_site node;
    struct wf_ps_worker_opts opts;
    struct wf_cut *cut;
    struct wf_ps_store_opts sizes;
    struct wf_client m;
    bool made;
    uint64_t history; /* that the caller's memory belongs to; 0: none yet */
    bool restores;    /* the job is in another one: the caller has to go back to its start */
    bool unsure;      /* with leases: it has to if nothing has been computed since that start */
    int64_t saved;    /* the last checkpoint of this history that is complete; -1: none */
    int64_t holds;    /* the one that the job would go back to; -1: not known */
    bool changed;     /* the memory is no longer that of the start */
    char *job;        /* as it is told the chief */
    int64_t n_job;
    double *sums; /* of the last piece: even and odd versions, n_sums each */
    int64_t n_sums;
    bool pending; /* a shard is to be computed */
    int64_t pending_t;
    int pending_shard;
    struct kept *kept;
    struct wf_payload *spare_rows; /* of one that is gone, for the next; NULL: there are none */
    int *missing; /* by piece: gradients that are not ready, of the shard that is computed */
    struct wf_part *part; /* of a push */
    struct kept **run;    /* by shard: what is added up */
    struct wf_versions *versions;
    int64_t lost_t; /* the step when a link was lost: regions of servers may be read until then */
    /* Slots that are being brought: their version, -1: none; when they were requested. */
    int64_t slots_t, slots_ns;
    bool *has_slots; /* by piece */
    struct wf_tables_opts tables;
    struct wf_tables_sort sort;
    struct wf_lookup *lookup; /* NULL: there are no tables */
    double waited_s;
    int64_t samples, told_ns; /* that it has computed; when the chief was told */
    int64_t ticked_ns;        /* when its clock ticked last */
    bool slept;               /* it did not tick for so long that the job continued without it */
    int64_t aside;            /* steps up to now that trained nothing: they validated */
    /* Where the caller is: at step `at`; busy: it reads the memory, which must not change. */
    int64_t at;
    bool busy, begun;
    bool expects, wants; /* a control record, before this step */
    bool late;           /* it has joined again, and the caller does not know where the job is */
    struct wf_ps_record {
        int64_t t, n; /* t -1: none */
        char *p;
    } record, own;           /* the last one; what this worker has decided */
    int64_t taken;           /* the step of the record that the caller has; -1: none */
    struct wf_ps_save *save; /* the checkpoint under way; NULL: none */
    bool ends;               /* it is being stopped: whoever waits returns */
    bool rejoin;             /* the job continues without this process: it has to join again */
    /* NULL: steps. With leases, of `m` only what others read is kept up: the view, and the step. */
    struct wf_leasing *leasing;
};

/* Those of version t. */
static inline double *wf_ps_sums_at(const struct wf_ps_worker *w, int64_t t)
{
    return w->sums + (t & 1) * w->n_sums;
}

/* sums.c: what several shards give to a piece, along the tree; until it is sent. */
struct wf_ps_sum {
    weft_ctx *ctx;
    struct wf_rules rules;       /* of the piece */
    struct wf_contribution *all; /* NULL: no shard has samples */
    struct wf_payload rows;      /* of tables */
};
weft_status wf_ps_sum_new(struct wf_ps_worker *w, int piece, struct kept *const *part, int n,
                          struct wf_ps_sum **out);
void wf_ps_sum_free(struct wf_ps_sum *s);
/* Where its bytes are, as they are pushed: at most two places. */
int wf_ps_sum_parts(const struct wf_ps_sum *s, struct wf_part *part);

/* Carries out what the machine wants. With the lock. */
weft_status wf_ps_worker_carry_out(struct wf_ps_worker *w);
/* given.c: with the lock. A contribution to a piece is sent; what is no longer needed is given back
 * (all: nothing is being sent). */
weft_status wf_ps_worker_push(struct wf_ps_worker *w, const struct wf_message *m);
void wf_ps_worker_reap(struct wf_ps_worker *w, bool all);
void wf_ps_worker_free_rows(struct wf_ps_worker *w, struct wf_payload *rows);
/* The same for what a lease gives to a piece, or its closing record. t: the lease. */
weft_status wf_ps_worker_close(struct wf_ps_worker *w, const struct wf_message *m);
/* What a shard gives, kept until it is forgotten: all of it; or the gradients of a variable, after
 * which `ready` is called for each piece that is complete. */
weft_status wf_ps_worker_keep(struct wf_ps_worker *w, int64_t t, int shard,
                              const struct wf_ps_given *what, const float *scale);
typedef weft_status wf_ps_ready_fn(struct wf_ps_worker *w, int64_t t, int shard, int piece);
weft_status wf_ps_worker_keep_part(struct wf_ps_worker *w, int64_t t, int shard, int var,
                                   const bool *reached, const struct wf_ps_given *what,
                                   wf_ps_ready_fn *ready);
/* images.c: likewise. */
void wf_ps_worker_ask_slots(struct wf_ps_worker *w, int64_t now);
void wf_ps_worker_take_slots(struct wf_ps_worker *w, const struct wf_arrived *a);
void wf_ps_worker_send_image(struct wf_ps_worker *w, const struct wf_arrived *a);
/* back.c: for the machine. A new history begins. */
void wf_ps_worker_restart(void *arg);
/* A server, or the chief, wants something of this worker that belongs to version t. If the job
 * begins there, nothing has been computed. */
void wf_ps_worker_at_start(struct wf_ps_worker *w, int64_t t);
/* The chief is told of the last checkpoint. */
void wf_ps_worker_tell_saved(struct wf_ps_worker *w);
/* Why something cannot be finished. */
weft_status wf_ps_worker_err_back(const struct wf_ps_worker *w);
/* steps.c: whether all of the version that the machine is at is here. */
bool wf_ps_worker_has_all(const struct wf_ps_worker *w);
/* control.c: for the machine. */
enum wf_gate wf_ps_worker_gate(void *arg, int64_t t, bool decides);
weft_status wf_ps_worker_control(void *arg, int64_t t, const void *payload);
enum wf_doing wf_ps_worker_doing(void *arg);
/* A wait has ended, and the worker belongs to no epoch: why. With the lock. */
weft_status wf_ps_worker_err_outside(const struct wf_ps_worker *w, weft_status st);
/* Waits for others, as long as the chief may need to leave out a worker that holds them up. */
weft_status wf_ps_worker_await(struct wf_ps_worker *w, bool (*done)(void *arg), void *arg,
                               const char *what);
/* The job has left the caller behind, or gone back, and what it needs to follow is here. */
bool wf_ps_worker_moved(const struct wf_ps_worker *w);
/* The caller is to decide about the step that it is at. */
bool wf_ps_worker_is_asked(const struct wf_ps_worker *w);
/* A shard that was requested is not computed any more. */
weft_status wf_ps_worker_cancel(struct wf_ps_worker *w);
void wf_ps_worker_free_records(struct wf_ps_worker *w);

#endif
