/* tree_test.c - contributions along the tree over shard numbers: the order of arrival, absent
 * shards, sums of subtrees and duplicates change no bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "merge/merge.h"
#include "weft/weft.h"

enum { DENSE = 5, WIDTH = 3, ROWS = 50, MAX = 40 };

static struct wf_var vars[2] = {
    {.name = "w", .rank = 1, .dim = {DENSE}, .count = DENSE},
    {.name = "t", .rank = 2, .dim = {ROWS, WIDTH}, .count = ROWS * WIDTH, .table = true}};
static const struct wf_rules rules = {
    .n_vars = 2, .var = vars, .n_dense = 16, .n_groups = 1, .n_sums = 3};

/* What shard k gives: numbers whose sum depends on the order. */
struct shard {
    bool present;
    float dense[DENSE], table[ROWS][WIDTH];
    bool row[ROWS];
    double sum;
};

static uint32_t seed = 1;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}

static float number(void)
{
    static const float size[] = {1e8f, 1, 1e-3f, 3e7f};

    return ((float)draw(2000) - 1000) * size[draw(4)];
}

static void fill(struct shard *s)
{
    *s = (struct shard){.present = draw(5) != 0, .sum = (double)number() * 1e9};
    for (int i = 0; i < DENSE; i++)
        s->dense[i] = number();
    for (int r = 0; r < ROWS; r++) {
        s->row[r] = draw(4) == 0;
        for (int c = 0; c < WIDTH && s->row[r]; c++)
            s->table[r][c] = number();
    }
}

/* The definition: left half plus right half, absent + x = x. */
static struct shard sum_of(const struct shard *s, int n, int first, int width)
{
    struct shard left, right;

    if (first >= n)
        return (struct shard){.present = false};
    if (width == 1)
        return s[first];
    left = sum_of(s, n, first, width / 2);
    right = sum_of(s, n, first + width / 2, width / 2);
    if (!left.present || !right.present)
        return left.present ? left : right;
    left.sum += right.sum;
    for (int i = 0; i < DENSE; i++)
        left.dense[i] += right.dense[i];
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < WIDTH && right.row[r]; c++)
            left.table[r][c] =
                left.row[r] ? left.table[r][c] + right.table[r][c] : right.table[r][c];
        left.row[r] |= right.row[r];
    }
    return left;
}

static struct wf_contribution *make(struct wf_tree *t, const struct shard *s)
{
    struct wf_contribution *c;
    struct wf_rows *r;

    assert_int_equal(wf_tree_take(t, &c), 0);
    if (!s->present) {
        wf_tree_give(t, c);
        return NULL;
    }
    memcpy(c->dense, s->dense, sizeof s->dense);
    c->sums[0] = s->sum;
    r = &c->rows[1];
    assert_int_equal(wf_rows_reserve(t->ctx, r, ROWS, WIDTH), 0);
    for (int i = ROWS - 1; i >= 0; i--)
        if (s->row[i]) {
            memcpy(r->row + r->n * WIDTH, s->table[i], sizeof s->table[i]);
            r->id[r->n++] = i;
        }
    return c;
}

static void same(const struct wf_contribution *c, const struct shard *want)
{
    int n = 0;

    assert_true((c != NULL) == want->present);
    if (!c)
        return;
    assert_memory_equal(c->dense, want->dense, sizeof want->dense);
    assert_memory_equal(&c->sums[0], &want->sum, sizeof want->sum);
    for (int64_t i = 0; i < c->rows[1].n; i++) {
        int64_t id = c->rows[1].id[i];

        assert_true(want->row[id]);
        assert_memory_equal(c->rows[1].row + i * WIDTH, want->table[id], sizeof want->table[id]);
    }
    for (int r = 0; r < ROWS; r++)
        n += want->row[r];
    assert_int_equal(c->rows[1].n, n);
}

static void any_order_gives_the_definition(void **state)
{
    weft_ctx *ctx;
    struct wf_tree t;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx), 0);
    wf_tree_init(&t, ctx, NULL, &rules);
    for (int round = 0; round < 400; round++) {
        static struct shard s[MAX];
        int n = 1 + (int)draw(MAX), order[MAX];
        struct wf_contribution *sum;
        struct shard want;

        for (int k = 0; k < n; k++) {
            int at = (int)draw((uint32_t)k + 1);

            fill(&s[k]);
            order[k] = order[at];
            order[at] = k;
        }
        want = sum_of(s, n, 0, 64);
        for (int k = 0; k < n; k++) {
            const struct shard *one = &s[order[k]];

            if (!one->present && draw(2))
                continue; /* never announced */
            assert_int_equal(wf_tree_put(&t, 0, order[k], make(&t, one)), 0);
            if (draw(4) == 0) /* once more: refused */
                assert_int_equal(wf_tree_put(&t, 0, order[k], make(&t, one)), WEFT_EEXIST);
        }
        assert_int_equal(wf_tree_sum(&t, &sum), 0);
        same(sum, &want);
        wf_tree_give(&t, sum);
    }
    wf_tree_free(&t);
    weft_ctx_free(ctx);
}

