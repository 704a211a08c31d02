/* Graph functions and models as stages of pipelines: columns in and out, the same results for any
 * number of threads and from any position on, during a training step; what cannot be a pure stage
 * is refused. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

#define N 103
#define D 6
#define H 16

static weft_ctx *ctx;
static float x[N][D];
static int32_t y[N];
static weft_str words[N];
static char dir[64];

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    static char text[N][8];

    (void)state;
    srand(11);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < D; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX * 2 - 1;
        y[i] = x[i][0] > 0 ? x[i][1] > 0 : 2;
        words[i] = (weft_str){text[i], snprintf(text[i], sizeof text[i], "w%d", i)};
    }
    strcpy(dir, "/tmp/weft-map-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5), &ctx);
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static weft_ds rows(weft_data *d)
{
    weft_column col[3] = {{.name = "x"}, {.name = "y", .role = WEFT_LABEL}, {.name = "word"}};
    weft_tensor t[3] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, D}),
                        weft_view(WEFT_I32, y, 1, (int64_t[]){N}),
                        weft_view(WEFT_STR, words, 1, (int64_t[]){N})};

    return weft_ds_tensors(d, 3, col, t);
}

/* y = tanh(x w), sum over features */
struct fun {
    weft_graph *g;
    weft_fn *fn;
};

static struct fun open_fun(void)
{
    struct fun f;
    weft_val in, w, h, sum;

    ok(weft_graph_new(ctx, &f.g));
    in = weft_placeholder(f.g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, D});
    w = weft_variable(f.g, "w", 2, (int64_t[]){D, H}, NULL);
    h = weft_tanh(f.g, weft_matmul(f.g, in, w, NULL));
    sum = weft_sum(f.g, h, WEFT_OPTS(weft_reduce_opts, .n_axes = 1, .axes = {1}));
    ok(weft_graph_status(f.g));
    ok(weft_fn_new(f.g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &in, .n_fetches = 2,
                             .fetches = (weft_val[]){h, sum}),
                   &f.fn));
    return f;
}

static void close_fun(struct fun *f)
{
    weft_fn_free(f->fn);
    weft_graph_free(f->g);
}

/* A model that ends with the layer `base`; the trainer has no loss. */
struct net {
    weft_model *m;
    weft_trainer *t;
};

static struct net open_base(const char *before)
{
    struct net n;
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &n.m));
    s = weft_input(n.m, "x", WEFT_F32, 1, (int64_t[]){D});
    if (before)
        s = weft_apply(n.m, "Dense", before, s);
    weft_model_output(n.m, weft_apply(n.m, "Dense", "units=16 activation=tanh name=base", s));
    ok(weft_compile(n.m, NULL, &n.t));
    return n;
}

static void close_net(struct net *n)
{
    weft_trainer_free(n->t);
    weft_model_free(n->m);
}

/* ---- what comes out -------------------------------------------------------------------------- */

#define MAP WEFT_OPTS(weft_map_graph_opts, .outputs = "h, sum")

