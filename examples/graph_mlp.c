/* graph_mlp.c - a two-layer network from graph ops, trained on Fashion-MNIST.
 *
 *   graph_mlp [FOLDER] [EPOCHS]
 *
 * FOLDER holds the four idx files (gzipped), by default where Debian's dataset-fashion-mnist puts
 * them. Shows how to build a graph, take gradients, compile functions that share parameters, and
 * run them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include <weft/weft.h>

enum { PIXELS = 784, HIDDEN = 256, CLASSES = 10, BATCH = 128 };

/* ---- data ------------------------------------------------------------------------------------ */

struct set {
    int64_t n;
    float *x;   /* [n, 784], 0..1 */
    int32_t *y; /* [n] */
};

static uint32_t be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* An idx file of bytes: its header is checked before its sizes are believed. */
static unsigned char *read_idx(const char *folder, const char *file, uint32_t magic, int64_t item,
                               int64_t *n)
{
    char path[512];
    unsigned char head[16], *data = NULL;
    int head_bytes = item == 1 ? 8 : 16;
    gzFile f;

    snprintf(path, sizeof path, "%s/%s", folder, file);
    f = gzopen(path, "rb");
    if (!f || gzread(f, head, (unsigned)head_bytes) != head_bytes || be32(head) != magic) {
        fprintf(stderr, "graph_mlp: %s: %s\n", path,
                f ? "not the idx file expected" : "cannot open");
        goto out;
    }
    *n = be32(head + 4);
    if (*n < 1 || *n > 1000000 || !(data = malloc((size_t)(*n * item)))) {
        fprintf(stderr, "graph_mlp: %s: claims %lld items\n", path, (long long)*n);
        goto out;
    }
    if (gzread(f, data, (unsigned)(*n * item)) != *n * item) {
        fprintf(stderr, "graph_mlp: %s: ends too early\n", path);
        free(data);
        data = NULL;
    }
out:
    if (f)
        gzclose(f);
    return data;
}

static int read_set(const char *folder, const char *images, const char *labels, struct set *s)
{
    int64_t n_labels = 0;
    unsigned char *x = read_idx(folder, images, 0x803, PIXELS, &s->n);
    unsigned char *y = x ? read_idx(folder, labels, 0x801, 1, &n_labels) : NULL;
    int ok = x && y && n_labels == s->n;

    s->x = ok ? malloc((size_t)s->n * PIXELS * sizeof *s->x) : NULL;
    s->y = ok ? malloc((size_t)s->n * sizeof *s->y) : NULL;
    ok = ok && s->x && s->y;
    for (int64_t i = 0; ok && i < s->n * PIXELS; i++)
        s->x[i] = (float)x[i] / 255;
    for (int64_t i = 0; ok && i < s->n; i++)
        s->y[i] = y[i];
    free(x);
    free(y);
    return ok ? 0 : -1;
}

/* ---- the model ------------------------------------------------------------------------------- */

static weft_val dense(weft_graph *g, const char *name, weft_val x, int64_t in, int64_t out)
{
    weft_val w, b;

    weft_scope_push(g, name);
    w = weft_variable(g, "kernel", 2, (int64_t[]){in, out}, NULL);
    b = weft_variable(g, "bias", 1, &out, NULL);
    weft_scope_pop(g);
    return weft_add(g, weft_matmul(g, x, w, NULL), b);
}

struct model {
    weft_ctx *ctx;
    weft_graph *graph;
    weft_fn *train, *predict;
};

static weft_status build(struct model *m)
{
    weft_val x, y, logits, loss, updates[4];
    weft_optim adam;
    int n_updates;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 7), &m->ctx);

    if (!st)
        st = weft_graph_new(m->ctx, &m->graph);
    if (st)
        return st;
    x = weft_placeholder(m->graph, "images", WEFT_F32, 2, (int64_t[]){WEFT_ANY, PIXELS});
    y = weft_placeholder(m->graph, "labels", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    logits =
        dense(m->graph, "out", weft_relu(m->graph, dense(m->graph, "hidden", x, PIXELS, HIDDEN)),
              HIDDEN, CLASSES);
    loss = weft_loss_sparse_softmax_xent(m->graph, logits, y, NULL);

    st = weft_optim_init(&adam, "adam", "learning_rate=0.001");
    if (!st)
        st = weft_minimize(m->graph, loss, &adam, 0, NULL, 4, updates, &n_updates);
    if (!st) /* errors of the builders above come out here, once */
        st = weft_fn_new(m->graph,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, y},
                                   .n_fetches = 1, .fetches = &loss, .n_updates = n_updates,
                                   .updates = updates),
                         &m->train);
    if (!st)
        st = weft_fn_new(m->graph,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1,
                                   .fetches = &logits, .share = m->train),
                         &m->predict);
    return st;
}

