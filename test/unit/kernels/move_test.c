/* move_test.c - boxes, joins, borders, lookups and sorting against plain loops over coordinates,
 * for every element size, SIMD level and thread count. */
#include "kernels/cpu/move.h"
#include "rows_support.h"

static const int sizes[] = {1, 2, 4, 8};

static char *random_bytes(int64_t n)
{
    char *b = malloc((size_t)n + 1);

    for (int64_t i = 0; i < n; i++)
        b[i] = (char)(random_unit() * 256);
    return b;
}

/* What a box means, element by element. */
static void plain_box(const struct wf_box *b, int size, const char *src, char *dst)
{
    int64_t n = 1;

    for (int a = 0; a < b->rank; a++)
        n *= b->dim[a];
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from = 0, to = 0;

        for (int a = b->rank - 1; a >= 0; a--) {
            from += rest % b->dim[a] * b->from[a];
            to += rest % b->dim[a] * b->to[a];
            rest /= b->dim[a];
        }
        memcpy(dst + to * size, src + from * size, (size_t)size);
    }
}

static void box_case(const struct wf_box *b, int size, const char *src, int64_t src_at,
                     int64_t dst_at, int64_t n_dst)
{
    char *want = zeros(n_dst * size, 1), *got = zeros(n_dst * size, 1);

    plain_box(b, size, src + src_at * size, want + dst_at * size);
    for (EACH_LEVEL(level))
        for (int i = 0; i < N_COUNTS; i++) {
            memset(got, 0, (size_t)(n_dst * size));
            wf_copy_box(wf_move_fns_at(level), contexts[i]->pool, size, b, src + src_at * size,
                        got + dst_at * size);
            check_same(got, want, (size_t)(n_dst * size), "box");
        }
    free(want);
    free(got);
}

static int64_t product(int rank, const int64_t *dim)
{
    int64_t n = 1;

    for (int a = 0; a < rank; a++)
        n *= dim[a];
    return n;
}

static void transposes_of_any_rank(void **state)
{
    static const struct {
        int rank;
        int64_t dim[5];
        int perm[5];
    } cases[] = {
        {1, {7}, {0}},
        {2, {1, 1}, {1, 0}},
        {2, {16, 16}, {1, 0}},
        {2, {70, 33}, {1, 0}},
        {2, {3, 130}, {1, 0}},
        {2, {200, 2}, {1, 0}},
        {2, {5, 0}, {1, 0}},
        {3, {4, 5, 6}, {2, 1, 0}},
        {3, {3, 40, 50}, {0, 2, 1}},
        {3, {20, 3, 17}, {1, 0, 2}},
        {3, {9, 70, 5}, {1, 2, 0}},
        {4, {2, 3, 4, 5}, {3, 1, 0, 2}},
        {4, {2, 7, 9, 16}, {0, 3, 1, 2}},
        {5, {2, 9, 3, 4, 8}, {2, 0, 3, 1, 4}}, /* [B,T,3,H,D] to [3,B,H,T,D] */
        {5, {2, 1, 3, 1, 8}, {4, 3, 2, 1, 0}},
        {2, {300, 300}, {0, 1}},
    };

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int s = 0; s < 4; s++) {
            int64_t n = product(cases[c].rank, cases[c].dim);
            char *src = random_bytes(n * sizes[s]);
            struct wf_box b;

            wf_box_transpose(cases[c].rank, cases[c].dim, cases[c].perm, &b);
            box_case(&b, sizes[s], src, 0, 0, n);
            free(src);
        }
}

static void slices_reversals_and_tiles(void **state)
{
    static const int64_t dim[] = {6, 7, 40}, begin[] = {1, 6, 3}, step[] = {2, -3, 1},
                         size[] = {2, 3, 31};
    static const int64_t begin2[] = {5, 0, 39}, step2[] = {-1, 1, -4}, size2[] = {6, 7, 10};
    static const int64_t repeats[] = {2, 1, 3}, one[] = {1, 1, 5}, flat[] = {7, 300, 1};
    static const bool reversed[3][3] = {{true, false, true}, {false, true, false}, {false}};
    int64_t at, n = product(3, dim);
    struct wf_box b;

    (void)state;
    for (int s = 0; s < 4; s++) {
        char *src = random_bytes(n * sizes[s] * 4);

        wf_box_slice(3, dim, begin, step, size, &b, &at);
        box_case(&b, sizes[s], src, at, 0, product(3, size));
        wf_box_slice(3, dim, begin2, step2, size2, &b, &at);
        box_case(&b, sizes[s], src, at, 0, product(3, size2));
        wf_box_unslice(3, dim, begin, step, size, &b, &at);
        box_case(&b, sizes[s], src, 0, at, n);
        wf_box_unslice(3, dim, begin2, step2, size2, &b, &at);
        box_case(&b, sizes[s], src, 0, at, n);
        for (int r = 0; r < 3; r++) {
            wf_box_reverse(3, dim, reversed[r], &b, &at);
            box_case(&b, sizes[s], src, at, 0, n);
        }
        wf_box_tile(3, dim, repeats, &b);
        box_case(&b, sizes[s], src, 0, 0, n * 6);
        wf_box_tile(3, one, flat, &b);
        box_case(&b, sizes[s], src, 0, 0, 5 * 2100);
        free(src);
    }
}

