/* serve.c - a parameter server as a process: its machine and its vectors over links.
 *
 * A server learns from the chief what is trained. The pieces of a new history come from a worker,
 * which has them in memory; the machine is told of such an epoch once they are here. */
#include "ps/serve.h"

#include "cluster/codec.h"
#include "ps/part.h"

#include <math.h>

struct image {
    char *p;
    int64_t n;
    bool here;
};

struct wf_ps_server {
    struct wf_site node;
    struct wf_ps_job *job;
    struct wf_cut *cut;
    struct wf_ps_store_opts opts;
    struct wf_ps_store *store;
    struct wf_server m;
    bool made, ended;
    bool rejoin; /* its pieces were given to others: it has to be started again, empty */
    bool leaves; /* it was drained: then it ends */
    int n_slots;
    struct wf_region *versions; /* published, for peers on this host; NULL: none */
    /* An epoch that waits for images. */
    struct wf_epoch *epoch;
    struct wf_message announced; /* the message that brought it */
    struct image *image;         /* by piece */
    int image_turn; /* which worker is requested to send them, and when the last one came */
    int64_t image_ns;
    int64_t told_ns;       /* when the chief was last told how busy it is */
    struct wf_parts parts; /* of checkpoints */
};

static weft_status tick(void *arg, int64_t now);

/* ---- images ---------------------------------------------------------------------------------- */

static int64_t image_bytes(const struct wf_ps_server *s, int piece)
{
    if (s->cut->piece[piece].state)
        return wf_ps_n_kept(&s->opts, piece) * (int64_t)sizeof(double);
    return (1 + s->n_slots) * s->cut->piece[piece].count * (int64_t)sizeof(float);
}

static bool is_fresh(const struct wf_ps_server *s, const struct wf_epoch *e)
{
    const struct wf_view *v = &s->m.view;

    return wf_epoch_has(e, s->node.self, s->node.incarnation) &&
           (!v->belongs || v->epoch->history != e->history);
}

static bool wants(const struct wf_ps_server *s, int piece)
{
    const struct wf_holders *h = &s->epoch->holders[piece];

    return (h->primary == s->node.self || h->backup == s->node.self) && !s->image[piece].here;
}

/* The worker that pieces are requested from: another one, if nothing has come for a while. */
static int image_source(struct wf_ps_server *s)
{
    int64_t now = wf_site_now(&s->node);
    int n = 0, turn;

    if (now - s->image_ns > s->node.spec.timeout_ns / 3) {
        s->image_ns = now;
        s->image_turn++;
    }
    for (int i = 0; i < s->epoch->n_members; i++)
        n += s->epoch->member[i].role == WF_ROLE_WORKER &&
             wf_site_has(&s->node, s->epoch->member[i].node);
    turn = n ? s->image_turn % n : 0;
    for (int i = 0; i < s->epoch->n_members; i++)
        if (s->epoch->member[i].role == WF_ROLE_WORKER &&
            wf_site_has(&s->node, s->epoch->member[i].node) && turn-- == 0)
            return s->epoch->member[i].node;
    return WF_NOBODY;
}

/* Asks a worker for what is missing. */
static void ask_images(struct wf_ps_server *s)
{
    int worker = image_source(s);

    for (int i = 0; i < s->cut->n_pieces && worker != WF_NOBODY; i++) {
        struct wf_message m = {.type = WF_MSG_PULL,
                               .from = s->node.self,
                               .to = worker,
                               .piece = i,
                               .t = s->epoch->start};

        if (wants(s, i))
            wf_site_send_copy(&s->node, worker, WF_SITE_IMAGE_ASK, &m, NULL, 0);
    }
}

static void drop_images(struct wf_ps_server *s)
{
    for (int i = 0; i < s->cut->n_pieces; i++) {
        wf_free(s->node.ctx, s->image[i].p);
        s->image[i] = (struct image){.p = NULL};
    }
}

static weft_status load(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums)
{
    struct wf_ps_server *s = arg;
    size_t bytes = (size_t)s->cut->piece[piece].count * sizeof(float);
    const char *from = s->image[piece].p;

    if (!s->image[piece].here)
        return wf_err(WEFT_ESTATE, "piece %d of version %lld is not here", piece, (long long)t);
    if (s->cut->piece[piece].state)
        memcpy(sums, from, (size_t)image_bytes(s, piece));
    if (bytes == 0)
        return WEFT_OK;
    memcpy(params, from, bytes);
    for (int k = 0; k < s->n_slots; k++)
        memcpy(slot[k], from + (size_t)(k + 1) * bytes, bytes);
    return WEFT_OK;
}

