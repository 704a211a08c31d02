/* closing.c - leases at a server: what workers push is held until it is closed, and then becomes
 * the next version of its piece.
 *
 * A lease is a step of one contribution. What differs from other steps: it has its own
 * denominators, the worker has taken the norms, the iteration is the number of leases before it,
 * and state comes as what the shard changed.
 *
 * Kept true: the record of a lease says what its piece becomes, whoever applies it, and does not
 * depend on what else is held. */
#include "ps/held.h"

#include <math.h>

static struct wf_pushed *find(struct wf_held *h, int64_t lease, int node)
{
    for (int64_t i = 0; i < h->n_pushed; i++)
        if (h->pushed[i].lease == lease && h->pushed[i].node == node)
            return &h->pushed[i];
    return NULL;
}

/* What it gave is not needed any more. */
static void give_back(struct wf_ps_store *s, struct wf_held *h, struct wf_pushed *p)
{
    if (p->c && p->lent.stamp)
        s->n_lent--;
    wf_tree_give(&h->tree, p->c);
    p->c = NULL;
    p->lent.stamp = NULL;
}

void wf_pushed_drop(struct wf_ps_store *s, struct wf_held *h)
{
    for (int64_t i = 0; i < h->n_pushed; i++) {
        give_back(s, h, &h->pushed[i]);
        wf_decision_free(s->ctx, &h->pushed[i].scale);
    }
    wf_free(s->ctx, h->pushed);
    h->pushed = NULL;
    h->n_pushed = h->cap_pushed = 0;
}

/* ---- what arrives ---------------------------------------------------------------------------- */

int64_t wf_ps_scale_bytes(const struct wf_rules *r)
{
    return (int64_t)sizeof(double) + wf_round_up(r->n_vars * (int64_t)sizeof(float), 8);
}

void wf_ps_scale_write(const struct wf_rules *r, const float *scale, char *to)
{
    memset(to, 0, (size_t)wf_ps_scale_bytes(r)); /* and no sums */
    memcpy(to + sizeof(double), scale, (size_t)r->n_vars * sizeof *scale);
}

static weft_status check_scale(const struct wf_ps_store *s, int piece, const struct wf_blob *b)
{
    double sums = -1;

    if (b->n == 0)
        return WEFT_OK;
    if (b->n >= (int64_t)sizeof sums)
        memcpy(&sums, b->p, sizeof sums);
    if (sums == 0 && b->n == wf_ps_scale_bytes(s->rules))
        return WEFT_OK;
    return wf_err(WEFT_EPEER, "piece %d: a closing record with factors of %lld bytes", piece,
                  (long long)b->n);
}

/* Of a copy, which servers go to by its share, but not beyond. */
static weft_status check_share(const struct wf_ps_store *s, int piece,
                               const struct wf_ps_payload *p)
{
    const struct wf_held *h = &s->held[piece];
    double share;

    if (!s->rules->copies)
        return WEFT_OK;
    memcpy(&share,
           p->given ? (const char *)p->given->sums
                    : p->body.p + p->body.n - h->rules.n_sums * (int64_t)sizeof share,
           sizeof share);
    return share >= 0 && share <= 1
               ? WEFT_OK
               : wf_err(WEFT_EPEER, "piece %d: a lease with a share of %g", piece, share);
}

