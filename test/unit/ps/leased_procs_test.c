/* leased_procs_test.c - asynchronous training and bounded staleness in processes: every sample of
 * an epoch counts once, on every part of the parameters, whoever dies.
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

/* ---- tests ----------------------------------------------------------------------------------- */

static void every_sample_counts_once(void **state)
{
    const struct setting s[] = {
        {"async", "shm", 1, 2, 1, 1, 20, NULL, false, 0, NULL, false, 0},
        {"async", "tcp", 2, 3, 2, 2, 20, NULL, false, 0, NULL, false, 0},
        {"stale(1)", "shm", 2, 3, 2, 4, 10, NULL, false, 0, NULL, false, 0},
        {"stale(3)", "uds", 3, 2, 1, 1, 10, NULL, false, 0, NULL, false, 0},
        {"async", "shm", 1, 2, 1, 8, 10, NULL, false, 0, NULL, false, 0},
        {"stale(1)", "shm", 1, 1, 1, 16, 5, NULL, false, 0, NULL, false, 0},
    };

    (void)state;
    for (size_t k = 0; k < sizeof s / sizeof *s; k++) {
        struct run r;

        leased_begin(&r, &s[k]);
        leased_finish(&r);
    }
}

static void so_it_does_if_processes_die(void **state)
{
    static const char *const victims[] = {"worker/2", "ps/1", "chief/0", NULL};
    const struct setting s[] = {
        {"async", "shm", 3, 3, 2, 2, 600, NULL, true, 0, NULL, false, 0},
        {"stale(2)", "tcp", 3, 3, 2, 1, 600, NULL, true, 0, NULL, false, 0},
    };

    (void)state;
    for (size_t k = 0; k < sizeof s / sizeof *s; k++)
        leased_torture(&s[k], victims);
}

/* Others get its leases, or its pieces; then it joins again. */
static void whoever_is_silent_joins_again(void **state)
{
    static const char *const task[] = {"worker/1", "ps/0", "worker/0"};
    const struct setting s = {"stale(2)", "shm", 2, 3, 2, 2, 400, NULL, true, 0, NULL, false, 0};
    struct run r;

    (void)state;
    leased_begin(&r, &s);
    leased_shared->is_attacked = true;
    leased_await(&r, 2);
    for (int k = 0; k < 3; k++) {
        int before = leased_shared->epochs;

        assert_true(before < s.epochs);
        leased_stop(&r, task[k], 1800);
        leased_pause(1200);
        if (before + 4 < s.epochs)
            leased_await(&r, before + 1);
    }
    leased_shared->is_attacked = false;
    leased_finish(&r);
}

/* With other numbers of servers and workers, and another consistency; shards stay. */
static void a_job_that_is_killed_resumes(void **state)
{
    struct setting s = {"async", "shm", 2, 2, 2, 2, 150, NULL, false, 0, NULL, false, 0};
    char folder[] = "/tmp/weft-leased-ckpt-XXXXXX", command[128];
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

/* The worker that decides dies after a checkpoint: it reads that, and then finds out that the job
 * is further. */
static void the_one_that_decides_comes_back(void **state)
{
    struct setting s = {"async", "shm", 1, 2, 1, 2, 300, NULL, true, 0, NULL, false, 0};
    char folder[] = "/tmp/weft-leased-ckpt-XXXXXX", command[128];
    struct run r;

    (void)state;
    assert_non_null(mkdtemp(folder));
    s.checkpoints = folder;
    leased_begin(&r, &s);
    leased_shared->is_attacked = true;
    for (int k = 0; k < 2; k++) {
        leased_await(&r, 8 + 20 * k);
        leased_kill(&r, "worker/0");
        leased_await(&r, 16 + 20 * k);
    }
    leased_shared->is_attacked = false;
    leased_finish(&r);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* The only server dies: training goes back to the last checkpoint. */
static void a_job_that_loses_parameters_goes_back(void **state)
{
    struct setting s = {"async", "shm", 1, 2, 1, 1, 600, NULL, true, 0, NULL, false, 0};
    char folder[] = "/tmp/weft-leased-ckpt-XXXXXX", command[128];
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_counts_once),
                                       cmocka_unit_test(so_it_does_if_processes_die),
                                       cmocka_unit_test(whoever_is_silent_joins_again),
                                       cmocka_unit_test(a_job_that_is_killed_resumes),
                                       cmocka_unit_test(the_one_that_decides_comes_back),
                                       cmocka_unit_test(a_job_that_loses_parameters_goes_back)};

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, leased_setup, NULL);
}
