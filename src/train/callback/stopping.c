/* stopping.c - callbacks that watch a value: EarlyStopping, ReduceLROnPlateau, TerminateOnNaN. */
#include <math.h>
#include <stdio.h>

#include "train/callback/callback.h"
#include "train/step/dist.h"

/* State of a callback as numbers, for checkpoints. */
static weft_status save_numbers(weft_ctx *ctx, const double *v, int n, char **state, int64_t *bytes)
{
    struct wf_buf b;

    wf_buf_init(&b, ctx, 1 << 20);
    wf_buf_add(&b, v, n * (int64_t)sizeof *v);
    if (b.st) {
        wf_buf_free(&b);
        return wf_err_nomem(ctx, (size_t)n * sizeof *v, "the state of a callback");
    }
    *state = b.data;
    *bytes = b.len;
    return WEFT_OK;
}

static weft_status load_numbers(double *v, int n, const char *state, int64_t bytes)
{
    if (bytes != n * (int64_t)sizeof *v)
        return wf_err(WEFT_EPARSE, "the saved state has %lld bytes, not %d", (long long)bytes,
                      n * (int)sizeof *v);
    memcpy(v, state, (size_t)bytes);
    return WEFT_OK;
}

/* ---- EarlyStopping --------------------------------------------------------------------------- */

struct early {
    weft_ctx *ctx;
    struct wf_monitor monitor;
    int64_t patience, start_from, wait, best_epoch;
    double baseline;
    bool restore_best;
    bool restored; /* training ended with the weights of best_epoch */
    char *best;    /* the weights of the best epoch, concatenated; servers keep those of the tables
                    * that they hold */
    int64_t best_bytes;
    weft_trainer *t; /* of the fit under way; NULL: none yet */
};

/* Whether parameter servers hold the weight; and the rows that a table in memory counts. */
static bool is_away(const weft_trainer *t, const char *name)
{
    const struct wf_segment *seg = wf_weight_segment(t, name);

    return seg && seg->remote && wf_dist_together(t);
}

static struct wf_seen *seen_of(const weft_trainer *t, const char *name, int64_t *n)
{
    const struct wf_segment *seg = wf_weight_segment(t, name);

    *n = seg && seg->seen ? seg->type.dim[0] : 0;
    return *n ? seg->seen : NULL;
}

static bool any_away(const weft_trainer *t)
{
    for (int i = 0; i < weft_trainer_n_weights(t); i++)
        if (is_away(t, weft_trainer_weight_name(t, i)))
            return true;
    return false;
}

/* Of a table that forgets rows with a byte for each: whether it existed. */
static int64_t weight_bytes(weft_trainer *t)
{
    int64_t bytes = 0, n;

    for (int i = 0; i < weft_trainer_n_weights(t); i++) {
        const char *name = weft_trainer_weight_name(t, i);
        weft_tensor w;

        if (!is_away(t, name) && !weft_trainer_weight(t, name, &w))
            bytes += weft_tensor_bytes(&w);
        (void)seen_of(t, name, &n);
        bytes += n;
    }
    return bytes;
}

/* Which rows of a table exist. A row that was forgotten since, and gets its value again, counts as
 * updated by the last step. */
static char *copy_seen(const weft_trainer *t, const char *name, char *p, bool out)
{
    int64_t n;
    struct wf_seen *seen = seen_of(t, name, &n);

    for (int64_t i = 0; i < n; i++)
        if (out)
            p[i] = seen[i].count > 0;
        else if (p[i] && seen[i].count == 0)
            wf_see(&seen[i], weft_trainer_step(t));
    return p + n;
}

/* Copies all weights out of or into the trainer. */
static weft_status copy_weights(weft_trainer *t, char *p, bool out)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < weft_trainer_n_weights(t) && !st; i++) {
        const char *name = weft_trainer_weight_name(t, i);
        weft_tensor w;

        if (is_away(t, name))
            continue;
        st = weft_trainer_weight(t, name, &w);
        if (st)
            break;
        if (out)
            memcpy(p, w.data, (size_t)weft_tensor_bytes(&w));
        else
            memcpy(w.data, p, (size_t)weft_tensor_bytes(&w));
        p = copy_seen(t, name, p + weft_tensor_bytes(&w), out);
    }
    return st;
}

