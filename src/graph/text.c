/* text.c - graphs as text that reads back, one node per line:
 *
 *   weft graph 1
 *   %0 = placeholder() dtype=f32 shape=[-1,784] "images" #0
 *   %1 = variable() dtype=f32 shape=[784,10] init="glorot_uniform" init_params=[0,0] "w" #1
 *   %2 = matmul(%0, %1) "matmul" #2
 *   %3 = top_k(%2) k=3 "best" #3 @/device:GPU:0 ^%1
 *   %4 = identity(%3:1) "places" #4
 *
 * %n is node n, %n:k its output k, - an absent operand. Attributes with default values are omitted.
 * "name", #uid, @device and ^control follow in any order; a constant ends with {its bytes in
 * hexadecimal}. The reader trusts nothing: every number is bounded, every node goes through the
 * builders' checks. */
#include <stdio.h>
#include <stdlib.h>

#include "graph/graph.h"

#define MAX_TEXT ((int64_t)1 << 30)
#define MAX_NODES 1000000

/* ---- writing --------------------------------------------------------------------------------- */

static void write_value(struct wf_buf *b, const weft_graph *g, int32_t v)
{
    if (!v)
        wf_buf_printf(b, "-");
    else if (g->values[v].index)
        wf_buf_printf(b, "%%%d:%d", g->values[v].node, g->values[v].index);
    else
        wf_buf_printf(b, "%%%d", g->values[v].node);
}

static void write_node(struct wf_buf *b, const weft_graph *g, int64_t k)
{
    const struct wf_node *n = &g->nodes[k];

    wf_buf_printf(b, "%%%lld = %s(", (long long)k, n->op->name);
    for (int i = 0; i < n->n_in; i++) {
        if (i)
            wf_buf_add(b, ", ", 2);
        write_value(b, g, n->in[i]);
    }
    wf_buf_add(b, ")", 1);
    for (int i = 0; i < n->op->n_attrs; i++)
        if (!wf_attr_is_default(&n->attr[i], &n->op->attr[i].value))
            wf_attr_write(b, n->op->attr[i].name, &n->attr[i], true);
    wf_buf_printf(b, " \"%s\" #%d", n->name, n->uid);
    if (*n->device)
        wf_buf_printf(b, " @%s", n->device);
    for (int i = 0; i < n->n_ctrl; i++)
        wf_buf_printf(b, " ^%%%d", n->ctrl[i]);
    if (n->data) {
        int64_t bytes = wf_type_bytes(&g->values[n->first_out].type);

        wf_buf_add(b, " {", 2);
        for (int64_t i = 0; i < bytes; i++)
            wf_buf_printf(b, "%02x", ((const unsigned char *)n->data)[i]);
        wf_buf_add(b, "}", 1);
    }
    wf_buf_add(b, "\n", 1);
}

static weft_status take(struct wf_buf *b, char **out)
{
    if (b->st) {
        wf_buf_free(b);
        return b->st;
    }
    *out = b->data;
    return WEFT_OK;
}

weft_status weft_graph_text(const weft_graph *g, char **out)
{
    struct wf_buf b;
    weft_status st = weft_graph_status(g);

    if (st)
        return st;
    wf_buf_init(&b, g->ctx, MAX_TEXT);
    wf_buf_printf(&b, "weft graph 1\n");
    for (int64_t k = 0; k < g->n_nodes; k++)
        write_node(&b, g, k);
    return take(&b, out);
}

/* ---- drawing --------------------------------------------------------------------------------- */

weft_status weft_graph_dot(const weft_graph *g, char **out)
{
    struct wf_buf b;
    weft_status st = weft_graph_status(g);

    if (st)
        return st;
    wf_buf_init(&b, g->ctx, MAX_TEXT);
    wf_buf_printf(&b,
                  "digraph weft {\n  node [shape=box, fontname=\"sans-serif\", fontsize=10];\n");
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const struct wf_node *n = &g->nodes[k];
        char type[WF_TYPE_TEXT] = "";

        if (n->n_out)
            wf_type_text(&g->values[n->first_out].type, type);
        wf_buf_printf(&b, "  n%lld [label=\"%s\\n%s\\n%s\"%s];\n", (long long)k, n->name,
                      n->op->name, type,
                      n->op->flags & WF_LEAF ? ", style=filled, fillcolor=lightgrey" : "");
        for (int i = 0; i < n->n_in; i++)
            if (n->in[i])
                wf_buf_printf(&b, "  n%d -> n%lld;\n", g->values[n->in[i]].node, (long long)k);
        for (int i = 0; i < n->n_ctrl; i++)
            wf_buf_printf(&b, "  n%d -> n%lld [style=dashed];\n", n->ctrl[i], (long long)k);
    }
    wf_buf_printf(&b, "}\n");
    return take(&b, out);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
    weft_graph *g;
    const char *p;
    int64_t n_nodes; /* read so far */
};

