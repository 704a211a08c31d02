/* pass.c - one pass over a whole dataset, block by block. */
#include "data/feature/feature.h"

#define DEFAULT_MEMORY ((int64_t)256 << 20)
#define GRAIN 1024

static weft_status read_all(struct wf_stage *s, wf_pass_fn *fn, void *arg)
{
    struct wf_block *b = NULL;
    weft_status st = wf_stage_reset(s, 0);

    while (!st) {
        st = wf_stage_next(s, GRAIN, &b);
        if (st || !b)
            break;
        st = fn(arg, b);
        wf_block_free(b);
    }
    return st;
}

weft_status wf_pass_over(weft_data *d, weft_ds s, int threads, int64_t memory, wf_pass_fn *fn,
                         void *arg)
{
    struct wf_crew *crew = NULL;
    struct wf_env *env = NULL;
    struct wf_stage *stage = NULL;
    struct wf_ds *ds = wf_ds_node(d, s);
    int n = threads == WEFT_ZERO ? 0 : threads ? threads : weft_ctx_threads(d->ctx);
    weft_status st = weft_data_status(d);

    if (st)
        return st;
    if (!ds || ds->count == WEFT_ENDLESS || n < 0 || n > 1024 || memory < 0)
        return wf_err(WEFT_EINVAL, "%s",
                      !ds                         ? "not a dataset of this pipeline"
                      : ds->count == WEFT_ENDLESS ? "the dataset is endless"
                                                  : "invalid number of threads or memory limit");
    st = wf_crew_new(d->ctx, n, &crew);
    if (!st)
        st = wf_env_new(d, memory ? memory : DEFAULT_MEMORY, crew, &env);
    if (!st)
        st = wf_stage_open(env, ds, WF_IN_MADE, ds->batched ? 1 : GRAIN, &stage);
    if (!st)
        st = read_all(stage, fn, arg);
    wf_crew_stop(crew);
    wf_stage_close(stage);
    wf_crew_free(crew);
    wf_env_close(env);
    return st;
}
