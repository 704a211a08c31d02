/* servers_turns.c - a worker's turns: what it may do before a step, and what it is told in the
 * middle of one. Control records are made and followed here. */
#include "ps/saving.h"
#include "train/step/servers.h"

/* The job continued without this worker: it joins again, as a new one. */
static weft_status rejoin(struct wf_servers *s, int64_t t)
{
    uint64_t history = wf_ps_worker_history(s->worker);
    weft_status st;

    wf_log(
        s->ctx, WEFT_LOG_WARN,
        "task '%s' was silent for too long at step %lld, and its shards were given to others: it "
        "joins again",
        s->task[s->self].name, (long long)t);
    wf_servers_params(s); /* if it is not too late */
    s->elsewhere = false;
    if (s->slots)
        wf_ps_slots_abandon(s->slots);
    wf_ps_worker_stop(s->worker);
    s->worker = NULL;
    s->opts.late = true;
    s->opts.start = t;
    s->opts.history = history;
    st = wf_servers_renew(s);
    if (st)
        return st;
    s->opts.slots = s->slots;
    return wf_ps_worker_start(s->ctx, &s->spec, s->self, &s->opts, &s->worker);
}

static weft_status ask_turn(struct wf_servers *s, const struct wf_ps_ask *ask,
                            enum wf_ps_next *next)
{
    return s->leased ? wf_servers_lease_turn(s, next) : wf_ps_worker_turn(s->worker, ask, next);
}

/* What a worker is told, as the loop understands it; joining again takes place here. */
static weft_status turn_of(struct wf_servers *s, const struct wf_ps_ask *ask, enum wf_ps_next next,
                           enum wf_turn *turn)
{
    weft_status st = WEFT_OK;

    while (!st && next == WF_PS_REJOIN) {
        st = rejoin(s, ask->t);
        if (!st)
            st = ask_turn(s, ask, &next);
    }
    if (!st && next == WF_PS_RESTORE) /* fit goes back, others cannot */
        return wf_err(s->led ? WEFT_ECANCEL : WEFT_EPEER,
                      "servers died with the only copy of parameters: training has to resume "
                      "from the last checkpoint");
    *turn = next == WF_PS_ASKED   ? WF_TURN_DECIDE
            : next == WF_PS_NEWS  ? WF_TURN_FOLLOW
            : next == WF_PS_MOVED ? WF_TURN_MOVED
                                  : WF_TURN_GO;
    return st;
}

weft_status wf_servers_turn_of(struct wf_servers *s, int64_t t, enum wf_ps_next next,
                               enum wf_turn *turn)
{
    return turn_of(s, &(struct wf_ps_ask){.t = t, .expects = true}, next, turn);
}

/* The step cannot be finished as it was begun. */
weft_status wf_servers_give_up(struct wf_servers *s, int64_t t, enum wf_ps_next next)
{
    weft_status st = turn_of(s, &(struct wf_ps_ask){.t = t}, next, &s->turn);

    if (st)
        return st;
    s->turned = true;
    if (!s->led)
        return wf_err(WEFT_ESTATE, "the job is at step %lld, this worker at step %lld",
                      (long long)wf_ps_worker_version(s->worker), (long long)t);
    return wf_err(WEFT_ECANCEL, "step %lld: given up, because the job goes on elsewhere",
                  (long long)t);
}

/* Steps that no fit leads have no control records, except the first of a history. */
weft_status wf_servers_begin_alone(struct wf_servers *s, int64_t t)
{
    enum wf_ps_next next;
    weft_status st =
        s->led ? WEFT_OK : wf_ps_worker_turn(s->worker, &(struct wf_ps_ask){.t = t}, &next);

    s->turned = false;
    return st;
}

/* What is next, with an empty record where one is needed and nobody leads. */
weft_status wf_servers_next(struct wf_servers *s, int64_t t, enum wf_ps_next *next, int *shard)
{
    weft_status st = wf_ps_worker_next(s->worker, t, next, shard);

    while (!st && !s->led && (*next == WF_PS_ASKED || *next == WF_PS_NEWS)) {
        char *p = NULL;
        int64_t n, at;

        if (*next == WF_PS_ASKED)
            st = wf_ps_worker_decide(s->worker, t, "", 0, next);
        else
            st = wf_ps_worker_record(s->worker, &p, &n, &at);
        wf_free(s->ctx, p);
        if (!st)
            st = wf_ps_worker_next(s->worker, t, next, shard);
    }
    if (!st && *next != WF_PS_COMPUTE && *next != WF_PS_COMPLETE)
        st = wf_servers_give_up(s, t, *next);
    return st;
}

