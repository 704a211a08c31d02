/* tree.c - the sum of contributions along the tree over shard numbers. */
#include "merge/lane.h"

void wf_tree_init(struct wf_tree *t, weft_ctx *ctx, struct wf_pool *pool,
                  const struct wf_rules *rules)
{
    *t = (struct wf_tree){.ctx = ctx, .pool = pool, .rules = rules};
}

void wf_tree_clear(struct wf_tree *t)
{
    for (int64_t i = 0; i < t->n_nodes; i++)
        wf_tree_give(t, t->node[i].sum);
    t->n_nodes = 0;
}

void wf_tree_trim(struct wf_tree *t)
{
    for (int64_t i = 0; i < t->n_spare; i++)
        wf_contribution_free(t->spare[i]);
    t->n_spare = 0;
}

void wf_tree_free(struct wf_tree *t)
{
    if (!t->ctx)
        return;
    wf_tree_clear(t);
    wf_tree_trim(t);
    wf_free(t->ctx, t->spare);
    wf_free(t->ctx, t->node);
    *t = (struct wf_tree){.ctx = NULL};
}

/* One that is not used, with memory for dense gradients (of a lane's device, NULL: of the host) or
 * without; NULL if there is none. */
static struct wf_contribution *find_spare(struct wf_tree *t, bool lent, struct wf_lane *lane)
{
    for (int64_t i = t->n_spare - 1; i >= 0; i--) {
        struct wf_contribution *c = t->spare[i];

        if (c->away.lane != lane || (!lane && !c->dense != lent))
            continue;
        t->spare[i] = t->spare[--t->n_spare];
        wf_contribution_clear(c);
        return c;
    }
    return NULL;
}

weft_status wf_tree_take(struct wf_tree *t, struct wf_contribution **out)
{
    const struct wf_dense_memory *memory = t->memory;
    struct wf_contribution *c = find_spare(t, false, NULL);
    weft_status st;

    if (!c && !memory)
        return wf_contribution_new(t->ctx, t->rules, out);
    if (!c) {
        st = wf_contribution_new_lent(t->ctx, t->rules, &c);
        if (st)
            return st;
        c->dense = memory->get(memory->arg, t->rules->n_groups * t->rules->n_dense);
        c->memory = c->dense ? memory : NULL;
        st = wf_contribution_own(c); /* of the context, if there is no other */
        if (st) {
            wf_contribution_free(c);
            return st;
        }
    }
    *out = c;
    return WEFT_OK;
}

weft_status wf_tree_take_away(struct wf_tree *t, struct wf_lane *lane, struct wf_contribution **out)
{
    struct wf_contribution *c = find_spare(t, false, lane);

    if (!c)
        return wf_contribution_new_away(t->ctx, t->rules, lane, out);
    *out = c;
    return WEFT_OK;
}

weft_status wf_tree_lend(struct wf_tree *t, const float *dense, int64_t stride,
                         struct wf_contribution **out)
{
    struct wf_contribution *c = find_spare(t, true, NULL);
    weft_status st = c ? WEFT_OK : wf_contribution_new_lent(t->ctx, t->rules, &c);

    if (st)
        return st;
    c->lent = dense;
    c->lent_stride = stride;
    *out = c;
    return WEFT_OK;
}

void wf_tree_give(struct wf_tree *t, struct wf_contribution *c)
{
    if (!c)
        return;
    if (wf_grow(t->ctx, &t->spare, &t->cap_spare, t->n_spare + 1, sizeof *t->spare)) {
        wf_contribution_free(c);
        return;
    }
    t->spare[t->n_spare++] = c;
}

/* ---- putting --------------------------------------------------------------------------------- */

static bool covers(const struct wf_tree_node *n, int level, int64_t index)
{
    return n->level >= level ? index >> (n->level - level) == n->index
                             : n->index >> (level - n->level) == index;
}

static int64_t find(const struct wf_tree *t, int level, int64_t index)
{
    for (int64_t i = 0; i < t->n_nodes; i++)
        if (t->node[i].level == level && t->node[i].index == index)
            return i;
    return -1;
}

