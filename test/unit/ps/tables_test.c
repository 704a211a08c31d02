/* tables_test.c - rows of tables on a server and at a worker: what is stored, what is read, what
 * travels, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ps/lookup.h"
#include "ps/store.h"

enum { WIDTH = 16, SMALL = 5 };
static const int64_t many = 100000000;

static weft_ctx *ctx;
static struct wf_var var[3];
static struct wf_rules rules;
static struct wf_cut *cut;
static struct wf_tables_opts opts;

/* A table of 10^8 rows, one of 5 columns, and a vector. */
static int setup(void **state)
{
    (void)state;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 4, .memory_limit = 64 << 20),
                     &ctx))
        return 1;
    var[0] = (struct wf_var){.name = "users",
                             .rank = 2,
                             .dim = {many, WIDTH},
                             .count = many * WIDTH,
                             .table = true,
                             .init = {"uniform", -1, 1, "users", 9}};
    var[1] = (struct wf_var){.name = "bias", .rank = 1, .dim = {40}, .count = 40};
    var[2] = (struct wf_var){.name = "items",
                             .rank = 2,
                             .dim = {20000, SMALL},
                             .count = 20000 * SMALL,
                             .table = true,
                             .init = {"constant", 0.5, 0, "items", 9}};
    rules = (struct wf_rules){.optim = wf_optim_find("adam"),
                              .n_vars = 3,
                              .var = var,
                              .n_dense = 48,
                              .n_groups = 1,
                              .n_sums = 2};
    wf_optim_defaults(rules.optim, rules.attrs);
    if (wf_cut_new(ctx, &rules, 1 << 20, &cut))
        return 1;
    opts = (struct wf_tables_opts){&rules, cut, 4};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wf_cut_free(cut);
    weft_ctx_free(ctx);
    return 0;
}

/* ---- a piece of a server --------------------------------------------------------------------- */

struct server {
    struct wf_tables *tables;
    struct wf_merge *merge;
    struct wf_rules own;
    int piece;
};

static void open_server(struct server *s, int piece)
{
    struct wf_piece all[] = {{0, 0, var[0].count, 0}, {2, 0, var[2].count, 0}};

    s->own = rules;
    s->own.n_dense = 0;
    s->piece = piece;
    assert_int_equal(wf_merge_new(ctx, ctx->pool, &s->own, 2, all, &s->merge), 0);
    assert_int_equal(wf_tables_new(ctx, &opts, piece, &s->tables), 0);
}

static void close_server(struct server *s)
{
    wf_tables_free(s->tables);
    wf_merge_free(s->merge);
}

/* The k-th row of a table that belongs to a piece. */
static int64_t id_in(int v, int piece, int64_t k)
{
    for (int64_t id = 0; id < var[v].dim[0]; id++)
        if (wf_cut_piece_of(cut, v, id) == piece && k-- == 0)
            return id;
    fail_msg("piece %d has no such row of table %d", piece, v);
    return -1;
}

static struct wf_contribution *gradients(struct server *s, int n, const int64_t *ids, float g)
{
    struct wf_contribution *c;

    assert_int_equal(wf_contribution_new(ctx, &s->own, &c), 0);
    c->sums[0] = 1;
    assert_int_equal(wf_rows_reserve(ctx, &c->rows[0], n + 1, WIDTH), 0);
    c->rows[0].n = n;
    for (int i = 0; i < n; i++) {
        c->rows[0].id[i] = ids[i];
        for (int k = 0; k < WIDTH; k++)
            c->rows[0].row[i * WIDTH + k] = g * (float)(k + 1);
    }
    return c;
}

static void update(struct server *s, int64_t t, int n, const int64_t *ids, float g)
{
    struct wf_contribution *c = gradients(s, n, ids, g);
    float scale[3] = {1, 1, 1};

    assert_int_equal(wf_tables_apply(s->tables, s->merge, c, &(struct wf_step){.iteration = t + 1},
                                     scale, -1, t),
                     0);
    wf_contribution_free(c);
}

