/* job_data.c - the sources of a job, and the stages of data.pipeline that all samples pass. */
#include <stdio.h>

#include "train/job.h"
#include "weft/data_feature.h"
#include "weft/data_image.h"
#include "weft/data_split.h"

/* A stage being added. */
struct stage {
    weft_job_run *run;
    weft_ds s;
    weft_ds
        train; /* the training data as it stands here: statistics and vocabularies come from it */
    int n_specs;
    struct wf_attr_spec spec[WF_MAX_ATTRS];
    struct wf_attr value[WF_MAX_ATTRS];
};

static const struct wf_attr *arg(const struct stage *g, const char *name)
{
    return wf_attr_find(g->spec, g->n_specs, g->value, name);
}
static const char *columns(const struct stage *g)
{
    return arg(g, "columns")->s;
}

/* ---- the stages ------------------------------------------------------------------------------ */

static weft_ds add_select(struct stage *g)
{
    return weft_ds_select(g->run->data, g->s, columns(g));
}
static weft_ds add_copy(struct stage *g)
{
    return weft_ds_copy(g->run->data, g->s, arg(g, "column")->s, arg(g, "to")->s);
}
static weft_ds add_rename(struct stage *g)
{
    return weft_ds_rename(g->run->data, g->s, arg(g, "column")->s, arg(g, "to")->s);
}
static weft_ds add_label(struct stage *g)
{
    return weft_ds_role(g->run->data, g->s, columns(g), WEFT_LABEL);
}
static weft_ds add_rescale(struct stage *g)
{
    return weft_ds_rescale(g->run->data, g->s, columns(g), arg(g, "scale")->f, arg(g, "offset")->f,
                           (weft_dtype)arg(g, "dtype")->i);
}
static weft_ds add_cast(struct stage *g)
{
    return weft_ds_cast(g->run->data, g->s, columns(g), (weft_dtype)arg(g, "dtype")->i);
}
static weft_ds add_clip(struct stage *g)
{
    return weft_ds_clip(g->run->data, g->s, columns(g), arg(g, "low")->f, arg(g, "high")->f);
}
static weft_ds add_log1p(struct stage *g)
{
    return weft_ds_log1p(g->run->data, g->s, columns(g));
}
static weft_ds add_fill(struct stage *g)
{
    return weft_ds_fill(g->run->data, g->s, columns(g), arg(g, "value")->f);
}
static weft_ds add_bucketize(struct stage *g)
{
    const struct wf_attr *b = arg(g, "boundaries");

    return weft_ds_bucketize(g->run->data, g->s, columns(g), b->n, b->floats);
}
static weft_ds add_hash(struct stage *g)
{
    return weft_ds_hash(g->run->data, g->s, columns(g), arg(g, "buckets")->i,
                        (uint64_t)arg(g, "seed")->i);
}
static weft_ds add_cross(struct stage *g)
{
    return weft_ds_cross(g->run->data, g->s, columns(g), arg(g, "buckets")->i,
                         (uint64_t)arg(g, "seed")->i, arg(g, "to")->s);
}
/* Short windows at the end are left out: a model takes one length. */
static weft_ds add_window(struct stage *g)
{
    return weft_ds_window(g->run->data, g->s, arg(g, "size")->i,
                          WEFT_OPTS(weft_window_opts, .shift = arg(g, "shift")->i,
                                    .stride = arg(g, "stride")->i, .drop_remainder = true));
}
static weft_ds add_slice(struct stage *g)
{
    return weft_ds_slice(g->run->data, g->s, columns(g), arg(g, "first")->i, arg(g, "n")->i);
}
static weft_ds add_one_hot(struct stage *g)
{
    return weft_ds_one_hot(g->run->data, g->s, columns(g), arg(g, "depth")->i, NULL);
}
static weft_ds add_join(struct stage *g)
{
    return weft_ds_join(g->run->data, g->s, columns(g), arg(g, "to")->s, WEFT_F32);
}
/* Samples by the number in a column. */
static weft_ds add_filter(struct stage *g)
{
    const struct wf_attr *in = arg(g, "in"), *min = arg(g, "min"), *max = arg(g, "max");

    return weft_ds_where(g->run->data, g->s, arg(g, "column")->s,
                         WEFT_OPTS(weft_where_opts, .n_values = in->given ? in->n : 0,
                                   .values = in->floats, .min = min->given ? &min->f : NULL,
                                   .max = max->given ? &max->f : NULL,
                                   .others = arg(g, "invert")->i != 0));
}
static weft_ds add_cache(struct stage *g)
{
    return weft_ds_cache(g->run->data, g->s, NULL);
}
static weft_ds add_flip(struct stage *g)
{
    return weft_ds_image_random_flip(g->run->data, g->s, arg(g, "column")->s, true, false,
                                     (uint64_t)g->run->job->seed);
}

