/* pass.c - contributions that were not added up yet become a mean, or new parameters, in one pass:
 * block by block, while the block is in the cache.
 *
 * Kept true: the bits are those of wf_tree_sum, wf_merge_mean and wf_merge_update; nothing that a
 * tree lends is written. */
#include "merge/merge.h"

#include "kernels/cpu/weight.h"
#include "merge/block.h"

/* ---- what is added --------------------------------------------------------------------------- */

static const struct wf_tree_node *find(const struct wf_tree *t, int level, int64_t index)
{
    for (int64_t i = 0; i < t->n_nodes; i++)
        if (t->node[i].level == level && t->node[i].index == index)
            return &t->node[i];
    return NULL;
}

static bool has_below(const struct wf_tree *t, int level, int64_t index)
{
    for (int64_t i = 0; i < t->n_nodes; i++)
        if (t->node[i].level < level && t->node[i].index >> (level - t->node[i].level) == index)
            return true;
    return false;
}

/* The level of a node that covers all. */
static int top_of(const struct wf_tree *t)
{
    int level = 0;

    for (int64_t i = 0; i < t->n_nodes; i++)
        while (level < t->node[i].level || t->node[i].index >> (level - t->node[i].level) != 0)
            level++;
    return level;
}

/* The sums below a node, in those of its first contribution that has samples: NULL if none has. */
static struct wf_contribution *total(const struct wf_tree *t, int level, int64_t index)
{
    const struct wf_tree_node *node = find(t, level, index);
    struct wf_contribution *left, *right;

    if (node)
        return node->sum;
    if (!has_below(t, level, index))
        return NULL;
    left = total(t, level - 1, 2 * index);
    right = total(t, level - 1, 2 * index + 1);
    if (!left || !right)
        return left ? left : right;
    for (int64_t i = 0; i < t->rules->n_sums; i++)
        left->sums[i] += right->sums[i];
    left->finite &= right->finite;
    return left;
}

struct wf_contribution *wf_tree_total(struct wf_tree *t)
{
    return total(t, top_of(t), 0);
}

bool wf_merge_passes(const struct wf_rules *r, int n_pieces, const struct wf_piece *pieces,
                     int n_shards)
{
    for (int i = 0; i < n_pieces; i++)
        if (r->var[pieces[i].var].table || r->var[pieces[i].var].penalty.orthogonal != 0)
            return false;
    return n_shards <= WF_PASS_SHARDS;
}

/* ---- one block ------------------------------------------------------------------------------- */

enum { LEVELS = 4 }; /* of a tree, and as many buffers of a block */
_Static_assert(1 << (LEVELS - 1) >= WF_PASS_SHARDS, "a buffer for each level");

struct pass {
    struct wf_merge *m;
    const struct wf_tree *tree;
    int top;
    const float *factor; /* by group */
    const float *params;
    float *mean; /* NULL: it is not kept */
    const struct wf_step *step;
    const struct wf_version *v; /* NULL: no update */
    struct wf_optim_scalars one;
};

/* The sum below a node of n elements of group k: where it is, or in buf. NULL: nothing has
 * samples. */
static const float *sum_block(const struct pass *p, int level, int64_t index, int k, int64_t at,
                              int64_t n, float *buf)
{
    const struct wf_tree_node *node = find(p->tree, level, index);
    const float *left, *right;

    if (node)
        return node->sum ? wf_contribution_group(node->sum, k) + at : NULL;
    if (!has_below(p->tree, level, index))
        return NULL;
    left = sum_block(p, level - 1, 2 * index, k, at, n, buf);
    right = sum_block(p, level - 1, 2 * index + 1, k, at, n, buf + WF_NORM_BLOCK);
    if (!left || !right)
        return left ? left : right;
    p->m->fns->add_to(n, buf, left, right);
    return buf;
}

/* The mean of a block, with penalties: where it is, or in `to`. */
static const float *mean_of(const struct pass *p, const struct wf_merge_block *b, int64_t at,
                            float *buf, float *to)
{
    const struct wf_rules *r = p->m->rules;
    const struct wf_penalty *penalty = &r->var[p->m->piece[b->piece].var].penalty;
    const float *g = sum_block(p, p->top, 0, 0, at, b->n, buf);

    if (r->whole && !p->mean && penalty->l1 == 0 && penalty->l2 == 0)
        return g;
    if (r->whole)
        memcpy(to, g, (size_t)b->n * sizeof *to);
    else
        p->m->fns->scale_to(b->n, to, g, p->factor[0]);
    for (int k = 1; k < r->n_groups; k++)
        if (p->factor[k] != 0)
            p->m->fns->add_scaled(b->n, to, sum_block(p, p->top, 0, k, at, b->n, buf),
                                  p->factor[k]);
    wf_penalty_add(p->m->fns, penalty, b->n, p->params + at, to);
    return to;
}

static void pass_block(void *arg, int64_t i, int thread)
{
    const struct pass *p = arg;
    struct wf_merge *m = p->m;
    const struct wf_merge_block *b = &m->block[i];
    int64_t at = wf_block_place(m, b);
    float buf[LEVELS * WF_NORM_BLOCK], own[WF_NORM_BLOCK];
    const float *g = mean_of(p, b, at, buf, p->mean ? p->mean + at : own);

    (void)thread;
    if (p->v)
        wf_block_update(m, b, p->step, &p->one, g, p->v);
}

/* ---- the pass -------------------------------------------------------------------------------- */

weft_status wf_merge_pass(struct wf_merge *m, const struct wf_tree *tree,
                          const struct wf_contribution *sums, const float *params, float *mean,
                          const struct wf_step *step, const struct wf_version *v)
{
    float factor[64];
    struct pass p = {.m = m,
                     .tree = tree,
                     .top = top_of(tree),
                     .factor = factor,
                     .params = params,
                     .mean = mean,
                     .step = step,
                     .v = v};
    weft_status st = wf_merge_factors(m->rules, sums->sums, WF_COUNT(factor), factor);

    if (st)
        return st;
    if (p.top >= LEVELS)
        return wf_err(WEFT_EBUG, "contributions of %d levels in one pass", p.top);
    if (v)
        wf_step_scalars(m->rules, step, 1, &p.one);
    wf_pool_for(m->pool, m->n_blocks, pass_block, &p);
    return WEFT_OK;
}