/* Rows that are not as the initializer makes them. */
static weft_status load_rows(void *arg, int piece, int64_t t, struct wf_blob *rows)
{
    struct wf_ps_server *s = arg;

    if (!s->image[piece].here)
        return wf_err(WEFT_ESTATE, "piece %d of version %lld is not here", piece, (long long)t);
    *rows = (struct wf_blob){s->image[piece].p, s->image[piece].n};
    return WEFT_OK;
}

/* ---- what the machine wants ------------------------------------------------------------------ */

/* Bytes of a message under way; those that change meanwhile are copied. */
struct sending {
    weft_ctx *ctx;
    struct wf_ps_store *store;
    struct wf_payload body; /* of tables: written for this message */
    _Alignas(8) char copy[];
};

static void is_sent(void *arg, weft_status st)
{
    struct sending *b = arg;

    (void)st;
    wf_ps_store_give_body(b->store, b->body);
    wf_ps_store_unpin(b->store);
    wf_free(b->ctx, b);
}

static bool is_leased(const struct wf_ps_server *s)
{
    return s->job->plan.window > 0;
}

/* A version is overwritten when it is no longer needed, a record once the backup has it.
 * Everything else may change while it is being sent; with leases, versions do. */
static bool stays(const struct wf_ps_server *s, const struct wf_message *m)
{
    if (s->cut->piece[m->piece].tables)
        return false;
    return (m->type == WF_MSG_VERSION && !is_leased(s)) ||
           (m->type == WF_MSG_RECORD && s->m.view.epoch->holders[m->piece].backup == m->to);
}

static bool has_decision(const struct wf_message *m)
{
    return m->type == WF_MSG_DECISION || m->type == WF_MSG_RECORD || m->type == WF_MSG_FILL;
}

/* Parameters of a peer that maps them. */
static bool is_mapped(struct wf_ps_server *s, const struct wf_message *m)
{
    return s->versions && s->cut->piece[m->piece].count > 0 &&
           wf_site_share(&s->node, m->to, &s->versions, 1);
}

static weft_status send(struct wf_ps_server *s, const struct wf_message *m)
{
    struct wf_ps_bytes b = {.n_body = 0, .rate = NAN};
    struct wf_site_head head = {0};
    bool borrowed = stays(s, m);
    struct sending *out;
    char *to;

    if (m->type == WF_MSG_VERSION && is_mapped(s, m)) { /* the peer finds it in its place */
        head.region = 1;
        wf_site_send(&s->node, m->to, m->type, m, &head, NULL, 0, NULL, NULL);
        return WEFT_OK;
    }
    if (m->type == WF_MSG_VERSION || m->type == WF_MSG_PARTIAL || m->type == WF_MSG_ROWS ||
        has_decision(m))
        wf_ps_bytes(s->store, m, s->m.piece[m->piece].version, &b);
    if (b.st)
        return b.st;
    if (!has_decision(m))
        b.decision.n = 0;
    head.rate = b.rate;
    head.control = b.mark.control;
    head.fresh = b.mark.fresh;
    head.kind = b.mark.kind;
    head.step = b.mark.step;
    if (m->type == WF_MSG_RECORD && borrowed && wf_ps_store_shows(s->store, m->piece, m->t) &&
        is_mapped(s, m)) { /* the mean is read where it is */
        head.region = 1;
        b.n_body--;
        memmove(b.body, b.body + 1, (size_t)b.n_body * sizeof *b.body);
    }
    for (int i = 0; i < b.n_body; i++)
        head.n_body += b.body[i].n;
    borrowed |= b.own != NULL;
    out = wf_alloc_raw(s->node.ctx,
                       sizeof *out + (borrowed ? 0 : (size_t)head.n_body) + (size_t)b.decision.n);
    if (!out)
        return wf_err_nomem(s->node.ctx, (size_t)head.n_body, "message");
    *out = (struct sending){.ctx = s->node.ctx, .store = s->store};
    if (b.own)
        out->body = wf_ps_store_take_body(s->store, b.own);
    to = out->copy;
    if (b.decision.n)
        b.body[b.n_body++] = b.decision;
    for (int i = 0; i < b.n_body; i++)
        if (!borrowed || (b.decision.n && i == b.n_body - 1)) {
            b.body[i].p = memcpy(to, b.body[i].p, (size_t)b.body[i].n);
            to += b.body[i].n;
        }
    wf_ps_store_pin(s->store);
    wf_site_send(&s->node, m->to, m->type, m, &head, b.body, b.n_body, is_sent, out);
    return WEFT_OK;
}

