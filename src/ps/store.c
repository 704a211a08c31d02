/* store.c - the vectors of a server's pieces.
 *
 * A piece has two versions of its parameters, the present one and the previous one; one of each
 * optimizer slot; the tree of contributions; and the record of a step: the mean of the gradients
 * and the decision of the norms, kept until the next step makes its own. */
#include "ps/store.h"

#include <stdlib.h>

/* What norms over all pieces gave, as it is sent: n_sums (f64), factors of clipping by variable
 * (f32, padded to 8 bytes), and the sums of LAMB's second round. */
struct decision {
    char *mem;
    int64_t n, cap;
};

struct held {
    bool here;
    struct wf_rules rules; /* those of the job, for the vectors of this piece */
    struct wf_merge *merge;
    struct wf_tree tree;
    float *params[2]; /* the present version is params[now] */
    double *sums[2];  /* of the last piece: what was added up in the step before */
    float *slot[WF_OPTIM_MAX_SLOTS], *next_slot[WF_OPTIM_MAX_SLOTS]; /* next: of LAMB */
    int now;
    struct wf_contribution *mean;
    struct decision record;        /* that goes with the mean, once the step is applied */
    bool recorded;                 /* it was sent by the primary */
    int64_t halved;                /* the step whose first half is in the next version; -1: none */
    struct wf_partial *partial[2]; /* what a round needs of this piece */
    int64_t n_partial[2], cap_partial[2];
};

/* Partials of all pieces, as they arrive. */
struct round {
    struct wf_partial *partial;
    int64_t n, cap;
};

struct wf_ps_store {
    weft_ctx *ctx;
    struct wf_ps_store_opts opts;
    const struct wf_rules *rules;
    int n_slots, n_rounds;
    float slot_init[WF_OPTIM_MAX_SLOTS];
    struct held *held;
    struct round round[2];
    struct decision decision; /* of the current step, or the last */
    int64_t *first_block;     /* by variable */
    bool has_rate;
    float rate;
};

int wf_ps_rounds(const struct wf_rules *r)
{
    return strcmp(r->optim->name, "lamb") == 0 ? 2 : wf_rules_clip(r) != WF_CLIP_NONE;
}

static int64_t n_sums(const struct wf_ps_store_opts *o, int piece)
{
    return o->cut->piece[piece].state ? o->rules->n_sums + o->n_logs : o->rules->n_groups + 1;
}

int64_t wf_ps_n_sums(const struct wf_ps_store_opts *o, int piece)
{
    return n_sums(o, piece);
}

