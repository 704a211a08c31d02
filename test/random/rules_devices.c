/* rules_devices.c - what kernels of devices do besides the work of their op: normalizations with
 * what is around them. Drawn for devices alone, after the rest of the graph. */
#include "random/rules.h"

/* A variable or something else of the type. */
static weft_val parameter(struct gen *g, weft_dtype t, int rank, const int64_t *dim)
{
    weft_val v = draw_one_in(&g->d, 4) ? gen_leaf(g, t, rank, dim)
                                       : gen_variable(g, t, rank, dim, t != WEFT_F32);

    return v.id && gen_settle(g) ? v : WEFT_NIL;
}

/* The value in another float type, or as it is. */
static weft_val perhaps_cast(struct gen *g, weft_val v)
{
    char word[32];

    if (!draw_one_in(&g->d, 3))
        return v;
    return gen_op(g, "cast", 1, &v, "dtype=%s", draw_word(&g->d, "f32|bf16|f16", word));
}

static weft_val normalized(struct gen *g, const char *op, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    int n_in = strcmp(op, "rms_norm") ? 3 : 2;
    weft_val in[3] = {x, WEFT_NIL, WEFT_NIL};

    for (int i = 1; i < n_in; i++) {
        if (draw_one_in(&g->d, 8))
            continue;
        in[i] = parameter(g, WEFT_F32, 1, t.dim + t.rank - 1);
        if (in[i].id && t.dtype != WEFT_F32)
            in[i] = gen_op(g, "cast", 1, in + i, "dtype=%s", weft_dtype_name(t.dtype));
        if (!in[i].id)
            return WEFT_NIL;
    }
    return gen_op(g, op, n_in, in, "%s epsilon=0.01", *op == 'b' ? "" : "n_axes=1");
}

static weft_val either_order(struct gen *g, weft_val a, weft_val b)
{
    bool turn = draw_one_in(&g->d, 2);

    return gen_op(g, "add", 2, (weft_val[]){turn ? b : a, turn ? a : b}, "%s", "");
}

/* As residual networks have it: a normalization, perhaps an addition, a ReLU. */
static weft_val norm_and_relu(struct gen *g, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    weft_val skip = WEFT_NIL, y;

    if (draw_one_in(&g->d, 2)) {
        skip = draw_one_in(&g->d, 3) ? x : parameter(g, t.dtype, t.rank, t.dim);
        if (!skip.id)
            return skip;
    }
    y = normalized(g, "batch_norm", x);
    if (y.id && skip.id)
        y = either_order(g, y, skip);
    return y.id ? gen_op(g, "relu", 1, &y, "%s", "") : y;
}

/* As transformers have it: what a normalized branch computes is added to its input. */
static weft_val residual(struct gen *g, weft_val x)
{
    struct wf_type t = *gen_type(g, x);
    int64_t width = t.dim[t.rank - 1];
    char word[32];
    weft_val in[2], y = normalized(g, draw_word(&g->d, "layer_norm|layer_norm|rms_norm", word), x);

    y = y.id ? perhaps_cast(g, y) : y;
    if (y.id && draw_one_in(&g->d, 2)) {
        in[0] = y;
        in[1] = parameter(g, gen_type(g, y)->dtype, 2, (int64_t[]){width, width});
        y = in[1].id ? gen_op(g, "matmul", 2, in, "%s", "") : WEFT_NIL;
    } else if (y.id) {
        y = gen_op(g, draw_word(&g->d, "tanh|relu|square", word), 1, &y, "%s", "");
    }
    if (y.id && gen_type(g, y)->dtype != t.dtype)
        y = gen_op(g, "cast", 1, &y, "dtype=%s", weft_dtype_name(t.dtype));
    return y.id ? either_order(g, x, y) : y;
}

void draw_for_devices(struct gen *g)
{
    int64_t dim[4] = {draw_int(&g->d, 1, 5), draw_int(&g->d, 1, 4), draw_int(&g->d, 1, 3)};
    int rank = (int)draw_int(&g->d, 2, 4), n = (int)draw_int(&g->d, 1, 2), n_pool = g->n_pool;
    bool images = draw_one_in(&g->d, 2);
    weft_val x;

    if (g->smooth)
        return;
    dim[rank - 1] = 8 * draw_int(&g->d, 1, 3); /* kernels take eight values at once */
    x = parameter(g, WEFT_F32, rank, dim);
    x = x.id ? perhaps_cast(g, x) : x;
    for (int i = 0; i < n && x.id; i++)
        x = images ? norm_and_relu(g, x) : residual(g, x);
    if (!draw_one_in(&g->d, 4))
        g->n_pool = g->n_pool < n_pool ? g->n_pool : n_pool; /* nothing else reads what is inside */
    if (x.id)
        gen_take(g, x);
}
