/* client.c - a worker of parameter servers as a machine.
 *
 * Kept true: a step is complete when every piece is at the next version; until then its
 * contributions are kept, and sent again to whoever lacks them; a shard is computed from one
 * version of all pieces; what is sent together is a subtree of shards that are all computed; a step
 * that needs a control record is computed only with the one that is in the store. */
#include "ps/ps.h"

weft_status wf_client_init(struct wf_client *c, weft_ctx *ctx, const struct wf_ps_plan *plan,
                           const struct wf_client_data *data, int node, uint64_t incarnation,
                           int chief)
{
    *c = (struct wf_client){.plan = *plan, .data = *data, .t = -1};
    c->control = c->known = c->asked = c->decided = -1;
    wf_view_init(&c->view, ctx, node, WF_ROLE_WORKER, incarnation, chief);
    c->n_words = (plan->n_shards + 63) / 64;
    c->piece = wf_alloc_n(ctx, plan->n_pieces + 1, sizeof *c->piece);
    c->shard = wf_alloc_n(ctx, plan->n_shards + 1, sizeof *c->shard);
    c->arrived = wf_alloc_n(ctx, (int64_t)plan->n_pieces * c->n_words + 1, sizeof *c->arrived);
    c->ready = wf_alloc_n(ctx, plan->n_pieces / 64 + 1, sizeof *c->ready);
    if (c->piece && c->shard && c->arrived && c->ready)
        return WEFT_OK;
    wf_client_free(c);
    return wf_err_nomem(ctx, sizeof *c->piece, "worker");
}

void wf_client_free(struct wf_client *c)
{
    wf_free(c->view.ctx, c->piece);
    wf_free(c->view.ctx, c->shard);
    wf_free(c->view.ctx, c->arrived);
    wf_free(c->view.ctx, c->ready);
    c->ready = NULL;
    c->piece = NULL;
    c->shard = NULL;
    c->arrived = NULL;
    wf_view_free(&c->view);
}

static struct wf_message *send(struct wf_client *c, struct wf_actions *out,
                               enum wf_message_type type, int piece, int64_t t)
{
    struct wf_message *m = wf_view_send(&c->view, out, type, c->view.epoch->holders[piece].primary);

    if (m) {
        m->piece = piece;
        m->t = t;
    }
    return m;
}

/* ---- steps ----------------------------------------------------------------------------------- */

bool wf_client_has(const struct wf_client *c, int piece, int64_t t)
{
    return t >= 0 && c->piece[piece].have[t & 1] == t;
}

static bool is_mine(const struct wf_client *c, int shard)
{
    return c->view.epoch->worker[shard] == c->view.node;
}

static bool has_arrived(const struct wf_client *c, int piece, int shard)
{
    return c->arrived[(int64_t)piece * c->n_words + shard / 64] >> shard % 64 & 1;
}

/* Nothing is known of what the pieces have. */
static void forget_arrived(struct wf_client *c)
{
    for (int i = 0; i < c->plan.n_pieces; i++)
        c->piece[i].told_ns = -1;
    memset(c->arrived, 0, (size_t)c->plan.n_pieces * (size_t)c->n_words * sizeof *c->arrived);
}

static bool is_ready(const struct wf_client *c, int piece)
{
    return c->ready[piece / 64] >> piece % 64 & 1;
}

static void forget_ready(struct wf_client *c)
{
    memset(c->ready, 0, (size_t)(c->plan.n_pieces / 64 + 1) * sizeof *c->ready);
}

/* The shards of a subtree, those that exist. */
struct run {
    int first, end, level;
};

static struct run run_at(const struct wf_client *c, int shard, int level)
{
    int first = shard >> level << level;

    return (struct run){first, (int)wf_min_i64(first + ((int64_t)1 << level), c->plan.n_shards),
                        level};
}

/* The piece lacks all of them, and this worker has them, or will have them. */
static bool may_be_sent(const struct wf_client *c, int piece, struct run r)
{
    for (int l = r.first; l < r.end; l++)
        if (has_arrived(c, piece, l) || (c->shard[l] != WF_SHARD_DONE && !is_mine(c, l)))
            return false;
    return true;
}

/* The largest such subtree around a shard. */
static struct run run_around(const struct wf_client *c, int piece, int shard)
{
    struct run r = run_at(c, shard, 0), wider;
    bool sums = c->data.sums && c->data.sums(c->data.arg, piece);

    while (sums && r.end - r.first < c->plan.n_shards) {
        wider = run_at(c, shard, r.level + 1);
        if (!may_be_sent(c, piece, wider))
            break;
        r = wider;
    }
    return r;
}

