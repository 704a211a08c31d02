/* summary.c - the model summary, as in Keras. */
#include <stdio.h>

#include "model/core.h"

enum { MAX_COLUMNS = 4, MAX_CELL = 2048 };

struct table {
    struct wf_buf *b;
    int n_columns;
    int width[MAX_COLUMNS]; /* of the text, without borders and the space at each side */
    bool right[MAX_COLUMNS];
};

/* ---- drawing --------------------------------------------------------------------------------- */

static void rule(const struct table *t, const char *left, const char *line, const char *middle,
                 const char *right)
{
    wf_buf_printf(t->b, "%s", left);
    for (int k = 0; k < t->n_columns; k++) {
        for (int i = 0; i < t->width[k] + 2; i++)
            wf_buf_printf(t->b, "%s", line);
        wf_buf_printf(t->b, "%s", k + 1 < t->n_columns ? middle : right);
    }
    wf_buf_printf(t->b, "\n");
}

/* How much of the text fits on a line of this width, in bytes: up to a space if there is one.
 * Continuation bytes of UTF-8 take no room. */
static size_t fit(const char *s, int width, int *used)
{
    size_t n = 0, space = 0;
    int columns = 0, at_space = 0;

    for (; s[n]; n++) {
        if (((unsigned char)s[n] & 0xc0) != 0x80) {
            if (columns == width)
                break;
            columns++;
        }
        if (s[n] == ' ') {
            space = n;
            at_space = columns - 1;
        }
    }
    *used = s[n] && space ? at_space : columns;
    return s[n] && space ? space : n;
}

static void row(const struct table *t, const char *edge, const char cells[][MAX_CELL])
{
    const char *rest[MAX_COLUMNS];
    bool more = true;

    for (int k = 0; k < t->n_columns; k++)
        rest[k] = cells[k];
    while (more) {
        more = false;
        for (int k = 0; k < t->n_columns; k++) {
            int used, gap;
            size_t n = fit(rest[k], t->width[k], &used);

            gap = t->width[k] - used;
            wf_buf_printf(t->b, "%s %*s%.*s%*s ", edge, t->right[k] ? gap : 0, "", (int)n, rest[k],
                          t->right[k] ? 0 : gap, "");
            rest[k] += n;
            rest[k] += *rest[k] == ' ';
            more |= *rest[k] != '\0';
        }
        wf_buf_printf(t->b, "%s\n", edge);
    }
}

/* ---- cells ----------------------------------------------------------------------------------- */

