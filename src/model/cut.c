/* cut.c - a part of a model as a separate model: the results of the named layers, and everything
 * that leads to them.
 *
 * The part is rebuilt with the same builders, so that its weights are in the order of their first
 * use. Of the removed layers only the names are kept: new layers never reuse the name of a removed
 * layer, so that weights loaded by name never reach a layer they do not belong to. */
#include <stdio.h>

#include "model/core.h"

enum { MAX_ENDS = 64, MAX_NAME = 128 };

/* ---- where to cut ---------------------------------------------------------------------------- */

weft_sym weft_layer_output(weft_model *m, weft_layer l, int call)
{
    weft_status st;
    int n_calls = 0;

    if (m->st)
        return (weft_sym){0};
    for (int64_t k = 0; k < m->n_nodes; k++)
        if (l.id && m->nodes[k].layer.id == l.id && n_calls++ == call)
            return (weft_sym){m->nodes[k].first};
    if (!*weft_layer_name(m, l))
        st = wf_err(WEFT_EINVAL, "layer %d does not exist in this model", l.id);
    else
        st = wf_err(WEFT_ERANGE, "layer '%s' has %d calls; there is no call %d",
                    weft_layer_name(m, l), n_calls, call);
    wf_model_fail(m, st);
    return (weft_sym){0};
}

/* The last value that a layer returns in this model. */
static weft_status last_of(const weft_model *m, const char *name, weft_sym *out)
{
    weft_layer l;
    weft_status st = weft_model_layer(m, name, &l);

    if (st)
        return st;
    for (int64_t k = m->n_nodes - 1; k >= 0; k--)
        if (m->nodes[k].layer.id == l.id) {
            out->id = m->nodes[k].first;
            return WEFT_OK;
        }
    return wf_err(WEFT_EINVAL, "layer '%s' has no calls of its own: it is inside another layer",
                  name);
}

static weft_status named_ends(const weft_model *m, const char *until, weft_sym *end, int *n)
{
    weft_status st = WEFT_OK;

    for (*n = 0; *until && !st;) {
        size_t skip = strspn(until, " \t,"), len = strcspn(until + skip, " \t,");
        char name[MAX_NAME + 1];

        until += skip + len;
        if (!len)
            continue;
        if (len >= sizeof name || *n == MAX_ENDS)
            return wf_err(WEFT_EINVAL, "'%.32s…' is not a list of up to %d layers", until - len,
                          MAX_ENDS);
        memcpy(name, until - len, len);
        name[len] = 0;
        st = last_of(m, name, &end[*n]);
        ++*n;
    }
    return st || *n ? st : wf_err(WEFT_EINVAL, "no layer is given");
}

/* All outputs of the model. */
static weft_status all_ends(const weft_model *m, weft_sym *end, int *n)
{
    if (m->n_outputs < 1 || m->n_outputs > MAX_ENDS)
        return wf_err(WEFT_EINVAL, "the model has %d outputs", (int)m->n_outputs);
    *n = (int)m->n_outputs;
    memcpy(end, m->outputs, sizeof *end * (size_t)*n);
    return WEFT_OK;
}

/* n layers back from the output; each must have one input. */
static weft_status back(const weft_model *m, int n, weft_sym *end)
{
    weft_sym x = m->n_outputs == 1 ? m->outputs[0] : (weft_sym){0};

    if (!x.id)
        return wf_err(WEFT_EINVAL, "the model has %d outputs: name the layers to end at",
                      (int)m->n_outputs);
    for (int i = 0; i < n; i++) {
        const struct wf_model_node *node = &m->nodes[wf_symbol_at(m, x)->node];

        if (!node->layer.id)
            return wf_err(WEFT_ERANGE, "cannot drop %d layers: only %d lead to the output", n, i);
        if (node->n_in != 1)
            return wf_err(WEFT_EINVAL, "'%s' has %d inputs: name the layers to end at",
                          weft_sym_name(m, x), node->n_in);
        x = node->in[0];
    }
    if (!m->nodes[wf_symbol_at(m, x)->node].layer.id)
        return wf_err(WEFT_ERANGE, "without its last %d layers, only the input is left", n);
    *end = x;
    return WEFT_OK;
}

/* ---- what stays ------------------------------------------------------------------------------ */

struct cut {
    const weft_model *from;
    weft_model *to;
    bool *node, *layer; /* stays */
    weft_sym *sym;      /* by symbol of from */
    weft_layer *at;     /* by layer of from */
};

static void mark(struct cut *c, int n_ends, const weft_sym *end)
{
    const weft_model *m = c->from;

    for (int i = 0; i < n_ends; i++)
        c->node[wf_symbol_at(m, end[i])->node] = true;
    for (int64_t k = m->n_nodes - 1; k >= 0; k--)
        for (int i = 0; c->node[k] && i < m->nodes[k].n_in; i++)
            c->node[wf_symbol_at(m, m->nodes[k].in[i])->node] = true;
    /* A layer is removed if none of its calls is kept and no layer that is kept wraps it. One that
     * is neither called nor wrapped may be named by a layer that is kept, like the cells of a
     * stack. */
    for (int64_t i = 0; i < m->n_layers; i++)
        c->layer[i] = true;
    for (int64_t i = 0; i < m->n_layers; i++)
        if (m->layers[i].inner.id)
            c->layer[m->layers[i].inner.id - 1] = false;
    for (int64_t k = 0; k < m->n_nodes; k++)
        if (m->nodes[k].layer.id)
            c->layer[m->nodes[k].layer.id - 1] = false;
    for (int64_t k = 0; k < m->n_nodes; k++)
        if (m->nodes[k].layer.id && c->node[k])
            c->layer[m->nodes[k].layer.id - 1] = true;
    for (int64_t i = m->n_layers - 1; i >= 0; i--) /* a wrapped layer comes before its wrapper */
        if (m->layers[i].inner.id && c->layer[i])
            c->layer[m->layers[i].inner.id - 1] = true;
}

