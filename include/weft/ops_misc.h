/* weft/ops_misc.h - looking at values while a graph runs. */
#ifndef WEFT_OPS_MISC_H
#define WEFT_OPS_MISC_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_print_opts {
    size_t size;
    int64_t every; /* steps; 0: 1 */
    int64_t limit; /* elements shown; 0: 10 */
} weft_print_opts;
/* x; when it is computed, logs a line "message: step 7: f32[3] 0.1 0.2 0.3" to the context's log.
 * Any type. Its result must be used (or fetched), or it is not computed. The gradient passes
 * through. */
WEFT_API weft_val weft_print(weft_graph *g, weft_val x, const char *message,
                             const weft_print_opts *opts);

/* x; if an element is NaN or infinite, the run fails with WEFT_ENUMERIC and a text with the
 * message, the position and the value. Floats. The gradient passes through and is checked as
 * well. */
WEFT_API weft_val weft_check_numerics(weft_graph *g, weft_val x, const char *message);

#ifdef __cplusplus
}
#endif
#endif
