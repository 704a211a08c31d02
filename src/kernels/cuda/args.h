/* args.h - what the host passes to device code: one struct for each kernel, at most 4 KB. Included
 * by both sides. */
#ifndef WF_CUDA_ARGS_H
#define WF_CUDA_ARGS_H

#include <stdint.h>

#include "op/optim.h"
#include "op/step.h"

enum {
    WFC_THREADS = 256, /* of a block, where a kernel does not say otherwise */
    WFC_RANK = 8,
    WFC_OPERANDS = 24,
    WFC_STEPS = 60,
    WFC_OUTS = 16,
    WFC_MANY = 128,     /* pointers in one launch */
    WFC_ATT_MAX = 2048, /* keys (and queries) of an attention */
    WFC_RNN_UNITS = 512,
    WFC_XENT_THREADS = 512,    /* of a row of many classes */
    WFC_XENT_KEPT = 54 * 1024, /* of them that shared memory holds, as halves, twice */
    WFC_LN_WIDTH = 1024,       /* of rows that a warp normalizes */
    WFC_LN_BACK_THREADS = WFC_LN_WIDTH / 8,
    WFC_LSTM_UNITS = 128 /* of the kernel that holds the weights of an LSTM */
};

/* The values of weft_dtype; table.c checks that they agree. */
enum { WFC_NONE, WFC_F32, WFC_F64, WFC_F16, WFC_BF16, WFC_I8, WFC_U8, WFC_I32, WFC_I64, WFC_BOOL };

/* Codes of the element-wise functions: the rows of op/ops_ew.def, and a copy. */
enum wfc_ew {
#define OP(name, ...)
#define OP_EW(n_param, name, ...) WFC_EW_##name,
#include "op/ops_ew.def"
#undef OP
    WFC_EW_copy,
    WFC_EW_sigmoid_xent,
    WFC_EW_N
};

/* Where faults in the data are noted. */
struct wfc_fault {
    uint32_t *words; /* [WF_TROUBLE_WORDS] */
    uint32_t instr;
};

/* Sizes and strides (in elements), innermost axis first. */
struct wfc_box {
    int32_t rank;
    uint32_t dim[WFC_RANK];
    int32_t stride[WFC_RANK];
};

/* ---- element-wise ---------------------------------------------------------------------------- */

enum wfc_kind { WFC_FULL, WFC_SCALAR, WFC_GENERAL };

struct wfc_operand {
    const void *data;
    int16_t dtype, kind;
    struct wfc_box box; /* GENERAL */
};

struct wfc_ew_step {
    int16_t code;
    uint8_t a, b, c, unused[3];
    float p, q;
};

struct wfc_prog {
    uint32_t count;
    int16_t n_operands, n_steps, n_outs, unused;
    struct wfc_fault fault;
    struct wfc_operand operand[WFC_OPERANDS];
    struct wfc_ew_step step[WFC_STEPS];
    struct {
        void *data;
        int16_t dtype, reg;
    } out[WFC_OUTS];
};

/* The same with double parameters, for f64 and integers: one step. */
struct wfc_one {
    uint32_t count;
    int16_t n_operands, code;
    double p, q;
    struct wfc_fault fault;
    struct wfc_operand operand[3];
    void *out;
    int32_t out_dtype;
};

/* Casts of f32 to halves as one kernel: block b belongs to the last cast whose `first` is at most
 * b. All addresses are multiples of 16. */
enum { WFC_CASTS = 120 };

struct wfc_casts {
    uint32_t n, each; /* casts; elements of a block, a multiple of 8 threads */
    struct {
        const float *from;
        void *to;
        uint32_t n, first;
        int32_t dtype;
    } one[WFC_CASTS];
};

struct wfc_add_n {
    uint32_t count;
    int32_t n, dtype, onto; /* onto: the result is added to as well */
    const void *in[WFC_MANY];
    void *out;
};

struct wfc_fill {
    int64_t count;
    void *out;
    int32_t dtype;
    double value;
};

/* ---- moves ----------------------------------------------------------------------------------- */

