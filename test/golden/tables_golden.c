/* tables_golden.c - twenty steps of a model with an embedding by every optimizer, all rows updated
 * (sparse: false), beside Keras.
 *
 * test/golden/train_table.json, written by tools/golden_tables.py, which describes the format. By
 * steps of the trainer, in parts, and by a custom loop; the switch is the trainer's or the
 * layer's. */
#include "golden.h"
#include "weft/loop.h"

enum { MAX = 64 };

struct net {
    json_t *file;
    int64_t batch, n, length;
    int32_t id[MAX][8], label[MAX];
};

static void read_data(struct net *n)
{
    const json_t *ids = json_object_get(n->file, "ids"),
                 *labels = json_object_get(n->file, "labels");

    n->batch = json_integer_value(json_object_get(n->file, "batch"));
    n->n = (int64_t)json_array_size(labels);
    n->length = (int64_t)json_array_size(json_array_get(ids, 0));
    assert_true(n->n <= MAX && n->length <= 8 && n->n % n->batch == 0);
    for (int64_t i = 0; i < n->n; i++) {
        n->label[i] = (int32_t)json_integer_value(json_array_get(labels, (size_t)i));
        for (int64_t k = 0; k < n->length; k++)
            (&n->id[0][0])[i * n->length + k] = (int32_t)json_integer_value(
                json_array_get(json_array_get(ids, (size_t)i), (size_t)k));
    }
}

static weft_model *make_model(weft_ctx *ctx, const struct net *n, bool by_layer)
{
    const char *sparse = by_layer ? "sparse=false" : "";
    char attrs[96];
    weft_model *m;
    weft_sym s;

    snprintf(attrs, sizeof attrs, "name=table input_dim=%d output_dim=%d %s",
             (int)json_integer_value(json_object_get(n->file, "rows")),
             (int)json_integer_value(json_object_get(n->file, "width")), sparse);
    OK(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_I32, 1, &n->length);
    s = weft_apply(m, "Flatten", "", weft_apply(m, "Embedding", attrs, s));
    weft_model_output(m, weft_apply(m, "Dense", "name=dense units=3", s));
    return m;
}

static const char *const weight_name[] = {"table/embeddings", "dense/kernel", "dense/bias"};

static void set_weights(const struct net *n, weft_trainer *t)
{
    const json_t *list = json_object_get(n->file, "weights");

    for (size_t i = 0; i < 3; i++) {
        const json_t *data = json_object_get(json_array_get(list, i), "data");
        weft_tensor v;

        OK(weft_trainer_weight(t, weight_name[i], &v));
        assert_int_equal(weft_tensor_count(&v), json_array_size(data));
        for (size_t k = 0; k < json_array_size(data); k++)
            ((float *)v.data)[k] = (float)json_number_value(json_array_get(data, k));
    }
}

/* how: 0 the trainer's switch, 1 the layer's, 2 in two parts, 3 a custom loop. */
static void check_run(weft_ctx *ctx, const struct net *n, const json_t *run, int how)
{
    const json_t *losses = json_object_get(run, "losses"), *final = json_object_get(run, "final");
    weft_model *m = make_model(ctx, n, how == 1);
    weft_grads *g = NULL;
    weft_trainer *t;
    char what[160];

    OK(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = string_of(run, "optimizer"),
                              .loss = "SparseCategoricalCrossentropy from_logits=true",
                              .no_sparse = how != 1, .shards = how == 2 ? 2 : 1),
                    &t));
    for (size_t i = 0; i < json_array_size(losses); i++) {
        int64_t at = (int64_t)i * n->batch % n->n;
        weft_tensor x = weft_view(WEFT_I32, (void *)(&n->id[0][0] + at * n->length), 2,
                                  (int64_t[]){n->batch, n->length}),
                    y = weft_view(WEFT_I32, (void *)(n->label + at), 1, &n->batch);
        weft_logs logs;
        double want = json_number_value(json_array_get(losses, i)), loss;

        if (i == 0) { /* the weights stay when the trainer has seen a batch */
            OK(weft_test_on_batch(t, &x, &y, NULL, NULL));
            set_weights(n, t);
        }
        if (how == 3) {
            OK(weft_trainer_gradients(t, &x, &y, NULL, &g, &logs));
            assert_false(weft_grads_sparse(g, "table/embeddings"));
            loss = weft_logs_get(&logs, "loss");
            OK(weft_trainer_apply(t, g, NULL));
        } else {
            OK(weft_train_on_batch(t, &x, &y, NULL, &logs));
            loss = weft_logs_get(&logs, "loss");
        }
        if (fabs(loss - want) > 2e-5)
            fail_msg("%s, way %d: the loss of step %zu is %.9g, expected %.9g",
                     string_of(run, "optimizer"), how, i, loss, want);
    }
    for (size_t i = 0; i < 3; i++) {
        weft_tensor v;

        OK(weft_trainer_weight(t, weight_name[i], &v));
        snprintf(what, sizeof what, "%s, way %d", string_of(run, "optimizer"), how);
        compare(what, weight_name[i], &v, json_array_get(final, i), 5e-5);
    }
    weft_grads_free(g);
    weft_trainer_free(t);
    weft_model_free(m);
}

static void tables_move_whole_as_in_keras(void **state)
{
    struct net n = {.file = read_golden("train_table")};
    const json_t *runs = json_object_get(n.file, "runs");
    weft_ctx *ctx;

    (void)state;
    read_data(&n);
    assert_int_equal(json_array_size(runs), 15);
    OK(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx));
    for (size_t i = 0; i < json_array_size(runs); i++)
        for (int how = 0; how < 4; how++)
            check_run(ctx, &n, json_array_get(runs, i), how);
    weft_ctx_free(ctx);
    json_decref(n.file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tables_move_whole_as_in_keras)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
