/* Every stage of the table: by its name in C and in a job it is what its typed function gives;
 * and every function of the headers that makes a dataset of a dataset is a row, or has a reason
 * not to be. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../data/drain_support.h"
#include "train/job/data.h"
#include "weft/weft.h"

#define SEED 5

static weft_ctx *ctx;
static char dir[64];
static weft_learned *learned; /* by the typed calls of the stages that learn */

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static const char *in_dir(const char *name)
{
    static char path[4][192];
    static int k;

    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

/* ---- data ------------------------------------------------------------------------------------ */

enum { N = 12, SIDE = 6 };

static void put_table(void)
{
    FILE *f = fopen(in_dir("table.csv"), "w");

    assert_non_null(f);
    fprintf(f, "x,z,k,word,y\n");
    for (int i = 0; i < N; i++)
        fprintf(f, "%s,%g,%d,w%d,%d\n", i % 5 == 4 ? "nan" : "1.5", i * 0.5 - 2, i % 4, i % 3,
                i % 2);
    fclose(f);
    f = fopen(in_dir("words.txt"), "w");
    assert_non_null(f);
    fprintf(f, "w2\nw0\n");
    fclose(f);
}

static void put_images(void)
{
    static uint8_t pixel[N][SIDE][SIDE][3];
    static int64_t label[N];
    weft_tensor image = weft_view(WEFT_U8, pixel, 4, (int64_t[]){N, SIDE, SIDE, 3});
    weft_tensor y = weft_view(WEFT_I64, label, 1, (int64_t[]){N});
    uint8_t *p = &pixel[0][0][0][0];

    for (size_t i = 0; i < sizeof pixel; i++)
        p[i] = (uint8_t)(i * 37 % 251);
    for (int i = 0; i < N; i++)
        label[i] = i % 3;
    ok(weft_npy_write(ctx, in_dir("image.npy"), &image));
    ok(weft_npy_write(ctx, in_dir("label.npy"), &y));
}

static void put_records(void)
{
    static char bytes[1 << 16];
    FILE *f = fopen(WF_TEST_DIR "/golden/data/rgb.png", "r");
    weft_record_writer *w = NULL;
    weft_str text = {bytes, 0};

    assert_non_null(f);
    text.n = (int64_t)fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    ok(weft_record_writer_new(ctx, in_dir("images.tfrecord"), NULL, &w));
    for (int i = 0; i < 3; i++) {
        weft_example_value v = {.name = "image", .tensor = weft_view(WEFT_STR, &text, 0, NULL)};

        ok(weft_record_writer_example(w, 1, &v));
    }
    ok(weft_record_writer_close(w));
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-stages-XXXXXX");
    if (!mkdtemp(dir) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx))
        return -1;
    put_table();
    put_images();
    put_records();
    return 0;
}

