/* given.c - the contributions of a worker: kept from the moment that a part of one is ready until
 * every server has it, and pushed. */
#include "ps/worker.h"

static struct kept *find(const struct wf_ps_worker *w, int64_t t, int shard)
{
    struct kept *k = w->kept;

    while (k && (k->t != t || k->shard != shard || k->forgotten))
        k = k->next;
    return k;
}

void wf_ps_worker_free_rows(struct wf_ps_worker *w, struct wf_payload *rows)
{
    for (int i = 0; rows && i < w->cut->n_table_pieces; i++)
        wf_free(w->node.ctx, rows[i].p);
    wf_free(w->node.ctx, rows);
}

/* The rows of the next shard go where these are: memory that is new in each step is slow. */
static void free_kept(struct wf_ps_worker *w, struct kept *k)
{
    if (k->rows && !w->spare_rows)
        w->spare_rows = k->rows;
    else
        wf_ps_worker_free_rows(w, k->rows);
    wf_free(w->node.ctx, k->scale);
    wf_free(w->node.ctx, k->sums);
    wf_free(w->node.ctx, k);
}

/* Gives back what is no longer needed. all: nothing is being sent. */
void wf_ps_worker_reap(struct wf_ps_worker *w, bool all)
{
    struct kept **at = &w->kept;

    while (*at) {
        struct kept *k = *at;

        if (!all && (!k->forgotten || k->pins > 0)) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        if (k->given)
            w->opts.release(w->opts.arg, k->given);
        free_kept(w, k);
    }
}

static void is_sent(void *arg, weft_status st)
{
    struct kept *k = arg;

    (void)st;
    k->pins--;
}

/* The gradients of a piece are in memory that its primary maps: only their place is sent. */
static bool names_slot(struct wf_ps_worker *w, const struct wf_message *m, const struct kept *k,
                       struct wf_site_head *head)
{
    int slot = w->opts.slots && k->sums && w->cut->piece[m->piece].count
                   ? wf_ps_slots_find(w->opts.slots, k->dense, &head->stamp)
                   : 0;

    if (slot == 0 || !wf_site_share(&w->node, m->to, wf_ps_slots_regions(w->opts.slots), slot))
        return false;
    head->region = (uint64_t)slot;
    return true;
}

static struct wf_site_head head_of(const struct kept *k)
{
    return (struct wf_site_head){.rate = k->rate,
                                 .control = k->mark.control,
                                 .fresh = k->mark.fresh,
                                 .kind = k->mark.kind,
                                 .step = k->mark.step};
}

static void sum_is_sent(void *arg, weft_status st)
{
    (void)st;
    wf_ps_sum_free(arg);
}

/* What several shards give to a piece, as one contribution. */
static weft_status push_sum(struct wf_ps_worker *w, const struct wf_message *m)
{
    int n = (int)wf_min_i64((int64_t)1 << m->level, w->m.plan.n_shards - m->shard), n_parts;
    struct wf_ps_sum *s;
    struct wf_site_head head;
    weft_status st;

    for (int i = 0; i < n; i++) {
        w->run[i] = find(w, m->t, m->shard + i);
        if (!w->run[i]) /* forgotten: the step is complete */
            return WEFT_OK;
    }
    st = wf_ps_sum_new(w, m->piece, w->run, n, &s);
    if (st)
        return st;
    head = head_of(w->run[0]);
    for (int i = 1; i < n; i++) /* one that skips the step skips it for all */
        if (w->run[i]->mark.kind == WF_PS_SKIPPED)
            head.kind = WF_PS_SKIPPED;
    n_parts = wf_ps_sum_parts(s, w->part);
    for (int i = 0; i < n_parts; i++)
        head.n_body += w->part[i].n;
    wf_site_send(&w->node, m->to, m->type, m, &head, w->part, n_parts, sum_is_sent, s);
    return WEFT_OK;
}

/* The parts of a contribution to a piece that travel as bytes. */
static int list_parts(struct wf_ps_worker *w, const struct wf_message *m, const struct kept *k,
                      struct wf_site_head *head)
{
    const struct wf_rules *r = &w->opts.job->rules;
    const struct wf_cut_piece *p = &w->cut->piece[m->piece];
    int n = 0;

    if (k->dense && !names_slot(w, m, k, head))
        for (int g = 0; g < r->n_groups && k->sums && p->count && !p->tables; g++)
            w->part[n++] =
                (struct wf_part){(void *)(uintptr_t)(k->dense + g * r->n_dense + p->first),
                                 p->count * (int64_t)sizeof(float)};
    if (p->tables && k->rows)
        w->part[n++] = (struct wf_part){k->rows[m->piece - w->cut->first_table].p,
                                        k->rows[m->piece - w->cut->first_table].n};
    else if (k->sums && (k->dense || p->state)) /* of batches that are only evaluated: sums */
        w->part[n++] =
            (struct wf_part){k->sums, wf_ps_n_sums(&w->sizes, m->piece) * (int64_t)sizeof(double)};
    for (int i = 0; i < n; i++)
        head->n_body += w->part[i].n;
    return n;
}