/* Row `id` of the first table at version t, if it has changed since `since`. */
static bool read_row(struct server *s, int64_t t, int64_t id, int64_t since, float *row)
{
    int64_t ask[4] = {0, 1, id, since}, head[3];
    struct wf_payload out = {.p = NULL};
    bool came;

    assert_int_equal(wf_tables_answer(s->tables, t, (const char *)ask, sizeof ask, &out), 0);
    memcpy(head, out.p, sizeof head);
    assert_int_equal(head[0], 0);
    assert_int_equal(head[1], 1);
    came = out.p[24];
    assert_int_equal(head[2], came);
    if (came)
        memcpy(row, out.p + 32, WIDTH * sizeof *row);
    wf_free(ctx, out.p);
    return came;
}

static void rows_of_two_versions_can_be_read(void **state)
{
    struct server s;
    float zero[WIDTH], one[WIDTH], two[WIDTH], now[WIDTH];
    int64_t id;

    (void)state;
    open_server(&s, cut->first_table + 3);
    id = id_in(0, s.piece, 300);
    assert_true(read_row(&s, 0, id, -1, zero));
    assert_int_equal(wf_tables_count(s.tables), 0); /* reading stores nothing */
    assert_true(zero[0] >= -1 && zero[0] < 1 && zero[0] != zero[1]);
    update(&s, 0, 1, &id, 0.5F);
    assert_int_equal(wf_tables_count(s.tables), 1);
    assert_true(read_row(&s, 0, id, -1, now));
    assert_memory_equal(now, zero, sizeof now);
    assert_true(read_row(&s, 1, id, -1, one));
    assert_memory_not_equal(one, zero, sizeof one);
    update(&s, 1, 1, &id, 0.5F);
    assert_true(read_row(&s, 1, id, -1, now));
    assert_memory_equal(now, one, sizeof now);
    assert_true(read_row(&s, 2, id, -1, two));
    assert_memory_not_equal(two, one, sizeof two);
    update(&s, 2, 0, NULL, 0); /* a step without it */
    assert_true(read_row(&s, 2, id, -1, now));
    assert_memory_equal(now, two, sizeof now);
    close_server(&s);
}

static void what_has_not_changed_is_not_sent(void **state)
{
    struct server s;
    float row[WIDTH];
    int64_t id, other;

    (void)state;
    open_server(&s, cut->first_table);
    id = id_in(0, s.piece, 5);
    other = id_in(0, s.piece, 6);
    assert_false(read_row(&s, 0, id, 0, row)); /* never updated */
    update(&s, 0, 1, &id, 1);
    assert_true(read_row(&s, 1, id, 0, row));
    assert_false(read_row(&s, 0, id, 0, row)); /* at the version before it */
    assert_false(read_row(&s, 1, id, 1, row));
    assert_false(read_row(&s, 1, other, 0, row));
    update(&s, 1, 1, &other, 1);
    assert_false(read_row(&s, 2, id, 1, row));
    assert_true(read_row(&s, 2, id, 0, row));
    close_server(&s);
}

