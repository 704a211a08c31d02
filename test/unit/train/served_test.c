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
    int shards;  /* 0: 2 */
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
                               .shards = r->shards ? r->shards : 2),
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
static void pass_checkpoints(const char *attrs, const char *name)
{
    static const weft_ps_opts one = {.size = sizeof one, .servers = 1, .piece_bytes = 3000};
    static const weft_ps_opts three = {.size = sizeof three, .servers = 3, .piece_bytes = 900};
    static const weft_ps_opts alone = {.size = sizeof alone, .servers = 2, .replicas = 1};
    const weft_ps_opts *ways[][3] = {
        {NULL, &three, &one}, {&one, NULL, &three}, {&three, &alone, NULL}};
    struct result want = train(&(struct run){NULL, NULL, attrs, 3, false, false, 0});

    assert_int_equal(want.st, 0);
    for (size_t i = 0; i < WF_COUNT(ways); i++) {
        char dir[128];

        snprintf(dir, sizeof dir, "%s/%s%zu", folder, name, i);
        for (int k = 0; k < 3; k++) {
            struct result got =
                train(&(struct run){ways[i][k], dir, attrs, k + 1, k == 0, false, 0});

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

static void checkpoints_pass_from_one_strategy_to_another(void **state)
{
    (void)state;
    pass_checkpoints(table, "way");
}

static const char *const forgets = "input_dim=700 output_dim=6 evict=unused(4,every=3,min_count=3)";

static void so_do_tables_that_forget_rows(void **state)
{
    (void)state;
    pass_checkpoints(forgets, "evict");
}

/* A checkpoint that does not count rows is not enough, one that does is for either. */
static void rows_must_have_been_counted(void **state)
{
    static const weft_ps_opts two = {.size = sizeof two, .servers = 2};
    char dir[128];

    (void)state;
    for (int k = 0; k < 4; k++) {
        const weft_ps_opts *first = k & 1 ? &two : NULL, *then = k & 2 ? &two : NULL;
        struct result r;

        snprintf(dir, sizeof dir, "%s/counted%d", folder, k);
        r = train(&(struct run){first, dir, table, 1, false, false, 0});
        assert_int_equal(r.st, 0);
        free(r.bytes);
        r = train(&(struct run){then, dir, forgets, 2, false, false, 0});
        assert_int_equal(r.st, WEFT_EINVAL);
        if (!strstr(r.error, "does not say when its rows were updated"))
            fail_msg("%s", r.error);
        snprintf(dir, sizeof dir, "%s/counts%d", folder, k);
        r = train(&(struct run){first, dir, forgets, 1, false, false, 0});
        assert_int_equal(r.st, 0);
        free(r.bytes);
        r = train(&(struct run){then, dir, table, 2, false, false, 0});
        if (r.st)
            fail_msg("%s", r.error);
        free(r.bytes);
    }
}

/* ---- the plain definition -------------------------------------------------------------------- */

enum { WIDTH = 6, BATCH = 12 };

static struct wf_segment *table_in(weft_trainer *t)
{
    struct wf_segment *seg = wf_store_find(t->bound->fit->store, "embedding/embeddings");

    assert_non_null(seg);
    return seg;
}

/* After each step: which rows it has updated, and all that are forgotten become initial ones.
 * Returns how many are. */
static int forget_by_hand(weft_trainer *t, int first, struct wf_seen *seen, const float *initial)
{
    struct wf_segment *seg = table_in(t);
    int64_t step = weft_trainer_step(t);
    int n = 0;

    for (int id = 0; id < WORDS; id++) {
        bool touched = false;

        for (int i = first; i < first + BATCH; i++)
            for (int k = 0; k < T; k++)
                touched |= ids[i][k] == id;
        if (touched)
            seen[id] = (struct wf_seen){step, seen[id].count + 1};
        if (step % 3 || !seen[id].count || step - seen[id].last < 4 || seen[id].count >= 3)
            continue;
        seen[id] = (struct wf_seen){0, 0};
        memcpy(seg->data + id * WIDTH, initial + id * WIDTH, WIDTH * sizeof(float));
        for (int k = 0; k < seg->n_slots; k++)
            for (int j = 0; j < WIDTH; j++)
                seg->slot[k][id * WIDTH + j] = seg->slot_init[k];
        n++;
    }
    return n;
}

static weft_status one_batch(weft_trainer *t, int first)
{
    weft_tensor x = weft_view(WEFT_I32, ids[first], 2, (int64_t[]){BATCH, T});
    weft_tensor label = weft_view(WEFT_I32, &y[first], 1, (int64_t[]){BATCH});

    return weft_train_on_batch(t, &x, &label, NULL, NULL);
}

static void rows_are_forgotten_as_by_hand(void **state)
{
    static float initial[WORDS * WIDTH];
    const char *attrs[2] = {forgets, table};
    size_t bytes = sizeof initial;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct wf_seen seen[WORDS] = {{0, 0}};
        weft_trainer *t[2];
        weft_model *m[2];
        weft_ctx *ctx;
        int forgotten = 0;

        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 8), &ctx), 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(weft_model_new(ctx, NULL, &m[k]), 0);
            t[k] = compile(ctx, &(struct run){.attrs = attrs[k], .shards = 1 + i}, m[k], NULL);
        }
        for (int step = 1; step <= 24; step++) {
            int first = (step % 4 ? step * 7 % 5 : 0) * BATCH; /* some rows more often */

            assert_int_equal(one_batch(t[0], first), 0);
            assert_int_equal(one_batch(t[1], first), 0);
            if (step == 1)
                assert_int_equal(
                    wf_init_variable(ctx, table_in(t[1])->node, &table_in(t[1])->type, initial), 0);
            forgotten += forget_by_hand(t[1], first, seen, initial);
            assert_memory_equal(table_in(t[0])->data, table_in(t[1])->data, bytes);
            for (int k = 0; k < table_in(t[1])->n_slots; k++)
                assert_memory_equal(table_in(t[0])->slot[k], table_in(t[1])->slot[k], bytes);
            assert_memory_equal(table_in(t[0])->seen, seen, sizeof seen);
        }
        assert_true(forgotten > 100);
        for (int k = 0; k < 2; k++) {
            weft_trainer_free(t[k]);
            weft_model_free(m[k]);
        }
        weft_ctx_free(ctx);
    }
}

