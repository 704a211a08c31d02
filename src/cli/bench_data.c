/* bench_data.c - weft bench data: how many records per second a pipeline yields. */
#define _GNU_SOURCE
#include <sys/resource.h>

#include "cli.h"

enum { MAX_BLOCKS = 1000 };

/* ---- the pipelines: each yields batches of inputs and labels -------------------------------- */

static const char *in_dir(char buf[4096], const char *dir, const char *name)
{
    snprintf(buf, 4096, "%s/%s", dir, name);
    return buf;
}

static weft_ds tfrecord(weft_data *d, const char *dir)
{
    const weft_example_feature features[] = {
        {.name = "label", .dtype = WEFT_I64, .role = WEFT_LABEL},
        {.name = "num", .dtype = WEFT_F32, .rank = 1, .dim = {13}},
        {.name = "cat", .dtype = WEFT_I64, .rank = 1, .dim = {26}},
    };
    char path[4096];
    weft_ds s = weft_ds_tfrecord(d, in_dir(path, dir, "*.tfrecord"), NULL);

    return weft_ds_batch(d, weft_ds_example(d, s, 3, features, NULL), 1024, NULL);
}

static weft_ds criteo(weft_data *d, const char *dir)
{
    char path[4096];
    weft_ds s = weft_ds_csv(d, in_dir(path, dir, "*.csv"),
                            WEFT_OPTS(weft_csv_opts, .label = "label",
                                      .groups = "num = n0..n12; cat = c0..c25",
                                      .types = "label:i64, num:f32, cat:i64"));

    return weft_ds_batch(d, s, 1024, NULL);
}

static weft_ds idx(weft_data *d, const char *dir)
{
    char images[4096], labels[4096];
    const weft_array_file files[] = {{"image", in_dir(images, dir, "images.idx")},
                                     {"label", in_dir(labels, dir, "labels.idx")}};
    weft_ds s = weft_ds_idx(d, 2, files, NULL);

    s = weft_ds_shuffle_all(d, s, NULL);
    s = weft_ds_rescale(d, s, "image", 1.0 / 255, 0, WEFT_F32);
    s = weft_ds_rescale(d, s, "label", 1, 0, WEFT_I32);
    return weft_ds_batch(d, s, 128, NULL);
}

static weft_ds jpeg(weft_data *d, const char *dir)
{
    char path[4096];
    weft_ds s = weft_ds_image_folder(
        d, in_dir(path, dir, "jpeg"),
        WEFT_OPTS(weft_image_opts, .channels = 3, .height = 224, .width = 224, .dtype = WEFT_F32));

    return weft_ds_batch(d, weft_ds_shuffle_all(d, s, NULL), 32, NULL);
}

static const struct pipeline {
    const char *name;
    weft_ds (*build)(weft_data *d, const char *dir);
    const char *what;
} pipelines[] = {
    {"tfrecord", tfrecord, "tf.train.Example records, parsed, batches of 1024"},
    {"criteo", criteo, "the same rows as CSV, batches of 1024"},
    {"idx", idx, "28x28 images in IDX files, full shuffle, /255, batches of 128"},
    {"jpeg", jpeg, "JPEG directories, shuffle, decode, resize to 224x224, batches of 32"},
};
#define N_PIPELINES ((int)(sizeof pipelines / sizeof *pipelines))

/* ---- measuring ------------------------------------------------------------------------------- */

/* Reads the first byte of each page of the batch, as a consumer would. */
static int64_t touch(const weft_batch *b)
{
    int64_t sum = 0;

    for (int c = 0; c < b->n_cols; c++) {
        int64_t n = weft_tensor_bytes(&b->col[c]);

        for (int64_t i = 0; i < n; i += 4096)
            sum += ((const unsigned char *)b->col[c].data)[i];
    }
    return sum;
}

static volatile int64_t sink;

static weft_status one_epoch(weft_iter *it, int64_t epoch, int64_t *records)
{
    weft_batch *b;
    weft_status st = weft_iter_reset(it, epoch);

    *records = 0;
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        *records += b->n;
        sink += touch(b);
        weft_batch_free(b);
    }
    return st;
}

static void print_stages(const weft_iter *it)
{
    weft_stage_stats s;
    double seconds, share;

    for (int i = 0; i < weft_iter_n_stages(it); i++)
        if (!weft_iter_stage(it, i, &s))
            fprintf(stderr, "  %-14s %10lld elements  busy %8.3f s  waiting %8.3f s\n", s.name,
                    (long long)s.n_elements, s.busy_s, s.wait_s);
    weft_iter_waited(it, &seconds, &share);
    fprintf(stderr, "  the reader waited %.3f s, %.0f %%\n", seconds, 100 * share);
}

