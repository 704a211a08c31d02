/* params.c - variables that a strategy holds, for programs that compute by themselves: the object,
 * and its values.
 *
 * The variables are the weights of a model of layers that compute nothing. Its trainer is like any
 * other, so strategies, checkpoints and servers see nothing new; but the contributions of its
 * shards are what the program pushes (struct wf_work, by_hand). */
#include "train/params/params.h"

#include <stdlib.h>

#include "train/saved/save.h"
#include "weft/sys/layer.h"

#define WEIGHT "value"
#define ADDS "sgd learning_rate=1" /* w - 1 · (-increment) has the bits of w + increment */

/* ---- the model ------------------------------------------------------------------------------- */

/* The loss reaches each variable, so that it is trained; nothing is computed from it. */
static weft_status build_parameter(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), w, used;
    const int64_t *dim;
    int rank = weft_lc_ints(c, "shape", &dim);

    w = weft_lc_weight(c, WEIGHT, rank, dim,
                       WEFT_OPTS(weft_weight_opts, .initializer = weft_lc_text(c, "initializer"),
                                 .constraint = weft_lc_text(c, "constraint")));
    used = weft_lc_bool(c, "table") ? weft_embedding(g, w, weft_cast(g, x, WEFT_I32)) : w;
    weft_lc_loss(c, weft_sum(g, used, NULL));
    weft_lc_out(c, 0, x);
    return WEFT_OK;
}

static const weft_layer_kind parameter = {
    .size = sizeof parameter,
    .name = "Parameter",
    .n_in_min = 1,
    .n_in_max = 1,
    .attrs = "shape:l table:b=0 initializer:s=zeros constraint:s=",
    .build = build_parameter,
    .doc = "a variable of parameter calls",
};

static weft_status put_shape(const weft_param *v, char *text, size_t size)
{
    size_t n = 0;

    if (!v->name || v->rank < 0 || v->rank > WEFT_MAX_RANK || (v->rank && !v->dim))
        return wf_err(WEFT_EINVAL, "variable '%s': rank %d; 0 to %d are possible, with their sizes",
                      v->name ? v->name : "?", v->rank, WEFT_MAX_RANK);
    if (v->table && v->rank != 2)
        return wf_err(WEFT_EINVAL, "table '%s': rank %d; a table is [rows, width]", v->name,
                      v->rank);
    *text = '\0';
    for (int i = 0; i < v->rank; i++) {
        if (v->dim[i] < 1)
            return wf_err(WEFT_EINVAL, "variable '%s': size %lld; it must be positive", v->name,
                          (long long)v->dim[i]);
        n += (size_t)wf_snprintf(text + n, size - n, "%s%lld", i ? "," : "", (long long)v->dim[i]);
    }
    return WEFT_OK;
}

static weft_status add_variable(weft_params *p, const weft_param *v, weft_sym *x)
{
    char shape[WEFT_MAX_RANK * 24], attrs[700];
    weft_status st = put_shape(v, shape, sizeof shape);

    if (st)
        return st;
    if (wf_snprintf(attrs, sizeof attrs, "name=%s shape=[%s] table=%s initializer=%s%s%s", v->name,
                    shape, v->table ? "true" : "false", v->initializer ? v->initializer : "zeros",
                    v->constraint ? " constraint=" : "",
                    v->constraint ? v->constraint : "") >= (int)sizeof attrs)
        return wf_err(WEFT_ELIMIT, "variable '%.64s': its description is too long", v->name);
    *x = weft_apply(p->m, "Parameter", attrs, *x);
    return weft_model_status(p->m);
}

static weft_status make_model(weft_params *p, weft_dist *d, const weft_params_opts *o)
{
    weft_sym x;
    weft_status st = weft_model_new(p->ctx, WEFT_OPTS(weft_model_opts, .name = "params"), &p->m);

    if (!st)
        st = weft_layer_register(p->m, &parameter);
    if (st)
        return st;
    x = weft_input(p->m, "(input)", WEFT_F32, 1, (int64_t[]){1});
    for (int i = 0; i < o->n_vars && !st; i++) {
        weft_param v;

        st = wf_opts_take_at(&v, sizeof v, o->vars, i, "weft_param");
        if (!st)
            st = add_variable(p, &v, &x);
    }
    if (st)
        return st;
    weft_model_output(p->m, x);
    st = weft_model_status(p->m);
    return st ? st : weft_dist_scope(d, p->m);
}