/* ---- training -------------------------------------------------------------------------------- */

static void shuffle(int32_t *order, int64_t n, uint64_t *s)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j;
        int32_t t;

        *s = *s * 6364136223846793005u + 1442695040888963407u;
        j = (int64_t)((*s >> 33) % (uint64_t)(i + 1));
        t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static void progress(int epoch, int epochs, int64_t step, int64_t steps, double loss)
{
    if (!isatty(1) && step < steps)
        return;
    printf("%sepoch %d/%d  %lld/%lld  loss %.4f%s", isatty(1) ? "\r" : "", epoch, epochs,
           (long long)step, (long long)steps, loss, step == steps ? "\n" : "");
    fflush(stdout);
}

static weft_status train_epoch(struct model *m, const struct set *s, int32_t *order, int epoch,
                               int epochs)
{
    static float x[BATCH * PIXELS];
    int32_t y[BATCH];
    int64_t steps = (s->n + BATCH - 1) / BATCH;
    double total = 0;

    for (int64_t t = 0; t < steps; t++) {
        int64_t n = s->n - t * BATCH < BATCH ? s->n - t * BATCH : BATCH;
        weft_tensor feeds[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){n, PIXELS}),
                                weft_view(WEFT_I32, y, 1, &n)};
        weft_tensor loss = {.data = NULL};
        weft_status st;

        for (int64_t i = 0; i < n; i++) {
            int32_t k = order[t * BATCH + i];

            memcpy(x + i * PIXELS, s->x + (int64_t)k * PIXELS, PIXELS * sizeof *x);
            y[i] = s->y[k];
        }
        st = weft_fn_run(m->train, feeds, &loss);
        if (st)
            return st;
        total += *(const float *)loss.data;
        if (t % 50 == 49 || t + 1 == steps)
            progress(epoch, epochs, t + 1, steps, total / (double)(t + 1));
    }
    return WEFT_OK;
}

static weft_status accuracy(struct model *m, const struct set *s, double *out)
{
    int64_t right = 0;

    for (int64_t at = 0; at < s->n; at += 1000) {
        int64_t n = s->n - at < 1000 ? s->n - at : 1000;
        weft_tensor x = weft_view(WEFT_F32, s->x + at * PIXELS, 2, (int64_t[]){n, PIXELS}),
                    z = {.data = NULL};
        weft_status st = weft_fn_run(m->predict, &x, &z);

        if (st)
            return st;
        for (int64_t i = 0; i < n; i++) {
            const float *row = (const float *)z.data + i * CLASSES;
            int best = 0;

            for (int c = 1; c < CLASSES; c++)
                best = row[c] > row[best] ? c : best;
            right += best == s->y[at + i];
        }
    }
    *out = (double)right / (double)s->n;
    return WEFT_OK;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    int epochs = argc > 2 ? atoi(argv[2]) : 8;
    struct set train, test;
    struct model m = {0};
    struct timespec a, b;
    uint64_t seed = 1;
    double acc = 0;
    weft_status st;
    int32_t *order;

    if (epochs < 1 || epochs > 1000) {
        fprintf(stderr, "graph_mlp: the number of epochs must be in 1..1000\n");
        return 2;
    }
    if (read_set(folder, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", &train) ||
        read_set(folder, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", &test))
        return 3;
    order = malloc((size_t)train.n * sizeof *order);
    st = order ? build(&m) : WEFT_ENOMEM;
    for (int64_t i = 0; !st && i < train.n; i++)
        order[i] = (int32_t)i;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int e = 1; e <= epochs && !st; e++) {
        shuffle(order, train.n, &seed);
        st = train_epoch(&m, &train, order, e, epochs);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (!st)
        st = accuracy(&m, &test, &acc);
    if (st)
        fprintf(stderr, "graph_mlp: %s\n", weft_error());
    else
        printf("test accuracy %.2f %% after %d epochs, %.1f s of training\n", 100 * acc, epochs,
               (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    weft_fn_free(m.predict);
    weft_fn_free(m.train);
    weft_graph_free(m.graph);
    weft_ctx_free(m.ctx);
    free(order);
    free(train.x);
    free(train.y);
    free(test.x);
    free(test.y);
    return st ? 1 : 0;
}
