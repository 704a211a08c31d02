/* epoch.c - records of epochs, a member's view of them, messages and actions. */
#include "cluster/cluster.h"

weft_status wf_epoch_new(weft_ctx *ctx, int n_members, int n_pieces, int n_shards,
                         struct wf_epoch **out)
{
    struct wf_epoch *e = wf_alloc(ctx, sizeof *e);

    if (!e)
        return wf_err_nomem(ctx, sizeof *e, "epoch record");
    e->member = wf_alloc_n(ctx, n_members + 1, sizeof *e->member);
    e->holders = wf_alloc_n(ctx, n_pieces + 1, sizeof *e->holders);
    e->worker = wf_alloc_n(ctx, n_shards + 1, sizeof *e->worker);
    if (!e->member || !e->holders || !e->worker) {
        wf_epoch_free(ctx, e);
        return wf_err_nomem(ctx, (size_t)(n_members + n_pieces + n_shards) * sizeof *e->member,
                            "epoch record");
    }
    e->halt = -1;
    e->n_members = n_members;
    e->n_pieces = n_pieces;
    e->n_shards = n_shards;
    *out = e;
    return WEFT_OK;
}

weft_status wf_epoch_copy(weft_ctx *ctx, const struct wf_epoch *e, struct wf_epoch **out)
{
    struct wf_epoch *c;
    weft_status st = wf_epoch_new(ctx, e->n_members, e->n_pieces, e->n_shards, &c);

    if (st)
        return st;
    c->term = e->term;
    c->history = e->history;
    c->number = e->number;
    c->start = e->start;
    c->halt = e->halt;
    c->chief = e->chief;
    memcpy(c->member, e->member, (size_t)e->n_members * sizeof *e->member);
    memcpy(c->holders, e->holders, (size_t)e->n_pieces * sizeof *e->holders);
    memcpy(c->worker, e->worker, (size_t)e->n_shards * sizeof *e->worker);
    c->list = e->list ? wf_strdup(ctx, e->list) : NULL;
    if (e->list && !c->list) {
        wf_epoch_free(ctx, c);
        return wf_err_nomem(ctx, strlen(e->list), "epoch record");
    }
    *out = c;
    return WEFT_OK;
}

void wf_epoch_free(weft_ctx *ctx, struct wf_epoch *e)
{
    if (!e)
        return;
    wf_free(ctx, e->member);
    wf_free(ctx, e->holders);
    wf_free(ctx, e->worker);
    wf_free(ctx, e->list);
    wf_free(ctx, e);
}

const struct wf_member *wf_epoch_member(const struct wf_epoch *e, int node)
{
    for (int i = 0; e && i < e->n_members; i++)
        if (e->member[i].node == node)
            return &e->member[i];
    return NULL;
}

bool wf_epoch_has(const struct wf_epoch *e, int node, uint64_t incarnation)
{
    const struct wf_member *m = wf_epoch_member(e, node);

    return m && m->incarnation == incarnation;
}

int wf_epoch_decider(const struct wf_epoch *e)
{
    int least = WF_NOBODY;

    for (int i = 0; i < e->n_members; i++)
        if (e->member[i].role == WF_ROLE_WORKER && !e->member[i].leaves &&
            (least == WF_NOBODY || e->member[i].node < least))
            least = e->member[i].node;
    return least;
}

/* ---- views ----------------------------------------------------------------------------------- */

void wf_view_init(struct wf_view *v, weft_ctx *ctx, int node, enum wf_role role,
                  uint64_t incarnation, int chief)
{
    *v = (struct wf_view){.ctx = ctx,
                          .node = node,
                          .role = role,
                          .incarnation = incarnation,
                          .chief = chief,
                          .chief_ns = -1};
}

void wf_view_free(struct wf_view *v)
{
    wf_epoch_free(v->ctx, v->epoch);
    v->epoch = NULL;
}

weft_status wf_view_take(struct wf_view *v, int64_t now, const struct wf_message *m, bool *changed)
{
    struct wf_epoch *e;
    weft_status st;

    *changed = false;
    if (m->term < v->term) /* a chief that was replaced */
        return WEFT_OK;
    v->term = m->term;
    v->chief = m->from;
    v->chief_ns = now;
    if (m->type != WF_MSG_EPOCH || (v->epoch && m->record->number <= v->epoch->number))
        return WEFT_OK;
    st = wf_epoch_copy(v->ctx, m->record, &e);
    if (st)
        return st;
    wf_epoch_free(v->ctx, v->epoch);
    v->epoch = e;
    v->belongs = wf_epoch_has(e, v->node, v->incarnation);
    *changed = true;
    return WEFT_OK;
}

