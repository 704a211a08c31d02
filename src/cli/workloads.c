/* workloads.c - the benchmark workloads: models of known size on synthetic data.
 * A step is forward, backward and update. Inputs are standard normal, labels uniform. */
#include <math.h>

#include "cli.h"

#define SHAPE(...)                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;
    uint64_t z = *s;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *s)
{
    return ((double)(next_random(s) >> 11) + 0.5) * 0x1p-53;
}

/* Declares a placeholder and creates its data: normal floats, or integers below `below`. */
static weft_val feed(struct workload *w, const char *name, weft_dtype t, int rank,
                     const int64_t *dim, int64_t below)
{
    uint64_t s = 1 + (uint64_t)w->n_feeds;
    weft_tensor *d = &w->data[w->n_feeds];
    int64_t n;

    *d = weft_view(t, NULL, rank, dim);
    n = weft_tensor_count(d);
    d->data = malloc((size_t)weft_tensor_bytes(d) + 1);
    for (int64_t i = 0; d->data && i < n; i++) {
        if (t == WEFT_I32)
            ((int32_t *)d->data)[i] = (int32_t)(next_random(&s) % (uint64_t)below);
        else if (below)
            ((float *)d->data)[i] = (float)(next_random(&s) % (uint64_t)below);
        else
            ((float *)d->data)[i] =
                (float)(sqrt(-2 * log(uniform(&s))) * cos(6.283185307179586 * uniform(&s)));
    }
    return w->feed[w->n_feeds++] = weft_placeholder(w->graph, name, t, rank, dim);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Where layers compute in halves, the result is a half, too. */
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

static weft_val linear(struct workload *w, const char *name, weft_val x, int64_t in, int64_t out)
{
    return dense(w->graph, name, x, in, out, false);
}

static weft_val classify(struct workload *w, weft_val logits, int rank, const int64_t *dim,
                         int64_t classes)
{
    weft_val labels = feed(w, "labels", WEFT_I32, rank, dim, classes);

    return weft_loss_sparse_softmax_xent(w->graph, logits, labels, NULL);
}

/* ---- models ---------------------------------------------------------------------------------- */

static weft_val mlp(struct workload *w, int n, const int64_t *sizes)
{
    weft_val h = feed(w, "x", WEFT_F32, SHAPE(w->batch, sizes[0]), 0);
    char name[16];

    for (int i = 0; i + 1 < n; i++) {
        snprintf(name, sizeof name, "dense%d", i);
        h = dense(w->graph, name, h, sizes[i], sizes[i + 1], i + 2 < n);
    }
    return classify(w, h, SHAPE(w->batch), sizes[n - 1]);
}

static weft_val softmax64(struct workload *w)
{
    return mlp(w, 2, (int64_t[]){64, 10});
}

static weft_val mlp_s(struct workload *w)
{
    return mlp(w, 3, (int64_t[]){784, 128, 10});
}

static weft_val mlp_l(struct workload *w)
{
    return mlp(w, 4, (int64_t[]){784, 1024, 1024, 10});
}

static weft_val mlp_xl(struct workload *w)
{
    return mlp(w, 5, (int64_t[]){1024, 8192, 8192, 8192, 1024});
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

static weft_val cnn(struct workload *w)
{
    weft_graph *g = w->graph;
    weft_val h = feed(w, "x", WEFT_F32, SHAPE(w->batch, 28, 28, 1), 0);

    h = conv(g, "conv0", h, 1, 32);
    h = conv(g, "conv1", h, 32, 64);
    h = weft_max_pool(g, h, NULL);
    h = weft_reshape(g, h, SHAPE(-1, 9216));
    h = dense(g, "dense0", h, 9216, 128, true);
    h = dense(g, "dense1", h, 128, 10, false);
    return classify(w, h, SHAPE(w->batch), 10);
}

static weft_val lstm(struct workload *w)
{
    weft_graph *g = w->graph;
    weft_val x = feed(w, "x", WEFT_F32, SHAPE(w->batch, 28, 28), 0), in[4], y;

    in[0] = x;
    in[1] = weft_variable(g, "lstm/kernel", SHAPE(28, 512), NULL);
    in[2] = weft_variable(g, "lstm/recurrent_kernel", SHAPE(128, 512), NULL);
    in[3] = weft_variable(g, "lstm/bias", SHAPE(512), NULL);
    y = weft_op(g, "lstm", 4, in, NULL);
    y = dense(g, "dense", weft_output(g, y, 1), 128, 10, false);
    return classify(w, y, SHAPE(w->batch), 10);
}

enum { TABLES = 26, TABLE_ROWS = 100000, WIDTH = 16, NUMERIC = 13 };

static weft_val widedeep(struct workload *w)
{
    weft_graph *g = w->graph;
    weft_val part[TABLES + 1], ids[TABLES], all, h, targets;

    all = feed(w, "ids", WEFT_I32, SHAPE(w->batch, TABLES), TABLE_ROWS);
    weft_unstack(g, all, TABLES, 1, ids);
    for (int i = 0; i < TABLES; i++) {
        char name[32];

        snprintf(name, sizeof name, "embedding%d", i);
        part[i] = weft_embedding(
            g,
            weft_variable(g, name, SHAPE(TABLE_ROWS, WIDTH),
                          WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_NORMAL, .b = 0.01)),
            ids[i]);
    }
    part[TABLES] = feed(w, "numeric", WEFT_F32, SHAPE(w->batch, NUMERIC), 0);
    h = weft_concat(g, TABLES + 1, part, 1);
    h = dense(g, "dense0", h, TABLES * WIDTH + NUMERIC, 512, true);
    h = dense(g, "dense1", h, 512, 256, true);
    h = dense(g, "dense2", h, 256, 1, false);
    targets = feed(w, "targets", WEFT_F32, SHAPE(w->batch, 1), 2);
    return weft_loss_sigmoid_xent(g, h, targets);
}

struct gpt_size {
    int64_t vocabulary, width, heads, tokens;
    int blocks;
};

static weft_val norm(weft_graph *g, const char *name, weft_val x, int64_t width)
{
    weft_val y;

    weft_scope_push(g, name);
    y = weft_layer_norm(g, x,
                        weft_variable(g, "gamma", SHAPE(width),
                                      WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES)),
                        weft_variable(g, "beta", SHAPE(width), NULL),
                        WEFT_OPTS(weft_layer_norm_opts, .epsilon = 1e-5));
    weft_scope_pop(g);
    return y;
}

