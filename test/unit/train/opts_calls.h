/* opts_calls.h - for opts_test.c: every public call that takes a struct that begins with its size,
 * in the table `calls` at the end. */
#ifndef WEFT_TEST_OPTS_CALLS_H
#define WEFT_TEST_OPTS_CALLS_H

#include <stdio.h>
#include <string.h>

#include "support/ckpt_sample.h"
#include "weft/sys/layer.h"
#include "weft/sys/loss.h"
#include "weft/sys/ctl.h"
#include "weft/sys/join.h"
#include "weft/sys/lend.h"
#include "weft/sys/net.h"
#include "weft/sys/op.h"
#include "weft/sys/predict.h"
#include "weft/sys/strategy.h"
#include "weft/weft.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof(a)[0]))

static weft_ctx *ctx;
static char dir[64];

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static const char *in_dir(const char *name)
{
    static char path[4][128];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

/* ---- builders of graphs ---------------------------------------------------------------------- */

#define GRAPH_CALLS(X)                                                                            \
    X(variable, weft_variable_opts, weft_variable(g, "var", 2, (int64_t[]){2, 2}, p))             \
    X(matmul, weft_matmul_opts, weft_matmul(g, f.m, f.m, p))                                      \
    X(conv, weft_conv_opts, weft_conv(g, f.x, f.w, p))                                            \
    X(depthwise_conv, weft_conv_opts, weft_depthwise_conv(g, f.x, f.w, p))                        \
    X(separable_conv, weft_conv_opts, weft_separable_conv(g, f.x, f.w, f.point, p))               \
    X(conv_transpose, weft_conv_transpose_opts, weft_conv_transpose(g, f.x, f.w, p))              \
    X(max_pool, weft_pool_opts, weft_max_pool(g, f.x, p))                                         \
    X(avg_pool, weft_pool_opts, weft_avg_pool(g, f.x, p))                                         \
    X(global_max_pool, weft_global_pool_opts, weft_global_max_pool(g, f.x, p))                    \
    X(global_avg_pool, weft_global_pool_opts, weft_global_avg_pool(g, f.x, p))                    \
    X(leaky_relu, weft_leaky_relu_opts, weft_leaky_relu(g, f.x, p))                               \
    X(elu, weft_elu_opts, weft_elu(g, f.x, p))                                                    \
    X(gelu, weft_gelu_opts, weft_gelu(g, f.x, p))                                                 \
    X(gather, weft_gather_opts, weft_gather(g, f.m, f.ids, p))                                    \
    X(one_hot, weft_one_hot_opts, weft_one_hot(g, f.ids, 4, p))                                   \
    X(sort, weft_sort_opts, weft_sort(g, f.x, p))                                                 \
    X(argsort, weft_sort_opts, weft_argsort(g, f.x, p))                                           \
    X(embedding_bag, weft_embedding_bag_opts, weft_embedding_bag(g, f.m, f.ids, f.ids, p))        \
    X(print, weft_print_opts, weft_print(g, f.x, "x", p))                                         \
    X(pad, weft_pad_opts, weft_pad(g, f.v, 1, (int64_t[]){1, 1}, p))                              \
    X(masked_softmax, weft_masked_softmax_opts, weft_masked_softmax(g, f.m, p))                   \
    X(sparse_xent, weft_sparse_softmax_xent_opts, weft_sparse_softmax_xent(g, f.m, f.ids, p))     \
    X(loss_xent, weft_sparse_softmax_xent_opts, weft_loss_sparse_softmax_xent(g, f.m, f.ids, p))  \
    X(attention, weft_attention_opts, weft_attention(g, f.x, f.x, f.x, p))                        \
    X(attention_packed, weft_attention_opts, weft_attention_packed(g, f.qkv, p))                  \
    X(batch_norm, weft_batch_norm_opts, weft_batch_norm(g, f.x, WEFT_NIL, WEFT_NIL, f.v, f.v, p)) \
    X(layer_norm, weft_layer_norm_opts, weft_layer_norm(g, f.x, WEFT_NIL, WEFT_NIL, p))           \
    X(rms_norm, weft_rms_norm_opts, weft_rms_norm(g, f.x, WEFT_NIL, p))                           \
    X(group_norm, weft_group_norm_opts, weft_group_norm(g, f.wide, WEFT_NIL, WEFT_NIL, p))        \
    X(instance_norm, weft_instance_norm_opts, weft_instance_norm(g, f.x, WEFT_NIL, WEFT_NIL, p))  \
    X(lstm, weft_lstm_opts, weft_lstm(g, f.s, f.m, f.row4, p))                                    \
    X(gru, weft_gru_opts, weft_gru(g, f.s, f.m3, f.row3, p))                                      \
    X(simple_rnn, weft_simple_rnn_opts, weft_simple_rnn(g, f.s, f.m1, f.one, p))                  \
    X(random_uniform, weft_random_opts, weft_random_uniform(g, 0, 1, p))                          \
    X(random_normal, weft_random_opts, weft_random_normal(g, 0, 1, p))                            \
    X(truncated_normal, weft_random_opts, weft_random_truncated_normal(g, 0, 1, p))               \
    X(random_bernoulli, weft_random_opts, weft_random_bernoulli(g, 0.5, p))                       \
    X(dropout, weft_dropout_opts, weft_dropout(g, f.x, 0.5, p))                                   \
    X(sum, weft_reduce_opts, weft_sum(g, f.x, p))                                                 \
    X(mean, weft_reduce_opts, weft_mean(g, f.x, p))                                               \
    X(reduce_max, weft_reduce_opts, weft_reduce_max(g, f.x, p))                                   \
    X(logsumexp, weft_reduce_opts, weft_logsumexp(g, f.x, p))                                     \
    X(argmax, weft_arg_opts, weft_argmax(g, f.x, 0, p))                                           \
    X(argmin, weft_arg_opts, weft_argmin(g, f.x, 0, p))                                           \
    X(cumsum, weft_cumsum_opts, weft_cumsum(g, f.x, 0, p))                                        \
    X(size_of, weft_size_of_opts, weft_size_of(g, f.x, p))                                        \
    X(resize, weft_resize_opts, weft_resize(g, f.x, p))                                           \
    X(scan, weft_scan_opts, weft_scan(g, 2, 1, &f.v, 0, NULL, 0, scan_body, NULL, p, NULL, NULL))

static weft_status scan_body(weft_graph *g, void *arg, int t, const weft_val *state,
                             const weft_val *x, weft_val *new_state, weft_val *y)
{
    (void)arg, (void)t, (void)x, (void)y;
    new_state[0] = weft_neg(g, state[0]);
    return WEFT_OK;
}

/* Values of the shapes that the calls above need. */
struct fed {
    weft_val x, w, point, wide, qkv, s, m, m3, m1, row4, row3, one, v, ids;
};

static struct fed feed_all(weft_graph *g)
{
    static const struct {
        size_t at;
        const char *name;
        int rank;
        int64_t dim[5];
    } all[] = {
        {offsetof(struct fed, x), "x", 4, {2, 4, 4, 4}},
        {offsetof(struct fed, w), "w", 4, {2, 2, 4, 4}},
        {offsetof(struct fed, point), "point", 4, {1, 1, 16, 2}},
        {offsetof(struct fed, wide), "wide", 3, {2, 4, 32}},
        {offsetof(struct fed, qkv), "qkv", 5, {2, 4, 3, 2, 4}},
        {offsetof(struct fed, s), "s", 3, {2, 4, 4}},
        {offsetof(struct fed, m), "m", 2, {4, 4}},
        {offsetof(struct fed, m3), "m3", 2, {4, 3}},
        {offsetof(struct fed, m1), "m1", 2, {4, 1}},
        {offsetof(struct fed, row4), "row4", 2, {1, 4}},
        {offsetof(struct fed, row3), "row3", 2, {1, 3}},
        {offsetof(struct fed, one), "one", 2, {1, 1}},
        {offsetof(struct fed, v), "v", 1, {4}},
    };
    struct fed f = {.ids = weft_placeholder(g, "ids", WEFT_I32, 1, (int64_t[]){4})};

    for (int i = 0; i < COUNT(all); i++)
        *(weft_val *)((char *)&f + all[i].at) =
            weft_placeholder(g, all[i].name, WEFT_F32, all[i].rank, all[i].dim);
    ok(weft_graph_status(g));
    return f;
}

#define GRAPH_CALL(name, type, ...)               \
    static weft_status call_##name(const void *p) \
    {                                             \
        weft_graph *g = NULL;                     \
        struct fed f;                             \
        weft_status st;                           \
        ok(weft_graph_new(ctx, &g));              \
        f = feed_all(g);                          \
        (void)f, (void)(__VA_ARGS__);             \
        st = weft_graph_status(g);                \
        weft_graph_free(g);                       \
        return st;                                \
    }

GRAPH_CALLS(GRAPH_CALL)

/* ---- contexts and functions ------------------------------------------------------------------ */

static weft_status call_ctx(const void *p)
{
    weft_ctx *other = NULL;
    weft_status st = weft_ctx_new(p, &other);

    weft_ctx_free(other);
    return st;
}

/* The function y = exp x over a scalar. */
struct function {
    weft_graph *g;
    weft_fn *fn;
    weft_val x, y;
    weft_tensor feed;
};

static void function_open(struct function *f, weft_status *st)
{
    static float one = 1;

    *f = (struct function){.feed = weft_view(WEFT_F32, &one, 0, NULL)};
    ok(weft_graph_new(ctx, &f->g));
    f->x = weft_placeholder(f->g, "x", WEFT_F32, 0, NULL);
    f->y = weft_exp(f->g, f->x);
    *st = weft_fn_new(
        f->g,
        WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &f->x, .n_fetches = 1, .fetches = &f->y),
        &f->fn);
}

