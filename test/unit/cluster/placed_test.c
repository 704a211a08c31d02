/* placed_test.c - pieces that are placed on servers: they begin there, are elsewhere while the
 * server is missing, and come back; the others even out what they leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/chief.h"

enum { PIECES = 6, NODES = 6, WORKER = 5 }; /* node 0 is the chief, 1 to 4 are servers */

struct job {
    weft_ctx *ctx;
    struct wf_chief c;
};

static void hear(struct job *j, int node, uint64_t incarnation)
{
    j->c.known[node] = (struct wf_known){.heard = true,
                                         .role = node == WORKER ? WF_ROLE_WORKER : WF_ROLE_SERVER,
                                         .incarnation = incarnation,
                                         .heard_ns = j->c.now};
}

static void start(struct job *j, int copies, const int *home, const int64_t *bytes)
{
    struct wf_chief_plan plan = {.n_nodes = NODES,
                                 .n_pieces = PIECES,
                                 .n_shards = 1,
                                 .n_copies = copies,
                                 .n_servers = 2,
                                 .n_workers = 1,
                                 .timeout_ns = 500,
                                 .tick_ns = 50,
                                 .piece_home = home,
                                 .piece_bytes = bytes};

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->ctx), WEFT_OK);
    assert_int_equal(wf_chief_init(&j->c, j->ctx, &plan, 0), WEFT_OK);
    hear(j, WORKER, 1);
}

static void end(struct job *j)
{
    wf_chief_free(&j->c);
    weft_ctx_free(j->ctx);
}

/* Epochs until nothing changes; what is filled in one counts in the next. Returns how many. */
static int settle(struct job *j)
{
    for (int n = 0; n < 100; n++) {
        struct wf_epoch *e;
        bool changed;

        assert_int_equal(wf_assign(&j->c, &e, &changed), WEFT_OK);
        if (!changed)
            return n;
        wf_epoch_free(j->ctx, j->c.epoch);
        j->c.epoch = e;
        for (int i = 0; i < PIECES; i++)
            j->c.filled[i] = e->holders[i].target != WF_NOBODY;
        for (int i = 0; i < NODES; i++) /* everybody has seen it */
            j->c.known[i].epoch = e->number;
    }
    fail_msg("it never settles");
    return 0;
}

static void expect(const struct job *j, const int *primary)
{
    for (int i = 0; i < PIECES; i++)
        if (j->c.epoch->holders[i].primary != primary[i])
            fail_msg("piece %d is on node %d, not on %d", i, j->c.epoch->holders[i].primary,
                     primary[i]);
}

#define EXPECT(j, ...) expect(j, (const int[]){__VA_ARGS__})

static void placed_pieces_begin_on_their_servers_and_others_even_out(void **state)
{
    static const int home[PIECES] = {2, WF_NOBODY, 2, WF_NOBODY, WF_NOBODY, 1};
    static const int64_t bytes[PIECES] = {10, 10, 10, 10, 10, 10};
    struct job j;

    (void)state;
    start(&j, 1, home, bytes);
    hear(&j, 1, 1);
    hear(&j, 2, 1);
    hear(&j, 3, 1);
    settle(&j);
    EXPECT(&j, 2, 3, 2, 1, 3, 1);
    end(&j);
}

static void a_piece_whose_server_dies_is_elsewhere_until_it_returns(void **state)
{
    static const int home[PIECES] = {2, 2, 2, 1, 1, 1};
    struct job j;

    (void)state;
    start(&j, 1, home, NULL);
    hear(&j, 1, 1);
    hear(&j, 2, 1);
    hear(&j, 3, 1);
    settle(&j);
    EXPECT(&j, 2, 2, 2, 1, 1, 1);
    j.c.known[2].heard = false;
    settle(&j);
    for (int i = 0; i < PIECES; i++) {
        assert_int_not_equal(j.c.epoch->holders[i].primary, 2);
        assert_int_not_equal(j.c.epoch->holders[i].backup, WF_NOBODY);
    }
    hear(&j, 2, 2);
    settle(&j);
    EXPECT(&j, 2, 2, 2, 1, 1, 1);
    for (int i = 0; i < PIECES; i++)
        assert_int_not_equal(j.c.epoch->holders[i].backup, WF_NOBODY);
    end(&j);
}

static void without_copies_a_piece_moves_back_home(void **state)
{
    static const int home[PIECES] = {4, 4, 1, 1, 1, 1};
    struct job j;

    (void)state;
    start(&j, 0, home, NULL);
    hear(&j, 1, 1);
    hear(&j, 2, 1);
    settle(&j); /* server 4 is missing yet */
    EXPECT(&j, 2, 2, 1, 1, 1, 1);
    hear(&j, 4, 1);
    settle(&j);
    EXPECT(&j, 4, 4, 1, 1, 1, 1);
    end(&j);
}

static void a_server_that_leaves_gives_its_pieces_away(void **state)
{
    static const int home[PIECES] = {2, 2, 2, 2, 2, 2};
    struct job j;

    (void)state;
    start(&j, 1, home, NULL);
    hear(&j, 1, 1);
    hear(&j, 2, 1);
    hear(&j, 3, 1);
    settle(&j);
    EXPECT(&j, 2, 2, 2, 2, 2, 2);
    j.c.known[2].leaves = true;
    settle(&j);
    assert_null(wf_epoch_member(j.c.epoch, 2));
    EXPECT(&j, 1, 3, 1, 3, 1, 3);
    end(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(placed_pieces_begin_on_their_servers_and_others_even_out),
        cmocka_unit_test(a_piece_whose_server_dies_is_elsewhere_until_it_returns),
        cmocka_unit_test(without_copies_a_piece_moves_back_home),
        cmocka_unit_test(a_server_that_leaves_gives_its_pieces_away),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
