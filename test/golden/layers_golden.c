/* layers_golden.c - single layers against Keras (and PyTorch): outputs, new state and the gradients
 * of all inputs, in the same ways to run as the workloads.
 *
 * test/golden/layers.json, written by tools/golden.py, names the inputs and outputs of each layer.
 * The cotangent of output NAME is the generator's tensor "d_NAME"; outputs called moving_… are the
 * variables of that name after the run. */
#include "golden.h"

enum { MAX_IN = 8, MAX_OUT = 4 };

/* What a builder gets and gives. */
struct layer {
    weft_graph *g;
    weft_val in[MAX_IN];   /* in the order of the file */
    weft_val out[MAX_OUT]; /* likewise; moving averages are filled in by the caller */
    weft_val updates[2];
    int n_updates;
};

/* ---- the layers ------------------------------------------------------------------------------ */

static void batch_norm_training(struct layer *l)
{
    l->out[0] = weft_batch_norm(
        l->g, l->in[0], l->in[1], l->in[2], l->in[3], l->in[4],
        WEFT_OPTS(weft_batch_norm_opts, .training = true, .momentum = 0.9, .updates = l->updates));
    l->n_updates = 2;
}

static void batch_norm_inference(struct layer *l)
{
    l->out[0] = weft_batch_norm(l->g, l->in[0], l->in[1], l->in[2], l->in[3], l->in[4], NULL);
}

static void layer_norm(struct layer *l)
{
    l->out[0] = weft_layer_norm(l->g, l->in[0], l->in[1], l->in[2], NULL);
}

static void layer_norm_2_axes(struct layer *l)
{
    l->out[0] = weft_layer_norm(l->g, l->in[0], l->in[1], l->in[2],
                                WEFT_OPTS(weft_layer_norm_opts, .n_axes = 2));
}

static void rms_norm(struct layer *l)
{
    l->out[0] = weft_rms_norm(l->g, l->in[0], l->in[1], NULL);
}

static void group_norm(struct layer *l)
{
    l->out[0] = weft_group_norm(l->g, l->in[0], l->in[1], l->in[2],
                                WEFT_OPTS(weft_group_norm_opts, .groups = 3));
}

static void instance_norm(struct layer *l)
{
    l->out[0] = weft_instance_norm(l->g, l->in[0], l->in[1], l->in[2], NULL);
}

static void gru(struct layer *l, bool reset_before)
{
    l->out[0] = weft_gru(l->g, l->in[0], l->in[1], l->in[2],
                         WEFT_OPTS(weft_gru_opts, .bias = l->in[3], .reset_before = reset_before));
    l->out[1] = weft_output(l->g, l->out[0], 1);
}

static void gru_reset_after(struct layer *l)
{
    gru(l, false);
}

static void gru_reset_before(struct layer *l)
{
    gru(l, true);
}

static void lstm(struct layer *l, bool mask, bool reverse)
{
    l->out[0] =
        weft_lstm(l->g, l->in[0], l->in[1], l->in[2],
                  WEFT_OPTS(weft_lstm_opts, .bias = l->in[3], .h0 = l->in[4], .c0 = l->in[5],
                            .mask = mask ? l->in[6] : WEFT_NIL, .reverse = reverse));
    l->out[1] = weft_output(l->g, l->out[0], 1);
    l->out[2] = weft_output(l->g, l->out[0], 2);
}

static void lstm_mask(struct layer *l)
{
    lstm(l, true, false);
}

static void lstm_reverse(struct layer *l)
{
    lstm(l, false, true);
}

static void lstm_mask_reverse(struct layer *l)
{
    lstm(l, true, true);
}

static void conv_same_stride(struct layer *l)
{
    l->out[0] = weft_conv(l->g, l->in[0], l->in[1],
                          WEFT_OPTS(weft_conv_opts, .strides = {2}, .padding = WEFT_PAD_SAME));
}

