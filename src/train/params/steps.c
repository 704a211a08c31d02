/* steps.c - parameter calls: what is pushed, and steps.
 *
 * Kept true: what was pushed stays until the step is complete, so that it can be given again; a
 * step that fails leaves nothing behind. */
#include "train/params/params.h"

#include <math.h>

/* ---- pushes ---------------------------------------------------------------------------------- */

static struct wf_pushed *find(const weft_params *p, int64_t shard)
{
    for (int64_t i = 0; i < p->n_pushed; i++)
        if (p->pushed[i].shard == shard)
            return &p->pushed[i];
    return NULL;
}

void wf_params_drop(weft_params *p)
{
    for (int64_t i = 0; i < p->n_pushed; i++)
        p->pushed[i].shard = -1;
}

static weft_status new_pushed(weft_params *p, struct wf_pushed **out)
{
    weft_status st =
        wf_grow(p->ctx, &p->pushed, &p->cap_pushed, p->n_pushed + 1, sizeof *p->pushed);

    if (st)
        return st;
    p->pushed[p->n_pushed] = (struct wf_pushed){.shard = -1};
    st = wf_contribution_new(p->ctx, &p->w->rules, &p->pushed[p->n_pushed].c);
    if (!st)
        *out = &p->pushed[p->n_pushed++];
    return st;
}

/* Room for what is pushed for a shard: that of the shard, or a new one, empty. */
static weft_status room(weft_params *p, int64_t shard, struct wf_pushed **out)
{
    int64_t n = weft_params_shards(p);
    struct wf_pushed *x = find(p, shard);
    weft_status st = WEFT_OK;

    if (shard < 0 || shard >= n)
        return wf_err(WEFT_ERANGE, "shard %lld: a step has shards 0 to %lld", (long long)shard,
                      (long long)n - 1);
    if (p->leased && !p->holds)
        return wf_err(WEFT_ESTATE, "shard %lld: this worker has none: weft_params_pull gets one",
                      (long long)shard);
    if (p->leased && shard != p->held)
        return wf_err(WEFT_ERANGE, "shard %lld: this worker has shard %lld of step %lld",
                      (long long)shard, (long long)p->held, (long long)p->at);
    if (!x) {
        x = find(p, -1);
        if (!x)
            st = new_pushed(p, &x);
        if (st)
            return st;
        x->shard = shard;
        x->weight = 1;
        x->value = 0;
        wf_contribution_clear(x->c);
        memset(x->c->dense, 0, (size_t)p->w->rules.n_dense * sizeof(float));
    }
    *out = x;
    return WEFT_OK;
}

weft_status weft_params_push(weft_params *p, int64_t shard, const char *name,
                             const weft_tensor *value)
{
    struct wf_pushed *x;
    const struct wf_var *v;
    const float *from = value->data;
    float *to;
    int var = 0;
    weft_status st = wf_params_find(p, name, &var);

    if (st)
        return st;
    v = &p->w->rules.var[var];
    if (v->table)
        return wf_err(WEFT_ESTATE, "'%s' is a table: use weft_params_push_rows", name);
    if (value->dtype != WEFT_F32 || weft_tensor_count(value) != v->count || !from)
        return wf_err(WEFT_ESHAPE, "push: '%s' has %lld elements f32, the value %lld %s", name,
                      (long long)v->count, (long long)weft_tensor_count(value),
                      weft_dtype_name(value->dtype));
    st = room(p, shard, &x);
    if (st)
        return st;
    to = x->c->dense + v->offset;
    if (p->adds)
        for (int64_t i = 0; i < v->count; i++)
            to[i] = -from[i];
    else
        memcpy(to, from, (size_t)v->count * sizeof *to);
    return WEFT_OK;
}

static weft_status check_rows(const struct wf_var *v, const char *name, const weft_tensor *ids,
                              const weft_tensor *rows)
{
    int64_t n = weft_tensor_count(ids);

    if (!v->table)
        return wf_err(WEFT_ESTATE, "'%s' is not a table: use weft_params_push", name);
    if (ids->dtype != WEFT_I32 && ids->dtype != WEFT_I64)
        return wf_err(WEFT_EDTYPE, "push: ids of '%s' are %s; i32 and i64 are possible", name,
                      weft_dtype_name(ids->dtype));
    if (rows->dtype != WEFT_F32 || rows->rank < 1 || rows->dim[rows->rank - 1] != v->dim[1] ||
        weft_tensor_count(rows) != n * v->dim[1] || n > INT32_MAX)
        return wf_err(WEFT_ESHAPE,
                      "push: %lld ids of '%s' and rows of %lld numbers %s; it has a width of %lld",
                      (long long)n, name, (long long)weft_tensor_count(rows),
                      weft_dtype_name(rows->dtype), (long long)v->dim[1]);
    return WEFT_OK;
}

