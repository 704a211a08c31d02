/* model.c - models: inputs, layers, calls, names.
 *
 * Each call is immediately built into the design graph (inference), so that types are known and a
 * mistake is reported where it was made. The first error sticks. A name belongs to one layer or
 * input. */
#include <stdio.h>

#include "model/core.h"

enum { MAX_NAME = WF_MAX_LAYER_NAME, MAX_PARTS = 100000 };

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_model_new(weft_ctx *ctx, const weft_model_opts *opts, weft_model **out)
{
    weft_model_opts o;
    weft_model *m;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_model_opts");

    if (st)
        return st;
    m = wf_alloc(ctx, sizeof *m);
    if (!m)
        return wf_err_nomem(ctx, sizeof *m, "model");
    m->ctx = ctx;
    wf_arena_init(&m->arena, ctx);
    wf_map_init(&m->names, ctx);
    wf_map_init(&m->numbers, ctx);
    wf_map_init(&m->weight_names, ctx);
    m->design.m = m;
    m->name = wf_arena_strdup(&m->arena, o.name ? o.name : "model");
    st = m->name ? weft_graph_new(ctx, &m->design.g) : wf_err_nomem(ctx, 0, "model");
    if (st) {
        weft_model_free(m);
        return st;
    }
    *out = m;
    return WEFT_OK;
}

void weft_model_free(weft_model *m)
{
    if (!m)
        return;
    weft_graph_free(m->design.g);
    wf_builder_free(&m->design);
    wf_map_free(&m->names);
    wf_map_free(&m->numbers);
    wf_map_free(&m->weight_names);
    wf_arena_free(&m->arena);
    wf_free(m->ctx, m->layers);
    wf_free(m->ctx, m->nodes);
    wf_free(m->ctx, m->symbols);
    wf_free(m->ctx, m->weights);
    wf_free(m->ctx, m->rows);
    wf_free(m->ctx, m->user_kinds);
    wf_free(m->ctx, m->user_losses);
    wf_free(m->ctx, m->user_metrics);
    wf_free(m->ctx, m->outputs);
    wf_free(m->ctx, m);
}

weft_ctx *wf_model_ctx(const weft_model *m)
{
    return m->ctx;
}

void *wf_model_scope(const weft_model *m)
{
    return m->scope;
}

void wf_model_set_scope(weft_model *m, void *scope)
{
    m->scope = scope;
}

weft_status weft_model_status(const weft_model *m)
{
    if (m->st)
        wf_err_set(m->error);
    return m->st;
}

weft_status wf_model_fail(weft_model *m, weft_status st)
{
    if (st && !m->st) {
        m->st = st;
        snprintf(m->error, sizeof m->error, "%s", weft_error());
    }
    return st;
}

static weft_sym fail(weft_model *m, weft_status st)
{
    wf_model_fail(m, st);
    return (weft_sym){0};
}

/* ---- names ----------------------------------------------------------------------------------- */

static weft_status check_name(const char *name)
{
    bool ok = *name && strlen(name) <= MAX_NAME;

    for (const char *p = name; *p; p++)
        ok = ok && (unsigned char)*p > ' ' && !strchr("/,\"\\*", *p) && *p != 127;
    return ok ? WEFT_OK
              : wf_err(WEFT_EINVAL,
                       "'%.64s' is not a valid layer name: it must have 1 to %d characters and no "
                       "spaces, commas, slashes, stars or quotes",
                       name, MAX_NAME);
}

/* "MaxPooling2D" -> "max_pooling2d", "ReLU" -> "re_lu": Keras' two rules, one after the other. An
 * underscore goes before a capital that begins a small word, then between a small letter and a
 * capital. */
void wf_snake_case(const char *kind, char out[WF_MAX_LAYER_NAME])
{
    char words[MAX_NAME];
    size_t n = 0;

    for (const char *p = kind; *p && n + 3 < MAX_NAME;) {
        words[n++] = *p++;
        if (!wf_is_upper(p[0]) || !wf_is_lower(p[1]))
            continue;
        words[n++] = '_';
        words[n++] = *p++;
        while (wf_is_lower(*p) && n + 3 < MAX_NAME)
            words[n++] = *p++;
    }
    words[n] = '\0';
    n = 0;
    for (const char *p = words; *p && n + 2 < MAX_NAME; p++) {
        if (p > words && wf_is_lower(p[-1]) && wf_is_upper(*p))
            out[n++] = '_';
        out[n++] = wf_to_lower(*p);
    }
    out[n] = '\0';
}

