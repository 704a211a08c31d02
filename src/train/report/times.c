/* times.c - how long each epoch took, for the report; saved in checkpoints, so that a resumed run
 * has the times of all epochs. */
#include "train/report/report.h"

struct times {
    weft_ctx *ctx;
    struct wf_times_row *row;
    int64_t n, cap;
};

static weft_status times_begin(void *arg, weft_trainer *t)
{
    struct times *s = arg;

    (void)t;
    s->n = 0;
    return WEFT_OK;
}

static weft_status times_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    struct times *s = arg;
    const weft_times *e = &t->times;
    weft_status st = wf_grow(s->ctx, &s->row, &s->cap, s->n + 1, sizeof *s->row);

    (void)logs;
    if (st)
        return st;
    s->row[s->n++] = (struct wf_times_row){epoch,
                                           e->steps,
                                           e->train_s,
                                           e->wait_s,
                                           e->validate_s,
                                           e->stall_s,
                                           weft_trainer_used_rate(t)};
    return WEFT_OK;
}

static weft_status times_save(void *arg, char **state, int64_t *n)
{
    struct times *s = arg;

    *n = s->n * (int64_t)sizeof *s->row;
    *state = wf_alloc(s->ctx, (size_t)*n + 1);
    if (!*state)
        return wf_err_nomem(s->ctx, (size_t)*n, "the times of epochs");
    if (*n)
        memcpy(*state, s->row, (size_t)*n);
    return WEFT_OK;
}

static weft_status times_restore(void *arg, const char *state, int64_t n)
{
    struct times *s = arg;
    int64_t rows = n / (int64_t)sizeof *s->row;
    weft_status st;

    if (n % (int64_t)sizeof *s->row)
        return wf_err(WEFT_EPARSE, "the saved times of epochs have %lld bytes", (long long)n);
    st = wf_grow(s->ctx, &s->row, &s->cap, rows, sizeof *s->row);
    if (st)
        return st;
    if (n)
        memcpy(s->row, state, (size_t)n);
    for (int64_t i = 0; i < rows; i++)
        if (s->row[i].epoch < 0 || s->row[i].epoch > WF_MAX_EPOCH || s->row[i].steps < 0)
            return wf_err(WEFT_EPARSE, "the saved times have an epoch %lld with %lld steps",
                          (long long)s->row[i].epoch, (long long)s->row[i].steps);
    s->n = rows;
    return WEFT_OK;
}

static void times_free(void *arg)
{
    struct times *s = arg;

    wf_free(s->ctx, s->row);
    wf_free(s->ctx, s);
}

weft_status wf_report_times_make(weft_ctx *ctx, weft_callback *out)
{
    struct times *s = wf_alloc(ctx, sizeof *s);

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "a callback");
    s->ctx = ctx;
    *out = (weft_callback){.size = sizeof *out,
                           .arg = s,
                           .name = "report",
                           .train_begin = times_begin,
                           .epoch_end = times_epoch,
                           .save = times_save,
                           .restore = times_restore,
                           .free = times_free};
    return WEFT_OK;
}

const struct wf_times_row *wf_report_times(const weft_callback *cb, int64_t *n)
{
    const struct times *s = cb ? cb->arg : NULL;

    *n = s ? s->n : 0;
    return s ? s->row : NULL;
}
