/* steps.c - what a worker's training loop asks for: what comes next, parameters, rows, slots. */
#include "ps/leasing.h"
#include "ps/versions.h"

struct asked {
    struct wf_ps_worker *w;
    int64_t t;
};

bool wf_ps_worker_has_all(const struct wf_ps_worker *w)
{
    for (int i = 0; i < w->cut->n_pieces; i++)
        if (!wf_client_has(&w->m, i, w->m.t) && !w->cut->piece[i].tables)
            return false;
    return w->m.t >= 0;
}

/* The next version is here, and it follows the record that the caller has. */
static bool is_complete(const struct wf_ps_worker *w, int64_t t)
{
    const double *marks = wf_ps_sums_at(w, w->m.t) + wf_ps_n_sums(&w->sizes, w->cut->n_pieces - 1);

    return w->m.t == t + 1 && !w->late && wf_ps_worker_has_all(w) &&
           (!w->sizes.logs || marks[WF_PS_CONTROL] <= (double)w->taken);
}

static bool is_to_compute(const struct wf_ps_worker *w, int64_t t)
{
    return !w->late && w->pending && w->pending_t == t && w->m.t == t;
}

/* A record that the caller does not know of. */
static bool has_news(const struct wf_ps_worker *w, int64_t t)
{
    return w->record.t == t && w->taken < t && !w->late;
}

static bool is_next(void *arg)
{
    const struct asked *a = arg;
    struct wf_ps_worker *w = a->w;

    wf_ps_worker_cancel(w); /* others have computed it: the caller need not begin */
    return w->rejoin || w->restores || wf_ps_worker_is_asked(w) || has_news(w, a->t) ||
           is_to_compute(w, a->t) || is_complete(w, a->t) || wf_ps_worker_moved(w);
}

/* The worker whose shard a piece lacks in step t, as far as this one was told; WF_NOBODY: none. */
static int find_late(const struct wf_ps_worker *w, int piece, int64_t t, int *shard)
{
    const struct wf_client *m = &w->m;

    for (int l = 0; m->t == t && m->piece[piece].told_ns >= 0 && l < m->plan.n_shards; l++)
        if (!(m->arrived[(int64_t)piece * m->n_words + l / 64] >> l % 64 & 1) &&
            m->shard[l] != WF_SHARD_DONE && m->view.epoch->worker[l] != w->node.self) {
            *shard = l;
            return m->view.epoch->worker[l];
        }
    return WF_NOBODY;
}

/* What the step waits for. */
static weft_status err_stalled(struct wf_ps_worker *w, int64_t t, weft_status st)
{
    const struct wf_view *v = &w->m.view;

    if (st != WEFT_ETIME)
        return st;
    if (!v->belongs || wf_site_is_alone(&w->node))
        return wf_ps_worker_err_outside(w, st);
    for (int i = 0; i < w->cut->n_pieces; i++)
        if (w->cut->piece[i].tables ? w->m.piece[i].at <= t : !wf_client_has(&w->m, i, t + 1)) {
            int holder = v->epoch->holders[i].primary, shard = 0;
            int late = find_late(w, i, t, &shard);

            if (late != WF_NOBODY)
                return wf_err(st,
                              "step %lld: shard %d, which '%s' computes, has not come to '%s' (%s)",
                              (long long)t, shard, w->node.spec.task[late].name,
                              w->node.spec.task[holder].name,
                              wf_site_has(&w->node, holder) ? "connected" : "not connected");
            return wf_err(st, "step %lld: no answer of '%s' (%s), which holds piece %d",
                          (long long)t, w->node.spec.task[holder].name,
                          wf_site_has(&w->node, holder) ? "connected" : "not connected", i);
        }
    return st;
}

weft_status wf_ps_worker_next(struct wf_ps_worker *w, int64_t t, enum wf_ps_next *next, int *shard)
{
    struct asked a = {w, t};
    int64_t begin = wf_site_now(&w->node);
    weft_status st = wf_ps_worker_await(w, is_next, &a, "parameter servers");

    wf_site_lock(&w->node);
    wf_ps_worker_reap(w, false);
    /* Later versions are elsewhere; of a worker that has failed, the last one is still read. */
    if (!st && w->node.n_old && t > w->lost_t + 2)
        wf_site_drop_old(&w->node);
    w->waited_s += (double)(wf_site_now(&w->node) - begin) * 1e-9;
    if (st) {
        st = err_stalled(w, t, st);
    } else if (w->rejoin) {
        *next = WF_PS_REJOIN;
    } else if (w->restores) {
        *next = WF_PS_RESTORE;
    } else if (has_news(w, t)) {
        *next = WF_PS_NEWS;
    } else if (wf_ps_worker_is_asked(w)) {
        *next = WF_PS_ASKED;
    } else if (is_to_compute(w, t)) {
        *next = WF_PS_COMPUTE;
        *shard = w->pending_shard;
    } else {
        *next = is_complete(w, t) ? WF_PS_COMPLETE : WF_PS_MOVED;
        w->busy = true;
        st = wf_ps_worker_cancel(w);
    }
    wf_site_unlock(&w->node);
    return st;
}

bool wf_ps_worker_left(struct wf_ps_worker *w, int64_t t, int first, int n)
{
    bool left = false;

    wf_site_lock(&w->node);
    for (int i = first; i < first + n && w->m.t <= t && w->m.view.belongs; i++)
        left |= w->m.view.epoch->worker[i] == w->node.self && w->m.shard[i] != WF_SHARD_DONE;
    left |= !w->m.view.belongs || w->m.t < t;
    wf_site_unlock(&w->node);
    return left;
}