static void what_cannot_forget_says_so(void **state)
{
    static const struct {
        const char *attrs, *text;
    } row[] = {
        {"input_dim=9 output_dim=2 evict=unused(0)", "both must be 1 or more"},
        {"input_dim=9 output_dim=2 evict=unused(4,every=-3)", "both must be 1 or more"},
        {"input_dim=9 output_dim=2 evict=unused(4,min_count=-3)", "min_count is -3"},
        {"input_dim=9 output_dim=2 evict=old(4)", "no evict 'old'"},
        {"input_dim=9 output_dim=2 evict=unused", "steps"},
        {"input_dim=9 output_dim=2 evict=unused(4) sparse=false", "not with sparse=false"},
        {"input_dim=9 output_dim=2 evict=unused(4) embeddings_regularizer=l2(0.1)",
         "not with a regularizer"},
        {"input_dim=9 output_dim=2 evict=unused(4) embeddings_constraint=non_neg",
         "not with a constraint"},
    };
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (size_t i = 0; i < WF_COUNT(row); i++) {
        weft_model *m;
        weft_sym e;

        assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
        e = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){T});
        weft_model_output(m, weft_apply(m, "Embedding", row[i].attrs, e));
        assert_int_not_equal(weft_model_status(m), 0);
        if (!strstr(weft_error(), row[i].text))
            fail_msg("'%s' does not say '%s'", weft_error(), row[i].text);
        weft_model_free(m);
    }
    weft_ctx_free(ctx);
}

/* Before the first step, rows are what the initializer says; also without any server asked. */
static void a_model_is_evaluated_before_it_is_trained(void **state)
{
    static const weft_ps_opts ps = {.size = sizeof ps, .servers = 2};
    struct result a = train(&(struct run){NULL, NULL, table, 1, true, false, 0});
    struct result b = train(&(struct run){&ps, NULL, table, 1, true, false, 0});

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
    struct result want = train(&(struct run){&two, NULL, attrs, 3, false, true, 0}), got;
    weft_ctx *ctx;
    weft_ckpt *c;

    (void)state;
    assert_int_equal(want.st, 0);
    snprintf(dir, sizeof dir, "%s/large", folder);
    got = train(&(struct run){&two, dir, attrs, 2, false, true, 0});
    if (got.st)
        fail_msg("%s", got.error);
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    assert_int_equal(weft_ckpt_open_latest(ctx, dir, &c), 0);
    assert_in_range(weft_ckpt_bytes(c), 3 * 6 * 4 * 100, 200000);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    got = train(&(struct run){&three, dir, attrs, 3, false, true, 0});
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
    struct result want = train(&(struct run){NULL, NULL, table, 3, false, false, 0});

    (void)state;
    for (size_t i = 0; i < WF_COUNT(harm); i++) {
        char dir[128], newest[160], command[600];
        struct result got;
        weft_ctx *ctx;
        weft_ckpt *c;

        snprintf(dir, sizeof dir, "%s/harm%zu", folder, i);
        got = train(&(struct run){&two, dir, table, 2, false, false, 0});
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
        got = train(&(struct run){&three, dir, table, 3, false, false, 0});
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
        struct result r = train(&(struct run){&ps, NULL, row[i].attrs, 1, false, false, 0});

        assert_int_not_equal(r.st, 0);
        if (!strstr(r.error, row[i].text))
            fail_msg("'%s' does not say '%s'", r.error, row[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_pass_from_one_strategy_to_another),
        cmocka_unit_test(so_do_tables_that_forget_rows),
        cmocka_unit_test(rows_must_have_been_counted),
        cmocka_unit_test(rows_are_forgotten_as_by_hand),
        cmocka_unit_test(what_cannot_forget_says_so),
        cmocka_unit_test(a_model_is_evaluated_before_it_is_trained),
        cmocka_unit_test(a_table_larger_than_memory_is_saved),
        cmocka_unit_test(a_damaged_part_is_not_used),
        cmocka_unit_test(what_servers_cannot_hold_is_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
