/* stages.c - the stages of data.pipeline: a table, and what each adds to a part of the data. */
#include <stdio.h>

#include "train/job/data.h"
#include "weft/data_image.h"

static const struct wf_attr *arg(const struct wf_job_adding *g, const char *name)
{
    return wf_job_arg(g->stage, g->value, name);
}
static const char *columns(const struct wf_job_adding *g)
{
    return arg(g, "columns")->s;
}

/* Is it a label that this part does not have? */
static bool lacks(const struct wf_job_adding *g, const char *column)
{
    const struct wf_ds *ds = wf_ds_node(g->run->data, g->s);

    return ds && wf_ds_find(ds, column) < 0 && wf_job_may_lack(g->run, column);
}

/* ---- the stages ------------------------------------------------------------------------------ */

static weft_ds add_select(struct wf_job_adding *g)
{
    return weft_ds_select(g->run->data, g->s, columns(g));
}
static weft_ds add_copy(struct wf_job_adding *g)
{
    return weft_ds_copy(g->run->data, g->s, arg(g, "column")->s, arg(g, "to")->s);
}
static weft_ds add_rename(struct wf_job_adding *g)
{
    return weft_ds_rename(g->run->data, g->s, arg(g, "column")->s, arg(g, "to")->s);
}
static weft_ds add_label(struct wf_job_adding *g)
{
    return weft_ds_role(g->run->data, g->s, columns(g), WEFT_LABEL);
}
static weft_ds add_rescale(struct wf_job_adding *g)
{
    return weft_ds_rescale(g->run->data, g->s, columns(g), arg(g, "scale")->f, arg(g, "offset")->f,
                           (weft_dtype)arg(g, "dtype")->i);
}
static weft_ds add_cast(struct wf_job_adding *g)
{
    return weft_ds_cast(g->run->data, g->s, columns(g), (weft_dtype)arg(g, "dtype")->i);
}
static weft_ds add_clip(struct wf_job_adding *g)
{
    return weft_ds_clip(g->run->data, g->s, columns(g), arg(g, "low")->f, arg(g, "high")->f);
}
static weft_ds add_log1p(struct wf_job_adding *g)
{
    return weft_ds_log1p(g->run->data, g->s, columns(g));
}
static weft_ds add_fill(struct wf_job_adding *g)
{
    return weft_ds_fill(g->run->data, g->s, columns(g), arg(g, "value")->f);
}
static weft_ds add_bucketize(struct wf_job_adding *g)
{
    const struct wf_attr *b = arg(g, "boundaries");

    return weft_ds_bucketize(g->run->data, g->s, columns(g), b->n, b->floats);
}
static weft_ds add_hash(struct wf_job_adding *g)
{
    return weft_ds_hash(g->run->data, g->s, columns(g), arg(g, "buckets")->i,
                        (uint64_t)arg(g, "seed")->i);
}
static weft_ds add_cross(struct wf_job_adding *g)
{
    return weft_ds_cross(g->run->data, g->s, columns(g), arg(g, "buckets")->i,
                         (uint64_t)arg(g, "seed")->i, arg(g, "to")->s);
}
/* Short windows at the end are left out: a model takes one length. */
static weft_ds add_window(struct wf_job_adding *g)
{
    return weft_ds_window(g->run->data, g->s, arg(g, "size")->i,
                          WEFT_OPTS(weft_window_opts, .shift = arg(g, "shift")->i,
                                    .stride = arg(g, "stride")->i, .drop_remainder = true));
}
static weft_ds add_slice(struct wf_job_adding *g)
{
    return weft_ds_slice(g->run->data, g->s, columns(g), arg(g, "first")->i, arg(g, "n")->i);
}
static weft_ds add_one_hot(struct wf_job_adding *g)
{
    return weft_ds_one_hot(g->run->data, g->s, columns(g), arg(g, "depth")->i, NULL);
}
static weft_ds add_join(struct wf_job_adding *g)
{
    return weft_ds_join(g->run->data, g->s, columns(g), arg(g, "to")->s, WEFT_F32);
}
/* Samples by the number in a column. */
static weft_ds add_filter(struct wf_job_adding *g)
{
    const struct wf_attr *in = arg(g, "in"), *min = arg(g, "min"), *max = arg(g, "max");

    return weft_ds_where(g->run->data, g->s, arg(g, "column")->s,
                         WEFT_OPTS(weft_where_opts, .n_values = in->given ? in->n : 0,
                                   .values = in->floats, .min = min->given ? &min->f : NULL,
                                   .max = max->given ? &max->f : NULL,
                                   .others = arg(g, "invert")->i != 0));
}
static weft_ds add_cache(struct wf_job_adding *g)
{
    return weft_ds_cache(g->run->data, g->s, NULL);
}
static weft_ds add_flip(struct wf_job_adding *g)
{
    return weft_ds_image_random_flip(g->run->data, g->s, arg(g, "column")->s, 0.5, 0,
                                     (uint64_t)g->run->job->seed);
}

/* ---- what was learned ------------------------------------------------------------------------ */

