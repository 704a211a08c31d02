/* control.c - whose turn it is: a worker waits for control records, makes them, and follows them.
 *
 * Kept true: while the caller reads its memory, no version is taken; what it decides counts once
 * the chief has sent it back. */
#include "ps/leasing.h"

#define FOR_EVER_NS ((int64_t)7 * 86400 * 1000000000) /* nobody is left out */
#define SLICE_NS 250000000
#define EARLY_NS ((int64_t)3600 * 1000000000) /* as long as a token is valid */
enum { STALLS = 12 };                         /* a decision may take ten of them */

void wf_ps_worker_free_records(struct wf_ps_worker *w)
{
    wf_free(w->node.ctx, w->record.p);
    wf_free(w->node.ctx, w->own.p);
}

static weft_status set_record(struct wf_ps_worker *w, struct wf_ps_record *r, int64_t t,
                              const char *p, int64_t n)
{
    char *copy = wf_alloc(w->node.ctx, (size_t)n + 1);

    if (!copy)
        return wf_err_nomem(w->node.ctx, (size_t)n, "control record");
    if (n)
        memcpy(copy, p, (size_t)n);
    wf_free(w->node.ctx, r->p);
    *r = (struct wf_ps_record){t, n, copy};
    return WEFT_OK;
}

/* ---- for the machine ------------------------------------------------------------------------- */

/* The step up to which the version that is here follows records. */
static double mark_of(const struct wf_ps_worker *w)
{
    return wf_ps_sums_at(w, w->m.t)[wf_ps_n_sums(&w->sizes, w->cut->n_pieces - 1) + WF_PS_CONTROL];
}

/* The version that is here follows a record that the caller has missed: a later one has replaced
 * it. So the caller can neither complete its step with this version nor begin another one. */
static bool is_passed(const struct wf_ps_worker *w)
{
    return w->sizes.logs && w->record.t > w->m.t && mark_of(w) > (double)w->taken;
}

enum wf_gate wf_ps_worker_gate(void *arg, int64_t t, bool decides)
{
    const struct wf_ps_worker *w = arg;

    if (w->busy || w->restores)
        return WF_GATE_HOLD;
    if (w->late)
        return WF_GATE_IDLE;
    if (t == w->at && w->begun)
        return w->expects || (w->wants && decides) ? WF_GATE_RECORD : WF_GATE_OPEN;
    if (t != w->at + 1 || w->m.t != t || !wf_ps_worker_has_all(w) || is_passed(w))
        return WF_GATE_IDLE;
    return WF_GATE_HOLD;
}

enum wf_doing wf_ps_worker_doing(void *arg)
{
    const struct wf_ps_worker *w = arg;

    if (w->node.waiting)
        return WF_DOES_WAIT;
    return w->begun && !w->restores ? WF_DOES_READ : WF_DOES_PREPARE;
}

weft_status wf_ps_worker_control(void *arg, int64_t t, const void *payload)
{
    struct wf_ps_worker *w = arg;
    const struct wf_ps_payload *from = payload;

    return set_record(w, &w->record, t, from->body.p, from->body.n);
}

bool wf_ps_worker_moved(const struct wf_ps_worker *w)
{
    return w->m.view.belongs && !w->restores && (w->m.t != w->at || w->late) && w->record.t >= 0 &&
           w->record.t <= w->m.t && wf_ps_worker_has_all(w) && w->sizes.logs &&
           mark_of(w) <= (double)w->record.t;
}

bool wf_ps_worker_is_asked(const struct wf_ps_worker *w)
{
    return w->m.asked == w->at && w->m.t == w->at && w->m.decided < w->at && w->m.control < w->at &&
           !w->late;
}

/* ---- the caller ------------------------------------------------------------------------------ */

weft_status wf_ps_worker_cancel(struct wf_ps_worker *w)
{
    weft_status st;

    if (!w->pending || w->pending_t == w->m.t || w->node.st || w->leasing)
        return WEFT_OK;
    w->pending = false;
    w->node.acts.n = 0;
    st = wf_client_computed(&w->m, wf_site_now(&w->node), w->pending_t, w->pending_shard,
                            &w->node.acts);
    return wf_site_fail(&w->node, st ? st : wf_ps_worker_carry_out(w));
}