static weft_status keep_best(struct early *e, weft_trainer *t)
{
    weft_status st;

    if (!e->restore_best)
        return WEFT_OK;
    if (!e->best) {
        e->best_bytes = weight_bytes(t);
        e->best = wf_alloc(e->ctx, (size_t)e->best_bytes + 1);
        if (!e->best)
            return wf_err_nomem(e->ctx, (size_t)e->best_bytes, "the best weights");
    }
    st = copy_weights(t, e->best, true);
    return st || !any_away(t) ? st : wf_dist_keep(t);
}

/* Servers keep one version of their tables. */
static weft_status claim_tables(struct early *e, weft_trainer *t)
{
    e->t = t;
    if (!e->restore_best || !any_away(t))
        return WEFT_OK;
    if (wf_dist_leased(t))
        return wf_err(WEFT_ENOSUP,
                      "restore_best_weights: servers hold tables, and do not restore them in "
                      "asynchronous training: train synchronously, or without it");
    if (t->keeper && t->keeper != e)
        return wf_err(WEFT_ENOSUP,
                      "restore_best_weights: servers hold tables, and keep their best values for "
                      "one callback; there are two");
    t->keeper = e;
    return WEFT_OK;
}

static weft_status early_begin(void *arg, weft_trainer *t)
{
    struct early *e = arg;
    weft_status st;

    wf_monitor_reset(&e->monitor);
    e->wait = e->best_epoch = 0;
    e->restored = false;
    wf_free(e->ctx, e->best);
    e->best = NULL;
    st = claim_tables(e, t);
    return st ? st : wf_monitor_direction(&e->monitor, t);
}

static weft_status early_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct early *e = arg;
    double v;
    weft_status st;

    e->restored = false; /* a run that had ended is trained further */
    if (epoch < e->start_from || !wf_monitor_value(&e->monitor, t, logs, "EarlyStopping", &v))
        return WEFT_OK;
    if (e->restore_best && !e->best) { /* the first weights are the best so far */
        st = keep_best(e, t);
        if (st)
            return st;
        e->best_epoch = epoch;
    }
    e->wait++;
    if (wf_monitor_better(&e->monitor, v, e->monitor.best)) {
        e->monitor.best = v;
        e->best_epoch = epoch;
        st = keep_best(e, t);
        if (st)
            return st;
        if (isnan(e->baseline) || wf_monitor_better(&e->monitor, v, e->baseline))
            e->wait = 0;
        return WEFT_OK;
    }
    if (e->wait >= e->patience && epoch > 0) {
        wf_log(e->ctx, WEFT_LOG_INFO, "Epoch %lld: early stopping", (long long)epoch + 1);
        weft_trainer_stop(t);
    }
    return WEFT_OK;
}

static weft_status early_end(void *arg, weft_trainer *t, const weft_logs *logs)
{
    struct early *e = arg;
    weft_status st;

    (void)logs;
    if (!e->best)
        return WEFT_OK;
    if (e->best_bytes != weight_bytes(t))
        return wf_err(WEFT_ESTATE, "the best weights have %lld bytes, the model's %lld",
                      (long long)e->best_bytes, (long long)weight_bytes(t));
    if (e->restored && any_away(t)) /* by a run that has ended: the checkpoint has them */
        return WEFT_OK;
    if (t->pauses && any_away(t)) { /* the run that resumes will */
        wf_log(e->ctx, WEFT_LOG_INFO,
               "Training is interrupted: the weights of epoch %lld, the best so far, stay with the "
               "servers and in the checkpoint.",
               (long long)e->best_epoch + 1);
        return WEFT_OK;
    }
    wf_log(e->ctx, WEFT_LOG_INFO, "Restoring model weights from the end of the best epoch: %lld.",
           (long long)e->best_epoch + 1);
    e->restored = true;
    st = copy_weights(t, e->best, false);
    return st || !any_away(t) ? st : wf_dist_restore(t);
}

