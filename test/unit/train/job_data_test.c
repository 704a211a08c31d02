/* The data of a job: the share for validation is taken first, the training part alone is learned
 * from, in one pass, and what was learned is used for all parts. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/job/job.h"
#include "weft/weft.h"

static weft_ctx *ctx;
static char dir[64], log_text[1 << 14];

static void note(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    strncat(log_text, line, sizeof log_text - strlen(log_text) - 2);
    strcat(log_text, "\n");
}

/* A seam that counts what is read. */
static struct wf_fs counting;
static _Atomic int64_t n_read; /* by any thread */

static int64_t count_read(void *arg, int fd, void *buf, int64_t n)
{
    int64_t got = wf_fs_posix.read(arg, fd, buf, n);

    n_read += got > 0 ? got : 0;
    return got;
}

static int64_t count_pread(void *arg, int fd, void *buf, int64_t n, int64_t at)
{
    int64_t got = wf_fs_posix.pread(arg, fd, buf, n, at);

    n_read += got > 0 ? got : 0;
    return got;
}

static void ok(weft_status st)
{
    if (st)
        print_error("%s\n", weft_error());
    assert_int_equal(st, WEFT_OK);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-jobdata-XXXXXX");
    counting = wf_fs_posix;
    counting.read = count_read;
    counting.pread = count_pread;
    if (!mkdtemp(dir) || weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .log = note), &ctx))
        return -1;
    ctx->fs = &counting;
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

static FILE *create(const char *name)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    return f;
}

struct opened {
    weft_job *job;
    weft_job_run *run;
};

/* A job with this data section; the model is a small one. */
static weft_status open_text(const char *data, const char *rest, struct opened *o)
{
    static char name[128], text[1 << 16];
    weft_status st;

    snprintf(name, sizeof name, "%s/job.yaml", dir);
    snprintf(text, sizeof text,
             "data:\n%smodel:\n  - Input: {name: features, shape: [2]}\n  - Dense: {units: "
             "1}\ntrain: {loss: mean_squared_error}\n%s",
             data, rest);
    *o = (struct opened){NULL, NULL};
    st = weft_job_parse(ctx, name, text, (int64_t)strlen(text), 0, NULL, &o->job);
    if (!st)
        st = weft_job_open(o->job, ctx, &o->run);
    return st;
}

static void shut(struct opened *o)
{
    weft_job_close(o->run);
    weft_job_free(o->job);
}

/* Rows 0 to 99: x is the row's number, its word "w<number>"; the last ten rows have a huge x. */
static void put_rows(void)
{
    FILE *f = create("rows.csv");

    fprintf(f, "x,word,y\n");
    for (int i = 0; i < 100; i++)
        fprintf(f, "%g,w%d,%d\n", i < 90 ? i + 0.5 : 1e6, i, i % 2);
    fclose(f);
}

static void held_out_rows_have_no_part_in_what_is_learned(void **state)
{
    static const char *const by[] = {"last", "random"};

    (void)state;
    put_rows();
    for (int k = 0; k < 2; k++) {
        char data[512];
        struct opened o;
        const weft_vocab *v;
        const weft_column_stats *x;
        weft_ds part;
        weft_iter *it;
        weft_batch *b;
        int64_t n = 0;

        snprintf(data, sizeof data,
                 "  train: {path: rows.csv, label: y, index: true}\n"
                 "  validation_split: 0.1\n"
                 "  validation_by: %s\n"
                 "  pipeline:\n"
                 "    - copy: {column: x, to: raw}\n"
                 "    - lookup: {columns: word}\n"
                 "    - standardize: {columns: x}\n"
                 "    - rescale: {columns: word, dtype: f32}\n"
                 "    - join: {columns: \"x, word, raw\"}\n",
                 by[k]);
        ok(open_text(data, "", &o));
        v = weft_learned_vocab(weft_job_learned(o.run), "lookup word");
        x = weft_stats_column(weft_learned_stats(weft_job_learned(o.run), "standardize x"), 0);
        assert_non_null(v);
        assert_int_equal(weft_vocab_size(v), 90);
        assert_int_equal(x->count[0], 90);
        if (k == 0) {
            assert_true(fabs(x->mean[0] - 45) < 1e-12);
            assert_true(x->max[0] < 90);
        }
        ok(weft_job_open_part(o.run, "validation", &part));
        assert_int_equal(weft_ds_count(weft_job_data(o.run), part), 10);
        ok(weft_iter_new(weft_job_data(o.run), part, NULL, &it));
        while (!weft_iter_next(it, &b) && b) {
            const float *row = b->col[0].data;
            char word[16];

            if (b->col[0].dtype != WEFT_F32) /* the label's column */
                row = b->col[1].data;
            assert_true(row[1] == 0); /* the one id of unknown words */
            snprintf(word, sizeof word, "w%d", (int)(row[2] - 0.5f));
            assert_int_equal(weft_vocab_find(v, word, (int64_t)strlen(word)), -1);
            n++;
            weft_batch_free(b);
        }
        assert_int_equal(n, 10);
        weft_iter_free(it);
        ok(weft_job_open_part(o.run, "train", &part));
        assert_int_equal(weft_ds_count(weft_job_data(o.run), part), 90);
        shut(&o);
    }
}