static int tear_down(void **state)
{
    char command[96];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- the typed calls ------------------------------------------------------------------------- */

#define TYPED(name, call)                                \
    static weft_ds typed_##name(weft_data *d, weft_ds s) \
    {                                                    \
        return call;                                     \
    }

static const weft_stats *stats_of(weft_data *d, weft_ds s, const char *columns)
{
    weft_learned_free(learned);
    ok(weft_learned_new(ctx, &learned));
    ok(weft_learned_from(
        learned, d, s, 1,
        &(weft_learn){.name = "it", .kind = WEFT_LEARNED_STATS, .columns = columns}));
    return weft_learned_stats(learned, "it");
}

static const weft_vocab *words_of(weft_data *d, weft_ds s, const char *column, int64_t top)
{
    weft_learned_free(learned);
    ok(weft_learned_new(ctx, &learned));
    ok(weft_learned_from(
        learned, d, s, 1,
        &(weft_learn){.name = "it", .kind = WEFT_LEARNED_VOCAB, .columns = column, .top = top}));
    return weft_learned_vocab(learned, "it");
}

static const weft_vocab *words_of_file(void)
{
    weft_vocab *v = NULL;

    weft_learned_free(learned);
    ok(weft_learned_new(ctx, &learned));
    ok(weft_vocab_read(ctx, in_dir("words.txt"), &v));
    ok(weft_learned_add_vocab(learned, "it", v));
    return v;
}

static const double bounds[] = {-1, 0.5, 2};
static const double in_values[] = {0, 2};
static const double one_half = 0.5;
static const double draw_weights[N] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
static const int64_t length_bounds[] = {1, 3};
static const int64_t batch_sizes[] = {2, 3, 4};
static const float means[] = {0.5f, 0.25f, 0.125f}, deviations[] = {0.5f, 0.5f, 0.5f};

TYPED(select, weft_ds_select(d, s, "y, x"))
TYPED(rename, weft_ds_rename(d, s, "x", "price"))
TYPED(copy, weft_ds_copy(d, s, "x", "again"))
TYPED(label, weft_ds_role(d, s, "y", WEFT_LABEL))
TYPED(weight, weft_ds_role(d, s, "z", WEFT_WEIGHT))
TYPED(feature, weft_ds_role(d, s, "y", WEFT_FEATURE))
TYPED(rescale, weft_ds_rescale(d, s, "x, z", 2, 0.5, WEFT_F64))
TYPED(cast, weft_ds_cast(d, s, "z, k", WEFT_I32))
TYPED(clip, weft_ds_clip(d, s, "z", -1, 1))
TYPED(log1p, weft_ds_log1p(d, s, "x"))
TYPED(fill, weft_ds_fill(d, s, "x", 7))
TYPED(fill_mean, weft_ds_fill_mean(d, s, "x, z", stats_of(d, s, "x, z")))
TYPED(standardize, weft_ds_standardize(d, s, "z,k", stats_of(d, s, "z,k")))
TYPED(bucketize, weft_ds_bucketize(d, s, "z", 3, bounds))
TYPED(hash, weft_ds_hash(d, s, "word", 5, 3))
TYPED(cross, weft_ds_cross(d, s, "word,k", 7, 2, "both"))
TYPED(lookup, weft_ds_lookup(d, s, "word", words_of(d, s, "word", 2),
                             WEFT_OPTS(weft_lookup_opts, .n_unknown = 2)))
TYPED(lookup_file, weft_ds_lookup(d, s, "word", words_of_file(), NULL))
TYPED(one_hot, weft_ds_one_hot(d, s, "k", 5, WEFT_OPTS(weft_ds_one_hot_opts, .dtype = WEFT_I32)))
TYPED(join, weft_ds_join(d, s, "x, k", "vector", WEFT_F64))
TYPED(slice, weft_ds_slice(d, s, "image", 1, 2))
TYPED(filter,
      weft_ds_where(d, s, "k", WEFT_OPTS(weft_where_opts, .n_values = 2, .values = in_values)))
TYPED(filter_range,
      weft_ds_where(d, s, "z", WEFT_OPTS(weft_where_opts, .min = &one_half, .others = true)))
TYPED(take, weft_ds_take(d, s, 5))
TYPED(skip, weft_ds_skip(d, s, 5))
TYPED(shard, weft_ds_shard(d, s, 3, 1))
TYPED(sample, weft_ds_sample(d, s, 4, WEFT_OPTS(weft_sample_opts, .seed = SEED)))
TYPED(sample_weights, weft_ds_sample(d, s, 9,
                                     WEFT_OPTS(weft_sample_opts, .seed = 2, .replacement = true,
                                               .weights = draw_weights, .same_each_epoch = true)))
TYPED(repeat, weft_ds_repeat(d, s, 2))
TYPED(shuffle, weft_ds_shuffle(d, s, 4, WEFT_OPTS(weft_shuffle_opts, .seed = SEED)))
TYPED(shuffle_all,
      weft_ds_shuffle_all(d, s, WEFT_OPTS(weft_shuffle_opts, .seed = 9, .same_each_epoch = true)))
TYPED(enumerate, weft_ds_enumerate(d, s, 100))
TYPED(window,
      weft_ds_window(d, weft_ds_select(d, s, "x,k"), 3,
                     WEFT_OPTS(weft_window_opts, .shift = 2, .stride = 1, .drop_remainder = true)))
TYPED(batch, weft_ds_batch(d, s, 5, WEFT_OPTS(weft_batch_opts, .drop_remainder = true)))
TYPED(padded_batch,
      weft_ds_padded_batch(d, weft_ds_select(d, s, "image"), 5,
                           WEFT_OPTS(weft_padded_batch_opts, .n_pads = 1,
                                     .pads = (weft_pad_column[]){
                                         {.column = "image", .value = 9, .length = {8, 6, 3}}})))
TYPED(bucket_by_length,
      weft_ds_bucket_by_length(d, s, "k", 2, length_bounds, batch_sizes,
                               WEFT_OPTS(weft_padded_batch_opts, .drop_remainder = false)))
TYPED(unbatch, weft_ds_unbatch(d, weft_ds_batch(d, s, 5, NULL)))
TYPED(cache, weft_ds_cache(d, s, NULL))
TYPED(cache_file,
      weft_ds_cache(d, s,
                    WEFT_OPTS(weft_cache_opts, .in = WEFT_CACHE_FILE, .path = in_dir("cache.bin"))))
TYPED(snapshot,
      weft_ds_snapshot(d, s, in_dir("snapshot.bin"), WEFT_OPTS(weft_snapshot_opts, .key = "v1")))
TYPED(prefetch, weft_ds_prefetch(d, s, 3))
TYPED(decode_image,
      weft_ds_decode_image(d, s, "image",
                           WEFT_OPTS(weft_image_opts, .height = 4, .width = 5, .channels = 3,
                                     .crop = WEFT_CROP_CENTER, .crop_share = 0.5,
                                     .filter = WEFT_IMAGE_NEAREST, .dtype = WEFT_F32)))
TYPED(resize,
      weft_ds_image_resize(d, s, "image", 4, 5,
                           WEFT_OPTS(weft_image_resize_opts, .antialias = true, .dtype = WEFT_F32)))
TYPED(crop, weft_ds_image_crop(d, s, "image", 1, 2, 3, 4))
TYPED(center_crop, weft_ds_image_center_crop(d, s, "image", 3, 4))
TYPED(pad, weft_ds_image_pad(d, s, "image", 1, WEFT_CENTER, 8, 9, 3))
TYPED(flip, weft_ds_image_flip(d, s, "image", true, true))
TYPED(rotate, weft_ds_image_rotate(d, s, "image", 30, 7))
TYPED(rotate_quarters, weft_ds_image_rotate_quarters(d, s, "image", 3))
TYPED(brightness, weft_ds_image_brightness(d, s, "image", 0.25))
TYPED(contrast, weft_ds_image_contrast(d, s, "image", 1.5))
TYPED(saturation, weft_ds_image_saturation(d, s, "image", 0.5))
TYPED(hue, weft_ds_image_hue(d, s, "image", 0.1))
TYPED(grayscale, weft_ds_image_grayscale(d, s, "image", 3))
TYPED(normalize, weft_ds_image_normalise(d, s, "image", 0.0078125, 3, means, deviations))
TYPED(random_crop, weft_ds_image_random_crop(d, s, "image", 4, 3, SEED))
TYPED(random_resized_crop, weft_ds_image_random_resized_crop(d, s, "image", 4, 3,
                                                             WEFT_OPTS(weft_random_crop_opts,
                                                                       .seed = 8, .min_area = 0.5)))
TYPED(random_flip, weft_ds_image_random_flip(d, s, "image", 0.5, 0, SEED))
TYPED(random_flip_old, weft_ds_image_random_flip(d, s, "image", 1, 0.25, SEED))
TYPED(random_rotate, weft_ds_image_random_rotate(d, s, "image", 20, 1, 4))
TYPED(random_color,
      weft_ds_image_random_colour(d, s, "image",
                                  WEFT_OPTS(weft_jitter_opts, .seed = SEED, .brightness = 0.1,
                                            .contrast = 0.2, .saturation = 0.3, .hue = 0.05)))
TYPED(random_cutout, weft_ds_image_random_cutout(d, s, "image", 2, 3, 4, SEED))

/* ---- the table ------------------------------------------------------------------------------- */

#define TABLE "table.csv"
#define IMAGES "image.npy,label.npy"
static const struct example {
    const char *stage, *args, *path;
    weft_ds (*typed)(weft_data *d, weft_ds s);
    const char *before, *before_args; /* a stage in front; NULL: none */
} examples[] = {
    {"select", "columns=\"y, x\"", TABLE, typed_select, 0, 0},
    {"rename", "column=x to=price", TABLE, typed_rename, 0, 0},
    {"copy", "column=x to=again", TABLE, typed_copy, 0, 0},
    {"label", "columns=y", TABLE, typed_label, 0, 0},
    {"weight", "columns=z", TABLE, typed_weight, 0, 0},
    {"feature", "columns=y", TABLE, typed_feature, 0, 0},
    {"rescale", "columns=\"x, z\" scale=2 offset=0.5 dtype=f64", TABLE, typed_rescale, 0, 0},
    {"cast", "columns=\"z, k\" dtype=i32", TABLE, typed_cast, 0, 0},
    {"clip", "columns=z low=-1 high=1", TABLE, typed_clip, 0, 0},
    {"log1p", "columns=x", TABLE, typed_log1p, 0, 0},
    {"fill", "columns=x value=7", TABLE, typed_fill, 0, 0},
    {"fill_mean", "columns=\"x, z\"", TABLE, typed_fill_mean, 0, 0},
    {"standardize", "columns=\"z,k\"", TABLE, typed_standardize, 0, 0},
    {"bucketize", "columns=z boundaries=[-1,0.5,2]", TABLE, typed_bucketize, 0, 0},
    {"hash", "columns=word buckets=5 seed=3", TABLE, typed_hash, 0, 0},
    {"cross", "columns=\"word,k\" buckets=7 seed=2 to=both", TABLE, typed_cross, 0, 0},
    {"lookup", "columns=word top=2 unknown=2", TABLE, typed_lookup, 0, 0},
    {"lookup", "columns=word vocabulary=words.txt", TABLE, typed_lookup_file, 0, 0},
    {"one_hot", "columns=k depth=5 dtype=i32", TABLE, typed_one_hot, 0, 0},
    {"join", "columns=\"x, k\" to=vector dtype=f64", TABLE, typed_join, 0, 0},
    {"slice", "columns=image first=1 n=2", IMAGES, typed_slice, 0, 0},
    {"filter", "column=k in=[0,2]", TABLE, typed_filter, 0, 0},
    {"filter", "column=z min=0.5 invert=true", TABLE, typed_filter_range, 0, 0},
    {"take", "n=5", TABLE, typed_take, 0, 0},
    {"skip", "n=5", TABLE, typed_skip, 0, 0},
    {"shard", "n=3 i=1", TABLE, typed_shard, 0, 0},
    {"sample", "n=4", IMAGES, typed_sample, 0, 0},
    {"sample",
     "n=9 seed=2 replacement=true weights=[1,2,3,4,5,6,7,8,9,10,11,12] same_each_epoch=true",
     IMAGES, typed_sample_weights, 0, 0},
    {"repeat", "times=2", TABLE, typed_repeat, 0, 0},
    {"shuffle", "buffer=4", TABLE, typed_shuffle, 0, 0},
    {"shuffle_all", "seed=9 same_each_epoch=true", IMAGES, typed_shuffle_all, 0, 0},
    {"enumerate", "first=100", TABLE, typed_enumerate, 0, 0},
    {"window", "size=3 shift=2", TABLE, typed_window, "select", "columns=\"x,k\""},
    {"batch", "size=5 drop_remainder=true", IMAGES, typed_batch, 0, 0},
    {"padded_batch", "size=5 columns=image value=9 length=[8,6,3]", IMAGES, typed_padded_batch,
     "select", "columns=image"},
    {"bucket_by_length", "column=k bounds=[1,3] sizes=[2,3,4]", TABLE, typed_bucket_by_length, 0,
     0},
    {"unbatch", "", IMAGES, typed_unbatch, "batch", "size=5"},
    {"cache", "", TABLE, typed_cache, 0, 0},
    {"cache", "in=file path=cache.bin", TABLE, typed_cache_file, 0, 0},
    {"snapshot", "path=snapshot.bin key=v1", TABLE, typed_snapshot, 0, 0},
    {"prefetch", "n=3", TABLE, typed_prefetch, 0, 0},
    {"decode_image",
     "height=4 width=5 channels=3 crop=center crop_share=0.5 filter=nearest dtype=f32",
     "images.tfrecord", typed_decode_image, 0, 0},
    {"resize", "height=4 width=5 antialias=true dtype=f32", IMAGES, typed_resize, 0, 0},
    {"crop", "y=1 x=2 height=3 width=4", IMAGES, typed_crop, 0, 0},
    {"center_crop", "height=3 width=4", IMAGES, typed_center_crop, 0, 0},
    {"pad", "y=1 height=8 width=9 value=3", IMAGES, typed_pad, 0, 0},
    {"flip", "up_down=true", IMAGES, typed_flip, 0, 0},
    {"rotate", "degrees=30 fill=7", IMAGES, typed_rotate, 0, 0},
    {"rotate_quarters", "quarters=-1", IMAGES, typed_rotate_quarters, 0, 0},
    {"brightness", "delta=0.25", IMAGES, typed_brightness, 0, 0},
    {"contrast", "factor=1.5", IMAGES, typed_contrast, 0, 0},
    {"saturation", "factor=0.5", IMAGES, typed_saturation, 0, 0},
    {"hue", "delta=0.1", IMAGES, typed_hue, 0, 0},
    {"grayscale", "channels=3", IMAGES, typed_grayscale, 0, 0},
    {"normalize", "scale=0.0078125 mean=[0.5,0.25,0.125] std=0.5", IMAGES, typed_normalize, 0, 0},
    {"random_crop", "height=4 width=3", IMAGES, typed_random_crop, 0, 0},
    {"random_resized_crop", "height=4 width=3 min_area=0.5 seed=8", IMAGES,
     typed_random_resized_crop, 0, 0},
    {"random_flip", "", IMAGES, typed_random_flip, 0, 0},
    {"random_flip", "left_right=1 up_down=0.25", IMAGES, typed_random_flip_old, 0, 0},
    {"random_rotate", "degrees=20 fill=1 seed=4", IMAGES, typed_random_rotate, 0, 0},
    {"random_color", "brightness=0.1 contrast=0.2 saturation=0.3 hue=0.05", IMAGES,
     typed_random_color, 0, 0},
    {"random_cutout", "height=2 width=3 value=4", IMAGES, typed_random_cutout, 0, 0},
};

static weft_ds open_table(weft_data *d, const char *path)
{
    static char list[400];
    char *comma;

    snprintf(list, sizeof list, "%s", in_dir(path));
    comma = strchr(list, ',');
    if (comma)
        snprintf(comma, sizeof list - (size_t)(comma - list), ",%s", in_dir(strchr(path, ',') + 1));
    return weft_ds_open(d, list, NULL);
}

/* "columns=\"a, b\" n=3" as "{columns: \"a, b\", n: 3}". */
static void to_yaml(const char *args, char *out)
{
    bool quoted = false;

    *out++ = '{';
    for (; *args; args++) {
        quoted ^= *args == '"';
        if (!quoted && (*args == '=' || *args == ' ')) {
            *out++ = *args == '=' ? ':' : ',';
            *out++ = ' ';
        } else {
            *out++ = *args;
        }
    }
    strcpy(out, "}");
}

/* A job with the stage, its data alone. */
static void open_job(const struct example *e, const char *extra, weft_job **job, weft_job_run *run)
{
    static char text[4096], args[2][1024], before[1100];

    to_yaml(e->args, args[0]);
    before[0] = 0;
    if (e->before) {
        to_yaml(e->before_args, args[1]);
        snprintf(before, sizeof before, "    - %s: %s\n", e->before, args[1]);
    }
    snprintf(text, sizeof text,
             "seed: %d\ndata:\n  train: \"%s\"\n  shuffle: false\n%s  pipeline:\n%s    - %s: "
             "%s\nmodel: [{Dense: 1}]\n",
             SEED, e->path, extra, before, e->stage, args[0]);
    ok(weft_job_parse(ctx, in_dir("job.yaml"), text, (int64_t)strlen(text), 0, NULL, job));
    *run = (weft_job_run){.job = *job, .ctx = ctx};
    ok(wf_job_open_data(run));
}

static void same(weft_data *a, weft_ds s, weft_data *b, weft_ds t, const char *stage)
{
    static struct drained x, y;
    char *p = NULL, *q = NULL;

    ok(weft_data_status(a));
    ok(weft_data_status(b));
    ok(weft_ds_text(a, s, &p));
    ok(weft_ds_text(b, t, &q));
    if (strcmp(p, q) != 0)
        fail_msg("%s:\n%s\nis not\n%s", stage, p, q);
    weft_text_free(ctx, p);
    weft_text_free(ctx, q);
    drain_all(a, s, 1, &x);
    drain_all(b, t, 1, &y);
    assert_true(x.n > 0);
    assert_int_equal(x.n, y.n);
    assert_int_equal(x.n_bytes, y.n_bytes);
    assert_memory_equal(x.bytes, y.bytes, x.n_bytes);
    free(x.bytes);
    free(y.bytes);
}

static void each_stage_gives_what_its_function_gives(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        weft_data *d = NULL, *t = NULL;
        weft_learned *l = NULL;
        weft_ds s, typed;

        ok(weft_data_new(ctx, &d));
        ok(weft_data_new(ctx, &t));
        ok(weft_learned_new(ctx, &l));
        s = open_table(d, e->path);
        if (e->before)
            s = weft_ds_stage(d, s, e->before, e->before_args, NULL);
        s = weft_ds_stage(d, s, e->stage, e->args,
                          WEFT_OPTS(weft_stage_opts, .learned = l, .seed = SEED, .dir = dir));
        typed = e->typed(t, open_table(t, e->path));
        same(d, s, t, typed, e->stage);
        weft_data_free(d);
        weft_data_free(t);
        weft_learned_free(l);
    }
    weft_learned_free(learned);
    learned = NULL;
}