static void conv1d_causal(struct layer *l)
{
    l->out[0] = weft_conv(l->g, l->in[0], l->in[1],
                          WEFT_OPTS(weft_conv_opts, .dilations = {2}, .padding = WEFT_PAD_CAUSAL));
}

static void conv_transpose(struct layer *l, weft_padding padding, int64_t stride, int64_t extra)
{
    l->out[0] = weft_conv_transpose(l->g, l->in[0], l->in[1],
                                    WEFT_OPTS(weft_conv_transpose_opts, .strides = {stride},
                                              .padding = padding, .output_padding = {extra}));
}

static void conv_transpose_same(struct layer *l)
{
    conv_transpose(l, WEFT_PAD_SAME, 2, 0);
}

static void conv_transpose_valid(struct layer *l)
{
    conv_transpose(l, WEFT_PAD_VALID, 2, 0);
}

static void conv_transpose_wide_stride(struct layer *l)
{
    conv_transpose(l, WEFT_PAD_VALID, 3, 0);
}

static void conv_transpose_output_padding(struct layer *l)
{
    conv_transpose(l, WEFT_PAD_SAME, 2, WEFT_ZERO);
}

static void depthwise_by(struct layer *l, int64_t stride)
{
    l->out[0] = weft_depthwise_conv(
        l->g, l->in[0], l->in[1],
        WEFT_OPTS(weft_conv_opts, .strides = {stride}, .padding = WEFT_PAD_SAME));
}

static void depthwise(struct layer *l)
{
    depthwise_by(l, 1);
}

static void depthwise_stride(struct layer *l)
{
    depthwise_by(l, 2);
}

static void max_pool_same(struct layer *l)
{
    l->out[0] = weft_max_pool(
        l->g, l->in[0],
        WEFT_OPTS(weft_pool_opts, .window = {3}, .strides = {2}, .padding = WEFT_PAD_SAME));
}

static void avg_pool_same(struct layer *l)
{
    l->out[0] = weft_avg_pool(
        l->g, l->in[0],
        WEFT_OPTS(weft_pool_opts, .window = {3}, .strides = {2}, .padding = WEFT_PAD_SAME));
}

static void resize(struct layer *l, weft_resize_method method, int64_t height, int64_t width)
{
    l->out[0] = weft_resize(l->g, l->in[0],
                            WEFT_OPTS(weft_resize_opts, .to = {height, width}, .method = method));
}

static void resize_bilinear_up(struct layer *l)
{
    resize(l, WEFT_RESIZE_BILINEAR, 7, 9);
}

static void resize_bilinear_down(struct layer *l)
{
    resize(l, WEFT_RESIZE_BILINEAR, 4, 3);
}

static void resize_nearest(struct layer *l)
{
    resize(l, WEFT_RESIZE_NEAREST, 7, 3);
}

static void gelu(struct layer *l)
{
    l->out[0] = weft_gelu(l->g, l->in[0], NULL);
}

static void gelu_tanh(struct layer *l)
{
    l->out[0] = weft_gelu(l->g, l->in[0], WEFT_OPTS(weft_gelu_opts, .approximate = true));
}

static void attention_mask(struct layer *l)
{
    l->out[0] = weft_attention(l->g, l->in[0], l->in[1], l->in[2],
                               WEFT_OPTS(weft_attention_opts, .mask = l->in[3]));
}

static void attention_causal(struct layer *l)
{
    l->out[0] = weft_attention(l->g, l->in[0], l->in[1], l->in[2],
                               WEFT_OPTS(weft_attention_opts, .causal = true));
}

#define LAYER(name) \
    {               \
#name, name \
    }
