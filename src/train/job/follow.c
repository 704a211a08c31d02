/* follow.c - an evaluator: measures the checkpoints that a run writes, one after the other.
 *
 * Nothing here waits: the caller asks again. What was measured is in log.dir: evaluations.csv has a
 * row for each checkpoint, and evaluator/ has event files. An evaluator that is started again reads
 * the last row and resumes there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/append.h"
#include "base/number.h"
#include "ckpt/ckpt.h"
#include "train/job/job.h"

#define MAX_CSV ((int64_t)64 << 20)
#define MAX_TAG 512

struct weft_follow {
    weft_ctx *ctx;
    const weft_job *job;
    const char *part; /* "validation" or "test"; NULL: not chosen yet */
    weft_job_run *run;
    weft_ds data;
    int64_t step; /* the last that was measured; -1: none */
    char seen[WF_CKPT_PATH];
    weft_scalars *scalars;
    struct wf_append csv;
};

/* ---- the log --------------------------------------------------------------------------------- */

static const char *log_dir(const weft_follow *f)
{
    const char *dir = f->job->log_dir;

    return dir && *dir ? dir : NULL;
}

/* The step in the last row of evaluations.csv. */
static weft_status read_last(weft_follow *f)
{
    char path[WF_CKPT_PATH], *text = NULL, *at;
    int64_t n = 0;
    weft_status st = log_dir(f) ? wf_ckpt_join(path, log_dir(f), "evaluations.csv") : WEFT_ENOENT;

    if (!st)
        st = wf_file_read(f->ctx, path, MAX_CSV, &text, &n);
    if (st == WEFT_ENOENT)
        return WEFT_OK;
    if (st)
        return st;
    while (n > 0 && text[n - 1] == '\n')
        n--;
    for (at = text + n; at > text && at[-1] != '\n';)
        at--;
    for (n = 0; at[n] >= '0' && at[n] <= '9';)
        n++;
    if (n && !wf_parse_i64(at, n, &f->step))
        f->step = -1; /* not a number: everything is measured again */
    wf_free(f->ctx, text);
    return WEFT_OK;
}

static weft_status put_csv(weft_follow *f, int64_t step, int64_t epoch, const weft_logs *logs)
{
    char path[WF_CKPT_PATH], number[WF_NUMBER_TEXT];
    struct wf_buf row;
    weft_status st = wf_ckpt_join(path, log_dir(f), "evaluations.csv");

    if (!st && !f->csv.ctx)
        st = wf_append_open(&f->csv, f->ctx, path);
    if (st)
        return st;
    wf_buf_init(&row, f->ctx, 1 << 20);
    if (f->csv.size == 0) {
        wf_buf_printf(&row, "step,epoch");
        for (int i = 0; i < logs->n; i++)
            wf_buf_printf(&row, ",%s", logs->name[i]);
        wf_buf_printf(&row, "\n");
    }
    wf_buf_printf(&row, "%" PRId64 ",%" PRId64, step, epoch);
    for (int i = 0; i < logs->n; i++) {
        wf_snprintf(number, sizeof number, "%.17g", logs->value[i]);
        wf_buf_printf(&row, ",%s", number);
    }
    wf_buf_printf(&row, "\n");
    st = row.st ? wf_err_nomem(f->ctx, 0, "a row") : wf_append_add(&f->csv, row.data, row.len);
    wf_buf_free(&row);
    return st;
}

static weft_status put_events(weft_follow *f, int64_t step, const weft_logs *logs)
{
    char dir[WF_CKPT_PATH];
    weft_status st = wf_ckpt_join(dir, log_dir(f), "evaluator");

    if (!st && !f->scalars)
        st = weft_scalars_open(f->ctx, dir, &f->scalars);
    for (int i = 0; i < logs->n && !st; i++) {
        char tag[MAX_TAG];

        snprintf(tag, sizeof tag, "evaluation_%s_vs_iterations", logs->name[i]);
        st = weft_scalars_put(f->scalars, step, tag, logs->value[i]);
    }
    return st ? st : weft_scalars_flush(f->scalars);
}

static weft_status put_log(weft_follow *f, int64_t step, int64_t epoch, const weft_logs *logs)
{
    weft_status st = log_dir(f) ? wf_ckpt_make_dir(f->ctx, log_dir(f)) : WEFT_OK;

    if (!log_dir(f))
        return WEFT_OK;
    if (!st && f->job->log_tensorboard)
        st = put_events(f, step, logs);
    if (!st && f->job->log_csv)
        st = put_csv(f, step, epoch, logs);
    return st ? wf_err_wrap(st, "log.dir") : WEFT_OK;
}

/* ---- a checkpoint ---------------------------------------------------------------------------- */