/* A contribution to a piece. */
weft_status wf_ps_worker_push(struct wf_ps_worker *w, const struct wf_message *m)
{
    struct kept *k = find(w, m->t, m->shard);
    struct wf_site_head head;
    int n;

    if (m->level > 0)
        return push_sum(w, m);
    if (!k) /* forgotten: the step is complete */
        return WEFT_OK;
    head = head_of(k);
    n = list_parts(w, m, k, &head);
    k->pins++;
    wf_site_send(&w->node, m->to, m->type, m, &head, w->part, n, is_sent, k);
    return WEFT_OK;
}

weft_status wf_ps_worker_close(struct wf_ps_worker *w, const struct wf_message *m)
{
    struct kept *k = find(w, m->lease, 0);
    bool closes = m->type == WF_MSG_CLOSE;
    struct wf_site_head head;
    int n = 0;

    if (!k) /* forgotten: of an earlier history */
        return WEFT_OK;
    head = head_of(k);
    if (!closes || m->whole)
        n = list_parts(w, m, k, &head);
    if (closes && k->scale)
        w->part[n++] = (struct wf_part){k->scale, wf_ps_scale_bytes(&w->opts.job->rules)};
    k->pins++;
    wf_site_send(&w->node, m->to, m->type, m, &head, w->part, n, is_sent, k);
    return WEFT_OK;
}

/* ---- what the caller gives ------------------------------------------------------------------- */

/* The rows of a contribution, for each piece of tables. */
static weft_status keep_rows(struct wf_ps_worker *w, struct kept *k, const struct wf_rows *rows)
{
    const struct wf_rules *r = &w->opts.job->rules;

    k->rows = w->spare_rows;
    w->spare_rows = NULL;
    if (!k->rows)
        k->rows = wf_alloc_n(w->node.ctx, w->cut->n_table_pieces + 1, sizeof *k->rows);
    if (!k->rows)
        return wf_err_nomem(w->node.ctx, sizeof *k->rows, "contribution");
    return wf_tables_split(w->node.ctx, &w->tables, -1, r->n_groups, rows, k->sums, r->n_groups + 1,
                           &w->sort, k->rows);
}

/* What a shard gives is kept; of one that is not complete, only the first n sums are known. */
static weft_status keep(struct wf_ps_worker *w, int64_t t, int shard,
                        const struct wf_ps_given *what, int64_t n, bool early)
{
    int64_t all = w->opts.job->rules.n_sums + w->opts.job->n_logs;
    struct kept *k = wf_alloc(w->node.ctx, sizeof *k);

    if (!k)
        return wf_err_nomem(w->node.ctx, sizeof *k, "contribution");
    k->t = t;
    k->shard = shard;
    k->dense = what->dense;
    k->rate = what->rate;
    k->mark = what->mark;
    k->given = what->given;
    k->early = early;
    if (what->sums) {
        k->sums = wf_alloc_n(w->node.ctx, all + 1, sizeof *k->sums);
        if (!k->sums) {
            wf_free(w->node.ctx, k);
            return wf_err_nomem(w->node.ctx, (size_t)n * sizeof *k->sums, "contribution");
        }
        memcpy(k->sums, what->sums, (size_t)n * sizeof *k->sums);
    }
    if (what->sums && what->rows && w->lookup && !early) {
        weft_status st = keep_rows(w, k, what->rows);

        if (st) {
            free_kept(w, k);
            return st;
        }
    }
    k->next = w->kept;
    w->kept = k;
    return WEFT_OK;
}

/* All of it is there. */
static weft_status complete(struct wf_ps_worker *w, int64_t t, int shard,
                            const struct wf_ps_given *what)
{
    int64_t n = w->opts.job->rules.n_sums + w->opts.job->n_logs;
    int64_t known = w->opts.job->rules.n_groups + 1;
    struct kept *k = find(w, t, shard);

    if (what->sums)
        w->samples += (int64_t)what->sums[known - 1];
    if (!k || !k->early)
        return keep(w, t, shard, what, n, false);
    if (w->lookup) {
        weft_status st = keep_rows(w, k, what->rows);

        if (st)
            return st;
    }
    k->given = what->given;
    k->early = false;
    memcpy(k->sums + known, what->sums + known, (size_t)(n - known) * sizeof *k->sums);
    return WEFT_OK;
}

/* It belongs to another history. A part of it may be under way still. */
static weft_status drop(struct wf_ps_worker *w, int64_t t, int shard,
                        const struct wf_ps_given *what)
{
    struct kept *k = w->kept;

    while (k && (k->t != t || k->shard != shard || !k->early))
        k = k->next;
    if (k) {
        k->given = what->given;
        k->early = false;
    } else if (what->given) {
        w->opts.release(w->opts.arg, what->given);
    }
    return WEFT_OK;
}

