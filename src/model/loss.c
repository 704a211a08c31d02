/* loss.c - losses by name: the table, arguments, matching labels to predictions, and the reduction.
 *
 * A loss is text, "huber delta=2": the first word finds a row of losses.def, the rest are its
 * arguments. Nothing is kept between calls. */
#include "model/loss.h"

#include <stdio.h>

#include "weft/ops.h"

static const struct wf_loss_kind kinds[] = {
#define LOSS(name_, shorts_, attrs_, fn_, labels_, doc_) \
    {#name_, shorts_, attrs_, wf_loss_##fn_, WEFT_LABELS_##labels_, doc_, NULL},
#include "model/losses.def"
#undef LOSS
};

/* ---- texts ----------------------------------------------------------------------------------- */

static bool plain(const char *p, size_t n, char out[WF_MAX_KIND_NAME])
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (!wf_is_alnum(p[i]))
            continue;
        if (at == WF_MAX_KIND_NAME - 1)
            return false;
        out[at++] = wf_to_lower(p[i]);
    }
    out[at] = '\0';
    return at > 0;
}

bool wf_kind_word(const char *text, char out[WF_MAX_KIND_NAME], const char **rest)
{
    size_t n;

    text += strspn(text, " \t");
    n = strcspn(text, " \t");
    *rest = text + n;
    return plain(text, n, out);
}

bool wf_kind_is(const char *word, const char *name, const char *shorts)
{
    char own[WF_MAX_KIND_NAME], between[WF_MAX_KIND_NAME + 2];

    if (plain(name, strlen(name), own) && !strcmp(word, own))
        return true;
    snprintf(between, sizeof between, " %s ", word);
    return strstr(shorts, between) != NULL;
}

/* The position of a name in the text of arguments is the position of its value. */
const struct wf_attr *wf_arg(const struct wf_args *a, const char *name)
{
    static const struct wf_attr none;
    size_t n = strlen(name);
    const char *p = a->attrs;

    for (int i = 0; *p; i++) {
        if (!strncmp(p, name, n) && p[n] == ':')
            return &a->value[i];
        p += strcspn(p, " ");
        p += strspn(p, " ");
    }
    return &none;
}

bool wf_arg_maybe(const struct wf_args *a, const char *name, int64_t *out)
{
    const struct wf_attr *v = wf_arg(a, name);

    if (!v->n)
        return false;
    *out = v->ints[0];
    return true;
}

const struct wf_loss_kind *wf_loss_kind_of(const weft_model *m, const char *word)
{
    for (int i = 0; i < WF_COUNT(kinds); i++)
        if (wf_kind_is(word, kinds[i].name, kinds[i].shorts))
            return &kinds[i];
    return wf_user_loss_of(m, word);
}

const struct wf_loss_kind *wf_loss_kind_at(int i)
{
    return i >= 0 && i < WF_COUNT(kinds) ? &kinds[i] : NULL;
}

bool wf_loss_at(int i, const char **name, const char **attrs, const char **doc)
{
    const struct wf_loss_kind *k = wf_loss_kind_at(i);

    if (!k)
        return false;
    *name = k->name;
    *attrs = k->attrs;
    *doc = k->doc;
    return true;
}

static weft_status no_loss(const weft_model *m, const char *text)
{
    const char *names[WF_COUNT(kinds) + 64];
    struct wf_hint hint;
    char given[WF_MAX_KIND_NAME];
    int n = wf_user_loss_names(m, 64, names);

    snprintf(given, sizeof given, "%.*s", (int)strcspn(text, " \t"), text);
    for (int i = 0; i < WF_COUNT(kinds); i++)
        names[n++] = kinds[i].name;
    hint = wf_did_you_mean(given, names, n);
    return wf_err(WEFT_ENOENT, "no loss '%s'%s", given,
                  *hint.text ? hint.text : " (register your own with weft_loss_register)");
}

/* Is it the word for whichever cross-entropy fits the shapes? */
static bool any_crossentropy(const char *word)
{
    return !strcmp(word, "crossentropy") || !strcmp(word, "ce");
}

bool wf_loss_is_reserved(const char *word)
{
    return any_crossentropy(word) || !strcmp(word, "none");
}