weft_status weft_params_push_rows(weft_params *p, int64_t shard, const char *name,
                                  const weft_tensor *ids, const weft_tensor *rows)
{
    struct wf_pushed *x = NULL;
    struct wf_rows *r;
    const struct wf_var *v;
    int var = 0;
    weft_status st = wf_params_find(p, name, &var);

    if (st)
        return st;
    v = &p->w->rules.var[var];
    st = check_rows(v, name, ids, rows);
    if (!st)
        st = room(p, shard, &x);
    if (st)
        return st;
    r = &x->c->rows[var];
    r->n = 0;
    if (weft_tensor_count(ids) == 0)
        return WEFT_OK;
    st = wf_rows_collect(p->ctx, &x->c->scratch, p->ctx->pool, ids, rows, v->dim[0], r);
    for (int64_t i = 0; i < r->n * v->dim[1] && p->adds && !st; i++)
        r->row[i] = -r->row[i];
    return st ? wf_err_wrap(st, "push: '%s'", name) : WEFT_OK;
}

weft_status weft_params_weigh(weft_params *p, int64_t shard, double weight)
{
    struct wf_pushed *x;
    weft_status st;

    if (!(weight > 0) || !isfinite((float)(1 / weight)))
        return wf_err(WEFT_EINVAL, "shard %lld: a weight of %g; it must be positive",
                      (long long)shard, weight);
    st = room(p, shard, &x);
    if (!st)
        x->weight = weight;
    return st;
}