static void a_scalar_box_moves_one_element(void **state)
{
    struct wf_box b = {.rank = 0};
    int32_t x = 77, y = 0;

    (void)state;
    wf_copy_box(wf_move_fns_at(WEFT_SIMD_PORTABLE), NULL, 4, &b, &x, &y);
    assert_int_equal(y, 77);
}

static void joining_and_parting_are_inverse(void **state)
{
    static const struct {
        int64_t n_outer, bytes[5];
    } cases[] = {{0, {4, 8}},
                 {1, {4, 0, 12}},
                 {33, {64, 52, 4, 0, 128}},
                 {2000, {64, 64, 1, 7}},
                 {2, {100000, 30, 50000}}};

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t n = cases[c].n_outer, row = 0;
        char *part[5], *back[5], *whole, *want;

        for (int i = 0; i < 5; i++) {
            part[i] = random_bytes(n * cases[c].bytes[i]);
            back[i] = zeros(n * cases[c].bytes[i], 1);
            row += cases[c].bytes[i];
        }
        whole = zeros(n * row, 1);
        want = zeros(n * row, 1);
        for (int64_t r = 0, at = 0; r < n; r++)
            for (int i = 0; i < 5; at += cases[c].bytes[i++])
                memcpy(want + at, part[i] + r * cases[c].bytes[i], (size_t)cases[c].bytes[i]);
        for (EACH_LEVEL(level))
            for (int t = 0; t < N_COUNTS; t++) {
                const struct wf_move_fns *f = wf_move_fns_at(level);

                memset(whole, 0, (size_t)(n * row));
                wf_concat(f, contexts[t]->pool, n, 5, (const void *const *)part, cases[c].bytes,
                          whole);
                check_same(whole, want, (size_t)(n * row), "concat");
                wf_split(f, contexts[t]->pool, n, 5, whole, cases[c].bytes, (void *const *)back);
                for (int i = 0; i < 5; i++) {
                    check_same(back[i], part[i], (size_t)(n * cases[c].bytes[i]), "split");
                    memset(back[i], 0, (size_t)(n * cases[c].bytes[i]));
                }
            }
        for (int i = 0; i < 5; i++) {
            free(part[i]);
            free(back[i]);
        }
        free(whole);
        free(want);
    }
}

static int64_t pad_from(int64_t at, int64_t n, enum wf_pad_mode mode)
{
    if (at >= 0 && at < n)
        return at;
    if (mode == WF_PAD_CONSTANT)
        return -1;
    if (at < 0)
        return mode == WF_PAD_REFLECT ? -at : -at - 1;
    return mode == WF_PAD_REFLECT ? 2 * (n - 1) - at : 2 * n - 1 - at;
}

static void pad_case(enum wf_pad_mode mode, int size, const int64_t *dim, const int64_t *before,
                     const int64_t *after)
{
    int64_t out[3], n, value = 0x0102030405060708;
    char *src = random_bytes(product(3, dim) * size), *want, *got;

    for (int a = 0; a < 3; a++)
        out[a] = before[a] + dim[a] + after[a];
    n = product(3, out);
    want = zeros(n * size, 1);
    got = zeros(n * size, 1);
    for (int64_t i = 0; i < n; i++) {
        int64_t a = pad_from(i / (out[1] * out[2]) - before[0], dim[0], mode);
        int64_t b = pad_from(i / out[2] % out[1] - before[1], dim[1], mode);
        int64_t c = pad_from(i % out[2] - before[2], dim[2], mode);
        bool outside = a < 0 || b < 0 || c < 0;

        memcpy(want + i * size,
               outside ? (char *)&value : src + ((a * dim[1] + b) * dim[2] + c) * size,
               (size_t)size);
    }
    for (EACH_LEVEL(level))
        for (int i = 0; i < N_COUNTS; i++) {
            memset(got, 0, (size_t)(n * size));
            wf_pad(wf_move_fns_at(level), contexts[i]->pool, size, 3, dim, before, after, mode,
                   &value, src, got);
            check_same(got, want, (size_t)(n * size), "pad");
        }
    free(src);
    free(want);
    free(got);
}

