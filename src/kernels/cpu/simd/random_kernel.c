/* random_kernel.c - random arrays, a group of 64 elements at a time.
 *
 * Repeats base/random.c with VF_N lanes at a time, with identical results: no FMA, the same order
 * of operations. A lane of a group is a lane of a vector, so no shuffling is needed. */
#define WF_MATH_NO_FMA
#include "kernels/cpu/random.h"

#include "base/philox.h"
#include "kernels/cpu/simd/math_inl.h"

#include "base/random_inl.h"

enum { LANES = WF_RANDOM_LANES, GROUP = WF_RANDOM_GROUP };

/* a times m in 64 bits: *high and the low halves. */
WF_SIMD_INLINE vi mul_wide(vi a, uint32_t m, vi *high)
{
#if defined(WF_LEVEL_AVX512)
    __m512i f = _mm512_set1_epi64(m), even = _mm512_mul_epu32((__m512i)a, f);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)a, 32), f);

    *high = (vi)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
    return (vi)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
#elif defined(WF_LEVEL_AVX2)
    __m256i f = _mm256_set1_epi64x(m), even = _mm256_mul_epu32((__m256i)a, f);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), f);

    *high = (vi)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    return (vi)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
#elif defined(__SSE2__)
    __m128i f = _mm_set1_epi32((int)m), even = _mm_mul_epu32((__m128i)a, f);
    __m128i odd = _mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), f);
    __m128i low = _mm_set_epi32(0, -1, 0, -1);

    *high = (vi)_mm_or_si128(_mm_srli_epi64(even, 32), _mm_andnot_si128(low, odd));
    return (vi)_mm_or_si128(_mm_and_si128(low, even), _mm_slli_epi64(odd, 32));
#else
    vi low = vi_zero();

    *high = low;
    for (int i = 0; i < VF_N; i++) {
        uint64_t p = (uint64_t)(uint32_t)a[i] * m;

        low[i] = (int32_t)(uint32_t)p;
        (*high)[i] = (int32_t)(uint32_t)(p >> 32);
    }
    return low;
#endif
}

/* The words of VF_N lanes from lane `block` on; block is a multiple of VF_N, so only the low word
 * of the counter differs between lanes, and it never carries. */
WF_SIMD_INLINE void words(const uint32_t stream[4], uint64_t block, vi c[4])
{
    uint32_t k0 = stream[0], k1 = stream[1];

    c[0] = vi_addw(vi_set1((int32_t)(uint32_t)block), vi_iota());
    c[1] = vi_set1((int32_t)(uint32_t)(block >> 32));
    c[2] = vi_set1((int32_t)stream[2]);
    c[3] = vi_set1((int32_t)stream[3]);
    for (int i = 0; i < WF_PHILOX_ROUNDS; i++) {
        vi high0, high1;
        vi low0 = mul_wide(c[0], WF_PHILOX_M0, &high0), low1 = mul_wide(c[2], WF_PHILOX_M1, &high1);

        c[0] = high1 ^ c[1] ^ vi_set1((int32_t)k0);
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ vi_set1((int32_t)k1);
        c[3] = low0;
        k0 += WF_PHILOX_W0;
        k1 += WF_PHILOX_W1;
    }
}

/* What a fill needs to know once. */
struct fill {
    enum wf_random_kind kind;
    uint32_t stream[4];
    vf p, q, below;
};

WF_SIMD_INLINE vf finish(const struct fill *f, vf x)
{
    if (f->kind == WF_RANDOM_BERNOULLI)
        return vf_keep(vm_lt(x, f->p), vf_set1(1.0f));
    if (f->kind == WF_RANDOM_UNIFORM)
        return vf_min2(f->below, f->p + (f->q - f->p) * x);
    return f->p + f->q * x;
}

