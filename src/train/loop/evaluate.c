/* evaluate.c - evaluate, predict, and single batches; weights by name. */
#include "train/train.h"

/* ---- datasets -------------------------------------------------------------------------------- */

static weft_status open_iter(weft_data *d, const struct wf_feeding *f, const weft_eval_opts *o,
                             weft_iter **out)
{
    return weft_iter_new(
        d, f->ds, WEFT_OPTS(weft_iter_opts, .threads = wf_feeding_threads(d, f->ds, o->threads)),
        out);
}

weft_status weft_evaluate(weft_trainer *t, weft_data *d, weft_ds s, const weft_eval_opts *opts,
                          weft_logs *logs)
{
    weft_eval_opts o;
    struct wf_feeding f;
    struct wf_type *labels = wf_arena_alloc(&d->arena, (size_t)t->n_out * sizeof *labels);
    weft_tensor *feeds = NULL;
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    int64_t steps = 0;
    struct wf_flying outer;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_eval_opts");

    if (!st && !labels)
        st = wf_err_nomem(d->ctx, 0, "labels");
    if (!st)
        st = wf_feeding_find(t, d, s,
                             &(struct wf_feeding_opts){.batch = o.batch, .with_labels = true}, &f);
    if (st)
        return wf_err_wrap(st, "evaluate");
    wf_feeding_labels(t, d, &f, labels);
    st = wf_trainer_bind_test(t, labels, f.weighted);
    if (!st)
        feeds = wf_alloc_n(t->ctx, t->bound->n_feeds_fit + 2, sizeof *feeds);
    if (!st && !feeds)
        st = wf_err_nomem(t->ctx, 0, "evaluate");
    if (!st)
        st = open_iter(d, &f, &o, &it);
    wf_pass_swap(t);
    wf_flying_begin(t, &outer);
    t->flying.on = true;
    if (!st)
        wf_pass_begin(t);
    while (!st && (!o.steps || steps++ < o.steps)) {
        st = weft_iter_next(it, &b);
        if (st || !b)
            break;
        st = wf_feeding_batch(t, &f, b, feeds);
        if (!st)
            st = wf_step_test(t, feeds, b->n, f.weighted);
        weft_batch_free(b);
    }
    st = wf_step_end(t, st);
    wf_flying_end(t, &outer);
    if (!st && t->mean_weight == 0)
        st = wf_err(WEFT_EDATA, "the dataset returned no samples");
    if (!st && logs)
        *logs = wf_pass_logs(t);
    wf_pass_swap(t);
    weft_iter_free(it);
    wf_free(t->ctx, feeds);
    return st ? wf_err_wrap(st, "evaluate") : WEFT_OK;
}

weft_status weft_predict(weft_trainer *t, weft_data *d, weft_ds s, const weft_eval_opts *opts,
                         weft_predict_fn *fn, void *arg)
{
    weft_eval_opts o;
    struct wf_feeding f;
    weft_tensor *feeds = NULL, *out = NULL;
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    int64_t steps = 0, n_samples = 0;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_eval_opts");

    if (!st)
        st = wf_feeding_find(t, d, s, &(struct wf_feeding_opts){.batch = o.batch}, &f);
    if (!st)
        st = wf_trainer_bind_predict(t);
    if (st)
        return wf_err_wrap(st, "predict");
    feeds = wf_alloc_n(t->ctx, f.n_in + t->n_out + 1, sizeof *feeds);
    out = wf_alloc_n(t->ctx, t->n_out, sizeof *out);
    st = feeds && out ? open_iter(d, &f, &o, &it) : wf_err_nomem(t->ctx, 0, "predict");
    while (!st && (!o.steps || steps++ < o.steps)) {
        st = weft_iter_next(it, &b);
        if (st || !b)
            break;
        for (int i = 0; i < t->n_out; i++)
            out[i] = (weft_tensor){.data = NULL};
        st = wf_states_check(t, b->n);
        if (!st)
            st = wf_feeding_batch(t, &f, b, feeds);
        if (!st)
            st = wf_run_aside(t->bound->predict, feeds, out);
        if (!st)
            st = fn(arg, b, t->n_out, out);
        n_samples += b->n;
        weft_batch_free(b);
    }
    if (!st && n_samples == 0)
        st = wf_err(WEFT_EDATA, "the dataset returned no samples");
    weft_iter_free(it);
    wf_free(t->ctx, feeds);
    wf_free(t->ctx, out);
    return st ? wf_err_wrap(st, "predict") : WEFT_OK;
}

/* ---- batches by hand ------------------------------------------------------------------------- */

/* Rows are sliced and counted by those of the first input: everything that is fed must have as
 * many. */
