/* build_optim.c - optimizers as nodes: gradients, clipping by norm, and one update per variable. */
#include <stdio.h>

#include "base/number.h"
#include "graph/graph.h"
#include "op/optim.h"
#include "op/schedule.h"
#include "weft/optim.h"

/* ---- texts ----------------------------------------------------------------------------------- */

/* The next "name=value" of a text. Returns 1, 0 at the end, or an error. */
static int next_number(const char **at, char name[48], double *value)
{
    const char *p = *at;
    size_t n, len;

    while (*p == ' ' || *p == ',')
        p++;
    if (!*p)
        return 0;
    n = strcspn(p, "=, ");
    if (n == 0 || n >= 48 || p[n] != '=')
        return wf_err(WEFT_EPARSE, "expected name=number at '%.24s'", p);
    memcpy(name, p, n);
    name[n] = '\0';
    p += n + 1;
    while (*p == ' ')
        p++;
    len = strcspn(p, ", ");
    if (!wf_parse_f64(p, (int64_t)len, value))
        return wf_err(WEFT_EPARSE, "%s: '%.24s' is not a number", name, p);
    *at = p + len;
    return 1;
}

static weft_status unknown(const char *what, const char *word, const char *const *words, int n)
{
    char all[512] = "";
    int at = 0;

    for (int i = 0; i < n && at < (int)sizeof all - 32; i++)
        at += snprintf(all + at, sizeof all - (size_t)at, " %.30s", words[i]);
    return wf_err(WEFT_ENOENT, "no %s '%s'%s (there are:%s)", what, word,
                  wf_did_you_mean(word, words, n).text, all);
}

weft_status weft_optim_init(weft_optim *o, const char *name, const char *numbers)
{
    const struct wf_optim_row *row = wf_optim_find(name);
    const char *names[64], *bad;
    unsigned seen = 0;
    char key[48];
    double value;
    int rc;

    if (!row) {
        for (int i = 0; i < wf_n_optim_rows && i < WF_COUNT(names); i++)
            names[i] = wf_optim_rows[i].name;
        return unknown("optimizer", name, names, wf_n_optim_rows);
    }
    *o = (weft_optim){.n_numbers = row->n_attrs};
    snprintf(o->name, sizeof o->name, "%s", row->name);
    wf_optim_defaults(row, o->number);
    while (numbers && (rc = next_number(&numbers, key, &value)) != 0) {
        int i = rc < 0 ? -1 : wf_optim_attr_find(row, key);

        if (rc < 0)
            return wf_err_wrap(rc, "optimizer %s", name);
        if (i < 0) {
            for (int k = 0; k < row->n_attrs; k++)
                names[k] = row->attrs[k].name;
            unknown("number", key, names, row->n_attrs);
            return wf_err_wrap(WEFT_ENOENT, "optimizer %s", name);
        }
        if (seen & 1u << i)
            return wf_err(WEFT_EINVAL, "optimizer %s: %s is given twice", name, key);
        seen |= 1u << i;
        o->number[i] = value;
    }
    bad = wf_optim_check(row, o->number);
    return bad ? wf_err(WEFT_EINVAL, "optimizer %s: %s", name, bad) : WEFT_OK;
}

/* The list of a piecewise schedule: boundaries and values, each in the order given. */
struct pieces {
    int n_boundaries, n_values;
    double boundary[WEFT_SCHEDULE_NUMBERS], value[WEFT_SCHEDULE_NUMBERS];
};

/* One "boundary=…" or "value=…"; false if it is neither. */
static bool take_piece(struct pieces *p, const char *key, double value)
{
    if (!strcmp(key, "boundary"))
        p->boundary[p->n_boundaries++] = value;
    else if (!strcmp(key, "value"))
        p->value[p->n_values++] = value;
    else
        return false;
    return true;
}

static weft_status one_number(const struct wf_schedule_row *row, const char *key, double value,
                              double *attrs, unsigned *seen, struct pieces *list)
{
    int i = wf_schedule_attr_find(row, key);
    const char *names[WEFT_SCHEDULE_NUMBERS + 2];
    int n = 0;

    if (row->takes_list) {
        if (row->n_attrs + list->n_boundaries + list->n_values == WEFT_SCHEDULE_NUMBERS)
            return wf_err(WEFT_ELIMIT, "too many numbers");
        if (take_piece(list, key, value))
            return WEFT_OK;
        names[n++] = "boundary";
        names[n++] = "value";
        i = -1; /* the rates are its values */
    }
    if (i < 0) {
        for (int k = 0; k < row->n_attrs && !row->takes_list; k++)
            names[n++] = row->attrs[k].name;
        return unknown("number", key, names, n);
    }
    if (*seen & 1u << i)
        return wf_err(WEFT_EINVAL, "%s is given twice", key);
    *seen |= 1u << i;
    attrs[i] = value;
    return WEFT_OK;
}

