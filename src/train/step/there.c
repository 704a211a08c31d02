/* there.c - the update of a step on the device that holds the parameters: the sum of the
 * contributions is in its memory, and neither it nor the parameters come to the host.
 *
 * It is a function over the trainer's variables, whose feeds are the gradients where they are: the
 * mean, penalties, clipping, the optimizer and constraints, in the order of the merge layer and of
 * its variables. What the merge layer computes by blocks the ops compute by the same blocks
 * (clip_factor, LAMB), so the bits are the same. Rows of tables are added and divided on the host,
 * and fed. */
#include "train/step/there.h"

#include "merge/lane.h"
#include "train/step/bind.h"
#include "train/step/dist.h"

enum { MAX_GROUPS = 64 };

/* The rows of a table, as they are fed: their number changes from step to step, that of the feed
 * seldom. */
struct fed_rows {
    int var;
    int64_t n, cap;
    int64_t *id;
    float *row;
};

struct wf_there {
    weft_graph *graph;
    weft_fn *fn;
    weft_tensor *feed; /* gradients by group and dense variable, factors by group, ids and rows by
                        * table, the rate */
    int n_grads, n_factors, n_tables, n_feeds;
    int *dense; /* variables that are not tables */
    int n_dense;
    struct fed_rows *table;
    float factor[MAX_GROUPS];
};

void wf_there_free(struct wf_work *w)
{
    struct wf_there *u = w->there;

    if (!u)
        return;
    weft_fn_free(u->fn);
    weft_graph_free(u->graph);
    for (int i = 0; i < u->n_tables; i++) {
        wf_free(w->ctx, u->table[i].id);
        wf_free(w->ctx, u->table[i].row);
    }
    wf_free(w->ctx, u->table);
    wf_free(w->ctx, u->dense);
    wf_free(w->ctx, u->feed);
    wf_free(w->ctx, u);
    w->there = NULL;
}

bool wf_there_can(const struct wf_work *w)
{
    const struct wf_rules *r = &w->rules;

    if (!w->b->fit->store->home || !w->t->dist->sums_there || w->t->rounds || w->t->trap ||
        w->remote || r->n_groups > MAX_GROUPS)
        return false;
    for (int v = 0; v < r->n_vars; v++)
        if (r->var[v].table && (wf_rules_clip(r) != WF_CLIP_NONE || r->var[v].evict.every ||
                                r->var[v].constraint.kind != WF_CONSTRAINT_NONE))
            return false; /* they look at the whole table, or at what is known of its rows */
    return true;
}

/* ---- the function ---------------------------------------------------------------------------- */

struct name {
    char text[32];
};

static struct name name_of(const char *what, int k)
{
    struct name n = {""};

    wf_snprintf(n.text, sizeof n.text, "%s:%d", what, k);
    return n;
}

/* The mean of variable v over the groups: a group without samples has no part in it. */
static weft_val mean_of(struct wf_there *u, const struct wf_rules *r, const weft_val *grad,
                        const weft_val *factor) /* grad: of group 0, then n_dense further */
{
    weft_graph *g = u->graph;
    weft_val mean = grad[0];

    if (r->whole)
        return mean;
    mean = weft_mul(g, mean, factor[0]);
    for (int k = 1; k < r->n_groups; k++) {
        weft_val more = weft_add(g, mean, weft_mul(g, grad[k * u->n_dense], factor[k]));

        mean = weft_where(g, weft_ne(g, factor[k], weft_scalar(g, 0)), more, mean);
    }
    return mean;
}

/* A constraint, as the merge layer's kernel computes it: norms are sums in f64. */
static weft_val constrained(weft_graph *g, const struct wf_constraint *c, weft_val w)
{
    weft_reduce_opts along = {.size = sizeof along, .n_axes = c->n_axes, .keepdims = true};
    weft_val norm, kept;

    if (c->kind == WF_CONSTRAINT_NON_NEG)
        return weft_where(g, weft_lt(g, w, weft_scalar(g, 0)), weft_scalar(g, 0), w);
    for (int i = 0; i < c->n_axes; i++)
        along.axes[i] = c->axes[i];
    norm = weft_square(g, weft_cast(g, w, WEFT_F64));
    if (c->n_axes)
        norm = weft_sum(g, norm, &along);
    norm = weft_cast(g, weft_sqrt(g, norm), WEFT_F32);
    kept = weft_scalar(g, 1);
    if (c->kind == WF_CONSTRAINT_NORM)
        kept = weft_min(g, weft_max(g, norm, weft_scalar(g, c->min)), weft_scalar(g, c->max));
    if (c->kind == WF_CONSTRAINT_NORM && c->rate != 1)
        kept = weft_add(g, weft_mul(g, kept, weft_scalar(g, c->rate)),
                        weft_mul(g, norm, weft_scalar(g, 1 - c->rate)));
    return weft_mul(g, w, weft_div(g, kept, weft_add(g, norm, weft_scalar(g, 1e-7))));
}