static void borders_of_three_kinds(void **state)
{
    static const int64_t dim[][3] = {{3, 4, 5}, {2, 30, 50}, {4, 1, 9}};
    static const int64_t before[][3] = {{1, 2, 3}, {0, 5, 7}, {2, 0, 0}},
                         after[][3] = {{2, 0, 4}, {1, 9, 30}, {3, 0, 8}};

    (void)state;
    for (int c = 0; c < 3; c++)
        for (int s = 0; s < 4; s++)
            for (int mode = 0; mode < 3; mode++)
                pad_case((enum wf_pad_mode)mode, sizes[s], dim[c], before[c], after[c]);
    for (int s = 0; s < 4; s++) /* of nothing: all border */
        pad_case(WF_PAD_CONSTANT, sizes[s], (const int64_t[]){2, 0, 3}, before[0], after[0]);
}

static void rows_are_looked_up_into_columns(void **state)
{
    enum { TABLES = 3, N = 700 };
    static const int64_t n_rows[] = {5, 1000, 40}, row_bytes[] = {64, 12, 200};
    int64_t stride = 64 + 12 + 200 + 20, table = -1;
    char *tables[TABLES], *out = zeros(N * stride, 1), *want = zeros(N * stride, 1);
    int32_t *ids = zeros(N * TABLES, 4);

    (void)state;
    for (int t = 0; t < TABLES; t++)
        tables[t] = random_bytes(n_rows[t] * row_bytes[t]);
    for (int i = 0; i < N; i++)
        for (int64_t t = 0, at = 20; t < TABLES; at += row_bytes[t++]) {
            ids[i * TABLES + t] = (int32_t)(random_unit() * (double)n_rows[t]);
            memcpy(want + i * stride + at, tables[t] + ids[i * TABLES + t] * row_bytes[t],
                   (size_t)row_bytes[t]);
        }
    for (EACH_LEVEL(level))
        for (int i = 0; i < N_COUNTS; i++) {
            const struct wf_move_fns *f = wf_move_fns_at(level);
            struct wf_gather g[TABLES];

            for (int64_t t = 0, at = 20; t < TABLES; at += row_bytes[t++])
                g[t] = (struct wf_gather){tables[t], n_rows[t], row_bytes[t], ids + t,
                                          false,     TABLES,    out + at,     stride};
            memset(out, 0, (size_t)(N * stride));
            assert_int_equal(wf_gather_rows(f, contexts[i]->pool, g, TABLES, N, NULL), -1);
            check_same(out, want, (size_t)(N * stride), "gather");
            ids[300 * TABLES + 2] += 10000;
            ids[300 * TABLES + 1] += 10000;
            assert_int_equal(wf_gather_rows(f, contexts[i]->pool, g, TABLES, N, &table), 300);
            assert_int_equal(table, 1);
            ids[300 * TABLES + 1] -= 10000;
            assert_int_equal(wf_gather_rows(f, contexts[i]->pool, g, TABLES, N, &table), 300);
            assert_int_equal(table, 2);
            ids[300 * TABLES + 2] -= 10000;
        }
    for (int t = 0; t < TABLES; t++)
        free(tables[t]);
    free(out);
    free(want);
    free(ids);
}

/* A number far outside is refused before an address is computed from it. */
static void a_row_far_outside_is_refused(void **state)
{
    enum { ROWS = 4, N = 40 };
    static const int64_t bad[] = {INT64_MAX, INT64_MIN, INT64_MAX / 64 + 1, -1, ROWS};
    char *rows = random_bytes(ROWS * 64), *out = zeros(N * 64, 1);
    int64_t ids[N], table;

    (void)state;
    for (EACH_LEVEL(level))
        for (int b = 0; b < 5; b++) {
            struct wf_gather g = {rows, ROWS, 64, ids, true, 1, out, 64};

            for (int i = 0; i < N; i++)
                ids[i] = i % ROWS;
            ids[37] = bad[b];
            assert_int_equal(
                wf_gather_rows(wf_move_fns_at(level), contexts[0]->pool, &g, 1, N, &table), 37);
            assert_int_equal(table, 0);
        }
    free(rows);
    free(out);
}

