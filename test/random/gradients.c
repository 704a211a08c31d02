/* gradients.c - gradients against finite differences in f64, in one random direction. */
#include <math.h>

#include "random/random.h"

static double loss_at(const struct graph_case *c, const struct plain *base, uint64_t seed, double h,
                      weft_status *st)
{
    struct plain p;
    struct draw d = draw_from(seed, 3);
    weft_tensor feeds[MAX_FEEDS];
    double loss = NAN;

    plain_init(&p, c->ctx, c->g);
    p.wide = true;
    p.frozen = base ? base->val : NULL;
    for (int64_t i = 0; i < c->g->n_vars; i++) {
        plain_set_var(&p, i, &c->var[i]);
        for (int64_t e = 0; p.var[i].type.dtype == WEFT_F64 && e < wf_count(&p.var[i]); e++)
            ((double *)p.var[i].data)[e] += h * draw_real(&d, -1, 1);
    }
    for (int i = 0; i < c->n_feeds; i++) {
        int64_t n = weft_tensor_count(&c->feeds[0][i]);

        feeds[i] = c->feeds[0][i];
        if (!wf_is_float(feeds[i].dtype))
            continue;
        feeds[i].dtype = WEFT_F64;
        feeds[i].data = wf_arena_alloc(&p.arena, (size_t)n * 8 + 8);
        for (int64_t e = 0; e < n; e++)
            ((double *)feeds[i].data)[e] =
                wf_get(c->feeds[0][i].data, c->feeds[0][i].dtype, e) + h * draw_real(&d, -1, 1);
    }
    *st = plain_run(&p, c->n_feeds, c->feed, feeds, 1, &c->loss);
    if (!*st)
        loss = *(double *)p.val[c->loss.id].data;
    plain_free(&p);
    return loss;
}

/* The derivative in the same direction, from the gradients. */
static double slope_of(const struct graph_case *c, const struct plain *p, uint64_t seed,
                       const weft_val *grads)
{
    struct draw d = draw_from(seed, 3);
    double sum = 0;
    int at = 0;

    for (int64_t i = 0; i < c->g->n_vars; i++) {
        int64_t n = wf_is_float(c->var[i].type.dtype) ? wf_count(&c->var[i]) : 0;
        weft_val g = grads[at++];

        for (int64_t e = 0; e < n; e++) {
            double dir = draw_real(&d, -1, 1);

            sum += g.id ? dir * ((double *)p->val[g.id].data)[e] : 0;
        }
    }
    for (int i = 0; i < c->n_feeds; i++) {
        int64_t n = wf_is_float(c->feeds[0][i].dtype) ? weft_tensor_count(&c->feeds[0][i]) : 0;
        weft_val g = grads[at++];

        for (int64_t e = 0; e < n; e++) {
            double dir = draw_real(&d, -1, 1);

            sum += g.id ? dir * ((double *)p->val[g.id].data)[e] : 0;
        }
    }
    return sum;
}

static weft_status build_gradients(struct graph_case *c, weft_val *grads, int *n)
{
    weft_val *with = grads + c->g->n_vars + c->n_feeds;
    weft_status st;
    weft_val got[256];
    int m = 0;

    *n = 0;
    for (int64_t i = 0; i < c->g->n_vars + c->n_feeds; i++) {
        weft_val v = i < c->g->n_vars ? (weft_val){c->g->vars[i]} : c->feed[i - c->g->n_vars];

        grads[i] = WEFT_NIL;
        if (wf_is_float(c->g->values[v.id].type.dtype))
            with[m++] = v;
    }
    if (m == 0 || m > 256)
        return WEFT_OK;
    st = weft_grad(c->g, c->loss, m, with, got);
    m = 0;
    for (int64_t i = 0; i < c->g->n_vars + c->n_feeds && !st; i++) {
        weft_val v = i < c->g->n_vars ? (weft_val){c->g->vars[i]} : c->feed[i - c->g->n_vars];

        if (wf_is_float(c->g->values[v.id].type.dtype)) {
            grads[i] = got[m++];
            *n += grads[i].id != 0;
        }
    }
    return st;
}

