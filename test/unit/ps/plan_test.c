/* plan_test.c - the job of a parameter server as bytes: what is written is read again, golden
 * bytes, differences are named, and nothing gets through that the merge layer could not bear. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/bytes.h"
#include "ps/plan.h"
#include "ps/store.h"
#include "support/counting.h"
#include "support/wirepage.h"

static weft_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
}

static int teardown(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

/* ---- a job ----------------------------------------------------------------------------------- */

struct sample {
    struct wf_ps_job job;
    struct wf_var var[3];
    double schedule[8];
};

static const int groups[] = {0, 0, 1}, bad_groups[] = {0, 1, 2};

static void make(struct sample *s, const char *optim, const char *schedule)
{
    struct wf_rules *r = &s->job.rules;

    memset(s, 0, sizeof *s);
    s->var[0] = (struct wf_var){
        .name = "h1/kernel", .rank = 2, .dim = {100, 60}, .count = 6000, .penalty = {.l2 = 0.01}};
    s->var[1] =
        (struct wf_var){.name = "h1/bias", .rank = 1, .dim = {60}, .count = 60, .offset = 6016};
    s->var[2] = (struct wf_var){.name = "out/kernel",
                                .rank = 2,
                                .dim = {60, 10},
                                .count = 600,
                                .offset = 6080,
                                .penalty = {.l1 = 0.5, .orthogonal = 0.25, .columns = true},
                                .constraint = {WF_CONSTRAINT_NORM, 0.5, 2, 1, 1, {0}}};
    *r = (struct wf_rules){.optim = wf_optim_find(optim),
                           .n_vars = 3,
                           .var = s->var,
                           .n_dense = 6688,
                           .n_groups = 2,
                           .n_sums = 9};
    wf_optim_defaults(r->optim, r->attrs);
    r->attrs[WF_OPTIM_ATTR_GLOBAL_CLIPNORM] = 0.5;
    if (schedule) {
        r->schedule = wf_schedule_find(schedule);
        wf_schedule_defaults(r->schedule, s->schedule);
        for (int i = 0; i < r->schedule->n_attrs; i++)
            if (strstr(r->schedule->attrs[i].name, "decay_steps"))
                s->schedule[i] = 100;
        r->schedule_attrs = s->schedule;
        r->n_schedule = r->schedule->n_attrs;
        if (r->schedule->takes_list) { /* one boundary, two values */
            memcpy(s->schedule + r->n_schedule, (double[]){50, 0.1, 0.01}, 3 * sizeof(double));
            r->n_schedule += 3;
        }
    }
    s->job.plan = (struct wf_ps_plan){.n_pieces = 3,
                                      .n_shards = 4,
                                      .n_rounds = wf_ps_rounds(r),
                                      .n_blocks = 1,
                                      .save_every = 100,
                                      .retry_ns = 100000000,
                                      .n_steps = 1000};
    s->job.cut_bytes = 16384;
    s->job.n_logs = 2 * 9;
    s->job.logs =
        (struct wf_log_rules){.n_batches = 2, .n_means = 3, .mean_group = groups, .n_metrics = 1};
}

static struct wf_buf bytes_of(const struct wf_ps_job *job)
{
    struct wf_buf b;

    wf_buf_init(&b, ctx, 1 << 20);
    assert_int_equal(wf_ps_job_write(job, &b), WEFT_OK);
    return b;
}

static void every_optimizer_and_schedule_is_read_as_it_was_written(void **state)
{
    (void)state;
    for (int i = 0; i < wf_n_optim_rows; i++)
        for (int k = -1; k < wf_n_schedule_rows; k++) {
            struct sample s;
            struct wf_ps_job *r = NULL;
            struct wf_buf b, again;

            make(&s, wf_optim_rows[i].name, k < 0 ? NULL : wf_schedule_rows[k].name);
            b = bytes_of(&s.job);
            if (wf_ps_job_read(ctx, b.data, b.len, &r))
                fail_msg("%s: %s", wf_optim_rows[i].name, weft_error());
            assert_int_equal(wf_ps_job_same(&s.job, r), WEFT_OK);
            again = bytes_of(r);
            assert_int_equal(again.len, b.len);
            assert_memory_equal(again.data, b.data, (size_t)b.len);
            wf_buf_free(&again);
            wf_buf_free(&b);
            wf_ps_job_free(r);
        }
}

