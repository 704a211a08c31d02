/* build.c - turns models into graphs: one layer call as nodes, and all calls of a model in order.
 *
 * A weight is one variable of a graph, no matter how many calls use it; two builds into one graph
 * share variables and placeholders by name. Nodes are in the scope of their layer. */
#include <stdio.h>

#include "model/core.h"
#include "model/layers.h"

enum { MAX_FULL_NAME = 512 };

static const struct wf_layer *layer_of(const weft_layer_call *c)
{
    return wf_layer_at(c->b->m, c->layer);
}

static weft_status keep(weft_layer_call *c, weft_status st)
{
    if (!c->st)
        c->st = st;
    return st;
}

weft_status wf_lc_failed(weft_layer_call *c, weft_status st)
{
    if (st && !c->b->g->st) {
        wf_err_wrap(st, "layer '%s'", layer_of(c)->name);
        wf_graph_fail(c->b->g, st); /* later builders do nothing, and the first text is kept */
    }
    return keep(c, st);
}

weft_status weft_lc_fail(weft_layer_call *c, weft_status st, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    wf_errv(st, fmt, args);
    va_end(args);
    return wf_lc_failed(c, st);
}

/* ---- what a build function asks -------------------------------------------------------------- */

weft_graph *weft_lc_graph(weft_layer_call *c)
{
    return c->b->g;
}

bool weft_lc_training(const weft_layer_call *c)
{
    return c->b->training && !layer_of(c)->frozen;
}

const char *weft_lc_name(const weft_layer_call *c)
{
    return layer_of(c)->name;
}

static const struct wf_attr *attr_of(const weft_layer_call *c, const char *name)
{
    const struct wf_layer *l = layer_of(c);

    return wf_attr_find(l->row->spec, l->row->n_specs, l->attr, name);
}

int64_t weft_lc_int(const weft_layer_call *c, const char *attr)
{
    return attr_of(c, attr)->i;
}

double weft_lc_float(const weft_layer_call *c, const char *attr)
{
    return attr_of(c, attr)->f;
}

bool weft_lc_bool(const weft_layer_call *c, const char *attr)
{
    return attr_of(c, attr)->i != 0;
}

const char *weft_lc_text(const weft_layer_call *c, const char *attr)
{
    const char *s = attr_of(c, attr)->s;

    return s ? s : "";
}

int weft_lc_ints(const weft_layer_call *c, const char *attr, const int64_t **out)
{
    const struct wf_attr *a = attr_of(c, attr);

    *out = a->ints;
    return a->n;
}

int weft_lc_floats(const weft_layer_call *c, const char *attr, const double **out)
{
    const struct wf_attr *a = attr_of(c, attr);

    *out = a->floats;
    return a->n;
}

weft_status weft_lc_tuple(weft_layer_call *c, const char *attr, int n, int64_t *out)
{
    const struct wf_attr *a = attr_of(c, attr);

    if (a->n != n && a->n != 1)
        return weft_lc_fail(c, WEFT_EINVAL, "%s needs one number or %d, got %d", attr, n, a->n);
    for (int i = 0; i < n; i++)
        out[i] = a->ints[a->n == 1 ? 0 : i];
    return WEFT_OK;
}

int weft_lc_n_in(const weft_layer_call *c)
{
    return c->n_in;
}

weft_val weft_lc_in(const weft_layer_call *c, int i)
{
    return i >= 0 && i < c->n_in ? c->in[i] : WEFT_NIL;
}

weft_val weft_lc_mask(const weft_layer_call *c, int i)
{
    return c->mask && i >= 0 && i < c->n_in ? c->mask[i] : WEFT_NIL;
}

int weft_lc_rank(const weft_layer_call *c, weft_val v)
{
    return v.id > 0 && v.id < c->b->g->n_values ? wf_val_type_of(c->b->g, v)->rank : 0;
}

