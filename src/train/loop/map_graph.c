/* map_graph.c - graph functions and models as stages of a pipeline, over the callbacks of data's
 * map.
 *
 * A function has one slab, so it runs one batch at a time: its lock serializes the threads of all
 * iterators, and results are copied out before it is released. A stage keeps nothing from one batch
 * to the next. */
#include <stdio.h>

#include "train/train.h"
#include "weft/data_feature.h"
#include "weft/data_graph.h"

struct map_graph {
    const char *name;
    weft_fn *fn;           /* NULL: the trainer's */
    weft_trainer *t;       /* NULL: a function */
    struct wf_feeding how; /* models */
    int n_in, *in;         /* functions: the column of each feed */
    int n_out;
    int n_cols, *from; /* of the result: a column of the input, or -1 - number of a fetch */
    weft_column *col;
    const weft_column *in_col;
    weft_tensor *feeds, *fetches; /* used under the function's lock */
};

/* ---- one batch ------------------------------------------------------------------------------- */

static weft_status feed(struct map_graph *g, const weft_sample *in)
{
    weft_batch b = {.n_cols = in->n_cols, .column = g->in_col, .col = in->col};

    if (g->t)
        return wf_feeding_batch(g->t, &g->how, &b, g->feeds);
    for (int i = 0; i < g->n_in; i++)
        g->feeds[i] = in->col[g->in[i]];
    return WEFT_OK;
}

/* A tensor into column c of the sample. */
static weft_status put(const struct map_graph *g, weft_sample *out, int c, const weft_tensor *x)
{
    const weft_column *col = &g->col[c];
    struct wf_type t = wf_column_type(col);
    weft_status st = WEFT_OK;

    if (!wf_type_fixed(&t)) {
        st = weft_sample_shape(out, c, x->rank, x->dim);
    } else if (weft_tensor_count(x) != weft_tensor_count(&out->col[c]) || x->rank != col->rank) {
        struct wf_type have = wf_type_of(x->dtype, x->rank, x->dim);
        char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

        st = wf_err(WEFT_ESHAPE, "column '%s' is declared as %s, but is %s", col->name,
                    wf_type_text(&t, a), wf_type_text(&have, b));
    }
    for (int64_t i = 0; !st && x->dtype == WEFT_STR && i < weft_tensor_count(x); i++) {
        const weft_str *text = (const weft_str *)x->data + i;

        st = weft_sample_text(out, c, i, text->data, text->n);
    }
    if (!st && x->dtype != WEFT_STR && weft_tensor_count(x))
        memcpy(out->col[c].data, x->data, (size_t)weft_tensor_bytes(x));
    return st;
}

static weft_status run(struct map_graph *g, weft_fn *fn, const weft_sample *in, weft_sample *out)
{
    weft_status st = feed(g, in);

    for (int i = 0; i < g->n_out; i++)
        g->fetches[i] = (weft_tensor){.data = NULL};
    if (!st)
        st = weft_fn_run(fn, g->feeds, g->fetches);
    for (int c = 0; c < g->n_cols && !st; c++)
        if (g->from[c] < 0)
            st = put(g, out, c, &g->fetches[-1 - g->from[c]]);
    return st;
}

static weft_status map_batch(void *arg, const weft_sample *in, weft_sample *out)
{
    struct map_graph *g = arg;
    weft_fn *fn = g->t ? g->t->bound->predict : g->fn;
    weft_status st;

    pthread_mutex_lock(&fn->lock);
    st = run(g, fn, in, out);
    pthread_mutex_unlock(&fn->lock);
    for (int c = 0; c < g->n_cols && !st; c++)
        if (g->from[c] >= 0)
            st = put(g, out, c, &in->col[g->from[c]]);
    return st ? wf_err_wrap(st, "%s", g->name) : WEFT_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

static weft_status check_feed(const struct wf_ds *ds, int c, const char *feed,
                              const struct wf_type *want)
{
    const weft_column *col = &ds->col[c];
    struct wf_type have = wf_column_type(col);
    char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];
    bool fits = have.dtype == want->dtype && have.rank == want->rank;

    for (int k = 0; fits && k < have.rank; k++)
        fits = have.dim[k] < 0 || want->dim[k] < 0 || have.dim[k] == want->dim[k];
    if (fits)
        return WEFT_OK;
    return wf_err(have.dtype == want->dtype ? WEFT_ESHAPE : WEFT_EDTYPE,
                  "column '%s' is %s, but the feed '%s' is %s%s", col->name,
                  col->dtype == WEFT_STR ? "text" : wf_type_text(&have, a), feed,
                  wf_type_text(want, b),
                  have.dtype == want->dtype && have.rank + 1 == want->rank
                      ? ": batch it first (weft_ds_batch)"
                      : "");
}

