/* nonfinite.c - which column or op produced the first NaN or infinity of a loss.
 *
 * When the loss is known, the step has already changed the weights, and the cause may even be the
 * gradients of an earlier step. So the state is saved when an epoch begins, and the batches since
 * are computed again from it by a second trainer: the same bits, this time with every op checked.
 * The trainer of the fit is not affected. */
#include <math.h>
#include <stdio.h>

#include "train/step/work.h"
#include "train/loop/nonfinite.h"

#define MAX_COPY ((int64_t)64 << 20)      /* of a saved state */
#define MAX_NS ((int64_t)60 * 1000000000) /* maximum time for computing again */
/* The last batches, in which every op is checked: the loss of one may come from the previous
 * update. In f16, gradients that overflow are not a mistake of the previous step, which was
 * skipped. */
#define TRAPPED 2

/* ---- keeping the state ----------------------------------------------------------------------- */

static void list_state(struct wf_nonfinite *n, weft_trainer *t)
{
    n->listed = true;
    n->all = (struct wf_resume){.t = t};
    wf_arena_init(&n->all.arena, t->ctx);
    if (wf_resume_list(&n->all))
        return;
    for (int64_t i = 0; i < n->all.n_tensors; i++)
        n->bytes += weft_tensor_bytes(&n->all.tensor[i].tensor);
    if (n->bytes <= MAX_COPY)
        n->copy = wf_alloc(t->ctx, (size_t)n->bytes + 1);
}

/* Copies the tensors of `all` to or from the copy. */
static weft_status copy_state(const struct wf_resume *all, char *copy, bool out)
{
    struct wf_store *store = all->t->bound->fit->store;
    weft_status st = wf_store_pull(store, WF_PART_ALL);

    if (st)
        return st;
    if (!out)
        wf_store_touch(store, WF_PART_ALL);
    for (int64_t i = 0; i < all->n_tensors; i++) {
        const weft_tensor *w = &all->tensor[i].tensor;
        size_t bytes = (size_t)weft_tensor_bytes(w);

        if (bytes && out)
            memcpy(copy, w->data, bytes);
        else if (bytes)
            memcpy(w->data, copy, bytes);
        copy += bytes;
    }
    return WEFT_OK;
}

void wf_nonfinite_keep(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       bool position)
{
    if (n->looked || t->trap) /* a trainer that traps reports it itself */
        return;
    if (!n->listed)
        list_state(n, t);
    weft_text_free(t->ctx, n->position);
    n->position = NULL;
    n->kept =
        n->copy && (!position || !weft_dealer_save(at->deal->dealer, &n->position, &n->n_position));
    n->kept = n->kept && !copy_state(&n->all, n->copy, true);
    if (!n->kept)
        return;
    n->epoch = at->epoch;
    n->batch = at->batch;
    n->step = weft_trainer_step(t);
    n->rate = t->rate;
}

void wf_nonfinite_free(struct wf_nonfinite *n)
{
    if (!n->listed)
        return;
    wf_free(n->all.t->ctx, n->copy);
    wf_free(n->all.t->ctx, n->all.tensor);
    weft_text_free(n->all.t->ctx, n->position);
    wf_arena_free(&n->all.arena);
}

/* Drops the sign of a NaN, for display. */
static double plain(double v)
{
    return isnan(v) ? fabs(v) : v;
}

/* ---- columns --------------------------------------------------------------------------------- */

/* The first value that is not finite; -1: none. */
static int64_t find_value(const weft_tensor *x, double *v)
{
    int64_t n = wf_is_float(x->dtype) ? weft_tensor_count(x) : 0;

    for (int64_t i = 0; i < n; i++) {
        *v = wf_get(x->data, x->dtype, i);
        if (!isfinite(*v))
            return i;
    }
    return -1;
}

/* Which of the fed columns has such a value; b: a shard whose samples begin with row `first` of the
 * batch. */
static bool find_column(const weft_trainer *t, const struct wf_feeding *f, const weft_batch *b,
                        int64_t first, char *text, size_t size)
{
    for (int i = 0; i <= f->n_in + t->n_out; i++) {
        int c = f->column[i];
        double v = 0;
        int64_t at = c < 0 ? -1 : find_value(&b->col[c], &v), row;

        if (at < 0)
            continue;
        row = b->n > 0 ? at / (weft_tensor_count(&b->col[c]) / b->n) : 0;
        if (b->id)
            wf_snprintf(text, size, "column '%s' of the data is %g in sample %lld",
                        b->column[c].name, plain(v), (long long)b->id[row]);
        else
            wf_snprintf(text, size, "column '%s' of the data is %g in row %lld of the batch",
                        b->column[c].name, plain(v), (long long)(first + row));
        return true;
    }
    return false;
}

/* The same in all shards of the batch under way. */
static bool find_in_batch(const struct wf_deal *d, char *text, size_t size)
{
    bool found = false;

    for (int64_t l = 0; l < d->t->shards && !found; l++) {
        int64_t first = l * d->n / d->t->shards;
        weft_batch *b = NULL;

        if (first == (l + 1) * d->n / d->t->shards || weft_dealer_get(d->dealer, d->at, l, &b))
            continue;
        found = find_column(d->t, d->f, b, first, text, size);
        weft_batch_free(b);
    }
    return found;
}

