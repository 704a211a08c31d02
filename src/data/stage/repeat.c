/* repeat.c - a dataset several times, or without end. */
#include "data/stage/counted.h"

struct repeat {
    int64_t times; /* 0: without end */
};

/* The input's epoch in round `round` of epoch `epoch`. It only keys what is drawn; a position
 * that was read may hold any number, so it wraps around. */
static int64_t inner_epoch(const struct repeat *p, int64_t epoch, int64_t round)
{
    uint64_t first = p->times ? (uint64_t)epoch * (uint64_t)p->times : (uint64_t)epoch;

    return (int64_t)(first + (uint64_t)round);
}

static weft_status repeat_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                              int64_t n, struct wf_block **out)
{
    const struct repeat *p = ds->param;
    int64_t size = ds->in[0]->count;
    struct wf_chunk *chunk;
    struct wf_at *to = wf_at_copy(w, at, n, &chunk);
    weft_status st;

    if (!to)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *at, "repeat");
    for (int64_t i = 0; i < n; i++) {
        to[i].epoch = inner_epoch(p, at[i].epoch, at[i].id / size);
        to[i].id = at[i].id % size;
    }
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(chunk);
    return st;
}

struct repeat_state {
    int64_t epoch, round, given; /* given: elements of this round */
};

static weft_status repeat_open(struct wf_stage *s)
{
    s->state = wf_alloc(s->env->ctx, sizeof(struct repeat_state));
    /* Exact, so that a round that yields nothing is seen to. */
    return s->state ? wf_stage_input(s, 0, WF_IN_EXACT, s->want)
                    : wf_env_nomem(s->env, sizeof(struct repeat_state), "repeat");
}

static weft_status repeat_reset(struct wf_stage *s, int64_t epoch)
{
    *(struct repeat_state *)s->state = (struct repeat_state){.epoch = epoch};
    return wf_stage_reset(s->in[0], inner_epoch(s->ds->param, epoch, 0));
}

static weft_status repeat_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    const struct repeat *p = s->ds->param;
    struct repeat_state *at = s->state;
    weft_status st;

    for (;;) {
        st = wf_stage_pull(s->in[0], want, out);
        if (st || *out) {
            if (!st)
                at->given += (*out)->n;
            return st;
        }
        /* An empty round would be followed by empty rounds for ever. */
        if (at->given == 0 || (p->times && at->round + 1 >= p->times))
            return WEFT_OK;
        at->round++;
        at->given = 0;
        st = wf_stage_reset(s->in[0], inner_epoch(p, at->epoch, at->round));
        if (st)
            return st;
    }
}

static weft_status repeat_save(struct wf_stage *s, struct wf_buf *out)
{
    const struct repeat_state *at = s->state;

    wf_put_i64(out, at->epoch);
    wf_put_i64(out, at->round);
    wf_put_i64(out, at->given);
    return WEFT_OK;
}

static weft_status repeat_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct repeat_state *at = s->state;

    at->epoch = wf_get_i64(r);
    at->round = wf_get_range(r, 0, INT64_MAX, "a round");
    at->given = wf_get_range(r, 0, INT64_MAX, "a number of elements");
    return r->st;
}

static void repeat_text(const struct wf_ds *ds, struct wf_buf *out)
{
    wf_buf_printf(out, "times=%lld", (long long)((const struct repeat *)ds->param)->times);
}

static const struct wf_ds_kind repeat_kind = {
    .name = "repeat",
    .get = repeat_get,
    .open = repeat_open,
    .close = wf_state_close,
    .reset = repeat_reset,
    .pull = repeat_pull,
    .save = repeat_save,
    .restore = repeat_restore,
    .text = repeat_text,
};

weft_ds weft_ds_repeat(weft_data *d, weft_ds s, int64_t times)
{
    struct wf_ds *ds = wf_ds_new(d, &repeat_kind, 1, &s, sizeof(struct repeat));

    if (!ds)
        return (weft_ds){0};
    if (times < 0)
        return wf_ds_fail(d, "repeat", wf_err(WEFT_EINVAL, "%lld times", (long long)times));
    ((struct repeat *)ds->param)->times = times;
    if (ds->count == 0 || ds->count == WEFT_ENDLESS)
        return wf_ds_handle(ds);
    if (times == 0)
        ds->count = WEFT_ENDLESS;
    else if (ds->count != WEFT_UNKNOWN && !wf_mul_i64(ds->count, times, &ds->count))
        ds->count = WEFT_ENDLESS;
    return wf_ds_handle(ds);
}
