/* Parameter calls: what workers push becomes parameters by the same code as in training. The bits
 * of one process are those of servers in the process, of threads as tasks, and of processes of
 * which a worker and a server are killed; a plain computation by hand gives the same. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "weft/weft.h"

enum { IN = 5, OUT = 3, ROWS = 40, WIDTH = 4, SAMPLES = 11, STEPS = 12 };

static char dir[64];

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-params-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int end(void **state)
{
    char command[96];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- a program ------------------------------------------------------------------------------- */

static const int64_t w_dim[] = {IN, OUT}, e_dim[] = {ROWS, WIDTH}, b_dim[] = {OUT};
static const weft_param vars[] = {
    {.size = sizeof(weft_param),
     .name = "w",
     .rank = 2,
     .dim = w_dim,
     .initializer = "glorot_uniform"},
    {.size = sizeof(weft_param), .name = "b", .rank = 1, .dim = b_dim},
    {.size = sizeof(weft_param),
     .name = "emb",
     .rank = 2,
     .dim = e_dim,
     .table = true,
     .initializer = "uniform"},
};

struct program {
    int shards;
    bool nothing_in_2; /* shard 2 has no samples */
    int64_t die_at;    /* this process dies when it computes this step or a later one; 0: never */
    int64_t kill_at;   /* ends another process then */
    pid_t victim;
};

static uint32_t mix(uint32_t a, uint32_t b)
{
    uint32_t h = a * 2654435761u ^ (b + 0x9e3779b9u) * 2246822519u;

    return (h ^ h >> 15) * 3266489917u;
}

/* "Gradients" that depend on the values, the step and the shard alone. */
static weft_status compute(void *arg, weft_params *p, int64_t shard)
{
    struct program *k = arg;
    int64_t step = weft_params_step(p), ids[SAMPLES];
    float gw[IN * OUT] = {0}, gb[OUT] = {0}, rows[SAMPLES * WIDTH], grows[SAMPLES * WIDTH];
    weft_tensor w = {.data = NULL}, b = {.data = NULL}, id, gr;
    weft_status st;

    if (k->die_at && step >= k->die_at)
        raise(SIGKILL);
    if (k->kill_at && step >= k->kill_at && k->victim) {
        kill(k->victim, SIGKILL);
        k->victim = 0;
    }
    if (k->nothing_in_2 && shard == 2)
        return WEFT_OK;
    st = weft_params_get(p, "w", &w);
    if (!st)
        st = weft_params_get(p, "b", &b);
    for (int i = 0; i < SAMPLES; i++)
        ids[i] = mix((uint32_t)(step * 100 + shard), (uint32_t)i) % ROWS;
    if (!st)
        st = weft_params_rows(p, "emb", SAMPLES, ids, rows);
    if (st)
        return st;
    for (int i = 0; i < SAMPLES; i++) {
        float x = (float)(mix((uint32_t)(step * 7 + shard), (uint32_t)i) >> 16) / 65536 - 0.5f;

        for (int n = 0; n < IN * OUT; n++)
            gw[n] += x * ((const float *)w.data)[n] + 0.1f * x;
        for (int n = 0; n < OUT; n++)
            gb[n] += x + ((const float *)b.data)[n] * rows[i * WIDTH + n];
        for (int n = 0; n < WIDTH; n++)
            grows[i * WIDTH + n] = rows[i * WIDTH + n] * x + 0.01f;
    }
    id = weft_view(WEFT_I64, ids, 1, (int64_t[]){SAMPLES});
    gr = weft_view(WEFT_F32, grows, 2, (int64_t[]){SAMPLES, WIDTH});
    w = weft_view(WEFT_F32, gw, 2, w_dim);
    b = weft_view(WEFT_F32, gb, 1, b_dim);
    st = weft_params_weigh(p, shard, SAMPLES + (double)shard);
    if (!st)
        st = weft_params_push(p, shard, "w", &w);
    if (!st)
        st = weft_params_push(p, shard, "b", &b);
    if (!st)
        st = weft_params_push_rows(p, shard, "emb", &id, &gr);
    return st ? st : weft_params_report(p, shard, (double)step + (double)shard);
}

/* All values. */
struct values {
    float w[IN * OUT], b[OUT], emb[ROWS * WIDTH];
};