static void function_close(struct function *f)
{
    weft_fn_free(f->fn);
    weft_graph_free(f->g);
}

static weft_status open_nothing(weft_ctx *c, void *arg, void **self, int *replicas, int *local,
                                int *first)
{
    (void)c;
    *self = arg;
    *replicas = *local = 1;
    *first = 0;
    return WEFT_OK;
}

static weft_status compute_nothing(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    (void)self;
    (void)w;
    (void)t;
    (void)first;
    (void)n;
    return WEFT_OK;
}

static weft_status apply_nothing(void *self, weft_work *w, int64_t t)
{
    return compute_nothing(self, w, t, 0, 0);
}

static const weft_strategy strategy_proto = {
    .name = "nothing", .open = open_nothing, .compute = compute_nothing, .apply = apply_nothing};

static weft_status call_strategy(const void *p)
{
    weft_dist *d = NULL;
    weft_status st = weft_dist_open_with(ctx, p, NULL, &d);

    weft_dist_free(d);
    return st;
}

/* Values have the same ids in every graph that is built like this. */
static const weft_val fn_feed[] = {{1}}, fn_fetch[] = {{2}};
static const weft_fn_opts fn_proto = {
    .n_feeds = 1, .feeds = fn_feed, .n_fetches = 1, .fetches = fn_fetch};

