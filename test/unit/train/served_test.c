/* served_test.c - tables that parameter servers hold, and checkpoints: written by one strategy,
 * they are resumed by another, with other numbers of servers, and end with identical values. */
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

enum { N = 60, T = 3, WORDS = 700 };

static int32_t ids[N][T], y[N];
static char folder[64];

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < T; k++)
            ids[i][k] = (i * 83 + k * 211) % WORDS;
        y[i] = i % 4;
    }
    snprintf(folder, sizeof folder, "/tmp/weft-served-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

struct result {
    weft_status st;
    char *bytes;
    size_t n;
    double loss, before; /* of the last epoch; of what was read, before the first step */
    char error[300];
};

struct run {
    const weft_ps_opts *ps; /* NULL: local */
    const char *dir;
    const char *attrs; /* of the table */
    int epochs;
    bool judged; /* before it is trained */
    bool large;  /* the table does not fit in memory */
};

static weft_trainer *compile(weft_ctx *ctx, const struct run *r, weft_model *m, weft_dist **dist)
{
    weft_trainer *t = NULL;
    weft_sym e = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});

    e = weft_apply(m, "Flatten", NULL, weft_apply(m, "Embedding", r->attrs, e));
    weft_model_output(m, weft_apply(m, "Dense", "units=4", e));
    if (r->ps) {
        assert_int_equal(weft_dist_open_ps(ctx, r->ps, dist), 0);
        assert_int_equal(weft_dist_scope(*dist, m), 0);
    }
    assert_int_equal(
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.05",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .shards = 2),
                     &t),
        0);
    return t;
}

static struct result train(const struct run *r)
{
    struct result out = {.st = WEFT_OK};
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_history *h = NULL;
    weft_logs logs;
    weft_ds s;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 8), &ctx), 0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    t = compile(ctx, r, m, &dist);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    s = weft_ds_tensors(d, 2, (weft_column[]){{.name = "ids"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_I32, ids, 2, (int64_t[]){N, T}),
                                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    if (r->judged && !weft_evaluate(t, d, s, WEFT_OPTS(weft_eval_opts, .batch = 16), &logs))
        out.before = logs.value[0];
    out.st = weft_fit(t, d, s,
                      WEFT_OPTS(weft_fit_opts, .epochs = r->epochs, .batch = 14,
                                .checkpoint = r->dir, .checkpoint_steps = 3),
                      &h);
    if (!out.st && !r->large)
        out.st = wf_dist_bring(t);
    if (!out.st && r->large) {
        out.loss = h->value[(h->n_epochs - 1) * h->n_names];
    } else if (out.st) {
        snprintf(out.error, sizeof out.error, "%s", weft_error());
    } else {
        out.bytes = trainer_bytes(t, &out.n);
        out.loss = h->value[(h->n_epochs - 1) * h->n_names];
    }
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return out;
}

static const char *const table = "input_dim=700 output_dim=6";

/* Each way: an epoch, another one with the next strategy, a third one with the one after it. */
static void checkpoints_pass_from_one_strategy_to_another(void **state)
{
    static const weft_ps_opts one = {.size = sizeof one, .servers = 1, .piece_bytes = 3000};
    static const weft_ps_opts three = {.size = sizeof three, .servers = 3, .piece_bytes = 900};
    static const weft_ps_opts alone = {.size = sizeof alone, .servers = 2, .replicas = 1};
    const weft_ps_opts *ways[][3] = {
        {NULL, &three, &one}, {&one, NULL, &three}, {&three, &alone, NULL}};
    struct result want = train(&(struct run){NULL, NULL, table, 3, false, false});

    (void)state;
    assert_int_equal(want.st, 0);
    for (size_t i = 0; i < WF_COUNT(ways); i++) {
        char dir[128];

        snprintf(dir, sizeof dir, "%s/way%zu", folder, i);
        for (int k = 0; k < 3; k++) {
            struct result got = train(&(struct run){ways[i][k], dir, table, k + 1, k == 0, false});

            if (got.st)
                fail_msg("way %zu, epoch %d: %s", i, k, got.error);
            if (k == 2) {
                assert_int_equal(got.n, want.n);
                assert_memory_equal(got.bytes, want.bytes, want.n);
                assert_memory_equal(&got.loss, &want.loss, sizeof want.loss);
            }
            free(got.bytes);
        }
    }
    free(want.bytes);
}

/* Before the first step, rows are what the initializer says; also without any server asked. */
static void a_model_is_evaluated_before_it_is_trained(void **state)
{
    static const weft_ps_opts ps = {.size = sizeof ps, .servers = 2};
    struct result a = train(&(struct run){NULL, NULL, table, 1, true, false});
    struct result b = train(&(struct run){&ps, NULL, table, 1, true, false});

    (void)state;
    assert_int_equal(a.st, 0);
    assert_int_equal(b.st, 0);
    assert_true(a.before > 0);
    assert_memory_equal(&a.before, &b.before, sizeof a.before);
    assert_memory_equal(a.bytes, b.bytes, a.n);
    free(a.bytes);
    free(b.bytes);
}

/* Of a table of 10^9 rows, with slots 72 GB, a checkpoint has the rows that exist. */
static void a_table_larger_than_memory_is_saved(void **state)
{
    static const weft_ps_opts two = {.size = sizeof two, .servers = 2};
    static const weft_ps_opts three = {.size = sizeof three, .servers = 3, .replicas = 1};
    const char *attrs = "input_dim=1000000000 output_dim=6";
    char dir[128];
    struct result want = train(&(struct run){&two, NULL, attrs, 3, false, true}), got;
    weft_ctx *ctx;
    weft_ckpt *c;

    (void)state;
    assert_int_equal(want.st, 0);
    snprintf(dir, sizeof dir, "%s/large", folder);
    got = train(&(struct run){&two, dir, attrs, 2, false, true});
    if (got.st)
        fail_msg("%s", got.error);
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_ckpt_open_latest(ctx, dir, &c), 0);
    assert_in_range(weft_ckpt_bytes(c), 3 * 6 * 4 * 100, 200000);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    got = train(&(struct run){&three, dir, attrs, 3, false, true});
    if (got.st)
        fail_msg("%s", got.error);
    assert_memory_equal(&got.loss, &want.loss, sizeof want.loss);
}

