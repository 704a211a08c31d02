/* workloads_golden.c - the seven workloads at small size against numbers made by PyTorch and
 * TensorFlow: logits, loss, the gradient of every variable, and the losses of ten training steps,
 * with default and reference kernels, with all passes off, and at each SIMD level of the CPU.
 *
 * The models are those of `weft bench train` with small sizes; names and shapes of variables and
 * feeds stand in test/golden/<workload>.json, which tools/golden.py writes. */
#include "golden.h"

enum { MAX_FEEDS = 3, MAX_VARS = 64, STEPS = 10 };

struct net {
    const char *name;
    const struct variant *how;
    json_t *file;
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *probe, *train;
    int n_feeds;
    weft_val feed[MAX_FEEDS];
    weft_tensor data[MAX_FEEDS];
    weft_val logits, loss;
};

/* ---- pieces ---------------------------------------------------------------------------------- */

static weft_val feed(struct net *n, const char *name)
{
    const json_t *spec;
    size_t i;

    json_array_foreach(json_object_get(n->file, "feeds"), i, spec)
    {
        weft_tensor *t = &n->data[n->n_feeds];

        if (strcmp(string_of(spec, "name"), name))
            continue;
        assert_true(n->n_feeds < MAX_FEEDS);
        *t = make_tensor(n->name, spec);
        return n->feed[n->n_feeds++] = weft_placeholder(n->g, name, t->dtype, t->rank, t->dim);
    }
    fail_msg("%s: the file has no feed '%s'", n->name, name);
    return WEFT_NIL;
}

static weft_val dense(weft_graph *g, const char *name, weft_val x, int64_t in, int64_t out,
                      bool relu)
{
    weft_val w, b, y;

    weft_scope_push(g, name);
    w = weft_variable(g, "kernel", SHAPE(in, out), NULL);
    b = weft_variable(g, "bias", SHAPE(out), NULL);
    y = weft_add(g, weft_matmul(g, x, w, NULL), b);
    if (relu)
        y = weft_relu(g, y);
    weft_scope_pop(g);
    return y;
}

static weft_val stack(struct net *n, weft_val h, int n_sizes, const int64_t *sizes)
{
    char name[16];

    for (int i = 0; i + 1 < n_sizes; i++) {
        snprintf(name, sizeof name, "dense%d", i);
        h = dense(n->g, name, h, sizes[i], sizes[i + 1], i + 2 < n_sizes);
    }
    return h;
}

