/* leasing.c - a worker whose shards are leased one by one, as a process.
 *
 * Kept true: what the caller reads is written only while it waits for a lease, or for what is read
 * at a boundary; a lease is computed only after the caller has followed the control record that it
 * needs. */
#include "ps/leasing.h"

/* A pull that no lease needs: the answer is for the caller, who is at a boundary. */
#define BOUNDARY ((int64_t)1 << 61)

bool wf_ps_leases(const struct wf_ps_worker *w)
{
    return w->leasing != NULL;
}

/* ---- for the machine ------------------------------------------------------------------------- */

/* Version t of a piece, into the caller's vector. WEFT_ECANCEL: it was overwritten meanwhile. */
static weft_status take_piece(struct wf_ps_worker *w, int piece, const struct wf_ps_payload *from)
{
    const struct wf_cut_piece *p = &w->cut->piece[piece];
    const float *at =
        from->lent ? from->lent + p->first : (const float *)(const void *)from->body.p;
    int64_t bytes = p->state ? wf_ps_n_kept(&w->sizes, piece) * (int64_t)sizeof(double)
                             : p->count * (int64_t)sizeof(float);
    const _Atomic int64_t *begun;

    if (p->tables)
        return WEFT_OK;
    if (!from->lent && from->body.n != bytes)
        return wf_err(WEFT_EPEER, "piece %d, version %lld: %lld bytes; %lld were expected", piece,
                      (long long)from->version, (long long)from->body.n, (long long)bytes);
    /* the first version is what is here: a server that is late may still ask for it */
    w->changed |= from->version != w->opts.start * w->leasing->m.plan.n_shards;
    if (p->state) {
        memcpy(w->sums, from->body.p, (size_t)bytes);
        return WEFT_OK;
    }
    if (from->placed)
        return WEFT_OK;
    if (bytes)
        memcpy(w->opts.params + p->first, at, (size_t)bytes);
    if (!from->lent)
        return WEFT_OK;
    begun = &from->begun[2 * piece + (from->version & 1)];
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(begun, memory_order_relaxed) == from->version)
        return WEFT_OK;
    w->changed = true;
    return wf_err(WEFT_ECANCEL, "version %lld of piece %d is gone", (long long)from->version,
                  piece);
}

static weft_status take(void *arg, int piece, int64_t lease, const void *payload)
{
    (void)lease;
    return take_piece(arg, piece, payload);
}

static bool needs(void *arg, int64_t lease, int piece)
{
    const struct wf_ps_worker *w = arg;

    (void)lease; /* of tables, rows are read one by one; with a bound the piece says when */
    return !w->cut->piece[piece].tables || w->leasing->m.plan.stale >= 0;
}

static weft_status took_rows(void *arg, int piece, int64_t lease, const void *payload)
{
    struct wf_ps_worker *w = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;

    (void)lease;
    return wf_lookup_take(w->lookup, piece - w->cut->first_table, w->leasing->stamp, b->p, b->n);
}

/* Rows are of one lease alone: what others change is not known here. */
static void forget_rows(struct wf_ps_worker *w)
{
    w->leasing->stamp++;
    if (w->lookup)
        wf_lookup_forget(w->lookup);
}

static void forget(void *arg, int64_t lease)
{
    struct wf_ps_worker *w = arg;

    for (struct kept *k = w->kept; k; k = k->next)
        k->forgotten |= k->t == lease;
}

static bool may(void *arg)
{
    const struct wf_ps_worker *w = arg;

    return w->leasing->waits && !w->restores && w->record.t <= w->taken;
}

/* What other files read of a worker that computes steps. */
static void mirror(struct wf_ps_worker *w)
{
    const struct wf_lessee_worker *m = &w->leasing->m;

    w->m.view = m->view;
    w->m.t = m->t;
    w->m.known = m->control;
    w->m.plan = m->plan;
}

static void restart(void *arg)
{
    struct wf_ps_worker *w = arg;

    mirror(w);
    w->pending = false;
    w->leasing->at = w->leasing->reads = -1;
    wf_ps_worker_restart(w);
}

