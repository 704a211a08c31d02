/* join.c - a worker of parameter servers as a process: its machine over links, and the memory that
 * it trains with. */
#include "ps/worker.h"

#include "cluster/codec.h"
#include "ps/leasing.h"
#include "ps/lookup.h"
#include "ps/saving.h"
#include "ps/versions.h"

/* ---- the machine's data ---------------------------------------------------------------------- */

/* Whether servers may be more than one version ahead of this worker: it has no shards, or others
 * compute them. Then what they publish does not stay long enough to be read there. */
static bool is_behind(const struct wf_ps_worker *w)
{
    const struct wf_epoch *e = w->m.view.epoch;

    if (w->opts.backup || w->node.spec.balance_ns)
        return true;
    for (int l = 0; l < e->n_shards; l++)
        if (e->worker[l] == w->node.self)
            return false;
    return true;
}

static weft_status take_published(struct wf_ps_worker *w, int piece, int64_t t,
                                  const struct wf_ps_payload *from)
{
    const _Atomic int64_t *begun = &from->begun[2 * piece + (t & 1)];
    weft_status st;

    if (!is_behind(w)) {
        wf_versions_map(w->versions, piece, t, from->lent, from->begun);
        return WEFT_OK;
    }
    st = wf_versions_copy(w->versions, piece, t, from->lent + w->cut->piece[piece].first);
    atomic_thread_fence(memory_order_acquire);
    if (!st && atomic_load_explicit(begun, memory_order_relaxed) != t)
        st = wf_err(WEFT_ECANCEL, "version %lld of piece %d is gone", (long long)t, piece);
    return st;
}

/* Version t: in memory that the server publishes, placed where it belongs, or as bytes. */
static weft_status take(void *arg, int piece, int64_t t, const void *payload)
{
    struct wf_ps_worker *w = arg;
    const struct wf_cut_piece *p = &w->cut->piece[piece];
    const struct wf_ps_payload *from = payload;
    int64_t bytes = p->state ? wf_ps_n_kept(&w->sizes, piece) * (int64_t)sizeof(double)
                             : p->count * (int64_t)sizeof(float);
    weft_status st = WEFT_OK;

    if (w->restores) /* the caller may be reading the memory; it is pulled again */
        return WEFT_ECANCEL;
    if (!from->lent && from->body.n != bytes)
        return wf_err(WEFT_EPEER, "piece %d, version %lld: %lld bytes; %lld were expected", piece,
                      (long long)t, (long long)from->body.n, (long long)bytes);
    if (t > w->opts.start)
        w->changed = true;
    if (p->state)
        memcpy(wf_ps_sums_at(w, t), from->body.p, (size_t)bytes);
    else if (from->lent)
        st = take_published(w, piece, t, from);
    else if (from->placed)
        wf_versions_took(w->versions, from->placed);
    else
        st = wf_versions_copy(w->versions, piece, t, (const float *)(const void *)from->body.p);
    return st;
}

static bool needs(void *arg, int shard, int64_t t, int piece)
{
    (void)shard;
    (void)t;
    return !((struct wf_ps_worker *)arg)->cut->piece[piece].tables; /* rows are read one by one */
}

/* Contributions that a server reads where they are cost nothing to send; what travels as bytes is
 * added up first. */
static bool sums(void *arg, int piece)
{
    const struct wf_ps_worker *w = arg;

    return !w->opts.slots || !wf_site_maps(&w->node, w->m.view.epoch->holders[piece].primary);
}

static weft_status took_rows(void *arg, int piece, int64_t t, const void *payload)
{
    struct wf_ps_worker *w = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;

    return wf_lookup_take(w->lookup, piece - w->cut->first_table, t, b->p, b->n);
}

static void send_read(struct wf_ps_worker *w, const struct wf_message *m)
{
    const struct wf_payload *b = wf_lookup_asked(w->lookup, m->piece - w->cut->first_table);

    wf_site_send_copy(&w->node, m->to, m->type, m, b->p, b->n);
}

static void forget(void *arg, int64_t t)
{
    struct wf_ps_worker *w = arg;

    for (struct kept *k = w->kept; k; k = k->next)
        k->forgotten |= k->t < t;
}

