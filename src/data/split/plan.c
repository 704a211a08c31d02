/* plan.c - the plan of a data set: which samples are held out, how the others are shuffled, and how
 * they become batches. Whoever trains, a job or weft_fit, asks here, in this order. */
#include "data/data.h"

weft_status wf_plan_hold_out(weft_data *d, const struct wf_hold *h, weft_ds *s, weft_ds *held)
{
    const struct wf_ds *ds = wf_ds_node(d, *s);

    if (ds && ds->reordered)
        return wf_err(WEFT_EINVAL,
                      "the dataset is reordered in each epoch, so samples held out in one epoch "
                      "would be trained on in another; hold out first (weft_ds_holdout), or let "
                      "fit shuffle");
    return weft_ds_holdout(
        d, *s, h->share,
        WEFT_OPTS(weft_holdout_opts, .hashed = h->random, .seed = h->random ? h->seed : 0), s,
        held);
}

weft_status wf_plan_shuffle(weft_data *d, uint64_t seed, int64_t buffer, weft_ds *s)
{
    const struct wf_ds *ds = wf_ds_node(d, *s);
    bool by_number = ds && wf_ds_addressable(ds);
    const weft_shuffle_opts o = {.size = sizeof o, .seed = seed};

    if (by_number && ds->count != WEFT_ENDLESS)
        *s = weft_ds_shuffle_all(d, *s, &o);
    else if (!by_number && buffer > 0)
        *s = weft_ds_shuffle(d, *s, buffer, &o);
    return weft_data_status(d);
}

weft_status wf_plan_batch(weft_data *d, int64_t n, weft_ds *s)
{
    const struct wf_ds *ds = wf_ds_node(d, *s);

    if (ds && !ds->batched)
        *s = weft_ds_batch(d, *s, n, NULL);
    return weft_data_status(d);
}
