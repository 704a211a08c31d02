/* callback.h - built-in callbacks: one table row gives a callback's arguments and how to create
 * it. */
#ifndef WF_TRAIN_CALLBACK_CALLBACK_H
#define WF_TRAIN_CALLBACK_CALLBACK_H

#include "train/train.h"

/* A callback being created from its text. */
struct wf_callback_args {
    weft_ctx *ctx;
    struct wf_arena arena; /* until it is created */
    int n_specs;
    struct wf_attr_spec spec[WF_MAX_ATTRS];
    struct wf_attr value[WF_MAX_ATTRS];
};
struct wf_callback_kind {
    const char *name, *attrs;
    weft_status (*make)(const struct wf_callback_args *a, weft_callback *out);
    const char *doc;
};
static inline const struct wf_attr *wf_cb_arg(const struct wf_callback_args *a, const char *name)
{
    return wf_attr_find(a->spec, a->n_specs, a->value, name);
}

weft_status wf_early_stopping_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_plateau_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_rate_scheduler_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_reset_states_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_csv_logger_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_model_checkpoint_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_tensorboard_make(const struct wf_callback_args *a, weft_callback *out);
weft_status wf_nan_make(const struct wf_callback_args *a, weft_callback *out);

/* Whether it is one of the table: after a batch they write, or end training, and change nothing
 * else. */
bool wf_callback_is_own(const weft_callback *cb);

/* ---- monitoring a value ---------------------------------------------------------------------- */

/* Tracks whether a value improves. The direction is "min", "max", or derived from the value's
 * name. */
struct wf_monitor {
    char name[64];
    int sign; /* 1: larger is better; -1: smaller is better; 0: not known yet */
    double min_delta, best;
    bool warned;
};
weft_status wf_monitor_init(struct wf_monitor *m, const struct wf_callback_args *a);
/* Forgets all values seen so far: a new fit begins. */
void wf_monitor_reset(struct wf_monitor *m);
/* The monitored value. Returns false, and warns once in the log, when the logs do not contain
 * it. */
bool wf_monitor_value(struct wf_monitor *m, weft_trainer *t, const weft_logs *logs, const char *who,
                      double *v);
bool wf_monitor_better(const struct wf_monitor *m, double v, double than);
/* Finds the direction for mode "auto"; an error if the value's name does not tell. */
weft_status wf_monitor_direction(struct wf_monitor *m, weft_trainer *t);

/* Whether training ended with the weights of an earlier epoch (from 0), restored by this
 * callback. */
bool wf_early_stopping_restored(const weft_callback *cb, int64_t *epoch);

#endif
