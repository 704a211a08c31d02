/* data.h - the plan of a job's data: its stages, what they learn and when, and where the share for
 * validation is taken. */
#ifndef WF_TRAIN_JOB_DATA_H
#define WF_TRAIN_JOB_DATA_H

#include "train/job/job.h"
#include "weft/data_feature.h"

enum wf_job_part { WF_TRAIN, WF_VALIDATION, WF_TEST, WF_N_PARTS };

/* What a stage does, besides changing columns. */
enum {
    WF_STAGE_STATS = 1,   /* learns statistics of its columns */
    WF_STAGE_WORDS = 2,   /* learns a vocabulary of each column, unless it is in a file */
    WF_STAGE_ROWS = 4,    /* other samples than before: fewer, or stacks of them */
    WF_STAGE_STACKS = 8,  /* … of neighbors: samples chosen at random would not be neighbors */
    WF_STAGE_RANDOM = 32, /* changes samples at random, anew in each epoch: for training alone */
    WF_STAGE_READS = 16,  /* leaves the columns that it names as they are; `to` alone is new */
    WF_STAGE_LEARNS = WF_STAGE_STATS | WF_STAGE_WORDS
};

/* A stage being added to one part. */
struct wf_job_stage;
struct wf_job_adding {
    weft_job_run *run;
    weft_ds s;
    const struct wf_job_stage *stage;
    struct wf_attr value[WF_MAX_ATTRS];
};

/* A row of the table (stages.c). */
struct wf_job_stage_kind {
    const char *name, *attrs;
    weft_ds (*add)(struct wf_job_adding *g);
    const char *doc;
    int does;
};
weft_status wf_job_find_stage(const weft_job *job, const struct wf_yaml_node *at, const char *name,
                              const struct wf_job_stage_kind **out);

/* A stage of the plan. */
struct wf_job_stage {
    const struct wf_job_stage_kind *kind;
    const struct wf_yaml_node *item;
    int n_specs;
    struct wf_attr_spec *spec;
    struct wf_attr *value;
    /* What it learns: the items' names, and the column of each (statistics: all columns, as a list). */
    int n_items;
    const char **name, **column;
    int pass; /* what it learns is learned in front of this stage, in one pass with others; -1: none */
};

struct wf_job_plan {
    int n;
    struct wf_job_stage *stage;
    int split_at; /* the share for validation is taken in front of this stage */
};

static inline const struct wf_attr *wf_job_arg(const struct wf_job_stage *s,
                                               const struct wf_attr *value, const char *name)
{
    return wf_attr_find(s->spec, s->n_specs, value, name);
}

/* The next name of a list with commas, blanks around it left out; false past the end. */
bool wf_job_next_name(const char **at, const char **name, size_t *n);

/* learned.c */

/* Items of the learned values that are not a stage's. */
#define WF_LEARNED_SOURCE "data.train" /* columns of the source */
#define WF_LEARNED_COLUMNS "columns"   /* columns that the model sees */
#define WF_LEARNED_CLASSES "classes"   /* folders of images */
#define WF_LEARNED_JOB "job"           /* the pipeline, loss and metrics, as a job file */
#define WF_LEARNED_FINGERPRINT "data.fingerprint" /* of the training data's files */

/* Names what the stage learns, in the plan's arena. */
weft_status wf_job_name_items(weft_job_run *run, struct wf_job_plan *p, int i);
/* Learned values that the run goes on with or that a trained model has: then run->known. */
weft_status wf_job_look_back(weft_job_run *run);
/* What the stages whose pass is in front of stage i learn from s. */
weft_status wf_job_learn(weft_job_run *run, const struct wf_job_plan *p, int i, weft_ds s);
/* What the source of the training data tells; and the columns behind the pipeline. */
weft_status wf_job_learn_source(weft_job_run *run);
weft_status wf_job_learn_columns(weft_job_run *run);
/* The part of the job that the model carries (carried.c). */
weft_status wf_job_carry(weft_job_run *run);
/* Types and classes of a source as training had them, into the options. */
weft_status wf_job_source_like_training(weft_job_run *run, const struct wf_job_source *src,
                                        weft_open_opts *o);
/* Is this a label (or weight) of the training data, which data to be predicted may lack? */
bool wf_job_may_lack(const weft_job_run *run, const char *column);

#endif