static weft_status call_fn(const void *p)
{
    struct function f;
    weft_fn *other = NULL;
    weft_status st;

    function_open(&f, &st);
    ok(st);
    assert_int_equal(f.x.id, fn_feed[0].id);
    assert_int_equal(f.y.id, fn_fetch[0].id);
    st = weft_fn_new(f.g, p, &other);
    weft_fn_free(other);
    function_close(&f);
    return st;
}

static weft_status call_explain(const void *p)
{
    struct function f;
    char *text = NULL;
    weft_status st;

    function_open(&f, &st);
    ok(st);
    st = weft_fn_explain(f.fn, &f.feed, p, &text);
    weft_text_free(ctx, text);
    function_close(&f);
    return st;
}

static weft_status call_grad_check(const void *p)
{
    struct function f;
    weft_val v, loss;
    weft_status st;

    function_open(&f, &st);
    ok(st);
    v = weft_variable(f.g, "v", 0, NULL, NULL);
    loss = weft_mul(f.g, v, f.y);
    st = weft_grad_check(f.g, loss, 1, &f.x, &f.feed, 0, NULL, p, NULL);
    function_close(&f);
    return st;
}

static weft_status op_infer(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    out[0] = in[0];
    return WEFT_OK;
}

static const weft_user_op op_proto = {
    .name = "opts.same", .n_in = 1, .n_out = 1, .infer = op_infer, .run = op_infer};

static weft_status call_user_op(const void *p)
{
    weft_ctx *other = NULL;
    weft_status st;

    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &other));
    st = weft_op_register(other, p);
    weft_ctx_free(other);
    return st;
}

/* ---- data ------------------------------------------------------------------------------------ */

static weft_status put_row(void *arg, int64_t k, weft_sample *s)
{
    (void)arg;
    *(float *)s->col[0].data = (float)k;
    *(int32_t *)s->col[1].data = (int32_t)(k % 3);
    memset(s->col[2].data, (int)k, 48);
    return WEFT_OK;
}

static weft_ds rows_of(weft_data *d)
{
    static const weft_column col[] = {
        {.name = "v", .dtype = WEFT_F32},
        {.name = "id", .dtype = WEFT_I32},
        {.name = "image", .dtype = WEFT_U8, .rank = 3, .dim = {4, 4, 3}},
    };

    return weft_ds_get(d, 3, col, 8, put_row, NULL);
}

static const weft_column one_column = {.name = "v", .dtype = WEFT_F32};
static weft_status same_row(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    memcpy(out->col[0].data, in->col[0].data, sizeof(float));
    return WEFT_OK;
}

static weft_status inner_rows(void *arg, const weft_sample *element, weft_data *d, weft_ds *out)
{
    (void)arg, (void)element;
    *out = weft_ds_select(d, rows_of(d), "v");
    return WEFT_OK;
}

