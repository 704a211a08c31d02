/* grads.c - gradients as values: created, inspected, added, averaged. */
#include <math.h>

#include "train/step/grads.h"

static weft_status copy_rules(weft_grads *g, const struct wf_rules *from)
{
    struct wf_rules *r = &g->rules;

    *r = (struct wf_rules){.n_dense = from->n_dense, .n_groups = 1, .whole = true, .n_sums = 2};
    r->var = wf_arena_alloc(&g->arena, (size_t)(from->n_vars + 1) * sizeof *r->var);
    if (!r->var)
        return wf_err_nomem(g->ctx, 0, "gradients");
    for (; r->n_vars < from->n_vars; r->n_vars++) {
        struct wf_var *v = &r->var[r->n_vars];

        *v = from->var[r->n_vars];
        v->name = wf_arena_strdup(&g->arena, v->name);
        if (!v->name)
            return wf_err_nomem(g->ctx, 0, "gradients");
    }
    return WEFT_OK;
}

weft_status wf_grads_new(weft_ctx *ctx, const struct wf_rules *rules, weft_grads **out)
{
    weft_grads *g = wf_alloc(ctx, sizeof *g);
    weft_status st;

    if (!g)
        return wf_err_nomem(ctx, sizeof *g, "gradients");
    g->ctx = ctx;
    wf_arena_init(&g->arena, ctx);
    st = copy_rules(g, rules);
    if (!st)
        st = wf_contribution_new(ctx, &g->rules, &g->c);
    if (st) {
        weft_grads_free(g);
        return st;
    }
    *out = g;
    return WEFT_OK;
}

void weft_grads_free(weft_grads *g)
{
    weft_ctx *ctx;

    if (!g)
        return;
    ctx = g->ctx;
    wf_contribution_free(g->c);
    wf_arena_free(&g->arena);
    wf_free(ctx, g);
}

bool wf_grads_fit(const weft_grads *g, const struct wf_rules *rules)
{
    const struct wf_rules *r = &g->rules;

    for (int i = 0; i < r->n_vars && rules->n_vars == r->n_vars; i++) {
        const struct wf_var *a = &r->var[i], *b = &rules->var[i];

        if (a->table != b->table || a->rank != b->rank || a->offset != b->offset ||
            memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) != 0 ||
            strcmp(a->name, b->name) != 0)
            return false;
    }
    return rules->n_vars == r->n_vars && rules->n_dense == r->n_dense;
}

weft_status wf_grads_take(weft_grads *g, const struct wf_contribution *mean)
{
    struct wf_contribution one = *mean;

    one.rules = &g->rules; /* its first group */
    g->weight = mean->sums[0];
    return wf_contribution_copy(g->c, &one);
}

/* ---- looking --------------------------------------------------------------------------------- */

int weft_grads_n(const weft_grads *g)
{
    return g->rules.n_vars;
}

const char *weft_grads_name(const weft_grads *g, int i)
{
    return i >= 0 && i < g->rules.n_vars ? g->rules.var[i].name : NULL;
}

static int find(const weft_grads *g, const char *name)
{
    for (int i = 0; i < g->rules.n_vars; i++)
        if (strcmp(g->rules.var[i].name, name) == 0)
            return i;
    return -1;
}

bool weft_grads_sparse(const weft_grads *g, const char *name)
{
    int i = find(g, name);

    return i >= 0 && g->rules.var[i].table;
}

static weft_status no_gradient(const weft_grads *g, const char *name)
{
    int n = g->rules.n_vars;
    const char **names = wf_alloc_n(g->ctx, n + 1, sizeof *names);
    struct wf_hint hint = {""};

    for (int i = 0; i < n && names; i++)
        names[i] = g->rules.var[i].name;
    if (names)
        hint = wf_did_you_mean(name, names, n);
    wf_free(g->ctx, names);
    return wf_err(WEFT_ENOENT, "no gradient of '%s'%s", name, hint.text);
}

weft_status weft_grads_view(weft_grads *g, const char *name, weft_tensor *out)
{
    int i = find(g, name);
    const struct wf_var *v = &g->rules.var[i < 0 ? 0 : i];

    if (i < 0)
        return no_gradient(g, name);
    if (v->table)
        return wf_err(WEFT_ESTATE, "the gradient of '%s' is sparse: use weft_grads_rows", name);
    *out = weft_view(WEFT_F32, g->c->dense + v->offset, v->rank, v->dim);
    return WEFT_OK;
}

