/* job.h - what the files of jobs share. */
#ifndef WF_TRAIN_JOB_H
#define WF_TRAIN_JOB_H

#include "train/train.h"
#include "train/yaml.h"
#include "weft/data_open.h"
#include "weft/job.h"

#define WF_JOB_MAX_CALLBACKS 32

/* One source of data. */
struct wf_job_source {
    struct wf_yaml_node *node; /* NULL: none */
    const char *path, *format, *columns, *label, *weight, *types, *query, *on_error;
    bool index;
    int64_t height, width, channels, skip, take;
};

struct weft_job {
    weft_ctx *ctx;
    struct wf_yaml yaml;
    const char *dir;  /* of the file: relative paths count from there */
    const char *text; /* of the file, with overrides as comments at its end */
    const char *name;
    int64_t seed;
    struct wf_job_source train, validation, test;
    int64_t batch, shuffle_buffer;
    bool shuffle;
    double validation_split;
    struct wf_yaml_node *pipeline, *model, *callbacks;
    const char *optimizer, *schedule, *loss, *metrics, *weighted_metrics, *precision, *strategy;
    double *class_weights;
    int64_t n_class_weights;
    int64_t epochs, steps_per_epoch, validation_freq, shards, accumulate;
    bool trap_numerics;
    const char *checkpoint_dir, *monitor;
    int64_t checkpoint_steps, keep_last, keep_best;
    double checkpoint_seconds;
    const char *log_dir, *log_classes;
    bool log_report, log_csv, log_tensorboard;
    int64_t log_steps, log_histograms, log_images;
    double log_seconds;
    const char *kernels, *simd;
    int64_t threads, data_threads, memory_mb;
};

struct weft_job_run {
    const weft_job *job;
    weft_ctx *ctx;
    weft_data *data;
    weft_ds train, validation, test;
    weft_model *model;
    weft_trainer *trainer;
    int n_callbacks;
    weft_callback callback[WF_JOB_MAX_CALLBACKS + 4]; /* the job's, then those of log.dir */
    const weft_callback *times;                       /* the one that collects for the report */
    void *owned[WF_JOB_MAX_CALLBACKS]; /* vocabularies and statistics that pipelines use */
    int n_vocabs;
    struct weft_vocab *vocab[64];
};

/* The arguments of a YAML map as attribute text: "units=128 activation=relu strides=[2,2]", in the job's arena. skip: a key to leave
 * out, or NULL. */
weft_status wf_job_attrs(const weft_job *job, const struct wf_yaml_node *map, const char *skip,
                         const char **out);
/* "- name", "- name: {…}" or "- name: value" (first argument): the word and its arguments' node (NULL: none). */
weft_status wf_job_item(const weft_job *job, const struct wf_yaml_node *item, const char **name,
                        struct wf_yaml_node **args);
/* A path of the file as the process sees it. */
const char *wf_job_path(const weft_job *job, const char *path);

/* job_data.c: the sources with their pipeline. */
weft_status wf_job_open_data(weft_job_run *run);
/* job_log.c: the callbacks of log.dir, and what is written when training has ended. */
weft_status wf_job_open_log(weft_job_run *run);
weft_status wf_job_begin_log(const weft_job_run *run);
weft_status wf_job_end_log(weft_job_run *run, const weft_history *h);
/* job_model.c */
weft_status wf_job_open_model(weft_job_run *run);

#endif
