/* add_rows.c - builders of the rows that choose, order, stack and keep samples. */
#include "data/stage/stages.h"

/* Samples by the number in a column. */
weft_ds wf_add_filter(struct wf_adding *a)
{
    const struct wf_attr *in = wf_stage_arg(a, "in"), *min = wf_stage_arg(a, "min"),
                         *max = wf_stage_arg(a, "max");

    return weft_ds_where(a->d, a->s, wf_stage_arg_text(a, "column"),
                         WEFT_OPTS(weft_where_opts, .n_values = in->given ? in->n : 0,
                                   .values = in->floats, .min = min->given ? &min->f : NULL,
                                   .max = max->given ? &max->f : NULL,
                                   .others = wf_stage_arg_bool(a, "invert")));
}

weft_ds wf_add_take(struct wf_adding *a)
{
    return weft_ds_take(a->d, a->s, wf_stage_arg_int(a, "n"));
}

weft_ds wf_add_skip(struct wf_adding *a)
{
    return weft_ds_skip(a->d, a->s, wf_stage_arg_int(a, "n"));
}

weft_ds wf_add_shard(struct wf_adding *a)
{
    return weft_ds_shard(a->d, a->s, wf_stage_arg_int(a, "n"), wf_stage_arg_int(a, "i"));
}

weft_ds wf_add_sample(struct wf_adding *a)
{
    const struct wf_attr *weights = wf_stage_arg(a, "weights");
    int64_t n = weft_ds_count(a->d, a->s);

    if (weights->n && weights->n != n)
        return wf_ds_fail(
            a->d, "sample",
            wf_err(WEFT_EINVAL, "%d weights for %lld elements", weights->n, (long long)n));
    return weft_ds_sample(a->d, a->s, wf_stage_arg_int(a, "n"),
                          WEFT_OPTS(weft_sample_opts, .seed = wf_stage_arg_seed(a),
                                    .replacement = wf_stage_arg_bool(a, "replacement"),
                                    .weights = weights->n ? weights->floats : NULL,
                                    .same_each_epoch = wf_stage_arg_bool(a, "same_each_epoch")));
}

weft_ds wf_add_repeat(struct wf_adding *a)
{
    return weft_ds_repeat(a->d, a->s, wf_stage_arg_int(a, "times"));
}

weft_ds wf_add_shuffle(struct wf_adding *a)
{
    return weft_ds_shuffle(a->d, a->s, wf_stage_arg_int(a, "buffer"),
                           WEFT_OPTS(weft_shuffle_opts, .seed = wf_stage_arg_seed(a),
                                     .same_each_epoch = wf_stage_arg_bool(a, "same_each_epoch")));
}

weft_ds wf_add_shuffle_all(struct wf_adding *a)
{
    return weft_ds_shuffle_all(
        a->d, a->s,
        WEFT_OPTS(weft_shuffle_opts, .seed = wf_stage_arg_seed(a),
                  .same_each_epoch = wf_stage_arg_bool(a, "same_each_epoch")));
}

weft_ds wf_add_enumerate(struct wf_adding *a)
{
    return weft_ds_enumerate(a->d, a->s, wf_stage_arg_int(a, "first"));
}

/* ---- stacks ---------------------------------------------------------------------------------- */

weft_ds wf_add_window(struct wf_adding *a)
{
    return weft_ds_window(a->d, a->s, wf_stage_arg_int(a, "size"),
                          WEFT_OPTS(weft_window_opts, .shift = wf_stage_arg_int(a, "shift"),
                                    .stride = wf_stage_arg_int(a, "stride"),
                                    .drop_remainder = wf_stage_arg_bool(a, "drop_remainder")));
}

weft_ds wf_add_batch(struct wf_adding *a)
{
    return weft_ds_batch(a->d, a->s, wf_stage_arg_int(a, "size"),
                         WEFT_OPTS(weft_batch_opts,
                                   .drop_remainder = wf_stage_arg_bool(a, "drop_remainder"),
                                   .ragged = wf_stage_arg_bool(a, "ragged")));
}

