/* server.c - a parameter server as a machine.
 *
 * Kept true: a version is announced only if the backup has it, too; a record is sent before it is
 * applied; a copy applies records in order and misses none; what arrives from another epoch changes
 * nothing. */
#include "ps/ps.h"

/* ---- creation -------------------------------------------------------------------------------- */

static bool has_bit(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static void set_bit(uint64_t *bits, int i)
{
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

weft_status wf_server_init(struct wf_server *s, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_ps_data *data, int node, uint64_t incarnation, int chief)
{
    int n_bits = (plan->n_pieces + 63) / 64;
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
        p->version = p->saved = p->target_at = -1;
        ok = p->arrived && p->block_at;
    }
    if (!ok)
        wf_server_free(s);
    return ok ? WEFT_OK : wf_err_nomem(ctx, sizeof *s->piece, "server");
}

void wf_server_free(struct wf_server *s)
{
    weft_ctx *ctx = s->view.ctx;

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

static const struct wf_holders *holders(const struct wf_server *s, int piece)
{
    return &s->view.epoch->holders[piece];
}

static struct wf_message *send(struct wf_server *s, struct wf_actions *out,
                               enum wf_message_type type, int to, int piece, int64_t t)
{
    struct wf_message *m = wf_view_send(&s->view, out, type, to);

    if (m) {
        m->piece = piece;
        m->t = t;
    }
    return m;
}

/* ---- announcements --------------------------------------------------------------------------- */

static void send_at(struct wf_server *s, struct wf_actions *out, int to, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_message *m = send(s, out, WF_MSG_AT, to, piece, p->version);

    if (m) {
        m->bits = p->arrived;
        m->n_words = s->n_words;
    }
}

/* Answers pulls of versions that are there now. */
static void serve(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    int64_t kept = 0;

    for (int64_t i = 0; i < p->n_want; i++)
        if (p->want[i].t > p->version)
            p->want[kept++] = p->want[i];
        else if (p->want[i].t >= p->version - 1)
            send(s, out, WF_MSG_VERSION, p->want[i].node, piece, p->want[i].t);
    p->n_want = kept;
}

static void announce(struct wf_server *s, struct wf_actions *out, int piece)
{
    const struct wf_epoch *e = s->view.epoch;

    for (int i = 0; i < e->n_members; i++)
        if (e->member[i].role == WF_ROLE_WORKER)
            send_at(s, out, e->member[i].node, piece);
    serve(s, out, piece);
}

/* The backup is known to have this version. */
static void open_piece(struct wf_server *s, struct wf_actions *out, int piece)
{
    if (s->piece[piece].open)
        return;
    s->piece[piece].open = true;
    announce(s, out, piece);
}

static void save(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_action *act;

    if (s->plan.save_every == 0 || p->version % s->plan.save_every != 0 || p->version == 0)
        return;
    act = wf_actions_add(out, WF_ACT_SAVE);
    if (act) {
        act->piece = piece;
        act->t = p->version;
        act->history = s->view.epoch->history;
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Whether the decision of step t is here. It is kept until the norms of the next step begin: then
 * every piece has taken step t. */
static bool knows(const struct wf_server *s, int64_t t)
{
    return s->decided_t == t && s->norm_t == t;
}

static void fill_more(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_message *m;

    /* a block must not miss a record that is already on its way */
    if (holders(s, piece)->target == WF_NOBODY || p->phase == WF_PHASE_RECORD ||
        p->sent >= s->plan.n_blocks)
        return;
    m = send(s, out, WF_MSG_FILL, holders(s, piece)->target, piece, p->version);
    if (m) {
        m->block = p->sent;
        m->decided = knows(s, p->version - 1);
    }
}

/* From now on nothing is announced that the target lacks: it may become the backup at any time. */
static void check_lockstep(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    if (holders(s, piece)->target == WF_NOBODY || p->lockstep || p->phase == WF_PHASE_RECORD ||
        p->target_at != p->version)
        return;
    p->lockstep = true;
    send(s, out, WF_MSG_FILLED, s->view.chief, piece, p->version);
}

static void send_records(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = holders(s, piece);

    if (h->backup != WF_NOBODY && !p->backup_has)
        send(s, out, WF_MSG_RECORD, h->backup, piece, p->version);
    if (h->target != WF_NOBODY && !p->target_has)
        send(s, out, WF_MSG_RECORD, h->target, piece, p->version);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void next_step(struct wf_server *s, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    p->phase = WF_PHASE_COLLECT;
    p->round = p->n_arrived = 0;
    memset(p->arrived, 0, (size_t)s->n_words * sizeof *p->arrived);
    s->data.clear(s->data.arg, piece);
    p->moved_ns = s->now;
}

/* Updates the piece once all copies have the record. */
static weft_status try_apply(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = holders(s, piece);
    weft_status st;

    if (p->phase != WF_PHASE_RECORD || (h->backup != WF_NOBODY && !p->backup_has) ||
        (p->lockstep && !p->target_has))
        return WEFT_OK;
    st = s->data.apply(s->data.arg, piece, -1, p->version);
    if (st)
        return st;
    p->version++;
    next_step(s, piece);
    p->open = true;
    announce(s, out, piece);
    save(s, out, piece);
    check_lockstep(s, out, piece);
    fill_more(s, out, piece);
    return WEFT_OK;
}

static weft_status begin_record(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];

    p->phase = WF_PHASE_RECORD;
    p->backup_has = p->target_has = false;
    p->moved_ns = s->now;
    send_records(s, out, piece);
    return try_apply(s, out, piece);
}

/* ---- norms over all pieces ------------------------------------------------------------------- */

static void begin_norms(struct wf_server *s, int64_t t)
{
    if (s->norm_t >= t)
        return;
    s->norm_t = t;
    s->n_decided = 0;
    for (int r = 0; r < 2; r++) {
        memset(s->got[r], 0, (size_t)((s->plan.n_pieces + 63) / 64) * sizeof *s->got[r]);
        s->n_got[r] = 0;
    }
    s->data.begin(s->data.arg, t);
}

static bool holds_primary(const struct wf_epoch *e, int node)
{
    for (int i = 0; i < e->n_pieces; i++)
        if (e->holders[i].primary == node)
            return true;
    return false;
}

static weft_status share_partial(struct wf_server *s, struct wf_actions *out, int piece)
{
    const struct wf_epoch *e = s->view.epoch;
    struct wf_server_piece *p = &s->piece[piece];

    for (int i = 0; i < e->n_members; i++) {
        struct wf_message *m;

        if (e->member[i].node == s->view.node || !holds_primary(e, e->member[i].node))
            continue;
        m = send(s, out, WF_MSG_PARTIAL, e->member[i].node, piece, p->version);
        if (m)
            m->round = p->round;
    }
    if (has_bit(s->got[p->round], piece)) /* a former primary has sent it */
        return WEFT_OK;
    set_bit(s->got[p->round], piece);
    s->n_got[p->round]++;
    return s->data.own_partial(s->data.arg, piece, p->version, p->round);
}

/* Pieces whose round is decided proceed: to the next one, or to their record. */
static weft_status after_decision(struct wf_server *s, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->plan.n_pieces && !st; i++) {
        struct wf_server_piece *p = &s->piece[i];

        if (p->holding != WF_HOLDS_PRIMARY || p->phase != WF_PHASE_NORMS ||
            p->version != s->norm_t || p->round >= s->n_decided)
            continue;
        if (s->n_decided == s->plan.n_rounds) {
            st = begin_record(s, out, i);
            continue;
        }
        p->round++;
        st = s->data.half(s->data.arg, i, p->version);
        if (!st)
            st = share_partial(s, out, i);
    }
    return st;
}

static weft_status try_decide(struct wf_server *s, struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    while (s->n_decided < s->plan.n_rounds && s->n_got[s->n_decided] == s->plan.n_pieces && !st) {
        st = s->data.decide(s->data.arg, s->norm_t, s->n_decided);
        if (st)
            return st;
        s->n_decided++;
        if (s->n_decided == s->plan.n_rounds)
            s->decided_t = s->norm_t;
        st = after_decision(s, out);
    }
    return st;
}

static weft_status take_partial(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out)
{
    weft_status st;

    if (m->round < 0 || m->round >= s->plan.n_rounds || m->t <= s->decided_t || m->t < s->norm_t)
        return WEFT_OK;
    begin_norms(s, m->t);
    if (has_bit(s->got[m->round], m->piece))
        return WEFT_OK;
    st = s->data.partial(s->data.arg, m->piece, m->t, m->round, m->payload);
    if (st)
        return st;
    set_bit(s->got[m->round], m->piece);
    s->n_got[m->round]++;
    return try_decide(s, out);
}

/* All rounds of step t are decided, as somebody says who knows. */
static weft_status take_decision(struct wf_server *s, int64_t t, const void *payload,
                                 struct wf_actions *out)
{
    weft_status st;

    if (t <= s->decided_t || t < s->norm_t)
        return WEFT_OK;
    begin_norms(s, t);
    st = s->data.decision(s->data.arg, t, payload);
    if (st)
        return st;
    s->n_decided = s->plan.n_rounds;
    s->decided_t = t;
    return after_decision(s, out);
}

static void answer_want(struct wf_server *s, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    struct wf_message *answer;

    if (knows(s, m->t)) {
        send(s, out, WF_MSG_DECISION, m->from, m->piece, m->t);
    } else if (p->holding == WF_HOLDS_PRIMARY && p->version == m->t &&
               p->phase != WF_PHASE_COLLECT && p->round >= m->round) {
        answer = send(s, out, WF_MSG_PARTIAL, m->from, m->piece, m->t);
        if (answer)
            answer->round = m->round;
    }
}

/* ---- contributions --------------------------------------------------------------------------- */

static weft_status collect(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    weft_status st;

    if (p->phase != WF_PHASE_COLLECT || p->n_arrived < s->plan.n_shards)
        return WEFT_OK;
    p->moved_ns = s->now;
    if (s->plan.n_rounds)
        begin_norms(s, p->version);
    st = s->data.reduce(s->data.arg, piece, p->version);
    if (st || s->plan.n_rounds == 0)
        return st ? st : begin_record(s, out, piece);
    p->phase = WF_PHASE_NORMS;
    p->round = 0;
    if (s->n_decided < s->plan.n_rounds)
        st = share_partial(s, out, piece);
    if (!st)
        st = after_decision(s, out); /* of rounds in which a former primary took part */
    return st ? st : try_decide(s, out);
}

static weft_status take_push(struct wf_server *s, const struct wf_message *m,
                             struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY || m->shard < 0 || m->shard >= s->plan.n_shards)
        return WEFT_OK;
    if (m->t < p->version && p->open)
        send_at(s, out, m->from, m->piece);
    if (m->t != p->version || p->phase != WF_PHASE_COLLECT || has_bit(p->arrived, m->shard))
        return WEFT_OK;
    st = s->data.add(s->data.arg, m->piece, m->t, m->shard, m->payload);
    if (st)
        return st;
    set_bit(p->arrived, m->shard);
    p->n_arrived++;
    return collect(s, out, m->piece);
}

static weft_status take_pull(struct wf_server *s, const struct wf_message *m,
                             struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    int64_t i = 0;
    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    while (i < p->n_want && p->want[i].node != m->from)
        i++;
    st = wf_grow(s->view.ctx, &p->want, &p->cap_want, i + 1, sizeof *p->want);
    if (st)
        return st;
    p->want[i] = (struct wf_want){m->from, m->t};
    p->n_want = wf_max_i64(p->n_want, i + 1);
    serve(s, out, m->piece); /* whoever asks for a version knows that it was announced */
    return WEFT_OK;
}

/* ---- a copy's side --------------------------------------------------------------------------- */

static bool is_complete(const struct wf_server *s, const struct wf_server_piece *p)
{
    for (int b = 0; b < s->plan.n_blocks; b++)
        if (p->block_at[b] < 0 || p->block_at[b] != p->block_at[0])
            return false;
    return true;
}

static void ask_next(struct wf_server *s, struct wf_actions *out, int piece, int to)
{
    struct wf_server_piece *p = &s->piece[piece];
    struct wf_message *m;
    int64_t newest = -1;
    int next = 0;

    if (is_complete(s, p)) {
        p->version = p->block_at[0];
        send(s, out, WF_MSG_SYNCED, to, piece, p->version);
        return;
    }
    p->version = -1;
    for (int b = 0; b < s->plan.n_blocks; b++)
        newest = wf_max_i64(newest, p->block_at[b]);
    while (p->block_at[next] >= 0 && p->block_at[next] == newest) /* others lack a record */
        next++;
    m = send(s, out, WF_MSG_FILL_NEXT, to, piece, 0);
    if (m)
        m->block = next;
}

static void start_over(struct wf_server *s, int piece)
{
    for (int b = 0; b < s->plan.n_blocks; b++)
        s->piece[piece].block_at[b] = -1;
    s->piece[piece].version = -1;
}

static weft_status record_at_target(struct wf_server *s, const struct wf_message *m,
                                    struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st = WEFT_OK;
    bool any = false, gap = false;

    for (int b = 0; b < s->plan.n_blocks; b++)
        any |= p->block_at[b] == m->t;
    if (any)
        st = s->data.record(s->data.arg, m->piece, m->t, m->payload);
    for (int b = 0; b < s->plan.n_blocks && !st; b++) {
        if (p->block_at[b] == m->t) {
            st = s->data.apply(s->data.arg, m->piece, b, m->t);
            p->block_at[b]++;
        } else if (p->block_at[b] >= 0 && p->block_at[b] < m->t) {
            gap = true;
        }
    }
    if (st)
        return st;
    if (gap)
        start_over(s, m->piece);
    if (is_complete(s, p) && p->block_at[0] > m->t) {
        p->version = p->block_at[0];
        send(s, out, WF_MSG_RECORDED, m->from, m->piece, m->t);
    } else if (gap) {
        ask_next(s, out, m->piece, m->from);
    }
    return WEFT_OK;
}

static weft_status take_record(struct wf_server *s, const struct wf_message *m,
                               struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st = WEFT_OK;

    if (m->from != holders(s, m->piece)->primary)
        return WEFT_OK;
    if (p->holding == WF_HOLDS_TARGET) {
        st = record_at_target(s, m, out);
    } else if (p->holding == WF_HOLDS_BACKUP) {
        if (m->t == p->version) {
            st = s->data.record(s->data.arg, m->piece, m->t, m->payload);
            if (!st)
                st = s->data.apply(s->data.arg, m->piece, -1, m->t);
            if (st)
                return st;
            p->version++;
        }
        if (m->t < p->version)
            send(s, out, WF_MSG_RECORDED, m->from, m->piece, m->t);
    }
    return st || s->plan.n_rounds == 0 ? st : take_decision(s, m->t, m->payload, out);
}

static weft_status take_fill(struct wf_server *s, const struct wf_message *m,
                             struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    weft_status st;

    if (p->holding != WF_HOLDS_TARGET || m->from != holders(s, m->piece)->primary || m->block < 0 ||
        m->block >= s->plan.n_blocks)
        return WEFT_OK;
    if (p->block_at[m->block] < m->t) {
        st = s->data.fill(s->data.arg, m->piece, m->block, m->t, m->payload);
        if (st)
            return st;
        p->block_at[m->block] = m->t;
    }
    ask_next(s, out, m->piece, m->from);
    /* another piece may still be at that step, and its primary may be this server */
    return m->decided ? take_decision(s, m->t - 1, m->payload, out) : WEFT_OK;
}

/* ---- a primary's side ------------------------------------------------------------------------ */

static weft_status take_recorded(struct wf_server *s, const struct wf_message *m,
                                 struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    const struct wf_holders *h = holders(s, m->piece);

    weft_status st;

    if (p->holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    if (m->t == p->version && p->phase == WF_PHASE_RECORD) {
        p->backup_has |= m->from == h->backup;
        p->target_has |= m->from == h->target;
    }
    if (m->from == h->target) {
        p->target_at = wf_max_i64(p->target_at, m->t + 1);
        check_lockstep(s, out, m->piece);
    }
    st = try_apply(s, out, m->piece);
    if (!st && m->from == h->backup) /* it was sent no record before the last in this epoch */
        open_piece(s, out, m->piece);
    return st;
}

/* A copy says what version it is at. If it lacks the last record, it gets it: the record is kept
 * until the next one is made, and that cannot be before all copies have this one. */
static void take_synced(struct wf_server *s, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];
    const struct wf_holders *h = holders(s, m->piece);

    if (p->holding != WF_HOLDS_PRIMARY || (m->from != h->backup && m->from != h->target))
        return;
    if (m->t < p->version && p->phase == WF_PHASE_COLLECT)
        send(s, out, WF_MSG_RECORD, m->from, m->piece, p->version - 1);
    if (m->from == h->target) {
        p->target_at = m->t;
        p->sent = s->plan.n_blocks;
        check_lockstep(s, out, m->piece);
    } else if (m->t >= p->version) {
        open_piece(s, out, m->piece);
    }
}

static void take_fill_next(struct wf_server *s, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_server_piece *p = &s->piece[m->piece];

    if (p->holding != WF_HOLDS_PRIMARY || m->from != holders(s, m->piece)->target || p->lockstep)
        return;
    p->sent = m->block;
    p->target_at = -1;
    fill_more(s, out, m->piece);
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

/* Opens a primary, or first asks its copies what they have. */
static void ask_copies(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = holders(s, piece);

    if (h->target != WF_NOBODY)
        send(s, out, WF_MSG_SYNC, h->target, piece, p->version);
    if (h->backup != WF_NOBODY && !p->open)
        send(s, out, WF_MSG_SYNC, h->backup, piece, p->version);
}

static weft_status enter_piece(struct wf_server *s, int piece, bool fresh)
{
    struct wf_server_piece *p = &s->piece[piece];
    enum wf_holding was = p->holding, now = holding_of(s, holders(s, piece));
    weft_status st = WEFT_OK;

    p->holding = now;
    p->open = p->lockstep = p->backup_has = p->target_has = false;
    p->target_at = -1;
    p->sent = 0;
    p->n_want = 0;
    if (was != now || fresh) {
        next_step(s, piece);
        p->saved = -1;
    }
    if (now == WF_HOLDS_NOTHING) {
        s->data.drop(s->data.arg, piece);
        p->version = -1;
    } else if (now == WF_HOLDS_TARGET && (was != now || fresh)) {
        s->data.drop(s->data.arg, piece);
        start_over(s, piece);
    } else if (now != WF_HOLDS_TARGET && fresh) {
        st = s->data.load(s->data.arg, piece, s->view.epoch->start);
        p->version = s->view.epoch->start;
    }
    return st;
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
        ask_copies(s, out, i);
        if (p->phase == WF_PHASE_RECORD)
            send_records(s, out, i);
        else
            save(s, out, i);
        st = try_apply(s, out, i);
        if (!st && holders(s, i)->backup == WF_NOBODY)
            open_piece(s, out, i);
    }
    return st;
}

static weft_status take_chief(struct wf_server *s, const struct wf_message *m,
                              struct wf_actions *out)
{
    bool belonged = s->view.belongs, changed;
    uint64_t history = belonged ? s->view.epoch->history : 0;
    weft_status st = wf_view_take(&s->view, m, &changed);

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
    case WF_MSG_PUSH: return take_push(s, m, out);
    case WF_MSG_PULL: return take_pull(s, m, out);
    case WF_MSG_ASK:
        if (p->holding == WF_HOLDS_PRIMARY && p->open)
            send_at(s, out, m->from, m->piece);
        return WEFT_OK;
    case WF_MSG_PARTIAL: return take_partial(s, m, out);
    case WF_MSG_DECISION: return take_decision(s, m->t, m->payload, out);
    case WF_MSG_WANT: answer_want(s, m, out); return WEFT_OK;
    case WF_MSG_RECORD: return take_record(s, m, out);
    case WF_MSG_RECORDED: return take_recorded(s, m, out);
    case WF_MSG_SYNC:
        if (p->holding == WF_HOLDS_TARGET)
            ask_next(s, out, m->piece, m->from);
        else if (p->holding == WF_HOLDS_BACKUP)
            send(s, out, WF_MSG_SYNCED, m->from, m->piece, p->version);
        return WEFT_OK;
    case WF_MSG_SYNCED: take_synced(s, m, out); return WEFT_OK;
    case WF_MSG_FILL: return take_fill(s, m, out);
    case WF_MSG_FILL_NEXT: take_fill_next(s, m, out); return WEFT_OK;
    default: return WEFT_OK;
    }
}

weft_status wf_server_step(struct wf_server *s, int64_t now, const struct wf_message *m,
                           struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    s->now = now;
    if (m->type == WF_MSG_EPOCH || m->type == WF_MSG_TERM)
        st = take_chief(s, m, out);
    else if (wf_view_counts(&s->view, m) && m->piece >= 0 && m->piece < s->plan.n_pieces)
        st = take_piece(s, m, out);
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
        send_records(s, out, piece);
    for (int i = 0; i < s->plan.n_pieces && p->phase == WF_PHASE_NORMS; i++)
        if (holders(s, i)->primary != s->view.node) {
            struct wf_message *m = send(s, out, WF_MSG_WANT, holders(s, i)->primary, i, p->version);

            if (m)
                m->round = p->round;
        }
    if (!p->open)
        ask_copies(s, out, piece);
}

/* What the chief and targets may have missed. */
static void report(struct wf_server *s, struct wf_actions *out, int piece)
{
    struct wf_server_piece *p = &s->piece[piece];
    const struct wf_holders *h = holders(s, piece);

    if (p->lockstep)
        send(s, out, WF_MSG_FILLED, s->view.chief, piece, p->version);
    else if (h->target != WF_NOBODY)
        send(s, out, WF_MSG_SYNC, h->target, piece, p->version);
    if (p->saved >= 0)
        send(s, out, WF_MSG_SAVED, s->view.chief, piece, p->saved);
}

weft_status wf_server_tick(struct wf_server *s, int64_t now, struct wf_actions *out)
{
    bool beat = now - s->beat_ns >= s->plan.retry_ns;

    s->now = now;
    if (beat) {
        s->beat_ns = now;
        wf_view_send(&s->view, out, WF_MSG_BEAT, s->view.chief);
    }
    for (int i = 0; i < s->plan.n_pieces && s->view.belongs; i++) {
        if (s->piece[i].holding != WF_HOLDS_PRIMARY)
            continue;
        ask_again(s, out, i);
        if (beat)
            report(s, out, i);
    }
    return out->st;
}

weft_status wf_server_saved(struct wf_server *s, int64_t now, int piece, int64_t t,
                            struct wf_actions *out)
{
    s->now = now;
    if (!s->view.belongs || s->piece[piece].holding != WF_HOLDS_PRIMARY)
        return WEFT_OK;
    s->piece[piece].saved = t;
    send(s, out, WF_MSG_SAVED, s->view.chief, piece, t);
    return out->st;
}
