/* stripe.c - the stripes of a payload, and the frames about connections that carry them. */
#include "net/stripe.h"

/* ---- which have come ------------------------------------------------------------------------- */

void wf_gather_init(struct wf_gather *g, weft_ctx *ctx, int64_t stripe)
{
    *g = (struct wf_gather){.ctx = ctx, .stripe = stripe};
}

void wf_gather_free(struct wf_gather *g)
{
    if (g->begun)
        wf_free(g->ctx, g->begun);
    g->begun = NULL;
    g->open = false;
}

weft_status wf_gather_open(struct wf_gather *g, const struct wf_part *part, int n_parts,
                           int64_t n_payload)
{
    int64_t n = n_payload / g->stripe + (n_payload % g->stripe != 0);
    uint8_t *begun;

    if (g->open || n_payload < 1)
        return wf_err(WEFT_EBUG, "stripes of %lld bytes, while others arrive",
                      (long long)n_payload);
    begun = wf_alloc(g->ctx, (size_t)(n / 8 + 1));
    if (!begun)
        return wf_err_nomem(g->ctx, (size_t)(n / 8 + 1), "the stripes of a message");
    g->begun = begun;
    g->number++;
    g->open = true;
    g->part = part;
    g->n_parts = n_parts;
    g->n_payload = n_payload;
    g->n_left = n;
    return WEFT_OK;
}

weft_status wf_gather_begin(struct wf_gather *g, const struct wf_frame *f, bool *later)
{
    int64_t k = f->wait / g->stripe;

    *later = f->id > g->number;
    if (*later)
        return WEFT_OK;
    if (!g->open || f->id != g->number)
        return wf_err(WEFT_EPEER, "a stripe of message %llu, after message %llu",
                      (unsigned long long)f->id, (unsigned long long)g->number);
    if (f->wait % g->stripe || f->wait >= g->n_payload ||
        f->n_payload != wf_min_i64(g->stripe, g->n_payload - f->wait))
        return wf_err(WEFT_EPEER, "a stripe of %lld bytes at %lld, of a payload of %lld",
                      (long long)f->n_payload, (long long)f->wait, (long long)g->n_payload);
    if (g->begun[k / 8] >> k % 8 & 1)
        return wf_err(WEFT_EPEER, "the stripe at %lld has come twice", (long long)f->wait);
    g->begun[k / 8] |= (uint8_t)(1 << k % 8);
    return WEFT_OK;
}

bool wf_gather_end(struct wf_gather *g)
{
    if (--g->n_left > 0)
        return false;
    wf_gather_free(g);
    return true;
}

int wf_part_range(const struct wf_part *part, int n_parts, int64_t at, int64_t n,
                  struct wf_part *out, int max)
{
    int found = 0;

    for (int i = 0; i < n_parts && n > 0; i++) {
        int64_t k = wf_min_i64(n, part[i].n - at);

        if (k > 0) {
            if (found < max)
                out[found] = (struct wf_part){(char *)part[i].p + at, k};
            found++;
            n -= k;
        }
        at = wf_max_i64(at - part[i].n, 0);
    }
    return found;
}

/* ---- about connections ----------------------------------------------------------------------- */

void wf_sides_encode(const struct wf_sides_head *h, uint8_t out[WF_SIDES_HEAD])
{
    memcpy(out, h->token, WF_TOKEN);
    out[WF_TOKEN] = (uint8_t)h->n;
    for (int i = 0; i < 4; i++)
        out[WF_TOKEN + 1 + i] = (uint8_t)(h->stripe >> 8 * i);
}

weft_status wf_sides_decode(const uint8_t *head, int64_t n, struct wf_sides_head *out)
{
    struct wf_sides_head h = {.n = 0};

    if (n != WF_SIDES_HEAD)
        return wf_err(WEFT_EPEER, "further connections that are not described");
    memcpy(h.token, head, WF_TOKEN);
    h.n = head[WF_TOKEN];
    for (int i = 0; i < 4; i++)
        h.stripe |= (int64_t)head[WF_TOKEN + 1 + i] << 8 * i;
    if (h.n < 1 || h.n > WF_MAX_SIDES || h.stripe < WF_STRIPE_MIN || h.stripe > WF_STRIPE_MAX)
        return wf_err(WEFT_EPEER, "%d further connections with stripes of %lld bytes", h.n,
                      (long long)h.stripe);
    *out = h;
    return WEFT_OK;
}

void wf_attach_encode(const struct wf_attach_head *h, uint8_t out[WF_ATTACH_HEAD])
{
    memcpy(out, h->token, WF_TOKEN);
    out[WF_TOKEN] = (uint8_t)h->index;
    for (int i = 0; i < 8; i++)
        out[WF_TOKEN + 1 + i] = (uint8_t)(h->incarnation >> 8 * i);
}

weft_status wf_attach_decode(const uint8_t *head, int64_t n, struct wf_attach_head *out)
{
    struct wf_attach_head h = {.index = 0};

    if (n != WF_ATTACH_HEAD)
        return wf_err(WEFT_EPEER, "a further connection that is not described");
    memcpy(h.token, head, WF_TOKEN);
    h.index = head[WF_TOKEN];
    for (int i = 0; i < 8; i++)
        h.incarnation |= (uint64_t)head[WF_TOKEN + 1 + i] << 8 * i;
    *out = h;
    return WEFT_OK;
}

bool wf_token_equal(const uint8_t a[WF_TOKEN], const uint8_t b[WF_TOKEN])
{
    uint8_t differs = 0;

    for (int i = 0; i < WF_TOKEN; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}
