/* custom.c - losses and metrics that a user registered in a model, as rows like those of the
 * tables.
 *
 * Rows live in the model's arena: a trainer, which the model outlives, may point to them. */
#include <stdio.h>

#include "model/core.h"
#include "model/metric.h"
#include "weft/ops.h"

/* ---- what a function of the user's asks ------------------------------------------------------ */

struct weft_loss_call {
    weft_graph *g;
    const char *name;
    weft_val y, pred, weight;
    struct wf_args args;
};

weft_graph *weft_loss_graph(weft_loss_call *c)
{
    return c->g;
}

weft_val weft_loss_label(const weft_loss_call *c)
{
    return c->y;
}

weft_val weft_loss_pred(const weft_loss_call *c)
{
    return c->pred;
}

weft_val weft_loss_weight(const weft_loss_call *c)
{
    return c->weight;
}

int64_t weft_loss_int(const weft_loss_call *c, const char *attr)
{
    return wf_arg_int(&c->args, attr);
}

double weft_loss_float(const weft_loss_call *c, const char *attr)
{
    return wf_arg_float(&c->args, attr);
}

bool weft_loss_bool(const weft_loss_call *c, const char *attr)
{
    return wf_arg_int(&c->args, attr) != 0;
}

const char *weft_loss_text(const weft_loss_call *c, const char *attr)
{
    return wf_arg_text(&c->args, attr);
}

int weft_loss_ints(const weft_loss_call *c, const char *attr, const int64_t **out)
{
    const struct wf_attr *a = wf_arg(&c->args, attr);

    *out = a->ints;
    return a->n;
}

int weft_loss_floats(const weft_loss_call *c, const char *attr, const double **out)
{
    const struct wf_attr *a = wf_arg(&c->args, attr);

    *out = a->floats;
    return a->n;
}

weft_val weft_loss_fail(weft_loss_call *c, weft_status st, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    wf_errv(st, fmt, args);
    va_end(args);
    if (c->g && !c->g->st)
        wf_graph_fail(c->g, st); /* later builders do nothing, and the first text stays */
    return WEFT_NIL;
}

/* The user's function on a call. It must give a value or fail, and it may do no harm by doing
 * neither. */
static weft_val run(weft_loss_call *c, weft_val (*build)(weft_loss_call *c))
{
    weft_val v = build(c);

    if (!c->g->st && !v.id)
        return weft_loss_fail(c, WEFT_EINVAL, "its build function returned no value");
    return v;
}

static weft_val user_loss(struct wf_loss *l)
{
    weft_loss_call c = {l->g, l->kind->name, l->y, l->pred, WEFT_NIL, l->args};

    return run(&c, l->kind->user->build);
}

/* ---- the family of a user's metrics ---------------------------------------------------------- */

static weft_status user_init(struct wf_metric *m, const struct wf_args *args,
                             const struct wf_type *y, const struct wf_type *pred)
{
    (void)args, (void)y, (void)pred;
    m->n_state = m->kind->user->n_sums ? m->kind->user->n_sums : 2;
    return WEFT_OK;
}

static weft_val user_build(struct wf_metric_batch *b)
{
    const weft_metric_kind *kind = b->m->kind->user;
    weft_loss_call c = {b->g, b->m->kind->name, b->y, b->pred, WEFT_NIL, b->args};
    weft_val v;

    if (kind->n_sums)
        c.weight = b->weight;
    if (wf_fit_labels(b->g, c.name, kind->labels, &c.y, &c.pred))
        return WEFT_NIL;
    v = run(&c, kind->build);
    if (b->g->st || kind->n_sums)
        return v;
    if (wf_val_type_of(b->g, v)->rank < 1)
        return weft_loss_fail(&c, WEFT_ESHAPE, "one value for each sample is needed, not a scalar");
    return wf_metric_mean_of(b->g, wf_as_float(b->g, v), b->weight);
}

