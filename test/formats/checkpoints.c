/* checkpoints.c - weft's side of the safetensors checks.
 *   checkpoints write FOLDER   a checkpoint of step 7, in shards, every dtype
 *   checkpoints read FILE      a safetensors file as JSON lines: its tensors, then its metadata
 * Byte k of a tensor is (11 k + its number) mod 256, of a bool (k + its number) mod 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#define N 10

static const struct {
    const char *name;
    weft_dtype dtype;
    int rank;
    int64_t dim[3];
} rows[N] = {
    {"f32/\xc3\xa4 \"quoted\"", WEFT_F32, 2, {3, 4}},
    {"f64", WEFT_F64, 1, {5}},
    {"f16", WEFT_F16, 3, {2, 1, 3}},
    {"bf16", WEFT_BF16, 1, {7}},
    {"i8", WEFT_I8, 1, {9}},
    {"u8", WEFT_U8, 2, {1, 6}},
    {"i32", WEFT_I32, 1, {3}},
    {"i64 scalar", WEFT_I64, 0, {0}},
    {"bool", WEFT_BOOL, 1, {5}},
    {"empty", WEFT_F32, 2, {0, 3}},
};

static int fail(void)
{
    fprintf(stderr, "%s\n", weft_error());
    return 1;
}

static int write_one(weft_ctx *ctx, const char *folder)
{
    static unsigned char data[N][128];
    weft_ckpt_tensor t[N];
    weft_ckpt_metric loss = {"loss", 0.125};
    weft_ckpt_blob blob = {"position.bin", "\x00\x01\x02", 3};
    weft_ckpt_pair meta = {"job", "a\nb"};
    weft_ckpt_writer *w;

    for (int i = 0; i < N; i++) {
        t[i] = (weft_ckpt_tensor){rows[i].name, NULL,
                                  weft_view(rows[i].dtype, data[i], rows[i].rank, rows[i].dim)};
        for (int64_t k = 0; k < weft_tensor_bytes(&t[i].tensor); k++)
            data[i][k] =
                (unsigned char)(rows[i].dtype == WEFT_BOOL ? (k + i) % 2 : (11 * k + i) % 256);
    }
    if (weft_ckpt_writer_new(ctx, folder, WEFT_OPTS(weft_ckpt_writer_opts, .shard_bytes = 80), &w))
        return fail();
    if (weft_ckpt_save(w, WEFT_OPTS(weft_ckpt_data, .step = 7, .n_tensors = N, .tensors = t,
                                    .n_metrics = 1, .metrics = &loss, .n_blobs = 1, .blobs = &blob,
                                    .n_meta = 1, .meta = &meta)))
        return fail();
    return weft_ckpt_writer_close(w) ? fail() : 0;
}

static void print_text(const char *s)
{
    putchar('"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\' || (unsigned char)*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    putchar('"');
}

static int read_one(weft_ctx *ctx, const char *path)
{
    const char *name, *key, *value;
    weft_tensor t;
    weft_st *s;

    if (weft_st_open(ctx, path, &s))
        return fail();
    for (int64_t i = 0; i < weft_st_n(s); i++) {
        if (weft_st_tensor(s, i, &name, &t))
            return fail();
        printf("{\"name\": ");
        print_text(name);
        printf(", \"dtype\": \"%s\", \"shape\": [", weft_dtype_name(t.dtype));
        for (int k = 0; k < t.rank; k++)
            printf("%s%lld", k ? ", " : "", (long long)t.dim[k]);
        printf("], \"data\": \"");
        for (int64_t k = 0; k < weft_tensor_bytes(&t); k++)
            printf("%02x", ((const unsigned char *)t.data)[k]);
        printf("\"}\n");
    }
    printf("{");
    for (int64_t i = 0; i < weft_st_n_metadata(s); i++) {
        if (weft_st_metadata_at(s, i, &key, &value))
            return fail();
        printf("%s", i ? ", " : "");
        print_text(key);
        printf(": ");
        print_text(value);
    }
    printf("}\n");
    weft_st_close(s);
    return 0;
}

int main(int argc, char **argv)
{
    weft_ctx *ctx;
    int rc = 2;

    if (argc != 3) {
        fprintf(stderr, "usage: checkpoints write FOLDER | read FILE\n");
        return 2;
    }
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return fail();
    if (!strcmp(argv[1], "write"))
        rc = write_one(ctx, argv[2]);
    else if (!strcmp(argv[1], "read"))
        rc = read_one(ctx, argv[2]);
    weft_ctx_free(ctx);
    return rc;
}
