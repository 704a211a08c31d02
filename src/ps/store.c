/* store.c - what a parameter server holds: creation, copies of pieces, and what is sent. */
#include "ps/held.h"

int wf_ps_rounds(const struct wf_rules *r)
{
    return strcmp(r->optim->name, "lamb") == 0 ? 2 : wf_rules_clip(r) != WF_CLIP_NONE;
}

int64_t wf_ps_n_sums(const struct wf_ps_store_opts *o, int piece)
{
    return o->cut->piece[piece].state ? o->rules->n_sums + o->n_logs : o->rules->n_groups + 1;
}

int64_t wf_ps_n_kept(const struct wf_ps_store_opts *o, int piece)
{
    bool totals = o->cut->piece[piece].state && o->logs;

    return wf_ps_n_sums(o, piece) + (totals ? WF_PS_TOTALS + 2 * wf_logs_totals(o->logs) : 0);
}

int64_t wf_ps_push_bytes(const struct wf_ps_store_opts *o, int piece)
{
    int64_t dense = o->rules->n_groups * o->cut->piece[piece].count * (int64_t)sizeof(float);

    return dense + wf_ps_n_sums(o, piece) * (int64_t)sizeof(double);
}

int64_t wf_ps_published_at(const struct wf_rules *r, const struct wf_cut *cut, int vector)
{
    int64_t said = wf_round_up(3 * cut->n_pieces * (int64_t)sizeof(int64_t), 4096);

    return said + vector * wf_round_up(r->n_dense * (int64_t)sizeof(float), 4096);
}

int64_t wf_ps_published_bytes(const struct wf_rules *r, const struct wf_cut *cut)
{
    return wf_ps_published_at(r, cut, WF_PUBLISHED_VECTORS);
}

int64_t wf_ps_slot_bytes(const struct wf_rules *r)
{
    return WF_PS_SLOT_HEAD + r->n_groups * r->n_dense * (int64_t)sizeof(float);
}

/* ---- creation -------------------------------------------------------------------------------- */

