/* example_node.c - the node that parses Examples, and its plan. */
#include <stdio.h>

#include "data/record/example.h"

/* ---- the plan -------------------------------------------------------------------------------- */

static weft_status list_of(const weft_example_feature *in, enum wf_list *out)
{
    switch (in->dtype) {
    case WEFT_F32:
    case WEFT_F64:
    case WEFT_F16:
    case WEFT_BF16: *out = WF_LIST_FLOAT; return WEFT_OK;
    case WEFT_I64:
    case WEFT_I32:
    case WEFT_I8:
    case WEFT_U8:
    case WEFT_BOOL: *out = WF_LIST_INT64; return WEFT_OK;
    default: break;
    }
    *out = WF_LIST_BYTES;
    return in->dtype == WEFT_STR ? WEFT_OK
                                 : wf_err(WEFT_EDTYPE, "dtype %d does not exist", (int)in->dtype);
}

static weft_status plan_shape(const weft_example_feature *in, struct wf_feature *f)
{
    int n_any = 0, first = in->sequence ? 1 : 0;

    if (in->rank < 0 || in->rank > WEFT_MAX_RANK || (in->sequence && in->rank < 1))
        return wf_err(WEFT_ESHAPE, "rank %d%s", in->rank,
                      in->rank ? "" : ": a sequence needs at least one axis, its steps");
    f->type = wf_type_of(in->dtype, in->rank, in->dim);
    f->count = f->row = 1;
    for (int i = 0; i < in->rank; i++) {
        bool any = in->dim[i] == WEFT_ANY;

        n_any += any;
        if (any && i > first)
            return wf_err(WEFT_ESHAPE, "axis %d cannot be WEFT_ANY", i);
        if (!any && in->dim[i] < 1)
            return wf_err(WEFT_ESHAPE, "axis %d has size %lld", i, (long long)in->dim[i]);
        f->steps_differ = f->steps_differ || (any && i == 1);
        if (!any && (!wf_mul_i64(f->count, in->dim[i], &f->count) || f->count > INT32_MAX))
            return wf_err(WEFT_ESHAPE, "too many items in one element");
        if (!any && i > 0)
            f->row *= in->dim[i];
    }
    if (n_any)
        f->count = -1;
    return WEFT_OK;
}

/* Missing values in the form in which they will be copied: for a fixed shape, all of them. */
static weft_status plan_missing(struct wf_arena *arena, const weft_example_feature *in,
                                struct wf_feature *f)
{
    int64_t n = in->n_missing ? in->n_missing : in->missing ? 1 : 0;
    char *to;

    if (!in->missing && n)
        return wf_err(WEFT_EINVAL, "n_missing without missing");
    if (n < 0 || n > INT32_MAX || (f->count >= 0 && n > 1 && n != f->count) ||
        (f->count < 0 && n % f->row) || (f->steps_differ && n))
        return wf_err(WEFT_ESHAPE, "%lld missing values do not fill the shape", (long long)n);
    if (!n)
        return WEFT_OK;
    f->n_missing = f->count >= 0 ? f->count : n;
    to = wf_arena_alloc(arena, (size_t)(f->n_missing * f->item));
    if (!to)
        return wf_err_nomem(arena->ctx, (size_t)(f->n_missing * f->item), "missing values");
    f->missing = to;
    for (int64_t i = 0; i < f->n_missing; i++)
        memcpy(to + i * f->item, (const char *)in->missing + (n == 1 ? 0 : i) * f->item,
               (size_t)f->item);
    for (int64_t i = 0; i < f->n_missing && in->dtype == WEFT_STR; i++) {
        weft_str *s = (weft_str *)(void *)to + i;
        char *copy = wf_arena_alloc(arena, (size_t)s->n + 1);

        if (!copy)
            return wf_err_nomem(arena->ctx, (size_t)s->n, "missing values");
        if (s->n)
            memcpy(copy, s->data, (size_t)s->n);
        s->data = copy;
    }
    return WEFT_OK;
}

static weft_status plan_feature(struct wf_arena *arena, const weft_example_feature *in,
                                struct wf_feature *f)
{
    weft_status st = list_of(in, &f->list);

