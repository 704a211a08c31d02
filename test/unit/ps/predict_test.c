/* predict_test.c - predictions are what can be calculated by hand where one thing alone limits a
 * job, and never better than any of its limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "weft/sys/predict.h"
#include "weft/weft.h"

static weft_ctx *ctx;

static int setup(void **state)
{
    (void)state;
    return weft_ctx_new(NULL, &ctx);
}

static int teardown(void **state)
{
    (void)state;
    weft_ctx_free(ctx);
    return 0;
}

#define PREDICT(...) predict((weft_ps_costs){.size = sizeof(weft_ps_costs), __VA_ARGS__})

static weft_ps_prediction predict(weft_ps_costs c)
{
    weft_ps_prediction p = {.size = sizeof p};

    assert_int_equal(weft_ps_predict(ctx, &c, &p), WEFT_OK);
    return p;
}

static void near(double x, double want, double by)
{
    if (!(x >= want * (1 - by) && x <= want * (1 + by)))
        fail_msg("%g; %g was expected", x, want);
}

static void computing_alone_limits_any_number_of_workers(void **state)
{
    weft_ps_prediction p;

    (void)state;
    for (int workers = 1; workers <= 64; workers *= 8) {
        p = PREDICT(.servers = 2, .workers = workers, .bytes = 1 << 20, .forward_s = 0.004,
                    .backward_s = 0.006);
        near(p.steps_s, 100, 0.001);
        near(p.worker_busy, 1, 0.001);
    }
}

/* All gradients go into the one server's link, all parameters out of it; the two directions meet
 * between steps only if the last piece is small. */
static void the_link_of_one_server_limits_many_workers(void **state)
{
    double byte_s = 8e-10; /* 10 Gbit */
    int64_t bytes = 32 << 20;

    (void)state;
    for (int workers = 1; workers <= 16; workers *= 4) {
        double in = (double)bytes * workers * byte_s;
        weft_ps_prediction p = PREDICT(.servers = 1, .workers = workers, .bytes = bytes,
                                       .piece_bytes = 1 << 20, .wire_byte_s = byte_s);

        assert_true(p.steps_s <= 1 / in);
        assert_true(p.steps_s >= 0.45 / in); /* there and back, at worst one after the other */
        near(p.bytes_step, 2.0 * (double)bytes, 0.01);
    }
}

static void more_servers_share_the_bytes(void **state)
{
    double one = 0, many;

    (void)state;
    for (int servers = 1; servers <= 8; servers *= 2) {
        many = PREDICT(.servers = servers, .workers = 16, .bytes = 32 << 20, .piece_bytes = 1 << 19,
                       .wire_byte_s = 8e-10)
                   .steps_s;
        if (servers == 1)
            one = many;
        assert_true(many <= 1.05 * servers * one);
        assert_true(many >= 0.7 * servers * one); /* all workers push the same piece first */
    }
}

static void a_server_adds_every_contribution_and_updates_once(void **state)
{
    int64_t bytes = 16 << 20;
    weft_ps_prediction p = PREDICT(.servers = 1, .workers = 8, .bytes = bytes, .add_byte_s = 1e-9,
                                   .update_byte_s = 4e-9);

    (void)state;
    near(p.steps_s, 1 / ((8 * 1e-9 + 4e-9) * (double)bytes), 0.001);
    near(p.server_busy, 1, 0.001);
}

static void a_backup_updates_too_before_anything_is_announced(void **state)
{
    weft_ps_costs c = {.size = sizeof c,
                       .servers = 2,
                       .workers = 1,
                       .bytes = 16 << 20,
                       .piece_bytes = 1 << 20,
                       .update_byte_s = 1e-9};
    double without = predict(c).steps_s, with;

    (void)state;
    c.replicas = 2;
    with = predict(c).steps_s;
    near(without, 1e9 / (8 << 20), 0.001); /* both at the same time */
    near(with, without / 2, 0.1);          /* each server does all of it */
    c.piece_bytes = 8 << 20;               /* few pieces: servers wait for each other */
    assert_true(predict(c).steps_s < with * 0.6);
}

static void tasks_of_one_machine_share_its_cores(void **state)
{
    weft_ps_costs c = {.size = sizeof c,
                       .servers = 1,
                       .workers = 4,
                       .bytes = 1 << 20,
                       .forward_s = 0.005,
                       .backward_s = 0.005};

    (void)state;
    near(predict(c).steps_s, 100, 0.001);
    c.cores = 2;
    near(predict(c).steps_s, 50, 0.01);
    c.cores = 1;
    near(predict(c).steps_s, 25, 0.01);
}

static void messages_cost_time_where_pieces_are_small(void **state)
{
    weft_ps_prediction few, many;

    (void)state;
    few = PREDICT(.servers = 1, .workers = 16, .bytes = 1 << 20, .message_s = 1e-5);
    many = PREDICT(.servers = 1, .workers = 16, .bytes = 1 << 20, .piece_bytes = 1 << 14,
                   .message_s = 1e-5);
    assert_true(many.messages > 20 * few.messages);
    assert_true(many.steps_s < few.steps_s / 10);
    assert_true(few.steps_s <= 1 / (2 * 16 * 1e-5)); /* a piece, and the last one */
}

static void the_largest_job_is_predicted_and_larger_ones_are_refused(void **state)
{
    weft_ps_costs c = {.size = sizeof c,
                       .servers = 64,
                       .workers = 256,
                       .bytes = 8 << 20,
                       .piece_bytes = 64 << 10,
                       .forward_s = 0.01,
                       .steps = 4};
    weft_ps_prediction p = {.size = sizeof p};

    (void)state;
    near(predict(c).steps_s, 100, 0.001);
    c.servers = 16; /* some of them have a piece more than others */
    c.piece_bytes = (8 << 20) / 57;
    near(predict(c).steps_s, 100, 0.001);
    struct {
        size_t size;
        double steps_s, after;
    } old = {.size = offsetof(weft_ps_prediction, worker_busy), .after = 7}; /* an older caller's */

    assert_int_equal(weft_ps_predict(ctx, &c, (weft_ps_prediction *)(void *)&old), WEFT_OK);
    near(old.steps_s, 100, 0.001);
    assert_true(old.after == 7);
    c.workers = 1024;
    assert_int_equal(weft_ps_predict(ctx, &c, &p), WEFT_EINVAL);
    c.workers = 4;
    c.forward_s = -1;
    assert_int_equal(weft_ps_predict(ctx, &c, &p), WEFT_EINVAL);
    c.forward_s = 0.0 / 0.0;
    assert_int_equal(weft_ps_predict(ctx, &c, &p), WEFT_EINVAL);
    c.forward_s = 1;
    c.replicas = 2;
    c.servers = 1;
    assert_int_equal(weft_ps_predict(ctx, &c, &p), WEFT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(computing_alone_limits_any_number_of_workers),
        cmocka_unit_test(the_link_of_one_server_limits_many_workers),
        cmocka_unit_test(more_servers_share_the_bytes),
        cmocka_unit_test(a_server_adds_every_contribution_and_updates_once),
        cmocka_unit_test(a_backup_updates_too_before_anything_is_announced),
        cmocka_unit_test(tasks_of_one_machine_share_its_cores),
        cmocka_unit_test(messages_cost_time_where_pieces_are_small),
        cmocka_unit_test(the_largest_job_is_predicted_and_larger_ones_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
