/* matmul_ops.c - the op table test of matrix products: transposes, batches that share an operand,
 * sizes that are odd, smaller than a register block, empty, and long enough that K is cut. */
#include "ops/harness.h"

/* clang-format off */
static const struct op_case cases[] = {
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 4, 5)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 1, 1), F32(-1, 1, 1, 1)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 15, 7), F32(-1, 1, 7, 17)}},
    {.op = "matmul", .attrs = "trans_a=true", .n_in = 2, .in = {F32(-1, 1, 7, 15), F32(-1, 1, 7, 17)}},
    {.op = "matmul", .attrs = "trans_b=true", .n_in = 2, .in = {F32(-1, 1, 15, 7), F32(-1, 1, 17, 7)}},
    {.op = "matmul", .attrs = "trans_a=true trans_b=true", .n_in = 2, .in = {F32(-1, 1, 7, 3), F32(-1, 1, 5, 7)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 3, 2, 4, 5), F32(-1, 1, 3, 2, 5, 3)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 3, 4, 5), F32(-1, 1, 5, 2)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 4, 5), F32(-1, 1, 3, 5, 2)}},
    {.op = "matmul", .attrs = "trans_b=true", .n_in = 2, .in = {F32(-1, 1, 2, 4, 5), F32(-1, 1, 2, 3, 5)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 0, 4), F32(-1, 1, 4, 3)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 3, 0), F32(-1, 1, 0, 4)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 0, 3, 4), F32(-1, 1, 0, 4, 2)}},
    {.op = "matmul", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 33, 70), F32(-1, 1, 70, 129)}},
    {.op = "matmul", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 29, 301), F32(-1, 1, 301, 65)}},
    {.op = "matmul", .attrs = "trans_a=true", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 301, 31), F32(-1, 1, 301, 33)}},
    {.op = "matmul", .attrs = "trans_b=true", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 31, 301), F32(-1, 1, 33, 301)}},
    {.op = "matmul", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 64, 1027), F32(-1, 1, 1027, 10)}},
    {.op = "matmul", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 1, 257), F32(-1, 1, 257, 300)}},
    {.op = "matmul", .attrs = "trans_a=true", .flags = OP_NO_GRAD, .n_in = 2, .in = {F32(-1, 1, 3, 128, 40), F32(-1, 1, 3, 128, 24)}},
    {.op = "matmul", .n_in = 2, .in = {F32(-1, 1, 3, 4), F32(-1, 1, 5, 2)}, .fails = WEFT_ESHAPE, .text = "inner sizes"},
};
/* clang-format on */

int main(int argc, char **argv)
{
    return op_main(argc, argv, "matmul", cases, OP_COUNT(cases));
}