static const struct {
    const char *name;
    void (*build)(struct layer *l);
} layers[] = {
    LAYER(batch_norm_training),
    LAYER(batch_norm_inference),
    LAYER(layer_norm),
    LAYER(layer_norm_2_axes),
    LAYER(rms_norm),
    LAYER(group_norm),
    LAYER(instance_norm),
    LAYER(gru_reset_after),
    LAYER(gru_reset_before),
    LAYER(lstm_mask),
    LAYER(lstm_reverse),
    LAYER(lstm_mask_reverse),
    LAYER(conv_same_stride),
    LAYER(conv1d_causal),
    LAYER(conv_transpose_same),
    LAYER(conv_transpose_valid),
    LAYER(conv_transpose_wide_stride),
    LAYER(conv_transpose_output_padding),
    LAYER(depthwise),
    LAYER(depthwise_stride),
    LAYER(max_pool_same),
    LAYER(avg_pool_same),
    LAYER(resize_bilinear_up),
    LAYER(resize_bilinear_down),
    LAYER(resize_nearest),
    LAYER(gelu),
    LAYER(gelu_tanh),
    LAYER(attention_mask),
    LAYER(attention_causal),
    {"attention_bias", attention_mask},
};
enum { N_LAYERS = sizeof layers / sizeof *layers };

/* Relative to the largest element. */
#define TOLERANCE 1e-5

/* ---- the test -------------------------------------------------------------------------------- */

struct run {
    const char *name;
    const json_t *inputs, *outputs;
    struct layer l;
    weft_val feed[MAX_IN + MAX_OUT], wanted[MAX_IN]; /* wanted: inputs with a gradient */
    weft_tensor data[MAX_IN], feeds[MAX_IN + MAX_OUT];
    int n_feeds, n_wanted;
};

static bool is_state(const json_t *spec)
{
    return json_is_true(json_object_get(spec, "state"));
}

static bool is_moving(const json_t *out)
{
    return !strncmp(string_of(out, "name"), "moving_", 7);
}

/* Inputs are placeholders; state is a variable. */
static void make_inputs(struct run *r)
{
    const json_t *spec;
    size_t i;

    assert_true(json_array_size(r->inputs) <= MAX_IN);
    json_array_foreach(r->inputs, i, spec)
    {
        const char *name = string_of(spec, "name");
        weft_tensor *t = &r->data[i];

        *t = make_tensor(r->name, spec);
        if (is_state(spec)) {
            r->l.in[i] = weft_variable(r->l.g, name, t->rank, t->dim,
                                       WEFT_OPTS(weft_variable_opts, .not_trainable = true));
            continue;
        }
        r->l.in[i] = weft_placeholder(r->l.g, name, t->dtype, t->rank, t->dim);
        r->feeds[r->n_feeds] = *t;
        r->feed[r->n_feeds++] = r->l.in[i];
        if (json_object_get(spec, "grad"))
            r->wanted[r->n_wanted++] = r->l.in[i];
    }
}

/* Cotangents as further feeds, gradients as further fetches. */
static void differentiate(struct run *r, weft_val *grads)
{
    weft_val out[MAX_OUT], cot[MAX_OUT];
    const json_t *spec;
    int n = 0;
    size_t i;

    assert_true(json_array_size(r->outputs) <= MAX_OUT);
    json_array_foreach(r->outputs, i, spec)
    {
        json_t *d;
        char name[64];
        weft_tensor t;

        if (is_moving(spec)) {
            OK(weft_find(r->l.g, string_of(spec, "name"), &r->l.out[i]));
            continue;
        }
        snprintf(name, sizeof name, "d_%s", string_of(spec, "name"));
        d = json_pack("{s:s,s:s,s:O,s:f}", "name", name, "dtype", "f32", "shape",
                      json_object_get(spec, "shape"), "scale", 1.0);
        assert_non_null(d);
        t = r->feeds[r->n_feeds] = make_tensor(r->name, d);
        json_decref(d);
        out[n] = r->l.out[i];
        cot[n++] = r->feed[r->n_feeds++] = weft_placeholder(r->l.g, name, WEFT_F32, t.rank, t.dim);
    }
    OK(weft_vjp(r->l.g, n, out, cot, r->n_wanted, r->wanted, grads));
}