static void send_push(struct wf_client *c, struct wf_actions *out, int piece, struct run r)
{
    struct wf_message *m = send(c, out, WF_MSG_PUSH, piece, c->t);

    if (m) {
        m->shard = r.first;
        m->level = r.level;
    }
}

/* Whether all of a subtree is computed, but for one shard. */
static bool is_computed(const struct wf_client *c, struct run r, int but)
{
    for (int l = r.first; l < r.end; l++)
        if (c->shard[l] != WF_SHARD_DONE && l != but)
            return false;
    return true;
}

/* Sends a subtree, if all of it is computed: otherwise its last shard will. */
static void push(struct wf_client *c, struct wf_actions *out, int piece, struct run r)
{
    if (is_computed(c, r, WF_NO_SHARD))
        send_push(c, out, piece, r);
}

static bool is_complete(const struct wf_client *c)
{
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (c->piece[i].at <= c->t)
            return false;
    return true;
}

static void pull(struct wf_client *c, struct wf_actions *out, int piece, int64_t t)
{
    struct wf_message *m = send(c, out, WF_MSG_PULL, piece, t);

    c->piece[piece].pulled = t;
    c->piece[piece].follows = c->data.follow;
    c->piece[piece].heard_ns = c->now;
    if (m)
        m->follow = c->data.follow;
}

/* Whether all that the shard needs is here; what is not is pulled. What is here is followed. */
static bool fetch(struct wf_client *c, struct wf_actions *out, int shard)
{
    bool here = true;

    for (int i = 0; i < c->plan.n_pieces; i++) {
        struct wf_client_piece *p = &c->piece[i];
        bool has = wf_client_has(c, i, c->t);

        if ((has && (!c->data.follow || p->follows)) || !c->data.needs(c->data.arg, shard, c->t, i))
            continue;
        here &= has;
        if (p->pulled < c->t + has)
            pull(c, out, i, c->t + has);
    }
    return here;
}

static void begin_step(struct wf_client *c, int64_t t)
{
    c->t = t;
    for (int i = 0; i < c->plan.n_pieces; i++) /* rows of an earlier version need not come */
        c->piece[i].reads = false;
    c->idle_ns = c->now;
    for (int i = 0; i < c->plan.n_shards; i++)
        c->shard[i] = WF_SHARD_OPEN;
    forget_arrived(c);
    c->data.forget(c->data.arg, t);
}

/* A shard that a piece lacks, as it has said since this worker began to wait; -1: there is none.
 * Not all that wait begin with the same one. */
static int find_late(const struct wf_client *c)
{
    int first = (int)((int64_t)c->view.node * 7 % c->plan.n_shards);

    for (int k = 0; k < c->plan.n_shards; k++) {
        int l = (first + k) % c->plan.n_shards;

        if (c->data.gate && c->view.epoch->worker[l] == wf_epoch_decider(c->view.epoch))
            continue; /* it may be about to end the job */
        for (int i = 0; i < c->plan.n_pieces && c->shard[l] == WF_SHARD_OPEN; i++)
            if (c->piece[i].told_ns > c->idle_ns && c->piece[i].at <= c->t && !has_arrived(c, i, l))
                return l;
    }
    return -1;
}

static bool is_late(const struct wf_client *c)
{
    return c->data.backup && c->pace_ns && c->now - c->idle_ns > c->data.backup * c->pace_ns;
}

static void compute(struct wf_client *c, struct wf_actions *out, int shard)
{
    struct wf_action *act = wf_actions_add(out, WF_ACT_COMPUTE);

    if (!act)
        return;
    act->t = c->t;
    act->shard = shard;
    c->shard[shard] = WF_SHARD_COMPUTING;
    c->computing = true;
    c->begun_ns = c->now;
    c->begun_t = c->t;
    c->begun_shard = shard;
    forget_ready(c);
}

/* ---- control records ------------------------------------------------------------------------- */

bool wf_client_decides(const struct wf_client *c)
{
    return c->view.belongs && wf_epoch_decider(c->view.epoch) == c->view.node;
}

/* A shard of this step is computed, or being computed. */
static bool has_begun(const struct wf_client *c)
{
    for (int l = 0; l < c->plan.n_shards; l++)
        if (c->shard[l] != WF_SHARD_OPEN)
            return true;
    return false;
}

static enum wf_gate gate_of(const struct wf_client *c)
{
    enum wf_gate gate;