static weft_status check_rows(int n, const weft_tensor *feeds)
{
    for (int i = 0; i < n; i++)
        if (feeds[i].rank < 1 || feeds[i].dim[0] != feeds[0].dim[0])
            return wf_err(WEFT_ESHAPE,
                          "a batch: its first tensor has %lld samples, but tensor %d has %lld",
                          feeds[0].rank < 1 ? 0LL : (long long)feeds[0].dim[0], i,
                          feeds[i].rank < 1 ? 0LL : (long long)feeds[i].dim[0]);
    return WEFT_OK;
}

weft_status wf_batch_feeds(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                           const weft_tensor *w, bool fit, weft_tensor **out)
{
    int n_in = weft_model_n_inputs(t->model), n = 0, k = 0;
    weft_tensor *feeds = wf_alloc_n(t->ctx, n_in + t->n_out + 2, sizeof *feeds);
    struct wf_type *labels = wf_alloc_n(t->ctx, t->n_out, sizeof *labels);
    weft_status st = feeds && labels ? WEFT_OK : wf_err_nomem(t->ctx, 0, "a batch");

    for (int i = 0; i < n_in && !st; i++)
        feeds[n++] = x[i];
    for (int i = 0; i < t->n_out && !st; i++) {
        labels[i] = (struct wf_type){.dtype = WEFT_NONE};
        if (!wf_output_needs_label(t, i))
            continue;
        feeds[n++] = y[k];
        labels[i] = wf_type_of(y[k].dtype, y[k].rank, y[k].dim);
        labels[i].dim[0] = WEFT_ANY;
        k++;
    }
    if (!st && w)
        feeds[n++] = *w;
    if (!st)
        st = check_rows(n, feeds);
    if (!st)
        st = fit ? wf_trainer_bind(t, labels, w != NULL)
                 : wf_trainer_bind_test(t, labels, w != NULL);
    wf_free(t->ctx, labels);
    if (st) {
        wf_free(t->ctx, feeds);
        return st;
    }
    *out = feeds;
    return WEFT_OK;
}

static weft_status on_batch(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                            const weft_tensor *w, bool fit, weft_logs *logs)
{
    weft_tensor *feeds = NULL;
    weft_status st = wf_life_allows(t, fit ? WF_CALL_TRAIN : WF_CALL_EVALUATE);

    if (!st)
        st = wf_batch_feeds(t, x, y, w, fit, &feeds);

    if (st)
        return st;
    if (!fit)
        wf_pass_swap(t);
    wf_pass_begin(t);
    st = fit ? wf_step_fit(t, feeds, x[0].dim[0]) : wf_step_test(t, feeds, x[0].dim[0], w != NULL);
    if (!st && logs)
        *logs = fit ? wf_train_logs(t) : wf_pass_logs(t);
    if (!fit)
        wf_pass_swap(t);
    wf_free(t->ctx, feeds);
    return st;
}

weft_status weft_train_on_batch(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                                const weft_tensor *w, weft_logs *logs)
{
    return on_batch(t, x, y, w, true, logs);
}

weft_status weft_test_on_batch(weft_trainer *t, const weft_tensor *x, const weft_tensor *y,
                               const weft_tensor *w, weft_logs *logs)
{
    return on_batch(t, x, y, w, false, logs);
}

weft_status weft_predict_on_batch(weft_trainer *t, const weft_tensor *x, weft_tensor *out)
{
    weft_status st = wf_trainer_bind_predict(t);

    if (!st && x[0].rank > 0)
        st = wf_states_check(t, x[0].dim[0]);
    return st ? st : wf_run_aside(t->bound->predict, x, out);
}

/* ---- weights --------------------------------------------------------------------------------- */

int weft_trainer_n_weights(const weft_trainer *t)
{
    return wf_model_n_weights(t->model);
}

const char *weft_trainer_weight_name(const weft_trainer *t, int i)
{
    return i >= 0 && i < wf_model_n_weights(t->model) ? wf_model_weight(t->model, i)->name : NULL;
}

static weft_status any_fn(weft_trainer *t, weft_fn **out)
{
    weft_status st = wf_trainer_bind_predict(t);

    if (!st)
        *out = t->bound->fit ? t->bound->fit : t->bound->predict;
    return st;
}

weft_status weft_trainer_weight(weft_trainer *t, const char *name, weft_tensor *out)
{
    weft_fn *fn;
    weft_status st = any_fn(t, &fn);

    return st ? st : weft_fn_view(fn, name, out);
}

weft_status weft_trainer_set_weight(weft_trainer *t, const char *name, const weft_tensor *value)
{
    weft_fn *fn;
    weft_status st = any_fn(t, &fn);

    return st ? st : weft_fn_set(fn, name, value);
}
