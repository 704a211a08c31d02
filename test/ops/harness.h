/* harness.h - the op table test: one row says how to build an op and what to feed it; the harness
 * does the rest.
 *
 * A test file is a table and a main:
 *
 *     #include "ops/harness.h"
 *     static const struct op_case cases[] = {
 *         {.op = "mul", .n_in = 2, .in = {F32(-1, 1, 3, 5), F32(-2, 2, 5)}},
 *         {.op = "sum", .attrs = "axes=[0] keepdims=true", .n_in = 1, .in = {F32(-1, 1, 1000, 3)}},
 *         {.op = "gather", .n_in = 2, .in = {F32(-1, 1, 7, 3), IDS(I64, 0, 6, 4)}},
 *         {.op = "add", .n_in = 2, .in = {F32(-1, 1, 3), F32(-1, 1, 4)}, .fails = WEFT_ESHAPE,
 *          .text = "broadcast"},
 *         {.op = "relu", .n_in = 1, .in = {DATA(WEFT_F32, ((double[]){-1, 2}), 2)},
 *          .want = (double[]){0, 2}, .n_want = 2},
 *     };
 *     int main(int argc, char **argv)
 *     {
 *         return op_main(argc, argv, "my ops", cases, OP_COUNT(cases));
 *     }
 *
 * An argument of the program runs only the rows whose line contains it; "--bench [WORD]" times them
 * instead, one JSON line for each SIMD level with 1 and 2 threads; "--save FOLDER" writes their
 * graphs; "--device NAME [WORD]" compares values and gradients on a device ("gpu:0", or "emulated":
 * the kernels for GPUs run by the host) with the reference, in f32, f64, f16 and bf16.
 * What is checked for each row:
 *   1. the shape rule, with the given sizes and with every size symbolic; the reference kernel
 *      runs; inputs are not changed; nothing is written beyond the outputs; running in place gives
 *      the same bits if the row allows it; the results are .want, if it is given (first output)
 *   2. every SIMD level of this CPU against the reference (.tol, relative to 1 + |value|), values
 *      and gradients
 *   3. 1, 2, 3 and 7 threads: the same bits
 *   4. gradients of a weighted sum of the float outputs against central differences in f64, with
 *      reference kernels, on symbolic sizes; static sizes agree
 *   5. the same for second gradients
 *   6. the executor, with all passes and with none: the interpreter's outputs and gradients
 *   7. f64, f16 and bf16 in place of f32, against f64 on the same (rounded) inputs; in bf16 also
 *      at the level that multiplies it, where 1, 2, 3 and 7 threads give the same bits
 * A row with .fails checks that building or running fails with this status and that the text
 * contains .text. */
#ifndef OPS_HARNESS_H
#define OPS_HARNESS_H

#include "graph/graph.h"

#define OP_MAX_IN 12
#define OP_COUNT(cases) ((int)(sizeof(cases) / sizeof((cases)[0])))

enum op_fill {
    OP_UNIFORM,   /* in [lo, hi); integers inclusive of hi; bools 0 or 1 */
    OP_DISTINCT,  /* evenly spaced between lo and hi, shuffled: no ties (max, sort, pooling) */
    OP_SMOOTH,    /* uniform, but not near a multiple of 1/2: away from the corners of relu, round,
                   * … */
    OP_SORTED,    /* uniform, then ascending (segment ids, lengths) */
    OP_ROWS_SUM1, /* positive, each row (last axis) sums to 1 */
    OP_GIVEN      /* .data */
};

enum op_flags {
    OP_NO_GRAD = 1,       /* no gradient is expected to work: steps 4 and 5 are left out */
    OP_NO_GRAD2 = 2,      /* step 5 is left out */
    OP_F32_ONLY = 4,      /* step 7 is left out */
    OP_NO_HALF = 8,       /* step 7 with f64 only (values overflow f16, ties appear by rounding) */
    OP_STATIC = 16,       /* needs known sizes: symbolic ones are left out */
    OP_NO_FAST_GRAD = 32, /* gradients are not compared in f32 (ill-conditioned) */
    OP_EXACT = 64         /* SIMD levels give the bits of the reference (moves, integers, random) */
};

struct op_input {
    weft_dtype dtype; /* WEFT_NONE: an absent optional operand */
    int rank;
    int64_t dim[WEFT_MAX_RANK];
    double lo, hi;
    enum op_fill fill;
    const double *data; /* OP_GIVEN */
};

