/* shuffle_all.c - a whole addressable dataset in another order, by arithmetic on numbers. */
#include "data/stage/counted.h"

struct shuffle {
    uint64_t seed;
    bool same;
};

static weft_status shuffle_all_get(struct wf_ds *ds, struct wf_worker *w, const struct wf_at *at,
                                   int64_t n, struct wf_block **out)
{
    const struct shuffle *p = ds->param;
    struct wf_permutation perm;
    struct wf_chunk *chunk;
    struct wf_at *to = wf_at_copy(w, at, n, &chunk);
    weft_status st;

    if (!to)
        return wf_env_nomem(w->env, n * (int64_t)sizeof *at, "shuffle_all");
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || at[i].epoch != at[i - 1].epoch)
            wf_permutation_init(&perm, ds->count, p->seed, p->same ? 0 : at[i].epoch);
        to[i].id = wf_permutation_at(&perm, at[i].id);
    }
    st = wf_ds_get_block(ds->in[0], w, to, n, out);
    wf_chunk_unref(chunk);
    return st;
}

static void shuffle_text(const struct wf_ds *ds, struct wf_buf *out)
{
    const struct shuffle *p = ds->param;

    wf_buf_printf(out, "seed=%llu%s", (unsigned long long)p->seed, p->same ? " same" : "");
}

static const struct wf_ds_kind shuffle_all_kind = {
    .name = "shuffle_all",
    .get = shuffle_all_get,
    .text = shuffle_text,
};

weft_ds weft_ds_shuffle_all(weft_data *d, weft_ds s, const weft_shuffle_opts *opts)
{
    weft_shuffle_opts o;
    struct wf_ds *ds = wf_ds_new(d, &shuffle_all_kind, 1, &s, sizeof(struct shuffle));
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_shuffle_opts");

    if (!ds)
        return (weft_ds){0};
    if (!st && !ds->addressable)
        st = wf_err(WEFT_ENOSUP, "%s has no random access: use shuffle with a buffer, or an index",
                    ds->in[0]->name);
    if (!st && ds->count == WEFT_ENDLESS)
        st = wf_err(WEFT_EINVAL, "the dataset has no end: shuffle before repeat");
    if (st)
        return wf_ds_fail(d, "shuffle_all", st);
    *(struct shuffle *)ds->param = (struct shuffle){o.seed, o.same_each_epoch};
    ds->reordered = ds->reordered || !o.same_each_epoch;
    return wf_ds_handle(ds);
}
