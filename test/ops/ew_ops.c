/* ew_ops.c - element-wise ops: one row per op and shape. */
#include "ops/harness.h"

static const struct op_case cases[] = {
    {.op = "add", .n_in = 2, .in = {F32(-1, 1, 3, 5), F32(-2, 2, 5)}},
    {.op = "mul", .n_in = 2, .in = {F32(-1, 1, 3, 1, 5), F32(-2, 2, 4, 1)}},
    {.op = "add", .n_in = 2, .in = {F32(-1, 1, 3), F32(-1, 1, 4)}, .fails = WEFT_ESHAPE, .text = "broadcast"},
    {.op = "relu", .n_in = 1, .in = {SMOOTH(-2, 2, 7, 9)}},
    {.op = "relu", .n_in = 1, .in = {DATA(WEFT_F32, ((double[]){-1, 2}), 2)}, .want = (double[]){0, 2}, .n_want = 2},
    {.op = "relu", .n_in = 1, .in = {F32(-1, 1)}},
    {.op = "mul", .n_in = 2, .in = {F32(-1, 1, 0, 5), F32(-2, 2, 5)}},
};

int main(int argc, char **argv)
{
    return op_main(argc, argv, "element-wise ops", cases, OP_COUNT(cases));
}
