/* tfrecord.c - CPU time of reading and parsing a record, on one thread.
 *
 *   tfrecord FILES [BLOCKS [THREADS]]    files of tfdata.py: label i64, num f32[13], cat i64[26]
 *
 * One JSON line for each of: raw (read, CRC, batches of 1024 records), example (parsed before).
 * cpu_ns is user and system time a record over the whole process, the median of the blocks. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "weft/data_record.h"
#include "weft/weft.h"

static double cpu_s(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static double wall_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void check(weft_status st)
{
    if (st) {
        fprintf(stderr, "tfrecord: %s\n", weft_error());
        exit(1);
    }
}

static weft_ds pipeline(weft_data *d, const char *files, int stage)
{
    static const weft_example_feature features[] = {
        {.name = "label", .dtype = WEFT_I64, .role = WEFT_LABEL},
        {.name = "num", .dtype = WEFT_F32, .rank = 1, .dim = {13}},
        {.name = "cat", .dtype = WEFT_I64, .rank = 1, .dim = {26}},
    };
    weft_ds s = weft_ds_tfrecord(d, files, NULL);

    if (stage >= 1)
        s = weft_ds_example(d, s, 3, features, NULL);
    return weft_ds_batch(d, s, 1024, NULL);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"raw", "example"};
    int n_blocks = argc > 2 ? atoi(argv[2]) : 9, threads = argc > 3 ? atoi(argv[3]) : 0;
    weft_ctx *ctx;

    if (argc < 2 || n_blocks < 1 || n_blocks > 1000) {
        fprintf(stderr, "usage: tfrecord FILES [BLOCKS [THREADS]]\n");
        return 2;
    }
    check(weft_ctx_new(NULL, &ctx));
    for (int stage = 0; stage < 2; stage++) {
        weft_data *d;
        weft_iter *it;
        weft_batch *b;
        double cpu[1000], wall[1000];
        int64_t n = 0;

        check(weft_data_new(ctx, &d));
        check(weft_iter_new(d, pipeline(d, argv[1], stage),
                            WEFT_OPTS(weft_iter_opts, .threads = threads ? threads : WEFT_ZERO),
                            &it));
        for (int k = -1; k < n_blocks; k++) {
            double c = cpu_s(), w = wall_s();

            check(weft_iter_reset(it, k + 1));
            for (n = 0;; n += b->n, weft_batch_free(b)) {
                check(weft_iter_next(it, &b));
                if (!b)
                    break;
            }
            if (k >= 0) {
                cpu[k] = (cpu_s() - c) / (double)n;
                wall[k] = (wall_s() - w) / (double)n;
            }
        }
        qsort(cpu, (size_t)n_blocks, sizeof *cpu, by_value);
        qsort(wall, (size_t)n_blocks, sizeof *wall, by_value);
        printf(
            "{\"pipeline\": \"tfrecord-%s\", \"threads\": %d, \"records\": %lld, \"cpu_ns\": %.1f, "
            "\"records_s\": %.0f}\n",
            names[stage], threads, (long long)n, 1e9 * cpu[n_blocks / 2], 1 / wall[n_blocks / 2]);
        weft_iter_free(it);
        weft_data_free(d);
    }
    weft_ctx_free(ctx);
    return 0;
}
