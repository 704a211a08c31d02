/* Fingerprints of runs: each thing that the numbers depend on, changed in turn, is named when the
 * run resumes; what they do not depend on is not. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../support/ckpt_sample.h"
#include "train/loop/fingerprint.h"
#include "weft/weft.h"

#define N 96

/* A run, in all that is changed below. */
struct run {
    int threads;
    weft_simd simd;
    weft_kernels kernels;
    uint64_t seed;
    bool flush;
    const char *layer, *optimizer, *loss;
    int shards, accumulate;
    const char *precision;
    int64_t batch, take;
    uint64_t data_seed;
    const char *file;
    int rows; /* of the file */
};

static const struct run plain = {.threads = 1,
                                 .simd = WEFT_SIMD_PORTABLE,
                                 .seed = 5,
                                 .layer = "units=6 activation=tanh",
                                 .optimizer = "adam",
                                 .loss = "mse",
                                 .shards = 1,
                                 .accumulate = 1,
                                 .batch = 16,
                                 .take = 80,
                                 .data_seed = 3,
                                 .file = "data.csv",
                                 .rows = N};
static char dir[64];
static char log_text[1 << 16];

static void note(void *arg, int level, const char *line)
{
    (void)arg;
    if (level < WEFT_LOG_WARN)
        return;
    strncat(log_text, line, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static void write_file(const struct run *r)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, r->file);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "a,b,y\n");
    for (int i = 0; i < N; i++)
        fprintf(f, "%g,%g,%g\n", i % 7 * 0.25, i % 5 * 0.5, i == 0 ? r->rows * 0.01 : i % 3 * 1.0);
    fclose(f);
}

static weft_model *build(weft_ctx *ctx, const struct run *r)
{
    weft_model *m;
    weft_sym s;

    ok(weft_model_new(ctx, NULL, &m));
    s = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){2});
    s = weft_apply(m, "Dense", r->layer, s);
    s = weft_apply(m, "Dropout", "rate=0.25", s);
    s = weft_apply(m, "Dense", "units=1", s);
    weft_model_output(m, s);
    return m;
}

static weft_ds rows(weft_data *d, const struct run *r)
{
    char path[128];
    weft_ds s;

    snprintf(path, sizeof path, "%s/%s", dir, r->file);
    s = weft_ds_csv(d, path, WEFT_OPTS(weft_csv_opts, .label = "y"));
    s = weft_ds_join(d, s, "a, b", "x", WEFT_F32);
    s = weft_ds_shuffle(d, s, 32, WEFT_OPTS(weft_shuffle_opts, .seed = r->data_seed));
    return weft_ds_take(d, s, r->take);
}

/* Trains up to an epoch with checkpoints in dir/ckpt; warnings are in log_text. */
static weft_status train(const struct run *r, int64_t epochs)
{
    weft_ctx *ctx;
    weft_data *d;
    weft_trainer *t;
    weft_model *m;
    char ckpt[128];
    weft_status st;

    log_text[0] = 0;
    write_file(r);
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = r->threads, .seed = r->seed,
                              .simd = r->simd, .kernels = r->kernels, .flush_denormals = r->flush,
                              .log = note),
                    &ctx));
    m = build(ctx, r);
    ok(weft_compile(m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = r->optimizer, .loss = r->loss,
                              .shards = r->shards, .accumulate = r->accumulate,
                              .precision = r->precision),
                    &t));
    ok(weft_data_new(ctx, &d));
    st = weft_fit(t, d, rows(d, r),
                  WEFT_OPTS(weft_fit_opts, .epochs = epochs, .batch = r->batch, .checkpoint = ckpt),
                  NULL);
    if (st) {
        strcat(log_text, "error: ");
        strcat(log_text, weft_error());
    }
    weft_trainer_free(t);
    weft_model_free(m);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return st;
}

/* Resumes a plain run as another one. */
static const char *resume_as(struct run r)
{
    temp_make(dir);
    ok(train(&plain, 1));
    assert_string_equal(log_text, "");
    (void)train(&r, 2);
    temp_remove(dir);
    return log_text;
}

static void expect(struct run r, const char *text)
{
    const char *log = resume_as(r);

    if (!strstr(log, text))
        print_error("wanted: %s\nfound: %s\n", text, log);
    assert_non_null(strstr(log, text));
}

static void what_does_not_matter_is_not_said(void **state)
{
    struct run r = plain;

    (void)state;
    assert_string_equal(resume_as(r), "");
    r.threads = 3;
    assert_string_equal(resume_as(r), "");
}

static void a_changed_graph_is_named(void **state)
{
    struct run r = plain;

    (void)state;
    r.layer = "units=6 activation=sigmoid";
    expect(r, "sigmoid(%");
    expect(r, " here and tanh(%");
    r.layer = "units=6 activation=leaky_relu";
    expect(r, "is leaky_relu(%");
}

static void a_changed_variable_is_named(void **state)
{
    struct run r = plain;

    (void)state;
    r.layer = "units=5 activation=tanh";
    expect(r, "variable 'dense/kernel' is f32[2,5] (parameter at 0");
    expect(r, "here and f32[2,6] (parameter at 0");
    expect(r, "error: ");
    expect(r, "is f32[2,6], but f32[2,5] was requested");
    r.layer = "units=6 activation=tanh use_bias=false";
    expect(r, "variable 'dense/bias' is f32[6] (parameter at");
}

