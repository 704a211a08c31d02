/* evict_test.c - rows that a server forgets: compared with a plain definition that has all rows of
 * the table and goes through all of them after each step. Also at a copy that is filled in the
 * middle, for readers that keep rows, and with copies that are not valid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ps/store.h"

enum { ROWS = 4096, WIDTH = 32, BLOCKS = 4, USED = 60 };

static weft_ctx *ctx;
static struct wf_var var[1];
static struct wf_rules rules;
static struct wf_cut *cut;
static struct wf_tables_opts opts;
static uint64_t chance;

static int64_t draw(int64_t n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(chance >> 33) % n;
}

static int setup(void **state)
{
    (void)state;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 4), &ctx))
        return 1;
    var[0] = (struct wf_var){.name = "users",
                             .rank = 2,
                             .dim = {ROWS, WIDTH},
                             .count = ROWS * WIDTH,
                             .table = true,
                             .init = {"uniform", -1, 1, "users", 9}};
    rules = (struct wf_rules){
        .optim = wf_optim_find("sgd"), .n_vars = 1, .var = var, .n_groups = 1, .n_sums = 2};
    wf_optim_defaults(rules.optim, rules.attrs);
    for (int i = 0; i < rules.optim->n_attrs; i++)
        if (strcmp(rules.optim->attrs[i].name, "momentum") == 0)
            rules.attrs[i] = 0.5;
    if (wf_cut_new(ctx, &rules, 64 << 10, &cut))
        return 1;
    opts = (struct wf_tables_opts){&rules, cut, BLOCKS};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wf_cut_free(cut);
    weft_ctx_free(ctx);
    return 0;
}

/* ---- the plain definition -------------------------------------------------------------------- */

struct plain {
    float w[ROWS][WIDTH], slot[ROWS][WIDTH], was[ROWS][WIDTH];
    int64_t last[ROWS], count[ROWS];
    float best[ROWS][WIDTH]; /* values that are kept, and which rows existed */
    bool kept, existed[ROWS];
    struct wf_merge *merge;
};

static void first_value(int64_t id, float *row)
{
    struct wf_type type = wf_type_of(WEFT_F32, 2, var->dim);

    assert_int_equal(wf_initial_rows(ctx, &var->init, &type, 1, &id, row), 0);
}

static void forget(struct plain *p, int64_t id)
{
    first_value(id, p->w[id]);
    memset(p->slot[id], 0, sizeof p->slot[id]);
    p->last[id] = p->count[id] = 0;
}

static void open_plain(struct plain *p)
{
    struct wf_piece all = {0, 0, var->count, 0};

    assert_int_equal(wf_merge_new(ctx, ctx->pool, &rules, 1, &all, &p->merge), 0);
    for (int64_t id = 0; id < ROWS; id++)
        forget(p, id);
}

static void plain_step(struct plain *p, const struct wf_contribution *c, int64_t step)
{
    struct wf_table_data data = {.w = p->w[0], .slot = {p->slot[0]}};
    struct wf_version v = {.table = &data};
    const struct wf_evict *e = &var->evict;
    float scale = 1;

    memcpy(p->was, p->w, sizeof p->was);
    assert_int_equal(wf_merge_update(p->merge, c, &(struct wf_step){.iteration = step}, &scale, &v),
                     0);
    for (int64_t i = 0; i < c->rows[0].n; i++) {
        p->last[c->rows[0].id[i]] = step;
        p->count[c->rows[0].id[i]]++;
    }
    for (int64_t id = 0; id < ROWS && step % e->every == 0; id++)
        if (p->count[id] && step - p->last[id] >= e->unused &&
            (!e->min_count || p->count[id] < e->min_count))
            forget(p, id);
}

static void plain_keep(struct plain *p)
{
    p->kept = true;
    memcpy(p->was, p->w, sizeof p->was);
    memcpy(p->best, p->w, sizeof p->best);
    for (int64_t id = 0; id < ROWS; id++)
        p->existed[id] = p->count[id] > 0;
}

