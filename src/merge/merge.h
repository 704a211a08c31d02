/* merge.h - the door of the merge layer: how contributions become parameters.
 *
 * A step is computed in shards. What one shard gives is a contribution: gradients of the sums of
 * its losses, the rows of looked-up tables, and sums of everything else. Contributions are added
 * along one binary tree over shard numbers, divided once, penalties are added, and then come
 * clipping, the optimizer and constraints. This is the only place where gradients become
 * parameters, whoever calls it: this process, a server, the owner of a range in an all-reduce.
 *
 * Everything works by ranges, cut at blocks of 4096 elements from the start of each variable: any
 * cut, any number of threads and any order of arrival give the same bits. Nothing here knows of
 * graphs or models. */
#ifndef WF_MERGE_H
#define WF_MERGE_H

#include "kernels/cpu/initial.h"
#include "kernels/cpu/optim.h"
#include "op/schedule.h"
#include "op/weight.h"
#include "tensor/tensor.h"

/* ---- rules ----------------------------------------------------------------------------------- */

/* A trained variable. */
struct wf_var {
    const char *name;
    int rank;
    int64_t dim[WEFT_MAX_RANK], count;
    bool table;             /* [rows, width]: its gradient is the rows that were looked up */
    struct wf_initial init; /* of a table: what its rows are before they are updated, */
    struct wf_evict evict;  /* and when they become that again */
    int64_t offset;         /* others: in the flat vectors */
    struct wf_penalty penalty;
    struct wf_constraint constraint;
    int server;  /* 1 + k: it is placed on parameter server k; 0: anywhere */
    bool copied; /* leases give a copy of it, not what is subtracted (copies, below) */
};

/* What a job does with its contributions. */
struct wf_rules {
    const struct wf_optim_row *optim;
    double attrs[WF_OPTIM_MAX_ATTRS];
    const struct wf_schedule_row *schedule; /* NULL: the rate is given, or an attribute */
    const double *schedule_attrs;
    int n_schedule;
    int n_vars;
    struct wf_var *var;
    int64_t n_dense; /* elements of the flat vectors */
    int n_groups;    /* losses with different denominators */
    bool whole;      /* one shard a step, one group: the gradient of the mean, undivided */
    bool uncut;      /* no variable is cut: whoever updates a part of one has all of it */
    bool copies;     /* a lease trains a copy: the first sum is its share, and what it gives of
                      * state and `copied` variables is the copy; servers go to it by the share */
    int64_t n_sums;  /* f64: the groups' denominators, the number of samples, then anything */
};

