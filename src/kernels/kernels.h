/* kernels.h - the door of the kernels layer: how an op is computed.
 *
 * Every op has a reference kernel (ref/, the plain definition, any dtype, one thread) and most have
 * a fast one for f32 (cpu/). The choice is a pure function of op, types, attributes and SIMD level;
 * nothing is timed. */
#ifndef WF_KERNELS_H
#define WF_KERNELS_H

#include "op/op.h"

/* What a plan for a device leaves out, to measure what it gains (weft_fn_opts.without). */
enum wf_without {
    WF_WITHOUT_MIXED = 1,      /* "mixed": casts as part of their neighbors */
    WF_WITHOUT_NORMS = 2,      /* "norms": batch normalization with addition and ReLU */
    WF_WITHOUT_EPILOGUES = 4,  /* "epilogues": GELU and its gradient in the product's kernel */
    WF_WITHOUT_OVERLAP = 8,    /* "overlap": a kernel's launch while the previous one still runs */
    WF_WITHOUT_ATTENTION = 16, /* "attention": attention through the vendor's library */
    WF_WITHOUT_CASTS = 32,     /* "casts": all variables cast to halves at the start of a step */
    WF_WITHOUT_RESIDUALS = 64  /* "residuals": additions in gradients of layer normalization */
};

/* What a kernel gets when a plan is made. All sizes are known. */
typedef weft_status wf_kernel_many_fn(const struct wf_call *const *calls, int n);

struct wf_kplan {
    weft_ctx *ctx;
    struct wf_arena *arena; /* lives as long as the plan: for `state` */
    const struct wf_op *op;
    const struct wf_attr *attr;
    int n_in, n_out;
    const struct wf_type *in, *out; /* an absent optional input has dtype WEFT_NONE */
    int n_threads;                  /* may affect scratch_bytes, never the tiling */
    void *device;                   /* of devices with memory of their own: the driver's pointer */
    bool tf32;                      /* there: products of f32 may be in TF32 */
    unsigned without;               /* there: enum wf_without */
    /* answers */
    const void *state;
    size_t scratch_bytes;
    const char *impl; /* the implementation's name for explain; preset to the row's */
    /* Of devices with memory of their own. If step_bytes > 0, step_fill writes that many bytes
     * before each run, on the host: values that depend on c->iteration and c->rng (a learning rate
     * from a schedule). The kernel finds them at c->own; c's tensors are not readable. */
    size_t step_bytes;
    void (*step_fill)(const struct wf_call *c, void *to);
    /* Optional: runs n calls that answered with this function and follow each other, none of which
     * reads or writes what another writes. Each has scratch memory of its own. */
    wf_kernel_many_fn *run_many;
    bool not_captured; /* cannot be part of a recording: the run is enqueued piece by piece */
};

/* A row with the name "ref" gives a reference kernel a plan function: it is the last of its op's
 * rows. plan returns WEFT_OK, or WEFT_ENOSUP to decline (then the next row for the op is tried, and
 * finally the reference), or another error that stops planning. NULL: accepts every call. */
struct wf_kernel {
    int op_id;
    const char *impl;
    weft_status (*plan)(struct wf_kplan *p);
    wf_kernel_fn *run;
};

/* Chooses the kernel for a call. `ref_only`: the reference. */
weft_status wf_kernel_choose(struct wf_kplan *p, bool ref_only, const struct wf_kernel **out);
const struct wf_kernel *wf_kernel_ref(const struct wf_op *op);

/* Whether this op can be a step of a program, with operands and a result of these types. Programs
 * compute in f32: halves are widened when read and rounded when written, bools are 0 and 1; other
 * types are not supported. A cast between floats and broadcast_like (its first operand) are
 * copies. */
bool wf_kernel_can_step(const struct wf_op *op, int n_in, const struct wf_type *in,
                        const struct wf_type *out);
/* Whether a program whose last step has dtype `last` can run after this product of two operands.
 * The last step's result is output 0, in the memory of the product: the product's kernel must be
 * able to write it. The other outputs belong to the program and may have any type of a step. */
bool wf_kernel_can_anchor(const struct wf_op *op, const struct wf_attr *attr,
                          const struct wf_type *in, const struct wf_type *product, weft_dtype last);

/* For fingerprints. The rows of the table, whose order decides which kernel a call gets; and how
 * products are divided (tilings.c). Both are the same in every process of a build. */
uint64_t wf_kernels_hash(void);
uint64_t wf_tilings_hash(void);

/* Whether all operands have dtype t (except absent ones). */
bool wf_kplan_all(const struct wf_kplan *p, weft_dtype t);
/* The kernel's state in the plan's arena, zeroed; NULL: out of memory, and wf_kplan_nomem is the
 * status. */
void *wf_kplan_state(struct wf_kplan *p, size_t bytes);
weft_status wf_kplan_nomem(const struct wf_kplan *p);

static inline int64_t wf_kplan_int(const struct wf_kplan *p, const char *name)
{
    return wf_attr_int(p->op, p->attr, name);
}
static inline double wf_kplan_float(const struct wf_kplan *p, const char *name)
{
    return wf_attr_float(p->op, p->attr, name);
}
static inline int64_t wf_count(const struct wf_tensor *t)
{
    return wf_type_count(&t->type);
}

#endif