void wf_view_seen(const struct wf_view *v, int64_t now, int to, struct wf_actions *a)
{
    struct wf_message *m = wf_view_send(v, a, WF_MSG_SEEN, to);

    if (!m)
        return;
    m->shard = v->chief;
    m->t = v->chief_ns < 0 ? -1 : wf_max_i64(now - v->chief_ns, 0);
}

bool wf_view_counts(const struct wf_view *v, const struct wf_message *m)
{
    return v->belongs && m->epoch == v->epoch->number &&
           wf_epoch_has(v->epoch, m->from, m->incarnation);
}

/* ---- messages and actions -------------------------------------------------------------------- */

void wf_actions_init(struct wf_actions *a, weft_ctx *ctx)
{
    *a = (struct wf_actions){.ctx = ctx};
}

void wf_actions_free(struct wf_actions *a)
{
    wf_free(a->ctx, a->act);
    a->act = NULL;
    a->n = a->cap = 0;
}

struct wf_action *wf_actions_add(struct wf_actions *a, enum wf_action_type type)
{
    weft_status st = wf_grow(a->ctx, &a->act, &a->cap, a->n + 1, sizeof *a->act);

    if (st) {
        a->st = a->st ? a->st : st;
        return NULL;
    }
    a->act[a->n] = (struct wf_action){.type = type};
    return &a->act[a->n++];
}

struct wf_message *wf_view_send(const struct wf_view *v, struct wf_actions *a,
                                enum wf_message_type type, int to)
{
    struct wf_action *act = wf_actions_add(a, WF_ACT_SEND);

    if (!act)
        return NULL;
    act->msg = (struct wf_message){.type = type,
                                   .from = v->node,
                                   .to = to,
                                   .role = v->role,
                                   .incarnation = v->incarnation,
                                   .term = v->term,
                                   .epoch = v->epoch ? v->epoch->number : 0,
                                   .history = v->epoch ? v->epoch->history : 0};
    return &act->msg;
}

const char *wf_message_name(enum wf_message_type type)
{
    static const char *const name[WF_MSG_TYPES] = {
        [WF_MSG_BEAT] = "beat",         [WF_MSG_LEAVE] = "leave",
        [WF_MSG_FILLED] = "filled",     [WF_MSG_SAVED] = "saved",
        [WF_MSG_DONE] = "done",         [WF_MSG_EPOCH] = "epoch",
        [WF_MSG_TERM] = "term",         [WF_MSG_STOP] = "stop",
        [WF_MSG_PULL] = "pull",         [WF_MSG_VERSION] = "version",
        [WF_MSG_PUSH] = "push",         [WF_MSG_AT] = "at",
        [WF_MSG_ASK] = "ask",           [WF_MSG_PARTIAL] = "partial",
        [WF_MSG_DECISION] = "decision", [WF_MSG_WANT] = "want",
        [WF_MSG_RECORD] = "record",     [WF_MSG_RECORDED] = "recorded",
        [WF_MSG_SYNC] = "sync",         [WF_MSG_SYNCED] = "synced",
        [WF_MSG_FILL] = "fill",         [WF_MSG_FILL_NEXT] = "fill next",
        [WF_MSG_CONTROL] = "control",   [WF_MSG_CONTROL_ASK] = "control ask",
        [WF_MSG_READ] = "read",         [WF_MSG_ROWS] = "rows",
        [WF_MSG_CLOSE] = "close",       [WF_MSG_APPLIED] = "applied",
        [WF_MSG_CLOCK] = "clock",       [WF_MSG_CLOCKED] = "clocked",
        [WF_MSG_GRANT] = "grant",       [WF_MSG_LEASES] = "leases",
        [WF_MSG_LEDGER] = "ledger",     [WF_MSG_REPORT] = "report",
        [WF_MSG_DRAINED] = "drained",   [WF_MSG_HALT] = "halt",
        [WF_MSG_SEEK] = "seek",         [WF_MSG_SEEN] = "seen",
    };

    return type > 0 && type < WF_MSG_TYPES && name[type] ? name[type] : "unknown";
}
