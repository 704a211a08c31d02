/* position.c - saved positions of iterators, on anything: restored they give elements or a clear
 * error, and leak nothing. The first byte chooses a pipeline; the rest stands for what follows
 * the head (magic and pipeline) of a saved position. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N 40

static weft_status fill(int64_t k, weft_sample *s)
{
    int64_t n = k % 4;

    *(int64_t *)s->col[0].data = k;
    return weft_sample_shape(s, 1, 1, &n) || weft_sample_text(s, 2, 0, "some text", k % 9)
               ? WEFT_ENOMEM
               : WEFT_OK;
}

static weft_status get(void *arg, int64_t id, weft_sample *s)
{
    (void)arg;
    return fill(id, s);
}

static weft_status next(void *arg, int64_t id, weft_sample *s, bool *end)
{
    (void)arg;
    *end = id >= N;
    return *end ? WEFT_OK : fill(id, s);
}

static const weft_column columns[3] = {{.name = "k", .dtype = WEFT_I64},
                                       {.name = "v", .dtype = WEFT_F32, .rank = 1, .dim = {-1}},
                                       {.name = "t", .dtype = WEFT_STR}};

static weft_status inner(void *arg, const weft_sample *e, weft_data *d, weft_ds *out)
{
    int64_t k = *(const int64_t *)e->col[0].data;

    (void)arg;
    *out = weft_ds_get(d, 3, columns, (k & 0xff) % 5, get, NULL);
    return WEFT_OK;
}

static weft_ds pipeline(weft_data *d, int which)
{
    weft_ds s = weft_ds_stream(d, 3, columns, next, NULL), two[2];

    switch (which % 7) {
    case 0: return weft_ds_padded_batch(d, weft_ds_shuffle(d, s, 8, NULL), 3, NULL);
    case 1:
        return weft_ds_window(d, weft_ds_select(d, s, "k, t"), 3,
                              WEFT_OPTS(weft_window_opts, .shift = 1));
    case 2: return weft_ds_bucket_by_length(d, s, "v", 1, (int64_t[]){2}, (int64_t[]){3, 4}, NULL);
    case 3: return weft_ds_interleave(d, s, 3, columns, inner, NULL, NULL);
    case 4: return weft_ds_repeat(d, weft_ds_cache(d, s, NULL), 2);
    case 5:
        two[0] = s;
        two[1] = weft_ds_shuffle(d, weft_ds_get(d, 3, columns, N, get, NULL), 5, NULL);
        return weft_ds_sample_from(d, 2, two, NULL, NULL);
    default:
        return weft_ds_batch(
            d,
            weft_ds_take(
                d, weft_ds_unbatch(d, weft_ds_batch(d, weft_ds_select(d, s, "k"), 4, NULL)), 30),
            3, NULL);
    }
}

static void read_on(weft_iter *it)
{
    weft_batch *b;

    for (int i = 0; i < 2 * N && !weft_iter_next(it, &b) && b; i++)
        weft_batch_free(b);
}

/* The head of a position of this pipeline: what comes before its stages. */
static int64_t head_bytes(const char *state)
{
    const char *line = strchr(state, '\n') + 1;
    int64_t n;

    memcpy(&n, line, 8);
    return line - state + 8 + n;
}

static void restore(weft_ctx *ctx, weft_iter *it, const uint8_t *data, size_t size)
{
    char *state = NULL, *other;
    int64_t n = 0, head;

    if (weft_iter_save(it, &state, &n))
        abort();
    head = head_bytes(state);
    other = malloc((size_t)head + size + 1);
    if (!other)
        abort();
    memcpy(other, state, (size_t)head);
    memcpy(other + head, data, size);
    weft_text_free(ctx, state);
    if (!weft_iter_restore(it, other, head + (int64_t)size))
        read_on(it);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    weft_data *d = NULL;
    weft_iter *it = NULL;
    int64_t before;

    if (size < 1)
        return 0;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 256 << 20), &ctx))
        abort();
    before = weft_ctx_memory(ctx);
    if (weft_data_new(ctx, &d) ||
        weft_iter_new(d, pipeline(d, data[0]), WEFT_OPTS(weft_iter_opts, .threads = WEFT_ZERO),
                      &it))
        abort();
    restore(ctx, it, data + 1, size - 1);
    weft_iter_free(it);
    weft_data_free(d);
    if (weft_ctx_memory(ctx) != before)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