static void expect_same(const struct values *a, const struct values *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

static weft_params_opts opts(struct program *k, const char *optimizer)
{
    return (weft_params_opts){.size = sizeof(weft_params_opts),
                              .n_vars = 3,
                              .vars = vars,
                              .optimizer = optimizer,
                              .shards = k->shards,
                              .shard = compute,
                              .shard_arg = k};
}

static bool is_child;

static void must(weft_status st)
{
    if (st && is_child) {
        fprintf(stderr, "%s\n", weft_error());
        _exit(1);
    }
    if (st)
        fail_msg("%s", weft_error());
}

static void read_values(weft_params *p, struct values *v)
{
    weft_tensor w = weft_view(WEFT_F32, v->w, 2, w_dim), b = weft_view(WEFT_F32, v->b, 1, b_dim);
    int64_t ids[ROWS];

    for (int i = 0; i < ROWS; i++)
        ids[i] = (i * 7) % ROWS; /* in any order */
    must(weft_params_get(p, "w", &w));
    must(weft_params_get(p, "b", &b));
    must(weft_params_rows(p, "emb", ROWS, ids, v->emb));
}

/* ps: NULL for one process. */
static void train(struct program *k, const weft_params_opts *o, const weft_ps_opts *ps,
                  struct values *out)
{
    weft_ctx *ctx;
    weft_dist *d = NULL;
    weft_params *p;

    (void)k;
    must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx));
    if (ps)
        must(weft_dist_open_ps(ctx, ps, &d));
    must(weft_params_open(ctx, d, o, &p));
    must(weft_params_pull(p));
    while (weft_params_step(p) < STEPS)
        must(weft_params_wait(p));
    read_values(p, out);
    weft_params_free(p);
    weft_dist_free(d);
    weft_ctx_free(ctx);
}

static const char *const optimizers[] = {"sgd learning_rate=0.1",     "adam learning_rate=0.01",
                                         "lamb learning_rate=0.01",   "adagrad clipnorm=0.5",
                                         "sgd global_clipnorm=0.125", NULL};

static void servers_have_the_bits_of_one_process(void **state)
{
    const int shards[] = {1, 2, 3, 5};

    (void)state;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (size_t s = 0; s < 4; s++) {
            struct program k = {.shards = shards[s], .nothing_in_2 = true};
            weft_params_opts o = opts(&k, optimizers[i]);
            struct values one, many;

            o.sum = i % 2;
            train(&k, &o, NULL, &one);
            for (int n = 1; n <= 3; n += 2) {
                train(&k, &o, WEFT_OPTS(weft_ps_opts, .servers = n, .piece_bytes = 64), &many);
                expect_same(&one, &many);
            }
        }
}

/* ---- what a step is -------------------------------------------------------------------------- */

struct by_hand {
    const float *g; /* [shards][4] */
    int shards;
    bool weighs;
};

static weft_status push_given(void *arg, weft_params *p, int64_t shard)
{
    const struct by_hand *k = arg;
    weft_tensor g = weft_view(WEFT_F32, (void *)(uintptr_t)(k->g + shard * 4), 1, (int64_t[]){4});
    weft_status st = weft_params_push(p, shard, "x", &g);

    if (!st && k->weighs)
        st = weft_params_weigh(p, shard, (double)(shard + 2));
    return st ? st : weft_params_report(p, shard, 10.0 * (double)shard);
}

/* Four numbers, one step; returns what was reported. */
static double one_step(const struct by_hand *k, const char *optimizer, bool sum, float *x)
{
    const weft_param var = {.size = sizeof var, .name = "x", .rank = 1, .dim = (int64_t[]){4}};
    const weft_params_opts o = {.size = sizeof o,
                                .n_vars = 1,
                                .vars = &var,
                                .optimizer = optimizer,
                                .shards = k->shards,
                                .sum = sum,
                                .shard = push_given,
                                .shard_arg = (void *)(uintptr_t)k};
    weft_tensor view = weft_view(WEFT_F32, x, 1, (int64_t[]){4});
    weft_ctx *ctx;
    weft_params *p;
    double reported;

    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_params_open(ctx, NULL, &o, &p), 0);
    assert_int_equal(weft_params_set(p, 1, (const char *[]){"x"}, &view), 0);
    assert_int_equal(weft_params_wait(p), 0);
    assert_int_equal(weft_params_step(p), 1);
    assert_int_equal(weft_params_get(p, "x", &view), 0);
    reported = weft_params_reported(p);
    weft_params_free(p);
    weft_ctx_free(ctx);
    return reported;
}

