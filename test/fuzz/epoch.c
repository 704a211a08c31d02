/* epoch.c - the record of an epoch from a stranger who knows how to make a checksum: it is refused,
 * or written again with the same bytes, and everybody it names belongs to it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cluster/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_be(const struct wf_epoch *e, int node, enum wf_role role, bool or_nobody)
{
    const struct wf_member *m = wf_epoch_member(e, node);

    if (or_nobody && node == WF_NOBODY)
        return;
    if (!m || m->role != role)
        abort();
}

static void check(const struct wf_epoch *e)
{
    for (int i = 0; i < e->n_pieces; i++) {
        must_be(e, e->holders[i].primary, WF_ROLE_SERVER, false);
        must_be(e, e->holders[i].backup, WF_ROLE_SERVER, true);
        must_be(e, e->holders[i].target, WF_ROLE_SERVER, true);
    }
    for (int i = 0; i < e->n_shards; i++)
        must_be(e, e->worker[i], WF_ROLE_WORKER, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    struct wf_epoch *e;
    struct wf_buf again;
    weft_ctx *ctx;

    memcpy(bytes, data, size);
    if (size >= 12)
        wf_put_le32(bytes + 8, wf_crc32c(0, bytes + 12, (int64_t)size - 12));
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    if (wf_epoch_read(ctx, bytes, (int64_t)size, &e) == WEFT_OK) {
        check(e);
        wf_buf_init(&again, ctx, (int64_t)size);
        if (wf_epoch_write(e, &again) || again.len != (int64_t)size ||
            memcmp(again.data, bytes, size) != 0)
            abort();
        wf_buf_free(&again);
        wf_epoch_free(ctx, e);
    }
    weft_ctx_free(ctx);
    free(bytes);
    return 0;
}