/* Of one process, asynchronous: a step of the trainer is one shard. */
static weft_status make_trainer(weft_params *p, const weft_dist *d, const weft_params_opts *o)
{
    bool together = d->kind.compute == wf_servers_compute;
    struct wf_type none = {.dtype = WEFT_NONE};
    weft_status st = weft_compile(
        p->m,
        WEFT_OPTS(weft_compile_opts, .optimizer = p->adds ? ADDS : o->optimizer,
                  .schedule = o->schedule, .shards = p->leased && !together ? 1 : o->shards),
        &p->t);

    if (!st)
        st = wf_trainer_bind(p->t, &none, false);
    if (!st)
        st = wf_work_get(p->t, &p->w);
    if (!st)
        p->w->by_hand = (struct wf_by_hand){wf_params_give, p};
    return st;
}

static weft_status check_opts(const weft_params_opts *o, const weft_dist *d)
{
    if (o->n_vars < 1 || !o->vars)
        return wf_err(WEFT_EINVAL, "parameter calls: %d variables; give one or more", o->n_vars);
    if (o->mode != WEFT_PARAMS_SYNC && o->mode != WEFT_PARAMS_ASYNC)
        return wf_err(WEFT_EINVAL, "parameter calls: there is no mode %d", (int)o->mode);
    if (!o->optimizer && o->schedule)
        return wf_err(WEFT_EINVAL,
                      "parameter calls: a schedule needs an optimizer: increments have "
                      "no learning rate");
    if (d && weft_dist_local_replicas(d) != 1)
        return wf_err(
            WEFT_ENOSUP,
            "parameter calls: strategy '%s' has %d replicas in this process; 1 is possible",
            weft_dist_name(d), weft_dist_local_replicas(d));
    return WEFT_OK;
}

weft_status weft_params_open(weft_ctx *ctx, weft_dist *d, const weft_params_opts *opts,
                             weft_params **out)
{
    weft_params_opts o;
    weft_params *p;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_params_opts");

    if (!st)
        st = check_opts(&o, d);
    if (st)
        return st;
    p = wf_alloc(ctx, sizeof *p);
    if (!p)
        return wf_err_nomem(ctx, sizeof *p, "parameter calls");
    p->ctx = ctx;
    p->shard = o.shard;
    p->shard_arg = o.shard_arg;
    p->computes = -1;
    p->leased = o.mode == WEFT_PARAMS_ASYNC;
    p->adds = !o.optimizer;
    p->sum = o.sum;
    if (!d)
        st = weft_dist_open(ctx, "local", &p->own);
    if (!st)
        st = make_model(p, d ? d : p->own, &o);
    if (!st)
        st = make_trainer(p, d ? d : p->own, &o);
    if (!st)
        st = wf_params_leased_open(p, &o);
    if (!st)
        st = wf_params_files_open(p, &o);
    if (st) {
        wf_err_wrap(st, "parameter calls");
        weft_params_free(p);
        return st;
    }
    *out = p;
    return WEFT_OK;
}

void weft_params_free(weft_params *p)
{
    weft_ctx *ctx;
    char why[512];

    if (!p)
        return;
    ctx = p->ctx;
    wf_snprintf(why, sizeof why, "%s", weft_error()); /* links that end say so */
    for (int64_t i = 0; i < p->n_pushed; i++)
        wf_contribution_free(p->pushed[i].c);
    wf_free(ctx, p->pushed);
    wf_free(ctx, p->asked.id);
    wf_free(ctx, p->asked.row);
    wf_params_files_close(p);
    weft_trainer_free(p->t);
    weft_model_free(p->m);
    weft_dist_free(p->own);
    wf_free(ctx, p);
    wf_err_set(why);
}

/* ---- variables ------------------------------------------------------------------------------- */

int wf_params_name_length(const char *weight)
{
    return (int)(strlen(weight) - strlen("/" WEIGHT));
}

static weft_status no_variable(const weft_params *p, const char *name)
{
    int n = p->w->rules.n_vars;
    const char **names = wf_alloc_n(p->ctx, n + 1, sizeof *names);
    struct wf_hint hint = {""};

    for (int i = 0; i < n && names; i++)
        names[i] = p->w->rules.var[i].name;
    if (names)
        hint = wf_did_you_mean(name, names, n);
    wf_free(p->ctx, names);
    return wf_err(WEFT_ENOENT, "no variable '%s'%s", name, hint.text);
}