static void each_stage_works_in_a_job(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const struct example *e = &examples[i];
        weft_data *t = NULL;
        weft_job *job = NULL;
        weft_job_run run;

        ok(weft_data_new(ctx, &t));
        open_job(e, "", &job, &run);
        same(run.data, run.train, t, e->typed(t, open_table(t, e->path)), e->stage);
        weft_data_free(run.data);
        weft_data_free(t);
        weft_learned_free(run.learned);
        weft_job_free(job);
    }
    weft_learned_free(learned);
    learned = NULL;
}

static void each_row_has_an_example_a_doc_and_attributes_that_parse(void **state)
{
    const char *name, *attrs, *call, *doc;
    int n = 0;

    (void)state;
    for (; weft_ds_stage_at(n, &name, &attrs, &call, &doc); n++) {
        struct wf_attr_spec spec[WF_MAX_ATTRS] = {{0}};
        struct wf_arena arena;
        bool found = false;
        int n_specs;

        for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
            found |= strcmp(examples[i].stage, name) == 0;
        if (!found)
            fail_msg("stage '%s' has no example", name);
        wf_arena_init(&arena, ctx);
        ok(wf_attr_specs(&arena, name, attrs, spec, &n_specs));
        wf_arena_free(&arena);
        assert_true(strlen(doc) >= 10);
        for (int i = 0; i < n; i++)
            assert_string_not_equal(wf_stage_row_at(i)->name, name);
    }
    assert_true(n > 50);
}