static void user_result(const struct wf_metric *m, const struct wf_args *args, const double *sums,
                        double *out)
{
    weft_loss_call c = {NULL, m->kind->name, WEFT_NIL, WEFT_NIL, WEFT_NIL, *args};

    *out = m->kind->user->n_sums ? m->kind->user->result(&c, sums) : wf_ratio(sums[0], sums[1]);
}

const struct wf_metric_family wf_metric_user = {NULL, user_init, user_build, user_result, NULL};

/* ---- looking up ------------------------------------------------------------------------------ */

const struct wf_loss_kind *wf_user_loss_of(const weft_model *m, const char *word)
{
    for (int64_t i = 0; m && i < m->n_user_losses; i++)
        if (wf_kind_is(word, m->user_losses[i]->name, ""))
            return m->user_losses[i];
    return NULL;
}

const struct wf_metric_kind *wf_user_metric_of(const weft_model *m, const char *word)
{
    for (int64_t i = 0; m && i < m->n_user_metrics; i++)
        if (wf_kind_is(word, m->user_metrics[i]->name, ""))
            return m->user_metrics[i];
    return NULL;
}

int wf_user_loss_names(const weft_model *m, int room, const char **names)
{
    int n = 0;

    for (int64_t i = 0; m && i < m->n_user_losses && n < room; i++)
        names[n++] = m->user_losses[i]->name;
    return n;
}

int wf_user_metric_names(const weft_model *m, int room, const char **names)
{
    int n = 0;

    for (int64_t i = 0; m && i < m->n_user_metrics && n < room; i++)
        names[n++] = m->user_metrics[i]->name;
    return n;
}

/* ---- registering ----------------------------------------------------------------------------- */

/* Name, arguments and function of a kind; word: its name as it is looked up. */
static weft_status check_kind(weft_model *m, const char *what, const char *name, const char *attrs,
                              bool has_build, char word[WF_MAX_KIND_NAME])
{
    struct wf_attr_spec spec[WF_MAX_ATTRS] = {0};
    const char *rest;
    int n;

    if (!name || !*name || strlen(name) >= WF_MAX_KIND_NAME || strpbrk(name, " \t,;=\"\\") ||
        !wf_kind_word(name, word, &rest))
        return wf_err(WEFT_EINVAL,
                      "a %s needs a name of 1 to %d characters without spaces, commas, "
                      "semicolons and quotes",
                      what, WF_MAX_KIND_NAME - 1);
    if (!has_build)
        return wf_err(WEFT_EINVAL, "%s '%s' needs a build function", what, name);
    return wf_attr_specs(&m->arena, name, attrs ? attrs : "", spec, &n);
}

weft_status weft_loss_register(weft_model *m, const weft_loss_kind *given)
{
    char word[WF_MAX_KIND_NAME];
    weft_loss_kind taken, *kind = &taken, *copy;
    struct wf_loss_kind *row;
    weft_status st = wf_opts_take(kind, sizeof *kind, given, "weft_loss_kind");

    if (!st)
        st = check_kind(m, "loss", kind->name, kind->attrs, kind->build != NULL, word);
    if (st)
        return st;
    if (kind->labels < WEFT_LABELS_VALUES || kind->labels > WEFT_LABELS_NUMBERS)
        return wf_err(WEFT_EINVAL, "loss '%s': labels %d is not one of weft_labels", kind->name,
                      kind->labels);
    if (wf_loss_kind_of(m, word) || wf_loss_is_reserved(word))
        return wf_err(WEFT_EEXIST, "loss '%s': the name is taken", kind->name);
    copy = wf_arena_alloc(&m->arena, sizeof *copy);
    row = wf_arena_alloc(&m->arena, sizeof *row);
    if (!copy || !row)
        return wf_err_nomem(m->ctx, sizeof *row, "loss kind");
    *copy = *kind;
    *row = (struct wf_loss_kind){.name = kind->name,
                                 .shorts = "",
                                 .attrs = kind->attrs ? kind->attrs : "",
                                 .fn = user_loss,
                                 .labels = kind->labels,
                                 .doc = kind->doc ? kind->doc : "",
                                 .user = copy};
    st = wf_grow(m->ctx, &m->user_losses, &m->cap_user_losses, m->n_user_losses + 1,
                 sizeof *m->user_losses);
    if (!st)
        m->user_losses[m->n_user_losses++] = row;
    return st;
}

