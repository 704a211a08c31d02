/* strategy_test.c - what every strategy promises: the bits of `local` with the same number of
 * shards, wherever and in whatever order shards are computed and ranges are updated.
 *
 * Cases are drawn: model, optimizer, clipping, shards, accumulation, batch size, precision, source
 * of the data; each is trained by `local`, by `local` without fused updates, by `scramble`
 * (support/scramble.h), by `holder` (support/holder.h), which has the tables, by `mirrored`, and
 * through parameter servers.
 * Each is also trained from other sources of the same samples, and with batches by hand, which the
 * trainer divides into shards.
 * WEFT_STRATEGY_CASES=FIRST:END tries other ones. ctest-timeout: 400 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/counting.h"
#include "support/holder.h"
#include "support/scramble.h"
#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 61, T = 5, F = 7, WORDS = 12, MANY = 9000 };

static float x[N][F], target[N], weight[N];
static int32_t ids[N][T], large[N][T], next_id[N][T], class_of[N];

static void fill_data(void)
{
    uint32_t s = 1;

    for (int i = 0; i < N; i++) {
        for (int k = 0; k < F; k++) {
            s = s * 1664525 + 1013904223;
            x[i][k] = (float)(s >> 8) / (1 << 23) - 1;
        }
        for (int k = 0; k < T; k++) {
            s = s * 1664525 + 1013904223;
            ids[i][k] = (int32_t)(s >> 10) % WORDS;
            large[i][k] = (int32_t)(s >> 5) % MANY;
            next_id[i][k] = (ids[i][k] * 5 + 1) % WORDS;
        }
        class_of[i] = ids[i][0] % 3;
        target[i] = x[i][0] * x[i][1] - x[i][2];
        weight[i] = (float)(i % 4) / 2;
    }
}

/* ---- models ---------------------------------------------------------------------------------- */

struct model {
    const char *name;
    void (*build)(weft_model *m, weft_sym x, weft_sym ids, weft_sym large);
    const char *loss;
    int n_labels; /* classes, tokens, value: the first of them */
    int first_label;
};

/* Dropout, BatchNorm, penalties of each kind, constraints of each kind. */
static void build_dense(weft_model *m, weft_sym in, weft_sym words, weft_sym many)
{
    weft_sym h;

    (void)words;
    (void)many;
    h = weft_apply(m, "Dense",
                   "units=65 activation=relu kernel_regularizer=l2(0.01) bias_regularizer=l1(0.02) "
                   "kernel_constraint=max_norm(0.9)",
                   in);
    h = weft_apply(m, "BatchNormalization", "momentum=0.9", h);
    h = weft_apply(m, "Dropout", "rate=0.3", h);
    h = weft_apply(m, "Dense",
                   "units=70 activation=tanh kernel_regularizer=l1_l2(0.001,0.002) "
                   "bias_constraint=non_neg",
                   h);
    h = weft_apply(m, "Dense",
                   "units=9 kernel_regularizer=orthogonal(0.1) kernel_constraint=unit_norm", h);
    weft_model_output(m, weft_apply(m, "Dense", "units=3 name=classes", h));
}

/* Tables: one with a mask, one of many rows, one that two inputs share. */
static void build_tables(weft_model *m, weft_sym in, weft_sym words, weft_sym many)
{
    weft_layer shared = weft_layer_new(m, "Embedding", "input_dim=9000 output_dim=3");
    weft_sym a = weft_apply(m, "Embedding", "input_dim=12 output_dim=6", words);
    weft_sym b = weft_call(m, shared, many), c = weft_call(m, shared, words);
    weft_sym all[4];

    all[0] = weft_apply(m, "Flatten", NULL, a);
    all[1] = weft_apply(m, "Flatten", NULL, b);
    all[2] = weft_apply(m, "Flatten", NULL, c);
    all[3] = in;
    all[0] = weft_apply_n(m, "Concatenate", NULL, 4, all);
    weft_model_output(m, weft_apply(m, "Dense", "units=3 name=classes", all[0]));
}

/* Two masked outputs and one without a mask: three denominators. */
static void build_masked(weft_model *m, weft_sym in, weft_sym words, weft_sym many)
{
    weft_sym e, h, one, two;

    (void)in;
    (void)many;
    e = weft_apply(m, "Embedding", "input_dim=12 output_dim=6 mask_zero=true", words);
    h = weft_apply(m, "LSTM", "units=7 return_sequences=true dropout=0.2", e);
    one = weft_apply(m, "Dense", "units=12 name=tokens", h);
    two = weft_apply(m, "LSTM", "units=5", h);
    weft_model_output(m, one);
    weft_model_output(m, weft_apply(m, "Dense", "units=3 name=classes", two));
}

