/* session_procs_test.c - sessions in asynchronous training and with a bound on staleness, in
 * processes: each worker takes shards one by one, and the job stops at its step. Every weight says
 * how often its sample was applied.
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

/* All workers end with the same parameters, which have every sample of all epochs once. */
static void every_sample_counts_once(void **state)
{
    const struct setting s[] = {
        {"async", "shm", 1, 2, 1, 2, 20, NULL, false, 0, NULL, true, 0},
        {"async", "tcp", 2, 3, 2, 4, 10, NULL, false, 0, NULL, true, 7},
        {"stale(1)", "uds", 2, 2, 2, 1, 10, NULL, false, 0, NULL, true, 31},
        {"stale(3)", "shm", 1, 3, 1, 2, 10, NULL, false, 0, NULL, true, 1},
        {"async", "shm", 2, 2, 1, 2, 10, NULL, false, 4, "sum", true, 0}, /* rounds */
        {"async", "shm", 1, 3, 1, 4, 10, NULL, false, 5, "sum", true, 8}, /* the last is cut */
    };

    (void)state;
    for (size_t k = 0; k < sizeof s / sizeof *s; k++) {
        struct run r;

        leased_begin(&r, &s[k]);
        leased_finish(&r);
    }
}

/* The one that decides among them. */
static void so_it_does_if_processes_die(void **state)
{
    static const char *const victims[] = {"worker/2", "ps/1", "worker/0", "chief/0", NULL};
    const struct setting s[] = {
        {"async", "shm", 3, 3, 2, 4, 150, NULL, true, 0, NULL, true, 0},
        {"stale(2)", "tcp", 3, 3, 2, 2, 150, NULL, true, 0, NULL, true, 13},
    };

    (void)state;
    for (size_t k = 0; k < sizeof s / sizeof *s; k++)
        leased_torture(&s[k], victims);
}

/* The only server dies, and then all processes; the job goes back to the last checkpoint, or
 * resumes from it, with other numbers of servers and workers. */
static void a_job_that_is_lost_resumes(void **state)
{
    struct setting s = {"async", "shm", 1, 2, 1, 2, 120, NULL, true, 0, NULL, true, 0};
    char folder[] = "/tmp/weft-session-ckpt-XXXXXX", command[128];
    struct run r;

    (void)state;
    assert_non_null(mkdtemp(folder));
    s.checkpoints = folder;
    leased_begin(&r, &s);
    leased_shared->is_attacked = true;
    leased_await(&r, 15);
    leased_kill(&r, "ps/0");
    leased_await(&r, 30);
    leased_end(&r); /* kills all */
    s.consistency = "stale(2)";
    s.servers = s.replicas = 2;
    s.workers = 3;
    s.restarts = false;
    s.extra = 5;
    leased_begin(&r, &s);
    leased_finish(&r);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_sample_counts_once),
                                       cmocka_unit_test(so_it_does_if_processes_die),
                                       cmocka_unit_test(a_job_that_is_lost_resumes)};

    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, leased_setup, NULL);
}
