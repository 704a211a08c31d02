/* served_save.c - checkpoints of training with parameter servers: servers write what they hold, the
 * deciding worker the rest. */
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "ps/saving.h"
#include "train/loop/checkpoint.h"
#include "train/step/dist.h"

/* Whether servers have this tensor of the checkpoint. */
static bool is_held(const struct wf_rules *r, const weft_ckpt_tensor *t)
{
    const char *end = strcmp(t->section, "slot") == 0 ? strrchr(t->name, ':') : NULL;
    size_t n = end ? (size_t)(end - t->name) : strlen(t->name);

    for (int v = 0; v < r->n_vars; v++)
        if (strlen(r->var[v].name) == n && memcmp(r->var[v].name, t->name, n) == 0)
            return true;
    return false;
}

/* What this process writes itself; it is up to date here afterwards. */
static weft_status list_own(const struct wf_resume *r, weft_ckpt_tensor *own, int64_t *n)
{
    struct wf_work *w;
    weft_status st = wf_work_get(r->t, &w);

    *n = 0;
    for (int64_t i = 0; i < r->n_tensors && !st; i++)
        if (!is_held(&w->rules, &r->tensor[i]))
            own[(*n)++] = r->tensor[i];
    return st ? st : wf_store_pull(r->t->bound->fit->store, WF_PART_STATE);
}

static weft_status write(void *arg, const char *dir, const char *name, char **text, int64_t *n)
{
    return wf_ps_save_write(arg, dir, name, text, n);
}

static void end(void *arg)
{
    wf_ps_save_free(arg);
}

/* Copies are on the servers: the rest is done by the thread that writes. */
static weft_status save_rest(struct wf_resume *r, const weft_ckpt_data *data,
                             struct wf_ps_save *save)
{
    struct wf_ckpt_source source = {
        .max_parts = wf_ps_save_max(save), .write = write, .end = end, .arg = save};
    weft_ckpt_tensor *own = wf_alloc_n(r->t->ctx, r->n_tensors + 1, sizeof *own), *held;
    weft_ckpt_data d = *data;
    struct wf_arena mem;
    weft_status st =
        own ? list_own(r, own, &d.n_tensors) : wf_err_nomem(r->t->ctx, sizeof *own, "checkpoint");

    wf_arena_init(&mem, r->t->ctx);
    d.tensors = own;
    if (!st)
        st = wf_ps_save_tensors(save, &mem, &held, &source.n_tensors);
    if (!st) {
        source.tensors = held;
        st = wf_ckpt_save_with(r->writer, &d, &source);
    } else {
        wf_ps_save_free(save);
    }
    wf_arena_free(&mem);
    wf_free(r->t->ctx, own);
    return st;
}

weft_status wf_served_save(struct wf_resume *r, const weft_ckpt_data *data)
{
    struct wf_ps_save *save;
    weft_status st;

    (void)weft_ckpt_writer_flush(r->writer); /* a failure is in the log; there is one at a time */
    st = wf_dist_save(r->t, &save);
    if (!st)
        return save_rest(r, data, save);
    wf_log(r->t->ctx, WEFT_LOG_WARN, "step %lld: no checkpoint is written: %s",
           (long long)data->step, weft_error());
    return st == WEFT_ENOMEM ? st : WEFT_OK;
}
