/* model.c - the weights of a model as variables of parameter calls: workers that train by
 * themselves, and merge what has changed. */
#include "train/params/params.h"

#define MAX_WEIGHT_NAME 256

/* Names of variables have no slashes. */
static weft_status name_of(const struct wf_weight *w, char *name)
{
    if (strlen(w->name) >= MAX_WEIGHT_NAME)
        return wf_err(WEFT_ELIMIT, "weight '%.64s…': its name is too long", w->name);
    strcpy(name, w->name);
    for (char *p = name; *p; p++)
        if (*p == '/')
            *p = '.';
    return WEFT_OK;
}

static bool is_merged(const struct wf_weight *w)
{
    return w->dtype == WEFT_F32 || w->dtype == WEFT_NONE;
}

/* Calls fn for each weight that is merged. */
typedef weft_status weight_fn(void *arg, weft_params *p, const char *name,
                              const weft_tensor *value);

static weft_status each_weight(weft_params *p, weft_trainer *t, weight_fn *fn, void *arg)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < wf_model_n_weights(t->model) && !st; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);
        char name[MAX_WEIGHT_NAME];
        weft_tensor value;

        if (!is_merged(w))
            continue;
        st = name_of(w, name);
        if (!st)
            st = weft_trainer_weight(t, w->name, &value);
        if (!st)
            st = fn(arg, p, name, &value);
    }
    return st;
}

static weft_status set_first(void *arg, weft_params *p, const char *name, const weft_tensor *value)
{
    (void)arg;
    return weft_params_set(p, 1, &name, value);
}

weft_status weft_params_open_model(weft_ctx *ctx, weft_dist *d, weft_trainer *t,
                                   const weft_params_opts *opts, weft_params **out)
{
    int n = wf_model_n_weights(t->model);
    weft_param *vars = wf_alloc_n(ctx, n + 1, sizeof *vars);
    char(*names)[MAX_WEIGHT_NAME] = wf_alloc_n(ctx, n + 1, sizeof *names);
    weft_params *p = NULL;
    weft_params_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_params_opts");

    if (!st && (!vars || !names))
        st = wf_err_nomem(ctx, (size_t)n * sizeof *names, "variables");
    if (!st && (o.n_vars || o.optimizer))
        st = wf_err(WEFT_EINVAL, "parameter calls: the variables are the model's weights, and its "
                                 "trainer has the optimizer: leave vars and optimizer out");
    for (int i = 0; i < n && !st; i++) {
        const struct wf_weight *w = wf_model_weight(t->model, i);

        if (!is_merged(w))
            continue;
        st = name_of(w, names[i]);
        vars[o.n_vars++] =
            (weft_param){.size = sizeof *vars, .name = names[i], .rank = w->rank, .dim = w->dim};
    }
    o.size = sizeof o;
    o.vars = vars;
    if (!st)
        st = weft_params_open(ctx, d, &o, &p);
    if (!st)
        st = each_weight(p, t, set_first, NULL);
    wf_free(ctx, names);
    wf_free(ctx, vars);
    if (st) {
        weft_params_free(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

static weft_status take(void *arg, weft_params *p, const char *name, const weft_tensor *value)
{
    weft_tensor to = *value;

    (void)arg;
    return weft_params_get(p, name, &to);
}

weft_status weft_params_to_trainer(weft_params *p, weft_trainer *t)
{
    return each_weight(p, t, take, NULL);
}

/* What the value has changed by since it was taken. */
static weft_status push_change(void *arg, weft_params *p, const char *name,
                               const weft_tensor *value)
{
    int64_t n = weft_tensor_count(value);
    weft_tensor was = {.data = NULL}, change = *value;
    float *x = wf_alloc_n(p->ctx, n + 1, sizeof *x);
    weft_status st = x ? weft_params_get(p, name, &was)
                       : wf_err_nomem(p->ctx, (size_t)n * sizeof *x, "an increment");

    for (int64_t i = 0; i < n && !st; i++)
        x[i] = ((const float *)value->data)[i] - ((const float *)was.data)[i];
    change.data = x;
    if (!st)
        st = weft_params_push(p, *(const int64_t *)arg, name, &change);
    wf_free(p->ctx, x);
    return st;
}

weft_status weft_params_push_trainer(weft_params *p, int64_t shard, weft_trainer *t)
{
    if (!p->adds)
        return wf_err(WEFT_ESTATE, "push: what a trainer has changed are increments, and these "
                                   "variables have an optimizer");
    return each_weight(p, t, push_change, &shard);
}
