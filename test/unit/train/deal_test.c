/* deal_test.c - fit on the dealer: a process reads the samples of its shards alone, a position is a
 * step, and a run resumes with any number of threads from any kind of source. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 50, F = 4, BATCH = 8, STEPS = 7 };

static weft_ctx *ctx;
static char folder[] = "deal-XXXXXX";

/* ---- data ------------------------------------------------------------------------------------ */

enum source { MEMORY, STREAM, MAPPED, PADDED, PADDED_STREAM, SHORTER, ENDLESS, N_SOURCES };

static _Atomic int n_read[N];

static const weft_column columns[2] = {{.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {F}},
                                       {.name = "y", .dtype = WEFT_F32, .role = WEFT_LABEL}};
/* sequences of 1 to F values */
static const weft_column varying[2] = {{.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {-1}},
                                       {.name = "y", .dtype = WEFT_F32, .role = WEFT_LABEL}};

static weft_status fill(int64_t id, int64_t n, weft_sample *s)
{
    for (int64_t k = 0; k < n; k++)
        ((float *)s->col[0].data)[k] = (float)((id * 37 + k * 11) % 19) / 19;
    *(float *)s->col[1].data = (float)(id % 7) / 7;
    n_read[id]++;
    return WEFT_OK;
}

static weft_status get(void *arg, int64_t id, weft_sample *s)
{
    (void)arg;
    return fill(id, F, s);
}

static weft_status get_varying(void *arg, int64_t id, weft_sample *s)
{
    int64_t n = 1 + id * 5 % F;

    (void)arg;
    return weft_sample_shape(s, 0, 1, &n) ? WEFT_ENOMEM : fill(id, n, s);
}

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    *end = id == N;
    return *end ? WEFT_OK : get(arg, id, s);
}

static weft_status next_varying(void *arg, int64_t id, weft_sample *s, bool *end)
{
    *end = id == N;
    return *end ? WEFT_OK : get_varying(arg, id, s);
}

/* Epochs of different lengths. */
static weft_status keep_some(void *arg, const weft_sample *in, bool *keep)
{
    (void)arg;
    *keep = (in->id + in->epoch) % (2 + in->epoch) != 0;
    return WEFT_OK;
}

static weft_status same(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    for (int i = 0; i < in->n_cols; i++) {
        if (weft_sample_shape(out, i, in->col[i].rank, in->col[i].dim))
            return WEFT_ENOMEM;
        memcpy(out->col[i].data, in->col[i].data, (size_t)weft_tensor_bytes(&in->col[i]));
    }
    return WEFT_OK;
}

static weft_ds dataset(weft_data *d, enum source source)
{
    const weft_pad_column pad = {.column = "x", .length = {F}};
    const weft_padded_batch_opts padded = {.size = sizeof padded, .n_pads = 1, .pads = &pad};
    weft_ds s = weft_ds_get(d, 2, columns, N, get, NULL);

    switch (source) {
    case STREAM: return weft_ds_stream(d, 2, columns, next, NULL);
    case MAPPED: return weft_ds_map(d, weft_ds_batch(d, s, BATCH, NULL), 0, NULL, same, NULL, NULL);
    case PADDED:
        return weft_ds_padded_batch(d, weft_ds_get(d, 2, varying, N, get_varying, NULL), BATCH,
                                    &padded);
    case PADDED_STREAM:
        return weft_ds_padded_batch(d, weft_ds_stream(d, 2, varying, next_varying, NULL), BATCH,
                                    &padded);
    case SHORTER: return weft_ds_filter(d, s, keep_some, NULL);
    case ENDLESS: return weft_ds_repeat(d, s, 0);
    default: return s;
    }
}

/* ---- training -------------------------------------------------------------------------------- */

struct setting {
    enum source source;
    int shards, accumulate, threads;
    int stop_after; /* batches; 0: not at all */
    const char *dir;
    double validation_split; /* validated once, at the end */
    const weft_strategy *strategy;
    void *arg;
};

struct result {
    char *bytes;
    size_t n;
    int64_t n_batches;
    double loss[3];
};

static weft_status count(void *arg, weft_trainer *t, int64_t batch, const weft_logs *logs)
{
    struct result *r = arg;

    (void)batch;
    (void)logs;
    if (--r->n_batches == 0)
        weft_trainer_interrupt(t);
    return WEFT_OK;
}

