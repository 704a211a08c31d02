/* placed.c - which parameter server holds which variable: scopes and rules, and the same in
 * words. */
#include "train/step/dist.h"

struct wf_place_rule wf_servers_rule(const weft_ctx *ctx, const weft_ps_opts *o)
{
    return (struct wf_place_rule){.kind = (enum wf_placing)o->placement,
                                  .fn = o->place,
                                  .arg = o->place_arg,
                                  .soft = ctx->soft_placement};
}

static weft_status check_rule(const struct wf_place_rule *rule)
{
    if ((int)rule->kind < WF_PLACE_EVEN || rule->kind > WF_PLACE_GREEDY)
        return wf_err(WEFT_EINVAL, "weft_ps_opts: placement %d; 0 to %d exist", (int)rule->kind,
                      WF_PLACE_GREEDY);
    return WEFT_OK;
}

static const char *device_of(void *arg, int var)
{
    const struct wf_work *w = arg;

    return wf_model_weight_device(w->t->model, w->weight[var]);
}

weft_status wf_servers_place(weft_work *w, int n_servers, const struct wf_place_rule *rule)
{
    weft_status st = check_rule(rule);

    return st ? st : wf_ps_place(w->ctx, &w->rules, n_servers, rule, device_of, w);
}

/* ---- before there is a job ------------------------------------------------------------------- */

/* The variables that a model trains, in its order. */
struct listed {
    const weft_model *m;
    struct wf_rules rules;
    int *weight; /* by variable */
};

static const char *listed_device(void *arg, int var)
{
    const struct listed *l = arg;

    return wf_model_weight_device(l->m, l->weight[var]);
}

static weft_status list_model(weft_ctx *ctx, const weft_model *m, struct listed *l)
{
    int n = wf_model_n_weights(m);

    l->m = m;
    l->rules.var = wf_alloc_n(ctx, n + 1, sizeof *l->rules.var);
    l->weight = wf_alloc_n(ctx, n + 1, sizeof *l->weight);
    if (!l->rules.var || !l->weight)
        return wf_err_nomem(ctx, (size_t)n * sizeof *l->rules.var, "placement");
    for (int i = 0; i < n; i++) {
        const struct wf_weight *w = wf_model_weight(m, i);
        struct wf_var *v = &l->rules.var[l->rules.n_vars];

        if (w->state || weft_layer_frozen(m, w->layer))
            continue;
        *v = (struct wf_var){.name = w->name,
                             .rank = w->rank,
                             .count = 1,
                             .offset = l->rules.n_dense,
                             .table = !w->dense && !w->regularizer &&
                                      strcmp(weft_layer_kind_name(m, w->layer), "Embedding") == 0};
        if (v->table) /* where rows go does not depend on their values */
            v->init.kind = "zeros";
        for (int k = 0; k < w->rank; k++) {
            v->dim[k] = w->dim[k];
            v->count *= w->dim[k];
        }
        l->weight[l->rules.n_vars++] = i;
        l->rules.n_dense += v->table ? 0 : wf_round_up(v->count, 16);
    }
    return WEFT_OK;
}

/* The tasks of a cluster, or servers without addresses. */
static weft_status list_tasks(weft_ctx *ctx, const weft_ps_opts *o, struct wf_spec *spec)
{
    int n = o->servers ? o->servers : 1;
    struct wf_task *task;

    if (o->cluster)
        return wf_spec_parse(ctx, o->cluster, spec);
    if (n < 1 || n > WF_PS_MAX_SERVERS)
        return wf_err(WEFT_EINVAL, "parameter servers: %d servers", o->servers);
    task = wf_alloc_n(ctx, n, sizeof *task);
    if (!task)
        return wf_err_nomem(ctx, (size_t)n * sizeof *task, "placement");
    for (int i = 0; i < n; i++) {
        task[i] = (struct wf_task){.role = WF_ROLE_SERVER, .index = i, .process = i};
        wf_snprintf(task[i].name, sizeof task[i].name, "ps/%d", i);
    }
    spec->task = task;
    spec->n_tasks = n;
    return WEFT_OK;
}

weft_status weft_ps_explain(const weft_model *m, const weft_ps_opts *opts, char **out)
{
    weft_ctx *ctx = wf_model_ctx(m);
    struct wf_place_rule rule;
    struct wf_spec spec = {0};
    struct listed l = {0};
    struct wf_buf b;
    weft_ps_opts o;
    int n_servers, n_copies;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ps_opts");

    wf_buf_init(&b, ctx, 16 << 20);
    rule = wf_servers_rule(ctx, &o);
    if (!st)
        st = check_rule(&rule);
    if (!st)
        st = list_tasks(ctx, &o, &spec);
    n_servers = wf_spec_count(&spec, WF_ROLE_SERVER);
    if (!st)
        st = wf_servers_copies(&o, n_servers, &n_copies);
    if (!st)
        st = list_model(ctx, m, &l);
    if (!st)
        st = wf_ps_place(ctx, &l.rules, n_servers, &rule, listed_device, &l);
    if (!st)
        st = wf_ps_explain(ctx, &l.rules, o.piece_bytes ? o.piece_bytes : WF_PIECE_BYTES, &spec,
                           n_copies, &b);
    wf_free(ctx, l.rules.var);
    wf_free(ctx, l.weight);
    wf_free(ctx, (void *)(uintptr_t)spec.task);
    if (st)
        wf_buf_free(&b);
    else
        *out = b.data;
    return st;
}