/* Appends to `text`, which is the base, the first number that makes it new. Names are never
 * released, so all numbers below the last one found are taken. */
static weft_status number_name(weft_model *m, const char *base, char *text, size_t room)
{
    int64_t i = 1;
    const char *key;

    if (!wf_map_get(&m->names, text, NULL))
        return WEFT_OK;
    wf_map_get(&m->numbers, base, &i);
    do
        snprintf(text, room, "%s_%lld", base, (long long)i++);
    while (wf_map_get(&m->names, text, NULL));
    key = wf_arena_strdup(&m->arena, base);
    return key ? wf_map_put(&m->numbers, key, i) : wf_err_nomem(m->ctx, room, "layer name");
}

/* The name, or the base with the first number that makes it new: dense, dense_1, … */
static weft_status take_name(weft_model *m, const char *name, const char *base, int64_t id,
                             const char **out)
{
    char text[MAX_NAME + 16];
    int64_t used = 0;
    weft_status st;

    if (name) {
        st = check_name(name);
        if (!st && wf_map_get(&m->names, name, &used) && used != WF_NAME_GONE)
            st = wf_err(WEFT_EEXIST, "the name '%s' is taken", name);
        if (st)
            return st;
        base = name;
    }
    snprintf(text, sizeof text, "%s", base);
    if (!name) {
        st = number_name(m, base, text, sizeof text);
        if (st)
            return st;
    }
    *out = wf_arena_strdup(&m->arena, text);
    return *out ? wf_map_put(&m->names, *out, id) : wf_err_nomem(m->ctx, sizeof text, "layer name");
}

/* ---- layers ---------------------------------------------------------------------------------- */

static weft_status make_layer(weft_model *m, const char *kind, const char *attrs, weft_layer inner)
{
    struct wf_attr values[WF_MAX_ATTRS];
    const struct wf_layer_row *row = NULL;
    struct wf_layer l = {.inner = inner};
    char base[MAX_NAME];
    weft_status st = wf_kind_find(m, kind, &row);

    if (!st)
        st = wf_grow(m->ctx, &m->layers, &m->cap_layers, m->n_layers + 1, sizeof *m->layers);
    if (st)
        return st;
    if (!(row->kind.flags & WEFT_LAYER_WRAPS) != !inner.id)
        return inner.id ? wf_err(WEFT_EINVAL, "%s: cannot wrap another layer", kind)
                        : wf_err(WEFT_EINVAL, "%s: wraps another layer; use weft_layer_wrap", kind);
    st = wf_attr_values(&m->arena, kind, row->spec, row->n_specs, attrs, values);
    if (st)
        return st;
    l.row = row;
    l.device = m->device;
    l.frozen = !values[WF_SPEC_TRAINABLE].i;
    l.attr = wf_arena_alloc(&m->arena, sizeof *l.attr * (size_t)row->n_specs);
    if (!l.attr)
        return wf_err_nomem(m->ctx, 0, "layer");
    memcpy(l.attr, values, sizeof *l.attr * (size_t)row->n_specs);
    wf_snake_case(kind, base);
    st = take_name(m, values[WF_SPEC_NAME].given ? values[WF_SPEC_NAME].s : NULL, base,
                   m->n_layers + 1, &l.name);
    if (st)
        return wf_err_wrap(st, "%s", kind);
    m->layers[m->n_layers++] = l;
    for (weft_layer i = inner; l.frozen && i.id; i = wf_layer_at(m, i)->inner)
        wf_layer_at(m, i)->frozen = true;
    return WEFT_OK;
}

