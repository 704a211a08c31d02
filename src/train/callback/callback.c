/* callback.c - the table of built-in callbacks, and what several of them share. */
#include <math.h>
#include <stdio.h>

#include "train/callback/callback.h"

static const struct wf_callback_kind kinds[] = {
    {"EarlyStopping",
     "monitor:s=val_loss min_delta:f=0 patience:i=0 mode:s=auto baseline:f=nan "
     "restore_best_weights:b=0 "
     "start_from_epoch:i=0",
     wf_early_stopping_make, "stop when a value has not improved for some epochs"},
    {"ReduceLROnPlateau",
     "monitor:s=val_loss factor:f=0.1 patience:i=10 mode:s=auto min_delta:f=0.0001 cooldown:i=0 "
     "min_lr:f=0",
     wf_plateau_make, "lower the learning rate when a value stops improving"},
    {"LearningRateScheduler", "epochs:l= rates:F= factor:f=nan every:i=1 min_lr:f=0 verbose:i=0",
     wf_rate_scheduler_make,
     "set the learning rate at the start of an epoch: rates for ranges of epochs, or a factor"},
    {"CSVLogger", "filename:s separator:s=comma append:b=0", wf_csv_logger_make,
     "write one row of logs per epoch"},
    {"ModelCheckpoint",
     "filepath:s monitor:s=val_loss verbose:i=0 save_best_only:b=0 save_weights_only:b=0 "
     "mode:s=auto "
     "save_freq:s=epoch initial_value_threshold:f=nan min_delta:f=0",
     wf_model_checkpoint_make,
     "save the model after each epoch, every N batches, or when it is the best so far"},
    {"TensorBoard",
     "log_dir:s=logs histogram_freq:i=0 write_graph:b=1 write_images:b=0 update_freq:s=epoch "
     "write_steps_per_second:b=0 update_seconds:f=0 input_images:i=0",
     wf_tensorboard_make, "write event files for TensorBoard"},
    {"ResetStates", "", wf_reset_states_make,
     "reset the states of stateful layers at the start of each epoch"},
    {"TerminateOnNaN", "", wf_nan_make,
     "stop training when the loss of a batch is NaN or infinite; the run has failed"},
};

bool weft_callback_at(int i, const char **name, const char **attrs, const char **doc)
{
    if (i < 0 || i >= WF_COUNT(kinds))
        return false;
    *name = kinds[i].name;
    *attrs = kinds[i].attrs;
    *doc = kinds[i].doc;
    return true;
}

bool wf_callback_is_own(const weft_callback *cb)
{
    for (int i = 0; i < WF_COUNT(kinds); i++)
        if (cb->name == kinds[i].name) /* the same text, not only an equal one */
            return true;
    return false;
}

static weft_status find_kind(const char *name, const struct wf_callback_kind **out)
{
    const char *names[WF_COUNT(kinds)];

    for (int i = 0; i < WF_COUNT(kinds); i++) {
        names[i] = kinds[i].name;
        if (strcmp(kinds[i].name, name) == 0) {
            *out = &kinds[i];
            return WEFT_OK;
        }
    }
    return wf_err(WEFT_ENOENT, "no callback '%s'%s", name,
                  wf_did_you_mean(name, names, WF_COUNT(kinds)).text);
}

weft_status weft_callback_new_sized(weft_ctx *ctx, const char *spec, size_t size,
                                    weft_callback *out)
{
    struct wf_callback_args a = {.ctx = ctx};
    const struct wf_callback_kind *kind = NULL;
    weft_callback made = {.size = sizeof made};
    size_t n;
    char name[64];
    weft_status st;

    spec += strspn(spec, " ");
    n = strcspn(spec, " ");
    if (n == 0 || n >= sizeof name)
        return wf_err(WEFT_EINVAL, "'%.40s' is not the name of a callback", spec);
    memcpy(name, spec, n);
    name[n] = 0;
    st = find_kind(name, &kind);
    if (st)
        return st;
    wf_arena_init(&a.arena, ctx);
    st = wf_attr_specs(&a.arena, kind->name, kind->attrs, a.spec, &a.n_specs);
    if (!st)
        st = wf_attr_values(&a.arena, kind->name, a.spec, a.n_specs, spec + n, a.value);
    if (!st)
        st = kind->make(&a, &made);
    wf_arena_free(&a.arena);
    if (st)
        return wf_err_wrap(st, "%s", kind->name);
    made.name = kind->name;
    st = wf_opts_give(out, size, &made, sizeof made, "weft_callback");
    if (st && made.free)
        made.free(made.arg);
    return st;
}

