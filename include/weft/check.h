/* weft/check.h - gradient check: analytic gradients against finite differences, in f64.
 *
 * For authors of ops and models. The graph is copied with every float as f64 and run with the
 * reference kernels; each chosen element of each variable is moved by ±step and the change of the
 * loss is compared with the gradient that weft_grad builds. */
#ifndef WEFT_CHECK_H
#define WEFT_CHECK_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_grad_check_opts {
    size_t size;
    double step;          /* 0: 1e-5, times the element's magnitude if that is above 1 */
    double tolerance;     /* of |numeric - analytic| / max(1, |numeric|, |analytic|); 0: 1e-5 */
    int64_t max_elements; /* per variable, evenly spread; 0: 64; < 0: all */
} weft_grad_check_opts;

typedef struct weft_grad_check_result {
    int64_t n_checked;
    double worst; /* the largest error and where it is */
    const char *variable;
    int64_t element;
    double analytic, numeric;
} weft_grad_check_result;

/* WEFT_ENUMERIC if an element differs by more than the tolerance (the text says which); *out (may
 * be NULL) is written in this case too. vars are variables of g; n_vars 0: all trainable ones. The
 * graph must not be random. */
WEFT_API weft_status weft_grad_check(weft_graph *g, weft_val loss, int n_feeds,
                                     const weft_val *feeds, const weft_tensor *data, int n_vars,
                                     const weft_val *vars, const weft_grad_check_opts *opts,
                                     weft_grad_check_result *out);

#ifdef __cplusplus
}
#endif
#endif