int64_t weft_lc_dim(weft_layer_call *c, weft_val v, int axis)
{
    const struct wf_type *t;
    char text[WF_TYPE_TEXT];

    if (c->b->g->st || c->st)
        return 0;
    if (v.id <= 0 || v.id >= c->b->g->n_values) {
        weft_lc_fail(c, WEFT_EINVAL, "value %d does not exist in this graph", v.id);
        return 0;
    }
    t = wf_val_type_of(c->b->g, v);
    if (axis < -t->rank || axis >= t->rank) {
        weft_lc_fail(c, WEFT_ERANGE, "axis %d does not exist in %s", axis, wf_type_text(t, text));
        return 0;
    }
    if (t->dim[axis < 0 ? axis + t->rank : axis] < 0) {
        weft_lc_fail(c, WEFT_ESHAPE, "the size of axis %d of %s must be known", axis,
                     wf_type_text(t, text));
        return 0;
    }
    return t->dim[axis < 0 ? axis + t->rank : axis];
}

/* ---- what a build function gives ------------------------------------------------------------- */

void weft_lc_out(weft_layer_call *c, int i, weft_val v)
{
    if (i < 0 || i >= WF_MAX_OUT) {
        weft_lc_fail(c, WEFT_ELIMIT, "output %d; at most %d are supported", i, WF_MAX_OUT);
        return;
    }
    c->out[i] = v;
    if (c->n_out <= i)
        c->n_out = i + 1;
}

void weft_lc_out_mask(weft_layer_call *c, int i, weft_val mask)
{
    if (i >= 0 && i < WF_MAX_OUT)
        c->out_mask[i] = mask;
}

static void add_val(weft_layer_call *c, weft_val **list, int64_t *n, int64_t *cap, weft_val v)
{
    weft_status st;

    if (c->b->g->st)
        return;
    st = wf_grow(c->b->g->ctx, list, cap, *n + 1, sizeof **list);
    if (st)
        wf_lc_failed(c, st);
    else
        (*list)[(*n)++] = v;
}

void weft_lc_loss(weft_layer_call *c, weft_val scalar)
{
    if (!c->b->g->st && weft_lc_rank(c, scalar))
        weft_lc_fail(c, WEFT_ESHAPE, "a loss must be a scalar");
    if (c->b->training)
        add_val(c, &c->b->losses, &c->b->n_losses, &c->b->cap_losses, scalar);
}

void weft_lc_update(weft_layer_call *c, weft_val update)
{
    if (c->b->training)
        add_val(c, &c->b->updates, &c->b->n_updates, &c->b->cap_updates, update);
}

void wf_lc_carry(weft_layer_call *c, weft_val update)
{
    if (c->b->training)
        weft_lc_update(c, update);
    else
        add_val(c, &c->b->carries, &c->b->n_carries, &c->b->cap_carries, update);
}

/* ---- weights --------------------------------------------------------------------------------- */

static weft_status check_again(weft_layer_call *c, const struct wf_weight *w, int rank,
                               const int64_t *dim, weft_dtype dtype)
{
    struct wf_type had = wf_type_of(w->dtype, w->rank, w->dim), now = wf_type_of(dtype, rank, dim);
    char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

    if (had.dtype == now.dtype && wf_type_same_shape(&had, &now))
        return WEFT_OK;
    return weft_lc_fail(c, WEFT_ESHAPE,
                        "its weight '%s' is %s, but this call needs %s: inputs of a shared layer "
                        "must match those of its first call",
                        w->name, wf_type_text(&had, a), wf_type_text(&now, b));
}

static const char *kept_word(weft_model *m, const char *text)
{
    return wf_word_none(text) ? NULL : wf_arena_strdup(&m->arena, text);
}