/* A copy that is filled block by block, while records arrive, is the same. */
static void a_copy_is_filled_by_blocks(void **state)
{
    struct server a, b;
    struct wf_payload block = {.p = NULL};
    int64_t ids[60], t = 0;
    float x[WIDTH], y[WIDTH];

    (void)state;
    open_server(&a, cut->first_table + 1);
    open_server(&b, cut->first_table + 1);
    for (int i = 0; i < 60; i++)
        ids[i] = id_in(0, a.piece, i * 97);
    update(&a, t++, 40, ids, 1);
    update(&a, t++, 30, ids + 30, -0.5F);
    for (int k = 0; k < 4; k++) {
        struct wf_contribution *c = gradients(&a, 25, ids + 8 * k, 0.25F);
        float scale[3] = {1, 1, 1};

        block.n = 0;
        assert_int_equal(wf_tables_dump(a.tables, k, t, true, &block), 0);
        assert_int_equal(wf_tables_take(b.tables, k, block.p, block.n), 0);
        assert_int_equal(wf_tables_apply(a.tables, a.merge, c,
                                         &(struct wf_step){.iteration = t + 1}, scale, -1, t),
                         0);
        for (int i = 0; i <= k; i++)
            assert_int_equal(wf_tables_apply(b.tables, b.merge, c,
                                             &(struct wf_step){.iteration = t + 1}, scale, i, t),
                             0);
        wf_contribution_free(c);
        t++;
    }
    for (int i = 0; i < 60; i++)
        for (int64_t v = t - 1; v <= t; v++) {
            assert_true(read_row(&a, v, ids[i], -1, x));
            assert_true(read_row(&b, v, ids[i], -1, y));
            assert_memory_equal(x, y, sizeof x);
        }
    assert_int_equal(wf_tables_count(a.tables), wf_tables_count(b.tables));
    wf_free(ctx, block.p);
    close_server(&a);
    close_server(&b);
}

static struct wf_contribution *own_gradients(struct server *s, int first, int n, const int64_t *ids)
{
    struct wf_contribution *c = gradients(s, n, ids + first, 1);

    for (int i = 0; i < n; i++)
        for (int k = 0; k < WIDTH; k++)
            c->rows[0].row[i * WIDTH + k] = (float)((first + i) * 7 % 23 - 11 + k) * 0.125F;
    return c;
}

static void apply_own(struct server *s, int first, int n, const int64_t *ids, int64_t iteration,
                      int block, int64_t t)
{
    struct wf_contribution *c = own_gradients(s, first, n, ids);
    float scale[3] = {1, 1, 1};

    assert_int_equal(wf_tables_apply(s->tables, s->merge, c,
                                     &(struct wf_step){.iteration = iteration}, scale, block, t),
                     0);
    wf_contribution_free(c);
}

/* Rows of several blocks, old and new ones in any order, each with another gradient: together,
 * block by block, and one by one. */
static void each_row_takes_its_own_gradient(void **state)
{
    enum { N = 180, KNOWN = 70 };
    struct server a, b, c;
    int64_t ids[N], blocks = 0;

    (void)state;
    open_server(&a, cut->first_table + 2);
    open_server(&b, cut->first_table + 2);
    open_server(&c, cut->first_table + 2);
    for (int i = 0; i < N; i++) /* not in their order */
        ids[i] = id_in(0, a.piece, i * 61 % N * 9);
    for (int i = 0; i < N; i++)
        blocks |= 1 << wf_cut_block_of(cut, 0, ids[i], opts.n_blocks);
    assert_int_equal(blocks, (1 << opts.n_blocks) - 1);
    apply_own(&a, 40, KNOWN, ids, 1, -1, 0);
    apply_own(&a, 0, N, ids, 2, -1, 1);
    for (int k = 0; k < opts.n_blocks; k++) {
        apply_own(&b, 40, KNOWN, ids, 1, k, 0);
        apply_own(&b, 0, N, ids, 2, k, 1);
    }
    for (int i = 0; i < KNOWN; i++)
        apply_own(&c, 40 + i, 1, ids, 1, -1, i);
    for (int i = 0; i < N; i++)
        apply_own(&c, i, 1, ids, 2, -1, KNOWN + i);
    assert_int_equal(wf_tables_count(a.tables), N);
    assert_int_equal(wf_tables_count(b.tables), N);
    for (int i = 0; i < N; i++) {
        const float *want = wf_tables_find(c.tables, 0, ids[i]);
        float x[WIDTH], y[WIDTH];

        assert_memory_equal(wf_tables_find(a.tables, 0, ids[i]), want, 3 * WIDTH * sizeof *want);
        assert_memory_equal(wf_tables_find(b.tables, 0, ids[i]), want, 3 * WIDTH * sizeof *want);
        assert_true(read_row(&a, 1, ids[i], -1, x));
        assert_true(read_row(&b, 1, ids[i], -1, y));
        assert_memory_equal(x, y, sizeof x);
        assert_memory_not_equal(x, want, sizeof x);
    }
    close_server(&a);
    close_server(&b);
    close_server(&c);
}