static void changed_training_is_named(void **state)
{
    struct run r = plain;

    (void)state;
    r.loss = "mae";
    expect(r, "the loss is mae here and mse in ");
    assert_null(strstr(log_text, "node "));
    r = plain;
    r.shards = 2;
    expect(r, "the number of shards is 2 here and 1 in ");
    r = plain;
    r.accumulate = 2;
    expect(r, "the number of accumulated batches is 2 here and 1 in ");
    r = plain;
    r.precision = "bf16";
    expect(r, "the precision is bf16 here and ");
    r = plain;
    r.seed = 6;
    expect(r, "it was written with seed 5, this run has 6");
}

static void changed_data_is_named(void **state)
{
    struct run r = plain;

    (void)state;
    r.batch = 8;
    expect(r, "the batch size is 8 here and 16 in ");
    r = plain;
    r.take = 64;
    expect(r, "of the data is 'take n=64");
    r = plain;
    r.data_seed = 4;
    expect(r, "of the data is 'shuffle 32 seed=4");
    r = plain;
    r.rows = N + 1; /* one value of the file */
    expect(r, "the content of 'data.csv' is ");
}

static void changed_kernels_are_named(void **state)
{
    struct run r = plain;

    (void)state;
    r.flush = true;
    expect(r, "the treatment of denormals is flushed here and kept in ");
    assert_non_null(strstr(log_text, ": the last bits of results may differ"));
    assert_null(strstr(log_text, "node "));
    r = plain;
    r.kernels = WEFT_KERNELS_PORTABLE;
    expect(r, "the choice of kernels is portable here and best in ");
    if (weft_simd_best() == WEFT_SIMD_PORTABLE)
        return;
    r = plain;
    r.simd = weft_simd_best();
    expect(r, "the SIMD level is avx");
    assert_non_null(strstr(log_text, " here and portable in "));
}

/* ---- what is in a checkpoint ----------------------------------------------------------------- */

static weft_status warn_about(const weft_ckpt_data *data, const struct wf_fprint *here,
                              unsigned *found)
{
    struct sample_log log = {""};
    weft_ctx *ctx;
    weft_ckpt_writer *w;
    weft_ckpt *c;
    char path[64];
    weft_status st;

    temp_make(path);
    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = sample_log_fn, .log_arg = &log),
                    &ctx));
    ok(weft_ckpt_writer_new(ctx, path, NULL, &w));
    ok(weft_ckpt_save(w, data));
    ok(weft_ckpt_writer_close(w));
    ok(weft_ckpt_open_latest(ctx, path, &c));
    st = wf_fingerprint_warn(ctx, c, here, ~0u, found);
    snprintf(log_text, sizeof log_text, "%s", log.text);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    temp_remove(path);
    return st;
}

static void older_checkpoints_are_compared_as_far_as_they_go(void **state)
{
    weft_ckpt_pair meta[] = {{"optimizer", "sgd"}, {"shards", "4"}, {"other", "1"}};
    struct wf_fprint here;
    weft_ctx *ctx;
    unsigned found;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    wf_fp_init(&here, ctx);
    wf_fp_add(&here, WF_FP_TRAINING, "the optimizer", NULL, "adam");
    wf_fp_add(&here, WF_FP_TRAINING, "the number of shards", NULL, "4");
    wf_fp_add(&here, WF_FP_GRAPH, "node 0", NULL, "relu(%%1)");
    ok(warn_about(WEFT_OPTS(weft_ckpt_data, .step = 1, .n_meta = 3, .meta = meta), &here, &found));
    assert_int_equal(found, 1u << WF_FP_TRAINING);
    assert_non_null(strstr(log_text, "the optimizer is adam here and sgd in "));
    assert_null(strstr(log_text, "shards"));
    ok(warn_about(WEFT_OPTS(weft_ckpt_data, .step = 1), &here, &found));
    assert_int_equal(found, 0);
    wf_fp_free(&here);
    weft_ctx_free(ctx);
}

static void a_damaged_fingerprint_is_refused(void **state)
{
    const char bad[] = "weft fingerprint 1\npart training 0 0 0\n";
    weft_ckpt_blob blob = {WF_CKPT_FINGERPRINT, bad, sizeof bad - 1};
    struct wf_fprint here;
    weft_ctx *ctx;
    unsigned found;

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    wf_fp_init(&here, ctx);
    assert_int_equal(warn_about(WEFT_OPTS(weft_ckpt_data, .step = 1, .n_blobs = 1, .blobs = &blob),
                                &here, &found),
                     WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "fingerprint.txt: the fingerprint is damaged"));
    wf_fp_free(&here);
    weft_ctx_free(ctx);
}

static void a_checkpoint_shows_its_hashes(void **state)
{
    weft_ctx *ctx;
    weft_ckpt *c;
    char ckpt[128];
    const weft_ckpt_data *info;
    int n_hashes = 0;

    (void)state;
    temp_make(dir);
    ok(train(&plain, 1));
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_ckpt_open_latest(ctx, ckpt, &c));
    info = weft_ckpt_info(c);
    assert_true(info->fingerprint != 0);
    for (int64_t i = 0; i < info->n_meta; i++)
        if (strncmp(info->meta[i].key, "fingerprint.", 12) == 0) {
            n_hashes++;
            assert_int_equal(strlen(info->meta[i].value), 16);
        }
    assert_int_equal(n_hashes, WF_N_FP);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    temp_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_not_matter_is_not_said),
        cmocka_unit_test(a_changed_graph_is_named),
        cmocka_unit_test(a_changed_variable_is_named),
        cmocka_unit_test(changed_training_is_named),
        cmocka_unit_test(changed_data_is_named),
        cmocka_unit_test(changed_kernels_are_named),
        cmocka_unit_test(older_checkpoints_are_compared_as_far_as_they_go),
        cmocka_unit_test(a_damaged_fingerprint_is_refused),
        cmocka_unit_test(a_checkpoint_shows_its_hashes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