weft_status wf_ps_worker_carry_out(struct wf_ps_worker *w)
{
    struct wf_actions *a = &w->node.acts;
    weft_status st = a->st;

    for (int64_t i = 0; i < a->n && !st; i++) {
        const struct wf_action *act = &a->act[i];

        if (act->type == WF_ACT_SEND && act->msg.type == WF_MSG_PUSH) {
            st = wf_ps_worker_push(w, &act->msg);
        } else if (act->type == WF_ACT_SEND && act->msg.type == WF_MSG_CONTROL) {
            wf_site_send_copy(&w->node, act->msg.to, act->msg.type, &act->msg, w->own.p, w->own.n);
        } else if (act->type == WF_ACT_SEND && act->msg.type == WF_MSG_READ) {
            send_read(w, &act->msg);
        } else if (act->type == WF_ACT_SEND) {
            wf_site_send_copy(&w->node, act->msg.to, act->msg.type, &act->msg, NULL, 0);
        } else if (act->type == WF_ACT_COMPUTE) {
            w->pending = true;
            w->pending_t = act->t;
            w->pending_shard = act->shard;
        } else if (act->type == WF_ACT_REJOIN) {
            w->rejoin = true;
        }
    }
    return st;
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status step(struct wf_ps_worker *w, const struct wf_message *m)
{
    weft_status st;

    if (w->leasing)
        return wf_leasing_step(w, m);
    w->node.acts.n = 0;
    st = wf_client_step(&w->m, wf_site_now(&w->node), m, &w->node.acts);
    return st ? st : wf_ps_worker_carry_out(w);
}

/* Others compute its shards: its program ends. */
static weft_status end_drained(struct wf_ps_worker *w)
{
    if (w->opts.asked)
        w->opts.asked(w->opts.asked_arg, WF_PS_ASK_DRAINED);
    return wf_err(WEFT_EPEER, "it was drained: others compute its shards");
}

static weft_status take_epoch(struct wf_ps_worker *w, struct wf_arrived *a)
{
    struct wf_message m = a->msg;
    struct wf_epoch *e;
    weft_status st = wf_epoch_read(w->node.ctx, a->p, a->n, &e);
    bool leaves;

    if (st)
        return st;
    leaves = wf_epoch_has(e, w->node.self, w->node.incarnation) &&
             wf_epoch_member(e, w->node.self)->leaves;
    if (leaves)
        st = end_drained(w);
    if (!st && e->list)
        st = wf_site_extend(&w->node, e->list);
    if (!st && e->n_pieces == w->cut->n_pieces &&
        e->n_shards == (w->leasing ? 0 : w->opts.job->plan.n_shards)) {
        m.record = e;
        st = step(w, &m);
    }
    wf_epoch_free(w->node.ctx, e);
    return st;
}

/* A version arrives where it will be read, if it will be taken. */
static int place(void *arg, const struct wf_arrived *a, int64_t n, struct wf_part *part,
                 void **placed)
{
    struct wf_ps_worker *w = arg;
    int piece = a->msg.piece;
    float *to;

    if (!w->made || w->restores || a->kind != WF_MSG_VERSION || piece < 0 ||
        piece >= w->cut->n_pieces || a->head.region || n == 0 ||
        n != w->cut->piece[piece].count * (int64_t)sizeof(float) ||
        !wf_view_counts(&w->m.view, &a->msg))
        return 0;
    if (w->leasing) {
        to = wf_leasing_place(w, a);
        *placed = to;
        part[0] = (struct wf_part){to, n};
        return to ? 1 : 0;
    }
    if (a->msg.t < w->m.t || a->msg.t > w->m.t + 1 || wf_client_has(&w->m, piece, a->msg.t))
        return 0;
    to = wf_versions_place(w->versions, piece, a->msg.t, placed);
    if (!to)
        return 0;
    part[0] = (struct wf_part){to, n};
    return 1;
}

static void unplace(void *arg, void *placed)
{
    const struct wf_ps_worker *w = arg;

    if (!w->leasing)
        wf_versions_unplace(w->versions, placed);
}

/* A version in memory that its server publishes. False: there is no such memory. */
static bool find_published(const struct wf_ps_worker *w, const struct wf_arrived *a,
                           struct wf_ps_payload *p)
{
    const struct wf_rules *r = &w->opts.job->rules;
    const char *at =
        wf_site_region(&w->node, a->from, a->head.region, wf_ps_published_bytes(r, w->cut));

    if (!at || a->kind != WF_MSG_VERSION || a->msg.t < 0)
        return false;
    p->begun = (const _Atomic int64_t *)(const void *)at;
    p->lent =
        (const float *)(const void *)(at + wf_ps_published_at(r, w->cut, (int)(a->msg.t & 1)));
    return true;
}

static weft_status step_with(struct wf_ps_worker *w, struct wf_arrived *a, struct wf_ps_payload *p)
{
    weft_status st;

    if (a->head.region && !find_published(w, a, p))
        return WEFT_OK;
    a->msg.payload = p;
    p->version = a->msg.t;
    if (w->leasing && a->kind == WF_MSG_VERSION && wf_leasing_take(w, &a->msg))
        return WEFT_OK;
    st = step(w, &a->msg);
    if (a->placed)
        unplace(w, a->placed);
    return st;
}

/* What the chief wants: `weft ctl` has asked it. */
static weft_status take_asked(struct wf_ps_worker *w, const struct wf_arrived *a)
{
    enum wf_ps_asked what = a->n == 1 && a->p ? (enum wf_ps_asked)a->p[0] : 0;

    if (w->node.spec.task[a->from].role != WF_ROLE_CHIEF ||
        (what != WF_PS_ASK_CHECKPOINT && what != WF_PS_ASK_STOP && what != WF_PS_ASK_DRAINED))
        return WEFT_OK;
    if (what == WF_PS_ASK_DRAINED)
        return end_drained(w);
    if (w->opts.asked)
        w->opts.asked(w->opts.asked_arg, what);
    return WEFT_OK;
}

/* Steps of the servers that validate, or set parameters, are none of the trainer's. A version that
 * was set, and not trained, does not say how many there were. */
static int64_t trained(struct wf_ps_worker *w)
{
    int64_t t = w->m.t;

    if (w->leasing)
        return wf_leasing_step_of(w);
    if (w->made && w->sizes.logs && wf_ps_worker_has_all(w)) {
        const double *marks = wf_ps_sums_at(w, t) + wf_ps_n_sums(&w->sizes, w->cut->n_pieces - 1);

        if (marks[WF_PS_STEP] > 0)
            w->aside = t - (int64_t)marks[WF_PS_STEP];
    }
    return wf_max_i64(t - w->aside, 0);
}

/* Now and then, for people. */
static void tell_chief(struct wf_ps_worker *w, int64_t now)
{
    struct wf_site_stat s = {.step = trained(w),
                             .aside = w->aside,
                             .samples = w->samples,
                             .waited_s = w->waited_s,
                             .stale = wf_leasing_staleness(w)};

    if (now - w->told_ns < WF_SITE_TELL_MS * 1000000LL || !w->m.view.belongs)
        return;
    w->told_ns = now;
    wf_site_tell(&w->node, w->m.view.chief, &s);
    wf_ps_worker_tell_saved(w); /* again: the message may have been lost */
}

static weft_status received(void *arg, struct wf_arrived *a)
{
    struct wf_ps_worker *w = arg;
    struct wf_ps_payload p = {.body = {a->p, a->head.n_body}, .placed = a->placed};

    if (a->kind == WF_SITE_ASKED)
        return take_asked(w, a);
    if (!w->made || w->rejoin)
        return WEFT_OK;
    if (a->kind == WF_SITE_REFUSED)
        return wf_err(WEFT_EPEER, "'%s' refuses this worker: %.*s", w->node.spec.task[a->from].name,
                      (int)wf_min_i64(a->n, 300), a->p ? a->p : "");
    if (a->kind == WF_SITE_KEPT && a->n == (int64_t)sizeof w->holds && a->p)
        memcpy(&w->holds, a->p, sizeof w->holds);
    if (a->kind == WF_SITE_IMAGE_ASK)
        wf_ps_worker_send_image(w, a);
    if (a->kind == WF_SITE_SLOTS)
        wf_ps_worker_take_slots(w, a);
    if (w->save)
        wf_ps_save_take(w->save, a);
    if (a->kind >= WF_MSG_TYPES)
        return WEFT_OK;
    if (a->kind == WF_MSG_EPOCH)
        return take_epoch(w, a);
    return step_with(w, a, &p); /* a control record has a payload, too */
}

static weft_status down(void *arg, int node, uint64_t incarnation, bool gone)
{
    struct wf_ps_worker *w = arg;

    (void)node;
    (void)incarnation;
    (void)gone;
    w->lost_t = w->made ? w->m.t : -1;
    return WEFT_OK;
}

static void up(void *arg, int node)
{
    struct wf_ps_worker *w = arg;

    if (!w->made || w->node.spec.task[node].role != WF_ROLE_CHIEF)
        return;
    wf_site_send_copy(&w->node, node, WF_SITE_JOB, NULL, w->job, w->n_job);
    if (w->opts.print)
        wf_site_send_copy(&w->node, node, WF_SITE_PRINT, NULL, w->opts.print,
                          (int64_t)strlen(w->opts.print));
}

static weft_status tick(void *arg, int64_t now)
{
    struct wf_ps_worker *w = arg;
    weft_status st;

    if (!w->made || w->rejoin)
        return WEFT_OK;
    if (wf_site_has(&w->node, w->m.view.chief) && now - w->ticked_ns < w->node.spec.timeout_ns)
        w->slept = false;
    else if (w->ticked_ns && now - w->ticked_ns > w->node.spec.timeout_ns)
        w->slept = true;
    w->ticked_ns = now;
    if (w->slots_t >= 0 && w->m.view.belongs && now - w->slots_ns > w->node.spec.retry_ns)
        wf_ps_worker_ask_slots(w, now);
    if (w->save)
        wf_ps_save_tick(w->save, now);
    tell_chief(w, now);
    if (w->leasing)
        return wf_leasing_tick(w, now);
    w->node.acts.n = 0;
    st = wf_client_tick(&w->m, now, &w->node.acts);
    return st ? st : wf_ps_worker_carry_out(w);
}

static const struct wf_site_calls calls = {
    .place = place, .unplace = unplace, .received = received, .tick = tick, .up = up, .down = down};

/* ---- life ------------------------------------------------------------------------------------ */

/* What the chief is told: the version, then the job. */
static weft_status write_job(struct wf_ps_worker *w)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, w->node.ctx, 1 << 30);
    wf_buf_add(&b, &w->opts.start, sizeof w->opts.start);
    st = wf_ps_job_write(w->opts.job, &b);
    w->job = st ? NULL : wf_alloc(w->node.ctx, (size_t)b.len + 1);
    if (w->job) {
        memcpy(w->job, b.data, (size_t)b.len);
        w->n_job = b.len;
    } else if (!st) {
        st = wf_err_nomem(w->node.ctx, (size_t)b.len, "job");
    }
    wf_buf_free(&b);
    return st;
}

