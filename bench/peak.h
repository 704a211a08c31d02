/* peak.h - the yardstick of the benchmark programs: the multiply-add rate, and the clock it is
 * taken by. */
#ifndef WEFT_BENCH_PEAK_H
#define WEFT_BENCH_PEAK_H

#include "kernels/cpu/gemm.h"

static inline double seconds(weft_ctx *ctx)
{
    return 1e-9 * (double)wf_now(ctx);
}

struct peak_job {
    const struct wf_gemm_fns *fns;
    double flop[64]; /* per task */
};

static inline void peak_task(void *arg, int64_t task, int thread)
{
    struct peak_job *j = arg;

    (void)thread;
    j->flop[task] = j->fns->peak_loop(20000);
}

/* GFLOP/s of all threads together, over a millisecond or so. */
static inline double peak(weft_ctx *ctx, const struct wf_gemm_fns *fns)
{
    struct peak_job j = {.fns = fns};
    int64_t n_tasks = wf_min_i64(wf_pool_size(ctx->pool) * 16, WF_COUNT(j.flop));
    double sum = 0, start = seconds(ctx);

    wf_pool_for(ctx->pool, n_tasks, peak_task, &j);
    start = seconds(ctx) - start;
    for (int64_t i = 0; i < n_tasks; i++)
        sum += j.flop[i];
    return sum / start / 1e9;
}

#endif
