/* settings.h - the settings of a run as they were trained, kept in its checkpoints. */
#ifndef WF_TRAIN_JOB_SETTINGS_H
#define WF_TRAIN_JOB_SETTINGS_H

#include "train/train.h"

#define WF_CKPT_SETTINGS "settings.txt" /* one line per key: train.epochs=3 */
#define WF_CKPT_JOB "job.yaml"          /* the file, with overrides and later changes as comments */

#define WF_SET_CONTENT ".content" /* after the key of a file: what is in it, as a number */

/* What a changed key means to a run that has begun. */
enum wf_setting_use {
    WF_SET_TRAINING, /* how training continues: the rest of the run uses it */
    WF_SET_MODEL, /* what the weights mean: for a complete run, nothing computed from them would be
                   * valid */
    WF_SET_START, /* read once, when a run starts */
    WF_SET_FREE   /* outputs, resources and how long: every command uses its own */
};
enum wf_setting_use wf_setting_use(const char *key);
bool wf_setting_content(const char *key); /* whether it ends with WF_SET_CONTENT */

/* Calls fn for each key whose value differs, except WF_SET_FREE keys, sorted by name. A missing key
 * has its default, and the content of a file that is missing on one side is not compared. then and
 * now have the format of WF_CKPT_SETTINGS. */
typedef void wf_setting_fn(void *arg, const char *key, enum wf_setting_use use, const char *was,
                           const char *is);
weft_status wf_settings_compare(weft_ctx *ctx, const char *then, const char *now, wf_setting_fn *fn,
                                void *arg);

/* job.c: the lines of a job, freed with weft_text_free; and the default of a key, "" if there is
 * none, NULL if the key is unknown. */
struct weft_job;
weft_status wf_job_settings(weft_ctx *ctx, const struct weft_job *job, char **out);
const char *wf_job_key_default(const char *key);

#endif