static void pieces_are_counted(void **state)
{
    struct sample s;
    struct wf_cut *c;

    (void)state;
    make(&s, "adam", NULL);
    assert_int_equal(wf_cut_new(ctx, &s.job.rules, s.job.cut_bytes, &c), WEFT_OK);
    assert_int_equal(c->n_pieces, s.job.plan.n_pieces);
    wf_cut_free(c);
    assert_int_equal(wf_ps_job_cut(ctx, &s.job, &c), WEFT_OK);
    wf_cut_free(c);
    s.job.plan.n_pieces = 6;
    assert_int_equal(wf_ps_job_cut(ctx, &s.job, &c), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "3 pieces of 16384 bytes here, and 6 there"));
}

/* A large variable begins a piece and is divided into parts of about the same size; small ones that
 * follow each other are together, up to a gap that belongs to none of them. */
static void a_piece_is_a_range_of_the_flat_vectors(void **state)
{
    struct wf_var var[] = {{.name = "a", .count = 20000},
                           {.name = "b", .count = 100, .offset = 20000},
                           {.name = "c", .count = 30, .offset = 20112},
                           {.name = "d", .count = 9000, .offset = 20144},
                           {.name = "e", .count = 5, .offset = 40000}};
    struct wf_rules r = {.n_vars = WF_COUNT(var), .var = var, .n_dense = 40016, .n_groups = 1};
    static const int64_t want[][3] = {
        {0, 12288, 1}, {12288, 7712 + 144, 3}, {20144, 9008, 1}, {40000, 16, 1}, {0, 0, 0}};
    struct wf_cut *c;

    (void)state;
    assert_int_equal(wf_cut_new(ctx, &r, 16384 * 4, &c), WEFT_OK);
    assert_int_equal(c->n_pieces, WF_COUNT(want));
    for (int i = 0; i < c->n_pieces; i++) {
        const struct wf_cut_piece *p = &c->piece[i];

        assert_int_equal(p->first, want[i][0]);
        assert_int_equal(p->count, want[i][1]);
        assert_int_equal(p->n_runs, want[i][2]);
        assert_int_equal(p->state, i == c->n_pieces - 1);
        for (int k = 0; k < p->n_runs; k++)
            assert_int_equal(p->run[k].at + p->first, var[p->run[k].var].offset + p->run[k].first);
    }
    wf_cut_free(c);
}

static void damage_is_found(void **state)
{
    struct sample s;
    struct wf_ps_job *r;
    struct wf_buf b;

    (void)state;
    make(&s, "adam", "cosine_decay");
    b = bytes_of(&s.job);
    for (int64_t i = 0; i < b.len * 8; i++) {
        b.data[i / 8] ^= (char)(1 << i % 8);
        assert_int_equal(wf_ps_job_read(ctx, b.data, b.len, &r), WEFT_EPEER);
        b.data[i / 8] ^= (char)(1 << i % 8);
    }
    for (int64_t n = 0; n < b.len; n++) {
        uint8_t *cut = malloc((size_t)n + 1);

        memcpy(cut, b.data, (size_t)n);
        if (n > 12) /* as if it were meant so */
            wf_put_le32(cut + 8, wf_crc32c(0, cut + 12, n - 12));
        assert_int_equal(wf_ps_job_read(ctx, cut, n, &r), WEFT_EPEER);
        free(cut);
    }
    wf_buf_free(&b);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(const struct wf_ps_job *job, const char *text)
{
    struct wf_buf b = bytes_of(job);
    struct wf_ps_job *r;

    assert_int_equal(wf_ps_job_read(ctx, b.data, b.len, &r), WEFT_EPEER);
    if (!strstr(weft_error(), text))
        fail_msg("'%s' does not say '%s'", weft_error(), text);
    wf_buf_free(&b);
}

#define REFUSED(change, text)             \
    do {                                  \
        struct sample s;                  \
        make(&s, "adam", "cosine_decay"); \
        change;                           \
        refused(&s.job, text);            \
    } while (0)

static void vectors_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    REFUSED(s.var[1].offset = 5999, "'h1/kernel' and 'h1/bias' overlap");
    REFUSED(s.var[1].offset = 0, "overlap");
    REFUSED(s.var[2].offset = 6089, "'out/kernel' does not lie in the vectors");
    REFUSED(s.var[2].offset = -1, "does not lie in the vectors");
    REFUSED(s.var[2].offset = INT64_MAX, "does not lie in the vectors");
    REFUSED(s.job.rules.n_dense = 6000, "does not lie in the vectors");
    REFUSED(s.var[1].count = 61, "'h1/bias' has 61 elements; its shape says 60");
    REFUSED(s.var[1].dim[0] = -60, "is too large");
    REFUSED(s.var[1].dim[0] = INT64_MAX, "is too large");
    REFUSED((s.var[0].dim[0] = (int64_t)1 << 32, s.var[0].dim[1] = (int64_t)1 << 32), "too large");
    REFUSED((s.var[1].table = true), "is a table without rows");
    REFUSED(s.var[1].name = "", "has no name");
}