weft_layer wf_layer_make(weft_model *m, const char *kind, const char *attrs, weft_layer inner)
{
    weft_status st;

    if (m->st)
        return (weft_layer){0};
    if (inner.id < 0 || inner.id > m->n_layers)
        st = wf_err(WEFT_EINVAL, "%s: layer %d does not exist in this model", kind, inner.id);
    else
        st = make_layer(m, kind, attrs, inner);
    wf_model_fail(m, st);
    return (weft_layer){st ? 0 : (int32_t)m->n_layers};
}

weft_layer weft_layer_new(weft_model *m, const char *kind, const char *attrs)
{
    return wf_layer_make(m, kind, attrs, (weft_layer){0});
}

weft_layer weft_layer_wrap(weft_model *m, const char *kind, const char *attrs, weft_layer inner)
{
    if (!m->st && !inner.id)
        wf_model_fail(m, wf_err(WEFT_EINVAL, "%s: there is no layer to wrap", kind));
    return wf_layer_make(m, kind, attrs, inner);
}

void weft_model_device(weft_model *m, const char *device)
{
    weft_graph *g = m->design.g;

    if (m->st)
        return;
    m->device = NULL;
    if (!device || !*device)
        return;
    weft_device_push(g, device); /* looks at its form */
    if (wf_model_fail(m, weft_graph_status(g)))
        return;
    weft_device_pop(g);
    m->device = wf_arena_strdup(&m->arena, device);
    if (!m->device)
        wf_model_fail(m, wf_err_nomem(m->ctx, strlen(device), "device"));
}

/* ---- inputs and calls ------------------------------------------------------------------------ */

static weft_status add_node(weft_model *m, const struct wf_model_node *n, const weft_val *val,
                            const weft_val *mask)
{
    weft_status st = wf_grow(m->ctx, &m->nodes, &m->cap_nodes, m->n_nodes + 1, sizeof *m->nodes);

    if (!st && m->n_symbols + n->n_out > MAX_PARTS)
        st = wf_err(WEFT_ELIMIT, "a model can have at most %d values", MAX_PARTS);
    if (!st)
        st = wf_grow(m->ctx, &m->symbols, &m->cap_symbols, m->n_symbols + n->n_out,
                     sizeof *m->symbols);
    if (st)
        return st;
    m->nodes[m->n_nodes] = *n;
    m->nodes[m->n_nodes].first = (int32_t)m->n_symbols + 1;
    for (int i = 0; i < n->n_out; i++)
        m->symbols[m->n_symbols++] = (struct wf_symbol){(int32_t)m->n_nodes, i, val[i], mask[i]};
    m->n_nodes++;
    return WEFT_OK;
}

static weft_status make_input(weft_model *m, const char *name, weft_dtype dtype, int rank,
                              const int64_t *dim)
{
    struct wf_model_node n = {.dtype = dtype, .rank = rank, .n_out = 1};
    weft_val v, none = WEFT_NIL;
    weft_status st;

    if (dtype <= WEFT_NONE || dtype >= WEFT_N_DTYPES)
        return wf_err(WEFT_EINVAL, "an input needs a dtype");
    if (rank < 0 || rank >= WEFT_MAX_RANK)
        return wf_err(WEFT_EINVAL, "rank %d; 0 to %d without the batch are supported", rank,
                      WEFT_MAX_RANK - 1);
    for (int i = 0; i < rank; i++) {
        if (dim[i] < WEFT_ANY)
            return wf_err(WEFT_EINVAL, "size %lld at axis %d", (long long)dim[i], i);
        n.dim[i] = dim[i];
    }
    st = take_name(m, name, "input_layer", 0, &n.name);
    if (st)
        return st;
    v = wf_input_build(&m->design, &n);
    st = weft_graph_status(m->design.g);
    return st ? st : add_node(m, &n, &v, &none);
}

weft_sym weft_input(weft_model *m, const char *name, weft_dtype dtype, int rank, const int64_t *dim)
{
    weft_status st;

    if (m->st)
        return (weft_sym){0};
    st = make_input(m, name, dtype, rank, dim);
    if (st)
        return fail(m, wf_err_wrap(st, "input '%s'", name ? name : ""));
    m->last = (weft_sym){(int32_t)m->n_symbols};
    return m->last;
}