static weft_status new_weight(weft_layer_call *c, const char *full, int rank, const int64_t *dim,
                              const weft_weight_opts *o)
{
    weft_model *m = c->b->m;
    struct wf_model_weight *w = wf_arena_alloc(&m->arena, sizeof *w);
    weft_status st = WEFT_OK;

    if (!w)
        return wf_err_nomem(m->ctx, sizeof *w, "weight");
    w->is = (struct wf_weight){.name = wf_arena_strdup(&m->arena, full),
                               .regularizer = kept_word(m, o->regularizer),
                               .constraint = kept_word(m, o->constraint),
                               .evict = kept_word(m, o->evict),
                               .layer = c->layer,
                               .state = o->state,
                               .dense = o->dense,
                               .rank = rank,
                               .dtype = o->dtype ? o->dtype : WEFT_F32};
    if (!w->is.name || (!w->is.regularizer && !wf_word_none(o->regularizer)) ||
        (!w->is.constraint && !wf_word_none(o->constraint)) ||
        (!w->is.evict && !wf_word_none(o->evict)))
        return wf_err_nomem(m->ctx, 0, "weight");
    if (rank < 0 || rank > WEFT_MAX_RANK)
        return wf_err(WEFT_EINVAL, "weight '%s': rank %d", full, rank);
    for (int i = 0; i < rank; i++)
        w->is.dim[i] = dim[i];
    st = wf_initializer(&m->arena, wf_word_none(o->initializer) ? "glorot_uniform" : o->initializer,
                        rank, dim, o->fan_in, o->fan_out, &w->init);
    if (!st && w->is.regularizer)
        st = wf_regularizer_check(&m->arena, w->is.regularizer);
    if (!st && w->is.constraint)
        st = wf_constraint_check(&m->arena, w->is.constraint);
    if (!st && w->is.evict)
        st = wf_evict_check(&m->arena, &w->is);
    if (!st)
        st = wf_grow(m->ctx, &m->weights, &m->cap_weights, m->n_weights + 1, sizeof *m->weights);
    if (!st)
        st = wf_map_put(&m->weight_names, w->is.name, m->n_weights);
    if (st)
        return wf_err_wrap(st, "weight '%s'", full);
    w->init.dtype = w->is.dtype;
    m->weights[m->n_weights++] = w;
    return WEFT_OK;
}

/* The variable of weight i in the builder's graph. */
static weft_status variable_of(struct wf_builder *b, int64_t i, weft_val *out)
{
    const struct wf_model_weight *w = b->m->weights[i];
    weft_variable_opts o = w->init;
    const char *scope = b->g->scope, *device = b->g->device, *own;
    weft_status st = wf_grow(b->m->ctx, &b->weights, &b->cap_weights, i + 1, sizeof *b->weights);
    int64_t node;

    if (st)
        return st;
    if (!b->weights[i].id && wf_map_get(&b->g->names, w->is.name, &node))
        b->weights[i].id = b->g->nodes[node].first_out;
    if (!b->weights[i].id) {
        o.size = sizeof o;
        o.not_trainable = w->is.state || wf_layer_at(b->m, w->is.layer)->frozen;
        own = wf_layer_at(b->m, w->is.layer)->device;
        own = own ? wf_arena_strdup(&b->g->arena, own) : NULL;
        b->g->scope = ""; /* its name is the weight's, wherever it is first used */
        b->g->device = own ? own : device;
        b->weights[i] = weft_variable(b->g, w->is.name, w->is.rank, w->is.dim, &o);
        b->g->scope = scope;
        b->g->device = device;
    }
    *out = b->weights[i];
    return weft_graph_status(b->g);
}