/* Parameters of more than one block. */
static void build_wide(weft_model *m, weft_sym in, weft_sym words, weft_sym many)
{
    weft_sym h;

    (void)words;
    (void)many;
    h = weft_apply(m, "Dense", "units=1500 activation=relu", in);
    h = weft_apply(m, "LayerNormalization", NULL, h);
    weft_model_output(m, weft_apply(m, "Dense", "units=3 name=classes", h));
}

static const struct model models[] = {
    {"dense", build_dense, "sparse_categorical_crossentropy from_logits=true", 1, 0},
    {"tables", build_tables, "sparse_categorical_crossentropy from_logits=true", 1, 0},
    {"masked", build_masked,
     "sparse_categorical_crossentropy from_logits=true; "
     "sparse_categorical_crossentropy from_logits=true",
     2, 0},
    {"wide", build_wide, "sparse_categorical_crossentropy from_logits=true", 1, 0},
};

/* ---- cases ----------------------------------------------------------------------------------- */

/* Where samples come from. Padded: sequences of different lengths. */
enum source { MEMORY, STREAM, BATCHED, MAPPED, PADDED, PADDED_STREAM, N_SOURCES };
static const char *const source_name[N_SOURCES] = {"memory",         "stream", "batched",
                                                   "mapped batches", "padded", "padded stream"};

struct setting {
    const struct model *model;
    enum source source;
    bool in_order;    /* not shuffled */
    int data_threads; /* of fit */
    char optimizer[160];
    const char *precision;
    int shards, accumulate, threads;
    int64_t batch;
    bool weighted, dense;
};

static uint64_t draw(uint64_t *s, uint64_t n)
{
    *s += 0x9e3779b97f4a7c15u;
    return wf_hash64(s, sizeof *s, 11) % n;
}

static struct setting draw_setting(uint64_t seed)
{
    static const char *const optimizers[] = {"sgd learning_rate=0.05",
                                             "sgd learning_rate=0.05 momentum=0.9",
                                             "sgd learning_rate=0.05 momentum=0.9 nesterov=1",
                                             "rmsprop learning_rate=0.01",
                                             "rmsprop learning_rate=0.01 momentum=0.5 centered=1",
                                             "adam learning_rate=0.01",
                                             "adam learning_rate=0.01 amsgrad=1",
                                             "adamw learning_rate=0.01",
                                             "adamax",
                                             "nadam",
                                             "adagrad learning_rate=0.05",
                                             "adadelta learning_rate=0.5",
                                             "ftrl learning_rate=0.05",
                                             "lion learning_rate=0.002",
                                             "lamb learning_rate=0.01"};
    static const char *const clips[] = {"", "", " clipvalue=0.02", " clipnorm=0.1",
                                        " global_clipnorm=0.2"};
    static const int shards[] = {1, 1, 2, 3, 4, 7, 8};
    static const int threads[] = {1, 2, 3, 7};
    static const int64_t batches[] = {1, 3, 5, 8, 16, 20, 61, 64};
    uint64_t s = seed;
    struct setting c = {.model = &models[draw(&s, WF_COUNT(models))]};

    snprintf(c.optimizer, sizeof c.optimizer, "%s%s", optimizers[draw(&s, WF_COUNT(optimizers))],
             clips[draw(&s, WF_COUNT(clips))]);
    c.precision = draw(&s, 6) == 0 ? "f16" : draw(&s, 6) == 0 ? "bf16" : "f32";
    c.shards = shards[draw(&s, WF_COUNT(shards))];
    c.accumulate = draw(&s, 3) == 0 ? (int)draw(&s, 3) + 1 : 1;
    c.threads = threads[draw(&s, WF_COUNT(threads))];
    c.batch = batches[draw(&s, WF_COUNT(batches))];
    c.weighted = draw(&s, 4) == 0;
    c.dense = draw(&s, 5) == 0;
    c.source = (enum source)draw(&s, c.model->build == build_masked ? N_SOURCES : PADDED);
    c.data_threads = draw(&s, 3) == 0 ? WEFT_ZERO : (int)draw(&s, 4);
    return c;
}