/* What opening a job over big.csv reads with this pipeline. */
static int64_t bytes_of(const char *pipeline)
{
    char data[2048];
    struct opened o;
    int64_t before = n_read;

    snprintf(
        data, sizeof data,
        "  train: {path: big.csv, label: y, on_error: skip}\n  validation: {path: few.csv, label: "
        "y}\n  test: {path: few.csv, label: y}\n  pipeline:\n%s",
        pipeline);
    ok(open_text(data, "", &o));
    shut(&o);
    return n_read - before;
}

static int64_t put_big(void)
{
    FILE *few = create("few.csv"), *f = create("big.csv");
    int64_t size;

    fprintf(few, "a,b,w,v,y\n1,2,u,u,0\n");
    fclose(few);
    fprintf(f, "a,b,w,v,y\n");
    for (int i = 0; i < 20000; i++)
        fprintf(f, "%d.25,%d.5,%c,%c%c,%d\n", i, i % 17, 'a' + i % 20, 'a' + i % 26, 'a' + i % 7,
                i % 2);
    size = ftell(f);
    fclose(f);
    return size;
}

static void a_pass_over_the_training_data_is_made_once(void **state)
{
    int64_t size = put_big(), bare;

    (void)state;
    bare = bytes_of("    - select: {columns: \"a, b, y\"}\n");
    assert_int_equal(bytes_of("    - select: {columns: \"a, b, y\"}\n"
                              "    - standardize: {columns: a}\n") -
                         bare,
                     size);
    /* many learners, three parts: one pass */
    assert_int_equal(bytes_of("    - lookup: {columns: w}\n"
                              "    - one_hot: {columns: w, depth: 21}\n"
                              "    - standardize: {columns: a}\n"
                              "    - lookup: {columns: v, top: 10}\n"
                              "    - rescale: {columns: v, scale: 0.5}\n"
                              "    - fill_mean: {columns: b}\n"
                              "    - select: {columns: \"a, b, w, v, y\"}\n") -
                         bare,
                     size);
    /* the mean of what was filled in needs another; so do fewer samples */
    assert_int_equal(bytes_of("    - select: {columns: \"a, b, y\"}\n"
                              "    - fill_mean: {columns: a}\n"
                              "    - standardize: {columns: \"a, b\"}\n") -
                         bare,
                     2 * size);
    assert_int_equal(bytes_of("    - select: {columns: \"a, b, y\"}\n"
                              "    - fill_mean: {columns: a}\n"
                              "    - filter: {column: y, max: 0}\n"
                              "    - standardize: {columns: b}\n") -
                         bare,
                     2 * size);
}

