/* servers.h - parameter servers as a strategy, for the files that make it up. */
#ifndef WF_TRAIN_STEP_SERVERS_H
#define WF_TRAIN_STEP_SERVERS_H

#include "ps/serve.h"
#include "train/step/dist.h"
#include "train/step/served.h"

/* A step that replaces parameters: its kind, and the rows of tables that are set, by variable;
 * NULL: none. */
struct wf_set_op {
    enum wf_ps_kind kind;
    struct wf_rows *rows;
};
enum { WF_SET_OPS = 8 };

struct wf_servers {
    weft_ctx *ctx;
    struct wf_spec spec;
    struct wf_task *task;
    struct wf_tls *tls;
    int self, n_copies, n_servers;
    int64_t piece_bytes;
    struct wf_place_rule place;
    int64_t row_cache_bytes;
    int backup; /* as in weft_ps_opts */
    void (*asked)(void *arg, weft_ps_asked what);
    void *call_arg;
    struct wf_ps_chief *chief;
    struct wf_ps_server **server;
    /* Since the first step. */
    weft_work *w;
    struct wf_ps_job job;
    char *print; /* what its numbers depend on, for the chief; NULL: unknown */
    struct wf_ps_worker *worker;
    struct wf_served *tables; /* rows of a checkpoint; NULL: there are no tables */
    weft_work *tables_of;
    bool lost;                        /* rows of a checkpoint were dropped before they were used */
    bool goes_back;                   /* the trainer gets an earlier version */
    struct wf_servers_origin *origin; /* as it began; NULL: a checkpoint has it, or nothing does */
    bool dropped;                     /* the shard under way: the worker has to rejoin */
    double *sums;                     /* of one contribution */
    double *start;                    /* of the version that it began with */
    struct wf_ps_slots *slots; /* memory of contributions, for servers on this host; NULL: none */
    struct wf_ps_slots *old;   /* that were abandoned: of incarnations before */
    const float **at[2];       /* by segment: where even and odd versions are read */
    int64_t version;           /* that is complete */
    bool elsewhere;            /* the trainer's own vector is older */
    struct wf_replica *runs;   /* computes a shard now, */
    struct wf_ps_given *what;  /* which gives this */
    int64_t computed;          /* shards, by this process */
    bool ended;                /* the trainer is gone */
    bool watched;              /* somebody may have changed the parameters since the last step */
    uint32_t was;              /* their checksum before */
    uint32_t frozen;           /* that of parameters that are not trained */
    /* Leases (servers_leases.c). */
    bool leased;
    int stale;     /* by how many leases a worker may be behind another one; -1: any */
    int64_t lease; /* that is computed; -1: none */
    int64_t own;   /* its batches, once it is: totals that were read before lack them */
    int64_t gate_every, gate_first; /* steps with a control record */
    /* With rounds a step of the leases is one: an epoch has this many batches, a round `every` (0:
     * steps are batches), and an epoch began with this step of the trainer's, below epoch_steps. */
    int64_t epoch_steps, every, first_step;
    int64_t ends_at;   /* the trainer's step: leases beyond it are skipped; 0: not given */
    bool fresh;        /* an epoch has begun with the last control record */
    int64_t epoch_at;  /* the step of the last record with which one began; -1: it is not known */
    bool before_epoch; /* totals that were read with the last lease are older than that */
    bool set_here;     /* a callback has replaced parameters, which servers do not take */
    int n_workers;
    float *scale;                    /* by variable: factors of clipping */
    double *before;                  /* state that the lease began with */
    struct wf_set_op op[WF_SET_OPS]; /* what callbacks have done since the last step, in order */
    int n_ops;
    int64_t set_bytes;         /* of rows that were set */
    struct wf_rows *given_set; /* by variable: rows of the step that replaces parameters */
    /* Control records. */
    struct wf_ps_worker_opts opts; /* as it joined */
    bool led;                      /* the caller asks for its turn before each step */
    bool turned;                   /* the last step was given up: turn says why */
    enum wf_turn turn;
};

/* What a shard gave, until every server has it. */
struct wf_given {
    struct wf_servers *s;
    weft_given given;
};

/* servers.c */
/* Room for what a shard gives; released with the contribution. */
weft_status wf_servers_room(struct wf_servers *s, struct wf_given **out);
/* Where the numbers after the sums of the last piece begin. */
int64_t wf_servers_marks(const struct wf_servers *s);
/* Where this process has the whole version that the job began with, or that was read last. */
float *wf_servers_vector(const struct wf_servers *s);
/* The trainer's own vector gets the version that is complete. */
weft_status wf_servers_params(struct wf_servers *s);
/* Whether somebody has changed the trainer's parameters or state since the last step. */
bool wf_servers_changed(struct wf_servers *s);
void wf_servers_drop_set(struct wf_servers *s);
/* State and totals of the version that the trainer has, into s->start. */
void wf_servers_put_start(struct wf_servers *s, const weft_work *w);
/* Joins the job with what the trainer has, unless it has joined. */
weft_status wf_servers_begin(struct wf_servers *s, weft_work *w, int64_t t);
/* Other memory for contributions than the worker had before. */
weft_status wf_servers_renew(struct wf_servers *s);
/* Version t is complete. */
weft_status wf_servers_have(struct wf_servers *s, int64_t t);

/* servers_leases.c */
/* What leases need of the plan; WEFT_ENOSUP names what they cannot do. */
weft_status wf_servers_plan_leases(struct wf_servers *s, weft_work *w);
void wf_servers_free_leases(struct wf_servers *s);
weft_status wf_servers_lease_turn(struct wf_servers *s, enum wf_ps_next *next);
weft_status wf_servers_lease_ready(struct wf_servers *s, int var, const struct wf_ps_given *what);
/* The trainer's step where step `at` of the leases begins, and back; the same without rounds. */
int64_t wf_servers_step_at(const struct wf_servers *s, int64_t at);
int64_t wf_servers_lease_at(const struct wf_servers *s, int64_t step);
/* How many versions a step is. */
int64_t wf_servers_leases(const struct wf_servers *s);
/* servers_turns.c: what a worker is told, as the loop understands it. */
weft_status wf_servers_turn_of(struct wf_servers *s, int64_t t, enum wf_ps_next next,
                               enum wf_turn *turn);

/* servers_aside.c */
/* Parameters that are not trained stay as they are now. */
void wf_servers_note_frozen(struct wf_servers *s);

/* servers_back.c */
/* The version that the trainer has, for a job that has no checkpoint yet when it has to go back. */
weft_status wf_servers_keep_origin(struct wf_servers *s);
void wf_servers_drop_origin(struct wf_servers *s);

/* servers_turns.c */
/* The step cannot be finished as it was begun; the status says so. */
weft_status wf_servers_give_up(struct wf_servers *s, int64_t t, enum wf_ps_next next);
/* A step begins: if no fit leads it, its turn is waited for. */
weft_status wf_servers_begin_alone(struct wf_servers *s, int64_t t);
/* WF_PS_COMPUTE or WF_PS_COMPLETE; a failure, if the step is given up. */
weft_status wf_servers_next(struct wf_servers *s, int64_t t, enum wf_ps_next *next, int *shard);

#endif
