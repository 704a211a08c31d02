/* update.c - from the sum of a step's contributions to new parameters: mean, penalties, clipping,
 * optimizer, constraints. */
#include "merge/merge.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/weight.h"
#include "merge/block.h"

/* ---- creation -------------------------------------------------------------------------------- */

enum wf_clip wf_rules_clip(const struct wf_rules *r)
{
    return r->attrs[WF_OPTIM_ATTR_CLIPNORM] > 0          ? WF_CLIP_EACH
           : r->attrs[WF_OPTIM_ATTR_GLOBAL_CLIPNORM] > 0 ? WF_CLIP_GLOBAL
                                                         : WF_CLIP_NONE;
}

static int64_t divisor(int64_t a, int64_t b)
{
    return b ? divisor(b, a % b) : a;
}

static weft_status check_piece(const struct wf_rules *r, const struct wf_piece *p)
{
    const struct wf_var *v = p->var >= 0 && p->var < r->n_vars ? &r->var[p->var] : NULL;
    int64_t unit = WF_NORM_BLOCK;

    if (!v || p->first < 0 || p->n < 0 || p->first + p->n > v->count)
        return wf_err(WEFT_EBUG, "a piece lies outside of its variable");
    if (v->table) /* whole rows in whole blocks */
        unit = WF_NORM_BLOCK / divisor(WF_NORM_BLOCK, v->dim[1]) * v->dim[1];
    if (p->n == 0)
        return WEFT_OK;
    if (p->first % unit != 0 || (p->n % unit != 0 && p->first + p->n != v->count))
        return wf_err(WEFT_EBUG, "a piece of '%s' does not lie on blocks", v->name);
    if (p->n != v->count &&
        (wf_weight_whole(&v->penalty, &v->constraint) || (v->table && v->constraint.kind)))
        return wf_err(WEFT_EBUG, "'%s' cannot be cut", v->name);
    return WEFT_OK;
}

static weft_status list_blocks(struct wf_merge *m)
{
    const struct wf_rules *r = m->rules;
    int64_t n = 0, at = 0;

    for (int i = 0; i < m->n_pieces; i++)
        n += r->var[m->piece[i].var].table ? 0 : wf_norm_blocks(m->piece[i].n);
    m->block = wf_alloc_n(m->ctx, n + 1, sizeof *m->block);
    m->first_block = wf_alloc_n(m->ctx, r->n_vars + 1, sizeof *m->first_block);
    m->scale = wf_alloc_n(m->ctx, r->n_vars + 1, sizeof *m->scale);
    m->clip = wf_alloc_n(m->ctx, r->n_vars + 1, sizeof *m->clip);
    if (!m->block || !m->first_block || !m->scale || !m->clip)
        return wf_err_nomem(m->ctx, (size_t)n * sizeof *m->block, "updates");
    for (int i = 0; i < r->n_vars; i++) {
        m->first_block[i] = at;
        at += wf_norm_blocks(r->var[i].count);
    }
    m->first_block[r->n_vars] = at;
    for (int i = 0; i < m->n_pieces; i++) {
        const struct wf_piece *p = &m->piece[i];

        for (int64_t k = 0; k < p->n && !r->var[p->var].table; k += WF_NORM_BLOCK)
            m->block[m->n_blocks++] = (struct wf_merge_block){
                i, (int32_t)wf_min_i64(WF_NORM_BLOCK, p->n - k), p->first + k};
    }
    return wf_grow(m->ctx, &m->partial, &m->cap_partials, n + 1, sizeof *m->partial);
}

static weft_status list_pieces(struct wf_merge *m, int n, const struct wf_piece *pieces)
{
    const struct wf_rules *r = m->rules;
    int64_t scratch = 0;

    m->n_pieces = pieces ? n : r->n_vars;
    m->piece = wf_alloc_n(m->ctx, m->n_pieces + 1, sizeof *m->piece);
    if (!m->piece)
        return wf_err_nomem(m->ctx, (size_t)m->n_pieces * sizeof *m->piece, "updates");
    for (int i = 0; i < m->n_pieces; i++) {
        const struct wf_var *v;
        weft_status st;

        m->piece[i] =
            pieces ? pieces[i] : (struct wf_piece){i, 0, r->var[i].count, r->var[i].offset};
        st = check_piece(r, &m->piece[i]);
        if (st)
            return st;
        v = &r->var[m->piece[i].var];
        if (v->penalty.orthogonal != 0)
            scratch = wf_max_i64(scratch, wf_orthogonal_scratch(v->dim[0], v->dim[1]));
    }
    if (scratch) {
        m->scratch = wf_alloc_n(m->ctx, scratch, sizeof *m->scratch);
        if (!m->scratch)
            return wf_err_nomem(m->ctx, (size_t)scratch * sizeof *m->scratch, "updates");
    }
    return WEFT_OK;
}

