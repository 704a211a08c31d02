/* grads.c - gradients as values: created, inspected, added, averaged. */
#include <math.h>

#include "train/step/grads.h"

static weft_status err_nomem(weft_ctx *ctx, int64_t floats)
{
    return wf_err_nomem(ctx, (size_t)floats * sizeof(float), "gradients");
}

weft_status wf_grads_new(weft_ctx *ctx, int n, const struct wf_grad_entry *entry, weft_grads **out)
{
    weft_grads *g = wf_alloc(ctx, sizeof *g);
    weft_status st;

    if (!g)
        return err_nomem(ctx, 0);
    g->ctx = ctx;
    wf_arena_init(&g->arena, ctx);
    g->entry = wf_arena_alloc(&g->arena, (size_t)(n + 1) * sizeof *g->entry);
    g->rows = wf_arena_alloc(&g->arena, (size_t)(n + 1) * sizeof *g->rows);
    if (!g->entry || !g->rows)
        goto failed;
    for (; g->n < n; g->n++) {
        struct wf_grad_entry *e = &g->entry[g->n];

        *e = entry[g->n];
        e->name = wf_arena_strdup(&g->arena, entry[g->n].name);
        if (!e->name)
            goto failed;
        if (!e->sparse)
            g->n_dense = wf_max_i64(g->n_dense, e->offset + e->count);
    }
    g->dense = wf_alloc_n(ctx, g->n_dense + 1, sizeof *g->dense);
    if (!g->dense)
        goto failed;
    *out = g;
    return WEFT_OK;
failed:
    st = err_nomem(ctx, g->n_dense);
    weft_grads_free(g);
    return st;
}

void weft_grads_free(weft_grads *g)
{
    weft_ctx *ctx;

    if (!g)
        return;
    ctx = g->ctx;
    for (int i = 0; i < g->n; i++) {
        wf_free(ctx, g->rows[i].id);
        wf_free(ctx, g->rows[i].row);
    }
    wf_free(ctx, g->dense);
    wf_arena_free(&g->arena);
    wf_free(ctx, g);
}

bool wf_grads_fit(const weft_grads *g, int n, const struct wf_grad_entry *entry)
{
    for (int i = 0; i < n && n == g->n; i++) {
        const struct wf_grad_entry *a = &g->entry[i], *b = &entry[i];

        if (a->sparse != b->sparse || a->rank != b->rank || a->offset != b->offset ||
            memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) != 0 ||
            strcmp(a->name, b->name) != 0)
            return false;
    }
    return n == g->n;
}

void wf_grads_clear(weft_grads *g)
{
    memset(g->dense, 0, (size_t)g->n_dense * sizeof *g->dense);
    for (int i = 0; i < g->n; i++)
        g->rows[i].n = 0;
    g->weight = 0;
    g->bad = false;
}

/* ---- looking --------------------------------------------------------------------------------- */

int weft_grads_n(const weft_grads *g)
{
    return g->n;
}

const char *weft_grads_name(const weft_grads *g, int i)
{
    return i >= 0 && i < g->n ? g->entry[i].name : NULL;
}

static int find(const weft_grads *g, const char *name)
{
    for (int i = 0; i < g->n; i++)
        if (strcmp(g->entry[i].name, name) == 0)
            return i;
    return -1;
}

bool weft_grads_sparse(const weft_grads *g, const char *name)
{
    int i = find(g, name);

    return i >= 0 && g->entry[i].sparse;
}

static weft_status no_gradient(const weft_grads *g, const char *name)
{
    const char **names = wf_alloc_n(g->ctx, g->n + 1, sizeof *names);
    struct wf_hint hint = {""};

    for (int i = 0; i < g->n && names; i++)
        names[i] = g->entry[i].name;
    if (names)
        hint = wf_did_you_mean(name, names, g->n);
    wf_free(g->ctx, names);
    return wf_err(WEFT_ENOENT, "no gradient of '%s'%s", name, hint.text);
}

weft_status weft_grads_view(weft_grads *g, const char *name, weft_tensor *out)
{
    int i = find(g, name);

    if (i < 0)
        return no_gradient(g, name);
    if (g->entry[i].sparse)
        return wf_err(WEFT_ESTATE, "the gradient of '%s' is sparse: use weft_grads_rows", name);
    *out = weft_view(WEFT_F32, g->dense + g->entry[i].offset, g->entry[i].rank, g->entry[i].dim);
    return WEFT_OK;
}