/* ---- values that are kept -------------------------------------------------------------------- */

enum { IDS = 60 };

static void set_rows(struct server *s, bool keeps, int block, int64_t t, int n, const int64_t *ids,
                     float x)
{
    struct wf_contribution *c = gradients(s, n, ids, x);

    assert_int_equal((keeps ? wf_tables_keep : wf_tables_replace)(s->tables, c, block, t, t), 0);
    wf_contribution_free(c);
}

static void read_all(struct server *s, int64_t t, const int64_t *ids, float x[IDS][WIDTH])
{
    for (int i = 0; i < IDS; i++)
        assert_true(read_row(s, t, ids[i], -1, x[i]));
}

/* Slots of the rows that exist. */
static float sum_slots(struct server *s, const int64_t *ids, int n)
{
    float sum = 0;

    for (int i = 0; i < n; i++) {
        const float *row = wf_tables_find(s->tables, 0, ids[i]);

        for (int k = WIDTH; row && k < 3 * WIDTH; k++)
            sum += row[k] * (float)(k + i);
    }
    return sum;
}

/* Rows that change after values were kept, also new ones, get them back; the version before can be
 * read, slots stay. So it is at a copy that was filled in between, and again later. */
static void kept_values_are_restored_at_all_copies(void **state)
{
    struct server a, b;
    struct wf_payload block = {.p = NULL};
    float best[IDS][WIDTH], now[IDS][WIDTH], x[IDS][WIDTH], slots;
    int64_t ids[IDS], t = 0;

    (void)state;
    open_server(&a, cut->first_table + 1);
    open_server(&b, cut->first_table + 1);
    for (int i = 0; i < IDS; i++)
        ids[i] = id_in(0, a.piece, i * 97);
    update(&a, t++, 30, ids, 1);
    assert_int_equal(wf_tables_restore(a.tables, -1, t, t), WEFT_EPEER);
    set_rows(&a, true, -1, t++, 5, ids + 2, 0.5F);
    assert_true(wf_tables_keeps(a.tables));
    read_all(&a, t, ids, best);
    update(&a, t++, 20, ids + 20, -0.5F); /* ten of them are new */
    set_rows(&a, false, -1, t++, 8, ids, 3);
    for (int k = 0; k < 4; k++) {
        block.n = 0;
        assert_int_equal(wf_tables_dump(a.tables, k, t, true, &block), 0);
        assert_int_equal(wf_tables_take(b.tables, k, block.p, block.n), 0);
    }
    for (int round = 0; round < 3; round++) {
        int64_t was = t;

        for (int k = 0; k < 3; k++, t++) {
            update(&a, t, 12, ids + 15 * k + round, 0.25F);
            update(&b, t, 12, ids + 15 * k + round, 0.25F);
        }
        read_all(&a, t, ids, now);
        assert_true(memcmp(now, best, sizeof now) != 0 && t > was);
        slots = sum_slots(&a, ids, IDS);
        assert_int_equal(wf_tables_restore(a.tables, -1, t, t), 0);
        for (int k = 0; k < 4; k++) /* as a target does */
            assert_int_equal(wf_tables_restore(b.tables, k, t, t), 0);
        t++;
        for (int k = 0; k < 2; k++) {
            read_all(k ? &b : &a, t, ids, x);
            assert_memory_equal(x, best, sizeof x);
            read_all(k ? &b : &a, t - 1, ids, x);
            assert_memory_equal(x, now, sizeof x);
            assert_true(sum_slots(k ? &b : &a, ids, IDS) == slots);
        }
    }
    set_rows(&a, true, -1, t++, 1, ids, 7); /* others are kept now */
    read_all(&a, t, ids, best);
    update(&a, t++, IDS, ids, 1);
    assert_int_equal(wf_tables_restore(a.tables, -1, t, t), 0);
    read_all(&a, t + 1, ids, x);
    assert_memory_equal(x, best, sizeof x);
    wf_free(ctx, block.p);
    close_server(&a);
    close_server(&b);
}