static weft_status carry_out(struct wf_ps_server *s)
{
    struct wf_actions *a = &s->node.acts;
    weft_status st = a->st;

    for (int64_t i = 0; i < a->n && !st; i++)
        if (a->act[i].type == WF_ACT_SEND) {
            st = send(s, &a->act[i].msg);
        } else if (a->act[i].type == WF_ACT_REJOIN) {
            s->rejoin = true;
            s->ended |= s->leaves;
        }
    return st;
}

/* Whether a step's record goes to somebody. */
static bool records(void *arg, int piece)
{
    const struct wf_ps_server *s = arg;
    const struct wf_holders *h = &s->m.view.epoch->holders[piece];

    return h->backup != WF_NOBODY || h->target != WF_NOBODY;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Memory for versions that peers on this host map, if there may be such. */
static void publish(struct wf_ps_server *s)
{
    const struct wf_rules *r = &s->job->rules;
    const char *address = s->node.spec.task[s->node.self].address;
    struct wf_published *p = &s->opts.published;
    char *at;

    if ((strncmp(address, "shm:", 4) != 0 && strncmp(address, "inproc:", 7) != 0) ||
        r->n_dense == 0 ||
        wf_region_memory(s->node.ctx, wf_ps_published_bytes(r, s->cut), false, &s->versions))
        return; /* then they are sent */
    at = s->versions->p;
    p->begun = (_Atomic int64_t *)(void *)at;
    p->meant = p->begun + 2 * s->cut->n_pieces;
    for (int i = 0; i < 3 * s->cut->n_pieces; i++)
        p->begun[i] = -1;
    for (int i = 0; i < 2; i++)
        p->flat[i] = (float *)(void *)(at + wf_ps_published_at(r, s->cut, i));
    if (s->job->plan.window == 0)
        p->mean = (float *)(void *)(at + wf_ps_published_at(r, s->cut, WF_PUBLISHED_MEAN));
}

static weft_status make(struct wf_ps_server *s)
{
    weft_ctx *ctx = s->node.ctx;
    struct wf_ps_plan plan = s->job->plan;
    struct wf_ps_data data;
    weft_status st = wf_cut_new(ctx, &s->job->rules, s->job->cut_bytes, &s->cut);

    if (st)
        return st;
    s->n_slots = wf_optim_slots(s->job->rules.optim, s->job->rules.attrs, NULL,
                                (float[WF_OPTIM_MAX_SLOTS]){0});
    s->opts = (struct wf_ps_store_opts){.rules = &s->job->rules,
                                        .cut = s->cut,
                                        .n_shards = s->job->plan.n_shards,
                                        .leased = is_leased(s),
                                        .records = records,
                                        .records_arg = s,
                                        .n_logs = s->job->n_logs,
                                        .logs = s->job->logs.n_batches ? &s->job->logs : NULL,
                                        .n_blocks = plan.n_blocks,
                                        .load = load,
                                        .load_rows = load_rows,
                                        .load_arg = s};
    s->image = wf_alloc_n(ctx, s->cut->n_pieces + 1, sizeof *s->image);
    if (!s->image)
        return wf_err_nomem(ctx, sizeof *s->image, "server");
    publish(s);
    st = wf_ps_store_new(ctx, &s->opts, &s->store);
    if (st)
        return st;
    plan.n_pieces = s->cut->n_pieces;
    plan.retry_ns = s->node.spec.retry_ns;
    data = wf_ps_store_data(s->store);
    st = wf_server_init(&s->m, ctx, &plan, &data, s->node.self, s->node.incarnation, 0);
    s->made = !st;
    s->node.since_ns = wf_site_now(&s->node);
    return st;
}

static weft_status take_job(struct wf_ps_server *s, const struct wf_arrived *a)
{
    int64_t start = (int64_t)sizeof(int64_t);
    weft_status st;

    if (s->made || a->n < start)
        return WEFT_OK;
    st = wf_ps_job_read(s->node.ctx, a->p + start, a->n - start, &s->job);
    if (!st)
        st = make(s);
    return st ? st : tick(s, wf_site_now(&s->node)); /* the chief need not wait for it */
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status step(struct wf_ps_server *s, const struct wf_message *m)
{
    uint64_t mode = wf_fpmode_enter(s->node.ctx->flush_denormals);
    int64_t begin = wf_site_now(&s->node);
    weft_status st;

    s->node.acts.n = 0;
    st = wf_server_step(&s->m, begin, m, &s->node.acts);
    if (!st)
        st = carry_out(s);
    wf_fpmode_leave(mode);
    s->node.busy_ns += wf_site_now(&s->node) - begin;
    return st;
}

/* The epoch that waited, if nothing is missing any more. */
static weft_status try_epoch(struct wf_ps_server *s)
{
    struct wf_message m = s->announced;
    weft_status st;

    for (int i = 0; i < s->cut->n_pieces; i++)
        if (wants(s, i))
            return WEFT_OK;
    m.record = s->epoch;
    st = step(s, &m);
    wf_epoch_free(s->node.ctx, s->epoch);
    s->epoch = NULL;
    drop_images(s);
    return st;
}

static weft_status take_epoch(struct wf_ps_server *s, const struct wf_arrived *a)
{
    struct wf_message m = a->msg;
    struct wf_epoch *e;
    weft_status st = wf_epoch_read(s->node.ctx, a->p, a->n, &e);

    if (st)
        return st;
    s->leaves |= wf_epoch_has(e, s->node.self, s->node.incarnation) &&
                 wf_epoch_member(e, s->node.self)->leaves;
    st = e->list ? wf_site_extend(&s->node, e->list) : WEFT_OK;
    if (st) {
        wf_epoch_free(s->node.ctx, e);
        return st;
    }
    if (e->n_pieces != s->cut->n_pieces ||
        e->n_shards != (is_leased(s) ? 0 : s->job->plan.n_shards) ||
        (s->epoch && (m.term < s->announced.term || e->number <= s->epoch->number))) {
        wf_epoch_free(s->node.ctx, e);
        return WEFT_OK;
    }
    if (is_fresh(s, e)) {
        if (s->epoch && s->epoch->history != e->history)
            drop_images(s);
        wf_epoch_free(s->node.ctx, s->epoch);
        s->epoch = e;
        s->announced = m;
        ask_images(s);
        return try_epoch(s);
    }
    m.record = e;
    st = step(s, &m);
    wf_epoch_free(s->node.ctx, e);
    return st;
}

static weft_status take_image(struct wf_ps_server *s, const struct wf_arrived *a)
{
    int piece = a->msg.piece;

    if (!s->epoch || piece < 0 || piece >= s->cut->n_pieces || a->msg.t != s->epoch->start ||
        s->image[piece].here || (!s->cut->piece[piece].tables && a->n != image_bytes(s, piece)))
        return WEFT_OK;
    s->image[piece].p = wf_alloc(s->node.ctx, (size_t)a->n + 1);
    if (!s->image[piece].p)
        return wf_err_nomem(s->node.ctx, (size_t)a->n, "piece of the parameters");
    if (a->n)
        memcpy(s->image[piece].p, a->p, (size_t)a->n);
    s->image[piece].n = a->n;
    s->image[piece].here = true;
    s->image_ns = wf_site_now(&s->node);
    return try_epoch(s);
}

/* Bytes of what a contribution or a record arrives in: its numbers, its sums. */
static int64_t dense_bytes(const struct wf_ps_server *s, const struct wf_arrived *a)
{
    int n = a->kind == WF_MSG_RECORD ? 1 : s->job->rules.n_groups;

    return n * s->cut->piece[a->msg.piece].count * (int64_t)sizeof(float);
}

/* A contribution arrives where the tree wants it, a record where the mean is kept. */
static int place(void *arg, const struct wf_arrived *a, int64_t n, struct wf_part *part,
                 void **placed)
{
    struct wf_ps_server *s = arg;
    int piece = a->msg.piece;
    int64_t dense, sums;
    struct wf_contribution *c;

    if (!s->made ||
        (a->kind != WF_MSG_PUSH && a->kind != WF_MSG_RECORD && a->kind != WF_MSG_CLOSE) ||
        piece < 0 || piece >= s->cut->n_pieces || s->cut->piece[piece].count == 0)
        return 0;
    dense = dense_bytes(s, a);
    sums = wf_ps_n_sums(&s->opts, piece) * (int64_t)sizeof(double);
    if (a->head.n_body != dense + sums || n < dense + sums ||
        (n > dense + sums && a->kind == WF_MSG_PUSH))
        return 0;
    c = wf_ps_store_take(s->store, piece);
    if (!c)
        return 0;
    part[0] = (struct wf_part){c->dense, dense};
    part[1] = (struct wf_part){c->sums, sums};
    part[2] = (struct wf_part){NULL, n - dense - sums};
    *placed = c;
    return n > dense + sums ? 3 : 2;
}

static void unplace(void *arg, void *placed)
{
    (void)arg;
    wf_contribution_free(placed);
}

/* The rows of tables with their slots. */
static weft_status send_rows(struct wf_ps_server *s, const struct wf_arrived *a)
{
    struct wf_message m = a->msg;
    struct wf_blob rows;
    weft_status st = wf_ps_store_rows(s->store, m.piece, &rows);

    if (st)
        return st;
    m.from = s->node.self;
    m.to = a->from;
    wf_site_send_copy(&s->node, m.to, WF_SITE_SLOTS, &m, rows.p, rows.n);
    return WEFT_OK;
}

/* What a worker sends is checked before the machine sees it: who does not keep to the protocol is
 * refused, and nothing else is disturbed. */
static bool is_valid(struct wf_ps_server *s, const struct wf_arrived *a, struct wf_ps_payload *p)
{
    int piece = a->msg.piece;
    bool closes = a->kind == WF_MSG_CLOSE;
    weft_status st = WEFT_OK;

    if ((a->kind != WF_MSG_PUSH && a->kind != WF_MSG_READ && !closes) || piece < 0 ||
        piece >= s->cut->n_pieces || !wf_view_counts(&s->m.view, &a->msg))
        return true; /* the machine drops what does not count */
    if (is_leased(s) && a->kind != WF_MSG_READ)
        st = wf_ps_store_closes(s->store, piece, p, closes, a->msg.whole);
    else if (a->kind == WF_MSG_PUSH && s->m.piece[piece].version == a->msg.t)
        st = wf_ps_store_accepts(s->store, piece, a->msg.t, p);
    if (!st && a->kind == WF_MSG_PUSH && !is_leased(s) && s->cut->piece[piece].tables && p->body.n)
        st = wf_ps_store_read(s->store, piece, &p->body, &p->given);
    else if (!st && a->kind == WF_MSG_READ && s->cut->piece[piece].tables)
        st = wf_ps_store_check(s->store, piece, &p->body);
    else if (!st && a->kind == WF_MSG_READ)
        st = wf_err(WEFT_EPEER, "piece %d has no tables", piece);
    else if (closes && !is_leased(s))
        st = wf_err(WEFT_EPEER, "piece %d: a closing record, in a job of steps", piece);
    if (st == WEFT_EPEER)
        wf_site_refuse(&s->node, a->from);
    return !st;
}

/* A worker writes a checkpoint. */
static weft_status send_slots(struct wf_ps_server *s, const struct wf_arrived *a)
{
    struct wf_message m = a->msg;
    int64_t n;
    float *slots;

    if (m.piece < 0 || m.piece >= s->cut->n_pieces ||
        s->m.piece[m.piece].holding != WF_HOLDS_PRIMARY || s->m.piece[m.piece].version != m.t)
        return WEFT_OK;
    if (s->cut->piece[m.piece].tables)
        return send_rows(s, a);
    n = s->n_slots * s->cut->piece[m.piece].count;
    slots = wf_alloc_n(s->node.ctx, n + 1, sizeof *slots);
    if (!slots)
        return wf_err_nomem(s->node.ctx, (size_t)n * sizeof *slots, "checkpoint");
    wf_ps_store_slots(s->store, m.piece, slots);
    m.from = s->node.self;
    m.to = a->from;
    wf_site_send_copy(&s->node, m.to, WF_SITE_SLOTS, &m, slots, n * (int64_t)sizeof *slots);
    wf_free(s->node.ctx, slots);
    return WEFT_OK;
}

/* A contribution in the worker's memory. False: there is no such memory. */
static bool find_lent(const struct wf_ps_server *s, const struct wf_arrived *a,
                      struct wf_ps_payload *p)
{
    const struct wf_rules *r = &s->job->rules;
    int piece = a->msg.piece;
    const char *at = wf_site_region(&s->node, a->from, a->head.region, wf_ps_slot_bytes(r));

    if (!at || (a->kind != WF_MSG_PUSH && a->kind != WF_MSG_CLOSE) || piece < 0 ||
        piece >= s->cut->n_pieces)
        return false;
    p->stamp = (const _Atomic uint64_t *)(const void *)at;
    p->stamped = a->head.stamp;
    p->lent = (const float *)(const void *)(at + WF_PS_SLOT_HEAD) + s->cut->piece[piece].first;
    p->lent_stride = r->n_dense;
    return true;
}

/* A record whose mean is in published memory of the primary, which may be about to write another
 * one: then the record is none, as if it was lost. */
static bool copy_record(struct wf_ps_server *s, const struct wf_arrived *a, struct wf_ps_payload *p)
{
    const struct wf_rules *r = &s->job->rules;
    int piece = a->msg.piece;
    const char *at =
        wf_site_region(&s->node, a->from, a->head.region, wf_ps_published_bytes(r, s->cut));
    const _Atomic int64_t *meant;
    const struct wf_cut_piece *c;
    const float *from;
    bool same;

    if (!at || piece < 0 || piece >= s->cut->n_pieces || s->cut->piece[piece].tables ||
        p->body.n != wf_ps_n_sums(&s->opts, piece) * (int64_t)sizeof(double))
        return false;
    c = &s->cut->piece[piece];
    meant = (const _Atomic int64_t *)(const void *)at + 2 * s->cut->n_pieces + piece;
    from = (const float *)(const void *)(at + wf_ps_published_at(r, s->cut, WF_PUBLISHED_MEAN));
    p->given = wf_ps_store_take(s->store, piece);
    if (!p->given)
        return false;
    same = atomic_load_explicit(meant, memory_order_acquire) == a->msg.t;
    memcpy(p->given->dense, from + c->first, (size_t)c->count * sizeof *from);
    atomic_thread_fence(memory_order_acquire);
    same &= atomic_load_explicit(meant, memory_order_relaxed) == a->msg.t;
    memcpy(p->given->sums, p->body.p, (size_t)p->body.n);
    p->body = (struct wf_blob){NULL, c->count * (int64_t)sizeof *from + p->body.n};
    if (!same)
        wf_ps_store_give(s->store, piece, p->given);
    return same;
}

static struct wf_parts_of parts_of(struct wf_ps_server *s)
{
    return (struct wf_parts_of){&s->node, s->store, &s->m, &s->job->rules, s->cut->n_pieces};
}

static weft_status received(void *arg, struct wf_arrived *a)
{
    struct wf_ps_server *s = arg;
    struct wf_ps_payload p = {
        .body = {a->p, a->head.n_body},
        .rate = a->head.rate,
        .mark = {a->head.control, a->head.fresh != 0, (enum wf_ps_kind)a->head.kind, a->head.step},
        .given = a->placed};
    weft_status st = WEFT_OK;

    if (a->kind == WF_SITE_JOB)
        return take_job(s, a);
    if (a->kind == WF_MSG_STOP) /* also of one that was drained, and learns first that it is out */
        s->ended = true;
    if (!s->made || s->rejoin)
        return WEFT_OK;
    if (a->kind == WF_SITE_IMAGE)
        return take_image(s, a);
    if (a->kind == WF_SITE_SLOTS_ASK)
        return send_slots(s, a);
    if (a->kind >= WF_SITE_SNAP_ASK && a->kind <= WF_SITE_PART_DROP) {
        struct wf_parts_of of = parts_of(s);

        wf_parts_take(&s->parts, &of, a);
    }
    if (a->kind == WF_MSG_EPOCH)
        return take_epoch(s, a);
    if (a->kind >= WF_MSG_TYPES)
        return WEFT_OK;
    if (a->head.region && !(a->kind == WF_MSG_RECORD ? copy_record(s, a, &p) : find_lent(s, a, &p)))
        return WEFT_OK;
    if (a->p || a->rest)
        p.decision =
            (struct wf_blob){a->rest ? a->rest : a->p + a->head.n_body, a->n - a->head.n_body};
    if (!is_valid(s, a, &p))
        return WEFT_OK;
    a->msg.payload = &p;
    st = step(s, &a->msg);
    if (p.given)
        wf_ps_store_give(s->store, a->msg.piece, p.given);
    if (s->node.n_old && wf_ps_store_lent(s->store) == 0)
        wf_site_drop_old(&s->node);
    return st;
}

/* Now and then, for people. */
static void tell_chief(struct wf_ps_server *s, int64_t now)
{
    const struct wf_site_stat none = {0};

    if (now - s->told_ns < WF_SITE_TELL_MS * 1000000LL || !s->m.view.belongs)
        return;
    s->told_ns = now;
    wf_site_tell(&s->node, s->m.view.chief, &none);
}

static weft_status tick(void *arg, int64_t now)
{
    struct wf_ps_server *s = arg;
    uint64_t mode;
    weft_status st;

    if (!s->made) {
        for (int i = 0; i < s->node.spec.n_tasks; i++)
            if (s->node.spec.task[i].role == WF_ROLE_CHIEF)
                wf_site_send_copy(&s->node, i, WF_SITE_JOB_ASK, NULL, NULL, 0);
        return WEFT_OK;
    }
    if (s->rejoin)
        return WEFT_OK;
    tell_chief(s, now);
    if (s->epoch)
        ask_images(s);
    if (s->parts.first) {
        struct wf_parts_of of = parts_of(s);

        wf_parts_tick(&s->parts, &of);
    }
    mode = wf_fpmode_enter(s->node.ctx->flush_denormals);
    s->node.acts.n = 0;
    s->m.busy_ns = s->node.busy_ns;
    st = wf_server_tick(&s->m, now, &s->node.acts);
    if (!st)
        st = carry_out(s);
    wf_fpmode_leave(mode);
    s->node.busy_ns += wf_site_now(&s->node) - now;
    return st;
}

static const struct wf_site_calls calls = {
    .place = place, .unplace = unplace, .received = received, .tick = tick};

weft_status wf_ps_server_start(weft_ctx *ctx, const struct wf_spec *spec, int self,
                               struct wf_ps_server **out)
{
    struct wf_ps_server *s = wf_alloc(ctx, sizeof *s);
    weft_status st;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "server");
    st = wf_site_start(&s->node, ctx, spec, self, &calls, s);
    if (st) {
        wf_free(ctx, s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

static bool has_ended(void *arg)
{
    const struct wf_ps_server *s = arg;

    return s->ended || s->rejoin;
}

bool wf_ps_server_lost(struct wf_ps_server *s)
{
    bool lost;

    wf_site_lock(&s->node);
    lost = s->rejoin && !s->ended;
    wf_site_unlock(&s->node);
    return lost;
}

weft_status wf_ps_server_wait(struct wf_ps_server *s, int64_t timeout_ns)
{
    return wf_site_wait(&s->node, has_ended, s, timeout_ns, "the end of the job");
}

weft_status wf_ps_server_counts(struct wf_ps_server *s, struct wf_ps_counts *out)
{
    return wf_site_count(&s->node, out);
}

void wf_ps_server_stop(struct wf_ps_server *s)
{
    weft_ctx *ctx;

    if (!s)
        return;
    ctx = s->node.ctx;
    wf_parts_close(&s->parts, &s->node);
    wf_site_stop(&s->node);
    if (s->made) {
        wf_server_free(&s->m);
        drop_images(s);
    }
    wf_epoch_free(ctx, s->epoch);
    wf_ps_store_free(s->store);
    wf_region_drop(s->versions);
    wf_free(ctx, s->image);
    wf_cut_free(s->cut);
    wf_ps_job_free(s->job);
    wf_free(ctx, s);
}
