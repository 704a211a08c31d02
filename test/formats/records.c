/* records.c - TFRecord files of Examples for comparison with TensorFlow; see tools/check-formats.
 *
 *   records write FILE      records 0..N-1 of the formula below, as Examples, plain or packed by
 *                           the name
 *   records sequence FILE   the same as SequenceExamples
 *   records dump FILE       what weft reads in such a file: a line of JSON a record
 *   records dump-sequence FILE
 *
 * Record i: f = i/2 + k for k < 5; v = (i + 1) (-100)^k for k < i mod 4; s = "s<i>-<k>" for k < i
 * mod 3; g = i, absent when i mod 5 = 4 (read as -1). Sequence: id = i; step t = (i + t/4, i - t)
 * for t < i mod 5; word t = "w<t>" for t < i mod 3. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#define N 200

static weft_ctx *ctx;

static void check(weft_status st)
{
    if (st) {
        fprintf(stderr, "records: %s\n", weft_error());
        exit(1);
    }
}

static weft_tensor vector(weft_dtype dtype, void *data, int64_t n)
{
    return (weft_tensor){dtype, 1, {n}, data};
}

static int write_examples(const char *path)
{
    weft_record_writer *w;

    check(weft_record_writer_new(ctx, path, NULL, &w));
    for (int64_t i = 0; i < N; i++) {
        float f[5];
        int64_t v[3], g = i, x = i + 1;
        char text[3][32];
        weft_str s[3];

        for (int k = 0; k < 5; k++)
            f[k] = (float)i / 2 + (float)k;
        for (int k = 0; k < 3; k++, x *= -100) {
            v[k] = x;
            s[k] = (weft_str){text[k], snprintf(text[k], sizeof text[k], "s%" PRId64 "-%d", i, k)};
        }
        check(weft_record_writer_example(
            w, i % 5 == 4 ? 3 : 4,
            (weft_example_value[]){{"f", vector(WEFT_F32, f, 5), false},
                                   {"v", vector(WEFT_I64, v, i % 4), false},
                                   {"s", vector(WEFT_STR, s, i % 3), false},
                                   {"g", {WEFT_I64, 0, {0}, &g}, false}}));
    }
    check(weft_record_writer_close(w));
    return 0;
}

static int write_sequences(const char *path)
{
    weft_record_writer *w;

    check(weft_record_writer_new(ctx, path, NULL, &w));
    for (int64_t i = 0; i < N; i++) {
        float step[5][2];
        static const weft_str word[3] = {{"w0", 2}, {"w1", 2}, {"w2", 2}};
        weft_tensor steps = {WEFT_F32, 2, {i % 5, 2}, step};

        for (int t = 0; t < 5; t++) {
            step[t][0] = (float)i + (float)t / 4;
            step[t][1] = (float)(i - t);
        }
        check(weft_record_writer_example(
            w, 3,
            (weft_example_value[]){{"id", {WEFT_I64, 0, {0}, &i}, false},
                                   {"step", steps, true},
                                   {"word", vector(WEFT_STR, (void *)word, i % 3), true}}));
    }
    check(weft_record_writer_close(w));
    return 0;
}

static void print_column(const char *name, const weft_tensor *t)
{
    int64_t n = weft_tensor_count(t);

    printf("\"%s\": [", name);
    for (int64_t i = 0; i < n; i++) {
        const char *comma = i ? ", " : "";

        if (t->dtype == WEFT_F32)
            printf("%s%.9g", comma, (double)((const float *)t->data)[i]);
        else if (t->dtype == WEFT_I64)
            printf("%s%" PRId64, comma, ((const int64_t *)t->data)[i]);
        else
            printf("%s\"%.*s\"", comma, (int)((const weft_str *)t->data)[i].n,
                   ((const weft_str *)t->data)[i].data);
    }
    printf("]");
}

static int dump(const char *path, int n, const weft_example_feature *features)
{
    weft_data *d;
    weft_iter *it;
    weft_batch *b;

    check(weft_data_new(ctx, &d));
    check(weft_iter_new(d, weft_ds_example(d, weft_ds_tfrecord(d, path, NULL), n, features, NULL),
                        NULL, &it));
    for (;;) {
        check(weft_iter_next(it, &b));
        if (!b)
            break;
        for (int c = 0; c < b->n_cols; c++) {
            printf("%s", c ? ", " : "{");
            print_column(b->column[c].name, &b->col[c]);
        }
        printf("}\n");
        weft_batch_free(b);
    }
    weft_iter_free(it);
    weft_data_free(d);
    return 0;
}

int main(int argc, char **argv)
{
    static const int64_t none = -1;
    static const weft_example_feature example[] = {
        {.name = "f", .dtype = WEFT_F32, .rank = 1, .dim = {5}},
        {.name = "v", .dtype = WEFT_I64, .rank = 1, .dim = {WEFT_ANY}},
        {.name = "s", .dtype = WEFT_STR, .rank = 1, .dim = {WEFT_ANY}},
        {.name = "g", .dtype = WEFT_I64, .missing = &none},
    };
    static const weft_example_feature sequence[] = {
        {.name = "id", .dtype = WEFT_I64},
        {.name = "step", .dtype = WEFT_F32, .rank = 2, .dim = {WEFT_ANY, 2}, .sequence = true},
        {.name = "word", .dtype = WEFT_STR, .rank = 1, .dim = {WEFT_ANY}, .sequence = true},
    };
    int rc = 2;

    if (argc != 3) {
        fprintf(stderr, "usage: records write|sequence|dump|dump-sequence FILE\n");
        return 2;
    }
    check(weft_ctx_new(NULL, &ctx));
    if (!strcmp(argv[1], "write"))
        rc = write_examples(argv[2]);
    else if (!strcmp(argv[1], "sequence"))
        rc = write_sequences(argv[2]);
    else if (!strcmp(argv[1], "dump"))
        rc = dump(argv[2], 4, example);
    else if (!strcmp(argv[1], "dump-sequence"))
        rc = dump(argv[2], 3, sequence);
    weft_ctx_free(ctx);
    return rc;
}
