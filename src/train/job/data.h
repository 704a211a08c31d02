/* data.h - the plan of a job's data: its stages, what they learn and when, and where the share for
 * validation is taken. */
#ifndef WF_TRAIN_JOB_DATA_H
#define WF_TRAIN_JOB_DATA_H

#include "data/stage/stages.h"
#include "train/job/job.h"

enum wf_job_part { WF_TRAIN, WF_VALIDATION, WF_TEST, WF_N_PARTS };

/* Which parts a stage is for: the attribute `when` that every stage of a job has. */
enum wf_job_when { WF_WHEN_ALL, WF_WHEN_TRAIN, WF_WHEN_EVAL };

/* A stage of the plan. */
struct wf_job_stage {
    const struct wf_stage_row *row;
    enum wf_job_when when;
    const struct wf_yaml_node *item;
    int n_specs;
    struct wf_attr_spec *spec;
    struct wf_attr *value;
    struct wf_stage_items items; /* what it learns */
    int pass; /* what it learns is learned in front of this stage, in one pass with others; -1: none */
};

struct wf_job_plan {
    int n;
    struct wf_job_stage *stage;
    int split_at;  /* the share for validation is taken before this stage */
    int learns_at; /* the first stage that learns from a pass; n: none does */
    int after_at;  /* the first stage that must come after it; n: none must */
};

static inline const struct wf_attr *wf_job_arg(const struct wf_job_stage *s,
                                               const struct wf_attr *value, const char *name)
{
    return wf_attr_find(s->spec, s->n_specs, value, name);
}

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
