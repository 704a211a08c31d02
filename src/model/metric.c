/* metric.c - metrics by name: the table, and the functions that the trainer calls. */
#include "model/metric.h"

#include <stdio.h>

#include "weft/ops.h"

static const struct wf_metric_kind kinds[] = {
#define METRIC(name_, log_, shorts_, attrs_, family_, variant_, direction_, doc_) \
    {#name_, log_, shorts_, attrs_, &wf_metric_##family_, variant_, direction_, doc_, NULL},
#include "model/metrics.def"
#undef METRIC
};

/* ---- rows ------------------------------------------------------------------------------------ */

const struct wf_loss_kind *wf_metric_loss_of(const struct wf_metric_kind *kind)
{
    char word[WF_MAX_KIND_NAME];
    const char *rest;

    if (kind->family == &wf_metric_loss && kind->variant == LOSS_EXP)
        return wf_loss_kind_of(NULL, "sparsecategoricalcrossentropy");
    return wf_kind_word(kind->name, word, &rest) ? wf_loss_kind_of(NULL, word) : NULL;
}

const char *wf_metric_attrs(const struct wf_metric_kind *kind)
{
    const struct wf_loss_kind *loss = kind->attrs ? NULL : wf_metric_loss_of(kind);

    return kind->attrs ? kind->attrs : loss ? loss->attrs : "";
}

bool wf_metric_at(int i, const char **name, const char **attrs, const char **doc)
{
    const struct wf_loss_kind *loss;

    if (i < 0 || i >= WF_COUNT(kinds))
        return false;
    loss = wf_metric_loss_of(&kinds[i]);
    *name = kinds[i].name;
    *attrs = wf_metric_attrs(&kinds[i]);
    *doc = kinds[i].doc ? kinds[i].doc : loss ? loss->doc : "";
    return true;
}

static weft_status no_metric(const weft_model *m, const char *text)
{
    const char *names[WF_COUNT(kinds) + 64];
    struct wf_hint hint;
    char given[WF_MAX_KIND_NAME];
    int n = wf_user_metric_names(m, 64, names);

    snprintf(given, sizeof given, "%.*s", (int)strcspn(text, " \t"), text);
    for (int i = 0; i < WF_COUNT(kinds); i++)
        names[n++] = kinds[i].name;
    hint = wf_did_you_mean(given, names, n);
    return wf_err(WEFT_ENOENT, "no metric '%s'%s", given,
                  *hint.text ? hint.text : " (register your own with weft_metric_register)");
}

static bool any_accuracy(const char *word)
{
    return !strcmp(word, "accuracy") || !strcmp(word, "acc");
}

/* "loss" is the name of a column of the logs, as are those of f16 (bind_logs.c). */
bool wf_metric_is_reserved(const char *word)
{
    return any_accuracy(word) || !strcmp(word, "loss") || !strcmp(word, "lossscale") ||
           !strcmp(word, "skippedsteps");
}

/* "accuracy" and "acc" are the kind that fits the shapes: Keras' rule. Predictions that are
 * integers are classes already and are compared with the labels. */
static void fit_accuracy(char word[WF_MAX_KIND_NAME], const struct wf_type *y,
                         const struct wf_type *p)
{
    int64_t last_y = y->rank ? y->dim[y->rank - 1] : 0, last_p = p->rank ? p->dim[p->rank - 1] : 0;
    const char *to = "categoricalaccuracy";

    if (!any_accuracy(word) || wf_is_int(p->dtype))
        return;
    if (last_p == 1)
        to = "binaryaccuracy";
    else if (y->rank < p->rank || last_y == 1)
        to = "sparsecategoricalaccuracy";
    snprintf(word, WF_MAX_KIND_NAME, "%s", to);
}

const struct wf_metric_kind *wf_metric_kind_of(const weft_model *m, const char *word)
{
    for (int i = 0; i < WF_COUNT(kinds); i++)
        if (wf_kind_is(word, kinds[i].name, kinds[i].shorts))
            return &kinds[i];
    return wf_user_metric_of(m, word);
}

/* ---- the name in logs ------------------------------------------------------------------------ */

/* Names appear in tables, in JSON and in the paths of summaries. */
static weft_status check_name(const char *name)
{
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127 || strchr(",\"\\", *p))
            return wf_err(WEFT_EINVAL, "'%.64s' is not a name: it has a comma, a quote or the like",
                          name);
    return WEFT_OK;
}

/* A class name ("AUC", "MeanIoU") is logged like an object of it in Keras; a name in lower case as
 * it is written. */
static weft_status name_metric(struct wf_metric *m, struct wf_arena *arena, const char *spec,
                               const char *given)
{
    char name[128];
    size_t n;
    weft_status st = given ? check_name(given) : WEFT_OK;

    if (st)
        return wf_err_wrap(st, "metric %s", m->kind->name);
    spec += strspn(spec, " \t");
    n = strcspn(spec, " \t");
    if (given) {
        snprintf(name, sizeof name, "%s", given);
    } else {
        snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), spec);
        for (size_t i = 0; name[i]; i++)
            if (wf_is_upper(name[i])) {
                snprintf(name, sizeof name, "%s", m->kind->log_name);
                break;
            }
    }
    m->name = wf_arena_strdup(arena, name);
    return m->name ? WEFT_OK : wf_err_nomem(arena->ctx, sizeof name, "metric");
}

