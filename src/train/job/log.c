/* log.c - what a job leaves in log.dir: history.csv, event files, and a page about the run. */
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "train/report/report.h"
#include "train/callback/tensorboard.h"

static weft_status add_callback(weft_job_run *run, const char *spec)
{
    weft_status st = weft_callback_new(run->ctx, spec, &run->callback[run->n_callbacks]);

    if (!st)
        run->n_callbacks++;
    return st;
}

/* CALLBACK argument="DIR/NAME" */
static weft_status put_spec(struct wf_buf *b, const char *callback, const char *dir,
                            const char *name)
{
    char path[WF_CKPT_PATH];
    int n = snprintf(path, sizeof path, "%s%s%s", dir, *name ? "/" : "", name);

    if (n >= (int)sizeof path)
        return wf_err(WEFT_EINVAL, "the path is too long: %d characters", n);
    b->len = 0;
    wf_buf_printf(b, "%s=", callback);
    wf_attr_quote(b, path);
    return WEFT_OK;
}

weft_status wf_job_open_log(weft_job_run *run)
{
    const weft_job *job = run->job;
    struct wf_buf spec;
    weft_status st = WEFT_OK;

    if (!job->log_dir || !*job->log_dir)
        return WEFT_OK;
    wf_buf_init(&spec, run->ctx, 1 << 16);
    if (job->log_csv) {
        st = put_spec(&spec, "CSVLogger filename", job->log_dir, "history.csv");
        if (!st)
            st = spec.st ? wf_err_nomem(run->ctx, 0, "log.dir") : add_callback(run, spec.data);
    }
    if (!st && job->log_tensorboard) {
        st = put_spec(&spec, "TensorBoard log_dir", job->log_dir, "");
        wf_buf_printf(&spec, " histogram_freq=%lld input_images=%lld",
                      (long long)job->log_histograms, (long long)job->log_images);
        if (job->log_steps)
            wf_buf_printf(&spec, " update_freq=%lld write_steps_per_second=true",
                          (long long)job->log_steps);
        if (job->log_seconds > 0)
            wf_buf_printf(&spec, " update_seconds=%.17g", job->log_seconds);
        if (!st)
            st = spec.st ? wf_err_nomem(run->ctx, 0, "log.dir") : add_callback(run, spec.data);
        if (!st)
            st = wf_tensorboard_describe(&run->callback[run->n_callbacks - 1], job->text,
                                         job->batch, job->epochs);
    }
    if (!st && job->log_report) {
        st = wf_report_times_make(run->ctx, &run->callback[run->n_callbacks]);
        if (!st)
            run->times = &run->callback[run->n_callbacks++];
    }
    wf_buf_free(&spec);
    return st ? wf_err_wrap(st, "log.dir") : WEFT_OK;
}

weft_status wf_job_begin_log(const weft_job_run *run)
{
    const char *dir = run->job->log_dir;
    weft_status st = dir && *dir ? wf_ckpt_make_dir(run->ctx, dir) : WEFT_OK;

    return st ? wf_err_wrap(st, "log.dir") : WEFT_OK;
}

/* A page that cannot be written is no reason to lose a training that went well. */
weft_status wf_job_end_log(weft_job_run *run, const weft_history *h)
{
    char path[WF_CKPT_PATH];
    weft_status st;

    if (!run->times || h->n_epochs == 0)
        return WEFT_OK;
    if (!run->trainer->all_times.steps && run->trainer->n_changed) {
        wf_log(run->ctx, WEFT_LOG_INFO, "no report: nothing was trained with these settings");
        return WEFT_OK;
    }
    st = wf_ckpt_join(path, run->job->log_dir, "report.html");
    if (!st)
        st = wf_report_write(run, h, path);
    if (st)
        wf_log(run->ctx, WEFT_LOG_WARN, "no report: %s", weft_error());
    else
        wf_log(run->ctx, WEFT_LOG_INFO, "report: %s", path);
    return WEFT_OK;
}
