/* dist.c - strategies: the table, the handle, and what does not depend on the strategy. */
#include "train/step/dist.h"
#include "train/step/grads.h"
#include "train/step/rounds.h"

/* ---- local ----------------------------------------------------------------------------------- */

static weft_status open_local(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                              int *first)
{
    (void)ctx;
    (void)arg;
    *self = NULL;
    *replicas = *local = 1;
    *first = 0;
    return WEFT_OK;
}

static weft_status compute_local(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    weft_status st = WEFT_OK;

    (void)self;
    (void)t;
    for (int64_t k = first; k < first + n && !st; k++) {
        weft_given given;

        st = weft_work_compute(w, 0, k, &given);
        if (!st)
            st = weft_work_put(w, k, &given);
    }
    return st;
}

static weft_status apply_local(void *self, weft_work *w, int64_t t)
{
    (void)self;
    (void)t;
    return weft_work_update(w);
}

static const weft_strategy kinds[] = {
    {.size = sizeof kinds[0],
     .name = "local",
     .doc = "one replica, in this process: gradients are applied where they were computed",
     .fused = true,
     .open = open_local,
     .compute = compute_local,
     .apply = apply_local},
    {.size = sizeof kinds[0],
     .name = "mirrored",
     .doc = "a replica on each of the devices: devices=gpu:0,gpu:1, or groups of cores: "
            "devices=cpu:0,cpu:1",
     .open = wf_mirrored_open,
     .close = wf_mirrored_close,
     .compute = wf_mirrored_compute,
     .apply = apply_local},
    {.size = sizeof kinds[0],
     .name = "ps",
     .doc = "parameter servers: in this process, or as a cluster says (weft_ps_opts)",
     .open = wf_servers_open,
     .close = wf_servers_close,
     .compute = wf_servers_compute,
     .ready = wf_servers_ready,
     .need_rows = wf_servers_need_rows,
     .want_rows = wf_servers_want_rows,
     .apply = wf_servers_apply,
     .bring = wf_servers_bring,
     .each_row = wf_servers_each_row,
     .set_rows = wf_servers_set_rows,
     .leave = wf_servers_leave},
};

/* ---- steps ----------------------------------------------------------------------------------- */

weft_status wf_dist_batch(weft_trainer *t, struct wf_work *w, const struct wf_samples *batch,
                          int64_t first)
{
    weft_dist *d = t->dist;
    weft_status st = w->round ? wf_round_note(w, batch) : wf_work_batch(w, batch, first, t->drawn);

    if (!st && w->round)
        return WEFT_OK;
    if (!st)
        st = d->kind.compute(d->self, w, weft_trainer_step(t), first, t->shards);
    if (!st)
        st = wf_work_end_batch(w);
    if (st) {
        wf_work_drop(w);
        return st;
    }
    t->drawn += t->shards;
    return WEFT_OK;
}

weft_status wf_dist_apply(weft_trainer *t, struct wf_work *w)
{
    weft_dist *d = t->dist;
    int64_t step = weft_trainer_step(t);
    weft_status st = WEFT_OK;

    if (w->round) /* all of it at once */
        st = d->kind.compute(d->self, w, step, 0, t->shards);
    if (!st)
        st = d->kind.apply(d->self, w, step);
    if (st) {
        wf_work_drop(w);
        return st;
    }
    t->drawn = 0;
    return d->kind.commit ? d->kind.commit(d->self, w, step) : WEFT_OK;
}

weft_status wf_dist_bring(weft_trainer *t)
{
    weft_dist *d = t->dist;
    struct wf_work *w;
    weft_status st;

    if (!d || !d->kind.bring)
        return WEFT_OK;
    st = wf_work_get(t, &w);
    return st ? st : d->kind.bring(d->self, w, weft_trainer_step(t));
}

/* ---- the table ------------------------------------------------------------------------------- */

bool weft_dist_at(int i, const char **name, const char **doc)
{
    if (i < 0 || i >= WF_COUNT(kinds))
        return false;
    *name = kinds[i].name;
    *doc = kinds[i].doc;
    return true;
}

