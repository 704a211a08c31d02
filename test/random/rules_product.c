/* rules_product.c - drawing products, convolutions, pooling, attention, recurrent nets. */
#include "random/rules.h"

static const char *yes_no(struct gen *g)
{
    return draw_one_in(&g->d, 2) ? "true" : "false";
}

/* A value with these last two sizes, and leading sizes that broadcast with `lead`. */
static weft_val matrix(struct gen *g, weft_dtype t, int n_lead, const int64_t *lead, int64_t m,
                       int64_t n, bool trans)
{
    int64_t dim[WEFT_MAX_RANK];
    int drop = draw_one_in(&g->d, 3) ? (int)draw_int(&g->d, 0, n_lead) : 0, rank = 0;

    for (int i = drop; i < n_lead; i++)
        dim[rank++] = draw_one_in(&g->d, 6) ? 1 : lead[i];
    dim[rank++] = trans ? n : m;
    dim[rank++] = trans ? m : n;
    return gen_typed(g, t, rank, dim);
}

bool draw_matmul(struct gen *g, const char *op)
{
    weft_val in[2] = {gen_any(g, FLOATS, 2, 5), WEFT_NIL};
    bool ta = draw_one_in(&g->d, 4), tb = draw_one_in(&g->d, 4), swap = draw_one_in(&g->d, 2);
    struct wf_type t;
    int64_t k, n = gen_size(g);

    if (!in[0].id)
        return false;
    t = *gen_type(g, in[0]);
    if (swap) { /* the given value is the second factor */
        k = tb ? t.dim[t.rank - 1] : t.dim[t.rank - 2];
        in[1] = in[0];
        in[0] = matrix(g, t.dtype, t.rank - 2, t.dim, n, k, ta);
    } else {
        k = ta ? t.dim[t.rank - 2] : t.dim[t.rank - 1];
        in[1] = matrix(g, t.dtype, t.rank - 2, t.dim, k, n, tb);
    }
    if (!in[0].id || !in[1].id)
        return false;
    return gen_op(g, op, 2, in, "trans_a=%s trans_b=%s", ta ? "true" : "false",
                  tb ? "true" : "false")
        .id;
}

/* What networks consist of: activation(x w + b), w and b variables. */
bool draw_dense(struct gen *g, const char *op)
{
    weft_val x = gen_any(g, FLOATS, 2, 3), in[2];
    int64_t n = draw_int(&g->d, 1, 6), k;
    char word[32];

    (void)op;
    if (!x.id || gen_type(g, x)->dtype != WEFT_F32)
        return false;
    k = gen_type(g, x)->dim[gen_type(g, x)->rank - 1];
    in[0] = x;
    in[1] = gen_variable(g, WEFT_F32, 2, (int64_t[]){k, n}, false);
    if (!in[1].id || !gen_take(g, in[1]))
        return false;
    in[0] = gen_op(g, "matmul", 2, in, "%s", "");
    in[1] = gen_variable(g, WEFT_F32, 1, &n, false);
    if (!in[0].id || !in[1].id || !gen_take(g, in[1]))
        return false;
    in[0] = gen_op(g, "add", 2, in, "%s", "");
    return in[0].id &&
           gen_op(g, draw_word(&g->d, "relu|tanh|gelu|identity", word), 1, in, "%s", "").id;
}

/* ---- windows --------------------------------------------------------------------------------- */

struct window {
    int64_t k[3], stride[3], dilation[3], pads[6];
    int n;
    char padding[32];
};

static struct window draw_window(struct gen *g, int n, bool dilated)
{
    struct window w = {.n = n};

    for (int i = 0; i < n; i++) {
        w.k[i] = draw_int(&g->d, 1, 4);
        w.stride[i] = draw_one_in(&g->d, 2) ? 1 : draw_int(&g->d, 1, 3);
        w.dilation[i] = dilated && w.stride[i] == 1 && draw_one_in(&g->d, 4) ? 2 : 1;
    }
    draw_word(&g->d, "valid|same|same", w.padding);
    return w;
}

static const char *window_text(struct gen *g, const struct window *w, bool dilations, char buf[400])
{
    char a[160], b[160], c[160];
    int64_t pads[6];

    snprintf(buf, 400, "strides=%s%s%s", rule_list(draw_one_in(&g->d, 8) ? 1 : w->n, w->stride, a),
             dilations ? " dilations=" : "", dilations ? rule_list(w->n, w->dilation, b) : "");
    if (draw_one_in(&g->d, 6)) {
        for (int i = 0; i < 2 * w->n; i++)
            pads[i] = draw_int(&g->d, 0, 1);
        snprintf(buf + strlen(buf), 400 - strlen(buf), " padding=explicit pads=%s",
                 rule_list(2 * w->n, pads, c));
    } else {
        snprintf(buf + strlen(buf), 400 - strlen(buf), " padding=%s", w->padding);
    }
    return buf;
}