/* What fills the columns named, in the pipeline's arena. */
static weft_status read_pads(const struct wf_adding *a, weft_padded_batch_opts *o)
{
    const struct wf_attr *length = wf_stage_arg(a, "length");
    const struct wf_ds *ds = wf_ds_node(a->d, a->s);
    const char *list = wf_stage_arg_text(a, "columns"), *text = wf_stage_arg_text(a, "text");
    weft_pad_column *pad;
    int *col, n;
    weft_status st;

    *o = (weft_padded_batch_opts){.size = sizeof *o,
                                  .drop_remainder = wf_stage_arg_bool(a, "drop_remainder"),
                                  .lengths = wf_stage_arg_bool(a, "lengths")};
    if (length->n > WEFT_MAX_RANK)
        return wf_err(WEFT_EINVAL, "length: %d sizes, at most %d can be given", length->n,
                      WEFT_MAX_RANK);
    if (!*list || !ds)
        return WEFT_OK;
    st = wf_ds_columns_named(ds, list, &col, &n);
    if (st)
        return st;
    pad = wf_arena_alloc(&a->d->arena, (size_t)n * sizeof *pad);
    if (!pad)
        return wf_err_nomem(a->d->ctx, (size_t)n * sizeof *pad, "padding");
    for (int i = 0; i < n; i++) {
        pad[i] = (weft_pad_column){.column = ds->col[col[i]].name,
                                   .value = wf_stage_arg_float(a, "value"),
                                   .text = *text ? text : NULL};
        for (int k = 0; k < length->n; k++)
            pad[i].length[k] = length->ints[k];
    }
    o->n_pads = n;
    o->pads = pad;
    return WEFT_OK;
}

weft_ds wf_add_padded_batch(struct wf_adding *a)
{
    weft_padded_batch_opts o;
    weft_status st = read_pads(a, &o);

    return st ? wf_ds_fail(a->d, "padded_batch", st)
              : weft_ds_padded_batch(a->d, a->s, wf_stage_arg_int(a, "size"), &o);
}

weft_ds wf_add_bucket_by_length(struct wf_adding *a)
{
    const struct wf_attr *bounds = wf_stage_arg(a, "bounds"), *sizes = wf_stage_arg(a, "sizes");
    weft_padded_batch_opts o;
    weft_status st = read_pads(a, &o);

    if (!st && sizes->n != bounds->n + 1)
        st = wf_err(WEFT_EINVAL, "%d bounds need %d sizes, not %d", bounds->n, bounds->n + 1,
                    sizes->n);
    return st ? wf_ds_fail(a->d, "bucket_by_length", st)
              : weft_ds_bucket_by_length(a->d, a->s, wf_stage_arg_text(a, "column"), bounds->n,
                                         bounds->ints, sizes->ints, &o);
}

weft_ds wf_add_unbatch(struct wf_adding *a)
{
    return weft_ds_unbatch(a->d, a->s);
}

/* ---- keeping --------------------------------------------------------------------------------- */

weft_ds wf_add_cache(struct wf_adding *a)
{
    int in = wf_stage_arg_word(a, "in", "auto memory file");
    const char *path = wf_stage_arg_output(a, "path");

    return in < 0
               ? (weft_ds){0}
               : weft_ds_cache(a->d, a->s,
                               WEFT_OPTS(weft_cache_opts, .in = (weft_cache_in)in, .path = path));
}

weft_ds wf_add_snapshot(struct wf_adding *a)
{
    const char *path = wf_stage_arg_output(a, "path"), *key = wf_stage_arg_text(a, "key");

    return weft_ds_snapshot(a->d, a->s, path,
                            WEFT_OPTS(weft_snapshot_opts, .key = *key ? key : NULL));
}

weft_ds wf_add_prefetch(struct wf_adding *a)
{
    return weft_ds_prefetch(a->d, a->s, wf_stage_arg_int(a, "n"));
}