static void a_step_is_what_the_manual_says(void **state)
{
    const float g[3][4] = {{1, 2, 3, 4}, {0.5f, -1, 7, 0.1f}, {3, 3, 3, 0.3f}};
    const struct by_hand k = {g[0], 3, true}, single = {g[1], 1, true}, plain = {g[0], 2, false};

    (void)state;
    for (int sum = 0; sum < 2; sum++) {
        float x[4] = {1, 1, 1, 1}, y[4] = {1, 1, 1, 1}, z[4] = {1, 1, 1, 1}, v[4] = {1, 1, 1, 1};
        double reported = one_step(&k, "sgd learning_rate=0.25", sum, x);

        assert_true(fabs(reported - (0 * 2 + 10 * 3 + 20 * 4) / 9.0) < 1e-12);
        one_step(&k, NULL, sum, y);
        one_step(&single, NULL, sum, z);
        one_step(&plain, NULL, sum, v);
        for (int i = 0; i < 4; i++) {
            float s = (g[0][i] + g[1][i]) + g[2][i], d = sum ? 1 : (float)(1 / 9.0);

            assert_float_equal(x[i], 1 - 0.25f * (s * d), 1e-7);
            assert_true(y[i] == 1 + s * d);
            assert_true(z[i] == 1 + g[1][i] * (sum ? 1 : (float)(1 / 2.0)));
            assert_true(v[i] == 1 + (g[0][i] + g[1][i]) * (sum ? 1 : 0.5f));
        }
    }
}

/* Shards pushed before the wait, and values set between steps: also on servers. */
static void pushes_may_come_before_the_wait(void **state)
{
    const weft_param var = {.size = sizeof var, .name = "x", .rank = 1, .dim = (int64_t[]){3}};
    const weft_params_opts o = {.size = sizeof o, .n_vars = 1, .vars = &var, .shards = 2};

    (void)state;
    for (int ps = 0; ps < 2; ps++) {
        weft_tensor x = weft_view(WEFT_F32, (float[]){1, 2, 3}, 1, (int64_t[]){3}),
                    y = weft_view(WEFT_F32, (float[3]){0}, 1, (int64_t[]){3});
        const float *v = y.data;
        int64_t first, n;
        weft_ctx *ctx;
        weft_dist *d = NULL;
        weft_params *p;

        assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
        if (ps)
            assert_int_equal(weft_dist_open_ps(ctx, WEFT_OPTS(weft_ps_opts, .servers = 2), &d), 0);
        assert_int_equal(weft_params_open(ctx, d, &o, &p), 0);
        weft_params_mine(p, &first, &n);
        assert_int_equal(first, 0);
        assert_int_equal(n, 2);
        assert_int_equal(weft_params_push(p, 0, "x", &x), 0);
        assert_int_equal(weft_params_wait(p), WEFT_EPEER); /* shard 1 is missing */
        assert_non_null(strstr(weft_error(), "shard 1 of step 0"));
        if (ps) { /* the server has shard 0 of this step: that ends a job */
            weft_params_free(p);
            weft_dist_free(d);
            d = NULL;
            assert_int_equal(weft_dist_open_ps(ctx, WEFT_OPTS(weft_ps_opts, .servers = 2), &d), 0);
            assert_int_equal(weft_params_open(ctx, d, &o, &p), 0);
        }
        for (int step = 0; step < 3; step++) {
            assert_int_equal(weft_params_push(p, 0, "x", &y), 0); /* replaced */
            assert_int_equal(weft_params_push(p, 0, "x", &x), 0);
            assert_int_equal(weft_params_push(p, 1, "x", &x), 0);
            assert_int_equal(weft_params_wait(p), 0);
        }
        assert_int_equal(weft_params_get(p, "x", &y), 0);
        assert_true(v[0] == 3 && v[1] == 6 && v[2] == 9);
        if (weft_params_set(p, 1, (const char *[]){"x"}, &x))
            fail_msg("%s", weft_error());
        assert_int_equal(weft_params_step(p), 3);
        assert_int_equal(weft_params_get(p, "x", &y), 0);
        assert_true(v[0] == 1 && v[1] == 2 && v[2] == 3);
        assert_int_equal(weft_params_push(p, 0, "x", &x), 0);
        assert_int_equal(weft_params_push(p, 1, "x", &x), 0);
        assert_int_equal(weft_params_wait(p), 0);
        assert_int_equal(weft_params_get(p, "x", &y), 0);
        assert_true(v[0] == 2 && v[1] == 4 && v[2] == 6);
        weft_params_free(p);
        weft_dist_free(d);
        weft_ctx_free(ctx);
    }
}