static void count_kept(void *arg, int64_t id, bool existed, const float *row)
{
    int64_t *n = arg;

    (void)id;
    (void)row;
    n[existed]++;
}

/* Keeping is free, and each row is kept once, however often it changes. */
static void only_changed_rows_are_kept(void **state)
{
    struct server s;
    int64_t ids[IDS], n[2] = {0, 0}, before;

    (void)state;
    open_server(&s, cut->first_table);
    for (int i = 0; i < IDS; i++)
        ids[i] = id_in(0, s.piece, i * 53);
    update(&s, 0, 40, ids, 1);
    before = (int64_t)weft_ctx_memory(ctx);
    set_rows(&s, true, -1, 1, 0, ids, 0);
    assert_true((int64_t)weft_ctx_memory(ctx) <= before);
    for (int t = 2; t < 30; t++)
        update(&s, t, 20, ids + 25, 1);
    wf_tables_each_kept(s.tables, 0, count_kept, n);
    assert_int_equal(n[0], 5);
    assert_int_equal(n[1], 15);
    assert_int_equal(wf_tables_restore(s.tables, -1, 30, 30), 0);
    n[0] = n[1] = 0;
    wf_tables_each_kept(s.tables, 0, count_kept, n); /* that five did not exist is still known */
    assert_int_equal(n[0], 5);
    assert_int_equal(n[1], 0);
    close_server(&s);
}

/* A million rows of the largest table, in a context of 64 MB, would not fit if more than they were
 * stored; two hundred thousand do. */
