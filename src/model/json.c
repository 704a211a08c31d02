/* json.c - the architecture of a model as JSON, written and read back:
 *
 *   {
 *    "format": "weft-model", "version": 1, "name": "model",
 *    "layers": [{"name": "dense", "kind": "Dense", "attrs": "units=10 activation=relu"}],
 *    "nodes": [{"input": "x", "dtype": "f32", "dim": [28, null]},
 *              {"layer": "dense", "in": [[0, 0]]}],
 *    "outputs": [[1, 0]]
 *   }
 *
 * A layer has "wraps": NAME if it is a wrapper (the wrapped layer comes before it) and "trainable":
 * false if it is frozen. A value is [node, part]. The reader trusts nothing: every key is known,
 * every number bounded, and everything goes through the builders' checks. */
#include <jansson.h>

#include "model/core.h"

enum { VERSION = 1, MAX_ITEMS = 100000 };
#define MAX_JSON ((int64_t)64 << 20)

/* ---- writing --------------------------------------------------------------------------------- */

static void put_string(struct wf_buf *b, const char *s)
{
    json_t *check = json_string(s);

    if (!check && !b->st)
        b->st = wf_err(WEFT_EINVAL, "'%.64s' is not UTF-8, which JSON requires", s);
    json_decref(check);
    wf_buf_add(b, "\"", 1);
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\' || *s == 127)
            wf_buf_printf(b, "\\u%04x", (unsigned char)*s);
        else
            wf_buf_add(b, s, 1);
    wf_buf_add(b, "\"", 1);
}

/* What the layer was given, except its name and whether it is trainable. */
static void put_attrs(struct wf_buf *b, const weft_model *m, const struct wf_layer *l)
{
    struct wf_buf text;

    wf_buf_init(&text, m->ctx, MAX_JSON);
    wf_buf_add(&text, "", 0);
    for (int i = WF_N_COMMON_SPECS; i < l->row->n_specs; i++)
        if (l->attr[i].given)
            wf_attr_write(&text, l->row->spec[i].name, &l->attr[i], false);
    if (text.st)
        b->st = b->st ? b->st : text.st;
    else
        put_string(b, text.len ? text.data + 1 : "");
    wf_buf_free(&text);
}

void wf_layer_text(struct wf_buf *b, const struct wf_layer *l)
{
    wf_attr_write(b, "name", &(struct wf_attr){.kind = WF_STR, .s = l->name}, true);
    for (int i = WF_N_COMMON_SPECS; i < l->row->n_specs; i++)
        if (l->attr[i].given)
            wf_attr_write(b, l->row->spec[i].name, &l->attr[i], true);
    if (l->frozen)
        wf_buf_printf(b, " trainable=false");
}

static void put_layer(struct wf_buf *b, const weft_model *m, const struct wf_layer *l)
{
    wf_buf_printf(b, "  {\"name\": ");
    put_string(b, l->name);
    wf_buf_printf(b, ", \"kind\": ");
    put_string(b, l->row->kind.name);
    wf_buf_printf(b, ", \"attrs\": ");
    put_attrs(b, m, l);
    if (l->inner.id) {
        wf_buf_printf(b, ", \"wraps\": ");
        put_string(b, wf_layer_at(m, l->inner)->name);
    }
    wf_buf_printf(b, "%s}", l->frozen ? ", \"trainable\": false" : "");
}

static void put_value(struct wf_buf *b, const weft_model *m, weft_sym x)
{
    wf_buf_printf(b, "[%d, %d]", wf_symbol_at(m, x)->node, wf_symbol_at(m, x)->part);
}