void weft_callback_free(weft_callback *cb)
{
    weft_callback c;

    if (!cb || !cb->size || wf_opts_take(&c, sizeof c, cb, "weft_callback"))
        return;
    if (c.free)
        c.free(c.arg);
    memset(cb, 0, cb->size);
}

/* ---- monitoring a value ---------------------------------------------------------------------- */

weft_status wf_monitor_init(struct wf_monitor *m, const struct wf_callback_args *a)
{
    const char *mode = wf_cb_arg(a, "mode")->s;

    *m = (struct wf_monitor){.min_delta = fabs(wf_cb_arg(a, "min_delta")->f)};
    if (snprintf(m->name, sizeof m->name, "%s", wf_cb_arg(a, "monitor")->s) >= (int)sizeof m->name)
        return wf_err(WEFT_EINVAL, "monitor '%s' is too long", wf_cb_arg(a, "monitor")->s);
    if (strcmp(mode, "min") == 0)
        m->sign = -1;
    else if (strcmp(mode, "max") == 0)
        m->sign = 1;
    else if (strcmp(mode, "auto") != 0)
        return wf_err(WEFT_EINVAL, "mode '%s' is not auto, min or max", mode);
    wf_monitor_reset(m);
    return WEFT_OK;
}

void wf_monitor_reset(struct wf_monitor *m)
{
    m->best = NAN;
    m->warned = false;
}

static bool is_logged(const struct wf_bound *b, const char *name)
{
    for (int i = 0; i < b->n_logs; i++)
        if (strcmp(b->log_name[i], name) == 0)
            return true;
    return false;
}

weft_status wf_monitor_direction(struct wf_monitor *m, weft_trainer *t)
{
    const char *name = strncmp(m->name, "val_", 4) == 0 ? m->name + 4 : m->name;
    const struct wf_bound *b = t->bound;
    size_t n = strlen(name);

    if (m->sign)
        return WEFT_OK;
    if (n >= 4 && strcmp(name + n - 4, "loss") == 0)
        m->sign = -1;
    for (int i = 0; b && i < b->n_logs && !m->sign; i++)
        if (strcmp(b->log[i].name, name) == 0 && b->log[i].metric)
            m->sign = wf_metric_direction(b->log[i].metric);
    if (!m->sign && b && !is_logged(b, name)) {
        const char *near = weft_nearest(name, b->log_name, b->n_logs);

        return wf_err(WEFT_EINVAL, "there is no '%s' to monitor%s", m->name,
                      wf_hint_of(name != m->name ? "val_" : "", near).text);
    }
    if (!m->sign)
        return wf_err(WEFT_EINVAL,
                      "cannot tell whether a larger '%s' is better: set mode=min or mode=max",
                      m->name);
    return WEFT_OK;
}

bool wf_monitor_value(struct wf_monitor *m, weft_trainer *t, const weft_logs *logs, const char *who,
                      double *v)
{
    char list[256] = "";
    size_t at = 0;

    *v = weft_logs_get(logs, m->name);
    for (int i = 0; i < logs->n; i++)
        if (strcmp(logs->name[i], m->name) == 0)
            return true;
    for (int i = 0; i < logs->n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", logs->name[i]);
    if (!m->warned)
        wf_log(t->ctx, WEFT_LOG_WARN, "%s: there is no '%s'; there are %s", who, m->name, list);
    m->warned = true;
    return false;
}

bool wf_monitor_better(const struct wf_monitor *m, double v, double than)
{
    return isnan(than) ? !isnan(v) : m->sign * (v - than) > m->min_delta;
}