/* ---- the headers ----------------------------------------------------------------------------- */

static char *read_headers(void)
{
    static char text[1 << 18];
    size_t n = 0;
    glob_t g;

    assert_int_equal(glob(WF_TEST_DIR "/../include/weft/data*.h", 0, NULL, &g), 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        FILE *f = fopen(g.gl_pathv[i], "r");

        assert_non_null(f);
        n += fread(text + n, 1, sizeof text - 1 - n, f);
        fclose(f);
    }
    globfree(&g);
    text[n] = 0;
    for (char *p = text; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
    return text;
}

static bool has_row(const char *call)
{
    const char *code, *reason;

    for (int i = 0; wf_stage_row_at(i); i++)
        if (strcmp(wf_stage_row_at(i)->call, call) == 0)
            return true;
    for (int i = 0; (code = wf_stage_code_at(i, &reason)); i++)
        if (strcmp(code, call) == 0)
            return *reason != 0;
    return false;
}

static void each_function_is_a_row_or_has_a_reason(void **state)
{
    static const char start[] = "WEFT_API weft_ds weft_ds_";
    const char *text = read_headers(), *code, *reason;
    int n = 0;

    (void)state;
    for (const char *p = text; (p = strstr(p, start)); p++) {
        const char *name = p + strlen("WEFT_API weft_ds "), *end = strchr(name, ';'), *open;
        char call[64], params[600];

        assert_non_null(end);
        open = strchr(name, '(');
        snprintf(call, sizeof call, "%.*s", (int)(open - name), name);
        snprintf(params, sizeof params, "%.*s", (int)(end - open), open);
        if (!strstr(params, "weft_ds s") && !strstr(params, "weft_ds *s"))
            continue; /* a source */
        n++;
        if (!has_row(call))
            fail_msg("%s has neither a row nor a reason in stages.def", call);
    }
    assert_true(n > 60);
    for (int i = 0; wf_stage_row_at(i); i++)
        assert_non_null(strstr(text, wf_stage_row_at(i)->call));
    for (int i = 0; (code = wf_stage_code_at(i, &reason)); i++)
        assert_non_null(strstr(text, code));
}

/* ---- parts of a job -------------------------------------------------------------------------- */

static weft_tensor first_image(weft_data *d, weft_ds s, int64_t epoch, weft_iter **it,
                               weft_batch **b)
{
    ok(weft_iter_new(d, s, WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO, .epoch = epoch), it));
    ok(weft_iter_next(*it, b));
    assert_non_null(*b);
    return *weft_batch_find(*b, "image");
}