/* The newest one whose manifest can be read; "": there is none. */
static weft_status find_newest(weft_follow *f, char path[WF_CKPT_PATH], int64_t *step)
{
    weft_ckpt_list *list = NULL;
    weft_status st = weft_ckpt_list_new(f->ctx, f->job->checkpoint_dir, NULL, &list);

    *path = '\0';
    if (st == WEFT_ENOENT)
        return WEFT_OK;
    for (int64_t i = st ? 0 : list->n; i > 0 && !*path; i--)
        if (!list->entry[i - 1].error) {
            snprintf(path, WF_CKPT_PATH, "%s", list->entry[i - 1].path);
            *step = list->entry[i - 1].step;
        }
    weft_ckpt_list_free(f->ctx, list);
    return st;
}

static weft_status choose_part(weft_follow *f)
{
    static const char *const parts[] = {"validation", "test"};
    weft_status st = WEFT_OK;

    for (int i = 0; i < 2 && !st && !f->data.id; i++)
        if (!f->part || strcmp(f->part, parts[i]) == 0) {
            st = weft_job_open_part(f->run, parts[i], &f->data);
            if (!st && f->data.id)
                f->part = parts[i];
        }
    if (!st && !f->data.id)
        st = wf_err(WEFT_EINVAL, "the job has no %s data to evaluate with",
                    f->part ? f->part : "validation or test");
    return st;
}

/* Once there is a checkpoint: it has what the pipeline has learned. */
static weft_status open_run(weft_follow *f)
{
    weft_status st;

    if (f->run)
        return WEFT_OK;
    st = weft_job_open_trained(f->job, f->ctx, &f->run);
    if (!st)
        st = choose_part(f);
    if (st) {
        weft_job_close(f->run);
        f->run = NULL;
    }
    return st;
}

static weft_status measure(weft_follow *f, weft_ckpt *c, weft_follow_result *r)
{
    const weft_ckpt_data *info = weft_ckpt_info(c);
    weft_status st = open_run(f);

    if (!st)
        st = wf_job_load_from(f->run, c);
    if (!st)
        st = weft_evaluate(f->run->trainer, f->run->data, f->data, NULL, &r->logs);
    if (st)
        return st;
    r->measured = true;
    r->step = info->step;
    r->epoch = info->epoch;
    r->part = f->part;
    st = put_log(f, r->step, r->epoch, &r->logs);
    f->step = r->step;
    return st;
}

/* Files that cannot be read: the checkpoint was deleted meanwhile, or is damaged. */
static bool is_unreadable(weft_status st)
{
    return st == WEFT_ENOENT || st == WEFT_EIO || st == WEFT_EPARSE;
}

static weft_status look(weft_follow *f, weft_follow_result *r)
{
    char path[WF_CKPT_PATH];
    weft_ckpt *c = NULL;
    int64_t step = -1;
    bool again = !*f->seen; /* this process has measured nothing yet */
    weft_status st = find_newest(f, path, &step);

    if (st || !*path || strcmp(path, f->seen) == 0)
        return st;
    st = weft_ckpt_open(f->ctx, path, &c);
    if (!st && !(again && step == f->step))
        st = measure(f, c, r);
    if (!st)
        r->complete = wf_resume_complete(f->ctx, c, f->job->epochs);
    weft_ckpt_close(c);
    if (st && is_unreadable(st) && !r->measured) {
        wf_log(f->ctx, WEFT_LOG_WARN, "%s is left out: %s", path, weft_error());
        st = WEFT_OK;
    }
    snprintf(f->seen, sizeof f->seen, "%s", path);
    return st;
}

weft_status weft_follow_next(weft_follow *f, weft_follow_result *out)
{
    weft_follow_result r = {.size = out->size};
    weft_status st = look(f, &r);

    return st ? st : wf_opts_give(out, out->size, &r, sizeof r, "weft_follow_result");
}

/* ---- life ------------------------------------------------------------------------------------ */

weft_status weft_follow_open(const weft_job *job, weft_ctx *ctx, const char *part,
                             weft_follow **out)
{
    weft_follow *f;
    weft_status st;

    if (!job->checkpoint_dir || !*job->checkpoint_dir)
        return wf_err(
            WEFT_EINVAL,
            "an evaluator follows checkpoints, and the job writes none: set checkpoint.dir");
    if (part && strcmp(part, "validation") != 0 && strcmp(part, "test") != 0)
        return wf_err(WEFT_EINVAL, "'%s' is not a part to evaluate with: validation, test", part);
    f = wf_alloc(ctx, sizeof *f);
    if (!f)
        return wf_err_nomem(ctx, sizeof *f, "an evaluator");
    f->ctx = ctx;
    f->job = job;
    f->part = part;
    f->step = -1;
    st = read_last(f);
    if (st) {
        weft_follow_free(f);
        return st;
    }
    *out = f;
    return WEFT_OK;
}

void weft_follow_free(weft_follow *f)
{
    if (!f)
        return;
    weft_scalars_close(f->scalars);
    (void)wf_append_close(&f->csv);
    weft_job_close(f->run);
    wf_free(f->ctx, f);
}