struct wfc_copy {
    struct wfc_fault fault; /* of updates: nothing is done after a fault; words NULL: always done */
    uint32_t count;
    int32_t size; /* bytes of an element */
    const void *from;
    void *to;
    int64_t from_at, to_at;
    struct wfc_box from_box, to_box; /* rank 0: in order */
};

/* to [n_cols][n_rows] = from [n_rows][n_cols] with its axes exchanged. */
struct wfc_turn {
    uint32_t n_rows, n_cols;
    int32_t size; /* of an element: 1, 2, 4 or 8 */
    int32_t half; /* the type of halves that become f32; 0: elements stay as they are */
    const void *from;
    void *to;
};

/* Parts of one axis: part k is [outer][n[k]][inner] of a whole [outer][total][inner]. */
struct wfc_parts {
    uint32_t outer, total, inner; /* inner in elements */
    int32_t size, n, to_whole;
    void *whole;
    struct {
        void *data;
        uint32_t at, n;
    } part[WFC_MANY];
};

struct wfc_pad {
    uint32_t count;
    int32_t dtype, rank, mode, size;
    uint32_t out_dim[WFC_RANK], in_dim[WFC_RANK]; /* outermost first */
    int32_t before[WFC_RANK], after[WFC_RANK];
    const void *in;
    void *out;
    double value;
};

/* ---- reductions ------------------------------------------------------------------------------ */

enum wfc_reduce {
    WFC_SUM,
    WFC_MEAN,
    WFC_MAX,
    WFC_MIN,
    WFC_PROD,
    WFC_NORM_L1,
    WFC_NORM_L2,
    WFC_SUM_SQ,
    WFC_LOGSUMEXP,
    WFC_ARGMAX,
    WFC_ARGMIN
};

/* Result i is over elements kept(i) + gone(k), k < n_each. A block has n_x results side by side and
 * NT / n_x threads for each; with more than one row of blocks, each leaves a partial result in
 * `part` [row][n_out]. */
struct wfc_reduce_args {
    uint32_t n_out, n_each, n_x, chunk;
    int32_t code, in_dtype, out_dtype, last; /* last: finish (divide, root, …) */
    double count;                            /* what a mean divides by */
    int64_t start_int;
    const void *in;
    void *out, *part;
    struct wfc_box kept, gone;
};

struct wfc_cumsum {
    uint32_t n_rows, n, stride;
    int32_t dtype, exclusive, reverse;
    const void *in;
    void *out;
};

struct wfc_prod_grad {
    uint32_t n_out, n_each;
    int32_t dtype;
    const void *dy, *x;
    void *out;
    struct wfc_box kept, gone;
};

/* ---- rows: softmax, losses, layer norm ------------------------------------------------------- */

enum wfc_rows {
    WFC_SOFTMAX,
    WFC_LOG_SOFTMAX,
    WFC_SOFTMAX_GRAD,
    WFC_LOG_SOFTMAX_GRAD,
    WFC_SPARSE_XENT,
    WFC_DENSE_XENT,
    WFC_MASKED_SOFTMAX
};

/* Row r is n elements, `stride` apart, from (r / stride) * n * stride + r % stride. `lanes` threads
 * share a row. */
struct wfc_rows_args {
    uint32_t n_rows, n, stride;
    int32_t lanes, code, x_dtype, y_dtype, b_dtype, loss_dtype;
    int32_t ignore, causal, n_q;
    int32_t kept; /* the row is kept in shared memory */
    int64_t ignored;
    double scale;
    const void *x, *b; /* b: labels, targets, or the second operand of a gradient */
    void *y, *loss;
    struct wfc_fault fault;
    struct wfc_box mask;
};

enum { WFC_SHORT_ROW = 16 }; /* of wfc_xent_small */

struct wfc_norm {
    /* element (o, s, g, i) of [n_outer][n_space][n_groups][n_in_group] */
    uint32_t n_outer, n_space, n_groups, n_in_group, n_channels;
    int32_t lanes, centered, want_var, dtype, param_dtype, stat_dtype;
    double epsilon;
    const void *x, *dy, *gamma, *beta, *mean_in, *spread_in;
    void *y, *mean, *spread;
    /* gradients of the parameters: blocks of columns, and chunks of rows */
    uint32_t n_rows, chunk, n_chunks;
    void *dgamma, *dbeta, *part;
};