static const char *text_of(const struct setting *c, uint64_t seed)
{
    static char text[400];

    snprintf(
        text, sizeof text,
        "case %llu: %s, %s, %s, shards %d, accumulate %d, batch %lld, threads %d%s%s, %s, %d data "
        "threads",
        (unsigned long long)seed, c->model->name, c->optimizer, c->precision, c->shards,
        c->accumulate, (long long)c->batch, c->threads, c->weighted ? ", weighted" : "",
        c->dense ? ", dense" : "", source_name[c->source], c->data_threads);
    return text;
}

/* ---- training -------------------------------------------------------------------------------- */

struct result {
    char *bytes;
    size_t n;
    double log[40];
    int n_logs;
    int64_t step;
    weft_status st;
};

static int list_columns(const struct setting *c, weft_column *col, weft_tensor *rows)
{
    int n = 0;

    col[n] = (weft_column){.name = "x"};
    rows[n++] = weft_view(WEFT_F32, x, 2, (int64_t[]){N, F});
    col[n] = (weft_column){.name = "ids"};
    rows[n++] = weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T});
    col[n] = (weft_column){.name = "large"};
    rows[n++] = weft_view(WEFT_I32, large, 2, (int64_t[]){N, T});
    if (c->model->n_labels == 2) {
        col[n] = (weft_column){.name = "tokens", .role = WEFT_LABEL};
        rows[n++] = weft_view(WEFT_I32, next_id, 2, (int64_t[]){N, T});
    }
    col[n] = (weft_column){.name = "classes", .role = WEFT_LABEL};
    rows[n++] = weft_view(WEFT_I32, class_of, 1, (int64_t[]){N});
    if (c->weighted) {
        col[n] = (weft_column){.name = "w", .role = WEFT_WEIGHT};
        rows[n++] = weft_view(WEFT_F32, weight, 1, (int64_t[]){N});
    }
    return n;
}

static bool is_padded(const struct setting *c)
{
    return c->source == PADDED || c->source == PADDED_STREAM;
}

static bool is_sequence(const char *column)
{
    return strcmp(column, "ids") == 0 || strcmp(column, "tokens") == 0;
}

/* Sample id; of sequences the first 1 to T items, if they are padded. */
static weft_status get_sample(void *arg, int64_t id, weft_sample *s)
{
    const struct setting *c = arg;
    weft_column col[8];
    weft_tensor rows[8];
    int n = list_columns(c, col, rows);
    int64_t length = 1 + id * 7 % T;

    for (int i = 0; i < n; i++) {
        size_t row = (size_t)(weft_tensor_bytes(&rows[i]) / N);
        bool cut = is_padded(c) && is_sequence(col[i].name);

        if (cut && weft_sample_shape(s, i, 1, &length))
            return WEFT_ENOMEM;
        memcpy(s->col[i].data, (char *)rows[i].data + (size_t)id * row,
               cut ? (size_t)length * 4 : row);
    }
    return WEFT_OK;
}

static weft_status next_sample(void *arg, int64_t id, weft_sample *s, bool *end)
{
    *end = id == N;
    return *end ? WEFT_OK : get_sample(arg, id, s);
}

static weft_status same_batch(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    for (int i = 0; i < in->n_cols; i++) {
        if (weft_sample_shape(out, i, in->col[i].rank, in->col[i].dim))
            return WEFT_ENOMEM;
        memcpy(out->col[i].data, in->col[i].data, (size_t)weft_tensor_bytes(&in->col[i]));
    }
    return WEFT_OK;
}