static void results_stand_in_place_of_what_was_fed(void **state)
{
    struct fun f = open_fun();
    weft_data *d;
    const weft_column *col;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;
    int n;

    (void)state;
    ok(weft_data_new(ctx, &d));
    s = weft_ds_map_graph(d, weft_ds_batch(d, rows(d), 10, NULL), f.fn, MAP);
    ok(weft_data_status(d));
    assert_true(weft_ds_addressable(d, s));
    assert_int_equal(weft_ds_count(d, s), 11);
    ok(weft_ds_columns(d, s, &n, &col));
    assert_int_equal(n, 4);
    assert_string_equal(col[0].name, "h");
    assert_string_equal(col[1].name, "sum");
    assert_string_equal(col[2].name, "y");
    assert_int_equal(col[2].role, WEFT_LABEL);
    ok(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), &it));
    for (int64_t at = 0;; at += b->n, weft_batch_free(b)) {
        weft_tensor in, out[2] = {{.data = NULL}, {.data = NULL}};

        ok(weft_iter_next(it, &b));
        if (!b) {
            assert_int_equal(at, N);
            break;
        }
        assert_int_equal(b->n, at < 100 ? 10 : 3);
        assert_int_equal(b->id[0], at);
        in = weft_view(WEFT_F32, x[at], 2, (int64_t[]){b->n, D});
        ok(weft_fn_run(f.fn, &in, out)); /* nothing is read ahead: nothing else runs it */
        assert_memory_equal(b->col[0].data, out[0].data, (size_t)weft_tensor_bytes(&out[0]));
        assert_memory_equal(b->col[1].data, out[1].data, (size_t)weft_tensor_bytes(&out[1]));
        assert_memory_equal(b->col[2].data, &y[at], (size_t)b->n * sizeof y[0]);
        assert_memory_equal(((const weft_str *)b->col[3].data)[1].data, words[at + 1].data, 2);
    }
    weft_iter_free(it);
    s = weft_ds_map_graph(
        d, weft_ds_batch(d, rows(d), 10, NULL), f.fn,
        WEFT_OPTS(weft_map_graph_opts, .outputs = "h, sum", .keep_inputs = true, .inputs = "x"));
    ok(weft_ds_columns(d, s, &n, &col));
    assert_int_equal(n, 5);
    assert_string_equal(col[0].name, "x");
    weft_data_free(d);
    close_fun(&f);
}

static uint64_t print_of(const weft_batch *b, uint64_t h)
{
    for (int64_t i = 0; i < b->n; i++) /* which samples it is made of */
        h = (h ^ (uint64_t)b->id[i]) * 1099511628211u;
    for (int c = 0; c < b->n_cols; c++)
        for (int64_t i = 0; b->col[c].dtype != WEFT_STR && i < weft_tensor_bytes(&b->col[c]); i++)
            h = (h ^ ((const uint8_t *)b->col[c].data)[i]) * 1099511628211u;
    return h;
}

/* The prints of all batches of two epochs, continuing from a saved position after each n. */
static void prints(struct fun *f, int threads, int every, uint64_t out[64])
{
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    char *state = NULL;
    int64_t n_state = 0;
    int n = 0, since = 0;
    weft_ds s;

    ok(weft_data_new(ctx, &d));
    s = weft_ds_shuffle_all(d, rows(d), WEFT_OPTS(weft_shuffle_opts, .seed = 3));
    s = weft_ds_map_graph(d, weft_ds_batch(d, weft_ds_repeat(d, s, 2), 9, NULL), f->fn, MAP);
    for (;;) {
        if (!it) {
            ok(weft_iter_new(
                d, s, WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO), &it));
            if (state)
                ok(weft_iter_restore(it, state, n_state));
            weft_text_free(ctx, state);
            state = NULL;
        }
        ok(weft_iter_next(it, &b));
        if (!b)
            break;
        out[n++] = print_of(b, 1469598103934665603u);
        weft_batch_free(b);
        if (every && ++since % every == 0) {
            ok(weft_iter_save(it, &state, &n_state));
            weft_iter_free(it);
            it = NULL;
        }
    }
    assert_int_equal(n, (2 * N + 8) / 9);
    weft_iter_free(it);
    weft_data_free(d);
}

static void same_bits_for_any_number_of_threads_and_from_any_position(void **state)
{
    struct fun f = open_fun();
    uint64_t want[64] = {0}, got[64] = {0};

    (void)state;
    prints(&f, 0, 0, want);
    for (int threads = 0; threads <= 4; threads++)
        for (int every = 0; every < 6; every += 2) {
            memset(got, 0, sizeof got);
            prints(&f, threads, every, got);
            assert_memory_equal(want, got, sizeof want);
        }
    close_fun(&f);
}

/* ---- models ---------------------------------------------------------------------------------- */

struct collect {
    float h[N][H];
    int64_t n;
};

static weft_status collect(void *arg, const weft_batch *b, int n_outputs, const weft_tensor *out)
{
    struct collect *c = arg;

    assert_int_equal(n_outputs, 1);
    memcpy(c->h[c->n], out[0].data, (size_t)weft_tensor_bytes(&out[0]));
    c->n += b->n;
    return WEFT_OK;
}