static void only_updated_rows_have_memory(void **state)
{
    struct server s;
    int64_t ids[1000], id = 0;

    (void)state;
    open_server(&s, cut->first_table);
    for (int t = 0; t < 100; t++) {
        for (int i = 0; i < 1000; i++, id += 37)
            while (wf_cut_piece_of(cut, 0, ids[i] = id) != s.piece)
                id++;
        update(&s, t, 1000, ids, 1);
    }
    assert_int_equal(wf_tables_count(s.tables), 100000);
    close_server(&s);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* A push with these ids. */
static weft_status pushed(int piece, int64_t n, int n_ids, const int64_t *ids, int64_t bytes_more)
{
    struct wf_contribution *c;
    struct server s;
    int64_t size = 16 + 8 + n_ids * (8 + WIDTH * 4) + 8;
    char *p = calloc(1, (size_t)(size + 64));
    weft_status st;

    memcpy(p + 16, &n, sizeof n);
    if (n_ids)
        memcpy(p + 24, ids, (size_t)n_ids * sizeof *ids);
    open_server(&s, piece);
    assert_int_equal(wf_contribution_new(ctx, &s.own, &c), 0);
    st = wf_tables_read(&opts, piece, 1, p, size + bytes_more, c);
    wf_contribution_free(c);
    close_server(&s);
    free(p);
    return st;
}

static void expect(weft_status st, const char *text)
{
    assert_int_equal(st, WEFT_EPEER);
    if (!strstr(weft_error(), text))
        fail_msg("'%s' does not say '%s'", weft_error(), text);
}

static void hostile_pushes_are_refused(void **state)
{
    int piece = cut->first_table + 2;
    int64_t a = id_in(0, piece, 0), b = id_in(0, piece, 1), other = id_in(0, piece + 1, 0);

    (void)state;
    assert_int_equal(pushed(piece, 0, 0, NULL, 0), WEFT_OK);
    assert_int_equal(pushed(piece, 2, 2, (int64_t[]){a, b}, 0), WEFT_OK);
    expect(pushed(piece, 2, 2, (int64_t[]){b, a}, 0), "out of order");
    expect(pushed(piece, 2, 2, (int64_t[]){a, a}, 0), "comes twice");
    expect(pushed(piece, 1, 1, (int64_t[]){-1}, 0), "has no row -1");
    expect(pushed(piece, 1, 1, &many, 0), "has no row 100000000");
    expect(pushed(piece, 1, 1, &other, 0), "belongs to piece");
    expect(pushed(piece, 3, 2, (int64_t[]){a, b}, 0), "cut off");
    expect(pushed(piece, 1, 2, (int64_t[]){a, b}, 0), "more bytes than rows");
    expect(pushed(piece, -1, 0, NULL, 0), "-1 rows");
    expect(pushed(piece, INT64_MAX, 0, NULL, 0), "rows of table 'users'");
    expect(pushed(piece, (int64_t)1 << 60, 2, (int64_t[]){a, b}, 0), "rows of table 'users'");
    expect(pushed(piece, 2, 2, (int64_t[]){a, b}, 8), "more bytes than rows");
    expect(pushed(piece, 2, 2, (int64_t[]){a, b}, -1), "cut off");
    for (int64_t less = 1; less < 24; less++)
        expect(pushed(piece, 0, 0, NULL, -less - 1), "cut off");
}

static void hostile_requests_are_refused(void **state)
{
    int piece = cut->first_table + 2;
    int64_t a = id_in(0, piece, 0), b = id_in(0, piece, 1), other = id_in(0, piece + 1, 0);
    const struct {
        int64_t ask[6];
        int64_t n;
        const char *text;
    } row[] = {{{0, 2, b, a, -1, -1}, 48, "not in order"},
               {{0, 2, a, a, -1, -1}, 48, "not in order"},
               {{0, 1, -5, -1}, 32, "not in the table"},
               {{0, 1, many, -1}, 32, "not in the table"},
               {{0, 1, other, -1}, 32, "in another piece"},
               {{1, 1, 0, -1}, 32, "not a table"},
               {{7, 1, 0, -1}, 32, "not a table"},
               {{-1, 1, 0, -1}, 32, "not a table"},
               {{0, 2, a, -1}, 32, "2 rows in 16 bytes"},
               {{0, INT64_MAX, a, -1}, 32, "rows in 16 bytes"},
               {{0, -1, a, -1}, 32, "-1 rows"},
               {{0, 1, a, -1}, 20, "rows in 4 bytes"},
               {{0, 1, a, -1}, 8, "cut off"}};

    (void)state;
    assert_int_equal(wf_tables_check(&opts, piece, NULL, 0), WEFT_OK);
    for (int i = 0; i < WF_COUNT(row); i++)
        expect(wf_tables_check(&opts, piece, (const char *)row[i].ask, row[i].n), row[i].text);
}

/* Every byte of a copy may be another one: it is refused, or is a copy of something else. */
static void damaged_copies_do_no_harm(void **state)
{
    struct server a, b;
    struct wf_payload p = {.p = NULL};
    int64_t ids[3];

    (void)state;
    open_server(&a, cut->first_table);
    open_server(&b, cut->first_table);
    for (int i = 0; i < 3; i++)
        ids[i] = id_in(0, a.piece, i * 300);
    update(&a, 0, 3, ids, 1);
    assert_int_equal(wf_tables_dump(a.tables, -1, 1, true, &p), 0);
    for (int64_t n = 0; n < p.n; n++) {
        char *cut_off = malloc((size_t)n + 1);

        memcpy(cut_off, p.p, (size_t)n);
        if (wf_tables_take(b.tables, -1, cut_off, n) == 0)
            assert_true(wf_tables_count(b.tables) < 3);
        free(cut_off);
    }
    for (int64_t i = 0; i < 8 * p.n; i += 3) {
        p.p[i / 8] ^= (char)(1 << i % 8);
        wf_tables_take(b.tables, -1, p.p, p.n);
        p.p[i / 8] ^= (char)(1 << i % 8);
    }
    assert_int_equal(wf_tables_take(b.tables, -1, p.p, p.n), 0);
    assert_int_equal(wf_tables_count(b.tables), 3);
    wf_free(ctx, p.p);
    close_server(&a);
    close_server(&b);
}

/* The same of values that are kept. */
static void damaged_copies_of_kept_values_do_no_harm(void **state)
{
    struct server a, b;
    struct wf_payload p = {.p = NULL};
    int64_t ids[3], n[2] = {0, 0};
    int whole = 0;

    (void)state;
    open_server(&a, cut->first_table);
    open_server(&b, cut->first_table);
    for (int i = 0; i < 3; i++)
        ids[i] = id_in(0, a.piece, i * 300);
    update(&a, 0, 2, ids, 1);
    set_rows(&a, true, -1, 1, 0, ids, 0);
    update(&a, 2, 3, ids, 1);
    assert_int_equal(wf_tables_dump(a.tables, -1, 3, true, &p), 0);
    for (int64_t k = 0; k < p.n; k++) {
        char *cut_off = malloc((size_t)k + 1);

        memcpy(cut_off, p.p, (size_t)k);
        whole += wf_tables_take(b.tables, -1, cut_off, k) == 0;
        free(cut_off);
    }
    assert_true(whole > 0 && whole < 40); /* where a list ends */
    for (int64_t i = 0; i < 8 * p.n; i += 3) {
        p.p[i / 8] ^= (char)(1 << i % 8);
        wf_tables_take(b.tables, -1, p.p, p.n);
        p.p[i / 8] ^= (char)(1 << i % 8);
    }
    assert_int_equal(wf_tables_take(b.tables, -1, p.p, p.n), 0);
    wf_tables_each_kept(b.tables, 0, count_kept, n);
    assert_int_equal(n[0], 1);
    assert_int_equal(n[1], 2);
    wf_free(ctx, p.p);
    close_server(&a);
    close_server(&b);
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* Asks all pieces, and takes their answers. */
static void fetch(struct wf_lookup *l, struct server *s, int64_t t)
{
    const struct wf_payload *body;
    struct wf_payload answer = {.p = NULL};

    assert_int_equal(wf_lookup_request(l, &body), 0);
    for (int k = 0; k < cut->n_table_pieces; k++) {
        if (body[k].n == 0)
            continue;
        assert_int_equal(wf_tables_answer(s[k].tables, t, body[k].p, body[k].n, &answer), 0);
        assert_int_equal(wf_lookup_take(l, k, t, answer.p, answer.n), 0);
    }
    wf_free(ctx, answer.p);
}

static void a_worker_keeps_rows_within_a_bound(void **state)
{
    struct server s[WF_MAX_TABLE_PIECES];
    struct wf_lookup *l;
    struct wf_lookup_counts n;
    int64_t ids[1000];
    static float rows[1000 * WIDTH];

    (void)state;
    for (int k = 0; k < cut->n_table_pieces; k++)
        open_server(&s[k], cut->first_table + k);
    assert_int_equal(wf_lookup_new(ctx, &opts, 200 * (WIDTH * 4 + 32), &l), 0);
    for (int i = 0; i < 1000; i++)
        ids[i] = (int64_t)i * 99999;
    /* 100 rows: once a version, and only what has changed */
    assert_int_equal(wf_lookup_want(l, 0, 0, 100, ids), 0);
    assert_int_equal(wf_lookup_want(l, 0, 0, 100, ids), 0);
    assert_false(wf_lookup_copy(l, 0, 0, 100, ids, rows));
    fetch(l, s, 0);
    assert_true(wf_lookup_copy(l, 0, 0, 100, ids, rows));
    n = wf_lookup_counts(l);
    assert_int_equal(n.asked, 100);
    assert_int_equal(n.sent, 100);
    assert_int_equal(wf_lookup_want(l, 0, 0, 100, ids), 0);
    fetch(l, s, 0);
    assert_int_equal(wf_lookup_counts(l).asked, 100);
    update(&s[wf_cut_piece_of(cut, 0, ids[7]) - cut->first_table], 0, 1, &ids[7], 1);
    assert_int_equal(wf_lookup_want(l, 1, 0, 100, ids), 0);
    fetch(l, s, 1);
    n = wf_lookup_counts(l);
    assert_int_equal(n.asked, 200);
    assert_int_equal(n.sent, 101);
    assert_true(wf_lookup_copy(l, 1, 0, 100, ids, rows));
    /* many more than are kept: the first ones are requested again */
    for (int i = 100; i < 1000; i += 50) {
        assert_int_equal(wf_lookup_want(l, 1, 0, 50, ids + i), 0);
        fetch(l, s, 1);
        assert_true(wf_lookup_copy(l, 1, 0, 50, ids + i, rows));
    }
    assert_false(wf_lookup_copy(l, 1, 0, 1, ids, rows));
    assert_int_equal(wf_lookup_want(l, 1, 0, 1, ids), 0);
    fetch(l, s, 1);
    assert_int_equal(wf_lookup_counts(l).sent, n.sent + 901);
    wf_lookup_free(l);
    for (int k = 0; k < cut->n_table_pieces; k++)
        close_server(&s[k]);
}

static void wrong_answers_are_refused(void **state)
{
    struct server s;
    struct wf_lookup *l;
    const struct wf_payload *body;
    struct wf_payload answer = {.p = NULL};
    int64_t ids[3];
    char *damaged;

    (void)state;
    open_server(&s, cut->first_table);
    for (int i = 0; i < 3; i++)
        ids[i] = id_in(0, s.piece, i);
    assert_int_equal(wf_lookup_new(ctx, &opts, 0, &l), 0);
    assert_int_equal(wf_lookup_want(l, 5, 0, 3, ids), 0);
    assert_int_equal(wf_lookup_request(l, &body), 0);
    assert_int_equal(wf_tables_answer(s.tables, 5, body[0].p, body[0].n, &answer), 0);
    for (int64_t n = 0; n < answer.n; n++) {
        damaged = malloc((size_t)n + 1);
        memcpy(damaged, answer.p, (size_t)n);
        assert_int_equal(wf_lookup_take(l, 0, 5, damaged, n), WEFT_EPEER);
        free(damaged);
    }
    for (int i = 0; i < 3; i++) { /* another table, another number of rows, of those that came */
        answer.p[8 * i]++;
        assert_int_equal(wf_lookup_take(l, 0, 5, answer.p, answer.n), WEFT_EPEER);
        answer.p[8 * i]--;
    }
    answer.p[24] = 0; /* a row that did not come, and was never here */
    wf_lookup_forget(l);
    assert_int_equal(wf_lookup_want(l, 5, 0, 3, ids), 0);
    assert_int_equal(wf_lookup_request(l, &body), 0);
    assert_int_equal(wf_lookup_take(l, 0, 5, answer.p, answer.n), WEFT_EPEER);
    wf_free(ctx, answer.p);
    wf_lookup_free(l);
    close_server(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_two_versions_can_be_read),
        cmocka_unit_test(what_has_not_changed_is_not_sent),
        cmocka_unit_test(a_copy_is_filled_by_blocks),
        cmocka_unit_test(each_row_takes_its_own_gradient),
        cmocka_unit_test(kept_values_are_restored_at_all_copies),
        cmocka_unit_test(only_changed_rows_are_kept),
        cmocka_unit_test(only_updated_rows_have_memory),
        cmocka_unit_test(hostile_pushes_are_refused),
        cmocka_unit_test(hostile_requests_are_refused),
        cmocka_unit_test(damaged_copies_do_no_harm),
        cmocka_unit_test(damaged_copies_of_kept_values_do_no_harm),
        cmocka_unit_test(a_worker_keeps_rows_within_a_bound),
        cmocka_unit_test(wrong_answers_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