static void classify(struct net *n, weft_val logits)
{
    n->logits = logits;
    n->loss = weft_loss_sparse_softmax_xent(n->g, logits, feed(n, "labels"), NULL);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void softmax64(struct net *n)
{
    classify(n, stack(n, feed(n, "x"), 2, (int64_t[]){64, 10}));
}

static void mlp_s(struct net *n)
{
    classify(n, stack(n, feed(n, "x"), 3, (int64_t[]){28, 24, 10}));
}

static void mlp_l(struct net *n)
{
    classify(n, stack(n, feed(n, "x"), 4, (int64_t[]){20, 32, 24, 10}));
}

static weft_val conv(weft_graph *g, const char *name, weft_val x, int64_t in, int64_t out)
{
    weft_val w, b, y;

    weft_scope_push(g, name);
    w = weft_variable(g, "kernel", SHAPE(3, 3, in, out), NULL);
    b = weft_variable(g, "bias", SHAPE(out), NULL);
    y = weft_relu(g, weft_add(g, weft_conv(g, x, w, NULL), b));
    weft_scope_pop(g);
    return y;
}

static void cnn(struct net *n)
{
    weft_val h = conv(n->g, "conv0", feed(n, "x"), 1, 8);

    h = weft_max_pool(n->g, conv(n->g, "conv1", h, 8, 16), NULL);
    h = weft_reshape(n->g, h, SHAPE(-1, 256));
    classify(n, stack(n, h, 3, (int64_t[]){256, 8, 10}));
}

static void lstm(struct net *n)
{
    weft_graph *g = n->g;
    weft_val x = feed(n, "x"), w, r, b, y;

    w = weft_variable(g, "lstm/kernel", SHAPE(6, 48), NULL);
    r = weft_variable(g, "lstm/recurrent_kernel", SHAPE(12, 48), NULL);
    b = weft_variable(g, "lstm/bias", SHAPE(48), NULL);
    y = weft_lstm(g, x, w, r, WEFT_OPTS(weft_lstm_opts, .bias = b));
    classify(n, dense(g, "dense", weft_output(g, y, 1), 12, 10, false));
}

enum { TABLES = 26, TABLE_ROWS = 4, WIDTH = 4, NUMERIC = 13 };

static void widedeep(struct net *n)
{
    weft_val part[TABLES + 1], ids[TABLES], h;
    char name[32];

    weft_unstack(n->g, feed(n, "ids"), TABLES, 1, ids);
    for (int i = 0; i < TABLES; i++) {
        snprintf(name, sizeof name, "embedding%d", i);
        part[i] =
            weft_embedding(n->g, weft_variable(n->g, name, SHAPE(TABLE_ROWS, WIDTH), NULL), ids[i]);
    }
    part[TABLES] = feed(n, "numeric");
    h = weft_concat(n->g, TABLES + 1, part, 1);
    n->logits = stack(n, h, 4, (int64_t[]){TABLES * WIDTH + NUMERIC, 16, 8, 1});
    n->loss = weft_loss_sigmoid_xent(n->g, n->logits, feed(n, "targets"));
}

enum { BATCH = 2, VOCABULARY = 24, MODEL = 16, HEADS = 2, TOKENS = 8, BLOCKS = 2 };

static weft_val norm(weft_graph *g, const char *name, weft_val x)
{
    weft_val gamma, beta, y;

    weft_scope_push(g, name);
    gamma = weft_variable(g, "gamma", SHAPE(MODEL), NULL);
    beta = weft_variable(g, "beta", SHAPE(MODEL), NULL);
    y = weft_layer_norm(g, x, gamma, beta, WEFT_OPTS(weft_layer_norm_opts, .epsilon = 1e-5));
    weft_scope_pop(g);
    return y;
}

static weft_val block(weft_graph *g, weft_val x)
{
    weft_val a, u;

    a = dense(g, "qkv", norm(g, "norm1", x), MODEL, 3 * MODEL, false);
    a = weft_reshape(g, a, SHAPE(BATCH, TOKENS, 3, HEADS, MODEL / HEADS));
    a = weft_attention_packed(g, a, WEFT_OPTS(weft_attention_opts, .causal = true));
    a = weft_reshape(g, a, SHAPE(BATCH, TOKENS, MODEL));
    x = weft_add(g, x, dense(g, "out", a, MODEL, MODEL, false));
    u = dense(g, "up", norm(g, "norm2", x), MODEL, 4 * MODEL, false);
    u = weft_gelu(g, u, WEFT_OPTS(weft_gelu_opts, .approximate = true));
    return weft_add(g, x, dense(g, "down", u, 4 * MODEL, MODEL, false));
}

static void gpt_s(struct net *n)
{
    weft_graph *g = n->g;
    weft_val ids = feed(n, "tokens"), x;
    weft_val table = weft_variable(g, "embedding", SHAPE(VOCABULARY, MODEL), NULL);
    char name[16];

    x = weft_add(g, weft_embedding(g, table, ids),
                 weft_variable(g, "position", SHAPE(TOKENS, MODEL), NULL));
    for (int i = 0; i < BLOCKS; i++) {
        snprintf(name, sizeof name, "block%d", i);
        weft_scope_push(g, name);
        x = block(g, x);
        weft_scope_pop(g);
    }
    classify(
        n, weft_matmul(g, norm(g, "norm", x), table, WEFT_OPTS(weft_matmul_opts, .trans_b = true)));
}

static const struct {
    const char *name;
    void (*build)(struct net *n);
} models[] = {
    {"softmax64", softmax64}, {"mlp-s", mlp_s},       {"mlp-l", mlp_l}, {"cnn", cnn},
    {"lstm", lstm},           {"widedeep", widedeep}, {"gpt-s", gpt_s},
};
enum { N_MODELS = sizeof models / sizeof *models };

/* Relative to the largest element; measured 2e-6 at most, Winograd's sums of 72 products
 * included. */
#define TOLERANCE 1e-5
/* Of the ten losses. Measured 1e-7 with SGD and Adagrad; rows of an embedding that are not summed
 * before they are squared would be 1e-6 off. With Adam 3e-6: Keras keeps 0.999 in f32, which moves
 * the first steps by 1e-5 of their length. */
static double loss_tolerance(const char *optimizer)
{
    return strcmp(optimizer, "adam") ? 5e-7 : 1e-5;
}

/* ---- the test -------------------------------------------------------------------------------- */

static weft_fn *compile(struct net *n, int n_fetches, const weft_val *fetches, int n_updates,
                        const weft_val *updates)
{
    weft_fn *fn = NULL;

    OK(weft_fn_new(
        n->g,
        WEFT_OPTS(weft_fn_opts, .n_feeds = n->n_feeds, .feeds = n->feed, .n_fetches = n_fetches,
                  .fetches = fetches, .n_updates = n_updates, .updates = updates, .share = n->probe,
                  .passes_off = n->how->passes_off, .reference_kernels = n->how->reference),
        &fn));
    return fn;
}

static void set_weights(struct net *n, weft_fn *fn, const json_t *vars)
{
    const json_t *spec;
    size_t i;

    json_array_foreach(vars, i, spec)
    {
        weft_tensor t = make_tensor(n->name, spec);

        OK(weft_fn_set(fn, string_of(spec, "name"), &t));
        free(t.data);
    }
}

/* With the fast kernels of the CPU the small cnn must go through Winograd's, or the test would
 * prove less than it says. */
static void check_winograd(struct net *n)
{
    char *text = NULL;

    if (strcmp(n->name, "cnn") || n->how->reference)
        return;
    OK(weft_fn_explain(n->probe, n->data, NULL, &text));
    if (!strstr(text, "winograd") && !strstr(text, "device: on"))
        fail_msg("cnn: no Winograd kernel in the plan");
    weft_text_free(n->ctx, text);
}

/* Logits, loss and every gradient in one run. */
static void check_gradients(struct net *n)
{
    const json_t *vars = json_object_get(n->file, "variables"), *spec;
    weft_val value[MAX_VARS], fetch[MAX_VARS + 2] = {n->logits, n->loss};
    weft_tensor got[MAX_VARS + 2] = {0};
    int n_vars = (int)json_array_size(vars);
    double worst;
    size_t i;

    assert_true(n_vars > 0 && n_vars <= MAX_VARS);
    assert_int_equal(weft_trainable(n->g, 0, NULL), n_vars);
    json_array_foreach(vars, i, spec) OK(weft_find(n->g, string_of(spec, "name"), &value[i]));
    OK(weft_grad(n->g, n->loss, n_vars, value, fetch + 2));
    n->probe = compile(n, n_vars + 2, fetch, 0, NULL);
    set_weights(n, n->probe, vars);
    OK(weft_fn_run(n->probe, n->data, got));
    worst = compare(n->name, "logits", &got[0], json_object_get(n->file, "logits"), TOLERANCE);
    assert_float_equal(*(const float *)got[1].data,
                       json_number_value(json_object_get(n->file, "loss")), TOLERANCE);
    json_array_foreach(vars, i, spec)
    {
        double e = compare(n->name, string_of(spec, "name"), &got[i + 2],
                           json_object_get(spec, "grad"), TOLERANCE);

        worst = e > worst ? e : worst;
    }
    print_message("             logits and gradients within %.1g\n", worst);
    check_winograd(n);
}

/* Ten steps of the workload's optimizer: the loss of each, before its update. */
static void check_training(struct net *n)
{
    const char *optimizer = string_of(n->file, "optimizer");
    const json_t *want = json_object_get(n->file, "losses");
    weft_val updates[MAX_VARS];
    weft_tensor loss = {0};
    weft_optim o;
    int n_updates;
    double worst = 0;

    OK(weft_optim_init(&o, optimizer, string_of(n->file, "numbers")));
    OK(weft_minimize(n->g, n->loss, &o, 0, NULL, MAX_VARS, updates, &n_updates));
    n->train = compile(n, 1, &n->loss, n_updates, updates);
    assert_int_equal(json_array_size(want), STEPS);
    for (int i = 0; i < STEPS; i++) {
        double w = json_number_value(json_array_get(want, (size_t)i)), e;

        loss.data = NULL;
        OK(weft_fn_run(n->train, n->data, &loss));
        e = fabs((double)*(const float *)loss.data - w) / fabs(w);
        if (!(e <= loss_tolerance(optimizer)))
            fail_msg("%s: loss of step %d is %.9g, expected %.9g", n->name, i,
                     (double)*(const float *)loss.data, w);
        worst = e > worst ? e : worst;
    }
    print_message("             ten losses within %.1g\n", worst);
}

static void agrees(void **state)
{
    const struct trial *t = *state;
    struct net n = {.name = models[t->which].name, .how = t->how};

    n.file = read_golden(n.name);
    OK(weft_ctx_new(
        WEFT_OPTS(weft_ctx_opts, .threads = 2, .simd = t->how->simd, .kernels = t->how->kernels),
        &n.ctx));
    OK(weft_graph_new(n.ctx, &n.g));
    models[t->which].build(&n);
    OK(weft_graph_status(n.g));
    check_gradients(&n);
    check_training(&n);
    weft_fn_free(n.train);
    weft_fn_free(n.probe);
    weft_graph_free(n.g);
    weft_ctx_free(n.ctx);
    for (int i = 0; i < n.n_feeds; i++)
        free(n.data[i].data);
    json_decref(n.file);
}

int main(void)
{
    static struct trial trials[N_MODELS * N_VARIANTS];
    static struct CMUnitTest tests[N_MODELS * N_VARIANTS];
    const char *names[N_MODELS];
    int n;

    for (int i = 0; i < N_MODELS; i++)
        names[i] = models[i].name;
    n = list_trials(N_MODELS, names, agrees, trials, tests);
    return _cmocka_run_group_tests("workloads", tests, (size_t)n, NULL, NULL);
}