/* ---- models that workers train by themselves ------------------------------------------------- */

enum { IN_M = 6, PART = 16, EVERY = 3, ROUNDS = 4 };

struct own {
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
    bool moves_away; /* the trainer is used for something else after each shard */
};

static void open_own(struct own *o)
{
    weft_sym v;

    must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &o->ctx));
    must(weft_model_new(o->ctx, NULL, &o->m));
    v = weft_input(o->m, "x", WEFT_F32, 1, (int64_t[]){IN_M});
    v = weft_apply(o->m, "Dense", "units=5 name=h", v);
    v = weft_apply(o->m, "BatchNormalization", "name=n", v);
    weft_model_output(o->m, weft_apply(o->m, "Dense", "units=1 name=out", v));
    must(weft_compile(
        o->m, WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0.05", .loss = "mse"),
        &o->t));
}

static void close_own(struct own *o)
{
    weft_trainer_free(o->t);
    weft_model_free(o->m);
    weft_ctx_free(o->ctx);
}

/* Steps on the samples of a shard in a round. */
static weft_status train_part(weft_trainer *t, int64_t round, int64_t shard)
{
    weft_status st = WEFT_OK;

    for (int k = 0; k < EVERY && !st; k++) {
        float x[PART][IN_M], y[PART][1];
        weft_tensor xt = weft_view(WEFT_F32, x, 2, (int64_t[]){PART, IN_M}),
                    yt = weft_view(WEFT_F32, y, 2, (int64_t[]){PART, 1});

        for (int i = 0; i < PART; i++) {
            y[i][0] = (float)shard;
            for (int n = 0; n < IN_M; n++)
                x[i][n] = (float)(mix((uint32_t)(round * 100 + shard * 10 + k),
                                      (uint32_t)(i * IN_M + n)) >>
                                  16) /
                              65536 +
                          (float)shard * 0.2f;
        }
        st = weft_train_on_batch(t, &xt, &yt, NULL, NULL);
    }
    return st;
}

static weft_status train_own(void *arg, weft_params *p, int64_t shard)
{
    struct own *o = arg;
    weft_status st = weft_params_to_trainer(p, o->t);

    if (!st)
        st = train_part(o->t, weft_params_step(p), shard);
    if (!st)
        st = weft_params_push_trainer(p, shard, o->t);
    return st || !o->moves_away ? st : train_part(o->t, 99, 7);
}

/* The weights after all rounds; ps: NULL for one process. */
static int merge_rounds(const weft_ps_opts *ps, bool moves_away, float *out)
{
    struct own o = {.moves_away = moves_away};
    weft_dist *d = NULL;
    weft_params *p;
    int n = 0;

    open_own(&o);
    if (ps)
        must(weft_dist_open_ps(o.ctx, ps, &d));
    must(weft_params_open_model(
        o.ctx, d, o.t,
        WEFT_OPTS(weft_params_opts, .shards = 2, .shard = train_own, .shard_arg = &o), &p));
    while (weft_params_step(p) < ROUNDS)
        must(weft_params_wait(p));
    must(weft_params_to_trainer(p, o.t));
    for (int i = 0; i < weft_trainer_n_weights(o.t); i++) {
        weft_tensor v;

        must(weft_trainer_weight(o.t, weft_trainer_weight_name(o.t, i), &v));
        memcpy(out + n, v.data, (size_t)weft_tensor_bytes(&v));
        n += (int)weft_tensor_count(&v);
    }
    weft_params_free(p);
    weft_dist_free(d);
    close_own(&o);
    return n;
}

/* The same by hand: each round two copies of a model are trained, and the mean of what changed is
 * added. */