weft_val weft_lc_weight(weft_layer_call *c, const char *name, int rank, const int64_t *dim,
                        const weft_weight_opts *opts)
{
    weft_weight_opts o;
    weft_model *m = c->b->m;
    char full[MAX_FULL_NAME];
    weft_val v = WEFT_NIL;
    weft_status st;
    int64_t i = 0;

    if (c->b->g->st || c->st)
        return WEFT_NIL;
    st = wf_opts_take(&o, sizeof o, opts, "weft_weight_opts");
    if (!st &&
        snprintf(full, sizeof full, "%s%s/%s", layer_of(c)->name, c->path, name) >= MAX_FULL_NAME)
        st = wf_err(WEFT_ELIMIT, "the name of weight '%.32s' is too long", name);
    if (!st && wf_map_get(&m->weight_names, full, &i)) {
        if (check_again(c, &m->weights[i]->is, rank, dim, o.dtype ? o.dtype : WEFT_F32))
            return WEFT_NIL;
    } else if (!st) {
        i = m->n_weights;
        st = new_weight(c, full, rank, dim, &o);
    }
    if (!st)
        st = variable_of(c->b, i, &v);
    wf_lc_failed(c, st);
    return v;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static weft_status check_arity(weft_layer_call *c)
{
    const weft_layer_kind *k = &layer_of(c)->row->kind;

    if (c->n_in >= k->n_in_min && (k->n_in_max < 0 || c->n_in <= k->n_in_max))
        return WEFT_OK;
    if (k->n_in_max == k->n_in_min)
        return weft_lc_fail(c, WEFT_EINVAL, "%s takes %d input%s, got %d", k->name, k->n_in_min,
                            k->n_in_min == 1 ? "" : "s", c->n_in);
    if (k->n_in_max < 0)
        return weft_lc_fail(c, WEFT_EINVAL, "%s takes at least %d inputs, got %d", k->name,
                            k->n_in_min, c->n_in);
    return weft_lc_fail(c, WEFT_EINVAL, "%s takes %d to %d inputs, got %d", k->name, k->n_in_min,
                        k->n_in_max, c->n_in);
}

weft_status wf_lc_activity(weft_layer_call *c, const char *regularizer, weft_val v)
{
    weft_graph *g = c->b->g;
    weft_val loss, n;
    weft_status st;

    if (wf_word_none(regularizer))
        return WEFT_OK;
    if (!c->b->training)
        return wf_lc_failed(c, wf_regularizer_check(&c->b->m->arena, regularizer));
    st = wf_lc_failed(c, wf_regularizer_build(g, regularizer, v, &loss));
    if (st)
        return st;
    n = weft_size_of(g, v, WEFT_OPTS(weft_size_of_opts, .n_axes = 1));
    weft_lc_loss(c, weft_div(g, loss, weft_max(g, n, weft_scalar(g, 1))));
    return weft_graph_status(g);
}

/* An error of the graph begins with the scope; a user of models wants to see the layer. */
static weft_status graph_error(weft_layer_call *c, const char *scope)
{
    weft_graph *g = c->b->g;
    size_t n = strlen(scope);
    char text[sizeof g->error];

    if (!strncmp(g->error, "layer '", 7)) { /* by weft_lc_fail, or from an inner layer */
        wf_err_set(g->error);
        return g->st;
    }
    snprintf(text, sizeof text, "%s", g->error);
    wf_err_set(!strncmp(text, scope, n) && text[n] == ':' ? text + n + 2 : text);
    wf_err_wrap(g->st, "layer '%s'", layer_of(c)->name);
    snprintf(g->error, sizeof g->error, "%s", weft_error());
    return g->st;
}

static weft_status check_outputs(weft_layer_call *c)
{
    if (!c->n_out)
        return weft_lc_fail(c, WEFT_EBUG, "its build function returned no output");
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].id <= 0 || c->out[i].id >= c->b->g->n_values)
            return weft_lc_fail(c, WEFT_EBUG, "its build function returned no value for output %d",
                                i);
    return WEFT_OK;
}

weft_status wf_call_build(struct wf_builder *b, weft_layer l, const char *path, int n_in,
                          const weft_val *in, const weft_val *mask, weft_layer_call *c)
{
    const weft_layer_kind *k = &wf_layer_at(b->m, l)->row->kind;
    const char *scope;
    weft_status st;

    *c = (weft_layer_call){.b = b, .layer = l, .path = path, .n_in = n_in, .in = in, .mask = mask};
    if (weft_graph_status(b->g))
        return b->g->st;
    st = check_arity(c);
    if (st)
        return st;
    weft_scope_push(b->g, layer_of(c)->name);
    scope = b->g->scope;
    st = weft_graph_status(b->g);
    if (!st)
        st = k->build(c);
    if (!st && !c->st && !b->g->st)
        st = check_outputs(c);
    for (int i = 0; i < c->n_out && !st && !c->st && !b->g->st; i++)
        st = wf_lc_activity(c, weft_lc_text(c, "activity_regularizer"), c->out[i]);
    weft_scope_pop(b->g);
    if (b->g->st)
        return graph_error(c, scope);
    if (st || c->st)
        return st ? st : c->st;
    if ((k->flags & WEFT_LAYER_PASSES_MASK) && !c->out_mask[0].id && mask)
        c->out_mask[0] = mask[0];
    return WEFT_OK;
}

