/* onednn.h - matrix products by oneDNN: an optional alternative to gemm.h.
 *
 * The library is never linked. It is loaded when a context first needs it, and is not used if it is
 * missing, too old, too new, or runs on threads that cannot be limited to one. The library and its
 * primitives belong to the context and are freed with it.
 *
 * C is divided into tiles of whole rows by its shape, each tile is one call in one thread, so
 * results do not depend on the number of threads. OpenMP is limited to one thread during a call;
 * afterwards the caller's number is restored. */
#ifndef WF_KERNELS_CPU_ONEDNN_H
#define WF_KERNELS_CPU_ONEDNN_H

#include "kernels/cpu/gemm.h"
#include "kernels/kernels.h"
#include "kernels/tune.h"

/* What was compiled in, "oneDNN 2.6.3 (loaded on demand)", or NULL. */
const char *wf_onednn_built(void);

/* The file that is loaded and the Debian package that provides it; NULL if not compiled in. */
const char *wf_onednn_file(void);
const char *wf_onednn_package(void);

/* The version of the loaded library, "2.6.3"; loads it if necessary. NULL if it cannot be used,
 * with the reason in *why, which is valid as long as the context. */
const char *wf_onednn_version(weft_ctx *ctx, const char **why);

struct wf_onednn_matmul; /* a plan; it is in the arena it was created in and refers to the
                          * context */

/* Plans a product, regardless of the tune table. f32 only, not accumulating, without column sums
 * and epilogue, nothing empty, at the best SIMD level of the machine; WEFT_ENOSUP for anything
 * else, and if the library is missing or has only its reference code. *impl becomes the name of
 * library, version and implementation: "onednn-2.6.3/gemm:jit". */
weft_status wf_onednn_matmul_plan(weft_ctx *ctx, struct wf_arena *arena,
                                  const struct wf_gemm_desc *d, int n_threads,
                                  const struct wf_onednn_matmul **out, size_t *scratch_bytes,
                                  const char **impl);

/* Runs it on a pool of at most the planned number of threads. scratch is 64-byte aligned. */
weft_status wf_onednn_matmul_run(const struct wf_onednn_matmul *p, struct wf_pool *pool,
                                 const float *a, const float *b, float *c, void *scratch);

/* For the kernel row: plans a matmul call if `rows` say so, declines otherwise. */
weft_status wf_onednn_plan_call(struct wf_kplan *p, const struct wf_tune_row *rows);

#endif
