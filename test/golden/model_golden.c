/* model_golden.c - layers of models against Keras: values in inference and training, gradients of
 * inputs and weights, new state.
 *
 * test/golden/model_*.json, written by tools/golden_layers.py, names the cases. Each is a model of
 * one layer; a mask comes from a layer of our own. Values and gradients are compared within
 * TOLERANCE of each tensor's largest element. */
#include "golden.h"

#include "kernels/cpu/weight.h"
#include "model/model.h"

#define TOLERANCE 2e-5
enum { MAX_VALUES = 16 };

static const char *const files[] = {"model_core", "model_activations", "model_conv",
                                    "model_norm", "model_shape",       "model_merge"};

static const struct {
    const char *name;
    bool reference;
} ways[] = {{"default", false}, {"reference kernels", true}};

/* A mask from the second input. */
static weft_status build_give_mask(weft_layer_call *c)
{
    weft_lc_out(c, 0, weft_lc_in(c, 0));
    weft_lc_out_mask(c, 0, weft_lc_in(c, 1));
    return WEFT_OK;
}

static const weft_layer_kind give_mask = {sizeof give_mask,      "GiveMask",      2,       2, "",
                                          WEFT_LAYER_TAKES_MASK, build_give_mask, "a mask"};

struct net {
    weft_ctx *ctx;
    weft_model *m;
    weft_graph *g;
    struct wf_arena arena;
    struct wf_built built;
    int n_in, n_params;
    weft_tensor feed[MAX_VALUES], weight[MAX_VALUES];
    weft_tensor d;
};

/* The model of a case; the inputs are all but the mask. */
static void make_model(struct net *net, const json_t *c)
{
    const json_t *inputs = json_object_get(c, "inputs");
    const char *name = string_of(c, "name");
    weft_sym x[MAX_VALUES] = {{0}}, y;
    int n = (int)json_array_size(inputs), n_x = 0;

    for (int i = 0; i < n; i++) {
        const json_t *spec = json_array_get(inputs, (size_t)i);
        weft_tensor t = make_tensor(name, spec);

        net->feed[i] = t;
        x[i] = weft_input(net->m, string_of(spec, "name"), t.dtype, t.rank - 1, t.dim + 1);
        if (!strcmp(string_of(spec, "name"), "mask"))
            x[0] = weft_apply_n(net->m, "GiveMask", NULL, 2, (weft_sym[]){x[0], x[i]});
        else
            n_x++;
    }
    net->n_in = n;
    y = weft_apply_n(net->m, string_of(c, "kind"), string_of(c, "attrs"), n_x, x);
    weft_model_output(net->m, y);
    OK(weft_model_status(net->m));
}

static const json_t *weight_spec(const json_t *c, const char *name)
{
    const json_t *weights = json_object_get(c, "weights");

    for (size_t i = 0; i < json_array_size(weights); i++)
        if (!strcmp(string_of(json_array_get(weights, i), "name"), name))
            return json_array_get(weights, i);
    fail_msg("Keras' layer has no weight '%s'", name);
    return NULL;
}

static const char *short_name(const struct wf_weight *w)
{
    return strrchr(w->name, '/') + 1;
}

/* Every weight of the file, in its shape. */
static void make_weights(struct net *net, const json_t *c)
{
    int n = wf_model_n_weights(net->m);

    assert_int_equal(n, json_array_size(json_object_get(c, "weights")));
    for (int i = 0; i < n; i++) {
        const struct wf_weight *w = wf_model_weight(net->m, i);
        weft_tensor t = make_tensor(string_of(c, "name"), weight_spec(c, short_name(w)));

        assert_int_equal(t.rank, w->rank);
        for (int k = 0; k < t.rank; k++)
            assert_int_equal(t.dim[k], w->dim[k]);
        net->weight[i] = t;
    }
}