/* The gradient of a table: rows that are fed. */
static weft_val fed_gradient(struct wf_there *u, const struct wf_var *v, weft_val var,
                             weft_val *ids, weft_val *rows)
{
    int64_t dim[2] = {WEFT_ANY, v->dim[1]};

    *ids = weft_placeholder(u->graph, name_of("ids", u->n_feeds).text, WEFT_I64, 1, dim);
    *rows = weft_placeholder(u->graph, name_of("rows", u->n_feeds).text, WEFT_F32, 2, dim);
    u->n_feeds += 2;
    return wf_build(u->graph, WF_OP_embedding_grad, 3, (weft_val[]){*ids, *rows, var}, 0, NULL);
}

static void list_feeds(struct wf_there *u, const struct wf_rules *r, weft_val *feed)
{
    for (int v = 0; v < r->n_vars; v++)
        if (!r->var[v].table)
            u->dense[u->n_dense++] = v;
    u->n_grads = r->n_groups * u->n_dense;
    u->n_factors = r->whole ? 0 : r->n_groups;
    for (int i = 0; i < u->n_grads; i++) {
        const struct wf_var *v = &r->var[u->dense[i % u->n_dense]];

        feed[i] =
            weft_placeholder(u->graph, name_of("gradient", i).text, WEFT_F32, v->rank, v->dim);
    }
    for (int k = 0; k < u->n_factors; k++)
        feed[u->n_grads + k] =
            weft_placeholder(u->graph, name_of("factor", k).text, WEFT_F32, 0, NULL);
    u->n_feeds = u->n_grads + u->n_factors;
}

/* feed: all that u->feed is for. */
static weft_status build(struct wf_work *w, struct wf_there *u, weft_val *feed, weft_val *var,
                         weft_val *grad, weft_val *update)
{
    const struct wf_rules *r = &w->rules;
    weft_graph *g = u->graph;
    weft_optim optim = w->t->optim;
    int n_dense = 0;
    weft_status st;

    list_feeds(u, r, feed);
    for (int v = 0; v < r->n_vars; v++) {
        const struct wf_var *x = &r->var[v];

        var[v] = weft_variable(g, x->name, x->rank, x->dim, NULL);
        if (x->table) {
            u->table[u->n_tables++].var = v;
            grad[v] = fed_gradient(u, x, var[v], &feed[u->n_feeds], &feed[u->n_feeds + 1]);
            continue;
        }
        grad[v] = mean_of(u, r, &feed[n_dense++], feed + u->n_grads);
        if (x->penalty.l1 != 0 || x->penalty.l2 != 0 || x->penalty.orthogonal != 0)
            grad[v] = weft_add(g, grad[v], wf_penalty_gradient(g, var[v], &x->penalty));
    }
    if (w->b->rate.id)
        optim.learning_rate = feed[u->n_feeds++] =
            weft_placeholder(g, "learning_rate", WEFT_F32, 0, NULL);
    st = weft_apply_gradients(g, &optim, r->n_vars, var, grad, update);
    for (int v = 0; v < r->n_vars && !st; v++)
        if (r->var[v].constraint.kind != WF_CONSTRAINT_NONE)
            update[v] = weft_assign(g, var[v], constrained(g, &r->var[v].constraint, update[v]));
    return st ? st : weft_graph_status(g);
}

static weft_status make(struct wf_work *w, struct wf_there *u)
{
    const struct wf_rules *r = &w->rules;
    int64_t most = (int64_t)(r->n_groups + 2) * (r->n_vars + 1) + 1;
    weft_val *mem = wf_alloc_n(w->ctx, most + 3 * (int64_t)r->n_vars + 1, sizeof *mem);
    weft_val *update = NULL;
    weft_status st = weft_graph_new(w->ctx, &u->graph);

    u->feed = wf_alloc_n(w->ctx, most, sizeof *u->feed);
    u->dense = wf_alloc_n(w->ctx, r->n_vars + 1, sizeof *u->dense);
    u->table = wf_alloc_n(w->ctx, r->n_vars + 1, sizeof *u->table);
    if (!st && (!mem || !u->feed || !u->dense || !u->table))
        st = wf_err_nomem(w->ctx, (size_t)most * sizeof *mem, "updates");
    if (!st) {
        update = mem + most;
        st = build(w, u, mem, update + r->n_vars, update + 2 * r->n_vars, update);
    }
    if (!st)
        st = weft_fn_new(u->graph,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = u->n_feeds, .feeds = mem,
                                   .n_updates = r->n_vars, .updates = update, .share = w->b->fit),
                         &u->fn);
    if (!st)
        wf_fn_feeds_away(u->fn, u->n_grads);
    wf_free(w->ctx, mem);
    return st;
}