weft_status wf_ps_worker_give(struct wf_ps_worker *w, int64_t t, int shard,
                              const struct wf_ps_given *what)
{
    weft_status st;

    wf_site_lock(&w->node);
    st = w->restores ? drop(w, t, shard, what) : complete(w, t, shard, what);
    if (st && what->given)
        w->opts.release(w->opts.arg, what->given);
    if (!st && !w->node.st && !w->rejoin) {
        w->pending = false;
        w->node.acts.n = 0;
        st = wf_client_computed(&w->m, wf_site_now(&w->node), t, shard, &w->node.acts);
        st = wf_site_fail(&w->node, st ? st : wf_ps_worker_carry_out(w));
    }
    wf_site_unlock(&w->node);
    return st;
}

weft_status wf_ps_worker_keep(struct wf_ps_worker *w, int64_t t, int shard,
                              const struct wf_ps_given *what, const float *scale)
{
    const struct wf_rules *r = &w->opts.job->rules;
    weft_status st = w->restores ? drop(w, t, shard, what) : complete(w, t, shard, what);
    struct kept *k;

    if (st && what->given)
        w->opts.release(w->opts.arg, what->given);
    k = st || w->restores ? NULL : find(w, t, shard);
    if (!k)
        return st;
    k->mark = what->mark; /* whether it is finite is known at the end */
    if (!scale)
        return WEFT_OK;
    k->scale = wf_alloc(w->node.ctx, (size_t)wf_ps_scale_bytes(r));
    if (!k->scale)
        return wf_err_nomem(w->node.ctx, (size_t)wf_ps_scale_bytes(r), "contribution");
    wf_ps_scale_write(r, scale, k->scale);
    return WEFT_OK;
}

/* How many gradients of a piece will be told. */
static void count_missing(struct wf_ps_worker *w, const bool *reached)
{
    const struct wf_rules *r = &w->opts.job->rules;

    for (int i = 0; i < w->cut->n_pieces; i++) {
        const struct wf_cut_piece *p = &w->cut->piece[i];

        w->missing[i] = 0;
        for (int g = 0; g < r->n_groups; g++)
            for (int k = 0; k < p->n_runs; k++)
                w->missing[i] += reached[g * r->n_vars + p->run[k].var];
    }
}

/* The pieces that a variable lies in. */
static weft_status ready_pieces(struct wf_ps_worker *w, int64_t t, int shard, int var)
{
    weft_status st = WEFT_OK;

    w->node.acts.n = 0;
    for (int i = 0; i < w->cut->n_pieces && !st; i++) {
        const struct wf_cut_piece *p = &w->cut->piece[i];

        for (int k = 0; k < p->n_runs && !st; k++)
            if (p->run[k].var == var && --w->missing[i] == 0)
                st = wf_client_ready(&w->m, wf_site_now(&w->node), t, shard, i, &w->node.acts);
    }
    return st ? st : wf_ps_worker_carry_out(w);
}

weft_status wf_ps_worker_ready(struct wf_ps_worker *w, int64_t t, int shard, int var,
                               const bool *reached, const struct wf_ps_given *what)
{
    weft_status st = WEFT_OK;

    wf_site_lock(&w->node);
    if (!w->node.st && !w->rejoin && !w->restores && t == w->m.t && w->pending &&
        w->pending_shard == shard) {
        const struct kept *was = find(w, t, shard);

        if (!was) {
            count_missing(w, reached);
            st = keep(w, t, shard, what, w->opts.job->rules.n_groups + 1, true);
        }
        if (!st && (!was || was->early))
            st = ready_pieces(w, t, shard, var);
        wf_site_fail(&w->node, st);
    }
    wf_site_unlock(&w->node);
    return st;
}

weft_status wf_ps_worker_keep_part(struct wf_ps_worker *w, int64_t t, int shard, int var,
                                   const bool *reached, const struct wf_ps_given *what,
                                   wf_ps_ready_fn *ready)
{
    const struct kept *was = find(w, t, shard);
    weft_status st = WEFT_OK;

    if (was && !was->early)
        return WEFT_OK;
    if (!was) {
        count_missing(w, reached);
        st = keep(w, t, shard, what, w->opts.job->rules.n_groups + 1, true);
    }
    for (int i = 0; i < w->cut->n_pieces && !st; i++) {
        const struct wf_cut_piece *p = &w->cut->piece[i];

        for (int k = 0; k < p->n_runs && !st; k++)
            if (p->run[k].var == var && --w->missing[i] == 0)
                st = ready(w, t, shard, i);
    }
    return st;
}

void wf_ps_worker_failed(struct wf_ps_worker *w, int64_t t, int shard, weft_status st)
{
    wf_site_lock(&w->node);
    if (!w->restores && find(w, t, shard)) /* servers may have a part of it */
        wf_site_fail(&w->node, st);
    wf_site_unlock(&w->node);
}