static void rows_are_added_in_sample_order(void **state)
{
    enum { ROWS = 50, N = 900 };
    static const int64_t widths[] = {1, 16, 21};

    (void)state;
    for (int w = 0; w < 3; w++) {
        int64_t width = widths[w], stride = width + 2;
        float *x = random_floats(N * stride, -1, 1), *y = random_floats(ROWS * width, -1, 1);
        float *want = copy_floats(y, ROWS * width);
        int32_t ids[N], first[N], next[N];
        int64_t rows[N];
        struct wf_dedupe d = {.ids = ids,
                              .id_stride = 1,
                              .n = N,
                              .n_rows = ROWS,
                              .rows = rows,
                              .first = first,
                              .next = next,
                              .scratch = malloc((size_t)wf_dedupe_scratch(N))};

        for (int i = 0; i < N; i++) {
            ids[i] = (int32_t)(random_unit() * random_unit() * ROWS);
            for (int64_t c = 0; c < width; c++)
                want[ids[i] * width + c] += x[i * stride + c];
        }
        assert_int_equal(wf_dedupe_run(NULL, &d, 1), -1);
        for (EACH_LEVEL(level))
            for (int i = 0; i < N_COUNTS; i++) {
                float *got = copy_floats(y, ROWS * width);

                wf_scatter_add_rows(wf_optim_fns_at(level), contexts[i]->pool, &d, width, x, stride,
                                    got);
                check_same(got, want, (size_t)(ROWS * width) * 4, "scatter");
                free(got);
            }
        free(x);
        free(y);
        free(want);
        free(d.scratch);
    }
}

static void one_hot_axes(void **state)
{
    enum { OUTER = 40, DEPTH = 7, INNER = 3 };
    int64_t ids[OUTER * INNER];
    float on = 2, off = -1, out[OUTER * DEPTH * INNER];

    (void)state;
    for (int i = 0; i < OUTER * INNER; i++)
        ids[i] = (int64_t)(random_unit() * DEPTH);
    for (int t = 0; t < N_COUNTS; t++) {
        struct wf_pool *pool = contexts[t]->pool;

        assert_int_equal(wf_one_hot(pool, 4, OUTER, DEPTH, INNER, ids, true, false, &on, &off, out),
                         -1);
        for (int i = 0; i < OUTER * DEPTH * INNER; i++) {
            int o = i / (DEPTH * INNER), d = i / INNER % DEPTH, c = i % INNER;

            assert_true(out[i] == (ids[o * INNER + c] == d ? on : off));
        }
        ids[50] = -1;
        assert_int_equal(wf_one_hot(pool, 4, OUTER, DEPTH, INNER, ids, true, false, &on, &off, out),
                         50);
        assert_int_equal(wf_one_hot(pool, 4, OUTER, DEPTH, INNER, ids, true, true, &on, &off, out),
                         -1);
        for (int d = 0; d < DEPTH; d++)
            assert_true(out[(50 / INNER * DEPTH + d) * INNER + 50 % INNER] == off);
        ids[50] = 3;
    }
}

/* ---- order ------------------------------------------------------------------------------- */

struct entry {
    float value;
    int64_t index;
};

static int sign;

static int in_order(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (isnan(x->value) != isnan(y->value))
        return isnan(x->value) ? 1 : -1;
    if (!isnan(x->value) && x->value != y->value)
        return x->value < y->value ? -sign : sign;
    return (x->index > y->index) - (x->index < y->index);
}

static void sort_case(int64_t n_outer, int64_t n, int64_t n_inner, bool descending, bool integers)
{
    int64_t total = n_outer * n * n_inner;
    float *x = random_floats(total, -20, 20), *values = zeros(total, 4);
    int32_t *ints = zeros(total, 4), *int_values = zeros(total, 4), *index32 = zeros(total, 4);
    int64_t *index64 = zeros(total, 8);
    struct entry *want = zeros(n, sizeof *want);
    void *scratch = malloc((size_t)(wf_sort_scratch(n) * 7 + 1));

    for (int64_t i = 0; i < total; i++) {
        double u = random_unit();

        x[i] = u < .3    ? floorf(x[i])
               : u < .33 ? NAN
               : u < .36 ? -0.0f
               : u < .39 ? 0.0f
               : u < .4  ? -INFINITY
                         : x[i];
        ints[i] = (int32_t)(random_unit() * 60) - 30;
    }
    for (int t = 0; t < N_COUNTS; t++) {
        wf_sort(contexts[t]->pool, integers ? WF_SORT_I32 : WF_SORT_F32, descending, n_outer, n,
                n_inner, integers ? (void *)ints : (void *)x,
                integers ? (void *)int_values : (void *)values, true, index64, scratch);
        wf_sort(contexts[t]->pool, integers ? WF_SORT_I32 : WF_SORT_F32, descending, n_outer, n,
                n_inner, integers ? (void *)ints : (void *)x, NULL, false, index32, scratch);
        for (int64_t r = 0; r < n_outer * n_inner; r++) {
            int64_t first = r / n_inner * n * n_inner + r % n_inner;

            for (int64_t i = 0; i < n; i++)
                want[i] = (struct entry){
                    integers ? (float)ints[first + i * n_inner] : x[first + i * n_inner], i};
            sign = descending ? -1 : 1;
            qsort(want, (size_t)n, sizeof *want, in_order);
            for (int64_t i = 0; i < n; i++) {
                int64_t at = first + i * n_inner;

                assert_int_equal(index64[at], want[i].index);
                assert_int_equal(index32[at], want[i].index);
                if (integers)
                    assert_int_equal(int_values[at], ints[first + want[i].index * n_inner]);
                else
                    check_same(&values[at], &x[first + want[i].index * n_inner], 4, "sorted value");
            }
        }
    }
    free(x);
    free(values);
    free(ints);
    free(int_values);
    free(index32);
    free(index64);
    free(want);
    free(scratch);
}

