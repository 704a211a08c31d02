/* update.c - what steps do to the pieces of a server: contributions are added, norms are taken, and
 * the next version is made. */
#include "ps/held.h"

#include <math.h>

/* Elements from which on a version is written past the caches: together with the previous one
 * and the gradients it is larger than most of them. */
enum { STREAMED = 1 << 20 };

/* ---- contributions --------------------------------------------------------------------------- */

struct wf_contribution *wf_ps_store_take(struct wf_ps_store *s, int piece)
{
    struct wf_held *h = &s->held[piece];
    struct wf_contribution *c = NULL;

    return h->here && !wf_tree_take(&h->tree, &c) ? c : NULL;
}

void wf_ps_store_give(struct wf_ps_store *s, int piece, struct wf_contribution *c)
{
    struct wf_held *h = &s->held[piece];

    if (h->here && c && c->rules == &h->rules)
        wf_tree_give(&h->tree, c);
    else
        wf_contribution_free(c);
}

/* All contributions to a step have one learning rate, and follow the same control record. */
static weft_status check_rate(const struct wf_held *h, int piece, int64_t t, double rate,
                              const struct wf_ps_mark *mark)
{
    bool same = rate == h->rate || (isnan(rate) && isnan(h->rate));

    if ((int)mark->kind < 0 || mark->kind >= WF_PS_KINDS ||
        (h->has_rate && (mark->step != h->mark.step ||
                         (mark->kind != h->mark.kind &&
                          (mark->kind > WF_PS_SKIPPED || h->mark.kind > WF_PS_SKIPPED)))))
        return wf_err(WEFT_EPEER,
                      "piece %d, version %lld: contributions to steps %lld and %lld, of kinds %d "
                      "and %d",
                      piece, (long long)t, (long long)h->mark.step, (long long)mark->step,
                      (int)h->mark.kind, (int)mark->kind);
    if (mark->kind == WF_PS_TAKE_BEST && h->tables && !wf_tables_keeps(h->tables))
        return wf_err(WEFT_EPEER,
                      "piece %d, version %lld: values of tables are to be restored, and none were "
                      "kept",
                      piece, (long long)t);
    if (h->has_rate && (mark->control != h->mark.control || mark->fresh != h->mark.fresh))
        return wf_err(WEFT_EPEER,
                      "piece %d, step %lld: contributions after the control records of steps %lld "
                      "and %lld",
                      piece, (long long)t, (long long)h->mark.control, (long long)mark->control);
    if (!same && h->has_rate)
        return wf_err(WEFT_EPEER,
                      "piece %d, step %lld: contributions with the learning rates %g and %g", piece,
                      (long long)t, h->rate, rate);
    return WEFT_OK;
}

/* One contribution that skips a step makes all of it skipped. */
static void note_rate(struct wf_held *h, const struct wf_ps_payload *p)
{
    bool skips = h->has_rate && h->mark.kind == WF_PS_SKIPPED;

    h->rate = p->rate;
    h->mark = p->mark;
    if (skips)
        h->mark.kind = WF_PS_SKIPPED;
    h->has_rate = true;
}

/* Bytes of a contribution in a message: gradients that are read where they are do not travel. */
weft_status wf_given_check(const struct wf_ps_store *s, int piece, const struct wf_ps_payload *p)
{
    const struct wf_held *h = &s->held[piece];
    int64_t sums = h->rules.n_sums * (int64_t)sizeof(double);
    int64_t n = p->lent ? sums : wf_ps_push_bytes(&s->opts, piece);

    return p->body.n == n ? WEFT_OK : wf_held_wrong_size(piece, p->body.n, n);
}

weft_status wf_ps_store_accepts(const struct wf_ps_store *s, int piece, int64_t t,
                                const struct wf_ps_payload *p)
{
    const struct wf_held *h = &s->held[piece];
    weft_status st = WEFT_OK;

    if (h->here && p->body.n > 0 && !h->tables)
        st = wf_given_check(s, piece, p);
    return h->here && !st ? check_rate(h, piece, t, p->rate, &p->mark) : st;
}

