/* weight.h - what a weight is subject to besides its gradient: a penalty and a constraint.
 *
 * Both are plain numbers, as the rows of optimizers are, so that whoever owns the vectors needs no
 * model code. An l1 or l2 penalty and non_neg work element by element; the others look at whole
 * rows or axes, and their variable is never cut. */
#ifndef WF_OP_WEIGHT_H
#define WF_OP_WEIGHT_H

#include "tensor/tensor.h"

/* A term of the loss that depends on one weight alone; all zero: none.
 *   l1 sum|w| + l2 sum(w^2) + orthogonal times the mean |cosine| over all pairs of rows. */
struct wf_penalty {
    double l1, l2, orthogonal;
    bool columns; /* orthogonal: pairs of columns */
};

enum wf_constraint_kind {
    WF_CONSTRAINT_NONE,
    WF_CONSTRAINT_NON_NEG,
    WF_CONSTRAINT_NORM, /* the norm along the axes is moved into [min, max] at `rate` */
    WF_CONSTRAINT_UNIT  /* it becomes 1 */
};

/* What holds for a weight after each update. */
struct wf_constraint {
    enum wf_constraint_kind kind;
    double min, max, rate;
    int n_axes;
    int64_t axes[WEFT_MAX_RANK]; /* in [0, rank) */
};

/* Rows of a looked-up table that are forgotten: at steps divisible by `every`, those that no step
 * has updated for `unused` steps, unless min_count steps or more have updated them. */
struct wf_evict {
    int64_t every, unused; /* both 1 or more; every 0: none are */
    int64_t min_count;     /* 0: however many have */
};

/* What is known of a row: the last step that has updated it, and how many have. */
struct wf_seen {
    int64_t last, count;
};

/* Whether a row is gone after step `step`: as if it had never been updated. It depends on nothing
 * else, so whoever has the row knows it, whenever they look. */
static inline bool wf_evicted(const struct wf_evict *e, const struct wf_seen *s, int64_t step)
{
    return e->every > 0 && step / e->every * e->every - s->last >= e->unused &&
           (e->min_count == 0 || s->count < e->min_count);
}

/* A step has updated or set the row: it counts once, however often. count 0: it is new. */
static inline void wf_see(struct wf_seen *s, int64_t step)
{
    s->count += s->count == 0 || s->last != step;
    s->last = step;
}

static inline bool wf_penalty_any(const struct wf_penalty *p)
{
    return p->l1 != 0 || p->l2 != 0 || p->orthogonal != 0;
}

/* Whether an element's update looks at others of its variable. */
static inline bool wf_weight_whole(const struct wf_penalty *p, const struct wf_constraint *c)
{
    return p->orthogonal != 0 || c->kind == WF_CONSTRAINT_NORM || c->kind == WF_CONSTRAINT_UNIT;
}

#endif
