/* files.c - checkpoints of parameter calls: values, the optimizer's state, rows of tables, and the
 * step. As in fit the worker that decides writes them, and servers write their parts. */
#include "ckpt/ckpt.h"
#include "train/params/params.h"

enum { MAX_TRIES = 8 }; /* servers that die again and again */

static weft_status read_tensors(struct wf_resume *r, weft_ckpt *c)
{
    struct wf_store *store = r->t->bound->fit->store;
    weft_status st = wf_store_pull(store, WF_PART_ALL);

    if (st)
        return st;
    wf_store_touch(store, WF_PART_ALL);
    for (int64_t i = 0; i < r->n_tensors && !st; i++)
        st = wf_stored_load(r->t->ctx, store, c, r->tensor[i].name, &r->tensor[i].tensor);
    if (!st)
        st = wf_whole_give(r);
    if (!st)
        st = wf_stored_check(r, c);
    return st ? st : wf_stored_give(r, c);
}

static weft_status restore(weft_params *p, weft_ckpt *c)
{
    const weft_ckpt_data *info = weft_ckpt_info(c);
    weft_status st = WEFT_OK;

    if (info->seed != p->ctx->seed)
        st = wf_err(WEFT_EINVAL, "it was written with seed %llu, this run has %llu",
                    (unsigned long long)info->seed, (unsigned long long)p->ctx->seed);
    if (!st)
        st = read_tensors(&p->resume, c);
    if (st)
        return wf_err_wrap(st,
                           "%s does not match these variables (use another directory to begin "
                           "anew)",
                           weft_ckpt_path(c));
    weft_fn_set_step(p->t->bound->fit, info->step);
    if (p->leased)
        wf_params_leased_at(p, info->step);
    p->resume.last_step = info->step;
    return WEFT_OK;
}