    if (!c->data.gate)
        return WF_GATE_OPEN;
    gate = c->data.gate(c->data.arg, c->t, wf_client_decides(c) && !has_begun(c));
    return gate == WF_GATE_OPEN && c->t == c->view.epoch->start ? WF_GATE_RECORD : gate;
}

/* This worker is about to decide: what it decides from stays as it is. */
static bool is_deciding(const struct wf_client *c)
{
    return c->asked == c->t && c->decided < c->t && c->control < c->t;
}

static bool may_advance(const struct wf_client *c)
{
    return c->t < c->plan.n_steps && is_complete(c) && !is_deciding(c) &&
           gate_of(c) != WF_GATE_HOLD;
}

static void request(struct wf_client *c, struct wf_actions *out, enum wf_message_type type)
{
    struct wf_message *m = wf_view_send(&c->view, out, type, c->view.chief);

    c->control_ns = c->now;
    if (m)
        m->t = c->t;
}

/* Whether shards of the step may be computed. */
static bool may_begin(struct wf_client *c, struct wf_actions *out)
{
    enum wf_gate gate = gate_of(c);
    bool lacks = c->known > c->control && c->t >= c->known;

    if (c->data.gate && c->t < c->plan.n_steps &&
        (lacks || (gate == WF_GATE_RECORD && c->control < c->t))) {
        if (lacks || !wf_client_decides(c)) {
            c->wants_control = true;
        } else if (c->asked != c->t) {
            struct wf_action *act = wf_actions_add(out, WF_ACT_DECIDE);

            c->asked = c->t;
            if (act)
                act->t = c->t;
        }
        return false;
    }
    if (c->control > c->t) /* the step is complete: it will be told */
        return false;
    return gate == WF_GATE_OPEN || gate == WF_GATE_RECORD;
}

/* A record of the past says nothing any more; that of the first step of the history counts. */
static void forget_control(struct wf_client *c)
{
    c->control = c->known = c->asked = c->decided = -1;
}

/* Begins what can be begun. */
static void proceed(struct wf_client *c, struct wf_actions *out)
{
    bool waits = false, may;
    int late;

    if (!c->view.belongs)
        return;
    while (may_advance(c))
        begin_step(c, c->t + 1);
    c->wants_control = false;
    may = may_begin(c, out);
    if (!c->computing)
        fetch(c, out, WF_NO_SHARD);
    for (int l = 0; l < c->plan.n_shards && c->t < c->plan.n_steps && !c->computing && may; l++) {
        if (!is_mine(c, l) || c->shard[l] != WF_SHARD_OPEN)
            continue;
        if (fetch(c, out, l))
            compute(c, out, l);
        waits = true;
    }
    if (waits || c->computing || c->t >= c->plan.n_steps)
        c->idle_ns = c->now;
    late = may && is_late(c) ? find_late(c) : -1;
    if (late >= 0 && fetch(c, out, late))
        compute(c, out, late);
}

weft_status wf_client_go(struct wf_client *c, int64_t now, struct wf_actions *out)
{
    c->now = now;
    c->moves++;
    proceed(c, out);
    return out->st;
}

weft_status wf_client_decided(struct wf_client *c, int64_t now, int64_t t, struct wf_actions *out)
{
    c->now = now;
    c->moves++;
    if (t == c->t && c->asked == t && c->control < t) {
        c->decided = t;
        if (wf_client_decides(c) && !is_complete(c))
            request(c, out, WF_MSG_CONTROL);
    }
    proceed(c, out);
    return out->st;
}

/* Of any chief: it is in the store. */
static weft_status take_control(struct wf_client *c, const struct wf_message *m,
                                struct wf_actions *out)
{
    weft_status st;

    if (!c->data.gate || !c->view.belongs || m->role != WF_ROLE_CHIEF ||
        m->history != c->view.epoch->history || m->t <= c->control)
        return WEFT_OK;
    st = c->data.control(c->data.arg, m->t, m->payload);
    if (st)
        return st;
    c->control = m->t;
    c->known = wf_max_i64(c->known, m->t);
    proceed(c, out);
    return WEFT_OK;
}

weft_status wf_client_ready(struct wf_client *c, int64_t now, int64_t t, int shard, int piece,
                            struct wf_actions *out)
{
    struct run r;

    c->now = now;
    c->moves++;
    if (t != c->t || c->shard[shard] != WF_SHARD_COMPUTING || !c->view.belongs ||
        c->piece[piece].at > t || has_arrived(c, piece, shard) || is_ready(c, piece))
        return out->st;
    r = run_around(c, piece, shard);
    if (!is_computed(c, r, shard)) /* it goes with its sum, when the last of them is ready */
        return out->st;
    c->ready[piece / 64] |= (uint64_t)1 << piece % 64;
    send_push(c, out, piece, r);
    return out->st;
}