/* Batch normalization of x [n_rows][channels], channels a multiple of 8: dev/wide.inl. */
struct wfc_bn {
    uint32_t n_rows, channels, n_chunks; /* n_chunks: blocks that share the rows */
    int32_t cols, dtype, param_dtype;
    double epsilon;
    int32_t relu; /* the result is ReLU(normalized + skip), the gradient that of ReLU(normalized) */
    const void *x, *dy, *gamma, *beta; /* dy: of the gradient */
    const void *skip;                  /* NULL: none */
    float *mean, *var, *part, *coef;
    void *y, *dgamma, *dbeta;
};

/* Sums (or means) of the columns of x [n_rows][n_cols], 8 columns a thread. */
struct wfc_cols {
    uint32_t n_rows, n_cols, n_chunks; /* n_chunks: blocks that share the rows */
    int32_t cols, dtype, y_dtype, mean;
    const void *x;
    float *part; /* [n_chunks][n_cols] */
    void *y;
};

/* Layer and RMS normalization of rows of at most WFC_LN_WIDTH values, a multiple of 8. */
struct wfc_ln {
    uint32_t n_rows, width, chunk, n_chunks;
    int32_t centered, dtype, param_dtype;
    int32_t y_dtype, dy_dtype; /* of the result; of the gradient that comes in */
    int32_t round_dtype;
    double epsilon;
    const float *other; /* is added to dx; NULL: nothing */
    void *rounded;      /* the sum in another type; NULL: not wanted */
    const void *x, *dy, *gamma, *beta;
    float *mean, *rate, *part;
    void *y, *dgamma, *dbeta;
};

/* ---- products -------------------------------------------------------------------------------- */

struct wfc_gemm {
    uint32_t batch, m, n, k;
    int32_t ta, tb, a_dtype, b_dtype, y_dtype;
    const void *a, *b;
    void *y;
    struct wfc_box a_batch, b_batch; /* offsets in matrices */
};

/* Weight gradients with few columns. The shared memory is 32 KB. */
enum { WFC_NARROW = 16, WFC_NARROW_M = 8, WFC_NARROW_ROWS = 64 };

struct wfc_narrow {
    uint32_t m, n, k;
    const float *a, *b;
    float *y, *sums;
};

/* ---- random ---------------------------------------------------------------------------------- */

struct wfc_random {
    uint32_t count;
    int32_t kind, dtype;
    float p0, p1, below;
    uint32_t node;
    const struct wf_step_block *step;
    void *out;
};

struct wfc_dropout {
    uint32_t count, n_kept;
    int32_t dtype, rate_dtype, draw;
    float rate;
    uint32_t node;
    const struct wf_step_block *step;
    const void *x, *given_rate;
    void *y, *kept;
    struct wfc_fault fault;
    struct wfc_box kept_box; /* of an element of x */
};

/* ---- updates --------------------------------------------------------------------------------- */

/* The scalars of a step, filled on the host. Where the rate is an operand, they are those of rate
 * 1, and the kernel applies the rate. */
struct wfc_scalars {
    struct wf_optim_scalars k;
    float beta, two_l2; /* FTRL: l2 is two_l2 + beta / rate */
};

struct wfc_apply {
    uint32_t n;
    const struct wfc_scalars *own;
    const float *rate, *scale; /* operands; NULL: none */
    float *w;
    const float *g;
    float *slot[3];
    double *sums; /* LAMB: two for each block of 4096 */
    uint32_t n_blocks;
    /* looked-up rows */
    const void *ids;
    int32_t id_dtype;
    uint32_t n_ids, width, n_rows;
    struct wfc_fault fault;
};

/* Many updates as one kernel: block b belongs to the last update whose `first` is at most b. All
 * addresses are multiples of 16. */