weft_status wf_lc_inner_call(weft_layer_call *c, int copy, int n_in, const weft_val *in,
                             const weft_val *masks, weft_layer_call *out)
{
    weft_layer inner = layer_of(c)->inner;
    const char *path = c->path;

    if (c->st || c->b->g->st)
        return c->st ? c->st : weft_graph_status(c->b->g);
    if (!inner.id)
        return weft_lc_fail(c, WEFT_EINVAL, "it does not wrap a layer");
    if (copy > 0) {
        char text[MAX_FULL_NAME];

        snprintf(text, sizeof text, "%s/copy_%d", c->path, copy);
        path = wf_arena_strdup(&c->b->m->arena, text);
    }
    if (!path)
        return keep(c, wf_err_nomem(c->b->m->ctx, 0, "inner layer"));
    return keep(c, wf_call_build(c->b, inner, path, n_in, in, masks, out));
}

weft_status wf_lc_other_call(weft_layer_call *c, weft_layer other, int n_in, const weft_val *in,
                             weft_layer_call *out)
{
    if (c->st || c->b->g->st)
        return c->st ? c->st : weft_graph_status(c->b->g);
    return keep(c, wf_call_build(c->b, other, c->path, n_in, in, NULL, out));
}

weft_status weft_lc_inner(weft_layer_call *c, int copy, int n_in, const weft_val *in,
                          const weft_val *masks, int n_out, weft_val *out)
{
    weft_layer_call call;
    weft_status st = wf_lc_inner_call(c, copy, n_in, in, masks, &call);

    if (!st && call.n_out < n_out)
        st = weft_lc_fail(c, WEFT_EINVAL, "the wrapped layer '%s' returns %d values; %d are needed",
                          layer_of(&call)->name, call.n_out, n_out);
    if (!st)
        memcpy(out, call.out, sizeof *out * (size_t)n_out);
    return st;
}

/* ---- whole models ---------------------------------------------------------------------------- */

int wf_model_n_weights(const weft_model *m)
{
    return (int)m->n_weights;
}

const struct wf_weight *wf_model_weight(const weft_model *m, int i)
{
    return i >= 0 && i < m->n_weights ? &m->weights[i]->is : NULL;
}

const char *wf_model_weight_device(const weft_model *m, int i)
{
    const struct wf_weight *w = wf_model_weight(m, i);
    int64_t node;

    return w && m->design.g && wf_map_get(&m->design.g->names, w->name, &node)
               ? m->design.g->nodes[node].device
               : "";
}

void wf_builder_free(struct wf_builder *b)
{
    if (!b->m)
        return;
    wf_free(b->m->ctx, b->losses);
    wf_free(b->m->ctx, b->updates);
    wf_free(b->m->ctx, b->carries);
    wf_free(b->m->ctx, b->weights);
}

weft_val wf_input_build(struct wf_builder *b, const struct wf_model_node *n)
{
    int64_t dim[WEFT_MAX_RANK] = {WEFT_ANY}, node;

    if (wf_map_get(&b->g->names, n->name, &node))
        return (weft_val){b->g->nodes[node].first_out};
    memcpy(dim + 1, n->dim, sizeof *dim * (size_t)n->rank);
    return weft_placeholder(b->g, n->name, n->dtype, n->rank + 1, dim);
}

/* All nodes of the model in order; val and mask are indexed by symbol. */
static weft_status replay(struct wf_builder *b, weft_val *val, weft_val *mask)
{
    const weft_model *m = b->m;
    weft_layer_call c;

    for (int64_t k = 0; k < m->n_nodes; k++) {
        const struct wf_model_node *n = &m->nodes[k];
        weft_val in[WF_MAX_IN], in_mask[WF_MAX_IN];
        weft_status st;

        if (!n->layer.id) {
            val[n->first - 1] = wf_input_build(b, n);
            continue;
        }
        for (int i = 0; i < n->n_in; i++) {
            in[i] = val[n->in[i].id - 1];
            in_mask[i] = mask[n->in[i].id - 1];
        }
        st = wf_call_build(b, n->layer, "", n->n_in, in, in_mask, &c);
        if (st)
            return st;
        if (c.n_out != n->n_out)
            return wf_err(WEFT_EBUG, "layer '%s': %d outputs now, %d when the model was created",
                          wf_layer_at(m, n->layer)->name, c.n_out, n->n_out);
        for (int i = 0; i < n->n_out; i++) {
            val[n->first - 1 + i] = c.out[i];
            mask[n->first - 1 + i] = c.out_mask[i];
        }
    }
    return weft_graph_status(b->g);
}

