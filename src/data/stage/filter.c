/* filter.c - elements chosen by a callback. */
#include "data/stage/callback.h"

struct filter {
    weft_filter_fn *fn;
    void *arg;
};

static weft_status filter_apply(struct wf_ds *ds, struct wf_worker *w, struct wf_block *in,
                                struct wf_block **out)
{
    const struct filter *p = ds->param;
    void *cols = NULL, *flags = NULL;
    bool *keep;
    weft_status st = wf_block_alloc(in, in->n_cols * (int64_t)sizeof(weft_tensor), &cols);

    (void)w;
    if (!st)
        st = wf_block_alloc(in, in->n, &flags);
    keep = flags;
    for (int64_t i = 0; i < in->n && !st; i++) {
        weft_sample sample = wf_sample_of(in, i, cols);

        keep[i] = false;
        st = p->fn(p->arg, &sample, &keep[i]);
        if (st)
            wf_block_err(in, i, st);
    }
    if (st) {
        wf_block_free(in);
        return st;
    }
    return wf_block_filter(in, keep, out);
}

static const struct wf_ds_kind filter_kind = {.name = "filter", .apply = filter_apply};

weft_ds weft_ds_filter(weft_data *d, weft_ds s, weft_filter_fn *fn, void *arg)
{
    struct wf_ds *ds = wf_ds_new(d, &filter_kind, 1, &s, sizeof(struct filter));

    if (!ds)
        return (weft_ds){0};
    if (!fn)
        return wf_ds_fail(d, "filter", wf_err(WEFT_EINVAL, "no callback"));
    *(struct filter *)ds->param = (struct filter){fn, arg};
    ds->inexact = true;
    return wf_ds_handle(ds);
}