static weft_status make(struct wf_ps_worker *w)
{
    const struct wf_ps_job *job = w->opts.job;
    struct wf_ps_plan plan = job->plan;
    struct wf_client_data data = {.arg = w,
                                  .backup = w->opts.backup,
                                  .sums = sums,
                                  .follow = true,
                                  .take = take,
                                  .needs = needs,
                                  .rows = took_rows,
                                  .restart = wf_ps_worker_restart,
                                  .forget = forget,
                                  .gate = wf_ps_worker_gate,
                                  .control = wf_ps_worker_control,
                                  .doing = wf_ps_worker_doing};
    weft_ctx *ctx = w->node.ctx;
    weft_status st = wf_cut_new(ctx, &job->rules, job->cut_bytes, &w->cut);

    if (st)
        return st;
    w->sizes = (struct wf_ps_store_opts){.rules = &job->rules,
                                         .cut = w->cut,
                                         .n_logs = job->n_logs,
                                         .logs = job->logs.n_batches ? &job->logs : NULL};
    st = wf_versions_new(ctx, &job->rules, w->cut, &w->versions);
    if (st)
        return st;
    w->lost_t = -1;
    w->missing = wf_alloc_n(ctx, w->cut->n_pieces + 1, sizeof *w->missing);
    w->part = wf_alloc_n(ctx, job->rules.n_groups + 2, sizeof *w->part);
    w->run = wf_alloc_n(ctx, plan.n_shards + 1, sizeof *w->run);
    w->n_sums = wf_ps_n_kept(&w->sizes, w->cut->n_pieces - 1);
    w->sums = wf_alloc_n(ctx, 2 * w->n_sums + 1, sizeof *w->sums);
    w->has_slots = wf_alloc_n(ctx, w->cut->n_pieces + 1, sizeof *w->has_slots);
    w->slots_t = -1;
    if (!w->part || !w->run || !w->sums || !w->has_slots || !w->missing)
        return wf_err_nomem(ctx, sizeof *w->part, "worker");
    plan.n_pieces = w->cut->n_pieces;
    plan.retry_ns = w->node.spec.retry_ns;
    st = write_job(w);
    w->tables = (struct wf_tables_opts){&job->rules, w->cut, plan.n_blocks};
    if (!st && w->cut->n_table_pieces)
        st = wf_lookup_new(ctx, &w->tables, w->opts.cache_bytes, &w->lookup);
    if (!st && plan.window)
        return wf_leasing_new(w, &plan);
    if (!st)
        st = wf_client_init(&w->m, ctx, &plan, &data, w->node.self, w->node.incarnation, 0);
    return st;
}