static weft_ds dataset(weft_data *d, const struct setting *c)
{
    weft_column col[8];
    weft_tensor rows[8];
    int n = list_columns(c, col, rows);
    weft_ds s = weft_ds_tensors(d, n, col, rows);

    for (int i = 0; i < n; i++) { /* as samples have them */
        weft_role role = col[i].role;
        int64_t any = WEFT_ANY;
        bool varies = is_padded(c) && is_sequence(col[i].name);

        col[i].dtype = rows[i].dtype;
        col[i].rank = rows[i].rank - 1;
        memcpy(col[i].dim, varies ? &any : rows[i].dim + 1, (size_t)col[i].rank * 8);
        col[i].role = role;
    }
    switch (c->source) {
    case STREAM: return weft_ds_stream(d, n, col, next_sample, (void *)c);
    case BATCHED: /* with stages after it that change rows alone */
        s = weft_ds_batch(d, s, c->batch, NULL);
        s = weft_ds_role(d, weft_ds_prefetch(d, s, 1), "classes", WEFT_LABEL);
        return weft_ds_prefetch(d, s, 2);
    case MAPPED:
        return weft_ds_map(d, weft_ds_batch(d, s, c->batch, NULL), 0, NULL, same_batch, NULL, NULL);
    case PADDED:
        return weft_ds_padded_batch(d, weft_ds_get(d, n, col, N, get_sample, (void *)c), c->batch,
                                    NULL);
    case PADDED_STREAM:
        return weft_ds_padded_batch(d, weft_ds_stream(d, n, col, next_sample, (void *)c), c->batch,
                                    NULL);
    default: return s;
    }
}

static void keep(weft_trainer *t, const weft_history *h, struct holder *holder, struct result *r)
{
    const weft_fn *fit = t->bound->fit;

    r->bytes = holder ? holder_bytes(holder, fit->store, &r->n) : trainer_bytes(t, &r->n);
    r->step = weft_trainer_step(t);
    for (int i = 0; h && i < h->n_epochs * h->n_names && i < WF_COUNT(r->log); i++)
        r->log[r->n_logs++] = h->value[i];
}

/* Two epochs of whole batches, in order: the trainer divides them into shards. */
static weft_status train_by_hand(weft_trainer *t, const struct setting *c)
{
    weft_column col[8];
    weft_tensor rows[8];
    int n = list_columns(c, col, rows);
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < 2 * N && !st; i += c->batch) {
        int64_t first = i % N, m = wf_min_i64(c->batch, N - first);
        weft_tensor part[8], in[3];

        if (i < N && i + m == N) /* the next epoch begins with the next batch */
            i = N - c->batch;
        for (int k = 0; k < n; k++) {
            int64_t row = weft_tensor_bytes(&rows[k]) / N;

            part[k] = rows[k];
            part[k].dim[0] = m;
            part[k].data = (char *)rows[k].data + first * row;
        }
        for (int k = 0; k < 3; k++) /* the model's inputs, in its order */
            for (int j = 0; j < 3; j++)
                if (!strcmp(col[j].name, weft_sym_name(t->model, weft_model_input_at(t->model, k))))
                    in[k] = part[j];
        st = weft_train_on_batch(t, in, part + 3, c->weighted ? part + n - 1 : NULL, NULL);
    }
    return st;
}

/* What the trained model says of the same data. */
static void judge(weft_trainer *t, weft_data *d, weft_ds s, struct result *r)
{
    weft_logs logs;

    if (!r->st)
        r->st = weft_evaluate(t, d, s, WEFT_OPTS(weft_eval_opts, .batch = 16), &logs);
    for (int i = 0; !r->st && i < logs.n && r->n_logs < WF_COUNT(r->log); i++)
        r->log[r->n_logs++] = logs.value[i];
}

/* strategy NULL: by name. */
static struct result train_with(const struct setting *c, const weft_strategy *strategy, void *arg,
                                const char *name, const char *devices, bool by_hand)
{
    struct result r = {.st = WEFT_OK};
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_trainer *t = NULL;
    weft_data *d;
    weft_history *h = NULL;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = c->threads, .seed = 3, .devices = devices),
                     &ctx),
        0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    c->model->build(m, weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F}),
                    weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){is_padded(c) ? WEFT_ANY : T}),
                    weft_input(m, "large", WEFT_I32, 1, (int64_t[]){T}));
    if (strategy) {
        assert_int_equal(weft_dist_open_with(ctx, strategy, arg, &dist), 0);
        assert_int_equal(weft_dist_scope(dist, m), 0);
    }
    if (weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = c->optimizer, .loss = c->model->loss,
                               .metrics = c->model->n_labels == 1 ? "accuracy" : NULL,
                               .precision = c->precision, .shards = c->shards,
                               .accumulate = c->accumulate, .no_sparse = c->dense,
                               .strategy = name),
                     &t))
        fail_msg("%s: %s", c->model->name, weft_error());
    assert_int_equal(weft_data_new(ctx, &d), 0);
    r.st = by_hand ? train_by_hand(t, c)
                   : weft_fit(t, d, dataset(d, c),
                              WEFT_OPTS(weft_fit_opts, .epochs = 2, .batch = c->batch,
                                        .no_shuffle = c->in_order, .threads = c->data_threads),
                              &h);
    if (!r.st)
        r.st = wf_dist_bring(t);
    keep(t, h, strategy == &holder_strategy ? arg : NULL, &r);
    if (!c->in_order) /* other sources have other batches */
        judge(t, d, dataset(d, c), &r);
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return r;
}

