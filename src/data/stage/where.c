/* where.c - elements selected by the number in one of their columns.
 *
 * For an addressable dataset that is the same in every epoch, the numbers of the selected elements
 * are found in one pass when the pipeline is built: the result is addressable, too, and can be
 * fully shuffled. Otherwise elements are checked as they come. */
#include <math.h>
#include <stdlib.h>

#include "data/feature/feature.h"

struct where {
    int col, n_in;
    double *in;      /* ascending */
    double min, max; /* -inf, inf: any */
    bool invert;
    int64_t *chosen; /* numbers in the input; NULL: a stream */
    int64_t n_chosen, cap;
    uint64_t hash; /* of chosen, for the text */
};

/* ---- which ----------------------------------------------------------------------------------- */

static double number_at(const weft_tensor *t)
{
    switch (t->dtype) {
    case WEFT_F32: return (double)*(const float *)t->data;
    case WEFT_F64: return *(const double *)t->data;
    case WEFT_I8: return *(const int8_t *)t->data;
    case WEFT_U8: return *(const uint8_t *)t->data;
    case WEFT_BOOL: return *(const bool *)t->data;
    case WEFT_I32: return *(const int32_t *)t->data;
    default: return (double)*(const int64_t *)t->data;
    }
}

static bool wanted(const struct where *p, double v)
{
    bool yes = v >= p->min && v <= p->max; /* NaN is not in any range */

    if (p->n_in) {
        int lo = 0, hi = p->n_in;

        while (lo < hi) {
            int mid = (lo + hi) / 2;

            if (p->in[mid] < v)
                lo = mid + 1;
            else
                hi = mid;
        }
        yes = yes && lo < p->n_in && p->in[lo] == v;
    }
    return yes != p->invert;
}

static weft_status element_wanted(const struct where *p, const struct wf_block *b, int64_t i,
                                  bool *out)
{
    weft_tensor t = wf_col_element(&b->col[p->col], i);

    if (weft_tensor_count(&t) != 1)
        return wf_block_err(b, i,
                            wf_err(WEFT_ESHAPE, "where: the column holds %lld numbers, not one",
                                   (long long)weft_tensor_count(&t)));
    *out = wanted(p, number_at(&t));
    return WEFT_OK;
}

/* ---- streams --------------------------------------------------------------------------------- */

static weft_status where_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                               struct wf_block **out)
{
    void *flags = NULL;
    weft_status st = wf_block_alloc(in, in->n, &flags);

    (void)w;
    for (int64_t i = 0; i < in->n && !st; i++)
        st = element_wanted(ds->param, in, i, &((bool *)flags)[i]);
    if (st) {
        wf_block_free(in);
        return st;
    }
    return wf_block_filter(in, flags, out);
}

static void where_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct where *p = ds->param;

    wf_buf_printf(out, "%s%s", ds->col[p->col].name, p->invert ? " not" : "");
    if (!isinf(p->min) || !isinf(p->max))
        wf_buf_printf(out, " %.17g..%.17g", p->min, p->max);
    for (int i = 0; i < p->n_in; i++)
        wf_buf_printf(out, "%s%.17g", i ? "," : " in ", p->in[i]);
    if (p->chosen)
        wf_buf_printf(out, " of %lld: %016llx", (long long)ds->in[0]->count,
                      (unsigned long long)p->hash);
}

static void where_free(struct wf_ds *ds)
{
    wf_free(ds->data->ctx, ((struct where *)ds->param)->chosen);
}

static const struct wf_ds_kind stream_kind = {
    .name = "where", .apply = where_apply, .text = where_text, .free = where_free};

/* ---- by number ------------------------------------------------------------------------------- */

static weft_status chosen_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct where *p = ds->param;
    struct wf_chunk *room = wf_chunk_new(w->env, n * (int64_t)sizeof(struct wf_at));
    struct wf_at *to;
    weft_status st;

    if (!room)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *to, "chosen elements");
    to = (void *)room->data;
    for (int64_t i = 0; i < n; i++)
        to[i] = (struct wf_at){at[i].epoch, p->chosen[at[i].id]};
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(room);
    return st;
}

static const struct wf_ds_kind chosen_kind = {
    .name = "where", .get = chosen_get, .text = where_text, .free = where_free};

