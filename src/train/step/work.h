/* work.h - a trainer's steps as contributions: the rules that merge them, and how one shard becomes
 * a contribution.
 *
 * A trainer whose steps are not split, with one group of losses, gives the gradient of the mean;
 * all others give gradients of sums, one for each group of losses with the same denominator. */
#ifndef WF_TRAIN_STEP_WORK_H
#define WF_TRAIN_STEP_WORK_H

#include "merge/merge.h"
#include "train/step/deal.h"
#include "weft/sys/strategy.h"

/* The samples of a batch: tensors of all of them, or dealt shard by shard. */
struct wf_samples {
    int64_t n;
    const weft_tensor *feeds; /* NULL: they are dealt */
    const struct wf_deal *deal;
};

/* What computes shards: a function with memory of its own. */
struct wf_replica {
    weft_fn *fn;
    struct wf_lane *lane; /* its gradients stay on its device; NULL: they come to the host */
    weft_tensor *fetch, *feeds;
    char *state;            /* its own copy of all state; NULL: it works on the trainer's */
    float *params;          /* that it reads, borrowed; NULL: the trainer's */
    const float *const *at; /* as in struct wf_base; NULL: they are in params */
    uint64_t binding;
    int64_t n;            /* samples of the shard that is computed */
    float scale, unscale; /* of the loss; 1 / scale */
};

/* State that is merged: a weighted mean over the shards. */
struct wf_merged {
    int64_t offset, count; /* bytes into the state vector, elements */
};

/* Shards that nobody computes from samples: what a program gives. */
struct wf_by_hand {
    weft_status (*give)(void *arg, int64_t number, weft_given *out); /* as weft_work_compute */
    void *arg;
};

struct wf_work {
    weft_ctx *ctx;
    weft_trainer *t;
    struct wf_bound *b;
    struct wf_arena arena;
    struct wf_rules rules;
    int *weight;                   /* by variable of the rules: its number in the model */
    int32_t *segment;              /* and its segment */
    int *var_of;                   /* by segment: the variable, -1: none */
    bool constrained;              /* any variable is */
    struct wf_remote_rows *remote; /* by variable: of tables that the strategy holds; NULL: none */
    struct wf_rows *moved;         /* rows by position in its memory */
    struct wf_version now;         /* the trainer's parameters */
    struct wf_merge *merge;
    struct wf_there *there; /* updates in the memory of the trainer's device; NULL: not made */
    bool unscales;          /* the gradient function divides by the scale of the loss, and checks */
    struct wf_tree tree;
    /* The gradient function: fetches, and what it leaves where. */
    bool made;
    weft_val scale;   /* fed after the others: of the loss; nil: it is not scaled */
    weft_val unscale; /* and, if it unscales, 1 divided by it */
    weft_val finite;  /* then, whether all dense gradients are */
    int at_finite;    /* its fetch */
    int at_metrics, at_loss, at_weight, at_penalty, n_fetches; /* fetches; -1: none */
    int *at_rows;  /* [n_groups][n_vars]: of ids, rows follow; -1: none */
    bool *reached; /* [n_groups][n_vars]: the gradient is written */
    weft_gradient *gradient;
    int n_gradients;
    weft_val *fetch;
    /* Sums besides gradients: the groups' denominators and the samples, then state; and those that
     * are logged, which are added for each batch: the same, then means, the groups' losses,
     * metrics. */
    int64_t sum_state, log_means, log_losses, log_metrics;
    struct wf_rules log_rules;
    struct wf_log_rules logged;
    struct wf_tree log_tree;
    pthread_mutex_t lock; /* of both trees */
    int n_merged;
    struct wf_merged *merged;
    struct wf_replica *replica;
    int n_replicas;
    struct wf_snapshot *start; /* all state that shards write, from before the step */
    bool began;                /* the step has begun: start is filled */
    struct wf_by_hand by_hand; /* give NULL: shards are computed */
    struct wf_round *round;    /* NULL: gradients are merged, not copies of the parameters */
    /* The batch whose shards are computed. */
    struct wf_samples batch;
    struct wf_deal dealt; /* where it is, if it is dealt */
    int64_t first, key;   /* numbers of its first shard, in the tree and for random numbers */
};

/* Makes sure that there are n replicas; names: of their devices, NULL: they are where the trainer
 * is. */
weft_status wf_work_replicas(struct wf_work *w, int n, const char *const *names);
/* The work of the trainer's graph; created on first use. */
weft_status wf_work_get(weft_trainer *t, struct wf_work **out);
void wf_work_free(struct wf_work *w);
/* Shards of this batch may be computed: `first` is the number of its first one. */
weft_status wf_work_batch(struct wf_work *w, const struct wf_samples *batch, int64_t first,
                          int64_t key);