bool wf_ps_worker_owns(struct wf_ps_worker *w)
{
    bool owns = false;

    wf_site_lock(&w->node);
    for (int l = 0; w->m.view.belongs && l < w->m.plan.n_shards && !owns; l++)
        owns = w->m.view.epoch->worker[l] == w->node.self;
    wf_site_unlock(&w->node);
    return owns;
}

const float *wf_ps_worker_var(struct wf_ps_worker *w, int64_t t, int var)
{
    const float *at;

    wf_site_lock(&w->node);
    at = wf_versions_var(w->versions, t, var);
    wf_site_unlock(&w->node);
    return at;
}

/* Nothing arrives while it is copied; what servers of this host overwrite meanwhile is noticed. */
weft_status wf_ps_worker_read(struct wf_ps_worker *w, int64_t t, float *flat)
{
    const struct wf_rules *r = &w->opts.job->rules;
    bool here = true;

    wf_site_lock(&w->node);
    for (int i = 0; i < w->cut->n_pieces && here; i++)
        here = w->cut->piece[i].tables || wf_client_has(&w->m, i, t);
    for (int v = 0; v < r->n_vars && here; v++) {
        const float *at;

        if (r->var[v].table)
            continue;
        at = wf_versions_var(w->versions, t, v);
        here = at;
        if (at)
            memcpy(flat + r->var[v].offset, at, (size_t)r->var[v].count * sizeof *flat);
    }
    here = here && wf_versions_kept(w->versions, t);
    wf_site_unlock(&w->node);
    return here ? WEFT_OK
                : wf_err(WEFT_ESTATE,
                         "the parameters of step %lld are gone: the job is at step %lld",
                         (long long)t, (long long)w->m.t);
}

/* ---- rows of tables -------------------------------------------------------------------------- */

/* Whether rows of a piece were requested, and have not come. */
static bool *reads_of(const struct wf_ps_worker *w, int piece)
{
    return w->leasing ? &w->leasing->m.piece[piece].reads : &w->m.piece[piece].reads;
}

static bool has_all_rows(void *arg)
{
    const struct wf_ps_worker *w = arg;

    for (int i = 0; i < w->cut->n_table_pieces && !w->rejoin && !w->restores; i++)
        if (*reads_of(w, w->cut->first_table + i))
            return false;
    return true; /* or the job continues without this worker: what it computes does not count */
}

weft_status wf_ps_worker_want(struct wf_ps_worker *w, int64_t t, int var, int64_t n,
                              const int64_t *ids)
{
    weft_status st;

    wf_site_lock(&w->node);
    st = wf_lookup_want(w->lookup, w->leasing ? w->leasing->stamp : t, var, n, ids);
    wf_site_unlock(&w->node);
    return st;
}

/* Requests what is wanted. */
static weft_status request(struct wf_ps_worker *w, int64_t t)
{
    const struct wf_payload *body;
    weft_status st = wf_lookup_request(w->lookup, &body);

    w->node.acts.n = 0;
    for (int k = 0; k < w->cut->n_table_pieces && !st; k++)
        if (body[k].n && w->leasing)
            st = wf_lessee_read(&w->leasing->m, wf_site_now(&w->node), w->cut->first_table + k,
                                &w->node.acts);
        else if (body[k].n)
            st = wf_client_read(&w->m, wf_site_now(&w->node), w->cut->first_table + k, t,
                                &w->node.acts);
    return st ? st : w->leasing ? wf_leasing_carry_out(w) : wf_ps_worker_carry_out(w);
}

weft_status wf_ps_worker_rows(struct wf_ps_worker *w, int64_t t, int var, int64_t n,
                              const int64_t *ids, float *rows, bool *all)
{
    int64_t begin = wf_site_now(&w->node);
    weft_status st;

    wf_site_lock(&w->node);
    t = w->leasing ? w->leasing->stamp : t;
    *all =
        !w->node.st && !w->rejoin && !w->restores && wf_lookup_has(w->lookup, t, var, n, ids, rows);
    if (*all) { /* they came with those of an earlier lookup */
        wf_site_unlock(&w->node);
        return WEFT_OK;
    }
    st = wf_lookup_want(w->lookup, t, var, n, ids);
    if (!st && !w->node.st)
        st = wf_site_fail(&w->node, request(w, t));
    wf_site_unlock(&w->node);
    if (!st)
        st = wf_site_wait(&w->node, has_all_rows, w, WF_PS_GIVE_UP * w->node.spec.timeout_ns,
                          "rows of tables, from parameter servers");
    wf_site_lock(&w->node);
    w->waited_s += (double)(wf_site_now(&w->node) - begin) * 1e-9;
    *all = !st && !w->restores && wf_lookup_copy(w->lookup, t, var, n, ids, rows);
    if (!st && !*all &&
        (w->leasing || w->m.t <= t || w->restores)) /* what it computes does not count */
        st = wf_err(w->rejoin || w->restores ? WEFT_ESTATE : WEFT_EBUG,
                    "rows of version %lld were requested, and have not come", (long long)t);
    if (!*all) {
        for (int k = 0; k < w->cut->n_table_pieces; k++)
            *reads_of(w, w->cut->first_table + k) = false;
        wf_lookup_forget(w->lookup);
    }
    wf_site_unlock(&w->node);
    return st;
}

double *wf_ps_worker_sums(struct wf_ps_worker *w)
{
    return wf_ps_sums_at(w, w->leasing ? 0 : w->m.t);
}

struct wf_ps_counts wf_ps_worker_counts(struct wf_ps_worker *w)
{
    struct wf_ps_counts c;

    (void)wf_site_count(&w->node, &c);
    c.waited_s = w->waited_s;
    wf_site_lock(&w->node);
    c.stale = wf_leasing_staleness(w);
    wf_site_unlock(&w->node);
    return c;
}