static const char *fitting_crossentropy(const struct wf_type *y, const struct wf_type *p)
{
    int64_t last_y = y->rank ? y->dim[y->rank - 1] : 0, last_p = p->rank ? p->dim[p->rank - 1] : 0;

    if (last_p == 1)
        return "binarycrossentropy";
    if (y->rank < p->rank || (last_y == 1 && last_p != 1))
        return "sparsecategoricalcrossentropy";
    return "categoricalcrossentropy";
}

/* Row and arguments of a text. y and pred may be NULL: then "crossentropy" is taken for the
 * categorical one. */
static weft_status parse(const weft_model *m, struct wf_arena *arena, const char *text,
                         const struct wf_type *y, const struct wf_type *pred,
                         const struct wf_loss_kind **kind, struct wf_attr attr[WF_MAX_ATTRS])
{
    struct wf_attr_spec spec[WF_MAX_ATTRS] = {0};
    char word[WF_MAX_KIND_NAME];
    const char *rest;
    int n;
    weft_status st;

    if (!text || !wf_kind_word(text, word, &rest))
        return no_loss(m, text ? text : "");
    if (any_crossentropy(word))
        snprintf(word, sizeof word, "%s",
                 y && pred ? fitting_crossentropy(y, pred) : "categoricalcrossentropy");
    *kind = wf_loss_kind_of(m, word);
    if (!*kind)
        return no_loss(m, text);
    st = wf_attr_specs(arena, (*kind)->name, (*kind)->attrs, spec, &n);
    return st ? st : wf_attr_values(arena, (*kind)->name, spec, n, rest, attr);
}

weft_status wf_loss_check(weft_ctx *ctx, const weft_model *m, const char *loss)
{
    struct wf_attr attr[WF_MAX_ATTRS];
    const struct wf_loss_kind *kind;
    struct wf_arena arena;
    weft_status st;

    wf_arena_init(&arena, ctx);
    st = parse(m, &arena, loss, NULL, NULL, &kind, attr);
    wf_arena_free(&arena);
    return st;
}

bool wf_loss_has_classes(const weft_model *m, const char *loss)
{
    char word[WF_MAX_KIND_NAME];
    const struct wf_loss_kind *kind;
    const char *rest;

    if (!loss || !wf_kind_word(loss, word, &rest))
        return false;
    kind = wf_loss_kind_of(m, word);
    return any_crossentropy(word) || (kind && kind->labels != WEFT_LABELS_VALUES);
}

/* ---- values that fit each other -------------------------------------------------------------- */

static const struct wf_type *type_of(const weft_graph *g, weft_val v)
{
    return wf_val_type_of(g, v);
}

static int64_t last_dim(const struct wf_type *t)
{
    return t->rank ? t->dim[t->rank - 1] : 0;
}

weft_val wf_as(weft_graph *g, weft_val x, weft_dtype t)
{
    return g->st || type_of(g, x)->dtype == t ? x : weft_cast(g, x, t);
}

weft_val wf_as_float(weft_graph *g, weft_val x)
{
    return g->st || type_of(g, x)->dtype == WEFT_F64 ? x : wf_as(g, x, WEFT_F32);
}

/* `more` has one axis more than `less`. */
static void fit_one(weft_graph *g, weft_val *more, weft_val *less)
{
    if (last_dim(type_of(g, *more)) != 1)
        return;
    if (type_of(g, *less)->rank == 1)
        *less = weft_expand_dims(g, *less, -1);
    else
        *more = weft_squeeze(g, *more, 1, (int64_t[]){-1});
}

void wf_fit_ranks(weft_graph *g, weft_val *a, weft_val *b)
{
    int ra, rb;

    if (g->st)
        return;
    ra = type_of(g, *a)->rank;
    rb = type_of(g, *b)->rank;
    if (ra == rb + 1)
        fit_one(g, a, b);
    else if (rb == ra + 1)
        fit_one(g, b, a);
}

