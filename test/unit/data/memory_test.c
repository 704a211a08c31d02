/* Memory: a stream far larger than the budget runs within it, whatever the pipeline holds back. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft/weft.h"

#define MIB ((int64_t)1 << 20)
#define BYTES 65536 /* of an element */

static int64_t n_elements; /* of the stream */

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    (void)arg;
    *end = id == n_elements;
    if (!*end)
        memset(s->col[0].data, (int)(id & 0xff), BYTES);
    return WEFT_OK;
}

/* Bytes of this process that are in memory now. */
static int64_t resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long long all = 0, there = 0;

    if (!f)
        return 0;
    if (fscanf(f, "%lld %lld", &all, &there) != 2)
        there = 0;
    fclose(f);
    return there * sysconf(_SC_PAGESIZE);
}

static weft_ds source(weft_data *d)
{
    weft_column col = {.name = "x", .dtype = WEFT_U8, .rank = 1, .dim = {BYTES}};

    return weft_ds_stream(d, 1, &col, next, NULL);
}

static weft_status same(void *arg, const weft_sample *in, weft_sample *out)
{
    (void)arg;
    memcpy(out->col[0].data, in->col[0].data, BYTES);
    return WEFT_OK;
}

static weft_ds plain(weft_data *d)
{
    return weft_ds_batch(d, source(d), 8, NULL);
}
static weft_ds mapped(weft_data *d)
{
    return weft_ds_batch(d, weft_ds_map(d, source(d), 0, NULL, same, NULL, NULL), 8, NULL);
}
static weft_ds shuffled(weft_data *d)
{
    return weft_ds_batch(d, weft_ds_shuffle(d, source(d), 256, NULL), 8, NULL);
}
static weft_ds windows(weft_data *d)
{
    return weft_ds_window(d, source(d), 16, WEFT_OPTS(weft_window_opts, .shift = 8));
}
static weft_ds mixed(weft_data *d)
{
    weft_ds s[2] = {source(d), source(d)};

    return weft_ds_batch(d, weft_ds_sample_from(d, 2, s, NULL, NULL), 8, NULL);
}

static void a_stream_larger_than_memory_stays_within_the_budget(void **state)
{
    static const struct {
        const char *name;
        weft_ds (*make)(weft_data *);
    } cases[] = {{"plain", plain},
                 {"mapped", mapped},
                 {"shuffled", shuffled},
                 {"windows", windows},
                 {"mixed", mixed}};
    const int64_t budget = 64 * MIB;

    (void)state;
    /* 2 GiB; less where each access is checked. */
    n_elements = (getenv("WEFT_TEST_QUICK") ? 128 : 2048) * MIB / BYTES;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_ctx *ctx;
        weft_data *d;
        weft_iter *it;
        weft_batch *b;
        int64_t before = resident(), most = 0, n = 0;

        assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx), WEFT_OK);
        assert_int_equal(weft_data_new(ctx, &d), WEFT_OK);
        assert_int_equal(weft_iter_new(d, cases[i].make(d),
                                       WEFT_OPTS(weft_iter_opts, .threads = 2, .memory = budget),
                                       &it),
                         WEFT_OK);
        for (;;) {
            if (weft_iter_next(it, &b))
                fail_msg("%s: %s", cases[i].name, weft_error());
            if (!b)
                break;
            n++;
            if (n % 16 == 0 && resident() - before > most)
                most = resident() - before;
            weft_batch_free(b);
        }
        weft_iter_free(it);
        weft_data_free(d);
        /* Chunks that are free but kept may take a quarter more; a block per thread is under
         * way. */
        if (weft_ctx_memory_peak(ctx) > 2 * budget ||
            (!getenv("WEFT_TEST_QUICK") && most > 2 * budget))
            fail_msg("%s: %lld MiB allocated, %lld MiB resident at most, with a budget of %lld",
                     cases[i].name, (long long)(weft_ctx_memory_peak(ctx) / MIB),
                     (long long)(most / MIB), (long long)(budget / MIB));
        print_message("%s: %lld elements, %lld MiB allocated at most, %lld MiB resident\n",
                      cases[i].name, (long long)n, (long long)(weft_ctx_memory_peak(ctx) / MIB),
                      (long long)(most / MIB));
        weft_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_larger_than_memory_stays_within_the_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