static int merge_by_hand(float *out)
{
    struct own o = {.moves_away = false};
    float w[200], sum[200];
    int n = 0;

    open_own(&o);
    for (int i = 0; i < weft_trainer_n_weights(o.t); i++) {
        weft_tensor v;

        must(weft_trainer_weight(o.t, weft_trainer_weight_name(o.t, i), &v));
        memcpy(w + n, v.data, (size_t)weft_tensor_bytes(&v));
        n += (int)weft_tensor_count(&v);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int shard = 0; shard < 2; shard++) {
            int at = 0;

            for (int after = 0; after < 2; after++, at = 0) {
                for (int i = 0; i < weft_trainer_n_weights(o.t); i++) {
                    weft_tensor v;
                    int64_t count;

                    must(weft_trainer_weight(o.t, weft_trainer_weight_name(o.t, i), &v));
                    count = weft_tensor_count(&v);
                    for (int64_t k = 0; k < count; k++, at++)
                        if (!after)
                            ((float *)v.data)[k] = w[at];
                        else if (shard == 0)
                            sum[at] = ((float *)v.data)[k] - w[at];
                        else
                            sum[at] += ((float *)v.data)[k] - w[at];
                }
                if (!after)
                    must(train_part(o.t, round, shard));
            }
        }
        for (int k = 0; k < n; k++)
            w[k] += sum[k] * 0.5f;
    }
    memcpy(out, w, (size_t)n * sizeof *w);
    close_own(&o);
    return n;
}

static void workers_train_by_themselves_and_merge(void **state)
{
    float want[200], is[200];
    int n = merge_by_hand(want);

    (void)state;
    for (int servers = 0; servers < 3; servers++)
        for (int away = 0; away < 2; away++) {
            const weft_ps_opts ps = {.size = sizeof ps, .servers = servers, .piece_bytes = 64};

            assert_int_equal(merge_rounds(servers ? &ps : NULL, away, is), n);
            for (int i = 0; i < n; i++)
                if (want[i] != is[i])
                    fail_msg("%d servers: weight %d is %.9g, not %.9g", servers, i, (double)is[i],
                             (double)want[i]);
        }
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect_refused(const weft_params_opts *o, weft_status want, const char *says)
{
    weft_ctx *ctx;
    weft_params *p = NULL;
    weft_status st;

    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    st = weft_params_open(ctx, NULL, o, &p);
    if (st != want || !strstr(weft_error(), says))
        fail_msg("%d: '%s' lacks '%s'", (int)st, weft_error(), says);
    assert_null(p);
    weft_ctx_free(ctx);
}

static void wrong_variables_are_refused(void **state)
{
    weft_param v = {.size = sizeof v, .name = "x", .rank = 1, .dim = (int64_t[]){4}};
    weft_params_opts o = {.size = sizeof o, .n_vars = 1, .vars = &v};

    (void)state;
    o.n_vars = 0;
    expect_refused(&o, WEFT_EINVAL, "0 variables");
    o.n_vars = 1;
    o.mode = (weft_params_mode)7;
    expect_refused(&o, WEFT_EINVAL, "no mode 7");
    o.mode = WEFT_PARAMS_SYNC;
    o.schedule = "exponential_decay";
    expect_refused(&o, WEFT_EINVAL, "needs an optimizer");
    o.schedule = NULL;
    o.optimizer = "adm";
    expect_refused(&o, WEFT_ENOENT, "adam");
    o.optimizer = NULL;
    v.table = true;
    expect_refused(&o, WEFT_EINVAL, "a table is [rows, width]");
    v.table = false;
    v.dim = (int64_t[]){0};
    expect_refused(&o, WEFT_EINVAL, "size 0");
    v.dim = (int64_t[]){4};
    v.name = "a/b";
    expect_refused(&o, WEFT_EINVAL, "'a/b'");
    v.name = "x";
    v.initializer = "glorot";
    expect_refused(&o, WEFT_ENOENT, "glorot");
}

static void wrong_pushes_are_refused(void **state)
{
    struct program k = {.shards = 2};
    weft_params_opts o = opts(&k, NULL);
    float x[IN * OUT] = {0};
    weft_tensor w = weft_view(WEFT_F32, x, 2, w_dim), b = weft_view(WEFT_F32, x, 1, b_dim), out,
                ids = weft_view(WEFT_I32, (int32_t[]){3, ROWS}, 1, (int64_t[]){2}),
                rows = weft_view(WEFT_F32, x, 2, (int64_t[]){2, WIDTH});
    weft_ctx *ctx;
    weft_params *p;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_params_open(ctx, NULL, &o, &p), 0);
    assert_int_equal(weft_params_push(p, 0, "v", &w), WEFT_ENOENT);
    assert_int_equal(weft_params_push(p, 0, "w", &b), WEFT_ESHAPE);
    assert_int_equal(weft_params_push(p, 2, "w", &w), WEFT_ERANGE);
    assert_int_equal(weft_params_push(p, -1, "w", &w), WEFT_ERANGE);
    assert_int_equal(weft_params_push(p, 0, "emb", &w), WEFT_ESTATE);
    assert_int_equal(weft_params_push_rows(p, 0, "w", &ids, &rows), WEFT_ESTATE);
    assert_int_equal(weft_params_push_rows(p, 0, "emb", &ids, &rows), WEFT_EDATA);
    assert_non_null(strstr(weft_error(), "id 40 at position 1"));
    assert_int_equal(weft_params_push_rows(p, 0, "emb", &ids, &b), WEFT_ESHAPE);
    assert_int_equal(weft_params_push_rows(p, 0, "emb", &rows, &rows), WEFT_EDTYPE);
    assert_int_equal(weft_params_weigh(p, 0, 0), WEFT_EINVAL);
    assert_int_equal(weft_params_weigh(p, 0, NAN), WEFT_EINVAL);
    assert_int_equal(weft_params_rows(p, "emb", 1, (int64_t[]){-1}, x), WEFT_ERANGE);
    assert_int_equal(weft_params_rows(p, "w", 1, (int64_t[]){0}, x), WEFT_ESTATE);
    out = b;
    assert_int_equal(weft_params_get(p, "w", &out), WEFT_ESHAPE);
    assert_int_equal(weft_params_get(p, "emb", &out), WEFT_ESTATE);
    assert_int_equal(weft_params_set(p, 1, (const char *[]){"emb"}, &w), WEFT_ESTATE);
    weft_params_free(p);
    weft_params_free(NULL);
    weft_ctx_free(ctx);
}