/* Which columns feed the function, in the order of a list or by name. */
static weft_status find_feeds(struct map_graph *g, const struct wf_ds *ds, const char *inputs)
{
    const weft_graph *graph = g->fn->graph;
    int n = 0, *named = NULL;
    weft_status st = inputs ? wf_ds_columns_named(ds, inputs, &named, &n) : WEFT_OK;

    if (!st && inputs && n != g->n_in)
        st = wf_err(WEFT_EINVAL, "%d inputs are given, but the function has %d feeds", n, g->n_in);
    for (int i = 0; i < g->n_in && !st; i++) {
        const struct wf_value *v = &graph->values[g->fn->feeds[i]];
        const char *name = graph->nodes[v->node].name;

        g->in[i] = inputs ? named[i] : wf_ds_find(ds, name);
        st = g->in[i] < 0 ? wf_ds_err_column(ds, name) : check_feed(ds, g->in[i], name, &v->type);
    }
    return st;
}

/* Name and type of fetch i. */
static weft_status describe(const struct map_graph *g, int i, const char *name, weft_column *out)
{
    weft_tensor type;
    weft_status st = WEFT_OK;

    if (g->t) {
        weft_sym x = weft_model_output_at(g->t->model, i);

        st = weft_sym_type(g->t->model, x, &type);
        name = name ? name : weft_sym_name(g->t->model, x);
    } else {
        const struct wf_value *v = &g->fn->graph->values[g->fn->roots[i]];

        type = weft_view(v->type.dtype, NULL, v->type.rank, v->type.dim);
        name = name ? name : g->fn->graph->nodes[v->node].name;
    }
    if (st)
        return st;
    *out = (weft_column){.name = name, .dtype = type.dtype, .rank = type.rank};
    for (int k = 0; k < type.rank; k++)
        out->dim[k] = type.dim[k] < 0 ? WEFT_ANY : type.dim[k];
    return WEFT_OK;
}

static bool is_fed(const struct map_graph *g, int c)
{
    for (int i = 0; i < g->n_in; i++)
        if (g->in[i] == c)
            return true;
    return false;
}

/* The columns of the result: those of s with the fetches in place of (or after) what was fed. */
static weft_status lay_out(struct map_graph *g, const struct wf_ds *ds, struct wf_arena *a,
                           const weft_map_graph_opts *o)
{
    char(*names)[WF_NAME_MAX] = wf_arena_alloc(a, (size_t)(g->n_out + 1) * WF_NAME_MAX);
    int n_names = 0, at = 0;
    bool placed = false;
    weft_status st = WEFT_OK;

    if (!names)
        return wf_err_nomem(a->ctx, 0, "the pipeline");
    if (o->outputs)
        n_names = wf_names_split(o->outputs, names, g->n_out);
    if (o->outputs && n_names != g->n_out)
        return wf_err(WEFT_EINVAL, "'%s' does not name the %d outputs", o->outputs, g->n_out);
    for (int c = 0; c <= ds->n_cols && !st; c++) {
        bool fed = c < ds->n_cols && is_fed(g, c);

        if (c < ds->n_cols && (!fed || o->keep_inputs)) {
            g->col[at] = ds->col[c];
            g->from[at++] = c;
        }
        if (placed || (!fed && c < ds->n_cols))
            continue;
        placed = true;
        for (int i = 0; i < g->n_out && !st; i++) {
            st = describe(g, i, n_names ? names[i] : NULL, &g->col[at]);
            g->from[at++] = -1 - i;
        }
    }
    g->n_cols = at;
    return st;
}

