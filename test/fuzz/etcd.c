/* etcd.c - fuzzer: what etcd answers, its errors, base64, and the address of a store. Whatever
 * the bytes, an answer or an error; base64 that was read is written as the same text. */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "cluster/etcd_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_base64(weft_ctx *ctx, const char *text, int64_t n)
{
    struct wf_buf bytes, again;

    wf_buf_init(&bytes, ctx, 1 << 20);
    wf_buf_init(&again, ctx, 1 << 21);
    if (!wf_base64_read(&bytes, text, n)) {
        wf_base64(&again, bytes.data, bytes.len);
        if (again.len != n || (n && memcmp(again.data, text, (size_t)n) != 0))
            abort();
    }
    wf_buf_free(&bytes);
    wf_buf_free(&again);
}

static void try_address(const uint8_t *data, size_t size)
{
    struct wf_etcd_where w, again;
    char *text = malloc(size + 1), same[4096] = "";

    memcpy(text, data, size);
    text[size] = '\0';
    if (!wf_etcd_where_parse(text, &w)) {
        strcat(same, w.tls ? "etcds://" : "etcd://");
        for (int i = 0; i < w.n_endpoints; i++) {
            strcat(same, i ? "," : "");
            strcat(same, w.endpoint[i]);
        }
        strcat(same, "/");
        strcat(same, w.prefix);
        if (wf_etcd_where_parse(same, &again) || again.n_endpoints != w.n_endpoints ||
            again.tls != w.tls || strcmp(again.prefix, w.prefix) != 0 ||
            strcmp(again.endpoint[0], w.endpoint[0]) != 0)
            abort();
    }
    free(text);
}

static void try_answer(weft_ctx *ctx, const char *text, int64_t n)
{
    struct wf_etcd_answer a;
    char why[160];
    int64_t sum = 0;

    if (!wf_etcd_answer_read(ctx, text, n, &a)) {
        for (int i = 0; i < a.n_ranges; i++)
            for (int k = 0; k < a.range[i].n; k++) {
                const struct wf_etcd_pair *p = &a.range[i].pair[k];

                if (p->key[p->n_key] || p->value[p->n_value])
                    abort();
                sum += p->n_key + p->n_value;
            }
        if (sum > n)
            abort();
        wf_etcd_answer_free(&a);
    }
    wf_etcd_error_read(text, n, why);
    if (strlen(why) > 159)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_ctx *ctx;

    if (!ctx && weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    try_answer(ctx, (const char *)data, (int64_t)size);
    try_base64(ctx, (const char *)data, (int64_t)size);
    try_address(data, size);
    return 0;
}