static void one_pass_gives_the_bits_of_many(void **state)
{
    struct opened o;
    weft_data *d;
    weft_ds s;
    weft_stats *stats;
    weft_vocab *v;
    const weft_vocab *w;
    const weft_column_stats *p, *q;
    char path[128];

    (void)state;
    put_big();
    ok(open_text("  train: {path: big.csv, label: y}\n  pipeline:\n"
                 "    - lookup: {columns: \"w, v\"}\n    - standardize: {columns: \"b, a\"}\n",
                 "", &o));
    snprintf(path, sizeof path, "%s/big.csv", dir);
    ok(weft_data_new(ctx, &d));
    s = weft_ds_open(d, path, NULL);
    ok(weft_ds_stats(d, s, WEFT_OPTS(weft_stats_opts, .columns = "a"), &stats));
    ok(weft_vocab_count(d, s, "v", NULL, &v));
    p = weft_stats_find(weft_learned_stats(weft_job_learned(o.run), "standardize b,a"), "a");
    q = weft_stats_find(stats, "a");
    assert_memory_equal(p->mean, q->mean, sizeof *p->mean);
    assert_memory_equal(p->std, q->std, sizeof *p->std);
    w = weft_learned_vocab(weft_job_learned(o.run), "lookup v");
    assert_int_equal(weft_vocab_size(v), weft_vocab_size(w));
    for (int64_t i = 0; i < weft_vocab_size(v); i++)
        assert_memory_equal(weft_vocab_word(v, i).data, weft_vocab_word(w, i).data, 2);
    weft_vocab_free(v);
    weft_stats_free(stats);
    weft_data_free(d);
    shut(&o);
}

static void any_number_of_vocabularies(void **state)
{
    enum { COLUMNS = 300 };
    static char data[1 << 15];
    FILE *f = create("wide.csv");
    size_t at;
    struct opened o;

    (void)state;
    at =
        (size_t)snprintf(data, sizeof data,
                         "  train: {path: wide.csv, label: y}\n  test: {path: wide.csv, label: y}\n"
                         "  pipeline:\n    - lookup: {columns: \"");
    for (int i = 0; i < COLUMNS; i++) {
        fprintf(f, "c%d,", i);
        at += (size_t)snprintf(data + at, sizeof data - at, "%sc%d", i ? ", " : "", i);
    }
    snprintf(data + at, sizeof data - at, "\"}\n");
    fprintf(f, "y\n");
    for (int r = 0; r < 5; r++) {
        for (int i = 0; i < COLUMNS; i++)
            fprintf(f, "w%d,", (r * i) % 7);
        fprintf(f, "%d\n", r % 2);
    }
    fclose(f);
    ok(open_text(data, "", &o));
    assert_non_null(weft_learned_vocab(weft_job_learned(o.run), "lookup c299"));
    shut(&o);
}

static void one_hot_is_as_deep_as_the_vocabulary(void **state)
{
    struct opened o;
    weft_ds part;
    const weft_column *col;
    int n;

    (void)state;
    put_rows();
    for (int unknown = 0; unknown < 3; unknown++) {
        char data[512];

        snprintf(data, sizeof data,
                 "  train: {path: rows.csv, label: y, index: true}\n"
                 "  %s\n"
                 "  pipeline:\n"
                 "    - lookup: {columns: word, unknown: %d}\n"
                 "    - rename: {column: word, to: w}\n"
                 "    - one_hot: {columns: w}\n"
                 "    - standardize: {columns: x}\n"
                 "    - join: {columns: \"x, w\"}\n",
                 unknown ? "validation_split: 0.1" : "batch: 8", unknown);
        ok(open_text(data, "", &o));
        ok(weft_job_open_part(o.run, "train", &part));
        ok(weft_ds_columns(weft_job_data(o.run), part, &n, &col));
        assert_string_equal(col[0].name, "features");
        assert_int_equal(col[0].dim[0], 1 + unknown + (unknown ? 90 : 100));
        if (unknown) { /* held-out rows have other words */
            ok(weft_job_open_part(o.run, "validation", &part));
            ok(weft_ds_columns(weft_job_data(o.run), part, &n, &col));
            assert_int_equal(col[0].dim[0], 1 + unknown + 90);
        }
        shut(&o);
    }
}