/* ---- for the training loop ------------------------------------------------------------------- */

bool wf_dist_together(const weft_trainer *t)
{
    return t->dist && t->dist->kind.compute == wf_servers_compute;
}

weft_status wf_dist_tell(weft_trainer *t, const char *print)
{
    struct wf_servers *s = t->dist->self;

    if (s->worker)
        return WEFT_OK;
    wf_free(s->ctx, s->print);
    s->print = wf_strdup(s->ctx, print);
    return s->print ? WEFT_OK : wf_err_nomem(s->ctx, strlen(print), "fingerprint");
}

static weft_status join_of(weft_trainer *t, struct wf_servers **s)
{
    struct wf_work *w;
    weft_status st = wf_work_get(t, &w);

    *s = t->dist->self;
    return st ? st : wf_servers_begin(*s, w, weft_trainer_step(t));
}

weft_status wf_dist_turn(weft_trainer *t, bool expects, bool wants, enum wf_turn *turn)
{
    struct wf_ps_ask ask = {.expects = expects, .wants = wants};
    struct wf_servers *s;
    enum wf_ps_next next;
    bool first = !((struct wf_servers *)t->dist->self)->worker;
    weft_status st = join_of(t, &s);

    if (!st && first && !t->stored)
        st = wf_servers_keep_origin(s);
    if (st)
        return st;
    ask.t = s->version;
    s->led = true;
    s->turned = false;
    st = ask_turn(s, &ask, &next);
    return st ? st : turn_of(s, &ask, next, turn);
}

weft_status wf_dist_decide(weft_trainer *t, const char *p, int64_t n, enum wf_turn *turn)
{
    struct wf_servers *s = t->dist->self;
    struct wf_ps_ask ask = {.t = s->version, .expects = true};
    enum wf_ps_next next;
    weft_status st = wf_ps_worker_decide(s->worker, ask.t, p, n, &next);

    return st ? st : turn_of(s, &ask, next, turn);
}

weft_status wf_dist_record(weft_trainer *t, char **p, int64_t *n, int64_t *at)
{
    struct wf_servers *s = t->dist->self;

    wf_servers_drop_set(s); /* another worker has decided */
    return wf_ps_worker_record(s->worker, p, n, at);
}

weft_status wf_dist_seek(weft_trainer *t, int64_t *batch)
{
    struct wf_servers *s = t->dist->self;
    double *sums = wf_ps_worker_sums(s->worker), *marks = sums + wf_servers_marks(s);
    weft_status st;

    wf_work_drop(s->w);
    st = wf_servers_have(s, wf_ps_worker_version(s->worker));
    if (st == WEFT_ESTATE) /* the others did not wait for it */
        return wf_servers_give_up(s, wf_ps_worker_version(s->worker), WF_PS_REJOIN);
    if (!st)
        st = wf_work_took(s->w, sums, marks + WF_PS_TOTALS, true);
    weft_fn_set_step(s->w->b->fit, (int64_t)marks[WF_PS_STEP]);
    memcpy(t->scale.state, marks + WF_PS_SCALE, sizeof t->scale.state);
    t->pending = t->drawn = 0;
    *batch = (int64_t)marks[WF_PS_BATCHES];
    return st;
}

weft_status wf_dist_save(weft_trainer *t, struct wf_ps_save **out)
{
    struct wf_servers *s;
    weft_status st = join_of(t, &s);

    return st ? st : wf_ps_save_begin(s->worker, wf_dist_at(t) * wf_servers_leases(s), out);
}

bool wf_dist_decides(weft_trainer *t)
{
    const struct wf_servers *s = t->dist->self;

    return s->worker && wf_ps_worker_decides(s->worker);
}

void wf_dist_led(weft_trainer *t, bool quit)
{
    struct wf_servers *s = t->dist->self;

    s->led = false;
    if (!quit)
        return;
    wf_servers_params(s);
    s->elsewhere = false;
    wf_ps_worker_stop(s->worker);
    s->worker = NULL;
    s->ended = true;
}

bool wf_dist_turned(weft_trainer *t, enum wf_turn *turn)
{
    struct wf_servers *s = t->dist->self;
    bool turned = s->turned;

    s->turned = false;
    *turn = s->turn;
    return turned;
}
