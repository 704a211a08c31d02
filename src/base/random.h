/* random.h - random arrays whose element i is a pure function of a key and i.
 *
 * The result does not depend on how an array is divided, in which order it is filled and by how
 * many threads, nor on the SIMD level (kernels/cpu/random.h has the fast version of wf_random_fill)
 * or the machine.
 *
 * The definition. A key selects a stream: w = philox(counter {step, step >> 32, shard, node}, key
 * {seed, seed >> 32}). Elements come in groups of 64; lane l (0..15) of group g owns the four words
 * of philox(counter {b, b >> 32, w[2], w[3] + try}, key {w[0], w[1]}) with b = 16 g + l, and
 * element 64 g + 16 k + l takes word k. A uniform number u is the top 24 bits of its word, over
 * 2^24. A normal takes two words: those of k = 0 and 1 give elements k = 0 (cosine) and 1 (sine) by
 * Box-Muller, those of 2 and 3 likewise. `try` is 0, but counts up for each element of a truncated
 * normal until it falls within two standard deviations. */
#ifndef WF_BASE_RANDOM_H
#define WF_BASE_RANDOM_H

#include <stdint.h>

/* Randomness of a call: element i of node `node` in (seed, step, shard) is a pure function of
 * these. */
struct wf_rng_key {
    uint64_t seed;
    uint64_t step;
    uint32_t shard, node;
};

enum wf_random_kind {
    WF_RANDOM_UNIFORM,          /* params lo, hi: lo + (hi - lo) u, in [lo, hi); lo <= hi */
    WF_RANDOM_NORMAL,           /* params mean, standard deviation */
    WF_RANDOM_TRUNCATED_NORMAL, /* likewise; z is drawn again while |z| > 2 */
    WF_RANDOM_BERNOULLI,        /* param p: 1 where u < p, otherwise 0 */
    WF_RANDOM_N_KINDS
};

/* Elements first .. first + n - 1 of the array that the key defines, into dst[0 .. n - 1]. */
void wf_random_fill(enum wf_random_kind kind, float *dst, int64_t first, int64_t n,
                    const struct wf_rng_key *key, const float *params);

/* For the fast versions: the stream of a key (w above), and the standard normal number of element i
 * within [-2, 2], with tries counted from `from`. */
void wf_random_stream(const struct wf_rng_key *key, uint32_t stream[4]);
float wf_random_truncated(const uint32_t stream[4], int64_t i, uint32_t from);
/* The largest float below hi, or lo if they are equal. */
float wf_random_below(float hi, float lo);

#define WF_RANDOM_LANES 16
#define WF_RANDOM_GROUP (4 * WF_RANDOM_LANES)

#endif