weft_status weft_grads_rows(weft_grads *g, const char *name, weft_tensor *ids, weft_tensor *rows)
{
    int i = find(g, name);
    struct wf_rows *r = &g->c->rows[i < 0 ? 0 : i];

    if (i < 0)
        return no_gradient(g, name);
    if (!g->rules.var[i].table)
        return wf_err(WEFT_ESTATE, "the gradient of '%s' is dense: use weft_grads_view", name);
    *ids = weft_view(WEFT_I64, r->id, 1, &r->n);
    *rows = weft_view(WEFT_F32, r->row, 2, (int64_t[]){r->n, g->rules.var[i].dim[1]});
    return WEFT_OK;
}

bool weft_grads_finite(const weft_grads *g)
{
    return g->c->finite;
}

double weft_grads_weight(const weft_grads *g)
{
    return g->weight;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* to += factor · from, without the weights. On failure `to` is as before. */
static weft_status add_scaled(weft_grads *to, const weft_grads *from, float factor)
{
    const struct wf_rules *r = &to->rules;

    for (int i = 0; i < r->n_vars; i++) { /* first what may fail */
        struct wf_rows *rows = &to->c->rows[i];
        weft_status st =
            from->c->rows[i].n
                ? wf_rows_reserve(to->ctx, rows, rows->n + from->c->rows[i].n, r->var[i].dim[1])
                : WEFT_OK;

        if (st)
            return st;
    }
    for (int i = 0; i < r->n_vars; i++) {
        weft_status st = wf_rows_add(to->ctx, &to->c->scratch, &to->c->rows[i], &from->c->rows[i],
                                     r->var[i].dim[1], factor);

        if (st)
            return st;
    }
    wf_optim_fns_at(to->ctx->simd)->add_scaled(r->n_dense, to->c->dense, from->c->dense, factor);
    to->c->finite &= from->c->finite;
    return WEFT_OK;
}

weft_status weft_grads_scale(weft_grads *g, double factor)
{
    const struct wf_optim_fns *f = wf_optim_fns_at(g->ctx->simd);
    float by = (float)factor;

    if (!isfinite(by))
        return wf_err(WEFT_EINVAL, "gradients times %g", factor);
    f->scale(g->rules.n_dense, g->c->dense, by);
    for (int i = 0; i < g->rules.n_vars; i++)
        if (g->rules.var[i].table)
            f->scale(g->c->rows[i].n * g->rules.var[i].dim[1], g->c->rows[i].row, by);
    return WEFT_OK;
}

static weft_status err_differ(void)
{
    return wf_err(WEFT_EINVAL, "gradients of different weights cannot be added");
}

weft_status weft_grads_add(weft_grads *to, const weft_grads *from)
{
    weft_status st = wf_grads_fit(to, &from->rules) ? add_scaled(to, from, 1) : err_differ();

    if (!st)
        to->weight += from->weight;
    return st;
}

weft_status weft_grads_average(int n, const weft_grads *const *g, weft_grads **out)
{
    weft_grads *mean = NULL;
    double total = 0;
    weft_status st = n > 0 ? WEFT_OK : wf_err(WEFT_EINVAL, "the average of %d gradients", n);

    for (int i = 0; i < n && !st; i++) {
        total += g[i]->weight;
        if (!wf_grads_fit(g[i], &g[0]->rules) || (*out && g[i] == *out))
            st = g[i] == *out ? wf_err(WEFT_EINVAL, "an average into one of its terms")
                              : err_differ();
    }
    if (!st)
        st = wf_grads_new(g[0]->ctx, &g[0]->rules, &mean);
    for (int i = 0; i < n && !st; i++)
        st = add_scaled(mean, g[i], (float)(total > 0 ? g[i]->weight / total : 1.0 / n));
    if (st) {
        weft_grads_free(mean);
        return st;
    }
    mean->weight = total;
    weft_grads_free(*out);
    *out = mean;
    return WEFT_OK;
}
