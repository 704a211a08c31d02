/* pixels.h - levels and floats, a few at a time: shared by resizing and the operations on
 * pixels. */
#ifndef WF_DATA_IMAGE_PIXELS_H
#define WF_DATA_IMAGE_PIXELS_H

#include "data/image/image.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define WF_PIXELS static inline __attribute__((always_inline))

typedef float wf_v4 __attribute__((vector_size(16)));
typedef float wf_v8 __attribute__((vector_size(32)));

/* Four u8 levels as floats. */
WF_PIXELS wf_v4 wf_load_bytes(const uint8_t *p)
{
#if defined(__x86_64__)
    __m128i b, zero = _mm_setzero_si128();
    int32_t i;

    memcpy(&i, p, sizeof i);
    b = _mm_unpacklo_epi8(_mm_cvtsi32_si128(i), zero);
    return (wf_v4)_mm_cvtepi32_ps(_mm_unpacklo_epi16(b, zero));
#else
    return (wf_v4){(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
#endif
}

WF_PIXELS wf_v4 wf_load_floats(const float *p)
{
    wf_v4 v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* n levels to floats, and back as by wf_level. */
WF_PIXELS void wf_from_levels(const uint8_t *from, int64_t n, float *to)
{
    int64_t i = 0;

    for (; i + 4 <= n; i += 4) {
        wf_v4 v = wf_load_bytes(from + i);

        memcpy(to + i, &v, sizeof v);
    }
    for (; i < n; i++)
        to[i] = (float)from[i];
}

WF_PIXELS void wf_to_levels(const float *from, int64_t n, uint8_t *to)
{
    int64_t i = 0;

#if defined(__x86_64__)
    const __m128 half = _mm_set1_ps(0.5f), top = _mm_set1_ps(255.0f), zero = _mm_setzero_ps();

    for (; i + 8 <= n; i += 8) {
        /* max returns its second operand if the first is NaN. */
        __m128 x = _mm_min_ps(_mm_max_ps(_mm_loadu_ps(from + i), zero), top);
        __m128 y = _mm_min_ps(_mm_max_ps(_mm_loadu_ps(from + i + 4), zero), top);
        __m128i b = _mm_packs_epi32(_mm_cvttps_epi32(_mm_add_ps(x, half)),
                                    _mm_cvttps_epi32(_mm_add_ps(y, half)));

        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_packus_epi16(b, b));
    }
#endif
    for (; i < n; i++)
        to[i] = wf_level(from[i]);
}

#endif