    if (!st)
        st = plan_shape(in, f);
    if (st)
        return st;
    f->sequence = in->sequence;
    f->item = wf_item_bytes(in->dtype);
    f->name = wf_arena_strdup(arena, in->name);
    if (!f->name)
        return wf_err_nomem(arena->ctx, strlen(in->name), "feature");
    f->name_n = (int64_t)strlen(f->name);
    return plan_missing(arena, in, f);
}

/* Enters feature k into the table of names. */
static weft_status enter_name(struct wf_example *plan, int k)
{
    const struct wf_feature *f = &plan->f[k];
    uint64_t at = wf_hash64(f->name, (size_t)f->name_n, f->sequence);

    for (;; at++) {
        int32_t *slot = &plan->slot[at & plan->slot_mask];

        if (!*slot) {
            *slot = k + 1;
            return WEFT_OK;
        }
        if (plan->f[*slot - 1].sequence == f->sequence && !strcmp(plan->f[*slot - 1].name, f->name))
            return wf_err(WEFT_EEXIST, "is declared twice");
    }
}

weft_status wf_example_plan(struct wf_arena *arena, int n, const weft_example_feature *features,
                            struct wf_example *out)
{
    struct wf_example plan = {.n = n, .slot_mask = 7};
    weft_status st = WEFT_OK;

    if (n < 1 || n > WF_EXAMPLE_FEATURES || !features)
        return wf_err(WEFT_EINVAL, "%d features; 1 to %d are supported", n, WF_EXAMPLE_FEATURES);
    while (plan.slot_mask < 3 * (uint64_t)n)
        plan.slot_mask = plan.slot_mask * 2 + 1;
    plan.f = wf_arena_alloc(arena, (size_t)n * sizeof *plan.f);
    plan.slot = wf_arena_alloc(arena, (plan.slot_mask + 1) * sizeof *plan.slot);
    if (!plan.f || !plan.slot)
        return wf_err_nomem(arena->ctx, (size_t)n * sizeof *plan.f, "features");
    for (int k = 0; k < n && !st; k++) {
        if (!features[k].name)
            return wf_err(WEFT_EINVAL, "feature %d has no name", k);
        st = plan_feature(arena, &features[k], &plan.f[k]);
        if (!st)
            st = enter_name(&plan, k);
        plan.n_sequence += plan.f[k].sequence;
        st = wf_err_wrap(st, "feature '%s'", features[k].name);
    }
    if (!st)
        *out = plan;
    return st;
}

/* ---- the node -------------------------------------------------------------------------------- */

struct param {
    struct wf_example plan;
    int column; /* of the input */
    weft_on_error on_error;
};

static weft_status begin(struct wf_ds *ds, struct wf_worker *w, const struct wf_block *in,
                         struct wf_example_run **run, struct wf_block **out)
{
    const struct param *p = ds->param;
    weft_status st = WEFT_OK;

    *run = wf_scratch(w, ds);
    if (!*run) {
        st = wf_example_run_new(w->env->ctx, &p->plan, run);
        if (st)
            return st;
        wf_scratch_set(w, ds, *run);
    }
    st = wf_block_new(w->env, ds->n_cols, in->n, out);
    if (!st)
        st = wf_example_begin(*run, *out);
    if (!st && in->from)
        st = wf_block_origins(*out);
    if (st)
        return st;
    memcpy((*out)->at, in->at, (size_t)in->n * sizeof *in->at);
    if (in->from)
        memcpy((*out)->from, in->from, (size_t)in->n * sizeof *in->from);
    return WEFT_OK;
}

static weft_status parse_all(struct wf_ds *ds, struct wf_example_run *run,
                             const struct wf_block *in, bool **keep)
{
    const struct param *p = ds->param;
    const weft_str *s = in->col[p->column].data;
    int64_t n_bad = 0;
    void *marks = NULL;
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < in->n; i++) {
        st = wf_example_parse(run, i, s[i].data, s[i].n);
        if (!st)
            continue;
        if (st != WEFT_EDATA || p->on_error != WEFT_ON_ERROR_SKIP)
            return wf_block_err(in, i, st);
        if (!marks) {
            st = wf_block_alloc(run->b, in->n, &marks);
            if (st)
                return st;
            *keep = memset(marks, true, (size_t)in->n);
        }
        (*keep)[i] = false;
        n_bad++;
    }
    atomic_fetch_add_explicit(&wf_stats_of(in->env, ds)->n_skipped, n_bad, memory_order_relaxed);
    return WEFT_OK;
}