/* The tables that servers hold are in the file, too: it has the bytes of one process. */
static void values_are_saved_by_servers(const weft_params_opts *o, const char *path)
{
    char other[96], command[256];

    snprintf(other, sizeof other, "%s/served.safetensors", dir);
    for (int servers = 1; servers < 3; servers++) {
        weft_ctx *ctx;
        weft_dist *d;
        weft_params *p;

        must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx));
        must(weft_dist_open_ps(ctx, WEFT_OPTS(weft_ps_opts, .servers = servers, .piece_bytes = 64),
                               &d));
        must(weft_params_open(ctx, d, o, &p));
        for (int i = 0; i < 3; i++)
            must(weft_params_wait(p));
        must(weft_params_save(p, other));
        must(weft_params_wait(p)); /* the job goes on */
        weft_params_free(p);
        weft_dist_free(d);
        weft_ctx_free(ctx);
        snprintf(command, sizeof command, "cmp %s %s", path, other);
        assert_int_equal(system(command), 0);
    }
}

static void values_are_saved_and_loaded(void **state)
{
    struct program k = {.shards = 2};
    weft_params_opts o = opts(&k, "adam");
    struct values was, is, next;
    char path[96];
    weft_ctx *ctx;
    weft_params *p;

    (void)state;
    snprintf(path, sizeof path, "%s/values.safetensors", dir);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 1), &ctx), 0);
    assert_int_equal(weft_params_open(ctx, NULL, &o, &p), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weft_params_wait(p), 0);
    read_values(p, &was);
    if (weft_params_save(p, path))
        fail_msg("%s", weft_error());
    assert_int_equal(weft_params_load(p, path), WEFT_ESTATE);
    weft_params_free(p);
    weft_ctx_free(ctx);
    values_are_saved_by_servers(&o, path);
    for (int ps = 0; ps < 3; ps++) {
        weft_dist *d = NULL;

        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .seed = 2), &ctx), 0);
        if (ps)
            assert_int_equal(weft_dist_open_ps(ctx, WEFT_OPTS(weft_ps_opts, .servers = ps), &d), 0);
        assert_int_equal(weft_params_open(ctx, d, &o, &p), 0);
        must(weft_params_load(p, path));
        must(weft_params_load(p, path)); /* a second time changes nothing */
        must(weft_params_pull(p));
        read_values(p, &is);
        expect_same(&was, &is);
        must(weft_params_wait(p));
        read_values(p, ps ? &is : &next); /* and training continues from them */
        if (ps)
            expect_same(&next, &is);
        weft_params_free(p);
        weft_dist_free(d);
        weft_ctx_free(ctx);
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