/* A contribution that is read where the worker left it. */
static weft_status lend(struct wf_ps_store *s, struct wf_held *h, const struct wf_ps_payload *p,
                        struct wf_contribution **out)
{
    weft_status st = wf_grow(s->ctx, &h->lent, &h->cap_lent, h->n_lent + 1, sizeof *h->lent);

    if (!st)
        st = wf_tree_lend(&h->tree, p->lent, p->lent_stride, out);
    if (st)
        return st;
    h->lent[h->n_lent++] = (struct wf_lent){p->stamp, p->stamped};
    s->n_lent++;
    return WEFT_OK;
}

weft_status wf_given_fill(struct wf_contribution *c, const struct wf_blob *b)
{
    int64_t sums = c->rules->n_sums * (int64_t)sizeof(double), dense = b->n - sums;

    if (dense)
        memcpy(c->dense, b->p, (size_t)dense);
    memcpy(c->sums, b->p + dense, (size_t)sums);
    return WEFT_OK;
}

/* Of a contribution: with its memory, where it has its own. */
static weft_status take_body(struct wf_ps_store *s, int piece, struct wf_ps_payload *p,
                             struct wf_contribution **out)
{
    struct wf_held *h = &s->held[piece];
    weft_status st = wf_given_check(s, piece, p);

    if (st)
        return st;
    if (p->given) {
        *out = p->given;
        p->given = NULL;
        return WEFT_OK;
    }
    st = p->lent ? lend(s, h, p, out) : wf_tree_take(&h->tree, out);
    return st ? st : wf_given_fill(*out, &p->body);
}

weft_status wf_ps_store_read(struct wf_ps_store *s, int piece, const struct wf_blob *b,
                             struct wf_contribution **out)
{
    struct wf_contribution *c = NULL;
    weft_status st;

    if (!s->held[piece].tables)
        return WEFT_OK;
    st = wf_tree_take(&s->held[piece].tree, &c);
    if (!st)
        st = wf_tables_read(&s->tables, piece, s->rules->n_groups, b->p, b->n, c);
    if (st)
        wf_ps_store_give(s, piece, c);
    else
        *out = c;
    return st;
}

weft_status wf_ps_store_check(struct wf_ps_store *s, int piece, const struct wf_blob *b)
{
    return wf_tables_check(&s->tables, piece, b->p, b->n);
}

static weft_status add(void *arg, int piece, int64_t t, int level, int shard, const void *payload)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_ps_payload *p = (struct wf_ps_payload *)(uintptr_t)payload;
    struct wf_contribution *c = NULL;
    weft_status st = check_rate(h, piece, t, p->rate, &p->mark);

    if (!st && p->body.n > 0 && h->tables) {
        c = p->given;
        p->given = NULL;
        if (!c)
            st = wf_ps_store_read(s, piece, &p->body, &c);
    } else if (!st && p->body.n > 0) { /* otherwise shards without samples */
        st = take_body(s, piece, p, &c);
    }
    if (st)
        return st;
    note_rate(h, p);
    return wf_tree_put(&h->tree, level, shard >> level, c);
}

static void clear(void *arg, int piece)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];

    if (!h->here)
        return;
    wf_tree_clear(&h->tree);
    s->n_lent -= h->n_lent;
    h->n_lent = 0;
    h->total = NULL;
    h->has_rate = false;
}

int64_t wf_ps_store_lent(const struct wf_ps_store *s)
{
    return s->n_lent;
}

/* What was read is what was given: no worker has taken its memory back before. */
static bool is_kept(const struct wf_held *h)
{
    atomic_thread_fence(memory_order_acquire);
    for (int64_t i = 0; i < h->n_lent; i++)
        if (atomic_load_explicit(h->lent[i].stamp, memory_order_relaxed) != h->lent[i].stamped)
            return false;
    return true;
}