static void skip(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')
        r->p++;
}

static weft_status expect(struct reader *r, const char *text)
{
    size_t n = strlen(text);

    skip(r);
    if (strncmp(r->p, text, n))
        return wf_err(WEFT_EPARSE, "expected '%s' at '%.24s'", text, r->p);
    r->p += n;
    return WEFT_OK;
}

static weft_status read_number(struct reader *r, int64_t max, int64_t *out)
{
    int64_t v = 0;

    if (*r->p < '0' || *r->p > '9')
        return wf_err(WEFT_EPARSE, "expected a number at '%.24s'", r->p);
    for (; *r->p >= '0' && *r->p <= '9'; r->p++) {
        v = v * 10 + (*r->p - '0');
        if (v > max)
            return wf_err(WEFT_ERANGE, "a number above %lld", (long long)max);
    }
    *out = v;
    return WEFT_OK;
}

/* %n or %n:k of a node already read. */
static weft_status read_value(struct reader *r, int32_t *out)
{
    int64_t n, k = 0;
    weft_status st = expect(r, "%");

    if (!st)
        st = read_number(r, MAX_NODES, &n);
    if (!st && *r->p == ':') {
        r->p++;
        st = read_number(r, WF_MAX_OUT, &k);
    }
    if (st)
        return st;
    if (n >= r->n_nodes || k >= r->g->nodes[n].n_out)
        return wf_err(WEFT_EPARSE, "%%%lld:%lld does not exist before this line", (long long)n,
                      (long long)k);
    *out = r->g->nodes[n].first_out + (int32_t)k;
    return WEFT_OK;
}

static weft_status read_op(struct reader *r, const struct wf_op **out)
{
    size_t n = strcspn(r->p, "( \n");
    char name[80];

    if (n == 0 || n >= sizeof name)
        return wf_err(WEFT_EPARSE, "expected the name of an op at '%.24s'", r->p);
    memcpy(name, r->p, n);
    name[n] = '\0';
    *out = wf_op_find(r->g->ctx, name);
    if (!*out)
        return wf_err(WEFT_ENOENT,
                      "needs the op '%s', which this context does not have (register it first)",
                      name);
    r->p += n;
    return WEFT_OK;
}