int64_t wf_ps_push_bytes(const struct wf_ps_store_opts *o, int piece)
{
    int64_t dense = o->rules->n_groups * o->cut->piece[piece].count * (int64_t)sizeof(float);

    return dense + n_sums(o, piece) * (int64_t)sizeof(double);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int64_t scale_bytes(const struct wf_ps_store *s)
{
    return wf_round_up(s->rules->n_vars * (int64_t)sizeof(float), 8);
}

static float *scale_of(const struct decision *d)
{
    return (float *)(void *)(d->mem + sizeof(double));
}

static struct wf_partial *sums_of(const struct wf_ps_store *s, const struct decision *d, int64_t *n)
{
    double count;

    memcpy(&count, d->mem, sizeof count);
    *n = (int64_t)count;
    return (struct wf_partial *)(void *)(d->mem + sizeof count + scale_bytes(s));
}

/* Room for n sums; the factors stay. */
static weft_status size_decision(struct wf_ps_store *s, struct decision *d, int64_t n)
{
    double count = (double)n;
    int64_t bytes = (int64_t)sizeof count + scale_bytes(s) + n * (int64_t)sizeof(struct wf_partial);
    weft_status st = wf_grow(s->ctx, &d->mem, &d->cap, bytes, 1);

    if (st)
        return st;
    memcpy(d->mem, &count, sizeof count);
    d->n = bytes;
    return WEFT_OK;
}

static weft_status first_decision(struct wf_ps_store *s, struct decision *d)
{
    weft_status st = size_decision(s, d, 0);

    for (int i = 0; i < s->rules->n_vars && !st; i++)
        scale_of(d)[i] = 1;
    return st;
}

static weft_status copy_decision(struct wf_ps_store *s, struct decision *d, const char *p,
                                 int64_t n)
{
    int64_t fixed = (int64_t)sizeof(double) + scale_bytes(s);
    double count = -1;
    weft_status st;

    if (n >= fixed)
        memcpy(&count, p, sizeof count);
    if (!(count >= 0 && count < 1e12) ||
        n != fixed + (int64_t)count * (int64_t)sizeof(struct wf_partial))
        return wf_err(WEFT_EPEER, "a decision of %lld bytes is not valid", (long long)n);
    st = wf_grow(s->ctx, &d->mem, &d->cap, n, 1);
    if (st)
        return st;
    memcpy(d->mem, p, (size_t)n);
    d->n = n;
    return WEFT_OK;
}

static void free_decision(weft_ctx *ctx, struct decision *d)
{
    wf_free(ctx, d->mem);
    *d = (struct decision){.mem = NULL};
}

static void free_held(struct wf_ps_store *s, struct held *h)
{
    weft_ctx *ctx = s->ctx;

    if (!h->here)
        return;
    wf_tree_give(&h->tree, h->mean);
    wf_tree_free(&h->tree);
    wf_merge_free(h->merge);
    for (int i = 0; i < 2; i++) {
        wf_free(ctx, h->params[i]);
        wf_free(ctx, h->sums[i]);
        wf_free(ctx, h->partial[i]);
    }
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++) {
        wf_free(ctx, h->slot[k]);
        wf_free(ctx, h->next_slot[k]);
    }
    free_decision(ctx, &h->record);
    *h = (struct held){.here = false};
}

weft_status wf_ps_store_new(weft_ctx *ctx, const struct wf_ps_store_opts *o,
                            struct wf_ps_store **out)
{
    struct wf_ps_store *s = wf_alloc(ctx, sizeof *s);
    int64_t at = 0;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "server");
    *s = (struct wf_ps_store){.ctx = ctx, .opts = *o, .rules = o->rules};
    s->n_slots = wf_optim_slots(o->rules->optim, o->rules->attrs, NULL, s->slot_init);
    s->n_rounds = wf_ps_rounds(o->rules);
    s->held = wf_alloc_n(ctx, o->cut->n_pieces + 1, sizeof *s->held);
    s->first_block = wf_alloc_n(ctx, o->rules->n_vars + 1, sizeof *s->first_block);
    if (!s->held || !s->first_block || first_decision(s, &s->decision)) {
        wf_ps_store_free(s);
        return wf_err_nomem(ctx, sizeof *s->held, "server");
    }
    for (int i = 0; i < o->rules->n_vars; i++) {
        s->first_block[i] = at;
        at += wf_norm_blocks(o->rules->var[i].count);
    }
    s->first_block[o->rules->n_vars] = at;
    *out = s;
    return WEFT_OK;
}

void wf_ps_store_free(struct wf_ps_store *s)
{
    if (!s)
        return;
    for (int i = 0; s->held && i < s->opts.cut->n_pieces; i++)
        free_held(s, &s->held[i]);
    for (int r = 0; r < 2; r++)
        wf_free(s->ctx, s->round[r].partial);
    free_decision(s->ctx, &s->decision);
    wf_free(s->ctx, s->first_block);
    wf_free(s->ctx, s->held);
    wf_free(s->ctx, s);
}

void wf_ps_store_rate(struct wf_ps_store *s, float rate)
{
    s->has_rate = true;
    s->rate = rate;
}

static weft_status no_memory(struct wf_ps_store *s, int piece, int64_t count)
{
    weft_status st = wf_err_nomem(s->ctx, (size_t)count * sizeof(float), "piece of the parameters");

    free_held(s, &s->held[piece]);
    return st;
}

