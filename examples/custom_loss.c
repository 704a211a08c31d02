/* custom_loss.c - a loss and a metric of your own.
 *
 * Delivery times: to promise too little is worse than to promise too much. The loss counts minutes
 * of delay more than minutes of waiting, the metric is the share of orders that arrive in time.
 * Both are registered in the model and then used by name; a saved model remembers the names. */
#include <stdio.h>
#include <stdlib.h>

#include <weft/sys/loss.h>
#include <weft/weft.h>

enum { N_ORDERS = 2000, N_FEATURES = 3 };

/* late * (y - p) where the prediction is too small, p - y elsewhere: the slope decides which share
 * of orders arrives in time, late / (late + 1). */
static weft_val build_promise(weft_loss_call *c)
{
    weft_graph *g = weft_loss_graph(c);
    weft_val d = weft_sub(g, weft_loss_label(c), weft_loss_pred(c)), zero = weft_scalar(g, 0);
    weft_val late = weft_scalar(g, weft_loss_float(c, "late"));
    weft_val each = weft_sub(g, weft_mul(g, late, weft_max(g, d, zero)), weft_min(g, d, zero));

    return weft_mean(g, each, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {-1}));
}

/* One value for each sample: weft takes the mean, over batches and epochs too. */
static weft_val build_in_time(weft_loss_call *c)
{
    return weft_le(weft_loss_graph(c), weft_loss_label(c), weft_loss_pred(c));
}

static const weft_loss_kind promise = {
    .size = sizeof promise,
    .name = "Promise",
    .attrs = "late:f=1",
    .build = build_promise,
    .doc = "absolute error, delays count more",
};

static const weft_metric_kind in_time = {
    .size = sizeof in_time,
    .name = "in_time",
    .direction = 1,
    .build = build_in_time,
    .doc = "share of labels that are at most the prediction",
};

/* An empty model in which both are registered. */
static weft_status empty(weft_ctx *ctx, weft_model **out)
{
    weft_status st = weft_model_new(ctx, NULL, out);

    if (!st)
        st = weft_loss_register(*out, &promise);
    if (!st)
        st = weft_metric_register(*out, &in_time);
    return st;
}

/* Distance, hour, items -> minutes, with a delay that nobody can foresee. */
static void make_orders(float (*x)[N_FEATURES], float *y)
{
    srand(1);
    for (int i = 0; i < N_ORDERS; i++) {
        float luck = (float)rand() / (float)RAND_MAX;

        for (int k = 0; k < N_FEATURES; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX;
        y[i] = 1 + 2 * x[i][0] + 0.5f * x[i][1] * x[i][2] + luck * luck;
    }
}

static weft_status train(weft_ctx *ctx, weft_model *m, const char *path)
{
    static float x[N_ORDERS][N_FEATURES], y[N_ORDERS];
    weft_column col[2] = {{.name = "order"}, {.name = "minutes", .role = WEFT_LABEL}};
    weft_tensor tensor[2] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N_ORDERS, N_FEATURES}),
                             weft_view(WEFT_F32, y, 2, (int64_t[]){N_ORDERS, 1})};
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_logs logs;
    weft_status st;

    make_orders(x, y);
    weft_input(m, "order", WEFT_F32, 1, (int64_t[]){N_FEATURES});
    weft_model_add(m, "Dense", "units=16 activation=relu");
    weft_model_add(m, "Dense", "units=1");
    st = weft_compile(m,
                      WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.01",
                                .loss = "promise late=9", .metrics = "in_time"),
                      &t);
    if (!st)
        st = weft_data_new(ctx, &d);
    if (!st)
        st = weft_fit(t, d, weft_ds_tensors(d, 2, col, tensor),
                      WEFT_OPTS(weft_fit_opts, .epochs = 30, .batch = 50), NULL);
    if (!st)
        st = weft_evaluate(t, d, weft_ds_tensors(d, 2, col, tensor), NULL, &logs);
    if (!st) {
        printf("loss %.3f, in time %.1f %%\n", weft_logs_get(&logs, "loss"),
               100 * weft_logs_get(&logs, "in_time"));
        st = weft_trainer_save(t, path);
    }
    weft_data_free(d);
    weft_trainer_free(t);
    return st;
}

/* Back from the file, with the loss and the metric it was trained with. */
static weft_status load(weft_ctx *ctx, const char *path)
{
    weft_model *m = NULL, *stranger = NULL;
    weft_trainer *t = NULL;
    weft_status st = empty(ctx, &m);

    if (!st)
        st = weft_model_load_into(m, path);
    if (!st)
        st = weft_compile(m, WEFT_OPTS(weft_compile_opts, .like = path), &t);
    if (!st)
        printf("loaded, loss and metric included\n");
    weft_trainer_free(t);
    t = NULL;
    if (!st)
        st = weft_model_load(ctx, path, &stranger);
    if (!st && weft_compile(stranger, WEFT_OPTS(weft_compile_opts, .like = path), &t))
        printf("without registering: %s\n", weft_error());
    else if (!st)
        st = WEFT_EBUG;
    weft_trainer_free(t);
    weft_model_free(m);
    weft_model_free(stranger);
    return st;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "promise.safetensors";
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx);

    if (!st)
        st = empty(ctx, &m);
    if (!st)
        st = train(ctx, m, path);
    if (!st)
        st = load(ctx, path);
    if (st)
        fprintf(stderr, "custom_loss: %s\n", weft_error());
    weft_model_free(m);
    weft_ctx_free(ctx);
    return st ? 1 : 0;
}