static weft_val block(struct workload *w, weft_val x, const struct gpt_size *z)
{
    weft_graph *g = w->graph;
    int64_t d = z->width;
    weft_val a, u;

    a = linear(w, "qkv", norm(g, "norm1", x, d), d, 3 * d);
    a = weft_reshape(g, a, SHAPE(w->batch, z->tokens, 3, z->heads, d / z->heads));
    weft_autocast_push(g, WEFT_F32); /* in the type of qkv */
    a = weft_attention_packed(g, a, WEFT_OPTS(weft_attention_opts, .causal = true));
    weft_autocast_pop(g);
    a = weft_reshape(g, a, SHAPE(w->batch, z->tokens, d));
    x = weft_add(g, x, linear(w, "out", a, d, d));
    u = linear(w, "up", norm(g, "norm2", x, d), d, 4 * d);
    u = weft_gelu(g, u, WEFT_OPTS(weft_gelu_opts, .approximate = true));
    return weft_add(g, x, linear(w, "down", u, 4 * d, d));
}

static weft_val gpt(struct workload *w, const struct gpt_size *z)
{
    weft_graph *g = w->graph;
    const weft_variable_opts *small =
        WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_NORMAL, .b = 0.02);
    weft_val ids = feed(w, "tokens", WEFT_I32, SHAPE(w->batch, z->tokens), z->vocabulary);
    weft_val table = weft_variable(g, "embedding", SHAPE(z->vocabulary, z->width), small);
    weft_val x = weft_add(g, weft_embedding(g, table, ids),
                          weft_variable(g, "position", SHAPE(z->tokens, z->width), small));

    for (int i = 0; i < z->blocks; i++) {
        char name[16];

        snprintf(name, sizeof name, "block%d", i);
        weft_scope_push(g, name);
        x = block(w, x, z);
        weft_scope_pop(g);
    }
    x = weft_matmul(g, norm(g, "norm", x, z->width), table,
                    WEFT_OPTS(weft_matmul_opts, .trans_b = true));
    return classify(w, x, SHAPE(w->batch, z->tokens), z->vocabulary);
}