weft_status wf_params_find(const weft_params *p, const char *name, int *var)
{
    for (int v = 0; v < p->w->rules.n_vars; v++) {
        const char *weight = p->w->rules.var[v].name;
        size_t n = (size_t)wf_params_name_length(weight);

        if (strncmp(weight, name, n) == 0 && !name[n]) {
            *var = v;
            return WEFT_OK;
        }
    }
    return no_variable(p, name);
}

static weft_status find_dense(const weft_params *p, const char *name, const char *instead, int *var)
{
    weft_status st = wf_params_find(p, name, var);

    return st || !p->w->rules.var[*var].table
               ? st
               : wf_err(WEFT_ESTATE, "'%s' is a table: %s", name, instead);
}

static weft_status check_shape(const struct wf_var *v, const char *name, const weft_tensor *x)
{
    if (x->dtype != WEFT_F32)
        return wf_err(WEFT_EDTYPE, "variable '%s' is f32, the value %s", name,
                      weft_dtype_name(x->dtype));
    if (x->rank != v->rank || memcmp(x->dim, v->dim, (size_t)v->rank * sizeof *v->dim) != 0)
        return wf_err(WEFT_ESHAPE,
                      "variable '%s' has rank %d and %lld elements, the value %d and "
                      "%lld",
                      name, v->rank, (long long)v->count, x->rank, (long long)weft_tensor_count(x));
    return x->data ? WEFT_OK : wf_err(WEFT_EINVAL, "variable '%s': the value has no data", name);
}

weft_status weft_params_get(weft_params *p, const char *name, weft_tensor *out)
{
    struct wf_store *store = p->w->b->fit->store;
    const struct wf_var *v;
    const float *from;
    int var = 0;
    weft_status st = find_dense(p, name, "use weft_params_rows", &var);

    if (!st)
        st = wf_store_pull(store, WF_PART_PARAMS);
    if (st)
        return st;
    v = &p->w->rules.var[var];
    from = p->w->now.params + v->offset;
    if (!out->data) {
        *out = weft_view(WEFT_F32, (void *)(uintptr_t)from, v->rank, v->dim);
        return WEFT_OK;
    }
    st = check_shape(v, name, out);
    if (!st)
        memcpy(out->data, from, (size_t)v->count * sizeof *from);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int by_id(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The distinct ids in rising order: each is requested once. */
static weft_status distinct(weft_params *p, int64_t n, const int64_t *ids, int64_t width)
{
    int64_t k = 0;

    wf_free(p->ctx, p->asked.id);
    wf_free(p->ctx, p->asked.row);
    p->asked.id = wf_alloc_n(p->ctx, n + 1, sizeof *ids);
    p->asked.row = wf_alloc_n(p->ctx, (n + 1) * width, sizeof(float));
    if (!p->asked.id || !p->asked.row)
        return wf_err_nomem(p->ctx, (size_t)n * (size_t)width * sizeof(float), "rows");
    memcpy(p->asked.id, ids, (size_t)n * sizeof *ids);
    qsort(p->asked.id, (size_t)n, sizeof *ids, by_id);
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || p->asked.id[i] != p->asked.id[k - 1])
            p->asked.id[k++] = p->asked.id[i];
    p->asked.n = k;
    return WEFT_OK;
}

/* Rows that the strategy holds. */
static weft_status held_rows(weft_params *p, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids, float *rows)
{
    weft_dist *d = p->t->dist;
    weft_table table = wf_table_of(p->ctx, seg);
    int64_t width = table.width;
    weft_status st = distinct(p, n, ids, width);

    if (!st)
        st = d->kind.need_rows(d->self, &table, weft_trainer_step(p->t), p->computes, p->asked.n,
                               p->asked.id, p->asked.row);
    for (int64_t i = 0; i < n && !st; i++) {
        const int64_t *at = bsearch(&ids[i], p->asked.id, (size_t)p->asked.n, sizeof *ids, by_id);

        memcpy(rows + i * width, p->asked.row + (at - p->asked.id) * width,
               (size_t)width * sizeof *rows);
    }
    return st;
}

weft_status weft_params_rows(weft_params *p, const char *name, int64_t n, const int64_t *ids,
                             float *rows)
{
    struct wf_store *store = p->w->b->fit->store;
    const struct wf_segment *seg;
    const struct wf_var *v;
    const float *from;
    int var = 0;
    weft_status st = wf_params_find(p, name, &var);

    if (st)
        return st;
    v = &p->w->rules.var[var];
    if (!v->table)
        return wf_err(WEFT_ESTATE, "'%s' is not a table: use weft_params_get", name);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= v->dim[0])
            return wf_err(WEFT_ERANGE, "table '%s' has no row %lld: it has %lld", name,
                          (long long)ids[i], (long long)v->dim[0]);
    seg = &store->seg[store->by_number[p->w->segment[var]]];
    if (n <= 0 || p->t->dist->kind.need_rows)
        return n <= 0 ? WEFT_OK : held_rows(p, seg, n, ids, rows);
    st = wf_store_pull(store, WF_PART_TABLES);
    from = wf_store_data(store, seg);
    for (int64_t i = 0; i < n && !st; i++)
        memcpy(rows + i * v->dim[1], from + ids[i] * v->dim[1], (size_t)v->dim[1] * sizeof *rows);
    return st;
}