/* The newest checkpoint that is valid is used. */
static void a_damaged_part_is_not_used(void **state)
{
    static const weft_ps_opts two = {.size = sizeof two, .servers = 2};
    static const weft_ps_opts three = {.size = sizeof three, .servers = 3};
    const char *const harm[] = {
        "rm %s/part-ps1-00001.safetensors", /* a shard is missing */
        "f=%s/part-ps0-00001.safetensors; n=$(stat -c %%s $f); "
        "printf x | dd of=$f bs=1 seek=$((n-9)) conv=notrunc 2>/dev/null", /* a wrong checksum */
        "truncate -s 100 %s/part-writer-00001.safetensors",
        "rm %s/part-ps0-00001.safetensors && mkdir %s/part-ps0-00001.safetensors"};
    struct result want = train(&(struct run){NULL, NULL, table, 3, false, false});

    (void)state;
    for (size_t i = 0; i < WF_COUNT(harm); i++) {
        char dir[128], newest[160], command[600];
        struct result got;
        weft_ctx *ctx;
        weft_ckpt *c;

        snprintf(dir, sizeof dir, "%s/harm%zu", folder, i);
        got = train(&(struct run){&two, dir, table, 2, false, false});
        assert_int_equal(got.st, 0);
        free(got.bytes);
        assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
        assert_int_equal(weft_ckpt_open_latest(ctx, dir, &c), 0);
        snprintf(newest, sizeof newest, "%s", weft_ckpt_path(c));
        weft_ckpt_close(c);
        snprintf(command, sizeof command, harm[i], newest, newest);
        assert_int_equal(system(command), 0);
        assert_int_equal(weft_ckpt_open_latest(ctx, dir, &c), 0);
        assert_string_not_equal(weft_ckpt_path(c), newest);
        weft_ckpt_close(c);
        weft_ctx_free(ctx);
        got = train(&(struct run){&three, dir, table, 3, false, false});
        if (got.st)
            fail_msg("harm %zu: %s", i, got.error);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.bytes, want.bytes, want.n);
        free(got.bytes);
    }
    free(want.bytes);
}

static void what_servers_cannot_hold_is_refused(void **state)
{
    static const weft_ps_opts ps = {.size = sizeof ps, .servers = 1};
    const struct {
        const char *attrs, *text;
    } row[] = {
        {"input_dim=700 output_dim=6 embeddings_initializer=orthogonal(1)", "row by row"},
        {"input_dim=700 output_dim=6 embeddings_constraint=non_neg", "remove the constraint"},
    };

    (void)state;
    for (size_t i = 0; i < WF_COUNT(row); i++) {
        struct result r = train(&(struct run){&ps, NULL, row[i].attrs, 1, false, false});

        assert_int_not_equal(r.st, 0);
        if (!strstr(r.error, row[i].text))
            fail_msg("'%s' does not say '%s'", r.error, row[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_pass_from_one_strategy_to_another),
        cmocka_unit_test(a_model_is_evaluated_before_it_is_trained),
        cmocka_unit_test(a_table_larger_than_memory_is_saved),
        cmocka_unit_test(a_damaged_part_is_not_used),
        cmocka_unit_test(what_servers_cannot_hold_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