/* Without an optimizer. */
static bool is_aside(enum wf_ps_kind kind)
{
    return wf_ps_replaces(kind) || kind == WF_PS_STILL || kind == WF_PS_MODELS;
}

/* With rows of tables that are set. */
static bool gives_rows(enum wf_ps_kind kind)
{
    return kind == WF_PS_SET || kind == WF_PS_KEEP_BEST;
}

static struct wf_step step_of(const struct wf_held *h)
{
    bool has_rate = !isnan(h->record_rate);

    return (struct wf_step){.iteration = h->record_mark.step + 1,
                            .has_rate = has_rate,
                            .rate = has_rate ? (float)h->record_rate : 0};
}

/* ---- norms ----------------------------------------------------------------------------------- */

static void begin(void *arg, int64_t t)
{
    struct wf_ps_store *s = arg;

    (void)t;
    s->round[0].n = s->round[1].n = 0;
}

static weft_status add_partials(struct wf_ps_store *s, int round, const void *p, int64_t n)
{
    struct wf_round *r = &s->round[round];
    weft_status st = wf_grow(s->ctx, &r->partial, &r->cap, r->n + n + 1, sizeof *r->partial);

    if (st)
        return st;
    if (n > 0)
        memcpy(r->partial + r->n, p, (size_t)n * sizeof *r->partial);
    r->n += n;
    return WEFT_OK;
}

/* Keeps what a round needs of this piece, to be sent. The machine asks for a piece's partials once,
 * wherever they come from: a former primary may have sent them. */
static weft_status keep_partials(struct wf_ps_store *s, int piece, int round)
{
    struct wf_held *h = &s->held[piece];
    int64_t n = h->merge->n_partials;
    weft_status st = wf_grow(s->ctx, &h->partial[round], &h->cap_partial[round], n + 1,
                             sizeof *h->partial[round]);

    if (st)
        return st;
    if (n > 0)
        memcpy(h->partial[round], h->merge->partial, (size_t)n * sizeof *h->partial[round]);
    h->n_partial[round] = n;
    return WEFT_OK;
}

/* Of which step the mean in published memory is, for who reads it there. */
static void say_meant(struct wf_ps_store *s, int piece, int64_t t)
{
    if (s->held[piece].mean != s->held[piece].shown)
        return;
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&s->opts.published.meant[piece], t, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

bool wf_ps_store_shows(const struct wf_ps_store *s, int piece, int64_t t)
{
    const struct wf_held *h = &s->held[piece];

    return h->here && h->mean && h->mean == h->shown &&
           atomic_load_explicit(&s->opts.published.meant[piece], memory_order_relaxed) == t;
}

/* The record of a step of few shards, in one pass; or without a record nothing yet: then
 * contributions become the next version in one pass. */
static weft_status reduce_lazy(struct wf_ps_store *s, int piece, int64_t t)
{
    struct wf_held *h = &s->held[piece];
    bool records = s->n_rounds || !s->opts.records || s->opts.records(s->opts.records_arg, piece);
    weft_status st = WEFT_OK;

    h->total = wf_tree_total(&h->tree);
    if (!h->total)
        return wf_err(WEFT_EPEER, "step %lld has no samples", (long long)t);
    if (!records)
        return WEFT_OK;
    st = wf_held_take_mean(s, piece);
    if (st)
        return st;
    say_meant(s, piece, -1);
    st = wf_merge_pass(h->merge, &h->tree, h->total, h->params[h->now], h->mean->dense, NULL, NULL);
    if (st)
        return st;
    memcpy(h->mean->sums, h->total->sums, (size_t)h->rules.n_sums * sizeof(double));
    h->total = NULL;
    say_meant(s, piece, t);
    return WEFT_OK;
}

static weft_status reduce_now(struct wf_ps_store *s, int piece, int64_t t)
{
    struct wf_held *h = &s->held[piece];
    weft_status st;

    (void)s;
    wf_held_give_mean(h);
    st = wf_tree_sum(&h->tree, &h->mean);
    if (st)
        return st;
    if (!h->mean)
        return wf_err(WEFT_EPEER, "step %lld has no samples", (long long)t);
    return h->rules.n_dense || h->tables ? wf_merge_mean(h->merge, h->mean, h->params[h->now])
                                         : WEFT_OK;
}

/* A step without gradients: what the first shard gave, or copies of models, or sums alone, or
 * nothing. */
static weft_status reduce_aside(struct wf_ps_store *s, int piece)
{
    struct wf_held *h = &s->held[piece];
    weft_status st;

    wf_held_give_mean(h);
    h->merge->n_partials = 0; /* it has no norms */
    st = wf_tree_sum(&h->tree, &h->mean);
    if (!st && !h->mean && h->tables)
        st = wf_tree_take(&h->tree, &h->mean);
    if (!st && h->tables && !gives_rows(h->record_mark.kind))
        wf_contribution_clear(h->mean);
    return st || s->n_rounds == 0 ? st : keep_partials(s, piece, 0);
}

static weft_status reduce(void *arg, int piece, int64_t t, bool *gone)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_step step;
    weft_status st;

    h->record_rate = h->rate;
    h->record_mark = h->mark;
    h->recorded = false;
    h->total = NULL;
    step = step_of(h);
    if (is_aside(h->mark.kind) || (s->opts.leased && h->mark.kind == WF_PS_SKIPPED)) {
        st = reduce_aside(s, piece);
        *gone = !st && !is_kept(h);
        return st;
    }
    st = h->tree.lazy ? reduce_lazy(s, piece, t) : reduce_now(s, piece, t);
    *gone = !st && !is_kept(h);
    if (st || *gone || s->n_rounds == 0 || s->opts.leased)
        return st;
    st = wf_merge_norms(h->merge, h->mean, &step);
    return st ? st : keep_partials(s, piece, 0);
}

