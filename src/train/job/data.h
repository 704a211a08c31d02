/* data.h - the plan of a job's data: its stages, what they learn and when, and where the validation
 * share is taken. */
#ifndef WF_TRAIN_JOB_DATA_H
#define WF_TRAIN_JOB_DATA_H

#include "data/stage/stages.h"
#include "train/job/job.h"

enum wf_job_part { WF_TRAIN, WF_VALIDATION, WF_TEST, WF_N_PARTS };

/* Which parts a stage applies to: the attribute `when` that every stage of a job has. */
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
    int pass; /* it learns before this stage, in one pass with others; -1: never */
};

struct wf_job_plan {
    int n;
    struct wf_job_stage *stage;
    int split_at;  /* the validation share is taken before this stage */
    int learns_at; /* the first stage that needs a pass to learn; n: none does */
    int after_at;  /* the first stage that must come after the split; n: none must */
};

static inline const struct wf_attr *wf_job_arg(const struct wf_job_stage *s,
                                               const struct wf_attr *value, const char *name)
{
    return wf_attr_find(s->spec, s->n_specs, value, name);
}

/* learned.c */

/* Learned items that do not belong to a stage. */
#define WF_LEARNED_SOURCE "data.train" /* columns of the source */
#define WF_LEARNED_COLUMNS "columns"   /* columns the model sees */
#define WF_LEARNED_CLASSES "classes"   /* directories of images */
#define WF_LEARNED_JOB "job"           /* the pipeline, loss and metrics, as a job file */
#define WF_LEARNED_FINGERPRINT "data.fingerprint" /* of the training data's files */

/* Names what the stage learns, in the plan's arena. */
weft_status wf_job_name_items(weft_job_run *run, struct wf_job_plan *p, int i);
/* Loads what a resumed run or a trained model has learned; run->known if there is any. */
weft_status wf_job_look_back(weft_job_run *run);
/* Learns from s the items of the stages whose pass comes before stage i. */
weft_status wf_job_learn(weft_job_run *run, const struct wf_job_plan *p, int i, weft_ds s);
/* Records what the source of the training data says, and the columns after the pipeline. */
weft_status wf_job_learn_source(weft_job_run *run);
weft_status wf_job_learn_columns(weft_job_run *run);
/* The part of the job saved with the model (carried.c). */
weft_status wf_job_carry(weft_job_run *run);
/* Sets the options to the types and classes that a source had in training. */
weft_status wf_job_source_like_training(weft_job_run *run, const struct wf_job_source *src,
                                        weft_open_opts *o);
/* Whether this is a label (or weight) of the training data; data to be predicted may lack it. */
bool wf_job_may_lack(const weft_job_run *run, const char *column);

#endif