#define DATA_CALLS(X)                                                                     \
    X(where, weft_where_opts, weft_ds_where(d, s, "v", p))                                \
    X(batch, weft_batch_opts, weft_ds_batch(d, s, 2, p))                                  \
    X(shuffle_all, weft_shuffle_opts, weft_ds_shuffle_all(d, s, p))                       \
    X(shuffle, weft_shuffle_opts, weft_ds_shuffle(d, s, 4, p))                            \
    X(padded_batch, weft_padded_batch_opts, weft_ds_padded_batch(d, s, 2, p))             \
    X(bucket, weft_padded_batch_opts,                                                     \
      weft_ds_bucket_by_length(d, s, "id", 1, &(int64_t){1}, (int64_t[]){2, 2}, p))       \
    X(window, weft_window_opts, weft_ds_window(d, s, 2, p))                               \
    X(interleave, weft_interleave_opts,                                                   \
      weft_ds_interleave(d, s, 1, &one_column, inner_rows, NULL, p))                      \
    X(sample_from, weft_sample_from_opts, weft_ds_sample_from(d, 1, &s, NULL, p))         \
    X(sample, weft_sample_opts, weft_ds_sample(d, s, 4, p))                               \
    X(map, weft_map_opts, weft_ds_map(d, s, 1, &one_column, same_row, NULL, p))           \
    X(cache, weft_cache_opts, weft_ds_cache(d, s, p))                                     \
    X(snapshot, weft_snapshot_opts, weft_ds_snapshot(d, s, in_dir("snapshot"), p))        \
    X(ds_one_hot, weft_ds_one_hot_opts, weft_ds_one_hot(d, s, "id", 3, p))                \
    X(decode_image, weft_image_opts,                                                      \
      weft_ds_decode_image(d, weft_ds_lines(d, in_dir("rows.csv"), NULL), "line", p))     \
    X(image_folder, weft_image_opts, weft_ds_image_folder(d, in_dir("nowhere"), p))       \
    X(image_resize, weft_image_resize_opts, weft_ds_image_resize(d, s, "image", 2, 2, p)) \
    X(random_crop, weft_random_crop_opts,                                                 \
      weft_ds_image_random_resized_crop(d, s, "image", 2, 2, p))                          \
    X(random_colour, weft_jitter_opts, weft_ds_image_random_colour(d, s, "image", p))     \
    X(open, weft_open_opts, weft_ds_open(d, in_dir("rows.csv"), p))                       \
    X(csv, weft_csv_opts, weft_ds_csv(d, in_dir("rows.csv"), p))                          \
    X(criteo, weft_criteo_opts, weft_ds_criteo(d, in_dir("nothing.txt"), p))              \
    X(libsvm, weft_libsvm_opts, weft_ds_libsvm(d, in_dir("rows.csv"), p))                 \
    X(lines, weft_lines_opts, weft_ds_lines(d, in_dir("rows.csv"), p))                    \
    X(fixed, weft_fixed_opts, weft_ds_fixed(d, in_dir("rows.csv"), 4, p))                 \
    X(tfrecord, weft_tfrecord_opts, weft_ds_tfrecord(d, in_dir("rows.csv"), p))           \
    X(sqlite, weft_sql_opts, weft_ds_sqlite(d, in_dir("nothing.db"), "select 1", p))      \
    X(example, weft_example_opts,                                                         \
      weft_ds_example(d, weft_ds_lines(d, in_dir("rows.csv"), NULL), 1,                   \
                      &(weft_example_feature){.name = "v", .dtype = WEFT_F32}, p))        \
    X(stage, weft_stage_opts, weft_ds_stage(d, s, "batch", "size=2", p))

#define DATA_CALL(name, type, ...)                  \
    static weft_status call_##name(const void *p)   \
    {                                               \
        weft_data *d = NULL;                        \
        weft_status st;                             \
        ok(weft_data_new(ctx, &d));                 \
        weft_ds s = rows_of(d), made = __VA_ARGS__; \
        (void)s, (void)made;                        \
        st = weft_data_status(d);                   \
        weft_data_free(d);                          \
        return st;                                  \
    }

DATA_CALLS(DATA_CALL)

static const double three = 3;
static const weft_where_opts where_proto = {.n_values = 1, .values = &three};
static const weft_dealer_opts dealer_proto = {.batch = 4};

static weft_status call_iter(const void *p)
{
    weft_data *d = NULL;
    weft_iter *it = NULL;
    weft_status st;

    ok(weft_data_new(ctx, &d));
    st = weft_iter_new(d, rows_of(d), p, &it);
    weft_iter_free(it);
    weft_data_free(d);
    return st;
}

static weft_status call_dealer(const void *p)
{
    weft_data *d = NULL;
    weft_dealer *dealer = NULL;
    weft_status st;

    ok(weft_data_new(ctx, &d));
    st = weft_dealer_new(d, weft_ds_select(d, rows_of(d), "v"), p, &dealer);
    weft_dealer_free(dealer);
    weft_data_free(d);
    return st;
}

static const weft_ps_costs costs_proto = {.servers = 1, .workers = 2, .bytes = 1 << 20};

static weft_status call_costs(const void *p)
{
    weft_ps_prediction out = {.size = sizeof out};

    return weft_ps_predict(ctx, p, &out);
}

static weft_status call_net_bench(const void *p)
{
    return weft_net_bench(ctx, p); /* refused: nothing says how to start the other process */
}

