/* regularizer.c - penalties by Keras' names, as scalars of a graph. */
#include "graph/nn.h"
#include "model/core.h"
#include "weft/ops.h"

static const struct wf_word regularizers[] = {
    {"l1", "l1:f=0.01"},
    {"l2", "l2:f=0.01"},
    {"l1_l2", "l1:f=0 l2:f=0"},
    {"orthogonal", "factor:f=0.01 mode:s=rows"},
    {"orthogonal_regularizer", "factor:f=0.01 mode:s=rows"},
};
const struct wf_words wf_regularizers = {"regularizer", regularizers, sizeof regularizers[0],
                                         WF_COUNT(regularizers)};

static weft_status parse(struct wf_arena *arena, const char *text, struct wf_word_args *a)
{
    const struct wf_attr *mode;
    weft_status st = wf_word_parse(&wf_regularizers, arena, text, a);

    if (st)
        return st;
    mode = wf_word_arg(a, "mode");
    if (mode->s && strcmp(mode->s, "rows") && strcmp(mode->s, "columns"))
        return wf_err(WEFT_EINVAL, "regularizer: orthogonal: mode '%.32s' is not rows or columns",
                      mode->s);
    return WEFT_OK;
}

weft_status wf_regularizer_check(struct wf_arena *arena, const char *text)
{
    struct wf_word_args a;

    return parse(arena, text, &a);
}

weft_status wf_regularizer_parse(struct wf_arena *arena, const char *regularizer,
                                 struct wf_penalty *out)
{
    struct wf_word_args a;
    const char *mode;
    weft_status st = parse(arena, regularizer, &a);

    if (st)
        return st;
    mode = wf_word_arg(&a, "mode")->s;
    *out =
        mode ? (struct wf_penalty){.orthogonal = wf_word_arg(&a, "factor")->f,
                                   .columns = strcmp(mode, "columns") == 0}
             : (struct wf_penalty){.l1 = wf_word_arg(&a, "l1")->f, .l2 = wf_word_arg(&a, "l2")->f};
    return WEFT_OK;
}

/* factor * the mean of |cosine| over all pairs of rows (or columns). */
static weft_val orthogonal(weft_graph *g, weft_val w, double factor, bool rows)
{
    const struct wf_type *t = wf_val_type_of(g, w);
    int64_t n = t->rank == 2 ? t->dim[rows ? 0 : 1] : 0;
    weft_val eps, norm, unit, product, diagonal, pairs;

    if (t->rank != 2 || n < 2) {
        wf_graph_fail(
            g,
            wf_err(WEFT_ESHAPE,
                   "the orthogonal regularizer needs a matrix with at least two rows or columns"));
        return WEFT_NIL;
    }
    norm = weft_norm_l2(
        g, w, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {rows ? 1 : 0}, .keepdims = true));
    eps = wf_const_like(g, 1e-6, w); /* Keras' square root of 1e-12 */
    unit = weft_div(g, w, weft_max(g, norm, eps));
    product =
        weft_matmul(g, unit, unit, WEFT_OPTS(weft_matmul_opts, .trans_a = !rows, .trans_b = rows));
    diagonal = weft_norm_l1(g, weft_square(g, unit), NULL); /* of the product: its sum */
    pairs = weft_sub(g, weft_norm_l1(g, product, NULL), diagonal);
    return weft_mul(g, pairs, wf_const_like(g, factor / ((double)n * (double)(n - 1)), pairs));
}

weft_status wf_regularizer_build(weft_graph *g, const char *regularizer, weft_val x, weft_val *out)
{
    struct wf_word_args a;
    weft_val sum = WEFT_NIL;
    double l1, l2;
    weft_status st = weft_graph_status(g);

    if (!st)
        st = parse(&g->arena, regularizer, &a);
    if (st)
        return st;
    if (wf_word_arg(&a, "mode")->s) {
        *out = orthogonal(g, x, wf_word_arg(&a, "factor")->f,
                          !strcmp(wf_word_arg(&a, "mode")->s, "rows"));
        return weft_graph_status(g);
    }
    l1 = wf_word_arg(&a, "l1")->f;
    l2 = wf_word_arg(&a, "l2")->f;
    if (l1 != 0 || l2 == 0) {
        sum = weft_norm_l1(g, x, NULL);
        sum = weft_mul(g, sum, wf_const_like(g, l1, sum));
    }
    if (l2 != 0) {
        weft_val squares = weft_sum(g, weft_square(g, x), NULL);

        squares = weft_mul(g, squares, wf_const_like(g, l2, squares));
        sum = sum.id ? weft_add(g, sum, squares) : squares;
    }
    *out = wf_cast_to(g, sum, WEFT_F32);
    return weft_graph_status(g);
}
