/* dist.h - strategies, for the files of the train layer. */
#ifndef WF_TRAIN_STEP_DIST_H
#define WF_TRAIN_STEP_DIST_H

#include "ps/place.h"
#include "train/step/work.h"
#include "weft/dist.h"

struct weft_dist {
    weft_ctx *ctx;
    weft_strategy kind;
    void *self;
    int n_replicas, n_local, first; /* all, those of this process, and the number of its first */
    int shards;                     /* of a step, if the caller does not say; 0: n_replicas */
    bool sums_there; /* contributions go into the trainer's tree, and nothing reads them before */
};

/* mirrored.c: replicas on groups of cores, or on devices with memory of their own. */
weft_status wf_mirrored_open(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                             int *first);
void wf_mirrored_close(void *self);
weft_status wf_mirrored_compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n);

/* servers.c, servers_tasks.c: parameter servers. arg: weft_ps_opts. */
weft_status wf_servers_open(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                            int *first);
void wf_servers_close(void *self);
weft_status wf_servers_compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n);
weft_status wf_servers_ready(void *self, const weft_range *range, int64_t t, int64_t number,
                             const float *gradients, void *event);
weft_status wf_servers_apply(void *self, weft_work *w, int64_t t);
weft_status wf_servers_bring(void *self, weft_work *w, int64_t t);
void wf_servers_leave(void *self, weft_work *w);
weft_status wf_servers_need_rows(void *self, const weft_table *table, int64_t t, int64_t number,
                                 int64_t n, const int64_t *ids, float *rows);
weft_status wf_servers_want_rows(void *self, const weft_table *table, int64_t t, int64_t number,
                                 int64_t n, const int64_t *ids);
weft_status wf_servers_each_row(void *self, const weft_table *table,
                                void (*fn)(void *arg, int64_t id, const float *row), void *arg);
weft_status wf_servers_set_rows(void *self, weft_work *w, const weft_table *table, int64_t t,
                                int64_t n, const int64_t *ids, const float *rows,
                                const float *const *slot);

enum { WF_PIECE_BYTES = 4 << 20 }; /* by default, about */
/* How many copies of each piece there are besides the primary. */
weft_status wf_servers_copies(const weft_ps_opts *o, int n_servers, int *n_copies);
/* classic.c: replicas_to_aggregate and total_num_replicas as what they mean here: *shards of a step
 * (0: not said) and whether backup computation is needed. WEFT_EINVAL if they cannot be meant. */
weft_status wf_classic_words(int64_t aggregate, int64_t total, int64_t n_workers, int64_t *shards,
                             bool *backup);
/* servers_leases.c: "sync", "async" or "stale(S)"; NULL: sync. leased: not sync; *stale: S, -1:
 * any. WEFT_EINVAL. */
weft_status wf_consistency_read(const char *text, bool *leased, int *stale);
/* placed.c: where variables are to be, and the servers of those of a step. */
struct wf_place_rule wf_servers_rule(const weft_ctx *ctx, const weft_ps_opts *o);
weft_status wf_servers_place(weft_work *w, int n_servers, const struct wf_place_rule *rule);

/* ---- workers that train together, and follow control records (servers_turns.c) --------------- */

enum wf_turn {
    WF_TURN_GO,     /* the step may be computed */
    WF_TURN_DECIDE, /* this process decides what comes at this step, for all: wf_dist_decide */
    WF_TURN_FOLLOW, /* another one has decided: wf_dist_record */
    WF_TURN_MOVED   /* the job is at another step: wf_dist_record, wf_dist_seek */
};
/* Whether the trainer's strategy has control records. */
bool wf_dist_together(const weft_trainer *t);
/* What the numbers of the training depend on, as text (base/fprint.h): who joins is compared with
 * the others. Once a worker takes part it stays as it is. */
weft_status wf_dist_tell(weft_trainer *t, const char *print);
/* Before the current step. expects: every worker waits for a record here; wants: this one would
 * like to make one. */