weft_status weft_params_report(weft_params *p, int64_t shard, double value)
{
    struct wf_pushed *x;
    weft_status st = room(p, shard, &x);

    if (!st)
        x->value = value;
    return st;
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Denominators, samples, what is reported. A sum is divided by 1: the first shard's weight, or that
 * of a shard that is applied by itself. */
static void put_sums(const weft_params *p, const struct wf_pushed *x, weft_given *g)
{
    const struct wf_work *w = p->w;
    double *sums = g->gradients->sums, *logs = g->logs->sums;
    int samples = (int)wf_rules_samples(&w->rules);

    sums[0] = !p->sum ? x->weight : x->shard == 0 || p->leased ? 1 : 0;
    sums[samples] = x->weight;
    logs[0] = logs[samples] = x->weight;
    logs[w->rules.whole ? w->log_means : w->log_losses] = x->weight * x->value;
}

/* One shard a step gives the mean. */
static void divide(const weft_params *p, const struct wf_pushed *x, struct wf_contribution *c)
{
    const struct wf_rules *r = &p->w->rules;
    const struct wf_optim_fns *f = wf_optim_fns_at(p->ctx->simd);
    float factor = (float)(1 / x->weight);

    if (!r->whole || p->sum || x->weight == 1)
        return;
    f->scale(r->n_dense, c->dense, factor);
    for (int v = 0; v < r->n_vars; v++)
        if (r->var[v].table)
            f->scale(c->rows[v].n * r->var[v].dim[1], c->rows[v].row, factor);
}

weft_status wf_params_give(void *arg, int64_t shard, weft_given *out)
{
    weft_params *p = arg;
    struct wf_pushed *x;
    weft_status st = WEFT_OK;

    shard = p->leased ? p->held : shard;
    x = find(p, shard);
    *out = (weft_given){.gradients = NULL};
    if (!x && !p->shard && !p->leased)
        return wf_err(WEFT_EPEER,
                      "shard %lld of step %lld is to be computed here, because another worker is "
                      "gone: give the function weft_params_opts.shard, which can do so",
                      (long long)shard, (long long)weft_params_step(p));
    if (!x && p->shard) {
        p->computes = shard;
        st = p->shard(p->shard_arg, p, shard);
        p->computes = -1;
        x = find(p, shard);
        if (st && x) /* half of it */
            x->shard = -1;
    }
    if (!st && !x && p->sum && shard == 0 && !p->leased) /* it has the denominator */
        st = room(p, shard, &x);
    if (st || !x)
        return st ? wf_err_wrap(st, "shard %lld", (long long)shard) : WEFT_OK;
    st = wf_work_room(p->w, NULL, out);
    if (!st)
        st = wf_contribution_copy(out->gradients, x->c);
    if (st) {
        weft_work_give(p->w, out);
        return st;
    }
    divide(p, x, out->gradients);
    put_sums(p, x, out);
    p->gave = true;
    if (p->shard) /* it can be computed again */
        x->shard = -1;
    return WEFT_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static weft_status take_record(weft_params *p)
{
    char *text = NULL;
    int64_t n, at;
    weft_status st = wf_dist_record(p->t, &text, &n, &at);

    wf_free(p->ctx, text); /* it says nothing */
    return st;
}

/* Until the worker may take its step, or has moved. */
static weft_status obey(weft_params *p, enum wf_turn turn, bool *moved)
{
    int64_t batch;
    bool again;
    weft_status st = WEFT_OK;

    do {
        while (!st && turn == WF_TURN_DECIDE)
            st = wf_dist_decide(p->t, "", 0, &turn);
        if (!st && (turn == WF_TURN_FOLLOW || turn == WF_TURN_MOVED))
            st = take_record(p);
        if (st || turn != WF_TURN_MOVED)
            return st;
        st = wf_dist_seek(p->t, &batch);
        again = st && wf_dist_turned(p->t, &turn);
        st = again ? WEFT_OK : st;
    } while (again);
    *moved = !st;
    wf_params_drop(p);
    return st;
}

weft_status wf_params_turn(weft_params *p, bool *moved)
{
    enum wf_turn turn;
    weft_status st;

    *moved = false;
    if (!wf_dist_together(p->t)) {
        p->begun = true;
        return WEFT_OK;
    }
    st = wf_dist_turn(p->t, !p->begun || p->expects, false, &turn);
    p->begun = true;
    p->expects = false;
    if (!st)
        st = obey(p, turn, moved);
    return st ? wf_params_go_back(p, st, moved) : WEFT_OK;
}

weft_status wf_params_turned(weft_params *p, weft_status st, bool *again, bool *moved)
{
    enum wf_turn turn;

    *again = false;
    if (!wf_dist_together(p->t))
        return st;
    if (!wf_dist_turned(p->t, &turn))
        return wf_params_go_back(p, st, moved);
    st = obey(p, turn, moved);
    *again = !st && !*moved;
    return st ? wf_params_go_back(p, st, moved) : WEFT_OK;
}

weft_status weft_params_pull(weft_params *p)
{
    bool moved;

    return p->leased ? wf_params_lease(p) : wf_params_turn(p, &moved);
}

static weft_status step(weft_params *p)
{
    const struct wf_samples none = {.n = weft_params_shards(p)};
    weft_status st;

    wf_pass_begin(p->t);
    p->t->used_rate = p->t->rate;
    p->t->drawn = 0;
    st = wf_dist_batch(p->t, p->w, &none, 0);
    return st ? st : wf_dist_apply(p->t, p->w);
}

weft_status weft_params_wait(weft_params *p)
{
    bool again = true, moved = false;
    weft_status st = WEFT_OK;

    if (p->leased)
        return wf_params_lease_wait(p);
    while (!st && again && !moved) {
        st = wf_params_turn(p, &moved);
        again = false;
        if (!st && !moved) {
            st = step(p);
            if (st)
                st = wf_params_turned(p, st, &again, &moved);
        }
    }
    wf_params_drop(p);
    if (st || moved)
        return st;
    p->reported = p->t->mean_weight > 0 ? p->t->mean_sum[0] / p->t->mean_weight : 0;
    return wf_params_files_step(p);
}

double weft_params_reported(const weft_params *p)
{
    return p->reported;
}

int64_t weft_params_step(const weft_params *p)
{
    return p->leased ? p->at : weft_trainer_step(p->t);
}

int weft_params_shards(const weft_params *p)
{
    return p->leased ? (int)p->shards : p->t->shards;
}

void weft_params_mine(const weft_params *p, int64_t *first, int64_t *n)
{
    const weft_dist *d = p->t->dist;
    int64_t least = p->t->shards / d->n_replicas, more = p->t->shards % d->n_replicas;

    if (p->leased) {
        *first = p->held;
        *n = p->holds;
        return;
    }
    /* As the chief deals them out to workers of which it knows nothing: cluster/assign.c. */
    *first = d->first * least + (d->first < more ? d->first : more);
    *n = least + (d->first < more);
}