static weft_status partial(void *arg, int piece, int64_t t, int round, const void *payload)
{
    struct wf_ps_store *s = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;

    (void)t;
    if (b->n % (int64_t)sizeof(struct wf_partial) != 0)
        return wf_held_wrong_size(piece, b->n, (int64_t)sizeof(struct wf_partial));
    return add_partials(s, round, b->p, b->n / (int64_t)sizeof(struct wf_partial));
}

static weft_status own_partial(void *arg, int piece, int64_t t, int round)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];

    (void)t;
    return add_partials(s, round, h->partial[round], h->n_partial[round]);
}

static weft_status decide(void *arg, int64_t t, int round)
{
    struct wf_ps_store *s = arg;
    struct wf_round *r = &s->round[round];
    weft_status st;
    int64_t n;

    (void)t;
    st = wf_decision_size(s, &s->decision, round ? r->n : 0);
    if (st)
        return st;
    if (round)
        memcpy(wf_decision_sums(s, &s->decision, &n), r->partial,
               (size_t)r->n * sizeof *r->partial);
    else
        wf_merge_scales(s->rules, s->first_block, r->n, r->partial,
                        wf_decision_scale(&s->decision));
    return WEFT_OK;
}

/* LAMB: the slots of the next version, and the norms of its updates. */
static weft_status half(void *arg, int piece, int64_t t)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    const struct wf_decision *d = h->recorded ? &h->record : &s->decision;
    struct wf_step step = step_of(h);
    size_t bytes = (size_t)h->rules.n_dense * sizeof(float);
    struct wf_version v = {.from = h->params[h->now],
                           .params = h->params[!h->now],
                           .streams = s->rules->n_dense > STREAMED};
    weft_status st;

    if (h->tables || is_aside(h->record_mark.kind)) {
        /* no norm is taken over a table's updates: they are made all at once */
        h->merge->n_partials = 0;
        return s->n_rounds < 2 ? WEFT_OK : keep_partials(s, piece, 1);
    }
    wf_held_begin(s, piece, t + 1);
    for (int k = 0; k < s->n_slots; k++) {
        v.slot[k] = s->n_rounds == 2 ? h->next_slot[k] : h->slot[k];
        if (s->n_rounds == 2)
            memcpy(v.slot[k], h->slot[k], bytes);
    }
    st = wf_merge_update(h->merge, h->mean, &step, wf_decision_scale(d), &v);
    h->halved = t;
    return st || s->n_rounds < 2 ? st : keep_partials(s, piece, 1);
}