static void sorting_is_stable_with_nan_last(void **state)
{
    static const int64_t shapes[][3] = {{3, 1, 1},    {20, 7, 1},   {5, 48, 2}, {4, 49, 1},
                                        {2, 1000, 3}, {1, 9000, 1}, {3, 0, 2}};

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int mode = 0; mode < 4; mode++)
            sort_case(shapes[s][0], shapes[s][1], shapes[s][2], mode & 1, mode & 2);
}

static void top_k_is_the_head_of_a_descending_sort(void **state)
{
    static const int64_t cases[][3] = {{3, 1, 1},     {70, 10, 1},    {50, 10, 5},
                                       {30, 1000, 5}, {3, 1000, 100}, {2, 200, 200}};

    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        int64_t n_rows = cases[c][0], n = cases[c][1], k = cases[c][2];
        float *x = random_floats(n_rows * n, -3, 3), *values = zeros(n_rows * k, 4);
        int32_t *index = zeros(n_rows * k, 4);
        struct entry *want = zeros(n, sizeof *want);
        void *scratch = malloc((size_t)(wf_sort_scratch(n) * 7));

        for (int64_t i = 0; i < n_rows * n; i++)
            x[i] = random_unit() < .1 ? NAN : random_unit() < .5 ? floorf(x[i]) : x[i];
        for (int t = 0; t < N_COUNTS; t++) {
            wf_top_k(contexts[t]->pool, WF_SORT_F32, n_rows, n, k, x, values, false, index,
                     scratch);
            for (int64_t r = 0; r < n_rows; r++) {
                for (int64_t i = 0; i < n; i++)
                    want[i] = (struct entry){x[r * n + i], i};
                sign = -1;
                qsort(want, (size_t)n, sizeof *want, in_order);
                for (int64_t i = 0; i < k; i++) {
                    assert_int_equal(index[r * k + i], want[i].index);
                    check_same(&values[r * k + i], &want[i].value, 4, "top_k value");
                }
            }
        }
        free(x);
        free(values);
        free(index);
        free(want);
        free(scratch);
    }
}

static void filling(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int64_t n = 0; n < 100000; n = n * 7 + 1) {
            uint64_t value = 0x1122334455667788;
            char *x = zeros(n * sizes[s] + 8, 1);

            wf_fill(contexts[1]->pool, sizes[s], n, &value, x);
            for (int64_t i = 0; i < n; i++)
                assert_memory_equal(x + i * sizes[s], &value, (size_t)sizes[s]);
            for (int i = 0; i < 8; i++)
                assert_int_equal(x[n * sizes[s] + i], 0);
            free(x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposes_of_any_rank),
        cmocka_unit_test(slices_reversals_and_tiles),
        cmocka_unit_test(a_scalar_box_moves_one_element),
        cmocka_unit_test(joining_and_parting_are_inverse),
        cmocka_unit_test(borders_of_three_kinds),
        cmocka_unit_test(rows_are_looked_up_into_columns),
        cmocka_unit_test(a_row_far_outside_is_refused),
        cmocka_unit_test(rows_are_added_in_sample_order),
        cmocka_unit_test(one_hot_axes),
        cmocka_unit_test(sorting_is_stable_with_nan_last),
        cmocka_unit_test(top_k_is_the_head_of_a_descending_sort),
        cmocka_unit_test(filling),
    };

    return cmocka_run_group_tests(tests, contexts_open, contexts_close);
}