static void weights_that_cannot_be_are_refused(void **state)
{
    (void)state;
    REFUSED(s.var[1].penalty.orthogonal = 1, "is not a matrix");
    REFUSED(s.var[0].server = -1, "is placed on a server that cannot be");
    REFUSED(s.var[0].server = 5000, "is placed on a server that cannot be");
    REFUSED(s.var[0].penalty.l2 = NAN, "penalty");
    REFUSED(s.var[0].penalty.l1 = -1, "penalty");
    REFUSED(s.var[0].constraint.kind = (enum wf_constraint_kind)4, "unknown constraint");
    REFUSED(s.var[2].constraint.axes[0] = 2, "an axis that it does not have");
    REFUSED((s.var[2].constraint.n_axes = 2, s.var[2].constraint.axes[1] = 0), "or twice");
    REFUSED((s.var[1].constraint.n_axes = 2), "too many axes");
    REFUSED(s.var[2].constraint.rate = 1.5, "out of range");
    REFUSED(s.var[2].constraint.min = NAN, "out of range");
}

/* The first variable as a table. */
static void make_table(struct sample *s)
{
    s->var[0].table = true;
    s->var[0].penalty.l2 = 0;
    s->var[0].init = (struct wf_initial){"normal", 0, 0.25, s->var[0].name, 77};
}

static void tables_are_read_as_they_were_written(void **state)
{
    struct sample s;
    struct wf_ps_job *r = NULL;
    struct wf_cut *cut;
    struct wf_buf b;

    (void)state;
    make(&s, "adam", NULL);
    make_table(&s);
    b = bytes_of(&s.job);
    assert_int_equal(wf_ps_job_read(ctx, b.data, b.len, &r), WEFT_OK);
    assert_int_equal(wf_ps_job_same(&s.job, r), WEFT_OK);
    assert_string_equal(r->rules.var[0].init.kind, "normal");
    assert_string_equal(r->rules.var[0].init.name, "h1/kernel");
    assert_true(r->rules.var[0].init.b == 0.25);
    assert_int_equal(r->rules.var[0].init.seed, 77);
    assert_int_equal(wf_cut_new(ctx, &r->rules, 4096, &cut), WEFT_OK);
    assert_int_equal(cut->n_table_pieces, 1); /* 100 rows of 60: one group */
    assert_true(cut->piece[cut->n_pieces - 2].tables);
    assert_true(cut->piece[cut->n_pieces - 1].state);
    wf_cut_free(cut);
    wf_ps_job_free(r);
    wf_buf_free(&b);
}