static struct result train_on(const struct setting *c, const weft_strategy *strategy, void *arg,
                              const char *name, const char *devices)
{
    return train_with(c, strategy, arg, name, devices, false);
}

static struct result train(const struct setting *c, const weft_strategy *strategy, void *arg)
{
    return train_on(c, strategy, arg, NULL, NULL);
}

static void compare(const struct result *a, const struct result *b, const char *who,
                    const char *text)
{
    if (a->st || b->st)
        fail_msg("%s, %s: %s", text, who, weft_error());
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->step, b->step);
    for (size_t i = 0; i < a->n; i++)
        if (a->bytes[i] != b->bytes[i])
            fail_msg("%s: %s differs from local at byte %zu of %zu", text, who, i, a->n);
    for (int i = 0; i < a->n_logs; i++)
        if (memcmp(&a->log[i], &b->log[i], sizeof a->log[i]))
            fail_msg("%s: %s logs %.17g, local %.17g", text, who, b->log[i], a->log[i]);
}

/* The same samples from other sources, with another number of threads; and batches by hand. */
static void other_sources(const struct setting *drawn, const char *text)
{
    struct setting c = *drawn;
    enum source first = is_padded(drawn) ? PADDED : MEMORY;
    struct result want, got;

    c.in_order = true;
    c.source = first;
    want = train(&c, NULL, NULL);
    for (int k = first; k < (first == PADDED ? N_SOURCES : PADDED); k++) {
        c.source = (enum source)k;
        c.data_threads = k % 3 ? k % 3 : WEFT_ZERO;
        got = train(&c, NULL, NULL);
        compare(&want, &got, source_name[k], text);
        free(got.bytes);
    }
    if (first == MEMORY && (N + c.batch - 1) / c.batch % c.accumulate == 0) {
        got = train_with(&c, NULL, NULL, NULL, NULL, true);
        want.n_logs = 0; /* its logs are those of single batches */
        compare(&want, &got, "batches by hand", text);
        free(got.bytes);
    }
    free(want.bytes);
}

/* A worker, a chief and servers over queues. */
static void with_servers(const struct setting *c, uint64_t seed, const struct result *local,
                         const char *text)
{
    weft_ps_opts o = {.size = sizeof o,
                      .servers = (int)(1 + seed % 3),
                      .replicas = (int)(1 + seed / 3 % 2),
                      .piece_bytes = 1 + (int64_t)(seed % 5) * 7000};
    const weft_strategy *ps;
    struct result got;

    o.replicas = o.servers == 1 ? 1 : o.replicas;
    assert_int_equal(wf_dist_find("ps", &ps), 0);
    got = train(c, ps, &o);
    if (got.st == WEFT_ENOSUP && strcmp(c->precision, "f16") == 0) {
        free(got.bytes);
        return;
    }
    compare(local, &got, "ps", text);
    free(got.bytes);
}

/* Where the test runs on devices with memory of their own: replicas on several of them. */
static void on_devices(const struct setting *c, uint64_t seed, const struct result *local,
                       const char *text)
{
    static const char *const more[] = {"fake:1", "fake:1, fake:2", "fake:1*3", "fake:2*2, fake:1"};
    struct result got;

    if (!getenv("WEFT_TEST_DEVICE"))
        return;
    got = train_on(c, NULL, NULL, "mirrored", more[seed % WF_COUNT(more)]);
    compare(local, &got, "mirrored on devices", text);
    free(got.bytes);
}