/* schedule_number has the schedule's attributes, then its list (piecewise): boundaries, values. */
weft_status weft_optim_schedule(weft_optim *o, const char *schedule, const char *numbers)
{
    const struct wf_schedule_row *row = wf_schedule_find(schedule);
    struct pieces list = {0};
    double attrs[WEFT_SCHEDULE_NUMBERS];
    const char *names[64], *bad;
    unsigned seen = 0;
    char key[48];
    double value;
    int rc, n_list;

    if (!row) {
        for (int i = 0; i < wf_n_schedule_rows && i < WF_COUNT(names); i++)
            names[i] = wf_schedule_rows[i].name;
        return unknown("schedule", schedule, names, wf_n_schedule_rows);
    }
    wf_schedule_defaults(row, attrs);
    attrs[0] = o->number[WF_OPTIM_ATTR_LR];
    while (numbers && (rc = next_number(&numbers, key, &value)) != 0) {
        weft_status st = rc < 0 ? rc : one_number(row, key, value, attrs, &seen, &list);

        if (st)
            return wf_err_wrap(st, "schedule %s", schedule);
    }
    if (row->takes_list && list.n_values != list.n_boundaries + 1)
        return wf_err(
            WEFT_EINVAL,
            "schedule %s: %d boundaries and %d values: needs one value more than boundaries",
            schedule, list.n_boundaries, list.n_values);
    n_list = list.n_boundaries + list.n_values;
    memcpy(attrs + row->n_attrs, list.boundary, (size_t)list.n_boundaries * sizeof *attrs);
    memcpy(attrs + row->n_attrs + list.n_boundaries, list.value,
           (size_t)list.n_values * sizeof *attrs);
    bad = wf_schedule_check(row, attrs, attrs + row->n_attrs, n_list);
    if (bad)
        return wf_err(WEFT_EINVAL, "schedule %s: %s", schedule, bad);
    snprintf(o->schedule, sizeof o->schedule, "%s", schedule);
    memcpy(o->schedule_number, attrs, sizeof attrs);
    o->n_schedule = row->n_attrs + n_list;
    return WEFT_OK;
}

/* ---- gradients of lookups -------------------------------------------------------------------- */

/* Whether a gradient consists only of embedding_grad nodes (one, or a sum of them): collects
 * them. */
static bool collect_lookups(const weft_graph *g, weft_val grad, int cap, weft_val *ids,
                            weft_val *rows, int *n)
{
    const struct wf_node *node = wf_val_node(g, grad);

    if (node->op->id == WF_OP_add)
        return collect_lookups(g, (weft_val){node->in[0]}, cap, ids, rows, n) &&
               collect_lookups(g, (weft_val){node->in[1]}, cap, ids, rows, n);
    if (strcmp(node->op->name, "embedding_grad") || *n == cap)
        return false;
    ids[*n].id = node->in[0];
    rows[(*n)++].id = node->in[1];
    return true;
}

static weft_val reshape_to(weft_graph *g, weft_val x, int rank, const int64_t *dim)
{
    struct wf_set sets[] = {WF_SET_INTS("shape", rank, dim)};

    return wf_build(g, WF_OP_reshape, 1, &x, 1, sets);
}

static weft_val concat_first(weft_graph *g, int n, const weft_val *x)
{
    struct wf_set sets[] = {WF_SET_INT("axis", 0)};

    return n == 1 ? x[0] : wf_build(g, WF_OP_concat, n, x, 1, sets);
}

/* Several lookups of one table become one: ids and rows joined, in the order of the sum. */
static void join_lookups(weft_graph *g, weft_val table, int n, weft_val *ids, weft_val *rows)
{
    int64_t width = wf_val_type_of(g, table)->dim[1];

    for (int i = 0; i < n && n > 1; i++) {
        ids[i] = reshape_to(g, ids[i], 1, (int64_t[]){-1});
        rows[i] = reshape_to(g, rows[i], 2, (int64_t[]){-1, width});
    }
    ids[0] = concat_first(g, n, ids);
    rows[0] = concat_first(g, n, rows);
}

#define MAX_LOOKUPS 64

bool wf_grad_rows(weft_graph *g, weft_val table, weft_val grad, weft_val *id, weft_val *row)
{
    weft_val ids[MAX_LOOKUPS], rows[MAX_LOOKUPS];
    int n = 0;

    if (g->st || wf_val_type_of(g, table)->rank != 2 ||
        !collect_lookups(g, grad, MAX_LOOKUPS, ids, rows, &n))
        return false;
    join_lookups(g, table, n, ids, rows);
    *id = ids[0];
    *row = rows[0];
    return true;
}

/* ---- updates --------------------------------------------------------------------------------- */

/* A sum of lookups as one lookup, whose norm is that of the rows as they are applied. */
static weft_val one_lookup(weft_graph *g, weft_val var, weft_val grad)
{
    weft_val in[3] = {WEFT_NIL, WEFT_NIL, var};

    if (wf_val_node(g, grad)->op->id != WF_OP_add || !wf_grad_rows(g, var, grad, &in[0], &in[1]))
        return grad;
    return wf_build(g, WF_OP_embedding_grad, 3, in, 0, NULL);
}