/* Values alone; rows that were forgotten since count as updated by the last step. */
static void plain_restore(struct plain *p, int64_t step)
{
    memcpy(p->was, p->w, sizeof p->was);
    memcpy(p->w, p->best, sizeof p->w);
    for (int64_t id = 0; id < ROWS; id++)
        if (p->existed[id] && p->count[id] == 0) {
            p->count[id] = 1;
            p->last[id] = step;
        }
}

/* ---- a piece of a server --------------------------------------------------------------------- */

struct server {
    struct wf_tables *tables;
    struct wf_merge *merge;
};

static void open_server(struct server *s, int piece)
{
    struct wf_piece all = {0, 0, var->count, 0};

    assert_int_equal(wf_merge_new(ctx, ctx->pool, &rules, 1, &all, &s->merge), 0);
    assert_int_equal(wf_tables_new(ctx, &opts, piece, &s->tables), 0);
}

static void close_server(struct server *s)
{
    wf_tables_free(s->tables);
    wf_merge_free(s->merge);
}

static void apply(struct server *s, const struct wf_contribution *c, int64_t t, int64_t step,
                  int block)
{
    float scale = 1;

    assert_int_equal(wf_tables_apply(s->tables, s->merge, c, &(struct wf_step){.iteration = step},
                                     &scale, block, t),
                     0);
}

/* Row `id` at version t, if it has changed since `since`. */
static bool read_row(struct server *s, int64_t t, int64_t id, int64_t since, float *row)
{
    int64_t ask[4] = {0, 1, id, since};
    struct wf_payload out = {.p = NULL};
    bool came;

    assert_int_equal(wf_tables_answer(s->tables, t, (const char *)ask, sizeof ask, &out), 0);
    came = out.p[24];
    if (came)
        memcpy(row, out.p + 32, WIDTH * sizeof *row);
    wf_free(ctx, out.p);
    return came;
}

/* ---- the comparison -------------------------------------------------------------------------- */

/* What somebody has read, and at which version. */
struct reader {
    float row[USED][WIDTH];
    int64_t since[USED];
};

struct world {
    struct plain plain;
    struct server a, b; /* b is filled from a, now and then */
    struct reader reader;
    int64_t id[USED], t, step;
    int filled; /* blocks of b that it has */
    bool keeps; /* values are kept and restored now and then */
};

/* Some rows are updated often, others seldom. */
static struct wf_contribution *gradients(const struct world *w)
{
    struct wf_contribution *c;
    struct wf_rows *r;

    assert_int_equal(wf_contribution_new(ctx, &rules, &c), 0);
    r = &c->rows[0];
    assert_int_equal(wf_rows_reserve(ctx, r, USED, WIDTH), 0);
    for (int i = 0; i < USED; i++) {
        if (draw(i % 10 == 0 ? 3 : 20) != 0)
            continue;
        r->id[r->n] = w->id[i];
        for (int k = 0; k < WIDTH; k++)
            r->row[r->n * WIDTH + k] = (float)(draw(200) - 100) / 64;
        r->n++;
    }
    return c;
}

/* The same rows exist as in the definition, and those that do not have no memory for long. */
struct counted {
    const struct plain *p;
    int64_t n;
};

static void check_seen(void *arg, int64_t id, const float *row)
{
    struct counted *c = arg;
    struct wf_seen seen;

    memcpy(&seen, row + 2 * WIDTH, sizeof seen);
    assert_int_equal(seen.last, c->p->last[id]);
    assert_int_equal(seen.count, c->p->count[id]);
    assert_memory_equal(row + WIDTH, c->p->slot[id], sizeof c->p->slot[id]);
    c->n++;
}

static void compare(struct world *w, struct server *s)
{
    struct counted counted = {&w->plain, 0};
    int64_t exist = 0;
    float row[WIDTH];

    for (int i = 0; i < USED; i++) {
        assert_true(read_row(s, w->t, w->id[i], -1, row));
        assert_memory_equal(row, w->plain.w[w->id[i]], sizeof row);
        if (w->t == 0)
            continue;
        assert_true(read_row(s, w->t - 1, w->id[i], -1, row));
        assert_memory_equal(row, w->plain.was[w->id[i]], sizeof row);
    }
    wf_tables_each(s->tables, 0, check_seen, &counted);
    for (int64_t id = 0; id < ROWS; id++)
        exist += w->plain.count[id] > 0;
    assert_int_equal(counted.n, exist);
}

