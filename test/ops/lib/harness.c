/* harness.c - the checks of one row; harness.h says which. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ops/lib/row.h"

/* Elements of an input tried by finite differences; of a large one few, each costs runs of the
 * whole graph. */
#define MAX_POSITIONS 16
#define MAX_POSITIONS_LARGE 2
#define LARGE 1000
void row_must(const struct row *r, bool ok, const char *file, int line, const char *fmt, ...)
{
    char text[400];
    va_list args;

    if (ok)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    print_error("%s\n    %s\n", r->line, text);
    _fail(file, line);
}

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t next_bits(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double next_unit(uint64_t *s)
{
    return (double)(next_bits(s) >> 11) * 0x1p-53;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double draw(const struct op_input *in, uint64_t *s)
{
    double lo = in->lo, hi = in->hi, x;

    if (!wf_is_float(in->dtype))
        return floor(lo + next_unit(s) * (hi - lo + 1));
    do
        x = lo + next_unit(s) * (hi - lo);
    while (in->fill == OP_SMOOTH && fabs(2 * x - nearbyint(2 * x)) < 0.05);
    return x;
}

static void fill(const struct op_input *in, int64_t n, double *v, uint64_t *s)
{
    int64_t cols = in->rank ? in->dim[in->rank - 1] : 1;

    for (int64_t i = 0; i < n; i++)
        v[i] = in->fill == OP_GIVEN ? in->data[i]
               : in->fill == OP_DISTINCT
                   ? in->lo + (in->hi - in->lo) * ((double)i + 0.5) / (double)n
                   : draw(in, s);
    for (int64_t i = n - 1; in->fill == OP_DISTINCT && i > 0; i--) {
        int64_t k = (int64_t)(next_bits(s) % (uint64_t)(i + 1));
        double t = v[i];

        v[i] = v[k];
        v[k] = t;
    }
    if (in->fill == OP_SORTED)
        qsort(v, (size_t)n, sizeof *v, by_value);
    for (int64_t i = 0; in->fill == OP_ROWS_SUM1 && i + cols <= n; i += cols) {
        double sum = 0;

        for (int64_t k = 0; k < cols; k++)
            sum += v[i + k];
        for (int64_t k = 0; k < cols; k++)
            v[i + k] /= sum;
    }
}

static weft_dtype dtype_in(const struct op_input *in, weft_dtype floats)
{
    return in->dtype == WEFT_F32 ? floats : in->dtype;
}

/* The inputs with f32 replaced by `floats`. */
void row_feeds(const struct row *r, weft_dtype floats, struct wf_tensor *feeds)
{
    for (int i = 0; i < r->c->n_in; i++) {
        const struct op_input *in = &r->c->in[i];
        struct wf_tensor *t = &feeds[i];

        t->type = wf_type_of(dtype_in(in, floats), in->rank, in->dim);
        t->data = malloc((size_t)wf_type_bytes(&t->type) + 1);
        for (int64_t k = 0; k < r->count[i]; k++)
            wf_set(t->data, t->type.dtype, k, r->master[i][k]);
    }
}

void row_feeds_free(const struct row *r, struct wf_tensor *feeds)
{
    for (int i = 0; i < r->c->n_in; i++)
        free(feeds[i].data);
}

/* The same values as `from` (rounded already) with floats as f64. */
static void widen_feeds(const struct row *r, const struct wf_tensor *from, struct wf_tensor *to)
{
    row_feeds(r, WEFT_F64, to);
    for (int i = 0; i < r->c->n_in; i++)
        for (int64_t k = 0; to[i].type.dtype == WEFT_F64 && k < r->count[i]; k++)
            wf_set(to[i].data, WEFT_F64, k, wf_get(from[i].data, from[i].type.dtype, k));
}

/* ---- building -------------------------------------------------------------------------------- */

weft_status row_build(const struct row *r, weft_ctx *ctx, weft_dtype floats, bool symbolic,
                      struct built *b)
{
    int64_t any[WEFT_MAX_RANK];
    char name[16];
    weft_val v;

    *b = (struct built){0};
    if (weft_graph_new(ctx, &b->g))
        return WEFT_ENOMEM;
    for (int i = 0; i < WEFT_MAX_RANK; i++)
        any[i] = WEFT_ANY;
    for (int i = 0; i < r->c->n_in; i++) {
        const struct op_input *in = &r->c->in[i];

        snprintf(name, sizeof name, "in%d", i);
        if (in->dtype)
            b->in[i] = weft_placeholder(b->g, name, dtype_in(in, floats), in->rank,
                                        symbolic ? any : in->dim);
    }
    v = r->c->build ? r->c->build(b->g, b->in)
                    : op_build_text(b->g, r->c->op, r->c->n_in, b->in, r->c->attrs);
    if (b->g->st)
        return weft_graph_status(b->g);
    b->n_out = wf_val_node(b->g, v)->n_out;
    for (int i = 0; i < b->n_out; i++)
        b->out[i] = weft_output(b->g, v, i);
    return WEFT_OK;
}

static weft_val weighted(weft_graph *g, weft_val v, const struct wf_type *known, uint64_t *s)
{
    int64_t n = wf_type_count(known);
    weft_dtype t = wf_val_type_of(g, v)->dtype;
    char *data = malloc((size_t)wf_type_bytes(known) + 1);
    weft_tensor w = weft_view(t, data, known->rank, known->dim);
    weft_val c;

    for (int64_t i = 0; i < n; i++)
        wf_set(data, t, i, next_unit(s) * 2 - 1);
    c = weft_constant(g, &w);
    free(data);
    return wf_unary(g, WF_OP_sum, wf_binary(g, WF_OP_mul, v, c));
}

static void add_term(struct built *b, weft_val term)
{
    b->loss = b->loss.id ? wf_binary(b->g, WF_OP_add, b->loss, term) : term;
}

/* loss = a weighted sum of the float outputs; its gradients for the inputs that want one. */
weft_status row_differentiate(const struct row *r, struct built *b, const struct wf_type *out_types)
{
    uint64_t s = 77;
    weft_val x[OP_MAX_IN], d[OP_MAX_IN];
    int n = 0, k = 0;
    weft_status st;

    for (int i = 0; i < b->n_out; i++)
        if (wf_is_float(out_types[i].dtype))
            add_term(b, weighted(b->g, b->out[i], &out_types[i], &s));
    if (!b->loss.id)
        return b->g->st;
    for (int i = 0; i < r->c->n_in; i++)
        if (wf_is_float(r->c->in[i].dtype) && !(r->c->no_grad >> i & 1))
            x[n++] = b->in[i];
    st = weft_grad(b->g, b->loss, n, x, d);
    for (int i = 0; i < r->c->n_in && !st; i++)
        if (wf_is_float(r->c->in[i].dtype) && !(r->c->no_grad >> i & 1))
            b->grad[i] = d[k++];
    return st;
}

/* loss = a weighted sum of the gradients; its gradients. */
static weft_status differentiate_again(const struct row *r, struct built *b)
{
    uint64_t s = 99;
    weft_val x[OP_MAX_IN], d[OP_MAX_IN];
    int n = 0, k = 0;
    weft_status st;

    b->loss = WEFT_NIL;
    for (int i = 0; i < r->c->n_in; i++) {
        struct wf_type t = wf_type_of(WEFT_F64, r->c->in[i].rank, r->c->in[i].dim);

        if (b->grad[i].id)
            add_term(b, weighted(b->g, b->grad[i], &t, &s));
        if (wf_is_float(r->c->in[i].dtype) && !(r->c->no_grad >> i & 1))
            x[n++] = b->in[i];
    }
    if (!b->loss.id)
        return b->g->st;
    st = weft_grad(b->g, b->loss, n, x, d);
    for (int i = 0; i < r->c->n_in && !st; i++)
        if (wf_is_float(r->c->in[i].dtype) && !(r->c->no_grad >> i & 1))
            b->grad[i] = d[k++];
    return st;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static bool near(double a, double want, double tol)
{
    if (isnan(want) || isnan(a))
        return isnan(want) && isnan(a);
    if (isinf(want) || isinf(a))
        return a == want;
    return fabs(a - want) <= tol * (1 + fabs(want));
}

void row_compare(const struct row *r, const char *what, const struct wf_tensor *a,
                 const struct wf_tensor *want, double tol)
{
    char ta[WF_TYPE_TEXT], tw[WF_TYPE_TEXT];
    int64_t n = wf_type_count(&want->type);

    MUST(r, wf_type_same_shape(&a->type, &want->type), "%s: %s, expected %s", what,
         wf_type_text(&a->type, ta), wf_type_text(&want->type, tw));
    for (int64_t i = 0; i < n; i++) {
        double x = wf_get(a->data, a->type.dtype, i), y = wf_get(want->data, want->type.dtype, i);

        MUST(r, near(x, y, wf_is_float(want->type.dtype) ? tol : 0),
             "%s: element %lld is %.9g, expected %.9g", what, (long long)i, x, y);
    }
}

void row_compare_bits(const struct row *r, const char *what, const struct wf_tensor *a,
                      const struct wf_tensor *want)
{
    int64_t n = wf_type_bytes(&want->type), k = 0;
    const char *x = a->data, *y = want->data;

    MUST(r, a->type.dtype == want->type.dtype && wf_type_same_shape(&a->type, &want->type),
         "%s: the types differ", what);
    while (k < n && x[k] == y[k])
        k++;
    if (k < n) {
        k /= weft_dtype_size(want->type.dtype);
        MUST(r, false, "%s: element %lld is %.17g, expected the bits of %.17g", what, (long long)k,
             wf_get(x, want->type.dtype, k), wf_get(y, want->type.dtype, k));
    }
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void run_or_fail(const struct row *r, weft_ctx *ctx, const struct built *b,
                        const struct wf_tensor *feeds, int n_fetch, const weft_val *fetch,
                        const struct op_run_opts *o, struct op_run *run)
{
    static const struct op_run_opts plain = {.rng = {.seed = 42, .step = 3, .shard = 1}};
    struct op_run_opts opts = o ? *o : plain;
    weft_status st;

    opts.rng = plain.rng;
    if (opts.fast && r->c->impl && !r->c->build) {
        opts.op = r->c->op;
        opts.impl = r->c->impl;
    }
    st = op_run(ctx, b->g, r->c->n_in, b->in, feeds, n_fetch, fetch, &opts, run);
    MUST(r, !st, "run (%s): %s: %s", weft_simd_name(ctx->simd), weft_status_name(st), weft_error());
}

static bool updates_inputs(const struct built *b)
{
    return wf_val_node(b->g, b->out[0])->op->flags & WF_STATE_IN0;
}

/* Step 1. The reference run is kept for the other steps. */
static void check_reference(const struct row *r, struct built *b, const struct wf_tensor *feeds,
                            struct op_run *ref)
{
    struct op_run again;
    weft_status st = row_build(r, r->b->base, WEFT_F32, false, b);

    MUST(r, !st, "build: %s: %s", weft_status_name(st), weft_error());
    run_or_fail(r, r->b->base, b, feeds, b->n_out, b->out, NULL, ref);
    for (int i = 0; i < r->c->n_in; i++)
        if (b->in[i].id && !updates_inputs(b) && ref->val[b->in[i].id].data)
            row_compare_bits(r, "an input after the run", &ref->val[b->in[i].id], &feeds[i]);
    run_or_fail(r, r->b->base, b, feeds, b->n_out, b->out, &(struct op_run_opts){.in_place = true},
                &again);
    for (int i = 0; i < b->n_out; i++)
        row_compare_bits(r, "in place (ref)", &again.val[b->out[i].id], &ref->val[b->out[i].id]);
    op_run_free(&again);
    if (r->c->want) {
        const struct wf_tensor *y = &ref->val[b->out[0].id];

        MUST(r, wf_type_count(&y->type) == r->c->n_want, "%lld values, expected %lld",
             (long long)wf_type_count(&y->type), (long long)r->c->n_want);
        for (int64_t i = 0; i < r->c->n_want; i++)
            MUST(r,
                 near(wf_get(y->data, y->type.dtype, i), r->c->want[i],
                      r->c->tol_want > 0 ? r->c->tol_want : 1e-6),
                 "element %lld is %.9g, expected %.9g", (long long)i,
                 wf_get(y->data, y->type.dtype, i), r->c->want[i]);
    }
}

static void check_symbolic(const struct row *r, const struct wf_tensor *feeds,
                           const struct built *known, const struct op_run *ref)
{
    struct built b;
    struct op_run run;
    weft_status st = row_build(r, r->b->base, WEFT_F32, true, &b);

    MUST(r, !st, "build with symbolic sizes: %s: %s", weft_status_name(st), weft_error());
    run_or_fail(r, r->b->base, &b, feeds, b.n_out, b.out, NULL, &run);
    for (int i = 0; i < b.n_out; i++)
        row_compare_bits(r, "symbolic sizes", &run.val[b.out[i].id], &ref->val[known->out[i].id]);
    op_run_free(&run);
    weft_graph_free(b.g);
}

/* Steps 2 and 3 for the values in `fetch`. */
static void check_levels(const struct row *r, const struct built *b, const struct wf_tensor *feeds,
                         int n, const weft_val *fetch, const struct op_run *ref, double tol,
                         bool values)
{
    for (weft_simd s = WEFT_SIMD_PORTABLE; s < WEFT_SIMD_AVX512BF16; s++) { /* f32 has no other */
        struct op_run one = {0}, run;
        char what[64];

        for (int t = 0; t < N_THREAD_COUNTS && r->b->ctx[s][t]; t++) {
            run_or_fail(r, r->b->ctx[s][t], b, feeds, n, fetch, &(struct op_run_opts){.fast = true},
                        t ? &run : &one);
            for (int i = 0; i < n; i++) {
                snprintf(what, sizeof what, "%s %s %d, %d threads", weft_simd_name(s),
                         values ? "output" : "gradient", i, weft_ctx_threads(r->b->ctx[s][t]));
                if (!fetch[i].id)
                    continue;
                if (t)
                    row_compare_bits(r, what, &run.val[fetch[i].id], &one.val[fetch[i].id]);
                else if (values && (r->c->flags & OP_EXACT))
                    row_compare_bits(r, what, &one.val[fetch[i].id], &ref->val[fetch[i].id]);
                else
                    row_compare(r, what, &one.val[fetch[i].id], &ref->val[fetch[i].id], tol);
            }
            for (int i = 0; i < r->c->n_in && !t && values; i++)
                if (b->in[i].id && ref->val[b->in[i].id].data)
                    row_compare(
                        r, updates_inputs(b) ? "an updated input" : "an input after the run",
                        &one.val[b->in[i].id], &ref->val[b->in[i].id], updates_inputs(b) ? tol : 0);
            if (t)
                op_run_free(&run);
        }
        if (one.ctx && values) {
            run_or_fail(r, one.ctx, b, feeds, n, fetch,
                        &(struct op_run_opts){.fast = true, .in_place = true}, &run);
            for (int i = 0; i < n; i++)
                row_compare_bits(r, "in place (fast)", &run.val[fetch[i].id],
                                 &one.val[fetch[i].id]);
            op_run_free(&run);
        }
        op_run_free(&one);
    }
}

static double loss_at(const struct row *r, const struct built *b, const struct wf_tensor *feeds)
{
    struct op_run run;
    double v;

    run_or_fail(r, r->b->base, b, feeds, 1, &b->loss, NULL, &run);
    v = wf_get(run.val[b->loss.id].data, WEFT_F64, 0);
    op_run_free(&run);
    return v;
}

/* d loss / d element k of input i, by central differences of fourth order. */
static double difference(const struct row *r, const struct built *b, struct wf_tensor *feeds, int i,
                         int64_t k)
{
    double *x = (double *)feeds[i].data + k, old = *x, h = 2e-4 * (1 + fabs(old)), f[4];

    for (int j = 0; j < 4; j++) {
        *x = old + (j < 2 ? j - 2 : j - 1) * h;
        f[j] = loss_at(r, b, feeds);
    }
    *x = old;
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

static bool is_large(const struct row *r)
{
    for (int i = 0; i < r->c->n_in; i++)
        if (r->count[i] > LARGE)
            return true;
    return false;
}

static void check_differences(const struct row *r, const char *what, const struct built *b,
                              struct wf_tensor *feeds, const struct op_run *run)
{
    double tol = r->c->tol_grad > 0 ? r->c->tol_grad : 1e-6;
    uint64_t s = 5;

    for (int i = 0; i < r->c->n_in; i++) {
        const struct wf_tensor *d = b->grad[i].id ? &run->val[b->grad[i].id] : NULL;
        int64_t n = r->count[i];
        int64_t tries = is_large(r) ? MAX_POSITIONS_LARGE : MAX_POSITIONS;

        if (!wf_is_float(r->c->in[i].dtype) || (r->c->no_grad >> i & 1))
            continue;
        for (int64_t t = 0; t < tries && t < n; t++) {
            int64_t k = n <= tries ? t : (int64_t)(next_bits(&s) % (uint64_t)n);
            double want = difference(r, b, feeds, i, k), got = d ? wf_get(d->data, WEFT_F64, k) : 0;

            MUST(r, near(got, want, tol),
                 "%s of input %d: element %lld is %.9g, differences say %.9g", what, i,
                 (long long)k, got, want);
        }
    }
}

/* Runs the gradients and checks that each has the type of its input. */
static void run_grads(const struct row *r, const struct built *b, const struct wf_tensor *feeds,
                      struct op_run *run)
{
    char ta[WF_TYPE_TEXT], tb[WF_TYPE_TEXT];

    run_or_fail(r, r->b->base, b, feeds, r->c->n_in, b->grad, NULL, run);
    for (int i = 0; i < r->c->n_in; i++) {
        const struct wf_tensor *d = &run->val[b->grad[i].id];

        if (b->grad[i].id)
            MUST(r,
                 d->type.dtype == feeds[i].type.dtype &&
                     wf_type_same_shape(&d->type, &feeds[i].type),
                 "the gradient of input %d is %s, the input %s", i, wf_type_text(&d->type, ta),
                 wf_type_text(&feeds[i].type, tb));
    }
}

static void must_build(const struct row *r, weft_dtype floats, bool symbolic,
                       const struct wf_type *types, struct built *b)
{
    weft_status st = row_build(r, r->b->base, floats, symbolic, b);

    MUST(r, !st, "build in %s: %s: %s", weft_dtype_name(floats), weft_status_name(st),
         weft_error());
    st = row_differentiate(r, b, types);
    MUST(r, !st, "gradient: %s: %s", weft_status_name(st), weft_error());
}

/* Steps 4 and 5, and step 2 for gradients. */
static void check_gradients(const struct row *r, const struct wf_tensor *feeds32,
                            const struct wf_type *types)
{
    bool symbolic = !(r->c->flags & OP_STATIC);
    struct wf_tensor feeds[OP_MAX_IN];
    struct built b, fixed;
    struct op_run run, other;
    weft_status st;

    row_feeds(r, WEFT_F64, feeds);
    must_build(r, WEFT_F64, symbolic, types, &b);
    if (b.loss.id) {
        run_grads(r, &b, feeds, &run);
        check_differences(r, "gradient", &b, feeds, &run);
        must_build(r, WEFT_F64, false, types, &fixed);
        run_grads(r, &fixed, feeds, &other);
        for (int i = 0; i < r->c->n_in; i++)
            if (b.grad[i].id)
                row_compare(r, "gradient with known sizes", &other.val[fixed.grad[i].id],
                            &run.val[b.grad[i].id], 1e-13);
        op_run_free(&other);
        op_run_free(&run);
        weft_graph_free(fixed.g);
    }
    if (b.loss.id && !(r->c->flags & OP_NO_FAST_GRAD)) {
        must_build(r, WEFT_F32, symbolic, types, &fixed);
        run_grads(r, &fixed, feeds32, &other);
        check_levels(r, &fixed, feeds32, r->c->n_in, fixed.grad, &other,
                     (r->c->tol > 0 ? r->c->tol : 1e-5) * 5, false);
        op_run_free(&other);
        weft_graph_free(fixed.g);
    }
    if (b.loss.id && !(r->c->flags & OP_NO_GRAD2)) {
        st = differentiate_again(r, &b);
        MUST(r, !st, "second gradient: %s: %s", weft_status_name(st), weft_error());
        if (b.loss.id) {
            run_grads(r, &b, feeds, &run);
            check_differences(r, "second gradient", &b, feeds, &run);
            op_run_free(&run);
        }
    }
    weft_graph_free(b.g);
    row_feeds_free(r, feeds);
}

/* The same bits as another number of threads gave. */
static void check_threads(const struct row *r, const char *what, weft_ctx *ctx,
                          const struct built *a, const struct wf_tensor *feeds,
                          const struct op_run *want)
{
    struct op_run got;

    run_or_fail(r, ctx, a, feeds, a->n_out, a->out, &(struct op_run_opts){.fast = true}, &got);
    for (int i = 0; i < a->n_out; i++)
        row_compare_bits(r, what, &got.val[a->out[i].id], &want->val[a->out[i].id]);
    op_run_free(&got);
}

/* Step 6 for one dtype. */
static void check_dtype(const struct row *r, weft_dtype t, double tol)
{
    struct wf_tensor narrow[OP_MAX_IN], wide[OP_MAX_IN];
    struct built a, b;
    struct op_run want, got;

    row_feeds(r, t, narrow);
    widen_feeds(r, narrow, wide);
    MUST(r, !row_build(r, r->b->base, t, false, &a), "build in %s: %s", weft_dtype_name(t),
         weft_error());
    MUST(r, !row_build(r, r->b->base, WEFT_F64, false, &b), "build in f64: %s", weft_error());
    run_or_fail(r, r->b->base, &b, wide, b.n_out, b.out, NULL, &want);
    for (weft_simd s = WEFT_SIMD_AUTO; s <= WEFT_SIMD_AVX512BF16; s++) {
        weft_ctx *ctx = s ? r->b->ctx[s][1] : r->b->base; /* AUTO stands for the reference here */
        char what[64];

        if (!ctx || (s == WEFT_SIMD_AVX512BF16 && t != WEFT_BF16))
            continue;
        snprintf(what, sizeof what, "%s, %s", weft_dtype_name(t),
                 s ? weft_simd_name(s) : "reference");
        run_or_fail(r, ctx, &a, narrow, a.n_out, a.out,
                    &(struct op_run_opts){.fast = s != WEFT_SIMD_AUTO}, &got);
        for (int i = 0; i < a.n_out; i++)
            row_compare(r, what, &got.val[a.out[i].id], &want.val[b.out[i].id], tol);
        for (int n = 0; s == WEFT_SIMD_AVX512BF16 && n < N_THREAD_COUNTS; n++)
            check_threads(r, what, r->b->ctx[s][n], &a, narrow, &got);
        op_run_free(&got);
    }
    op_run_free(&want);
    weft_graph_free(a.g);
    weft_graph_free(b.g);
    row_feeds_free(r, narrow);
    row_feeds_free(r, wide);
}

/* .fails: at building, or at running with either kind of kernel. */
static void check_failure(const struct row *r, const struct wf_tensor *feeds)
{
    struct built b;
    struct op_run run;

    for (int fast = 0; fast < 2; fast++) {
        weft_status st = row_build(r, r->b->base, WEFT_F32, false, &b);

        if (!st) {
            st = op_run(r->b->base, b.g, r->c->n_in, b.in, feeds, b.n_out, b.out,
                        &(struct op_run_opts){.fast = fast}, &run);
            op_run_free(&run);
        }
        MUST(r, st == r->c->fails, "status %s (%s), expected %s", weft_status_name(st),
             st ? weft_error() : "", weft_status_name(r->c->fails));
        MUST(r, !r->c->text || strstr(weft_error(), r->c->text), "the text '%s' does not say '%s'",
             weft_error(), r->c->text);
        weft_graph_free(b.g);
    }
}

static void check_values(const struct row *r, const struct wf_tensor *feeds)
{
    struct wf_type types[WF_MAX_OUT];
    struct built b;
    struct op_run ref;
    double half = r->c->tol_half > 0 ? r->c->tol_half : 1;

    check_reference(r, &b, feeds, &ref);
    if (!(r->c->flags & OP_STATIC))
        check_symbolic(r, feeds, &b, &ref);
    check_levels(r, &b, feeds, b.n_out, b.out, &ref, r->c->tol > 0 ? r->c->tol : 1e-5, true);
    for (int i = 0; i < b.n_out; i++)
        types[i] = ref.val[b.out[i].id].type;
    for (int i = 0; i < b.n_out; i++)
        if (types[i].dtype == WEFT_F32)
            types[i].dtype = WEFT_F64;
    op_run_free(&ref);
    if (!updates_inputs(&b)) {
        row_check_executor(r, r->b->base, feeds, types);
        row_check_executor(r, r->b->ctx[weft_simd_best()][1], feeds, types);
    }
    if (!(r->c->flags & OP_NO_GRAD))
        check_gradients(r, feeds, types);
    if (!(r->c->flags & OP_F32_ONLY))
        check_dtype(r, WEFT_F64, 1e-12);
    if (!(r->c->flags & (OP_F32_ONLY | OP_NO_HALF))) {
        check_dtype(r, WEFT_F16, 2e-3 * half);
        check_dtype(r, WEFT_BF16, 1.6e-2 * half);
    }
    weft_graph_free(b.g);
}

/* ---- a row ----------------------------------------------------------------------------------- */

void row_data(struct row *r)
{
    uint64_t s = wf_hash64(r->line, strlen(r->line), 1);

    for (int i = 0; i < r->c->n_in; i++) {
        struct wf_type t = wf_type_of(WEFT_F64, r->c->in[i].rank, r->c->in[i].dim);

        r->count[i] = r->c->in[i].dtype ? wf_type_count(&t) : 0;
        r->master[i] = malloc((size_t)r->count[i] * sizeof(double) + 1);
        fill(&r->c->in[i], r->count[i], r->master[i], &s);
    }
}

void row_data_free(struct row *r)
{
    for (int i = 0; i < r->c->n_in; i++)
        free(r->master[i]);
}

void row_check(struct row *r)
{
    struct wf_tensor feeds[OP_MAX_IN];
    int64_t used = weft_ctx_memory(r->b->base);

    row_data(r);
    row_feeds(r, WEFT_F32, feeds);
    if (r->c->fails)
        check_failure(r, feeds);
    else
        check_values(r, feeds);
    row_feeds_free(r, feeds);
    row_data_free(r);
    MUST(r, weft_ctx_memory(r->b->base) == used, "%lld bytes leaked",
         (long long)(weft_ctx_memory(r->b->base) - used));
}