static weft_status make_call(weft_model *m, weft_layer l, int n, const weft_sym *x)
{
    struct wf_model_node node = {.layer = l, .n_in = n};
    weft_layer_call c;
    weft_val in[WF_MAX_IN], mask[WF_MAX_IN];
    weft_status st;

    if (l.id <= 0 || l.id > m->n_layers)
        return wf_err(WEFT_EINVAL, "layer %d does not exist in this model", l.id);
    if (n < 1 || n > WF_MAX_IN)
        return wf_err(WEFT_EINVAL, "layer '%s': called with %d inputs", wf_layer_at(m, l)->name, n);
    for (int i = 0; i < n; i++) {
        if (x[i].id <= 0 || x[i].id > m->n_symbols)
            return wf_err(WEFT_EINVAL, "layer '%s': value %d does not exist in this model",
                          wf_layer_at(m, l)->name, x[i].id);
        in[i] = wf_symbol_at(m, x[i])->val;
        mask[i] = wf_symbol_at(m, x[i])->mask;
    }
    node.in = wf_arena_alloc(&m->arena, sizeof *node.in * (size_t)n);
    if (!node.in)
        return wf_err_nomem(m->ctx, 0, "call of a layer");
    memcpy(node.in, x, sizeof *x * (size_t)n);
    st = wf_call_build(&m->design, l, "", n, in, mask, &c);
    if (st)
        return st;
    node.n_out = c.n_out;
    return add_node(m, &node, c.out, c.out_mask);
}

weft_sym weft_call_n(weft_model *m, weft_layer l, int n, const weft_sym *x)
{
    weft_status st;

    if (m->st)
        return (weft_sym){0};
    st = make_call(m, l, n, x);
    if (st)
        return fail(m, st);
    m->last = (weft_sym){m->nodes[m->n_nodes - 1].first};
    return m->last;
}

weft_sym weft_call(weft_model *m, weft_layer l, weft_sym x)
{
    return weft_call_n(m, l, 1, &x);
}

weft_sym weft_apply_n(weft_model *m, const char *kind, const char *attrs, int n, const weft_sym *x)
{
    return weft_call_n(m, weft_layer_new(m, kind, attrs), n, x);
}

weft_sym weft_apply(weft_model *m, const char *kind, const char *attrs, weft_sym x)
{
    return weft_apply_n(m, kind, attrs, 1, &x);
}

weft_sym weft_sym_part(weft_model *m, weft_sym x, int i)
{
    const struct wf_model_node *n;

    if (m->st)
        return (weft_sym){0};
    if (x.id <= 0 || x.id > m->n_symbols)
        return fail(m, wf_err(WEFT_EINVAL, "value %d does not exist in this model", x.id));
    n = &m->nodes[wf_symbol_at(m, x)->node];
    if (i < 0 || i >= n->n_out)
        return fail(m, wf_err(WEFT_ERANGE, "'%s' has %d outputs; there is no output %d",
                              weft_sym_name(m, x), n->n_out, i));
    return (weft_sym){n->first + i};
}

weft_sym weft_model_add(weft_model *m, const char *kind, const char *attrs)
{
    weft_sym x;

    if (m->st)
        return (weft_sym){0};
    if (!m->last.id)
        return fail(m, wf_err(WEFT_ESTATE, "%s: a model must begin with weft_input", kind));
    x = weft_apply(m, kind, attrs, m->last);
    m->n_outputs = 0;
    weft_model_output(m, x);
    return x;
}

/* ---- outputs, lookups ------------------------------------------------------------------------ */

void weft_model_output(weft_model *m, weft_sym x)
{
    weft_status st;

    if (m->st)
        return;
    if (x.id <= 0 || x.id > m->n_symbols)
        st = wf_err(WEFT_EINVAL, "output: value %d does not exist in this model", x.id);
    else
        st = wf_grow(m->ctx, &m->outputs, &m->cap_outputs, m->n_outputs + 1, sizeof *m->outputs);
    if (st)
        fail(m, st);
    else
        m->outputs[m->n_outputs++] = x;
}

void weft_model_set_outputs(weft_model *m, int n, const weft_sym *x)
{
    if (m->st)
        return;
    m->n_outputs = 0;
    for (int i = 0; i < n; i++)
        weft_model_output(m, x[i]);
}

