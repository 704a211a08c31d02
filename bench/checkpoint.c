/* checkpoint.c - what does a checkpoint cost? The stall of the caller (the snapshot) and the
 * time until the checkpoint is written, synced, read back and in place, the CPU time of both,
 * beside one memcpy of the same bytes and one plain write with fsync, and one pass of the
 * checksum. One JSON line, medians of nine.
 *
 *   bench/checkpoint [FOLDER] [MB] [THREADS]   default: . 100 2; in a new folder below FOLDER */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "weft/weft.h"

enum { RUNS = 9, TENSORS = 20 };

static double now_s(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double v[RUNS])
{
    qsort(v, RUNS, sizeof *v, by_size);
    return v[RUNS / 2];
}

static int remove_node(const char *path, const struct stat *s, int flag, struct FTW *w)
{
    (void)s;
    (void)flag;
    (void)w;
    return remove(path);
}

/* Seconds of writing the bytes to a file, with fsync. */
static double plain_write(const char *dir, const char *p, size_t n)
{
    char path[4200];
    double t = now_s(CLOCK_MONOTONIC);
    int fd;

    snprintf(path, sizeof path, "%s/plain", dir);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (size_t at = 0; fd >= 0 && at < n;) {
        ssize_t put = write(fd, p + at, n - at);

        if (put <= 0)
            break;
        at += (size_t)put;
    }
    if (fd < 0 || fsync(fd) || close(fd))
        perror(path);
    return now_s(CLOCK_MONOTONIC) - t;
}

int main(int argc, char **argv)
{
    int64_t mb = argc > 2 ? atoll(argv[2]) : 100, count = mb * 1000000 / 4 / TENSORS;
    int threads = argc > 3 ? atoi(argv[3]) : 2;
    size_t bytes = (size_t)(count * 4 * TENSORS);
    char dir[4096], name[TENSORS][16];
    char *data = malloc(bytes), *other = malloc(bytes);
    double stall[RUNS], written[RUNS], cpu[RUNS], copy[RUNS], plain[RUNS], sum[RUNS], first = 0;
    weft_ckpt_tensor t[TENSORS];
    weft_ckpt_writer *w = NULL;
    weft_ckpt_stats s;
    weft_ctx *ctx = NULL;
    weft_status st;

    snprintf(dir, sizeof dir, "%s/bench-checkpoint-XXXXXX", argc > 1 ? argv[1] : ".");
    if (!data || !other || count < 1 || !mkdtemp(dir)) {
        fprintf(stderr, "checkpoint: no memory, or no folder %s\n", dir);
        return 1;
    }
    memset(data, 1, bytes);
    memset(other, 1, bytes);
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof name[i], "t%d", i);
        t[i] = (weft_ckpt_tensor){
            name[i], NULL, weft_view(WEFT_F32, data + (size_t)i * (size_t)count * 4, 1, &count)};
    }
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = threads), &ctx);
    if (!st)
        st = weft_ckpt_writer_new(ctx, dir, WEFT_OPTS(weft_ckpt_writer_opts, .keep_last = 1), &w);
    for (int i = -1; i < RUNS && !st; i++) { /* the first save makes the copy's memory */
        double begin, spent = now_s(CLOCK_PROCESS_CPUTIME_ID);

        st = weft_ckpt_save(
            w, WEFT_OPTS(weft_ckpt_data, .step = i + 1, .n_tensors = TENSORS, .tensors = t));
        if (!st)
            st = weft_ckpt_writer_flush(w);
        weft_ckpt_writer_stats(w, &s);
        if (i < 0) {
            first = (double)s.last_stall_ns * 1e-9;
            continue;
        }
        stall[i] = (double)s.last_stall_ns * 1e-9;
        written[i] = (double)s.last_write_ns * 1e-9;
        cpu[i] = now_s(CLOCK_PROCESS_CPUTIME_ID) - spent;
        begin = now_s(CLOCK_MONOTONIC);
        memcpy(other, data, bytes);
        copy[i] = now_s(CLOCK_MONOTONIC) - begin;
        plain[i] = plain_write(dir, data, bytes);
        begin = now_s(CLOCK_PROCESS_CPUTIME_ID);
        data[i] = (char)wf_xxh64(other, (int64_t)bytes);
        sum[i] = now_s(CLOCK_PROCESS_CPUTIME_ID) - begin;
    }
    if (!st)
        st = weft_ckpt_writer_close(w);
    if (st)
        fprintf(stderr, "checkpoint: %s\n", weft_error());
    else
        printf("{\"bench\": \"checkpoint\", \"bytes\": %zu, \"threads\": %d, \"first_stall_ms\": "
               "%.3f, "
               "\"stall_ms\": %.3f, \"memcpy_ms\": %.3f, \"write_ms\": %.1f, \"cpu_ms\": %.1f, "
               "\"plain_write_ms\": "
               "%.1f, "
               "\"xxh64_cpu_ms\": %.1f, \"write_mb_s\": %.0f}\n",
               bytes, threads, first * 1e3, median(stall) * 1e3, median(copy) * 1e3,
               median(written) * 1e3, median(cpu) * 1e3, median(plain) * 1e3, median(sum) * 1e3,
               (double)bytes * 1e-6 / median(written));
    weft_ctx_free(ctx);
    nftw(dir, remove_node, 8, FTW_DEPTH | FTW_PHYS);
    free(data);
    free(other);
    return st != 0;
}
