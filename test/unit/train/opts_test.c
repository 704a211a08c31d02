/* opts_test.c - options of another size, as from a program compiled with another version, are
 * refused by every call that takes options, and nothing but their size is read: the block given is
 * that small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <string.h>

#include "weft/weft.h"

static weft_ctx *ctx;
static const void *p; /* one size_t that says 8, and nothing after it */

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static void refused(weft_status st, const char *call)
{
    if (st != WEFT_EINVAL)
        fail_msg("%s: %s", call, weft_status_name(st));
}

/* ---- graphs ---------------------------------------------------------------------------------- */

#define GRAPH(call)                                                                  \
    do {                                                                             \
        weft_graph *g = NULL;                                                        \
        ok(weft_graph_new(ctx, &g));                                                 \
        weft_val x = weft_placeholder(g, "x", WEFT_F32, 4, (int64_t[]){2, 4, 4, 4}), \
                 m = weft_placeholder(g, "m", WEFT_F32, 2, (int64_t[]){4, 4}),       \
                 s = weft_placeholder(g, "s", WEFT_F32, 3, (int64_t[]){2, 4, 4}),    \
                 v = weft_placeholder(g, "v", WEFT_F32, 1, (int64_t[]){4}),          \
                 w = weft_placeholder(g, "w", WEFT_F32, 4, (int64_t[]){2, 2, 4, 4}), \
                 ids = weft_placeholder(g, "ids", WEFT_I32, 1, (int64_t[]){4});      \
        (void)x, (void)m, (void)s, (void)v, (void)w, (void)ids;                      \
        ok(weft_graph_status(g));                                                    \
        (void)(call);                                                                \
        refused(weft_graph_status(g), #call);                                        \
        weft_graph_free(g);                                                          \
    } while (0)

static void builders_of_the_core(void **state)
{
    (void)state;
    GRAPH(weft_variable(g, "var", 2, (int64_t[]){2, 2}, p));
    GRAPH(weft_matmul(g, m, m, p));
    GRAPH(weft_conv(g, x, w, p));
    GRAPH(weft_depthwise_conv(g, x, w, p));
    GRAPH(weft_separable_conv(g, x, w, w, p));
    GRAPH(weft_conv_transpose(g, x, w, p));
    GRAPH(weft_max_pool(g, x, p));
    GRAPH(weft_avg_pool(g, x, p));
    GRAPH(weft_global_max_pool(g, x, p));
    GRAPH(weft_global_avg_pool(g, x, p));
    GRAPH(weft_resize(g, x, p));
    GRAPH(weft_leaky_relu(g, x, p));
    GRAPH(weft_elu(g, x, p));
    GRAPH(weft_gelu(g, x, p));
    GRAPH(weft_gather(g, m, ids, p));
    GRAPH(weft_one_hot(g, ids, 4, p));
    GRAPH(weft_sort(g, x, p));
    GRAPH(weft_argsort(g, x, p));
    GRAPH(weft_embedding_bag(g, m, ids, ids, p));
    GRAPH(weft_print(g, x, "x", p));
    GRAPH(weft_pad(g, v, 1, (int64_t[]){1, 1}, p));
}

static void builders_of_the_rest(void **state)
{
    (void)state;
    GRAPH(weft_masked_softmax(g, m, p));
    GRAPH(weft_sparse_softmax_xent(g, m, ids, p));
    GRAPH(weft_loss_sparse_softmax_xent(g, m, ids, p));
    GRAPH(weft_attention(g, x, x, x, p));
    GRAPH(weft_attention_packed(g, x, p));
    GRAPH(weft_random_uniform(g, 0, 1, p));
    GRAPH(weft_random_normal(g, 0, 1, p));
    GRAPH(weft_random_truncated_normal(g, 0, 1, p));
    GRAPH(weft_random_bernoulli(g, 0.5, p));
    GRAPH(weft_dropout(g, x, 0.5, p));
    GRAPH(weft_sum(g, x, p));
    GRAPH(weft_mean(g, x, p));
    GRAPH(weft_reduce_max(g, x, p));
    GRAPH(weft_logsumexp(g, x, p));
    GRAPH(weft_argmax(g, x, 0, p));
    GRAPH(weft_argmin(g, x, 0, p));
    GRAPH(weft_cumsum(g, x, 0, p));
    GRAPH(weft_size_of(g, x, p));
}

static void functions_and_contexts(void **state)
{
    weft_ctx *other = NULL;
    weft_graph *g = NULL;
    weft_fn *fn = NULL, *wrong = NULL;
    weft_val x, y;
    float one = 1;
    weft_tensor feed = weft_view(WEFT_F32, &one, 0, NULL);
    char *text = NULL;

    (void)state;
    refused(weft_ctx_new(p, &other), "weft_ctx_new");
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "x", WEFT_F32, 0, NULL);
    y = weft_exp(g, x);
    refused(weft_fn_new(g, p, &wrong), "weft_fn_new");
    ok(weft_fn_new(
        g, WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1, .fetches = &y), &fn));
    refused(weft_fn_explain(fn, &feed, p, &text), "weft_fn_explain");
    refused(weft_fn_plan_info(fn, &feed, (void *)(uintptr_t)p), "weft_fn_plan_info");
    refused(weft_grad_check(g, y, 1, &x, &feed, 0, NULL, p, NULL), "weft_grad_check");
    weft_fn_free(fn);
    weft_graph_free(g);
}