/* Whether element i is the same one in every epoch. The stages before a cache run as for epoch
 * 0. */
static bool fixed(const struct wf_ds *ds)
{
    static const char *const changing[] = {"shuffle_all", "sample"}, *const kept[] = {"cache",
                                                                                      "snapshot"};

    for (int i = 0; i < WF_COUNT(changing); i++) {
        if (strcmp(ds->kind->name, changing[i]) == 0)
            return false;
        if (strcmp(ds->kind->name, kept[i]) == 0)
            return true;
    }
    for (int i = 0; i < ds->n_in; i++)
        if (!fixed(ds->in[i]))
            return false;
    return true;
}

struct choosing {
    struct where *p;
    weft_ctx *ctx;
    int64_t at;
};

static weft_status choose(void *arg, const struct wf_block *b)
{
    struct choosing *c = arg;
    struct where *p = c->p, one = *p;
    weft_status st = WEFT_OK;

    one.col = 0; /* the only one of what is read here */
    for (int64_t i = 0; i < b->n && !st; i++, c->at++) {
        bool yes = false;

        st = element_wanted(&one, b, i, &yes);
        if (st || !yes)
            continue;
        st = wf_grow(c->ctx, &p->chosen, &p->cap, p->n_chosen + 1, sizeof *p->chosen);
        if (!st)
            p->chosen[p->n_chosen++] = c->at;
    }
    return st;
}

static weft_status find_chosen(weft_data *d, weft_ds s, const char *column, struct where *p)
{
    struct choosing c = {.p = p, .ctx = d->ctx};
    weft_status st = wf_grow(d->ctx, &p->chosen, &p->cap, 1, sizeof *p->chosen);

    if (!st)
        st = wf_pass_over(d, weft_ds_select(d, s, column), 0, 0, choose, &c);
    p->hash = st ? 0 : wf_hash64(p->chosen, (size_t)p->n_chosen * sizeof *p->chosen, 0);
    return st;
}

/* ---- building -------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static weft_status read_opts(struct wf_ds *ds, const char *column, const weft_where_opts *o)
{
    struct where *p = ds->param;
    weft_dtype t;

    if ((!o->n_values && !o->min && !o->max) || o->n_values < 0 || (o->n_values && !o->values))
        return wf_err(WEFT_EINVAL, "give values, min or max");
    p->col = column ? wf_ds_find(ds, column) : -1;
    if (p->col < 0)
        return wf_ds_err_column(ds, column ? column : "");
    t = ds->col[p->col].dtype;
    if (t == WEFT_STR || t == WEFT_F16 || t == WEFT_BF16)
        return wf_err(WEFT_EDTYPE, "column '%s' holds %s: look it up or cast it first", column,
                      t == WEFT_STR ? "text" : weft_dtype_name(t));
    p->min = o->min ? *o->min : -INFINITY;
    p->max = o->max ? *o->max : INFINITY;
    p->invert = o->others;
    p->n_in = o->n_values;
    p->in = wf_arena_alloc(&ds->data->arena, (size_t)(p->n_in + 1) * sizeof *p->in);
    if (!p->in)
        return wf_err_nomem(ds->data->ctx, 0, "the pipeline");
    for (int i = 0; i < p->n_in; i++)
        p->in[i] = o->values[i];
    qsort(p->in, (size_t)p->n_in, sizeof *p->in, by_value);
    return WEFT_OK;
}

weft_ds weft_ds_where(weft_data *d, weft_ds s, const char *column, const weft_where_opts *opts)
{
    weft_where_opts o;
    const struct wf_ds *from = wf_ds_node(d, s);
    bool by_number = from && wf_ds_addressable(from) && from->count != WEFT_ENDLESS && fixed(from);
    struct wf_ds *ds;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_where_opts");

    if (st)
        return wf_ds_fail(d, "where", st);
    ds = wf_ds_new(d, by_number ? &chosen_kind : &stream_kind, 1, &s, sizeof(struct where));
    if (!ds)
        return (weft_ds){0};
    st = read_opts(ds, column, &o);
    if (!st && by_number)
        st = find_chosen(d, s, column, ds->param);
    if (st)
        return wf_ds_fail(d, "where", st);
    if (by_number)
        ds->count = ((struct where *)ds->param)->n_chosen;
    else
        ds->inexact = true;
    return wf_ds_handle(ds);
}