weft_status wf_dist_find(const char *name, const weft_strategy **out)
{
    const char *names[WF_COUNT(kinds)];

    for (int i = 0; i < WF_COUNT(kinds); i++) {
        names[i] = kinds[i].name;
        if (strcmp(name, names[i]) == 0) {
            *out = &kinds[i];
            return WEFT_OK;
        }
    }
    return wf_err(WEFT_ENOENT, "no strategy '%s'%s", name,
                  wf_did_you_mean(name, names, WF_COUNT(kinds)).text);
}

int wf_dist_count(const char *strategy, const char *devices)
{
    int cpus = 0, others = 0;

    if (!strategy || strcmp(strategy, "mirrored") != 0)
        return 1;
    while (devices && *devices) {
        size_t n;

        devices += strspn(devices, " ,");
        n = strcspn(devices, " ,");
        if (strncmp(devices, "cpu", 3) == 0)
            cpus++;
        else if (n && !(n == 6 && strncmp(devices, "strict", 6) == 0))
            others += wf_device_times(devices, n);
        devices += n;
    }
    /* a single device holds the memory of replicas on groups of cores */
    return others > 1 ? others : cpus ? cpus : 1;
}

/* ---- the handle ------------------------------------------------------------------------------ */

weft_status weft_dist_open_with(weft_ctx *ctx, const weft_strategy *s, void *arg, weft_dist **out)
{
    weft_strategy kind;
    weft_dist *d;
    weft_status st = wf_opts_take(&kind, sizeof kind, s, "weft_strategy");

    if (!st && (!kind.name || !kind.open || !kind.compute || !kind.apply))
        st = wf_err(WEFT_EINVAL, "weft_strategy: needs a name, open, compute and apply");
    if (!st && kind.fused && kind.need_rows)
        st = wf_err(WEFT_EINVAL,
                    "strategy '%s': holds tables (need_rows) and is fused, but a "
                    "function can only update what is in its memory",
                    kind.name);
    if (st)
        return st;
    d = wf_alloc(ctx, sizeof *d);
    if (!d)
        return wf_err_nomem(ctx, sizeof *d, "a strategy");
    d->ctx = ctx;
    d->kind = kind;
    d->sums_there = kind.compute == compute_local || kind.compute == wf_mirrored_compute;
    st = kind.open(ctx, arg, &d->self, &d->n_replicas, &d->n_local, &d->first);
    if (st) {
        wf_err_wrap(st, "strategy '%s'", kind.name);
        wf_free(ctx, d);
        return st;
    }
    *out = d;
    return WEFT_OK;
}

weft_status weft_dist_open(weft_ctx *ctx, const char *strategy, weft_dist **out)
{
    const weft_strategy *kind;
    weft_status st = wf_dist_find(strategy ? strategy : "local", &kind);

    return st ? st : weft_dist_open_with(ctx, kind, NULL, out);
}

void weft_dist_free(weft_dist *d)
{
    if (!d)
        return;
    if (d->kind.close)
        d->kind.close(d->self);
    wf_free(d->ctx, d);
}

const char *weft_dist_name(const weft_dist *d)
{
    return d->kind.name;
}

int weft_dist_replicas(const weft_dist *d)
{
    return d->n_replicas;
}

int weft_dist_local_replicas(const weft_dist *d)
{
    return d->n_local;
}

weft_status weft_dist_scope(weft_dist *d, weft_model *m)
{
    weft_dist *other = wf_model_scope(m);

    if (other && other != d)
        return wf_err(WEFT_ESTATE, "the model is in the scope of another strategy ('%s')",
                      other->kind.name);
    if (wf_model_ctx(m) != d->ctx)
        return wf_err(WEFT_EINVAL, "the model and the strategy belong to different contexts");
    wf_model_set_scope(m, d);
    return WEFT_OK;
}

weft_status weft_dist_dataset(weft_dist *d, weft_data *data, weft_ds s, weft_ds *out)
{
    weft_status st = weft_data_status(data);

    (void)d; /* there are no replicas but those of this process */
    if (!st)
        *out = s;
    return st;
}

