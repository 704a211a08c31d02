/* stripe.c - stripes from a stranger, in any order: each one that is taken lies within the payload,
 * and in no other one that was taken; a message is complete when all its bytes have come. The input
 * is a series of steps: one makes room for a message, one begins a stripe, one completes one; and
 * heads that may be anything. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/stripe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STRIPE = WF_STRIPE_MIN, MOST = 16 };

/* What should be true. */
struct model {
    int64_t n_payload, come;
    uint64_t number;
    bool open, begun[MOST];
    int n_begun, n_ended;
};

static void open_message(struct wf_gather *g, struct model *m, const uint8_t *s)
{
    int64_t n = 1 + (s[1] | s[2] << 8) % (MOST * STRIPE);
    weft_status st = wf_gather_open(g, NULL, 0, n);

    if ((st == WEFT_OK) == m->open)
        abort();
    if (st)
        return;
    *m = (struct model){.n_payload = n, .number = m->number + 1, .open = true};
}

static void begin(struct wf_gather *g, struct model *m, const uint8_t *s)
{
    struct wf_frame f = {.type = WF_FRAME_STRIPE, .id = m->number + s[1] % 4 - 1};
    int64_t k = s[2] % MOST;
    bool later;

    f.wait = k * STRIPE + s[3] % 2;
    f.n_payload = s[3] & 2 ? 1 + s[4] * 20 : m->n_payload - f.wait;
    f.n_payload = f.n_payload > STRIPE && !(s[3] & 4) ? STRIPE : f.n_payload;
    if (wf_gather_begin(g, &f, &later) || later) {
        if (later && f.id <= m->number)
            abort();
        return;
    }
    if (!m->open || f.id != m->number || f.wait % STRIPE || m->begun[k] || f.n_payload < 1 ||
        f.wait + f.n_payload > m->n_payload ||
        (f.n_payload != STRIPE && f.wait + f.n_payload != m->n_payload))
        abort();
    m->begun[k] = true;
    m->n_begun++;
    m->come += f.n_payload;
}

static void end(struct wf_gather *g, struct model *m)
{
    bool complete;

    if (!m->open || m->n_ended == m->n_begun) /* nobody completes what has not begun */
        return;
    m->n_ended++;
    complete = m->come == m->n_payload && m->n_ended == m->n_begun;
    if (wf_gather_end(g) != complete || g->open == complete)
        abort();
    m->open = !complete;
}

static void decode_heads(const uint8_t *data, size_t size)
{
    struct wf_attach_head a;
    struct wf_sides_head s;
    uint8_t again[64];

    if (!wf_sides_decode(data, (int64_t)size, &s)) {
        wf_sides_encode(&s, again);
        if (memcmp(again, data, size) != 0 || s.n < 1 || s.n > WF_MAX_SIDES)
            abort();
    }
    if (!wf_attach_decode(data, (int64_t)size, &a)) {
        wf_attach_encode(&a, again);
        if (memcmp(again, data, size) != 0 || !wf_token_equal(a.token, data))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wf_gather g;
    struct model m = {.open = false};
    weft_ctx *ctx;

    decode_heads(data, size);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return 0;
    wf_gather_init(&g, ctx, STRIPE);
    for (size_t i = 0; i + 5 <= size; i += 5)
        switch (data[i] % 4) {
        case 0: open_message(&g, &m, data + i); break;
        case 1: end(&g, &m); break;
        default: begin(&g, &m, data + i); break;
        }
    wf_gather_free(&g);
    weft_ctx_free(ctx);
    return 0;
}
