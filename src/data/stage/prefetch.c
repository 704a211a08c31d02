/* prefetch.c - a place in the middle of a pipeline where work is done ahead. */
#include "data/data.h"

struct prefetch {
    int64_t n;
};

static weft_status prefetch_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                                int64_t n, struct wf_block **out)
{
    return wf_ds_get_block(ds->in[0], w, at, n, out);
}

static weft_status prefetch_open(struct wf_stage *s)
{
    weft_status st = wf_stage_input(s, 0, WF_IN_MADE, s->want);

    if (!st)
        wf_queue_set_ahead(s->in[0], ((const struct prefetch *)s->ds->param)->n);
    return st;
}

static weft_status prefetch_reset(struct wf_stage *s, int64_t epoch)
{
    return wf_stage_reset(s->in[0], epoch);
}

static weft_status prefetch_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    return wf_stage_pull(s->in[0], want, out);
}

/* How far ahead does not change what is read: it is not part of the text. */
static const struct wf_ds_kind prefetch_kind = {
    .name = "prefetch",
    .get = prefetch_get,
    .open = prefetch_open,
    .reset = prefetch_reset,
    .pull = prefetch_pull,
    .row_wise = true,
};

weft_ds weft_ds_prefetch(weft_data *d, weft_ds s, int64_t n)
{
    struct wf_ds *ds = wf_ds_new(d, &prefetch_kind, 1, &s, sizeof(struct prefetch));

    if (!ds)
        return (weft_ds){0};
    if (n < 0)
        return wf_ds_fail(d, "prefetch", wf_err(WEFT_EINVAL, "%lld elements", (long long)n));
    ((struct prefetch *)ds->param)->n = n;
    return wf_ds_handle(ds);
}