static weft_status call_job_open(const void *p)
{
    static const char text[] = "data: {train: {path: nothing.csv, label: y}}\n"
                               "model: [Dense: {units: 1}]\ntrain: {loss: mse}\n";
    weft_job *job = NULL;
    weft_job_run *run = NULL;
    weft_status st = weft_job_parse(ctx, "job.yaml", text, sizeof text - 1, 0, NULL, &job);

    if (!st)
        st = weft_job_open_with(job, ctx, p, &run);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

static weft_status call_ps(const void *p)
{
    weft_dist *d = NULL;
    weft_status st = weft_dist_open_ps(ctx, p, &d);

    weft_dist_free(d);
    return st;
}

static bool take_nobody(void *arg, const char *role, char task[WEFT_TASK_NAME], const char **told)
{
    (void)arg;
    (void)role;
    (void)task;
    *told = "nobody";
    return false;
}

static const weft_door_opts door_proto = {
    .address = "tls:127.0.0.1:0", .seconds = 60, .take = take_nobody};

static weft_status call_door(const void *p)
{
    weft_authority *a = NULL;
    weft_door *d = NULL;
    weft_status st;

    ok(weft_authority_new(ctx, 1, &a));
    st = weft_door_open(ctx, a, p, NULL, 0, &d);
    weft_door_close(d);
    weft_authority_free(a);
    return st;
}

/* Nobody is there. */
static const weft_ctl_opts ctl_proto = {.chiefs = "uds:/nowhere/chief"};

static weft_status call_ctl(const void *p)
{
    char *answer = NULL;
    weft_status st = weft_ctl(ctx, p, "status", &answer);

    weft_text_free(ctx, answer);
    return st;
}

static const weft_cluster_opts cluster_proto = {.tasks = "chief=a:1;ps=b:1;worker=2"};

static weft_status call_cluster(const void *p)
{
    weft_cluster *c = NULL;
    weft_status st = weft_cluster_find(ctx, p, &c);

    weft_cluster_free(c);
    return st;
}

static weft_status call_holdout(const void *p)
{
    weft_data *d = NULL;
    weft_ds rest, held;
    weft_status st;

    ok(weft_data_new(ctx, &d));
    st = weft_ds_holdout(d, rows_of(d), 0.5, p, &rest, &held);
    weft_data_free(d);
    return st;
}

static weft_status call_split(const void *p)
{
    weft_share plan[2];

    return weft_split_plan(8, 2, p, plan);
}

static weft_status call_stats(const void *p)
{
    weft_data *d = NULL;
    weft_stats *stats = NULL;
    weft_status st;

    ok(weft_data_new(ctx, &d));
    st = weft_ds_stats(d, rows_of(d), p, &stats);
    weft_stats_free(stats);
    weft_data_free(d);
    return st;
}

static weft_status call_vocab(const void *p)
{
    weft_data *d = NULL;
    weft_vocab *v = NULL;
    weft_status st;

    ok(weft_data_new(ctx, &d));
    st = weft_vocab_count(d, rows_of(d), "id", p, &v);
    weft_data_free(d);
    weft_vocab_free(v);
    return st;
}

static weft_status call_lookup(const void *p)
{
    weft_data *d = NULL;
    weft_vocab *v = NULL;
    weft_status st;

    ok(weft_data_new(ctx, &d));
    ok(weft_vocab_count(d, rows_of(d), "id", NULL, &v));
    weft_ds_lookup(d, rows_of(d), "id", v, p);
    st = weft_data_status(d);
    weft_data_free(d);
    weft_vocab_free(v);
    return st;
}

static weft_status call_image_decode(const void *p)
{
    weft_tensor out;
    weft_status st = weft_image_decode(ctx, "no image", 8, p, &out);

    assert_int_not_equal(st, WEFT_OK);
    return st;
}

/* The crop of an image that is decoded. */
static weft_status call_decode_crop(const void *p)
{
    weft_tensor out;

    return weft_image_decode(
        ctx, "no image", 8,
        WEFT_OPTS(weft_image_opts, .height = 2, .width = 2, .crop = WEFT_CROP_RANDOM, .random = p),
        &out);
}

static weft_status call_record_writer(const void *p)
{
    weft_record_writer *w = NULL;
    weft_status st = weft_record_writer_new(ctx, in_dir("written.tfrecord"), p, &w);

    weft_record_writer_close(w);
    return st;
}

static weft_status call_csv_writer(const void *p)
{
    weft_csv_writer *w = NULL;
    weft_status st = weft_csv_writer_new(ctx, in_dir("written.csv"), 1, &one_column, p, &w);

    weft_csv_writer_free(w);
    return st;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static weft_status call_writer(const void *p)
{
    weft_ckpt_writer *w = NULL;
    weft_status st = weft_ckpt_writer_new(ctx, in_dir("ckpt"), p, &w);

    weft_ckpt_writer_close(w);
    return st;
}

static weft_status call_save(const void *p)
{
    weft_ckpt_writer *w = NULL;
    weft_status st, closed;

    ok(weft_ckpt_writer_new(ctx, in_dir("ckpt"), WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 1),
                            &w));
    st = weft_ckpt_save(w, p);
    closed = weft_ckpt_writer_close(w);
    return st ? st : closed;
}

static weft_status call_retain(const void *p)
{
    weft_ckpt_entry e = {.step = 1};
    bool keep;

    return weft_ckpt_retain(p, 1, &e, &keep);
}

static weft_status call_prune(const void *p)
{
    return weft_ckpt_prune(ctx, in_dir("ckpt"), p, NULL);
}

static const weft_ckpt_part part_proto = {.writer = "a"};

static weft_status call_part(const void *p)
{
    weft_ckpt_build *b = NULL;
    char *text = NULL;
    weft_status st;

    ok(weft_ckpt_begin(ctx, in_dir("build"), 7, &b));
    st = weft_ckpt_part_write(ctx, in_dir("build"), weft_ckpt_build_name(b), p, &text);
    weft_text_free(ctx, text);
    weft_ckpt_build_free(b);
    return st;
}

static weft_status call_commit(const void *p)
{
    weft_ckpt_build *b = NULL;
    weft_status st;

    ok(weft_ckpt_begin(ctx, in_dir("build"), 0, &b));
    st = weft_ckpt_commit(b, 0, NULL, p);
    weft_ckpt_build_free(b);
    return st;
}

/* ---- models ---------------------------------------------------------------------------------- */

static weft_model *model_of(void)
{
    weft_model *m = NULL;

    ok(weft_model_new(ctx, NULL, &m));
    weft_input(m, "v", WEFT_F32, 1, (int64_t[]){1});
    weft_model_add(m, "Dense", "units=1");
    ok(weft_model_status(m));
    return m;
}

static weft_status call_model(const void *p)
{
    weft_model *m = NULL;
    weft_status st = weft_model_new(ctx, p, &m);

    weft_model_free(m);
    return st;
}

static weft_status call_cut(const void *p)
{
    weft_model *m = model_of(), *part = NULL;
    weft_status st = weft_model_cut(m, p, &part);

    weft_model_free(part);
    weft_model_free(m);
    return st;
}

static const void *weight_opts; /* for the layer below */

static weft_status build_weight(weft_layer_call *c)
{
    weft_val w = weft_lc_weight(c, "w", 1, (int64_t[]){1}, weight_opts);

    weft_lc_out(c, 0, weft_mul(weft_lc_graph(c), weft_lc_in(c, 0), w));
    return WEFT_OK;
}

static const weft_layer_kind layer_proto = {
    .name = "Opts", .n_in_min = 1, .n_in_max = 1, .build = build_weight};

static weft_status call_layer(const void *p)
{
    weft_model *m = model_of();
    weft_status st = weft_layer_register(m, p);

    weft_model_free(m);
    return st;
}

static weft_status call_weight(const void *p)
{
    weft_layer_kind kind = layer_proto;
    weft_model *m = model_of();
    weft_status st;

    kind.size = sizeof kind;
    weight_opts = p;
    ok(weft_layer_register(m, &kind));
    weft_model_add(m, "Opts", NULL);
    st = weft_model_status(m);
    weft_model_free(m);
    return st;
}

static weft_val build_loss(weft_loss_call *c)
{
    (void)c;
    return WEFT_NIL;
}

static const weft_loss_kind loss_proto = {.name = "OptsLoss", .build = build_loss};
static const weft_metric_kind metric_proto = {.name = "OptsMetric", .build = build_loss};

static weft_status call_loss(const void *p)
{
    weft_model *m = model_of();
    weft_status st = weft_loss_register(m, p);

    weft_model_free(m);
    return st;
}

static weft_status call_metric(const void *p)
{
    weft_model *m = model_of();
    weft_status st = weft_metric_register(m, p);

    weft_model_free(m);
    return st;
}

/* ---- training -------------------------------------------------------------------------------- */

struct training {
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;
};

static void training_open(struct training *w)
{
    *w = (struct training){.m = model_of()};
    ok(weft_compile(w->m, WEFT_OPTS(weft_compile_opts, .optimizer = "sgd", .loss = "mse"), &w->t));
    ok(weft_data_new(ctx, &w->d));
    w->s = weft_ds_select(w->d, rows_of(w->d), "v");
    w->s = weft_ds_role(w->d, weft_ds_copy(w->d, w->s, "v", "y"), "y", WEFT_LABEL);
}

static void training_close(struct training *w)
{
    weft_data_free(w->d);
    weft_trainer_free(w->t);
    weft_model_free(w->m);
}

static weft_status call_compile(const void *p)
{
    weft_model *m = model_of();
    weft_trainer *t = NULL;
    weft_status st = weft_compile(m, p, &t);

    weft_trainer_free(t);
    weft_model_free(m);
    return st;
}

static weft_status call_fit(const void *p)
{
    struct training w;
    weft_status st;

    training_open(&w);
    st = weft_fit(w.t, w.d, w.s, p, NULL);
    training_close(&w);
    return st;
}

static weft_status call_callback(const void *p)
{
    union {
        const void *const_p;
        weft_callback *p;
    } list = {p};

    return call_fit(WEFT_OPTS(weft_fit_opts, .n_callbacks = p != NULL, .callbacks = list.p));
}

static weft_status call_session(const void *p)
{
    struct training w;
    weft_session *session = NULL;
    weft_status st, closed;

    training_open(&w);
    st = weft_session_open(w.t, w.d, w.s, p, &session);
    closed = weft_session_close(session);
    training_close(&w);
    return st ? st : closed;
}

static weft_status call_hook(const void *p)
{
    return call_session(WEFT_OPTS(weft_session_opts, .n_hooks = p != NULL, .hooks = p));
}

static const int64_t param_dim[] = {3};
static const weft_param param_proto = {
    .size = sizeof param_proto, .name = "v", .rank = 1, .dim = param_dim};
static const weft_params_opts params_proto = {.n_vars = 1, .vars = &param_proto};

static weft_status call_params(const void *p)
{
    weft_params *x = NULL;
    weft_status st = weft_params_open(ctx, NULL, p, &x);

    weft_params_free(x);
    return st;
}

static weft_status call_param(const void *p)
{
    return call_params(WEFT_OPTS(weft_params_opts, .n_vars = p != NULL, .vars = p));
}

static weft_status do_nothing(void *arg, weft_worker *w)
{
    (void)arg, (void)w;
    return WEFT_OK;
}

static const weft_program_opts program_proto = {.workers = 1, .ps = 1, .work = do_nothing};

static weft_status call_program(const void *p)
{
    weft_program *x = NULL;
    weft_status st = weft_program_open(ctx, p, &x);

    weft_program_free(x);
    return st;
}

static weft_status call_evaluate(const void *p)
{
    struct training w;
    weft_status st;

    training_open(&w);
    st = weft_evaluate(w.t, w.d, w.s, p, NULL);
    training_close(&w);
    return st;
}

static weft_status take_batch(void *arg, const weft_batch *batch, int n, const weft_tensor *out)
{
    (void)arg, (void)batch, (void)n, (void)out;
    return WEFT_OK;
}

static weft_status call_predict(const void *p)
{
    struct training w;
    weft_status st;

    training_open(&w);
    st = weft_predict(w.t, w.d, w.s, p, take_batch, NULL);
    training_close(&w);
    return st;
}

static weft_status call_apply(const void *p)
{
    float one = 1;
    weft_tensor batch = weft_view(WEFT_F32, &one, 2, (int64_t[]){1, 1});
    struct training w;
    weft_grads *g = NULL;
    weft_status st;

    training_open(&w);
    ok(weft_trainer_gradients(w.t, &batch, &batch, NULL, &g, NULL));
    st = weft_trainer_apply(w.t, g, p);
    weft_grads_free(g);
    training_close(&w);
    return st;
}

static weft_status call_copy_weights(const void *p)
{
    struct training w;
    weft_status st;

    training_open(&w);
    st = weft_trainer_copy_weights(w.t, w.t, p, NULL);
    training_close(&w);
    return st;
}

static weft_status call_load_weights(const void *p)
{
    struct training w;
    weft_status st;

    training_open(&w);
    ok(weft_trainer_save(w.t, in_dir("model.safetensors")));
    st = weft_trainer_load_weights(w.t, in_dir("model.safetensors"), p, NULL);
    training_close(&w);
    return st;
}

static weft_status call_map_model(const void *p)
{
    struct training w;
    weft_status st;

    training_open(&w);
    weft_ds_map_model(w.d, w.s, w.t, p);
    st = weft_data_status(w.d);
    training_close(&w);
    return st;
}

static weft_status call_map_graph(const void *p)
{
    struct training w;
    weft_graph *g = NULL;
    weft_fn *fn = NULL;
    weft_val x, y;
    weft_status st;

    training_open(&w);
    ok(weft_graph_new(ctx, &g));
    x = weft_placeholder(g, "v", WEFT_F32, 0, NULL);
    y = weft_exp(g, x);
    ok(weft_fn_new(
        g, WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &x, .n_fetches = 1, .fetches = &y), &fn));
    weft_ds_map_graph(w.d, w.s, fn, p);
    st = weft_data_status(w.d);
    weft_data_free(w.d);
    w.d = NULL;
    weft_fn_free(fn);
    weft_graph_free(g);
    training_close(&w);
    return st;
}

