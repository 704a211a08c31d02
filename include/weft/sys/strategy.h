/* weft/sys/strategy.h - for authors of distribution strategies: how the shards of a step are
 * computed, and how their gradients become parameters.
 *
 * A step t is computed in shards, numbered from 0: with L logical shards and `accumulate` batches
 * a step, shard l of batch a has the number a L + l. What a shard gives (gradients of sums, their
 * denominators, sums of state and logs) is a contribution; contributions are added along one
 * binary tree over their numbers, whoever computes them. So a strategy decides where shards are
 * computed and where ranges of the parameters are updated, never what the result is.
 *
 * The training loop calls, for each step: compute once a batch, then apply, then commit. All of
 * them by the thread that trains; compute may use other threads, each with a replica of its own.
 * need and ready are called by the thread that computes the shard. If any call fails, the step is
 * abandoned: parameters, state and step number are as before it, and its contributions are dropped.
 *
 * Tables of embeddings are not in the flat vectors. A strategy with need_rows holds them itself,
 * wherever it likes: this process then has no memory for them, and asks for the rows that it looks
 * up.
 *
 * weft/dist.h is what users of strategies see. */
#ifndef WEFT_SYS_STRATEGY_H
#define WEFT_SYS_STRATEGY_H

#include "weft/dist.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A trainer's steps, as a strategy sees them; borrowed. */
typedef struct wf_work weft_work;

/* Elements [offset, offset + count) of the flat vectors: all of one trained variable. */
typedef struct weft_range {
    const char *name; /* of the variable */
    int64_t offset, count;
    int group; /* of gradients: losses with different denominators have vectors of their own */
} weft_range;

#define WEFT_MAX_SLOTS 4 /* of a parameter: what optimizers keep */

/* A table: a trained variable [n_rows, width] that is only looked up. */
typedef struct weft_table {
    const char *name; /* of the variable */
    int64_t n_rows, width;
    int n_slots; /* of the optimizer, and their initial values; 0 before training */
    float slot_init[WEFT_MAX_SLOTS];
    const void *inside[2]; /* weft's own */
    /* Rows are counted, and forgotten by a rule (weft_weight_opts.evict): after its slots, a row
     * has two int64_t, the last step that has updated it and how many have. */
    bool counted;
} weft_table;

/* Rows of a table and of its slots: row `at[i]` of each of these arrays [.., width]. */
typedef struct weft_table_memory {
    float *rows, *slot[WEFT_MAX_SLOTS];
} weft_table_memory;

/* The initial values of rows: functions of the seed, the table's name and the row, so that a row
 * need not exist before it is updated. WEFT_ENOSUP for initializers whose values depend on each
 * other. */
WEFT_API weft_status weft_table_init(const weft_table *table, int64_t n, const int64_t *ids,
                                     float *rows);

/* What one shard gives; absent (both NULL) if the shard has no samples. */
typedef struct weft_given {
    struct wf_contribution *gradients, *logs;
} weft_given;

