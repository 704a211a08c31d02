/* initial.c - initial values of variables, as Keras defines them. */
#include "kernels/cpu/initial.h"

#include <math.h>

#include "kernels/cpu/random.h"

/* Fan-in and fan-out: dense [in, out], convolutions [space…, in, out]. */
static void fans(const struct wf_type *t, double *fan_in, double *fan_out)
{
    double space = 1;

    for (int i = 0; i < t->rank - 2; i++)
        space *= (double)t->dim[i];
    *fan_in = t->rank == 0   ? 1
              : t->rank == 1 ? (double)t->dim[0]
                             : space * (double)t->dim[t->rank - 2];
    *fan_out = t->rank == 0   ? 1
               : t->rank == 1 ? (double)t->dim[0]
                              : space * (double)t->dim[t->rank - 1];
}

/* Elements [first, first + n) of a variable of type t, and where they go. */
struct span {
    weft_ctx *ctx;
    const struct wf_initial *by;
    const struct wf_type *t;
    int64_t first, n;
    void *data;
};

static void fill(const struct span *s, double v)
{
    for (int64_t i = 0; i < s->n; i++)
        wf_set(s->data, s->t->dtype, i, v);
}

static weft_status identity(const struct span *s, double gain)
{
    int64_t cols = s->t->dim[1];

    if (s->t->rank != 2)
        return wf_err(WEFT_ESHAPE, "identity: needs rank 2, has %d", s->t->rank);
    for (int64_t i = 0; i < s->n; i++) {
        int64_t at = s->first + i;

        wf_set(s->data, s->t->dtype, i, at / cols == at % cols ? gain : 0);
    }
    return WEFT_OK;
}

static void band(const struct span *s, double from, double to)
{
    int64_t cols = s->t->rank ? s->t->dim[s->t->rank - 1] : 1;

    for (int64_t i = 0; i < s->n; i++) {
        double at = (double)((s->first + i) % cols);

        wf_set(s->data, s->t->dtype, i, at >= from * (double)cols && at < to * (double)cols);
    }
}

/* ---- random ---------------------------------------------------------------------------------- */

enum { TILE = 1 << 16 };

struct draw {
    const struct wf_random_fns *fns;
    enum wf_random_kind kind;
    struct wf_rng_key key;
    float params[2];
    float *to;
    int64_t first, n;
};

static void draw_tile(void *arg, int64_t tile, int thread)
{
    const struct draw *d = arg;
    int64_t at = tile * TILE;

    (void)thread;
    d->fns->fill(d->kind, d->to + at, d->first + at, wf_min_i64(TILE, d->n - at), &d->key,
                 d->params);
}

/* Element i depends only on the seed, the variable's name and i. */
static weft_status draw(const struct span *s, enum wf_random_kind kind, double a, double b)
{
    uint64_t h = wf_hash64(s->by->name, strlen(s->by->name), 0);
    struct draw d = {.fns = wf_random_fns_of(s->ctx->simd),
                     .kind = kind,
                     .key = {.seed = s->by->seed, .step = h, .node = (uint32_t)-1},
                     .params = {(float)a, (float)b},
                     .first = s->first,
                     .n = s->n};
    float *mem = NULL;

    if (s->t->dtype != WEFT_F32) {
        mem = wf_alloc_n(s->ctx, d.n + 1, sizeof *mem);
        if (!mem)
            return wf_err_nomem(s->ctx, (size_t)d.n * sizeof *mem, "initial values");
    }
    d.to = mem ? mem : s->data;
    if (d.n <= TILE)
        draw_tile(&d, 0, 0);
    else
        wf_pool_for(s->ctx->pool, (d.n + TILE - 1) / TILE, draw_tile, &d);
    for (int64_t i = 0; mem && i < d.n; i++)
        wf_set(s->data, s->t->dtype, i, mem[i]);
    wf_free(s->ctx, mem);
    return WEFT_OK;
}

/* Columns of a tall matrix [rows, cols] made orthonormal, one after the other, twice for accuracy.
 * The diagonal of R is positive, as in Keras. */
static void orthonormalise(double *m, int64_t rows, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++) {
        double norm = 0;

        for (int64_t p = 0; p < 2 * c; p++) {
            double dot = 0;

            for (int64_t r = 0; r < rows; r++)
                dot += m[r * cols + p % c] * m[r * cols + c];
            for (int64_t r = 0; r < rows; r++)
                m[r * cols + c] -= dot * m[r * cols + p % c];
        }
        for (int64_t r = 0; r < rows; r++)
            norm += m[r * cols + c] * m[r * cols + c];
        norm = sqrt(norm);
        for (int64_t r = 0; r < rows; r++)
            m[r * cols + c] = norm > 0 ? m[r * cols + c] / norm : 0;
    }
}

