/* op.h - the door of the op layer: the table of ops, the only contract between graph and kernels.
 *
 * ops.def has one row per op:
 *   OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc)
 * The op layer turns the row's `infer` into a shape rule, the graph layer its `grad` into a
 * gradient rule (grad.c) and its `cast` into what autocast does (autocast.c), the kernels layer its
 * `ref` into the reference kernel (choose.c), the executor its `flop` into a count of operations
 * (flop.c). A row without one of them does not compile. */
#ifndef WF_OP_H
#define WF_OP_H

#include "base/random.h"
#include "op/step.h"
#include "tensor/attr.h"
#include "tensor/tensor.h"

#define WF_MAX_IN 512     /* inputs of a node that takes any number (concat, add_n) */
#define WF_MAX_MANY 65536 /* of global_norm, which takes one for each variable */
#define WF_MAX_OUT 64

/* ---- rows ------------------------------------------------------------------------------------ */

enum wf_op_flags {
    WF_EW = 1,     /* element-wise: out[i] depends on in[..][i] after broadcasting; may be fused */
    WF_RANDOM = 2, /* draws random numbers: never folded, never merged with an equal node */
    WF_EFFECT = 4, /* changes something (variable, screen): never removed, never merged */
    WF_COMMUTES = 8,   /* binary, operands may be swapped */
    WF_VIEW = 16,      /* the output has the input's bytes in the input's order (reshape) */
    WF_INPLACE = 32,   /* the first output may overwrite the first input of the same type */
    WF_STATE_IN0 = 64, /* input 0 is a variable that is updated */
    WF_LEAF = 128,     /* placeholder, variable, constant: no kernel */
    WF_PLANNER = 256,  /* created only by passes, which keep its attributes valid: never read or
                        * built by name */
    WF_FAILS = 1024, /* its kernel may refuse the data of a step (ids, lengths, …), before it writes
                      * to a variable; kernels of all other rows cannot fail */
    WF_SPREAD = 4096,    /* element-wise, and its shape rule broadcasts every operand */
    WF_OPTIMIZER = 8192, /* a step of an optimizer: the variable's slots follow the operands */
};

/* What autocast does with the operands of an op. */
enum wf_cast {
    WF_CAST_FOLLOW, /* mixed operands become f32, others stay */
    WF_CAST_HALF,   /* f32 operands become halves */
    WF_CAST_FULL,   /* halves become f32 */
    WF_CAST_LEAVE   /* the op says what types it takes: never touched */
};

struct wf_infer; /* below */
typedef weft_status wf_infer_fn(struct wf_infer *);

struct wf_op {
    const char *name;
    int n_in_min, n_in_max; /* -1: any number */
    int n_out;              /* -1: given by the attribute "n" */
    const char *attrs;
    wf_infer_fn *infer;
    enum wf_cast cast;
    unsigned flags;
    const char *doc;
    int id; /* position in the table; user ops follow the built-in ones */
    int n_attrs;
    const struct wf_attr_spec *attr; /* parsed from attrs, in the registry's arena */
    const struct weft_user_op *user; /* NULL for built-in ops */
};

/* The context's table: built-in rows, then the user's. Created on first use by wf_ops_ensure. */
weft_status wf_ops_ensure(weft_ctx *ctx);
int wf_op_count(const weft_ctx *ctx);
const struct wf_op *wf_op_row(const weft_ctx *ctx, int id);
/* The row with this name; NULL if there is none. */
const struct wf_op *wf_op_find(const weft_ctx *ctx, const char *name);
/* The id of a built-in op, as WF_OP_matmul. */
enum wf_op_id {
#define OP(name, ...) WF_OP_##name,
#include "op/ops.def"
#undef OP
    WF_N_OPS
};

/* Attribute by name; it must exist in the row (a missing one is a bug and reads as zero). */
const struct wf_attr *wf_attr(const struct wf_op *op, const struct wf_attr *values,
                              const char *name);
