/* rate_scheduler.c - the callback LearningRateScheduler: sets the rate of each epoch from a user
 * function or a table.
 *
 * It has no state of its own: checkpoints contain the rate, and epoch_begin is not called again for
 * an epoch that a run resumes. */
#include <math.h>

#include "train/callback/callback.h"

struct scheduler {
    weft_ctx *ctx;
    weft_rate_fn *fn;
    void *arg;
    bool verbose;
    /* built from text: steps, or a factor every `every` epochs */
    int n_epochs;
    int64_t *epoch;
    double *rate; /* n_epochs + 1 values */
    double factor, min_lr;
    int64_t every;
};

static double by_steps(void *arg, int64_t epoch, double rate)
{
    const struct scheduler *s = arg;
    int i = 0;

    (void)rate;
    while (i < s->n_epochs && epoch >= s->epoch[i])
        i++;
    return s->rate[i];
}

static double by_factor(void *arg, int64_t epoch, double rate)
{
    const struct scheduler *s = arg;

    if (epoch == 0 || epoch % s->every != 0 || rate <= s->min_lr)
        return rate;
    return fmax(rate * s->factor, s->min_lr);
}

static weft_status begin_epoch(void *arg, weft_trainer *t, int64_t epoch)
{
    const struct scheduler *s = arg;
    double before = weft_trainer_rate(t), rate = s->fn(s->arg, epoch, before);
    weft_status st = rate == before ? WEFT_OK : weft_trainer_set_rate(t, rate);

    if (!st && s->verbose)
        wf_log(s->ctx, WEFT_LOG_INFO,
               "Epoch %lld: LearningRateScheduler setting learning rate to %g.",
               (long long)epoch + 1, rate);
    return st;
}

static weft_status begin_training(void *arg, weft_trainer *t)
{
    (void)arg;
    return t->scheduled
               ? wf_err(WEFT_ESTATE,
                        "the learning rate follows the schedule '%s': use only one of the two",
                        t->optim.schedule)
               : WEFT_OK;
}

static void free_scheduler(void *arg)
{
    struct scheduler *s = arg;

    wf_free(s->ctx, s->epoch);
    wf_free(s->ctx, s->rate);
    wf_free(s->ctx, s);
}

static weft_status make(weft_ctx *ctx, struct scheduler **s, weft_callback *out)
{
    *s = wf_alloc(ctx, sizeof **s);
    if (!*s)
        return wf_err_nomem(ctx, sizeof **s, "a callback");
    (*s)->ctx = ctx;
    out->arg = *s;
    out->train_begin = begin_training;
    out->epoch_begin = begin_epoch;
    out->free = free_scheduler;
    return WEFT_OK;
}

weft_status weft_callback_rate_sized(weft_ctx *ctx, weft_rate_fn *fn, void *arg, size_t size,
                                     weft_callback *out)
{
    weft_callback made = {.size = sizeof made, .name = "LearningRateScheduler"};
    struct scheduler *s;
    weft_status st = fn ? make(ctx, &s, &made) : wf_err(WEFT_EINVAL, "no rate function given");

    if (st)
        return st;
    s->fn = fn;
    s->arg = arg;
    st = wf_opts_give(out, size, &made, sizeof made, "weft_callback");
    if (st)
        free_scheduler(s);
    return st;
}

static weft_status copy_steps(struct scheduler *s, const struct wf_attr *epochs,
                              const struct wf_attr *rates)
{
    if (rates->n != epochs->n + 1)
        return wf_err(WEFT_EINVAL,
                      "%d epochs at which the rate changes need %d rates (one more), got %d",
                      epochs->n, epochs->n + 1, rates->n);
    s->epoch = wf_alloc_n(s->ctx, epochs->n + 1, sizeof *s->epoch);
    s->rate = wf_alloc_n(s->ctx, rates->n, sizeof *s->rate);
    if (!s->epoch || !s->rate)
        return wf_err_nomem(s->ctx, 0, "a callback");
    s->n_epochs = epochs->n;
    for (int i = 0; i < rates->n; i++) {
        s->rate[i] = rates->floats[i];
        if (!(s->rate[i] >= 0) || !isfinite(s->rate[i]))
            return wf_err(WEFT_EINVAL, "rate %g", s->rate[i]);
    }
    for (int i = 0; i < epochs->n; i++) {
        s->epoch[i] = epochs->ints[i];
        if (s->epoch[i] <= (i ? s->epoch[i - 1] : 0))
            return wf_err(WEFT_EINVAL,
                          "epochs must be increasing and at least 1, got %lld after %lld",
                          (long long)s->epoch[i], (long long)(i ? s->epoch[i - 1] : 0));
    }
    return WEFT_OK;
}

weft_status wf_rate_scheduler_make(const struct wf_callback_args *a, weft_callback *out)
{
    const struct wf_attr *epochs = wf_cb_arg(a, "epochs"), *rates = wf_cb_arg(a, "rates");
    struct scheduler *s;
    weft_status st = make(a->ctx, &s, out);

    if (st)
        return st;
    s->arg = s;
    s->verbose = wf_cb_arg(a, "verbose")->i != 0;
    s->factor = wf_cb_arg(a, "factor")->f;
    s->every = wf_cb_arg(a, "every")->i;
    s->min_lr = wf_cb_arg(a, "min_lr")->f;
    s->fn = rates->n ? by_steps : by_factor;
    if (!rates->n && !epochs->n && isnan(s->factor))
        st = wf_err(WEFT_EINVAL, "give rates (with epochs) or a factor (with every)");
    else if (rates->n || epochs->n)
        st = isnan(s->factor) ? copy_steps(s, epochs, rates)
                              : wf_err(WEFT_EINVAL, "give either rates or a factor, not both");
    else if (!(s->factor > 0) || !isfinite(s->factor) || s->every < 1)
        st = wf_err(WEFT_EINVAL, "factor %g every %lld epochs", s->factor, (long long)s->every);
    if (st) {
        free_scheduler(s);
        out->arg = NULL;
    }
    return st;
}