static weft_val gpt_s(struct workload *w)
{
    return gpt(w, &(struct gpt_size){1024, 256, 4, 128, 4});
}

static weft_val gpt2(struct workload *w)
{
    w->plain_grads = true;
    return gpt(w, &(struct gpt_size){50304, 768, 12, 1024, 12});
}

/* ---- residual networks ----------------------------------------------------------------------- */

struct resnet_size {
    int64_t image, width, classes; /* channels after the first convolution */
    int blocks[4];
};

/* Convolution without bias, batch normalization in the type of the convolution's result with f32
 * statistics, perhaps ReLU. */
static weft_val conv_norm(struct workload *w, const char *name, weft_val x, int64_t taps,
                          int64_t in, int64_t out, int64_t stride, bool relu)
{
    weft_graph *g = w->graph;
    int64_t pad = taps / 2;
    const weft_variable_opts *ones = WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES),
                             *zeros = WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ZEROS),
                             *fixed_ones = WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES,
                                                     .not_trainable = true),
                             *fixed_zeros = WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ZEROS,
                                                      .not_trainable = true);
    weft_val y, moves[2];

    weft_scope_push(g, name);
    y = weft_conv(g, x, weft_variable(g, "kernel", SHAPE(taps, taps, in, out), NULL),
                  WEFT_OPTS(weft_conv_opts, .strides = {stride, stride},
                            .padding = WEFT_PAD_EXPLICIT, .pads = {pad, pad, pad, pad}));
    weft_autocast_push(g, WEFT_F32);
    y = weft_batch_norm(g, y, weft_variable(g, "gamma", SHAPE(out), ones),
                        weft_variable(g, "beta", SHAPE(out), zeros),
                        weft_variable(g, "moving_mean", SHAPE(out), fixed_zeros),
                        weft_variable(g, "moving_var", SHAPE(out), fixed_ones),
                        WEFT_OPTS(weft_batch_norm_opts, .training = true, .momentum = 0.9,
                                  .epsilon = 1e-5, .updates = moves));
    if (relu)
        y = weft_relu(g, y);
    weft_autocast_pop(g);
    for (int i = 0; i < 2; i++)
        w->updates[w->n_updates++] = moves[i];
    weft_scope_pop(g);
    return y;
}

/* 1 x 1, 3 x 3 (with the stride) and 1 x 1, added to x. */
static weft_val bottleneck(struct workload *w, weft_val x, int64_t in, int64_t mid, int64_t stride)
{
    weft_val y = conv_norm(w, "a", x, 1, in, mid, 1, true);

    y = conv_norm(w, "b", y, 3, mid, mid, stride, true);
    y = conv_norm(w, "c", y, 1, mid, 4 * mid, 1, false);
    if (in != 4 * mid)
        x = conv_norm(w, "short", x, 1, in, 4 * mid, stride, false);
    return weft_relu(w->graph, weft_add(w->graph, x, y));
}

static weft_val resnet(struct workload *w, const struct resnet_size *z)
{
    weft_graph *g = w->graph;
    weft_val x = feed(w, "x", WEFT_F32, SHAPE(w->batch, z->image, z->image, 3), 0);
    int64_t in = z->width;

    w->plain_grads = true;
    x = conv_norm(w, "stem", x, 7, 3, z->width, 2, true);
    x = weft_max_pool(g, x,
                      WEFT_OPTS(weft_pool_opts, .window = {3, 3}, .strides = {2, 2},
                                .padding = WEFT_PAD_EXPLICIT, .pads = {1, 1, 1, 1}));
    for (int s = 0; s < 4; s++)
        for (int i = 0; i < z->blocks[s]; i++) {
            char name[24];

            snprintf(name, sizeof name, "stage%d_%d", s, i);
            weft_scope_push(g, name);
            x = bottleneck(w, x, in, z->width << s, s && !i ? 2 : 1);
            weft_scope_pop(g);
            in = 4 * (z->width << s);
        }
    x = weft_global_avg_pool(g, x, NULL);
    return classify(w, linear(w, "dense", x, in, z->classes), SHAPE(w->batch), z->classes);
}