static weft_status check_metric(const weft_metric_kind *kind)
{
    if (kind->labels < WEFT_LABELS_VALUES || kind->labels > WEFT_LABELS_NUMBERS)
        return wf_err(WEFT_EINVAL, "metric '%s': labels %d is not one of weft_labels", kind->name,
                      kind->labels);
    if (kind->n_sums < 0 || kind->n_sums > WF_METRIC_MAX_SUMS)
        return wf_err(WEFT_EINVAL, "metric '%s': n_sums %d is not in 0 to %d", kind->name,
                      kind->n_sums, WF_METRIC_MAX_SUMS);
    if (kind->n_sums && !kind->result)
        return wf_err(WEFT_EINVAL, "metric '%s': %d sums need a result function", kind->name,
                      kind->n_sums);
    if (kind->direction < -1 || kind->direction > 1)
        return wf_err(WEFT_EINVAL, "metric '%s': direction %d is not -1, 0 or 1", kind->name,
                      kind->direction);
    return WEFT_OK;
}

weft_status weft_metric_register(weft_model *m, const weft_metric_kind *given)
{
    char word[WF_MAX_KIND_NAME], log_name[WF_MAX_LAYER_NAME];
    weft_metric_kind taken, *kind = &taken, *copy;
    struct wf_metric_kind *row;
    weft_status st = wf_opts_take(kind, sizeof *kind, given, "weft_metric_kind");

    if (!st)
        st = check_kind(m, "metric", kind->name, kind->attrs, kind->build != NULL, word);
    if (!st)
        st = check_metric(kind);
    if (st)
        return st;
    if (wf_metric_kind_of(m, word) || wf_metric_is_reserved(word))
        return wf_err(WEFT_EEXIST, "metric '%s': the name is taken", kind->name);
    wf_snake_case(kind->name, log_name);
    copy = wf_arena_alloc(&m->arena, sizeof *copy);
    row = wf_arena_alloc(&m->arena, sizeof *row);
    if (!copy || !row)
        return wf_err_nomem(m->ctx, sizeof *row, "metric kind");
    *copy = *kind;
    *row = (struct wf_metric_kind){.name = kind->name,
                                   .log_name = wf_arena_strdup(&m->arena, log_name),
                                   .shorts = "",
                                   .attrs = kind->attrs ? kind->attrs : "",
                                   .family = &wf_metric_user,
                                   .direction = kind->direction,
                                   .doc = kind->doc ? kind->doc : "",
                                   .user = copy};
    if (!row->log_name)
        return wf_err_nomem(m->ctx, sizeof log_name, "metric kind");
    st = wf_grow(m->ctx, &m->user_metrics, &m->cap_user_metrics, m->n_user_metrics + 1,
                 sizeof *m->user_metrics);
    if (!st)
        m->user_metrics[m->n_user_metrics++] = row;
    return st;
}

weft_status wf_user_kinds_copy(const weft_model *from, weft_model *to)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < from->n_user && !st; i++)
        st = weft_layer_register(to, &from->user_kinds[i]);
    for (int64_t i = 0; i < from->n_user_losses && !st; i++)
        st = weft_loss_register(to, from->user_losses[i]->user);
    for (int64_t i = 0; i < from->n_user_metrics && !st; i++)
        st = weft_metric_register(to, from->user_metrics[i]->user);
    return st;
}