static void put_node(struct wf_buf *b, const weft_model *m, const struct wf_model_node *n)
{
    wf_buf_printf(b, n->layer.id ? "  {\"layer\": " : "  {\"input\": ");
    put_string(b, n->layer.id ? wf_layer_at(m, n->layer)->name : n->name);
    if (n->layer.id) {
        wf_buf_printf(b, ", \"in\": [");
        for (int i = 0; i < n->n_in; i++) {
            wf_buf_printf(b, "%s", i ? ", " : "");
            put_value(b, m, n->in[i]);
        }
    } else {
        wf_buf_printf(b, ", \"dtype\": \"%s\", \"dim\": [", weft_dtype_name(n->dtype));
        for (int i = 0; i < n->rank; i++)
            if (n->dim[i] == WEFT_ANY)
                wf_buf_printf(b, "%snull", i ? ", " : "");
            else
                wf_buf_printf(b, "%s%lld", i ? ", " : "", (long long)n->dim[i]);
    }
    wf_buf_printf(b, "]}");
}

weft_status weft_model_json(const weft_model *m, char **out)
{
    struct wf_buf b;
    weft_status st = weft_model_status(m);

    if (st)
        return st;
    wf_buf_init(&b, m->ctx, MAX_JSON);
    wf_buf_printf(&b, "{\n \"format\": \"weft-model\", \"version\": %d, \"name\": ", VERSION);
    put_string(&b, m->name);
    wf_buf_printf(&b, ",\n \"layers\": [\n");
    for (int64_t i = 0; i < m->n_layers; i++) {
        put_layer(&b, m, &m->layers[i]);
        wf_buf_printf(&b, i + 1 < m->n_layers ? ",\n" : "\n");
    }
    wf_buf_printf(&b, " ],\n \"nodes\": [\n");
    for (int64_t i = 0; i < m->n_nodes; i++) {
        put_node(&b, m, &m->nodes[i]);
        wf_buf_printf(&b, i + 1 < m->n_nodes ? ",\n" : "\n");
    }
    wf_buf_printf(&b, " ],\n \"outputs\": [");
    for (int64_t i = 0; i < m->n_outputs; i++) {
        wf_buf_printf(&b, "%s", i ? ", " : "");
        put_value(&b, m, m->outputs[i]);
    }
    wf_buf_printf(&b, "]\n}\n");
    if (b.st) {
        st = b.st;
        wf_buf_free(&b);
        return st;
    }
    *out = b.data;
    return WEFT_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Every key of an object must be one of these (NULL-terminated). */
static weft_status check_keys(const json_t *o, const char *what, const char *const *keys)
{
    const char *key;
    json_t *value;
    int n = 0;

    if (!json_is_object(o))
        return wf_err(WEFT_EPARSE, "%s is not an object", what);
    while (keys[n])
        n++;
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        int i = 0;

        while (i < n && strcmp(keys[i], key))
            i++;
        if (i < n)
            continue;
        return wf_err(WEFT_EPARSE, "%s: unknown key '%.32s'%s", what, key,
                      wf_did_you_mean(key, keys, n).text);
    }
    return WEFT_OK;
}

/* A text without zero bytes, or NULL with the error set. */
static const char *text_of(const json_t *o, const char *what, const char *key)
{
    const json_t *v = json_object_get(o, key);
    const char *s = json_string_value(v);

    if (!s || strlen(s) != json_string_length(v)) {
        wf_err(WEFT_EPARSE, "%s: '%s' must be a string", what, key);
        return NULL;
    }
    return s;
}

static weft_status list_of(const json_t *o, const char *what, const char *key, const json_t **out)
{
    *out = json_object_get(o, key);
    if (!json_is_array(*out) || json_array_size(*out) > MAX_ITEMS)
        return wf_err(WEFT_EPARSE, "%s: '%s' must be a list of at most %d", what, key, MAX_ITEMS);
    return WEFT_OK;
}

