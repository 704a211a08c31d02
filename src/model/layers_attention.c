/* layers_attention.c - Attention, AdditiveAttention, MultiHeadAttention, GroupQueryAttention.
 *
 * A query that may not attend to anything gets zeros. (Keras' Attention gives it the mean of all
 * values; if the mask is that of the sequence, such rows are masked anyway.) */
#include <math.h>
#include <stdio.h>

#include "model/core.h"
#include "model/layers.h"

static weft_status state_of(weft_layer_call *c)
{
    return c->st ? c->st : weft_lc_graph(c)->st;
}

/* ---- scores of all pairs --------------------------------------------------------------------- */

/* Softmax of scores […, query, key] under a mask, dropped out, times value […, key, n]. */
static weft_status apply_scores(weft_layer_call *c, weft_val scores, weft_val value, weft_val mask)
{
    weft_graph *g = weft_lc_graph(c);
    double rate = weft_lc_float(c, "dropout");
    weft_val weights, y, q_mask = weft_lc_mask(c, 0), used;

    weights = weft_masked_softmax(g, scores,
                                  WEFT_OPTS(weft_masked_softmax_opts, .mask = mask,
                                            .causal = weft_lc_bool(c, "use_causal_mask")));
    used = rate > 0 && c->b->training ? weft_dropout(g, weights, rate, NULL) : weights;
    y = weft_matmul(g, used, value, NULL);
    if (q_mask.id)
        y = weft_where(g, weft_expand_dims(g, q_mask, -1), y, wf_const_like(g, 0, y));
    weft_lc_out(c, 0, y);
    if (weft_lc_bool(c, "return_attention_scores"))
        weft_lc_out(c, 1, used);
    return state_of(c);
}

static weft_status check_inputs(weft_layer_call *c)
{
    for (int i = 0; i < weft_lc_n_in(c) && i < 3; i++)
        if (weft_lc_rank(c, weft_lc_in(c, i)) != 3)
            return weft_lc_fail(c, WEFT_ESHAPE,
                                "input %d has rank %d; it must be 3, [batch, time, features]", i,
                                weft_lc_rank(c, weft_lc_in(c, i)));
    return WEFT_OK;
}

static weft_val key_of(weft_layer_call *c)
{
    return weft_lc_in(c, weft_lc_n_in(c) > 2 ? 2 : 1);
}

/* The value's mask [batch, key] for scores [batch, query, key]. */
static weft_val value_mask(weft_layer_call *c)
{
    weft_val m = weft_lc_mask(c, 1);

    return m.id ? weft_expand_dims(weft_lc_graph(c), m, 1) : WEFT_NIL;
}

/* query + key for all pairs: [batch, query, key, n]. */
static weft_val all_sums(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);

    return weft_add(g, weft_expand_dims(g, weft_lc_in(c, 0), 2), weft_expand_dims(g, key_of(c), 1));
}

static weft_val one_weight(weft_layer_call *c, const char *name)
{
    return weft_lc_weight(c, name, 0, NULL, WEFT_OPTS(weft_weight_opts, .initializer = "ones"));
}