/* Memory for a piece. */
static weft_status hold(struct wf_ps_store *s, int piece)
{
    const struct wf_cut_piece *c = &s->opts.cut->piece[piece];
    struct held *h = &s->held[piece];
    int64_t n = c->count;
    bool ok = true;
    weft_status st;

    if (h->here)
        return WEFT_OK;
    h->here = true;
    h->halved = -1;
    h->rules = *s->rules;
    h->rules.n_dense = n;
    h->rules.n_sums = n_sums(&s->opts, piece);
    for (int i = 0; i < 2 && ok; i++) {
        h->params[i] = wf_alloc_n(s->ctx, n + 1, sizeof *h->params[i]);
        h->sums[i] = wf_alloc_n(s->ctx, h->rules.n_sums + 1, sizeof *h->sums[i]);
        ok = h->params[i] && h->sums[i];
    }
    for (int k = 0; k < s->n_slots && ok; k++) {
        h->slot[k] = wf_alloc_n(s->ctx, n + 1, sizeof *h->slot[k]);
        if (s->n_rounds == 2)
            h->next_slot[k] = wf_alloc_n(s->ctx, n + 1, sizeof *h->next_slot[k]);
        ok = h->slot[k] && (s->n_rounds < 2 || h->next_slot[k]);
    }
    wf_tree_init(&h->tree, s->ctx, s->ctx->pool, &h->rules);
    if (!ok || first_decision(s, &h->record))
        return no_memory(s, piece, n);
    st = wf_merge_new(s->ctx, s->ctx->pool, &h->rules, c->n_runs,
                      c->n_runs ? c->run : (struct wf_piece[1]){{0}}, &h->merge);
    if (st)
        free_held(s, h);
    return st;
}

/* ---- contributions --------------------------------------------------------------------------- */

static weft_status wrong_size(int piece, int64_t n, int64_t expected)
{
    return wf_err(WEFT_EPEER, "piece %d: a message of %lld bytes; %lld were expected", piece,
                  (long long)n, (long long)expected);
}

static weft_status add(void *arg, int piece, int64_t t, int shard, const void *payload)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;
    int64_t dense = h->rules.n_groups * h->rules.n_dense * (int64_t)sizeof(float);
    struct wf_contribution *c;
    weft_status st;

    (void)t;
    if (b->n == 0) /* a shard without samples */
        return wf_tree_put(&h->tree, 0, shard, NULL);
    if (b->n != wf_ps_push_bytes(&s->opts, piece))
        return wrong_size(piece, b->n, wf_ps_push_bytes(&s->opts, piece));
    st = wf_tree_take(&h->tree, &c);
    if (st)
        return st;
    memcpy(c->dense, b->p, (size_t)dense);
    memcpy(c->sums, b->p + dense, (size_t)h->rules.n_sums * sizeof *c->sums);
    return wf_tree_put(&h->tree, 0, shard, c);
}

static void clear(void *arg, int piece)
{
    struct held *h = &((struct wf_ps_store *)arg)->held[piece];

    if (h->here)
        wf_tree_clear(&h->tree);
}

static struct wf_step step_of(const struct wf_ps_store *s, int64_t t)
{
    return (struct wf_step){.iteration = t + 1, .has_rate = s->has_rate, .rate = s->rate};
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
    struct round *r = &s->round[round];
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
    struct held *h = &s->held[piece];
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

static weft_status reduce(void *arg, int piece, int64_t t)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    struct wf_step step = step_of(s, t);
    weft_status st;

    wf_tree_give(&h->tree, h->mean);
    h->mean = NULL;
    h->recorded = false;
    st = wf_tree_sum(&h->tree, &h->mean);
    if (st)
        return st;
    if (!h->mean)
        return wf_err(WEFT_EPEER, "step %lld has no samples", (long long)t);
    if (h->rules.n_dense)
        st = wf_merge_mean(h->merge, h->mean, h->params[h->now]);
    if (st || s->n_rounds == 0)
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
        return wrong_size(piece, b->n, (int64_t)sizeof(struct wf_partial));
    return add_partials(s, round, b->p, b->n / (int64_t)sizeof(struct wf_partial));
}

