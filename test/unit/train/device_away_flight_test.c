/* device_away_flight_test.c - what keeps batches in flight apart is left out, one thing after the
 * other: each wait of the host, each wait of a stream for another, each copy. Then the result of a
 * training is another one: nothing of it is superfluous, and a mistake in it is noticed. */
#include "flight_job.h"

#include <stdlib.h>

#include "op/step.h"

static struct flight_data data;

/* In flight are all batches but the first two with each number of samples. */
static weft_status train(struct flight_job *j, const struct fake *f, struct flight_result *r)
{
    const struct flight_how how = {.optimizer = NULL};
    weft_status st;

    *j = (struct flight_job){.fake = *f};
    st = flight_build(j, &data, &how);
    if (!st)
        st = flight_fit(j, &how, &(weft_fit_opts){.epochs = 3}, r);
    if (!st)
        st = flight_finish(j, r);
    return st;
}

static void expect(const struct fake *f, struct fake *all, struct flight_result *r)
{
    struct flight_job j;

    data = flight_data();
    assert_int_equal(train(&j, f, r), WEFT_OK);
    *all = j.fake;
    flight_close(&j);
}

/* Whether anybody noticed that f leaves something out. *dropped: the bytes of a copy. */
static bool is_noticed(const struct fake *f, const struct flight_result *want, size_t *dropped)
{
    struct flight_result got;
    struct flight_job j;
    bool noticed = train(&j, f, &got) || memcmp(want, &got, sizeof got) != 0;

    *dropped = j.fake.dropped;
    flight_close(&j);
    return noticed;
}

static void a_wait_of_a_stream_that_is_left_out_is_noticed(void **state)
{
    struct flight_result want;
    struct fake all;
    size_t dropped;

    (void)state;
    expect(&(struct fake){.delays = 0}, &all, &want);
    assert_true(all.n_orders > 10);
    for (int n = 1; n <= all.n_orders; n++)
        if (!is_noticed(&(struct fake){.drop_order = n}, &want, &dropped))
            fail_msg("nobody noticed that order %d of %d was left out", n, (int)all.n_orders);
}

static void a_wait_for_a_batch_that_is_left_out_is_noticed(void **state)
{
    struct flight_result want;
    struct fake all;
    size_t dropped;

    (void)state;
    expect(&(struct fake){.delays = 0}, &all, &want);
    assert_true(all.n_landings > 10);
    for (int n = 1; n <= all.n_landings; n++)
        if (!is_noticed(&(struct fake){.drop_landing = n}, &want, &dropped))
            fail_msg("nobody noticed that the wait for batch %d of %d was left out", n,
                     (int)all.n_landings);
}

/* All feeds of a batch to the device, each at a multiple of 64 bytes; and one of them from there to
 * its place. Others, like the rate, may have the value of the batch before. */
static void a_copy_of_feeds_that_is_left_out_is_noticed(void **state)
{
    const size_t x = sizeof(float) * BATCH * D, all_feeds = x + x / 2 + 3 * 64;
    struct flight_result want;
    struct fake all;
    int n_all = 0, n_x = 0;

    (void)state;
    expect(&(struct fake){.delays = 0}, &all, &want);
    for (int n = 1; n <= all.n_copies; n++) {
        size_t dropped;
        bool noticed = is_noticed(&(struct fake){.drop_copy = n}, &want, &dropped);

        n_all += dropped == all_feeds;
        n_x += dropped == x;
        if (!noticed && (dropped == x || dropped == all_feeds))
            fail_msg("nobody noticed that copy %d of %d (%zu bytes) was left out", n,
                     (int)all.n_copies, dropped);
    }
    assert_true(n_all > 10 && n_x >= n_all);
}

/* The words of trouble are read after each batch in flight. If those of the batch with the bad id
 * are not, the error names a later one, which finds that the words are not clear. */
static void trouble_that_is_not_read_is_noticed(void **state)
{
    struct fake f = {.words = true};
    struct flight_result r;
    struct flight_job j;
    int n_copies, n_late = 0;
    char error[512];

    (void)state;
    data = flight_data();
    data.id[70][0] = -2;
    assert_int_equal(train(&j, &f, &r), WEFT_EDATA);
    snprintf(error, sizeof error, "%s", weft_error());
    n_copies = j.fake.n_copies;
    flight_close(&j);
    for (f.drop_copy = n_copies - 30; f.drop_copy <= n_copies; f.drop_copy++) {
        weft_status st = train(&j, &f, &r);

        if (j.fake.dropped == sizeof(uint32_t) * WF_TROUBLE_WORDS) {
            assert_int_equal(st, WEFT_EDATA); /* the next batch in flight says it */
            n_late += strcmp(error, weft_error()) != 0;
        }
        flight_close(&j);
    }
    assert_int_equal(n_late, 1);
}

/* ---- a device that fails --------------------------------------------------------------------- */

/* Each call fails in turn: an error that says so, and nothing leaks. */
static void failing_calls_are_reported(void **state)
{
    const weft_fit_opts opts = {.epochs = 2, .no_shuffle = true};
    struct flight_how how = {.optimizer = NULL};
    struct flight_result r;
    struct flight_job j;
    int n_calls, n_failed = 0, each = getenv("WEFT_TEST_QUICK") ? 7 : 1;

    (void)state;
    data = flight_data();
    j = (struct flight_job){.ctx = NULL};
    assert_int_equal(flight_build(&j, &data, &how), WEFT_OK);
    assert_int_equal(flight_fit(&j, &how, &opts, &r), WEFT_OK);
    assert_int_equal(flight_finish(&j, &r), WEFT_OK);
    n_calls = j.fake.n_calls;
    flight_close(&j);
    for (int n = 1; n <= n_calls; n += each) {
        weft_status st;

        j = (struct flight_job){.fake = {.fail_call = n, .delays = (uint64_t)(n % 2)}};
        st = flight_build(&j, &data, &how);
        if (!st)
            st = flight_fit(&j, &how, &opts, &r);
        if (!st)
            st = flight_finish(&j, &r);
        n_failed += st != WEFT_OK;
        if (st && !strstr(weft_error(), "the fake device fails call"))
            fail_msg("call %d: %s", n, weft_error());
        flight_close(&j);
        assert_int_equal(j.fake.allocated, 0);
        assert_int_equal(j.fake.n_streams, 0);
    }
    assert_true(n_failed > n_calls / each / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_of_a_stream_that_is_left_out_is_noticed),
        cmocka_unit_test(a_wait_for_a_batch_that_is_left_out_is_noticed),
        cmocka_unit_test(a_copy_of_feeds_that_is_left_out_is_noticed),
        cmocka_unit_test(trouble_that_is_not_read_is_noticed),
        cmocka_unit_test(failing_calls_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
