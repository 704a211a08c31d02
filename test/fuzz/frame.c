/* frame.c - frames from a stranger: whatever arrives, in portions of the size that the first byte
 * says, is a frame that encodes to the same bytes again, or ends the link. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LIMIT = 1 << 16 };

struct reader {
    uint8_t memory[LIMIT];
    struct wf_part part[2];
    int n_asked;
};

static weft_status place(void *arg, const struct wf_frame *f, const void *head,
                         const struct wf_part **parts, int *n_parts)
{
    struct reader *r = arg;

    (void)head;
    if (f->n_payload < 1 || f->n_payload > LIMIT)
        abort();
    r->part[0] = (struct wf_part){r->memory, f->n_payload / 3};
    r->part[1] = (struct wf_part){r->memory + f->n_payload / 3, f->n_payload - f->n_payload / 3};
    *parts = r->part;
    *n_parts = ++r->n_asked % 4 == 0 ? 0 : r->n_asked % 4 == 3 ? WF_PLACE_LATER : 2;
    return WEFT_OK;
}

static weft_status complete(void *arg, const struct wf_frame *f, const void *head)
{
    uint8_t bytes[WF_FRAME_HEADER];
    struct wf_frame back;

    (void)arg;
    wf_frame_encode(f, head, bytes);
    if (wf_frame_decode(bytes, LIMIT, &back) || memcmp(f, &back, sizeof back) != 0)
        abort();
    return WEFT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct reader r;
    struct wf_frame_calls calls = {&r, place, complete};
    int64_t portion = size ? data[0] + 1 : 1, at = 1, n = (int64_t)size, used;
    struct wf_unframe u;
    weft_ctx *ctx;

    r.n_asked = 0;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return 0;
    if (wf_unframe_init(&u, ctx, LIMIT, &calls))
        abort();
    while (at < n) {
        if (wf_unframe_push(&u, data + at, wf_min_i64(portion, n - at), &used))
            break;
        at += used;
        if (wf_unframe_elsewhere(&u) && wf_unframe_arrived(&u))
            abort();
    }
    wf_unframe_free(&u);
    weft_ctx_free(ctx);
    return 0;
}