weft_status weft_grads_rows(weft_grads *g, const char *name, weft_tensor *ids, weft_tensor *rows)
{
    int i = find(g, name);

    if (i < 0)
        return no_gradient(g, name);
    if (!g->entry[i].sparse)
        return wf_err(WEFT_ESTATE, "the gradient of '%s' is dense: use weft_grads_view", name);
    *ids = weft_view(WEFT_I64, g->rows[i].id, 1, &g->rows[i].n);
    *rows = weft_view(WEFT_F32, g->rows[i].row, 2, (int64_t[]){g->rows[i].n, g->entry[i].dim[1]});
    return WEFT_OK;
}

bool weft_grads_finite(const weft_grads *g)
{
    return !g->bad;
}

double weft_grads_weight(const weft_grads *g)
{
    return g->weight;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Room for n more rows. */
static weft_status reserve(weft_grads *g, int i, int64_t n)
{
    struct wf_grad_rows *r = &g->rows[i];
    weft_status st = wf_grow(g->ctx, &r->id, &r->cap_ids, r->n + n, sizeof *r->id);

    return st ? st
              : wf_grow(g->ctx, &r->row, &r->cap_rows, (r->n + n) * g->entry[i].dim[1],
                        sizeof *r->row);
}

weft_status wf_grads_append(weft_grads *g, int i, const weft_tensor *ids, const weft_tensor *rows)
{
    struct wf_grad_rows *r = &g->rows[i];
    int64_t n = weft_tensor_count(ids), width = g->entry[i].dim[1];
    weft_status st = reserve(g, i, n);

    if (st || n == 0)
        return st;
    for (int64_t k = 0; k < n; k++)
        r->id[r->n + k] = ids->dtype == WEFT_I64 ? ((const int64_t *)ids->data)[k]
                                                 : ((const int32_t *)ids->data)[k];
    memcpy(r->row + r->n * width, rows->data, (size_t)(n * width) * sizeof *r->row);
    r->n += n;
    return WEFT_OK;
}

weft_status wf_grads_add_scaled(weft_grads *to, const weft_grads *from, float factor)
{
    for (int i = 0; i < to->n; i++) { /* first what may fail */
        weft_status st = to->entry[i].sparse ? reserve(to, i, from->rows[i].n) : WEFT_OK;

        if (st)
            return st;
    }
    to->bad |= from->bad;
    for (int64_t i = 0; i < to->n_dense; i++)
        to->dense[i] += factor * from->dense[i];
    for (int i = 0; i < to->n; i++) {
        struct wf_grad_rows *r = &to->rows[i];
        const struct wf_grad_rows *add = &from->rows[i];
        int64_t width = to->entry[i].dim[1];

        if (!to->entry[i].sparse || add->n == 0)
            continue;
        memcpy(r->id + r->n, add->id, (size_t)add->n * sizeof *r->id);
        for (int64_t k = 0; k < add->n * width; k++)
            r->row[r->n * width + k] = factor * add->row[k];
        r->n += add->n;
    }
    return WEFT_OK;
}

weft_status weft_grads_scale(weft_grads *g, double factor)
{
    float f = (float)factor;

    if (!isfinite(f))
        return wf_err(WEFT_EINVAL, "gradients times %g", factor);
    for (int64_t i = 0; i < g->n_dense; i++)
        g->dense[i] *= f;
    for (int i = 0; i < g->n; i++)
        for (int64_t k = 0; g->entry[i].sparse && k < g->rows[i].n * g->entry[i].dim[1]; k++)
            g->rows[i].row[k] *= f;
    return WEFT_OK;
}

static weft_status err_differ(void)
{
    return wf_err(WEFT_EINVAL, "gradients of different weights cannot be added");
}

weft_status weft_grads_add(weft_grads *to, const weft_grads *from)
{
    weft_status st =
        wf_grads_fit(to, from->n, from->entry) ? wf_grads_add_scaled(to, from, 1) : err_differ();

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
        if (!wf_grads_fit(g[i], g[0]->n, g[0]->entry) || (*out && g[i] == *out))
            st = g[i] == *out ? wf_err(WEFT_EINVAL, "an average into one of its terms")
                              : err_differ();
    }
    if (!st)
        st = wf_grads_new(g[0]->ctx, g[0]->n, g[0]->entry, &mean);
    for (int i = 0; i < n && !st; i++)
        st = wf_grads_add_scaled(mean, g[i], (float)(total > 0 ? g[i]->weight / total : 1.0 / n));
    if (st) {
        weft_grads_free(mean);
        return st;
    }
    mean->weight = total;
    weft_grads_free(*out);
    *out = mean;
    return WEFT_OK;
}