static weft_status read_layer(weft_model *m, const json_t *o)
{
    static const char *const keys[] = {"name", "kind", "attrs", "wraps", "trainable", NULL};
    const char *name, *kind, *attrs, *wraps = NULL;
    const json_t *trainable = json_object_get(o, "trainable");
    weft_layer inner = {0};
    struct wf_buf text;
    weft_status st = check_keys(o, "layer", keys);

    if (st)
        return st;
    name = text_of(o, "layer", "name");
    kind = text_of(o, "layer", "kind");
    attrs = text_of(o, "layer", "attrs");
    if (json_object_get(o, "wraps")) {
        wraps = text_of(o, "layer", "wraps");
        if (!wraps)
            return WEFT_EPARSE;
        st = weft_model_layer(m, wraps, &inner);
    }
    if (!name || !kind || !attrs)
        return WEFT_EPARSE;
    if (trainable && !json_is_boolean(trainable))
        return wf_err(WEFT_EPARSE, "layer '%.64s': 'trainable' must be true or false", name);
    if (st)
        return wf_err_wrap(st, "layer '%.64s'", name);
    wf_buf_init(&text, m->ctx, MAX_JSON);
    wf_buf_printf(&text, "%s", attrs);
    wf_attr_write(&text, "name", &(struct wf_attr){.kind = WF_STR, .s = name}, true);
    if (json_is_false(trainable))
        wf_buf_printf(&text, " trainable=false");
    st = text.st;
    if (!st && !wf_layer_make(m, kind, text.data, inner).id)
        st = weft_model_status(m);
    wf_buf_free(&text);
    return wf_err_wrap(st, "layer '%.64s'", name);
}

static weft_status read_value(const weft_model *m, const json_t *v, weft_sym *out)
{
    json_int_t node, part;

    if (json_array_size(v) != 2 || !json_is_integer(json_array_get(v, 0)) ||
        !json_is_integer(json_array_get(v, 1)))
        return wf_err(WEFT_EPARSE, "a value is [node, part]");
    node = json_integer_value(json_array_get(v, 0));
    part = json_integer_value(json_array_get(v, 1));
    if (node < 0 || node >= m->n_nodes || part < 0 || part >= m->nodes[node].n_out)
        return wf_err(WEFT_ERANGE, "there is no value [%lld, %lld] yet", (long long)node,
                      (long long)part);
    out->id = m->nodes[node].first + (int32_t)part;
    return WEFT_OK;
}

static weft_status read_input(weft_model *m, const json_t *o)
{
    static const char *const keys[] = {"input", "dtype", "dim", NULL};
    const char *name, *dtype;
    const json_t *dims = NULL;
    int64_t dim[WEFT_MAX_RANK];
    weft_dtype t;
    weft_status st = check_keys(o, "input", keys);

    if (!st)
        st = list_of(o, "input", "dim", &dims);
    if (st)
        return st;
    name = text_of(o, "input", "input");
    dtype = text_of(o, "input", "dtype");
    if (!name || !dtype)
        return WEFT_EPARSE;
    st = weft_dtype_parse(dtype, &t);
    if (!st && json_array_size(dims) >= WEFT_MAX_RANK)
        st = wf_err(WEFT_EPARSE, "rank %zu is too large", json_array_size(dims));
    for (size_t i = 0; !st && i < json_array_size(dims); i++) {
        const json_t *d = json_array_get(dims, i);

        dim[i] = json_is_null(d) ? WEFT_ANY : json_integer_value(d);
        if (!json_is_null(d) && (!json_is_integer(d) || dim[i] < 0))
            st = wf_err(WEFT_EPARSE, "size %zu must be a number or null", i);
    }
    if (!st && !weft_input(m, name, t, (int)json_array_size(dims), dim).id)
        return weft_model_status(m);
    return wf_err_wrap(st, "input '%.64s'", name);
}

static weft_status read_call(weft_model *m, const json_t *o)
{
    static const char *const keys[] = {"layer", "in", NULL};
    const json_t *in = NULL;
    const char *name;
    weft_sym x[WF_MAX_IN];
    weft_layer l;
    weft_status st = check_keys(o, "call", keys);

    if (!st)
        st = list_of(o, "call", "in", &in);
    if (st)
        return st;
    name = text_of(o, "call", "layer");
    if (!name)
        return WEFT_EPARSE;
    st = weft_model_layer(m, name, &l);
    if (!st && (json_array_size(in) < 1 || json_array_size(in) > WF_MAX_IN))
        st = wf_err(WEFT_EPARSE, "called with %zu inputs", json_array_size(in));
    for (size_t i = 0; !st && i < json_array_size(in); i++)
        st = read_value(m, json_array_get(in, i), &x[i]);
    if (st)
        return wf_err_wrap(st, "call of layer '%.64s'", name);
    return weft_call_n(m, l, (int)json_array_size(in), x).id ? WEFT_OK : weft_model_status(m);
}