static void tables_that_cannot_be_are_refused(void **state)
{
    (void)state;
    REFUSED((make_table(&s), s.var[0].init.kind = "orthogonal"), "does not give rows one by one");
    REFUSED((make_table(&s), s.var[0].init.kind = "magic"), "does not give rows one by one");
    REFUSED((make_table(&s), s.var[0].penalty.l2 = 0.5), "is a table with a penalty");
    REFUSED((make_table(&s), s.var[0].constraint.kind = WF_CONSTRAINT_NON_NEG),
            "is a table with a penalty or a constraint");
    REFUSED((make_table(&s), s.var[0].evict = (struct wf_evict){-1, 1, 0}), "forgets rows");
    REFUSED((make_table(&s), s.var[0].evict = (struct wf_evict){1, 0, 0}), "forgets rows");
    REFUSED((make_table(&s), s.var[0].evict = (struct wf_evict){1, 1, -1}), "forgets rows");
    REFUSED((make_table(&s), s.var[0].evict = (struct wf_evict){INT64_MAX, 1, 0}), "forgets rows");
    REFUSED((make_table(&s), s.job.plan.n_blocks = 1000), "n_blocks 1000");
    REFUSED(
        (make_table(&s), s.var[0].dim[0] = 1, s.var[0].dim[1] = 1 << 21, s.var[0].count = 1 << 21),
        "is a table that is too large");
}

static void plans_that_cannot_be_are_refused(void **state)
{
    (void)state;
    REFUSED(s.job.plan.n_pieces = 0, "n_pieces 0");
    REFUSED(s.job.plan.n_pieces = INT32_MAX, "n_pieces");
    REFUSED(s.job.plan.n_shards = 0, "n_shards 0");
    REFUSED(s.job.plan.n_shards = -5, "n_shards -5");
    REFUSED(s.job.plan.n_blocks = 0, "n_blocks 0");
    REFUSED(s.job.plan.save_every = -1, "save_every -1");
    REFUSED(s.job.plan.retry_ns = 0, "retry_ns 0");
    REFUSED(s.job.plan.n_steps = -1, "n_steps -1");
    REFUSED((s.job.plan.window = 64, s.job.plan.inflight = 1, s.job.plan.n_steps = INT64_MAX / 4,
             s.job.plan.n_shards = 5),
            "n_steps"); /* leases could not be numbered */
    REFUSED(s.job.plan.gate_every = INT64_MIN, "gate_every");
    REFUSED(s.job.plan.n_rounds = 0, "with 0 rounds of norms; its optimizer needs 1");
    REFUSED(s.job.plan.n_rounds = 2, "with 2 rounds");
    REFUSED(s.job.cut_bytes = 0, "cut_bytes 0");
    REFUSED(s.job.n_logs = -1, "n_logs -1");
    REFUSED(s.job.n_logs = 17, "17 sums for the logs of 2 batches");
    REFUSED(s.job.n_logs = 14, "14 sums for the logs of 2 batches");
    REFUSED(s.job.logs.n_means = 0, "18 sums for the logs of 2 batches with 0 means");
    REFUSED(s.job.logs.n_batches = 0, "means of no batches");
    REFUSED(s.job.logs.mean_group = bad_groups, "a mean of group 2");
    REFUSED(s.job.rules.n_groups = 0, "n_groups 0");
    REFUSED(s.job.rules.n_groups = INT32_MAX, "n_groups");
    REFUSED(s.job.rules.n_sums = 2, "n_sums 2");
    REFUSED(s.job.rules.n_dense = -1, "n_dense -1");
    REFUSED((s.job.rules.n_dense = (int64_t)1 << 47), "too many pieces");
    REFUSED(s.job.rules.whole = true, "4 shards and 2 groups of losses, and not divided");
    REFUSED(s.job.rules.copies = true, "give copies without leases");
    REFUSED(s.var[1].copied = true, "'h1/bias' is given as a copy, in a job without copies");
}