static struct result train(const struct setting *c)
{
    struct result r = {.n_batches = c->stop_after};
    weft_callback stop = {.size = sizeof stop, .name = "stop", .arg = &r, .batch_end = count};
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_dist *dist = NULL;
    weft_history *h = NULL;
    weft_sym v;

    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    v = weft_apply(m, "Dense", "units=9 activation=tanh", v);
    v = weft_apply(m, "Dropout", "rate=0.2", v);
    weft_model_output(m, weft_apply(m, "Dense", "units=1", v));
    if (c->strategy) {
        assert_int_equal(weft_dist_open_with(ctx, c->strategy, c->arg, &dist), 0);
        assert_int_equal(weft_dist_scope(dist, m), 0);
    }
    assert_int_equal(
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "adam", .loss = "mean_squared_error",
                               .shards = c->shards, .accumulate = c->accumulate),
                     &t),
        0);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    if (weft_fit(t, d, dataset(d, c->source),
                 WEFT_OPTS(weft_fit_opts, .epochs = 3, .batch = BATCH, .threads = c->threads,
                           .steps_per_epoch = c->source == ENDLESS ? 5 : 0, .checkpoint = c->dir,
                           .validation_split = c->validation_split, .validation_freq = 3,
                           .n_callbacks = 1, .callbacks = &stop),
                 &h))
        fail_msg("source %d: %s", c->source, weft_error());
    r.bytes = store_bytes(t->bound->fit->store, &r.n);
    r.n_batches = -r.n_batches;
    for (int64_t i = 0; i < h->n_epochs; i++)
        r.loss[i] = h->value[i * h->n_names];
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    return r;
}

static void remove_runs(const char *dir)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* ---- which samples are read ------------------------------------------------------------------ */

/* Computes the shards of one worker of `of`, as if others computed the rest. */
struct one {
    int64_t worker, of;
};

static weft_status open_one(weft_ctx *c, void *arg, void **self, int *replicas, int *local,
                            int *first)
{
    (void)c;
    *self = arg;
    *replicas = *local = 1;
    *first = 0;
    return WEFT_OK;
}

static weft_status compute_one(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    const struct one *o = self;
    weft_status st = WEFT_OK;

    (void)t;
    for (int64_t k = first; k < first + n && !st; k++) {
        weft_given given;

        if (k % o->of != o->worker)
            continue;
        st = weft_work_compute(w, 0, k, &given);
        if (!st)
            st = weft_work_put(w, k, &given);
    }
    return st;
}

static weft_status apply_one(void *self, weft_work *w, int64_t t)
{
    (void)self;
    (void)t;
    return weft_work_update(w);
}

static const weft_strategy one_strategy = {.size = sizeof one_strategy,
                                           .name = "one",
                                           .open = open_one,
                                           .compute = compute_one,
                                           .apply = apply_one};

/* How often three epochs have each sample in these shards. */
static void expect_reads(enum source source, int shards, const struct one *o, int *want)
{
    weft_data *d;
    weft_dealer *a;
    weft_ds s;
    bool has = true;
    int64_t t = 0;

    assert_int_equal(weft_data_new(ctx, &d), 0);
    s = dataset(d, source);
    if (source == MEMORY) /* as fit does it */
        s = weft_ds_batch(d, weft_ds_shuffle_all(d, s, NULL), BATCH, NULL);
    assert_int_equal(
        weft_dealer_new(d, s, WEFT_OPTS(weft_dealer_opts, .shards = shards, .threads = WEFT_ZERO),
                        &a),
        0);
    for (int epoch = 0; epoch < 3; epoch++)
        for (;; t++) {
            assert_int_equal(weft_dealer_has(a, epoch, t, &has), 0);
            for (int64_t l = o->worker; l < shards && has; l += o->of) {
                weft_batch *b;

                assert_int_equal(weft_dealer_get(a, t, l, &b), 0);
                for (int64_t i = 0; i < b->n; i++)
                    want[b->id[i]]++;
                weft_batch_free(b);
            }
            if (!has)
                break;
        }
    assert_int_equal(t, 3 * STEPS);
    weft_dealer_free(a);
    weft_data_free(d);
}

