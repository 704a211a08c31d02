/* worker.c - a worker of a program: its context on its device, its strategy, its coordinator. */
#include "train/program/program.h"

#include "base/number.h"

weft_status weft_worker_open(weft_program *p, const char *task, weft_worker **out)
{
    weft_worker *w;
    bool evaluates = strncmp(task, "evaluator/", 10) == 0;
    int64_t index = 0;
    weft_status st;

    if (!p->cluster)
        return wf_err(WEFT_ESTATE, "program: no worker '%s': there is no job yet", task);
    w = wf_alloc(p->ctx, sizeof *w);
    if (!w)
        return wf_err_nomem(p->ctx, sizeof *w, "worker");
    w->p = p;
    w->count = weft_cluster_count(p->cluster, evaluates ? WEFT_TASK_EVALUATOR : WEFT_TASK_WORKER);
    wf_snprintf(w->name, sizeof w->name, "%s", task);
    st = wf_program_ctx(p, task, &w->config, &w->ctx);
    if (!st)
        st = weft_coord_new(w->ctx, &w->coord);
    if (!st && !evaluates)
        st = wf_program_opts_of(p, w->name, &w->opts);
    if (!st && !evaluates)
        st = weft_dist_open_ps(w->ctx, &w->opts.ps, &w->dist);
    if (st) {
        weft_worker_close(w);
        return st;
    }
    (void)wf_text_i64(strchr(w->name, '/') + 1, &index); /* the strategy has found the task */
    w->index = (int)index;
    pthread_mutex_lock(&p->lock);
    w->next = p->worker;
    p->worker = w;
    pthread_mutex_unlock(&p->lock);
    if (p->stop)
        weft_worker_stop(w);
    *out = w;
    return WEFT_OK;
}

void weft_worker_close(weft_worker *w)
{
    weft_program *p;
    char why[512];

    if (!w)
        return;
    p = w->p;
    wf_snprintf(why, sizeof why, "%s", weft_error());
    pthread_mutex_lock(&p->lock);
    for (weft_worker **at = &p->worker; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    pthread_mutex_unlock(&p->lock);
    weft_dist_free(w->dist);
    weft_coord_free(w->coord);
    weft_ctx_free(w->ctx);
    wf_free(p->ctx, w);
    wf_err_set(why);
}

const char *weft_worker_name(const weft_worker *w)
{
    return w->name;
}

int weft_worker_index(const weft_worker *w)
{
    return w->index;
}

int weft_worker_count(const weft_worker *w)
{
    return w->count;
}

weft_ctx *weft_worker_ctx(weft_worker *w)
{
    return w->ctx;
}

weft_dist *weft_worker_dist(weft_worker *w)
{
    return w->dist;
}

weft_coord *weft_worker_coord(weft_worker *w)
{
    return w->coord;
}

void weft_worker_stop(weft_worker *w)
{
    weft_coord_request_stop(w->coord, WEFT_OK, NULL);
}

bool weft_worker_should_stop(const weft_worker *w)
{
    return weft_coord_should_stop(w->coord);
}

weft_status weft_worker_config_get(const weft_worker *w, weft_worker_config *out)
{
    return wf_opts_give(out, out->size, &w->config, sizeof w->config, "weft_worker_config");
}

/* ---- sessions -------------------------------------------------------------------------------- */

static weft_status end_if_asked(void *arg, weft_session *s)
{
    if (weft_worker_should_stop(arg))
        weft_session_request_stop(s);
    return WEFT_OK;
}

weft_status weft_worker_session(weft_worker *w, weft_trainer *t, weft_data *d, weft_ds s,
                                const weft_session_opts *opts, weft_session **out)
{
    weft_session_opts o;
    weft_hook *hooks;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_session_opts");

    if (st)
        return st;
    if (o.n_hooks < 0 || (o.n_hooks && !o.hooks))
        return weft_session_open(t, d, s, &o, out); /* which says what is wrong */
    hooks = wf_alloc_n(w->ctx, (int64_t)o.n_hooks + 1, sizeof *hooks);
    if (!hooks)
        return wf_err_nomem(w->ctx, sizeof *hooks, "hooks");
    hooks[0] = (weft_hook){.size = sizeof *hooks,
                           .name = "stop",
                           .arg = w,
                           .created = end_if_asked,
                           .before_run = end_if_asked};
    for (int i = 0; i < o.n_hooks && !st; i++)
        st = wf_opts_take_at(&hooks[i + 1], sizeof *hooks, o.hooks, i, "weft_hook");
    for (int i = 1; i <= o.n_hooks; i++)
        hooks[i].size = sizeof *hooks;
    o.hooks = hooks;
    o.n_hooks++;
    if (!st)
        st = weft_session_open(t, d, s, &o, out);
    wf_free(w->ctx, hooks);
    return st;
}