static weft_ds not_learned(const struct wf_job_adding *g, int i)
{
    const struct wf_job_stage *s = g->stage;

    return wf_ds_fail(
        g->run->data, s->kind->name,
        wf_err(WEFT_EINVAL,
               "%s has not learned '%s': the stage is new or was changed since; train anew "
               "with another checkpoint.dir",
               g->run->learned_from ? g->run->learned_from : "the training data", s->name[i]));
}

static weft_ds add_standardize(struct wf_job_adding *g)
{
    const weft_stats *stats = weft_learned_stats(g->run->learned, g->stage->name[0]);

    return stats ? weft_ds_standardize(g->run->data, g->s, columns(g), stats) : not_learned(g, 0);
}
static weft_ds add_fill_mean(struct wf_job_adding *g)
{
    const weft_stats *stats = weft_learned_stats(g->run->learned, g->stage->name[0]);

    return stats ? weft_ds_fill_mean(g->run->data, g->s, columns(g), stats) : not_learned(g, 0);
}

/* Ids of words. Each column has words of its own. */
static weft_ds add_lookup(struct wf_job_adding *g)
{
    weft_data *d = g->run->data;
    int64_t n_unknown = arg(g, "unknown")->i;
    weft_ds s = g->s;

    for (int i = 0; i < g->stage->n_items && !weft_data_status(d); i++) {
        const weft_vocab *v = weft_learned_vocab(g->run->learned, g->stage->name[i]);
        const char *column = g->stage->column[i];

        if (!v)
            return not_learned(g, i);
        if (lacks(g, column))
            continue;
        s = weft_ds_lookup(
            d, s, column, v,
            WEFT_OPTS(weft_lookup_opts, .n_unknown = n_unknown ? n_unknown : WEFT_ZERO));
    }
    return s;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct wf_job_stage_kind stages[] = {
    {"select", "columns:s", add_select, "keep these columns, in this order", WF_STAGE_READS},
    {"rename", "column:s to:s", add_rename, "another name", 0},
    {"copy", "column:s to:s", add_copy, "the column once more, under another name", WF_STAGE_READS},
    {"label", "columns:s", add_label, "these columns are labels", WF_STAGE_READS},
    {"rescale", "columns:s scale:f=1 offset:f=0 dtype:t=f32", add_rescale, "x * scale + offset", 0},
    {"cast", "columns:s dtype:t=f32", add_cast, "another dtype; text is read as a number", 0},
    {"clip", "columns:s low:f high:f", add_clip, "min(max(x, low), high)", 0},
    {"log1p", "columns:s", add_log1p, "log(1 + x)", 0},
    {"fill", "columns:s value:f=0", add_fill, "missing numbers become a value", 0},
    {"fill_mean", "columns:s", add_fill_mean, "missing numbers become the training data's mean",
     WF_STAGE_STATS},
    {"standardize", "columns:s", add_standardize, "(x - mean) / deviation of the training data",
     WF_STAGE_STATS},
    {"bucketize", "columns:s boundaries:F", add_bucketize, "which bucket a number falls into", 0},
    {"hash", "columns:s buckets:i seed:i=0", add_hash, "text or integers into buckets", 0},
    {"cross", "columns:s buckets:i to:s seed:i=0", add_cross,
     "columns of text or integers together into buckets", WF_STAGE_READS},
    {"lookup", "columns:s vocabulary:s= top:i=0 unknown:i=1", add_lookup,
     "ids of words, by a file or the training data's words; unknown 0: another word is an error",
     WF_STAGE_WORDS},
    {"one_hot", "columns:s depth:i", add_one_hot, "ids as vectors", 0},
    {"join", "columns:s to:s=features", add_join, "columns end to end as one vector", 0},
    {"window", "size:i shift:i=0 stride:i=1", add_window,
     "stacks of neighbouring samples; the next one begins `shift` further, 0: size",
     WF_STAGE_ROWS | WF_STAGE_STACKS},
    {"slice", "columns:s first:i=0 n:i=0", add_slice,
     "rows of stacks: n from `first` on (< 0: from the end); n 0: the rest", 0},
    {"filter", "column:s=label in:F=[] min:f=0 max:f=0 invert:b=0", add_filter,
     "samples whose number is one of these, or in a range", WF_STAGE_ROWS},
    {"cache", "", add_cache, "keep what was read and made so far in memory, if it fits", 0},
    {"random_flip", "column:s=image", add_flip,
     "images, left and right at random; training data alone", WF_STAGE_RANDOM},
};

bool weft_job_stage_at(int i, const char **name, const char **attrs, const char **doc)
{
    if (i < 0 || i >= WF_COUNT(stages))
        return false;
    *name = stages[i].name;
    *attrs = stages[i].attrs;
    *doc = stages[i].doc;
    return true;
}

weft_status wf_job_find_stage(const weft_job *job, const struct wf_yaml_node *at, const char *name,
                              const struct wf_job_stage_kind **out)
{
    const char *names[WF_COUNT(stages)], *near;

    for (int i = 0; i < WF_COUNT(stages); i++) {
        names[i] = stages[i].name;
        if (strcmp(stages[i].name, name) == 0) {
            *out = &stages[i];
            return WEFT_OK;
        }
    }
    near = weft_nearest(name, names, WF_COUNT(stages));
    return wf_yaml_err(&job->yaml, at, WEFT_ENOENT, "no stage '%s'%s%s%s", name,
                       near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
}