/* It wanted to decide, and another worker does. */
static bool is_not_asked(const struct wf_ps_worker *w)
{
    return !w->expects && !w->late && w->m.view.belongs && !wf_client_decides(&w->m);
}

static bool has_turn(void *arg)
{
    struct wf_ps_worker *w = arg;

    wf_ps_worker_cancel(w);
    return w->rejoin || w->restores || wf_ps_worker_is_asked(w) || is_not_asked(w) ||
           (w->record.t == w->at && !w->late) || wf_ps_worker_moved(w);
}

static bool is_answered(void *arg)
{
    struct wf_ps_worker *w = arg;

    wf_ps_worker_cancel(w);
    return w->rejoin || w->restores ||
           (w->leasing ? w->record.t >= w->at : w->record.t == w->at || wf_ps_worker_moved(w));
}

static weft_status go(struct wf_ps_worker *w)
{
    weft_status st = WEFT_OK;

    w->node.acts.n = 0;
    if (!w->node.st && !w->rejoin)
        st = wf_client_go(&w->m, wf_site_now(&w->node), &w->node.acts);
    return wf_site_fail(&w->node, st ? st : wf_ps_worker_carry_out(w));
}

/* What a wait has ended with. With the lock. */
static enum wf_ps_next turn_of(struct wf_ps_worker *w, bool own)
{
    bool same = own && w->record.t == w->at && w->record.n == w->own.n &&
                memcmp(w->record.p, w->own.p, (size_t)w->own.n) == 0;

    if (w->rejoin)
        return WF_PS_REJOIN;
    if (w->restores)
        return WF_PS_RESTORE;
    if (w->record.t == w->at && !w->late) {
        if (same)
            w->taken = w->at;
        return w->taken == w->at ? WF_PS_GO : WF_PS_NEWS;
    }
    if (w->leasing && w->record.t > w->taken)
        return WF_PS_NEWS;
    if (wf_ps_worker_is_asked(w))
        return WF_PS_ASKED;
    if (!own && is_not_asked(w))
        return WF_PS_GO;
    w->busy = true;
    return WF_PS_MOVED;
}

weft_status wf_ps_worker_err_outside(const struct wf_ps_worker *w, weft_status st)
{
    int chief = w->m.view.epoch ? w->m.view.chief : WF_NOBODY;
    const char *name = w->node.spec.task[w->node.self].name, *why = wf_site_why(&w->node, chief);

    if (wf_site_has(&w->node, w->m.view.chief))
        return wf_err(st, "the job has not begun: other tasks are missing");
    if (wf_site_is_alone(&w->node) && (w->opts.late || w->slept))
        return wf_err(st,
                      "the job has ended without '%s', which was silent for too long: no chief and "
                      "no server is there any more (%s). There is nothing left to do; if the job "
                      "did not end in order, start all of its tasks again",
                      name, why);
    if (w->m.view.belongs)
        return wf_err(st,
                      "no chief and no server is there any more (%s): if the job has not ended, "
                      "start all of its tasks again",
                      why);
    if (w->opts.late)
        return wf_err(st,
                      "the job continued without '%s', which was silent for too long, and now the "
                      "chief cannot be reached (%s): if the job is running, start this task again",
                      name, why);
    return wf_err(st, "the job has not begun: the chief cannot be reached (%s)", why);
}

static weft_status err_turn(struct wf_ps_worker *w, weft_status st)
{
    const struct wf_view *v = &w->m.view;
    int decider;

    if (st != WEFT_ETIME)
        return st;
    if (!v->belongs || wf_site_is_alone(&w->node))
        return wf_ps_worker_err_outside(w, st);
    decider = wf_epoch_decider(v->epoch);
    return wf_err(st, "step %lld: no control record; '%s' decides, and the chief is %s",
                  (long long)w->at, w->node.spec.task[decider].name,
                  wf_site_has(&w->node, v->chief) ? "connected" : "not connected");
}