weft_status wf_ps_store_new(weft_ctx *ctx, const struct wf_ps_store_opts *o,
                            struct wf_ps_store **out)
{
    struct wf_ps_store *s = wf_alloc(ctx, sizeof *s);
    int64_t at = 0;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "server");
    *s = (struct wf_ps_store){.ctx = ctx, .opts = *o, .rules = o->rules};
    pthread_mutex_init(&s->spare_lock, NULL);
    s->tables = (struct wf_tables_opts){o->rules, o->cut, o->n_blocks ? o->n_blocks : 1};
    s->n_slots = wf_optim_slots(o->rules->optim, o->rules->attrs, NULL, s->slot_init);
    s->n_rounds = wf_ps_rounds(o->rules);
    s->held = wf_alloc_n(ctx, o->cut->n_pieces + 1, sizeof *s->held);
    s->first_block = wf_alloc_n(ctx, o->rules->n_vars + 1, sizeof *s->first_block);
    if (!s->held || !s->first_block || wf_decision_first(s, &s->decision)) {
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
        wf_held_free(s, &s->held[i]);
    wf_free_later(s, NULL);
    for (int64_t i = 0; i < s->n_dead; i++) /* whoever sends has stopped */
        wf_free(s->ctx, s->dead[i]);
    wf_free(s->ctx, s->dead);
    for (int r = 0; r < 2; r++)
        wf_free(s->ctx, s->round[r].partial);
    wf_decision_free(s->ctx, &s->decision);
    wf_tables_sort_free(s->ctx, &s->sort);
    wf_free(s->ctx, s->answer.p);
    wf_free(s->ctx, s->body.p);
    for (int i = 0; i < s->n_spare; i++)
        wf_free(s->ctx, s->spare[i].p);
    pthread_mutex_destroy(&s->spare_lock);
    wf_free(s->ctx, s->first_block);
    wf_free(s->ctx, s->held);
    wf_free(s->ctx, s);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Both versions of the parameters and of the sums, then the slots. */
static int64_t fill_bytes(const struct wf_ps_store *s, int piece)
{
    return (2 + s->n_slots) * s->held[piece].rules.n_dense * (int64_t)sizeof(float) +
           2 * wf_ps_n_kept(&s->opts, piece) * (int64_t)sizeof(double);
}

static weft_status fill(void *arg, int piece, int block, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    struct wf_held *h = &s->held[piece];
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;
    weft_status st = wf_held_make(s, piece);
    const char *p = b->p;

    if (st || (block > 0 && !h->tables))
        return st;
    if (h->tables)
        return wf_tables_take(h->tables, block, b->p, b->n);
    if (b->n != fill_bytes(s, piece))
        return wf_held_wrong_size(piece, b->n, fill_bytes(s, piece));
    h->now = (int)(t & 1);
    wf_held_begin(s, piece, t);
    if (t > 0)
        wf_held_begin(s, piece, t - 1);
    for (int i = 0; i < 2; i++) {
        int64_t n = wf_ps_n_kept(&s->opts, piece) * (int64_t)sizeof(double);

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
    struct wf_held *h = &s->held[piece];
    int64_t version = s->opts.leased ? t * s->opts.n_shards : t; /* a checkpoint's is a step */
    weft_status st;

    wf_held_free(s, h);
    st = wf_held_make(s, piece);
    h->now = (int)(version & 1);
    if (!st)
        wf_held_begin(s, piece, version);
    for (int k = 0; k < s->n_slots && !st; k++)
        for (int64_t i = 0; i < h->rules.n_dense; i++)
            h->slot[k][i] = s->slot_init[k];
    if (!st && h->tables) {
        struct wf_blob rows = {.p = NULL};

        st = s->opts.load_rows(s->opts.load_arg, piece, t, &rows);
        return st ? st : wf_tables_take(h->tables, -1, rows.p, rows.n);
    }
    return st ? st
              : s->opts.load(s->opts.load_arg, piece, t, h->params[h->now], h->slot,
                             h->sums[h->now]);
}

static weft_status read(void *arg, int piece, int64_t t, const void *payload)
{
    struct wf_ps_store *s = arg;
    const struct wf_blob *b = &((const struct wf_ps_payload *)payload)->body;

    if (!s->held[piece].tables)
        return wf_err(WEFT_EPEER, "piece %d: a request for rows, and it is not of tables", piece);
    return wf_tables_answer(s->held[piece].tables, t, b->p, b->n, &s->answer);
}

static void drop(void *arg, int piece)
{
    struct wf_ps_store *s = arg;

    wf_held_free(s, &s->held[piece]);
}

struct wf_ps_data wf_ps_store_data(struct wf_ps_store *s)
{
    struct wf_ps_data data = {.arg = s, .fill = fill, .load = load, .read = read, .drop = drop};

    wf_update_data(&data);
    wf_closing_data(&data);
    return data;
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static void put(struct wf_ps_bytes *out, const void *p, int64_t n)
{
    if (n > 0)
        out->body[out->n_body++] = (struct wf_part){(void *)(uintptr_t)p, n};
}

void wf_ps_store_slots(const struct wf_ps_store *s, int piece, float *out)
{
    const struct wf_held *h = &s->held[piece];

    for (int k = 0; k < s->n_slots && h->rules.n_dense; k++)
        memcpy(out + k * h->rules.n_dense, h->slot[k], (size_t)h->rules.n_dense * sizeof *out);
}

weft_status wf_ps_store_rows(struct wf_ps_store *s, int piece, struct wf_blob *out)
{
    weft_status st;

    s->body.n = 0;
    st = wf_tables_dump(s->held[piece].tables, -1, -1, false, &s->body);
    *out = (struct wf_blob){s->body.p, s->body.n};
    return st;
}

/* What a message about a piece of tables carries, written when it is sent: without a backup no one
 * needs records. */
static void table_bytes(struct wf_ps_store *s, const struct wf_held *h, const struct wf_message *m,
                        int64_t version, struct wf_ps_bytes *out)
{
    s->body.n = 0;
    out->own = m->type == WF_MSG_ROWS ? &s->answer : &s->body;
    if (m->type == WF_MSG_RECORD && h->mean)
        out->st = wf_tables_split(s->ctx, &s->tables, m->piece, 1, h->mean->rows, h->mean->sums,
                                  h->rules.n_sums, &s->sort, &s->body);
    if (m->type == WF_MSG_FILL)
        out->st = wf_tables_dump(h->tables, m->block, version, true, &s->body);
    put(out, out->own->p, out->own->n);
}

struct wf_payload wf_ps_store_take_body(struct wf_ps_store *s, struct wf_payload *own)
{
    struct wf_payload body = *own;

    pthread_mutex_lock(&s->spare_lock);
    *own = s->n_spare ? s->spare[--s->n_spare] : (struct wf_payload){.p = NULL};
    pthread_mutex_unlock(&s->spare_lock);
    own->n = 0;
    return body;
}

void wf_ps_store_give_body(struct wf_ps_store *s, struct wf_payload body)
{
    bool kept;

    pthread_mutex_lock(&s->spare_lock);
    kept = body.p && s->n_spare < WF_PS_SPARES;
    if (kept)
        s->spare[s->n_spare++] = body;
    pthread_mutex_unlock(&s->spare_lock);
    if (!kept)
        wf_free(s->ctx, body.p);
}

void wf_ps_bytes(struct wf_ps_store *s, const struct wf_message *m, int64_t version,
                 struct wf_ps_bytes *out)
{
    struct wf_held *h = &s->held[m->piece];
    int64_t dense = h->rules.n_dense * (int64_t)sizeof(float);
    int64_t sums = h->rules.n_sums * (int64_t)sizeof(double);
    int64_t kept = wf_ps_n_kept(&s->opts, m->piece) * (int64_t)sizeof(double);
    int which = m->t == version ? h->now : !h->now;
    /* of the step under way, or of the last one */
    const struct wf_decision *d =
        m->type == WF_MSG_RECORD && (m->t < version || s->opts.leased) ? &h->record : &s->decision;

    out->n_body = 0;
    out->st = WEFT_OK;
    out->own = NULL;
    out->rate = h->record_rate;
    out->mark = h->record_mark;
    out->decision = (struct wf_part){d->mem, d->n};
    if (h->tables && m->type != WF_MSG_PARTIAL) {
        table_bytes(s, h, m, version, out);
        return;
    }
    switch (m->type) {
    case WF_MSG_VERSION:
        put(out, h->params[which], dense);
        put(out, h->sums[which], s->opts.cut->piece[m->piece].state ? kept : 0);
        break;
    case WF_MSG_PARTIAL:
        put(out, h->partial[m->round], h->n_partial[m->round] * (int64_t)sizeof(struct wf_partial));
        break;
    case WF_MSG_RECORD:
        if (h->mean) {
            put(out, h->mean->dense, dense);
            put(out, h->mean->sums, sums);
        }
        break;
    case WF_MSG_FILL:
        if (m->block > 0)
            break;
        put(out, h->sums[h->now], kept);
        put(out, h->sums[!h->now], kept);
        put(out, h->params[h->now], dense);
        put(out, h->params[!h->now], dense);
        for (int k = 0; k < s->n_slots; k++)
            put(out, h->slot[k], dense);
        break;
    default: break;
    }
}
