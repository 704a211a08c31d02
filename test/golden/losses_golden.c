/* losses_golden.c - losses and metrics against Keras: values, weighted means and gradients of
 * losses, results of metrics after one and after several batches.
 *
 * test/golden/losses.json and metrics.json, written by tools/golden_losses.py, which describes
 * them. Every case runs with the batch's size unknown while the graph is built, and with all sizes
 * known. */
#include "golden.h"
#include "model/metric.h"

struct holder {
    weft_ctx *ctx;
    json_t *file;
    bool sizes_known;
    const struct variant *how;
};

static weft_tensor tensor_named(const json_t *file, const char *name)
{
    const json_t *spec = json_object_get(json_object_get(file, "data"), name),
                 *shape = json_object_get(spec, "shape"), *data = json_object_get(spec, "data");
    weft_tensor t = {.rank = (int)json_array_size(shape)};

    if (!spec)
        fail_msg("the file has no tensor '%s'", name);
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    OK(weft_dtype_parse(string_of(spec, "dtype"), &t.dtype));
    t.data = malloc((size_t)weft_tensor_bytes(&t));
    for (int64_t i = 0; i < weft_tensor_count(&t); i++)
        wf_set(t.data, t.dtype, i, json_number_value(json_array_get(data, (size_t)i)));
    return t;
}

/* What a case feeds. */
struct feeds {
    int n;
    weft_val val[4];
    weft_tensor tensor[4];
};

static weft_val feed(struct holder *h, weft_graph *g, struct feeds *f, const char *name)
{
    weft_tensor t = tensor_named(h->file, name);
    int64_t dim[WEFT_MAX_RANK];
    char unique[32];

    memcpy(dim, t.dim, sizeof dim);
    if (!h->sizes_known && t.rank)
        dim[0] = WEFT_ANY;
    snprintf(unique, sizeof unique, "feed%d", f->n);
    f->tensor[f->n] = t;
    return f->val[f->n++] = weft_placeholder(g, unique, t.dtype, t.rank, dim);
}

static void free_feeds(struct feeds *f)
{
    for (int i = 0; i < f->n; i++)
        free(f->tensor[i].data);
}

static weft_fn *run(const struct holder *h, weft_graph *g, struct feeds *f, int n,
                    const weft_val *fetch, weft_tensor *out)
{
    weft_fn *fn = NULL;

    memset(out, 0, (size_t)n * sizeof *out);
    OK(weft_graph_status(g));
    OK(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = f->n, .feeds = f->val, .n_fetches = n,
                             .fetches = fetch, .passes_off = h->how->passes_off,
                             .reference_kernels = h->how->reference),
                   &fn));
    OK(weft_fn_run(fn, f->tensor, out));
    return fn;
}

static double number_of(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    if (!json_is_number(v))
        fail_msg("the case has no number '%s'", key);
    return json_number_value(v);
}

static void assert_near(const char *what, const char *which, double got, double want, double tol)
{
    double scale = fabs(want) > 1 ? fabs(want) : 1;

    if (!(fabs(got - want) <= tol * scale))
        fail_msg("%s: %s is %.9g, expected %.9g", what, which, got, want);
}