static void check(struct run *r, const weft_tensor *got)
{
    const json_t *spec;
    size_t i;

    json_array_foreach(r->outputs, i, spec)
    {
        const json_t *shape = json_object_get(spec, "shape");

        assert_int_equal(got[i].rank, json_array_size(shape));
        for (int k = 0; k < got[i].rank; k++)
            assert_int_equal(got[i].dim[k], json_integer_value(json_array_get(shape, (size_t)k)));
        compare(r->name, string_of(spec, "name"), &got[i], json_object_get(spec, "values"),
                TOLERANCE);
    }
    got += json_array_size(r->outputs);
    json_array_foreach(r->inputs, i, spec) if (json_object_get(spec, "grad"))
        compare(r->name, string_of(spec, "name"), got++, json_object_get(spec, "grad"), TOLERANCE);
}

static void run_layer(struct run *r, weft_ctx *ctx, const struct variant *how,
                      void (*build)(struct layer *l))
{
    weft_val fetch[MAX_OUT + MAX_IN];
    weft_tensor got[MAX_OUT + MAX_IN] = {0};
    int n_out = (int)json_array_size(r->outputs), n_in = (int)json_array_size(r->inputs);
    weft_fn *fn = NULL;

    OK(weft_graph_new(ctx, &r->l.g));
    make_inputs(r);
    build(&r->l);
    differentiate(r, fetch + n_out);
    memcpy(fetch, r->l.out, (size_t)n_out * sizeof *fetch);
    OK(weft_fn_new(r->l.g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = r->n_feeds, .feeds = r->feed,
                             .n_fetches = n_out + r->n_wanted, .fetches = fetch,
                             .n_updates = r->l.n_updates, .updates = r->l.updates,
                             .passes_off = how->passes_off, .reference_kernels = how->reference),
                   &fn));
    for (int i = 0; i < n_in; i++) {
        const json_t *spec = json_array_get(r->inputs, (size_t)i);

        if (is_state(spec))
            OK(weft_fn_set(fn, string_of(spec, "name"), &r->data[i]));
    }
    OK(weft_fn_run(fn, r->feeds, got));
    check(r, got);
    weft_fn_free(fn);
    weft_graph_free(r->l.g);
    for (int i = 0; i < r->n_feeds; i++)
        free(r->feeds[i].data);
    for (int i = 0; i < n_in; i++)
        if (is_state(json_array_get(r->inputs, (size_t)i)))
            free(r->data[i].data);
}

static void agrees(void **state)
{
    const struct trial *t = *state;
    struct run r = {.name = layers[t->which].name};
    json_t *file = read_golden("layers"), *list = json_object_get(file, "layers");
    weft_ctx *ctx;

    /* The file's order is ours, and it has no layer that is not tested. */
    assert_int_equal(json_array_size(list), N_LAYERS);
    list = json_array_get(list, (size_t)t->which);
    assert_string_equal(string_of(list, "name"), r.name);
    r.inputs = json_object_get(list, "inputs");
    r.outputs = json_object_get(list, "outputs");
    OK(weft_ctx_new(
        WEFT_OPTS(weft_ctx_opts, .threads = 2, .simd = t->how->simd, .kernels = t->how->kernels),
        &ctx));
    run_layer(&r, ctx, t->how, layers[t->which].build);
    weft_ctx_free(ctx);
    json_decref(file);
}

int main(void)
{
    static struct trial trials[N_LAYERS * N_VARIANTS];
    static struct CMUnitTest tests[N_LAYERS * N_VARIANTS];
    const char *names[N_LAYERS];
    int n;

    for (int i = 0; i < N_LAYERS; i++)
        names[i] = layers[i].name;
    n = list_trials(N_LAYERS, names, agrees, trials, tests);
    return _cmocka_run_group_tests("layers", tests, (size_t)n, NULL, NULL);
}
