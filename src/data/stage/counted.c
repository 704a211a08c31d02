/* counted.c - what stages share that choose elements by their numbers: a request that is
 * changed, and a state that is one number, the elements of the input that have passed. */
#include "data/stage/counted.h"

struct wf_at *wf_at_copy(struct wf_worker *w, const struct wf_at *at, int64_t n,
                         struct wf_chunk **chunk)
{
    *chunk = wf_chunk_new(w->env, n * (int64_t)sizeof *at);
    if (!*chunk)
        return NULL;
    memcpy((*chunk)->data, at, (size_t)n * sizeof *at);
    return (void *)(*chunk)->data;
}

void wf_state_close(struct wf_stage *s)
{
    wf_free(s->env->ctx, s->state);
}

weft_status wf_counted_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(int64_t));
    return s->state ? wf_stage_input(s, 0, WF_IN_EXACT, s->want)
                    : wf_env_nomem(s->env, sizeof(int64_t), s->ds->name);
}

weft_status wf_counted_reset(struct wf_stage *s, int64_t epoch)
{
    *(int64_t *)s->state = 0;
    return wf_stage_reset(s->in[0], epoch);
}

weft_status wf_counted_save(struct wf_stage *s, struct wf_buf *out)
{
    wf_put_i64(out, *(int64_t *)s->state);
    return WEFT_OK;
}

weft_status wf_counted_restore(struct wf_stage *s, struct wf_reader *r)
{
    *(int64_t *)s->state = wf_get_range(r, 0, INT64_MAX, "a number of elements");
    return r->st;
}

void wf_data_drop(struct wf_promise *p)
{
    wf_free(p->stage->env->ctx, p->data);
}
