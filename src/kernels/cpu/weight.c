/* weight.c - gradients of penalties, and constraints, on the CPU. */
#include "kernels/cpu/weight.h"

#include <math.h>

/* ---- penalties ------------------------------------------------------------------------------- */

void wf_penalty_add(const struct wf_optim_fns *f, const struct wf_penalty *p, int64_t n,
                    const float *w, float *g)
{
    if (p->l1 != 0 || p->l2 != 0)
        f->add_penalty(n, (float)p->l1, (float)(2 * p->l2), w, g);
}

/* Rows of a matrix; columns are rows of its transpose, which is copied. */
struct orthogonal {
    int64_t n, d;       /* rows and their length */
    const float *w;     /* [n][d] */
    float *unit, *norm; /* rows of length 1, and what they were divided by */
    float *g;
    int64_t row_step, item_step; /* of g */
    double factor;
};

/* Eight sums side by side, added at the end: fixed by the length alone. */
static double dot(int64_t n, const float *a, const float *b)
{
    double s[8] = {0};
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        s[i & 7] += (double)a[i] * (double)b[i];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

static void unit_row(void *arg, int64_t i, int thread)
{
    const struct orthogonal *o = arg;
    double norm = sqrt(dot(o->d, o->w + i * o->d, o->w + i * o->d));

    (void)thread;
    o->norm[i] = (float)fmax(norm, 1e-6);
    for (int64_t c = 0; c < o->d; c++)
        o->unit[i * o->d + c] = o->w[i * o->d + c] / o->norm[i];
}

/* d/du_i = 2 factor sum over j != i of sign(u_i . u_j) u_j; then through u = w / |w|. */
static void gradient_row(void *arg, int64_t i, int thread)
{
    const struct orthogonal *o = arg;
    const float *u = o->unit + i * o->d;
    float *sum = o->unit + (o->n + (int64_t)thread) * o->d;
    double along;

    memset(sum, 0, (size_t)o->d * sizeof *sum);
    for (int64_t j = 0; j < o->n; j++) {
        const float *v = o->unit + j * o->d;
        double cosine = j == i ? 0 : dot(o->d, u, v);

        for (int64_t c = 0; c < o->d && cosine != 0; c++)
            sum[c] += cosine > 0 ? v[c] : -v[c];
    }
    along = o->norm[i] > 1e-6f ? dot(o->d, u, sum) : 0; /* a shorter row is divided by a constant */
    for (int64_t c = 0; c < o->d; c++)
        o->g[i * o->row_step + c * o->item_step] +=
            (float)(2 * o->factor * ((double)sum[c] - along * (double)u[c]) / (double)o->norm[i]);
}

#define MAX_THREADS 256

int64_t wf_orthogonal_scratch(int64_t rows, int64_t columns)
{
    int64_t longer = wf_max_i64(rows, columns);

    return 2 * rows * columns + longer + MAX_THREADS * longer;
}

void wf_orthogonal_add(struct wf_pool *pool, const struct wf_penalty *p, int64_t rows,
                       int64_t columns, const float *w, float *g, float *scratch)
{
    struct orthogonal o = {.n = p->columns ? columns : rows,
                           .d = p->columns ? rows : columns,
                           .w = w,
                           .g = g,
                           .row_step = p->columns ? 1 : columns,
                           .item_step = p->columns ? columns : 1};

    if (p->orthogonal == 0 || o.n < 2)
        return;
    if (p->columns) {
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                scratch[c * rows + r] = w[r * columns + c];
        o.w = scratch;
        scratch += rows * columns;
    }
    o.norm = scratch;
    o.unit = scratch + o.n;
    o.factor = p->orthogonal / ((double)o.n * (double)(o.n - 1));
    if (wf_pool_size(pool) > MAX_THREADS)
        pool = NULL;
    wf_pool_for(pool, o.n, unit_row, &o);
    wf_pool_for(pool, o.n, gradient_row, &o);
}

/* ---- constraints ----------------------------------------------------------------------------- */

void wf_constrain_each(const struct wf_constraint *c, int64_t n, float *w)
{
    if (c->kind != WF_CONSTRAINT_NON_NEG)
        return;
    for (int64_t i = 0; i < n; i++)
        w[i] = w[i] < 0 ? 0 : w[i];
}

/* The groups of a weight that share a norm: indices over the axes that the norm does not run
 * along. */
struct groups {
    const struct wf_constraint *c;
    float *w;
    int n_in, n_out; /* axes of the norm, and the others */
    int64_t in_dim[WEFT_MAX_RANK], in_step[WEFT_MAX_RANK];
    int64_t out_dim[WEFT_MAX_RANK], out_step[WEFT_MAX_RANK];
    int64_t n_items, n_groups;
};

static int64_t place(int64_t i, int n, const int64_t *dim, const int64_t *step)
{
    int64_t at = 0;

    for (int k = n - 1; k >= 0; k--) {
        at += i % dim[k] * step[k];
        i /= dim[k];
    }
    return at;
}

static float wanted(const struct wf_constraint *c, float norm)
{
    float kept;

    if (c->kind == WF_CONSTRAINT_UNIT)
        return 1;
    kept = fminf(fmaxf(norm, (float)c->min), (float)c->max);
    return c->rate == 1 ? kept : kept * (float)c->rate + norm * (float)(1 - c->rate);
}

/* One group: w *= wanted / (norm + 1e-7). */
static void constrain_group(void *arg, int64_t group, int thread)
{
    const struct groups *g = arg;
    float *w = g->w + place(group, g->n_out, g->out_dim, g->out_step), norm, factor;
    double sum = 0;

    (void)thread;
    for (int64_t i = 0; i < g->n_items; i++) {
        double x = (double)w[place(i, g->n_in, g->in_dim, g->in_step)];

        sum += x * x;
    }
    norm = (float)sqrt(sum);
    factor = wanted(g->c, norm) / (norm + 1e-7f);
    for (int64_t i = 0; i < g->n_items; i++)
        w[place(i, g->n_in, g->in_dim, g->in_step)] *= factor;
}

void wf_constrain_whole(struct wf_pool *pool, const struct wf_constraint *c, int rank,
                        const int64_t *dim, float *w)
{
    struct groups g = {.c = c, .w = w, .n_items = 1, .n_groups = 1};
    bool along[WEFT_MAX_RANK] = {false};
    int64_t step[WEFT_MAX_RANK], count = 1;

    if (c->kind != WF_CONSTRAINT_NORM && c->kind != WF_CONSTRAINT_UNIT)
        return;
    for (int k = rank - 1; k >= 0; k--) {
        step[k] = count;
        count *= dim[k];
    }
    for (int i = 0; i < c->n_axes; i++)
        along[c->axes[i]] = true;
    for (int k = 0; k < rank; k++) {
        int *n = along[k] ? &g.n_in : &g.n_out;

        (along[k] ? g.in_dim : g.out_dim)[*n] = dim[k];
        (along[k] ? g.in_step : g.out_step)[(*n)++] = step[k];
        *(along[k] ? &g.n_items : &g.n_groups) *= dim[k];
    }
    wf_pool_for(pool, count ? g.n_groups : 0, constrain_group, &g);
}
