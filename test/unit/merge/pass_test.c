/* pass_test.c - one pass over blocks gives the bits of the steps that it replaces: sum along the
 * tree, mean, penalties, update; from contributions that are lent, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "merge/merge.h"
#include "weft/weft.h"

enum { DENSE = 20032, SLOTS = WF_OPTIM_MAX_SLOTS, SUMS = 4 };

static struct wf_var vars[3] = {
    {.name = "a", .rank = 1, .dim = {9000}, .count = 9000},
    {.name = "b", .rank = 2, .dim = {3, 100}, .count = 300, .offset = 9008},
    {.name = "c", .rank = 1, .dim = {10000}, .count = 10000, .offset = 9312}};

static uint64_t seed = 1;

static uint64_t draw(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % n;
}

static float number(void)
{
    static const float size[] = {1e4f, 1, 1e-3f, 3e2f};

    return ((float)draw(2000) - 1000) * size[draw(4)];
}

/* What both ways begin with. */
struct start {
    struct wf_rules rules;
    int n_shards;
    bool absent[WF_PASS_SHARDS], lent[WF_PASS_SHARDS];
    float *given[WF_PASS_SHARDS]; /* [n_groups][DENSE + 16] */
    double sums[WF_PASS_SHARDS][SUMS];
    float params[DENSE], slot[SLOTS][DENSE];
    struct wf_step step;
};

static void make(struct start *s, int case_number)
{
    struct wf_rules *r = &s->rules;

    *r = (struct wf_rules){.optim = &wf_optim_rows[case_number % wf_n_optim_rows],
                           .n_vars = 3,
                           .var = vars,
                           .n_dense = DENSE,
                           .n_groups = 1 + (int)draw(3),
                           .n_sums = SUMS};
    wf_optim_defaults(r->optim, r->attrs);
    s->n_shards = 1 + (int)draw(WF_PASS_SHARDS);
    r->whole = s->n_shards == 1 && r->n_groups == 1;
    for (int i = 0; i < 3; i++) {
        vars[i].penalty = (struct wf_penalty){.l1 = draw(2) ? 0.001 : 0, .l2 = draw(2) ? 0.01 : 0};
        vars[i].constraint.kind = draw(3) ? WF_CONSTRAINT_NONE : WF_CONSTRAINT_NON_NEG;
    }
    for (int l = 0; l < s->n_shards; l++) {
        s->absent[l] = l > 0 && draw(4) == 0;
        s->lent[l] = draw(2);
        s->given[l] = calloc((size_t)r->n_groups * (DENSE + 16), sizeof(float));
        for (int64_t i = 0; i < r->n_groups * (DENSE + 16); i++)
            s->given[l][i] = number();
        for (int i = 0; i < SUMS; i++)
            s->sums[l][i] = i < r->n_groups && draw(9) == 0 ? 0 : (double)(1 + draw(50)) / 3;
    }
    for (int i = 0; i < DENSE; i++) {
        s->params[i] = number() * 1e-3f;
        for (int k = 0; k < SLOTS; k++)
            s->slot[k][i] = (float)draw(1000) * 1e-3f;
    }
    s->step = (struct wf_step){.iteration = 1 + (int64_t)draw(9)};
}

static void put_all(struct start *s, struct wf_tree *t, bool lend)
{
    for (int l = s->n_shards - 1; l >= 0; l--) {
        struct wf_contribution *c = NULL;

        if (!s->absent[l] && lend && s->lent[l]) {
            assert_int_equal(wf_tree_lend(t, s->given[l], DENSE + 16, &c), 0);
        } else if (!s->absent[l]) {
            assert_int_equal(wf_tree_take(t, &c), 0);
            for (int k = 0; k < s->rules.n_groups; k++)
                memcpy(c->dense + (int64_t)k * DENSE, s->given[l] + (int64_t)k * (DENSE + 16),
                       DENSE * sizeof(float));
        }
        if (c)
            memcpy(c->sums, s->sums[l], sizeof s->sums[l]);
        assert_int_equal(wf_tree_put(t, 0, l, c), 0);
    }
}

struct end {
    float mean[DENSE], params[DENSE], slot[SLOTS][DENSE];
    double sums[SUMS];
};

static struct wf_version version(struct start *s, struct end *e)
{
    struct wf_version v = {.from = s->params, .params = e->params};

    memcpy(e->slot, s->slot, sizeof e->slot);
    for (int k = 0; k < SLOTS; k++)
        v.slot[k] = e->slot[k];
    return v;
}

/* Step by step, as a trainer without servers does it. */
static void slow(weft_ctx *ctx, struct start *s, struct end *e)
{
    struct wf_version v = version(s, e);
    struct wf_contribution *sum;
    struct wf_merge *m;
    struct wf_tree t;

    wf_tree_init(&t, ctx, NULL, &s->rules);
    assert_int_equal(wf_merge_new(ctx, NULL, &s->rules, 0, NULL, &m), 0);
    put_all(s, &t, false);
    assert_int_equal(wf_tree_sum(&t, &sum), 0);
    assert_int_equal(wf_merge_mean(m, sum, s->params), 0);
    memcpy(e->mean, sum->dense, sizeof e->mean);
    memcpy(e->sums, sum->sums, sizeof e->sums);
    memcpy(e->params, s->params, sizeof e->params);
    v.from = NULL;
    assert_int_equal(wf_merge_step(m, sum, &s->step, &v), 0);
    wf_tree_give(&t, sum);
    wf_merge_free(m);
    wf_tree_free(&t);
}