int64_t wf_attr_int(const struct wf_op *op, const struct wf_attr *values, const char *name);
double wf_attr_float(const struct wf_op *op, const struct wf_attr *values, const char *name);
const char *wf_attr_str(const struct wf_op *op, const struct wf_attr *values, const char *name);

/* ---- shape rules ----------------------------------------------------------------------------- */

/* A rule reads in[] (an absent optional input has dtype WEFT_NONE) and attributes, and fills out[].
 * Sizes may be symbolic: a rule must work with them (the result of arithmetic on a symbol is
 * WEFT_ANY) and must check everything it can. It runs again with all sizes known when a plan is
 * made. */
struct wf_infer {
    const struct wf_op *op;
    const struct wf_attr *attr;
    int n_in, n_out;
    const struct wf_type *in;
    struct wf_type *out;
};
static inline int64_t wf_in_int(const struct wf_infer *r, const char *name)
{
    return wf_attr_int(r->op, r->attr, name);
}
static inline double wf_in_float(const struct wf_infer *r, const char *name)
{
    return wf_attr_float(r->op, r->attr, name);
}
static inline const struct wf_attr *wf_in_attr(const struct wf_infer *r, const char *name)
{
    return wf_attr(r->op, r->attr, name);
}

/* Helpers for rules. All errors include the op's name and the shapes. */
weft_status wf_infer_err(const struct wf_infer *r, weft_status st, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
/* Counts the axis from the end if negative; ERANGE if it is not an axis of `rank`. */
weft_status wf_axis(const struct wf_infer *r, int64_t axis, int rank, int *out);
/* The common size of two broadcast sizes; ESHAPE if there is none. */
weft_status wf_broadcast(const struct wf_infer *r, const struct wf_type *a, const struct wf_type *b,
                         struct wf_type *out);
/* Two sizes that must be equal: the known one, or the symbol. */
weft_status wf_same_dim(const struct wf_infer *r, int64_t a, int64_t b, const char *what,
                        int64_t *out);

/* ---- kernel calls ---------------------------------------------------------------------------- */

/* What a kernel gets. Inputs and outputs are contiguous; an absent optional input has dtype NONE
 * and NULL data. An output never overlaps an input unless the row is WF_INPLACE or WF_VIEW and both
 * are the same memory. */
struct wf_call {
    weft_ctx *ctx;
    struct wf_pool *pool;
    const struct wf_op *op;
    const struct wf_attr *attr;
    int n_in, n_out;
    const struct wf_tensor *in;
    struct wf_tensor *out;
    struct wf_rng_key rng;
    int64_t iteration; /* of updates: 1 in the first step */
    const void *state; /* what the kernel's plan function created */
    void *scratch; /* 64-byte aligned, as many bytes as the plan asked for; contents undefined */
    /* Of devices with memory of their own (weft/sys/device.h), otherwise NULL. There all tensors
     * and scratch are in device memory, `rng` and `iteration` are not valid when the work is done,
     * and step, own and trouble are device memory, too. */
    void *device, *stream;
    const struct wf_step_block *step;
    const void *own;   /* the step_bytes of wf_kplan, filled for each run */
    uint32_t *trouble; /* [WF_TROUBLE_WORDS] */
    uint32_t instr;    /* for WF_TROUBLE_INSTR */
    bool overlap;      /* the kernel may be launched while the previous one still runs */
};
typedef weft_status wf_kernel_fn(const struct wf_call *);

/* Runs the user's function of a registered op. */
weft_status wf_user_op_run(const struct wf_call *);

static inline int64_t wf_call_int(const struct wf_call *c, const char *name)
{
    return wf_attr_int(c->op, c->attr, name);
}
static inline double wf_call_float(const struct wf_call *c, const char *name)
{
    return wf_attr_float(c->op, c->attr, name);
}
static inline const struct wf_attr *wf_call_attr(const struct wf_call *c, const char *name)
{
    return wf_attr(c->op, c->attr, name);
}

#endif
