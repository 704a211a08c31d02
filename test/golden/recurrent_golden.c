/* recurrent_golden.c - recurrent, attention and embedding layers as small models against Keras:
 * outputs, and the gradients of weights and inputs. Weights are given in Keras' order, so that the
 * order is checked too.
 *
 * test/golden/recurrent.json, written by tools/golden_recurrent.py, which describes it. */
#include "golden.h"
#include "model/model.h"

enum { MAX_NAMES = 16, MAX_VALUES = 64 };

/* Names of a case: inputs, results of steps, layers that were only made. */
struct names {
    int n;
    const char *name[MAX_NAMES];
    weft_sym sym[MAX_NAMES];
    weft_layer layer[MAX_NAMES];
};

static int find_name(const struct names *s, const char *name, size_t n)
{
    for (int i = 0; i < s->n; i++)
        if (strlen(s->name[i]) == n && !strncmp(s->name[i], name, n))
            return i;
    fail_msg("the case has no '%.*s'", (int)n, name);
    return -1;
}

static weft_sym sym_of(weft_model *m, const struct names *s, const char *ref)
{
    size_t n = strcspn(ref, ":");
    weft_sym x = s->sym[find_name(s, ref, n)];

    return ref[n] ? weft_sym_part(m, x, atoi(ref + n + 1)) : x;
}

/* The user's cell: y = a' + b', a' = tanh(x w + a), b' = b / 2 + x u. */
static weft_status test_cell(weft_layer_call *c)
{
    weft_graph *g = weft_lc_graph(c);
    weft_val x = weft_lc_in(c, 0), a = weft_lc_in(c, 1), b = weft_lc_in(c, 2);
    int64_t dim[2] = {weft_lc_dim(c, x, -1), 3};

    a = weft_tanh(g, weft_add(g, weft_matmul(g, x, weft_lc_weight(c, "w", 2, dim, NULL), NULL), a));
    b = weft_add(g, weft_mul(g, b, weft_scalar(g, 0.5)),
                 weft_matmul(g, x, weft_lc_weight(c, "u", 2, dim, NULL), NULL));
    weft_lc_out(c, 0, weft_add(g, a, b));
    weft_lc_out(c, 1, a);
    weft_lc_out(c, 2, b);
    return WEFT_OK;
}

static weft_layer inner_layer(weft_model *m, const struct names *s, const json_t *inner)
{
    const char *kind = string_of(inner, "kind");

    if (kind[0] == '@')
        return s->layer[find_name(s, kind + 1, strlen(kind + 1))];
    return weft_layer_new(m, kind, string_of(inner, "attrs"));
}

static void add_step(weft_model *m, struct names *s, const json_t *step)
{
    const json_t *in = json_object_get(step, "in"), *inner = json_object_get(step, "inner");
    const char *kind = string_of(step, "kind"), *attrs = string_of(step, "attrs");
    weft_sym x[8];
    int n = (int)json_array_size(in), at = s->n++;

    for (int i = 0; i < n; i++)
        x[i] = sym_of(m, s, json_string_value(json_array_get(in, (size_t)i)));
    s->name[at] = string_of(step, "name");
    s->layer[at] = inner ? weft_layer_wrap(m, kind, attrs, inner_layer(m, s, inner))
                         : weft_layer_new(m, kind, attrs);
    if (in)
        s->sym[at] = weft_call_n(m, s->layer[at], n, x);
}

static weft_model *make_model(weft_ctx *ctx, const json_t *c, bool time_known)
{
    static const weft_layer_kind cell = {.size = sizeof cell,
                                         .name = "TestCell",
                                         .n_in_min = 3,
                                         .n_in_max = 3,
                                         .attrs = "state_size:l",
                                         .build = test_cell,
                                         .doc = "a cell of a test"};
    const json_t *list = json_object_get(c, "inputs"), *steps = json_object_get(c, "steps"),
                 *outs = json_object_get(c, "outputs");
    struct names s = {0};
    weft_model *m = NULL;

    OK(weft_model_new(ctx, NULL, &m));
    OK(weft_layer_register(m, &cell));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *in = json_array_get(list, i), *shape = json_object_get(in, "shape");
        int64_t dim[WEFT_MAX_RANK];
        weft_dtype t;
        int rank = (int)json_array_size(shape) - 1;

        for (int k = 0; k < rank; k++)
            dim[k] = json_integer_value(json_array_get(shape, (size_t)k + 1));
        if (!time_known && rank > 0 && json_array_size(shape) != 2)
            dim[0] = WEFT_ANY;
        OK(weft_dtype_parse(string_of(in, "dtype"), &t));
        s.name[s.n] = string_of(in, "name");
        s.sym[s.n++] = weft_input(m, string_of(in, "name"), t, rank, dim);
    }
    for (size_t i = 0; i < json_array_size(steps); i++)
        add_step(m, &s, json_array_get(steps, i));
    for (size_t i = 0; i < json_array_size(outs); i++)
        weft_model_output(m, sym_of(m, &s, json_string_value(json_array_get(outs, i))));
    return m;
}