static weft_status take_decision(void *arg, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->decision;

    (void)t;
    return wf_decision_copy(s, &s->decision, b->p, b->n);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* At a copy: the mean of the gradients, the sums, and the decision. */
static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_ps_payload *p = (struct wf_ps_payload *)(uintptr_t)payload;
    int64_t dense = h->rules.n_dense * (int64_t)sizeof(float);
    int64_t bytes = dense + h->rules.n_sums * (int64_t)sizeof(double);
    bool empty = p->body.n == 0 &&
                 (p->mark.kind == WF_PS_STILL || (s->opts.leased && p->mark.kind == WF_PS_SKIPPED));
    weft_status st = WEFT_OK;

    (void)t;
    if (!h->tables && !empty && p->body.n != bytes)
        return wf_held_wrong_size(piece, p->body.n, bytes);
    if (h->mean == h->shown || ((empty || p->given) && !h->tables))
        wf_held_give_mean(h);
    if (p->given && !h->tables) {
        h->mean = p->given;
        p->given = NULL;
    } else if (!h->mean && (!empty || h->tables))
        st = wf_tree_take(&h->tree, &h->mean);
    if (!st)
        st = wf_decision_copy(s, &h->record, p->decision.p, p->decision.n);
    if (!st && h->tables) {
        wf_contribution_clear(h->mean);
        st = wf_tables_read(&s->tables, piece, 1, p->body.p, p->body.n, h->mean);
    }
    if (st)
        return st;
    if (!h->tables && !empty && p->body.p) {
        memcpy(h->mean->dense, p->body.p, (size_t)dense);
        memcpy(h->mean->sums, p->body.p + dense, (size_t)(bytes - dense));
    }
    h->record_rate = p->rate;
    h->record_mark = p->mark;
    h->recorded = true;
    h->halved = -1;
    return WEFT_OK;
}

/* What a piece is at the next version besides parameters. */
static void next_sums(const struct wf_ps_store *s, const struct wf_held *h, int piece)
{
    const double *sums = h->mean ? h->mean->sums : NULL;
    double *to = h->sums[!h->now];

    if (s->opts.cut->piece[piece].state)
        wf_ps_next_kept(&s->opts, &h->record_mark, sums, h->sums[h->now], to);
    else if (sums)
        memcpy(to, sums, (size_t)h->rules.n_sums * sizeof *to);
}

/* A step without an optimizer: the next version is what this one is, or what was given. */
static weft_status apply_aside(struct wf_ps_store *s, int piece, int block, int64_t t)
{
    struct wf_held *h = &s->held[piece];
    struct wf_step step = step_of(h);
    struct wf_version v = {.params = h->params[!h->now]};
    bool models = h->record_mark.kind == WF_PS_MODELS;
    bool sets = models || wf_ps_replaces(h->record_mark.kind);

    if (h->tables && h->record_mark.kind == WF_PS_SET)
        return wf_tables_replace(h->tables, h->mean, block, t, h->record_mark.step);
    if (h->tables && h->record_mark.kind == WF_PS_KEEP_BEST)
        return wf_tables_keep(h->tables, h->mean, block, t, h->record_mark.step);
    if (h->tables && h->record_mark.kind == WF_PS_TAKE_BEST)
        return wf_tables_restore(h->tables, block, t, h->record_mark.step);
    if (h->tables) {
        wf_tables_pass(h->tables, block, t);
        return WEFT_OK;
    }
    if (sets && h->rules.n_dense && !h->mean)
        return wf_err(WEFT_EPEER, "piece %d, version %lld: nothing was given to replace it", piece,
                      (long long)t);
    wf_held_begin(s, piece, t + 1);
    if (h->rules.n_dense)
        memcpy(h->params[!h->now], sets ? h->mean->dense : h->params[h->now],
               (size_t)h->rules.n_dense * sizeof(float));
    if (models && h->rules.n_dense)
        wf_merge_constrain(h->merge, &step, &v);
    next_sums(s, h, piece);
    h->now = !h->now;
    h->halved = -1;
    return WEFT_OK;
}

