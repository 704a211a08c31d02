/* conv_kernel.c - pieces of convolution at one SIMD level. */
#include "kernels/cpu/conv_kernel.h"
#include "kernels/cpu/simd.h"

WF_SIMD_INLINE void copy(float *dst, const float *src, int64_t n)
{
    for (; n >= VF_N; n -= VF_N, dst += VF_N, src += VF_N)
        vf_store(dst, vf_load(src));
    if (n)
        vf_storen(dst, vf_loadn(src, n), n);
}

WF_SIMD_INLINE void clear(float *dst, int64_t n)
{
    for (; n >= VF_N; n -= VF_N, dst += VF_N)
        vf_store(dst, vf_zero());
    if (n)
        vf_storen(dst, vf_zero(), n);
}

static void gather(float *dst, const struct wf_conv_image *src, const struct wf_conv_taps *taps,
                   int64_t from, int64_t to, const int64_t at[3], int64_t c, int64_t n_c)
{
    bool side_by_side = n_c == src->channels;

    for (int64_t t = from; t < to;) {
        int64_t d = at[0] + taps->offset[0][t], h = at[1] + taps->offset[1][t],
                w = at[2] + taps->offset[2][t];
        int64_t run = taps->run[t] < to - t ? taps->run[t] : to - t, n = run;
        bool outside = d < 0 || d >= src->n[0] || h < 0 || h >= src->n[1] || w >= src->n[2];

        if (!outside && w < 0) {
            n = n < -w ? n : -w;
            outside = true;
        } else if (!outside) {
            n = n < src->n[2] - w ? n : src->n[2] - w;
        }
        if (outside) {
            clear(dst, n * n_c);
        } else {
            const float *p = src->data + ((d * src->n[1] + h) * src->n[2] + w) * src->channels + c;

            if (side_by_side)
                copy(dst, p, n * n_c);
            else
                for (int64_t i = 0; i < n; i++)
                    copy(dst + i * n_c, p + i * src->channels, n_c);
        }
        dst += n * n_c;
        t += n;
    }
}

static void fetch(const void *p, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        wf_prefetch((const char *)p + i);
}

static void add(float *dst, const float *src, int64_t n)
{
    for (; n >= VF_N; n -= VF_N, dst += VF_N, src += VF_N)
        vf_store(dst, vf_add(vf_load(dst), vf_load(src)));
    if (n)
        vf_storen(dst, vf_add(vf_loadn(dst, n), vf_loadn(src, n)), n);
}

extern const struct wf_conv_fns WF_LEVELED(wf_conv_fns);
const struct wf_conv_fns WF_LEVELED(wf_conv_fns) = {
    .gather = gather,
    .fetch = fetch,
    .add = add,
};