struct job {
    char cluster[256];
    int n_servers, n_workers;
    struct program k;
    const char *out;    /* where the first worker writes the values */
    const char *folder; /* of checkpoints, or NULL */
};

static void work(const struct job *j, const char *task, struct program k)
{
    weft_params_opts o = opts(&k, "adam learning_rate=0.01 global_clipnorm=1");
    struct values v;
    FILE *f;

    o.checkpoint = j->folder;
    o.checkpoint_steps = 2;
    train(&k, &o, WEFT_OPTS(weft_ps_opts, .cluster = j->cluster, .task = task, .piece_bytes = 64),
          &v);
    if (strcmp(task, "worker/0") != 0)
        return;
    f = fopen(j->out, "wb");
    if (!f || fwrite(&v, sizeof v, 1, f) != 1 || fclose(f))
        _exit(1);
}

/* A child process that is one task. */
static pid_t start(const struct job *j, const char *task, const struct program *k)
{
    pid_t pid = fork();
    weft_ctx *ctx;

    if (pid)
        return pid;
    is_child = true;
    alarm(300);
    if (strncmp(task, "worker", 6) == 0) {
        work(j, task, *k);
        _exit(0);
    }
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) ||
        weft_ps_serve(ctx, WEFT_OPTS(weft_ps_opts, .cluster = j->cluster, .task = task))) {
        fprintf(stderr, "%s: %s\n", task, weft_error());
        _exit(1);
    }
    weft_ctx_free(ctx);
    _exit(0);
}

/* Runs all tasks; those that are killed start again. Returns how many were. A task that comes back
 * after the job has ended finds nobody: it is ended. */
static int run_job(struct job *j, const char *name)
{
    struct {
        char task[16];
        pid_t pid;
        bool again;
    } t[16] = {{.pid = 0}};
    int n = 0, killed = 0, left;
    size_t at = (size_t)snprintf(j->cluster, sizeof j->cluster, "chief=uds:%s/%s-c;ps=", dir, name);

    for (int i = 0; i < j->n_servers; i++)
        at += (size_t)snprintf(j->cluster + at, sizeof j->cluster - at, "%suds:%s/%s-p%d",
                               i ? "," : "", dir, name, i);
    snprintf(j->cluster + at, sizeof j->cluster - at, ";worker=%d", j->n_workers);
    strcpy(t[n++].task, "chief/0");
    for (int i = 0; i < j->n_servers; i++)
        snprintf(t[n++].task, sizeof t[0].task, "ps/%d", i);
    for (int i = 0; i < j->n_workers; i++)
        snprintf(t[n++].task, sizeof t[0].task, "worker/%d", i);
    for (int i = 0; i < n; i++) {
        struct program k = {.shards = j->k.shards};

        if (strcmp(t[i].task, "worker/1") == 0)
            k.die_at = j->k.die_at;
        if (strcmp(t[i].task, "worker/0") == 0 && j->k.kill_at) {
            k.kill_at = j->k.kill_at;
            k.victim = t[j->n_servers].pid; /* the last server */
        }
        t[i].pid = start(j, t[i].task, &k);
        assert_true(t[i].pid > 0);
    }
    for (left = n; left > 0;) {
        int status, i = 0;
        pid_t pid = wait(&status);
        struct program k = {.shards = j->k.shards};

        assert_true(pid > 0);
        while (i < n && t[i].pid != pid)
            i++;
        assert_true(i < n);
        if (t[i].again && t[0].pid == 0 &&
            !(WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM)) { /* it found nobody */
            t[i].pid = 0;
            left--;
            continue;
        }
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
            char path[96];

            killed++;
            t[i].again = true;
            snprintf(path, sizeof path, "%s/%s-p%d", dir, name, j->n_servers - 1);
            if (t[i].task[0] == 'p')
                unlink(path); /* it left its socket behind */
            if (t[0].pid)
                t[i].pid = start(j, t[i].task, &k);
            else
                left--;
            continue;
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s ended with %x", t[i].task, (unsigned)status);
        left--;
        t[i].pid = 0;
        for (int m = 0; m < n && t[0].pid == 0; m++)
            if (t[m].pid && t[m].again)
                kill(t[m].pid, SIGTERM);
    }
    return killed;
}

