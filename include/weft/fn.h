/* weft/fn.h - functions: a graph that is ready to run.
 *
 * A function is a set of feeds, fetches and updates of one graph. It has its own copy of the graph,
 * makes a plan for each set of feed shapes it gets (or is prepared for), and then runs without
 * allocating. Functions of the same graph can share parameters. A function may be used by one
 * thread at a time; so may functions that share parameters. */
#ifndef WEFT_FN_H
#define WEFT_FN_H

#include "weft/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_fn weft_fn;

/* Parts of planning that can be switched off; the results then agree within rounding. */
enum weft_pass {
    WEFT_PASS_FOLD = 1,
    WEFT_PASS_CSE = 2,
    WEFT_PASS_ALGEBRA = 4,
    WEFT_PASS_FUSE = 8,
    WEFT_PASS_ALL = 15
};

/* A gradient that a run leaves in a flat vector (weft_fn_gradients), at the offset of its
 * variable. Those of different groups are in vectors of their own. */
typedef struct weft_gradient {
    weft_val var, grad; /* a trainable f32 variable; an f32 value of its shape */
    int group;
} weft_gradient;

typedef struct weft_fn_opts {
    size_t size;
    int n_feeds;
    const weft_val *feeds; /* placeholders, in the order of weft_fn_run */
    int n_fetches;
    const weft_val *fetches;
    int n_updates;
    const weft_val *updates; /* values whose nodes change something: weft_minimize, weft_assign,
                              * … */
    weft_fn *share;          /* a function of the same graph whose parameters this one uses too */
    unsigned passes_off;     /* enum weft_pass */
    bool reference_kernels;  /* use the plain definitions instead of the fast kernels: slow */
    bool trap_numerics;      /* fail with WEFT_ENUMERIC at the first op that produces a NaN or an
                              * infinity */
    int max_plans; /* number of plans kept, the least recently used is dropped first; 0: 8 */
    int n_gradients;
    const weft_gradient *gradients; /* one for each variable and group, at most */
    const char *device; /* where variables are kept and ops run if no scope says otherwise: a device
                         * of the context with memory of its own, or "cpu:0" for the host's. NULL:
                         * that of `share`, otherwise the context's default. A function that shares
                         * parameters and updates none may be on another device: it reads a copy
                         * there, which is brought up to date before a run */
    bool tf32; /* matrix products of f32 may round their operands to TF32 (10 bits of mantissa)
                * where the device has faster units for it; sums stay f32. CPUs have none */
    const char *without; /* for measurements: words of "mixed norms epilogues overlap attention
                          * casts residuals" that plans leave out: docs/internals/cuda.md */
} weft_fn_opts;

WEFT_API weft_status weft_fn_new(weft_graph *g, const weft_fn_opts *opts, weft_fn **out);
WEFT_API void weft_fn_free(weft_fn *fn);

/* Makes the plan for these feed shapes now (data may be NULL), so that no later run allocates. */
WEFT_API weft_status weft_fn_prepare(weft_fn *fn, const weft_tensor *feeds);

/* Runs the function. feeds[i].data is borrowed for the call. fetches[i]: with data == NULL it
 * becomes a view of weft's memory, valid until the next run or prepare of this function; otherwise
 * dtype and shape must match and the value is copied there. A fetched variable is read after the
 * updates. On failure nothing has changed: variables, optimizer slots and the step number are as
 * before the call. */
WEFT_API weft_status weft_fn_run(weft_fn *fn, const weft_tensor *feeds, weft_tensor *fetches);

/* n runs (at least 1) with the same feeds, as n calls of weft_fn_run; the fetches are those of the
 * last. On a device with memory of its own the feeds are copied once, and a run begins when the
 * previous one ends, without the host in between. There a fault in the data of a run is reported
 * after the last one: the runs after it have changed nothing. */
WEFT_API weft_status weft_fn_repeat(weft_fn *fn, int64_t n, const weft_tensor *feeds,
                                    weft_tensor *fetches);

/* Randomness depends on (seed, step, shard). The step counts runs of functions with updates; the
 * shard is 0 unless set. */
WEFT_API int64_t weft_fn_step(const weft_fn *fn);
WEFT_API void weft_fn_set_step(weft_fn *fn, int64_t step);
WEFT_API void weft_fn_set_shard(weft_fn *fn, int shard);

/* Variables by name. get copies out, set copies in (dtype and shape must match), view borrows: it
 * may be read and written. If the variables are kept on a device with memory of its own, a view
 * (also those of weft_fn_params, weft_fn_slot and weft_fn_gradients) is a copy in the host's
 * memory: it is valid until the next run of a function that shares the variables, which sees what
 * was written; after it, ask again. */
WEFT_API weft_status weft_fn_get(weft_fn *fn, const char *name, weft_tensor *out);
WEFT_API weft_status weft_fn_set(weft_fn *fn, const char *name, const weft_tensor *value);
WEFT_API weft_status weft_fn_view(weft_fn *fn, const char *name, weft_tensor *out);
/* Resets everything to its initial values. */
WEFT_API weft_status weft_fn_reset(weft_fn *fn);

/* The flat vectors. A segment is the range of a trainable variable in them; segments are ordered by
 * first use. A table that is only looked up has memory of its own: its offset is -1. */
typedef struct weft_segment {
    const char *name;
    int64_t offset, count; /* elements; offsets are multiples of 16 */
    int rank;
    int64_t dim[WEFT_MAX_RANK];
} weft_segment;
WEFT_API int64_t weft_fn_n_segments(const weft_fn *fn);
WEFT_API weft_status weft_fn_segment(const weft_fn *fn, int64_t i, weft_segment *out);
WEFT_API float *weft_fn_params(weft_fn *fn, int64_t *count);
/* The optimizer's k-th slot of segment i; WEFT_ENOENT if it keeps none. */
WEFT_API weft_status weft_fn_slot(weft_fn *fn, int64_t i, int k, weft_tensor *out);
/* The gradients of group 0, then those of the others; NULL without opts.gradients. */
WEFT_API float *weft_fn_gradients(weft_fn *fn, int64_t *count);

/* ---- introspection --------------------------------------------------------------------------- */

typedef struct weft_explain_opts {
    size_t size;
    int time_runs; /* > 0: run this many times (with zero feeds where data is NULL) and print the
                    * time of each instruction */
} weft_explain_opts;
/* Instructions, shapes, kernel names, offsets, peak memory; freed with weft_text_free. Timed runs
 * leave variables, slots and the step number unchanged. */
WEFT_API weft_status weft_fn_explain(weft_fn *fn, const weft_tensor *feeds,
                                     const weft_explain_opts *opts, char **out);
/* One run as Chrome trace JSON (chrome://tracing, Perfetto). It leaves variables unchanged. */
WEFT_API weft_status weft_fn_trace(weft_fn *fn, const weft_tensor *feeds, char **out);

typedef struct weft_plan_info {
    size_t size;
    int64_t n_instructions;
    int64_t slab_bytes, scratch_bytes, param_bytes;
    double flop;    /* floating-point operations of products and convolutions (direct count) */
    double plan_ms; /* time spent planning */
    uint64_t fingerprint; /* of the choices that affect results: kernels, tilings, level */
} weft_plan_info;
WEFT_API weft_status weft_fn_plan_info(weft_fn *fn, const weft_tensor *feeds, weft_plan_info *out);

#ifdef __cplusplus
}
#endif
#endif