/* Fetches: the output, the gradients of the inputs (without the mask), of the trained weights. */
static int add_gradients(struct net *net, const json_t *want, weft_val *fetch, char names[][64],
                         weft_val *d)
{
    weft_val values[MAX_VALUES], grads[MAX_VALUES], out = net->built.out[0];
    const json_t *shape = json_object_get(want, "shape");
    weft_tensor t;
    int n = 0;

    OK(weft_val_type(net->g, out, &t));
    assert_int_equal(t.rank, json_array_size(shape));
    for (int i = 0; i < t.rank; i++)
        if (t.dim[i] >= 0)
            assert_int_equal(t.dim[i], json_integer_value(json_array_get(shape, (size_t)i)));
    *d = weft_placeholder(net->g, "d_y", WEFT_F32, t.rank, t.dim);
    fetch[0] = out;
    snprintf(names[0], 64, "y");
    for (int i = 0; i < net->built.n_in; i++) {
        const char *name = weft_val_name(net->g, net->built.in[i]);

        if (!strcmp(name, "mask"))
            continue;
        snprintf(names[n + 1], 64, "d_%s", name);
        values[n++] = net->built.in[i];
    }
    for (int i = 0; i < net->built.n_weights; i++) {
        const struct wf_weight *w = wf_model_weight(net->m, i);

        if (w->state)
            continue;
        snprintf(names[n + 1], 64, "d_%s", short_name(w));
        values[n++] = net->built.weight[i];
    }
    OK(weft_vjp(net->g, 1, &out, d, n, values, grads));
    for (int i = 0; i < n; i++) {
        if (!grads[i].id)
            fail_msg("%s: no gradient", names[i + 1]);
        fetch[i + 1] = grads[i];
    }
    return n + 1;
}

static void compare_state(struct net *net, weft_fn *fn, const char *name, const json_t *want)
{
    for (int i = 0; i < net->built.n_weights; i++) {
        const struct wf_weight *w = wf_model_weight(net->m, i);
        char key[80];
        weft_tensor t;

        if (!w->state)
            continue;
        snprintf(key, sizeof key, "new_%s", short_name(w));
        OK(weft_fn_view(fn, w->name, &t));
        compare(name, key, &t, json_object_get(want, key), TOLERANCE);
    }
}

static void run_mode(struct net *net, const json_t *c, bool training, bool reference)
{
    const json_t *want = json_object_get(c, training ? "training" : "inference");
    const char *name = string_of(c, "name");
    weft_val fetch[MAX_VALUES], d, feeds[MAX_VALUES];
    weft_tensor got[MAX_VALUES] = {{0}};
    char names[MAX_VALUES][64];
    weft_fn *fn;
    int n;

    OK(weft_graph_new(net->ctx, &net->g));
    OK(wf_model_build(net->m, net->g, training, &net->arena, &net->built));
    n = add_gradients(net, want, fetch, names, &d);
    for (int i = 0; i < net->n_in; i++)
        feeds[i] = net->built.in[i];
    feeds[net->n_in] = d;
    OK(weft_fn_new(net->g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = net->n_in + 1, .feeds = feeds, .n_fetches = n,
                             .fetches = fetch, .n_updates = net->built.n_updates,
                             .updates = net->built.update, .reference_kernels = reference),
                   &fn));
    for (int i = 0; i < net->built.n_weights; i++)
        OK(weft_fn_set(fn, wf_model_weight(net->m, i)->name, &net->weight[i]));
    net->feed[net->n_in] = net->d;
    OK(weft_fn_run(fn, net->feed, got));
    for (int i = 0; i < n; i++)
        compare(name, names[i], &got[i], json_object_get(want, names[i]), TOLERANCE);
    if (training)
        compare_state(net, fn, name, want);
    weft_fn_free(fn);
    weft_graph_free(net->g);
}

static void run_case(const json_t *c, bool reference)
{
    struct net net = {0};
    json_t *d = json_pack("{s:s,s:s,s:O,s:f,s:f}", "name", "d_y", "dtype", "f32", "shape",
                          json_object_get(json_object_get(c, "inference"), "shape"), "scale", 1.0,
                          "offset", 0.0);

    OK(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &net.ctx));
    OK(weft_model_new(net.ctx, NULL, &net.m));
    OK(weft_layer_register(net.m, &give_mask));
    wf_arena_init(&net.arena, net.ctx);
    make_model(&net, c);
    make_weights(&net, c);
    net.d = make_tensor(string_of(c, "name"), d);
    run_mode(&net, c, false, reference);
    if (json_object_get(c, "training"))
        run_mode(&net, c, true, reference);
    for (int i = 0; i < net.n_in; i++)
        free(net.feed[i].data);
    for (int i = 0; i < wf_model_n_weights(net.m); i++)
        free(net.weight[i].data);
    free(net.d.data);
    json_decref(d);
    wf_arena_free(&net.arena);
    weft_model_free(net.m);
    weft_ctx_free(net.ctx);
}