static void a_model_gives_what_predict_gives_and_is_run_once_behind_a_cache(void **state)
{
    static struct collect want;
    struct net base = open_base(NULL);
    weft_stage_stats stats;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    (void)state;
    memset(&want, 0, sizeof want);
    ok(weft_data_new(ctx, &d));
    ok(weft_predict(base.t, d, rows(d), WEFT_OPTS(weft_eval_opts, .batch = 8), collect, &want));
    assert_int_equal(want.n, N);
    s = weft_ds_map_model(d, rows(d), base.t,
                          WEFT_OPTS(weft_map_graph_opts, .name = "features", .batch = 8));
    s = weft_ds_cache(d, weft_ds_unbatch(d, s),
                      WEFT_OPTS(weft_cache_opts, .in = WEFT_CACHE_MEMORY));
    ok(weft_data_status(d));
    ok(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = 2), &it));
    for (int e = 0; e < 3; e++) {
        int64_t n = 0;

        if (e) /* what was read ahead is not made again */
            ok(weft_iter_reset(it, e));
        for (;; n++, weft_batch_free(b)) {
            ok(weft_iter_next(it, &b));
            if (!b)
                break;
            assert_string_equal(b->column[0].name, "base");
            assert_memory_equal(b->col[0].data, want.h[n], sizeof want.h[n]);
            assert_int_equal(*(const int32_t *)b->col[1].data, y[n]);
        }
        assert_int_equal(n, N);
    }
    for (int i = 0; i < weft_iter_n_stages(it); i++) {
        ok(weft_iter_stage(it, i, &stats));
        if (strncmp(stats.name, "features", 8) == 0)
            assert_int_equal(stats.n_elements, 13); /* of three epochs: each batch once */
    }
    weft_iter_free(it);
    weft_data_free(d);
    close_net(&base);
}

static void several_iterators_share_a_model(void **state)
{
    static struct collect want;
    struct net base = open_base("units=4096 activation=gelu");
    weft_data *d[2];
    weft_iter *it[2];
    weft_batch *b;

    (void)state;
    memset(&want, 0, sizeof want);
    for (int i = 0; i < 2; i++)
        ok(weft_data_new(ctx, &d[i]));
    ok(weft_predict(base.t, d[0], rows(d[0]), WEFT_OPTS(weft_eval_opts, .batch = 2), collect,
                    &want));
    for (int round = 0; round < 20; round++) { /* both read ahead from the first moment on */
        for (int i = 0; i < 2; i++)
            ok(weft_iter_new(d[i],
                             weft_ds_map_model(d[i], rows(d[i]), base.t,
                                               WEFT_OPTS(weft_map_graph_opts, .batch = 2)),
                             WEFT_OPTS(weft_iter_opts, .threads = 2), &it[i]));
        for (int i = 0; i < 2; i++)
            for (int64_t n = 0;; n += b->n, weft_batch_free(b)) {
                ok(weft_iter_next(it[i], &b));
                if (!b)
                    break;
                assert_memory_equal(b->col[0].data, want.h[n], (size_t)b->n * sizeof want.h[0]);
            }
        for (int i = 0; i < 2; i++)
            weft_iter_free(it[i]);
    }
    for (int i = 0; i < 2; i++)
        weft_data_free(d[i]);
    close_net(&base);
}

/* Trains a head on features that data threads compute meanwhile; stops and resumes after `stop`
 * batches if > 0. */