static weft_status read_parts(weft_model *m, const json_t *root)
{
    const json_t *layers = NULL, *nodes = NULL, *outputs = NULL;
    weft_status st = list_of(root, "model", "layers", &layers);

    if (!st)
        st = list_of(root, "model", "nodes", &nodes);
    if (!st)
        st = list_of(root, "model", "outputs", &outputs);
    for (size_t i = 0; !st && i < json_array_size(layers); i++)
        st = read_layer(m, json_array_get(layers, i));
    for (size_t i = 0; !st && i < json_array_size(nodes); i++) {
        const json_t *o = json_array_get(nodes, i);

        st = json_object_get(o, "input") ? read_input(m, o) : read_call(m, o);
    }
    for (size_t i = 0; !st && i < json_array_size(outputs); i++) {
        weft_sym x;

        st = read_value(m, json_array_get(outputs, i), &x);
        if (!st)
            weft_model_output(m, x);
        st = wf_err_wrap(st ? st : weft_model_status(m), "outputs");
    }
    return st;
}

static weft_status read_root(weft_model *m, const json_t *root)
{
    static const char *const keys[] = {"format", "version", "name", "layers",
                                       "nodes",  "outputs", NULL};
    const char *format, *name;
    const json_t *version = json_object_get(root, "version");
    weft_status st = check_keys(root, "model", keys);

    if (st)
        return st;
    format = text_of(root, "model", "format");
    if (!format || strcmp(format, "weft-model"))
        return wf_err(WEFT_EPARSE, "this is not a weft model: \"format\" must be \"weft-model\"");
    if (!json_is_integer(version) || json_integer_value(version) != VERSION)
        return wf_err(WEFT_ENOSUP, "model format version %lld; this library reads version %d",
                      (long long)json_integer_value(version), VERSION);
    name = text_of(root, "model", "name");
    if (!name)
        return WEFT_EPARSE;
    m->name = wf_arena_strdup(&m->arena, name);
    return m->name ? read_parts(m, root) : wf_err_nomem(m->ctx, 0, "model");
}

weft_status weft_model_read(weft_model *m, const char *json, int64_t n)
{
    json_error_t e;
    json_t *root;
    wf_locale plain;
    weft_status st = weft_model_status(m);

    if (!st && (m->n_layers || m->n_nodes))
        st = wf_err(WEFT_ESTATE, "a model can be read only into an empty model");
    if (!st && (n < 0 || n > MAX_JSON))
        st = wf_err(WEFT_EPARSE, "model: %lld bytes; at most %lld are supported", (long long)n,
                    (long long)MAX_JSON);
    if (st)
        return st;
    plain = wf_plain_locale_enter();
    root = json_loadb(json, (size_t)n, JSON_REJECT_DUPLICATES, &e);
    wf_plain_locale_leave(plain);
    if (!root)
        st = wf_err(WEFT_EPARSE, "model: line %d, column %d: %s", e.line, e.column, e.text);
    else
        st = wf_err_wrap(read_root(m, root), "model");
    json_decref(root);
    return wf_model_fail(m, st);
}

weft_status weft_model_parse(weft_ctx *ctx, const char *json, int64_t n, weft_model **out)
{
    weft_model *m = NULL;
    weft_status st = weft_model_new(ctx, NULL, &m);

    if (!st)
        st = weft_model_read(m, json, n);
    if (st) {
        weft_model_free(m);
        return st;
    }
    *out = m;
    return WEFT_OK;
}
