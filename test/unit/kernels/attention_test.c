/* attention_test.c - attention against its definition in double precision, forward and backward:
 * every SIMD level, layouts, masks, sizes that do not fit the blocks; the same bits for every
 * number of threads. */
#include "rows_support.h"

#include "kernels/cpu/attention.h"

enum layout { HEAD_FIRST, TIME_FIRST, PACKED };

struct problem {
    const char *name;
    int64_t n_b, n_h, n_q, n_k, d, dv;
    enum layout layout;
    bool causal;
    int mask;          /* enum wf_attention_mask */
    bool mask_per_row; /* [b,1,q,k] instead of [1,1,1,k] */
    float scale;       /* 0: 1/sqrt(d) */
};

static const struct problem problems[] = {
    {"one number", 1, 1, 1, 1, 1, 1, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
    {"small", 2, 3, 5, 7, 3, 4, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
    {"time first", 2, 3, 5, 7, 3, 4, TIME_FIRST, false, WF_MASK_NONE, false, 0.7f},
    {"causal", 2, 2, 37, 37, 8, 8, HEAD_FIRST, true, WF_MASK_NONE, false, 0},
    {"causal, fewer keys", 1, 2, 41, 20, 8, 5, HEAD_FIRST, true, WF_MASK_NONE, false, 0},
    {"causal, fewer queries", 1, 2, 20, 41, 8, 5, TIME_FIRST, true, WF_MASK_NONE, false, 0},
    {"causal, fewer queries, uneven", 1, 16, 23, 41, 8, 5, HEAD_FIRST, true, WF_MASK_NONE, false,
     0},
    {"causal, fewer queries, split", 1, 2, 203, 410, 8, 5, HEAD_FIRST, true, WF_MASK_NONE, false,
     0},
    {"causal, fewer keys, many heads", 4, 4, 61, 41, 8, 5, HEAD_FIRST, true, WF_MASK_NONE, false,
     0},
    {"packed causal", 2, 4, 128, 128, 64, 64, PACKED, true, WF_MASK_NONE, false, 0},
    {"packed", 2, 3, 33, 33, 17, 17, PACKED, false, WF_MASK_NONE, false, 0},
    {"several blocks of keys", 1, 2, 70, 600, 24, 20, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
    {"several blocks of keys, causal", 1, 1, 530, 530, 16, 16, PACKED, true, WF_MASK_NONE, false,
     0},
    {"many heads, several blocks", 4, 4, 300, 300, 8, 8, PACKED, true, WF_MASK_NONE, false, 0},
    {"bool mask", 2, 2, 19, 23, 8, 8, HEAD_FIRST, false, WF_MASK_BOOL, false, 0},
    {"bool mask per row", 3, 2, 30, 300, 8, 8, HEAD_FIRST, false, WF_MASK_BOOL, true, 0},
    {"added mask", 2, 2, 19, 300, 8, 8, TIME_FIRST, false, WF_MASK_F32, false, 0},
    {"added mask per row, causal", 2, 2, 40, 40, 8, 8, TIME_FIRST, true, WF_MASK_F32, true, 0},
    {"negative scale", 2, 2, 19, 23, 8, 8, HEAD_FIRST, false, WF_MASK_NONE, false, -0.9f},
    {"no queries", 2, 2, 0, 5, 4, 4, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
    {"no keys", 2, 2, 5, 0, 4, 4, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
    {"no depth", 2, 2, 5, 6, 0, 4, HEAD_FIRST, false, WF_MASK_NONE, false, 1},
    {"no batch", 0, 2, 5, 6, 4, 4, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
    {"wide heads", 1, 2, 10, 50, 130, 200, HEAD_FIRST, false, WF_MASK_NONE, false, 0},
};

/* ---- operands -------------------------------------------------------------------------------- */

struct data {
    struct wf_attention_desc d;
    int64_t n_q, n_k, n_v, n_y, n_lse, n_mask; /* elements of each array */
    float *q, *k, *v, *dy;                     /* PACKED: k and v point into q's array */
    void *mask;
};

static struct wf_attention_strides strides(enum layout layout, int64_t h, int64_t t, int64_t d)
{
    if (layout == HEAD_FIRST)
        return (struct wf_attention_strides){h * t * d, t * d, d};
    if (layout == TIME_FIRST)
        return (struct wf_attention_strides){h * t * d, d, h * d};
    return (struct wf_attention_strides){3 * h * t * d, d, 3 * h * d};
}

static void make_mask(const struct problem *p, struct data *x)
{
    int64_t n_rows = p->mask_per_row ? p->n_b * p->n_q : 1;

    x->n_mask = n_rows * p->n_k;
    x->mask = zeros(x->n_mask, sizeof(float));
    for (int64_t i = 0; i < x->n_mask; i++)
        if (p->mask == WF_MASK_BOOL) /* the fourth row sees nothing, so does the start of others */
            ((uint8_t *)x->mask)[i] = (i / p->n_k != 3 || !p->mask_per_row) &&
                                      random_unit() < 0.6 &&
                                      (i / p->n_k % 2 || i % p->n_k > 260 || p->n_k < 260);
        else
            ((float *)x->mask)[i] =
                random_unit() < 0.2 ? -INFINITY : (float)(4 * random_unit() - 2);
    if (p->mask == WF_MASK_F32) /* at least one key for everybody */
        for (int64_t i = 0; i < n_rows; i++)
            ((float *)x->mask)[i * p->n_k] = 0;
    x->d.mask_step[3] = 1;
    if (p->mask_per_row) {
        x->d.mask_step[2] = p->n_k;
        x->d.mask_step[0] = p->n_q * p->n_k;
    }
}

static struct data make_data(const struct problem *p)
{
    bool packed = p->layout == PACKED;
    struct data x = {.d = {.n_b = p->n_b,
                           .n_h = p->n_h,
                           .n_q = p->n_q,
                           .n_k = p->n_k,
                           .d = p->d,
                           .dv = p->dv,
                           .causal = p->causal,
                           .mask = p->mask,
                           .scale = p->scale != 0 ? p->scale : 1 / sqrtf((float)p->d)}};

    x.d.q = strides(p->layout, p->n_h, p->n_q, p->d);
    x.d.k = strides(p->layout, p->n_h, p->n_k, p->d);
    x.d.v = strides(p->layout, p->n_h, p->n_k, p->dv);
    x.d.y = strides(packed ? TIME_FIRST : p->layout, p->n_h, p->n_q, p->dv);
    x.n_q = p->n_b * p->n_h * p->n_q * p->d * (packed ? 3 : 1);
    x.n_k = packed ? 0 : p->n_b * p->n_h * p->n_k * p->d;
    x.n_v = packed ? 0 : p->n_b * p->n_h * p->n_k * p->dv;
    x.n_y = p->n_b * p->n_h * p->n_q * p->dv;
    x.n_lse = p->n_b * p->n_h * p->n_q;
    x.q = random_floats(x.n_q, -2, 2);
    x.k = packed ? x.q + p->n_h * p->d : random_floats(x.n_k, -2, 2);
    x.v = packed ? x.q + 2 * p->n_h * p->d : random_floats(x.n_v, -2, 2);
    x.dy = random_floats(x.n_y, -1, 1);
    if (p->mask != WF_MASK_NONE)
        make_mask(p, &x);
    return x;
}

static void free_data(const struct problem *p, struct data *x)
{
    free(x->q);
    if (p->layout != PACKED) {
        free(x->k);
        free(x->v);
    }
    free(x->dy);
    free(x->mask);
}

/* ---- the definition -------------------------------------------------------------------------- */

static double score(const struct data *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const struct wf_attention_desc *d = &x->d;
    int64_t at = b * d->mask_step[0] + i * d->mask_step[2] + j * d->mask_step[3];
    double s = 0;

    if ((d->causal && j > i) || (d->mask == WF_MASK_BOOL && !((uint8_t *)x->mask)[at]))
        return -INFINITY;
    for (int64_t e = 0; e < d->d; e++)
        s += (double)x->q[b * d->q.sb + h * d->q.sh + i * d->q.st + e] *
             (double)x->k[b * d->k.sb + h * d->k.sh + j * d->k.st + e];
    return s * (double)d->scale + (d->mask == WF_MASK_F32 ? (double)((float *)x->mask)[at] : 0);
}

/* The results in double: y, lse, dq, dk, dv in arrays laid out like the f32 ones. */
struct truth {
    double *y, *lse, *dq, *dk, *dv;
};

static void truth_row(const struct data *x, struct truth *t, int64_t b, int64_t h, int64_t i)
{
    const struct wf_attention_desc *d = &x->d;
    double *p = zeros(d->n_k, sizeof *p), max = -INFINITY, sum = 0, delta = 0;
    int64_t q = b * d->q.sb + h * d->q.sh + i * d->q.st,
            y = b * d->y.sb + h * d->y.sh + i * d->y.st;

    for (int64_t j = 0; j < d->n_k; j++) {
        p[j] = score(x, b, h, i, j);
        max = fmax(max, p[j]);
    }
    for (int64_t j = 0; j < d->n_k; j++)
        sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - max);
    t->lse[(b * d->n_h + h) * d->n_q + i] = sum > 0 ? max + log(sum) : -INFINITY;
    for (int64_t j = 0; j < d->n_k; j++) {
        p[j] = sum > 0 ? p[j] / sum : 0;
        for (int64_t e = 0; e < d->dv; e++)
            t->y[y + e] += p[j] * (double)x->v[b * d->v.sb + h * d->v.sh + j * d->v.st + e];
    }
    for (int64_t e = 0; e < d->dv; e++)
        delta += t->y[y + e] * (double)x->dy[y + e];
    for (int64_t j = 0; j < d->n_k; j++) {
        int64_t k = b * d->k.sb + h * d->k.sh + j * d->k.st,
                v = b * d->v.sb + h * d->v.sh + j * d->v.st;
        double dp = 0, ds;

        for (int64_t e = 0; e < d->dv; e++) {
            dp += (double)x->dy[y + e] * (double)x->v[v + e];
            t->dv[v + e] += p[j] * (double)x->dy[y + e];
        }
        ds = p[j] * (dp - delta) * (double)d->scale;
        for (int64_t e = 0; e < d->d; e++) {
            t->dq[q + e] += ds * (double)x->k[k + e];
            t->dk[k + e] += ds * (double)x->q[q + e];
        }
    }
    free(p);
}

static struct truth make_truth(const struct problem *p, const struct data *x)
{
    bool packed = p->layout == PACKED;
    struct truth t = {zeros(x->n_y, sizeof(double)), zeros(x->n_lse, sizeof(double)),
                      zeros(x->n_q, sizeof(double)), NULL, NULL};

    t.dk = packed ? t.dq + p->n_h * p->d : zeros(x->n_k, sizeof(double));
    t.dv = packed ? t.dq + 2 * p->n_h * p->d : zeros(x->n_v, sizeof(double));
    for (int64_t r = 0; r < x->n_lse; r++)
        truth_row(x, &t, r / p->n_q / p->n_h, r / p->n_q % p->n_h, r % p->n_q);
    return t;
}

static void free_truth(const struct problem *p, struct truth *t)
{
    free(t->y);
    free(t->lse);
    free(t->dq);
    if (p->layout != PACKED) {
        free(t->dk);
        free(t->dv);
    }
}

/* ---- one run --------------------------------------------------------------------------------- */

struct result {
    float *y, *lse, *dq, *dk, *dv;
};

static float *unset(int64_t n)
{
    float *p = zeros(n, sizeof *p);

    for (int64_t i = 0; i < n; i++)
        p[i] = NAN; /* everything must be written */
    return p;
}

static struct result run(const struct problem *p, const struct data *x, weft_simd level,
                         weft_ctx *ctx)
{
    bool packed = p->layout == PACKED;
    struct result r = {unset(x->n_y), unset(x->n_lse), unset(x->n_q), NULL, NULL};
    struct wf_attention a;
    size_t bytes;
    void *scratch;

    r.dk = packed ? r.dq + p->n_h * p->d : unset(x->n_k);
    r.dv = packed ? r.dq + 2 * p->n_h * p->d : unset(x->n_v);
    wf_attention_plan(&a, &x->d, level, false, wf_pool_size(ctx->pool), &bytes);
    scratch = wf_alloc(ctx, bytes + 1);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes); /* NaN: what is read must have been written */
    wf_attention_run(&a, ctx->pool, x->q, x->k, x->v, x->mask, r.y, r.lse, scratch);
    wf_free(ctx, scratch);

    wf_attention_plan(&a, &x->d, level, true, wf_pool_size(ctx->pool), &bytes);
    scratch = wf_alloc(ctx, bytes + 1);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes);
    wf_attention_grad_run(
        &a, ctx->pool,
        &(struct wf_attention_grad){x->dy, x->q, x->k, x->v, r.y, r.lse, x->mask, r.dq, r.dk, r.dv},
        scratch);
    wf_free(ctx, scratch);
    return r;
}

static void free_result(const struct problem *p, struct result *r)
{
    free(r->y);
    free(r->lse);
    free(r->dq);
    if (p->layout != PACKED) {
        free(r->dk);
        free(r->dv);
    }
}

static void check_all(const float *got, const double *want, int64_t n, double tol, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        check_near((double)got[i], want[i], tol, what, i);
}

static void same_bits(const float *a, const float *b, int64_t n, const char *what)
{
    if (n && memcmp(a, b, sizeof *a * (size_t)n))
        fail_msg("%s: bits depend on the number of threads", what);
}

static void equals_definition_and_bits_ignore_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        const struct problem *p = &problems[i];
        struct data x = make_data(p);
        struct truth t = make_truth(p, &x);

        for (EACH_LEVEL(level)) {
            struct result one = run(p, &x, level, contexts[0]);

            check_all(one.y, t.y, x.n_y, 2e-5, p->name);
            check_all(one.lse, t.lse, x.n_lse, 2e-5, p->name);
            check_all(one.dq, t.dq, x.n_q, 5e-5, p->name);
            check_all(one.dk, t.dk, x.n_k, 5e-5, p->name);
            check_all(one.dv, t.dv, x.n_v, 5e-5, p->name);
            for (int c = 1; c < N_COUNTS; c++) {
                struct result many = run(p, &x, level, contexts[c]);

                same_bits(one.y, many.y, x.n_y, p->name);
                same_bits(one.lse, many.lse, x.n_lse, p->name);
                same_bits(one.dq, many.dq, x.n_q, p->name);
                same_bits(one.dk, many.dk, x.n_k, p->name);
                same_bits(one.dv, many.dv, x.n_v, p->name);
                free_result(p, &many);
            }
            free_result(p, &one);
        }
        free_truth(p, &t);
        free_data(p, &x);
    }
}

/* A score of NaN or +inf must show in its row and stay out of the others. */
static void a_bad_number_stays_in_its_row(void **state)
{
    const struct problem p = {"nan", 1,          1,     20,           300,   8,
                              8,     HEAD_FIRST, false, WF_MASK_NONE, false, 0};
    struct data x = make_data(&p);

    (void)state;
    x.q[7 * 8 + 3] = NAN;
    for (EACH_LEVEL(level)) {
        struct result r = run(&p, &x, level, contexts[0]);

        for (int64_t i = 0; i < x.n_y; i++)
            assert_int_equal(isnan(r.y[i]) != 0, i / 8 == 7);
        free_result(&p, &r);
    }
    free_data(&p, &x);
}

/* Large scores: nothing overflows. */
static void large_scores_are_stable(void **state)
{
    const struct problem p = {"large",      1,     2,  9, 700, 4, 4, HEAD_FIRST, false,
                              WF_MASK_NONE, false, 500};
    struct data x = make_data(&p);
    struct truth t = make_truth(&p, &x);

    (void)state;
    for (EACH_LEVEL(level)) {
        struct result r = run(&p, &x, level, contexts[1]);

        check_all(r.y, t.y, x.n_y, 2e-2, p.name); /* scores of 1000s have errors of 1e-4 */
        for (int64_t i = 0; i < x.n_q; i++)
            assert_true(isfinite(r.dq[i]));
        free_result(&p, &r);
    }
    free_truth(&p, &t);
    free_data(&p, &x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_definition_and_bits_ignore_threads),
        cmocka_unit_test(a_bad_number_stays_in_its_row),
        cmocka_unit_test(large_scores_are_stable),
    };

    return cmocka_run_group_tests(tests, contexts_open, contexts_close);
}