bool wf_early_stopping_restored(const weft_callback *cb, int64_t *epoch)
{
    const struct early *e = cb->arg;

    if (cb->train_end != early_end || !e->restored)
        return false;
    *epoch = e->best_epoch;
    return true;
}

static weft_status early_save(void *arg, char **state, int64_t *n)
{
    struct early *e = arg;
    double v[4] = {e->monitor.best, (double)e->wait, (double)e->best_epoch,
                   e->best ? e->restored ? 2 : 1 : 0};
    struct wf_buf b;

    wf_buf_init(&b, e->ctx, (int64_t)1 << 40);
    wf_buf_add(&b, v, sizeof v);
    if (e->best)
        wf_buf_add(&b, e->best, e->best_bytes);
    if (b.st) {
        wf_buf_free(&b);
        return wf_err_nomem(e->ctx, (size_t)e->best_bytes, "the state of EarlyStopping");
    }
    *state = b.data;
    *n = b.len;
    return WEFT_OK;
}

static weft_status early_restore(void *arg, const char *state, int64_t n)
{
    struct early *e = arg;
    double v[4];

    if (n < (int64_t)sizeof v)
        return wf_err(WEFT_EPARSE, "the saved state of EarlyStopping is truncated");
    memcpy(v, state, sizeof v);
    e->monitor.best = v[0];
    e->wait = (int64_t)v[1];
    e->best_epoch = (int64_t)v[2];
    wf_free(e->ctx, e->best);
    e->best = NULL;
    e->restored = v[3] == 2;
    if (v[3] == 0)
        return WEFT_OK;
    e->best_bytes = n - (int64_t)sizeof v;
    if (e->t && e->t->bound && e->t->bound->fit && e->best_bytes != weight_bytes(e->t))
        return wf_err(WEFT_EINVAL,
                      "EarlyStopping has kept best weights of %lld bytes; here they have %lld. Of "
                      "tables that parameter servers hold, the servers keep them: resume with the "
                      "strategy that the checkpoint was written with, or without EarlyStopping",
                      (long long)e->best_bytes, (long long)weight_bytes(e->t));
    e->best = wf_alloc(e->ctx, (size_t)e->best_bytes + 1);
    if (!e->best)
        return wf_err_nomem(e->ctx, (size_t)e->best_bytes, "the best weights");
    memcpy(e->best, state + sizeof v, (size_t)e->best_bytes);
    return WEFT_OK;
}

static void early_free(void *arg)
{
    struct early *e = arg;

    wf_free(e->ctx, e->best);
    wf_free(e->ctx, e);
}

weft_status wf_early_stopping_make(const struct wf_callback_args *a, weft_callback *out)
{
    struct early *e = wf_alloc(a->ctx, sizeof *e);
    weft_status st;

    if (!e)
        return wf_err_nomem(a->ctx, sizeof *e, "a callback");
    e->ctx = a->ctx;
    e->patience = wf_cb_arg(a, "patience")->i;
    e->start_from = wf_cb_arg(a, "start_from_epoch")->i;
    e->baseline = wf_cb_arg(a, "baseline")->f;
    e->restore_best = wf_cb_arg(a, "restore_best_weights")->i;
    st = wf_monitor_init(&e->monitor, a);
    if (!st && e->patience < 0)
        st = wf_err(WEFT_EINVAL, "patience %lld", (long long)e->patience);
    if (st) {
        early_free(e);
        return st;
    }
    out->arg = e;
    out->train_begin = early_begin;
    out->epoch_end = early_epoch;
    out->train_end = early_end;
    out->save = early_save;
    out->restore = early_restore;
    out->free = early_free;
    return WEFT_OK;
}

/* ---- ReduceLROnPlateau ----------------------------------------------------------------------- */