/* Every case in every way to run that this CPU has. */
static void check_all(const char *file, bool sizes_known,
                      void (*check)(struct holder *h, const json_t *c))
{
    struct holder h = {.file = read_golden(file), .sizes_known = sizes_known};
    const json_t *cases = json_object_get(h.file, "cases");

    assert_true(json_array_size(cases) > 50);
    for (int k = 0; k < N_VARIANTS; k++) {
        if (variants[k].simd > weft_simd_best())
            continue;
        h.how = &variants[k];
        OK(weft_ctx_new(
            WEFT_OPTS(weft_ctx_opts, .threads = 2, .simd = h.how->simd, .kernels = h.how->kernels),
            &h.ctx));
        for (size_t i = 0; i < json_array_size(cases); i++)
            check(&h, json_array_get(cases, i));
        weft_ctx_free(h.ctx);
    }
    json_decref(h.file);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void check_loss(struct holder *h, const json_t *c)
{
    const char *text = string_of(c, "loss"), *pred = string_of(c, "pred");
    const json_t *w = json_object_get(c, "weight"), *m = json_object_get(c, "mask");
    struct feeds f = {0};
    weft_val y, p, weight = WEFT_NIL, mask = WEFT_NIL, own = WEFT_NIL, values = WEFT_NIL, sum,
                   count, mean, grad = WEFT_NIL;
    weft_tensor out[3];
    weft_graph *g = NULL;
    weft_fn *fn;
    char what[128];

    OK(weft_graph_new(h->ctx, &g));
    y = feed(h, g, &f, string_of(c, "y"));
    p = feed(h, g, &f, pred);
    if (w)
        weight = feed(h, g, &f, json_string_value(w));
    if (m)
        mask = feed(h, g, &f, json_string_value(m));
    OK(wf_loss_check(h->ctx, NULL, text));
    OK(wf_loss_build(NULL, g, text, y, p, &values));
    OK(wf_loss_mask(NULL, g, text, y, p, &own));
    OK(wf_loss_reduce(g, values, weight, own.id ? own : mask, &sum, &count));
    mean = weft_div(g, sum, count);
    OK(weft_grad(g, mean, 1, &p, &grad));
    fn = run(h, g, &f, 3, (weft_val[]){values, mean, grad}, out);
    snprintf(what, sizeof what, "%s on %s", text, pred);
    compare(what, "values", &out[0], json_object_get(c, "values"), 2e-6);
    assert_near(what, "the mean", ((float *)out[1].data)[0], number_of(c, "mean"), 2e-6);
    compare(what, "the gradient", &out[2], json_object_get(c, "grad"), 1e-5);
    weft_fn_free(fn);
    weft_graph_free(g);
    free_feeds(&f);
}

static void check_losses(bool sizes_known)
{
    check_all("losses", sizes_known, check_loss);
}

static void losses_agree_with_keras_at_any_batch(void **state)
{
    (void)state;
    check_losses(false);
}

static void losses_agree_with_keras_at_known_sizes(void **state)
{
    (void)state;
    check_losses(true);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static struct wf_type type_of_tensor(const weft_tensor *t, bool known)
{
    struct wf_type type = wf_type_of(t->dtype, t->rank, t->dim);

    if (!known && t->rank)
        type.dim[0] = WEFT_ANY;
    return type;
}

/* Adds what one batch makes. */
static void add_batch(struct holder *h, const struct wf_metric *m, const json_t *batch,
                      double *sums)
{
    const char *weight = json_string_value(json_array_get(batch, 2));
    struct feeds f = {0};
    weft_graph *g = NULL;
    weft_val y, p, w = WEFT_NIL, v = WEFT_NIL;
    weft_tensor out;
    weft_fn *fn;

    OK(weft_graph_new(h->ctx, &g));
    y = feed(h, g, &f, json_string_value(json_array_get(batch, 0)));
    p = feed(h, g, &f, json_string_value(json_array_get(batch, 1)));
    if (weight)
        w = feed(h, g, &f, weight);
    OK(wf_metric_build(g, m, y, p, w, &v));
    fn = run(h, g, &f, 1, &v, &out);
    assert_int_equal(out.dtype, WEFT_F32);
    assert_int_equal(out.rank, 1);
    assert_int_equal(out.dim[0], m->n_state);
    for (int64_t i = 0; i < m->n_state; i++)
        sums[i] += (double)((float *)out.data)[i];
    weft_fn_free(fn);
    weft_graph_free(g);
    free_feeds(&f);
}

static void check_results(const char *text, const struct wf_metric *m, const double *sums,
                          const json_t *want)
{
    double got[WF_METRIC_MAX_RESULTS];

    assert_int_equal(m->n_results, json_array_size(want));
    wf_metric_result(m, sums, got);
    for (int i = 0; i < m->n_results; i++)
        assert_near(text, "a result", got[i], json_number_value(json_array_get(want, (size_t)i)),
                    3e-6);
}

static void check_metric(struct holder *h, const json_t *c)
{
    const char *text = string_of(c, "metric");
    const json_t *batches = json_object_get(c, "batches"), *first = json_array_get(batches, 0);
    weft_tensor y = tensor_named(h->file, json_string_value(json_array_get(first, 0)));
    weft_tensor p = tensor_named(h->file, json_string_value(json_array_get(first, 1)));
    struct wf_type ty = type_of_tensor(&y, h->sizes_known), tp = type_of_tensor(&p, h->sizes_known);
    struct wf_arena arena;
    struct wf_metric m;
    double *sums;

    wf_arena_init(&arena, h->ctx);
    OK(wf_metric_init(NULL, &m, &arena, text, &ty, &tp));
    sums = calloc((size_t)m.n_state, sizeof *sums);
    for (size_t i = 0; i < json_array_size(batches); i++) {
        add_batch(h, &m, json_array_get(batches, i), sums);
        if (i == 0)
            check_results(text, &m, sums, json_object_get(c, "after_one"));
    }
    check_results(text, &m, sums, json_object_get(c, "result"));
    if (text[0] >= 'A' && text[0] <= 'Z')
        assert_string_equal(m.name, string_of(c, "name"));
    free(sums);
    free(y.data);
    free(p.data);
    wf_arena_free(&arena);
}

static void check_metrics(bool sizes_known)
{
    check_all("metrics", sizes_known, check_metric);
}

static void metrics_agree_with_keras_at_any_batch(void **state)
{
    (void)state;
    check_metrics(false);
}

static void metrics_agree_with_keras_at_known_sizes(void **state)
{
    (void)state;
    check_metrics(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_agree_with_keras_at_any_batch),
        cmocka_unit_test(losses_agree_with_keras_at_known_sizes),
        cmocka_unit_test(metrics_agree_with_keras_at_any_batch),
        cmocka_unit_test(metrics_agree_with_keras_at_known_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