static void mistakes_are_reported_at_their_stage(void **state)
{
    struct opened o;

    (void)state;
    put_rows();
    assert_int_not_equal(open_text("  train: {path: rows.csv, label: y, index: true}\n  pipeline:\n"
                                   "    - lookup: {columns: word}\n"
                                   "    - standardize: {columns: nothing}\n",
                                   "", &o),
                         WEFT_OK);
    assert_non_null(strstr(weft_error(), "job.yaml:5:"));
    assert_non_null(strstr(weft_error(), "nothing"));
    shut(&o);
    /* neighbors out of a random choice */
    assert_int_equal(open_text("  train: {path: rows.csv, label: y, index: true}\n"
                               "  validation_split: 0.2\n  validation_by: random\n  pipeline:\n"
                               "    - standardize: {columns: x}\n    - window: {size: 5}\n",
                               "", &o),
                     WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "job.yaml:7:"));
    assert_non_null(strstr(weft_error(), "neighboring"));
    shut(&o);
}

/* Types that were inferred of the training file hold for the others, where their values can be read
 * so. */
static void other_files_have_the_types_of_the_training_file(void **state)
{
    FILE *f = create("zip.csv");
    struct opened o;
    weft_ds part;
    const weft_column *col;
    int n;

    (void)state;
    fprintf(f, "zip,size,y\n007,1.5,0\nab,2,1\n");
    fclose(f);
    f = create("zip-test.csv");
    fprintf(f, "size,zip,y\n3,007,0\n4,008,1\n");
    fclose(f);
    ok(open_text("  train: {path: zip.csv, label: y}\n  test: {path: zip-test.csv, label: y}\n"
                 "  pipeline:\n    - lookup: {columns: zip}\n",
                 "", &o));
    ok(weft_job_open_part(o.run, "test", &part));
    ok(weft_ds_columns(weft_job_data(o.run), part, &n, &col));
    assert_int_equal(n, 3);
    assert_int_equal(col[0].dtype, WEFT_F32);
    {
        weft_iter *it;
        weft_batch *b;

        ok(weft_iter_new(weft_job_data(o.run), part, NULL, &it));
        ok(weft_iter_next(it, &b));
        assert_int_equal(
            *(int64_t *)b->col[1].data,
            1 + weft_vocab_find(weft_learned_vocab(weft_job_learned(o.run), "lookup zip"), "007",
                                3));
        weft_batch_free(b);
        weft_iter_free(it);
    }
    shut(&o);
}

/* A checkpoint as earlier versions wrote it: said clearly, and learned as they did, from all of
 * data.train. */
static void checkpoints_without_learned_values_are_used_as_before(void **state)
{
    static const char data[] = "  train: {path: rows.csv, label: y, index: true}\n"
                               "  validation_split: 0.1\n"
                               "  pipeline:\n"
                               "    - lookup: {columns: word}\n"
                               "    - standardize: {columns: x}\n"
                               "    - rescale: {columns: word, dtype: f32}\n"
                               "    - join: {columns: \"x, word\"}\n",
                      old[] = "checkpoint: {dir: old}\n", new[] = "checkpoint: {dir: new}\n";
    const weft_stats *stats;
    struct opened o;

    (void)state;
    put_rows();
    for (int k = 0; k < 2; k++) {
        ok(open_text(data, k ? new : old, &o));
        if (!k)
            ok(weft_trainer_set_learned(weft_job_trainer(o.run), NULL));
        ok(weft_job_fit(o.run, NULL, NULL));
        shut(&o);
        log_text[0] = 0;
        ok(open_text(data, k ? new : old, &o));
        weft_job_close(o.run);
        ok(weft_job_open_trained(o.job, ctx, &o.run));
        assert_int_equal(strstr(log_text, "does not contain what its pipeline has learned") != NULL,
                         !k);
        stats = weft_learned_stats(weft_job_learned(o.run), "standardize x");
        assert_int_equal(weft_stats_column(stats, 0)->count[0], k ? 90 : 100);
        ok(weft_job_load_weights(o.run));
        shut(&o);
    }
}