static bool belongs(struct wf_ps_worker *w)
{
    bool is;

    wf_site_lock(&w->node);
    is = w->m.view.belongs;
    wf_site_unlock(&w->node);
    return is;
}

/* Whether the chief and all servers are there, so that it is a worker that the job waits for. */
static bool is_connected(struct wf_ps_worker *w)
{
    const struct wf_view *v = &w->m.view;
    bool all;

    wf_site_lock(&w->node);
    all = v->belongs && wf_site_has(&w->node, v->chief);
    for (int i = 0; all && i < v->epoch->n_pieces; i++)
        all = wf_site_has(&w->node, v->epoch->holders[i].primary);
    wf_site_unlock(&w->node);
    return all;
}

/* A chief is there, and there never was an epoch: other tasks are still to be started. */
static bool is_early(struct wf_ps_worker *w)
{
    const struct wf_view *v = &w->m.view;
    bool early;

    wf_site_lock(&w->node);
    early = !v->epoch && wf_site_has(&w->node, v->chief);
    wf_site_unlock(&w->node);
    return early;
}

/* It was stopped, or has joined again, and there is no task that it could join: the job has ended
 * meanwhile. A chief that is started again finds servers there. */
static bool is_over(struct wf_ps_worker *w)
{
    bool over;

    wf_site_lock(&w->node);
    over = (w->opts.late || w->slept) && wf_site_is_alone(&w->node);
    wf_site_unlock(&w->node);
    return over;
}

static void say_unreached(struct wf_ps_worker *w)
{
    wf_site_lock(&w->node);
    if (!w->m.view.epoch && !wf_site_has(&w->node, w->m.view.chief))
        wf_log(w->node.ctx, WEFT_LOG_WARN, "the chief cannot be reached yet: %s",
               wf_site_why(&w->node, WF_NOBODY));
    wf_site_unlock(&w->node);
}

/* Other tasks may be started much later, on other machines. Meanwhile it is looked whether the
 * caller wants to end. */
static weft_status await_begin(struct wf_ps_worker *w, bool (*done)(void *arg), void *arg,
                               int64_t patience, const char *what)
{
    int64_t begin = wf_site_now(&w->node), said = begin, early = begin, met = begin, now;
    int64_t alone = WF_PS_ALONE * w->node.spec.timeout_ns;
    bool unreached = false;
    weft_status st;

    do {
        st = wf_site_wait(&w->node, done, arg, wf_min_i64(patience, SLICE_NS), what);
        if (st == WEFT_ETIME && w->opts.interrupted && w->opts.interrupted(w->opts.asked_arg))
            return wf_err(WEFT_ECANCEL, "stopped before the job began");
        now = wf_site_now(&w->node);
        if (is_early(w))
            early = now;
        if (!is_over(w))
            met = now;
        if (!unreached && now - early > patience / 4) {
            say_unreached(w);
            unreached = true;
        }
        if (st == WEFT_ETIME && now - said > patience && early == now) {
            wf_log(w->node.ctx, WEFT_LOG_WARN,
                   "the job has not begun after %.0f s: other tasks are missing",
                   (double)(now - begin) * 1e-9);
            said = now;
        }
    } while (st == WEFT_ETIME && !belongs(w) && now - early < patience && now - met < alone &&
             now - begin < wf_max_i64(EARLY_NS, patience));
    return st;
}

