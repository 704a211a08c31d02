/* rounds_procs_test.c - rounds of workers as leases, in processes: every sample of an epoch counts
 * once, whoever dies in the middle of a round; jobs stop, resume and go back between rounds.
 * ctest-timeout: 300 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "support/leased_procs.h"

/* An epoch has 32 batches: the last round has fewer than 3, 5 or 10. */
static void every_sample_of_a_round_counts_once(void **state)
{
    const struct setting s[] = {
        {"async", "shm", 1, 2, 1, 1, 20, NULL, false, 3, "mean", false, 0},
        {"async", "tcp", 2, 3, 2, 2, 20, NULL, false, 5, "sum", false, 0},
        {"stale(1)", "shm", 2, 3, 2, 4, 10, NULL, false, 10, "mean", false, 0},
        {"stale(3)", "uds", 3, 2, 1, 2, 10, NULL, false, 1, "sum", false, 0},
        {"async", "shm", 2, 2, 2, 2, 10, NULL, false, 100, "mean", false, 0},
    };

    (void)state;
    for (size_t k = 0; k < sizeof s / sizeof *s; k++) {
        struct run r;

        leased_begin(&r, &s[k]);
        leased_finish(&r);
    }
}

/* Bytes that the only worker has moved. */
static void measure(const char *consistency, int every, const char *merge, int epochs,
                    struct result *out)
{
    const struct setting s = {consistency, "tcp", 1,     1,     1,     1, epochs,
                              NULL,        false, every, merge, false, 0};
    struct run r;

    leased_begin(&r, &s);
    leased_finish(&r);
    *out = leased_shared->result[r.n_tasks - 1];
}

/* Increments and whole models have the same bytes: all parameters (there are no slots), once each
 * way in a round, and little besides. Without rounds the dense half of them travels in each of
 * 32 batches; of the table only rows do, and those that have not changed are not read again. */
static void a_round_moves_the_model_once_each_way(void **state)
{
    static const char *const consistency[] = {"sync", "async", "async"};
    const int64_t model = 2 * (int64_t)N * UNITS * (int64_t)sizeof(float), few = 20;

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct result one, two, plain[2];
        int64_t sent, received;

        measure(consistency[k], 8, k == 2 ? "models" : "mean", few, &one);
        measure(consistency[k], 8, k == 2 ? "models" : "mean", 2 * few, &two);
        sent = (two.sent - one.sent) / few; /* of an epoch: four rounds */
        received = (two.received - one.received) / few;
        print_message("%s, every 8: %.3f and %.3f models an epoch\n", consistency[k],
                      (double)sent / (double)model, (double)received / (double)model);
        assert_true(sent >= 4 * model && sent < 4 * model + model / 4);
        assert_true(received >= 4 * model && received < 6 * model); /* and one where it ends */
        if (k == 2)
            continue;
        measure(consistency[k], 0, NULL, few, &plain[0]);
        measure(consistency[k], 0, NULL, 2 * few, &plain[1]);
        sent = (plain[1].sent - plain[0].sent) / few;
        received = (plain[1].received - plain[0].received) / few;
        print_message("%s, gradients: %.3f and %.3f\n", consistency[k],
                      (double)sent / (double)model, (double)received / (double)model);
        assert_true(sent >= 16 * model && sent < 18 * model);
        assert_true(received >= 16 * model && received < 18 * model);
    }
}

static void so_it_does_if_processes_die(void **state)
{
    static const char *const victims[] = {"worker/2", "ps/1", "chief/0", NULL};
    const struct setting s[] = {
        {"async", "shm", 3, 3, 2, 4, 600, NULL, true, 3, "mean", false, 0},
        {"stale(2)", "tcp", 3, 3, 2, 1, 600, NULL, true, 5, "sum", false, 0},
    };

    (void)state;
    for (size_t k = 0; k < sizeof s / sizeof *s; k++)
        leased_torture(&s[k], victims);
}

/* With other numbers of servers and workers, and another consistency; shards and rounds stay. */
static void a_job_that_is_killed_resumes(void **state)
{
    struct setting s = {"async", "shm", 2, 2, 2, 2, 150, NULL, false, 3, "mean", false, 0};
    char folder[] = "/tmp/weft-rounds-ckpt-XXXXXX", command[128];
    struct run r;

    (void)state;
    assert_non_null(mkdtemp(folder));
    s.checkpoints = folder;
    for (int k = 0; k < 3; k++) {
        leased_begin(&r, &s);
        leased_await(&r, 20 + 30 * k);
        leased_end(&r); /* kills all */
        s.consistency = k ? "async" : "stale(1)";
        s.transport = k ? "tcp" : "shm";
        s.servers = 1 + k;
        s.workers = 3 - k;
        s.replicas = s.servers > 1 ? 2 : 1;
    }
    leased_begin(&r, &s);
    leased_finish(&r);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* The only server dies: training goes back to the last checkpoint, or to its beginning. */
static void a_job_that_loses_parameters_goes_back(void **state)
{
    struct setting s = {"async", "shm", 1, 2, 1, 1, 600, NULL, true, 5, "mean", false, 0};
    char folder[] = "/tmp/weft-rounds-ckpt-XXXXXX", command[128];
    struct run r;

    (void)state;
    assert_non_null(mkdtemp(folder));
    s.checkpoints = folder;
    leased_begin(&r, &s);
    for (int k = 0; k < 2; k++) {
        leased_await(&r, 20 + 40 * k);
        assert_true(leased_shared->epochs < s.epochs - 50);
        leased_kill(&r, "ps/0");
        leased_pause(1000);
    }
    leased_finish(&r);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_of_a_round_counts_once),
                                       cmocka_unit_test(a_round_moves_the_model_once_each_way),
                                       cmocka_unit_test(so_it_does_if_processes_die),
                                       cmocka_unit_test(a_job_that_is_killed_resumes),
                                       cmocka_unit_test(a_job_that_loses_parameters_goes_back)};

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, leased_setup, NULL);
}