/* Weights are not taken with values that they were not trained with. */
static void weights_with_other_learned_values_are_refused(void **state)
{
    static const char data[] = "  train: {path: rows.csv, label: y, index: true}\n"
                               "  pipeline:\n"
                               "    - standardize: {columns: x}\n"
                               "    - select: {columns: \"x, y\"}\n"
                               "    - copy: {column: x, to: z}\n"
                               "    - join: {columns: \"x, z\"}\n",
                      save[] = "save: other.safetensors\n";
    struct opened o;
    weft_learned *l;

    (void)state;
    put_rows();
    ok(open_text(data, save, &o));
    ok(weft_learned_new(ctx, &l));
    ok(weft_learned_add_text(l, "another", "value"));
    ok(weft_trainer_set_learned(weft_job_trainer(o.run), l));
    weft_learned_free(l);
    ok(weft_job_fit(o.run, NULL, NULL));
    shut(&o);
    ok(open_text(data, save, &o));
    assert_int_equal(weft_job_load_weights(o.run), WEFT_ESTATE);
    assert_non_null(strstr(weft_error(), "other vocabularies or statistics"));
    shut(&o);
}

/* Sample i of the images: row i of 8 different pixels, as it was or from right to left. */
static bool is_flipped(const unsigned char *row, int i)
{
    bool same = true, flipped = true;

    for (int k = 0; k < 8; k++) {
        same &= row[k] == i * 4 + k;
        flipped &= row[k] == i * 4 + 7 - k;
    }
    assert_true(same || flipped);
    return flipped;
}

/* Samples from `first` on, in order; how many are flipped. */
static int count_flipped(const struct opened *o, const char *part, int first, int n)
{
    weft_data *d = weft_job_data(o->run);
    weft_batch *b = NULL;
    weft_iter *it = NULL;
    weft_ds s;
    int n_flipped = 0, at = 0;

    ok(weft_job_open_part(o->run, part, &s));
    ok(weft_iter_new(d, weft_ds_batch(d, s, 4, NULL), NULL, &it));
    for (;;) {
        ok(weft_iter_next(it, &b));
        if (!b)
            break;
        for (int64_t i = 0; i < b->n; i++)
            n_flipped += is_flipped((const unsigned char *)b->col[0].data + 8 * i, first + at++);
        weft_batch_free(b);
    }
    assert_int_equal(at, n);
    weft_iter_free(it);
    return n_flipped;
}

/* Wherever the share for validation is taken: at the end, or before a stage that learns. */
static void random_stages_are_for_training_alone(void **state)
{
    static const char *const stages[] = {"{random_flip: {column: image}}",
                                         "{random_flip: {column: image}}, {cache: {}}",
                                         "{copy: {column: image, to: more}}, {random_flip: "
                                         "{column: image}}, {standardize: {columns: more}}"};
    static unsigned char pixels[40][8];
    weft_tensor t = weft_view(WEFT_U8, pixels, 4, (int64_t[]){40, 1, 8, 1});
    char path[128], data[1024];

    (void)state;
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < 8; k++)
            pixels[i][k] = (unsigned char)(i * 4 + k);
    snprintf(path, sizeof path, "%s/image.npy", dir);
    ok(weft_npy_write(ctx, path, &t));
    for (int i = 0; i < 3; i++) {
        struct opened o;

        snprintf(
            data, sizeof data,
            "  train: {path: %s}\n  test: {path: %s}\n  validation_split: 0.25\n  pipeline: [%s]\n",
            path, path, stages[i]);
        ok(open_text(data, "", &o));
        assert_in_range(count_flipped(&o, "train", 0, 30), 5, 25);
        assert_int_equal(count_flipped(&o, "validation", 30, 10), 0);
        assert_int_equal(count_flipped(&o, "test", 0, 40), 0);
        shut(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_out_rows_have_no_part_in_what_is_learned),
        cmocka_unit_test(a_pass_over_the_training_data_is_made_once),
        cmocka_unit_test(one_pass_gives_the_bits_of_many),
        cmocka_unit_test(any_number_of_vocabularies),
        cmocka_unit_test(one_hot_is_as_deep_as_the_vocabulary),
        cmocka_unit_test(mistakes_are_reported_at_their_stage),
        cmocka_unit_test(other_files_have_the_types_of_the_training_file),
        cmocka_unit_test(checkpoints_without_learned_values_are_used_as_before),
        cmocka_unit_test(weights_with_other_learned_values_are_refused),
        cmocka_unit_test(random_stages_are_for_training_alone),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
