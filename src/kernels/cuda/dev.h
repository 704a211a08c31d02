/* dev.h - an open GPU, and how kernels are launched on it. */
#ifndef WF_CUDA_DEV_H
#define WF_CUDA_DEV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/device.h"
#include "kernels/cuda/api.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/driver.h"
#include "kernels/kernels.h"

enum wfc_kernel {
#define K(name) WFC_K_##name,
#define K2(name) WFC_K_##name, WFC_K_##name##_wide,
#include "kernels/cuda/names.def"
#undef K
#undef K2
    WFC_N_KERNELS
};

struct wf_cuda {
    struct wf_cuda_api api;
    weft_ctx *ctx;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction fn[WFC_N_KERNELS];
    cublasLtHandle_t blas; /* NULL: without cuBLASLt */
    struct wfd *dnn;       /* cuDNN, opened when it is first needed (dnn.c) */
    pthread_mutex_t dnn_lock;
    int cores, capability;       /* 90 */
    _Atomic bool no_overlap;     /* launches do not overlap: the driver refused */
    _Atomic(void *) last_kernel; /* the stream whose last work is a kernel of ours; NULL: none */
    char model[96];
    struct wfc_rtc *rtc; /* generated kernels (rtc.c); NULL: none yet */
    pthread_mutex_t rtc_lock;
    char *cache; /* directory for them; NULL: none */
};

/* table.c */
weft_status wf_cuda_choose(void *dev, struct wf_kplan *p, const struct wf_kernel **out);
bool wf_cuda_can_step(const struct wf_op *op, int n_in, const struct wf_type *in,
                      const struct wf_type *out);
bool wf_cuda_can_anchor(const struct wf_op *op, const struct wf_attr *attr,
                        const struct wf_type *in, const struct wf_type *product, weft_dtype last);
/* take.c */
bool wf_cuda_can_take(const struct wf_op *op, const struct wf_attr *attr, int n_in,
                      const struct wf_type *in, int n_out, const struct wf_type *out);

/* ---- for the bind_*.c files ------------------------------------------------------------------ */

static inline struct wf_cuda *wfc_dev(const struct wf_call *c)
{
    return c->device;
}

/* Before a library enqueues work on a stream. */
static inline void wfc_other_work(struct wf_cuda *d)
{
    atomic_store(&d->last_kernel, NULL);
}

/* Enqueues a kernel; nothing if the grid is empty. args is copied. */
weft_status wfc_launch(const struct wf_call *c, int kernel, int64_t gx, int64_t gy, int threads,
                       const void *args);
/* With N bytes of shared memory besides the kernel's own: more than 48 KB only for
 * kernels whose limit load_kernels (device.c) raises. */
weft_status wfc_launch_with(const struct wf_call *c, int kernel, int64_t gx, int64_t gy,
                            int threads, size_t shared, const void *args);
struct wfc_made;
struct wfc_made_args;
weft_status wfc_launch_made(const struct wf_call *c, const struct wfc_made *made,
                            const struct wfc_made_args *args);
/* A thread for each of n elements, or more elements a thread. */
weft_status wfc_launch_each(const struct wf_call *c, int kernel, int64_t n, const void *args);
weft_status wfc_zero(const struct wf_call *c, const struct wf_tensor *t);
weft_status wfc_clear(const struct wf_call *c, void *to, size_t bytes);
weft_status wfc_move(const struct wf_call *c, void *to, const void *from, size_t bytes);

/* Whether the call has an operand or result of f64: its sums are in f64, in the _wide kernel. */
static inline int wfc_wide(const struct wf_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        if (c->in[i].type.dtype == WEFT_F64)
            return 1;
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].type.dtype == WEFT_F64)
            return 1;
    return 0;
}

static inline struct wfc_fault wfc_fault(const struct wf_call *c)
{
    return (struct wfc_fault){c->trouble, c->instr};
}

/* Sizes that fit the 32-bit indices of device code: all operands and results. */
bool wfc_fits(const struct wf_kplan *p);
bool wfc_type_fits(const struct wf_type *t);
/* Normalizations that kernels of dev/wide.inl compute; gamma, beta: NULL: unknown. */
bool wfc_takes_bn(const struct wf_type *x, const struct wf_type *gamma, const struct wf_type *beta);
bool wfc_takes_ln(const struct wf_op *op, const struct wf_attr *attr, const struct wf_type *x);
weft_status wfc_plan_any(struct wf_kplan *p);
/* All operands and results are floats (or absent). */
weft_status wfc_plan_floats(struct wf_kplan *p);

/* Strides of t broadcast to `shape`, neighboring axes merged. */
struct wfc_box wfc_broadcast_box(const struct wf_type *t, const struct wf_type *shape);
/* A box of sizes and strides given outermost first. */
struct wfc_box wfc_box_of(int rank, const int64_t *dim, const int64_t *stride);
struct wfc_operand wfc_operand_of(const struct wf_tensor *t, const struct wf_type *shape);

/* A generated kernel for a program (gen.c). */
struct wfc_made {
    CUfunction fn;
    int64_t n_blocks;
    uint32_t full; /* operands that are read several at a time: their addresses must allow it */
};
enum { WFC_MADE_THREADS = 256 };
struct wfc_made_args {
    const void *in[WFC_OPERANDS];
    void *out[WFC_OUTS];
};

/* A kernel for the program of a fused op, compiled now or found among those compiled before; NULL:
 * there is none, and the program is interpreted. anchor: as for wfc_run_program. */
const struct wfc_made *wfc_make_program(struct wf_kplan *p, int first_in,
                                        const struct wf_type *anchor);
/* The kernel "wf_program" of a source text; NULL without NVRTC, or if it does not compile. */
CUfunction wfc_compile(struct wf_cuda *d, const char *source);
void wfc_rtc_free(struct wf_cuda *d);
/* The code of an element-wise op in device code, -1: none. */
int wfc_code_of(int op_id);

/* The program of a fused op: its operands are those from `first_in` on, after `anchor` if given. */
weft_status wfc_run_program(const struct wf_call *c, int first_in, const struct wf_tensor *anchor,
                            const struct wfc_made *made);

/* The sums of the columns of x [n_rows, n_cols]; scratch: as many bytes as the second says. */
weft_status wfc_column_sums(const struct wf_call *c, const struct wf_tensor *x, int64_t n_rows,
                            int64_t n_cols, const struct wf_tensor *y, void *scratch);
size_t wfc_column_sums_scratch(int64_t n_rows, int64_t n_cols);

/* A product that a kernel is made of, through cuBLASLt; WEFT_ENOSUP: it does not do it. Its
 * workspace is added to the plan's scratch. */
struct wfc_mm_sizes {
    int64_t m, n, k, batch, a_step, b_step; /* batch 0: one */
    bool ta, tb;
};
struct wfc_mm;
weft_status wfc_plan_mm(struct wf_kplan *kp, const struct wfc_mm_sizes *z, weft_dtype in,
                        weft_dtype out, const struct wfc_mm **mm);
weft_status wfc_run_mm(const struct wf_call *c, const struct wfc_mm *p, const void *a,
                       const void *b, void *y);

/* An update of a variable: operand `rate` and the one after it are the optional rate and scale. */
weft_status wfc_plan_update(struct wf_kplan *p, int rate);
weft_status wfc_run_update(const struct wf_call *c, int rate, const void *gradient, void *scratch);

#endif
