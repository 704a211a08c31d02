/* pool_kernel.c - pooling and resizing at one SIMD level. */
#include "kernels/cpu/pool_kernel.h"
#include "kernels/cpu/simd/block_inl.h"

/* ---- bytes in lanes -------------------------------------------------------------------------- */

WF_SIMD_INLINE vi load_u8(const uint8_t *p, int64_t n)
{
    uint8_t all[VF_N] = {0};

    if (n < VF_N) {
        for (int64_t i = 0; i < n; i++)
            all[i] = p[i];
        p = all;
    }
#if defined(WF_LEVEL_AVX512)
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
#elif defined(WF_LEVEL_AVX2)
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
#else
    return (vi){p[0], p[1], p[2], p[3]};
#endif
}

WF_SIMD_INLINE void store_u8(uint8_t *p, vi x, int64_t n)
{
#if defined(WF_LEVEL_AVX512)
    if (n == VF_N)
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8((__m512i)x));
    else
        _mm512_mask_cvtepi32_storeu_epi8(p, wf_mask16(n), (__m512i)x);
#else
    uint8_t all[VF_N];

    for (int i = 0; i < VF_N; i++)
        all[i] = (uint8_t)x[i];
    memcpy(p, all, (size_t)n);
#endif
}

/* ---- maxima ---------------------------------------------------------------------------------- */

/* The next candidate wins if it is larger, or the first NaN. */
WF_SIMD_INLINE void consider(vf *best, vi *arg, vf x, int32_t tap)
{
    vm wins = vm_and(vm_not(vm_le(x, *best)), vm_not(vm_isnan(*best)));

    *best = vf_select(wins, x, *best);
    *arg = vi_select(wins, vi_set1(tap), *arg);
}

/* One vector of w channels of one window. */
WF_SIMD_INLINE void max_window(const struct wf_max_row *r, const int64_t from[3],
                               const int64_t to[3], int64_t at, float *y, uint8_t *arg, int64_t w)
{
    int32_t first = (int32_t)((from[0] * r->k[1] + from[1]) * r->k[2] + from[2]);
    vf best =
        vf_load_part(r->x + at + from[0] * r->plane + from[1] * r->line + from[2] * r->channels, w);
    vi where = vi_set1(first);

    for (int64_t d = from[0]; d < to[0]; d++)
        for (int64_t h = from[1]; h < to[1]; h++)
            for (int64_t k = from[2]; k < to[2]; k++) {
                int32_t tap = (int32_t)((d * r->k[1] + h) * r->k[2] + k);

                if (tap != first)
                    consider(
                        &best, &where,
                        vf_load_part(r->x + at + d * r->plane + h * r->line + k * r->channels, w),
                        tap);
            }
    vf_store_part(y, best, w);
    if (arg)
        store_u8(arg, where, w);
}

/* Two by two, unrolled. */
WF_SIMD_INLINE void max_2x2(const struct wf_max_row *r, const float *x, float *y, uint8_t *arg,
                            int64_t w)
{
    vf best = vf_load_part(x, w);
    vi where = vi_zero();

    consider(&best, &where, vf_load_part(x + r->channels, w), 1);
    consider(&best, &where, vf_load_part(x + r->line, w), 2);
    consider(&best, &where, vf_load_part(x + r->line + r->channels, w), 3);
    vf_store_part(y, best, w);
    if (arg)
        store_u8(arg, where, w);
}

static void max(const struct wf_max_row *r)
{
    bool two = r->k[0] == 1 && r->k[1] == 2 && r->k[2] == 2;

    for (int a = 0; a < 3; a++)
        two = two && r->from[a] == 0 && r->to[a] == r->k[a];
    for (int64_t i = 0; i < r->n; i++) {
        float *y = r->y + i * r->channels;
        uint8_t *arg = r->arg ? r->arg + i * r->channels : NULL;
        int64_t at = r->at + i * r->x_step, c = 0;

        for (; two && c + VF_N <= r->channels; c += VF_N)
            max_2x2(r, r->x + at + c, y + c, arg ? arg + c : NULL, VF_N);
        for (; !two && c + VF_N <= r->channels; c += VF_N)
            max_window(r, r->from, r->to, at + c, y + c, arg ? arg + c : NULL, VF_N);
        if (c < r->channels)
            max_window(r, r->from, r->to, at + c, y + c, arg ? arg + c : NULL, r->channels - c);
    }
}