/* Arguments of the row, and name=…. */
static weft_status parse_args(struct wf_metric *m, struct wf_arena *arena, const char *text,
                              const char **name)
{
    struct wf_attr_spec spec[WF_MAX_ATTRS] = {0};
    struct wf_attr value[WF_MAX_ATTRS] = {0};
    char attrs[512];
    int n;
    weft_status st;

    snprintf(attrs, sizeof attrs, "%s name:s=", wf_metric_attrs(m->kind));
    st = wf_attr_specs(arena, m->kind->name, attrs, spec, &n);
    if (!st)
        st = wf_attr_values(arena, m->kind->name, spec, n, text, value);
    if (st)
        return st;
    memcpy(m->attr, value, sizeof value);
    *name = value[n - 1].s && *value[n - 1].s ? value[n - 1].s : NULL;
    return WEFT_OK;
}

/* ---- what the trainer calls ------------------------------------------------------------------ */

/* Row and arguments of a text; word: its first one, as it is looked for. */
static weft_status parse(const weft_model *model, struct wf_metric *m, struct wf_arena *arena,
                         const char *spec, const char *word, const char *rest, const char **name)
{
    struct wf_args args;
    weft_status st;

    m->kind = wf_metric_kind_of(model, word);
    if (!m->kind)
        return no_metric(model, spec);
    st = parse_args(m, arena, rest, name);
    if (st)
        return st;
    args = (struct wf_args){wf_metric_attrs(m->kind), m->attr};
    st = m->kind->family->check ? m->kind->family->check(m->kind, &args) : WEFT_OK;
    return st ? wf_err_wrap(st, "metric %s", m->kind->name) : WEFT_OK;
}

weft_status wf_metric_check(weft_ctx *ctx, const weft_model *model, const char *spec)
{
    struct wf_metric m = {0};
    char word[WF_MAX_KIND_NAME];
    const char *rest, *name = NULL;
    struct wf_arena arena;
    weft_status st;

    if (!spec || !wf_kind_word(spec, word, &rest))
        return no_metric(model, spec ? spec : "");
    if (any_accuracy(word)) /* of those that it may become, the one with arguments */
        snprintf(word, sizeof word, "binaryaccuracy");
    wf_arena_init(&arena, ctx);
    st = parse(model, &m, &arena, spec, word, rest, &name);
    if (!st)
        st = name_metric(&m, &arena, spec, name);
    wf_arena_free(&arena);
    return st;
}

weft_status wf_metric_init(const weft_model *model, struct wf_metric *out, struct wf_arena *arena,
                           const char *spec, const struct wf_type *y, const struct wf_type *pred)
{
    struct wf_metric m = {0};
    char word[WF_MAX_KIND_NAME];
    const char *rest, *name = NULL;
    struct wf_args args;
    weft_status st;

    if (!spec || !wf_kind_word(spec, word, &rest))
        return no_metric(model, spec ? spec : "");
    fit_accuracy(word, y, pred);
    st = parse(model, &m, arena, spec, word, rest, &name);
    if (st)
        return st;
    args = (struct wf_args){wf_metric_attrs(m.kind), m.attr};
    m.n_results = 1;
    st = m.kind->family->init(&m, &args, y, pred);
    if (!st && m.n_results > WF_METRIC_MAX_RESULTS)
        st = wf_err(WEFT_ELIMIT, "%d results, but at most %d can be logged; use an average",
                    m.n_results, WF_METRIC_MAX_RESULTS);
    if (st)
        return wf_err_wrap(st, "metric %s", m.kind->name);
    st = name_metric(&m, arena, spec, name);
    if (st)
        return st;
    *out = m;
    return WEFT_OK;
}

weft_status wf_metric_build(weft_graph *g, const struct wf_metric *m, weft_val y, weft_val pred,
                            weft_val weight, weft_val *sums)
{
    struct wf_metric_batch b = {g, m, {wf_metric_attrs(m->kind), m->attr}, y, pred, weight};
    weft_val v;

    if (!wf_check_val(g, y, "labels") || !wf_check_val(g, pred, "predictions"))
        return weft_graph_status(g);
    b.pred = wf_as_float(g, pred);
    v = m->kind->family->build(&b);
    v = g->st ? WEFT_NIL : weft_reshape(g, wf_as(g, v, WEFT_F32), 1, &m->n_state);
    if (g->st)
        return wf_err_wrap(weft_graph_status(g), "metric %s", m->kind->name);
    *sums = v;
    return WEFT_OK;
}

weft_val wf_metric_weight(weft_graph *g, const struct wf_metric *m, weft_val weight, weft_val mask)
{
    if (g->st || !mask.id ||
        (m->kind->family != &wf_metric_mean && m->kind->family != &wf_metric_loss &&
         m->kind->family != &wf_metric_user))
        return weight;
    mask = wf_as(g, mask, WEFT_F32);
    return weight.id ? weft_mul(g, mask, wf_weight_like(g, weight, mask)) : mask;
}

void wf_metric_result(const struct wf_metric *m, const double *sums, double *out)
{
    struct wf_args args = {wf_metric_attrs(m->kind), m->attr};

    m->kind->family->result(m, &args, sums, out);
}

void wf_metric_suffix(const struct wf_metric *m, int i, char out[WF_METRIC_SUFFIX])
{
    struct wf_args args = {wf_metric_attrs(m->kind), m->attr};

    out[0] = '\0';
    if (m->n_results == 1)
        return;
    if (m->kind->family->suffix)
        m->kind->family->suffix(m, &args, i, out);
    else
        snprintf(out, WF_METRIC_SUFFIX, "_%d", i);
}

int wf_metric_direction(const struct wf_metric *m)
{
    return m->kind->direction;
}