/* What shard l of the batch, its samples [first, first + n), feeds: into r->feeds. *held: what they
 * are borrowed from, freed afterwards; or NULL (deal.c). */
weft_status wf_work_feeds(const struct wf_work *w, struct wf_replica *r, int64_t l, int64_t first,
                          int64_t n, weft_batch **held);
/* Room for what a shard gives, given back with weft_work_give. r: where it is computed; NULL: on
 * the host. */
weft_status wf_work_room(struct wf_work *w, const struct wf_replica *r, weft_given *out);
/* All sums of devices are known to be done. */
void wf_work_quiet(struct wf_work *w);
/* All shards of the batch were put: its logs are added to those of the pass. */
weft_status wf_work_end_batch(struct wf_work *w);
/* The step is abandoned: state is as before it. */
void wf_work_drop(struct wf_work *w);
/* What was put into the tree as the mean, with penalties. Given back with wf_tree_give. */
weft_status wf_work_mean(struct wf_work *w, struct wf_contribution **out);
/* The merged state, unless the step is skipped: then it is as before. */
void wf_work_take_state(struct wf_work *w, const struct wf_contribution *c);
/* One step of the optimizer over the chosen variables, NULL: all. Skipped if the loss is scaled and
 * a gradient is not finite. */
weft_status wf_work_step(struct wf_work *w, const struct wf_contribution *mean, const bool *chosen);
/* The parameters are at the next version: the step counts. */
void wf_work_done(struct wf_work *w);
/* The step was made elsewhere: the parameters are at the next version, or it was skipped there,
 * as a step of a scaled loss may be. sums: those of the rules; totals: those of the pass
 * (wf_logs_totals). */
weft_status wf_work_took(struct wf_work *w, double *sums, const double *totals, bool updated);
/* The same for the version that the trainer has, so that wf_work_took gives it back: its state as
 * that of one sample, and the totals of the pass so far. The state is in this memory. */
void wf_work_put_sums(const struct wf_work *w, double *sums, double *totals);
/* For `ready`: the denominators and the samples of the shard that a replica computes, the first
 * n_groups + 1 sums of its contribution. False: they are not known yet. */
bool wf_work_denominators(const struct wf_work *w, const struct wf_replica *r, double *sums);
/* remote.c: tables that the trainer's strategy holds; NULL if it holds none. */
const struct wf_remote *wf_trainer_remote(weft_trainer *t, struct wf_remote *r);
weft_table wf_table_of(weft_ctx *ctx, const struct wf_segment *seg);
/* A table that the strategy holds, as a whole: after wf_dist_bring, its rows and slots [n_rows,
 * width]; and back, before the first step, those that are not initial ones. seen: NULL, or what is
 * known of each row, if the table forgets rows. */
weft_status wf_table_dense(weft_trainer *t, const struct wf_segment *seg, float *rows,
                           float *const *slot, struct wf_seen *seen);
weft_status wf_table_store(weft_trainer *t, const struct wf_segment *seg, const float *rows,
                           const float *const *slot);
/* Its values alone, [n_rows, width]: as they are now; and others, before the first step, while
 * slots stay as they are. */
weft_status wf_table_values(weft_trainer *t, const struct wf_segment *seg, float *rows);
weft_status wf_table_set_values(weft_trainer *t, const struct wf_segment *seg, const float *rows);
/* evict.c: tables that forget rows. The segments of the trainer's store get their rules, and memory
 * to count in. */
weft_status wf_evict_open(weft_trainer *t);
/* After a step: its rows are counted, and those that are to be forgotten become initial ones. */
weft_status wf_evict_step(struct wf_work *w, const struct wf_contribution *mean,
                          const struct wf_step *step);
weft_status wf_remote_new(struct wf_work *w);
void wf_remote_free(struct wf_work *w);
/* wf_merge_step, with rows where the strategy has them. While numerics are trapped they are copied
 * before; check finds the first value that is not finite, restore copies the rows back. */
weft_status wf_remote_step(struct wf_work *w, const struct wf_contribution *mean,
                           const struct wf_step *step);
weft_status wf_remote_check(const struct wf_work *w);
void wf_remote_restore(struct wf_work *w);
/* The constraints alone, after an update by the trainer's own function. */
weft_status wf_work_constrain(struct wf_work *w);
/* Before parts of the trainer's store (enum wf_store_part) are read and written here: brings them
 * from the device that it trains on, if it is another memory. */
weft_status wf_work_open(struct wf_work *w, unsigned parts);

#endif
