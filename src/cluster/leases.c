/* leases.c - sets of leases. */
#include "cluster/leases.h"

int wf_leases_words(int window)
{
    return (window + 63) / 64 + 1; /* a run begins at a multiple of 64 */
}

weft_status wf_leases_init(struct wf_leases *s, weft_ctx *ctx, int window)
{
    *s = (struct wf_leases){.n_words = wf_leases_words(window)};
    s->bits = wf_alloc_n(ctx, s->n_words, sizeof *s->bits);
    return s->bits ? WEFT_OK
                   : wf_err_nomem(ctx, (size_t)s->n_words * sizeof *s->bits, "a set of leases");
}

void wf_leases_free(struct wf_leases *s, weft_ctx *ctx)
{
    wf_free(ctx, s->bits);
    s->bits = NULL;
}

void wf_leases_clear(struct wf_leases *s, int64_t low)
{
    s->base = low & ~(int64_t)63;
    memset(s->bits, 0, (size_t)s->n_words * sizeof *s->bits);
}

void wf_leases_start(struct wf_leases *s, int64_t low)
{
    wf_leases_clear(s, low);
    s->bits[0] = ((uint64_t)1 << (low & 63)) - 1;
}

bool wf_leases_bit(const struct wf_leases *s, int64_t lease, bool below)
{
    int64_t i = lease - s->base;

    if (i < 0)
        return below;
    return i < (int64_t)s->n_words * 64 && s->bits[i / 64] >> (i % 64) & 1;
}

bool wf_leases_set(struct wf_leases *s, int64_t lease)
{
    int64_t i = lease - s->base;

    if (i < 0 || i >= (int64_t)s->n_words * 64)
        return false;
    s->bits[i / 64] |= (uint64_t)1 << (i % 64);
    return true;
}

bool wf_leases_apply(struct wf_leases *s, int64_t lease)
{
    if (!wf_leases_set(s, lease))
        return false;
    while (s->bits[0] == UINT64_MAX) {
        memmove(s->bits, s->bits + 1, (size_t)(s->n_words - 1) * sizeof *s->bits);
        s->bits[s->n_words - 1] = 0;
        s->base += 64;
    }
    return true;
}

int64_t wf_leases_low(const struct wf_leases *s)
{
    int64_t lease = s->base;

    while (wf_leases_bit(s, lease, true))
        lease++;
    return lease;
}

int64_t wf_leases_count(const struct wf_leases *s)
{
    int64_t n = s->base;

    for (int i = 0; i < s->n_words; i++)
        n += __builtin_popcountll(s->bits[i]);
    return n;
}

bool wf_leases_take(struct wf_leases *s, int64_t base, const uint64_t *bits, int n_words)
{
    if (base < 0 || base & 63 || n_words != s->n_words || !bits)
        return false;
    s->base = base;
    memcpy(s->bits, bits, (size_t)n_words * sizeof *bits);
    return true;
}
