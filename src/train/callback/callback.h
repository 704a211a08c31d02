/* callback.h - built-in callbacks: a row says what one takes and how it is made. */
#ifndef WF_TRAIN_CALLBACK_CALLBACK_H
#define WF_TRAIN_CALLBACK_CALLBACK_H

#include "train/train.h"

/* A callback being made from its text. */
struct wf_callback_args {
    weft_ctx *ctx;
    struct wf_arena arena; /* until it is made */
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

/* ---- monitoring a value ---------------------------------------------------------------------- */

/* Is it better than before? The direction is "min", "max", or found from the value's name. */
struct wf_monitor {
    char name[64];
    int sign; /* 1: larger is better; -1: smaller is; 0: not known yet */
    double min_delta, best;
    bool warned;
};
weft_status wf_monitor_init(struct wf_monitor *m, const struct wf_callback_args *a);
/* Nothing has been seen yet: a fit begins. */
void wf_monitor_reset(struct wf_monitor *m);
/* The monitored value; false when the logs lack it, which is said once in the log. */
bool wf_monitor_value(struct wf_monitor *m, weft_trainer *t, const weft_logs *logs, const char *who,
                      double *v);
bool wf_monitor_better(const struct wf_monitor *m, double v, double than);
/* A direction for mode "auto": an error when nobody knows. */
weft_status wf_monitor_direction(struct wf_monitor *m, weft_trainer *t);

/* Did training end with the weights of an earlier epoch (from 0), which this callback restored? */
bool wf_early_stopping_restored(const weft_callback *cb, int64_t *epoch);

#endif