static weft_status own_partial(void *arg, int piece, int64_t t, int round)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];

    (void)t;
    return add_partials(s, round, h->partial[round], h->n_partial[round]);
}

static weft_status decide(void *arg, int64_t t, int round)
{
    struct wf_ps_store *s = arg;
    struct round *r = &s->round[round];
    weft_status st;
    int64_t n;

    (void)t;
    st = size_decision(s, &s->decision, round ? r->n : 0);
    if (st)
        return st;
    if (round)
        memcpy(sums_of(s, &s->decision, &n), r->partial, (size_t)r->n * sizeof *r->partial);
    else
        wf_merge_scales(s->rules, s->first_block, r->n, r->partial, scale_of(&s->decision));
    return WEFT_OK;
}

/* LAMB: the slots of the next version, and the norms of its updates. */
static weft_status half(void *arg, int piece, int64_t t)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    const struct decision *d = h->recorded ? &h->record : &s->decision;
    struct wf_step step = step_of(s, t);
    size_t bytes = (size_t)h->rules.n_dense * sizeof(float);
    struct wf_version v = {.params = h->params[!h->now]};
    weft_status st;

    memcpy(v.params, h->params[h->now], bytes);
    for (int k = 0; k < s->n_slots; k++) {
        v.slot[k] = s->n_rounds == 2 ? h->next_slot[k] : h->slot[k];
        if (s->n_rounds == 2)
            memcpy(v.slot[k], h->slot[k], bytes);
    }
    st = wf_merge_update(h->merge, h->mean, &step, scale_of(d), &v);
    h->halved = t;
    return st || s->n_rounds < 2 ? st : keep_partials(s, piece, 1);
}

static weft_status take_decision(void *arg, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->decision;

    (void)t;
    return copy_decision(s, &s->decision, b->p, b->n);
}

/* ---- updates --------------------------------------------------------------------------------- */

/* At a copy: the mean of the gradients, the sums, and the decision. */
static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    const struct wf_ps_payload *p = payload;
    int64_t dense = h->rules.n_dense * (int64_t)sizeof(float);
    int64_t bytes = dense + h->rules.n_sums * (int64_t)sizeof(double);
    weft_status st = WEFT_OK;

    (void)t;
    if (p->body.n != bytes)
        return wrong_size(piece, p->body.n, bytes);
    if (!h->mean)
        st = wf_tree_take(&h->tree, &h->mean);
    if (!st)
        st = copy_decision(s, &h->record, p->decision.p, p->decision.n);
    if (st)
        return st;
    memcpy(h->mean->dense, p->body.p, (size_t)dense);
    memcpy(h->mean->sums, p->body.p + dense, (size_t)(bytes - dense));
    h->recorded = true;
    h->halved = -1;
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    struct wf_step step = step_of(s, t);
    struct wf_version v = {.params = h->params[!h->now]};
    struct wf_partial *sums;
    weft_status st = WEFT_OK;
    int64_t n;

    (void)block; /* a piece is sent whole */
    if (!h->recorded)
        st = copy_decision(s, &h->record, s->decision.mem, s->decision.n);
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
    sums = sums_of(s, &h->record, &n);
    if (h->rules.n_dense)
        wf_merge_finish(h->merge, &step, n, sums, scale_of(&h->record), &v);
    memcpy(h->sums[!h->now], h->mean->sums, (size_t)h->rules.n_sums * sizeof(double));
    h->now = !h->now;
    h->halved = -1;
    return WEFT_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Both versions of the parameters and of the sums, then the slots. */
