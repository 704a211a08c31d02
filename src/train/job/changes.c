/* changes.c - what has changed since a checkpoint was written: reported key by key, used or
 * ignored, and recorded, so that the files of a run describe what was trained. */
#include <stdio.h>

#include "train/job/job.h"
#include "train/saved/learned.h"
#include "train/job/settings.h"

/* ---- what has changed ------------------------------------------------------------------------ */

struct changes {
    weft_trainer *t;
    int64_t step;
    bool complete;
    char refused[256];   /* the first one that is not possible for a complete run */
    struct wf_buf notes; /* comments for the file of the run */
};

static void note_change(void *arg, const char *key, enum wf_setting_use use, const char *was,
                        const char *is)
{
    struct changes *c = arg;
    weft_ctx *ctx = c->t->ctx;

    c->t->n_changed++;
    if (use == WF_SET_START && wf_setting_content(key))
        wf_log(ctx, WEFT_LOG_WARN,
               "the content of %.*s changed: ignored, because a run reads it only when it starts; "
               "use another checkpoint.dir to start a new run",
               (int)(strlen(key) - strlen(WF_SET_CONTENT)), key);
    else if (use == WF_SET_START)
        wf_log(ctx, WEFT_LOG_WARN,
               "%s changed from '%s' to '%s': ignored, because a run reads it only when it starts; "
               "use another checkpoint.dir to start a new run",
               key, was, is);
    else if (c->complete && use != WF_SET_MODEL)
        wf_log(ctx, WEFT_LOG_WARN,
               "%s changed from '%s' to '%s': ignored, because this run is complete; raise "
               "train.epochs to train longer with it, or use another checkpoint.dir to start a new "
               "run",
               key, was, is);
    else if (c->complete && !*c->refused)
        snprintf(c->refused, sizeof c->refused,
                 "%s changed from '%.60s' to '%.60s', but this run is complete; raise train.epochs "
                 "to train longer with it",
                 key, was, is);
    else if (!c->complete) {
        wf_log(ctx, WEFT_LOG_WARN, "%s changed from '%s' to '%s': used from step %lld on", key, was,
               is, (long long)c->step);
        wf_buf_printf(&c->notes, "# since step %lld: %s = %s (it was %s)\n", (long long)c->step,
                      key, is, was);
    }
}

/* The text of the run's file: this command's, the notes of earlier changes, and the new ones. For a
 * complete run it is unchanged. */
static weft_status record_text(const struct changes *c, char *then)
{
    weft_trainer *t = c->t;
    struct wf_buf b;

    wf_free(t->ctx, t->recorded);
    t->recorded = NULL;
    wf_buf_init(&b, t->ctx, 64 << 20);
    if (c->complete) {
        wf_buf_printf(&b, "%s", then);
    } else {
        wf_buf_printf(&b, "%s", t->job_text);
        for (char *p = then; *p;) {
            int n = (int)strcspn(p, "\n");

            if (strncmp(p, "# since step ", 13) == 0)
                wf_buf_printf(&b, "%.*s\n", n, p);
            p += n + (p[n] == '\n');
        }
        if (c->notes.len)
            wf_buf_printf(&b, "%s", c->notes.data);
    }
    if (b.st || c->notes.st) {
        wf_buf_free(&b);
        return wf_err_nomem(t->ctx, 0, "the text of a run");
    }
    t->recorded = b.data;
    return WEFT_OK;
}

/* The settings of a job, key by key. complete: nothing is left to train. */
static weft_status warn_of_settings(weft_trainer *t, weft_ckpt *c, const char *then, bool complete)
{
    struct changes changes = {t, weft_ckpt_info(c)->step, complete, "", {0}};
    char *text = NULL;
    weft_status st;

    wf_buf_init(&changes.notes, t->ctx, 16 << 20);
    st = wf_settings_compare(t->ctx, then, t->settings, note_change, &changes);
    if (!st && *changes.refused)
        st = wf_err(WEFT_EINVAL, "%s", changes.refused);
    if (!st)
        st = weft_ckpt_blob_read(c, WF_CKPT_JOB, &text, NULL);
    if (!st)
        st = record_text(&changes, text);
    weft_text_free(t->ctx, text);
    wf_buf_free(&changes.notes);
    return st;
}

/* The fingerprint says what the settings of a job do not: a changed key was reported, and what
 * follows from it need not be; nor that the files of a job have changed. */
static unsigned parts_to_compare(const weft_trainer *t, bool job, bool any)
{
    unsigned parts = 1u << WF_FP_KERNELS;

    if (any)
        return parts;
    parts |= 1u << WF_FP_GRAPH | 1u << WF_FP_SEGMENTS;
    if (!t->data_changed)
        parts |= 1u << WF_FP_DATA;
    return job ? parts : parts | 1u << WF_FP_TRAINING;
}

weft_status wf_resume_changes(weft_trainer *t, weft_ckpt *c, const struct wf_fprint *here,
                              bool complete)
{
    weft_ctx *ctx = t->ctx;
    char *settings = NULL, *then = NULL, *now = NULL;
    bool job = t->settings && !weft_ckpt_blob_read(c, WF_CKPT_SETTINGS, &settings, NULL);
    unsigned found = 0, model = 1u << WF_FP_GRAPH | 1u << WF_FP_SEGMENTS;
    weft_status st = job ? warn_of_settings(t, c, settings, complete) : WEFT_OK;
    bool any = job && t->n_changed > 0;

    if (!st)
        st = wf_fingerprint_warn(ctx, c, here, parts_to_compare(t, job, any), &found);
    if (!st && !any && !(found & model) && !weft_ckpt_blob_read(c, WEFT_CKPT_MODEL, &then, NULL) &&
        !weft_model_json(t->model, &now) && strcmp(then, now) != 0)
        wf_log(ctx, WEFT_LOG_WARN, "%s was written by a different model than this run's",
               weft_ckpt_path(c));
    if (!st && t->learned && wf_learned_differ(t, &(struct wf_saved){.ctx = ctx, .ckpt = c}))
        wf_log(ctx, WEFT_LOG_WARN,
               "%s was written with other vocabularies or statistics than this run's: read them "
               "from there (weft_learned_load)",
               weft_ckpt_path(c));
    weft_text_free(ctx, settings);
    weft_text_free(ctx, then);
    weft_text_free(ctx, now);
    return st;
}

/* ---- a trained run looked at again ----------------------------------------------------------- */

struct seen {
    weft_trainer *t;
    const char *path;
};

static void note_seen(void *arg, const char *key, enum wf_setting_use use, const char *was,
                      const char *is)
{
    const struct seen *s = arg;

    if (use != WF_SET_MODEL)
        return;
    s->t->n_changed++;
    wf_log(s->t->ctx, WEFT_LOG_WARN, "%s was '%s' when %s was trained, but is '%s' here", key, was,
           s->path, is);
}

weft_status wf_changes_seen(weft_trainer *t, weft_ckpt *c)
{
    struct seen seen = {t, weft_ckpt_path(c)};
    char *then = NULL, *text = NULL;
    weft_status st = WEFT_OK;

    t->n_changed = 0;
    if (t->settings && !weft_ckpt_blob_read(c, WF_CKPT_SETTINGS, &then, NULL))
        st = wf_settings_compare(t->ctx, then, t->settings, note_seen, &seen);
    if (!st && then && !weft_ckpt_blob_read(c, WF_CKPT_JOB, &text, NULL)) {
        wf_free(t->ctx, t->recorded);
        t->recorded = text;
    }
    weft_text_free(t->ctx, then);
    return st;
}