static weft_val last_sum(weft_graph *g, weft_val x)
{
    return weft_sum(g, x, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
}

weft_status wf_layer_attention(weft_layer_call *c)
{
    static const char *const modes[] = {"dot", "concat"};
    weft_graph *g = weft_lc_graph(c);
    int mode = wf_lc_choice(c, "score_mode", WF_COUNT(modes), modes);
    weft_val scores, scale = WEFT_NIL;
    weft_status st = mode < 0 ? c->st : check_inputs(c);

    if (st)
        return st;
    if (weft_lc_bool(c, "use_scale"))
        scale = one_weight(c, "scale");
    if (mode == 0) {
        scores = weft_matmul(g, weft_lc_in(c, 0), key_of(c),
                             WEFT_OPTS(weft_matmul_opts, .trans_b = true));
        scores = scale.id ? weft_mul(g, scores, scale) : scores;
    } else {
        weft_val all = all_sums(c);

        all = weft_tanh(g, scale.id ? weft_mul(g, all, scale) : all);
        scores = weft_mul(g, last_sum(g, all), one_weight(c, "concat_score_weight"));
    }
    return apply_scores(c, scores, weft_lc_in(c, 1), value_mask(c));
}

weft_status wf_layer_additive_attention(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_status st = check_inputs(c);
    weft_val all;

    if (st)
        return st;
    all = weft_tanh(g, all_sums(c));
    if (weft_lc_bool(c, "use_scale")) {
        int64_t n = weft_lc_dim(c, weft_lc_in(c, 0), -1);

        all = weft_mul(g, all, weft_lc_weight(c, "scale", 1, &n, NULL));
    }
    return apply_scores(c, last_sum(g, all), weft_lc_in(c, 1), value_mask(c));
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* A call of a layer with heads. */
struct heads {
    weft_layer_call *c;
    weft_graph *g;
    int64_t n_heads, n_groups, key_dim, value_dim; /* n_groups heads of keys and values */
    weft_val query, value, key;                    /* [batch, time, features] */
    weft_val mask; /* [batch or 1, 1 or heads, query or 1, key] or nil */
    int n_out;
    int64_t out[WEFT_MAX_RANK]; /* the sizes that replace the features in the result */
};

/* The weight "what/kernel" or "what/bias", by the layer's arguments kernel_… or bias_…. The first
 * n_in axes are summed over. */
static weft_val part_weight(weft_layer_call *c, const char *what, const char *kind, int rank,
                            const int64_t *dim, int n_in)
{
    double fan[2] = {1, 1};
    char name[64];

    for (int i = 0; i < rank; i++)
        fan[i >= n_in] *= (double)dim[i];
    snprintf(name, sizeof name, "%s/%s", what, kind);
    return wf_lc_param_fans(c, name, kind, rank, dim, n_in ? fan[0] : 0, n_in ? fan[1] : 0);
}

/* x [batch, time, features] as [batch, time, heads, depth]. */
static weft_val project(struct heads *h, const char *what, weft_val x, int64_t n_heads,
                        int64_t depth)
{
    int64_t dim[3] = {weft_lc_dim(h->c, x, -1), n_heads, depth};
    weft_val y =
        weft_einsum(h->g, "btd,dhk->bthk", x, part_weight(h->c, what, "kernel", 3, dim, 1));

    return weft_lc_bool(h->c, "use_bias")
               ? weft_add(h->g, y, part_weight(h->c, what, "bias", 2, dim + 1, 0))
               : y;
}

/* y [batch, time, heads, depth] as [batch, time, out…]. */
static weft_val project_out(struct heads *h, weft_val y)
{
    static const char letters[] = "opqrsuvw";
    int64_t dim[2 + WEFT_MAX_RANK] = {h->n_heads, h->value_dim};
    char equation[64];

    memcpy(dim + 2, h->out, sizeof *dim * (size_t)h->n_out);
    snprintf(equation, sizeof equation, "bthe,he%.*s->bt%.*s", h->n_out, letters, h->n_out,
             letters);
    y = weft_einsum(h->g, equation, y,
                    part_weight(h->c, "attention_output", "kernel", 2 + h->n_out, dim, 2));
    return weft_lc_bool(h->c, "use_bias")
               ? weft_add(h->g, y,
                          part_weight(h->c, "attention_output", "bias", h->n_out, h->out, 0))
               : y;
}

static weft_val both(weft_graph *g, weft_val a, weft_val b)
{
    return a.id && b.id ? weft_logical_and(g, a, b) : a.id ? a : b;
}

/* [query, key]: pairs less than `window` steps apart. */
static weft_val window_mask(struct heads *h, int64_t window)
{
    int64_t dim[2] = {weft_lc_dim(h->c, h->query, 1), weft_lc_dim(h->c, h->value, 1)};
    uint8_t *near = NULL;
    weft_val v = WEFT_NIL;

    if (h->c->st)
        return WEFT_NIL;
    near = wf_alloc_n(h->g->ctx, dim[0] * dim[1] + 1, 1);
    if (!near) {
        wf_lc_failed(h->c, wf_err_nomem(h->g->ctx, (size_t)(dim[0] * dim[1]), "window"));
        return WEFT_NIL;
    }
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t k = 0; k < dim[1]; k++)
            near[i * dim[1] + k] = i - k < window && k - i < window;
    weft_tensor t = weft_view(WEFT_BOOL, near, 2, dim);
    v = weft_constant(h->g, &t);
    wf_free(h->g->ctx, near);
    return v;
}

/* What a query may attend to. Masked queries are not changed: their rows are masked in the
 * result. */
static void collect_mask(struct heads *h)
{
    weft_layer_call *c = h->c;
    weft_graph *g = h->g;
    int64_t window = weft_lc_int(c, "sliding_window");
    weft_val m = weft_lc_mask(c, weft_lc_n_in(c) > 1 ? 1 : 0);

    if (weft_lc_n_in(c) > 2)
        m = both(g, m, weft_lc_mask(c, 2));
    if (m.id)
        m = weft_expand_dims(g, weft_expand_dims(g, m, 1), 1);
    if (weft_lc_n_in(c) > 3) {
        weft_val given = weft_lc_in(c, 3);

        if (wf_val_type_of(g, given)->dtype != WEFT_BOOL)
            given = weft_cast(g, given, WEFT_BOOL);
        while (!g->st && weft_lc_rank(c, given) < 4)
            given = weft_expand_dims(g, given, weft_lc_rank(c, given) == 3 ? 1 : 0);
        m = both(g, m, given);
    }
    if (window < 0)
        weft_lc_fail(c, WEFT_EINVAL, "sliding_window must not be negative, got %lld",
                     (long long)window);
    else if (window)
        m = both(g, m, window_mask(h, window));
    h->mask = m;
}

/* One head of keys or values for each head of queries: [batch, time, groups, n] -> [batch, time,
 * heads, n]. */
static weft_val spread(struct heads *h, weft_val x)
{
    int64_t n = h->n_heads;
    int32_t id[256];
    weft_tensor t;

    if (h->n_groups == n)
        return x;
    for (int64_t i = 0; i < n; i++)
        id[i] = (int32_t)(i / (n / h->n_groups));
    t = weft_view(WEFT_I32, id, 1, &n);
    return weft_gather(h->g, x, weft_constant(h->g, &t), WEFT_OPTS(weft_gather_opts, .axis = 2));
}

/* Attention of q, k, v [batch, time, heads, depth] -> [batch, time, heads, value_dim]. */
static weft_val attend(struct heads *h, weft_val q, weft_val k, weft_val v)
{
    weft_graph *g = h->g;
    double rate = h->c->b->training ? weft_lc_float(h->c, "dropout") : 0;
    bool causal = weft_lc_bool(h->c, "use_causal_mask"),
         wanted = weft_lc_bool(h->c, "return_attention_scores");
    weft_val scores, used;

    if (!(rate > 0) && !wanted)
        return weft_attention(
            g, q, k, v,
            WEFT_OPTS(weft_attention_opts, .mask = h->mask, .causal = causal, .time_first = true));
    q = weft_mul(g, q, wf_const_like(g, 1 / sqrt((double)h->key_dim), q));
    scores = weft_einsum(g, "bthd,bshd->bhts", q, k);
    scores = weft_masked_softmax(
        g, scores, WEFT_OPTS(weft_masked_softmax_opts, .mask = h->mask, .causal = causal));
    used = rate > 0 ? weft_dropout(g, scores, rate, NULL) : scores;
    if (wanted)
        weft_lc_out(h->c, 1, scores);
    return weft_einsum(g, "bhts,bshe->bthe", used, v);
}

/* The whole call on inputs of rank 3. */
static weft_val run_heads(struct heads *h)
{
    weft_val q = project(h, "query", h->query, h->n_heads, h->key_dim);
    weft_val k = project(h, "key", h->key, h->n_groups, h->key_dim), v, gate = WEFT_NIL, y;

    if (weft_lc_bool(h->c, "use_gate"))
        gate = weft_sigmoid(h->g, project(h, "gate", h->query, h->n_heads, h->value_dim));
    v = project(h, "value", h->value, h->n_groups, h->value_dim);
    y = attend(h, q, spread(h, k), spread(h, v));
    return project_out(h, gate.id ? weft_mul(h->g, y, gate) : y);
}

static weft_status begin_heads(weft_layer_call *c, struct heads *h)
{
    double rate = weft_lc_float(c, "dropout");
    int n = weft_lc_n_in(c);

    *h = (struct heads){.c = c, .g = weft_lc_graph(c)};
    h->query = weft_lc_in(c, 0);
    h->value = n > 1 ? weft_lc_in(c, 1) : h->query;
    h->key = n > 2 ? weft_lc_in(c, 2) : h->value;
    if (!(rate >= 0 && rate <= 1))
        return weft_lc_fail(c, WEFT_EINVAL, "dropout must be in [0, 1], got %g", rate);
    return WEFT_OK;
}

static weft_status positive(weft_layer_call *c, const char *attr, int64_t v)
{
    return v > 0
               ? WEFT_OK
               : weft_lc_fail(c, WEFT_EINVAL, "%s must be positive, got %lld", attr, (long long)v);
}

weft_status wf_layer_group_query_attention(weft_layer_call *c)
{
    struct heads h;
    weft_status st = begin_heads(c, &h);

    h.n_heads = weft_lc_int(c, "num_query_heads");
    h.n_groups = weft_lc_int(c, "num_key_value_heads");
    h.key_dim = h.value_dim = weft_lc_int(c, "head_dim");
    if (!st)
        st = positive(c, "num_query_heads", h.n_heads);
    if (!st)
        st = positive(c, "num_key_value_heads", h.n_groups);
    if (!st)
        st = positive(c, "head_dim", h.key_dim);
    if (!st && (h.n_heads % h.n_groups || h.n_heads > 256))
        st = weft_lc_fail(c, WEFT_EINVAL,
                          "num_query_heads must be a multiple of num_key_value_heads, at most 256");
    if (!st)
        st = check_inputs(c);
    if (st)
        return st;
    h.n_out = 1;
    h.out[0] = weft_lc_dim(c, h.query, -1);
    collect_mask(&h);
    weft_lc_out(c, 0, run_heads(&h));
    return state_of(c);
}

/* ---- inputs of more than three axes ---------------------------------------------------------- */

/* Axes in the order batch, those not attended over, those attended over, features. */
struct order {
    int rank, n_free;
    int64_t perm[WEFT_MAX_RANK], dim[WEFT_MAX_RANK]; /* sizes in that order; -1 for the batch */
};

static weft_status order_axes(weft_layer_call *c, weft_val x, struct order *o)
{
    const int64_t *axes;
    int n_axes = weft_lc_ints(c, "attention_axes", &axes), n = 1;
    bool attended[WEFT_MAX_RANK] = {false};

    o->rank = weft_lc_rank(c, x);
    for (int i = 0; i < n_axes; i++) {
        int64_t a = axes[i] < 0 ? axes[i] + o->rank : axes[i];

        if (a < 1 || a >= o->rank - 1)
            return weft_lc_fail(c, WEFT_ERANGE,
                                "attention_axes: %lld is not between batch and "
                                "features",
                                (long long)axes[i]);
        attended[a] = true;
    }
    o->perm[0] = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 1; i < o->rank - 1; i++)
            if ((n_axes == 0 || attended[i]) == (pass == 1))
                o->perm[n++] = i;
        if (!pass)
            o->n_free = n - 1;
    }
    o->perm[n] = o->rank - 1;
    for (int i = 1; i < o->rank; i++)
        o->dim[i] = weft_lc_dim(c, x, (int)o->perm[i]);
    o->dim[0] = -1;
    return c->st;
}

