/* pool_test.c - the thread pool: every tile once, whatever the threads do, and no time burnt while
 * waiting longer than the spin. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/base.h"

#define N_TILES 1000

struct counts {
    _Atomic int tile[N_TILES];
};

static void count_tile(void *arg, int64_t tile, int thread)
{
    struct counts *c = arg;

    (void)thread;
    atomic_fetch_add(&c->tile[tile], 1);
}

static weft_ctx *context(int threads, int spin_us)
{
    weft_ctx *ctx = NULL;

    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads, .spin_us = spin_us), &ctx), 0);
    return ctx;
}

/* Many short jobs of many sizes: the caller and the workers fall asleep and wake all the time. */
static void every_tile_once(void **state)
{
    static const int threads[] = {1, 2, 3, 7}, spins[] = {WEFT_ZERO, 1, 50, 0};
    static struct counts c;

    (void)state;
    for (int i = 0; i < WF_COUNT(threads); i++)
        for (int k = 0; k < WF_COUNT(spins); k++) {
            weft_ctx *ctx = context(threads[i], spins[k]);
            int64_t done = 0;

            for (int64_t n = 0; n < 300; n++) {
                int64_t tiles = n < 280 ? n % 9 : N_TILES;

                memset(&c, 0, sizeof c);
                wf_pool_for(ctx->pool, tiles, count_tile, &c);
                for (int64_t t = 0; t < N_TILES; t++)
                    assert_int_equal(atomic_load(&c.tile[t]), t < tiles);
                done += tiles;
            }
            assert_true(done > 0);
            weft_ctx_free(ctx);
        }
}

/* One tile takes long without computing; who waits for it must sleep. */
static void slow_tile(void *arg, int64_t tile, int thread)
{
    struct timespec wait = {0, 300 * 1000000L};

    (void)arg, (void)thread;
    if (tile == 1)
        nanosleep(&wait, NULL);
}

static double cpu_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void waiting_sleeps(void **state)
{
    static const int spins[] = {WEFT_ZERO, 1000, 0};

    (void)state;
    for (int k = 0; k < WF_COUNT(spins); k++) {
        weft_ctx *ctx = context(3, spins[k]);
        double before = cpu_ms(), used;

        wf_pool_for(ctx->pool, 3, slow_tile, NULL);
        used = cpu_ms() - before;
        if (used > 100)
            fail_msg("spin_us %d: %.0f ms of CPU time while 300 ms were waited", spins[k], used);
        weft_ctx_free(ctx);
    }
}

static void refuses_nonsense(void **state)
{
    weft_ctx *ctx = NULL;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .spin_us = -3), &ctx), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "spin_us -3"));
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .spin_us = 1000001), &ctx), WEFT_EINVAL);
    assert_null(ctx);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_once),
        cmocka_unit_test(waiting_sleeps),
        cmocka_unit_test(refuses_nonsense),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
