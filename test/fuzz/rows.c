/* rows.c - stored rows of caches and snapshots, on anything: taken apart to the declared
 * columns, or refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/stage/cache_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every byte that a block refers to can be read. */
static unsigned touch(const struct wf_block *b)
{
    unsigned sum = 0;

    for (int c = 0; c < b->n_cols; c++)
        for (int64_t i = 0; i < b->n; i++) {
            weft_tensor t = wf_col_element(&b->col[c], i);
            int64_t n = weft_tensor_count(&t);

            for (int64_t k = 0; k < n && t.dtype == WEFT_STR; k++)
                for (int64_t j = 0; j < ((const weft_str *)t.data)[k].n; j++)
                    sum += (unsigned char)((const weft_str *)t.data)[k].data[j];
            for (int64_t k = 0; k < n && t.dtype != WEFT_STR; k++)
                sum += (unsigned)wf_get_int(t.data, t.dtype, k);
        }
    return sum;
}

/* Rows are framed by lengths: mend their sums, so that what is inside gets read. */
static int64_t frame(char *p, int64_t n)
{
    int64_t rows = 0, m;
    uint64_t sum;

    while (n >= WF_ROW_HEAD) {
        memcpy(&m, p + 8, 8);
        if (m < 0 || m > n - WF_ROW_HEAD)
            break;
        sum = wf_row_sum(p + WF_ROW_HEAD, m);
        memcpy(p, &sum, 8);
        p += WF_ROW_HEAD + m;
        n -= WF_ROW_HEAD + m;
        rows++;
    }
    return rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const weft_column columns[4] = {
        {.name = "k", .dtype = WEFT_I64},
        {.name = "v", .dtype = WEFT_I32, .rank = 2, .dim = {-1, 2}},
        {.name = "t", .dtype = WEFT_STR, .rank = 1, .dim = {-1}},
        {.name = "x", .dtype = WEFT_U8, .rank = 1, .dim = {3}}};
    weft_ctx *ctx;
    weft_data *d = NULL;
    struct wf_env *env = NULL;
    struct wf_chunk *chunk;
    struct wf_block *b = NULL;
    int64_t rows;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &ctx))
        abort();
    if (weft_data_new(ctx, &d) || wf_env_new(d, 1 << 20, NULL, &env))
        abort();
    chunk = wf_chunk_new(env, (int64_t)size);
    if (!chunk)
        abort();
    if (size)
        memcpy(chunk->data, data, size);
    {
        struct wf_ds ds = {.data = d, .n_cols = 4, .col = (weft_column *)columns, .name = "rows"};

        rows = frame(chunk->data, (int64_t)size);
        if (wf_rows_check(chunk->data, (int64_t)size, &rows) && rows > 0 &&
            !wf_rows_block(env, &ds, chunk, chunk->data, (int64_t)size, rows, &b))
            (void)*(volatile unsigned *)&(unsigned){touch(b)};
    }
    wf_block_free(b);
    wf_chunk_unref(chunk);
    wf_env_close(env);
    weft_data_free(d);
    if (weft_ctx_memory(ctx) < 0)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