static void one_case(uint64_t seed)
{
    struct setting c = draw_setting(seed);
    const char *text = text_of(&c, seed);
    struct scramble s = {
        .seed = seed, .n_stores = (int)(1 + seed % 8), .n_updaters = (int)(1 + seed / 8 % 5)};
    struct result local = train(&c, NULL, NULL), unfused = train(&c, &unfused_strategy, NULL);
    struct result scrambled = train(&c, &scramble_strategy, &s), held;
    struct holder h;
    struct result mirrored =
        train_on(&c, NULL, NULL, "mirrored", seed % 3 ? "cpu:0,cpu:1" : "cpu:0, cpu:1, cpu:2");

    other_sources(&c, text);
    holder_init(&h, seed, s.n_stores);
    held = train(&c, &holder_strategy, &h);
    compare(&local, &held, "holder", text);
    if (h.scramble.bad || (h.n_tables && (!h.n_asked || !h.n_told || !h.n_evaluated)))
        fail_msg("%s: rows were not asked for or told as promised", text);
    holder_free(&h);
    free(held.bytes);
    compare(&local, &mirrored, "mirrored", text);
    free(mirrored.bytes);
    on_devices(&c, seed, &local, text);
    if (seed % 2 == 0) /* procs_test has more */
        with_servers(&c, seed, &local, text);
    compare(&local, &unfused, "local without fused updates", text);
    compare(&local, &scrambled, "scramble", text);
    if (s.bad || s.n_ready == 0)
        fail_msg("%s: a range was not told as promised", text);
    free(local.bytes);
    free(unfused.bytes);
    free(scrambled.bytes);
}

static void strategies_give_the_same_bits(void **state)
{
    const char *asked = getenv("WEFT_STRATEGY_CASES");
    unsigned long long first = 0,
                       end = getenv("WEFT_TEST_QUICK") || getenv("WEFT_TEST_DEVICE") ? 12 : 36;

    (void)state;
    if (asked && sscanf(asked, "%llu:%llu", &first, &end) != 2)
        fail_msg("WEFT_STRATEGY_CASES is not FIRST:END");
    for (uint64_t i = first; i < end; i++)
        one_case(i);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* A strategy that fails at its k-th call: the step leaves nothing behind, and can be tried again.
 */
static void a_failing_strategy_changes_nothing(void **state)
{
    struct setting c = {.model = &models[0],
                        .optimizer = "adam learning_rate=0.01",
                        .precision = "f32",
                        .shards = 3,
                        .accumulate = 1,
                        .threads = 2,
                        .batch = N};
    struct scramble calm = {.seed = 1, .n_stores = 2, .n_updaters = 2};
    struct result whole, none = {.bytes = NULL};

    (void)state;
    whole = train(&c, &scramble_strategy, &calm);
    assert_int_equal(whole.st, 0);
    assert_true(calm.n_calls > 20);
    for (int k = 1; k <= calm.n_calls / 3; k += 2) { /* within the first step */
        struct scramble s = {.seed = 1, .n_stores = 2, .n_updaters = 2, .fail_at = k};
        struct result r = train(&c, &scramble_strategy, &s);

        assert_int_equal(r.st, WEFT_EPEER);
        assert_int_equal(r.step, 0);
        if (none.bytes) {
            assert_int_equal(r.n, none.n);
            assert_memory_equal(r.bytes, none.bytes, r.n);
            free(r.bytes);
        } else {
            none = r;
        }
    }
    free(none.bytes);
    free(whole.bytes);
}

/* The same, of a strategy that holds the tables. */
static void a_failing_holder_changes_nothing(void **state)
{
    struct setting c = {.model = &models[1],
                        .optimizer = "adam learning_rate=0.01",
                        .precision = "f32",
                        .shards = 3,
                        .accumulate = 1,
                        .threads = 2,
                        .batch = N};
    struct result none = {.bytes = NULL};
    int k;

    (void)state;
    for (k = 1;; k++) {
        struct holder h;
        struct result r;

        holder_init(&h, 1, 2);
        h.scramble.fail_at = k;
        r = train(&c, &holder_strategy, &h);
        holder_free(&h);
        if (r.step > 0) { /* not in the first step */
            free(r.bytes);
            break;
        }
        assert_int_equal(r.st, WEFT_EPEER);
        if (none.bytes) {
            assert_int_equal(r.n, none.n);
            assert_memory_equal(r.bytes, none.bytes, r.n);
            free(r.bytes);
        } else {
            none = r;
        }
    }
    assert_true(k > 16); /* lookups, gradients, and where rows are */
    free(none.bytes);
}

/* ---- a table larger than the memory ---------------------------------------------------------- */

enum { WIDTH = 16, USERS = 200, LIMIT = 48 << 20 };

/* ids: which rows; n_rows: of the table. */
static weft_status train_table(const weft_strategy *strategy, void *arg, int64_t n_rows,
                               const int64_t *row_of, struct result *r)
{
    static int64_t row[256];
    static float y[256];
    char attrs[160];
    weft_dist *dist = NULL;
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t = NULL;
    weft_data *d;
    weft_history *h = NULL;
    weft_ds s;
    weft_sym e;
    weft_status st;

    *r = (struct result){.st = WEFT_OK};
    for (int i = 0; i < 256; i++) {
        row[i] = row_of[i * 7 % USERS];
        y[i] = (float)(i * 7 % USERS % 5);
    }
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 9, .memory_limit = LIMIT),
                     &ctx),
        0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    snprintf(attrs, sizeof attrs,
             "input_dim=%lld output_dim=%d embeddings_initializer=constant(0.1)", (long long)n_rows,
             WIDTH);
    e = weft_apply(m, "Embedding", attrs, weft_input(m, "user", WEFT_I64, 1, (int64_t[]){1}));
    e = weft_apply(m, "Dense", "units=8 activation=relu", weft_apply(m, "Flatten", NULL, e));
    weft_model_output(m, weft_apply(m, "Dense", "units=1", e));
    if (strategy) {
        assert_int_equal(weft_dist_open_with(ctx, strategy, arg, &dist), 0);
        assert_int_equal(weft_dist_scope(dist, m), 0);
    }
    assert_int_equal(
        weft_compile(
            m, WEFT_OPTS(weft_compile_opts, .optimizer = "adam", .loss = "mse", .shards = 2), &t),
        0);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    s = weft_ds_tensors(d, 2, (weft_column[]){{.name = "user"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_I64, row, 2, (int64_t[]){256, 1}),
                                        weft_view(WEFT_F32, y, 2, (int64_t[]){256, 1})});
    st = weft_fit(t, d, s, WEFT_OPTS(weft_fit_opts, .epochs = 5, .batch = 32), &h);
    for (int i = 0; !st && i < h->n_epochs * h->n_names; i++)
        r->log[r->n_logs++] = h->value[i];
    if (!st)
        judge(t, d, s, r);
    st = st ? st : r->st;
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return st;
}

