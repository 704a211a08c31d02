/* leased_random_test.c - leased jobs as they are drawn: how many servers, copies, workers and
 * shards, rounds, sessions that end in the middle of an epoch, checkpoints; and which tasks are
 * killed, and when. Every sample is applied as often as it was trained on.
 *
 * `leased_random_test FIRST LAST` tries other seeds.
 * ctest-timeout: 300 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/leased_procs.h"

static unsigned drawn;

static int draw(int n)
{
    drawn = drawn * 1664525u + 1013904223u;
    return (int)((drawn >> 16) % (unsigned)n);
}

static struct setting draw_setting(char *folder)
{
    static const char *const consistency[] = {"async", "stale(1)", "stale(2)", "stale(7)"};
    static const char *const transport[] = {"shm", "uds", "tcp"};
    struct setting s = {.restarts = true};

    s.consistency = consistency[draw(4)];
    s.transport = transport[draw(3)];
    s.servers = 1 + draw(3);
    s.workers = 1 + draw(4);
    s.shards = 1 << draw(5);
    s.epochs = 10 + draw(20);
    s.session = draw(3) > 0;
    s.replicas = s.servers > 1 ? 1 + draw(2) : 1;
    s.checkpoints = draw(2) ? folder : NULL;
    if (draw(4) == 0) {
        s.every = 1 + draw(12);
        s.merge = "sum";
    }
    s.extra = s.session ? draw(32) : 0;
    return s;
}

static void attack(struct run *r)
{
    int task = draw(4), after = draw(700);
    char name[16];

    if (task == 0)
        snprintf(name, sizeof name, "chief/0");
    else if (task == 1)
        snprintf(name, sizeof name, "ps/%d", draw(r->s.servers));
    else
        snprintf(name, sizeof name, "worker/%d", draw(r->s.workers));
    leased_pause(after);
    printf("  %s is killed in epoch %d\n", name, leased_shared->epochs + 1);
    leased_kill(r, name);
}

static void try_seed(int seed)
{
    char folder[] = "/tmp/weft-random-ckpt-XXXXXX", command[128];
    struct setting s;
    struct run r;
    int n;

    drawn = (unsigned)seed * 2654435761u;
    CHECK(mkdtemp(folder));
    s = draw_setting(folder);
    printf("seed %d: %s over %s, %d servers, %d copies, %d workers, %d shards, %d epochs and %d "
           "steps, every %d%s%s\n",
           seed, s.consistency, s.transport, s.servers, s.replicas, s.workers, s.shards, s.epochs,
           s.extra, s.every, s.session ? ", session" : "", s.checkpoints ? ", checkpoints" : "");
    leased_begin(&r, &s);
    leased_shared->hold = s.epochs - 1; /* who is started again finds the job */
    leased_shared->is_attacked = true;
    for (n = draw(5); n > 0; n--)
        attack(&r);
    leased_pause(2000);
    leased_shared->is_attacked = false;
    leased_finish(&r);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

static int first = 1, last = 6;

static void every_sample_counts_as_often_as_it_was_trained_on(void **state)
{
    (void)state;
    for (int seed = first; seed <= last; seed++)
        try_seed(seed);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_counts_as_often_as_it_was_trained_on)};

    if (argc > 2) {
        first = atoi(argv[1]);
        last = atoi(argv[2]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests(tests, leased_setup, NULL);
}
