/* nonfinite.c - which column or op made the first NaN or infinity of a loss.
 *
 * By the time a loss is seen, the step has changed the weights, and the number may even have been made by the gradients of an
 * earlier step. So the state is kept when an epoch begins, and the batches since are computed once more from it by a trainer of
 * its own: the same bits, this time with every op looked at. The trainer that fits is not touched. */
#include <math.h>
#include <stdio.h>

#include "train/step/halves.h"
#include "train/loop/nonfinite.h"

#define MAX_COPY ((int64_t)64 << 20)      /* of a state that is kept */
#define MAX_NS ((int64_t)60 * 1000000000) /* that computing again may take */
/* The last batches, in which every op is looked at: the loss of one may come from the update before. In f16 gradients that
 * overflow are no mistake of the step before, which was skipped. */
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

/* The tensors of `all` out of or into the copy. */
static void copy_state(const struct wf_resume *all, char *copy, bool out)
{
    for (int64_t i = 0; i < all->n_tensors; i++) {
        const weft_tensor *w = &all->tensor[i].tensor;
        size_t bytes = (size_t)weft_tensor_bytes(w);

        if (bytes && out)
            memcpy(copy, w->data, bytes);
        else if (bytes)
            memcpy(w->data, copy, bytes);
        copy += bytes;
    }
}

void wf_nonfinite_keep(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       weft_iter *it)
{
    if (n->looked || t->trap) /* a trainer that traps says it by itself */
        return;
    if (!n->listed)
        list_state(n, t);
    weft_text_free(t->ctx, n->position);
    n->position = NULL;
    n->kept = n->copy && (!it || !weft_iter_save(it, &n->position, &n->n_position));
    if (!n->kept)
        return;
    copy_state(&n->all, n->copy, true);
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

/* A NaN has no sign for those who read it. */
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

/* Says of the batch's columns that are fed which has such a value. */
static bool find_column(const weft_trainer *t, const struct wf_feeding *f, const weft_batch *b,
                        char *text, size_t size)
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
                        b->column[c].name, plain(v), (long long)row);
        return true;
    }
    return false;
}

/* ---- once more ------------------------------------------------------------------------------- */

/* It borrows from the trainer that it was made of. */
static void free_second(weft_trainer *s)
{
    if (!s)
        return;
    wf_parts_free(s->parts);
    wf_bound_free(s->bound);
    wf_arena_free(&s->arena);
    wf_free(s->ctx, s);
}

/* A trainer with the settings of t, its own variables, and the state that was kept. */
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
    s->parts = NULL;
    s->pending = s->drawn = 0;
    s->life = WF_LIFE_NEW;
    s->trap = false;
    s->rate = n->rate;
    wf_arena_init(&s->arena, t->ctx);
    wf_arena_init(&all.arena, t->ctx);
    st = wf_trainer_bind(s, t->bound->label_type, t->bound->weighted);
    if (!st && t->parts)
        st = wf_parts_new(s, &s->parts);
    if (!st)
        st = wf_resume_list(&all);
    if (!st && all.n_tensors != n->all.n_tensors)
        st = wf_err(WEFT_EBUG, "%lld tensors of %lld", (long long)all.n_tensors,
                    (long long)n->all.n_tensors);
    if (!st) {
        copy_state(&all, n->copy, false);
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

/* All functions of a step look at what their ops make. */
static weft_status trap_all(weft_trainer *s)
{
    struct wf_halves *h = NULL;
    weft_status st;

    wf_fn_trap(s->bound->fit, true);
    if (!s->parts) /* steps are whole */
        return WEFT_OK;
    st = wf_halves_get(s, &h);
    for (int i = 0; !st && i < h->n_groups; i++)
        wf_fn_trap(h->half[i].fn, true);
    if (!st && h->regularize.fn)
        wf_fn_trap(h->regularize.fn, true);
    for (int i = 0; !st && i < WF_MAX_UPDATES; i++)
        if (h->update[i].fn)
            wf_fn_trap(h->update[i].fn, true);
    return st;
}

/* One batch; WEFT_ENUMERIC with the error text that names what was found. */
static weft_status again(weft_trainer *s, const struct wf_feeding *f, const weft_batch *b,
                         weft_tensor *feeds, bool trap)
{
    char text[256];
    weft_status st = wf_feeding_batch(s, f, b, feeds);

    if (st)
        return st;
    if (find_column(s, f, b, text, sizeof text))
        return wf_err(WEFT_ENUMERIC, "%s", text);
    if (trap)
        st = trap_all(s);
    return st ? st : wf_step_fit(s, feeds, b->n);
}

static weft_status repeat(const struct wf_nonfinite *n, weft_trainer *s, int64_t end, weft_data *d,
                          const struct wf_feeding *f, int64_t *at)
{
    int64_t start = wf_now(s->ctx), trapped = end - (s->precision == WEFT_F16 ? 1 : TRAPPED);
    weft_tensor *feeds = wf_alloc_n(s->ctx, s->bound->n_feeds_fit + 2, sizeof *feeds);
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_status st = feeds ? WEFT_OK : wf_err_nomem(s->ctx, 0, "a batch");

    if (!st)
        st = weft_iter_new(d, f->ds, WEFT_OPTS(weft_iter_opts, .epoch = n->epoch), &it);
    if (!st && n->position)
        st = weft_iter_restore(it, n->position, n->n_position);
    for (*at = n->batch; *at < end && !st; ++*at) {
        st = weft_iter_next(it, &b);
        if (!st && !b)
            st = wf_err(WEFT_EDATA, "the data has ended");
        if (!st)
            st = again(s, f, b, feeds, *at >= trapped);
        weft_batch_free(b);
        b = NULL;
        if (!st && wf_now(s->ctx) - start > MAX_NS)
            st = wf_err(WEFT_ETIME, "it takes too long");
        if (st)
            break;
    }
    weft_iter_free(it);
    wf_free(s->ctx, feeds);
    return st;
}

void wf_nonfinite_find(struct wf_nonfinite *n, weft_trainer *t, const struct wf_fit_state *at,
                       weft_data *d, const struct wf_feeding *f, const weft_batch *b)
{
    char why[256] = "";
    weft_trainer *second = NULL;
    int64_t batch = at->batch - 1;
    bool column;
    weft_status st = WEFT_ENOENT;

    n->looked = true;
    column = find_column(t, f, b, why, sizeof why);
    if (!column && n->kept && n->epoch == at->epoch) {
        st = make_second(n, t, &second);
        if (!st)
            st = repeat(n, second, at->batch, d, f, &batch);
        free_second(second);
        snprintf(why, sizeof why, "%s", weft_error());
    }
    if (!column &&
        st !=
            WEFT_ENUMERIC) /* not kept, another rate on the way, or a number that only a kernel saw */
        snprintf(why, sizeof why, "%s", "train.trap_numerics=true names the op that makes it");
    wf_snprintf(t->nonfinite, sizeof t->nonfinite,
                "the loss is %g since epoch %lld, batch %lld: %s%s; %s", plain(t->mean_sum[0]),
                (long long)at->epoch + 1, (long long)at->batch - 1,
                batch < at->batch - 1 ? "in the batch before, " : "", why,
                column ? "clean the data" : "a lower learning rate or clipnorm may help");
    wf_log(t->ctx, WEFT_LOG_WARN, "%s", t->nonfinite);
}