/* Is the first image of s that of sample `row` as it was stored? */
static bool is_plain(weft_data *d, weft_ds s, int row)
{
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_tensor t = first_image(d, s, 0, &it, &b);
    const uint8_t *p = t.data;
    bool plain = true;

    for (int i = 0; i < SIDE * SIDE * 3; i++)
        plain = plain && p[i] == (uint8_t)((row * SIDE * SIDE * 3 + i) * 37 % 251);
    weft_batch_free(b);
    weft_iter_free(it);
    return plain;
}

static void random_stages_are_for_the_training_part_alone(void **state)
{
    static const char *const stages[] = {"random_flip", "random_cutout", "random_flip"};
    static const char *const args[] = {"left_right=1", "height=3 width=3 value=1",
                                       "left_right=1 when=all"};

    (void)state;
    for (int k = 0; k < 3; k++) {
        struct example e = {stages[k], args[k], IMAGES, NULL, NULL, NULL};
        weft_job *job = NULL;
        weft_job_run run;
        char *text = NULL;

        open_job(&e, "  validation_split: 0.25\n  test: \"image.npy,label.npy\"\n", &job, &run);
        assert_int_equal(weft_ds_count(run.data, run.train), 9);
        assert_int_equal(weft_ds_count(run.data, run.validation), 3);
        assert_false(is_plain(run.data, run.train, 0));
        assert_int_equal(is_plain(run.data, run.validation, 9), k != 2);
        assert_int_equal(is_plain(run.data, run.test, 0), k != 2);
        /* the share is taken after the stage, as in checkpoints of earlier versions */
        ok(weft_ds_text(run.data, run.train, &text));
        assert_true(strstr(text, ": image ") < strstr(text, ": take "));
        weft_text_free(ctx, text);
        weft_data_free(run.data);
        weft_learned_free(run.learned);
        weft_job_free(job);
    }
}