static inline int64_t wf_rules_samples(const struct wf_rules *r)
{
    return r->n_groups;
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Rows of one table: distinct ids, in the order of their first sample. */
struct wf_rows {
    int64_t n, cap_ids, cap_rows;
    int64_t *id;
    float *row; /* [n][width] */
};

/* Memory that is used again. */
struct wf_scratch {
    char *mem;
    int64_t cap;
};

/* Where contributions have their dense gradients, if not in memory of the context. */
struct wf_dense_memory {
    void *arg;
    float *(*get)(void *arg, int64_t n); /* zeros at first; NULL: there is none left */
    void (*put)(void *arg, float *dense);
};

/* Dense gradients in the memory of a device (lane.h). */
struct wf_away_dense {
    struct wf_lane *lane; /* NULL: they are in the host's memory */
    float *dense;
    struct wf_lane *reader;  /* whose sum number n_read reads them; NULL: none */
    int64_t n_read, n_wrote; /* n_wrote: the lane's own sum that wrote them last */
};

struct wf_contribution {
    weft_ctx *ctx;
    const struct wf_rules *rules;
    bool finite;
    float *dense;                         /* [n_groups][n_dense] */
    const struct wf_dense_memory *memory; /* that dense is from; NULL: the context's */
    const float *lent;   /* NULL, or the dense gradients are there, and not in dense: only read */
    int64_t lent_stride; /* from one group to the next */
    struct wf_away_dense away; /* of a contribution of a device: dense is NULL */
    struct wf_rows *rows;      /* [n_groups][n_vars], empty for those that are not tables */
    double *sums;              /* [n_sums] */
    struct wf_scratch scratch;
};

/* The rules are borrowed. Contents are those of a shard without samples. */
weft_status wf_contribution_new(weft_ctx *ctx, const struct wf_rules *rules,
                                struct wf_contribution **out);
/* With dense gradients in the memory of a lane's device. */
weft_status wf_contribution_new_away(weft_ctx *ctx, const struct wf_rules *rules,
                                     struct wf_lane *lane, struct wf_contribution **out);
/* Without memory for dense gradients: they are lent. */
weft_status wf_contribution_new_lent(weft_ctx *ctx, const struct wf_rules *rules,
                                     struct wf_contribution **out);
void wf_contribution_free(struct wf_contribution *c);
/* The dense gradients of a group. */
static inline const float *wf_contribution_group(const struct wf_contribution *c, int k)
{
    return c->lent ? c->lent + k * c->lent_stride : c->dense + k * c->rules->n_dense;
}
/* What is lent is copied, so that it can be changed. */
weft_status wf_contribution_own(struct wf_contribution *c);
/* Without samples, rows and sums. The dense gradients stay as they are: whoever fills a
 * contribution writes those of every variable. */
void wf_contribution_clear(struct wf_contribution *c);
/* Room for n rows in all. */
weft_status wf_rows_reserve(weft_ctx *ctx, struct wf_rows *r, int64_t n, int64_t width);
/* Fills r with looked-up rows: ids i32 or i64 of any shape, rows [ids…, width]. Those of one id are
 * added in sample order. An id outside of [0, n_rows) is WEFT_EDATA. */
weft_status wf_rows_collect(weft_ctx *ctx, struct wf_scratch *scratch, struct wf_pool *pool,
                            const weft_tensor *ids, const weft_tensor *rows, int64_t n_rows,
                            struct wf_rows *r);
/* to = from; to += from. On failure `to` is as before, or is to be cleared. Contributions of
 * devices are only added to each other. */
weft_status wf_contribution_copy(struct wf_contribution *to, const struct wf_contribution *from);
weft_status wf_contribution_add(struct wf_pool *pool, struct wf_contribution *to,
                                struct wf_contribution *from);
/* to[i] += factor · from[i] for rows; a row that `to` lacks is appended. */
weft_status wf_rows_add(weft_ctx *ctx, struct wf_scratch *scratch, struct wf_rows *to,
                        const struct wf_rows *from, int64_t width, float factor);

/* ---- logs ------------------------------------------------------------------------------------ */

/* What a batch logs, as sums: the groups' denominators, the number of samples, means, the groups'
 * losses, metrics. */
struct wf_log_rules {
    int n_batches; /* of a step, each with its own sums */
    int n_means;
    const int *mean_group; /* by mean: its group; not of the first, the loss */
    int64_t n_metrics;
    int n_slots; /* batches of validation data in a step of servers, each with its own totals */
};

/* The totals of an epoch. */
struct wf_log_totals {
    double *mean, *weight, *metric;
};

int64_t wf_logs_sums(const struct wf_rules *r, const struct wf_log_rules *l);
/* How many numbers the totals are. */
int64_t wf_logs_totals(const struct wf_log_rules *l);
/* How many numbers a step logs. */
int64_t wf_logs_step(const struct wf_rules *r, const struct wf_log_rules *l);
/* Adds a batch that has samples. */
void wf_logs_add(const struct wf_rules *r, const struct wf_log_rules *l, const double *sums,
                 struct wf_log_totals *to);

/* ---- the loss scale of f16 (scale.c) --------------------------------------------------------- */

/* The state of the loss scale. */
enum {
    WF_SCALE,             /* what the loss is multiplied by */
    WF_SCALE_GOOD,        /* steps since it changed */
    WF_SCALE_SKIPPED,     /* steps skipped so far */
    WF_SCALE_SKIPPED_NOW, /* in the current pass */
    WF_SCALE_STATE
};
#define WF_SCALE_LEAST 0x1p-24
#define WF_SCALE_MOST 0x1p40

/* After a step: a number of good ones in a row doubles the scale, one that was skipped halves it.
 * Below WF_SCALE_LEAST training has failed. */
void wf_scale_next(double *state, double growth, bool good);

/* ---- the tree -------------------------------------------------------------------------------- */

/* The sum over shard numbers: node (level, index) covers the numbers [index 2^level, (index + 1)
 * 2^level) and is its left half plus its right half. An absent shard keeps its number: absent + x =
 * x. Halves are added as soon as both are there, whatever the order of arrival; a lazy tree keeps
 * them for wf_merge_pass, or until their sum is requested. One thread at a time. */
struct wf_tree {
    weft_ctx *ctx;
    struct wf_pool *pool;
    const struct wf_rules *rules;
    struct wf_tree_node {
        int level;
        int64_t index;
        struct wf_contribution *sum; /* NULL: absent */
    } * node;
    int64_t n_nodes, cap_nodes;
    struct wf_contribution **spare;
    int64_t n_spare, cap_spare;
    bool lazy;
    const struct wf_dense_memory *memory; /* borrowed; NULL: the context's */
};

void wf_tree_init(struct wf_tree *t, weft_ctx *ctx, struct wf_pool *pool,
                  const struct wf_rules *rules);
void wf_tree_free(struct wf_tree *t);
/* Frees what is not used. */
void wf_tree_trim(struct wf_tree *t);
/* A cleared contribution to fill; it goes back by wf_tree_put or wf_tree_give. */
weft_status wf_tree_take(struct wf_tree *t, struct wf_contribution **out);
/* The same with dense gradients in the memory of a device. */
weft_status wf_tree_take_away(struct wf_tree *t, struct wf_lane *lane,
                              struct wf_contribution **out);
void wf_tree_give(struct wf_tree *t, struct wf_contribution *c);
/* The same for dense gradients that are elsewhere: [n_groups], `stride` elements apart. They stay
 * as they are until the tree is empty. */
weft_status wf_tree_lend(struct wf_tree *t, const float *dense, int64_t stride,
                         struct wf_contribution **out);
/* One shard (level 0) or the sum of a complete subtree; NULL: absent. c belongs to the tree
 * afterwards, even after a failure. WEFT_EEXIST if a part of it was already put: nothing
 * changes. */
weft_status wf_tree_put(struct wf_tree *t, int level, int64_t index, struct wf_contribution *c);
/* The sum of all; those that were not put are absent. *out: NULL if all are, otherwise the
 * caller's, to be given back. The tree is empty afterwards. The sum of contributions of devices may
 * be on any of them: wf_tree_bring moves it to the host, or copies it to another lane. */
weft_status wf_tree_sum(struct wf_tree *t, struct wf_contribution **out);
weft_status wf_tree_bring(struct wf_tree *t, struct wf_lane *lane, struct wf_contribution **c);
void wf_tree_clear(struct wf_tree *t);
/* The sums (n_sums, finite) of all, in those of a contribution that the tree keeps; the dense
 * gradients are not added. Once. NULL: none has samples. */
struct wf_contribution *wf_tree_total(struct wf_tree *t);

/* ---- updates --------------------------------------------------------------------------------- */

/* Elements [first, first + n) of a variable, at `at` in the vectors of their owner. It
 * begins at a multiple of 4096 and ends at one, or at the variable's end; of tables, whole rows. */
struct wf_piece {
    int var;
    int64_t first, n, at;
};

/* The parameters that are updated. from: NULL, or they are there before the update, and stay. */
struct wf_version {
    const float *from;
    float *params, *slot[WF_OPTIM_MAX_SLOTS];
    struct wf_table_data { /* by variable: of tables */
        float *w, *slot[WF_OPTIM_MAX_SLOTS];
    } * table;
    bool streams; /* params, made from `from`, are larger than the caches */
};

/* Sums over one block, for norms that the owners of other blocks need, too. */
struct wf_partial {
    int64_t block; /* numbered over all variables */
    double a, b;
};

/* One step. */
struct wf_step {
    int64_t iteration; /* 1 in the first step */
    bool has_rate;
    float rate;         /* given, in place of the schedule's or the attribute's */
    const bool *chosen; /* by variable: only these; NULL: all */
};

struct wf_merge {
    weft_ctx *ctx;
    struct wf_pool *pool;
    const struct wf_rules *rules;
    const struct wf_optim_fns *fns;
    int n_pieces;
    struct wf_piece *piece;
    int64_t n_blocks;
    struct wf_merge_block *block; /* of all dense pieces */
    int64_t *first_block;         /* by variable, and the end */
    struct wf_partial *partial;
    int64_t n_partials, cap_partials;
    float *scale, *clip, *scratch; /* by variable: LAMB's ratio; factor of clipping */
    int32_t *pick;
    int64_t cap_pick;
    int64_t *order;
    int64_t cap_order;
};

/* pieces: what this updater holds; NULL: everything, at the variables' offsets. */
weft_status wf_merge_new(weft_ctx *ctx, struct wf_pool *pool, const struct wf_rules *rules,
                         int n_pieces, const struct wf_piece *pieces, struct wf_merge **out);
void wf_merge_free(struct wf_merge *m);

/* A sum becomes the mean, with penalties, in place (group 0). params: those that the gradients
 * belong to. */
weft_status wf_merge_mean(struct wf_merge *m, struct wf_contribution *sum, const float *params);
/* The same for the rows of tables alone. */
weft_status wf_merge_mean_rows(struct wf_merge *m, struct wf_contribution *sum);
/* By group: what its sum is multiplied with. WEFT_ELIMIT if there are more than `room`. */
weft_status wf_merge_factors(const struct wf_rules *r, const double *sums, int room, float *factor);
/* The rounds of an update. With more than one updater, each round's partials of all are put
 * together before the next; wf_merge_norms gives none where no norm is needed. */
weft_status wf_merge_norms(struct wf_merge *m, const struct wf_contribution *mean,
                           const struct wf_step *step);
/* Factors by variable, from the partials of all; they are sorted in place. */
void wf_merge_scales(const struct wf_rules *rules, const int64_t *first_block, int64_t n,
                     struct wf_partial *partial, float *scale);
weft_status wf_merge_update(struct wf_merge *m, const struct wf_contribution *mean,
                            const struct wf_step *step, const float *scale, struct wf_version *v);
/* The same for some rows of a table wherever they are, as their owner lists them. */
void wf_merge_update_rows(struct wf_merge *m, int var, const struct wf_step *step,
                          const float *scale, const struct wf_optim_table *rows);
/* LAMB's second half, from the partials of all that wf_merge_update gave, and constraints. */
void wf_merge_finish(struct wf_merge *m, const struct wf_step *step, int64_t n,
                     struct wf_partial *partial, const float *scale, struct wf_version *v);
/* The contributions of a lazy tree (sums: wf_tree_total) as the mean with penalties, and the update
 * by it, in one pass over blocks. mean: [n_dense], NULL: it is not kept. v: NULL: no update; not
 * for LAMB and not where norms decide. Then wf_merge_finish. */
weft_status wf_merge_pass(struct wf_merge *m, const struct wf_tree *tree,
                          const struct wf_contribution *sums, const float *params, float *mean,
                          const struct wf_step *step, const struct wf_version *v);
/* Whether it can be used: with few shards, without tables and penalties on whole variables. */
enum { WF_PASS_SHARDS = 8 };
bool wf_merge_passes(const struct wf_rules *rules, int n_pieces, const struct wf_piece *pieces,
                     int n_shards);
/* All rounds, for one updater that holds everything. */
weft_status wf_merge_step(struct wf_merge *m, const struct wf_contribution *mean,
                          const struct wf_step *step, struct wf_version *v);
/* Only the constraints: for updates that were made elsewhere by the same kernels. */
void wf_merge_constrain(struct wf_merge *m, const struct wf_step *step, struct wf_version *v);

/* The clipping mode of the rules. */
enum wf_clip { WF_CLIP_NONE, WF_CLIP_EACH, WF_CLIP_GLOBAL };
enum wf_clip wf_rules_clip(const struct wf_rules *r);

#endif