/* A table of 64 GB in a process that may use 48 MB: the same losses as with a small table of the
 * rows that occur. */
static void a_table_larger_than_memory_trains(void **state)
{
    int64_t few[USERS], many[USERS], n_rows = 1000000007;
    struct result small, huge, served;
    weft_ps_opts o = {.size = sizeof o, .servers = 2};
    const weft_strategy *ps;
    struct holder h;

    (void)state;
    for (int i = 0; i < USERS; i++) {
        few[i] = i;
        many[i] = (int64_t)i * 99999989 % n_rows;
    }
    assert_int_equal(train_table(NULL, NULL, n_rows, many, &huge), WEFT_ELIMIT);
    assert_int_equal(train_table(NULL, NULL, USERS, few, &small), 0);
    holder_init(&h, 5, 3);
    if (train_table(&holder_strategy, &h, n_rows, many, &huge))
        fail_msg("%s", weft_error());
    assert_int_equal(h.table[0].n, USERS);
    assert_int_equal(wf_dist_find("ps", &ps), 0);
    if (train_table(ps, &o, n_rows, many, &served)) /* with its servers, in the same memory */
        fail_msg("%s", weft_error());
    assert_int_equal(small.n_logs, huge.n_logs);
    assert_int_equal(small.n_logs, served.n_logs);
    assert_true(small.n_logs >= 6);
    assert_true(small.log[4] < small.log[0]);
    for (int i = 0; i < small.n_logs; i++) {
        assert_memory_equal(&small.log[i], &huge.log[i], sizeof small.log[i]);
        assert_memory_equal(&small.log[i], &served.log[i], sizeof small.log[i]);
    }
    holder_free(&h);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* A step in shards, with tables: after the first ones, its memory is used again. */
static void steps_in_shards_do_not_allocate(void **state)
{
    const weft_strategy *strategies[] = {NULL, &unfused_strategy, &holder_strategy};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct counting count = {0};
        weft_allocator allocator = counting_allocator(&count);
        weft_dist *dist = NULL;
        struct holder h;
        weft_ctx *ctx;
        weft_model *m;
        weft_trainer *t = NULL;
        weft_sym in[3];
        int64_t before = 0;

        holder_init(&h, 3, 1);
        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .allocator = &allocator), &ctx), 0);
        assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
        in[0] = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
        in[1] = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});
        in[2] = weft_input(m, "large", WEFT_I32, 1, (int64_t[]){T});
        build_tables(m, in[0], in[1], in[2]);
        if (strategies[i]) {
            assert_int_equal(weft_dist_open_with(ctx, strategies[i], &h, &dist), 0);
            assert_int_equal(weft_dist_scope(dist, m), 0);
        }
        assert_int_equal(
            weft_compile(m,
                         WEFT_OPTS(weft_compile_opts, .optimizer = "adam global_clipnorm=0.5",
                                   .loss = models[1].loss, .shards = 3),
                         &t),
            0);
        for (int k = 0; k < 12; k++) {
            weft_tensor rows[] = {weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                                  weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}),
                                  weft_view(WEFT_I32, large, 2, (int64_t[]){N, T})};
            weft_tensor y = weft_view(WEFT_I32, class_of, 1, (int64_t[]){N});
            int64_t now = count.n_allocs;

            if (weft_train_on_batch(t, rows, &y, NULL, NULL))
                fail_msg("%s", weft_error());
            if (k > 4) /* the lists of feeds and labels */
                assert_int_equal(count.n_allocs - now, 2);
            before = now;
        }
        assert_true(before > 0);
        weft_trainer_free(t);
        weft_model_free(m);
        weft_dist_free(dist);
        weft_ctx_free(ctx);
        holder_free(&h);
    }
}