/* What the caller has decided is given again, if this worker is asked again: when it had decided,
 * another one was to, which is gone. */
weft_status wf_leasing_decided(struct wf_ps_worker *w, int64_t t)
{
    weft_status st;

    if (w->node.st || w->rejoin)
        return WEFT_OK;
    w->node.acts.n = 0;
    st = wf_lessee_decided(&w->leasing->m, wf_site_now(&w->node), t, &w->node.acts);
    return st ? st : wf_leasing_carry_out(w);
}

static void send_rows(struct wf_ps_worker *w, const struct wf_message *m)
{
    const struct wf_payload *b = wf_lookup_asked(w->lookup, m->piece - w->cut->first_table);

    wf_site_send_copy(&w->node, m->to, m->type, m, b->p, b->n);
}

weft_status wf_leasing_carry_out(struct wf_ps_worker *w)
{
    struct wf_actions *a = &w->node.acts;
    weft_status st = a->st;
    bool asked = false;

    mirror(w);
    for (int64_t i = 0; i < a->n && !st; i++) {
        const struct wf_action *act = &a->act[i];
        const struct wf_message *m = &act->msg;

        if (act->type == WF_ACT_SEND && (m->type == WF_MSG_PUSH || m->type == WF_MSG_CLOSE)) {
            st = wf_ps_worker_close(w, m);
        } else if (act->type == WF_ACT_SEND && m->type == WF_MSG_CONTROL) {
            wf_site_send_copy(&w->node, m->to, m->type, m, w->own.p, w->own.n);
        } else if (act->type == WF_ACT_SEND && m->type == WF_MSG_READ) {
            send_rows(w, m);
        } else if (act->type == WF_ACT_SEND) {
            wf_site_send_copy(&w->node, m->to, m->type, m, NULL, 0);
        } else if (act->type == WF_ACT_COMPUTE) {
            w->pending = true;
            w->pending_t = act->t;
        } else if (act->type == WF_ACT_DECIDE) {
            wf_ps_worker_at_start(w, act->t);
            asked = w->own.t == act->t;
        } else if (act->type == WF_ACT_REJOIN) {
            w->rejoin = true;
        }
    }
    return st || !asked ? st : wf_leasing_decided(w, w->own.t);
}

/* ---- life ------------------------------------------------------------------------------------ */

weft_status wf_leasing_new(struct wf_ps_worker *w, const struct wf_ps_plan *plan)
{
    struct wf_lessee_data data = {.arg = w,
                                  .take = take,
                                  .needs = needs,
                                  .rows = took_rows,
                                  .restart = restart,
                                  .forget = forget,
                                  .control = wf_ps_worker_control,
                                  .doing = wf_ps_worker_doing,
                                  .may = may};
    weft_ctx *ctx = w->node.ctx;
    struct wf_leasing *l = wf_alloc(ctx, sizeof *l);
    weft_status st;

    if (!l)
        return wf_err_nomem(ctx, sizeof *l, "worker");
    l->at = l->reads = -1;
    l->read = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *l->read);
    st = l->read ? wf_lessee_init(&l->m, ctx, plan, &data, w->node.self, w->node.incarnation, 0)
                 : wf_err_nomem(ctx, sizeof *l, "worker");
    if (st) {
        wf_free(ctx, l->read);
        wf_free(ctx, l);
        return st;
    }
    w->leasing = l;
    mirror(w);
    return WEFT_OK;
}

