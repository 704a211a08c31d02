/* weft/sys/op.h - for authors of ops: adds a row with your own functions to the op table.
 *
 * A user op is registered in a context and then built with weft_op(). A saved graph keeps its name
 * and attributes; a context without the row refuses the graph and names the op. */
#ifndef WEFT_SYS_OP_H
#define WEFT_SYS_OP_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call of the op. Attribute values are read with weft_op_call_int/float. */
typedef struct weft_op_call weft_op_call;
WEFT_API int64_t weft_op_call_int(const weft_op_call *call, const char *attr);
WEFT_API double weft_op_call_float(const weft_op_call *call, const char *attr);
/* Runs fn for each tile on the context's pool; as in weft's own kernels, results must not depend on
 * which thread runs which tile. */
WEFT_API void weft_op_call_parallel(const weft_op_call *call, int64_t n_tiles,
                                    void (*fn)(void *arg, int64_t tile, int thread), void *arg);
/* Reports an error with a text: return weft_op_call_error(WEFT_ESHAPE, "rows %lld …", …). */
WEFT_API weft_status weft_op_call_error(weft_status st, const char *fmt, ...) WEFT_PRINTF(2, 3);

typedef struct weft_user_op {
    size_t size;
    const char *name; /* [a-z][a-z0-9_.]*, not the name of a built-in op */
    int n_in, n_out;
    const char *attrs; /* "alpha:f=1.0 axis:i=-1"; types i f b s l F t. NULL: none */
    /* Sets dtype, rank and sizes of out[0..n_out). Negative sizes are not known yet. */
    weft_status (*infer)(const weft_op_call *call, const weft_tensor *in, weft_tensor *out);
    /* Computes the outputs. Inputs and outputs are contiguous and do not overlap. Called by one
     * thread. */
    weft_status (*run)(const weft_op_call *call, const weft_tensor *in, weft_tensor *out);
    /* Builds the gradients with respect to the inputs from those of the outputs (id 0: there is
     * none). Leave din[i] unchanged for no gradient. NULL: not differentiable. */
    weft_status (*grad)(weft_graph *g, const weft_val *in, const weft_val *out,
                        const weft_val *dout, weft_val *din);
    bool thread_dependent; /* its results depend on the number of threads: reported by explain and
                            * by plans */
    bool random;           /* never folded or merged */
} weft_user_op;

/* The row is copied, its strings too. */
WEFT_API weft_status weft_op_register(weft_ctx *ctx, const weft_user_op *op);

#ifdef __cplusplus
}
#endif
#endif