weft_status wf_merge_new(weft_ctx *ctx, struct wf_pool *pool, const struct wf_rules *rules,
                         int n_pieces, const struct wf_piece *pieces, struct wf_merge **out)
{
    struct wf_merge *m = wf_alloc(ctx, sizeof *m);
    weft_status st;

    if (!m)
        return wf_err_nomem(ctx, sizeof *m, "updates");
    m->ctx = ctx;
    m->pool = pool;
    m->rules = rules;
    m->fns = wf_optim_fns_at(ctx->simd);
    st = list_pieces(m, n_pieces, pieces);
    if (!st)
        st = list_blocks(m);
    if (st) {
        wf_merge_free(m);
        return st;
    }
    *out = m;
    return WEFT_OK;
}

void wf_merge_free(struct wf_merge *m)
{
    if (!m)
        return;
    wf_free(m->ctx, m->piece);
    wf_free(m->ctx, m->block);
    wf_free(m->ctx, m->first_block);
    wf_free(m->ctx, m->partial);
    wf_free(m->ctx, m->scale);
    wf_free(m->ctx, m->clip);
    wf_free(m->ctx, m->scratch);
    wf_free(m->ctx, m->pick);
    wf_free(m->ctx, m->order);
    wf_free(m->ctx, m);
}

static bool is_chosen(const struct wf_step *step, int var)
{
    return !step->chosen || step->chosen[var];
}

/* ---- the mean -------------------------------------------------------------------------------- */

struct mean_job {
    const struct wf_merge *m;
    struct wf_contribution *sum;
    const float *params, *factor; /* factor: by group; 0: the group has no part in it */
};

static void mean_block(void *arg, int64_t i, int thread)
{
    const struct mean_job *j = arg;
    const struct wf_merge *m = j->m;
    const struct wf_rules *r = m->rules;
    const struct wf_merge_block *b = &m->block[i];
    int64_t at = wf_block_place(m, b);
    float *g = j->sum->dense + at;

    (void)thread;
    if (!r->whole)
        m->fns->scale(b->n, g, j->factor[0]);
    for (int k = 1; k < r->n_groups; k++)
        if (j->factor[k] != 0)
            m->fns->add_scaled(b->n, g, g + k * r->n_dense, j->factor[k]);
    wf_penalty_add(m->fns, &r->var[m->piece[b->piece].var].penalty, b->n, j->params + at, g);
}

/* The rows of all groups in those of the first. */
static weft_status mean_rows(struct wf_merge *m, struct wf_contribution *sum, const float *factor)
{
    const struct wf_rules *r = m->rules;
    weft_status st = WEFT_OK;

    for (int v = 0; v < r->n_vars && !r->whole; v++) {
        int64_t width = r->var[v].dim[1];

        if (!r->var[v].table)
            continue;
        m->fns->scale(sum->rows[v].n * width, sum->rows[v].row, factor[0]);
        for (int k = 1; k < r->n_groups && !st; k++)
            if (factor[k] != 0)
                st = wf_rows_add(m->ctx, &sum->scratch, &sum->rows[v],
                                 &sum->rows[k * r->n_vars + v], width, factor[k]);
    }
    return st;
}

weft_status wf_merge_factors(const struct wf_rules *r, const double *sums, int room, float *factor)
{
    if (r->n_groups > room)
        return wf_err(WEFT_ELIMIT, "%d outputs with masks; at most %d are supported", r->n_groups,
                      room);
    for (int k = 0; k < r->n_groups; k++)
        factor[k] = sums[k] > 0 ? (float)(1 / sums[k]) : 0;
    return WEFT_OK;
}

