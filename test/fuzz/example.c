/* example.c - the parser of Examples and SequenceExamples, on anything. What parses must be written
 * and parsed back as itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N 8

static const weft_example_feature features[N] = {
    {.name = "x", .dtype = WEFT_F32, .rank = 1, .dim = {2}, .missing = &(float){0}},
    {.name = "y", .dtype = WEFT_I64, .missing = &(int64_t){7}},
    {.name = "v", .dtype = WEFT_I64, .rank = 1, .dim = {WEFT_ANY}},
    {.name = "t", .dtype = WEFT_STR, .rank = 1, .dim = {WEFT_ANY}},
    {.name = "b", .dtype = WEFT_U8, .rank = 2, .dim = {WEFT_ANY, 2}},
    {.name = "h", .dtype = WEFT_F64, .rank = 1, .dim = {WEFT_ANY}},
    {.name = "s", .dtype = WEFT_I64, .rank = 2, .dim = {WEFT_ANY, WEFT_ANY}, .sequence = true},
    {.name = "q", .dtype = WEFT_F32, .rank = 1, .dim = {WEFT_ANY}, .sequence = true},
};

/* The element of one record; NULL when it is refused. */
static weft_batch *parse(weft_ctx *ctx, const weft_str *record, weft_data **d, weft_iter **it)
{
    weft_column col = {.name = "bytes", .dtype = WEFT_STR};
    weft_tensor t = {WEFT_STR, 1, {1}, (void *)record};
    weft_batch *b = NULL;

    if (weft_data_new(ctx, d) ||
        weft_iter_new(*d, weft_ds_example(*d, weft_ds_tensors(*d, 1, &col, &t), N, features, NULL),
                      WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO), it))
        abort();
    return weft_iter_next(*it, &b) ? NULL : b;
}

static bool same(const weft_tensor *a, const weft_tensor *b)
{
    int64_t n = weft_tensor_count(a);

    if (a->dtype != b->dtype || a->rank != b->rank ||
        memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) != 0)
        return false;
    if (a->dtype != WEFT_STR)
        return !n || !memcmp(a->data, b->data, (size_t)weft_tensor_bytes(a));
    for (int64_t i = 0; i < n; i++) {
        const weft_str *s = (const weft_str *)a->data + i, *t = (const weft_str *)b->data + i;

        if (s->n != t->n || (s->n && memcmp(s->data, t->data, (size_t)s->n)))
            return false;
    }
    return true;
}

static void check_again(weft_ctx *ctx, const weft_batch *b)
{
    weft_example_value v[N];
    weft_str bytes;
    char *p;
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *again;

    for (int c = 0; c < N; c++)
        v[c] = (weft_example_value){features[c].name, b->col[c], features[c].sequence};
    if (weft_example_encode(ctx, N, v, &p, &bytes.n))
        abort();
    bytes.data = p;
    again = parse(ctx, &bytes, &d, &it);
    if (!again)
        abort();
    for (int c = 0; c < N; c++)
        if (!same(&b->col[c], &again->col[c]))
            abort();
    weft_batch_free(again);
    weft_iter_free(it);
    weft_data_free(d);
    weft_text_free(ctx, p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_data *d;
    weft_iter *it = NULL;
    weft_batch *b;
    weft_str record = {(const char *)data, (int64_t)size};

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 256 << 20), &ctx))
        abort();
    b = parse(ctx, &record, &d, &it);
    if (b)
        check_again(ctx, b);
    weft_batch_free(b);
    weft_iter_free(it);
    weft_data_free(d);
    weft_ctx_free(ctx);
    return 0;
}