WF_SIMD_INLINE void spread_tap(float *dx, vf dy, vi arg, int32_t tap, int64_t w)
{
    vf_store_part(dx, vf_keep(vm_eqi(arg, vi_set1(tap)), dy), w);
}

WF_SIMD_INLINE void spread_window(const struct wf_max_spread *r, float *dx, vf dy, vi arg,
                                  int64_t w)
{
    int32_t tap = 0;

    for (int64_t d = 0; d < r->k[0]; d++)
        for (int64_t h = 0; h < r->k[1]; h++)
            for (int64_t i = 0; i < r->k[2]; i++, tap++)
                spread_tap(dx + d * r->plane + h * r->line + i * r->channels, dy, arg, tap, w);
}

/* Two by two, unrolled. */
WF_SIMD_INLINE void spread_2x2(const struct wf_max_spread *r, float *dx, vf dy, vi arg)
{
    spread_tap(dx, dy, arg, 0, VF_N);
    spread_tap(dx + r->channels, dy, arg, 1, VF_N);
    spread_tap(dx + r->line, dy, arg, 2, VF_N);
    spread_tap(dx + r->line + r->channels, dy, arg, 3, VF_N);
}

static void max_spread(const struct wf_max_spread *r)
{
    bool two = r->k[0] == 1 && r->k[1] == 2 && r->k[2] == 2;

    for (int64_t i = 0; i < r->n; i++) {
        float *dx = r->dx + i * r->k[2] * r->channels;
        const float *dy = r->dy + i * r->channels;
        const uint8_t *arg = r->arg + i * r->channels;
        int64_t c = 0;

        for (; two && c + VF_N <= r->channels; c += VF_N)
            spread_2x2(r, dx + c, vf_load(dy + c), load_u8(arg + c, VF_N));
        for (; c < r->channels; c += VF_N) {
            int64_t w = r->channels - c < VF_N ? r->channels - c : VF_N;

            spread_window(r, dx + c, vf_load_part(dy + c, w), load_u8(arg + c, w), w);
        }
    }
}

static void max_collect(float *dst, const float *dy, const uint8_t *arg, int64_t n,
                        const int64_t *offset, const int32_t *tap, int64_t channels)
{
    for (int64_t c = 0; c < channels; c += VF_N) {
        int64_t w = channels - c < VF_N ? channels - c : VF_N;
        vf sum = vf_zero();

        for (int64_t j = 0; j < n; j++) {
            int64_t at = offset[j] + c;

            sum = vf_add(sum, vf_keep(vm_eqi(load_u8(arg + at, w), vi_set1(tap[j])),
                                      vf_load_part(dy + at, w)));
        }
        vf_store_part(dst + c, sum, w);
    }
}

/* ---- weighted sums --------------------------------------------------------------------------- */

static void blend(float *dst, const float *src, int64_t n, const int64_t *offset,
                  const float *weight, int64_t channels)
{
    int64_t c = 0;

    for (; c + VF_N <= channels; c += VF_N) {
        vf sum = vf_zero();

        for (int64_t j = 0; j < n; j++)
            sum = vf_fma(vf_load1(weight + j), vf_load(src + offset[j] + c), sum);
        vf_store(dst + c, sum);
    }
    if (c < channels) {
        vf sum = vf_zero();

        for (int64_t j = 0; j < n; j++)
            sum = vf_fma(vf_load1(weight + j), vf_loadn(src + offset[j] + c, channels - c), sum);
        vf_storen(dst + c, sum, channels - c);
    }
}

extern const struct wf_pool_fns WF_LEVELED(wf_pool_fns);
const struct wf_pool_fns WF_LEVELED(wf_pool_fns) = {
    .max = max,
    .max_spread = max_spread,
    .max_collect = max_collect,
    .blend = blend,
};
