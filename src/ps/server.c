/* server.c - a parameter server as a machine: how it begins, what comes in, and what happens when
 * time passes.
 *
 * Kept true: a version is announced only if the backup has it, too (server_steps.c); a record is
 * sent before it is applied; a copy applies records in order and misses none (server_copies.c);
 * what arrives from another epoch changes nothing. */
#include "ps/server.h"

/* ---- creation -------------------------------------------------------------------------------- */

weft_status wf_server_init(struct wf_server *s, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_ps_data *data, int node, uint64_t incarnation, int chief)
{
    int n_bits = (plan->n_pieces + 63) / 64;
    weft_status st;
    bool ok;

    *s = (struct wf_server){.plan = *plan, .data = *data, .norm_t = -1, .decided_t = -1};
    wf_view_init(&s->view, ctx, node, WF_ROLE_SERVER, incarnation, chief);
    s->n_words = (plan->n_shards + 63) / 64;
    s->piece = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *s->piece);
    s->got[0] = wf_alloc_n(ctx, n_bits + 1, sizeof **s->got);
    s->got[1] = wf_alloc_n(ctx, n_bits + 1, sizeof **s->got);
    ok = s->piece && s->got[0] && s->got[1];
    for (int i = 0; ok && i < plan->n_pieces; i++) {
        struct wf_server_piece *p = &s->piece[i];

        p->arrived = wf_alloc_n(ctx, s->n_words + 1, sizeof *p->arrived);
        p->block_at = wf_alloc_n(ctx, plan->n_blocks + 1, sizeof *p->block_at);
        p->version = p->saved = p->target_at = p->record_t = -1;
        ok = p->arrived && p->block_at;
    }
    st = !ok            ? wf_err_nomem(ctx, sizeof *s->piece, "server")
         : plan->window ? wf_server_init_leases(s)
                        : WEFT_OK;
    if (st)
        wf_server_free(s);
    return st;
}

void wf_server_free(struct wf_server *s)
{
    weft_ctx *ctx = s->view.ctx;

    wf_server_free_leases(s);
    for (int i = 0; s->piece && i < s->plan.n_pieces; i++) {
        wf_free(ctx, s->piece[i].arrived);
        wf_free(ctx, s->piece[i].block_at);
        wf_free(ctx, s->piece[i].want);
    }
    wf_free(ctx, s->piece);
    wf_free(ctx, s->got[0]);
    wf_free(ctx, s->got[1]);
    s->piece = NULL;
    s->got[0] = s->got[1] = NULL;
    wf_view_free(&s->view);
}

/* ---- epochs ---------------------------------------------------------------------------------- */

static enum wf_holding holding_of(const struct wf_server *s, const struct wf_holders *h)
{
    int me = s->view.node;

    return !s->view.belongs   ? WF_HOLDS_NOTHING
           : h->primary == me ? WF_HOLDS_PRIMARY
           : h->backup == me  ? WF_HOLDS_BACKUP
           : h->target == me  ? WF_HOLDS_TARGET
                              : WF_HOLDS_NOTHING;
}

static weft_status enter_piece(struct wf_server *s, int piece, bool fresh)
{
    struct wf_server_piece *p = &s->piece[piece];
    enum wf_holding was = p->holding, now = holding_of(s, wf_server_holders(s, piece));
    weft_status st = WEFT_OK;

    p->holding = now;
    p->open = p->lockstep = p->backup_has = p->target_has = false;
    p->target_at = -1;
    p->sent = 0;
    p->n_want = 0;
    if (was != now || fresh) {
        wf_server_next_step(s, piece);
        p->saved = -1;
    }
    if (now == WF_HOLDS_NOTHING) {
        s->data.drop(s->data.arg, piece);
        p->version = p->record_t = -1;
    } else if (now == WF_HOLDS_TARGET && (was != now || fresh)) {
        s->data.drop(s->data.arg, piece);
        wf_server_start_over(s, piece);
    } else if (now != WF_HOLDS_TARGET && fresh) {
        st = s->data.load(s->data.arg, piece, s->view.epoch->start);
        p->version = wf_server_first(s);
        p->record_t = -1;
    }
    return st || !s->plan.window ? st : wf_server_enter_leases(s, piece, fresh);
}