/* Somebody who keeps rows is told which have changed. */
static void read_some(struct world *w, struct server *s)
{
    struct reader *r = &w->reader;

    for (int i = 0; i < USED; i++) {
        if (draw(4))
            continue;
        if (w->t > 0 && r->since[i] < w->t && draw(3) == 0) { /* at the version before */
            (void)read_row(s, w->t - 1, w->id[i], r->since[i], r->row[i]);
            r->since[i] = w->t - 1;
            assert_memory_equal(r->row[i], w->plain.was[w->id[i]], sizeof r->row[i]);
            continue;
        }
        (void)read_row(s, w->t, w->id[i], r->since[i], r->row[i]);
        r->since[i] = w->t;
        assert_memory_equal(r->row[i], w->plain.w[w->id[i]], sizeof r->row[i]);
    }
}

/* A copy gets block after block while steps go on; then it is the server. */
static void fill_next(struct world *w, int piece)
{
    struct wf_payload block = {.p = NULL};

    if (w->filled == BLOCKS) {
        close_server(&w->a);
        w->a = w->b;
        open_server(&w->b, piece);
        w->filled = 0;
    }
    assert_int_equal(wf_tables_dump(w->a.tables, w->filled, w->t, true, &block), 0);
    assert_int_equal(wf_tables_take(w->b.tables, w->filled++, block.p, block.n), 0);
    wf_free(ctx, block.p);
}

/* Values are kept, or restored. */
static void go_aside(struct world *w)
{
    bool restores = w->plain.kept && draw(2);
    struct wf_contribution *none;

    assert_int_equal(wf_contribution_new(ctx, &rules, &none), 0);
    for (int k = -1; k < w->filled; k++) {
        struct wf_tables *t = k < 0 ? w->a.tables : w->b.tables;

        assert_int_equal(restores ? wf_tables_restore(t, k, w->t, w->step)
                                  : wf_tables_keep(t, none, k, w->t, w->step),
                         0);
    }
    if (restores)
        plain_restore(&w->plain, w->step);
    else
        plain_keep(&w->plain);
    wf_contribution_free(none);
    w->t++;
}

static void go(struct world *w)
{
    struct wf_contribution *c;

    if (w->keeps && w->t > 3 && draw(12) == 0) {
        go_aside(w);
        return;
    }
    if (draw(5) == 0) { /* a step of the servers that is not one of training */
        wf_tables_pass(w->a.tables, -1, w->t);
        for (int k = 0; k < w->filled; k++)
            wf_tables_pass(w->b.tables, k, w->t);
        memcpy(w->plain.was, w->plain.w, sizeof w->plain.was);
        w->t++;
        return;
    }
    c = gradients(w);
    apply(&w->a, c, w->t, w->step + 1, -1);
    for (int k = 0; k < w->filled; k++)
        apply(&w->b, c, w->t, w->step + 1, k);
    plain_step(&w->plain, c, w->step + 1);
    wf_contribution_free(c);
    w->t++;
    w->step++;
}

static void run(uint64_t seed, bool keeps)
{
    struct world *w = calloc(1, sizeof *w);
    int piece = cut->first_table + (int)(seed % 3);
    int64_t id = 0;

    chance = seed;
    w->keeps = keeps;
    var->evict = (struct wf_evict){1 + draw(7), 1 + draw(12), draw(3) ? draw(6) : 0};
    for (int i = 0; i < USED; i++, id += 8) {
        while (wf_cut_piece_of(cut, 0, id) != piece)
            id++;
        w->id[i] = id;
        w->reader.since[i] = -1;
    }
    assert_true(id < ROWS);
    open_plain(&w->plain);
    open_server(&w->a, piece);
    open_server(&w->b, piece);
    for (int i = 0; i < 120; i++) {
        go(w);
        compare(w, &w->a);
        if (draw(6) == 0)
            fill_next(w, piece);
        if (w->filled == BLOCKS)
            compare(w, &w->b);
        read_some(w, &w->a);
    }
    close_server(&w->a);
    close_server(&w->b);
    wf_merge_free(w->plain.merge);
    free(w);
}