static int64_t fill_bytes(const struct wf_ps_store *s, const struct held *h)
{
    return (2 + s->n_slots) * h->rules.n_dense * (int64_t)sizeof(float) +
           2 * h->rules.n_sums * (int64_t)sizeof(double);
}

static weft_status fill(void *arg, int piece, int block, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;
    weft_status st = hold(s, piece);
    const char *p = b->p;

    (void)block;
    (void)t;
    if (st)
        return st;
    if (b->n != fill_bytes(s, h))
        return wrong_size(piece, b->n, fill_bytes(s, h));
    for (int i = 0; i < 2; i++) {
        int64_t n = h->rules.n_sums * (int64_t)sizeof(double);

        memcpy(h->sums[i ? !h->now : h->now], p, (size_t)n);
        p += n;
    }
    for (int i = 0; i < 2 + s->n_slots; i++) {
        int64_t n = h->rules.n_dense * (int64_t)sizeof(float);

        memcpy(i == 0   ? h->params[h->now]
               : i == 1 ? h->params[!h->now]
                        : h->slot[i - 2],
               p, (size_t)n);
        p += n;
    }
    return WEFT_OK;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    struct wf_ps_store *s = arg;
    struct held *h = &s->held[piece];
    weft_status st;

    free_held(s, h);
    st = hold(s, piece);
    for (int k = 0; k < s->n_slots && !st; k++)
        for (int64_t i = 0; i < h->rules.n_dense; i++)
            h->slot[k][i] = s->slot_init[k];
    return st ? st
              : s->opts.load(s->opts.load_arg, piece, t, h->params[h->now], h->slot,
                             h->sums[h->now]);
}

static void drop(void *arg, int piece)
{
    struct wf_ps_store *s = arg;

    free_held(s, &s->held[piece]);
}

struct wf_ps_data wf_ps_store_data(struct wf_ps_store *s)
{
    return (struct wf_ps_data){.arg = s,
                               .add = add,
                               .clear = clear,
                               .reduce = reduce,
                               .begin = begin,
                               .partial = partial,
                               .own_partial = own_partial,
                               .decide = decide,
                               .half = half,
                               .decision = take_decision,
                               .record = record,
                               .apply = apply,
                               .fill = fill,
                               .load = load,
                               .drop = drop};
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void put(struct wf_ps_bytes *out, const void *p, int64_t n)
{
    if (n > 0)
        out->body[out->n_body++] = (struct wf_part){(void *)(uintptr_t)p, n};
}

void wf_ps_bytes(struct wf_ps_store *s, const struct wf_message *m, int64_t version,
                 struct wf_ps_bytes *out)
{
    struct held *h = &s->held[m->piece];
    int64_t dense = h->rules.n_dense * (int64_t)sizeof(float);
    int64_t sums = h->rules.n_sums * (int64_t)sizeof(double);
    int which = m->t == version ? h->now : !h->now;
    /* of the step under way, or of the last one */
    const struct decision *d =
        m->type == WF_MSG_RECORD && m->t < version ? &h->record : &s->decision;

    out->n_body = 0;
    out->decision = (struct wf_part){d->mem, d->n};
    switch (m->type) {
    case WF_MSG_VERSION:
        put(out, h->params[which], dense);
        put(out, h->sums[which], s->opts.cut->piece[m->piece].state ? sums : 0);
        break;
    case WF_MSG_PARTIAL:
        put(out, h->partial[m->round], h->n_partial[m->round] * (int64_t)sizeof(struct wf_partial));
        break;
    case WF_MSG_RECORD:
        put(out, h->mean->dense, dense);
        put(out, h->mean->sums, sums);
        break;
    case WF_MSG_FILL:
        put(out, h->sums[h->now], sums);
        put(out, h->sums[!h->now], sums);
        put(out, h->params[h->now], dense);
        put(out, h->params[!h->now], dense);
        for (int k = 0; k < s->n_slots; k++)
            put(out, h->slot[k], dense);
        break;
    default: break;
    }
}
