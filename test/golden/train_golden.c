/* train_golden.c - twenty training steps of a small CNN and a small LSTM from Keras' weights:
 * losses and final weights.
 *
 * test/golden/train_*.json, written by tools/golden_train.py, which describes the format. Here
 * model, loss and optimizer meet in one graph, without the trainer: what is off here is off below
 * it. */
#include "golden.h"
#include "model/model.h"

enum { MAX_UPDATES = 32, STEPS = 20 };

struct net {
    json_t *file;
    weft_model *m;
    weft_graph *g;
    weft_fn *fn;
    struct wf_arena arena;
    struct wf_built b;
    int64_t batch, n_samples, sample; /* elements of one sample */
    float *x;
    int32_t *y;
};

static void make_model(weft_ctx *ctx, struct net *n)
{
    const json_t *in = json_array_get(json_object_get(n->file, "inputs"), 0),
                 *shape = json_object_get(in, "shape"), *data = json_object_get(in, "data"),
                 *labels = json_object_get(n->file, "labels"),
                 *steps = json_object_get(n->file, "steps");
    int64_t dim[WEFT_MAX_RANK];
    int rank = (int)json_array_size(shape) - 1;
    weft_sym x;

    n->sample = 1;
    for (int i = 0; i < rank; i++) {
        dim[i] = json_integer_value(json_array_get(shape, (size_t)i + 1));
        n->sample *= dim[i];
    }
    n->n_samples = (int64_t)json_array_size(labels);
    n->batch = json_integer_value(json_object_get(n->file, "batch"));
    n->x = malloc((size_t)(n->n_samples * n->sample) * sizeof *n->x);
    n->y = malloc((size_t)n->n_samples * sizeof *n->y);
    for (int64_t i = 0; i < n->n_samples * n->sample; i++)
        n->x[i] = (float)json_number_value(json_array_get(data, (size_t)i));
    for (int64_t i = 0; i < n->n_samples; i++)
        n->y[i] = (int32_t)json_integer_value(json_array_get(labels, (size_t)i));
    OK(weft_model_new(ctx, NULL, &n->m));
    x = weft_input(n->m, "x", WEFT_F32, rank, dim);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *s = json_array_get(steps, i);

        x = weft_apply(n->m, string_of(s, "kind"), string_of(s, "attrs"), x);
    }
    weft_model_output(n->m, x);
}

/* The training function: feeds x and y, fetches the loss, updates the weights. */
static void make_fn(weft_ctx *ctx, struct net *n, const json_t *run)
{
    weft_val y, values, sum, count, loss, updates[MAX_UPDATES];
    weft_optim optim;
    int n_updates = 0;

    wf_arena_init(&n->arena, ctx);
    OK(weft_graph_new(ctx, &n->g));
    OK(wf_model_build(n->m, n->g, true, &n->arena, &n->b));
    y = weft_placeholder(n->g, "labels", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    OK(wf_loss_build(NULL, n->g, string_of(n->file, "loss"), y, n->b.out[0], &values));
    OK(wf_loss_reduce(n->g, values, WEFT_NIL, WEFT_NIL, &sum, &count));
    loss = weft_div(n->g, sum, count);
    OK(weft_optim_init(&optim, string_of(run, "optimizer"), string_of(run, "numbers")));
    OK(weft_minimize(n->g, loss, &optim, 0, NULL, MAX_UPDATES, updates, &n_updates));
    OK(weft_fn_new(n->g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 2, .feeds = (weft_val[]){n->b.in[0], y},
                             .n_fetches = 1, .fetches = &loss, .n_updates = n_updates,
                             .updates = updates),
                   &n->fn));
}

static void set_weights(struct net *n)
{
    const json_t *list = json_object_get(n->file, "weights");

    assert_int_equal(wf_model_n_weights(n->m), json_array_size(list));
    for (int i = 0; i < wf_model_n_weights(n->m); i++) {
        const struct wf_weight *w = wf_model_weight(n->m, i);
        const json_t *data = json_object_get(json_array_get(list, (size_t)i), "data");
        weft_tensor t = {.dtype = WEFT_F32, .rank = w->rank};

        memcpy(t.dim, w->dim, sizeof t.dim);
        assert_int_equal(weft_tensor_count(&t), json_array_size(data));
        t.data = malloc((size_t)weft_tensor_bytes(&t));
        for (int64_t k = 0; k < weft_tensor_count(&t); k++)
            ((float *)t.data)[k] = (float)json_number_value(json_array_get(data, (size_t)k));
        OK(weft_fn_set(n->fn, w->name, &t));
        free(t.data);
    }
}

static double one_step(struct net *n, int64_t t)
{
    int64_t first = t * n->batch % n->n_samples;
    weft_tensor feeds[2] = {{.dtype = WEFT_F32}, weft_view(WEFT_I32, n->y + first, 1, &n->batch)};
    weft_tensor loss = {.data = NULL};

    OK(weft_val_type(n->g, n->b.in[0], &feeds[0]));
    feeds[0].dim[0] = n->batch;
    feeds[0].data = n->x + first * n->sample;
    OK(weft_fn_run(n->fn, feeds, &loss));
    return (double)*(float *)loss.data;
}

static void check_run(weft_ctx *ctx, const char *name, size_t which)
{
    struct net n = {.file = read_golden(name)};
    const json_t *run = json_array_get(json_object_get(n.file, "runs"), which),
                 *losses = json_object_get(run, "losses"), *last = json_object_get(run, "final");
    char what[64];

    snprintf(what, sizeof what, "%s, %s", name, string_of(run, "optimizer"));
    make_model(ctx, &n);
    make_fn(ctx, &n, run);
    set_weights(&n);
    assert_int_equal(json_array_size(losses), STEPS);
    for (int t = 0; t < STEPS; t++) {
        double want = json_number_value(json_array_get(losses, (size_t)t)), got = one_step(&n, t);

        if (!(fabs(got - want) < 1e-4))
            fail_msg("%s: step %d: loss %.7g, Keras has %.7g", what, t, got, want);
    }
    for (int i = 0; i < wf_model_n_weights(n.m); i++) {
        const json_t *want = json_array_get(last, (size_t)i);
        weft_tensor t;

        OK(weft_fn_view(n.fn, wf_model_weight(n.m, i)->name, &t));
        for (int64_t k = 0; k < weft_tensor_count(&t); k++) {
            double w = json_number_value(json_array_get(want, (size_t)k)),
                   v = (double)((float *)t.data)[k];

            if (!(fabs(v - w) < 1e-4))
                fail_msg("%s: %s[%lld] is %.7g, Keras has %.7g", what,
                         wf_model_weight(n.m, i)->name, (long long)k, v, w);
        }
    }
    weft_fn_free(n.fn);
    weft_graph_free(n.g);
    weft_model_free(n.m);
    wf_arena_free(&n.arena);
    free(n.x);
    free(n.y);
    json_decref(n.file);
}

static void twenty_steps_follow_keras(void **state)
{
    static const char *const names[] = {"train_cnn", "train_lstm"};
    weft_ctx *ctx = NULL;

    (void)state;
    OK(weft_ctx_new(NULL, &ctx));
    for (int i = 0; i < 2; i++)
        for (size_t run = 0; run < 2; run++)
            check_run(ctx, names[i], run);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twenty_steps_follow_keras)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