static weft_status orthogonal(const struct span *s, double gain)
{
    const struct wf_type *t = s->t;
    int64_t n = wf_type_count(t), cols = t->rank ? t->dim[t->rank - 1] : 1,
            rows = cols ? n / cols : 0;
    bool wide = rows < cols;
    int64_t tall = wide ? cols : rows, thin = wide ? rows : cols;
    struct wf_type flat = wf_type_of(WEFT_F32, 1, &n);
    float *z = NULL;
    double *m = NULL;
    weft_status st = WEFT_OK;

    if (t->rank < 2)
        return wf_err(WEFT_ESHAPE, "orthogonal: needs rank 2 or more, has %d", t->rank);
    if (s->n != n)
        return wf_err(WEFT_ENOSUP, "orthogonal: its values depend on each other, and cannot be "
                                   "computed row by row");
    z = wf_alloc_n(s->ctx, n + 1, sizeof *z);
    m = wf_alloc_n(s->ctx, n + 1, sizeof *m);
    if (!z || !m)
        st = wf_err_nomem(s->ctx, (size_t)n * sizeof *m, "initial values");
    if (!st)
        st = draw(&(struct span){s->ctx, s->by, &flat, 0, n, z}, WF_RANDOM_NORMAL, 0, 1);
    for (int64_t i = 0; i < n && !st; i++)
        m[i] = z[i];
    if (!st)
        orthonormalise(m, tall, thin);
    for (int64_t r = 0; r < rows && !st; r++)
        for (int64_t c = 0; c < cols; c++)
            wf_set(s->data, t->dtype, r * cols + c,
                   gain * (wide ? m[c * thin + r] : m[r * thin + c]));
    wf_free(s->ctx, z);
    wf_free(s->ctx, m);
    return st;
}

/* Keras' VarianceScaling: a variance of scale / fan, uniform, or normal truncated at two standard
 * deviations. */
static weft_status scaled(const struct span *s, bool is_uniform, double scale, double fan)
{
    double variance = scale / (fan < 1 ? 1 : fan), limit = sqrt(3 * variance);
    double cut = 0.87962566103423978; /* the standard deviation of a standard normal truncated at
                                       * two */

    return is_uniform ? draw(s, WF_RANDOM_UNIFORM, -limit, limit)
                      : draw(s, WF_RANDOM_TRUNCATED_NORMAL, 0, sqrt(variance) / cut);
}

static weft_status init_span(const struct span *s)
{
    const char *init = s->by->kind;
    double a = s->by->a, b = s->by->b, in, out;

    fans(s->t, &in, &out);
    if (!strcmp(init, "zeros"))
        fill(s, 0);
    else if (!strcmp(init, "ones"))
        fill(s, 1);
    else if (!strcmp(init, "constant"))
        fill(s, a);
    else if (!strcmp(init, "identity"))
        return identity(s, a ? a : 1);
    else if (!strcmp(init, "band"))
        band(s, a, b);
    else if (!strcmp(init, "uniform"))
        return draw(s, WF_RANDOM_UNIFORM, a, b);
    else if (!strcmp(init, "normal"))
        return draw(s, WF_RANDOM_NORMAL, a, b);
    else if (!strcmp(init, "truncated_normal"))
        return draw(s, WF_RANDOM_TRUNCATED_NORMAL, a, b);
    else if (!strcmp(init, "glorot_uniform") || !strcmp(init, "glorot_normal"))
        return scaled(s, init[7] == 'u', 1, (in + out) / 2);
    else if (!strcmp(init, "he_uniform") || !strcmp(init, "he_normal"))
        return scaled(s, init[3] == 'u', 2, in);
    else if (!strcmp(init, "lecun_uniform") || !strcmp(init, "lecun_normal"))
        return scaled(s, init[6] == 'u', 1, in);
    else if (!strcmp(init, "orthogonal"))
        return orthogonal(s, a ? a : 1);
    else
        return wf_err(WEFT_ENOENT, "no initializer '%s'", init);
    return WEFT_OK;
}

weft_status wf_initial_all(weft_ctx *ctx, const struct wf_initial *by, const struct wf_type *t,
                           void *data)
{
    return init_span(&(struct span){ctx, by, t, 0, wf_type_count(t), data});
}

weft_status wf_initial_rows(weft_ctx *ctx, const struct wf_initial *by, const struct wf_type *t,
                            int64_t n_rows, const int64_t *ids, float *rows)
{
    int64_t width = t->dim[1];
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < n_rows && !st; i++)
        st = init_span(&(struct span){ctx, by, t, ids[i] * width, width, rows + i * width});
    return st;
}

bool wf_initial_by_rows(const char *kind)
{
    static const char *const kinds[] = {
        "zeros",      "ones",      "constant",         "identity",       "band",
        "uniform",    "normal",    "truncated_normal", "glorot_uniform", "glorot_normal",
        "he_uniform", "he_normal", "lecun_uniform",    "lecun_normal"};

    for (int i = 0; i < WF_COUNT(kinds); i++)
        if (strcmp(kind, kinds[i]) == 0)
            return true;
    return false;
}