weft_status wf_merge_mean_rows(struct wf_merge *m, struct wf_contribution *sum)
{
    float factor[64];
    weft_status st = wf_merge_factors(m->rules, sum->sums, WF_COUNT(factor), factor);

    return st ? st : mean_rows(m, sum, factor);
}

weft_status wf_merge_mean(struct wf_merge *m, struct wf_contribution *sum, const float *params)
{
    const struct wf_rules *r = m->rules;
    float factor[64];
    struct mean_job j = {m, sum, params, factor};
    weft_status st = wf_merge_factors(r, sum->sums, WF_COUNT(factor), factor);

    if (!st)
        st = mean_rows(m, sum, factor);
    if (st)
        return st;
    wf_pool_for(m->pool, m->n_blocks, mean_block, &j);
    for (int i = 0; i < m->n_pieces; i++) {
        const struct wf_piece *p = &m->piece[i];
        const struct wf_var *v = &r->var[p->var];

        if (v->penalty.orthogonal != 0)
            wf_orthogonal_add(m->pool, &v->penalty, v->dim[0], v->dim[1], params + p->at,
                              sum->dense + p->at, m->scratch);
    }
    return WEFT_OK;
}

/* ---- norms ----------------------------------------------------------------------------------- */

struct norm_job {
    struct wf_merge *m;
    const struct wf_contribution *mean;
};

static void norm_block(void *arg, int64_t i, int thread)
{
    const struct norm_job *j = arg;
    struct wf_merge *m = j->m;
    const struct wf_merge_block *b = &m->block[i];

    (void)thread;
    m->partial[i] = (struct wf_partial){
        .block = m->first_block[m->piece[b->piece].var] + b->first / WF_NORM_BLOCK,
        .a = m->fns->sumsq(b->n, j->mean->dense + wf_block_place(m, b))};
}

struct by_id {
    int64_t id, at;
};

