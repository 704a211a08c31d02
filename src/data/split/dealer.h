/* dealer.h - shared by the files of the dealer. */
#ifndef WF_DATA_SPLIT_DEALER_H
#define WF_DATA_SPLIT_DEALER_H

#include "data/data.h"

#define WF_DEALER_PREPARED 64 /* shards that may be prepared, or be in preparation */

enum wf_task_state { WF_TASK_FREE, WF_TASK_WANTED, WF_TASK_RUNNING, WF_TASK_DONE };

/* A shard that was announced. */
struct wf_task {
    enum wf_task_state state;
    int64_t t, l;
    weft_batch *batch;
    weft_status st;
    char *error;
};

/* A step that the reader has dealt: its batch, or its samples where they are stacked per shard. */
struct wf_dealt {
    int64_t epoch, number, n;
    weft_batch *batch;
    struct wf_block *samples;
};

struct weft_dealer {
    weft_data *data;
    weft_ctx *ctx;
    struct wf_ds *ds;      /* its elements are the batches */
    struct wf_ds *batch;   /* the node that makes them of samples; NULL: batches are the unit */
    struct wf_ds *samples; /* its input */
    struct wf_ds **after;  /* nodes from it to ds, which change rows; the last one first */
    int n_after;
    int64_t n; /* samples per batch; 0: batches are the unit */
    bool drop_remainder;
    int64_t n_shards, steps_per_epoch, max_open;
    pthread_mutex_t lock;
    int64_t committed;               /* steps below it are done */
    int64_t first_step, first_epoch; /* step first_step is the first of that epoch */
    struct wf_env *env;              /* for shards computed, or restored */
    _Atomic int64_t first_ns, waited_ns;
    _Atomic bool warned;
    /* by number */
    pthread_cond_t work, done;
    struct wf_task task[WF_DEALER_PREPARED];
    int n_tasks; /* of them may be in use: the others were never needed */
    bool stop;
    int n_threads;
    pthread_t *thread;
    int64_t *followed; /* by shard: the last step that `follow` announced; NULL: it does not */
    int64_t depth;     /* how many steps ahead it announces */
    int64_t end;       /* steps from it on are not announced */
    /* a reader */
    weft_iter *it;
    bool grouped; /* it reads samples, which get stacks per shard */
    int64_t next; /* the step that the reader deals next; those from `committed` on are kept */
    int64_t next_epoch, next_number;
    bool at_end;           /* of next_epoch */
    struct wf_dealt *kept; /* step t is at t % max_open */
};

/* Where a step is. */
struct wf_step_at {
    int64_t epoch, number, n;
};

/* ---- dealer.c -------------------------------------------------------------------------------- */

/* By number: epoch, number and size of step t. */
weft_status wf_dealer_locate(const weft_dealer *a, int64_t t, struct wf_step_at *out);
/* Samples [*first, *first + *m) of a batch of n are shard l. */
void wf_dealer_cut(const weft_dealer *a, int64_t n, int64_t l, int64_t *first, int64_t *m);
/* Shard (t, l), computed now. */
weft_status wf_dealer_compute(weft_dealer *a, int64_t t, int64_t l, weft_batch **out);
/* A batch of samples of which m count: 0, or all. Consumes b. */
weft_status wf_dealer_stack(weft_dealer *a, struct wf_block *b, int64_t m, weft_batch **out);

/* ---- ahead.c --------------------------------------------------------------------------------- */

weft_status wf_ahead_start(weft_dealer *a, int threads, bool follow);
void wf_ahead_stop(weft_dealer *a);
/* What was prepared for a shard, if anything: *found. Announces later ones, if the dealer
 * follows. */
weft_status wf_ahead_take(weft_dealer *a, int64_t t, int64_t l, bool *found, weft_batch **out);
/* Steps up to t are done. The lock is held. */
void wf_ahead_commit(weft_dealer *a, int64_t t);
/* Nothing is prepared, and nothing is in preparation. The lock is held. */
void wf_ahead_clear(weft_dealer *a);

/* ---- reader.c -------------------------------------------------------------------------------- */

weft_status wf_reader_start(weft_dealer *a, const weft_dealer_opts *o);
void wf_reader_stop(weft_dealer *a);
static inline struct wf_dealt *wf_kept_at(weft_dealer *a, int64_t t)
{
    return &a->kept[t % a->max_open];
}
/* All with the lock held. */
weft_status wf_reader_get(weft_dealer *a, int64_t t, int64_t l, weft_batch **out);
/* Whether step t belongs to the epoch; reads up to it, but no other epoch. */
weft_status wf_reader_has(weft_dealer *a, int64_t epoch, int64_t t, bool *has);
weft_status wf_reader_begin(weft_dealer *a, int64_t epoch);
/* Frees kept steps below `upto`. */
void wf_reader_let_go(weft_dealer *a, int64_t upto);

#endif