static weft_status ex_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                            struct wf_block **out)
{
    struct wf_example_run *run;
    struct wf_block *b = NULL;
    bool *keep = NULL, text = false;
    weft_status st = begin(ds, w, in, &run, &b);

    if (!st)
        st = parse_all(ds, run, in, &keep);
    for (int c = 0; c < ds->n_cols; c++)
        text = text || ds->col[c].dtype == WEFT_STR;
    for (int64_t i = 0; i < in->n_keep && text && !st; i++)
        st = wf_block_keep(b, in->keep[i]);
    wf_block_free(in);
    if (st) {
        wf_block_free(b);
        return st;
    }
    if (keep)
        return wf_block_filter(b, keep, out);
    *out = b;
    return WEFT_OK;
}

static void ex_scratch_free(struct wf_ds *ds, void *scratch)
{
    wf_example_run_free(ds->data->ctx, scratch);
}

static void ex_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct param *p = ds->param;

    for (int k = 0; k < p->plan.n; k++) {
        char type[WF_TYPE_TEXT];

        wf_type_text(&p->plan.f[k].type, type);
        wf_buf_printf(out, "%s%s %s%s%s", k ? ", " : "", p->plan.f[k].name,
                      p->plan.f[k].type.dtype == WEFT_STR ? "str" : "",
                      p->plan.f[k].type.dtype == WEFT_STR ? strchr(type, '[') : type,
                      p->plan.f[k].sequence ? " sequence" : "");
    }
    if (p->on_error == WEFT_ON_ERROR_SKIP)
        wf_buf_printf(out, ", bad ones skipped");
}

static const struct wf_ds_kind ex_kind = {
    .name = "example",
    .apply = ex_apply,
    .scratch_free = ex_scratch_free,
    .text = ex_text,
};

/* The input's column of bytes. */
static weft_status find_column(const struct wf_ds *in, const char *name, int *out)
{
    int n_found = 0;

    if (name) {
        *out = wf_ds_find(in, name);
        if (*out < 0)
            return wf_ds_err_column(in, name);
        if (in->col[*out].dtype != WEFT_STR || in->col[*out].rank)
            return wf_err(WEFT_EDTYPE, "column '%s' does not hold one string per element", name);
        return WEFT_OK;
    }
    for (int c = 0; c < in->n_cols; c++)
        if (in->col[c].dtype == WEFT_STR && !in->col[c].rank) {
            *out = c;
            n_found++;
        }
    return n_found == 1
               ? WEFT_OK
               : wf_err(WEFT_EINVAL, "%d columns hold one string per element: name one", n_found);
}

static weft_status set_columns(struct wf_ds *ds, int n, const weft_example_feature *features)
{
    weft_ctx *ctx = ds->data->ctx;
    weft_column *col = wf_alloc_n(ctx, n, sizeof *col);
    weft_status st;

    if (!col)
        return wf_err_nomem(ctx, (size_t)n * sizeof *col, "columns");
    for (int k = 0; k < n; k++) {
        const weft_example_feature *f = &features[k];

        col[k] = wf_column_of(f->column ? f->column : f->name, f->dtype, f->rank, f->dim);
        col[k].role = f->role;
    }
    st = wf_ds_set_columns(ds, n, col);
    wf_free(ctx, col);
    return st;
}

weft_ds weft_ds_example(weft_data *d, weft_ds s, int n, const weft_example_feature *features,
                        const weft_example_opts *opts)
{
    weft_example_opts o;
    struct wf_ds *ds = wf_ds_new(d, &ex_kind, 1, &s, sizeof(struct param));
    struct param *p;
    weft_status st;

    if (!ds)
        return wf_ds_handle(NULL);
    p = ds->param;
    st = wf_opts_take(&o, sizeof o, opts, "weft_example_opts");
    if (!st)
        st = find_column(ds->in[0], o.column, &p->column);
    if (!st)
        st = wf_example_plan(&d->arena, n, features, &p->plan);
    if (!st)
        st = set_columns(ds, n, features);
    if (st)
        return wf_ds_fail(d, "example", st);
    p->on_error = o.on_error;
    ds->inexact = ds->inexact || p->on_error == WEFT_ON_ERROR_SKIP;
    return wf_ds_handle(ds);
}
