/* held.c - the memory of a server's pieces: made when the server gets a piece, and freed when
 * nothing of it is being sent any more. */
#include "ps/held.h"

#include <math.h>
#include <sched.h>

/* ---- decisions ------------------------------------------------------------------------------- */

static int64_t scale_bytes(const struct wf_ps_store *s)
{
    return wf_round_up(s->rules->n_vars * (int64_t)sizeof(float), 8);
}

float *wf_decision_scale(const struct wf_decision *d)
{
    return (float *)(void *)(d->mem + sizeof(double));
}

struct wf_partial *wf_decision_sums(const struct wf_ps_store *s, const struct wf_decision *d,
                                    int64_t *n)
{
    double count;

    memcpy(&count, d->mem, sizeof count);
    *n = (int64_t)count;
    return (struct wf_partial *)(void *)(d->mem + sizeof count + scale_bytes(s));
}

weft_status wf_decision_size(struct wf_ps_store *s, struct wf_decision *d, int64_t n)
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

weft_status wf_decision_first(struct wf_ps_store *s, struct wf_decision *d)
{
    weft_status st = wf_decision_size(s, d, 0);

    for (int i = 0; i < s->rules->n_vars && !st; i++)
        wf_decision_scale(d)[i] = 1;
    return st;
}

weft_status wf_decision_copy(struct wf_ps_store *s, struct wf_decision *d, const char *p, int64_t n)
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

void wf_decision_free(weft_ctx *ctx, struct wf_decision *d)
{
    wf_free(ctx, d->mem);
    *d = (struct wf_decision){.mem = NULL};
}

/* ---- pieces ---------------------------------------------------------------------------------- */

void wf_ps_store_pin(struct wf_ps_store *s)
{
    s->pins++;
}

void wf_ps_store_unpin(struct wf_ps_store *s)
{
    s->pins--;
}

void wf_free_later(struct wf_ps_store *s, void *p)
{
    bool busy = s->pins > 0;

    if (busy && !wf_grow(s->ctx, &s->dead, &s->cap_dead, s->n_dead + 1, sizeof *s->dead)) {
        s->dead[s->n_dead++] = p;
        return;
    }
    while (s->pins > 0) /* no memory for the list */
        sched_yield();
    for (int64_t i = 0; i < s->n_dead; i++)
        wf_free(s->ctx, s->dead[i]);
    s->n_dead = 0;
    wf_free(s->ctx, p);
}

void wf_held_give_mean(struct wf_held *h)
{
    if (h->mean != h->shown)
        wf_tree_give(&h->tree, h->mean);
    h->mean = NULL;
}

static float *no_get(void *arg, int64_t n)
{
    (void)arg;
    (void)n;
    return NULL;
}

/* Published memory is the server's. */
static void no_put(void *arg, float *p)
{
    (void)arg;
    (void)p;
}

static const struct wf_dense_memory published_memory = {.get = no_get, .put = no_put};

weft_status wf_held_take_mean(struct wf_ps_store *s, int piece)
{
    struct wf_held *h = &s->held[piece];
    weft_status st;

    if (s->opts.published.mean && !h->shown) {
        if (!wf_mem_charge(s->ctx, h->rules.n_dense * (int64_t)sizeof(float)))
            return wf_err_nomem(s->ctx, (size_t)h->rules.n_dense * sizeof(float), "gradients");
        st = wf_contribution_new_lent(s->ctx, &h->rules, &h->shown);
        if (st) {
            wf_mem_release(s->ctx, h->rules.n_dense * (int64_t)sizeof(float));
            return st;
        }
        h->shown->dense = s->opts.published.mean + s->opts.cut->piece[piece].first;
        h->shown->memory = &published_memory;
    }
    if (h->shown) {
        wf_held_give_mean(h);
        h->mean = h->shown;
    }
    return h->mean ? WEFT_OK : wf_tree_take(&h->tree, &h->mean);
}

void wf_held_free(struct wf_ps_store *s, struct wf_held *h)
{
    weft_ctx *ctx = s->ctx;

    if (!h->here)
        return;
    if (h->shown)
        wf_mem_release(ctx, h->rules.n_dense * (int64_t)sizeof(float));
    if (h->shown && h->mean != h->shown)
        wf_contribution_free(h->shown);
    if (h->mean && h->mean == h->shown) { /* a record's sums may be on their way */
        wf_free_later(s, h->mean->sums);
        h->mean->sums = NULL;
        wf_contribution_free(h->mean);
    } else if (h->mean) { /* a record may be on its way */
        wf_free_later(s, h->mean->dense);
        wf_free_later(s, h->mean->sums);
        h->mean->dense = NULL;
        h->mean->sums = NULL;
        wf_contribution_free(h->mean);
    }
    wf_pushed_drop(s, h);
    wf_tree_free(&h->tree);
    wf_merge_free(h->merge);
    s->n_lent -= h->n_lent;
    wf_free(ctx, h->lent);
    if (h->charged)
        wf_mem_release(ctx, 2 * h->rules.n_dense * (int64_t)sizeof(float));
    wf_tables_free(h->tables);
    for (int i = 0; i < 2; i++) {
        if (!s->opts.published.flat[i])
            wf_free_later(s, h->params[i]);
        wf_free_later(s, h->sums[i]);
        wf_free(ctx, h->partial[i]);
    }
    for (int k = 0; k < WF_OPTIM_MAX_SLOTS; k++) {
        wf_free_later(s, h->slot[k]);
        wf_free_later(s, h->next_slot[k]);
    }
    wf_decision_free(ctx, &h->record);
    *h = (struct wf_held){.here = false};
}