/* Contributions become the next version: there is no mean, and no record. */
static weft_status apply_pass(struct wf_ps_store *s, int piece, int64_t t)
{
    struct wf_held *h = &s->held[piece];
    struct wf_step step = step_of(h);
    struct wf_version v = {.from = h->params[h->now],
                           .params = h->params[!h->now],
                           .streams = s->rules->n_dense > STREAMED};
    weft_status st;

    memcpy(v.slot, h->slot, sizeof v.slot);
    wf_held_begin(s, piece, t + 1);
    st = wf_merge_pass(h->merge, &h->tree, h->total, v.from, NULL, &step, &v);
    if (st)
        return st;
    if (!is_kept(h) && s->opts.leased) { /* see closing.c: no one will have this version */
        h->total = NULL;
        h->record_mark.kind = WF_PS_SKIPPED;
        return apply_aside(s, piece, -1, t);
    }
    if (!is_kept(h)) /* a worker that is alive keeps them until it has the next version */
        return wf_err(WEFT_EPEER,
                      "piece %d, step %lld: a worker changed its gradients while they "
                      "were added",
                      piece, (long long)t);
    wf_merge_finish(h->merge, &step, 0, NULL, wf_decision_scale(&h->record), &v);
    memcpy(h->sums[!h->now], h->total->sums, (size_t)h->rules.n_sums * sizeof(double));
    h->now = !h->now;
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_step step = step_of(h);
    struct wf_version v = {.params = h->params[!h->now]};
    struct wf_partial *sums;
    weft_status st = WEFT_OK;
    int64_t n;

    if (block > 0 && !h->tables) /* parameters are sent whole, as the first block */
        return WEFT_OK;
    if (h->total && h->record_mark.kind == WF_PS_UPDATE)
        return apply_pass(s, piece, t);
    if (!h->recorded)
        st = wf_decision_copy(s, &h->record, s->decision.mem, s->decision.n);
    if (h->record_mark.kind != WF_PS_UPDATE)
        return st ? st : apply_aside(s, piece, block, t);
    if (h->tables)
        return st ? st
                  : wf_tables_apply(h->tables, h->merge, h->mean, &step,
                                    wf_decision_scale(&h->record), block, t);
    if (!st && h->rules.n_dense && h->halved != t)
        st = half(s, piece, t);
    if (st)
        return st;
    for (int k = 0; k < s->n_slots && s->n_rounds == 2; k++) {
        float *was = h->slot[k];

        h->slot[k] = h->next_slot[k];
        h->next_slot[k] = was;
    }
    memcpy(v.slot, h->slot, sizeof v.slot);
    sums = wf_decision_sums(s, &h->record, &n);
    if (s->opts.leased) { /* variables are not cut: this server has all of the second round */
        sums = h->partial[1];
        n = h->n_partial[1];
    }
    if (h->rules.n_dense)
        wf_merge_finish(h->merge, &step, n, sums, wf_decision_scale(&h->record), &v);
    next_sums(s, h, piece);
    h->now = !h->now;
    h->halved = -1;
    return WEFT_OK;
}

void wf_update_data(struct wf_ps_data *data)
{
    data->add = add;
    data->clear = clear;
    data->reduce = reduce;
    data->begin = begin;
    data->partial = partial;
    data->own_partial = own_partial;
    data->decide = decide;
    data->half = half;
    data->decision = take_decision;
    data->record = record;
    data->apply = apply;
}