static int64_t n_seen, stop_at;
static weft_status stop_there(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    (void)arg;
    (void)batch;
    (void)logs;
    if (++n_seen == stop_at)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

static void train_head(struct net *base, int threads, int64_t stop, const char *folder,
                       float kernel[H * 3])
{
    weft_callback cb = {.size = sizeof cb, .name = "stop", .batch_end = stop_there};
    bool done = false;

    n_seen = 0;
    stop_at = stop;
    while (!done) { /* each time as a new process would */
        struct net head;
        weft_data *d;
        weft_tensor w;
        weft_ds s;

        ok(weft_model_new(ctx, NULL, &head.m));
        weft_input(head.m, "base", WEFT_F32, 1, (int64_t[]){H});
        weft_model_add(head.m, "Dense", "units=32 activation=relu");
        weft_model_add(head.m, "Dense", "units=3 name=head");
        ok(weft_compile(head.m,
                        WEFT_OPTS(weft_compile_opts, .optimizer = "adam",
                                  .loss = "sparse_categorical_crossentropy from_logits=true"),
                        &head.t));
        ok(weft_data_new(ctx, &d));
        s = weft_ds_shuffle_all(d, weft_ds_select(d, rows(d), "x, y"),
                                WEFT_OPTS(weft_shuffle_opts, .seed = 4));
        s = weft_ds_map_model(d, weft_ds_batch(d, s, 8, NULL), base->t, NULL);
        ok(weft_fit(head.t, d, s,
                    WEFT_OPTS(weft_fit_opts, .epochs = 3, .threads = threads ? threads : WEFT_ZERO,
                              .n_callbacks = 1, .callbacks = &cb,
                              .checkpoint = *folder ? folder : NULL, .checkpoint_steps = 3),
                    NULL));
        done = !weft_trainer_stopped(head.t);
        stop_at = n_seen + stop;
        ok(weft_trainer_weight(head.t, "dense/kernel", &w));
        memcpy(kernel, w.data, sizeof(float) * H * 3);
        weft_data_free(d);
        close_net(&head);
    }
}

static void a_head_trained_on_mapped_features_resumes_with_the_same_bits(void **state)
{
    struct net base = open_base(NULL);
    float whole[H * 3], again[H * 3];
    char folder[96];

    (void)state;
    train_head(&base, 0, 0, "", whole);
    for (int threads = 1; threads <= 3; threads++) {
        train_head(&base, threads, 0, "", again);
        assert_memory_equal(whole, again, sizeof whole);
    }
    for (int stop = 5; stop < 30; stop += 9) {
        snprintf(folder, sizeof folder, "%s/run-%d", dir, stop);
        train_head(&base, 2, stop, folder, again);
        assert_memory_equal(whole, again, sizeof whole);
    }
    close_net(&base);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(weft_ds (*make)(weft_data *d, struct fun *f), struct fun *f, weft_status want,
                    const char *text)
{
    weft_data *d;

    ok(weft_data_new(ctx, &d));
    assert_int_equal(make(d, f).id, 0);
    assert_int_equal(weft_data_status(d), want);
    if (!strstr(weft_error(), text))
        fail_msg("'%s' is not in: %s", text, weft_error());
    weft_data_free(d);
}

static weft_ds not_batched(weft_data *d, struct fun *f)
{
    return weft_ds_map_graph(d, rows(d), f->fn, NULL);
}
static weft_ds other_dtype(weft_data *d, struct fun *f)
{
    weft_ds s = weft_ds_cast(d, weft_ds_batch(d, rows(d), 4, NULL), "x", WEFT_F64);

    return weft_ds_map_graph(d, s, f->fn, NULL);
}
static weft_ds other_name(weft_data *d, struct fun *f)
{
    return weft_ds_map_graph(d, weft_ds_batch(d, rows(d), 4, NULL), f->fn,
                             WEFT_OPTS(weft_map_graph_opts, .inputs = "wrd"));
}
static weft_ds text_fed(weft_data *d, struct fun *f)
{
    return weft_ds_map_graph(d, weft_ds_batch(d, rows(d), 4, NULL), f->fn,
                             WEFT_OPTS(weft_map_graph_opts, .inputs = "word"));
}
static weft_ds few_names(weft_data *d, struct fun *f)
{
    return weft_ds_map_graph(d, weft_ds_batch(d, rows(d), 4, NULL), f->fn,
                             WEFT_OPTS(weft_map_graph_opts, .outputs = "h"));
}
static weft_ds taken_name(weft_data *d, struct fun *f)
{
    return weft_ds_map_graph(d, weft_ds_batch(d, rows(d), 4, NULL), f->fn,
                             WEFT_OPTS(weft_map_graph_opts, .outputs = "h, y"));
}

static weft_ds changing(weft_data *d, struct fun *f)
{
    weft_fn *fn;
    weft_val one = weft_scalar(f->g, 1),
             v = weft_variable(f->g, "count", 0, NULL,
                               WEFT_OPTS(weft_variable_opts, .not_trainable = true)),
             up = weft_assign(f->g, v, weft_add(f->g, v, one));
    weft_ds s;

    ok(weft_fn_new(f->g, WEFT_OPTS(weft_fn_opts, .n_updates = 1, .updates = &up), &fn));
    s = weft_ds_map_graph(d, rows(d), fn, NULL);
    weft_fn_free(fn);
    return s;
}

static void what_does_not_fit_is_named(void **state)
{
    struct fun f = open_fun();

    (void)state;
    refused(not_batched, &f, WEFT_ESHAPE, "batch it first");
    refused(other_dtype, &f, WEFT_EDTYPE, "column 'x' is f64[?,6], but the feed 'x' is f32[?,6]");
    refused(other_name, &f, WEFT_ENOENT, "did you mean 'word'");
    refused(text_fed, &f, WEFT_EDTYPE, "column 'word' is text");
    refused(few_names, &f, WEFT_EINVAL, "'h' does not name the 2 outputs");
    refused(taken_name, &f, WEFT_EEXIST, "'y'");
    refused(changing, &f, WEFT_EINVAL, "changes variables");
    close_fun(&f);
}

static void a_failing_run_names_the_stage(void **state)
{
    weft_graph *g;
    weft_val in, out;
    weft_fn *fn;
    weft_data *d;
    weft_iter *it;
    weft_batch *b;
    weft_ds s;

    (void)state;
    ok(weft_graph_new(ctx, &g));
    in = weft_placeholder(g, "x", WEFT_F32, 2, (int64_t[]){WEFT_ANY, D});
    out = weft_log(g, in); /* of negative numbers */
    ok(weft_fn_new(g,
                   WEFT_OPTS(weft_fn_opts, .n_feeds = 1, .feeds = &in, .n_fetches = 1,
                             .fetches = &out, .trap_numerics = true),
                   &fn));
    ok(weft_data_new(ctx, &d));
    s = weft_ds_map_graph(d, weft_ds_batch(d, rows(d), 10, NULL), fn,
                          WEFT_OPTS(weft_map_graph_opts, .name = "logs", .outputs = "z"));
    ok(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = 2), &it));
    assert_int_equal(weft_iter_next(it, &b), WEFT_ENUMERIC);
    assert_non_null(strstr(weft_error(), "logs: "));
    weft_iter_free(it);
    weft_data_free(d);
    weft_fn_free(fn);
    weft_graph_free(g);
}