/* A new epoch: what this server holds, and who has copies. A new history begins with the version
 * of a checkpoint. */
static weft_status enter(struct wf_server *s, bool fresh, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    if (fresh)
        s->norm_t = s->decided_t = -1;
    for (int i = 0; i < s->plan.n_pieces && !st; i++)
        st = enter_piece(s, i, fresh);
    for (int i = 0; i < s->plan.n_pieces && !st; i++) {
        struct wf_server_piece *p = &s->piece[i];

        if (p->holding != WF_HOLDS_PRIMARY)
            continue;
        p->moved_ns = s->now;
        wf_server_ask_copies(s, out, i);
        if (p->phase == WF_PHASE_RECORD)
            wf_server_send_records(s, out, i);
        else
            wf_server_save(s, out, i);
        st = wf_server_try_apply(s, out, i);
        if (!st && wf_server_holders(s, i)->backup == WF_NOBODY)
            wf_server_open(s, out, i);
        if (!st && s->plan.window)
            st = wf_server_go(s, out, i);
    }
    return st;
}

static weft_status take_chief(struct wf_server *s, const struct wf_message *m,
                              struct wf_actions *out)
{
    bool belonged = s->view.belongs, changed;
    uint64_t history = belonged ? s->view.epoch->history : 0;
    weft_status st = wf_view_take(&s->view, s->now, m, &changed);

    if (!st && m->type == WF_MSG_REPORT && m->term == s->view.term)
        wf_server_report(s, out);
    if (st || !changed)
        return st;
    if (!s->view.belongs) {
        if (belonged)
            wf_actions_add(out, WF_ACT_REJOIN);
        return out->st;
    }
    return enter(s, s->view.epoch->history != history, out);
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status take_piece(struct wf_server *s, const struct wf_message *m,
                              struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];

    switch (m->type) {
    case WF_MSG_PUSH: return wf_server_take_push(s, m, out);
    case WF_MSG_PULL: return wf_server_take_pull(s, m, out);
    case WF_MSG_READ: return wf_server_take_read(s, m, out);
    case WF_MSG_ASK:
        if (p->holding == WF_HOLDS_PRIMARY && p->open)
            wf_server_send_at(s, out, m->from, m->piece);
        return WEFT_OK;
    case WF_MSG_PARTIAL: return wf_server_take_partial(s, m, out);
    case WF_MSG_DECISION: return wf_server_take_decision(s, m->t, m->payload, out);
    case WF_MSG_WANT: wf_server_answer_want(s, m, out); return WEFT_OK;
    case WF_MSG_RECORD: return wf_server_take_record(s, m, out);
    case WF_MSG_RECORDED: return wf_server_take_recorded(s, m, out);
    case WF_MSG_SYNC:
        if (p->holding == WF_HOLDS_TARGET)
            wf_server_ask_next(s, out, m->piece, m->from);
        else if (p->holding == WF_HOLDS_BACKUP && s->plan.window && m->t < p->version)
            wf_server_send(s, out, WF_MSG_RECORD, m->from, m->piece, p->version - 1);
        else if (p->holding == WF_HOLDS_BACKUP)
            wf_server_send(s, out, WF_MSG_SYNCED, m->from, m->piece, p->version);
        return WEFT_OK;
    case WF_MSG_SYNCED: wf_server_take_synced(s, m, out); return WEFT_OK;
    case WF_MSG_FILL: return wf_server_take_fill(s, m, out);
    case WF_MSG_FILL_NEXT: wf_server_take_fill_next(s, m, out); return WEFT_OK;
    default: return WEFT_OK;
    }
}

/* The same with leases: these messages mean something else, and then the next lease may go. */
static weft_status take_leased(struct wf_server *s, const struct wf_message *m,
                               struct wf_actions *out)
{
    weft_status st;

