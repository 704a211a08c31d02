/* permute.c - orders and choices as pure functions of seeds.
 *
 * The permutation is a Feistel network over the smallest even number of bits that can represent n,
 * applied until the result is below n; this takes fewer than four applications on average. */
#include "base/philox.h"
#include "data/data.h"

#define ROUNDS 8

void wf_permutation_init(struct wf_permutation *p, int64_t n, uint64_t seed, int64_t epoch)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)epoch, (uint32_t)((uint64_t)epoch >> 32), 0x73687566, 0};
    int bits = n > 1 ? 64 - __builtin_clzll((uint64_t)n - 1) : 1;

    p->n = (uint64_t)(n > 0 ? n : 1);
    p->half_bits = (bits + 1) / 2;
    wf_philox(ctr, key, p->key);
    ctr[3] = 1;
    wf_philox(ctr, key, p->key + 4);
}

/* 32 pseudorandom bits from 32 bits and a key. */
static inline uint32_t mix(uint32_t x, uint32_t key)
{
    x ^= key;
    x *= 0x9e3779b1u;
    x ^= x >> 15;
    x *= 0x85ebca77u;
    x ^= x >> 13;
    x *= 0xc2b2ae3du;
    return x ^ (x >> 16);
}

int64_t wf_permutation_at(const struct wf_permutation *p, int64_t i)
{
    uint64_t x = (uint64_t)i;
    uint32_t mask = (uint32_t)(((uint64_t)1 << p->half_bits) - 1);

    do {
        uint32_t l = (uint32_t)(x >> p->half_bits), r = (uint32_t)x & mask;

        for (int k = 0; k < ROUNDS; k++) {
            uint32_t t = r;

            r = (l ^ mix(r, p->key[k])) & mask;
            l = t;
        }
        x = ((uint64_t)l << p->half_bits) | r;
    } while (x >= p->n);
    return (int64_t)x;
}

uint64_t wf_random_word(uint64_t seed, int64_t epoch, int64_t id, uint32_t salt)
{
    uint32_t key[2] = {(uint32_t)seed ^ (salt * 0x9e3779b9u), (uint32_t)(seed >> 32)};
    uint32_t ctr[4] = {(uint32_t)id, (uint32_t)((uint64_t)id >> 32), (uint32_t)epoch,
                       (uint32_t)((uint64_t)epoch >> 32) ^ salt};
    uint32_t out[4];

    wf_philox(ctr, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

int64_t wf_random_index(uint64_t word, int64_t n)
{
    /* The high part of word * n: biased by less than n / 2^64. */
    return (int64_t)(((unsigned __int128)word * (uint64_t)n) >> 64);
}