/* Each regularizer once; weights that were not used in this mode also get their variable. */
static weft_status finish_weights(struct wf_builder *b)
{
    for (int64_t i = 0; i < b->m->n_weights; i++) {
        const struct wf_weight *w = &b->m->weights[i]->is;
        weft_val v, loss;
        weft_status st = variable_of(b, i, &v);

        if (st)
            return st;
        if (!b->training || !w->regularizer || w->state || wf_layer_at(b->m, w->layer)->frozen)
            continue;
        st = wf_regularizer_build(b->g, w->regularizer, v, &loss);
        if (!st)
            st = wf_grow(b->m->ctx, &b->losses, &b->cap_losses, b->n_losses + 1, sizeof *b->losses);
        if (st)
            return wf_err_wrap(st, "weight '%s'", w->name);
        b->losses[b->n_losses++] = loss;
        b->n_penalties++;
    }
    return WEFT_OK;
}

static weft_val *arena_vals(struct wf_arena *arena, const weft_val *from, int64_t n)
{
    weft_val *to = wf_arena_alloc(arena, sizeof *to * (size_t)(n + 1));

    if (to && from)
        memcpy(to, from, sizeof *to * (size_t)n);
    return to;
}

static weft_status collect(const struct wf_builder *b, const weft_val *val, const weft_val *mask,
                           struct wf_arena *arena, struct wf_built *out)
{
    const weft_model *m = b->m;
    struct wf_built r = {.n_in = weft_model_n_inputs(m),
                         .n_out = (int)m->n_outputs,
                         .n_losses = (int)b->n_losses,
                         .n_penalties = b->n_penalties,
                         .n_updates = (int)b->n_updates,
                         .n_carries = (int)b->n_carries,
                         .n_weights = (int)m->n_weights};

    r.in = arena_vals(arena, NULL, r.n_in);
    r.out = arena_vals(arena, NULL, r.n_out);
    r.out_mask = arena_vals(arena, NULL, r.n_out);
    r.loss = arena_vals(arena, b->losses, r.n_losses);
    r.update = arena_vals(arena, b->updates, r.n_updates);
    r.weight = arena_vals(arena, b->weights, r.n_weights);
    r.carry = arena_vals(arena, b->carries, r.n_carries);
    if (!r.carry || !r.in || !r.out || !r.out_mask || !r.loss || !r.update || !r.weight)
        return wf_err_nomem(m->ctx, 0, "model");
    for (int i = 0; i < r.n_in; i++)
        r.in[i] = val[weft_model_input_at(m, i).id - 1];
    for (int i = 0; i < r.n_out; i++) {
        r.out[i] = val[m->outputs[i].id - 1];
        r.out_mask[i] = mask[m->outputs[i].id - 1];
    }
    *out = r;
    return WEFT_OK;
}

weft_status wf_model_build(weft_model *m, weft_graph *g, bool training, struct wf_arena *arena,
                           struct wf_built *out)
{
    struct wf_builder b = {.m = m, .g = g, .training = training};
    weft_val *val = NULL, *mask = NULL;
    weft_status st = weft_model_status(m);

    if (!st && !m->n_outputs)
        st = wf_err(WEFT_ESTATE, "model '%s' has no output", m->name);
    if (st)
        return st;
    val = wf_alloc_n(m->ctx, m->n_symbols, sizeof *val);
    mask = wf_alloc_n(m->ctx, m->n_symbols, sizeof *mask);
    if (!val || !mask) {
        st = wf_err_nomem(m->ctx, sizeof *val * (size_t)m->n_symbols, "model");
        goto out;
    }
    st = replay(&b, val, mask);
    if (!st)
        st = finish_weights(&b);
    if (!st)
        st = collect(&b, val, mask, arena, out);
out:
    wf_builder_free(&b);
    wf_free(m->ctx, val);
    wf_free(m->ctx, mask);
    return st;
}