weft_status wf_ps_store_closes(struct wf_ps_store *s, int piece, struct wf_ps_payload *p,
                               bool closes, bool whole)
{
    const struct wf_held *h = &s->held[piece];
    bool gives = !closes || whole;
    weft_status st = WEFT_OK;

    if (!h->here)
        return WEFT_OK;
    if (p->mark.kind != WF_PS_UPDATE && p->mark.kind != WF_PS_SKIPPED &&
        (p->mark.kind != WF_PS_MODELS || !s->rules->copies))
        return wf_err(WEFT_EPEER, "piece %d: a lease of kind %d", piece, (int)p->mark.kind);
    if (closes)
        st = check_scale(s, piece, &p->decision);
    if (st)
        return st;
    if (p->body.n == 0 && (!gives || p->mark.kind == WF_PS_SKIPPED))
        return WEFT_OK;
    if (!gives || p->body.n == 0)
        return wf_held_wrong_size(piece, p->body.n, gives ? wf_ps_push_bytes(&s->opts, piece) : 0);
    if (h->tables)
        return wf_ps_store_read(s, piece, &p->body, &p->given);
    st = wf_given_check(s, piece, p);
    return st ? st : check_share(s, piece, p);
}

/* The gradient, in memory of the server's or where the worker left it. */
static weft_status take_gradient(struct wf_ps_store *s, int piece, struct wf_pushed *to,
                                 struct wf_ps_payload *p)
{
    struct wf_held *h = &s->held[piece];
    weft_status st;

    give_back(s, h, to);
    if (p->body.n == 0 && !p->given) /* a shard without samples */
        return WEFT_OK;
    if (p->given) {
        to->c = p->given;
        p->given = NULL;
        return WEFT_OK;
    }
    st = h->tables ? wf_ps_store_read(s, piece, &p->body, &to->c) : wf_given_check(s, piece, p);
    if (st || h->tables)
        return st;
    st = p->lent ? wf_tree_lend(&h->tree, p->lent, p->lent_stride, &to->c)
                 : wf_tree_take(&h->tree, &to->c);
    if (st)
        return st;
    if (p->lent) {
        to->lent = (struct wf_lent){p->stamp, p->stamped};
        s->n_lent++;
    }
    return wf_given_fill(to->c, &p->body);
}

static weft_status hold(void *arg, int piece, int64_t lease, int node, const struct wf_message *m)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_ps_payload *p = (struct wf_ps_payload *)(uintptr_t)m->payload;
    struct wf_pushed *to = find(h, lease, node);
    weft_status st = WEFT_OK;

    if (!to) {
        st = wf_grow(s->ctx, &h->pushed, &h->cap_pushed, h->n_pushed + 1, sizeof *h->pushed);
        if (st)
            return st;
        to = &h->pushed[h->n_pushed++];
        *to = (struct wf_pushed){.lease = lease, .node = node};
    }
    if (m->type == WF_MSG_PUSH || m->whole)
        st = take_gradient(s, piece, to, p);
    if (st || m->type == WF_MSG_PUSH)
        return st;
    to->rate = p->rate;
    to->mark = p->mark;
    to->scale.n = 0;
    return p->decision.n ? wf_decision_copy(s, &to->scale, p->decision.p, p->decision.n) : WEFT_OK;
}

static void release(void *arg, int piece, int64_t lease, int node)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_pushed *p = find(h, lease, node);
    struct wf_ps_data data;

    if (!p)
        return;
    if (p->is_closing) { /* it is applied: what was lent can be given back */
        wf_update_data(&data);
        data.clear(s, piece);
    }
    give_back(s, h, p);
    wf_decision_free(s->ctx, &p->scale);
    *p = h->pushed[--h->n_pushed];
}

/* ---- the next version ------------------------------------------------------------------------ */

/* State comes as what the shard has changed, or as that of a copy; the record says what it becomes,
 * as that of as many samples. */
static void add_state(const struct wf_ps_store *s, const struct wf_held *h,
                      struct wf_contribution *c)
{
    int64_t samples = wf_rules_samples(s->rules);
    const double *before = h->sums[h->now];
    double n = c->sums[samples], share = c->sums[0];

    for (int64_t i = samples + 1; i < s->rules->n_sums; i++) {
        double was = before[i] / before[samples];

        c->sums[i] =
            s->rules->copies ? (1 - share) * n * was + share * c->sums[i] : n * (was + c->sums[i]);
    }
}

