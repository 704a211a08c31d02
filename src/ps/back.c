/* back.c - a worker of a job that goes back: servers died with the only copy of parameters, and a
 * new history begins with the last checkpoint, or with the version that training began with.
 *
 * Kept true: between the new history and the moment that the caller's memory has its first version,
 * nothing is computed, taken or given; what the caller computed before is dropped. */
#include "ps/worker.h"

/* Nothing was computed since the job went back, and this worker does not have the version to
 * begin with: its process has just started, and has read a later checkpoint; or it joins again,
 * and may be the one that had it. Another worker would be followed; who decides has no one to
 * follow. */
static bool lacks_start(const struct wf_ps_worker *w)
{
    const struct wf_epoch *e = w->m.view.epoch;

    if (w->m.known >= 0 || !wf_client_decides(&w->m))
        return false;
    return w->late ? e->history > 1 : w->history == 0 && e->start != w->opts.start;
}

void wf_ps_worker_restart(void *arg)
{
    struct wf_ps_worker *w = arg;
    uint64_t history = w->m.view.epoch->history;

    if (w->lookup)
        wf_lookup_forget(w->lookup);
    for (struct kept *k = w->kept; k; k = k->next)
        k->forgotten = true;
    w->record.t = w->own.t = w->taken = w->saved = -1;
    w->unsure = w->leasing && lacks_start(w);
    w->restores =
        w->restores || (lacks_start(w) && !w->unsure) || (w->history && w->history != history);
    if (!w->restores)
        w->history = history;
    else
        w->changed = true;
    w->late = w->late && !w->restores;
}

void wf_ps_worker_at_start(struct wf_ps_worker *w, int64_t t)
{
    if (!w->unsure || w->m.known >= 0 || t != w->m.view.epoch->start)
        return;
    w->unsure = false;
    w->restores = w->changed = true;
}

weft_status wf_ps_worker_err_back(const struct wf_ps_worker *w)
{
    return wf_err(WEFT_ECANCEL,
                  "servers died with the only copy of parameters: the job goes back to step %lld",
                  (long long)w->m.view.epoch->start);
}

bool wf_ps_worker_restores(struct wf_ps_worker *w, int64_t *t)
{
    bool restores;

    wf_site_lock(&w->node);
    restores = w->restores && !w->node.st && !w->rejoin;
    if (restores)
        *t = w->m.view.epoch->start;
    wf_site_unlock(&w->node);
    return restores;
}

weft_status wf_ps_worker_restored(struct wf_ps_worker *w, int64_t t, bool *again)
{
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    *again = w->restores && w->m.view.epoch->start != t;
    w->node.acts.n = 0;
    if (w->restores && !*again) {
        w->restores = w->changed = w->unsure = false;
        w->history = w->m.view.epoch->history;
        w->opts.start = w->at = t;
        w->busy = w->begun = w->expects = w->wants = false;
        memcpy(w->job, &t, sizeof t);
        if (w->pending && !w->node.st && !w->rejoin && !w->leasing)
            st = wf_client_computed(&w->m, wf_site_now(&w->node), w->pending_t, w->pending_shard,
                                    &w->node.acts);
        w->pending = false;
        st = wf_site_fail(&w->node, st ? st : wf_ps_worker_carry_out(w));
    }
    wf_site_unlock(&w->node);
    return st;
}

void wf_ps_worker_tell_saved(struct wf_ps_worker *w)
{
    struct wf_message *m;

    if (w->saved < 0 || !w->m.view.belongs || w->restores)
        return;
    w->node.acts.n = 0;
    m = wf_view_send(&w->m.view, &w->node.acts, WF_MSG_SAVED, w->m.view.chief);
    if (!m) /* again at the next report */
        return;
    m->piece = -1;
    m->t = w->saved;
    wf_site_send_copy(&w->node, m->to, m->type, m, NULL, 0);
    w->node.acts.n = 0;
}

void wf_ps_worker_saved(struct wf_ps_worker *w, int64_t t)
{
    wf_site_lock(&w->node);
    if (!w->restores && t > w->saved) {
        w->saved = t;
        wf_ps_worker_tell_saved(w);
    }
    wf_site_unlock(&w->node);
}

int64_t wf_ps_worker_kept(struct wf_ps_worker *w)
{
    int64_t kept;

    wf_site_lock(&w->node);
    kept = w->holds;
    wf_site_unlock(&w->node);
    return kept;
}

uint64_t wf_ps_worker_history(struct wf_ps_worker *w)
{
    uint64_t history;

    wf_site_lock(&w->node);
    history = w->history;
    wf_site_unlock(&w->node);
    return history;
}