static int compare_ids(const void *a, const void *b)
{
    const struct by_id *x = a, *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* The lanes of a block's sum (sum64_inl.h), of which only touched elements are added: the others
 * are zero. */
#define LANES 16

static double fold(double *lane)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static weft_status add_partial(struct wf_merge *m, int64_t block, double *lane)
{
    weft_status st =
        wf_grow(m->ctx, &m->partial, &m->cap_partials, m->n_partials + 1, sizeof *m->partial);

    if (!st)
        m->partial[m->n_partials++] = (struct wf_partial){.block = block, .a = fold(lane)};
    memset(lane, 0, LANES * sizeof *lane);
    return st;
}

static bool in_piece(const struct wf_piece *p, int64_t id, int64_t width)
{
    return id * width >= p->first && id * width < p->first + p->n;
}

/* The touched blocks of a table's piece, in their order. */
static weft_status norm_rows(struct wf_merge *m, const struct wf_piece *p, const struct wf_rows *r)
{
    int64_t width = m->rules->var[p->var].dim[1], base = m->first_block[p->var], n = 0, now = -1;
    double lane[LANES] = {0};
    struct by_id *order;
    weft_status st = wf_grow(m->ctx, &m->order, &m->cap_order, 2 * r->n + 2, sizeof *m->order);

    if (st)
        return st;
    order = (struct by_id *)(void *)m->order;
    for (int64_t i = 0; i < r->n; i++)
        if (in_piece(p, r->id[i], width))
            order[n++] = (struct by_id){r->id[i], i};
    qsort(order, (size_t)n, sizeof *order, compare_ids);
    for (int64_t i = 0; i < n && !st; i++)
        for (int64_t c = 0; c < width && !st; c++) {
            int64_t e = order[i].id * width + c;
            double x = (double)r->row[order[i].at * width + c];

            if (e / WF_NORM_BLOCK != now && now >= 0)
                st = add_partial(m, base + now, lane);
            now = e / WF_NORM_BLOCK;
            lane[e % WF_NORM_BLOCK % LANES] += x * x;
        }
    return st || now < 0 ? st : add_partial(m, base + now, lane);
}

weft_status wf_merge_norms(struct wf_merge *m, const struct wf_contribution *mean,
                           const struct wf_step *step)
{
    struct norm_job j = {m, mean};
    weft_status st = WEFT_OK;
    int64_t kept = 0;

    m->n_partials = 0;
    if (wf_rules_clip(m->rules) == WF_CLIP_NONE)
        return WEFT_OK;
    wf_pool_for(m->pool, m->n_blocks, norm_block, &j);
    for (int64_t i = 0; i < m->n_blocks; i++)
        if (is_chosen(step, m->piece[m->block[i].piece].var))
            m->partial[kept++] = m->partial[i];
    m->n_partials = kept;
    for (int i = 0; i < m->n_pieces && !st; i++)
        if (m->rules->var[m->piece[i].var].table && is_chosen(step, m->piece[i].var))
            st = norm_rows(m, &m->piece[i], &mean->rows[m->piece[i].var]);
    return st;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct wf_partial *x = a, *y = b;

    return x->block < y->block ? -1 : x->block > y->block;
}

/* The sums of a variable's blocks in their order. *at moves past them. */
static void sum_blocks(const struct wf_partial *partial, int64_t n, int64_t end, int64_t *at,
                       double *a, double *b)
{
    *a = *b = 0;
    for (; *at < n && partial[*at].block < end; ++*at) {
        *a += partial[*at].a;
        *b += partial[*at].b;
    }
}

void wf_merge_scales(const struct wf_rules *r, const int64_t *first_block, int64_t n,
                     struct wf_partial *partial, float *scale)
{
    enum wf_clip clip = wf_rules_clip(r);
    double total = 0, unused;
    int64_t at = 0;

    for (int v = 0; v < r->n_vars; v++)
        scale[v] = 1;
    if (clip == WF_CLIP_NONE)
        return;
    qsort(partial, (size_t)n, sizeof *partial, compare_blocks);
    for (int v = 0; v < r->n_vars; v++) {
        double sq;

        sum_blocks(partial, n, first_block[v + 1], &at, &sq, &unused);
        total += sq;
        if (clip == WF_CLIP_EACH)
            scale[v] = (float)wf_clip_scale(sqrt(sq), r->attrs[WF_OPTIM_ATTR_CLIPNORM]);
    }
    for (int v = 0; v < r->n_vars && clip == WF_CLIP_GLOBAL; v++)
        scale[v] = (float)wf_clip_scale(sqrt(total), r->attrs[WF_OPTIM_ATTR_GLOBAL_CLIPNORM]);
}

/* ---- the optimizer --------------------------------------------------------------------------- */

void wf_step_scalars(const struct wf_rules *r, const struct wf_step *step, float scale,
                     struct wf_optim_scalars *out)
{
    double rate = r->attrs[WF_OPTIM_ATTR_LR];

    if (step->has_rate)
        rate = (double)step->rate;
    else if (r->schedule)
        rate = wf_schedule_rate(r->schedule, r->schedule_attrs,
                                r->schedule_attrs + r->schedule->n_attrs,
                                r->n_schedule - r->schedule->n_attrs, step->iteration - 1);
    wf_optim_prepare(r->optim, r->attrs, rate, step->iteration, (double)scale, out);
}

struct update_job {
    struct wf_merge *m;
    const struct wf_contribution *mean;
    const struct wf_step *step;
    const struct wf_version *v;
    const float *scale;
    struct wf_optim_scalars one; /* for scale 1 */
};

static float *moved(float *p, int64_t n)
{
    return p ? p + n : NULL;
}

/* n elements of variable `var`, at `at` of the vectors, from w to w. */
static void update_run(struct wf_merge *m, int var, const struct wf_optim_scalars *k, int64_t n,
                       float *w, const float *g, int64_t at, float *const *slot)
{
    m->fns->update[k->form](k, n, w, g, moved(slot[0], at), moved(slot[1], at), moved(slot[2], at));
    wf_constrain_each(&m->rules->var[var].constraint, n, w);
}

void wf_block_update(struct wf_merge *m, const struct wf_merge_block *b, const struct wf_step *step,
                     const struct wf_optim_scalars *k, const float *g, const struct wf_version *v)
{
    int var = m->piece[b->piece].var;
    int64_t at = wf_block_place(m, b);
    float *w = v->params + at, *const *slot = v->slot;

    if (v->from && v->streams && is_chosen(step, var) &&
        m->rules->var[var].constraint.kind != WF_CONSTRAINT_NON_NEG) {
        m->fns->update_to[k->form](k, b->n, w, v->from + at, g, moved(slot[0], at),
                                   moved(slot[1], at), moved(slot[2], at));
        return;
    }
    if (v->from)
        memcpy(w, v->from + at, (size_t)b->n * sizeof *w);
    if (is_chosen(step, var))
        update_run(m, var, k, b->n, w, g, at, v->slot);
}

static void update_block(void *arg, int64_t i, int thread)
{
    const struct update_job *j = arg;
    struct wf_merge *m = j->m;
    const struct wf_merge_block *b = &m->block[i];
    int var = m->piece[b->piece].var;
    int64_t at = wf_block_place(m, b);
    float *w = j->v->params + at, *const *slot = j->v->slot;
    struct wf_optim_scalars k = j->one;

    (void)thread;
    m->partial[i] = (struct wf_partial){.block = m->first_block[var] + b->first / WF_NORM_BLOCK};
    if (j->scale[var] != 1)
        wf_step_scalars(m->rules, j->step, j->scale[var], &k);
    if (k.form != WF_OPTIM_LAMB) {
        wf_block_update(m, b, j->step, &k, j->mean->dense + at, j->v);
        return;
    }
    if (j->v->from)
        memcpy(w, j->v->from + at, (size_t)b->n * sizeof *w);
    if (is_chosen(j->step, var))
        m->fns->lamb_slots(&k, b->n, w, j->mean->dense + at, slot[0] + at, slot[1] + at,
                           &m->partial[i].a, &m->partial[i].b);
}

/* Room for choosing rows of tables. */
static weft_status reserve_rows(struct wf_merge *m, const struct wf_contribution *mean)
{
    int64_t most = 0;
    weft_status st;

    for (int i = 0; i < m->n_pieces; i++)
        most = wf_max_i64(most, mean->rows[m->piece[i].var].n);
    st = wf_grow(m->ctx, &m->pick, &m->cap_pick, 2 * most + 1, sizeof *m->pick);
    return st ? st : wf_grow(m->ctx, &m->order, &m->cap_order, most + 1, sizeof *m->order);
}

/* The rows of a table that lie in a piece. */
static void update_rows(struct wf_merge *m, const struct wf_piece *p, const struct wf_rows *r,
                        const struct wf_optim_scalars *k, const struct wf_version *v)
{
    const struct wf_var *var = &m->rules->var[p->var];
    int64_t width = var->dim[1], n = 0;
    struct wf_optim_table t = {.w = v->table[p->var].w,
                               .width = width,
                               .g = r->row,
                               .g_stride = width,
                               .rows = r->id,
                               .n = r->n};

    memcpy(t.slot, v->table[p->var].slot, sizeof t.slot);
    if (p->n != var->count) { /* only those in it */
        for (int64_t i = 0; i < r->n; i++) {
            m->pick[r->n + i] = -1;
            if (!in_piece(p, r->id[i], width))
                continue;
            m->order[n] = r->id[i];
            m->pick[n++] = (int32_t)i;
        }
        t.rows = m->order;
        t.first = m->pick;
        t.next = m->pick + r->n;
        t.n = n;
    }
    wf_optim_update_tables(m->fns, m->pool, k, &t, 1);
}

void wf_merge_update_rows(struct wf_merge *m, int var, const struct wf_step *step,
                          const float *scale, const struct wf_optim_table *rows)
{
    struct wf_optim_scalars k;

    if (!is_chosen(step, var))
        return;
    wf_step_scalars(m->rules, step, scale[var], &k);
    wf_optim_update_tables(m->fns, m->pool, &k, rows, 1);
}

weft_status wf_merge_update(struct wf_merge *m, const struct wf_contribution *mean,
                            const struct wf_step *step, const float *scale, struct wf_version *v)
{
    struct update_job j = {m, mean, step, v, scale, {0}};
    weft_status st = reserve_rows(m, mean);

    m->n_partials = 0;
    if (st)
        return st;
    for (int i = 0; i < m->n_pieces; i++) {
        const struct wf_piece *p = &m->piece[i];
        struct wf_optim_scalars k;

        if (!m->rules->var[p->var].table || !is_chosen(step, p->var))
            continue;
        wf_step_scalars(m->rules, step, scale[p->var], &k);
        update_rows(m, p, &mean->rows[p->var], &k, v);
    }
    wf_step_scalars(m->rules, step, 1, &j.one);
    wf_pool_for(m->pool, m->n_blocks, update_block, &j);
    m->n_partials = j.one.form == WF_OPTIM_LAMB ? m->n_blocks : 0;
    return WEFT_OK;
}

struct lamb_job {
    struct wf_merge *m;
    const struct wf_step *step;
    const struct wf_version *v;
    const float *scale, *ratio; /* by variable */
};

static void lamb_block(void *arg, int64_t i, int thread)
{
    const struct lamb_job *j = arg;
    struct wf_merge *m = j->m;
    const struct wf_merge_block *b = &m->block[i];
    int var = m->piece[b->piece].var;
    int64_t at = wf_block_place(m, b);
    struct wf_optim_scalars k;

    (void)thread;
    if (!is_chosen(j->step, var))
        return;
    wf_step_scalars(m->rules, j->step, j->scale[var], &k);
    m->fns->lamb_apply(&k, j->ratio[var], b->n, j->v->params + at, j->v->slot[0] + at,
                       j->v->slot[1] + at);
    wf_constrain_each(&m->rules->var[var].constraint, b->n, j->v->params + at);
}

static void lamb_finish(struct wf_merge *m, const struct wf_step *step, int64_t n,
                        struct wf_partial *partial, const float *scale, struct wf_version *v)
{
    const struct wf_rules *r = m->rules;
    struct lamb_job j = {m, step, v, scale, m->scale};
    int64_t at = 0;

    if (n)
        qsort(partial, (size_t)n, sizeof *partial, compare_blocks);
    for (int i = 0; i < r->n_vars; i++) {
        struct wf_optim_scalars k;
        double w, q;

        sum_blocks(partial, n, m->first_block[i + 1], &at, &w, &q);
        wf_step_scalars(r, step, scale[i], &k);
        m->scale[i] = (float)((double)k.lr * (w > 0 && q > 0 ? sqrt(w / q) : 1));
    }
    wf_pool_for(m->pool, m->n_blocks, lamb_block, &j);
}

/* Constraints that look at a whole variable, or at all rows of a table. */
static void constrain_whole(struct wf_merge *m, const struct wf_step *step, struct wf_version *v)
{
    for (int i = 0; i < m->n_pieces; i++) {
        const struct wf_piece *p = &m->piece[i];
        const struct wf_var *var = &m->rules->var[p->var];

        if (!var->constraint.kind || !is_chosen(step, p->var))
            continue;
        if (var->table)
            wf_constrain_each(&var->constraint, var->count, v->table[p->var].w);
        wf_constrain_whole(m->pool, &var->constraint, var->rank, var->dim,
                           var->table ? v->table[p->var].w : v->params + p->at);
    }
}

void wf_merge_constrain(struct wf_merge *m, const struct wf_step *step, struct wf_version *v)
{
    for (int64_t i = 0; i < m->n_blocks; i++) {
        const struct wf_merge_block *b = &m->block[i];
        int var = m->piece[b->piece].var;

        if (is_chosen(step, var))
            wf_constrain_each(&m->rules->var[var].constraint, b->n,
                              v->params + wf_block_place(m, b));
    }
    constrain_whole(m, step, v);
}

void wf_merge_finish(struct wf_merge *m, const struct wf_step *step, int64_t n,
                     struct wf_partial *partial, const float *scale, struct wf_version *v)
{
    struct wf_optim_scalars k;

    wf_step_scalars(m->rules, step, 1, &k);
    if (k.form == WF_OPTIM_LAMB)
        lamb_finish(m, step, n, partial, scale, v);
    constrain_whole(m, step, v);
}

weft_status wf_merge_step(struct wf_merge *m, const struct wf_contribution *mean,
                          const struct wf_step *step, struct wf_version *v)
{
    weft_status st = wf_merge_norms(m, mean, step);

    if (st)
        return st;
    wf_merge_scales(m->rules, m->first_block, m->n_partials, m->partial, m->clip);
    st = wf_merge_update(m, mean, step, m->clip, v);
    if (!st)
        wf_merge_finish(m, step, m->n_partials, m->partial, m->clip, v);
    return st;
}