static weft_status copy_layer(struct cut *c, int64_t i)
{
    const struct wf_layer *l = &c->from->layers[i];
    weft_layer inner = l->inner.id ? c->at[l->inner.id - 1] : (weft_layer){0};
    struct wf_buf text;
    weft_status st;

    wf_buf_init(&text, c->to->ctx, (int64_t)64 << 20);
    wf_layer_text(&text, l);
    st = text.st;
    if (!st)
        c->at[i] = wf_layer_make(c->to, l->row->kind.name, text.data, inner);
    wf_buf_free(&text);
    return st ? st : weft_model_status(c->to);
}

static weft_status copy_node(struct cut *c, const struct wf_model_node *n)
{
    weft_sym x[WF_MAX_IN], made;

    for (int i = 0; i < n->n_in; i++)
        x[i] = c->sym[n->in[i].id - 1];
    made = n->layer.id ? weft_call_n(c->to, c->at[n->layer.id - 1], n->n_in, x)
                       : weft_input(c->to, n->name, n->dtype, n->rank, n->dim);
    for (int i = 0; i < n->n_out; i++)
        c->sym[n->first - 1 + i].id = made.id ? made.id + i : 0;
    return weft_model_status(c->to);
}

/* A name that no new layer gets automatically. */
static weft_status reserve(weft_model *m, const char *name)
{
    const char *kept = wf_arena_strdup(&m->arena, name);

    return kept ? wf_map_put(&m->names, kept, WF_NAME_GONE) : wf_err_nomem(m->ctx, 0, "a name");
}

static weft_status copy(struct cut *c, int n_ends, const weft_sym *end)
{
    const weft_model *m = c->from;
    weft_status st = wf_user_kinds_copy(m, c->to);

    for (int64_t i = 0; i < m->n_layers && !st; i++)
        st = c->layer[i] ? copy_layer(c, i) : reserve(c->to, m->layers[i].name);
    for (int64_t i = 0; i < m->n_layers && !st; i++)
        if (c->layer[i])
            wf_layer_at(c->to, c->at[i])->frozen = m->layers[i].frozen;
    for (int64_t k = 0; k < m->n_nodes && !st; k++)
        if (c->node[k])
            st = copy_node(c, &m->nodes[k]);
    for (int i = 0; i < n_ends && !st; i++) {
        weft_model_output(c->to, c->sym[end[i].id - 1]);
        st = weft_model_status(c->to);
    }
    if (!st)
        c->to->last = n_ends == 1 ? c->sym[end[0].id - 1] : (weft_sym){0};
    return st;
}

weft_status weft_model_cut(const weft_model *m, const weft_cut_opts *opts, weft_model **out)
{
    weft_cut_opts o = {.size = 0};
    struct cut c = {.from = m};
    weft_sym end[MAX_ENDS];
    int n_ends = 1;
    weft_status st = weft_model_status(m);

    if (!st)
        st = wf_opts_take(&o, sizeof o, opts, "weft_cut_opts");
    if (!st && (o.drop < 0 || (o.until && o.drop)))
        st = wf_err(WEFT_EINVAL, "say which layers to end at (until), or how many to drop");
    if (!st)
        st = o.until  ? named_ends(m, o.until, end, &n_ends)
             : o.drop ? back(m, o.drop, end)
                      : all_ends(m, end, &n_ends);
    if (!st)
        st = weft_model_new(m->ctx, WEFT_OPTS(weft_model_opts, .name = m->name), &c.to);
    if (st)
        return wf_err_wrap(st, "cut");
    c.node = wf_alloc_n(m->ctx, m->n_nodes + 1, sizeof *c.node);
    c.layer = wf_alloc_n(m->ctx, m->n_layers + 1, sizeof *c.layer);
    c.sym = wf_alloc_n(m->ctx, m->n_symbols + 1, sizeof *c.sym);
    c.at = wf_alloc_n(m->ctx, m->n_layers + 1, sizeof *c.at);
    if (!c.node || !c.layer || !c.sym || !c.at)
        st = wf_err_nomem(m->ctx, 0, "a part of a model");
    if (!st) {
        mark(&c, n_ends, end);
        st = copy(&c, n_ends, end);
    }
    wf_free(m->ctx, c.node);
    wf_free(m->ctx, c.layer);
    wf_free(m->ctx, c.sym);
    wf_free(m->ctx, c.at);
    if (st) {
        weft_model_free(c.to);
        return wf_err_wrap(st, "cut");
    }
    *out = c.to;
    return WEFT_OK;
}