weft_status wf_ps_worker_start(weft_ctx *ctx, const struct wf_spec *spec, int self,
                               const struct wf_ps_worker_opts *opts, struct wf_ps_worker **out)
{
    struct wf_ps_worker *w = wf_alloc(ctx, sizeof *w);
    weft_status st;

    if (!w)
        return wf_err_nomem(ctx, sizeof *w, "worker");
    w->opts = *opts;
    w->at = opts->start;
    w->changed = w->late = opts->late;
    w->record.t = w->own.t = w->taken = w->saved = w->holds = -1;
    w->history = opts->history;
    st = wf_site_start(&w->node, ctx, spec, self, &calls, w);
    if (st) {
        wf_free(ctx, w);
        return st;
    }
    wf_site_lock(&w->node);
    st = make(w);
    w->made = !st;
    for (int i = 0; i < spec->n_tasks && !st; i++)
        up(w, i);
    if (!st)
        st = tick(w, wf_site_now(&w->node)); /* the chief need not wait for it */
    wf_site_unlock(&w->node);
    if (st) {
        wf_ps_worker_stop(w);
        return st;
    }
    *out = w;
    return WEFT_OK;
}

void wf_ps_worker_stop(struct wf_ps_worker *w)
{
    weft_ctx *ctx;

    if (!w)
        return;
    ctx = w->node.ctx;
    wf_ps_saves_end(w);
    if (w->made && !w->node.st && !w->rejoin) {
        wf_site_lock(&w->node);
        wf_site_send_copy(&w->node, w->m.view.chief, WF_SITE_FINISHED, NULL, NULL, 0);
        wf_site_unlock(&w->node);
    }
    wf_site_stop(&w->node);
    wf_ps_worker_reap(w, true);
    wf_ps_worker_free_rows(w, w->spare_rows);
    if (w->leasing)
        wf_leasing_free(w);
    else if (w->made)
        wf_client_free(&w->m);
    wf_versions_free(w->versions);
    wf_lookup_free(w->lookup);
    wf_tables_sort_free(ctx, &w->sort);
    wf_cut_free(w->cut);
    wf_free(ctx, w->missing);
    wf_free(ctx, w->job);
    wf_free(ctx, w->part);
    wf_free(ctx, w->run);
    wf_free(ctx, w->sums);
    wf_free(ctx, w->has_slots);
    wf_ps_worker_free_records(w);
    wf_free(ctx, w);
}