static void read_file(const char *path, struct values *v)
{
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fread(v, sizeof *v, 1, f), 1);
    fclose(f);
}

static void killed_processes_change_no_bit(void **state)
{
    struct program one = {.shards = 3};
    weft_params_opts o = opts(&one, "adam learning_rate=0.01 global_clipnorm=1");
    struct values want, is;
    char path[96];

    (void)state;
    train(&one, &o, NULL, &want);
    snprintf(path, sizeof path, "%s/result", dir);
    for (int run = 0; run < 4; run++) {
        struct job j = {.n_servers = 2,
                        .n_workers = 2 + run % 2,
                        .k = {.shards = 3, .die_at = run & 1 ? 4 : 0, .kill_at = run & 2 ? 6 : 0},
                        .out = path};
        char name[8];

        snprintf(name, sizeof name, "j%d", run);
        unlink(path);
        assert_int_equal(run_job(&j, name), (run & 1) + (run >> 1));
        read_file(path, &is);
        expect_same(&want, &is);
    }
}

/* The only server dies: with checkpoints and without, and the result is the same. Then the same job
 * continues from its last checkpoint, with other servers. */
static void the_only_copy_may_be_lost(void **state)
{
    struct program one = {.shards = 3};
    weft_params_opts o = opts(&one, "adam learning_rate=0.01 global_clipnorm=1");
    struct values want, is;
    char path[96], folder[96];

    (void)state;
    train(&one, &o, NULL, &want);
    snprintf(path, sizeof path, "%s/result", dir);
    snprintf(folder, sizeof folder, "%s/ckpt", dir);
    for (int run = 0; run < 3; run++) {
        struct job j = {.n_servers = run == 2 ? 2 : 1,
                        .n_workers = 2,
                        .k = {.shards = 3, .kill_at = run == 2 ? 0 : 7},
                        .out = path,
                        .folder = run ? folder : NULL};
        char name[8];

        snprintf(name, sizeof name, "b%d", run);
        unlink(path);
        assert_int_equal(run_job(&j, name), run < 2);
        read_file(path, &is);
        expect_same(&want, &is);
    }
}

/* In one process and with servers in the process; from one to the other. */
static void checkpoints_continue_anywhere(void **state)
{
    struct program k = {.shards = 2};
    weft_params_opts o = opts(&k, "adam learning_rate=0.01");
    struct values want, is;
    char folder[96];

    (void)state;
    train(&k, &o, NULL, &want);
    snprintf(folder, sizeof folder, "%s/there", dir);
    o.checkpoint = folder;
    o.checkpoint_steps = 3;
    for (int stop = 2; stop <= STEPS; stop += 5) { /* 2, 7, 12 */
        bool ps = stop == 7;
        weft_ctx *ctx;
        weft_dist *d = NULL;
        weft_params *p;

        must(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx));
        if (ps)
            must(weft_dist_open_ps(ctx, WEFT_OPTS(weft_ps_opts, .servers = 2), &d));
        must(weft_params_open(ctx, d, &o, &p));
        assert_int_equal(weft_params_checkpoint(p), WEFT_ESTATE);
        must(weft_params_pull(p));
        assert_int_equal(weft_params_step(p), stop == 2 ? 0 : stop - 5);
        while (weft_params_step(p) < stop)
            must(weft_params_wait(p));
        must(weft_params_checkpoint(p));
        read_values(p, &is);
        weft_params_free(p);
        weft_dist_free(d);
        weft_ctx_free(ctx);
    }
    expect_same(&want, &is);
    o.checkpoint = NULL;
    k.shards = 2;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_what_the_manual_says),
        cmocka_unit_test(pushes_may_come_before_the_wait),
        cmocka_unit_test(servers_have_the_bits_of_one_process),
        cmocka_unit_test(workers_train_by_themselves_and_merge),
        cmocka_unit_test(wrong_variables_are_refused),
        cmocka_unit_test(wrong_pushes_are_refused),
        cmocka_unit_test(values_are_saved_and_loaded),
        cmocka_unit_test(checkpoints_continue_anywhere),
        cmocka_unit_test(killed_processes_change_no_bit),
        cmocka_unit_test(the_only_copy_may_be_lost),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