static void stages_that_change_the_number_of_training_samples_leave_validation_alone(void **state)
{
    struct example e = {"repeat", "times=3", IMAGES, NULL, NULL, NULL};
    weft_job *job = NULL;
    weft_job_run run;

    (void)state;
    open_job(&e, "  validation_split: 0.25\n", &job, &run);
    assert_int_equal(weft_ds_count(run.data, run.train), 27);
    assert_int_equal(weft_ds_count(run.data, run.validation), 3);
    weft_data_free(run.data);
    weft_learned_free(run.learned);
    weft_job_free(job);
    e = (struct example){"take", "n=2 when=eval", IMAGES, NULL, NULL, NULL};
    open_job(&e, "  validation_split: 0.25\n", &job, &run);
    assert_int_equal(weft_ds_count(run.data, run.train), 9);
    assert_int_equal(weft_ds_count(run.data, run.validation), 2);
    weft_data_free(run.data);
    weft_learned_free(run.learned);
    weft_job_free(job);
}

static void parts_write_files_of_their_own(void **state)
{
    struct example e = {"snapshot", "path=parts.bin", IMAGES, NULL, NULL, NULL};
    weft_job *job = NULL;
    weft_job_run run;
    struct drained r;

    (void)state;
    open_job(&e, "  test: \"image.npy,label.npy\"\n", &job, &run);
    drain_all(run.data, run.train, 1, &r);
    free(r.bytes);
    drain_all(run.data, run.test, 1, &r);
    free(r.bytes);
    weft_data_free(run.data);
    assert_int_equal(access(in_dir("parts.bin"), R_OK), 0);
    assert_int_equal(access(in_dir("parts.bin.test"), R_OK), 0);
    weft_learned_free(run.learned);
    weft_job_free(job);
}