static void optimizers_that_cannot_be_are_refused(void **state)
{
    struct wf_optim_row other = *wf_optim_find("adam");
    struct wf_schedule_row strange = *wf_schedule_find("cosine_decay");

    (void)state;
    REFUSED(s.job.rules.attrs[WF_OPTIM_ATTR_LR] = -1, "learning_rate must be finite");
    REFUSED(s.job.rules.attrs[WF_OPTIM_ATTR_LR] = NAN, "learning_rate must be finite");
    REFUSED(s.schedule[1] = 0, "decay_steps must be positive");
    other.name = "newton";
    REFUSED(s.job.rules.optim = &other, "'newton', which this build does not have");
    other.name = "adam";
    other.n_attrs--;
    REFUSED(s.job.rules.optim = &other, "attributes; here it has");
    strange.name = "lunar";
    REFUSED(s.job.rules.schedule = &strange, "'lunar', which this build does not have");
    REFUSED(s.job.rules.n_schedule--, "attributes; here it has");
    REFUSED(s.job.rules.n_schedule++, "takes no list");
}

/* A number of variables that the bytes cannot hold. */
static void a_long_list_needs_long_bytes(void **state)
{
    struct sample s;
    struct wf_ps_job *r;
    struct wf_buf b;
    int64_t at;

    (void)state;
    make(&s, "sgd", NULL);
    s.job.rules.n_vars = 0;
    b = bytes_of(&s.job);
    at = b.len - 4;
    wf_put_le32((uint8_t *)b.data + at, 1 << 20);
    wf_put_le32((uint8_t *)b.data + 8, wf_crc32c(0, b.data + 12, b.len - 12));
    assert_int_equal(wf_ps_job_read(ctx, b.data, b.len, &r), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "1048576 variables"));
    wf_buf_free(&b);
}

/* ---- differences ----------------------------------------------------------------------------- */

static void different(const struct wf_ps_job *a, const struct wf_ps_job *b, const char *text)
{
    assert_int_equal(wf_ps_job_same(a, b), WEFT_EPEER);
    if (strcmp(weft_error(), text) != 0)
        fail_msg("'%s'", weft_error());
}

static void the_first_difference_is_named(void **state)
{
    struct sample a, b;

    (void)state;
    make(&a, "adam", "cosine_decay");
#define DIFFERENT(change, text)       \
    make(&b, "adam", "cosine_decay"); \
    change;                           \
    different(&a.job, &b.job, text)
    DIFFERENT(make(&b, "sgd", NULL), "the optimizer is 'adam' here and 'sgd' there");
    DIFFERENT(make(&b, "adam", NULL),
              "the schedule of the learning rate is 'cosine_decay' here and '' there");
    DIFFERENT(b.job.rules.attrs[0] = 0.5, "adam: learning_rate is 0.001 here and 0.5 there");
    DIFFERENT(b.schedule[1] = 101, "cosine_decay: decay_steps is 100 here and 101 there");
    DIFFERENT(b.job.plan.n_shards = 8, "the number of shards is 4 here and 8 there");
    DIFFERENT(b.job.rules.n_vars = 2, "the number of variables is 3 here and 2 there");
    DIFFERENT(b.var[0].dim[1] = 50, "variable 'h1/kernel' is [100,60] here and [100,50] there");
    DIFFERENT(b.var[1].name = "h2/bias", "variable 1 is 'h1/bias' here and 'h2/bias' there");
    DIFFERENT(b.var[0].table = true, "variable 'h1/kernel' is not a table here and a table there");
    DIFFERENT(b.var[1].offset = 7000,
              "variable 'h1/bias' is at 6016 of the vectors here and at 7000 there");
    DIFFERENT(b.var[1].server = 2,
              "variable 'h1/bias' is placed on any server here and on ps/1 there");
    DIFFERENT(b.var[2].constraint.axes[0] = 1,
              "variable 'out/kernel' has a different penalty or constraint here and there");
    make_table(&a);
    DIFFERENT((make_table(&b), b.var[0].init.b = 1),
              "table 'h1/kernel' has different initializers here and there");
    DIFFERENT((make_table(&b), b.var[0].init.seed = 5),
              "table 'h1/kernel' has the seed 77 here and 5 there");
    make(&a, "adam", "cosine_decay");
    DIFFERENT(b.job.cut_bytes = 1, "the size of a piece in bytes is 16384 here and 1 there");
    DIFFERENT(b.job.rules.copies = true, "whether workers update copies is 0 here and 1 there");
    DIFFERENT(b.var[1].copied = true,
              "variable 'h1/bias' is given as a change here and as a copy there");
    DIFFERENT(b.job.plan.n_steps = 7, "the number of steps is 1000 here and 7 there");
    DIFFERENT(b.job.n_logs = 0, "the number of sums for logs is 18 here and 0 there");
    DIFFERENT(b.job.logs.n_batches = 1, "the number of batches of a step is 2 here and 1 there");
#undef DIFFERENT
}