/* Values go to those of a copy by its share: never further, so that what cannot be negative does
 * not become so, however old the version is that the copy began with. With a share of 1 models are
 * what was given, to the bit. Of an update it is what is subtracted. */
static weft_status take_copies(const struct wf_held *h, const struct wf_cut_piece *p,
                               enum wf_ps_kind kind, struct wf_contribution *c)
{
    float share = (float)c->sums[0];
    weft_status st = c->lent ? wf_contribution_own(c) : WEFT_OK;

    for (int i = 0; i < p->n_runs && !st; i++) {
        const float *now = h->params[h->now] + p->run[i].at;
        float *x = c->dense + p->run[i].at;

        for (int64_t k = 0; k < p->run[i].n && kind == WF_PS_MODELS; k++)
            x[k] = (1 - share) * now[k] + share * x[k];
        if (kind != WF_PS_MODELS && h->rules.var[p->run[i].var].copied)
            for (int64_t k = 0; k < p->run[i].n; k++)
                x[k] = share * (now[k] - x[k]);
    }
    return st;
}

/* Totals begin with the first lease after the control record that begins an epoch. */
static bool is_fresh(const struct wf_ps_store *s, const struct wf_held *h, int piece,
                     const struct wf_ps_mark *mark)
{
    const double *marks = h->sums[h->now] + wf_ps_n_sums(&s->opts, piece);

    return mark->fresh && (double)mark->control > marks[WF_PS_CONTROL];
}

/* It becomes the only contribution to version t. */
static weft_status put(struct wf_ps_store *s, struct wf_held *h, int piece, int64_t t,
                       struct wf_pushed *p)
{
    weft_status st = WEFT_OK;

    h->rate = p->rate;
    h->mark = p->mark;
    h->mark.step = t;
    h->has_rate = p->is_closing = true;
    if (s->opts.cut->piece[piece].state && s->opts.logs)
        h->mark.fresh = is_fresh(s, h, piece, &p->mark);
    if (!p->c)
        return WEFT_OK;
    if (s->rules->copies && p->mark.kind != WF_PS_SKIPPED)
        st = take_copies(h, &s->opts.cut->piece[piece], p->mark.kind, p->c);
    if (st)
        return st;
    if (s->opts.cut->piece[piece].state)
        add_state(s, h, p->c);
    if (p->lent.stamp) {
        st = wf_grow(s->ctx, &h->lent, &h->cap_lent, h->n_lent + 1, sizeof *h->lent);
        if (!st)
            h->lent[h->n_lent++] = p->lent;
    }
    if (st)
        return st;
    st = wf_tree_put(&h->tree, 0, 0, p->c);
    p->c = NULL;
    p->lent.stamp = NULL;
    return st;
}

static weft_status close(void *arg, int piece, int64_t t, int64_t lease, int node)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    struct wf_pushed *p = find(h, lease, node);
    struct wf_ps_data data;
    bool gone = false;
    weft_status st;

    if (!p)
        return wf_err(WEFT_EBUG, "piece %d: lease %lld of node %d is not held", piece,
                      (long long)lease, node);
    wf_update_data(&data);
    data.clear(s, piece);
    st = put(s, h, piece, t, p);
    if (!st)
        st = data.reduce(s, piece, t, &gone);
    if (!st &&
        gone) { /* it was acknowledged: in an epoch that does not have this server any more */
        data.clear(s, piece);
        h->mark.kind = WF_PS_SKIPPED;
        gone = false;
        st = data.reduce(s, piece, t, &gone);
    }
    if (!st)
        st = p->scale.n ? wf_decision_copy(s, &h->record, p->scale.mem, p->scale.n)
                        : wf_decision_first(s, &h->record);
    h->recorded = true;
    h->halved = -1;
    return st;
}

void wf_closing_data(struct wf_ps_data *data)
{
    data->hold = hold;
    data->release = release;
    data->close = close;
}