weft_status wf_ps_worker_await(struct wf_ps_worker *w, bool (*done)(void *arg), void *arg,
                               const char *what)
{
    const struct wf_spec *spec = &w->node.spec;
    int64_t patience = WF_PS_GIVE_UP * spec->timeout_ns, begin = wf_site_now(&w->node);
    int64_t most = spec->stall_ns ? STALLS * spec->stall_ns + patience : FOR_EVER_NS, since;
    bool begun = belongs(w), over = false;
    weft_status st = begun ? WEFT_OK : await_begin(w, done, arg, patience, what);

    if (!begun && (st != WEFT_ETIME || !belongs(w)))
        return st;
    do {
        since = wf_site_now(&w->node);
        do {
            st = wf_site_wait(&w->node, done, arg, WF_PS_ALONE * spec->timeout_ns, what);
            over = st == WEFT_ETIME && is_over(w);
        } while (st == WEFT_ETIME && !over && wf_site_now(&w->node) - since < patience);
    } while (st == WEFT_ETIME && !over && wf_site_now(&w->node) - begin < most && is_connected(w));
    return st;
}

/* Waits for `done`, and says what has come. */
static weft_status await(struct wf_ps_worker *w, bool (*done)(void *arg), bool own,
                         enum wf_ps_next *next)
{
    int64_t begin = wf_site_now(&w->node);
    weft_status st = wf_ps_worker_await(w, done, w, "a control record");

    wf_site_lock(&w->node);
    w->waited_s += (double)(wf_site_now(&w->node) - begin) * 1e-9;
    st = st ? err_turn(w, st) : WEFT_OK;
    if (!st)
        *next = turn_of(w, own);
    if (!st && *next == WF_PS_MOVED)
        st = wf_ps_worker_cancel(w);
    wf_site_unlock(&w->node);
    return st;
}

weft_status wf_ps_worker_turn(struct wf_ps_worker *w, const struct wf_ps_ask *ask,
                              enum wf_ps_next *next)
{
    bool waits;
    weft_status st;

    wf_site_lock(&w->node);
    w->at = ask->t;
    w->begun = true;
    w->busy = false;
    w->expects = ask->expects;
    w->wants = ask->wants;
    st = go(w);
    waits = ask->expects || ask->wants || w->late;
    wf_site_unlock(&w->node);
    if (st)
        return st;
    *next = WF_PS_GO;
    return waits ? await(w, has_turn, false, next) : WEFT_OK;
}

weft_status wf_ps_worker_decide(struct wf_ps_worker *w, int64_t t, const char *p, int64_t n,
                                enum wf_ps_next *next)
{
    weft_status st;

    wf_site_lock(&w->node);
    st = set_record(w, &w->own, t, p, n);
    w->node.acts.n = 0;
    if (!st && w->leasing)
        st = wf_leasing_decided(w, t);
    else if (!st && !w->node.st && !w->rejoin)
        st = wf_client_decided(&w->m, wf_site_now(&w->node), t, &w->node.acts);
    st = wf_site_fail(&w->node, st || w->leasing ? st : wf_ps_worker_carry_out(w));
    wf_site_unlock(&w->node);
    return st ? st : await(w, is_answered, true, next);
}

weft_status wf_ps_worker_record(struct wf_ps_worker *w, char **p, int64_t *n, int64_t *t)
{
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    *t = w->record.t;
    *n = w->record.n;
    *p = wf_alloc(w->node.ctx, (size_t)w->record.n + 1);
    if (!*p)
        st = wf_err_nomem(w->node.ctx, (size_t)w->record.n, "control record");
    else if (w->record.n)
        memcpy(*p, w->record.p, (size_t)w->record.n);
    if (!st) {
        w->taken = w->record.t;
        w->late = false;
    }
    wf_site_unlock(&w->node);
    return st;
}

int64_t wf_ps_worker_taken(struct wf_ps_worker *w)
{
    int64_t t;

    wf_site_lock(&w->node);
    t = w->taken;
    wf_site_unlock(&w->node);
    return t;
}

int64_t wf_ps_worker_version(struct wf_ps_worker *w)
{
    int64_t t;

    wf_site_lock(&w->node);
    t = w->m.t;
    wf_site_unlock(&w->node);
    return t;
}

bool wf_ps_worker_decides(struct wf_ps_worker *w)
{
    bool decides;

    wf_site_lock(&w->node);
    decides = wf_client_decides(&w->m);
    wf_site_unlock(&w->node);
    return decides;
}