/* ---- data ------------------------------------------------------------------------------------ */

static weft_status row(void *arg, int64_t k, weft_sample *s)
{
    (void)arg;
    *(float *)s->col[0].data = (float)k;
    return WEFT_OK;
}

#define DATA(call)                                                       \
    do {                                                                 \
        static const weft_column col = {.name = "v", .dtype = WEFT_F32}; \
        weft_data *d = NULL;                                             \
        weft_iter *it = NULL;                                            \
        ok(weft_data_new(ctx, &d));                                      \
        weft_ds s = weft_ds_get(d, 1, &col, 8, row, NULL), made = call;  \
        (void)s;                                                         \
        refused(weft_iter_new(d, made, NULL, &it), #call);               \
        weft_data_free(d);                                               \
    } while (0)

static void datasets(void **state)
{
    (void)state;
    DATA(weft_ds_where(d, s, "v", p));
    DATA(weft_ds_batch(d, s, 2, p));
    DATA(weft_ds_shuffle_all(d, s, p));
    DATA(weft_ds_shuffle(d, s, 4, p));
    DATA(weft_ds_padded_batch(d, s, 2, p));
    DATA(weft_ds_window(d, s, 2, p));
    DATA(weft_ds_cache(d, s, p));
    DATA(weft_ds_snapshot(d, s, "nowhere", p));
    DATA(weft_ds_one_hot(d, s, "v", 3, p));
    DATA(weft_ds_decode_image(d, s, "v", p));
    DATA(weft_ds_image_resize(d, s, "v", 2, 2, p));
    DATA(weft_ds_open(d, "nothing.csv", p));
    DATA(weft_ds_csv(d, "nothing.csv", p));
    DATA(weft_ds_criteo(d, "nothing.txt", p));
    DATA(weft_ds_libsvm(d, "nothing.svm", p));
    DATA(weft_ds_lines(d, "nothing.txt", p));
    DATA(weft_ds_fixed(d, "nothing.bin", 4, p));
    DATA(weft_ds_tfrecord(d, "nothing.tfrecord", p));
    DATA(weft_ds_image_folder(d, "nothing", p));
}

/* ---- models and training --------------------------------------------------------------------- */

static void models_and_trainers(void **state)
{
    static const weft_column col[] = {{.name = "v", .dtype = WEFT_F32}};
    weft_callback small = {.size = sizeof(size_t)};
    weft_model *m = NULL, *none = NULL;
    weft_trainer *t = NULL, *wrong = NULL;
    weft_data *d = NULL;
    weft_ds s;

    (void)state;
    refused(weft_model_new(ctx, p, &none), "weft_model_new");
    ok(weft_model_new(ctx, NULL, &m));
    weft_input(m, "v", WEFT_F32, 1, (int64_t[]){1});
    weft_model_add(m, "Dense", "units=1");
    ok(weft_model_status(m));
    refused(weft_compile(m, p, &wrong), "weft_compile");
    refused(weft_model_cut(m, p, &none), "weft_model_cut");
    ok(weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "sgd", .loss = "mse"), &t));
    ok(weft_data_new(ctx, &d));
    s = weft_ds_get(d, 1, col, 8, row, NULL);
    refused(weft_fit(t, d, s, p, NULL), "weft_fit");
    refused(
        weft_fit(t, d, s, WEFT_OPTS(weft_fit_opts, .n_callbacks = 1, .callbacks = &small), NULL),
        "weft_fit with a callback");
    refused(weft_evaluate(t, d, s, p, NULL), "weft_evaluate");
    refused(weft_predict(t, d, s, p, NULL, NULL), "weft_predict");
    refused(weft_trainer_apply(t, NULL, p), "weft_trainer_apply");
    refused(weft_trainer_copy_weights(t, t, p, NULL), "weft_trainer_copy_weights");
    weft_data_free(d);
    weft_trainer_free(t);
    weft_model_free(m);
}

static int set_up(void **state)
{
    size_t *block = malloc(sizeof *block);

    (void)state;
    if (!block)
        return -1;
    *block = sizeof *block;
    p = block;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    free((void *)(uintptr_t)p);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builders_of_the_core),   cmocka_unit_test(builders_of_the_rest),
        cmocka_unit_test(functions_and_contexts), cmocka_unit_test(datasets),
        cmocka_unit_test(models_and_trainers),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
