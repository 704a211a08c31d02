/* user_op.c - a user op: its row, shape rule, kernel and gradient, checked and trained
 * with.
 *
 * The op is a soft threshold, y = sign(x) * max(|x| - t, 0), with t an attribute. A graph that uses
 * it can be saved; a context that has not registered it refuses the file and names it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/sys/op.h>
#include <weft/weft.h>

/* The result is like the operand. */
static weft_status shrink_infer(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    if (in[0].dtype != WEFT_F32 && in[0].dtype != WEFT_F64)
        return weft_op_call_error(WEFT_EDTYPE, "needs f32 or f64, got %s",
                                  weft_dtype_name(in[0].dtype));
    if (weft_op_call_float(call, "t") < 0)
        return weft_op_call_error(WEFT_EINVAL, "t must not be negative");
    out[0] = in[0];
    return WEFT_OK;
}

struct work {
    const weft_tensor *x, *y;
    double t;
};

enum { TILE = 4096 };

/* Elements of one tile. Tiles are cut by size alone, so the bits do not depend on the threads. */
static void shrink_tile(void *arg, int64_t tile, int thread)
{
    const struct work *w = arg;
    int64_t n = weft_tensor_count(w->x), end = (tile + 1) * TILE < n ? (tile + 1) * TILE : n;

    (void)thread;
    for (int64_t i = tile * TILE; i < end; i++)
        if (w->x->dtype == WEFT_F32) {
            float x = ((const float *)w->x->data)[i];

            ((float *)w->y->data)[i] = copysignf(fmaxf(fabsf(x) - (float)w->t, 0), x);
        } else {
            double x = ((const double *)w->x->data)[i];

            ((double *)w->y->data)[i] = copysign(fmax(fabs(x) - w->t, 0), x);
        }
}

static weft_status shrink_run(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    struct work w = {&in[0], &out[0], weft_op_call_float(call, "t")};

    weft_op_call_parallel(call, (weft_tensor_count(&in[0]) + TILE - 1) / TILE, shrink_tile, &w);
    return WEFT_OK;
}

/* dy where y is not zero. */
static weft_status shrink_grad(weft_graph *g, const weft_val *in, const weft_val *out,
                               const weft_val *dout, weft_val *din)
{
    (void)in;
    din[0] = weft_mul(g, dout[0], weft_abs(g, weft_sign(g, out[0])));
    return WEFT_OK;
}

static int failed(const char *what)
{
    fprintf(stderr, "user_op: %s: %s\n", what, weft_error());
    return 1;
}

/* Fit y = shrink(x·w) to targets made with known weights; returns the last loss. */
static weft_status train(weft_ctx *ctx, float *last)
{
    enum { N = 256, D = 8 };
    float xs[N * D], ts[N];
    weft_graph *g = NULL;
    weft_fn *fn = NULL;
    weft_val x, t, y, d, loss, updates[1];
    weft_tensor feeds[2];
    weft_optim adam;
    int n;
    weft_status st = weft_graph_new(ctx, &g);

    if (st)
        return st;
    for (int i = 0; i < N; i++) {
        double z = 0;

        for (int k = 0; k < D; k++) {
            xs[i * D + k] = (float)((i * 31 + k * 17) % 41) / 20 - 1;
            z += xs[i * D + k] * (k % 2 ? -1.0 : 0.5 * k);
        }
        ts[i] = (float)copysign(fmax(fabs(z) - 0.5, 0), z);
    }
    x = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, D});
    t = weft_placeholder(g, "t", WEFT_F32, 2, (int64_t[]){WEFT_ANY, 1});
    y = weft_matmul(g, x, weft_variable(g, "w", 2, (int64_t[]){D, 1}, NULL), NULL);
    y = weft_op(g, "example.shrink", 1, &y, "t=0.5");
    d = weft_sub(g, y, t);
    loss = weft_mean(g, weft_mul(g, d, d), NULL);
    feeds[0] = weft_view(WEFT_F32, xs, 2, (int64_t[]){N, D});
    feeds[1] = weft_view(WEFT_F32, ts, 2, (int64_t[]){N, 1});
    st = weft_grad_check(g, loss, 2, (weft_val[]){x, t}, feeds, 0, NULL, NULL, NULL);
    if (!st)
        st = weft_optim_init(&adam, "adam", "learning_rate=0.05");
    if (!st)
        st = weft_minimize(g, loss, &adam, 0, NULL, 1, updates, &n);
    if (!st)
        st = weft_fn_new(g,
                         WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){x, t},
                                   .n_fetches = 1, .fetches = &loss, .n_updates = n,
                                   .updates = updates),
                         &fn);
    for (int i = 0; i < 300 && !st; i++) {
        weft_tensor out = {.data = NULL};

        st = weft_fn_run(fn, feeds, &out);
        if (!st)
            *last = *(const float *)out.data;
    }
    weft_fn_free(fn);
    weft_graph_free(g);
    return st;
}

/* A context without the op refuses the graph and says which op it lacks. */
static int show_missing(void)
{
    static const char text[] = "weft graph 1\n%0 = placeholder() dtype=f32 shape=[4] \"x\"\n"
                               "%1 = example.shrink(%0) t=0.5 \"y\"\n";
    weft_ctx *plain;
    weft_graph *g = NULL;
    weft_status st;

    if (weft_ctx_new(NULL, &plain))
        return failed("context");
    st = weft_graph_parse(plain, text, (int64_t)strlen(text), &g);
    printf("without the op: %s\n", st ? weft_error() : "read?");
    weft_graph_free(g);
    weft_ctx_free(plain);
    return st == WEFT_ENOENT ? 0 : 1;
}

int main(void)
{
    weft_ctx *ctx;
    float loss = 0;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx))
        return failed("context");
    if (weft_op_register(ctx, WEFT_OPTS(weft_user_op, .name = "example.shrink", .n_in = 1,
                                        .n_out = 1, .attrs = "t:f=1.0", .infer = shrink_infer,
                                        .run = shrink_run, .grad = shrink_grad)))
        return failed("register");
    if (train(ctx, &loss))
        return failed("train");
    printf("gradient checked; loss after 300 steps: %.5f\n", (double)loss);
    weft_ctx_free(ctx);
    return show_missing() || loss > 0.01f;
}