static weft_val resnet50(struct workload *w)
{
    return resnet(w, &(struct resnet_size){224, 64, 1000, {3, 4, 6, 3}});
}

static weft_val resnet_s(struct workload *w)
{
    return resnet(w, &(struct resnet_size){32, 8, 10, {1, 1, 1, 1}});
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int64_t batch;
    const char *optimizer, *numbers;
    weft_val (*build)(struct workload *w);
    weft_dtype compute; /* what layers compute in; 0: f32 */
    bool large;         /* for GPUs: not among "all" of the cpu */
} table[] = {
    {"softmax64", 1024, "sgd", "learning_rate=0.01 momentum=0.9", softmax64, 0, false},
    {"mlp-s", 128, "adam", "learning_rate=0.001", mlp_s, 0, false},
    {"mlp-l", 256, "sgd", "learning_rate=0.01 momentum=0.9", mlp_l, 0, false},
    {"cnn", 64, "adam", "learning_rate=0.001", cnn, 0, false},
    {"lstm", 64, "adam", "learning_rate=0.001", lstm, 0, false},
    {"widedeep", 2048, "adagrad", "learning_rate=0.01", widedeep, 0, false},
    {"gpt-s", 8, "adam", "learning_rate=0.001", gpt_s, 0, false},
    {"resnet-s", 16, "sgd", "learning_rate=0.01 momentum=0.9", resnet_s, 0, false},
    {"mlp-xl", 8192, "adam", "learning_rate=0.001", mlp_xl, WEFT_BF16, true},
    {"cnn-512", 512, "adam", "learning_rate=0.001", cnn, 0, true},
    {"resnet50", 256, "sgd", "learning_rate=0.01 momentum=0.9", resnet50, WEFT_BF16, true},
    {"gpt2", 16, "adam", "learning_rate=0.001", gpt2, WEFT_BF16, true},
};

int n_workloads(void)
{
    return (int)(sizeof table / sizeof *table);
}

const char *workload_name(int i)
{
    return table[i].name;
}

bool is_workload(const char *name)
{
    for (int i = 0; i < n_workloads(); i++)
        if (!strcmp(table[i].name, name))
            return true;
    return false;
}

bool workload_is_large(int i)
{
    return table[i].large;
}

weft_status workload_build(weft_ctx *ctx, const char *name, struct workload *w)
{
    return workload_build_in(ctx, name, WEFT_NONE, w);
}

weft_status workload_build_in(weft_ctx *ctx, const char *name, weft_dtype compute,
                              struct workload *w)
{
    weft_optim o;
    weft_status st;
    int i = 0, n = 0;

    *w = (struct workload){0};
    while (i < n_workloads() && strcmp(table[i].name, name))
        i++;
    if (i == n_workloads())
        return WEFT_ENOENT;
    w->name = table[i].name;
    w->batch = table[i].batch;
    st = weft_graph_new(ctx, &w->graph);
    if (st)
        return st;
    compute = compute ? compute : table[i].compute;
    w->compute = compute == WEFT_F32 ? WEFT_NONE : compute;
    if (compute)
        weft_autocast_push(w->graph, compute);
    w->loss = table[i].build(w);
    if (compute && w->plain_grads)
        weft_autocast_pop(w->graph);
    st = weft_graph_status(w->graph);
    if (!st)
        st = weft_optim_init(&o, table[i].optimizer, table[i].numbers);
    if (!st)
        st = weft_minimize(w->graph, w->loss, &o, 0, NULL, MAX_UPDATES - w->n_updates,
                           w->updates + w->n_updates, &n);
    w->n_updates += n;
    if (!st && compute && !w->plain_grads)
        weft_autocast_pop(w->graph);
    if (st)
        workload_free(w);
    return st;
}

void workload_free(struct workload *w)
{
    for (int i = 0; i < w->n_feeds; i++)
        free(w->data[i].data);
    weft_graph_free(w->graph);
    *w = (struct workload){0};
}