/* [batch, sizes, channels] */
static weft_val image(struct gen *g)
{
    int n = draw_one_in(&g->d, 2) ? 2 : (int)draw_int(&g->d, 1, 3);
    int64_t dim[5] = {g->batch[0] && draw_one_in(&g->d, 2) ? g->batch[0] : draw_int(&g->d, 1, 2)};

    for (int i = 0; i < 6; i++) {
        weft_val v = gen_any(g, FLOATS, 3, 5);

        if (v.id && wf_type_count(gen_type(g, v)) < 3000 && draw_one_in(&g->d, 2))
            return v;
        if (draw_one_in(&g->d, 3))
            break;
    }
    for (int i = 1; i <= n; i++)
        dim[i] = draw_int(&g->d, 1, g->large ? 12 : 7);
    dim[n + 1] = draw_one_in(&g->d, 3) ? draw_int(&g->d, 1, 20) : draw_int(&g->d, 1, 5);
    return gen_typed(g, gen_float(g), n + 2, dim);
}

bool draw_conv(struct gen *g, const char *op)
{
    weft_val in[2] = {image(g)};
    int64_t dim[5], c, groups = 1;
    char text[400];
    struct window w;
    int n;

    if (!in[0].id)
        return false;
    n = gen_type(g, in[0])->rank - 2;
    c = gen_type(g, in[0])->dim[n + 1];
    w = draw_window(g, n, true);
    if (draw_one_in(&g->d, 4) && c > 1)
        groups = draw_one_in(&g->d, 2) ? c : c % 2 == 0 ? 2 : 1;
    for (int i = 0; i < n; i++)
        dim[i] = w.k[i];
    dim[n] = c / groups;
    dim[n + 1] = groups * draw_int(&g->d, 1, groups == c ? 2 : draw_one_in(&g->d, 4) ? 18 : 4);
    in[1] = gen_typed(g, gen_type(g, in[0])->dtype, n + 2, dim);
    return in[1].id &&
           gen_op(g, op, 2, in, "%s groups=%lld", window_text(g, &w, true, text), (long long)groups)
               .id;
}

bool draw_conv_transpose(struct gen *g, const char *op)
{
    weft_val in[2] = {image(g)};
    int64_t dim[5], c, groups = 1, extra[3] = {0};
    char text[400], a[160];
    struct window w;
    int n;

    if (!in[0].id)
        return false;
    n = gen_type(g, in[0])->rank - 2;
    c = gen_type(g, in[0])->dim[n + 1];
    w = draw_window(g, n, true);
    if (draw_one_in(&g->d, 6) && c % 2 == 0)
        groups = 2;
    for (int i = 0; i < n; i++) {
        dim[i] = w.k[i];
        extra[i] = w.stride[i] > 1 ? draw_int(&g->d, 0, 1) : 0;
    }
    dim[n] = draw_int(&g->d, 1, 4);
    dim[n + 1] = c;
    in[1] = gen_typed(g, gen_type(g, in[0])->dtype, n + 2, dim);
    return in[1].id &&
           gen_op(g, op, 2, in, "%s groups=%lld output_padding=%s", window_text(g, &w, true, text),
                  (long long)groups, rule_list(draw_one_in(&g->d, 4) ? n : 0, extra, a))
               .id;
}

bool draw_pool(struct gen *g, const char *op)
{
    weft_val x = image(g);
    char text[400], a[160];
    struct window w;

    if (!x.id)
        return false;
    w = draw_window(g, gen_type(g, x)->rank - 2, false);
    return gen_op(g, op, 1, &x, "window=%s %s", rule_list(w.n, w.k, a),
                  window_text(g, &w, false, text))
        .id;
}

/* The positions max_pool found, read from another value. */
bool draw_pool_pick(struct gen *g, const char *op)
{
    weft_val x = image(g), in[2], first;
    char text[400], a[160];
    struct window w;

    if (!x.id)
        return false;
    w = draw_window(g, gen_type(g, x)->rank - 2, false);
    snprintf(text, sizeof text, "window=%s strides=[1] padding=%s", rule_list(w.n, w.k, a),
             w.padding);
    first = gen_op(g, "max_pool", 1, &x, "%s", text);
    if (!first.id)
        return false;
    in[0] = gen_like(g, x);
    in[1] = weft_output(g->g, first, 1);
    return in[0].id && gen_op(g, op, 2, in, "%s", text).id;
}

bool draw_resize(struct gen *g, const char *op)
{
    weft_val x = image(g);
    int64_t size[3];
    char a[160], m[32];
    bool scale = draw_one_in(&g->d, 2);
    int n;

    if (!x.id)
        return false;
    n = gen_type(g, x)->rank - 2;
    for (int i = 0; i < n; i++)
        size[i] = draw_int(&g->d, 1, scale ? 3 : 8);
    return gen_op(g, op, 1, &x, "%s=%s method=%s", scale ? "scale" : "size", rule_list(n, size, a),
                  draw_word(&g->d, "nearest|bilinear", m))
        .id;
}