static weft_status read_inputs(struct reader *r, weft_val *in, int *n)
{
    weft_status st = expect(r, "(");

    *n = 0;
    for (skip(r); !st && *r->p != ')'; skip(r)) {
        if (*n == WF_MAX_MANY)
            return wf_err(WEFT_ELIMIT, "more than %d operands", WF_MAX_MANY);
        if (*n)
            st = expect(r, ",");
        skip(r);
        if (!st && *r->p == '-') {
            r->p++;
            in[(*n)++].id = 0;
        } else if (!st) {
            st = read_value(r, &in[*n].id);
            (*n)++;
        }
    }
    return st ? st : expect(r, ")");
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static weft_status read_data(struct reader *r, weft_val v)
{
    int64_t bytes = wf_type_bytes(wf_val_type_of(r->g, v));
    unsigned char *data;

    r->p++;
    /* The text must contain all of them: checked before allocating. */
    if (bytes < 0 || (int64_t)strspn(r->p, "0123456789abcdef") != 2 * bytes)
        return wf_err(WEFT_EPARSE, "the constant's shape needs %lld bytes", (long long)bytes);
    data = wf_arena_alloc(&r->g->arena, (size_t)bytes + 64);
    if (!data)
        return wf_err_nomem(r->g->ctx, (size_t)bytes, "constant");
    data += (64 - (uintptr_t)data % 64) % 64;
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(hex(r->p[2 * i]) << 4 | hex(r->p[2 * i + 1]));
    r->g->nodes[wf_val(r->g, v)->node].data = data;
    r->p += 2 * bytes;
    return expect(r, "}");
}

/* What follows the name: #uid, @device, ^control, {data}. */
static weft_status read_tail(struct reader *r, weft_val v)
{
    weft_status st = WEFT_OK;
    int64_t k = wf_val(r->g, v)->node, number;
    char device[256];
    size_t n;
    int32_t before;

    for (skip(r); !st && *r->p && *r->p != '\n'; skip(r)) {
        switch (*r->p) {
        case '#':
            r->p++;
            st = read_number(r, INT32_MAX - 1, &number);
            if (!st) {
                r->g->nodes[k].uid = (int32_t)number;
                r->g->next_uid = (int32_t)wf_max_i64(r->g->next_uid, number + 1);
            }
            break;
        case '@':
            n = strcspn(++r->p, " \n");
            if (n >= sizeof device)
                return wf_err(WEFT_EPARSE, "a device name of more than %zu characters",
                              sizeof device);
            memcpy(device, r->p, n);
            device[n] = '\0';
            r->p += n;
            weft_device_push(r->g, device);
            r->g->nodes[k].device = r->g->device;
            if (!r->g->st)
                weft_device_pop(r->g);
            st = r->g->st;
            break;
        case '^':
            r->p++;
            st = read_value(r, &before);
            if (!st)
                weft_control(r->g, v, (weft_val){before});
            break;
        case '{':
            if (r->g->nodes[k].op->id != WF_OP_constant)
                return wf_err(WEFT_EPARSE, "only a constant has data");
            st = read_data(r, v);
            break;
        default: return wf_err(WEFT_EPARSE, "unexpected text at '%.24s'", r->p);
        }
    }
    if (!st && r->g->nodes[k].op->id == WF_OP_constant && !r->g->nodes[k].data)
        st = wf_err(WEFT_EPARSE, "a constant without data");
    return st ? st : r->g->st;
}

static weft_status read_node(struct reader *r, weft_val *in)
{
    const struct wf_op *op = NULL;
    struct wf_set sets[WF_MAX_ATTRS];
    char name[512];
    int n_in, n_sets = 0;
    int64_t number;
    size_t n;
    weft_val v;
    weft_status st = expect(r, "%");

    if (!st)
        st = read_number(r, MAX_NODES, &number);
    if (!st && number != r->n_nodes)
        st = wf_err(WEFT_EPARSE, "found node %lld, expected %lld", (long long)number,
                    (long long)r->n_nodes);
    if (!st)
        st = expect(r, "=");
    skip(r);
    if (!st)
        st = read_op(r, &op);
    if (!st)
        st = read_inputs(r, in, &n_in);
    if (!st)
        st = wf_check_named(r->g, op, n_in, in);
    if (!st)
        st = wf_attr_parse(&r->g->arena, op->name, op->attr, op->n_attrs, r->p, "\n\"@^#{", &r->p,
                           sets, &n_sets);
    if (!st)
        st = expect(r, "\"");
    if (st)
        return st;
    n = strcspn(r->p, "\"\n");
    if (n >= sizeof name || r->p[n] != '"')
        return wf_err(WEFT_EPARSE, "expected a name at '%.24s'", r->p);
    memcpy(name, r->p, n);
    name[n] = '\0';
    r->p += n + 1;
    v = wf_build_named(r->g, op, n_in, in, n_sets, sets, name);
    if (!v.id)
        return weft_graph_status(r->g);
    return read_tail(r, v);
}

weft_status weft_graph_parse(weft_ctx *ctx, const char *text, int64_t n, weft_graph **out)
{
    struct reader r = {0};
    weft_val *in = NULL;
    char *copy = NULL;
    int64_t line = 1;
    weft_status st;

    if (n < 0 || n > MAX_TEXT || memchr(text, '\0', (size_t)n))
        return wf_err(WEFT_EPARSE, "not a graph text: %s",
                      n < 0 || n > MAX_TEXT ? "its size" : "it contains a zero byte");
    st = weft_graph_new(ctx, &r.g);
    if (st)
        return st;
    copy =
        wf_alloc(ctx, (size_t)n + 1); /* NUL-terminated, so the reader need not check for the end */
    in = wf_alloc_n(ctx, WF_MAX_MANY, sizeof *in);
    if (!copy || !in) {
        st = wf_err_nomem(ctx, (size_t)n, "graph text");
        goto out;
    }
    memcpy(copy, text, (size_t)n);
    r.p = copy;
    st = expect(&r, "weft graph 1\n");
    while (!st && *r.p) {
        line++;
        if (*r.p == '\n') {
            r.p++;
            continue;
        }
        st = r.n_nodes < MAX_NODES ? read_node(&r, in)
                                   : wf_err(WEFT_ELIMIT, "more than %d nodes", MAX_NODES);
        r.n_nodes++;
        if (!st && *r.p == '\n')
            r.p++;
    }
    if (st)
        wf_err_wrap(st, "graph, line %lld", (long long)line);
out:
    wf_free(ctx, copy);
    wf_free(ctx, in);
    if (st)
        weft_graph_free(r.g);
    else
        *out = r.g;
    return st;
}

weft_status weft_graph_save(const weft_graph *g, const char *path)
{
    char *text;
    weft_status st = weft_graph_text(g, &text);

    if (st)
        return st;
    st = wf_file_write(g->ctx, path, text, (int64_t)strlen(text));
    wf_free(g->ctx, text);
    return st;
}

weft_status weft_graph_load(weft_ctx *ctx, const char *path, weft_graph **out)
{
    char *text;
    int64_t n;
    weft_status st = wf_file_read(ctx, path, MAX_TEXT, &text, &n);

    if (st)
        return st;
    st = weft_graph_parse(ctx, text, n, out);
    wf_free(ctx, text);
    return st ? wf_err_wrap(st, "%s", path) : WEFT_OK;
}
