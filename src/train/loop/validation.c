/* validation.c - the validation at the end of an epoch: by this process, or dealt out to workers
 * that train together.
 *
 * Dealt out: steps of the servers that update nothing, so that all batches are evaluated on one
 * version; a shard of such a step is a run of batches. Each batch has its own sums, and the servers
 * add them in the order of the data: the result has the bits of one process. */
#include "train/loop/fit.h"
#include "train/step/dist.h"

bool wf_validation_due(const struct fit *f)
{
    int64_t every = f->o->validation_freq ? f->o->validation_freq : 1;

    return f->has_val && (f->at.epoch + 1) % every == 0;
}

/* One batch, added to the sums of the pass. NULL: there are no more. */
static weft_status evaluate(struct fit *f, bool *end)
{
    weft_batch *b = NULL;
    weft_status st = weft_iter_next(f->val_it, &b);

    *end = !b;
    if (st || !b)
        return st;
    f->val_at++;
    st = wf_feeding_batch(f->t, &f->val, b, f->feeds);
    if (!st)
        st = wf_step_test(f->t, f->feeds, b->n, f->val.weighted);
    weft_batch_free(b);
    return st;
}

static weft_status rewind_data(struct fit *f)
{
    f->val_at = 0;
    return weft_iter_reset(f->val_it, 0);
}

static weft_status evaluate_all(struct fit *f)
{
    int64_t steps = f->o->validation_steps;
    bool end = false;
    struct wf_flying outer;
    weft_status st = rewind_data(f);

    wf_flying_begin(f->t, &outer);
    f->t->flying.on = true;
    while (!st && !end && (!steps || f->val_at < steps))
        st = evaluate(f, &end);
    st = wf_step_end(f->t, st);
    wf_flying_end(f->t, &outer);
    if (!st && f->val_at == 0)
        st = wf_err(WEFT_EDATA, "the dataset has no batches");
    return st;
}

/* ---- dealt out ------------------------------------------------------------------------------- */

/* Whether the steps so far have evaluated all batches. */
static bool is_done(const struct fit *f, const struct wf_dist_validation *v)
{
    int64_t steps = f->o->validation_steps;

    return v->begun && (v->batches < v->rounds * v->n_slots || (steps && v->batches >= steps));
}

bool wf_validation_done(const struct fit *f)
{
    struct wf_dist_validation v;

    if (!f->together)
        return false;
    v = wf_dist_validation(f->t);
    return is_done(f, &v);
}

/* The data is at a batch; usually it already is, or some before it. */
static weft_status seek(struct fit *f, int64_t number, bool *end)
{
    weft_status st = f->val_at < 0 || f->val_at > number ? rewind_data(f) : WEFT_OK;

    *end = false;
    while (!st && !*end && f->val_at < number) {
        weft_batch *b = NULL;

        st = weft_iter_next(f->val_it, &b);
        *end = !b;
        f->val_at += !st && b;
        weft_batch_free(b);
    }
    if (*end)
        f->val_at = -1; /* what an iterator gives after the end is not asked */
    return st;
}

static weft_status evaluate_one(void *arg, int64_t number, double *sums, bool *end)
{
    struct fit *f = arg;
    weft_trainer *t = f->t;
    const struct wf_bound *b = t->bound;
    weft_status st = WEFT_OK;

    *end = f->o->validation_steps && number >= f->o->validation_steps;
    if (!*end)
        st = seek(f, number, end);
    if (st || *end)
        return st;
    wf_pass_swap(t);
    wf_pass_begin(t);
    st = evaluate(f, end);
    if (*end)
        f->val_at = -1;
    memcpy(sums, t->mean_sum, (size_t)b->n_means * sizeof *sums);
    sums[b->n_means] = t->mean_weight;
    if (b->n_sums)
        memcpy(sums + b->n_means + 1, t->sums, (size_t)b->n_sums * sizeof *sums);
    wf_pass_swap(t);
    return st;
}

weft_status wf_validate_dealt(struct fit *f, bool *again)
{
    struct wf_dist_validation v = wf_dist_validation(f->t);
    int64_t start = wf_now(f->t->ctx);
    weft_status st = WEFT_OK;

    *again = false;
    while (!st && !*again && v.n_slots && !is_done(f, &v)) {
        st = wf_dist_evaluate(f->t, evaluate_one, f);
        if (st)
            st = wf_fit_turn(f, st, again);
        v = wf_dist_validation(f->t);
    }
    f->validate_s = (double)(wf_now(f->t->ctx) - start) * 1e-9;
    return st ? wf_err_wrap(st, "validation") : WEFT_OK;
}

/* What all workers have found, as the sums of the pass. */
static weft_status take_totals(struct fit *f)
{
    const struct wf_bound *b = f->t->bound;
    struct wf_dist_validation v = wf_dist_validation(f->t);

    if (v.batches == 0)
        return wf_err(WEFT_EDATA, "the dataset has no batches");
    memcpy(f->t->mean_sum, v.totals, (size_t)b->n_means * sizeof *v.totals);
    f->t->mean_weight = v.totals[b->n_means];
    if (b->n_sums)
        memcpy(f->t->sums, v.totals + b->n_means + 1, (size_t)b->n_sums * sizeof *v.totals);
    return WEFT_OK;
}

/* ---- the result ------------------------------------------------------------------------------ */

weft_status wf_validate(struct fit *f)
{
    weft_logs logs;
    weft_status st;

    wf_pass_begin(f->t);
    st = wf_validation_done(f) ? take_totals(f) : evaluate_all(f);
    if (st)
        return wf_err_wrap(st, "validation");
    logs = wf_pass_logs(f->t);
    memcpy(f->value + f->n_train, logs.value, (size_t)logs.n * sizeof *f->value);
    return WEFT_OK;
}
