/* conv.c - the geometry of windows and of resizing. Everything is checked against overflow. */
#include "op/conv.h"

enum {
    MAX_TAPS = INT32_MAX, /* largest window, stride, dilation or padding */
    POOL_TAPS = 1 << 24,  /* of a pooling window, which a file can ask for at no cost */
};

/* Value i of a list attribute: one value applies to all axes, none means `otherwise`. */
static int64_t axis_value(const struct wf_attr *list, int i, int64_t otherwise)
{
    return list->n == 0 ? otherwise : list->ints[list->n == 1 ? 0 : i];
}

static bool list_fits(const struct wf_attr *list, int n, int64_t least)
{
    if (list->n != 0 && list->n != 1 && list->n != n)
        return false;
    for (int i = 0; i < list->n; i++)
        if (list->ints[i] < least || list->ints[i] > MAX_TAPS)
            return false;
    return true;
}

static bool has_attr(const struct wf_op *op, const char *name)
{
    for (int i = 0; i < op->n_attrs; i++)
        if (!strcmp(op->attr[i].name, name))
            return true;
    return false;
}

enum padding { VALID, SAME, EXPLICIT, UNKNOWN };

static enum padding padding_of(const char *s)
{
    return !strcmp(s, "valid")      ? VALID
           : !strcmp(s, "same")     ? SAME
           : !strcmp(s, "explicit") ? EXPLICIT
                                    : UNKNOWN;
}

/* One axis; `hi` is the padding after it. A symbolic size gives a symbolic output. */
static const char *place_axis(struct wf_window *w, int a, enum padding padding, int64_t hi)
{
    int64_t in = w->in[a], span, padded;

    if (w->k[a] < 0 || in < 0) {
        bool same = w->stride[a] == 1 && (padding == SAME || (w->k[a] == 1 && !w->lo[a] && !hi));

        w->out[a] = same ? in : WEFT_ANY;
        return NULL;
    }
    if (!wf_mul_i64(w->k[a] - 1, w->dilation[a], &span) || !wf_add_i64(span, 1, &span))
        return "the window's size overflows";
    if (padding == SAME) {
        int64_t total;

        w->out[a] = in / w->stride[a] + (in % w->stride[a] != 0);
        if (!w->out[a])
            return NULL;
        total = (w->out[a] - 1) * w->stride[a] - in; /* above -stride: no overflow */
        total = total + span > 0 ? total + span : 0;
        w->lo[a] = total / 2;
        return NULL;
    }
    if (!wf_add_i64(in, w->lo[a], &padded) || !wf_add_i64(padded, hi, &padded))
        return "the padded size overflows";
    if (padded < span)
        return "the window is larger than the padded input";
    w->out[a] = (padded - span) / w->stride[a] + 1;
    return NULL;
}

const char *wf_window_make(const struct wf_op *op, const struct wf_attr *attr,
                           const struct wf_type *x, const int64_t *k, struct wf_window *w)
{
    const struct wf_attr *strides = wf_attr(op, attr, "strides"), *pads = wf_attr(op, attr, "pads");
    const struct wf_attr none = {.kind = WF_INTS};
    const struct wf_attr *dilations =
        has_attr(op, "dilations") ? wf_attr(op, attr, "dilations") : &none;
    bool pools = has_attr(op, "window");
    enum padding padding = padding_of(wf_attr_str(op, attr, "padding"));
    int n = x->rank - 2;

    if (n < 1 || n > 3)
        return "the input must be [batch, 1 to 3 sizes, channels]";
    if (!list_fits(strides, n, 1) || !list_fits(dilations, n, 1))
        return "strides and dilations must be 1 or more; give one per axis, or one for all";
    if (padding == UNKNOWN)
        return "padding must be valid, same or explicit";
    if (pads->n && (padding != EXPLICIT || pads->n != 2 * n))
        return "pads need two numbers per axis (before, after) and padding=explicit";
    for (int i = 0; i < pads->n; i++)
        if (pads->ints[i] < 0 || pads->ints[i] > MAX_TAPS)
            return "pads must not be negative";
    *w = (struct wf_window){.n = n};
    for (int a = 0; a < 3; a++) {
        int i = a - (3 - n);
        const char *wrong;

        w->in[a] = i < 0 ? 1 : x->dim[1 + i];
        w->k[a] = i < 0 ? 1 : k[i];
        w->stride[a] = i < 0 ? 1 : axis_value(strides, i, pools ? k[i] : 1);
        w->dilation[a] = i < 0 ? 1 : axis_value(dilations, i, 1);
        w->lo[a] = i < 0 || !pads->n ? 0 : pads->ints[2 * i];
        if (w->k[a] == 0 || w->k[a] > MAX_TAPS)
            return "a window needs at least one tap along each axis";
        wrong = place_axis(w, a, padding, i < 0 || !pads->n ? 0 : pads->ints[2 * i + 1]);
        if (wrong)
            return wrong;
    }
    return NULL;
}