void wf_leasing_free(struct wf_ps_worker *w)
{
    wf_lessee_free(&w->leasing->m);
    wf_free(w->node.ctx, w->leasing->read);
    wf_free(w->node.ctx, w->leasing);
    w->leasing = NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

weft_status wf_leasing_step(struct wf_ps_worker *w, const struct wf_message *m)
{
    weft_status st;

    w->node.acts.n = 0;
    st = wf_lessee_step(&w->leasing->m, wf_site_now(&w->node), m, &w->node.acts);
    return st ? st : wf_leasing_carry_out(w);
}

static void ask_read(struct wf_ps_worker *w, int64_t now)
{
    struct wf_leasing *l = w->leasing;

    l->read_ns = now;
    for (int i = 0; i < w->cut->n_pieces && l->m.view.belongs; i++) {
        int to = l->m.view.epoch->holders[i].primary;
        struct wf_message *m;

        if (l->read[i])
            continue;
        w->node.acts.n = 0;
        m = wf_view_send(&l->m.view, &w->node.acts, WF_MSG_PULL, to);
        if (!m)
            continue; /* it is asked again */
        m->piece = i;
        m->t = l->m.clock;
        m->lease = BOUNDARY;
        wf_site_send_copy(&w->node, to, WF_MSG_PULL, m, NULL, 0);
    }
    w->node.acts.n = 0;
}

/* The record that all others may have: it may have been lost on its way. */
static void ask_record(struct wf_ps_worker *w, int64_t now)
{
    struct wf_message *m;

    w->leasing->ask_ns = now;
    w->node.acts.n = 0;
    m = wf_view_send(&w->leasing->m.view, &w->node.acts, WF_MSG_CONTROL_ASK,
                     w->leasing->m.view.chief);
    if (m)
        wf_site_send_copy(&w->node, m->to, m->type, m, NULL, 0);
    w->node.acts.n = 0;
}

weft_status wf_leasing_tick(struct wf_ps_worker *w, int64_t now)
{
    struct wf_leasing *l = w->leasing;
    int64_t retry = w->node.spec.retry_ns;
    weft_status st;

    if (l->reads >= 0 && now - l->read_ns > retry)
        ask_read(w, now);
    if (l->turns && l->m.view.belongs && now - l->ask_ns > retry)
        ask_record(w, now);
    w->node.acts.n = 0;
    st = wf_lessee_tick(&l->m, now, &w->node.acts);
    return st ? st : wf_leasing_carry_out(w);
}

float *wf_leasing_place(struct wf_ps_worker *w, const struct wf_arrived *a)
{
    const struct wf_lessee_worker *m = &w->leasing->m;

    if (!w->leasing->waits || m->computing || a->msg.lease != m->lease ||
        m->piece[a->msg.piece].here)
        return NULL;
    return w->opts.params + w->cut->piece[a->msg.piece].first;
}

bool wf_leasing_take(struct wf_ps_worker *w, const struct wf_message *m)
{
    struct wf_leasing *l = w->leasing;

    if (m->lease != BOUNDARY)
        return false;
    if (l->reads < 0 || m->piece < 0 || m->piece >= w->cut->n_pieces || l->read[m->piece] ||
        !wf_view_counts(&l->m.view, m) || m->t < l->reads || (m->t > l->reads && !l->later))
        return true;
    l->read[m->piece] = !take_piece(w, m->piece, m->payload); /* otherwise it is asked again */
    return true;
}

/* ---- the caller: boundaries ------------------------------------------------------------------ */

/* This worker decides what comes at a step that all have reached, and has not yet. */
bool wf_leasing_is_asked(const struct wf_ps_worker *w)
{
    const struct wf_lessee_worker *m = &w->leasing->m;

    return m->asked > m->control && m->decided < m->asked && wf_lessee_decides(m);
}

static bool has_news(const struct wf_ps_worker *w)
{
    return w->record.t > w->taken;
}

static bool has_turn(void *arg)
{
    const struct wf_ps_worker *w = arg;

    return w->rejoin || w->restores || has_news(w) || wf_leasing_is_asked(w);
}

/* Waits, and counts how long. */
static weft_status await(struct wf_ps_worker *w, bool (*done)(void *arg), const char *what)
{
    int64_t begin = wf_site_now(&w->node);
    weft_status st = wf_ps_worker_await(w, done, w, what);

    wf_site_lock(&w->node);
    w->waited_s += (double)(wf_site_now(&w->node) - begin) * 1e-9;
    wf_ps_worker_reap(w, false);
    if (st == WEFT_ETIME && (!w->leasing->m.view.belongs || wf_site_is_alone(&w->node)))
        st = wf_ps_worker_err_outside(w, st);
    wf_site_unlock(&w->node);
    return st;
}

weft_status wf_ps_lease_turn(struct wf_ps_worker *w, int64_t *t, enum wf_ps_next *next)
{
    weft_status st;

    wf_site_lock(&w->node);
    w->begun = w->leasing->turns = true;
    w->leasing->waits = false;
    wf_site_unlock(&w->node);
    st = await(w, has_turn, "a control record");
    wf_site_lock(&w->node);
    w->leasing->turns = false;
    if (!st && w->rejoin) {
        *next = WF_PS_REJOIN;
    } else if (!st && w->restores) {
        *next = WF_PS_RESTORE;
    } else if (!st && has_news(w)) {
        *next = WF_PS_NEWS;
    } else if (!st) {
        *next = WF_PS_ASKED;
        *t = w->at = w->leasing->m.asked;
        w->late = false;
    }
    wf_site_unlock(&w->node);
    return st;
}

static bool has_all(const struct wf_ps_worker *w)
{
    for (int i = 0; i < w->cut->n_pieces; i++)
        if (!w->leasing->read[i])
            return false;
    return true;
}

/* Whoever was to decide, and reads for that, does not any more: another worker has, and servers may
 * be far beyond the version by now. */
static bool is_late(const struct wf_ps_worker *w)
{
    return !w->leasing->later && has_news(w);
}

static bool has_read(void *arg)
{
    const struct wf_ps_worker *w = arg;

    return w->rejoin || w->restores || is_late(w) || has_all(w);
}

weft_status wf_ps_lease_read(struct wf_ps_worker *w, int64_t t, bool exact, enum wf_ps_next *next)
{
    struct wf_leasing *l = w->leasing;
    weft_status st;

    wf_site_lock(&w->node);
    l->waits = false;
    l->turns = exact;
    forget_rows(w);
    l->later = !exact;
    l->reads = t * l->m.plan.n_shards;
    for (int i = 0; i < w->cut->n_pieces; i++)
        l->read[i] = w->cut->piece[i].tables;
    ask_read(w, wf_site_now(&w->node));
    wf_site_unlock(&w->node);
    st = await(w, has_read, "parameters, from parameter servers");
    wf_site_lock(&w->node);
    l->reads = -1;
    l->turns = false;
    *next = has_all(w)    ? WF_PS_COMPLETE
            : w->rejoin   ? WF_PS_REJOIN
            : w->restores ? WF_PS_RESTORE
                          : WF_PS_NEWS;
    wf_site_unlock(&w->node);
    return st;
}

/* ---- the caller: leases ---------------------------------------------------------------------- */

static bool is_drained(const struct wf_ps_worker *w)
{
    return w->leasing->m.t > w->taken && w->leasing->at < w->leasing->m.t;
}

static bool has_lease(void *arg)
{
    const struct wf_ps_worker *w = arg;

    return w->rejoin || w->restores || has_news(w) || w->pending || is_drained(w);
}

weft_status wf_ps_lease_next(struct wf_ps_worker *w, enum wf_ps_next *next, int64_t *number)
{
    struct wf_leasing *l = w->leasing;
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    if (!l->waits && !w->node.st && !w->rejoin) {
        l->waits = true;
        w->node.acts.n = 0;
        st = wf_lessee_go(&l->m, wf_site_now(&w->node), &w->node.acts);
        st = wf_site_fail(&w->node, st ? st : wf_leasing_carry_out(w));
    }
    wf_site_unlock(&w->node);
    if (!st)
        st = await(w, has_lease, "a lease, or what it needs, from the chief and parameter servers");
    wf_site_lock(&w->node);
    if (!st && w->node.n_old) /* what it maps is copied */
        wf_site_drop_old(&w->node);
    l->waits = false; /* also after the lease: hooks and programs read what it was computed from */
    if (!st && w->rejoin) {
        *next = WF_PS_REJOIN;
    } else if (!st && w->restores) {
        *next = WF_PS_RESTORE;
    } else if (!st && has_news(w)) {
        *next = WF_PS_NEWS;
    } else if (!st && w->pending) {
        *next = WF_PS_COMPUTE;
        *number = w->pending_t;
        forget_rows(w);
    } else if (!st) {
        *next = WF_PS_COMPLETE;
        *number = l->at = l->m.t;
    }
    wf_site_unlock(&w->node);
    return st;
}

weft_status wf_ps_lease_halt(struct wf_ps_worker *w)
{
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    if (!w->node.st && !w->rejoin && !w->restores) {
        w->node.acts.n = 0;
        st = wf_lessee_halt(&w->leasing->m, wf_site_now(&w->node), &w->node.acts);
        st = wf_site_fail(&w->node, st ? st : wf_leasing_carry_out(w));
    }
    wf_site_unlock(&w->node);
    return st;
}

int wf_ps_lease_queue(struct wf_ps_worker *w, int64_t *lease, int n, int64_t *low)
{
    const struct wf_lessee_worker *m = &w->leasing->m;

    wf_site_lock(&w->node);
    n = (int)wf_min_i64(n, m->n_queue);
    for (int i = 0; i < n; i++)
        lease[i] = m->queue[i];
    *low = m->low;
    wf_site_unlock(&w->node);
    return n;
}

weft_status wf_ps_lease_give(struct wf_ps_worker *w, int64_t lease, const struct wf_ps_given *what,
                             const float *scale)
{
    weft_status st;

    wf_site_lock(&w->node);
    st = wf_ps_worker_keep(w, lease, 0, what, scale);
    w->pending = false;
    if (!st && !w->node.st && !w->rejoin) {
        w->node.acts.n = 0;
        st = wf_lessee_computed(&w->leasing->m, wf_site_now(&w->node), lease, &w->node.acts);
        st = wf_site_fail(&w->node, st ? st : wf_leasing_carry_out(w));
    }
    wf_site_unlock(&w->node);
    return st;
}

weft_status wf_ps_lease_cancel(struct wf_ps_worker *w, int64_t lease)
{
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    if (!w->node.st && !w->rejoin && w->leasing->m.lease != lease) {
        w->pending = false;
        w->node.acts.n = 0;
        st = wf_lessee_computed(&w->leasing->m, wf_site_now(&w->node), lease, &w->node.acts);
        st = wf_site_fail(&w->node, st ? st : wf_leasing_carry_out(w));
    }
    wf_site_unlock(&w->node);
    return st;
}

static weft_status ready(struct wf_ps_worker *w, int64_t lease, int shard, int piece)
{
    (void)shard;
    return wf_lessee_ready(&w->leasing->m, wf_site_now(&w->node), lease, piece, &w->node.acts);
}

weft_status wf_ps_lease_ready(struct wf_ps_worker *w, int64_t lease, int var, const bool *reached,
                              const struct wf_ps_given *what)
{
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    if (!w->node.st && !w->rejoin && !w->restores && w->pending && w->pending_t == lease) {
        w->node.acts.n = 0;
        st = wf_ps_worker_keep_part(w, lease, 0, var, reached, what, ready);
        st = wf_site_fail(&w->node, st ? st : wf_leasing_carry_out(w));
    }
    wf_site_unlock(&w->node);
    return st;
}

int64_t wf_leasing_step_of(const struct wf_ps_worker *w)
{
    const struct wf_lessee_worker *m = &w->leasing->m;

    return wf_max_i64(m->t, m->low / m->plan.n_shards);
}

struct wf_staleness wf_leasing_staleness(const struct wf_ps_worker *w)
{
    const struct wf_leasing *l = w->leasing;

    return l ? (struct wf_staleness){l->m.n_measured, l->m.sum_behind, l->m.most_behind}
             : (struct wf_staleness){0};
}

double wf_ps_lease_sum(struct wf_ps_worker *w, int64_t i)
{
    double sum;

    wf_site_lock(&w->node);
    sum = w->sums[i];
    wf_site_unlock(&w->node);
    return sum;
}
