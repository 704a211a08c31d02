/* job.h - shared by the files of jobs. */
#ifndef WF_TRAIN_JOB_JOB_H
#define WF_TRAIN_JOB_JOB_H

#include "train/loop/checkpoint.h"
#include "train/train.h"
#include "base/yaml.h"
#include "weft/data_open.h"
#include "weft/dist.h"
#include "weft/job.h"

#define WF_JOB_MAX_CALLBACKS 32

/* One source of data. */
struct wf_job_source {
    struct wf_yaml_node *node; /* NULL: none */
    const char *path, *format, *columns, *label, *weight, *types, *query, *on_error;
    bool index;
    int64_t height, width, channels, skip, take;
};

/* The model, if it is a map: model.def. */
struct wf_job_base {
    struct wf_yaml_node *file_node, *until_node, *freeze, *layers, *outputs;
    const struct wf_yaml_node *weights_node;
    const char *file, *until, *weights, *prefix;
    int drop;
    bool by_name, skip_mismatch;
};

struct weft_job {
    weft_ctx *ctx;
    struct wf_yaml yaml;
    const char *dir;  /* of the file: relative paths start from there */
    const char *text; /* of the file, with overrides as comments at its end */
    const char *name;
    int64_t seed;
    struct wf_job_source train, validation, test;
    int64_t batch, shuffle_buffer;
    bool shuffle;
    double validation_split, test_split;
    const char *validation_by;
    struct wf_yaml_node *pipeline, *model, *callbacks;
    struct wf_job_base base;
    const char *save;
    const char *optimizer, *schedule, *loss, *metrics, *weighted_metrics, *precision, *strategy;
    const char *update, *merge;
    double *class_weights;
    const char *class_weights_output;
    int64_t n_class_weights;
    int64_t epochs, steps_per_epoch, validation_freq, shards, accumulate, every;
    double loss_scale;
    int64_t loss_scale_steps;
    bool trap_numerics, sparse;
    int64_t cluster_evaluators, cluster_servers, cluster_workers, cluster_replicas, cluster_standby,
        cluster_restarts;
    double cluster_timeout, cluster_balance, cluster_stall, cluster_row_cache;
    const char *cluster_placement;
    int64_t cluster_backup, aggregate, total_replicas;
    const char *cluster_transport, *cluster_consistency;
    const char *cluster_store, *store_ca, *store_cert, *store_key;
    const char *checkpoint_dir, *monitor;
    int64_t checkpoint_steps, keep_last, keep_best;
    double checkpoint_seconds, keep_hours;
    const char *log_dir, *log_classes;
    bool log_report, log_csv, log_tensorboard;
    int64_t log_steps, log_histograms, log_images;
    double log_seconds;
    const char *kernels, *simd, *devices, *device_cache;
    bool soft_placement, device_preallocate;
    int64_t threads, data_threads, spin_us, memory_mb, device_memory_mb;
};

struct weft_job_run {
    const weft_job *job;
    weft_ctx *ctx;
    weft_data *data;
    weft_ds train, validation, test;
    weft_model *model;
    weft_trainer *trainer;
    char *base_json;   /* the architecture of model.file when the run started */
    int n_base_layers; /* the model's first layers, which come from it */
    char *settings;    /* as lines, for checkpoints: settings.h */
    bool resumes;      /* from a checkpoint of its own */
    weft_dist *dist;   /* of strategy ps; otherwise NULL */
    int n_callbacks;
    bool loads_late; /* weights of model.file and model.weights: when training begins */
    weft_callback callback[WF_JOB_MAX_CALLBACKS + 4]; /* the job's, then those of log.dir */
    const weft_callback *times;                       /* the one that collects for the report */
    /* The data: data.c, learned.c */
    struct wf_job_plan *plan;
    weft_learned *learned;    /* vocabularies and statistics that the pipeline uses, and more */
    const char *learned_from; /* the checkpoint or file they were read from, or NULL */
    bool known;               /* they were read, and nothing is learned again */
    bool whole;        /* learned by an earlier version: from the share for validation, too */
    bool trained;      /* opened with a trained model: parts are opened on demand */
    bool data_changed; /* since then */
    bool opened[3];
};

/* Items of lists and their arguments (items.c). A value as attribute text: "relu", "[2,2]". */
void wf_job_put_value(struct wf_buf *b, const struct wf_yaml_node *n);
/* The arguments of a YAML map as attribute text: "units=128 activation=relu strides=[2,2]", in the
 * job's arena. skip: keys to omit, separated by blanks, or NULL. */
weft_status wf_job_attrs(const weft_job *job, const struct wf_yaml_node *map, const char *skip,
                         const char **out);
/* "- name", "- name: {…}" or "- name: value" (first argument): the word and the node of its
 * arguments (NULL: none). */
weft_status wf_job_item(const weft_job *job, const struct wf_yaml_node *item, const char **name,
                        struct wf_yaml_node **args);
/* Values, with their purpose for messages (job.c). A list reads as text separated by commas. */
weft_status wf_job_read_number(const weft_job *job, const struct wf_yaml_node *n, const char *what,
                               double min, double max, bool whole, double *out);
weft_status wf_job_read_bool(const weft_job *job, const struct wf_yaml_node *n, const char *what,
                             bool *out);
weft_status wf_job_read_text(const weft_job *job, const struct wf_yaml_node *n, const char *what,
                             const char **out);
weft_status wf_job_unknown_key(const weft_job *job, const struct wf_yaml_node *key,
                               const char *section, const char *const *names, int n);
/* A path of the file, relative to the process. */
const char *wf_job_path(const weft_job *job, const char *path);

/* run.c: the weights of an open checkpoint of the job. */
weft_status wf_job_load_from(weft_job_run *run, weft_ckpt *c);

/* data.c: the sources with their pipeline. */
weft_status wf_job_open_data(weft_job_run *run);
/* The columns of the training data after the pipeline, even if it is not opened. */
weft_status wf_job_columns(const weft_job_run *run, int *n, const weft_column **col);
/* The names of the classes, if the training data is a directory of images; otherwise none. */
weft_status wf_job_classes(const weft_job_run *run, int *n, const char *const **name);
/* log.c: the callbacks of log.dir, and what is written when training ends. */
weft_status wf_job_open_log(weft_job_run *run);
weft_status wf_job_begin_log(const weft_job_run *run);
weft_status wf_job_end_log(weft_job_run *run, const weft_history *h);
/* model.c */
weft_status wf_job_open_model(weft_job_run *run);
/* base.c: the keys below `model`; the model of a file; what is frozen; the initial weights. */
weft_status wf_job_read_model(weft_job *job);
weft_status wf_job_open_base(weft_job_run *run);
weft_status wf_job_freeze(weft_job_run *run);
weft_status wf_job_check_trained(const weft_job_run *run);
weft_status wf_job_load_base(weft_job_run *run);
/* A strategy that holds tables takes them when training begins: by this callback. */
weft_callback wf_job_late_base(weft_job_run *run);

#endif