static weft_status alloc(struct map_graph *g, struct wf_arena *a, int n_cols)
{
    size_t n = (size_t)(n_cols + g->n_out + 1), n_feeds = (size_t)g->n_in + 1;

    if (g->t)
        n_feeds += (size_t)g->t->n_out + 1;
    g->in = g->in ? g->in : wf_arena_alloc(a, n_feeds * sizeof *g->in);
    g->from = wf_arena_alloc(a, n * sizeof *g->from);
    g->col = wf_arena_alloc(a, n * sizeof *g->col);
    g->feeds = wf_arena_alloc(a, n_feeds * sizeof *g->feeds);
    g->fetches = wf_arena_alloc(a, (size_t)(g->n_out + 1) * sizeof *g->fetches);
    return g->in && g->from && g->col && g->feeds && g->fetches
               ? WEFT_OK
               : wf_err_nomem(a->ctx, 0, "the pipeline");
}

static weft_ds build(weft_data *d, weft_ds s, struct map_graph *g, const weft_map_graph_opts *o)
{
    const struct wf_ds *ds = wf_ds_node(d, s);
    weft_status st = alloc(g, &d->arena, ds->n_cols);

    g->in_col = ds->col;
    if (!st && g->fn)
        st = find_feeds(g, ds, o->inputs);
    if (!st)
        st = lay_out(g, ds, &d->arena, o);
    if (st)
        return wf_ds_fail(d, g->name, st);
    return weft_ds_map(d, s, g->n_cols, g->col, map_batch, g,
                       WEFT_OPTS(weft_map_opts, .name = g->name));
}

/* A new stage over s; NULL on failure, which the pipeline keeps. */
static struct map_graph *begin(weft_data *d, weft_ds s, const weft_map_graph_opts *opts,
                               weft_map_graph_opts *o)
{
    struct map_graph *g = NULL;
    weft_status st = wf_opts_take(o, sizeof *o, opts, "weft_map_graph_opts");

    if (weft_data_status(d))
        return NULL;
    if (!st && !wf_ds_node(d, s))
        st = wf_err(WEFT_EINVAL, "not a dataset of this pipeline");
    if (!st && !(g = wf_arena_alloc(&d->arena, sizeof *g)))
        st = wf_err_nomem(d->ctx, 0, "the pipeline");
    if (!st) {
        g->name = wf_arena_strdup(&d->arena, o->name ? o->name : "map_graph");
        st = g->name ? WEFT_OK : wf_err_nomem(d->ctx, 0, "the pipeline");
    }
    if (st) {
        wf_ds_fail(d, "map_graph", st);
        return NULL;
    }
    return g;
}

weft_ds weft_ds_map_graph(weft_data *d, weft_ds s, weft_fn *fn, const weft_map_graph_opts *opts)
{
    weft_map_graph_opts o;
    struct map_graph *g = begin(d, s, opts, &o);

    if (!g)
        return (weft_ds){0};
    if (!fn || fn->updates)
        return wf_ds_fail(
            d, g->name,
            wf_err(
                WEFT_EINVAL,
                fn ? "the function changes variables: its results would depend on the calls before"
                   : "no function"));
    g->fn = fn;
    g->n_in = fn->n_feeds;
    g->n_out = fn->n_fetches;
    return build(d, s, g, &o);
}

weft_ds weft_ds_map_model(weft_data *d, weft_ds s, weft_trainer *t, const weft_map_graph_opts *opts)
{
    weft_map_graph_opts o;
    struct map_graph *g = begin(d, s, opts, &o);
    weft_status st;

    if (!g)
        return (weft_ds){0};
    if (o.inputs)
        return wf_ds_fail(d, g->name, wf_err(WEFT_EINVAL, "a model finds its inputs by name"));
    st = wf_feeding_find(t, d, s, &(struct wf_feeding_opts){.batch = o.batch}, &g->how);
    if (!st)
        st = wf_trainer_bind_predict(t);
    if (!st && t->bound->infer.n_carries)
        st = wf_err(WEFT_EINVAL,
                    "the model has stateful layers: their results depend on the calls before");
    if (st)
        return wf_ds_fail(d, g->name, st);
    for (int i = g->how.n_in; i <= g->how.n_in + t->n_out; i++)
        g->how.column[i] = -1; /* labels and weights are not fed */
    g->how.weighted = false;
    g->t = t;
    g->n_in = g->how.n_in;
    g->in = g->how.column;
    g->n_out = t->n_out;
    return build(d, g->how.ds, g, &o);
}
