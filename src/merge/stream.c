/* stream.c - stores past the caches: for what is written once and is larger than the caches, so
 * that its old contents are not read before they are overwritten, and what others need stays there.
 *
 * Such stores may be seen later than those that follow them: wf_stream_end comes before anybody is
 * told. */
#include "merge/block.h"

#ifdef __SSE2__
#include <immintrin.h>

void wf_stream(float *to, const float *from, int64_t n)
{
    int64_t i = 0;

    while (i < n && (uintptr_t)(to + i) % sizeof(__m128) != 0) {
        to[i] = from[i];
        i++;
    }
    for (; i + 4 <= n; i += 4)
        _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    for (; i < n; i++)
        to[i] = from[i];
}

void wf_stream_end(void)
{
    _mm_sfence();
}

#else

void wf_stream(float *to, const float *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

void wf_stream_end(void) {}

#endif