const char *wf_pool_window(const struct wf_op *op, const struct wf_attr *attr,
                           const struct wf_type *x, struct wf_window *w)
{
    const struct wf_attr *window = wf_attr(op, attr, "window"), *pads = wf_attr(op, attr, "pads");
    int64_t k[3] = {1, 1, 1}, taps = 1;
    int n = x->rank - 2;

    if (n < 1 || n > 3)
        return "the input must be [batch, 1 to 3 sizes, channels]";
    if (!window->n || !list_fits(window, n, 1))
        return "the window must be 1 or more; give one per axis, or one for all";
    for (int i = 0; i < n; i++)
        k[i] = axis_value(window, i, 1);
    for (int i = 0; i < n; i++)
        if (!wf_mul_i64(taps, k[i], &taps) || taps > POOL_TAPS)
            return "a window has at most 16777216 taps";
    /* So that every window sees at least one element. */
    for (int i = 0; i < pads->n && pads->n == 2 * n; i++)
        if (pads->ints[i] >= k[i / 2])
            return "padding must be smaller than the window";
    const char *wrong = wf_window_make(op, attr, x, k, w);

    for (int a = 0; !wrong && a < 3; a++)
        if (w->in[a] == 0 && w->out[a] != 0)
            wrong = "the window is empty";
    return wrong;
}

void wf_conv_geom_of(const struct wf_op *op, const struct wf_attr *attr, const struct wf_type *x,
                     const struct wf_type *w, const struct wf_type *y, struct wf_conv_geom *g)
{
    bool same = padding_of(wf_attr_str(op, attr, "padding")) == SAME;

    wf_window_make(op, attr, x, w->dim, &g->w);
    for (int a = 3 - g->w.n; a < 3; a++) {
        struct wf_window *v = &g->w;
        int64_t total;

        /* conv_transpose may want a larger output than the smallest: follow y. */
        v->out[a] = y->dim[1 + a - (3 - v->n)];
        if (!same)
            continue;
        total = (v->out[a] - 1) * v->stride[a] + (v->k[a] - 1) * v->dilation[a] + 1 - v->in[a];
        v->lo[a] = total > 0 && v->out[a] ? total / 2 : 0;
    }
    g->batch = x->dim[0];
    g->c_in = x->dim[x->rank - 1];
    g->c_out = y->dim[y->rank - 1];
    g->groups = wf_attr_int(op, attr, "groups");
}

struct wf_resize_at wf_resize_source(bool bilinear, int64_t n_in, int64_t n_out, int64_t i)
{
    double at = ((double)i + 0.5) * (double)n_in / (double)n_out; /* of the sample's center */
    int64_t a = wf_min_i64((int64_t)at, n_in - 1);

    if (!bilinear)
        return (struct wf_resize_at){a, a, 0};
    at -= 0.5;
    a = at < 0 ? -1 : (int64_t)at;
    return (struct wf_resize_at){wf_max_i64(a, 0), wf_min_i64(a + 1, n_in - 1), at - (double)a};
}
