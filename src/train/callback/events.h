/* events.h - TensorBoard event files: scalars, histograms, images, text, the graph,
 * hyperparameters.
 *
 * A file is a TFRecord file of Event messages; a directory of them is one run. The caller chooses
 * tags and steps. Data is only guaranteed to be on disk after a flush. */
#ifndef WF_TRAIN_CALLBACK_EVENTS_H
#define WF_TRAIN_CALLBACK_EVENTS_H

#include "train/report/picture.h"
#include "train/train.h"
#include "weft/data_record.h"

struct wf_events {
    weft_ctx *ctx;
    weft_record_writer *file;
    int64_t bytes;        /* of the file, flushed or not */
    struct wf_buf event;  /* the event being built */
    struct wf_buf tail;   /* the file's events from the byte tail_from on: length, then bytes */
    int64_t tail_from;    /* -1: there were too many */
    double (*wall)(void); /* seconds since 1970 */
};

/* Creates the directory if needed and starts the file. */
weft_status wf_events_open(struct wf_events *e, weft_ctx *ctx, const char *path,
                           double (*wall)(void));
weft_status wf_events_flush(struct wf_events *e);
/* Does nothing if the file is not open. */
weft_status wf_events_close(struct wf_events *e);
double wf_wall(void); /* the system clock */
/* The tail begins here: what is written from now on. */
void wf_events_mark(struct wf_events *e);

/* The end of an event file, as the state of a run has it. */
struct wf_events_end {
    int64_t bytes; /* of the file */
    int64_t from;  /* where `tail` begins in it; -1: not known */
    const char *tail;
    int64_t n_tail;
};
/* Makes the file end so: what comes later is removed, and what is missing is written again if the
 * tail has it. *lost: it does not. With `apart` another process may still have the file open: the
 * path gets a copy, which that process does not write to. A file that is absent stays so, unless
 * the tail is all of it; a link is never followed. */
weft_status wf_events_settle(weft_ctx *ctx, const char *path, const struct wf_events_end *end,
                             bool apart, bool *lost);

/* TensorBoard ignores what earlier files of the run contain from this step on. */
weft_status wf_events_start(struct wf_events *e, int64_t step);
weft_status wf_events_scalar(struct wf_events *e, int64_t step, const char *tag, double v);
/* 30 buckets of equal width over the finite values. f32 only; other tensors are skipped. */
weft_status wf_events_histogram(struct wf_events *e, int64_t step, const char *tag,
                                const weft_tensor *t);
/* n images of one size; values[i] has elements of dtype. */
weft_status wf_events_images(struct wf_events *e, int64_t step, const char *tag,
                             const struct wf_picture *p, weft_dtype dtype, int n,
                             const void *const *values);
/* Markdown. */
weft_status wf_events_text(struct wf_events *e, int64_t step, const char *tag, const char *text);

/* A hyperparameter: a number or a text. */
struct wf_hparam {
    const char *name, *text; /* NULL: the number is used */
    double number;
};
/* What all sessions share: names and types of the hyperparameters, and the metrics (tags in runs
 * such as "train") to show with them. */
struct wf_metric_place {
    const char *run, *tag;
};
weft_status wf_events_experiment(struct wf_events *e, int n, const struct wf_hparam *params,
                                 int n_metrics, const struct wf_metric_place *metrics);
weft_status wf_events_session_start(struct wf_events *e, const char *group, int n,
                                    const struct wf_hparam *params);
weft_status wf_events_session_end(struct wf_events *e, bool success);

/* events_graph.c: the model's nodes as a graph, layers as scopes. */
weft_status wf_events_model(struct wf_events *e, weft_model *m);
/* Frames and writes e->event. */
void wf_event_begin(struct wf_events *e, int64_t step);
weft_status wf_event_write(struct wf_events *e);

#endif