/* Statistics of the training data, computed in one pass. */
static weft_ds standardize(struct stage *g, bool fill)
{
    weft_data *d = g->run->data;
    weft_stats *stats = NULL;
    weft_ds s = {0};
    weft_status st =
        weft_ds_stats(d, g->train, WEFT_OPTS(weft_stats_opts, .columns = columns(g)), &stats);

    if (st)
        return wf_ds_fail(d, "statistics", st);
    s = fill ? weft_ds_fill_mean(d, g->s, columns(g), stats)
             : weft_ds_standardize(d, g->s, columns(g), stats);
    weft_stats_free(stats);
    return s;
}
static weft_ds add_standardize(struct stage *g)
{
    return standardize(g, false);
}
static weft_ds add_fill_mean(struct stage *g)
{
    return standardize(g, true);
}

/* Ids of words: the vocabulary of a file, or the training data's words in that column. */
static weft_ds lookup_column(struct stage *g, weft_ds s, const char *column)
{
    weft_job_run *run = g->run;
    const char *file = arg(g, "vocabulary")->s;
    weft_vocab *v = NULL;
    int64_t n_unknown;
    weft_status st;

    if (run->n_vocabs == WF_COUNT(run->vocab))
        return wf_ds_fail(run->data, "lookup", wf_err(WEFT_ELIMIT, "too many vocabularies"));
    if (file && *file)
        st = weft_vocab_read(run->ctx, wf_job_path(run->job, file), &v);
    else
        st = weft_vocab_count(run->data, g->train, column,
                              WEFT_OPTS(weft_vocab_opts, .top = arg(g, "top")->i), &v);
    if (st)
        return wf_ds_fail(run->data, "lookup", st);
    run->vocab[run->n_vocabs++] = v;
    n_unknown = arg(g, "unknown")->i;
    return weft_ds_lookup(
        run->data, s, column, v,
        WEFT_OPTS(weft_lookup_opts, .n_unknown = n_unknown ? n_unknown : WEFT_ZERO));
}

/* Each column has words of its own. */
static weft_ds add_lookup(struct stage *g)
{
    char name[WF_COUNT(g->run->vocab)][WF_NAME_MAX];
    int n = wf_names_split(columns(g), name, WF_COUNT(name));
    weft_ds s = g->s;

    if (n < 1)
        return wf_ds_fail(
            g->run->data, "lookup",
            wf_err(WEFT_EINVAL, "'%s' names %s", columns(g), n ? "too many columns" : "no column"));
    for (int i = 0; i < n && !weft_data_status(g->run->data); i++)
        s = lookup_column(g, s, name[i]);
    return s;
}