static weft_val build_update(weft_graph *g, const weft_optim *o, weft_val var, weft_val grad,
                             weft_val scale)
{
    struct wf_set sets[] = {
        WF_SET_STR("optimizer", o->name),
        WF_SET_FLOATS("params", o->n_numbers, o->number),
        WF_SET_STR("schedule", o->schedule),
        WF_SET_FLOATS("schedule_params", o->n_schedule, o->schedule_number),
    };
    weft_val ids, rows;

    if (wf_grad_rows(g, var, grad, &ids, &rows))
        return wf_build(g, WF_OP_apply_rows, 5,
                        (weft_val[]){var, ids, rows, o->learning_rate, scale}, 4, sets);
    return wf_build(g, WF_OP_apply, 4, (weft_val[]){var, grad, o->learning_rate, scale}, 4, sets);
}

static weft_val clip_scale(weft_graph *g, int n, const weft_val *grads, double limit)
{
    struct wf_set sets[] = {WF_SET_FLOAT("limit", limit)};

    return wf_build(g, WF_OP_clip_factor, n, grads, 1, sets);
}

weft_status weft_apply_gradients(weft_graph *g, const weft_optim *o, int n, const weft_val *vars,
                                 const weft_val *grads, weft_val *updates)
{
    double clipnorm = o->number[WF_OPTIM_ATTR_CLIPNORM],
           global = o->number[WF_OPTIM_ATTR_GLOBAL_CLIPNORM];
    weft_val scale = WEFT_NIL, *given;
    int n_given = 0;

    if (weft_graph_status(g))
        return weft_graph_status(g);
    given = wf_alloc_n(g->ctx, n + 1, sizeof *given);
    if (!given)
        return wf_err_nomem(g->ctx, (size_t)n * sizeof *given, "updates");
    for (int i = 0; i < n; i++) {
        if (!wf_check_val(g, vars[i], "weft_apply_gradients"))
            break;
        if (wf_val_node(g, vars[i])->op->id != WF_OP_variable) {
            wf_graph_fail(g, wf_err(WEFT_EINVAL, "weft_apply_gradients: '%s' is not a variable",
                                    weft_val_name(g, vars[i])));
            break;
        }
        if (grads[i].id)
            given[n_given++] =
                global > 0 || clipnorm > 0 ? one_lookup(g, vars[i], grads[i]) : grads[i];
    }
    if (!g->st && clipnorm <= 0 && global > 0 && n_given)
        scale = clip_scale(g, n_given, given, global);
    for (int i = 0, k = 0; i < n && !g->st; i++) {
        updates[i] = WEFT_NIL;
        if (!grads[i].id)
            continue;
        if (clipnorm > 0)
            scale = clip_scale(g, 1, &given[k++], clipnorm);
        updates[i] = build_update(g, o, vars[i], grads[i], scale);
    }
    wf_free(g->ctx, given);
    return weft_graph_status(g);
}

int weft_trainable(const weft_graph *g, int cap, weft_val *out)
{
    int n = 0;

    for (int64_t i = 0; i < g->n_vars; i++) {
        const struct wf_node *v = wf_val_node(g, (weft_val){g->vars[i]});

        if (!wf_node_int(v, "trainable"))
            continue;
        if (n < cap)
            out[n].id = g->vars[i];
        n++;
    }
    return n;
}

weft_status weft_minimize(weft_graph *g, weft_val loss, const weft_optim *o, int n,
                          const weft_val *vars, int cap, weft_val *updates, int *n_updates)
{
    int n_all = n > 0 ? n : weft_trainable(g, 0, NULL), kept = 0;
    weft_val *mem = wf_alloc_n(g->ctx, 3 * (int64_t)n_all + 1, sizeof *mem), *all = mem, *grads,
             *ups;
    weft_status st = WEFT_OK;

    if (!mem)
        return wf_err_nomem(g->ctx, 3 * (size_t)n_all * sizeof *mem, "updates");
    grads = mem + n_all;
    ups = grads + n_all;
    if (n > 0)
        memcpy(all, vars, (size_t)n * sizeof *all);
    else
        weft_trainable(g, n_all, all);
    if (n_all > cap)
        st = wf_err(WEFT_ELIMIT, "weft_minimize: %d variables, room for %d updates", n_all, cap);
    if (!st)
        st = weft_grad(g, loss, n_all, all, grads);
    if (!st)
        st = weft_apply_gradients(g, o, n_all, all, grads, ups);
    for (int i = 0; i < n_all && !st; i++)
        if (ups[i].id)
            updates[kept++] = ups[i];
    if (!st && kept == 0)
        st = wf_err(WEFT_EINVAL, "weft_minimize: the loss does not depend on any of the variables");
    if (!st)
        *n_updates = kept;
    wf_free(g->ctx, mem);
    return st;
}