weft_status wf_client_computed(struct wf_client *c, int64_t now, int64_t t, int shard,
                               struct wf_actions *out)
{
    int64_t took = wf_max_i64(now - c->begun_ns, 1);

    c->now = c->idle_ns = now;
    c->moves++;
    c->computing = false;
    c->pace_ns = c->pace_ns ? (3 * c->pace_ns + took) / 4 : took;
    if (t == c->t && c->shard[shard] == WF_SHARD_COMPUTING) {
        c->shard[shard] = WF_SHARD_DONE;
        for (int i = 0; i < c->plan.n_pieces && c->view.belongs; i++)
            if (c->piece[i].at <= t && !has_arrived(c, i, shard) && !is_ready(c, i))
                push(c, out, i, run_around(c, i, shard));
    }
    proceed(c, out);
    return out->st;
}

/* ---- rows of tables -------------------------------------------------------------------------- */

static void send_read(struct wf_client *c, struct wf_actions *out, int piece)
{
    struct wf_message *m = send(c, out, WF_MSG_READ, piece, c->t);

    c->piece[piece].heard_ns = c->now;
    if (m)
        m->block = c->piece[piece].read_number;
}

weft_status wf_client_read(struct wf_client *c, int64_t now, int piece, int64_t t,
                           struct wf_actions *out)
{
    struct wf_client_piece *p = &c->piece[piece];

    c->now = now;
    c->moves++;
    p->reads = t == c->t;
    p->read_number = (p->read_number + 1) & INT32_MAX;
    if (p->reads && c->view.belongs)
        send_read(c, out, piece);
    return out->st;
}