/* Shards 4 to 7 come as one sum. */
static void sums_of_subtrees_can_be_put(void **state)
{
    static struct shard s[12];
    struct wf_contribution *sum, *part;
    struct shard want;
    weft_ctx *ctx;
    struct wf_tree t, other;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    wf_tree_init(&t, ctx, NULL, &rules);
    wf_tree_init(&other, ctx, NULL, &rules);
    for (int k = 0; k < 12; k++) {
        fill(&s[k]);
        s[k].present = true;
    }
    want = sum_of(s, 12, 0, 16);
    for (int k = 4; k < 8; k++)
        assert_int_equal(wf_tree_put(&other, 0, k, make(&other, &s[k])), 0);
    assert_int_equal(wf_tree_sum(&other, &part), 0);
    assert_int_equal(wf_tree_put(&t, 0, 11, make(&t, &s[11])), 0);
    assert_int_equal(wf_tree_put(&t, 2, 1, part), 0);
    assert_int_equal(wf_tree_put(&t, 0, 5, make(&t, &s[5])), WEFT_EEXIST);
    assert_int_equal(wf_tree_put(&t, 1, 2, make(&t, &s[4])), WEFT_EEXIST);
    for (int k = 0; k < 11; k++)
        if (k < 4 || k > 7)
            assert_int_equal(wf_tree_put(&t, 0, k, make(&t, &s[k])), 0);
    assert_int_equal(wf_tree_sum(&t, &sum), 0);
    same(sum, &want);
    wf_tree_give(&t, sum);
    wf_tree_free(&t);
    wf_tree_free(&other);
    weft_ctx_free(ctx);
}

/* In order, a tree holds no more than one sum for each level. */
static void memory_grows_with_the_levels(void **state)
{
    struct wf_contribution *sum;
    struct shard s;
    weft_ctx *ctx;
    struct wf_tree t;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    wf_tree_init(&t, ctx, NULL, &rules);
    fill(&s);
    for (int k = 0; k < 1000; k++) {
        s.present = draw(3) != 0;
        assert_int_equal(wf_tree_put(&t, 0, k, make(&t, &s)), 0);
        assert_true(t.n_nodes + t.n_spare <= 12);
    }
    assert_int_equal(wf_tree_sum(&t, &sum), 0);
    wf_tree_give(&t, sum);
    wf_tree_free(&t);
    weft_ctx_free(ctx);
}

static void rows_of_one_id_are_added_in_sample_order(void **state)
{
    int32_t ids[] = {7, 2, 7, 7, 2, 49};
    float rows[6][WIDTH] = {{1e8f, 1, 2},  {3, 4, 5},     {1, 1, 1},
                            {-1e8f, 0, 0}, {1, 1, 1e-8f}, {9, 9, 9}};
    weft_tensor id = weft_view(WEFT_I32, ids, 2, (int64_t[]){2, 3});
    weft_tensor row = weft_view(WEFT_F32, rows, 3, (int64_t[]){2, 3, WIDTH});
    struct wf_scratch scratch = {NULL, 0};
    struct wf_rows r = {0};
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx), 0);
    assert_int_equal(wf_rows_collect(ctx, &scratch, ctx->pool, &id, &row, ROWS, &r), 0);
    assert_int_equal(r.n, 3);
    assert_int_equal(r.id[0], 7);
    assert_true(r.row[0] == (1e8f + 1) + -1e8f && r.row[1] == 2 && r.row[2] == 3);
    assert_int_equal(r.id[1], 2);
    assert_int_equal(r.id[2], 49);
    ids[3] = ROWS;
    assert_int_equal(wf_rows_collect(ctx, &scratch, ctx->pool, &id, &row, ROWS, &r), WEFT_EDATA);
    ids[3] = -1;
    assert_int_equal(wf_rows_collect(ctx, &scratch, ctx->pool, &id, &row, ROWS, &r), WEFT_EDATA);
    wf_free(ctx, r.id);
    wf_free(ctx, r.row);
    wf_free(ctx, scratch.mem);
    weft_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_gives_the_definition),
        cmocka_unit_test(sums_of_subtrees_can_be_put),
        cmocka_unit_test(memory_grows_with_the_levels),
        cmocka_unit_test(rows_of_one_id_are_added_in_sample_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