/* ---- regularizers and constraints ------------------------------------------------------------ */

/* As an update adds it to the gradient of the data. */
static weft_val penalty_gradient(weft_graph *g, const char *word, weft_val x)
{
    struct wf_penalty p;
    struct wf_set sets[4];

    OK(wf_regularizer_parse(&g->arena, word, &p));
    sets[0] = (struct wf_set)WF_SET_FLOAT("l1", p.l1);
    sets[1] = (struct wf_set)WF_SET_FLOAT("l2", p.l2);
    sets[2] = (struct wf_set)WF_SET_FLOAT("orthogonal", p.orthogonal);
    sets[3] = (struct wf_set)WF_SET_BOOL("columns", p.columns);
    return wf_build(g, WF_OP_penalty_grad, 1, &x, 4, sets);
}

/* What an update leaves of w. */
static void constrain(weft_graph *g, const char *word, weft_tensor *w)
{
    struct wf_constraint c;

    OK(wf_constraint_parse(&g->arena, word, w->rank, &c));
    wf_constrain_each(&c, weft_tensor_count(w), w->data);
    wf_constrain_whole(NULL, &c, w->rank, w->dim, w->data);
}

static void test_words(void **state)
{
    json_t *file = read_golden("model_words");
    const json_t *cases = json_object_get(file, "cases");

    (void)state;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *word = string_of(c, "name");
        weft_tensor w = make_tensor(word, json_array_get(json_object_get(c, "inputs"), 0));
        weft_tensor got[2] = {{0}};
        bool regularizer = !strcmp(string_of(c, "what"), "regularizer");
        weft_ctx *ctx;
        weft_graph *g;
        weft_fn *fn;
        weft_val x, y[2];

        OK(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx));
        OK(weft_graph_new(ctx, &g));
        x = weft_placeholder(g, "w", WEFT_F32, w.rank, w.dim);
        if (regularizer) {
            OK(wf_regularizer_build(g, word, x, &y[0]));
            y[1] = penalty_gradient(g, word, x);
        } else {
            constrain(g, word, &w);
            y[0] = x;
        }
        OK(weft_fn_new(g,
                       WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x,
                                 .n_fetches = regularizer ? 2 : 1, .fetches = y),
                       &fn));
        OK(weft_fn_run(fn, &w, got));
        compare(word, "y", &got[0], json_object_get(c, "y"), TOLERANCE);
        if (regularizer)
            compare(word, "d_w", &got[1], json_object_get(c, "d_w"), TOLERANCE);
        free(w.data);
        weft_fn_free(fn);
        weft_graph_free(g);
        weft_ctx_free(ctx);
    }
    json_decref(file);
}

/* ---- all ------------------------------------------------------------------------------------- */

struct a_trial {
    const json_t *c;
    bool reference;
    char name[128];
};

static void test_case(void **state)
{
    const struct a_trial *t = *state;

    run_case(t->c, t->reference);
}

int main(void)
{
    enum { MAX_TRIALS = 1024 };
    static struct a_trial trials[MAX_TRIALS];
    static struct CMUnitTest tests[MAX_TRIALS + 1];
    json_t *file[sizeof files / sizeof *files];
    int n = 0, failed;

    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        const json_t *cases;

        file[f] = read_golden(files[f]);
        cases = json_object_get(file[f], "cases");
        for (size_t i = 0; i < json_array_size(cases); i++)
            for (size_t w = 0; w < sizeof ways / sizeof *ways && n < MAX_TRIALS; w++) {
                trials[n] = (struct a_trial){json_array_get(cases, i), ways[w].reference, ""};
                snprintf(trials[n].name, sizeof trials[n].name, "%s, %s",
                         string_of(trials[n].c, "name"), ways[w].name);
                tests[n] = (struct CMUnitTest){
                    .name = trials[n].name, .test_func = test_case, .initial_state = &trials[n]};
                n++;
            }
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_words);
    failed = _cmocka_run_group_tests("model", tests, (size_t)n, NULL, NULL);
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        json_decref(file[f]);
    return failed;
}