enum { WFC_UPDATES = 50 };

struct wfc_update_one {
    const struct wfc_scalars *own;
    const float *rate, *scale;
    float *w;
    const float *g;
    float *slot[3];
    uint32_t n, first;
};

struct wfc_update {
    struct wfc_fault fault;
    uint32_t n, each; /* updates; elements of a block, a multiple of 4 threads */
    struct wfc_update_one one[WFC_UPDATES];
};

/* Looked-up rows of several tables. The ids become keys, id << 32 | position, sorted: by chunks of
 * WFC_SORTED, then all of a table if it has more. */
enum { WFC_SORTED = 2048, WFC_TABLES = 32 };

struct wfc_table {
    const struct wfc_scalars *own;
    const float *rate, *scale;
    float *w; /* or the sums */
    const float *g;
    float *slot[3];
    const void *ids;
    uint64_t *chunks, *keys; /* sorted by chunks; sorted. The same if there is one chunk */
    uint32_t n_ids, width, n_rows, instr;
    int32_t id_dtype, id_input;
};

struct wfc_tables {
    uint32_t *words;   /* of faults */
    uint32_t n, lanes; /* tables; threads that share a row */
    struct wfc_table one[WFC_TABLES];
};

/* Sums of rows with the same id into y, of any float type. */
struct wfc_sum_rows {
    uint32_t n_ids, width, lanes;
    int32_t dtype;
    const uint64_t *keys;
    const void *x;
    void *y;
};

struct wfc_assign {
    struct wfc_fault fault;
    uint32_t n;
    int32_t dtype, ema;
    double momentum;
    const void *var, *value;
    void *out;
};

/* Assignments of f32, a row of blocks (BY) for each. */
enum { WFC_ASSIGNS = 100 };

struct wfc_assigns {
    struct wfc_fault fault;
    int32_t ema;
    double momentum;
    struct {
        const float *var, *value;
        float *out;
        uint32_t n;
    } one[WFC_ASSIGNS];
};

struct wfc_sumsq {
    int32_t n, dtype;
    int64_t count[64];
    uint32_t first[65]; /* block number at which each tensor begins */
    const void *in[64];
    double *blocks;
};

struct wfc_finite {
    struct wfc_fault fault;
    uint32_t count;
    int32_t dtype;
    const void *x;
    void *y;
};

struct wfc_norm_end {
    uint32_t n_blocks;
    int32_t dtype, clip;
    double limit;
    const double *blocks;
    void *out;
};

struct wfc_penalty {
    uint32_t n;
    int32_t dtype;
    double l1, l2;
    const void *w;
    void *out;
};

/* ---- indices --------------------------------------------------------------------------------- */

struct wfc_gather {
    uint32_t batch, outer, n, k, inner;
    int32_t size, id_dtype;
    const void *x, *ids;
    void *y;
    struct wfc_fault fault;
};

/* Several tables of rows of the same width, the same number of ids for each. */
enum { WFC_LOOKUPS = 100 };

struct wfc_lookups {
    uint32_t *words; /* of faults */
    uint32_t n, k, inner;
    int32_t size, id_dtype;
    struct {
        const void *x, *ids;
        void *y;
        uint32_t n_rows, instr;
    } one[WFC_LOOKUPS];
};

/* ids [k][depth] into sizes dim. */
struct wfc_gather_nd {
    uint32_t n, width, dim[WFC_RANK];
    int32_t depth, size, id_dtype;
    const void *x, *ids;
    void *y;
    struct wfc_fault fault;
};

/* y[place(k)][i] = the sum of x[j][i] over all j with the same place, for each k that is the first
 * of its place; for batch * outer tables. */
struct wfc_scatter {
    uint32_t batch, outer, n, k, inner; /* as for gather: y has n rows, x has k */
    uint32_t dim[WFC_RANK];
    int32_t depth; /* of an index vector; 1: plain ids */
    int32_t dtype, id_dtype, id_input;
    const void *x, *ids;
    void *y;
    struct wfc_fault fault;
};