static void a_process_reads_only_the_samples_of_its_shards(void **state)
{
    static const int threads[] = {WEFT_ZERO, 1, 3};

    (void)state;
    for (int source = MEMORY; source <= PADDED; source += PADDED - MEMORY)
        for (int shards = 1; shards <= 12;
             shards += shards < 4 ? 1 : 4) /* more than samples, too */
            for (int i = 0; i < 3; i++) {
                struct one o = {.worker = shards / 2 % 3, .of = 3};
                struct setting c = {.source = (enum source)source,
                                    .shards = shards,
                                    .threads = threads[i],
                                    .strategy = &one_strategy,
                                    .arg = &o};
                int want[N] = {0};
                struct result r;

                expect_reads(c.source, shards, &o, want);
                memset((void *)n_read, 0, sizeof n_read);
                r = train(&c);
                free(r.bytes);
                for (int k = 0; k < N; k++)
                    if (n_read[k] != want[k])
                        fail_msg("source %d, %d shards, %d threads: sample %d was read %d times, "
                                 "not %d",
                                 source, shards, threads[i], k, n_read[k], want[k]);
            }
}

/* The last samples are held out before fit shuffles: training never reads them. */
static void held_out_samples_are_not_trained_on(void **state)
{
    static const double split[] = {0.1, 0.3, 0.77};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct setting c = {.shards = 1 + i, .validation_split = split[i], .threads = i};
        int rest = (int)(N * (1.0 - split[i]));
        struct result r;

        memset((void *)n_read, 0, sizeof n_read);
        r = train(&c);
        free(r.bytes);
        for (int k = 0; k < N; k++) /* three epochs, one validation */
            assert_int_equal(n_read[k], k < rest ? 3 : 1);
    }
}

/* ---- positions ------------------------------------------------------------------------------- */

/* The step that the newest checkpoint's position names, read by a dealer with other shards. */
static int64_t saved_step(enum source source, const char *dir)
{
    weft_ckpt *k;
    char *blob;
    int64_t n, t;
    weft_data *d;
    weft_dealer *a;
    weft_ds s;

    assert_int_equal(weft_ckpt_open_latest(ctx, dir, &k), 0);
    assert_int_equal(weft_ckpt_blob_read(k, WEFT_CKPT_POSITION, &blob, &n), 0);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    s = dataset(d, source);
    if (source == MEMORY)
        s = weft_ds_shuffle_all(d, s, NULL);
    if (source == MEMORY || source == STREAM || source == SHORTER || source == ENDLESS)
        s = weft_ds_batch(d, s, BATCH, NULL);
    assert_int_equal(weft_dealer_new(d, s, WEFT_OPTS(weft_dealer_opts, .shards = 5), &a), 0);
    if (weft_dealer_restore(a, blob, n))
        fail_msg("source %d: %s", source, weft_error());
    t = weft_dealer_committed(a);
    weft_dealer_free(a);
    weft_data_free(d);
    weft_text_free(ctx, blob);
    weft_ckpt_close(k);
    return t;
}

static void a_run_resumes_in_the_middle_of_an_epoch_with_other_threads(void **state)
{
    static const int shards[] = {1, 3}, threads[] = {1, WEFT_ZERO, 3};
    char dir[64];

    (void)state;
    snprintf(dir, sizeof dir, "%s/run", folder);
    for (int i = 0; i < N_SOURCES * 2; i++) {
        struct setting c = {.source = (enum source)(i / 2), .shards = shards[i % 2]};
        struct result whole, part;
        int64_t done = 0;

        c.accumulate = c.shards == 3 ? 2 : 1;
        whole = train(&c);
        c.dir = dir;
        for (int k = 0; done < whole.n_batches; k++) {
            c.threads = threads[k % 3];
            c.stop_after = 3 + k;
            part = train(&c);
            done += c.stop_after + part.n_batches;
            if (done < whole.n_batches) {
                assert_int_equal(saved_step(c.source, dir), done);
                free(part.bytes);
            }
        }
        assert_int_equal(done, whole.n_batches);
        assert_int_equal(part.n, whole.n);
        assert_memory_equal(part.bytes, whole.bytes, whole.n);
        assert_memory_equal(part.loss, whole.loss, sizeof whole.loss);
        free(part.bytes);
        free(whole.bytes);
        remove_runs(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_reads_only_the_samples_of_its_shards),
        cmocka_unit_test(held_out_samples_are_not_trained_on),
        cmocka_unit_test(a_run_resumes_in_the_middle_of_an_epoch_with_other_threads),
    };
    int failed;

    if (!mkdtemp(folder) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5), &ctx))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    weft_ctx_free(ctx);
    remove_runs(folder);
    return failed;
}