/* ---- depths of one_hot ----------------------------------------------------------------------- */

static void depth_is(weft_data *d, weft_ds s, const char *column, int64_t depth)
{
    const weft_column *col;
    int n, c = 0;

    s = weft_ds_one_hot(d, s, column, 0, NULL);
    ok(weft_ds_columns(d, s, &n, &col));
    while (strcmp(col[c].name, column) != 0)
        c++;
    assert_int_equal(col[c].rank, 1);
    assert_int_equal(col[c].dim[0], depth);
}

static void one_hot_knows_how_many_ids_there_are(void **state)
{
    weft_data *d = NULL;
    weft_ds s, t;
    const weft_column *col;
    int n;

    (void)state;
    ok(weft_data_new(ctx, &d));
    s = open_table(d, TABLE);
    t = weft_ds_bucketize(d, weft_ds_hash(d, s, "word", 5, 0), "z", 3, bounds);
    t = weft_ds_rename(d, weft_ds_copy(d, t, "word", "again"), "word", "w");
    t = weft_ds_cross(d, weft_ds_take(d, t, 9), "w,k", 11, 0, "both");
    t = weft_ds_select(d, weft_ds_shuffle(d, t, 3, NULL), "both, again, z, w, k");
    depth_is(d, t, "w", 5);
    depth_is(d, t, "again", 5);
    depth_is(d, t, "z", 4);
    depth_is(d, t, "both", 11);
    /* each column has a depth of its own */
    ok(weft_ds_columns(d, weft_ds_one_hot(d, t, "w, z, both", 0, NULL), &n, &col));
    assert_int_equal(col[0].dim[0], 11);
    assert_int_equal(col[2].dim[0], 4);
    assert_int_equal(col[3].dim[0], 5);
    /* other numbers than ids */
    weft_ds_one_hot(d, weft_ds_rescale(d, t, "w", 2, 0, WEFT_I64), "w", 0, NULL);
    assert_int_equal(weft_data_status(d), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "one_hot: column 'w': how many ids it has is not known"));
    weft_data_free(d);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void refused(const char *stage, const char *args, weft_status st, const char *text)
{
    weft_data *d = NULL;

    ok(weft_data_new(ctx, &d));
    weft_ds_stage(d, open_table(d, TABLE), stage, args, NULL);
    assert_int_equal(weft_data_status(d), st);
    if (!strstr(weft_error(), text))
        fail_msg("'%s' lacks '%s'", weft_error(), text);
    weft_data_free(d);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    refused("bacth", "size=3", WEFT_ENOENT, "did you mean 'batch'?");
    refused("batch", "sizes=3", WEFT_ENOENT, "did you mean 'size'?");
    refused("batch", NULL, WEFT_EINVAL, "'size' must be given");
    refused("batch", "size=x", WEFT_EPARSE, "an integer");
    refused("standardize", "columns=x", WEFT_EINVAL, "weft_stage_opts.learned");
    refused("cache", "in=attic", WEFT_EINVAL, "in is one of: auto memory file; not 'attic'");
    refused("one_hot", "columns=k", WEFT_EINVAL, "how many ids it has is not known");
    refused("normalize", "column=x mean=[1,2] std=[1,2,3]", WEFT_EINVAL,
            "2 means and 3 deviations");
    refused("bucket_by_length", "column=k bounds=[1] sizes=[1]", WEFT_EINVAL,
            "1 bounds need 2 sizes, not 1");
    refused("sample", "n=1 replacement=true weights=[1,2]", WEFT_EINVAL, "2 weights for");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_stage_gives_what_its_function_gives),
        cmocka_unit_test(each_stage_works_in_a_job),
        cmocka_unit_test(each_row_has_an_example_a_doc_and_attributes_that_parse),
        cmocka_unit_test(each_function_is_a_row_or_has_a_reason),
        cmocka_unit_test(random_stages_are_for_the_training_part_alone),
        cmocka_unit_test(stages_that_change_the_number_of_training_samples_leave_validation_alone),
        cmocka_unit_test(parts_write_files_of_their_own),
        cmocka_unit_test(one_hot_knows_how_many_ids_there_are),
        cmocka_unit_test(mistakes_are_told),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