/* [batch, free…, attended…, n] as [batch * free, attended, n]. */
static weft_status fold_axes(weft_layer_call *c, weft_val *x)
{
    struct order o;
    int64_t dim[3] = {-1, 1, 0};
    weft_status st = order_axes(c, *x, &o);

    if (st)
        return st;
    for (int i = 1 + o.n_free; i < o.rank - 1; i++)
        dim[1] *= o.dim[i];
    dim[2] = o.dim[o.rank - 1];
    *x = weft_reshape(weft_lc_graph(c), weft_transpose(weft_lc_graph(c), *x, o.rank, o.perm), 3,
                      dim);
    return state_of(c);
}

/* The reverse, for a result with other features. */
static weft_val unfold_axes(weft_layer_call *c, const struct order *o, weft_val y, int n_out,
                            const int64_t *out)
{
    int64_t dim[WEFT_MAX_RANK], perm[WEFT_MAX_RANK];
    int rank = o->rank - 1 + n_out;

    if (rank > WEFT_MAX_RANK) {
        weft_lc_fail(c, WEFT_ESHAPE, "the result would have rank %d", rank);
        return WEFT_NIL;
    }
    memcpy(dim, o->dim, sizeof dim);
    for (int i = 0; i < n_out; i++)
        dim[o->rank - 1 + i] = out[i];
    for (int i = 0; i < rank; i++)
        perm[i < o->rank - 1 ? o->perm[i] : i] = i;
    return weft_transpose(weft_lc_graph(c), weft_reshape(weft_lc_graph(c), y, rank, dim), rank,
                          perm);
}