int weft_model_n_inputs(const weft_model *m)
{
    int n = 0;

    for (int64_t i = 0; i < m->n_nodes; i++)
        n += !m->nodes[i].layer.id;
    return n;
}

int weft_model_n_outputs(const weft_model *m)
{
    return (int)m->n_outputs;
}

weft_sym weft_model_input_at(const weft_model *m, int i)
{
    for (int64_t k = 0; k < m->n_nodes; k++)
        if (!m->nodes[k].layer.id && i-- == 0)
            return (weft_sym){m->nodes[k].first};
    return (weft_sym){0};
}

weft_sym weft_model_output_at(const weft_model *m, int i)
{
    return i >= 0 && i < m->n_outputs ? m->outputs[i] : (weft_sym){0};
}

weft_status weft_sym_type(const weft_model *m, weft_sym x, weft_tensor *out)
{
    const struct wf_type *t;
    int64_t dim[WEFT_MAX_RANK];

    if (x.id <= 0 || x.id > m->n_symbols)
        return wf_err(WEFT_EINVAL, "value %d does not exist in this model", x.id);
    t = wf_val_type_of(m->design.g, wf_symbol_at(m, x)->val);
    for (int i = 0; i < t->rank; i++)
        dim[i] = t->dim[i] < 0 ? WEFT_ANY : t->dim[i];
    *out = weft_view(t->dtype, NULL, t->rank, dim);
    return WEFT_OK;
}

const char *weft_sym_name(const weft_model *m, weft_sym x)
{
    const struct wf_model_node *n;

    if (x.id <= 0 || x.id > m->n_symbols)
        return "";
    n = &m->nodes[wf_symbol_at(m, x)->node];
    return n->layer.id ? wf_layer_at(m, n->layer)->name : n->name;
}

static weft_status no_layer(const weft_model *m, const char *name)
{
    const char *names[256];
    int n = 0;

    while (n < m->n_layers && n < WF_COUNT(names)) {
        names[n] = m->layers[n].name;
        n++;
    }
    return wf_err(WEFT_ENOENT, "model '%s' has no layer '%.64s'%s", m->name, name,
                  wf_did_you_mean(name, names, n).text);
}

weft_status weft_model_layer(const weft_model *m, const char *name, weft_layer *out)
{
    int64_t id = 0;

    if (!wf_map_get(&m->names, name, &id) || id <= 0)
        return no_layer(m, name);
    out->id = (int32_t)id;
    return WEFT_OK;
}

int weft_model_n_layers(const weft_model *m)
{
    return (int)m->n_layers;
}

weft_layer weft_model_layer_at(const weft_model *m, int i)
{
    return (weft_layer){i >= 0 && i < m->n_layers ? i + 1 : 0};
}

static bool is_layer(const weft_model *m, weft_layer l)
{
    return l.id > 0 && l.id <= m->n_layers;
}

const char *weft_layer_name(const weft_model *m, weft_layer l)
{
    return is_layer(m, l) ? wf_layer_at(m, l)->name : "";
}

const char *weft_layer_kind_name(const weft_model *m, weft_layer l)
{
    return is_layer(m, l) ? wf_layer_at(m, l)->row->kind.name : "";
}

bool weft_layer_frozen(const weft_model *m, weft_layer l)
{
    return is_layer(m, l) && wf_layer_at(m, l)->frozen;
}

int weft_model_freeze(weft_model *m, const char *pattern, bool frozen)
{
    size_t n = strcspn(pattern, "*");
    int n_changed = 0;

    if (pattern[n] && pattern[n + 1])
        return wf_err(WEFT_EINVAL, "'%.64s': a star is allowed only at the end", pattern);
    for (int64_t i = 0; i < m->n_layers; i++) {
        struct wf_layer *l = &m->layers[i];

        if (pattern[n] ? strncmp(l->name, pattern, n) : strcmp(l->name, pattern))
            continue;
        n_changed++;
        for (l->frozen = frozen; l->inner.id; l->frozen = frozen)
            l = wf_layer_at(m, l->inner);
    }
    return n_changed ? n_changed : no_layer(m, pattern);
}
