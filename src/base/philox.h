/* philox.h - Philox4x32-10: four random words as a pure function of a counter and a key.
 * (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.) */
#ifndef WF_BASE_PHILOX_H
#define WF_BASE_PHILOX_H

#include <stdint.h>

#define WF_PHILOX_ROUNDS 10
#define WF_PHILOX_M0 0xd2511f53u /* multipliers of words 0 and 2 */
#define WF_PHILOX_M1 0xcd9e8d57u
#define WF_PHILOX_W0 0x9e3779b9u /* what a round adds to the key */
#define WF_PHILOX_W1 0xbb67ae85u

/* out may be ctr. */
void wf_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

#endif