    switch (m->type) {
    case WF_MSG_PUSH:
    case WF_MSG_CLOSE: st = wf_server_take_lease(s, m, out); break;
    case WF_MSG_PULL: st = wf_server_take_want(s, m); break;
    case WF_MSG_READ: return wf_server_take_rows(s, m, out);
    case WF_MSG_CLOCK:
        wf_server_take_clock(s, m, out);
        st = WEFT_OK;
        break;
    default: st = take_piece(s, m, out);
    }
    return st ? st : wf_server_go(s, out, m->piece);
}

weft_status wf_server_step(struct wf_server *s, int64_t now, const struct wf_message *m,
                           struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    s->now = now;
    s->n_events++;
    if (m->type == WF_MSG_EPOCH || m->type == WF_MSG_TERM || m->type == WF_MSG_REPORT)
        st = take_chief(s, m, out);
    else if (m->type == WF_MSG_SEEK)
        wf_view_seen(&s->view, now, m->from, out);
    else if (wf_view_counts(&s->view, m) && m->piece >= 0 && m->piece < s->plan.n_pieces)
        st = s->plan.window ? take_leased(s, m, out) : take_piece(s, m, out);
    return st ? st : out->st;
}

/* What was not answered for a while is asked again. */
static void ask_again(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    if (s->now - p->moved_ns < s->plan.retry_ns)
        return;
    p->moved_ns = s->now;
    if (p->phase == WF_PHASE_RECORD)
        wf_server_send_records(s, out, piece);
    for (int i = 0; i < s->plan.n_pieces && p->phase == WF_PHASE_NORMS; i++)
        if (wf_server_holders(s, i)->primary != s->view.node) {
            struct wf_message *m = wf_server_send(s, out, WF_MSG_WANT,
                                                  wf_server_holders(s, i)->primary, i, p->version);

            if (m)
                m->round = p->round;
        }
    if (!p->open)
        wf_server_ask_copies(s, out, piece);
}

/* What the chief and targets may have missed. */
static void report(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = wf_server_holders(s, piece);

    if (p->lockstep)
        wf_server_send(s, out, WF_MSG_FILLED, s->view.chief, piece, p->version);
    else if (h->target != WF_NOBODY)
        wf_server_send(s, out, WF_MSG_SYNC, h->target, piece, p->version);
    if (p->saved >= 0)
        wf_server_send(s, out, WF_MSG_SAVED, s->view.chief, piece, p->saved);
}

/* How busy it was since the last beat, of a second; at least 1, because 0 says nothing. */
static void say_busy(struct wf_server *s, struct wf_message *m)
{
    double ns = (double)(s->busy_ns - s->told_busy_ns), passed = (double)(s->now - s->beat_ns);

    if (m && s->busy_ns && s->beat_ns)
        m->pace_ns = (int64_t)wf_min_i64((int64_t)(1e9 * ns / passed) + 1, 1000000000);
    s->told_busy_ns = s->busy_ns;
}

weft_status wf_server_tick(struct wf_server *s, int64_t now, struct wf_actions *out)
{
    bool beat = now - s->beat_ns >= s->plan.retry_ns;
    weft_status st = WEFT_OK;

    s->now = now;
    s->n_events++;
    if (beat) {
        say_busy(s, wf_view_send(&s->view, out, WF_MSG_BEAT, s->view.chief));
        s->beat_ns = now;
    }
    for (int i = 0; i < s->plan.n_pieces && s->view.belongs && !st; i++) {
        if (s->piece[i].holding != WF_HOLDS_PRIMARY)
            continue;
        ask_again(s, out, i);
        if (beat)
            report(s, out, i);
        if (s->plan.window)
            st = wf_server_go(s, out, i);
    }
    return st ? st : out->st;
}

weft_status wf_server_saved(struct wf_server *s, int64_t now, int piece, int64_t t,
                            uint64_t history, struct wf_actions *out)
{
    s->now = now;
    if (!s->view.belongs || s->piece[piece].holding != WF_HOLDS_PRIMARY ||
        s->view.epoch->history != history)
        return WEFT_OK;
    s->piece[piece].saved = t;
    wf_server_send(s, out, WF_MSG_SAVED, s->view.chief, piece, t);
    return out->st;
}
