/* random.c - random arrays, one block at a time: the definition that the vector kernels repeat. */
#include "base/random.h"

#include "base/fmath_scalar.h"
#include "base/philox.h"

FM_INLINE vf vf_sqrt(vf x)
{
    return __builtin_sqrtf(x);
}
#define vi_srl(x, k) ((vi)((uint32_t)(x) >> (k)))

#include "base/random_inl.h"

void wf_random_stream(const struct wf_rng_key *key, uint32_t stream[4])
{
    const uint32_t ctr[4] = {(uint32_t)key->step, (uint32_t)(key->step >> 32), key->shard,
                             key->node};
    const uint32_t seed[2] = {(uint32_t)key->seed, (uint32_t)(key->seed >> 32)};

    wf_philox(ctr, seed, stream);
}

float wf_random_below(float hi, float lo)
{
    int32_t b = vi_bits(hi);

    if (!(lo < hi))
        return lo;
    if (hi == 0.0f)
        return -0x1p-149f;
    return vf_bits(hi > 0.0f ? b - 1 : b + 1);
}

/* The four words of a lane. */
static void words(const uint32_t stream[4], int64_t lane, uint32_t try, uint32_t out[4])
{
    uint64_t b = (uint64_t)lane;
    const uint32_t ctr[4] = {(uint32_t)b, (uint32_t)(b >> 32), stream[2], stream[3] + try};

    wf_philox(ctr, stream, out);
}

float wf_random_truncated(const uint32_t stream[4], int64_t i, uint32_t try)
{
    int64_t lane = i / WF_RANDOM_GROUP * WF_RANDOM_LANES + i % WF_RANDOM_LANES;
    int k = (int)(i / WF_RANDOM_LANES % 4);

    for (;; try++) {
        uint32_t w[4];
        float z[2];

        words(stream, lane, try, w);
        rnd_normal((vi)w[k & 2], (vi)w[(k & 2) + 1], &z[0], &z[1]);
        if (vf_abs(z[k & 1]) <= 2.0f)
            return z[k & 1];
    }
}

/* The four elements of a lane before scale and shift; truncated ones may still be too large. */
static void draw(enum wf_random_kind kind, const uint32_t stream[4], int64_t lane, float z[4])
{
    uint32_t w[4];

    words(stream, lane, 0, w);
    if (kind == WF_RANDOM_NORMAL || kind == WF_RANDOM_TRUNCATED_NORMAL) {
        rnd_normal((vi)w[0], (vi)w[1], &z[0], &z[1]);
        rnd_normal((vi)w[2], (vi)w[3], &z[2], &z[3]);
        return;
    }
    for (int k = 0; k < 4; k++)
        z[k] = rnd_uniform((vi)w[k]);
}

static float finish(enum wf_random_kind kind, float x, const float *params, float below)
{
    if (kind == WF_RANDOM_BERNOULLI)
        return x < params[0] ? 1.0f : 0.0f;
    if (kind == WF_RANDOM_UNIFORM)
        return vf_min2(below, params[0] + (params[1] - params[0]) * x);
    return params[0] + params[1] * x;
}

void wf_random_fill(enum wf_random_kind kind, float *dst, int64_t first, int64_t n,
                    const struct wf_rng_key *key, const float *params)
{
    float below = kind == WF_RANDOM_UNIFORM ? wf_random_below(params[1], params[0]) : 0.0f;
    uint32_t stream[4];

    wf_random_stream(key, stream);
    for (int64_t i = first; i < first + n;) {
        int64_t group = i / WF_RANDOM_GROUP, start = group * WF_RANDOM_GROUP;
        float x[WF_RANDOM_GROUP];

        for (int l = 0; l < WF_RANDOM_LANES; l++) {
            float z[4];

            draw(kind, stream, group * WF_RANDOM_LANES + l, z);
            for (int k = 0; k < 4; k++)
                x[k * WF_RANDOM_LANES + l] = z[k];
        }
        for (; i < first + n && i < start + WF_RANDOM_GROUP; i++) {
            float z = x[i - start];

            if (kind == WF_RANDOM_TRUNCATED_NORMAL && vf_abs(z) > 2.0f)
                z = wf_random_truncated(stream, i, 1);
            dst[i - first] = finish(kind, z, params, below);
        }
    }
}
