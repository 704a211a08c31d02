/* add_feature.c - builders of the rows that change columns. */
#include "data/stage/stages.h"

static const char *columns(const struct wf_adding *a)
{
    return wf_stage_arg_text(a, "columns");
}

weft_ds wf_add_select(struct wf_adding *a)
{
    return weft_ds_select(a->d, a->s, columns(a));
}

weft_ds wf_add_rename(struct wf_adding *a)
{
    return weft_ds_rename(a->d, a->s, wf_stage_arg_text(a, "column"), wf_stage_arg_text(a, "to"));
}

weft_ds wf_add_copy(struct wf_adding *a)
{
    return weft_ds_copy(a->d, a->s, wf_stage_arg_text(a, "column"), wf_stage_arg_text(a, "to"));
}

weft_ds wf_add_label(struct wf_adding *a)
{
    return weft_ds_role(a->d, a->s, columns(a), WEFT_LABEL);
}

weft_ds wf_add_weight(struct wf_adding *a)
{
    return weft_ds_role(a->d, a->s, columns(a), WEFT_WEIGHT);
}

weft_ds wf_add_feature(struct wf_adding *a)
{
    return weft_ds_role(a->d, a->s, columns(a), WEFT_FEATURE);
}

weft_ds wf_add_rescale(struct wf_adding *a)
{
    return weft_ds_rescale(a->d, a->s, columns(a), wf_stage_arg_float(a, "scale"),
                           wf_stage_arg_float(a, "offset"), wf_stage_arg_dtype(a, "dtype"));
}

weft_ds wf_add_cast(struct wf_adding *a)
{
    return weft_ds_cast(a->d, a->s, columns(a), wf_stage_arg_dtype(a, "dtype"));
}

weft_ds wf_add_clip(struct wf_adding *a)
{
    return weft_ds_clip(a->d, a->s, columns(a), wf_stage_arg_float(a, "low"),
                        wf_stage_arg_float(a, "high"));
}

weft_ds wf_add_log1p(struct wf_adding *a)
{
    return weft_ds_log1p(a->d, a->s, columns(a));
}

weft_ds wf_add_fill(struct wf_adding *a)
{
    return weft_ds_fill(a->d, a->s, columns(a), wf_stage_arg_float(a, "value"));
}

weft_ds wf_add_bucketize(struct wf_adding *a)
{
    const struct wf_attr *b = wf_stage_arg(a, "boundaries");

    return weft_ds_bucketize(a->d, a->s, columns(a), b->n, b->floats);
}

weft_ds wf_add_hash(struct wf_adding *a)
{
    return weft_ds_hash(a->d, a->s, columns(a), wf_stage_arg_int(a, "buckets"),
                        (uint64_t)wf_stage_arg_int(a, "seed"));
}

weft_ds wf_add_cross(struct wf_adding *a)
{
    return weft_ds_cross(a->d, a->s, columns(a), wf_stage_arg_int(a, "buckets"),
                         (uint64_t)wf_stage_arg_int(a, "seed"), wf_stage_arg_text(a, "to"));
}

weft_ds wf_add_slice(struct wf_adding *a)
{
    return weft_ds_slice(a->d, a->s, columns(a), wf_stage_arg_int(a, "first"),
                         wf_stage_arg_int(a, "n"));
}

weft_ds wf_add_one_hot(struct wf_adding *a)
{
    return weft_ds_one_hot(a->d, a->s, columns(a), wf_stage_arg_int(a, "depth"),
                           WEFT_OPTS(weft_ds_one_hot_opts, .dtype = wf_stage_arg_dtype(a, "dtype"),
                                     .lenient = wf_stage_arg_bool(a, "lenient")));
}

weft_ds wf_add_join(struct wf_adding *a)
{
    return weft_ds_join(a->d, a->s, columns(a), wf_stage_arg_text(a, "to"),
                        wf_stage_arg_dtype(a, "dtype"));
}

/* ---- with what was learned ------------------------------------------------------------------- */

static weft_ds not_learned(const struct wf_adding *a, const char *item)
{
    return wf_ds_fail(a->d, a->row->name,
                      wf_err(WEFT_EINVAL,
                             "%s has not learned '%s': the stage is new or was changed since; "
                             "train again with another checkpoint.dir",
                             a->learned_from ? a->learned_from : "the training data", item));
}

weft_ds wf_add_standardize(struct wf_adding *a)
{
    const weft_stats *stats = weft_learned_stats(a->learned, a->items.name[0]);

    return stats ? weft_ds_standardize(a->d, a->s, columns(a), stats)
                 : not_learned(a, a->items.name[0]);
}

weft_ds wf_add_fill_mean(struct wf_adding *a)
{
    const weft_stats *stats = weft_learned_stats(a->learned, a->items.name[0]);

    return stats ? weft_ds_fill_mean(a->d, a->s, columns(a), stats)
                 : not_learned(a, a->items.name[0]);
}

static bool in_list(const char *list, const char *column)
{
    const char *name;
    size_t n;

    while (wf_next_name(&list, &name, &n))
        if (strlen(column) == n && memcmp(name, column, n) == 0)
            return true;
    return false;
}

/* Each column has words of its own. The list may lack columns that this part of the data has
 * not. */
weft_ds wf_add_lookup(struct wf_adding *a)
{
    int64_t n_unknown = wf_stage_arg_int(a, "unknown");
    weft_ds s = a->s;

    for (int i = 0; i < a->items.n && !weft_data_status(a->d); i++) {
        const weft_vocab *v = weft_learned_vocab(a->learned, a->items.name[i]);

        if (!v)
            return not_learned(a, a->items.name[i]);
        if (!in_list(columns(a), a->items.column[i]))
            continue;
        s = weft_ds_lookup(
            a->d, s, a->items.column[i], v,
            WEFT_OPTS(weft_lookup_opts, .n_unknown = n_unknown ? n_unknown : WEFT_ZERO));
    }
    return s;
}