weft_status wf_dist_turn(weft_trainer *t, bool expects, bool wants, enum wf_turn *turn);
/* Returns when the record is in the chief's store: WF_TURN_GO, or whatever came in between. */
weft_status wf_dist_decide(weft_trainer *t, const char *p, int64_t n, enum wf_turn *turn);
/* The last record, and the step that it is for; freed by wf_free. */
weft_status wf_dist_record(weft_trainer *t, char **p, int64_t *n, int64_t *at);
/* The trainer gets the version that the job is at; *batch: of the epoch so far. It may be gone
 * already: wf_dist_turned. */
weft_status wf_dist_seek(weft_trainer *t, int64_t *batch);
bool wf_dist_decides(weft_trainer *t);
/* ---- leases (servers_leases.c): shards that workers get one by one, instead of steps ------- */

bool wf_dist_leased(const weft_trainer *t);
/* Before the first turn, by a trainer that is at this batch of an epoch: there is a control record
 * where an epoch begins, or before each step. The trainer's steps end with `last`, 0: it is not
 * given: wf_dist_lease_skip is for what is leased beyond it. WEFT_ENOSUP: in the middle of a
 * round. */
weft_status wf_dist_gates(weft_trainer *t, int64_t epoch_steps, int64_t batch, bool each_step,
                          int64_t last);
/* Somebody may have seen the trainer between two leases: WEFT_ENOSUP if its parameters changed. */
weft_status wf_dist_lease_kept(weft_trainer *t);
/* The trainer's step where a step of the leases begins: with updates in the workers these are
 * rounds. */
int64_t wf_dist_lease_step(const weft_trainer *t, int64_t at);
/* The trainer is at the step of the last control record. fresh: an epoch begins with it. ends: and
 * gets the parameters that training has ended with. */
weft_status wf_dist_lease_begin(weft_trainer *t, int64_t step, bool fresh, bool ends);
/* Waits for the next lease. WF_TURN_GO: shard *shard of step *step is to be computed by
 * wf_dist_lease_compute, and the trainer has the parameters for it; WF_TURN_DECIDE: all leases
 * before *step are done, and its control record is to come; WF_TURN_FOLLOW: there is one. */
weft_status wf_dist_lease(weft_trainer *t, enum wf_turn *turn, int64_t *step, int *shard);
/* last: at the last batch of that step, which has n_batches, one without rounds; NULL: what shards
 * give comes by hand. */
weft_status wf_dist_lease_compute(weft_trainer *t, int64_t step, int shard,
                                  const struct wf_deal *last, int n_batches);
/* Or instead: it changes nothing, and counts as applied. */
weft_status wf_dist_lease_skip(weft_trainer *t, int64_t step);
/* There shall be a boundary as soon as possible: after it, wf_dist_lease says that this worker
 * decides, or another one. */
weft_status wf_dist_halt(weft_trainer *t);
/* Leases that come next, rising: at most n; all below *low are done. */
int wf_dist_lease_queue(weft_trainer *t, int64_t *lease, int n, int64_t *low);
/* Batches of the epoch that were applied when the last lease was begun, and that lease if it was
 * computed; the totals are those of the trainer's pass. */
int64_t wf_dist_lease_batches(weft_trainer *t);

/* ---- going back (servers_back.c) ------------------------------------------------------------- */

/* Whether parameters were lost, and the job goes back to step *step, which the trainer has to get:
 * wf_dist_back_begin, then a checkpoint is read into it, or wf_dist_back_origin; then
 * wf_dist_back_end. */
bool wf_dist_goes_back(weft_trainer *t, int64_t *step);
void wf_dist_back_begin(weft_trainer *t);
/* As training began, if that was at this step. False: it is not known any more. */
bool wf_dist_back_origin(weft_trainer *t, int64_t step);
/* The trainer is at this step. *again: meanwhile the job has gone back to another one. */
weft_status wf_dist_back_end(weft_trainer *t, int64_t step, bool *again);
/* The checkpoint of this step is complete: the job can go back to it. */
void wf_dist_saved(weft_trainer *t, int64_t step);
/* The one that the job would go back to now; -1: none, or not known. */
int64_t wf_dist_kept(const weft_trainer *t);

/* ---- steps of all workers that update nothing (servers_aside.c) ------------------------------ */

/* Where the job is: the version of the parameters that the trainer has. Versions count all
 * steps. */
int64_t wf_dist_at(const weft_trainer *t);
/* The version that the last update led to: without the steps of a validation after it. */
int64_t wf_dist_trained(const weft_trainer *t);