weft_status wf_params_files_open(weft_params *p, const weft_params_opts *o)
{
    weft_ckpt *c = NULL;
    weft_status st;

    if (o->checkpoint_steps < 0 || o->keep_last < 0)
        return wf_err(WEFT_EINVAL, "checkpoint_steps %lld, keep_last %d",
                      (long long)o->checkpoint_steps, o->keep_last);
    p->told = -1;
    p->resume = (struct wf_resume){.t = p->t, .o = &p->saving};
    wf_arena_init(&p->resume.arena, p->ctx);
    if (!o->checkpoint)
        return WEFT_OK;
    p->folder = wf_strdup(p->ctx, o->checkpoint);
    if (!p->folder)
        return wf_err_nomem(p->ctx, strlen(o->checkpoint), "checkpoint");
    p->saving =
        (weft_fit_opts){.size = sizeof p->saving,
                        .checkpoint = p->folder,
                        .checkpoint_steps = o->checkpoint_steps ? o->checkpoint_steps : 1000,
                        .keep_last = o->keep_last};
    st = wf_resume_list(&p->resume);
    if (!st)
        st = weft_ckpt_open_latest(p->ctx, p->folder, &c);
    if (st == WEFT_ENOENT)
        return WEFT_OK; /* the first start */
    if (!st)
        st = restore(p, c);
    p->t->stored = !st;
    if (!st)
        wf_log(p->ctx, WEFT_LOG_INFO, "resuming from %s", weft_ckpt_path(c));
    weft_ckpt_close(c);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

void wf_params_files_close(weft_params *p)
{
    weft_ckpt_stats stats;

    if (!p->resume.t)
        return;
    if (wf_resume_end(&p->resume, &stats))
        wf_log(p->ctx, WEFT_LOG_WARN, "%s", weft_error());
    wf_free(p->ctx, p->folder);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Whether this worker writes; its directory is open then. */
static bool writes(weft_params *p)
{
    struct wf_resume *r = &p->resume;

    if (!p->folder)
        return false;
    if (wf_dist_together(p->t) && !wf_dist_decides(p->t)) {
        (void)wf_resume_shut(r); /* what could not be written is in the log */
        return false;
    }
    if (!wf_resume_open(r))
        return true;
    if (!p->warned) /* another worker may still have it open: it is tried again */
        wf_log(p->ctx, WEFT_LOG_WARN, "%s; no checkpoint is written now", weft_error());
    p->warned = true;
    return false;
}

static weft_status write(weft_params *p)
{
    struct wf_resume *r = &p->resume;
    weft_ckpt_data data = {.size = sizeof data,
                           .step = weft_params_step(p),
                           .seed = p->ctx->seed,
                           .n_tensors = r->n_tensors,
                           .tensors = r->tensor};
    weft_status st;

    r->last_step = data.step;
    if (wf_dist_together(p->t))
        return wf_served_save(r, &data);
    st = wf_whole_bring(r);
    if (!st)
        st = wf_store_pull(p->t->bound->fit->store, WF_PART_ALL);
    return st ? st : weft_ckpt_save(r->writer, &data);
}

/* The job may go back to a checkpoint once it is complete. */
static void tell_saved(weft_params *p)
{
    weft_ckpt_stats s;

    if (!p->resume.writer || !wf_dist_together(p->t))
        return;
    wf_ckpt_writer_hold(p->resume.writer, wf_dist_kept(p->t));
    weft_ckpt_writer_stats(p->resume.writer, &s);
    if (s.n_saved == 0 || s.last_step == p->told)
        return;
    p->told = s.last_step;
    wf_dist_saved(p->t, s.last_step);
}

weft_status wf_params_files_step(weft_params *p)
{
    weft_status st = WEFT_OK;

    if (!writes(p))
        return WEFT_OK;
    if (weft_params_step(p) - p->resume.last_step >= p->saving.checkpoint_steps)
        st = write(p);
    tell_saved(p);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

weft_status wf_params_files_boundary(weft_params *p)
{
    int64_t last = p->resume.last_step;
    weft_status st = WEFT_OK;

    if (!writes(p))
        return WEFT_OK;
    if (wf_dist_together(p->t) ? p->at > last : p->at - last >= p->saving.checkpoint_steps)
        st = write(p);
    tell_saved(p);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

void wf_params_files_watch(weft_params *p)
{
    if (writes(p))
        tell_saved(p);
}

weft_status weft_params_checkpoint(weft_params *p)
{
    weft_status st = WEFT_OK;

    if (!p->folder)
        return wf_err(WEFT_ESTATE, "parameter calls: there is no directory for checkpoints: give "
                                   "weft_params_opts.checkpoint");
    if (!p->begun)
        return wf_err(WEFT_ESTATE, "parameter calls: a checkpoint before the first pull or wait");
    if (p->leased && !p->ended) {
        st = wf_params_lease_checkpoint(p);
        if (st || wf_dist_together(p->t))
            return st;
    }
    if (!writes(p))
        return WEFT_OK;
    if (weft_params_step(p) != p->told || p->resume.last_step != p->told)
        st = write(p);
    if (!st)
        st = weft_ckpt_writer_flush(p->resume.writer);
    tell_saved(p);
    return st ? wf_err_wrap(st, "checkpoint") : WEFT_OK;
}

/* ---- going back ------------------------------------------------------------------------------ */

/* The checkpoint of this step. */
static weft_status read_step(weft_params *p, int64_t step)
{
    weft_ckpt_list *l = NULL;
    weft_ckpt *c = NULL;
    const char *path = NULL;
    weft_status st = p->folder ? weft_ckpt_list_new(p->ctx, p->folder, NULL, &l) : WEFT_ENOENT;

    for (int64_t i = 0; !st && i < l->n; i++)
        if (l->entry[i].step == step && !l->entry[i].error)
            path = l->entry[i].path;
    if (!st && path)
        st = weft_ckpt_open(p->ctx, path, &c);
    else if (!st || st == WEFT_ENOENT)
        st = wf_err(WEFT_ENOENT, "there is no checkpoint of step %lld%s%s", (long long)step,
                    p->folder ? " in " : "", p->folder ? p->folder : "");
    if (!st)
        st = restore(p, c);
    weft_ckpt_close(c);
    weft_ckpt_list_free(p->ctx, l);
    return st;
}

static weft_status back_to(weft_params *p, int64_t step)
{
    weft_status st = WEFT_OK;

    (void)wf_resume_shut(&p->resume);
    wf_dist_back_begin(p->t);
    wf_params_drop(p);
    if (!wf_dist_back_origin(p->t, step))
        st = read_step(p, step);
    if (st)
        return wf_err_wrap(WEFT_EPEER,
                           "servers died with the only copy of parameters, and the job cannot go "
                           "back to step %lld",
                           (long long)step);
    wf_log(p->ctx, WEFT_LOG_WARN,
           "servers died with the only copy of parameters: the job goes back to step %lld",
           (long long)step);
    p->resume.last_step = step;
    p->told = -1;
    p->expects = true;
    return WEFT_OK;
}

weft_status wf_params_go_back(weft_params *p, weft_status st, bool *back)
{
    int64_t step;
    bool again = true;

    *back = false;
    for (int i = 0; again && i < MAX_TRIES && wf_dist_goes_back(p->t, &step); i++) {
        again = false;
        st = back_to(p, step);
        if (!st)
            st = wf_dist_back_end(p->t, step, &again);
        if (st)
            return st;
        *back = true;
    }
    return st;
}
