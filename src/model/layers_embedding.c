/* layers_embedding.c - Embedding and Masking: where masks begin. */
#include "model/core.h"
#include "model/layers.h"

weft_status wf_layer_embedding(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), table;
    int64_t dim[2] = {weft_lc_int(c, "input_dim"), weft_lc_int(c, "output_dim")};

    if (dim[0] < 1 || dim[1] < 1)
        return weft_lc_fail(c, WEFT_EINVAL,
                            "input_dim and output_dim must be positive, got %lld and "
                            "%lld",
                            (long long)dim[0], (long long)dim[1]);
    if (!wf_is_int(wf_val_type_of(g, x)->dtype))
        x = weft_cast(g, x, WEFT_I32);
    table = weft_lc_weight(
        c, "embeddings", 2, dim,
        WEFT_OPTS(weft_weight_opts, .initializer = weft_lc_text(c, "embeddings_initializer"),
                  .regularizer = weft_lc_text(c, "embeddings_regularizer"),
                  .constraint = weft_lc_text(c, "embeddings_constraint"),
                  .dense = !weft_lc_bool(c, "sparse"), .evict = weft_lc_text(c, "evict")));
    weft_lc_out(c, 0, weft_embedding(g, table, x));
    if (weft_lc_bool(c, "mask_zero"))
        weft_lc_out_mask(c, 0, weft_ne(g, x, wf_const_like(g, 0, x)));
    return WEFT_OK;
}

weft_status wf_layer_masking(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), used;

    if (weft_lc_rank(c, x) < 3)
        return weft_lc_fail(c, WEFT_ESHAPE,
                            "needs an input of rank 3 or more, [batch, time, features]");
    used = weft_ne(g, x, wf_const_like(g, weft_lc_float(c, "mask_value"), x));
    used = weft_any(g, used, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
    weft_lc_out(c, 0, weft_where(g, weft_expand_dims(g, used, -1), x, wf_const_like(g, 0, x)));
    weft_lc_out_mask(c, 0, used);
    return WEFT_OK;
}