weft_val wf_weight_like(weft_graph *g, weft_val w, weft_val x)
{
    weft_dtype t;
    int rank;

    if (g->st)
        return WEFT_NIL;
    rank = type_of(g, x)->rank;
    t = type_of(g, x)->dtype;
    w = wf_as(g, w, t);
    if (type_of(g, w)->rank == rank + 1 && last_dim(type_of(g, w)) == 1)
        w = weft_squeeze(g, w, 1, (int64_t[]){-1});
    while (!g->st && type_of(g, w)->rank < rank)
        w = weft_expand_dims(g, w, -1);
    return g->st ? WEFT_NIL : wf_broadcast_like(g, w, x);
}

weft_val wf_sum_axis(weft_graph *g, weft_val x, int64_t axis, bool keepdims)
{
    return weft_sum(g, x,
                    WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {axis}, .keepdims = keepdims));
}

weft_val wf_mean_axis(weft_graph *g, weft_val x, int64_t axis, bool keepdims)
{
    return weft_mean(
        g, x, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {axis}, .keepdims = keepdims));
}

weft_val wf_normalize(weft_graph *g, weft_val x, int64_t axis)
{
    weft_val inverse = weft_rsqrt(g, wf_sum_axis(g, weft_square(g, x), axis, true));

    return weft_mul(g, x, weft_min(g, inverse, wf_const_like(g, 1 / WF_EPSILON, inverse)));
}

weft_val wf_affine(weft_graph *g, weft_val x, double a, double b)
{
    if (a == -1 && b != 0)
        return weft_sub(g, wf_const_like(g, b, x), x);
    if (a != 1)
        x = weft_mul(g, x, wf_const_like(g, a, x));
    return b != 0 ? weft_add(g, x, wf_const_like(g, b, x)) : x;
}

/* ---- building -------------------------------------------------------------------------------- */

static weft_status misfit(weft_graph *g, const char *what, weft_val y, weft_val pred)
{
    char a[WF_TYPE_TEXT], b[WF_TYPE_TEXT];

    return wf_graph_fail(g,
                         wf_err(WEFT_ESHAPE, "%s: labels %s do not fit predictions %s", what,
                                wf_type_text(type_of(g, y), a), wf_type_text(type_of(g, pred), b)));
}

/* Whether known sizes differ among the first `n` axes. */
static bool differ(const struct wf_type *a, const struct wf_type *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a->dim[i] >= 0 && b->dim[i] >= 0 && a->dim[i] != b->dim[i])
            return true;
    return false;
}

/* Labels of a sparse loss: integers without the class axis. */
static weft_status fit_sparse(weft_graph *g, const char *what, weft_val *y, weft_val pred)
{
    const struct wf_type *t, *p;

    if (type_of(g, *y)->rank == type_of(g, pred)->rank && last_dim(type_of(g, *y)) == 1)
        *y = weft_squeeze(g, *y, 1, (int64_t[]){-1});
    if (g->st)
        return g->st;
    t = type_of(g, *y);
    p = type_of(g, pred);
    if (t->rank != p->rank - 1 || differ(t, p, t->rank))
        return misfit(g, what, *y, pred);
    if (!wf_is_int(t->dtype))
        *y = weft_cast(g, *y, WEFT_I64);
    return g->st;
}

weft_status wf_fit_labels(weft_graph *g, const char *what, int labels, weft_val *y, weft_val *pred)
{
    weft_val was = *y, p = *pred;

    if (labels == WEFT_LABELS_NUMBERS) {
        if (!wf_is_float(type_of(g, p)->dtype) || type_of(g, p)->rank < 1)
            return misfit(g, what, was, p);
        fit_sparse(g, what, y, p);
    } else {
        wf_fit_ranks(g, y, pred);
        if (!g->st && (type_of(g, *y)->rank != type_of(g, *pred)->rank ||
                       differ(type_of(g, *y), type_of(g, *pred), type_of(g, *y)->rank) ||
                       type_of(g, *y)->rank < 1))
            misfit(g, what, was, p);
    }
    if (g->st)
        return weft_graph_status(g);
    *pred = wf_as_float(g, *pred);
    if (labels != WEFT_LABELS_NUMBERS)
        *y = wf_as(g, *y, type_of(g, *pred)->dtype);
    return weft_graph_status(g);
}