static void a_model_with_stateful_layers_is_no_stage(void **state)
{
    weft_model *m;
    weft_trainer *t;
    weft_data *d;

    (void)state;
    ok(weft_model_new(ctx, NULL, &m));
    weft_input(m, "x", WEFT_F32, 1, (int64_t[]){D});
    weft_model_add(m, "Reshape", "target_shape=[3,2]");
    weft_model_add(m, "LSTM", "units=2 stateful=true batch_size=4");
    ok(weft_compile(m, NULL, &t));
    ok(weft_data_new(ctx, &d));
    assert_int_equal(weft_ds_map_model(d, rows(d), t, NULL).id, 0);
    assert_int_equal(weft_data_status(d), WEFT_EINVAL);
    weft_data_free(d);
    weft_trainer_free(t);
    weft_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_stand_in_place_of_what_was_fed),
        cmocka_unit_test(same_bits_for_any_number_of_threads_and_from_any_position),
        cmocka_unit_test(a_model_gives_what_predict_gives_and_is_run_once_behind_a_cache),
        cmocka_unit_test(several_iterators_share_a_model),
        cmocka_unit_test(a_head_trained_on_mapped_features_resumes_with_the_same_bits),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(a_failing_run_names_the_stage),
        cmocka_unit_test(a_model_with_stateful_layers_is_no_stage),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
