/* prog.h - element-wise programs: a short list of block functions run over pieces of a tensor that
 * fit in L1.
 *
 * A program reads operands broadcast to one shape and writes outputs of that shape. Every step runs
 * over a whole block before the next one, on registers of at most `block` floats. Elements are
 * independent, so any division gives the same bits. */
#ifndef WF_KERNELS_CPU_PROG_H
#define WF_KERNELS_CPU_PROG_H

#include "kernels/cpu/ew.h"
#include "kernels/kernels.h"

enum { WF_PROG_MAX_REGS = 64, WF_PROG_MAX_OUTS = 32, WF_PROG_TILE = 8192 };

enum wf_prog_kind {
    WF_PROG_FULL,    /* as many elements as the result, in its order */
    WF_PROG_ANCHOR,  /* passed by the caller piece by piece: a product being finished */
    WF_PROG_SCALAR,  /* one element */
    WF_PROG_ROW,     /* element i % period, with a long period: blocks stop at its multiples */
    WF_PROG_PATTERN, /* the same with a short period, repeated once into a buffer */
    WF_PROG_GENERAL  /* any other broadcast: gathered for each block */
};

struct wf_prog_operand {
    enum wf_prog_kind kind;
    weft_dtype dtype;
    int64_t period;
    int rank; /* GENERAL: the result's sizes with neighboring axes merged, and the operand's strides
               * in them */
    int64_t dim[WEFT_MAX_RANK], stride[WEFT_MAX_RANK];
    int64_t buf; /* offset of its buffer in a thread's scratch, in floats; -1: read in place */
};

struct wf_prog_step {
    wf_ew_fn *fn;
    int dst, a, b, c; /* registers; unused operands are 0 */
    float param[4];
};

struct wf_prog {
    int n_operands, n_steps, n_outs;
    struct wf_prog_operand *operand;
    struct wf_prog_step *step;
    int64_t *temp; /* per step: offset of its register in a thread's scratch, or -1 - k if it is
                    * output k itself */
    struct {
        int reg;
        weft_dtype dtype;
        bool direct;
    } out[WF_PROG_MAX_OUTS];
    int64_t block, count;
    int64_t thread_floats; /* scratch of one thread; its first 16 floats hold the "prepared" mark */
    const struct wf_cvt_fns *cvt;
    wf_ew_fn *fill;
};

/* Compiles the attributes prog, params, outs of p for operands of the given types and results of
 * `shape`. With `anchor`, operand 0 is the caller's. WEFT_ENOSUP if a step has no block
 * function. */
weft_status wf_prog_compile(struct wf_kplan *p, int n_operands, const struct wf_type *operands,
                            bool anchor, const struct wf_type *shape, struct wf_prog **out);

/* One run of a program: where everything is. */
struct wf_prog_run {
    const struct wf_prog *prog;
    const void *operand[WF_PROG_MAX_REGS];
    void *out[WF_PROG_MAX_OUTS];
    float *scratch; /* n_threads * thread_floats */
};
/* Must be called before the first range of a run. */
void wf_prog_start(struct wf_prog_run *r, int n_threads);
/* Elements [first, first + n) on a thread. anchor: operand 0 and output 0 of this range, or
 * NULL. */
void wf_prog_range(const struct wf_prog_run *r, int thread, int64_t first, int64_t n,
                   float *anchor);

#endif
