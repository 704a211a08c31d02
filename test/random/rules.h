/* rules.h - how each family of ops is drawn. A rule builds one node (and missing operands) and
 * returns whether it could. */
#ifndef RANDOM_RULES_H
#define RANDOM_RULES_H

#include "random/random.h"

typedef bool rule_fn(struct gen *g, const char *op);

/* rules_ew.c */
rule_fn draw_unary, draw_unary_float, draw_clip, draw_alpha, draw_prelu, draw_pair, draw_binary,
    draw_positive, draw_compare, draw_logical, draw_where, draw_cast, draw_add_n, draw_pow,
    draw_div, draw_mod, draw_pair_attrs;
/* rules_shape.c */
rule_fn draw_view, draw_reshape, draw_transpose, draw_concat, draw_concat_part, draw_split,
    draw_slice, draw_strided, draw_pad, draw_tile, draw_axes, draw_broadcast, draw_like,
    draw_split_last, draw_flatten, draw_expand, draw_full;
/* rules_reduce.c */
rule_fn draw_reduce, draw_reduce_bool, draw_arg, draw_cumsum, draw_segment_sum, draw_size_of,
    draw_softmax, draw_norm, draw_xent, draw_global_norm, draw_masked_softmax, draw_reduce_to_like;
/* rules_product.c */
rule_fn draw_matmul, draw_dense, draw_conv, draw_conv_transpose, draw_pool, draw_pool_pick,
    draw_resize, draw_attention, draw_attention_packed, draw_rnn;
/* rules_index.c */
rule_fn draw_gather, draw_gather_nd, draw_scatter_nd, draw_scatter, draw_take_along, draw_one_hot,
    draw_sorted, draw_embedding, draw_bag, draw_bag_part, draw_offsets;
/* rules_misc.c */
rule_fn draw_random, draw_dropout, draw_look, draw_assign, draw_derivative;

/* rules_passes.c */
rule_fn draw_splat, draw_chain, draw_narrowed, draw_alike, draw_residual, draw_column_sums,
    draw_random_twins, draw_scaled_backprop, draw_exchange, draw_shown, draw_many_constants,
    draw_neutral, draw_einsum, draw_scan, draw_user;

/* rules_updates.c */
rule_fn draw_awaited, draw_twice, draw_trained_product;

/* Some axes of a rank, each at most once, some counted from the end: "[0,-1]". */
const char *rule_axes(struct gen *g, int rank, char buf[160]);
const char *rule_list(int n, const int64_t *x, char buf[160]);
weft_val rule_scalar(struct gen *g, weft_dtype t, double v);
/* |x| + 1/2, so that logarithms and quotients are defined. */
weft_val rule_positive(struct gen *g, weft_val x);

#endif