static void fast(weft_ctx *ctx, struct start *s, bool lend, bool mean, bool update, bool streams,
                 struct end *e)
{
    struct wf_version v = version(s, e);
    struct wf_contribution *sums;
    struct wf_merge *m;
    struct wf_tree t;

    wf_tree_init(&t, ctx, NULL, &s->rules);
    t.lazy = true;
    v.streams = streams;
    assert_int_equal(wf_merge_new(ctx, NULL, &s->rules, 0, NULL, &m), 0);
    put_all(s, &t, lend);
    sums = wf_tree_total(&t);
    memcpy(e->sums, sums->sums, sizeof e->sums);
    assert_int_equal(
        wf_merge_pass(m, &t, sums, s->params, mean ? e->mean : NULL, &s->step, update ? &v : NULL),
        0);
    if (update)
        wf_merge_finish(m, &s->step, 0, NULL, NULL, &v);
    wf_merge_free(m);
    wf_tree_free(&t);
}

static void compare(const float *a, const float *b)
{
    for (int v = 0; v < 3; v++)
        assert_memory_equal(a + vars[v].offset, b + vars[v].offset,
                            (size_t)vars[v].count * sizeof *a);
}

static void one_pass_gives_the_same_bits(void **state)
{
    struct start *s = calloc(1, sizeof *s);
    struct end *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (int i = 0; i < 60; i++) {
        bool lamb;

        make(s, i);
        assert_true(wf_merge_passes(
            &s->rules, 3, (struct wf_piece[]){{.var = 0}, {.var = 1}, {.var = 2}}, s->n_shards));
        lamb = strcmp(s->rules.optim->name, "lamb") == 0;
        slow(ctx, s, want);
        for (int way = 0; way < 8; way++) {
            memset(got, 0, sizeof *got);
            fast(ctx, s, way & 1, way & 2 || lamb, !lamb, way & 4, got);
            assert_memory_equal(got->sums, want->sums, sizeof want->sums);
            if (way & 2 || lamb)
                compare(got->mean, want->mean);
            if (lamb)
                continue;
            compare(got->params, want->params);
            for (int k = 0; k < SLOTS; k++)
                compare(got->slot[k], want->slot[k]);
        }
        for (int l = 0; l < s->n_shards; l++)
            free(s->given[l]);
    }
    weft_ctx_free(ctx);
    free(s);
    free(want);
    free(got);
}

/* A sum of lent contributions is made in memory of the tree's own. */
static void what_is_lent_is_never_written(void **state)
{
    struct start *s = calloc(1, sizeof *s);
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(NULL, &ctx), 0);
    for (int i = 0; i < 20; i++) {
        size_t bytes;
        float *was[WF_PASS_SHARDS];
        struct wf_contribution *sum;
        struct wf_tree t;

        make(s, i);
        bytes = (size_t)s->rules.n_groups * (DENSE + 16) * sizeof(float);
        for (int l = 0; l < s->n_shards; l++) {
            s->lent[l] = true;
            was[l] = memcpy(malloc(bytes), s->given[l], bytes);
        }
        wf_tree_init(&t, ctx, NULL, &s->rules);
        t.lazy = i % 2;
        put_all(s, &t, true);
        assert_int_equal(wf_tree_sum(&t, &sum), 0);
        assert_null(sum->lent);
        sum->dense[0] = 1;
        wf_tree_give(&t, sum);
        wf_tree_free(&t);
        for (int l = 0; l < s->n_shards; l++) {
            assert_memory_equal(s->given[l], was[l], bytes);
            free(was[l]);
            free(s->given[l]);
        }
    }
    weft_ctx_free(ctx);
    free(s);
}

static void some_rules_need_whole_sums(void **state)
{
    struct wf_var v = {.name = "w", .rank = 2, .dim = {4, 4}, .count = 16};
    struct wf_rules r = {.n_vars = 1, .var = &v, .n_dense = 16, .n_groups = 1};
    struct wf_piece whole = {0, 0, 16, 0};

    (void)state;
    assert_true(wf_merge_passes(&r, 1, &whole, WF_PASS_SHARDS));
    assert_false(wf_merge_passes(&r, 1, &whole, WF_PASS_SHARDS + 1));
    v.penalty.orthogonal = 0.1;
    assert_false(wf_merge_passes(&r, 1, &whole, 1));
    v.penalty.orthogonal = 0;
    v.table = true;
    assert_false(wf_merge_passes(&r, 1, &whole, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_pass_gives_the_same_bits),
        cmocka_unit_test(what_is_lent_is_never_written),
        cmocka_unit_test(some_rules_need_whole_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