static weft_tensor numbers(const json_t *shape, const json_t *data, weft_dtype t)
{
    weft_tensor v = {.dtype = t, .rank = (int)json_array_size(shape)};

    for (int i = 0; i < v.rank; i++)
        v.dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    v.data = malloc((size_t)weft_tensor_bytes(&v) + 1);
    for (int64_t i = 0; i < weft_tensor_count(&v); i++)
        wf_set(v.data, t, i, json_number_value(json_array_get(data, (size_t)i)));
    return v;
}

static void set_weights(weft_fn *fn, const weft_model *m, const json_t *c)
{
    const json_t *list = json_object_get(c, "weights");

    if (wf_model_n_weights(m) != (int)json_array_size(list))
        fail_msg("%s: %d weights, Keras has %zu", string_of(c, "name"), wf_model_n_weights(m),
                 json_array_size(list));
    for (int i = 0; i < wf_model_n_weights(m); i++) {
        const json_t *w = json_array_get(list, (size_t)i);
        weft_tensor t = numbers(json_object_get(w, "shape"), json_object_get(w, "data"), WEFT_F32);

        if (weft_fn_set(fn, wf_model_weight(m, i)->name, &t))
            fail_msg("%s: %s", string_of(c, "name"), weft_error());
        free(t.data);
    }
}

/* Feeds, cotangents, outputs and gradients of a case. */
struct run {
    int n_feeds, n_out, n_grads;
    weft_val feed[MAX_VALUES], of[MAX_VALUES], fetch[MAX_VALUES];
    weft_tensor tensor[MAX_VALUES], got[MAX_VALUES];
};

static void add_gradients(weft_graph *g, const struct wf_built *b, const weft_model *m,
                          const json_t *c, struct run *r)
{
    const json_t *outs = json_object_get(c, "out");
    weft_val cot[MAX_VALUES];

    for (int i = 0; i < b->n_weights; i++)
        if (!wf_model_weight(m, i)->state)
            r->of[r->n_grads++] = b->weight[i];
    for (int i = 0; i < b->n_in; i++)
        if (r->tensor[i].dtype == WEFT_F32)
            r->of[r->n_grads++] = b->in[i];
    for (int i = 0; i < b->n_out; i++) {
        const json_t *o = json_array_get(outs, (size_t)i);
        char name[16];

        snprintf(name, sizeof name, "cot%d", i);
        r->tensor[r->n_feeds] =
            numbers(json_object_get(o, "shape"), json_object_get(o, "cot"), WEFT_F32);
        cot[i] = weft_placeholder(g, name, WEFT_F32, r->tensor[r->n_feeds].rank,
                                  r->tensor[r->n_feeds].dim);
        r->feed[r->n_feeds++] = cot[i];
        r->fetch[r->n_out++] = b->out[i];
    }
    if (weft_vjp(g, b->n_out, b->out, cot, r->n_grads, r->of, r->fetch + r->n_out))
        fail_msg("%s: %s", string_of(c, "name"), weft_error());
}

/* A gradient that is zero but for rounding (that of a key's bias) is compared as such. */
static void compare_grad(const char *name, const char *what, const weft_tensor *got,
                         const json_t *want)
{
    double largest = 0;

    for (size_t i = 0; i < json_array_size(want); i++)
        largest = fmax(largest, fabs(json_number_value(json_array_get(want, i))));
    if (largest > 1e-5) {
        compare(name, what, got, want, 2e-5);
        return;
    }
    for (int64_t i = 0; i < weft_tensor_count(got); i++)
        if (!(fabs((double)((float *)got->data)[i]) < 1e-5))
            fail_msg("%s: %s: element %lld is %g instead of 0", name, what, (long long)i,
                     (double)((float *)got->data)[i]);
}