/* ---- once more ------------------------------------------------------------------------------- */

/* It borrows from the trainer that it was made from. */
static void free_second(weft_trainer *s)
{
    if (!s)
        return;
    wf_bound_free(s->bound);
    wf_arena_free(&s->arena);
    wf_free(s->ctx, s);
}

/* A trainer with the settings of t, its own variables, and the saved state. */
static weft_status make_second(const struct wf_nonfinite *n, const weft_trainer *t,
                               weft_trainer **out)
{
    weft_trainer *s = wf_alloc(t->ctx, sizeof *s);
    struct wf_resume all = {.t = s};
    weft_status st;

    if (!s)
        return wf_err_nomem(t->ctx, sizeof *s, "a trainer");
    *s = *t;
    s->bound = NULL;
    s->flying = (struct wf_flying){.failed = -1};
    s->pending = s->drawn = 0;
    s->life = WF_LIFE_NEW;
    s->trap = false;
    s->rate = n->rate;
    wf_arena_init(&s->arena, t->ctx);
    wf_arena_init(&all.arena, t->ctx);
    st = wf_trainer_bind(s, t->bound->label_type, t->bound->weighted);
    if (!st)
        st = wf_resume_list(&all);
    if (!st && all.n_tensors != n->all.n_tensors)
        st = wf_err(WEFT_EBUG, "%lld tensors of %lld", (long long)all.n_tensors,
                    (long long)n->all.n_tensors);
    if (!st)
        st = copy_state(&all, n->copy, false);
    if (!st) {
        weft_fn_set_step(s->bound->fit, n->step);
        wf_pass_begin(s);
        *out = s;
    } else {
        free_second(s);
    }
    wf_free(t->ctx, all.tensor);
    wf_arena_free(&all.arena);
    return st;
}

/* All functions of a step check the results of their ops. */
static weft_status trap_all(weft_trainer *s)
{
    struct wf_work *w;
    weft_status st;

    wf_fn_trap(s->bound->fit, true);
    s->trap = true;
    st = wf_work_get(s, &w);
    if (!st)
        st = weft_work_replicas(w, 1);
    if (!st)
        wf_fn_trap(w->replica[0].fn, true);
    return st;
}

/* One batch; WEFT_ENUMERIC with the error text that names what was found. */
static weft_status again(weft_trainer *s, struct wf_deal *deal, int64_t epoch, bool trap)
{
    char text[256];
    bool any = false;
    weft_status st = wf_deal_next(deal, epoch, &any);

    if (!st && !any)
        st = wf_err(WEFT_EDATA, "the data ended");
    if (st)
        return st;
    if (find_in_batch(deal, text, sizeof text))
        return wf_err(WEFT_ENUMERIC, "%s", text);
    if (trap)
        st = trap_all(s);
    if (!st)
        st = wf_step_dealt(s, deal);
    return st ? st : wf_deal_done(deal);
}

static weft_status repeat(const struct wf_nonfinite *n, weft_trainer *s, int64_t end, weft_data *d,
                          const struct wf_feeding *f, int64_t *at)
{
    int64_t start = wf_now(s->ctx), trapped = end - (s->precision == WEFT_F16 ? 1 : TRAPPED);
    struct wf_deal deal;
    weft_status st = wf_deal_open(&deal, s, d, f, &(struct wf_deal_opts){.epoch = n->epoch});

    if (!st && n->position)
        st = wf_deal_restore(&deal, n->position, n->n_position, n->epoch, n->batch);
    for (*at = n->batch; *at < end && !st; ++*at) {
        st = again(s, &deal, n->epoch, *at >= trapped);
        if (!st && wf_now(s->ctx) - start > MAX_NS)
            st = wf_err(WEFT_ETIME, "it took too long");
        if (st)
            break;
    }
    wf_deal_close(&deal);
    return st;
}

void wf_nonfinite_find(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       weft_data *d)
{
    char why[256] = "";
    weft_trainer *second = NULL;
    int64_t batch = at->batch - 1;
    bool column;
    weft_status st = WEFT_ENOENT;

    n->looked = true;
    column = find_in_batch(at->deal, why, sizeof why);
    if (!column && n->kept && n->epoch == at->epoch) {
        st = make_second(n, t, &second);
        if (!st)
            st = repeat(n, second, at->batch, d, at->deal->f, &batch);
        free_second(second);
        snprintf(why, sizeof why, "%s", weft_error());
    }
    if (!column &&
        st != WEFT_ENUMERIC) /* not saved, another rate meanwhile, or a value that only a kernel
                              * saw */
        snprintf(why, sizeof why, "%s", "train.trap_numerics=true names the op that produces it");
    wf_snprintf(t->nonfinite, sizeof t->nonfinite,
                "the loss is %g since epoch %lld, batch %lld: %s%s; %s", plain(t->mean_sum[0]),
                (long long)at->epoch + 1, (long long)at->batch - 1,
                batch < at->batch - 1 ? "in the previous batch, " : "", why,
                column ? "clean the data" : "try a lower learning rate or clipnorm");
    wf_log(t->ctx, WEFT_LOG_WARN, "%s", t->nonfinite);
}
