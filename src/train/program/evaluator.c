/* evaluator.c - checkpoints, one after the other, for tasks that measure them. */
#include "ckpt/ckpt.h"
#include "train/program/program.h"

#include <stdio.h>

#define LOOK_S 0.1

/* The newest one whose manifest can be read, but not `bad`. "": there is none. */
static weft_status find_newest(weft_ctx *ctx, const char *dir, const char *bad,
                               char path[WF_CKPT_PATH], int64_t *step)
{
    weft_ckpt_list *list = NULL;
    weft_status st = weft_ckpt_list_new(ctx, dir, NULL, &list);

    *path = '\0';
    if (st == WEFT_ENOENT)
        return WEFT_OK;
    for (int64_t i = st ? 0 : list->n; i > 0 && !*path; i--)
        if (!list->entry[i - 1].error && strcmp(list->entry[i - 1].path, bad) != 0) {
            snprintf(path, WF_CKPT_PATH, "%s", list->entry[i - 1].path);
            *step = list->entry[i - 1].step;
        }
    weft_ckpt_list_free(ctx, list);
    return st;
}

/* It was deleted meanwhile, or is damaged. */
static bool is_unreadable(weft_status st)
{
    return st == WEFT_ENOENT || st == WEFT_EIO || st == WEFT_EPARSE;
}

weft_status weft_worker_next_checkpoint(weft_worker *w, weft_trainer *t, const char *dir,
                                        double timeout_s, int64_t *step)
{
    int64_t until = timeout_s > 0 ? wf_now(w->ctx) + (int64_t)(timeout_s * 1e9) : INT64_MAX;
    char path[WF_CKPT_PATH], bad[WF_CKPT_PATH] = "";

    for (;;) {
        /* in this order: what was written before the end is seen */
        bool over = weft_worker_should_stop(w) || wf_program_has_ended(w->p);
        int64_t at = -1;
        weft_status st = find_newest(w->ctx, dir, bad, path, &at);

        if (!st && *path && at != *step) {
            st = weft_trainer_load_weights(t, path, NULL, NULL);
            if (!st) {
                *step = at;
                return WEFT_OK;
            }
            if (!is_unreadable(st))
                return st;
            wf_log(w->ctx, WEFT_LOG_WARN, "%s is left out: %s", path, weft_error());
            snprintf(bad, sizeof bad, "%s", path);
            continue;
        }
        if (st)
            return st;
        if (over)
            return wf_err(WEFT_ECANCEL,
                          "task '%s': the job has ended, and its last checkpoint was "
                          "read before",
                          w->name);
        if (wf_now(w->ctx) >= until)
            return wf_err(WEFT_ETIME, "task '%s': no new checkpoint in %s within %g s", w->name,
                          dir, timeout_s);
        weft_coord_wait(w->coord, LOOK_S);
    }
}