static const struct stage_kind {
    const char *name, *attrs;
    weft_ds (*add)(struct stage *g);
    const char *doc;
} stages[] = {
    {"select", "columns:s", add_select, "keep these columns, in this order"},
    {"rename", "column:s to:s", add_rename, "another name"},
    {"copy", "column:s to:s", add_copy, "the column once more, under another name"},
    {"label", "columns:s", add_label, "these columns are labels"},
    {"rescale", "columns:s scale:f=1 offset:f=0 dtype:t=f32", add_rescale, "x * scale + offset"},
    {"cast", "columns:s dtype:t=f32", add_cast, "another dtype; text is read as a number"},
    {"clip", "columns:s low:f high:f", add_clip, "min(max(x, low), high)"},
    {"log1p", "columns:s", add_log1p, "log(1 + x)"},
    {"fill", "columns:s value:f=0", add_fill, "missing numbers become a value"},
    {"fill_mean", "columns:s", add_fill_mean, "missing numbers become the training data's mean"},
    {"standardize", "columns:s", add_standardize, "(x - mean) / deviation of the training data"},
    {"bucketize", "columns:s boundaries:F", add_bucketize, "which bucket a number falls into"},
    {"hash", "columns:s buckets:i seed:i=0", add_hash, "text or integers into buckets"},
    {"cross", "columns:s buckets:i to:s seed:i=0", add_cross,
     "columns of text or integers together into buckets"},
    {"lookup", "columns:s vocabulary:s= top:i=0 unknown:i=1", add_lookup,
     "ids of words, by a file or the training data's words; unknown 0: another word is an error"},
    {"one_hot", "columns:s depth:i", add_one_hot, "ids as vectors"},
    {"join", "columns:s to:s=features", add_join, "columns end to end as one vector"},
    {"window", "size:i shift:i=0 stride:i=1", add_window,
     "stacks of neighbouring samples; the next one begins `shift` further, 0: size"},
    {"slice", "columns:s first:i=0 n:i=0", add_slice,
     "rows of stacks: n from `first` on (< 0: from the end); n 0: the rest"},
    {"filter", "column:s=label in:F=[] min:f=0 max:f=0 invert:b=0", add_filter,
     "samples whose number is one of these, or in a range"},
    {"cache", "", add_cache, "keep what was read and made so far in memory, if it fits"},
    {"random_flip", "column:s=image", add_flip, "images, left and right at random"},
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

/* ---- sources --------------------------------------------------------------------------------- */

static weft_status open_source(weft_job_run *run, const struct wf_job_source *src, weft_ds *out)
{
    const weft_job *job = run->job;
    weft_format format = WEFT_FORMAT_UNKNOWN;
    bool skip = src->on_error && strcmp(src->on_error, "skip") == 0;
    weft_status st;

    if (!src->node)
        return WEFT_OK;
    if (src->format && (format = weft_format_parse(src->format)) == WEFT_FORMAT_UNKNOWN)
        return wf_yaml_err(&job->yaml, src->node, WEFT_EINVAL, "no format '%s'", src->format);
    if (src->on_error && !skip && strcmp(src->on_error, "stop") != 0)
        return wf_yaml_err(&job->yaml, src->node, WEFT_EINVAL, "on_error is stop or skip, not '%s'",
                           src->on_error);
    *out = weft_ds_open(run->data, src->path,
                        WEFT_OPTS(weft_open_opts, .format = format, .columns = src->columns,
                                  .label = src->label, .weight = src->weight, .types = src->types,
                                  .query = src->query, .index = src->index, .height = src->height,
                                  .width = src->width, .channels = (int)src->channels,
                                  .on_error = skip ? WEFT_ON_ERROR_SKIP : WEFT_ON_ERROR_STOP));
    if (src->skip)
        *out = weft_ds_skip(run->data, *out, src->skip);
    if (src->take)
        *out = weft_ds_take(run->data, *out, src->take);
    st = weft_data_status(run->data);
    if (st)
        wf_yaml_wrap(&job->yaml, src->node, st);
    return st;
}

static weft_status find_stage(const weft_job *job, const struct wf_yaml_node *at, const char *name,
                              const struct stage_kind **out)
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

/* One stage over one source. */
static weft_status add_stage(weft_job_run *run, const struct stage_kind *kind,
                             const struct wf_yaml_node *item, const char *attrs, weft_ds train,
                             weft_ds *s)
{
    struct stage g = {.run = run, .s = *s, .train = train};
    struct wf_arena *arena = &run->data->arena;
    weft_status st = wf_attr_specs(arena, kind->name, kind->attrs, g.spec, &g.n_specs);

    if (!st)
        st = wf_attr_values(arena, kind->name, g.spec, g.n_specs, attrs, g.value);
    if (!st) {
        *s = kind->add(&g);
        st = weft_data_status(run->data);
    }
    if (st)
        return wf_yaml_wrap(&run->job->yaml, item, st);
    return WEFT_OK;
}

static weft_status add_stages(weft_job_run *run)
{
    const struct wf_yaml_node *list = run->job->pipeline;
    weft_status st = WEFT_OK;

    if (!list || (list->kind == WF_YAML_SCALAR && !*list->text))
        return WEFT_OK;
    if (list->kind != WF_YAML_LIST)
        return wf_yaml_err(&run->job->yaml, list, WEFT_EINVAL, "data.pipeline is a list of stages");
    for (int64_t i = 0; i < list->n && !st; i++) {
        const struct stage_kind *kind = NULL;
        struct wf_yaml_node *args = NULL;
        const char *name = NULL, *attrs = NULL;
        weft_ds train = run->train, *each[3] = {&run->train, &run->validation, &run->test};

        st = wf_job_item(run->job, list->item[i], &name, &args);
        if (!st)
            st = find_stage(run->job, list->item[i], name, &kind);
        if (!st)
            st = wf_job_attrs(run->job, args, NULL, &attrs);
        for (int k = 0; k < 3 && !st; k++)
            if (each[k]->id)
                st = add_stage(run, kind, list->item[i], attrs, train, each[k]);
    }
    return st;
}

weft_status wf_job_open_data(weft_job_run *run)
{
    const weft_job *job = run->job;
    weft_status st = weft_data_new(run->ctx, &run->data);

    if (!st)
        st = open_source(run, &job->train, &run->train);
    if (!st)
        st = open_source(run, &job->validation, &run->validation);
    if (!st)
        st = open_source(run, &job->test, &run->test);
    if (!st)
        st = add_stages(run);
    if (!st && job->validation_split > 0 && strcmp(job->validation_by, "random") == 0)
        st = weft_ds_holdout(
            run->data, run->train, job->validation_split,
            WEFT_OPTS(weft_holdout_opts, .hashed = true, .seed = (uint64_t)job->seed), &run->train,
            &run->validation);
    if (!st && job->shuffle && !weft_ds_addressable(run->data, run->train)) {
        run->train = weft_ds_shuffle(run->data, run->train, job->shuffle_buffer,
                                     WEFT_OPTS(weft_shuffle_opts, .seed = (uint64_t)job->seed));
        st = weft_data_status(run->data);
    }
    return st;
}