typedef struct weft_strategy {
    size_t size;
    const char *name, *doc;
    /* Steps that are not split, and whose whole gradient nothing else needs, may be updated by the
     * function that computes them: none of the calls below is made for them. */
    bool fused;
    /* Opens the strategy: *replicas in all processes, *local of them in this one, which are
     * numbered from *first on. arg: as given to weft_dist_open_with. */
    weft_status (*open)(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                        int *first);
    void (*close)(void *self); /* may be NULL */
    /* Computes those of the n shards from number `first` on that belong to this process, each once,
     * in any order: weft_work_compute, then weft_work_put or whatever the strategy does with
     * contributions. */
    weft_status (*compute)(void *self, weft_work *w, int64_t t, int64_t first, int64_t n);
    /* May be NULL. The range of the parameters is about to be read for the first time by shard
     * `number`: return when it is at version t. */
    weft_status (*need)(void *self, const weft_range *range, int64_t t, int64_t number);
    /* May be NULL. The gradient of the range is complete in the contribution's memory (gradients,
     * at group and offset), and does not change afterwards: it may be read until the contribution
     * is put or given back. event: when the bytes are really there; NULL: now. */
    weft_status (*ready)(void *self, const weft_range *range, int64_t t, int64_t number,
                         const float *gradients, void *event);
    /* May be NULL: tables are in this process's memory. Otherwise the strategy holds them, except
     * those that are updated as a whole (no_sparse, or with a regularizer); it is not fused. Row i
     * of `rows` becomes row ids[i] of the table at version t; the ids are distinct and valid.
     * number: the shard that looks them up, -1 for evaluation and predictions. */
    weft_status (*need_rows)(void *self, const weft_table *table, int64_t t, int64_t number,
                             int64_t n, const int64_t *ids, float *rows);
    /* May be NULL. The gradients of looked-up rows (of this group of losses) are complete, those of
     * one row added up; as for ready. */
    weft_status (*ready_rows)(void *self, const weft_table *table, int group, int64_t t,
                              int64_t number, int64_t n, const int64_t *ids, const float *rows,
                              void *event);
    /* For weft_work_update, together with need_rows: rows `ids` are about to be updated in *memory,
     * where row ids[i] and its slots are at position at[i]. It stays valid until apply returns, or
     * the step is abandoned. */
    weft_status (*rows_at)(void *self, const weft_table *table, int64_t t, int64_t n,
                           const int64_t *ids, weft_table_memory *memory, int64_t *at);
    /* All shards of step t are computed: brings the parameters to version t + 1 (weft_work_update),
     * or promises it. */
    weft_status (*apply)(void *self, weft_work *w, int64_t t);
    /* May be NULL. Step t is done: its samples and the state besides the parameters are final. It
     * counts even if this fails; the status is passed on. */
    weft_status (*commit)(void *self, weft_work *w, int64_t t);
    /* May be NULL. A checkpoint of version t is about to be written: the slots of the optimizer are
     * brought into this process's memory, if they are elsewhere. */
    weft_status (*bring)(void *self, weft_work *w, int64_t t);
    /* May be NULL. need_rows will be called for these rows in the same shard, if their ids are
     * valid; they may repeat. */
    weft_status (*want_rows)(void *self, const weft_table *table, int64_t t, int64_t number,
                             int64_t n, const int64_t *ids);
    /* Both may be NULL, for strategies with need_rows: without them there are no checkpoints of
     * tables. After bring: calls fn for every row of the table that was ever updated, with its
     * slots after it. Before the first step: rows of a checkpoint of version t; those that are
     * not given are initial ones. slot: by slot, [n][width]; and slot[n_slots], the [n][2] int64_t
     * of a counted table. */
    weft_status (*each_row)(void *self, const weft_table *table,
                            void (*fn)(void *arg, int64_t id, const float *row), void *arg);
    weft_status (*set_rows)(void *self, weft_work *w, const weft_table *table, int64_t t, int64_t n,
                            const int64_t *ids, const float *rows, const float *const *slot);
    /* May be NULL. The trainer is about to be freed: contributions are given back, and nothing of w
     * is used any more. */
    void (*leave)(void *self, weft_work *w);
} weft_strategy;

/* Opens a strategy that is not in the table; it is copied. */
WEFT_API weft_status weft_dist_open_with(weft_ctx *ctx, const weft_strategy *s, void *arg,
                                         weft_dist **out);

/* ---- for compute ----------------------------------------------------------------------------- */

/* Makes sure that there are n replicas in this process. They read the trainer's parameters; each of
 * several has its own copy of the other state. By one thread. WEFT_EINVAL for several replicas of a
 * model whose states carry over from batch to batch. */
WEFT_API weft_status weft_work_replicas(weft_work *w, int n);
/* Computes shard `number` of the current batch. Only its own samples are read, if they can be read
 * by number (weft/data_split.h); the same shard of the next batches is prepared meanwhile. Threads
 * may do this at the same time, each with another replica. *out is owned: put, or given back. */
WEFT_API weft_status weft_work_compute(weft_work *w, int replica, int64_t number, weft_given *out);
/* Adds a contribution to the step's tree in this process, whose it is afterwards. By any thread, in
 * any order; one that was already added is WEFT_EEXIST and changes nothing. */
WEFT_API weft_status weft_work_put(weft_work *w, int64_t number, weft_given *given);
/* Gives it back unused. */
WEFT_API void weft_work_give(weft_work *w, weft_given *given);

/* ---- for apply ------------------------------------------------------------------------------- */

/* The sum of all contributions, divided; penalties; then clipping, optimizer and constraints on the
 * trainer's parameters, and its merged state. By the thread that trains. */
WEFT_API weft_status weft_work_update(weft_work *w);

#ifdef __cplusplus
}
#endif
#endif