/* ---- other values ---------------------------------------------------------------------------- */

static weft_status check_values(const weft_params *p, int n, const char *const *names,
                                const weft_tensor *values)
{
    weft_status st = n < 1 ? wf_err(WEFT_EINVAL, "set: %d variables", n) : WEFT_OK;

    for (int i = 0; i < n && !st; i++) {
        int var = 0;

        st = find_dense(p, names[i], "its rows change by pushes", &var);
        if (!st)
            st = check_shape(&p->w->rules.var[var], names[i], &values[i]);
    }
    return st;
}

static void put_values(const weft_params *p, int n, const char *const *names,
                       const weft_tensor *values, float *params)
{
    for (int i = 0; i < n; i++) {
        int var = 0;

        (void)wf_params_find(p, names[i], &var); /* it was found before */
        memcpy(params + p->w->rules.var[var].offset, values[i].data,
               (size_t)p->w->rules.var[var].count * sizeof *params);
    }
}

/* All parameters and the state, as a step of all workers takes them. */
static weft_status put_all(weft_params *p, int n, const char *const *names,
                           const weft_tensor *values, struct wf_buf *b)
{
    const struct wf_store *store = p->w->b->fit->store;
    int64_t n_dense = p->w->rules.n_dense;
    float *copy = wf_alloc_n(p->ctx, n_dense + 1, sizeof *copy);
    weft_status st = copy ? wf_store_pull(p->w->b->fit->store, WF_PART_PARAMS | WF_PART_STATE)
                          : wf_err_nomem(p->ctx, (size_t)n_dense * sizeof *copy, "parameters");

    if (!st) {
        memcpy(copy, p->w->now.params, (size_t)n_dense * sizeof *copy);
        put_values(p, n, names, values, copy);
        wf_put_bytes(b, (const char *)copy, n_dense * (int64_t)sizeof *copy);
        wf_put_bytes(b, store->state, store->n_state);
        st = b->st;
    }
    wf_free(p->ctx, copy);
    return st;
}

static weft_status set_together(weft_params *p, int n, const char *const *names,
                                const weft_tensor *values)
{
    bool again = true, moved = false;
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, p->ctx, INT64_MAX / 4);
    st = put_all(p, n, names, values, &b);
    while (!st && again && !moved) {
        st = wf_params_turn(p, &moved);
        again = false;
        if (!st && !moved)
            st = wf_dist_set(p->t, b.data, b.len, 0, false);
        if (st)
            st = wf_params_turned(p, st, &again, &moved);
    }
    wf_buf_free(&b);
    return st;
}

weft_status weft_params_set(weft_params *p, int n, const char *const *names,
                            const weft_tensor *values)
{
    weft_status st = check_values(p, n, names, values);

    if (!st && p->begun && p->leased)
        return wf_err(WEFT_ENOSUP, "set: in asynchronous training values are given before the "
                                   "first pull or wait: afterwards push increments");
    if (!st && p->begun && wf_dist_together(p->t))
        return set_together(p, n, names, values);
    if (!st)
        st = wf_work_open(p->w, WF_PART_PARAMS);
    if (!st)
        put_values(p, n, names, values, p->w->now.params);
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

weft_status weft_params_save(weft_params *p, const char *path)
{
    if (p->leased && p->begun && !p->ended && wf_dist_together(p->t))
        return wf_err(WEFT_ESTATE,
                      "save: values change all the time in asynchronous training: save "
                      "them when all steps are done, or write checkpoints");
    return wf_trainer_save(p->t, path, false);
}

weft_status weft_params_load(weft_params *p, const char *path)
{
    if (p->begun)
        return wf_err(WEFT_ESTATE,
                      "parameter calls: values are loaded before the first pull or "
                      "wait; the job is at step %lld",
                      (long long)weft_params_step(p));
    return weft_trainer_load_weights(p->t, path, NULL, NULL);
}