static void rows_are_forgotten_as_the_definition_says(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        run(seed, false);
}

static void kept_values_are_restored_as_the_definition_says(void **state)
{
    (void)state;
    for (uint64_t seed = 101; seed <= 180; seed++)
        run(seed, true);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Rows that are seen once do not pile up. */
static void forgotten_rows_leave_the_memory(void **state)
{
    struct server s;
    int64_t id = 0, most = 0;

    (void)state;
    var->evict = (struct wf_evict){.every = 4, .unused = 8};
    open_server(&s, cut->first_table);
    for (int t = 0; t < 400; t++) {
        struct wf_contribution *c;

        assert_int_equal(wf_contribution_new(ctx, &rules, &c), 0);
        assert_int_equal(wf_rows_reserve(ctx, &c->rows[0], 5, WIDTH), 0);
        for (c->rows[0].n = 0; c->rows[0].n < 5; id = (id + 1) % ROWS)
            if (wf_cut_piece_of(cut, 0, id) == cut->first_table) {
                memset(&c->rows[0].row[c->rows[0].n * WIDTH], 0, WIDTH * sizeof(float));
                c->rows[0].id[c->rows[0].n++] = id;
            }
        apply(&s, c, t, t + 1, -1);
        wf_contribution_free(c);
        most = wf_tables_count(s.tables) > most ? wf_tables_count(s.tables) : most;
    }
    assert_in_range(most, 5 * 8, 5 * (8 + 4 + 1));
    close_server(&s);
}

/* ---- copies that are not valid --------------------------------------------------------------- */

static void damaged_copies_are_refused(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct wf_payload p = {.p = NULL};
    int64_t bad[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 61, 9999999};

    (void)state;
    chance = 5;
    var->evict = (struct wf_evict){.every = 3, .unused = 40};
    open_server(&w->a, cut->first_table);
    open_server(&w->b, cut->first_table);
    for (int64_t i = 0, id = 0; i < USED; id += 8)
        if (wf_cut_piece_of(cut, 0, id) == cut->first_table)
            w->id[i++] = id;
    open_plain(&w->plain);
    for (int i = 0; i < 10; i++)
        go(w);
    assert_int_equal(wf_tables_dump(w->a.tables, 0, w->t, true, &p), 0);
    assert_int_equal(wf_tables_take(w->b.tables, 0, p.p, p.n), 0);
    assert_int_not_equal(wf_tables_take(w->b.tables, 1, p.p, p.n), 0); /* of another block */
    for (int64_t at = 0; at + 8 <= p.n; at += 8)
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            int64_t was;
            bool possible = bad[k] == 9999999 && (at == 32 || at == 40); /* version, step */
            bool head = at < 56 && !possible;

            memcpy(&was, p.p + at, sizeof was);
            memcpy(p.p + at, &bad[k], sizeof was);
            if (wf_tables_take(w->b.tables, 0, p.p, p.n) == 0 && head && bad[k] != was)
                fail_msg("%lld at byte %lld of the head was taken", (long long)bad[k],
                         (long long)at);
            memcpy(p.p + at, &was, sizeof was);
        }
    for (int64_t n = 1; n < p.n; n += 7) {
        char *exact = malloc((size_t)n);

        memcpy(exact, p.p, (size_t)n);
        assert_int_not_equal(wf_tables_take(w->b.tables, 0, exact, n), 0);
        free(exact);
    }
    assert_int_equal(wf_tables_take(w->b.tables, 0, p.p, p.n), 0);
    wf_free(ctx, p.p);
    close_server(&w->a);
    close_server(&w->b);
    wf_merge_free(w->plain.merge);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_forgotten_as_the_definition_says),
        cmocka_unit_test(kept_values_are_restored_as_the_definition_says),
        cmocka_unit_test(forgotten_rows_leave_the_memory),
        cmocka_unit_test(damaged_copies_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