/* Replaces what is beyond two standard deviations: elements i .. i + VF_N - 1. */
WF_SIMD_INLINE vf truncate(const struct fill *f, vf z, int64_t i)
{
    uint32_t far = vm_bits(vm_gt(vf_abs(z), vf_set1(2.0f)));

    for (int l = 0; far; l++, far >>= 1)
        if (far & 1)
            z[l] = wf_random_truncated(f->stream, i + l, 1);
    return z;
}

/* One group into dst[0 .. 63]. */
static void fill_group(const struct fill *f, int64_t group, float *dst)
{
    for (int l = 0; l < LANES; l += VF_N) {
        vi w[4];
        vf z[4];

        words(f->stream, (uint64_t)group * LANES + (uint64_t)l, w);
        if (f->kind == WF_RANDOM_NORMAL || f->kind == WF_RANDOM_TRUNCATED_NORMAL) {
            rnd_normal(w[0], w[1], &z[0], &z[1]);
            rnd_normal(w[2], w[3], &z[2], &z[3]);
        } else {
            for (int k = 0; k < 4; k++)
                z[k] = rnd_uniform(w[k]);
        }
        for (int k = 0; k < 4; k++) {
            if (f->kind == WF_RANDOM_TRUNCATED_NORMAL)
                z[k] = truncate(f, z[k], group * GROUP + k * LANES + l);
            vf_store(dst + k * LANES + l, finish(f, z[k]));
        }
    }
}

static void fill(enum wf_random_kind kind, float *dst, int64_t first, int64_t n,
                 const struct wf_rng_key *key, const float *params)
{
    struct fill f = {.kind = kind, .p = vf_set1(params[0])};

    if (kind != WF_RANDOM_BERNOULLI)
        f.q = vf_set1(params[1]);
    if (kind == WF_RANDOM_UNIFORM)
        f.below = vf_set1(wf_random_below(params[1], params[0]));
    wf_random_stream(key, f.stream);
    for (int64_t i = first, end = first + n; i < end;) {
        int64_t group = i / GROUP, stop = (group + 1) * GROUP < end ? (group + 1) * GROUP : end;

        if (stop - i == GROUP) {
            fill_group(&f, group, dst + (i - first));
        } else {
            float whole[GROUP];

            fill_group(&f, group, whole);
            memcpy(dst + (i - first), whole + (i - group * GROUP),
                   (size_t)(stop - i) * sizeof(float));
        }
        i = stop;
    }
}

/* In units of 2^-24, so that the words need no scaling. */
WF_SIMD_INLINE vf drop(vi word, vf x, vf rate24, vf scale)
{
    return vf_keep(vm_ge(vf_from_vi(rnd_bits24(word)), rate24), x * scale);
}

static void dropout(float *dst, const float *x, int64_t first, int64_t n,
                    const struct wf_rng_key *key, float rate)
{
    vf rate24 = vf_set1(rate * 0x1p24f), scale = vf_set1(1.0f / (1.0f - rate));
    uint32_t stream[4];

    wf_random_stream(key, stream);
    for (int64_t i = first, end = first + n; i < end;) {
        int64_t group = i / GROUP, from = group * GROUP;
        int64_t stop = from + GROUP < end ? from + GROUP : end;
        float whole[GROUP];
        const float *src = x + (i - first);
        float *to = dst + (i - first);

        if (stop - i < GROUP) {
            memset(whole, 0, sizeof whole);
            memcpy(whole + (i - from), src, (size_t)(stop - i) * sizeof(float));
            src = to = whole;
        }
        for (int l = 0; l < LANES; l += VF_N) {
            vi w[4];

            words(stream, (uint64_t)group * LANES + (uint64_t)l, w);
            for (int k = 0; k < 4; k++)
                vf_store(to + k * LANES + l,
                         drop(w[k], vf_load(src + k * LANES + l), rate24, scale));
        }
        if (to == whole)
            memcpy(dst + (i - first), whole + (i - from), (size_t)(stop - i) * sizeof(float));
        i = stop;
    }
}

const struct wf_random_fns WF_LEVELED(wf_random_fns) = {
    .fill = fill,
    .dropout = dropout,
};