static weft_status refused(const char *attrs, bool trained)
{
    weft_dist *dist = NULL;
    struct holder h;
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t = NULL;
    weft_tensor in = weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}), value;
    weft_tensor y = weft_view(WEFT_I32, class_of, 1, (int64_t[]){N});
    weft_sym e;
    weft_status st;

    holder_init(&h, 3, 1);
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    e = weft_apply(m, "Embedding", attrs, weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T}));
    e = weft_apply(m, "Flatten", NULL, e);
    weft_model_output(m, weft_apply(m, "Dense", "units=3", e));
    assert_int_equal(weft_dist_open_with(ctx, &holder_strategy, &h, &dist), 0);
    assert_int_equal(weft_dist_scope(dist, m), 0);
    assert_int_equal(
        weft_compile(m, WEFT_OPTS(weft_compile_opts, .optimizer = "sgd", .loss = models[1].loss),
                     &t),
        0);
    st = weft_train_on_batch(t, &in, &y, NULL, NULL);
    if (!st && trained)
        st = weft_trainer_weight(t, "embedding/embeddings", &value);
    weft_trainer_free(t);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    holder_free(&h);
    return st;
}

/* What needs a whole table that is held elsewhere says so. */
static void whole_tables_are_refused(void **state)
{
    (void)state;
    assert_int_equal(refused("input_dim=12 output_dim=4", false), 0);
    assert_int_equal(refused("input_dim=12 output_dim=4", true), WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "is not in this process's memory"));
    assert_int_equal(refused("input_dim=12 output_dim=4 embeddings_constraint=max_norm(1)", false),
                     WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "remove the constraint"));
    assert_int_equal(
        refused("input_dim=12 output_dim=4 embeddings_initializer=orthogonal(1)", false),
        WEFT_ENOSUP);
    assert_non_null(strstr(weft_error(), "row by row"));
    assert_int_equal(refused("input_dim=5 output_dim=4", false), WEFT_EDATA); /* a bad id */
}

static void what_is_missing_is_refused(void **state)
{
    weft_strategy none = {.size = sizeof none, .name = "none"};
    weft_dist *d = NULL;
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_dist_open_with(ctx, &none, NULL, &d), WEFT_EINVAL);
    none = holder_strategy;
    none.fused = true;
    assert_int_equal(weft_dist_open_with(ctx, &none, NULL, &d), WEFT_EINVAL);
    none.size = 3;
    assert_int_equal(weft_dist_open_with(ctx, &none, NULL, &d), WEFT_EINVAL);
    assert_null(d);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_give_the_same_bits),
        cmocka_unit_test(a_failing_strategy_changes_nothing),
        cmocka_unit_test(a_failing_holder_changes_nothing),
        cmocka_unit_test(a_table_larger_than_memory_trains),
        cmocka_unit_test(steps_in_shards_do_not_allocate),
        cmocka_unit_test(whole_tables_are_refused),
        cmocka_unit_test(what_is_missing_is_refused),
    };

    fill_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