/* 1234567 -> "1,234,567" */
static void put_count(char *out, size_t room, int64_t n)
{
    char digits[32];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    size_t at = 0;

    for (int i = 0; i < len && at + 2 < room; i++) {
        if (i && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
}

static size_t put_shape(const weft_model *m, weft_sym x, char *out, size_t room)
{
    weft_tensor t;
    size_t at = 0;

    if (weft_sym_type(m, x, &t))
        return 0;
    at += (size_t)snprintf(out, room, "(");
    for (int i = 0; i < t.rank && at < room; i++)
        at += t.dim[i] < 0 ? (size_t)snprintf(out + at, room - at, "%sNone", i ? ", " : "")
                           : (size_t)snprintf(out + at, room - at, "%s%lld", i ? ", " : "",
                                              (long long)t.dim[i]);
    if (at < room)
        at += (size_t)snprintf(out + at, room - at, t.rank == 1 ? ",)" : ")");
    return at < room ? at : room - 1;
}

static void put_shapes(const weft_model *m, const struct wf_model_node *n, char out[MAX_CELL])
{
    size_t at = 0;

    if (n->n_out > 1)
        out[at++] = '[';
    for (int i = 0; i < n->n_out && at + 64 < MAX_CELL; i++) {
        at += (size_t)snprintf(out + at, MAX_CELL - at, "%s", i ? ", " : "");
        at += put_shape(m, (weft_sym){n->first + i}, out + at, MAX_CELL - at);
    }
    if (n->n_out > 1)
        out[at++] = ']';
    out[at] = '\0';
}

/* "conv2d[0][0]": layer, number of the call, number of the value. */
static int64_t count(const struct wf_weight *w)
{
    struct wf_type t = wf_type_of(w->dtype, w->rank, w->dim);

    return wf_type_count(&t);
}

/* What is needed of every layer, found in one walk over nodes and weights. */
struct facts {
    int64_t *call;    /* by node: calls of the same layer before it */
    int64_t *next;    /* by node: the next call of the same layer, or -1 */
    int64_t *first;   /* by layer, id - 1: its first call, or -1 */
    int64_t *weights; /* by layer: parameters of its own */
    int64_t memory[];
};

static weft_status find_facts(const weft_model *m, struct facts **out)
{
    size_t bytes = sizeof(struct facts) + (size_t)(2 * (m->n_nodes + m->n_layers)) * 8;
    struct facts *f = wf_alloc(m->ctx, bytes);

    if (!f)
        return wf_err_nomem(m->ctx, bytes, "a summary");
    f->call = f->memory;
    f->next = f->call + m->n_nodes;
    f->first = f->next + m->n_nodes;
    f->weights = f->first + m->n_layers;
    for (int64_t i = 0; i < m->n_layers; i++)
        f->first[i] = -1;
    for (int64_t k = m->n_nodes - 1; k >= 0; k--) {
        int64_t l = m->nodes[k].layer.id - 1;

        f->next[k] = l < 0 ? -1 : f->first[l];
        if (l >= 0)
            f->first[l] = k;
    }
    for (int64_t k = 0; k < m->n_nodes; k++)
        if (f->next[k] >= 0)
            f->call[f->next[k]] = f->call[k] + 1;
    for (int64_t i = 0; i < m->n_weights; i++)
        f->weights[m->weights[i]->is.layer.id - 1] += count(&m->weights[i]->is);
    *out = f;
    return WEFT_OK;
}

static size_t put_source(const weft_model *m, const struct facts *f, weft_sym x, char *out,
                         size_t room)
{
    const struct wf_symbol *s = wf_symbol_at(m, x);
    int n = snprintf(out, room, "%s[%lld][%d]", weft_sym_name(m, x), (long long)f->call[s->node],
                     s->part);

    return (size_t)n < room ? (size_t)n : room - 1;
}

static void put_sources(const weft_model *m, const struct facts *f, weft_layer l,
                        char out[MAX_CELL])
{
    size_t at = 0;

    out[0] = '\0';
    for (int64_t k = f->first[l.id - 1]; k >= 0; k = f->next[k])
        for (int i = 0; i < m->nodes[k].n_in && at < MAX_CELL - 2; i++) {
            at += (size_t)snprintf(out + at, MAX_CELL - at, "%s", at ? ", " : "");
            at += put_source(m, f, m->nodes[k].in[i], out + at, MAX_CELL - at);
        }
}

/* Of a layer and those it wraps. */
static int64_t layer_params(const weft_model *m, const struct facts *f, weft_layer l)
{
    int64_t n = 0;

    for (; l.id; l = wf_layer_at(m, l)->inner)
        n += f->weights[l.id - 1];
    return n;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* One input, and each node called on the previous one. */
static bool is_chain(const weft_model *m, const struct facts *f)
{
    for (int64_t k = 0; k < m->n_nodes; k++) {
        const struct wf_model_node *n = &m->nodes[k];

        if (k == 0 ? n->layer.id != 0 : n->n_in != 1 || n->in[0].id != m->nodes[k - 1].first)
            return false;
        if (f->call[k])
            return false;
    }
    return true;
}

static void layout(struct table *t, bool chain, int width)
{
    static const int parts[2][MAX_COLUMNS] = {{30, 28, 13, 29}, {46, 34, 20, 0}};
    int room, left;

    t->n_columns = chain ? 3 : 4;
    t->right[2] = true;
    room = left = (width > 0 ? (width < 40 ? 40 : width) : 80) - 3 * t->n_columns - 1;
    for (int k = t->n_columns - 1; k > 0; k--) {
        t->width[k] = room * parts[chain][k] / 100;
        left -= t->width[k];
    }
    t->width[0] = left;
}

static void put_row(const struct table *t, const weft_model *m, const struct facts *f,
                    const struct wf_model_node *n)
{
    char cells[MAX_COLUMNS][MAX_CELL] = {"", "", "0", "-"};

    put_shapes(m, n, cells[1]);
    if (n->layer.id) {
        snprintf(cells[0], MAX_CELL, "%s (%s)", weft_layer_name(m, n->layer),
                 weft_layer_kind_name(m, n->layer));
        put_count(cells[2], MAX_CELL, layer_params(m, f, n->layer));
        put_sources(m, f, n->layer, cells[3]);
    } else {
        snprintf(cells[0], MAX_CELL, "%s (InputLayer)", n->name);
    }
    row(t, "│", (const char(*)[MAX_CELL])cells);
}

static void put_total(struct wf_buf *b, const char *what, int64_t n, int64_t bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    char text[64];
    double size = (double)bytes;
    int u = 0;

    while (size >= 1024 && u + 1 < WF_COUNT(units)) {
        size /= 1024;
        u++;
    }
    put_count(text, sizeof text, n);
    wf_buf_printf(b, " %s: %s (%.2f %s)\n", what, text, size, units[u]);
}

static void put_totals(struct wf_buf *b, const weft_model *m)
{
    int64_t n[2] = {0, 0}, bytes[2] = {0, 0};

    for (int64_t i = 0; i < m->n_weights; i++) {
        const struct wf_weight *w = &m->weights[i]->is;
        int kept = w->state || wf_layer_at(m, w->layer)->frozen;

        n[kept] += count(w);
        bytes[kept] += count(w) * weft_dtype_size(w->dtype);
    }
    put_total(b, "Total params", n[0] + n[1], bytes[0] + bytes[1]);
    put_total(b, "Trainable params", n[0], bytes[0]);
    put_total(b, "Non-trainable params", n[1], bytes[1]);
}

weft_status weft_model_summary(const weft_model *m, int width, char **out)
{
    static const char heads[MAX_COLUMNS][MAX_CELL] = {"Layer (type)", "Output Shape", "Param #",
                                                      "Connected to"};
    struct wf_buf b;
    struct table t = {.b = &b};
    struct facts *f = NULL;
    bool chain, any = false;
    weft_status st = weft_model_status(m);

    if (!st)
        st = find_facts(m, &f);
    if (st)
        return st;
    chain = is_chain(m, f);
    layout(&t, chain, width);
    wf_buf_init(&b, m->ctx, (int64_t)64 << 20);
    wf_buf_printf(&b, "Model: \"%s\"\n", m->name);
    rule(&t, "┏", "━", "┳", "┓");
    row(&t, "┃", heads);
    rule(&t, "┡", "━", "╇", "┩");
    for (int64_t k = 0; k < m->n_nodes; k++) {
        const struct wf_model_node *n = &m->nodes[k];

        if (n->layer.id ? f->call[k] > 0 : chain)
            continue;
        if (any)
            rule(&t, "├", "─", "┼", "┤");
        any = true;
        put_row(&t, m, f, n);
    }
    rule(&t, "└", "─", "┴", "┘");
    put_totals(&b, m);
    wf_free(m->ctx, f);
    if (b.st) {
        st = b.st;
        wf_buf_free(&b);
        return st;
    }
    *out = b.data;
    return WEFT_OK;
}