static weft_status measure(weft_ctx *ctx, const struct pipeline *p, const char *dir, int threads,
                           int blocks, bool stages, double *records_s)
{
    weft_data *d = NULL;
    weft_iter *it = NULL;
    double times[MAX_BLOCKS];
    int64_t records = 0;
    weft_status st = weft_data_new(ctx, &d);

    if (!st)
        st = weft_iter_new(d, p->build(d, dir), WEFT_OPTS(weft_iter_opts, .threads = threads), &it);
    if (!st)
        st = one_epoch(it, 0, &records); /* warm-up */
    for (int i = 0; i < blocks && !st; i++) {
        double t = wall_clock();

        st = one_epoch(it, i + 1, &records);
        times[i] = (wall_clock() - t) / (double)(records > 0 ? records : 1);
    }
    if (!st) {
        *records_s = 1 / median_of(times, blocks);
        if (stages)
            print_stages(it);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return st;
}

static int run(int argc, char **argv)
{
    struct machine_flags m = {.simd = "auto"};
    const char *only = NULL, *json = NULL, *dir = NULL;
    int blocks = 5, threads = 2, n, done = 0;
    bool stages = false;
    const struct flag flags[] = {
        {"dir", FLAG_TEXT, "DIR", "the directory with the files", &dir},
        {"pipeline", FLAG_TEXT, "NAME", "tfrecord, criteo, idx or jpeg; default: all", &only},
        {"threads", FLAG_INT, "N", "number of threads that read ahead; default 2", &threads},
        {"blocks", FLAG_INT, "N", "measured epochs; reports the median; default 5", &blocks},
        {"simd", FLAG_TEXT, "LEVEL", "auto, portable, avx2, avx512 or avx512bf16", &m.simd},
        {"stages", FLAG_BOOL, NULL, "also print the time of each stage", &stages},
        {"json", FLAG_TEXT, "FILE|-", "write JSON, one object per line", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    FILE *to = stdout;
    weft_ctx *ctx;
    weft_status st;

    n = parse_flags(&command_bench_data, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 0)
        return fail(EXIT_USAGE, "bench data: unexpected argument '%s'", argv[0]);
    if (!dir)
        return fail(EXIT_USAGE, "bench data: --dir is needed; see `weft bench data --help`");
    if (blocks < 1 || blocks > MAX_BLOCKS || threads < 1 || threads > 1024)
        return fail(EXIT_USAGE, "bench data: --blocks takes 1 to %d, --threads 1 to 1024",
                    MAX_BLOCKS);
    m.threads = threads;
    st = open_context(&m, &ctx);
    if (st)
        return fail_status(st, "bench data");
    if (json && strcmp(json, "-") && !(to = fopen(json, "w"))) {
        weft_ctx_free(ctx);
        return fail(EXIT_INPUT, "cannot write %s", json);
    }
    for (int i = 0; i < N_PIPELINES && !st; i++) {
        double records_s = 0;

        if (only && strcmp(only, pipelines[i].name))
            continue;
        done++;
        st = measure(ctx, &pipelines[i], dir, threads, blocks, stages, &records_s);
        if (st)
            fail_status(st, pipelines[i].name);
        else if (json)
            fprintf(to,
                    "{\"pipeline\": \"%s\", \"peer\": \"weft\", \"version\": \"%s\", "
                    "\"threads\": %d, \"records_s\": %.0f}\n",
                    pipelines[i].name, weft_version(), threads, records_s);
        else
            fprintf(to, "%-10s %12.0f records/s  %s\n", pipelines[i].name, records_s,
                    pipelines[i].what);
        fflush(to);
    }
    if (to != stdout)
        fclose(to);
    weft_ctx_free(ctx);
    if (!done)
        return fail(EXIT_USAGE, "bench data: no pipeline '%s'; there are tfrecord criteo idx jpeg",
                    only);
    return st ? EXIT_FAILED : EXIT_DONE;
}

const struct command command_bench_data = {
    .name = "bench data",
    .args = "",
    .summary = "measure input pipelines over files",
    .text =
        "The directory contains what the pipelines read: *.tfrecord, *.csv, images.idx, "
        "labels.idx, and\njpeg/ with a directory for each class. A block is one complete pass.\n",
    .run = run,
};