/* left + right in left, which is returned; absent + x = x. */
static weft_status join(struct wf_tree *t, struct wf_contribution *left,
                        struct wf_contribution *right, struct wf_contribution **out)
{
    weft_status st = WEFT_OK;

    if (left && right) {
        st = left->away.lane ? WEFT_OK : wf_contribution_own(left);
        if (!st)
            st = wf_contribution_add(t->pool, left, right);
        wf_tree_give(t, right);
    }
    *out = left ? left : right;
    return st;
}

weft_status wf_tree_put(struct wf_tree *t, int level, int64_t index, struct wf_contribution *c)
{
    weft_status st;

    for (int64_t i = 0; i < t->n_nodes; i++)
        if (covers(&t->node[i], level, index)) {
            wf_tree_give(t, c);
            return wf_err(WEFT_EEXIST, "a contribution of shard %lld was already added",
                          (long long)(index << level));
        }
    st = wf_grow(t->ctx, &t->node, &t->cap_nodes, t->n_nodes + 1, sizeof *t->node);
    while (!st && level < 62 && !t->lazy) {
        int64_t other = find(t, level, index ^ 1);
        struct wf_contribution *half;

        if (other < 0)
            break;
        half = t->node[other].sum;
        t->node[other] = t->node[--t->n_nodes];
        st = index & 1 ? join(t, half, c, &c) : join(t, c, half, &c);
        index >>= 1;
        level++;
    }
    if (st) {
        wf_tree_give(t, c);
        return st;
    }
    t->node[t->n_nodes++] = (struct wf_tree_node){level, index, c};
    return WEFT_OK;
}

/* ---- the sum --------------------------------------------------------------------------------- */

/* The sum of what lies below (level, index), taken out of the tree. */
static weft_status take_sum(struct wf_tree *t, int level, int64_t index,
                            struct wf_contribution **out)
{
    struct wf_contribution *left = NULL, *right = NULL;
    bool any = false;
    int64_t at = find(t, level, index);
    weft_status st;

    *out = NULL;
    if (at >= 0) {
        *out = t->node[at].sum;
        t->node[at] = t->node[--t->n_nodes];
        return WEFT_OK;
    }
    for (int64_t i = 0; i < t->n_nodes; i++)
        any |= t->node[i].level < level && covers(&t->node[i], level, index);
    if (!any)
        return WEFT_OK;
    st = take_sum(t, level - 1, 2 * index, &left);
    if (!st)
        st = take_sum(t, level - 1, 2 * index + 1, &right);
    if (st) {
        wf_tree_give(t, left);
        wf_tree_give(t, right);
        return st;
    }
    st = join(t, left, right, out);
    if (st) {
        wf_tree_give(t, *out);
        *out = NULL;
    }
    return st;
}

weft_status wf_tree_sum(struct wf_tree *t, struct wf_contribution **out)
{
    int level = 0;
    weft_status st;

    for (int64_t i = 0; i < t->n_nodes; i++)
        while (level < 62 && (level < t->node[i].level || !covers(&t->node[i], level, 0)))
            level++;
    st = take_sum(t, level, 0, out);
    if (!st && *out && !(*out)->away.lane)
        st = wf_contribution_own(*out);
    if (st) {
        wf_tree_give(t, *out);
        *out = NULL;
    }
    wf_tree_clear(t);
    return st;
}

weft_status wf_tree_bring(struct wf_tree *t, struct wf_lane *lane, struct wf_contribution **c)
{
    struct wf_contribution *from = *c, *to;
    struct wf_rows *rows;
    double *sums;
    weft_status st;

    if (from->away.lane == lane)
        return WEFT_OK;
    st = lane ? wf_tree_take_away(t, lane, &to) : wf_tree_take(t, &to);
    if (st)
        return st;
    st = lane ? wf_lane_copy(to, from) : wf_lane_read(from, to->dense);
    if (st) {
        wf_tree_give(t, to);
        return st;
    }
    rows = to->rows;
    sums = to->sums;
    to->rows = from->rows;
    to->sums = from->sums;
    to->finite = from->finite;
    from->rows = rows;
    from->sums = sums;
    wf_tree_give(t, from);
    *c = to;
    return WEFT_OK;
}