static weft_status no_memory(struct wf_ps_store *s, int piece, int64_t count)
{
    weft_status st = wf_err_nomem(s->ctx, (size_t)count * sizeof(float), "piece of the parameters");

    wf_held_free(s, &s->held[piece]);
    return st;
}

/* Memory for both versions. Where they are published, it is there: it counts as soon as it is used,
 * and is not cleared, because somebody may still read what was there. */
static bool hold_versions(struct wf_ps_store *s, int piece, struct wf_held *h)
{
    const struct wf_cut_piece *c = &s->opts.cut->piece[piece];
    bool published = s->opts.published.flat[0], ok = true;

    if (published)
        ok = h->charged = wf_mem_charge(s->ctx, 2 * c->count * (int64_t)sizeof(float));
    for (int i = 0; i < 2 && ok; i++) {
        h->params[i] = published ? s->opts.published.flat[i] + c->first
                                 : wf_alloc_n(s->ctx, c->count + 1, sizeof *h->params[i]);
        h->sums[i] = wf_alloc_n(s->ctx, wf_ps_n_kept(&s->opts, piece) + 1, sizeof *h->sums[i]);
        ok = h->params[i] && h->sums[i];
    }
    return ok;
}

/* What updates a piece: its runs, or all tables, of which only rows of the piece ever come. */
static weft_status hold_merge(struct wf_ps_store *s, int piece)
{
    const struct wf_cut_piece *c = &s->opts.cut->piece[piece];
    struct wf_held *h = &s->held[piece];
    struct wf_piece *all;
    weft_status st;
    int n = 0;

    if (!c->tables)
        return wf_merge_new(s->ctx, s->ctx->pool, &h->rules, c->n_runs,
                            c->n_runs ? c->run : (struct wf_piece[1]){{0}}, &h->merge);
    all = wf_alloc_n(s->ctx, s->rules->n_vars + 1, sizeof *all);
    if (!all)
        return wf_err_nomem(s->ctx, sizeof *all, "tables");
    for (int v = 0; v < s->rules->n_vars; v++)
        if (s->rules->var[v].table)
            all[n++] = (struct wf_piece){v, 0, s->rules->var[v].count, 0};
    st = wf_merge_new(s->ctx, s->ctx->pool, &h->rules, n, all, &h->merge);
    wf_free(s->ctx, all);
    return st ? st : wf_tables_new(s->ctx, &s->tables, piece, &h->tables);
}

weft_status wf_held_make(struct wf_ps_store *s, int piece)
{
    const struct wf_cut_piece *c = &s->opts.cut->piece[piece];
    struct wf_held *h = &s->held[piece];
    int64_t n = c->count;
    bool ok;
    weft_status st;

    if (h->here)
        return WEFT_OK;
    h->here = true;
    h->halved = -1;
    h->rate = h->record_rate = NAN;
    h->rules = *s->rules;
    h->rules.n_dense = n;
    h->rules.n_sums = wf_ps_n_sums(&s->opts, piece);
    ok = hold_versions(s, piece, h);
    for (int k = 0; k < s->n_slots && ok; k++) {
        h->slot[k] = wf_alloc_n(s->ctx, n + 1, sizeof *h->slot[k]);
        if (s->n_rounds == 2)
            h->next_slot[k] = wf_alloc_n(s->ctx, n + 1, sizeof *h->next_slot[k]);
        ok = h->slot[k] && (s->n_rounds < 2 || h->next_slot[k]);
    }
    wf_tree_init(&h->tree, s->ctx, s->ctx->pool, &h->rules);
    h->tree.lazy =
        n > 0 && !c->tables &&
        wf_merge_passes(s->rules, c->n_runs, c->run, s->opts.leased ? 1 : s->opts.n_shards);
    if (!ok || wf_decision_first(s, &h->record))
        return no_memory(s, piece, n);
    st = hold_merge(s, piece);
    if (st)
        wf_held_free(s, h);
    return st;
}

void wf_held_begin(struct wf_ps_store *s, int piece, int64_t t)
{
    if (!s->opts.published.begun)
        return;
    atomic_store_explicit(&s->opts.published.begun[2 * piece + (t & 1)], t, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

weft_status wf_held_wrong_size(int piece, int64_t n, int64_t expected)
{
    return wf_err(WEFT_EPEER, "piece %d: a message of %lld bytes; %lld were expected", piece,
                  (long long)n, (long long)expected);
}