static weft_status fold_inputs(weft_layer_call *c, struct heads *h, struct order *o)
{
    weft_status st = order_axes(c, h->query, o);

    if (!st && (weft_lc_n_in(c) > 3 || weft_lc_bool(c, "return_attention_scores") ||
                weft_lc_bool(c, "use_causal_mask") || weft_lc_int(c, "sliding_window")))
        st = weft_lc_fail(c, WEFT_ENOSUP, "masks and scores need inputs of rank 3");
    if (!st)
        st = fold_axes(c, &h->query);
    if (!st)
        st = fold_axes(c, &h->value);
    if (!st)
        st = fold_axes(c, &h->key);
    return st;
}

weft_status wf_layer_multi_head_attention(weft_layer_call *c)
{
    struct heads h;
    struct order o = {0};
    const int64_t *out;
    weft_status st = begin_heads(c, &h);
    bool many = weft_lc_rank(c, h.query) > 3;
    weft_val y;

    h.n_heads = h.n_groups = weft_lc_int(c, "num_heads");
    h.key_dim = weft_lc_int(c, "key_dim");
    h.value_dim = weft_lc_int(c, "value_dim");
    h.value_dim = h.value_dim ? h.value_dim : h.key_dim;
    if (!st)
        st = positive(c, "num_heads", h.n_heads);
    if (!st)
        st = positive(c, "key_dim", h.key_dim);
    if (!st)
        st = positive(c, "value_dim", h.value_dim);
    if (!st)
        st = many ? fold_inputs(c, &h, &o) : check_inputs(c);
    if (st)
        return st;
    h.n_out = weft_lc_ints(c, "output_shape", &out);
    if (h.n_out > 5)
        return weft_lc_fail(c, WEFT_EINVAL, "output_shape has %d sizes; at most 5 are supported",
                            h.n_out);
    for (int i = 0; i < h.n_out; i++)
        h.out[i] = out[i];
    if (!h.n_out)
        h.out[h.n_out++] = weft_lc_dim(c, h.query, -1);
    if (!many)
        collect_mask(&h);
    if (state_of(c))
        return state_of(c);
    y = run_heads(&h);
    if (many && !state_of(c))
        y = unfold_axes(c, &o, y, h.n_out, h.out);
    weft_lc_out(c, 0, y);
    return state_of(c);
}
