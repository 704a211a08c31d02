/* philox.c - Philox4x32-10, one block. */
#include "base/philox.h"

void wf_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];

    for (int i = 0; i < WF_PHILOX_ROUNDS; i++) {
        uint64_t a = (uint64_t)WF_PHILOX_M0 * c0, b = (uint64_t)WF_PHILOX_M1 * c2;

        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += WF_PHILOX_W0;
        k1 += WF_PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