weft_status weft_dist_run(weft_dist *d, weft_replica_fn *fn, void *arg)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < d->n_local && !st; i++)
        st = fn(arg, d->first + i);
    return st ? wf_err_wrap(st, "strategy '%s'", d->kind.name) : WEFT_OK;
}

/* ---- reducing -------------------------------------------------------------------------------- */

static bool same_type(const weft_tensor *a, const weft_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

static weft_status check_values(const weft_dist *d, weft_reduction how, const weft_tensor *v,
                                const weft_tensor *out)
{
    bool is_float = v->dtype == WEFT_F32 || v->dtype == WEFT_F64;

    if (how != WEFT_SUM && how != WEFT_MEAN)
        return wf_err(WEFT_EINVAL, "reduce: neither a sum nor a mean (%d)", (int)how);
    if (!is_float && (how == WEFT_MEAN || (v->dtype != WEFT_I32 && v->dtype != WEFT_I64)))
        return wf_err(WEFT_EDTYPE, "reduce: no %s of %s", how == WEFT_MEAN ? "mean" : "sum",
                      weft_dtype_name(v->dtype));
    for (int i = 0; i <= d->n_local; i++) {
        const weft_tensor *t = i < d->n_local ? &v[i] : out;

        if (!same_type(t, v) || (!t->data && weft_tensor_count(t) > 0))
            return wf_err(WEFT_ESHAPE, "reduce: %s differs from the first value in type or shape",
                          i < d->n_local ? "a value" : "the result");
    }
    return WEFT_OK;
}

static void add(const weft_tensor *v, weft_tensor *out)
{
    int64_t n = weft_tensor_count(v);

    for (int64_t i = 0; i < n; i++)
        switch (v->dtype) {
        case WEFT_F32: ((float *)out->data)[i] += ((const float *)v->data)[i]; break;
        case WEFT_F64: ((double *)out->data)[i] += ((const double *)v->data)[i]; break;
        case WEFT_I32:
            ((uint32_t *)out->data)[i] += ((const uint32_t *)v->data)[i]; /* wraps */
            break;
        default: ((uint64_t *)out->data)[i] += ((const uint64_t *)v->data)[i];
        }
}

static void divide(weft_tensor *out, int by)
{
    int64_t n = weft_tensor_count(out);

    for (int64_t i = 0; i < n; i++)
        if (out->dtype == WEFT_F32)
            ((float *)out->data)[i] /= (float)by;
        else
            ((double *)out->data)[i] /= by;
}

weft_status weft_dist_reduce(weft_dist *d, weft_reduction how, const weft_tensor *values,
                             weft_tensor *out)
{
    weft_status st = check_values(d, how, values, out);

    if (st)
        return st;
    if (out->data != values->data && weft_tensor_bytes(out) > 0)
        memcpy(out->data, values->data, (size_t)weft_tensor_bytes(out));
    for (int i = 1; i < d->n_local; i++)
        add(&values[i], out);
    if (how == WEFT_MEAN && d->n_replicas > 1)
        divide(out, d->n_replicas);
    return WEFT_OK;
}

weft_status weft_dist_reduce_grads(weft_dist *d, weft_reduction how, const weft_grads *const *g,
                                   weft_grads **out)
{
    weft_grads *sum = NULL;
    weft_status st;

    if (how == WEFT_MEAN)
        return weft_grads_average(d->n_local, g, out);
    if (how != WEFT_SUM)
        return wf_err(WEFT_EINVAL, "reduce: neither a sum nor a mean (%d)", (int)how);
    for (int i = 0; i < d->n_local; i++)
        if (g[i] == *out)
            return wf_err(WEFT_EINVAL, "a sum into one of its terms");
    st = weft_grads_average(1, g, &sum); /* a copy */
    for (int i = 1; i < d->n_local && !st; i++)
        st = weft_grads_add(sum, g[i]);
    if (st) {
        weft_grads_free(sum);
        return st;
    }
    weft_grads_free(*out);
    *out = sum;
    return WEFT_OK;
}