struct plateau {
    weft_ctx *ctx;
    struct wf_monitor monitor;
    double factor, min_lr;
    int64_t patience, cooldown, wait, cooling;
};

static weft_status plateau_begin(void *arg, weft_trainer *t)
{
    struct plateau *p = arg;

    wf_monitor_reset(&p->monitor);
    p->wait = p->cooling = 0;
    return wf_monitor_direction(&p->monitor, t);
}

static weft_status plateau_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct plateau *p = arg;
    double v, rate;

    if (!wf_monitor_value(&p->monitor, t, logs, "ReduceLROnPlateau", &v))
        return WEFT_OK;
    if (p->cooling > 0) {
        p->cooling--;
        p->wait = 0;
    }
    if (wf_monitor_better(&p->monitor, v, p->monitor.best)) {
        p->monitor.best = v;
        p->wait = 0;
        return WEFT_OK;
    }
    if (p->cooling > 0 || ++p->wait < p->patience)
        return WEFT_OK;
    rate = weft_trainer_rate(t);
    if (rate <= p->min_lr)
        return WEFT_OK;
    rate = fmax(rate * p->factor, p->min_lr);
    p->cooling = p->cooldown;
    p->wait = 0;
    wf_log(p->ctx, WEFT_LOG_INFO, "Epoch %lld: ReduceLROnPlateau reducing learning rate to %g.",
           (long long)epoch + 1, rate);
    return weft_trainer_set_rate(t, rate);
}

static weft_status plateau_save(void *arg, char **state, int64_t *n)
{
    struct plateau *p = arg;
    double v[3] = {p->monitor.best, (double)p->wait, (double)p->cooling};

    return save_numbers(p->ctx, v, 3, state, n);
}

static weft_status plateau_restore(void *arg, const char *state, int64_t n)
{
    struct plateau *p = arg;
    double v[3];
    weft_status st = load_numbers(v, 3, state, n);

    if (st)
        return st;
    p->monitor.best = v[0];
    p->wait = (int64_t)v[1];
    p->cooling = (int64_t)v[2];
    return WEFT_OK;
}

static void plateau_free(void *arg)
{
    struct plateau *p = arg;

    wf_free(p->ctx, p);
}

weft_status wf_plateau_make(const struct wf_callback_args *a, weft_callback *out)
{
    struct plateau *p = wf_alloc(a->ctx, sizeof *p);
    weft_status st;

    if (!p)
        return wf_err_nomem(a->ctx, sizeof *p, "a callback");
    p->ctx = a->ctx;
    p->factor = wf_cb_arg(a, "factor")->f;
    p->min_lr = wf_cb_arg(a, "min_lr")->f;
    p->patience = wf_cb_arg(a, "patience")->i;
    p->cooldown = wf_cb_arg(a, "cooldown")->i;
    st = wf_monitor_init(&p->monitor, a);
    if (!st && (p->factor >= 1 || p->factor <= 0))
        st = wf_err(WEFT_EINVAL, "factor %g is not between 0 and 1", p->factor);
    if (st) {
        plateau_free(p);
        return st;
    }
    out->arg = p;
    out->train_begin = plateau_begin;
    out->epoch_end = plateau_epoch;
    out->save = plateau_save;
    out->restore = plateau_restore;
    out->free = plateau_free;
    return WEFT_OK;
}

/* ---- TerminateOnNaN -------------------------------------------------------------------------- */

static weft_status nan_batch(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    double loss = weft_logs_get(logs, "loss");

    (void)arg;
    if (isfinite(loss))
        return WEFT_OK;
    wf_log(t->ctx, WEFT_LOG_WARN, "Batch %lld: Invalid loss, terminating training",
           (long long)batch);
    weft_trainer_stop(t);
    return WEFT_OK;
}

weft_status wf_nan_make(const struct wf_callback_args *a, weft_callback *out)
{
    (void)a;
    out->batch_end = nan_batch;
    return WEFT_OK;
}
