/* einsum_ops.c - the op table test of einsum: gradients, second gradients, levels, threads. */
#include "ops/harness.h"
#include "weft/einsum.h"

#define EINSUM(name, equation)                              \
    static weft_val name(weft_graph *g, const weft_val *in) \
    {                                                       \
        return weft_einsum(g, equation, in[0], in[1]);      \
    }

EINSUM(products, "bij,bjk->bik")
EINSUM(scores, "bqhd,bkhd->bhqk")
EINSUM(heads, "btm,mhd->bthd")
EINSUM(heads_back, "bthd,hdm->btm")
EINSUM(bilinear, "bi,bj->bij")
EINSUM(dots, "bi,bi->b")
EINSUM(dense, "...i,ij->...j")

static weft_val trace_of_sums(weft_graph *g, const weft_val *in)
{
    return weft_einsum(g, "abc->ca", in[0], WEFT_NIL);
}

/* clang-format off */
static const struct op_case cases[] = {
    {.name = "einsum bij,bjk->bik", .build = products, .n_in = 2, .in = {F32(-1, 1, 2, 3, 4), F32(-1, 1, 2, 4, 3)}},
    {.name = "einsum bqhd,bkhd->bhqk", .build = scores, .n_in = 2, .in = {F32(-1, 1, 2, 3, 2, 4), F32(-1, 1, 2, 3, 2, 4)}},
    {.name = "einsum btm,mhd->bthd", .build = heads, .n_in = 2, .in = {F32(-1, 1, 2, 3, 4), F32(-1, 1, 4, 2, 3)}},
    {.name = "einsum bthd,hdm->btm", .build = heads_back, .n_in = 2, .in = {F32(-1, 1, 2, 3, 2, 3), F32(-1, 1, 2, 3, 4)}},
    {.name = "einsum bi,bj->bij", .build = bilinear, .n_in = 2, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 3, 2)}},
    {.name = "einsum bi,bi->b", .build = dots, .n_in = 2, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 3, 4)}},
    {.name = "einsum ...i,ij->...j", .build = dense, .n_in = 2, .in = {F32(-1, 1, 2, 2, 3), F32(-1, 1, 3, 4)}},
    {.name = "einsum abc->ca", .build = trace_of_sums, .n_in = 1, .in = {F32(-1, 1, 2, 3, 4)}},
    {.name = "einsum of an empty batch", .build = products, .n_in = 2, .in = {F32(-1, 1, 0, 3, 4), F32(-1, 1, 0, 4, 3)}},
    {.name = "einsum, sizes differ", .build = products, .n_in = 2, .in = {F32(-1, 1, 2, 3, 4), F32(-1, 1, 2, 5, 3)}, .fails = WEFT_ESHAPE, .text = "'j' has size 4"},
};
/* clang-format on */

int main(int argc, char **argv)
{
    return op_main(argc, argv, "einsum", cases, OP_COUNT(cases));
}