/* A validation by all workers. */
struct wf_dist_validation {
    int n_slots;          /* batches of a step; 0: there are no such steps */
    bool begun;           /* no update has been made since */
    int64_t rounds;       /* steps of it so far, */
    int64_t batches;      /* and batches */
    const double *totals; /* what they add up to: as wf_logs_totals counts them */
};
struct wf_dist_validation wf_dist_validation(const weft_trainer *t);
/* Batch `number` of the validation data: what it adds to the totals. *end: there is none. */
typedef weft_status wf_evaluate_fn(void *arg, int64_t number, double *sums, bool *end);
/* The next step of a validation. As a step it may be given up: wf_dist_turned. */
weft_status wf_dist_evaluate(weft_trainer *t, wf_evaluate_fn *fn, void *arg);

/* rows.c: where a weight is that is trained; NULL: it is none, or the trainer is not bound yet. */
const struct wf_segment *wf_weight_segment(const weft_trainer *t, const char *name);
/* A callback sets rows of a table that servers hold: they are part of the next control record. */
weft_status wf_dist_set_rows(weft_trainer *t, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, const float *rows);
/* Rows that tables got before the first step are initial ones again: a checkpoint has others. */
void wf_dist_drop_rows(weft_trainer *t);
/* Whether somebody has changed the trainer's parameters or state since the last step. */
bool wf_dist_changed(weft_trainer *t);
/* What callbacks have set since the last step replaces these rows, which servers have given. */
weft_status wf_dist_read_set(weft_trainer *t, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, float *rows);
/* A callback keeps the present values of all tables that servers hold, with what it and those
 * before it have set; or all of them get the values that were kept last. Part of the next control
 * record. */
weft_status wf_dist_keep(weft_trainer *t);
weft_status wf_dist_restore(weft_trainer *t);
/* Before the first step, or of a job that goes back: what a checkpoint says was kept, as
 * wf_tables_set_kept takes it. */
weft_status wf_dist_set_kept(weft_trainer *t, weft_work *w, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, const float *rows);
/* Appends parameters, state and what is done with tables, for a control record. ends: training ends
 * in the middle of a step; no other step can replace it, and workers alone get the values.
 * WEFT_ENOSUP: callbacks have done something with tables. */
weft_status wf_dist_put_values(weft_trainer *t, bool ends, struct wf_buf *out);
/* After such a record (it may be without tables), on every worker: the steps that replace them on
 * the servers, and here, from the step with number `done` on. One may be given up: wf_dist_turned.
 * fresh: an epoch begins after them. */
weft_status wf_dist_set(weft_trainer *t, const char *p, int64_t n, int64_t done, bool fresh);
/* How many steps these are. */
int64_t wf_dist_set_steps(const weft_trainer *t, const char *p, int64_t n);
/* Whether the last step was such a one: the next has no control record of its own. */
bool wf_dist_was_set(const weft_trainer *t);

/* ---- the end --------------------------------------------------------------------------------- */

/* Copies of the current version on all servers, for a checkpoint (ps/saving.h). */
struct wf_ps_save;
weft_status wf_dist_save(weft_trainer *t, struct wf_ps_save **out);
/* The fit is over. quit: this worker goes, and others compute its shards. */
void wf_dist_led(weft_trainer *t, bool quit);
/* After a step that failed: whether it was given up, because of what *turn says. */
bool wf_dist_turned(weft_trainer *t, enum wf_turn *turn);

/* How many replicas a strategy of the table has with these devices (weft_ctx_opts). */
int wf_dist_count(const char *strategy, const char *devices);

/* A row of the table; WEFT_ENOENT with the nearest name if there is none. */
weft_status wf_dist_find(const char *name, const weft_strategy **out);

/* One batch of the trainer's current step; `first`: the number of its first shard. If it fails, the
 * step is dropped. */
weft_status wf_dist_batch(weft_trainer *t, struct wf_work *w, const struct wf_samples *batch,
                          int64_t first);
/* Before a checkpoint: what the strategy holds elsewhere comes here. */
weft_status wf_dist_bring(weft_trainer *t);
/* The end of the step: apply and commit. */
weft_status wf_dist_apply(weft_trainer *t, struct wf_work *w);

#endif