static void compare_all(const json_t *c, const struct run *r)
{
    const json_t *outs = json_object_get(c, "out"), *dw = json_object_get(c, "dw"),
                 *dx = json_object_get(c, "dx");
    size_t n_dw = json_array_size(dw);
    char what[64];

    for (int i = 0; i < r->n_out; i++) {
        snprintf(what, sizeof what, "output %d", i);
        compare(string_of(c, "name"), what, &r->got[i],
                json_object_get(json_array_get(outs, (size_t)i), "data"), 3e-6);
    }
    assert_int_equal(r->n_grads, n_dw + json_array_size(dx));
    for (size_t i = 0; i < (size_t)r->n_grads; i++) {
        snprintf(what, sizeof what, "gradient of %s %zu", i < n_dw ? "weight" : "input",
                 i < n_dw ? i : i - n_dw);
        compare_grad(string_of(c, "name"), what, &r->got[r->n_out + (int)i],
                     i < n_dw ? json_array_get(dw, i) : json_array_get(dx, i - n_dw));
    }
}

static void check_case(weft_ctx *ctx, const json_t *c, bool time_known, const struct variant *how)
{
    const json_t *list = json_object_get(c, "inputs");
    weft_model *m = make_model(ctx, c, time_known);
    struct run r = {0};
    struct wf_arena arena;
    struct wf_built b;
    weft_graph *g = NULL;
    weft_fn *fn = NULL;

    wf_arena_init(&arena, ctx);
    OK(weft_graph_new(ctx, &g));
    if (wf_model_build(m, g, false, &arena, &b))
        fail_msg("%s: %s", string_of(c, "name"), weft_error());
    for (int i = 0; i < b.n_in; i++) {
        const json_t *in = json_array_get(list, (size_t)i);
        weft_dtype t;

        OK(weft_dtype_parse(string_of(in, "dtype"), &t));
        r.tensor[i] = numbers(json_object_get(in, "shape"), json_object_get(in, "data"), t);
        r.feed[r.n_feeds++] = b.in[i];
    }
    add_gradients(g, &b, m, c, &r);
    if (weft_fn_new(g,
                    WEFT_OPTS(weft_fn_opts, .n_feeds = r.n_feeds, .feeds = r.feed,
                              .n_fetches = r.n_out + r.n_grads, .fetches = r.fetch,
                              .passes_off = how->passes_off, .reference_kernels = how->reference),
                    &fn))
        fail_msg("%s: %s", string_of(c, "name"), weft_error());
    set_weights(fn, m, c);
    if (weft_fn_run(fn, r.tensor, r.got))
        fail_msg("%s: %s", string_of(c, "name"), weft_error());
    compare_all(c, &r);
    for (int i = 0; i < r.n_feeds; i++)
        free(r.tensor[i].data);
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_model_free(m);
    wf_arena_free(&arena);
}

/* Built step by step, such a layer must know how many there are; so must folded axes and
 * windows. */
static bool needs_time(const char *name)
{
    static const char *const words[] = {"activation", "cell", "hard_sigmoid",
                                        "window",     "axes", "time distributed"};

    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
        if (strstr(name, words[i]))
            return true;
    return false;
}

/* Every case in every way to run that this CPU has. */
static void check_all(bool time_known)
{
    json_t *file = read_golden("recurrent");
    const json_t *cases = json_object_get(file, "cases");

    assert_true(json_array_size(cases) > 80);
    for (int k = 0; k < N_VARIANTS; k++) {
        weft_ctx *ctx = NULL;

        if (variants[k].simd > weft_simd_best())
            continue;
        print_message("%s\n", variants[k].name);
        OK(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .simd = variants[k].simd,
                                  .kernels = variants[k].kernels),
                        &ctx));
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *c = json_array_get(cases, i);

            if (time_known || !needs_time(string_of(c, "name")))
                check_case(ctx, c, time_known, &variants[k]);
        }
        weft_ctx_free(ctx);
    }
    json_decref(file);
}

static void layers_agree_with_keras(void **state)
{
    (void)state;
    check_all(true);
}

static void layers_agree_with_keras_at_any_number_of_steps(void **state)
{
    (void)state;
    check_all(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_agree_with_keras),
        cmocka_unit_test(layers_agree_with_keras_at_any_number_of_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