static void job_open(weft_job **job, weft_job_run **run)
{
    static const char text[] = "data:\n  train: {path: rows.csv, label: y}\n"
                               "model:\n  - Input: {name: v, shape: [1]}\n  - Dense: {units: 1}\n"
                               "train: {loss: mean_squared_error}\n";

    *job = NULL;
    *run = NULL;
    ok(weft_job_parse(ctx, in_dir("job.yaml"), text, sizeof text - 1, 0, NULL, job));
    ok(weft_job_open(*job, ctx, run));
}

static weft_status call_job_fit(const void *p)
{
    weft_job *job;
    weft_job_run *run;
    weft_status st;

    job_open(&job, &run);
    st = weft_job_fit(run, p, NULL);
    weft_job_close(run);
    weft_job_free(job);
    return st;
}

static const weft_lend_opts lend_proto = {.address = "inproc:lender", .task = "worker/0"};

static weft_status call_lend(const void *p)
{
    static const char text[] = "data:\n  train: {path: rows.csv, label: y}\n"
                               "model:\n  - Dense: {units: 1}\n"
                               "train: {loss: mean_squared_error}\n";
    weft_job *job = NULL;
    weft_borrower *b = NULL;
    weft_status st;

    ok(weft_job_parse(ctx, in_dir("job.yaml"), text, sizeof text - 1, 0, NULL, &job));
    st = weft_borrow_open(ctx, job, p, &b);
    weft_borrow_close(b);
    weft_job_free(job);
    return st;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct call {
    const char *name, *type;
    size_t today;
    weft_status (*call)(const void *p);
    const void *proto; /* what must be given, its size left 0; NULL: nothing */
    size_t least;      /* its bytes up to there */
    bool required;     /* NULL is refused */
};

#define ROW(name, type)                                                      \
    {                                                                        \
#name, #type, sizeof(type), call_##name, NULL, sizeof(size_t), false \
    }
#define LIST(name, type, ...) ROW(name, type),
/* What must be given is before the field `next`. */
#define NEEDS(name, type, proto, next)                                              \
    {                                                                               \
#name, #type, sizeof(type), call_##name, &proto, offsetof(type, next), true \
    }

static const weft_resize_opts resize_proto = {.to = {8, 8}};

static const struct call calls[] = {
    /* resize and where are there again, with what they need */
    GRAPH_CALLS(LIST) DATA_CALLS(LIST) NEEDS(resize, weft_resize_opts, resize_proto, scale),
    NEEDS(where, weft_where_opts, where_proto, min),
    ROW(ctx, weft_ctx_opts),
    NEEDS(strategy, weft_strategy, strategy_proto, commit),
    ROW(explain, weft_explain_opts),
    ROW(net_bench, weft_net_bench_opts),
    ROW(ps, weft_ps_opts),
    NEEDS(costs, weft_ps_costs, costs_proto, piece_bytes),
    ROW(job_open, weft_job_open_opts),
    NEEDS(cluster, weft_cluster_opts, cluster_proto, file),
    NEEDS(door, weft_door_opts, door_proto, said),
    NEEDS(lend, weft_lend_opts, lend_proto, authority),
    NEEDS(ctl, weft_ctl_opts, ctl_proto, authority),
    ROW(grad_check, weft_grad_check_opts),
    NEEDS(fn, weft_fn_opts, fn_proto, n_updates),
    NEEDS(user_op, weft_user_op, op_proto, grad),
    ROW(iter, weft_iter_opts),
    NEEDS(dealer, weft_dealer_opts, dealer_proto, shards),
    ROW(holdout, weft_holdout_opts),
    ROW(split, weft_split_opts),
    ROW(stats, weft_stats_opts),
    ROW(vocab, weft_vocab_opts),
    ROW(lookup, weft_lookup_opts),
    ROW(image_decode, weft_image_opts),
    ROW(decode_crop, weft_random_crop_opts),
    ROW(record_writer, weft_record_writer_opts),
    ROW(csv_writer, weft_csv_writer_opts),
    ROW(writer, weft_ckpt_writer_opts),
    ROW(save, weft_ckpt_data),
    ROW(retain, weft_ckpt_policy),
    ROW(prune, weft_ckpt_prune_opts),
    NEEDS(part, weft_ckpt_part, part_proto, n_pieces),
    ROW(commit, weft_ckpt_data),
    ROW(model, weft_model_opts),
    ROW(cut, weft_cut_opts),
    NEEDS(layer, weft_layer_kind, layer_proto, doc),
    ROW(weight, weft_weight_opts),
    NEEDS(loss, weft_loss_kind, loss_proto, doc),
    NEEDS(metric, weft_metric_kind, metric_proto, result),
    ROW(compile, weft_compile_opts),
    ROW(fit, weft_fit_opts),
    ROW(callback, weft_callback),
    ROW(session, weft_session_opts),
    ROW(hook, weft_hook),
    NEEDS(params, weft_params_opts, params_proto, optimizer),
    NEEDS(param, weft_param, param_proto, table),
    NEEDS(program, weft_program_opts, program_proto, work_arg),
    ROW(evaluate, weft_eval_opts),
    ROW(predict, weft_eval_opts),
    ROW(apply, weft_apply_opts),
    ROW(copy_weights, weft_load_opts),
    ROW(load_weights, weft_load_opts),
    ROW(map_model, weft_map_graph_opts),
    ROW(map_graph, weft_map_graph_opts),
    ROW(job_fit, weft_job_fit_opts),
};

#endif
