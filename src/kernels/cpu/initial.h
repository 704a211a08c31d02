/* initial.h - initial values of variables: functions of the seed, the variable's name, the
 * initializer and the element, whoever computes them. */
#ifndef WF_KERNELS_CPU_INITIAL_H
#define WF_KERNELS_CPU_INITIAL_H

#include "tensor/tensor.h"

/* An initializer with its attributes, for one variable. */
struct wf_initial {
    const char *kind; /* "normal"; NULL: none is known */
    double a, b;
    const char *name; /* of the variable */
    uint64_t seed;
};

/* All values of a variable of type t. */
weft_status wf_initial_all(weft_ctx *ctx, const struct wf_initial *by, const struct wf_type *t,
                           void *data);
/* Rows of an f32 matrix. WEFT_ENOSUP for initializers whose values depend on each other. */
weft_status wf_initial_rows(weft_ctx *ctx, const struct wf_initial *by, const struct wf_type *t,
                            int64_t n_rows, const int64_t *ids, float *rows);
/* Whether an initializer is known, and can give the rows of a matrix one by one. */
bool wf_initial_by_rows(const char *kind);

#endif