static weft_status get(struct wf_work *w)
{
    struct wf_there *u = w->there;
    weft_status st;

    if (u)
        return WEFT_OK;
    u = w->there = wf_alloc(w->ctx, sizeof *u);
    st = u ? make(w, u) : wf_err_nomem(w->ctx, sizeof *u, "updates");
    if (st)
        wf_there_free(w);
    return st ? wf_err_wrap(st, "updates") : WEFT_OK;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* As many rows are fed as ever were needed, so that there are few plans. Those that are too many
 * are -0 for rows that are there: x + -0 = x. */
static weft_status fill_rows(struct wf_work *w, struct fed_rows *t, const struct wf_rows *r)
{
    int64_t width = w->rules.var[t->var].dim[1], cap = 0, cap_ids = 0;

    if (r->n > t->cap) {
        t->cap = 64;
        while (t->cap < r->n)
            t->cap *= 2;
        wf_free(w->ctx, t->id);
        wf_free(w->ctx, t->row);
        t->id = NULL;
        t->row = NULL;
        if (wf_grow(w->ctx, &t->id, &cap_ids, t->cap, sizeof *t->id) ||
            wf_grow(w->ctx, &t->row, &cap, t->cap * width, sizeof *t->row)) {
            t->cap = 0;
            return WEFT_ENOMEM;
        }
    }
    memcpy(t->row, r->row, (size_t)(r->n * width) * sizeof *t->row);
    for (int64_t i = r->n * width; i < t->cap * width; i++)
        t->row[i] = -0.0f;
    for (int64_t i = 0; i < t->cap; i++)
        t->id[i] = r->id[i % r->n];
    return WEFT_OK;
}

static weft_status fill_feeds(struct wf_work *w, struct wf_there *u, struct wf_contribution *sum)
{
    const struct wf_rules *r = &w->rules;
    weft_tensor *feed = u->feed;
    weft_status st = wf_merge_factors(r, sum->sums, MAX_GROUPS, u->factor);

    for (int i = 0; i < u->n_grads; i++) {
        const struct wf_var *v = &r->var[u->dense[i % u->n_dense]];

        *feed++ = weft_view(WEFT_F32, sum->away.dense + i / u->n_dense * r->n_dense + v->offset,
                            v->rank, v->dim);
    }
    for (int k = 0; k < u->n_factors; k++)
        *feed++ = (weft_tensor){.dtype = WEFT_F32, .data = &u->factor[k]};
    if (!st && u->n_tables)
        st = wf_merge_mean_rows(w->merge, sum);
    for (int i = 0; i < u->n_tables && !st; i++) {
        struct fed_rows *t = &u->table[i];

        st = fill_rows(w, t, &sum->rows[t->var]);
        *feed++ = weft_view(WEFT_I64, t->id, 1, &t->cap);
        *feed++ = weft_view(WEFT_F32, t->row, 2, (int64_t[]){t->cap, r->var[t->var].dim[1]});
    }
    if (w->b->rate.id)
        *feed++ = (weft_tensor){.dtype = WEFT_F32, .data = &w->t->rate};
    return st;
}

/* A table of which no row was looked up has nothing to feed. */
bool wf_there_takes(const struct wf_work *w, const struct wf_contribution *sum)
{
    const struct wf_rules *r = &w->rules;

    for (int v = 0; v < r->n_vars; v++) {
        int64_t n = 0;

        for (int k = 0; k < r->n_groups && r->var[v].table; k++)
            n += sum->rows[k * r->n_vars + v].n;
        if (r->var[v].table && n == 0)
            return false;
    }
    return sum->away.lane && w->replica[0].lane && wf_there_can(w);
}

weft_status wf_there_step(struct wf_work *w, struct wf_contribution **sum)
{
    struct wf_lane *lane = w->replica[0].lane;
    struct wf_run run = {.step = weft_trainer_step(w->t)};
    weft_status st = get(w);

    if (!st)
        st = wf_tree_bring(&w->tree, lane, sum);
    if (!st)
        st = fill_feeds(w, w->there, *sum);
    if (!st)
        st = wf_lane_ready(*sum, wf_lane_device(lane), wf_away_stream(w->there->fn));
    if (!st)
        st = wf_fn_run_at(w->there->fn, &run, w->there->feed, NULL);
    if (!st)
        wf_work_quiet(w);
    return st;
}