static weft_status take_rows(struct wf_client *c, const struct wf_message *m)
{
    struct wf_client_piece *p = &c->piece[m->piece];

    if (!p->reads || m->t != c->t || m->block != p->read_number)
        return WEFT_OK;
    p->reads = false;
    p->heard_ns = c->now;
    return c->data.rows(c->data.arg, m->piece, m->t, m->payload);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* What the piece lacks is sent. */
static void send_missing(struct wf_client *c, int piece, struct wf_actions *out)
{
    for (int l = 0; l < c->plan.n_shards; l++)
        if (c->shard[l] == WF_SHARD_DONE && !has_arrived(c, piece, l)) {
            struct run r = run_around(c, piece, l);

            push(c, out, piece, r);
            l = r.end - 1;
        }
}

static void take_at(struct wf_client *c, const struct wf_message *m, struct wf_actions *out)
{
    struct wf_client_piece *p = &c->piece[m->piece];

    p->heard_ns = c->now;
    p->at = wf_max_i64(p->at, m->t);
    if (m->t == c->t && m->n_words == c->n_words) {
        memcpy(c->arrived + (int64_t)m->piece * c->n_words, m->bits,
               (size_t)c->n_words * sizeof *c->arrived);
        p->told_ns = c->now;
        send_missing(c, m->piece, out);
    }
    proceed(c, out);
}

static weft_status take_version(struct wf_client *c, const struct wf_message *m,
                                struct wf_actions *out)
{
    struct wf_client_piece *p = &c->piece[m->piece];
    weft_status st;

    p->heard_ns = c->now;
    p->at = wf_max_i64(p->at, m->t);
    if (m->t >= c->t && m->t <= c->t + c->data.follow && !wf_client_has(c, m->piece, m->t)) {
        st = c->data.take(c->data.arg, m->piece, m->t, m->payload);
        if (st && st != WEFT_ECANCEL)
            return st;
        if (!st)
            p->have[m->t & 1] = m->t;
    }
    proceed(c, out);
    return WEFT_OK;
}

/* A new epoch: other shards are this worker's, other servers hold the pieces. What was not answered
 * is asked again; contributions are sent when primaries announce what they lack. */
static weft_status take_chief(struct wf_client *c, const struct wf_message *m,
                              struct wf_actions *out)
{
    bool belonged = c->view.belongs, changed;
    uint64_t history = belonged ? c->view.epoch->history : 0;
    weft_status st = wf_view_take(&c->view, c->now, m, &changed);

    if (!st && c->view.belongs && m->history == c->view.epoch->history && m->t > c->known &&
        m->term == c->view.term) {
        c->known = m->t;
        if (!changed)
            proceed(c, out);
    }
    if (st || !changed)
        return st;
    if (!c->view.belongs) {
        if (belonged)
            wf_actions_add(out, WF_ACT_REJOIN);
        return out->st;
    }
    if (c->view.epoch->history != history) {
        forget_control(c);
        if (m->history == c->view.epoch->history)
            c->known = m->t;
        for (int i = 0; i < c->plan.n_pieces; i++)
            c->piece[i] = (struct wf_client_piece){.at = c->view.epoch->start,
                                                   .have = {-1, -1},
                                                   .pulled = -1,
                                                   .heard_ns = c->now,
                                                   .told_ns = -1,
                                                   .read_number = c->piece[i].read_number};
        if (c->data.restart)
            c->data.restart(c->data.arg);
        begin_step(c, c->view.epoch->start);
    }
    for (int i = 0; i < c->plan.n_pieces; i++) {
        c->piece[i].pulled = -1;
        c->piece[i].follows = false;
        if (c->piece[i].reads)
            send_read(c, out, i);
    }
    forget_arrived(c); /* another primary may have others */
    forget_ready(c);
    proceed(c, out);
    return WEFT_OK;
}

weft_status wf_client_step(struct wf_client *c, int64_t now, const struct wf_message *m,
                           struct wf_actions *out)
{
    weft_status st = WEFT_OK;

    c->now = now;
    if (m->type == WF_MSG_EPOCH || m->type == WF_MSG_TERM)
        st = take_chief(c, m, out);
    else if (m->type == WF_MSG_SEEK)
        wf_view_seen(&c->view, now, m->from, out);
    else if (m->type == WF_MSG_CONTROL)
        st = take_control(c, m, out);
    else if (!wf_view_counts(&c->view, m) || m->piece < 0 || m->piece >= c->plan.n_pieces)
        return WEFT_OK;
    else if (m->type == WF_MSG_AT)
        take_at(c, m, out);
    else if (m->type == WF_MSG_VERSION)
        st = take_version(c, m, out);
    else if (m->type == WF_MSG_ROWS)
        st = take_rows(c, m);
    return st ? st : out->st;
}

/* What its caller does, for the chief: who does nothing new for too long, while others wait, is
 * left out. */
static void say_doing(const struct wf_client *c, struct wf_message *m)
{
    bool works = c->view.belongs && c->t < c->plan.n_steps;
    enum wf_doing doing = WF_DOES_WAIT;

    if (works && c->computing)
        doing = WF_DOES_COMPUTE;
    else if (works && is_deciding(c))
        doing = WF_DOES_DECIDE;
    else if (works && c->data.doing)
        doing = c->data.doing(c->data.arg);
    for (int i = 0; i < c->plan.n_pieces; i++)
        if (c->piece[i].reads) /* rows have not come */
            doing = WF_DOES_WAIT;
    m->round = (int)doing;
    /* what it computes may be of an earlier step, or of a former history */
    m->t = doing == WF_DOES_COMPUTE ? wf_min_i64(c->begun_t, c->t) : c->t;
    m->shard = doing == WF_DOES_COMPUTE ? c->begun_shard : WF_NO_SHARD;
    m->block = (int)(c->moves & INT32_MAX);
    m->pace_ns = c->pace_ns;
}

weft_status wf_client_tick(struct wf_client *c, int64_t now, struct wf_actions *out)
{
    c->now = now;
    if (now - c->beat_ns >= c->plan.retry_ns) {
        struct wf_message *m = wf_view_send(
            &c->view, out, c->t >= c->plan.n_steps ? WF_MSG_DONE : WF_MSG_BEAT, c->view.chief);

        c->beat_ns = now;
        if (m)
            say_doing(c, m);
    }
    if (c->view.belongs && now - c->control_ns >= c->plan.retry_ns) {
        if (c->wants_control)
            request(c, out, WF_MSG_CONTROL_ASK);
        else if (c->decided == c->t && c->control < c->t && wf_client_decides(c))
            request(c, out, WF_MSG_CONTROL);
    }
    for (int i = 0; i < c->plan.n_pieces && c->view.belongs && c->t < c->plan.n_steps; i++) {
        struct wf_client_piece *p = &c->piece[i];

        if (now - p->heard_ns < c->plan.retry_ns)
            continue;
        p->heard_ns = now;
        if (p->at <= c->t)
            send(c, out, WF_MSG_ASK, i, c->t);
        if (p->pulled == c->t && !wf_client_has(c, i, c->t))
            pull(c, out, i, c->t);
        if (p->reads)
            send_read(c, out, i);
    }
    return out->st;
}