struct wfc_take {
    uint32_t count, n, k, inner;
    int32_t size, dtype, id_dtype;
    const void *x, *ids;
    void *y;
    struct wfc_fault fault;
};

struct wfc_one_hot {
    uint32_t count, depth, inner;
    int32_t dtype, id_dtype, anywhere;
    double on, off;
    const void *ids;
    void *y;
    struct wfc_fault fault;
};

struct wfc_sort {
    uint32_t n_lines, n, k, inner;
    int32_t dtype, descending;
    const void *x;
    void *y;
    int32_t *places;
};

struct wfc_bag {
    uint32_t n_bags, width, n, n_rows;
    int32_t dtype, weight_dtype, id_dtype, offset_dtype, combiner, what, offsets_input;
    const void *x, *ids, *offsets, *weights;
    void *y;
    struct wfc_fault fault;
};

/* ---- windows --------------------------------------------------------------------------------- */

struct wfc_window {
    int32_t in[3], out[3], k[3], stride[3], dilation[3], lo[3];
};

enum wfc_pool_code {
    WFC_MAX_POOL,
    WFC_MAX_POOL_GRAD,
    WFC_MAX_POOL_PICK,
    WFC_AVG_POOL,
    WFC_AVG_POOL_GRAD
};

struct wfc_pool {
    struct wfc_window w;
    uint32_t batch, n_in, n_out, n_k, channels;
    uint32_t n_down, n_across; /* squares of 2 x 2 of the input with its padding */
    int32_t code, dtype, arg_dtype;
    const void *x; /* or dy */
    void *y;       /* or dx */
    void *arg;
    struct wfc_fault fault;
};

struct wfc_resize {
    uint32_t batch, in[3], out[3], channels;
    int32_t bilinear, dtype;
    const void *x;
    void *y;
};

enum wfc_conv_code { WFC_CONV, WFC_CONV_INPUT, WFC_CONV_FILTER };

struct wfc_conv {
    struct wfc_window w;
    uint32_t batch, n_in, n_out, n_k, c_in, c_out, groups;
    int32_t code, x_dtype, y_dtype, size;
    const void *x, *f;
    void *y;
};

/* What the windows of halves read, [n_rows][width]: width is that of a window, up to a multiple of
 * 8, with zeros after it. */
struct wfc_im2col8 {
    struct wfc_window w;
    uint32_t n_rows, n_out, c_in, width;
    int32_t left, pitch; /* of wfc_im2col_line: halves before a line, and from line to line */
    const uint16_t *x;
    uint16_t *y;
};
enum { WFC_LINE_HALVES = 8192 }; /* the lines of a block */

/* ---- attention ------------------------------------------------------------------------------- */

struct wfc_att_view {
    void *data;
    int64_t at, sb, sh, st;
};

struct wfc_att {
    uint32_t n_b, n_h, n_q, n_k, d, dv;
    int32_t dtype, lse_dtype, causal, mask_dtype;
    double scale;
    const void *mask;
    uint32_t mask_step[4];
    struct wfc_att_view q, k, v, y, dy, dq, dk, dv_out;
    void *lse;
    int32_t wide; /* of tiles of halves: all rows are at multiples of 16 bytes */
    float *delta; /* dy y of each query, between the kernels of the gradient */
};

/* ---- recurrent nets -------------------------------------------------------------------------- */

struct wfc_rnn {
    uint32_t n_batch, n_time, n_in, n_units, n_cols;
    int32_t kind, reverse, reset_after, relu, dtype, steps_dtype, n_saved, n_da;
    const void *x, *w, *r, *bias, *h0, *steps, *c0;
    int32_t steps_rank;
    void *y, *h, *c, *gates, *cells;
    /* gradients */
    const void *dy, *dh, *dc;
    void *da;       /* f32 or f64 [batch][time][n_da * units] */
    void *states;   /* the same [batch][time][units] */
    const void *xw; /* x w in f32, or NULL */
    const void *rt; /* r with its axes exchanged */
    void *dx, *dw, *dr, *dbias, *dh0, *dc0;
    struct wfc_fault fault;
};

#endif