static void the_documented_job_is_this(void **state)
{
    struct wf_var var = {.name = "w",
                         .rank = 2,
                         .dim = {2, 3},
                         .count = 6,
                         .penalty = {.l2 = 0.5},
                         .constraint = {WF_CONSTRAINT_UNIT, 0, 0, 0, 1, {1}}};
    struct wf_ps_job job = {
        .rules = {.optim = wf_optim_find("sgd"),
                  .n_vars = 1,
                  .var = &var,
                  .n_dense = 16,
                  .n_groups = 1,
                  .n_sums = 2},
        .plan = {.n_pieces = 2, .n_shards = 4, .n_blocks = 1, .retry_ns = 1000000, .n_steps = 258},
        .cut_bytes = 65536,
        .n_logs = 1};
    uint8_t want[512];
    int n = wirepage_bytes(PSPAGE, PSPAGE_JOB, want, sizeof want);
    struct wf_ps_job *r = NULL;
    struct wf_cut *cut;
    struct wf_buf b;

    (void)state;
    wf_optim_defaults(job.rules.optim, job.rules.attrs);
    job.rules.attrs[WF_OPTIM_ATTR_LR] = 0.5;
    b = bytes_of(&job);
    assert_int_equal(b.len, n);
    assert_memory_equal(b.data, want, (size_t)n);
    assert_int_equal(wf_ps_job_read(ctx, b.data, b.len, &r), WEFT_OK);
    assert_int_equal(wf_ps_job_cut(ctx, r, &cut), WEFT_OK);
    wf_cut_free(cut);
    wf_ps_job_free(r);
    wf_buf_free(&b);
}

static void without_memory_nothing_is_leaked(void **state)
{
    struct sample s;
    struct wf_buf b;

    (void)state;
    make(&s, "adam", "cosine_decay");
    b = bytes_of(&s.job);
    for (int64_t i = 0;; i++) {
        struct counting c = {0};
        weft_allocator mem = counting_allocator(&c);
        struct wf_ps_job *r = NULL;
        int64_t live;
        weft_ctx *tight;
        weft_status st;

        assert_int_equal(
            weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &mem), &tight),
            WEFT_OK);
        live = c.n_live;
        c.fail_at = c.n_allocs + 1 + i;
        st = wf_ps_job_read(tight, b.data, b.len, &r);
        c.fail_at = 0;
        wf_ps_job_free(r);
        assert_int_equal(c.n_live, live);
        weft_ctx_free(tight);
        if (!st)
            break;
        assert_int_equal(st, WEFT_ENOMEM);
        assert_true(i < 50);
    }
    wf_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_and_schedule_is_read_as_it_was_written),
        cmocka_unit_test(pieces_are_counted),
        cmocka_unit_test(a_piece_is_a_range_of_the_flat_vectors),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(vectors_that_do_not_fit_are_refused),
        cmocka_unit_test(weights_that_cannot_be_are_refused),
        cmocka_unit_test(tables_are_read_as_they_were_written),
        cmocka_unit_test(tables_that_cannot_be_are_refused),
        cmocka_unit_test(plans_that_cannot_be_are_refused),
        cmocka_unit_test(optimizers_that_cannot_be_are_refused),
        cmocka_unit_test(a_long_list_needs_long_bytes),
        cmocka_unit_test(the_first_difference_is_named),
        cmocka_unit_test(the_documented_job_is_this),
        cmocka_unit_test(without_memory_nothing_is_leaked),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