struct op_case {
    const char *op,
        *attrs; /* attributes as text: "axis=-1 keepdims=true perm=[1,0] dtype=f32 mode=same" */
    /* or a function that builds it (a builder of weft/ops.h, a composition); returns the first
     * output */
    weft_val (*build)(weft_graph *g, const weft_val *in);
    const char *name; /* with .build: what the row is called */
    int n_in;
    struct op_input in[OP_MAX_IN];
    unsigned no_grad; /* bit i: no gradient for input i is expected */
    unsigned flags;
    double tol;         /* 0: 1e-5 */
    double tol_grad;    /* finite differences; 0: 1e-6 */
    double tol_half;    /* factor on the tolerance of step 7; 0: 1 */
    const char *impl;   /* the fast kernel that f32 calls of the op must choose; NULL: any, the
                         * reference too */
    const double *want; /* the values of the first output, from an independent source */
    int64_t n_want;
    double tol_want; /* 0: 1e-6 */
    weft_status fails;
    const char *text;
};

#define OP_RANK(...) ((int)(sizeof((int64_t[]){0, __VA_ARGS__}) / sizeof(int64_t)) - 1)
#define OP_IN(dtype_, fill_, lo_, hi_, ...)                                                        \
    {                                                                                              \
        .dtype = dtype_, .rank = OP_RANK(__VA_ARGS__), .dim = {__VA_ARGS__}, .lo = lo_, .hi = hi_, \
        .fill = fill_                                                                              \
    }
/* Sizes follow the range; none makes a scalar. */
#define F32(lo, hi, ...) OP_IN(WEFT_F32, OP_UNIFORM, lo, hi, __VA_ARGS__)
#define SMOOTH(lo, hi, ...) OP_IN(WEFT_F32, OP_SMOOTH, lo, hi, __VA_ARGS__)
#define DISTINCT(lo, hi, ...) OP_IN(WEFT_F32, OP_DISTINCT, lo, hi, __VA_ARGS__)
#define ROWS_SUM1(...) OP_IN(WEFT_F32, OP_ROWS_SUM1, 0.05, 1, __VA_ARGS__)
#define IDS(dtype, lo, hi, ...) OP_IN(WEFT_##dtype, OP_UNIFORM, lo, hi, __VA_ARGS__)
#define SORTED(dtype, lo, hi, ...) OP_IN(WEFT_##dtype, OP_SORTED, lo, hi, __VA_ARGS__)
#define BOOLS(...) OP_IN(WEFT_BOOL, OP_UNIFORM, 0, 1, __VA_ARGS__)
#define ABSENT             \
    {                      \
        .dtype = WEFT_NONE \
    }
#define DATA(dtype_, data_, ...)                                                               \
    {                                                                                          \
        .dtype = dtype_, .rank = OP_RANK(__VA_ARGS__), .dim = {__VA_ARGS__}, .fill = OP_GIVEN, \
        .data = data_                                                                          \
    }

/* Run the rows, each as one test of cmocka. Returns the number of failures. */
int op_main(int argc, char **argv, const char *group, const struct op_case *cases, int n);

/* ---- the interpreter: an independent way to run a graph -------------------------------------- */

/* Every value of the run, indexed by value id; data is NULL for what was not needed. */
struct op_run {
    weft_ctx *ctx;
    struct wf_tensor *val;
    int64_t n_values;
};

struct op_run_opts {
    bool fast;     /* the kernels of the context's SIMD level instead of the reference */
    bool in_place; /* the first output in the memory of (a copy of) the first input where the row
                    * allows it */
    struct wf_rng_key rng;     /* .node is set by the run */
    const char *op, *impl;     /* f32 calls of this op must choose this kernel; NULL: any */
    struct device_run *device; /* a device with memory of its own, or NULL; lib/row.h */
};

/* Run the nodes that `fetch` depends on, node by node. feeds[i] is the value of placeholder (or
 * variable) feed[i]. The graph may belong to another context. Freed with op_run_free, also after an
 * error. */
weft_status op_run(weft_ctx *ctx, const weft_graph *g, int n_feed, const weft_val *feed,
                   const struct wf_tensor *feeds, int n_fetch, const weft_val *fetch,
                   const struct op_run_opts *opts, struct op_run *out);
void op_run_free(struct op_run *run);

/* Build an op by name with attributes as text. */
weft_val op_build_text(weft_graph *g, const char *op, int n_in, const weft_val *in,
                       const char *attrs);

#endif