weft_status wf_loss_values(weft_graph *g, const struct wf_loss_kind *kind,
                           const struct wf_attr *attr, weft_val y, weft_val pred, weft_val *out)
{
    struct wf_loss l = {g, y, pred, {kind->attrs, attr}, kind};
    weft_val v;

    if (!wf_check_val(g, y, kind->name) || !wf_check_val(g, pred, kind->name))
        return weft_graph_status(g);
    if (wf_fit_labels(g, kind->name, kind->labels, &l.y, &l.pred))
        return weft_graph_status(g);
    v = kind->fn(&l);
    if (g->st)
        return wf_err_wrap(weft_graph_status(g), "loss %s", kind->name);
    *out = v;
    return WEFT_OK;
}

static weft_status row_of(const weft_model *m, weft_graph *g, const char *loss, weft_val y,
                          weft_val pred, const struct wf_loss_kind **kind,
                          struct wf_attr attr[WF_MAX_ATTRS])
{
    weft_status st;

    if (!wf_check_val(g, y, "labels") || !wf_check_val(g, pred, "predictions"))
        return weft_graph_status(g);
    st = parse(m, &g->arena, loss, type_of(g, y), type_of(g, pred), kind, attr);
    return st ? wf_graph_fail(g, st) : WEFT_OK;
}

weft_status wf_loss_build(const weft_model *m, weft_graph *g, const char *loss, weft_val y,
                          weft_val pred, weft_val *values)
{
    struct wf_attr attr[WF_MAX_ATTRS];
    const struct wf_loss_kind *kind;
    weft_status st = row_of(m, g, loss, y, pred, &kind, attr);

    return st ? st : wf_loss_values(g, kind, attr, y, pred, values);
}

weft_status wf_loss_ignored(weft_graph *g, const struct wf_loss_kind *kind,
                            const struct wf_attr *attr, weft_val y, weft_val pred, weft_val *mask)
{
    struct wf_args args = {kind->attrs, attr};
    int64_t ignored;
    weft_val m = WEFT_NIL;

    if (wf_arg_maybe(&args, "ignore_class", &ignored)) {
        if (fit_sparse(g, kind->name, &y, pred))
            return weft_graph_status(g);
        m = weft_ne(g, y, wf_const_like(g, (double)ignored, y));
    }
    if (g->st)
        return weft_graph_status(g);
    *mask = m;
    return WEFT_OK;
}

weft_status wf_loss_mask(const weft_model *m, weft_graph *g, const char *loss, weft_val y,
                         weft_val pred, weft_val *mask)
{
    struct wf_attr attr[WF_MAX_ATTRS];
    const struct wf_loss_kind *kind;
    weft_status st = row_of(m, g, loss, y, pred, &kind, attr);

    return st ? st : wf_loss_ignored(g, kind, attr, y, pred, mask);
}

weft_status wf_loss_reduce(weft_graph *g, weft_val values, weft_val weight, weft_val mask,
                           weft_val *sum, weft_val *count)
{
    weft_size_of_opts whole = {.size = sizeof whole};
    weft_val s, n;

    if (!wf_check_val(g, values, "values of a loss"))
        return weft_graph_status(g);
    values = wf_as_float(g, values);
    whole.dtype = WEFT_F32;
    if (weight.id && !g->st && type_of(g, values)->rank == 0) /* one value for the whole batch */
        values = wf_broadcast_like(g, values, weight);
    n = weft_size_of(g, values, &whole);
    if (weight.id)
        values = weft_mul(g, values, wf_weight_like(g, weight, values));
    if (mask.id) {
        weft_val m = wf_as(g, mask, WEFT_F32), valid = weft_sum(g, m, NULL);

        if (!g->st && type_of(g, m)->rank < type_of(g, values)->rank)
            valid = weft_mul(g, valid, weft_div(g, n, weft_size_of(g, m, &whole)));
        m = wf_weight_like(g, m, values);
        /* What is masked is ignored, even if it is NaN. */
        values = weft_where(g, wf_as(g, m, WEFT_BOOL), values, wf_const_like(g, 0, values));
        n = valid;
    }
    s = wf_as(g, weft_sum(g, values, NULL), WEFT_F32);
    if (g->st)
        return wf_err_wrap(weft_graph_status(g), "loss weights");
    *sum = s;
    *count = n;
    return WEFT_OK;
}