/* Finite differences of the loss in one direction. */
struct slopes {
    double at, wide, fine;           /* the loss; central slopes over a wide and a fine step */
    double wide_corner, fine_corner; /* right slope minus left slope */
};

static weft_status find_slopes(const struct graph_case *c, const struct plain *base,
                               struct slopes *s)
{
    double h = 1e-5, f[4];
    weft_status st = WEFT_OK;

    for (int i = 0; i < 4 && !st; i++)
        f[i] = loss_at(c, base, c->seed, (i % 2 ? -h : h) / (i < 2 ? 1 : 4), &st);
    if (st)
        return st;
    s->wide = (f[0] - f[1]) / (2 * h);
    s->fine = (f[2] - f[3]) / (h / 2);
    s->wide_corner = (f[0] + f[1] - 2 * s->at) / h;
    s->fine_corner = (f[2] + f[3] - 2 * s->at) / (h / 4);
    return WEFT_OK;
}

/* Whether the differences can tell if `slope` is right. They cannot if there is a corner or a jump
 * between the points: then the two differences disagree. They also cannot if there is a corner
 * exactly at the point: then the slopes to the right and to the left differ as much over the fine
 * step as over the wide one, while those of a smooth function differ by a quarter. */
static bool is_smooth(const struct slopes *s, double slope)
{
    if (!isfinite(s->wide) || !isfinite(s->fine) || fabs(s->at) > 1e4)
        return false;
    if (fabs(s->wide - s->fine) > 1e-4 * (fabs(s->fine) + fabs(slope) + 1e-3 * fabs(s->at)))
        return false;
    return !(fabs(s->fine_corner) > fabs(s->wide_corner) / 2 &&
             4 * fabs(s->fine_corner) > fabs(s->fine - slope));
}

static bool is_off(const struct slopes *s, double slope)
{
    return fabs(s->fine - slope) > 20 * fabs(s->wide - s->fine) +
                                       1e-5 * (fabs(s->fine) + fabs(slope)) + 1e-6 * fabs(s->at) +
                                       1e-8;
}

weft_status check_gradients(struct graph_case *c, struct report *r)
{
    weft_val grads[512], roots[257];
    int n = 0, n_roots = 0;
    struct plain base;
    struct slopes slopes;
    double slope;
    weft_status st;

    if (!c->loss.id || c->g->n_vars + c->n_feeds > 250)
        return WEFT_OK;
    st = build_gradients(c, grads, &n);
    if (st) {
        report_fail(r, "weft_grad: %s: %s", weft_status_name(st), weft_error());
        return WEFT_OK;
    }
    plain_init(&base, c->ctx, c->g);
    base.wide = true;
    for (int64_t i = 0; i < c->g->n_vars; i++)
        plain_set_var(&base, i, &c->var[i]);
    roots[n_roots++] = c->loss;
    for (int64_t i = 0; i < c->g->n_vars + c->n_feeds; i++)
        if (grads[i].id)
            roots[n_roots++] = grads[i];
    st = plain_run(&base, c->n_feeds, c->feed, c->feeds[0], n_roots, roots);
    if (st) {
        report_fail(r, "gradients: %s: %s", weft_status_name(st), weft_error());
        plain_free(&base);
        return WEFT_OK;
    }
    slopes.at = *(double *)base.val[c->loss.id].data;
    slope = slope_of(c, &base, c->seed, grads);
    st = find_slopes(c, &base, &slopes);
    plain_free(&base);
    if (!st && isfinite(slope) && is_smooth(&slopes, slope) && is_off(&slopes, slope))
        report_fail(r, "gradients give a slope of %.9g, finite differences %.9g (and %.9g)", slope,
                    slopes.fine, slopes.wide);
    return WEFT_OK;
}