/* ---- attention and recurrence ---------------------------------------------------------------- */

static weft_val attention_mask(struct gen *g, weft_dtype t, int64_t b, int64_t h, int64_t tq,
                               int64_t tk)
{
    int64_t dim[4] = {b, h, tq, tk};
    int drop = (int)draw_int(&g->d, 0, 2);

    if (draw_one_in(&g->d, 2))
        return WEFT_NIL;
    for (int i = 0; i < 3; i++)
        if (draw_one_in(&g->d, 3))
            dim[i] = 1;
    return gen_typed(g, draw_one_in(&g->d, 2) ? WEFT_BOOL : t, 4 - drop, dim + drop);
}

bool draw_attention(struct gen *g, const char *op)
{
    int64_t b = draw_int(&g->d, 1, 2), h = draw_int(&g->d, 1, 2), tq = draw_int(&g->d, 1, 5),
            tk = draw_int(&g->d, 1, 5), d = draw_int(&g->d, 1, 8),
            dv = draw_one_in(&g->d, 3) ? draw_int(&g->d, 1, 8) : d;
    bool heads_first = draw_one_in(&g->d, 2);
    weft_dtype t = gen_float(g);
    weft_val in[4];

    if (draw_one_in(&g->d, 2))
        tk = tq;
    for (int i = 0; i < 3; i++) {
        int64_t n = i ? tk : tq,
                dim[4] = {b, heads_first ? h : n, heads_first ? n : h, i == 2 ? dv : d};

        in[i] = gen_typed(g, t, 4, dim);
        if (!in[i].id)
            return false;
    }
    in[3] = attention_mask(g, t, b, h, tq, tk);
    return gen_op(g, op, in[3].id ? 4 : 3, in, "layout=%s causal=%s scale=%g",
                  heads_first ? "bhtd" : "bthd", yes_no(g), draw_one_in(&g->d, 2) ? 0 : 0.5)
        .id;
}

bool draw_attention_packed(struct gen *g, const char *op)
{
    int64_t dim[5] = {draw_int(&g->d, 1, 2), draw_int(&g->d, 1, 5), 3, draw_int(&g->d, 1, 2),
                      draw_int(&g->d, 1, 8)};
    weft_dtype t = gen_float(g);
    weft_val in[2] = {gen_typed(g, t, 5, dim)};

    if (!in[0].id)
        return false;
    in[1] = attention_mask(g, t, dim[0], dim[3], dim[1], dim[1]);
    return gen_op(g, op, in[1].id ? 2 : 1, in, "causal=%s scale=%g", yes_no(g),
                  draw_one_in(&g->d, 2) ? 0 : 0.5)
        .id;
}

bool draw_rnn(struct gen *g, const char *op)
{
    int64_t batch = g->batch[0] && draw_one_in(&g->d, 2) ? g->batch[0] : draw_int(&g->d, 1, 3),
            time = draw_int(&g->d, 1, 4), n_in = draw_int(&g->d, 1, 5),
            units = draw_int(&g->d, 1, 5),
            gates = !strcmp(op, "lstm")  ? 4
                    : !strcmp(op, "gru") ? 3
                                         : 1;
    bool after = draw_one_in(&g->d, 2);
    char attrs[96], word[32];
    weft_dtype t = gen_float(g);
    weft_val in[7] = {{0}};

    in[0] = gen_typed(g, t, 3, (int64_t[]){batch, time, n_in});
    in[1] = gen_typed(g, t, 2, (int64_t[]){n_in, gates * units});
    in[2] = gen_typed(g, t, 2, (int64_t[]){units, gates * units});
    if (!in[0].id || !in[1].id || !in[2].id)
        return false;
    if (draw_one_in(&g->d, 2))
        in[3] = !strcmp(op, "gru") && after ? gen_typed(g, t, 2, (int64_t[]){2, gates * units})
                                            : gen_typed(g, t, 1, (int64_t[]){gates * units});
    if (draw_one_in(&g->d, 2))
        in[4] = gen_typed(g, t, 2, (int64_t[]){batch, units});
    if (draw_one_in(&g->d, 3))
        in[5] = draw_one_in(&g->d, 2) ? gen_typed(g, WEFT_BOOL, 2, (int64_t[]){batch, time})
                                      : gen_ids(g, 0, time, 1, &batch);
    if (!strcmp(op, "lstm") && draw_one_in(&g->d, 2))
        in[6] = gen_typed(g, t, 2, (int64_t[]){batch, units});
    snprintf(attrs, sizeof attrs, "reverse=%s%s%s%s%s", yes_no(g),
             !strcmp(op, "gru") ? " reset_after=" : "",
             !strcmp(op, "gru") ? after ? "true" : "false" : "", gates == 1 ? " activation=" : "",
             gates == 1 ? draw_word(&g->d, "tanh|relu", word) : "");
    return gen_op(g, op, !strcmp(op, "lstm") ? 7 : 6, in, "%s", attrs).id;
}
